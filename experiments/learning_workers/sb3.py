"""Stable-Baselines3's agents with the numbers of ours, on Gymnasium's environments as Stable-Baselines3 batches them.

What agents/ppo/ does as Stable-Baselines3 does it (initialisation, Adam's epsilon, gradient limit, normalised
advantages, values of truncated episodes) is left at its defaults. Its value loss lacks the factor 1/2, so that
vf_coef is halved, and its learning rate is read after the roll-out, so that the schedule is moved by one iteration.

Its DQN counts steps and updates as ours does, has no double DQN, and draws once per step whether all environments act
at random.
"""

import itertools
import time

from lockstep.experiments.bench import timing
from lockstep.experiments.learning_workers import Job, Streak, cold_and_warm, learning_rate, serve

TITLE = "sb3"
PACKAGE = "stable-baselines3"
HOW = "on DummyVecEnv, a Python loop over Gymnasium's environments"
WARM_UP = 2  # iterations before the first block
MANY_STEPS = 10**9  # a rate is measured until there are enough blocks


def vector(job: Job, seed: int):
    """B environments of Gymnasium."""
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(job.gymnasium_id, n_envs=job.settings["num_envs"], seed=seed)


def ppo(job: Job, env, seed: int):
    import torch
    from stable_baselines3 import PPO

    ours = job.settings
    batch = ours["num_envs"] * ours["horizon"]
    iterations = ours["total_steps"] // batch

    def rate(remaining: float) -> float:
        return learning_rate(ours, max(0, round((1 - remaining) * iterations) - 1))

    return PPO(
        "MlpPolicy",
        env,
        learning_rate=rate,
        n_steps=ours["horizon"],
        batch_size=batch // ours["minibatches"],
        n_epochs=ours["epochs"],
        gamma=ours["gamma"],
        gae_lambda=ours["gae_lambda"],
        clip_range=ours["clip"],
        clip_range_vf=ours["clip"] if ours["clip_value"] else None,
        normalize_advantage=ours["norm_adv"],
        ent_coef=ours["ent_coef"],
        vf_coef=ours["vf_coef"] / 2,
        max_grad_norm=ours["max_grad_norm"],
        policy_kwargs={"net_arch": list(ours["hidden"]), "activation_fn": torch.nn.Tanh},
        seed=seed,
        device=job.device,
    )


def dqn(job: Job, env, seed: int):
    from stable_baselines3 import DQN

    ours = job.settings
    if ours["double"]:
        raise ValueError("Stable-Baselines3 has no double DQN; the settings must say double: false")
    steps = ours["num_envs"] * ours["horizon"]

    def rate(remaining: float) -> float:
        return ours["lr"] * min(1.0, remaining + steps / ours["total_steps"] if ours["anneal_lr"] else 1.0)

    return DQN(
        "MlpPolicy",
        env,
        learning_rate=rate,
        buffer_size=ours["capacity"],
        learning_starts=ours["learning_starts"],
        batch_size=ours["batch_size"],
        gamma=ours["gamma"],
        train_freq=ours["horizon"],
        gradient_steps=round(ours["replay_ratio"] * steps),
        target_update_interval=ours["target_every"],
        tau=ours["tau"],
        exploration_fraction=ours["epsilon_steps"] / ours["total_steps"],
        exploration_initial_eps=ours["epsilon_start"],
        exploration_final_eps=ours["epsilon_end"],
        max_grad_norm=ours["max_grad_norm"],
        policy_kwargs={"net_arch": list(ours["hidden"])},
        seed=seed,
        device=job.device,
    )


ALGORITHMS = {"ppo": ppo, "dqn": dqn}  # a function (job, env, seed) to a model


def numbers(trained) -> int:
    """The parameters of a model that are trained."""
    return sum(parameter.numel() for group in trained.policy.optimizer.param_groups for parameter in group["params"])


def rates(job: Job, make_vector=vector, how: str = HOW) -> list[dict]:
    """A row per block of whole iterations."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Notes the time where a block ends, with the iteration that fills it, after WARM_UP iterations that learn."""

        iterations, clocks = -1, []

        def _on_rollout_start(self) -> None:
            if self.num_timesteps < getattr(self.model, "learning_starts", 0):
                return
            self.iterations += 1
            now = time.perf_counter(), timing.cpu_seconds(), self.num_timesteps
            full = not self.clocks or now[0] - self.clocks[-1][0] >= timing.MIN_BLOCK_S
            if self.iterations >= WARM_UP and full:
                self.clocks.append(now)

        def _on_step(self) -> bool:
            return len(self.clocks) <= job.blocks

    env = make_vector(job, job.seeds[0])
    trained, clock, before = ALGORITHMS[job.algorithm](job, env, job.seeds[0]), Clock(), timing.spent()
    trained.learn(MANY_STEPS, callback=clock, log_interval=None)
    same = {"had": timing.spent().had_since(before)}
    env.close()
    same |= {"parameters": numbers(trained), "reason": f"{job.algorithm.upper()} {how}"}
    spent = ([after - before for before, after in zip(*pair, strict=True)] for pair in itertools.pairwise(clock.clocks))
    names = ("wall_s", "cpu_s", "env_steps")
    return [same | {"block": block} | dict(zip(names, numbers, strict=True)) for block, numbers in enumerate(spent)]


def solve(job: Job, seed: int) -> dict:
    """One seed: from the model's construction until two checks in succession reached what counts as solved.

    since_start_s is its end since the process's start. Checks play the port, as ours do; its policy costs it several
    hundred forwards of torch each, a few percent of the time. The score afterwards is of Gymnasium's environments.
    """
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from lockstep.agents.run import evaluation

    start, before = time.perf_counter(), timing.spent()
    env = vector(job, seed)
    trained = ALGORITHMS[job.algorithm](job, env, seed)
    episodes = evaluation.PortEpisodes(job.environment)
    streak, every = Streak(job.solved), job.settings["eval_every"]

    def act(observation: torch.Tensor) -> torch.Tensor:
        return trained.policy._predict(observation, deterministic=True)

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
    trained.learn(job.settings["total_steps"], callback=check, log_interval=None)
    times = {"wall_s": time.perf_counter() - start, "since_start_s": time.monotonic() - job.started}
    times["had"] = timing.spent().had_since(before)
    env.close()
    with torch.no_grad():
        score = float(evaluation.in_original(job.environment, act).returns.mean())
    solved = int(check.solved and score >= job.solved)
    same = {
        "env_steps": trained.num_timesteps,
        "parameters": numbers(trained),
        "reason": f"{job.algorithm.upper()} {HOW}",
    }
    return {"seed": seed, "score": score, "solved": solved} | times | same


def measure(job: Job) -> list[dict]:
    import torch

    torch.set_num_threads(job.threads)
    return rates(job) if job.part == "rate" else cold_and_warm(lambda seed: solve(job, seed), job.seeds)


if __name__ == "__main__":
    serve(measure)
