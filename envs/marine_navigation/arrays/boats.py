"""Currents and substeps of B x A boats at once (README.md, 2.1 to 2.3)."""

import math
from collections.abc import Callable, Mapping

from ..params import RATES
from .model import Array, Model, parts, to_body

Flow = Callable[[Array, Array], tuple[Array, Array]]  # water velocity [B, A] at x, y


def currents(m: Model, core: Array) -> Flow:
    """The water's velocity as a function of positions; core: [B, C, 4], zeros where there is none."""
    xp, least = m.xp, m.params.core_radius * m.params.core_radius
    cx, cy, sign, strength = (part.T[:, :, None] for part in parts(core))  # [C, B, 1]
    turn = sign * strength

    def flow(x: Array, y: Array) -> tuple[Array, Array]:
        dx, dy = x - cx, y - cy  # [C, B, A]
        square = dx * dx + dy * dy
        factor = turn / xp.maximum(square, least)
        if m.probe is not None and len(core[0]):
            inside = ((square < least) & (sign != 0)).any(axis=0)
            m.note("inside a core", inside)
            m.note("outside all cores", ~inside)
        if m.params.vortex_shadowing:
            order = xp.argsort(xp.where(turn == 0, xp.inf, square), axis=0, kind="stable")
            dx, dy, factor = (xp.take_along_axis(one, order, axis=0) for one in (dx, dy, factor))
            factor = factor * unshadowed(m, dx, dy)
        return (factor * dy).sum(axis=0), -(factor * dx).sum(axis=0)

    return flow


def unshadowed(m: Model, dx: Array, dy: Array) -> Array:
    """True of cores [C, B, A], nearest first, that no nearer one stands before (`vortex_shadowing`)."""
    kept = m.xp.ones(dx.shape, dtype=bool)
    for j in range(1, len(dx)):
        product = dx[j] * dx[:j] + dy[j] * dy[:j]
        m.decides(product.swapaxes(0, 1), kept[:j].swapaxes(0, 1))
        kept[j] = ~(kept[:j] & (product > 0)).any(axis=0)
    return kept


def on_circle(xp, angle: Array) -> Array:
    """Angles in [0, 2π), of those at most a turn outside."""
    angle = xp.where(angle < 0, angle + 2 * math.pi, angle)
    return xp.where(angle >= 2 * math.pi, angle - 2 * math.pi, angle)


def moved(m: Model, state: Mapping, action: Array) -> dict[str, Array]:
    """Fields of all boats after a control step, `energy` among them, as if all were active."""
    flow = currents(m, state["core"])
    return (thruster if m.params.version == "thruster" else kinematic)(m, state, action, flow)


def kinematic(m: Model, state: Mapping, action: Array, flow: Flow) -> dict[str, Array]:
    """Under actions [B, A] of 0 .. 8; others act as 0."""
    xp, p = m.xp, m.params
    action = xp.where((action >= 0) & (action < 9), action, 0)
    a = p.acceleration * (action // 3 - 1).astype(m.real)
    w = p.turn_rate * (action % 3 - 1).astype(m.real)
    (x, y, theta), speed = parts(state["pose"]), state["speed"]

    def ground() -> tuple[Array, Array]:
        u, v = flow(x, y)
        return speed * xp.cos(theta) + u, speed * xp.sin(theta) + v

    for _ in range(p.substeps):
        vx, vy = ground()
        x, y = x + vx * p.dt, y + vy * p.dt
        speed = xp.clip(speed + (a - p.speed_drag * speed) * p.dt, 0.0, p.top_speed)
        theta = on_circle(xp, theta + w * p.dt)
    if not p.velocity_lag:
        vx, vy = ground()
    return {
        "pose": xp.stack([x, y, theta], axis=-1),
        "speed": speed,
        "ground_velocity": xp.stack([vx, vy], axis=-1),
        "energy": state["energy"] + xp.abs(a) / p.acceleration + xp.abs(w) / p.turn_rate,
    }


def rates(m: Model, action: Array) -> Array:
    """Rates of thrust [B, A, 2] N/s of numbers [B, A, 2] or indices [B, A]; NaN and indices that are none act as 0."""
    xp, p = m.xp, m.params
    if p.action_kind == "continuous":
        numbers = xp.nan_to_num(action.astype(m.real), posinf=1.0, neginf=-1.0)
        return p.thrust_rate * xp.clip(numbers, -1.0, 1.0)
    action = xp.where((action >= 0) & (action < p.choices), action, 0)
    digits = xp.stack([action // len(RATES), action % len(RATES)], axis=-1)
    return p.thrust_rate * xp.asarray(RATES, dtype=m.real)[digits]


def thruster(m: Model, state: Mapping, action: Array, flow: Flow) -> dict[str, Array]:
    """Under actions as `rates` takes them."""
    xp, p = m.xp, m.params
    (x, y, theta), (wx, wy), r = parts(state["pose"]), parts(state["water_velocity"]), state["yaw_rate"]
    wanted = state["thrust"] + p.period * rates(m, action)
    m.note("a thrust clipped at its lowest", state["active"][..., None] & (wanted < p.thrust_low))
    m.note("a thrust clipped at its highest", state["active"][..., None] & (wanted > p.thrust_high))
    thrust = xp.clip(wanted, p.thrust_low, p.thrust_high)
    left, right = parts(thrust)
    for _ in range(p.substeps):
        u, v = flow(x, y)
        vx, vy, turning = wx + u, wy + v, r
        x, y = x + vx * p.dt, y + vy * p.dt
        theta = on_circle(xp, theta + r * p.dt)
        wx, wy, r = accelerated(m, (wx, wy, r), (vx, vy), theta, left, right)
    if not p.velocity_lag:
        u, v = flow(x, y)
        vx, vy, turning = wx + u, wy + v, r
    return {
        "pose": xp.stack([x, y, theta], axis=-1),
        "water_velocity": xp.stack([wx, wy], axis=-1),
        "yaw_rate": r,
        "reported_yaw_rate": turning,
        "thrust": thrust,
        "ground_velocity": xp.stack([vx, vy], axis=-1),
        "energy": state["energy"] + (xp.abs(left) + xp.abs(right)) * p.period,
    }


def accelerated(m: Model, motion: tuple, over_ground: tuple, theta: Array, left: Array, right: Array) -> tuple:
    """Water-relative velocity and yaw rate after the forces of a substep, in body axes of the new heading."""
    xp, p, (wx, wy, r) = m.xp, m.params, motion
    c, s = xp.cos(theta), xp.sin(theta)
    ur, vr = to_body(wx, wy, c, s)
    surge_drag = (p.surge_drag + p.surge_drag_square * xp.abs(ur)) * ur
    sway_drag = (p.sway_drag + p.sway_drag_square * xp.abs(vr)) * vr
    yaw_drag = (p.yaw_drag + p.yaw_drag_square * xp.abs(r)) * r
    if p.turn_counted_twice:
        u, v = to_body(*over_ground, c, s)
        turn_u, turn_v = p.mass * r * v, -p.mass * r * u
    else:
        turn_u, turn_v = (p.mass - p.surge_inertia) * r * vr, 0.0
    du = (turn_u - surge_drag + left + right) / p.surge_inertia
    dv = (turn_v + p.added_surge * ur * r - sway_drag) / p.mass
    dr = (-p.added_surge * ur * vr - yaw_drag + p.lever * (left - right)) / p.yaw_inertia
    ur, vr = ur + du * p.dt, vr + dv * p.dt
    return c * ur - s * vr, s * ur + c * vr, r + dr * p.dt
