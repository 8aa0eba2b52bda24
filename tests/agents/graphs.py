"""CUDA graphs without a GPU: the operations of a capture are noted with their tensors, and done again on the same."""

import contextlib
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep.agents.parts import adam, gae, graphs, mlp, noise


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
        found = function(*args, **kwargs or {})
        numbers = [leaf for leaf in tree_leaves(found) if not isinstance(leaf, torch.Tensor | None)]
        assert not numbers, f"{function} waits for the device"
        self.calls.append((function, args, kwargs or {}, found))
        return found


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
    of_networks = mock.patch.object(mlp, "functions", return_value=None)
    with of_networks, mock.patch.object(adam, "functions", return_value=[None]):
        yield
