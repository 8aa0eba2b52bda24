"""Runs every kernel of the environments and of the agents at a small size, watched by NVIDIA's compute-sanitizer.

    python -m tests.sanitize                  every tool below, one after the other; fails on any finding
    python -m tests.sanitize --device cpu     the same calls without a GPU: is any kernel left out?

No call is written down for a kernel: each unit that was loaded must have had all of its entry points launched.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import torch

import envs
from agents.normaliser import ReturnScale
from agents.rollout import Advantage, Noise, Order
from envs import launch
from envs.kernels import compile
from envs.policies import HIDDEN
from envs.vectorised import MODES

TOOLS = ("memcheck", "racecheck", "synccheck")
CLEAN = re.compile(r"SUMMARY: 0 (errors|hazards)")
AGENTS = "agents"  # among the names of environments
STEPS = 20
# Of one thread each: two groups, neither of which fills a block or its last warp, and episodes that end.
SMALL = {"num_envs": 300, "groups": 2, "first_index": 5, "max_episode_steps": 9, "check_actions": False}
# Of one block each: two launches, the second one smaller.
BLOCKS = {"num_envs": 5, "chunk": 3, "first_index": 5, "scenarios": 2, "check_actions": False}
SPECIAL = {  # builds that presets, modes and types do not lead to
    "vehicular_edge": [{"profile": True}, {"gains": "drawn", "vehicles": 500, "edges": 25}],
}


def threads(name: str, device: str) -> None:
    """All builds of an environment of one thread."""
    views = ("copy", "view") if envs.port(name).observes_state else ("copy",)
    for mode, dtype, obs in itertools.product(MODES, ("float32", "float64"), views):
        if (dtype, obs) == ("float64", "view"):
            continue
        env = envs.make(name, device=device, autoreset_mode=mode, dtype=dtype, obs=obs, **SMALL)
        env.reset(seed=[1, 2])
        for step in range(STEPS):
            for kind in env._actions.types:
                env.step(env.random_actions(2)[step % 2].to(kind))
        restart(env)
        if mode == "SameStep":
            roll_out(env, HIDDEN[-1] if dtype == "float32" else HIDDEN[0])


def roll_out(env, hidden: int) -> None:
    """Fused steps under each policy, with everything kept that can be."""
    outputs, inputs = env.port.policy_shape
    linear = envs.Linear(np.ones((outputs, inputs)), np.zeros(outputs))
    actor, critic = (network(inputs, hidden, count, env.device) for count in (outputs, 1))
    for policy in ("random", linear, envs.MLP(actor, critic), envs.MLP(actor, greedy=True)):
        env.rollout(STEPS, policy)
        for kept in ("float32", "bfloat16"):
            env.rollout(STEPS, policy, "trajectory", kept)


def network(inputs: int, hidden: int, outputs: int, device: torch.device) -> torch.nn.Sequential:
    layers = torch.nn
    first, second = layers.Linear(inputs, hidden), layers.Linear(hidden, hidden)
    return layers.Sequential(first, layers.Tanh(), second, layers.Tanh(), layers.Linear(hidden, outputs)).to(device)


def blocks(name: str, device: str) -> None:
    """The builds of an environment of one block."""
    same = [
        {"preset": preset, "dtype": dtype}
        for preset, dtype in itertools.product(envs.port(name).presets, ("float32", "float64"))
    ]
    waiting = [{"autoreset_mode": mode, "signed": True, "trace": True} for mode in ("NextStep", "Disabled")]
    for options in [*same, *waiting, *SPECIAL.get(name, [])]:
        env = envs.make(name, device=device, **BLOCKS | options)
        env.reset(seed=1)
        env.set_state({"t": env.max_episode_steps - 2})  # so that all episodes end in the second step
        for _ in range(4):
            env.step(env.random_actions(2)[1])
        target = torch.zeros((env.num_envs, *env.sizes.targets), dtype=torch.int32, device=env.device)
        env.step({"target": target, "share": torch.ones((env.num_envs, env.sizes.shares), device=env.device)})
        restart(env)
        if env.autoreset_mode.value == "SameStep":
            env.set_state({"t": env.max_episode_steps - 2})
            env.rollout(4)


def restart(env) -> None:
    """Resets some environments, and puts the state back that there was."""
    before = env.state()
    env.reset(options={"reset_mask": torch.arange(env.num_envs, device=env.device) % 3 == 0})
    env.set_state(before)
    env.reset()


def agents(device: str) -> None:
    """What a roll-out needs around the environment, in sizes that fill no block."""
    T, N = 33, 150
    number = torch.full((1,), 7, dtype=torch.int64, device=device)
    Noise([1, 2], N, first_index=5, agents=3, blocks=2, steps=T, device=device).draw(number)
    Order([1, 2], 1000, 3, device).draw(number)
    reward, value, bootstrap = (torch.ones(T + more, N, device=device) for more in (0, 1, 0))
    flags = [torch.arange(T * N, device=device).view(T, N) % every == 0 for every in (7, 11)]
    for valid in (None, ~flags[0]):
        Advantage((T, N), 0.9, 0.8, device).compute(reward, value, bootstrap, *flags, valid)
        ReturnScale(N, 0.9, device=device)(reward, *flags, valid)


def exercise(device: str, names: list[str]) -> int:
    """Runs what is named and returns how many kernels that was; SystemExit names those that were not launched."""
    launched: dict[str, set[str]] = {}

    def noting(load):
        def lookup(text, *arguments, **options):
            find, found = load(text, *arguments, **options), launched.setdefault(text, set())

            def kernel(name):
                run = find(name)

                def noted():
                    found.add(name)
                    run()

                return noted

            return kernel

        return lookup

    loaders = launch.cpu, launch.cuda
    launch.cpu, launch.cuda = map(noting, loaders)
    try:
        for name in names:
            before = set(launched)
            if name == AGENTS:
                agents(device)
            else:
                {"thread": threads, "block": blocks}[envs.port(name).kind](name, device)
            if device == "cuda":
                torch.cuda.synchronize()
            units = [text for text in launched if text not in before]
            missing = {kernel for text in units for kernel in compile.entry_points(text) - launched[text]}
            if missing or not units:
                sys.exit(f"sanitize: {name}: never launched: {', '.join(sorted(missing)) or 'any kernel'}")
            print(f"{name}: {sum(len(launched[text]) for text in units)} kernels of {len(units)} units", flush=True)
    finally:
        launch.cpu, launch.cuda = loaders
    return sum(map(len, launched.values()))


def watched(tool: str, program: str, names: list[str]) -> bool:
    """Whether a tool finds nothing in a process that runs what is named."""
    command = [program, "--tool", tool, "--error-exitcode", "1"]
    command += [sys.executable, "-m", "tests.sanitize", "--unwatched", "--only", *names]
    # Memory that torch keeps for itself would hide what lies beside a tensor: each then has an allocation of its own.
    own = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    print(f"---- {tool}", flush=True)
    process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode == 0 and bool(CLEAN.search("".join(lines)))


def main() -> None:
    known = [*envs.names(), AGENTS]
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: without compute-sanitizer")
    parser.add_argument("--only", nargs="+", choices=known, default=known, metavar="ENV", help="default: all")
    parser.add_argument("--tools", nargs="+", choices=(*TOOLS, "initcheck"), default=TOOLS)
    parser.add_argument("--unwatched", action="store_true", help="on the GPU, but without compute-sanitizer")
    options = parser.parse_args()
    if options.device == "cuda" and not envs.cuda_available():
        sys.exit("sanitize: this machine has no usable CUDA device; --device cpu runs the kernels without one")
    if options.device == "cpu" or options.unwatched:
        exercise(options.device, options.only)
        return
    program = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if program is None:
        sys.exit("sanitize: compute-sanitizer is not installed; it comes with the CUDA toolkit")
    for name in options.only:  # unwatched first, which compiles, and finds what is wrong without a tool
        exercise("cuda", [name])
    found = [tool for tool in options.tools if not watched(tool, program, options.only)]
    if found:
        sys.exit(f"sanitize: findings, or no result, of {', '.join(found)} (above)")
    print("sanitize: nothing found")


if __name__ == "__main__":
    main()
