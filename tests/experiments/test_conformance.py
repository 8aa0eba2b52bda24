"""Conformance fails where the port differs from its original, and where it was never compared."""

import argparse
import importlib.metadata

import pandas as pd
import pytest

from lockstep.experiments import UserError, config, conformance, crossing, experiment, peer_workers
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import MEASURED, MISSING
from lockstep.experiments.verify import subjects
from lockstep.experiments.verify.subjects import Kind
from tests.experiments import faulty_ports


@pytest.fixture
def rows(monkeypatch):
    """A function that compares a port, named here, in the place of ours, beside one that is true."""
    monkeypatch.setattr(conformance, "TRANSITIONS", {"quick": 1000})

    def compared(name: str) -> pd.DataFrame:
        def port(environment, num_envs):
            return getattr(faulty_ports, name)(num_envs)

        def true(identity, num_envs):
            return faulty_ports.NextStep(num_envs)

        made = {conformance.OURS: port, "other": true}
        monkeypatch.setattr(subjects, "KINDS", {key: Kind(make, "numpy", ("numpy",)) for key, make in made.items()})
        settings = Settings({"seed": 0})
        request = experiment.Request("cartpole", "quick", settings, ["cpu"], ["cpu"], argparse.Namespace())
        todo = conformance.plan(request)
        with todo.measuring(list(todo.groups.values())) as measure:
            found = [row for group in todo.groups.values() for row in measure(group)]
        return pd.DataFrame(found, columns=conformance.COLUMNS)

    return compared


@pytest.mark.parametrize("module", [conformance, crossing])
def test_rows_depend_on_the_libraries_that_are_installed(monkeypatch, tmp_path, module):
    """So that a run goes on with none that say of a library that it is missing, once `make peers` has set it up."""
    monkeypatch.setattr(peer_workers, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(subjects, "is_here", lambda name: not name.startswith("gymnax"))

    def libraries() -> dict:
        settings = config.load("cartpole", "quick")
        request = experiment.Request("cartpole", "quick", settings, ["cpu"], ["cpu"], argparse.Namespace())
        return module.plan(request).conditions["libraries"]

    before = libraries()
    assert before["gymnax"].endswith("is not installed; make peers installs it")
    assert before["gymnasium"]["gymnasium"] == importlib.metadata.version("gymnasium")
    described = tmp_path / "gymnax" / "lib" / "python3.11" / "site-packages" / "gymnax-9.0.dist-info" / "METADATA"
    described.parent.mkdir(parents=True)
    described.write_text("Metadata-Version: 2.1\nName: gymnax\nVersion: 9.0\n")
    (tmp_path / "gymnax" / "ready").touch()
    assert libraries() == before | {"gymnax": {"gymnax": "9.0"}}


def status(frame: pd.DataFrame, library: str) -> set[str]:
    return set(frame.loc[frame["library"] == library, "status"])


def test_a_true_port_passes(rows):
    assert conformance.EXPERIMENT.verdict(rows("NextStep"))


def test_a_port_that_differs_fails(rows):
    frame = rows("Strong")
    assert status(frame, conformance.OURS) == {MEASURED}
    assert not conformance.EXPERIMENT.verdict(frame)
    assert "lockstep   " in conformance.report(frame) and "differs: transitions" in conformance.report(frame)


def test_a_port_that_cannot_be_made_fails(rows):
    frame = rows("broken")
    assert status(frame, conformance.OURS) == {MISSING} and status(frame, "other") == {MEASURED}
    (reason,) = frame.loc[frame["status"] == MISSING, "reason"]
    assert reason == "lockstep:cartpole cannot be made: ZeroDivisionError: division by zero"
    assert not conformance.EXPERIMENT.verdict(frame)


def test_an_original_that_is_not_gymnasium_s_is_refused():
    request = experiment.Request(
        "vehicular_edge", "quick", Settings({"seed": 0}), ["cpu"], ["cpu"], argparse.Namespace()
    )
    with pytest.raises(UserError, match="^conformance vehicular_edge: its original is not Gymnasium's"):
        conformance.plan(request)
