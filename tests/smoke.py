"""The first minutes on a GPU: small probes, each in a process of its own, and one line for each.

    python -m tests.smoke                    all of them; status 1 if one fails
    python -m tests.smoke --device cpu       what can be run without a GPU
    python -m tests.smoke --only struct graph --output smoke

A probe that fails, hangs or crashes takes no other with it. docs/gpu.md says what each line means.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.kernels import compile, structs
from tests import sanitize

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 60
NOT_HERE = 3  # exit status of a probe that cannot be run here
STOPPED = 130  # exit status after Ctrl-C, as shells have it
FINDING = "finding: "  # before the line of a probe's output that is shown
LAST_LINES = 15  # of the output of a probe that failed
STEPS = 100
ONE = "cartpole"  # stands for all where one environment will do
LIBRARIES = (  # of the tests; modules that import what each needs itself
    "gymnasium",
    "cloudpickle",  # which Gymnasium imports when it is asked for processes
    "pettingzoo",
    "pandas",
    "scipy",
    "jsonschema",
    "matplotlib",
    "pytest",
    "xdist.workermanage",
    "hypothesis",
)
EMPTY = 'extern "C" __global__ void nothing() {}'
LAUNCH = f"""import cupy
cupy.RawModule(code={EMPTY!r}).get_function("nothing")((1,), (1,), ())
cupy.cuda.Device().synchronize()
"""


class NotHere(Exception):
    """A probe that needs what is not on this machine; the message says what."""


class Probe(NamedTuple):
    run: Callable[[str], str]  # from a device to what was found
    gpu: bool = False  # has nothing to say without one
    alone: bool = False  # measures time: nothing else may run
    steps: bool = True  # of environments or agents: `tests.prebuild` learns from a run of it which kernels it needs


PROBES: dict[str, Probe] = {}


def probe(gpu: bool = False, alone: bool = False, steps: bool = True) -> Callable:
    """Adds a function to PROBES under its name, with hyphens."""

    def add(run):
        PROBES[run.__name__.replace("_", "-")] = Probe(run, gpu, alone, steps)
        return run

    return add


def require(true: object, otherwise: str) -> None:
    if not true:
        raise AssertionError(otherwise)


# ---- what is here, and whether kernels load ------------------------------------------------------


@probe(steps=False)
def versions(device: str) -> str:
    """Python, libraries, compilers, driver and GPU, and which libraries of the tests cannot be imported, and why."""
    from lockstep.experiments.ledger import provenance

    machine = provenance.machine()
    found = [f"{name} {version}" for name, version in provenance.packages().items()]
    try:
        found.append(f"NVRTC {'.'.join(map(str, compile.nvrtc().getVersion()))}")
    except compile.CompilerError as error:
        found.append(str(error))
    found += [str(machine[part]) for part in ("compiler", "gpu", "driver") if machine[part]]
    if device == "cuda":
        found.append(f"CUDA {torch.version.cuda}, {sanitize.target(device)}")
    return "; ".join([", ".join(found), *filter(None, map(lacking, LIBRARIES))])


def lacking(library: str) -> str:
    """A sentence if a library cannot be imported: it may be there and lack another one."""
    try:
        importlib.import_module(library)
    except Exception as error:
        return f"no {library} ({error})"
    return ""


def require_nvrtc(device: str) -> None:
    try:
        compile.nvrtc()
    except compile.CompilerError as error:
        if device == "cuda":
            raise
        raise NotHere(str(error)) from error


def of_each_form() -> list[str]:
    """The first environment of each launch form: a thread holds it, or several lanes do."""
    names = sorted(envs.names(), key=sanitize.several_lanes)
    return [next(group) for _, group in itertools.groupby(names, sanitize.several_lanes)]


def default_unit(name: str) -> str:
    """The unit of an environment as `envs.make` takes it by default, or the nearest that it lists."""
    units = envs.units(name)
    return next(text for (mode, dtype, _), text in units.items() if (mode, dtype) == ("SameStep", "float32"))


@probe(steps=False)
def cubin(device: str) -> str:
    """A unit's binary is whole, and loads from its file; if not from that, does it from bytes?"""
    text = default_unit(ONE)
    require_nvrtc(device)
    file = compile.cubin_file(text, sanitize.target(device))
    binary = file.read_bytes()
    require(compile.end_of_tables(binary) <= len(binary), f"{file.name} is cut off: {len(binary)} bytes")
    if device == "cpu":
        return f"whole, {len(binary):,} bytes; not loaded"
    import cupy

    kernel = sorted(sanitize.in_cubin(text, sanitize.target(device)))[0]
    try:
        cupy.RawModule(path=str(file)).get_function(kernel)
    except Exception as error:
        module = cupy.cuda.function.Module()
        module.load(binary)
        module.get_function(kernel)
        raise AssertionError(f"loads from bytes, but not from its file: {error}") from error
    return f"loads from its file, {len(binary):,} bytes"


@probe(steps=False)
def kernels(device: str) -> str:
    """All kernels of every environment's default unit are found by their names."""
    require_nvrtc(device)
    count = 0
    for name in envs.names():
        text = default_unit(name)
        found = sanitize.in_cubin(text, sanitize.target(device))
        if device == "cuda":
            module = compile.cuda_module(text, sanitize.target(device))
            found = [module.get_function(kernel).num_regs for kernel in found]
        require(found, f"{name} has no kernel")
        count += len(found)
    return f"{count} kernels of {len(envs.names())} units"


# ---- structs and tensors -------------------------------------------------------------------------


def paths(name: str, text: str) -> Iterator[str]:
    """The fields of a struct as C++ names them, those of a struct within it behind its name, in order."""
    body = re.search(rf"^struct {name} \{{\n(.*?)\n\}};", text, re.DOTALL | re.MULTILINE)[1]
    for line in map(str.strip, body.splitlines()):
        number = structs.NUMBER.match(line)
        if number and not number[2] and f"struct {number[1]} {{" in text:
            yield from (f"{number[3]}.{path}" for path in paths(number[1], text))
        elif found := number or structs.FUNCTION.match(line):
            yield found[number.lastindex if number else 1]


def echo_unit(text: str) -> tuple[str, list[tuple[str, str]]]:
    """A unit with the structs of another one, whose kernel writes every field into `echoed`; and those fields."""
    wanted = [(name, path) for name in ("Batch", "Call") for path in paths(name, text)]
    declared = [
        match
        for match in re.finditer(r"^struct (\w+) \{\n.*?\n\};", text, re.DOTALL | re.MULTILINE)
        if match[1] in ("Tables", "Given", "Batch", "Call")
    ]
    types = {kind for struct in declared for kind in re.findall(r"^ +(?:const )?(\w+)\*", struct[0], re.MULTILINE)}
    typedefs = {kind: re.search(rf"^ *typedef [\w ]+ {kind};", text, re.MULTILINE) for kind in sorted(types)}
    choices_and_platform = text[: text.index("struct Params {")]
    writes = [f"put({k}, {name.lower()}->{path});" for k, (name, path) in enumerate(wanted)]
    lines = [
        choices_and_platform,
        *(found[0] for found in typedefs.values() if found and found[0] not in choices_and_platform),
        *(struct[0] for struct in declared),
        "#ifdef __CUDACC__\n#define PLACE __device__\n#else\n#define PLACE\n#endif",
        f'extern "C" {{ PLACE u64 echoed[{len(wanted)}]; }}',
        "template <typename T> FN void put(int k, T value) {",
        '    static_assert(sizeof(T) == 8, "a field of eight bytes");',
        "    memcpy(&echoed[k], &value, 8);",
        "}",
        "FN void write(const Batch* batch, const Call* call) {",
        *writes,
        "}",
        "#ifdef __CUDACC__",
        'extern "C" __global__ void echo(const Batch b, const Call c) { write(&b, &c); }',
        "#else",
        'extern "C" void echo(const Batch* b, const Call* c, i64, i64) { write(b, c); }',
        "#endif\n",
    ]
    return "\n".join(lines), wanted


@probe(steps=False)
def struct(device: str) -> str:
    """Every field of both structs reaches a kernel of either form with its value, passed as all kernels' are."""
    found = []
    for name in of_each_form():
        text, wanted = echo_unit(default_unit(name))
        both = [structs.struct(part, text) for part in ("Batch", "Call")]
        given = []
        for made in both:
            for number, (field, kept) in enumerate(made._fields_, start=len(given) + 1):
                value = 1.5 * number if kept is ctypes.c_double else number << 33 | number
                setattr(made, field, value)
                given.append(int(np.float64(value).view(np.uint64)) if kept is ctypes.c_double else value)
        require(len(given) == len(wanted), f"{len(given)} fields in Python, {len(wanted)} in C++")
        if device == "cuda":
            import cupy

            launch.cuda(text, *both, 1, 1, torch.device("cuda", 0))("echo")()
            torch.cuda.synchronize()
            pointer = compile.cuda_module(text, sanitize.target(device)).get_global("echoed")
            echoed = cupy.ndarray(len(given), np.uint64, pointer).get().tolist()
        else:
            launch.cpu(text, *both, 1, 1)("echo")()
            echoed = list((ctypes.c_ulonglong * len(given)).in_dll(compile.library(text), "echoed"))
        for (part, path), sent, came in zip(wanted, given, echoed, strict=True):
            require(sent == came, f"{name}: {part}.{path} came as {came:#x}, not {sent:#x}")
        found.append(f"{len(given)} fields of {name}'s")
    return ", ".join(found)


@probe(steps=False)
def unsigned(device: str) -> str:
    """Tensors of unsigned types can be filled, copied, cast, compared, and moved."""
    types = (torch.uint16, torch.uint32, torch.uint64)
    for dtype in types:
        largest = torch.iinfo(dtype).max
        host = torch.from_numpy(np.array([0, 1, largest - 1, largest], dtype=str(dtype).removeprefix("torch.")))
        there = host.to(device)
        copied = torch.zeros(4, dtype=dtype, device=device).copy_(there)
        require(torch.equal(copied, there.clone()) and torch.equal(copied.cpu(), host), f"{dtype}: copies differ")
        require(not torch.equal(copied.fill_(7), there), f"{dtype}: torch.equal calls different tensors equal")
        require(copied.to(torch.int64).tolist() == [7] * 4, f"{dtype}: fill or cast")
        require(not copied.zero_().cpu().numpy().any(), f"{dtype}: zero_")
        require(there.to(torch.float64)[3] == float(largest), f"{dtype}: cast to float64")
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in types)


# ---- environments --------------------------------------------------------------------------------


def differing(one: Mapping, other: Mapping, close: float = 0.0) -> str | None:
    """The first thing in which two states or rows differ, None where they are equal.

    close: what floats may differ by, of 1 or of their own size.
    """
    for key, here in one.items():
        there = other[key]
        if not isinstance(here, torch.Tensor):
            if here != there:
                return f"{key}: {here} and {there}"
            continue
        here, there = here.cpu(), there.cpu()
        if torch.equal(here, there):
            continue
        a, b = here.double().flatten(), there.double().flatten()
        apart = (a - b).abs() > (close * b.abs().clamp(min=1) if here.is_floating_point() else 0)
        apart |= a.isnan() != b.isnan()
        if apart.any():
            at = int(apart.nonzero()[0])
            return f"{key}[{at}]: {a[at].item()!r} and {b[at].item()!r}, {int(apart.sum())} of {len(a)} differ"
    return None


def closeness(name: str, device: str) -> float:
    """The most that a device's floats may be from the CPU's after a step.

    Logarithms and powers of the libraries in double precision, which only environments of several lanes take, may
    differ in the last bit. The lanes change none (tests/envs/vehicular_edge/test_gpu_text.py).
    """
    return 1e-4 if device == "cuda" and sanitize.several_lanes(name) else 0.0


def rows_of(outputs) -> dict[str, torch.Tensor]:
    return dict(zip(("obs", "reward", "terminated", "truncated"), outputs[:4], strict=True))


def step(name: str, device: str) -> str:
    """One step has the CPU's bits, and so have the next hundred, in which episodes end.

    Where the libraries may differ (see `closeness`) it is close after one step, and roughly so after a hundred.
    """
    here = sanitize.small(name, "cpu", threads=1)
    there = sanitize.small(name, device, **({"threads": 2} if device == "cpu" else {}))
    for env in (here, there):
        env.reset(seed=3)
    close, apart = closeness(name, device), None
    for number in range(1 + STEPS):
        compared = [tuple(rows_of(env.step(env.random_actions()[0])) for env in (here, there))]
        close = close if number == 0 else 100 * closeness(name, device)
        compared += [(here.state(), there.state())] if number in (0, STEPS) else []
        for pair_of in compared:
            found = differing(*pair_of, close)
            require(found is None, f"step {number + 1}: {found}")
            if apart is None and differing(*pair_of):
                apart = number + 1
    ended = [float(env.statistics()["episodes"]) for env in (here, there)]
    require(ended[0] == ended[1] > 0, f"episodes that ended: {ended[0]} and {ended[1]}")
    bits = "bit for bit" if apart is None else f"within {close:g}, bit for bit before step {apart}"
    return f"{1 + STEPS} steps, {ended[0]:.0f} episodes, {bits}"


for _name in envs.names():
    PROBES[f"step-{_name}"] = Probe(functools.partial(step, _name))


@probe(gpu=True)
def graph(device: str) -> str:
    """Replays of a CUDA graph leave what single steps leave, in every environment."""
    for name in envs.names():
        stepped, captured = pair(name, device)
        for _ in range(20):
            stepped.step(stepped.random_actions()[0])
        replayed = captured.graph(steps=10)
        for _ in range(2):
            replayed.replay()
        found = differing(stepped.state(), captured.state())
        require(found is None, f"{name}: {found}")
    return f"{len(envs.names())} environments"


@probe()
def fused(device: str) -> str:
    """Steps in one launch leave what single steps leave, in every environment, but rows of episodes before the last."""
    info = ("final_obs", "episode_return", "episode_length")
    for name in envs.names():
        stepped, together = pair(name, device)
        for _ in range(20):
            stepped.step(stepped.random_actions()[0])
        together.rollout(20)
        states = [{key: value for key, value in env.state().items() if key not in info} for env in (stepped, together)]
        found = differing(*states) or differing(stepped.statistics(), together.statistics())
        require(found is None, f"{name}: {found}")
    return f"{len(envs.names())} environments"


def pair(name: str, device: str) -> list:
    """Two equal batches after a reset."""
    made = [sanitize.small(name, device) for _ in range(2)]
    for env in made:
        env.reset(seed=3)
    return made


@probe()
def mlp(device: str) -> str:
    """Roll-outs with networks in the kernel have the CPU's bits, and stepping their actions leads to the same state."""
    carried = [name for name in envs.names() if any(word == "mlp" for *_, word in envs.units(name))]
    discrete = {name: not envs.port(name).continuous for name in carried}
    chosen = [
        name
        for _, group in itertools.groupby(sorted(discrete, key=discrete.get), discrete.get)
        for name in [next(group)]
    ]
    for name in chosen:
        rows = []
        for place in dict.fromkeys(("cpu", device)):
            rolled, stepped = pair(name, place)
            outputs, inputs = rolled.port.policy_shape
            torch.manual_seed(1)
            policy = envs.MLP(*(sanitize.network(inputs, 64, count, rolled.device) for count in (outputs, 1)))
            rows.append(rolled.rollout(20, policy, "trajectory"))
            for action in rows[-1]["action"]:
                if envs.port(name).continuous:
                    action = action.clamp(rolled.single_action_space.low.item(), rolled.single_action_space.high.item())
                stepped.step(action)
            states = [{key: env.state()[key] for key in ("state", "elapsed", "episode")} for env in (rolled, stepped)]
            found = differing(*states)
            require(found is None, f"{name} on {place}, rolled out and stepped: {found}")
        found = differing(rows[0], rows[-1])
        require(found is None, f"{name}: {found}")
    return f"{', '.join(chosen)}, two layers of 64"


@probe()
def shared_memory(device: str) -> str:
    """Builds that ask for the most shared memory are launched, and step as the CPU does."""
    found = []
    for name, builds in sanitize.SPECIAL.items():
        for options in builds:
            here, there = (sanitize.small(name, place, **options) for place in ("cpu", device))
            for env in (here, there):
                env.reset(seed=3)
                env.step(env.random_actions()[0])
            different = differing(rows_of(here._outputs), rows_of(there._outputs), closeness(name, device))
            require(different is None, f"{name} {options}: {different}")
            found.append(there.memory()["scratch"])
    return f"up to {max(found):,} bytes a block" if found else "no build of its own"


@probe()
def ppo(device: str) -> str:
    """A few iterations of PPO: on a GPU captured in graphs, with the bits of those that are not; on a CPU run twice."""
    from lockstep.agents.ppo import PPO, Config

    small, trained = {"num_envs": 8, "horizon": 16, "total_steps": 128 * 20, "epochs": 2, "minibatches": 2}, []
    for captured in ("on", "off") if device == "cuda" else ("auto", "auto"):
        trainer = PPO(ONE, Config(**small, hidden=(16, 16), threads=1, graph=captured), device)
        before = trainer.networks.parameters.clone()
        for _ in range(2):
            trainer.iterate()
        require(not torch.equal(before, trainer.networks.parameters), "two iterations change no parameter")
        trained.append({"parameters": trainer.networks.parameters})
    found = differing(*trained)
    require(found is None, found)
    return f"two iterations, {before.numel():,} parameters"


@probe()
def other_agents(device: str) -> str:
    """The same of all other algorithms, but for learning rates, which graphs have in single precision."""
    from lockstep import agents
    from tests.agents.graphs import small, takes_box

    names, trained = [name for name in agents.names() if name != "ppo"], []
    for name in names:
        environment = next(env for env in envs.names() if envs.port(env).continuous == takes_box(name))
        for captured in ("on", "off") if device == "cuda" else ("auto", "auto"):
            run = agents.algorithm(name)(environment, small(name, threads=1, graph=captured), device)
            before = run.weights()
            for _ in range(6):
                run.iterate()
            trained.append((name, before, run.weights()))
    for (name, before, one), (_, _, other) in zip(trained[::2], trained[1::2], strict=True):
        require(differing(before, one) is not None, f"{name}: six iterations change no parameter")
        found = differing(one, other, 1e-4 if device == "cuda" else 0.0)
        require(found is None, f"{name}: {found}")
    return ", ".join(names)


# ---- tools ---------------------------------------------------------------------------------------


def under(tool: str, *options: str) -> str:
    """The output of an empty kernel's launch under a tool of the CUDA toolkit."""
    program = sanitize.program(tool)
    if program is None:
        raise NotHere(f"{tool} is not installed")
    command = [program, *options, sys.executable, "-c", LAUNCH]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    require(done.returncode == 0, f"{tool} ended with status {done.returncode}")
    return done.stdout


@probe(gpu=True, steps=False)
def compute_sanitizer(device: str) -> str:
    """NVIDIA's compute-sanitizer watches an empty kernel and finds nothing."""
    require(sanitize.CLEAN.search(under("compute-sanitizer", "--tool", "memcheck")), "no summary without findings")
    return "memcheck works"


@probe(gpu=True, steps=False)
def ncu(device: str) -> str:
    """Nsight Compute counts cycles of an empty kernel."""
    counter = "sm__cycles_elapsed.max"
    require(counter in under("ncu", "--metrics", counter), "no counter in its output")
    return "counters can be read"


@probe(gpu=True, steps=False)
def profiler(device: str) -> str:
    """torch's profiler sees what the device does."""
    from torch.profiler import ProfilerActivity, profile

    ones = torch.ones(1000, device=device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        ones.sum()
        torch.cuda.synchronize()
    of_device = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    require(of_device, "it shows no work of the device")
    return f"{len(of_device)} events of the device"


# ---- times: alone --------------------------------------------------------------------------------


@probe(gpu=True, alone=True, steps=False)
def graph_node(device: str) -> str:
    """The cost of an empty kernel in a CUDA graph, beside the time that the tightest aim leaves for a step."""
    from lockstep.experiments import ceilings, config

    rows = ceilings.measure(ceilings.Ceiling("graph-node", device, None, 1), "quick")
    node_s = statistics.median(row["wall_s"] / row["amount"] for row in rows)
    aims = []
    for name in envs.names():
        for aim in config.load(name, "quick").throughput.get("targets", ()):
            of_graphs = aim.numerator.rung == "port-cuda-graph" and "denominator" not in aim
            if of_graphs and "num_envs" in aim.numerator:
                aims.append((aim.numerator.num_envs / aim.floor, aim.name))
    left_s, tightest = min(aims)
    verdict = "leaves time for it" if node_s < left_s else "cannot be reached"
    return f"{node_s * 1e6:.2f} us a node; {tightest}: {left_s * 1e6:.2f} us a step, {verdict}"


@probe(alone=True)
def eager(device: str) -> str:
    """The host's time for one step of one environment."""
    steps, found = 1000, []
    for name in of_each_form():
        env = envs.make(name, 1, device, check_actions=False)
        env.reset(seed=0)
        action, taken = env.random_actions()[0], []
        for _ in range(6):
            start = time.perf_counter()
            for _ in range(steps if device == "cuda" else 100):
                env.step(action)
            taken.append((time.perf_counter() - start) / (steps if device == "cuda" else 100))
            if device == "cuda":
                torch.cuda.synchronize()
        found.append(f"{name} {statistics.median(taken[1:]) * 1e6:.1f} us")
    return ", ".join(found)


# ---- running them --------------------------------------------------------------------------------


class Outcome(NamedTuple):
    name: str
    verdict: str  # ok | FAILED | not here
    seconds: float
    finding: str
    output: str

    def line(self) -> str:
        return f"{self.name:30} {self.verdict:8} {self.seconds:5.1f} s  {self.finding}"


def kill(process: subprocess.Popen) -> None:
    """Ends a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ran(
    name: str, command: Sequence[str], timeout_s: float = TIMEOUT_S, running: set[subprocess.Popen] | None = None
) -> Outcome:
    """The outcome of a probe's command line, whatever becomes of its process and those that it started.

    running: where the process stands while it runs.
    """
    running, start = set() if running is None else running, time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    running.add(process)
    try:
        output, _ = process.communicate(timeout=timeout_s)
        ended = ""
    except subprocess.TimeoutExpired:
        kill(process)
        output, _ = process.communicate()
        ended = f"no end within {timeout_s:g} s"
    except KeyboardInterrupt:
        kill(process)
        raise
    finally:
        running.discard(process)
    lines = [line for line in output.splitlines() if line.strip()] or [""]
    said = next((line.removeprefix(FINDING) for line in reversed(lines) if line.startswith(FINDING)), None)
    if not ended and process.returncode < 0:
        ended = f"ended by {signal.Signals(-process.returncode).name}"
    verdict = {0: "ok", NOT_HERE: "not here"}.get(process.returncode, "FAILED")
    if verdict != "FAILED" and said is None:
        verdict = "FAILED"
    finding = said if verdict != "FAILED" else ended or lines[-1].strip()
    return Outcome(name, verdict, time.perf_counter() - start, " ".join(finding.split())[:300], output)


def outcomes(commands: Mapping[str, Sequence[str]], jobs: int, timeout_s: float = TIMEOUT_S) -> Iterator[Outcome]:
    """The outcomes in the order of the command lines, of which so many run at a time; those of PROBES alone do.

    Whoever closes it ends what runs; nothing else is begun.
    """
    alone = [name for name in commands if name in PROBES and PROBES[name].alone]
    running: set[subprocess.Popen] = set()
    begun: dict[str, Future] = {}
    threads = ThreadPoolExecutor(jobs)
    try:
        for name in commands:
            if name not in alone:
                begun[name] = threads.submit(ran, name, commands[name], timeout_s, running)
        for name in [*begun, *alone]:
            yield begun[name].result() if name in begun else ran(name, commands[name], timeout_s, running)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in begun.values()):  # a process may just have been started
            for process in tuple(running):
                kill(process)
            time.sleep(0.05)


def report(found: Iterator[Outcome], output: Path | None) -> int:
    """Prints a line for each outcome, and a summary; the exit status.

    output: a folder that is there, for what failed probes print.
    """
    counts = {"ok": 0, "FAILED": 0, "not here": 0}
    for one in found:
        counts[one.verdict] += 1
        print(one.line(), flush=True)
        if one.verdict == "FAILED":
            for line in one.output.splitlines()[-LAST_LINES:]:
                print(f"    | {line}")
            if output:
                (output / f"{one.name}.txt").write_text(one.output)
    print(f"smoke: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    return int(counts["FAILED"] > 0)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def make_folder(folder: Path) -> None:
    """Makes the folder for what failed probes print, unless it is there.

    Raises:
        SystemExit: nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        sys.exit(f"smoke: --output {folder}: nothing can be written there ({error.strerror}); name another folder")


def command(device: str, name: str) -> list[str]:
    """The command line of one probe."""
    return [sys.executable, "-m", "tests.smoke", "--device", device, "--run", name]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.smoke", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=PROBES, metavar="PROBE", help=f"of {', '.join(PROBES)}")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="keeps what failed probes print")
    jobs = max(1, min(4, (os.cpu_count() or 1) // 4))
    parser.add_argument("--jobs", type=at_least_one, default=jobs, help=f"probes at a time (here: {jobs})")
    parser.add_argument("--run", choices=PROBES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.run:
        try:
            print(f"{FINDING}{PROBES[options.run].run(options.device)}")
        except NotHere as reason:
            print(f"{FINDING}{reason}")
            sys.exit(NOT_HERE)
        return
    if options.device == "cuda" and not envs.cuda_available():
        sys.exit("smoke: this machine has no usable CUDA device; --device cpu runs what needs none")
    if options.output:
        make_folder(options.output)
    names = options.only or list(PROBES)
    here = [name for name in names if options.device == "cuda" or not PROBES[name].gpu]
    away = (Outcome(name, "not here", 0.0, "needs a GPU", "") for name in names if name not in here)
    with contextlib.closing(outcomes({name: command(options.device, name) for name in here}, options.jobs)) as found:
        try:
            status = report(itertools.chain(found, away), options.output)
        except KeyboardInterrupt:
            print("smoke: stopped", file=sys.stderr)
            status = STOPPED
    sys.exit(status)


if __name__ == "__main__":
    main()
