"""The port by itself: what it gives out, and that no environment depends on the others; test_parity.py has the rest."""

import functools
import re

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.adapters import pettingzoo
from lockstep.envs.marine_navigation import original
from lockstep.envs.marine_navigation.scenario import Stages
from tests.contract.batches import copies, equal, statistics
from tests.envs.marine_navigation.test_parity import FORMS, SHORT, crowded, fields
from tests.envs.marine_navigation.worlds import crowded as full
from tests.envs.marine_navigation.worlds import scene

make = functools.partial(envs.make, "marine_navigation")


def lives(env, steps: int = 6, actions=None) -> list:
    """All that a batch gives out from a reset on, and its state."""
    found = [copies((env.reset()[0], {}))]
    for t in range(steps):
        chosen = env.random_actions()[0] if actions is None else actions[t]
        found.append(copies(env.step(chosen)))
    return [*found, {name: torch.from_numpy(rows) for name, rows in fields(env).items()}]


def rows(found: list, which: slice) -> list:
    """Those of some environments."""
    if isinstance(found, dict):
        return {name: rows(value, which) for name, value in found.items()}
    return [rows(one, which) for one in found] if isinstance(found, list | tuple) else found[which]


def same(one, other) -> bool:
    return equal(rows(one, slice(None)), rows(other, slice(None)))


# ---- what is given out


@pytest.mark.parametrize(
    ("form", "observed", "action", "robots"),
    [
        (FORMS[0], 37, ((3, 5, 2), torch.float32), 5),
        (FORMS[1], 37, ((3, 5), torch.int32), 5),
        (FORMS[2], 39, ((3, 5), torch.int32), 5),
        (FORMS[3], 26, ((3, 1), torch.int32), 1),
    ],
    ids=str,
)
def test_tensors_have_the_stated_shapes_and_types(form, observed, action, robots):
    env = make(3, **form)
    obs, info = env.reset()
    of_robots = dict.fromkeys(("returns", "time", "energy"), torch.float32)
    of_robots |= dict.fromkeys(("active", "valid", "reached", "hit_robot", "hit_obstacle"), torch.bool)
    assert obs.shape == (3, robots, observed) and obs.dtype == torch.float32 and info["active"].all()
    obs, reward, terminated, truncated, info = env.step(torch.zeros(action[0], dtype=action[1]))
    for one in (obs, info["final_obs"]):
        assert one.shape == (3, robots, observed) and one.dtype == torch.float32
    assert reward.shape == (3, robots) and reward.dtype == torch.float32
    for name, kind in of_robots.items():
        assert info[name].shape == (3, robots) and info[name].dtype == kind
    assert terminated.shape == truncated.shape == (3, robots) and terminated.dtype == truncated.dtype == torch.bool
    for name, kind in (("_final_obs", torch.bool), ("success", torch.bool), ("episode_length", torch.int32)):
        assert info[name].shape == (3,) and info[name].dtype == kind


def test_discrete_actions_are_no_floats():
    env = make(2, version="kinematic")
    env.reset()
    for kind in (torch.float32, torch.float64):
        with pytest.raises(ValueError, match="action has dtype float"):
            env.step(torch.zeros((2, 5), dtype=kind))


def test_a_robot_that_has_ended_gives_zeros_from_then_on():
    env = make(40, **crowded({"version": "kinematic", "max_steps": 30}))
    env.reset()
    before, ended, seen = env._info["active"].clone(), torch.zeros(40, 9, dtype=torch.bool), 0
    for _ in range(15):
        obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
        over = info["_final_obs"][:, None]
        assert torch.equal(info["valid"], before)
        for one in (obs.abs().sum(dim=2), reward, terminated, truncated):
            assert not one[ended & ~info["valid"] & ~over].any()
        just = terminated & ~over
        assert obs[just].any(dim=1).all() and not info["active"][just].any()
        seen += int((ended & ~over).sum())
        before, ended = info["active"].clone(), (ended | terminated) & ~over
    assert seen > 100


@pytest.mark.parametrize("robots", [1, 5])
def test_an_episode_without_a_robot_ends_at_once_and_counts(robots):
    """Of a start and a goal 72 m apart, of which there are about none in a square of 51 m."""
    env = make(6, robots=robots, min_goal_distance=72.0, obstacles=1)
    obs, info = env.reset()
    assert not info["active"].any() and not obs.any()
    for _ in range(2):
        obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
        assert not any(one.any() for one in (obs, reward, terminated, truncated, info["valid"], info["success"]))
        assert info["_final_obs"].all() and info["episode_length"].tolist() == [1] * 6
    found = statistics(env)
    assert (found["episodes"], found["length_max"], found["return_mean"]) == (12, 1, 0)


def test_a_seed_begins_a_curriculum_anew():
    stages = Stages((0, 20), ((1, 0, 0, 10.0), (2, 0, 0, 10.0)))
    env = make(5, curriculum=stages, max_steps=4)
    counts = []
    for seed in (3, None, 3):
        _, info = env.reset(seed=seed)
        counts.append(info["active"].sum().item())
        for _ in range(4):
            *_, info = env.step(env.random_actions()[0])
        counts.append(info["active"].sum().item())
    assert counts == [5, 10, 10, 10, 5, 10]


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_a_record_holds_what_a_step_led_to(version):
    env = make(8, trace=True, autoreset_mode="Disabled", check_actions=False, **crowded({"version": version}))
    env.reset()
    for _ in range(9):
        *_, info = env.step(env.random_actions()[0])
        record, of = env.record(), env.fields()
        left, right = of["thrust"].unbind(2) if version == "thruster" else (of["speed"], torch.zeros(8, 9))
        hit = (of["hit_robot"] | of["hit_obstacle"]).float()
        expected = (*of["pose"].unbind(2), left, right, info["valid"].float(), of["reached"].float(), hit)
        going = ~info["_final_obs"]
        assert all(torch.equal(record[name][going], rows[going]) for name, rows in zip(record, expected, strict=True))
    with pytest.raises(ValueError, match="needs trace=True"):
        make(1).record()


def test_a_picture_is_the_originals():
    given = scene(
        robots=[(12, 12, 45, 45, 0, 0), (30, 30, 5, 5, 1, 0)], cores=[(20, 30, 1, 3)], obstacles=[(40, 15, 4)]
    )
    env, one = make(2, scenarios=given, dtype="float64"), original.make(scenario=given, render_mode="rgb_array")
    env.reset()
    one.reset()
    for _ in range(3):
        action = env.random_actions()[0]
        env.step(action)
        one.step(dict(zip(one.agents, action[1].numpy(), strict=True)))
    found = env.render([1, 0])
    np.testing.assert_array_equal(found[0], one.render())
    assert len(found) == 2 and (found[0] != found[1]).any()


def test_a_picture_needs_no_drawing():
    """Of a distance at which a robot about never finds a place."""
    env = make(1, robots=2, min_goal_distance=72.0, obstacles=1)
    env.reset()
    assert env.render([0])[0].shape == (600, 600, 3)
    env.set_state({"counts": [1, 0, 1], "pose": [[20.0, 20.0, 0.0]] * 2, "obstacle": [[40.0, 15.0, 4.0]],
                   "goal": [[45.0, 45.0]] * 2, "active": [True, False]})  # fmt: skip
    (shown,) = env.render([0])
    colours = [
        shown[int((1 - y / 55) * 585) + 7, int(x / 55 * 585) + 7].tolist() for x, y in ((40, 15), (20, 20), (30, 30))
    ]
    assert colours[0] == [105] * 3 and colours[1] != [255] * 3 == colours[2]


def test_a_state_that_is_none_is_refused():
    env = make(2, robots=3, cores=1, obstacles=1)
    env.reset()
    before = env.state()
    for given, said in (
        ({"counts": [2, 2, 0]}, "counts=2 of environment 0 must be from 0 to [3, 1, 1]"),
        ({"counts": [[3, 1, 1], [40, 60, 60]]}, "counts=40 of environment 1 must be from 0 to [3, 1, 1]"),
        ({"counts": [2, 1]}, "counts has shape (2,); needed: (2, 3) or (3,)"),
        ({"pose": [[0.0, 0.0, -101.0]] * 3}, "pose=-101.0 of environment 0 must be from"),
        ({"yaw_rate": [0.0, 0.0, 8.1]}, "must be in [-8.0, 8.0]"),
        ({"reached": [0, 7, 0]}, "must be in 0 .. 1"),
        ({"thrust": [[1e9, 0.0]] * 3}, "thrust=1000000000.0 of environment 0 must be in [-500.0, 1000.0]"),
        ({"obstacle": [[9.0, 9.0, -1.0]]}, "obstacle=-1.0 of environment 0 must be from"),
        ({"core": [[9.0, 9.0, 5.0, 1.0]]}, "core=5.0 of environment 0 must be from"),
        (None, "state must be a mapping"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            env.set_state(given)
        assert equal(before, env.state())
    env.set_state({"counts": [2, 1, 1]})
    assert env.fields()["counts"].tolist() == [[2, 1, 1]] * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (True, "scenarios=True must be a Scenario, a path of a scenario file, or a list of them"),
        (2.0, "scenarios=2.0 must be a Scenario"),
        ([], "scenarios=[] must hold at least one"),
        (0, "scenarios=0 must be an integer from 1 to 10000"),
        (10**7, "scenarios=10000000 must be at most 10000 where they are drawn first: hand over a scenario file, or"),
    ],
)
def test_scenarios_that_are_none_are_refused(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make(1, scenarios=given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scenarios": 3, "min_goal_distance": 72.12}, "min_goal_distance=72.12 (D_min) left no place for a robot"),
        ({"batch": 3, "curriculum": "published"}, "batch=3 must be an integer from 8 to 2147483647"),
    ],
)
def test_what_fits_no_batch_is_refused(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make(8, **options)


# ---- no environment depends on others


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_an_environment_is_the_same_in_any_batch(form):
    options = crowded(form | {"seed": 3})
    whole = lives(make(260, **options))
    for B, first in ((1, 0), (1, 137), (7, 0), (33, 200)):
        assert same(lives(make(B, first_index=first, **options)), rows(whole, slice(first, first + B))), (B, first)
    assert same(lives(make(260, threads=3, **options)), whole)


@pytest.mark.parametrize("form", [FORMS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in FORMS[1:])], ids=str)
def test_an_environment_is_the_same_among_four_thousand(form):
    options = SHORT[form["version"]] | form | {"cores": 3, "max_steps": 4, "robots": 1}
    whole = lives(make(4096, **options))
    for B, first in ((1, 4095), (7, 2000)):
        assert same(lives(make(B, first_index=first, **options)), rows(whole, slice(first, first + B)))


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_a_partial_reset_is_the_one_that_it_would_be_alone(version):
    env, alone = (make(B, first_index=first, **crowded({"version": version})) for B, first in ((6, 0), (1, 4)))
    env.reset()
    alone.reset()
    for t in range(8):
        if t == 3:
            env.reset(options={"reset_mask": np.arange(6) % 3 == 1})
            alone.reset()
        actions = env.random_actions()[0]
        one, other = copies(env.step(actions)), copies(alone.step(actions[4:5].clone()))
        assert same(rows(one, slice(4, 5)), other)


# ---- what an episode lacks has no influence


@pytest.mark.parametrize("version", ["thruster", "kinematic", "sonar"])
def test_room_for_more_changes_nothing(version):
    robots = [(10, 10, 40, 40, 0.5, 0), (24, 10, 10, 40, 1.0, 0), (38, 10, 10, 20, 2.0, 0)]
    given = scene(version, robots[: 1 if version == "sonar" else 3], [(15, 14, True, 6)], [(20, 20, 1), (30, 18, 2)])
    few, many = (make(1, version=version, scenarios=pool) for pool in ([given], [given, full(version)]))
    A = len(given.start)
    few.reset()
    many.reset()
    for _ in range(12):
        actions = few.random_actions()[0]
        wide = torch.zeros(many.actions.shape, dtype=actions.dtype)
        wide[:, :A] = actions
        one, other = copies(few.step(actions)), copies(many.step(wide))
        assert all(equal(ours, theirs[:, :A]) for ours, theirs in zip(one[:4], other[:4], strict=True))
        assert not other[4]["valid"][:, A:].any() and not other[0][:, A:].any()


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_rows_that_an_episode_lacks_are_not_read(version):
    """Whatever stands in them: boats, cores and obstacles where the first robot is."""
    options = crowded({"version": version, "max_steps": 50})
    clean, littered = (make(8, **options) for _ in range(2))
    for env in (clean, littered):
        env.reset()
        of = {name: value.clone() for name, value in env.fields().items()}
        active = torch.zeros(8, 9, dtype=torch.bool)
        active[:, :2] = True
        counts = torch.tensor([2, 1, 1], dtype=torch.int32).expand(8, 3)
        if env is littered:
            here = of["pose"][:, :1, :2]
            of["pose"][:, 2:, :2] = of["goal"][:, 2:] = here + 0.5
            of["core"][:, 1:, :2] = of["obstacle"][:, 1:, :2] = here
            of["core"][:, 1:, 2:], of["obstacle"][:, 1:, 2] = 1.0, 3.0
        env.set_state(
            {name: of[name] for name in ("pose", "goal", "core", "obstacle")} | {"counts": counts, "active": active}
        )
    for _ in range(10):
        actions = clean.random_actions()[0]
        one, other = (copies(env.step(actions)) for env in (clean, littered))
        going = ~one[4]["_final_obs"] & (clean.state()["episode"] == 0)
        assert all(
            equal(ours[going][:, :2], theirs[going][:, :2]) for ours, theirs in zip(one[:4], other[:4], strict=True)
        )
    assert going.sum() > 2


# ---- actions


def test_actions_outside_the_space_are_named():
    continuous, kinematic, discrete = make(2), make(2, version="kinematic"), make(2, action_kind="discrete")
    for env in (continuous, kinematic, discrete):
        env.reset()
    rates = torch.zeros(2, 5, 2)

    def rate(value, *index):
        changed = rates.clone()
        changed[index] = value
        return changed

    def index(value):
        return torch.tensor([[0] * 5, [0, 0, value, 0, 0]], dtype=torch.int32)

    table = [
        (continuous, rate(1.5, 1, 2, 1), r"action of environment 1, agent 2, index 1 is 1\.5, not in \[-1, 1\]"),
        (continuous, rate(torch.nan, 0, 4, 0), "action of environment 0, agent 4, index 0 is nan"),
        (continuous, rate(-torch.inf, 0, 0, 0), "is -inf, not in"),
        (continuous, rates[:1], r"action has shape \(1, 5, 2\); allowed: \(2, 5, 2\)"),
        (continuous, rates.int(), "action has dtype int32; allowed: float32"),
        (kinematic, index(9), r"action of environment 1, agent 2 is 9, not in 0 \.\. 8"),
        (kinematic, index(-1), "is -1, not in"),
        (discrete, index(25), r"agent 2 is 25, not in 0 \.\. 24"),
        (kinematic, index(0)[:, :4], r"action has shape \(2, 4\)"),
    ]
    for env, action, said in table:
        before = env.state()
        with pytest.raises(ValueError, match=said):
            env.step(action)
        assert equal(before, env.state())


def test_actions_of_robots_that_have_ended_are_not_looked_at():
    env = make(2)
    env.reset()
    active = torch.tensor([[True, False, True, True, True]] * 2)
    env.set_state({"active": active})
    action = torch.zeros(2, 5, 2)
    action[:, 1] = torch.nan
    reward = env.step(action)[1]
    assert reward.isfinite().all() and not reward[:, 1].any()
    action[1, 2, 0] = 2.0
    with pytest.raises(ValueError, match=r"environment 1, agent 2, index 0 is 2\.0"):
        env.step(action)


@pytest.mark.parametrize("form", FORMS[:3], ids=str)
def test_unchecked_actions_are_clipped_and_none_acts_as_0(form):
    wild, tame = (make(3, check_actions=False, **crowded(form)) for _ in range(2))
    wild.reset()
    tame.reset()
    if form == FORMS[0]:
        given = torch.linspace(-3, 3, wild.actions.per_env * 3).reshape(wild.actions.shape)
        given[0, 0], given[1, 3, 1] = torch.tensor([torch.inf, -torch.inf]), torch.nan
        right = given.nan_to_num(0.0, 1.0, -1.0).clamp(-1, 1)
    else:
        given = torch.arange(27, dtype=torch.int32).reshape(3, 9) - 1
        right = torch.where((given >= 0) & (given < wild.single_action_space.n), given, 0)
    assert same(copies(wild.step(given)), copies(tame.step(right)))
    assert all(np.array_equal(fields(wild)[name], found) for name, found in fields(tame).items())


def test_actions_beyond_int32_are_not_taken_for_others_by_adapters():
    pytest.importorskip("torchrl", reason="needs TorchRL: pip install torchrl")
    from lockstep.envs.adapters import torchrl

    options = {"action_kind": "discrete", "check_actions": True}
    grouped = torchrl.make("marine_navigation", 2, **options)
    named = pettingzoo.make_vec("marine_navigation", 2, **options)
    row, _ = grouped.reset(), named.reset()
    actions = torch.zeros(2, named.num_agents, dtype=torch.int64)
    actions[1, 3] = 2**32 + 3
    refused = "action of environment 1, agent 3 is 2147483647, not in 0 .. "
    with pytest.raises(ValueError, match=refused):
        grouped.step(row.set(("robot", "action"), actions))
    with pytest.raises(ValueError, match=refused):
        named.step(dict(zip(named.agents, actions.T, strict=True)))
