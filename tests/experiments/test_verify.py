"""Every check notices a planted fault, and only it does; what is the same passes all."""

import csv
import dataclasses
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from lockstep.experiments import ROOT, UserError, peer_workers
from lockstep.experiments.ledger import results
from lockstep.experiments.verify import __main__ as command_line
from lockstep.experiments.verify import checks, comparison, episodes, lives, shown, subjects
from lockstep.experiments.verify.checks import DIFFERS, INJECTED, OUTSIDE, SAME, TOLD, UNSEEN
from lockstep.experiments.verify.comparison import Asked
from lockstep.experiments.verify.episodes import DISABLED, NEXT_STEP, SAME_STEP, Episodes
from lockstep.experiments.verify.lives import Lives, Run
from lockstep.experiments.verify.originals import Original
from lockstep.experiments.verify.shown import Shown
from tests.experiments import faulty_ports, teams

PORTS = "tests.experiments.faulty_ports"
CARTPOLE = "CartPole-v1"
TASKS = {
    "cartpole": CARTPOLE,
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "pendulum": "Pendulum-v1",
    "acrobot": "Acrobot-v1",
}
FEW = Asked(num_envs=64, transitions=4000)


def compared(factory, original=CARTPOLE, asked=FEW, seen=None):
    """Rows by property and by how it was seen."""
    seen = shown.declared(original) if seen is None else seen
    if seen.policy:
        asked = dataclasses.replace(asked, policy=f"{seen.policy.__module__}:{seen.policy.__qualname__}")
    rows, _ = comparison.compare(factory, Original(original), seen, asked)
    assert all(row.example for row in rows if row.verdict == DIFFERS and row.cases)
    return {(row.property, row.seen): row for row in rows}


@functools.cache
def of_port(name):
    return compared(f"{PORTS}:{name}")


def with_verdict(rows, verdict):
    return {name for (name, _), row in rows.items() if row.verdict == verdict}


# ---- what is the same ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NextStep", "SameStep", "Disabled", "by_hand", "seeded"])
def test_the_true_port_passes_in_every_autoreset_mode(name):
    rows = of_port(name)
    assert with_verdict(rows, DIFFERS) == set()
    assert with_verdict(rows, UNSEEN) == set()
    mode = {"SameStep": SAME_STEP, "Disabled": DISABLED}.get(name, NEXT_STEP)
    assert rows["autoreset", OUTSIDE].words.startswith(mode)
    assert rows["transitions", OUTSIDE].cases >= FEW.transitions
    assert rows["terminated at the time limit", OUTSIDE].cases > 0


def test_as_many_transitions_as_asked_for_are_compared_where_a_policy_has_few():
    """Four environments make at most 2,032 steps under the policy, less than half of those."""
    assert compared(f"{PORTS}:four", asked=Asked(4, 0, 6000))["transitions", OUTSIDE].cases >= 6000


@pytest.mark.parametrize("factory", ["lockstep:cartpole", "gymnasium:CartPole-v1"])
def test_a_true_port_of_a_named_kind_passes_where_states_are_put_as_well(factory):
    rows = compared(factory)
    assert with_verdict(rows, DIFFERS) == with_verdict(rows, UNSEEN) == set()
    injected = {name for name, seen in rows if seen == INJECTED}
    assert injected == {"transitions", "rewards", "terminated"}
    words = rows["batch size", OUTSIDE].words
    assert words.startswith("equal lives" if factory.startswith("lockstep") else "lives depend on it")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lockstep", "gymnasium"])
@pytest.mark.parametrize("name", TASKS)
def test_classic_control_passes(kind, name):
    rows = compared(f"{kind}:{name if kind == 'lockstep' else TASKS[name]}", TASKS[name], Asked(64, 0, 20_000))
    assert with_verdict(rows, DIFFERS) == set()


def test_stable_baselines3_shows_one_flag_where_there_are_two():
    """Its `TimeLimit.truncated` is false where an episode has terminated as well."""
    pytest.importorskip("stable_baselines3")
    rows = compared("sb3:CartPole-v1")
    assert with_verdict(rows, DIFFERS) == {"terminated at the time limit"}
    row = rows["terminated at the time limit", OUTSIDE]
    assert row.words == f"terminated in {row.cases} of {row.cases}, truncated in 0 of {row.cases}"


@pytest.mark.slow
def test_torchrl_passes():
    pytest.importorskip("torchrl")
    assert with_verdict(compared("torchrl:CartPole-v1", asked=Asked(4, 0, 2000)), DIFFERS) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "differs"), [("gymnax:CartPole-v1", set()), ("envpool:CartPole-v1", {"terminated at the time limit"})]
)
def test_peers_are_played_in_their_own_python(factory, differs):
    kind = factory.partition(":")[0]
    if not subjects.is_here(factory) and peer_workers.python_of(kind) is None:
        pytest.skip(peer_workers.why_missing(kind))
    assert with_verdict(compared(factory), DIFFERS) == differs


# ---- planted faults -----------------------------------------------------------------------------------------------

DIFFERENCES = {
    "Strong": {"transitions", "last observation"},
    "Forgetful": {"last observation"},
    "InPlace": {"last observation"},
    "Early": {"last observation"},
    "NotANumber": {"last observation"},
    "Lapsing": {"transitions", "last observation"},
    "NothingForTheLastStep": {"rewards"},
    "Leaning": {"terminated", "terminated at the time limit"},
    "Shorter": {"truncated", "time limit"},
    "Endless": {"truncated", "time limit", "terminated at the time limit"},
    "LimitTerminates": {"terminated", "truncated", "time limit", "terminated at the time limit"},
    "OneFlag": {"terminated at the time limit"},
    "PaidForResets": {"autoreset"},
    "WronglyDeclared": {"autoreset"},
    "GoesOn": {"autoreset"},
    "Narrow": {"first states"},
    "deaf": {"same seed"},
    "OneSeed": {"another seed"},
    "Twins": {"environments of a batch"},
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_fault_is_noticed_by_its_checks_and_no_others(name):
    assert with_verdict(of_port(name), DIFFERS) == DIFFERENCES[name]


TAXI = "Taxi-v4"


def test_first_states_may_repeat_as_the_original_s_do():
    """Taxi begins in one of 300 states, so that 64 environments do not all begin apart."""
    rows = compared(f"gymnasium:{TAXI}", TAXI)
    assert with_verdict(rows, DIFFERS) == set()
    row = rows["environments of a batch", OUTSIDE]
    assert row.verdict == SAME and row.differing > checks.REPEATED * row.cases
    assert rows["another seed", OUTSIDE].verdict == SAME


@pytest.mark.parametrize(
    ("name", "check"), [("TaxisAlike", "environments of a batch"), ("TaxisOfOneSeed", "another seed")]
)
def test_seeds_are_judged_where_first_states_are_few(name, check):
    assert check in with_verdict(compared(f"{PORTS}:{name}", TAXI), DIFFERS)


def test_equal_draws_of_few_first_states_seldom_differ():
    """As seldom as LEVEL at most, or 3 in 1000 by its own chance: of every number of states."""
    random = np.random.default_rng(0)
    for states in (50, 300, 5000):
        pairs = random.integers(0, states, (1000, 2, 256))
        repeats = [[256 - len(set(one)) for one in pair.tolist()] for pair in pairs]
        assert sum(checks.more(*pair, 256) for pair in repeats) <= 3


def test_the_chance_of_a_pair_is_that_of_the_draws_and_one_more():
    """Of a, a, b, b two pairs of six are equal; of all apart none is, which few draws do not prove."""
    assert checks.of_a_pair(np.array([[0.0], [0.0], [1.0], [1.0]])) == pytest.approx(3 / 7)
    assert checks.of_a_pair(np.arange(100.0)[:, None]) == pytest.approx(1 / 4951)
    assert not checks.seldom(1, 16, 1 / 300) and checks.seldom(16, 16, 1 / 300)  # one: in 5 % of batches


def test_an_original_that_begins_in_one_state_lets_no_seed_be_seen():
    runs = [hand_made([0, 1, 0]) for _ in range(3)]
    _, *rows = checks.seeds(*runs, np.zeros((50, 1)), Episodes(runs[0], SAME_STEP))
    assert [row.verdict for row in rows] == [UNSEEN, UNSEEN]


def test_every_check_that_can_fail_has_a_fault():
    judged = {name for (name, _), row in of_port("NextStep").items() if row.verdict != TOLD}
    assert set().union(*DIFFERENCES.values()) | {"episodes under random actions"} == judged


def test_what_shows_no_state_is_still_judged_by_its_episodes():
    """Twice the force halves the time until the pole falls."""
    rows = compared(f"{PORTS}:TwiceAsStrong", seen=Shown())
    assert with_verdict(rows, DIFFERS) == {"episodes under random actions"}
    assert with_verdict(rows, UNSEEN) == {
        *("transitions", "rewards", "terminated", "last observation", "truncated"),
        *("time limit", "autoreset"),
    }
    lost = compared(f"{PORTS}:Forgetful", seen=Shown())
    assert with_verdict(lost, DIFFERS) == {"last observation"}


def test_steps_that_draw_random_numbers_are_not_compared_one_by_one():
    seen, asked = Shown(states=shown.itself), dataclasses.replace(FEW, inject=f"{PORTS}:put")
    rows = compared(f"{PORTS}:NextStep", f"{PORTS}:Windy", asked, seen)
    single = {"transitions", "rewards", "terminated"}
    for name in single:
        for how in (OUTSIDE, INJECTED):
            assert (rows[name, how].verdict, rows[name, how].words) == (UNSEEN, comparison.RANDOM)
    assert with_verdict(rows, UNSEEN) == single | {"last observation", "truncated"}


def test_a_fault_is_noticed_from_states_that_are_put():
    asked = dataclasses.replace(FEW, inject=f"{PORTS}:put")
    assert {seen for (_, seen), row in compared(f"{PORTS}:Strong", asked=asked).items() if row.verdict == DIFFERS} == {
        *(OUTSIDE, INJECTED)
    }
    assert with_verdict(compared(f"{PORTS}:SameStep", asked=asked), DIFFERS) == set()


@pytest.mark.parametrize("num_envs", [64, 10_000])
def test_states_are_put_where_a_batch_is_larger_than_the_transitions_asked_for(num_envs):
    """Or larger than the number of states that the original has visited in its episodes, about 22 steps each."""
    original, subject = Original(CARTPOLE), subjects.Subject(f"{PORTS}:Strong", num_envs)
    asked, played = Asked(num_envs, 0, 10, inject=f"{PORTS}:put"), original.play(256, 0, read=True)
    put = comparison.planned(subject, original, asked, played)["put"]
    assert put.states.shape == (1, num_envs, 4)
    seen = lives.played(f"{PORTS}:Strong", [put], asked.inject).lives[0]
    rows = {row.property: row for row in comparison.of_injected(original, Shown(), asked, seen, played, NEXT_STEP)}
    assert rows["rewards"].cases == num_envs and rows["rewards"].verdict == SAME
    assert rows["transitions"].verdict == DIFFERS


def test_the_example_of_a_difference_can_be_had_again():
    """One step of the port, and one of the original, from the observation that is told."""
    example = of_port("Strong")["transitions", OUTSIDE].example
    original, port = Original(CARTPOLE), faulty_ports.Strong(1)
    port.reset(seed=0)
    port.state = np.array(example["observation"], dtype=np.float64)[:, None]
    (observation,), *_ = port.step(np.array([example["action"]]))
    assert observation == pytest.approx(example["port"]["observation"], rel=1e-5, abs=1e-6)
    theirs = original.steps(port.state.T * 0 + example["observation"], np.array([example["action"]]))
    assert theirs.observation[0] == pytest.approx(example["original"]["observation"], rel=1e-6, abs=1e-7)
    assert np.abs(observation - theirs.observation[0]).max() > FEW.tolerance
    run = Original(CARTPOLE).actions(600, 64, example["seed"])[example["step"], example["environment"]]
    assert example["seed"] == 1 or run == example["action"]  # seed 1 is the run with a policy


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_example_says_what_was_played(name):
    """Seeds, and of steps the action; first observations follow the reset, call 0, and need none."""
    for (check, _), row in of_port(name).items():
        if row.verdict == DIFFERS:
            example = row.example
            assert "seed" in example or "seeds" in example
            if check == "first states":
                assert example["seeds"] == {"port": 0, "original": 2} and example["cases"]["port"] == row.cases
            elif check in ("another seed", "environments of a batch"):
                assert example.get("call", example.get("calls")) in (0, [0, 0])
            else:
                assert "action" in example or len(example["actions"]) == example.get("call", 2)


def test_a_lost_observation_s_example_has_the_step_that_lost_it():
    example = compared(f"{PORTS}:Forgetful", seen=Shown())["last observation", OUTSIDE].example
    actions = Original(CARTPOLE).actions(600, 64, example["seed"])
    assert example["action"] == actions[example["step"], example["environment"]]
    assert len(example["observation"]) == 4 and example["port"] == {"observation": None}


def test_where_a_seed_does_not_repeat_the_example_has_the_actions_and_both_sides():
    once, again = hand_made([0, 1, 0]), hand_made([0, 1, 0])
    once.actions[:, 0] = [4, 5, 6]
    again.observation[2] = 7.0
    row, *_ = checks.seeds(once, again, once, np.arange(9.0)[:, None], Episodes(once, SAME_STEP))
    assert row.words == "two resets with one seed part in call 2"
    assert (row.example["seed"], row.example["call"], row.example["actions"]) == (0, 2, [4, 5])
    sides = {"reward": 1.0, "terminated": True, "truncated": False}
    assert row.example["once"] == {"observation": [2.0]} | sides
    assert row.example["again"] == {"observation": [7.0]} | sides


def test_a_first_state_that_comes_again_is_told_with_its_calls():
    """Twelve environments that begin apart, end in every call, and all begin again in the state 9."""
    T, B = 3, 12
    no, one = np.zeros((T, B), bool), np.full((T + 1, B, 1), 9.0)
    one[0] = 100 + np.arange(B)[:, None]
    lived = Lives(5, one, np.full((T, B), 4), np.ones((T, B)), ~no, no, one[1:], ~no)
    row = checks.among_environments(Episodes(lived, SAME_STEP), np.arange(48.0)[:, None])
    assert (row.verdict, row.differing) == (DIFFERS, 35)  # of 36 one was the first
    place = {"seed": 5, "environments": [0, 1], "calls": [1, 1], "actions": [4, 4]}
    assert row.example == place | {"first state": [9.0], "times": 36}


def test_one_step_is_beyond_by_what_a_hundredth_of_the_force_does():
    """0.1 N for 0.02 s on 1.1 kg, and what the pole that gives way adds to it; it stands upright."""
    upright = 0.02 * 0.1 / 1.1 * (1 + (0.05 / 1.1) / (0.5 * (4 / 3 - 0.1 / 1.1)))
    found = of_port("Strong")["transitions", OUTSIDE].numbers
    assert found["x"] < 1e-6 and found["theta"] < 1e-6
    assert found["x_dot"] == pytest.approx(upright, rel=0.05)


# ---- several agents ------------------------------------------------------------------------------------------------

TEAMS = "tests.experiments.teams"
OF_TEAMS = {
    "Port": set(),
    "Active": set(),
    "Bytes": set(),
    "NextStep": set(),
    "Swapped": {"rewards"},
    # Seen from outside, the one that should have fallen counts as gone.
    "Steady": {"transitions", "rewards", "terminated", "last observation", "truncated"},
    "Patient": {"truncated", "time limit", "episodes under random actions"},
    "Hasty": {"transitions", "rewards", "terminated", "last observation"},
}


@functools.cache
def of_team(name):
    asked = Asked(num_envs=32, transitions=3000, inject=f"{TEAMS}:put")
    return compared(f"{TEAMS}:{name}", f"{TEAMS}:Original", asked, Shown(states=teams.states))


@pytest.mark.parametrize("name", OF_TEAMS)
def test_a_port_of_several_agents_is_compared_agent_by_agent(name):
    """Also where an agent leaves before the others, and whatever a port shows of it then."""
    rows = of_team(name)
    assert with_verdict(rows, DIFFERS) == OF_TEAMS[name]
    assert with_verdict(rows, UNSEEN) <= {"terminated at the time limit"}
    assert {property for property, seen in rows if seen == INJECTED} == {*SINGLE, "truncated"}
    assert rows["time limit", OUTSIDE].words.endswith(f"the original after {teams.LIMIT}")
    assert rows["autoreset", OUTSIDE].words.startswith(NEXT_STEP if name == "NextStep" else SAME_STEP)


SINGLE = {"transitions", "rewards", "terminated"}


def test_agents_whose_rewards_depend_on_the_batch_size_are_told_though_their_mean_does_not():
    rows = compared(f"{TEAMS}:Crowded", f"{TEAMS}:Original", Asked(num_envs=16, transitions=1000), Shown())
    assert rows["batch size", OUTSIDE].words == "lives depend on it: those in batches of 16 and 32 part in call 1"


def test_an_example_of_several_agents_names_them():
    """The one that fell 10 % further out goes on in the port."""
    row = of_team("Steady")["terminated", INJECTED]
    (x, *_), step = row.example["state"], teams.STEP * (row.example["action"][0] - 1)
    assert 1 < abs(x + step) < 1.1
    assert row.example["port"]["terminated"]["left"] is False and row.example["original"]["terminated"]["left"] is True
    reward = row.example["original"]["reward"]
    assert reward.keys() == {*teams.AGENTS} and reward["left"] == pytest.approx(x + step)


def test_an_agent_that_has_left_sees_and_is_given_nothing():
    """Two agents of which one falls in its first step, and what its port still shows of it."""
    port = subjects.Vector(teams.Port(1))
    port.reset(seed=0)
    teams.put(port.env, np.array([[0.9, 0.0, 1, 1, 0]]))
    first, second = port.step(np.array([[2, 1]])), port.step(np.array([[2, 2]]))
    assert first.agents[0].tolist() == [[pytest.approx(1.1), 0], [1, 0], [0, 0], [1, 1]]
    assert second.agents[0].tolist() == [[0, pytest.approx(0.2)], [0, 0], [0, 0], [0, 1]]
    assert second.observation[0].tolist() == [[0, 0], pytest.approx([0.2, 1.1])]
    assert second.reward[0] == pytest.approx(0.1) and not second.terminated[0]


# ---- episodes, by hand --------------------------------------------------------------------------------------------


def hand_made(terminated, truncated=None, given=None):
    """One environment whose observations count the calls, with a reward of 1 each."""
    T = len(terminated)
    flag = [np.array(one if one is not None else [0] * T, bool)[:, None] for one in (terminated, truncated, given)]
    observation, last = np.arange(T + 1.0).reshape(-1, 1, 1), np.full((T, 1, 1), 50.0)
    return Lives(0, observation, np.zeros((T, 1), int), np.ones((T, 1)), flag[0], flag[1], last, flag[2])


def test_calls_that_reset_are_no_steps():
    run = Episodes(hand_made([0, 1, 0, 0, 1]), NEXT_STEP)
    assert run.live[:, 0].tolist() == [True, True, False, True, True]
    assert run.elapsed[:, 0].tolist() == [1, 2, 0, 1, 2]
    assert run.firsts()[:, 0].tolist() == [0, 3]
    assert run.cases(run.live).after[:, 0].tolist() == [1, 2, 4, 5]
    assert run.whole(2)[0].tolist() == [2, 2]


def test_a_step_may_end_an_episode_and_begin_the_next():
    run = Episodes(hand_made([0, 1, 0, 0, 1], given=[0, 1, 0, 0, 0]), SAME_STEP)
    assert run.live.all()
    assert run.elapsed[:, 0].tolist() == [1, 2, 1, 2, 3]
    assert run.firsts()[:, 0].tolist() == [0, 2, 5]
    cases = run.cases(run.live)
    assert cases.after[:4, 0].tolist() == [1, 50, 3, 4]
    assert cases.known.tolist() == [True, True, True, True, False]


def test_episodes_that_began_too_late_to_end_are_not_counted():
    """Of five calls the second episode begins in the third: it has three, which do for 3 steps and not for 4."""
    run = Episodes(hand_made([0, 1, 0, 0, 0]), SAME_STEP)
    assert [one.tolist() for one in run.whole(3)] == [[2, 3], [2.0, 3.0]]
    assert [one.tolist() for one in run.whole(4)] == [[2], [2.0]]


def test_errors_are_relative_above_one():
    ours, theirs = np.array([[0.1, 20.0, np.nan, np.nan, np.inf]]), np.array([[0.2, 10.0, 1.0, np.nan, np.inf]])
    assert episodes.apart(ours, theirs).tolist() == [[0.1, 1.0, np.inf, 0.0, 0.0]]


def test_half_of_the_environments_follow_the_policy_until_shortly_before_the_limit():
    follows = comparison.follows(500, 256, seed=0)
    assert follows.shape == (508, 256)
    until, since = follows[:, ::2], follows[:, 1::2]
    assert until[:460].all() and not until[500:].any()
    assert since[500:].all() and not since[:340].any()
    assert len(set(until.sum(axis=0))) > 30 and len(set(since.sum(axis=0))) > 70


def test_rounding_is_let_decide_where_the_original_does_too():
    """At the very threshold of the angle either flag is right, a hundredth beside it one is."""
    original, limit = Original(CARTPOLE), 12 * 2 * np.pi / 360
    for beside, verdict in ((1e-8, SAME), (1e-2, DIFFERS)):
        states = np.array([[0.0, 0.0, limit + beside, 0.0]])
        theirs = original.steps(states, np.array([0]))
        assert theirs.terminated.tolist() == [True]
        one, no = np.zeros(1, int), np.zeros(1, bool)
        agents = theirs.agents * np.array([1, 0, 1, 1])[:, None]  # the port's does not terminate
        case = episodes.Cases(one, one, one, states, one, theirs.observation, ~no, theirs.reward, no, no, one, agents)
        found = checks.compared(OUTSIDE, original, states, case, 1e-5)
        flag = {row.property: row for row in checks.steps(found, Shown(), 1e-5, None)}["terminated"]
        assert flag.verdict == verdict
        assert ("rounding decides" in flag.words) == (verdict == SAME)


@pytest.mark.parametrize("name", TASKS)
def test_a_state_that_is_recovered_shows_the_observation_it_was_seen_as(name):
    original, seen = Original(TASKS[name]), shown.declared(TASKS[name])
    assert original.keeps_state
    for action in original.actions(50, 1, 0)[:, 0]:
        if original.over:
            original.reset(seed=0)
        observation, *_ = original.step(action)
        (state,) = seen.states(observation[None].astype(np.float32))
        angles = {"pendulum": [0], "acrobot": [0, 1]}.get(name, [])
        expected = original.read()
        expected[angles] = np.mod(expected[angles] + np.pi, 2 * np.pi) - np.pi
        assert state == pytest.approx(expected, abs=1e-5)
        assert len(seen.names) == len(observation)


# ---- played elsewhere ---------------------------------------------------------------------------------------------


def test_a_run_in_another_python_is_the_run_in_this_one():
    original = Original(CARTPOLE)
    few = original.actions(40, 8, 0)
    policy = "lockstep.experiments.classic_control.verify:balance"
    runs = [
        Run(0, few),
        Run(1, few, policy, np.ones((40, 8), bool)),
        Run(0, few[:2], states=np.zeros((2, 8, 4)) + 0.1),
    ]
    here = lives.played("gymnasium:CartPole-v1", runs)
    there = lives.elsewhere(sys.executable, "gymnasium:CartPole-v1", runs)
    assert (here.mode, here.versions) == (there.mode, there.versions) == (NEXT_STEP, here.versions)
    for one, other in zip(here.lives, there.lives, strict=True):
        assert all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))
    assert not np.array_equal(here.lives[1].actions, few)
    assert here.lives[2].observation[1:, :, 0] == pytest.approx(0.1 + 0.02 * 0.1)


def test_a_run_in_another_python_finds_functions_by_the_user_s_own_path(monkeypatch, tmp_path):
    (tmp_path / "on_the_path.py").write_text("def right(observation):\n    return 1 + 0 * observation[:, 0]\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run(0, np.zeros((2, 3), int), "on_the_path:right", np.ones((2, 3), bool))
    found = lives.elsewhere(sys.executable, "gymnasium:CartPole-v1", [run])
    assert found.lives[0].actions.tolist() == [[1] * 3] * 2


def test_a_mistake_in_another_python_is_told_in_a_sentence():
    run = Run(0, np.zeros((1, 1), int))
    with pytest.raises(UserError, match="^gymnasium:CartPol-v1: .*gymnasium:CartPol-v1 cannot be made: NameNotFound: "):
        lives.elsewhere(sys.executable, "gymnasium:CartPol-v1", [run])


def test_a_library_that_hangs_in_another_python_is_given_up(monkeypatch):
    monkeypatch.setattr(lives, "TIMEOUT_S", 0.01)
    with pytest.raises(UserError, match="^gymnasium:CartPole-v1: no answer within 0.01 s; give fewer --transitions$"):
        lives.elsewhere(sys.executable, "gymnasium:CartPole-v1", [Run(0, np.zeros((1, 1), int))])


def test_batches_are_closed_where_a_later_run_fails(monkeypatch):
    """The first two runs are played; actions of the third are none of CartPole's."""
    closed = []
    monkeypatch.setattr(faulty_ports.NextStep, "close", lambda port: closed.append(port.num_envs))
    runs = [Run(0, np.zeros((1, B), int)) for B in (2, 3)] + [Run(0, np.full((1, 4), 7))]
    with pytest.raises(AssertionError, match="invalid"):
        lives.played(f"{PORTS}:NextStep", runs)
    assert sorted(closed) == [2, 3, 4]


def test_what_a_reset_makes_anew_is_closed_first(monkeypatch):
    """Of a factory with a seed, each reset makes one."""
    living = []
    make = faulty_ports.Deaf.__init__
    monkeypatch.setattr(
        faulty_ports.Deaf, "__init__", lambda port, *given: (living.append(port), make(port, *given))[1]
    )
    monkeypatch.setattr(faulty_ports.Deaf, "close", lambda port: living.remove(port))
    subject = subjects.Subject(f"{PORTS}:seeded", 2)
    for seed in range(3):
        subject.reset(seed)
        assert len(living) == 1
    subject.close()
    assert living == []


def test_what_is_seen_needs_nothing_but_numpy():
    program = (
        "import sys\n"
        "for name in ('torch', 'pandas', 'scipy', 'yaml', 'gymnasium', 'gymnax', 'jax', 'envpool'):\n"
        "    sys.modules[name] = None\n"
        "import lockstep.experiments.verify.lives\n"
        "import lockstep.experiments.classic_control.verify\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- the command line ---------------------------------------------------------------------------------------------


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["verify", *words, "--num-envs", "16", "--transitions", "500"])
    return command_line.main()


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_place_that_cannot_be_written_is_told_before_anything_is_compared(monkeypatch, tmp_path, capsys, suffix):
    (tmp_path / "rows").with_suffix(suffix).mkdir()
    monkeypatch.setattr(comparison, "compare", lambda *_: pytest.fail("was compared"))
    output = tmp_path / "rows.csv"
    assert run(monkeypatch, f"{PORTS}:Strong", "--original", CARTPOLE, "--output", str(output)) == 2
    assert f"{output} cannot be written: Is a directory" in capsys.readouterr().err


def test_the_last_line_names_as_many_differences_as_it_counts():
    wrong = [("transitions", OUTSIDE), ("transitions", INJECTED), ("last observation", OUTSIDE)]
    rows = [checks.Row(*of, 10, DIFFERS) for of in wrong] + [checks.Row("rewards", OUTSIDE, 10, SAME)]
    named = "transitions (from outside and injected), last observation"
    assert command_line.conclusion(rows) == f"3 of 4 checks found a difference: {named}"


def test_a_difference_is_written_and_is_the_exit_status(monkeypatch, tmp_path, capsys):
    output = tmp_path / "made" / "strong.csv"
    assert run(monkeypatch, f"{PORTS}:Strong", "--original", CARTPOLE, "--output", str(output)) == 1
    said = capsys.readouterr().out
    assert "checks found a difference: transitions, last observation" in said.splitlines()[-1]
    rows = list(csv.DictReader(output.open()))
    (worst,) = [row for row in rows if (row["property"], row["field"]) == ("transitions", "x_dot")]
    assert worst["verdict"] == DIFFERS and float(worst["error"]) > float(worst["allowed"]) == 1e-5
    example = json.loads(worst["example"])
    assert example["port"]["observation"][1] != example["original"]["observation"][1]
    frame, described = results.read(output)
    assert len(frame) == len(rows)
    assert described["config"]["factory"] == f"{PORTS}:Strong" and described["config"]["transitions"] == 500
    assert "experiments/classic_control/verify.py" in described["sources"]
    assert str(tmp_path) not in output.with_suffix(".json").read_text()


def test_no_difference_is_exit_status_0(monkeypatch, capsys):
    assert run(monkeypatch, "gymnasium:CartPole-v1", "--original", CARTPOLE) == 0
    assert "\nno difference in " in capsys.readouterr().out


def test_an_original_may_be_a_function_and_a_batch_of_one_size(monkeypatch, capsys):
    words = ["--original", f"{PORTS}:original", "--recover", f"{PORTS}:states", "--inject", f"{PORTS}:put"]
    assert run(monkeypatch, f"{PORTS}:four", *words) == 0
    said = capsys.readouterr().out
    assert re.search(r"transitions +injected +[\d,]+ +same", said)
    assert re.search(r"batch size .* the batch has one size", said)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ports"], "FACTORY 'ports' must be package.module:function, and the kinds with a name are gymnasium, "),
        (["gymnaxx:CartPole-v1"], "FACTORY 'gymnaxx:CartPole-v1': there is no module 'gymnaxx' here, and the kinds"),
        ([f"{PORTS}:Stron"], f"FACTORY '{PORTS}:Stron': {PORTS} has no function 'Stron'; did you mean 'Strong'?"),
        (  # none that it imports
            [f"{PORTS}:zzz"],
            f"FACTORY '{PORTS}:zzz': {PORTS} has no function 'zzz'; known: NextStep, SameStep, ",
        ),
        ([f"{PORTS}:nothing"], f"{PORTS}:nothing makes a builtins.list; it must be a VectorEnv of Gymnasium"),
        (["gymnasium:CartPol-v1"], "gymnasium:CartPol-v1 cannot be made: NameNotFound: Environment `CartPol`"),
        (["lockstep:cartpol"], "lockstep:cartpol cannot be made: ValueError: no environment 'cartpol'; did you mean"),
        ([f"{PORTS}:Strong", "--original", "CartPol-v1"], "--original 'CartPol-v1': Environment `CartPol` doesn't"),
        ([f"{PORTS}:Strong", "--original", f"{PORTS}:nothing"], f"--original '{PORTS}:nothing' must make a gymnasium"),
        ([f"{PORTS}:Strong", "--original", "Blackjack-v1"], "--original 'Blackjack-v1': observations must be numbers"),
        ([f"{PORTS}:Strong", "--recover", "states"], "--recover 'states' must be package.module:function"),
        (
            [f"{PORTS}:Strong", "--inject", "nowhere.a:put"],
            "--inject 'nowhere.a:put': there is no module 'nowhere'",
        ),
        (
            ["gymnasium:CartPole-v1", "--original", "Pendulum-v1"],
            "gymnasium:CartPole-v1: an observation has 4 numbers, of --original 'Pendulum-v1' it has 3",
        ),
        (
            ["gymnasium:MountainCarContinuous-v0", "--original", "MountainCar-v0"],
            "gymnasium:MountainCarContinuous-v0: actions are of Box(-1.0, 1.0, (1,), float32), those of --original "
            "'MountainCar-v0' of Discrete(3)",
        ),
        (
            ["sb3:MountainCar-v0", "--original", "MountainCarContinuous-v0"],
            "sb3:MountainCar-v0: actions are of Discrete(3), those of --original 'MountainCarContinuous-v0' of Box",
        ),
        ([f"{PORTS}:Undeclared", "--original", f"{PORTS}:original"], "it is not seen how FACTORY resets ended"),
        ([f"{PORTS}:NextStep", "--original", f"{PORTS}:Half"], f"{PORTS}:NextStep: an observation has 4 numbers"),
        ([f"{TEAMS}:OneReward", "--original", f"{TEAMS}:Original"], f"{TEAMS}:OneReward: its rewards are [B]; beside"),
        (
            [f"{TEAMS}:Flat", "--original", f"{TEAMS}:Original"],
            "FACTORY gives rewards [16, 2] and observations [16, 4]",
        ),
        (
            [f"{TEAMS}:Port", "--original", f"{TEAMS}:in_turn"],
            f"--original '{TEAMS}:in_turn' must make a gymnasium.Env",
        ),
        ([f"{TEAMS}:Port", "--original", f"{TEAMS}:Unequal"], f"--original '{TEAMS}:Unequal': agents must have equal"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(monkeypatch, capsys, words, sentence):
    original = [] if "--original" in words else ["--original", CARTPOLE]
    assert run(monkeypatch, *words, *original) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {sentence}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--tolerance", "0", "argument --tolerance: '0' is no number above 0"),
        ("--tolerance", "small", "argument --tolerance: 'small' is no number above 0"),
        ("--seed", "-1", "argument --seed: '-1' is no whole number from 0 to 2^31 - 2"),
        ("--num-envs", "0", "argument --num-envs: '0' is no whole number above 0"),
        ("--output", "rows.txt", "argument --output: 'rows.txt' must end in .csv"),
    ],
)
def test_options_are_checked(monkeypatch, capsys, option, value, sentence):
    monkeypatch.setattr(sys, "argv", ["verify", f"{PORTS}:NextStep", "--original", CARTPOLE, f"{option}={value}"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_port_that_breaks_is_no_difference(monkeypatch, capsys):
    """Its traceback leads to the line, and the exit status is not that of a difference."""
    assert run(monkeypatch, f"{PORTS}:broken", "--original", CARTPOLE) == 2
    said = capsys.readouterr().err
    assert "return num_envs / 0" in said and said.endswith("ZeroDivisionError: division by zero\n")


def test_a_library_that_is_nowhere_is_told(monkeypatch, tmp_path, capsys):
    if importlib.util.find_spec("envpool"):
        pytest.skip("envpool is installed here")
    monkeypatch.setattr(peer_workers, "ENVIRONMENTS", tmp_path)
    assert run(monkeypatch, "envpool:CartPole-v1", "--original", CARTPOLE) == 2
    version = (ROOT / "experiments" / "peer_workers" / "envpool.txt").read_text().split()[0]
    sentence = f"envpool:CartPole-v1: {version} is not installed; make peers installs it"
    assert capsys.readouterr().err == f"error: {sentence}\n"


# ---- the page -----------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")


NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")


def alike(line, told):
    """Tells that lines have the same words and counts, and other numbers to two digits: more are a machine's own."""
    if NUMBER.sub("#", line) != NUMBER.sub("#", told):
        return False
    pairs = zip(NUMBER.findall(line), NUMBER.findall(told), strict=True)
    return all(a == b or ("." in b and float(a) == pytest.approx(float(b), rel=0.01, abs=1e-6)) for a, b in pairs)


def test_the_example_of_the_page_finds_the_faults_that_it_tells_of(tmp_path):
    """The port as a file of a user's own, and the command as it stands there; what it prints has the page's lines."""
    port, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    command, told = re.findall(r"```\n(python .*?|transitions .*?)```", PAGE, re.DOTALL)
    (tmp_path / "ports.py").write_text(port)
    words = command.split()
    assert words[:3] == ["python", "-m", "lockstep.experiments.verify"]
    there = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    done = subprocess.run([sys.executable, *words[1:]], **there, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lost = [line for line in told.splitlines() if not any(alike(other, line) for other in done.stdout.splitlines())]
    assert lost == []
    differing = {line.split("  ")[0] for line in done.stdout.splitlines() if re.search(r"  differs  ", line)}
    assert differing == {"transitions", "last observation"}
    assert sorted(file.name for file in tmp_path.glob("cartpole.*")) == ["cartpole.csv", "cartpole.json"]


def test_the_functions_of_the_page_do_as_it_says(monkeypatch, tmp_path, capsys):
    _, functions = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "own_functions.py").write_text(functions)
    monkeypatch.syspath_prepend(tmp_path)
    given = [f"--{option}=own_functions:{name}" for option, name in OPTIONS.items()]
    assert run(monkeypatch, f"{PORTS}:NextStep", "--original", f"{PORTS}:original", *given) == 0
    said = capsys.readouterr().out
    assert re.search(r"^transitions +injected +[\d,]+ +same", said, re.MULTILINE)
    assert re.search(r"^time limit .* same .*truncated after 500 steps", said, re.MULTILINE)


OPTIONS = {"recover": "states", "inject": "put", "policy": "policy"}
