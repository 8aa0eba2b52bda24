"""The parameters of a port under the options of settings."""

from collections.abc import Mapping


def params_of(port, options: Mapping):
    """The parameters of a port (`envs.Port`) under options: a preset, its own, its parameters; ValueError as its."""
    parameters = {name: value for name, value in options.items() if name not in ("preset", *port.own_options)}
    return port.make_params(options.get("preset"), parameters)
