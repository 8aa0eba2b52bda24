"""The paper once a machine with a GPU is on record: rendered with made-up rows of one, beside a machine without."""

import json
import re
import shutil
import warnings
from dataclasses import asdict

import pandas as pd
import pytest

from lockstep import paper
from lockstep.experiments import config, throughput
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.ledger import checksums, provenance
from lockstep.paper import build, families, figures, readme, sentences, tables, typeset
from lockstep.paper.common.tables import claims as tables_of_claims
from lockstep.paper.quantities import find
from lockstep.paper.report import Report
from tests.paper import gpu_machine
from tests.paper.gpu_machine import MACHINE
from tests.paper.handwritten import HERE
from tests.paper.reading import seen as shown

ENVIRONMENTS = ["cartpole", "crypto_trading", "marine_navigation", "pendulum", "vehicle_routing", "vehicular_edge"]
BARE = "tiny"  # the machine without a GPU


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A tree with the made-up recording, and a few of its CPU rows under another machine's name."""
    root = tmp_path_factory.mktemp("gpu")
    gpu_machine.write(root, ENVIRONMENTS)
    for file in sorted((root / "results" / "recorded" / MACHINE).glob("cartpole/*.csv")):
        rows = [row for row in file.read_text().splitlines(keepends=True) if ",cuda," not in row]
        write(root, file.stem, "".join(rows), json.loads(file.with_suffix(".json").read_text()))
    return root


def write(root, experiment, rows, described):
    folder = root / "results" / "recorded" / BARE
    (folder / "cartpole").mkdir(parents=True, exist_ok=True)
    (folder / "cartpole" / f"{experiment}.csv").write_text(rows)
    del described["rows_sha256"]
    described["machine"] = HERE
    (folder / "cartpole" / f"{experiment}.json").write_text(json.dumps(described))
    checksums.sign(folder, sorted(folder.glob("*/*")))


@pytest.fixture(scope="module")
def report(tree, tmp_path_factory):
    return Report(tree, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def datasets(report):
    return report.datasets


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ENVIRONMENTS)


@pytest.fixture(scope="module")
def first_piece(tree, tmp_path_factory):
    """A recording of what targets name of the GPU, and of nothing else, as `record --headline` leaves it at first."""
    root = tmp_path_factory.mktemp("piece")
    folder = root / "results" / "recorded" / MACHINE
    shutil.copytree(tree / "results" / "recorded" / MACHINE, folder)
    for file in sorted(folder.rglob("*.csv")):
        described_by = file.with_suffix(".json")
        if file.stem != "throughput":
            checksums.discard(folder, [file, described_by])
            continue
        name, described = file.parent.name, json.loads(described_by.read_text())
        settings = config.load(name, "full")
        every = throughput.planned(name, settings, ["cpu", "cuda"])
        named = {group.label for group in throughput.headline(every, settings, ["cuda"])}
        if not named:
            checksums.discard(folder, [file, described_by])
            continue
        frame = pd.read_csv(file)
        frame[[Group.of(row).label in named for row in frame.itertuples()]].to_csv(file, index=False)
        described["rows_sha256"] = provenance.hashes([file.name], file.parent)[file.name]
        absent = [group for group in every if group.label not in named]
        described |= {"missing": [group.label for group in absent], "missing_groups": list(map(asdict, absent))}
        described_by.write_text(json.dumps(described))
        checksums.sign(folder, [file, described_by])
    return root


@pytest.mark.parametrize(("gpu", "named", "other"), [(True, MACHINE, BARE), (False, BARE, MACHINE)])
def test_of_machines_on_record_one_is_told_of(report, gpu, named, other):
    words = sentences.told(report, lambda _, machine: machine, gpu=gpu)
    assert named in words and other not in words


@pytest.mark.filterwarnings("error:constrained_layout")
def test_a_first_piece_of_a_recording_makes_a_report(first_piece, tmp_path):
    """Its targets of the GPU are judged, those over the original not measured."""
    report = Report(first_piece, tmp_path)
    assert report.others().data.count("<figure ") == len(tables.every()) + len(figures.every())
    assert MACHINE in sentences.told(report, sentences.measured)
    judged = {
        row["target"]: row["met"] for row in shown("targets", paper.load(first_piece)) if MACHINE in row["status"]
    }
    assert judged and all("H200" in target and "over the original" not in target for target in judged)


@pytest.mark.slow
@pytest.mark.parametrize("name", tables.every())
def test_every_table_reads_sensibly(name, datasets):
    cells = [cell for row in shown(name, datasets) for cell in row.values()]
    assert cells
    assert not [cell for cell in cells if cell == "" or re.search(r"\b(nan|none)\b", cell.lower())]


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.every())
def test_no_words_of_a_figure_run_off_it(name, datasets):
    """Axes keep inside the figure, and what is written beside a bar keeps inside its axes."""
    figure = figures.draw(name, datasets)
    with figures.style(), warnings.catch_warnings():
        warnings.simplefilter("error")  # of a layout that finds no room
        figure.draw_without_rendering()
    width = figure.get_window_extent().x1
    for panel in figure.axes:
        written = [text for text in panel.texts if text.get_text() and text.get_visible()]
        assert all(text.get_window_extent().x1 <= width for text in written)
        assert not [text for text in written if not text.get_clip_on() and text.get_window_extent().x0 < 0]


def test_a_factor_of_a_million_leaves_room_for_the_rate_beside_it(datasets):
    figure = figures.draw("ladder", datasets)
    with figures.style():
        figure.draw_without_rendering()
    panel = next(panel for panel in figure.axes if MACHINE in panel.get_title(loc="left"))
    boxes = [text.get_window_extent() for text in panel.texts if re.match(r"[\d,.]+(×|\s[kMG]?)$", text.get_text())]
    assert max(len(text.get_text()) for text in panel.texts if text.get_text().endswith("×")) >= len("1,000,000×")
    assert not [1 for one in boxes for other in boxes if one is not other and one.overlaps(other)]


def test_bars_of_operations_end_inside_their_panels(datasets):
    for panel in figures.draw("edge_operations", datasets).axes:
        assert max(bar.get_x() + bar.get_width() for bar in panel.patches) < panel.get_xlim()[1]


def test_every_question_about_a_gpu_has_an_answer(datasets):
    """But for several GPUs, which no machine has yet, and for experiments that nobody has recorded yet."""
    claims = [claim for name in families.names() for claim in families.claims(name)["claims"]]
    asked = [tables_of_claims.item(claim, answer) for claim in claims for answer in claim["answers"]]
    asked += families.targets()
    recorded = {(run.provenance["environment"], run.provenance["experiment"]) for run in datasets}

    def has_been_recorded(environment=None, experiment=None, **_) -> bool:
        return any(environment in (place, None) and experiment in (name, None) for place, name in recorded)

    asked = [item for item in asked if has_been_recorded(**item["select"])]
    about_gpus = [item for item in asked if re.search(r"cuda|cupy", str(item["select"]))]
    assert len(about_gpus) > 25
    assert not [item for item in about_gpus if MACHINE not in [found.machine for found in find(datasets, item)]]


def test_aims_of_a_gpu_are_judged_where_there_is_one(datasets):
    recorded = {run.provenance["environment"] for run in datasets}
    judged = [row for row in shown("targets", datasets) if "H200" in row["target"] and row["environment"] in recorded]
    assert {row["met"] for row in judged} <= {"yes", "no"}
    assert not [row for row in judged if BARE in row["status"]]


def test_what_a_gpu_does_is_set_against_its_own_bounds(datasets):
    roofline = tables.frame("roofline", datasets)
    graph = roofline[(roofline["rung"] == "port-cuda-graph") & (roofline["num_envs"] == 4_194_304)]
    # 4,194,304 environments touch more than the 64 MiB from which on the made-up copy is at full speed.
    assert {"cartpole", "pendulum"} <= set(graph["environment"])
    assert graph["copy_bandwidth"].to_list() == pytest.approx([gpu_machine.BANDWIDTH] * len(graph), rel=0.01)
    # CartPole's 60 bytes of 4,194,304 environments in 2 us and the time that 50 G steps/s take, over 4 TB/s.
    share = 60 * 2**22 / (2e-6 + 2**22 / 50e9) / 4e12
    assert graph.loc[graph["environment"] == "cartpole", "share"].to_list() == pytest.approx([share], rel=0.01)


def test_the_abstract_is_short_with_a_gpu_as_well(report):
    (cell,) = [cell.source for cell in build.joined().cells if "**Abstract.**" in cell.source]
    words = re.sub(
        r"\{.*?\}", "6", cell[cell.index("**Abstract.**") : cell.index("</div>", cell.index("**Abstract.**"))]
    )
    told = sentences.brief(report)
    assert "as fast as their originals" in told and " on a GPU" in told and "within" in told
    assert len((words + told).split()) <= 120


def test_the_prose_tells_of_the_machine_with_a_gpu(report):
    abstract = [sentences.told(report, say) for say in (sentences.measured, sentences.trained)]
    abstract.append(sentences.told(report, sentences.of_family, "vehicular_edge"))
    assert all(MACHINE in said and BARE not in said and paper.NOT_MEASURED not in said for said in abstract)
    assert "in a CUDA graph" in abstract[0] and "on the GPU, training by the recipe" in abstract[1]
    assert "on a GPU in a CUDA graph" in sentences.over_all(report)


def test_each_missed_target_is_named_in_a_line_of_its_own(report):
    met, _, *lines = sentences.missed(report).splitlines()
    assert re.search(r"it met \d+ of \d+ on", met) and met.endswith("; missed were:")
    judged = report.frame("targets").query("met == False")
    assert len(lines) == len(judged.drop_duplicates(["environment", "target", "accepted"])) >= 2
    assert all(re.match("- .*; accepted: ", line) for line in lines)
    assert sum(line.count(f" on *{machine}*") for line in lines for machine in (MACHINE, BARE)) == len(judged)


def test_compile_time_and_memory_of_training_are_told(datasets):
    rows = [row for row in shown("training_iteration", datasets) if row["device"] == "GPU"]
    assert {row["first"] for row in rows} == {f"4.00{typeset.SPACE}s"}
    assert typeset.DASH not in {row["GPU memory, MiB"] for row in rows}


def test_the_recorded_rates_give_both_machines_a_column(tree):
    text = readme.rates(readme.recorded(tree))
    assert re.search(rf"\| environment \| run as \| {MACHINE}, [\d-]+ \| {BARE}, [\d-]+ \|", text)
    line = next(line for line in text.splitlines() if "| port on GPU, CUDA graph |" in line and "cartpole" in line)
    assert re.search(r"[\d.]+\sG\s\([\d,]+×\) \| – \|$", line)
