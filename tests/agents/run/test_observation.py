"""Parts of an observation: what they may be, what is read of an environment, and gaps by hand."""

import math
import re

import pytest
import torch

from lockstep import envs
from lockstep.agents.run import observation
from lockstep.agents.run.environment import of_run, options_of
from lockstep.agents.run.observation import Part, parts_of
from tests.agents.worlds import World

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scale": ()}, "scale=() must be numbers above 0, one at least"),
        ({"scale": (1.0, 0.0)}, "scale=(1.0, 0.0) must be numbers above 0"),
        ({"scale": (1.0,), "slots": -1}, "slots=-1 must be at least 0"),
        ({"scale": (1.0,), "flagged": True}, "flagged and apart are of objects, so slots must be at least 1"),
        ({"scale": (1.0, 1.0), "apart": 0.5}, "flagged and apart are of objects"),
        ({"scale": (1.0,), "slots": 2, "apart": 0.5}, "apart=0.5 needs slots of two numbers at least"),
        ({"scale": (1.0, 1.0), "slots": 2, "radius": 1}, "radius=1 must be a number of a slot from which apart leaves"),
        ({"scale": (1.0, 1.0), "slots": 2, "apart": 0.0, "radius": 2}, "radius=2 must be a number of a slot"),
    ],
)
def test_a_part_that_cannot_be_is_refused(fields, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Part(**fields)


# ---- what an environment says ---------------------------------------------------------------------------------------


def test_an_environment_of_one_s_own_says_it_by_an_attribute():
    env = World()  # of three numbers
    assert parts_of(env) == ()
    env.observation_parts = [Part((1.0,)), Part((2.0,), slots=1, flagged=True)]
    assert parts_of(env) == (Part((1.0,)), Part((2.0,), slots=1, flagged=True))
    env.observation_parts = [Part((1.0, 2.0))]
    with pytest.raises(ValueError, match=r"World\.observation_parts has 2 numbers and flags; an observation has 3"):
        parts_of(env)
    env.observation_parts = [(1.0, 2.0, 3.0)]
    with pytest.raises(ValueError, match=r"World\.observation_parts must be a sequence of Part, not \[\(1\.0, 2"):
        parts_of(env)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Parts of CartPole, whose observations have four numbers, as a file says them."""

    def read(text: str, **params) -> tuple[Part, ...]:
        (tmp_path / observation.FILE).write_text(text)
        env = envs.make("cartpole", 4, **params)
        monkeypatch.setattr(envs, "folder", lambda name: tmp_path)
        try:
            return parts_of(env)
        finally:
            monkeypatch.undo()

    return read


def test_a_port_says_it_in_a_file():
    assert parts_of(envs.make("cartpole", 4)) == ()


def test_a_file_has_parts_by_name(written):
    assert written("own: {scale: [1, 2]}\nothers: {scale: [3], slots: 2}") == (
        Part((1.0, 2.0)),
        Part((3.0,), slots=2),
    )


def test_a_file_may_have_others_for_each_value_of_a_parameter(written):
    text = "kinematics_integrator:\n  euler: {own: {scale: [1, 1, 1, 1]}}\n"
    text += "  semi_implicit_euler: {own: {scale: [2, 1, 1, 1]}}"
    assert written(text) == (Part((1.0, 1.0, 1.0, 1.0)),)
    assert written(text, kinematics_integrator="semi_implicit_euler") == (Part((2.0, 1.0, 1.0, 1.0)),)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("own: {scale: [1, 2]}", "cartpole/observation.yaml has 2 numbers and flags; an observation has 4"),
        ("own: {scales: [1]}", "cartpole/observation.yaml: own: unknown key 'scales'; did you mean 'scale'?"),
        ("own: [1, 2, 3, 4]", "cartpole/observation.yaml: own: [1, 2, 3, 4] must be values by name, of scale"),
        ("own: {scale: [1, x]}", "cartpole/observation.yaml: own: could not convert string"),
        ("own: {scale: [1, -1]}", "cartpole/observation.yaml: own: scale=(1.0, -1.0) must be numbers above 0"),
        ("[1]", "cartpole/observation.yaml: [1] must be parts by name"),
        ("own: {slots: 3}", "cartpole/observation.yaml: own: scale=() must be numbers above 0"),
    ],
)
def test_a_file_that_is_wrong_is_named(written, text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        written(text)


# ---- what is read of observations -----------------------------------------------------------------------------------

PARTS = Part((1.0,)), Part((1.0, 1.0, 1.0), slots=2, flagged=True, apart=0.5, radius=2), Part((1.0, 1.0), 2, apart=1.0)
ROWS = [  # own; two slots x, y, radius; two slots x, y; two flags; the gap
    ([9.0, 3, 4, 1, 0, 1, 0, 6, 8, 0, 0, 1, 0], 5 - 0.5 - 1),
    ([9.0, 3, 4, 1, 0, 1, 0, 6, 8, 0, 0, 0, 0], 10 - 1),  # the first is not there
    ([9.0, 3, 4, 1, 0, 2, 1, 0, 0, -1, 0, 1, 1], 1 - 1),
    ([9.0, 3, 4, 1, 0, 2, 2, 0, 0, 0, 0, 1, 1], 2 - 0.5 - 2),  # one within the other
    ([9.0, 3, 4, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0], math.inf),
]


def test_gaps_by_hand():
    found = observation.gap(PARTS, torch.tensor([row for row, _ in ROWS]))
    assert found.tolist() == [gap for _, gap in ROWS]


def test_parts_are_told_apart_by_hand():
    (own, nothing), (first, held), (second, there) = observation.split(PARTS, torch.tensor([ROWS[0][0]]))
    assert own.tolist() == [[[9.0]]] and nothing is None
    assert first.tolist() == [[[3.0, 4, 1], [0, 1, 0]]] and held.tolist() == [[True, False]]
    assert second.tolist() == [[[6.0, 8], [0, 0]]] and there.tolist() == [[True, False]]


# ---- options of an environment that a run makes ---------------------------------------------------------------------


def test_options_are_read_as_values():
    assert options_of("") == {}
    assert options_of("preset=original, robots=3,dt=1e-2,stop_at_collision=true") == {
        **{"preset": "original", "robots": 3},
        **{"dt": 0.01, "stop_at_collision": True},
    }


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("robots", "options='robots': 'robots' must be name=value"),
        ("robots=", "options='robots=': 'robots=' must be name=value"),
        ("gravity=1,=2", "options='gravity=1,=2': '=2' must be name=value"),
        ("gravity=[", "options='gravity=[': '[' is no value"),
        ("seed=3", "options='seed=3': seed is not to be chosen there; the run has it"),
        ("threads=3", "threads is not to be chosen there"),
        ("gravty=3", "CartPole-v1 has no parameter or option 'gravty'; did you mean 'gravity'"),
    ],
)
def test_options_that_cannot_be_are_refused(named, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        of_run("cartpole", 4, CPU, named=named, seed=1)


def test_an_environment_is_made_with_its_options():
    assert of_run("cartpole", 4, CPU, named="gravity=1.5", seed=1).params.gravity == 1.5
