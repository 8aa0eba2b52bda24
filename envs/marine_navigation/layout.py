"""Layout of the state that all forms share (README.md, 5)."""

import numpy as np

from .params import MOST, Params

INT32 = 2**31 - 1
HEADING = 100.0  # rad, up to which a heading's sine is exact


def state_shapes(params: Params, robots: int, cores: int, obstacles: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of each field, of an environment that holds so many of each; what an episode lacks is 0.

    Positions in m, velocities in m/s, angles in rad, all in world axes.
    """
    A, real, whole = robots, np.float64, np.int32
    if params.version == "thruster":
        motion = {
            "water_velocity": ((A, 2), real),  # w, of the boat through the water
            "yaw_rate": ((A,), real),  # r, rad/s
            "reported_yaw_rate": ((A,), real),  # that robots observe
            "thrust": ((A, 2), real),  # T_L, T_R in N
        }
    else:
        motion = {"speed": ((A,), real)}  # s, through the water
    return {
        "pose": ((A, 3), real),  # x, y, heading
        **motion,
        "ground_velocity": ((A, 2), real),  # that robots observe
        "goal": ((A, 2), real),
        "core": ((cores, 4), real),  # x, y, s (1 clockwise, -1), Γ/2π
        "obstacle": ((obstacles, 3), real),  # x, y, radius
        "counts": ((3,), whole),  # robots, cores, obstacles of the episode
        "asked": ((), whole),  # robots asked for
        "blind": ((), whole),  # of these, the last, that see no robot
        "noise_id": ((A,), whole),
        "returns": ((A,), real),
        "steps": ((A,), whole),  # while active
        "energy": ((A,), real),  # N s, or control effort
        "reached": ((A,), whole),  # 0 or 1, as the next two
        "hit_robot": ((A,), whole),
        "hit_obstacle": ((A,), whole),
    }


def limits(params: Params, robots: int, cores: int, obstacles: int) -> dict[str, tuple]:
    """Least and largest value of each field that has limits, of an environment that holds so many of each; lists where
    they differ along the field's last axis."""
    if params.version == "thruster":
        motion = {"yaw_rate": (-params.most_yaw_rate, params.most_yaw_rate)}
        motion |= {"thrust": (rounded(params.thrust_low), rounded(params.thrust_high))}
    else:
        motion = {"speed": (0.0, rounded(params.top_speed))}
    return motion | {
        "pose": ([-np.inf, -np.inf, -HEADING], [np.inf, np.inf, HEADING]),
        "core": ([-np.inf, -np.inf, -1.0, -np.inf], [np.inf, np.inf, 1.0, np.inf]),
        "obstacle": ([-np.inf, -np.inf, 0.0], [np.inf, np.inf, np.inf]),
        "counts": (0, [robots, cores, obstacles]),
        "asked": (0, MOST["robots"]),
        "blind": (0, MOST["robots"]),
        "noise_id": (0, 5 * MOST["robots"] - 1),
        "steps": (0, INT32),
        "reached": (0, 1),
        "hit_robot": (0, 1),
        "hit_obstacle": (0, 1),
    }


def rounded(limit: float) -> float:
    """The limit, or what float32 makes of it where that is farther from 0."""
    return max(limit, float(np.float32(limit)), key=abs)
