"""The upper bounds of this machine, measured: copy bandwidth, fp32 rate, cost of a launch and a graph's node.

No environment is run. What a rung of the ladder reaches is set against these in the roofline figure.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from lockstep.envs.checks import available_memory
from lockstep.envs.kernels import compile
from lockstep.experiments.bench import ladder, timing
from lockstep.experiments.experiment import Experiment, Group, Plan, Request, by_label, each
from lockstep.experiments.ledger import provenance

COLUMNS = ["quantity", "device", "size_bytes", "threads", "block", "amount", "unit", "wall_s"]
MIB = 2**20
# Bytes of source and destination together, from what a core's or the GPU's L2 holds to what only DRAM does.
SIZES = {
    "quick": {"cpu": [MIB, 1024 * MIB], "cuda": [16 * MIB, 4096 * MIB]},
    "full": {
        "cpu": [MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB],
        "cuda": [MIB, 4 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 8192 * MIB],
    },
}
MEMORY_SHARE = 0.8  # of what is free that a copy may take
BLOCKS = {"quick": (6, 0.1), "full": (30, timing.MIN_BLOCK_S)}  # their number and least length
UNITS = {"copy": "byte", "fp32": "flop", "launch": "launch", "graph-node": "node"}
CHAINS = {"cpu": 12, "cuda": 8}  # independent fmas per thread; see ceilings.cuh
ROUNDS = {"cpu": 1_000_000, "cuda": 10_000}
COPIED_PER_CALL = 128 * MIB  # on the CPU: starting its threads then costs little
COPIES = 16  # in one CUDA graph, so that the launch is no part of a small copy
LAUNCHES = 1000
FACTOR, TERM = 0.999, 0.001  # the chains converge to 1: no overflow, no denormal number
SOURCE = Path(__file__).with_suffix(".cuh")
FMA_ARGUMENTS = [ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_float]  # out, rounds, factor, term


@dataclass(frozen=True)
class Ceiling(Group):
    """One ceiling at one size; threads are the CPU's."""

    quantity: str
    device: str
    size_bytes: int | None
    threads: int


def groups(scale: str, present: list[str]) -> Iterator[Ceiling]:
    """Groups of each device: copies as large as its memory allows, then the rest."""
    for device in present:
        listed = device == "cuda" and not torch.cuda.is_available()  # for a prediction, where there is no GPU
        free = math.inf if listed else available_memory(torch.device(device))
        sizes = [size for size in SIZES[scale][device] if size <= MEMORY_SHARE * free]
        threads = sorted({1, provenance.core_count()}) if device == "cpu" else [1]
        for count in threads:
            yield from (Ceiling("copy", device, size, count) for size in sizes)
            yield Ceiling("fp32", device, None, count)
        if device == "cuda":
            yield Ceiling("launch", device, None, 1)
            yield Ceiling("graph-node", device, None, 1)


def copy(group: Ceiling) -> tuple[Callable[[], None], int]:
    """A call that copies between two tensors, a slice to each thread, and the bytes it reads and writes."""
    source = torch.ones(group.size_bytes // 8, dtype=torch.float32, device=group.device)
    destination = torch.zeros_like(source)
    if group.device == "cuda":
        kernel, count, threads = cuda_kernel("copy"), group.size_bytes // 32, 256

        def copy_once() -> None:
            arguments = (source.data_ptr(), destination.data_ptr(), np.int64(count))
            with torch_stream():
                kernel((-(-count // threads),), (threads,), arguments)

        return captured(copy_once, COPIES), COPIES * group.size_bytes
    torch.set_num_threads(1)  # the slices are the threads: torch's own would wait for each other after every copy
    pairs = zip(destination.chunk(group.threads), source.chunk(group.threads), strict=True)
    times = math.ceil(COPIED_PER_CALL / group.size_bytes)

    def copy_slice(destination: torch.Tensor, source: torch.Tensor) -> None:
        for _ in range(times):
            destination.copy_(source)

    return on_threads(copy_slice, list(pairs)), times * group.size_bytes


def fp32(group: Ceiling) -> tuple[Callable[[], None], int]:
    """A call of the fma chains in ceilings.cuh, and its floating-point operations: two per fma."""
    chains, rounds = CHAINS[group.device], ROUNDS[group.device]
    if group.device == "cuda":
        threads = 256
        blocks = 8 * torch.cuda.get_device_properties(0).multi_processor_count
        out = torch.empty(blocks * threads, dtype=torch.float32, device="cuda")
        arguments = (out.data_ptr(), np.int32(rounds), np.float32(FACTOR), np.float32(TERM))
        kernel = cuda_kernel("fma_chains")

        def run() -> None:
            with torch_stream():
                kernel((blocks,), (threads,), arguments)

        return run, 2 * blocks * threads * chains * rounds
    library = compile.library(f"#define CHAINS {chains}\n{SOURCE.read_text()}")
    library.fma_chains.argtypes = FMA_ARGUMENTS
    library.fma_chains.restype = None
    lanes = library.lanes()
    outs = [torch.empty(lanes, dtype=torch.float32, device="cpu") for _ in range(group.threads)]

    def fma_chains(out: torch.Tensor) -> None:
        library.fma_chains(out.data_ptr(), rounds, FACTOR, TERM)

    return on_threads(fma_chains, [(out,) for out in outs]), 2 * group.threads * lanes * chains * rounds


def on_threads(work: Callable, arguments: list[tuple]) -> Callable[[], None]:
    """A call that does the work once per tuple of arguments, each on its own thread, and waits for all.

    The work has to let go of the interpreter, as torch and ctypes do.
    """
    if len(arguments) == 1:
        return lambda: work(*arguments[0])
    threads = ThreadPoolExecutor(len(arguments))

    def run() -> None:
        for finished in [threads.submit(work, *one) for one in arguments]:
            finished.result()

    return run


def launches(group: Ceiling) -> tuple[Callable[[], None], int]:
    """A call that launches an empty kernel LAUNCHES times from Python, as the port's step does."""
    kernel = cuda_kernel("nothing")

    def run() -> None:
        with torch_stream():
            for _ in range(LAUNCHES):
                kernel((1,), (1,), ())

    return run, LAUNCHES


def graph_nodes(group: Ceiling) -> tuple[Callable[[], None], int]:
    """A call that replays a CUDA graph of LAUNCHES empty kernels."""
    kernel = cuda_kernel("nothing")

    def node() -> None:
        with torch_stream():
            kernel((1,), (1,), ())

    return captured(node, LAUNCHES), LAUNCHES


CEILINGS = {"copy": copy, "fp32": fp32, "launch": launches, "graph-node": graph_nodes}


def cuda_kernel(name: str):
    """A kernel of ceilings.cuh, compiled by NVRTC through CuPy."""
    import cupy

    return cupy.RawModule(code=SOURCE.read_text(), options=(f"-DCHAINS={CHAINS['cuda']}",)).get_function(name)


def torch_stream():
    """CuPy launches on torch's current stream inside this, so that a graph under capture takes them."""
    import cupy

    return cupy.cuda.Stream.from_external(torch.cuda.current_stream())


def captured(work: Callable[[], None], times: int) -> Callable[[], None]:
    """A call of a CUDA graph that does the work so many times."""
    work()  # loads the kernel, which a capture may not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()

    def replay(_kept=work) -> None:  # a graph keeps alive nothing that it reads or writes
        graph.replay()

    return replay


def measure(group: Ceiling, scale: str) -> list[dict]:
    """The rows of one group, one per block."""
    run, amount = CEILINGS[group.quantity](group)
    synchronize = torch.cuda.synchronize if group.device == "cuda" else timing.nothing
    blocks, block_s = BLOCKS[scale]
    given = {"synchronize": synchronize, "blocks": blocks, "min_block_s": block_s, "device": group.device}
    measured = timing.measure(run, steps_per_call=amount, **given)
    unit = UNITS[group.quantity]
    return [
        {**asdict(group), "block": number, "amount": block.steps, "unit": unit, "wall_s": block.wall_s}
        | {"had": block.had}
        for number, block in enumerate(measured)
    ]


def plan(request: Request) -> Plan:
    scale, devices = request.scale, request.devices
    todo = by_label(groups(scale, devices))
    return Plan(
        todo,
        each(lambda group: measure(group, scale)),
        config={"sizes": {device: SIZES[scale][device] for device in devices}, "devices": devices},
        method=timing.method(*BLOCKS[scale]),
        seconds=dict.fromkeys(todo, ladder.SET_UP_S + timing.expected_s(*BLOCKS[scale])),
    )


def report(frame: pd.DataFrame, *_) -> str:
    """The median rate of every group, as lines to print."""
    keys = ["quantity", "device", "size_bytes", "threads", "unit"]
    groups = frame.assign(rate=frame["amount"] / frame["wall_s"]).groupby(keys, sort=False, dropna=False)
    lines = []
    for (quantity, device, size, threads, unit), rate in groups["rate"].median().items():
        size = f"{size / MIB:.2f} MiB" if size == size else ""
        lines.append(f"  {quantity:10} {device:4} {size:>12} threads={threads} {rate / 1e9:10.4g} G {unit}/s")
    return "\n".join(lines)


EXPERIMENT = Experiment(COLUMNS, plan, report, in_pieces=True, needs="machine", predicted=True)
