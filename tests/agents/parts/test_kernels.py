"""The kernels of rollout.cuh: compiled for the GPU, and their structs as Python fills them."""

import ctypes

import numpy as np
import pytest
import torch

from lockstep.agents.parts import kernels
from lockstep.envs.kernels import compile, structs

NAMES = {"noise", "order", "advantage", "advantage_of_valid", "returns", "returns_of_valid"}


@pytest.mark.usefixtures("either_nvrtc")
@pytest.mark.parametrize("target", compile.TARGETS)
def test_every_kernel_compiles_for_the_gpu_without_spilling_registers(target):
    rows = compile.resources(kernels.unit("cuda"), target)
    assert {used["kernel"] for used in rows} == NAMES
    for used in rows:
        assert used["spill_store_bytes"] == used["spill_load_bytes"] == used["stack_bytes"] == 0, used
        assert 0 < used["registers"] <= 64, used  # so that a multiprocessor's registers hold 1,024 threads


def test_the_python_side_reads_every_field_of_the_structs():
    counts = {"Noise": 8, "NoiseCall": 1, "Order": 5, "OrderCall": 1, "Columns": 7, "ColumnsCall": 8}
    for name, count in counts.items():
        made = kernels.struct(name)
        assert len(made._fields_) == count and ctypes.sizeof(made) == 8 * count
    assert [field for field, _ in kernels.struct("ColumnsCall")._fields_][:3] == ["steps", "reward", "value"]


def test_a_struct_holds_numbers_and_the_addresses_of_tensors():
    running = torch.zeros(3)
    made = kernels.struct("Columns", columns=3, running=running)
    structs.fill(made, per_part=1)
    assert np.frombuffer(made, dtype=np.int64).tolist() == [0, 0, 3, 1, 0, 0, running.data_ptr()]


def test_threads_are_as_many_as_the_work_is_worth():
    assert [kernels.threads_for(work, 4) for work in (1, 20_000, 40_000, 10**7)] == [1, 1, 2, 4]
    with pytest.raises(ValueError, match="threads=1025 must be an integer from 1 to 1024"):
        kernels.threads_for(1, 1025)
