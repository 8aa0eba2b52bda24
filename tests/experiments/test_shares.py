import pandas as pd
import pytest

from lockstep.experiments import shares

BLOCKS = 6  # the fewest that have an interval of the median


def rows(loop, source, part, seconds, device="cpu", memory="none", calls=10, **found):
    """Rows of one part: `calls` calls of so many seconds in each block."""
    row = {"environment": "cartpole", "loop": loop, "source": source, "device": device, "memory": memory}
    row |= {
        "num_envs": 8192,
        "threads": 1,
        "part": part,
        "clock": "host",
        "calls": calls,
        "bytes": None,
        "copies": None,
    }
    return [row | {"block": block, "wall_s": calls * seconds} | found for block in range(BLOCKS)]


def counted(loop, source, memory, copies):
    return rows(loop, source, "copies", 0, "cuda", memory, calls=100, wall_s=None, copies=copies)[:1]


def summary(*parts):
    return shares.transfer_summary(pd.DataFrame([row for part in parts for row in part]))


# The figures of the note: 330 us a step, 168.6 us up, 21.2 us down.
NOTE = [
    rows("note", "gymnasium-vector", "step", 330e-6),
    rows("note", "copy", "up", 168.6e-6, "cuda", "pageable"),
    rows("note", "copy", "down", 21.2e-6, "cuda", "pageable"),
]


def test_the_note_s_timings_give_its_ratio_which_is_no_share():
    """189.8 of 330 is 57.5 %, but of the 519.8 that step and copies take together 36.5 %."""
    (row,) = summary(*NOTE).to_dict("records")
    assert row["over_step"] == pytest.approx(0.575, abs=5e-4)
    assert row["share"] == pytest.approx(0.365, abs=5e-4)
    assert row["share_low"] == row["share_high"] == pytest.approx(row["share"])
    assert (row["source"], row["device"], row["memory"]) == ("gymnasium-vector", "cuda", "pageable")
    assert pd.isna(row["closure"])


def test_the_copies_of_the_note_stand_beside_every_source_and_memory():
    pinned = [rows("note", "copy", part, 10e-6, "cuda", "pinned") for part in ("up", "down")]
    found = summary(*NOTE, rows("note", "port-cpu", "step", 20e-6), *pinned).set_index(["source", "memory"])
    assert len(found) == 4
    assert found["over_step"]["port-cpu", "pinned"] == pytest.approx(1)
    assert found["over_step"]["port-cpu", "pageable"] == pytest.approx(9.49)


def test_without_a_gpu_there_is_a_step_and_a_copy_within_the_host_and_no_share():
    (row,) = summary(NOTE[0], rows("note", "copy", "host-copy", 3e-6, memory="pageable")).to_dict("records")
    assert (row["step"], row["host_copy"]) == (pytest.approx(330e-6), pytest.approx(3e-6))
    assert (row["device"], row["memory"]) == ("cpu", "none")
    assert all(pd.isna(row[name]) for name in ("up", "down", "share", "over_step"))


def real(whole):
    parts = {"up": 30e-6, "policy": 40e-6, "down": 10e-6, "step": 20e-6, "loop": whole}
    return [rows("real", "port-cpu", part, seconds, "cuda", "pinned") for part, seconds in parts.items()]


@pytest.mark.parametrize(
    ("whole", "closure", "closes"), [(100e-6, 1, True), (97.2e-6, 1.0288, True), (96e-6, 1.0417, False)]
)
def test_the_parts_of_a_real_loop_are_held_against_the_whole(whole, closure, closes):
    """30 and 10 of the parts' 100 us are transfer, whatever the loop took without clocks."""
    found = summary(*real(whole), counted("real", "port-cpu", "pinned", 200))
    assert found["share"].item() == pytest.approx(0.4)
    assert found["closure"].item() == pytest.approx(closure, abs=1e-4)
    assert found["copies"].item() == 2
    assert shares.closes(found) is closes


def test_a_disturbance_that_meets_another_part_in_each_block_does_not_open_the_sum():
    """50 us more, in one part of every block and so in every loop: 150 of 150, though no part's median shows it."""
    disturbed = [row for part in real(150e-6) for row in part]
    for block in range(BLOCKS):
        hit = shares.PARTS[block % len(shares.PARTS)]
        (row,) = [row for row in disturbed if (row["part"], row["block"]) == (hit, block)]
        row["wall_s"] += row["calls"] * 50e-6
    assert summary(disturbed)["closure"].item() == pytest.approx(1)


def test_a_resident_loop_has_no_share_only_if_no_copy_was_counted():
    resident = rows("resident", "port-cuda-graph", "loop", 5e-6, "cuda")
    for copies, share in ((0, 0.0), (3, None), (None, None)):
        (row,) = summary(resident, counted("resident", "port-cuda-graph", "none", copies)).to_dict("records")
        assert row["whole"] == pytest.approx(5e-6)
        assert row["share"] == share if share is not None else pd.isna(row["share"])


def test_a_loop_in_one_memory_has_parts_and_no_share():
    parts = [rows("resident", "port-cpu", part, 10e-6) for part in ("policy", "step")]
    (row,) = summary(*parts, rows("resident", "port-cpu", "loop", 20e-6)).to_dict("records")
    assert row["closure"] == pytest.approx(1)
    assert all(pd.isna(row[name]) for name in ("share", "copies"))


def test_what_is_missing_does_not_fail_to_close():
    assert shares.closes(summary(*NOTE))
