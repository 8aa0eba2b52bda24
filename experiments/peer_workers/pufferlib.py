"""PufferLib 3: environments in C, stepped by one thread; of the classic tasks it has CartPole.

Its build downloads raylib and Box2D, so that it does not install everywhere.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.experiments.peer_workers import Group, Loop, Task, drawn_actions

TITLE = "PufferLib"
PACKAGES = ("pufferlib", "gymnasium", "numpy")
DIFFERENCES = {"CartPole-v1": "limit 200, not flagged; start ±0.04; last reward 0; one random stream for all"}


def differences(gymnasium_id: str) -> str | None:
    return DIFFERENCES.get(gymnasium_id)


def groups(sizes: Mapping[int, list[int]]) -> list[Group]:
    return [Group("step", size, threads=1) for size in sizes]


def made(identity: str, num_envs: int, **options):
    """A batch of a task of Gymnasium's name; ValueError where it has none."""
    if identity not in DIFFERENCES:
        raise ValueError(f"it has no {identity}")
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    return Cartpole(num_envs=num_envs, **options)


@contextmanager
def loop(task: Task, group: Group) -> Iterator[Loop]:
    env = made(task.gymnasium_id, group.num_envs, seed=task.seed)
    env.reset(seed=task.seed)
    actions = drawn_actions(env.single_action_space, group.num_envs, task.seed)

    def run() -> int:
        env.step(next(actions))
        return group.num_envs

    yield Loop(run, "C loop, same-step reset", "float32")
    env.close()
