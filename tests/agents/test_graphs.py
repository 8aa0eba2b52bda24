"""Iterations that are CUDA graphs are the iterations: what changes lies where a graph reads it."""

import dataclasses

import pytest
import torch
from gymnasium.spaces import Box, Discrete

from lockstep import agents
from lockstep.agents.parts import graphs
from tests.agents.graphs import standing_in, torch_s_own
from tests.agents.worlds import Clock

SMALL = {"num_envs": 8, "hidden": (16,), "encoder": 16, "features": 16, "atoms": 11, "batch_size": 32, "gamma": 0.9}
SMALL |= {"horizon": 2, "total_steps": 1600, "capacity": 200, "learning_starts": 50, "replay_ratio": 0.25, "tau": 0.3}
SMALL |= {"target_every": 2, "epsilon_start": 0.5, "epsilon_end": 0.1, "epsilon_steps": 200, "lr": 1e-2}
OFF_POLICY = [name for name in agents.names() if "replay_ratio" in agents.algorithm(name).Config.__dataclass_fields__]
CASES = [(name, {}) for name in (*OFF_POLICY, "a2c")]
CASES += [(name, {"n_step": 3, "save_replay": False}) for name in OFF_POLICY]
CASES += [("dqn", {"double": False}), ("rainbow", {"redraw": False}), ("iqn", {"max_per_quantile": True})]
CASES += [
    ("sac", {"precision": "bf16"}),
    ("ddpg", {"noise_correlation": 0.8}),
    ("a2c", {"optimizer": "adam", "horizon": 5}),
]


class Restorable(Clock):
    """A clock that keeps to its tensor, with the actions that are asked for, whose reward heeds them."""

    def __init__(self, actions):
        super().__init__(8)
        self.single_action_space = actions

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, reward - 0.1 * action.float().reshape(len(reward), -1).sum(dim=1), *rest

    def state(self):
        return {"elapsed": self.elapsed.clone()}

    def set_state(self, state):
        self.elapsed.copy_(state["elapsed"])


def made(name: str, changes: dict):
    algorithm = agents.algorithm(name)
    fields = {field.name: field for field in dataclasses.fields(algorithm.Config)}
    given = {key: value for key, value in (SMALL | changes).items() if key in fields}
    space = Box(-2.0, 2.0, (2,)) if "squash" in fields else Discrete(3)
    return algorithm(Restorable(space), algorithm.Config(**given))


def flat(state: dict, of: str = "") -> dict:
    """A state without dicts within dicts."""
    found = {}
    for key, value in state.items():
        found |= flat(value, f"{of}{key}.") if isinstance(value, dict) else {f"{of}{key}": value}
    return found


def require_like(one: dict, other: dict, **tolerance) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(other[key], value, msg=key, **tolerance)
        else:
            assert other[key] == value, key


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_a_run_by_graphs_is_the_run(name, changes):
    with torch_s_own():
        run = made(name, changes)
    with standing_in() as captured:
        other = made(name, changes)
    begun = flat(run.state())
    require_like(begun, flat(other.state()), rtol=0, atol=0)
    for _ in range(20):
        run.iterate()
        other.iterate()
    assert [graph.replays for graph in captured] == ([20] * 3 if name == "a2c" else [20, 17])
    assert all(graph.generators == ([] if name == "a2c" else [other.generator]) for graph in captured)
    ended = flat(run.state())
    require_like(ended, flat(other.state()), rtol=1e-4, atol=1e-5)
    learned = "parameters" if "parameters" in begun else "actor"
    assert not torch.equal(ended[learned], begun[learned])
    assert other.statistics() == pytest.approx(run.statistics(), rel=1e-3, nan_ok=True)


@pytest.mark.parametrize("changes", [{"replay_ratio": 0.1875}, {"policy_delay": 3}])
def test_updates_that_differ_between_iterations_are_not_captured(changes):
    """Three or four updates an iteration, and targets that move after every second, or an actor after every third."""
    with standing_in() as captured:
        run = made("td3", changes)
        assert not captured and run.phases["update"] == run._update
        with pytest.raises(ValueError, match=r"^graph='on' needs a multiple of \d updates per iteration, not \d$"):
            made("td3", changes | {"graph": "on"})


@pytest.mark.parametrize("name", ["dqn", "sac", "a2c"])
def test_what_must_be_captured_and_cannot_is_refused(name):
    with pytest.raises(ValueError, match=r"^graph='on' needs device='cuda' and one process$"):
        made(name, {"graph": "on"})


def test_what_cannot_be_put_back_is_captured_only_where_it_must_be():
    gpu, restorable = torch.device("cuda"), Restorable(Discrete(3))
    assert graphs.wanted("auto", gpu, 1, restorable) and not graphs.wanted("auto", gpu, 1, Clock(8))
    assert graphs.wanted("on", gpu, 1, Clock(8)) and not graphs.wanted("off", gpu, 1, restorable)
    assert not graphs.wanted("auto", gpu, 2, restorable)
    assert not graphs.wanted("auto", torch.device("cpu"), 1, restorable)


@pytest.mark.gpu
@pytest.mark.parametrize("environment", ["cartpole", "pendulum"])
@pytest.mark.parametrize("name", [*OFF_POLICY, "a2c"])
def test_on_a_gpu_a_run_by_graphs_is_the_run(name, environment):
    algorithm = agents.algorithm(name)
    fields = {field.name for field in dataclasses.fields(algorithm.Config)}
    if ("squash" in fields) != (environment == "pendulum"):
        pytest.skip("other actions")
    given = {key: value for key, value in SMALL.items() if key in fields}
    runs = [algorithm(environment, algorithm.Config(**given, graph=graph), "cuda") for graph in ("off", "on")]
    for run in runs:
        for _ in range(20):
            run.iterate()
    one, two = (flat({**run.state(), "environment": {}}) for run in runs)
    require_like(one, two, rtol=1e-3, atol=1e-4)
