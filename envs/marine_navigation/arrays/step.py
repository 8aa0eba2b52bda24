"""A control step of B environments from state to state (README.md, 2.6)."""

from collections.abc import Mapping
from typing import NamedTuple

from .boats import moved
from .model import Array, Model, distance, parts
from .perception import blind, obstacles_there, perceive


class Outcome(NamedTuple):
    """Outcome of a step, besides the next state; zeros of robots that were not active before it."""

    observation: Array  # [B, A, n] after the step, also of those whom it ends
    reward: Array  # [B, A]
    terminated: Array  # [B, A] bool
    truncated: Array  # [B, A] bool
    over: Array  # [B] bool: the episode is


def step(m: Model, state: Mapping, action: Array, seed: int, index: Array) -> tuple[dict[str, Array], Outcome]:
    """A step of every environment; starts no new episode.

    Args:
        state: [B, ...] by the names of `layout.state_shapes`, with `active`, `elapsed` and `episode`; not changed.
        action: numbers [B, A, 2] or indices [B, A].
        seed, index: key of the noise, and numbers [B] of the environments.
    """
    xp, p, acting = m.xp, m.params, state["active"]
    before, motion = to_goal(m, state), moved(m, state, action)
    for name, after in motion.items():
        motion[name] = xp.where(acting.reshape(acting.shape + (1,) * (after.ndim - 2)), after, state[name])
    state = {**state, **motion, "elapsed": state["elapsed"] + 1}
    after = to_goal(m, state)
    rock, other = collisions(m, state)
    hit, reached = rock | other, acting & m.at_most(after, p.goal_radius, acting)
    observation, angle = perceive(m, state, seed, index)
    late = state["elapsed"] >= p.limit
    events = ~(late & p.limit_beats_end)[:, None]
    event = events * xp.where(hit, p.collision_reward, xp.where(reached, p.goal_reward, 0.0))
    reward = p.step_reward + (before - after) + p.colregs_weight * angle + event
    reward = xp.where(acting, reward, 0.0).astype(m.real)
    terminated = events & (hit | reached)
    stopped = late | (p.stop_at_collision & hit.any(axis=1))
    truncated = acting & stopped[:, None] & ~terminated
    active = acting & ~terminated
    flags = {"reached": reached, "hit_robot": other, "hit_obstacle": rock}
    for name, happened in flags.items():
        m.note(name.replace("_", " "), happened)
        flags[name] = state[name] | happened
    m.note("a goal and a hit together", reached & hit)
    m.note("the limit", late)
    m.note("a goal or a hit at the limit", (hit | reached) & late[:, None])
    counts = {"returns": state["returns"] + reward, "steps": state["steps"] + acting}
    outcome = Outcome(observation, reward, terminated, truncated, stopped | ~active.any(axis=1))
    return {**state, **flags, **counts, "active": active}, outcome


def to_goal(m: Model, state: Mapping) -> Array:
    """Distances [B, A] m to the goals."""
    return distance(m.xp, *parts(state["pose"])[:2], *parts(state["goal"]))


def collisions(m: Model, state: Mapping) -> tuple[Array, Array]:
    """True of active robots [B, A] that touch an obstacle, and of those that touch another active robot."""
    xp, R, acting = m.xp, m.params.collision_radius, state["active"]
    (x, y), (rx, ry, radius) = parts(state["pose"])[:2], (part[:, None] for part in parts(state["obstacle"]))
    among = acting[..., None] & obstacles_there(m, state)[:, None]
    rock = among & m.at_most(distance(xp, rx, ry, x[..., None], y[..., None]), R + radius, among)
    among = (acting & ~blind(m, state))[..., None] & acting[:, None] & ~xp.eye(acting.shape[1], dtype=bool)
    apart = distance(xp, x[:, None], y[:, None], x[..., None], y[..., None])
    other = among & m.at_most(apart, R + R, among)
    return rock.any(axis=-1), other.any(axis=-1)
