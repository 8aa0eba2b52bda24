"""The soak: a leak is found, and environments that come and go for a minute leave none."""

import os
import threading

import pytest

from lockstep import envs
from lockstep.agents import recipes
from tests import soak

LEAKED: list = []


@pytest.fixture(autouse=True)
def _dropped():
    yield
    LEAKED.clear()


def leaking(size: int):
    """A turn that keeps so many bytes, all of them written to."""

    def turn(number: int) -> int:
        LEAKED.append(b"x" * size)
        return 1

    return turn


def test_a_line_grows_by_its_slope_however_its_points_jump():
    assert soak.growth([100, 103, 106, 109]) == pytest.approx(9)
    assert soak.growth([5, -5] * 50) == pytest.approx(0, abs=0.4)


def test_a_leak_is_found():
    row = soak.soaked(leaking(2**24), 0.2)  # some goes where memory had become free before
    assert row["turns"] >= soak.FEWEST and "memory grows by" in soak.wrong(row)[0]


def test_without_a_leak_nothing_is_found():
    row = soak.soaked(lambda number: len(b"x" * 2**20) and 3, 0.2)
    assert soak.wrong(row) == [] and row["steps"] == 3 * row["turns"]


def test_files_and_threads_that_stay_are_counted():
    waiting, files = threading.Event(), []

    def turn(number: int) -> int:
        files.append(os.open(os.devnull, os.O_RDONLY))
        threading.Thread(target=waiting.wait).start()
        return 0

    row = soak.soaked(turn, 0.0)
    waiting.set()
    for file in files:
        os.close(file)
    assert [sentence.partition(" ")[2] for sentence in soak.wrong(row)] == ["files more", "threads more"]


@pytest.mark.parametrize("name", recipes.names())
def test_every_algorithm_with_a_recipe_is_trained_shortly(name):
    found = list(soak.learners(name, 0, False))
    assert {algorithm.name for algorithm, _ in found} == set(recipes.load(name))
    assert {settings.total_steps for _, settings in found} == {64}


@pytest.mark.parametrize(
    "minutes", [pytest.param(0.1, marks=pytest.mark.slow), pytest.param(1.0, marks=pytest.mark.long)]
)
def test_environments_that_come_and_go_leave_nothing(minutes):
    found = dict(soak.rows(envs.names(), minutes))
    assert {name: soak.wrong(row) for name, row in found.items()} == {name: [] for name in envs.names()}
