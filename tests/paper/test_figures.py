from pathlib import Path

import matplotlib as mpl
import pytest

import paper
from paper import figures

FOLDER = Path(figures.__file__).parent


def test_the_folder_is_the_list():
    assert {f"{name}.py" for name in figures.names()} == {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}


@pytest.mark.parametrize("name", figures.names())
def test_every_figure_has_words_and_is_short(name):
    about = figures.module(name)
    assert about.caption.endswith(".")
    assert about.alt.endswith(".")
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) <= 80


@pytest.mark.parametrize("name", figures.names())
@pytest.mark.parametrize("tree", ["everything", "only_recorded", "nothing"])
def test_every_figure_draws_whatever_was_measured(name, tree, request):
    drawing = figures.svg(figures.draw(name, paper.load(request.getfixturevalue(tree))))
    assert drawing.rstrip().endswith("</svg>")


@pytest.mark.parametrize("name", figures.names())
def test_figures_are_equal_byte_for_byte_under_any_settings_of_the_reader(name, datasets):
    first = figures.draw(name, datasets)
    with mpl.rc_context({"font.size": 20, "font.family": "serif", "svg.hashsalt": "other", "savefig.dpi": 30}):
        second = figures.draw(name, datasets)
        assert figures.svg(first) == figures.svg(second)
        assert figures.png(first) == figures.png(second)


def test_files_tell_neither_date_nor_software(datasets):
    figure = figures.draw("throughput", datasets)
    drawing, picture = figures.svg(figure), figures.png(figure)
    assert "dc:date" not in drawing
    assert "matplotlib.org" not in drawing.partition("-->")[2]
    assert b"Software" not in picture
    assert b"tIME" not in picture


def test_a_panel_per_environment_and_machine(datasets):
    axes = figures.draw("throughput", datasets).axes
    assert [panel.get_title(loc="left") for panel in axes if panel.axison] == [
        "cartpole, here",
        "cartpole, bare",
        "cartpole, big",
    ]


def test_rungs_are_told_apart():
    looks = {(rung.colour, rung.marker) for rung in paper.RUNGS.values()}
    assert len(looks) == len({rung.colour for rung in paper.RUNGS.values()}) == len(paper.RUNGS)


def test_an_unknown_rung_is_drawn_under_its_own_name():
    assert paper.rung("port-tpu").label == "port tpu"
    assert paper.rung_order("port-tpu") > paper.rung_order("port-cuda-trajectory")
