"""Kills of trainings, recordings and reports at random moments: nothing finished is lost, the next run ends the same.

    python -m tests.kills --number 200 --seed 0

Each trial disturbs the work in one folder once to three times: everything is killed at once, as by a power cut, one of
its workers is, it is asked to terminate, or its files fail: a call does, or the disk is full. After each, what had been
finished must be there; then the next run, undisturbed, must end as one that nothing ever disturbed. Works are small,
but made by the commands' own code, in forks of this process, where everything is imported.
"""

import argparse
import contextlib
import errno
import functools
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import nbformat
import numpy as np
import torch

from lockstep import paper
from lockstep.agents import ppo
from lockstep.agents.run import checkpoint, training
from lockstep.experiments import ROOT, catalogue, command, originals, record, run
from lockstep.experiments.experiment import Experiment, Plan, each
from lockstep.experiments.ledger import checksums, provenance, results
from lockstep.paper import build, figures, report, tables
from tests.agents.run import test_faults as trainings
from tests.faults import Faults, failing, files_of_at_most

FORK = multiprocessing.get_context("fork")
UNEXPECTED = re.compile(r"^(Process \S+:|Exception in thread .*:)\nTraceback", re.MULTILINE)
LIMIT_S = 60.0  # within which whatever was disturbed must end
GRACE_S = 5.0  # and, after it, what it had started
ALONE = "itself alone"  # which is for those whose processes are a pool's
WITH_OTHERS = ("everything", "a worker", "terminated")
KILLS = (*WITH_OTHERS, ALONE)
FAILURES = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS}
FULL = "full disk"
SHORTEST = 64  # bytes that files may have on a full disk


# ---- works ----------------------------------------------------------------------------------------------------------


class Training:
    """A training with checkpoints."""

    name, ways = "train", ("everything",)

    def run(self, folder: Path) -> None:
        kept = folder if (folder / training.CHECKPOINT).exists() else None
        ppo.train("cartpole", trainings.CONFIG, output=folder, resume=kept, quiet=True)

    def finished(self, folder: Path, said: str) -> int:
        return trainings.saved(folder)

    def require_kept(self, before: int, now: int) -> None:
        assert now >= before, f"iteration {now} is saved, and {before} was"

    def result(self, folder: Path) -> dict:
        return checkpoint.of_run(folder / training.CHECKPOINT, "ppo")["states"][0]

    def same(self, one: dict, other: dict) -> bool:
        return trainings.same(one, other)


GROUPS, ROWS = [f"group {n}" for n in range(4)], 6
COLUMNS = ["group", "number", "value", "wall_s"]
PLACES = ["ceilings", "cartpole/correctness", "pendulum/correctness"]


def lines(index: np.ndarray, *, group: str) -> dict[str, np.ndarray]:
    """Rows of a group, by column; the last one is a time."""
    times = []
    for _ in index:
        start = time.perf_counter()
        time.sleep(0.003)
        times.append(time.perf_counter() - start)
    return {"number": index, "value": len(group) / (index + 3.0), "wall_s": np.array(times)}


def alone(group: str) -> list[dict]:
    return rows_of(group, lines(np.arange(ROWS), group=group))


def shared(group: str) -> list[dict]:
    """The same, shared out over the workers of originals."""
    return rows_of(group, originals.on_all_cores(lines, np.arange(ROWS), group=group)())


def rows_of(group: str, found: dict[str, np.ndarray]) -> list[dict]:
    columns = zip(*(column.tolist() for column in found.values()), strict=True)
    return [{"group": group} | dict(zip(found, values, strict=True)) for values in columns]


def experiment_of(name: str) -> Experiment:
    """An experiment of few groups in the place of the one of that name."""
    measure = alone if name == "ceilings" else shared
    plan = Plan(dict(zip(GROUPS, GROUPS, strict=True)), each(measure), config={})
    return Experiment(COLUMNS, lambda request: plan, lambda frame, *_: f"{len(frame)} rows")


class Recording:
    """A recording of three experiments, two of which share their work out."""

    name, ways = "record", (*WITH_OTHERS, *WITH_OTHERS, *FAILURES, FULL)
    calls, longest = 36, 8000  # that a process makes of files, and bytes of one of them

    def run(self, folder: Path) -> None:
        sys.argv = ["record", "--machine", "a", "--output", str(folder), "--environments", "cartpole", "pendulum"]
        sys.argv += ["--experiments", "ceilings", "correctness"]
        add = results.Journal.add

        def noted(journal: results.Journal, group: str, rows: list) -> None:
            add(journal, group, rows)
            place = journal.path.relative_to(folder.resolve()).with_suffix("")
            os.write(1, f"finished {place}: {group}\n".encode())

        with (
            mock.patch.object(results.Journal, "add", noted),
            mock.patch.object(run, "experiment_of", experiment_of),
            mock.patch.object(record, "status_of", status_of),
            mock.patch.object(originals, "multiprocessing", SimpleNamespace(get_context=lambda _: Forks)),
        ):
            command.run(record.main)

    def finished(self, folder: Path, said: str) -> dict[str, list]:
        """The rows of finished groups by their places; all that were said to be finished are there, none twice."""
        found: dict[str, list] = {}
        for place in PLACES:
            output = folder / f"{place}.csv"
            described, partial = results.read_json(output.with_suffix(".json")), output.with_suffix(".partial.csv")
            if partial.exists():
                groups = results.complete_groups(partial.read_bytes(), results.BOOKKEEPING + COLUMNS)
                start = len(results.BOOKKEEPING)
                found |= {f"{place}: {group}": [row[start:] for row in rows] for group, rows in groups.items()}
            if described and record.is_whole(output, described):
                rows = [line.split(",") for line in output.read_text().splitlines()[1:]]
                found |= {f"{place}: {group}": [row for row in rows if row[0] == group] for group, *_ in rows}
        told = [line.removeprefix("finished ") for line in said.splitlines() if line.startswith("finished ")]
        assert set(told) <= set(found), f"lost: {set(told) - set(found)}"
        assert len(told) == len(set(told)), f"measured twice: {told}"
        return found

    def require_kept(self, before: dict, now: dict) -> None:
        for group, rows in before.items():
            assert now.get(group) == rows, f"{group}: lost, or measured again"

    def result(self, folder: Path) -> dict:
        checksums.verify(folder)
        left = [file.name for file in folder.rglob("*") if checksums.unfinished(file) and file.suffix != ".lock"]
        assert not left, f"left: {left}"
        return self.finished(folder, "")

    def same(self, one: dict, other: dict) -> bool:
        """But for times."""
        return {group: [row[:-1] for row in rows] for group, rows in one.items()} == {
            group: [row[:-1] for row in rows] for group, rows in other.items()
        }


class Forks:
    """In the place of the context in which originals start their workers, which take seconds to import torch."""

    @staticmethod
    def Pool(number: int, begin: Callable):
        return FORK.Pool(number, begin, (signal.signal, signal.SIGTERM, signal.SIG_DFL))


def status_of(program: list[str]) -> int:
    """As `record.status_of`, in a fork."""
    process = FORK.Process(target=measured, args=(program[program.index("-m") + 2 :],))
    process.start()
    try:
        process.join()
    except KeyboardInterrupt:
        process.terminate()
        process.join()
        raise
    return process.exitcode


def measured(words: list[str]) -> None:
    sys.argv = ["run", *words]
    originals.allot(2)
    command.run(run.main)


at_hand = functools.cache(paper.load)
SHOWN = ("table:compilation", "figure:roofline")
BEGIN = report._begin  # in whose place `terminable` is put


class Paper:
    """A report of one chapter, drawn by two processes."""

    name, ways = "report", (*KILLS, *KILLS, *FAILURES, FULL)
    calls, longest = 22, 40_000

    def run(self, folder: Path) -> None:
        kinds = {
            module: {one.partition(":")[2] for one in SHOWN if one.startswith(kind)}
            for module, kind in ((tables, "table"), (figures, "figure"))
        }
        every = {
            module: {name: one for name, one in module.every().items() if name in kinds[module]} for module in kinds
        }
        with (
            mock.patch.object(paper, "load", at_hand),
            mock.patch.object(tables, "every", return_value=every[tables]),
            mock.patch.object(figures, "every", return_value=every[figures]),
            mock.patch.object(figures, "files", drawn),
            mock.patch.object(report.multiprocessing, "get_context", return_value=FORK),
            mock.patch.object(report, "_begin", terminable),
            mock.patch.object(build, "joined", chapter),
            mock.patch.object(build, "executed", executed),
        ):
            folder.mkdir(exist_ok=True)
            command.run(lambda: build.build(folder / "report.html", processes=2))

    def finished(self, folder: Path, said: str) -> dict[str, bytes]:
        files = (file for file in folder.rglob("*") if file.is_file() and not checksums.unfinished(file))
        return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}

    def require_kept(self, before: dict, now: dict) -> None:
        for file, content in before.items():
            assert now.get(file) == content, f"{file}: lost, or cut"

    def result(self, folder: Path) -> dict:
        return self.finished(folder, "")

    def same(self, one: dict, other: dict) -> bool:
        return one == other


def drawn(name: str, datasets: list) -> tuple[str, bytes]:
    """A drawing and a picture, which take a moment."""
    time.sleep(0.25)
    return f'<svg width="1">{"<g/>" * 10_000}</svg>', b"picture" * 5_000


def terminable(datasets: list) -> None:
    """As the report begins a worker, in a fork, which ends where it is terminated as one of a server does."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    BEGIN(datasets)


def chapter() -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_markdown_cell(f"# Title\n\n{build.CONTENTS}\n\n## Result"), nbformat.v4.new_code_cell("")]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=cells)


def executed(nb: nbformat.NotebookNode, root: Path, folder: Path, processes: int) -> nbformat.NotebookNode:
    """As `build.executed`, in this process."""
    shown = report.Report(root, folder, processes).show(*SHOWN).data
    nb.cells[1].outputs = [nbformat.v4.new_output("execute_result", {"text/html": shown}, execution_count=1)]
    return nb


# ---- disturbances ---------------------------------------------------------------------------------------------------


class Undisturbed:
    """The time that a work takes undisturbed, and its result."""

    def __init__(self, work, scratch: Path):
        for folder in (scratch / f"{work.name} at first", scratch / work.name):  # perhaps something is compiled
            start = time.perf_counter()
            status, said = ended(work, folder)
            assert status == 0, f"{work.name}: {said}"
            self.lasts_s, self.result = time.perf_counter() - start, work.result(folder)


def started(work, folder: Path, failure: contextlib.AbstractContextManager) -> tuple:
    """A process that does the work, whose files fail perhaps, in a session of its own, and what it says."""
    reading, writing = os.pipe()

    def begin() -> None:
        os.setsid()
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115 - for good
        torch.set_num_threads(1)
        with failure:
            work.run(folder)

    process = FORK.Process(target=begin)
    process.start()
    os.close(writing)
    said: list[bytes] = []

    def listen() -> None:
        with open(reading, "rb", buffering=0) as pipe:
            said.extend(iter(lambda: pipe.read(65536), b""))

    listening = threading.Thread(target=listen)
    listening.start()
    return process, listening, said


def failure_of(work, way: str | None, draw: random.Random | None) -> contextlib.AbstractContextManager:
    """Within, a call of a file or a write fails at a random moment, if it is to."""
    if way in FAILURES:
        return failing(Faults(draw.randint(1, work.calls), FAILURES[way]))
    return files_of_at_most(draw.randrange(SHORTEST, work.longest)) if way == FULL else contextlib.nullcontext()


def ended(
    work, folder: Path, way: str | None = None, moment_s: float = 0.0, draw: random.Random | None = None
) -> tuple:
    """Status and words of a work that is disturbed in a way at a moment.

    Raises:
        AssertionError: it did not end, left a process behind, or showed a traceback.
    """
    process, listening, said = started(work, folder, failure_of(work, way, draw))
    if way in KILLS:
        process.join(moment_s)
        strike(process.pid, way, draw)
    hangs = not comes(lambda: not process.is_alive(), LIMIT_S)
    left = not hangs and not comes(lambda: not session(process.pid) - {process.pid}, GRACE_S)
    left = session(process.pid) - {process.pid} if left else set()
    for pid in left | ({process.pid, *session(process.pid)} if hangs else set()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.join()
    listening.join()
    words = b"".join(said).decode(errors="replace")
    assert not hangs, f"{work.name}, {way}: has not ended after {LIMIT_S:.0f} s: {words}"
    assert not left, f"{work.name}, {way}: left {len(left)} processes running: {words}"
    assert not UNEXPECTED.search(words), f"{work.name}, {way}: {words}"
    return process.exitcode, words


def comes(condition: Callable[[], bool], seconds: float) -> bool:
    """Tells if a condition comes to hold within so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def strike(pid: int, way: str, draw: random.Random) -> None:
    """Kills a process with all that it has started, or itself, or one of these, or asks it to terminate."""
    others = sorted(session(pid) - {pid})
    victims = {
        "everything": [pid, *others],
        "a worker": draw.sample(others, min(1, len(others))),
        "terminated": [pid],
        ALONE: [pid],
    }
    for victim in victims[way]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGTERM if way == "terminated" else signal.SIGKILL)


def session(leader: int) -> set[int]:
    """The processes of a session that run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, of, *_ = stat.read_text().rpartition(")")[2].split()
            if int(of) == leader and state != "Z":
                found.add(int(stat.parent.name))
    return found


def prepare() -> None:
    """Does beforehand what every process would else do for itself, like its imports."""
    for needed in (tables.every, figures.every, provenance.machine, functools.partial(at_hand, ROOT)):
        needed()
    for place in PLACES:
        results.current_key(*catalogue.asked(place), "quick", {})


def trial(work, undisturbed: Undisturbed, folder: Path, draw: random.Random, counts: Counter) -> int:
    """Disturbs a work once to three times, and lets it end; returns the number of kills.

    Raises:
        AssertionError: something was lost, or the work ends otherwise than undisturbed.
    """
    before, kills, words = work.finished(folder, ""), 0, ""
    for _ in range(draw.randint(1, 3)):
        way = draw.choice(work.ways)
        status, said = ended(work, folder, way, draw.uniform(0, undisturbed.lasts_s), draw)
        words += said
        now = work.finished(folder, words)
        work.require_kept(before, now)
        before, kills = now, kills + (way in KILLS)
        counts[work.name, way, "ended before" if status == 0 else "disturbed"] += 1
    status, said = ended(work, folder)
    assert status == 0, f"{work.name}: does not go on: {said}"
    work.require_kept(before, work.finished(folder, words + said))
    assert work.same(work.result(folder), undisturbed.result), f"{work.name}: ends otherwise than undisturbed"
    return kills


def trials(number: int, seed: int, scratch: Path, works: tuple = (Training(), Recording(), Paper())) -> Counter:
    """So many kills, or more, and the failures of files between them, by work, way and what came of it."""
    draw, counts, kills = random.Random(seed), Counter(), 0
    prepare()
    originals.dismiss()  # a fork cannot end the workers of its parent
    undisturbed = {work: Undisturbed(work, scratch) for work in works}
    while kills < number:
        for work in works:
            folder = scratch / f"{work.name} {sum(counts.values())}"
            kills += trial(work, undisturbed[work], folder, draw, counts)
    return counts


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__.split("\n")[0])
    arguments.add_argument("--number", type=int, default=200, help="of kills, at least (default: 200)")
    arguments.add_argument("--seed", type=int, default=0)
    options, start = arguments.parse_args(), time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        counts = trials(options.number, options.seed, Path(scratch))
    print(f"{'work':10}{'way':14}{'disturbed':>10}{'ended before':>14}")
    for work, way in sorted({(work, way) for work, way, _ in counts}):
        print(f"{work:10}{way:14}{counts[work, way, 'disturbed']:10}{counts[work, way, 'ended before']:14}")
    kills = sum(count for (_, way, _), count in counts.items() if way in KILLS)
    print(
        f"{kills} kills and {sum(counts.values()) - kills} failures of files in {time.perf_counter() - start:.0f} s: "
        "nothing finished was lost, and every work ended as undisturbed"
    )


if __name__ == "__main__":
    main()
