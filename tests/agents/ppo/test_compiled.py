import math
import platform
import threading

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from lockstep.agents.parts import distributions
from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.ppo import compiled
from lockstep.agents.ppo.autograd import Autograd
from lockstep.agents.ppo.update import METRICS
from lockstep.envs.kernels import compile

N = 600


def space(actions: int, continuous: bool):
    return Box(-np.ones(actions, np.float32), np.ones(actions, np.float32)) if continuous else Discrete(actions)


def problem(actions=2, continuous=False, inputs=4, hidden=64, learners=1, spread=0.2):
    """Networks, distribution and a batch whose ratios lie on both sides of every limit."""
    generator = torch.Generator().manual_seed(7)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    distribution = distributions.of(space(actions, continuous))
    networks = ActorCritic(
        inputs, distribution.outputs, distribution.free, (hidden, hidden), learners=learners, seeds=range(learners)
    )
    for part in networks.parts(networks.parameters).values():
        part.add_(0.2 * normal(*part.shape))
    obs = normal(N, inputs)
    with torch.no_grad():
        out, value = (tensor[0] for tensor in networks(obs.expand(learners, -1, -1)))
        noise = torch.randint(0, 1 << 24, (N, 4 * distribution.blocks), generator=generator).int()
        free = networks.leaves["free"][0] if distribution.free else None
        action, log_prob = distribution.sample(out, free, noise)
    batch = {
        "obs": obs,
        "action": action.contiguous(),
        "log_prob": log_prob + spread * normal(N),
        "advantage": 2 * normal(N) + 1,
        "target": value + normal(N),
        "value": value + 0.2 * normal(N),
    }
    return networks, distribution, batch


def copy_of(networks: ActorCritic, learners: slice = slice(None)) -> ActorCritic:
    rows = networks.parameters[learners]
    copy = ActorCritic(
        networks.inputs, networks.outputs, networks.free, networks.hidden, learners=len(rows), seeds=range(len(rows))
    )
    copy.parameters.copy_(rows)
    return copy


def build(networks, distribution, batch, rows, rate=1e-3, ent_coef=0.01, **options) -> compiled.CompiledUpdate:
    L = networks.learners
    return compiled.CompiledUpdate(
        networks, distribution, batch, torch.full((L,), rate), torch.full((L,), ent_coef), rows=rows, **options
    )


def drawn(learners=1, shards=1, rows=300, seed=3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(N, generator=generator) for _ in range(learners)])
    return order[:, : shards * rows].view(learners, shards, rows).contiguous()


def reference(networks, batch, rows, dtype, continuous, clip_value, norm_adv, clip=0.2, ent_coef=0.01, vf_coef=0.5):
    """The gradient [P] of PPO's clipped loss in a dtype, by torch's differentiation; figures."""
    parameters = networks.parameters[0].to(dtype, copy=True).requires_grad_()
    part = {name: tensor[0] for name, tensor in networks.parts(parameters.unsqueeze(0)).items()}
    row = {name: tensor[rows].to(dtype) for name, tensor in batch.items()}

    def network(name):
        x = row["obs"]
        for number in range(3):
            x = x @ part[f"{name}.{number}.weight"].T + part[f"{name}.{number}.bias"]
            x = x.tanh() if number < 2 else x
        return x

    out, value = network("actor"), network("critic")[:, 0]
    if continuous:
        normal = torch.distributions.Normal(out, part["free"].exp())
        log_prob, entropy = normal.log_prob(row["action"]).sum(1), normal.entropy().sum(1)
    else:
        categorical = torch.distributions.Categorical(logits=out)
        log_prob, entropy = categorical.log_prob(row["action"]), categorical.entropy()
    advantage = row["advantage"]
    if norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    log_ratio = log_prob - row["log_prob"]
    ratio = log_ratio.exp()
    policy = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))
    error = (value - row["target"]) ** 2
    if clip_value:
        near = row["value"] + (value - row["value"]).clamp(-clip, clip)
        error = torch.maximum(error, (near - row["target"]) ** 2)
    loss = policy.mean() + vf_coef * 0.5 * error.mean() - ent_coef * entropy.mean()
    figures = [policy, 0.5 * error, entropy, ratio - 1 - log_ratio, ((ratio - 1).abs() > clip).to(dtype)]
    return torch.autograd.grad(loss, parameters)[0], torch.stack([figure.mean() for figure in figures]).detach()


SHAPES = [
    (2, False, 4, 64),
    (6, False, 9, 32),
    (8, False, 3, 16),
    (1, True, 3, 64),
    (5, True, 8, 32),
    (3, True, 17, 16),
]


@pytest.mark.parametrize("norm_adv", [False, True])
@pytest.mark.parametrize("clip_value", [False, True])
@pytest.mark.parametrize(
    ("actions", "continuous", "inputs", "hidden"),
    [pytest.param(*shape, marks=[pytest.mark.slow] * (shape not in (SHAPES[1], SHAPES[-1]))) for shape in SHAPES],
)
def test_gradient_is_that_of_the_loss_in_float64(actions, continuous, inputs, hidden, clip_value, norm_adv):
    """To twice the rounding of torch's own differentiation in float32."""
    networks, distribution, batch = problem(actions, continuous, inputs, hidden)
    rows = drawn(rows=301)
    (expected, figures), (rounded, _) = (
        reference(networks, batch, rows[0, 0], dtype, continuous, clip_value, norm_adv)
        for dtype in (torch.float64, torch.float32)
    )
    explicit = build(networks, distribution, batch, 301, clip_value=clip_value, norm_adv=norm_adv)
    explicit.update(rows)
    found = explicit.gradients[0, 0, : networks.size]
    eps = torch.finfo(torch.float32).eps
    for order in (2, math.inf):
        error, usual, whole = ((x - y).norm(order) for x, y in ((found, expected), (rounded, expected), (expected, 0)))
        assert error <= 2 * usual + eps * whole and usual <= 20 * eps * whole
    torch.testing.assert_close(explicit.metrics[0, :5], figures, rtol=1e-5, atol=1e-6)
    assert 0.05 < figures[4] < 0.95  # rows on both sides of the limit
    assert explicit.metrics[0, 5].item() == pytest.approx(expected.norm().item(), rel=1e-5)
    assert explicit.metrics[0, 6] == 1


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"), [(1.5, 1, False), (1.5, -1, True), (0.5, 1, True), (0.5, -1, False)]
)
def test_rows_beyond_the_limit_move_the_policy_only_back(ratio, advantage, moves):
    networks, distribution, batch = problem(spread=0)
    batch["log_prob"] -= math.log(ratio)
    batch["advantage"].fill_(advantage)
    explicit = build(networks, distribution, batch, 300, ent_coef=0.0, norm_adv=False)
    explicit.update(drawn())
    actor = explicit.gradients[0, 0, : networks.places["critic.0.weight"][0]]
    assert (actor.abs().max() > 0) == moves


def test_steps_are_those_of_torch_adam_after_clip_grad_norm():
    networks, distribution, batch = problem()
    twin = torch.nn.Parameter(networks.parameters.clone())
    adam = torch.optim.Adam([twin], lr=3e-3, eps=1e-5)
    explicit = build(networks, distribution, batch, 200, rate=3e-3, max_grad_norm=0.1)
    limited = 0
    for step in range(10):
        explicit.update(drawn(rows=200, seed=step))
        twin.grad = explicit.total[:, : networks.size].clone()
        limited += torch.nn.utils.clip_grad_norm_([twin], 0.1).item() > 0.1
        adam.step()
        torch.testing.assert_close(networks.parameters, twin.detach(), rtol=0, atol=1e-6)
    assert limited == 10
    assert explicit.steps.tolist() == [10]


@pytest.mark.parametrize("continuous", [False, True])
def test_update_is_that_of_autograd(continuous):
    networks, distribution, batch = problem(2, continuous, learners=2)
    twin = copy_of(networks)
    explicit = build(networks, distribution, batch, 150, shards=2)
    other = Autograd(twin, distribution, batch, torch.full((2,), 1e-3), torch.full((2,), 0.01), shards=2)
    for seed in range(5):
        rows = drawn(2, 2, 150, seed)
        explicit.update(rows)
        other.update(rows)
    torch.testing.assert_close(networks.parameters, twin.parameters, rtol=0, atol=2e-6)
    torch.testing.assert_close(explicit.metrics, other.metrics, rtol=1e-4, atol=1e-5)
    assert explicit.metrics.shape[1] == len(METRICS)
    for name, tensor in other.state().items():
        torch.testing.assert_close(explicit.state()[name], tensor, rtol=1e-3, atol=1e-5)


def test_state_continues_bit_for_bit():
    networks, distribution, batch = problem()
    first = build(networks, distribution, batch, 300)
    first.update(drawn())
    twin = copy_of(networks)
    second = build(twin, distribution, batch, 300)
    second.load_state(first.state())
    first.update(drawn(seed=4))
    second.update(drawn(seed=4))
    assert torch.equal(networks.parameters, twin.parameters)


@pytest.mark.parametrize("rows", [1, 64, 127, 128, 600])
def test_any_number_of_threads_gives_the_same_bits(rows):
    found = []
    for threads in (1, 2, 3, 5):
        networks, distribution, batch = problem(learners=2)
        explicit = build(networks, distribution, batch, rows, threads=threads)
        for seed in range(3):
            explicit.update(drawn(2, 1, rows, seed))
        found.append(torch.cat([networks.parameters, explicit.gradients[:, 0, : networks.size]]))
    assert found[0].isfinite().all()
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_parts_depend_on_the_rows_alone_and_stay_few():
    assert [compiled.parts_of(rows) for rows in (1, 127, 128, 1023, 2048, 8192, 1 << 20)] == [1, 1, 2, 2, 4, 16, 32]


def test_a_learner_among_others_is_its_solo_run_bit_for_bit():
    networks, distribution, batch = problem(learners=3)
    solo = copy_of(networks, slice(1, 2))
    together = build(networks, distribution, batch, 200)
    alone = build(solo, distribution, batch, 200)
    for seed in range(3):
        rows = drawn(3, 1, 200, seed)
        together.update(rows)
        alone.update(rows[1:2].contiguous())
    assert torch.equal(networks.parameters[1:2], solo.parameters)
    assert not torch.equal(networks.parameters[0], networks.parameters[1])


def test_two_shards_are_two_processes_bit_for_bit():
    networks, distribution, batch = problem()
    twins = [copy_of(networks), copy_of(networks)]
    barrier, slots = threading.Barrier(2), [None, None]

    def process(rank):
        def reduce(tensor):
            slots[rank] = tensor.clone()
            barrier.wait()
            total = slots[0] + slots[1]
            barrier.wait()
            tensor.copy_(total)

        explicit = build(twins[rank], distribution, batch, 250, reduce=reduce)
        for seed in range(3):
            explicit.update(drawn(1, 2, 250, seed)[:, rank : rank + 1].contiguous())

    ranks = [threading.Thread(target=process, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    both = build(networks, distribution, batch, 250, shards=2)
    for seed in range(3):
        both.update(drawn(1, 2, 250, seed))
    for rank in ranks:
        rank.join()
    assert torch.equal(twins[0].parameters, networks.parameters)
    assert torch.equal(twins[1].parameters, networks.parameters)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("obs", math.nan),
        ("advantage", math.nan),
        ("advantage", math.inf),
        ("log_prob", math.nan),
        ("target", -math.inf),
    ],
)
def test_a_gradient_that_is_not_finite_is_not_applied(name, value):
    networks, distribution, batch = problem(learners=2)
    explicit = build(networks, distribution, batch, 300)
    explicit.update(drawn(2))
    before, state = networks.parameters.clone(), explicit.state()
    rows = drawn(2, seed=8)
    row = next(row for row in rows[1, 0].tolist() if row not in rows[0, 0].tolist())
    good, batch[name][row] = batch[name][row].clone(), value
    explicit.update(rows)
    assert explicit.first_bad.tolist() == [1, 1]
    assert torch.equal(networks.parameters[1], before[1])
    assert torch.equal(explicit.first[1], state["first"][1])
    assert explicit.steps.tolist() == [2, 1]
    assert not torch.equal(networks.parameters[0], before[0])
    batch[name][row] = good
    explicit.update(rows)
    assert networks.parameters.isfinite().all()
    assert not torch.equal(networks.parameters[1], before[1])
    assert explicit.first_bad.tolist() == [1, 1]  # the first one stays


def test_a_ratio_that_runs_away_is_not_applied():
    networks, distribution, batch = problem()
    batch["log_prob"][:] = -100.0
    batch["advantage"].fill_(-1.0)
    start = networks.parameters.clone()
    explicit = build(networks, distribution, batch, 300, norm_adv=False)
    explicit.update(drawn())
    assert explicit.first_bad.tolist() == [0, 0]
    assert torch.equal(networks.parameters, start)


def test_a_kl_beyond_its_target_stops_a_learner_until_the_next_iteration():
    networks, distribution, batch = problem(learners=2)
    start = networks.parameters.clone()
    explicit = build(networks, distribution, batch, 300, target_kl=1e-9)
    for seed in range(3):
        explicit.update(drawn(2, seed=seed))
    assert explicit.stopped.tolist() == [True, True]
    assert torch.equal(networks.parameters, start)
    assert explicit.metrics[:, 6].tolist() == [1, 1]  # the one minibatch that showed it
    explicit.begin()
    assert explicit.stopped.tolist() == [False, False]
    loose = build(networks, distribution, batch, 300, target_kl=10.0)
    loose.update(drawn(2))
    assert loose.stopped.tolist() == [False, False]
    assert not torch.equal(networks.parameters, start)


def test_rates_and_coefficients_are_read_at_every_update():
    networks, distribution, batch = problem(learners=2)
    rate = torch.tensor([0.0, 1e-3])
    explicit = compiled.CompiledUpdate(networks, distribution, batch, rate, torch.zeros(2), rows=300)
    start = networks.parameters.clone()
    explicit.update(drawn(2))
    assert torch.equal(networks.parameters[0], start[0])
    rate[0] = 1e-3
    explicit.update(drawn(2))
    assert not torch.equal(networks.parameters[0], start[0])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names vector extensions of x86-64")
@pytest.mark.parametrize("without", [("-mno-avx512f",), ("-mno-avx",)])
def test_narrower_vectors_give_the_same_gradient(without, monkeypatch):
    networks, distribution, batch = problem()
    expected, _ = reference(networks, batch, drawn()[0, 0], torch.float64, False, True, True)
    flags, macros = compile.target_flags()
    narrow = tuple(flag for flag in flags if "vector-width" not in flag) + without
    monkeypatch.setattr(compile, "target_flags", lambda: (narrow, macros))
    monkeypatch.setattr(compile, "library", compile.library.__wrapped__)
    explicit = build(networks, distribution, batch, 300)
    explicit.update(drawn())
    assert (explicit.gradients[0, 0, : networks.size] - expected).norm() <= 1e-6 * expected.norm()


def test_fits_what_it_can_differentiate():
    assert compiled.fits(distributions.of(Discrete(8)))
    assert not compiled.fits(distributions.of(Discrete(9)))
    assert compiled.fits(distributions.of(space(3, True)))
    assert not compiled.fits(distributions.of(MultiDiscrete([2, 2])))


def test_networks_of_another_shape_are_refused():
    _, distribution, batch = problem()
    for hidden in ((64,), (64, 32), (48, 48)):
        networks = ActorCritic(4, 2, 0, hidden)
        with pytest.raises(ValueError, match=r"hidden layers of \[.*two equal layers of 16, 32 or 64"):
            build(networks, distribution, batch, 10)
    with pytest.raises(ValueError, match="bf16 on cpu; the compiled update knows .*precision='fp32'"):
        build(ActorCritic(4, 2, 0, precision="bf16"), distribution, batch, 10)
    with pytest.raises(ValueError, match="at most 8 actions"):
        build(ActorCritic(4, 9, 0), distributions.of(Discrete(9)), batch, 10)


def test_tensors_of_another_kind_are_refused():
    networks, distribution, batch = problem()
    for name, tensor, message in (
        ("obs", batch["obs"][:, :3], r"batch\['obs'\] must be contiguous torch.float32 \[600, 4\]"),
        ("action", batch["action"].long(), r"batch\['action'\] must be contiguous torch.uint8 \[600\] .*torch.int64"),
        ("value", torch.zeros(N, 2)[:, 0], "not contiguous"),
        ("valid", torch.ones(N, dtype=torch.bool), "batch has valid, .* use Autograd"),
    ):
        with pytest.raises(ValueError, match=message):
            build(networks, distribution, batch | {name: tensor}, 10)
    with pytest.raises(ValueError, match=r"rate must be contiguous torch.float32 \[1\]"):
        compiled.CompiledUpdate(networks, distribution, batch, torch.zeros(2), torch.zeros(1), rows=10)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        build(networks, distribution, batch, 10, threads=0)


def test_rows_that_the_batch_does_not_have_are_refused():
    networks, distribution, batch = problem()
    start = networks.parameters.clone()
    explicit = build(networks, distribution, batch, 300)
    for wrong in (-1, N):
        rows = drawn()
        rows[0, 0, 17] = wrong
        with pytest.raises(IndexError, match=rf"rows\[0, 0, 17\] is {wrong}; the batch has rows 0 to 599"):
            explicit.update(rows)
    with pytest.raises(ValueError, match=r"rows must be int64 \[1, 1, 300\]"):
        explicit.update(drawn(rows=299))
    assert torch.equal(networks.parameters, start)
