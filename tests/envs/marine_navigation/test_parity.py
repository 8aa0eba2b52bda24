"""The port is its original: from any state, over episodes on the same numbers, and in distribution.

An error is abs(a - b) / max(abs a, abs b, 1). What rounding may decide, nearer to its threshold than the tolerance, is
counted and not compared.
"""

import functools
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats
import torch

from lockstep import envs
from lockstep.envs.marine_navigation import original
from lockstep.envs.marine_navigation.layout import state_shapes
from lockstep.envs.marine_navigation.original.boats import distance
from lockstep.envs.marine_navigation.params import SWITCHES, Setting, make_params
from lockstep.envs.marine_navigation.scenario import Stages, published, save
from tests.envs.marine_navigation.deciding import decided
from tests.envs.marine_navigation.worlds import INFO, ROUNDED, number

SLOW = pytest.mark.slow
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
FORMS = [
    {"version": "thruster"}, {"version": "thruster", "action_kind": "discrete"}, {"version": "kinematic"},
    {"version": "sonar"},
]  # fmt: skip
PRESETS = ["corrected", "original"]
OF_VERSIONS = {  # a switch does nothing in others
    "turn_counted_twice": ["thruster"], "shared_noise": ["thruster"],
    "beam_break": ["sonar"], "nearest_centre_only": ["sonar"],
}  # fmt: skip
# In a core of 10 m/s water differs by 20 m/s over a metre: in ten substeps the last bit of a place becomes 2e-4 m/s and
# more, whoever computes it in float32, which is compared in calmer water.
CALM = {"edge_speed_low": 1.0, "edge_speed_high": 2.0, "cores": 1}
SEED, FIRST = 2**32 + 5, 40  # of the noise, and number of the first environment


def error(ours, theirs, angle=False) -> np.ndarray:
    """Of numbers [n, ...]; of headings the shorter way round."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    assert ours.shape == theirs.shape and np.isfinite(theirs).all()
    apart = np.abs(ours - theirs)
    if angle:
        return np.minimum(apart, np.abs(2 * math.pi - apart))
    return apart / np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), 1)


def assert_same(ours: dict, theirs: dict, dtype: str, but=False):
    """Flags and integers exactly, floats to the tolerance; what is shown is rounded to float32 besides."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found, expected = np.asarray(ours[name]), np.asarray(expected)
        exact = expected.dtype.kind != "f"
        most = 0.0 if exact else TOLERANCE[dtype] + (ROUNDED if name.startswith(("shown ", "told ")) else 0.0)
        if name == "pose":
            wrong = np.maximum(error(found, expected)[..., :2].max(-1), error(found, expected, angle=True)[..., 2])
        else:
            wrong = error(found, expected)
        wrong[np.broadcast_to(but, len(wrong))] = 0.0
        place = np.unravel_index(wrong.argmax(), wrong.shape) if wrong.size else ()
        assert wrong.max(initial=0.0) <= most, (name, place, found[place], expected[place])


def fields(env) -> dict[str, np.ndarray]:
    """The state of a batch, after episodes have begun anew; with fields of no numbers, which a batch leaves out."""
    p, whole = env.params, env.state()
    shapes = state_shapes(p, p.robots, p.cores, p.obstacles)
    rows = {name: torch.zeros((env.num_envs, *shape)) for name, (shape, _) in shapes.items()} | env.fields()
    return host(rows | {name: whole[name] for name in ("elapsed", "episode")})


def shown(obs, reward, terminated, truncated, info) -> dict[str, np.ndarray]:
    """Outputs of a step for every environment, and those of an episode that has ended."""
    over = info["_final_obs"]
    columns = {"obs": obs, "last": torch.where(over[:, None, None], info["final_obs"], obs), "over": over}
    columns |= {"reward": reward, "terminated": terminated, "truncated": truncated}
    columns |= {name: info[name] for name in ("active", "valid")}
    told = {f"told {key}": info[key] for key in (*INFO.values(), "success", "episode_length")}
    return host({f"shown {name}": rows for name, rows in columns.items()} | told)


def host(rows: dict) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in rows.items()}


def state(one, seen: dict) -> dict[str, np.ndarray]:
    """Of an original: its fields, and what its agents see."""
    found = original.get_state(one)
    found.pop("scenario", None)
    rows = np.zeros((one.most["robots"], one.params.observed))
    for agent, values in seen.items():
        rows[number(agent)] = values
    found |= {"shown obs": rows, "shown active": found.pop("active") & (not one.episode.over)}
    return found


def outcome_of(one, outcome) -> dict[str, np.ndarray]:
    """Outputs of an original's step, infos included."""
    A, (seen, *columns, _) = one.most["robots"], outcome
    found = {"shown last": np.zeros((A, one.params.observed)), "shown reward": np.zeros(A)}
    found |= {f"shown {name}": np.zeros(A, bool) for name in ("terminated", "truncated", "valid")}
    for agent, values in seen.items():
        parts = values, *(column[agent] for column in columns), True
        for name, value in zip(found, parts, strict=True):
            found[name][number(agent)] = value
    told = {
        f"told {key}": np.zeros(A, float if key in ("returns", "time", "energy") else bool) for key in INFO.values()
    }
    for boat in one.episode.boats:
        for name, value in one._row(boat).items():
            told[f"told {INFO[name]}"][boat.index] = value
    told |= {"told success": one.success, "told episode_length": one.episode.elapsed}
    return found | told | {"shown over": not one.agents}


def together(rows: list[dict]) -> dict[str, np.ndarray]:
    return {name: np.stack([one[name] for one in rows]) for name in rows[0]}


def assert_steps_same(ours: dict, theirs: dict, dtype: str, near=False, begun: bool = False):
    """Compare states after steps but for environments `near` a threshold; `begun`: other episodes follow ended ones."""
    over, parts = theirs["shown over"], ({}, {}, {})
    for name in theirs:
        parts[0 if name.startswith("told") else 1 if outcome_only(name) else 2][name] = theirs[name]
    for part, but in zip(parts, (near | ~over, near | (over & False), near | (over & (not begun))), strict=True):
        assert_same({name: ours[name] for name in part}, part, dtype, but)


def outcome_only(name: str) -> bool:
    return name.startswith("shown") and name not in ("shown obs", "shown active")


# ---- transitions


SHORT = {  # episodes in which much happens
    "thruster": {"width": 40.0, "clear": 5.7, "min_goal_distance": 6.0, "robots": 9, "obstacles": 5},
    "kinematic": {"width": 26.0, "clear": 1.7, "min_goal_distance": 5.0, "robots": 9, "obstacles": 5},
    "sonar": {"width": 26.0, "clear": 2.0, "min_goal_distance": 4.0, "obstacles": 6},
}


def crowded(options: dict) -> dict:
    return SHORT[options["version"]] | {"cores": 3, "max_steps": 9} | options


@functools.cache
def cases(n: int, chosen: tuple) -> tuple[dict, np.ndarray, dict, np.ndarray, Counter]:
    """Random states [n, ...] of float32 numbers, actions, the original's steps, their margins [n], and what was met."""
    env = original.make(check_actions=False, **crowded(dict(chosen)))
    env.reset()
    p, rng, met = env.params, np.random.default_rng([n, *map(ord, str(chosen))]), Counter()
    before = states(p, n, rng)
    actions = rng.integers(p.choices, size=(n, p.robots))
    if p.action_kind == "continuous":
        actions = np.clip(rng.normal(size=(n, p.robots, 2)), -1, 1).astype(np.float32)
    rows, margins = [], []
    for j in range(n):
        original.set_state(env, {name: value[j] for name, value in before.items()})
        env.episode.environment = FIRST + j
        acting = env.episode.active
        inside = any(
            distance(boat.x, boat.y, *core[:2]) < p.core_radius for boat in acting for core in env.episode.cores
        )
        outcome = env.step({agent: actions[j, number(agent)] for agent in env.agents})
        nearest, found = decided(env.episode, acting)
        margins.append(min(nearest))
        rows.append(outcome_of(env, outcome) | state(env, outcome[0]))
        met += found + Counter(
            inside=inside,
            goal=rows[-1]["reached"].sum() > 0,
            robot=rows[-1]["hit_robot"].sum() > 0,
            obstacle=rows[-1]["hit_obstacle"].sum() > 0,
            limit=any(outcome[3].values()),
            inactive=not before["active"][j][: before["counts"][j, 0]].all(),
        )
    return before, actions, together(rows), np.array(margins), met


def states(p, n: int, rng) -> dict[str, np.ndarray]:
    """States in which much happens at once; what an episode lacks is 0."""
    A, C, rocks = p.robots, p.cores, p.obstacles
    side = rng.choice([10.0, 22.0, 45.0], size=(n, 1, 1))
    xy, turn = rng.uniform(0, side, (n, A, 2)), rng.uniform(0, 6.28, (n, A))
    far = np.where(rng.random((n, A)) < 0.2, rng.uniform(0, 4, (n, A)), rng.uniform(4, 40, (n, A)))
    angle, beside = rng.uniform(0, 6.28, (n, A)), rng.integers(A, size=(n, C + rocks))
    rest = rng.uniform(0, side, (n, C + rocks, 2))
    off = rng.uniform(0, 6.28, (n, C + rocks))
    away = np.where(
        np.arange(C + rocks) < C, rng.uniform(0, 1, off.shape), p.collision_radius + rng.uniform(0.5, 2, off.shape)
    )
    close = np.take_along_axis(xy, beside[..., None], axis=1) + (away * [np.cos(off), np.sin(off)]).transpose(1, 2, 0)
    rest = np.where(rng.random((n, C + rocks, 1)) < 0.4, close, rest)
    strength = p.core_radius * rng.uniform(p.edge_speed_low, p.edge_speed_high, (n, C, 1))
    counts = np.where(
        rng.random((n, 3)) < 0.6, (A, C, rocks), rng.integers((1, 0, 0), (A + 1, C + 1, rocks + 1), (n, 3))
    )
    found = {
        "pose": np.concatenate([xy, turn[..., None]], axis=2),
        "ground_velocity": rng.normal(size=(n, A, 2)),
        "goal": xy + (far * [np.cos(angle), np.sin(angle)]).transpose(1, 2, 0),
        "core": np.concatenate([rest[:, :C], rng.choice([-1.0, 1.0], (n, C, 1)), strength], axis=2),
        "obstacle": np.concatenate([rest[:, C:], rng.uniform(1, 1.5, (n, rocks, 1))], axis=2),
        "counts": counts,
        "asked": np.full(n, A),
        "blind": rng.integers(3, size=n) * (p.version == "kinematic"),
        "noise_id": rng.integers(5 * A, size=(n, A)),
        "returns": rng.normal(size=(n, A)),
        "steps": rng.integers(50, size=(n, A)),
        "energy": rng.uniform(0, 1000, (n, A)),
        "active": rng.random((n, A)) < 0.85,
        "elapsed": rng.choice([0, 3, p.limit - 1], size=n, p=[0.3, 0.55, 0.15]),
        "episode": rng.integers(5, size=n),
    } | dict.fromkeys(("reached", "hit_robot", "hit_obstacle"), np.zeros((n, A)))
    if p.version == "thruster":
        found["water_velocity"] = rng.uniform(-2.5, 2.5, (n, A, 2))
        found["yaw_rate"], found["reported_yaw_rate"] = rng.normal(scale=0.4, size=(2, n, A))
        some = rng.uniform(-500, 1000, (n, A, 2))
        found["thrust"] = np.where(rng.random((n, A, 2)) < 0.3, rng.choice([-500.0, 1000.0], (n, A, 2)), some)
    else:
        found["speed"] = np.clip(rng.uniform(-0.5, 2.5, (n, A)), 0, 2)
    found["active"][:, 0] = True
    sizes = {"core": counts[:, 1], "obstacle": counts[:, 2]}
    for name, rows in found.items():
        if rows.ndim > 1 and name != "counts":
            there = np.arange(rows.shape[1]) < sizes.get(name, counts[:, 0])[:, None]
            rows = rows * there.reshape(*there.shape, *[1] * (rows.ndim - 2))
        kind = state_shapes(p, A, C, rocks).get(name, (None, rows.dtype))[1]
        found[name] = rows.astype(np.float32).astype(float) if kind is np.float64 else rows.astype(kind)
    return found


def assert_steps_agree(n: int, dtype: str, **options) -> Counter:
    """One step of the port and of the original from each of n states."""
    before, actions, theirs, margins, met = cases(n, tuple(options.items()))
    env = envs.make("marine_navigation", n, first_index=FIRST, dtype=dtype, **crowded(options))
    env.reset()
    put = {name: torch.from_numpy(rows) for name, rows in before.items() if name in env.fields() | env.state()}
    env.set_state(put)
    told = shown(*env.step(torch.from_numpy(actions).to(env.actions.types[0])))
    near = margins < TOLERANCE[dtype]
    assert near.mean() <= (0.05 if dtype == "float32" else 0.0)
    assert_steps_same(fields(env) | told, theirs, dtype, near)
    return met


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("n", [90, pytest.param(2000, marks=pytest.mark.long)])
def test_a_step_from_any_state_is_the_originals(n, form, preset, dtype):
    calm = CALM if dtype == "float32" and form["version"] != "thruster" else {}
    met = assert_steps_agree(4 * n if form["version"] == "sonar" else n, dtype, preset=preset, **form, **calm)
    expected = {"goal", "obstacle", "limit", "inside"}
    if form["version"] != "sonar":
        expected |= {"robot", "inactive", "more neighbours than slots"}
    if form["version"] == "thruster":
        expected |= {"head-on", "crossing", "thrust at its limit"}
    assert expected <= {name for name, count in met.items() if count}


@pytest.mark.parametrize("version", ["kinematic", "thruster"])
def test_in_float32_a_place_is_rounded_once_a_step(version):
    """Not once a substep, which a beam that grazes an obstacle would multiply."""
    chosen = {"version": version, "robots": 1, "cores": 0, "obstacles": 0}
    env, one = envs.make("marine_navigation", 1, **chosen), original.make(**chosen)
    motion = {"water_velocity": [[1.2, -0.7]], "yaw_rate": [0.9]} if version == "thruster" else {"speed": [1.9]}
    for x, theta in itertools.product((40.3, 45.7, 33.1), (4.4, 5.1, 5.7)):
        put = {"pose": [[x, 54.2, theta]], "goal": [[5.0, 5.0]], **motion}
        put = {name: np.float32(rows) for name, rows in put.items()}
        for form in (env, one):
            form.reset()
        env.set_state({name: torch.from_numpy(rows[None]) for name, rows in put.items()})
        original.set_state(one, {name: rows.astype(float) for name, rows in put.items()})
        action = np.array([0.9, -0.4], np.float32) if version == "thruster" else np.int32(8)
        env.step(torch.from_numpy(np.asarray(action))[None, None])
        one.step({"robot_0": action})
        apart = np.abs(fields(env)["pose"][0, 0] - original.get_state(one)["pose"][0])
        half = np.spacing(np.float32([x, 54.2, theta])) / 2
        assert (apart < 1.2 * half).all(), (x, theta, apart / half)


SINGLE = [(switch, version) for switch in SWITCHES for version in OF_VERSIONS.get(switch, ["thruster", "kinematic"])]


@pytest.mark.parametrize(
    ("switch", "version"),
    [pytest.param(*one, marks=[SLOW] * (one[1] == "kinematic")) for one in SINGLE],
)
def test_a_single_switch_is_the_originals(switch, version):
    assert_steps_agree(30, "float64", version=version, **{switch: True})
    assert_lives_agree(2, 12, version=version, **{switch: True})


@pytest.mark.parametrize(
    "which", [{"stop_at_collision": True}, {"collision_radius": 1.5, "perception_range": 9.0}], ids=str
)
@pytest.mark.parametrize("version", ["thruster", pytest.param("kinematic", marks=SLOW)])
def test_a_step_under_other_parameters_is_the_originals(version, which):
    assert_steps_agree(30, "float64", version=version, **which)


# ---- episodes


def assert_lives_agree(B: int, steps: int, dtype: str = "float64", **options) -> Counter:
    """Batch and originals on the same numbers, through the ends of episodes."""
    options = crowded(options)
    env = envs.make("marine_navigation", B, seed=SEED, first_index=FIRST, dtype=dtype, **options)
    options |= {"scenario": options.pop("scenarios")} if "scenarios" in options else {}
    originals = [original.make(seed=SEED, index=FIRST + b, batch=B, check_actions=False, **options) for b in range(B)]
    (obs, info), met = env.reset(), Counter()
    first = [state(one, one.reset()[0]) for one in originals]
    assert_same(fields(env) | host({"shown obs": obs, "shown active": info["active"]}), together(first), dtype)
    for _ in range(steps):
        actions, theirs = env.random_actions()[0], []
        told = shown(*env.step(actions))
        for b, one in enumerate(originals):
            outcome = one.step({agent: actions[b, number(agent)].numpy() for agent in one.agents})
            found, seen = outcome_of(one, outcome), outcome[0]
            met += Counter(
                ends=not one.agents,
                alone=any(outcome[2].values()) and bool(one.agents),
                stopped=any(outcome[3].values()) and one.episode.elapsed < one.params.limit,
                hits=bool(found["told hit_robot"].any() or found["told hit_obstacle"].any()),
            )
            if not one.agents:
                seen, _ = one.reset()
            theirs.append(found | state(one, seen))
        assert_steps_same(fields(env) | told, together(theirs), dtype, begun=True)
    return met


@pytest.mark.parametrize(("B", "steps"), [(3, 30), pytest.param(24, 300, marks=pytest.mark.long)])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_episodes_on_the_same_numbers_are_the_originals(form, preset, B, steps):
    met = assert_lives_agree(B, steps, preset=preset, **form)
    assert met["ends"] > B and ((met["hits"] and met["alone"]) or form["version"] == "sonar")


@pytest.mark.parametrize("version", ["thruster", "kinematic", "sonar"])
def test_in_float32_episodes_are_the_originals_as_well(version):
    assert_lives_agree(3, 20, "float32", version=version, cores=0)


STAGES = Stages((0, 30, 60), (Setting(1, 0, 0, 5.0), Setting(3, 2, 1, 6.0), Setting(4, 0, 3, 7.0)))


@pytest.mark.parametrize(
    "options",
    [
        {"version": "thruster", "curriculum": STAGES},
        {
            "version": "kinematic",
            "curriculum": [(STAGES.settings[0], 1), (STAGES.settings[1], 2.5)],
            "preset": "original",
        },
        {"version": "kinematic", "stop_at_collision": True},
        {"version": "kinematic", "non_cooperative": 2},
        {"version": "thruster", "robots": 1, "cores": 0, "obstacles": 0},
    ],
    ids=str,
)
def test_episodes_of_every_kind_are_the_originals(options):
    met = assert_lives_agree(3, 40, **options)
    assert met["ends"] > 3 and (met["stopped"] > 0) == ("stop_at_collision" in options)


def test_episodes_of_a_file_are_the_originals(tmp_path):
    p = make_params("kinematic", "original")
    save(tmp_path / "many.npz", published(5, [(3, 4, 0, 30.0), (5, 2, 6, 20.0), (1, 0, 2, 30.0)], p))
    for preset in PRESETS:
        assert_lives_agree(4, 30, version="kinematic", preset=preset, scenarios=tmp_path / "many.npz")


def test_episodes_of_published_draws_are_the_originals():
    """They begin without the current, as drawn ones do, where that was left out."""
    many = published(5, [(3, 4, 0, 30.0), (5, 2, 6, 20.0)], make_params("kinematic", "original"))
    assert_lives_agree(2, 12, version="kinematic", preset="original", scenarios=many)


# ---- distribution


@pytest.mark.parametrize(
    "form", [FORMS[2], *(pytest.param(one, marks=SLOW) for one in (*FORMS[:2], FORMS[3]))], ids=str
)
@pytest.mark.parametrize("preset", ["corrected", pytest.param("original", marks=SLOW)])
def test_returns_and_lengths_are_distributed_alike(form, preset):
    """Of 60 episodes of the original and 2,000 of the port, on other numbers and under other random actions."""
    options = crowded(form | {"preset": preset})
    env, rng = envs.make("marine_navigation", 2000, seed=1, **options), np.random.default_rng(0)
    env.reset()
    ours, over = np.zeros((2, 2000)), np.zeros(2000, bool)
    while not over.all():
        *_, info = env.step(env.random_actions()[0])
        new = info["_final_obs"].numpy() & ~over
        whole = info["returns"].double().sum(dim=1), info["episode_length"].double()
        ours[:, new] = torch.stack(whole).numpy()[:, new]
        over |= new
    theirs = []
    for index in range(60):
        one = original.make(seed=2, index=index, **options)
        one.reset()
        while one.agents:
            one.step({agent: sampled(one.params, rng) for agent in one.agents})
        theirs.append([sum(boat.total for boat in one.episode.boats), one.episode.elapsed])
    for ours_of, theirs_of in zip(ours, np.transpose(theirs), strict=True):
        assert scipy.stats.ks_2samp(ours_of, theirs_of).pvalue > 1e-3
        assert scipy.stats.ttest_ind(ours_of, theirs_of, equal_var=False).pvalue > 1e-3 or np.ptp(theirs_of) == 0


def sampled(p, rng):
    return rng.uniform(-1, 1, 2) if p.action_kind == "continuous" else int(rng.integers(p.choices))
