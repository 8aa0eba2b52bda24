"""The original as a PettingZoo environment, its state, and what it says about bad input."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from pettingzoo.test import parallel_api_test, parallel_seed_test

from lockstep.envs.marine_navigation.layout import state_shapes
from lockstep.envs.marine_navigation.original import MarineNavigation, get_state, make, set_state
from lockstep.envs.marine_navigation.params import SWITCHES
from tests.envs.marine_navigation.worlds import opened, put, scene, state, step

VERSIONS = ["thruster", "kinematic", "sonar"]
FORMS = [{"version": version} for version in VERSIONS] + [{"action_kind": "discrete"}]


def actions(env, rng):
    if env.params.action_kind == "continuous":
        return {agent: rng.uniform(-1, 1, 2) for agent in env.agents}
    return {agent: int(rng.integers(env.params.choices)) for agent in env.agents}


def life(env, steps, seed=0):
    """All that comes out of so many steps under random actions; episodes follow one another."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(steps):
        if not env.agents:
            found.append({agent: row.tolist() for agent, row in env.reset()[0].items()})
        seen, *rest = env.step(actions(env, rng))
        found.append([{agent: row.tolist() for agent, row in seen.items()}, *rest])
    return found


# ---- PettingZoo


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_passes_pettingzoos_test_of_parallel_environments(preset, form):
    parallel_api_test(make(preset, max_steps=50, cores=4, **form), num_cycles=120)


@pytest.mark.parametrize("version", VERSIONS)
def test_passes_pettingzoos_test_of_seeds(version):
    parallel_seed_test(lambda: make(version=version, max_steps=60), num_cycles=60)


def test_spaces_are_those_of_the_version():
    for version, length, choices in (("thruster", 37, 25), ("kinematic", 39, 9), ("sonar", 26, 9)):
        env = make(version=version, action_kind="discrete")
        assert env.observation_space("robot_0").shape == (length,) and env.action_space("robot_0").n == choices
        assert env.reset()[0]["robot_0"].dtype == np.float64
        assert env.observation_space("robot_0").contains(env.reset()[0]["robot_0"])
    space = make().action_space("robot_4")
    assert space.shape == (2,) and (space.low, space.high) == (pytest.approx(-1), pytest.approx(1))


def test_an_agent_that_is_none_has_no_space():
    for space in (make().observation_space, make().action_space):
        for agent in ("robot_77", 3):
            with pytest.raises(KeyError):
                space(agent)


# ---- seeds


@pytest.mark.parametrize("version", VERSIONS)
def test_a_seed_and_an_environment_fix_all_that_happens(version):
    options = {"version": version, "max_steps": 10, "seed": 5, "index": 3}
    first = life(make(**options), 40)
    assert life(make(**options), 40) == first
    again = make(**options | {"seed": 9})
    again.reset()
    again.reset(seed=5)
    assert life(again, 40) == first[1:]
    for other in ({"seed": 6}, {"index": 4}):
        assert life(make(**options | other), 1) != first[:2]


def test_resets_count_episodes_and_a_seed_begins_again():
    env = make(seed=5)
    starts = [env.reset(seed=seed)[0]["robot_0"].tolist() for seed in (None, None, 5, None, 6)]
    assert starts[0] == starts[2] and starts[1] == starts[3]
    assert len({tuple(start) for start in starts}) == 3
    assert get_state(env)["episode"] == 0


# ---- state


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_episode_goes_on_from_a_state_read_and_put_back(preset, form):
    first, second = (make(preset, seed=2, cores=4, **form) for _ in range(2))
    life(first, 7)
    second.reset()
    kept = get_state(first)
    set_state(second, kept)
    assert all(np.array_equal(get_state(second)[name], kept[name]) for name in kept)
    assert second.agents == first.agents
    assert {a: row.tolist() for a, row in second.observe().items()} == {
        a: row.tolist() for a, row in first.observe().items()
    }
    assert life(second, 30, seed=1) == life(first, 30, seed=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_state_has_the_fields_of_its_layout(version):
    env = make(version=version, robots=1, cores=2, obstacles=3)
    env.reset()
    found, shapes = get_state(env), state_shapes(env.params, 1, 2, 3)
    assert set(found) == {*shapes, "active", "elapsed", "episode"}
    for name, (shape, kind) in shapes.items():
        assert found[name].shape == shape and found[name].dtype == kind


def test_a_state_names_its_scenario():
    env = opened(scene("kinematic"))
    set_state(env, {"scenario": 0, "elapsed": 5})
    assert get_state(env)["scenario"] == 0 and get_state(env)["elapsed"] == 5 and env.agents == ["robot_0"]


def test_a_state_of_a_smaller_episode_is_masked():
    env = make(robots=5)
    env.reset()
    put(env, counts=[2, 0, 1])
    assert env.agents == ["robot_0", "robot_1"] and len(env.episode.obstacles) == 1
    assert get_state(env)["pose"][2:].tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"poze": 0}, "state has no field 'poze'; did you mean 'pose'?"),
        ({"pose": np.zeros((2, 3))}, "state field 'pose' is float64 (2, 3), must be numbers (1, 3)"),
        ({"pose": [[np.nan, 0, 0]]}, "state field 'pose' holds numbers that are not finite"),
        ({"counts": [2, 0, 0]}, "state: counts[0] is 2, must be from 0 to [1, 0, 0]"),
        ({"reached": [7]}, "state: reached[0] is 7, must be from 0 to 1"),
        ({"hit_robot": [-3]}, "state: hit_robot[0] is -3, must be from 0 to 1"),
        ({"asked": -5}, "state: asked is -5, must be from 0 to 32"),
        ({"blind": 99}, "state: blind is 99, must be from 0 to 32"),
        ({"noise_id": [-7]}, "state: noise_id[0] is -7, must be from 0 to 159"),
        ({"noise_id": [10**6]}, "state: noise_id[0] is 1000000, must be from 0 to 159"),
        ({"steps": [-1]}, "state: steps[0] is -1, must be from 0 to 2147483647"),
        ({"pose": [[0, 0, 101.0]]}, "state: pose[0, 2] is 101.0, must be from"),
        ({"yaw_rate": [8.1]}, "state: yaw_rate[0] is 8.1, must be from -8.0 to 8.0"),
        ({"thrust": [[1e9, 0]]}, "state: thrust[0, 0] is 1000000000.0, must be from -500.0 to 1000.0"),
        (None, "state=None must be a dict of fields"),
        ({"counts": [0.5, 0, 0]}, "state field 'counts' must hold whole numbers, of flags 0 or 1"),
        ({"active": [2]}, "state field 'active' must hold whole numbers, of flags 0 or 1"),
        ({"elapsed": 1001}, "state field 'elapsed'=1001 must be an integer from 0 to 1000"),
        ({"scenario": 1}, "state field 'scenario'=1 must be an integer from 0 to 0"),
    ],
)
def test_a_state_that_is_none_is_refused(given, said):
    env = opened(scene())
    kept = get_state(env)
    with pytest.raises(ValueError, match=re.escape(said)):
        set_state(env, given)
    assert all(np.array_equal(get_state(env)[name], kept[name]) for name in kept)


# ---- actions


def test_actions_outside_the_space_are_refused():
    thruster, discrete, kinematic = opened(scene()), opened(scene(), action_kind="discrete"), opened(scene("kinematic"))
    two, index = "must be two numbers from -1 to 1", "must be an integer from 0 to"
    table = [
        (lambda: thruster.step([1, 2]), "actions must be a dict by agent, not list"),
        (lambda: thruster.step({}), "actions: agent 'robot_0' is active and has none"),
        (lambda: thruster.step({"robot_O": [0, 0]}), "actions: no agent 'robot_O'; did you mean 'robot_0'?"),
        (lambda: step(thruster, np.zeros(3)), f"action of robot_0: array([0., 0., 0.]) {two}"),
        (lambda: step(thruster, 0.5), f"action of robot_0: 0.5 {two}"),
        (lambda: step(thruster, ["a", "b"]), two),
        (lambda: step(thruster, [[1], [1, 2]]), two),
        (lambda: step(thruster, [1.01, 0]), f"action of robot_0: [1.01, 0] {two}"),
        (lambda: step(thruster, [0, np.nan]), two),
        (lambda: step(thruster, [0, -np.inf]), two),
        (lambda: step(discrete, 25), f"action of robot_0: 25 {index} 24"),
        (lambda: step(kinematic, 9), f"action of robot_0: 9 {index} 8"),
        (lambda: step(kinematic, -1), f"action of robot_0: -1 {index} 8"),
        (lambda: step(kinematic, 4.0), f"action of robot_0: 4.0 {index} 8"),
        (lambda: step(kinematic, True), f"action of robot_0: True {index} 8"),
        (lambda: step(kinematic, np.array([4])), f"{index} 8"),
        (lambda: step(kinematic, np.array(4.0)), f"{index} 8"),
    ]
    for call, said in table:
        with pytest.raises(ValueError, match=re.escape(said)):
            call()
    assert get_state(thruster)["elapsed"] == get_state(kinematic)["elapsed"] == 0
    step(kinematic, np.array(4))
    step(discrete, np.int64(24))
    step(discrete, torch.tensor(3))
    step(thruster, torch.zeros(2, requires_grad=True))


def test_unchecked_actions_are_clipped_and_none_acts_as_0():
    given = scene()
    for action, thrust in (([2.0, -3.0], [500, -500]), ([np.nan, np.inf], [0, 500]), ([-np.inf, 0.5], [-500, 250])):
        env = make(scenario=given, check_actions=False)
        env.reset()
        step(env, np.array(action))
        assert state(env, "thrust") == thrust
    for index in (-1, 9, 10**9):
        env, other = (make(version="kinematic", scenario=scene("kinematic"), check_actions=False) for _ in range(2))
        env.reset()
        other.reset()
        assert step(env, index)[0]["robot_0"].tolist() == step(other, 0)[0]["robot_0"].tolist()
    with pytest.raises(ValueError, match="must be an integer"):
        step(env, 1.5)
    with pytest.raises(ValueError, match="must be two numbers"):
        step(opened(given, check_actions=False), [1.0])


def test_a_state_of_what_is_not_there_is_refused():
    env = make(version="kinematic", robots=1, cores=1, obstacles=1)
    env.reset()
    for given, said in (
        ({"speed": [-1.0]}, "state: speed[0] is -1.0, must be from 0.0 to 2.0"),
        ({"obstacle": [[9, 9, -1.0]]}, "state: obstacle[0, 2] is -1.0, must be from"),
        ({"core": [[9, 9, 5, 1.0]]}, "state: core[0, 2] is 5.0, must be from"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            set_state(env, given)


def test_a_step_needs_an_open_episode():
    env = make(max_steps=1)
    for call in (lambda: env.step({}), lambda: get_state(env), lambda: set_state(env, {})):
        with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
            call()
    life(env, 1)
    with pytest.raises(ResetNeeded):
        env.step({})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"versoin": "sonar"}, "no parameter or option 'versoin'; did you mean 'version'?"),
        ({"scenarios": 8}, "no parameter or option 'scenarios'; did you mean 'scenario'?"),
        ({"seed": -1}, "seed=-1 must be an integer from 0 to 18446744073709551615"),
        ({"index": 2**32}, "index=4294967296 must be an integer from 0 to 4294967295"),
        ({"batch": 0}, "batch=0 must be an integer from 1"),
        ({"check_actions": "yes"}, "check_actions='yes' must be one of True, False"),
        ({"render_mode": "human"}, "render_mode='human' must be one of None, 'rgb_array'"),
        ({"scenario": scene(), "curriculum": "published"}, "curriculum='published' must be None where scenarios are"),
    ],
)
def test_make_names_what_is_not_allowed(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make(**options)


def test_an_episode_without_a_robot_names_the_distance():
    """Two points of a square of 51 m lie 72 m apart about never."""
    with pytest.raises(ValueError, match=r"min_goal_distance=72.0 \(D_min\) left no place for a robot in episode 0"):
        make(min_goal_distance=72.0).reset()


def test_a_seed_that_is_none_leaves_the_episode_as_it_was():
    env = opened(scene())
    step(env)
    for seed in (-1, 2**64, 1.5, "a"):
        with pytest.raises(ValueError, match=f"seed={seed!r} must be an integer from 0 to 18446744073709551615"):
            env.reset(seed=seed)
    assert get_state(env)["elapsed"] == 1


# ---- all of it


def test_parameters_are_no_dict():
    with pytest.raises(ValueError, match="params={'robots': 3} must be Params, as make_params makes them"):
        MarineNavigation({"robots": 3})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_by_itself(copied):
    env = make(cores=4)
    life(env, 5)
    assert life(copied(env), 10, seed=1) == life(env, 10, seed=1)


MEANT = {  # versions whose lives a switch changes, of those not all; None: rarely, and tested by hand
    "beam_break": None,
    "nearest_centre_only": {"sonar"},
    "shared_noise": {"thruster"},
    "turn_counted_twice": {"thruster"},
    "start_without_current": {"thruster", "kinematic"},
    "limit_beats_end": None,
    "opposite_cores_overlap": None,
}


@pytest.mark.parametrize("switch", [switch for switch in SWITCHES if MEANT.get(switch, True)])
def test_a_switch_changes_lives_of_the_versions_that_it_is_for(switch):
    """Flipped alone; other tests say what it does."""
    changed = set()
    for version in VERSIONS:
        options = {"version": version, "max_steps": 6, "cores": 8}
        one, other = (life(make(**options, **{switch: on}), 60) for on in (False, True))
        changed |= {version} if one != other else set()
    assert changed == MEANT.get(switch, set(VERSIONS))
