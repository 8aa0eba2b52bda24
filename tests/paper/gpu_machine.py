"""A recording of a GPU machine that never was: recorded CPU rows, and for each GPU setting rows made up by rule.

What a GPU machine would measure is asked of the experiments themselves, so that settings and columns are theirs; only
the figures are invented. The paper must read well with such rows before the first real ones exist. They are for tests
alone and are never shown.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from lockstep import agents, envs
from lockstep.agents.run.config import config_of
from lockstep.experiments import ROOT, ceilings, config, learning, scaling, throughput, transfer
from lockstep.experiments.ledger import checksums, results
from lockstep.experiments.vehicular_edge import breakdown

MACHINE = "made-up-gpu"
GPU = {"gpu": "Made-up GPU", "gpu_memory_gib": 100.0, "driver": "500.00", "cuda": "12.9"}
CORES = 16
CALL_S = {  # of the whole batch while it is small: of a launch, or of all that one step takes
    "arrays-cupy": 2e-4,
    "port-cuda": 6e-6,
    "port-cuda-sync": 1.2e-5,
    "port-cuda-constant": 1.1e-5,
    "port-cuda-no-reset": 1.0e-5,
}
MOST = {"fused": 300e9, "trajectory": 70e9, "mlp": 3e9, "cupy": 2e9}  # steps per second of the largest batches
BANDWIDTH, FP32 = 4e12, 6e13
EDGE_SLOTS = 4e6  # slots per second of the largest batches, of 70 vehicles


def write(root: Path, environments: list[str], blocks: int = 6, machine: str = MACHINE) -> None:
    """The recording under root/results/recorded/<machine>/, of some environments, so many blocks of each setting."""
    folder = root / "results" / "recorded" / machine
    for path, file in recorded_without_gpu().items():
        name = path.parent.name  # none of what belongs to a machine alone
        if name not in ("", *environments):
            continue
        frame, about = results.read(file)
        if "block" in frame:
            frame = frame[~(frame["block"] >= blocks)]
        if "threads" in frame:
            frame = frame.assign(threads=frame["threads"].replace(2, CORES))
        added = ADDED[about["experiment"]](name, frame) if about["experiment"] in ADDED else []
        frame = pd.concat([frame.astype(object), pd.DataFrame(added, columns=frame.columns).astype(object)])
        about["machine"] |= GPU | {"cores": CORES, "label": f"Made-up CPU, {CORES} cores, {GPU['gpu']}"}
        about["started"] = "2026-01-02T03:04:05Z"
        about.pop("busy", None)  # its groups name rows of the recording that it is made of
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(target, index=False)
        about["rows_sha256"] = hashlib.sha256(target.read_bytes()).hexdigest()
        target.with_suffix(".json").write_text(json.dumps(about))
    checksums.sign(folder, [file for file in sorted(folder.rglob("*.*")) if file.name != checksums.SUMS])


def recorded_without_gpu() -> dict[Path, Path]:
    """The rows of every experiment, by their path in a machine's folder; of two machines the last one's."""
    found = {}
    for machine in sorted((ROOT / "results" / "recorded").glob("*/")):
        for described in sorted(machine.rglob("*.json")):
            if json.loads(described.read_text())["machine"]["gpu"] is None:
                rows = described.with_suffix(".csv")
                found[rows.relative_to(machine)] = rows
    return found


def blocks_of(frame: pd.DataFrame) -> range:
    return range(int(frame["block"].max()) + 1)


def timed(rate: float, block: int) -> dict:
    """Steps and seconds of a block; blocks differ by a hundredth or so."""
    wall_s = 0.2 * (1 + 0.004 * (block % 3))
    return {"steps": round(0.2 * rate), "wall_s": wall_s, "cpu_s": wall_s}


def rate_of(name: str, group) -> float:
    """A rate that grows with the batch until the device is full."""
    kind = group.rung.rpartition("-")[2]
    if envs.port(name).of("lanes") > 1:
        call_s, most = (6e-3, EDGE_SLOTS / 20) if kind == "cupy" else (8e-5, EDGE_SLOTS)
    else:
        call_s, most = CALL_S.get(group.rung, 2e-6) / (group.fused_steps / 2 + 0.5), MOST.get(kind, 5e10)
    return 1 / (call_s / group.num_envs + 1 / most)


def of_throughput(name: str, frame: pd.DataFrame) -> list[dict]:
    settings = config.load(name, "full")
    moved = frame.loc[frame["rung"] == "port-cpu", "bytes_per_step"].iloc[0]
    rows = []
    for rung_name, rung in throughput.RUNGS.items():
        if rung.device != "cuda" or rung.missing(name, settings):
            continue
        for group in throughput.groups(rung_name, rung, settings):
            own = None if "cupy" in rung_name else moved / group.fused_steps + (23 if "trajectory" in rung_name else 0)
            same = asdict(group) | {"environment": name, "dtype": "float32", "first_call_s": 0.5, "bytes_per_step": own}
            same["preset"] = frame["preset"].iloc[0] if "preset" in frame else None
            rows += [same | timed(rate_of(name, group), block) | {"block": block} for block in blocks_of(frame)]
    return rows


def of_ceilings(_, frame: pd.DataFrame) -> list[dict]:
    sizes = ceilings.SIZES["full"]["cuda"]
    found = [("copy", size, BANDWIDTH * min(1.0, size / 2**26)) for size in sizes]
    found += [("fp32", None, FP32), ("launch", None, 2e5), ("graph-node", None, 8e5)]
    rows = []
    for quantity, size, rate in found:
        same = {"quantity": quantity, "device": "cuda", "size_bytes": size, "threads": 1}
        same |= {"unit": ceilings.UNITS[quantity], "amount": rate}
        rows += [same | {"block": block, "wall_s": 1 + 0.004 * (block % 3)} for block in blocks_of(frame)]
    return rows


def of_correctness(_, frame: pd.DataFrame) -> list[dict]:
    """All checks on the GPU as on the CPU, and the two devices against each other."""
    twice = frame.assign(device=frame["device"].replace("cpu", "cuda")).dropna(subset=["device"]).to_dict("records")
    place = {"environment": frame["environment"].iloc[0], "level": "episode", "pair": "cpu-cuda", "device": "cuda"}
    place |= {"cases": 4_096_000, "passed": True}
    exact = {"dtype": "float32", "quantity": "state", "differing": 0, "allowed": 0}
    close = {"dtype": "float64", "quantity": "state", "error": 3e-15, "tolerance": 1e-13}
    return [*twice, place | exact, place | close]


def of_breakdown(name: str, frame: pd.DataFrame) -> list[dict]:
    rows = []
    for group in breakdown.groups(config.load(name, "full"), ["cuda"]):
        whole = (6e-3 if group.form == "arrays-cupy" else 8e-5) / group.num_envs + 2.5e-7
        shares = dict.fromkeys(breakdown.OPERATIONS, 0.2) if group.form == "arrays-cupy" else {"noma": 0.6}
        for operation, share in {"step": 1.0, **shares, breakdown.FUSED: 0.35}.items():
            same = asdict(group) | {"environment": name, "device": "cuda", "threads": 1, "dtype": "float32"}
            same |= {"operation": operation, "steps": 1000}
            rows += [
                same | {"block": block, "wall_s": 1000 * whole * share * (1 + 0.004 * (block % 3)), "cpu_s": 1e-3}
                for block in blocks_of(frame)
            ]
    return rows


def of_scaling(name: str, frame: pd.DataFrame) -> list[dict]:
    settings, rows = config.load(name, "full"), []
    for cell in scaling.cells(settings.scaling, ["cuda"]):
        same = scaling.about(name, cell, settings)
        size, step_s = same[settings.scaling.over], 1 / EDGE_SLOTS
        same |= {"dtype": "float32", "bytes_per_env": 260 * size}
        if "gains" in same:
            same["bytes_per_scenario"] = (40 if same["gains"] == "drawn" else 11_000) * size
        if size == 1000 and cell.num_envs == 1024:
            rows.append(same | {"status": "not measured", "reason": "it needs 200.0 GiB"})
            continue
        step_s *= 5 if same.get("horizon") == 1 else 1
        rate = 1 / (8e-5 / cell.num_envs + (size / 70) ** 1.6 * step_s)
        same |= {"memory_mib": 512.0, "first_call_s": 3.0, "status": "measured"}
        rows += [same | timed(rate, block) | {"block": block} for block in blocks_of(frame)]
    return rows


def of_transfer(name: str, frame: pd.DataFrame) -> list[dict]:
    rows = []
    for group in transfer.groups(name, config.load(name, "full"), ["cuda"]):
        if group.device != "cuda":
            continue
        same = {key: value for key, value in asdict(group).items() if key != "counted"} | {"environment": name}
        if group.counted:
            copied = 0 if group.loop == "resident" else 2
            rows.append(
                same | {"part": "copies", "block": 0, "calls": 100, "copies": 100 * copied, "clock": "profiler"}
            )
            continue
        copying = 1e-5 + group.num_envs * (2e-9 if group.memory == "pageable" else 1e-9)
        parts = {"up": copying, "policy": 3e-5, "down": copying / 2, "step": group.num_envs * 4e-9 + 2e-6}
        if group.loop == "note":
            parts = {"up": copying, "down": copying / 2}
        elif group.loop == "resident":
            parts = {"loop": 2e-5}
        else:
            parts["loop"] = sum(parts.values())
        same |= {"calls": 1000, "clock": "host", "threads": CORES if "port-cpu" in group.source else 1}
        for part, seconds in parts.items():
            noisy = ((block, 1000 * seconds * (1 + 0.004 * (block % 3))) for block in blocks_of(frame))
            rows += [same | {"part": part, "block": block, "wall_s": wall_s} for block, wall_s in noisy]
    return rows


def of_episodes(_, frame: pd.DataFrame) -> list[dict]:
    return frame[frame["form"] == "port"].assign(device="cuda").to_dict("records")


def of_learning(name: str, frame: pd.DataFrame) -> list[dict]:
    settings, rows = config.load(name, "full").learning.plain(), []
    for group in learning.groups(settings, ["cpu", "cuda"]):
        if group.device != "cuda":
            continue
        setting = config_of(agents.algorithm(group.algorithm), name, **group.settings)
        same = {"environment": name, "part": group.part, "agent": group.agent, "variant": group.variant}
        same |= {"recipe": group.settings.get("recipe", "solve"), "device": "cuda", "threads": 1, "status": "measured"}
        same |= {"algorithm": group.algorithm} if "algorithm" in frame else {}
        same |= {column: getattr(setting, name, None) for column, name in learning.OF_THE_SETTINGS.items()}
        same |= {"hidden": "-".join(map(str, setting.hidden)), "parameters": 9155}
        population = getattr(setting, "population", 1)
        steps, rate = setting.total_steps, 1 / (1e-4 / (setting.num_envs / 16) + 1 / 5e7)
        if group.blocks:
            block_of = {
                "env_steps": round(rate),
                "cpu_s": 1.0,
                "first_call_s": 4.0,
                "gpu_memory_mib": 0.02 * setting.num_envs,
            }
            for block in range(group.blocks):
                wall_s = 1 + 0.004 * (block % 3)
                phases = {"rollout_s": 0.3 * wall_s, "advantage_s": 0.05 * wall_s, "update_s": 0.6 * wall_s}
                rows.append(same | block_of | phases | {"block": block, "wall_s": wall_s, "seed": 0})
            continue
        for seed in range(population) if population > 1 else group.seeds:
            found = {"seed": seed, "env_steps": steps, "wall_s": steps / rate, "cpu_s": 1.0, "score": 470.0 + seed % 31}
            if group.part == "curve":
                shares = [share / group.points for share in range(1, group.points + 1)]
                rows += [
                    same | found | {"env_steps": steps * share, "wall_s": share, "score": 500 * share}
                    for share in shares
                ]
                rows.append(same | found | {"part": "final", "score_sampled": 460.0})
            else:
                rows.append(same | found | ({"solved": 1} if group.part == "solve" else {}))
    return rows


ADDED = {
    "throughput": of_throughput,
    "ceilings": of_ceilings,
    "correctness": of_correctness,
    "breakdown": of_breakdown,
    "scaling": of_scaling,
    "transfer": of_transfer,
    "offloading": of_episodes,
    "navigation": of_episodes,
    "learning": of_learning,
}
