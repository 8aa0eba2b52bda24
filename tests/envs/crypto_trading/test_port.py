"""The port by itself: lanes that do not know of each other, what a batch may be made of, and what it shows."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from lockstep import envs
from lockstep.envs.crypto_trading import streams
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.scenario import generate
from tests.contract.batches import equal
from tests.envs.crypto_trading.batches import LOTS, MARKET, QUIET, SEGMENTED
from tests.envs.crypto_trading.worlds import market
from tests.envs.faults import fails

SLOW = pytest.mark.slow
LIVES = {  # options of a batch, of each environment's own window or draw
    "windows": {"scenario": SEGMENTED, "stop": 0.04, "slippage": 1e-3},
    "random starts": {"scenario": SEGMENTED, "starts": "random", "episode_bars": 15},
    "published": {"scenario": SEGMENTED, "preset": "cappuccino"},
}


def batch(num_envs: int, **options):
    return envs.make("crypto_trading", num_envs, **{"scenario": MARKET, "check_actions": False} | options)


def windows(count: int) -> np.ndarray:
    """Windows [count, 2] of mixed first bars and lengths."""
    first = np.arange(count) * 7 % 60
    return np.stack([first, first + 20 + np.arange(count) * 5 % 40], axis=1)


def lived(env, actions: np.ndarray, lanes=None) -> list[torch.Tensor]:
    """All that steps give of the environments `lanes`, and their states after."""
    env.reset(seed=9)
    lanes, found = torch.arange(env.num_envs) if lanes is None else torch.as_tensor(lanes), []
    for action in torch.from_numpy(actions):
        obs, reward, terminated, truncated, told = env.step(action)
        rows = [obs, reward, terminated, truncated, *(told[name] for name in env.metrics), told["final_obs"]]
        found += [part[lanes].clone() for part in rows]
    return found + [field[lanes].clone() for field in env.fields().values()]


@pytest.mark.parametrize(
    ("num_envs", "part"), [(7, 1), pytest.param(256, 1, marks=SLOW), pytest.param(4096, 256, marks=SLOW)]
)
@pytest.mark.parametrize("life", LIVES)
def test_every_environment_of_a_batch_is_bit_for_bit_the_one_alone(life, num_envs, part):
    """Or, of a large batch, the one of a smaller."""
    options = LIVES[life]
    own = windows(num_envs) if options.get("starts") != "random" else None
    actions = np.random.default_rng(2).uniform(-1, 1, (45, num_envs, 3)).astype(np.float32)
    whole = lived(batch(num_envs, window=own, **options), actions)
    for first in range(0, num_envs, part):
        rows = slice(first, first + part)
        alone = batch(part, window=None if own is None else own[rows], first_index=first, **options)
        assert equal(lived(alone, actions[:, rows]), [array[rows] for array in whole])


def test_environments_in_another_order_live_the_same():
    own, order = windows(40), np.random.default_rng(0).permutation(40)
    actions = np.random.default_rng(1).uniform(-1, 1, (50, 40, 3)).astype(np.float32)
    one, other = (batch(40, window=rows, scenario=SEGMENTED) for rows in (own, own[order]))
    assert equal(lived(one, actions, order), lived(other, actions[:, order]))


def test_a_window_is_the_market_of_its_bars_alone():
    actions = np.random.default_rng(1).uniform(-1, 1, (60, 8, 3)).astype(np.float32)
    part, cut = batch(8, window=[20, 70]), batch(8, scenario=MARKET.rows(20, 70))
    found, expected = lived(part, actions), lived(cut, actions)
    first = list(part.fields()).index("first") - len(part.fields())
    assert equal(found[:first], expected[:first])
    assert (part.fields()["first"] == 20).all() and (cut.fields()["last"] == 50).all()


def test_numbers_of_an_environment_stand_for_parameters_of_a_batch():
    actions = np.random.default_rng(4).uniform(-1, 1, (60, 3, 3)).astype(np.float32)
    numbers = {"fee_buy": 0.0, "fee_sell": 0.01, "slippage": 0.002, "spending": 0.5, "order_share": 0.4}
    rows = {name: [0.001, value, 0.003] for name, value in numbers.items()}
    mixed, plain = batch(3, per_lane=rows, dtype="float64"), batch(3, dtype="float64", **numbers)
    assert equal(lived(mixed, actions, [1]), lived(plain, actions, [1]))
    assert not torch.equal(mixed.fields()["value"][0], mixed.fields()["value"][1])


def test_fees_of_a_market_stand_for_those_that_environments_have_not():
    actions = np.random.default_rng(4).uniform(-1, 1, (20, 2, 3)).astype(np.float32)
    dear = dataclasses.replace(QUIET, fee_buy=[0.02] * 3, fee_sell=[0.01] * 3)
    mixed = batch(2, scenario=dear, per_lane={"slippage": [0.001, 0.002]}, dtype="float64")
    plain = batch(2, scenario=dear, slippage=0.001, dtype="float64")
    assert equal(lived(mixed, actions, [0]), lived(plain, actions, [0]))
    with pytest.raises(
        ValueError, match="per_lane must have 'fee_buy' as well: the market's fee_buy differs by symbol"
    ):
        batch(2, scenario=LOTS, per_lane={"slippage": [0.001, 0.002]})
    batch(2, scenario=LOTS, per_lane={"slippage": [0.001, 0.002], "fee_buy": [0.0]})


def test_random_starts_are_the_places_of_the_stream():
    """Segments of 40, 50 and 25 bars admit 25, 35 and 10 first bars of windows of 16."""
    env = batch(64, scenario=SEGMENTED, starts="random", episode_bars=15)
    env.reset(seed=5)
    places = np.concatenate([np.arange(25), 40 + np.arange(35), 95 + np.arange(10)])
    for episode in range(2):
        expected = [places[streams.start_place(5, lane, episode, 70)] for lane in range(64)]
        assert env.fields()["first"].tolist() == expected
        assert env.fields()["last"].tolist() == [first + 16 for first in expected]
        for _ in range(15):
            *_, truncated, _ = env.step(torch.zeros(64, 3))
        assert truncated.all()


def test_an_observation_ends_with_the_features_of_its_bars_or_with_its_bar():
    features = np.arange(40.0)
    given = market(np.full((40, 1), 5.0), features, mean=[0.0], std=[10.0])
    whole, index = batch(2, scenario=given, lookback=3), batch(2, scenario=given, lookback=3, observe="index")
    action = torch.zeros(2)
    rows = [env.reset(seed=0)[0].clone() for env in (whole, index)]
    for bar in range(2, 30):
        newest = features[[bar, bar - 1, bar - 2]] / 10
        assert rows[0][0].tolist() == pytest.approx([1, 0, 0, 0, *newest])
        assert rows[1][0].tolist() == [1, 0, 0, 0, bar]
        rows = [env.step(action)[0].clone() for env in (whole, index)]


@pytest.mark.parametrize("hidden", [0, pytest.param(16, marks=SLOW)])
def test_a_policy_sees_ten_thousand_numbers_of_each_environment(hidden):
    """Those of a tile fill more than a thread's stack, of which a process would die."""
    rng = np.random.default_rng(0)
    features = {"feature": rng.normal(size=(140, 100)), "mean": [0.0] * 100, "std": [1.0] * 100}
    given = market(100 * np.exp(np.cumsum(rng.normal(0, 0.01, 140))), **features)
    fused, single = batch(256, scenario=given, lookback=100), batch(256, scenario=given, lookback=100)
    n = fused.policy_shape[1]
    assert n == 10_004
    torch.manual_seed(0)
    networks = [
        nn.Sequential(*(nn.Linear(n, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))) for _ in range(2)
    ]
    policy = envs.MLP(*networks, greedy=True) if hidden else envs.Linear(0.01 * torch.randn(1, n), [0.0])
    choose = networks[0] if hidden else single.actor(policy)

    @torch.no_grad()
    def both_ways():
        fused.reset(seed=1)
        obs, _ = single.reset(seed=1)
        rows = fused.rollout(3, policy, "trajectory")
        for k, action in enumerate(rows["action"]):
            assert equal(rows["obs"][k], obs)
            torch.testing.assert_close(choose(obs).flatten(), action, rtol=0, atol=1e-4)
            obs = single.step(action)[0]
        assert equal(fused.fields(), single.fields())
        if hidden:
            torch.testing.assert_close(rows["value"][3], networks[1](obs)[:, 0], rtol=0, atol=1e-4)

    assert not fails(both_ways)


@pytest.mark.parametrize("preset", ["clean", "finrl-crypto"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cash_of_an_account_that_buys_all_it_can_is_never_below_zero(preset, dtype):
    """With κ = 1 a purchase may take all; what holdings are rounded to costs no more than there is."""
    options = {"preset": preset, "spending": 1.0, "dtype": dtype} | ({"order_share": 5.0} if preset == "clean" else {})
    env = batch(200, scenario=QUIET, **options)
    env.reset(seed=1)
    for _ in range(80):
        env.step(env.random_actions()[0].abs() ** 0.1)
        assert env.fields()["cash"].min() >= (
            -1e-10 * env.params.capital if dtype == "float64" or preset != "clean" else 0
        )


def test_lots_are_multiples_and_fees_are_of_each_symbol():
    env = batch(50, scenario=LOTS, dtype="float64", order_share=0.3)
    env.reset(seed=1)
    for _ in range(40):
        env.step(env.random_actions()[0].abs())
    assert env.fields()["age"].max() < 48  # nothing was trimmed
    lots = env.fields()["holdings"][:, :2] / torch.tensor([0.01, 0.3], dtype=torch.float64)
    assert (lots - lots.round()).abs().max() < 1e-6 and lots.max() > 10


@pytest.mark.parametrize(("wanted", "left"), [(6, 0), (4, 0), (3, 4)])
def test_all_that_is_held_can_be_sold_below_the_minimum_but_no_part_of_it(wanted, left):
    """Of 4 units at 5 $, with a minimum of 10; an action of -1 sells 0.1 V, 20,000 units."""
    env = batch(1, scenario=market(np.full((9, 1), 5.0), min_qty=[10.0]), dtype="float64")
    env.reset(seed=0)
    env.set_state({"holdings": np.array([[4.0]]), "cash": 1e6 - 20.0})
    env.step(torch.tensor([-wanted / 20_000], dtype=torch.float64))
    assert env.fields()["holdings"].item() == left


def test_a_carried_holder_outlasts_resets_but_not_a_seed():
    env = batch(3, scenario=QUIET, preset="finrl-crypto", dtype="float64")
    env.reset(seed=1)
    first = env.fields()["benchmark"].clone()
    for _ in range(10):
        env.step(torch.zeros(3, 3))
    later = env.fields()["benchmark"].clone()
    env.reset(options={"reset_mask": np.array([True, False, True])})
    assert torch.equal(env.fields()["benchmark"], later) and not torch.equal(later, first)
    env.reset(seed=1)
    assert torch.equal(env.fields()["benchmark"], first)


def test_without_a_hold_limit_ages_are_shares_of_48_bars_and_go_on_above_1():
    env = batch(1, scenario=market(np.full((70, 1), 100.0)), hold_limit=0)
    env.reset(seed=0)
    for step in range(61):
        obs, *_ = env.step(torch.full((1,), 0.5 if step == 0 else 0.0))
    assert obs[0, 2].item() == pytest.approx(60 / 48, rel=1e-7)


def test_the_generated_market_is_the_default():
    env = envs.make("crypto_trading", 1, check_actions=False)
    np.testing.assert_array_equal(env.market.close, generate("small").close)
    assert env.single_observation_space.shape == (1 + 3 * 10 + 70,) and env.max_episode_steps == 1999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assets": 3}, "assets=3 must be left out: it follows from scenario and observe"),
        ({"preset": "finrl-crypto", "write_back": True}, "write_back=True must be False here: a batch does not write"),
        ({"observe": "bars"}, "observe='bars' must be one of"),
        ({"market": "bootstrap", "scenario_seed": -1}, "^scenario_seed=-1 must be an integer from 0 to"),
        ({"window": [0, 1]}, r"window\[0\]: window \[0, 1\) has 1 bars, must have at least 2"),
        ({"window": [[0, 30], [10, 11]]}, r"window\[1\]: window \[10, 11\) has 1 bars"),
        ({"window": [0, 91]}, "window: end=91 must be an integer from 1 to 90"),
        ({"window": [0.5, 30]}, r"window has shape \(2,\) and type float64; needed: integers \[B, 2\] or \[2\]"),
        ({"window": [[0, 30]] * 3}, "window has 3 rows; a batch of 2 needs one, or one for each"),
        ({"window": [0, 30], "starts": "random"}, "window must be None where starts='random', which draws them"),
        ({"window": [[0, 30], [5]]}, r"window=\[\[0, 30\], \[5\]\] must be integers \[B, 2\] or \[2\]"),
        ({"window": np.zeros((0, 2), int)}, r"window has shape \(0, 2\) and type int64; needed: integers"),
        ({"per_lane": {"fee": [0.1]}}, "per_lane has no 'fee'; allowed: fee_buy, fee_sell, slippage, spending, order_"),
        ({"per_lane": [0.1, 0.2]}, r"per_lane=\[0.1, 0.2\] must be numbers \[B\] by name, as {'slippage': "),
        ({"per_lane": {"slippage": "much"}}, r"per_lane: slippage holds <U4, must be numbers \[B\]"),
        ({"per_lane": {"slippage": [[0.0, 0.1]]}}, r"per_lane: slippage has shape \(1, 2\), must have \[B\]"),
        ({"per_lane": {"slippage": []}}, r"per_lane: slippage has shape \(0,\), must have \[B\]"),
        ({"per_lane": {"slippage": [True, False]}}, r"per_lane: slippage holds bool, must be numbers"),
        ({"per_lane": {"slippage": [0.0, 1.0]}}, r"per_lane: slippage\[1\]=1.0 must be less than 1"),
        ({"per_lane": {"order_share": [10**400]}}, "per_lane: order_share holds object, must be numbers"),
        ({"per_lane": {5: [0.1], "a": [0.1]}, "preset": "finrl-crypto"}, r"per_lane=\[5, 'a'\] needs rules='clean'"),
        ({"per_lane": {"fee_buy": [0.1, 1.5]}}, r"per_lane: fee_buy\[1\]=1.5 must be at most 1"),
        ({"per_lane": {"spending": [0.0]}}, r"per_lane: spending\[0\]=0.0 must be positive"),
        ({"per_lane": {"order_share": [np.inf]}}, r"per_lane: order_share\[0\]=inf must be a finite number"),
        ({"per_lane": {"slippage": [0.1] * 3}}, "slippage has 3 rows; a batch of 2 needs one, or one for each"),
        ({"per_lane": {"slippage": [0.1]}, "preset": "finrl-crypto"}, r"per_lane=\['slippage'\] needs rules='clean'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_with_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        batch(2, **options)


def test_a_warning_says_of_which_asset_no_action_orders_enough():
    with pytest.warns(UserWarning, match="an action of 1 orders .* must be more than its minimum"):
        batch(1, preset="cappuccino", norm_action=1e7, scenario=MARKET)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_total_loss_is_that_of_the_original(dtype):
    """All of V and of E is lost at a price of 0, of 10^-12 C each a logarithm then counts; and the price comes back."""
    given = market([100.0, 100.0, 50.0, 0.0, 0.0, 100.0, 100.0])
    options = {"order_share": 1.0, "spending": 1.0, "value_floor": 0.0, "fee_buy": 0.0, "fee_sell": 0.0}
    for reward in ("log", "excess_log"):
        env = batch(1, scenario=given, reward=reward, dtype=dtype, **options)
        one = make(scenario=given, reward=reward, **options)
        env.reset(seed=0)
        one.reset()
        for u in (1.0, 0.0, 0.0, 0.0, 0.5, 0.0):
            obs, found, terminated, truncated, info = env.step(torch.tensor([u]))
            seen, expected, *flags, told = one.step(np.array([u], np.float32))
            assert found.item() == pytest.approx(expected, rel=1e-4, abs=3e-4)
            assert (info["final_obs"] if flags[1] else obs)[0].tolist() == pytest.approx(seen.tolist(), rel=1e-6)
            assert info["turnover"].item() == pytest.approx(told["turnover"], rel=1e-6)
            assert [terminated.item(), truncated.item()] == flags


def test_a_window_that_the_market_does_not_have_is_no_state():
    env = batch(5, scenario=generate("tiny"))
    for field, value, allowed in (("first", 400, "0 .. 399"), ("last", 401, "1 .. 400"), ("last", 0, "1 .. 400")):
        with pytest.raises(ValueError, match=f"set_state: {field}={value} of environment 0 must be in {allowed}"):
            env.set_state({field: value})
    for field, value in (("cash", -2.0), ("value", -1e9), ("benchmark", -5.0)):
        with pytest.raises(ValueError, match=f"set_state: {field}={value} of environment 0 must be "):
            env.set_state({field: value})
    env.set_state({"cash": -0.5})  # by the rounding of a purchase that takes all
