"""Training on two nodes by torchrun under srun is training by one process in two shards, also after a kill."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lockstep.agents import ppo
from lockstep.agents.run import checkpoint
from tests.cluster import slurm

ROOT = Path(__file__).parents[2]
ITERATIONS = 160
SETTINGS = {
    **{"num_envs": 64, "horizon": 16, "total_steps": ITERATIONS * 1024, "epochs": 2, "minibatches": 4, "threads": 1},
    "save_every": 20 * 1024,
}
OPTIONS = [word for name, value in SETTINGS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
TRAIN = ["ppo", "cartpole", "--recipe", "solve", *OPTIONS, "--episodes", "0", "--quiet"]


@pytest.fixture(scope="module")
def parameters() -> torch.Tensor:
    """Those that one process with two shards ends with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = ppo.PPO("cartpole", ppo.config_of("cartpole", "solve", **SETTINGS, shards=2))
    while run.iteration < run.iterations:
        run.iterate()
    torch.set_num_threads(threads)
    return run.networks.parameters


def sbatch(log: Path, *words: str) -> str:
    """The number of a job, which has this Python first on its path."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    command = ["sbatch", "--parsable", "--output", str(log), "--open-mode=append", *words]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def train(log: Path, *words: str, options: Sequence[str] = ()) -> str:
    return sbatch(log, "--nodes", "2", *options, "profiles/slurm/train.sh", *words)


def processes(output: Path) -> dict[int, dict[str, str]]:
    """The environment of each process that trains into a folder, by its number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            variables = (folder / "environ").read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        if str(output) in words and "LOCAL_RANK" in (found_here := dict(one.split("=", 1) for one in variables if one)):
            found[int(folder.name)] = found_here
    return found


def require_equal(output: Path, parameters: torch.Tensor) -> None:
    states = checkpoint.load(output / "checkpoint.pt")["states"]
    assert len(states) == 2
    for state in states:
        assert state["iteration"] == ITERATIONS
        assert torch.equal(state["parameters"], parameters)


def test_two_nodes_are_one_process_with_two_shards(cluster, parameters, tmp_path):
    log = tmp_path / "log.txt"
    job = train(log, *TRAIN, "--output", str(tmp_path / "run"), options=["--cpus-per-task", "2"])
    assert cluster.outcome(job, 120) == {"COMPLETED"}, log.read_text()
    assert [one["cpus"] for one in cluster.jobs() if one["number"] == job] == ["4"]  # two on each node
    require_equal(tmp_path / "run", parameters)


def test_a_killed_process_ends_all_with_one_sentence_and_the_run_goes_on(cluster, parameters, tmp_path):
    log, output = tmp_path / "log.txt", tmp_path / "run"
    job = train(log, *TRAIN, "--output", str(output))
    slurm.until((output / "checkpoint.pt").exists, 60, "a checkpoint")
    ranks = {variables["RANK"]: (number, variables) for number, variables in processes(output).items()}
    assert {variables["SLURMD_NODENAME"] for _, variables in ranks.values()} == {"a", "b"}
    os.kill(ranks["1"][0], 9)
    assert cluster.outcome(job, 60) == {"FAILED"}
    slurm.until(lambda: not processes(output), 20, "all processes have ended")
    sentences = re.findall(r"^.*error: process \d has lost another one.*$", log.read_text(), re.MULTILINE)
    assert len(sentences) == 1 and "process 0" in sentences[0], log.read_text()
    assert checkpoint.load(output / "checkpoint.pt")["states"][0]["iteration"] < ITERATIONS

    goes_on = ["ppo", "cartpole", "--resume", str(output), "--episodes", "0", "--quiet"]
    assert cluster.outcome(train(log, *goes_on), 120) == {"COMPLETED"}, log.read_text()
    require_equal(output, parameters)


def test_an_array_has_a_run_for_each_seed(cluster, tmp_path):
    program = "python -m lockstep.agents.ppo cartpole --seed $SLURM_ARRAY_TASK_ID --total-steps 8192 --episodes 0"
    words = ["--array=1-2", "--wrap", f"{program} --output {tmp_path}/$SLURM_ARRAY_TASK_ID"]
    assert cluster.outcome(sbatch(tmp_path / "log.%a.txt", *words), 60) == {"COMPLETED"}
    for seed in (1, 2):
        assert checkpoint.load(tmp_path / str(seed) / "checkpoint.pt")["config"]["seed"] == seed
