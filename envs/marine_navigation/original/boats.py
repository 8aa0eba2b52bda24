"""Boats of the original: a robot's state, and the substeps that move it (README.md, 2.2 and 2.3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..params import Params

Current = Callable[[float, float], tuple[float, float]]  # water velocity at x, y


@dataclass(slots=True)
class Boat:
    """A robot: m, m/s and rad in world axes, and what the episode has counted of it."""

    index: int
    x: float
    y: float
    theta: float
    goal_x: float
    goal_y: float
    speed: float = 0.0  # s through the water, of a kinematic boat
    wx: float = 0.0  # water-relative velocity, of a thruster boat
    wy: float = 0.0
    r: float = 0.0  # yaw rate
    left: float = 0.0  # T_L, N
    right: float = 0.0  # T_R
    vx: float = 0.0  # velocity over ground as reported
    vy: float = 0.0
    turning: float = 0.0  # yaw rate as reported
    active: bool = True
    blind: bool = False  # sees no other robot, and hits none
    noise_id: int = 0
    total: float = 0.0  # reward so far
    steps: int = 0  # while active
    energy: float = 0.0  # N s, or control effort
    reached: bool = False
    hit_robot: bool = False
    hit_obstacle: bool = False

    def to_goal(self) -> float:
        """Distance to the goal, m."""
        return distance(self.x, self.y, self.goal_x, self.goal_y)


class KinematicBoat(Boat):
    """A boat whose action is an acceleration and a turn rate."""

    __slots__ = ()

    def move(self, action: int, p: Params, current: Current):
        """A control step under action 0 .. 8."""
        a = (-p.acceleration, 0.0, p.acceleration)[action // 3]
        w = (-p.turn_rate, 0.0, p.turn_rate)[action % 3]
        for _ in range(p.substeps):
            self.report(*current(self.x, self.y))
            self.x += self.vx * p.dt
            self.y += self.vy * p.dt
            self.speed = min(max(self.speed + (a - p.speed_drag * self.speed) * p.dt, 0.0), p.top_speed)
            self.theta = on_circle(self.theta + w * p.dt)
        if not p.velocity_lag:
            self.report(*current(self.x, self.y))
        self.energy += abs(a) / p.acceleration + abs(w) / p.turn_rate

    def report(self, cx: float, cy: float):
        """Sets the reported velocity, in water of velocity (cx, cy)."""
        self.vx, self.vy = self.speed * math.cos(self.theta) + cx, self.speed * math.sin(self.theta) + cy


class ThrusterBoat(Boat):
    """A boat with a thruster on each side, whose action is a rate of thrust of each; x forward, y starboard."""

    __slots__ = ()

    def move(self, rates: tuple[float, float], p: Params, current: Current):
        """A control step under rates of thrust of both thrusters, N/s."""
        for k in range(p.substeps):
            self.report(*current(self.x, self.y))
            self.x += self.vx * p.dt
            self.y += self.vy * p.dt
            self.theta = on_circle(self.theta + self.r * p.dt)
            if k == 0:
                self.left = min(max(self.left + p.period * rates[0], p.thrust_low), p.thrust_high)
                self.right = min(max(self.right + p.period * rates[1], p.thrust_low), p.thrust_high)
            self.accelerate(p)
        if not p.velocity_lag:
            self.report(*current(self.x, self.y))
        self.energy += (abs(self.left) + abs(self.right)) * p.period

    def report(self, cx: float, cy: float):
        """Sets the reported velocity and yaw rate, in water of velocity (cx, cy)."""
        self.vx, self.vy, self.turning = self.wx + cx, self.wy + cy, self.r

    def accelerate(self, p: Params):
        """Forces of a substep on the water-relative velocity and on the yaw rate, in body axes of the new heading."""
        c, s = math.cos(self.theta), math.sin(self.theta)
        ur, vr, r = *to_body(self.wx, self.wy, c, s), self.r
        surge_drag = (p.surge_drag + p.surge_drag_square * abs(ur)) * ur
        sway_drag = (p.sway_drag + p.sway_drag_square * abs(vr)) * vr
        yaw_drag = (p.yaw_drag + p.yaw_drag_square * abs(r)) * r
        if p.turn_counted_twice:
            u, v = to_body(self.vx, self.vy, c, s)
            turn_u, turn_v = p.mass * r * v, -p.mass * r * u
        else:  # the velocity stays where it points while the axes turn; only added mass is left
            turn_u, turn_v = (p.mass - p.surge_inertia) * r * vr, 0.0
        du = (turn_u - surge_drag + self.left + self.right) / p.surge_inertia
        dv = (turn_v + p.added_surge * ur * r - sway_drag) / p.mass
        dr = (-p.added_surge * ur * vr - yaw_drag + p.lever * (self.left - self.right)) / p.yaw_inertia
        ur, vr = ur + du * p.dt, vr + dv * p.dt
        self.r = r + dr * p.dt
        self.wx, self.wy = c * ur - s * vr, s * ur + c * vr


def to_body(x: float, y: float, c: float, s: float) -> tuple[float, float]:
    """A world vector in axes whose first has cosine c and sine s."""
    return c * x + s * y, c * y - s * x


def on_circle(angle: float) -> float:
    """The angle in [0, 2π), of one at most a turn outside."""
    if angle < 0.0:
        angle += 2 * math.pi
    if angle >= 2 * math.pi:
        angle -= 2 * math.pi
    return angle


def distance(ax: float, ay: float, bx: float, by: float) -> float:
    dx, dy = ax - bx, ay - by
    return math.sqrt(dx * dx + dy * dy)
