"""The log keeps its pace, its last row, and what an earlier run has written."""

import csv
import io
import math
from types import SimpleNamespace

import pytest

from lockstep.agents.run import log
from lockstep.agents.run.log import COLUMNS, Log

HEADER = ",".join(COLUMNS)


@pytest.fixture
def clock(monkeypatch):
    """The log's clock, moved by hand; in milliseconds, for whole numbers add up exactly."""
    clock = SimpleNamespace(ms=0)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: clock.ms / 1000))
    return clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows_of(path) -> list[dict]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def iterations(path) -> list[int]:
    return [int(row["iteration"]) for row in rows_of(path)]


def test_a_row_is_in_the_file_at_once_under_its_columns(tmp_path):
    path = tmp_path / "runs" / "progress.csv"
    with Log(path, 1000) as progress:
        progress.row({"iteration": 1, "env_steps": 128, "episode_return": math.nan, "steps_per_s": 0.00025})
        lines = path.read_text().splitlines()
    assert lines[0] == "iteration,env_steps,wall_s,steps_per_s,episodes,episode_return,episode_length"
    assert lines[1:] == ["1,128,,0.00025,,nan,"]


def test_at_most_ten_rows_a_second_are_written_and_always_the_last_one(tmp_path, clock):
    path = tmp_path / "progress.csv"
    with Log(path, 1000) as progress:
        for iteration in range(100):  # 30 ms apart, so every fourth is due
            clock.ms = 30 * iteration
            assert progress.due() == (iteration % 4 == 0)
            progress.row({"iteration": iteration, "env_steps": iteration})
    assert iterations(path) == [*range(0, 100, 4), 99]


def test_the_last_row_is_written_when_a_training_breaks_off(tmp_path, clock):
    path = tmp_path / "progress.csv"

    def train():
        with Log(path, 1000) as progress:
            for iteration in range(3):
                progress.row({"iteration": iteration, "env_steps": iteration})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert iterations(path) == [0, 2]


def test_without_a_file_and_quiet_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Log(None, 1000, quiet=True) as progress:
        progress.row({"iteration": 1, "env_steps": 1000})
    assert not list(tmp_path.iterdir()) and capsys.readouterr() == ("", "")


def write(path, *lines: str) -> None:
    path.write_text("".join([HEADER + "\n", *lines]))


def line(iteration: int) -> str:
    return f"{iteration},{iteration * 8},0.{iteration}" + "," * (len(COLUMNS) - 3) + "\n"


def test_resuming_keeps_the_rows_before_and_cuts_those_after_and_a_torn_line(tmp_path, clock):
    path = tmp_path / "progress.csv"
    write(path, line(2), line(4), line(6), "7,5")
    with Log(path, 1000, resume_after=4) as progress:
        assert path.read_text() == f"{HEADER}\n{line(2)}{line(4)}"
        progress.row({"iteration": 5, "env_steps": 40})
    assert iterations(path) == [2, 4, 5]
    assert [file.name for file in tmp_path.iterdir()] == ["progress.csv"]


def test_a_torn_line_is_cut_even_where_it_looks_like_an_earlier_iteration(tmp_path):
    path = tmp_path / "progress.csv"
    write(path, line(9), line(10)[:-1].replace("10", "1", 1))  # "10" cut to "1" could be taken for iteration 1
    with Log(path, 1000, resume_after=9):
        pass
    assert iterations(path) == [9]


@pytest.mark.parametrize("before", [None, "", "iterat", HEADER])
def test_resuming_without_a_whole_header_begins_the_file(tmp_path, before):
    path = tmp_path / "progress.csv"
    if before is not None:
        path.write_text(before)
    with Log(path, 1000, resume_after=4) as progress:
        progress.row({"iteration": 5, "env_steps": 40})
    assert iterations(path) == [5]


def test_a_new_run_begins_a_new_file(tmp_path):
    path = tmp_path / "progress.csv"
    write(path, line(2), line(4))
    with Log(path, 1000):
        pass
    assert path.read_text() == HEADER + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iteration,loss\n1,2\n", "its columns are iteration, loss; needed: iteration, env_steps, wall_s"),
        (f"{HEADER}\n{line(1)}1,2\n{line(3)}", "line 3 is no row of a log: 1,2"),
        (f"{HEADER}\nx{line(1)}", "line 2 is no row of a log: x1,8"),
    ],
)
def test_a_file_that_is_no_log_is_not_resumed_and_kept_as_it_is(tmp_path, text, message):
    path = tmp_path / "progress.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message), Log(path, 1000, resume_after=9):
        pass
    assert path.read_text() == text


def test_off_a_terminal_a_plain_line_comes_every_ten_seconds_and_at_the_end(clock, capsys):
    with Log(None, 200_000) as progress:
        for second in range(25):
            clock.ms = 1000 * second
            row = {"iteration": second, "env_steps": 1000 * second, "wall_s": float(second), "steps_per_s": 1000.4}
            if second > 10:
                row |= {"episodes": 7.0, "episode_return": 123.456}
            progress.row(row)
    assert capsys.readouterr().err.splitlines() == [
        "iteration 10, 10,000 of 200,000 steps (5%), 10.0 s, 1,000 steps/s",
        "iteration 20, 20,000 of 200,000 steps (10%), 20.0 s, 1,000 steps/s, return 123.5 over 7 episodes",
        "iteration 24, 24,000 of 200,000 steps (12%), 24.0 s, 1,000 steps/s, return 123.5 over 7 episodes",
    ]


def test_a_line_that_was_just_printed_is_not_printed_again(clock, capsys):
    with Log(None, 100) as progress:
        clock.ms = 10_000
        progress.row({"iteration": 1, "env_steps": 100})
    assert capsys.readouterr().err == "iteration 1, 100 of 100 steps (100%)\n"


def test_on_a_terminal_a_bar_shows_the_steps(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Log(None, 2000) as progress:
        progress.row({"iteration": 1, "env_steps": 500, "episodes": 3, "episode_return": 21.0})
        progress.row({"iteration": 2, "env_steps": 1000, "episodes": 3, "episode_return": 22.0})
    shown = terminal.getvalue()
    assert "50%" in shown and "1.00k/2.00k" in shown and "return 22 over 3 episodes" in shown
    assert "iteration 2" not in shown


def test_the_bar_of_a_resumed_run_counts_its_own_steps_for_the_rate(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stderr", Terminal())
    with Log(None, 2000, resume_after=1) as progress:
        progress.row({"iteration": 2, "env_steps": 1000})
        progress.row({"iteration": 3, "env_steps": 1500})
        assert (progress._bar.initial, progress._bar.n) == (1000, 1500)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"iteration": 1, "env_steps": 2, "episods": 3}, "the unknown column 'episods'; did you mean 'episodes'?"),
        ({"iteration": 1, "env_steps": 2, "wall_s": "fast"}, "wall_s='fast' must be a number"),
        ({"iteration": 1}, "a log row must have 'env_steps'"),
        ({"env_steps": 1}, "a log row must have 'iteration'"),
    ],
)
def test_a_wrong_row_is_refused(row, message):
    with pytest.raises(ValueError) as caught, Log(None, 100, quiet=True) as progress:  # noqa: PT011
        progress.row(row)
    assert message in str(caught.value)


def test_other_columns_may_be_chosen_with_iteration_and_steps(tmp_path):
    path = tmp_path / "progress.csv"
    with Log(path, 100, columns=("iteration", "env_steps", "score")) as progress:
        progress.row({"iteration": 1, "env_steps": 2, "score": 3.5})
    assert path.read_text() == "iteration,env_steps,score\n1,2,3.5\n"
    with pytest.raises(ValueError, match="must have 'env_steps', got iteration, score"):
        Log(path, 100, columns=("iteration", "score"))


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of each curve of TensorBoard, read by its own reader."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs TensorBoard: pip install tensorboard"
    )
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_has_the_rows_of_the_file_without_what_is_no_number(tmp_path, clock):
    pytest.importorskip("tensorboard")
    with Log(tmp_path / "progress.csv", 1000, tensorboard=True) as progress:
        for iteration in range(1, 9):
            clock.ms = 60 * iteration  # so every other row is due
            value = math.nan if iteration == 3 else 0.5 * iteration
            progress.row({"iteration": iteration, "env_steps": 8 * iteration, "episode_return": value, "wall_s": None})
    assert iterations(tmp_path / "progress.csv") == [1, 3, 5, 7, 8]
    assert scalars(tmp_path) == {
        "iteration": [(8, 1), (24, 3), (40, 5), (56, 7), (64, 8)],
        "episode_return": [(8, 0.5), (40, 2.5), (56, 3.5), (64, 4.0)],
    }


@pytest.mark.parametrize(("after", "steps"), [(2, [8, 16, 40]), (0, [40])])
def test_tensorboard_forgets_what_a_resumed_run_does_again(tmp_path, clock, after, steps):
    pytest.importorskip("tensorboard")
    for first, resume_after in ((1, None), (5, after)):
        with Log(tmp_path / "progress.csv", 1000, resume_after=resume_after, tensorboard=True) as progress:
            for iteration in range(first, 5 if first == 1 else 6):
                clock.ms += 1000
                progress.row({"iteration": iteration, "env_steps": 8 * iteration})
    assert scalars(tmp_path) == {"iteration": [(step, step / 8) for step in steps]}


def test_without_a_file_there_is_no_tensorboard_either(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    with Log(None, 1000, quiet=True, tensorboard=True) as progress:
        progress.row({"iteration": 1, "env_steps": 1000})
    assert not list(tmp_path.iterdir())
