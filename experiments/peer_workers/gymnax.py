"""gymnax: environments in JAX, batched by vmap and compiled by XLA; actions are drawn inside what is compiled.

The differences of its tasks were found by stepping Gymnasium's classes from the same states.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.experiments.ledger import provenance
from lockstep.experiments.peer_workers import Group, Loop, Task

TITLE = "gymnax"
PACKAGES = ("gymnax", "jax", "jaxlib", "jax-cuda13-plugin", "numpy")
DEVICES = ("cpu", "cuda")
FUSED_STEPS = 128
DIFFERENCES = {
    "CartPole-v1": "",
    "MountainCar-v0": "",
    "MountainCarContinuous-v0": "the left wall does not stop the car",
    "Pendulum-v1": "",
    "Acrobot-v1": "",
}


def differences(gymnasium_id: str) -> str | None:
    return DIFFERENCES.get(gymnasium_id)


def groups(sizes: Mapping[int, list[int]]) -> list[Group]:
    """XLA takes as many cores as it finds useful."""
    modes, cores = (("step", 1), ("fused", FUSED_STEPS)), provenance.core_count()
    return [Group(mode, size, cores, steps) for size in sizes for mode, steps in modes]


@contextmanager
def loop(task: Task, group: Group) -> Iterator[Loop]:
    import gymnax
    import jax
    import jax.numpy as jnp

    env, params = gymnax.make(task.gymnasium_id)
    space = env.action_space(params)
    vector_step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def actions(key: jax.Array) -> jax.Array:
        if hasattr(space, "n"):
            return jax.random.randint(key, (group.num_envs,), 0, space.n)
        return jax.random.uniform(key, (group.num_envs, *space.shape), minval=space.low, maxval=space.high)

    def step(key: jax.Array, state) -> tuple:
        key, for_actions, for_steps = jax.random.split(key, 3)
        keys = jax.random.split(for_steps, group.num_envs)
        observation, state, reward, terminated, truncated, _ = vector_step(keys, state, actions(for_actions), params)
        return key, state, observation, reward, terminated, truncated

    def step_and_sum(carry: tuple, _) -> tuple:
        key, state, returns, episodes = carry
        key, state, _, reward, terminated, truncated = step(key, state)
        return (key, state, returns + reward, episodes + (terminated | truncated)), None

    def rollout(key: jax.Array, state) -> tuple:
        sums = jnp.zeros(group.num_envs), jnp.zeros(group.num_envs, jnp.int32)
        return jax.lax.scan(step_and_sum, (key, state, *sums), length=group.fused_steps)[0]

    fused = group.mode == "fused"
    call = jax.jit(rollout if fused else step)
    key, for_reset = jax.random.split(jax.random.key(task.seed))
    _, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(jax.random.split(for_reset, group.num_envs), params)
    latest = key, state
    steps = group.fused_steps * group.num_envs

    def run() -> int:
        nonlocal latest
        latest = call(*latest[:2])
        return steps

    how = f"lax.scan over {group.fused_steps} steps, sums kept" if fused else "one jitted step, all outputs"
    yield Loop(run, how, "float32", synchronize=lambda: jax.block_until_ready(latest))
