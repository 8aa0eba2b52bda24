"""Agents train on the batch of any library, scored in the original: by hand, and on ports with planted faults."""

import argparse
import sys

import numpy as np
import pandas as pd
import pytest
import scipy
import torch

from lockstep.agents import ppo
from lockstep.agents.run import contract
from lockstep.experiments import UserError, catalogue, config, crossing, experiment
from lockstep.experiments.config import Settings
from lockstep.experiments.crossing import BATCH, CONTROL, ORIGINAL
from lockstep.experiments.experiment import MEASURED, MISSING
from lockstep.experiments.verify import opened, subjects
from lockstep.experiments.verify.batch import Batch, first_episodes
from lockstep.experiments.verify.episodes import DISABLED, NEXT_STEP, SAME_STEP
from lockstep.experiments.verify.originals import Original
from lockstep.experiments.verify.subjects import Kind, Step, Subject
from tests.experiments import faulty_ports

PORTS = "tests.experiments.faulty_ports"
CARTPOLE = "CartPole-v1"


class Planted:
    """Two environments whose observations count the calls, one number each; environment 1 begins with 10.

    Environment 0 terminates in the second call, environment 1 is truncated in the third.
    """

    num_envs = 2

    def __init__(self, given: bool, sounding: bool = False):
        self.given, self.sounding = given, sounding

    def reset(self, seed):
        self.calls = 0
        return np.array([[0.0], [10.0]])

    def step(self, actions):
        self.calls += 1
        observation = np.array([[0.0], [10.0]]) + self.calls
        terminated, truncated = (np.array([self.calls == call, False]) for call in (2, 0))
        truncated[1] = self.calls == 3
        if self.sounding and self.calls == 3:  # the call that resets environment 0
            terminated[0] = True
        ended = terminated | truncated
        return Step(observation, np.array([1.0, 2.0]), terminated, truncated, -observation, ended & self.given)


def stepped(mode, given, sounding=False):
    """The batch after three calls, and what the reset and each call gave."""
    spaces = Original(CARTPOLE).env.observation_space, Original(CARTPOLE).space
    batch = Batch(Planted(given, sounding), mode, *spaces)
    first = batch.reset(seed=0)
    return batch, first, [batch.step(torch.tensor([0, 1])) for _ in range(3)]


def lists(steps, place, name=None):
    return [(step[place][name] if name else step[place]).flatten().tolist() for step in steps]


def test_what_agents_take_has_their_types_and_shapes():
    _, (obs, infos), steps = stepped(SAME_STEP, True)
    assert (obs.dtype, obs.tolist()) == (torch.float32, [[0.0], [10.0]])
    assert infos == {}
    for obs, reward, terminated, truncated, infos in steps:
        assert obs.shape == infos["final_obs"].shape == (2, 1)
        assert obs.dtype == infos["final_obs"].dtype == reward.dtype == torch.float32
        assert reward.shape == terminated.shape == truncated.shape == (2,)
        assert terminated.dtype == truncated.dtype == torch.bool


@pytest.mark.parametrize("mode", [SAME_STEP, DISABLED])
def test_where_a_step_resets_its_info_has_the_last_observation(mode):
    batch, _, steps = stepped(mode, True)
    assert lists(steps, 0) == [[1, 11], [2, 12], [3, 13]]
    assert lists(steps, 4, "final_obs") == [[1, 11], [-2, 12], [3, -13]]
    assert lists(steps, 2) == [[False, False], [True, False], [False, False]]
    assert lists(steps, 3) == [[False, False], [False, False], [False, True]]
    assert {*steps[0][4]} == {"final_obs"}
    assert lists(steps, 1) == [[1, 2]] * 3
    assert (batch.cut, batch.lost) == (1, 0)


def test_where_the_last_observation_is_lost_the_next_one_s_first_stands_for_it():
    batch, _, steps = stepped(SAME_STEP, False)
    assert lists(steps, 4, "final_obs") == lists(steps, 0) == [[1, 11], [2, 12], [3, 13]]
    assert (batch.cut, batch.lost) == (1, 1)


@pytest.mark.parametrize("sounding", [False, True])
def test_a_call_that_only_resets_is_no_step(sounding):
    """Environment 0 ends in the second call, so that the third resets it: no reward and no flag, whatever is given."""
    batch, (_, infos), steps = stepped(NEXT_STEP, False, sounding)
    assert infos["active"].dtype == torch.bool and infos["active"].tolist() == [True, True]
    assert lists(steps, 4, "active") == [[True, True], [False, True], [True, False]]
    assert lists(steps, 4, "final_obs") == [[1, 11], [2, 12], [3, 13]]
    assert lists(steps, 1) == [[1, 2], [1, 2], [0, 2]]
    assert lists(steps, 2) == [[False, False], [True, False], [False, False]]
    assert (batch.cut, batch.lost) == (1, 0)


def test_the_first_episode_of_each_environment_counts():
    """Two steps of 1, and three of 2; two of each where both are left after two."""
    batch, *_ = stepped(NEXT_STEP, False)

    def act(obs):
        return torch.zeros(2, dtype=torch.int64)

    assert first_episodes(batch, act, seed=0, longest=10).tolist() == [2.0, 6.0]
    assert first_episodes(batch, act, seed=0, longest=2).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(("name", "mode"), [("NextStep", NEXT_STEP), ("SameStep", SAME_STEP), ("Disabled", DISABLED)])
def test_agents_find_their_contract_kept_and_count_the_episodes(name, mode):
    original = Original(CARTPOLE)
    batch = Batch(Subject(f"{PORTS}:{name}", 8), mode, original.env.observation_space, original.space)
    contract.require_attributes(batch)
    run = ppo.PPO(batch, ppo.config_of("cartpole", num_envs=8, horizon=64, total_steps=512, minibatches=4))
    run.iterate()
    found = run.statistics()
    ended = int((run.rollout.rows["terminated"] | run.rollout.rows["truncated"]).sum())
    assert found["episodes"] == ended > 0
    assert found["episode_return"] == pytest.approx(found["episode_length"])  # 1 for each step, 0 for a reset
    if mode == NEXT_STEP:
        assert int((~run.rollout.rows["active"]).sum()) == ended  # after each end a call that resets
    else:
        assert run.rollout.active is None


# ---- in another Python ---------------------------------------------------------------------------------------------


def test_an_environment_in_another_python_is_that_in_this_one():
    original, here = Original(CARTPOLE), Subject("gymnasium:CartPole-v1", 4)
    with opened.Elsewhere(sys.executable, "gymnasium:CartPole-v1", 4) as there:
        assert np.array_equal(here.reset(3), there.reset(3))
        for actions in original.actions(60, 4, 0):
            one, other = here.step(actions), there.step(actions)
            arrays = zip(one[:-1], other[:-1], strict=True)
            assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)
            assert one.agents is other.agents is None


def test_a_mistake_in_another_python_is_told_in_a_sentence():
    with (
        opened.Elsewhere(sys.executable, "gymnasium:CartPol-v1", 4) as there,
        pytest.raises(UserError, match="^gymnasium:CartPol-v1: .*cannot be made: NameNotFound: "),
    ):
        there.reset(0)
    with (
        opened.Elsewhere(sys.executable, "gymnasium:CartPole-v1", 4) as there,
        pytest.raises(UserError, match="^gymnasium:CartPole-v1: .*Error: "),
    ):
        there.step(np.zeros(4, int))  # before a reset


# ---- the experiment ------------------------------------------------------------------------------------------------


class Short(faulty_ports.SameStep):
    """Truncates after five steps, in which no pole falls."""

    def __init__(self, identity: str, num_envs: int):
        super().__init__(num_envs)
        self.max_episode_steps = 5


class ShortAndForgetful(Short, faulty_ports.Forgetful):
    """Shows no last observation either."""


class GoesOn(faulty_ports.GoesOn):
    def __init__(self, identity: str, num_envs: int):
        super().__init__(num_envs)


TINY = {"num_envs": 8, "horizon": 16, "total_steps": 256, "minibatches": 4, "epochs": 1}


def planned(environment, chosen):
    section = {"algorithm": "ppo", "seeds": 1, "episodes": 4, "settings": TINY} | chosen
    settings = Settings({"seed": 0, "crossing": section})
    return crossing.plan(experiment.Request(environment, "quick", settings, ["cpu"], ["cpu"], argparse.Namespace()))


@pytest.fixture(scope="module")
def rows():
    """The rows of a training on Gymnasium's, and on three planted ports, by library and place."""
    kinds = {"gymnasium": subjects.KINDS["gymnasium"]}
    for made in (Short, ShortAndForgetful, GoesOn):
        kinds[made.__name__] = Kind(made, "numpy", ("numpy",))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subjects, "KINDS", kinds)
        todo = planned("cartpole", {})
        with todo.measuring(list(todo.groups.values())) as measure:
            found = [row for group in todo.groups.values() for row in measure(group)]
    assert list(todo.groups) == [f"{library} seed=0" for library in kinds]
    assert all(list(row) == crossing.COLUMNS for row in found)
    return {(row["library"], row["scored_in"]): row for row in found}


def test_a_port_is_scored_in_the_original_and_in_itself(rows):
    """No episode is longer than five steps in the one, and none as short in the other."""
    assert rows["Short", BATCH]["return"] == 5
    assert rows["Short", ORIGINAL]["return"] > 5
    assert rows["Short", ORIGINAL]["reason"] is None
    control = rows[CONTROL, ORIGINAL]
    assert (control["status"], control["seed"], control["algorithm"]) == (MEASURED, 0, "ppo")
    assert control["return"] > 5 and rows[CONTROL, BATCH]["return"] > 5


def test_lost_observations_are_told(rows):
    """Eight environments have 32 calls each, so that six episodes of each are truncated."""
    words = "48 of 48 truncated episodes did not show their last observation; the next one's first stood in for it"
    assert rows["ShortAndForgetful", ORIGINAL]["reason"] == rows["ShortAndForgetful", BATCH]["reason"] == words
    assert rows["ShortAndForgetful", BATCH]["return"] == 5


def test_what_cannot_be_trained_on_has_a_row_that_says_why(rows):
    row = rows["GoesOn", None]
    assert (row["status"], row["return"]) == (MISSING, None)
    assert row["reason"] == "GoesOn:CartPole-v1: ended environments go on, so that nothing trains on them"


@pytest.mark.parametrize(
    ("environment", "chosen", "sentence"),
    [
        ("vehicular_edge", {}, "experiments/vehicular_edge/vehicular_edge.yaml: crossing: its original is not Gymnas"),
        ("cartpole", {"algorithm": "pppo"}, "experiments/classic_control/cartpole.yaml: crossing: there is no algorit"),
        ("cartpole", {"settings": {"lrr": 1}}, "experiments/classic_control/cartpole.yaml: crossing: Config has no f"),
    ],
)
def test_mistakes_in_the_settings_are_answered_in_a_sentence(environment, chosen, sentence):
    with pytest.raises(UserError) as raised:
        planned(environment, chosen)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("name", [name for name in config.files() if catalogue.why_not("crossing", name) is None])
def test_settings_ask_for_every_library_and_seed_of_a_task(name, scale):
    settings = config.load(name, scale)
    todo = crossing.plan(experiment.Request(name, scale, settings, ["cpu"], ["cpu"], argparse.Namespace()))
    assert len(todo.groups) == len(subjects.KINDS) * settings.crossing.seeds
    assert {group.library for group in todo.groups.values()} == {*subjects.KINDS} >= {CONTROL, crossing.OURS}
    whole = todo.config["settings"]
    assert whole["total_steps"] >= whole["num_envs"] * whole["horizon"] and whole["threads"] == 1


# ---- over seeds ----------------------------------------------------------------------------------------------------


def test_intervals_over_seeds_are_student_s_and_welch_s():
    """Of 1, 2, 3: the deviation 1, and 4.3027 the 97.5 % quantile of Student's with two degrees of freedom."""
    assert crossing.interval([1, 2, 3]) == pytest.approx((2, 2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), rel=1e-5)
    one, other = np.array([1.0, 2.0, 4.0]), np.array([5.0, 9.0, 7.0, 20.0])
    theirs = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    found = crossing.interval(one, other)
    assert found == pytest.approx((one.mean() - other.mean(), theirs.low, theirs.high))


def of_seeds(failed, reason=None):
    """Rows of five seeds, which return their number, but for those that failed."""
    same = dict.fromkeys(crossing.COLUMNS) | {"library": CONTROL, "version": "1.0", "algorithm": "ppo"}
    rows = []
    for seed in range(5):
        if seed in failed:
            rows.append(same | {"seed": seed, "status": MISSING, "reason": "a loss is no number"})
        else:
            found = same | {"seed": seed, "status": MEASURED, "reason": reason, "return": float(seed)}
            rows += [found | {"scored_in": place} for place in (ORIGINAL, BATCH)]
    return pd.DataFrame(rows, columns=crossing.COLUMNS)


@pytest.mark.parametrize(("failed", "mean"), [({0}, 2.5), ({3}, 1.75), ({0, 3}, 7 / 3)])
def test_a_seed_that_failed_is_counted_and_hides_no_other(failed, mean):
    (row,) = crossing.summary(of_seeds(failed)).to_dict("records")
    assert (row["status"], row["seeds"]) == (MEASURED, 5 - len(failed))
    assert row["original"] == pytest.approx(mean)
    assert row["reason"] == f"{len(failed)} of 5 seeds: a loss is no number"
    assert f"{mean:.4g} [" in crossing.report(of_seeds(failed))
    assert crossing.report(of_seeds(failed)).endswith(f"in its own batch; {row['reason']}")


def test_what_is_told_of_seeds_that_did_not_fail_is_told_beside_it():
    (row,) = crossing.summary(of_seeds({3}, "9 were lost")).to_dict("records")
    assert row["reason"] == "9 were lost; 1 of 5 seeds: a loss is no number"


def test_where_every_seed_failed_nothing_was_measured():
    (row,) = crossing.summary(of_seeds(set(range(5)))).to_dict("records")
    assert (row["status"], row["reason"]) == (MISSING, "a loss is no number")
    assert crossing.report(of_seeds(set(range(5)))).endswith(f"{MISSING}: a loss is no number")


def test_seeds_that_all_score_the_same_leave_no_interval_open():
    assert crossing.interval([500, 500], [500, 500]) == (0, 0, 0)
    assert crossing.interval([500, 500]) == (500, 500, 500)
    value, low, high = crossing.interval([500])
    assert value == 500 and np.isnan([low, high]).all()
