"""The animation in docs/use.md: each task under a policy written by hand, stepped by its port, drawn by Gymnasium.

python -m lockstep.paper.classic_control.animation            rewrite animation.gif
python -m lockstep.paper.classic_control.animation --check    fail if it does not show what the code does
"""

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from lockstep import envs
from lockstep.envs.classic_control import render
from lockstep.experiments import command
from lockstep.paper.animation import Animation

STEPS = 200
SEED = 250  # its pendulum starts hanging down
HEIGHT, GAP, LABEL = 132, 6, 20  # pixels: of a panel, between two, of the line with its title


def balance(obs: torch.Tensor) -> torch.Tensor:
    """CartPole: push to where the pole falls, 2 theta + theta_dot."""
    return (2 * obs[:, 2] + obs[:, 3] > 0).long()


def rock(obs: torch.Tensor) -> torch.Tensor:
    """MountainCar: accelerate along the velocity."""
    return torch.where(obs[:, 1] >= 0, 2, 0)


def rock_continuously(obs: torch.Tensor) -> torch.Tensor:
    """MountainCarContinuous: the same with the full force."""
    return torch.where(obs[:, 1] >= 0, 1.0, -1.0)


def swing_up(obs: torch.Tensor) -> torch.Tensor:
    """Pendulum: bring the energy to that of standing upright, then hold it there by a PD controller.

    With g = 10 the acceleration is 15 sin theta + 3 u, so E = omega^2 / 2 + 15 cos theta changes by 3 u omega.
    """
    cosine, sine, omega = obs.T
    missing = 15 - omega**2 / 2 - 15 * cosine
    pump = torch.where(omega >= 0, missing, -missing)
    hold = -10 * torch.atan2(sine, cosine) - 2 * omega
    return torch.where(cosine > 0.95, hold, pump).clamp(-2, 2)


def pump(obs: torch.Tensor) -> torch.Tensor:
    """Acrobot: torque along the second joint's speed, which adds energy at every moment."""
    return torch.where(obs[:, 5] >= 0, 2, 0)


POLICIES = {
    "cartpole": balance,
    "mountain_car": rock,
    "mountain_car_continuous": rock_continuously,
    "pendulum": swing_up,
    "acrobot": pump,
}


def panels(name: str) -> Iterator[Image.Image]:
    """A picture before each step."""
    env = envs.make(name, 1, seed=SEED)
    obs, _ = env.reset()
    for _ in range(STEPS):
        frame = Image.fromarray(np.ascontiguousarray(render.frames(env)[0]))
        yield frame.resize((frame.width * HEIGHT // frame.height, HEIGHT), Image.Resampling.LANCZOS)
        obs, *_ = env.step(POLICIES[name](obs))


def pictures() -> list[Image.Image]:
    """The panels side by side, each under its title; one picture per step."""
    font = ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), 11)
    drawn = []
    for row in zip(*map(panels, POLICIES), strict=True):
        width = sum(panel.width for panel in row) + GAP * (len(row) - 1)
        picture, left = Image.new("RGB", (width, HEIGHT + LABEL), "white"), 0
        for name, panel in zip(POLICIES, row, strict=True):
            title = ImageDraw.Draw(picture)
            title.text((left + panel.width // 2, LABEL // 2), envs.port(name).title, "black", font, anchor="mm")
            picture.paste(panel, (left, LABEL))
            left += panel.width + GAP
        drawn.append(picture)
    return drawn


ANIMATION = Animation(
    module="lockstep.paper.classic_control.animation",
    file=Path("paper", "classic_control", "animation.gif"),
    pictures=pictures,
    frame_ms=40,
    colours=64,
)

if __name__ == "__main__":
    command.run(lambda: ANIMATION.main(__doc__))
