"""Other libraries' forms of a task, and what is learnt on them: rows written by hand, worked out in the head."""

import pytest

from lockstep import envs, paper
from lockstep.experiments import ROOT
from lockstep.experiments.verify import subjects
from lockstep.experiments.verify.checks import DIFFERS, OUTSIDE, SAME, TOLD, UNSEEN
from lockstep.paper import families, sentences
from lockstep.paper.report import Report
from lockstep.paper.typeset import DASH, GREATER, MINUS
from tests.paper import handwritten
from tests.paper.reading import seen

LIMIT, STEPS, REWARDS = "terminated at the time limit", "transitions", "rewards"
LOST = "9 of 9 truncated episodes did not show their last observation"


def check(library, name, verdict, cases=100, **found):
    row = {"environment": "cartpole", "library": library, "version": "1.0", "status": "measured"}
    return row | {"property": name, "seen": OUTSIDE, "cases": cases, "verdict": verdict} | found


CHECKS = [
    *(check("gymnasium", name, SAME) for name in (STEPS, LIMIT)),
    check("lockstep", STEPS, DIFFERS, field="x", error=0.5, differing=3),
    check("envpool", STEPS, DIFFERS, field="x", error=0.25, differing=7),
    check("envpool", STEPS, DIFFERS, field="x_dot", error=0.125, differing=7),
    check("envpool", LIMIT, DIFFERS, words="truncated in 2 of 2"),
    check("envpool", "batch size", TOLD),
    check("gymnax", STEPS, SAME),
    check("gymnax", LIMIT, UNSEEN),
    check("sb3", LIMIT, DIFFERS, words="truncated in 0 of 2"),
    {"environment": "cartpole", "library": "torchrl", "status": "not measured", "reason": "torchrl is not installed"},
]


def trained(library, returns, own=None, **about):
    """Rows of so many seeds."""
    row = {"environment": "cartpole", "algorithm": "ppo", "library": library, "version": "1.0", "status": "measured"}
    places = {"original": returns, "batch": own or returns}
    found = ((place, seed, value) for place, values in places.items() for seed, value in enumerate(values))
    return [row | {"scored_in": place, "seed": seed, "return": value} | about for place, seed, value in found]


CONTROL = [480, 485, 490, 495, 500]
TRAINED = [
    *trained("gymnasium", CONTROL),
    *trained("lockstep", [500] * 5),
    *trained("envpool", [400] * 5, own=[450] * 5),
    *trained("gymnax", CONTROL, reason=LOST),
    {"environment": "cartpole", "algorithm": "ppo", "library": "torchrl", "seed": 0, "status": "not measured"}
    | {"reason": "torchrl is not installed"},
]


@pytest.fixture
def report(tmp_path):
    handwritten.write(tmp_path, None, "conformance", CHECKS, handwritten.HERE)
    handwritten.write(tmp_path, None, "crossing", TRAINED, handwritten.HERE)
    return Report(tmp_path, tmp_path)


def test_returns_over_seeds_stand_beside_their_difference_from_the_control(report):
    """The control's deviation is 7.906, over the root of five 3.536: 2.776 and, of two samples, 2.306 * 5 are added."""
    found = {row["trained on"]: row for row in seen("crossing", report.datasets)}
    assert found["gymnasium 1.0"]["in the original"] == "490 [480, 500]"
    assert found["gymnasium 1.0"]["difference"] == DASH
    assert found["gymnax 1.0"]["difference"] == f"0 [{MINUS}11.5, 11.5]"
    envpool = found["envpool 1.0"]
    assert (envpool["in the original"], envpool["in its own batch"]) == ("400 [400, 400]", "450 [450, 450]")
    assert envpool["difference"] == f"{MINUS}90.0 [{MINUS}99.8, {MINUS}80.2]"
    assert {row["seeds"] for name, row in found.items() if name != "torchrl"} == {"5"}


def test_the_table_says_who_reaches_what_counts_as_solved_and_why_somebody_is_missing(report):
    found = {row["trained on"]: row for row in seen("crossing", report.datasets)}
    assert {row["accepted"] for row in found.values()} == {f"{GREATER} 475"}
    reached = {name: row["reached"] for name, row in found.items()}
    assert reached == {
        **{"gymnasium 1.0": "yes", "lockstep 1.0": "yes", "gymnax 1.0": "yes"},
        **{"envpool 1.0": "no", "torchrl": DASH},
    }
    assert found["torchrl"]["remark"] == "torchrl is not installed" and found["torchrl"]["in the original"] == DASH
    assert found["gymnax 1.0"]["remark"] == LOST and found["envpool 1.0"]["remark"] == DASH


def test_the_table_of_checks_says_in_what_a_library_differs(report):
    found = {row["library"]: row for row in seen("conformance", report.datasets)}
    assert found["gymnasium 1.0"]["checks alike"] == "2 of 2"
    assert found["gymnax 1.0"]["checks alike"] == "1 of 1" and found["gymnax 1.0"]["cannot be seen"] == LIMIT
    remark = found["envpool 1.0"]["differs in, or why it was not compared"]
    assert remark == f"{STEPS} (error 0.25 of x, beyond in 7); {LIMIT} (truncated in 2 of 2)"
    assert found["torchrl"]["differs in, or why it was not compared"] == "torchrl is not installed"
    assert "gymnasium_envpool.py" in found["envpool 1.0"]["what its own code says"]
    assert found["gymnasium 1.0"]["what its own code says"] == DASH


def test_what_was_looked_up_is_of_libraries_tasks_and_checks_that_there_are():
    text = "".join(file.read_text() for file in (ROOT / "experiments" / "verify").glob("*.py"))
    for family in families.names():
        for one in families.about(family).get("looked_up", ()):
            assert one["library"] in subjects.KINDS
            assert set(one["environments"]) <= set(envs.names())
            assert all(f'"{check}"' in text for check in one["checks"])


def test_sentences_count_the_forms_that_differ_and_those_on_which_another_policy_is_learnt(report):
    """Of envpool, gymnax and sb3 two differ; of envpool and gymnax, which were trained on, one is apart."""
    assert sentences.told(report, sentences.same_forms) == (
        "Here, 2 of the 3 batched forms that 3 other libraries have of Gymnasium's tasks differ from the original in "
        f"at least one check, most often in *{LIMIT}* (2 of them)."
    )
    assert sentences.told(report, sentences.learnt_there) == (
        "Here, PPO was trained by one recipe on 2 of these forms and on Gymnasium's own batch, and scored in the "
        "original. The 95 % interval of the difference over seeds excludes zero with 1 of the 1 that differ and 0 of "
        "the 1 that do not, where chance alone would have one in twenty do so. Where it holds zero, its width "
        "bounds what was lost, and a score that every form reaches in full shows nothing."
    )


def test_the_abstract_s_claim_has_its_count(report, tmp_path):
    assert sentences.of_others(report) == ", and 2 of 3 by others fail one"
    assert sentences.of_others(Report(tmp_path / "nothing", tmp_path)) == ""


def test_sentences_wait_for_results(tmp_path):
    for say in (sentences.same_forms, sentences.learnt_there):
        assert sentences.told(Report(tmp_path, tmp_path), say) == ""
    alike = [check(library, STEPS, SAME) for library in ("gymnasium", "envpool", "gymnax")]
    handwritten.write(tmp_path, "big", "conformance", alike, handwritten.BIG)
    handwritten.write(tmp_path, "big", "crossing", trained("gymnasium", [1, 2]), handwritten.BIG)
    report = Report(tmp_path, tmp_path)
    assert sentences.told(report, sentences.same_forms) == (
        "On *big*, 0 of the 2 batched forms that 2 other libraries have of Gymnasium's tasks differ from the original "
        "in at least one check."
    )
    assert sentences.told(report, sentences.learnt_there) == ""


def test_of_one_seed_no_interval_is_told(tmp_path):
    rows = trained("gymnasium", [490]) + trained("envpool", [400])
    handwritten.write(tmp_path, None, "crossing", rows, handwritten.HERE)
    found = {row["trained on"]: row for row in seen("crossing", paper.load(tmp_path))}
    assert found["envpool 1.0"]["in the original"] == "400"
    assert found["envpool 1.0"]["difference"] == f"{MINUS}90.0"
