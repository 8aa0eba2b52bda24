"""The harness of kills: it notices what is lost, hangs or is left, and the commands stand a small number of them."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import kills


class Counting:
    """Numbers, written one by one; what is there is gone on from."""

    name, ways = "counting", ("everything",)

    def run(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for number in range(len(self.finished(folder, "")), 50):
            with open(folder / "numbers", "a") as file:
                file.write(f"{number}\n")
            time.sleep(0.002)

    def finished(self, folder: Path, said: str) -> list[str]:
        file = folder / "numbers"
        return file.read_text().splitlines() if file.exists() else []

    def require_kept(self, before: list, now: list) -> None:
        assert now[: len(before)] == before, "lost"

    def result(self, folder: Path) -> list[str]:
        return self.finished(folder, "")

    def same(self, one: list, other: list) -> bool:
        return one == other


class Forgetful(Counting):
    def run(self, folder: Path) -> None:
        (folder / "numbers").unlink(missing_ok=True)
        super().run(folder)


class Careless(Counting):
    """Counts one again after a kill."""

    def run(self, folder: Path) -> None:
        if there := self.finished(folder, ""):
            (folder / "numbers").write_text("\n".join([*there, there[-1]]) + "\n")
        super().run(folder)


class Stubborn(Counting):
    ways = ("terminated",)

    def run(self, folder: Path) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"begun\n")
        time.sleep(60)


class Parent(Counting):
    """Leaves a process behind when it is terminated."""

    ways = ("terminated",)

    def run(self, folder: Path) -> None:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
            os._exit(0)
        time.sleep(60)


class Talkative(Counting):
    def run(self, folder: Path) -> None:
        raise RuntimeError("nobody expected this")


def tried(work, tmp_path: Path, number: int = 8) -> int:
    undisturbed, counts, draw = kills.Undisturbed(Counting(), tmp_path), Counter(), random.Random(3)
    return sum(kills.trial(work, undisturbed, tmp_path / f"{n}", draw, counts) for n in range(number))


def test_a_work_that_goes_on_passes(tmp_path):
    assert tried(Counting(), tmp_path) >= 8


@pytest.mark.parametrize(("work", "finding"), [(Forgetful(), "lost"), (Careless(), "ends otherwise than undisturbed")])
def test_what_is_lost_or_done_twice_is_found(tmp_path, work, finding):
    with pytest.raises(AssertionError, match=finding):
        tried(work, tmp_path)


def test_what_hangs_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "LIMIT_S", 0.5)
    with pytest.raises(AssertionError, match=r"counting, terminated: has not ended after 0 s: begun"):
        kills.ended(Stubborn(), tmp_path / "work", "terminated", 0.5, random.Random(0))


def test_what_is_left_running_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "GRACE_S", 0.2)
    with pytest.raises(AssertionError, match="counting, terminated: left 1 processes running"):
        kills.ended(Parent(), tmp_path / "work", "terminated", 0.5, random.Random(0))


def test_a_traceback_is_found(tmp_path):
    with pytest.raises(AssertionError, match="RuntimeError: nobody expected this"):
        kills.ended(Talkative(), tmp_path / "work")


@pytest.mark.slow
@pytest.mark.parametrize("work", [kills.Training(), kills.Recording(), kills.Paper()], ids=lambda work: work.name)
def test_a_few_kills_lose_nothing(tmp_path, work):
    counts = kills.trials(4, 1, tmp_path, (work,))
    assert sum(count for (_, way, _), count in counts.items() if way in kills.KILLS) >= 4
