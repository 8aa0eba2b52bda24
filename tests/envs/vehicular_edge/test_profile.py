"""A build that counts the cycles of its stages plays the same episodes."""

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.kernels import compile
from tests.envs.batches import same

OPTIONS = {"vehicles": 20, "traffic": "dense", "scenarios": 2}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("preset", ["original", "physical"])
def test_counting_cycles_changes_no_bit_and_the_stages_make_the_step(preset, device):
    plain, counting = (
        envs.make("vehicular_edge", 5, device, preset=preset, profile=profile, **OPTIONS) for profile in (False, True)
    )
    plain.reset(seed=1)
    counting.reset(seed=1)
    for action in plain.random_actions(plain.params.slots + 2):
        plain.step(action)
        counting.step(action)
        found = counting.cycles()
        assert list(found) == ["decide", "noma", "queues", "rest"]
        assert all((cycles > 0).all() for cycles in found.values())
        whole = counting._buffers["metrics"][:, -1]
        np.testing.assert_allclose(sum(found.values()).cpu(), whole.cpu(), rtol=1e-6)
    assert same(plain.state(), counting.state())


@pytest.mark.slow
def test_the_counting_build_compiles_for_the_gpu():
    port, folder = envs.port("vehicular_edge"), envs.folder("vehicular_edge")
    world = port.world(port, "original", {}, scenarios=1, profile=True)
    assert compile.resources(port.unit(folder, world, mode="SameStep", dtype="float32", limit=50, tile=1), "sm_90")
