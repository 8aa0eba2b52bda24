"""Compiles kernels: by the C++ compiler into a cached shared library, or by NVRTC through CuPy.

One translation unit serves both: compile-time choices, `platform.cuh`, the constants of an environment's parameters,
its `kernel.cuh` and the batch around it. Includes are expanded here, so that the text that is compiled is also the text
that is hashed.
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from types import ModuleType
from typing import get_args

from lockstep import files
from lockstep.extras import extra

ENVS = Path(__file__).resolve().parent.parent
KERNELS = ENVS / "kernels"


def _optimisation(given: str) -> list[str]:
    """Flags of $LOCKSTEP_CXXFLAGS; ValueError where it cannot be cut into words."""
    try:
        return shlex.split(given)
    except ValueError as error:
        raise ValueError(f"LOCKSTEP_CXXFLAGS={given!r} are no flags: {error}") from error


FLAGS = (
    "-std=c++17",
    *_optimisation(os.environ.get("LOCKSTEP_CXXFLAGS", "-O3")),  # no bit of an environment depends on them
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
SOONER = () if "LOCKSTEP_CXXFLAGS" in os.environ else ("-O2",)  # after the others, of what is compiled `sooner`
_level: tuple[str, ...] = ()
# One pass takes a time that grows with the square of a loop's length, unless it looks at no more than pairs.
LONG_LOOPS = "#define LONG_STEP 3", "--param=max-combine-insns=2"
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
            names = {c: re.sub(r"\W", "_", str(c)) for c in choices}
            lines += [
                f"    static constexpr bool {field.name}_is_{names[c]} = {str(c == value).lower()};" for c in choices
            ]
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
    """The folder of compiled kernels: $LOCKSTEP_CACHE, else the user's cache folder.

    Raises:
        CompilerError: neither is set, and there is no home directory.
    """
    own, user = os.environ.get("LOCKSTEP_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(own) if own else Path(user or Path.home() / ".cache") / "lockstep"
    except RuntimeError as error:
        raise CompilerError(
            "kernels are cached in the home directory, and there is none; set LOCKSTEP_CACHE to a folder"
        ) from error


@contextlib.contextmanager
def writable_cache() -> Iterator[Path]:
    """The folder of compiled kernels, made where missing.

    Raises:
        CompilerError: it cannot be written to.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        yield folder
    except OSError as error:
        raise CompilerError(
            f"kernels are cached in {folder}, which cannot be written to ({error.strerror}); "
            "set LOCKSTEP_CACHE to a folder that can"
        ) from error


def cached(key: str, ending: str, build: Callable[[Path], None]) -> Path:
    """A file of the cache, whose name has the hash of its content; built where it is missing or was damaged.

    Of processes that ask at once for the same, one builds it and the others wait.

    build: writes the file that it is given the path of.
    """
    if found := undamaged(key, ending):
        return found
    with writable_cache() as folder, files.hold(folder / f"{key}.lock", wait=True):
        if found := undamaged(key, ending):
            return found
        for left in folder.glob(f"{key}.*.partial*"):  # by a process that was killed, whose compiler may still write
            left.unlink(missing_ok=True)
        partial = folder / f"{key}.{os.getpid()}.partial"
        try:
            build(partial)
            path = folder / f"{key}-{digest(partial.read_bytes())}{ending}"
            files.settle(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def undamaged(key: str, ending: str) -> Path | None:
    """The file of the cache of this key, None where it is missing; one that is not as it was written is deleted.

    One that cannot be read or deleted counts as missing: what writes it anew says what is wrong.
    """
    for path in cache_folder().glob(f"{key}-*{ending}"):
        with contextlib.suppress(OSError):
            if path.stem == f"{key}-{digest(path.read_bytes())}":
                return path
            path.unlink()
    return None


def digest(*parts: bytes | str) -> str:
    """A hash of texts or bytes, for names of files."""
    whole = b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hashlib.sha256(whole).hexdigest()[:32]


@functools.cache
def compiler() -> tuple[str, ...]:
    """The C++ compiler's command: $CXX, else the first of c++, g++, clang++.

    Raises:
        CompilerError: none is installed, or $CXX names one that is not, or is no command.
    """
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["c++", "g++", "clang++"]:
        try:
            command = shlex.split(candidate)
        except ValueError as error:
            raise CompilerError(f"CXX={named!r} is no command: {error}") from error
        if command and shutil.which(command[0]):
            return tuple(command)
    missing = f"CXX names {named!r}, which is not installed" if named else "no C++ compiler found (c++, g++, clang++)"
    raise CompilerError(
        f"{missing}; device='cpu' needs one: install g++ (Debian, Ubuntu: apt-get install g++; "
        "conda: conda install -c conda-forge cxx-compiler) or set CXX to yours"
    )


def _ran(command: list[str], text: str | None = None) -> subprocess.CompletedProcess:
    """The end of a compiler's run on a text; CompilerError where it could not even be run."""
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        raise CompilerError(f"{shlex.join(compiler())} could not be run: {error.strerror}") from error


@functools.cache
def target_flags() -> tuple[tuple[str, ...], str]:
    """Flags for this processor, and the macros predefined with them, which name compiler and processor."""
    for flags in (("-march=native",), ("-mcpu=native",), ()):
        probe = [*compiler(), *flags, "-dM", "-E", "-x", "c++", os.devnull]
        result = _ran(probe)
        if result.returncode == 0:
            wide = ("-mprefer-vector-width=512",) if "__AVX512F__" in result.stdout else ()
            gcc = () if "__clang__" in result.stdout else GCC_FLAGS
            return flags + wide + gcc, result.stdout
    named = " (named by CXX)" if os.environ.get("CXX") else ""
    said = result.stderr.strip() or f"exit status {result.returncode}"
    raise CompilerError(f"{shlex.join(compiler())}{named} is no C++ compiler that works: on an empty file, {said}")


@contextlib.contextmanager
def sooner() -> Iterator[None]:
    """Libraries that are compiled in here take less time, up to a tenth, and run slower; their bits are the same.

    They are apart from all others, in the cache as well. Where $LOCKSTEP_CXXFLAGS is set it goes first.
    """
    global _level
    before, _level = _level, SOONER
    try:
        yield
    finally:
        _level = before


def of_batch(text: str) -> ctypes.CDLL:
    """The library of a batch's unit, as `library` has it."""
    return library(text, *_level)


@_once
def library(text: str, *more: str) -> ctypes.CDLL:
    """Compiles C++ text for this processor into a shared library and loads it; cached by text, flags and compiler.

    more: flags after the others.

    Raises:
        CompilerError: no compiler, the compiler's own message, or a folder that libraries cannot be loaded from.
    """
    flags, macros = target_flags()
    word, flag = LONG_LOOPS
    long = [flag] if word in text and "__clang__" not in macros else []
    command = [*compiler(), *FLAGS, *flags, *long, *more]

    def build(path: Path) -> None:
        reading = [*command, "-x", "c++", "-", "-o", str(path)]
        result = _ran(reading, text)
        if result.returncode != 0:
            raise CompilerError(f"{shlex.join(command)} failed:\n{result.stderr.strip()}")

    path = cached(digest(text, *command, macros), ".so", build)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
            advice = "nothing may be run from there (noexec); set LOCKSTEP_CACHE to a folder elsewhere"
        else:
            advice = f"{shlex.join(compiler())} built it; set CXX to another compiler"
        raise CompilerError(f"the library {path} does not load ({error}): {advice}") from error


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
    key = digest(text, target, version, *NVRTC_FLAGS)
    return cached(key, ".cubin", lambda path: path.write_bytes(cubin(text, target)[0]))


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
