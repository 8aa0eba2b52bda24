"""The array form against the original, itself at other batch sizes, and in float32."""

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.marine_navigation import arrays, streams
from lockstep.envs.marine_navigation.original import MarineNavigation, get_state
from lockstep.envs.marine_navigation.params import PRESETS, SWITCHES
from lockstep.envs.marine_navigation.scenario import philox_scenario
from tests.envs.marine_navigation.worlds import params

NAME, SEED = "marine_navigation", 5
BOATS = {  # in crowded scenes near large goals, so that few steps meet much
    "thruster": {"robots": 6, "cores": 3, "obstacles": 5, "width": 34.0, "clear": 6.0, "goal_radius": 9.0},
    "kinematic": {"robots": 8, "cores": 6, "obstacles": 8, "width": 22.0, "clear": 2.0, "goal_radius": 7.0},
    "sonar": {"cores": 5, "obstacles": 8, "width": 26.0, "clear": 3.0, "goal_radius": 13.0},
}
for boat in BOATS.values():
    boat["min_goal_distance"] = boat["goal_radius"] - 1.0
WHOLE = ("counts", "asked", "blind", "noise_id", "steps", "reached", "hit_robot", "hit_obstacle", "active", "elapsed")
MIXTURES = [(version, preset, {}) for version in BOATS for preset in PRESETS]
MIXTURES += [("thruster", preset, {"action_kind": "discrete"}) for preset in PRESETS]
MIXTURES += [("kinematic", "original", {"non_cooperative": 3}), ("thruster", "corrected", {"stop_at_collision": True})]
MIXTURES += [(version, "corrected", {switch: True}) for version in BOATS for switch in SWITCHES]


def largest_difference(version: str, preset: str, chosen: dict, steps: int = 24, num_envs: int = 3) -> float:
    """Over steps of originals and of the array form side by side, episodes after episodes; whole numbers are equal."""
    chosen = {"max_steps": 9} | BOATS[version] | chosen
    form = arrays.ArraysEnv(num_envs, seed=SEED, version=version, preset=preset, dtype="float64", **chosen)
    every = [MarineNavigation(params(version, preset, **chosen), seed=SEED, index=b) for b in range(num_envs)]
    shown = [env.reset()[0] for env in every]
    observation, worst = form.reset(), 0.0
    for _ in range(steps):
        for b, env in enumerate(every):
            state = get_state(env)
            for name, value in state.items():
                ours = form.state[name][b]
                if name in WHOLE:
                    np.testing.assert_array_equal(ours, value, err_msg=name)
                worst = np.maximum(worst, np.abs(ours.astype(float) - value).max(initial=0.0))
            for agent, row in shown[b].items():
                worst = np.maximum(worst, np.abs(observation[b, int(agent[6:])] - row).max())
        (action,) = form.random_actions(1)
        observation, *outcome = form.step(action)
        for b, env in enumerate(every):
            acting = list(env.agents)
            seen, *found, _ = env.step({agent: action[b, int(agent[6:])] for agent in acting})
            for ours, theirs in zip(outcome, found, strict=True):
                expected = np.zeros(len(ours[b]))
                expected[[int(agent[6:]) for agent in acting]] = list(theirs.values())
                worst = np.maximum(worst, np.abs(ours[b] - expected).max())
            shown[b] = seen if env.agents else env.reset()[0]
    return worst


@pytest.mark.parametrize(("version", "preset", "chosen"), MIXTURES)
def test_an_episode_is_the_originals(version, preset, chosen):
    assert largest_difference(version, preset, chosen) <= 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_a_mixture_of_switches_is_the_originals(seed):
    random = np.random.default_rng(seed)
    chosen = {name: bool(random.integers(2)) for name in SWITCHES}
    assert largest_difference(list(BOATS)[seed % 3], "corrected", chosen) <= 1e-9


@pytest.mark.parametrize("change", ["radius_mean", "core_radius", "goal_reward", "lever"])
def test_a_difference_would_be_seen(change, monkeypatch):
    """Another number in the array form than in the original."""
    made = arrays.make_params

    def other(*given, **chosen):
        value = getattr(made(*given, **chosen), change)
        return made(*given, **chosen | {change: 1.01 * value})

    monkeypatch.setattr(arrays, "make_params", other)
    assert largest_difference("thruster", "original", {}) > 1e-4


FULL = {  # of which not all find a place
    "thruster": {"robots": 7, "cores": 12, "obstacles": 10, "width": 46.0, "clear": 12.0, "min_goal_distance": 32.0},
    "kinematic": {"robots": 7, "cores": 12, "obstacles": 10, "width": 44.0, "clear": 12.0, "min_goal_distance": 35.0},
    "sonar": {"cores": 60, "obstacles": 32, "width": 34.0, "min_goal_distance": 36.0},
}


@pytest.mark.parametrize("version", BOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_scenarios_are_drawn_as_one_proposal_after_the_other(version, preset):
    """Bit for bit, in roomy scenes and in those where stages end for want of place."""
    for chosen in ({}, FULL[version]):
        p, index = params(version, preset, **chosen), np.arange(30, dtype=np.uint64)
        state = arrays.first(arrays.Model(np, p, "float64"), SEED, index, np.full(30, 7))
        for b in range(30):
            drawn = philox_scenario(p, p.setting, SEED, b, 7)
            robots, cores, rocks = drawn.counts
            assert state["counts"][b].tolist() == [robots, cores, rocks]
            np.testing.assert_array_equal(state["pose"][b, :robots], np.column_stack([drawn.start, drawn.heading]))
            np.testing.assert_array_equal(state["goal"][b, :robots], drawn.goal)
            np.testing.assert_array_equal(state["core"][b, :cores], np.array(drawn.cores(p)).reshape(-1, 4))
            placed = np.column_stack([drawn.obstacle_centre, drawn.radius])
            np.testing.assert_array_equal(state["obstacle"][b, :rocks], placed)
            for name, count in (("pose", robots), ("goal", robots), ("core", cores), ("obstacle", rocks)):
                assert not state[name][b, count:].any()
    assert (state["counts"] < p.setting[:3]).any(axis=0)[version == "sonar" :].all()
    far = np.linalg.norm(state["goal"] - state["pose"][..., :2], axis=-1)[:, 0]
    assert version != "sonar" or (far < p.min_goal_distance).any()  # the farthest of 500 pairs


def test_many_episodes_are_drawn_as_few_are():
    model = arrays.Model(np, params("kinematic"), "float64")
    index = np.arange(1100, dtype=np.uint64)
    many = arrays.first(model, 2, index, np.zeros(1100, dtype=np.int64))
    few = arrays.first(model, 2, index[1090:], np.zeros(10, dtype=np.int64))
    assert all((rows[1090:] == few[name]).all() for name, rows in many.items())


@pytest.mark.parametrize("version", BOATS)
def test_an_environment_does_not_know_its_batch(version):
    few, many = (arrays.ArraysEnv(n, seed=3, version=version, max_steps=6, dtype="float64") for n in (2, 40))
    for one, other in zip(few.random_actions(15), many.random_actions(15), strict=True):
        assert (one == other[:2]).all()
        for ours, theirs in zip(few.step(one), many.step(other), strict=True):
            np.testing.assert_allclose(ours, theirs[:2], rtol=0, atol=1e-12)
    assert few.state["episode"].tolist() == [2, 2]


@pytest.mark.parametrize("version", BOATS)
def test_float32_is_the_same_to_its_own_precision(version):
    coarse, fine = (arrays.ArraysEnv(64, seed=4, version=version, dtype=dtype) for dtype in ("float32", "float64"))
    for action in fine.random_actions(3):
        rough, exact = coarse.step(action), fine.step(action)
        assert {rows.dtype for rows in coarse.state.values() if rows.dtype.kind == "f"} == {np.dtype("float32")}
        assert rough[0].dtype == rough[1].dtype == np.float32
        apart = np.abs(rough[0] - exact[0]) / np.maximum(np.abs(exact[0]), 1.0)
        assert np.quantile(apart, 0.999) < 1e-4 and (rough[2] == exact[2]).mean() > 0.999
        np.testing.assert_allclose(coarse.state["pose"], fine.state["pose"], rtol=1e-4, atol=1e-4)


def test_numbers_that_are_none_act_as_nothing_and_others_are_clipped():
    strange = np.array([[[np.nan, 7.0], [-np.inf, np.inf], [0.3, -9.0], [0.0, 0.0], [1.0, -1.0]]], np.float32)
    plain = np.array([[[0.0, 1.0], [-1.0, 1.0], [0.3, -1.0], [0.0, 0.0], [1.0, -1.0]]], np.float32)
    one, other = (arrays.ArraysEnv(1).step(action) for action in (strange, plain))
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    strange, plain = np.array([[-1, 25, 3, 0, 9]]), np.array([[0, 0, 3, 0, 9]])
    one, other = (arrays.ArraysEnv(1, action_kind="discrete").step(action) for action in (strange, plain))
    np.testing.assert_array_equal(one[1], other[1])


def test_a_step_overwrites_nothing_that_was_given_out():
    env = arrays.ArraysEnv(8, max_steps=2)
    (action,) = env.random_actions(1)
    before = env.state
    kept = {name: rows.copy() for name, rows in before.items()}
    first = env.step(action)[0]
    shown = first.copy()
    env.step(action)
    np.testing.assert_array_equal(first, shown)
    assert all((rows == kept[name]).all() for name, rows in before.items())


def test_an_episode_without_a_robot_ends_at_once_without_success():
    env = arrays.ArraysEnv(4, min_goal_distance=72.0, seed=1)
    assert not env.state["active"].any() and not env.reset().any()
    for action in env.random_actions(2):
        observation, reward, terminated, truncated = env.step(action)
        assert not (observation.any() or reward.any() or terminated.any() or truncated.any())
    assert env.state["episode"].tolist() == [2] * 4


def test_a_probe_tells_how_near_a_decision_was():
    """A robot 10 nm beyond its goal's radius, all else far from any threshold."""
    p = params("kinematic", robots=1, cores=0, obstacles=0)
    state = arrays.first(arrays.Model(np, p, "float64"), 0, np.zeros(1, np.uint64), np.zeros(1, int))
    state["pose"][:] = [20.0, 20.0, 0.0]
    state["speed"][:] = state["ground_velocity"][:] = 0.0
    state["goal"][:] = [22.0 + 1e-8, 20.0]
    probe = arrays.Probe(1)
    _, outcome = arrays.step(arrays.Model(np, p, "float64", probe), state, np.array([[1]]), 0, np.zeros(1, np.uint64))
    assert probe.nearest[0] == pytest.approx(1e-8, rel=1e-6) and not outcome.terminated.any()
    assert not probe.met["reached"].any() and probe.met["reached"].shape == (1,)


def test_the_table_of_radii_is_the_original_s():
    model = arrays.Model(np, params(), "float64")
    state = arrays.first(model, 8, np.arange(2, dtype=np.uint64), np.zeros(2, int))
    index = np.arange(2, dtype=np.uint64)
    normals, xi = arrays.perception.noise(model, state, 8, index, np.ones((2, 5, 9), dtype=bool))
    things = [*range(4), *range(streams.ROBOT_OBJECT, streams.ROBOT_OBJECT + 5)]
    for b in range(2):
        expected = streams.perception(8, b, 0, 0, np.arange(5), things)
        np.testing.assert_allclose(np.stack(normals, axis=-1)[b], expected[0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(xi[b], expected[1], rtol=0, atol=1e-14)
    among = np.random.default_rng(0).random((2, 5, 9)) < 0.4
    some, few = arrays.perception.noise(model, state, 8, index, among)
    for part, whole in zip([*some, few], [*normals, xi], strict=True):
        np.testing.assert_array_equal(part, np.where(among, whole, 0.0))


def test_what_is_not_allowed_is_said():
    for options, said in (
        ({"num_envs": 0}, "num_envs=0 must be an integer from 1"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"dtype": "float16"}, "dtype='float16' must be one of 'float32', 'float64'"),
        ({"version": "thrust"}, "version='thrust' is unknown; did you mean 'thruster'"),
        ({"core": 3}, "no parameter or option 'core'; did you mean 'cores'"),
    ):
        with pytest.raises(ValueError, match=said):
            arrays.ArraysEnv(**{"num_envs": 2} | options)


@pytest.mark.parametrize(
    "given", [None, np.zeros((2, 3, 2)), np.zeros((2, 5)), [[0.0] * 2] * 5, np.full((2, 5, 2), "a")]
)
def test_an_action_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match=r"action is .*, must be an array of numbers \(2, 5, 2\)"):
        arrays.ArraysEnv(2).step(given)


def test_it_is_found_by_name():
    assert isinstance(envs.arrays_form(NAME).ArraysEnv(1), arrays.ArraysEnv)
