"""Batched environments of several libraries behind one interface: reset(seed), step(actions), perhaps put(states).

Each library is imported when an environment of it is made, and nothing else is needed but NumPy, so that this runs in
any Python that has the library. Axes: B environments, k numbers of a state.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from lockstep.experiments import UserError


class Step(NamedTuple):
    """The outcome of a step; where an episode has ended, `last` may hold what it ended with."""

    observation: np.ndarray  # [B, ...], as the next step starts from
    reward: np.ndarray  # [B]
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B] bool
    last: np.ndarray  # [B, ...]
    given: np.ndarray  # [B] bool: where `last` is an observation
    agents: np.ndarray | None = None  # [B, 4, A] of several: rewards, terminated, truncated, and who acted


class Vector:
    """A `gymnasium.vector.VectorEnv`, on NumPy arrays or torch tensors; `mode` is what it declares, or None.

    One that never resets itself, and says so, is told by a mask which environments to reset. Where rewards are [B, A],
    those of several agents, an episode ends with its last agent, and has the mean of their rewards; one that plays no
    longer sees and is given 0.

    Attributes:
        playing: [B, A] bool of several agents, those that act in the next step; None where all do.
    """

    def __init__(self, env):
        self.env, self.num_envs = env, env.num_envs
        mode = (env.metadata or {}).get("autoreset_mode")
        self.mode = getattr(mode, "value", mode)

    def reset(self, seed: int | None) -> np.ndarray:
        observation, info = self.env.reset(seed=seed)
        self.playing = acting(info, None)
        self.device = getattr(observation, "device", None) if hasattr(observation, "detach") else None
        return on_host(observation)

    def step(self, actions: np.ndarray) -> Step:
        if self.device is not None:
            import torch

            actions = torch.from_numpy(actions).to(self.device)
        *found, info = self.env.step(actions)
        observation, reward, *flags = map(on_host, found)
        terminated, truncated = (flag.astype(bool) for flag in flags)  # some have bytes
        agents = None
        if reward.ndim == 2:
            agents = self._agents(observation, reward, terminated, truncated, info)
            reward, terminated, truncated = of_episode(agents)
        ended, last = terminated | truncated, np.zeros_like(observation)
        if self.mode == "Disabled":
            last[:] = observation
            if ended.any():
                observation, info = self.env.reset(options={"reset_mask": ended.copy()})
                observation = on_host(observation)
                self.playing = acting(info, self.playing)
            return Step(observation, reward, terminated, truncated, last, ended, agents)
        key = next((key for key in ("final_obs", "final_observation") if key in info), None)
        given = ended & on_host(info.get(f"_{key}", ended)).astype(bool) if key else np.zeros_like(ended)
        for i in np.flatnonzero(given):
            last[i] = on_host(info[key][i])
        return Step(observation, reward, terminated, truncated, last, given, agents)

    def _agents(self, observation, reward, terminated, truncated, info) -> np.ndarray:
        """Rewards, flags and who acted, as in Step; also notes who plays on, and clears what others see."""
        if observation.shape[:2] != reward.shape:
            shapes = f"rewards {list(reward.shape)} and observations {list(observation.shape)}"
            raise UserError(f"FACTORY gives {shapes}, not [B] and [B, ...], of several agents [B, A] and [B, A, ...]")
        playing = np.ones_like(terminated) if self.playing is None else self.playing
        agents = np.where(playing[:, None], np.stack([reward, terminated, truncated, playing], axis=1), 0.0)
        _, *flags = of_episode(agents)
        over = (flags[0] | flags[1])[:, None]
        observation[~(playing | over)] = 0
        on = acting(info, playing & ~(terminated | truncated))
        self.playing = on | (over & ~on.any(axis=1, keepdims=True))
        return agents


GIVEN, TERMINATED, TRUNCATED, ACTED = range(4)  # of `Step.agents`


def acting(info: Mapping, otherwise: np.ndarray | None) -> np.ndarray | None:
    """The agents [B, A] bool that act in the next step, where an info has them."""
    return on_host(info["active"]).astype(bool) if "active" in info else otherwise


def of_episode(agents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, terminated and truncated [B] of episodes, which are over when every agent that acted has a flag."""
    flags = agents[:, [TERMINATED, TRUNCATED]] > 0
    over = flags.any(axis=(1, 2)) & (flags.any(axis=1) | (agents[:, ACTED] == 0)).all(axis=1)
    return agents[:, GIVEN].mean(axis=1), *(over[:, None] & flags.any(axis=2)).T


class Gymnax:
    """An environment of gymnax with its parameters, batched by `vmap`; it resets in the ending step."""

    mode = "SameStep"

    def __init__(self, env, params, num_envs: int):
        import jax

        self.env, self.params, self.num_envs, self.random = env, params, num_envs, jax.random
        self._reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
        self._step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))

    def _keys(self):
        self.key, key = self.random.split(self.key)
        return self.random.split(key, self.num_envs)

    def reset(self, seed: int | None) -> np.ndarray:
        self.key = self.random.key(seed)
        observation, self.state = self._reset(self._keys(), self.params)
        return on_host(observation)

    def step(self, actions: np.ndarray) -> Step:
        observation, self.state, reward, *flags, info = self._step(self._keys(), self.state, actions, self.params)
        terminated = on_host(flags[0])
        truncated = on_host(flags[1]) if len(flags) > 1 else np.zeros_like(terminated)  # older ones have one flag
        ended, observation = terminated | truncated, on_host(observation)
        last = on_host(info.get("final_observation", np.zeros_like(observation)))
        given = ended & ("final_observation" in info)
        return Step(observation, on_host(reward), terminated, truncated, last, given)

    def put(self, states: np.ndarray) -> None:
        """The first k fields of its states, but for the clock, are those of the original, in its order."""
        names = [name for name in self.state.__dataclass_fields__ if name != "time"][: states.shape[1]]
        columns = {name: getattr(self.state, name) for name in names}
        given = {name: states[:, n].astype(column.dtype) for n, (name, column) in enumerate(columns.items())}
        self.state = self.state.replace(**given)


class TorchRL:
    """An `EnvBase` of batch size [B], whose collectors reset ended environments in the ending step."""

    mode = "SameStep"

    def __init__(self, env):
        self.env, self.num_envs = env, env.batch_size[0]
        self.seen = next(iter(env.observation_spec.keys(True, True)))

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None:
            self.env.set_seed(seed)
        self.rows = self.env.reset()
        return on_host(self.rows[self.seen])

    def step(self, actions: np.ndarray) -> Step:
        import torch

        spec, action = self.env.action_spec, torch.from_numpy(actions).to(self.env.device)
        if "OneHot" in type(spec).__name__:
            action = torch.nn.functional.one_hot(action.long(), spec.shape[-1])
        self.rows.set(self.env.action_key, action.to(spec.dtype).reshape(spec.shape))
        stepped, self.rows = self.env.step_and_maybe_reset(self.rows)
        after = stepped["next"]
        terminated = on_host(after["terminated"]).reshape(self.num_envs)
        truncated = on_host(after.get("truncated", after["terminated"] & False)).reshape(self.num_envs)
        reward = on_host(after[self.env.reward_key]).reshape(self.num_envs)
        last = on_host(after[self.seen])
        return Step(on_host(self.rows[self.seen]), reward, terminated, truncated, last, terminated | truncated)


class SB3:
    """A `VecEnv` of Stable-Baselines3, whose one flag and `TimeLimit.truncated` are read as the two."""

    mode = "SameStep"

    def __init__(self, env):
        self.env, self.num_envs = env, env.num_envs

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None:
            self.env.seed(seed)
        return on_host(self.env.reset())

    def step(self, actions: np.ndarray) -> Step:
        observation, reward, ended, infos = self.env.step(actions)
        observation, reward, ended = map(on_host, (observation, reward, ended))
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        given = ended & np.array(["terminal_observation" in info for info in infos])
        last = np.zeros_like(observation)
        for i in np.flatnonzero(given):
            last[i] = infos[i]["terminal_observation"]
        return Step(observation, reward, ended & ~cut, ended & cut, last, given)


class Puffer:
    """A `PufferEnv` of PufferLib, which resets in the ending step and tells nobody what it ended with.

    Each of its agents is an environment.
    """

    mode = "SameStep"

    def __init__(self, env):
        self.env, self.num_envs = env, env.num_agents

    def reset(self, seed: int | None) -> np.ndarray:
        return on_host(self.env.reset(seed)[0])

    def step(self, actions: np.ndarray) -> Step:
        observation, reward, *flags = map(on_host, self.env.step(actions)[:4])
        terminated, truncated = (flag.astype(bool) for flag in flags)
        return Step(observation, reward, terminated, truncated, np.zeros_like(observation), np.zeros_like(terminated))


def on_host(value) -> np.ndarray:
    """A copy as a NumPy array, since many libraries step in place."""
    return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def bases(env: object) -> set[tuple[str, str]]:
    """The classes that an object has, each as its library and its name."""
    return {(base.__module__.partition(".")[0], base.__name__) for base in type(env).__mro__}


def adapted(env: object, num_envs: int, name: str) -> Vector | Gymnax | TorchRL | SB3 | Puffer:
    """The adapter of what a factory has made; UserError where there is none for it."""
    one, params = env if isinstance(env, tuple) and len(env) == 2 else (env, None)
    if ("gymnax", "Environment") in bases(one):
        return Gymnax(one, one.default_params if params is None else params, num_envs)
    known = {("gymnasium", "VectorEnv"): Vector, ("torchrl", "EnvBase"): TorchRL, ("stable_baselines3", "VecEnv"): SB3}
    known |= {("pufferlib", "PufferEnv"): Puffer}
    for base, adapter in known.items():
        if base in bases(one):
            return adapter(env)
    raise UserError(
        f"{name} makes a {type(env).__module__}.{type(env).__qualname__}; it must be a VectorEnv of Gymnasium, "
        "an EnvBase of TorchRL, a VecEnv of Stable-Baselines3, a PufferEnv of PufferLib, "
        "or an environment of gymnax, alone or with parameters"
    )


# ---- the kinds that have a name -----------------------------------------------------------------------------------


def of_gymnasium(identity: str, num_envs: int):
    import gymnasium

    return gymnasium.make_vec(identity, num_envs=num_envs)


def of_lockstep(name: str, num_envs: int):
    from lockstep import envs

    return envs.make(name, num_envs, device="cpu", arrays="numpy")


def of_envpool(identity: str, num_envs: int, seed: int):
    import envpool

    return envpool.make_gymnasium(identity, num_envs=num_envs, seed=seed)


def of_gymnax(identity: str):
    import gymnax

    return gymnax.make(identity)


def of_torchrl(identity: str, num_envs: int):
    from torchrl.envs import GymEnv, SerialEnv

    return SerialEnv(num_envs, functools.partial(GymEnv, identity))


def of_sb3(identity: str, num_envs: int):
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(identity, n_envs=num_envs)


def of_pufferlib(identity: str, num_envs: int):
    from lockstep.experiments.peer_workers import pufferlib

    return pufferlib.made(identity, num_envs)


def put_each(env, states: np.ndarray) -> None:
    """Into environments that hold Gymnasium's own, one by one, or into a class that holds an array [k, B]."""
    if hasattr(env, "envs"):
        for one, state in zip(env.envs, states, strict=True):
            one.unwrapped.state = state.copy()
    else:
        env.unwrapped.state = states.T.copy()


def put_in_port(env, states: np.ndarray) -> None:
    env.set_state({"state": states.astype(np.float32)})


class Kind(NamedTuple):
    make: Callable
    package: str  # to import
    installed: tuple[str, ...]  # whose versions are noted, its own first
    put: Callable | None = None


KINDS = {
    "gymnasium": Kind(of_gymnasium, "gymnasium", ("gymnasium", "numpy"), put_each),
    "lockstep": Kind(of_lockstep, "torch", ("lockstep", "torch", "numpy"), put_in_port),
    "envpool": Kind(of_envpool, "envpool", ("envpool", "gymnasium", "numpy")),
    "gymnax": Kind(of_gymnax, "gymnax", ("gymnax", "jax", "jaxlib", "numpy")),
    "pufferlib": Kind(of_pufferlib, "pufferlib", ("pufferlib", "gymnasium", "numpy")),
    "torchrl": Kind(of_torchrl, "torchrl", ("torchrl", "tensordict", "gymnasium", "torch", "numpy")),
    "sb3": Kind(of_sb3, "stable_baselines3", ("stable-baselines3", "gymnasium", "numpy"), put_each),
}


def kind_of(name: str) -> Kind | None:
    """The kind that a name begins with, None of `module:function`."""
    return KINDS.get(name.partition(":")[0])


def is_here(name: str) -> bool:
    """Tells that this Python has what a name needs."""
    kind = kind_of(name)
    return kind is None or importlib.util.find_spec(kind.package) is not None


def versions(name: str) -> dict[str, str]:
    """The versions of the packages that a subject comes from, of those that are installed."""
    kind, found = kind_of(name), {}
    for package in kind.installed if kind else [name.partition(":")[0].partition(".")[0]]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def function(what: str, text: str) -> Callable:
    """The function of `package.module:function`; UserError says what is wrong. what: the option, for sentences."""
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise UserError(f"{what} {text!r} must be package.module:function{known_kinds(what)}")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module}.".startswith(f"{error.name}."):  # it is there and lacks something itself
            raise
        raise UserError(f"{what} {text!r}: there is no module {error.name!r} here{known_kinds(what)}") from error
    if not callable(getattr(found, name, None)):
        from lockstep.reading import nearest  # here, because it needs a package more than NumPy

        public = [word for word, one in vars(found).items() if not word.startswith("_") and is_of(module, one)]
        raise UserError(f"{what} {text!r}: {module} has no function {name!r}{nearest(name, public)}")
    return getattr(found, name)


def is_of(module: str, value: object) -> bool:
    """Tells that a function or class is of a module or of those within it, and not of one that it imports."""
    return callable(value) and f"{getattr(value, '__module__', '')}.".startswith(f"{module}.")


def known_kinds(what: str) -> str:
    return f", and the kinds with a name are {', '.join(KINDS)}" if what == "FACTORY" else ""


class Subject:
    """The environment to verify: one of the adapters, made by a factory when it is needed.

    A factory takes the number of environments as `num_envs`, or as what its first argument is called, or nothing where
    its batch has one size (not `sized`). One that has a parameter `seed` is called again for each reset.

    Args:
        name: a kind with a name, such as envpool:CartPole-v1, or package.module:function.
        num_envs: B; without effect where it is not `sized`.
        inject: puts (what the factory makes, states [B, k]); by default as the kind does.
    """

    def __init__(self, name: str, num_envs: int, inject: Callable | None = None):
        kind = kind_of(name)
        self.name, self.asked, self.inner = name, num_envs, None
        self.make = functools.partial(kind.make, name.partition(":")[2]) if kind else function("FACTORY", name)
        self.inject = inject or (kind.put if kind else None)
        every = inspect.signature(self.make).parameters.values()
        given = [one.name for one in every if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        self.seeded, others = "seed" in given, [one for one in given if one != "seed"]
        self.size = "num_envs" if "num_envs" in others else next(iter(others), None)
        self.sized = kind is not None or self.size is not None

    def _make(self, seed: int | None) -> None:
        self.close()
        given = {self.size: self.asked} if self.size else {}
        given |= {"seed": seed} if self.seeded else {}
        try:
            env = self.make(**given)
        except Exception as error:
            if kind_of(self.name) is None:  # a mistake in code of the user's own needs its traceback
                raise
            said = " ".join(str(error).split())
            raise UserError(f"{self.name} cannot be made: {type(error).__name__}: {said}") from error
        self.inner = adapted(env, self.asked, self.name)

    @property
    def num_envs(self) -> int:
        """B as it is."""
        if self.sized:
            return self.asked
        if self.inner is None:
            self._make(0)
        return self.inner.num_envs

    @property
    def spaces(self) -> tuple:
        """Spaces of one environment's observations and actions, in the classes of its library; None if not declared."""
        if self.inner is None:
            self._make(0)
        one = {Vector: "single_", SB3: "", Puffer: "single_"}.get(type(self.inner))
        if one is None:  # gymnax and TorchRL have classes of their own
            return None, None
        return tuple(getattr(self.inner.env, f"{one}{what}_space", None) for what in ("observation", "action"))

    @property
    def mode(self) -> str | None:
        """The autoreset mode that is declared, once there has been a reset."""
        return self.inner.mode

    @property
    def can_put(self) -> bool:
        return self.inject is not None or hasattr(self.inner, "put")

    def reset(self, seed: int) -> np.ndarray:
        """First observations [B, ...]."""
        if self.inner is None or self.seeded:
            self._make(seed)
        if self.inner.num_envs != self.num_envs:
            raise UserError(f"{self.name} was asked for {self.asked} environments and makes {self.inner.num_envs}")
        return self.inner.reset(None if self.seeded else seed)

    def step(self, actions: np.ndarray) -> Step:
        return self.inner.step(actions)

    def put(self, states: np.ndarray, playing: np.ndarray | None = None) -> None:
        """A batch that was just reset into states [B, k], in which of several agents those act."""
        self.inject(self.inner.env, states) if self.inject else self.inner.put(states)
        self.inner.playing = playing

    def close(self) -> None:
        """Close what the factory has made, which is made anew when it is needed again."""
        env = getattr(self.inner, "env", None)
        closed = getattr(env, "is_closed", False)  # TorchRL's are until their first reset, and may not be closed then
        if not closed and hasattr(env, "close"):
            env.close()
        self.inner = None
