"""Numbers that are not finite are named, do not reach the parameters, and stop the run with a checkpoint."""

import dataclasses

import pytest
import torch

from lockstep.agents import ppo
from lockstep.agents.run import checkpoint, log, training
from tests.agents.training_worker import RUNS, Poisoned

CONFIG = dataclasses.replace(RUNS["kernels"][1], minibatches=8)  # 2 x 8 updates in an iteration
TORCH = dataclasses.replace(CONFIG, rollout="torch", gradient="autograd", total_steps=6 * 1024)


def nan_in_advantages(run):
    run.gae.advantage[3, 1] = torch.nan


def nan_in_a_state(run):
    run.env._buffers["state"][0, 7] = torch.nan  # x; `set_state` takes no NaN
    if len(run.rollout.rows["obs"]) > run.config.horizon:  # the roll-out by torch begins with it
        run.rollout.rows["obs"][-1, 7, 0] = torch.nan


def poisoned(phase: str, inject, at: int = 2) -> type:
    """PPO whose `inject` runs in iteration `at`, counted from 0, after a phase."""

    class Poisoned(ppo.PPO):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            before = getattr(self, f"_{phase}")

            def after():
                before()
                if self.iteration == at:
                    inject(self)

            self.phases[phase] = after

    return Poisoned


def stopped(algorithm: type, environment, config, folder) -> str:
    """The message of the run that stops; its checkpoint holds finite parameters."""
    with pytest.raises(FloatingPointError) as error:
        training.train(algorithm, environment, config, output=folder)
    path = folder / "checkpoint.pt"
    assert f"the parameters in {path} are finite" in str(error.value)
    state = checkpoint.load(path)["states"][0]
    assert state["parameters"].isfinite().all()
    assert all(tensor.isfinite().all() for tensor in state["optimizer"].values())
    return str(error.value)


@pytest.mark.parametrize("config", [CONFIG, TORCH], ids=["kernels", "torch"])
def test_nan_in_an_advantage_is_found_in_the_loss(config, tmp_path):
    said = stopped(poisoned("advantage", nan_in_advantages), "cartpole", config, tmp_path)
    row = 3 * 64 + 1
    order = ppo.PPO("cartpole", config).order.draw(torch.tensor([2]))[0, 0].tolist()
    first = order.index(row) // (16 * 64 // 8)  # the minibatch of the first epoch that has the row
    assert said.startswith(f"iteration 2, minibatch {first}: loss is not finite")


@pytest.mark.parametrize("config", [CONFIG, TORCH], ids=["kernels", "torch"])
def test_nan_in_a_state_is_named_as_an_observation(config, tmp_path):
    said = stopped(poisoned("update", nan_in_a_state, at=1), "cartpole", config, tmp_path)
    assert said.startswith("iteration 2, minibatch 0: observation is not finite")


def test_nan_in_a_reward_of_the_environment_is_named(tmp_path):
    said = stopped(ppo.PPO, Poisoned(64, at=3 * 16 + 2), TORCH, tmp_path)
    assert said.startswith("iteration 3, minibatch 0: reward is not finite")


def test_nan_in_a_gradient_is_named_and_its_step_left_out(tmp_path):
    algorithm = poisoned("rollout", lambda run: None)
    first = algorithm.__init__

    def init(self, *arguments):
        first(self, *arguments)
        before, self.calls = self.optimizer._gradient, 0

        def gradient(*given):
            self.calls += 1
            found = before(*given)
            if self.calls == 16 + 6:
                found[0, 11] = torch.nan
            return found

        self.optimizer._gradient = gradient

    algorithm.__init__ = init
    said = stopped(algorithm, "cartpole", TORCH, tmp_path)
    assert said.startswith("iteration 1, minibatch 5: gradient is not finite; no step was made of it")
    taken = checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]["optimizer"]
    assert int(taken["steps"]) == int(taken["updates"]) - 1


def test_a_run_goes_on_from_where_it_was_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "ROW_EVERY_S", 0.0)  # each iteration is looked at
    stopped(ppo.PPO, Poisoned(64, at=40), TORCH, tmp_path)
    path = tmp_path / "checkpoint.pt"
    stop = checkpoint.load(path)["states"][0]["iteration"]
    run = ppo.train(Poisoned(64), TORCH, output=tmp_path, resume=path)
    assert stop == 3 and run.iteration == run.iterations == 6
    assert run.networks.parameters.isfinite().all()


def test_a_state_that_is_not_finite_is_not_continued(tmp_path):
    def inject(run):
        nan_in_a_state(run)
        nan_in_advantages(run)

    stopped(poisoned("advantage", inject, at=9), "cartpole", CONFIG, tmp_path)  # the last one
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(ValueError, match=f"{path} cannot be continued: set_state: x=nan of environment 7"):
        ppo.train("cartpole", CONFIG, output=tmp_path, resume=path)
    assert checkpoint.load(path)["states"][0]["parameters"].isfinite().all()


def test_normalisers_take_in_nothing_that_is_not_finite(tmp_path):
    config = dataclasses.replace(TORCH, norm_obs=True, norm_reward=True)
    stopped(ppo.PPO, Poisoned(64, at=40), config, tmp_path)
    state = checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]
    for part, name in (("normaliser", "mean"), ("scale", "mean"), ("scale", "squares")):
        assert state[part][name].isfinite().all(), (part, name)
    run = ppo.train(Poisoned(64), config, resume=tmp_path / "checkpoint.pt")
    assert run.iteration == run.iterations


def test_a_checkpoint_in_between_is_looked_at_first(tmp_path):
    config = dataclasses.replace(CONFIG, save_every=1)
    stopped(poisoned("advantage", nan_in_advantages), "cartpole", config, tmp_path)
    assert checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]["iteration"] == 3


@pytest.mark.parametrize(("name", "place"), [("obs", 0), ("reward", 1), ("log_prob", 2), ("value", 3)])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_each_quantity_of_a_roll_out_is_guarded(name, place, number):
    run = ppo.PPO("cartpole", CONFIG)
    run.iterate()
    assert run.rollout.finite().tolist() == [True] * 4
    run.rollout.rows[name][2, 5] = number
    assert run.rollout.finite().tolist() == [i != place for i in range(4)]
