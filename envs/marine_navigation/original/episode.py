"""The model: an episode of the original, one control step after the other (README.md, 2.6)."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from .. import streams
from ..params import Params
from ..scenario import Scenario, noise_ids
from ..vortices import current
from .boats import Boat, KinematicBoat, ThrusterBoat, distance
from .colregs import colregs_angle
from .perception import Obstacle, Seen, kinematic, thruster
from .sonar import sonar


class Outcome(NamedTuple):
    """A control step, by robot that was active before it."""

    observation: dict[int, list[float]]
    reward: dict[int, float]
    terminated: dict[int, bool]
    truncated: dict[int, bool]


class Episode:
    """Boats among cores and obstacles.

    Args:
        seed, environment, number: key of the noise; `number` counts episodes from 0.
    """

    def __init__(self, params: Params, scenario: Scenario, seed: int, environment: int, number: int):
        self.params, self.scenario = params, scenario
        self.seed, self.environment, self.number = seed, environment, number
        self.elapsed, self.over = 0, False
        self.set_scene(scenario.cores(params), [
            Obstacle(x, y, radius)
            for (x, y), radius in zip(scenario.obstacle_centre.tolist(), scenario.radius.tolist(), strict=True)
        ])  # fmt: skip
        self.asked, self.unseeing = scenario.asked, max(scenario.blind, params.non_cooperative)
        ids = noise_ids(self.asked, len(scenario.start), seed, environment, number).tolist()
        self.boat = ThrusterBoat if params.version == "thruster" else KinematicBoat
        without_current = params.start_without_current and not scenario.read and params.version != "sonar"
        self.boats: list[Boat] = []
        for i, ((x, y), (goal_x, goal_y), theta, speed) in enumerate(
            zip(*(rows.tolist() for rows in (scenario.start, scenario.goal, scenario.heading, scenario.speed)),
                strict=True)
        ):  # fmt: skip
            boat = self.boat(i, x, y, theta, goal_x, goal_y, speed)
            boat.noise_id, boat.blind = ids[i], i >= self.asked - self.unseeing
            boat.report(*((0.0, 0.0) if without_current else self.current(x, y)))
            self.boats.append(boat)

    def set_scene(self, cores: list, obstacles: list[Obstacle]):
        """Cores and obstacles of the episode."""
        self.cores, self.obstacles = cores, obstacles
        p = self.params
        self.current = functools.partial(current, cores=cores, core_radius=p.core_radius, shadowing=p.vortex_shadowing)

    @property
    def active(self) -> list[Boat]:
        return [boat for boat in self.boats if boat.active]

    # ---- a control step

    def step(self, actions: Mapping[int, object]) -> Outcome:
        """All active robots move, then collisions, goals, observations, rewards and ends, in that order.

        Args:
            actions: of each active robot: rates of thrust (N/s), or an index.
        """
        p, acting = self.params, self.active
        before = {boat.index: boat.to_goal() for boat in acting}
        for boat in acting:
            boat.move(actions[boat.index], p, self.current)
        self.elapsed += 1
        after = {boat.index: boat.to_goal() for boat in acting}
        hit = self.collide(acting)
        reached = {boat.index: after[boat.index] <= p.goal_radius for boat in acting}
        rows, angles = self.perceive()
        late = self.elapsed >= p.limit
        events = not (late and p.limit_beats_end)
        reward, terminated = {}, {}
        for boat in acting:
            i = boat.index
            event = p.collision_reward if hit[i] else p.goal_reward if reached[i] else 0.0
            reward[i] = p.step_reward + (before[i] - after[i]) + p.colregs_weight * angles[i] + events * event
            terminated[i] = events and (hit[i] or reached[i])
            boat.total += reward[i]
            boat.steps += 1
            boat.reached |= reached[i]
        stopped = late or (p.stop_at_collision and any(hit.values()))
        truncated = {i: stopped and not terminated[i] for i in terminated}
        for boat in acting:
            boat.active = not terminated[boat.index]
        self.over = stopped or not self.active
        return Outcome(rows, reward, terminated, truncated)

    def collide(self, acting: list[Boat]) -> dict[int, bool]:
        """Robots that touch an obstacle or another active robot, whose flags are set."""
        R, hit = self.params.collision_radius, {}
        for boat in acting:
            rock = any(distance(boat.x, boat.y, one.x, one.y) <= R + one.radius for one in self.obstacles)
            other = not boat.blind and any(
                one is not boat and distance(boat.x, boat.y, one.x, one.y) <= R + R for one in acting
            )
            boat.hit_obstacle |= rock
            boat.hit_robot |= other
            hit[boat.index] = rock or other
        return hit

    # ---- what robots see

    def perceive(self) -> tuple[dict[int, list[float]], dict[int, float]]:
        """Observations and COLREGs angles φ of the active robots."""
        p, boats = self.params, self.active
        if p.version == "sonar":
            return {boat.index: sonar(boat, self.obstacles, p) for boat in boats}, dict.fromkeys(_indices(boats), 0.0)
        if p.version == "kinematic":
            rows = {boat.index: kinematic(boat, boats, self.obstacles, p) for boat in boats}
            return rows, dict.fromkeys(_indices(boats), 0.0)
        normals, xi = self.noise(boats)
        rows, angles = {}, {}
        for boat, of_boat, of_radii in zip(boats, normals, xi, strict=True):
            rows[boat.index], kept = thruster(boat, boats, self.obstacles, of_boat, of_radii, p)
            angles[boat.index] = self.colregs(boat, rows[boat.index], kept)
        return rows, angles

    def noise(self, boats: list[Boat]) -> tuple[list, list]:
        """Normals [boats][O + boats][4] and ξ [boats][O + boats] of the present step."""
        observers = [boat.noise_id if self.params.shared_noise else boat.index for boat in boats]
        objects = [*range(len(self.obstacles)), *(streams.ROBOT_OBJECT + boat.index for boat in boats)]
        if not boats:
            return [], []
        drawn = streams.perception(self.seed, self.environment, self.number, self.elapsed, observers, objects)
        return drawn[0].tolist(), drawn[1].tolist()

    def colregs(self, boat: Boat, row: list[float], kept: list[Seen]) -> float:
        """φ by what a robot sees; `row` begins with its goal and its velocity over ground."""
        return colregs_angle(row[2], row[3], kept, self.params.collision_radius)


def _indices(boats: list[Boat]) -> list[int]:
    return [boat.index for boat in boats]
