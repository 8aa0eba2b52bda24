"""The numbers that decide about robots in a step of the original, and how far they are from their thresholds."""

import dataclasses
import itertools
import math
from collections import Counter
from unittest import mock

from lockstep.envs.marine_navigation.original import colregs, perception, sonar
from lockstep.envs.marine_navigation.original.boats import Boat, distance, to_body
from lockstep.envs.marine_navigation.original.episode import Episode

WIDER = 1.0  # m beyond the range of perception


def decided(episode: Episode, acting: list[Boat]) -> tuple[list[float], Counter]:
    """Of each robot that acted in the last step the least margin by which anything was decided; and what was met."""
    met, noise = Counter(), episode.noise(acting) if episode.params.version == "thruster" else None
    return [min(_margins(episode, boat, acting, noise, met)) for boat in acting], met


def _margins(episode: Episode, boat: Boat, acting: list[Boat], noise, met: Counter):
    p, R = episode.params, episode.params.collision_radius
    yield abs(boat.to_goal() - p.goal_radius)
    for one in episode.obstacles:
        yield abs(distance(boat.x, boat.y, one.x, one.y) - R - one.radius)
    for one in acting:
        yield abs(distance(boat.x, boat.y, one.x, one.y) - R - R) if one is not boat else math.inf
    met["thrust at its limit"] += p.version == "thruster" and boat.left in (p.thrust_low, p.thrust_high)
    if p.version == "sonar":
        yield from _beams(episode, boat)
        return
    for near, far, kept in _looked(episode, boat, acting, noise):
        met["more neighbours than slots"] += sum(gap <= far for gap in near) > 5
        yield from (abs(gap - far) for gap in near)
        yield from (b - a for a, b in itertools.pairwise([gap for gap in near if gap <= far][:6]))
        if p.version == "thruster":
            yield from _rules_of_the_road(boat, kept, R, met)


def _looked(episode: Episode, boat: Boat, acting: list[Boat], noise):
    """Of each kind of neighbour: gaps up to a metre beyond the range, sorted; the range; what fills the slots."""
    p, noted = episode.params, []

    def nearest(seen):
        noted.append(sorted(one.gap for one in seen))
        return real(seen)

    real, wide = perception.nearest, dataclasses.replace(p, perception_range=p.perception_range + WIDER)
    with mock.patch.object(perception, "nearest", nearest):
        if p.version == "kinematic":
            perception.kinematic(boat, acting, episode.obstacles, wide)
            reach = p.perception_range, p.perception_range + p.hull_radius - p.collision_radius
            yield from zip(noted, reach, (None, None), strict=True)
            return
        own = [rows[acting.index(boat)] for rows in noise]
        perception.thruster(boat, acting, episode.obstacles, *own, wide)
    _, kept = perception.thruster(boat, acting, episode.obstacles, *own, p)
    yield noted[0], p.perception_range, kept


def _rules_of_the_road(boat: Boat, kept, R: float, met: Counter):
    u, v = to_body(boat.vx, boat.vy, math.cos(boat.theta), math.sin(boat.theta))
    yield abs(math.hypot(u, v) - colregs.SLOW)
    first = True
    for other in kept:
        speed = math.hypot(other.vx, other.vy)
        yield abs(speed - colregs.SLOW)
        if speed < colregs.SLOW / 2:  # an obstacle
            continue
        c, s = other.vx / speed, other.vy / speed
        (x, y), (eu, ev) = to_body(-other.x, -other.y, c, s), to_body(u, v, c, s)
        (ahead, last, wide), (first_x, last_x, least, _) = colregs.HEAD_ON, colregs.CROSSING
        edges = [x - edge for edge in (ahead, last, first_x, last_x)] + [abs(y) - wide, y - least, y, y + 7 / 12 * x]
        edges += [abs(ev) - abs(eu), math.hypot(x, y) - other.radius - colregs.MARGIN]
        yield from map(abs, edges)
        if speed < colregs.SLOW or not (colregs.head_on(x, y, eu, ev) or colregs.crossing(x, y, eu, ev)):
            continue
        phi = colregs.turn(u, v, other, R)
        yield from (abs(phi) or math.inf, math.pi - abs(phi))
        if first and phi > 0 and math.hypot(u, v) >= colregs.SLOW:
            met["head-on" if colregs.head_on(x, y, eu, ev) else "crossing"] += 1
            first = False


def _beams(episode: Episode, boat: Boat):
    p, found = episode.params, episode.obstacles
    yield from _apart(distance(one.x, one.y, boat.x, boat.y) for one in found)
    for beam in range(11):
        heading = boat.theta + p.beam_angle * (beam / 5 - 1)
        c, s, hits = math.cos(heading), math.sin(heading), []
        for one in found:
            dx, dy = one.x - boat.x, one.y - boat.y
            yield abs(abs(to_body(dx, dy, c, s)[1]) - one.radius) / 10  # where it grazes it ends anywhere on the rim
            yield abs(math.hypot(dx, dy) - one.radius)  # where it may begin or end
            reach = sonar.hit(dx, dy, one.radius, c, s)
            if reach is not None:
                yield abs(reach - p.perception_range)
                hits.append(reach)
        yield from _apart(hits)


def _apart(values):
    values = sorted(values)
    return (b - a for a, b in itertools.pairwise(values))
