"""CartPole with its standard parameters as array code on NumPy or CuPy: what batching buys without fusion."""

from ... import noise
from .port import PORT, Params

PARAMS = Params()


def reset(xp, seed: int, index, episode):
    """First states [4, B] float32 of the given episodes [B] of the environments `index` [B]."""
    words = noise.philox((index, episode, 0, noise.RESET), seed, xp)
    return noise.uniform(words, *PORT.reset_bounds({}), xp.float32)


def step(xp, state, action):
    """One step of [4, B] float32 states (m, m/s, rad, rad/s) under actions [B] in {0, 1}.

    Returns:
        state [4, B] float32, reward [B] float32, terminated [B] bool. The equations are Gymnasium's (Florian, 2007).
    """
    x, x_dot, theta, theta_dot = state
    real = xp.float32
    total_mass = real(PARAMS.masscart + PARAMS.masspole)
    polemass_length = real(PARAMS.masspole * PARAMS.length)
    force = xp.where(action == 1, real(PARAMS.force_mag), real(-PARAMS.force_mag))
    cosine, sine = xp.cos(theta), xp.sin(theta)
    push = (force + polemass_length * theta_dot * theta_dot * sine) / total_mass
    inertia = real(PARAMS.length) * (real(4 / 3) - real(PARAMS.masspole) * cosine * cosine / total_mass)
    theta_acc = (real(PARAMS.gravity) * sine - cosine * push) / inertia
    x_acc = push - polemass_length * theta_acc * cosine / total_mass
    tau = real(PARAMS.tau)
    state = xp.stack([x + tau * x_dot, x_dot + tau * x_acc, theta + tau * theta_dot, theta_dot + tau * theta_acc])
    terminated = (abs(state[0]) > real(PARAMS.x_threshold)) | (abs(state[2]) > real(PARAMS.theta_threshold_radians))
    return state, xp.ones_like(x), terminated
