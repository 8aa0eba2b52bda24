"""Scenes of marine navigation in a panel: currents, obstacles, starts, goals, and the robots on their way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon

from lockstep.envs.marine_navigation.original.render import hull
from lockstep.envs.marine_navigation.params import Params
from lockstep.envs.marine_navigation.scenario import Scenario
from lockstep.envs.marine_navigation.vortices import current

HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#6655CC", "#AA4422")  # of robots, in their order
WATER, ROCK = "#88b4d8", "#8a8a8a"
GRID = 45  # places on each side at which the current is taken
PIXELS = 400  # of each side of a picture of an animation


@dataclass(frozen=True)
class Trajectory:
    """An episode as it was sailed: T steps of A robots."""

    params: Params
    scenario: Scenario
    pose: np.ndarray  # [T + 1, A, 3] m, m, rad
    active: np.ndarray  # [T + 1, A] bool
    hit: np.ndarray  # [A] bool

    @classmethod
    def of(cls, params: Params, scenario: Scenario, states: Sequence[Mapping]) -> "Trajectory":
        """The trajectory of the states of an original or a port, the first being that after the reset."""
        pose, active = (np.stack([state[name] for state in states]) for name in ("pose", "active"))
        hit = (states[-1]["hit_robot"] > 0) | (states[-1]["hit_obstacle"] > 0)
        return cls(params, scenario, pose, active.astype(bool), hit)


def plot(panel: Axes, trajectory: Trajectory, every: int) -> None:
    """The whole episode: the scene, the tracks, and a hull after each so many steps."""
    scene(panel, trajectory)
    sailed(panel, trajectory, len(trajectory.pose) - 1)
    for moment in range(0, len(trajectory.pose), every):
        hulls(panel, trajectory, moment, alpha=0.45)


def animate(trajectory: Trajectory, every: int) -> Iterator[np.ndarray]:
    """A picture after each so many steps, and one of the end, [PIXELS, PIXELS, 3] uint8."""
    figure = Figure(figsize=(PIXELS / 100, PIXELS / 100), dpi=100, layout="constrained", facecolor="white")
    canvas, panel = FigureCanvasAgg(figure), figure.subplots()
    scene(panel, trajectory)
    last = len(trajectory.pose) - 1
    for moment in [*range(0, last, every), last]:
        moving = [*sailed(panel, trajectory, moment), *hulls(panel, trajectory, moment)]
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
        for one in moving:
            one.remove()


def scene(panel: Axes, trajectory: Trajectory) -> None:
    """The map with whatever lies still: stream lines, cores, obstacles, starts, and goals as dashed circles."""
    p, scenario = trajectory.params, trajectory.scenario
    panel.set(xlim=(0, p.width), ylim=(0, p.width), aspect="equal", xticks=[], yticks=[])
    panel.spines[:].set_visible(True)
    cores = scenario.cores(p)
    if cores:
        at = np.linspace(0, p.width, GRID)
        flow = [[current(x, y, cores, p.core_radius, p.vortex_shadowing) for x in at] for y in at]
        lines = {"density": 0.8, "color": WATER, "linewidth": 0.5, "arrowsize": 0.5}
        panel.streamplot(at, at, *np.moveaxis(np.array(flow), -1, 0), **lines)
    for core in cores:
        panel.add_patch(Circle((core.x, core.y), p.core_radius, color=WATER))
    for centre, radius in zip(scenario.obstacle_centre, scenario.radius, strict=True):
        panel.add_patch(Circle(centre, radius, facecolor=ROCK, linewidth=0))
    for robot, (start, goal) in enumerate(zip(scenario.start, scenario.goal, strict=True)):
        panel.plot(*start, "o", color=hue(robot), markersize=3)
        edge = {"edgecolor": hue(robot), "linestyle": "--", "linewidth": 1.0}
        panel.add_patch(Circle(goal, p.goal_radius, fill=False, **edge))


def sailed(panel: Axes, trajectory: Trajectory, moment: int) -> list[Artist]:
    """The tracks up to a step, each with a cross where a robot has ended in a collision."""
    drawn = []
    for robot in range(len(trajectory.scenario.start)):
        track = trajectory.pose[: moment + 1, robot, :2]
        drawn += panel.plot(*track.T, color=hue(robot), linewidth=1.1)
        if trajectory.hit[robot] and not trajectory.active[moment, robot]:
            drawn += panel.plot(*track[-1], "x", color="#d1344b", markersize=8, markeredgewidth=2, zorder=4)
    return drawn


def hulls(panel: Axes, trajectory: Trajectory, moment: int, alpha: float = 1.0) -> list[Artist]:
    """The hulls of the robots that are active after a step."""
    p = trajectory.params
    return [
        panel.add_patch(Polygon(hull(*pose, p.hull_length, p.hull_width), facecolor=hue(robot), alpha=alpha, zorder=3))
        for robot, pose in enumerate(trajectory.pose[moment][: len(trajectory.scenario.start)])
        if trajectory.active[moment, robot]
    ]


def hue(robot: int) -> str:
    return HUES[robot % len(HUES)]
