"""Actions that are replayed in the place of those that a step is given."""

import warnings

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.crypto_trading import streams
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.crypto_trading.policies import play
from tests.contract.batches import equal
from tests.envs.crypto_trading.batches import MARKET, SEGMENTED
from tests.envs.crypto_trading.worlds import market

SLOW = pytest.mark.slow
BATCHES = {  # and steps of their longest episode
    "clean": ({"scenario": SEGMENTED, "stop": 0.04}, 49),
    "random starts": ({"scenario": SEGMENTED, "starts": "random", "episode_bars": 15}, 15),
    "cappuccino": ({"scenario": MARKET, "preset": "cappuccino"}, 80),
}


def batch(num_envs: int, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no action of some asset reaches its minimum
        return envs.make("crypto_trading", num_envs, **options)


def actions(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, (*shape, 3)).astype(np.float32)


@pytest.mark.parametrize("each", [True, pytest.param(False, marks=SLOW)])
@pytest.mark.parametrize("case", ["clean", *(pytest.param(case, marks=SLOW) for case in [*BATCHES][1:])])
def test_a_roll_out_of_replayed_actions_is_the_steps_of_these(case, each):
    """Episode by episode, of environments whose episodes differ in length."""
    options, K = BATCHES[case]
    given = actions(5, K) if each else actions(K)
    replayed, told = batch(5, replay=given, **options), batch(5, **options)
    for env in (replayed, told):
        env.reset(seed=4)
    ours, rewards = replayed.rollout(2 * K + 3, store="trajectory"), []
    for _ in range(2 * K + 3):
        elapsed = told.state()["elapsed"].long().numpy()
        rewards.append(told.step(given[np.arange(5), elapsed] if each else given[elapsed])[1].clone())
    assert torch.equal(ours["reward"], torch.stack(rewards))
    assert equal([*replayed.fields().values()], [*told.fields().values()])


@pytest.mark.parametrize("preset", ["clean", pytest.param("finrl-crypto", marks=SLOW)])
def test_random_actions_of_their_stream_are_the_rule_of_that_name(preset):
    """V after each bar of the kernel's roll-out, against the original's account."""
    params = make_params(preset, reachable="warn")
    first, steps = params.lookback - 1, params.steps(MARKET.bars)
    lanes, bars = np.arange(3)[:, None], first + np.arange(steps)
    options = {"preset": preset, "scenario": MARKET, "reachable": "warn", "dtype": "float64"}
    env = batch(3, replay=streams.random_rule(5, lanes, bars, 3), **options)
    env.reset(seed=0)
    for k in range(steps - 1):
        env.step(torch.zeros(3, 3))
        found = env.fields()["value"].numpy()
        if k % 20 == 0 or k == steps - 2:
            expected = [play("random", params, MARKET, seed=5, lane=lane)[k + 1] for lane in range(3)]
            assert found.tolist() == pytest.approx(expected, abs=1e-9 * params.capital)


def test_actions_of_lanes_and_bars_are_those_of_each():
    found = streams.random_rule(7, np.arange(4)[:, None], np.arange(6), 10)
    assert found.shape == (4, 6, 10)
    assert np.array_equal(found[3, 5], streams.random_rule(7, 3, 5, 10))


def test_one_asset_may_be_replayed():
    env = batch(2, scenario=market([100.0, 100.0, 200.0]), replay=[[1.0], [0.0]], hold_limit=0)
    env.reset(seed=0)
    *_, told = env.step(torch.zeros(2))
    assert told["turnover"].tolist() == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replay": np.zeros((89, 2))}, r"replay has shape \(89, 2\), must be numbers \[K, 3\] or \[B, K, 3\]"),
        ({"replay": np.zeros((88, 3))}, r"replay has shape \(88, 3\), must be .*, K at least 89, an episode's steps"),
        ({"replay": np.zeros((0, 89, 3))}, r"replay has shape \(0, 89, 3\)"),
        ({"replay": np.zeros((3, 89, 3))}, "replay has 3 rows; a batch of 2 needs one, or one for each"),
        ({"replay": np.full((89, 3), 1.5)}, r"replay\[0, 0, 0\]=1.5 must be from -1 to 1"),
        ({"replay": np.full((2, 89, 3), np.nan)}, r"replay\[0, 0, 0\]=nan must be from -1 to 1"),
        ({"replay": "much"}, r"replay holds <U4, must be numbers \[K, 3\]"),
        ({"replay": [[0.0], [0.0, 0.1]]}, r"replay=.* must be numbers \[K, 3\]"),
        ({"replay": np.zeros((89, 3), complex)}, r"replay holds complex128, must be numbers \[K, 3\]"),
        (
            {"replay": np.full((99, 3), np.arange(99)[:, None] // 90 * 9.0)},
            r"replay\[0, 90, 0\]=9.0 must be from -1 to",
        ),
        ({"replay": np.zeros((89, 3)), "rule": "hold"}, "replay must be None where a rule orders"),
    ],
)
def test_what_cannot_be_replayed_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        batch(2, scenario=MARKET, **options)
