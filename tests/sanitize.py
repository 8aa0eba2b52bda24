"""Runs every kernel of the environments and of the agents at a small size, watched by a tool that sees wrong accesses.

    python -m tests.sanitize                  every tool of the device, one after the other; fails on any finding
    python -m tests.sanitize --device cpu     the CPU's, with a GPU too
    python -m tests.sanitize --canaries       without a tool: what is written beside a tensor is found
    python -m tests.sanitize --unwatched      without any: is any kernel left out?

On a GPU the tools are those of NVIDIA's compute-sanitizer; without one the same text is compiled for the CPU under
AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer with two threads, that is with their pool.

No call is written down for a kernel: each unit that was loaded must have had all of its entry points launched. So must
the C++ in which agents learn on a CPU.
"""

import argparse
import contextlib
import ctypes
import itertools
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch.overrides import TorchFunctionMode

from lockstep import envs
from lockstep.agents.parts import distributions, native
from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.parts.adam import Adam
from lockstep.agents.parts.gae import GAE
from lockstep.agents.parts.minibatches import MinibatchOrder
from lockstep.agents.parts.mlp import MLP
from lockstep.agents.parts.noise import Noise
from lockstep.agents.parts.normaliser import ReturnScale
from lockstep.agents.ppo.compiled import CompiledUpdate
from lockstep.envs.batch import launch
from lockstep.envs.batch.port import MODES
from lockstep.envs.kernels import compile
from lockstep.envs.marine_navigation.params import VERSIONS
from lockstep.envs.policies import HIDDEN

TOOLS = ("memcheck", "racecheck", "synccheck")
THREADS = 2
OF_TORCH = Path(__file__).with_name("tsan.supp")
OF_COMPILER = {  # the tools of a CPU: flags, the library that the process begins with, and settings of that
    "address": (
        "-fsanitize=address,undefined,float-cast-overflow",  # the last is not one of GCC's `undefined`
        "libasan.so",
        "ASAN_OPTIONS=detect_leaks=0",
    ),
    "thread": (
        "-fsanitize=thread",
        "libtsan.so",
        f"TSAN_OPTIONS=halt_on_error=1:exitcode=66:suppressions='{OF_TORCH}'",
    ),
}
UNDEFINED = ": runtime error: "  # each place once; what runs goes on
CPU_KERNEL = re.compile(r'extern "C"[^;{}]*\bvoid (\w+)\(const \w+\* ?\w*, const \w+\* ?\w*, i64 first, i64 last\)')
CLEAN = re.compile(r"SUMMARY: 0 (errors|hazards)")
AGENTS = "agents"  # among the names of environments
STEPS = 20
# Options of one thread to an environment: two groups, neither of which fills a block or its last warp; episodes end.
ONE_LANE = {"num_envs": 300, "groups": 2, "first_index": 5, "max_episode_steps": 9, "check_actions": False}
# Options of several threads to one: two launches, the second one smaller.
SEVERAL_LANES = {"num_envs": 5, "chunk": 3, "first_index": 5, "max_episode_steps": 40, "check_actions": False}
OWN = {"scenarios": 2}  # of options that not all of them have
SPECIAL = {  # builds that presets, modes and types do not lead to
    "vehicular_edge": [{"profile": True}, {"gains": "drawn", "vehicles": 500, "edges": 25}],
    "marine_navigation": [
        *({"version": version, "preset": preset} for version in VERSIONS for preset in ("corrected", "original")),
        {"action_kind": "discrete"},
        {"robots": 20, "cores": 8, "min_goal_distance": 20.0},
    ],
    "vehicle_routing": [
        *({"oracle": oracle, "reward": "twin"} for oracle in ("insertion", "greedy:mixed", "am-sample:3")),
        {"oracle": "insertion", "preset": "original", "unseeded_instances": False},
        {"oracle": "insertion", "mode": "vrptw", "fleet": "hard"},
    ],
    "crypto_trading": [{"rule": "equal_weight"}, {"rule": "equal_weight", "preset": "cappuccino"}],
}


class Canaries(TorchFunctionMode):
    """Gives each tensor that is made in here a pattern of bytes before and behind it; `changed` tells which differ.

    They stand where a kernel writes that runs over the ends of a tensor, on machines where nothing else watches it.
    """

    MAKERS = (torch.empty, torch.empty_like, torch.zeros, torch.zeros_like, torch.ones, torch.full)
    MARGIN = 256  # bytes: tensors stay aligned as torch aligns them

    def __init__(self):
        super().__init__()
        self._kept: list[tuple[str, torch.Tensor]] = []

    def __torch_function__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        return self._between_canaries(made) if function in self.MAKERS and made.numel() else made

    def _between_canaries(self, made: torch.Tensor) -> torch.Tensor:
        frame = next(one for one in reversed(traceback.extract_stack()) if one.filename != __file__)
        of = (
            f"{str(made.dtype).removeprefix('torch.')} {list(made.shape)} of {Path(frame.filename).name}:{frame.lineno}"
        )
        pattern = self._pattern(made.device)
        around = torch.cat([pattern, torch.zeros(made.nbytes, dtype=torch.uint8, device=made.device), pattern])
        self._kept.append((of, around))
        inside = around[self.MARGIN : -self.MARGIN].view(made.dtype).view(made.shape)
        return inside.copy_(made).requires_grad_(made.requires_grad)

    def _pattern(self, device: torch.device) -> torch.Tensor:
        return torch.arange(self.MARGIN, device=device).mul(101).add(90).to(torch.uint8)

    def changed(self) -> list[str]:
        """Tells the tensors beside which something was written, and how far the nearest byte is; forgets them all."""
        found = []
        for of, around in self._kept:
            pattern = self._pattern(around.device)
            before = (around[: self.MARGIN] != pattern).nonzero()
            behind = (around[-self.MARGIN :] != pattern).nonzero()
            found += [f"{self.MARGIN - int(before.max())} bytes before {of}"] if len(before) else []
            found += [f"{int(behind.min()) + 1} bytes behind {of}"] if len(behind) else []
        self._kept.clear()
        return found


def target(device: str) -> str:
    """The architecture that is compiled for: the GPU's own, so that what is in the cache is found; or the newest."""
    return "sm_{}{}".format(*torch.cuda.get_device_capability()) if device == "cuda" else compile.TARGETS[-1]


def entry_points(text: str, device: str) -> set[str]:
    """Names of a unit's kernels, of the CPU's as the preprocessor leaves them."""
    if device == "cuda":
        return in_cubin(text, target(device))
    command = [*compile.compiler(), "-std=c++17", "-E", "-P", "-x", "c++", "-"]
    preprocessed = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return set(CPU_KERNEL.findall(preprocessed))


def in_cubin(text: str, target: str) -> set[str]:
    """Names of a unit's kernels, by the sections of its binary; needs no GPU."""
    binary = compile.cubin_file(text, target).read_bytes()
    return {name.decode() for name in re.findall(rb"\0\.text\.(\w+)", binary)}


def functions(library: str) -> set[str]:
    """Names of the functions that a library has for Python."""
    said = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {name for _, kind, name in map(str.split, said.splitlines()) if kind == "T" and not name.startswith("_")}


def small(name: str, device: str, **options):
    """A small batch of an environment, as its launch form needs it."""
    port = envs.port(name)
    own = {option: value for option, value in OWN.items() if option in port.own_options}
    return envs.make(name, device=device, **(SEVERAL_LANES if several_lanes(name) else ONE_LANE) | own | options)


def several_lanes(name: str) -> bool:
    """True where several threads of a GPU hold an environment."""
    return envs.port(name).of("lanes") > 1


def builds(name: str, device: str) -> None:
    """All builds of an environment."""
    (builds_of_several_lanes if several_lanes(name) else builds_of_one_lane)(name, device)


def builds_of_one_lane(name: str, device: str) -> None:
    port, types = envs.port(name), ("float32", "float64")
    same = [{"preset": preset, "dtype": dtype} for preset, dtype in itertools.product(port.presets, types)]
    waiting = [{"autoreset_mode": mode, "dtype": dtype} for mode in ("NextStep", "Disabled") for dtype in types]
    views = [{"autoreset_mode": mode, "obs": "view"} for mode in MODES] if port.observes_state else []
    for options in [*same, *waiting, *views, *SPECIAL.get(name, [])]:
        env = small(name, device, **options)
        env.reset(seed=[1, 2])
        for step in range(STEPS):
            for kind in env.actions.types:
                env.step(env.random_actions(2)[step % 2].to(kind))
        restart(env)
        if env.autoreset_mode.value == "SameStep":
            roll_out(env, HIDDEN[0] if options.get("dtype") == "float64" else HIDDEN[-1])


def roll_out(env, hidden: int) -> None:
    """Fused steps under each policy, with everything kept that can be."""
    policies: list = ["random"]
    if env.actions.numbers == 1:
        outputs, inputs = env.port.policy_shape
        actor, critic = (network(inputs, hidden, count, env.device) for count in (outputs, 1))
        policies.append(envs.Linear(np.ones((outputs, inputs)), np.zeros(outputs)))
        policies += [envs.MLP(actor, critic), envs.MLP(actor, greedy=True)]
    for policy in policies:
        env.rollout(STEPS, policy)
        for kept in ("float32", "bfloat16"):
            env.rollout(STEPS, policy, "trajectory", kept)


def network(inputs: int, hidden: int, outputs: int, device: torch.device) -> torch.nn.Sequential:
    layers = torch.nn
    first, second = layers.Linear(inputs, hidden), layers.Linear(hidden, hidden)
    return layers.Sequential(first, layers.Tanh(), second, layers.Tanh(), layers.Linear(hidden, outputs)).to(device)


def forms_of_several_lanes(name: str) -> list[dict]:
    """Options of every build of an environment that several lanes hold."""
    port = envs.port(name)
    same = [
        {"preset": preset, "dtype": dtype} for preset, dtype in itertools.product(port.presets, ("float32", "float64"))
    ]
    signed = {"signed": True} if "signed" in port.own_options else {}
    waiting = [{"autoreset_mode": mode, "trace": bool(port.record)} | signed for mode in ("NextStep", "Disabled")]
    return [*same, *waiting, *SPECIAL.get(name, [])]


def builds_of_several_lanes(name: str, device: str) -> None:
    for options in forms_of_several_lanes(name):
        env = small(name, device, **options)
        env.reset(seed=1)
        env.set_state({"elapsed": last_but_one(env)})  # so that all episodes end in the second step
        for _ in range(4):
            env.step(env.random_actions(2)[1])
        if name in OWN_FORM:
            env.step(OWN_FORM[name](env))
        restart(env)
        if env.autoreset_mode.value == "SameStep":
            env.set_state({"elapsed": last_but_one(env)})
            env.rollout(4)


def last_but_one(env) -> np.ndarray:
    return np.full(env.num_envs, env.max_episode_steps - 2)


def integers(env) -> dict[str, torch.Tensor]:
    """A decision of the vehicular edge in integers."""
    shapes = (env.num_envs, env.params.clients, env.params.tasks), (env.num_envs, env.params.share_length)
    target = torch.zeros(shapes[0], dtype=torch.int32, device=env.device)
    return {"target": target, "share": torch.ones(shapes[1], device=env.device)}


OWN_FORM = {"vehicular_edge": integers}  # of actions, where a port decodes one


def restart(env) -> None:
    """Resets some environments, and puts the state back that there was."""
    before = env.state()
    env.reset(options={"reset_mask": torch.arange(env.num_envs, device=env.device) % 3 == 0})
    env.set_state(before)
    env.reset()


def agents(device: str) -> None:
    """A roll-out's surroundings, in sizes that fill no block, and on the CPU what learns from one."""
    T, N = 33, 150
    number = torch.full((1,), 7, dtype=torch.int64, device=device)
    Noise([1, 2], N, first_index=5, agents=3, blocks=2, steps=T, device=device).draw(number)
    MinibatchOrder([1, 2], 1000, 3, device).draw(number)
    reward, value, bootstrap = (torch.ones(T + more, N, device=device) for more in (0, 1, 0))
    flags = [torch.arange(T * N, device=device).view(T, N) % every == 0 for every in (7, 11)]
    for valid in (None, ~flags[0]):
        GAE((T, N), 0.9, 0.8, device).compute(reward, value, bootstrap, *flags, valid)
        ReturnScale(N, 0.9, device=device)(reward, *flags, valid)
    if device == "cpu":
        learners()


def learners() -> None:
    """Gradients and steps of networks, in sizes that fill no vector and no tile."""
    for dtype, widths, rows in itertools.product(native.REALS, ((3, 1), (5, 70, 33, 2)), (1, 19)):
        network = MLP(widths, torch.device("cpu"), dtype=dtype)
        kept = network.activations(torch.ones(rows, widths[0], dtype=dtype))
        for descends in (False, True):
            network.backward(kept, torch.ones_like(kept[-1]), descends)
        Adam(network.parameters, network.gradient, limit=0.5).step(lr=0.1)
    box = Box(-np.ones(2, np.float32), np.ones(2, np.float32))
    for space, hidden in ((Discrete(3), HIDDEN[0]), (box, HIDDEN[-1])):
        update_of_ppo(distributions.of(space), hidden)


def update_of_ppo(distribution, hidden: int) -> None:
    """Updates of two learners with two shards, in one process and as one of several."""
    inputs, rows, count = 5, 131, 300
    shape = (inputs, distribution.outputs, distribution.free, (hidden, hidden))
    networks = ActorCritic(*shape, learners=2, seeds=range(2))
    batch = {name: torch.ones(count) for name in ("log_prob", "advantage", "target", "value")}
    batch["obs"] = torch.ones(count, inputs)
    batch["action"] = torch.ones(count, *distribution.stored_shape, dtype=distribution.stored_dtype)
    chosen = torch.arange(2 * 2 * rows).view(2, 2, rows) % count
    for reduce in (None, lambda tensor: None):
        update = CompiledUpdate(
            *(networks, distribution, batch, torch.full((2,), 0.1), torch.zeros(2)),
            **{"rows": rows, "threads": ONE_LANE.get("threads", 1), "shards": 2, "reduce": reduce},
        )
        update.update(chosen)


def exercise(device: str, names: list[str], canaries: bool = False) -> int:
    """Runs what is named and returns how many kernels that was.

    Raises:
        SystemExit: kernels were not launched, or something was written beside a tensor.
    """
    launched: dict[str, set[str]] = {}
    exported: dict[str, set[str]] = {}

    def noting_functions(load):
        def library(text, *more):
            found = load(text, *more)
            if native.OPTIMISED not in more:  # a batch's, or the pool
                return found
            again, called = ctypes.CDLL(found._name), launched.setdefault(text, set())
            exported[text] = functions(found._name)

            class Noted(again._FuncPtr):
                _flags_, _restype_ = again._FuncPtr._flags_, again._FuncPtr._restype_

                def __call__(self, *arguments):
                    called.add(self.__name__)
                    return super().__call__(*arguments)

            again._FuncPtr = Noted
            return again

        return library

    def noting(load):
        def lookup(text, *arguments, **options):
            find, found = load(text, *arguments, **options), launched.setdefault(text, set())

            def kernel(name, *arguments):
                run = find(name, *arguments)

                def noted():
                    found.add(name)
                    run()

                return noted

            return kernel

        return lookup

    loaders, load = (launch.cpu, launch.cuda), compile.library
    launch.cpu, launch.cuda = map(noting, loaders)
    compile.library = noting_functions(load)
    try:
        for name in names:
            before, around = set(launched), Canaries()
            with around if canaries else contextlib.nullcontext():
                if name == AGENTS:
                    agents(device)
                else:
                    builds(name, device)
            if device == "cuda":
                torch.cuda.synchronize()
            if changed := around.changed():
                sys.exit(f"sanitize: {name}: written: {'; '.join(changed)}")
            units = [text for text in launched if text not in before]
            called = set().union(*(launched[text] for text in exported))  # a source may be part of several units
            missing = {one for text in units for one in exported.get(text, set()) - called}
            kernels = [text for text in units if text not in exported]
            missing |= {one for text in kernels for one in entry_points(text, device) - launched[text]}
            if missing or not units:
                sys.exit(f"sanitize: {name}: never launched: {', '.join(sorted(missing)) or 'any kernel'}")
            print(f"{name}: {sum(len(launched[text]) for text in units)} kernels of {len(units)} units", flush=True)
    finally:
        launch.cpu, launch.cuda = loaders
        compile.library = load
    return sum(map(len, launched.values()))


def watched(tool: str, program: str, names: list[str]) -> bool:
    """Tells if a tool finds nothing in a process that runs what is named."""
    command = [program, "--tool", tool, "--error-exitcode", "1"]
    command += [sys.executable, "-m", "tests.sanitize", "--unwatched", "--only", *names]
    # Memory that torch keeps for itself would hide what lies beside a tensor: each then has an allocation of its own.
    status, said = told(tool, command, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    return status == 0 and bool(CLEAN.search(said))


def watched_by_compiler(tool: str, words: list[str]) -> tuple[int, str]:
    """Status, which is not 0 after a finding, and output of Python, its kernels compiled with a tool of OF_COMPILER.

    Raises:
        SystemExit: the compiler has no such library.
    """
    flags, library, settings = OF_COMPILER[tool]
    # Exceptions of C++ are watched as well, so that their library must be there from the beginning.
    preloaded = [library_of_compiler(name) for name in (library, "libstdc++.so")]
    own = {"LD_PRELOAD": " ".join(preloaded), "LOCKSTEP_CXXFLAGS": f"-O0 -g1 {flags}"}
    status, said = told(tool, [sys.executable, *words], own | dict([settings.split("=", 1)]))
    return status or int(UNDEFINED in said), said


def library_of_compiler(name: str) -> str:
    command = [*compile.compiler(), f"-print-file-name={name}"]
    path = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    if not path.is_absolute():  # as it was given, where there is none
        sys.exit(f"sanitize: {compile.compiler()[0]} has no {name}; g++ brings it, say CXX=g++")
    return str(path.resolve())


def told(tool: str, command: list[str], own: dict[str, str]) -> tuple[int, str]:
    """Status and output of a command, which is printed as it comes; `own` stands in its environment too."""
    own = os.environ | own
    print(f"---- {tool}", flush=True)
    process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def program(tool: str) -> str | None:
    """The path of a tool of the CUDA toolkit, None where it is not installed."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")


def arguments() -> argparse.Namespace:
    known = [*envs.names(), AGENTS]
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="ENV", help="default: all")
    parser.add_argument("--tools", nargs="+", choices=(*TOOLS, "initcheck", *OF_COMPILER), help="default: all")
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--unwatched", action="store_true", help="without a tool")
    parser.add_argument("--canaries", action="store_true", help="unwatched, with a pattern around each tensor")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    device = options.device or ("cuda" if envs.cuda_available() else "cpu")
    if device == "cuda" and not envs.cuda_available():
        sys.exit("sanitize: this machine has no usable CUDA device; --device cpu runs the kernels without one")
    for sizes in (ONE_LANE, SEVERAL_LANES):
        sizes.update({"threads": options.threads} if options.threads else {})
    if options.unwatched or options.canaries:
        exercise(device, options.only, options.canaries)
        return
    known = OF_COMPILER if device == "cpu" else (*TOOLS, "initcheck")
    for tool in options.tools or []:
        if tool not in known:
            sys.exit(f"sanitize: {tool} is no tool of the {device}; known: {', '.join(known)}")
    (on_cpu if device == "cpu" else on_gpu)(options.only, options.tools)


def on_cpu(names: list[str], tools: list[str] | None) -> None:
    """Each environment in a process of its own under each tool; SystemExit on findings."""
    found = []
    for tool, name in itertools.product(tools or OF_COMPILER, names):
        words = ["-m", "tests.sanitize", "--device", "cpu", "--unwatched", "--only", name]
        words += ["--threads", str(THREADS)] if tool == "thread" else []
        found += [f"{tool} of {name}"] if watched_by_compiler(tool, words)[0] else []
    conclude(found)


def on_gpu(names: list[str], tools: list[str] | None) -> None:
    """All under each tool of compute-sanitizer; SystemExit on findings."""
    found_at = program("compute-sanitizer")
    if found_at is None:
        sys.exit("sanitize: compute-sanitizer is not installed, it comes with the CUDA toolkit; --canaries needs none")
    for name in names:  # unwatched first, which compiles, and finds what is wrong without a tool
        exercise("cuda", [name])
    conclude([tool for tool in tools or TOOLS if not watched(tool, found_at, names)])


def conclude(found: list[str]) -> None:
    if found:
        sys.exit(f"sanitize: findings, or no result, of {', '.join(found)} (above)")
    print("sanitize: nothing found")


if __name__ == "__main__":
    main()
