"""Products in bfloat16: what enters and leaves a network, and its gradient, stay float32."""

import pytest
import torch

from lockstep.agents.parts import precision
from lockstep.agents.parts.duelling import NoisyDuelling
from lockstep.agents.parts.encoder import Encoder, network_of
from lockstep.agents.parts.mlp import MLP
from lockstep.agents.parts.quantiles import QuantileNetwork
from lockstep.agents.run.observation import Part
from tests.agents.graphs import OFF_POLICY, made
from tests.agents.worlds import normal

CPU, ROWS, N, M = torch.device("cpu"), 40, 6, 2
PARTS = [Part((1.0, 2.0)), Part((1.0, 2.0), slots=2)]


def encoded(actions: int):
    return network_of(Encoder(PARTS, 24, False, False, CPU), N, (24, 32, 32), 3, CPU, 0, actions)


NETWORKS = {
    "layers": lambda: MLP([N, 32, 32, 3], CPU),
    "encoded": lambda: encoded(0),
    "quantiles": lambda: QuantileNetwork(N, 3, 32, (32, 32), CPU),
    "duelling": lambda: NoisyDuelling(N, 3, 5, 32, (32,), 0.5, CPU),
}


def passed(network):
    """Outputs [ROWS, ...] and the gradient of half their squares' sum."""
    if isinstance(network, NoisyDuelling):
        network.sample_noise(torch.Generator().manual_seed(2))
    fractions = torch.rand(ROWS, 8, generator=torch.Generator().manual_seed(3))
    given = (normal(ROWS, N, seed=1), *([fractions] if isinstance(network, QuantileNetwork) else []))
    kept = network.activations(*given)
    combined = getattr(network, "combined", None)
    out = kept.quantiles if hasattr(kept, "quantiles") else combined(kept) if combined else kept[-1]
    network.backward(kept, out.clone())
    return out, network.gradient.clone()


@pytest.mark.parametrize("name", NETWORKS)
def test_products_are_rounded_and_nothing_else(name):
    one, other = NETWORKS[name](), NETWORKS[name]()
    other.multiply("bf16")
    exact, rough = passed(one), passed(other)
    for right, near in zip(exact, rough, strict=True):
        assert near.dtype == torch.float32 and not torch.equal(near, right)
        assert (near - right).norm() < 0.02 * right.norm()
    other.multiply("fp32")
    assert name != "layers" or other.in_cpp
    for right, same in zip(exact, passed(other), strict=True):
        torch.testing.assert_close(same, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_a_run_may_have_it(name):
    runs = [made(name, {"precision": kind}) for kind in ("fp32", "bf16")]
    for run in runs:
        for _ in range(8):
            run.iterate()
    one, other = (next(iter(run.weights().values())) for run in runs)
    assert other.isfinite().all() and not torch.equal(one, other)
    assert (one - other).norm() < 0.1 * one.norm()
    assert runs[1].to_act(runs[1].config).precision == "fp32"


@pytest.mark.parametrize("name", OFF_POLICY)
def test_what_a_cpu_has_not_is_refused(name):
    with pytest.raises(ValueError, match=r"^precision='tf32' needs device='cuda'; the cpu has 'fp32' and 'bf16'$"):
        made(name, {"precision": "tf32"})


def test_what_holds_within_holds_no_longer_after():
    x = torch.ones(2, 2)
    with precision.arithmetic("bf16", CPU):
        assert (x @ x).dtype == torch.bfloat16
    with precision.arithmetic("fp32", CPU):
        assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32
