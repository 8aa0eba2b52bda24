"""Phases of an iteration as CUDA graphs."""

import gc
from collections.abc import Callable, Mapping, Sequence

import torch

CHOICES = ("auto", "on", "off")


def wanted(asked: str, device: torch.device, processes: int, env) -> bool:
    """Tells whether a run's phases are to be captured: on a GPU, in one process, of what can be put back.

    Args:
        asked: one of CHOICES.

    Raises:
        ValueError: they cannot, and have to.
    """
    fits, restorable = device.type == "cuda" and processes == 1, hasattr(env, "state")
    if asked == "on" and not fits:
        raise ValueError("graph='on' needs device='cuda' and one process")
    if asked == "on" and not restorable:
        raise ValueError(f"graph='on' needs an environment with state() and set_state(), not {type(env).__name__}")
    return fits and restorable and asked != "off"


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

    Raises:
        ValueError: a phase cannot be captured, such as one in which the host waits for the device; names it.
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
            try:
                with torch.cuda.graph(graphs[name], stream=stream):
                    phase()
            except RuntimeError as error:
                raise ValueError(f"{name} cannot be captured, graph='off' does without: {error}") from error
    return {name: graph.replay for name, graph in graphs.items()}  # a bound method keeps its graph
