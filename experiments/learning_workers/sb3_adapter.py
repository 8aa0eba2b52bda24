"""Stable-Baselines3's agents as in sb3.py, on the port through envs/adapters/sb3.py."""

from lockstep.experiments.learning_workers import Job, sb3, serve

TITLE = "sb3-adapter"
PACKAGE, ALGORITHMS = sb3.PACKAGE, sb3.ALGORITHMS
HOW = "on the port through envs.adapters.sb3"


def vector(job: Job, seed: int):
    from lockstep.envs.adapters import sb3 as adapter

    return adapter.make(job.environment, job.settings["num_envs"], seed=seed)


def measure(job: Job) -> list[dict]:
    import torch

    torch.set_num_threads(job.threads)
    return sb3.rates(job, vector, HOW)


if __name__ == "__main__":
    serve(measure)
