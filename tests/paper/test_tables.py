import dataclasses
import math
import re

import pytest

from lockstep import paper
from lockstep.paper import families, tables, typeset
from lockstep.paper.common.tables import compilation, targets
from lockstep.paper.typeset import DASH, TIMES
from tests.paper import handwritten
from tests.paper.handwritten import B
from tests.paper.reading import seen as rows


@pytest.mark.parametrize("tree", ["everything", "only_recorded", "with_edge", "nothing"])
@pytest.mark.parametrize("name", tables.every())
def test_every_table_reads_sensibly_whatever_was_measured(name, tree, loaded):
    about, datasets = tables.every()[name], loaded[tree]
    frame = about.frame(datasets)
    columns, seen = about.seen(frame)
    assert about.caption.endswith(".")
    assert not [cell for row in seen for cell in row if cell == "" or re.search(r"\b(nan|none)\b", cell.lower())]
    assert typeset.html_table(columns, seen, about.empty).count("<tr") > 1
    assert typeset.csv(frame) == typeset.csv(about.frame(datasets))


def test_ratios_stay_on_one_machine(datasets):
    ladder = tables.frame("ladder", datasets).set_index(["machine", "rung", "threads"])["ratio"]
    assert ladder["here", "port-cpu", 2] == 3000
    assert ladder["big", "port-cuda-graph", 1] == 20_000
    assert ladder[["bare"]].isna().all()
    assert {row[f"{TIMES} original"] for row in rows("ladder", datasets) if "code changed" in row["status"]} == {DASH}


def test_a_ratio_divides_by_the_original_under_the_same_policy(tmp_path):
    measured = handwritten.rates("original", 100, 1) + handwritten.rates("original", 400, 1, policy="fixed")
    for policy in ("random", "fixed", "constant"):
        measured += handwritten.rates("port-cpu", 8000, policy=policy)
    handwritten.write(tmp_path, None, "throughput", measured, handwritten.HERE)
    ratios = tables.frame("throughput", paper.load(tmp_path)).set_index(["rung", "policy"])["ratio"]
    assert ratios["port-cpu", "random"] == 80
    assert ratios["port-cpu", "fixed"] == 20
    assert ratios["port-cpu", "constant"] == 80  # the original has no such policy


def test_the_four_statuses(datasets):
    found = {(row["experiment"], row["machine"]): row["status"] for row in rows("status", datasets)}
    assert found["throughput", "here"] == "measured here"
    assert found["throughput", "big"] == "recorded"
    assert found["throughput", "bare"] == "recorded, code changed since"
    assert {row["status"] for row in rows("status", paper.load(handwritten.Path("absent")))} == {"not measured"}


def test_what_was_measured_here_by_older_code_says_so_and_is_judged_alike(tmp_path):
    judged = {}
    for changed in (False, True):
        rates = handwritten.rates("original", 1, 1) + handwritten.rates("port-cpu", 3000)
        handwritten.write(tmp_path, None, "throughput", rates, handwritten.HERE, changed=changed)
        found = rows("targets", paper.load(tmp_path))
        judged[changed] = [(row["target"], row["met"]) for row in found if row["status"].startswith("measured here")]
        assert {row["status"] for row in found} == {"measured here" + changed * ", code changed since", "not measured"}
    assert judged[True] == judged[False] != []


def test_a_recorded_figure_names_its_machine_and_day(datasets):
    shown = {row["status"] for row in rows("ladder", datasets)}
    assert shown == {
        "measured here",
        "recorded on big, 2026-01-02",
        "recorded, code changed since (bare, 2026-01-02)",
    }


def test_rates_and_intervals_of_the_ladder(datasets):
    (row,) = [row for row in rows("ladder", datasets) if row["threads"] == "2"]
    assert (row["rate, steps/s"], row["per CPU-second"]) == (f"300{typeset.SPACE}k", f"150{typeset.SPACE}k")
    assert row["fastest of all sizes"] == f"300{typeset.SPACE}k at 8,192"
    assert row["95 % interval"] == typeset.si_range(3e5, 3e5, 3e5)


def test_cpu_seconds_are_not_said_of_a_gpu(datasets):
    gpu = [row for row in rows("ladder", datasets) if "GPU" in row["rung"]]
    assert gpu
    assert {row["per CPU-second"] for row in gpu} == {DASH}


def test_fused_steps_against_a_call_per_step_with_as_many_threads(datasets):
    (row,) = [row for row in rows("fused_steps", datasets) if row["K"] == "128"]
    assert row[f"{TIMES} call per step"] == f"3.00{TIMES}"


def test_roofline(datasets):
    (row,) = [row for row in rows("roofline", datasets) if row["threads"] == "2" and row["B"] == f"{B:,}"]
    assert row["share reached"] == f"75{typeset.SPACE}%"
    assert row["fp32 operations possible per step"] == "40.0"


def test_sums_of_the_sameness_proof(datasets):
    transition, episode, distribution = [row for row in rows("correctness", datasets)]
    assert (transition["quantity"], transition["tolerance"]) == ("theta (a variant)", f"1e{typeset.MINUS}6")
    assert (transition["differing (allowed)"], transition["checks held"]) == ("4 (16)", "4 of 4")
    assert transition["cases"] == "1,000,000"
    assert episode["checks held"] == DASH  # it only reports
    assert (distribution["smallest p"], distribution["checks held"]) == ("0.0400", "0 of 1")


def test_agreement_at_a_glance(datasets):
    (row,) = rows("agreement", datasets)
    assert (row["states compared"], row["difference / tolerance"]) == ("1,000,000", f"50{typeset.SPACE}%")
    assert (row["one step"], row["whole episodes"], row["distributions"]) == ("4 of 4", DASH, "0 of 1")
    assert (row["apart at step"], row["all hold"]) == (f"113 (99 {DASH} 146)", "no")


def test_the_family_in_one_line_per_environment_and_machine(tmp_path):
    for name, factor in (("cartpole", 1), ("pendulum", 2)):
        measured = handwritten.rates("original", 100 * factor, 1) + handwritten.rates("port-cpu", 2000, threads=2)
        measured += handwritten.rates("port-cpu", 3000) + handwritten.rates("port-cpu", 9000, 64)
        measured += handwritten.rates("port-cuda-no-reset", 10**9, device="cuda", policy="constant")
        of_name = [row | {"environment": name} for row in measured]
        handwritten.write(tmp_path, None, "throughput", of_name, handwritten.HERE, environment=name)
    handwritten.big(tmp_path)
    found = {(row["environment"], row["status"]): row for row in rows("family", paper.load(tmp_path))}
    assert [name for name, _ in found] == ["cartpole", "pendulum", "cartpole"]  # by machine, this one first
    row = found["pendulum", "measured here"]
    assert (row["original"], row["Gymnasium's vector class"]) == ("200", DASH)
    assert row["CPU, call per step"] == f"3.00{typeset.SPACE}k{typeset.SPACE}(15.0{TIMES})"  # at 8,192, on one thread
    assert row["fastest, any size"] == f"9.00{typeset.SPACE}k"  # what has ended is no step
    assert found["cartpole", "recorded on big, 2026-01-02"]["GPU, graph"] == f"1.00{typeset.SPACE}M"


def test_a_rate_of_what_has_ended_has_no_ratio(tmp_path):
    measured = handwritten.rates("original", 100, 1)
    for rung in ("port-cuda-constant", "port-cuda-no-reset"):
        measured += handwritten.rates(rung, 5000, device="cuda", policy="constant")
    handwritten.write(tmp_path, None, "throughput", measured, handwritten.BIG)
    ratios = tables.frame("throughput", paper.load(tmp_path)).set_index("rung")["ratio"]
    assert ratios["port-cuda-constant"] == 50
    assert math.isnan(ratios["port-cuda-no-reset"])


def test_statuses_are_summed_up_over_environments(tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole", "mountain_car", "pendulum"])
    for name in ("cartpole", "pendulum"):
        measured = handwritten.rates("original", 100, 1)
        handwritten.write(tmp_path, None, "throughput", measured, handwritten.HERE, environment=name)
    found = {(row["experiment"], row["status"]): row["environments"] for row in rows("status", paper.load(tmp_path))}
    assert found["throughput", "measured here"] == "cartpole, pendulum"
    assert found["throughput", "not measured"] == "mountain_car"
    assert found["correctness", "not measured"] == "all 3"
    assert found["ceilings", "not measured"] == "the machine itself"


def test_what_is_told_is_not_judged(datasets):
    checks = rows("correctness_checks", datasets)
    assert [row["holds"] for row in checks] == ["yes", "yes", "yes", "yes", DASH, "no"]
    assert (checks[4]["found"], checks[4]["allowed"]) == ("113, [99.0, 146]", DASH)
    assert (checks[5]["found"], checks[5]["allowed"]) == (
        f"{typeset.MINUS}0.100, [{typeset.MINUS}0.500, 0.250], p = 0.040",
        "contains 0",
    )


def test_kernels_with_the_range_over_their_builds(datasets):
    found = [
        (row["registers per thread"], row["spilled, B"], row["spill-free"]) for row in rows("compilation", datasets)
    ]
    assert found == [(f"30 {DASH} 40", "8", "no")]
    by_kernel = [
        (row["target"], row["registers per thread"], row["spilled, B"]) for row in rows("compilation_kernels", datasets)
    ]
    assert by_kernel == [("sm_80", f"32 {DASH} 40", "0"), ("sm_90", "30", "8")]
    assert len(rows("compilation_builds", datasets)) == 3


def test_every_build_is_shown_of_one_machine(tmp_path):
    for machine in (None, "big"):
        handwritten.write(tmp_path, machine, "compilation", handwritten.KERNELS, handwritten.HERE, scale=None)
    datasets = paper.load(tmp_path)
    assert len(rows("compilation", datasets)) == 2
    assert {row["status"] for row in rows("compilation_builds", datasets)} == {"measured here"}
    assert len(rows("compilation_builds", datasets)) == 3


def test_an_environment_that_nobody_measured_is_in_every_table(nothing, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole", "pendulum"])
    for name in ("compilation", "correctness", "ladder", "throughput"):
        found = {row["environment"]: row["status"] for row in rows(name, nothing)}
        assert found == {"cartpole": "not measured", "pendulum": "not measured"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("+0.00", "0"),
        ("+0.50", "+0.50"),
        ("3.00\u00a0G", "3\u00a0G"),
        ("+0", "0"),
        ("+0.0 points", "0 points"),
        ("100", "100"),
    ],
)
def test_a_bound_has_no_zeros_of_a_measurement_and_no_sign_of_nothing(written, expected):
    assert targets.short(written) == expected


def test_targets_are_judged(datasets):
    found = {(row["target"], row["status"]): row["met"] for row in rows("targets", datasets)}
    over_original = next(target for target, _ in found if "over Gymnasium's CartPole in one process" in target)
    over_vector = next(target for target, _ in found if "over Gymnasium's CartPoleVectorEnv" in target)
    assert found[over_original, "measured here"] == "yes"  # 3,000 times, at least 2,000
    assert found[over_vector, "measured here"] == "no"  # 6 times, at least 15
    assert (over_original, "recorded on big, 2026-01-02") not in found  # no such rung there


def test_main_claims_have_a_verdict_of_this_machine_or_of_the_record(datasets, tmp_path):
    found = {row["claim"]: row for row in rows("results", datasets)}
    assert 0 < len(found) <= 15
    assert {row["verdict"] for row in found.values()} <= {"met", "not met", "met on record", "not met on record"}
    checks = next(row for claim, row in found.items() if claim.startswith("Comparisons with the originals"))
    assert (checks["here"], checks["accepted"], checks["verdict"]) == ("4 of 5", "all", "not met")
    over = next(row for claim, row in found.items() if "over Gymnasium's CartPole in one process" in claim)
    assert (over["recorded"], over["here"], over["verdict"]) == (DASH, f"3,000{TIMES}", "met")
    floors = next(row for claim, row in found.items() if claim.startswith("Throughput targets"))
    assert floors["here"].startswith("1 of ") and floors["verdict"] == "not met"  # 3,000 times; 6 of 15 times, 0.15 M
    handwritten.write(tmp_path, "big", "correctness", handwritten.CHECKS[:2], handwritten.BIG, scale="full")
    recorded = {row["claim"]: row for row in rows("results", paper.load(tmp_path))}
    states = next(row for claim, row in recorded.items() if claim.startswith("Fewest states"))
    assert (states["recorded"], states["recorded on"], states["verdict"]) == ("1,000,000", "big", "met on record")
    assert states["accepted"] == f"{typeset.GREATER}{typeset.SPACE}1,000,000 at full scale"


def test_of_several_environments_the_worst_is_claimed_and_counts_are_added(tmp_path):
    for name, error in (("cartpole", 2e-7), ("pendulum", 3e-6)):
        checks = [handwritten.check("transition", "x", 100_000, error=error, tolerance=1e-6, passed=error < 1e-6)]
        of_name = [check | {"environment": name} for check in checks]
        handwritten.write(tmp_path, None, "correctness", of_name, handwritten.HERE, environment=name)
    found = {row["claim"]: row for row in rows("results", paper.load(tmp_path))}
    largest = next(row for claim, row in found.items() if claim.startswith("Largest difference of one step"))
    assert (largest["here"], largest["verdict"]) == (f"300{typeset.SPACE}%", "not met")
    together = next(row for claim, row in found.items() if claim.startswith("Comparisons with"))
    assert (together["here"], together["verdict"]) == ("1 of 2", "not met")


def test_a_verdict_has_a_mark_and_words():
    marks = {"met": "yes", "not met": "no", "met on record": "yes", "not met on record": "no"}
    assert {verdict: typeset.mark(verdict) for verdict in marks} == marks


def test_a_bound_may_depend_on_the_scale(tmp_path):
    def judged(scale):
        handwritten.write(tmp_path, None, "correctness", handwritten.CHECKS, handwritten.HERE, scale=scale)
        (row,) = [row for row in rows("targets", paper.load(tmp_path)) if row["target"].startswith("States from")]
        return row["accepted"].split(typeset.SPACE)[1]

    assert (judged("full"), judged("quick")) == ("1,000,000", "100,000")


def test_each_family_has_a_table_of_its_environments(loaded):
    (row,) = rows("classic_control_environments", loaded["only_recorded"])
    assert (row["environment"], row["observation"], row["action"]) == ("cartpole", "4", "2 choices")
    assert row["port on GPU"] == f"1.00{typeset.SPACE}M{typeset.SPACE}(20,000{TIMES})"
    (row,) = [row for row in rows("vehicular_edge_environments", loaded["with_edge"])]
    assert row["observation"].startswith(f"2{typeset.SPACE}{TIMES}{typeset.SPACE}")
    assert row["original's slots/s"] == "50.0"


def test_environments_of_a_family_are_listed_machine_by_machine(tmp_path):
    for machine in ("here", "first", "second"):
        for name in ("cartpole", "pendulum"):
            recorded, about = (None, handwritten.HERE) if machine == "here" else (machine, handwritten.BIG)
            steps = [row | {"environment": name} for row in handwritten.CHECKS[:1]]
            handwritten.write(tmp_path, recorded, "correctness", steps, about, environment=name)
    frame = tables.frame("classic_control_environments", paper.load(tmp_path))
    frame = frame[frame["status"] != paper.NOT_MEASURED]
    order = [(machine, name) for machine in ("here", "first", "second") for name in ("cartpole", "pendulum")]
    assert list(zip(frame["machine"], frame["environment"], strict=True)) == order


def test_a_claim_on_record_is_of_the_machine_that_measured_its_target_at_full_scale(tmp_path):
    for machine, scale, cases in (("first", "quick", 100), ("second", "full", 1_000_000)):
        checks = [handwritten.check("transition", "x", cases, error=0.0, tolerance=1e-6, passed=True)]
        handwritten.write(tmp_path, machine, "correctness", checks, handwritten.BIG, scale=scale)
    (row,) = [row for row in rows("results", paper.load(tmp_path)) if row["claim"].startswith("Fewest states")]
    assert (row["recorded"], row["recorded on"], row["verdict"]) == ("1,000,000", "second", "met on record")


def test_each_claim_has_a_row_with_the_first_answer_that_was_measured(datasets):
    declared = [claim for name in families.names() for claim in families.claims(name)["claims"]]
    found = rows("claims", datasets)
    assert [row["claim"] for row in found] == [claim["claim"] for claim in declared]
    first = found[0]  # of its answers the first asks for a rung that no machine ran
    assert (first["question"], first["machine"]) == ("the same loop with resets, live steps", "bare")
    assert {(row["this work"], row["machine"]) for row in found if row["claim"].startswith("57.4")} == {(DASH, DASH)}


def as_a_piece(datasets, *missing):
    about = {"missing": ["a group"], "missing_groups": list(missing)}
    return [dataclasses.replace(run, provenance=run.provenance | about) for run in datasets]


def test_targets_of_a_piece_are_judged_when_nothing_they_name_is_missing(datasets):
    """300,000 on two threads, over 100 of the original and 50,000 of the vector class."""

    def judged(*missing):
        found = rows("targets", as_a_piece(datasets, *missing) if missing else datasets)
        return {row["target"] for row in found if row["status"] == "measured here" and "Gymnasium's" in row["target"]}

    both = {"rung": "port-cpu", "num_envs": B, "threads": 2, "policy": "random"}
    assert len(judged()) == len(judged(both | {"num_envs": 1})) == 2
    assert judged(both) == set()
    (left,) = judged({"rung": "original", "num_envs": 1, "threads": 1, "policy": "random"})
    assert "CartPoleVectorEnv" in left


def test_nothing_is_the_fastest_of_all_sizes_while_one_is_missing(datasets):
    absent = {"rung": "port-cpu", "num_envs": 2**20, "threads": 1, "policy": "random"}
    frame = tables.frame("ladder", as_a_piece(datasets, absent))
    assert frame.loc[frame["rung"] == "port-cpu", "peak_rate"].isna().all()
    assert not frame["incomplete"].any() and frame["peak_rate"].notna().any()
    family = tables.frame("family", as_a_piece(datasets, absent))
    assert family["peak_rate"].isna().all() and family["port-cpu_rate"].notna().any()
    family = tables.frame("family", as_a_piece(datasets, absent | {"num_envs": B}))
    assert family["port-cpu_rate"].isna().all() and family["port-cpu-fused_rate"].notna().any()


def test_a_target_of_all_environments_is_judged_for_each(datasets):
    found = {row["target"]: row for row in rows("targets", datasets) if row["environment"] == "cartpole"}
    spilled = next(row for target, row in found.items() if "spills" in target)
    assert (spilled["reached"], spilled["met"]) == ("8", "no")
    open_ones = [row for row in rows("targets", datasets) if row["environment"] == "every environment"]
    # No machine here ran 4,194,304 environments, or another library.
    (open_one,) = [row for row in open_ones if "share of the copy bandwidth" in row["target"]]
    assert len(open_ones) == 2
    assert (open_one["accepted"], open_one["status"]) == (
        f"{typeset.GREATER}{typeset.SPACE}80{typeset.SPACE}%",
        "not measured",
    )


def test_every_claim_is_answered_or_said_to_be_open(datasets):
    declared = families.claims("classic_control")["claims"]
    found = rows("classic_control_claims", datasets)
    assert list(dict.fromkeys(row["the source document says"] for row in found)) == [
        claim["claim"] for claim in declared
    ]
    by_question = {row["question"]: row["status"] for row in found}
    for later in (
        "share of transfer in a loop with a policy, unpinned memory",
        "training rate, environments and learner on the CPU",
        "port over the fastest other library",
    ):
        assert by_question[later] == "not measured"
    assert by_question["one launch of that loop"].startswith("recorded, code changed since (bare")


def test_cost_adds_up_and_meets_the_time_allowed(datasets):
    total = next(row for row in rows("cost", datasets) if row["machine"] == "here" and row["experiment"] == "all")
    minutes = [row["wall time"] for row in rows("cost", datasets) if row["machine"] == "here"]
    assert minutes == [typeset.seconds(60)] * 4 + [typeset.seconds(240)]
    assert total["CPU time"] == typeset.seconds(360)
    assert total["time allowed"] == typeset.seconds(families.aims()["budgets"]["quick"])


def test_the_time_allowed_is_met_or_not(datasets, tmp_path):
    allowance = {row["machine"]: row["allowance"] for row in rows("cost", datasets) if row["experiment"] == "all"}
    assert allowance == {"here": "met", "bare": "met", "big": "met"}
    late = families.aims()["budgets"]["quick"] + 1.0
    handwritten.write(tmp_path, None, "compilation", handwritten.KERNELS, handwritten.HERE, wall_s=late)
    assert [row["allowance"] for row in rows("cost", paper.load(tmp_path))] == [DASH, "not met"]
    assert (typeset.mark("met"), typeset.mark("not met")) == ("yes", "no")


def test_another_scale_has_a_sum_of_its_own(tmp_path):
    for experiment, scale, measured in (
        ("throughput", "quick", handwritten.rates("original", 100, 1)),
        ("correctness", "full", handwritten.CHECKS),
        ("compilation", None, handwritten.KERNELS),  # belongs to both
    ):
        handwritten.write(tmp_path, None, experiment, measured, handwritten.HERE, scale=scale)
    sums = {row["scale"]: row for row in rows("cost", paper.load(tmp_path)) if row["experiment"] == "all"}
    assert {scale: row["allowance"] for scale, row in sums.items()} == {"quick": "met", "full": DASH}
    assert {row["wall time"] for row in sums.values()} == {typeset.seconds(120)}


def test_a_time_that_was_not_noted_leaves_the_sum_open(tmp_path):
    handwritten.write(tmp_path, None, "compilation", handwritten.KERNELS, handwritten.HERE, wall_s=None)
    total = rows("cost", paper.load(tmp_path))[-1]
    assert (total["wall time"], total["allowance"]) == (DASH, DASH)


def test_machines_side_by_side(datasets):
    frame = tables.frame("machines", datasets).set_index("property")
    assert list(frame.columns) == ["here", "bare", "big"]
    assert frame.loc["GPU", "here"] == DASH
    assert frame.loc["GPU", "big"] == "Big GPU"
    assert frame.loc["commit", "here"] == "0123456789ab"


def test_trademark_signs_are_left_out():
    assert tables.plain("Intel(R) Xeon(TM)") == "Intel Xeon"


@pytest.mark.parametrize(("registers", "warps"), [(32, 64), (40, 48), (64, 32), (128, 16), (168, 12), (255, 8)])
def test_warps_that_registers_leave_room_for(registers, warps):
    """As NVIDIA's occupancy calculator has it for compute capability 8.0 and 9.0."""
    assert compilation.warps(registers) == warps
