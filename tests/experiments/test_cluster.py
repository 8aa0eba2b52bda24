"""Jobs that an earlier run has left on a cluster: they are waited for, then the command begins anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from lockstep.experiments import cluster
cluster.EVERY_S = 0.05
cluster.outlast_earlier_jobs(print, sends=sys.argv[1] == "sends")
print("goes on")
"""
# Answers with what is in the file `queue`, a line less each time; where that begins with "fails" it fails.
SQUEUE = """#!/bin/sh
first=$(head -n 1 "{folder}/queue")
if [ "$first" = fails ]; then
    echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
else
    cat "{folder}/queue"
fi
sed -i 1d "{folder}/queue"
[ "$first" != fails ]
"""


@pytest.fixture
def said(tmp_path):
    """A function: the lines of a process in a folder, while squeue answers so."""
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(SQUEUE.format(folder=tmp_path))
    squeue.chmod(0o755)

    def ask(*queue: str, sends: bool = True) -> list[str]:
        (tmp_path / "queue").write_text("".join(f"{line}\n" for line in queue))
        path = {"PATH": f"{squeue.parent}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-c", PROGRAM, "sends" if sends else "computes here"]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return ask


def test_jobs_of_this_folder_are_waited_for(said, tmp_path):
    first, second = (f"{number}|rule_experiment_wildcards_x|{tmp_path}" for number in (7, 12))
    both, one, goes_on = said(first, second)
    assert both.startswith("waiting for Slurm's jobs 7 12 of an earlier run in this folder")
    assert "scancel 7 12 ends them" in both
    assert one.startswith("waiting for Slurm's jobs 12 of an earlier run")
    assert goes_on == "goes on"


def test_what_is_waited_for_is_said_once(said, tmp_path):
    others = [f"{number}|(null)|{tmp_path}" for number in (1, 2, 3)]
    assert len(said(*others, f"7|rule_experiment|{tmp_path}")) == 2


def test_other_folders_and_jobs_that_snakemake_has_not_sent_are_none_of_its(said, tmp_path):
    assert said(f"7|rule_experiment|{tmp_path}/another", f"8|(null)|{tmp_path}", "9") == ["goes on"]


def test_while_squeue_does_not_answer_nothing_is_sent(said, tmp_path):
    """Before it has answered for the first time, and after."""
    job = f"7|rule_experiment|{tmp_path}"
    silent, waits, silent_again, waits_again, goes_on = said("fails", "fails", job, "fails", job)
    assert silent == silent_again
    assert silent.startswith(
        "waiting until squeue answers, since jobs of an earlier run may go on; it says: slurm_load"
    )
    assert waits.startswith("waiting for Slurm's jobs 7 ") and waits_again.startswith("waiting for Slurm's jobs 7 ")
    assert goes_on == "goes on"
    assert not Path(tmp_path, "queue").read_text()


def test_a_run_that_sends_nothing_waits_for_squeue_only_where_it_knows_of_jobs(said, tmp_path):
    assert said("fails", sends=False) == ["goes on"]
    waits, silent, goes_on = said(f"7|rule_experiment|{tmp_path}", "fails", sends=False)
    assert (waits[:32], silent[:29], goes_on) == (
        "waiting for Slurm's jobs 7 of an",
        "waiting until squeue answers,",
        "goes on",
    )


def test_where_there_is_no_slurm_nothing_is_asked(monkeypatch, tmp_path):
    from lockstep.experiments import cluster

    monkeypatch.setenv("PATH", str(tmp_path))
    assert cluster.earlier_jobs(tmp_path) == []
