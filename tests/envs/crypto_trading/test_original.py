"""The original: Gymnasium's interface, info, state, actions that are refused."""

import inspect
import re
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from lockstep.envs.crypto_trading.layout import state_shapes
from lockstep.envs.crypto_trading.original import get_state, make, set_state
from lockstep.envs.crypto_trading.scenario import generate
from tests.envs.crypto_trading.worlds import actions, market, opened, outcomes, random_market

FLAT = market([100.0] * 12)


@pytest.mark.parametrize("preset", ["clean", "finrl-crypto", "cappuccino"])
def test_passes_gymnasiums_checker(preset):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that observations have no bounds, and what cappuccino cannot order
        env = make(preset, generate("tiny"))
        check_env(env, skip_render_check=True)
    assert env.action_space.shape == (3,) and env.observation_space.dtype == np.float32


def test_gymnasium_knows_it_by_its_id():
    env = gymnasium.make("lockstep.envs.crypto_trading:lockstep/CryptoTrading-v0", scenario=FLAT, lookback=3)
    assert env.reset(seed=0)[0].tolist() == [1.0] + [0.0] * 6
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float32)


def test_without_a_market_it_trades_the_generated_set():
    env = make()
    assert env.market.digest == make().market.digest
    assert (env.market.bars, env.market.assets, env.observation_space.shape) == (2000, 10, (1 + 30 + 70,))


def test_info_tells_money_and_holdings():
    env = make(scenario=FLAT)
    info = env.reset()[1]
    assert info["holdings"].tolist() == [0.0]
    del info["holdings"]
    assert info == {"value": 1e6, "benchmark": 1e6, "cash": 1e6, "fees": 0.0, "notional": 0.0, "turnover": 0.0}
    info = env.step(np.array([0.5], np.float32))[4]
    assert info["holdings"].tolist() == [500.0]
    assert {name: info[name] for name in ("cash", "value", "fees", "notional", "turnover")} == pytest.approx(
        {"cash": 949_850, "value": 999_850, "fees": 150, "notional": 5e4, "turnover": 0.05}, rel=1e-12
    )
    assert info["benchmark"] == pytest.approx(1e6 / 1.003)


def test_notional_counts_stops_and_trims():
    env = opened(market([100, 100, 200, 100, 100]), stop=0.4)
    found = outcomes(env, [[1.0], [0.0], [0.0]])
    assert found[2]["info"]["notional"] == pytest.approx(1e5) and found[2]["info"]["fees"] == pytest.approx(300)
    env = opened(FLAT, hold_limit=2)
    found = outcomes(env, [[1.0]] + [[0.0]] * 2)
    assert found[2]["info"]["notional"] == pytest.approx(5e3)


@pytest.mark.parametrize(("preset", "steps"), [("clean", 10), ("finrl-crypto", 8), ("cappuccino", 8)])
def test_an_episode_ends_with_its_window(preset, steps):
    env = opened(FLAT, preset, lookback=2)  # T - L, T - 2 L
    found = outcomes(env, np.zeros((20, 1)))
    assert len(found) == steps
    published = preset != "clean"
    assert (found[-1]["terminated"], found[-1]["truncated"]) == (published, not published)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros(1, np.float32))


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(ResetNeeded):
        make(scenario=FLAT).step(np.zeros(1))
    with pytest.raises(ResetNeeded):
        get_state(make(scenario=FLAT))


def test_a_seed_begins_again_and_resets_go_on():
    given = random_market(2, 60)
    options = {"starts": "random", "episode_bars": 10, "reachable": "warn", "seed": 4}
    env = make(scenario=given, **options)
    firsts = []
    for _ in range(6):
        env.reset()
        firsts.append(int(get_state(env)["first"]))
    assert len(set(firsts)) > 3
    env.reset(seed=4)
    assert get_state(env)["first"] == firsts[0] and get_state(env)["episode"] == 0
    other = make(scenario=given, index=1, **options)
    other.reset()
    assert get_state(other)["first"] != firsts[0]


# ---- actions


@pytest.mark.parametrize(
    ("preset", "action", "message"),
    [
        ("clean", [0.0, 0.0], "action has shape (2,), must have (1,)"),
        ("clean", 0.0, "action has shape (), must have (1,)"),
        ("clean", ["buy"], "action=['buy'] must be numbers (1,)"),
        ("clean", [0.5j], "action=[0.5j] must be numbers (1,)"),
        ("clean", [10**400], "must be numbers (1,)"),
        ("clean", [[0.0], [0.0, 0.0]], "action=[[0.0], [0.0, 0.0]] must be numbers (1,)"),
        ("finrl-crypto", [1e300], "action[0] (A0) is inf, must be finite"),
        ("clean", [1.01], "action[0] (A0) is 1.0099999904632568, must be from -1 to 1"),
        ("clean", [np.nan], "action[0] (A0) is nan, must be from -1 to 1"),
        ("finrl-crypto", [np.inf], "action[0] (A0) is inf, must be finite"),
        ("cappuccino", [np.nan], "action[0] (A0) is nan, must be a number"),
    ],
)
def test_an_action_that_is_refused_is_named(preset, action, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        opened(FLAT, preset).step(action)


@pytest.mark.parametrize(("preset", "action"), [("finrl-crypto", 7.5), ("cappuccino", -np.inf), ("clean", 1.0)])
def test_what_a_rule_set_allows_is_taken(preset, action):
    assert opened(FLAT, preset).step([action])[4]["value"] > 0


@pytest.mark.parametrize("seed", [-1, 1.5, "a", 2**64])
def test_a_seed_that_is_none_opens_no_episode(seed):
    env = opened(FLAT, "clean")
    with pytest.raises(ValueError, match=f"seed={seed!r} must be an integer from 0 to"):
        env.reset(seed=seed)
    env.step([0.0])


def test_seeds_and_windows_may_be_numpys():
    env = make(scenario=random_market(2, 60), window=np.array([10, 40]), reachable="warn")
    env.reset(seed=np.int64(3))
    assert (get_state(env)["first"], get_state(env)["last"]) == (10, 40)
    for window in (5, (1, 2, 3), np.zeros((1, 2), int), np.array(5)):
        with pytest.raises(ValueError, match="window=.* must be two bars, the first and the one after the last"):
            make(scenario=FLAT, window=window)
    with pytest.raises(ValueError, match="scenario_seed=array.* must be an integer from 0 to"):
        make(scenario=FLAT, scenario_seed=np.array([1, 2]))


@pytest.mark.parametrize("scenario", [42, [], [FLAT, FLAT]], ids=["number", "empty list", "two markets"])
def test_what_is_no_market_is_refused(scenario):
    with pytest.raises(ValueError, match="must be a Market, a list of one, a path of a table of bars, or None"):
        make(scenario=scenario)


# ---- state


@pytest.mark.parametrize("preset", ["clean", "finrl-crypto", "cappuccino"])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_state_goes_on_where_it_was_taken(preset, pooled):
    given = random_market(3, 80)
    options = {"reachable": "warn"} if preset == "finrl-crypto" else {"reachable": "warn", "stop": 0.05}
    env = opened([given] if pooled else given, preset, **options)
    moves = actions(3, 70, 3)
    outcomes(env, moves[:30])
    state = get_state(env)
    shapes = state_shapes(env.params, 3)
    assert {name: (state[name].shape, state[name].dtype.type) for name in shapes} == shapes
    assert set(state) - set(shapes) == {"elapsed", "episode"} | ({"scenario"} if pooled else set())
    other = opened([given] if pooled else given, preset, **options)
    set_state(other, state)
    assert np.array_equal(other.observe(), env.observe())
    for one, twin in zip(*(outcomes(e, moves[30:]) for e in (env, other)), strict=True):
        assert one["reward"] == twin["reward"] and np.array_equal(one["observation"], twin["observation"])
        assert all(np.array_equal(one["after"][name], twin["after"][name]) for name in state)


def test_a_state_at_the_end_is_over():
    env = opened(FLAT)
    outcomes(env, np.zeros((20, 1)))
    other = opened(FLAT)
    set_state(other, get_state(env))
    with pytest.raises(ResetNeeded):
        other.step(np.zeros(1))
    other.reset(seed=0)
    set_state(other, {"value": np.float64(1.0)})  # below the floor
    with pytest.raises(ResetNeeded):
        other.step(np.zeros(1))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("purse", 1.0, "state has no field 'purse'"),
        ("cash", [1.0], r"state field 'cash' is float64 \(1,\), must be numbers \(\)"),
        ("cash", np.nan, "state field 'cash' holds numbers that are not finite"),
        ("holdings", [-1.0], "state field 'holdings' holds -1.0, must not be negative"),
        ("age", [1.5], "state field 'age'=1.5 must be an integer"),
        ("age", [-1], "state field 'age'=-1 must be an integer from 0"),
        ("bar", 12, "state field 'bar'=12 must be an integer from 0 to 11"),
        ("first", 11, "state field 'first'=11 must be an integer from 0 to 10"),
        ("last", 13, "state field 'last'=13 must be an integer from 2 to 12"),
    ],
)
def test_a_state_that_means_nothing_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        set_state(opened(FLAT), {field: np.array(value)})


def test_a_state_that_contradicts_itself_or_owes_money_is_refused():
    env = make(scenario=generate("tiny"), lookback=2)
    env.reset(seed=0)
    set_state(env, {"elapsed": 5})
    assert get_state(env)["bar"] == 6
    for state in ({"elapsed": 5, "bar": 5}, {"cash": -1.0}, {"benchmark": -5.0}, {"benchmark_units": [-1.0, 0, 0]}):
        with pytest.raises(ValueError, match="state field .*, must"):
            set_state(env, state)


def test_the_code_of_the_spec_sheet_runs(capsys):
    sheet = Path(inspect.getfile(make)).parents[1] / "README.md"
    exec(sheet.read_text().partition("```python\n")[2].partition("```")[0], {})
    assert "$ of the account" in capsys.readouterr().out
