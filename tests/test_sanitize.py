"""The driver of compute-sanitizer: it launches every kernel, and says what stands in its way."""

import ctypes
import re
import sys

import pytest
import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.kernels import compile
from tests import sanitize

SEVERAL_LANES = [name for name in envs.names() if sanitize.several_lanes(name)]


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("pendulum", *SEVERAL_LANES)), sanitize.AGENTS]
)
def test_every_kernel_is_launched(name, monkeypatch):
    """Of several lanes, in the builds that differ in kernels: each way of going on after an episode."""
    if name in SEVERAL_LANES:
        monkeypatch.setattr(sanitize, "SPECIAL", {})
        small = {"vehicles": 20, "slots": 12, "edges": 4, "components": 5}
        monkeypatch.setattr(sanitize, "SEVERAL_LANES", sanitize.SEVERAL_LANES | small)
    monkeypatch.setattr(sanitize, "HIDDEN", (16, 16))  # the widest takes long to compile
    before = launch.cpu
    assert sanitize.exercise("cpu", [name]) > 0
    assert launch.cpu is before


@pytest.mark.slow
def test_a_kernel_that_is_left_out_is_named(monkeypatch):
    monkeypatch.setattr(sanitize, "roll_out", lambda env, hidden: env.rollout(3))
    with pytest.raises(SystemExit, match=r"pendulum: never launched: rollout_linear_statistics, .*_trajectory$"):
        sanitize.exercise("cpu", ["pendulum"])


def test_kernels_are_looked_for_in_binaries_of_the_device_itself(monkeypatch):
    """Another architecture's would be compiled anew for each unit."""
    asked, entry_points = set(), compile.entry_points
    monkeypatch.setattr(compile, "entry_points", lambda text, target: asked.add(target) or entry_points(text, target))
    monkeypatch.setattr(sanitize, "target", lambda device: {"cpu": "sm_80"}[device])
    sanitize.exercise("cpu", [sanitize.AGENTS])
    assert asked == {"sm_80"}


def test_the_target_is_the_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    assert (sanitize.target("cuda"), sanitize.target("cpu")) == ("sm_120", compile.TARGETS[-1])


def test_canaries_change_nothing_where_nothing_is_written_beside_a_tensor():
    assert sanitize.exercise("cpu", [sanitize.AGENTS], canaries=True) > 0


BESIDE = 'extern "C" void beside(float* x, long n) { x[n] = 1; x[-2] = 1; }'


def test_what_a_kernel_writes_beside_a_tensor_is_found(monkeypatch):
    """One float behind ten of them, and one 8 bytes before."""

    def agents(device):
        torch.zeros(3, dtype=torch.uint16)
        numbers = torch.full((2, 5), 4.0)
        assert numbers.data_ptr() % 64 == 0 and numbers.sum() == 40
        write = compile.library(BESIDE).beside
        write(ctypes.c_void_p(numbers.data_ptr()), ctypes.c_long(10))

    monkeypatch.setattr(sanitize, "agents", agents)
    with pytest.raises(SystemExit) as ended:
        sanitize.exercise("cpu", [sanitize.AGENTS], canaries=True)
    where = r"float32 \[2, 5\] of test_sanitize\.py:\d+"
    assert re.fullmatch(rf"sanitize: agents: written: 5 bytes before {where}; 1 bytes behind {where}", str(ended.value))


def test_the_buffers_of_a_batch_stand_between_canaries():
    canaries = sanitize.Canaries()
    with canaries:
        env = sanitize.small("pendulum", "cpu")
    for name in ("state", "reward", "elapsed"):
        ctypes.memset(env._buffers[name].data_ptr() - 1, 0, 1)
    assert len([line for line in canaries.changed() if line.startswith("1 bytes before")]) == 3
    assert canaries.changed() == []


@pytest.mark.parametrize(
    ("output", "status", "clean"),
    [
        ("========= ERROR SUMMARY: 0 errors\n", 0, True),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, True),
        ("========= RACECHECK SUMMARY: 10 hazards displayed (0 errors, 10 warnings)\n", 0, False),
        ("========= ERROR SUMMARY: 0 errors\n", 1, False),
        ("========= Error: Device not supported\n", 0, False),
    ],
)
def test_only_a_summary_without_findings_is_clean(tmp_path, output, status, clean):
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\nprintf '{output.encode('unicode_escape').decode()}'\nexit {status}\n")
    program.chmod(0o755)
    assert sanitize.watched("memcheck", str(program), ["cartpole"]) is clean


@pytest.mark.skipif(envs.cuda_available(), reason="has a GPU")
def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sanitize"])
    with pytest.raises(SystemExit, match="no usable CUDA device; --device cpu runs the kernels without one"):
        sanitize.main()
