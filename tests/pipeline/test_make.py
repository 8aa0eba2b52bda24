"""make: what it says when something is missing, what it installs, and that it does so once."""

import os
import shutil
import subprocess

import pytest

from tests.pipeline.copies import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")

# A Python that only keeps a record of what it is asked to do. -m venv copies it to where it is told.
PYTHON = """#!/bin/sh
echo "$@" >> asked
case "$*" in
"-c import sys"*) test ! -e too_old ;;
"-c import ensurepip"*) test ! -e without_venv ;;
"-c print(1)") echo 1 ;;
"-c from importlib.metadata"*) test -e torch_installed ;;
"-m pip --version") test ! -e without_pip ;;
"-m venv --clear "*) rm -rf "$4" without_pip; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
"-m pip install --no-compile torch=="*+cpu) test -e cpu_build_visible && touch torch_installed ;;
"-m pip install --requirement "*.txt) test ! -e "$(basename "$5" .txt)_breaks" || { echo "URLError: no"; exit 1; } ;;
"-m pip install "*) test ! -e interrupted ;;
esac
"""
NEEDED = ("sh", "sed", "ls", "test", "echo", "uname", "touch", "rm", "mkdir", "cp", "basename")
TORCH = "-m pip install --no-compile torch==2.13.0+cpu"
ALL = [
    "-m pip install --no-compile --requirement requirements.lock",
    "-m pip install --no-deps --no-build-isolation --editable .",
]


@pytest.fixture
def tree(tmp_path):
    """A folder with a space in its name: the Makefile, the pins, and a path with little on it."""
    tree = tmp_path / "a folder"
    (tree / "bin").mkdir(parents=True)
    for file in ("Makefile", "pyproject.toml", "requirements.lock", "environment.yml"):
        shutil.copy(ROOT / file, tree)
    (tree / "profiles" / "slurm").mkdir(parents=True)
    shutil.copy(ROOT / "profiles" / "slurm" / "requirements.txt", tree / "profiles" / "slurm")
    for program in NEEDED:
        (tree / "bin" / program).symlink_to(shutil.which(program))
    for program in ("g++", "python3"):
        (tree / "bin" / program).write_text(PYTHON)
        (tree / "bin" / program).chmod(0o755)
    (tree / "cpu_build_visible").touch()
    return tree


def make(tree, *arguments, gpu="", **environment):
    """make arguments, with no compiler, Python or GPU but those of the folder; its output and status."""
    environment = {"PATH": str(tree / "bin"), "HOME": str(tree)} | environment
    command = [shutil.which("make"), f"HAS_GPU={gpu}", *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def asked(tree) -> list[str]:
    """The commands that Python got since the last call, checks left out."""
    record = tree / "asked"
    lines = record.read_text().splitlines() if record.exists() else []
    record.unlink(missing_ok=True)
    return [line for line in lines if not line.startswith("-c") and not line.endswith("--version")]


def test_without_a_target_make_names_all_of_them(tree):
    status, text = make(tree)
    assert status == 0
    assert all(
        f"make {target}" in text for target in ("report", "figures", "test", "sanitize", "lint", "record", "peers")
    )


@pytest.mark.parametrize(
    ("target", "command"),
    [
        (["report"], "-m snakemake --cores all"),
        (
            ["report", "SCALE=full", "ARGS=--dry-run"],
            "-m snakemake --cores all --config scale=full --dry-run",
        ),
        (["figures"], "-m lockstep.paper.build"),
        (["test"], "-m pytest --numprocesses logical --maxprocesses 8 --dist worksteal -m not slow and not long"),
        (["sanitize", "ARGS=--only cartpole"], "-m tests.sanitize --only cartpole"),
        (["record", "MACHINE=desk"], "-m lockstep.experiments.record --machine desk --scale full"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_the_first_run_sets_up_and_the_second_does_not(tree, target, command):
    assert make(tree, *target)[0] == 0
    assert asked(tree) == ["-m venv --clear .venv", TORCH, *ALL, command]
    assert make(tree, *target)[0] == 0
    assert asked(tree) == [command]


def test_lint_checks_python_snakefile_and_workflow(tree):
    assert make(tree, "lint")[0] == 0
    assert asked(tree)[4:] == [
        "-m ruff check .",
        "-m ruff format --check .",
        "-m snakefmt --check Snakefile rules",
        "-m snakemake --lint",
    ]


def test_the_plugin_for_a_cluster_is_installed_once_beside_the_environment(tree):
    install = (
        "-m pip install --quiet --no-deps --upgrade --target .venv-slurm --requirement profiles/slurm/requirements.txt"
    )
    (tree / ".venv-slurm").mkdir()  # as pip does
    assert make(tree, "test-cluster")[0] == 0
    assert asked(tree)[4:] == [install, "-m pytest tests/cluster"]
    assert make(tree, "test-cluster")[0] == 0
    assert asked(tree) == ["-m pytest tests/cluster"]


def test_where_python_may_not_keep_what_it_compiles_pip_compiles(tree):
    assert make(tree, "report", PYTHONDONTWRITEBYTECODE="1")[0] == 0
    commands = asked(tree)
    assert "-m pip install --requirement requirements.lock" in commands and "--no-compile" not in " ".join(commands)


def test_changed_pins_are_installed_over_the_old_ones_but_torch_is_kept(tree):
    make(tree, "test")
    asked(tree)
    os.utime(tree / "requirements.lock", (2**31, 2**31))
    assert make(tree, "test")[0] == 0
    assert asked(tree)[:2] == ALL


def test_an_interrupted_set_up_is_repeated_without_torch(tree):
    (tree / "interrupted").touch()
    assert make(tree, "test")[0] != 0
    assert asked(tree) == ["-m venv --clear .venv", TORCH, ALL[0]]
    (tree / "interrupted").unlink()
    assert make(tree, "test")[0] == 0
    assert asked(tree)[:2] == ALL


def test_a_virtual_environment_without_pip_is_made_anew(tree):
    make(tree, "test")
    asked(tree)
    (tree / ".venv" / "ready").unlink()
    (tree / "without_pip").touch()
    assert make(tree, "test")[0] == 0
    assert asked(tree)[0] == "-m venv --clear .venv"


def test_a_virtual_environment_that_lost_its_python_is_made_anew(tree):
    make(tree, "test")
    asked(tree)
    (tree / ".venv" / "bin" / "python").unlink()
    assert make(tree, "test")[0] == 0
    assert asked(tree)[0] == "-m venv --clear .venv"


def test_with_a_gpu_torch_is_the_standard_build_and_brings_nvrtc(tree):
    assert make(tree, "test", gpu="yes")[0] == 0
    assert asked(tree)[:3] == ["-m venv --clear .venv", *ALL]


def test_a_missing_cpu_build_of_torch_is_said_and_the_standard_one_taken(tree):
    (tree / "cpu_build_visible").unlink()
    status, text = make(tree, "test")
    assert status == 0
    assert "Note: pip sees no CPU build of torch 2.13.0" in text
    assert asked(tree)[:4] == ["-m venv --clear .venv", TORCH, *ALL]


def without(file):
    return lambda tree: (tree / file).unlink()


def with_a(file):
    return lambda tree: (tree / file).touch()


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (without("bin/g++"), "no C++ compiler found; install one (Debian: apt install g++)"),
        (without("bin/python3"), "python3 not found; install Python (Debian: apt install"),
        (with_a("too_old"), "python3 is older than Python 3.11; name a newer one: make PYTHON="),
        (with_a("without_venv"), "python3 cannot make virtual environments; install venv (Debian"),
    ],
    ids=["compiler", "python", "version", "venv"],
)
def test_what_is_missing_is_said_in_one_sentence(tree, break_it, sentence):
    break_it(tree)
    status, text = make(tree, "report")
    assert status != 0
    assert f"error: {sentence}" in text
    assert asked(tree) == []


def test_the_compiler_may_be_named(tree):
    assert make(tree, "test", CXX="nowhere")[0] != 0
    (tree / "bin" / "g++").rename(tree / "bin" / "another")
    assert make(tree, "test")[0] != 0
    assert make(tree, "test", CXX="another -std=c++17")[0] == 0


def test_record_asks_for_a_name(tree):
    status, text = make(tree, "record")
    assert status != 0
    assert "error: give this machine a name: make record MACHINE=xeon-2core" in text


UV = """#!/bin/sh
echo "$UV_CUSTOM_COMPILE_COMMAND: $*" >> asked
printf '# by %s\\nnumpy==9.9\\n    # via torch\\ntorch==8.8\\n' "$UV_CUSTOM_COMPILE_COMMAND" > requirements.lock
"""


def test_lock_writes_the_pins_of_pip_and_conda(tree):
    uv = tree / "bin" / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    (tree / "bin" / "mv").symlink_to(shutil.which("mv"))
    before = (tree / "environment.yml").read_text().partition("  - pip:\n")
    assert make(tree, "lock", "ARGS=--upgrade")[0] == 0
    options = "pip compile --quiet pyproject.toml --output-file requirements.lock --upgrade"
    assert asked(tree) == [f"make lock: {options}"]
    after = "".join(before[:2]) + "      - numpy==9.9\n      - torch==8.8\n"
    assert (tree / "environment.yml").read_text() == after


# ---- Peers ----

WORKERS, LEARNERS = "experiments/peer_workers", "experiments/learning_workers"


@pytest.fixture
def peers(tree):
    """The same folder with the requirements of two peers."""
    (tree / WORKERS).mkdir(parents=True)
    for peer in ("one", "two"):
        (tree / WORKERS / f"{peer}.txt").write_text(f"{peer}==1.0\n")
    return tree


def set_up(peer, workers=WORKERS):
    return [
        f"-m venv --clear .venv-peers/{peer}",
        f"-m pip install --requirement {workers}/{peer}.txt",
    ]


def test_each_peer_has_an_environment_of_its_own_set_up_once(peers):
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == [*set_up("one"), *set_up("two")]
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == []
    os.utime(peers / WORKERS / "two.txt", (2**31, 2**31))
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == set_up("two")


def test_a_peer_that_learns_is_set_up_as_well(peers):
    (peers / LEARNERS).mkdir()
    (peers / LEARNERS / "three.txt").write_text("three==1.0\n")
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == [*set_up("one"), *set_up("two"), *set_up("three", LEARNERS)]
    os.utime(peers / LEARNERS / "three.txt", (2**31, 2**31))
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == set_up("three", LEARNERS)


def test_a_peer_that_does_not_install_leaves_the_others_and_a_log(peers):
    (peers / "one_breaks").touch()
    status, text = make(peers, "peers")
    assert status == 0
    assert "Note: one is left out, since it does not install here; .venv-peers/one/install.log says why." in text
    assert asked(peers) == [*set_up("one"), *set_up("two")]
    assert not (peers / ".venv-peers" / "one" / "ready").exists()
    assert (peers / ".venv-peers" / "one" / "install.log").read_text() == "URLError: no\n"
    assert (peers / ".venv-peers" / "two" / "ready").exists()
    (peers / "one_breaks").unlink()
    assert make(peers, "peers")[0] == 0
    assert asked(peers) == set_up("one")


def test_no_other_target_sets_up_a_peer(peers):
    assert make(peers, "report")[0] == 0
    assert not (peers / ".venv-peers").exists()


def test_peers_need_a_python_that_makes_virtual_environments(peers):
    (peers / "without_venv").touch()
    status, text = make(peers, "peers")
    assert status != 0
    assert "error: python3 cannot make virtual environments; install venv" in text
