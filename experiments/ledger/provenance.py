"""A result's origin: code, configuration, machine, packages; no host or user name, no absolute path."""

import csv
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from lockstep.experiments import ROOT

FORMAT = 1
LIBRARIES = ("torch", "numpy", "gymnasium", "pettingzoo")  # that rows depend on
LIBRARY_PREFIXES = ("cupy", "nvidia-cuda-nvrtc")  # cupy-cuda12x, cupy-cuda13x, ...: the one found is named
PACKAGES = (*LIBRARIES, "pandas", "scipy", "snakemake", "matplotlib", "nbconvert")
LOCK = "requirements.lock"  # of all packages that the paper needs; whether they are installed, `packages` tells
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hashes(paths: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """sha256 of each file, by its path relative to the repository."""
    return {path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in paths}


def changed(sources: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """The files among a result's sources that differ now, or are gone."""
    return [path for path, digest in sources.items() if not is_file_with(root / path, digest)]


def is_file_with(path: Path, digest: str) -> bool:
    return digest_of(path) == digest


def digest_of(path: Path) -> str | None:
    """sha256 of a file; None where it is missing."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def collect(
    experiment: str,
    environment: str | None,
    scale: str | None,
    config: Mapping,
    sources: Mapping[str, str],
    commit: str | None = None,
    *,
    started: str | None = None,
    wall_s: float | None = None,
    cpu_s: float | None = None,
    timing: Mapping | None = None,
    checkout: tuple[str | None, bool | None] | None = None,
) -> dict:
    """The provenance of a result, as written beside its CSV.

    sources, checkout: sha256 by path, and `git_commit`, both taken before the run; git is asked now if it was not then.
    commit: what to note down in place of what git says.
    """
    found, dirty = checkout or git_commit(sources)
    return {
        "format": FORMAT,
        "experiment": experiment,
        "environment": environment,
        "scale": scale,
        "config": dict(config),
        "sources": dict(sources),
        "machine": machine(),
        "command": command(),
        "commit": commit or found,
        "dirty": None if commit and commit != found else dirty,  # git knows nothing of a commit that is not there
        "started": started or now(),
        "finished": now(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "packages": packages(),
        "lock": digest_of(ROOT / LOCK),
        "threads": threads(),
        "timing": dict(timing or {}),
        "seed": config.get("seed"),
    }


def git_commit(sources: Iterable[str], root: Path = ROOT) -> tuple[str | None, bool | None]:
    """The commit checked out, and whether any of the sources differs from it; (None, None) without git."""
    top = output_of(["git", "-C", str(root), "rev-parse", "--show-toplevel"])
    commit = output_of(["git", "-C", str(root), "rev-parse", "--verify", "HEAD"])
    # An unpacked archive may lie inside some other repository, whose commit says nothing about it.
    if not top or not commit or Path(top).resolve() != root.resolve():
        return None, None
    status = output_of(["git", "-C", str(root), "status", "--porcelain", "--", *sources])
    return commit, None if status is None else status != ""


def command() -> str:
    """The command line of this process, with no path that leads outside the repository."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"python -m {main.name}" if main else f"python {Path(sys.argv[0]).name}"
    return " ".join([program, *(shlex.quote(without_absolute_path(argument)) for argument in sys.argv[1:])])


def without_absolute_path(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return argument
    path = path.resolve()
    short = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return f"{option}{equals}{short}"


@functools.cache
def machine() -> dict:
    """The computer: label, cpu, cores, memory_gib, gpu, gpu_memory_gib, driver, cuda, os, compiler.

    What is not there is None. The label is as in "Intel(R) Xeon(R) Processor, 2 cores, NVIDIA H200".
    """
    cpu, cores, gpu = cpu_name(), core_count(), graphics()
    label = f"{cpu}, {cores} core{'s' if cores > 1 else ''}"
    return {
        "label": f"{label}, {gpu['gpu']}" if gpu["gpu"] else label,
        "cpu": cpu,
        "cores": cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        **gpu,
        "os": operating_system(),
        "compiler": compiler(),
    }


def core_count() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = match[1] if match else output_of(["sysctl", "-n", "machdep.cpu.brand_string"])
    return " ".join((name or platform.machine()).split())


def graphics() -> dict:
    """Name, memory and driver of the first GPU, and torch's CUDA version; all None without one."""
    nothing = {"gpu": None, "gpu_memory_gib": None, "driver": None, "cuda": None}
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    rows = list(csv.reader((output_of(asked) or "").splitlines(), skipinitialspace=True))
    try:
        import torch

        present = torch.cuda.is_available()
    except ImportError:
        return nothing
    if not present:
        return nothing
    device = torch.cuda.get_device_properties(0)
    return {
        "gpu": device.name,
        "gpu_memory_gib": round(device.total_memory / 2**30, 1),
        "driver": next((row[2] for row in rows if len(row) == 3 and row[0] == device.name), None),
        "cuda": torch.version.cuda,
    }


def has_gpu() -> bool:
    """Tells whether `machine` has a GPU; torch, which takes seconds to import, is asked only where a driver is."""
    driver = shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists()
    return bool(driver) and machine()["gpu"] is not None


def operating_system() -> str:
    """Distribution and kernel, for example "Debian GNU/Linux 12 (bookworm), Linux 6.1"."""
    kernel = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def compiler() -> str | None:
    """The first line of the C++ compiler's --version: of $CXX, else of the first one found; with $LOCKSTEP_CXXFLAGS."""
    candidates = shlex.split(os.environ.get("CXX", "")) or next(
        ([name] for name in ("g++", "clang++", "c++") if shutil.which(name)), None
    )
    version = output_of([*candidates, "--version"]) if candidates else None
    return " ".join([*version.splitlines()[:1], *os.environ.get("LOCKSTEP_CXXFLAGS", "").split()]) if version else None


def packages() -> dict[str, str]:
    """The versions of the packages that matter, of those that are installed."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.name or "").lower()
        if name in PACKAGES or name.startswith(LIBRARY_PREFIXES):
            found[name] = distribution.version
    return {"python": platform.python_version()} | dict(sorted(found.items()))


def libraries(versions: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those of some packages, by default of those that are installed, that rows depend on."""
    versions = packages() if versions is None else versions
    return {
        name: version for name, version in versions.items() if name in LIBRARIES or name.startswith(LIBRARY_PREFIXES)
    }


def threads() -> dict:
    """Thread counts that were asked for: torch's and the environment variables that are set."""
    counts = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    if "torch" in sys.modules:
        counts["torch"] = sys.modules["torch"].get_num_threads()
    return counts


def output_of(arguments: list[str]) -> str | None:
    """The output of a program, stripped; None where it is missing or fails."""
    try:
        finished = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return finished.stdout.strip() if finished.returncode == 0 else None
