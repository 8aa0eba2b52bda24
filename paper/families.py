"""Families of environments in the paper, found by folder: one beside this file that has an about.yaml is a family's.

about.yaml   `title`; `originals` and `limits`, Markdown for the chapters that speak of all families; `steps`, how steps
             of its environments are called; `headline`: the environment that stands for the family, `num_envs` at
             which its rates are given, `rungs` that short tables show; `page`: the figure of the family's chapter that
             stands on the page and not in the supplement, as its table <family>_environments does; `looked_up`: of
             libraries' forms of its environments what their own code says of a difference that conformance finds
claims.yaml  `claims` of others, and `targets` of its own, see common/aims.yaml
chapters/    notebooks that stand in the report among those of chapters/, in the order of their names
tables, figures, quantities: modules, or folders of modules, whose decorated functions join those of common/
"""

import functools
import importlib
from pathlib import Path

from lockstep.experiments import ROOT
from lockstep.experiments.ledger import sources
from lockstep.reading import read_yaml

FOLDER = Path(__file__).parent
MOST = 10  # tables, and figures, of the page


@functools.cache
def read(*path: str) -> dict:
    """A YAML file of this folder; empty where there is none."""
    file = FOLDER.joinpath(*path)
    return read_yaml(file, "/".join((FOLDER.name, *path))) if file.exists() else {}


@functools.cache
def names() -> tuple[str, ...]:
    return tuple(sorted(file.parent.name for file in FOLDER.glob("*/about.yaml")))


def about(family: str) -> dict:
    return read(family, "about.yaml")


def looked_up(environment: str, library: str, checks: set[str]) -> list[str]:
    """Words on a library's form of an environment, from its code, for the checks that found a difference."""
    every = about(sources.family_of(environment).name).get("looked_up", ())
    mine = [one for one in every if one["library"] == library and environment in one["environments"]]
    return [one["words"] for one in mine if checks.intersection(one["checks"])]


def claims(family: str) -> dict:
    return read(family, "claims.yaml")


def aims() -> dict:
    """Targets and budgets of all families, and the environment of the headline."""
    return read("common", "aims.yaml")


def targets() -> list[dict]:
    """The targets of all families, then of each; those of all without the environments that a family asks instead."""
    own = [target for name in names() for target in claims(name).get("targets", ())]
    replaced = {
        target["target"]: {other["select"]["environment"] for other in own if other.get("instead") == target["target"]}
        for target in aims()["targets"]
    }
    return [*(target | {"except": replaced[target["target"]]} for target in aims()["targets"]), *own]


def page() -> set[str]:
    """The tables and figures of the page, as in "table:claims": those of families first; the rest is supplement.

    Of common/page.yaml it takes what leaves room for at most MOST of each kind, in that order.
    """
    shown = [one for name in names() for one in (*about(name).get("page", ()), f"table:{name}_environments")]
    for one in read("common", "page.yaml")["page"]:
        kind = one.partition(":")[0]
        if sum(other.startswith(kind) for other in shown) < MOST:
            shown.append(one)
    return set(shown)


def headlines() -> dict[str, dict]:
    """By family: what its about.yaml says of the headline, of those that say anything; the paper's own first."""
    found = {name: about(name)["headline"] for name in names() if "headline" in about(name)}
    return dict(sorted(found.items(), key=lambda item: item[1]["environment"] != aims()["headline"]))


def headline() -> dict:
    """The headline of the paper: environment, num_envs, rungs, and the algorithm and recipes of its training."""
    return next(iter(headlines().values()))


@functools.cache
def of(environment: str) -> str | None:
    """The family of an environment, None of an unknown one."""
    folder = sources.environments().get(environment)
    return folder and folder.relative_to(ROOT / "envs").parts[0]


def steps(environment: str) -> str:
    """The word for steps of an environment, its family's."""
    return about(of(environment)).get("steps", "steps")


def told_at(environment: str) -> int:
    """The batch size of an environment's short tables: that of its family's headline, else of the paper's."""
    return headlines().get(of(environment), headline())["num_envs"]


@functools.cache
def modules(kind: str) -> list:
    """The modules of a kind ("tables", "figures", "quantities") of all families together and of each, imported."""
    places = [place for name in ("common", *names()) for place in FOLDER.glob(f"{name}/{kind}/[!_]*.py")]
    places += [FOLDER / name / f"{kind}.py" for name in names() if (FOLDER / name / f"{kind}.py").exists()]
    paths = (".".join(place.relative_to(FOLDER).with_suffix("").parts) for place in sorted(places))
    return [importlib.import_module(f"lockstep.paper.{path}") for path in paths]
