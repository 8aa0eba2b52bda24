"""Running statistics against NumPy's of all rows at once; over shards, processes and learners; the scale of rewards."""

import threading

import numpy as np
import pytest
import torch

from lockstep.agents.parts.normaliser import Normaliser, ReturnScale

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def batches(*shapes: tuple[int, ...], mean: float = 3.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) * (i + 1) + mean for i, shape in enumerate(shapes)]


def equals_numpy(normaliser: Normaliser, rows: np.ndarray, learner: int = 0):
    """True where the statistics are those of rows [R, n]."""
    rows = rows.astype(np.float64)
    assert normaliser.count[learner] == len(rows)
    np.testing.assert_allclose(normaliser.mean[learner].cpu(), rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        normaliser.squares[learner].cpu() / len(rows), rows.var(axis=0), rtol=1e-10 * max(1, abs(rows).max())
    )


@pytest.mark.parametrize("device", DEVICES)
def test_statistics_are_those_of_all_rows_at_once(device):
    given = batches((7, 5, 3), (1, 1, 3), (300, 100, 3), (2, 5, 3))  # the third takes several chunks on the CPU
    normaliser = Normaliser(3, device=device)
    for i, rows in enumerate(given):
        normaliser.update(rows.to(device))
        equals_numpy(normaliser, np.concatenate([r.reshape(-1, 3) for r in given[: i + 1]]))


def test_a_large_mean_costs_no_digits_of_a_small_variance():
    given = batches((1000, 1, 2), (500, 1, 2), mean=1e4)
    normaliser = Normaliser(2)
    for rows in given:
        normaliser.update(rows)
    equals_numpy(normaliser, np.concatenate([r.reshape(-1, 2) for r in given]))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_normalised_and_clipped_at_10(device):
    normaliser = Normaliser(1, device=device)
    normaliser.update(torch.tensor([[[1.0]], [[3.0]]], device=device))  # mean 2, standard deviation 1
    found = normaliser(torch.tensor([[2.0], [0.5], [100.0], [-100.0]], device=device))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found[:, 0].cpu(), [0, -1.5, 10, -10], rtol=1e-6)


def test_before_the_first_row_mean_is_0_and_variance_1():
    x = torch.tensor([[0.5, -3.0], [11.0, 0.0]])
    normaliser = Normaliser(2)
    normaliser.update(torch.full((2, 3, 2), float("nan")), torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(normaliser(x), x.clamp(-10, 10))


def test_rows_that_are_not_valid_change_no_bit():
    (rows,) = batches((40, 6, 2))
    valid = torch.rand(40, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    results = []
    for rubbish in (0.0, float("nan"), float("inf")):
        normaliser = Normaliser(2)
        normaliser.update(torch.where(valid.unsqueeze(-1), rows, rubbish), valid)
        results.append(normaliser.state())
    equals_numpy(normaliser, rows[valid].numpy())
    for other in results[1:]:
        assert all(torch.equal(other[name], results[0][name]) for name in other)


def test_each_learner_has_the_statistics_of_its_own_rows():
    given, valid = batches((20, 6, 2), (10, 6, 2)), torch.rand(10, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    normaliser = Normaliser(2, learners=3)
    normaliser.update(given[0])
    normaliser.update(given[1], valid)
    found = normaliser(given[0])
    for learner in range(3):
        own = slice(2 * learner, 2 * learner + 2)
        rows = np.concatenate([given[0][:, own].reshape(-1, 2), given[1][:, own][valid[:, own]]])
        equals_numpy(normaliser, rows, learner)
        expected = (given[0][:, own].numpy() - rows.mean(axis=0)) / rows.std(axis=0)
        np.testing.assert_allclose(found[:, own], expected, rtol=1e-4, atol=1e-6)
        assert torch.equal(normaliser.of(learner)(given[0][:, own]), found[:, own])


class Processes:
    """Sums of tensors over threads that play processes, in their order."""

    def __init__(self, size: int):
        self.barrier, self.tensors = threading.Barrier(size, timeout=20), [None] * size

    def reduce(self, rank: int):
        def sum_in_place(tensor):
            self.tensors[rank] = tensor.clone()
            self.barrier.wait()
            tensor.copy_(sum(self.tensors))
            self.barrier.wait()

        return sum_in_place


@pytest.mark.parametrize("masked", [False, True])
def test_shards_in_processes_of_their_own_give_the_bits_of_shards_in_one(masked):
    size, given = 3, batches((50, 12, 4), (300, 120, 4))
    masks = [
        torch.rand(r.shape[:2], generator=torch.Generator().manual_seed(2)) < 0.7 if masked else None for r in given
    ]
    one, others, processes = Normaliser(4, shards=size), [Normaliser(4) for _ in range(size)], Processes(size)
    for rows, valid in zip(given, masks, strict=True):
        one.update(rows, valid)

    def process(rank: int):
        for rows, valid in zip(given, masks, strict=True):
            own = slice(rank * rows.shape[1] // size, (rank + 1) * rows.shape[1] // size)
            mask = None if valid is None else valid[:, own].contiguous()
            others[rank].update(rows[:, own].contiguous(), mask, processes.reduce(rank))

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        assert all(torch.equal(other.state()[name], tensor) for name, tensor in one.state().items())
    rows = [r.numpy() if m is None else r[m].numpy() for r, m in zip(given, masks, strict=True)]
    equals_numpy(one, np.concatenate([r.reshape(-1, 4) for r in rows]))


def test_a_normaliser_goes_on_from_its_state_and_its_state_is_a_copy():
    first, second = batches((20, 4, 3), (20, 4, 3))
    one, other = Normaliser(3), Normaliser(3)
    one.update(first)
    state = one.state()
    one.update(second)
    other.load_state(state)
    assert torch.equal(other.count, torch.tensor([80.0], dtype=torch.float64))
    other.update(second)
    assert torch.equal(one(first), other(first))


def test_what_a_normaliser_refuses():
    with pytest.raises(ValueError, match="n=0 must be an integer from 1"):
        Normaliser(0)
    normaliser = Normaliser(3, learners=2)
    with pytest.raises(ValueError, match=r"rows must be \[..., N, 3\], got \[4, 2\]"):
        normaliser.update(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="rows: 5 columns must be divisible by 2 learners x 1 shards"):
        normaliser.update(torch.zeros(4, 5, 3))
    with pytest.raises(ValueError, match=r"valid must be bool \[4, 6\], got torch.bool \[4, 6, 1\]"):
        normaliser.update(torch.zeros(4, 6, 3), torch.ones(4, 6, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"x must be \[..., N, 3\] with N divisible by 2, got \[5, 3\]"):
        normaliser(torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"state must hold mean \[2, 3\], holds \[1, 3\]"):
        normaliser.load_state(normaliser.state() | {"mean": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match=r"state must hold count \[2\], holds nothing"):
        normaliser.load_state({})


# ---- scale of rewards ---------------------------------------------------------------------------


def rewards(T: int, N: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Rewards and both flags [T, N]."""
    generator = torch.Generator().manual_seed(seed)
    terminated, truncated = torch.rand(2, T, N, generator=generator) < 0.1
    return torch.randn(T, N, generator=generator), terminated, truncated


def discounted(reward: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """[T, N], by the definition in float64."""
    returns, running = np.zeros(reward.shape), np.zeros(reward.shape[1])
    for t in range(len(reward)):
        running = gamma * running + reward[t]
        returns[t] = running
        running = np.where(ended[t], 0.0, running)
    return returns


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    reward, terminated, truncated = rewards(60, 10)
    reward[3, 2] = 500.0  # is clipped
    expected = discounted(reward.double().numpy(), (terminated | truncated).numpy(), 0.9)
    scale, after = ReturnScale(10, 0.9), 0
    for end in (20, 60):  # the second iteration goes on where the first ended
        part = [tensor[after:end].contiguous() for tensor in (reward, terminated, truncated)]
        wanted = (part[0].numpy() / np.sqrt(expected[:end].var() + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(scale(*part), wanted, rtol=1e-5)
        after = end


def test_each_learner_has_its_own_scale():
    reward, terminated, truncated = rewards(30, 6)
    scaled = ReturnScale(6, [0.9, 0.99], 2)(reward, terminated, truncated)
    for learner, gamma in enumerate((0.9, 0.99)):
        part = [tensor[:, 3 * learner : 3 * learner + 3].contiguous() for tensor in (reward, terminated, truncated)]
        np.testing.assert_allclose(scaled[:, 3 * learner : 3 * learner + 3], ReturnScale(3, gamma)(*part), rtol=1e-6)


def test_rewards_that_are_not_valid_change_no_bit_of_the_scale():
    reward, terminated, truncated = rewards(50, 4)
    valid = torch.rand(50, 4, generator=torch.Generator().manual_seed(1)) < 0.8
    results = []
    for rubbish in (0.0, float("nan")):
        results.append(ReturnScale(4, 0.9)(torch.where(valid, reward, rubbish), terminated, truncated, valid))
    assert torch.equal(*results) and (results[0][~valid] == 0).all() and results[0].abs().sum() > 0


def test_a_scale_goes_on_from_its_state():
    (first, second), one, other = [rewards(20, 4, seed) for seed in range(2)], ReturnScale(4, 0.9), ReturnScale(4, 0.9)
    one(*first)
    other.load_state(one.state())
    assert torch.equal(one(*second), other(*second))
    with pytest.raises(ValueError, match=r"state must hold running \[4\]"):
        other.load_state(ReturnScale(5, 0.9).state())
    with pytest.raises(ValueError, match="columns: 5 columns must be divisible by 2 learners x 1 shards"):
        ReturnScale(5, 0.9, 2)
