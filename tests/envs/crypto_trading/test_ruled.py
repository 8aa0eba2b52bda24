"""Rules without learning in the place of actions: port against original, and against actions that order the same."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.original.ruled import NAMES, REBALANCED
from lockstep.envs.crypto_trading.params import PRESETS
from tests.contract.batches import equal
from tests.envs.crypto_trading.batches import PLANTED, QUIET, TOLERANCE, pair
from tests.envs.crypto_trading.test_parity import walk
from tests.envs.crypto_trading.worlds import random_market

RULES = NAMES[1:]
SIGN = np.where(np.arange(330) // 25 % 2, -1, 1)
FOUR = random_market(10, bars=330, assets=4, signal=SIGN)
TWICE = 2 * 329  # steps of two episodes on 330 bars


def walked(preset: str, dtype: str, restarted: bool, steps: int = TWICE):
    """Steps of a batch with a rule for each environment, and of originals, on actions that are to order nothing."""
    rules = [*RULES, "none"]
    return walk(*pair(len(rules), preset, PLANTED, dtype, rules), dtype, restarted, steps)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("preset", ["clean", *(pytest.param(name, marks=pytest.mark.slow) for name in [*PRESETS][1:])])
def test_whole_episodes_of_rules_are_the_originals(preset, dtype, restarted):
    assert walked(preset, dtype, restarted) >= 2 * len(RULES)


# ---- bit for bit: κ/N and the shares of actions are powers of two times 3, so that no product of them is rounded

SHARE = {"scenario": FOUR, "spending": 0.75, "order_share": 0.75 / 4, "check_actions": False}
BUY, KEEP, WEIGH, LEAVE = 1.0, 0.0, 2 * 0.75 / 4 - 1, -1.0  # of "notional" the first two, of "target_weight" the others
ORDERS = ("notional", "target_weight")


def actions(rule: str, t: int, state: dict, lane: int) -> tuple[bool, np.ndarray]:
    """The action [N] that orders what a rule does after t steps, and whether it is of "target_weight"."""
    if rule == "hold":
        return False, np.full(4, BUY if t == 0 else KEEP)
    if rule == "equal_weight" and t % REBALANCED == 0:
        return True, np.full(4, WEIGH)
    if rule == "reference" and SIGN[t] < 0:
        return True, np.full(4, LEAVE)
    if rule == "reference":
        return False, np.where(state["holdings"][lane] == 0, BUY, KEEP)
    return False, np.full(4, KEEP)


def rows(env) -> dict[str, np.ndarray]:
    whole = env.state()
    return {name: array.numpy().copy() for name, array in env.fields().items()} | {
        name: whole[name].numpy().copy() for name in ("elapsed", "episode")
    }


def acted(dtype: str, steps: int) -> tuple[np.ndarray, dict]:
    """Rewards [steps, B] and last states of environments that are told by actions what RULES would order.

    A step is made from one state under both kinds of orders, and each environment goes on with its own.
    """
    both = [envs.make("crypto_trading", len(RULES), orders=orders, dtype=dtype, **SHARE) for orders in ORDERS]
    for env in both:
        env.reset(seed=0)
    state, rewards = rows(both[0]), []
    for _ in range(steps):
        told = [actions(rule, int(state["elapsed"][lane]), state, lane) for lane, rule in enumerate(RULES)]
        weighs, given = np.array([own for own, _ in told]), torch.from_numpy(np.array([u for _, u in told]))
        found = []
        for env in both:
            env.set_state(state)
            reward = env.step(given)[1].numpy().copy()
            found.append(rows(env) | {"reward": reward})
        state = {
            name: np.where(weighs.reshape(-1, *[1] * (one.ndim - 1)), found[1][name], one)
            for name, one in found[0].items()
        }
        rewards.append(state.pop("reward"))
    return np.array(rewards), state


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_roll_out_of_a_rule_is_bit_for_bit_the_steps_of_actions_that_order_the_same(dtype):
    env = envs.make("crypto_trading", len(RULES), rule=RULES, dtype=dtype, **SHARE)
    env.reset(seed=0)
    ours = np.concatenate([env.rollout(steps, store="trajectory")["reward"].numpy().copy() for steps in (500, 158)])
    theirs, state = acted(dtype, TWICE)
    assert np.array_equal(ours, theirs) and np.unique(ours[:300], axis=1).shape[1] == len(RULES)
    assert all(np.array_equal(rows(env)[name], state[name]) for name in state)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_rule_for_all_is_that_of_each_and_a_roll_out_leaves_what_steps_leave(dtype):
    together = envs.make("crypto_trading", len(RULES), rule=RULES, dtype=dtype, **SHARE)
    together.reset(seed=0)
    for _ in range(40):
        together.step(together.random_actions()[0])
    for lane, rule in enumerate(RULES):
        alone = envs.make("crypto_trading", 1, rule=rule, dtype=dtype, **SHARE)
        alone.reset(seed=0)
        alone.rollout(40)
        assert equal([field[0] for field in alone.fields().values()], [f[lane] for f in together.fields().values()])


@pytest.mark.parametrize(
    ("rule", "scenario", "message"),
    [
        ("buy", QUIET, "rule='buy' must be one of 'none', 'hold', 'equal_weight', 'cash', 'reference'"),
        (None, QUIET, "rule=None must be one of 'none'"),
        ("reference", QUIET, "rule='reference' needs a market with a planted sign, as generate"),
    ],
)
def test_a_rule_that_cannot_be_played_is_refused(rule, scenario, message):
    with pytest.raises(ValueError, match=message):
        make(scenario=scenario, rule=rule)
    with pytest.raises(ValueError, match=message):
        envs.make("crypto_trading", 2, scenario=scenario, rule=rule)


@pytest.mark.parametrize("rules", [["hold"] * 3, ["none"] * 3, []])
def test_rules_of_another_number_than_the_environments_are_refused(rules):
    message = f"rule has {len(rules)} rows; a batch of 2 needs one, or one for each"
    with pytest.raises(ValueError, match=message):
        envs.make("crypto_trading", 2, scenario=QUIET, rule=rules)
