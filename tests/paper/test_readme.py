import dataclasses

import pytest

from lockstep import paper
from lockstep.experiments import ROOT, UserError
from lockstep.paper import readme
from lockstep.paper.common.tables.environments import overview
from tests.paper import handwritten

TEXT = "# Title\n\n<!-- generated: picture -->\nold\n<!-- end generated -->\n\nMore.\n"
PAGE = "<!-- generated: environments -->\n<!-- end generated -->\n<!-- generated: rates -->\n<!-- end generated -->\n"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "README.md").write_text(TEXT)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text(PAGE)
    (tmp_path / "results" / "recorded").mkdir(parents=True)
    return tmp_path


def test_the_readme_of_this_tree_says_what_is_recorded():
    assert readme.stale(ROOT) == [], "run python -m lockstep.paper.readme"


def test_every_part_stands_on_one_page_of_this_tree():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert sorted(part[1] for page in pages for part in readme.PART.findall(page.read_text())) == sorted(readme.PARTS)


def test_nothing_recorded(tree):
    readme.update(tree)
    for page in ("README.md", "docs/results.md"):
        text = (tree / page).read_text()
        assert "not measured yet" in text
        assert "|" not in text
        assert "headline.svg" not in text
    assert not (tree / readme.FIGURE).exists()
    assert all("|" not in part([]) for part in readme.PARTS.values())


def test_recorded_figures_fill_in_and_nothing_else_changes(tree):
    handwritten.here(tree)  # the reader's own results are no part of the pages
    handwritten.big(tree)
    assert readme.stale(tree) == ["README.md", "docs/results.md", "results/recorded/headline.svg"]
    readme.update(tree)
    front, text = ((tree / page).read_text() for page in ("README.md", "docs/results.md"))
    assert front.startswith("# Title\n\n<!-- generated: picture -->\n\n![")
    assert front.endswith("](results/recorded/headline.svg)\n\n<!-- end generated -->\n\nMore.\n")
    assert "| cartpole | original, one process | 50.0 |" in text
    assert "| cartpole | port on GPU, CUDA graph | 1.00\u00a0M\u00a0(20,000\u00d7) |" in text
    assert "port on CPU" not in text and "port, on a CPU" not in text and "not measured" not in text  # nobody ran it
    assert readme.stale(tree) == []


def row(tree, environment: str) -> str:
    """The line of an environment in the table of environments, without its link."""
    text = readme.environments(readme.recorded(tree)).replace("\u00a0", " ")
    (line,) = (line for line in text.splitlines() if line.startswith(f"| [{environment}]("))
    return line.partition(") ")[2]


def test_an_environment_has_its_speed_and_what_was_verified(tree):
    handwritten.big(tree)
    handwritten.write(tree, "big", "correctness", handwritten.CHECKS, handwritten.BIG)
    # Three of differences and one of flags hold, that of returns does not; told rows are not judged.
    days = "big, 2026-01-02 | 1,000,000 | 4 of 5 | big, 2026-01-02 |"
    assert row(tree, "cartpole") == f"| CartPole-v1 | 50.0 | 1.00 M (20,000\u00d7) | {days}"
    text = readme.environments(readme.recorded(tree))
    headings = "port, on a GPU | rates recorded | states verified | checks held | checks recorded |"
    assert f"| environment | original | its steps/s | {headings}" in text
    checked = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", 1000)
    handwritten.write(tree, "other", "throughput", checked, handwritten.BIG, environment="vehicular_edge")
    assert row(tree, "cartpole").endswith("| 4 of 5 | big, 2026-01-02 |")
    told = "| written here | 10.0 | 1.00 k (100\u00d7) at 8,192, 1 thread of 16 | \u2013 | other, 2026-01-02 | \u2013 |"
    assert row(tree, "vehicular_edge").startswith(told)
    assert "Status:" not in readme.environments(readme.recorded(tree))


def test_a_gpu_of_another_machine_stands_in_the_row_of_the_one_that_verified(tree):
    handwritten.big(tree)
    handwritten.write(tree, "small", "correctness", handwritten.CHECKS, handwritten.BIG)
    checked = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", 1000)
    handwritten.write(tree, "small", "throughput", checked, handwritten.BIG)
    rates = "1.00 k (100\u00d7), 1 thread of 16 | 1.00 M (20,000\u00d7), big | small, 2026-01-02; big, 2026-01-02"
    assert row(tree, "cartpole") == f"| CartPole-v1 | 10.0 | {rates} | 1,000,000 | 4 of 5 | small, 2026-01-02 |"


def test_the_fastest_cpu_stands_in_the_row_of_a_machine_that_verified_and_timed_nothing(tree):
    for machine, rate in (("a", 500), ("b", 1000), ("c", 700)):
        timed = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", rate)
        handwritten.write(tree, machine, "throughput", timed, handwritten.BIG)
    handwritten.write(tree, "d", "correctness", handwritten.CHECKS, handwritten.BIG)
    rates = "1.00 k (100\u00d7), 1 thread of 16 | b, 2026-01-02"
    assert row(tree, "cartpole") == f"| CartPole-v1 | 10.0 | {rates} | 1,000,000 | 4 of 5 | d, 2026-01-02 |"


def test_rates_and_checks_have_days_of_their_own(tree):
    handwritten.big(tree)
    day = {"started": "2026-03-04T05:06:07Z"}
    handwritten.write(tree, "big", "correctness", handwritten.CHECKS, handwritten.BIG, **day)
    assert row(tree, "cartpole").endswith("| big, 2026-01-02 | 1,000,000 | 4 of 5 | big, 2026-03-04 |")


def test_a_rate_of_another_batch_size_stands_with_it_where_the_usual_one_is_missing(tree):
    usual, larger = handwritten.B, 4 * handwritten.B
    graph = {"rung": "port-cuda-graph", "num_envs": usual, "threads": 1, "policy": "random"}
    rows = handwritten.rates("original", 50, 1)
    rows += handwritten.rates("port-cuda-graph", 10**6, larger, device="cuda")
    rows += handwritten.rates("port-cuda-graph", 10**7, 16 * larger, device="cuda", policy="fixed")
    handwritten.write(tree, "big", "throughput", rows, handwritten.BIG, missing=["one"], missing_groups=[graph])
    rate = f"1.00 M (20,000\u00d7) at {larger:,}"
    assert row(tree, "cartpole").startswith(f"| CartPole-v1 | 50.0 | {rate} | big, ")
    text = readme.rates(readme.recorded(tree)).replace("\u00a0", " ")
    assert f"| cartpole | {usual:,} | 50.0 | 1.00 M at {larger:,} |" in text
    assert f"| cartpole | port on GPU, CUDA graph | {rate} |" in text


def test_rates_and_older_checks_of_one_machine_are_one_row(tree):
    handwritten.big(tree)
    handwritten.write(tree, "big", "correctness", handwritten.CHECKS, handwritten.BIG)
    datasets = [
        dataclasses.replace(one, status=paper.CHANGED) if one.provenance["experiment"] == "correctness" else one
        for one in readme.recorded(tree)
    ]
    (found,) = overview(datasets).query("environment == 'cartpole'").to_dict("records")
    assert found["status"] == paper.CHANGED and found["date"] == "2026-01-02"
    assert found["original_rate"] == 50 and found["cases"] == 1_000_000


@pytest.mark.parametrize("older", ["throughput", "correctness"])
def test_rates_and_checks_of_here_are_one_row_where_one_is_of_older_code(tmp_path, older):
    rates = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", 1000)
    for experiment, rows in (("throughput", rates), ("correctness", handwritten.CHECKS)):
        changed = experiment == older
        handwritten.write(tmp_path, None, experiment, rows, handwritten.HERE, changed=changed)
    (found,) = overview(paper.load(tmp_path)).query("environment == 'cartpole'").to_dict("records")
    assert found["status"] == "measured here, code changed since"
    assert found["original_rate"] == 10 and found["cases"] == 1_000_000


def test_checks_without_rates_have_a_row(tree):
    handwritten.write(tree, "big", "correctness", handwritten.CHECKS, handwritten.BIG)
    assert row(tree, "cartpole") == "| CartPole-v1 | 1,000,000 | 4 of 5 | big, 2026-01-02 |"


def test_the_time_to_solve_is_that_of_a_warm_start(tree):
    assert "not measured yet" in readme.solve([])
    setting = {"environment": "cartpole", "part": "solve", "algorithm": "ppo", "recipe": "solve", "device": "cpu"}
    setting |= {"threads": 1, "num_envs": 64, "horizon": 32, "members": 1, "status": "measured", "solved": 1}
    rows = [
        setting | {"agent": agent, "variant": variant, "seed": seed, "wall_s": wall_s, "env_steps": 1000}
        for agent, variant, wall_s in (("lockstep", "warm", 0.25), ("lockstep", "cold", 3.0), ("sb3", "warm", 4.0))
        for seed in range(2)
    ]
    rows[-1] |= {"solved": 0, "version": "2.0"}
    rows[-2] |= {"version": "2.0"}
    absent = {"agent": "rejax", "variant": "warm", "status": "not measured", "solved": "", "reason": "not installed"}
    handwritten.write(tree, "big", "learning", [setting | absent], handwritten.BIG)
    assert readme.solve(readme.recorded(tree)) == readme.ABSENT
    handwritten.write(tree, "big", "learning", [*rows, setting | absent], handwritten.BIG)
    told = readme.solve(readme.recorded(tree)).replace("\u00a0", " ").splitlines()
    assert told[0] == "| environment | agent | algorithm | device | seeds solved | time |"
    assert told[2] == "| cartpole | Lockstep | PPO | CPU | 2 of 2 | 250 ms [250 ms, 250 ms] |"
    assert told[3].startswith("| cartpole | Stable-Baselines3 2.0 | PPO | CPU | 1 of 2 |")
    assert told[4:] == ["", "Recorded on big, 2026-01-02."]


def test_several_environments_have_a_table_of_one_line_each(tree):
    handwritten.big(tree)
    other = handwritten.rates("original", 10, 1) + handwritten.rates("port-cpu", 1000)
    handwritten.write(tree, "big", "throughput", other, handwritten.BIG, environment="pendulum")
    text = readme.rates(readme.recorded(tree))
    assert "\n| cartpole | 8,192 | 50.0 | \u2013 | 1.00\u00a0M | 1.00\u00a0M |\n" in text
    assert (
        "\n| pendulum | 8,192 | 10.0 | 1.00\u00a0k\u00a0(100\u00d7), 1 thread of 16 | \u2013 | 1.00\u00a0k |\n" in text
    )
    assert "Recorded on big, 2026-01-02." in text
    assert "vector class |" not in text  # nobody ran it
    assert "| pendulum | original" not in text  # the ladder is of one environment


def test_the_environment_with_a_large_state_has_a_ladder_of_its_own(tree):
    handwritten.edge(tree, "tiny")
    text = readme.rates(readme.recorded(tree))
    assert "**Vehicular edge computing.** Slots per second of 1,024 environments" in text
    assert "| vehicular_edge | original, indexed | 80.0\u00a0(1.60\u00d7) |" in text
    assert "| vehicular_edge | port on CPU, call per step | 36.0\u00a0k\u00a0(720\u00d7) |" in text
    assert "port on GPU" not in text and "Classic control" not in text


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
        ("<!-- generated: footline -->\n<!-- end generated -->", "'footline'; there are solve"),
        ("<!-- generated: picture -->\n", "needs <!-- end generated --> after each line"),
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


def test_the_minutes_are_those_of_the_full_scale(tree):
    budget = readme.minutes([]).replace("\u00a0", " ")
    assert budget == "The measurements of `make report` have a budget of 8 min 00 s on a quiet machine.\n"
    handwritten.big(tree)  # at quick scale
    assert "big" not in readme.minutes(readme.recorded(tree))
    handwritten.write(tree, "big", "correctness", handwritten.CHECKS, handwritten.BIG, scale="full", wall_s=600.0)
    assert readme.minutes(readme.recorded(tree)).endswith(
        " At full scale they took 10\u00a0min\u00a000\u00a0s on big.\n"
    )


def test_a_rung_of_which_the_size_that_is_told_is_missing_has_no_figure(tree):
    """One thread of two is there, which is not the fastest that there will be."""
    rows = handwritten.rates("original", 50, 1) + handwritten.rates("port-cpu", 1000)
    about = {"rung": "port-cpu", "num_envs": handwritten.B, "threads": 2, "policy": "random"}
    handwritten.write(tree, "big", "throughput", rows, handwritten.BIG, missing=["both"], missing_groups=[about])
    text = readme.rates(readme.recorded(tree))
    assert "| cartpole | original, one process | 50.0 |" in text
    assert "port on CPU" not in text
