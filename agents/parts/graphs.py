"""Phases of an iteration as CUDA graphs."""

import gc
from collections.abc import Callable, Mapping, Sequence

import torch

CHOICES = ("auto", "on", "off")


def wanted(asked: str, device: torch.device, processes: int, env) -> bool:
    """Tells whether a run's phases are to be captured: on a GPU, in one process.

    Args:
        asked: one of CHOICES; "auto" leaves out an environment that cannot be put back to where it was before.

    Raises:
        ValueError: they cannot, and have to.
    """
    fits = device.type == "cuda" and processes == 1
    if asked == "on" and not fits:
        raise ValueError("graph='on' needs device='cuda' and one process")
    return fits and (asked == "on" or (asked == "auto" and hasattr(env, "state")))


def captured(
    phases: Mapping[str, Callable[[], None]], device: torch.device, generators: Sequence[torch.Generator] = ()
) -> dict[str, Callable[[], None]]:
    """Functions that do on the device what the phases do, by one graph each; every phase runs once before.

    A graph reads and writes the tensors that its phase did when it was captured. What a phase takes from the host, such
    as a number that it hands to an operation, stays as it was then.

    Args:
        phases: by name, in the order in which they run.
        device: a GPU.
        generators: what phases draw from, besides torch's own.
    """
    gc.collect()  # graphs of an earlier run, which would break this capture if they were freed within it
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles and allocates what a capture must not
            for phase in phases.values():
                phase()
        torch.cuda.current_stream().wait_stream(stream)
        graphs = {name: torch.cuda.CUDAGraph() for name in phases}
        for name, phase in phases.items():
            for generator in generators:
                graphs[name].register_generator_state(generator)
            with torch.cuda.graph(graphs[name], stream=stream):
                phase()
    return {name: graph.replay for name, graph in graphs.items()}  # a bound method keeps its graph
