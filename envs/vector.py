"""Entry points of `gymnasium.make_vec` by environment name, as text: a registered spec must be serialisable."""

import functools

from lockstep import envs


def __getattr__(name: str):
    if name not in envs.names():
        raise AttributeError(name)
    return functools.partial(envs.make, name)
