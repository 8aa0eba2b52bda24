"""Snakemake's plans: everything at first, nothing twice, after a change exactly what depends on it."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from lockstep.experiments.ledger import provenance, sources
from tests.pipeline.copies import (
    ROOT,
    copy_of_the_code,
    environments,
    experiments,
    planned,
    run,
    snakemake,
)

EXPERIMENTS = ("throughput", "correctness", "transfer", "learning")  # of CartPole and its twin
PAPER = "results/report.html"


def of(environment: str, *experiments: str) -> set[str]:
    return {f"results/{environment}/{experiment}.csv" for experiment in experiments}


def of_cartpole() -> set[str]:
    return of("cartpole", *EXPERIMENTS)


def of_twin() -> set[str]:
    return of("twin", *EXPERIMENTS)


def of_all(copy: Path, scale: str = "quick") -> set[str]:
    return set().union(*(of(name, *experiments(copy, name, scale)) for name in environments(copy)))


@pytest.fixture
def copy(measured, tmp_path):
    """A copy of its own for a test to change, everything measured."""
    return shutil.copytree(measured, tmp_path / "a copy")


def everything_in(copy: Path) -> list[Path]:
    return [file for file in copy.rglob("*") if file.is_file() and ".snakemake" not in file.parts]


# ---- The Snakefile as a text ----


def test_the_snakefile_is_short_and_runs_commands_only():
    text = (ROOT / "Snakefile").read_text()
    assert text.count("\n") <= 142
    assert not re.search(r"^\s+(run|script|notebook):", text, re.MULTILINE)
    shells = re.findall(r"shell:\s+\"(\S+ -m \w+\.\w+)", text)
    assert len(re.findall(r"^\s+log:", text, re.MULTILINE)) == text.count("benchmark:") == 2
    assert len(shells) == text.count("| tee {log}") == 2
    assert set(shells) == {"python -m lockstep.experiments", "python -m lockstep.paper"}


def test_every_rule_is_listed_with_a_sentence(measured):
    listed = dict(re.findall(r"^(\w+) \((.+)\)$", snakemake(measured, "--list"), re.MULTILINE))
    assert set(listed) == {"all", "experiment", "figure", "report", "table", *environments(measured)}
    assert all(sentence.endswith(".") for sentence in listed.values())


@pytest.mark.slow
def test_snakemake_finds_nothing_to_complain_about(measured):
    assert "in a good condition" in snakemake(measured, "--lint")


# ---- What is planned ----


def test_at_first_everything_is_planned(tmp_path):
    copy = copy_of_the_code(tmp_path)
    plan = snakemake(copy, "--dry-run")
    outputs = re.findall(r"^Job \d+: (\S+)$", plan, re.MULTILINE)
    assert set(outputs) == {"results/ceilings.csv", PAPER, *of_all(copy)}
    assert re.search(r"^all +1\n", plan, re.MULTILINE)


@pytest.mark.slow
def test_what_is_timed_takes_every_core_and_the_rest_the_share_of_an_environment(tmp_path):
    copy = copy_of_the_code(tmp_path)
    every = 2 * len(environments(copy))
    plan = snakemake(copy, "--dry-run", "--printshellcmds", "--cores", str(every), PATH="/usr/bin:/bin")
    cores = {place: int(number) for number, place in re.findall(r"--cores (\d+) --output results/(\S+)\.csv", plan)}
    alone = ("throughput", "learning", "transfer", "scaling", "breakdown", "ceilings")
    assert len(cores) > 20
    assert cores == {place: every if place.endswith(alone) else 2 for place in cores}


@pytest.mark.parametrize("has_gpu", [False, True])
def test_what_runs_on_the_cpu_alone_asks_for_no_gpu(tmp_path, has_gpu):
    copy = copy_of_the_code(tmp_path)
    snakefile = copy / "Snakefile"
    text = snakefile.read_text()
    message = '    message:\n        "results/{wildcards.place}.csv"\n'  # shown in the place of resources
    assert text.count(message) == 1
    snakefile.write_text(text.replace(message, ""))
    nvidia_smi = tmp_path / "nvidia-smi"
    nvidia_smi.touch(0o755)
    path = f"{tmp_path}:/usr/bin:/bin" if has_gpu else "/usr/bin:/bin"
    plan = snakemake(copy, "--dry-run", "--cores", "2", "--config", "scale=full", PATH=path)
    found = re.findall(r"output: results/(\S+)\.csv,(?:\n|.)*?resources: .*gpu=(\d)", plan)
    assert len(found) == len(set(found)) > 40
    alone = ("compilation", "conformance", "crossing", "weak_scaling", "baselines", "oracles")
    assert {place.endswith(alone) for place, _ in found} == {True, False}
    assert dict(found) == {place: str(int(has_gpu and not place.endswith(alone))) for place, _ in found}


def test_every_experiment_on_record_took_less_time_than_a_cluster_is_asked_for():
    profile = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())
    minutes = int(profile["set-resources"]["experiment"]["runtime"].removesuffix(" * attempt"))
    recorded = [json.loads(file.read_text()) for file in (ROOT / "results" / "recorded").glob("*/*/*.json")]
    assert 0 < max(described["wall_s"] for described in recorded) < 60 * minutes


@pytest.mark.parametrize(
    ("line", "part"), [("an experiment", "set-resources"), ("figures, tables", "default-resources")]
)
def test_the_page_on_clusters_says_what_the_profile_asks_for_at_first(line, part):
    profile = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())[part]
    asked = profile.get("experiment", profile)
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    memory, time, unit = re.search(rf"^\| {line}[^|]*\| (\d+) GB and (\d+) (h|min) \|", page, re.MULTILINE).groups()
    assert asked["mem_mb"] == f"{1000 * int(memory)} * attempt"
    assert asked["runtime"] == f"{int(time) * {'h': 60, 'min': 1}[unit]} * attempt"


def test_a_second_run_has_nothing_to_do(measured):
    assert "Nothing to be done" in snakemake(measured, "--dry-run")


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param([], id="default"),
        pytest.param(["--workflow-profile", "none"], id="no profile"),
    ],
)
@pytest.mark.slow
def test_touched_files_make_nothing_run(copy, profile):
    for file in everything_in(copy):
        file.touch()
    assert "Nothing to be done" in snakemake(copy, "--dry-run", *profile)


@pytest.mark.slow
def test_a_deleted_result_is_made_again(copy):
    (copy / "results" / "twin" / "correctness.csv").unlink()
    assert planned(copy) == {PAPER, *of("twin", "correctness")}


def append(file: Path, text: str) -> None:
    with open(file, "a") as opened:
        opened.write(text)


def test_comments_and_docstrings_make_nothing_run(copy):
    cartpole = copy / "envs" / "classic_control" / "cartpole"
    append(cartpole / "kernel.cuh", "// edited\n")
    append(cartpole / "port.py", "# edited\n")
    append(copy / "experiments" / "classic_control" / "twin.yaml", "# edited\n")
    append(copy / "experiments" / "bench" / "ladder.py", '"""Edited."""\n')
    assert planned(copy) == set()


def test_an_edited_kernel_runs_exactly_its_environment(copy):
    append(copy / "envs" / "classic_control" / "cartpole" / "kernel.cuh", "struct Edited;\n")
    assert planned(copy) == {PAPER, *of_cartpole()}


@pytest.mark.slow
def test_an_edited_setting_runs_exactly_its_experiment(copy):
    file = copy / "experiments" / "classic_control" / "twin.yaml"
    file.write_text(file.read_text().replace("threshold_band: 1.0e-6", "threshold_band: 1.1e-6"))
    assert planned(copy) == {PAPER, *of("twin", "correctness")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [("seed: 0\n", "seed: 1\n"), ("    bias: [0, 0]\n", "    bias: [0, 1]\n")],
    ids=["seed", "fixed policy"],
)
def test_an_edited_setting_of_all_runs_every_experiment_of_its_environment(copy, before, after):
    file = copy / "experiments" / "classic_control" / "twin.yaml"
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
    assert planned(copy) == {PAPER, *of_twin()}


@pytest.mark.slow
@pytest.mark.skipif(provenance.has_gpu(), reason="needs a machine without a GPU")
def test_an_edited_kernel_of_gpus_runs_nothing_without_a_gpu(copy):
    """At quick scale nothing compiles for one."""
    append(copy / "envs" / "kernels" / "tile_cuda.cuh", "struct Edited;\n")
    assert planned(copy) <= {PAPER}


@pytest.mark.slow
def test_an_edited_experiment_runs_in_every_environment(copy):
    with open(copy / "experiments" / "correctness.py", "a") as module:
        module.write("EDITED = 1\n")
    assert planned(copy) == {PAPER}.union(*(of(name, "correctness") for name in environments(copy)))


@pytest.mark.slow
def test_an_experiment_that_a_yaml_has_to_ask_for_runs_where_it_does(copy):
    """CartPole's has the section, and so has its twin's; without it the twin is left out."""
    twin = copy / "experiments" / "classic_control" / "twin.yaml"
    twin.write_text(re.sub(r"^transfer:\n(  .*\n)+", "", twin.read_text(), flags=re.MULTILINE))
    module = copy / "experiments" / "transfer.py"
    module.write_text(module.read_text().replace("MIN_BLOCK_S = 0.05", "MIN_BLOCK_S = 0.06"))
    asking = [name for name in environments(copy) if "transfer" in experiments(copy, name)]
    assert "cartpole" in asking and "twin" not in asking
    assert planned(copy) == {PAPER}.union(*(of(name, "transfer") for name in asking))


@pytest.mark.slow
def test_an_edited_recipe_runs_what_learns_by_it(copy):
    recipe = copy / "agents" / "recipes" / "cartpole.yaml"
    recipe.write_text(recipe.read_text().replace("ppo: {", "ppo: {seed: 1, "))
    assert planned(copy) == {PAPER, *of("cartpole", "learning")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "training"),
    [  # some experiments train an agent beside policies
        ("ppo/compiled.cuh", {"learning", "offloading"}),
        ("run/training.py", {"learning", "offloading", "navigation"}),
    ],
)
def test_an_edited_agent_runs_what_learns_and_nothing_else(copy, file, training):
    with open(copy / "agents" / file, "a") as agent:
        agent.write("int edited;\n" if file.endswith("cuh") else "EDITED = 1\n")
    others = {"marine_navigation"} if file.startswith("ppo/") else set()  # whose settings train without it
    learning = (of(name, *training.intersection(experiments(copy, name))) for name in {*environments(copy)} - others)
    assert planned(copy) == {PAPER}.union(*learning)


@pytest.mark.slow
def test_the_batching_that_all_kernels_share_runs_everything(copy):
    with open(copy / "envs" / "kernels" / "batch.cuh", "a") as kernel:
        kernel.write("struct Edited;\n")
    assert planned(copy) >= {PAPER, *of_all(copy)}


@pytest.mark.slow
def test_another_scale_runs_every_experiment(copy):
    assert planned(copy, "--config", "scale=full") == {"results/ceilings.csv", PAPER, *of_all(copy, "full")}


@pytest.mark.slow
def test_a_recorded_result_is_read_by_the_report_only(copy):
    recorded = copy / "results" / "recorded" / "another-machine" / "SHA256SUMS"
    recorded.parent.mkdir(parents=True)
    recorded.touch()
    assert planned(copy) == {PAPER}


@pytest.mark.slow
def test_an_environment_is_a_target(copy):
    (copy / PAPER).unlink()
    for made in of_cartpole() | of_twin():
        (copy / made).unlink()
    assert planned(copy, "cartpole") == of_cartpole()


@pytest.mark.slow
def test_peers_are_measured_where_one_is_installed_and_nowhere_else(copy):
    assert not [output for output in planned(copy, "--forceall") if "peers" in output]
    ready = copy / ".venv-peers" / "gymnax" / "ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    with_peers = [name for name in environments(copy) if sources.in_gymnasium(name, copy)]
    assert len(with_peers) > 5
    assert planned(copy) == {PAPER, *(f"results/{name}/peers.csv" for name in with_peers)}


# ---- Mistakes ----


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("scale=quick --cores 0", "--cores 0: experiments need at least one core; say --cores all"),
        ("scale=ful", "scale is 'ful'; --config scale= takes one of: quick, full"),
        ("scael=full", "--config takes scale and nothing else, not: scael"),
    ],
)
def test_a_wrong_setting_is_named(measured, setting, sentence):
    completed = run(measured, "snakemake", "--dry-run", "--config", *setting.split())
    assert completed.returncode != 0
    assert sentence in completed.stdout + completed.stderr


@pytest.mark.slow
def test_a_folder_without_settings_is_named_and_left_out(copy):
    (copy / "experiments" / "classic_control" / "twin.yaml").unlink()
    plan = snakemake(copy, "--dry-run")
    assert "twin is left out: it needs both a folder of that name in envs/ and experiments/*/twin.yaml" in plan
    assert planned(copy) == {PAPER}


# ---- Runs ----

BROKEN = """
import pathlib, sys
pathlib.Path("results/cartpole/throughput.partial.csv").write_text(sys.executable)
sys.exit("killed")
EXPERIMENT = dict(predicted=True)
"""


@pytest.mark.slow
def test_a_failed_run_keeps_its_journal_and_the_next_one_starts(copy):
    (copy / "experiments" / "throughput.py").write_text(BROKEN)
    journal = copy / "results" / "cartpole" / "throughput.partial.csv"
    # Without the folder of this Python on the path, jobs still run this Python.
    for _ in range(2):
        journal.unlink(missing_ok=True)
        completed = run(copy, "snakemake", "results/cartpole/throughput.csv", PATH="/usr/bin:/bin")
        assert completed.returncode != 0
        assert Path(journal.read_text()) == Path(sys.executable)
    assert "killed" in (copy / "results" / "logs" / "cartpole" / "throughput.log").read_text()
