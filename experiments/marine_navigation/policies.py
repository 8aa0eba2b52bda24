"""Policies without learning in the original and in the port: success, time, energy, collisions by kind."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lockstep.envs.marine_navigation import policies
from lockstep.envs.marine_navigation.params import Params
from lockstep.experiments import experiment, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Plan, Request, by_label, each
from lockstep.experiments.marine_navigation import episodes

COLUMNS = ["environment", "form", "device", "version", "preset", "policy", *episodes.COLUMNS]


@dataclass(frozen=True)
class Group(experiment.Group):
    """Rows that are measured and journalled in one piece."""

    form: str  # original | port
    version: str
    preset: str
    policy: str
    device: str = "cpu"


def groups(settings: Settings, devices: Sequence[str]) -> list[Group]:
    asked, found = settings.policies, []
    for (version, evaluation), preset in itertools.product(asked.versions.items(), asked.presets):
        for policy in evaluation.policies:
            found.append(Group("original", version, preset, policy))
            found += [Group("port", version, preset, policy, device) for device in devices]
    return found


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of a group."""
    asked, of_version = settings.policies, settings.policies.versions[group.version]
    fewer, most = asked.episodes
    params = episodes.parameters(group.version, group.preset, of_version)
    evaluation = episodes.Evaluation(name, params, of_version.settings, most, asked.seed, settings.seed)
    player = functools.partial(acting, group.policy, params, settings.seed)
    rows = evaluation.in_port(player, group.device) if group.form == "port" else evaluation.in_original(player, fewer)
    return rows.assign(environment=name, **vars(group))[COLUMNS].to_dict("records")


def acting(policy: str, params: Params, seed: int, numbers: np.ndarray) -> episodes.Act:
    """A policy as a function of observations that counts its calls."""
    clock = itertools.count()
    return lambda seen: policies.POLICIES[policy](seen, params, policies.Noise(seed, numbers, next(clock)))


def report(frame: pd.DataFrame, *_) -> str:
    """Means over episodes, as lines to print."""
    lines = [f"{'':62} {'success':>8} {'time, s':>8} {'energy':>9} {'hit robot':>10} {'obstacle':>9}"]
    keys = ["version", "preset", "robots", "cores", "obstacles", "policy", "form", "device"]
    for key, rows in frame.groupby(keys, sort=False):
        means = rows[["success", "time_s", "energy", "hit_robot", "hit_obstacle"]].astype(float).mean()
        lines.append("{:62} {:8.3f} {:8.1f} {:9.1f} {:10.2f} {:9.2f}".format(" ".join(map(str, key)), *means))
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    originals.allot(request.options.cores)
    todo = by_label(groups(settings, request.devices))
    return Plan(todo, each(lambda group: measure(name, group, settings)), config=request.asked())


EXPERIMENT = Experiment(COLUMNS, plan, report, timed=False, originals=True)
