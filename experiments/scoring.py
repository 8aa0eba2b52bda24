"""Returns of a policy in the original, whole episodes of it, spread over processes.

Scoring is not timed. Its processes are started before anything is, and wait while something is timed.
"""

import functools
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

from lockstep import agents
from lockstep.agents.run import evaluation
from lockstep.agents.run.algorithm import Algorithm
from lockstep.agents.run.config import Settings
from lockstep.experiments import command
from lockstep.experiments.ledger import provenance

SEED_OF_SAMPLES = 1


class Scorer:
    """Mean returns of greedy or sampled episodes in the original, episode i from seed 10,000 + i.

    A context manager.
    """

    def __init__(self, processes: int | None = None):
        self.processes = processes or provenance.core_count()

    def __enter__(self) -> "Scorer":
        # A fork of a process without threads is safe, and has torch at once; macOS allows no fork.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.pool = ProcessPoolExecutor(self.processes, context, command.worker, (torch.set_num_threads, 1))
        self.pool.submit(int).result()
        return self

    def __exit__(self, *exception) -> None:
        self.pool.shutdown(cancel_futures=True)

    def scores(
        self,
        environment: str,
        algorithm: str,
        config: Settings,
        policies: Sequence[Mapping],
        episodes: int = evaluation.EPISODES,
        greedy: bool = True,
    ) -> list[float]:
        """The mean return of each policy, as `policy_of` took it from a run of the configuration."""
        firsts = range(0, episodes, -(-episodes // self.processes))
        counts = [min(firsts.step, episodes - first) for first in firsts]
        run = environment, algorithm, config
        parts = [
            [
                self.pool.submit(returns, *run, policy, count, evaluation.FIRST_SEED + first, greedy)
                for first, count in zip(firsts, counts, strict=True)
            ]
            for policy in policies
        ]
        return [float(np.concatenate([part.result() for part in of_one]).mean()) for of_one in parts]


def policy_of(run: Algorithm) -> dict:
    """The numbers that a run's actions depend on, as arrays, which are cheap to send to a process."""
    return converted(run.weights(), lambda tensor: tensor.cpu().numpy())


def converted(weights: Mapping, convert: Callable) -> dict:
    """The same with every tensor, or array, converted."""
    return {
        name: converted(part, convert) if isinstance(part, Mapping) else convert(part) for name, part in weights.items()
    }


def returns(
    environment: str, algorithm: str, config: Settings, policy: Mapping, episodes: int, first_seed: int, greedy: bool
) -> np.ndarray:
    """Returns [episodes] of one policy."""
    run = actor(environment, algorithm, config)
    run.load_weights(converted(policy, torch.from_numpy))
    torch.manual_seed(first_seed + SEED_OF_SAMPLES)
    act = functools.partial(run.act, greedy=greedy)
    return evaluation.in_original(environment, act, episodes, first_seed).returns


@functools.cache
def actor(environment: str, algorithm: str, config: Settings) -> Algorithm:
    """A run with the same weights, to act and not to learn."""
    kind = agents.algorithm(algorithm)
    return kind(environment, kind.to_act(config), "cpu")
