"""Experiments: each module with a `main` is one command line, `python -m lockstep.experiments.<name> --help`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCALES = ("quick", "full")


class UserError(Exception):
    """A mistake that its message explains in full: a command line prints it and no traceback."""
