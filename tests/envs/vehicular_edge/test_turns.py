"""Offloading in turns: what a slot's turns add up to is what the port and the original do with their action."""

import dataclasses

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.agents import ppo
from lockstep.envs.vehicular_edge import charges as charges_module
from lockstep.envs.vehicular_edge import original
from lockstep.envs.vehicular_edge import turns as turns_module
from lockstep.envs.vehicular_edge.charges import CONGESTION, charges
from lockstep.envs.vehicular_edge.params import WAITING, WEIGHTS, Params, queue_shapes
from lockstep.envs.vehicular_edge.policies import Noise, View, view_of_original, view_of_port
from lockstep.envs.vehicular_edge.scenario import draw
from lockstep.envs.vehicular_edge.slot.step import initial, step
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turn_by_turn import TurnByTurn
from lockstep.envs.vehicular_edge.turns import V2I, Turns, options, random_turns

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
    for turn in range(steps):
        action = any_choice(mask, port.params.tasks + 1, generator)
        _, reward, terminated, truncated, info = env.step(action)
        mask, total = info["action_mask"], total + reward
        assert not truncated.any()
        assert terminated.all() == terminated.any() == (turn == steps - 1)
    found = env.statistics()
    assert found["episodes"] == 6
    assert found["return_mean"].item() == pytest.approx(total.mean().item(), abs=1e-4)


@pytest.mark.parametrize("traffic", ["city", "dense"])
def test_a_slot_pays_its_reward_and_what_the_potential_gains(traffic, monkeypatch):
    port = envs.make("vehicular_edge", 4, traffic=traffic, scenarios=2, autoreset_mode="NextStep", **SMALL)
    env, generator, stepped, slots = TurnByTurn(port), torch.Generator().manual_seed(5), port.step, []
    monkeypatch.setattr(port, "step", lambda action: slots.append(stepped(action)) or slots[-1])
    mask, J = env.reset(seed=0)[1]["action_mask"], port.params.tasks
    for slot in range(port.params.slots + 2):
        before, paid = potential(port), torch.zeros(4)
        for _ in range(port.params.clients):
            _, reward, terminated, _, info = env.step(any_choice(mask, J + 1, generator))
            mask, paid = info["action_mask"], paid + reward
        gained, over = potential(port) - before, port.params.slots
        if slot == over - 1:  # what is left does not count
            assert terminated.all() and potential(port).abs().min() > 0.01
            gained = -before
        elif slot == over:  # the slot of the reset
            gained = torch.zeros(4)
        assert torch.allclose(paid, slots[-1][1][:, 0] + gained, atol=1e-5)


def potential(port) -> torch.Tensor:
    """That of the port's queues, from its state."""
    turns = Turns(view_of_port(port))
    return turns._unit * charges(turns._queues, turns._speeds, turns._load, port.params).potential


@pytest.mark.parametrize("fill", [0.0, 50.0])
@pytest.mark.parametrize("traffic", ["city", "dense", "arterial"])
def test_turns_are_paid_at_once_what_their_tasks_change(traffic, fill, monkeypatch):
    """Success, the costs of power and wires, and the charges of all that comes in, while nothing is served."""
    monkeypatch.setattr(charges_module, "CONGESTION", 0.0)  # what is left of Psi is linear
    scenario = draw(Params(bandwidth_v2v_mhz=1e-9, bandwidth_v2i_mhz=1e-9, **SMALL), traffic)
    packed, slot, generator = tables(np, [scenario]), np.array([3]), np.random.default_rng(0)
    state = initial(np, packed)
    for name in ("lc", "v2v", "vc", "v2i", "ec", "cc"):  # wires would serve
        state[name] = fill * generator.random(state[name].shape)
    turns = Turns(View(np, packed, np.array([0]), slot, {name: state[name] for name in queue_shapes(scenario.params)}))
    draws, paid = torch.Generator().manual_seed(1), 0.0
    while not turns.over:
        paid += turns.choose(any_choice(turns.observe()[1], scenario.params.tasks + 1, draws)).item()
    given = {name: part.numpy().copy() for name, part in turns.action().items()}
    given["share"][:, packed.numbering.place_share] = 0.0
    after, found = step(np, packed, state, given, slot)

    def worth(queues) -> float:
        mbit = {name: torch.tensor(queues[name]).double() for name in queue_shapes(scenario.params)}
        found = charges(mbit, turns._speeds.double(), turns._load.double(), scenario.params)
        return float(0.5 / turns._load * found.potential)

    waits = sum(WEIGHTS[name] * state[name].sum() for name in queue_shapes(scenario.params))
    waited = 0.5 * WAITING * waits / turns._load.item()  # by what was there before
    assert paid == pytest.approx(float(found.reward[0]) + worth(after) - worth(state) + waited, abs=1e-5)


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
        node = turns._option_node[:, turns.turn, 1:]
        admitted = (turns._node.flatten(1)[:, None] == node[..., None]).sum(dim=-1)
        left = turns._cap[node] - admitted
        assert not (mask.view(3, J + 1, K)[:, :J, 1:] & (left <= 0)[:, None]).any()
        full += (left <= 0).sum(dim=1)
        turns.choose(any_choice(mask, J + 1, generator))
    assert (full > 10).all()


def every_charge(port, packed, monkeypatch) -> torch.Tensor:
    """[B, Nc, S + Ne + 1] charges of all nodes, least first, infinite where one is not in reach."""
    with monkeypatch.context() as patched:
        patched.setattr(turns_module, "NODES", port.params.server_choices + port.params.edges + 1)
        turns = Turns(view_of_port(port, packed))
    return torch.where(turns._option_there, turns._option_charge, np.inf)[..., 1:]


def test_options_are_the_nodes_that_charge_least_and_only_if_a_task_can_afford_them(monkeypatch):
    port = envs.make("vehicular_edge", 4, traffic="dense", scenarios=2, **SMALL)
    port.reset(seed=0)
    packed, generator = tables(np, port.scenarios), torch.Generator().manual_seed(3)
    K, J, refused, left_out = options(port.params), port.params.tasks, 0, 0
    for _ in range(port.params.slots - 1):
        turns = Turns(view_of_port(port, packed))
        charge = torch.where(turns._option_there, turns._option_charge, np.inf)[..., 1:]
        assert (charge[..., :-1] <= charge[..., 1:]).all()
        every = every_charge(port, packed, monkeypatch)
        assert torch.equal(charge, every[..., : K - 1])
        left_out += int(torch.isfinite(every[..., K - 1 :]).sum())
        while not turns.over:
            turn, mask = turns.turn, turns.observe()[1]
            asked = mask.view(4, J + 1, K)[:, :J, 1:].nonzero().T
            task = turns._by_size[asked[0], turn, asked[1]]
            price = turns._option_charge[asked[0], turn, asked[2] + 1] * turns._mbit[asked[0], turn, task]
            success = 0.5 / torch.as_tensor(turns._view.now("count").sum(axis=1))
            assert (price * 0.5 / turns._load[asked[0]] <= success[asked[0]] * (1 + 1e-6)).all()
            reached = turns._option_there[:, turn, 1:] & (turns._room.gather(1, turns._option_node[:, turn, 1:]) > 0)
            refused += int((reached[:, None] & turns._real[:, turn, :, None]).sum()) - len(asked[0])
            turns.choose(any_choice(mask, J + 1, generator))
        port.step(turns.action())
    assert refused > 0 and left_out > 0


def of_queues(params: Params, fill, batch: int = 2):
    """Queues of every family and CPUs [Mbit/s] as fill(shape) makes them, and a load of 1000 Mbit a slot."""
    queues = {name: fill((batch, *shape)) for name, shape in queue_shapes(params).items()}
    return queues, 1.0 + fill((batch, params.clients + params.servers + params.edges + 1)), torch.full((batch,), 1e3)


def test_a_charge_is_the_slope_of_psi():
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


def test_what_a_client_cannot_afford_or_keep_is_dropped_at_a_full_node():
    port = envs.make("vehicular_edge", 1, traffic="dense", scenarios=1, cap_cloud=1, cap_edge=1, cap_local=4, **SMALL)
    port.reset(seed=0)
    turns, J = Turns(view_of_port(port)), port.params.tasks
    dear = turns._mbit[turns._real].median()  # what its own CPU would charge too much for
    turns._affordable[:, 1:, :, 0] &= turns._mbit.gather(2, turns._by_size)[:, 1:] < dear
    beyond = (turns.observe()[1].view(J + 1, -1)[0] & (turns._option_link[0, 0] == V2I)).nonzero()[0, 0]
    turns.choose(torch.cat([beyond[None], torch.zeros(J, dtype=torch.int64)])[None])  # fills a node beyond the edges
    given = stay(turns)
    kept = turns._node[0, 1:] < turns._nowhere
    mbit, real = turns._mbit[0, 1:], turns._real[0, 1:]
    assert (turns._signal > 0).sum() == 1  # of the one task that was sent
    assert (kept.sum(dim=1) <= 4).all()
    assert not (kept & (mbit >= dear)).any() and (real & ~kept & (mbit < dear)).any()
    for i in range(len(kept)):
        left = real[i] & ~kept[i] & (mbit[i] < dear)
        assert not left.any() or mbit[i][left].min() >= mbit[i][kept[i]].max()
    assert torch.equal(port.step(given)[4]["admitted"].flatten().long(), (turns._node < turns._nowhere).sum((1, 2)))


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


def test_random_turns_draw_evenly_among_what_is_allowed(monkeypatch):
    """Of the first client, whose mask is the same in environments of one scenario."""
    batch, masks, choices, choose = 4000, [], [], Turns.choose

    def noted(turns: Turns, action: torch.Tensor) -> torch.Tensor:
        if turns.turn == 0:
            masks.append(turns.observe()[1].view(batch, turns.params.tasks + 1, -1))
            choices.append(action)
        return choose(turns, action)

    monkeypatch.setattr(Turns, "choose", noted)
    port = envs.make("vehicular_edge", batch, traffic="dense", scenarios=1, **SMALL)
    port.reset(seed=0)
    random_turns(view_of_port(port), Noise(1, np.arange(batch), np.zeros(batch, int)))
    (mask,), (chosen,) = masks, choices
    assert (mask == mask[0]).all() and mask[0].sum(dim=-1).max() > 3
    share = torch.nn.functional.one_hot(chosen, mask.shape[-1]).double().mean(dim=0)
    wanted = mask[0] / mask[0].sum(dim=-1, keepdim=True)
    assert (share[~mask[0]] == 0).all()
    assert (share - wanted).abs().max() < 0.04  # five standard deviations


def test_random_turns_are_the_same_in_both_forms():
    port = envs.make("vehicular_edge", 3, traffic="city", scenarios=1, **SMALL)
    env = original.make(scenario=port.scenarios[0])
    port.reset(seed=0), env.reset(seed=0)
    many = random_turns(view_of_port(port), Noise(5, np.arange(3), np.zeros(3, int)))
    alone = random_turns(view_of_original(env), Noise(5, np.array([2]), np.array([0])))
    np.testing.assert_array_equal(alone["target"][0], many["target"][2])
    np.testing.assert_allclose(alone["share"][0], many["share"][2], rtol=1e-6)
    env.step_decoded(alone["target"][0], alone["share"][0])
    assert env.record["success"] > 0
