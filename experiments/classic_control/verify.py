"""States of Gymnasium's classic control by their observations, for `lockstep.experiments.verify`."""

import numpy as np

from lockstep.experiments.verify.shown import Shown, itself


def of_pendulum(observation: np.ndarray) -> np.ndarray:
    """Angle (rad) and speed (rad/s) [m, 2] from cosine, sine and speed."""
    cosine, sine, speed = observation.astype(np.float64).T
    return np.stack([np.arctan2(sine, cosine), speed], axis=1)


def of_acrobot(observation: np.ndarray) -> np.ndarray:
    """Both angles (rad) and speeds (rad/s) [m, 4] from cosines, sines and speeds."""
    cosine1, sine1, cosine2, sine2, *speeds = observation.astype(np.float64).T
    return np.stack([np.arctan2(sine1, cosine1), np.arctan2(sine2, cosine2), *speeds], axis=1)


def balance(observation: np.ndarray) -> np.ndarray:
    """Pushes of the cart that keep its pole up."""
    return 2 * observation[:, 2] + observation[:, 3] > 0


def rock(observation: np.ndarray) -> np.ndarray:
    """Pushes of a car the way it is going."""
    return np.where(observation[:, 1] >= 0, 2, 0)


def rock_by_motor(observation: np.ndarray) -> np.ndarray:
    return np.where(observation[:, 1:2] >= 0, 1.0, -1.0)


def spin(observation: np.ndarray) -> np.ndarray:
    """The largest torque the way a pendulum is going."""
    return np.where(observation[:, 2:3] >= 0, 2.0, -2.0)


def swing(observation: np.ndarray) -> np.ndarray:
    """Torques of the double pendulum against the speed of its upper link."""
    return np.where(observation[:, 4] > 0, 0, 2)


SHOWN = {
    "CartPole-v1": Shown(("x", "x_dot", "theta", "theta_dot"), itself, balance),
    "MountainCar-v0": Shown(("position", "velocity"), itself, rock),
    "MountainCarContinuous-v0": Shown(("position", "velocity"), itself, rock_by_motor),
    "Pendulum-v1": Shown(("cos theta", "sin theta", "theta_dot"), of_pendulum, spin),
    "Acrobot-v1": Shown(
        ("cos theta1", "sin theta1", "cos theta2", "sin theta2", "theta1_dot", "theta2_dot"), of_acrobot, swing
    ),
}
