"""The array form of the vehicular edge against the original, the port, and itself at other batch sizes."""

import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.vehicular_edge import arrays, original, scenario
from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, queue_shapes
from tests.envs.vehicular_edge.test_switches import tie
from tests.envs.vehicular_edge.worlds import switched

SMALL = {"vehicles": 20}  # 10 clients


def error(a, b, scale=1.0) -> float:
    """Largest difference relative to the larger of both and the scale; equal infinities agree."""
    a, b, scale = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float), scale)
    apart = np.abs(np.where(a == b, 0.0, a) - np.where(a == b, 0.0, b))
    return float(np.max(apart / np.maximum(np.maximum(np.abs(a), np.abs(b)), scale), initial=0.0, where=a != b))


def random_action(rng, params, t):
    """Raw actions [2, A]: uniform, at times with the cloud forced, or most shares zero."""
    action = rng.random((2, params.action_length), dtype=np.float32)
    if t % 5 == 3:
        action[0, rng.random(params.action_length) < 0.3] = 1.0
    if t % 7 == 2:
        action[1] *= rng.random(params.action_length) < 0.1
    return action


def largest_difference(drawn: scenario.Scenario, seed: int = 0, policy=random_action) -> float:
    """Over an episode that both forms play from reset to end; decisions must agree exactly."""
    params = drawn.params
    env, rng = original.VehicularEdge(drawn), np.random.default_rng(seed)
    env.reset(seed=0)
    tables = arrays.tables(np, [drawn])
    state, worst = arrays.initial(np, tables), 0.0
    for t in range(params.slots):
        action = policy(rng, params, t)
        _, rewards, _, truncated, _ = env.step(dict(zip(env.possible_agents, action, strict=True)))
        state, found = arrays.step(np, tables, state, action[None], t)
        record = env.record
        np.testing.assert_array_equal(found.decision.admitted[0], record["admitted"])
        np.testing.assert_array_equal(found.decision.dropped[0], record["dropped"])
        assert bool(found.truncated[0]) == truncated["offloading"]
        pairs = [(found.reward[0], rewards["offloading"]), (found.observation[0], env.observe())]
        pairs += [(found.cost[0], record["cost"]), (found.drift[0], record["drift"])]
        pairs += [(found.success[0], record["success"])]
        worst = max([worst, *(error(a, b) for a, b in pairs)])
        for name, after in original.get_state(env).items():
            # Virtual queues of the CPU are 0 but for the rounding of their flow, some GHz.
            largest = np.maximum(record["in"].get(name, 1.0), record["out"].get(name, 1.0))
            worst = max(worst, error(state[name][0], after, np.maximum(largest, 1e-6)))
        for way in ("in", "out", "dep"):
            for name, flow in record[way].items():
                worst = max(worst, error(found.flows[way][name][0], flow))
        for kind, spent in record["costs"].items():
            worst = max(worst, error(found.costs[kind][0], spent))
        rate = np.concatenate([record["rate_v2v"], record["rate_v2i"]], axis=1).T * 1e-6
        worst = max(worst, error(found.rate[0], rate, 1e-3))
    return worst


@pytest.mark.parametrize("traffic", ["dense", "sparse", "city"])
@pytest.mark.parametrize("preset", PRESETS)
def test_an_episode_is_the_originals(preset, traffic):
    assert largest_difference(scenario.draw(Params(**PRESETS[preset]), traffic)) <= 1e-10


@pytest.mark.parametrize("number", range(8))
def test_an_episode_of_any_mixture_of_switches_is_the_originals(number):
    rng = np.random.default_rng(number)
    mixture = {name: bool(rng.integers(2)) for name in SWITCHES}
    params = Params(**mixture, **SMALL, draw=("philox", "published")[number % 2])
    drawn = scenario.draw(params, ("dense", "sparse", "city", "arterial")[number % 4])
    assert largest_difference(drawn, number) <= 1e-10


@pytest.mark.parametrize("silent_ties", [True, False])
def test_equal_gains_interfere_as_in_the_original(silent_ties):
    def to_edge_0(rng, params, t):
        return np.full((2, params.action_length), 0.7, dtype=np.float32)

    assert largest_difference(switched(tie()[0], silent_ties=silent_ties), policy=to_edge_0) <= 1e-10


@pytest.fixture(scope="module", params=PRESETS)
def pool(request):
    params = Params(**PRESETS[request.param], **SMALL)
    return [scenario.draw(params, traffic) for traffic in ("dense", "sparse", "city")]


def test_an_environment_does_not_know_its_batch(pool):
    rng, params = np.random.default_rng(3), pool[0].params
    index, t = np.array([2, 0, 1, 0, 2]), np.array([0, 7, params.slots - 1, 30, 12])
    tables = arrays.tables(np, pool, index)
    state, action = arrays.initial(np, tables), rng.random((5, 2, params.action_length), dtype=np.float32)
    for name in queue_shapes(params):
        state[name] = rng.exponential(30.0, state[name].shape)
    after, found = arrays.step(np, tables, state, action, t)
    for b in range(5):
        alone = arrays.tables(np, pool, index[b : b + 1])
        one = {name: value[b : b + 1] for name, value in state.items()}
        one, alone = arrays.step(np, alone, one, action[b : b + 1], int(t[b]))
        assert error(alone.reward[0], found.reward[b]) <= 1e-13
        assert error(alone.observation[0], found.observation[b]) <= 1e-13
        assert max(error(one[name][0], after[name][b]) for name in after) <= 1e-13


def test_float32_is_the_same_to_its_own_precision(pool):
    rng, params = np.random.default_rng(4), pool[0].params
    single, double = (arrays.tables(np, pool, dtype=dtype) for dtype in ("float32", "float64"))
    coarse, fine = arrays.initial(np, single), arrays.initial(np, double)
    for t in range(5):
        action = rng.random((3, 2, params.action_length), dtype=np.float32)
        coarse, rough = arrays.step(np, single, coarse, action, t)
        fine, exact = arrays.step(np, double, fine, action, t)
        assert {value.dtype for value in coarse.values()} == {np.dtype("float32")}
        assert rough.reward.dtype == rough.observation.dtype == np.float32
        np.testing.assert_array_equal(rough.decision.admitted, exact.decision.admitted)
        assert error(rough.success, exact.success) <= 1e-6
        assert error(rough.rate, exact.rate) <= 1e-5
        assert max(error(coarse[name], fine[name]) for name in queue_shapes(params)) <= 1e-4


def test_the_integer_form_is_what_the_raw_action_decodes_to(pool):
    rng = np.random.default_rng(5)
    params, tables = pool[0].params, arrays.tables(np, pool)
    target = rng.integers(params.options, size=(3, params.clients, params.tasks))
    raw = rng.random((3, 2, params.action_length), dtype=np.float32)
    # The middle of an option's interval; the last option of the published decoding is the single point 1.
    steps = params.options - 1 if params.cloud_only_at_one else params.options
    raw[:, 0, : params.target_length] = np.minimum((target.reshape(3, -1) + 0.5) / steps, 1.0)
    decoded = {"target": target, "share": raw[:, 1, : params.share_length]}
    state = arrays.initial(np, tables)
    one, other = (arrays.step(np, tables, state, action, 3)[1] for action in (raw, decoded))
    np.testing.assert_array_equal(one.observation, other.observation)
    np.testing.assert_array_equal(one.reward, other.reward)


def test_numbers_that_are_none_read_zero_and_others_are_clipped(pool):
    params, tables = pool[0].params, arrays.tables(np, pool[:1])
    strange = np.zeros((1, 2, params.action_length), dtype=np.float32)
    plain = strange.copy()
    strange[..., 0::3], strange[..., 1::3], plain[..., 1::3] = np.nan, 7.0, 1.0
    strange[..., 2::3] = -2.0
    state = arrays.initial(np, tables)
    one, other = (arrays.step(np, tables, state, action, 3)[1] for action in (strange, plain))
    np.testing.assert_array_equal(one.observation, other.observation)
    assert np.isfinite(one.observation).all()


def test_the_array_form_and_the_port_live_the_same_episodes(pool):
    options = {"seed": 5, "scenarios": pool, "dtype": "float64"}
    form, port = arrays.ArraysEnv(6, **options), envs.make("vehicular_edge", 6, **options)
    np.testing.assert_allclose(form.reset(), port.reset(seed=5)[0][:, 0], rtol=1e-6, atol=1e-6)
    slots = form.params.slots
    for action in form.random_actions(2 * slots + 3):
        np.testing.assert_array_equal(action, port.random_actions()[0])
        found, (observation, reward, terminated, truncated, _) = form.step(action), port.step(action)
        np.testing.assert_allclose(found[0], observation[:, 0], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[1], reward[:, 0], rtol=1e-6)
        np.testing.assert_array_equal(found[2], terminated[:, 0])
        np.testing.assert_array_equal(found[3], truncated[:, 0])
    np.testing.assert_array_equal(form.tables.index, port.state()["scenario"])
    assert not (form.params.frozen_scenario and form.tables.index.any())
    for name, values in port.fields().items():
        np.testing.assert_allclose(form.state[name], values, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"scenarios": np.int64(2), **SMALL, "slots": 4, "components": 2},
        {"scenarios": 1, "preset": "original", "traffic": "dense", "scenario_seed": 264, **SMALL},
        {"preset": "original", "penalty_weight": 2.0},
    ],
    ids=["a number of NumPy's", "drawn", "given"],
)
def test_the_array_form_takes_what_the_port_takes(options):
    """The map that is drawn on where none is named, a preset beside given scenarios, and single parameters."""
    options = {"scenarios": [scenario.draw(Params(**SMALL), "city", index) for index in range(2)]} | options
    form, port = envs.make_arrays("vehicular_edge", 2, **options), envs.make("vehicular_edge", 2, **options)
    assert form.params == port.params
    for one, other in zip(form.scenarios, port.scenarios, strict=True):
        np.testing.assert_array_equal(one.xy_client, other.xy_client)
        assert one.name == other.name and one.calibration.load == other.calibration.load


REFUSED = [
    ({"num_envs": 0}, "num_envs=0 must be an integer from 1"),
    ({"seed": -1}, "seed=-1 must be an integer from 0"),
    ({"preset": "orignal"}, "preset='orignal' is unknown; Vehicular edge computing has 'physical', 'original'"),
    ({"edgs": 3}, "no parameter or option 'edgs'; did you mean 'edges'"),
    ({"dtype": "float16"}, "dtype='float16' must be one of 'float32', 'float64'"),
    ({"xp": "cuda"}, "xp='cuda' must be the module numpy, the module cupy, or 'auto'"),
    ({"xp": 5}, "xp=5 must be the module numpy, the module cupy, or 'auto'"),
    ({"scenarios": 0}, "scenarios=0 must be an integer from 1"),
    ({"scenario_seed": -1}, "scenario_seed=-1 must be an integer from 0"),
    ({"scenarios": []}, r"scenarios=\[\] must hold at least one"),
]


def test_what_is_not_allowed_is_said():
    one, other = (scenario.draw(Params(**SMALL, cap_local=cap), "dense") for cap in (3, 4))
    power = np.where(np.arange(one.params.clients) == 3, np.nan, one.client_power)
    nan = ({"scenarios": [one, replace(one, client_power=power)]}, r"scenarios\[1\]: client_power\[3\] is nan, must be")
    given = [
        ({"scenarios": one, "traffic": "city"}, "traffic='city' is for scenarios that are drawn"),
        ({"scenarios": [one], "scenario_seed": 0}, "scenario_seed=0 is for scenarios that are drawn"),
        ({"scenarios": [one], "edges": 3}, r"scenarios\[0\]: edges is 9, Params has 3"),
        nan,
    ]
    for options, said in (*REFUSED, *given):
        with pytest.raises(ValueError, match=said):
            arrays.ArraysEnv(**{"num_envs": 2} | options)
    for given, said in (
        ([[]], "scenarios must be at least one"),
        ([[one, other]], r"scenarios\[1\] has other Params than scenarios\[0\]"),
        ([[one], [0, 1]], "index must be a vector of numbers from 0 to 0"),
    ):
        with pytest.raises(ValueError, match=said):
            arrays.tables(np, *given)


class NoDriver(RuntimeError):
    pass


def cupy_with(devices):
    """A module `cupy` on NumPy's arrays whose runtime counts so many devices, or raises what is given."""
    module = types.ModuleType("cupy")
    vars(module).update({name: value for name, value in vars(np).items() if not name.startswith("__")})

    def count():
        if isinstance(devices, Exception):
            raise devices
        return devices

    module.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=count, CUDARuntimeError=NoDriver))
    return module


@pytest.mark.parametrize(
    ("cupy", "found"),
    [(cupy_with(1), "cupy"), (cupy_with(0), "numpy"), (cupy_with(NoDriver("too old")), "numpy"), (None, "numpy")],
    ids=["a device", "no device", "no driver", "not installed"],
)
def test_auto_takes_cupy_where_it_finds_a_device(monkeypatch, pool, cupy, found):
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # of None an import fails
    form, plain = (envs.make_arrays("vehicular_edge", 2, xp, scenarios=pool) for xp in ("auto", None))
    assert form.xp.__name__ == found and plain.xp is np
    for action, same in zip(form.random_actions(1), plain.random_actions(1), strict=True):
        np.testing.assert_array_equal(action, same)
        np.testing.assert_array_equal(form.step(action)[0], plain.step(action)[0])


@pytest.mark.gpu
def test_cupy_computes_what_numpy_computes(pool):
    cupy = pytest.importorskip("cupy")
    rng, params = np.random.default_rng(6), pool[0].params
    host, device = arrays.tables(np, pool), arrays.tables(cupy, pool)
    ours, theirs = arrays.initial(np, host), arrays.initial(cupy, device)
    for t in (0, 1, params.slots - 1):
        action = rng.random((3, 2, params.action_length), dtype=np.float32)
        ours, found = arrays.step(np, host, ours, action, t)
        theirs, there = arrays.step(cupy, device, theirs, cupy.asarray(action), t)
        assert error(found.reward, there.reward.get()) <= 1e-10
        assert error(found.observation, there.observation.get()) <= 1e-10
        assert max(error(ours[name], theirs[name].get()) for name in ours) <= 1e-10
    one, other = (arrays.ArraysEnv(2, xp, scenarios=pool) for xp in (np, cupy))
    for mine, yours in zip(one.random_actions(2), other.random_actions(2), strict=True):
        np.testing.assert_array_equal(mine, yours.get())
