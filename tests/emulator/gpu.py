"""Runs the GPU's form of kernels without a GPU: g++ compiles the text under `__CUDACC__`, and its threads take turns.

    with gpu.installed():
        env = gpu.make("cartpole", 100, block=64, order="shuffled")

gives a batch as on a GPU, whose tensors lie in the memory of the CPU; objects of `agents` take a `gpu.Device()` as
theirs. A thread runs up to its next synchronisation. Shared memory holds 0xff where nothing was written. What no GPU
would get through, threads that wait for each other or a warp operation by a lane outside of its mask, raises
`EmulationError`. On a `Device(watched=True)` so does a race: an access to what another thread of the block changes,
without a barrier between, whatever the order.
"""

import contextlib
import ctypes
import functools
import re
import subprocess
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch

from lockstep import envs
from lockstep.agents.parts import gae, minibatches, noise, normaliser
from lockstep.envs import checks
from lockstep.envs.batch import environment, launch
from lockstep.envs.kernels import compile

FOLDER = Path(__file__).parent
ORDERS = ("ascending", "descending", "shuffled")  # in which threads, and blocks, take turns
FILLED = "-ftrivial-auto-var-init=pattern"  # local variables, so that one read before it was written shows
# GCC calls functions of ThreadSanitizer before each access; they are device.hpp's, and its library is not linked.
WATCHED = ("-O0", "-fsanitize=thread", "-fno-exceptions", "-nodefaultlibs")
MOST = 1024  # calls of sync() in a unit
SHARED_BYTES, MULTIPROCESSORS = 227 * 1024, 132  # that a block may ask for, and a GPU has: an H100's

KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?P<bounds>__launch_bounds__.*?\))?\s*(\w+)\s*\(([^()]*)\)\s*\{'
)
CONSTANT = re.compile(r'extern\s+"C"\s+__constant__\s+const\s+\w+\s+(\w+)\s*=')
DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\(\w+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
STATIC = re.compile(
    r"__shared__\s+((?:__align__|alignas)\s*\([^()]*\))?\s*([\w ]*?\w)\s+(\w+(?:\s*\[[^;]*\])?(?:\s*,[^;]*)?);"
)
RECIPROCAL = re.compile(r'"rcp\.approx\.ftz\.f32 %0, %1;"\s*:\s*"=f"\s*\((.*)\)\s*:\s*"f"\s*\((.*)\)', re.DOTALL)
PIN = re.compile(r'""\s*:\s*("\+[frdl]"\s*\([^()]*\)\s*,?\s*)+')
SYNC = re.compile(r"(?<!void )\bsync\(\)")
BARE = " \t{};\\"  # that say nothing of a line


class EmulationError(RuntimeError):
    """A kernel did what no GPU gets through."""


class Device(str):
    """Stands in for a GPU: general code sees type "cuda", and tensors made on it lie in the memory of the CPU.

    Args:
        order: in which the threads of a block take turns.
        fault: text of a unit and what is put in its place before it is compiled.
        reciprocal_ulp: units in the last place by which approximate reciprocals are off: -1, 0 or 1.
        watched: races are looked for; takes GCC, and ten times as long.
        left_out: of a watched device, the number of a `sync()` that is not made; `barriers` tells which it is.
    """

    type, index, block = "cuda", 0, None

    def __new__(
        cls,
        order: str = "ascending",
        fault: tuple[str, str] | None = None,
        reciprocal_ulp: int = 0,
        watched: bool = False,
        left_out: int = -1,
    ):
        device = super().__new__(cls, "cpu")
        device.order, device.fault, device.reciprocal_ulp = ORDERS.index(order), fault, reciprocal_ulp
        device.watched, device.left_out = watched, left_out
        return device

    def __eq__(self, other):
        return other == torch.device("cpu") if isinstance(other, torch.device) else self is other

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def make(
    name: str,
    num_envs: int,
    *,
    block: int | None = None,
    order: str = "ascending",
    fault: tuple[str, str] | None = None,
    reciprocal_ulp: int = 0,
    watched: bool = False,
    left_out: int = -1,
    make: Callable = envs.make,
    **options,
):
    """`make(name, num_envs, **options)` as on a GPU; within `installed`.

    Args:
        block: threads of a block that steps, or of an environment that several hold; None is what a GPU would get.
        order, fault, reciprocal_ulp, watched, left_out: of `Device`.
    """
    device = Device(order, fault, reciprocal_ulp, watched, left_out)
    device.block = block
    with _lanes_of(block) if block else contextlib.nullcontext():
        return make(name, num_envs, device=device, **options)


@contextlib.contextmanager
def _lanes_of(threads: int) -> Iterator[None]:
    """Within it environments that several lanes hold are made for so many."""
    real = environment.BatchedEnv._lanes
    with mock.patch.object(environment.BatchedEnv, "_lanes", lambda env: threads if real(env) > 1 else 1):
        yield


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Within it a `Device` is found, has memory and launches; kernels of the CPU's form are not optimised either.

    So both forms compile quickly, apart from the libraries that other tests have loaded.
    """

    def standing_in(module, name: str, stand_in: Callable, position: int):
        """A function that does something else where the argument at a position is a `Device`."""
        real = getattr(module, name)

        def either(*args, **kwargs):
            device = args[position] if len(args) > position else kwargs.get("device")
            return (stand_in if isinstance(device, Device) else real)(*args, **kwargs)

        return mock.patch.object(module, name, either)

    properties = SimpleNamespace(
        shared_memory_per_block_optin=SHARED_BYTES,
        shared_memory_per_multiprocessor=SHARED_BYTES + 1024,
        multi_processor_count=MULTIPROCESSORS,
    )
    with contextlib.ExitStack() as stack:
        for module in (environment, gae, minibatches, noise, normaliser):
            stack.enter_context(standing_in(module, "find_device", lambda device: device, 0))
        stack.enter_context(standing_in(checks, "available_memory", lambda device: 2**36, 0))
        stack.enter_context(standing_in(torch.cuda, "get_device_properties", lambda device: properties, 0))
        for name in ("step_block", "network_block"):
            real = getattr(launch, name)
            stack.enter_context(standing_in(launch, name, lambda *args, real=real: args[2].block or real(*args), 2))
        stack.enter_context(standing_in(launch, "device_constant", constant, 2))
        stack.enter_context(standing_in(launch, "cuda", cuda, 5))
        for make in ("zeros", "empty"):
            stack.enter_context(mock.patch.object(torch, make, functools.partial(made, getattr(torch, make))))
        stack.enter_context(mock.patch.object(compile, "library", library))
        yield


_build = compile.library.__wrapped__  # from text to library, every time anew
library = functools.cache(_build)  # of the CPU's form


def filling() -> tuple[str, ...]:
    """Flags of the emulated text besides the others; GCC 12 and clang can fill variables."""
    macros = compile.target_flags()[1]
    gcc = re.search(r"#define __GNUC__ (\d+)", macros)
    fills = "__clang__" in macros or (gcc and int(gcc[1]) >= 12)
    return (FILLED,) if fills else ()


@functools.cache
def emulated_library(text: str, watched: bool = False) -> ctypes.CDLL:
    """A library of prepared text; watched: it tells the machine of each access to memory."""
    return _build(text, *filling(), *(WATCHED if watched else ()))


# ---- tensors between guards -----------------------------------------------------------------------------------------

GUARD = 32768  # bytes; more than the lanes of a block go beyond the last environment
GUARDING = torch.full((GUARD // 8,), -0x5A5A5A5A5A5A5A5B, dtype=torch.int64)
guards: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # before and behind each tensor that lives


def made(make: Callable, *shape, device=None, dtype=None, **options) -> torch.Tensor:
    """A tensor as `make` makes it; on a `Device` between guards."""
    if not isinstance(device, Device):
        return make(*shape, device=device, dtype=dtype, **options)
    plain = make(*shape, dtype=dtype, **options)
    end = GUARD + -(-plain.nbytes // 8) * 8
    memory = make(end + GUARD, dtype=torch.uint8)
    guarded = memory[GUARD : GUARD + plain.nbytes].view(plain.dtype).view(plain.shape)
    guarded.copy_(plain)
    guards[id(guarded)] = (
        memory[:GUARD].view(torch.int64).copy_(GUARDING),
        memory[end:].view(torch.int64).copy_(GUARDING),
    )
    weakref.finalize(guarded, guards.pop, id(guarded), None)
    return guarded


def require_guards(name: str) -> None:
    """Raises EmulationError where a kernel wrote beside a tensor, and mends the guards."""
    broken = [guard for pair in list(guards.values()) for guard in pair if not torch.equal(guard, GUARDING)]
    for guard in broken:
        guard.copy_(GUARDING)
    if broken:
        raise EmulationError(f"{name} wrote beyond the end, or before the beginning, of {len(broken)} tensors")


# ---- launches -------------------------------------------------------------------------------------------------------


def cuda(
    text: str, batch, call, tiles: int, tile: int, device: Device, scratch: str | None = None, without: str = ""
) -> Callable[[str], Callable[[], None]]:
    """As `launch.cuda`, on the emulated device."""
    unit = unit_on(text, device)

    def kernel(name: str, together: int = 1):
        shared = 0 if scratch is None or name == without else launch.shared_bytes(text, scratch, device)
        blocks = -(-tiles // together)
        return functools.partial(
            unit.run, name, (batch, call), blocks, launch.whole_warps(tile * together), shared, device
        )

    return kernel


def constant(text: str, name: str, device: Device) -> int:
    """As `launch.device_constant`."""
    return unit_on(text, device).constant(name)


def unit_on(text: str, device: Device) -> "Unit":
    """The unit as the device has it, with its fault and watched as it is."""
    return compiled(faulty(text, device), *[True][: device.watched])


def faulty(text: str, device: Device) -> str:
    """The unit with the device's fault put in.

    Raises:
        ValueError: it has not the text that the fault replaces.
    """
    if device.fault is None:
        return text
    right, wrong = device.fault
    if right not in text:
        raise ValueError(f"the unit has no {right!r}")
    return text.replace(right, wrong)


launched: dict[str, set[str]] = {}  # names of the kernels that were run, by unit


class Unit:
    """A unit's kernels, compiled for the CPU.

    Args:
        text: as NVRTC would get it.
        watched: its accesses to memory are.
    """

    def __init__(self, text: str, watched: bool = False):
        self._text, self._watched = text, watched
        self.kernels, prepared = prepare(numbered(text)[0] if watched else text)
        self._library = emulated_library(prepared, watched)
        self._machine = emulated_library(compile.expand(FOLDER / "threads.cpp"))
        self._machine.the_machine.restype = ctypes.c_void_p
        self._library.use(ctypes.c_void_p(self._machine.the_machine()))
        self._launch = self._machine.launch
        self._launch.restype = ctypes.c_char_p
        self._launch.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint),
            *(ctypes.c_longlong, ctypes.c_longlong, *[ctypes.c_int] * 4),
        ]
        self._library.bytes_of_shared.restype = ctypes.c_longlong
        self._shared = self._library.bytes_of_shared()

    def constant(self, name: str) -> int:
        """The value of an integer constant."""
        return ctypes.c_longlong.in_dll(self._library, f"constant_{name}").value

    def run(self, name: str, arguments: tuple, blocks: int, threads: int, shared: int, device: Device) -> None:
        """Runs a kernel on structs, in blocks of so many threads with so many bytes of dynamic shared memory.

        Raises:
            EmulationError: says which threads did what.
        """
        most = ctypes.c_int.in_dll(self._library, f"most_threads_of_{name}").value
        if threads > most:
            raise EmulationError(f"{name} is launched by blocks of {threads} threads; its bounds say {most}")
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        function = ctypes.cast(getattr(self._library, f"run_{name}"), ctypes.c_void_p)
        failure = self._launch(
            function,
            pointers,
            blocks,
            threads,
            self._shared,
            shared,
            device.order,
            device.reciprocal_ulp,
            self._watched,
            device.left_out,
        )
        launched.setdefault(self._text, set()).add(name)
        if failure:
            raise EmulationError(f"{name}: {failure.decode()}")
        require_guards(name)


compiled = functools.cache(Unit)


def barriers(text: str) -> dict[int, str]:
    """The calls of `sync()` in a unit, by their numbers: "file: code before it"."""
    marked, places = numbered(text)
    return {int(number): places[int(number)] for number in re.findall(r"PASS\((\d+)\)", preprocessed(marked))}


def reached() -> set[int]:
    """The numbers of the calls that watched threads came to since the last time."""
    counts = (ctypes.c_int * MOST).in_dll(emulated_library(compile.expand(FOLDER / "threads.cpp")), "reached")
    found = {number for number, count in enumerate(counts) if count}
    ctypes.memset(counts, 0, ctypes.sizeof(counts))
    return found


# ---- text -----------------------------------------------------------------------------------------------------------


def prepare(text: str) -> tuple[tuple[str, ...], str]:
    """The names of a unit's kernels, and C++ that has each as a function `run_<name>` on pointers to its arguments."""
    unit = without_assembly(preprocessed(text))
    kernels = list(KERNEL.finditer(unit))
    assert len(kernels) == unit.count("__global__"), "a kernel is declared in a form that is not known here"
    constants = CONSTANT.findall(unit)
    unit = DYNAMIC.sub(r"\1* const \2 = reinterpret_cast<\1*>(machine->dynamic);", unit)
    unit = STATIC.sub(shared_declaration, unit)
    assert "__shared__" not in unit, "shared memory is declared in a form that is not known here"
    inside, outside = [], ['extern "C" {', '#define EXPORTED __attribute__((visibility("default")))']
    for found in kernels:
        bounds, name, parameters = found.groups()
        types = [re.sub(r"^const |\s*\w+$", "", one.strip()) for one in parameters.split(",")]
        given = ", ".join(f"*static_cast<const {kind}*>(arguments[{n}])" for n, kind in enumerate(types))
        signature = f"void (*)({', '.join(f'const {kind}' for kind in types)})"
        inside.append(
            f"void call_{name}(const void* const* arguments) {{ static_cast<{signature}>({name})({given}); }}"
        )
        outside.append(f"EXPORTED void run_{name}(const void* const* arguments) {{ call_{name}(arguments); }}")
        most = f"first_of{bounds.removeprefix('__launch_bounds__')}" if bounds else "1024"
        inside.append(f"constexpr int bound_of_{name} = {most};")
        outside.append(f"EXPORTED extern const int most_threads_of_{name} = bound_of_{name};")
    outside += [f"EXPORTED extern const long long constant_{name} = {name};" for name in constants]
    unit = re.sub(r'extern\s+"C"\s+(__global__|__constant__)', r"\1", unit)
    head = compile.expand(FOLDER / "device.hpp")
    first = "constexpr int first_of(int most, int = 0, int = 0) { return most; }"
    lines = [head, "namespace {", unit, first, *inside, "}", *outside, "}", ""]
    return tuple(found[2] for found in kernels), "\n".join(lines)


def shared_declaration(found: re.Match) -> str:
    """References to places in shared memory, for what a statement declares."""
    alignment, kind, declared = found.groups(default="")
    parts = []
    for one in declared.split(","):
        name, sizes = re.fullmatch(r"\s*(\w+)\s*((?:\[[^\[\]]*\]\s*)*)", one).groups()
        place = f"struct Of_{name} {{ {alignment} {kind} value{sizes}; }};"
        parts.append(f"{place} auto& {name} = Shared<Of_{name}>::get().value;")
    return " ".join(parts)


def numbered(text: str) -> tuple[str, list[str]]:
    """The unit with a number before each call of `sync()`, by which the machine says if it is made; their places."""
    lines, places, file, before = text.split("\n"), [], "", ""
    for at, line in enumerate(lines):
        code, comment, rest = line.partition("//")
        if named := re.match(r'#line \d+ "(.*)"', line):
            file = named[1]
            continue
        first, *others = SYNC.split(code)
        for other in others:
            place = f"{file}: {first.strip() if first.strip(BARE) else before}"
            again = sum(one.startswith(place) for one in places)
            places.append(f"{place} ({again + 1})" if again else place)
            first += f"(PASS({len(places) - 1}) ? sync() : (void)0){other}"
        lines[at] = first + comment + rest
        before = code.strip() if code.strip(BARE) and code[0] != "#" else before
    return "\n".join(lines), places


def preprocessed(text: str) -> str:
    """The text as NVRTC sees it: the macros of the GPU's form expanded."""
    macros = ("-D__CUDACC__", "-D__CUDACC_RTC__", "-D__CUDA_ARCH__=900")
    command = [*compile.compiler(), "-std=c++17", "-E", "-x", "c++", *macros, "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    if result.returncode:
        raise compile.CompilerError(result.stderr)
    return result.stdout


def without_assembly(text: str) -> str:
    """The text without PTX: pins of registers and prefetches are left out, reciprocals are a function's.

    Raises:
        ValueError: other assembly, which it names.
    """
    parts, at = [], 0
    for found in re.finditer(r"\b(?:__asm__|asm)\s*(?:volatile|__volatile__)?\s*\(", text):
        end, depth = found.end(), 1
        while depth:  # parentheses within quoted text are balanced too
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        body = text[found.end() : end - 1].strip()
        reciprocal = RECIPROCAL.fullmatch(body)
        if reciprocal:
            instead = f"({reciprocal[1]}) = approximate_reciprocal({reciprocal[2]})"
        elif body.startswith('"prefetch') or PIN.fullmatch(body):
            instead = "(void)0"
        else:
            raise ValueError(f"the emulator knows no assembly {body!r}")
        parts += [text[at : found.start()], instead]
        at = end
    return "".join([*parts, text[at:]])
