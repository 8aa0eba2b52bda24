"""Frames of a batch against Gymnasium's own environments, pixel for pixel."""

import itertools
import os
import sys

import gymnasium
import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.classic_control import render
from tests.contract.batches import KNOWN
from tests.envs.batches import B

pygame = pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")

SHAPES = {
    "CartPole-v1": (400, 600, 3),
    "MountainCar-v0": (400, 600, 3),
    "MountainCarContinuous-v0": (400, 600, 3),
    "Pendulum-v1": (500, 500, 3),
    "Acrobot-v1": (500, 500, 3),
}


def played(name, steps, **options):
    """A batch some random steps into its episodes."""
    env = envs.make(name, B, seed=2, **options)
    env.reset()
    for action in env.random_actions(steps):
        env.step(action)
    return env


def gymnasiums_frame(port, state, **attributes):
    """Gymnasium's picture of a state put in by hand."""
    env = gymnasium.make(port.gymnasium_id, render_mode="rgb_array")
    env.reset()
    for name, value in attributes.items():
        setattr(env.unwrapped, name, value)
    env.unwrapped.state = np.array(state, dtype=np.float64)
    frame = env.render()
    env.close()
    return frame


@pytest.mark.parametrize("name", KNOWN)
def test_frames_are_gymnasiums_pixel_for_pixel(name):
    env = played(name, 7)
    frames = env.render(range(4))
    assert [(frame.shape, frame.dtype) for frame in frames] == [(SHAPES[env.port.gymnasium_id], np.uint8)] * 4
    for frame, state in zip(frames, env.state()["state"].tolist(), strict=False):
        np.testing.assert_array_equal(frame, gymnasiums_frame(env.port, state))
    assert all((a != b).any() for a, b in itertools.pairwise(frames))


def test_parameters_of_the_batch_are_drawn():
    env = played("cartpole", 3, length=0.25, x_threshold=1.2)
    state = env.state()["state"][0].tolist()
    np.testing.assert_array_equal(env.render(0)[0], gymnasiums_frame(env.port, state, length=0.25, x_threshold=1.2))
    assert (env.render(0)[0] != gymnasiums_frame(env.port, state)).any()


def test_frames_outlive_the_next():
    env = played("cartpole", 5)
    first = env.render([0, 1])
    copies = [frame.copy() for frame in first]
    env.step(env.random_actions()[0])
    assert (env.render(0)[0] != copies[0]).any()
    for frame, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(frame, copy)


@pytest.mark.parametrize("indices", [[True, False, True], 1.5])
def test_indices_are_integers(indices):
    with pytest.raises(ValueError, match="indices must be one integer or a list of integers, got"):
        render.frames(envs.make("cartpole", 3), indices)


def test_no_display_is_left_open_and_an_open_one_stays(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = played("cartpole", 2)
    env.render(0)
    assert not pygame.display.get_init()
    pygame.display.init()
    try:
        window = pygame.display.set_mode((8, 8))
        env.render(0)
        assert pygame.display.get_init() and pygame.display.get_surface() is window
    finally:
        pygame.display.quit()


def test_the_video_driver_is_put_back(monkeypatch):
    for driver in (None, "x11"):
        monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
        if driver:
            monkeypatch.setenv("SDL_VIDEODRIVER", driver)  # there is none here, and rendering does not ask for it
        played("cartpole", 2).render(0)
        assert os.environ.get("SDL_VIDEODRIVER") == driver


def test_without_pygame_it_says_what_to_install(monkeypatch):
    env = played("cartpole", 2)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ImportError, match=r"^rendering needs pygame: pip install 'lockstep\[render\]'$"):
        env.render(0)
