"""Agents whose networks begin with a layer for each part of an observation, and risks that follow what is seen."""

import sys

import pytest
import torch

from lockstep import agents
from lockstep.agents import iqn
from lockstep.agents.parts.continuous import Continuous
from lockstep.agents.parts.off_policy import OffPolicy
from lockstep.agents.run import command_line, training
from lockstep.agents.run.config import config_of, replaced
from lockstep.agents.run.observation import Part
from tests.agents.exports import exported, in_onnx, program
from tests.agents.graphs import nothing_waiting
from tests.agents.parts.test_quantiles import make_known
from tests.agents.test_continuous import UNIT
from tests.agents.test_discrete import Counted, iterated, requires_equal
from tests.agents.worlds import World, first_is_right, near_first

SEA = "marine_navigation"
SMALL = {"num_envs": 4, "total_steps": 4 * 100, "capacity": 400, "learning_starts": 0, "batch_size": 8}
NAMES = ("dqn", "iqn", "rainbow", "ac_iqn", "ddpg", "sac")
KINEMATIC = {"options": "version=kinematic", "encoding": "parts"}
SONAR = {"options": "version=sonar", "encoding": "linear", "features": 208, "hidden": (64, 64)}


@pytest.fixture(params=NAMES)
def kind(request) -> type[OffPolicy]:
    return agents.algorithm(request.param)


def made(kind: type[OffPolicy], device: str = "cpu", **changes) -> OffPolicy:
    """A small run by the recipe."""
    return kind(SEA, config_of(kind, SEA, **SMALL | changes), device)


def enlarged(run: OffPolicy) -> OffPolicy:
    """The run with larger weights, so that actions differ."""
    run.load_weights({key: 3 * part for key, part in run.weights().items()})
    return run


def numbers(run: OffPolicy) -> dict[str, int]:
    return {name: part.numel() for name, part in run.weights().items()}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ac_iqn", {"actor": 50_354, "critic": 67_249}),
        ("ddpg", {"actor": 50_354, "critic": 50_609}),
        ("sac", {"actor": 50_612, "critic_1": 50_609, "critic_2": 50_609}),
        ("iqn", {"parameters": 69_961}),
        ("dqn", {"parameters": 53_321}),
        ("rainbow", {"parameters": 540_428}),
    ],
)
def test_networks_have_as_many_numbers_as_the_published_ones(name, counts):
    """Of 7 own numbers 56 features and of each object's 5 numbers 40: 7 x 56 + 56 + 5 x 40 + 40 = 688 of an encoder."""
    assert numbers(made(agents.algorithm(name))) == counts


def layers(*widths: tuple[int, int]) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in widths)


@pytest.mark.parametrize(
    ("name", "changes", "count"),
    [
        (
            "dqn",
            KINEMATIC | {"hidden": (312, 156, 156)},
            layers((4, 32), (15, 120), (20, 160), (312, 156), (156, 156), (156, 9)),
        ),
        (
            "iqn",
            KINEMATIC | {"features": 312, "hidden": (156, 156)},
            layers((4, 32), (15, 120), (20, 160), (64, 312), (312, 156), (156, 156), (156, 9)),
        ),
        ("iqn", SONAR, layers((2, 16), (2, 16), (22, 176), (64, 208), (208, 64), (64, 64), (64, 9))),
    ],
)
def test_networks_of_other_versions_have_the_published_sizes(name, changes, count):
    run = iterated(made(agents.algorithm(name), **changes), 3)
    assert numbers(run) == {"parameters": count}
    assert all(part.isfinite().all() for part in run.weights().values())


def test_encoders_without_relu_pass_on_what_is_below_0():
    run = made(iqn.IQN, **SONAR)
    obs = run.env.reset()[0].flatten(0, 1)
    assert (run.online.activations(obs, torch.rand(1, 8)).of_obs < 0).any()


def test_empty_slots_count_for_nothing(kind):
    run, obs = enlarged(made(kind)), torch.randn(50, 37, generator=torch.Generator().manual_seed(0))
    obs[:, 32:] = 0
    other = obs.clone()
    other[:, 7:32] = 0
    assert torch.equal(run.act(obs), run.act(other))
    other[:, 32:] = 1
    other[:, 7:32] = 10 * obs[:, 7:32]
    assert not torch.equal(run.act(obs), run.act(other))


def test_raw_numbers_are_not_divided_by_their_scales():
    """Positions by 20 m, velocities by 3 m/s, thrusts by 1000 N, radii by 3 m."""
    raw, scaled = (made(agents.algorithm("dqn"), raw_obs=one) for one in (True, False))
    scale = torch.tensor([20.0, 20, 3, 3, 1, 1000, 1000, *[20, 20, 3, 3, 3] * 5, *[1] * 5])
    obs = torch.randn(50, 37, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(raw.online(obs), scaled.online(obs * scale))


def test_a_run_learns_goes_on_and_is_used(kind, tmp_path):
    given = config_of(kind, SEA, **SMALL, target_every=8, epsilon_steps=100)
    whole = iterated(kind(SEA, given), 40)
    first = iterated(kind(SEA, given), 20)
    second = kind(SEA, given)
    second.load_state(first.state())
    requires_equal(iterated(second, 20).state(), whole.state())
    fresh = kind(SEA, given).weights()
    for name, part in whole.weights().items():
        assert part.isfinite().all() and not torch.equal(part, fresh[name])
    run = training.train(kind, SEA, replaced(given, {"total_steps": 80}), output=tmp_path)
    used, obs = training.load(kind, tmp_path), run.env.reset()[0].clone()
    assert torch.equal(used.act(obs), run.act(obs))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dqn", {}),
        ("dqn", KINEMATIC | {"encoding": "objects", "hidden": (312, 16)}),
        ("iqn", SONAR | {"cvar_gap": 10.0}),
        ("iqn", {"cvar_gap": 10.0}),
        ("rainbow", {}),
        ("sac", {}),
    ],
)
def test_a_policy_acts_the_same_as_a_module_exported_and_in_onnx(name, changes, tmp_path):
    run = enlarged(made(agents.algorithm(name), **changes))
    rows = torch.cat([run.env.step(run.env.random_actions()[0])[0].flatten(0, 1).clone() for _ in range(20)])
    expected, module = run.act(rows), run.module()
    assert len(expected.unique()) > 1
    made_program = program(module, rows)
    for found in (module(rows), exported(made_program, rows, tmp_path), in_onnx(made_program, rows, tmp_path)):
        torch.testing.assert_close(found.to(expected.dtype), expected)


def test_the_command_trains_and_plays_in_the_original(kind, tmp_path, monkeypatch, capsys):
    arguments = [SEA, "--total-steps", "64", "--num-envs", "8", "--learning-starts", "16", "--capacity", "1000"]
    few = ",".join(filter(None, [config_of(kind, SEA).options, "max_steps=20", "robots=2"]))
    arguments += ["--options", few, "--episodes", "2", "--output", str(tmp_path), "--quiet", "--stop-at", "1e9"]
    monkeypatch.setattr(sys, "argv", [kind.name, *arguments, "--eval-every", "32", "--threads", "1"])
    command_line.main(kind.name)
    assert capsys.readouterr().out.startswith("64 steps; mean return of 2 episodes in the original:")
    assert training.load(kind, tmp_path).env.num_agents == 2


def test_rows_one_by_one_get_the_actions_of_all_together(kind):
    run, obs = enlarged(made(kind)), torch.randn(50, 37, generator=torch.Generator().manual_seed(0))
    obs[:, 32:] = (obs[:, 32:] > 0).float()
    one_by_one = torch.cat([run.act(row.unsqueeze(0)) for row in obs])
    assert len(one_by_one.unique(dim=0)) > 1
    torch.testing.assert_close(one_by_one, run.act(obs), rtol=0, atol=1e-5)


class Shown(World):
    """A world whose first two numbers are an object's, and its third the agent's own."""

    observation_parts = Part((2.0, 2.0), slots=1), Part((1.0,))


def test_it_learns_from_what_objects_show(kind):
    """The sign of an object's first number says which of two actions is right; the best numbers are both of its."""
    continuous = issubclass(kind, Continuous)
    env = Shown(64, UNIT, near_first) if continuous else Shown(64)
    first = [name for name in ("features", "encoder") if hasattr(kind.Config(), name)]
    given = {first[0]: 24, "hidden": (32, 32)} if first else {"hidden": (24, 32, 32)}
    given |= {"num_envs": 64, "total_steps": 64 * 60, "capacity": 10_000, "learning_starts": 0, "batch_size": 64}
    given |= {"encoding": "objects", "gamma": 0.0, "lr": 3e-3, "epsilon_steps": 1000}
    run = kind(env, replaced(kind.Config(), given))
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    if continuous:
        assert near_first(obs, run.act(obs)).mean() > -0.1 > near_first(obs, torch.zeros(1000, 2)).mean()
    else:
        assert first_is_right(obs, run.act(obs)).mean() > 0.9


def test_an_iteration_waits_for_nothing(kind):
    run = iterated(made(kind), 8)
    with Counted() as counted:
        run.iterate()
    assert run.learns and not counted.waits


@pytest.mark.gpu
def test_on_a_gpu_an_iteration_waits_for_nothing(kind):
    """With who acts, layers of parts and returns of three steps, which flat observations of one agent have not."""
    run = iterated(made(kind, "cuda", n_step=3), 8)
    with nothing_waiting():
        iterated(run, 3)
    assert run.learns


def test_weights_of_another_encoding_are_refused(tmp_path):
    dqn = agents.algorithm("dqn")
    training.train(dqn, SEA, config_of(dqn, SEA, **SMALL | {"total_steps": 4}), output=tmp_path)
    with pytest.raises(ValueError, match="encoding"):
        training.train(dqn, SEA, config_of(dqn, SEA, **SMALL, encoding="parts"), init_from=tmp_path)


@pytest.mark.parametrize(
    ("name", "environment", "changes", "sentence"),
    [
        ("dqn", "cartpole", {"encoding": "objects"}, "encoding='objects' needs an environment that says what its obs"),
        ("dqn", SEA, {"hidden": (250, 8)}, "a first layer of 250 must be a multiple of 32"),
        ("ddpg", SEA, {"hidden": (256,)}, "needs two widths at least, not one"),
        ("dqn", SEA, {"options": ""}, "no values for action space Box"),
        ("iqn", SEA, {"cvar_gap": 1.0, "cvar": 0.5}, "cvar_gap=1.0 needs cvar=1, not 0.5"),
        ("iqn", SEA, {"cvar_gap": 1.0, "encoding": "flat", "norm_obs": True}, "cvar_gap=1.0 needs norm_obs=False"),
        ("iqn", "cartpole", {"cvar_gap": 1.0, "options": "", "encoding": "flat"}, "an environment that says how far"),
    ],
)
def test_what_does_not_go_together_is_refused(name, environment, changes, sentence):
    kind = agents.algorithm(name)
    settings = config_of(kind, SEA, **SMALL)
    options = {} if environment == SEA else {"options": ""}
    with pytest.raises(ValueError, match=sentence):
        kind(environment, replaced(settings, options | changes))


# ---- risk by what is seen -------------------------------------------------------------------------------------------


class Seeing(World):
    """A world whose first two numbers are the way to an object, and its third the agent's own."""

    observation_parts = Part((1.0, 1.0), slots=1, apart=0.5), Part((1.0,))


def cautious(gap: float) -> iqn.IQN:
    settings = {"num_envs": 8, "total_steps": 80, "features": 2, "hidden": (2,), "cvar_gap": gap}
    run = iqn.IQN(Seeing(), replaced(iqn.Config(), settings))
    make_known(run.online)
    return run


def test_the_share_of_the_worst_returns_falls_with_the_gap():
    """Ways of length 5, 1.5, 0.75, 0.25 and nobody there: gaps 4.5, 1, 0.25, -0.25 and none, over 2."""
    obs = torch.tensor([[3.0, 4, 9], [0, 1.5, 9], [0.75, 0, 9], [0, 0.25, 9], [0, 0, 9]])
    shares = torch.tensor([1.0, 0.5, 0.125, 0.01, 1.0])
    expected = shares.unsqueeze(1) * (torch.arange(32) + 0.5) / 32
    torch.testing.assert_close(cautious(2.0)._fractions(obs), expected)


def test_near_an_object_what_is_sure_is_chosen():
    """One action is worth 0.8 for sure; of the other the mean of all is 1, of the worse half 1 - 2 / pi = 0.36."""
    obs, run = torch.tensor([[3.0, 4, 9], [0, 1.5, 9], [0, 0, 9]]), cautious(2.0)
    assert run.act(obs).tolist() == [1, 0, 1]
    assert run.module()(obs).tolist() == [1, 0, 1]
    one_by_one = torch.cat([run.act(row.unsqueeze(0)) for row in obs])
    assert torch.equal(one_by_one, run.act(obs))
