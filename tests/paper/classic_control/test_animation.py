import pytest
import torch

from lockstep import envs

pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")

from lockstep.paper.classic_control import animation


def played(name: str, steps: int) -> dict:
    """The states of 64 environments after `steps` under the policy of the animation."""
    env = envs.make(name, 64, seed=1)
    obs, _ = env.reset()
    for _ in range(steps):
        obs, *_ = env.step(animation.POLICIES[name](obs))
    return {key: float(value) for key, value in env.statistics().items()} | {"obs": obs}


def test_every_policy_belongs_to_an_environment():
    assert set(animation.POLICIES) <= set(envs.names())


@pytest.mark.parametrize(
    ("name", "steps", "fastest", "slowest"),
    [
        ("cartpole", 500, 500, 500),  # never falls
        ("mountain_car", 125, 113, 125),
        ("mountain_car_continuous", 111, 105, 111),
        ("acrobot", 500, 20, 500),
    ],
)
def test_policies_solve_their_tasks(name, steps, fastest, slowest):
    told = played(name, steps)
    assert told["episodes"] >= 64
    assert fastest <= told["length_min"] <= told["length_max"] <= slowest
    assert name != "acrobot" or told["length_mean"] < 100  # the task counts as solved at a return of -100


def test_the_pendulum_is_swung_up_and_held():
    cosine = played("pendulum", 199)["obs"][:, 0]
    assert torch.all(cosine > 0.999)
