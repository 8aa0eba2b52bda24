"""Learning: curves and final scores in the original, time to solve, rates end to end, beside other libraries.

Agents train by agents/recipes/<environment>.yaml where the section says nothing else. Nothing runs beside what is
timed: other libraries have processes of their own, one after the other, and episodes for scores are played when
clocks stand still.
"""

import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of

from lockstep import agents
from lockstep.experiments import UserError, config, curves, learning_workers
from lockstep.experiments.bench import timing
from lockstep.experiments.experiment import MISSING, Experiment, Plan, Request, each
from lockstep.experiments.learning_workers import Job, NotMeasured, rejax, sb3, sb3_adapter
from lockstep.reading import nearest

OF_THE_SETTINGS = {  # columns and the settings that they show, empty where an algorithm has none of the name
    **{name: name for name in ("num_envs", "horizon", "epochs", "minibatches", "hidden")},
    "members": "population",
}
COLUMNS = ["environment", "part", "algorithm", "agent", "variant", "recipe", "settings", "device", "threads"]
COLUMNS += OF_THE_SETTINGS
COLUMNS += ["seed", "block", "env_steps", "wall_s", "cpu_s", "rollout_s", "advantage_s", "update_s", "first_call_s"]
COLUMNS += ["gpu_memory_mib", "score", "score_sampled", "solved", "parameters", "version", "status", "reason"]
OF_THE_TASK = ("solved", "aim", "above_random", "reference")  # keys of the section; all others are algorithms
OURS = "lockstep"
PEERS = {module.TITLE: module for module in (sb3, sb3_adapter, rejax)}
CACHES = ("LOCKSTEP_CACHE", "CUPY_CACHE_DIR")  # variables that name the folders of compiled kernels
ENDLESS = 2**50  # steps, which no run here comes to
SEED_OF_WARM_UP = 10_000  # of the run before the warm ones; no seed that is measured


@dataclass(frozen=True)
class Group:
    """Rows that are measured and journalled in one piece."""

    part: str  # curve (with final) | final | solve | rate | scaling | ablation
    algorithm: str | None  # None: of a policy that is not trained
    agent: str
    device: str
    settings: Mapping  # a recipe's name and what differs from it; the environment's own where empty
    variant: str | None = None
    seeds: tuple[int, ...] = ()
    points: int = 0  # of a curve
    episodes: int = 0  # of a point of a curve
    blocks: int = 0  # of a rate
    seconds: float = 0.0  # that a run may take
    threads: int = 0  # of a peer; 0: as many as torch takes


@dataclass
class Bench:
    """Parts that groups share while they are measured."""

    environment: str
    gymnasium_id: str
    solved: float | None
    reference: Mapping | None
    scorer: object  # scoring.Scorer
    warm: set  # what has run once in this process, so that no clock sees a compiler
    threads: int  # for whoever trains


# ---- What is measured ----------------------------------------------------------------------------------------------


def groups(learning: Mapping, devices: list[str]) -> list[Group]:
    """Groups that a section asks for at a scale, algorithm by algorithm; UserError where one is none."""
    by_algorithm = {name: learning[name] for name in sorted(learning) if name not in OF_THE_TASK}
    for name in by_algorithm:
        if name not in agents.names():
            raise UserError(f"there is no algorithm {name!r}{nearest(name, agents.names())}")
    found = []
    if any("curves" in asked for asked in by_algorithm.values()):
        untrained = ("random", "reference")[: 1 + ("reference" in learning)]
        found += [Group("final", None, agent, "cpu", {}) for agent in untrained]
    for algorithm, asked in by_algorithm.items():
        found += of_algorithm(algorithm, asked, devices)
    return found


def of_algorithm(algorithm: str, learning: Mapping, devices: list[str]) -> list[Group]:
    """Groups asked for of one algorithm. Scores are of the fastest device present, times of each."""
    last, found = devices[-1], []
    ours = functools.partial(Group, algorithm=algorithm, agent=OURS)
    if asked := learning.get("curves"):
        points = {"points": asked["points"], "episodes": asked["episodes"]}
        seeds = range(asked["seeds"])
        found += [ours("curve", device=last, settings={}, seeds=(seed,), **points) for seed in seeds]
    if asked := learning.get("solve"):
        same = {"part": "solve", "settings": {}}
        for device in devices:
            for variant in ("first", "cold", "warm"):
                seeds = range(asked.get(variant, 0))
                found += [ours(**same, device=device, variant=variant, seeds=(seed,)) for seed in seeds]
        for peer in asked.get("peers", []):
            more = {"seeds": tuple(range(peer["seeds"])), "threads": peer.get("threads", 0)}
            found.append(Group(**same, algorithm=algorithm, agent=peer["agent"], device="cpu", **more))
    for asked in learning.get("finals", []):
        same = {"settings": asked["settings"], "threads": asked.get("threads", 0)}
        for agent, seed in itertools.product(asked["agents"], range(asked["seeds"])):
            on = last if agent == OURS else "cpu"
            found.append(Group("final", algorithm, agent, on, seeds=(seed,), **same))
    for asked in learning.get("together", []):
        same = {"part": "solve", "settings": asked["settings"], "variant": "at once"}
        found += [ours(**same, device=device) for device in devices_of(asked, devices)]
    for asked in learning.get("rates", []):
        for agent in asked["agents"]:
            on = [device for device in devices_of(asked, devices) if agent == OURS or device == "cpu"]
            more = {"seeds": (0,), "blocks": asked["blocks"], "threads": asked.get("threads", 0)}
            found += [Group("rate", algorithm, agent, device, asked["settings"], **more) for device in on]
    found += scaling(ours, learning.get("scaling"), last)
    return found + ablations(ours, learning.get("ablations", []), devices)


def devices_of(asked: Mapping, devices: list[str]) -> list[str]:
    """The devices present on which an entry is measured: all but where it names some."""
    return [device for device in devices if device in asked.get("devices", devices)]


def scaling(ours: Callable[..., Group], asked: Mapping | None, device: str) -> list[Group]:
    """Each number of environments: its rate, its score after equally many steps, and after equally many seconds."""
    found = []
    for num_envs in asked["num_envs"] if asked else []:
        settings = asked["settings"] | {"num_envs": num_envs}
        same = {"part": "scaling", "device": device}
        found.append(ours(**same, settings=settings, seeds=(0,), blocks=asked["blocks"]))
        seeds = [(seed,) for seed in range(asked["seeds"])]
        found += [ours(**same, settings=settings, variant="equal steps", seeds=seed) for seed in seeds]
        if "seconds" in asked:
            same |= {"settings": settings | {"total_steps": ENDLESS}, "seconds": asked["seconds"]}
            found += [ours(**same, variant="equal seconds", seeds=seed) for seed in seeds]
    return found


def ablations(ours: Callable[..., Group], asked: list[Mapping], devices: list[str]) -> list[Group]:
    """Each variant: a rate where it has blocks, final scores where it has seeds."""
    found = []
    for one in asked:
        on = devices_of(one, devices)
        same = {"part": "ablation", "settings": one["settings"], "variant": one["variant"]}
        if "blocks" in one:
            found += [ours(device=device, seeds=(0,), blocks=one["blocks"], **same) for device in on]
        seeds = range(one.get("seeds", 0))
        found += [ours(device=device, seeds=(seed,), **same) for device in on[-1:] for seed in seeds]
    return found


def label(group: Group) -> str:
    """One line that tells a group from every other of its environment."""
    words = [group.part, group.variant, group.algorithm, group.agent, group.device]
    words += [f"{key}={value}" for key, value in group.settings.items()]
    words += [f"threads={group.threads}"] if group.threads else []
    words += [f"seed={group.seeds[0]}"] if len(group.seeds) == 1 and not group.blocks else []
    return " ".join(str(word) for word in words + (["blocks"] if group.blocks else []) if word)


# ---- Measuring -----------------------------------------------------------------------------------------------------


def measure(group: Group, bench: Bench) -> list[dict]:
    """The rows of a group, whole."""
    import torch

    settings = None if group.algorithm is None else settings_of(group, bench)
    try:
        if settings is None:
            found = constant(group, bench)
        elif group.agent in PEERS:
            found = peer(group, bench, settings)
        else:
            torch.set_num_threads(agents.algorithm(group.algorithm).torch_threads(settings))
            warm_up(group, bench, settings)
            found = by_kind(group)(group, bench, settings)
    except NotMeasured as reason:
        found = [{"status": MISSING, "reason": str(reason)}]
    return [about(group, bench, settings) | row for row in found]


def settings_of(group: Group, bench: Bench):
    """Every setting of a group's runs, with its first seed and its threads."""
    from lockstep.agents.run.config import config_of

    settings = config_of(agents.algorithm(group.algorithm), bench.environment, **group.settings)
    changed = {"threads": group.threads or settings.threads or bench.threads}
    changed |= {"seed": group.seeds[0]} if group.seeds else {}
    changed |= {"total_steps": ENDLESS} if group.blocks else {}  # a rate is measured for longer than a run takes
    return dataclasses.replace(settings, **changed)


def warm_up(group: Group, bench: Bench, settings) -> None:
    """One iteration of what will be timed in this process, or, of a run to solve, a whole run of another seed."""
    from lockstep.experiments.learning_workers import lockstep

    algorithm = agents.algorithm(group.algorithm)
    same = (group.part == "solve", group.device, dataclasses.replace(settings, seed=0))
    if group.variant in ("first", "cold", "at once") or same in bench.warm:
        return
    bench.warm.add(same)
    if group.part == "solve":
        other = dataclasses.replace(settings, seed=SEED_OF_WARM_UP)
        lockstep.solve(algorithm, bench.environment, other, group.device, bench.solved)
    else:
        algorithm(bench.environment, settings, group.device).iterate()


def by_kind(group: Group) -> Callable:
    if group.blocks:
        return rate
    return {"curve": curve, "solve": solve}.get(group.part, final)


def about(group: Group, bench: Bench, settings) -> dict:
    """A row with all columns, of which those that are the same for a whole group are filled in."""
    from lockstep.agents import recipes

    filled = {"environment": bench.environment, "device": group.device, "status": curves.MEASURED}
    filled |= {name: getattr(group, name) for name in ("part", "algorithm", "agent", "variant")}
    if settings is not None:
        named = group.settings if "recipe" in group.settings else recipes.of(bench.environment, group.algorithm)
        first = next(iter(agents.algorithm(group.algorithm).RECIPES))
        shown = {column: getattr(settings, name, None) for column, name in OF_THE_SETTINGS.items()}
        filled |= {"recipe": named.get("recipe", first)} | shown | {"hidden": "-".join(map(str, shown["hidden"] or ()))}
        filled |= {"settings": others(group.settings), "threads": settings.threads, "version": installed(group.agent)}
        filled |= {"seed": group.seeds[0]} if len(group.seeds) == 1 and not group.blocks else {}
    return dict.fromkeys(COLUMNS) | filled


def others(settings: Mapping) -> str | None:
    """The settings that differ from a recipe's, without those that have columns of their own; None: there are none."""
    named = {"recipe", "total_steps", *OF_THE_SETTINGS.values()}
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name not in named) or None


def installed(agent: str) -> str | None:
    """The version of what trains."""
    if agent == OURS:
        return f"torch {version_of('torch')}"
    module = PEERS[agent]
    return learning_workers.version(module.__name__.rpartition(".")[2], module.PACKAGE)


def scored(group: Group, bench: Bench, settings, policies: list[Mapping], **options) -> list[float]:
    """The score of each policy in the original."""
    return bench.scorer.scores(bench.environment, group.algorithm, settings, policies, **options)


def curve(group: Group, bench: Bench, settings) -> list[dict]:
    """The points of one run, and its final row."""
    from lockstep.experiments.learning_workers import lockstep

    algorithm = agents.algorithm(group.algorithm)
    rows, policies, run = lockstep.curve(algorithm, bench.environment, settings, group.device, group.points)
    points = scored(group, bench, settings, policies, episodes=group.episodes)
    (sampled,) = scored(group, bench, settings, policies[-1:], greedy=False)
    same = {"parameters": run.parameter_count}
    found = [row | {"score": point} | same for row, point in zip(rows, points, strict=True)]
    return [*found, found[-1] | {"part": "final", "score_sampled": sampled}]


def final(group: Group, bench: Bench, settings) -> list[dict]:
    """One row: the score after the steps, or the seconds, that a run has."""
    from lockstep.experiments.learning_workers import lockstep

    run = agents.algorithm(group.algorithm), bench.environment, settings, group.device
    if group.seconds:
        row, policy = lockstep.for_seconds(*run, group.seconds)
    else:
        rows, policies, _ = lockstep.curve(*run, points=1)
        row, policy = rows[-1], policies[-1]
    return [row | {"score": scored(group, bench, settings, [policy])[0]}]


def solve(group: Group, bench: Bench, settings) -> list[dict]:
    """One row: the time of one seed, in this process once it is warm, or in a new one; or a row per member."""
    from lockstep.experiments.learning_workers import lockstep

    run = agents.algorithm(group.algorithm), bench.environment, settings, group.device
    if group.variant == "at once":
        return lockstep.together(*run, bench.solved)
    if group.variant != "warm":
        with tempfile.TemporaryDirectory() as empty:
            caches = dict.fromkeys(CACHES, empty) if group.variant == "first" else {}
            return learning_workers.ask(OURS, job(group, bench, settings), **caches)
    row, policy, run = lockstep.solve(*run, bench.solved)
    (score,) = scored(group, bench, settings, [policy])
    solved = int(row["solved"] and score >= bench.solved)  # the checks stopped the run, and the original confirms it
    return [row | {"score": score, "solved": solved, "parameters": run.parameter_count}]


def rate(group: Group, bench: Bench, settings) -> list[dict]:
    from lockstep.experiments.learning_workers import lockstep

    algorithm = agents.algorithm(group.algorithm)
    rows, run = lockstep.rates(algorithm, bench.environment, settings, group.device, group.blocks)
    return [row | {"parameters": run.parameter_count} for row in rows]


def constant(group: Group, bench: Bench) -> list[dict]:
    """The score of a policy that is not trained: random actions, or what others published."""
    if group.agent == "reference":
        return [{"score": bench.reference["score"], "status": curves.PUBLISHED, "reason": bench.reference["source"]}]
    from lockstep.agents.run import evaluation

    return [{"score": float(evaluation.random_policy(bench.environment).returns.mean())}]


def peer(group: Group, bench: Bench, settings) -> list[dict]:
    module = PEERS[group.agent]
    if group.algorithm not in module.ALGORITHMS:
        raise NotMeasured(f"measured with {', '.join(module.ALGORITHMS)} only")
    name = module.__name__.rpartition(".")[2]
    return learning_workers.ask(name, job(group, bench, settings))


def job(group: Group, bench: Bench, settings) -> Job:
    return Job(
        group.part,
        group.algorithm,
        bench.environment,
        bench.gymnasium_id,
        dataclasses.asdict(settings),
        group.seeds,
        group.blocks,
        bench.solved or 0.0,
        group.device,
        settings.threads,
    )


def resolved_of(environment: str, group: Group) -> dict:
    """Every field of a group's Config; UserError, with the group's label, where its settings allow none."""
    from lockstep.agents.run.config import config_of  # here, because the paper reads learning.csv without torch

    try:
        return dataclasses.asdict(config_of(agents.algorithm(group.algorithm), environment, **group.settings))
    except ValueError as error:
        raise UserError(f"{label(group)}: {error}") from error


def plan(request: Request) -> Plan:
    name, learning = request.environment, request.settings.learning.plain()
    try:
        todo = {label(group): group for group in groups(learning, request.devices)}
        resolved = {named: resolved_of(name, group) for named, group in todo.items() if group.algorithm is not None}
    except UserError as error:
        raise UserError(f"{config.shown(config.file_of(name))}: learning: {error}") from error
    import torch

    from lockstep import envs
    from lockstep.experiments.scoring import Scorer

    peers = {agent: installed(agent) for agent in sorted({group.agent for group in todo.values()}) if agent in PEERS}
    scorer = request.stack.enter_context(Scorer())  # now, because what follows may start CUDA, which no fork survives
    common = learning.get("solved"), learning.get("reference"), scorer, set(), torch.get_num_threads()
    bench = Bench(name, envs.port(name).gymnasium_id, *common)
    return Plan(
        todo,
        each(lambda group: measure(group, bench)),
        config=request.asked() | {"settings": resolved, "agents": peers},
        conditions={"agents": peers, "threads": torch.get_num_threads()},
        method={"min_block_s": timing.MIN_BLOCK_S, "order": "one after the other; scores when clocks stand still"},
    )


EXPERIMENT = Experiment(COLUMNS, plan, lambda frame, *_: curves.report(frame), in_pieces=True)
