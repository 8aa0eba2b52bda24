"""An agent beside the policies: trained on one scenario or on many, then played greedily on seen and unseen ones."""

from collections.abc import Iterator

import numpy as np
import torch

import envs
from agents import ppo
from envs.vehicular_edge.original import AGENTS
from experiments.config import Settings
from experiments.offloading_episodes import UNSEEN, Episode, Job, drawn, environment_of, run


def trained(
    name: str, traffic: str, trained_on: str, seed: int, device: str, settings: Settings
) -> Iterator[tuple[int, Episode]]:
    """(scenario, episode) of unseen scenarios and then of those it was trained on, of one agent.

    Args:
        trained_on: "one" or "many" scenarios.
        settings: of offloading.agent: total_steps of training, pool of scenarios, scenarios to play of each kind.
    """
    pool = [drawn(traffic, index) for index in range(settings.pool if trained_on == "many" else 1)]
    chosen = ppo.config_of(name, total_steps=settings.total_steps, seed=seed)
    env = envs.make(name, chosen.num_envs, device=device, scenarios=pool, seed=seed)
    agent = ppo.train(env, chosen, device)
    unseen = range(UNSEEN, UNSEEN + settings.scenarios)
    for index in (*unseen, *range(min(settings.scenarios, len(pool)))):
        yield index, greedy(agent, traffic, index)


@torch.no_grad()
def greedy(agent: ppo.PPO, traffic: str, index: int) -> Episode:
    """An episode of the original under the agent's likeliest actions."""
    env = environment_of(Job(traffic, index, "ppo", 0))

    def act(observations: dict, _) -> tuple:
        seen = torch.from_numpy(np.stack([observations[name] for name in AGENTS]))[None]
        actions = agent.act(seen, greedy=True)[0].cpu().numpy()
        return env.step({name: row.clip(0.0, 1.0) for name, row in zip(AGENTS, actions, strict=True)})

    return run(env, act)
