"""The common part of both ways of an update: the settings of the loss, Adam's state, and their metrics.

`autograd.py` knows every network and distribution on every device; `compiled.py` the common case on the CPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch

from lockstep.agents.parts.actor_critic import ActorCritic

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "minibatches")
STATE = ("first", "second", "steps", "updates")
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-5


class Update(ABC):
    """Losses and Adam steps of L learners over minibatches of one batch.

    Args:
        networks: whose parameters are trained.
        rate, ent_coef: [L] float32, read at every update.
        shards: S; the gradients of shards are computed apart and summed in their order.
        clip_value: limit the value's change like the ratio's.
        target_kl: a learner whose mean KL estimate exceeds it takes no further step until `begin`; None: no limit.
        reduce: sums a tensor over processes in place; None where there is one process.

    Attributes:
        metrics: float64 [L, 7], sums over updates since the caller cleared them, named by `METRICS`; a learner that has
            stopped adds nothing.
        updates: int64 [1], how many there have been.
        first_bad: int64 [2], number of the first update with a loss, with a gradient that was not finite, or -1. Such a
            gradient is not applied.
    """

    def __init__(
        self,
        networks: ActorCritic,
        rate: torch.Tensor,
        ent_coef: torch.Tensor,
        *,
        shards: int = 1,
        clip: float = 0.2,
        clip_value: bool = True,
        vf_coef: float = 0.5,
        norm_adv: bool = True,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        reduce: Callable[[torch.Tensor], None] | None = None,
    ):
        self.networks, self.rate, self.ent_coef = networks, rate, ent_coef
        self.shards, self.reduce = shards, reduce
        self.clip, self.clip_value, self.vf_coef, self.norm_adv = clip, clip_value, vf_coef, norm_adv
        self.max_grad_norm, self.target_kl = max_grad_norm, target_kl
        L, device = networks.learners, networks.device
        self.first, self.second = (
            torch.zeros(L, networks.size, dtype=torch.float32, device=device) for _ in range(2)
        )  # Adam's moments
        self.steps = torch.zeros(L, dtype=torch.int64, device=device)
        self.updates = torch.zeros(1, dtype=torch.int64, device=device)
        self.first_bad = torch.full((2,), -1, dtype=torch.int64, device=device)
        self.metrics = torch.zeros(L, len(METRICS), dtype=torch.float64, device=device)
        self.stopped = torch.zeros(L, dtype=torch.bool, device=device)

    def begin(self) -> None:
        """Starts an iteration: learners that target_kl stopped go on."""
        self.stopped.zero_()

    @abstractmethod
    def epoch(self, rows: torch.Tensor, minibatches: int) -> None:
        """One Adam step per learner on each of so many equal parts of rows int64 [L, S, K], indices into the batch."""

    def update(self, rows: torch.Tensor) -> None:
        """One Adam step per learner on a minibatch: rows int64 [L, S, k], indices into the batch."""
        self.epoch(rows, 1)

    def state(self) -> dict[str, torch.Tensor]:
        """Adam's moments and step counts, copied."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for name in STATE:
            getattr(self, name).copy_(state[name])
