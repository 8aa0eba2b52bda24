import subprocess
import sys
from math import inf, nan

import numpy as np
import pandas as pd
import pytest

from lockstep.experiments import ROOT, curves
from lockstep.experiments.curves import interquartile_mean, quartiles, stratified_interval, wilson

COLUMNS = ["part", *curves.RUN, "seed", "block", "env_steps", "wall_s", "cpu_s", "rollout_s", "advantage_s"]
COLUMNS += ["update_s", "score", "score_sampled", "solved", "parameters", "status", "reason"]
SAME = {"environment": "cartpole", "agent": "lockstep", "device": "cpu", "num_envs": 64, "status": "measured"}


def table(*rows):
    return pd.DataFrame([SAME | row for row in rows], columns=COLUMNS)


# ---- Statistics ----


def test_the_interquartile_mean_is_that_of_the_middle_half():
    """The dataset of Wikipedia's "Interquartile mean": 6.5. Of five scores the lowest and the highest go."""
    assert interquartile_mean([5, 8, 4, 38, 8, 6, 9, 7, 7, 3, 1, 6]) == 6.5
    assert interquartile_mean([0, 500, 498, 100, 499]) == pytest.approx((100 + 498 + 499) / 3)
    assert interquartile_mean([3.0]) == 3
    assert np.array_equal(interquartile_mean([[1, 2, 3, 99], [4, 4, 5, 9]]), [2.5, 4.5])


def test_the_bootstrap_draws_within_each_task():
    """Two tasks that never vary leave nothing to draw: with seeds drawn over all tasks the mean would vary."""
    assert stratified_interval([[0, 0, 0, 0], [10, 10, 10, 10]]) == (5, 5, 5)


def test_the_bootstrap_interval_is_that_of_the_listed_resamples():
    """Of two scores 0 and 1 a draw is 0, 1/2 or 1 with 1/4, 1/2 and 1/4."""
    assert stratified_interval([[0, 1]]) == (0.5, 0, 1)
    # Of 0, 0, 0, 1 a draw's middle two hold no one with (3/4)^4 + 4 (1/4) (3/4)^3 = .738, one with .211, two with .051.
    assert stratified_interval([[0, 0, 0, 1]]) == (0, 0, 1)


def test_the_bootstrap_covers_a_known_mean():
    rng = np.random.default_rng(0)
    intervals = [stratified_interval([rng.normal(size=20)], draws=400) for _ in range(200)]
    assert 0.85 < np.mean([low <= 0 <= high for _, low, high in intervals]) < 0.99


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval_is_the_published_one(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((successes / trials, low, high), abs=5e-5)
    mirrored = wilson(trials - successes, trials)
    assert mirrored == pytest.approx((1 - successes / trials, 1 - high, 1 - low), abs=5e-5)


def test_wilson_s_bounds_stay_within_0_and_1():
    assert wilson(0, 20).low == 0
    assert wilson(20, 20).high == 1


def test_quartiles_lie_between_values():
    assert quartiles([4, 1, 3, 2]) == (1.75, 2.5, 3.25)
    assert quartiles([7]) == (7, 7, 7)


def test_what_never_ends_moves_the_quartiles_up():
    assert quartiles([1, 2, 3, inf]) == (1.75, 2.5, inf)
    assert quartiles([1, inf, inf]) == (inf, inf, inf)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: stratified_interval([[1.0], []]), "every task needs finite scores"),
        (lambda: stratified_interval([[nan]]), "every task needs finite scores"),
        (lambda: wilson(3, 2), "k \\(3\\) must not be greater than n \\(2\\)"),
        (lambda: wilson(0, 0), "n must be an integer not less than 1"),
        (lambda: quartiles([nan, 1]), "quartiles need numbers"),
    ],
)
def test_what_has_no_value_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


# ---- Summaries, of rows made by hand ----


def test_a_curve_is_summarised_point_by_point():
    scores = {1000: [10, 20, 30, 40, 500], 2000: [500] * 5}
    rows = [
        {"part": "curve", "seed": seed, "env_steps": steps, "wall_s": steps / 1000 + seed, "score": score}
        for steps, of_seeds in scores.items()
        for seed, score in enumerate(of_seeds)
    ]
    found = curves.curve_summary(table(*rows, {"part": "final", "score": 0}))
    assert found["env_steps"].tolist() == [1000, 2000]
    assert found["score"].tolist() == [30, 500]
    assert found["wall_s"].tolist() == [3, 4]
    assert found["seeds"].tolist() == [5, 5]
    first, second = found.to_dict("records")
    assert 10 <= first["low"] < 30 < first["high"] <= 500
    assert (second["low"], second["high"]) == (500, 500)


def test_final_scores_are_summarised_by_agent():
    rows = [{"part": "final", "seed": seed, "score": 500, "score_sampled": 480 + seed} for seed in range(4)]
    rows += [
        {"part": "final", "agent": "random", "score": 22},
        {"part": "final", "agent": "sb3", "status": "not measured"},
    ]
    trained, random = curves.final_summary(table(*rows)).to_dict("records")
    assert (trained["score"], trained["score_sampled"], trained["seeds"]) == (500, 481.5, 4)
    assert (random["agent"], random["score"]) == ("random", 22) and np.isnan(random["score_sampled"])


def test_a_seed_that_fails_takes_for_ever():
    rows = [
        {"part": "solve", "variant": "warm", "seed": seed, "env_steps": 1000 * (seed + 1), "wall_s": seed + 1.0}
        | {"score": 500 if seed else 9, "solved": int(seed > 0)}
        for seed in range(4)
    ]
    (found,) = curves.solve_summary(table(*rows)).to_dict("records")
    assert (found["seeds"], found["solved"], found["share"]) == (4, 3, 0.75)
    assert (found["share_low"], found["share_high"]) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert (found["env_steps_lower"], found["env_steps_median"], found["env_steps_upper"]) == (2750, 3500, inf)
    assert found["wall_s_median"] == 3.5


def test_a_rate_is_the_median_over_blocks_and_phases_are_shares_of_the_time():
    phases = {"rollout": 0.2, "advantage": 0.1, "update": 0.6}
    rows = [
        {"part": "rate", "block": block, "env_steps": 1000, "wall_s": 1 / (block + 1), "cpu_s": 2 / (block + 1)}
        | {f"{phase}_s": share / (block + 1) for phase, share in phases.items()}
        | {"parameters": 9155}
        for block in range(6)
    ]
    (found,) = curves.rate_summary(table(*rows)).to_dict("records")
    assert (found["rate"], found["rate_low"], found["rate_high"]) == pytest.approx((3500, 1000, 6000))
    assert found["cpu_rate"] == pytest.approx(1750)
    assert [found[phase] for phase in curves.PHASES] == pytest.approx([0.2, 0.1, 0.6])
    assert (found["blocks"], found["parameters"]) == (6, 9155)


def test_blocks_and_scores_of_one_part_are_told_apart():
    rows = [{"part": "scaling", "block": 0, "env_steps": 10, "wall_s": 1.0, "cpu_s": 1.0}]
    rows += [{"part": "scaling", "variant": "equal steps", "seed": 0, "env_steps": 100, "wall_s": 9.0, "score": 4}]
    frame = table(*rows)
    assert curves.rate_summary(frame, "scaling")["rate"].tolist() == [10]
    assert curves.final_summary(frame, "scaling")["score"].tolist() == [4]


def test_what_was_not_measured_is_listed_with_its_reason():
    row = {"part": "rate", "agent": "rejax", "status": "not measured", "reason": "not installed"}
    (found,) = curves.missing(table(row, row, {"part": "rate"}))
    assert (found["part"], found["agent"], found["reason"]) == ("rate", "rejax", "not installed")
    assert curves.rate_summary(table(row)).empty


def test_the_summaries_need_no_torch():
    program = "import sys\nsys.modules['torch'] = None\nimport lockstep.experiments.curves\n"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
