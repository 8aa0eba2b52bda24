"""A scene of marine navigation, and what the rules of the road ask in two encounters."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from lockstep.envs.marine_navigation import original, policies
from lockstep.envs.marine_navigation.original.colregs import colregs_angle
from lockstep.envs.marine_navigation.original.perception import Seen
from lockstep.envs.marine_navigation.original.render import hull
from lockstep.envs.marine_navigation.params import CROSSING, HEAD_ON, make_params
from lockstep.paper.figures import WIDTH, figure
from lockstep.paper.marine_navigation.scenes import HUES, ROCK, Trajectory, plot

VERSION, POLICY, SEED = "kinematic", "apf", 9
EVERY_S = 10.0  # s between two hulls
ENCOUNTERS = {  # the other's place in m and course, in the own ship's axes: ahead, to starboard
    "head-on": ((10.0, 0.0), (-1.0, 0.0)),
    "crossing": ((6.0, 6.0), (0.0, -1.0)),
}
ARROW = {"length_includes_head": True, "width": 0.12, "head_width": 0.9, "linewidth": 0}


@figure(
    f"Left: an episode under a potential field, with stream lines of the current round its vortex cores, obstacles "
    f"(grey), starts (dots), goals (dashed circles), and hulls every {EVERY_S:.0f} s; a cross marks a collision. "
    "Right: two encounters in which the rules of the road ask the own ship (blue, heading up) for a turn to starboard: "
    "where the rule holds (shaded, around the other), and the course that it asks for (dashed).",
    "A map with the tracks of several boats among vortices and round obstacles, and two small maps of two boats each: "
    "meeting head on, and crossing from starboard, with arrows for their courses and a dashed line to starboard.",
)
def marine_scene(datasets: list) -> Figure:
    figure = Figure(figsize=(WIDTH, 4.9), layout="constrained")
    places = figure.add_gridspec(len(ENCOUNTERS), 2, width_ratios=[2.05, 1])
    panel = figure.add_subplot(places[:, 0])
    panel.set_title(f"{VERSION} boats, {POLICY.upper()}")
    shown = episode()
    plot(panel, shown, round(EVERY_S / shown.params.period))
    for place, name in enumerate(ENCOUNTERS):
        panel = figure.add_subplot(places[place, 1])
        panel.set_title(name)
        encounter(panel, name)
    return figure


def episode() -> Trajectory:
    """An episode of the original."""
    env = original.make(version=VERSION, seed=SEED)
    observations, _ = env.reset()
    states = [original.get_state(env)]
    while env.agents:
        rows = np.stack([observations[agent] for agent in env.agents])
        actions = policies.POLICIES[POLICY](rows, env.params)
        observations, *_ = env.step(dict(zip(env.agents, actions.tolist(), strict=True)))
        states.append(original.get_state(env))
    return Trajectory.of(env.params, env.episode.scenario, states)


def encounter(panel: Axes, name: str) -> None:
    """The own ship at the origin, heading up, the other, where the rule holds, and the course that it asks for."""
    p = make_params("thruster")
    place, course = map(np.array, ENCOUNTERS[name])
    other = Seen(0.0, *place, *course, p.collision_radius)
    phi = colregs_angle(1.0, 0.0, [other], p.collision_radius)
    panel.add_patch(
        Polygon(seen_from_above(place + turned(area(name), course)), color=HUES[4], alpha=0.25, linewidth=0)
    )
    for at, to, colour in ((np.zeros(2), np.array([1.0, 0.0]), HUES[0]), (place, course, ROCK)):
        corners = hull(*at, math.atan2(to[1], to[0]), p.hull_length, p.hull_width)
        panel.add_patch(Polygon(seen_from_above(corners), facecolor=colour, linewidth=0, zorder=2))
        panel.arrow(*seen_from_above(at), *seen_from_above(5.0 * to), color=colour, zorder=3, **ARROW)
    asked = 9.0 * np.array([math.cos(phi), math.sin(phi)])
    panel.plot(*zip((0.0, 0.0), seen_from_above(asked), strict=True), "--", color=HUES[0], linewidth=1.2)
    panel.annotate(f"{math.degrees(phi):.0f}°", seen_from_above(asked), (3, 0), textcoords="offset points", fontsize=7)
    panel.set(aspect="equal", xlim=(-9, 13), ylim=(-5, 16), xticks=[], yticks=[])
    panel.spines[:].set_visible(True)


def area(name: str) -> np.ndarray:
    """Corners of the area around another ship where the rule holds, [n, 2] m in that ship's axes."""
    if name == "head-on":
        first, last, wide = HEAD_ON
        return np.array([(first, -wide), (last, -wide), (last, wide), (first, wide)])
    first, last, least, slope = CROSSING
    return np.array([(first, least), (last, least), (last, -slope * last), (0.0, 0.0), (first, 0.0)])


def turned(points: np.ndarray, course: np.ndarray) -> np.ndarray:
    """Points [n, 2] in the axes of a ship on a course, in those that the course is given in."""
    c, s = course
    return points @ np.array([[c, s], [-s, c]])


def seen_from_above(points: np.ndarray) -> np.ndarray:
    """Points [..., 2] ahead and to starboard, as a panel has them: starboard to the right, ahead up."""
    return points[..., ::-1]
