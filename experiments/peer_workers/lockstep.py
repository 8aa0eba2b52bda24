"""Our port, measured as the others are; one step per call on a GPU is a CUDA graph, which draws its actions as well."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.experiments.bench import timing
from lockstep.experiments.peer_workers import DRAWN_BATCHES, Group, Loop, Task, cycled

TITLE = "Lockstep"
PACKAGES = ("torch", "numpy")
DEVICES = ("cpu", "cuda")
FUSED_STEPS = 128


def differences(gymnasium_id: str) -> str | None:
    return ""


def groups(sizes: Mapping[int, list[int]]) -> list[Group]:
    modes = (("step", 1), ("fused", FUSED_STEPS))
    return [
        Group(mode, size, count, steps) for size, counts in sizes.items() for mode, steps in modes for count in counts
    ]


@contextmanager
def loop(task: Task, group: Group) -> Iterator[Loop]:
    import torch

    from lockstep import envs

    env = envs.make(task.environment, group.num_envs, device=group.device, seed=task.seed, threads=group.threads)
    env.reset(seed=task.seed)
    if group.mode == "fused":
        steps = group.fused_steps * group.num_envs

        def run() -> int:
            env.rollout(group.fused_steps, policy="random", store="statistics")
            return steps

        how = f"{group.fused_steps} steps in one call, sums kept"
    elif group.device == "cuda":
        graph = env.graph("random")

        def run() -> int:
            graph.replay()
            return group.num_envs

        how = "one step per call as a CUDA graph that draws the actions, same-step reset"
    else:
        actions = cycled(env.random_actions(DRAWN_BATCHES))

        def run() -> int:
            env.step(next(actions))
            return group.num_envs

        how = "one step per call, same-step reset"
    synchronize = torch.cuda.synchronize if group.device == "cuda" else timing.nothing
    yield Loop(run, how, "float32", synchronize=synchronize)
    env.close()
