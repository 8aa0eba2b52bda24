"""The port is its original: over episodes on the same numbers, from any state, and where many places tie.

Costs, walks, windows, flags and observations agree exactly, rewards to the last bit of float32.
"""

import numpy as np
import pytest
import torch

from lockstep.envs.vehicle_routing import original
from lockstep.envs.vehicle_routing.checker import check
from lockstep.envs.vehicle_routing.oracles import make_oracle, problem_of
from lockstep.envs.vehicle_routing.scenario import Scenario
from lockstep.envs.vehicle_routing.windows import SHIFTS, shifted
from tests.envs.vehicle_routing.worlds import batch, make, random_rows, random_travel

SLOW = pytest.mark.slow
SEED, FIRST = 2**32 + 5, 40  # of the noise, and number of the first environment
NEAREST, PUBLISHED = {"oracle": "greedy:nearest"}, {"oracle": "greedy:nearest", "lookahead_mask": True}
CRAMPED = {"requests": 9, "capacity": 2, "preshift": False}
FEW = {"requests": 12, "fleet_size": 1}
TOLD = {"answered": "answered", "accepted": "accepted", "shift_min": "shift", "cost_ticks": "cost"}
TOLD |= {"vehicles": "vehicles", "failed": "failed"}

# Every preset, switch, mode, fleet, reward and oracle of the kernel.
FORMS = {
    "corrected": {"requests": 12},
    "original": {"requests": 12, "preset": "original"},
    "original, greedy": {"requests": 9, "preset": "original", **NEAREST},
    "cramped": CRAMPED,
    "nearest": CRAMPED | NEAREST,
    "soonest, max_ride": {"requests": 9, "oracle": "greedy:soonest", "max_ride": 200.0},
    "mixed, twin": CRAMPED | {"oracle": "greedy", "reward": "twin"},
    "twin": CRAMPED | {"reward": "twin"},
    "percent": CRAMPED | {"reward": "percent", "shift_penalty": 0.1},
    "lookahead_mask": CRAMPED | PUBLISHED,
    "one_obligation": CRAMPED | PUBLISHED | {"one_obligation": True},
    "early_end": CRAMPED | PUBLISHED | {"early_end": True},
    "one_obligation, early_end": CRAMPED | PUBLISHED | {"one_obligation": True, "early_end": True},
    "lookahead_mask, max_ride": {"requests": 9, "max_ride": 200.0, **PUBLISHED},
    "threshold_acceptance": {"requests": 6, "threshold_acceptance": True},
    "raw_observation": {"requests": 6, "raw_observation": True},
    "shrinking_windows": {"requests": 6, "shrinking_windows": True, "horizon": 1220.0},
    "stuck_after_failure": FEW | {"fleet": "hard", "stuck_after_failure": True},
    "soft": FEW | {"fleet": "soft"},
    "hard": FEW | {"fleet": "hard", "failure_reward": -77.0},
    "hard, twin": FEW | {"fleet": "hard", "reward": "twin", "stuck_after_failure": True},
    "soft, greedy": FEW | {"fleet": "soft", **NEAREST},
    "hard, greedy": FEW | {"fleet": "hard", **NEAREST},
    "vrptw": CRAMPED | {"mode": "vrptw"},
    "vrptw, hard": FEW | {"mode": "vrptw", "capacity": 3, "fleet": "hard"},
    "vrptw, greedy": CRAMPED | {"mode": "vrptw", "oracle": "greedy:mixed"},
    "vrptw, published": CRAMPED | {"mode": "vrptw", "shrinking_windows": True, **PUBLISHED},
    "brute": {"requests": 3, "capacity": 1, "oracle": "brute", "reward": "twin"},
    "brute, hard": {"requests": 3, "capacity": 1, "oracle": "brute", "fleet": "hard", "fleet_size": 1},
}
FORMS = {form: {"oracle": "insertion"} | options for form, options in FORMS.items()}


def assert_same_state(env, ones):
    for b, one in enumerate(ones):
        state = original.get_state(one)
        for name, rows in env.fields().items():
            if name == "returns":
                np.testing.assert_allclose(rows[b].item(), state[name], rtol=1e-5, atol=1e-4)
            else:
                np.testing.assert_array_equal(rows[b].numpy(), state[name], err_msg=f"{name} of {b}")


def assert_same_step(env, ones, action, outputs) -> int:
    """One step of the originals, against the batch's outputs; those that have ended begin anew. How many did."""
    obs, reward, terminated, truncated, info = outputs
    assert not truncated.any()
    for b, one in enumerate(ones):
        seen, gained, over, _, told = one.step(int(action[b]))
        assert (reward[b].item(), terminated[b].item()) == (float(np.float32(gained)), over)
        for name, key in TOLD.items():
            assert info[name][b].item() == told[key], (name, b)
        walk = np.zeros(env.params.walk_length, int)
        walk[: len(told["walk"])] = told["walk"]
        np.testing.assert_array_equal(info["walk"][b].numpy(), walk)
        last = info["final_obs"] if over else obs
        np.testing.assert_array_equal(last[b].numpy(), seen.ravel())
        if over:
            seen, told = one.reset()
            np.testing.assert_array_equal(obs[b].numpy(), seen.ravel())
        assert env.traveller[b].item() == told["traveller"]
    assert_same_state(env, ones)
    return int(terminated.sum())


def pair(B: int, **options):
    """A batch and as many originals, all at the first states of their first episodes."""
    env = batch(B, seed=SEED, first_index=FIRST, **options)
    ones = [make(seed=SEED, index=FIRST + b, **options) for b in range(B)]
    obs, _ = env.reset(key=SEED)
    for one, row in zip(ones, obs, strict=True):
        np.testing.assert_array_equal(one.reset(key=SEED)[0].ravel(), row.numpy())
    assert_same_state(env, ones)
    return env, ones


def assert_lives_agree(form: str, B: int = 3, episodes: int = 2):
    env, ones = pair(B, **FORMS[form])
    ends = 0
    while ends < episodes * B:
        action = env.random_actions()[0]
        ends += assert_same_step(env, ones, action, env.step(action))


@pytest.mark.parametrize("form", FORMS)
def test_episodes_on_the_same_numbers_are_the_originals(form):
    assert_lives_agree(form)


@pytest.mark.long
@pytest.mark.parametrize("form", [form for form in FORMS if "brute" not in form])
def test_long_episodes_on_the_same_numbers_are_the_originals(form, monkeypatch):
    options = {name: value for name, value in FORMS[form].items() if name not in ("requests", "capacity", "preshift")}
    monkeypatch.setitem(FORMS, form, options)
    assert_lives_agree(form, B=6, episodes=3)


@pytest.mark.parametrize("form", ["hard", "stuck_after_failure", "hard, twin", "hard, greedy", "vrptw, hard"])
def test_some_steps_of_the_fleets_above_fail_and_some_do_not(form):
    env = batch(32, seed=SEED, **FORMS[form])
    env.reset()
    failed = torch.stack([env.step(env.random_actions()[0])[4]["failed"].clone() for _ in range(12)])
    assert failed.any() and not failed.all()


# ---- from any state


def tied(rng, count: int, requests: int = 8, kind: int = 2, tight: bool = False, **more) -> Scenario:
    """So many instances with all times on a grid of five minutes; each request can be served alone, but just."""
    travel = random_travel(rng)
    rows = np.array([random_rows(rng, count, travel, tight=tight) for _ in range(requests)])
    rows[..., [1, 2, 4, 5]] += 600  # for shifts
    zone, zone2, start = rows[..., 0], rows[..., 3], np.maximum(rows[..., 1], travel[0, rows[..., 0]])
    home = np.maximum(start + travel[zone, zone2], rows[..., 4] + (300 if kind == 3 else 0)) + travel[zone2, 0]
    given = {
        "capacity": 2,
        "type": np.full(requests, kind),
        "fixed": True,
        "horizon": int(max(home.max(), rows[..., 5].max())),
    } | more
    return Scenario(travel=travel, trip=rows, **given)


def assert_oracle_agrees(scenario: Scenario, B: int, action: int = 12, other: str | None = None, **options):
    """Every answer against the original's, which shares no step with the port.

    Args:
        action: of everyone.
        other: an oracle whose walks take the place of the first three answers.
    """
    env = batch(B, scenario=scenario, **options)
    made_by = batch(B, scenario=scenario, **options | {"oracle": other or env.oracle})
    p, oracle = env.params, make_oracle(env.oracle, env.params, scenario.travel)
    for one in (env, made_by):
        one.reset()
    for t in range(p.requests):
        if t == 3:
            env.set_state({name: made_by.fields()[name] for name in ("cost", "walk")})
        before = {name: rows.clone().numpy() for name, rows in env.fields().items()}
        *_, info = env.step(torch.full((B,), action, dtype=torch.int32))
        made_by.step(torch.full((B,), action, dtype=torch.int32))
        for b in range(B):
            who = [*before["traveller"][b, :t], before["order"][b, t]]
            places = [(i, before["trip"][b, i]) for i in who]
            rows = shifted(before["offered"][b, who], SHIFTS[action] * (scenario.type[who] == 3)[:, None], p).tolist()
            service, demand = (
                [array[place].tolist() for place in places] for array in (scenario.service, scenario.demand)
            )
            problem = problem_of(p, oracle.travel, scenario.depot, rows, service, demand)
            length = int(np.flatnonzero(before["walk"][b]).max(initial=-1)) + 2
            found = oracle.route(problem, before["walk"][b, :length].tolist())
            walk = info["walk"][b].tolist()
            assert walk[: len(found.walk)] == found.walk and not any(walk[len(found.walk) :]), (b, t)
            assert (info["cost_ticks"][b].item(), info["vehicles"][b].item()) == (found.cost, found.vehicles)
            assert bool(found.ok) != bool(info["failed"][b])


def service_of(rng, trips) -> np.ndarray:
    return rng.integers(0, 3, (*trips.shape[:2], 2)) * 50


def roomy(given: Scenario, rng, **more) -> Scenario:
    """The same with service times, demands of one or two, and windows that leave room for the former."""
    trip = given.trip.copy()
    trip[..., [4, 5]] += 100
    parts = {name: getattr(given, name) for name in ("travel", "type", "fixed", "capacity")} | more
    parts["horizon"] = given.horizon + 400
    return Scenario(trip=trip, service=service_of(rng, trip), demand=rng.integers(1, 3, trip.shape[:2]), **parts)


@pytest.mark.parametrize("served", [False, True])
def test_insertion_is_a_plain_rescan_where_many_places_tie(served):
    rng = np.random.default_rng([1, served])
    scenario = tied(rng, 40)
    assert_oracle_agrees(roomy(scenario, rng) if served else scenario, 40, other="greedy:soonest")


@pytest.mark.parametrize(
    ("B", "capacity"), [(25, 4), pytest.param(600, 2, marks=SLOW), pytest.param(600, 6, marks=SLOW)]
)
@pytest.mark.parametrize("oracle", ["greedy:nearest", "greedy:soonest"])
def test_greedy_walks_are_the_originals_where_many_times_tie(oracle, B, capacity):
    assert_oracle_agrees(tied(np.random.default_rng(capacity), B, capacity=capacity, tight=True), B, oracle=oracle)


@pytest.mark.parametrize("published", [False, True])
def test_rides_end_in_time(published):
    """Shifts by 30 min each way part the windows farther than a ride may last."""
    scenario = tied(np.random.default_rng(5), 25, kind=3, capacity=4)
    rows = scenario.trip.reshape(-1, 6)
    shortest = max((rows[:, 4] - rows[:, 2]).max() + 600, scenario.travel[rows[:, 0], rows[:, 3]].max()) / 10
    options = {"max_ride": float(shortest), "lookahead_mask": published}
    assert_oracle_agrees(scenario, 25, action=3, oracle="greedy:nearest", **options)


@SLOW
@pytest.mark.parametrize("mode", ["darp", "vrptw"])
@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_insertion_is_a_plain_rescan_over_many_episodes(capacity, mode):
    rng = np.random.default_rng([capacity, mode == "darp"])
    scenario = tied(rng, 1700, capacity=max(capacity, 2), mode=mode)
    if mode == "vrptw":
        scenario = Scenario(
            travel=scenario.travel, trip=np.tile(scenario.trip[..., :3], 2), type=scenario.type, fixed=True,
            capacity=capacity, mode=mode,
        )  # fmt: skip
    else:
        scenario = roomy(scenario, rng) if capacity == 5 else tied(rng, 1700, capacity=capacity)
    assert_oracle_agrees(scenario, 1700, other="greedy:soonest")


def test_services_and_demands_of_files_are_those_of_the_original():
    rng = np.random.default_rng(3)
    scenario = roomy(tied(rng, 5, requests=6), rng, type=np.arange(6) % 3)
    options = {"scenario": scenario, "preshift": False}
    for oracle in ("insertion", "greedy:soonest"):
        env, ones = pair(4, oracle=oracle, **options)
        for _ in range(12):
            action = env.random_actions()[0]
            assert_same_step(env, ones, action, env.step(action))


def test_a_state_of_the_original_goes_into_the_port():
    """States in the midst of episodes, one step from each."""
    options = FORMS["cramped"]
    one = make(seed=SEED, index=FIRST, **options)
    env = batch(1, seed=SEED, first_index=FIRST, **options)
    env.reset()
    for k in range(18):
        if k % 9 == 0:
            one.reset()
        state = original.get_state(one)
        env.set_state({name: value[None] for name, value in state.items() if name in env.fields()})
        env.set_state({"episode": state["episode"], "elapsed": state["t"]})
        action = torch.tensor([(5 * k + 3) % 16], dtype=torch.int32)
        outputs = env.step(action)
        if k % 9 < 8:
            assert_same_step(env, [one], action, outputs)


# ---- batches


def test_an_environment_lives_alone_as_it_does_among_4096():
    big = batch(4096, seed=SEED)
    alone = {b: batch(1, seed=SEED, first_index=b) for b in (0, 1733, 4095)}
    for env in (big, *alone.values()):
        env.reset()
    for _ in range(33):
        action = big.random_actions()[0]
        outputs = big.step(action)
        for b, env in alone.items():
            assert torch.equal(env.random_actions()[0], action[b : b + 1])
            one = env.step(action[b : b + 1])
            for ours, theirs in zip(one[:4], outputs[:4], strict=True):
                assert torch.equal(ours[0], theirs[b])
            assert all(torch.equal(one[4][name][0], outputs[4][name][b]) for name in one[4])
            for name, rows in env.fields().items():
                assert torch.equal(rows[0], big.fields()[name][b])


@pytest.mark.parametrize("form", ["corrected", "nearest", "soonest, max_ride", "vrptw, greedy", "hard"])
def test_every_walk_is_valid(form):
    """The checker, which shares nothing with oracles and kernels, passes the last walk of every episode."""
    env = batch(60, seed=1, autoreset_mode="Disabled", check_actions=False, **FORMS[form])
    env.reset()
    for _ in range(env.params.requests):
        env.step(env.random_actions()[0])
    p, scenario, fields = env.params, env.scenario, {name: rows.numpy() for name, rows in env.fields().items()}
    for b in np.flatnonzero(fields["answered"] == p.requests):
        rows, walk = fields["kept"][b], fields["walk"][b]
        halves = [rows[:, :3], rows[:, 3:]] if p.paired else [rows[:, :3]]
        zone, earliest, latest = np.stack(halves, axis=1).reshape(-1, 3).T
        demand = np.tile([1, -1], p.requests) if p.paired else np.ones(p.requests, int)
        lists = [[first, *part.tolist()] for first, part in ((scenario.depot, zone), (0, earliest), (0, latest))]
        length = int(np.flatnonzero(walk).max()) + 2
        ticks, vehicles = check(
            walk[:length].tolist(), scenario.travel, *lists, [0, *demand.tolist()], p.capacity, p.horizon_ticks, None,
            p.max_ride_ticks, p.paired,
        )  # fmt: skip
        assert fields["cost"][b] == ticks
        assert p.fleet != "hard" or vehicles <= p.fleet_size
    assert (fields["answered"] == p.requests).any()
