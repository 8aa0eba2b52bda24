"""The GPU's form of the roll-out's kernels, run without a GPU: it leaves the bits of the CPU's form."""

import pytest
import torch

from lockstep.agents.parts import kernels
from lockstep.agents.parts.gae import GAE
from lockstep.agents.parts.minibatches import MinibatchOrder
from lockstep.agents.parts.noise import Noise
from lockstep.agents.parts.normaliser import ReturnScale
from tests.emulator import gpu

T, N = 33, 150  # steps and columns; the last block is not full


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def devices(order: str) -> tuple:
    return "cpu", gpu.Device(order)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def iteration(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Reward [T, N], value [T + 1, N] and bootstrap [T, N]; flags terminated, truncated and valid [T, N]."""
    generator = torch.Generator().manual_seed(seed)
    numbers = [torch.randn(rows, N, generator=generator) for rows in (T, T + 1, T)]
    terminated, truncated, absent = (torch.rand(T, N, generator=generator) < share for share in (0.1, 0.1, 0.3))
    return *numbers, terminated, truncated, ~absent


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize(("envs", "agents", "blocks", "steps"), [(150, 3, 2, 7), (2, 1, 1, 1), (512, 1, 1, 2)])
def test_noise_has_the_bits_of_the_cpus_form(envs, agents, blocks, steps, order):
    clock = torch.tensor([2**32 - 3])
    options = {"first_index": 5, "agents": agents, "blocks": blocks, "steps": steps}
    one, other = (Noise([1, 2**64 - 1], envs, device=device, **options).draw(clock) for device in devices(order))
    assert same(one, other)


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize("rows", [1, 256, 1000])
def test_orders_of_minibatches_have_the_bits_of_the_cpus_form(rows, order):
    one, other = (MinibatchOrder([1, 2], rows, 3, device).draw(torch.tensor([7])) for device in devices(order))
    assert same(one, other)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("order", gpu.ORDERS)
def test_advantages_have_the_bits_of_the_cpus_form(order, masked):
    *given, valid = iteration()
    one, other = (
        GAE((T, N), [0.9, 0.95], [0.8, 0.7], device).compute(*given, valid if masked else None)
        for device in devices(order)
    )
    assert all(map(same, one, other))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("order", gpu.ORDERS)
def test_discounted_returns_have_the_bits_of_the_cpus_form(order, masked):
    scales = [ReturnScale(N, 0.9, device=device) for device in devices(order)]
    for seed in range(3):  # what runs on is used
        reward, _, _, terminated, truncated, valid = iteration(seed)
        one, other = (scale(reward, terminated, truncated, valid if masked else None) for scale in scales)
        assert same(one, other)
        assert same(scales[0].running, scales[1].running)


def test_every_kernel_is_run(monkeypatch):
    monkeypatch.setattr(gpu, "launched", {})
    test_noise_has_the_bits_of_the_cpus_form(2, 1, 1, 1, "ascending")
    test_orders_of_minibatches_have_the_bits_of_the_cpus_form(1, "ascending")
    for masked in (False, True):
        test_advantages_have_the_bits_of_the_cpus_form("ascending", masked)
        test_discounted_returns_have_the_bits_of_the_cpus_form("ascending", masked)
    assert gpu.launched == {kernels.unit("cuda"): set(gpu.compiled(kernels.unit("cuda")).kernels)}


# Faults that must show: what is replaced in the unit, by what, and the test that notices.
FAULTS = {
    "noise beyond the last number": ("if (item >= n.count) return;", "", "noise"),
    "noise of the step before": ("u32(clock + t), c3 = STREAM_SAMPLING", "u32(clock), c3 = STREAM_SAMPLING", "noise"),
    "rows beyond the last": ("if (position >= o.rows) return;", "", "order"),
    "signed keys that sort otherwise": ("int(c0 ^ 0x80000000u)", "int(c0)", "order"),
    "columns one short": ("if (column >= N) return;", "if (column >= N - 1) return;", "advantage"),
    "rows in another order": ("t = call.steps - 1; t >= 0; t--", "t = 0; t < call.steps; t++", "advantage"),
    "running returns not kept": ("    c.running[column] = running;\n", "", "returns"),
}
NOTICED = {
    "noise": lambda order: test_noise_has_the_bits_of_the_cpus_form(150, 3, 2, 7, order),
    "order": lambda order: test_orders_of_minibatches_have_the_bits_of_the_cpus_form(1000, order),
    "advantage": lambda order: test_advantages_have_the_bits_of_the_cpus_form(order, False),
    "returns": lambda order: test_discounted_returns_have_the_bits_of_the_cpus_form(order, True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(monkeypatch, fault):
    right, wrong, noticed = FAULTS[fault]
    monkeypatch.setitem(globals(), "devices", lambda order: ("cpu", gpu.Device(order, (right, wrong))))
    with pytest.raises((AssertionError, gpu.EmulationError)):
        NOTICED[noticed]("ascending")
