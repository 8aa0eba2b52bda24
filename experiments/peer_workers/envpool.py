"""EnvPool: environments in C++, stepped by a pool of threads; here in its synchronous mode.

The differences of its tasks were found by stepping Gymnasium's classes from the same states.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.experiments.peer_workers import Group, Loop, NextStep, Task, drawn_actions

TITLE = "EnvPool"
PACKAGES = ("envpool", "gymnasium", "numpy")
FLAGS = "terminated is false where both flags hold"
DIFFERENCES = {
    "CartPole-v1": FLAGS,
    "MountainCar-v0": FLAGS,
    "MountainCarContinuous-v0": FLAGS,
    "Pendulum-v1": "the angle takes the speed before it is clipped",
    "Acrobot-v1": FLAGS,
}


def differences(gymnasium_id: str) -> str | None:
    return DIFFERENCES.get(gymnasium_id)


def groups(sizes: Mapping[int, list[int]]) -> list[Group]:
    return [Group("step", size, count) for size, counts in sizes.items() for count in counts]


@contextmanager
def loop(task: Task, group: Group) -> Iterator[Loop]:
    import envpool

    env = envpool.make_gymnasium(task.gymnasium_id, num_envs=group.num_envs, num_threads=group.threads, seed=task.seed)
    env.reset()
    actions = drawn_actions(env.action_space, group.num_envs, task.seed, actions_dtype(env.action_space))
    steps = NextStep(env.step, actions, group.num_envs)
    yield Loop(steps.run, "synchronous mode, next-step reset", "float64", live_share=steps.live_share)
    env.close()


def actions_dtype(space) -> str:
    """Actions as the C++ side reads them, so that nothing is converted."""
    return "int32" if hasattr(space, "n") else "float32"
