"""The array form of the vehicular edge against the original, closed forms, and itself at other batch sizes."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep import envs
from lockstep.envs import noise
from lockstep.envs.vehicular_edge import arrays, original, scenario
from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, queue_shapes

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


def largest_difference(params: Params, traffic: str, seed: int = 0) -> float:
    """Over an episode that both forms play from reset to end; decisions must agree exactly."""
    drawn = scenario.draw(params, traffic)
    env, rng = original.VehicularEdge(drawn), np.random.default_rng(seed)
    env.reset(seed=0)
    tables = arrays.tables(np, [drawn])
    state, worst = arrays.initial(np, tables), 0.0
    for t in range(params.slots):
        action = random_action(rng, params, t)
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
    assert largest_difference(Params(**PRESETS[preset]), traffic) <= 1e-10


@pytest.mark.parametrize("number", range(8))
def test_an_episode_of_any_mixture_of_switches_is_the_originals(number):
    rng = np.random.default_rng(number)
    mixture = {name: bool(rng.integers(2)) for name in SWITCHES}
    params = Params(**mixture, **SMALL, draw=("philox", "published")[number % 2])
    assert largest_difference(params, ("dense", "sparse", "city", "arterial")[number % 4], number) <= 1e-10


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


# ---- radio: closed forms


def rates_at_one_receiver(distance_m, watt, index=None, gain=None, **switches):
    """Mbit/s of clients at the given distances from the only server, under fading 1."""
    gain = np.asarray(distance_m, float) ** -3.0 if gain is None else np.asarray(gain, float)
    params = Params(vehicles=len(gain) + 1, clients=len(gain), servers=1, edges=1, components=1, **switches)
    order = np.argsort(-gain, kind="stable")
    at_server = np.broadcast_to(gain[None, :, None], (params.slots, len(gain), 1))
    ranks = np.broadcast_to(order, (params.slots, 1, len(gain)))
    drawn = scenario.draw(params)
    for name, value in {"gain_v2v": at_server, "order_v2v": ranks}.items():
        drawn.__dict__[name] = value
    tables = arrays.tables(np, [drawn])
    members = np.zeros((1, 2, len(gain)), dtype=bool)
    members[0, 0, slice(None) if index is None else index] = True
    power = np.broadcast_to(np.asarray(watt, float), (1, 2, len(gain)))
    decision = SimpleNamespace(members=members, power=power)
    return arrays.noma(np, tables, decision, (np.array([0]), np.array([0])))[0, 0]


def test_rates_of_one_two_and_three_users_worked_by_hand():
    alone = 438.631378600, 378.631429094
    np.testing.assert_allclose(rates_at_one_receiver([50.0, 100.0], 0.5, [0]), [alone[0], 0.0], rtol=1e-11)
    np.testing.assert_allclose(rates_at_one_receiver([50.0, 100.0], 0.5, [1]), [0.0, alone[1]], rtol=1e-11)
    both = rates_at_one_receiver([50.0, 100.0], 0.5)
    np.testing.assert_allclose(both, [63.398448733, alone[1]], rtol=1e-10)
    published = rates_at_one_receiver([50.0, 100.0], 0.5, interference_in_mw=True)
    np.testing.assert_allclose(published, [0.229912776, alone[1]], rtol=1e-8)
    three = rates_at_one_receiver([50.0, 100.0, 80.0], 0.5)
    np.testing.assert_allclose(three, [37.820549923, alone[1], 31.244810317], rtol=1e-10)
    published = rates_at_one_receiver([50.0, 100.0, 80.0], 0.5, interference_in_mw=True)
    np.testing.assert_allclose(published, [0.078059381, alone[1], 0.056300312], rtol=1e-7)


def test_equal_gains_interfere_by_index_or_not_at_all():
    alone = rates_at_one_receiver([50.0, 50.0, 50.0], 0.5, [0])[0]
    silent = rates_at_one_receiver([50.0, 50.0, 50.0], 0.5, silent_ties=True)
    np.testing.assert_allclose(silent, [alone] * 3, rtol=1e-14)
    snr = 0.5 * 50.0**-3 / 1e-12
    ordered = [20.0 * np.log2(1.0 + snr / (1.0 + weaker * snr)) for weaker in (2, 1, 0)]
    np.testing.assert_allclose(rates_at_one_receiver([50.0, 50.0, 50.0], 0.5), ordered, rtol=1e-12)


@given(st.lists(st.tuples(st.floats(1e-9, 1e-3), st.floats(1e-6, 1.0)), min_size=1, max_size=8))
def test_successive_cancellation_loses_no_rate(users):
    gain, watt = np.array(users).T
    rates = rates_at_one_receiver(None, watt, gain=gain)
    together = 20.0 * np.log2(1.0 + (gain * watt).sum() / 1e-12)
    np.testing.assert_allclose(rates.sum(), together, rtol=1e-9)


# ---- admission and queues: worked by hand


def test_a_cap_admits_in_the_order_of_priority():
    params = Params(**SMALL)
    drawn = scenario.draw(params, "dense")
    tables, T, J = arrays.tables(np, [drawn]), params.slots, params.tasks
    cloud = {"target": np.full((1, params.clients, J), params.options - 1), "share": np.ones((1, params.share_length))}
    for t in (0, 17, T - 1):
        count = np.minimum(drawn.task_count[t], J)
        turn = np.roll(np.arange(params.clients), -(t * params.clients // T))
        room, expected = params.cap_cloud, np.zeros((params.clients, J), dtype=bool)
        for i in turn:
            taken = min(room, count[i])
            expected[i, :taken] = True
            room -= taken
        found = arrays.offloading(np, tables, cloud, (np.array([0]), np.array([t])))
        np.testing.assert_array_equal(found.admitted[0], expected)
        assert found.dropped[0].tolist() == [(drawn.task_count[t] - count).sum(), count.sum() - expected.sum(), 0]


@pytest.mark.parametrize(("switches", "arriving", "leaving"), [
    ({"rate_weighted_bits": True, "empty_places_idle": True}, 19.2, 97.5),
    ({"empty_places_idle": True}, 24.0, 97.5),
    ({}, 24.0, 117.5),
])  # fmt: skip
def test_local_queue_worked_by_hand(switches, arriving, leaving):
    # 30 GHz shared .5, .3, .2 among (1 MB, 200 cycles/bit), (2 MB, 400) and an empty place; 300 cycles/bit on average.
    params = Params(**SMALL, cap_local=3, **switches)
    J, T = params.tasks, params.slots
    only = np.zeros((T, params.clients, J))

    def column(*values):
        filled = only.copy()
        filled[:, 0, : len(values)] = values
        return filled

    count = np.zeros((T, params.clients), dtype=np.int32)
    count[:, 0] = 2
    drawn = replace(
        scenario.draw(params), client_cpu=np.full(params.clients, 30.0), mean_density=300.0, task_count=count,
        task_size=column(1.0, 2.0), task_cycles=column(200.0, 400.0), task_rate=column(0.8, 0.8),
        task_mean=column(1.0, 2.0),
    )  # fmt: skip
    tables = arrays.tables(np, [drawn])
    share = np.zeros((1, params.share_length))
    share[0, :3] = 0.5, 0.3, 0.2
    local = {"target": np.zeros((1, params.clients, J), dtype=int), "share": share}
    state = arrays.initial(np, tables)
    state["lc"][0, 0] = 100.0
    after, found = arrays.step(np, tables, state, local, 0)
    assert found.flows["in"]["lc"][0, 0] == pytest.approx(arriving, rel=1e-12)
    assert found.flows["out"]["lc"][0, 0] == pytest.approx(leaving, rel=1e-12)
    assert after["lc"][0, 0] == pytest.approx(max(100.0 - leaving, 0.0) + arriving, rel=1e-12)
    # Both tasks were to run where 100 Mbit wait; 0.8 tasks/s of 1.5 MB are 9.6 Mbit/s.
    assert after["delay"][0, 0] == pytest.approx(100.0 - 9.6, rel=1e-12)


# ---- episodes


def test_random_actions_are_the_documented_policys():
    env = envs.make_arrays("vehicular_edge", 3, seed=11, scenarios=1, **SMALL)
    A = env.params.action_length
    actions = list(env.random_actions(2))
    for b, g, k, clock in [(0, 0, 0, 0), (2, 1, A - 1, 0), (1, 0, 7, 1), (2, 1, 30, 1)]:
        element = g * A + k
        word = noise.philox((b, element // 4, clock, 2**31), 11)[element % 4]
        assert actions[clock][b, g, k] == np.float32(word >> 8) * np.float32(2.0**-24)


def test_episodes_follow_each_other_in_the_same_step():
    env = arrays.ArraysEnv(4, scenarios=3, traffic="sparse", dtype="float64", **SMALL)
    first, slots = env.reset(), env.params.slots
    for episode in range(1, 3):
        for t, action in enumerate(env.random_actions(slots), 1):
            observation, _, terminated, truncated = env.step(action)
            assert not terminated.any()
            assert truncated.all() == truncated.any() == (t == slots)
        chosen = [int(noise.philox((b, episode, 0, 0), 0)[0]) % 3 for b in range(4)]
        assert env.tables.index.tolist() == chosen
        assert not any(backlog.any() for backlog in env.state.values())
        fresh = [original.VehicularEdge(env.scenarios[number]).observe() for number in chosen]
        np.testing.assert_allclose(observation, fresh, rtol=1e-12)
    assert first.shape == (4, env.params.observation_length)


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
    for name, values in port.fields().items():
        np.testing.assert_allclose(form.state[name], values, rtol=1e-9, atol=1e-9, err_msg=name)


def test_running_scales_outlive_an_episode():
    env = arrays.ArraysEnv(2, scenarios=2, traffic="dense", preset="original", **SMALL)
    for action in env.random_actions(env.params.slots):
        env.step(action)
    assert not env.state["lc"].any()
    assert (env.state["max_lc"] > 0.0).all()
    assert not env.tables.index.any()  # one frozen scenario


def test_tables_say_what_does_not_fit():
    one, other = (scenario.draw(Params(**SMALL, cap_local=cap), "dense") for cap in (3, 4))
    with pytest.raises(ValueError, match="scenarios must be at least one"):
        arrays.tables(np, [])
    with pytest.raises(ValueError, match=r"scenarios\[1\] has other Params than scenarios\[0\]"):
        arrays.tables(np, [one, other])
    with pytest.raises(ValueError, match="index must be a vector of numbers from 0 to 0"):
        arrays.tables(np, [one], [0, 1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_envs": 0}, "num_envs=0 must be an integer from 1"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"preset": "orignal"}, "preset='orignal' must be one of 'physical', 'original'"),
        ({"dtype": "float16"}, "dtype='float16' must be one of 'float32', 'float64'"),
        ({"scenarios": 0}, "count=0 must be an integer from 1"),
        ({"scenarios": []}, r"scenarios=\[\] must hold at least one"),
        ({"scenarios": ["one"], "edges": 3}, "scenarios bring their own parameters; edges cannot be given"),
    ],
)
def test_environments_of_arrays_say_what_is_not_allowed(options, said):
    with pytest.raises(ValueError, match=said):
        arrays.ArraysEnv(**{"num_envs": 2} | options)


def test_a_scenario_with_a_number_without_meaning_is_not_packed():
    drawn = scenario.draw(Params(**SMALL), "dense")
    power = drawn.client_power.copy()
    power[3] = np.nan
    with pytest.raises(ValueError, match=r"scenarios\[1\]: client_power\[3\] is nan, must be finite"):
        arrays.ArraysEnv(2, scenarios=[drawn, replace(drawn, client_power=power)])


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
