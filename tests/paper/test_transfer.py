"""The table and the figure of transfers, from rows whose shares can be worked out in the head."""

import re

import pytest

from lockstep import paper
from lockstep.experiments.shares import NEEDS_GPU
from lockstep.paper import figures, tables
from lockstep.paper.typeset import DASH, SPACE
from tests.paper import handwritten
from tests.paper.handwritten import BLOCKS, B
from tests.paper.reading import seen


def rows(setting, source, device="cpu", memory="none", copies=None, **parts):
    """Blocks of ten calls, of so many microseconds for each part; and a count of copies in ten steps."""
    same = {"environment": "cartpole", "loop": setting, "source": source, "device": device, "memory": memory}
    same |= {"num_envs": B, "threads": 1, "clock": "host", "calls": 10}
    timed = [
        same | {"part": part.replace("_", "-"), "block": block, "wall_s": 10e-6 * microseconds}
        for part, microseconds in parts.items()
        for block in range(BLOCKS)
    ]
    return timed + ([] if copies is None else [same | {"part": "copies", "block": 0, "copies": copies}])


ON_CPU = [
    *rows("note", "gymnasium-vector", step=330),
    *rows("note", "copy", memory="pageable", host_copy=3),
    *rows("real", "gymnasium-vector", loop=100, policy=60, step=40),
    *rows("resident", "port-cpu", loop=80, policy=60, step=20),
]
ON_GPU = [
    *rows("note", "copy", "cuda", "pageable", up=168.6, down=21.2),
    *rows("note", "copy", "cuda", "pinned", up=40, down=20),
    *rows("real", "gymnasium-vector", "cuda", "pageable", loop=200, up=30, policy=40, down=10, step=120, copies=20),
    *rows("real", "gymnasium-vector", "cuda", "pinned", loop=160, up=20, policy=40, down=8, step=100, copies=20),
    *rows("resident", "port-cuda-graph", "cuda", loop=5, copies=0),
]


@pytest.fixture
def datasets(tmp_path):
    """This machine, without a GPU, and a recorded one with one."""
    handwritten.write(tmp_path, None, "transfer", ON_CPU, handwritten.HERE)
    handwritten.write(tmp_path, "big", "transfer", ON_CPU + ON_GPU, handwritten.BIG)
    return paper.load(tmp_path)


def lines(datasets, status):
    """A machine's rows as a reader sees them, as dicts by heading."""
    return [row for row in seen("transfer", datasets) if row["status"].startswith(status)]


def measured(datasets, status):
    """Those with a number, by setting, place of the policy and memory."""
    keys = ("setting", "policy on", "host memory")
    return {tuple(row[key] for key in keys): row for row in lines(datasets, status) if row["B"] != DASH}


def test_the_note_s_ratio_stands_beside_the_share_that_it_is_not(datasets):
    """189.8 us of copies are 57.5 % of a step of 330 us, and 36.5 % of both together."""
    row = measured(datasets, "recorded")["a: timed apart", DASH, "pageable"]
    assert (row["up"], row["down"], row["step"]) == tuple(f"{n}{SPACE}µs" for n in ("169", "21.2", "330"))
    assert row["copies over step"] == f"58{SPACE}%"
    assert row["transfer"] == f"37{SPACE}%"
    assert row["copy within the host"] == f"3.00{SPACE}µs"


def test_a_real_loop_has_its_share_its_sum_and_its_copies(datasets):
    """Of 200 us 40 are transfer; the parts of the other loop, 168 us, are 5 % more than its 160."""
    found = measured(datasets, "recorded")
    pageable, pinned = (found["b: a loop", "GPU", memory] for memory in ("pageable", "pinned"))
    assert (pageable["transfer"], pageable["parts over loop"], pageable["copies"]) == (
        f"20{SPACE}%",
        f"100{SPACE}%",
        "2",
    )
    assert pinned["parts over loop"] == f"105{SPACE}%, apart"
    assert pageable["copies over step"] == DASH


def test_a_resident_loop_copies_nothing(datasets):
    row = measured(datasets, "recorded")["c: resident", "GPU", DASH]
    assert (row["loop"], row["transfer"], row["copies"]) == (f"5.00{SPACE}µs", f"0{SPACE}%", "0")


def test_a_machine_without_a_gpu_says_what_it_cannot_tell(datasets):
    found = lines(datasets, "measured here")
    unknown = [row["setting"] for row in found if row["transfer"] == NEEDS_GPU]
    assert unknown == ["a: timed apart", "b: a loop", "c: resident"]
    assert all(row[part] == DASH for row in found for part in ("up", "down", "copies"))
    on_cpu = measured(datasets, "measured here")["b: a loop", "CPU", DASH]
    assert (on_cpu["policy"], on_cpu["step"]) == (f"60.0{SPACE}µs", f"40.0{SPACE}µs")


def test_only_environments_whose_yaml_asks_are_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole", "pendulum"])
    assert list(tables.frame("transfer", paper.load(tmp_path))["environment"]) == ["cartpole"]


def test_the_figure_draws_shares_beside_the_note_s_line(datasets):
    """By machine and place of the policy: parts of 519.8, 200 and 168 us and one whole; none of a GPU here."""
    here_cpu, big_gpu, big_cpu = figures.draw("transfer", datasets).axes
    assert [bar.get_width() for bar in here_cpu.patches] == pytest.approx([60, 40, 75, 25])
    widths = {bars.get_label(): [] for bars in big_gpu.containers}
    for bars in big_gpu.containers:
        widths[bars.get_label()] += [bar.get_width() for bar in bars]
    assert widths["up"] == pytest.approx([100 * 168.6 / 519.8, 15, 100 * 20 / 168])
    assert widths["down"] == pytest.approx([100 * 21.2 / 519.8, 5, 100 * 8 / 168])
    assert widths["policy and step"] == [100]
    (line,) = [line for line in big_gpu.lines if line.get_label() == "the document's share"]
    assert line.get_xdata()[0] == pytest.approx(57.4)
    assert not [line for line in big_cpu.lines if line.get_label() == "the document's share"]
    names = [label.get_text().partition(":")[0] for label in big_gpu.get_yticklabels()]
    assert names == ["timed apart", "a loop", "a loop", "resident"]
    said = paper.caption(figures.every()["transfer"], datasets)
    assert all(f"{name}, " in said for name in names) and "row by row" not in said
    assert big_gpu.get_xlabel() == "B = 8,192"


def test_a_bar_stands_beside_its_own_name_where_batch_sizes_have_other_rows(tmp_path):
    few = [row | {"num_envs": 1} for row in rows("rows", "original", loop=100, policy=60, step=40)]
    many = rows("resident", "port-cpu", loop=80, policy=60, step=20)
    handwritten.write(tmp_path, None, "transfer", [*many, *few], handwritten.HERE)
    one, batch = figures.draw("transfer", paper.load(tmp_path)).axes
    names = [label.get_text() for label in one.get_yticklabels()]
    for panel, name in ((one, "row by row"), (batch, "resident")):
        (place,) = {round(bar.get_y() + bar.get_height() / 2) for bar in panel.patches}
        assert names[place].startswith(f"{name}: ")


def test_captions_speak_of_originals_row_by_row_where_there_are_such_rows(tmp_path, datasets):
    of_originals = [*ON_CPU, *rows("rows", "original", loop=100, policy=60, step=40)]
    handwritten.write(tmp_path, None, "transfer", of_originals, handwritten.HERE)
    for about in (figures.every()["transfer"], tables.every()["transfer"]):
        assert "after the other" not in paper.caption(about, datasets)
        assert re.search("; (d: |row by row, )", paper.caption(about, paper.load(tmp_path)))
        assert paper.caption(about, paper.load(tmp_path)).count("one original after the other") == 1


def test_the_figure_has_its_panels_in_order_of_their_sizes(tmp_path):
    """Though one kind of loop had begun with the larger ones."""
    large, small = ([line | {"num_envs": size} for line in ON_CPU] for size in (512, 64))
    handwritten.write(tmp_path, None, "transfer", [*large, *small], handwritten.HERE)
    *_, first, last = figures.draw("transfer", paper.load(tmp_path)).axes
    assert [panel.get_xlabel() for panel in (first, last)] == ["B = 64", "B = 512"]
