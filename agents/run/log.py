"""The log of a training: rows of a CSV file and, if asked for, of TensorBoard; on a terminal a bar, elsewhere lines."""

import contextlib
import csv
import importlib.util
import io
import math
import numbers
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep import files
from lockstep.reading import nearest

OF_EPISODES = ("episodes", "episode_return", "episode_length")
COLUMNS = ("iteration", "env_steps", "wall_s", "steps_per_s", *OF_EPISODES)  # of any algorithm, whose own come after
ROW_EVERY_S = 0.1
LINE_EVERY_S = 10.0


def require_finite(iteration: int, updates: float, bad: float) -> None:
    """Raises FloatingPointError where gradients of some of the updates since the last row were not finite."""
    if bad:
        raise FloatingPointError(
            f"iteration {iteration}: since the last row {bad:.0f} of {updates:.0f} updates' gradients "
            "were not finite; no step was made of them"
        )


class Log:
    """A context manager that takes one row per iteration, or one whenever `due()`, and writes ten a second at most.

    Of the rows in between the last one is kept, and written by `flush` and on leaving, also on an error.

    Args:
        path: of the CSV file; None writes none. Its folder is made where missing.
        total_steps: environment steps of the whole training, for the bar.
        columns: of the file; with iteration and env_steps.
        resume_after: an iteration: a file that is there keeps its rows up to this one, later ones are cut, and so is
            a last line that a kill left unfinished. None begins a new file.
        quiet: nothing on stderr.
        tensorboard: an event file beside the CSV file too: each column a scalar over environment steps, but for NaN.

    Raises:
        ValueError: columns without iteration or env_steps, or a file to resume that is not of these columns.
        OSError: the file cannot be written; names it.
        ImportError: TensorBoard is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        total_steps: int,
        columns: Sequence[str] = COLUMNS,
        resume_after: int | None = None,
        quiet: bool = False,
        tensorboard: bool = False,
    ):
        for needed in ("iteration", "env_steps"):
            if needed not in columns:
                raise ValueError(f"columns of a log must have {needed!r}, got {', '.join(columns)}")
        self._path = None if path is None else Path(path)
        self._total, self._columns, self._resume_after, self._quiet = total_steps, tuple(columns), resume_after, quiet
        self._writer = summary_writer() if tensorboard and path is not None else None
        self._file = self._events = self._bar = self._pending = None
        self._last: dict | None = None  # the newest row, written or not
        self._written, self._line_due, self._line_of = -math.inf, -math.inf, None

    def __enter__(self) -> "Log":
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._begin_file()
            self._file = open(self._path, "a", newline="", encoding="utf-8")
        self._line_due = time.monotonic() + LINE_EVERY_S
        return self

    def __exit__(self, *_):
        try:
            self.flush()
            self._show(last=True)
        finally:
            with contextlib.ExitStack() as stack:
                for sink in filter(None, (self._bar, self._events)):
                    stack.callback(sink.close)
                if self._file is not None:
                    stack.enter_context(files.naming(self._path))
                    stack.callback(self._file.close)

    def due(self) -> bool:
        """True where a row given now would be written at once; so that others need not be fetched from the device."""
        return time.monotonic() - self._written >= ROW_EVERY_S

    def row(self, row: Mapping[str, float | None]) -> None:
        """Takes a row; columns that it lacks, or that are None, stay empty.

        Raises:
            ValueError: an unknown column, a value that is no number, or no iteration or env_steps.
        """
        for name, value in row.items():
            if name not in self._columns:
                raise ValueError(f"a log row has the unknown column {name!r}{nearest(name, self._columns)}")
            if value is not None and not isinstance(value, numbers.Real):
                raise ValueError(f"a log row's {name}={value!r} must be a number")
        for name in ("iteration", "env_steps"):
            if row.get(name) is None:
                raise ValueError(f"a log row must have {name!r}")
        self._pending = self._last = dict(row)
        if self.due():
            self.flush()
        self._show()

    def flush(self) -> None:
        """Writes the last row given, if it was kept back."""
        if self._pending is None:
            return
        if self._file is not None:
            with files.naming(self._path):
                self._file.write(_line("" if (v := self._pending.get(name)) is None else v for name in self._columns))
                self._file.flush()
        if self._events is not None:
            steps = self._pending["env_steps"]
            for name, value in self._pending.items():
                if name != "env_steps" and value is not None and not math.isnan(value):
                    self._events.add_scalar(name, value, steps)
        self._pending, self._written = None, time.monotonic()

    # ---- the file ---------------------------------------------------------------------------------------------------

    def _begin_file(self):
        """Leaves the header and the rows to keep, in a new file that takes the old one's place."""
        kept = [] if self._resume_after is None or not self._path.exists() else self._kept()
        with files.replacing(self._path, encoding="utf-8", newline="") as file:
            file.writelines([_line(self._columns), *kept])
        if self._writer is not None:
            rows = list(csv.DictReader(kept[-1:], self._columns))
            later = int(rows[0]["env_steps"]) + 1 if rows else 0  # what was told of such steps no longer counts
            self._events = self._writer(self._path.parent, purge_step=later, flush_secs=LINE_EVERY_S)

    def _kept(self) -> list[str]:
        """Whole lines of the existing file, header left out, up to the iteration resumed after."""
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        if not lines:
            return []
        rows = list(csv.reader(lines))
        if tuple(rows[0]) != self._columns:
            raise ValueError(
                f"{self._path} cannot be resumed: its columns are {', '.join(rows[0])}; "
                f"needed: {', '.join(self._columns)}"
            )
        kept, place = [], self._columns.index("iteration")
        for number, (line, cells) in enumerate(zip(lines[1:], rows[1:], strict=True), start=2):
            if len(cells) != len(self._columns) or not cells[place].isdecimal():
                raise ValueError(
                    f"{self._path} cannot be resumed: line {number} is no row of a log: {line.strip():.80}"
                )
            if int(cells[place]) <= self._resume_after:
                kept.append(line)
        return kept

    # ---- what a person sees -----------------------------------------------------------------------------------------

    def _show(self, last: bool = False):
        row = self._last
        if row is None or self._quiet:
            return
        if sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
            self._show_bar(row)
            return
        now = time.monotonic()
        if now >= self._line_due or (last and self._line_of is not row):
            print(self._sentence(row), file=sys.stderr, flush=True)
            self._line_due, self._line_of = now + LINE_EVERY_S, row

    def _show_bar(self, row: Mapping):
        if self._bar is None:
            from tqdm import tqdm

            done = 0 if self._resume_after is None else row["env_steps"]  # the rate is of this run
            form = {"unit": "step", "unit_scale": True, "dynamic_ncols": True}
            self._bar = tqdm(total=self._total, initial=done, file=sys.stderr, **form)
        self._bar.set_postfix_str(_episodes(row), refresh=False)
        self._bar.update(row["env_steps"] - self._bar.n)

    def _sentence(self, row: Mapping) -> str:
        steps = row["env_steps"]
        parts = [f"iteration {row['iteration']}", f"{steps:,} of {self._total:,} steps ({steps / self._total:.0%})"]
        if row.get("wall_s") is not None:
            parts.append(f"{row['wall_s']:.1f} s")
        if row.get("steps_per_s") is not None:
            parts.append(f"{row['steps_per_s']:,.0f} steps/s")
        return ", ".join([*parts, *filter(None, [_episodes(row)])])


def summary_writer() -> type:
    """The writer of TensorBoard's event files; ImportError where the package is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("tensorboard=True needs TensorBoard: pip install tensorboard") from error
    return SummaryWriter


def _line(cells) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _episodes(row: Mapping) -> str:
    """Return and number of the episodes since the last row, or nothing where none has ended."""
    if not row.get("episodes") or row.get("episode_return") is None:
        return ""
    return f"return {row['episode_return']:.4g} over {row['episodes']:,.0f} episodes"
