"""Models of Stable-Baselines3 beside ours: the same settings, and from equal weights and rows the same updates."""

import dataclasses

import numpy as np
import pytest
import torch

from lockstep import agents, envs
from lockstep.agents.parts.continuous import Continuous
from lockstep.agents.run.config import config_of, replaced
from lockstep.experiments import config, learning
from lockstep.experiments.learning_workers import Job, sb3

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.type_aliases import ReplayBufferSamples

SMALL = {"num_envs": 8, "total_steps": 800, "capacity": 1000, "learning_starts": 0, "batch_size": 32}
SMALL |= {"hidden": (16, 8), "gamma": 0.9, "tau": 0.05, "max_grad_norm": 1e9}
CALM = -21.0  # log_std, beyond the limit of both: nothing is random, and nothing of it is learned
UPDATES = 4
CASES = {  # without noise in an update
    "ddpg": {"noise": 0.3, "n_step": 2},
    "td3": {"noise": 0.2, "target_noise_limit": 0.0},
    "sac": {"alpha": 1e-8, "learn_alpha": False},
}


def job_of(name: str, **changes) -> Job:
    kind = agents.algorithm(name).Config
    small = {key: value for key, value in SMALL.items() if key in kind.__dataclass_fields__}
    settings = replaced(kind(), small | changes)
    return Job("rate", name, "pendulum", "Pendulum-v1", dataclasses.asdict(settings))


def model_of(job: Job):
    return sb3.ALGORITHMS[job.algorithm](job, sb3.vector(job, 0), 0)


def theirs(model, kind: str) -> dict[str, list[torch.nn.Parameter]]:
    """The parameters of a model's networks, or of its targets, by our names of them."""
    found = {}
    if hasattr(model, f"actor{kind}"):
        found["actor"] = list(getattr(model, f"actor{kind}").parameters())
    critics = getattr(model, f"critic{kind}").q_networks
    names = ["critic"] if len(critics) == 1 else ["critic_1", "critic_2"]
    return found | {name: list(critic.parameters()) for name, critic in zip(names, critics, strict=True)}


def ours(network, heads: int = 1) -> list[torch.Tensor]:
    """The numbers of one of our networks, whose last layer they have in so many parts."""
    *hidden, (weight, bias) = network.layers
    last = zip(weight.chunk(heads), bias.chunk(heads), strict=True)
    return [part for layer in (*hidden, *last) for part in layer]


def pairs(run: Continuous, model):
    """(name, our numbers, theirs) of every network and target."""
    for kind, networks in (("", run.networks), ("_target", run.targets)):
        found = theirs(model, kind)
        assert found.keys() == networks.keys()
        for name, network in networks.items():
            own = ours(network, heads=len(found[name]) // 2 - len(network.layers) + 1)
            yield f"{name}{kind}", own, found[name]


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_updates_are_those_of_stable_baselines3(name):
    job = job_of(name, **CASES[name])
    run = agents.algorithm(name)("pendulum", replaced(agents.algorithm(name).Config(), job.settings))
    for _ in range(20):
        run._rollout()
    for target in run.targets.values():
        target.parameters.mul_(1.5)
    if name == "sac":
        weight, bias = run.networks["actor"].layers[-1]
        weight[1:], bias[1:] = 0.0, CALM
    run.replay.rows["discount"][::3] = 0.0  # as if they had terminated
    model = model_of(job)
    assert (model.gradient_steps, model.train_freq.frequency, model.batch_size) == (2, 1, 32)
    assert (model.buffer_size, model.learning_starts, model.n_steps) == (1000, 0, run.config.n_step)
    if name != "sac":
        assert model.action_noise._sigma.tolist() == pytest.approx([run.config.noise])
    assert sb3.numbers(model) == run.parameter_count
    for _, own, their in pairs(run, model):
        for part, parameter in zip(own, their, strict=True):
            parameter.data.copy_(part)
    obs = torch.randn(5, 3)
    torch.testing.assert_close(sb3.greedy(model)(obs), run.act(obs), rtol=0, atol=1e-5)

    generator = torch.Generator()
    generator.set_state(run.generator.get_state())
    rows = {field: part.split(32) for field, part in run.replay.sample(UPDATES * 32, generator).items()}
    names = ("obs", "action", "next_obs", "reward", "discount")
    batches = (
        ReplayBufferSamples(obs, action, next_obs, (discount == 0).float()[:, None], reward[:, None], discount[:, None])
        for obs, action, next_obs, reward, discount in zip(*(rows[field] for field in names), strict=True)
    )
    model._setup_learn(1)
    model.replay_buffer.sample = lambda *_, **__: next(batches)
    with torch.enable_grad():
        model.train(UPDATES, 32)
    run.chunk = UPDATES  # made together, targets moving in between
    run._updates(UPDATES)
    for network, own, their in pairs(run, model):
        for part, parameter in zip(own, their, strict=True):
            torch.testing.assert_close(part, parameter.data, rtol=0, atol=1e-5, msg=network)


def test_a_temperature_that_is_learned_begins_where_ours_does():
    model = model_of(job_of("sac", alpha=0.25))
    assert model.log_ent_coef.exp().item() == pytest.approx(0.25) and model.target_entropy == -1


def test_correlated_noise_is_as_ours():
    """5,000 numbers after 100 steps have the deviation that was asked for, and the correlation."""
    np.random.seed(0)  # which is where Stable-Baselines3 draws from
    noise = model_of(job_of("td3", noise=0.5, noise_correlation=0.9)).action_noise
    found = np.array([noise()[0] for _ in range(5000)][100:])
    assert found.std() == pytest.approx(0.5, abs=0.05)
    assert np.corrcoef(found[:-1], found[1:])[0, 1] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("dqn", {"double": True}, "DQN of Stable-Baselines3 needs double=False"),
        ("ddpg", {"huber": True}, "DDPG of Stable-Baselines3 needs huber=False"),
        ("td3", {"policy_delay": 3}, "TD3 of Stable-Baselines3 needs target_every=12"),
        ("dqn", {"double": False, "encoding": "parts"}, "DQN of Stable-Baselines3 needs encoding=flat"),
        ("sac", {"noise_correlation": 0.5}, r"SAC of Stable-Baselines3 needs noise_correlation=0\.0"),
        ("sac", {"squash": "atan"}, "SAC of Stable-Baselines3 needs squash=tanh"),
        ("sac", {"norm_obs": True}, "SAC of Stable-Baselines3 needs norm_obs=False"),
        ("ppo", {"critic_lr": 1e-3, "horizon": 8}, "PPO of Stable-Baselines3 needs critic_lr=None"),
        ("ppo", {"norm_obs": True, "horizon": 8}, "PPO of Stable-Baselines3 needs norm_obs=False"),
        ("ppo", {"squash": "tanh", "horizon": 8}, "PPO of Stable-Baselines3 needs squash=clip"),
        ("sac", {"epsilon_end": 0.1}, r"SAC of Stable-Baselines3 needs epsilon_end=0\.0"),
    ],
)
def test_what_it_has_not_is_refused(name, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        model_of(job_of(name, **changes))


@pytest.mark.parametrize(
    ("environment", "name", "settings"),
    [
        (environment, group.algorithm, group.settings)
        for environment in config.files()
        for group in learning.groups(config.load(environment, "full").plain().get("learning", {}), ["cpu"])
        if (group.part, group.agent, group.seeds) == ("final", "sb3", (0,))
    ],
)
def test_it_has_what_its_returns_are_measured_with(environment, name, settings):
    asked = dataclasses.asdict(config_of(agents.algorithm(name), environment, **settings))
    model_of(Job("final", name, environment, envs.port(environment).gymnasium_id, asked))
