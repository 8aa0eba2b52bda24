import getpass
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.experiments import ROOT
from lockstep.experiments.bench import timing
from lockstep.experiments.ledger import provenance

KEYS = {
    *("format", "experiment", "environment", "scale", "command", "commit", "dirty", "started", "finished"),
    *("wall_s", "cpu_s", "sources", "config", "machine", "packages", "lock", "threads", "timing", "seed"),
}
MACHINE = {
    *("label", "cpu", "cores", "memory_gib", "gpu", "gpu_memory_gib", "driver", "cuda", "os", "compiler"),
}


def collected(**changes):
    arguments = {
        "experiment": "throughput",
        "environment": "cartpole",
        "scale": "quick",
        "config": {"seed": 3, "throughput": {"blocks": 10}},
        "sources": provenance.hashes(["experiments/bench/timing.py"]),
    }
    return provenance.collect(**arguments | changes)


@pytest.fixture
def repository(tmp_path):
    """A git repository with one committed file, code.py."""

    def git(*arguments):
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("1\n")
    git("add", "code.py")
    git("commit", "-m", "one")
    return tmp_path


def test_provenance_has_the_agreed_keys_and_is_json():
    found = collected(timing=timing.method(10), wall_s=1.5, cpu_s=2.5)
    assert set(found) == KEYS
    assert set(found["machine"]) == MACHINE
    assert json.loads(json.dumps(found)) == found
    assert (found["seed"], found["wall_s"], found["timing"]["blocks"]) == (3, 1.5, 10)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["started"])


def test_provenance_tells_no_host_user_or_absolute_path(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["-m", "--output", str(ROOT / "results/x.csv"), f"--at={Path.home()}/y"])
    text = json.dumps(collected())
    names = {socket.gethostname(), platform.node(), getpass.getuser(), Path.home().name, ROOT.parent.name}
    for name in names - {""}:
        assert not re.search(rf"\b{re.escape(name)}\b", text), name
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    assert not [word for string in strings for word in re.split(r"[ =,]", string) if word.startswith("/")]
    assert "--output results/x.csv --at=y" in text


def test_label_is_processor_and_cores():
    machine = provenance.machine()
    assert machine["label"].startswith(f"{machine['cpu']}, {machine['cores']} core")
    assert machine["cores"] == len(os.sched_getaffinity(0))


def test_label_of_one_core_and_a_gpu(monkeypatch):
    gpu = {"gpu": "NVIDIA H200", "gpu_memory_gib": 139.7, "driver": "580.159", "cuda": "13.0"}
    monkeypatch.setattr(provenance, "graphics", lambda: gpu)
    monkeypatch.setattr(provenance, "core_count", lambda: 1)
    monkeypatch.setattr(provenance, "cpu_name", lambda: "Intel(R) Xeon(R) Processor")
    machine = provenance.machine.__wrapped__()
    assert machine["label"] == "Intel(R) Xeon(R) Processor, 1 core, NVIDIA H200"
    assert machine["driver"] == "580.159"


@pytest.mark.parametrize(
    ("driver", "found", "has_gpu"), [(False, "a GPU", False), (True, None, False), (True, "a GPU", True)]
)
def test_torch_is_asked_for_a_gpu_only_where_there_is_a_driver(monkeypatch, tmp_path, driver, found, has_gpu):
    asked = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provenance, "machine", lambda: asked.append(found) or {"gpu": found})
    monkeypatch.setattr(Path, "exists", lambda path: False)
    if driver:
        (tmp_path / "nvidia-smi").touch(0o755)
    assert (provenance.has_gpu(), bool(asked)) == (has_gpu, driver)


def test_nothing_but_python_is_needed(monkeypatch):
    """Neither git nor nvidia-smi nor a compiler on the path: their entries are None."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert provenance.git_commit(["experiments/bench/timing.py"]) == (None, None)
    assert provenance.compiler() is None
    assert provenance.output_of(["nvidia-smi"]) is None
    found = collected(commit="0123abc")
    assert (found["commit"], found["dirty"]) == ("0123abc", None)


def test_commit_and_dirty_flag_of_the_sources(repository):
    head = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, text=True)
    commit = head.stdout.strip()
    assert provenance.git_commit(["code.py"], repository) == (commit, False)
    (repository / "other.txt").write_text("not a source")
    assert provenance.git_commit(["code.py"], repository) == (commit, False)
    (repository / "code.py").write_text("2\n")
    assert provenance.git_commit(["code.py"], repository) == (commit, True)


def test_a_new_source_is_dirty(repository):
    (repository / "new.py").write_text("")
    assert provenance.git_commit(["code.py", "new.py"], repository)[1] is True


def test_the_commit_of_a_repository_around_ours_is_not_ours(repository):
    inside = repository / "unpacked"
    inside.mkdir()
    shutil.copy(repository / "code.py", inside)
    assert provenance.git_commit(["code.py"], inside) == (None, None)


def test_hashes_are_sha256(tmp_path):
    """FIPS 180-2, appendix B.1: the digest of "abc"."""
    (tmp_path / "abc").write_text("abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert provenance.hashes(["abc"], tmp_path) == {"abc": digest}


def test_the_lock_is_named_by_its_hash():
    sha256sum = subprocess.run(["sha256sum", ROOT / "requirements.lock"], capture_output=True, text=True, check=True)
    assert collected()["lock"] == sha256sum.stdout.split()[0]


def test_changed_sources_are_those_edited_or_gone(tmp_path):
    for name in ("kept", "edited", "gone"):
        (tmp_path / name).write_text(name)
    before = provenance.hashes(["kept", "edited", "gone"], tmp_path)
    assert provenance.changed(before, tmp_path) == []
    (tmp_path / "kept").touch()
    (tmp_path / "edited").write_text("other")
    (tmp_path / "gone").unlink()
    assert provenance.changed(before, tmp_path) == ["edited", "gone"]


def test_the_cupy_distribution_found_is_named(monkeypatch):
    class Distribution:
        def __init__(self, name, version):
            self.name, self.version = name, version

    installed = [
        Distribution("cupy-cuda13x", "14.2.0"),
        Distribution("torch", "2.11.0"),
        Distribution("wibble", "1"),
    ]
    monkeypatch.setattr(provenance.importlib.metadata, "distributions", lambda: installed)
    assert provenance.packages() == {
        "python": platform.python_version(),
        "cupy-cuda13x": "14.2.0",
        "torch": "2.11.0",
    }


def test_rows_depend_on_libraries_and_on_no_other_package():
    names = {"torch", "numpy", "gymnasium", "pettingzoo", "cupy-cuda13x", "nvidia-cuda-nvrtc"}
    versions = dict.fromkeys([*names, "python", "snakemake", "pandas"], "1")
    assert set(provenance.libraries(versions)) == names
    assert provenance.libraries()["torch"] == importlib.metadata.version("torch")


def test_the_compiler_is_that_of_cxx(monkeypatch, tmp_path):
    fake = tmp_path / "mycc"
    fake.write_text('#!/bin/sh\n[ "$1" = -q ] && echo "my compiler 1.2"\necho copyright\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", f"{fake} -q")
    monkeypatch.setenv("LOCKSTEP_CXXFLAGS", "-O0 -g")
    assert provenance.compiler() == "my compiler 1.2 -O0 -g"
    monkeypatch.delenv("LOCKSTEP_CXXFLAGS")
    assert provenance.compiler() == "my compiler 1.2"
