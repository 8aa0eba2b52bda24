"""Training in several processes: their rows, and the settings that say how many."""

import functools
import sys

import pandas as pd
import pytest

from lockstep.agents import ppo
from lockstep.experiments import UserError, catalogue, command, config, growth, run, weak_scaling
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.ledger import provenance, results
from lockstep.experiments.weak_scaling import World
from tests.paper import handwritten

SMALL = {"recipe": "solve", "num_envs": 16, "horizon": 8, "epochs": 2, "minibatches": 2, "hidden": [16, 16]}
SUMS = 2 * 2 * 2  # of an iteration: moments of the advantage and gradients, of each minibatch


def asked(**about) -> Settings:
    section = {"algorithm": "ppo", "settings": SMALL, "links": [], "nodes": [2], "ranks": [1, 2]}
    return Settings(section | {"blocks": 6, "block_s": 0.01, "probes": [65536]} | about)


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)


def test_environments_without_the_section_take_no_part():
    asking = {name for name in config.files() if "weak_scaling" in catalogue.experiments_of(name)}
    assert "cartpole" in asking and "pendulum" not in asking


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_the_settings_ask_for_runs_that_there_are(scale):
    settings = config.load("cartpole", scale)
    weak_scaling.check("cartpole", settings.weak_scaling, settings.seed)


def test_every_rank_has_as_many_environments():
    """And batches: so many rows of a minibatch, whatever the number of ranks."""
    for ranks in (1, 2, 4):
        settings = weak_scaling.settings_of("cartpole", asked(), ranks, seed=3)
        assert (settings.num_envs, settings.threads, settings.seed) == (16 * ranks, 1, 3)
        assert (settings.horizon, settings.minibatches) == (8, 2)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"algorithm": "pp0"}, "algorithm: there is no algorithm 'pp0'; did you mean 'ppo'"),
        ({"settings": SMALL | {"horizn": 8}}, "settings: .*'horizn'; did you mean 'horizon'"),
        ({"probes": [10]}, "probes: 10 is no number of whole float32, a multiple of 4"),
    ],
)
def test_a_section_that_names_what_is_not_there_is_refused(about, message):
    with pytest.raises(ConfigError, match=f"^experiments/classic_control/cartpole.yaml: weak_scaling.{message}"):
        weak_scaling.check("cartpole", asked(**about), 0)


@pytest.mark.usefixtures("two_cores")
def test_two_ranks_have_rows_of_training_and_of_the_sums_it_makes():
    rows = pd.DataFrame(weak_scaling.measure("cartpole", World(2), asked(), seed=0))
    assert set(rows) - {"had"} == set(weak_scaling.COLUMNS)
    training, lone = (rows[rows["part"] == part] for part in (growth.TRAINING, growth.LONE))
    assert training.groupby(["rank", "block"]).size().tolist() == [1] * 2 * 6
    assert (training["env_steps"] == 2 * 16 * 8 * training["iterations"]).all()
    assert (training["calls"] == SUMS * training["iterations"]).all()
    assert (training["sum_s"] < training["wall_s"]).all() and (training["sum_s"] > 0).all()
    for name in ("wall_s", "iterations"):  # by one clock
        assert training.groupby("block")[name].nunique().tolist() == [1] * 6
    often = dict(zip(lone["bytes"] / lone["calls"], lone["per_iteration"], strict=True))
    moments, gradient, probe = sorted(often)
    settings = weak_scaling.settings_of("cartpole", asked(), 1, seed=0)
    parameters = ppo.PPO("cartpole", settings).parameter_count
    assert (moments, probe) == (3 * 8, 65536) and gradient >= 4 * parameters
    assert often == {moments: SUMS / 2, gradient: SUMS / 2, probe: 0}
    assert lone.groupby(["rank", "block"]).size().tolist() == [3] * 2 * 6
    of_an_iteration = (training["bytes"] / training["iterations"]).unique()
    assert of_an_iteration.tolist() == [SUMS / 2 * (moments + gradient)]


@pytest.mark.usefixtures("two_cores")
def test_one_rank_makes_no_sums():
    rows = weak_scaling.measure("cartpole", World(1), asked(), seed=0)
    assert len(rows) == 6 and {(row["part"], row["calls"], row["sum_s"]) for row in rows} == {("training", 0, 0.0)}


@pytest.mark.usefixtures("two_cores")
@pytest.mark.slow
def test_an_algorithm_of_one_process_says_so():
    settings = {"num_envs": 16, "horizon": 8}
    with pytest.raises(UserError, match="^weak_scaling cartpole: a2c in ranks=2: .*process"):
        weak_scaling.measure("cartpole", World(2), asked(algorithm="a2c", settings=settings), seed=0)


FAULT = "of the second rank alone"


def broken(method, task, variables):
    """As `rows_of_rank`, in a process in which a method of PPO fails if it is the second."""

    def failing(*_):
        raise ArithmeticError(FAULT)

    if variables["RANK"] == "1":
        setattr(ppo.PPO, method, failing)
    return weak_scaling.rows_of_rank(task, variables)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("method", ["__init__", "iterate"])
def test_an_error_in_one_rank_is_told_rather_than_that_the_others_have_lost_it(monkeypatch, method):
    monkeypatch.setattr(weak_scaling, "rows_of_rank", functools.partial(broken, method))
    with pytest.raises(ArithmeticError, match=FAULT):
        weak_scaling.measure("cartpole", World(2), asked(), seed=0)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.slow
def test_more_ranks_than_cores_do_not_make_the_machine_a_busy_one():
    rows = weak_scaling.measure("cartpole", World(3), asked(), seed=0)
    assert {row["rank"] for row in rows} == {0, 1, 2}
    assert all(row["had"] != row["had"] for row in rows)


def test_the_command_line_writes_rows_and_says_what_the_model_gives(monkeypatch, tmp_path, capsys):
    def fake(name, group, section, seed):
        rows = [row for row in handwritten.RANKS if row["ranks"] == group.ranks]
        return [dict.fromkeys(weak_scaling.COLUMNS) | row for row in rows]

    monkeypatch.setattr(weak_scaling, "measure", fake)
    output = tmp_path / "weak_scaling.csv"
    words = ["run", "weak_scaling", "cartpole", "--devices", "cpu", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", words)
    command.run(run.main)
    frame, described = results.read(output)
    assert len(frame) == len(handwritten.RANKS) and "missing" not in described
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[:4] for line in lines] == [
        ["1", "1,000", "100.000", "100.000"],
        ["2", "1,600", "125.000", "112.000"],
        ["4", "1,600", "250.000", "130.000"],
    ]
    assert lines[2].endswith("40.0% 4 ranks on 2 cores")
