"""Gaps by the file on observations, against hits."""

import torch

from lockstep import envs
from lockstep.agents.run import observation


def test_a_robot_hits_something_where_no_gap_is_left():
    """Of the kinematic version, which sees exactly; a robot that hits is seen at its place in that step."""
    env = envs.make("marine_navigation", 128, version="kinematic", seed=1)
    parts, hits, misses = observation.parts_of(env), 0, 0
    env.reset()
    for _ in range(80):
        obs, _, _, _, info = env.step(env.random_actions()[0])
        played = info["valid"] & ~info["_final_obs"].unsqueeze(1)  # of an episode that goes on
        gaps, hit = observation.gap(parts, obs[played]), (info["hit_robot"] | info["hit_obstacle"])[played]
        clear = gaps.abs() > 1e-4
        assert torch.equal(gaps[clear] < 0, hit[clear])
        hits, misses = hits + hit[clear].sum(), misses + (gaps[clear] < 1).sum()
    assert hits > 10 and misses > 2 * hits
