"""An environment for tests: several agents whose episodes end apart, scenarios, fields of every type."""

from pathlib import Path

import pytest

from lockstep import envs
from lockstep.experiments import config

from . import original
from .port import PORT

NAME = "couriers"
FOLDER = Path(__file__).parent


@pytest.fixture
def couriers(monkeypatch):
    """The couriers under their name, as if their folder lay in envs/."""
    folder, part = envs.folder, envs._part
    parts = {"port": type("Declared", (), {"PORT": PORT}), "original": original}
    monkeypatch.setattr(envs, "folder", lambda name: FOLDER if name == NAME else folder(name))
    file_of = config.file_of
    monkeypatch.setattr(config, "file_of", lambda name: FOLDER / f"{NAME}.yaml" if name == NAME else file_of(name))
    monkeypatch.setattr(envs, "_part", lambda name, role: parts[role] if name == NAME else part(name, role))
    return NAME
