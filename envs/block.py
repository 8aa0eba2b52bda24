"""Batches of environments that are too large for a thread: a block of threads each on a GPU, one of a CPU's each there.

`batch.py` is its sibling for small states, whose conventions it keeps: every output of `step` is the environment's own
buffer, overwritten by the next step.
"""

import ctypes
import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np
import torch

from . import block_state, launch
from .block_port import Layout
from .checks import choice, integer
from .kernels import compile, structs
from .spaces import AutoresetMode, Box, batch_space
from .vectorised import Vectorised

LARGEST = float(np.finfo(np.float32).max)
THREADS_FROM = 64  # environments; below, waking a second thread costs more than it saves


class BlockEnv(Vectorised):
    """B environments of one port on one device; a class of its own draws its scenarios and names what is in the rows.

    Args:
        layout: sizes and compile-time choices.
        tables: what the scenarios hold, [scenarios, ...] on the host, by the names of the kernel's `struct Tables`.
        scenarios: of the pool.
        num_envs: B, at least 1.
        device: "cpu", "cuda" or "cuda:<index>".
        seed: 0 .. 2^64-1.
        dtype: of state and arithmetic, "float32" or "float64". Observations and rewards are float32 in both.
        autoreset_mode: an `AutoresetMode` or its value: "SameStep", "NextStep", "Disabled".
        signed: actions lie in [-1, 1] instead of [0, 1].
        trace: keep what happened in the last step, see `record`.
        chunk: environments per launch; None is all of them.
        threads: of the CPU; None is one below 64 environments, else all.
        check_actions: raise on an action outside the space; None is True on the cpu, False on cuda (it synchronises).
        first_index: noise index of environment 0, so that a batch can be split over processes.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        MemoryError: B environments do not fit; says how many would.
        envs.kernels.compile.CompilerError: no C++ compiler (cpu).
    """

    groups = 1

    def __init__(
        self,
        layout: Layout,
        tables: Mapping[str, np.ndarray],
        scenarios: int,
        num_envs: int,
        device="cpu",
        seed: int = 0,
        dtype: str = "float32",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        signed: bool = False,
        trace: bool = False,
        chunk: int | None = None,
        threads: int | None = None,
        check_actions: bool | None = None,
        first_index: int = 0,
    ):
        self.layout, self.sizes = layout, layout.sizes
        self.name, self.params = layout.folder.name, layout.params
        self._configure(num_envs, device, dtype, autoreset_mode, threads, THREADS_FROM, check_actions)
        self.chunk = self.num_envs if chunk is None else min(integer("chunk", chunk, 1, 2**31 - 1), self.num_envs)
        self.first_index = integer("first_index", first_index, 0, 2**32 - self.num_envs)
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self.signed, self.trace = choice("signed", signed, (True, False)), choice("trace", trace, (True, False))
        self.max_episode_steps = layout.limit
        seeds = self._seeds(seed)
        self._low, shape = -1.0 if signed else 0.0, self.sizes.raw[1:]
        self.single_action_space = Box(
            np.full(shape, self._low, np.float32), np.ones(shape, np.float32), dtype=np.float32
        )
        self._action_shape = (self.num_envs, *self.sizes.raw)
        self._allocate(tables, scenarios)
        self._load(scenarios)
        self._present()
        self._restart(None, seeds)
        self._started = False  # the first reset keeps episode 0

    # ---- construction -----------------------------------------------------------------------------------------------

    def _layout(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of every buffer of `struct Batch`."""
        B, sizes, real = self.num_envs, self.sizes, getattr(torch, self.dtype)
        waits = self.autoreset_mode == AutoresetMode.NEXT_STEP
        return {
            "state": ((B, sizes.state), real),
            "obs": ((B, sizes.obs), torch.float32),
            "reward": ((B, sizes.rewards), torch.float32),
            "terminated": ((B,), torch.bool),
            "truncated": ((B,), torch.bool),
            "ended": ((B,), torch.bool),
            "is_reset": ((B if waits else 0,), torch.bool),
            "elapsed": ((B,), torch.int32),
            "episode": ((B,), torch.uint32),
            "scenario": ((B,), torch.int32),
            "running_return": ((B,), torch.float32),
            "final_obs": ((B, sizes.obs), torch.float32),
            "episode_return": ((B,), torch.float32),
            "episode_length": ((B,), torch.int32),
            "metrics": ((B, sizes.metrics), torch.float32),
            "record": ((B, sizes.record if self.trace else 0), real),
            "totals": ((3, B), torch.int64),
            "extremes": ((4, B), torch.float64),
            "clock": ((B,), torch.int64),
            "seeds": ((1,), torch.uint64),
        }

    def _allocate(self, tables: Mapping[str, np.ndarray], scenarios: int):
        of_tables = sum(table.nbytes for table in tables.values())
        sizes = self._make_buffers(self._layout(), of_tables)
        self._tables = {
            name: torch.from_numpy(np.ascontiguousarray(table)).to(self.device) for name, table in tables.items()
        }
        shown = {"obs": "observations", "final_obs": "observations", "state": "state", "record": "record"}
        self._memory = dict.fromkeys(("state", "observations", "record", "outputs"), 0)
        for name, size in sizes.items():
            self._memory[shown.get(name, "outputs")] += size
        self._memory["scenarios"] = of_tables
        self.bytes_per_env = sum(sizes.values()) // self.num_envs
        self.bytes_per_scenario = of_tables // scenarios
        read_and_written = 2 * sizes["state"] + sizes["obs"] + sizes["reward"] + sizes["metrics"] + sizes["record"]
        self.bytes_per_step = read_and_written // self.num_envs + 4 * int(np.prod(self.sizes.raw))

    @functools.cached_property
    def pool(self) -> str:
        """Stands for the scenarios: a hash of the integers that the kernel reads of them, made when first asked for.

        Not of the other numbers: their last bits are those of a machine's linear algebra.
        """
        digest = hashlib.sha256()
        for name, table in sorted(self._tables.items()):
            digest.update(f"{name} {tuple(table.shape)}".encode())
            if not table.is_floating_point():
                digest.update(table.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def memory(self) -> dict[str, int]:
        """Bytes by part: state, observations, record, outputs, scenarios, and scratch (of one block or thread)."""
        return self._memory | {"scratch": self.scratch_bytes}

    def _load(self, scenarios: int):
        text = self.layout.unit(self.dtype, self.autoreset_mode.value, self.signed, self.trace)
        self._batch = structs.struct(
            "Batch",
            text,
            **self._buffers,
            **self._tables,
            num_envs=self.num_envs,
            first_index=self.first_index,
            scenarios=scenarios,
        )
        self._call = structs.struct("Call", text)
        rest = self.num_envs % self.chunk
        self._launches = [(self._lookup(text, self.chunk), range(0, self.num_envs - rest, self.chunk))]
        if rest:
            self._launches.append((self._lookup(text, rest), range(self.num_envs - rest, self.num_envs)[:1]))
        self._kernels: dict[str, list] = {}
        self.scratch_bytes = self._scratch_bytes(text)
        if self.device.type == "cuda":
            most = torch.cuda.get_device_properties(self.device).shared_memory_per_block_optin
            if self.scratch_bytes > most:
                raise MemoryError(
                    f"an environment of these sizes in {self.dtype} needs {self.scratch_bytes:,} bytes of shared "
                    f"memory; a block of {self.device} has {most:,}"
                )
        self._outside = launch.validators(text, (torch.float32, torch.int32)) if self.device.type == "cpu" else {}
        for function, kind in ((f, t) for t, f in self._outside.items()):
            bound = ctypes.c_float if kind == torch.float32 else ctypes.c_int
            function.argtypes = [ctypes.c_void_p, ctypes.c_longlong, bound, bound]

    def _lookup(self, text: str, count: int) -> Callable:
        if self.device.type == "cpu":
            return launch.cpu(text, self._batch, self._call, count, self.threads)
        given = text, self._batch, self._call, count, self.layout.lanes, self.device
        return launch.cuda(*given, scratch="scratch_bytes", without="random_actions")

    def _scratch_bytes(self, text: str) -> int:
        if self.device.type == "cpu":
            size = compile.library(text).scratch_bytes
            size.restype = ctypes.c_longlong
            return size()
        return launch.constant(text, "scratch_bytes", self.device)

    def _run(self, name: str, **arguments):
        """Runs a kernel with the given fields of `struct Call`, chunk by chunk."""
        if name not in self._kernels:
            self._kernels[name] = [(lookup(name), firsts) for lookup, firsts in self._launches]
        structs.fill(self._call, **arguments)
        for kernel, firsts in self._kernels[name]:
            for first in firsts:
                self._call.first = first
                kernel()

    def _present(self):
        """What `step` returns, made once."""
        shown, B, agents = self._buffers, self.num_envs, self.sizes.agents
        self._outputs = (
            self._of_agents(shown["obs"]),
            shown["reward"].expand(B, agents),
            shown["terminated"],
            shown["truncated"],
        )
        self._info = {
            "final_obs": self._of_agents(shown["final_obs"]),
            "episode_return": shown["episode_return"],
            "episode_length": shown["episode_length"],
            "_final_obs": shown["ended"],
            "active": torch.ones((B, agents), dtype=torch.bool, device=self.device),
        }
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._info["is_reset"] = shown["is_reset"]

    def _of_agents(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [B, n] as every agent sees them, [B, agents, n], without copies."""
        return rows[:, None].expand(-1, self.sizes.agents, -1)

    @property
    def observation_space(self):
        """Of [B, agents, n], as `reset` and `step` give them."""
        return batch_space(batch_space(self.single_observation_space, self.num_agents), self.num_envs)

    @property
    def action_space(self):
        """Of [B, agents, n], as `step` takes them."""
        return batch_space(batch_space(self.single_action_space, self.num_agents), self.num_envs)

    def render(self, environments=None):
        raise NotImplementedError(f"{self.name} has no pictures")

    # ---- reset and step ---------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: Mapping | None = None):
        """Starts an episode in every environment, or in those of a mask.

        Args:
            seed: starts the noise anew at episode 0, and whatever lasts longer than an episode; None goes on to the
                next episode.
            options: "reset_mask" [B] bool, NumPy or torch; a mask on the device is not read back.

        Returns:
            obs [B, agents, n], info: active [B, agents].

        Raises:
            ValueError, TypeError: an unknown option, or a mask beside a seed.
        """
        mask, seeds, _ = self._reset_arguments(seed, options)
        self._restart(mask, seeds)
        return self._outputs[0], {"active": self._info["active"]}

    def step(self, action):
        """One step of every environment.

        Args:
            action: [B, agents, A] float32 on the environment's device (NumPy arrays on the cpu); or a mapping of
                "target" int32 and "share" [B, n] float32, which are taken as they are.

        Returns:
            obs [B, agents, n] float32 (the agents share one row), reward [B, agents] float32, terminated [B] and
            truncated [B] bool, and info: final_obs [B, agents, n], episode_return and episode_length [B], valid where
            `_final_obs` [B] is set and otherwise those of the row's previous episode; active [B, agents]; the
            environment's own measures of the step; with NEXT_STEP also is_reset [B].

        Raises:
            ValueError: wrong shape, type or device; where actions are checked, environment, agent, index and value of
                the first number outside the space, and with DISABLED the first environment that needs a reset.
            ResetNeeded: before the first reset.
            ClosedEnvironmentError: after `close()`.
        """
        if not self._started:
            self._require_started("the first step()")
        if isinstance(action, Mapping):
            target, share = self._integers(action)
            if self._check:
                self._require_unended()
            self._call.input, self._call.shares = target.data_ptr(), share.data_ptr()
        else:
            raw = self._tensor("action", action, torch.float32, self._action_shape)
            if self._check:
                self._require_inside("action", raw, self._low, 1.0, ("environment", "agent", "index"))
                self._require_unended()
            self._call.input, self._call.shares = raw.data_ptr(), 0
        self._run("step")
        return *self._outputs, dict(self._info)

    def _integers(self, action: Mapping) -> tuple[torch.Tensor, torch.Tensor]:
        if set(action) != {"target", "share"}:
            raise ValueError(f"an action in integer form has 'target' and 'share', got {', '.join(map(repr, action))}")
        target = self._tensor("target", action["target"], torch.int32, (self.num_envs, *self.sizes.targets))
        share = self._tensor("share", action["share"], torch.float32, (self.num_envs, self.sizes.shares))
        if self._check:
            self._require_inside("target", target, 0, self.target_choices - 1, ("environment", "client", "task"))
            self._require_inside("share", share, 0.0, LARGEST, ("environment", "index"))
        return target, share

    def _tensor(self, name: str, value, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        kind = str(dtype).removeprefix("torch.")
        if self.device.type == "cpu" and isinstance(value, np.ndarray) and value.dtype == np.dtype(kind):
            plain = value.flags.carray  # torch refuses, or warns of, anything else
            value = torch.from_numpy(value if plain else np.array(value))
        if not isinstance(value, torch.Tensor) or value.dtype != dtype:
            found = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"{name} must be a {kind} tensor on {self.device}, got {found}")
        if tuple(value.shape) != tuple(shape):
            raise ValueError(f"{name} has shape {tuple(value.shape)}; allowed: {tuple(shape)}")
        if value.device != self.device:
            raise ValueError(f"{name} is on {value.device}; this environment is on {self.device}")
        return value.contiguous()

    def _require_inside(self, name: str, tensor: torch.Tensor, low, high, axes: tuple[str, ...]):
        if self._outside:
            first = self._outside[tensor.dtype](tensor.data_ptr(), tensor.numel(), low, high)
        else:
            wrong = (~((tensor >= low) & (tensor <= high))).flatten().nonzero()  # NaN is wrong as well
            first = int(wrong[0]) if len(wrong) else -1
        if first >= 0:
            where = ", ".join(f"{a} {int(k)}" for a, k in zip(axes, np.unravel_index(first, tensor.shape), strict=True))
            raise ValueError(f"{name} of {where} is {tensor.flatten()[first].item()}, not in [{low:g}, {high:g}]")

    # ---- many steps at once -----------------------------------------------------------------------------------------

    def random_actions(self, steps: int = 1) -> torch.Tensor:
        """The random policy's actions for the next steps, a fresh tensor [steps, B, agents, A] float32.

        Number k of an environment's raw action is word k mod 4 of Philox(environment, k div 4, clock), so that only
        stepping moves the policy on.
        """
        shape = (integer("steps", steps, 1, 2**31 - 1), *self._action_shape)
        actions = torch.empty(shape, dtype=torch.float32, device=self.device)
        self._run("random_actions", steps=steps, actions=actions)
        return actions

    def rollout(self, steps: int, policy: str = "random") -> dict:
        """K steps of the random policy in one launch; the batch is left as K calls of `step` would leave it.

        One exception: info rows of episodes that ended before the last step are not written; `statistics` counts them.

        Raises:
            ValueError: not SAME_STEP, or another policy.
        """
        self._require_started("a rollout")
        choice("policy", policy, ("random",))
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"rollout needs autoreset_mode='SameStep', not {self.autoreset_mode.value!r}")
        self._run("rollout_random", steps=integer("steps", steps, 1, 2**31 - 1))
        return {}

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of everything the future depends on; `set_state` of it continues bit for bit.

        Returns:
            state [B, k], t, episode, scenario, terminated, truncated [B], running_return [B], the info rows final_obs
            [B, n], episode_return and episode_length [B], and the integers clock (steps since the seed) and seed;
            also params, a dict, and pool, by which `set_state` sees a batch of other parameters or scenarios.
        """
        return block_state.take(self)

    def set_state(self, state: Mapping, mask=None):
        """Restores what `state()` gave, or the keys present; on an error nothing has changed.

        Args:
            state: as `state()` returns it; single fields of the state by their names ([B, ...] or one environment's,
                which all get); t, episode, scenario also as one integer.
            mask: [B] bool; other environments keep every bit. Not with clock or seed.

        Raises:
            ValueError: an unknown key, a wrong shape, a value that no step leads to, or params or pool of another batch
                than this one; states without these two keys are taken from any.
        """
        self._require_open()
        block_state.put(self, state, None if mask is None else self._mask(mask, "set_state: mask"))
        self._run("observe")
        self._started = True
