"""Compiles kernels: by the C++ compiler into a cached shared library, or by NVRTC through CuPy.

One translation unit serves both: compile-time choices, `platform.cuh`, the constants of an environment's parameters,
its `kernel.cuh` and the batch around it. Includes are expanded here, so that the text that is compiled is also the text
that is hashed.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from types import ModuleType
from typing import get_args

from lockstep.extras import extra

ENVS = Path(__file__).resolve().parent.parent
KERNELS = ENVS / "kernels"
FLAGS = (
    "-std=c++17",
    *shlex.split(os.environ.get("LOCKSTEP_CXXFLAGS", "-O3")),  # no bit of an environment depends on them
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
)
# Both passes turn selects into control flow, after which a loop is no longer vectorised: without them MountainCar makes
# 919 M steps per CPU-second, with them 79 M.
GCC_FLAGS = ("-fno-tree-pre", "-fno-thread-jumps")
NVRTC_FLAGS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
TARGETS = ("sm_80", "sm_90")
# CuPy takes the last byte of every binary for the end of a string and leaves it out: right for PTX, but a cubin loaded
# from a file then ends within its tables. One byte too many would do no harm.
LAST_BYTE = b"\0"


def _once(build: Callable) -> Callable:
    """`functools.cache` for threads: of those that ask for one thing at once, one builds it and the others wait."""
    cached, locks = functools.cache(build), {}

    @functools.wraps(build)
    def ask(*arguments):
        with locks.setdefault(arguments, threading.Lock()):
            return cached(*arguments)

    return ask


class CompilerError(RuntimeError):
    """No compiler, or a source it refuses."""


def expand(path: Path, seen: set[Path] | None = None) -> str:
    """The text of a source file with its quoted includes (beside it, or from `envs/`) put in, each once."""
    seen = set() if seen is None else seen
    if path in seen:
        return ""
    seen.add(path)
    name = path.relative_to(ENVS).as_posix() if path.is_relative_to(ENVS) else path.name
    *parts, rest = _parts(path, path.stat().st_mtime_ns)
    expanded = [f'#line 1 "{name}"']
    for text, include in parts:
        beside = path.parent / include
        expanded += [*text, expand(beside if beside.exists() else ENVS / include, seen)]
    return "\n".join([*expanded, *rest])


@functools.cache
def _parts(path: Path, modified: int) -> list:
    """A source file cut at its quoted includes: lines and the include after them, and at last the rest of the lines."""
    parts, lines = [], []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        include = line.startswith('#include "') and re.fullmatch(r'#include "(.+)"', line)
        if include:
            parts.append((lines, include[1]))
            lines = [f'#line {number + 1} "{path.name}"']
        elif line != "#pragma once":
            lines.append(line)
    return [*parts, lines]


def constants(params) -> str:
    """A `struct Params` of compile-time constants from a frozen dataclass; a choice of names is one bool per name."""
    lines = ["struct Params {"]
    for field in dataclass_fields(params):
        value, choices = getattr(params, field.name), get_args(field.type)
        if choices:
            lines += [f"    static constexpr bool {field.name}_is_{c} = {str(c == value).lower()};" for c in choices]
        elif isinstance(value, bool):
            lines.append(f"    static constexpr bool {field.name} = {str(value).lower()};")
        else:
            kind = "int" if field.type is int else "real"
            lines.append(f"    static constexpr {kind} {field.name} = {kind}({value!r});")
    return "\n".join([*lines, "};"])


def unit(dtype: str, defines: Mapping[str, object], params, *sources: Path, declarations: str = "") -> str:
    """The translation unit of one environment in one combination of compile-time choices.

    Args:
        dtype: of `real`, "float32" or "float64".
        defines: the choices.
        params: the environment's constants, a frozen dataclass.
        declarations: text that follows them,
        sources: and files after that, with their includes.
    """
    seen: set[Path] = set()
    return "\n".join(
        [
            f"#define REAL {dict(float32='float', float64='double')[dtype]}",
            *(f"#define {name} {value}" for name, value in defines.items()),
            expand(KERNELS / "platform.cuh", seen),
            constants(params),
            declarations,
            *(expand(source, seen) for source in sources),
            "",
        ]
    )


def cache_folder() -> Path:
    """The folder of compiled libraries: $LOCKSTEP_CACHE, else the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("LOCKSTEP_CACHE") or user / "lockstep")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder on the cache's file system; what is made in it is moved into the cache in one step.

    Raises:
        CompilerError: the cache cannot be written to.
    """
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=cache_folder())
    except OSError as error:
        raise CompilerError(
            f"kernels are cached in {cache_folder()}, which cannot be written to ({error.strerror}); "
            "set LOCKSTEP_CACHE to a folder that can"
        ) from error
    with scratch as path:
        yield Path(path)


@functools.cache
def compiler() -> tuple[str, ...]:
    """The C++ compiler's command: $CXX, else the first of c++, g++, clang++.

    Raises:
        CompilerError: none is installed, or $CXX names one that is not.
    """
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["c++", "g++", "clang++"]:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return tuple(command)
    missing = f"CXX names {named!r}, which is not installed" if named else "no C++ compiler found (c++, g++, clang++)"
    raise CompilerError(
        f"{missing}; device='cpu' needs one: install g++ (Debian, Ubuntu: apt-get install g++; "
        "conda: conda install -c conda-forge cxx-compiler) or set CXX to yours"
    )


@functools.cache
def target_flags() -> tuple[tuple[str, ...], str]:
    """Flags for this processor, and the macros predefined with them, which name compiler and processor."""
    for flags in (("-march=native",), ("-mcpu=native",), ()):
        probe = [*compiler(), *flags, "-dM", "-E", "-x", "c++", os.devnull]
        result = subprocess.run(probe, capture_output=True, text=True)
        if result.returncode == 0:
            wide = ("-mprefer-vector-width=512",) if "__AVX512F__" in result.stdout else ()
            gcc = () if "__clang__" in result.stdout else GCC_FLAGS
            return flags + wide + gcc, result.stdout
    raise CompilerError(f"{shlex.join(compiler())} fails on an empty file: {result.stderr.strip()}")


@_once
def library(text: str, *more: str) -> ctypes.CDLL:
    """Compiles C++ text for this processor into a shared library and loads it; cached by text, flags and compiler.

    more: flags after the others.

    Processes that begin at once may each compile, but none loads what another has not finished.

    Raises:
        CompilerError: no compiler, or the compiler's own message.
    """
    flags, macros = target_flags()
    command = [*compiler(), *FLAGS, *flags, *more]
    key = hashlib.sha256("\0".join([text, *command, macros]).encode()).hexdigest()[:32]
    path = cache_folder() / f"{key}.so"
    if not path.exists():
        with scratch_folder() as scratch:
            source, built = scratch / "unit.cpp", scratch / "unit.so"
            source.write_text(text)
            result = subprocess.run([*command, str(source), "-o", str(built)], capture_output=True, text=True)
            if result.returncode != 0:
                raise CompilerError(f"{shlex.join(command)} failed:\n{result.stderr.strip()}")
            os.replace(built, path)  # another process may have built the same: either file is right
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(
            f"the cached library {path} does not load ({error}); delete it, and it is built again"
        ) from error


@functools.cache
def pool():
    """The function `run_on_threads(kernel, batch, call, tiles, threads)` of `pool.cpp`."""
    run = library(expand(KERNELS / "pool.cpp")).run_on_threads
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int]
    run.restype = None
    return run


@_once
def cuda_module(text: str, target: str):
    """Kernels for a GPU architecture as a `cupy.RawModule`.

    CuPy would compile the text itself, but with flush-to-zero, which changes bits.
    """
    return cupy().RawModule(path=str(cubin_file(text, target)))


def cubin_file(text: str, target: str) -> Path:
    """A unit's binary for a GPU architecture, compiled unless it is in the cache; needs no GPU.

    Raises:
        CompilerError: NVRTC is missing, or its own message.
    """
    version = ".".join(map(str, nvrtc().getVersion()))
    # "whole": a cache may hold binaries from before their last byte was put back.
    key = hashlib.sha256("\0".join([text, target, version, "whole", *NVRTC_FLAGS]).encode()).hexdigest()[:32]
    path = cache_folder() / f"{key}.cubin"
    if not path.exists():
        binary, _ = cubin(text, target)
        with scratch_folder() as scratch:
            built = scratch / "unit.cubin"
            built.write_bytes(binary)
            os.replace(built, path)
    return path


def entry_points(text: str, target: str = TARGETS[-1]) -> set[str]:
    """Names of a unit's kernels, by the sections of its binary; needs no GPU."""
    return {name.decode() for name in re.findall(rb"\0\.text\.(\w+)", cubin_file(text, target).read_bytes())}


def cupy() -> ModuleType:
    """CuPy, which loads and launches kernels.

    Raises:
        ImportError: names the extras that bring it.
    """
    with extra("cuda13", "cuda12", of="device='cuda'"):
        import cupy
    return cupy


def nvrtc():
    """CuPy's NVRTC binding, which needs no GPU.

    Raises:
        CompilerError: CuPy or the NVRTC library is missing.
    """
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        fix = "pip install 'lockstep[nvrtc]', or with a GPU 'lockstep[cuda13]'"
        raise CompilerError(f"NVRTC is not available ({error}): {fix}") from error
    return nvrtc


def cubin(text: str, target: str) -> tuple[bytes, str]:
    """A unit compiled for a GPU architecture, and the compiler's report; needs no GPU.

    Raises:
        CompilerError: NVRTC's own message, or a binary that is cut off.
    """
    binding = nvrtc()
    program = binding.createProgram(text, "unit.cu", (), ())
    try:
        binding.compileProgram(program, (*NVRTC_FLAGS, f"--gpu-architecture={target}", "--ptxas-options=-v"))
        binary, log = binding.getCUBIN(program) + LAST_BYTE, binding.getProgramLog(program)
    except binding.NVRTCError as error:
        raise CompilerError(f"NVRTC refuses the kernel for {target}:\n{binding.getProgramLog(program)}") from error
    finally:
        binding.destroyProgram(program)
    length, needed = len(binary), end_of_tables(binary)
    if length < needed:
        raise CompilerError(
            f"NVRTC's binary for {target} is cut off: it has {length} bytes, its tables end at {needed}"
        )
    return binary, log


def end_of_tables(binary: bytes) -> int:
    """The byte at which the program and section header tables of a 64-bit ELF file end."""
    programs, sections = struct.unpack_from("<QQ", binary, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<4H", binary, 54)
    return max(programs + program_size * program_count, sections + section_size * section_count)


def resources(text: str, target: str) -> list[dict]:
    """Registers, memory and spills of each kernel of a unit on a GPU architecture, by the compiler's report.

    Returns:
        One row per kernel: kernel, target, registers, spill_store_bytes, spill_load_bytes, stack_bytes, shared_bytes.

    Raises:
        CompilerError: NVRTC's own message.
    """
    _, log = cubin(text, target)
    rows = []
    for part in log.split("Compiling entry function ")[1:]:

        def number(pattern, part=part):
            found = re.search(pattern, part)
            return int(found[1]) if found else 0

        rows.append(
            {
                "kernel": re.match(r"'(\w+)'", part)[1],
                "target": target,
                "registers": number(r"Used (\d+) registers"),
                "spill_store_bytes": number(r"(\d+) bytes spill stores"),
                "spill_load_bytes": number(r"(\d+) bytes spill loads"),
                "stack_bytes": number(r"(\d+) bytes stack frame"),
                "shared_bytes": number(r"(\d+) bytes smem"),
            }
        )
    return rows
