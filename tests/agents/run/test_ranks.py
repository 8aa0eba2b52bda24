"""Several processes are one with as many shards; they stop together."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lockstep import agents, envs
from lockstep.agents import ppo
from lockstep.agents.parts.adam import Adam
from lockstep.agents.run import checkpoint, ranks, training
from lockstep.agents.run.config import replaced
from tests.agents import served, training_worker
from tests.agents.test_algorithms import same

ROOT = Path(__file__).parents[3]


def torchrun(*arguments: str) -> subprocess.Popen:
    """Two processes on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def outcome(process: subprocess.Popen, timeout_s: float = 60) -> tuple[str, int]:
    """The text on stderr and the exit status; nothing that was started is left."""
    try:
        return process.communicate(timeout=timeout_s)[1], process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def worker(what: str, folder: Path) -> tuple[str, int]:
    return outcome(torchrun("-m", "tests.agents.training_worker", what, str(folder)))


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The folder of two processes that were given what torchrun gives."""
    folder = tmp_path_factory.mktemp("ddp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    said, work = folder / "said.txt", (training_worker.in_ranks, "equal", folder)
    processes = [served.process(said, *work, RANK=rank, LOCAL_RANK=rank, **variables) for rank in "01"]
    assert [served.status(process) for process in processes] == [0, 0], said.read_text()
    return folder


@pytest.mark.parametrize("name", list(training_worker.RUNS))
def test_two_processes_are_one_with_two_shards(two_processes, name):
    environment, config = training_worker.RUNS[name]
    run = ppo.PPO(environment, replaced(config, {"shards": 2}))
    for _ in range(3):
        run.iterate()
    first, second = checkpoint.load(two_processes / name / "checkpoint.pt")["states"]
    assert torch.equal(first["parameters"], run.networks.parameters)
    assert torch.equal(second["parameters"], run.networks.parameters)
    assert not torch.equal(first["parameters"], ppo.PPO(environment, config).networks.parameters)
    for part in ("normaliser", "scale"):
        for key, tensor in run.state().get(part, {}).items():
            if key != "running":  # of each environment
                assert torch.allclose(first[part][key], tensor, rtol=1e-6)
                assert torch.equal(first[part][key], second[part][key])


@pytest.mark.parametrize("name", list(training_worker.OFF_POLICY))
def test_two_processes_with_a_replay_each_have_one_network(two_processes, name):
    algorithm, environment, changes = training_worker.OFF_POLICY[name]
    states = checkpoint.load(two_processes / name / "checkpoint.pt")["states"]
    kind = agents.algorithm(algorithm)
    begun = kind(environment, replaced(kind.Config(), changes)).weights()
    for part in begun:
        assert same(states[0][part], states[1][part])
        assert not same(states[0][part], begun[part])
    followed = [state.get("target", state.get("targets")) for state in states]
    assert followed[0] is not None and same(*followed)
    first = envs.make(environment, 16).reset(seed=0)[0]
    rows = [state["replay"]["rows"] for state in states]
    assert torch.equal(torch.cat([part["obs"][:8] for part in rows]), first)
    assert not torch.equal(rows[0]["action"][:8], rows[1]["action"][:8])
    assert [int(state["replay"]["written"]) for state in states] == [160, 160]
    if "normaliser" in begun:
        stored, (found, _) = torch.cat([part["obs"][:160] for part in rows]).double(), states
        torch.testing.assert_close(found["normaliser"]["mean"][0], stored.mean(dim=0))
        torch.testing.assert_close(found["normaliser"]["count"], torch.tensor([320.0], dtype=torch.float64))


@pytest.mark.parametrize("name", [*training_worker.RUNS, *training_worker.OFF_POLICY])
def test_what_two_processes_have_trained_acts_in_one(two_processes, name):
    """A policy that is normalised in any way needs the statistics, which are equal too."""
    algorithm, environment, _ = training_worker.OFF_POLICY.get(name, ("ppo", *training_worker.RUNS.get(name, ())))
    kind, states = agents.algorithm(algorithm), checkpoint.load(two_processes / name / "checkpoint.pt")["states"]
    loaded = training.load(kind, two_processes / name)
    assert loaded.env.num_envs == loaded.config.num_envs and loaded.iteration == 0
    assert all(same(part, states[1][key]) for key, part in loaded.weights().items())
    twin = kind(environment, kind.to_act(loaded.config))
    twin.load_weights(states[1])
    obs = envs.make(environment, 50).reset(seed=1)[0]
    assert torch.equal(loaded.act(obs), twin.act(obs))


def test_a_step_of_two_processes_is_one_along_the_mean_of_their_gradients(two_processes):
    """The mean is made before its norm is limited: one process's Adam along (g0 + g1) / 2 is the same."""
    found = [torch.load(two_processes / f"stepped{rank}.pt", weights_only=True) for rank in (0, 1)]
    mean = torch.tensor(training_worker.GRADIENTS).mean(dim=0)
    assert mean.tolist() == [1.5, 1.0, 0.0]
    for number, limit in enumerate(training_worker.LIMITS):
        parameters, gradient = torch.zeros(3), torch.zeros(3)
        adam = Adam(parameters, gradient, limit)
        for step in range(2):
            gradient.copy_(mean)
            norm = float(adam.step(0.1))
            assert norm == pytest.approx(3.25**0.5)
            assert [one[number]["norms"][step] for one in found] == [pytest.approx(norm)] * 2
        for one in found:
            for name, part in ({"parameters": parameters} | adam.state).items():
                torch.testing.assert_close(one[number][name], part)


def test_hosts_vote_among_themselves_without_a_device(monkeypatch):
    """Of two processes with a GPU each: NCCL sums what is on the device, gloo the votes of the hosts."""
    made, summed = [], []
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "find_device", torch.device)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(ranks.atexit, "register", lambda function: None)
    monkeypatch.setattr(ranks.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(ranks.distributed, "init_process_group", lambda backend: made.append(backend))
    monkeypatch.setattr(ranks.distributed, "new_group", lambda *given: given[2])
    monkeypatch.setattr(ranks.distributed, "all_reduce", lambda *given: summed.append(given))
    assert ranks.Ranks("cuda").most([3, True]) == [3, 1]
    ((votes, _, group),) = summed
    assert made == ["nccl"] and group == "gloo" and votes.device.type == "cpu"


@pytest.mark.slow
def test_two_new_processes_continue_what_two_have_saved(two_processes, tmp_path):
    shutil.copytree(two_processes, tmp_path, dirs_exist_ok=True)
    said, status = worker("resume", tmp_path)
    assert status == 0, said
    for name, (environment, config) in training_worker.RUNS.items():
        run = ppo.PPO(environment, replaced(config, {"shards": 2}))
        for _ in range(10):
            run.iterate()
        for state in checkpoint.load(tmp_path / name / "checkpoint.pt")["states"]:
            assert torch.equal(state["parameters"], run.networks.parameters), name
        rows = (tmp_path / name / "progress.csv").read_text().splitlines()[1:]
        assert [int(row.partition(",")[0]) for row in rows] == list(range(1, 11))
    for name in training_worker.OFF_POLICY:
        half, whole = (checkpoint.load(tmp_path / folder / "checkpoint.pt") for folder in (f"{name}-half", name))
        assert all(map(same, half["states"], whole["states"])), name


def test_each_process_has_its_part_of_the_environments(two_processes):
    environment, config = training_worker.RUNS["kernels"]
    run = ppo.PPO(environment, replaced(config, {"shards": 2}))
    for _ in range(3):
        run.iterate()
    states = checkpoint.load(two_processes / "kernels/checkpoint.pt")["states"]
    halves = [state["environment"]["state"] for state in states]
    assert torch.equal(torch.cat(halves), run.state()["environment"]["state"])


def test_the_log_has_the_episodes_of_all_processes(two_processes):
    environment, config = training_worker.RUNS["kernels"]
    run = ppo.PPO(environment, replaced(config, {"shards": 2}))
    run.iterate()
    figures = run.statistics()
    names, first, *_ = (line.split(",") for line in (two_processes / "kernels/progress.csv").read_text().splitlines())
    row = dict(zip(names, map(float, first), strict=True))
    assert row["episodes"] == figures["episodes"] > 0
    assert row["episode_return"] == pytest.approx(figures["episode_return"])
    assert row["policy_loss"] == pytest.approx(figures["policy_loss"], rel=1e-5)


@pytest.mark.slow
def test_a_process_that_fails_ends_all(tmp_path):
    start = time.monotonic()
    said, status = worker("fails", tmp_path)
    assert status != 0 and time.monotonic() - start < 25
    assert "process 1: the environment is out of order" in said
    assert "process 0: process 0 has lost another one" in said or "Signal 15" in said  # whichever came first


@pytest.mark.slow
def test_nan_in_one_process_stops_all_and_is_saved(tmp_path):
    said, status = worker("nan", tmp_path)
    assert status != 0
    assert "process 0: " in said and "process 1: iteration 1, minibatch 0: reward is not finite" in said
    assert f"the parameters in {tmp_path / 'checkpoint.pt'} are finite" in said
    for state in checkpoint.load(tmp_path / "checkpoint.pt")["states"]:
        assert state["parameters"].isfinite().all()


@pytest.mark.slow
def test_sigterm_saves_and_the_run_goes_on_only_in_as_many_processes(tmp_path):
    process = torchrun("-m", "lockstep.agents.ppo", "cartpole", "--total-steps", "99000000", "--output", str(tmp_path))
    try:
        deadline = time.monotonic() + 40
        while "\n1," not in (tmp_path / "progress.csv").read_text() if (tmp_path / "progress.csv").exists() else True:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        process.terminate()
    finally:
        said, status = outcome(process)
    assert status != 0
    assert said.count("interrupted after") == 1
    assert (
        "to go on: torchrun --standalone --nproc-per-node 2 -m lockstep.agents.ppo cartpole --device cpu "
        f"--resume {tmp_path}" in said
    )
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    first, second = content["states"]
    assert first["iteration"] == second["iteration"] > 0
    assert torch.equal(first["parameters"], second["parameters"])
    config = ppo.config_of("cartpole", total_steps=99_000_000)
    with pytest.raises(ValueError, match="checkpoint.pt is of 2 processes; this run has 1"):
        ppo.train("cartpole", config, resume=tmp_path / "checkpoint.pt")
