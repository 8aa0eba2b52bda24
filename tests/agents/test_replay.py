"""The replay: a ring of named rows, uniform sampling, rows that do not count."""

import pytest
import torch

from lockstep.agents.parts.replay import Replay
from lockstep.envs import checks

FIELDS = {"number": ((), torch.int64), "pair": ((2,), torch.float32)}


def rows(*numbers: int) -> dict[str, torch.Tensor]:
    number = torch.tensor(numbers)
    return {"number": number, "pair": torch.stack([number, -number], dim=1).float()}


def filled(capacity: int, *batches) -> Replay:
    replay = Replay(capacity, FIELDS)
    for batch in batches:
        replay.add(batch)
    return replay


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def held(replay: Replay) -> list[int]:
    """The numbers in the ring, by place."""
    return replay.rows["number"][: int(replay.size)].tolist()


def test_rows_are_kept_in_order_and_the_oldest_are_forgotten():
    replay = filled(4, rows(0, 1, 2))
    assert held(replay) == [0, 1, 2]
    replay.add(rows(3, 4, 5))  # across the seam
    assert held(replay) == [4, 5, 2, 3]
    replay.add(rows(6, 7, 8, 9))  # as many as it holds
    assert held(replay) == [8, 9, 6, 7]
    assert int(replay.written) == 10


def test_only_valid_rows_are_kept():
    replay = filled(4, rows(0, 1, 2))
    batch = rows(3, 4, 5, 6)
    valid = torch.tensor([False, True, False, True])
    batch["pair"][~valid] = float("nan")
    replay.add(batch, valid)
    assert held(replay) == [6, 1, 2, 4]
    replay.add(rows(7, 8), torch.tensor([False, False]))
    assert held(replay) == [6, 1, 2, 4]
    assert set(replay.sample(1000, generator())["number"].tolist()) == {6, 1, 2, 4}


def test_fields_of_a_row_stay_together():
    drawn = filled(8, rows(*range(5))).sample(1000, generator())
    assert torch.equal(drawn["pair"], torch.stack([drawn["number"], -drawn["number"]], dim=1).float())
    assert drawn["pair"].shape == (1000, 2)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_every_row_that_was_kept_is_drawn_equally_often(count):
    draws = 64_000
    drawn = filled(8, rows(*range(count))).sample(draws, generator())["number"]
    found = drawn.bincount(minlength=8)
    assert not found[count:].any()
    expected = draws / count
    assert ((found[:count] - expected) ** 2 / expected).sum() < 30  # chi squared with at most 7 degrees of freedom


def test_draws_depend_on_the_generator_alone():
    replay = filled(8, rows(*range(8)))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, other = (replay.sample(100, generator(3))["number"] for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_drawn_does_not_change_with_the_ring():
    replay = filled(2, rows(0, 1))
    drawn = replay.sample(10, generator())
    before = drawn["number"].clone()
    replay.add(rows(2, 3))
    assert torch.equal(drawn["number"], before)


def test_a_state_goes_on_where_it_was():
    replay, other = filled(4, rows(0, 1, 2)), Replay(4, FIELDS)
    other.load_state(replay.state())
    for ring in (replay, other):
        ring.add(rows(3, 4))
    assert held(replay) == held(other) == [4, 1, 2, 3]
    assert torch.equal(replay.sample(9, generator())["pair"], other.sample(9, generator())["pair"])


def test_a_state_is_a_copy():
    replay = filled(2, rows(0, 1))
    state = replay.state()
    replay.add(rows(2))
    assert state["rows"]["number"].tolist() == [0, 1]
    assert state["written"].tolist() == [2]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Replay(0, FIELDS), "capacity=0 must be an integer from 1 to"),
        (lambda: Replay(4, {}), "fields must name at least one field"),
        (lambda: Replay(4, FIELDS, "tpu"), "device='tpu' must be 'cpu', 'cuda' or 'cuda:<index>'"),
        (lambda: filled(4, {"number": torch.zeros(1)}), "rows have the fields number; the replay has number, pair"),
        (lambda: filled(2, rows(0, 1, 2)), "3 rows at once do not fit a replay of capacity=2"),
        (
            lambda: filled(4, rows(0, 1) | {"pair": torch.zeros(2, 3)}),
            r"rows\['pair'\] must be torch.float32 \[2, 2\], is torch.float32 \[2, 3\]",
        ),
        (
            lambda: filled(4, {"number": torch.zeros(1), "pair": torch.zeros(1, 2)}),
            r"rows\['number'\] must be torch.int64 \[1\], is torch.float32 \[1\]",
        ),
        (
            lambda: filled(4).load_state(filled(3).state()),
            r"replay\['rows'\]\['number'\] must have the shape \[4\], has \[3\]",
        ),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_ring_that_does_not_fit_is_refused_where_its_memory_is_taken():
    replay = Replay(2**31 - 1, {"obs": ((10_000,), torch.float32)})
    for take in (replay.require_memory, lambda: replay.rows, lambda: replay.add({"obs": torch.zeros(1, 10_000)})):
        with pytest.raises(MemoryError, match="capacity=2147483647 needs"):
            take()


def test_what_is_allocated_needs_no_more_memory(monkeypatch):
    replay, other = (filled(4, rows(0, 1)) for _ in range(2))
    monkeypatch.setattr(checks, "available_memory", lambda device: 15)  # and a row has 16 bytes
    replay.require_memory()
    assert held(replay) == held(other)
    with pytest.raises(MemoryError, match="capacity=4 needs .* GiB are free; about 0 would fit"):
        Replay(4, FIELDS).require_memory()
