"""Every algorithm keeps to the protocol that general code asks for."""

import copy
import csv
import dataclasses
import sys

import pytest
import torch

import lockstep
from lockstep import agents, envs
from lockstep.agents.run import checkpoint, config, log, training
from lockstep.agents.run.algorithm import Algorithm
from tests.agents.exports import exported, in_onnx, program
from tests.agents.run.test_log import scalars


@pytest.fixture(params=agents.names())
def algorithm(request):
    return agents.algorithm(request.param)


def of_iterations(algorithm, iterations: int, steps: int = 0) -> config.Settings:
    """Settings of a run of so many iterations, or of more if these have fewer steps."""
    settings = config.replaced(algorithm.Config(), {"num_envs": 16, "threads": 1})
    one = algorithm("cartpole", settings)
    one.iterate()
    return dataclasses.replace(settings, total_steps=max(iterations * one.env_steps, steps))


def same(one, other) -> bool:
    """True where two states are equal to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_algorithms_are_found_by_folder(tmp_path, monkeypatch):
    for file in ("__init__.py", "one.py", "two/__main__.py", "two/part.py", "parts/__init__.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(agents, "FOLDER", tmp_path)
    assert agents.names() == ["one", "two"]
    with pytest.raises(ValueError, match="there is no algorithm 'tow'; did you mean 'two'?"):
        agents.algorithm("tow")


def test_an_algorithm_has_every_name_of_the_protocol(algorithm):
    run = algorithm("cartpole")
    asked = {*vars(Algorithm), *Algorithm.__annotations__}
    assert all(hasattr(run, name) for name in asked if not name.startswith("_"))
    assert set(algorithm.SHAPES) <= {field.name for field in dataclasses.fields(algorithm.Config)}
    assert all(isinstance(recipe, algorithm.Config) for recipe in algorithm.RECIPES.values())


def test_a_run_tells_of_every_column_and_goes_on_from_its_state(algorithm, tmp_path):
    run = training.train(algorithm, "cartpole", of_iterations(algorithm, 4), output=tmp_path)
    assert run.iteration == run.iterations == 4 and run.env_steps == run.config.total_steps
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    assert tuple(header.split(",")) == (*log.COLUMNS, *algorithm.COLUMNS)
    half, rest = (algorithm("cartpole", run.config) for _ in range(2))
    for _ in range(2):
        half.iterate()
    rest.load_state(half.state())
    for _ in range(2):
        rest.iterate()
    assert set(rest.statistics()) == {*log.OF_EPISODES, *algorithm.COLUMNS}
    assert same(rest.state(), run.state())
    assert checkpoint.of_run(tmp_path / "checkpoint.pt", algorithm.name)["states"][0].keys() == run.state().keys()


def test_tensorboard_has_every_column_of_the_log(algorithm, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs TensorBoard: pip install tensorboard")
    monkeypatch.setattr(log, "ROW_EVERY_S", 0.0)
    run = training.train(algorithm, "cartpole", of_iterations(algorithm, 4, 1280), output=tmp_path, tensorboard=True)
    rows = list(csv.DictReader((tmp_path / "progress.csv").open(newline="")))
    expected = {
        name: [(int(row["env_steps"]), pytest.approx(float(row[name]))) for row in rows if row[name] not in ("", "nan")]
        for name in (*log.COLUMNS, *algorithm.COLUMNS)
        if name != "env_steps"
    }
    assert len(rows) == run.iterations >= 4 and scalars(tmp_path) == {
        name: points for name, points in expected.items() if points
    }


def test_without_tensorboard_a_sentence_says_what_to_install(algorithm, tmp_path, monkeypatch):
    settings = of_iterations(algorithm, 1)
    with pytest.raises(ValueError, match="tensorboard=True writes into the output folder, so it needs output="):
        training.train(algorithm, "cartpole", settings, tensorboard=True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="tensorboard=True needs TensorBoard: pip install tensorboard"):
        training.train(algorithm, "cartpole", settings, output=tmp_path / "run", tensorboard=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_to_act_takes_the_weights_of_another(algorithm):
    run = algorithm("cartpole", of_iterations(algorithm, 500))
    before = run.weights()
    while same(before, run.weights()) and run.iteration < 500:
        run.iterate()
    assert not same(before, run.weights()) and same(run.weights(), {key: run.state()[key] for key in before})
    actor, obs = algorithm("cartpole", algorithm.to_act(run.config)), lockstep.make("cartpole", 50).reset(seed=1)[0]
    actor.load_weights(run.weights())
    assert torch.equal(actor.act(obs), run.act(obs)) and actor.act(obs, greedy=False).shape == (50,)
    assert isinstance(run.policy(), envs.MLP | None)
    key = next(key for key, part in before.items() if isinstance(part, torch.Tensor))
    with pytest.raises(ValueError, match=rf"state\['{key}'\] must be finite"):
        actor.load_weights(run.weights() | {key: before[key] / 0})


def test_a_policy_acts_the_same_as_a_module_exported_and_in_onnx(algorithm, tmp_path):
    run = algorithm("cartpole", of_iterations(algorithm, 1))
    run.iterate()
    module, obs = run.module(), torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    before = run.act(obs)
    assert isinstance(module, torch.nn.Module) and 1 < before.float().sum() < 49
    made = program(module, obs)
    for found in (module(obs), exported(made, obs, tmp_path), in_onnx(made, obs, tmp_path)):
        assert torch.equal(found.to(before.dtype), before)
    kept = copy.deepcopy(module.state_dict())
    run.load_weights({key: part * 0 for key, part in run.weights().items()})
    assert kept and same(kept, module.state_dict())
