"""Learning in the paper: rows written by hand, and what a reader is told of them."""

import math

import pytest

from lockstep import paper
from lockstep.experiments import curves
from lockstep.paper import families, figures, readme
from lockstep.paper.common import learning
from lockstep.paper.typeset import DASH, GREATER, MINUS, SPACE, TIMES
from tests.paper import handwritten, reading
from tests.paper.handwritten import LEARNING, learnt, seeds, solved, training
from tests.paper.reading import seen as shown

TABLES = ["learning_final", "time_to_solve", "training_rates", "training_iteration", "learning_scaling"]
TABLES += ["learning_ablations", "learning_curves"]


def written(root, rows=LEARNING, machine=None, environment="cartpole", **about):
    """The datasets of a tree with these rows."""
    rows = [entry | {"environment": environment} for entry in rows]
    handwritten.write(root, machine, "learning", rows, handwritten.HERE, environment=environment, **about)
    return paper.load(root)


@pytest.fixture
def datasets(tmp_path):
    return written(tmp_path)


def find(datasets, quantity, against=None, **select):
    return reading.find(datasets, quantity, against, experiment="learning", **select)


# ---- Tables ----


def test_final_returns_stand_beside_a_random_policy_and_the_aim(datasets):
    ours, random = shown("learning_final", datasets)
    assert (ours["agent"], ours["seeds"], ours["steps"]) == ("Lockstep", "5", f"131{SPACE}k")
    assert (ours["return"], ours["sampled"]) == ("490", "400")  # of 480, 490, 500: the middle three of five
    assert (ours["accepted"], ours["met"], ours["remark"]) == (f"{GREATER} 475", "yes", DASH)
    assert (ours["seeds that meet it"], random["seeds that meet it"]) == ("4 of 5", DASH)
    assert (random["agent"], random["return"], random["95 % interval"]) == ("random policy", "22.0", DASH)
    assert (random["accepted"], random["met"], random["remark"]) == (DASH, DASH, DASH)
    assert ours["status"] == "measured here"


def test_curves_of_solved_seeds_rise_to_the_share_that_was_solved(datasets):
    (panel,) = figures.draw("solved", datasets).axes
    lines = {line.get_label(): line.get_xydata() for line in panel.lines}
    ours = next(points for label, points in lines.items() if label.startswith("Lockstep PPO, CPU, here, n = 10"))
    assert ours[:, 1].tolist() == pytest.approx([0, *(n / 10 for n in range(1, 11)), 1])
    assert ours[:, 0].tolist() == sorted(ours[:, 0])
    peer = next(points for label, points in lines.items() if label.startswith("Stable-Baselines3 PPO"))
    assert peer[-1, 1] == 0.5  # one of two was never solved
    assert not [label for label in lines if "n = 1," in label]  # first starts are in the table


def test_one_learner_on_several_machines_has_a_kind_of_line_for_each(tmp_path):
    for name in (None, "big", "small"):
        handwritten.write(
            tmp_path, name, "learning", solved("lockstep", range(1, 11), variant="warm"), handwritten.HERE
        )
    (panel,) = figures.draw("solved", paper.load(tmp_path)).axes
    assert {line.get_color() for line in panel.lines} == {"#0072B2"}
    assert [line.get_linestyle() for line in panel.lines] == ["-", "--", ":"]
    assert [line.get_markerfacecolor() for line in panel.lines] == ["#0072B2", figures.PAGE, "#0072B2"]


def test_fewer_than_five_seeds_are_an_illustration(tmp_path):
    (ours,) = shown("learning_final", written(tmp_path, seeds("final", [500, 500, 500, 500])))
    assert (ours["remark"], ours["accepted"], ours["met"]) == ("illustration", f"{GREATER} 475", DASH)
    assert find(paper.load(tmp_path), "final_return") == []
    scaled = shown("learning_scaling", written(tmp_path))
    assert {line["remark"] for line in scaled} == {"illustration"}


def test_time_to_solve_with_wilson_s_interval_and_quartiles(datasets):
    found = {(line["agent"], line["start"]): line for line in shown("time_to_solve", datasets)}
    warm, first, peer = found["Lockstep", "warm"], found["Lockstep", "first"], found["Stable-Baselines3 2.9.0", "warm"]
    # Wilson, 10 of 10: 10 / (10 + 1.96^2) = .722.
    assert warm["solved"] == f"10 of 10 [72{SPACE}%, 100{SPACE}%]"
    assert warm["time"] == f"3.00{SPACE}s [2.00{SPACE}s, 4.00{SPACE}s]"
    assert warm["steps"] == f"3.00{SPACE}k [2.00{SPACE}k, 4.00{SPACE}k]"
    assert (warm["nine in ten within"], warm["return afterwards"], warm["remark"]) == (f"5.00{SPACE}s", "500", DASH)
    assert (first["time"], first["nine in ten within"], first["remark"]) == (f"7.00{SPACE}s", DASH, "illustration")
    # 1 of 2: .5 +- .405, and half of an infinite time is infinite.
    assert peer["solved"] == f"1 of 2 [9.5{SPACE}%, 91{SPACE}%]"
    assert (peer["time"], peer["nine in ten within"]) == ("never [never, never]", DASH)
    assert peer["remark"] == "illustration; Gymnasium's environments"


def test_rates_end_to_end_over_peers_that_did_the_same_work(datasets):
    found = {(line["agent"], line["threads"]): line for line in shown("training_rates", datasets)}
    assert found["Lockstep", "2"]["rate, steps/s"] == f"400{SPACE}k"
    assert found["Lockstep", "2"]["per CPU-second"] == f"200{SPACE}k"
    assert found["Lockstep", "2"]["Lockstep over it"] == DASH
    sb3 = found["Stable-Baselines3 2.9.0", "1"]
    assert sb3["Lockstep over it"] == f"40.0{TIMES} [40.0{TIMES}, 40.0{TIMES}]"  # on two threads
    assert (sb3[f"B {TIMES} T"], sb3[f"epochs {TIMES} minibatches"]) == (
        f"1,024{SPACE}{TIMES}{SPACE}32",
        f"4{SPACE}{TIMES}{SPACE}4",
    )
    # Another batch is other work.
    assert found["Stable-Baselines3 on the port", "1"]["Lockstep over it"] == DASH
    assert found["rejax", "1"]["remark"] == "not measured: rejax is not installed"
    assert found["rejax", "1"]["rate, steps/s"] == DASH
    assert list(dict.fromkeys(agent.split(" 2.9")[0] for agent, _ in found)) == [
        "Lockstep",
        "Stable-Baselines3",
        "Stable-Baselines3 on the port",
        "rejax",
    ]


def test_where_the_time_of_an_iteration_goes(datasets):
    """1,024 x 32 steps at 200,000 a second take 164 ms, of which half a second in two is roll-out."""
    line = next(line for line in shown("training_iteration", datasets) if line["threads"] == "1")
    assert line["one iteration"] == f"164{SPACE}ms"
    assert line["rollout"] == f"25{SPACE}% [41.0{SPACE}ms]"
    assert line["advantage"] == f"5.0{SPACE}% [8.19{SPACE}ms]"
    assert line["update"] == f"65{SPACE}% [106{SPACE}ms]"
    assert line["rest"] == f"5.0{SPACE}% [8.19{SPACE}ms]"


def test_large_batches_make_more_steps_and_learn_less_from_each(datasets):
    small, large = shown("learning_scaling", datasets)
    assert (small["rate, steps/s"], large["rate, steps/s"]) == (f"100{SPACE}k", f"300{SPACE}k")
    assert (small["return"], large["return"]) == ("495", "90.0")
    assert (small["return then"], large["return then"]) == (DASH, "310")
    assert (large["equal time"], large["equal steps"]) == (f"2.00{SPACE}s", f"262{SPACE}k")


def test_one_thing_changed_at_a_time(datasets):
    rated, scored = shown("learning_ablations", datasets)
    # A quarter of our 400,000.
    assert (rated["changed"], rated["over the recipe"]) == (
        "gradient by autograd",
        f"0.250{TIMES} [0.250{TIMES}, 0.250{TIMES}]",
    )
    assert (scored["changed"], scored["return"], scored["the recipe's"]) == ("no bootstrap", "300", "490")
    assert (scored["seeds"], scored["remark"]) == ("5", DASH)


def test_an_algorithm_is_spelled_as_its_class():
    said = {"ppo": "PPO", "rainbow": "Rainbow", "ac_iqn": "AC-IQN", "no_longer_there": "NO-LONGER-THERE", None: ""}
    assert {name: learning.algorithm(name) for name in said} == said


def test_algorithms_stay_apart(tmp_path, monkeypatch):
    """Another one is half as good, a tenth as fast, and knows neither horizon nor network nor advantages."""
    lacks = dict.fromkeys(["horizon", "epochs", "minibatches", "hidden", "members", "advantage_s"], "")
    other = [*(learnt("curve", seed=k, env_steps=1000, wall_s=1, score=60) for k in range(5))]
    other += seeds("final", [250] * 5) + training("rate", "lockstep", 20_000, rollout_s=1.0, update_s=0.5)
    other += seeds("ablation", [10] * 5, variant="no bootstrap") + training("ablation", "lockstep", 10_000, variant="x")
    other += training("scaling", "lockstep", 30_000, num_envs=64, rollout_s=1.0, update_s=0.5)
    rows = [entry | {"algorithm": "" if entry["agent"] == "random" else "ppo"} for entry in LEARNING]
    rows += [entry | lacks | {"algorithm": "cem"} for entry in other]
    datasets = written(tmp_path, rows)

    def seen(name, *headings, algorithm="CEM"):
        return [
            tuple(line[key] for key in headings) for line in shown(name, datasets) if line["algorithm"] == algorithm
        ]

    batch = f"B {TIMES} T"
    assert seen("learning_final", "agent", batch, "return") == [("Lockstep", "1,024", "250")]
    assert seen("learning_final", "return", algorithm="PPO") == [("490",)]
    assert seen("learning_final", "agent", algorithm=DASH) == [("random policy",)]
    assert seen("training_rates", batch, "Lockstep over it") == [("1,024", DASH)]
    shares = ("rollout", "advantage", "update", "rest", "one iteration")
    assert seen("training_iteration", *shares)[0] == (f"50{SPACE}%", DASH, f"25{SPACE}%", f"25{SPACE}%", DASH)
    assert seen("learning_scaling", batch, "rate, steps/s") == [("64", f"30.0{SPACE}k")]
    assert seen("learning_scaling", "rate, steps/s", algorithm="PPO") == [(f"100{SPACE}k",), (f"300{SPACE}k",)]
    half = f"0.500{TIMES} [0.500{TIMES}, 0.500{TIMES}]"
    assert seen("learning_ablations", "over the recipe", "the recipe's") == [(half, DASH), (DASH, "250")]
    assert [list(line.get_ydata()) for line in figures.draw("learning", datasets).axes[0].lines[:2]] == [
        [100, 200],
        [60],
    ]
    _, _, share, *others = figures.draw("learning_scaling", datasets).axes
    assert len(others) == 3  # of the other algorithm
    assert [bar.get_y() for bars in share.containers for bar in bars] == pytest.approx([0, 50, 50, 75])
    curves = {"curves": {}}
    monkeypatch.setattr(learning, "wanted", lambda name: {"aim": 475, "quick": {"ppo": curves, "cem": curves}})
    met = {line["target"]: line["met"] for line in shown("targets", datasets) if line["target"].startswith("Return")}
    assert [(name.split()[8], said) for name, said in met.items()] == [("CEM,", "no"), ("PPO,", "yes")]


def test_every_point_of_the_curves(datasets):
    found = [
        (line["steps"], line["time"], line["seeds"], line["return"]) for line in shown("learning_curves", datasets)
    ]
    assert found == [
        (f"1.00{SPACE}k", f"500{SPACE}ms", "5", "100"),
        (f"2.00{SPACE}k", f"1.00{SPACE}s", "5", "200"),
    ]


def test_published_rates_name_their_hardware_and_are_quoted():
    declared = families.read("common", "published.yaml")["published"]
    found = shown("published_training", [])
    assert [line["project"] for line in found] == [entry["project"] for entry in declared]
    assert all(all(isinstance(said, str) and said for said in entry.values()) for entry in declared)
    assert next(line["hardware"] for line in found if line["project"] == "PufferLib 5") == "RTX 5090"


@pytest.mark.parametrize("name", TABLES)
def test_without_results_a_recipe_s_parts_are_not_measured(name, nothing):
    (line,) = shown(name, nothing)
    assert (line["environment"], line["status"]) == ("cartpole", "not measured")


def test_what_no_recipe_asks_for_is_in_no_table(nothing, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["mountain_car", "somewhere_else"])
    assert [line["environment"] for line in shown("learning_final", nothing)] == ["mountain_car"]
    assert shown("time_to_solve", nothing) == []


@pytest.mark.parametrize("name", TABLES)
def test_a_run_without_a_part_says_so(name, tmp_path):
    (line,) = shown(name, written(tmp_path, seeds("other", [1])))
    assert (line["status"], line["remark"]) == ("measured here", "not measured")


@pytest.mark.parametrize("name", [*TABLES, "targets", "classic_control_claims"])
def test_statuses_are_those_of_the_run(name, tmp_path):
    written(tmp_path, machine="big", changed=True)
    found = shown(name, paper.load(tmp_path))
    assert "recorded, code changed since (big, 2026-01-02)" in {line["status"] for line in found}


@pytest.mark.parametrize("part", ["curve", "final", "solve", "rate", "scaling", "ablation"])
def test_every_table_and_figure_reads_sensibly_with_one_part_alone(part, tmp_path):
    datasets = written(tmp_path, [entry for entry in LEARNING if entry["part"] == part])
    for name in TABLES:
        assert not [cell for line in shown(name, datasets) for cell in line.values() if cell in ("", "nan", "None")]
    for name in ("learning", "learning_scaling"):
        assert figures.svg(figures.draw(name, datasets)).rstrip().endswith("</svg>")


DQN = [
    *seeds("final", [400, 410, 420, 430, 440], algorithm="dqn", recipe="solve"),
    *(entry | {"algorithm": "dqn"} for entry in LEARNING if entry["part"] == "curve"),
    *training("rate", "lockstep", 30_000, algorithm="dqn", rollout_s=0.4, update_s=1.4),
    *training("rate", "lockstep", 50_000, algorithm="dqn", settings="double=False", rollout_s=0.4, update_s=1.4),
    *training("rate", "sb3", 5_000, algorithm="dqn", settings="double=False", version="2.9.0"),
    *training("scaling", "lockstep", 7_000, algorithm="dqn", num_envs=64),
    *seeds("ablation", [410, 410, 410, 410, 410], algorithm="dqn", variant="no target network"),
]


def test_rows_say_which_algorithm_they_are_of(tmp_path):
    """Of the same recipe, shape and network, two algorithms are compared with their own kind alone."""
    datasets = written(tmp_path, [{"algorithm": "ppo"} | row for row in LEARNING if row["agent"] != "random"] + DQN)
    finals = {line["algorithm"]: line["return"] for line in shown("learning_final", datasets)}
    assert finals == {"PPO": "490", "DQN": "420"}
    over = {(line["agent"], line["algorithm"]): line["Lockstep over it"] for line in shown("training_rates", datasets)}
    assert over["Stable-Baselines3 2.9.0", "PPO"] == f"40.0{TIMES} [40.0{TIMES}, 40.0{TIMES}]"
    assert over["Stable-Baselines3 2.9.0", "DQN (double=False)"] == f"10.0{TIMES} [10.0{TIMES}, 10.0{TIMES}]"
    (line,) = [line for line in shown("training_iteration", datasets) if line["algorithm"] == "DQN"]
    assert (line["rollout"][:2], line["advantage"], line["rest"][:2]) == ("20", DASH, "10")
    changed = {
        line["algorithm"]: (line["return"], line["the recipe's"]) for line in shown("learning_ablations", datasets)
    }
    assert changed["DQN"] == ("410", "420") and changed["PPO"][1] == "490"
    scaled = [(line["algorithm"], line["rate, steps/s"]) for line in shown("learning_scaling", datasets)]
    assert scaled[0] == ("DQN", f"7.00{SPACE}k") and len(scaled) == 3
    labels = {line.get_label() for line in figures.draw("learning", datasets).axes[0].lines}
    assert {"Lockstep PPO, CPU, here", "Lockstep DQN, CPU, here"} <= labels
    assert len(figures.draw("learning_scaling", datasets).axes) == 6


# ---- Quantities, aims and claims ----


def test_quantities_by_hand(datasets):
    assert find(datasets, "training_rate", agent="lockstep")[0].shown == f"400{SPACE}k steps/s"
    assert find(datasets, "training_ratio", agent="sb3")[0].value == 40
    (gain,) = find(datasets, "training_gain", against={"threads": 1}, agent="lockstep", environment="cartpole")
    assert gain.value == 2  # 400 k steps/s over 200 k
    assert find(datasets, "training_gain", against={"threads": 4}, agent="lockstep") == []
    assert find(datasets, "final_return", agent="lockstep")[0].value == 490
    assert find(datasets, "return_over_random", agent="lockstep")[0].value == 468
    assert find(datasets, "seeds_at_aim", agent="lockstep")[0].shown == f"80{SPACE}%"  # of 0, 480, 490, 500, 500
    assert find(datasets, "seeds_solved", agent="sb3")[0].shown == "1 of 2"
    warm = {"agent": "lockstep", "variant": "warm"}
    assert find(datasets, "nine_in_ten_solved", **warm)[0].value == 5
    assert find(datasets, "nineteen_in_twenty_solved", **warm) == []  # of ten seeds
    assert find(datasets, "training_rate", agent="lockstep", device="cuda") == []


def test_aims_are_held_against_the_recipe_alone(tmp_path):
    """A run of other settings, beside another library, has a row without an aim."""
    datasets = written(tmp_path, LEARNING + seeds("final", [100] * 5, settings="gamma=0.9"))
    assert find(datasets, "final_return", agent="lockstep")[0].value == 490
    found = {line["algorithm"]: line for line in shown("learning_final", datasets) if line["agent"] == "Lockstep"}
    assert found["PPO"]["met"] == "yes"
    other = found["PPO (gamma=0.9)"]
    assert (other["return"], other["accepted"], other["met"]) == ("100", DASH, DASH)


def test_seeds_that_meet_an_aim_stand_beside_those_of_another_library(tmp_path):
    """DQN: 4 of 5, and with double off, as the other library has it, 5 of 5 beside 5 of 5. IQN: 5 of 5 beside 3."""
    dqn, iqn, single = {"algorithm": "dqn"}, {"algorithm": "iqn"}, {"settings": "double=False"}
    rows = seeds("final", [400, 480, 490, 500, 500], **dqn) + seeds("final", [500] * 5, **dqn, **single)
    rows += seeds("final", [500] * 5, "sb3", **dqn, **single)
    rows += seeds("final", [475] * 5, **iqn) + seeds("final", [474, 474, 475, 475, 475], "sb3", **iqn)
    datasets = written(tmp_path, rows)
    found = {
        (line["agent"], line["algorithm"]): line["seeds that meet it"] for line in shown("learning_final", datasets)
    }
    assert found["Lockstep", "DQN"] == "4 of 5" and found["Lockstep", "DQN (double=False)"] == "5 of 5"
    assert found["Stable-Baselines3", "IQN"] == "3 of 5"
    judged = {line["target"]: line for line in shown("targets", datasets) if line["environment"] == "cartpole"}
    met = {target.removeprefix("Seeds of "): line["met"] for target, line in judged.items() if target[:8] == "Seeds of"}
    words = "whose greedy policy returns 475 or more in the original"
    assert (met[f"DQN {words}"], met[f"IQN {words}"]) == ("no", "yes")
    beside = f"{words}: their share less that of Stable-Baselines3"
    assert (met[f"DQN {beside}"], met[f"IQN {beside}"]) == ("yes", "yes")
    assert judged[f"Seeds of IQN {beside}"]["reached"] == f"40{SPACE}%"


def test_the_share_of_seeds_within_a_time_is_reached_by_the_seed_that_completes_it(tmp_path):
    """Of twenty seeds of 1 to 20 s eighteen were solved within 18 s, and nineteen within 19 s."""
    (run,) = written(tmp_path, solved("lockstep", [float(k) for k in range(1, 21)], variant="warm"))
    ((_, rows),) = curves.runs(run.frame, "solve")
    assert (learning.within(rows, 0.9), learning.within(rows, 0.95)) == (18, 19)
    assert learning.within(rows.assign(solved=[0, 0] + [1] * 18), 0.95) == math.inf
    assert learning.within(rows.iloc[:10], 0.9) == 9
    assert math.isnan(learning.within(rows.iloc[:9], 0.9))


def test_aims_of_training_are_judged(datasets):
    found = {line["target"]: line for line in shown("targets", datasets) if line["environment"] == "cartpole"}

    def met(start):
        return next(line["met"] for target, line in found.items() if target.startswith(start))

    assert met("PPO training rate with CleanRL's epochs") == "yes"  # 400,000, at least 300,000
    assert met("PPO training rate over Stable-Baselines3, CleanRL's epochs") == "yes"  # 40 times, at least 15
    assert met("Time within which nine in ten seeds are solved, on the CPU") == "no"  # 5 s, at most 3
    assert met("Return of the greedy policy after training with PPO") == "yes"
    on_a_gpu = [line for target, line in found.items() if "GPU (H200)" in target and "rain" in target]
    assert len(on_a_gpu) >= 3
    assert {line["status"] for line in on_a_gpu} == {"not measured"}


def test_the_aim_of_a_recipe_is_the_aim_of_the_paper(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["pendulum"])
    rows = seeds("final", [-150, -160, -170, -180, -190]) + seeds("final", [-1200], "random")
    found = shown("targets", written(tmp_path, rows, environment="pendulum"))
    reached = {
        line["target"].rpartition(", ")[2]: (line["accepted"], line["reached"], line["met"])
        for line in found
        if line["environment"] == "pendulum" and "with PPO" in line["target"]
    }
    assert reached["in the original"] == (f"{GREATER}{SPACE}{MINUS}200", f"{MINUS}170", "yes")
    assert reached["above a random policy"][1:] == ("1,030", "yes")


# ---- Figures ----


def test_curves_over_steps_and_over_seconds(datasets):
    figure = figures.draw("learning", datasets)
    by_steps, by_seconds = figure.axes
    label = "Lockstep PPO, CPU, here"
    for panel, x in ((by_steps, [1000, 2000]), (by_seconds, [0.5, 1.0])):
        lines = {line.get_label(): line for line in panel.lines}
        assert list(lines[label].get_xdata()) == x
        assert list(lines[label].get_ydata()) == [100, 200]
        assert lines["random policy"].get_ydata()[0] == 22
        assert lines["aim"].get_ydata()[0] == 475


def test_as_many_algorithms_as_there_are_leave_their_curves_room(tmp_path):
    """On both devices of one environment: each has a colour, each device a marker."""
    names = ["a2c", "dqn", "ppo", "rainbow", "iqn", "ac_iqn", "sac", "td3", "ddpg"]
    rows = [
        entry | {"algorithm": name, "device": device}
        for entry in LEARNING
        if entry["part"] == "curve"
        for name in names
        for device in ("cpu", "cuda")
    ]
    figure = figures.draw("learning", written(tmp_path, rows))
    figure.draw_without_rendering()
    panel, _ = figure.axes
    assert panel.get_window_extent().height > 0.8 * figure.dpi
    looks = {
        line.get_label(): (line.get_color(), line.get_marker()) for line in panel.lines if "Lock" in line.get_label()
    }
    assert len(set(looks.values())) == 18 and len({colour for colour, _ in looks.values()}) == 9


def test_a_curve_of_few_seeds_is_dashed_and_says_so(tmp_path):
    rows = [entry for entry in LEARNING if entry["part"] == "curve" and entry["seed"] < 3]
    panel = figures.draw("learning", written(tmp_path, rows)).axes[0]
    (line,) = [line for line in panel.lines if "Lockstep" in line.get_label()]
    assert line.get_label().endswith(", illustration")
    assert line.get_linestyle() == "--"


def test_scaling_draws_rate_return_and_shares(datasets):
    rate, score, share = figures.draw("learning_scaling", datasets).axes
    assert [list(line.get_xdata()) for line in rate.lines] == [[64, 4096]]
    drawn = {line.get_label(): list(line.get_ydata()) for line in score.lines}
    assert drawn["return at equal steps, illustration"] == [495, 90]
    heights = {patches.get_label(): [bar.get_height() for bar in patches] for patches in share.containers}
    assert heights["rollout"] == pytest.approx([25, 25])
    assert heights["rest"] == pytest.approx([5, 5])


# ---- The page ----


def test_the_page_tells_what_training_reached(text):
    section = text[text.index(">Learning</h2>") :]
    assert f"400{SPACE}k steps/s" in section
    assert f"40.0{TIMES} the rate of Stable-Baselines3" in section
    assert "10 of 10 seeds" in section


def test_a_page_without_learning_says_so(empty):
    assert "No training has been measured yet." in empty[empty.index(">Learning</h2>") :]


def test_the_recorded_results_have_what_training_reaches_and_how_long_it_takes(datasets):
    words = readme.learning(datasets)
    final = next(line for line in words.splitlines() if "| Lockstep |" in line and "| 490 |" in line)
    assert f"| 131{SPACE}k |" in final
    assert sum("| warm |" in line for line in words.splitlines()) == 2  # ours and that of Stable-Baselines3
    assert "| first |" not in words and "random policy" not in words
    assert readme.learning([]) == readme.ABSENT
