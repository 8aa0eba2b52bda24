"""Stable-Baselines3's agents with the numbers of ours, on Gymnasium's environments as Stable-Baselines3 batches them.

What agents/ppo/ does as Stable-Baselines3 does it (initialisation, Adam's epsilon, gradient limit, normalised
advantages, values of truncated episodes) is left at its defaults. Its value loss lacks the factor 1/2, so that
vf_coef is halved, and its learning rate is read after the roll-out, so that the schedule is moved by one iteration.

What learns from a replay counts steps and updates as ours does. Its DQN has no double DQN, and draws once per step
whether all environments act at random. Its DDPG, TD3 and SAC act at random until they learn, ours ever less often over
epsilon_steps, and limit no gradient; their correlated noise begins anew with each episode, ours goes on; its
temperature goes down log p + target entropy without the factor alpha. For IQN it has QR-DQN (Dabney et al., 2018, of
sb3-contrib): fixed fractions, as many as ours takes a value from, no layer of fractions, and Adam's epsilon in
proportion to 1 / batch.
"""

import time
from collections.abc import Callable

from lockstep.experiments.bench import timing
from lockstep.experiments.learning_workers import Job, Streak, cold_and_warm, learning_rate, require, serve

TITLE = "sb3"
PACKAGE = "stable-baselines3"
LIBRARY = "Stable-Baselines3"
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

    require(job, LIBRARY, squash="clip", critic_lr=None, norm_obs=False, norm_reward=False, reward_scale=1.0)
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


def of_replay(job: Job, env, seed: int) -> dict:
    """The arguments that all take which learn from a replay."""
    require(job, LIBRARY, encoding="flat", reward_scale=1.0, norm_obs=False)
    ours = job.settings
    return {
        "policy": "MlpPolicy",
        "env": env,
        "buffer_size": ours["capacity"],
        "replay_buffer_kwargs": {"handle_timeout_termination": not ours["limit_ends"]},
        "learning_starts": ours["learning_starts"],
        "batch_size": ours["batch_size"],
        "gamma": ours["gamma"],
        "train_freq": ours["horizon"],
        "gradient_steps": round(ours["replay_ratio"] * ours["num_envs"] * ours["horizon"]),
        "tau": ours["tau"],
        "policy_kwargs": {"net_arch": list(ours["hidden"])},
        "seed": seed,
        "device": job.device,
    }


def of_values(job: Job, env, seed: int) -> dict:
    """The arguments that all take which learn values of actions."""
    ours = job.settings
    steps = ours["num_envs"] * ours["horizon"]

    def rate(remaining: float) -> float:
        return ours["lr"] * min(1.0, remaining + steps / ours["total_steps"] if ours["anneal_lr"] else 1.0)

    return of_replay(job, env, seed) | {
        "learning_rate": rate,
        "n_steps": ours["n_step"],
        "target_update_interval": ours["target_every"],
        "exploration_fraction": ours["epsilon_steps"] / ours["total_steps"],
        "exploration_initial_eps": ours["epsilon_start"],
        "exploration_final_eps": ours["epsilon_end"],
        "max_grad_norm": ours["max_grad_norm"],
    }


def dqn(job: Job, env, seed: int):
    from stable_baselines3 import DQN

    require(job, LIBRARY, double=False)
    return DQN(**of_values(job, env, seed))


def iqn(job: Job, env, seed: int):
    from sb3_contrib import QRDQN

    from lockstep.agents.parts import quantiles

    require(job, LIBRARY, cvar=1.0, cvar_gap=0.0, max_per_quantile=False)
    layers = [job.settings["features"], *job.settings["hidden"]]
    given = of_values(job, env, seed) | {"policy_kwargs": {"net_arch": layers, "n_quantiles": quantiles.MEANT}}
    return QRDQN(**given)


def of_box(job: Job, env, seed: int) -> dict:
    """The arguments that all take which learn a Box of actions."""
    require(job, LIBRARY, squash="tanh", epsilon_end=0.0)
    return of_replay(job, env, seed) | {"learning_rate": job.settings["lr"], "n_steps": job.settings["n_step"]}


def of_noise(job: Job, env, seed: int) -> dict:
    """The arguments that those of them take whose actor has no distribution."""
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    shape, correlation = env.action_space.shape, job.settings["noise_correlation"]
    mean, deviation = np.zeros(shape), np.full(shape, job.settings["noise"])
    noise = NormalActionNoise(mean, deviation)
    if correlation:
        innovation = deviation * np.sqrt(1 - correlation**2)
        noise = OrnsteinUhlenbeckActionNoise(mean, innovation, theta=1 - correlation, dt=1.0)
    return of_box(job, env, seed) | {"action_noise": noise}


def ddpg(job: Job, env, seed: int):
    from stable_baselines3 import DDPG

    require(job, LIBRARY, huber=False, target_every=1)
    return DDPG(**of_noise(job, env, seed))


def td3(job: Job, env, seed: int):
    from stable_baselines3 import TD3

    ours = job.settings
    require(job, LIBRARY, target_every=ours["policy_delay"] / ours["replay_ratio"])
    return TD3(
        **of_noise(job, env, seed),
        policy_delay=ours["policy_delay"],
        target_policy_noise=ours["target_noise"],
        target_noise_clip=ours["target_noise_limit"],
    )


def sac(job: Job, env, seed: int):
    from stable_baselines3 import SAC

    require(job, LIBRARY, target_actor=False, eval_samples=False, noise_correlation=0.0)
    ours = job.settings
    return SAC(
        **of_box(job, env, seed),
        ent_coef=f"auto_{ours['alpha']}" if ours["learn_alpha"] else ours["alpha"],
        target_update_interval=max(1, round(ours["target_every"] * ours["replay_ratio"])),
    )


# Functions (job, env, seed) to a model.
ALGORITHMS = {"ppo": ppo, "dqn": dqn, "iqn": iqn, "ddpg": ddpg, "td3": td3, "sac": sac}


def numbers(model) -> int:
    """The parameters of a model that are trained."""
    optimizers = filter(None, (getattr(part, "optimizer", None) for part in model.policy.modules()))
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return sum(parameter.numel() for group in groups for parameter in group["params"])


def greedy(model) -> Callable:
    """The greedy policy: from observations to actions of the environment, both tensors."""
    import torch

    return lambda obs: torch.from_numpy(model.predict(obs.numpy(), deterministic=True)[0])


def rates(job: Job, make_vector=vector, how: str = HOW) -> list[dict]:
    """A row per block of whole iterations."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        """Takes blocks of whole iterations, after WARM_UP iterations that learn."""

        iterations, enough, blocks, start = -1, False, None, None

        def _on_rollout_start(self) -> None:
            if self.num_timesteps < getattr(self.model, "learning_starts", 0):
                return
            self.iterations += 1
            if self.iterations >= WARM_UP and self.blocks is None:
                self.blocks = timing.Unslowed(job.blocks)
                self.start = self.now()
            elif self.blocks is not None:
                wall_s, cpu_s, env_steps = (after - at for at, after in zip(self.start, self.now(), strict=True))
                if wall_s >= timing.MIN_BLOCK_S:
                    self.enough = self.blocks.add({"wall_s": wall_s, "cpu_s": cpu_s, "env_steps": env_steps})
                    self.start = self.now()

        def now(self) -> tuple[float, float, int]:
            return time.perf_counter(), timing.cpu_seconds(), self.num_timesteps

        def _on_step(self) -> bool:
            return not self.enough

    env = make_vector(job, job.seeds[0])
    model, clock, before = ALGORITHMS[job.algorithm](job, env, job.seeds[0]), Clock(), timing.spent()
    model.learn(MANY_STEPS, callback=clock, log_interval=None)
    same = {"had": timing.spent().had_since(before)}
    env.close()
    same |= {"parameters": numbers(model), "reason": f"{type(model).__name__} {how}"}
    return [same | {"block": number} | spent for number, spent in enumerate(clock.blocks.results)]


def trained(job: Job, seed: int, callback=None) -> tuple[object, dict]:
    """A model after its run, which a callback may end, and its row, timed from its construction on."""
    start, before = time.perf_counter(), timing.spent()
    env = vector(job, seed)
    model = ALGORITHMS[job.algorithm](job, env, seed)
    model.learn(job.settings["total_steps"], callback=callback, log_interval=None)
    times = {"wall_s": time.perf_counter() - start, "had": timing.spent().had_since(before)}
    env.close()
    about = {"parameters": numbers(model), "reason": f"{type(model).__name__} {HOW}"}
    return model, {"env_steps": model.num_timesteps} | times | about


def score(job: Job, model) -> float:
    """The mean return of greedy episodes in Gymnasium's environments."""
    from lockstep.agents.run import evaluation

    return float(evaluation.in_original(job.environment, greedy(model)).returns.mean())


def solve(job: Job, seed: int) -> dict:
    """One seed: from the model's construction until two checks in succession reached what counts as solved.

    since_start_s is its end since the process's start. Checks play the port, as ours do; its policy costs it several
    hundred forwards of torch each, a few percent of the time.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    from lockstep.agents.run import evaluation

    streak, every = Streak(job.solved), job.settings["eval_every"]

    class Check(BaseCallback):
        checked, solved = 0, False

        def _on_training_start(self) -> None:
            self.episodes = evaluation.PortEpisodes(job.environment)

        def look(self) -> None:
            if self.num_timesteps // every > self.checked and not self.solved:
                self.checked = self.num_timesteps // every
                self.solved = streak.ends_with(self.episodes.play(greedy(self.model)).returns.mean())

        _on_rollout_start = _on_training_end = look

        def _on_step(self) -> bool:
            return not self.solved

    check = Check()
    model, row = trained(job, seed, check)
    row |= {"seed": seed, "since_start_s": time.monotonic() - job.started, "score": score(job, model)}
    return row | {"solved": int(check.solved and row["score"] >= job.solved)}


def final(job: Job) -> list[dict]:
    """One row: the score after the steps that a run has."""
    model, row = trained(job, job.seeds[0])
    return [row | {"score": score(job, model)}]


def measure(job: Job) -> list[dict]:
    import torch

    torch.set_num_threads(job.threads)
    if job.part == "solve":
        return cold_and_warm(lambda seed: solve(job, seed), job.seeds)
    return rates(job) if job.blocks else final(job)


if __name__ == "__main__":
    serve(measure)
