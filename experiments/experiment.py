"""The declaration of an experiment: what it plans of a request, and the groups of rows that it measures."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields

import pandas as pd

from lockstep.experiments.config import Settings

MEASURED, MISSING = "measured", "not measured"  # of a row with a status
SHORT = {"num_envs": "B", "fused_steps": "K"}  # in labels


@dataclass(frozen=True)
class Group:
    """The fields that tell a group from every other; each experiment says by which fields."""

    @classmethod
    def of(cls, row) -> "Group":
        """The group that a row, or a summary's row, is of."""
        return cls(**{field.name: getattr(row, field.name) for field in fields(cls)})

    @property
    def label(self) -> str:
        """One line with every field that is not its default: texts as they are, numbers with their names."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        default = {field.name: field.default for field in fields(self)}
        return " ".join(word(name, value) for name, value in shown.items() if value not in (None, default[name]))


def word(name: str, value: object) -> str:
    if isinstance(value, tuple):  # (name, value) each
        return " ".join(word(*pair) for pair in value)
    if isinstance(value, str):
        return value
    return name if value is True else f"{SHORT.get(name, name)}={value}"


@dataclass(frozen=True)
class Request:
    """The request of a command line to an experiment."""

    environment: str | None  # None: of the machine
    scale: str
    settings: Settings  # of the environment at the scale, or nothing
    devices: list[str]  # to run on
    present: list[str]  # all there are, or are supposed to be
    options: argparse.Namespace  # all others
    stack: ExitStack = field(default_factory=ExitStack)  # what the experiment enters is left when all is measured

    def asked(self, **more: object) -> dict:
        """The settings and what was asked for, as the provenance shows them."""
        return self.settings.plain() | {"asked": {"devices": self.devices} | more}


@dataclass
class Plan:
    """The plan of a request.

    groups: by label, in the order of their rows.
    measuring: given the groups that are left to measure, a context with the function that measures one, or says by
        LeftOut why it does not.
    config: settings and what was asked for, as the provenance shows them, a mapping that JSON can hold.
    conditions: what every group depends on beside code, machine and settings, as versions of others' libraries.
    method: of timing, for the provenance.
    order: labels in the order of measuring, perhaps not all; by default that of the rows.
    seconds: that a group takes by estimate, by label.
    columns: of the CSV, where the settings decide them; else they are the experiment's.
    """

    groups: Mapping[str, object]
    measuring: Callable[[Sequence], object]
    config: Mapping
    method: Mapping | None = None
    order: Sequence[str] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping = field(default_factory=dict)
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class Experiment:
    """An experiment; catalogue.Listed explains the last eight, and reads them as constants in the text.

    columns: of the CSV.
    plan: Plan of a Request.
    report: lines to print of the rows, given the settings and the fields of every group that is missing.
    verdict: tells of all rows but those of a busy machine whether they pass; written when all groups are there.
    failure: what the command line ends with where they do not, as an error.
    in_pieces: what is measured when the time is over is a result, with groups missing.
    options: adds options of its own to a parser.
    """

    columns: Sequence[str]
    plan: Callable[[Request], Plan]
    report: Callable[[pd.DataFrame, Settings, list[Mapping]], str]
    verdict: Callable[[pd.DataFrame], bool] | None = None
    failure: str | None = None
    in_pieces: bool = False
    options: Callable[[argparse.ArgumentParser], None] | None = None
    needs: str = "section"
    timed: bool = True
    quick: bool = True
    predicted: bool = False
    originals: bool = False
    choices: tuple[str, ...] = ()
    compiles: bool = False
    gpu: bool = True


class LeftOut(Exception):
    """A group cannot be measured here; the message says why."""


def each(measure: Callable[[object], list[dict]]) -> Callable[[Sequence], object]:
    """`measuring` of groups that need nothing around them."""
    return lambda left: nullcontext(measure)


def by_label(groups: Sequence[Group]) -> dict[str, Group]:
    return {group.label: group for group in groups}
