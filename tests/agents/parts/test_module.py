"""Greedy policies as modules give the same actions once they are exported."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import nn

from lockstep.agents.parts import distributions
from lockstep.agents.parts.module import Greedy, sequential
from tests.agents.exports import exported, in_onnx, program

SPACES = {
    "discrete": Discrete(3),
    "many": Discrete(300),
    "equal choices": MultiDiscrete([3, 3]),
    "choices": MultiDiscrete([2, 4, 3]),
    "box": Box(np.float32([-0.5, -1.5]), np.float32([0.25, 1.0])),
}


@pytest.mark.parametrize(
    ("space", "normalises"),
    [
        *((space, True) for space in SPACES),
        *(pytest.param(space, False, marks=[pytest.mark.slow] * (space != "choices")) for space in SPACES),
    ],
)
def test_an_exported_policy_acts_as_its_module_does(space, normalises, tmp_path):
    generator = torch.Generator().manual_seed(0)
    distribution = distributions.of(SPACES[space])
    widths = [(8, 4), (distribution.outputs, 8)]
    layers = [(torch.randn(shape, generator=generator), torch.randn(shape[0], generator=generator)) for shape in widths]
    shift_scale = torch.randn(2, 4, generator=generator).exp() if normalises else ()
    module = Greedy(sequential(layers, nn.Tanh), distribution, *shift_scale)
    obs = 3 * torch.randn(50, 4, generator=generator)
    made = program(module, obs)  # before the module itself has run
    expected = module(obs)
    assert len(expected.unique(dim=0)) > 1
    for found in (exported(made, obs, tmp_path), in_onnx(made, obs, tmp_path)):
        assert found.dtype == expected.dtype
        if space == "box":
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(found, expected)
