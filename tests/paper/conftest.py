import fcntl
import os
import shutil

import pytest

from lockstep import paper
from lockstep.paper import build
from tests.paper import handwritten

TREES = {
    "everything": (handwritten.here, handwritten.big, handwritten.bare),
    "page": (handwritten.here, handwritten.big, handwritten.bare, handwritten.learning),
    "only_recorded": (handwritten.big,),
    "with_edge": (handwritten.here, handwritten.big, handwritten.edge),
    "nothing": (),
}


@pytest.fixture(autouse=True)
def one_environment(monkeypatch):
    """Whatever has settings in this tree, the results written by hand are of one environment."""
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole"])


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    """Trees with results of several machines, by name, see TREES."""
    roots = {name: tmp_path_factory.mktemp(name) for name in TREES}
    for name, root in roots.items():
        for write in TREES[name]:
            write(root)
    return roots


@pytest.fixture(scope="session")
def loaded(trees):
    """The datasets of each tree, by name."""
    return {name: paper.load(root) for name, root in trees.items()}


@pytest.fixture
def datasets(loaded):
    return loaded["everything"]


@pytest.fixture
def edge(loaded):
    return loaded["with_edge"]


@pytest.fixture
def nothing(loaded):
    return loaded["nothing"]


@pytest.fixture(scope="session")
def pages(trees, tmp_path_factory):
    """The folders of two pages, by name of their trees; one process of pytest builds them, the others wait."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def built(name):
        with open(base / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (base / f"{name}.page").exists():
                unfinished = base / f"{name}.unfinished"
                build.build(unfinished / "report.html", trees[name])
                shutil.move(unfinished, base / f"{name}.page")
        return base / f"{name}.page"

    return {name: built(name) for name in ("page", "nothing")}


@pytest.fixture(scope="session")
def page(pages):
    return pages["page"]


@pytest.fixture(scope="session")
def text(page):
    return (page / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def supplement(page):
    return (page / "supplement.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def empty(pages):
    """The page without results."""
    return (pages["nothing"] / "report.html").read_text(encoding="utf-8")
