"""Drawing of scenarios: proposals and the rules that accept them, one after the other (README.md, 4.1 and 4.2).

A stage ends when it is full or after 500 proposals, so that an episode may have fewer of something than was asked for.
"""

import math

import numpy as np

from ...noise import philox
from .. import streams
from ..params import OBSTACLE_MARGIN, PROPOSALS, START_MARGIN, Params, Setting
from ..streams import between, unit
from .scenario import Scenario

SAME_TURN_SPEED = 1.0  # m/s: Γ_i + Γ_j over 2π times the distance of two cores that turn alike, at most
OPPOSITE = 0.8  # of the weaker core's edge speed, that the stronger one may reach there
FIXED = ((5.0, 5.0), (45.0, 45.0))  # start and goal of the sonar's evaluation


class Philox:
    """Proposals of an episode by the words of its streams."""

    def __init__(self, params: Params, seed: int, environment: int, episode: int):
        self.params = params
        self.words = lambda step, stream: philox((environment, episode, step, stream), seed)
        self.numbers = {}

    def _proposal(self, stream: int, n: int) -> list[float]:
        """U[0, 1) of the four words of proposal n, all proposals of a stream drawn at once."""
        if stream not in self.numbers:
            self.numbers[stream] = unit(self.words(np.arange(PROPOSALS), stream)).T.tolist()
        return self.numbers[stream][n]

    def robot(self, n: int) -> tuple[float, float, float, float]:
        """Start x, y and goal x, y."""
        low, high = START_MARGIN, self.params.width - START_MARGIN
        return tuple(between(low, high, u) for u in self._proposal(streams.ROBOT_PROPOSALS, n))

    def motion(self, i: int) -> tuple[float, float]:
        """Heading and own speed of robot i."""
        heading, speed = unit(self.words(i, streams.ROBOTS)[:2]).tolist()
        own = 0.0 if self.params.version == "thruster" else between(0.0, self.params.top_speed, speed)
        return between(0.0, 2 * math.pi, heading), own

    def core(self, n: int) -> tuple[float, float, bool, float]:
        """Centre, true if clockwise, edge speed."""
        p, (x, y, flag, speed) = self.params, self._proposal(streams.CORE_PROPOSALS, n)
        return p.width * x, p.width * y, flag >= 0.5, between(p.edge_speed_low, p.edge_speed_high, speed)

    def obstacle(self, n: int) -> tuple[float, float, float]:
        """Centre, radius."""
        p, (x, y, radius, _) = self.params, self._proposal(streams.OBSTACLE_PROPOSALS, n)
        low, high = OBSTACLE_MARGIN, p.width - OBSTACLE_MARGIN
        return between(low, high, x), between(low, high, y), between(p.obstacle_low, p.obstacle_high, radius)


def draw(params: Params, setting: Setting, proposals, fixed: bool = False) -> Scenario:
    """The scenario that the rules make of proposals.

    Args:
        setting: the numbers asked for.
        proposals: `Philox`, or another class with its methods.
        fixed: the sonar's evaluation, whose start and goal are given.
    """
    robots, motions = [], []
    if params.version != "sonar":
        robots, motions = place_robots(params, setting, proposals)
    elif fixed:
        robots = [(*FIXED[0], *FIXED[1])]
    else:
        robots = [farthest(setting.min_goal_distance, proposals)]
    cores = place_cores(params, setting.cores, robots, proposals)
    obstacles = place_obstacles(params, setting.obstacles, robots, cores, proposals)
    if params.version == "sonar":
        motions = [proposals.motion(0)]
    placed, cores, obstacles = (
        np.array(rows, dtype=np.float64).reshape(-1, n) for rows, n in ((robots, 4), (cores, 4), (obstacles, 3))
    )
    heading, speed = np.array(motions, dtype=np.float64).reshape(-1, 2).T
    return Scenario(
        version=params.version, start=placed[:, :2], goal=placed[:, 2:], heading=heading, speed=speed,
        core_centre=cores[:, :2], clockwise=cores[:, 2] > 0, edge_speed=cores[:, 3],
        obstacle_centre=obstacles[:, :2], radius=obstacles[:, 2], asked=setting.robots,
    )  # fmt: skip


def distance(ax: float, ay: float, bx: float, by: float) -> float:
    dx, dy = ax - bx, ay - by
    return math.sqrt(dx * dx + dy * dy)


def place_robots(params: Params, setting: Setting, proposals) -> tuple[list, list]:
    """Robots: far from their goals, starts clear of starts and goals of goals."""
    robots, motions = [], []
    for n in range(PROPOSALS):
        if len(robots) == setting.robots:
            break
        sx, sy, gx, gy = proposed = proposals.robot(n)
        if distance(gx, gy, sx, sy) < setting.min_goal_distance:
            continue
        if all(
            distance(x, y, sx, sy) > params.clear and distance(u, v, gx, gy) > params.clear for x, y, u, v in robots
        ):
            motions.append(proposals.motion(len(robots)))
            robots.append(proposed)
    return robots, motions


def farthest(least: float, proposals) -> tuple[float, float, float, float]:
    """The sonar's start and goal: the pair farthest apart so far, as soon as that is over D_min."""
    kept, far = None, -1.0
    for n in range(PROPOSALS):
        sx, sy, gx, gy = proposed = proposals.robot(n)
        apart = distance(gx, gy, sx, sy)
        if apart > far:
            kept, far = proposed, apart
        if far > least:
            break
    return kept


def place_cores(params: Params, count: int, robots: list, proposals) -> list:
    """Cores within the map, clear of starts and goals, whose currents leave one another's alone."""
    cores, r = [], params.core_radius
    for n in range(PROPOSALS):
        if len(cores) == count:
            break
        x, y, clockwise, speed = proposed = proposals.core(n)
        inside = x - r >= 0.0 and x + r <= params.width and y - r >= 0.0 and y + r <= params.width
        if inside and clear_of_robots(x, y, r + params.clear, robots):
            strength = r * speed
            if all(apart(params, x, y, clockwise, strength, other) for other in cores):
                cores.append(proposed)
    return cores


def apart(params: Params, x: float, y: float, clockwise: bool, strength: float, other) -> bool:
    """True if a core may stand beside another one; strengths are Γ/2π."""
    r, theirs = params.core_radius, params.core_radius * other[3]
    d = distance(x, y, other[0], other[1])
    if clockwise == other[2]:
        return d >= (strength + theirs) / SAME_TURN_SPEED
    if d <= 2 * r:
        return params.opposite_cores_overlap and d < 2 * r
    return max(strength, theirs) <= (OPPOSITE * min(strength, theirs) / r) * (d - 2 * r)


def place_obstacles(params: Params, count: int, robots: list, cores: list, proposals) -> list:
    """Obstacles within the map, clear of starts and goals, that touch neither a core nor one another."""
    obstacles, W = [], params.width
    for n in range(PROPOSALS):
        if len(obstacles) == count:
            break
        x, y, r = proposed = proposals.obstacle(n)
        inside = x - r >= 0.0 and x + r <= W and y - r >= 0.0 and y + r <= W
        if (
            inside
            and clear_of_robots(x, y, r + params.clear, robots)
            and all(distance(x, y, core[0], core[1]) > params.core_radius + r for core in cores)
            and all(distance(x, y, ox, oy) > radius + r for ox, oy, radius in obstacles)
        ):
            obstacles.append(proposed)
    return obstacles


def clear_of_robots(x: float, y: float, least: float, robots: list) -> bool:
    """True if every start and goal is at least so far away."""
    return all(distance(x, y, sx, sy) >= least and distance(x, y, gx, gy) >= least for sx, sy, gx, gy in robots)


def philox_scenario(params: Params, setting: Setting, seed: int, environment: int, episode: int) -> Scenario:
    """The scenario of an episode of an environment: the same for any batch, order and device."""
    return draw(params, setting, Philox(params, seed, environment, episode))


def placed(drawn: Scenario, setting: Setting, environment: int, episode: int) -> Scenario:
    """The scenario itself; ValueError where no robot has found a place, names D_min."""
    if not len(drawn.start):
        raise ValueError(
            f"min_goal_distance={setting.min_goal_distance} (D_min) left no place for a robot in episode {episode} of "
            f"environment {environment}: choose a smaller one"
        )
    return drawn


def noise_ids(asked: int, placed: int, seed: int, environment: int, episode: int) -> np.ndarray:
    """Noise ids 0 .. 5 asked - 1 of the robots [placed] int64 (`shared_noise`)."""
    words = philox((environment, episode, np.arange(placed), streams.ROBOTS), seed)
    return streams.id_of(words[2], 5 * asked).astype(np.int64)
