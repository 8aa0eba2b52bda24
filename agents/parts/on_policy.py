"""The policy, the weights and the counts of algorithms that learn from their own last steps alone."""

from collections.abc import Callable, Mapping

import torch

from lockstep import envs
from lockstep.agents.run import contract
from lockstep.agents.run.config import Settings

from . import graphs
from .actor_critic import ActorCritic
from .distributions import Distribution
from .gae import GAE
from .module import Greedy
from .normaliser import Normaliser, applied, load_checked, with_statistics
from .rollout_buffer import RolloutBuffer, modules, wide
from .team import Team


class OnPolicy:
    """Parts of a run, as `run/algorithm.py` describes one, that its networks decide, which a subclass makes.

    Its config has num_envs and horizon; the rows of an iteration are so many environments' steps.
    """

    config: Settings
    iteration: int
    phases: dict[str, Callable[[], None]]
    team: Team | None = None  # of an environment whose agents have one policy together
    distribution: Distribution
    networks: ActorCritic
    normaliser: Normaliser | None
    rollout: RolloutBuffer
    gae: GAE
    _portable: bool  # whether the environment's kernel knows the policy

    def iterate(self) -> None:
        """Roll-out, advantage, update; on CUDA the host waits for none of them."""
        for phase in self.phases.values():
            phase()
        self.iteration += 1

    def _capture(self) -> None:
        """Replaces the phases by CUDA graphs of themselves, and leaves no other trace."""
        before = self.state()
        self.phases = graphs.captured(self.phases, self.device)
        self.load_state(before)
        self._episodes()

    @property
    def env_steps(self) -> int:
        """Steps of all environments so far, over all processes."""
        return self.iteration * self.config.num_envs * self.config.horizon

    @property
    def learns(self) -> bool:
        return True

    @property
    def parameter_count(self) -> int:
        """Numbers of all networks that are trained, without padding."""
        return sum(leaf.numel() for leaf in self.networks.leaves.values())

    def _episodes(self) -> dict[str, torch.Tensor]:
        return self.env.statistics() if hasattr(self.env, "statistics") else self.rollout.statistics()

    def _explained_variance(self) -> torch.Tensor:
        target, error, active = self.gae.target, self.gae.advantage, self.rollout.active
        if active is not None:
            target, error = target[active], error[active]
        return 1 - error.var(correction=0) / target.var(correction=0)  # an advantage is target - value

    @torch.no_grad()
    def act(
        self,
        obs: torch.Tensor,
        greedy: bool = True,
        member: int = 0,
        mask: torch.Tensor | None = None,
        active: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B.

        Args:
            greedy: the likeliest action; otherwise a sample, by torch's generator. The normaliser is only read.
            active: bool [B] or [B, A], who acts; the others' actions are 0, and a team sees 0 of them. None: all.

        Raises:
            ValueError: observations, or flags, of another shape.
        """
        seen = obs
        if self.team is not None:
            contract.require_flags(active, obs)
            obs, mask = self.team.observe(obs, active), None if mask is None else self.team.mask(mask)
        obs = contract.observed(self.env, obs).to(self.device, torch.float32)
        networks, x = self.networks.one(member), obs.reshape(-1, obs.shape[-1])
        x = x if self.normaliser is None else self.normaliser.of(member)(x)
        out, free = networks.actor(x.unsqueeze(0))[0], networks.leaves.get("free")  # [B (x A), m], [1, free]
        mask = None if mask is None else mask.reshape(len(out), -1)
        if greedy:
            action = self.distribution.mode(out, free, mask)
        else:
            words = torch.randint(0, 1 << 24, (len(out), 4 * self.distribution.blocks), device=self.device)
            action = self.distribution.sample(out, free, words.int(), mask)[0]
        action = contract.taken(self.env, wide(self.distribution.to_environment(action)))
        action = action.view(*obs.shape[:-1], *action.shape[1:]) if self.team is None else self.team.split(action)
        return contract.of_active(action, active, seen)

    def policy(self, greedy: bool = True, member: int = 0) -> envs.MLP | None:
        """The policy as `env.rollout` takes it, sharing the numbers being trained; None where no kernel carries it."""
        return modules(self.networks, member, greedy) if self._portable else None

    def module(self, member: int = 0) -> Greedy:
        """The greedy policy by itself, as it is now: a module from observations [B, n] to actions, for torch.export.

        Raises:
            ValueError: the policy is of several agents together.
        """
        if self.team is not None:
            raise ValueError("the policy is of several agents together: use run.act")
        normaliser = self.normaliser and self.normaliser.of(member)
        return Greedy(self.networks.sequential(member)[0], self.distribution, *applied(normaliser))

    # ---- weights ----------------------------------------------------------------------------------------------------

    def weights(self) -> dict:
        """A copy of all that `act` depends on: parameters and, with norm_obs, the normaliser's state."""
        return with_statistics({"parameters": self.networks.parameters.clone()}, self.normaliser)

    def load_weights(self, state: Mapping) -> None:
        """Takes weights and normaliser from the `weights` or `state` of a run with the same networks.

        Raises:
            ValueError: names what has another shape, is not finite, or is there on one side alone.
        """
        load_checked(state, self.weights(), self.normaliser)
        self.networks.parameters.copy_(state["parameters"])
