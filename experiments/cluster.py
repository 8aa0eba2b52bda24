"""Jobs on a Slurm cluster that a run of Snakemake has left behind, as it does when it is killed."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

EVERY_S = 10.0


def outlast_earlier_jobs(say: Callable[[str], None]) -> None:
    """Wait for Slurm's jobs of an earlier run in this folder, then begin this process anew.

    What they finish meanwhile is then not planned again, and nothing is written by two at once. Without such jobs
    nothing happens.
    """
    jobs = earlier_jobs(Path.cwd())
    if not jobs:
        return
    say(
        f"waiting for Slurm's jobs {' '.join(jobs)} of an earlier run in this folder, which goes on then; "
        f"scancel {' '.join(jobs)} ends them, and what they have finished is kept"
    )
    while earlier_jobs(Path.cwd()):
        time.sleep(EVERY_S)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)


def earlier_jobs(folder: Path) -> list[str]:
    """The numbers of this user's jobs, queued or running, that Snakemake has submitted from a folder."""
    if not shutil.which("squeue"):
        return []
    asked = ["squeue", "--me", "--noheader", "--format=%i|%k|%Z"]  # number, comment, working directory
    answer = subprocess.run(asked, capture_output=True, text=True)
    rows = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2]
    return [number for number, comment, place in rows if comment.startswith("rule_") and Path(place) == folder]
