"""A fingerprint changes with what the code does and with nothing else."""

import shutil

import pytest

from lockstep.experiments import ROOT, catalogue, config
from lockstep.experiments.ledger import fingerprint

KERNEL = "envs/classic_control/cartpole/kernel.cuh"
TIMING = "experiments/bench/timing.py"
OURS = ("throughput", "cartpole")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    copy = tmp_path_factory.mktemp("root")
    for folder in ("envs", "experiments", "agents", "lockstep"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("*.pyc"))
    return copy


@pytest.fixture
def edited(root):
    """Changes a file of the copy, tells if an experiment has another fingerprint then, and changes it back."""

    def change(path, old, new, of=OURS, gpu=True):
        file, before = root / path, fingerprint.of(*of, root, gpu)
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        try:
            return fingerprint.of(*of, root, gpu) != before
        finally:
            file.write_text(text)

    return change


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (KERNEL, "real(4.0 / 3.0)", "real(1.3)"),
        ("envs/kernels/batch.cuh", "struct", "struct Unused; struct"),
        (TIMING, "MIN_BLOCK_S = 0.2", "MIN_BLOCK_S = 0.3"),
        ("experiments/throughput.py", '"block": number', '"block": number + 1'),
        ("experiments/throughput.py", '"bytes_per_step", "block"', '"block", "bytes_per_step"'),
        ("experiments/bench/parameters.py", '"preset"', '"setting"'),
        ("lockstep/reading.py", "yaml.", "another."),
    ],
)
def test_what_changes_what_is_done_changes_it(edited, path, old, new):
    assert edited(path, old, new)


@pytest.mark.parametrize(("experiment", "gpu", "told"), [("throughput", False, False), ("compilation", False, True)])
def test_what_only_a_gpu_runs_tells_nothing_of_a_machine_without_one_unless_it_is_compiled(
    edited, experiment, gpu, told
):
    cuda = "envs/kernels/tile_cuda.cuh"
    assert edited(cuda, "STEP_BLOCK = 128", "STEP_BLOCK = 64", (experiment, "cartpole"))
    assert edited(cuda, "STEP_BLOCK = 128", "STEP_BLOCK = 64", (experiment, "cartpole"), gpu) == told
    within = "envs/kernels/batch.cuh", "#ifdef __CUDACC__\n", "#ifdef __CUDACC__\nstruct Unused;\n"
    assert edited(*within, (experiment, "cartpole"))
    assert edited(*within, (experiment, "cartpole"), gpu) == told


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (KERNEL, "\n", "  // a word\n/* and\nmore */\n"),
        (TIMING, '"""', '"""Another word. '),
        (TIMING, "def nothing", '"""Another text."""\n\n\ndef nothing'),
        (TIMING, "AGREEING_BLOCKS = 3\n", "AGREEING_BLOCKS = 3  # of them\n\n"),
        (TIMING, "import math\n", "import math as math\n"),
        ("envs/batch/launch.py", "def tile(self) -> int", "def tile(self) -> float"),
        ("envs/batch/environment.py", "raise ValueError(", "raise ValueError('No: ' "),
        ("experiments/ledger/results.py", "def say", "def tell"),
        ("experiments/throughput.py", "million steps per second", "steps per second"),  # of its report
        ("experiments/throughput.py", "leave --rungs out", "not both"),
        ("envs/classic_control/pendulum/kernel.cuh", "struct", "struct Unused; struct"),
        ("experiments/vehicular_edge/correctness.py", "SCENARIOS = 2", "SCENARIOS = 3"),
        ("experiments/classic_control/cartpole.yaml", "seed: 0", "seed: 1"),
    ],
)
def test_what_does_not_leaves_it(edited, path, old, new):
    assert not edited(path, old, new)


def test_how_time_is_taken_counts_where_it_is_taken(edited):
    change = TIMING, "MIN_BLOCK_S = 0.2", "MIN_BLOCK_S = 0.3"
    assert edited(*change, ("throughput", "cartpole")) and edited(*change, ("learning", "cartpole"))
    assert not edited(*change, ("conformance", "cartpole")) and not edited(*change, ("offloading", "vehicular_edge"))


def test_a_file_may_move(tmp_path):
    """The import of it changes as well, and the order of the files."""

    def fingerprint_of(root, clock, package, answer):
        for path, text in {
            clock: f"def now():\n    return {answer}\n",
            "speed.py": f"from {package} import timing\ndef measure():\n    return timing.now()\n",
        }.items():
            file = tmp_path / root / "experiments" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return fingerprint.of("speed", root=tmp_path / root)

    before = fingerprint_of("before", "timing.py", "lockstep.experiments", 1)
    assert fingerprint_of("after", "clocks/timing.py", "lockstep.experiments.clocks", 1) == before
    assert fingerprint_of("edited", "clocks/timing.py", "lockstep.experiments.clocks", 2) != before


@pytest.mark.parametrize(("experiment", "trains"), [("learning", True), ("throughput", False)])
def test_the_recipe_counts_where_agents_are_trained_by_it(edited, experiment, trains):
    recipe, of = "agents/recipes/cartpole.yaml", (experiment, "cartpole")
    assert edited(recipe, "ppo: {", "ppo: {seed: 1, ", of) == trains
    assert not edited(recipe, "ppo: {", "# Words.\nppo:  {", of)


@pytest.mark.parametrize(("experiment", "trains"), [("learning", True), ("throughput", False)])
def test_the_parts_of_an_observation_count_where_networks_are_made_by_them(edited, experiment, trains):
    parts, of = "envs/marine_navigation/observation.yaml", (experiment, "marine_navigation")
    assert edited(parts, "own: {scale: [20,", "own: {scale: [10,", of) == trains
    assert not edited(parts, "own: {", "# Words.\n    own:  {", of)


def test_other_data_count_byte_by_byte_and_what_nothing_reads_does_not(root):
    folder = root / "envs/classic_control/cartpole"
    (folder / "tables.py").write_text('FILE = "table.npz"\n')

    def changes(name, content):
        before = fingerprint.of(*OURS, root)
        (folder / name).write_bytes(content)
        return fingerprint.of(*OURS, root) != before

    try:
        assert [changes("table.npz", content) for content in (b"\xff", b"\xfe", b"\xfe")] == [True, True, False]
        assert not changes("unread.npz", b"\xff")
    finally:
        for name in ("tables.py", "table.npz", "unread.npz"):
            (folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a // b\nc", "a c"),
        ("a /* b\nb */ c", "a c"),
        ('f("//", 1) // "x"', 'f("//", 1)'),
        ("a\n\n   b", "a b"),
    ],
)
def test_comments_of_a_kernel_are_told_from_its_texts(text, meant):
    assert fingerprint.meaning(".cuh", text) == meant


def test_of_a_kernel_a_cpu_takes_the_sides_that_are_its_own():
    text = """
        a
        #ifdef __CUDACC__
        b
        #if X
        c
        #endif
        #else
        d
        #endif
        #ifndef __CUDACC__  // a word
        e
        #else
        f
        #endif
        #if Y
        g
        #else
        h
        #endif
    """
    assert fingerprint.meaning(".cuh", text, gpu=False) == "a d e #if Y g #else h #endif"
    assert fingerprint.meaning(".cuh", text).count("__CUDACC__") == 2


def test_a_function_of_nothing_but_a_text_still_parses():
    bare = fingerprint.meaning(".py", 'def f():\n    """Words."""\n\nx = "kept"\n')
    assert "Words" not in bare and "kept" in bare


def test_of_an_experiment_what_measure_names_counts():
    text = "A, B = 1, 2\nC = 3\ndef one():\n    return A\ndef two():\n    return C\ndef measure():\n    return one()\n"
    meant = fingerprint.meaning(".py", text + "EXPERIMENT = measure\n")
    assert "'one'" in meant and "'B'" in meant and "'two'" not in meant and "'C'" not in meant
    assert "'two'" in fingerprint.meaning(".py", text)


def test_constants_of_an_experiment_count_however_they_are_written():
    text = (
        "A: int = 1\nB = [2]\nB += [A]\nif True:\n    C = 3\nD: int = 4\ndef measure():\n    return B\nEXPERIMENT = 1\n"
    )
    meant = fingerprint.meaning(".py", text)
    assert "'A'" in meant and meant.count("id='B'") == 3 and "'C'" in meant and "'D'" not in meant


def test_settings_are_those_that_every_group_depends_on(monkeypatch):
    whole = fingerprint.section_of("throughput", "cartpole", "quick")
    shared = fingerprint.settings_of("throughput", "cartpole", "quick")
    assert set(shared) == {"block_s", "blocks", "constant_action", "fixed_policy", "seed"}
    assert {"num_envs", "rungs", "targets"} <= set(whole)
    assert fingerprint.settings_of("throughput", "cartpole", "full")["blocks"] == 30
    assert fingerprint.settings_of("correctness", "cartpole", "quick")["regions"]
    assert fingerprint.section_of("ceilings", None, "quick") == {}
    assert "quick" not in fingerprint.section_of("learning", "cartpole", "quick")


def test_choices_are_keys_of_the_sections():
    for name, listed in catalogue.experiments().items():
        sections = [fingerprint.section_of(name, of, "quick") for of in config.files() if listed.needs == "section"]
        assert set(listed.choices) <= set().union(*sections)
