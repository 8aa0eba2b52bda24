"""Every algorithm keeps to the protocol that general code asks for."""

import copy
import csv
import dataclasses
import functools
import sys
import types

import pytest
import torch

import lockstep
from lockstep import agents, envs
from lockstep.agents.parts import off_policy
from lockstep.agents.ppo import algorithm as ppo_algorithm
from lockstep.agents.run import checkpoint, config, log, training
from lockstep.agents.run.algorithm import Algorithm
from tests.agents.exports import exported, in_onnx, program
from tests.agents.run.test_log import scalars
from tests.agents.worlds import World


@pytest.fixture(params=agents.names())
def algorithm(request):
    return agents.algorithm(request.param)


@functools.cache
def played_by(algorithm) -> str:
    """An environment with actions that an algorithm takes: choices, or else numbers."""
    try:
        algorithm("cartpole")
    except ValueError:
        return "pendulum"
    return "cartpole"


@pytest.fixture
def environment(algorithm):
    return played_by(algorithm)


def of_iterations(algorithm, iterations: int, steps: int = 0) -> config.Settings:
    """Settings of a run of so many iterations, or of more if these have fewer steps."""
    settings = config.replaced(algorithm.Config(), {"num_envs": 16, "threads": 1})
    one = algorithm(played_by(algorithm), settings)
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


def test_an_algorithm_has_every_name_of_the_protocol(algorithm, environment):
    run = algorithm(environment)
    asked = {*vars(Algorithm), *Algorithm.__annotations__}
    assert all(hasattr(run, name) for name in asked if not name.startswith("_"))
    assert set(algorithm.SHAPES) <= {field.name for field in dataclasses.fields(algorithm.Config)}
    assert all(isinstance(recipe, algorithm.Config) for recipe in algorithm.RECIPES.values())


def test_a_run_tells_of_every_column_and_goes_on_from_its_state(algorithm, environment, tmp_path):
    run = training.train(algorithm, environment, of_iterations(algorithm, 4), output=tmp_path)
    assert run.iteration == run.iterations == 4 and run.env_steps == run.config.total_steps
    header = (tmp_path / "progress.csv").read_text().splitlines()[0]
    assert tuple(header.split(",")) == (*log.COLUMNS, *algorithm.COLUMNS)
    half, rest = (algorithm(environment, run.config) for _ in range(2))
    for _ in range(2):
        half.iterate()
    rest.load_state(half.state())
    for _ in range(2):
        rest.iterate()
    assert set(rest.statistics()) == {*log.OF_EPISODES, *algorithm.COLUMNS}
    assert same(rest.state(), run.state())
    assert checkpoint.of_run(tmp_path / "checkpoint.pt", algorithm.name)["states"][0].keys() == run.state().keys()


@pytest.mark.parametrize("threads", [2, None])
def test_torch_has_the_threads_of_a_run_while_it_trains_and_its_own_again_after(
    algorithm, environment, threads, monkeypatch
):
    settings, seen = dataclasses.replace(of_iterations(algorithm, 2), threads=threads, eval_every=1), []
    iterate = algorithm.iterate
    monkeypatch.setattr(algorithm, "iterate", lambda run: (seen.append(torch.get_num_threads()), iterate(run))[1])
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        run = training.train(algorithm, environment, settings)
        assert set(seen) == {run.torch_threads(settings) if threads else 3} and torch.get_num_threads() == 3

        def fails(run):
            raise RuntimeError("out of order")

        with pytest.raises(RuntimeError, match="out of order"):
            training.train(algorithm, environment, settings, check=fails)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_options_are_the_environment_s_and_a_checkpoint_of_before_there_were_any_has_none(
    algorithm, environment, tmp_path
):
    name = {"pendulum": "g", "cartpole": "gravity"}[environment]
    settings = dataclasses.replace(of_iterations(algorithm, 2), options=f"{name}=9.0")
    assert getattr(algorithm(environment, settings).env.params, name) == 9.0
    with pytest.raises(ValueError, match="options='seed=1': seed is not to be chosen there; the run has it"):
        algorithm(environment, dataclasses.replace(settings, options="seed=1"))
    plain = dataclasses.replace(settings, options="")
    run = training.train(algorithm, environment, plain, output=tmp_path)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    assert content["config"].pop("options") == ""
    checkpoint.save(tmp_path / "checkpoint.pt", content)
    assert same(training.load(algorithm, tmp_path).state(), run.state())
    assert same(training.train(algorithm, environment, plain, resume=tmp_path).state(), run.state())
    with pytest.raises(ValueError, match=f"options is '' in the checkpoint and '{name}=9.0' here"):
        training.train(algorithm, environment, settings, resume=tmp_path)


def test_a_run_made_in_inference_mode_learns_outside(algorithm, environment):
    settings = of_iterations(algorithm, 1000)
    expected = algorithm(environment, settings)
    with torch.inference_mode():
        run = algorithm(environment, settings)
        kept = run.state()
    run.load_state(kept)
    for one in (expected, run):
        while not one.learns:
            one.iterate()
        one.iterate()
    assert same(run.state(), expected.state())


def test_tensorboard_has_every_column_of_the_log(algorithm, environment, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs TensorBoard: pip install tensorboard")
    monkeypatch.setattr(log, "ROW_EVERY_S", 0.0)
    run = training.train(algorithm, environment, of_iterations(algorithm, 4, 1280), output=tmp_path, tensorboard=True)
    rows = list(csv.DictReader((tmp_path / "progress.csv").open(newline="")))
    expected = {
        name: [(int(row["env_steps"]), pytest.approx(float(row[name]))) for row in rows if row[name] not in ("", "nan")]
        for name in (*log.COLUMNS, *algorithm.COLUMNS)
        if name != "env_steps"
    }
    assert len(rows) == run.iterations >= 4 and scalars(tmp_path) == {
        name: points for name, points in expected.items() if points
    }


def test_without_tensorboard_a_sentence_says_what_to_install(algorithm, environment, tmp_path, monkeypatch):
    settings = of_iterations(algorithm, 1)
    with pytest.raises(ValueError, match="tensorboard=True writes into the output folder, so it needs output="):
        training.train(algorithm, environment, settings, tensorboard=True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="tensorboard=True needs TensorBoard: pip install tensorboard"):
        training.train(algorithm, environment, settings, output=tmp_path / "run", tensorboard=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_to_act_takes_the_weights_of_another(algorithm, environment):
    run = algorithm(environment, of_iterations(algorithm, 500))
    before = run.weights()
    while same(before, run.weights()) and run.iteration < 500:
        run.iterate()
    assert not same(before, run.weights()) and same(run.weights(), {key: run.state()[key] for key in before})
    actor, obs = algorithm(environment, algorithm.to_act(run.config)), lockstep.make(environment, 50).reset(seed=1)[0]
    actor.load_weights(run.weights())
    greedy = run.act(obs)
    assert torch.equal(actor.act(obs), greedy) and actor.act(obs, greedy=False).shape == greedy.shape
    assert isinstance(run.policy(), envs.MLP | None)
    key = next(key for key, part in before.items() if isinstance(part, torch.Tensor))
    with pytest.raises(ValueError, match=rf"state\['{key}'\] must be finite"):
        actor.load_weights(run.weights() | {key: before[key] / 0})


def test_acting_changes_nothing_that_training_depends_on(algorithm, environment):
    """Greedy actions draw nothing at all, others by torch's own generator."""
    settings = of_iterations(algorithm, 8)
    if hasattr(settings, "learning_starts"):
        settings = dataclasses.replace(settings, learning_starts=64)
    run, other = (algorithm(environment, settings) for _ in range(2))
    obs = lockstep.make(environment, 50).reset(seed=1)[0]
    for _ in range(run.iterations):
        run.iterate()
        other.iterate()
        before, drawn = run.state(), torch.get_rng_state()
        run.act(obs)
        assert same(run.state(), before) and torch.equal(torch.get_rng_state(), drawn)
        run.act(obs, greedy=False)
        assert same(run.state(), before) and not torch.equal(torch.get_rng_state(), drawn)
    assert run.learns and same(run.state(), other.state())


def test_a_policy_acts_the_same_as_a_module_exported_and_in_onnx(algorithm, environment, tmp_path):
    run = algorithm(environment, dataclasses.replace(of_iterations(algorithm, 1), seed=2))
    run.iterate()
    run.load_weights({key: 3 * part for key, part in run.weights().items()})  # so that actions differ
    n = run.env.single_observation_space.shape[-1]
    module, obs = run.module(), 3 * torch.randn(50, n, generator=torch.Generator().manual_seed(0))
    before = run.act(obs)
    assert isinstance(module, torch.nn.Module) and len(before[1:].unique()) > 1
    made = program(module, obs)
    for found in (module(obs), exported(made, obs, tmp_path), in_onnx(made, obs, tmp_path)):
        torch.testing.assert_close(found.to(before.dtype), before)
    kept = copy.deepcopy(module.state_dict())
    run.load_weights({key: part * 0 for key, part in run.weights().items()})
    assert kept and same(kept, module.state_dict())


def test_who_does_not_act_has_an_action_of_0(algorithm, environment):
    run = algorithm(environment, dataclasses.replace(of_iterations(algorithm, 1), seed=2))
    run.iterate()
    run.load_weights({key: 3 * part for key, part in run.weights().items()})  # so that actions differ
    obs = 3 * torch.randn(50, run.env.single_observation_space.shape[-1], generator=torch.Generator().manual_seed(0))
    active, action = torch.arange(50) % 3 > 0, run.act(obs)
    found = run.act(obs, active=active)
    assert found.dtype == action.dtype and torch.equal(found[active], action[active])
    assert not found[~active].any() and action[~active].any()
    with pytest.raises(ValueError, match=r"active must be bool \[50\], as the observations are, not bool \[49\]"):
        run.act(obs, active=active[1:])


def of_process(algorithm, rank: int, monkeypatch, environment):
    """A run of 16 environments as the process of this rank, of three, makes it; or skips what trains in one."""
    if not issubclass(algorithm, off_policy.OffPolicy | ppo_algorithm.PPO):
        pytest.skip("trains in one process")
    three = types.SimpleNamespace(size=3, rank=rank, device=torch.device("cpu"), reduce=None, average=None)
    for module in (off_policy, ppo_algorithm):
        monkeypatch.setattr(module, "Ranks", lambda device: three)
    settings = config.replaced(algorithm.Config(), {"num_envs": 48, "total_steps": 10_000})
    if hasattr(settings, "batch_size"):
        settings = dataclasses.replace(settings, batch_size=48)
    return algorithm(environment, settings)


def test_processes_with_an_environment_of_one_s_own_play_different_episodes(algorithm, environment, monkeypatch):
    """Such an environment knows nothing of processes but the seed of its reset, which has 31 bits."""
    space, seeds = envs.port(environment).of("action"), []

    class Seeded(World):
        def reset(self, seed=None):
            seeds.append(seed)
            return super().reset(seed)

    for rank in range(3):
        of_process(algorithm, rank, monkeypatch, Seeded(16, space))
    assert seeds[0] == 0 and len(set(seeds)) == 3 and all(0 <= seed < 2**31 for seed in seeds)
    placed, found = Seeded(16, space), list(seeds)
    placed.first_index = 32  # which says that its episodes are those of the third process
    of_process(algorithm, 2, monkeypatch, placed)
    assert seeds == [*found, 0]


def test_a_port_of_several_processes_must_be_a_part_of_its_own(algorithm, environment, monkeypatch):
    said = f"first_index=0, .* make it with lockstep.make\\('{environment}', 16, first_index=32\\)"
    with pytest.raises(ValueError, match=said):
        of_process(algorithm, 2, monkeypatch, lockstep.make(environment, 16))
    run = of_process(algorithm, 2, monkeypatch, lockstep.make(environment, 16, first_index=32))
    assert run.env.first_index == 32
    of_process(algorithm, 0, monkeypatch, lockstep.make(environment, 16))


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (lambda n: torch.zeros(1, n - 1), r"obs has the shape \[1, {less}\]; it must be \[B, {n}\], any B"),
        (lambda n: torch.zeros(n), r"obs has the shape \[{n}\]; it must be \[B, {n}\]"),
        (lambda n: torch.zeros(2, 2, n), r"obs has the shape \[2, 2, {n}\]"),
        (lambda n: [0.0] * n, r"obs must be a tensor \[B, {n}\], got list"),
    ],
)
def test_observations_of_another_shape_are_named(algorithm, environment, obs, message):
    run = algorithm(environment)
    n = run.env.single_observation_space.shape[-1]
    with pytest.raises(ValueError, match=message.format(n=n, less=n - 1)):
        run.act(obs(n))


@pytest.mark.parametrize("insists", [{"precision": "tf32"}, {"graph": "on"}])
def test_what_was_trained_with_what_a_gpu_alone_has_acts_on_the_cpu(algorithm, environment, insists, tmp_path):
    if not hasattr(algorithm.Config(), *insists):
        pytest.skip("has no such setting")
    run = training.train(algorithm, environment, of_iterations(algorithm, 2), output=tmp_path)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    content["config"] |= insists
    checkpoint.save(tmp_path / "checkpoint.pt", content)
    obs = lockstep.make(environment, 50).reset(seed=1)[0]
    loaded = training.load(algorithm, tmp_path)
    assert torch.equal(loaded.act(obs), run.act(obs)) and same(loaded.weights(), run.weights())


@pytest.mark.parametrize("iteration", [-5, 10**9])
def test_a_checkpoint_of_an_iteration_that_no_run_reaches_is_refused(algorithm, environment, iteration, tmp_path):
    run = training.train(algorithm, environment, of_iterations(algorithm, 2), output=tmp_path, quiet=True)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    content["states"][0]["iteration"] = iteration
    checkpoint.save(tmp_path / "checkpoint.pt", content)
    with pytest.raises(ValueError, match=f"iteration={iteration} must be in 0 .. {run.iterations}"):
        training.load(algorithm, tmp_path)


def test_a_recipe_may_say_1e_3(tmp_path):
    """A number in YAML 1.2, a text in 1.1."""
    (tmp_path / "recipe.yaml").write_text("ppo: {lr: 1e-3}\n")
    assert config.config_of(agents.algorithm("ppo"), "cartpole", str(tmp_path / "recipe.yaml")).lr == 0.001


@pytest.mark.filterwarnings("error")
def test_a_single_step_per_iteration_warns_of_nothing():
    ppo = agents.algorithm("ppo")
    small = {"total_steps": 1, "num_envs": 1, "horizon": 1, "minibatches": 1}
    training.train(ppo, "cartpole", config.replaced(ppo.Config(), small), quiet=True)
