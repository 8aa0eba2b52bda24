"""Refusals of Params, by name, value and what is allowed; and lengths of vectors added up by hand."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, queue_shapes, state_shapes


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("vehicles", 2.5, "must be an integer"),
        ("vehicles", "70", "must be a number"),
        ("vehicles", None, "must be a number"),
        ("vehicles", True, "must be a number"),
        ("vehicles", 1, "must be at least 2"),
        ("vehicles", 40_000, "must be at most 32767"),
        ("slots", 1, "must be at least 2"),
        ("edges", 0, "must be at least 1"),
        ("server_choices", 0, "must be at least 1"),
        ("tasks", -1, "must be at least 0"),
        ("cap_cloud", -1, "must be at least 0"),
        ("size_seed", 2**32, "must be at most 4294967295"),
        ("components", 0, "must be at least 1"),
        ("components", 51, "must be at most 50, the least of slots and links"),
        ("clients", 70, "must leave servers of vehicles=70"),
        ("servers", 71, "must leave clients of vehicles=70"),
        ("draw", "published ", "must be one of 'philox', 'published'"),
        ("noise_dbm", np.nan, "must be a finite number"),
        ("noise_dbm", -1000.0, "must be at least -300.0"),
        ("arrival_high", 1e9, "must be at most 500.0"),
        ("types", 10**8, "must be at most 10000"),
        ("type_slots", 10**8, "must be at most 10000"),
        ("cap_cloud", 10**7, "must be at most 65536"),
        ("edges", 2**15, "must be at most 4096"),
        ("size_high_mb", 1e30, "must be at most 100000.0"),
        ("slots", 10**6, "must be at most 10000"),
        ("v2v_range_m", np.inf, "must be a finite number"),
        ("penalty_weight", 0.0, "must be at least 1e-09"),
        ("cloud_ghz", -1.0, "must be at least 1e-09"),
        ("size_low_mb", 6.0, "must not exceed size_high_mb=5.0"),
        ("arrival_low", 2.0, "must not exceed arrival_high=1.0"),
        ("index_clash", 1, "must be True or False"),
    ],
)
def test_a_value_without_meaning_is_refused(field, value, allowed):
    with pytest.raises(ValueError, match="^" + re.escape(f"{field}={value!r} {allowed}") + "$"):
        Params(**{field: value})


def test_clients_and_servers_make_up_the_vehicles():
    assert Params(clients=40).servers == 30 and Params(servers=40).clients == 30
    with pytest.raises(ValueError, match="clients=40 and servers=40 must add up to vehicles=70"):
        Params(clients=40, servers=40)
    with pytest.raises(ValueError, match="servers=0 must be at least 1: size_seed=264 draws none of vehicles=2"):
        Params(vehicles=2, components=1)
    assert Params(vehicles=2, clients=1, components=1).servers == 1


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"slots": 10_000, "vehicles": 30_000}, "slots=10000 x vehicles=30000 x type_slots=10 is 3000000000, must"),
        ({"vehicles": 30_000, "type_slots": 100}, "vehicles=30000 x type_slots=100 is 3000000, must be at most 524288"),
        ({"tasks": 2**16}, "caps 3, 15, 34 and 69 make actions of 2883584 numbers, must be at most 524288"),
    ],
)
def test_sizes_that_are_too_much_together_are_refused_before_anything_is_drawn(sizes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Params(**sizes)


def test_numbers_of_numpy_become_those_of_python():
    params = Params(slots=np.int64(50), vehicles=70.0, penalty_weight=np.float32(2), index_clash=np.True_)
    assert params == Params(penalty_weight=2.0, index_clash=True)
    kinds = [type(value) for value in (params.slots, params.vehicles, params.penalty_weight, params.index_clash)]
    assert kinds == [int, int, float, bool]


def test_presets_set_every_switch_or_none():
    assert len(SWITCHES) == 26
    assert all(getattr(Params(**PRESETS["original"]), name) for name in SWITCHES)
    assert not any(getattr(Params(**PRESETS["physical"]), name) for name in SWITCHES)


def test_a_state_holds_so_many_numbers():
    """Queues of 44 clients, 26 servers and 9 edges, routed or pooled; what the switches add."""
    params = Params()
    routed, pooled = 44 + 2 * 26 + 9 * 10 + 9 * 9 + 9 + 9 + 1, 44 + 2 * 26 + 3 * 9 + 2

    def length(of: Params) -> int:
        return sum(math.prod(shape) for shape in state_shapes(of).values())

    assert length(params) == routed + 44
    assert length(replace(params, slot_tandem=True)) == pooled + 44
    backlogs, costs, drifts = pooled, 3 * 44 + 26 + 3 * 9 + 1, 2 * (2 * 44 + 26 + 9 + 1)
    everything = pooled + 44 + (44 + 26 + 9 + 1) + backlogs + costs + drifts
    assert length(Params(**PRESETS["original"])) == everything
    assert list(state_shapes(params)) == [*queue_shapes(params), "delay"]


def test_the_noise_power_of_minus_90_dbm_is_a_picowatt():
    assert Params().noise_watt == pytest.approx(1e-12, rel=1e-12)
