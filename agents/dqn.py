"""Deep Q-learning that never leaves the device (Mnih et al., 2015; double DQN: van Hasselt et al., 2016).

One iteration is a few steps of B environments, which go into a replay, and the updates that are due for them. The host
waits for nothing between two rows of the log.

    python -m lockstep.agents.dqn cartpole --seed 1 --output runs/cartpole
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.nn.functional import smooth_l1_loss

from lockstep.agents.parts import mlp
from lockstep.agents.parts.adam import Adam
from lockstep.agents.parts.distributions import Categorical
from lockstep.agents.parts.mlp import MLP
from lockstep.agents.parts.module import Greedy, sequential
from lockstep.agents.parts.replay import Replay
from lockstep.agents.parts.transitions import Transitions
from lockstep.agents.run import checkpoint, command_line, contract, log, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import Settings, setting
from lockstep.agents.run.environment import of_run
from lockstep.agents.run.ranks import Ranks

AT_ONCE = 64  # updates whose rows are drawn, and whose targets are computed, together


@dataclass(frozen=True)
class Config(Settings):
    """The settings of a run; with the environment's name it determines every number of it."""

    num_envs: int = setting(64, "B, environments", least=1)
    horizon: int = setting(1, "steps of each environment per iteration", least=1)
    total_steps: int = setting(150_000, "environment steps of the whole run, rounded down to iterations", least=1)
    capacity: int = setting(100_000, "transitions that the replay holds", least=1)
    learning_starts: int = setting(1_000, "environment steps before the first update", least=0)
    replay_ratio: float = setting(0.25, "updates per environment step", least=0)
    batch_size: int = setting(64, "transitions of an update", least=1)
    target_every: int = setting(64, "environment steps between changes of the target network", least=1)
    tau: float = setting(0.12, "share of the way that it then goes to the network", least=0, most=1)
    double: bool = setting(True, "the network chooses the next action that the target network values")
    gamma: float = setting(0.99, "discount", least=0, most=1)
    lr: float = setting(1e-3, "learning rate", least=0)
    anneal_lr: bool = setting(True, "let the learning rate fall linearly to 0")
    max_grad_norm: float = setting(10.0, "limit of the gradient's norm", least=0)
    hidden: tuple[int, ...] = setting((128, 128), "widths of the ReLU layers", least=1)
    epsilon_start: float = setting(1.0, "share of random actions at first", least=0, most=1)
    epsilon_end: float = setting(0.04, "share of random actions at last", least=0, most=1)
    epsilon_steps: int = setting(15_000, "environment steps over which it falls linearly", least=0)
    eval_every: int = setting(4096, "environment steps between checks", least=1)

    def __post_init__(self):
        super().__post_init__()
        steps = self.num_envs * self.horizon
        if self.total_steps < steps:
            raise ValueError(
                f"total_steps={self.total_steps} must be at least one iteration, num_envs x horizon = {steps}"
            )
        if self.replay_ratio * steps % 1:
            raise ValueError(
                f"replay_ratio={self.replay_ratio} x num_envs={self.num_envs} x horizon={self.horizon} is "
                f"{self.replay_ratio * steps:g} updates per iteration; it must be a whole number"
            )


RECIPES = {"solve": Config()}


class DQN:
    """A run, as `run/algorithm.py` describes one: `iterate` until `iteration == iterations`.

    An environment is a name of `envs`, or an object as `agents/README.md` describes it, with `Discrete` actions. Of
    several agents each one's rows go into one replay, and one network acts for all.

    Args:
        environment: a name, or an environment of num_envs environments.
        config: the run.
        device: "cpu", "cuda" or "cuda:<index>".

    Raises:
        ValueError: naming the field, its value and what is allowed.
        MemoryError: the replay does not fit.
    """

    name = "dqn"
    Config = Config
    RECIPES = RECIPES
    COLUMNS = ("loss", "q_value", "grad_norm", "epsilon")
    SHAPES = ("hidden",)

    def __init__(self, environment, config: Config = RECIPES["solve"], device: torch.device | str = "cpu"):
        if not isinstance(config, Config):
            raise ValueError(f"config must be a dqn.Config, as dqn.config_of makes it, not a {type(config).__name__}")
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        if self.ranks.size > 1:
            raise ValueError(f"DQN trains in one process, not in {self.ranks.size}")
        options = {"threads": config.threads, "seed": config.seed}
        self.env = of_run(environment, config.num_envs, self.device, **options)
        space, n = self.env.single_action_space, self.env.single_observation_space.shape[-1]
        if not isinstance(space, Discrete) or space.start:
            raise ValueError(f"no values for action space {space}; it must be Discrete and count its actions from 0")
        self.actions = int(space.n)
        self.transitions = Transitions(self.env, config.seed, self.device)
        widths = [n, *config.hidden, self.actions]
        self.online, self.target = (MLP(widths, self.device, config.seed) for _ in range(2))
        self.adam = Adam(self.online.parameters, self.online.gradient, config.max_grad_norm)
        fields = {"obs": ((n,), torch.float32), "next_obs": ((n,), torch.float32), "action": ((), torch.int64)}
        fields |= {"reward": ((), torch.float32), "terminated": ((), torch.bool)}
        self.replay = Replay(config.capacity, fields, self.device)
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.iterations = config.total_steps // (config.num_envs * config.horizon)
        self.iteration = 0
        self._sums = torch.zeros(5, dtype=torch.float64, device=self.device)  # of updates, as `_tell` names them
        self.phases: dict[str, Callable[[], None]] = {"rollout": self._rollout, "update": self._update}

    # ---- one iteration ----------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Steps of all environments, then the updates due for them; on CUDA the host waits for none of them."""
        every, later = self.config.target_every, self.env_steps + self.config.num_envs * self.config.horizon
        self.phases["rollout"]()
        if later >= self.config.learning_starts:
            self.phases["update"]()
        if later // every > self.env_steps // every:
            self.target.parameters.lerp_(self.online.parameters, self.config.tau)
        self.iteration += 1

    def epsilon(self, env_steps: int) -> float:
        """The share of random actions after so many steps of all environments."""
        start, end, steps = self.config.epsilon_start, self.config.epsilon_end, self.config.epsilon_steps
        return end if env_steps >= steps else start + (end - start) * env_steps / steps

    @property
    def lr(self) -> float:
        """The learning rate of this iteration's updates."""
        share = 1 - self.iteration / self.iterations if self.config.anneal_lr else 1.0
        return self.config.lr * max(0.0, share)

    @torch.no_grad()
    def _rollout(self):
        for step in range(self.config.horizon):
            epsilon = self.epsilon(self.env_steps + step * self.config.num_envs)
            action = self.online(self.transitions.obs).argmax(dim=1)
            self.replay.add(*self.transitions.step(self._explored(action, epsilon, self.generator)))

    def _explored(self, action: torch.Tensor, epsilon: float, generator: torch.Generator | None) -> torch.Tensor:
        """The actions [N], each replaced by a uniform one with probability epsilon."""
        given = {"device": self.device, "generator": generator}
        explores = torch.rand(action.shape, **given) < epsilon
        return torch.where(explores, torch.randint(self.actions, action.shape, **given), action)

    @torch.no_grad()
    def _update(self):
        config = self.config
        due = round(config.replay_ratio * config.num_envs * config.horizon)
        for done in range(0, due, AT_ONCE):
            self._updates(min(AT_ONCE, due - done))

    def _updates(self, count: int):
        """Gradient steps, each on transitions of its own; meanwhile the target network stands still."""
        config, k = self.config, self.config.batch_size
        rows = self.replay.sample(count * k, self.generator)
        # [count * k, m], of each next action; a truncated episode would have gone on, a terminated one not
        targets = self.target(rows["next_obs"]).mul_(config.gamma).masked_fill_(rows["terminated"].unsqueeze(1), 0.0)
        targets += rows["reward"].unsqueeze(1)
        obs, action, targets = (x.unflatten(0, (count, k)) for x in (rows["obs"], rows["action"].unsqueeze(1), targets))
        if config.double:
            obs = torch.cat([obs, rows["next_obs"].view_as(obs)], dim=1)
        else:
            targets = targets.amax(dim=2, keepdim=True)
        values, errors, norms = [], [], []
        shares = (action == torch.arange(self.actions, device=self.device)) / k  # [count, k, m], of a value in the loss
        for x, taken, share, target in zip(obs, action, shares, targets, strict=True):
            kept = self.online.activations(x)
            if config.double:
                target = target.gather(1, kept[-1][k:].argmax(dim=1, keepdim=True))
            value = kept[-1][:k].gather(1, taken)
            error = value - target
            self.online.backward(kept, error.clamp(-1.0, 1.0) * share)  # the derivative of the Huber loss
            values.append(value)
            errors.append(error)
            norms.append(self.adam.step(self.lr))
        self._tell(torch.stack(values), torch.stack(errors), torch.stack(norms))

    def _tell(self, values: torch.Tensor, errors: torch.Tensor, norms: torch.Tensor):
        """Takes updates into the sums of loss, value, norm, their number, and that of gradients that are not finite."""
        loss = smooth_l1_loss(errors, torch.zeros_like(errors))
        bad = (norms < math.inf).logical_not().float().mean()
        told = torch.stack([loss, values.mean(), norms.mean(), torch.ones_like(loss), bad])
        self._sums.add_(told, alpha=len(norms))

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    @property
    def env_steps(self) -> int:
        return self.iteration * self.config.num_envs * self.config.horizon

    @property
    def learns(self) -> bool:
        return self.env_steps >= self.config.learning_starts

    @property
    def parameter_count(self) -> int:
        return self.online.parameters.numel()

    def statistics(self) -> dict[str, float]:
        """Episodes and COLUMNS since the last call, means over updates; waits for the device.

        Raises:
            FloatingPointError: a gradient was not finite.
        """
        sums = torch.cat([self.transitions.statistics(), self._sums[:3] / self._sums[3], self._sums[3:]])
        *told, updates, bad = sums.tolist()
        self._sums.zero_()
        if bad:
            raise FloatingPointError(
                f"iteration {self.iteration - 1}: since the last row {bad:.0f} of {updates:.0f} gradients were not "
                "finite; no step was made of them"
            )
        return dict(zip((*log.OF_EPISODES, *self.COLUMNS), (*told, self.epsilon(self.env_steps)), strict=True))

    @torch.no_grad()
    def act(self, obs: torch.Tensor, greedy: bool = True) -> torch.Tensor:
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B.

        greedy: the most valuable action; otherwise with the present share of random ones, by torch's generator.
        """
        action = self.online(obs.to(self.device, torch.float32).reshape(-1, obs.shape[-1])).argmax(dim=1)
        if not greedy:
            action = self._explored(action, self.epsilon(self.env_steps), None)
        return contract.taken(self.env, action).view(obs.shape[:-1])

    def policy(self, greedy: bool = True) -> None:
        """None: no kernel carries it."""

    def module(self) -> Greedy:
        """The greedy policy by itself, as it is now: a module from observations [B, n] to actions, for torch.export."""
        return Greedy(sequential(self.online.layers, nn.ReLU), Categorical(self.actions))

    # ---- state ------------------------------------------------------------------------------------------------------

    def weights(self) -> dict:
        return {"parameters": self.online.parameters.clone()}

    def load_weights(self, state: Mapping) -> None:
        checkpoint.require_like(state, self.weights())
        checkpoint.require_finite(state, self.weights())
        for network in (self.online, self.target):
            network.parameters.copy_(state["parameters"])

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        state = {"iteration": self.iteration, **self.weights(), "target": self.target.parameters.clone()}
        state |= {"adam": {name: part.clone() for name, part in self.adam.state.items()}, "replay": self.replay.state()}
        state |= {"generator": self.generator.get_state(), "transitions": self.transitions.state()}
        return state | ({"environment": self.env.state()} if hasattr(self.env, "state") else {})

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        if "environment" not in state:
            raise ValueError(f"{type(self.env).__name__} has no state() and set_state(), so a run cannot be continued")
        self.env.set_state(state["environment"])
        self.replay.load_state(state["replay"])
        self.transitions.load_state(state["transitions"])
        self.online.parameters.copy_(state["parameters"])
        self.target.parameters.copy_(state["target"])
        self.adam.load_state(state["adam"])
        self.generator.set_state(state["generator"])
        self.iteration = state["iteration"]

    @staticmethod
    def to_act(config: Config) -> Config:
        """Settings of a run with the same weights, as small as can be, that is to act on the CPU and not to learn."""
        small = {"num_envs": 1, "horizon": 1, "replay_ratio": 1.0, "batch_size": 1, "threads": 1}
        return dataclasses.replace(config, **small)

    @staticmethod
    def torch_threads(config: Config) -> int:
        """All where an update multiplies large matrices; else there is no work for them."""
        return 1 if mlp.small(config.batch_size, config.hidden) else config.threads


config_of = functools.partial(configuration.config_of, DQN)
train = functools.partial(training.train, DQN)
load = functools.partial(training.load, DQN)

if __name__ == "__main__":
    command_line.main("dqn")
