"""Policies: hand-worked slots, and the one-slot search against full evaluation by the array form."""

import contextlib
import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs import noise
from lockstep.envs.vehicular_edge import arrays, policies, turn_by_turn
from lockstep.envs.vehicular_edge.params import FAMILIES, Params, state_shapes
from lockstep.envs.vehicular_edge.policies import Noise, View, view_of_original, view_of_port, views
from lockstep.envs.vehicular_edge.policies.objective import FULL, Plan, linear, on_host, quadratic
from lockstep.envs.vehicular_edge.policies.search import combinations
from lockstep.envs.vehicular_edge.scenario import draw
from lockstep.envs.vehicular_edge.slot.tables import tables

TINY = Params(
    slots=4, vehicles=3, clients=2, servers=1, edges=2, types=10, tasks=4, server_choices=1, components=1,
    cap_local=1, cap_server=1, cap_edge=1, cap_cloud=2, edge_range_low_m=100, edge_range_high_m=100,
)  # fmt: skip
ELSEWHERE = [5000.0, 5000.0]


def tiny(counts=(3, 0), client_xy=((0, 0), (60, 0)), edge_xy=((0, 40), (500, 0)), server_xy=(40, 0), **params):
    """Two clients of 500 mW, a server, two edges, the same in every slot; unit fading, unit scales."""
    made = draw(dataclasses.replace(TINY, **params), "city")
    slots, tasks = made.params.slots, made.params.tasks
    exists = np.arange(tasks) < np.array(counts)[:, None]
    still = {"xy_client": client_xy, "xy_server": [server_xy]}
    return dataclasses.replace(
        made,
        **{name: np.broadcast_to(np.array(xy, float), getattr(made, name).shape) for name, xy in still.items()},
        edge_xy=np.array(edge_xy, float),
        client_power=np.full(2, 500.0),
        task_count=np.broadcast_to(np.array(counts, np.int32), (slots, 2)),
        task_size=np.broadcast_to(exists * np.arange(1.0, tasks + 1), (slots, 2, tasks)),
        task_cycles=np.broadcast_to(exists * 200.0, (slots, 2, tasks)),
        fading_v2v=np.ones_like(made.fading_v2v),
        fading_v2i=np.ones_like(made.fading_v2i),
    )


def view_of(scenario, t=0, batch=1, **queues):
    """A view of `batch` equal environments with empty queues, but for those given in Mbit."""
    packed = tables(np, [scenario])
    filled = {name: np.zeros((batch, *shape)) for name, shape in state_shapes(scenario.params).items()}
    for name, values in queues.items():
        filled[name] = np.broadcast_to(np.asarray(values, float), filled[name].shape)
    return View(np, packed, np.zeros(batch, dtype=int), np.full(batch, t), filled)


def still(batch=1, seed=0):
    return Noise(seed, np.arange(batch), np.zeros(batch, dtype=int))


def rewards(view, target, share):
    """The reward of each of n actions [n, ...] in the one state of the view, by the array form."""
    n = len(target)
    packed = dataclasses.replace(view.tables, index=np.zeros(n, dtype=int))
    state = {name: np.repeat(queue, n, axis=0) for name, queue in view.queues.items()}
    return arrays.step(np, packed, state, {"target": target, "share": share}, int(view.t[0]))[1].reward


def reward(view, action):
    return rewards(view, action["target"], action["share"])[0]


def calibrated(scenario):
    """The scenario with scales about as large as what the random policy reaches, so that every term counts."""
    load = 8 * scenario.task_size.sum(axis=(1, 2)).mean()
    scales = dataclasses.replace(scenario.calibration, backlog=np.full(8, 500.0), load=load, cost_i2i=2e4, cost_i2c=2e5)
    return dataclasses.replace(scenario, calibration=scales)


def loaded(scenario, t, seed, scale=200.0):
    """A view whose queues hold random backlogs; a fifth of them are empty."""
    random = np.random.default_rng(seed)
    shapes = state_shapes(scenario.params)
    filled = {name: random.exponential(scale, shape) * (random.random(shape) < 0.8) for name, shape in shapes.items()}
    filled["i2i"] = filled["i2i"] * ~np.eye(scenario.params.edges, dtype=bool)
    return view_of(scenario, t, **filled)


# ---- the simple policies -------------------------------------------------------------------------------------------


def test_local_keeps_every_task_and_shares_equally():
    found = policies.local(view_of(tiny()), still())
    assert not found["target"].any()
    assert (found["share"] == 1.0).all()
    assert found["share"].shape == (1, TINY.share_length)


def test_nearest_edge_takes_the_access_edge_and_without_one_the_client():
    # Client 0 stands under edge 0, client 1 under none: with one server choice edge 0 is option 2.
    scenario = tiny(client_xy=((0, 0), ELSEWHERE))
    assert policies.nearest_edge(view_of(scenario), still())["target"].tolist() == [[[2, 2, 2, 2], [0, 0, 0, 0]]]


def test_random_is_the_decoded_random_policy_of_the_batch():
    view, key = view_of(tiny(), batch=3), Noise(7, np.array([0, 1, 5]), np.array([2, 2, 4]))
    found = policies.random(view, key)
    A = TINY.action_length
    for b, (environment, clock) in enumerate(((0, 2), (1, 2), (5, 4))):
        for element in (0, 3, 5):  # of agent 0: floor(5 u) of 5 options
            word = noise.philox((environment, element // 4, clock, 1 << 31), 7)[element % 4]
            assert found["target"][b].ravel()[element] == (int(word) >> 8) * 5 >> 24
        element = A + 2  # the third of agent 1
        word = noise.philox((environment, element // 4, clock, 1 << 31), 7)[element % 4]
        assert found["share"][b, 2] == np.float32((int(word) >> 8) * 2.0**-24)


def test_random_never_chooses_the_cloud_where_it_takes_a_one():
    batch = 2000
    view = view_of(tiny(cloud_only_at_one=True), batch=batch)
    assert policies.random(view, still(batch))["target"].max() == TINY.options - 2
    assert policies.random(view_of(tiny(), batch=batch), still(batch))["target"].max() == TINY.options - 1


def test_rounding_draws_each_option_as_often_as_its_weight_says():
    batch, options = 4000, TINY.options
    view, key = view_of(tiny(), batch=batch), still(batch)
    target = policies.rounding(view, key)["target"].reshape(batch, -1)  # [batch, 8 tasks]
    drawn = key.uniform(np, target.shape[1] * (options + 1)).reshape(batch, -1, options + 1)
    chance = drawn[..., :options] / drawn[..., :options].sum(axis=-1, keepdims=True)
    chosen = target[..., None] == np.arange(options)
    deviation = (chosen - chance).sum(axis=(0, 1)) / np.sqrt((chance * (1 - chance)).sum(axis=(0, 1)))
    assert (np.abs(deviation) < 4).all()
    shares = chosen.mean(axis=(0, 1))  # all options are alike, so each is drawn one time in five
    assert np.abs(shares - 1 / options).max() < 4 * np.sqrt(0.16 / target.size)
    # A draw that ignored the weights would not prefer the heavy options.
    assert (chosen * chance).sum() / target.size > 1.2 / options


def test_the_same_noise_gives_the_same_action_whatever_the_batch():
    scenario = tiny(counts=(2, 3))
    key = Noise(3, np.arange(5), np.full(5, 6))
    one = Noise(3, np.array([4]), np.array([6]))
    for name in ("random", "rounding", "greedy"):
        many = policies.POLICIES[name](view_of(scenario, batch=5), key)
        alone = policies.POLICIES[name](view_of(scenario), one)
        assert (many["target"][4] == alone["target"][0]).all()
        assert (many["share"][4] == alone["share"][0]).all()


# ---- greedy --------------------------------------------------------------------------------------------------------


def test_greedy_goes_local_first_and_then_where_link_and_queues_are_best_while_there_is_room():
    # Server and edge 0 stand 40 m from client 0: both links are 1. Empty queues: edges 3, server 2, local and cloud 1.
    target = policies.greedy(view_of(tiny(counts=(4, 0))), still())["target"]
    assert target[0, 0].tolist() == [0, 2, 3, 1]  # local, edge 0, edge 1 over the wire, server: each full with one task


def test_greedy_avoids_queues():
    # I2I and EC of edge 0 full: 1 is left of 3; the server has 2.
    full = {"ec": [1e9, 0.0], "i2i": [[0, 0], [1e9, 0]]}
    target = policies.greedy(view_of(tiny(counts=(4, 0)), **full), still())["target"]
    assert target[0, 0].tolist() == [0, 3, 1, 2]


def test_greedy_drops_what_has_no_room_and_needs_an_access_edge_for_the_wire():
    scenario = tiny(counts=(3, 3), client_xy=(ELSEWHERE, ELSEWHERE))
    found = policies.greedy(view_of(scenario), still())
    assert not found["target"].any()  # one task each stays, nothing else can be reached
    assert (found["share"].reshape(-1)[[0, 3]] > 0).all()


def test_greedy_shares_cpu_by_work_times_size_and_power_by_the_mean_link():
    # Edge 0 has room for two tasks; client 1 has no server in range and finds the edge full.
    scenario = tiny(counts=(3, 2), client_xy=((0, 0), (0, -40)), cap_edge=2, v2v_range_m=45)
    found = policies.greedy(view_of(scenario), still())
    assert found["target"][0].tolist() == [[0, 2, 2, 0], [0, 3, 0, 0]]
    work = np.array([1.0, 2, 3]) * 8e6 * 200 * np.array([1.0, 2, 3])
    share = found["share"][0]
    assert share[0] == pytest.approx(work[0])
    edge_0 = 2 * 3 + 1  # after two clients of 1 + 2 weights and one server of 1
    assert share[edge_0 : edge_0 + 2] == pytest.approx(work[1:])
    assert share[1:3].tolist() == [1.0, 1.0]  # server and edge at 40 m: equal links
    assert share[4:6].tolist() == [0.0, 1.0]  # no server: all power to V2I


def test_greedy_serves_in_the_order_of_admission():
    # At t = 2 of 4 slots client 1 comes first. Of equal edges the first one; then the server has 2, the cloud 1.
    scenario = tiny(counts=(3, 3))
    for t, expected in ((0, [[0, 2, 3, 0], [0, 1, 4, 0]]), (2, [[0, 1, 4, 0], [0, 2, 3, 0]])):
        assert policies.greedy(view_of(scenario, t=t), still())["target"][0].tolist() == expected


# ---- the one-slot search -------------------------------------------------------------------------------------------


def actions_of_grid(params):
    """All shares with CPU blocks zero or at a vertex and powers on the grid of eleven, [n, A1]."""
    clients = [[[*cpu, p, 10 - p] for p in range(11)] for cpu in ([0.0] * params.cap_local, *np.eye(params.cap_local))]
    pairs = list(itertools.chain.from_iterable(clients))
    nodes = [
        np.concatenate([np.zeros((1, cap)), np.eye(cap)])
        for cap in [params.cap_server] * params.servers + [params.cap_edge] * params.edges + [params.cap_cloud]
    ]
    rows = itertools.product(*[pairs] * params.clients, *nodes)
    return np.array([np.concatenate(row) for row in rows], dtype=np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_enumeration_is_what_brute_force_finds(seed):
    scenario = calibrated(tiny(counts=((1, 1), (2, 0), (1, 1))[seed], edge_xy=((0, 40), (50, -50)), cap_cloud=1))
    view = loaded(scenario, t=1, seed=seed)
    shares = actions_of_grid(scenario.params)
    best = -np.inf
    tasks = [(i, j) for i, j in itertools.product(range(2), range(4)) if j < view.tasks[0, i]]
    for options in itertools.product(range(scenario.params.options), repeat=len(tasks)):
        target = np.zeros((2, 4), dtype=np.int32)
        for task, option in zip(tasks, options, strict=True):
            target[task] = option
        best = max(best, rewards(view, np.broadcast_to(target, (len(shares), 2, 4)), shares).max())
    found = reward(view, policies.drift_plus_penalty(view, still()))
    assert found == pytest.approx(best, abs=1e-6)  # shares are float32


@pytest.mark.parametrize("pricing", [linear, quadratic])
def test_the_value_of_a_slot_follows_every_move_as_the_reward_does(pricing):
    """Differences of values are differences of rewards, or of those with a drift of squared backlogs, by hand."""
    scenario = calibrated(draw(Params(cap_local=2, cap_server=2, cap_edge=6, cap_cloud=8), "dense"))
    view = loaded(scenario, t=20, seed=5)
    plan = Plan(view, 0, pricing)
    random = np.random.default_rng(1)
    values, found = [], []
    for _ in range(12):
        for _ in range(60):
            task = int(random.integers(len(plan.tasks)))
            plan.move(task, int(random.integers(len(plan.options[plan.client[task]]))))
            plan.set_power(int(random.integers(44)), int(random.integers(11)))
        target, share = plan.action(view.tables.numbering)
        values.append(plan.value)
        found.append(full_value(view, target, share, squared=pricing is quadratic))
    assert np.ptp(found) > 1e-3
    assert np.diff(values) == pytest.approx(np.diff(found), abs=1e-7)


def full_value(view, target, share, squared):
    """The reward by the array form; squared: with that of half the squared backlogs in place of its drift."""
    Q = view.queues
    out = arrays.step(np, view.tables, dict(Q), {"target": target[None], "share": share[None]}, int(view.t[0]))[1]
    if not squared:
        return out.reward[0]
    change = sum((Q[name] * (out.flows["in"][name] - out.flows["dep"][name])).sum() for name in FAMILIES)
    return 0.5 * out.success[0] - 0.35 * out.cost[0] - 0.5 * change / FULL / view.tables.load[0]


@pytest.mark.parametrize("traffic", ["city", "dense"])
def test_drift_plus_penalty_earns_most_in_a_slot(traffic):
    scenario = calibrated(draw(Params(), traffic))
    for t, seed in ((0, 0), (17, 1), (49, 2)):
        view = loaded(scenario, t, seed)
        found = {name: reward(view, policy(view, still())) for name, policy in policies.POLICIES.items()}
        del found["backpressure"]  # the same search for another aim, which may end in another local optimum
        assert max(found, key=found.get) == "drift_plus_penalty", found


def test_the_enumerated_best_action_of_three_vehicles_sends():
    """Bits that wait for a radio leave it, in every one of these slots; earlier no best action of a slot ever sent."""
    scenario = calibrated(tiny(counts=(2, 0), edge_xy=((0, 40), (50, -50))))
    for seed in range(4):
        view = loaded(scenario, t=1, seed=seed)
        assert combinations(Plan(view, 0)) == 5**2  # all are tried
        action = policies.drift_plus_penalty(view, still())
        flows = arrays.step(np, view.tables, dict(view.queues), action, 1)[1].flows
        assert flows["dep"]["v2v"].sum() + flows["dep"]["v2i"].sum() > 0


def test_the_search_refuses_a_reward_that_is_not_the_physical_one():
    with pytest.raises(ValueError, match=r"unsigned_drift=True \(Q10\)"):
        policies.drift_plus_penalty(view_of(tiny(unsigned_drift=True)), still())


# ---- views ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["physical", "original"])
def test_original_and_port_show_a_policy_the_same(preset):
    """Three slots of random actions; then both forms are in states that differ by rounding alone."""
    made = envs.make_original("vehicular_edge", preset=preset, vehicles=12, slots=10, indexed=True)
    ported = envs.make("vehicular_edge", 3, scenarios=made.scenarios, dtype="float64", preset=preset)
    made.reset(seed=0)
    ported.reset(seed=0)
    for t in range(3):
        one, three = view_of_original(made), view_of_port(ported)
        assert three.t.tolist() == [t] * 3
        for name in FAMILIES:
            assert np.allclose(three.scaled(name), np.repeat(one.scaled(name), 3, axis=0), rtol=1e-9)
        key = Noise(5, np.zeros(3, dtype=int), np.full(3, t))
        for name in ("local", "nearest_edge", "random", "rounding", "greedy"):
            alone = policies.POLICIES[name](one, Noise(5, np.array([0]), np.array([t])))
            many = policies.POLICIES[name](three, key)
            assert (many["target"] == alone["target"]).all()
            assert np.allclose(many["share"], alone["share"], rtol=1e-6)
        action = policies.rounding(one, Noise(5, np.array([0]), np.array([t])))
        made.step_decoded(action["target"][0], action["share"][0])
        ported.step({name: torch.as_tensor(np.repeat(array, 3, axis=0)) for name, array in action.items()})


def test_what_cupy_does_is_done_on_the_environments_device_and_torchs_current_stream_of_it(monkeypatch):
    """Elsewhere it would lie on another GPU, or be read before it is written."""
    entered = []

    def noting(name):
        @contextlib.contextmanager
        def enter(value):
            entered.append((name, value))
            yield
            entered.append((name, "left"))

        return enter

    cuda = SimpleNamespace(Device=noting("device"), Stream=SimpleNamespace(from_external=noting("stream")))
    monkeypatch.setattr(views.compile, "cupy", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"torch's of {device}")
    with views.on_stream(torch.device("cuda", 1)):
        assert entered == [("device", 1), ("stream", "torch's of cuda:1")]
    assert entered[2:] == [("stream", "left"), ("device", "left")]
    entered.clear()
    with views.on_stream(torch.device("cpu")):
        assert not entered


def test_views_turns_and_policies_are_made_on_the_stream_of_their_device(monkeypatch):
    inside = []

    @contextlib.contextmanager
    def on_stream(device):
        inside.append(device)
        yield

    env = envs.make("vehicular_edge", 2, vehicles=12, slots=10, preset="physical")
    env.reset(seed=0)
    for module in (views, turn_by_turn):
        monkeypatch.setattr(module, "on_stream", on_stream)
    view, numbers = view_of_port(env), np.arange(2)
    assert view.device == env.device and inside == [env.device]
    for name in ("local", "nearest_edge", "random", "rounding", "greedy", "drift_plus_penalty", "backpressure"):
        inside.clear()
        policies.POLICIES[name](view, Noise(1, numbers, numbers))
        assert inside[:1] == [env.device], name
    inside.clear()
    turns = turn_by_turn.TurnByTurn(env)
    assert len(inside) == 3  # tables, a slot's turns, and the view in them
    for _ in range(env.params.clients):
        turns.step(torch.zeros(2, env.params.tasks + 1, dtype=torch.int64))
    assert len(inside) == 6  # the slot's action, and the next one's turns


@pytest.mark.gpu
def test_policies_do_the_same_on_the_gpu():
    batches = [
        envs.make("vehicular_edge", 4, device=device, scenarios=2, vehicles=12, slots=10, dtype="float64", seed=1)
        for device in ("cpu", "cuda")
    ]
    for env in batches:
        env.reset(seed=1)
    for t in range(5):
        for name, policy in policies.POLICIES.items():
            found = []
            for env in batches:
                view = view_of_port(env)
                numbers = view.xp.arange(4)
                found.append({k: on_host(v) for k, v in policy(view, Noise(1, numbers, numbers * 0 + t)).items()})
            assert (found[0]["target"] == found[1]["target"]).all(), name
            assert np.allclose(found[0]["share"], found[1]["share"], rtol=1e-5), name
        for env in batches:
            env.step({key: torch.as_tensor(array, device=env.device) for key, array in found[0].items()})
