"""The batched environment: Gymnasium's vector conventions on tensors that never leave their device.

Every output of `step` is the environment's own buffer, overwritten by the next step: `.clone()` what must be kept.
"""

import dataclasses
import functools
import gc
import inspect
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from lockstep.reading import nearest

from ..checks import choice, find_device, integer, require_memory
from ..kernels import structs
from ..policies import MLP, Linear
from .actions import Actions, name_of
from .buffers import BANKS, Buffers
from .launch import Form, Kernels
from .port import MODES, Port, shape_of_policy
from .rollout import Rollouts
from .state import States, array

FETCH_EVERY = 8  # as in tile.cuh: steps between fetches of reset numbers in a fused rollout
WHOLE = ("bounds", "clock", "seed")  # keys of a state that belong to the whole batch,
WORLD = ("params", "pool", "autoreset_mode")  # and whose state it is; compared, not written


class Graph:
    """A CUDA graph of `steps` times policy and step on the environment's own buffers, which it keeps alive."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", steps: int, keep: tuple):
        self.steps = steps
        self._graph = graph
        self._keep = keep

    def replay(self):
        """Runs it on torch's current stream."""
        self._graph.replay()


class BatchedEnv(VectorEnv):
    """B environments of one port on one device. A stands for agents, whose axis is there where a port names them.

    Args:
        port: what the environment's `port.py` declares.
        folder: that folder, which holds `kernel.cuh`.
        num_envs: B, at least 1.
        device: "cpu", "cuda" or "cuda:<index>".
        seed: 0 .. 2^64-1, or one per group.
        autoreset_mode: an `AutoresetMode` or its value: "SameStep", "NextStep", "Disabled".
        dtype: of the state, "float32" or "float64". Observations and rewards are float32 in both.
        obs: "copy" writes rows [B, n]; "view" is the transposed state itself, which must not be written to.
        action_dtype: the one torch dtype to accept; None accepts uint8, int32 and int64, of a Box float32 and float64.
            Where several lanes hold an environment there is one: int32, of a Box float32.
        max_episode_steps: steps after which an episode is truncated; None is the port's horizon.
        groups: number of equal parts of the batch, each with a seed and noise indices of its own.
        first_index: noise index of each group's environment 0, so that a batch can be split over processes.
        arrays: "torch", or "numpy" (cpu only): reset and step return zero-copy views of the same buffers.
        threads: of the CPU; None is one in small batches (below 16,384 environments, of several lanes 64), else all.
        check_actions: raise on an action outside the space; None is True on the cpu, False on cuda (it synchronises).
        chunk: environments per launch, where several lanes hold one; None is all of them.
        trace: keep what happened in the last step, where the port declares a record.
        render_mode: None or "rgb_array", for Gymnasium's wrappers; `render` works in both.
        preset: a named set of parameters.
        **params: single parameters, compile-time constants of the kernel, and the port's own options.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        MemoryError: B environments do not fit; says how many would.
        lockstep.envs.kernels.compile.CompilerError: no C++ compiler (cpu).
    """

    num_envs: int
    _started = False

    @torch.inference_mode(False)  # under which buffers would be made that nobody may change outside of it
    def __init__(
        self,
        port: Port,
        folder: Path,
        num_envs: int,
        device: str | torch.device = "cpu",
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
        chunk: int | None = None,
        trace: bool = False,
        render_mode: str | None = None,
        preset: str | None = None,
        **params: Any,
    ):
        self.name, self.port, self._folder, self._decode = folder.name, port, folder, port.decode
        self.num_envs = B = integer("num_envs", num_envs, 1, 2**31 - 1)
        self.device = find_device(device)
        self.dtype = choice("dtype", dtype, ("float32", "float64"))
        mode = choice("autoreset_mode", getattr(autoreset_mode, "value", autoreset_mode), MODES)
        self.autoreset_mode = AutoresetMode(mode)
        choice("check_actions", check_actions, (None, True, False))
        self.checked = self.device.type == "cpu" if check_actions is None else check_actions
        self.groups = integer("groups", groups, 1, B)
        if B % self.groups:
            raise ValueError(f"num_envs={num_envs} must be divisible by groups={groups}")
        self.group_size = B // self.groups
        self.first_index = integer("first_index", first_index, 0, 2**32 - self.group_size)
        for one in dataclasses.fields(port.params):
            if one.name in OPTIONS:
                raise ValueError(f"{port.title}: the parameter {one.name!r} is an option of every batch; rename it")
        own = {name: params.pop(name) for name in port.own_options if name in params}
        self._world = port.world(port, preset, params, **own)
        port.check(self._world)
        self.params = self._world.params
        self.lanes = self._lanes()
        self.threads = Form.default_threads(B, self.lanes) if threads is None else integer("threads", threads, 1, 1024)
        limit = port.of("horizon", self.params) if max_episode_steps is None else max_episode_steps
        self.max_episode_steps = integer("max_episode_steps", limit, 1, 2**31 - 1)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": ["rgb_array"] if port.render else []}
        self.render_mode = choice("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self._view = choice("obs", obs, ("copy", "view")) == "view"
        if self._view and self.dtype == "float64":
            raise ValueError("obs='view' needs dtype='float32': observations are float32")
        if self._view and not port.observes_state:
            raise ValueError(f"obs='view' needs observations that are the state; those of {port.title} are not")
        self._numpy = choice("arrays", arrays, ("torch", "numpy")) == "numpy"
        if self._numpy and self.device.type != "cpu":
            raise ValueError("arrays='numpy' needs device='cpu'")
        self.chunk = B if chunk is None else min(integer("chunk", chunk, 1, 2**31 - 1), B)
        if self.chunk < B and self.lanes == 1:
            raise ValueError(f"chunk={chunk}: environments of {port.title} are launched together")
        self.trace = choice("trace", trace, (True, False))
        if trace and not port.of("record", self.params):
            raise ValueError(f"trace=True: {port.title} keeps no record of its steps")
        seeds = self._seeds(seed)

        self.single_observation_space = port.of("observation", self.params)
        self.single_action_space = space = port.action_of(self._world)
        self.policy_shape = shape_of_policy(space, self.single_observation_space)
        self.metrics = port.metrics_of(self._world)  # shapes by name, as the next two
        self.flags, self.amounts = self._world.flags, self._world.amounts
        self.phases = port.phases_of(self._world)
        self.agents = port.agents_of(self.params)
        self.num_agents, self._rows = max(len(self.agents), 1), port.rows_of(self.agents)
        self._apart = port.apart(self.agents)
        self.actions = Actions(space, B, len(self.agents), self.lanes > 1, self.device, action_dtype)
        self._allocate()
        self._load()
        self._present()
        # A circle would keep the buffers until a collection.
        self._rollouts = Rollouts(weakref.proxy(self), self._run, self._kernels.text)
        self._set_bounds(port.reset_bounds({}))
        self._restart(None, seeds)
        self._started = False  # the first reset keeps episode 0
        self._show(self._world.shown)

    # ---- construction -----------------------------------------------------------------------------------------------

    def _show(self, shown: Mapping[str, Any]):
        """Makes attributes of what the port's world shows."""
        for name in shown:
            if hasattr(self, name):
                raise ValueError(f"{self.port.title}: world.shown: {name!r} is an attribute of every batch")
        self.__dict__.update(shown)

    def _lanes(self) -> int:
        return self.port.of("lanes", self.params)

    def _allocate(self):
        waits = self.autoreset_mode == AutoresetMode.NEXT_STEP
        kept = {"view": self._view, "is_reset": waits, "record": self.trace}
        self._form = Form(self.device, self.num_envs, self.groups, self.lanes, self.chunk, self.threads)
        self._buffers = Buffers(self._form, self.port, self._world, self.dtype, self.max_episode_steps, **kept)
        of_action = self.actions.stored_type.itemsize if self.lanes > 1 else self.actions.types[0].itemsize
        self.bytes_per_env = self._buffers.bytes_per_env
        self.bytes_per_step = self._buffers.bytes_per_step + self.actions.per_env * of_action
        self.bytes_per_scenario = self._buffers.bytes_of_tables // max(self._world.scenarios, 1)

    def _load(self):
        form = self._form
        choices = {
            "mode": self.autoreset_mode.value,
            "dtype": self.dtype,
            "limit": self.max_episode_steps,
            "tile": form.tile,
            "view": self._view,
            "trace": self.trace,
            "lanes": self.lanes,
        }
        self._kernels = Kernels(
            form,
            functools.partial(self.port.unit, self._folder, self._world, **choices),
            self.policy_shape,
            self._buffers.tables,
            **self._buffers,
            num_envs=self.num_envs,
            group_size=self.group_size,
            tiles_per_group=form.tiles // self.groups,
            tiles=form.tiles,
            first_index=self.first_index,
            scenarios=self._world.scenarios,
        )
        self._call, self._run = self._kernels.call, self._kernels.run
        self._steps = {dtype: self._in_phases(self._kernels.find(self._step_of(dtype))) for dtype in self.actions.types}
        checked_here = self.checked and self.device.type == "cpu"
        self._outside = self._kernels.validators(self.actions.types) if checked_here else {}

    def _step_of(self, dtype: torch.dtype) -> str:
        return "step" if self.lanes > 1 else f"step_{name_of(dtype)}"

    def _in_phases(self, step: Callable) -> Callable:
        """The step after the phases before it, which are kernels by name or functions of the batch.

        Kernels leave an episode that has ended alone; a function that they share must give the same again there.
        """
        env = weakref.proxy(self)
        phases = [
            functools.partial(phase, env) if callable(phase) else self._kernels.find(phase)
            for phase in self.phases[:-1]
        ]

        @torch.no_grad()
        def run():
            for phase in (*phases, step):
                phase()

        return run if phases else step

    def memory(self) -> dict[str, int]:
        """Bytes by part: state, observations, record, outputs, tables, and scratch (of one block or thread)."""
        return self._buffers.memory | {"scratch": self._kernels.scratch_bytes}

    def _present(self):
        """The outputs of `step`, made once, and the rows of `state`."""
        buffers, port = self._buffers, self.port
        obs = self._shown(buffers["state"].T) if self._view else self._of_agents(buffers["obs"])
        self._outputs = (obs, *(self._of_agents(buffers[name]) for name in ("reward", "terminated", "truncated")))
        info = {name: buffers[name] for name in ("episode_return", "episode_length")} | {"_final_obs": buffers["ended"]}
        if self.agents:
            everybody = torch.ones((self.num_envs, self.num_agents), dtype=torch.bool, device=self.device)
            info["active"] = buffers["active"] if self._apart else everybody
        for bank, shapes in (("metrics", self.metrics), ("flags", self.flags), ("amounts", self.amounts)):
            parts = buffers[bank].split([math.prod(shape) for shape in shapes.values()], dim=1)
            for (name, shape), part in zip(shapes.items(), parts, strict=True):
                info[name] = part.unflatten(1, shape) if shape else part[:, 0]
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            info["is_reset"] = buffers["is_reset"]
        self._info = {"final_obs": self._of_agents(buffers["final_obs"])}
        self._info |= {name: self._shown(rows) for name, rows in info.items()}
        per_env = {bank: buffers[bank] if self.lanes > 1 else buffers[bank].t() for bank in BANKS.values()}
        rest = ("elapsed", "episode", "scenario", "terminated", "truncated", "running_return", "active")
        rest += (*(["ended"] if self._apart else []), "final_obs", "episode_return", "episode_length")
        per_env |= {name: buffers[name] for name in rest}
        self._states = States(
            {name: rows for name, rows in per_env.items() if rows.numel()},
            port.of("state", self.params),
            {"elapsed": self.max_episode_steps, "scenario": self._world.scenarios - 1, "episode": 2**32 - 1},
            self.autoreset_mode == AutoresetMode.SAME_STEP,
            port.absent,
        )

    def _shown(self, tensor: torch.Tensor):
        return tensor.numpy() if self._numpy else tensor

    def _of_agents(self, rows: torch.Tensor):
        """Rows [B, ...] as agents see them, [B, A, ...]; where they share one, without copies."""
        shared = self.agents and self._rows == 1
        several = rows[:, None].expand(-1, self.num_agents, *rows.shape[1:]) if shared else rows
        return self._shown(several)

    @functools.cached_property
    def observation_space(self):
        """Of the whole batch; made when asked for, since its bounds take 8 n bytes per environment on the host."""
        return self._space_of_all(self.single_observation_space)

    @functools.cached_property
    def action_space(self):
        """Of the whole batch; made when asked for."""
        return self._space_of_all(self.single_action_space)

    def _space_of_all(self, space):
        return batch_space(batch_space(space, self.num_agents) if self.agents else space, self.num_envs)

    def __reduce__(self):
        raise TypeError(
            f"a batch of {self.name} is made of buffers and compiled kernels of its process and cannot be pickled or "
            "copied: call envs.make(...) in the process that needs it, and hand it state() for set_state()"
        )

    def close(self, **kwargs):
        """Ends the use of the batch; its tensors stay for whoever holds them."""
        super().close(**kwargs)
        self._started = False

    # ---- reset and step ---------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping | None = None
    ) -> tuple[torch.Tensor, dict]:
        """Starts an episode in every environment, or in those of a mask.

        Args:
            seed: starts the noise anew at episode 0, and whatever lasts longer than an episode; one integer, or one per
                group. None goes on to the next episode.
            options: the port's reset bounds, which hold until the next full reset, or
                "reset_mask" [B] bool, NumPy or torch; a mask on the device is not read back.

        Returns:
            obs [B, n] or [B, A, n], info: with agents active [B, A].

        Raises:
            ValueError, TypeError: as Gymnasium's vector environments do, and for a mask beside a seed or bounds.
        """
        mask, seeds, bounds = self._reset_arguments(seed, options)
        if mask is None:
            self._set_bounds(self.port.reset_bounds(bounds))
        self._restart(mask, seeds)
        return self._outputs[0], {"active": self._info["active"]} if self.agents else {}

    def step(
        self, action: torch.Tensor | np.ndarray | Mapping
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        """One step of every environment.

        Args:
            action: [B], [B, n], [B, A] or [B, A, n] on the environment's device, of a dtype in `actions.types`; NumPy
                arrays on the cpu; or a mapping, where the environment has a form of its own.

        Returns:
            obs [B, n] float32, reward [B] float32, terminated [B] bool, truncated [B] bool, with agents [B, A, ...],
            and info: final_obs like obs, episode_return [B] float32 (the agents' mean), episode_length [B] int32, valid
            where `_final_obs` [B] is set and otherwise those of the row's previous episode; with agents active [B, A],
            who plays on; the port's metrics, flags and amounts [B, ...]; with NEXT_STEP also is_reset [B].

        Raises:
            ValueError: wrong shape, type or device; where actions are checked, place and value of the first number
                outside the space, and with DISABLED the first environment that needs a reset.
            ResetNeeded: before the first reset.
            ClosedEnvironmentError: after `close()`.
        """
        if not self._started:
            self._require_started("the first step()")
        if self._decode and isinstance(action, Mapping):
            given = self._decode(self, action)
            if self.checked:
                self._require_unended()
            structs.fill(self._call, input=0, **given)
            self._steps[self.actions.types[0]]()
            return *self._outputs, dict(self._info)
        action = self.actions.take(action)
        if self.checked:
            self.actions.require_inside(action, self._outside, self._buffers["active"] if self._apart else None)
            self._require_unended()
        self._call.input = action.data_ptr()
        self._steps[action.dtype]()
        return *self._outputs, dict(self._info)

    def _reset_arguments(self, seed, options: Mapping | None):
        """A mask [B] on the device or None, seeds to begin anew with or None, and the other options, checked."""
        self._require_open()
        if not isinstance(options, Mapping | None):
            raise TypeError(f"options must be a mapping, got {type(options).__name__}")
        options, known = dict(options or {}), self.port.reset_options
        mask = options.pop("reset_mask", None)
        for key in options:
            if key not in known:
                raise ValueError(f"unknown reset option {key!r}{nearest(key, (*known, 'reset_mask'))}")
        if mask is None:
            first = None if self._started else [int(s) for s in self._buffers["seeds"].cpu().numpy()]
            return None, first if seed is None else self._seeds(seed), options
        if seed is not None or options:
            other = "a seed or with reset bounds" if known else "a seed"
            raise ValueError(f"options['reset_mask'] cannot be combined with {other}")
        self._require_started("a masked reset")
        return self._mask(mask, "options['reset_mask']"), None, options

    def _restart(self, mask: torch.Tensor | None, seeds: Sequence[int] | None):
        """Starts an episode in the environments of a mask, or in all; with seeds the noise anew."""
        if seeds is not None:
            self._set_seeds(seeds)
            self._buffers["clock"].zero_()
        self._run("reset", input=0 if mask is None else mask, fresh=int(seeds is not None))
        self._started = True

    def _set_seeds(self, seeds: Sequence[int]):
        self._buffers["seeds"].copy_(torch.from_numpy(np.array(seeds, dtype=np.uint64)))

    def _seeds(self, seed, name: str = "seed") -> list[int]:
        several = isinstance(seed, Sequence) or (isinstance(seed, np.ndarray) and seed.ndim > 0)
        seeds = list(seed) if several else [seed] * self.groups
        if len(seeds) != self.groups:
            raise ValueError(f"{name} has {len(seeds)} values; groups={self.groups} needs one, or one for each group")
        return [integer(name, value, 0, 2**64 - 1) for value in seeds]

    def _set_bounds(self, bounds: tuple[float, ...]):
        """Writes the reset bounds, and notes whether no episode from them can be shorter than the fetch-ahead."""
        self._bounds = bounds
        standard = bounds == self.port.reset_bounds({}) and self.params == self.port.make_params(None, {})
        enough = min(self.port.shortest_episode, self.max_episode_steps) >= FETCH_EVERY
        self._call.default_bounds = int(standard and enough)
        self._buffers["bounds"].copy_(torch.tensor(bounds, dtype=self._buffers["bounds"].dtype, device="cpu"))

    def _mask(self, mask, name: str) -> torch.Tensor:
        """A bool tensor [B] on the device; a host mask is validated as Gymnasium does."""
        if not isinstance(mask, np.ndarray | torch.Tensor):
            raise TypeError(f"{name} must be a NumPy or torch array, got {type(mask).__name__}")
        if mask.dtype not in (np.bool_, torch.bool):
            raise TypeError(f"{name} must have dtype bool, got {mask.dtype}")
        if tuple(mask.shape) != (self.num_envs,):
            raise ValueError(f"{name} must have shape ({self.num_envs},), got {tuple(mask.shape)}")
        host = isinstance(mask, np.ndarray) or mask.device.type == "cpu"
        if host and not mask.any():
            raise ValueError(f"{name} must contain at least one True value")
        tensor = torch.from_numpy(np.array(mask)) if isinstance(mask, np.ndarray) else mask.contiguous()
        return tensor.to(self.device)

    def _require_open(self):
        if self.closed:
            raise ClosedEnvironmentError(f"this batch of {self.name} is closed; make another with envs.make")

    def _require_started(self, what: str):
        self._require_open()
        if not self._started:
            raise ResetNeeded(f"call reset() before {what}")

    def _require_unended(self):
        """With autoreset disabled, where actions are checked: nothing that has ended is stepped."""
        if self.autoreset_mode == AutoresetMode.DISABLED and self._buffers["ended"].any():
            first = int(self._buffers["ended"].nonzero()[0])
            raise ValueError(
                f"environment {first} has ended; with autoreset disabled it needs reset(options={{'reset_mask': ...}})"
            )

    # ---- policies and many steps at once ----------------------------------------------------------------------------

    def random_actions(self, steps: int = 1) -> torch.Tensor:
        """The documented random policy's actions for the next steps, a fresh tensor [steps, B], [steps, B, n],
        [steps, B, A] or [steps, B, A, n] of uint8 (several lanes: int32), of a Box float32.

        Only stepping moves the policy's clock: asked twice, it answers the same.
        """
        shape = (integer("steps", steps, 1, 2**31 - 1), *self.actions.shape)
        size = math.prod(shape) * self.actions.stored_type.itemsize
        require_memory(size, self.device, "random actions of steps", steps)
        actions = torch.empty(shape, dtype=self.actions.stored_type, device=self.device)
        self._run("random_actions", steps=steps, actions=actions)
        return actions

    def actor(self, policy: "str | Linear") -> Callable[[torch.Tensor], torch.Tensor]:
        """A policy as a function from obs [B, n] to actions [B], in torch operations on this device.

        Raises:
            ValueError: an unknown policy, or weights of the wrong shape or not finite.
        """
        return self._rollouts.actor(policy, self)

    def rollout(
        self, steps: int, policy: "str | Linear | MLP" = "random", store: str = "statistics", obs_dtype: str = "float32"
    ) -> dict[str, torch.Tensor]:
        """K steps in one launch with the state in registers; the batch is left as K calls of `step` would leave it.

        One exception: info rows of episodes that ended before the last step are not written. A port with phases makes
        the steps one by one.

        Args:
            steps: K, at least 1.
            policy: "random", a `Linear` or an `MLP`; the random one alone where several lanes hold an environment or an
                action has several numbers.
            store: "statistics" (see `statistics`), or "trajectory", where one lane holds an environment.
            obs_dtype: of a trajectory's observations, "float32" or "bfloat16"; the policy sees them rounded.

        Returns:
            Nothing for statistics; for a trajectory its buffers, overwritten by the next rollout of equal K: obs
            [K, B, n] as the policy saw them, action [K, B] or [K, B, n] as the policy chose it (uint8, Box: float32),
            reward [K, B] float32, terminated and truncated [K, B] bool. With an MLP also log_prob [K, B], and where it
            has a critic value [K + 1, B] and bootstrap [K, B]: the value of the last observation of an episode that was
            truncated and not terminated, else 0; all float32.

        Raises:
            ValueError: not SAME_STEP, an unknown policy, store or obs_dtype, or a policy that does not fit.
            MemoryError: the trajectory does not fit.
        """
        self._require_started("a rollout")
        integer("steps", steps, 1, 2**31 - 1)
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"rollout needs autoreset_mode='SameStep', not {self.autoreset_mode.value!r}")
        return self._rollouts.roll(steps, policy, store, obs_dtype)

    def carries(self, hidden: int) -> bool:
        """Tells that roll-outs carry an `MLP` of this width; with others, `step` is called with what they choose.

        On a GPU its numbers, and those of its critic, must find room in the shared memory of a block.
        """
        return self._rollouts.carries(hidden)

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
        return self._rollouts.buffers(steps, policy, obs_dtype)

    def trajectory_layout(
        self, steps: int, policy: "str | Linear | MLP" = "random", obs_dtype: str = "float32"
    ) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every buffer that `rollout` with store="trajectory" returns; nothing is allocated."""
        return self._rollouts.layout(steps, policy, obs_dtype)

    def graph(self, policy: "str | Callable" = "random", steps: int = 1) -> Graph:
        """Captures `steps` times policy and step in a CUDA graph on the environment's buffers.

        Args:
            policy: "random", or a function from observations to actions that never synchronises.
            steps: steps per replay.

        Returns:
            A `Graph`; `replay()` runs it on torch's current stream.

        Raises:
            ValueError: not on CUDA, actions are checked (a check synchronises), or a step waits for the host.
        """
        self._require_started("capturing a graph")
        steps = integer("steps", steps, 1, 2**31 - 1)
        if self.device.type != "cuda":
            raise ValueError(f"a CUDA graph needs device='cuda'; this environment is on {self.device}")
        if self.checked:
            raise ValueError("a CUDA graph needs check_actions=False: a check synchronises with the host")
        if self._world.waits:
            raise ValueError(
                f"a CUDA graph needs steps on the device alone: with {self._world.waits} they wait for the host"
            )
        if policy != "random" and not callable(policy):
            raise ValueError(f"policy={policy!r} must be 'random' or a function from obs to actions")

        def run():
            actions = self.random_actions(steps) if policy == "random" else None
            for k in range(steps):
                self.step(actions[k] if policy == "random" else policy(self._outputs[0]))

        before = {name: buffer.clone() for name, buffer in self._buffers.items()}
        gc.collect()  # or a dead graph's memory may be freed in the midst of the capture, which would end it
        try:
            with torch.cuda.device(self.device):
                graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    run()  # compiles and allocates what the capture must not
                torch.cuda.current_stream().wait_stream(stream)
                with torch.cuda.graph(graph, stream=stream):  # torch's own stream may be another device's
                    run()
        finally:
            for name, buffer in self._buffers.items():
                buffer.copy_(before[name])  # the warm-up leaves no trace
        return Graph(graph, steps, (self, policy))

    def render(self, indices: Sequence[int] | int | None = None) -> list[np.ndarray]:
        """Pictures of environments as the original draws them; the batch is only read.

        Args:
            indices: which environments; None is all.

        Returns:
            One uint8 array [height, width, 3] per environment.

        Raises:
            NotImplementedError: the environment has no pictures.
            ImportError: what draws them is not installed.
            ValueError: an index outside the batch.
        """
        if self.port.render is None:
            raise NotImplementedError(f"{self.name} has no pictures")
        self._require_started("render()")
        return self.port.render(self, indices)

    # ---- statistics and state ---------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, torch.Tensor]:
        """Episodes that ended since the last call: their number, and mean, minimum and maximum of return and length.

        A return is that of one agent, or the mean of several agents'.

        Returns:
            0-d float64 tensors on the device (NaN without an episode): episodes, and return_ and length_ mean, min,
            max. Sums are of integers (returns in units of 2^-20), so they repeat bit for bit; the mean is NaN
            where unchecked actions made returns too large for such a sum, or NaN, which count as the largest.
        """
        return self._buffers.statistics()

    def fields(self) -> dict[str, torch.Tensor]:
        """Every field of the state by its name, as a view [B, ...] of it."""
        return self._states.fields

    def state(self) -> dict:
        """A copy of everything the future depends on; `set_state` of it continues bit for bit.

        Returns:
            state [B, k] (fields of the batch's dtype; of others doubles and integers), elapsed int32, episode int64,
            scenario, terminated, truncated, with agents that end by themselves active [B, A] and ended [B], the info
            rows final_obs, episode_return and episode_length, running_return where kept, bounds, the integer clock
            (batched steps since the seed) and seed (one per group); also params, a dict, pool and autoreset_mode,
            by which `set_state` sees a batch of other parameters or scenarios, or one that resets otherwise.
        """
        found = self._states.take()
        if self._bounds:
            found["bounds"] = list(self._bounds)
        found["clock"] = int(self._buffers["clock"][0])
        found["seed"] = [int(s) for s in self._buffers["seeds"].cpu().numpy()]
        found["params"] = dataclasses.asdict(self.params)
        found["autoreset_mode"] = self.autoreset_mode.value
        return found | ({"pool": self._buffers.pool} if self._buffers.tables else {})

    def set_state(self, state: Mapping, mask=None):
        """Restores what `state()` gave, or the keys present; on an error nothing has changed.

        Args:
            state: arrays as `state()` returns them, and single fields of the state by their names; rows [B, ...] on any
                device, or one environment's, which all get.
            mask: [B] bool; other environments keep every bit. Not with seed, clock or bounds.

        Raises:
            ValueError: an unknown key, a wrong shape, a state or bounds the kernel is not written for, elapsed outside
                0 .. limit-1 for a running episode or 0 .. limit for one that has ended, params or pool of another batch
                than this one, or an episode that has ended under another autoreset_mode; states without these three
                keys are taken from any.
        """
        self._require_open()
        rows = None if mask is None else self._mask(mask, "set_state: mask")
        found = self._states.check(self._without_world(state), WHOLE, WORLD, rows)
        self._require_alike_after_ends(state, found, rows)
        self._states.require_unfinished(found, rows)
        bounds = None
        if "bounds" in state:
            given = array("bounds", state["bounds"], (len(self.port.reset_options),)).tolist()
            try:
                bounds = self.port.reset_bounds(dict(zip(self.port.reset_options, given, strict=True)))
            except ValueError as error:
                raise ValueError(f"set_state: bounds={given!r}: {error}") from None
        seeds = self._seeds(state["seed"], "set_state: seed") if "seed" in state else None
        clock = integer("set_state: clock", state["clock"], 0, 2**62) if "clock" in state else None

        self._states.write(found, rows)
        if not self._apart:
            self._buffers["ended"].copy_(self._buffers["terminated"] | self._buffers["truncated"])
        if bounds is not None:
            self._set_bounds(bounds)
        if seeds is not None:
            self._set_seeds(seeds)
        if clock is not None:
            self._buffers["clock"].fill_(clock)
        self._run("observe")
        self._started = True

    def _without_world(self, state):
        """A state less its params and pool, which are this batch's; ValueError where they are another's."""
        if not isinstance(state, Mapping):
            return state
        own, found = dataclasses.asdict(self.params), state.get("params", {})
        if not isinstance(found, Mapping):
            raise ValueError(f"set_state: params must be a mapping of names to values, got {type(found).__name__}")
        for name, value in found.items():
            if name not in own or own[name] != value:
                here = f"has {own[name]!r}" if name in own else "has no such parameter"
                raise ValueError(
                    f"set_state: the state is of a batch with {name}={value!r}, this one {here}; without the key "
                    "'params' it is taken all the same"
                )
        if "pool" in state and (not self._buffers.tables or state["pool"] != self._buffers.pool):
            number = f"the {self._world.scenarios}" if self._world.scenarios else "those"
            own = f"{number} of this one (pool={self._buffers.pool!r})"
            own = own if self._buffers.tables else "this one, which has none"
            raise ValueError(
                f"set_state: the state is of a batch with other scenarios (pool={state['pool']!r:.40}) than {own}; "
                "without the key 'pool' it is taken all the same"
            )
        return {key: value for key, value in state.items() if key not in WORLD}

    def _require_alike_after_ends(self, state: Mapping, found: Mapping[str, torch.Tensor], mask: torch.Tensor | None):
        """Raises ValueError where an episode has ended in a state of another autoreset mode."""
        own = self.autoreset_mode.value
        mode = choice("set_state: autoreset_mode", state.get("autoreset_mode", own), MODES)
        if mode == own:
            return
        over = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        for name in ["ended"] if self._apart else ["terminated", "truncated"]:
            over |= found.get(name, over)
        over = over if mask is None else over & mask
        if over.any():
            raise ValueError(
                f"set_state: environment {int(over.nonzero()[0])} has ended in the state of a batch with "
                f"autoreset_mode={mode!r}, after which this one, {own!r}, would go on in another way; reset such "
                "environments before state(), or leave the key 'autoreset_mode' out"
            )


OPTIONS = frozenset(inspect.signature(BatchedEnv).parameters) - {"port", "folder", "params"}  # of every batch
