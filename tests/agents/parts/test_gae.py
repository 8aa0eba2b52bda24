"""Noise and order against the array form of Philox; advantages by hand and against a loop."""

import re

import numpy as np
import pytest
import torch

from lockstep.agents.parts.gae import GAE
from lockstep.agents.parts.minibatches import MinibatchOrder
from lockstep.agents.parts.noise import Noise
from lockstep.agents.parts.normaliser import ReturnScale
from lockstep.envs.noise import SAMPLING, philox

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def scalar(number: int, device="cpu") -> torch.Tensor:
    return torch.tensor([number], device=device)


# ---- noise --------------------------------------------------------------------------------------


def words(seed: int, first_index: int, envs: int, agents: int, blocks: int, steps: range) -> np.ndarray:
    """[T, B, A, 4 * blocks] by the array form."""
    index = (first_index + np.arange(envs))[:, None]
    block = np.arange(agents * blocks)[None, :]
    rows = [philox((index, block, t % 2**32, SAMPLING), seed) >> np.uint32(8) for t in steps]
    return np.stack([row.transpose(1, 2, 0) for row in rows]).reshape(len(steps), envs, agents, 4 * blocks)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("num_envs", "agents", "blocks", "steps"),
    [(4, 1, 1, 128), (6, 3, 2, 5), (1, 1, 1, 1), (600, 1, 1, 7), (2, 400, 1, 3)],
)
def test_noise_is_philox_of_index_block_step_and_stream(device, num_envs, agents, blocks, steps):
    noise = Noise([7], num_envs, 1000, agents, blocks, steps, device)
    for clock in (0, 2**31 + 5):
        drawn = noise.draw(scalar(clock, device)).cpu().numpy()
        assert drawn.dtype == np.int32
        np.testing.assert_array_equal(drawn, words(7, 1000, num_envs, agents, blocks, range(clock, clock + steps)))


def test_noise_of_a_group_is_that_of_a_batch_of_its_own():
    seeds = [3, 2**64 - 1, 5]
    together = Noise(seeds, 12, 9, steps=50).draw(scalar(40)).numpy()
    for g, seed in enumerate(seeds):
        np.testing.assert_array_equal(together[:, 4 * g : 4 * g + 4], words(seed, 9, 4, 1, 1, range(40, 90)))


def test_noise_depends_on_no_thread_count_and_no_split_of_the_batch():
    whole = Noise([1], 3000, steps=40).draw(scalar(2))
    assert torch.equal(whole, Noise([1], 3000, steps=40, threads=5).draw(scalar(2)))
    assert torch.equal(whole[:, 1000:], Noise([1], 2000, 1000, steps=40).draw(scalar(2)))
    assert torch.equal(whole[30:], Noise([1], 3000, steps=10).draw(scalar(32)))


def test_noise_is_drawn_into_one_buffer_that_begins_at_the_clock_it_is_given():
    noise, clock = Noise([1], 8, steps=4), scalar(0)
    first = noise.draw(clock).clone()
    clock += 4
    assert noise.draw(clock) is noise.buffer
    assert not torch.equal(first, noise.buffer)


def test_noise_of_no_blocks_is_empty():
    assert Noise([1], 8, blocks=0, steps=4).draw(scalar(0)).shape == (4, 8, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": []}, "seeds must hold at least one seed"),
        ({"seeds": [0, -1]}, "seeds[1]=-1 must be an integer from 0 to 18446744073709551615"),
        ({"seeds": [0, 1, 2]}, "num_envs=4 must be divisible by the number of seeds, 3"),
        ({"first_index": 2**32 - 3}, "first_index=4294967293 must be an integer from 0 to 4294967292"),
        ({"agents": 0}, "agents=0 must be"),
        ({"blocks": -1}, "blocks=-1 must be"),
        ({"steps": 0}, "steps=0 must be"),
        ({"threads": 0}, "threads=0 must be an integer from 1 to 1024"),
    ],
)
def test_what_noise_refuses(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Noise(**({"seeds": [0], "num_envs": 4} | arguments))


@pytest.mark.parametrize("clock", [torch.zeros(1), torch.zeros(2, dtype=torch.int64), torch.tensor(3), 3])
def test_a_clock_of_another_shape_or_type_is_refused(clock):
    with pytest.raises(ValueError, match=r"clock must be"):
        Noise([0], 4).draw(clock)
    with pytest.raises(ValueError, match=r"iteration must be"):
        MinibatchOrder([0], 4, 1).draw(clock)


# ---- order --------------------------------------------------------------------------------------


def order_words(seed: int, rows: int, epoch: int, iteration: int) -> np.ndarray:
    return philox((np.arange(rows), epoch, iteration, 2**31 + 2), seed)[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("seeds", "rows", "epochs"), [([5], 512, 4), ([1, 2**63, 3], 77, 3), ([0], 1, 2), ([9], 5000, 1)]
)
def test_order_sorts_rows_by_their_words(device, seeds, rows, epochs):
    order = MinibatchOrder(seeds, rows, epochs, device)
    for iteration in (0, 2**31 + 1):
        drawn = order.draw(scalar(iteration, device)).cpu().numpy()
        assert drawn.shape == (epochs, len(seeds), rows) and drawn.dtype == np.int64
        for epoch in range(epochs):
            for g, seed in enumerate(seeds):
                expected = np.argsort(order_words(seed, rows, epoch, iteration), kind="stable")
                np.testing.assert_array_equal(drawn[epoch, g], expected)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_equal_words_stay_in_their_places(device):
    rows = 300_000
    by_philox = order_words(4, rows, 0, 6)
    assert len(np.unique(by_philox)) < rows  # so there are some
    drawn = MinibatchOrder([4], rows, 1, device).draw(scalar(6, device))
    np.testing.assert_array_equal(drawn[0, 0].cpu().numpy(), np.argsort(by_philox, kind="stable"))


def test_order_is_a_permutation_for_each_epoch_group_and_iteration_whatever_the_threads():
    order, threads = MinibatchOrder([1, 2], 70_001, 2), MinibatchOrder([1, 2], 70_001, 2, threads=5)
    seen = []
    for iteration in range(3):
        drawn = order.draw(scalar(iteration)).clone()
        assert torch.equal(drawn, threads.draw(scalar(iteration)))
        assert torch.equal(drawn.sort(dim=-1).values, torch.arange(70_001).expand(2, 2, -1))
        seen += drawn.flatten(0, 1).unbind()
    for i, one in enumerate(seen):
        assert all((one != other).float().mean() > 0.999 for other in seen[:i])


def test_a_stable_sort_of_words_as_on_the_gpu_gives_the_same_order():
    drawn = MinibatchOrder([3], 1000, 2).draw(scalar(1))
    for epoch in range(2):
        signed = torch.from_numpy((order_words(3, 1000, epoch, 1) ^ np.uint32(2**31)).view(np.int32)).clone()
        out = torch.zeros_like(signed), torch.zeros(1000, dtype=torch.int64)
        torch.sort(signed, stable=True, dim=-1, out=out)
        assert torch.equal(out[1], drawn[epoch, 0])


# ---- advantage ----------------------------------------------------------------------------------


def column(*numbers: float, dtype=torch.float32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype).unsqueeze(1)


HAND = {"reward": column(1, 1, 1), "value": column(0.5, 0.4, 0.3, 0.2)}
NEVER = column(False, False, False, dtype=torch.bool)
AT_1 = column(False, True, False, dtype=torch.bool)


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        (NEVER, NEVER, [1.942592, 1.5036, 0.88]),
        (AT_1, NEVER, [1.292, 0.6, 0.88]),
        (NEVER, AT_1, [1.7456, 1.23, 0.88]),
        (AT_1, AT_1, [1.292, 0.6, 0.88]),  # both flags: no bootstrap
    ],
    ids=["running", "terminated", "truncated", "both"],
)
def test_advantages_by_hand(terminated, truncated, expected):
    estimate = GAE((3, 1), 0.9, 0.8)
    bootstrap = column(float("nan"), 0.7, float("nan"))  # ignored but where truncated and not terminated
    advantage, target = estimate.compute(**HAND, bootstrap=bootstrap, terminated=terminated, truncated=truncated)
    np.testing.assert_allclose(advantage[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(target[:, 0], np.add(expected, [0.5, 0.4, 0.3]), rtol=1e-6)


def test_where_the_limit_only_cuts_off_a_constant_reward_its_discounted_sum_is_the_critics_fixed_point():
    ten, never = torch.full((6, 1), 10.0), torch.zeros(5, 1, dtype=torch.bool)
    at_limit = never.clone()
    at_limit[4] = True
    one = torch.ones(5, 1)
    advantage, _ = GAE((5, 1), 0.9, 0.95).compute(one, ten, ten[:5].contiguous(), never, at_limit)
    np.testing.assert_allclose(advantage, 0, atol=2e-6)
    none = torch.zeros(6, 1)
    advantage, _ = GAE((5, 1), 0.9, 1.0).compute(one, none, none[:5].contiguous(), at_limit, never)
    assert advantage[0].item() == pytest.approx(4.0951, abs=1e-6)


def random_rows(T: int, N: int, device="cpu", seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    reward, bootstrap = torch.randn(2, T, N, generator=generator)
    value = torch.randn(T + 1, N, generator=generator)
    terminated, truncated = torch.rand(2, T, N, generator=generator) < 0.1
    return tuple(tensor.to(device).contiguous() for tensor in (reward, value, bootstrap, terminated, truncated))


def advantage_loop(reward, value, bootstrap, terminated, truncated, gamma: float, gae_lambda: float) -> np.ndarray:
    """The definition, row by row in float64."""
    reward, value, bootstrap = (x.double().numpy() for x in (reward, value, bootstrap))
    advantage = np.zeros(reward.shape)
    for n in range(reward.shape[1]):
        later = 0.0
        for t in reversed(range(len(reward))):
            following = 0.0 if terminated[t, n] else bootstrap[t, n] if truncated[t, n] else value[t + 1, n]
            if terminated[t, n] or truncated[t, n]:
                later = 0.0
            later = reward[t, n] + gamma * following - value[t, n] + gamma * gae_lambda * later
            advantage[t, n] = later
    return advantage


@pytest.mark.parametrize("shape", [(1, 1), (37, 5), (16, 300), (256, 1)])
def test_advantages_equal_a_float64_loop(shape):
    rows = random_rows(*shape)
    advantage, target = GAE(shape, 0.97, 0.9).compute(*rows)
    expected = advantage_loop(*rows, 0.97, 0.9)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, expected + rows[1][:-1].numpy(), rtol=1e-5, atol=1e-5)


def test_lambda_1_gives_discounted_returns_and_lambda_0_one_step_errors():
    reward, value, bootstrap, _, _ = random_rows(20, 3)
    never = torch.zeros(20, 3, dtype=torch.bool)
    _, target = GAE((20, 3), 0.9, 1.0).compute(reward, value, bootstrap, never, never)
    powers = 0.9 ** np.arange(21)
    expected = (powers[:20, None] * reward.numpy()).sum(axis=0) + powers[20] * value[20].numpy()
    np.testing.assert_allclose(target[0], expected, rtol=1e-5, atol=1e-5)
    advantage, _ = GAE((20, 3), 0.9, 0.0).compute(reward, value, bootstrap, never, never)
    np.testing.assert_allclose(advantage, reward + 0.9 * value[1:] - value[:-1], rtol=1e-5, atol=1e-5)


def test_advantages_are_the_same_bits_for_any_thread_count():
    rows = random_rows(40, 2000)
    one, many = (GAE((40, 2000), 0.99, 0.95, threads=threads).compute(*rows)[0] for threads in (1, 4))
    assert torch.equal(one, many)


def test_each_learner_has_its_own_discount():
    rows = random_rows(30, 6)
    advantage, _ = GAE((30, 6), [0.9, 0.99, 0.5], (0.95, 0.8, 1.0)).compute(*rows)
    for learner, (gamma, gae_lambda) in enumerate([(0.9, 0.95), (0.99, 0.8), (0.5, 1.0)]):
        part = [tensor[:, 2 * learner : 2 * learner + 2].contiguous() for tensor in rows]
        assert torch.equal(
            advantage[:, 2 * learner : 2 * learner + 2], GAE((30, 2), gamma, gae_lambda).compute(*part)[0]
        )


def test_rows_that_are_not_valid_change_no_bit_of_those_that_are():
    reward, value, bootstrap, terminated, truncated = random_rows(50, 40)
    valid = torch.ones(50, 40, dtype=torch.bool)
    # In every column an agent is done at step 10 and its environment at step 20.
    terminated[10] = True
    truncated[20] = True
    terminated[11:20] = truncated[11:20] = False
    valid[11:21] = False
    expected, _ = GAE((50, 40), 0.99, 0.95).compute(reward, value, bootstrap, terminated, truncated)
    results = []
    for rubbish in (0.0, float("nan")):
        for tensor in (reward, bootstrap, value):
            tensor[11:21] = rubbish
        estimate = GAE((50, 40), 0.99, 0.95)
        results.append(estimate.compute(reward, value, bootstrap, terminated, truncated, valid))
        assert torch.equal(results[-1][0][valid], expected[valid])
        assert (results[-1][0][~valid] == 0).all() and (results[-1][1][~valid] == 0).all()
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_row_that_is_not_valid_is_passed_over():
    reward, value = random_rows(3, 8)[:2]
    never, bootstrap = torch.zeros(3, 8, dtype=torch.bool), torch.zeros(3, 8)
    valid = ~never
    valid[1] = False
    advantage, _ = GAE((3, 8), 0.9, 0.8).compute(reward, value, bootstrap, never, never, valid)
    two = GAE((2, 8), 0.9, 0.8)
    rows = reward[[0, 2]].contiguous(), value[[0, 2, 3]].contiguous()
    expected, _ = two.compute(*rows, bootstrap[:2].contiguous(), never[:2].contiguous(), never[:2].contiguous())
    assert torch.equal(advantage[[0, 2]], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.5}, "gamma=1.5 must lie in [0, 1]"),
        ({"gae_lambda": float("nan")}, "gae_lambda=nan must lie in [0, 1]"),
        ({"gamma": [0.9, 0.9, 0.9]}, "gamma: 3 values must divide N=4 columns into equal parts"),
        ({"gamma": [0.9] * 4, "gae_lambda": [0.9] * 2}, "gae_lambda has 2 values, must be one or 4"),
        ({"shape": (0, 4)}, "T=0 must be"),
    ],
)
def test_what_advantage_refuses(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GAE(**({"shape": (3, 4), "gamma": 0.9, "gae_lambda": 0.9} | arguments))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("value", torch.zeros(3, 4), r"value must be \[4, 4\] of torch.float32 on cpu, got \[3, 4\]"),
        ("reward", torch.zeros(3, 4, dtype=torch.float64), "reward must be .* got .* of torch.float64"),
        ("terminated", torch.zeros(3, 4), "terminated must be .* of torch.bool"),
        ("bootstrap", torch.zeros(4, 3).T, "bootstrap must be contiguous"),
        ("valid", torch.zeros(3, dtype=torch.bool), "valid must be"),
    ],
)
def test_tensors_that_advantage_refuses(name, tensor, message):
    never = torch.zeros(3, 4, dtype=torch.bool)
    given = {"reward": torch.zeros(3, 4), "value": torch.zeros(4, 4), "bootstrap": torch.zeros(3, 4)}
    given |= {"terminated": never, "truncated": never}
    with pytest.raises(ValueError, match=message):
        GAE((3, 4), 0.9, 0.9).compute(**(given | {name: tensor}))


# ---- on the GPU ---------------------------------------------------------------------------------


@pytest.mark.gpu
def test_gpu_gives_the_bits_of_the_cpu():
    rows = random_rows(33, 500)
    valid = random_rows(33, 500, seed=2)[0] > -1
    there = [tensor.cuda() for tensor in rows]
    for mask in (None, valid):
        here = GAE((33, 500), 0.99, 0.95).compute(*rows, mask)
        found = GAE((33, 500), 0.99, 0.95, "cuda").compute(*there, None if mask is None else mask.cuda())
        assert all(torch.equal(a, b.cpu()) for a, b in zip(here, found, strict=True))
    scaled = [ReturnScale(500, 0.9, device=r[0].device)(r[0], r[3], r[4]).cpu() for r in (rows, there)]
    np.testing.assert_allclose(*scaled, rtol=1e-6)


@pytest.mark.gpu
def test_a_cuda_graph_of_all_draws_follows_clock_and_iteration():
    clock, iteration = scalar(0, "cuda"), scalar(0, "cuda")
    noise, order = Noise([1, 2], 64, steps=8, device="cuda"), MinibatchOrder([1, 2], 5000, 3, "cuda")
    estimate, scale = GAE((33, 500), 0.99, 0.95, "cuda"), ReturnScale(500, 0.9, device="cuda")
    rows = random_rows(33, 500, "cuda")

    def draw():
        noise.draw(clock)
        order.draw(iteration)
        estimate.compute(scale(rows[0], rows[3], rows[4]), *rows[1:])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        draw()
    stream.synchronize()
    before, graph = scale.state(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draw()
    for _ in range(2):
        clock += 8
        iteration += 1
        graph.replay()
    repeated = ReturnScale(500, 0.9, device="cuda")
    repeated.load_state(before)
    for _ in range(2):
        scaled = repeated(rows[0], rows[3], rows[4])
    assert torch.equal(noise.buffer.cpu(), Noise([1, 2], 64, steps=8).draw(scalar(16)))
    assert torch.equal(order.buffer.cpu(), MinibatchOrder([1, 2], 5000, 3).draw(scalar(2)))
    assert torch.equal(estimate.advantage, GAE((33, 500), 0.99, 0.95, "cuda").compute(scaled, *rows[1:])[0])
