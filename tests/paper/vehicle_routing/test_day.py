"""A day's routes on the map: what is drawn is what was driven."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from lockstep.envs.vehicle_routing.checker import check
from lockstep.envs.vehicle_routing.params import TICKS
from lockstep.envs.vehicle_routing.windows import NO_SHIFT, acceptable
from lockstep.paper import figures
from lockstep.paper.vehicle_routing.figures import day


@pytest.fixture(scope="module")
def days():
    return {name: day.played(choose) for name, choose in {"before": day.unchanged, "after": day.cheapest}.items()}


def test_nobody_is_shifted_before_and_everyone_accepts_after(days):
    assert {decision.action for decision in days["before"].episode.decisions} == {NO_SHIFT}
    assert all(decision.accepted for decision in days["after"].episode.decisions)
    assert len({decision.action for decision in days["after"].episode.decisions}) > 1


def test_the_cheapest_shift_is_found_by_trying_all(days):
    """At the last request, of each shift that he accepts by itself."""
    env = days["after"]
    actions = [decision.action for decision in env.episode.decisions]
    last = env.episode.decisions[-1]
    rewards = {}
    for action in np.flatnonzero(acceptable(env.params, env.scenario.type[last.traveller], np.zeros(2))).tolist():
        other = day.make(oracle="insertion", seed=day.SEED)
        other.reset(seed=day.SEED)
        for before in actions[:-1]:
            other.step(before)
        rewards[action] = other.step(action)[1]
    assert rewards[last.action] == max(rewards.values())


def test_tracks_begin_and_end_at_the_depot_and_are_as_long_as_their_routes(days):
    for env in days.values():
        panel = Figure().subplots()
        day.routed(panel, env)
        *tracks, zones, depot = panel.lines
        assert len(tracks) == env.episode.vehicles
        assert sum(len(track.get_xdata()) - 1 for track in tracks) == len(env.episode.walk) - 1
        assert depot.get_xydata().tolist() == [env.scenario.zone_xy[env.scenario.depot].tolist()]
        assert len(zones.get_xdata()) == len(env.scenario.travel)
        for track in tracks:
            home = np.linalg.norm(track.get_xydata()[[0, -1]] - depot.get_xydata(), axis=1)
            assert home == pytest.approx([day.APART, day.APART])
        assert len({to_hex(track.get_color()) for track in tracks}) == len(tracks)


def test_titles_have_what_the_walks_cost(days):
    panels = figures.draw("routing_day", []).axes
    for panel, (name, env) in zip(panels, days.items(), strict=True):
        p, episode = env.params, env.episode
        problem = episode.problem([one.kept for one in episode.decisions], env.oracle)
        nodes = (problem.zone, problem.earliest, problem.latest, problem.demand)
        ticks, vehicles = check(episode.walk, env.scenario.travel, *nodes, p.capacity, p.horizon_ticks)
        assert panel.get_title(loc="left") == f"{name} shifts: {ticks / TICKS:,.1f} min, {vehicles} vehicles"
