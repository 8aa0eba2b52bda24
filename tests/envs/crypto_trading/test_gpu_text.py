"""The GPU's form of the kernel, run without a GPU: its threads leave the bits of the CPU's form."""

import numpy as np
import pytest
import torch
from torch import nn

from lockstep import envs
from lockstep.envs.batch.buffers import BY_TILE
from tests.contract.batches import MODES, equal
from tests.emulator import gpu
from tests.envs.crypto_trading.batches import PLANTED, SEGMENTED
from tests.envs.crypto_trading.worlds import market
from tests.envs.test_gpu_text import ORDERS

SLOW = pytest.mark.slow
CASES = {
    "clean": {"stop": 0.04, "slippage": 1e-3, "starts": "random", "episode_bars": 9},
    "cappuccino": {"preset": "cappuccino", "window": [3, 20], "reachable": "error"},
    "open": {"fill": "next_open", "impact": 0.1, "orders": "target_weight", "observe": "index"},
    "replayed": {"replay": np.random.default_rng(1).uniform(-1, 1, (70, 49, 3))},
    "ruled": {"rule": ["hold", "equal_weight", "cash", "reference", "none"] * 14, "scenario": PLANTED},
}


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def every_kernel(env) -> dict[str, torch.Tensor]:
    """All that a batch has written after all that it can do, as bytes."""
    env.reset(seed=3)
    for _ in range(12):
        env.step(env.random_actions()[0])
    env.reset(options={"reset_mask": np.arange(env.num_envs) % 4 == 1})
    found = {}
    if env.autoreset_mode.value == "SameStep":
        env.rollout(11)
        found = {name: rows.view(torch.uint8).clone() for name, rows in env.rollout(11, store="trajectory").items()}
        found["bfloat16"] = env.rollout(11, store="trajectory", obs_dtype="bfloat16")["obs"].view(torch.uint8).clone()
    env.set_state({"age": np.full((env.num_envs, 3), 47)})
    env.step(env.random_actions()[0])
    own = {name: b for name, b in env._buffers.items() if b.numel() and name not in BY_TILE}  # tiles differ in size
    return found | env.statistics() | {name: b.contiguous().view(torch.uint8).clone() for name, b in own.items()}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=SLOW) for mode in MODES[1:])])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=SLOW)])
@pytest.mark.parametrize("case", ["clean", *(pytest.param(case, marks=SLOW) for case in CASES if case != "clean")])
def test_threads_give_the_bits_of_vectors(case, dtype, mode, order):
    options = {"scenario": SEGMENTED, "check_actions": False, "dtype": dtype, "autoreset_mode": mode} | CASES[case]
    both = envs.make("crypto_trading", 70, **options), gpu.make("crypto_trading", 70, order=order, **options)
    assert equal(*map(every_kernel, both))


def test_a_network_that_a_block_has_no_room_for_is_refused_before_it_is_compiled():
    def network(hidden: int, inputs: int):
        first, second, last = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        return envs.MLP(nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last))

    close, features = np.linspace(100.0, 110.0, 40), np.random.default_rng(0).normal(size=(40, 11))
    options = {"scenario": market(close, features, mean=[0.0] * 11, std=[1.0] * 11), "check_actions": False}
    on_cpu, emulated = envs.make("crypto_trading", 70, **options), gpu.make("crypto_trading", 70, **options)
    assert emulated.policy_shape == (1, 15)
    widths = (16, 32, 64, 128)
    assert [env.carries(width) for env in (on_cpu, emulated) for width in widths] == [
        *[True] * 3,
        False,
        True,
        True,
        False,
        False,
    ]
    emulated.reset()
    said = (
        "64 hidden units over 15 observation numbers .* has room for 14 numbers; take 16 or 32 units, or step the env"
    )
    for ask in (emulated.rollout, emulated.rollout_buffers):
        with pytest.raises(ValueError, match=said):
            ask(3, network(64, 15))
    assert set(emulated.rollout_buffers(3, network(16, 15))) >= {"obs", "log_prob"}
