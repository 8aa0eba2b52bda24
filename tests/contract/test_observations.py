"""Parts of observations as environments declare them, against observations of random episodes."""

import pytest
import torch

from lockstep import envs
from lockstep.agents.run import observation
from lockstep.reading import read_yaml

STEPS = 150


def said() -> list:
    """Environments that say it, for each value of a parameter that they distinguish."""
    found = []
    for name in envs.names():
        file = envs.folder(name) / observation.FILE
        if file.is_file():
            content, params = read_yaml(file, file.name), envs.port(name).make_params(None, {})
            distinguished = [(key, value) for key in content if hasattr(params, key) for value in content[key]]
            found += [pytest.param(name, dict([one]), id=f"{name}-{one[1]}") for one in distinguished or [()]]
    return found


def seen(name: str, options: dict) -> tuple[tuple[observation.Part, ...], torch.Tensor]:
    """The parts of an environment's observations, and those of agents that play, [N, n]."""
    env = envs.make(name, 64, **options)
    obs, info = env.reset(seed=1)
    rows = []
    for _ in range(STEPS):
        active = info.get("active", torch.ones(obs.shape[:-1], dtype=torch.bool))
        rows.append(obs[active].clone())
        obs, _, _, _, info = env.step(env.random_actions()[0])
    return observation.parts_of(env), torch.cat(rows)


@pytest.mark.parametrize(("name", "options"), said())
def test_parts_are_those_of_observations(name, options):
    """Flags are 0 or 1, an empty slot is all 0, slots are sometimes empty and sometimes not, and a scale is of the size
    of what is divided by it: most numbers are within three of it, and few of all within a hundredth."""
    parts, obs = seen(name, options)
    flags = obs[:, sum(part.numbers for part in parts) :]
    assert ((flags == 0) | (flags == 1)).all()
    for part, (numbers, held) in zip(parts, observation.split(parts, obs), strict=True):
        if held is None:
            numbers = numbers[:, 0]
        else:
            assert (numbers[~held] == 0).all() and 0.01 < held.float().mean() < 0.99
            numbers = numbers[held]
        relative = numbers.abs() / torch.tensor(part.scale)
        assert (relative.quantile(0.75, dim=0) < 3).all() and (relative.quantile(0.99, dim=0) > 0.01).all()
    if any(part.apart is not None for part in parts):
        gaps = observation.gap(parts, obs)
        assert gaps.isfinite().any() and gaps[gaps.isfinite()].median() > 0


def test_there_are_such_environments():
    assert said()
