"""Trainings whose files cannot be written at some moment, or that are killed: nothing that was saved is lost."""

import contextlib
import errno
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from lockstep.agents import ppo
from lockstep.agents.run import checkpoint, training
from tests.faults import Faults, failing, files_of_at_most

CONFIG = ppo.config_of("cartpole", num_envs=8, horizon=16, total_steps=1280, save_every=128, threads=1)


def goes_on(folder: Path) -> dict:
    """The state at the end of a training that begins in a folder, or goes on with what was saved there."""
    kept = (folder / training.CHECKPOINT).exists()
    run = ppo.train("cartpole", CONFIG, output=folder, resume=folder if kept else None)
    assert checkpoint.of_run(folder / training.CHECKPOINT, "ppo")["states"][0]["iteration"] == run.iterations
    assert not list(folder.glob("*.partial"))
    rows = (folder / training.PROGRESS).read_text().splitlines()
    iterations = [int(row.split(",")[0]) for row in rows[1:]]
    assert iterations == sorted(set(iterations)) and iterations[-1] == run.iterations
    return run.state()


def saved(folder: Path) -> int:
    """The iteration of the checkpoint, which is whole; 0 where there is none."""
    path = folder / training.CHECKPOINT
    return checkpoint.of_run(path, "ppo")["states"][0]["iteration"] if path.exists() else 0


def same(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@contextlib.contextmanager
def told(folder: Path):
    """A failure is an OSError that names the file, or the folder whose names do not reach the disk."""
    said = str(folder)
    try:
        yield
    except OSError as error:
        said = str(error)
    assert str(folder) in said


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The state at the end, and how many calls the files of a whole training took."""
    faults = Faults()
    with failing(faults):
        return goes_on(tmp_path_factory.mktemp("whole")), faults.calls


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("trials", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_a_training_whose_files_fail_goes_on_to_the_same_end(tmp_path, undisturbed, number, trials):
    """One failure of a call, by a seed, then another: each is an OSError that names it, and no checkpoint is older."""
    expected, calls = undisturbed
    draw = random.Random(number)
    for trial in range(trials):
        folder = tmp_path / str(trial)
        iteration = 0
        for at in (draw.randint(1, calls), draw.randint(1, calls // 2)):
            faults = Faults(at, number)
            with told(folder), failing(faults):
                goes_on(folder)
                assert faults.calls < at  # else the training would have had to tell
            assert saved(folder) >= iteration
            iteration = saved(folder)
        assert same(goes_on(folder), expected)


def test_no_checkpoint_is_ahead_of_its_log(tmp_path, monkeypatch):
    """Else a run killed right after one would lack the row; the log alone keeps rows back that come fast."""
    save, seen = checkpoint.save, []

    def saves(path, content):
        last = (tmp_path / training.PROGRESS).read_text().splitlines()[-1]
        seen.append((content["states"][0]["iteration"], int(last.split(",")[0])))
        save(path, content)

    monkeypatch.setattr(checkpoint, "save", saves)
    goes_on(tmp_path)
    assert len(seen) > 10 and all(saved == logged for saved, logged in seen)


@pytest.mark.parametrize("trials", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, undisturbed, trials):
    """Writes themselves fail, within a file of any length up to a checkpoint's."""
    expected, _ = undisturbed
    goes_on(tmp_path / "whole")
    length, draw = (tmp_path / "whole" / training.CHECKPOINT).stat().st_size, random.Random(0)
    for trial in range(trials):
        folder = tmp_path / str(trial)
        with files_of_at_most(draw.randrange(length)), pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            goes_on(folder)
        assert str(folder) in str(caught.value)
        assert saved(folder) == 0
        assert same(goes_on(folder), expected)


def trained(folder: Path) -> None:
    torch.set_num_threads(1)
    while True:  # killed from outside
        goes_on(folder)
        for file in folder.iterdir():
            file.unlink()


@pytest.mark.slow
def test_a_training_that_is_killed_at_any_moment_goes_on_to_the_same_end(tmp_path, undisturbed):
    """Forty kills, by a seed, each within the time that a training takes."""
    expected, _ = undisturbed
    start = time.perf_counter()
    goes_on(tmp_path / "whole")
    lasts_s, draw = time.perf_counter() - start, random.Random(1)
    context = multiprocessing.get_context("fork")
    for trial in range(20):
        folder = tmp_path / str(trial)
        for _ in range(2):
            process = context.Process(target=trained, args=(folder,))
            process.start()
            time.sleep(draw.uniform(0, lasts_s))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            saved(folder)  # is whole
        for file in folder.glob("*.partial") if folder.exists() else ():
            file.unlink()
        assert same(goes_on(folder), expected)
