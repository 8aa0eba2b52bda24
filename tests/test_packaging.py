"""Imports, what is installed with them, and what a user gets who installs this."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lockstep
from tests.pipeline.copies import copy_of_the_code

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
BOUNDS = [bound for part in (PROJECT["dependencies"], *EXTRAS.values()) for bound in part]
LOCK = re.findall(r"^[^#\s].*", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
OF_CUDA = "nvidia|cuda|triton"  # names of packages that torch's standard build needs
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
FOLDERS = ("agents", "envs", "experiments", "paper")  # lockstep.agents and so on
# Extras that a folder's modules may import as they are imported; what else they need is imported within `extra`.
NEEDED = {
    "lockstep": [],
    "agents": [],
    "envs": [],
    "experiments": ["paper", "cuda13"],
    "paper": ["paper"],
    "tests": ["test", "paper", "edge", "nvrtc", "sb3", "torchrl", "trading", "render", "export", "tensorboard"],
}
# Packages of modules that are called otherwise.
PACKAGE_OF = {"pil": "pillow", "pygame": "pygame-ce", "yaml": "pyyaml"}
# Peers have environments of their own: gymnax.py runs with what gymnax.txt beside it lists.
PEERS = {file.with_suffix(".py"): file.read_text().split() for file in (ROOT / "experiments").rglob("*.txt")}
OF_PEERS = [pin for pins in PEERS.values() for pin in pins]
# Files that need more, by path: nothing else may import what is only there.
OPTIONAL = {
    "agents/run/log.py": EXTRAS["paper"],  # a bar, where it is installed
    "envs/kernels/compile.py": EXTRAS["nvrtc"],  # its own sentence says so
    "experiments/learning_workers/sb3.py": [*EXTRAS["sb3"], *EXTRAS["paper"]],
    "experiments/verify/subjects.py": [*OF_PEERS, *EXTRAS["sb3"], *EXTRAS["torchrl"]],
    "tests/experiments/steps_of_peers.py": OF_PEERS,
} | {file.relative_to(ROOT).as_posix(): pins for file, pins in PEERS.items()}
OPTIONAL |= {file.relative_to(ROOT).as_posix(): EXTRAS["render"] for file in ROOT.glob("paper/**/animation.py")}


# ---- what is needed: lower bounds for users, one exact environment for the paper ------------------------------------


def name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def names(requirements: Iterable[str]) -> set[str]:
    """Of packages; CuPy has one for each version of CUDA."""
    return {re.sub(r"-cuda\d+x$", "", name(requirement)) for requirement in requirements}


def test_few_packages_are_needed_to_use_environments_and_agents():
    assert names(PROJECT["dependencies"]) == {"gymnasium", "numpy", "pyyaml", "torch"}


@pytest.mark.parametrize("bound", BOUNDS)
def test_what_users_install_is_bounded_from_below(bound):
    of_another_cuda = ["<"] * (name(bound) in ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime"))  # CuPy would not find it
    assert sorted(one.operator for one in Requirement(bound).specifier) == [*of_another_cuda, ">="]


def test_the_lock_is_exact_and_has_whatever_the_paper_needs():
    pins = dict(re.fullmatch(r"([a-z0-9.-]+)==(\d+(?:\.\d+)*(?:\.post\d+)?)", line).groups() for line in LOCK)
    # Of CUDA 13 and 12 one is installed; a cluster's users have a file of their own.
    extras = [extra for key, extra in EXTRAS.items() if "12" not in key and key != "slurm"]
    for bound in (bound for part in (PROJECT["dependencies"], *extras) for bound in part):
        assert pins[name(bound)] in Requirement(bound).specifier, bound
    assert len(pins) == len(LOCK)


def test_what_a_cluster_needs_besides_is_exact():
    pins = [line for line in (ROOT / "profiles/slurm/requirements.txt").read_text().splitlines() if line[0] != "#"]
    pinned = dict(pin.split("==") for pin in pins)
    assert all(pinned[name(bound)] in Requirement(bound).specifier for bound in EXTRAS["slurm"])
    assert not names(pins) & names(LOCK)


def test_the_lock_leaves_cuda_to_torch_but_for_what_compiles_kernels():
    of_cuda = {name(line) for line in LOCK if re.match(OF_CUDA, line)}
    assert of_cuda == {"cuda-pathfinder", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-nvrtc-cu12"}


def test_the_lock_has_whatever_its_packages_need():
    needed = [Requirement(one) for line in LOCK for one in metadata.requires(name(line)) or ()]
    needed = {canonicalize_name(one.name) for one in needed if not one.marker or one.marker.evaluate({"extra": ""})}
    assert {one for one in needed if not re.match(OF_CUDA, one)} - names(LOCK) == set()


def test_conda_installs_what_is_locked():
    *own, pip = CONDA["dependencies"]
    assert pip["pip"] == LOCK
    assert {entry.partition("=")[0] for entry in own} == {"python", "pip", "cxx-compiler", "make"}
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]


def test_python_3_11_is_enough():
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (lockstep.__version__, PROJECT["license"])


def test_the_licence_is_apache_2_in_full():
    words = (ROOT / "LICENSE").read_text().split()
    assert words[:4] == ["Apache", "License", "Version", "2.0,"]
    assert len(words) == 1581


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules that code imports by their full names."""
    nodes = list(nodes)
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return found | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}


def packages(nodes: Iterable[ast.AST]) -> set[str]:
    """The packages that code imports, neither ours nor Python's."""
    modules = {module.partition(".")[0] for module in imports(nodes)}
    modules -= {"lockstep", "tests"} | sys.stdlib_module_names
    return {PACKAGE_OF.get(module.lower(), canonicalize_name(module)) for module in modules}


def within_extras(tree: ast.AST) -> Iterator[tuple[set[str], ast.With]]:
    """Blocks `with extra(..., of=...)` and the extras that they name."""
    for node in ast.walk(tree):
        call = node.items[0].context_expr if isinstance(node, ast.With) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "extra":
            yield {word.value for word in call.args}, node


@pytest.mark.parametrize("folder", NEEDED)
def test_whatever_is_imported_is_named_in_what_the_folder_needs(folder):
    own = PROJECT["dependencies"] + [bound for extra in NEEDED[folder] for bound in EXTRAS[extra]]
    unnamed = {}
    for file in (ROOT / folder).rglob("*.py"):
        path, tree = file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())
        within = []
        for extras, block in within_extras(tree):
            brought = packages(ast.walk(block))
            assert brought and all(brought <= names(EXTRAS[extra]) for extra in extras), path
            within += ast.walk(block)
        free = packages(node for node in ast.walk(tree) if node not in within)
        unnamed[path] = free - names(own + OPTIONAL.get(path, []))
    assert unnamed
    assert {file: found for file, found in unnamed.items() if found} == {}


# ---- names: a user's own envs/ or agents/ must never be taken for ours, nor ours for it -----------------------------


def files_of(*endings: str) -> list[Path]:
    """The repository's files with these endings, without what runs and set-ups have made."""
    made = {"build", "results", "runs"}
    tops = [top for top in ROOT.iterdir() if top.name not in made and not top.name.startswith(".")]
    files = [file for top in tops for file in ([top] if top.is_file() else top.rglob("*"))]
    return [file for file in files if file.suffix in endings and ".ipynb_checkpoints" not in file.parts]


def codes() -> Iterator[tuple[str, str]]:
    """All Python of the repository with where it stands: files, cells of notebooks, blocks of pages."""
    for file in files_of(".py", ".ipynb", ".md"):
        text, path = file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()
        if file.suffix == ".py":
            yield path, text
        elif file.suffix == ".md":
            yield from ((path, block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        else:
            cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            yield from ((path, "".join(cell["source"])) for cell in cells)


def test_nothing_imports_the_folders_by_a_name_of_their_own():
    found = [(path, module) for path, code in codes() for module in imports(ast.walk(ast.parse(code)))]
    assert {Path(path).suffix for path, module in found if module.startswith("lockstep.")} == {".py", ".ipynb", ".md"}
    assert [place for place in found if place[1].partition(".")[0] in FOLDERS] == []


def test_no_command_runs_the_folders_by_a_name_of_their_own():
    files = [ROOT / "Makefile", ROOT / "Snakefile", ROOT / ".ci" / "run", *files_of(".py", ".ipynb", ".md", ".yaml")]
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    assert any("-m lockstep.experiments." in text for text in texts.values())
    wrong = re.compile(rf"(-m\W+|import_module\(f?\")({'|'.join(FOLDERS)})\b")
    assert {path: found[0] for path, text in texts.items() if (found := wrong.search(text))} == {}


# ---- package: what a user gets who installs this --------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A checkout with nothing in it that a run or a set-up has made."""
    return copy_of_the_code(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel(copy, tmp_path_factory) -> Path:
    """As pip builds it from a checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("*.whl")
    return file


def environment(folder: Path, *wheels: Path) -> Path:
    """The Python of a virtual environment that has these wheels, and the packages that we need with what those need."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    own = folder / "bin" / "python"
    if wheels:
        pip = [sys.executable, "-m", "pip", "--python", str(own), "install", "--no-deps", "--no-index"]
        subprocess.run([*pip, *map(str, wheels)], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    found, waiting = set(), [*PROJECT["dependencies"]]
    while waiting:
        package = name(waiting.pop())
        if package not in found:
            found.add(package)
            needed = map(Requirement, metadata.requires(package) or ())
            waiting += [str(one) for one in needed if not one.marker or one.marker.evaluate({"extra": ""})]
            for top in {file.parts[0] for file in metadata.files(package)} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(metadata.distribution(package).locate_file(top))
    return own


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("installed") / "venv", wheel)


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("bare") / "venv")


def run(python: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess:
    """A Python with these words, in a folder; it knows no path but those that are given."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), *words]
    return subprocess.run(command, cwd=folder, env=clean | variables, capture_output=True, text=True, timeout=300)


def told(python: Path, folder: Path, code: str, **variables: str) -> list[str]:
    """The lines that a script in a folder prints."""
    (folder / "script.py").write_text(code)
    done = run(python, folder, "script.py", **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(copy, wheel):
    files = [file.relative_to(copy) for folder in ("lockstep", *FOLDERS) for file in (copy / folder).rglob("*")]
    files = [file.as_posix() for file in files if (copy / file).is_file()]
    expected = {file if file.startswith("lockstep/") else f"lockstep/{file}" for file in files}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {Path(file).suffix for file in expected} >= {".py", ".cuh", ".cpp", ".yaml", ".j2", ".ipynb", ".typed"}
    assert {file for file in names if ".dist-info/" not in file} == expected


SCRIPT = """
import lockstep

print(lockstep.__file__)
print(lockstep.__version__)
print(*lockstep.names())
env = lockstep.make("cartpole", num_envs=4)
obs, info = env.reset(seed=0)
obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
print(*obs.shape)
original = lockstep.make_original("cartpole")
print(*original.reset(seed=0)[0].shape)
"""


@pytest.mark.slow
def test_what_was_installed_makes_and_steps_environments(installed, tmp_path):
    file, version, names, port, original = told(installed, tmp_path, SCRIPT)
    assert Path(file).is_relative_to(installed.parents[1])
    assert version == lockstep.__version__
    assert names.split() == lockstep.names()
    assert (port, original) == ("4 4", "4")


LACKING = {  # what needs an extra, and the sentence that says so
    "lockstep.make('vehicular_edge', num_envs=2)": "drawing scenarios needs threadpoolctl: {edge}",
    "lockstep.make_original('vehicular_edge')": "the original of 'vehicular_edge' needs pettingzoo: {edge}",
    "import_module('lockstep.envs.marine_navigation.original')": (
        "the original of 'marine_navigation' needs pettingzoo: {pettingzoo}"
    ),
    "import_module('lockstep.envs.adapters.pettingzoo')": (
        "lockstep.envs.adapters.pettingzoo needs pettingzoo: {pettingzoo}"
    ),
    "import_module('lockstep.envs.vehicular_edge.scenario.traces')": "reading traffic needs pandas: {edge}",
    "import_module('lockstep.envs.crypto_trading.scenario.rows')": "a table of bars needs pyarrow: {trading}",
    "import_module('lockstep.envs.adapters.sb3')": "lockstep.envs.adapters.sb3 needs stable_baselines3: {sb3}",
    "import_module('lockstep.envs.adapters.torchrl')": "lockstep.envs.adapters.torchrl needs tensordict: {torchrl}",
    "(env := lockstep.make('cartpole', num_envs=2)).reset(), env.render()": "rendering needs pygame: {render}",
    "import_module('lockstep.experiments.run')": "lockstep.experiments needs jsonschema: {paper}",
    "compile.cupy()": "device='cuda' needs cupy: {cuda13} or {cuda12}",
    "compile.nvrtc()": "NVRTC is not available (No module named 'cupy'): {nvrtc}, or with a GPU 'lockstep[cuda13]'",
}
COMMANDS = {extra: f"pip install 'lockstep[{extra}]'" for extra in EXTRAS}
SENTENCES = {code: sentence.format(**COMMANDS) for code, sentence in LACKING.items()}


@pytest.mark.slow
def test_what_was_installed_names_the_extra_that_something_needs(installed, tmp_path):
    lines = ["from importlib import import_module", "import lockstep", "from lockstep.envs.kernels import compile"]
    for code in SENTENCES:
        lines += ["try:", f"    {code}", "except (ImportError, compile.CompilerError) as error:", "    print(error)"]
    assert told(installed, tmp_path, "\n".join(lines)) == [*SENTENCES.values()]


IMPORTS = """
import importlib
from pathlib import Path

import lockstep

(package,) = lockstep.__path__
for file in sorted(file for folder in ("envs", "agents") for file in Path(package, folder).rglob("*.py")):
    path = file.relative_to(package).with_suffix("")
    module = ".".join(["lockstep", *path.parts]).removesuffix(".__init__")
    if path.name != "__main__":
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{module}: {error}")
"""


@pytest.mark.slow
def test_what_was_installed_imports_all_but_what_needs_an_extra(installed, tmp_path):
    lines = told(installed, tmp_path, IMPORTS)
    said = {module: message for module, _, message in (line.partition(": ") for line in lines)}
    assert {"lockstep.envs.adapters.sb3", "lockstep.envs.vehicular_edge.scenario.traces"} <= said.keys()
    command = rf"pip install 'lockstep\[({'|'.join(EXTRAS)})\]'"
    ending = rf"needs \w+: {command}( or {command})?$"
    assert [message for message in said.values() if not re.search(ending, message)] == []


@pytest.mark.slow
def test_what_was_installed_has_its_command_lines_and_recipes(installed, tmp_path):
    options = ["--total-steps", "64", "--num-envs", "2", "--horizon", "32", "--minibatches", "1", "--episodes", "1"]
    done = run(installed, tmp_path, "-m", "lockstep.agents.ppo", "cartpole", *options)
    assert done.returncode == 0, done.stderr


NAMESAKES = """
import agents
import envs
from agents import dqn
from envs import maze

import lockstep
from lockstep import agents as agents_of_lockstep
from lockstep import envs as envs_of_lockstep
from lockstep.agents import ppo

print(maze.SIZE, dqn.RATE)
for module in (envs, agents, lockstep, envs_of_lockstep, agents_of_lockstep):
    print(module.__file__)
print(envs_of_lockstep.make("cartpole", num_envs=4).reset(seed=0)[0].shape[0], ppo.Config.__module__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["checkout", "wheel"])
def test_a_script_with_envs_and_agents_of_its_own_has_both(way, copy, bare, installed, tmp_path):
    for package, module, line in (("envs", "maze", "SIZE = 3"), ("agents", "dqn", "RATE = 7")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{module}.py").write_text(line)
    if way == "checkout":
        lines = told(bare, tmp_path, NAMESAKES, PYTHONPATH=str(copy))
        package, folders = copy / "lockstep", copy
    else:
        lines = told(installed, tmp_path, NAMESAKES)
        (package,) = installed.parents[1].glob("lib/python*/site-packages/lockstep")
        folders = package
    numbers, *files, last = lines
    assert numbers == "3 7"
    homes = [tmp_path / "envs", tmp_path / "agents", package, folders / "envs", folders / "agents"]
    assert [Path(file).parent.resolve() for file in files] == [home.resolve() for home in homes]
    assert last == "4 lockstep.agents.ppo.config"


def test_gymnasium_finds_an_environment_by_module_and_id(tmp_path):
    makes = ("make_vec('lockstep.envs:lockstep/CartPole-v1', num_envs=8)", "make('lockstep.envs:lockstep/CartPole-v1')")
    code = "\n".join(["import gymnasium", *(f"print(type(gymnasium.{make}).__name__)" for make in makes)])
    assert told(Path(sys.executable), tmp_path, code, PYTHONPATH=str(ROOT)) == ["BatchedEnv", "TimeLimit"]


# ---- types, as mypy sees them in a script of a user -----------------------------------------------------------------

RIGHT = {  # expressions and their types
    "env": "BatchedEnv",
    "obs": "Tensor",
    "reward": "Tensor",
    "terminated": "Tensor",
    "truncated": "Tensor",
    "info": "dict",
    "run": "PPO",
    "run.act(obs)": "Tensor",
    "lockstep.names()": "list",
}
WRONG = {  # lines and what is said of them
    "lockstep.make(8, num_envs='cartpole')": "arg-type",
    "lockstep.mak('cartpole')": "attr-defined",
    "ppo.train('cartpole', 'solve')": "arg-type",
}
TYPED = """
import lockstep
from lockstep.agents import ppo

env = lockstep.make("cartpole", num_envs=8)
obs, info = env.reset()
obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
run = ppo.train("cartpole", ppo.config_of("cartpole", seed=1), device="cpu", output="runs")
"""


@pytest.mark.slow
def test_mypy_knows_the_types_and_reports_the_wrong_lines_of_a_script(installed, tmp_path):
    spoken = {f"reveal_type({expression})": expression for expression in RIGHT} | {line: line for line in WRONG}
    (tmp_path / "script.py").write_text("\n".join([*TYPED.splitlines(), *spoken]))
    options = ["--python-executable", str(installed), "--cache-dir", str(tmp_path / "cache"), "script.py"]
    done = run(Path(sys.executable), tmp_path, "-m", "mypy", *options)
    assert done.stdout, done.stderr
    type_or_error = r'note: Revealed type is "(?:\w+\.)*(\w+)(?:\[.*\])?"|error: .* \[([\w-]+)\]'
    said = re.findall(rf"^script\.py:(\d+): (?:{type_or_error})$", done.stdout, re.MULTILINE)
    found = {int(number): type_ or error for number, type_, error in said}
    first = len(TYPED.splitlines()) + 1
    assert {of: found.pop(number, "") for number, of in enumerate(spoken.values(), start=first)} == RIGHT | WRONG
    assert not found  # nothing is said of the lines before
