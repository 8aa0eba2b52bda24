"""Returns and lengths of whole episodes under a fixed policy: in the original, which counts, or quickly in the port."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import envs
from envs.checks import integer

EPISODES = 100
FIRST_SEED = 10_000  # of evaluation; training takes small seeds, so that the two never meet
CHUNK = 64  # steps of the port between two looks at whether all episodes have ended

Act = Callable[[torch.Tensor], torch.Tensor]  # from obs float32 [k, n] to actions [k] or [k, 1], inside the space


@dataclass(frozen=True, eq=False)
class Episodes:
    """One row per episode."""

    returns: np.ndarray  # [episodes] float64, undiscounted
    lengths: np.ndarray  # [episodes] int64, steps


def in_original(environment: str, act: Act, episodes: int = EPISODES, first_seed: int = FIRST_SEED) -> Episodes:
    """One episode in each of so many originals, number i reset with the seed `first_seed` + i.

    Args:
        environment: a folder of `envs/`.
        act: called once a step with the observations of the episodes still running, on the CPU.
        episodes: at least 1.
        first_seed: 0 or more.

    Raises:
        ValueError: an unknown environment, or actions of a wrong shape or kind or outside the space; names the first.
        ImportError: Gymnasium is not installed.
    """
    episodes = integer("episodes", episodes, 1, 2**31 - 1)
    first_seed = integer("first_seed", first_seed, 0, 2**31 - 1)
    originals = [envs.make_original(environment) for _ in range(episodes)]
    try:
        return _play_originals(originals, act, first_seed)
    finally:
        for original in originals:
            original.close()


@torch.no_grad()
def _play_originals(originals: Sequence, act: Act, first_seed: int) -> Episodes:
    space = originals[0].action_space
    obs = [original.reset(seed=first_seed + i)[0] for i, original in enumerate(originals)]
    returns, lengths, running = [0.0] * len(originals), [0] * len(originals), list(range(len(originals)))
    while running:
        actions = _actions(act(torch.from_numpy(np.array(obs, dtype=np.float32))), space, running)
        before, running, obs = running, [], []
        for i, action in zip(before, actions, strict=True):
            seen, reward, terminated, truncated, _ = originals[i].step(action)
            returns[i] += float(reward)
            lengths[i] += 1
            if not (terminated or truncated):
                running.append(i)
                obs.append(seen)
    return Episodes(np.array(returns), np.array(lengths))


def _actions(actions: torch.Tensor, space, episodes: Sequence[int]) -> list[int] | np.ndarray:
    """Actions as the original's `step` takes them one by one: integers, or arrays [1]."""
    count, discrete = len(episodes), hasattr(space, "n")
    if not isinstance(actions, torch.Tensor) or actions.shape not in ((count,), (count, 1)):
        found = tuple(actions.shape) if isinstance(actions, torch.Tensor) else type(actions).__name__
        raise ValueError(f"act must return a tensor ({count},) or ({count}, 1) of actions, got {found}")
    if actions.dtype == torch.bool or actions.is_complex() or actions.is_floating_point() == discrete:
        kind = "integers" if discrete else "floating-point numbers"
        raise ValueError(f"act must return {kind}, got {str(actions.dtype).removeprefix('torch.')}")
    values = actions.reshape(-1).cpu().numpy()
    low, high = (0, int(space.n) - 1) if discrete else (space.low.item(), space.high.item())
    inside = (values >= low) & (values <= high)  # NaN is outside
    if not inside.all():
        k = int(np.argmin(inside))
        raise ValueError(f"action {values[k]} of episode {episodes[k]} is not in {low:g} .. {high:g}")
    return values.tolist() if discrete else values.astype(space.dtype).reshape(-1, 1)


def random_policy(environment: str, episodes: int = EPISODES, first_seed: int = FIRST_SEED) -> Episodes:
    """`in_original` under actions drawn uniformly from the space; `first_seed` seeds them as well."""
    space, rng = envs.port(environment).action, np.random.default_rng(first_seed)

    def draw(obs: torch.Tensor) -> torch.Tensor:
        if hasattr(space, "n"):
            return torch.from_numpy(rng.integers(int(space.n), size=len(obs)))
        return torch.from_numpy(rng.uniform(space.low.item(), space.high.item(), len(obs)).astype(np.float32))

    return in_original(environment, draw, episodes, first_seed)


class PortEpisodes:
    """The first episode of each of a batch of port environments, made once and played as often as wanted.

    Only first episodes count, for the mean over all that end within some time would favour short ones.

    Args:
        environment: a folder of `envs/`.
        episodes: at least 1.
        seed: every `play` begins with the same first states.
        device: "cpu", "cuda" or "cuda:<index>".

    Raises:
        ValueError: as `envs.make` does.
    """

    def __init__(self, environment: str, episodes: int = EPISODES, seed: int = FIRST_SEED, device="cpu"):
        self._env = envs.make(environment, integer("episodes", episodes, 1, 2**31 - 1), device, seed=seed)
        self._seed = seed
        limit = self._env.max_episode_steps
        self._chunk = -(-limit // -(-limit // CHUNK))  # equal chunks, so that the port keeps their buffers

    @torch.no_grad()
    def play(self, policy: "Act | envs.MLP | envs.Linear | str") -> Episodes:
        """Plays each episode to its end or limit.

        Args:
            policy: an `envs.MLP` (its critic is left out), `envs.Linear` or "random", which run inside the port's
                kernel; or a function as `in_original` takes it, here on the port's device and for all environments at
                every step. What it does after an environment's first episode does not count.

        Raises:
            ValueError: a policy that does not fit; on the CPU, an action outside the space.
        """
        obs, _ = self._env.reset(seed=self._seed)
        episodes, device = self._env.num_envs, self._env.device
        returns = torch.zeros(episodes, dtype=torch.float64, device=device)
        lengths = torch.zeros(episodes, dtype=torch.int64, device=device)
        running = torch.ones(episodes, dtype=torch.bool, device=device)
        if isinstance(policy, envs.MLP):
            policy = replace(policy, critic=None)
        for start in range(0, self._env.max_episode_steps, self._chunk):
            if start and not bool(running.any()):  # waits for the device: once a chunk
                break
            for reward, ended in self._steps(policy, obs):
                earlier = ended.cumsum(0) - ended.long()  # episodes ended before this step, in these rows
                live = running & (earlier == 0)
                returns += torch.where(live, reward, 0.0).sum(0, dtype=torch.float64)
                lengths += live.sum(0)
                running = running & ~ended.any(0)
        return Episodes(returns.cpu().numpy(), lengths.cpu().numpy())

    def _steps(self, policy, obs: torch.Tensor):
        """One chunk of steps as pairs of reward and ended [K, B], in one piece or in many."""
        if not callable(policy):
            rows = self._env.rollout(self._chunk, policy, store="trajectory")
            yield rows["reward"], rows["terminated"] | rows["truncated"]
            return
        for _ in range(self._chunk):
            _, reward, terminated, truncated, _ = self._env.step(policy(obs))
            yield reward[None], (terminated | truncated)[None]


def in_port(
    environment: str,
    policy: "Act | envs.MLP | envs.Linear | str",
    episodes: int = EPISODES,
    seed: int = FIRST_SEED,
    device="cpu",
) -> Episodes:
    """`PortEpisodes.play` once; who evaluates often keeps a `PortEpisodes`."""
    return PortEpisodes(environment, episodes, seed, device).play(policy)
