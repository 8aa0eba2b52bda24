"""Comparisons of classic control: the cases they start from, and what they find where a port is not its original."""

import re
import shutil

import numpy as np
import pytest

from lockstep import envs
from lockstep.experiments import config, correctness, originals, verdicts, walk
from lockstep.experiments.bench.rungs import fixed_policy
from lockstep.experiments.classic_control.correctness import Task, Tasks, trajectories_agree
from tests.envs.batches import NAMES

BOTH_TYPES = ["float32", "float64"]
EPISODES = {"random": 40, "fixed": 40}


@pytest.fixture(scope="module")
def tasks_of():
    """The walk of an environment over few cases, of which the original makes its part in this process."""

    def few(name: str) -> Tasks:
        plain = config.load(name, "quick").plain()
        for region in plain["correctness"]["regions"].values():
            region["states"] = 4000
        plain["correctness"]["episodes"] = {"replayed": EPISODES, "played": EPISODES}
        return Tasks(name, config.Settings(plain))

    def at_once(task, *cases, **same):
        found = task(*cases, **same)
        return lambda: found

    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(originals, "on_all_cores", at_once)
        yield lambda name: made.setdefault(name, few(name))


def steps(tasks: Tasks, variant: tuple = ()) -> tuple[dict, dict]:
    """Fields of the states before and after the original's steps."""
    before, _, after = tasks.cases("cpu", "float64", variant)
    return dict(zip(tasks.declared, before["state"].T, strict=True)), after


@pytest.mark.parametrize("name", NAMES)
def test_a_million_transitions_in_either_type(name):
    for scale in ("quick", "full"):
        tasks = Tasks(name, config.load(name, scale))
        for dtype in ("float32", "float64"):
            assert sum(among.sum() for _, among, _ in tasks.judged(dtype, ())) >= 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_states_are_float32_numbers_that_the_kernel_is_written_for(tasks_of, name):
    tasks = tasks_of(name)
    assert tasks.states.dtype == np.float32
    for j, field in enumerate(tasks.port.of("state")):
        assert (tasks.states[:, j] >= np.float32(field.low)).all() and (
            tasks.states[:, j] <= np.float32(field.high)
        ).all()
    horizon = tasks.port.of("horizon")
    assert set(np.unique(tasks.elapsed)) == {0, horizon - 2, horizon - 1}


THRESHOLDS = [
    *(("cartpole", "x", side * 2.4, 0.02) for side in (-1, 1)),
    *(("cartpole", "theta", side * 12 * 2 * np.pi / 360, 0.02) for side in (-1, 1)),
    ("mountain_car", "position", 0.5, 0.02),
    ("mountain_car_continuous", "position", 0.45, 0.02),
]
CLIPS = [
    *((car, "position", end, 0.05) for car in ("mountain_car", "mountain_car_continuous") for end in (-1.2, 0.6)),
    *((car, "velocity", end, 0.003) for car in ("mountain_car", "mountain_car_continuous") for end in (-0.07, 0.07)),
    *(("pendulum", "theta_dot", end, 0.5) for end in (-8, 8)),
    *(("acrobot", "theta1_dot", end, 1) for end in (-4 * np.pi, 4 * np.pi)),
    *(("acrobot", "theta2_dot", end, 2) for end in (-9 * np.pi, 9 * np.pi)),
]


@pytest.mark.parametrize(("name", "field", "at", "near"), THRESHOLDS)
def test_steps_end_on_both_sides_of_a_threshold(tasks_of, name, field, at, near):
    distance = steps(tasks_of(name))[1][field] - at
    for side in (-1, 1):
        assert np.sum((side * distance > 0) & (side * distance < near)) > 20


@pytest.mark.parametrize(("name", "field", "at", "near"), CLIPS)
def test_steps_are_clipped_and_not_quite_clipped(tasks_of, name, field, at, near):
    found = steps(tasks_of(name))[1][field]
    clipped = np.abs(found - at) < 1e-6
    assert clipped.sum() > 20
    assert np.sum(~clipped & (np.abs(found - at) < near)) > 20


def test_steps_cross_the_end_of_an_angles_range_both_ways(tasks_of):
    for name, field in (("pendulum", "theta"), ("acrobot", "theta1"), ("acrobot", "theta2")):
        before, after = (step[field] for step in steps(tasks_of(name)))
        for side in (-1, 1):
            # Gymnasium's Pendulum lets the angle grow; its Acrobot turns it back.
            assert np.sum((side * before > 3) & (side * before < np.pi) & (np.abs(after) > np.pi)) > 20 or (
                np.sum((side * before > 2) & (side * after < -2)) > 20
            )
    assert np.abs(tasks_of("pendulum").states[:, 0]).max() > 90


@pytest.mark.parametrize(("name", "high"), [("mountain_car_continuous", 1), ("pendulum", 2)])
def test_actions_of_a_box_lie_in_it_at_its_ends_and_outside(tasks_of, name, high):
    actions = tasks_of(name).actions
    assert np.array_equal(actions, actions.astype(np.float32))
    for part in (actions == high, actions == -high, actions > high, actions < -high, np.abs(actions) < high):
        assert part.mean() > 0.05
    assert np.abs(actions).max() <= 3 * high


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "acrobot"])
def test_discrete_actions_are_all_of_them(tasks_of, name):
    tasks = tasks_of(name)
    assert set(np.unique(tasks.actions)) == set(range(tasks.port.of("action").n))


@pytest.mark.parametrize("name", NAMES)
def test_near_a_threshold_are_few_and_on_both_sides(tasks_of, name):
    """Acrobot and Pendulum, which never ends, have none of these states so near."""
    tasks = tasks_of(name)
    after, original = steps(tasks)[1], envs.make_original(name)
    margin = envs.original(name).margin(original, after["state"])
    np.testing.assert_array_equal(after["near"], np.abs(margin) < 1e-6)
    # MountainCarContinuous decides before it rounds its state to float32, by 3e-8.
    clear = np.abs(margin) > 1e-7
    assert clear.mean() > 0.999
    np.testing.assert_array_equal((margin > 0)[clear], after["terminated"][clear])


def test_a_variant_moves_its_threshold_and_takes_a_tenth_of_the_cases(tasks_of):
    tasks = tasks_of("mountain_car")
    after = steps(tasks, (("goal_velocity", 0.02),))[1]
    assert len(after["position"]) == len(tasks.states) // 10
    np.testing.assert_array_equal(after["terminated"], (after["position"] >= 0.5) & (after["velocity"] >= 0.02))
    assert np.sum((after["position"] >= 0.5) & (after["velocity"] >= 0) & ~after["terminated"]) > 20


def test_errors_are_absolute_and_of_an_angle_the_shorter_way_round(tasks_of):
    tasks = tasks_of("pendulum")
    ours = {"theta": np.array([-3.1, 3.0], dtype=np.float32), "theta_dot": np.array([1.0, 7.0])}
    theirs = {"theta": np.array([3.1, 3.0 - 26 * np.pi]), "theta_dot": np.array([1.5, 1.0])}
    # -3.1 and 3.1 are 2 pi - 6.2 apart; a speed does not go round.
    expected = {"theta": [2 * np.pi - 6.2, 0.0], "theta_dot": [0.5, 6.0]}
    for name in ours:
        np.testing.assert_allclose(tasks.errors(name, ours, theirs)[:, 0], expected[name], atol=1e-6)


def test_regions_are_judged_by_tolerances_of_their_own(tasks_of):
    tasks = tasks_of("acrobot")
    names = np.array(list(tasks.asked.regions))[tasks.region]
    single = {"".join(words): (set(names[among]), most) for words, among, most in tasks.judged("float32", ())}
    assert {label: regions for label, (regions, _) in single.items()} == {
        "": {"visited"},
        "swinging": {"swinging"},
        "slow, wraps": {"slow", "wraps"},
    }
    most = single["swinging"][1]
    names_of_it = ("theta1", "theta2_dot", "observation", "reward")
    assert [most(name) for name in names_of_it] == [2e-6, 5e-6, 5e-6, None]
    words, among, most = list(tasks.judged("float64", (("g", 9.81),)))[1]
    assert words == ["g=9.81", "fast, clips"] and set(names[::10][among]) == {"fast", "clips"}
    # Observations are float32 always; of these two regions none are compared there, but in the common tolerances.
    assert (most("theta1"), most("observation")) == (1e-9, 2e-6)


UNFIT = [  # a setting of an environment that does not fit it, and the sentence on that
    ("cartpole", "regions.uniform.box", {"x": [0, 1], "xdot": [0, 1]}, "unknown field 'xdot'; did you mean 'x_dot'?"),
    ("cartpole", "regions.uniform.box", {"x": [0, 1]}, "the field 'x_dot' is missing"),
    ("mountain_car", "regions.uniform.box.position", [0.6, -1.2], "0.6 must be below -1.2"),
    ("cartpole", "regions.thresholds.bands", {"angle": {"at": [1], "width": 1}}, "unknown field 'angle'"),
    ("pendulum", "tolerances.float32", {"theta": 1e-6, "reward": 1e-5}, "neither 'theta_dot' nor 'default' is there"),
    (
        "acrobot", "regions.fast.tolerances.float64", {"default": 1e-9, "theta": 1e-9},
        "unknown field 'theta'; did you mean 'theta2'?",
    ),
    ("cartpole", "variants", [{"gravty": 1}], "CartPole-v1 has no parameter or option 'gravty'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "value", "message"), UNFIT)
def test_a_yaml_that_does_not_fit_the_environment_is_named(name, keys, value, message):
    plain = config.load(name, "quick").plain()
    section, *inner, last = [plain["correctness"], *keys.split(".")]
    for key in inner:
        section = section[key]
    section[last] = value
    with pytest.raises(
        config.ConfigError, match=re.escape(f"classic_control/{name}.yaml: correctness.{keys}: {message}")
    ):
        Tasks(name, config.Settings(plain))


@pytest.mark.parametrize("name", NAMES)
def test_every_comparison_that_needs_no_gpu_passes(tasks_of, name):
    tasks = tasks_of(name)
    found = {label: list(one.rows()) for label, one in correctness.comparisons([tasks], ["cpu"]).items()}
    rows = [row for part in found.values() for row in part]
    assert {row["level"] for row in rows} == {"transition", "episode", "drift", "distribution"}
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert [row for row in rows if row["passed"] is False] == []
    double = {row["quantity"]: row for row in found["transition cpu float64"]}
    assert double["truncated"]["cases"] >= 12000
    errors = [double[field]["error"] for field in tasks.declared]
    assert 0 < max(errors) <= (1e-7 if name == "mountain_car_continuous" else 1e-12)


CAR, FORCE = "mountain_car", "mountain_car_continuous"
MUTANTS = [  # of a kernel: what is right, what stands there instead, the quantity that it spoils
    ("cartpole", "fused(tau, x_dot, x)", "fused(tau, x_dot, x) + real(3e-6)", "x"),
    ("cartpole", "real(4.0 / 3.0)", "real(1.3332)", "theta_dot"),
    ("cartpole", "magnitude(theta) > ", "magnitude(theta) > real(1.01) * ", "terminated"),
    ("cartpole", "-1.0f : 0.0f) : 1.0f", "-1.0f : 0.0f) : (terminated ? 0.0f : 1.0f)", "reward"),
    (CAR, "(velocity < 0) ? real(0) : velocity", "(velocity < 0) ? -velocity : velocity", "velocity"),
    (CAR, " & (velocity >= Params::goal_velocity)", "", "terminated"),
    (FORCE, "clipped(action, LOW, HIGH)", "action", "velocity"),
    (FORCE, "action * action", "clipped(action, LOW, HIGH) * action", "reward"),
    ("pendulum", "theta = wrapped(fused(", "theta = real(0.99999) * wrapped(fused(", "theta"),
    ("pendulum", "        theta = wrapped(theta);\n", "", "reward"),
    ("acrobot", "terminated ? 0.0f : -1.0f", "-1.0f", "reward"),
    (
        "acrobot",
        "-Params::MAX_VEL_2, Params::MAX_VEL_2",
        "-real(29), real(29)",
        "theta2_dot",
    ),  # in float32 not compared
]


@pytest.mark.parametrize(("name", "right", "wrong", "quantity"), MUTANTS)
def test_a_mutant_fails_in_the_quantity_it_spoils(tasks_of, tmp_path, monkeypatch, name, right, wrong, quantity):
    shutil.copytree(envs.folder(name), tmp_path / name)
    kernel = tmp_path / name / "kernel.cuh"
    text = kernel.read_text()
    assert right in text
    kernel.write_text(text.replace(right, wrong, 1))
    tasks, declared = tasks_of(name), envs.port(name)
    found = tasks.cases("cpu", "float64", ())  # the original's part first: it does not look at the kernel
    monkeypatch.setattr(tasks, "cases", lambda *place: found)
    monkeypatch.setattr(envs, "port", lambda name: declared)
    monkeypatch.setattr(envs, "folder", lambda name: tmp_path / name)
    for dtype in BOTH_TYPES if quantity != "theta2_dot" else ["float64"]:
        rows = walk.transition(tasks, "cpu", dtype, ())
        assert quantity in [row["quantity"].split(" (")[0] for row in rows if row["passed"] is False]


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_two_devices_live_the_same_steps(tasks_of, monkeypatch, name, dtype, devices):
    tasks = tasks_of(name)
    monkeypatch.setattr(tasks, "living", (4096, 300))
    rows = list(walk.devices_agree(tasks, dtype, devices))
    assert [row["quantity"].split(",")[0] for row in rows] == ["random action", *tasks.quantities]
    assert all(row["passed"] is True and row["cases"] == 1_228_800 for row in rows)
    allowed = {"observation": 1, **({"reward": 1} if name == "pendulum" else {})} if dtype == "float64" else {}
    for row, quantity in zip(rows[1:], tasks.quantities, strict=True):
        bits = dtype == "float32" or quantity not in tasks.declared
        assert (row["allowed"] == allowed.get(quantity, 0)) if bits else (row["tolerance"] == 1e-12)


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
def test_two_devices_store_the_same_trajectories(tasks_of, monkeypatch, devices):
    tasks, stored = tasks_of("cartpole"), ["obs", "action", "reward", "terminated", "truncated"]
    rows = list(trajectories_agree(tasks, devices))
    named = [f"{name} of fused steps, {policy} policy" for policy in ("random", "fixed") for name in stored]
    assert [row["quantity"] for row in rows] == named
    assert all(row["passed"] is True for row in rows)


def test_an_episode_that_ends_early_while_together_is_found(tasks_of, monkeypatch):
    """The original is played with a limit of 150 steps in place of 200; no episode of MountainCar is apart by then."""
    lives = originals.lives

    def cut(*cases, **same):
        found = lives(*cases, **same)
        found["episode over"][:, 149] = True
        return lambda: found

    monkeypatch.setattr(originals, "on_all_cores", lambda task, *cases, **same: cut(*cases, **same))
    rows = list(walk.episode(tasks_of("mountain_car"), "cpu", "float32", "random"))
    assert (rows[0]["quantity"], rows[0]["differing"]) == ("end of an episode, random policy, if not apart before", 40)
    assert rows[0]["passed"] is False


def test_an_episode_that_is_apart_may_end_differently(tasks_of):
    """A balanced pole falls in every copy, in the median at step 231, while Gymnasium's stands (spec sheet)."""
    ends, apart, first, *_ = walk.episode(tasks_of("cartpole"), "cpu", "float32", "fixed")
    assert (ends["differing"], ends["allowed"], ends["passed"]) == (0, 0, True)
    assert (apart["value"], apart["cases"], apart["passed"]) == (40, 40, None)
    assert first["value"] == pytest.approx(113, abs=12)


def test_episodes_of_originals_repeat_in_whatever_process_they_are_played():
    seeds, task = np.arange(5), Task("acrobot", 0)
    shared = originals.on_all_cores(originals.episodes, seeds, game=task)()
    originals.allot(1)
    here = originals.on_all_cores(originals.episodes, seeds, game=task)()
    assert originals.workers.cache_info().currsize == 0  # none but this one
    originals.allot(None)
    assert shared.keys() == here.keys() == {"length", "return"}
    for name, values in shared.items():
        np.testing.assert_array_equal(values, here[name])


LENGTHS = {CAR: (113, 125), FORCE: (105, 111), "cartpole": (500, 500), "pendulum": (200, 200), "acrobot": (65, 300)}


@pytest.mark.parametrize("name", NAMES)
def test_the_fixed_policy_solves_or_swings_the_original(tasks_of, name):
    lengths = originals.episodes(np.arange(20), game=Task(name, 0), fixed=tasks_of(name).settings)["length"]
    shortest, longest = LENGTHS[name]
    assert shortest <= lengths.min() <= lengths.max() <= longest


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_acts_alike_on_originals_and_ports(tasks_of, name):
    tasks, env = tasks_of(name), envs.make(name, 500)
    env.reset()
    env.rollout(50)
    obs = env.step(env.random_actions()[0])[0]
    theirs = fixed_policy(env.single_action_space, tasks.settings)
    expected = np.array([theirs(row) for row in obs.numpy()]).reshape(-1)
    np.testing.assert_allclose(env.actor(tasks.fixed_policy)(obs).numpy().reshape(-1), expected, atol=1e-6)
