"""What a policy returns in the original: whole episodes of Gymnasium's own classes, spread over processes.

Scoring is not timed. Its processes are started before anything is, and wait while something is timed.
"""

import dataclasses
import functools
import importlib.util
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

from lockstep.agents import evaluation, ppo
from lockstep.experiments.ledger import provenance

SEED_OF_SAMPLES = 1


class Scorer:
    """Mean returns of greedy or sampled episodes in the original, episode i from seed 10,000 + i.

    A context manager. `present` is False where Gymnasium is missing: then every score is None.
    """

    def __init__(self, processes: int | None = None):
        self.processes = processes or provenance.core_count()
        self.present = importlib.util.find_spec("gymnasium") is not None

    def __enter__(self) -> "Scorer":
        # A fork of a process without threads is safe, and has torch at once; macOS allows no fork.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.pool = ProcessPoolExecutor(
            self.processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
        )
        self.pool.submit(int).result()
        return self

    def __exit__(self, *exception) -> None:
        self.pool.shutdown(cancel_futures=True)

    def scores(
        self,
        environment: str,
        config: ppo.Config,
        policies: Sequence[Mapping],
        episodes: int = evaluation.EPISODES,
        greedy: bool = True,
    ) -> list[float | None]:
        """The mean return of each policy, as `policy_of` took it from a run of the configuration."""
        if not self.present:
            return [None] * len(policies)
        firsts = range(0, episodes, -(-episodes // self.processes))
        counts = [min(firsts.step, episodes - first) for first in firsts]
        parts = [
            [
                self.pool.submit(returns, environment, config, policy, count, evaluation.FIRST_SEED + first, greedy)
                for first, count in zip(firsts, counts, strict=True)
            ]
            for policy in policies
        ]
        return [float(np.concatenate([part.result() for part in of_one]).mean()) for of_one in parts]


def policy_of(run: ppo.PPO) -> dict:
    """What a run's actions depend on, on the CPU."""
    normaliser = run.normaliser.state() if run.normaliser is not None else {}
    return {
        "parameters": run.networks.parameters.cpu().numpy().copy(),
        "normaliser": {name: tensor.cpu().numpy().copy() for name, tensor in normaliser.items()},
    }


def returns(
    environment: str, config: ppo.Config, policy: Mapping, episodes: int, first_seed: int, greedy: bool
) -> np.ndarray:
    """Returns [episodes] of one policy."""
    run = actor(environment, config)
    run.networks.parameters.copy_(torch.from_numpy(policy["parameters"]))
    if policy["normaliser"]:
        run.normaliser.load_state({name: torch.from_numpy(array) for name, array in policy["normaliser"].items()})
    torch.manual_seed(first_seed + SEED_OF_SAMPLES)
    act = functools.partial(run.act, greedy=greedy)
    return evaluation.in_original(environment, act, episodes, first_seed).returns


@functools.cache
def actor(environment: str, config: ppo.Config) -> ppo.PPO:
    """A run of the same networks on the CPU, as small as it can be, to act and not to learn."""
    small = {"num_envs": config.members, "horizon": 1, "minibatches": 1, "epochs": 1, "shards": None, "threads": 1}
    plain = {"precision": "fp32", "graph": "auto", "rollout": "torch", "gradient": "autograd"}
    return ppo.PPO(environment, dataclasses.replace(config, **small, **plain), "cpu")
