"""The port by itself: cases worked by hand, what it shows, oracles outside of the kernel, and bad input."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.vehicle_routing import batch as batches
from lockstep.envs.vehicle_routing.scenario import city, save
from tests.envs.vehicle_routing.worlds import RIDE, TRIANGLE, batch, scene

KEEP = 12  # the action without a shift
SHIFTED = [(p, d) for p in (-30, -20, -10, 0) for d in (0, 10, 20, 30)]  # min, by action


def made(num_envs: int = 1, scenario=None, **options):
    """A batch at the first states of a scene's episodes."""
    env = batch(num_envs, scenario=scene() if scenario is None else scenario, **options)
    env.reset()
    return env


def act(env, *actions: int):
    return env.step(torch.tensor(actions * (env.num_envs // len(actions)), dtype=torch.int32))


def last(env, steps: int, action: int = KEEP):
    for _ in range(steps):
        outputs = act(env, action)
    return outputs


# ---- by hand

NARROW = [1, 6000, 6100, 2, 6120, 6220]


@pytest.mark.parametrize("oracle", ["insertion", "greedy:nearest", "greedy:soonest", "greedy:mixed"])
@pytest.mark.parametrize(
    ("trip", "capacity", "minutes", "vehicles"),
    [(RIDE, 8, 42.0, 1), (RIDE, 1, 66.0, 1), (NARROW, 1, 84.0, 2)],
)
def test_two_rides_from_a_to_b(oracle, trip, capacity, minutes, vehicles):
    """Together 10 + 12 + 20 min; one after the other with the way back, 24 more; or a vehicle for each."""
    env = made(scenario=scene((trip, trip)), capacity=capacity, oracle=oracle)
    act(env, KEEP)
    _, _, terminated, _, info = act(env, KEEP)
    assert (info["cost_ticks"].item() / 10, info["vehicles"].item()) == (minutes, vehicles)
    assert terminated.item() and env.statistics()["return_mean"].item() == -minutes


def test_the_first_place_of_those_that_cost_nothing():
    """Both are at A and at B: before the first pickup and, after it, before the first drop-off."""
    walk = last(made(), 2)[4]["walk"]
    assert walk.tolist() == [[0, 3, 1, 4, 2, 0, 0]] and walk.dtype == torch.int32


@pytest.mark.parametrize("kind", range(4))
def test_who_accepts_what(kind):
    """late: p = 0; early: d = 0; none: neither; both: all."""
    env = made(16, scenario=scene((RIDE,), [kind]))
    info = act(env, *range(16))[4]
    expected = [(p == 0 or kind in (1, 3)) and (d == 0 or kind in (0, 3)) for p, d in SHIFTED]
    assert info["accepted"].tolist() == expected and sum(expected) == (4, 4, 1, 16)[kind]
    assert info["shift_min"].tolist() == [yes * (d - p) for yes, (p, d) in zip(expected, SHIFTED, strict=True)]


def test_thresholds_decide_on_request():
    """F_early 20 and F_late 10 min: three of the four p, two of the four d."""
    given = scene((RIDE,), [2], threshold=np.array([[[200, 100]]]))
    info = act(made(16, scenario=given, threshold_acceptance=True), *range(16))[4]
    assert info["accepted"].tolist() == [p >= -20 and d <= 10 for p, d in SHIFTED]


@pytest.mark.parametrize(
    ("shrinking", "trip", "action", "kept"),
    [
        (False, RIDE, 3, [1, 5700, 6000, 2, 6420, 6720]),  # a move by 30 min each way
        (False, [1, 100, 400, 2, 520, 820], 0, [1, 0, 300, 2, 520, 820]),  # less far at 0, the width stays
        (True, [1, 100, 400, 2, 520, 820], 0, [1, 0, 100, 2, 520, 820]),  # each end by itself
        (False, [1, 6000, 6300, 2, 13950, 14150], 15, [1, 6000, 6300, 2, 14200, 14400]),  # less far at H
        (True, [1, 6000, 6300, 2, 13700, 13900], 15, [1, 6000, 6300, 2, 14000, 14200]),
    ],
)
def test_windows_move_within_the_day(shrinking, trip, action, kept):
    env = made(scenario=scene((trip, RIDE)), shrinking_windows=shrinking, autoreset_mode="Disabled")
    act(env, action)
    assert env.fields()["kept"][0, 0].tolist() == kept
    assert env.fields()["offered"][0, 0].tolist() == trip


def test_a_shift_widens_the_window_of_a_single_node():
    trip = [1, 6000, 6300, 1, 6000, 6300]
    env = made(scenario=scene((trip, trip), mode="vrptw"))
    act(env, 3)
    assert env.fields()["kept"][0, 0].tolist() == [1, 5700, 6600, 1, 5700, 6600]


def test_observations_by_hand():
    """Zones lie in the smallest square: here 0 at the corner, 1 at its side, 2 opposite; times are of 14,400 ticks."""
    given = scene(zone_xy=np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 4.0]]))
    env = made(scenario=given, autoreset_mode="Disabled")
    rides = np.array([0, 0.5, 6000 / 14400, 6300 / 14400, 1, 1, 6120 / 14400, 6420 / 14400], np.float32)
    earlier = np.array([0, 0.5, 5700 / 14400, 6000 / 14400, 1, 1, 6420 / 14400, 6720 / 14400], np.float32)
    seen = [env.reset()[0].clone(), act(env, 3)[0].clone(), act(env, KEEP)[0]]
    nothing = np.zeros(8, np.float32)
    for found, expected in zip(seen, [[nothing, rides], [earlier, rides], [earlier, rides]], strict=True):
        np.testing.assert_array_equal(found[0].reshape(2, 8), expected)
    raw = made(scenario=given, raw_observation=True)
    np.testing.assert_array_equal(act(raw, 3)[0].reshape(2, 6)[0], [1, 570, 600, 2, 642, 672])


def test_windows_that_end_after_the_day_are_within_the_space():
    late = scene(([1, 6000, 6300, 2, 13_800, 14_390], RIDE))
    env = made(scenario=late, shrinking_windows=True)
    seen = act(env, 15)[0][0].numpy()
    assert seen.max() > 1 and env.single_observation_space.contains(seen)


def test_rewards_sum_to_cost_and_shifts():
    env = batch(64, seed=2, autoreset_mode="Disabled", dtype="float64")
    env.reset()
    shift = torch.zeros(64)
    for _ in range(30):
        *_, info = env.step(env.random_actions()[0])
        shift += info["shift_min"]
    cost = info["cost_ticks"].double() / 10
    torch.testing.assert_close(env.fields()["returns"], -cost - 0.02 * shift.double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("reward", "expected"), [("twin", -18.0), ("percent", -100 * 18 / 66)])
def test_a_shift_that_parts_two_rides_costs_more_than_its_twin(reward, expected):
    """One seat: one after the other 66 min; with the second on board from 10:00 to 10:42 a vehicle for each, 84."""
    env = made(reward=reward, capacity=1, shift_penalty=0.0)
    assert act(env, KEEP)[1].item() == 0
    assert act(env, 3)[1].item() == pytest.approx(expected, rel=1e-7)


def test_a_failure_ends_the_episode_or_asks_again():
    options = {"scenario": scene((NARROW, NARROW)), "capacity": 1, "fleet": "hard", "fleet_size": 1}
    env = made(**options, autoreset_mode="Disabled")
    act(env, KEEP)
    _, reward, terminated, truncated, info = act(env, KEEP)
    assert (reward.item(), terminated.item(), truncated.item()) == (-5000, True, False)
    assert info["failed"].item() and (info["cost_ticks"].item(), info["vehicles"].item()) == (420, 1)
    assert env.traveller.item() == -1
    rides = scene((NARROW, NARROW, NARROW))
    stuck = made(**options | {"scenario": rides}, stuck_after_failure=True, autoreset_mode="Disabled")
    act(stuck, KEEP)
    _, reward, terminated, _, info = act(stuck, KEEP)
    assert (reward.item(), terminated.item(), stuck.traveller.item()) == (-5000, False, 1)
    _, reward, terminated, _, info = act(stuck, KEEP)
    assert (info["answered"].item(), reward.item(), terminated.item()) == (1, -5000, True)
    assert stuck.fields()["traveller"].tolist() == [[0, 1, 1]]


# ---- what it shows


def test_the_traveller_who_asks_and_his_row_of_the_masks():
    env = made(4, autoreset_mode="Disabled")
    assert env.traveller.tolist() == [0] * 4 and env.action_mask.all()
    rows = torch.ones(2, 16, dtype=torch.bool)
    rows[1, 3] = False
    env.masks = rows
    assert env.action_mask.all()
    act(env, KEEP)
    assert env.traveller.tolist() == [1] * 4 and (~env.action_mask).nonzero().tolist() == [[b, 3] for b in range(4)]
    act(env, 3)  # masked actions stay legal
    assert env.traveller.tolist() == [-1] * 4 and env.action_mask.all()


def test_a_key_replays_what_the_system_has_drawn():
    env = batch(3, unseeded_instances=True, requests=4)
    first = env.reset(seed=1)[0].clone()
    key = env.key()
    assert not torch.equal(first, env.reset(seed=1)[0]) and env.key() != key
    assert torch.equal(first, env.reset(key=key)[0])
    env.reset()
    assert env.key() == key  # goes on to the next episode
    assert torch.equal(first, env.reset(key=key[0])[0])


def test_scenario_files_play_as_the_scenario(tmp_path):
    given = city(seed=4)
    save(tmp_path / "four", given)
    one, other = (
        batch(5, scenario=scenario) for scenario in (given, tmp_path / "four.npz")
    )  # fmt: skip
    for env in (one, other):
        env.reset()
        env.rollout(40)
    assert torch.equal(one.fields()["offered"], other.fields()["offered"])
    assert one.state()["pool"] == other.state()["pool"] != batch(1).state()["pool"]


def test_fixed_instances_come_in_turn():
    trips = np.array([[[1, 6000 + 50 * k, 6300, 2, 6120, 6420] for k in range(3)]])
    given = scene((RIDE,))
    given = type(given)(travel=TRIANGLE, trip=trips, type=[2], fixed=True)
    env = batch(4, scenario=given, first_index=2)
    env.reset()
    for episode in range(4):
        assert env.fields()["trip"].flatten().tolist() == [(2 + b + episode) % 3 for b in range(4)]
        assert env.fields()["offered"][:, 0, 1].tolist() == [6000 + 50 * ((2 + b + episode) % 3) for b in range(4)]
        act(env, KEEP)


def test_memory_counts_what_passes_to_an_oracle_outside():
    inside, outside = (batch(8, requests=3, oracle=word) for word in ("insertion", "brute"))
    row = 5 * 4 * 7 + 7 + 4 + 2 * 10 + 4 + 1  # seven nodes and an answer
    assert outside.memory()["tables"] - inside.memory()["tables"] == 8 * row


# ---- oracles outside


def alone(env):
    """Everyone in a vehicle of his own, in torch."""
    problem, answer = env.problems, env.answers
    travel = torch.tensor(env.scenario.travel)
    pickup, dropoff, there = problem.nodes[:, 1::2].long(), problem.nodes[:, 2::2].long(), problem.mask[:, 1::2]
    depot = env.scenario.depot
    legs = travel[depot, pickup] + travel[pickup, dropoff] + travel[dropoff, depot]
    answer.cost.copy_((legs * there).sum(1))
    answer.vehicles.copy_(there.sum(1))
    answer.ok.copy_(problem.latest[:, 2] != 6720)  # a shift of 30 min of the first ride cannot be served
    answer.walk.zero_()
    for i in range(there.shape[1]):
        answer.walk[:, 3 * i + 1 : 3 * i + 3] = torch.tensor([2 * i + 1, 2 * i + 2]) * there[:, i : i + 1]


def test_a_function_of_the_batch_is_an_oracle():
    env = made(3, oracle=alone, autoreset_mode="Disabled")
    assert env.problems.nodes.shape == (3, 5)
    _, reward, _, _, info = act(env, KEEP, 3, 2)
    assert info["failed"].tolist() == [False, True, False]
    torch.testing.assert_close(reward, torch.tensor([-42.0, -5000.0, -42.0 - 0.02 * 50]))
    assert env.problems.mask.tolist() == [[True, True, True, False, False]] * 3
    assert env.problems.nodes.tolist() == [[0, 1, 2, 0, 0]] * 3
    assert env.problems.earliest.tolist()[2] == [0, 5700, 6320, 0, 0]
    assert env.problems.demand.tolist()[0] == [0, 1, -1, 0, 0]
    env.reset(options={"reset_mask": torch.tensor([False, True, False])})
    info = act(env, KEEP)[4]
    assert info["cost_ticks"].tolist() == [840, 420, 840] and info["vehicles"].tolist() == [2, 1, 2]
    assert info["walk"].tolist()[0] == [0, 1, 2, 0, 3, 4, 0]


def test_an_oracle_outside_prices_the_twin_as_well():
    env = made(2, oracle=alone, reward="twin", autoreset_mode="Disabled")
    _, reward, *_ = act(env, 2, 14)
    assert env.problems.nodes.shape == (4, 5) and env.answers.walk.shape == (4, 7)
    assert env.problems.earliest[:, 1].tolist() == [5700, 6000, 6000, 6000]  # kept and offered by turns
    torch.testing.assert_close(reward, torch.tensor([-0.02 * 50, -0.02 * 20]))


def test_a_reference_oracle_costs_no_more_than_insertion():
    pytest.importorskip("pyvrp")
    costs = {}
    for oracle in ("insertion", "pyvrp:0.05"):
        env = batch(2, requests=6, capacity=2, oracle=oracle, autoreset_mode="Disabled")
        env.reset()
        costs[oracle] = last(env, 6)[4]["cost_ticks"]
    assert (costs["pyvrp:0.05"] <= costs["insertion"]).all()


# ---- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"oracle": "insertions"}, "oracle='insertions' is unknown; did you mean 'insertion'"),
        ({"oracle": "greedy:nearst"}, "rule 'nearst' is unknown; did you mean 'nearest'"),
        ({"oracle": "insertion:2"}, "oracle='insertion:2' must be 'insertion'"),
        ({"oracle": "brute"}, "requests=30 must be at most 4 where oracle='brute'"),
        ({"max_ride": 600.0}, "max_ride=600.0 must be 0 where oracle='insertion'"),
        ({"max_ride": 60.0, "oracle": "greedy"}, "max_ride=60.0 must be at least"),
        ({"preset": "published"}, "preset='published' is unknown"),
        ({"requests": 0}, "requests=0 must be at least 1"),
        ({"horizon": 60.0, "requests": 5}, "horizon=60.0 must be at least 422 min, when a city's first windows end"),
        ({"oracle": "ortools:1e15"}, "oracle='ortools:1e15' must have a positive number of seconds, at most 3600"),
        ({"scenario": "a\0b"}, r"path='a.x00b' must be that of a scenario file"),
        ({"early_ends": True}, "no parameter or option 'early_ends'; did you mean 'early_end'"),
        ({"scenario": 7}, "scenario=7 must be a Scenario, a path of a scenario file, or None"),
        ({"scenario": city(), "requests": 7}, "requests=7 must be 30, the travellers of the scenario"),
        ({"num_envs": 0}, "num_envs=0 must be an integer from 1"),
    ],
    ids=str,
)
def test_a_batch_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        batch(**{"num_envs": 2} | options)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.tensor([0, 16], dtype=torch.int32), r"action\[1\]=16 of environment 1 is not in 0 .. 15"),
        (torch.tensor([0, 1, 2], dtype=torch.int32), r"action has shape \(3,\); allowed: \(2,\)"),
        (torch.tensor([0.0, 1.0]), "action has dtype float32; allowed: int32"),
    ],
)
def test_an_action_that_is_none_is_refused(action, message):
    with pytest.raises(ValueError, match=message):
        made(2).step(action)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (np.ones((3, 16), bool), r"masks=bool \[3, 16\] must be bool \[2, 16\]"),
        (np.ones((2, 16), int), r"masks=int64 \[2, 16\] must be bool \[2, 16\]"),
        (None, r"masks=None must be bool \[2, 16\]"),
        ([[True], [True, False]], r"masks=\[\[True\], \[True, False\]\] must be bool \[2, 16\]"),
        (np.arange(2)[:, None] < np.ones(16), r"masks\[1\] allows no action of traveller 1, must allow one or more"),
    ],
)
def test_masks_that_are_none_are_refused(masks, message):
    env = made()
    with pytest.raises(ValueError, match=message):
        env.masks = masks
    assert env.masks.all()


def test_masks_changed_in_place_are_looked_at_when_an_episode_begins():
    env = made()
    env.masks[0] = False
    with pytest.raises(ValueError, match=r"masks\[0\] allows no action of traveller 0, must allow one or more"):
        env.reset()


@pytest.mark.parametrize(
    ("key", "said"), [(-1, "key=-1 must be an integer from 0"), ([1, 2], "key has 2 values; groups=1 needs one")]
)
def test_a_key_that_is_none_is_refused_by_its_name(key, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        made().reset(key=key)


def test_a_key_beside_a_seed_is_refused():
    with pytest.raises(ValueError, match="seed=1 must be None where a key is given"):
        made().reset(seed=1, key=2)


def test_indices_of_a_state_from_outside_are_made_to_be_some():
    """Whatever lies within the fields' limits, no step reads or writes elsewhere."""
    env = batch(6, requests=5, autoreset_mode="Disabled", check_actions=False)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(20):
        state = {}
        for name, field in env.port.fields(env.params).items():
            if field.dtype == "int32":
                high = int(min(field.high, 2**20))
                state[name] = rng.integers(max(int(field.low), -1), high + 1, (6, *field.shape), dtype=np.int32)
        env.set_state(state)
        for _ in range(3):
            obs, *_ = env.step(torch.tensor(rng.integers(-5, 99, 6), dtype=torch.int32))
            assert obs.isfinite().all()


@pytest.mark.parametrize(("word", "keys"), [("insertion", 0), ("am", 61 * 4 * 64 * 4)])  # nodes, parts, d, bytes
def test_auto_takes_the_largest_power_of_two_that_fills_four_fifths_of_the_memory(monkeypatch, word, keys):
    free = 20_000_000
    monkeypatch.setattr(batches, "available_memory", lambda device: free)
    found = envs.make("vehicle_routing", "auto", oracle=word)
    twice = envs.make("vehicle_routing", 2 * found.num_envs, oracle=word)
    needed = [sum(env.memory().values()) + keys * env.num_envs for env in (found, twice)]
    assert found.num_envs.bit_count() == 1 and needed[0] <= 0.8 * free < needed[1]
    assert (envs.make("vehicle_routing", "auto", oracle=word, groups=3, seed=[1, 2, 3]).num_envs // 3).bit_count() == 1


def test_auto_is_the_only_word_and_says_where_nothing_fits(monkeypatch):
    with pytest.raises(ValueError, match="num_envs='all' must be one of 'auto'"):
        envs.make("vehicle_routing", "all")
    monkeypatch.setattr(batches, "available_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match="finds 1,000 bytes free on cpu, where one environment of each group needs "):
        envs.make("vehicle_routing", "auto", oracle="insertion")
