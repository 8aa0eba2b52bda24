"""Sizes and policies of marine navigation, from rows written by hand."""

import pytest

from lockstep import paper
from lockstep.experiments.marine_navigation import navigation, policies
from lockstep.paper import figures, tables
from lockstep.paper.marine_navigation import quantities, summaries
from lockstep.paper.report import Report
from lockstep.paper.typeset import DASH, SPACE, TIMES
from tests.paper import handwritten
from tests.paper.reading import find, seen

NAME = summaries.NAME


def size(rung, rate, num_envs=1, cores=0, horizon=1000, **columns):
    """Blocks of a second each, of five thruster boats and four obstacles; two threads spend two CPU-seconds."""
    row = {
        "environment": NAME,
        "rung": rung,
        "device": "cpu",
        "preset": "corrected",
        "version": "thruster",
        "robots": 5,
    }
    row |= {"cores": cores, "obstacles": 4, "width": 55.0, "horizon": horizon, "num_envs": num_envs, "threads": 1}
    row |= {"steps": rate, "wall_s": 1.0, "status": "measured"} | columns
    return [row | {"cpu_s": float(row["threads"]), "block": block} for block in range(handwritten.BLOCKS)]


SIZES = [
    *size("original", 100),
    *size("original", 40, cores=8),
    *size("port-cpu", 200_000, 1024, threads=2),
    *size("port-cpu", 100_000, 1024, horizon=1, threads=2),
    *size("port-cpu", 150_000, 1024, cores=8, threads=2),
    *size("port-cpu", 0, 8192, status="not measured", reason="it needs 9.0 GiB", threads=2)[:1],
]


def play(policy, form, successes, version="kinematic", preset="original", episodes=10, **columns):
    """Episodes of three robots, four cores and four obstacles: one robot of a failed one hits another robot."""
    row = {"environment": NAME, "form": form, "device": "cpu", "version": version, "preset": preset, "policy": policy}
    row |= {
        "robots": 3,
        "cores": 4,
        "obstacles": 4,
        "episode_length": 100,
        "return": 1.0,
        "time_s": 40.0,
        "energy": 9.0,
    }
    row |= {"hit_obstacle": 0, "reached_time_s": 50.0, "reached_energy": 8.0} | columns
    return [
        row
        | {
            "episode": k,
            "success": int(k < successes),
            "reached": 2 + (k < successes),
            "hit_robot": int(k >= successes),
        }
        for k in range(episodes)
    ]


def trained(policy, successes, seed=0, part="final", env_steps=1000, **columns):
    """Episodes of an agent in the port."""
    columns = {"part": part, "variant": "corrected", "risk": "", "env_steps": env_steps, "parameters": 7} | columns
    columns = {"wall_s": env_steps / 100, "batch_size": 64} | columns
    return play(policy, "port", successes, seed=seed, **columns)


TRAINED = [
    *trained("iqn", 2, part="curve", env_steps=500, risk="adaptive"),
    *trained("iqn", 4, seed=1, part="curve", env_steps=500, risk="adaptive"),
    *trained("iqn", 9, risk="adaptive"),
    *trained("iqn", 7, seed=1, risk="adaptive"),
    *trained("iqn", 5, risk=0.5),
    *trained("dqn", 6),
    *trained("dqn", 1, variant="faithful"),
]
BATCHES = [
    *trained("dqn", 3, part="curve"),
    *trained("dqn", 2, part="curve", seed=1),
    *trained("dqn", 5, part="curve", variant="batches of 1024", batch_size=1024, wall_s=4.0),
    *trained("dqn", 1, part="curve", variant="faithful"),
]
PLAYED = [*play("apf", "original", 7), *play("apf", "port", 8), *play("straight", "original", 2, preset="corrected")]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("marine")
    for experiment, rows in (("scaling", SIZES), ("policies", PLAYED), ("navigation", TRAINED)):
        handwritten.write(root, None, experiment, rows, handwritten.HERE, environment=NAME)
    return paper.load(root)


def test_rows_by_hand_have_the_columns_of_the_experiments():
    assert handwritten.COLUMNS["policies"].split() == policies.COLUMNS
    assert handwritten.COLUMNS["navigation"].split() == navigation.COLUMNS


def test_rates_over_the_original_of_the_same_size(datasets):
    found = seen("marine_navigation_scaling", datasets)
    rows = {(row["rung"], row["cores"], row["steps per episode"], row["B"]): row for row in found}
    port = paper.rung("port-cpu").label
    open_water, cores = rows[port, "0", "1,000", "1,024"], rows[port, "8", "1,000", "1,024"]
    assert (open_water[f"{TIMES} original"], cores[f"{TIMES} original"]) == (f"2,000{TIMES}", f"3,750{TIMES}")
    assert open_water["steps/s times robots"] == f"1.00{SPACE}M"
    assert rows[port, "0", "1", "1,024"]["reset"] == f"5.00{SPACE}µs"  # 10 µs less 5 µs
    large = rows[port, "0", "1,000", "8,192"]
    assert (large["rate, steps/s"], large["remark"]) == ("not measured", "it needs 9.0 GiB")
    assert found[-1]["remark"] == "not measured: needs a GPU"


def test_success_beside_what_is_published(datasets):
    rows = {(row["policy"], row["form"], row["preset"]): row for row in seen("marine_policies", datasets)}
    apf = rows["potential field (APF)", "original", "original"]
    assert apf["success"].startswith(f"70{SPACE}% [") and apf["published"] == f"74{SPACE}%"
    assert (apf["episodes"], apf["time, s"], apf["energy"]) == ("10", "50.0", "8.00")
    assert (apf["reached"], apf["hit a robot"], apf["hit an obstacle"]) == (f"90{SPACE}%", f"10{SPACE}%", f"0{SPACE}%")
    assert rows["potential field (APF)", "port, cpu", "original"]["success"].startswith(f"80{SPACE}%")
    assert rows["straight to the goal", "original", "corrected"]["published"] == DASH


def test_agents_stand_beside_policies_with_risk_faults_and_seeds(datasets):
    rows = {row["policy"]: row for row in seen("marine_policies", datasets) if row["steps of training, seeds"] != DASH}
    assert set(rows) == {"adaptive IQN", "IQN, risk 0.5", "DQN", "DQN, faithful"}
    adaptive = rows["adaptive IQN"]
    assert adaptive["success"] == f"80{SPACE}% [70{SPACE}%, 90{SPACE}%]" and adaptive["published"] == f"98{SPACE}%"
    assert (adaptive["steps of training, seeds"], adaptive["episodes"]) == (f"1.00{SPACE}k {TIMES} 2", "20")
    assert rows["DQN"]["success"].startswith(f"60{SPACE}% [") and rows["DQN, faithful"]["published"] == DASH


def test_quantities_by_hand(datasets):
    select = {"experiment": "scaling", "rung": "port-cpu"}
    assert find(datasets, "counted_rate", **select, cores=0)[0].value == 1_000_000
    assert find(datasets, "reset_time", **select)[0].value == pytest.approx(5e-6)
    assert find(datasets, "size_step_cpu_time", **select, cores=8)[0].value == pytest.approx(2 / 150_000)
    assert find(datasets, "size_step_cpu_time", experiment="scaling", rung="original", cores=8)[0].value == 1 / 40
    assert find(datasets, "policy_success", experiment="policies", policy="apf")[0].value == 0.7
    assert find(datasets, "step_copies", experiment="transfer") == []


def test_copies_of_a_loop_are_those_counted(tmp_path):
    row = {
        "environment": NAME,
        "loop": "real",
        "source": "port-cpu",
        "device": "cuda",
        "memory": "pinned",
        "num_envs": 64,
    }
    row |= {"threads": 1, "clock": "host", "calls": 100, "wall_s": 1.0}
    rows = [
        row | {"part": part, "block": block} for part in ("up", "policy", "down", "step", "loop") for block in range(6)
    ]
    rows.append(row | {"part": "copies", "wall_s": "", "copies": 200})
    handwritten.write(tmp_path, None, "transfer", rows, handwritten.BIG, environment=NAME)
    assert find(paper.load(tmp_path), "step_copies", experiment="transfer", loop="real")[0].shown == "2"


def test_a_rate_over_the_published_time_of_a_step_is_called_arithmetic(tmp_path):
    """A thousand steps per CPU-second for 500,000: 8 to 11 ms are eight to eleven times and thousands of times that."""
    rows = [
        row | {"environment": NAME}
        for row in (*handwritten.rates("original", 1_000, 1), *handwritten.rates("port-cpu", 500_000, 1024))
    ]
    handwritten.write(tmp_path, None, "throughput", rows, handwritten.HERE, environment=NAME)
    report = Report(tmp_path)
    (found,) = find(report.datasets, "over_published_step", rung="port-cpu", environment=NAME)
    assert (found.value, found.low, found.high) == (4_000, 4_000, 5_500)
    said = quantities.per_core(report, "here")
    assert f"500{TIMES} the original, whose step takes 1.00{SPACE}ms" in said
    assert (
        f"8.00{TIMES} to 11.0{TIMES} the time" in said and f"4,000{TIMES} to 5,500{TIMES}, which is arithmetic" in said
    )
    assert quantities.per_core(report, "another") == ""


def test_sizes_are_drawn_over_environments_and_robots_with_their_resets(datasets):
    sizes, robots, reset = figures.draw("marine_navigation_scaling", datasets).axes
    assert {tuple(point) for line in sizes.lines for point in line.get_xydata()} == {(1024, 200_000), (1024, 150_000)}
    assert {tuple(point) for line in robots.lines for point in line.get_xydata()} >= {(5, 100), (5, 40), (5, 150_000)}
    hollow = {line.get_label(): line.get_markerfacecolor() == figures.PAGE for line in robots.lines}
    original = paper.rung("original").label
    assert hollow[f"{original}: no cores"] is False and hollow[f"{original}: cores"] is True
    marks = [line.get_xydata().tolist() for line in reset.lines if line.get_marker() in ("o", "D")]
    assert marks == [[[pytest.approx(5e-6), 0]], [[pytest.approx(5e-6), 0]]]


def test_policies_are_drawn_beside_what_is_published(datasets):
    (original, corrected) = figures.draw("marine_policies", datasets).axes
    shown = {line.get_label(): line.get_ydata()[0] for line in original.lines}
    assert shown["potential field (APF), original"] == 0.7 and shown["potential field (APF), port"] == 0.8
    assert corrected.get_title(loc="left") == "kinematic, preset corrected"
    assert not any("published" in line.get_label() for line in corrected.lines)


def test_agents_are_drawn_beside_policies_and_along_their_training(datasets):
    (original, _) = figures.draw("marine_policies", datasets).axes
    shown = {line.get_label(): line.get_ydata()[0] for line in original.lines}
    assert shown["adaptive IQN, port"] == 0.8 and shown["DQN, port"] == 0.6 and "IQN, port" not in shown
    (panel,) = figures.draw("marine_agents", datasets).axes
    (line,) = panel.lines
    assert line.get_label() == "adaptive IQN" and line.get_xydata().tolist() == [[500, pytest.approx(0.3)]]


def test_curves_are_of_variants_that_several_agents_have_and_the_table_of_all(tmp_path):
    faithful = [row for of in ("dqn", "sac") for row in trained(of, 2, part="curve", variant="faithful")]
    averse = [*trained("ac_iqn", 2, part="curve", variant="averse"), *trained("ac_iqn", 9, variant="averse")]
    rows = [*faithful, *averse, *trained("dqn", 3, part="curve")]
    handwritten.write(tmp_path, None, "navigation", rows, handwritten.HERE, environment=NAME)
    datasets = paper.load(tmp_path)
    titles = [panel.get_title(loc="left").rpartition(", ")[2] for panel in figures.draw("marine_agents", datasets).axes]
    assert titles == ["faithful agents", "corrected agents"]
    assert "AC-IQN, averse" in {row["policy"] for row in seen("marine_policies", datasets)}


def test_a_long_training_on_record_is_drawn_rather_than_a_short_one_of_here(tmp_path):
    short, long = (trained("dqn", 3, part="curve", env_steps=steps) for steps in (500, 9000))
    handwritten.write(tmp_path, None, "navigation", short, handwritten.HERE, environment=NAME)
    handwritten.write(tmp_path, "big", "navigation", [*long, *trained("dqn", 6)], handwritten.BIG, environment=NAME)
    (panel,) = figures.draw("marine_agents", paper.load(tmp_path)).axes
    assert [line.get_xydata().tolist() for line in panel.lines] == [[[9000, pytest.approx(0.3)]]]


def test_each_device_has_its_curves_and_the_longer_training_its_marks(tmp_path):
    on_cpu = [*trained("dqn", 3, part="curve"), *trained("dqn", 3), *trained("sac", 2)]
    long = {"device": "cuda", "env_steps": 9000}
    on_gpu = [*trained("dqn", 8, part="curve", **long), *trained("dqn", 9, **long)]
    handwritten.write(tmp_path, None, "navigation", on_cpu, handwritten.HERE, environment=NAME)
    handwritten.write(tmp_path, "big", "navigation", on_gpu, handwritten.BIG, environment=NAME)
    datasets = paper.load(tmp_path)
    gpu, cpu = figures.draw("marine_agents", datasets).axes
    places = ["trained on a GPU, recorded", "trained on a CPU, measured here"]
    assert [panel.texts[0].get_text().partition(", 2")[0] for panel in (gpu, cpu)] == places
    assert {panel.get_title(loc="left").rpartition(", ")[2] for panel in (gpu, cpu)} == {"corrected agents"}
    assert [line.get_xydata()[0].tolist() for panel in (gpu, cpu) for line in panel.lines] == [[9000, 0.8], [1000, 0.3]]
    (panel,) = figures.draw("marine_policies", datasets).axes
    shown = {line.get_label(): line.get_ydata()[0] for line in panel.lines if "port" in line.get_label()}
    assert shown == {"DQN, port": 0.9, "SAC, port": 0.2}


def test_nothing_measured_is_said(nothing):
    for name in ("marine_ladder", "marine_navigation_scaling", "marine_policies", "marine_agents"):
        (panel,) = figures.draw(name, nothing).axes
        assert [text.get_text() for text in panel.texts] == ["not measured yet"]
    assert {row["status"] for row in seen("marine_navigation_claims", nothing)} == {"not measured"}
    assert tables.frame("marine_navigation_environments", nothing).empty


def test_batches_of_several_sizes_are_drawn_at_equal_samples_and_at_equal_time(tmp_path):
    handwritten.write(tmp_path, None, "navigation", BATCHES, handwritten.HERE, environment=NAME)
    panels = figures.draw("marine_batches", paper.load(tmp_path)).axes
    shown = [{line.get_label(): line.get_xydata().tolist() for line in panel.lines} for panel in panels]
    assert shown == [
        {"batches of 64": [[1000, 0.25]], "batches of 1,024": [[1000, 0.5]]},
        {"batches of 64": [[10, 0.25]], "batches of 1,024": [[4, 0.5]]},
    ]
