"""Rainbow: its projection and targets by hand, what it stores and learns, and that a run can go on."""

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import linear

from lockstep.agents import rainbow
from lockstep.agents.rainbow import Config, Rainbow, projected
from lockstep.agents.run import training
from lockstep.agents.run.config import config_of, replaced
from tests.agents.test_discrete import Cycle, iterated, mutant, requires_equal, stored
from tests.agents.worlds import Clock, World

SMALL = Config(num_envs=8, total_steps=8 * 100, capacity=1000, learning_starts=0, batch_size=16, encoder=16)
SMALL = replaced(SMALL, {"hidden": (16,), "epsilon_steps": 0, "atoms": 11, "v_min": -5.0, "v_max": 5.0})


def changed(**changes) -> Config:
    return replaced(SMALL, changes)


# ---- the projection --------------------------------------------------------------------------------------------------

PROJECTIONS = {  # over the atoms 0, 1, 2, 3, 4: probabilities, reward, discount, and what becomes of them
    "on every atom": ([0.1, 0.2, 0.3, 0.4, 0.0], 0.0, 1.0, [0.1, 0.2, 0.3, 0.4, 0.0]),
    "on the next atom, and the last one kept": ([0.1, 0.2, 0.3, 0.2, 0.2], 1.0, 1.0, [0.0, 0.1, 0.2, 0.3, 0.4]),
    "between two": ([0.0, 1.0, 0.0, 0.0, 0.0], 0.25, 1.0, [0.0, 0.75, 0.25, 0.0, 0.0]),
    "closer together": ([0.2, 0.2, 0.2, 0.2, 0.2], 1.0, 0.5, [0.0, 0.3, 0.4, 0.3, 0.0]),  # at 1, 1.5, 2, 2.5, 3
    "an end on an atom": ([0.2, 0.2, 0.2, 0.2, 0.2], 3.0, 0.0, [0.0, 0.0, 0.0, 1.0, 0.0]),
    "an end between two": ([0.2, 0.2, 0.2, 0.2, 0.2], 2.75, 0.0, [0.0, 0.0, 0.25, 0.75, 0.0]),
    "an end before what is no number": ([math.nan] * 5, 2.75, 0.0, [0.0, 0.0, 0.25, 0.75, 0.0]),
    "all below": ([0.1, 0.2, 0.3, 0.2, 0.2], -9.0, 1.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
    "all above": ([0.1, 0.2, 0.3, 0.2, 0.2], 9.0, 1.0, [0.0, 0.0, 0.0, 0.0, 1.0]),
    "some below": ([0.5, 0.0, 0.5, 0.0, 0.0], -1.5, 1.0, [0.75, 0.25, 0.0, 0.0, 0.0]),  # at -1.5 and 0.5
    "some above": ([0.0, 0.0, 0.5, 0.0, 0.5], 1.5, 1.0, [0.0, 0.0, 0.0, 0.25, 0.75]),  # at 3.5 and 5.5
    "the least atom": ([1.0, 0.0, 0.0, 0.0, 0.0], 0.0, 0.9, [1.0, 0.0, 0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize(("probability", "reward", "discount", "expected"), PROJECTIONS.values(), ids=list(PROJECTIONS))
def test_projections_by_hand(probability, reward, discount, expected):
    found = projected(torch.tensor([probability]), torch.tensor([reward]), torch.tensor([discount]), 0.0, 4.0)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_projection_keeps_mass_and_what_is_not_clipped_keeps_its_mean():
    """The support -100 .. 100 holds every return of 0.99 times one within it plus a reward within [-1, 1]."""
    draws = torch.Generator().manual_seed(0)
    probability = torch.rand(500, 51, generator=draws).pow(4)
    probability /= probability.sum(dim=1, keepdim=True)
    reward, discount = 2 * torch.rand(500, generator=draws) - 1, 0.99 * torch.rand(500, generator=draws)
    found = projected(probability, reward, discount, -100.0, 100.0)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(dim=1), torch.ones(500))
    support = torch.linspace(-100.0, 100.0, 51)
    torch.testing.assert_close(found @ support, reward + discount * (probability @ support), rtol=1e-4, atol=1e-3)


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [("truncated",), ("terminated",), ("terminated", "truncated")])
def test_returns_of_several_steps_are_those_of_one_episode_and_its_end_is_flushed(ends):
    """Clocks of five steps that give 1: three steps' 2.71, at the end 1.9 and 1, before the final observation 5."""
    run = iterated(Rainbow(Clock(8, ends=ends), changed(gamma=0.9)), 10)
    rows = stored(run)
    obs = rows["obs"][:, 0].long()
    torch.testing.assert_close(rows["reward"], torch.tensor([2.71, 2.71, 2.71, 1.9, 1.0])[obs])
    torch.testing.assert_close(rows["next_obs"][:, 0], torch.tensor([3.0, 4.0, 5.0, 5.0, 5.0])[obs])
    discount = torch.tensor([0.729, 0.729, 0.729, 0.81, 0.9])
    discount[2:] *= "terminated" not in ends
    torch.testing.assert_close(rows["discount"], discount[obs])
    flushed = 8 * 10 - len(obs)  # what is still in the windows, of streams that are at steps 0 to 4
    assert flushed == sum(min((10 + i) % 5, 2) for i in range(8))


# ---- what is learnt --------------------------------------------------------------------------------------------------


def sure(*atoms: int) -> torch.Tensor:
    """Logits [m, 3] of actions that are nearly sure of an atom each."""
    return 50.0 * (torch.tensor(atoms).unsqueeze(1) == torch.arange(3))


def with_distributions(kind: type[Rainbow], online: tuple, target: tuple, **row) -> Rainbow:
    """A run whose networks are nearly sure, everywhere, of an atom of -1, 0, 1 for each of two actions.

    Its replay has one row over and over; networks are without noise.
    """
    given = {"atoms": 3, "v_min": -1.0, "v_max": 1.0, "sigma": 0.0, "max_grad_norm": 1e9, "capacity": 48}
    run = kind(Clock(8), kind.Config(**dataclasses.asdict(changed(**given)) | row.pop("config", {})))
    for network, atoms in ((run.online, online), (run.target, target)):
        network.parameters.zero_()
        ends, logits = torch.tensor(network._counts).cumsum(0).tolist(), sure(*atoms)
        network.parameters[ends[1] - 3 : ends[1]] = logits.mean(dim=0)  # biases of the values, and of the advantages
        network.parameters[ends[2] - 6 : ends[2]] = logits.flatten()
    rows = {"obs": [1.0], "next_obs": [2.0], "action": 0, "reward": 0.0, "discount": 1.0} | row
    run.replay.add({name: torch.tensor([value] * 8) for name, value in rows.items()})
    return run


TARGETS = [  # atoms of both actions, online and target; reward, discount; where the target's mass is
    ((0, 2), (0, 1), 0.0, 1.0, [0.0, 1.0, 0.0]),  # the second is online's best, of which the target is sure of 0
    ((0, 2), (2, 1), 0.0, 1.0, [0.0, 1.0, 0.0]),  # though the target would choose the first
    ((2, 0), (0, 1), 0.0, 1.0, [1.0, 0.0, 0.0]),
    ((2, 0), (1, 1), 0.5, 1.0, [0.0, 0.5, 0.5]),
    ((2, 0), (2, 1), 0.0, 0.25, [0.0, 0.75, 0.25]),
    ((2, 0), (2, 1), -0.5, 0.0, [0.5, 0.5, 0.0]),  # an end
    ((2, 0), (2, 1), 0.5, 1.0, [0.0, 0.0, 1.0]),  # beyond the last atom
]


def requires_targets(kind: type[Rainbow], online, target, reward, discount, expected) -> None:
    run = with_distributions(kind, online, target, reward=reward, discount=discount)
    run._updates(1)
    p = [float(online[0] == atom) for atom in range(3)]
    slope = [(found - wanted) for found, wanted in zip(p, expected, strict=True)]
    # of the mean by the biases: the value has it as it is, of the advantages that was taken half, the other minus half
    found = run.online.gradient[: sum(run.online._counts)].split(run.online._counts)
    assert found[1][-3:].tolist() == pytest.approx(slope, abs=1e-5)
    assert found[2][-6:].tolist() == pytest.approx([x / 2 for x in slope] + [-x / 2 for x in slope], abs=1e-5)
    told = run.statistics()
    assert told["loss"] == pytest.approx(50.0 * sum(m for m, q in zip(expected, p, strict=True) if not q), rel=1e-4)
    assert told["q_value"] == pytest.approx(online[0] - 1.0)


@pytest.mark.parametrize("case", TARGETS)
def test_targets_by_hand(case):
    requires_targets(Rainbow, *case)


def test_a_row_gets_the_priority_of_its_loss():
    """Every row has a loss of 50, and is drawn twice for each batch of 16."""
    run = with_distributions(Rainbow, (0, 2), (0, 1), config={"alpha": 0.5, "lr": 0.0})
    run._updates(4)
    found = run.replay.tree[run.replay.leaves :]
    assert found[:8].tolist() == pytest.approx([50.0**0.5] * 8, rel=1e-4)
    assert not found[8:].any()


def test_importance_weights_are_those_of_the_priorities_and_count_in_the_gradient(monkeypatch):
    """Priorities 1 and 4, beta 0.4: rows weigh 1 and 4^-0.4. Half the weight has half the gradient."""
    run = with_distributions(Rainbow, (0, 2), (0, 1), config={"alpha": 1.0, "lr": 0.0})
    gradients, given = [], []
    for weight in (1.0, 0.5):
        run._learn(run.replay.at(torch.zeros(16, dtype=torch.int64)), torch.full((16,), weight))
        gradients.append(run.online.gradient[: sum(run.online._counts)].clone())  # of the means, without noise
    torch.testing.assert_close(gradients[1], gradients[0] / 2)
    run.replay.update_priorities(torch.arange(8), torch.tensor([1.0] * 4 + [4.0] * 4))
    learn = run._learn
    monkeypatch.setattr(run, "_learn", lambda rows, weight: (given.append(weight), learn(rows, weight))[1])
    run._updates(1)
    assert sorted(set(given[0].tolist())) == pytest.approx([4**-0.4, 1.0])


def test_the_exponent_of_importance_weights_rises_to_1():
    run = Rainbow(Clock(8), SMALL)
    exponents = [iterated(run, iterations).scheduled()["beta"][0] for iterations in (0, 25, 25, 25, 25)]
    assert exponents == pytest.approx([0.4, 0.55, 0.7, 0.85, 1.0])
    assert iterated(Rainbow(Clock(8), changed(anneal_beta=False)), 50).scheduled()["beta"] == [0.4]


def test_an_update_is_that_of_automatic_differentiation_and_of_torch_s_adam():
    """With the noise that the update drew, written out with torch's own layers, softmax and cross entropy."""
    config = changed(gamma=0.9, max_grad_norm=0.05, lr=1e-2, sigma=0.5, anneal_lr=False)
    run = iterated(Rainbow(World(8), config), 20)
    run.target.parameters.add_(0.1)
    counts = run.online._counts
    parameters = run.online.parameters.clone().requires_grad_()
    optimizer = torch.optim.Adam([parameters], config.lr)
    names = {"step": "steps", "exp_avg": "first", "exp_avg_sq": "second"}
    optimizer.state[parameters] = {theirs: run.adam.state[ours].clone() for theirs, ours in names.items()}
    rows, _, weights = run.replay.draw(1, 16, run.now["beta"][0], torch.Generator().manual_seed(5))
    loss, value, norm = run._learn(rows, weights[0])
    noise = {"online": run.online.noise, "target": run.target.noise}
    assert not torch.equal(noise["online"], noise["target"])

    def logits(numbers, noise, x):
        *means, scales = numbers.split([*counts, len(noise)])
        parts = means[1:], scales.split(counts[1:]), noise.split(counts[1:])
        of_streams = [mean + scale * e for mean, scale, e in zip(*parts, strict=True)]
        x = linear(x, means[0][: 3 * 16].view(16, 3), means[0][3 * 16 :]).relu()
        out = []
        for stream, outputs in zip(of_streams, (11, 22), strict=True):
            h, place = x, 0
            for size, last in ((16, False), (outputs, True)):
                weight, bias = stream[place : place + 16 * size].view(size, 16), stream[place + 16 * size :][:size]
                h, place = linear(h, weight, bias), place + 17 * size
                h = h if last else h.relu()
            out.append(h.view(16, -1, 11))
        return out[0] + out[1] - out[1].mean(dim=1, keepdim=True)

    support, first = torch.linspace(-5.0, 5.0, 11), torch.arange(16)
    best = (logits(parameters, noise["online"], rows["next_obs"]).softmax(2) @ support).argmax(1)
    following = logits(run.target.parameters, noise["target"], rows["next_obs"])[first, best].softmax(1)
    target = projected(following, rows["reward"], rows["discount"], -5.0, 5.0)
    taken = logits(parameters, noise["online"], rows["obs"])[first, rows["action"]]
    expected = torch.nn.functional.cross_entropy(taken, target.detach(), reduction="none")
    (weights[0] * expected).mean().backward()
    expected_norm = torch.nn.utils.clip_grad_norm_([parameters], config.max_grad_norm)
    optimizer.step()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    assert value.item() == pytest.approx((taken.softmax(1) @ support).mean().item(), rel=1e-4, abs=1e-5)
    assert norm.item() == pytest.approx(expected_norm.item(), rel=1e-3)
    assert norm > config.max_grad_norm
    torch.testing.assert_close(run.online.parameters, parameters.detach(), rtol=0, atol=1e-5)


VALUES = [  # of steps 0 to 4 of a clock that gives 1 at each, discounted by 0.5
    (("truncated",), [2.0] * 5),
    (("terminated",), [1.9375, 1.875, 1.75, 1.5, 1.0]),
]


@pytest.mark.parametrize(("ends", "values"), VALUES)
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_limit_of_time_is_no_end_of_reward(ends, values, n_step):
    given = {"num_envs": 10, "total_steps": 6000, "replay_ratio": 0.2, "target_every": 50, "gamma": 0.5, "lr": 1e-2}
    run = Rainbow(Cycle(10, ends=ends), changed(**given, n_step=n_step, hidden=(32,)))
    iterated(run, run.iterations)
    found = run._values(torch.arange(5.0).view(5, 1)).amax(dim=1)
    assert found.tolist() == pytest.approx(values, abs=0.15)


# ---- noise -----------------------------------------------------------------------------------------------------------


def requires_new_noise(kind: type[Rainbow]) -> None:
    """One draw for a step of all environments; one of each network for an update."""
    run = kind(World(8), kind.Config(**dataclasses.asdict(changed(horizon=3, replay_ratio=0.5))))
    drawn = {"online": [], "target": []}
    for name, network in (("online", run.online), ("target", run.target)):
        set_noise = network.set_noise

        def counted(normal, set_noise=set_noise, network=network, found=drawn[name]):
            set_noise(normal)
            found.append(network.noise[0].item())

        network.set_noise = counted
    run.iterate()
    assert {name: len(set(found)) for name, found in drawn.items()} == {"online": 3 + 12, "target": 12}


def test_noise_is_new_at_every_step_and_update():
    requires_new_noise(Rainbow)


def test_noise_stays_the_same_where_it_is_asked_for():
    run, noise = Rainbow(World(8), changed(redraw=False)), []
    for _ in range(3):
        run.act(torch.zeros(5, 3))  # which takes the means into use
        iterated(run, 2)
        noise.append(run.online.noise.clone())
    assert noise[0].any() and all(torch.equal(one, noise[0]) for one in noise)


def test_greedy_actions_are_those_of_the_means_and_others_are_noisy():
    run = iterated(Rainbow(World(8), changed(sigma=3.0)), 3)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    expected = run._values(obs).argmax(dim=1)
    torch.manual_seed(0)
    noisy = [run.act(obs, greedy=False) for _ in range(3)]
    assert torch.equal(run.act(obs), expected) and torch.equal(run.act(obs), expected)
    assert not any(torch.equal(one, expected) for one in noisy) and not torch.equal(noisy[0], noisy[1])


def test_acting_changes_nothing_of_a_run():
    one, other = (iterated(Rainbow(World(8), SMALL), 5) for _ in range(2))
    one.act(torch.zeros(5, 3)), one.act(torch.zeros(5, 3), greedy=False), one.module()
    requires_equal(iterated(one, 3).online.parameters, iterated(other, 3).online.parameters)


# ---- that a run can go on --------------------------------------------------------------------------------------------


def test_a_run_goes_on_from_the_middle_of_its_windows():
    given = changed(num_envs=16, total_steps=16 * 60, learning_starts=64)
    whole, first = (iterated(Rainbow("cartpole", given), steps) for steps in (40, 20))
    second = iterated(Rainbow("cartpole", given), 3)
    second.load_state(first.state())
    requires_equal(iterated(second, 20).state(), whole.state())
    assert torch.equal(second.replay.tree, whole.replay.tree)


def test_other_atoms_are_refused_by_name(tmp_path):
    given = changed(total_steps=64)
    rainbow.train("cartpole", given, output=tmp_path)
    with pytest.raises(ValueError, match=r"v_max is 5.0 in the checkpoint and 6.0 here"):
        rainbow.train("cartpole", replaced(given, {"v_max": 6.0}), init_from=tmp_path)


# ---- what a run says of itself ---------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_spares_the_priorities():
    run = iterated(Rainbow(World(8, reward=lambda obs, action: torch.full((8,), float("nan"))), SMALL), 20)
    assert run.replay.tree.isfinite().all()
    with pytest.raises(FloatingPointError, match="gradients were not finite"):
        run.statistics()


BAD = [
    (lambda: changed(alpha=1.5), r"alpha=1.5 must lie in \[0, 1\]"),
    (lambda: changed(beta=-0.1), r"beta=-0.1 must lie in \[0, 1\]"),
    (lambda: changed(atoms=1), r"atoms=1 must lie in \[2, ...\]"),
    (lambda: changed(sigma=-1.0), r"sigma=-1.0 must lie in \[0, ...\]"),
    (lambda: changed(n_step=0), r"n_step=0 must lie in \[1, ...\]"),
    (lambda: changed(v_min=5.0), "v_min=5.0 must be less than v_max=5.0"),
    (lambda: changed(v_max=math.inf), "v_max=inf must be finite"),
    (lambda: rainbow.config_of("cartpole", "solve", v_mim=1.0), "Config has no field 'v_mim'; did you mean 'v_min'"),
    (
        lambda: Rainbow(World(8), changed(capacity=47)),
        "capacity=47 must be at least 2 x n_step x rows of a step = 48",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_no_return_of_a_recipe_is_clipped():
    """Of rewards 1 at each step and -1 at each step, by geometric series, with time limits bootstrapped."""
    for environment, reward in (("cartpole", 1.0), ("acrobot", -1.0)):
        config = config_of(Rainbow, environment)
        assert config.v_min <= min(0.0, reward / (1 - config.gamma) + 1e-9)
        assert config.v_max >= max(0.0, reward / (1 - config.gamma) - 1e-9)


# ---- whether it learns -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "aim"), [("cartpole", 475), ("acrobot", -100)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_it_reaches_the_aim_of_its_environment(environment, aim, seed):
    """By its recipe, over 100 episodes that no training saw."""
    run = training.train(Rainbow, environment, config_of(Rainbow, environment, seed=seed, threads=1))
    assert training.evaluation.in_original(environment, run.act).returns.mean() >= aim


# ---- each trap has a test that it fails ------------------------------------------------------------------------------

TRAPS = {
    "chosen by the target network": (
        'self._of(self.target(rows["next_obs"]), action)',
        'self._of(x := self.target(rows["next_obs"]), self._means(x).argmax(dim=1))',
        requires_targets,
        *TARGETS[1],
    ),
    "no target network": ("self.target(rows[", "self.online(rows[", requires_targets, *TARGETS[0]),
    "returns after the end": ('rows["discount"], self', 'rows["discount"] + 1, self', requires_targets, *TARGETS[5]),
    "mass beyond the last atom": (".clamp(v_min, v_max)", "", requires_targets, *TARGETS[6]),
    "a gradient of all actions": ("taken.unsqueeze(2)", "(taken | True).unsqueeze(2)", requires_targets, *TARGETS[0]),
    "one noise for all updates": ("self.target.sample_noise(self.generator)", "pass", requires_new_noise),
    "one noise for all steps": ("self._draw(generator)", "pass", requires_new_noise),
}


@pytest.mark.parametrize(("old", "new", "require", "given"), [(*t[:3], t[3:]) for t in TRAPS.values()], ids=TRAPS)
def test_each_trap_is_noticed(old, new, require, given):
    with pytest.raises(AssertionError):
        require(mutant(rainbow, "Rainbow", old, new), *given)


@pytest.mark.parametrize("mixed", [False, True])
def test_returns_are_of_each_agent_or_of_all_in_turn(mixed):
    """Of two agents that get 1 and 10, two steps with gamma 0.5 are 1.5 and 15; in turn they are 6 and 10.5."""
    env = World(4, reward=lambda obs, action: torch.tensor([1.0, 10.0]).expand(4, 2), agents=2)
    run = Rainbow(env, changed(num_envs=4, n_step=2, gamma=0.5, mixed_streams=mixed))
    reward = stored(iterated(run, 4))["reward"]
    assert set(reward.tolist()) == ({6.0, 10.5} if mixed else {1.5, 15.0})
