import pytest

from lockstep import paper
from tests.paper import handwritten


@pytest.fixture(autouse=True)
def one_environment(monkeypatch):
    """Whatever has settings in this tree, the results written by hand are of one environment."""
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole"])


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """A tree with results of three machines: here, big, bare."""
    root = tmp_path_factory.mktemp("everything")
    for write in (handwritten.here, handwritten.big, handwritten.bare):
        write(root)
    return root


@pytest.fixture(scope="session")
def only_recorded(tmp_path_factory):
    """A tree with results of big alone."""
    root = tmp_path_factory.mktemp("recorded")
    handwritten.big(root)
    return root


@pytest.fixture(scope="session")
def with_edge(tmp_path_factory):
    """The same, and on the reader's machine the environment with a large state."""
    root = tmp_path_factory.mktemp("edge")
    for write in (handwritten.here, handwritten.big, handwritten.edge):
        write(root)
    return root


@pytest.fixture(scope="session")
def nothing(tmp_path_factory):
    """A tree without results."""
    return tmp_path_factory.mktemp("nothing")


@pytest.fixture(scope="session")
def datasets(everything):
    return paper.load(everything)
