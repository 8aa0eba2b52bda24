"""rejax's PPO with the numbers of ours, on gymnax's environments: everything in JAX, compiled by XLA.

Its learning rate may be a schedule, so it is annealed as ours. What it has no setting for stays: initialisation as
flax's, Adam's epsilon 1e-8, each gradient component limited (not the norm), actor and critic updated one after the
other, values always limited, a truncated episode taken for a terminated one.
"""

import time

from lockstep.experiments.bench import timing
from lockstep.experiments.learning_workers import Job, Streak, cold_and_warm, learning_rate, require, serve

TITLE = "rejax"
PACKAGE = "rejax"
ALGORITHMS = ("ppo",)
HOW = "PPO on gymnax; other initialisation, gradient limit and value clipping, truncation taken for termination"
EPISODES, FIRST_SEED = 100, 10_000  # of a check and of a score, as in agents/run/evaluation.py, whose torch is not here


def algorithm(job: Job):
    """rejax's PPO with the job's numbers."""
    require(job, TITLE, squash="clip", critic_lr=None, norm_obs=False, norm_reward=False, reward_scale=1.0)
    import jax.numpy as jnp
    from rejax import PPO

    ppo = job.settings
    updates = ppo["epochs"] * ppo["minibatches"]

    def rate(count):  # updates so far
        return jnp.asarray(learning_rate(ppo, count // updates))

    return PPO.create(
        env=job.gymnasium_id,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": tuple(ppo["hidden"])},
        num_envs=ppo["num_envs"],
        num_steps=ppo["horizon"],
        num_epochs=ppo["epochs"],
        num_minibatches=ppo["minibatches"],
        total_timesteps=ppo["total_steps"],
        learning_rate=rate,
        gamma=ppo["gamma"],
        gae_lambda=ppo["gae_lambda"],
        clip_eps=ppo["clip"],
        ent_coef=ppo["ent_coef"],
        vf_coef=ppo["vf_coef"],
        max_grad_norm=ppo["max_grad_norm"],
    )


def greedy(algo, state):
    """A function (obs [n], key) to the most likely action."""

    def act(obs, key):
        return algo.actor.apply(state.actor_ts.params, obs[None], method="_action_dist").mode()[0]

    return act


def numbers(state) -> int:
    """The parameters of actor and critic."""
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves((state.actor_ts.params, state.critic_ts.params)))


def rates(job: Job) -> list[dict]:
    """A row per block of whole iterations; the first call's seconds, compilation included, stand in each."""
    import jax

    start = time.perf_counter()
    algo = algorithm(job)
    iterate = jax.jit(algo.train_iteration)
    state = iterate(jax.jit(algo.init_state)(jax.random.key(job.seeds[0])))
    jax.block_until_ready(state)
    first_s = time.perf_counter() - start

    def run() -> None:
        nonlocal state
        state = iterate(state)

    batch = job.settings["num_envs"] * job.settings["horizon"]
    blocks = timing.measure(
        run, steps_per_call=batch, synchronize=lambda: jax.block_until_ready(state), blocks=job.blocks
    )
    same = {"parameters": numbers(state), "reason": f"{HOW}; first call {first_s:.1f} s"}
    return [
        same
        | {"block": number, "env_steps": block.steps}
        | {"wall_s": block.wall_s, "cpu_s": block.cpu_s, "had": block.had}
        for number, block in enumerate(blocks)
    ]


def solve(job: Job) -> list[dict]:
    """A warm row per seed: from its first numbers until two checks in succession reached what counts as solved.

    The iterations between two checks are one compiled call, the check another, which plays gymnax's environments.
    Compilation lies in a run of another seed before them, which is the cold row: its time is from the process's start.
    """
    import jax
    from rejax.evaluate import evaluate_single

    algo = algorithm(job)
    batch = job.settings["num_envs"] * job.settings["horizon"]
    every = max(1, job.settings["eval_every"] // batch)
    checks = job.settings["total_steps"] // (batch * every)
    init = jax.jit(algo.init_state)
    train = jax.jit(lambda state: jax.lax.fori_loop(0, every, lambda _, now: algo.train_iteration(now), state))

    @jax.jit
    def check(state, key):
        keys, limit = jax.random.split(key, EPISODES), algo.env_params.max_steps_in_episode
        play = jax.vmap(evaluate_single, in_axes=(None, None, None, 0, None))
        return play(greedy(algo, state), algo.env, algo.env_params, keys, limit)[1].mean()

    def one(seed: int) -> dict:
        start, before, streak, solved = time.perf_counter(), timing.spent(), Streak(job.solved), False
        key = jax.random.key(seed)
        state = init(key)
        for number in range(1, checks + 1):
            state = train(state)
            if solved := streak.ends_with(float(check(state, jax.random.fold_in(key, number)))):
                break
        row = {"seed": seed, "env_steps": number * every * batch, "wall_s": time.perf_counter() - start}
        row["had"] = timing.spent().had_since(before)
        row |= {"since_start_s": time.monotonic() - job.started, "parameters": numbers(state), "reason": HOW}
        score = in_original(job.gymnasium_id, algo, state)
        return row | {"score": score, "solved": int(solved and score >= job.solved)}

    return cold_and_warm(one, job.seeds)


def in_original(gymnasium_id: str, algo, state) -> float:
    """Mean return of greedy episodes in Gymnasium, as agents/run/evaluation.py plays them."""
    import gymnasium
    import jax
    import numpy as np

    act = jax.jit(lambda obs: jax.vmap(greedy(algo, state), in_axes=(0, None))(obs, None))
    originals = [gymnasium.make(gymnasium_id, disable_env_checker=True) for _ in range(EPISODES)]
    obs = np.array([env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(originals)])
    total, running = 0.0, list(range(len(originals)))
    while running:
        actions = np.asarray(act(obs))  # of ended ones as well, so that shapes stay and nothing compiles anew
        for i in list(running):
            seen, reward, terminated, truncated, _ = originals[i].step(actions[i])
            obs[i] = seen
            total += float(reward)
            if terminated or truncated:
                running.remove(i)
    return total / len(originals)


def measure(job: Job) -> list[dict]:
    return rates(job) if job.part == "rate" else solve(job)


if __name__ == "__main__":
    serve(measure)
