"""Iterations that are CUDA graphs are the iterations: what changes lies where a graph reads it."""

import pytest
import torch
from gymnasium.spaces import Discrete

from lockstep import agents
from lockstep.agents.parts import graphs
from tests.agents.graphs import OFF_POLICY, Restorable, made, small, standing_in, takes_box, torch_s_own
from tests.agents.worlds import Clock

CASES = [(name, {}) for name in (*OFF_POLICY, "a2c")]
CASES += [(name, {"n_step": 3, "save_replay": False}) for name in OFF_POLICY]
CASES += [("dqn", {"double": False}), ("rainbow", {"redraw": False}), ("iqn", {"max_per_quantile": True})]
CASES += [("sac", {"precision": "bf16"}), ("ddpg", {"noise_correlation": 0.8}), ("a2c", {"optimizer": "adam"})]
CASES += [("td3", {"target_every": 16}), ("ddpg", {"target_every": 48}), ("sac", {"replay_ratio": 8.0})]
CASES += [(name, {"norm_obs": True, "n_step": 3}) for name in OFF_POLICY]
CASES += [("a2c", {"critic_lr": 3e-2}), ("a2c", {"critic_lr": 3e-2, "optimizer": "adam"})]
CASES += [("ac_iqn", {"target_every": 78}), ("sac", {"replay_ratio": 8.0, "target_every": 1})]


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
    with torch_s_own():
        for _ in range(20):
            run.iterate()
            other.iterate()
    ratio, every = changes.get("replay_ratio", 0.25), changes.get("target_every", 8)
    chunks = -(-round(ratio * 16) // min(64, 64 if takes_box(name) else round(ratio * every)))
    assert [graph.replays for graph in captured] == ([20] * 3 if name == "a2c" else [20, 17 * chunks])
    assert all(graph.generators == ([] if name == "a2c" else [other.generator]) for graph in captured)
    ended = flat(run.state())
    require_like(ended, flat(other.state()), rtol=1e-4, atol=1e-5)
    learned = "parameters" if "parameters" in begun else "actor"
    assert not torch.equal(ended[learned], begun[learned])
    assert other.statistics() == pytest.approx(run.statistics(), rel=1e-3, nan_ok=True)


@pytest.mark.parametrize("name", [*OFF_POLICY, "a2c"])
def test_a_run_goes_on_by_graphs_and_without(name):
    with torch_s_own():
        whole, third = made(name, {}), made(name, {})
    with standing_in():
        second = made(name, {})
    runs = [whole, second, third]
    for number, run in enumerate(runs):
        if number:
            run.load_state(runs[number - 1].state())
        for _ in range(7):
            run.iterate()
    for _ in range(14):
        whole.iterate()
    require_like(flat(whole.state()), flat(third.state()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"target_every": 12},
            "target_every=12, which is 3 updates, must divide the 4 updates that are made together, or be as many or "
            "more",
        ),
        ({"policy_delay": 3}, "policy_delay=3 must divide the 4 updates that are made together"),
    ],
)
def test_updates_that_differ_between_iterations_are_not_captured(changes, sentence):
    with standing_in() as captured:
        with pytest.warns(UserWarning, match=f"^graph='auto' makes no CUDA graphs: {sentence}$"):
            run = made("td3", changes)
        assert not captured and run.phases["update"] == run._update
        with pytest.raises(ValueError, match=f"^graph='on': {sentence}$"):
            made("td3", changes | {"graph": "on"})


def test_a_part_of_an_update_is_carried_on_by_graphs_too():
    """1.5 updates in each of the last 17 of 20 iterations."""
    changes = {"replay_ratio": 0.09375}
    with torch_s_own():
        run = made("sac", changes)
    with standing_in() as captured:
        other = made("sac", changes)
    for _ in range(20):
        run.iterate()
        other.iterate()
    assert [graph.replays for graph in captured] == [20, 25]
    require_like(flat(run.state()), flat(other.state()), rtol=1e-4, atol=1e-5)


def test_the_graphs_of_wide_batches_stay():
    """Of 10,000 steps in iterations of 4,096 with 8 updates: 19.53 updates, more than are made together."""
    given = {"num_envs": 4096, "horizon": 1, "total_steps": 4096, "capacity": 8192, "replay_ratio": 8 / 4096}
    run = agents.algorithm("ddpg")("pendulum", small("ddpg", **given, target_every=10_000))
    assert run.every == 19.53125 and run.chunk == 8 and run.uneven == ""


def test_without_updates_only_steps_are_captured():
    with standing_in() as captured:
        run = made("dqn", {"replay_ratio": 0.0})
        run.iterate()
    assert [graph.replays for graph in captured] == [1]


@pytest.mark.parametrize(
    "wait", [lambda rows: rows[rows > 0], lambda rows: rows.sum().item(), lambda rows: rows.nonzero()]
)
def test_a_phase_in_which_the_host_waits_is_refused_by_its_name(wait, monkeypatch):
    step = Restorable.step
    monkeypatch.setattr(Restorable, "step", lambda env, action: (wait(env.elapsed), step(env, action))[1])
    with standing_in(), pytest.raises(ValueError, match="^rollout cannot be captured, graph='off' does without: "):
        made("sac", {})


@pytest.mark.parametrize("name", ["dqn", "sac", "a2c"])
def test_what_must_be_captured_and_cannot_is_refused(name):
    with pytest.raises(ValueError, match=r"^graph='on' needs device='cuda' and one process$"):
        made(name, {"graph": "on"})


def test_what_cannot_be_put_back_is_captured_only_where_it_must_be():
    gpu, restorable = torch.device("cuda"), Restorable(Discrete(3))
    assert graphs.wanted("auto", gpu, 1, restorable) and not graphs.wanted("auto", gpu, 1, Clock(8))
    assert graphs.wanted("on", gpu, 1, restorable) and not graphs.wanted("off", gpu, 1, restorable)
    with pytest.raises(
        ValueError, match=r"^graph='on' needs an environment with state\(\) and set_state\(\), not Clock$"
    ):
        graphs.wanted("on", gpu, 1, Clock(8))
    assert not graphs.wanted("auto", gpu, 2, restorable)
    assert not graphs.wanted("auto", torch.device("cpu"), 1, restorable)


@pytest.mark.gpu
@pytest.mark.parametrize("environment", ["cartpole", "pendulum"])
@pytest.mark.parametrize("name", [*OFF_POLICY, "a2c"])
def test_on_a_gpu_a_run_by_graphs_is_the_run(name, environment):
    if takes_box(name) != (environment == "pendulum"):
        pytest.skip("other actions")
    runs = [agents.algorithm(name)(environment, small(name, graph=graph), "cuda") for graph in ("off", "on")]
    for run in runs:
        for _ in range(20):
            run.iterate()
    require_like(*(flat(run.state()) for run in runs), rtol=1e-3, atol=1e-4)
