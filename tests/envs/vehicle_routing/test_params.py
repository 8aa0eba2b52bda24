"""Constants, presets and refusals of Params."""

import re

import numpy as np
import pytest

from lockstep.envs.vehicle_routing.params import PRESETS, SWITCHES, Params, make_params


def test_constants_are_the_published_ones():
    p = Params()
    assert (p.requests, p.nodes, p.capacity, p.horizon_ticks) == (30, 61, 8, 14_400)
    assert (p.fleet, p.fleet_size, p.extra_vehicle_ticks, p.max_ride_ticks) == ("unlimited", 5, 500, 0)
    assert (p.shift_penalty, p.failure_reward, p.preshift, p.reward) == (0.02, -5000, True, "growth")
    assert (p.walk_length, Params(lookahead_mask=True).walk_length) == (91, 122)
    assert Params(mode="vrptw").nodes == 31


def test_original_sets_every_switch_but_the_thirteenth():
    assert len(SWITCHES) == 21 and SWITCHES[12] == "row_minus_one"
    numbered = {1: "flat_gae", 4: "one_obligation", 7: "unseeded_instances", 10: "threshold_acceptance"}
    numbered |= {12: "stuck_after_failure", 16: "raw_observation", 17: "lookahead_mask", 21: "full_size_only"}
    assert all(SWITCHES[number - 1] == name for number, name in numbered.items())
    published = make_params("original")
    assert {name for name in SWITCHES if getattr(published, name)} == set(SWITCHES) - {"row_minus_one"}
    assert published.shift_penalty == 0.2 and set(PRESETS) == {"corrected", "original"}
    assert make_params() == Params() and not any(getattr(Params(), name) for name in SWITCHES)
    assert make_params("original", early_end=False).early_end is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "orignal"}, "preset='orignal' is unknown; did you mean 'original'?"),
        ({"lookahed_mask": True}, "no parameter or option 'lookahed_mask'; did you mean 'lookahead_mask'?"),
        ({"lookahead_mask": 1}, "lookahead_mask=1 must be True or False"),
        ({"requests": 0}, "requests=0 must be at least 1"),
        ({"requests": 1001}, "requests=1001 must be at most 1000"),
        ({"requests": 2.5}, "requests=2.5 must be an integer"),
        ({"capacity": 0}, "capacity=0 must be at least 1"),
        ({"fleet_size": 0}, "fleet_size=0 must be at least 1"),
        ({"capacity": 2**31}, "capacity=2147483648 must be at most 1000000"),
        ({"fleet_size": 2**31}, "fleet_size=2147483648 must be at most 1000000"),
        ({"fleet": "hart"}, "fleet='hart' must be one of 'unlimited', 'soft', 'hard'"),
        ({"mode": "vrp"}, "mode='vrp' must be one of 'darp', 'vrptw'"),
        ({"reward": "twins"}, "reward='twins' must be one of 'growth', 'twin', 'percent'"),
        ({"horizon": 0.0}, "horizon=0.0 must be positive"),
        ({"horizon": 100.05}, "horizon=100.05 must be a multiple of 0.1 min"),
        ({"horizon": float("inf")}, "horizon=inf must be a finite number"),
        ({"horizon": 2e6}, "horizon=2000000.0 must be at most 1000000"),
        ({"max_ride": -1.0}, "max_ride=-1.0 must be at least 0"),
        ({"extra_vehicle": -5}, "extra_vehicle=-5.0 must be at least 0"),
        ({"shift_penalty": -0.1}, "shift_penalty=-0.1 must be at least 0"),
        ({"shift_penalty": "high"}, "shift_penalty='high' must be a number"),
    ],
)
def test_a_value_without_meaning_is_refused(options, said):
    with pytest.raises(ValueError, match="^.*" + re.escape(said)):
        make_params(**options)


def test_numbers_of_numpy_become_those_of_python():
    found = Params(requests=np.int64(3), horizon=np.float32(600), early_end=np.True_)
    assert [type(value) for value in (found.requests, found.horizon, found.early_end)] == [int, float, bool]
