"""Offloading in turns: what a slot's turns add up to is what the port and the original do with their action."""

import dataclasses

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge import original
from lockstep.envs.vehicular_edge.params import Params
from lockstep.envs.vehicular_edge.policies import view_of_original, view_of_port
from lockstep.envs.vehicular_edge.scenario import draw
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turn_by_turn import TurnByTurn
from lockstep.envs.vehicular_edge.turns import Turns, options, power_choices

SMALL = {"vehicles": 20, "slots": 12, "edges": 4, "components": 5}


def any_choice(mask: torch.Tensor, choices: int, generator: torch.Generator) -> torch.Tensor:
    """One of the choices that a mask [B, n] allows for each number, as likely as the others."""
    allowed = mask.view(len(mask) * choices, -1).float()
    return torch.multinomial(allowed, 1, generator=generator).view(len(mask), choices)


def play(turns: Turns, generator: torch.Generator):
    """A slot of random turns: its action."""
    while not turns.over:
        turns.choose(any_choice(turns.observe()[1], turns.params.tasks + 1, generator))
    return turns.action()


@pytest.mark.parametrize("traffic", ["city", "dense"])
def test_the_turns_of_an_episode_are_paid_its_return(traffic):
    port = envs.make("vehicular_edge", 6, traffic=traffic, scenarios=3, check_actions=True, **SMALL)
    env, generator = TurnByTurn(port), torch.Generator().manual_seed(0)
    mask, total = env.reset(seed=0)[1]["action_mask"], torch.zeros(6)
    steps = port.params.slots * port.params.clients
    for step in range(steps):
        action = any_choice(mask, port.params.tasks + 1, generator)
        _, reward, terminated, truncated, info = env.step(action)
        mask, total = info["action_mask"], total + reward
        assert not truncated.any()
        assert terminated.all() == terminated.any() == (step == steps - 1)
    found = env.statistics()
    assert found["episodes"] == 6
    assert found["return_mean"].item() == pytest.approx(total.mean().item(), abs=1e-4)


@pytest.mark.parametrize("traffic", ["city", "dense", "sparse"])
def test_those_whom_the_turns_admit_are_those_whom_the_port_admits(traffic):
    port = envs.make("vehicular_edge", 5, traffic=traffic, scenarios=5, **SMALL)
    port.reset(seed=0)
    packed, generator = tables(np, port.scenarios), torch.Generator().manual_seed(1)
    for _ in range(port.params.slots - 1):
        turns = Turns(view_of_port(port, packed))
        given = play(turns, generator)
        admitted = (turns._node < turns._nowhere).sum(dim=(1, 2))
        assert torch.equal(port.step(given)[4]["admitted"].flatten().long(), admitted)


def test_original_and_port_are_seen_alike():
    scenario = draw(Params(**SMALL), "city")
    slow, fast = original.make(scenario=scenario), envs.make("vehicular_edge", 1, scenarios=scenario, dtype="float64")
    slow.reset(seed=0)
    fast.reset(seed=0)
    packed, generator = tables(np, [scenario]), torch.Generator().manual_seed(2)
    for _ in range(SMALL["slots"] - 1):
        one, other = Turns(view_of_original(slow, packed)), Turns(view_of_port(fast, packed))
        while not one.over:
            (seen, mask), (seen_too, mask_too) = one.observe(), other.observe()
            assert torch.allclose(seen, seen_too, rtol=1e-5, atol=1e-6)
            assert torch.equal(mask, mask_too)
            chosen = any_choice(mask, scenario.params.tasks + 1, generator)
            assert torch.equal(one.choose(chosen), other.choose(chosen))
        given = one.action()
        slow.step_decoded(given["target"][0].numpy(), given["share"][0].numpy())
        _, reward, *_ = fast.step(given)
        assert reward[0, 0].item() == pytest.approx(float(slow.record["reward"]), abs=1e-6)


def test_a_node_that_is_full_is_no_option_for_later_clients():
    port = envs.make("vehicular_edge", 1, traffic="dense", scenarios=1, cap_cloud=2, **SMALL)
    port.reset(seed=0)
    turns = Turns(view_of_port(port))
    K, J = options(port.params), port.params.tasks
    open_for = []
    while not turns.over:
        aims = turns.observe()[1].view(J + 1, K)[:J]
        open_for.append(bool(aims[0, -1]))
        chosen = torch.where(aims[:, -1], K - 1, 0)  # to the cloud, the last option
        turns.choose(torch.cat([chosen, torch.tensor([power_choices(port.params) - 1])])[None])
    assert open_for[0]
    assert not any(open_for[2:])  # a client has a task or more, so two fill it
    assert (turns._node == turns._nowhere - 1).sum() == 2


def test_a_cpu_serves_its_lightest_place():
    """That is an admitted task, or an empty one, which counts at the mean density."""
    scenario = draw(Params(**SMALL), "city")
    turns = Turns(view_of_original(original.make(scenario=scenario)))
    while not turns.over:  # nothing leaves its client
        turns.observe()
        turns.choose(torch.zeros(1, scenario.params.tasks + 1, dtype=torch.int64))
    share = turns.action()["share"][0].numpy()
    p = scenario.params
    for i in range(p.clients):
        block = share[i * (p.cap_local + 2) :][: p.cap_local]
        count = min(int(scenario.task_count[0, i]), p.cap_local)
        serves = np.full(p.cap_local, np.inf)
        serves[:count] = scenario.task_cycles[0, i, :count]
        if count < p.cap_local:
            serves[count] = scenario.mean_density
        assert np.array_equal(block > 0, serves == serves.min())


def test_the_published_reward_is_refused():
    port = envs.make("vehicular_edge", 1, preset="original", scenarios=1)
    with pytest.raises(ValueError, match=r"interference_in_mw=True \(Q2\): this needs the physical reward"):
        TurnByTurn(port)


def test_a_port_that_resets_in_the_next_step_is_refused_in_training():
    port = envs.make("vehicular_edge", 2, scenarios=1, autoreset_mode="NextStep", **SMALL)
    config = dataclasses.replace(ppo.CLEANRL, num_envs=2, horizon=44, total_steps=2 * 44)
    with pytest.raises(ValueError, match="autoreset_mode='NextStep': training needs 'SameStep'"):
        ppo.train(TurnByTurn(port), config)
