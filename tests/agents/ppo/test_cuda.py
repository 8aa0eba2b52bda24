"""Runs of PPO on a GPU: a team's, and runs that are continued."""

import pytest
import torch

from lockstep import envs
from lockstep.agents.ppo import PPO, Config
from lockstep.agents.run import checkpoint
from lockstep.agents.run.config import replaced
from tests.agents.graphs import nothing_waiting
from tests.agents.worlds import normal

pytestmark = pytest.mark.gpu

SMALL = Config(num_envs=8, horizon=16, total_steps=128 * 20, epochs=2, minibatches=2, hidden=(16, 16), threads=1)
TEAM = {"joint": True, "groups": True, "log_std": -1.0}
EDGE = {"vehicles": 12, "edges": 3, "types": 20, "slots": 6, "components": 2}
RUNS = [
    ("cartpole", {}),
    ("pendulum", {"norm_obs": True, "norm_reward": True, "rollout": "torch"}),
    ("vehicular_edge", TEAM),
    ("vehicular_edge", TEAM | {"ratio": "component", "norm_obs": True, "norm_reward": True}),
    ("vehicular_edge", TEAM | {"actors": "each"}),
]


def run(name: str, device: str = "cuda", **changes) -> PPO:
    config = replaced(SMALL, changes)
    if not envs.port(name).agents:
        return PPO(name, config, device)
    world = envs.make(name, config.num_envs, device, signed=True, check_actions=False, scenarios=2, **EDGE)
    return PPO(world, config, device)


def iterated(trainer: PPO, iterations: int) -> PPO:
    for _ in range(iterations):
        trainer.iterate()
    return trainer


@pytest.mark.parametrize(("name", "changes"), RUNS[2:])
def test_a_graph_of_a_team_s_run_changes_no_bit(name, changes):
    one, other = (iterated(run(name, graph=graph, **changes), 6) for graph in ("on", "off"))
    assert torch.equal(one.networks.parameters, other.networks.parameters)
    assert torch.equal(one.rollout.rows["log_prob"], other.rollout.rows["log_prob"])
    assert one.statistics()["episodes"] == other.statistics()["episodes"] > 0


@pytest.mark.parametrize(("name", "changes"), RUNS[2:])
def test_a_team_s_iteration_never_waits_for_the_device(name, changes):
    trainer = iterated(run(name, graph="off", **changes), 1)
    with nothing_waiting():
        iterated(trainer, 2)


def test_a_team_learns_what_it_learns_on_a_cpu():
    """One iteration, before rounding has grown."""
    there, here = (iterated(run("vehicular_edge", device, **TEAM), 1) for device in ("cuda", "cpu"))
    for key, most in (("obs", 1e-4), ("action", 1e-4), ("reward", 1e-4)):
        one, other = (trainer.rollout.rows[key].cpu().float() for trainer in (there, here))
        torch.testing.assert_close(one, other, rtol=most, atol=most)
    torch.testing.assert_close(there.networks.parameters.cpu(), here.networks.parameters, rtol=0, atol=1e-3)


@pytest.mark.parametrize("graph", ["on", "off"])
@pytest.mark.parametrize(("name", "changes"), RUNS)
def test_a_continued_run_has_the_bits_of_one_that_went_on(name, changes, graph, tmp_path):
    whole = iterated(run(name, graph=graph, **changes), 3)
    checkpoint.save(tmp_path / "state.pt", whole.state())
    continued = run(name, graph=graph, **changes)
    continued.load_state(checkpoint.load(tmp_path / "state.pt"))
    for trainer in (whole, continued):
        iterated(trainer, 3)
    assert whole.iteration == continued.iteration == 6
    assert torch.equal(whole.networks.parameters, continued.networks.parameters)
    assert torch.equal(whole.rollout.rows["reward"], continued.rollout.rows["reward"])


def test_what_was_trained_on_a_gpu_acts_on_a_cpu():
    trained, plain = iterated(run("cartpole"), 3), run("cartpole", "cpu")
    plain.networks.parameters.copy_(trained.networks.parameters)
    obs = normal(50, 4)
    assert torch.equal(trained.act(obs.cuda()).cpu(), plain.act(obs))
