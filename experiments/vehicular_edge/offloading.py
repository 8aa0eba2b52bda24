"""Policies of the vehicular edge: cost, delays against deadlines, backlogs; and agents beside them."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from lockstep.experiments import experiment, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Plan, Request, by_label
from lockstep.experiments.vehicular_edge.offloading_episodes import EDGE_FAMILIES, UNSEEN, Episode, Job, in_port, play

COLUMNS = [
    *("environment", "level", "form", "device", "traffic", "policy", "trained_on", "penalty_weight"),
    *("seed", "scenario", "seen"),
    *("route", "return", "earlier_return", "cost", "drift", "success", "on_time", "open", "tasks"),
    *("delay_p50_s", "delay_p95_s", "delay_p99_s", "energy_j", "jain"),
    *("dropped_overflow", "dropped_cap", "dropped_coverage"),
    *("family", "node", "slot", "backlog_mbit", "rate_mbps", "delay_s"),
]
# Rows of a level fill its own columns. episode: one each, with its return under the earlier reward, too; route: of each
# episode, "all" among them; delay: tasks by delay, of all episodes of a group (inf: longer, or never); backlog: Mbit
# per edge, family and slot of the first episode; little: a queue of the first episode.
SIMPLE = ("local", "nearest_edge", "random", "rounding", "greedy", "random_turns")
SEARCHING = ("drift_plus_penalty", "backpressure")  # in every slot, in Python
AGENTS = ("ppo", "mappo")  # sections of the settings of an agent


@dataclass(frozen=True)
class Group(experiment.Group):
    """Rows that are measured and journalled in one piece."""

    form: str  # original | port
    traffic: str
    policy: str
    scenarios: int
    device: str = "cpu"
    penalty_weight: float = 1.0
    trained_on: str | None = None  # of an agent: one | many scenarios
    seed: int | None = None  # of an agent


def groups(settings: Settings, devices: Sequence[str]) -> list[Group]:
    """The groups of the settings, all agents' first seeds before others."""
    asked, found = settings.offloading, []  # scenarios: of a simple policy, and of one that searches
    for traffic, policy in itertools.product(asked.maps, (*SIMPLE, *SEARCHING)):
        found.append(Group("original", traffic, policy, asked.scenarios[policy in SEARCHING]))
    learned = asked.maps[: asked.agent.maps] if "agent" in asked else []  # where costs are to be made equal
    for traffic, policy, weight in itertools.product(learned or asked.maps[:1], SEARCHING, asked.penalty_weights):
        found.append(Group("original", traffic, policy, asked.scenarios[True], penalty_weight=weight))
    for device, traffic, policy in itertools.product(devices, asked.maps, SIMPLE):
        found.append(Group("port", traffic, policy, asked.port_scenarios, device))
    if "agent" in asked:
        agent = asked.agent
        every = itertools.product(range(agent.seeds), agent.trained_on, learned)
        for seed, trained_on, traffic in every:
            if trained_on == "many" or traffic == asked.maps[0]:
                given = agent.scenarios, devices[-1], 1.0, trained_on, seed
                found += [Group("original", traffic, name, *given) for name in AGENTS if name in agent]
    return list(dict.fromkeys(found))


def episodes(group: Group, settings: Settings) -> Iterator[tuple[str, int, Episode]]:
    """(policy, scenario, episode) of a group."""
    if group.policy in AGENTS:
        from lockstep.experiments.vehicular_edge.offloading_agent import trained  # only here are networks needed

        yield from trained(group, settings.offloading.agent)
    else:
        job = Job(group.traffic, UNSEEN, group.policy, settings.seed)
        for scenario, episode in of_policy(group, job):
            yield group.policy, scenario, episode


def of_policy(group: Group, job: Job) -> Iterator[tuple[int, Episode]]:
    """(scenario, episode) of a policy that is not trained, from the job's scenario on."""
    if group.form == "port":
        yield from in_port(job, group.scenarios, group.device)
    else:
        params = () if group.penalty_weight == 1.0 else (("penalty_weight", group.penalty_weight),)
        for index in range(job.scenario, job.scenario + group.scenarios):
            yield index, play(job._replace(scenario=index, params=params))


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of a group."""
    about = {key: value for key, value in asdict(group).items() if key in COLUMNS}
    seed = settings.seed if group.seed is None else group.seed
    same = dict.fromkeys(COLUMNS) | {"environment": name, **about, "seed": seed}
    rows, delays = [], {}
    for policy, scenario, episode in episodes(group, settings):
        seen, first = int(scenario < UNSEEN), policy not in delays  # seen by an agent
        here = same | {"policy": policy, "scenario": scenario, "seen": seen}
        rows.append(here | {"level": "episode"} | episode.totals)
        rows += [here | {"level": "route"} | route for route in episode.routes if route["tasks"]]
        delays[policy] = delays.get(policy, 0) + (1 - seen) * episode.delays
        usual = group.form == "original" and group.penalty_weight == 1.0 and group.trained_on != "one"
        if first and usual and not group.seed:
            rows += [here | {"level": "little"} | point for point in episode.little]
            if group.traffic == settings.offloading.maps[0]:
                rows += [here | {"level": "backlog"} | cell for cell in cells(episode.backlogs)]
    return rows + [same | {"policy": policy} | row for policy, tasks in delays.items() for row in of_delays(tasks)]


def of_delays(tasks: np.ndarray) -> Iterator[dict]:
    """Rows of the tasks by delay in s, of which the last place is of longer ones."""
    for seconds, number in enumerate(tasks.tolist()):
        delay = float(seconds) if seconds < len(tasks) - 1 else float("inf")
        yield {"level": "delay", "delay_s": delay, "tasks": number}


def cells(backlogs: np.ndarray) -> Iterator[dict]:
    """Rows of the backlogs [families, T, Ne] at the edges."""
    for place, slot, node in np.ndindex(backlogs.shape):
        value = round(float(backlogs[place, slot, node]), 3)
        yield {"family": EDGE_FAMILIES[place], "slot": slot, "node": node, "backlog_mbit": value}


def report(frame: pd.DataFrame, *_) -> str:
    """Means over episodes on unseen scenarios, as lines to print."""
    keys = ["form", "traffic", "policy", "trained_on", "penalty_weight"]
    lines = [f"{'':58} {'return':>8} {'cost':>7} {'success':>8} {'on time':>8}"]
    unseen = frame[(frame["level"] == "episode") & (frame["seen"] == 0)]
    for key, rows in unseen.groupby(keys, dropna=False, sort=False):
        means = rows[["return", "cost", "success", "on_time"]].astype(float).mean()
        words = " ".join(str(word) for word in key if word == word)
        lines.append("{:58} {:8.3f} {:7.3f} {:8.3f} {:8.3f}".format(words, *means))
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    originals.allot(request.options.cores)
    todo = by_label(groups(settings, request.devices))
    of_group = functools.partial(measure, name, settings=settings)
    return Plan(todo, originals.side_by_side(of_group, request.devices[-1]), config=request.asked())


EXPERIMENT = Experiment(COLUMNS, plan, report, timed=False, in_pieces=True)
