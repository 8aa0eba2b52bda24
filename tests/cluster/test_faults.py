"""What fails on a cluster: the same command goes on, keeps what was finished, and no two jobs write one file."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from lockstep.experiments.ledger import results
from tests.cluster import slurm

PLACE = "results/mountain_car/throughput"
COMMENT = "rule_experiment_wildcards_mountain_car_throughput"


@pytest.fixture
def slow(copy, request):
    """A copy in which a group of rows takes longer, so that a fault finds a run in the middle."""
    settings = copy / "experiments" / "classic_control" / "mountain_car.yaml"
    text = settings.read_text()
    assert text.count("block_s: 0.1\n") == 1
    settings.write_text(text.replace("block_s: 0.1\n", f"block_s: {request.param}\n"))
    return copy


def finished(folder: Path) -> list[list[str]]:
    """The rows of every finished group, as they are in the journal, without its own columns."""
    partial = folder / f"{PLACE}.partial.csv"
    if not partial.exists():
        return []
    content = partial.read_bytes()
    header = content.partition(b"\n")[0].decode().split(",")
    own = len(results.BOOKKEEPING)
    return [row[own:] for rows in results.complete_groups(content, header).values() for row in rows]


def said(folder: Path) -> str:
    return (folder / "said.txt").read_text()


def require_kept(folder: Path, some: list[list[str]]) -> None:
    """The result has these rows, to the last digit, and more."""
    rows = [line.split(",") for line in (folder / f"{PLACE}.csv").read_text().splitlines()[1:]]
    assert len(rows) > len(some) and not [row for row in some if row not in rows]


def until_some_are_finished(folder: Path, more_than: int = 0) -> list[list[str]]:
    return slurm.until(
        lambda: len(found := finished(folder)) > more_than and found, 120, f"a group is finished in {folder}"
    )


def numbers(cluster) -> list[str]:
    return [job["number"] for job in cluster.jobs() if job["comment"] == COMMENT]


@pytest.mark.parametrize("slow", [0.4], indirect=True)
def test_daemons_killed_and_a_job_cancelled_lose_nothing(cluster, slow, send):
    earlier = numbers(cluster)
    with cluster.one_node():
        run = send(f"{PLACE}.csv")
        before = until_some_are_finished(slow)

        cluster.stop("a", number=signal.SIGKILL)
        time.sleep(1)
        cluster.start("a")
        more = until_some_are_finished(slow, more_than=len(before))
        cluster.stop("slurmctld", number=signal.SIGKILL)
        time.sleep(2)  # Slurm's programs ask on for 9 s
        cluster.start("slurmctld")
        slurm.until(cluster.states, 30, "the controller answers")
        assert run.poll() is None
        (first,) = set(numbers(cluster)) - set(earlier)  # nothing was sent again

        kept = finished(slow)
        assert kept, "the run was over before its job could be cancelled"
        slurm.output("scancel", first)
        assert run.wait(timeout=300) == 0, said(slow)
    assert len(set(numbers(cluster)) - set(earlier)) == 2
    assert before == more[: len(before)] == kept[: len(before)]
    require_kept(slow, kept)
    assert "continuing after" in (slow / "results" / "logs" / "mountain_car" / "throughput.log").read_text()
    assert re.search(rf"SLURM-job '{first}' failed, SLURM status is: 'CANCELLED'", said(slow))


@pytest.mark.parametrize("slow", [0.2], indirect=True)
def test_the_command_of_a_killed_snakemake_waits_for_its_jobs_and_goes_on(cluster, slow, send):
    earlier = numbers(cluster)
    with cluster.one_node():
        run = send(f"{PLACE}.csv")
        before = until_some_are_finished(slow)
        run.kill()
        run.wait()
        again = send(f"{PLACE}.csv")
        assert again.wait(timeout=300) == 0, said(slow)
    (only,) = set(numbers(cluster)) - set(earlier)
    assert f"waiting for Slurm's jobs {only} of an earlier run in this folder" in said(slow)
    assert "Nothing to be done" in said(slow)
    require_kept(slow, before)
    assert "continuing after" not in (slow / "results" / "logs" / "mountain_car" / "throughput.log").read_text()


@pytest.mark.parametrize("slow", [0.2], indirect=True)
def test_two_runs_do_not_write_one_file(cluster, slow):
    """The second says so and ends; the first keeps its rows."""
    command = f"'{sys.executable}' -m lockstep.experiments.run throughput mountain_car --output {PLACE}.csv"

    def start(node: str) -> str:
        words = ["sbatch", "--parsable", "--chdir", str(slow), "--nodelist", node, "--output", f"{node}.txt"]
        return slurm.output(*words, "--wrap", command).strip()

    first = start("a")
    before = until_some_are_finished(slow)
    second = start("b")
    assert cluster.outcome(second, 60) == {"FAILED"}
    assert f"{PLACE}.csv is being written by another run" in (slow / "b.txt").read_text()
    assert cluster.outcome(first, 120) == {"COMPLETED"}
    require_kept(slow, before)
