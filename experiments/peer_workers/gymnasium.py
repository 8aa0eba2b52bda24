"""Gymnasium's vector environments: its own vectorised class where a task has one, else a loop in Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.experiments.peer_workers import Group, Loop, NextStep, NotMeasured, Task, drawn_actions

TITLE = "Gymnasium"
PACKAGES = ("gymnasium", "numpy")
LARGEST_LOOP = 8192


def differences(gymnasium_id: str) -> str | None:
    return "" if gymnasium_id else None


def groups(sizes: Mapping[int, list[int]]) -> list[Group]:
    return [Group("step", size, threads=1) for size in sizes]


@contextmanager
def loop(task: Task, group: Group) -> Iterator[Loop]:
    import gymnasium

    vectorised = gymnasium.spec(task.gymnasium_id).vector_entry_point is not None
    if not vectorised and group.num_envs > LARGEST_LOOP:
        raise NotMeasured(f"SyncVectorEnv is a Python loop, no faster per step beyond {LARGEST_LOOP:,} environments")
    env = gymnasium.make_vec(
        task.gymnasium_id,
        num_envs=group.num_envs,
        vectorization_mode="vector_entry_point" if vectorised else "sync",
    )
    env.reset(seed=task.seed)
    steps = NextStep(env.step, drawn_actions(env.single_action_space, group.num_envs, task.seed), group.num_envs)
    how = f"{type(env.unwrapped).__name__}, next-step reset"
    yield Loop(steps.run, how, "float64", live_share=steps.live_share)
    env.close()
