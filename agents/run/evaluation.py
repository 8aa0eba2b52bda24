"""Returns and lengths of whole episodes under a fixed policy: in the original, which counts, or quickly in the port."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from lockstep import envs
from lockstep.envs.batch.port import bounds
from lockstep.envs.checks import integer

EPISODES = 100
FIRST_SEED = 10_000  # of evaluation; training takes small seeds, so that the two never meet
CHUNK = 64  # steps of the port between two looks at whether all episodes have ended

# From obs float32 [k, (A,) n] to actions [k, (A, )...] inside the space; of a single number also without its axis.
Act = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Episodes:
    """One row per episode."""

    returns: np.ndarray  # [episodes] float64, undiscounted
    lengths: np.ndarray  # [episodes] int64, steps


def in_original(
    environment: str, act: Act, episodes: int = EPISODES, first_seed: int = FIRST_SEED, **options
) -> Episodes:
    """One episode in each of so many originals, number i reset with the seed `first_seed` + i.

    Args:
        environment: a folder of `envs/`.
        act: as of `play`.
        episodes: at least 1.
        first_seed: 0 or more.
        **options: of `envs.make_original`; where it has an `index` of what is drawn, original i gets i.

    Raises:
        ValueError: an unknown environment, or actions of a wrong shape or kind or outside the space; names the first.
        ImportError: a library that the original needs is not installed, such as PettingZoo; names it.
    """
    with games(environment, integer("episodes", episodes, 1, 2**31 - 1), **options) as found:
        return play([game.original for game in found], act, first_seed)


@contextmanager
def games(environment: str, count: int, **options) -> Iterator[list["Single | Parallel"]]:
    """So many originals that are stepped alike, whatever their interface; closed in the end, or when one fails to open.

    Each game takes actions in the form that `taken` gives them.
    """
    numbered = "index" in inspect.signature(envs.original(environment).make).parameters and "index" not in options
    found = []
    with ExitStack() as opened:
        for i in range(count):
            original = envs.make_original(environment, **options, **{"index": i} if numbered else {})
            opened.callback(original.close)
            found.append(_game(original))
        yield found


def taken(actions: np.ndarray, space) -> list | np.ndarray:
    """Actions in a form that originals step by: integers, or arrays of their space's type."""
    return actions.astype(space.dtype) if hasattr(space, "low") else actions.tolist()


def _game(original) -> "Single | Parallel":
    return Parallel(original) if hasattr(original, "possible_agents") else Single(original)


@torch.no_grad()
def play(originals: Sequence, act: Act, first_seed: int = FIRST_SEED) -> Episodes:
    """One episode in each of several originals, of Gymnasium or of PettingZoo's parallel API, whose return is the mean
    of its agents'.

    Args:
        originals: of one kind; number i is reset with the seed `first_seed` + i.
        act: called once a step with the observations of the episodes still running, on the CPU.

    Raises:
        ValueError: as `in_original`.
    """
    first_seed = integer("first_seed", first_seed, 0, 2**31 - 1)
    games = [_game(original) for original in originals]
    obs = [game.reset(first_seed + i) for i, game in enumerate(games)]
    returns, lengths, running = [0.0] * len(games), [0] * len(games), list(range(len(games)))
    while running:
        actions = _actions(act(torch.from_numpy(np.array(obs, dtype=np.float32))), games[0], running)
        before, running, obs = running, [], []
        for i, action in zip(before, actions, strict=True):
            seen, reward, ended = games[i].step(action)
            returns[i] += reward
            lengths[i] += 1
            if not ended:
                running.append(i)
                obs.append(seen)
    return Episodes(np.array(returns), np.array(lengths))


class Single:
    """An episode of one agent."""

    agents = ()

    def __init__(self, original):
        self.original, self.space = original, original.action_space

    def reset(self, seed: int) -> np.ndarray:
        return self.original.reset(seed=seed)[0]

    def step(self, action) -> tuple[np.ndarray, float, bool]:
        """Observation, reward, and whether that was the end."""
        obs, reward, terminated, truncated, _ = self.original.step(action)
        return obs, float(reward), terminated or truncated


class Parallel:
    """An episode of several agents: observations [A, n], actions [A, m]; 0 is what an agent sees that has finished."""

    def __init__(self, original):
        self.original, self.agents = original, original.possible_agents
        self.space = original.action_space(self.agents[0])

    def reset(self, seed: int) -> np.ndarray:
        obs, _ = self.original.reset(seed=seed)
        self._players = len(self.original.agents)  # fewer than there may be, in some episodes
        self._nothing = np.zeros_like(obs[self.agents[0]])
        return self._rows(obs)

    def step(self, actions) -> tuple[np.ndarray, float, bool]:
        """Observations, mean reward of the episode's agents, and whether nobody is left."""
        acting = {
            agent: action for agent, action in zip(self.agents, actions, strict=True) if agent in self.original.agents
        }
        obs, rewards, _, _, _ = self.original.step(acting)
        return self._rows(obs), sum(map(float, rewards.values())) / self._players, not self.original.agents

    def _rows(self, obs: Mapping[str, np.ndarray]) -> np.ndarray:
        left = self.original.agents  # who ends with a step may have an observation after it
        return np.stack([obs[agent] if agent in left else self._nothing for agent in self.agents])


def _actions(actions: torch.Tensor, game: Single | Parallel, episodes: Sequence[int]) -> list | np.ndarray:
    """Actions as the originals' `step` takes them: integers or arrays, of several agents a row of them."""
    space, rows = game.space, (len(episodes), *[len(game.agents)] * bool(game.agents))
    discrete = not hasattr(space, "low")
    one = (1,) if hasattr(space, "n") else ()  # such an action has no axis, and may have one
    allowed = [(*rows, *space.shape)] + ([rows] if space.shape == (1,) else [(*rows, *one)] if one else [])
    if not isinstance(actions, torch.Tensor) or actions.shape not in allowed:
        found = tuple(actions.shape) if isinstance(actions, torch.Tensor) else type(actions).__name__
        wanted = " or ".join(str(shape) for shape in sorted(allowed, key=len))
        raise ValueError(f"act must return a tensor {wanted} of actions, got {found}")
    if actions.dtype == torch.bool or actions.is_complex() or actions.is_floating_point() == discrete:
        kind = "integers" if discrete else "floating-point numbers"
        raise ValueError(f"act must return {kind}, got {str(actions.dtype).removeprefix('torch.')}")
    values = actions.reshape(*rows, *space.shape).cpu().numpy()
    low, high, _ = bounds(space)
    low, high = (bound.reshape(space.shape) for bound in (low, high))
    inside = (values >= low) & (values <= high)  # NaN is outside
    if not inside.all():
        place = tuple(np.argwhere(~inside)[0])
        low, high = (np.broadcast_to(bound, values.shape)[place] for bound in (low, high))
        raise ValueError(f"action {values[place]} of episode {episodes[place[0]]} is not in {low:g} .. {high:g}")
    return taken(values, space)


def random_policy(environment: str, episodes: int = EPISODES, first_seed: int = FIRST_SEED, **options) -> Episodes:
    """`in_original` under actions drawn uniformly from the space; `first_seed` seeds them as well."""
    original = envs.make_original(environment, **options)
    game = _game(original)
    space, agents, rng = game.space, [len(game.agents)] if game.agents else [], np.random.default_rng(first_seed)
    original.close()

    def draw(obs: torch.Tensor) -> torch.Tensor:
        shape = (len(obs), *agents, *space.shape)
        if not hasattr(space, "low"):
            return torch.from_numpy(rng.integers(getattr(space, "n", getattr(space, "nvec", None)), size=shape))
        return torch.from_numpy(rng.uniform(space.low, space.high, shape).astype(np.float32))

    return in_original(environment, draw, episodes, first_seed, **options)


class PortEpisodes:
    """The first episode of each of a batch of port environments, made once and played as often as wanted.

    Only first episodes count, for the mean over all that end within some time would favour short ones.

    Args:
        environment: a folder of `envs/`.
        episodes: at least 1.
        seed: every `play` begins with the same first states.
        device: "cpu", "cuda" or "cuda:<index>".
        **options: further ones of `envs.make`.

    Raises:
        ValueError: as `envs.make` does.
    """

    def __init__(self, environment: str, episodes: int = EPISODES, seed: int = FIRST_SEED, device="cpu", **options):
        episodes = integer("episodes", episodes, 1, 2**31 - 1)
        self._env = envs.make(environment, episodes, device, seed=seed, **options)
        self._seed = seed
        limit = self._env.max_episode_steps
        self._chunk = -(-limit // -(-limit // CHUNK))  # equal chunks, so that the port keeps their buffers

    @torch.no_grad()
    def play(self, policy: "Act | envs.MLP | envs.Linear | str") -> Episodes:
        """Plays each episode to its end or limit.

        Args:
            policy: an `envs.MLP` (its critic is left out), `envs.Linear` or "random", which run inside the port's
                kernel; or a function as `in_original` takes it, here on the port's device and for all environments at
                every step; one with a parameter `active` is given the infos' flags, of several agents. What it does
                after an environment's first episode does not count.

        Raises:
            ValueError: a policy that does not fit; on the CPU, an action outside the space.
        """
        self._obs, infos = self._env.reset(seed=self._seed)
        heeds = callable(policy) and "active" in infos and "active" in inspect.signature(policy).parameters
        self._flags = {"active": infos["active"]} if heeds else {}
        episodes, device = self._env.num_envs, self._env.device
        returns = torch.zeros(episodes, dtype=torch.float64, device=device)
        lengths = torch.zeros(episodes, dtype=torch.int64, device=device)
        running = torch.ones(episodes, dtype=torch.bool, device=device)
        if isinstance(policy, envs.MLP):
            policy = replace(policy, critic=None)
        for start in range(0, self._env.max_episode_steps, self._chunk):
            if start and not bool(running.any()):  # waits for the device: once a chunk
                break
            for reward, ended in self._steps(policy):
                earlier = ended.cumsum(0) - ended.long()  # episodes ended before this step, in these rows
                live = running & (earlier == 0)
                returns += torch.where(live, reward, 0.0).sum(0, dtype=torch.float64)
                lengths += live.sum(0)
                running = running & ~ended.any(0)
        return Episodes(returns.cpu().numpy(), lengths.cpu().numpy())

    def _steps(self, policy):
        """One chunk of steps as pairs of reward and ended [K, B], in one piece or in many."""
        if not callable(policy):
            rows = self._env.rollout(self._chunk, policy, store="trajectory")
            yield rows["reward"], rows["terminated"] | rows["truncated"]
            return
        for _ in range(self._chunk):
            self._obs, reward, _, _, info = self._env.step(policy(self._obs, **self._flags))
            self._flags = {name: info[name] for name in self._flags}
            reward = reward if reward.dim() == 1 else reward.mean(dim=1)  # of several agents, as in the original
            yield reward[None], info["_final_obs"][None]
