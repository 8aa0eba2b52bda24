"""Offloading in turns: what a slot's turns add up to is what the port and the original do with their action."""

import dataclasses

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge import original
from lockstep.envs.vehicular_edge.charges import CONGESTION, charges
from lockstep.envs.vehicular_edge.params import WAITING, WEIGHTS, Params, queue_shapes
from lockstep.envs.vehicular_edge.policies import view_of_original, view_of_port
from lockstep.envs.vehicular_edge.scenario import draw
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turn_by_turn import TurnByTurn
from lockstep.envs.vehicular_edge.turns import Turns, options

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
    port = envs.make("vehicular_edge", 3, traffic="dense", scenarios=3, cap_edge=2, cap_server=1, cap_cloud=2, **SMALL)
    port.reset(seed=0)
    turns, generator = Turns(view_of_port(port)), torch.Generator().manual_seed(0)
    K, J = options(port.params), port.params.tasks
    full = torch.zeros(3, dtype=torch.int64)
    while not turns.over:
        mask = turns.observe()[1]
        node = turns._option_node[:, turns._turn, 1:]
        admitted = (turns._node.flatten(1)[:, None] == node[..., None]).sum(dim=-1)
        left = turns._cap[node] - admitted
        assert not (mask.view(3, J + 1, K)[:, :J, 1:] & (left <= 0)[:, None]).any()
        full += (left <= 0).sum(dim=1)
        turns.choose(any_choice(mask, J + 1, generator))
    assert (full > 10).all()


def test_options_are_the_nodes_that_charge_least_and_only_if_a_task_can_afford_them():
    port = envs.make("vehicular_edge", 4, traffic="dense", scenarios=2, **SMALL)
    port.reset(seed=0)
    packed, generator = tables(np, port.scenarios), torch.Generator().manual_seed(3)
    K, J, refused = options(port.params), port.params.tasks, 0
    for _ in range(port.params.slots - 1):
        turns = Turns(view_of_port(port, packed))
        charge = torch.where(turns._option_there, turns._option_charge, np.inf)[..., 1:]
        assert (charge[..., :-1] <= charge[..., 1:]).all()
        while not turns.over:
            turn, mask = turns._turn, turns.observe()[1]
            asked = mask.view(4, J + 1, K)[:, :J, 1:].nonzero().T
            task = turns._by_size[asked[0], turn, asked[1]]
            price = turns._option_charge[asked[0], turn, asked[2] + 1] * turns._mbit[asked[0], turn, task]
            success = 0.5 / torch.as_tensor(turns._view.now("count").sum(axis=1))
            assert (price * 0.5 / turns._load[asked[0]] <= success[asked[0]] * (1 + 1e-6)).all()
            reached = turns._option_there[:, turn, 1:] & (turns._room.gather(1, turns._option_node[:, turn, 1:]) > 0)
            refused += int((reached[:, None] & turns._real[:, turn, :, None]).sum()) - len(asked[0])
            turns.choose(any_choice(mask, J + 1, generator))
        port.step(turns.action())
    assert refused > 0


def of_queues(params: Params, fill, batch: int = 2):
    """Queues of every family and CPUs [Mbit/s] as fill(shape) makes them, and a load of 1000 Mbit a slot."""
    queues = {name: fill((batch, *shape)) for name, shape in queue_shapes(params).items()}
    return queues, 1.0 + fill((batch, params.clients + params.servers + params.edges + 1)), torch.full((batch,), 1e3)


def test_a_charge_is_the_slope_of_the_potential():
    params, generator = Params(**SMALL), torch.Generator().manual_seed(4)
    queues, cpu, load = of_queues(params, lambda shape: 100 * torch.rand(shape, generator=generator))
    for mbit in queues.values():
        mbit.requires_grad_()
    found = charges(queues, cpu, load, params)
    found.potential.sum().backward()
    for name, charge in (("lc", found.own), ("v2v", found.server), ("v2i", found.beyond)):
        assert torch.allclose(WEIGHTS[name] - queues[name].grad, charge, rtol=1e-4, atol=1e-6)


def test_a_served_mbit_gains_the_potential_what_its_cpu_costs():
    """The last Mbit of a queue in which nothing else waits."""
    params = Params(**SMALL)
    queues, cpu, load = of_queues(params, torch.zeros)
    assert not charges(queues, cpu, load, params).potential.any()
    for family, share in (("lc", 3 * params.clients), ("vc", params.servers), ("ec", 3 * params.edges), ("cc", 1)):
        queues[family].flatten(1)[:, 0] = 1e-3
        gained = -charges(queues, cpu, load, params).potential / 1e-3 + WEIGHTS[family]
        assert torch.allclose(gained * 0.5 / load, torch.tensor(0.35 * 0.25 / share), rtol=0.01)
        queues[family].zero_()


def test_the_potential_charges_the_waiting_of_what_is_served_with_nothing_behind_it():
    """The drift charges kappa w Q of every slot, while a CPU serves at most its speed."""
    params = Params(penalty_weight=1e-9, **SMALL)
    queues, cpu, load = of_queues(params, torch.zeros, batch=1)
    queues["lc"][0, 0] = 200.0
    charged = (WEIGHTS["lc"] * 200.0 - charges(queues, cpu, load, params).potential.item()) / CONGESTION
    left = 200.0 - torch.arange(200)
    assert charged == pytest.approx(WAITING * WEIGHTS["lc"] * left.sum().item(), rel=0.01)


def test_a_cpu_serves_its_lightest_place():
    """That is an admitted task, or an empty one, which counts at the mean density."""
    scenario = draw(Params(**SMALL), "city")
    env = original.make(scenario=scenario)
    env.reset(seed=0)
    given = stay(Turns(view_of_original(env)))
    p, share = scenario.params, given["share"][0].numpy()
    env.step_decoded(given["target"][0].numpy(), share)
    admitted = np.asarray(env.record["admitted"], bool) & (given["target"][0].numpy() == 0)
    for i in range(p.clients):
        block = share[i * (p.cap_local + 2) :][: p.cap_local]
        serves, count = np.full(p.cap_local, np.inf), admitted[i].sum()
        serves[:count] = scenario.task_cycles[0, i][admitted[i]]
        if count < p.cap_local:
            serves[count] = scenario.mean_density
        assert np.array_equal(block > 0, serves == serves.min())


def test_a_client_keeps_its_smallest_tasks_if_it_can_drop_the_others():
    """Here those beyond the reach of all edges aim at one that is not there, and the others find no node full."""
    scenario, dropping = draw(Params(cap_local=2, **SMALL), "city"), 0
    env = original.make(scenario=scenario)
    env.reset(seed=0)
    given = stay(Turns(view_of_original(env)))
    target = given["target"][0].numpy()
    env.step_decoded(target, given["share"][0].numpy())
    for i in range(scenario.params.clients):
        count, sizes = int(scenario.task_count[0, i]), scenario.task_size[0, i]
        admitted = np.flatnonzero(env.record["admitted"][i])
        assert len(admitted) <= 2 and (target[i][admitted] == 0).all()
        if target[i][:count].any():
            dropping += 1
            assert set(admitted) <= set(np.argsort(sizes[:count])[:2])
        else:
            assert list(admitted) == list(range(min(count, 2)))
    assert 0 < dropping < scenario.params.clients


def stay(turns: Turns):
    """The action of a slot in which every client chooses to keep all its tasks."""
    while not turns.over:
        turns.observe()
        turns.choose(torch.zeros(1, turns.params.tasks + 1, dtype=torch.int64))
    return turns.action()


def test_the_published_reward_is_refused():
    port = envs.make("vehicular_edge", 1, preset="original", scenarios=1)
    with pytest.raises(ValueError, match=r"interference_in_mw=True \(Q2\): this needs the physical reward"):
        TurnByTurn(port)


def test_a_port_that_resets_in_the_next_step_is_refused_in_training():
    port = envs.make("vehicular_edge", 2, scenarios=1, autoreset_mode="NextStep", **SMALL)
    config = dataclasses.replace(ppo.CLEANRL, num_envs=2, horizon=44, total_steps=2 * 44)
    with pytest.raises(ValueError, match="autoreset_mode='NextStep': training needs 'SameStep'"):
        ppo.train(TurnByTurn(port), config)
