"""The profile for Slurm without a Slurm: train.sh with stubs in its path, and that a missing cluster is told."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "profiles" / "slurm" / "train.sh"
PROGRAMS = {
    # Two nodes of any names, one of which Slurm reaches at another address; a node's own word for itself is of no use.
    "scontrol": """case "$1 $2 $3" in
        "show hostnames gpu[07-08]") printf 'gpu07\\ngpu08\\n' ;;
        "show node gpu07") printf 'NodeName=gpu07 Arch=x86_64\\n   NodeAddr=10.0.0.7 Version=22\\n' ;;
    esac""",
    "hostname": "echo 127.0.1.1",
    # Its own options, then the program of the second node.
    "srun": """while [[ $1 == --* ]]; do options+=("$1"); shift; done
    echo "srun: ${options[*]}"
    SLURM_NODEID=1 "$@" """,
    "python": f"""[[ $1 != -c ]] || exec "{sys.executable}" "$@"
    echo "python: $*" """,
}
JOB = {"SLURM_JOB_NODELIST": "gpu[07-08]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_ID": "10007"}


@pytest.fixture
def job(tmp_path):
    """A function that runs the script as a job on two nodes."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)

    def start(*words: str, **variables: str) -> subprocess.CompletedProcess:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | JOB | variables
        return subprocess.run(["bash", SCRIPT, *words], env=environment, capture_output=True, text=True)

    return start


def words_after(option: str, said: str) -> str:
    return said.split(f"{option} ", 1)[1].split()[0]


def test_every_node_s_torchrun_meets_at_the_first_node_s_address(job):
    said = job("ppo", "cartpole", "--output", "a folder")
    assert (said.returncode, said.stderr) == (0, "")
    own, program = said.stdout.splitlines()
    assert own == "srun: --kill-on-bad-exit=1"
    port = words_after("--master-port", program)
    assert 1024 < int(port) < 65536
    assert program == (
        "python: -m torch.distributed.run --nnodes 2 --node-rank 1 --nproc-per-node 4 --master-addr 10.0.0.7 "
        f"--master-port {port} -m lockstep.agents.ppo cartpole --output a folder"
    )


def test_cores_asked_for_reach_the_processes(job):
    own, _ = job("ppo", "cartpole", SLURM_CPUS_PER_TASK="16").stdout.splitlines()
    assert own == "srun: --kill-on-bad-exit=1 --cpus-per-task=16"


def test_two_jobs_of_one_node_take_two_ports(job):
    """Whatever their numbers are, here ten thousand apart."""
    first = int(words_after("--master-port", job("ppo", "cartpole").stdout))
    with socket.create_server(("", first)):
        second = int(words_after("--master-port", job("ppo", "cartpole", SLURM_JOB_ID="20007").stdout))
    assert first != second


def test_without_words_it_says_its_usage(job):
    for words in ([], ["ppo"]):
        said = job(*words)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith("usage: sbatch --nodes N ")


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_a_missing_cluster_is_skipped_or_where_one_is_required_an_error(tmp_path, required, outcome):
    test = "tests/cluster/test_start.py::test_a_daemon_that_ends_has_the_last_word"
    options = ["-p", "no:cacheprovider", "--basetemp", str(tmp_path / "pytest"), "-q"]
    variables = os.environ | {"PATH": str(tmp_path), "REQUIRE_CLUSTER": required}
    command = [sys.executable, "-m", "pytest", *options, test]
    ended = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert ended.returncode == bool(required), ended.stdout
    assert outcome in ended.stdout
    assert "needs munge and slurm-wlm" in ended.stdout or not required
