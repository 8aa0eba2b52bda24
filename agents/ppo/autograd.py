"""The update of PPO with torch's automatic differentiation: any network and distribution, any device.

`compiled.py` does the same for the common case on the CPU, several times as fast, and is tested against this. On a GPU
an operation of torch is a node of the graph or more, and the graph is about as long as it has nodes: whatever can be
is computed once for all minibatches of an epoch.

Axes: L learners, S shards, M minibatches, k rows of one of them, P parameters.
"""

import math
from collections.abc import Mapping

import torch
from torch.nn.functional import mse_loss

from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.parts.adam import within
from lockstep.agents.parts.distributions import Distribution
from lockstep.agents.parts.rollout_buffer import over, wide
from lockstep.envs.checks import require_memory

from .update import ADAM_BETAS, ADAM_EPS, Update

NEVER = 2**62  # more updates than there are


class Autograd(Update):
    """An `Update` whose gradient torch finds.

    Args:
        networks, rate, ent_coef, settings: as of `Update`.
        distribution: of the actions.
        batch: tensors with one row per sample: obs [N, n], action [N, ...], log_prob, advantage, target, value [N];
            perhaps mask [N, masks] of allowed actions and valid [N]: other rows have weight 0. Where log_prob is
            [N, components], each component of an action has a ratio and a limit of its own, and losses are summed.
        critic_rate: [L] float32, the rate of critics, likewise read at every update; None: that of all.

    Raises:
        MemoryError: an epoch's copy of the batch, in the order of its minibatches, does not fit.
    """

    def __init__(
        self,
        networks: ActorCritic,
        distribution: Distribution,
        batch: Mapping[str, torch.Tensor],
        rate: torch.Tensor,
        ent_coef: torch.Tensor,
        *,
        critic_rate: torch.Tensor | None = None,
        **settings,
    ):
        super().__init__(networks, rate, ent_coef, **settings)
        self.critic_rate = critic_rate
        if critic_rate is not None:
            self._of_critic = torch.arange(networks.size, device=networks.device) >= networks.critic_at  # [P]
        copied = sum(part.numel() * part.itemsize for part in batch.values())
        require_memory(copied, networks.device, "num_envs x horizon of an epoch", len(batch["obs"]))
        self.distribution, self.batch = distribution, batch
        self._by_component = batch["log_prob"].dim() == 2
        betas = torch.tensor(ADAM_BETAS, dtype=torch.float64, device=networks.device)
        self._shares, self._log_betas = (1 - betas).float(), betas.log().float()  # [2]
        # Half a squared error is the value's loss; of the other four metrics a mean is a mean.
        self._factors = torch.tensor([1, 0.5, 1, 1, 1], dtype=torch.float32, device=networks.device)
        self._one = torch.ones(networks.learners, dtype=torch.float32, device=networks.device)
        # A number in its place would be filled in anew each time.
        self._zero = torch.zeros((), dtype=torch.float32, device=networks.device)

    def epoch(self, rows: torch.Tensor, minibatches: int) -> None:
        given = self._given(rows.unflatten(2, (minibatches, -1)))
        none = self._zero.expand_as(self._one)
        weights = torch.stack([self._one, self.vf_coef * self._one, -self.ent_coef, none, none])  # [5, L] in the loss
        means, norms, stopped = [], [], []
        for m in range(minibatches):
            stopped.append(self.stopped.clone() if self.target_kl is not None else self.stopped)
            with self.networks.arithmetic():
                shards = [
                    self._gradient({name: part[:, s, m] for name, part in given.items()}, weights)
                    for s in range(self.shards)
                ]
            total = torch.stack(shards).sum(dim=0) if len(shards) > 1 else shards[0]
            if self.reduce is not None:
                self.reduce(total)
            gradient, found = total.split([self.networks.size, len(weights)], dim=1)
            means.append(found)
            norms.append(self._step(gradient, found[:, 3]))
        self._tell(torch.stack(means), torch.stack(norms), torch.stack(stopped), weights)

    @torch.no_grad()
    def _given(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Fields that the loss reads of rows [L, S, M, k] of the batch: tensors [L, S, M, k, ...].

        Beside the batch's these are `per_ratio`, by which a ratio enters the loss, `least` and `most`, the limits
        beyond which the loss gains nothing by moving it, and `share` [L, S, M, 5], of a row in each mean.
        """
        given = {name: part[rows] for name, part in self.batch.items()}
        valid = given.get("valid")
        if valid is not None:  # what stands in other rows may be anything, NaN as well
            for name, part in given.items():
                given[name] = part if name == "valid" else part.masked_fill(~over(valid, part), 0)
        advantage = given.pop("advantage")
        count, mean, deviation = self._moments(advantage, valid)
        if self.norm_adv:
            advantage = (advantage - mean) / (deviation + 1e-8)
        gains = advantage > 0
        ends = {"least": (0.0, 1 - self.clip), "most": (1 + self.clip, math.inf)}
        limits = {name: torch.where(gains, *pair).float() for name, pair in ends.items()}
        if self._by_component:
            limits = {name: limit.unsqueeze(-1) for name, limit in limits.items()}
        given["action"] = wide(given["action"])
        share = (self._factors / count).expand(-1, rows.shape[1], -1, -1)
        return given | limits | {"per_ratio": -advantage, "share": share}

    def _moments(self, advantage: torch.Tensor, valid: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """Number of valid rows, mean and standard deviation of the advantage over all shards, each [L, 1, M, 1]."""
        advantage = advantage.double()
        counted = torch.ones_like(advantage) if valid is None else valid.double()
        sums = torch.stack([counted, advantage, advantage * advantage]).sum(dim=4, keepdim=True)  # [3, L, S, M, 1]
        sums = sum(sums.split(1, dim=2))
        if self.reduce is not None:
            self.reduce(sums)
        count, total, squares = sums
        mean = total / count.clamp(min=1)
        variance = (squares - total * mean) / (count - 1).clamp(min=1)
        return count.clamp(min=1).float(), mean.float(), variance.clamp(min=0).sqrt().float()

    def _gradient(self, given: Mapping[str, torch.Tensor], weights: torch.Tensor) -> torch.Tensor:
        """One shard's part of the gradient and of the five first metrics of a minibatch, [L, P + 5]."""
        out, value = self.networks(given["obs"])
        free = self.networks.leaves.get("free")
        free = None if free is None else free.unsqueeze(1)
        likelihood = self.distribution.of_components if self._by_component else self.distribution.log_prob_entropy
        log_prob, entropy = likelihood(out, free, given["action"], given.get("mask"))
        log_ratio = log_prob - given["log_prob"]
        ratio = log_ratio.exp()
        limited = torch.clamp(ratio, given["least"], given["most"])
        error = mse_loss(value, given["target"], reduction="none")
        if self.clip_value:
            near = given["value"] + (value - given["value"]).clamp(-self.clip, self.clip)
            error = torch.maximum(error, mse_loss(near, given["target"], reduction="none"))
        with torch.no_grad():
            change = ratio - 1
            kl, clipped = change - log_ratio, (change.abs() > self.clip).float()
        if self._by_component:  # of independent ones the divergences add up
            limited, entropy = limited.sum(dim=-1), entropy.sum(dim=-1).expand_as(error)
            kl, clipped = kl.sum(dim=-1), clipped.mean(dim=-1)
        terms = torch.stack([given["per_ratio"] * limited, error, entropy, kl, clipped])  # [5, L, k]
        if "valid" in given:
            terms = torch.where(given["valid"], terms, self._zero)
        means = terms.sum(dim=2) * given["share"].T
        found = torch.autograd.grad(means, list(self.networks.leaves.values()), weights)
        parts = dict(zip(self.networks.leaves, found, strict=True))
        return torch.cat([*self.networks.pieces(parts), means.detach().T], dim=1)

    @torch.no_grad()
    def _step(self, gradient: torch.Tensor, kl: torch.Tensor) -> torch.Tensor:
        """Limits the norm of the gradient [L, P], then takes Adam's step where it is finite and nothing stopped it.

        Adam's two corrections c stand where they cost least: the step is rate sqrt(c2) / c1 times
        first / (sqrt(second) + eps sqrt(c2)).

        Returns:
            [L], the norm.
        """
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        takes = norm < math.inf  # which NaN is not
        if self.target_kl is not None:
            self.stopped |= kl > self.target_kl
            takes = takes & ~self.stopped.unsqueeze(1)
        gradient = torch.where(takes, gradient * within(norm, self.max_grad_norm), self._zero)
        share = takes * self._shares  # [L, 2]; where it is 0, a moment stays to the last bit
        self.first.lerp_(gradient, share[:, :1])
        self.second.lerp_(gradient.square(), share[:, 1:])
        self.steps += takes.squeeze(1)
        correction = -torch.expm1(self.steps.clamp(min=1).unsqueeze(1) * self._log_betas)  # 1 - beta^steps, [L, 2]
        root = correction[:, 1:].sqrt()
        rate = self.rate.unsqueeze(1)
        if self.critic_rate is not None:
            rate = torch.where(self._of_critic, self.critic_rate.unsqueeze(1), rate)
        size = torch.where(takes, rate * root / correction[:, :1], self._zero)
        self.networks.parameters.addcmul_(self.first / (self.second.sqrt() + ADAM_EPS * root), size, value=-1)
        return norm.squeeze(1)

    @torch.no_grad()
    def _tell(self, means: torch.Tensor, norms: torch.Tensor, stopped: torch.Tensor, weights: torch.Tensor) -> None:
        """Takes an epoch's means [M, L, 5], norms [M, L] and who had stopped [M, L] into metrics and first_bad."""
        losses = (means * weights.T)[:, :, :3].sum(dim=2)
        bad = (~torch.stack([losses, norms]).isfinite() & ~stopped).any(dim=2)  # [2, M]
        number = torch.where(bad, self.updates + torch.arange(len(norms), device=norms.device), NEVER).amin(dim=1)
        self.first_bad.copy_(torch.where((number < NEVER) & (self.first_bad < 0), number, self.first_bad))
        self.updates += len(norms)
        told = torch.cat([means, norms.unsqueeze(2), torch.ones_like(norms).unsqueeze(2)], dim=2).double()
        self.metrics += torch.where(stopped.unsqueeze(2), 0.0, told).sum(dim=0)
