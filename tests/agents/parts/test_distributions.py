"""Action distributions: against enumeration, closed forms, quadrature, torch.distributions, and the kernels' policy."""

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
from lockstep.agents.parts import distributions
from lockstep.envs import noise
from tests.envs.batches import NAMES

LARGEST = 2**24 - 1  # of the noise
INTERVALS = Box(np.float32([-1.0, -0.3]), np.float32([3.0, 0.1]))
MANY = {"discrete": Discrete(3), "multi": MultiDiscrete([2, 4, 3]), "gaussian": INTERVALS}


def many(kind: str) -> distributions.Distribution:
    return distributions.of(MANY[kind])


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
    ("space", "expected"),
    [  # outputs, free, masks, words, blocks, stored shape, stored type
        (Discrete(2), (2, 0, 2, 1, 1, (), torch.uint8)),
        (Discrete(256), (256, 0, 256, 1, 1, (), torch.uint8)),
        (Discrete(257), (257, 0, 257, 1, 1, (), torch.int64)),
        (MultiDiscrete([2, 4, 3, 2, 2]), (13, 0, 13, 5, 2, (5,), torch.int64)),
        (Box(-2, 2, (1,)), (1, 1, 0, 2, 1, (1,), torch.float32)),
        (Box(-np.inf, np.inf, (3,)), (3, 3, 0, 6, 2, (3,), torch.float32)),
    ],
)
def test_a_space_says_what_a_network_and_a_batch_must_hold(space, expected):
    found = distributions.of(space)
    names = ("outputs", "free", "masks", "words", "blocks", "stored_shape", "stored_dtype")
    assert tuple(getattr(found, name) for name in names) == expected


def test_every_environment_has_a_distribution():
    for name in envs.names():
        distributions.of(envs.port(name).of("action"))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.MultiBinary(3), "no policy for action space MultiBinary(3); it must be Discrete"),
        (Box(-1, 1, (2, 2)), "float Box of one axis"),
        (Box(0, 9, (2,), dtype=np.int64), "float Box of one axis"),
        (MultiDiscrete([[2, 2], [3, 3]]), "a MultiDiscrete or float Box of one axis"),
        (Discrete(3, start=1), "action space Discrete(3, start=1) must count its actions from 0"),
    ],
)
def test_a_space_without_a_policy_is_refused(space, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        distributions.of(space)


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
        ("gaussian", [[1, 1]], "the actions of a Box have no mask; leave it None"),
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
    found, rows = many("gaussian"), 500
    mean, log_std = parameters(found, rows)
    z, drawn = found.sample(mean, log_std, words(rows, 4))
    normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
    log_prob, entropy = found.log_prob_entropy(mean, log_std, z)
    for one in (drawn, log_prob):
        torch.testing.assert_close(one.double(), normal.log_prob(z.double()).sum(-1), atol=3e-6, rtol=1e-6)
    torch.testing.assert_close(entropy.double(), normal.entropy().sum(-1), atol=1e-6, rtol=0)


def test_normals_are_box_and_muller_of_two_words_each():
    found = many("gaussian")
    k = words(1000, 4)
    k[0], k[1] = 0, LARGEST
    z, _ = found.sample(torch.zeros(1000, 2), torch.zeros(2), k)
    u1, u2 = (k[:, 0::2].double().numpy() + 1) * 2.0**-24, k[:, 1::2].double().numpy() * 2.0**-24
    np.testing.assert_allclose(z, np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2), atol=5e-6)
    assert z.isfinite().all()


def test_clipping_concerns_only_what_the_environment_gets():
    found, z = many("gaussian"), torch.tensor([[5.0, -5.0], [-5.0, 5.0], [2.0, 0.0]])
    expected = torch.tensor([[3.0, -0.3], [-1.0, 0.1], [2.0, 0.0]])
    assert torch.equal(found.to_environment(z), expected)
    unbounded = distributions.of(Box(-np.inf, np.inf, (2,)))
    assert torch.equal(unbounded.to_environment(z), z)


def test_gradients_of_log_p_of_a_stored_number_are_those_of_the_normal_density():
    mean, log_std = torch.tensor([0.4, -1.0], requires_grad=True), torch.tensor([-0.8, 0.3], requires_grad=True)
    z = torch.tensor([1.3, 0.2])
    log_prob, _ = many("gaussian").log_prob_entropy(mean, log_std, z)
    of_mean, of_log_std = torch.autograd.grad(log_prob, (mean, log_std))
    normal = (np.array([1.3, 0.2]) - [0.4, -1.0]) / np.exp([-0.8, 0.3])
    np.testing.assert_allclose(of_mean, normal / np.exp([-0.8, 0.3]), rtol=1e-5)
    np.testing.assert_allclose(of_log_std, normal**2 - 1, rtol=1e-5)


def test_bounds_that_were_first_used_in_inference_mode_serve_elsewhere():
    found, z = distributions.of(Box(-1.25, 3.5, (1,))), torch.zeros(1, requires_grad=True)
    with torch.inference_mode():
        found.to_environment(torch.zeros(1))
    (gradient,) = torch.autograd.grad(found.to_environment(z), z)
    assert float(gradient) == 1


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
    for one, other in zip(captured, here, strict=True):
        torch.testing.assert_close(one.cpu(), other, atol=2e-5, rtol=1e-5)
