"""Jobs on a Slurm cluster that a run of Snakemake has left behind, as it does when it is killed."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

EVERY_S = 10.0


class NoAnswer(Exception):
    """squeue has failed, so that nobody knows what is in the queue; says why."""


def outlast_earlier_jobs(say: Callable[[str], None], sends: bool) -> None:
    """Wait for Slurm's jobs of an earlier run in this folder, then begin this process anew.

    What they finish meanwhile is then not planned again, and nothing is written by two at once. Without such jobs
    nothing happens. What is waited for is said, and again when it changes.

    Args:
        sends: this run sends jobs itself, so it waits too while squeue does not answer.
    """
    said = ""
    while waits := reason_to_wait(Path.cwd(), silence_counts=sends or bool(said)):
        if waits != said:
            say(waits)
        said = waits
        time.sleep(EVERY_S)
    if said:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, sys.orig_argv)


def reason_to_wait(folder: Path, silence_counts: bool) -> str | None:
    """The sentence that says what is waited for; None where nothing is, as when only a silent squeue would be."""
    try:
        jobs = " ".join(earlier_jobs(folder))
    except NoAnswer as error:
        waits = f"waiting until squeue answers, since jobs of an earlier run may go on; it says: {error}"
        return waits if silence_counts else None
    if not jobs:
        return None
    return (
        f"waiting for Slurm's jobs {jobs} of an earlier run in this folder, which goes on then; "
        f"scancel {jobs} ends them, and what they have finished is kept"
    )


def earlier_jobs(folder: Path) -> list[str]:
    """The numbers of this user's jobs, queued or running, that Snakemake has submitted from a folder.

    Raises:
        NoAnswer: squeue fails.
    """
    if not shutil.which("squeue"):
        return []
    asked = ["squeue", "--me", "--noheader", "--format=%i|%k|%Z"]  # number, comment, working directory
    answer = subprocess.run(asked, capture_output=True, text=True)
    if answer.returncode:
        raise NoAnswer(answer.stderr.strip() or f"exit status {answer.returncode}")
    rows = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2]
    return [number for number, comment, place in rows if comment.startswith("rule_") and Path(place) == folder]
