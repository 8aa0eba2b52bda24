"""Agents beside the policies: trained on one scenario or on many, then played on seen and unseen ones.

"ppo" decides client by client, with one network for all of them (`envs/vehicular_edge/turns.py`). "mappo" is the two
agents that the environment has, with a network each, which choose all numbers of a slot at once, by the recipe.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge.policies import view_of_original
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turn_by_turn import TurnByTurn
from lockstep.envs.vehicular_edge.turns import Turns
from lockstep.experiments.vehicular_edge.offloading_episodes import UNSEEN, Episode, Job, drawn, environment_of, run


class Run(NamedTuple):
    """One agent."""

    policy: str  # ppo | mappo
    traffic: str
    trained_on: str  # one | many scenarios
    seed: int
    device: str
    settings: Mapping  # of training: of ppo, whose steps are turns, beside those of CleanRL; of mappo, the recipe's
    pool: int  # scenarios that "many" are
    scenarios: int  # to play on, of those it has seen and of others


def trained(run_of: Run) -> list[tuple[str, int, Episode]]:
    """(policy, scenario, episode) of one agent: on unseen scenarios and then on those it was trained on.

    Each is played twice: "<policy>" draws actions as in training, "<policy>_mean" takes the likeliest.
    """
    by_turns = run_of.policy == "ppo"
    pool = [drawn(run_of.traffic, index) for index in range(run_of.pool if run_of.trained_on == "many" else 1)]
    recipe, own = ("cleanrl", {}) if by_turns else (None, {"actors": "each"})
    chosen = ppo.config_of("vehicular_edge", recipe, seed=run_of.seed, **own | dict(run_of.settings))
    options = {"device": run_of.device, "scenarios": pool, "seed": run_of.seed, "check_actions": False}
    env = envs.make("vehicular_edge", chosen.num_envs, **options)
    agent = ppo.train(TurnByTurn(env) if by_turns else env, chosen, run_of.device)
    unseen = range(UNSEEN, UNSEEN + run_of.scenarios)
    play = played_by_turns if by_turns else played_at_once
    return [
        (run_of.policy + "_mean" * greedy, index, play(agent, run_of.traffic, index, greedy))
        for index in (*unseen, *range(min(run_of.scenarios, len(pool))))
        for greedy in (False, True)
    ]


def trained_beside_others(run_of: Run) -> list[tuple[str, int, Episode]]:
    """The same on one thread, for a process that is one of as many as there are cores."""
    torch.set_num_threads(1)
    return trained(run_of)


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
