import re
import sys

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb

from lockstep import paper
from lockstep.experiments.bench import machine_code
from lockstep.paper import figures, quantities, report
from tests.paper import handwritten


@pytest.mark.parametrize("name", figures.every())
def test_every_figure_has_words(name):
    about = figures.every()[name]
    assert about.caption.endswith(".")
    assert about.alt.endswith(".")


@pytest.mark.parametrize("name", figures.every())
@pytest.mark.parametrize("tree", [pytest.param("only_recorded", marks=pytest.mark.slow), "with_edge"])
def test_every_figure_draws_whatever_was_measured(name, tree, loaded):
    """Everything, and nothing, is drawn in pages."""
    drawing = figures.svg(figures.draw(name, loaded[tree]))
    assert drawing.rstrip().endswith("</svg>")


@pytest.fixture(scope="module")
def again(trees, tmp_path_factory):
    """The report of the page once more, in this process."""
    return report.Report(trees["page"], tmp_path_factory.mktemp("again"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (k % 5 > 0)) for k, name in enumerate(figures.every())]
)
def test_figures_are_equal_byte_for_byte_under_any_settings_of_the_reader(name, again, page):
    with mpl.rc_context({"font.size": 20, "font.family": "serif", "svg.hashsalt": "other", "savefig.dpi": 30}):
        again.figure(name)
    for file in (f"figures/{name}.svg", f"figures/{name}.png"):
        assert (again.folder / file).read_bytes() == (page / file).read_bytes()


def test_files_tell_neither_date_nor_software(datasets):
    figure = figures.draw("throughput", datasets)
    drawing, picture = figures.svg(figure), figures.png(figure)
    assert "dc:date" not in drawing
    assert "matplotlib.org" not in drawing.partition("-->")[2]
    assert b"Software" not in picture
    assert b"tIME" not in picture


def test_drawings_take_their_colours_from_the_page(datasets):
    drawing = figures.svg(figures.draw("throughput", datasets))
    colours = set(re.findall(r"(?:fill|stroke): (#\w+)", drawing))
    assert not colours & {*figures.INKS, figures.PAGE, "#ffffff"}
    assert "fill: var(--page, #fff)" in drawing and "stroke: currentColor" in drawing
    assert "prefers-color-scheme: dark" in drawing  # as a file, which stands on no page
    assert figures.themed('x="#1c2430" fill: #8a8a8a; stroke: #0072b2') == (
        'x="#1c2430" fill: currentColor; fill-opacity: 0.55; stroke: #0072b2'
    )


@pytest.mark.parametrize("about", paper.RUNGS.values(), ids=paper.RUNGS)
def test_rungs_are_seen_on_light_and_on_dark_pages(about):
    """Contrast as WCAG 2 has it, of what follows no page; 2 to 1 is enough beside a marker."""

    def light(colour):
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        return 0.05 + 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    if about.colour not in figures.INKS:
        assert min(light("#ffffff") / light(about.colour), light(about.colour) / light("#14181f")) > 1.5


def test_a_panel_per_environment_and_machine(datasets):
    axes = figures.draw("throughput", datasets).axes
    assert [panel.get_title(loc="left") for panel in axes] == ["cartpole"] * 3
    assert [panel.texts[0].get_text() for panel in axes] == [
        "here: measured here",
        "bare: recorded, code changed since",
        "big: recorded",
    ]


def test_environments_stand_in_rows_and_machines_in_columns(tmp_path):
    for machine, names in ((None, ["cartpole", "pendulum"]), ("big", ["pendulum"])):
        for name in names:
            measured = handwritten.rates("original", 100, 1)
            handwritten.write(tmp_path, machine, "throughput", measured, handwritten.HERE, environment=name)
    axes = [panel for panel in figures.draw("throughput", paper.load(tmp_path)).axes if panel.get_visible()]
    places = {}
    for panel in axes:
        spec = panel.get_subplotspec()
        places[spec.rowspan.start, spec.colspan.start] = (panel.get_title(loc="left"), panel.get_xlabel() != "")
    assert places == {(0, 0): ("cartpole", False), (1, 0): ("pendulum", True), (1, 1): ("pendulum", True)}


def test_many_empty_places_are_closed_up(tmp_path):
    """Of five environments on one machine and one on another, four of ten places would be empty."""
    for machine, names in ((None, "abcde"), ("big", "a")):
        for name in names:
            measured = handwritten.rates("original", 100, 1)
            handwritten.write(tmp_path, machine, "throughput", measured, handwritten.HERE, environment=name)
    axes = [panel for panel in figures.draw("throughput", paper.load(tmp_path)).axes if panel.get_visible()]
    assert [panel.get_title(loc="left") for panel in axes] == list("aabcde")
    assert {panel.get_subplotspec().get_gridspec().ncols for panel in axes} == {3}


def test_labels_say_the_threads_where_a_rung_ran_on_several_numbers_of_them(datasets):
    (legend,) = figures.draw("throughput", datasets).legends
    labels = {text.get_text() for text in legend.get_texts()}
    assert {"port on CPU, call per step, 1 thread", "port on CPU, call per step, all threads"} <= labels
    assert "port on CPU, call per step" not in labels
    ladder = figures.draw("ladder", datasets).axes[0]
    names = [label.get_text() for label in ladder.get_yticklabels()]
    assert "port on CPU, call per step, 2 threads" in names


def test_the_ladder_shows_its_numbers_before_its_bars(datasets):
    figure = figures.draw("ladder", datasets)
    figure.draw_without_rendering()  # so that everything has its place
    panel = figure.axes[0]
    left = panel.get_window_extent().x0
    boxes = [label.get_window_extent() for label in panel.get_yticklabels()]
    numbers = [
        text.get_window_extent() for text in panel.texts if text.get_text() and "measured" not in text.get_text()
    ]
    assert len(numbers) > len(boxes)
    assert all(max(box.x1 for box in boxes) < number.x0 and number.x1 < left for number in numbers)
    # A phone of 390 CSS pixels shows 350 of the 576 that the drawing takes.
    assert left / figure.get_window_extent().width < 350 / 576


def test_rungs_are_told_apart():
    looks = {(rung.colour, rung.marker) for rung in paper.RUNGS.values()}
    assert len(looks) == len({rung.colour for rung in paper.RUNGS.values()}) == len(paper.RUNGS)


def test_an_unknown_rung_is_drawn_under_its_own_name():
    assert paper.rung("port-tpu").label == "port tpu"
    assert paper.rung_order("port-tpu") > paper.rung_order("port-cuda-trajectory")


def test_errors_are_drawn_over_the_steps_where_they_were_told(tmp_path, datasets):
    steps = [(1, 0.0, 0.0), (10, 1e-6, 1e-7), (100, 1e-3, 1e-5)]
    rows = [
        handwritten.check("drift", f"after {n}", 9, value=n, error=error, low=low) | {"dtype": dtype}
        for n, error, low in steps
        for dtype in ("float32", "float64")
    ]
    handwritten.write(tmp_path, None, "correctness", rows, handwritten.HERE)
    (panel,) = figures.draw("drift", paper.load(tmp_path)).axes
    assert [line.get_xydata()[1:].tolist() for line in panel.lines[:2]] == [
        [[10, 1e-6], [100, 1e-3]],
        [[10, 1e-7], [100, 1e-5]],
    ]
    assert 0 < panel.lines[0].get_ydata()[0] < 1e-16
    assert figures.draw("drift", datasets).axes[0].texts[0].get_text() == "not measured yet"


def test_differences_of_two_pairs_do_not_hide_each_other(tmp_path):
    """The same difference, between port and original and between port and array code."""
    pairs = {
        "original-port": "port against original",
        "arrays-port": "port against array code",
    }
    rows = [
        handwritten.check("transition", "x", 9, error=1e-7, tolerance=1e-6) | {"pair": pair, "dtype": "float64"}
        for pair in pairs
    ]
    handwritten.write(tmp_path, None, "correctness", rows, handwritten.HERE)
    (panel,) = figures.draw("correctness", paper.load(tmp_path)).axes
    first, second = panel.lines[:2]
    assert [first.get_label(), second.get_label()] == [f"{words}, CPU, float64" for words in pairs.values()]
    assert first.get_xdata() == second.get_xdata() == pytest.approx([0.1])
    assert first.get_ydata()[0] < 0 < second.get_ydata()[0] < 0.5


def test_points_of_the_roofline_lie_where_their_counts_and_rates_put_them(datasets, monkeypatch):
    monkeypatch.setattr(machine_code, "published", lambda: {("cartpole", "step_uint8"): 200.0})
    panels = figures.draw("roofline", datasets).axes
    here = next(panel for panel in panels if panel.get_title(loc="left") == "here, CPU")
    points = [line.get_xydata().tolist() for line in here.lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert points == [[[200 / 10, 200 * 300_000]]]
    roof = max(max(line.get_ydata()) for line in here.lines if len(line.get_xdata()) == 2)
    assert roof == quantities.fp32_rate(datasets, quantities.of(datasets, {})[0], "cpu")


def test_values_of_this_machine_stand_over_the_recorded_ones(tmp_path):
    for machine, rate in ((None, 300_000), ("big", 100_000)):
        measured = handwritten.rates("original", 100, 1) + handwritten.rates("port-cpu", rate)
        handwritten.write(tmp_path, machine, "throughput", measured, handwritten.HERE)
    panel, beside = figures.draw("reproduced", paper.load(tmp_path)).axes
    assert panel.get_xlabel() == "recorded on big"
    found = {tuple(point) for line in panel.lines if line.get_linestyle() == "None" for point in line.get_xydata()}
    assert found and all(max(y / x, x / y) == pytest.approx(3) for x, y in found)  # rates, and times
    assert re.match(r"1 +(3\.00|0\.333)×: cartpole, ", beside.texts[0].get_text())
    assert panel.get_title() == "" and panel.get_title(loc="left").startswith("0 of ")


def test_figures_and_tables_are_written_by_name(trees, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOCKSTEP_ROOT", str(trees["page"]))
    monkeypatch.setenv("LOCKSTEP_OUTPUT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["report", "--figure", "family", "--figure", "peers", "--table", "claims"])
    report.main()
    written = [tmp_path / name for name in ("figures/family.svg", "figures/peers.svg", "tables/claims.csv")]
    assert capsys.readouterr().out.split() == [str(file) for file in written]
    assert all(file.stat().st_size > 0 for file in written)


@pytest.mark.slow
def test_processes_draw_what_one_draws(trees, tmp_path):
    one, two = (
        report.Report(trees["page"], tmp_path / "one"),
        report.Report(trees["page"], tmp_path / "two", processes=2),
    )
    for each in (one, two):
        each.figure("family")
    assert {name for kind, name in two.made if kind == "figure"} == set(figures.every())
    for ending in ("svg", "png"):
        assert (two.folder / f"figures/family.{ending}").read_bytes() == (
            one.folder / f"figures/family.{ending}"
        ).read_bytes()
