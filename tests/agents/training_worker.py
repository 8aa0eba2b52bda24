"""Runs of tests of training in processes of their own: python -m tests.agents.training_worker <what> <folder>."""

import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from lockstep import agents, envs
from lockstep.agents import ppo
from lockstep.agents.run import log, training
from lockstep.agents.run.config import replaced
from lockstep.agents.run.ranks import Ranks

SMALL = {"num_envs": 64, "horizon": 16, "total_steps": 10 * 1024, "epochs": 2, "minibatches": 4, "threads": 1}
RUNS = {
    "kernels": ("cartpole", ppo.config_of("cartpole", "solve", **SMALL)),
    "torch": ("cartpole", ppo.config_of("cartpole", "solve", **SMALL, rollout="torch", gradient="autograd")),
    "normalised": ("pendulum", ppo.config_of("pendulum", "continuous", **SMALL)),
}
SHARED = {"num_envs": 16, "total_steps": 16 * 20, "learning_starts": 64, "capacity": 400, "hidden": (16,)}
SHARED |= {"replay_ratio": 0.25, "eval_every": 16}
OFF_POLICY = {  # algorithm, environment and changes
    "dqn": ("dqn", "cartpole", SHARED),
    "iqn": ("iqn", "cartpole", SHARED | {"batch_size": 16}),
    "rainbow": ("rainbow", "cartpole", SHARED | {"batch_size": 16, "encoder": 16, "n_step": 1}),
    "sac": ("sac", "pendulum", SHARED | {"batch_size": 16}),
    "ac_iqn": ("ac_iqn", "pendulum", SHARED | {"batch_size": 16}),
    "ddpg": ("ddpg", "pendulum", SHARED | {"batch_size": 16}),
    "by statistics": ("td3", "pendulum", SHARED | {"batch_size": 16, "norm_obs": True}),
    "fixed": ("sac", "pendulum", SHARED | {"batch_size": 16, "learn_alpha": False, "target_actor": True}),
}
GRADIENTS = [3.0, 0.0, -1.0], [0.0, 2.0, 1.0]  # of two processes
LIMITS = 1.0, 100.0  # of the norm of their mean, 1.80


class Poisoned:
    """A port whose k-th step gives one reward that is NaN, or fails."""

    def __init__(self, num_envs: int, at: int = 0, fails: bool = False):
        self.port = envs.make("cartpole", num_envs)
        self.at, self.fails, self.steps = at, fails, 0

    def __getattr__(self, name):
        return getattr(self.port, name)

    def step(self, action):
        self.steps += 1
        obs, reward, *rest = self.port.step(action)
        if self.steps == self.at:
            if self.fails:
                raise ValueError("the environment is out of order")
            reward[3] = torch.nan
        return obs, reward, *rest


def stops_at(iteration: int):
    return lambda run: run.iteration == iteration


def train(name: str, folder: Path, stop: int | None = None, **options):
    """A run with a row of its log for every iteration; with `stop`, only so many iterations."""
    log.ROW_EVERY_S = 0.0
    environment, config = RUNS[name]
    config = replaced(config, {"eval_every": 1})
    check = None if stop is None else stops_at(stop)
    return ppo.train(environment, config, output=folder / name, check=check, **options)


def train_off_policy(name: str, folder: Path, **options):
    """A run that learns from a replay."""
    algorithm, environment, changes = OFF_POLICY[name]
    kind = agents.algorithm(algorithm)
    return training.train(kind, environment, replaced(kind.Config(), changes), output=folder, **options)


def stepped(run, folder: Path):
    """Writes what two steps of a run's optimiser make of a gradient that is another one in each process."""
    found = []
    for limit in LIMITS:
        run.config = replaced(run.config, {"max_grad_norm": limit})
        parameters, gradient = torch.zeros(3), torch.zeros(3)
        optimizer = run.optimizer(parameters, gradient)
        norms = []
        for _ in range(2):
            gradient.copy_(torch.tensor(GRADIENTS[run.ranks.rank]))
            norms.append(float(optimizer.step(0.1)))
        found.append({"parameters": parameters, "norms": norms} | optimizer.state)
    torch.save(found, folder / f"stepped{run.ranks.rank}.pt")


def resume(folder: Path, off_policy: Iterable[str] = ()):
    torch.set_num_threads(1)
    for name in RUNS:
        run = train(name, folder, resume=folder / name / "checkpoint.pt")
    for name in off_policy:
        half = folder / f"{name}-half"
        run = train_off_policy(name, half, resume=half)
    run.ranks.close()


def in_ranks(what: str, folder: Path):
    """The work of each of several processes."""
    torch.set_num_threads(1)
    if what == "equal":
        for name in RUNS:
            run = train(name, folder, stop=3)
        for name in OFF_POLICY:
            train_off_policy(name, folder / f"{name}-half", check=stops_at(10))
            run = train_off_policy(name, folder / name)
        stepped(run, folder)
        run.ranks.close()
        return
    _, config = RUNS["torch"]
    rank = Ranks("cpu").rank
    environment = Poisoned(32, at=20 if rank == 1 else 0, fails=what == "fails")
    try:
        ppo.train(environment, config, output=folder)
    except (ValueError, FloatingPointError, ConnectionError) as error:
        sys.exit(f"process {rank}: {error}")


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2])
    resume(folder, OFF_POLICY) if what == "resume" else in_ranks(what, folder)
