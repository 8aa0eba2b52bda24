"""Packages that only parts of Lockstep need: extras of pyproject.toml."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def extra(*names: str, of: str) -> Iterator[None]:
    """Imports within, of packages that an extra brings (each of `names` does), tell so where one is missing.

    Raises:
        ImportError: names the package that is missing, what needs it (`of`), and the extras.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        commands = " or ".join(f"pip install 'lockstep[{name}]'" for name in names)
        raise ImportError(f"{of} needs {error.name}: {commands}", name=error.name) from error
