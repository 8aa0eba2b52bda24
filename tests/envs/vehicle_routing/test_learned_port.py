"""The learned oracle by its word in a batch: on the batch's device, with the original's answers."""

import pytest
import torch

import lockstep
from lockstep.envs.vehicle_routing import port
from lockstep.envs.vehicle_routing.scenario import city


def test_the_learned_oracle_is_the_default_and_is_answered_where_the_batch_is(monkeypatch):
    monkeypatch.delattr(port, "on_host")
    env = lockstep.make("vehicle_routing", 2, seed=3)
    assert env.oracle == "am"
    env.reset(seed=3)
    originals = [lockstep.make_original("vehicle_routing", seed=3, index=index) for index in range(2)]
    for original in originals:
        original.reset(seed=3)
    for _ in range(5):
        info = env.step(torch.tensor([12, 0], dtype=torch.int32))[-1]
        theirs = [original.step(action)[-1] for original, action in zip(originals, (12, 0), strict=True)]
        for name, named in {"cost_ticks": "cost", "vehicles": "vehicles", "accepted": "accepted"}.items():
            assert info[name].tolist() == [found[named] for found in theirs]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"preset": "original"}, "insertion"),
        ({"scenario": city(seed=2)}, "insertion"),
        ({"scenario": city(seed=2), "max_ride": 250.0}, "greedy"),
    ],
    ids=["the preset, whose weights know whole days alone", "another city", "the longest ride"],
)
@pytest.mark.parametrize("given", [{}, {"oracle": None}], ids=["left out", "None"])
def test_elsewhere_the_default_oracle_is_one_of_the_kernel(options, expected, given):
    assert lockstep.make("vehicle_routing", 1, **options, **given).oracle == expected
    assert lockstep.make_original("vehicle_routing", **options, **given).oracle.name == expected
