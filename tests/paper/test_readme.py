import pytest

from lockstep.experiments import ROOT, UserError
from lockstep.paper import readme
from tests.paper import handwritten

TEXT = "# Title\n\n<!-- generated: headline -->\nold\n<!-- end generated -->\n\nMore.\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "README.md").write_text(TEXT)
    (tmp_path / "results" / "recorded").mkdir(parents=True)
    return tmp_path


def test_the_readme_of_this_tree_says_what_is_recorded():
    assert readme.stale(ROOT) == [], "run python -m lockstep.paper.readme"


def test_nothing_recorded(tree):
    readme.update(tree)
    text = (tree / "README.md").read_text()
    assert "not measured yet" in text
    assert "|" not in text
    assert "headline.svg" not in text
    assert not (tree / readme.FIGURE).exists()


def test_recorded_figures_fill_in_and_nothing_else_changes(tree):
    handwritten.here(tree)  # the reader's own results are no part of the README
    handwritten.big(tree)
    assert readme.stale(tree) == ["README.md", "results/recorded/headline.svg"]
    readme.update(tree)
    text = (tree / "README.md").read_text()
    assert "| cartpole | original, one process | 50.0 |" in text
    assert "| cartpole | port on GPU, CUDA graph | 1.00\u00a0M (20,000\u00d7) |" in text
    assert "| cartpole | port on CPU, fused | not measured yet |" in text
    assert text.startswith("# Title\n\n<!-- generated: headline -->\n")
    assert text.endswith("<!-- end generated -->\n\nMore.\n")
    assert readme.stale(tree) == []


def test_several_environments_have_a_table_of_one_line_each(tree):
    handwritten.big(tree)
    other = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", 1000)
    handwritten.write(tree, "big", "throughput", other, handwritten.BIG, environment="pendulum")
    readme.update(tree)
    text = (tree / "README.md").read_text()
    assert "| recorded on big, 2026-01-02 | cartpole | 8,192 | 50.0 | \u2013 | 1.00\u00a0M | 1.00\u00a0M |" in text
    assert (
        "| recorded on big, 2026-01-02 | pendulum | 8,192 | 10.0 | 1.00\u00a0k (100\u00d7) | \u2013 | 1.00\u00a0k |"
        in text
    )
    assert "vector class |" not in text.partition("All environments")[2]  # nobody ran it
    assert "| pendulum | original" not in text  # the headline is of one environment


def test_the_environment_with_a_large_state_has_a_part_of_its_own(tree):
    part = "<!-- generated: vehicular_edge -->\n<!-- end generated -->\n"
    assert "on recorded machines: not measured yet" in readme.filled(part, [])
    handwritten.edge(tree, "tiny")
    text = readme.filled(part, readme.recorded(tree))
    assert "Slots per second of 1,024 environments together" in text
    assert "| vehicular_edge | original, indexed | 80.0 (1.60\u00d7) |" in text
    assert "| vehicular_edge | port on CPU, call per step | 36.0\u00a0k (720\u00d7) |" in text
    assert "| vehicular_edge | port on GPU, fused | not measured yet |" in text


def test_an_edit_of_the_code_leaves_the_readme_as_it_is(tree):
    handwritten.big(tree)
    readme.update(tree)
    (tree / "kernel.txt").write_text("another kernel")
    assert readme.stale(tree) == []


def test_a_hand_on_the_figure_is_noticed(tree):
    handwritten.big(tree)
    readme.update(tree)
    (tree / readme.FIGURE).write_text("<svg/>")
    assert readme.stale(tree) == ["results/recorded/headline.svg"]


def test_the_figure_goes_with_the_results(tree):
    (tree / readme.FIGURE).write_text("<svg/>")
    readme.update(tree)
    assert not (tree / readme.FIGURE).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- generated: footline -->\n<!-- end generated -->", "'footline'; there are headline"),
        ("<!-- generated: headline -->\n", "after each such line"),
        ("nothing", "needs <!-- generated: headline -->"),
    ],
)
def test_marks_that_cannot_be_filled_are_errors(text, message):
    with pytest.raises(UserError, match=message):
        readme.filled(text, [])


def test_what_the_recordings_took_and_of_what(tree):
    part = "<!-- generated: cost -->\n<!-- end generated -->\n"
    assert "not measured yet" in readme.filled(part, [])
    handwritten.big(tree)
    handwritten.write(tree, "big", "ceilings", handwritten.ceiling("fp32", 1e9), handwritten.BIG)
    # Each took 60 s, of 90 CPU-seconds.
    text = readme.filled(part, readme.recorded(tree)).replace("\u00a0", " ")
    assert "| big | quick | ceilings, throughput | 2 min 00 s | 3 min 00 s |" in text


def test_a_rung_of_which_the_size_that_is_told_is_missing_has_no_figure(tree):
    """One thread of two is there, which is not the fastest that there will be."""
    rows = handwritten.rates("original", 50, 1) + handwritten.rates("port-cpu", 1000)
    about = {"rung": "port-cpu", "num_envs": handwritten.B, "threads": 2, "policy": "random"}
    handwritten.write(tree, "big", "throughput", rows, handwritten.BIG, missing=["both"], missing_groups=[about])
    readme.update(tree)
    text = (tree / "README.md").read_text()
    assert "| cartpole | original, one process | 50.0 |" in text
    assert "| cartpole | port on CPU, call per step | \u2013 |" in text
