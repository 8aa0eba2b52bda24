"""Ports in Stable-Baselines3: a `VecEnv` over a batch on the CPU.

    from stable_baselines3 import PPO
    from lockstep.envs.adapters import sb3

    PPO("MlpPolicy", sb3.make("cartpole", num_envs=64)).learn(100_000)

Stable-Baselines3 takes NumPy arrays and one dictionary per environment and step, so most of the time goes there.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from lockstep import envs
from lockstep.envs.batch.actions import saturated
from lockstep.extras import extra

with extra("sb3", of="lockstep.envs.adapters.sb3"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv


def make(name: str, num_envs: int, **options) -> "SB3VecEnv":
    """A batch of `num_envs` environments for Stable-Baselines3; `envs.BatchedEnv` lists the options."""
    if envs.port(name).agents:
        raise ValueError(f"{name} has several agents; Stable-Baselines3 knows one")
    return SB3VecEnv(envs.make(name, num_envs, **{"arrays": "numpy"} | options))


class SB3VecEnv(VecEnv):
    """A batch on the CPU as Stable-Baselines3's `VecEnv`.

    Where an episode ends, an environment's info holds what `Monitor` and `DummyVecEnv` would put there:
    terminal_observation [n], TimeLimit.truncated (truncated and not terminated, so that the value of the last
    observation counts), and episode with r (return), l (steps) and t (seconds since this object was made).
    Everything returned is a copy, since Stable-Baselines3 keeps observations and adds to rewards in place.

    Args:
        batch: on the cpu, with autoreset mode SAME_STEP.

    Raises:
        ValueError: a batch on another device or in another mode.
    """

    def __init__(self, batch: envs.BatchedEnv):
        if batch.device.type != "cpu":
            raise ValueError(f"Stable-Baselines3 takes NumPy arrays: the batch must be on 'cpu', not {batch.device}")
        if batch.autoreset_mode != AutoresetMode.SAME_STEP:
            mode = batch.autoreset_mode.value
            raise ValueError(f"Stable-Baselines3 resets in the ending step: autoreset_mode={mode!r} must be 'SameStep'")
        self.batch = batch
        self._attributes = {"render_mode": ["rgb_array"] * batch.num_envs}  # name: a value per environment
        self._actions = None
        self._start = time.time()
        super().__init__(batch.num_envs, batch.single_observation_space, batch.single_action_space)

    # ---- reset and step ---------------------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Starts the noise anew at the next reset; None draws a seed.

        Returns:
            The seed of each environment: `seed`, and 1 more in each further group. Environments of one seed draw
            different numbers, since noise also depends on an environment's index.
        """
        first = super().seed(seed)[0]
        self._seeds = [first + i // self.batch.group_size for i in range(self.num_envs)]
        return self._seeds

    def reset(self) -> np.ndarray:
        """Starts an episode in every environment, with the bounds of `set_options` if any.

        Raises:
            ValueError: environments were given different options; the bounds belong to the batch.
        """
        if any(options != self._options[0] for options in self._options):
            raise ValueError("reset options belong to the whole batch: set_options needs the same for all environments")
        seed = None if self._seeds[0] is None else self._seeds[:: self.batch.group_size]
        options = self._options[0]
        self._reset_seeds()  # what the batch refuses is not asked for again
        self._reset_options()
        obs, _ = self.batch.reset(seed=seed, options=options)
        return np.asarray(obs).copy()

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions [B] or [B, 1] for `step_wait`."""
        narrow = self.batch.lanes > 1 and actions.dtype == np.int64  # such a batch takes int32 alone
        self._actions = saturated(torch.tensor(actions), torch.int32) if narrow else actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """One step: obs [B, n] float32, reward [B] float32, done [B] bool (either flag), one info per environment."""
        obs, reward, terminated, truncated, info = self.batch.step(self._actions)
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)
        ended = terminated | truncated
        infos: list[dict] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        if len(rows := np.flatnonzero(ended)):
            seconds = round(time.time() - self._start, 6)
            final_obs, returns, lengths = (
                np.asarray(info[name])[rows] for name in ("final_obs", "episode_return", "episode_length")
            )
            for k, i in enumerate(rows):
                infos[i] = {
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                    "terminal_observation": final_obs[k],
                    "episode": {"r": float(returns[k]), "l": int(lengths[k]), "t": seconds},
                }
        return np.asarray(obs).copy(), np.asarray(reward).copy(), ended, infos

    def close(self) -> None:
        """Closes the batch."""
        self.batch.close()

    # ---- rendering --------------------------------------------------------------------------------------------------

    def get_images(self) -> Sequence[np.ndarray]:
        """A frame [H, W, 3] uint8 of each environment; `render()` tiles them."""
        return self.batch.render()

    # ---- attributes -------------------------------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices=None) -> list:
        """An attribute of each environment: one given by `set_attr`, a parameter of the port, or one of the batch.

        Raises:
            AttributeError: there is none of that name.
        """
        rows = list(self._get_indices(indices))
        if attr_name in self._attributes:
            return [self._attributes[attr_name][i] for i in rows]
        owner = self.batch.params if hasattr(self.batch.params, attr_name) else self.batch
        return [getattr(owner, attr_name)] * len(rows)

    def set_attr(self, attr_name: str, value, indices=None) -> None:
        """Notes an attribute for environments, None for the others; the port itself takes no notice of it.

        Raises:
            AttributeError: a parameter of the port or an attribute of the batch, fixed when it is made.
        """
        if hasattr(self.batch.params, attr_name) or hasattr(self.batch, attr_name):
            raise AttributeError(f"{attr_name} is fixed when the batch is made; give it to make(name, num_envs, ...)")
        values = self._attributes.setdefault(attr_name, [None] * self.num_envs)
        for i in self._get_indices(indices):
            values[i] = value

    def env_method(self, method_name: str, *method_args, indices=None, **method_kwargs) -> list:
        """Calls a method of the batch once; its answer stands for each environment.

        Raises:
            ValueError: indices leave environments out; a batch acts as one.
        """
        rows = list(self._get_indices(indices))
        if sorted(rows) != list(range(self.num_envs)):
            raise ValueError(f"{method_name} acts on the whole batch: indices must be None, got {indices!r:.60}")
        return [getattr(self.batch, method_name)(*method_args, **method_kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type, indices=None) -> list[bool]:
        """True for `Monitor`, whose episode infos are here; there are no other wrappers."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]
