"""Rules, break-even and memory of crypto trading, from rows written by hand."""

import math

import pytest

from lockstep import paper
from lockstep.experiments.crypto_trading import baselines
from lockstep.paper import figures, tables
from lockstep.paper.crypto_trading import quantities, summaries
from lockstep.paper.typeset import DASH, MINUS, SPACE
from tests.paper import handwritten
from tests.paper.reading import find, seen

NAME = "crypto_trading"


def episodes(rule, gains, limit=0, market="planted signal"):
    """Episodes of a week, a gain for each seed."""
    row = {"environment": NAME, "level": "episode", "set": "small", "market": market, "hold_limit": limit, "rule": rule}
    row |= {"bars": 1999, "growth": 0.25, "sharpe": 20.0, "holder_sharpe": 4.0, "drawdown": 0.05, "turnover": 240.0}
    return [row | {"fees": 0.016, "invested": 0.5, "seed": seed, "gain": gain} for seed, gain in enumerate(gains)]


def curve(rule, last):
    row = {"environment": NAME, "level": "curve", "set": "small", "market": "planted signal", "hold_limit": 0}
    row |= {"rule": rule, "benchmark": 1e6}
    points = ((0, 1.0), (1999, last))
    return [row | {"bar": t, "value": 1e6 * v, "over": v, "over_low": v - 0.1, "over_high": v + 0.1} for t, v in points]


PLAYED = [
    *episodes("hold", [0.0] * 5),
    *episodes("reference", [0.1, 0.1, 0.2, 0.3, 0.3]),
    *curve("hold", 1.0),
    *curve("reference", 1.25),
    *episodes("reference", [-0.0001, -0.0003], limit=48),
]


def size(rung, rate, num_envs=1, observe="whole", **columns):
    row = {"environment": NAME, "rung": rung, "device": "cpu", "preset": "clean", "lookback": 1, "observe": observe}
    row |= {"num_envs": num_envs, "threads": 1, "steps": rate, "wall_s": 1.0, "cpu_s": 1.0, "status": "measured"}
    return [row | columns | {"block": block} for block in range(handwritten.BLOCKS)]


SIZES = [
    *size("original", 1000),
    *[row for B, rate in ((1, 2000), (12, 900), (64, 5000)) for row in size("port-cpu", rate, B, bytes_per_env=1041)],
    *[row for B, rate in ((1, 1100), (64, 4000)) for row in size("port-cpu", rate, B, "index", bytes_per_env=489)],
    *size("port-cpu-fused", 1000, 64, bytes_per_env=1041),
]
RATES = [
    *handwritten.rates("original", 100, 1),
    *handwritten.rates("original-all-cores", 200, 1, threads=2),
    *handwritten.rates("port-cpu", 50, 1),
    *handwritten.rates("port-cpu", 150, 12),
    *handwritten.rates("port-cpu", 900, 64),
]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("crypto")
    rates = [row | {"environment": NAME} for row in RATES]
    for experiment, rows in (("baselines", PLAYED), ("scaling", SIZES), ("throughput", rates)):
        handwritten.write(root, None, experiment, rows, handwritten.HERE, environment=NAME)
    return paper.load(root)


def test_rows_by_hand_have_the_columns_of_the_experiment():
    assert handwritten.COLUMNS["baselines"].split() == baselines.COLUMNS


def test_every_rule_has_a_look():
    from lockstep.envs.crypto_trading.policies import NAMES

    assert {*summaries.RULES} == {*NAMES}
    assert summaries.look("buy_low")[0] == "buy low"


def test_means_of_rules(datasets):
    rows = {(row["rule"], row["forced trim"]): row for row in seen("crypto_baselines", datasets)}
    reference = rows["reference, sees the planted sign", "never"]
    assert reference["gain over the holder"].startswith("0.200 [0.1")
    assert (reference["seeds"], reference["ln(V/C)"], reference["Sharpe ratio"]) == ("5", "0.250", "20.0")
    assert (reference["drawdown"], reference["turnover"], reference["fees"]) == (f"5.0{SPACE}%", "240", f"1.6{SPACE}%")
    assert rows["hold", "never"]["gain over the holder"] == "0.000 [0.000, 0.000]"
    trimmed = rows["reference, sees the planted sign", "after 48 bars"]
    assert trimmed["gain over the holder"] == "0.000"  # of two seeds, without an interval


@pytest.mark.parametrize(("value", "shown"), [(0.1984, "0.198"), (-1.56, f"{MINUS}1.560"), (-0.0002, "0.000")])
def test_gains_in_words(value, shown):
    assert summaries.logarithm(value) == shown


def test_break_even_by_hand(datasets):
    """At 12 environments the port is slower again, so that it is faster from 64 on; an equal rate is not faster."""

    def even(select, against):
        return [found.shown for found in find(datasets, "break_even", against, environment=NAME, **select)]

    scaling, original = {"experiment": "scaling", "lookback": 1}, {"rung": "original", "observe": "whole"}
    assert even(scaling | {"rung": "port-cpu", "observe": "whole"}, original) == ["64"]
    assert even(scaling | {"rung": "port-cpu", "observe": "index"}, original) == ["1"]
    assert even(scaling | {"rung": "port-cpu-fused"}, original) == ["more than measured"]
    assert even(scaling | {"rung": "port-cuda-graph"}, original) == []
    assert even({"rung": "port-cpu"}, {"rung": "original", "num_envs": 1}) == ["12"]
    assert even({"rung": "port-cpu"}, {"rung": "original-all-cores"}) == ["64"]
    assert quantities.environments(math.inf) == "more than measured"


def test_memory_by_hand(datasets):
    select = {"experiment": "scaling", "environment": NAME, "rung": "port-cpu"}
    assert find(datasets, "environment_bytes", **select, observe="whole")[0].shown == "1,041 bytes"
    assert find(datasets, "environment_bytes", **select, observe="index")[0].value == 489


def test_accounts_are_drawn_and_their_share_of_the_holders(datasets):
    above, below = figures.draw("crypto_baselines", datasets).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in above.lines}
    reference = "reference, sees the planted sign"
    assert lines[reference] == [[0, 1e6], [1999, 1.25e6]]
    assert lines["fair holder of equal weights"] == [[0, 1e6], [1999, 1e6]]
    over = {line.get_label(): line.get_ydata()[-1] for line in below.lines}
    assert over == {"hold": 1.0, reference: 1.25}
    assert len(below.collections) == 2 and below.get_title(loc="left") == "planted signal: over the holder"


def test_sizes_are_drawn_with_and_without_features(datasets):
    lanes = figures.draw("crypto_trading_scaling", datasets).axes[0]
    lines = {line.get_label(): line.get_xydata().tolist() for line in lanes.lines}
    index = [[1, 1100], [64, 4000]]
    assert lines == {"1 lookback: whole": [[1, 2000], [12, 900], [64, 5000]], "1 lookback: index": index}


def test_claims_are_answered_by_what_was_measured(datasets):
    rows = {row["question"]: row["this work"] for row in seen("crypto_trading_claims", datasets)}
    assert rows["one more environment, port"] == "1,041 bytes"
    assert rows["environments from which on the port on the CPU is faster than the original on one core"] == "12"
    assert rows["12 environments, port on the CPU, over one environment of it"] == "3.00\N{MULTIPLICATION SIGN}"
    assert rows["training rate of an agent"] == DASH


def test_nothing_measured_is_said(nothing):
    for name in ("crypto_baselines", "crypto_ladder", "crypto_trading_scaling"):
        (panel,) = figures.draw(name, nothing).axes
        assert [text.get_text() for text in panel.texts] == ["not measured yet"]
    assert {row["status"] for row in seen("crypto_trading_claims", nothing)} == {"not measured"}
    assert tables.frame("crypto_trading_environments", nothing).empty


def test_the_warning_stands_with_figure_and_table():
    for caption in (figures.every()["crypto_baselines"].caption, tables.every()["crypto_baselines"].caption):
        assert "none of it is advice" in caption
