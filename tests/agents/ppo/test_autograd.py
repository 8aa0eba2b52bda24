"""The update by automatic differentiation, against derivatives written by hand and against torch's own Adam."""

import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.agents.parts import distributions
from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.ppo.autograd import Autograd
from lockstep.agents.ppo.update import METRICS
from tests.agents.ppo import reference
from tests.agents.worlds import BOX, THREE_TWO, normal

SPACES = {"discrete": Discrete(3), "gaussian": BOX}
N = 64


def networks_for(distribution, **options) -> ActorCritic:
    options = {"hidden": (16, 16), "log_std": -0.2} | options
    networks = ActorCritic(3, distribution.outputs, distribution.free, **options)
    networks.parts(networks.parameters)[f"actor.{len(networks.hidden)}.weight"].mul_(50)  # far from uniform
    return networks


def batch_of(networks: ActorCritic, distribution, rows: int = N, seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch on which some ratios and some values are clipped, and others are not."""
    obs = normal(rows, networks.inputs, seed=seed)
    noise = torch.randint(0, 2**24, (rows, 4 * distribution.blocks), generator=torch.Generator().manual_seed(seed))
    free = networks.leaves.get("free")
    with torch.no_grad():
        out, value = networks.one(0)(obs[None])
        action, log_prob = distribution.sample(out[0], None if free is None else free[0], noise.int())
    return {
        "obs": obs,
        "action": action,
        "log_prob": log_prob + 0.3 * normal(rows, seed=seed + 1),
        "advantage": normal(rows, seed=seed + 2),
        "value": value[0] + 0.3 * normal(rows, seed=seed + 3),
        "target": value[0] + 0.5 * normal(rows, seed=seed + 4),
    }


def made(networks, distribution, batch, lr=1e-3, ent_coef=0.01, **options) -> Autograd:
    L = networks.learners
    return Autograd(networks, distribution, batch, torch.full((L,), lr), torch.full((L,), ent_coef), **options)


def float64(batch: dict[str, torch.Tensor], rows=slice(None)) -> dict[str, np.ndarray]:
    return {name: (part if name == "action" and not part.is_floating_point() else part.double())[rows].numpy()
            for name, part in batch.items()}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"clip_value": False}, {"norm_adv": False}, {"max_grad_norm": 1e9}], ids=str)
@pytest.mark.parametrize("kind", SPACES)
def test_an_update_is_that_of_the_recipe_in_float64(kind, options):
    distribution = distributions.of(SPACES[kind])
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)
    options = {"max_grad_norm": 0.1} | options  # is always felt
    expected, optimizer = reference.of(networks, **options), made(networks, distribution, batch, **options)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(N), (3, 1)), axis=1)
    for rows in order.reshape(-1, N // 2):
        expected.update(1e-3, **float64(batch, rows))
        optimizer.update(torch.from_numpy(rows).view(1, 1, -1))
    found = networks.parts(networks.parameters)
    for name, part in zip(reference.names(networks), expected.numbers, strict=True):
        np.testing.assert_allclose(found[name][0].numpy(), part, rtol=0, atol=1e-5, err_msg=name)
    told = dict(zip(METRICS, (optimizer.metrics[0] / 6).tolist(), strict=True))
    assert told["minibatches"] == 1
    assert told["grad_norm"] == pytest.approx(np.mean(expected.norms), rel=1e-4)
    assert 0 < told["clip_fraction"] < 1


def test_the_gradient_of_a_multi_categorical_is_the_derivative_of_its_own_log_p():
    """Central differences of the loss in float64, along a few directions."""
    distribution = distributions.of(THREE_TWO)
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)
    optimizer = made(networks, distribution, batch, lr=0.0, ent_coef=0.0, clip=1e9, vf_coef=0.0, norm_adv=False)
    seen = []
    optimizer.reduce = lambda tensor: seen.append(tensor.clone())
    optimizer.update(torch.arange(N).view(1, 1, N))
    gradient = seen[-1][0, : networks.size].double()

    def loss() -> float:
        with torch.no_grad():
            out, _ = networks(batch["obs"][None])
            found, _ = distribution.log_prob_entropy(out[0].double(), None, batch["action"])
        return float(-(batch["advantage"] * (found - batch["log_prob"]).exp()).mean())

    first = networks.parameters.clone()
    for seed in range(3):
        direction = networks.flat(
            {name: normal(*part.shape, seed=seed) for name, part in networks.parts(first).items()}
        )
        h = 1e-2 / direction.norm()
        ends = []
        for sign in (1, -1):
            networks.parameters.copy_(first + sign * h * direction)
            ends.append(loss())
        assert (gradient @ direction[0].double()).item() == pytest.approx(
            (ends[0] - ends[1]) / (2 * h.item()), rel=2e-2, abs=2e-3
        )


@pytest.mark.parametrize(
    ("advantage", "ratio", "moves"),
    [(1.0, 1.3, False), (1.0, 1.1, True), (1.0, 0.7, True), (-1.0, 0.7, False), (-1.0, 0.9, True), (-1.0, 1.3, True)],
)
def test_what_the_clip_has_reached_does_not_move(advantage, ratio, moves):
    """The derivative is -advantage ratio d log p, or 0 where a larger step is not wanted."""
    distribution = distributions.of(Discrete(3))
    networks = networks_for(distribution)
    obs, action = normal(1, 3), torch.tensor([1])
    out, _ = networks(obs[None])
    log_prob, _ = distribution.log_prob_entropy(out[0], None, action)
    leaves = [leaf for name, leaf in networks.leaves.items() if name.startswith("actor")]
    by_log_prob = torch.cat([part.flatten() for part in torch.autograd.grad(log_prob.sum(), leaves)])
    batch = {"obs": obs, "action": action, "log_prob": log_prob.detach() - math.log(ratio)}
    batch |= {"advantage": torch.tensor([advantage]), "value": torch.zeros(1), "target": torch.zeros(1)}
    optimizer = made(networks, distribution, batch, lr=0.0, ent_coef=0.0, vf_coef=0.0, norm_adv=False)
    seen = []
    optimizer.reduce = lambda tensor: seen.append(tensor.clone())
    optimizer.update(torch.zeros(1, 1, 1, dtype=torch.int64))
    expected = -advantage * ratio * by_log_prob if moves else torch.zeros_like(by_log_prob)
    torch.testing.assert_close(seen[-1][0, : len(expected)], expected, rtol=1e-5, atol=1e-7)
    assert optimizer.metrics[0, METRICS.index("clip_fraction")] == float(abs(ratio - 1) > 0.2)


@pytest.mark.parametrize(
    ("old", "target", "loss", "slope"),  # the new value is 0
    [  # unclipped: target^2 / 2; held 0.2 from the old one: (old +- 0.2 - target)^2 / 2; the larger one counts
        (0.1, 1.0, 0.5, -1.0),  # within the limit both are the same
        (1.0, 2.0, 2.0, -2.0),  # held at 0.8, nearer to the target: the unclipped one
        (1.0, -1.0, 1.62, 0.0),  # held at 0.8, 1.8 from the target: the clipped one, which does not move
        (-1.0, 1.0, 1.62, 0.0),
    ],
)
def test_the_larger_of_both_value_losses_counts(old, target, loss, slope):
    distribution = distributions.of(Discrete(2))
    networks = networks_for(distribution)
    networks.parameters.zero_()
    batch = {"obs": normal(1, 3), "action": torch.tensor([0]), "log_prob": torch.tensor([math.log(0.5)])}
    batch |= {"advantage": torch.zeros(1), "value": torch.tensor([old]), "target": torch.tensor([target])}
    optimizer = made(networks, distribution, batch, lr=0.0, vf_coef=1.0, norm_adv=False)
    seen = []
    optimizer.reduce = lambda tensor: seen.append(tensor.clone())
    optimizer.update(torch.zeros(1, 1, 1, dtype=torch.int64))
    assert optimizer.metrics[0, METRICS.index("value_loss")] == pytest.approx(loss, abs=1e-6)
    at = networks.places["critic.2.bias"][0]
    assert seen[-1][0, at] == pytest.approx(slope, abs=1e-6)


def test_figures_are_means_over_the_rows():
    distribution = distributions.of(Discrete(3))
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)
    out, value = networks(batch["obs"][None])
    log_p = out[0].detach().double().log_softmax(1)
    log_ratio = log_p.gather(1, batch["action"].long().unsqueeze(1))[:, 0] - batch["log_prob"]
    ratio, advantage = log_ratio.exp(), (batch["advantage"] - batch["advantage"].mean()) / batch["advantage"].std()
    expected = {
        "policy_loss": torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean(),
        "value_loss": 0.5 * (value[0].detach() - batch["target"]).square().mean(),
        "entropy": -(log_p.exp() * log_p).sum(1).mean(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > 0.2).double().mean(),
    }
    optimizer = made(networks, distribution, batch, clip_value=False)
    optimizer.update(torch.arange(N).view(1, 1, N))
    for name, number in expected.items():
        assert optimizer.metrics[0, METRICS.index(name)] == pytest.approx(float(number), rel=1e-5, abs=1e-6), name


def test_above_target_kl_nothing_moves_until_the_next_iteration():
    distribution = distributions.of(Discrete(3))
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)  # mean(ratio - 1 - ln ratio) is some 0.3^2 / 2
    rows = torch.arange(N).view(1, 1, N)
    before = networks.parameters.clone()
    optimizer = made(networks, distribution, batch, target_kl=0.02)
    for _ in range(2):
        optimizer.update(rows)
    assert torch.equal(networks.parameters, before) and not optimizer.first.any() and optimizer.steps.tolist() == [0]
    batch["log_prob"].copy_(
        distribution.log_prob_entropy(networks(batch["obs"][None])[0][0], None, batch["action"])[0].detach()
    )
    optimizer.update(rows)
    assert torch.equal(networks.parameters, before)  # although the divergence is 0 now
    assert optimizer.metrics[0, METRICS.index("minibatches")] == 1  # the one that was too far
    optimizer.begin()
    optimizer.update(rows)
    assert not torch.equal(networks.parameters, before) and optimizer.steps.tolist() == [1]


@pytest.mark.parametrize("space", [Discrete(3), BOX, THREE_TWO], ids=str)
@pytest.mark.parametrize("shards", [1, 2])
def test_rows_that_are_not_valid_may_hold_anything(space, shards):
    distribution = distributions.of(space)
    valid = torch.arange(N) % 3 != 0

    def trained(rubbish: float):
        networks = networks_for(distribution)
        batch = batch_of(networks, distribution)
        for part in batch.values():
            part[~valid] = rubbish if part.is_floating_point() else 0
        optimizer = made(networks, distribution, batch | {"valid": valid}, shards=shards)
        for _ in range(3):
            optimizer.update(torch.arange(N).view(1, shards, -1))
        return networks.parameters, optimizer.metrics

    expected = trained(0.5)
    for rubbish in (float("nan"), float("inf"), -1e30):
        assert all(map(torch.equal, trained(rubbish), expected))
    assert expected[0].isfinite().all()


def test_an_update_on_valid_rows_is_one_on_these_rows_alone():
    distribution = distributions.of(Discrete(3))
    valid = torch.arange(N) % 3 != 0
    found = []
    for masked in (True, False):
        networks = networks_for(distribution)
        batch = batch_of(networks, distribution)
        rows = torch.arange(N) if masked else valid.nonzero()[:, 0]
        optimizer = made(networks, distribution, batch | ({"valid": valid} if masked else {}))
        for _ in range(3):
            optimizer.update(rows.view(1, 1, -1))
        found.append((networks.parameters, optimizer.metrics))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_minibatch_without_a_valid_row_changes_nothing():
    distribution = distributions.of(Discrete(3))
    networks = networks_for(distribution)
    before = networks.parameters.clone()
    batch = batch_of(networks, distribution) | {"valid": torch.zeros(N, dtype=torch.bool)}
    made(networks, distribution, batch).update(torch.arange(N).view(1, 1, N))
    assert torch.equal(networks.parameters, before)


def test_learners_of_a_stack_train_as_alone():
    distribution = distributions.of(BOX)
    rate, ent_coef = torch.tensor([1e-3, 5e-3, 2e-3]), torch.tensor([0.0, 0.1, 0.01])
    stack = networks_for(distribution, learners=3, seeds=(0, 1, 2))
    rows = torch.arange(3 * N).view(3, 1, N)
    batches = [batch_of(networks_for(distribution, seeds=(seed,)), distribution, seed=seed) for seed in range(3)]
    batch = {name: torch.cat([one[name] for one in batches]) for name in batches[0]}
    together = Autograd(stack, distribution, batch, rate, ent_coef)
    for _ in range(10):
        together.update(rows)
    for seed in range(3):
        solo = networks_for(distribution, seeds=(seed,))
        alone = Autograd(solo, distribution, batches[seed], rate[seed : seed + 1], ent_coef[seed : seed + 1])
        for _ in range(10):
            alone.update(rows[:1])
        torch.testing.assert_close(stack.parameters[seed], solo.parameters[0], rtol=0, atol=1e-4)
        torch.testing.assert_close(together.metrics[seed], alone.metrics[0], rtol=1e-4, atol=1e-5)


def test_shards_are_parts_of_one_minibatch():
    """However many shards, the mean is over all their rows; what a process of its own would add up is summed."""
    distribution = distributions.of(Discrete(3))
    found = []
    for shards in (1, 2, 4):
        networks = networks_for(distribution)
        optimizer = made(networks, distribution, batch_of(networks, distribution), shards=shards)
        for _ in range(3):
            optimizer.update(torch.arange(N).view(1, shards, -1))
        found.append((networks.parameters, optimizer.metrics))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-5)


def test_padding_stays_0():
    distribution = distributions.of(Box(-1, 1, (3,)))
    networks = networks_for(distribution)
    used = (
        networks.flat({name: torch.ones_like(part) for name, part in networks.parts(networks.parameters).items()}) == 1
    )
    optimizer = made(networks, distribution, batch_of(networks, distribution))
    for _ in range(5):
        optimizer.update(torch.arange(N).view(1, 1, N))
    for tensor in (networks.parameters, optimizer.first, optimizer.second):
        assert not tensor[~used].any()


@pytest.mark.parametrize(("broken", "place"), [("advantage", "loss"), ("obs", "loss"), ("target", "loss")])
def test_a_step_that_is_not_finite_is_not_made(broken, place):
    distribution = distributions.of(Discrete(3))
    networks = networks_for(distribution, learners=2, seeds=(0, 1))
    batch = batch_of(networks, distribution, 2 * N)
    batch[broken][N + 3] = float("nan")
    before = networks.parameters.clone()
    optimizer = made(networks, distribution, batch)
    rows = torch.arange(2 * N).view(2, 1, N)
    half = rows[:, :, N // 2 :]  # without the row that is broken
    optimizer.update(half)
    between = networks.parameters.clone()
    optimizer.update(rows)
    assert optimizer.first_bad.tolist() == [1, 1]
    assert optimizer.steps.tolist() == [2, 1]
    assert not torch.equal(between[1], before[1]) and torch.equal(networks.parameters[1], between[1])
    assert not torch.equal(networks.parameters[0], between[0])  # the other learner goes on


@pytest.mark.parametrize("max_grad_norm", [0.01, 1e9])
def test_the_step_is_torch_s_adam_behind_its_norm_limit(max_grad_norm):
    distribution = distributions.of(BOX)
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)
    optimizer = made(networks, distribution, batch, max_grad_norm=max_grad_norm)
    weights = torch.nn.Parameter(networks.parameters[0].clone())
    adam = torch.optim.Adam([weights], lr=1e-3, eps=1e-5)
    seen = []
    optimizer.reduce = lambda tensor: seen.append(tensor.clone())
    for step in range(10):
        optimizer.rate.fill_(1e-3 * (1 - step / 10))
        adam.param_groups[0]["lr"] = 1e-3 * (1 - step / 10)
        optimizer.update(torch.arange(N).view(1, 1, N))
        weights.grad = seen[-1][0, : networks.size].clone()
        torch.nn.utils.clip_grad_norm_([weights], max_grad_norm)
        adam.step()
        torch.testing.assert_close(networks.parameters[0], weights.detach(), rtol=0, atol=1e-6)


def test_an_update_goes_on_from_a_state():
    distribution = distributions.of(Discrete(3))
    rows = torch.arange(N).view(1, 1, N)
    networks = networks_for(distribution)
    batch = batch_of(networks, distribution)
    optimizer = made(networks, distribution, batch)
    for _ in range(3):
        optimizer.update(rows)
    kept, state = networks.parameters.clone(), optimizer.state()
    for _ in range(3):
        optimizer.update(rows)
    other = networks_for(distribution)
    other.parameters.copy_(kept)
    continued = made(other, distribution, batch)
    continued.load_state(state)
    for _ in range(3):
        continued.update(rows)
    assert torch.equal(other.parameters, networks.parameters)
    assert continued.updates.item() == 6


# ---- how long a graph is ---------------------------------------------------------------------------------------------

# Operations that are no kernel on a GPU: a view, an allocation.
NO_KERNEL = re.compile(
    r"aten::(view|_unsafe_view|t|transpose|unsqueeze|squeeze|expand|select|slice|detach|alias|as_strided|permute|"
    r"split|split_with_sizes|unbind|empty\w*|new_empty\w*)$"
)


class Operations(TorchDispatchMode):
    """Counts what torch computes inside it, in the loss as in its gradient."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, kinds, arguments=(), options=None):
        self.count += NO_KERNEL.match(function._schema.name) is None
        return function(*arguments, **options or {})


@pytest.mark.parametrize(
    ("kind", "options", "of_each", "of_an_epoch"),
    [
        ("discrete", {"clip_value": False}, 94, 74),
        ("discrete", {}, 116, 74),
        ("gaussian", {"clip_value": False}, 105, 74),
        ("gaussian", {"clip_value": False, "target_kl": 0.1}, 110, 74),
    ],
)
def test_a_minibatch_takes_no_more_operations_than_it_did(kind, options, of_each, of_an_epoch):
    """Each is a node of a CUDA graph or more; a matrix product or two for every layer are 30 of them."""
    distribution = distributions.of(SPACES[kind])
    networks = networks_for(distribution)
    optimizer = made(networks, distribution, batch_of(networks, distribution), **options)
    counts = []
    for minibatches in (1, 2):
        with Operations() as operations:
            optimizer.epoch(torch.arange(N).view(1, 1, N), minibatches)
        counts.append(operations.count)
    each = counts[1] - counts[0]
    assert each <= of_each and counts[0] - each <= of_an_epoch
