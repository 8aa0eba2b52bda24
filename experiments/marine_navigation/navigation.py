"""Agents of marine navigation: trained in the port on a curriculum, played on the published episodes.

An agent plays the published evaluation set in the port at points of its training, and at its end what policies play, in
both forms; where its network tells how returns are distributed, with several risks.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lockstep.envs.marine_navigation.params import make_params
from lockstep.envs.marine_navigation.scenario import CURRICULA, EVALUATIONS, Stages
from lockstep.envs.marine_navigation.scenario.curriculum import EVALUATION_SEEDS, PER_STAGE
from lockstep.experiments import experiment, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Plan, Request, by_label
from lockstep.experiments.marine_navigation import episodes

COLUMNS = [
    *("environment", "part", "form", "device", "version", "preset", "policy", "variant", "risk", "seed"),
    *("env_steps", "wall_s", "batch_size", "parameters", *episodes.COLUMNS),
]
# part: curve | final. risk: share of the worst returns whose mean chooses actions, or "adaptive"; empty where a network
# knows means alone. env_steps, wall_s: of training so far. batch_size: samples of an update.
CORRECTED = "corrected"  # the variant of the settings as they are
RISKS = {"adaptive": {"cvar_gap": 10.0}}  # others are a share


@dataclass(frozen=True)
class Group(experiment.Group):
    """Rows of one training."""

    version: str
    preset: str
    policy: str  # an algorithm
    variant: str  # corrected, or other settings by their name
    seed: int
    device: str = "cpu"


def groups(settings: Settings, devices: Sequence[str]) -> list[Group]:
    """The groups of the settings, all agents' first seeds before others."""
    every, kind = settings.navigation.trained, kind_of(devices[-1])
    return [
        Group(asked.version, asked.preset, policy, asked.variant, seed, devices[-1])
        for seed, asked in itertools.product(range(max(asked.seeds[kind] for asked in every)), every)
        for policy in asked.agents
        if seed < asked.seeds[kind]
    ]


def kind_of(device: str) -> str:
    """A device's kind, cpu or cuda."""
    return device.partition(":")[0]


def config_of(name: str, group: Group, settings: Settings):
    """Every setting of a group's training; ValueError where the settings are none of the algorithm."""
    from lockstep import agents
    from lockstep.agents.run import config

    asked, algorithm = settings.navigation, agents.algorithm(group.policy)
    own = asked.versions[group.version].agents[group.policy].plain()
    given = asked.settings[kind_of(group.device)].plain() | {"seed": group.seed}
    if group.variant != CORRECTED:
        variant = asked.variants[group.variant].plain()
        given |= variant.get("all", {}) | variant.get(group.policy, {})
    larger, published = given.pop("larger_batches", 1), config.config_of(algorithm, name, **own)
    shorter = given["total_steps"] / published.total_steps
    changed = {"epsilon_steps": max(1, round(published.epsilon_steps * shorter))}  # the same share of every training
    changed |= {"batch_size": published.batch_size * larger, "replay_ratio": published.replay_ratio / larger}
    found = config.config_of(algorithm, name, **(own | changed | given))
    options = [found.options, f"version={group.version}", f"preset={group.preset}"]
    return dataclasses.replace(found, options=", ".join(filter(None, options)))


def risks(group: Group, settings: Settings) -> dict[str | None, dict]:
    """The risks that a trained agent plays with, and what each changes in its settings; the first is its own."""
    named = settings.navigation.versions[group.version].get("risks", {}).get(group.policy, (None,))
    return {risk: {} if risk is None else RISKS.get(risk, {"cvar": risk}) for risk in named}


@dataclass(frozen=True)
class Trained:
    """A trained agent, as `episodes.Player` has one."""

    environment: str
    algorithm: str
    config: object
    weights: Mapping  # arrays
    robots: int  # A of what it plays
    device: str = "cpu"

    def __call__(self, numbers: np.ndarray) -> episodes.Act:
        import torch

        from lockstep import agents
        from lockstep.experiments.scoring import converted

        torch.set_num_threads(1)  # several play side by side
        kind = agents.algorithm(self.algorithm)
        config = dataclasses.replace(self.config, options=f"{self.config.options}, robots={self.robots}")
        run = kind(self.environment, kind.to_act(config), self.device)
        run.load_weights(converted(self.weights, lambda array: torch.from_numpy(array).to(self.device)))
        return remembering(run.act)


def remembering(act: episodes.Act) -> episodes.Act:
    """The same policy, asked for rows that have changed alone: who has finished sees the same again."""
    seen = action = None

    def remembered(obs):
        nonlocal seen, action
        if seen is None:
            action = act(obs)
        elif (new := (obs != seen).any(dim=-1)).any():
            action = action.clone()
            action[new] = act(obs[new])
        seen = obs.clone()
        return action

    return remembered


def measure(name: str, settings: Settings, group: Group) -> list[dict]:
    """The rows of a group: episodes at points of its training, and at its end."""
    same = dict.fromkeys(COLUMNS) | {"environment": name, **dataclasses.asdict(group)}
    rows = []
    for about, played in of_training(name, group, settings):
        rows += [same | about | row for row in played.to_dict("records")]
    return rows


def of_training(name: str, group: Group, settings: Settings) -> Iterator[tuple[dict, pd.DataFrame]]:
    """(columns that are the same, episodes) of each point and form."""
    config = config_of(name, group, settings)
    points, policies, parameters = trained(name, group, settings, config)
    along, final = evaluations(name, group, settings, config)
    own, *others = risks(group, settings).items()

    def player(evaluation, risk: Mapping, policy: Mapping = policies[-1], device: str = group.device) -> Trained:
        robots = max(int(setting[0]) for setting in evaluation.settings)
        return Trained(name, group.policy, dataclasses.replace(config, **risk), policy, robots, device)

    def about(part: str, form: str, risk, point: Mapping = points[-1]) -> dict:
        known = {"part": part, "form": form, "risk": risk, "env_steps": point["env_steps"], "wall_s": point["wall_s"]}
        return known | {"batch_size": config.batch_size, "parameters": parameters}

    for point, policy in zip(points, policies, strict=True):
        played = along.in_port(player(along, own[1], policy), group.device)
        yield about("curve", "port", own[0], point), played
    for risk, changed in (own, *others):
        yield about("final", "port", risk), final.in_port(player(final, changed), group.device)
    if group.seed == 0:
        played = final.in_original(player(final, own[1], device="cpu"), settings.navigation.episodes.original)
        yield about("final", "original", own[0]), played


def evaluations(name: str, group: Group, settings: Settings, config) -> list[episodes.Evaluation]:
    """The published evaluation set, for a curve, and at the end the episodes that policies play."""
    from lockstep.agents.run.environment import options_of

    asked, of_version = settings.navigation, settings.navigation.versions[group.version]
    given = {key: value for key, value in options_of(config.options).items() if key == "action_kind"}
    along = make_params(group.version, group.preset, stop_at_collision=True, **given)
    final = episodes.parameters(group.version, group.preset, of_version, **given)
    published = EVALUATIONS[group.version], PER_STAGE, EVALUATION_SEEDS[group.version]
    return [
        episodes.Evaluation(name, along, *published, settings.seed),
        episodes.Evaluation(name, final, of_version.settings, asked.episodes.port, asked.seed, settings.seed),
    ]


def trained(name: str, group: Group, settings: Settings, config) -> tuple[list[dict], list[dict], int]:
    """Rows and policies at points of one training, and the number of its parameters."""
    import torch

    from lockstep import agents
    from lockstep.agents.run.environment import of_run
    from lockstep.experiments.learning_workers import lockstep

    asked, algorithm = settings.navigation, agents.algorithm(group.policy)
    config = dataclasses.replace(config, threads=originals.cores())
    torch.set_num_threads(algorithm.torch_threads(config))
    known = CURRICULA[group.version][asked.versions[group.version].curriculum].settings
    stages = Stages(tuple(config.total_steps * n // len(known) for n in range(len(known))), known)
    where, threads = torch.device(group.device), config.threads
    env = of_run(name, config.num_envs, where, threads, config.options, seed=config.seed, curriculum=stages)
    points, policies, run = lockstep.curve(algorithm, env, config, group.device, asked.points)
    return points, policies, run.parameter_count


def report(frame: pd.DataFrame, *_) -> str:
    """Shares of success at the end, as lines to print."""
    lines = [f"{'':90} {'success':>8} {'time, s':>8} {'env steps':>10}"]
    keys = ["version", "preset", "policy", "variant", "risk", "robots", "cores", "obstacles", "form"]
    for key, rows in frame[frame["part"] == "final"].groupby(keys, sort=False, dropna=False):
        means = rows[["success", "time_s", "env_steps"]].astype(float).mean()
        words = " ".join(str(word) for word in key if word == word and word is not None)
        lines.append("{:90} {:8.3f} {:8.1f} {:10.0f}".format(words, *means))
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    originals.allot(request.options.cores)
    todo = groups(settings, request.devices)
    resolved = {group.label: dataclasses.asdict(config_of(name, group, settings)) for group in todo}
    of_group = functools.partial(measure, name, settings)
    measuring = originals.side_by_side(of_group, request.devices[-1])
    return Plan(by_label(todo), measuring, config=request.asked(settings=resolved))


EXPERIMENT = Experiment(COLUMNS, plan, report, timed=False, originals=True, in_pieces=True)
