"""The prioritised replay: its sums, how often it draws which rows, and what they weigh."""

import math
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from lockstep.agents.parts import prioritised
from lockstep.agents.parts.prioritised import LEAST, PrioritisedReplay
from lockstep.envs import checks
from tests.agents.graphs import nothing_waiting

FIELDS = {"number": ((), torch.int64)}


def rows(*numbers: int) -> dict[str, torch.Tensor]:
    return {"number": torch.tensor(numbers, dtype=torch.int64)}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rated(losses: list[float], capacity: int | None = None, kind=PrioritisedReplay, alpha: float = 1.0):
    """A replay with a row for each loss; with alpha = 1 the losses are the priorities."""
    replay = kind(capacity or len(losses), FIELDS, alpha=alpha)
    replay.add(rows(*range(len(losses))))
    replay.update_priorities(torch.arange(len(losses)), torch.tensor(losses))
    return replay


def priorities(replay: PrioritisedReplay) -> list[float]:
    return replay.tree[replay.leaves : replay.leaves + replay.capacity].tolist()


def requires_sums(replay: PrioritisedReplay) -> None:
    """Every node is the sum of its children to the last bit, and the root that of all within rounding."""
    pairs = replay.tree.view(-1, 2)
    assert torch.equal(replay.tree[1 : replay.leaves], pairs[1:].sum(dim=1))
    assert replay.tree[1].item() == pytest.approx(math.fsum(priorities(replay)), rel=1e-14)


# ---- the tree --------------------------------------------------------------------------------------------------------


def requires_priorities_of_a_loop(kind: type[PrioritisedReplay], updates: int) -> None:
    """Random additions and losses, with places that repeat, beside a list of numbers."""
    capacity, draws = 37, np.random.default_rng(1)
    replay, expected, written, highest = kind(capacity, FIELDS, alpha=0.5), [0.0] * capacity, 0, 1.0
    for _ in range(updates):
        if draws.random() < 0.3:
            valid = draws.random(draws.integers(1, 20)) < 0.7
            replay.add(rows(*range(len(valid))), torch.from_numpy(valid))
            for _ in range(int(valid.sum())):
                expected[written % capacity] = highest
                written += 1
        else:
            places, losses = draws.integers(0, capacity, 8), draws.exponential(3.0, 8)
            replay.update_priorities(torch.from_numpy(places), torch.from_numpy(losses))
            for place in {place for place in places.tolist() if expected[place] > 0}:
                expected[place] = float(losses[places == place].max() ** 0.5)
                highest = max(highest, expected[place])
    assert priorities(replay) == pytest.approx(expected, rel=1e-12)
    assert replay.highest.item() == pytest.approx(highest, rel=1e-12)
    requires_sums(replay)


def test_after_ten_thousand_random_updates_the_sums_are_direct_ones():
    requires_priorities_of_a_loop(PrioritisedReplay, 10_000)


@pytest.mark.parametrize("capacity", [1, 2, 3, 4, 7, 8, 9])
def test_rows_of_any_capacity_have_a_leaf_and_the_one_that_is_not_kept_has_none(capacity):
    replay = PrioritisedReplay(capacity, FIELDS)
    for number in range(2 * capacity + 1):
        places = replay.add(rows(number), torch.tensor([True]))
        replay.add(rows(-1), torch.tensor([False]))
        assert places.tolist() == [number % capacity]
        kept = min(number + 1, capacity)
        assert priorities(replay) == [1.0] * kept + [0.0] * (capacity - kept)
        requires_sums(replay)
    assert not (replay.draw(4, 100, 1.0, generator())[0]["number"] < 0).any()


def test_a_new_row_has_the_largest_priority_that_any_had():
    replay = rated([4.0, 9.0, 1.0], capacity=4)
    replay.update_priorities(torch.tensor([1]), torch.tensor([2.0]))
    replay.add(rows(3, 4))  # the second one in place of the first row
    assert priorities(replay) == [9.0, 2.0, 1.0, 9.0]


def test_the_largest_priority_is_1_at_first_and_a_loss_has_its_root():
    replay = rated([0.25, 0.0], alpha=0.5)
    assert priorities(replay) == pytest.approx([0.5, LEAST**0.5])
    replay.add(rows(2))
    assert priorities(replay) == pytest.approx([1.0, LEAST**0.5])


def requires_largest(kind: type[PrioritisedReplay]) -> None:
    replay = rated([5.0, 5.0, 5.0], kind=kind)
    replay.update_priorities(torch.tensor([2, 0, 2, 0]), torch.tensor([3.0, 1.0, 2.0, 4.0]))
    assert priorities(replay) == [4.0, 5.0, 3.0]


def test_of_a_place_that_repeats_the_largest_priority_counts():
    requires_largest(PrioritisedReplay)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_changes_nothing(loss):
    replay = rated([1.0, 2.0, 3.0])
    replay.update_priorities(torch.tensor([1, 2]), torch.tensor([loss, 5.0]))
    assert priorities(replay) == [1.0, 2.0, 5.0]
    assert replay.highest.item() == 5.0


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def requires_frequencies(kind: type[PrioritisedReplay]) -> None:
    """Single draws are independent, so their counts have the chi-squared distribution of a multinomial one."""
    losses, draws = [1.0, 0.5, 4.0, 2.0, 8.0, 0.25, 1.0], 100_000
    found = rated(losses, capacity=11, kind=kind).draw(draws, 1, 1.0, generator())[0]["number"].bincount(minlength=11)
    assert found[len(losses) :].sum() == 0
    expected = draws * np.array(losses) / sum(losses)
    assert stats.chisquare(found[: len(losses)].numpy(), expected).pvalue > 1e-3


def test_rows_are_drawn_in_proportion_to_their_priorities():
    requires_frequencies(PrioritisedReplay)


def test_rows_of_a_batch_come_from_equal_parts_of_the_sum():
    """Of eight equal rows each is drawn once; of 1, 2, 1 with four parts the middle one twice, between the others."""
    number = rated([3.0] * 8).draw(50, 8, 1.0, generator())[0]["number"]
    assert torch.equal(number.view(50, 8), torch.arange(8).expand(50, 8))
    number = rated([1.0, 2.0, 1.0]).draw(50, 4, 1.0, generator())[0]["number"]
    assert torch.equal(number.view(50, 4), torch.tensor([0, 1, 1, 2]).expand(50, 4))


def test_a_row_comes_with_its_place():
    replay = PrioritisedReplay(4, FIELDS)
    replay.add(rows(10, 11, 12))
    drawn, places, _ = replay.draw(5, 7, 1.0, generator())
    assert drawn["number"].shape == places.shape == (35,)
    assert torch.equal(drawn["number"], 10 + places)


def test_rounding_leads_to_no_row_without_a_priority(monkeypatch):
    """The largest uniform numbers that there are, and priorities whose sums are rounded."""
    nearly_1 = 1 - 2.0**-53
    monkeypatch.setattr(torch, "rand", lambda *shape, dtype, **_: torch.full(shape, nearly_1, dtype=dtype))
    for count in range(1, 40):
        replay = rated([0.1 + 1e-9 * i for i in range(count)], capacity=64)
        places = replay.draw(1, 3, 1.0, generator())[1]
        assert places.tolist()[-1] == count - 1
        assert (replay.tree[replay.leaves + places] > 0).all()


WEIGHTS = [  # beta, and weights of priorities 1, 4, 16: (least priority / priority)^beta
    (0.0, [1.0, 1.0, 1.0]),
    (0.5, [1.0, 0.5, 0.25]),
    (1.0, [1.0, 0.25, 0.0625]),
]


def requires_weights(kind: type[PrioritisedReplay], beta: float, weights: list[float]) -> None:
    drawn, _, found = rated([1.0, 4.0, 16.0], kind=kind).draw(200, 21, beta, generator())
    number = drawn["number"].view(200, 21)
    assert found.dtype == torch.float32
    assert (number == 0).any(dim=1).all()  # 21 equal parts of 21, the first of which is the first row's
    torch.testing.assert_close(found, torch.tensor(weights)[number])


@pytest.mark.parametrize(("beta", "weights"), WEIGHTS)
def test_importance_weights_by_hand(beta, weights):
    requires_weights(PrioritisedReplay, beta, weights)


def test_weights_are_relative_to_the_largest_of_their_batch():
    """With a row to a batch each weighs 1; of rows with 1 and 4 of 5 in two parts the second batch may have two 4s."""
    assert rated([1.0, 4.0]).draw(100, 1, 1.0, generator())[2].eq(1).all()
    drawn, _, weights = rated([1.0, 4.0]).draw(200, 2, 0.5, generator())
    both = (drawn["number"].view(200, 2) == torch.tensor([0, 1])).all(dim=1)
    assert 0 < both.sum() < 200
    assert torch.equal(weights[both], torch.tensor([1.0, 0.5]).expand(int(both.sum()), 2))
    assert weights[~both].eq(1).all()


def test_nothing_that_was_kept_weighs_nothing_and_gets_no_priority():
    replay = PrioritisedReplay(5, FIELDS)
    drawn, places, weights = replay.draw(2, 3, 0.5, generator())
    assert not weights.any() and drawn["number"].shape == (6,)
    replay.update_priorities(places, torch.ones(6))
    assert not replay.tree.any()


def test_draws_depend_on_the_generator_alone():
    replay = rated([1.0, 2.0, 3.0])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = (replay.draw(3, 50, 1.0, generator(3))[1] for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_and_tree_are_counted_before_they_take_memory(monkeypatch):
    """Of 4 + 1 rows of 8 bytes, and of 16 sums of 8 bytes."""
    replay = PrioritisedReplay(4, {"number": ((), torch.int64)})
    for free in (0, 5 * 8 + 16 * 8 - 1):
        monkeypatch.setattr(checks, "available_memory", lambda device, free=free: free)
        with pytest.raises(MemoryError, match="capacity=4 needs"):
            replay.require_memory()
    monkeypatch.setattr(checks, "available_memory", lambda device: 5 * 8 + 16 * 8)
    replay.add({"number": torch.zeros(1, dtype=torch.int64)})
    monkeypatch.setattr(checks, "available_memory", lambda device: 0)
    replay.add({"number": torch.zeros(1, dtype=torch.int64)})


# ---- state -----------------------------------------------------------------------------------------------------------


def test_a_state_goes_on_where_it_was_to_the_last_bit():
    draws = generator(5)
    one, other = rated(torch.rand(29, generator=draws).tolist(), capacity=31), PrioritisedReplay(31, FIELDS, alpha=1.0)
    other.add(rows(*range(31)))
    other.load_state(one.state())
    for replay in (one, other):
        replay.add(rows(100, 101, 102, 103))
        replay.update_priorities(torch.tensor([5, 30]), torch.tensor([0.1, 7.0]))
    assert torch.equal(one.tree, other.tree)
    (drawn, *found), (expected, *others) = (replay.draw(4, 9, 0.7, generator()) for replay in (one, other))
    assert torch.equal(drawn["number"], expected["number"])
    assert all(torch.equal(part, same) for part, same in zip(found, others, strict=True))
    requires_sums(other)


def test_a_state_is_a_copy():
    replay = rated([1.0, 2.0])
    state = replay.state()
    replay.update_priorities(torch.tensor([0]), torch.tensor([5.0]))
    assert state["priorities"].tolist() == [1.0, 2.0]
    assert state["highest"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PrioritisedReplay(0, FIELDS), "capacity=0 must be an integer from 1 to"),
        (lambda: rated([1.0, 2.0]).add({"row": torch.zeros(1)}), "rows have the fields row; the replay has number"),
        (
            lambda: rated([1.0, 2.0]).load_state(rated([1.0]).state()),
            r"replay\['priorities'\] must have the shape \[2\], has \[1\]",
        ),
        (
            lambda: rated([1.0]).load_state({"written": torch.zeros(1), "rows": {}}),
            "replay has no 'priorities'",
        ),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.gpu
def test_a_gpu_has_the_same_tree_and_draws_without_waiting():
    one, other = rated([1.0, 2.0, 3.0]), PrioritisedReplay(3, FIELDS, "cuda", alpha=1.0)
    other.load_state(one.state())
    assert torch.equal(other.tree.cpu(), one.tree)
    new, places, loss = (part.cuda() for part in (rows(5)["number"], torch.tensor([0, 0, 2]), torch.ones(3)))
    with nothing_waiting():
        other.add({"number": new})
        other.update_priorities(places, loss)
        other.draw(3, 4, 0.5, torch.Generator("cuda").manual_seed(0))
    one.add(rows(5))
    one.update_priorities(places.cpu(), loss.cpu())
    assert torch.equal(other.tree.cpu(), one.tree)


# ---- each trap has a test that it fails ------------------------------------------------------------------------------

TRAPS = {
    "means for sums": ("torch.sum(pairs[level", "torch.mean(pairs[level", requires_priorities_of_a_loop, 300),
    "the last of a place that repeats": ('"amax"', '"mean"', requires_largest),
    "rows that are not kept": ("places < self.capacity, self", "places >= 0, self", requires_priorities_of_a_loop, 300),
    "the left child's sum is kept": ("sought - goes_right * left", "sought", requires_frequencies),
    "weights that grow": ("amin(dim=1, keepdim=True) / priority", "clone() / 16", requires_weights, *WEIGHTS[1]),
    "weights of all batches": ("amin(dim=1, keepdim=True)", "amax(dim=1, keepdim=True)", requires_weights, *WEIGHTS[1]),
}


def mutant(old: str, new: str) -> type[PrioritisedReplay]:
    """The class, of a copy of its module with one place changed."""
    source = Path(prioritised.__file__).read_text()
    assert source.count(old) == 1, old
    copy = types.ModuleType("lockstep.agents.parts.mutant")
    copy.__package__ = prioritised.__package__
    exec(compile(source.replace(old, new), "mutant", "exec"), vars(copy))
    return copy.PrioritisedReplay


@pytest.mark.parametrize(("old", "new", "require", "given"), [(*t[:3], t[3:]) for t in TRAPS.values()], ids=TRAPS)
def test_each_trap_is_noticed(old, new, require, given):
    with pytest.raises(AssertionError):
        require(mutant(old, new), *given)
