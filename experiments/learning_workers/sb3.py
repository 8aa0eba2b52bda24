"""Stable-Baselines3's PPO with the numbers of ours, on Gymnasium's environments as Stable-Baselines3 batches them.

What agents/ppo.py does as Stable-Baselines3 does it (initialisation, Adam's epsilon, gradient limit, normalised
advantages, values of truncated episodes) is left at its defaults. Its value loss lacks the factor 1/2, so that
vf_coef is halved, and its learning rate is read after the roll-out, so that the schedule is moved by one iteration.
"""

import itertools
import math
import time

from lockstep.experiments.bench import timing
from lockstep.experiments.learning_workers import Job, Streak, cold_and_warm, learning_rate, serve

TITLE = "sb3"
PACKAGE = "stable-baselines3"
HOW = "PPO on DummyVecEnv, a Python loop over Gymnasium's environments"
WARM_UP = 2  # iterations before the first block
MANY_STEPS = 10**9  # a rate is measured until there are enough blocks


def vector(job: Job, seed: int):
    """B environments of Gymnasium."""
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(job.gymnasium_id, n_envs=job.ppo["num_envs"], seed=seed)


def model(job: Job, env, seed: int):
    import torch
    from stable_baselines3 import PPO

    ppo = job.ppo
    batch = ppo["num_envs"] * ppo["horizon"]
    iterations = ppo["total_steps"] // batch

    def rate(remaining: float) -> float:
        return learning_rate(ppo, max(0, round((1 - remaining) * iterations) - 1))

    return PPO(
        "MlpPolicy",
        env,
        learning_rate=rate,
        n_steps=ppo["horizon"],
        batch_size=batch // ppo["minibatches"],
        n_epochs=ppo["epochs"],
        gamma=ppo["gamma"],
        gae_lambda=ppo["gae_lambda"],
        clip_range=ppo["clip"],
        clip_range_vf=ppo["clip"] if ppo["clip_value"] else None,
        normalize_advantage=ppo["norm_adv"],
        ent_coef=ppo["ent_coef"],
        vf_coef=ppo["vf_coef"] / 2,
        max_grad_norm=ppo["max_grad_norm"],
        policy_kwargs={"net_arch": list(ppo["hidden"]), "activation_fn": torch.nn.Tanh},
        seed=seed,
        device=job.device,
    )


def numbers(trained) -> int:
    """The parameters of a model."""
    return sum(parameter.numel() for parameter in trained.policy.parameters())


def rates(job: Job, make_vector=vector, how: str = HOW) -> list[dict]:
    """A row per block of whole iterations."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Notes the time where a block ends; the first WARM_UP iterations say how many one has."""

        iterations, per_block, clocks = -1, 1, []

        def _on_rollout_start(self) -> None:
            self.iterations += 1
            now = time.perf_counter(), timing.cpu_seconds()
            if self.iterations == WARM_UP:
                self.per_block = math.ceil(timing.MIN_BLOCK_S / (now[0] - self.last))
            if self.iterations >= WARM_UP and (self.iterations - WARM_UP) % self.per_block == 0:
                self.clocks.append(now)
            self.last = now[0]

        def _on_step(self) -> bool:
            return len(self.clocks) <= job.blocks

    env = make_vector(job, job.seeds[0])
    trained, clock = model(job, env, job.seeds[0]), Clock()
    trained.learn(MANY_STEPS, callback=clock, log_interval=None)
    env.close()
    steps = clock.per_block * job.ppo["num_envs"] * job.ppo["horizon"]
    same = {"env_steps": steps, "parameters": numbers(trained), "reason": how}
    return [
        same | {"block": block, "wall_s": after[0] - before[0], "cpu_s": after[1] - before[1]}
        for block, (before, after) in enumerate(itertools.pairwise(clock.clocks))
    ]


def solve(job: Job, seed: int) -> dict:
    """One seed: from the model's construction until two checks in succession reached what counts as solved.

    since_start_s is its end since the process's start. Checks play the port, as ours do; its policy costs it several
    hundred forwards of torch each, a few percent of the time. The score afterwards is of Gymnasium's environments.
    """
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from lockstep.agents import evaluation

    start = time.perf_counter()
    env = vector(job, seed)
    trained = model(job, env, seed)
    episodes = evaluation.PortEpisodes(job.environment)
    streak, every = Streak(job.solved), job.ppo["eval_every"]

    def act(observation: torch.Tensor) -> torch.Tensor:
        return trained.policy.get_distribution(observation).mode()

    class Check(BaseCallback):
        checked, solved = 0, False

        def look(self) -> None:
            if self.num_timesteps // every > self.checked and not self.solved:
                self.checked = self.num_timesteps // every
                self.solved = streak.ends_with(episodes.play(act).returns.mean())

        _on_rollout_start = _on_training_end = look

        def _on_step(self) -> bool:
            return not self.solved

    check = Check()
    trained.learn(job.ppo["total_steps"], callback=check, log_interval=None)
    times = {"wall_s": time.perf_counter() - start, "since_start_s": time.monotonic() - job.started}
    env.close()
    with torch.no_grad():
        score = float(evaluation.in_original(job.environment, act).returns.mean())
    solved = int(check.solved and score >= job.solved)
    same = {"env_steps": trained.num_timesteps, "parameters": numbers(trained), "reason": HOW}
    return {"seed": seed, "score": score, "solved": solved} | times | same


def measure(job: Job) -> list[dict]:
    import torch

    torch.set_num_threads(job.threads)
    return rates(job) if job.part == "rate" else cold_and_warm(lambda seed: solve(job, seed), job.seeds)


if __name__ == "__main__":
    serve(measure)
