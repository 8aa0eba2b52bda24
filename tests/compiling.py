"""Flags of the C++ compiler for tests: compiling takes longer than running."""

from lockstep.envs.kernels import compile


def flags_at(level: str) -> tuple[str, ...]:
    """The project's flags with another level of optimisation, "-O0", which changes no bit of an environment."""
    return tuple(level if flag.startswith("-O") else flag for flag in compile.FLAGS)
