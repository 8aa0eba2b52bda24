"""The batched environment: Gymnasium's vector conventions on tensors that never leave their device.

Every output of `step` is the environment's own buffer, overwritten by the next step: `.clone()` what must be kept.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from . import batch_state, launch, rollouts
from .actions import Actions
from .checks import choice, integer
from .kernels import structs
from .policies import MLP, Linear
from .port import TILES, Port
from .spaces import AutoresetMode, batch_space
from .vectorised import Vectorised

FETCH_EVERY = 8  # as in batch.cuh: steps between fetches of reset numbers in a fused rollout
SINGLE_THREAD_BELOW = 16384  # environments; below, waking a second thread costs more than it saves
BLOCK = 256  # threads of a GPU's block at most, as in batch_cuda.cuh
WARPS = 8  # to a multiprocessor that computes networks: no more have the registers


def step_block(num_envs: int, tile: int, device: torch.device) -> int:
    """Threads of a block that steps on a GPU: the more, the fewer warps do what follows an episode's end."""
    fills = num_envs >= BLOCK * torch.cuda.get_device_properties(device).multi_processor_count
    return BLOCK if fills else tile


def network_block(network_bytes: int, tile: int, device: torch.device) -> int:
    """Threads of a block with a network in its shared memory: enough that the blocks which find room have WARPS."""
    room = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor // network_bytes
    threads = tile
    while threads < BLOCK and room * threads < 32 * WARPS:
        threads *= 2
    return threads


class BatchedEnv(Vectorised):
    """B environments of one port on one device.

    Args:
        port: what `envs/<name>/port.py` declares.
        folder: that folder, which holds `kernel.cuh`.
        num_envs: B, at least 1.
        device: "cpu", "cuda" or "cuda:<index>".
        seed: 0 .. 2^64-1, or one per group.
        autoreset_mode: an `AutoresetMode` or its value: "SameStep", "NextStep", "Disabled".
        dtype: of the state, "float32" or "float64". Observations are float32 in both.
        obs: "copy" writes rows [B, n]; "view" is the transposed state itself, which must not be written to.
        action_dtype: the one torch dtype to accept; None accepts uint8, int32 and int64, of a Box float32 and float64.
        max_episode_steps: steps after which an episode is truncated; None is the original's limit.
        groups: number of equal parts of the batch, each with a seed and noise indices of its own.
        first_index: noise index of each group's environment 0, so that a batch can be split over processes.
        arrays: "torch", or "numpy" (cpu only): reset and step return zero-copy views of the same buffers.
        threads: of the CPU; None is one below 16,384 environments, else all.
        check_actions: raise on an action outside the space; None is True on the cpu, False on cuda (it synchronises).
        render_mode: None or "rgb_array", for Gymnasium's wrappers; `render` works in both.
        preset: a named set of parameters.
        **params: single parameters, compile-time constants of the kernel.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        MemoryError: B environments do not fit; says how many would.
        envs.kernels.compile.CompilerError: no C++ compiler (cpu).
    """

    def __init__(
        self,
        port: Port,
        folder: Path,
        num_envs: int,
        device="cpu",
        seed: int | Sequence[int] = 0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        dtype: str = "float32",
        obs: str = "copy",
        action_dtype: torch.dtype | None = None,
        max_episode_steps: int | None = None,
        groups: int = 1,
        first_index: int = 0,
        arrays: str = "torch",
        threads: int | None = None,
        check_actions: bool | None = None,
        render_mode: str | None = None,
        preset: str | None = None,
        **params,
    ):
        self.name, self.port, self.params = folder.name, port, port.make_params(preset, params)
        self._configure(num_envs, device, dtype, autoreset_mode, threads, SINGLE_THREAD_BELOW, check_actions)
        self.groups = integer("groups", groups, 1, self.num_envs)
        if self.num_envs % self.groups:
            raise ValueError(f"num_envs={num_envs} must be divisible by groups={groups}")
        self.group_size = self.num_envs // self.groups
        self.first_index = integer("first_index", first_index, 0, 2**32 - self.group_size)
        limit = port.horizon if max_episode_steps is None else max_episode_steps
        self.max_episode_steps = integer("max_episode_steps", limit, 1, 2**31 - 1)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": ["rgb_array"]}
        self._view = choice("obs", obs, ("copy", "view")) == "view"
        if self._view and self.dtype == "float64":
            raise ValueError("obs='view' needs dtype='float32': observations are float32")
        if self._view and not port.observes_state:
            raise ValueError(f"obs='view' needs observations that are the state; those of {port.title} are not")
        self._numpy = choice("arrays", arrays, ("torch", "numpy")) == "numpy"
        if self._numpy and self.device.type != "cpu":
            raise ValueError("arrays='numpy' needs device='cpu'")
        self.render_mode = choice("render_mode", render_mode, (None, "rgb_array"))
        self._actions = Actions(port.action, self.num_envs, self.device, action_dtype)
        seeds = self._seeds(seed)

        self.single_observation_space = port.observation(self.params)
        self.single_action_space = port.action
        self._folder = folder
        self._allocate()
        self._load()
        self._present()
        self._trajectory: tuple[dict, dict[str, torch.Tensor]] | None = None  # layout and buffers of the last one
        self._linear: tuple[Linear, tuple[torch.Tensor, torch.Tensor]] | None = None  # the last one, on the device
        self._set_bounds(port.reset_bounds({}))
        self._restart(None, seeds)
        self._started = False  # the first reset keeps episode 0

    # ---- construction -----------------------------------------------------------------------------------------------

    def _layout(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every buffer of `struct Batch`."""
        B, n, k = self.num_envs, self.single_observation_space.shape[0], len(self.port.state)
        real = getattr(torch, self.dtype)
        return {
            "state": ((k, B), real),
            "obs": ((0 if self._view else B, n), torch.float32),
            "reward": ((B,), torch.float32),
            "terminated": ((B,), torch.bool),
            "truncated": ((B,), torch.bool),
            "ended": ((B,), torch.bool),
            "is_reset": ((B if self.autoreset_mode == AutoresetMode.NEXT_STEP else 0,), torch.bool),
            "elapsed": ((B,), torch.uint16 if self.max_episode_steps <= 65535 else torch.int32),
            "episode": ((B,), torch.uint32),
            "running_return": ((B if self.port.running_return else 0,), torch.float32),
            "final_obs": ((B, n), torch.float32),
            "episode_return": ((B,), torch.float32),
            "episode_length": ((B,), torch.int32),
            "totals": ((3, self._tiles), torch.int64),
            "extremes": ((4, self._tiles), torch.float64),
            "clock": ((self._tiles,), torch.int64),
            "bounds": ((len(self.port.reset_bounds({})),), real),
            "seeds": ((self.groups,), torch.uint64),
        }

    def _allocate(self):
        self._tile = min(TILES[self.device.type], max(32, 1 << (self.group_size - 1).bit_length()))
        self._tiles = self.groups * -(-self.group_size // self._tile)
        bytes_of = self._make_buffers(self._layout())
        shared = {"totals", "extremes", "clock", "bounds", "seeds"}
        per_env = {name: size // self.num_envs for name, size in bytes_of.items() if name not in shared}
        self.bytes_per_env = sum(per_env.values())
        rarely = {"episode", "final_obs", "episode_return", "episode_length"}  # touched only where an episode ends
        twice = {"state", "elapsed", "running_return"}  # read and written
        traffic = sum(size * (2 if name in twice else 1) for name, size in per_env.items() if name not in rarely)
        self.bytes_per_step = traffic + self._actions.types[0].itemsize

    def _unit(self, hidden: int = 0) -> str:
        return self.port.unit(
            self._folder,
            self.params,
            mode=self.autoreset_mode.value,
            dtype=self.dtype,
            limit=self.max_episode_steps,
            view=self._view,
            tile=self._tile,
            hidden=hidden,
        )

    def _load(self):
        text = self._unit()
        self._batch = structs.struct(
            "Batch",
            text,
            **self._buffers,
            num_envs=self.num_envs,
            group_size=self.group_size,
            tiles_per_group=self._tiles // self.groups,
            tiles=self._tiles,
            first_index=self.first_index,
        )
        self._call = structs.struct("Call", text)
        kernel = self._lookup(text)
        self._lookups = {0: kernel}  # by the width of an MLP, which has a unit of its own; 0: none
        together = self._tiles_together("step")
        self._steps = {
            dtype: kernel(f"step_{str(dtype).removeprefix('torch.')}", together) for dtype in self._actions.types
        }
        self._kernels: dict[tuple[str, int], Callable] = {}
        checked_here = self._check and self.device.type == "cpu"
        self._outside = launch.validators(text, self._actions.types) if checked_here else {}

    def _lookup(self, text: str) -> Callable:
        if self.device.type == "cpu":
            return launch.cpu(text, self._batch, self._call, self._tiles, self.threads)
        return launch.cuda(text, self._batch, self._call, self._tiles, self._tile, self.device)

    def _tiles_together(self, name: str, hidden: int = 0) -> int:
        """Tiles that a block of a GPU holds."""
        if self.device.type == "cpu" or not (hidden or name == "step"):
            return 1
        if not hidden:
            return step_block(self.num_envs, self._tile, self.device) // self._tile
        outputs, inputs = self.port.policy_shape
        network_bytes = 4 * 2 * (hidden * (hidden + inputs + outputs + 2) + outputs + 4)
        return network_block(network_bytes, self._tile, self.device) // self._tile

    def _present(self):
        """What `step` returns, made once."""
        shown = {
            name: tensor.numpy() if self._numpy else tensor for name, tensor in self._buffers.items() if name != "seeds"
        }
        obs = shown["state"].T if self._view else shown["obs"]
        self._outputs = (obs, shown["reward"], shown["terminated"], shown["truncated"])
        self._info = {name: shown[name] for name in ("final_obs", "episode_return", "episode_length")}
        self._info["_final_obs"] = shown["ended"]
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._info["is_reset"] = shown["is_reset"]

    def _run(self, name: str, hidden: int = 0, **arguments):
        """Runs a kernel with the given fields of `struct Call`; tensors live until the launch is queued."""
        if (name, hidden) not in self._kernels:
            if hidden not in self._lookups:
                self._lookups[hidden] = self._lookup(self._unit(hidden))
            self._kernels[name, hidden] = self._lookups[hidden](name, self._tiles_together(name, hidden))
        structs.fill(self._call, **arguments)
        self._kernels[name, hidden]()

    @functools.cached_property
    def observation_space(self):
        """Of the whole batch; made when asked for, since its bounds take 8 n bytes per environment on the host."""
        return batch_space(self.single_observation_space, self.num_envs)

    @functools.cached_property
    def action_space(self):
        """Of the whole batch; made when asked for."""
        return batch_space(self.single_action_space, self.num_envs)

    # ---- reset and step ---------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | Sequence[int] | None = None, options: Mapping | None = None):
        """Starts an episode in every environment, or in those of a mask.

        Args:
            seed: starts the noise anew at episode 0; one integer, or one per group. None goes on to the next episode.
            options: the port's reset bounds (CartPole: low, high), which hold until the next full reset, or
                "reset_mask" [B] bool, NumPy or torch; a mask on the device is not read back.

        Returns:
            obs [B, n], info (empty).

        Raises:
            ValueError, TypeError: as Gymnasium's vector environments do, and for a mask beside a seed or bounds.
        """
        mask, seeds, bounds = self._reset_arguments(seed, options, self.port.reset_options)
        if mask is None:
            self._set_bounds(self.port.reset_bounds(bounds))
        self._restart(mask, seeds)
        return self._outputs[0], {}

    def step(self, action):
        """One step of every environment.

        Args:
            action: [B] or [B, 1] on the environment's device, of uint8, int32 or int64, for a Box of float32 or
                float64; NumPy arrays on the cpu.

        Returns:
            obs [B, n] float32, reward [B] float32, terminated [B] bool, truncated [B] bool, and info: final_obs
            [B, n], episode_return [B] float32, episode_length [B] int32, valid where `_final_obs` [B] is set and
            otherwise those of the row's previous episode; with NEXT_STEP also is_reset [B].

        Raises:
            ValueError: wrong shape, type or device; where actions are checked, environment and value of the first
                action outside the space, and with DISABLED the first environment that needs a reset.
            ResetNeeded: before the first reset.
            ClosedEnvironmentError: after `close()`.
        """
        if not self._started:
            self._require_started("the first step()")
        action = self._actions.take(action)
        if self._check:
            self._actions.require_inside(action, self._outside)
            self._require_unended()
        self._call.input = action.data_ptr()
        self._steps[action.dtype]()
        return *self._outputs, dict(self._info)

    # ---- policies and many steps at once ----------------------------------------------------------------------------

    def random_actions(self, steps: int = 1) -> torch.Tensor:
        """The documented random policy's actions for the next steps, a fresh tensor [steps, B], uint8 (Box: float32).

        Only stepping moves the policy's clock: asked twice, it answers the same.
        """
        shape = (integer("steps", steps, 1, 2**31 - 1), self.num_envs)
        actions = torch.empty(shape, dtype=self._actions.stored_type, device=self.device)
        self._run("random_actions", steps=steps, actions=actions)
        return actions

    def actor(self, policy: "str | Linear") -> Callable[[torch.Tensor], torch.Tensor]:
        """A policy as a function from obs [B, n] to actions [B], in torch operations on this device.

        Raises:
            ValueError: an unknown policy, or weights of the wrong shape or not finite.
        """
        return rollouts.actor(self, policy)

    def rollout(
        self, steps: int, policy: "str | Linear | MLP" = "random", store: str = "statistics", obs_dtype: str = "float32"
    ) -> dict[str, torch.Tensor]:
        """K steps in one launch with the state in registers; the batch is left as K calls of `step` would leave it.

        One exception: info rows of episodes that ended before the last step are not written.

        Args:
            steps: K, at least 1.
            policy: "random", a `Linear` or an `MLP`.
            store: "statistics" (see `statistics`), or "trajectory".
            obs_dtype: of a trajectory's observations, "float32" or "bfloat16"; the policy sees them rounded.

        Returns:
            Nothing for statistics; for a trajectory its buffers, overwritten by the next rollout of equal K: obs
            [K, B, n] as the policy saw them, action [K, B] as the policy chose it (uint8, Box: float32), reward [K, B]
            float32, terminated and truncated [K, B] bool. With an MLP also log_prob [K, B], and where it has a critic
            value [K + 1, B] and bootstrap [K, B]: the value of the last observation of an episode that was truncated
            and not terminated, else 0; all float32.

        Raises:
            ValueError: not SAME_STEP, an unknown policy, store or obs_dtype, or a policy that does not fit.
            MemoryError: the trajectory does not fit.
        """
        self._require_started("a rollout")
        return rollouts.run(self, steps, policy, store, obs_dtype)

    def rollout_buffers(
        self, steps: int, policy: "str | Linear | MLP" = "random", obs_dtype: str = "float32"
    ) -> dict[str, torch.Tensor]:
        """The buffers that `rollout` of a trajectory returns, before anything was rolled out: not a step is made.

        Every roll-out of as many steps, the same kind of policy and the same obs_dtype fills them; one of another form
        lets them go and has its own.

        Raises:
            ValueError: steps, policy or obs_dtype as for `rollout`.
            MemoryError: the trajectory does not fit.
        """
        return rollouts.buffers(self, steps, policy, obs_dtype)

    def trajectory_layout(
        self, steps: int, policy: "str | Linear | MLP" = "random", obs_dtype: str = "float32"
    ) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every buffer that `rollout` with store="trajectory" returns; nothing is allocated."""
        return rollouts.layout(self, steps, policy, obs_dtype)

    def render(self, indices: Sequence[int] | int | None = None) -> list[np.ndarray]:
        """Pictures of environments as Gymnasium draws them; the batch is only read.

        Args:
            indices: which environments; None is all.

        Returns:
            One uint8 array [height, width, 3] per environment.

        Raises:
            ImportError: Gymnasium or pygame is not installed.
            ValueError: an index outside the batch.
        """
        from .render import frames  # what it needs is not needed to step

        self._require_started("render()")
        return frames(self, indices)

    # ---- statistics and state ---------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of everything the future depends on; `set_state` of it continues bit for bit.

        Returns:
            state [B, k], elapsed int32, episode int64, terminated, truncated [B], the info rows final_obs [B, n],
            episode_return and episode_length [B], running_return [B] where kept, bounds, and the integers t (batched
            steps since the seed) and seed (one per group).
        """
        return batch_state.take(self)

    def states(self, indices: Sequence[int]) -> torch.Tensor:
        """Copies of the state [len(indices), k] of some environments."""
        return self._buffers["state"].t()[indices]

    def set_state(self, state: Mapping, mask=None):
        """Restores what `state()` gave, or the keys present; on an error nothing has changed.

        Args:
            state: arrays as `state()` returns them; rows [B, ...] on any device.
            mask: [B] bool; other environments keep every bit. Not with seed, t or bounds.

        Raises:
            ValueError: an unknown key, a wrong shape, a state or bounds the kernel is not written for, elapsed outside
                0 .. limit-1 for a running episode or 0 .. limit for one that has ended.
        """
        self._require_open()
        batch_state.put(self, state, None if mask is None else self._mask(mask, "set_state: mask"))
        self._run("observe")
        self._started = True

    def _set_bounds(self, bounds: tuple[float, ...]):
        """Writes the reset bounds, and notes whether no episode from them can be shorter than the fetch-ahead."""
        standard = bounds == self.port.reset_bounds({}) and self.params == self.port.params()
        enough = min(self.port.shortest_episode, self.max_episode_steps) >= FETCH_EVERY
        self._call.default_bounds = int(standard and enough)
        self._buffers["bounds"].copy_(torch.tensor(bounds, dtype=self._buffers["bounds"].dtype))
