"""An agent beside the policies: trained on one scenario or on many, then played on seen and unseen ones."""

from typing import NamedTuple

import numpy as np
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge.params import AGENTS
from lockstep.experiments.vehicular_edge.offloading_episodes import UNSEEN, Episode, Job, drawn, environment_of, run


class Run(NamedTuple):
    """One agent."""

    traffic: str
    trained_on: str  # one | many scenarios
    seed: int
    device: str
    total_steps: int  # of training
    pool: int  # scenarios that "many" are
    scenarios: int  # to play on, of those it has seen and of others


def trained(run_of: Run) -> list[tuple[str, int, Episode]]:
    """(policy, scenario, episode) of one agent: on unseen scenarios and then on those it was trained on.

    Each is played twice: "ppo" draws actions as in training, "ppo_mean" takes the likeliest.
    """
    pool = [drawn(run_of.traffic, index) for index in range(run_of.pool if run_of.trained_on == "many" else 1)]
    chosen = ppo.config_of("vehicular_edge", total_steps=run_of.total_steps, seed=run_of.seed)
    env = envs.make("vehicular_edge", chosen.num_envs, device=run_of.device, scenarios=pool, seed=run_of.seed)
    agent = ppo.train(env, chosen, run_of.device)
    unseen = range(UNSEEN, UNSEEN + run_of.scenarios)
    return [
        (policy, index, played(agent, run_of.traffic, index, policy == "ppo_mean"))
        for index in (*unseen, *range(min(run_of.scenarios, len(pool))))
        for policy in ("ppo", "ppo_mean")
    ]


def trained_beside_others(run_of: Run) -> list[tuple[str, int, Episode]]:
    """The same on one thread, for a process that is one of as many as there are cores."""
    torch.set_num_threads(1)
    return trained(run_of)


@torch.no_grad()
def played(agent: ppo.PPO, traffic: str, index: int, greedy: bool) -> Episode:
    """An episode of the original under the agent."""
    env = environment_of(Job(traffic, index, "ppo", 0))
    torch.manual_seed(index)

    def act(observations: dict, _) -> tuple:
        seen = torch.from_numpy(np.stack([observations[name] for name in AGENTS]))[None]
        actions = agent.act(seen, greedy=greedy)[0].cpu().numpy()
        return env.step({name: row.clip(0.0, 1.0) for name, row in zip(AGENTS, actions, strict=True)})

    return run(env, act, traffic)
