"""Small results written by hand, whose tables and ratios can be worked out in the head."""

import csv
import itertools
import json
from pathlib import Path

from lockstep.experiments import config, conformance, crossing, peers, scaling
from lockstep.experiments.ledger import checksums, provenance

BLOCKS = 6  # the fewest that have an interval of the median
B = 8192
HERE = {
    "label": "Tiny CPU, 2 cores",
    "cpu": "Tiny CPU",
    "cores": 2,
    "memory_gib": 4.0,
    "os": "Linux",
    "gpu": None,
}
BIG = HERE | {"label": "Big CPU, 16 cores, Big GPU", "cores": 16, "gpu": "Big GPU"}
COLUMNS = {
    "throughput": "environment rung device num_envs threads fused_steps policy obs dtype bytes_per_step "
    "block steps wall_s cpu_s first_call_s",
    "ceilings": "quantity device size_bytes threads block amount unit wall_s",
    "correctness": "environment level pair device dtype quantity cases error tolerance differing allowed "
    "value low high p_value passed",
    "breakdown": "environment vehicles operation form device num_envs threads dtype block steps wall_s cpu_s",
    "offloading": "environment level form device traffic policy trained_on penalty_weight seed scenario seen route "
    "return earlier_return cost drift success on_time open tasks delay_p50_s delay_p95_s delay_p99_s energy_j jain "
    "dropped_overflow dropped_cap dropped_coverage family node slot backlog_mbit rate_mbps delay_s",
    "policies": "environment form device version preset policy robots cores obstacles episode success episode_length "
    "return time_s energy reached hit_robot hit_obstacle reached_time_s reached_energy",
    "navigation": "environment part form device version preset policy variant risk seed env_steps wall_s batch_size "
    "parameters robots cores obstacles episode success episode_length return time_s energy reached hit_robot "
    "hit_obstacle reached_time_s reached_energy",
    "oracles": "environment part oracle requests batch batch_statistics problem cost_min among_others_min vehicles "
    "status reason",
    "baselines": "environment level set market hold_limit rule seed bars gain growth sharpe holder_sharpe drawdown "
    "turnover fees invested bar value benchmark over_low over over_high",
    "compilation": "environment autoreset_mode dtype obs kernel target registers spill_store_bytes "
    "spill_load_bytes stack_bytes shared_bytes",
    "peers": " ".join(peers.COLUMNS),
    "conformance": " ".join(conformance.COLUMNS),
    "crossing": " ".join(crossing.COLUMNS),
    "transfer": "environment loop source device memory num_envs threads part clock block calls wall_s bytes copies",
    "weak_scaling": "environment algorithm part ranks cores rank num_envs block iterations env_steps calls bytes "
    "per_iteration wall_s cpu_s sum_s",
    "learning": "environment part agent variant recipe device threads num_envs horizon epochs minibatches hidden "
    "members seed block env_steps wall_s cpu_s rollout_s advantage_s update_s first_call_s gpu_memory_mib score "
    "score_sampled solved parameters version status reason",
}


def rates(rung: str, rate: int, num_envs: int = B, device: str = "cpu", **columns) -> list[dict]:
    """Blocks of one second each, all with the same rate; two threads spend two CPU-seconds."""
    row = {"environment": "cartpole", "rung": rung, "device": device, "num_envs": num_envs, "threads": 1}
    row |= {"fused_steps": 1, "policy": "random", "obs": "copy", "dtype": "float32", "bytes_per_step": ""}
    row |= columns
    row |= {"steps": rate, "wall_s": 1.0, "cpu_s": float(row["threads"]), "first_call_s": 0.5}
    return [row | {"block": block} for block in range(BLOCKS)]


def ceiling(quantity: str, rate: float, size: int | str = "", device: str = "cpu") -> list[dict]:
    units = {"copy": "byte", "fp32": "flop", "launch": "launch", "graph-node": "node"}
    row = {"quantity": quantity, "device": device, "size_bytes": size, "threads": 1, "unit": units[quantity]}
    return [row | {"block": block, "amount": rate, "wall_s": 1.0} for block in range(BLOCKS)]


def write(
    root: Path,
    recorded: str | None,
    experiment: str,
    rows: list[dict],
    machine: dict,
    *,
    changed: bool = False,
    environment: str | None = "cartpole",
    **about,
) -> None:
    """One result, measured here or recorded under a machine's name. Its one source is a file."""
    kernel = root / "kernel.txt"
    kernel.write_text("the kernel")
    environment = None if experiment == "ceilings" else environment
    folder = root / "results" / (f"recorded/{recorded}" if recorded else "") / (environment or "")
    folder.mkdir(parents=True, exist_ok=True)
    later = ["algorithm", "settings"]  # which older recordings lack
    if experiment == "scaling":
        columns = scaling.columns_of(config.load(environment, "full").scaling)
    else:
        columns = COLUMNS[experiment].split()
    columns += [name for name in later if any(name in row for row in rows)]
    with open(folder / f"{experiment}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    described = {
        "environment": environment,
        "experiment": experiment,
        "scale": "quick",
        "commit": "0123456789abcdef",
        "dirty": False,
        "started": "2026-01-02T03:04:05Z",
        "wall_s": 60.0,
        "cpu_s": 90.0,
        "sources": {"kernel.txt": "0" * 64} if changed else provenance.hashes(["kernel.txt"], root),
        "machine": machine,
        "packages": {"python": "3.11.2", "torch": "2.13.0"},
    }
    (folder / f"{experiment}.json").write_text(json.dumps(described | about))
    if recorded:
        signed = root / "results" / "recorded" / recorded
        checksums.sign(signed, sorted(signed.rglob("*.*")))


def check(level: str, quantity: str, cases: int, **found) -> dict:
    row = {"environment": "cartpole", "device": "cpu", "dtype": "float32", "pair": "original-port"}
    return row | {"level": level, "quantity": quantity, "cases": cases} | found


CHECKS = [
    check("transition", "x", 1_000_000, error=2e-7, tolerance=1e-6, passed=True),
    check("transition", "theta (a variant)", 500_000, error=5e-7, tolerance=1e-6, passed=True),
    check("transition", "terminated", 1_000_000, differing=3, allowed=10, passed=True),
    check("transition", "terminated near a threshold", 6, differing=1, allowed=6, passed=True),
    # Told, not judged.
    check("episode", "first step more than 0.01 apart: median, 5 %, 95 %", 200, value=113, low=99, high=146),
    check("distribution", "return", 10_000, value=-0.1, low=-0.5, high=0.25, p_value=0.04, passed=False),
]


def build(target: str, dtype: str, registers: int, spilled: int = 0) -> dict:
    row = {"environment": "cartpole", "kernel": "step", "autoreset_mode": "SameStep", "obs": "copy"}
    row |= {"target": target, "dtype": dtype, "registers": registers, "spill_store_bytes": spilled}
    return row | {"spill_load_bytes": 0, "stack_bytes": 0, "shared_bytes": 0}


KERNELS = [build("sm_80", "float32", 32), build("sm_80", "float64", 40), build("sm_90", "float32", 30, 8)]


def iterations(ranks: int, wall_s: float, cpu_s: float = 0.1, sum_s: float = 0.0, **columns) -> list[dict]:
    """Blocks of two iterations of as many ranks on two cores, each with 100 environment steps."""
    row = {"environment": "cartpole", "algorithm": "ppo", "part": "training", "ranks": ranks, "cores": 2}
    row |= {"num_envs": 10, "per_iteration": None, "iterations": 2, "env_steps": 200 * ranks, "calls": 8 * (ranks > 1)}
    row |= {"bytes": 8000 * (ranks > 1), "wall_s": 2 * wall_s, "cpu_s": 2 * cpu_s, "sum_s": 2 * sum_s} | columns
    return [row | {"rank": rank, "block": block} for rank in range(ranks) for block in range(BLOCKS)]


def alone(ranks: int, size: int, seconds: float, per_iteration: int = 0) -> list[dict]:
    """Blocks of ten sums of so many bytes."""
    about = {"part": "sum", "iterations": None, "env_steps": None, "per_iteration": per_iteration, "calls": 10}
    return iterations(ranks, 5 * seconds, seconds, bytes=10 * size, **about)


# Sums of two take 2 ms and 1 s for each MB. Of an iteration there are four, of 1,000 bytes each: 12 ms.
RANKS = [
    *iterations(1, 0.1),
    *iterations(2, 0.125, sum_s=0.025),
    *alone(2, 1000, 0.003, per_iteration=4),
    *alone(2, 1_000_000, 1.002),
    *iterations(4, 0.25, cpu_s=0.125, sum_s=0.1),
    *alone(4, 1000, 0.03, per_iteration=4),
]


def here(root: Path) -> None:
    """The reader's machine: no GPU, every experiment."""
    rows = rates("original", 100, 1) + rates("gymnasium-vector", 50_000)
    rows += rates("port-cpu", 200_000, bytes_per_step=10) + rates("port-cpu", 300_000, threads=2, bytes_per_step=10)
    rows += rates("port-cpu-fused", 600_000, fused_steps=128) + rates("port-cpu", 50_000, 1)
    write(root, None, "throughput", rows, HERE)
    write(root, None, "ceilings", ceiling("copy", 4e6, 81920) + ceiling("fp32", 1.2e7), HERE)
    write(root, None, "correctness", CHECKS, HERE)
    write(root, None, "compilation", KERNELS, HERE, scale=None)


def big(root: Path) -> None:
    """A recorded machine with a GPU, whose original is half as fast as the reader's."""
    rows = rates("original", 50, 1) + rates("port-cuda-graph", 1_000_000, device="cuda")
    write(root, "big", "throughput", rows, BIG)


def bare(root: Path) -> None:
    """A recorded GPU machine without Gymnasium, measured with other code."""
    rows = rates("port-cuda-graph", 4_000_000, device="cuda") + rates("port-cuda-constant", 819_200, device="cuda")
    write(root, "bare", "throughput", rows, BIG, changed=True)


def learnt(part, agent="lockstep", **about):
    """A row of learning.csv; what is not said is that of CleanRL's recipe on one thread."""
    work = {"recipe": "cleanrl", "device": "cpu", "threads": 1, "num_envs": 1024, "horizon": 32, "hidden": "64 64"}
    work |= {"epochs": 4, "minibatches": 4, "members": 1}
    return {"environment": "cartpole", "part": part, "agent": agent, "status": "measured"} | work | about


def training(part, agent, rate, **about):
    """Six blocks of two seconds of wall time each; two threads spend four CPU-seconds."""
    timed = {"env_steps": 2 * rate, "wall_s": 2.0, "cpu_s": 2.0 * about.get("threads", 1)}
    return [learnt(part, agent, block=block, **timed | about) for block in range(6)]


def seeds(part, scores, agent="lockstep", **about):
    return [learnt(part, agent, seed=seed, score=score, **about) for seed, score in enumerate(scores)]


def solved(agent, seconds, limit=100.0, **about):
    """A row for each seed's seconds; None was not solved within the limit. A thousand steps take one second."""
    return [
        learnt("solve", agent, seed=seed, env_steps=1000 * (taken or limit), wall_s=taken or limit, **about)
        | {"solved": int(taken is not None), "score": 500.0 if taken else 20.0}
        for seed, taken in enumerate(seconds)
    ]


PHASES = {"rollout_s": 0.5, "advantage_s": 0.1, "update_s": 1.3}
LEARNING = [
    *(
        learnt("curve", seed=seed, env_steps=1000 * k, wall_s=k / 2, score=100.0 * k)
        for seed in range(5)
        for k in (1, 2)
    ),
    *seeds("final", [0, 480, 490, 500, 500], score_sampled=400, env_steps=131_072, wall_s=1.5),
    *seeds("final", [22], "random"),
    *solved("lockstep", [1.0, 2.0, 3.0, 4.0, 5.0] * 2, variant="warm"),
    *solved("lockstep", [7.0], variant="first"),
    *solved("sb3", [30.0, None], variant="warm", version="2.9.0", reason="Gymnasium's environments"),
    *training("rate", "lockstep", 200_000, **PHASES),
    *training("rate", "lockstep", 400_000, threads=2, **PHASES),
    *training("rate", "sb3", 10_000, version="2.9.0"),
    *training("rate", "sb3-adapter", 40_000, num_envs=8),
    learnt("rate", "rejax", status="not measured", reason="rejax is not installed"),
    *training("scaling", "lockstep", 100_000, num_envs=64, **PHASES),
    *training("scaling", "lockstep", 300_000, num_envs=4096, **PHASES),
    *seeds("scaling", [490, 500, 495], variant="equal steps", num_envs=64, env_steps=262_144, wall_s=2.0),
    *seeds("scaling", [90, 100, 80], variant="equal steps", num_envs=4096, env_steps=262_144, wall_s=0.8),
    *seeds("scaling", [300, 320, 310], variant="equal seconds", num_envs=4096, env_steps=600_000, wall_s=2.0),
    *training("ablation", "lockstep", 100_000, variant="gradient by autograd"),
    *seeds("ablation", [100, 200, 300, 400, 500], variant="no bootstrap"),
]


def learning(root: Path) -> None:
    """Training of CartPole on the reader's machine, in several processes as well."""
    write(root, None, "learning", LEARNING, HERE)
    write(root, None, "weak_scaling", RANKS, HERE)


EDGE = "vehicular_edge"


def operation(name: str, form: str, milliseconds: float, num_envs: int = 1, device: str = "cpu") -> list[dict]:
    """Blocks of an operation that takes a slot of one environment so long."""
    row = {"environment": EDGE, "vehicles": 70, "operation": name, "form": form, "device": device}
    row |= {"num_envs": num_envs, "threads": 1, "steps": 1000, "wall_s": milliseconds, "cpu_s": milliseconds}
    return [row | {"block": block} for block in range(BLOCKS)]


OPERATIONS = [
    *operation("queue_update", "original", 8.0),
    *operation("queue_update", "arrays-numpy", 2.0, 64),
    *operation("queue_update", "port-cpu", 0.02, 1024),
    *operation("noma", "original", 4.0),
    *operation("noma", "arrays-numpy", 0.5, 64),
    *operation("step", "original", 20.0),
    *operation("step", "arrays-numpy", 4.0, 64),
    *operation("step", "port-cpu", 0.1, 1024),
]


def fleet(rung: str, rate: int, vehicles: int, num_envs: int, gains: str = "stored", **columns) -> list[dict]:
    """Blocks of one second each of a fleet of so many vehicles."""
    row = {"environment": EDGE, "rung": rung, "device": "cpu", "preset": "physical", "traffic": "city", "gains": gains}
    row |= {
        "edges": 9,
        "dtype": "float32",
        "vehicles": vehicles,
        "num_envs": num_envs,
        "threads": 1,
        "bytes_per_env": 2**14,
    }
    row |= {"bytes_per_scenario": vehicles * 2**13, "steps": rate, "wall_s": 1.0, "cpu_s": 1.0}
    return [row | {"status": "measured", "block": block} | columns for block in range(BLOCKS)]


FLEETS = [
    *fleet("original-indexed", 50, 30, 1),
    *fleet("port-cpu", 5000, 30, 1),
    *fleet("port-cpu", 20_000, 30, 1024),
    *fleet("port-cpu", 2000, 150, 1024),
    *fleet("port-cpu", 1000, 150, 1024, "drawn", bytes_per_scenario=2**17),
    *fleet("port-cpu", 600, 150, 1),
    *fleet("original", 10, 70, 1, preset="original", traffic="sparse"),
    *fleet("original", 20, 70, 1, traffic="sparse"),
    *fleet("port-cpu-scenarios", 2000, 70, 1024, preset="original", traffic="sparse"),
    *fleet("port-cpu-scenarios", 6000, 70, 1024, traffic="sparse"),
    *fleet("port-cpu-scenarios", 5000, 70, 1024, preset="original", traffic="sparse", threads=2, cpu_s=2.0),
]
TOO_LARGE = dict.fromkeys(["block", "steps", "wall_s", "cpu_s"], "")
TOO_LARGE |= {"status": "not measured", "reason": "it needs 9.0 GiB"}
FLEETS += fleet("port-cpu", 0, 500, 1024, **TOO_LARGE)[:1]


EPISODES = 6


def offloaded(policy: str, on_time: float, cost: float, weight: float = 1.0, **about) -> list[dict]:
    """Rows of all levels of a policy on one map: equal episodes; half of the tasks take 2 s, the rest 9 or for ever."""
    row = {"environment": EDGE, "form": "original", "device": "cpu", "traffic": "arterial", "policy": policy}
    row |= {"penalty_weight": weight, "seed": 0, "seen": 0} | about
    means = {"return": 20 * on_time, "cost": cost, "drift": 0.1, "success": 0.9, "on_time": on_time, "open": 0}
    means |= {"tasks": 100, "earlier_return": 9 - 20 * on_time}
    means |= {"energy_j": 2e5, "jain": 0.8, "dropped_overflow": 4, "dropped_cap": 5, "dropped_coverage": 1}
    rows = [row | means | {"level": "episode", "scenario": 1000 + number} for number in range(EPISODES)]
    delays = {"delay_p50_s": 2.0, "delay_p95_s": 9.0, "delay_p99_s": "inf"}
    rows += [row | means | delays | {"level": "route", "route": "all", "scenario": one["scenario"]} for one in rows]
    if weight != 1.0:
        return rows
    tasks = {2.0: 50, 9.0: 40, "inf": 10}
    rows += [row | {"level": "delay", "delay_s": delay, "tasks": count} for delay, count in tasks.items()]
    for family, node, slot in itertools.product(("v2i", "i2i", "ec"), range(2), range(2)):
        cell = {"family": family, "node": node, "slot": slot, "backlog_mbit": 10 + slot}
        rows.append(row | cell | {"level": "backlog"})
    little = {"level": "little", "family": "lc", "rate_mbps": 4.0, "delay_s": 2.5, "backlog_mbit": 10.0}
    return [*rows, row | little]


POLICIES = [
    *offloaded("local", 0.5, 0.2),
    *offloaded("greedy", 0.75, 0.4),
    *offloaded("backpressure", 0.8, 0.3),
    *offloaded("backpressure", 0.6, 0.1, weight=10.0),
    *offloaded("ppo", 0.85, 0.3, trained_on="many"),
    *offloaded("ppo", 0.7, 0.35, trained_on="one"),
    *offloaded("mappo", 0.6, 0.3, trained_on="many"),
    *offloaded("ppo", 0.9, 0.3, trained_on="one", seen=1),
]


def edge(root: Path, recorded: str | None = None) -> None:
    """The environment that has a large state, on the reader's machine or recorded from another without a GPU."""

    def of_edge(*parts: list[dict]) -> list[dict]:
        return [row | {"environment": EDGE} for part in parts for row in part]

    measured = of_edge(
        rates("original", 50, 1),
        rates("original-indexed", 80, 1),
        rates("arrays-numpy", 500, 256),
        rates("port-cpu", 4000, 1) + rates("port-cpu", 20_000, 1024) + rates("port-cpu", 36_000, 1024, threads=2),
        rates("port-cpu-scenarios", 16_000, 1024),
        rates("port-cpu-fused", 40_000, 1024, fused_steps=10),
    )
    checks = of_edge(
        [
            check("transition", "queues (physical)", 500, error=3e-12, tolerance=1e-10, dtype="float64", passed=True),
            check("transition", "queues (physical)", 500, error=2e-6, tolerance=1e-4, passed=True),
            check("transition", "reward (original)", 500, error=0.0, tolerance=1e-5, passed=True),
            check("transition", "admitted", 500, differing=0, allowed=0, passed=True),
        ]
    )
    for experiment, rows in (
        ("throughput", measured),
        ("correctness", checks),
        ("breakdown", OPERATIONS),
        ("scaling", FLEETS),
        ("offloading", POLICIES),
        ("compilation", of_edge(KERNELS)),
    ):
        write(root, recorded, experiment, rows, HERE, environment=EDGE)
