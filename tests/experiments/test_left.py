"""The time left: of what was measured before, of what was not, on shared cores."""

import json
import logging
from types import SimpleNamespace

import pytest
from snakemake.logging import LogEvent

from lockstep.experiments.left import Left


def job(place: str | None, threads: int = 2, shellcmd: str | None = "python"):
    return SimpleNamespace(wildcards={"place": place} if place else {}, threads=threads, shellcmd=shellcmd)


@pytest.fixture
def said(tmp_path, monkeypatch):
    """A function: lines that the end of a job leads to, given the jobs that are left."""
    monkeypatch.chdir(tmp_path)

    def ask(*jobs, scale: str = "quick", **progress) -> list[str]:
        logger, lines = logging.Logger("snakemake"), []
        Left(logger, lambda: SimpleNamespace(needrun_jobs=lambda: jobs), scale, 2)
        end = logging.Handler()
        end.emit = lambda record: lines.append(record.getMessage())
        logger.addHandler(end)
        about = {"event": LogEvent.PROGRESS, "done": 1, "total": 9} | progress
        logger.info("1 of 9 steps", extra=about)
        return lines[:-1] if lines[-1].startswith("1 of") else lines[1:]

    return ask


def took(path, wall_s: float, scale: str | None = "quick"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"scale": scale, "wall_s": wall_s}))


def test_as_long_as_nothing_was_measured_nothing_is_said(said):
    assert said(job("cartpole/throughput")) == []


def test_a_job_takes_what_it_took_here_rather_than_elsewhere(said, tmp_path):
    took(tmp_path / "results/recorded/other/cartpole/throughput.json", 6000)
    took(tmp_path / "results/cartpole/throughput.json", 300)
    assert said(job("cartpole/throughput")) == ["about 5 min left"]


def test_a_job_on_one_of_two_cores_counts_half(said, tmp_path):
    took(tmp_path / "results/a/x.json", 240)
    took(tmp_path / "results/b.json", 480, scale=None)
    assert said(job("a/x", threads=1), job("b")) == ["about 10 min left"]


def test_a_job_never_measured_takes_the_mean_of_the_others(said, tmp_path):
    took(tmp_path / "results/a/x.json", 60)
    took(tmp_path / "results/a/y.json", 180)
    assert said(job("a/z"), job(None), job("all", shellcmd=None)) == ["about 4 min left"]


def test_another_scale_and_damaged_files_tell_nothing(said, tmp_path):
    took(tmp_path / "results/a/x.json", 60, scale="full")
    (tmp_path / "results/a/y.json").write_text("{")
    (tmp_path / "results/a/z.json").write_text("[]")
    assert said(job("a/x")) == []
    assert said(job("a/x"), scale="full") == ["about 1 min left"]


def test_other_messages_and_the_last_step_say_nothing_of_it(said, tmp_path):
    took(tmp_path / "results/a/x.json", 60)
    assert said(job("a/x"), event=LogEvent.JOB_INFO) == []
    assert said(job("a/x"), done=9) == []
