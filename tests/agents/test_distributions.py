"""Action distributions: against enumeration, closed forms, quadrature, torch.distributions, and the kernels' policy."""

import itertools
import math
import re

import gymnasium
import mpmath
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import nn

from lockstep import envs
from lockstep.agents import boxes, distributions
from lockstep.envs import noise
from tests.envs.batches import NAMES

LARGEST = 2**24 - 1  # of the noise
INTERVALS = Box(np.float32([-1.0, -0.3]), np.float32([3.0, 0.1]))
MANY = {
    "discrete": (Discrete(3), "clipped"),
    "multi": (MultiDiscrete([2, 4, 3]), "clipped"),
    "clipped": (INTERVALS, "clipped"),
    "squashed": (INTERVALS, "squashed"),
    "beta": (INTERVALS, "beta"),
}


def many(kind: str) -> distributions.Distribution:
    return distributions.of(*MANY[kind])


def words(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 2**24, shape, dtype=torch.int32, generator=torch.Generator().manual_seed(seed))


def scores(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def parameters(found: distributions.Distribution, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Outputs [rows, m] and free parameters [f]."""
    return scores(rows, found.outputs), torch.linspace(-0.7, 0.4, found.free) if found.free else None


def softmax(logits) -> np.ndarray:
    weights = np.exp(np.asarray(logits, np.float64) - np.max(np.asarray(logits), axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray):
    """Pearson's chi-square test, p > 1e-3; where the probability is 0, no count at all."""
    counts, probabilities = counts.ravel(), probabilities.ravel()
    assert not counts[probabilities == 0].any()
    expected = counts.sum() * probabilities[probabilities > 0]
    statistic = ((counts[probabilities > 0] - expected) ** 2 / expected).sum()
    assert float(mpmath.gammainc((len(expected) - 1) / 2, statistic / 2, mpmath.inf, regularized=True)) > 1e-3


@pytest.mark.parametrize(
    ("space", "box", "expected"),
    [  # outputs, free, masks, words, blocks, stored shape, stored type
        (Discrete(2), "clipped", (2, 0, 2, 1, 1, (), torch.uint8)),
        (Discrete(256), "beta", (256, 0, 256, 1, 1, (), torch.uint8)),
        (Discrete(257), "clipped", (257, 0, 257, 1, 1, (), torch.int64)),
        (MultiDiscrete([2, 4, 3, 2, 2]), "clipped", (13, 0, 13, 5, 2, (5,), torch.int64)),
        (Box(-2, 2, (1,)), "clipped", (1, 1, 0, 2, 1, (1,), torch.float32)),
        (Box(-np.inf, np.inf, (3,)), "clipped", (3, 3, 0, 6, 2, (3,), torch.float32)),
        (Box(-2, 2, (3,)), "squashed", (3, 3, 0, 6, 2, (3,), torch.float32)),
        (Box(-2, 2, (3,)), "beta", (6, 0, 0, 72, 18, (3,), torch.float32)),
    ],
)
def test_a_space_says_what_a_network_and_a_batch_must_hold(space, box, expected):
    found = distributions.of(space, box)
    names = ("outputs", "free", "masks", "words", "blocks", "stored_shape", "stored_dtype")
    assert tuple(getattr(found, name) for name in names) == expected


def test_every_environment_has_a_distribution():
    for name in envs.names():
        distributions.of(envs.port(name).of("action"))


@pytest.mark.parametrize(
    ("space", "box", "message"),
    [
        (gymnasium.spaces.MultiBinary(3), "clipped", "no policy for action space MultiBinary(3); it must be Discrete"),
        (Box(-1, 1, (2, 2)), "clipped", "float Box of one axis"),
        (Box(0, 9, (2,), dtype=np.int64), "clipped", "float Box of one axis"),
        (MultiDiscrete([[2, 2], [3, 3]]), "clipped", "a MultiDiscrete or float Box of one axis"),
        (Discrete(3, start=1), "clipped", "action space Discrete(3, start=1) must count its actions from 0"),
        (
            Box(np.float32([-1, -np.inf]), np.float32([1, 1])),
            "squashed",
            "box='squashed' needs finite bounds, low < high; component 1 has [-inf, 1]",
        ),
        (Box(2, 2, (1,)), "beta", "box='beta' needs finite bounds, low < high; component 0 has [2, 2]"),
        (Box(-1, 1, (1,)), "tanh", "box='tanh' must be one of 'clipped', 'squashed', 'beta'"),
    ],
)
def test_a_space_without_a_policy_is_refused(space, box, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        distributions.of(space, box)


@pytest.mark.parametrize("masked", [False, True])
def test_log_p_and_entropy_of_a_categorical_are_those_of_its_enumerated_probabilities(masked):
    found, logits = distributions.of(Discrete(5)), scores(200, 5)
    mask = scores(200, 5, seed=1) > 0.3 if masked else torch.ones(200, 5, dtype=torch.bool)
    mask[:, 2] = True
    probabilities = softmax(np.where(mask, logits, -np.inf))
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(probabilities * np.log(probabilities), axis=1)
    for action in range(5):
        taken = torch.full((200,), action, dtype=torch.uint8)
        log_prob, found_entropy = found.log_prob_entropy(logits, None, taken, mask if masked else None)
        allowed = mask[:, action].numpy()
        np.testing.assert_allclose(log_prob[allowed], np.log(probabilities[allowed, action]), atol=2e-6, rtol=0)
        assert (log_prob[~allowed].exp() == 0).all()
        np.testing.assert_allclose(found_entropy, entropy, atol=2e-6, rtol=0)


def test_an_action_is_the_first_whose_cumulative_probability_exceeds_u():
    found, logits = distributions.of(Discrete(3)), torch.tensor([0.5, 0.25, 0.25]).log()
    k = torch.tensor([0, 2**23 - 9, 2**23 + 9, 3 * 2**22 - 9, 3 * 2**22 + 9, LARGEST], dtype=torch.int32)
    action, log_prob = found.sample(logits.expand(6, 3), None, k.unsqueeze(-1).expand(6, 4))
    assert action.dtype == torch.uint8
    assert action.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(log_prob.exp(), [0.5, 0.5, 0.25, 0.25, 0.25, 0.25], rtol=1e-6)


def test_actions_are_as_frequent_as_probable_and_forbidden_ones_are_never_drawn():
    found, n = distributions.of(Discrete(6)), 1_000_000
    logits, mask = torch.tensor([3.0, -1.0, 0.0, 9.0, 0.5, 2.0]), torch.tensor([False, True, True, False, True, False])
    k = words(n, 4)
    k[:1000, 0], k[1000:2000, 0] = 0, LARGEST
    actions, log_prob = found.sample(logits.expand(n, 6), None, k, mask.expand(n, 6))
    assert set(actions[:1000].tolist()) == {1} and set(actions[1000:2000].tolist()) == {4}
    probabilities = softmax(np.where(mask, logits, -np.inf))
    assert_frequencies(np.bincount(actions[2000:], minlength=6), probabilities)
    np.testing.assert_allclose(log_prob.exp(), probabilities[actions], rtol=1e-5)
    free, _ = found.sample(logits.expand(n, 6), None, k)
    assert_frequencies(np.bincount(free[2000:], minlength=6), softmax(logits))


def test_a_sum_that_rounds_up_over_a_gap_or_ends_short_draws_no_forbidden_action(monkeypatch):
    found, mask = distributions.of(Discrete(4)), torch.tensor([[False, True, True, False]] * 2)
    badly_rounded = torch.tensor([[1e-7, 0.5, 1 - 2**-23, 1.0], [1e-7, 0.5, 1.0, 1 - 2**-23]])
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda tensor, dim: badly_rounded)
    for k, expected in ((0, 1), (LARGEST, 2)):
        action, _ = found.sample(torch.zeros(2, 4), None, torch.full((2, 4), k, dtype=torch.int32), mask)
        assert action.tolist() == [expected, expected]


def test_a_sum_that_rounds_up_at_its_end_draws_no_action_that_a_short_component_lacks(monkeypatch):
    badly_rounded = torch.tensor([[0.5, 1 - 2**-23, 1.0]] * 2)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda tensor, dim: badly_rounded)
    action, _ = distributions.of(MultiDiscrete([2, 3])).sample(torch.zeros(5), None, torch.full((4,), LARGEST))
    assert action.tolist() == [1, 2]


def test_where_one_action_is_allowed_it_is_certain():
    found = distributions.of(Discrete(4))
    logits, mask = scores(400, 4, scale=30), torch.eye(4, dtype=torch.bool).repeat(100, 1)
    k = words(400, 4)
    k[::7], k[1::7] = 0, LARGEST
    action, log_prob = found.sample(logits, None, k, mask)
    assert action.tolist() == [0, 1, 2, 3] * 100
    assert not log_prob.any()
    assert all(not figure.any() for figure in found.log_prob_entropy(logits, None, action, mask))
    assert found.mode(logits, None, mask).tolist() == action.tolist()


def test_a_row_that_allows_nothing_is_uniform_over_the_actions_there_are():
    for found, actions in ((many("discrete"), 3), (many("multi"), 24)):
        k, mask = words(500, 4), torch.zeros(500, found.masks, dtype=torch.bool)
        action, log_prob = found.sample(scores(500, found.outputs), None, k, mask)
        assert len(torch.unique(action, dim=0)) == actions
        np.testing.assert_allclose(log_prob, -math.log(actions), rtol=1e-6)


@pytest.mark.parametrize("allowed", [[1, 1, 1, 1], [0, 1, 1, 0]])
def test_gradients_of_a_categorical_are_the_closed_forms_and_forbidden_logits_have_none(allowed):
    found, mask = distributions.of(Discrete(4)), torch.tensor(allowed, dtype=torch.bool)
    logits = torch.tensor([0.3, -1.0, 2.0, 50.0]).requires_grad_()
    log_prob, entropy = found.log_prob_entropy(logits, None, torch.tensor(2), mask)
    p = softmax(np.where(mask, logits.detach(), -np.inf))
    (grad,) = torch.autograd.grad(log_prob, logits, retain_graph=True)
    np.testing.assert_allclose(grad, (np.arange(4) == 2) - p, atol=1e-6)
    (grad,) = torch.autograd.grad(entropy, logits)
    log_p = np.log(p, where=p > 0, out=np.zeros(4))
    np.testing.assert_allclose(grad, -p * (log_p - (p * log_p).sum()), atol=1e-6)


@pytest.mark.parametrize("sizes", [[2, 4, 3], [3, 3]])
def test_a_multi_categorical_is_independent_categoricals(sizes):
    found, logits, n = distributions.of(MultiDiscrete(sizes)), scores(sum(sizes), seed=3, scale=1), 200_000
    mask = torch.ones(sum(sizes), dtype=torch.bool)
    mask[-3] = mask[0] = False  # the first action of the first and of the last component
    parts = np.split(softmax_by_part(np.where(mask, logits, -np.inf), sizes), np.cumsum(sizes)[:-1])
    joint = np.prod(np.meshgrid(*parts, indexing="ij"), axis=0)
    action, log_prob = found.sample(logits.expand(n, -1), None, words(n, 4), mask.expand(n, -1))
    assert action.shape == (n, len(sizes))
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(action.numpy().T), 1)
    assert_frequencies(counts, joint)
    np.testing.assert_allclose(log_prob.exp(), joint[tuple(action.numpy().T)], rtol=1e-5)
    known, entropy = found.log_prob_entropy(logits.expand(n, -1), None, action, mask.expand(n, -1))
    torch.testing.assert_close(known, log_prob, atol=1e-6, rtol=0)
    positive = joint[joint > 0]
    np.testing.assert_allclose(entropy, -(positive * np.log(positive)).sum(), rtol=1e-5)
    assert tuple(found.mode(logits, None, mask)) == np.unravel_index(joint.argmax(), sizes)


def softmax_by_part(logits, sizes) -> np.ndarray:
    return np.concatenate([softmax(part) for part in np.split(logits, np.cumsum(sizes)[:-1])])


def test_short_components_draw_only_their_own_actions():
    found = distributions.of(MultiDiscrete([1, 2, 300]))
    k = words(4000, 4)
    k[:1000], k[1000:2000] = LARGEST, 0
    action, _ = found.sample(scores(4000, 303), None, k)
    assert (action.amax(dim=0) == torch.tensor([0, 1, 299])).all() and (action >= 0).all()
    assert (action[:1000] == torch.tensor([0, 1, 299])).all() and not action[1000:2000].any()


@pytest.mark.parametrize(
    ("kind", "mask", "message"),
    [
        ("discrete", [[1, 0, 0], [0, 0, 0]], "action mask[1] allows none of the 3 actions; it must allow one"),
        (
            "multi",
            [[[1] * 9, [0, 1, 0, 0, 0, 0, 1, 0, 0]]],
            "action mask[0, 1] allows none of the 4 actions of component 1; it must allow one",
        ),
        ("discrete", [[1, 1]], "action mask must be bool [..., 3], got bool [1, 2]"),
        ("squashed", [[1, 1]], "the actions of a Box have no mask; leave it None"),
    ],
)
def test_a_mask_that_allows_no_action_is_named(kind, mask, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        many(kind).check_mask(torch.tensor(mask, dtype=torch.bool))


def test_masks_must_be_bool_and_right_ones_pass():
    with pytest.raises(ValueError, match=re.escape("action mask must be bool [..., 3], got int8 [2, 3]")):
        many("discrete").check_mask(torch.ones(2, 3, dtype=torch.int8))
    many("discrete").check_mask(torch.eye(3, dtype=torch.bool))
    many("multi").check_mask(torch.tensor([1, 0, 0, 0, 1, 0, 0, 1, 0], dtype=torch.bool))


def test_a_gaussian_agrees_with_torch_distributions():
    found, rows = many("clipped"), 500
    mean, log_std = parameters(found, rows)
    z, drawn = found.sample(mean, log_std, words(rows, 4))
    normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
    log_prob, entropy = found.log_prob_entropy(mean, log_std, z)
    for one in (drawn, log_prob):
        torch.testing.assert_close(one.double(), normal.log_prob(z.double()).sum(-1), atol=3e-6, rtol=1e-6)
    torch.testing.assert_close(entropy.double(), normal.entropy().sum(-1), atol=1e-6, rtol=0)


def test_normals_are_box_and_muller_of_two_words_each():
    found = many("clipped")
    k = words(1000, 4)
    k[0], k[1] = 0, LARGEST
    z, _ = found.sample(torch.zeros(1000, 2), torch.zeros(2), k)
    u1, u2 = (k[:, 0::2].double().numpy() + 1) * 2.0**-24, k[:, 1::2].double().numpy() * 2.0**-24
    np.testing.assert_allclose(z, np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2), atol=5e-6)
    assert z.isfinite().all()


def test_clipping_concerns_only_what_the_environment_gets():
    found, z = many("clipped"), torch.tensor([[5.0, -5.0], [-5.0, 5.0], [2.0, 0.0]])
    expected = torch.tensor([[3.0, -0.3], [-1.0, 0.1], [2.0, 0.0]])
    assert torch.equal(found.to_environment(z), expected)
    unbounded = distributions.of(Box(-np.inf, np.inf, (2,)))
    assert torch.equal(unbounded.to_environment(z), z)


def squashed(low: float = -1.0, high: float = 3.0) -> distributions.Distribution:
    return distributions.of(Box(low, high, (1,)), "squashed")


def test_a_squashed_density_is_the_slope_of_the_distribution_function_through_tanh():
    mean, std, step = 0.3, 0.7, 1e-5
    a = np.linspace(-0.95, 2.95, 400)

    def cumulative(a):
        z = (np.arctanh((a - 1) / 2) - mean) / std
        return np.array([0.5 * (1 + math.erf(one / math.sqrt(2))) for one in z])

    z = torch.tensor(np.arctanh((a - 1) / 2), dtype=torch.float32).unsqueeze(-1)
    log_prob, _ = squashed().log_prob_entropy(torch.tensor([mean]), torch.tensor([std]).log(), z)
    np.testing.assert_allclose(
        log_prob.exp(), (cumulative(a + step) - cumulative(a - step)) / (2 * step), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.5, 0.3), (-0.5, 2.0)])
def test_a_squashed_density_integrates_to_one(mean, std):
    z = torch.linspace(-18, 18, 200_001, dtype=torch.float64).unsqueeze(-1)
    log_prob, _ = squashed().log_prob_entropy(torch.tensor([mean]).double(), torch.tensor([std]).double().log(), z)
    assert abs(np.trapezoid(log_prob.exp().numpy(), 1 + 2 * np.tanh(z[:, 0].numpy())) - 1) < 1e-6


def test_a_squashed_gaussian_agrees_with_torch_distributions():
    found, rows = many("squashed"), 300
    mean, log_std = parameters(found, rows)
    z, drawn = found.sample(mean, log_std, words(rows, 4))
    keep = (z.abs() < 4).all(-1)  # beyond, 1 - tanh^2 is lost where it is not computed in logarithms
    low, high = (torch.tensor(bound).double() for bound in (INTERVALS.low, INTERVALS.high))
    steps = [
        torch.distributions.TanhTransform(),
        torch.distributions.AffineTransform((low + high) / 2, (high - low) / 2),
    ]
    expected = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean.double(), log_std.double().exp()), steps
    )
    a = steps[1](steps[0](z.double()))
    torch.testing.assert_close(found.to_environment(z).double(), a, atol=1e-6, rtol=0)
    known, _ = found.log_prob_entropy(mean, log_std, z)
    for one in (drawn, known):
        torch.testing.assert_close(one[keep].double(), expected.log_prob(a).sum(-1)[keep], atol=1e-5, rtol=0)


def test_a_squashed_action_is_finite_and_inside_far_out():
    z = torch.tensor([-1e4, -20.0, 20.0, 1e4]).unsqueeze(-1)
    mean = torch.zeros(4, 1, requires_grad=True)
    log_prob, entropy = squashed().log_prob_entropy(mean, torch.zeros(1), z)
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), mean)
    assert log_prob.isfinite().all() and entropy.isfinite().all() and gradient.isfinite().all()
    # ln N(20) less ln of 4 * half * e^-40
    assert abs(float(log_prob[2].detach()) - (-200 - 0.5 * math.log(2 * math.pi) - (math.log(8) - 40))) < 1e-3
    for low, high in ((-1.0, 3.0), (-0.3, 0.1), (1e-3, 1e5), (-7.7, -7.1)):
        bound = distributions.of(Box(low, high, (1,)), "squashed")
        a = bound.to_environment(torch.linspace(-12, 12, 10_001).unsqueeze(-1))
        assert float(a.min()) >= np.float32(low) and float(a.max()) == np.float32(high)


@pytest.mark.parametrize("kind", ["clipped", "squashed"])
def test_gradients_of_log_p_of_a_stored_number_are_those_of_the_normal_density(kind):
    mean, log_std = torch.tensor([0.4, -1.0], requires_grad=True), torch.tensor([-0.8, 0.3], requires_grad=True)
    z = torch.tensor([1.3, 0.2])
    log_prob, _ = many(kind).log_prob_entropy(mean, log_std, z)
    of_mean, of_log_std = torch.autograd.grad(log_prob, (mean, log_std))
    normal = (np.array([1.3, 0.2]) - [0.4, -1.0]) / np.exp([-0.8, 0.3])
    np.testing.assert_allclose(of_mean, normal / np.exp([-0.8, 0.3]), rtol=1e-5)
    np.testing.assert_allclose(of_log_std, normal**2 - 1, rtol=1e-5)


def test_bounds_that_were_first_used_in_inference_mode_serve_elsewhere():
    found, z = squashed(-1.25, 3.5), torch.zeros(1, requires_grad=True)
    with torch.inference_mode():
        found.to_environment(torch.zeros(1))
    (gradient,) = torch.autograd.grad(found.to_environment(z), z)
    assert float(gradient) == pytest.approx(4.75 / 2)  # half the interval times 1 - tanh^2 0


def test_the_entropy_estimate_of_a_squashed_gaussian_has_its_mean_and_its_gradient():
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights /= weights.sum()

    def exact(mean, log_std):  # of z, and the mean of ln da/dz, by Gauss-Hermite quadrature
        z = mean + np.exp(log_std) * nodes
        return 0.5 * np.log(2 * np.pi * np.e) + log_std + (weights * np.log(2 / np.cosh(z) ** 2)).sum()

    at, step = np.array([0.4, -0.8]), 1e-5
    mean, log_std = (torch.tensor([one], dtype=torch.float64, requires_grad=True) for one in at)
    z = (mean + log_std.exp() * torch.tensor(nodes).unsqueeze(-1)).detach()
    _, entropy = squashed().log_prob_entropy(mean.expand(120, 1), log_std, z)
    found = (torch.tensor(weights) * entropy).sum()
    assert abs(float(found.detach()) - exact(*at)) < 1e-9
    gradient = torch.autograd.grad(found, (mean, log_std))
    for k, one in enumerate(gradient):
        shift = step * (np.arange(2) == k)
        assert abs(float(one) - (exact(*(at + shift)) - exact(*(at - shift))) / (2 * step)) < 1e-7


def test_a_beta_agrees_with_its_closed_forms():
    found = distributions.of(Box(-1, 3, (1,)), "beta")
    for a, b, x in itertools.product((-3.0, 0.0, 4.0), (-2.0, 1.0), (0.03, 0.5, 0.9)):
        out = torch.tensor([a, b])
        alpha, beta = (1 + mpmath.log(1 + mpmath.exp(one)) for one in (a, b))
        log_norm = mpmath.log(mpmath.beta(alpha, beta))
        x = float(np.float32(x))
        log_prob, entropy = found.log_prob_entropy(out, None, torch.tensor([x]))
        expected = (alpha - 1) * mpmath.log(x) + (beta - 1) * mpmath.log(1 - x) - log_norm - mpmath.log(4)
        assert abs(float(log_prob) - float(expected)) < 3e-6
        digammas = (alpha - 1) * mpmath.digamma(alpha) + (beta - 1) * mpmath.digamma(beta)
        expected = log_norm - digammas + (alpha + beta - 2) * mpmath.digamma(alpha + beta) + mpmath.log(4)
        assert abs(float(entropy) - float(expected)) < 3e-6
        assert abs(float(found.mode(out)) - float((alpha - 1) / (alpha + beta - 2))) < 1e-6


def test_beta_samples_have_their_moments_and_lie_in_the_interval():
    found, n = many("beta"), 100_000
    out = torch.tensor([0.5, -1.0, 2.0, 1.0])  # alpha of both components, then beta
    x, log_prob = found.sample(out.expand(n, 4), None, words(n, 4 * found.blocks))
    alpha, beta = np.split(1 + np.log1p(np.exp(out.double().numpy())), 2)
    mean = alpha / (alpha + beta)
    variance = mean * (1 - mean) / (alpha + beta + 1)
    assert (np.abs(x.double().mean(0).numpy() - mean) < 4 * np.sqrt(variance / n)).all()
    np.testing.assert_allclose(x.double().var(0), variance, rtol=0.03)
    a = found.to_environment(x)
    low, high = torch.tensor(INTERVALS.low), torch.tensor(INTERVALS.high)
    torch.testing.assert_close(a, low + (high - low) * x)
    assert ((a >= low) & (a <= high)).all()
    assert abs(float(-log_prob.double().mean() - found.log_prob_entropy(out, None, x[0])[1])) < 0.01


def outputs_of(alpha: float, beta: float) -> torch.Tensor:
    """Inverse of 1 + softplus; a parameter of 1 is approached."""
    return torch.tensor([math.log(math.expm1(one - 1)) if one > 1 else -200.0 for one in (alpha, beta)])


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (1, 3), (5, 2), (50, 80)])
def test_beta_samples_follow_the_distribution_function(alpha, beta):
    """Moments within 4 standard errors; Kolmogorov and Smirnov's test against the incomplete beta, p > 1e-3."""
    found, n = distributions.of(Box(0, 1, (1,)), "beta"), 200_000
    k = words(n, 4 * found.blocks, seed=alpha + beta)
    x = found.sample(outputs_of(alpha, beta).expand(n, 2), None, k)[0].double().squeeze(-1).sort().values.numpy()
    assert x[0] > 0 and x[-1] <= 1
    raw = [float(mpmath.beta(alpha + power, beta) / mpmath.beta(alpha, beta)) for power in range(5)]
    mean, variance = raw[1], raw[2] - raw[1] ** 2
    fourth = raw[4] - 4 * raw[3] * mean + 6 * raw[2] * mean**2 - 3 * mean**4  # central
    assert abs(x.mean() - mean) < 4 * math.sqrt(variance / n)
    assert abs(((x - mean) ** 2).mean() - variance) < 4 * math.sqrt((fourth - variance**2) / n)
    every = np.arange(0, n, 400)  # between two of them the empirical function rises by 400 / n
    exact = np.array([float(mpmath.betainc(alpha, beta, 0, one, regularized=True)) for one in x[every]])
    assert np.abs(exact - every / n).max() < 1.95 / math.sqrt(n)


def test_a_beta_number_is_that_of_the_first_accepted_proposals_of_marsaglia_and_tsang():
    """By hand in float64, the ratio test v > 0 and ln u < n^2 / 2 + d - d v + d ln v as in the paper."""
    found, rows = many("beta"), 5000
    out, k = scores(rows, 4), words(rows, 4 * many("beta").blocks)
    k[:3] = LARGEST  # u = 1 and a normal number near 0
    u = ((k.double().numpy() + 1) * 2.0**-24).reshape(rows, 3, 4, 4)
    normal = np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * (u[:, 1] - 2.0**-24))
    d = (1 + np.log1p(np.exp(out.double().numpy())) - 1 / 3)[:, None]
    v = (1 + normal / np.sqrt(9 * d)) ** 3
    accepted = (v > 0) & (np.log(u[:, 2]) < normal**2 / 2 + d - d * v + d * np.log(np.where(v > 0, v, 1)))
    assert 0.95 < accepted[3:].mean() < 1 and (~accepted[:, 0]).any(axis=1).sum() > 100
    first = accepted.argmax(axis=1)[:, None]
    gamma, other = np.split((d * np.take_along_axis(v, first, axis=1))[:, 0], 2, axis=1)
    x, _ = found.sample(out, None, k)
    np.testing.assert_allclose(x, gamma / (gamma + other), rtol=0, atol=1e-5)


def test_a_beta_number_lies_in_the_interval_where_no_proposal_is_accepted():
    """Of shapes near 1: all proposals are negative, -5.8 / sqrt(6), and u is 1; then as far above."""
    found = distributions.of(Box(-1, 3, (1,)), "beta")
    k = torch.zeros(2, 3, 8, dtype=torch.int32)
    k[0, 1], k[:, 2] = 2**23, LARGEST
    x, log_prob = found.sample(torch.full((2, 2), -200.0), None, k.flatten(1))
    assert x.flatten().tolist() == [0.5, 0.5]  # both gamma numbers alike
    np.testing.assert_allclose(log_prob.exp(), 0.25, rtol=1e-6)
    k[0, 1, 0] = 0  # alpha's first proposal is far above, still too improbable
    assert float(found.sample(torch.full((1, 2), -200.0), None, k[:1].flatten(1))[0]) == 1


@pytest.mark.parametrize("shape", [1, 1.5, 3])
def test_a_proposal_is_as_often_accepted_as_the_docstring_says(shape):
    d = mpmath.mpf(shape) - mpmath.mpf(1) / 3
    closed = mpmath.exp(d) * mpmath.gamma(shape) * d ** (0.5 - shape) / mpmath.sqrt(2 * mpmath.pi)

    def density(n):  # of an accepted proposal
        v = (1 + n / mpmath.sqrt(9 * d)) ** 3
        return mpmath.exp(d - d * v + d * mpmath.log(v)) / mpmath.sqrt(2 * mpmath.pi)

    assert abs(mpmath.quad(density, [-mpmath.sqrt(9 * d), 0, 10]) - closed) < 1e-6
    assert closed > 0.9516 and (1 - closed) ** boxes.PROPOSALS < 5.5e-6


def test_equal_noise_gives_equal_beta_numbers_whatever_torch_s_generator():
    found, k = many("beta"), words(500, 4 * many("beta").blocks)
    out, drawn = scores(500, 4), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        drawn.append(found.sample(out, None, k)[0])
    assert torch.equal(*drawn)
    assert (found.sample(out, None, words(500, k.shape[-1], seed=1))[0] != drawn[0]).all()


def test_a_beta_stays_finite_at_its_bounds_and_where_its_outputs_underflow():
    found = distributions.of(Box(-1, 3, (1,)), "beta")
    out = torch.tensor([[0.5, 2.0], [-200.0, -200.0], [-200.0, 3.0]], requires_grad=True)
    for x in (0.0, 1.0):
        log_prob, entropy = found.log_prob_entropy(out, None, torch.full((3, 1), x))
        (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), out)
        assert log_prob.isfinite().all() and gradient.isfinite().all()
    assert float(log_prob.detach()[1].exp()) == pytest.approx(0.25)  # uniform on an interval of length 4
    assert found.mode(out.detach())[1:, 0].tolist() == pytest.approx([0.5, 0.0], abs=1e-6)


@pytest.mark.parametrize("kind", MANY)
def test_numbers_made_beforehand_draw_the_same(kind):
    found, k = many(kind), words(7, 50, 4 * many(kind).blocks)
    out, free = parameters(found, 50)
    beforehand = found.variates(k)
    assert beforehand.dtype == torch.float32
    for t in range(7):
        for one, other in zip(found.sample(out, free, k[t]), found.sample(out, free, beforehand[t]), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("kind", MANY)
def test_leading_axes_are_rows_and_learners_have_free_parameters_of_their_own(kind):
    found, k = many(kind), words(2, 30, 4 * many(kind).blocks)
    out = scores(2, 30, found.outputs)
    free = scores(2, 1, found.free, scale=0.5) if found.free else None
    mask = torch.ones(2, 30, found.masks, dtype=torch.bool) if found.masks else None
    action, drawn = found.sample(out, free, k, mask)
    assert action.shape == (2, 30, *found.stored_shape) and action.dtype == found.stored_dtype
    assert found.mode(out, free, mask).shape == action.shape
    assert found.to_environment(action).shape == action.shape
    together = found.log_prob_entropy(out, free, action, mask)
    torch.testing.assert_close(together[0], drawn, atol=5e-6, rtol=1e-6)
    for member in range(2):
        alone = found.log_prob_entropy(out[member], None if free is None else free[member], action[member])
        for one, other in zip(together, alone, strict=True):
            assert one.shape == (2, 30)
            torch.testing.assert_close(one[member], other, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_those_of_the_policy_in_the_kernel(name):
    steps, batch, seed = 40, 300, 5
    port = envs.port(name)
    found = distributions.of(port.of("action"))
    inputs = port.of("observation").shape[0]
    torch.manual_seed(0)
    actor = nn.Sequential(
        *(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, found.outputs))
    )
    log_std = torch.tensor([-0.5]) if found.free else None
    env = envs.make(name, batch, seed=seed)
    env.reset()
    rows = env.rollout(steps, envs.MLP(actor, log_std=log_std), "trajectory")
    k = np.stack([noise.philox((np.arange(batch), 0, t, noise.SAMPLING), seed) >> 8 for t in range(steps)])
    with torch.no_grad():
        out = actor(rows["obs"])
        action, log_prob = found.sample(out, log_std, torch.tensor(k.astype(np.int32)).movedim(1, -1))
        known, _ = found.log_prob_entropy(out, log_std, rows["action"].view(steps, batch, *found.stored_shape))
    if found.free:
        torch.testing.assert_close(action[..., 0], rows["action"], atol=1e-5, rtol=0)
    else:
        assert torch.equal(action, rows["action"])
    torch.testing.assert_close(log_prob, rows["log_prob"], atol=1e-5, rtol=0)
    torch.testing.assert_close(known, rows["log_prob"], atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", MANY)
def test_a_cuda_graph_draws_what_the_cpu_draws(kind):
    found, rows = many(kind), 1000
    out, free = parameters(found, rows)
    k = words(rows, 4 * found.blocks)
    mask = scores(rows, found.masks, seed=9) > 0 if kind == "discrete" else None
    there = [None if one is None else one.cuda() for one in (out, free, k, mask)]

    def everything(out, free, k, mask):
        action, log_prob = found.sample(out, free, k, mask)
        known = found.log_prob_entropy(out, free, action, mask)
        return action, log_prob, *known, found.mode(out, free, mask), found.to_environment(action)

    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            everything(*there)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = everything(*there)
        graph.replay()
        here = everything(out, free, k, mask)
        if kind == "beta":  # near a bound, log p magnifies how actions differ by rounding: it for the same actions
            known = found.log_prob_entropy(out, free, captured[0].cpu())
            here = (here[0], known[0], *known, *here[4:])
    for one, other in zip(captured, here, strict=True):
        torch.testing.assert_close(one.cpu(), other, atol=2e-5, rtol=1e-5)
