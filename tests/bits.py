"""Hashes of long runs of every environment: whether a change of the code has changed a bit of what kernels compute.

    python -m tests.bits --write before.json          at one revision
    python -m tests.bits --compare before.json        at another

Runs cover autoreset modes, precisions, threads, presets and launch forms. They hash states, observations, rewards,
flags, episodes' ends and statistics, in types that do not depend on how a batch keeps them.
"""

import argparse
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch

from lockstep import envs

MODES = ("SameStep", "NextStep", "Disabled")
DTYPES = ("float32", "float64")
SEED = 20
# Of environments of several lanes: their runs are shorter, and each of these is one more where the port has the option.
CHOICES = ({}, {"preset": "original"}, {"gains": "drawn"}, {"signed": True, "trace": True})
REPEATABLE = {"unseeded_instances": False}  # where a preset draws from no seed


class Hash:
    """A hash of arrays, integers as int64 and all else as float64."""

    def __init__(self):
        self._hash = hashlib.sha256()

    def add(self, *values):
        for value in values:
            array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
            wide = np.float64 if array.dtype.kind == "f" else np.int64
            self._hash.update(np.ascontiguousarray(array, dtype=wide).tobytes())

    def __str__(self):
        return self._hash.hexdigest()[:20]


def first_agent(env, tensor: torch.Tensor) -> torch.Tensor:
    """The first agent's part of [B, agents, ...], or the tensor itself where it has no such axis."""
    agents = getattr(env, "num_agents", 1)
    return tensor[:, 0] if agents > 1 and tensor.ndim > 1 and tensor.shape[1] == agents else tensor


def add_outputs(found: Hash, env, outputs):
    *tensors, info = outputs
    found.add(*(first_agent(env, tensor) for tensor in tensors))
    found.add(*(first_agent(env, info[key]) for key in ("final_obs", "episode_return", "episode_length", "_final_obs")))


def add_rest(found: Hash, env):
    state = env.state()
    found.add(*(state[key] for key in ("state", "episode", "terminated", "truncated")))
    found.add(state["elapsed"] if "elapsed" in state else state["t"])
    found.add(*(env.statistics()[key] for key in ("episodes", "return_mean", "length_mean")))


def stepped(name: str, num_envs: int, steps: int, mode: str, **options) -> str:
    """A run of single steps under the random policy, with resets of some environments in between."""
    checked = mode != "Disabled"  # what has ended may be stepped
    env = envs.make(name, num_envs, seed=SEED, autoreset_mode=mode, check_actions=checked, **options)
    found = Hash()
    found.add(first_agent(env, env.reset()[0]))
    key = "elapsed" if "elapsed" in env.state() else "t"
    env.set_state({key: np.arange(num_envs) * (env.max_episode_steps - 1) // num_envs})
    for k in range(steps):
        add_outputs(found, env, env.step(env.random_actions()[0]))
        ended = env.state()["terminated"] | env.state()["truncated"]
        if mode == "Disabled" and k % 5 == 0 and ended.any():
            found.add(first_agent(env, env.reset(options={"reset_mask": ended.reshape(num_envs, -1).any(1)})[0]))
    add_rest(found, env)
    return str(found)


def fused(name: str, num_envs: int, steps: int, policy="random", **options) -> str:
    """The same in launches of many steps, with trajectories where a policy other than the random one is given."""
    env, found = envs.make(name, num_envs, seed=SEED, **options), Hash()
    env.reset()
    for _ in range(3):
        rows = env.rollout(steps, policy) if policy == "random" else env.rollout(steps, policy, store="trajectory")
        found.add(*(rows[key].float() if rows[key].dtype == torch.bfloat16 else rows[key] for key in sorted(rows)))
        add_rest(found, env)
    return str(found)


def networks(name: str):
    """A linear policy and a small network with a critic, of numbers that do not depend on the machine."""
    env = envs.make(name, 2)
    n, space = env.single_observation_space.shape[0], env.single_action_space
    m = int(getattr(space, "n", 1))

    def numbers(*shape):
        count = int(np.prod(shape))
        return torch.from_numpy(((np.arange(count) * 37 % 101 - 50) / 80).reshape(shape).astype(np.float32))

    def network(outputs):
        layers = [torch.nn.Linear(*shape) for shape in ((n, 16), (16, 16), (16, outputs))]
        for layer in layers:
            layer.weight.data, layer.bias.data = numbers(*layer.weight.shape), numbers(*layer.bias.shape)
        return torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])

    return {"linear": envs.Linear(numbers(m, n), numbers(m)), "mlp": envs.MLP(network(m), network(1))}


def runs(name: str):
    """Every run of an environment: its label, and a function that makes it."""
    port = envs.port(name)
    if port.of("lanes") > 1:
        known = {"preset", "trace", *port.own_options, *port.params.__dataclass_fields__}
        pool = {"scenarios": 3} if "scenarios" in known else {}
        pool |= {key: value for key, value in REPEATABLE.items() if key in known}
        choices = [choice for choice in CHOICES if choice.keys() <= known]
        for choice, mode, dtype in itertools.product(choices, MODES, DTYPES):
            label = " ".join([mode, dtype, *(f"{key}={value}" for key, value in choice.items())])
            yield label, lambda m=mode, d=dtype, c=choice: stepped(name, 6, 60, m, dtype=d, **pool, **c)
        for dtype in DTYPES:
            yield f"fused {dtype}", lambda d=dtype: fused(name, 6, 40, dtype=d, **pool)
        yield "2 threads", lambda: stepped(name, 6, 20, "SameStep", threads=2, chunk=4, **pool)
        return
    for mode, dtype, threads in itertools.product(MODES, DTYPES, (1, 3)):
        yield (
            f"{mode} {dtype} {threads}",
            lambda m=mode, d=dtype, t=threads: stepped(name, 600, 150, m, dtype=d, threads=t),
        )
    yield "2 groups", lambda: stepped(name, 600, 100, "SameStep", groups=2, first_index=7)
    alone = port.of("lanes") > 1 or math.prod(port.of("action").shape) > 1  # no kernel carries any other policy
    others = {} if alone else networks(name)
    for policy, chosen in {"random": "random", **others}.items():
        for dtype in DTYPES:
            yield f"fused {policy} {dtype}", lambda p=chosen, d=dtype: fused(name, 600, 150, p, dtype=d)


def hashes(names, modes=MODES) -> dict[str, dict[str, str]]:
    """Of every run but those in other autoreset modes."""
    left_out = set(MODES) - set(modes)
    return {name: {label: run() for label, run in runs(name) if label.split()[0] not in left_out} for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("environments", nargs="*", help="all, unless some are named")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, help="a file for the hashes of this revision")
    what.add_argument("--compare", type=Path, help="a file that another revision wrote on this machine")
    options = parser.parse_args()
    found = hashes(options.environments or envs.names())
    if options.write:
        options.write.write_text(json.dumps(found, indent=1) + "\n")
        return
    before = json.loads(options.compare.read_text())
    different = [
        f"{name}: {label}" for name in found for label in before[name] if found[name].get(label) != before[name][label]
    ]
    print(f"{sum(map(len, found.values()))} runs, {len(different)} differ")
    sys.exit("\n".join(different) if different else 0)


if __name__ == "__main__":
    main()
