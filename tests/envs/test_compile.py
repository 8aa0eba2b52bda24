"""The two compilers: what they accept, cache and refuse."""

import ctypes
import errno
import os
import re
import signal
import struct
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.batch.port import MODES, bounds
from lockstep.envs.kernels import compile, structs
from tests.envs.batches import DIFFERENT

ROOT = Path(__file__).parents[2]


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a new interpreter at the repository's root."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("name", "levels", "modes"),
    [
        *(pytest.param(name, ("-O0", "-O3"), ("SameStep",), marks=pytest.mark.slow) for name in DIFFERENT),
        *(pytest.param(name, ("-O0", "-O2", "-O3"), MODES, marks=pytest.mark.long) for name in envs.names()),
    ],
)
def test_optimisation_changes_no_bit(name, levels, modes):
    """So that other tests may compile at -O0 what users have at -O3."""
    code = f"from tests import bits; print(bits.hashes([{name!r}], {modes!r}))"
    found = [python(code, LOCKSTEP_CXXFLAGS=level) for level in levels]
    assert all(run.returncode == 0 and name in run.stdout for run in found), [run.stderr for run in found]
    assert len({run.stdout for run in found}) == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PATH": "", "CXX": ""}, "no C\\+\\+ compiler found.*apt-get install g\\+\\+"),
        ({"CXX": "no-such-compiler -O1"}, "CXX names 'no-such-compiler -O1', which is not installed"),
    ],
)
def test_a_missing_compiler_is_named_with_the_remedy(monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(compile, "compiler", compile.compiler.__wrapped__)
    with pytest.raises(compile.CompilerError, match=said):
        envs.make("cartpole", 4, gravity=9.25).reset()


def test_what_is_compiled_sooner_is_another_library_and_says_so_to_the_compiler_last(monkeypatch):
    """GCC's last -O holds; who sets the flags has said what holds."""
    given = []
    monkeypatch.setattr(compile, "library", lambda text, *more: given.append(more))
    monkeypatch.setattr(compile, "SOONER", ("-O2",))
    compile.of_batch("")
    with compile.sooner():
        compile.of_batch("")
    compile.of_batch("")
    assert given == [(), ("-O2",), ()]


@pytest.mark.parametrize(("flags", "sooner"), [({}, "('-O2',)"), ({"LOCKSTEP_CXXFLAGS": "-O0 -g"}, "()")])
def test_flags_of_the_user_go_before_those_that_compile_sooner(flags, sooner):
    unset = "" if flags else "import os; del os.environ['LOCKSTEP_CXXFLAGS']\n"
    code = f"{unset}from lockstep.envs.kernels import compile; print(compile.SOONER)"
    assert python(code, **flags).stdout.strip() == sooner


def test_a_source_error_is_shown_with_file_and_line(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    with pytest.raises(compile.CompilerError, match=r"kernel.cuh:7.*nonsense"):
        compile.library('#line 7 "kernel.cuh"\nnonsense;\n')


def test_a_library_is_compiled_once_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    text = 'extern "C" int answer() { return 42; }'
    assert compile.library(text).answer() == 42
    (built,) = tmp_path.glob("*.so")
    before = built.stat().st_mtime_ns
    assert compile.library.__wrapped__(text).answer() == 42  # as another process does
    assert built.stat().st_mtime_ns == before
    assert compile.library(text.replace("42", "43")).answer() == 43
    assert len(list(tmp_path.glob("*"))) == 2  # and nothing left of the compilations


def slow_compiler(folder: Path) -> tuple[str, Path]:
    """A compiler that notes each library it builds in a file, and writes it byte after byte."""
    script, built = folder / "slow", folder / "built"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *-shared*) ;; *) exec {" ".join(compile.compiler())} "$@" ;; esac
echo >> {built}
while [ "$1" != -o ]; do arguments="$arguments $1"; shift; done
{" ".join(compile.compiler())} $arguments -o "$2.whole" || exit
head -c 500 "$2.whole" > "$2"
sleep 1
cat "$2.whole" > "$2"
rm "$2.whole"
"""
    )
    script.chmod(0o755)
    return str(script), built


def test_threads_that_ask_for_the_same_library_compile_it_once(tmp_path, monkeypatch):
    command, built = slow_compiler(tmp_path)
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compile, "compiler", lambda: (command,))
    text = 'extern "C" int answer() { return 46; }'
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(compile.library, [text, text, text.replace("46", "47")]))
    assert [library.answer() for library in found] == [46, 46, 47]
    assert len(built.read_text()) == 2


def test_a_library_that_another_process_is_building_is_waited_for(tmp_path, monkeypatch):
    command, built = slow_compiler(tmp_path)
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compile, "compiler", lambda: (command,))
    text = 'extern "C" int answer() { return 48; }'
    apart = compile.library.__wrapped__  # what processes share is the folder alone
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(apart, text)
        while not list(tmp_path.glob("cache/*.partial")):
            time.sleep(0.01)
        assert apart(text).answer() == theirs.result().answer() == 48
    assert len(built.read_text()) == 1
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".so"]


@pytest.mark.parametrize("left", [0, 500, -1])
def test_a_damaged_library_is_built_again(tmp_path, left):
    """Loaded as it is, one that was cut off would end the process with a bus error."""
    code = """
from lockstep.envs.kernels import compile
print(compile.library('extern "C" int answer() { return 49; }').answer())
"""
    assert python(code, LOCKSTEP_CACHE=str(tmp_path)).stdout == "49\n"
    (built,) = tmp_path.iterdir()
    whole = built.read_bytes()
    built.write_bytes(whole[:left] if left >= 0 else whole[:900] + b"?" + whole[901:])
    again = python(code, LOCKSTEP_CACHE=str(tmp_path))
    assert (again.returncode, again.stdout) == (0, "49\n")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [whole]


def test_a_damaged_library_in_a_cache_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    text = 'extern "C" int answer() { return 52; }'
    compile.library(text)
    (built,) = tmp_path.iterdir()
    built.write_bytes(b"damaged")

    def refused(*arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    with pytest.raises(
        compile.CompilerError, match=f"cached in {tmp_path}, which cannot be written to .Permission den"
    ):
        compile.library.__wrapped__(text)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_library_that_cannot_be_read_is_built_again(tmp_path, monkeypatch, error):
    """Gone since it was seen, say, since the folder was cleared."""
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    seen, read = tmp_path / f"key-{compile.digest(b'first')}.so", Path.read_bytes
    seen.write_bytes(b"first")

    def reads(path):
        if path == seen:
            raise error(errno.EACCES, "cannot be read")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", reads)
    assert compile.cached("key", ".so", lambda path: path.write_bytes(b"second")).read_bytes() == b"second"


def test_what_the_compiler_of_a_killed_process_still_writes_is_in_no_library(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    names = []
    compile.cached("key", ".so", lambda path: (names.append(path.name), path.write_text("whole")))
    (built,) = tmp_path.iterdir()
    built.unlink()
    with open(tmp_path / names[0].replace(str(os.getpid()), "1"), "w") as orphan:

        def build(path: Path) -> None:
            path.write_text("whole")
            orphan.write("half of it, and more")
            orphan.flush()

        found = compile.cached("key", ".so", build)
    assert found.read_text() == "whole" and list(tmp_path.iterdir()) == [found]


def test_a_kill_while_compiling_leaves_nothing_that_the_next_run_does_not_clear(tmp_path):
    command, _ = slow_compiler(tmp_path)
    cache = tmp_path / "cache"
    code = """
from lockstep.envs.kernels import compile
compile.library('extern "C" int answer() { return 50; }')
"""
    settings = os.environ | {"LOCKSTEP_CACHE": str(cache), "CXX": command}
    process = subprocess.Popen([sys.executable, "-c", code], env=settings, cwd=ROOT, start_new_session=True)
    while not list(cache.glob("*.partial")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not any(file.is_dir() for file in cache.iterdir())
    assert python(code, LOCKSTEP_CACHE=str(cache), CXX=command).returncode == 0
    assert [file.suffix for file in cache.iterdir()] == [".so"]


@pytest.mark.parametrize(("noexec", "advice"), [(False, "built it; set CXX"), (True, r"noexec\); set LOCKSTEP_CACHE")])
def test_a_library_that_does_not_load_is_named(tmp_path, monkeypatch, noexec, advice):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "no library" > "$2"\n')
    broken.chmod(0o755)
    monkeypatch.setattr(compile, "compiler", lambda: (str(broken),))
    flags = types.SimpleNamespace(f_flag=os.ST_NOEXEC if noexec else 0)
    monkeypatch.setattr(os, "statvfs", lambda folder: flags)
    for _ in range(2):  # built, and found
        with pytest.raises(compile.CompilerError, match=rf"{tmp_path}/[\w-]+\.so does not load .*{advice}"):
            compile.library('extern "C" int answer() { return 44; }')


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("g++ '", r'CXX="g\+\+ \'" is no command: No closing quotation'),
        ("false", r"false \(named by CXX\) is no C\+\+ compiler that works: on an empty file, exit status 1"),
    ],
)
def test_a_command_that_is_no_compiler_is_named(tmp_path, command, sentence):
    code = "from lockstep.envs.kernels import compile; compile.library('')"
    assert re.search(sentence, python(code, LOCKSTEP_CACHE=str(tmp_path), CXX=command).stderr)


@pytest.mark.parametrize(
    "error", [BlockingIOError(errno.EAGAIN, "no more processes"), FileNotFoundError(2, "it is gone")]
)
def test_a_compiler_that_cannot_be_run_is_not_taken_for_a_cache_that_cannot_be_written(tmp_path, monkeypatch, error):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    compile.target_flags()

    def refused(*arguments, **options):
        raise error

    monkeypatch.setattr(subprocess, "run", refused)
    said = f"{re.escape(' '.join(compile.compiler()))} could not be run: {error.strerror}"
    for build in (lambda: compile.library('extern "C" int answer() { return 53; }'), compile.target_flags.__wrapped__):
        with pytest.raises(compile.CompilerError, match=said):
            build()
    assert list(tmp_path.iterdir()) == []


def test_flags_that_are_none_are_named():
    said = python("from lockstep import envs", LOCKSTEP_CXXFLAGS="-O2 '").stderr
    assert said.endswith('ValueError: LOCKSTEP_CXXFLAGS="-O2 \'" are no flags: No closing quotation\n')


def test_without_a_home_directory_the_cache_has_to_be_named(monkeypatch):
    for name in ("LOCKSTEP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(compile.CompilerError, match="there is none; set LOCKSTEP_CACHE"):
        compile.library('extern "C" int answer() { return 51; }')


@pytest.mark.parametrize("place", ["file", "nowhere"])
def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("")
    folder = {"file": str(tmp_path / "file"), "nowhere": "/proc/nowhere"}[place]
    monkeypatch.setenv("LOCKSTEP_CACHE", folder)
    with pytest.raises(
        compile.CompilerError, match=f"cached in {folder}, which cannot be written to .* set LOCKSTEP_CACHE"
    ):
        compile.library(f'extern "C" int {place}() {{ return 45; }}')


def test_philox_without_wide_instructions_gives_the_published_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    body = compile.expand(compile.KERNELS / "philox.cuh")
    export = 'extern "C" void many(u32* c, long long key) { philox_many(c, c + 16, c + 32, c + 48, 16, key); }'
    for undefine in ("", "#undef __AVX512F__"):
        counters = np.zeros((4, 24), dtype=np.uint32)
        aligned = counters.ctypes.data + (-counters.ctypes.data) % 64
        words = np.ctypeslib.as_array(ctypes.cast(aligned, ctypes.POINTER(ctypes.c_uint32)), (4, 16))
        many = compile.library(f"{undefine}\n#define REAL float\n{body}\n{export}").many
        many(ctypes.c_void_p(aligned), ctypes.c_longlong(0))
        assert [f"{int(word):08x}" for word in words[:, 7]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_an_unused_cache_folder_is_not_needed_to_import(tmp_path):
    assert python("from lockstep import envs", HOME=str(tmp_path), PATH="").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_includes_are_expanded_once_each_and_keep_their_line_numbers(tmp_path):
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text("int b;\n")
    (tmp_path / "c.cuh").write_text('#include "a.cuh"\n#include "b.cuh"\nint c;\n')
    text = compile.expand(tmp_path / "c.cuh")
    assert [line for line in text.splitlines() if line.startswith("int")] == ["int b;", "int a;", "int c;"]
    assert '#line 3 "c.cuh"\nint c;' in text


def test_parameters_become_typed_constants():
    @dataclass(frozen=True)
    class Params:
        mass: float = 0.1
        steps: int = 3
        sticky: bool = False
        method: Literal["euler", "heun"] = "heun"

    assert compile.constants(Params()).splitlines() == [
        "struct Params {",
        "    static constexpr real mass = real(0.1);",
        "    static constexpr int steps = int(3);",
        "    static constexpr bool sticky = false;",
        "    static constexpr bool method_is_euler = false;",
        "    static constexpr bool method_is_heun = true;",
        "};",
    ]


def test_the_python_side_reads_every_field_of_the_structs_and_those_of_tables_last():
    text = next(iter(envs.units("vehicular_edge").values()))
    tables, batch, call = (list(structs.fields(name, text)) for name in ("Tables", "Batch", "Call"))
    declared = (compile.KERNELS / "batch.cuh").read_text()
    for name, found in (("Batch", batch[: -len(tables)]), ("Call", call)):
        body = declared.split(f"struct {name} {{\n")[1].split("\n};")[0]
        in_order = re.findall(r"(\w+);", "\n".join(line.split("//")[0] for line in body.splitlines()))
        assert [one for one in in_order if one not in ("tables", "given")] == found[: len(in_order) - 1]
    # A name of both would stand once, and further up.
    assert batch[-len(tables) :] == tables and batch[-len(tables) - 1] == "scenarios"


INNER = "struct Inner {\n    const u8* first;  // [B]\n    double second;\n};\n"
OUTER = (
    INNER + "struct Outer {\n    // a comment\n    i64 n;\n    void (*run)(const void*, i64);\n    Inner inner;\n};\n"
)
STORE = 'extern "C" void store(Outer* o) { o->n = -3; o->inner.first = 0; o->inner.second = 0.5; }'


def test_a_struct_is_read_as_the_compiler_lays_it_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    assert list(structs.fields("Outer", OUTER)) == ["n", "run", "first", "second"]
    outer = structs.struct("Outer", OUTER, n=4, first=torch.zeros(2), second=2.5)
    assert (outer.n, outer.run, outer.second) == (4, 0, 2.5)
    assert outer.first != 0
    library = compile.library(f"typedef unsigned char u8; typedef long long i64;\n{OUTER}{STORE}")
    library.store(ctypes.byref(outer))
    assert (outer.n, outer.first, outer.second) == (-3, 0, 0.5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("int n;", "struct Odd: 'int n;' is not a field of eight bytes"),
        ("i64 n[2];", r"struct Odd: 'i64 n\[2\];' is not a field of eight bytes"),
        ("i64 a, b;", "struct Odd: 'i64 a, b;' is not"),
    ],
)
def test_a_field_that_python_would_lay_out_otherwise_is_refused(line, message):
    with pytest.raises(ValueError, match=message):
        structs.fields("Odd", f"struct Odd {{\n    {line}\n}};\n")


def test_a_struct_or_field_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="the source declares no struct Outre"):
        structs.fields("Outre", OUTER)
    with pytest.raises(AttributeError, match="'Outer' object has no attribute 'thrid'"):
        structs.struct("Outer", OUTER, thrid=1)


SEVERAL_LANES = [name for name in envs.names() if envs.port(name).of("lanes") > 1]


def kernels_of(name: str, mode: str, word: str) -> set[str]:
    """The kernels of a unit, by the traits of its environment."""
    port = envs.port(name)
    if word == "mlp":
        return {f"rollout_mlp_{store}" for store in ("statistics", "trajectory")}
    always = {"reset", "observe", "random_actions"}
    if name in SEVERAL_LANES:
        phases = {phase for phase in port.phases if isinstance(phase, str)}
        return always | phases | ({"rollout_random"} if (mode, len(port.phases)) == ("SameStep", 1) else set())
    one_number = bounds(port.of("action"))[0].size == 1
    policies = ("random", *(["linear"] if one_number else [])) if mode == "SameStep" else ()
    types = ("float32", "float64") if port.continuous else ("uint8", "int32", "int64")
    rollouts = {f"rollout_{policy}_{store}" for policy in policies for store in ("statistics", "trajectory")}
    return always | {f"step_{kind}" for kind in types} | rollouts


OLDER, NEWEST = compile.TARGETS
COMPILED = [  # kernels alone, or all variants of their units too
    ("cartpole", OLDER, "CUDA 13", False),
    *(pytest.param(name, NEWEST, "CUDA 13", False, marks=pytest.mark.slow) for name in envs.names()),
    *(pytest.param(name, NEWEST, "CUDA 12", False, marks=pytest.mark.slow) for name in ("cartpole", "vehicle_routing")),
    *(
        pytest.param(name, OLDER, "CUDA 13", False, marks=pytest.mark.slow if name in DIFFERENT else pytest.mark.long)
        for name in envs.names()
        if name != "cartpole"
    ),
    *(
        pytest.param(name, *rest, marks=pytest.mark.long)
        for name in envs.names()
        for rest in ((OLDER, "CUDA 12", False), (NEWEST, "CUDA 12", True), (NEWEST, "CUDA 13", True))
    ),
]


@pytest.mark.usefixtures("either_nvrtc")
@pytest.mark.parametrize(("name", "target", "either_nvrtc", "variants"), COMPILED, indirect=["either_nvrtc"])
def test_every_kernel_compiles_for_the_gpu_without_spilling_registers(name, target, variants):
    for (mode, dtype, word), text in envs.units(name).items():
        if not variants and ((mode, dtype) != ("SameStep", "float32") or word == "view"):
            continue
        rows = compile.resources(text, target)
        assert {used["kernel"] for used in rows} == kernels_of(name, mode, word)
        # With 128 registers two blocks of 256 threads are resident, with 255 one; with 168 three of 128.
        unbounded = dtype == "float64" or word == "mlp" or "#define LONG_STEP 3" in text
        most = 255 if unbounded else 168 if name in SEVERAL_LANES else 128
        for used in rows:
            assert used["spill_store_bytes"] == used["spill_load_bytes"] == 0, (mode, dtype, word, used)
            assert name not in SEVERAL_LANES or used["stack_bytes"] == 0, (mode, dtype, word, used)
            assert 0 < used["registers"] <= most, (mode, dtype, word, used)


@pytest.mark.long
@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("name", SEVERAL_LANES)
def test_groups_of_lanes_compile_for_the_gpu_without_spilling_registers(name, lanes):
    port = envs.port(name)
    choices = {"mode": "SameStep", "dtype": "float32", "limit": port.of("horizon"), "tile": 1, "lanes": lanes}
    world = port.world(port, None, {})
    text, kernels = port.unit(envs.folder(name), world, **choices), kernels_of(name, "SameStep", "")
    phases = port.phases_of(world)
    if any(map(callable, phases)):  # steps that wait for what is no kernel are not fused
        kernels = kernels - {"rollout_random"} | {phase for phase in phases if isinstance(phase, str)}
    for target in compile.TARGETS:
        rows = compile.resources(text, target)
        assert {used["kernel"] for used in rows} == kernels
        for used in rows:
            assert used["spill_store_bytes"] == used["spill_load_bytes"] == used["stack_bytes"] == 0, (target, used)


EMPTY_KERNEL = 'extern "C" __global__ void nothing() {}'


@pytest.mark.parametrize("target", compile.TARGETS)
def test_the_file_of_a_cubin_holds_the_whole_of_its_tables(tmp_path, monkeypatch, target):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path))
    binary = compile.cubin_file(EMPTY_KERNEL, target).read_bytes()
    # e_phoff, e_shoff; e_phentsize, e_phnum, e_shentsize, e_shnum of an ELF header of 64 bits
    programs, sections = struct.unpack_from("<QQ", binary, 0x20)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", binary, 0x36)
    assert binary[:4] == b"\x7fELF"
    assert program_count and len(binary) >= programs + program_size * program_count
    assert section_count and len(binary) >= sections + section_size * section_count


def test_a_cubin_that_is_cut_off_is_refused(monkeypatch):
    monkeypatch.setattr(compile, "LAST_BYTE", b"")  # as CuPy hands it out
    with pytest.raises(compile.CompilerError, match=r"is cut off: it has \d+ bytes, its tables end at \d+"):
        compile.cubin(EMPTY_KERNEL, "sm_90")


def test_an_error_in_a_kernel_for_the_gpu_is_shown():
    with pytest.raises(compile.CompilerError, match="NVRTC refuses the kernel for sm_90"):
        compile.resources('extern "C" __global__ void k() { nonsense; }', "sm_90")


def test_a_struct_reaches_a_gpu_kernel_as_one_numpy_value_of_the_same_memory():
    text = next(iter(envs.units("cartpole").values()))
    call, names = structs.struct("Call", text), list(structs.fields("Call", text))
    passed = launch._by_value(call)
    call.steps = 77
    assert (passed.size, passed.nbytes) == (1, 8 * len(names))
    assert np.frombuffer(passed.tobytes(), dtype=np.int64)[names.index("steps")] == 77
