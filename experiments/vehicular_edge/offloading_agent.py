"""Agents beside the policies: trained on one scenario or on many, then played on seen and unseen ones.

"ppo" decides client by client, with one network for all of them (`envs/vehicular_edge/turns.py`). "mappo" is the two
agents that the environment has, with a network each, which choose all numbers of a slot at once, by the recipe.
"""

import numpy as np
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge.policies import view_of_original
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turn_by_turn import TurnByTurn
from lockstep.envs.vehicular_edge.turns import Turns
from lockstep.experiments import originals
from lockstep.experiments.config import Settings
from lockstep.experiments.vehicular_edge import LIKELIEST
from lockstep.experiments.vehicular_edge.offloading import Group
from lockstep.experiments.vehicular_edge.offloading_episodes import UNSEEN, Episode, Job, drawn, environment_of, run


def trained(group: Group, asked: Settings) -> list[tuple[str, int, Episode]]:
    """(policy, scenario, episode) of one agent: on unseen scenarios and then on those it was trained on.

    Each is played twice: "<policy>" draws actions as in training, "<policy>_mean" takes the likeliest.

    Args:
        group: of an agent; its scenarios are the number to play on, of those it has seen and of others.
        asked: settings of all agents; those of "ppo", whose steps are turns, stand beside CleanRL's, those of "mappo"
            beside the recipe's.
    """
    by_turns, threads = group.policy == "ppo", originals.cores()
    torch.set_num_threads(threads)
    pool = [drawn(group.traffic, index) for index in range(asked.pool if group.trained_on == "many" else 1)]
    recipe, own = ("cleanrl", {}) if by_turns else (None, {"actors": "each"})
    settings = own | asked.plain()[group.policy]
    chosen = ppo.config_of("vehicular_edge", recipe, seed=group.seed, threads=threads, **settings)
    options = {"device": group.device, "scenarios": pool, "seed": group.seed, "check_actions": False}
    env = envs.make("vehicular_edge", chosen.num_envs, threads=threads, **options)
    agent = ppo.train(TurnByTurn(env) if by_turns else env, chosen, group.device)
    unseen = range(UNSEEN, UNSEEN + group.scenarios)
    play = played_by_turns if by_turns else played_at_once
    return [
        (group.policy + LIKELIEST * greedy, index, play(agent, group.traffic, index, greedy))
        for index in (*unseen, *range(min(group.scenarios, len(pool))))
        for greedy in (False, True)
    ]


def played_at_once(agents: ppo.PPO, traffic: str, index: int, greedy: bool) -> Episode:
    """An episode of the original under both agents."""
    env = environment_of(Job(traffic, index, "mappo", 0))
    torch.manual_seed(index)

    def act(observations: dict, _) -> tuple:
        seen = np.stack([observations[agent] for agent in env.agents])[None]
        found = agents.act(torch.from_numpy(seen).float(), greedy=greedy)[0].cpu().numpy()
        return env.step(dict(zip(env.agents, found, strict=True)))

    return run(env, act, traffic)


@torch.no_grad()
def played_by_turns(agent: ppo.PPO, traffic: str, index: int, greedy: bool) -> Episode:
    """An episode of the original under the agent."""
    env = environment_of(Job(traffic, index, "ppo", 0))
    packed = tables(np, env.scenarios)
    torch.manual_seed(index)

    def act(*_) -> tuple:
        turns = Turns(view_of_original(env, packed), agent.device)
        while not turns.over:
            seen, mask = turns.observe()
            turns.choose(agent.act(seen, greedy=greedy, mask=mask))
        action = turns.action()
        return env.step_decoded(action["target"][0].cpu().numpy(), action["share"][0].cpu().numpy())

    return run(env, act, traffic)
