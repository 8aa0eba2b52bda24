"""Environments of a batch drawn by Gymnasium's renderer, with or without a screen."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from lockstep import envs
from lockstep.extras import extra

from ..checks import places


def frames(env: "envs.BatchedEnv", indices: Sequence[int] | int | None = None) -> list[np.ndarray]:
    """Pictures of environments of a batch as Gymnasium draws them; the batch is only read.

    A batch does not keep its last actions, so Pendulum's arrow of the torque is left out, as after a reset.

    Args:
        env: on any device, with its own parameters.
        indices: environments, each in 0 .. B-1; None is all of them, one frame after the other.

    Returns:
        A frame [H, W, 3] uint8 for each: 400 x 600 for CartPole and the MountainCars, else 500 x 500.

    Raises:
        ImportError: pygame is not installed.
        ValueError: not integers, or no environment of that index.
    """
    rows = places(indices, env.num_envs)
    original = envs.original(env.name)
    drawn = []
    with _headless():
        renderer = original.make(render_mode="rgb_array", **dataclasses.asdict(env.params))
        renderer.reset()
        states = torch.stack([field[rows] for field in env.fields().values()], dim=1)
        for state in states.tolist():
            original.set_state(renderer, state)
            drawn.append(renderer.render())
    return drawn  # renderer.close() would end all of pygame, windows of the caller's included


@contextlib.contextmanager
def _headless() -> Iterator[None]:
    """A display without a screen for as long as this lasts, or the display that is open."""
    with extra("render", of="rendering"):
        import pygame
    if pygame.display.get_init():
        yield
        return
    driver = os.environ.get("SDL_VIDEODRIVER")
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        pygame.display.init()
    finally:
        os.environ.pop("SDL_VIDEODRIVER")
        if driver is not None:
            os.environ["SDL_VIDEODRIVER"] = driver
    try:
        yield
    finally:
        pygame.display.quit()
