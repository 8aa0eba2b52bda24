"""Both forms of marine navigation, for tests of facts that hold in each."""

import pytest

from tests.envs.marine_navigation import worlds


@pytest.fixture(params=worlds.FORMS)
def form(request, monkeypatch):
    """The form of the environments that `worlds.opened` and `worlds.made` make."""
    monkeypatch.setattr(worlds, "form", request.param)
    return request.param
