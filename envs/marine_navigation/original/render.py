"""A picture of an episode: currents, obstacles, hulls and goals."""

import math

import numpy as np

from lockstep.extras import extra

from .episode import Episode

with extra("render", of="rendering of 'marine_navigation'"):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Polygon

ARROWS = 30  # of the currents, on each side
INCHES, DOTS = 6.0, 100  # side of the picture, per inch


def picture(episode: Episode) -> np.ndarray:
    """The scene seen from above, x to the right and y up, [600, 600, 3] uint8; who has ended is grey."""
    p = episode.params
    canvas = FigureCanvasAgg(Figure(figsize=(INCHES, INCHES), dpi=DOTS, layout="constrained"))
    axes = canvas.figure.add_subplot(aspect="equal", xlim=(0, p.width), ylim=(0, p.width), xticks=[], yticks=[])
    if episode.cores:
        at = np.linspace(0, p.width, ARROWS)
        flow = np.array([[episode.current(x, y) for x in at] for y in at])
        speed = np.maximum(np.hypot(*np.moveaxis(flow, -1, 0)), 1e-9)
        axes.quiver(at, at, *np.moveaxis(flow / np.sqrt(speed)[..., None], -1, 0), color="lightsteelblue", width=0.002)
        for core in episode.cores:
            axes.add_patch(Circle((core.x, core.y), p.core_radius, color="tab:blue" if core.sign > 0 else "tab:cyan"))
    for rock in episode.obstacles:
        axes.add_patch(Circle((rock.x, rock.y), rock.radius, color="dimgrey"))
    for boat in episode.boats:
        shade = f"C{boat.index + 1}" if boat.active else "lightgrey"
        axes.add_patch(Polygon(hull(boat.x, boat.y, boat.theta, p.hull_length, p.hull_width), color=shade))
        axes.add_patch(Circle((boat.goal_x, boat.goal_y), p.goal_radius, edgecolor=shade, fill=False, linestyle="--"))
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def hull(x: float, y: float, theta: float, length: float, width: float) -> np.ndarray:
    """Corners of a hull with a pointed bow, [5, 2] m."""
    a, b = length / 2, width / 2
    corners = np.array([(-a, -b), (a / 2, -b), (a, 0.0), (a / 2, b), (-a, b)])
    c, s = math.cos(theta), math.sin(theta)
    return corners @ np.array([[c, s], [-s, c]]) + (x, y)
