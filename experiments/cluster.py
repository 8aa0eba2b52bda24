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
    nothing happens.

    Args:
        sends: this run sends jobs itself, so it waits too while squeue does not answer.
    """
    told = set()
    while True:
        try:
            jobs, silence = earlier_jobs(Path.cwd()), ""
        except NoAnswer as error:
            jobs, silence = [], str(error)
        if not jobs and not (silence and (sends or told)):
            break
        if bool(silence) not in told:
            told.add(bool(silence))
            say(
                f"waiting until squeue answers, since jobs of an earlier run may go on; it says: {silence}"
                if silence
                else f"waiting for Slurm's jobs {' '.join(jobs)} of an earlier run in this folder, which goes on then; "
                f"scancel {' '.join(jobs)} ends them, and what they have finished is kept"
            )
        time.sleep(EVERY_S)
    if told:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, sys.orig_argv)


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
