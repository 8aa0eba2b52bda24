"""CUDA graphs without a GPU: the operations of a capture are noted with their tensors, and done again on the same."""

import contextlib
from unittest import mock

import torch
from gymnasium.spaces import Box, Discrete
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep import agents
from lockstep.agents.parts import adam, gae, graphs, mlp, noise, quantiles
from lockstep.agents.parts.continuous import Continuous
from tests.agents.worlds import Clock

# Operations whose results the host must know before it can go on, or that copy from the host.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "item", "is_nonzero"}
WAITS |= {"lift_fresh", "lift_fresh_copy"}
SMALL = {"num_envs": 8, "hidden": (16,), "encoder": 16, "features": 16, "atoms": 11, "batch_size": 32, "gamma": 0.9}
SMALL |= {"horizon": 2, "total_steps": 1600, "capacity": 200, "learning_starts": 50, "replay_ratio": 0.25, "tau": 0.3}
SMALL |= {"target_every": 8, "epsilon_start": 0.5, "epsilon_end": 0.1, "epsilon_steps": 200, "lr": 1e-2}
OFF_POLICY = [name for name in agents.names() if "replay_ratio" in agents.algorithm(name).Config.__dataclass_fields__]


class Restorable(Clock):
    """A clock that keeps to its tensor, with the actions that are asked for, whose reward heeds them."""

    def __init__(self, actions):
        super().__init__(8)
        self.single_action_space = actions

    def step(self, action):
        elapsed = self.elapsed + 1
        ended = elapsed == self.limit
        self.elapsed.copy_(torch.where(ended, 0, elapsed))
        reward = 1 - 0.1 * action.float().reshape(self.num_envs, -1).sum(dim=1)
        final_obs = elapsed.float().unsqueeze(1)
        return self._observe(), reward, torch.zeros_like(ended), ended, {"final_obs": final_obs}

    def state(self):
        return {"elapsed": self.elapsed.clone()}

    def set_state(self, state):
        self.elapsed.copy_(state["elapsed"])


def takes_box(name: str) -> bool:
    """Tells of an algorithm that its actions are numbers; others here choose one of several."""
    return issubclass(agents.algorithm(name), Continuous)


def small(name: str, **changes):
    """A configuration of an algorithm, as small as can be but for these settings."""
    kind = agents.algorithm(name).Config
    return kind(**{key: value for key, value in (SMALL | changes).items() if key in kind.__dataclass_fields__})


def made(name: str, changes: dict):
    """A run of an algorithm on a clock."""
    space = Box(-2.0, 2.0, (2,)) if takes_box(name) else Discrete(3)
    return agents.algorithm(name)(Restorable(space), small(name, **changes))


class Noted(TorchDispatchMode):
    """Notes operations, their arguments and what they gave."""

    def __init__(self):
        super().__init__()
        self.calls, self.captures = [], False

    def __enter__(self):
        self.captures = True
        return super().__enter__()

    def __exit__(self, *error):
        self.captures = False
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if waits(function, args):
            raise RuntimeError(f"{function.overloadpacket.__name__} waits for the device")
        found = function(*args, **kwargs or {})
        self.calls.append((function, args, kwargs or {}, found))
        return found


def waits(function, args: tuple) -> bool:
    """Tells whether the host waits for the device at an operation: WAITS, or rows that a mask chooses."""
    name, masks = function.overloadpacket.__name__, [part for part in tree_leaves(args[1:]) if is_mask(part)]
    return name in WAITS or (name.startswith("index") and bool(masks))


def is_mask(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype == torch.bool


@contextlib.contextmanager
def nothing_waiting():
    """RuntimeError where the host waits for a GPU in here."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def launching(lookup, made: list):
    """A `kernels.lookup` whose kernels are noted in the graph that is captured meanwhile."""

    def found(*given):
        def kernel(name):
            launch = lookup(*given)(name)

            def run():
                for graph in made:
                    if graph.noted.captures:
                        graph.noted.calls.append((launch, (), {}, None))
                launch()

            return run

        return kernel

    return found


class Graph:
    """Stands in for `torch.cuda.CUDAGraph`: what is read and written again are the capture's tensors, not new ones."""

    def __init__(self):
        self.noted, self.generators, self.replays = Noted(), [], 0

    def register_generator_state(self, generator):
        self.generators.append(generator)

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for function, args, kwargs, found in self.noted.calls:
            for old, new in zip(tree_leaves(found), tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@contextlib.contextmanager
def standing_in():
    """Within it the phases of every run are such graphs, and networks and Adam take torch's operations."""
    made = []

    def graph():
        made.append(Graph())
        return made[-1]

    nothing = contextlib.nullcontext()
    stand_ins = {"device": lambda device: nothing, "stream": lambda stream: nothing}
    stand_ins |= {"Stream": mock.MagicMock(), "current_stream": mock.MagicMock()}
    stand_ins |= {"CUDAGraph": graph, "graph": lambda graph, stream: graph.noted}
    wanted = mock.patch.object(graphs, "wanted", return_value=True)
    with mock.patch.multiple(torch.cuda, **stand_ins), wanted, torch_s_own(), contextlib.ExitStack() as stack:
        for module in (gae, noise):
            stack.enter_context(mock.patch.object(module, "lookup", launching(module.lookup, made)))
        yield made


@contextlib.contextmanager
def torch_s_own():
    """Within it networks and Adam take torch's operations on the CPU too."""
    of_networks = mock.patch.object(mlp.MLP, "in_cpp", False)
    between = mock.patch.object(quantiles, "_in_cpp", return_value=False)
    with of_networks, between, mock.patch.object(adam, "functions", return_value=[None]):
        yield
