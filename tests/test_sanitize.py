"""The driver of sanitizers: it launches every kernel, finds what is planted, and says what stands in its way."""

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
        own = {key: value for key, value in small.items() if hasattr(envs.port(name).params, key)}
        monkeypatch.setattr(sanitize, "SEVERAL_LANES", sanitize.SEVERAL_LANES | own)
    monkeypatch.setattr(sanitize, "HIDDEN", (16, 16))  # the widest takes long to compile
    before = launch.cpu
    assert sanitize.exercise("cpu", [name]) > 0
    assert launch.cpu is before


@pytest.mark.slow
def test_a_kernel_that_is_left_out_is_named(monkeypatch):
    monkeypatch.setattr(sanitize, "roll_out", lambda env, hidden: env.rollout(3))
    with pytest.raises(SystemExit, match=r"pendulum: never launched: rollout_linear_statistics, .*_trajectory$"):
        sanitize.exercise("cpu", ["pendulum"])


def test_what_agents_learn_by_is_missed_where_it_is_not_called(monkeypatch):
    monkeypatch.setattr(sanitize, "HIDDEN", (16, 16))
    monkeypatch.setattr(sanitize.Adam, "step", lambda adam, lr: None)
    monkeypatch.setattr(sanitize, "update_of_ppo", lambda distribution, hidden: None)
    with pytest.raises(SystemExit, match="agents: never launched: adam_limited$"):
        sanitize.exercise("cpu", [sanitize.AGENTS])


def test_kernels_are_looked_for_in_binaries_of_the_device_itself(monkeypatch):
    """Another architecture's would be compiled anew for each unit."""
    asked, in_cubin = set(), sanitize.in_cubin
    monkeypatch.setattr(sanitize, "in_cubin", lambda text, target: asked.add(target) or in_cubin(text, target))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    text = envs.make("cartpole", 32)._kernels.text
    found = sanitize.entry_points(text, "cuda")
    assert asked == {"sm_80"}
    assert sanitize.entry_points(text, "cpu") == found > {"reset", "step_uint8", "rollout_linear_trajectory"}


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
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cuda"], "no usable CUDA device; --device cpu runs the kernels without one"),
        (["--tools", "address", "racecheck"], "racecheck is no tool of the cpu; known: address, thread"),
    ],
)
def test_what_needs_a_gpu_says_so(monkeypatch, words, message):
    monkeypatch.setattr(sys, "argv", ["sanitize", *words])
    with pytest.raises(SystemExit, match=message):
        sanitize.main()


# ---- the tools of a CPU's compiler

# Faults by their names: a read and a write beyond a table of ten floats, a sum that wraps, a shift by too much, a float
# that no int holds, and two threads of the pool that count together.
FAULTY = """
extern "C" float read_beyond(const float* x, long n) { return x[n]; }
extern "C" void write_beyond(float* x, long n) { x[n] = 1; }
extern "C" int wrap(const float*, long n) { return 2147483637 + int(n) + int(n); }
extern "C" int shift(const float*, long n) { return int(n) << (n + 30); }
extern "C" int cast(const float*, long n) { return int(float(n) * 1e9f); }
extern "C" void count(const void*, const void* number, long long first, long long last) {
    for (long long k = first; k < last; k++) ++*(long*)number;
}
extern "C" float right(const float* x, long n) { return x[n - 1]; }
"""
CALL = """
import ctypes, sys, torch
from lockstep.envs.kernels import compile
from tests.test_sanitize import FAULTY
library, name = compile.library(FAULTY), sys.argv[1]
table, number = torch.zeros(10), ctypes.c_long()
if name == "count":
    function = ctypes.cast(library.count, ctypes.c_void_p).value
    for _ in range(20):
        compile.pool()(function, None, ctypes.addressof(number), 100000, 2)
else:
    getattr(library, name)(ctypes.c_void_p(table.data_ptr()), ctypes.c_long(10))
print("came to the end")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "name", "report"),
    [
        ("address", "read_beyond", "heap-buffer-overflow.*READ of size 4.*0 bytes to the right of 40-byte region"),
        ("address", "write_beyond", "heap-buffer-overflow.*WRITE of size 4"),
        ("address", "wrap", "signed integer overflow: 2147483647 \\+ 10 cannot be represented in type 'int'"),
        ("address", "shift", "shift exponent 40 is too large for 32-bit type 'int'"),
        ("address", "cast", "1e\\+10 is outside the range of representable values of type 'int'"),
        ("thread", "count", "data race"),
        ("address", "right", None),
        ("thread", "right", None),
    ],
)
def test_a_planted_fault_is_found(tool, name, report):
    status, said = sanitize.watched_by_compiler(tool, ["-c", CALL, name])
    assert (status == 0) is (report is None), said
    assert report is None or re.search(report, said, re.DOTALL), said


ONE_OF_EACH_FORM = [next(name for name in envs.names() if name not in SEVERAL_LANES), SEVERAL_LANES[0]]
OFTEN = (sanitize.AGENTS, "thread")


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        pytest.param(name, tool, marks=pytest.mark.slow if (name, tool) == OFTEN else pytest.mark.long)
        for name in (sanitize.AGENTS, *ONE_OF_EACH_FORM)
        for tool in sanitize.OF_COMPILER
    ],
)
def test_kernels_are_clean_under_each_tool(name, tool, capsys):
    """Those of the agents, and of an environment of each launch form; `make sanitize` runs the others."""
    sanitize.on_cpu([name], [tool])
    assert re.search(rf"{name}: \d+ kernels of \d+ units\nsanitize: nothing found\n$", capsys.readouterr().out)


def test_findings_are_named_by_tool_and_environment(monkeypatch):
    asked = []
    monkeypatch.setattr(sanitize, "watched_by_compiler", lambda tool, words: asked.append((tool, words)) or (66, ""))
    with pytest.raises(SystemExit, match="findings, or no result, of address of cartpole, thread of cartpole"):
        sanitize.on_cpu(["cartpole"], None)
    assert asked[1][1][-4:] == ["--only", "cartpole", "--threads", "2"]


def test_a_compiler_without_the_library_is_named(monkeypatch):
    with pytest.raises(SystemExit, match="has no libnothing.so; g.. brings it, say CXX=g"):
        sanitize.library_of_compiler("libnothing.so")
