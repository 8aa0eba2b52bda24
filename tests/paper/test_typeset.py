import math
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.paper import typeset
from lockstep.paper.typeset import DASH, MINUS, SPACE, TIMES, Column

TEXT = Column("name", lambda row: row["name"], merge=True)
NUMBER = typeset.number("size", "size")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (2411.3, "2,410"),
        (999.6, "1,000"),
        (15, "15.0"),
        (0.05678, "0.0568"),
        (-0.5, f"{MINUS}0.500"),
        (2.9e-7, f"2.9e{MINUS}7"),
        (1e-12, f"1e{MINUS}12"),
    ],
)
def test_three_significant_digits(value, written):
    assert typeset.significant(value) == written


@pytest.mark.parametrize(
    ("value", "written"), [(2.5, "+2.50"), (-27.5, f"{MINUS}27.50"), (-0.004, "+0.00"), (0.0, "+0.00")]
)
def test_a_number_has_its_sign_and_zero_is_never_negative(value, written):
    assert typeset.signed(value, 2) == written
    assert typeset.signed(value, 2, plus="") == written.removeprefix("+")


@pytest.mark.parametrize(
    ("value", "written"),
    [(217_000, "217 k"), (5.234e8, "523 M"), (1.31e9, "1.31 G"), (999.9e3, "1.00 M"), (12, "12.0")],
)
def test_rates_have_si_prefixes(value, written):
    assert typeset.si(value) == written.replace(" ", SPACE)


@given(st.floats(1, 1e14))
def test_a_written_rate_is_within_half_a_percent_of_the_rate(value):
    words = typeset.si(value).split(SPACE)
    factor = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[words[1]] if len(words) == 2 else 1
    assert float(words[0].replace(",", "")) * factor == pytest.approx(value, rel=0.0051)


def test_an_interval_takes_the_prefix_of_its_median():
    assert typeset.si_range(9.95e8, 1.004e9, 1e9) == f"0.995 {DASH} 1.00 G".replace(" ", SPACE)


@pytest.mark.parametrize(
    ("value", "low", "high", "written"),
    [
        (2.0, 1.5, 2.25, f"2.00{TIMES} [1.50{TIMES}, 2.25{TIMES}]"),
        (2.0, math.nan, math.nan, f"2.00{TIMES}"),  # of too few to have one
        (2.0, None, None, f"2.00{TIMES}"),
        (math.nan, 1.5, 2.25, DASH),
    ],
)
def test_a_figure_stands_before_its_interval_where_that_is_known(value, low, high, written):
    column = typeset.with_interval("ratio", "ratio", typeset.times)
    assert column.cell({"ratio": value, "ratio_low": low, "ratio_high": high}) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.21, "0.21 s"), (59.4, "59 s"), (185, "3 min 05 s"), (59.9, "1 min 00 s"), (7620, "2 h 07 min")],
)
def test_durations(value, written):
    assert typeset.seconds(value) == written.replace(" ", SPACE)


@pytest.mark.parametrize(("value", "written"), [(8.09e-6, "8.09 µs"), (9.9e-10, "990 ps"), (2.0, "2.00 s")])
def test_short_times_have_the_unit_that_fits(value, written):
    assert typeset.short_time(value) == written.replace(" ", SPACE)


def test_equal_neighbours_become_one_cell():
    rows = [["a", "1"], ["a", "2"], ["b", "3"]]
    html = typeset.html_table([TEXT, NUMBER], rows, "none")
    assert re.findall(r"<th class=[^>]*rowspan=\"(\d)\">(\w)</th>", html) == [("2", "a"), ("1", "b")]
    assert html.count("<td") == 3


def test_equal_cells_of_different_sections_stay_apart():
    section = Column("machine", lambda row: row["machine"], section=True)
    html = typeset.html_table([section, TEXT], [["here", "a"], ["there", "a"]], "none")
    assert re.findall(r'<span class="text">(\w+)</span>', html) == ["here", "there"]
    assert html.count(">a</th>") == 2


def test_a_table_without_rows_says_so():
    assert "Nothing yet." in typeset.html_table([TEXT, NUMBER], [], "Nothing yet.")


def test_text_cannot_become_markup():
    assert "<b>" not in typeset.html_table([TEXT], [["<b>"]], "none")
    assert typeset.markdown([TEXT], [["a|b"]]).endswith("| a\\|b |\n")


def test_what_is_said_of_a_figure_and_its_ratio_stands_below_them():
    cells = ["5 (2\u00d7) at 64", "5 (2\u00d7), 1 thread of 16", "5 (2\u00d7)", "5 at 64", "113 (99 \u2013 146)"]
    found = typeset.html_table([TEXT, NUMBER], [["a", cell] for cell in cells], "none")
    assert '5 (2\u00d7)<span class="interval"> at 64</span>' in found
    assert '5 (2\u00d7),<span class="interval"> 1 thread of 16</span>' in found
    assert found.count("<span") == 2


def test_backticks_in_a_cell_are_code():
    assert ">by <code>a=&quot;b&quot;</code><" in typeset.html_table([TEXT], [['by `a="b"`']], "none")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("graph at 4194304 environments (H200)", "graph at 4,194,304 environments (H200)"),
        ("at 8192, of 0.0031 and 128", "at 8,192, of 0.0031 and 128"),
        ("1,048,576 of a1234", "1,048,576 of a1234"),
    ],
)
def test_whole_numbers_in_words_are_grouped(words, expected):
    assert typeset.grouped(words) == expected


def test_markdown_aligns_numbers_to_the_right():
    assert typeset.markdown([TEXT, NUMBER], [["a", "1"]]) == "| name | size |\n| --- | ---: |\n| a | 1 |\n"


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        ("measured here", "here"),
        ("measured here, code changed since", "changed"),
        ("recorded on big, 2026-01-02", "recorded"),
        ("recorded, code changed since (big, 2026-01-02)", "changed"),
        ("not measured", "none"),
    ],
)
def test_each_status_has_a_mark_of_its_own(status, mark):
    assert typeset.mark(status) == mark


def test_a_column_that_is_missing_is_an_empty_cell():
    assert NUMBER.cell(typeset.Row(name="a")) == DASH


def test_a_column_of_which_nothing_is_known_is_left_out():
    columns = [typeset.text("name", "name"), typeset.number("rate", "rate", str), typeset.number("GPU", "gpu", str)]
    table = typeset.Table("rates", "", tuple(columns), lambda datasets: datasets)
    frame = pd.DataFrame({"name": ["a", "b"], "rate": [1.0, float("nan")], "gpu": [float("nan")] * 2})
    seen, rows = table.seen(frame)
    assert [column.heading for column in seen] == ["name", "rate"]
    assert rows == [["a", "1.0"], ["b", typeset.DASH]]
    assert [column.heading for column in table.seen(frame[:0])[0]] == ["name", "rate", "GPU"]
