"""Peers side by side: environment steps per second of other libraries and of the port, on one machine.

Each peer (peer_workers/) runs on the CPU, and those that can on a GPU, where there is one: in a process of its own for
each, one after the other, under the same clock; random actions, the peer's own resets, live steps only. A peer that
cannot run has a row that says why.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from lockstep.experiments import UserError, command, peer_workers
from lockstep.experiments.bench import timing
from lockstep.experiments.bench.statistics import Ratio, ratio, summarise, with_rates
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request
from lockstep.experiments.ledger import provenance
from lockstep.experiments.peer_workers import Group, Task

KEY = ["environment", "peer", "device", "mode", "num_envs", "threads", "fused_steps"]
ABOUT = ["version", "how", "dtype", "differences", "status", "reason", "live_share", "first_call_s"]
COLUMNS = [*KEY, *ABOUT, "block", "steps", "wall_s", "cpu_s"]
OURS = "Lockstep"
TARGET_SIZE = 8192  # where rates are compared
SIZES = {
    "cpu": {"quick": [TARGET_SIZE], "full": [1, 64, 1024, TARGET_SIZE, 65536]},
    "cuda": {"quick": [TARGET_SIZE], "full": [TARGET_SIZE, 65536, 1048576]},
}
SHARED_SIZE = 8192  # from here on all cores are measured as well as one
BLOCKS = {"quick": 6, "full": 30}
BLOCKS_ELSEWHERE = 10  # at the sizes that only the curves need
AIM = 5  # times the fastest peer
TIMEOUT_S = 300  # for one group, compilation included


class Wanted(NamedTuple):
    """A group of a peer that is to be measured."""

    peer: str
    group: Group
    blocks: int


class Missing(NamedTuple):
    """A peer of which nothing can be measured."""

    peer: str
    reason: str


def wanted(peer: str, scale: str, device: str) -> list[Wanted]:
    """The sizes that a scale measures of a peer on a device; none where it does not run there."""
    if device not in peer_workers.devices(peer):
        return []
    found = peer_workers.worker(peer).groups({size: threads(scale, size, device) for size in SIZES[device][scale]})
    return [Wanted(peer, replace(group, device=device), blocks(scale, group.num_envs)) for group in found]


def threads(scale: str, num_envs: int, device: str) -> list[int]:
    """One, and at full scale all cores where there is work to share out among them."""
    shared = device == "cpu" and scale == "full" and num_envs >= SHARED_SIZE
    return sorted({1, provenance.core_count()}) if shared else [1]


def blocks(scale: str, num_envs: int) -> int:
    return BLOCKS[scale] if num_envs == TARGET_SIZE else BLOCKS_ELSEWHERE


def label(one: Wanted) -> str:
    group, title = one.group, peer_workers.worker(one.peer).TITLE
    fused = f" K={group.fused_steps}" if group.fused_steps > 1 else ""
    return f"{title} {group.mode} {group.device} B={group.num_envs} threads={group.threads}{fused}"


def why_not(peer: str, task: Task) -> str | None:
    """The reason why nothing of a peer can be measured, None if it can."""
    if peer_workers.worker(peer).differences(task.gymnasium_id) is None:
        return f"it has no {task.gymnasium_id or task.environment}"
    return None if peer_workers.python_of(peer) else peer_workers.why_missing(peer)


def answers(todo: Sequence[Wanted], task: Task) -> Iterator[dict]:
    """The answers of each group's process, in order."""
    for (peer, _), of_peer in itertools.groupby(todo, key=lambda one: (one.peer, one.group.device)):
        yield from ask(peer, list(of_peer), task)


def ask(peer: str, waiting: list[Wanted], task: Task) -> Iterator[dict]:
    """One answer per group: what the clock found, or {"reason": ...}.

    A process that ends early is started again for the groups after the one that it was at; not if it has
    answered nothing, for then it cannot run at all.
    """
    runs = False
    while waiting:
        with Process(peer, waiting, task) as process:
            for answer in process:
                runs, waiting = True, waiting[1:]
                yield answer
        lost = waiting[:1] if runs or process.late else waiting
        yield from ({"reason": process.failure()} for _ in lost)
        waiting = waiting[len(lost) :]


class Process:
    """The process of a peer at work on one device: iterating has it measure one group after the other, until it ends.

    It is given a group only when what it answered to the last one has been taken, so that nothing of ours runs
    beside it.
    """

    def __init__(self, peer: str, waiting: list[Wanted], task: Task):
        self.program = [str(peer_workers.python_of(peer)), "-m", peer_workers.__name__, peer]
        self.variables = peer_workers.variables(peer, waiting[0].group.device)
        self.waiting, self.task, self.late = waiting, task, False

    def __enter__(self) -> "Process":
        # A folder of its own, because a library may leave files where it is started.
        self.folder = tempfile.TemporaryDirectory()
        self.errors = open(Path(self.folder.name, "errors"), "w+")
        self.process = subprocess.Popen(
            self.program,
            cwd=self.folder.name,
            env=os.environ | self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        return self

    def __iter__(self) -> Iterator[dict]:
        common = {"task": asdict(self.task), "min_block_s": timing.MIN_BLOCK_S}
        for one in self.waiting:
            line = self.answer(common | {"group": asdict(one.group), "blocks": one.blocks})
            if not line:
                return
            yield json.loads(line)

    def answer(self, job: dict) -> str:
        """The line that the process answers to a job, "" where it has ended or takes too long."""
        watch = threading.Timer(TIMEOUT_S, self.end)
        watch.start()
        try:
            print(json.dumps(job), file=self.process.stdin, flush=True)
            return self.process.stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            watch.cancel()

    def end(self) -> None:
        self.late = True
        self.process.kill()

    def __exit__(self, *exception) -> None:
        if any(exception):
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        self.said = self.errors.read()
        self.errors.close()
        self.folder.cleanup()

    def failure(self) -> str:
        """The reason why the process ended before it had answered everything."""
        if self.late:
            return f"no answer within {TIMEOUT_S} s"
        return f"its process ended with status {self.process.returncode}: {peer_workers.last_error(self.said)}"


def rows(one: Wanted, answer: dict, task: Task) -> list[dict]:
    """The rows of a group: one per block, or one that says why there are none."""
    same = about(one.peer, task) | asdict(one.group)
    if "reason" in answer:
        return [same | {"status": MISSING, "reason": answer["reason"]}]
    same |= {"status": MEASURED} | {name: answer[name] for name in ("how", "dtype", "live_share", "first_call_s")}
    blocks = [timing.Block(*block)._asdict() for block in answer["blocks"]]
    return [same | {"block": number} | block for number, block in enumerate(blocks)]


def about(peer: str, task: Task) -> dict:
    """A row with all columns, of which those that are the same for all of a peer are filled in."""
    module, versions = peer_workers.worker(peer), peer_workers.versions(peer)
    filled = {"environment": task.environment, "peer": module.TITLE}
    filled |= {"version": versions.get(module.PACKAGES[0]) if module.TITLE != OURS else None}
    filled |= {"differences": module.differences(task.gymnasium_id) or None}
    return dict.fromkeys(COLUMNS) | filled


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with the column `device`, which older recordings, all of the CPU, lack."""
    return frame if "device" in frame else frame.assign(device=frame["mode"].notna().map({True: "cpu", False: None}))


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per group of peers.csv, in its order.

    Columns: the group's, then rate (median), rate_low, rate_high, cpu_rate, blocks, and ratio, ratio_low,
    ratio_high: the port's rate over this one, on the same device in the same mode with as many environments, the
    port on whatever number of threads is fastest. NaN where nothing was measured.
    """
    frame = complete(frame)
    found, ours = [], rates_of_the_port(frame)
    for key, group in frame.groupby(KEY, sort=False, dropna=False):
        row = dict(zip(KEY, key, strict=True)) | group[ABOUT].iloc[0].to_dict()
        if row["status"] == MEASURED:
            timed = with_rates(group)
            rates = summarise(timed["rate"])
            row |= {"rate": rates.median, "rate_low": rates.low, "rate_high": rates.high, "blocks": len(group)}
            row["cpu_rate"] = timed["cpu_rate"].median()
            fastest = ours.get((row["device"], row["mode"], row["num_envs"]))
            if row["peer"] != OURS and fastest is not None:
                against = ratio(fastest, timed["rate"])
                row |= {"ratio": against.ratio, "ratio_low": against.low, "ratio_high": against.high}
        found.append(row)
    numbers = ["rate", "rate_low", "rate_high", "cpu_rate", "blocks", "ratio", "ratio_low", "ratio_high"]
    return pd.DataFrame(found, columns=[*KEY, *ABOUT, *numbers])


def rates_of_the_port(frame: pd.DataFrame) -> dict[tuple[str, str, float], pd.Series]:
    """The port's rates by device, mode and number of environments, on whatever number of threads is fastest."""
    ours, fastest = with_rates(frame[(frame["peer"] == OURS) & (frame["status"] == MEASURED)]), {}
    for (*shared, _), group in ours.groupby(["device", "mode", "num_envs", "threads"]):
        before = fastest.get(tuple(shared))
        if before is None or group["rate"].median() > before.median():
            fastest[tuple(shared)] = group["rate"]
    return fastest


def against_the_fastest(frame: pd.DataFrame, device: str = "cpu") -> tuple[dict, Ratio] | None:
    """The fastest peer on a device at TARGET_SIZE, in any mode, and how far the port, one step per call, exceeds it."""
    frame = complete(frame)
    others = frame[(frame["device"] == device) & (frame["num_envs"] == TARGET_SIZE) & (frame["peer"] != OURS)]
    groups, ours = summary(others).dropna(subset=["rate"]), rates_of_the_port(frame).get((device, "step", TARGET_SIZE))
    if groups.empty or ours is None:
        return None
    fastest = groups.loc[groups["rate"].idxmax()].to_dict()
    theirs = others[(others[KEY] == pd.Series(fastest)[KEY]).all(axis=1)]
    return fastest, ratio(ours, with_rates(theirs)["rate"])


def report(frame: pd.DataFrame, *_) -> str:
    """The rates of every group and what the port makes of them, as lines to print."""
    lines = ["million live steps per second [95 % interval], per CPU-second, times the port"]
    for row in summary(frame).itertuples():
        size = "" if row.mode is None or row.mode != row.mode else f"{row.mode} {row.device} B={row.num_envs:.0f}"
        words = f"  {row.peer:10} {size:20}"
        if row.status != MEASURED:
            lines.append(f"{words} {row.status}: {row.reason}")
            continue
        rates = [value / 1e6 for value in (row.rate, row.rate_low, row.rate_high, row.cpu_rate)]
        figures = "{:10.4f} [{:.4f}, {:.4f}] {:10.4f}".format(*rates)
        times = f" {row.ratio:8.1f} x" if row.ratio == row.ratio else ""
        lines.append(f"{words} threads={row.threads:.0f} {figures}{times}")
    if found := against_the_fastest(frame):
        fastest, times = found
        verdict = "reached" if times.ratio >= AIM else "missed"
        lines.append(
            f"  {verdict}: one step per call on the CPU at B={TARGET_SIZE} over the fastest peer, {fastest['peer']}: "
            f"{times.ratio:.4g} [{times.low:.4g}, {times.high:.4g}], aim {AIM} x"
        )
    return "\n".join(lines)


def options(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--peers", nargs="+", help="default: all that can run here")


def plan(request: Request) -> Plan:
    asked, name, seed, scale = request.options, request.environment, request.settings.seed, request.scale
    for option, part in (("--peers", asked.peers), ("--devices", request.devices != request.present)):
        if part and not asked.output:
            whole = command.output_path("peers", name)
            raise UserError(f"{option} measures a part; say where with --output, since {whole} is for whole runs")
    from lockstep import envs  # here, because the paper reads peers.csv without torch

    task = Task(name, envs.port(name).gymnasium_id, seed)
    chosen = command.chosen("peer", peer_workers.names(), asked.peers)
    chosen = [peer for peer in chosen if {*request.devices} & {*peer_workers.devices(peer)}]
    reasons = {peer: why_not(peer, task) for peer in chosen}
    described = {peer: reason or peer_workers.versions(peer) for peer, reason in reasons.items()}
    run = [(peer, device) for device in request.devices for peer in chosen if not reasons[peer]]
    todo = {label(one): one for peer, device in run for one in wanted(peer, scale, device)}
    sizes = {device: SIZES[device][scale] for device in request.devices}
    elsewhere = {"blocks_elsewhere": BLOCKS_ELSEWHERE, "order": "one peer after the other, each in its own process"}
    return Plan(
        todo | {peer: Missing(peer, reason) for peer, reason in reasons.items() if reason},
        functools.partial(asking, task),
        config={"seed": seed, "sizes": sizes, "target_size": TARGET_SIZE, "peers": described},
        method=timing.method(BLOCKS[scale]) | elsewhere,
        conditions={"peers": described},
    )


@contextmanager
def asking(task: Task, left: Sequence[Wanted | Missing]) -> Iterator[Callable[[Wanted | Missing], list[dict]]]:
    """Rows of one group after the other, in the order of those left; a peer's process lasts as long as it has some."""
    answer = answers([one for one in left if isinstance(one, Wanted)], task)

    def measure(one: Wanted | Missing) -> list[dict]:
        if isinstance(one, Missing):
            return [about(one.peer, task) | {"status": MISSING, "reason": one.reason}]
        return rows(one, next(answer), task)

    with contextlib.closing(answer):
        yield measure


EXPERIMENT = Experiment(COLUMNS, plan, report, options=options, needs="peers")
