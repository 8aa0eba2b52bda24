"""Actions, acceptance, shifts of windows, and what is feasible alone."""

import numpy as np
import pytest

from lockstep.envs.vehicle_routing import windows
from lockstep.envs.vehicle_routing.params import Params

ROW = [3, 6000, 6300, 5, 6200, 6500]


def test_actions_are_the_published_table():
    assert windows.SHIFTS.tolist() == [[p, d] for p in (-30, -20, -10, 0) for d in (0, 10, 20, 30)]
    assert windows.SHIFTS[windows.NO_SHIFT].tolist() == [0, 0]
    allowed = [np.nonzero(row)[0].tolist() for row in windows.ALLOWED]
    assert allowed == [[12, 13, 14, 15], [0, 4, 8, 12], [12], list(range(16))]
    assert windows.TYPES == ("late", "early", "none", "both")


def test_uniform_actions_are_accepted_by_types_as_the_census_has_it():
    kinds = np.repeat(range(4), (8, 13, 6, 3))
    found = windows.acceptable(Params(), kinds, np.zeros((30, 2)))
    assert found.shape == (30, 16) and found.mean() == pytest.approx(0.2875)


def test_thresholds_decide_where_they_are_switched_on():
    p = Params(threshold_acceptance=True)
    every = np.array([[(early, late) for late in range(0, 301, 50)] for early in range(0, 301, 50)])
    found = windows.acceptable(p, None, every)
    assert found.mean() == pytest.approx(16 / 49)
    assert np.nonzero(windows.acceptable(p, 2, [199, 200]))[0].tolist() == [8, 9, 10, 12, 13, 14]
    assert windows.acceptable(p, 2, [0, 0]).sum() == 1


@pytest.mark.parametrize("action", range(16))
def test_a_shift_moves_windows_and_keeps_their_widths(action):
    p, d = windows.SHIFTS[action] * 10
    assert windows.shifted(ROW, windows.SHIFTS[action], Params()).tolist() == [
        3, 6000 + p, 6300 + p, 5, 6200 + d, 6500 + d,
    ]  # fmt: skip


def test_windows_at_the_ends_of_the_day():
    row = [3, 100, 250, 5, 14_000, 14_300]
    assert windows.shifted(row, (-30, 30), Params()).tolist() == [3, 0, 150, 5, 14_100, 14_400]
    published = Params(shrinking_windows=True)
    assert windows.shifted(row, (-30, 30), published).tolist() == [3, 0, 0, 5, 14_300, 14_600]
    assert windows.shifted(row, (-20, 0), published).tolist() == [3, 0, 50, 5, 14_000, 14_300]
    for p in (Params(), published):  # a pre-shift keeps widths in either
        found = windows.preshifted(row, np.array(300), np.array(200), p).tolist()
        assert found == [3, 0, 150, 5, 14_100, 14_400]


def test_a_shift_widens_the_window_of_a_customer():
    row = [3, 100, 250, 3, 100, 250]
    p = Params(mode="vrptw", horizon=26.0)
    assert windows.shifted(row, (-10, 0), p).tolist() == [3, 0, 250, 3, 0, 250]
    assert windows.shifted(row, (-30, 30), p).tolist() == [3, 0, 260, 3, 0, 260]
    published = Params(mode="vrptw", horizon=26.0, shrinking_windows=True)
    assert windows.shifted(row, (-30, 30), published).tolist() == [3, 0, 550, 3, 0, 550]


def test_every_shift_has_each_preshift_and_each_action():
    found = windows.every_shift(np.array([ROW]), Params(), True)
    assert found.shape == (1, 9, 16, 6)
    assert found[0, 5, 3].tolist() == [3, 6000 - 200 - 300, 6300 - 200 - 300, 5, 6200 + 300 + 300, 6500 + 600]
    assert windows.every_shift(np.array([ROW]), Params(), False)[0, 0, 12].tolist() == ROW


def test_lateness_of_a_vehicle_for_one_request():
    travel = np.array([[0, 100, 200], [100, 0, 120], [200, 120, 0]])

    def late(row, service=(0, 0), **single):
        return windows.lateness(row, service, travel, 0, Params(**single)).tolist()

    assert late([1, 50, 130, 2, 150, 230], horizon=43.0) == [100 - 130, 220 - 230, 420 - 430]
    assert late([1, 50, 90, 2, 300, 310], horizon=49.0) == [10, 220 - 310, 500 - 490]
    assert late([1, 50, 130, 2, 150, 219], (30, 7), horizon=42.0) == [-30, 31, 250 + 7 + 200 - 420]
    # A ride of 15 min at most: the pickup opens at 300 - 150, and the drop-off is due 150 after that.
    assert late([1, 50, 160, 2, 300, 400], max_ride=15.0, horizon=50.0) == [-10, 270 - 300, 0]
    assert late([1, 50, 130, 1, 50, 130], (30, 9), mode="vrptw", horizon=22.0) == [-30, 230 - 220]
