"""The update of PPO with torch's automatic differentiation: any network and distribution, any device.

`learner.py` does the same for the common case on the CPU, several times as fast, and is tested against this.
"""

import math
from collections.abc import Callable, Mapping

import torch

from .distributions import Distribution
from .networks import Networks

FIGURES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "minibatches")
STATE = ("first", "second", "steps", "updates")
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-5


class Autograd:
    """Losses and Adam steps of L learners over minibatches of one batch.

    Args:
        networks: whose parameters are trained.
        distribution: of the actions.
        batch: tensors with one row per sample: obs [N, n], action [N, ...], log_prob, advantage, target, value [N];
            perhaps mask [N, masks] of allowed actions and valid [N]: other rows have weight 0. Where log_prob is
            [N, components], each component of an action has a ratio and a limit of its own, and losses are summed.
        rate, ent_coef: [L] float32, read at every update.
        shards: S; the gradients of shards are computed apart and summed in their order.
        clip_value: limit the value's change like the ratio's.
        target_kl: a learner whose mean KL estimate exceeds it takes no further step until `begin`; None: no limit.
        reduce: sums a tensor over processes in place; None where there is one process.
    """

    def __init__(
        self,
        networks: Networks,
        distribution: Distribution,
        batch: Mapping[str, torch.Tensor],
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
        self.networks, self.distribution, self.batch = networks, distribution, batch
        self.rate, self.ent_coef, self.shards, self.reduce = rate, ent_coef, shards, reduce
        self.clip, self.clip_value, self.vf_coef, self.norm_adv = clip, clip_value, vf_coef, norm_adv
        self.max_grad_norm, self.target_kl = max_grad_norm, target_kl
        parameters, L = networks.parameters, networks.learners
        self.first, self.second = torch.zeros_like(parameters), torch.zeros_like(parameters)  # Adam's moments
        self.steps = torch.zeros(L, dtype=torch.int64, device=parameters.device)
        self.figures = torch.zeros(L, len(FIGURES), dtype=torch.float64, device=parameters.device)  # sums since cleared
        self.stopped = torch.zeros(L, dtype=torch.bool, device=parameters.device)
        # Calls of `update` so far, and the numbers of the first whose loss, whose gradient was not finite (-1: none).
        self.updates = torch.zeros(1, dtype=torch.int64, device=parameters.device)
        self.first_bad = torch.full((2,), -1, dtype=torch.int64, device=parameters.device)

    def begin(self) -> None:
        """Starts an iteration: learners that target_kl stopped go on."""
        self.stopped.zero_()

    def update(self, rows: torch.Tensor) -> None:
        """One Adam step per learner on a minibatch: rows [L, S, k], indices into the batch."""
        with self.networks.arithmetic():
            moments = self._moments(rows)
            shards = [self._gradient(rows[:, s], moments) for s in range(self.shards)]
        total = torch.stack(shards).sum(dim=0) if len(shards) > 1 else shards[0]
        if self.reduce is not None:
            self.reduce(total)
        self._apply(total[:, : self.networks.size], total[:, self.networks.size :])

    @torch.no_grad()
    def _moments(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Number of valid rows, mean and standard deviation of the advantage over all shards, each [L, 1]."""
        advantage = self.batch["advantage"][rows].double()
        valid = self.batch["valid"][rows] if "valid" in self.batch else torch.ones_like(advantage, dtype=torch.bool)
        advantage = torch.where(valid, advantage, 0.0)
        sums = torch.stack([valid.double(), advantage, advantage * advantage]).sum(dim=3)  # [3, L, S]
        sums = torch.stack([sums[:, :, s] for s in range(self.shards)]).sum(dim=0)
        if self.reduce is not None:
            self.reduce(sums)
        count, total, squares = sums.unsqueeze(2)
        mean = total / count.clamp(min=1)
        variance = (squares - total * mean) / (count - 1).clamp(min=1)
        return count.clamp(min=1).float(), mean.float(), variance.clamp(min=0).sqrt().float()

    def _gradient(self, rows: torch.Tensor, moments: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """One shard's part of the gradient and of the figures, [L, P + 6], from rows [L, k]."""
        count, mean, deviation = moments
        names = ("obs", "action", "log_prob", "advantage", "target", "value", "mask")
        given = {name: self.batch[name][rows] for name in names if name in self.batch}
        valid = self.batch["valid"][rows] if "valid" in self.batch else None
        if valid is not None:  # what stands in other rows may be anything, NaN as well
            for name, tensor in given.items():
                given[name] = tensor.masked_fill(~valid.view(*valid.shape, *[1] * (tensor.dim() - 2)), 0)
        out, value = self.networks(given["obs"])
        free = self.networks.leaves.get("free")
        by_component = given["log_prob"].dim() == 3
        likelihood = self.distribution.of_components if by_component else self.distribution.log_prob_entropy
        log_prob, entropy = likelihood(
            out, None if free is None else free.unsqueeze(1), given["action"], given.get("mask")
        )
        advantage = given["advantage"]
        if self.norm_adv:
            advantage = (advantage - mean) / (deviation + 1e-8)
        log_ratio = log_prob - given["log_prob"]
        ratio = log_ratio.exp()
        if by_component:
            policy_loss = -advantage * self._limited(ratio, advantage.unsqueeze(-1)).sum(dim=-1)
            entropy = entropy.sum(dim=-1).expand_as(advantage)
        else:
            policy_loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - self.clip, 1 + self.clip))
        error = (value - given["target"]).square()
        if self.clip_value:
            near = given["value"] + (value - given["value"]).clamp(-self.clip, self.clip)
            error = torch.maximum(error, (near - given["target"]).square())
        value_loss = 0.5 * error

        def mean_over_valid(terms: torch.Tensor) -> torch.Tensor:
            terms = terms if valid is None else torch.where(valid, terms, 0.0)
            return terms.sum(dim=1) / count[:, 0]

        means = [mean_over_valid(terms) for terms in (policy_loss, value_loss, entropy)]
        loss = means[0] + self.vf_coef * means[1] - self.ent_coef * means[2]
        found = torch.autograd.grad(loss.sum(), list(self.networks.leaves.values()))
        with torch.no_grad():
            kl, clipped = ratio - 1 - log_ratio, ((ratio - 1).abs() > self.clip).float()
            if by_component:  # of independent ones the divergences add up
                kl, clipped = kl.sum(dim=-1), clipped.mean(dim=-1)
            kl, clipped = mean_over_valid(kl), mean_over_valid(clipped)
            figures = torch.stack([*(term.detach() for term in means), kl, clipped, loss.detach()], dim=1)
            return torch.cat([self.networks.flat(dict(zip(self.networks.leaves, found, strict=True))), figures], dim=1)

    def _limited(self, ratio: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
        """Ratios [L, k, components] as they enter the loss, which gains nothing by moving them beyond the limit."""
        gains = advantage > 0
        least = torch.where(gains, 0.0, 1 - self.clip)
        return torch.clamp(ratio, least, torch.where(gains, 1 + self.clip, math.inf))

    @torch.no_grad()
    def _apply(self, gradient: torch.Tensor, figures: torch.Tensor) -> None:
        """Limits the norm of the gradient [L, P], then takes Adam's step where it is finite and nothing stopped it."""
        norm = torch.linalg.vector_norm(gradient, dim=1)  # [L]
        finite = norm.isfinite()
        going = ~self.stopped
        bad = torch.stack([(~figures[:, 5].isfinite() & going).any(), (~finite & going).any()])
        self.first_bad.copy_(torch.where(bad & (self.first_bad < 0), self.updates, self.first_bad))
        self.updates += 1
        if self.target_kl is not None:
            self.stopped |= figures[:, 3] > self.target_kl
        takes = finite & ~self.stopped
        gradient = gradient * (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0).unsqueeze(1)
        takes_all = takes.unsqueeze(1)
        for moment, beta, power in ((self.first, ADAM_BETAS[0], 1), (self.second, ADAM_BETAS[1], 2)):
            moment.copy_(torch.where(takes_all, beta * moment + (1 - beta) * gradient**power, moment))
        self.steps += takes
        steps = self.steps.unsqueeze(1)
        correction1, correction2 = 1 - ADAM_BETAS[0] ** steps.double(), 1 - ADAM_BETAS[1] ** steps.double()
        size = (self.rate.unsqueeze(1) / correction1).float()
        step = size * self.first / (self.second.sqrt() / correction2.sqrt().float() + ADAM_EPS)
        self.networks.parameters.sub_(torch.where(takes_all, step, 0.0))
        told = torch.cat([figures[:, :5], norm.unsqueeze(1), torch.ones_like(norm).unsqueeze(1)], dim=1)
        self.figures += torch.where(going.unsqueeze(1), told, 0.0)

    def state(self) -> dict[str, torch.Tensor]:
        """Adam's moments and step counts, copied."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for name in STATE:
            getattr(self, name).copy_(state[name])
