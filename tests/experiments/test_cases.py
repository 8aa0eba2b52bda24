"""Starting states, actions and tolerances of the comparisons: what they cover, and what a YAML gets wrong."""

import numpy as np
import pytest

from lockstep.experiments import config
from lockstep.experiments.classic_control.cases import Cases, tolerance
from tests.envs.batches import NAMES


def small(name: str, states: int = 4000) -> Cases:
    """The cases of an environment with as many states in each region."""
    plain = config.load(name, "quick").plain()
    for region in plain["correctness"]["regions"].values():
        region["states"] = states
    return Cases(name, config.Settings(plain))


@pytest.fixture(scope="module")
def cases_of():
    made = {}
    return lambda name: made.setdefault(name, small(name))


def following(cases: Cases, field: str) -> np.ndarray:
    """The field in the original's next states."""
    return cases.reference().states[:, cases.fields.index(field)]


@pytest.mark.parametrize("name", NAMES)
def test_a_million_transitions_in_either_type(name):
    for scale in ("quick", "full"):
        cases = Cases(name, config.load(name, scale))
        for dtype in ("float32", "float64"):
            assert sum(among.sum() for _, among, _ in cases.judged(dtype)) >= 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_states_are_float32_numbers_that_the_kernel_is_written_for(cases_of, name):
    cases = cases_of(name)
    assert cases.states.dtype == np.float32
    for j, field in enumerate(cases.port.of("state")):
        assert (cases.states[:, j] >= np.float32(field.low)).all() and (
            cases.states[:, j] <= np.float32(field.high)
        ).all()
    horizon = cases.port.of("horizon")
    assert set(np.unique(cases.elapsed)) == {0, horizon - 2, horizon - 1}


@pytest.mark.parametrize(
    ("name", "field", "at", "near"),
    [
        *(("cartpole", "x", side * 2.4, 0.02) for side in (-1, 1)),
        *(("cartpole", "theta", side * 12 * 2 * np.pi / 360, 0.02) for side in (-1, 1)),
        ("mountain_car", "position", 0.5, 0.02),
        ("mountain_car_continuous", "position", 0.45, 0.02),
    ],
)
def test_steps_end_on_both_sides_of_a_threshold(cases_of, name, field, at, near):
    distance = following(cases_of(name), field) - at
    for side in (-1, 1):
        assert np.sum((side * distance > 0) & (side * distance < near)) > 20


@pytest.mark.parametrize(
    ("name", "field", "at", "near"),
    [
        *((car, "position", end, 0.05) for car in ("mountain_car", "mountain_car_continuous") for end in (-1.2, 0.6)),
        *(
            (car, "velocity", end, 0.003)
            for car in ("mountain_car", "mountain_car_continuous")
            for end in (-0.07, 0.07)
        ),
        *(("pendulum", "theta_dot", end, 0.5) for end in (-8, 8)),
        *(("acrobot", "theta1_dot", end, 1) for end in (-4 * np.pi, 4 * np.pi)),
        *(("acrobot", "theta2_dot", end, 2) for end in (-9 * np.pi, 9 * np.pi)),
    ],
)
def test_steps_are_clipped_and_not_quite_clipped(cases_of, name, field, at, near):
    found = following(cases_of(name), field)
    clipped = np.abs(found - at) < 1e-6
    assert clipped.sum() > 20
    assert np.sum(~clipped & (np.abs(found - at) < near)) > 20


def test_steps_cross_the_end_of_an_angles_range_both_ways(cases_of):
    for name, field in (("pendulum", "theta"), ("acrobot", "theta1"), ("acrobot", "theta2")):
        cases = cases_of(name)
        before, after = cases.states[:, cases.fields.index(field)], following(cases, field)
        for side in (-1, 1):
            # Gymnasium's Pendulum lets the angle grow; its Acrobot turns it back.
            assert np.sum((side * before > 3) & (side * before < np.pi) & (np.abs(after) > np.pi)) > 20 or (
                np.sum((side * before > 2) & (side * after < -2)) > 20
            )
    assert np.abs(cases_of("pendulum").states[:, 0]).max() > 90


@pytest.mark.parametrize(("name", "high"), [("mountain_car_continuous", 1), ("pendulum", 2)])
def test_actions_of_a_box_lie_in_it_at_its_ends_and_outside(cases_of, name, high):
    actions = cases_of(name).actions
    assert np.array_equal(actions, actions.astype(np.float32))
    for part in (actions == high, actions == -high, actions > high, actions < -high, np.abs(actions) < high):
        assert part.mean() > 0.05
    assert np.abs(actions).max() <= 3 * high


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "acrobot"])
def test_discrete_actions_are_all_of_them(cases_of, name):
    cases = cases_of(name)
    assert set(np.unique(cases.actions)) == set(range(cases.port.of("action").n))


@pytest.mark.parametrize("name", NAMES)
def test_the_margin_of_an_original_is_positive_where_it_terminates(cases_of, name):
    cases = cases_of(name)
    margin = cases.start()()[-1]
    # MountainCarContinuous decides before it rounds its state to float32, by 3e-8.
    clear = np.abs(margin) > 1e-7
    assert clear.mean() > 0.999
    np.testing.assert_array_equal((margin > 0)[clear], cases.reference().terminated[clear])


def test_a_variant_moves_its_threshold_and_takes_a_tenth_of_the_cases(cases_of):
    variant = (("goal_velocity", 0.02),)
    cases = cases_of("mountain_car")
    steps, margin = cases.reference(variant), cases.start(variant)()[-1]
    assert len(steps.states) == len(cases.states) // 10
    np.testing.assert_array_equal(margin >= 0, steps.terminated)
    assert np.sum((steps.states[:, 0] >= 0.5) & (steps.states[:, 1] >= 0) & ~steps.terminated) > 20


def test_angles_differ_the_shorter_way_round(cases_of):
    cases = cases_of("pendulum")
    ours, theirs = (
        np.array([[-3.1, 1.0], [3.0, 7.0]], dtype=np.float32),
        np.array([[3.1, 1.5], [3.0 - 26 * np.pi, 1.0]]),
    )
    # -3.1 and 3.1 are 2 pi - 6.2 apart; a speed does not go round.
    expected = [[2 * np.pi - 6.2, 0.5], [0.0, 6.0]]
    np.testing.assert_allclose(cases.differences(ours, theirs), expected, atol=1e-6)


def test_regions_are_judged_by_tolerances_of_their_own(cases_of):
    cases = cases_of("acrobot")
    names = np.array(list(cases.asked.regions))[cases.region]
    single = {label: (set(names[among]), tolerances) for label, among, tolerances in cases.judged("float32")}
    assert {label: regions for label, (regions, _) in single.items()} == {
        "": {"visited"},
        "swinging": {"swinging"},
        "slow, wraps": {"slow", "wraps"},
    }
    assert tolerance(single["slow, wraps"][1], "theta1") == 5e-6
    double = {label: set(names[among]) for label, among, _ in cases.judged("float64")}
    assert double == {"": {"visited", "swinging", "slow", "wraps"}, "fast, clips": {"fast", "clips"}}


@pytest.mark.parametrize(
    ("name", "keys", "value", "message"),
    [
        (
            "cartpole",
            ["regions", "uniform", "box"],
            {"x": [0, 1], "xdot": [0, 1]},
            "correctness.regions.uniform.box: unknown field 'xdot'; did you mean 'x_dot'?",
        ),
        (
            "cartpole",
            ["regions", "uniform", "box"],
            {"x": [0, 1]},
            "correctness.regions.uniform.box: the field 'x_dot' is missing",
        ),
        (
            "mountain_car",
            ["regions", "uniform", "box", "position"],
            [0.6, -1.2],
            "correctness.regions.uniform.box.position: 0.6 must be below -1.2",
        ),
        (
            "cartpole",
            ["regions", "thresholds", "bands"],
            {"angle": {"at": [1], "width": 1}},
            "correctness.regions.thresholds.bands: unknown field 'angle'",
        ),
        (
            "pendulum",
            ["tolerances", "float32"],
            {"theta": 1e-6, "reward": 1e-5},
            "correctness.tolerances.float32: neither 'theta_dot' nor 'default' is there",
        ),
        (
            "acrobot",
            ["regions", "fast", "tolerances", "float64"],
            {"default": 1e-9, "theta": 1e-9},
            "correctness.regions.fast.tolerances.float64: unknown field 'theta'; did you mean 'theta2'?",
        ),
        (
            "cartpole",
            ["variants"],
            [{"gravty": 1}],
            "correctness.variants: CartPole-v1 has no parameter or option 'gravty'",
        ),
    ],
)
def test_a_yaml_that_does_not_fit_the_environment_is_named(name, keys, value, message):
    plain = config.load(name, "quick").plain()
    section = plain["correctness"]
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    with pytest.raises(
        config.ConfigError, match=f"experiments/classic_control/{name}.yaml: {message}".replace("?", r"\?")
    ):
        Cases(name, config.Settings(plain))
