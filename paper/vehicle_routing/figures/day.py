"""The routes of a day on the map, before and after its travellers were asked for shifts."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.envs.vehicle_routing.oracles.problem import routes_of
from lockstep.envs.vehicle_routing.original import VehicleRouting, get_state, make, set_state
from lockstep.envs.vehicle_routing.params import TICKS
from lockstep.envs.vehicle_routing.windows import NO_SHIFT, acceptable
from lockstep.paper.figures import SOFT, WIDTH, figure

SEED = 1
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#6655CC", "#AA4422", "#56B4E9")  # of vehicles
APART = 0.09  # km between the tracks of two vehicles on one leg


@figure(
    "A day of thirty requests in the synthetic city: zones (dots), the depot (square), and a line for each vehicle, by "
    "insertion. Left no one is asked for a shift, right each traveller for the shift that is cheapest of those that he "
    "accepts.",
    "Two maps of a city side by side with the closed tracks of several vehicles through a depot in the middle; the "
    "title of each has minutes of driving and the number of vehicles.",
)
def routing_day(datasets: list) -> Figure:
    drawing = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    axes = drawing.subplots(1, 2, sharex=True, sharey=True)
    for panel, (name, choose) in zip(axes, {"before shifts": unchanged, "after shifts": cheapest}.items(), strict=True):
        env = played(choose)
        episode = env.episode
        panel.set_title(f"{name}: {episode.cost / TICKS:,.1f} min, {episode.vehicles} vehicles")
        routed(panel, env)
    return drawing


def played(choose) -> VehicleRouting:
    """The original at the end of a day, in which actions are `choose(env)`."""
    env = make(oracle="insertion", seed=SEED)
    env.reset(seed=SEED)
    while not env.episode.terminated:
        env.step(choose(env))
    return env


def unchanged(env: VehicleRouting) -> int:
    return NO_SHIFT


def cheapest(env: VehicleRouting) -> int:
    """The action of the largest reward among those that the traveller accepts, of equal ones the smallest shift."""
    before, traveller = get_state(env), env.episode.traveller
    threshold = env.scenario.threshold[traveller, env.episode.instance.trip[traveller]]
    accepted = np.flatnonzero(acceptable(env.params, env.scenario.type[traveller], threshold)).tolist()

    def reward(action: int) -> float:
        set_state(env, before)
        return env.step(action)[1]

    found = max(sorted(accepted, key=lambda action: action != NO_SHIFT), key=reward)
    set_state(env, before)
    return found


def routed(panel: Axes, env: VehicleRouting) -> None:
    """Zones, and the routes of the present walk."""
    xy, episode = env.scenario.zone_xy, env.episode
    zone = [env.scenario.depot]
    for decision in episode.decisions:
        zone += decision.kept[0], decision.kept[3]
    for number, route in enumerate(routes_of(episode.walk)):
        turn = 2 * np.pi * number / len(HUES)
        track = xy[[zone[node] for node in (0, *route, 0)]] + APART * np.array([np.cos(turn), np.sin(turn)])
        panel.plot(*track.T, color=HUES[number % len(HUES)], linewidth=1.1, solid_joinstyle="round")
    panel.plot(*xy.T, "o", color=SOFT, markersize=3)
    panel.plot(*xy[env.scenario.depot], "s", color="#1c2430", markersize=7, zorder=4)
    panel.set(aspect="equal", xticks=[], yticks=[])
    panel.spines[:].set_visible(True)
