"""The original: Gymnasium's interface, observations, rewards, state, and each switch."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from lockstep.envs.vehicle_routing import policies
from lockstep.envs.vehicle_routing.layout import state_shapes
from lockstep.envs.vehicle_routing.oracles import Answer
from lockstep.envs.vehicle_routing.original import VehicleRouting, environment, get_state, set_state
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import Scenario, save
from lockstep.envs.vehicle_routing.windows import ALLOWED, SHIFTS
from tests.envs.vehicle_routing.worlds import RIDE, checked, make, opened, problem, scene

SHORT = [1, 6000, 6100, 2, 6120, 6220]


def action(env, t: int) -> int:
    episode = env.episode
    return policies.random(None, policies.Noise(9, env.index, episode.number, t))


def play(env, steps: int | None = None, seed: int | None = None) -> list:
    """Outcomes of an episode, or of its first steps, under random actions."""
    found = [env.reset(seed=seed)]
    while not env.episode.terminated and (steps is None or len(found) <= steps):
        found.append(env.step(action(env, len(found))))
    return plain(found)


def plain(value):
    """Arrays as lists."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


# ---- Gymnasium


@pytest.mark.parametrize(
    "options", [{}, {"preset": "original", "unseeded_instances": False}, {"mode": "vrptw"}], ids=str
)
def test_passes_gymnasiums_checker(options):
    check_env(make(requests=4, **options), skip_render_check=True)


def test_spaces_are_those_of_the_preset():
    env = make()
    assert env.observation_space.shape == (30, 8) and env.action_space.n == 16
    assert (env.observation_space.low.min(), env.observation_space.high.max()) == (0, 1)
    published = make("original")
    assert published.observation_space.shape == (30, 6) and published.observation_space.high.max() == 1470
    for one in (env, published):
        observations = [row[0] for row in play(one)]
        assert all(one.observation_space.contains(np.array(seen, np.float32)) for seen in observations)


@pytest.mark.parametrize("raw", [False, True])
def test_windows_that_end_after_the_day_are_within_the_space(raw):
    late = [1, 6000, 6300, 2, 13_800, 14_390]
    env = opened(scene([late, RIDE]), shrinking_windows=True, raw_observation=raw)
    seen = env.step(15)[0]
    assert seen.max() == np.float32(1469 if raw else 14_690 / 14_400)
    assert env.observation_space.contains(seen)


def test_an_episode_has_a_decision_for_each_request():
    found = play(make(seed=3))
    assert len(found) == 31 and [step[2] for step in found[1:]] == [False] * 29 + [True]
    assert not any(step[3] for step in found[1:])
    asked = [found[0][1]["traveller"]] + [step[4]["traveller"] for step in found[1:]]
    assert sorted(asked[:30]) == list(range(30)) and asked[30] == -1
    assert [step[4]["answered"] for step in found[1:]] == asked[:30]


# ---- observation


def test_observations_by_hand():
    """Box of zones is 4 km wide; times of 720 min."""
    xy = [[1.0, 2.0], [1.0, 6.0], [5.0, 2.0]]
    given = scene([RIDE, RIDE], [3, 2], zone_xy=xy)
    env = opened(given, horizon=720.0)
    row = [0.0, 1.0, 600 / 720, 630 / 720, 1.0, 0.0, 612 / 720, 642 / 720]
    moved = [0.0, 1.0, 570 / 720, 600 / 720, 1.0, 0.0, 632 / 720, 662 / 720]
    assert env.observe() == pytest.approx(np.array([[0.0] * 8, row]), abs=1e-6)
    assert env.step(2)[0] == pytest.approx(np.array([moved, row]), abs=1e-6)
    assert env.step(2)[0] == pytest.approx(np.array([moved, row]), abs=1e-6)  # refused, and both are fixed
    raw = opened(given, raw_observation=True)
    assert raw.observe().tolist() == [[0.0] * 6, [1, 600, 630, 2, 612, 642]]
    assert raw.step(2)[0].tolist() == [[1, 570, 600, 2, 632, 662], [1, 600, 630, 2, 612, 642]]
    assert raw.observe().dtype == np.float32


@pytest.mark.parametrize("t", [0, 1, 29, 30])
def test_rows_are_filled_from_the_top_and_the_last_asks(t):
    env = make(raw_observation=True, seed=6)
    play(env, t)
    state = get_state(env)
    rows = np.zeros((30, 6))
    rows[:t] = state["kept"][:t]
    if t < 30:
        rows[29] = state["offered"][env.episode.traveller]
    rows[:, [1, 2, 4, 5]] /= 10
    assert np.array_equal(env.observe(), rows.astype(np.float32))
    assert (rows.any(axis=1).nonzero()[0] == [*range(t), 29][: 30 if t == 30 else None]).all()


# ---- answers


def test_acceptance_is_that_of_the_hidden_type():
    env = opened(scene([RIDE] * 4, [0, 1, 2, 3]))
    for a in range(16):
        accepted = []
        env.reset()
        for i in range(4):
            _, _, _, _, info = env.step(a)
            accepted.append(info["accepted"])
            p, d = SHIFTS[a]
            assert info["shift"] == (abs(p) + d if info["accepted"] else 0)
            kept = get_state(env)["kept"][i].tolist()
            assert kept == (
                [1, 6000 + 10 * p, 6300 + 10 * p, 2, 6120 + 10 * d, 6420 + 10 * d] if info["accepted"] else RIDE
            )
        assert accepted == ALLOWED[:, a].tolist()


def test_thresholds_decide_where_switched_on():
    env = opened(scene([RIDE] * 2, [2, 3], threshold=[[[200, 100]], [[0, 300]]]), threshold_acceptance=True)
    for a in range(16):
        env.reset()
        p, d = SHIFTS[a]
        assert env.step(a)[4]["accepted"] == (p >= -20 and d <= 10)
        assert env.step(a)[4]["accepted"] == (p == 0)


def test_uniform_actions_are_accepted_as_often_as_types_have_it():
    env, accepted = make(seed=1), []
    env.oracle.route = lambda problem, kept: Answer(0, [0], 0, True)  # no walk is needed
    for _ in range(100):
        accepted += [step[4]["accepted"] for step in play(env)[1:]]
    assert np.mean(accepted) == pytest.approx(0.2875, abs=4 * (0.2875 * 0.7125 / 3000) ** 0.5)


def test_windows_near_midnight_are_limited_as_the_preset_has_it():
    for shrinking, kept in ((False, [1, 0, 300, 2, 430, 730]), (True, [1, 0, 200, 2, 430, 730])):
        env = opened(scene([[1, 200, 500, 2, 430, 730]], [1]), shrinking_windows=shrinking)
        info = env.step(0)[4]
        assert get_state(env)["kept"][0].tolist() == kept and info["shift"] == 30  # the nominal one


# ---- reward


def test_rewards_by_hand():
    """The first ride costs 42 min; the second none, or, when it is moved by 30 min, 42 - 0.02 x 30."""
    env = opened(scene([RIDE, RIDE], [3, 2]))
    assert [env.step(12)[1], env.step(12)[1]] == [-42.0, 0.0]
    env.reset()
    rewards = [env.step(0)[1], env.step(0)[1]]
    assert rewards == pytest.approx([-42 - 0.02 * 30, 0.0])  # both board at 600: the window is shifted to [570, 600]
    apart = opened(scene([SHORT, SHORT], [3, 3]), capacity=1)
    assert [apart.step(12)[1], apart.step(12)[1]] == [-42.0, -42.0]
    assert opened(scene(), shift_penalty=0.5).step(15)[1] == pytest.approx(-42 - 0.5 * 30)


@pytest.mark.parametrize("oracle", ["insertion", "greedy:nearest"])
@pytest.mark.parametrize("preset", ["corrected", "original"])
def test_rewards_sum_to_what_the_day_costs(preset, oracle):
    env = make(preset, oracle=oracle, seed=2, requests=12, unseeded_instances=False)
    steps = play(env)[1:]
    shifts = sum(step[4]["shift"] for step in steps)
    assert shifts > 0 and steps[-1][4]["cost"] == get_state(env)["cost"] > 0
    total = -steps[-1][4]["cost"] / 10 - env.params.shift_penalty * shifts
    assert sum(step[1] for step in steps) == pytest.approx(total, abs=1e-9)
    assert get_state(env)["returns"] == pytest.approx(total, abs=1e-9)
    before = [0] + [step[4]["cost"] for step in steps]
    for t, step in enumerate(steps):
        assert step[1] == pytest.approx((before[t] - before[t + 1]) / 10 - env.params.shift_penalty * step[4]["shift"])


def test_the_twin_is_priced_on_windows_that_nobody_moved():
    env = make(reward="twin", seed=2, requests=30)
    steps = play(env)[1:]
    still = make(seed=2, requests=30)
    still.reset()
    for _ in range(30):
        unmoved = still.step(12)[4]["cost"]
    state, shifts = get_state(env), sum(step[4]["shift"] for step in steps)
    assert state["twin_cost"] == unmoved != state["cost"]
    total = (unmoved - state["cost"]) / 10 - 0.02 * shifts
    assert sum(step[1] for step in steps) == pytest.approx(total, abs=1e-9)


def test_percent_is_the_growth_of_what_is_saved():
    env = make(reward="percent", seed=2, requests=12)
    steps = play(env)[1:]
    state, shifts = get_state(env), sum(step[4]["shift"] for step in steps)
    saved = 100 * (state["twin_cost"] - state["cost"]) / state["twin_cost"]
    assert sum(step[1] for step in steps) == pytest.approx(saved - 0.02 * shifts, abs=1e-9)
    home = scene([[0, 6000, 6300, 0, 6000, 6300]] * 2)
    assert [opened(home, reward="percent").step(12)[1]] == [0.0]


def test_walks_cover_all_requests_so_far():
    env = make(seed=5, requests=8)
    env.reset()
    for t in range(8):
        info = env.step(action(env, t))[4]
        kept = get_state(env)["kept"][: t + 1].tolist()
        given = problem(kept, env.scenario.travel, depot=env.scenario.depot)
        assert checked(given, Answer(info["cost"], info["walk"].tolist(), info["vehicles"], True)) == info["cost"]


def test_service_and_demand_reach_the_oracle():
    """Two riders of size 5 do not fit into 8 seats; 6 min at each pickup make one of two too late."""
    env = opened(scene([RIDE, RIDE], [2, 2], demand=[[5], [4]]))
    assert [env.step(12)[4]["cost"] for _ in range(2)] == [420, 660]
    slow = opened(scene([SHORT, SHORT], [2, 2], service=[[[60, 0]], [[60, 0]]]))
    assert [slow.step(12)[4]["cost"] for _ in range(2)] == [420, 840]


# ---- failures


def fails(**single):
    return opened(scene([SHORT] * 3, [2] * 3), capacity=1, fleet="hard", fleet_size=1, **single)


def test_a_failure_ends_the_episode():
    env = fails()
    assert env.step(12)[1:3] == (-42.0, False)
    seen, reward, terminated, truncated, info = env.step(12)
    assert (reward, terminated, truncated) == (-5000.0, True, False)
    assert info["failed"] and info["traveller"] == -1 and info["cost"] == 420 and info["vehicles"] == 1
    assert seen[:2].any(axis=1).all() and not seen[2].any()
    with pytest.raises(ResetNeeded):
        env.step(12)
    env.reset()
    assert env.step(12)[1] == -42.0


def test_with_the_switch_a_failed_request_asks_again():
    env = fails(stuck_after_failure=True)
    env.step(12)
    for terminated in (False, True):
        _, reward, ended, _, info = env.step(12)
        assert (reward, ended, info["failed"], info["answered"]) == (-5000.0, terminated, True, 1)
    state = get_state(env)
    assert state["t"] == 3 and state["answered"] == 1 and state["traveller"].tolist() == [0, 1, 1]


def test_a_failure_of_the_twin_is_one():
    """Fetched 30 min sooner, the first rider leaves time for the second; unmoved, there would be none."""
    given = scene([[1, 6000, 6100, 2, 6120, 6420], [2, 6000, 6100, 1, 6200, 6500]], [1, 2])
    for reward, first, failed in (("growth", 0, False), ("growth", 12, True), ("twin", 0, True)):
        env = opened(given, fleet="hard", fleet_size=1, reward=reward)
        env.step(first)
        assert env.step(12)[4]["failed"] == failed


# ---- seeds


def test_a_seed_and_an_environment_fix_all_that_happens():
    options = {"requests": 8, "seed": 5, "index": 3}
    first = play(make(**options))
    assert play(make(**options)) == first
    again = make(**options | {"seed": 9})
    again.reset()
    assert play(again, seed=5) == first
    for other in ({"seed": 6}, {"index": 4}):
        assert play(make(**options | other)) != first


def test_resets_count_episodes_and_a_seed_begins_again():
    env = make(seed=5, requests=4)
    drawn = [get_state(env)["offered"].tolist() for seed in (None, None, 5, None, 6) if env.reset(seed=seed)]
    assert drawn[0] == drawn[2] and drawn[1] == drawn[3] and drawn[0] != drawn[1] != drawn[4]
    assert get_state(env)["episode"] == 0


def test_an_unseeded_instance_has_a_key_that_replays_it():
    env = make(unseeded_instances=True, requests=4)
    keys = [env.reset(seed=seed)[1]["key"] for seed in (None, 1, 1)]
    assert len({*keys, 0, 1}) == 5
    wanted = get_state(env)["offered"].tolist()
    assert env.reset()[1]["key"] == keys[2] and get_state(env)["episode"] == 1
    for one in (env, make(requests=4)):
        assert one.reset(key=keys[2])[1]["key"] == keys[2] and get_state(one)["offered"].tolist() == wanted


# ---- state


@pytest.mark.parametrize("options", [{}, {"preset": "original", "oracle": "greedy"}, {"reward": "twin"}], ids=str)
def test_an_episode_goes_on_from_a_state_read_and_put_back(options):
    first, second = (make(seed=2, requests=9, **options | {"unseeded_instances": False}) for _ in range(2))
    play(first, 4)
    second.reset(seed=77)
    kept = get_state(first)
    set_state(second, kept)
    assert all(np.array_equal(get_state(second)[name], kept[name]) for name in kept)
    assert plain(second.observe()) == plain(first.observe()) and second.episode.vehicles == first.episode.vehicles > 0
    for t in range(5):
        assert plain(first.step(t)) == plain(second.step(t))


def test_a_state_has_the_fields_of_its_layout():
    env = make(requests=3)
    env.reset()
    env.step(5)
    found, shapes = get_state(env), state_shapes(env.params)
    assert set(found) == {*shapes, "episode"}
    assert all(found[name].shape == shape and found[name].dtype == kind for name, (shape, kind) in shapes.items())
    assert found["action"].tolist() == [5, -1, -1] and found["traveller"][1:].tolist() == [-1, -1]
    assert found["walk"].tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 0, 0]


def test_fields_that_a_state_lacks_stay():
    env = make(requests=3)
    env.reset()
    env.step(5)
    kept = get_state(env)
    set_state(env, {"cost": 7})
    assert all(np.array_equal(get_state(env)[name], kept[name]) for name in kept if name != "cost")
    assert get_state(env)["cost"] == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"walks": 0}, "state has no field 'walks'; did you mean 'walk'?"),
        ({"order": [0, 1]}, "state field 'order' is int64 (2,), must be numbers (3,)"),
        ({"order": [0, 1, 1]}, "state field 'order' must hold each traveller 0 .. 2 once"),
        ({"t": 4}, "state field 't'=4 must be an integer from 0 to 3"),
        ({"t": 1}, "state field 'traveller' must hold 1 decisions, as t says"),
        ({"answered": 1}, "state field 'answered'=1 must be an integer from 0 to 0"),
        ({"t": 0.5}, "state field 't'=0.5 must be an integer from 0 to 3"),
        ({"returns": np.nan}, "state field 'returns' holds numbers that are not finite"),
        ({"action": [16, -1, -1]}, "state field 'action'=16 must be an integer from -1 to 15"),
        ({"walk": [0, 7, *[0] * 8]}, "state field 'walk'=7 must be an integer from 0 to 6"),
    ],
)
def test_a_state_that_is_none_is_refused(given, said):
    env = make(requests=3)
    env.reset()
    kept = get_state(env)
    with pytest.raises(ValueError, match=re.escape(said)):
        set_state(env, given)
    assert all(np.array_equal(get_state(env)[name], kept[name]) for name in kept)


# ---- refusals


def test_actions_outside_the_space_are_refused():
    env = opened()
    for wrong in (16, -1, 2.0, True, None, np.array([3]), "3"):
        with pytest.raises(ValueError, match="action of environment 0=.* must be an integer from 0 to 15"):
            env.step(wrong)
    assert get_state(env)["t"] == 0
    env.step(np.array(15))
    env.step(np.int64(0))


def test_a_step_needs_an_open_episode():
    env = make(requests=1)
    for call in (lambda: env.step(12), lambda: get_state(env), lambda: set_state(env, {})):
        with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
            call()
    env.reset()
    env.step(12)
    with pytest.raises(ResetNeeded):
        env.step(12)


def test_masks_are_shown_and_one_without_actions_is_refused():
    env = opened()
    assert env.masks.shape == (2, 16) and env.masks.all()
    env.masks[1, 3:] = False
    mask = env.step(12)[4]["action_mask"]
    assert mask.tolist() == [True] * 3 + [False] * 13
    assert env.step(12)[4]["action_mask"].all()  # a masked action stays legal
    env.masks[0] = False
    with pytest.raises(ValueError, match=re.escape("masks[0] allows no action of traveller 0")):
        env.reset()
    for wrong, shape in ((np.ones((1, 16), bool), "(1, 16)"), (None, "()")):
        env.masks = wrong
        with pytest.raises(ValueError, match=re.escape(f"masks have shape {shape}, must have (2, 16)")):
            env.reset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"presett": "original"}, "no parameter or option 'presett'; did you mean 'preset'?"),
        ({"preset": "publised"}, "preset='publised' is unknown"),
        ({"oracle": "insertoin"}, "oracle='insertoin' is unknown; did you mean 'insertion'?"),
        ({"seed": -1}, "seed=-1 must be an integer from 0 to 18446744073709551615"),
        ({"index": 2**32}, "index=4294967296 must be an integer from 0 to 4294967295"),
        ({"max_ride": 100.0}, "max_ride=100.0 must be at least"),
    ],
)
def test_make_names_what_is_not_allowed(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make(**options)


def test_a_seed_that_is_none_leaves_the_episode_as_it_was():
    env = opened()
    env.step(12)
    for name in ("seed", "key"):
        for wrong in (-1, 2**64, 1.5):
            with pytest.raises(ValueError, match=f"{name}={wrong!r} must be an integer"):
                env.reset(**{name: wrong})
    assert get_state(env)["t"] == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_by_itself(copied):
    env = make(requests=6)
    play(env, 3)
    other = copied(env)
    assert [plain(env.step(t)) for t in range(3)] == [plain(other.step(t)) for t in range(3)]


# ---- oracles and switches


def test_the_oracle_is_rebuilt_at_each_call_where_switched_on(tmp_path, monkeypatch):
    """From the file, where there is one; nothing else changes."""
    save(tmp_path / "a", scene())
    built = []
    for on in (False, True):
        env = make(scenario=tmp_path / "a", rebuild_oracle=on)
        with monkeypatch.context() as patched:
            patched.setattr(environment, "load", lambda path: built.append(path) or scene())
            env.reset()
            costs = [env.step(12)[4]["cost"] for _ in range(2)]
        assert costs == [420, 420] and len(built) == 2 * on


def test_insertion_keeps_its_routes_through_an_episode():
    env = make(seed=2, requests=10)
    costs = [step[4]["cost"] for step in play(env)[1:]]
    given = problem(get_state(env)["kept"].tolist(), env.scenario.travel, depot=env.scenario.depot)
    for t, cost in enumerate(costs, 1):
        part = {name: getattr(given, name)[: 2 * t + 1] for name in given._fields[2:]}
        assert env.oracle.route(given._replace(**part)).cost == cost


MEANT = {  # switches that act on the original: what they need besides, and whether an episode of a city shows it
    "one_obligation": {"oracle": "greedy:nearest", "lookahead_mask": True, "early_end": True},
    "early_end": {"oracle": "greedy:nearest", "lookahead_mask": True, "one_obligation": True},
    "lookahead_mask": {"oracle": "greedy:nearest"},
    "threshold_acceptance": {},
    "raw_observation": {},
    "full_size_only": {"oracle": "am"},
    "batch_statistics": {"oracle": "am:published"},  # whose norm is of the batch
}


@pytest.mark.parametrize("switch", MEANT)
def test_a_switch_flipped_alone_changes_episodes(switch):
    one, other = (play(make(seed=5, **MEANT[switch], **{switch: on})) for on in (False, True))
    assert one != other
    if switch != "raw_observation":  # drawn before, so the same
        assert one[0] == other[0]
    else:
        assert [step[1] for step in one[1:]] == [step[1] for step in other[1:]]


@pytest.mark.parametrize("switch", ["rebuild_oracle", "shared_end", "batch_statistics", "raw_scales", "flat_gae"])
def test_a_switch_of_time_or_of_learning_changes_no_episode(switch):
    """Of the default oracle, whose weights have no norm of the batch, and say themselves which features they take."""
    one, other = (play(make(seed=3, requests=6, oracle="am", **{switch: on})) for on in (False, True))
    assert one == other


@pytest.mark.parametrize("switch", ["batch_statistics", "one_obligation", "early_end", "lookahead_mask"])
def test_insertion_reads_no_switch_of_the_published_oracle(switch):
    one, other = (play(make(seed=3, requests=6, oracle="insertion", **{switch: on})) for on in (False, True))
    assert one == other


def test_the_published_oracle_is_asked_for_by_its_word():
    """By its own weights under the preset, whose default oracle is insertion."""
    assert make("original").word == "insertion"
    env = make("original", oracle="am", unseeded_instances=False)
    assert env.oracle.network.shape.norm == "batch"
    one, other = (
        play(make("original", oracle="am", unseeded_instances=False, batch_statistics=on)) for on in (True, False)
    )
    assert one != other


def test_preset_original_plays_whole_days():
    env = make("original", oracle="greedy:nearest", unseeded_instances=False)
    steps = play(env)[1:]
    assert len(steps) == 30 and not any(step[4]["failed"] for step in steps) and steps[-1][4]["cost"] > 3000
    assert isinstance(env, VehicleRouting) and env.params.shift_penalty == 0.2


def test_a_city_of_customers_plays():
    env = make(mode="vrptw", requests=10, capacity=3)
    steps = play(env)[1:]
    walk = steps[-1][4]["walk"]
    assert sorted(node for node in walk if node) == list(range(1, 11)) and steps[-1][4]["vehicles"] >= 4
    state = get_state(env)
    assert np.array_equal(state["kept"][:, :3], state["kept"][:, 3:])


def test_a_scenario_brings_its_sizes():
    env = make(
        scenario=Scenario(
            **{name: getattr(scene(), name) for name in ("travel", "trip", "type")}, capacity=3, fixed=True
        )
    )
    assert env.params == Params(requests=2, capacity=3)
    assert make(scenario=scene(), capacity=2).params.capacity == 2


def test_the_code_of_the_spec_sheet_runs(capsys):
    page = Path(environment.__file__).parents[1] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8").replace("4096", "4"), re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) == 3 and names["obs"].shape == (4, 240)
    names["env"].reset()
    reward = names["env"].step(names["env"].random_actions()[0])[1]
    assert reward.max() <= 0 and reward.min() < 0  # a ride within the depot's zone costs nothing
    assert re.match(r"\d+\.\d min of driving by \d+ vehicles: \[", capsys.readouterr().out)
