"""Numbers and tables in print: units and digits, then CSV, Markdown and HTML."""

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from lockstep import paper

DASH, MINUS, TIMES, SPACE = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{NO-BREAK SPACE}"
GREATER, LESS = "\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
GROUP = ' class="group"'  # a row that opens a group of merged cells
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "\N{MICRO SIGN}s"), (1e-9, "ns"), (1e-12, "ps"))

# Numbers.


def missing(value: object) -> bool:
    """True for an empty cell."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, thousands separated: 2411.3 -> 2,410, 2.9e-07 -> 2.9e-7."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "\N{INFINITY}" if value > 0 else f"{MINUS}\N{INFINITY}"
    # Through %e first, so that 999.6 counts as a number of four digits.
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    exponent = int(exponent)
    if exponent < -4:
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}".replace("-", MINUS)
    decimals = max(digits - 1 - exponent, 0)
    return f"{round(value, digits - 1 - exponent):,.{decimals}f}".replace("-", MINUS)


def signed(value: float, decimals: int, plus: str = "+") -> str:
    """A number with so many decimals and its sign; zero is never negative: -0.004 -> '+0.00'. plus: may be ""."""
    return f"{round(value, decimals) + 0.0:{plus}.{decimals}f}".replace("-", MINUS)  # the sum makes -0.0 a zero


def scale(value: float, digits: int = 3) -> tuple[float, str]:
    """The SI prefix that fits a value once it is rounded: factor and letter."""
    rounded = float(f"{abs(value):.{digits - 1}e}")
    return next((pair for pair in PREFIXES if rounded >= pair[0]), (1.0, ""))


def si(value: float) -> str:
    """A number with an SI prefix: 5.23e8 -> '523 M'."""
    factor, prefix = scale(value)
    return f"{significant(value / factor)}{SPACE}{prefix}".rstrip(SPACE)


def si_range(low: float, high: float, reference: float) -> str:
    """Two numbers in the prefix of a third: (5.1e8, 5.3e8, 5.2e8) -> '510 - 530 M'."""
    factor, prefix = scale(reference)
    return f"{significant(low / factor)}{SPACE}{DASH}{SPACE}{significant(high / factor)}{SPACE}{prefix}".rstrip(SPACE)


def seconds(value: float) -> str:
    """A duration: 0.21 s, 3 min 05 s, 2 h 07 min."""
    if value < 59.5:
        return f"{significant(value, 2)}{SPACE}s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}{SPACE}min{SPACE}{whole % 60:02d}{SPACE}s"
    return f"{whole // 3600}{SPACE}h{SPACE}{whole % 3600 // 60:02d}{SPACE}min"


def short_time(value: float) -> str:
    """A time with the unit that fits: 8.09e-6 -> '8.09 µs'."""
    factor, unit = next((pair for pair in TIME_UNITS if value >= pair[0]), TIME_UNITS[-1])
    return f"{significant(value / factor)}{SPACE}{unit}"


def count(value: float) -> str:
    """A whole number, thousands separated."""
    return f"{round(value):,}"


def grouped(words: str) -> str:
    """Words with the thousands of their whole numbers separated: "at 8192 environments" -> "at 8,192 environments"."""
    return re.sub(r"(?<![\w.,])\d{4,}(?![\w.])", lambda number: f"{int(number[0]):,}", words)


def times(value: float) -> str:
    """A ratio: 2411.3 -> '2,410 x', with the multiplication sign."""
    return f"{significant(value)}{TIMES}"


def percent(value: float, digits: int = 2) -> str:
    """A share: 0.0524 -> '5.2 %'."""
    return f"{significant(100 * value, digits)}{SPACE}%"


def gigabytes(value: float) -> str:
    """Bytes as GB, without the unit."""
    return significant(value / 1e9)


def yes_no(value: object) -> str:
    """A truth, or a dash where it is not known."""
    return DASH if missing(value) else ("yes" if value else "no")


# Tables.


class Row(dict):
    """A row of a DataFrame, by column; a column that is not there is empty."""

    def __missing__(self, name: str) -> None:
        return None


@dataclass(frozen=True)
class Column:
    """One column as a reader sees it.

    cell: from a Row to text. kind: "text", "long" (may wrap), "number" (right-aligned, figures of equal
    width) or "status". merge: equal neighbours become one cell, within equal cells of the merged columns to
    the left. section: in HTML no column but a line above the rows that share it; such columns come first.
    """

    heading: str
    cell: Callable[[Row], str]
    kind: str = "text"
    merge: bool = False
    section: bool = False


def text(heading: str, name: str, write: Callable[[object], str] = str, **options) -> Column:
    """A column of words, each value put into words by `write`."""
    return Column(heading, lambda row: DASH if missing(row[name]) else write(row[name]), **options)


def number(heading: str, name: str, write: Callable[[float], str] = significant) -> Column:
    """A column of numbers, each put into words by `write`."""
    return Column(heading, lambda row: DASH if missing(row[name]) else write(float(row[name])), "number")


def with_interval(heading: str, name: str, write: Callable[[float], str] = significant) -> Column:
    """A column of numbers, each with its interval in the columns `name`_low and `name`_high where that is known."""

    def cell(row: Row) -> str:
        if missing(row[name]):
            return DASH
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return write(row[name]) + ("" if missing(low) else f" [{write(low)}, {write(high)}]")

    return Column(heading, cell, "number")


def interval(heading: str, low: str, high: str, reference: str) -> Column:
    """A column of intervals, in the prefix of the figures they belong to."""

    def cell(row: Row) -> str:
        return DASH if missing(row[low]) else si_range(row[low], row[high], row[reference])

    return Column(heading, cell, "number")


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    function: from datasets to a DataFrame, whose columns a reader sees through `columns` (all of them, as
    they are, where there are none). folded: the report shows it closed, because it is long. empty: what
    stands for no rows. more: further words at the end of the caption, of datasets. on_gpu: its very end where a machine
    has a GPU.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    function: Callable[[list], pd.DataFrame]
    folded: bool = False
    empty: str = "Nothing measured yet."
    more: Callable[[list], str] = paper.nothing
    on_gpu: str = ""

    def frame(self, datasets: list) -> pd.DataFrame:
        """The numbers; possibly without rows."""
        return self.function(datasets).reset_index(drop=True)

    def seen(self, frame: pd.DataFrame) -> tuple[list[Column], list[list[str]]]:
        """A frame as a reader sees it: the columns, without those of which nothing is known, and the rows of texts."""
        columns = list(self.columns) or [text(name, name, kind="long") for name in frame.columns]
        rows = [[column.cell(row) for column in columns] for row in map(Row, frame.to_dict("records"))]
        known = [j for j, cells in enumerate(zip(*rows, strict=True)) if {*cells} != {DASH}] or range(len(columns))
        return [columns[j] for j in known], [[row[j] for j in known] for row in rows]


def csv(frame: pd.DataFrame) -> str:
    """A frame as CSV, seven significant digits."""
    return frame.to_csv(index=False, float_format="%.7g", lineterminator="\n")


def markdown(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table, its numbers right-aligned."""
    rule = ["---:" if column.kind == "number" else "---" for column in columns]
    lines = [[column.heading for column in columns], rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def html_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], empty: str) -> str:
    """An HTML table; `empty` stands in it where there are no rows."""
    sections = [j for j, column in enumerate(columns) if column.section]
    inner = [j for j, column in enumerate(columns) if not column.section]
    heads = [f'<th scope="col" class="{columns[j].kind}">{html.escape(columns[j].heading)}</th>' for j in inner]
    body = []
    for i, row in enumerate(rows):
        opens = i == 0 or not same(rows, i, i - 1, sections)
        if sections and opens:
            words = " ".join(element("span", row[j], columns[j].kind) for j in sections)
            body.append(f'<tr class="section"><th scope="rowgroup" colspan="{len(inner)}">{words}</th></tr>')
        cells, above, group = [], list(sections), False
        for j in inner:
            kind = columns[j].kind + (" first" if j == inner[0] else "")
            if not columns[j].merge:
                cells.append(element("td", row[j], kind))
                continue
            # Two cells are one where they, their sections and all merged cells to their left are equal.
            above.append(j)
            if i and same(rows, i, i - 1, above):
                continue
            span = next((k for k in range(i + 1, len(rows)) if not same(rows, i, k, above)), len(rows)) - i
            group = group or (j == inner[0] and not opens)
            cells.append(element("th", row[j], kind, f' scope="rowgroup" rowspan="{span}"'))
        body.append(f"<tr{GROUP if group else ''}>{''.join(cells)}</tr>")
    if not rows:
        body = [f'<tr><td class="text first" colspan="{max(len(inner), 1)}">{html.escape(empty)}</td></tr>']
    head, lines = "".join(heads), "\n".join(body)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"


def element(tag: str, cell: str, kind: str, attributes: str = "") -> str:
    """The text of a cell in its element, code in backticks; a status carries the class that draws its mark."""
    words = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(cell))
    if kind.startswith("number"):  # an interval stands below its figure, as does what is said of a figure and its ratio
        words = re.sub(r" (\[.*\])$", r'<span class="interval"> \1</span>', words)
        words = re.sub(r"(\),?) (\w.*)$", r'\1<span class="interval"> \2</span>', words)
    if kind.split()[0] == "status":
        words = f'<span class="{mark(cell)}">{words}</span>'
    return f'<{tag} class="{kind}"{attributes}>{words}</{tag}>'


MARKS = {paper.HERE: "here", paper.NOT_MEASURED: "none", "yes": "yes", "no": "no", "met": "yes", "not met": "no"}


def mark(status: str) -> str:
    """The class of a status, or of a verdict, which may be on record."""
    if status.startswith((paper.CHANGED_HERE, paper.CHANGED)):
        return "changed"
    return "recorded" if status.startswith(paper.RECORDED) else MARKS.get(status.removesuffix(" on record"), "plain")


def same(rows: Sequence[Sequence[str]], i: int, k: int, columns: Sequence[int]) -> bool:
    return all(rows[i][j] == rows[k][j] for j in columns)
