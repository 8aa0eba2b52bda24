import re

import pytest

from lockstep import envs
from lockstep.experiments import ROOT
from lockstep.experiments.ledger import sources

TREE = {
    "experiments/__init__.py": "",
    "experiments/speed.py": "import math\nimport numpy\nfrom lockstep.experiments import clock\n",
    "experiments/clock.py": "def now():\n    from . import lazy\n    return lazy\n",
    "experiments/lazy.py": "if False:\n    import lockstep.agents.ppo\n",
    "experiments/unused.py": "",
    "experiments/typed.py": (
        "import typing\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import unused\nelse:\n"
        "    from . import heat\nif typing.TYPE_CHECKING:\n    from . import unused\n"
    ),
    "experiments/steps.py": "def main():\n    from lockstep import envs\n",
    "experiments/heat.py": "from lockstep.experiments import clock\n",
    "experiments/heat.cuh": "",
    "experiments/steps.schema.yaml": "",
    "experiments/poles/steps.py": "from lockstep.experiments.poles import cases\n",
    "experiments/poles/cases.py": "",
    "experiments/poles/own.py": "",
    "experiments/rivals.py": "from lockstep.experiments import peer_workers\n",
    "experiments/peer_workers/__init__.py": "import importlib\n",
    "experiments/peer_workers/__main__.py": "",
    "experiments/peer_workers/one.py": "def loop():\n    from lockstep.experiments import clock\n",
    "experiments/peer_workers/one.txt": "",
    "experiments/peer_workers/notes.txt": "",
    "experiments/poles/__init__.py": "",
    "experiments/poles/pole.yaml": "",
    "experiments/poles/long_pole.yaml": "",
    "experiments/lessons.py": "def main():\n    from lockstep.agents import recipes\n",
    "agents/__init__.py": "",
    "agents/ppo.py": "from lockstep.agents.replay import Replay\n",
    "agents/replay.py": "from .ppo import PPO\n",  # a circle
    "agents/recipes/__init__.py": "",
    "agents/recipes/pole.yaml": "",
    "agents/recipes/car.yaml": "",
    "envs/__init__.py": "from .batch import Batch\n",
    "envs/batch.py": "def build():\n    from lockstep.envs.kernels import build\n",
    "envs/unused.py": "",
    "envs/README.md": "",
    "envs/kernels/__init__.py": "",
    "envs/kernels/build.py": "from ..noise import draw\n",
    "envs/kernels/batch.cuh": "",
    "envs/kernels/state.cuh": "",
    "envs/kernels/tile.cuh": '#include "state.cuh"\n#include "batch.cuh"\n#include "steps.cuh"\n',
    "envs/kernels/steps.cuh": "",
    "envs/kernels/block.cuh": '#include "lanes.cuh"\n#include "batch.cuh"\n',
    "envs/kernels/lanes.cuh": "",
    "envs/kernels/pool.cpp": "",
    "envs/noise.py": "",
    "envs/params.py": "",
    "envs/poles/__init__.py": "",  # a family, with what its environments share
    "envs/poles/original.py": "",
    "envs/poles/unused.py": "",
    "envs/poles/pole/__init__.py": "",
    "envs/poles/pole/original.py": "from .. import original\n",
    "envs/poles/pole/port.py": "from lockstep.envs.params import Params\n",
    "envs/poles/pole/kernel.cuh": '#include "kernels/state.cuh"\n',
    "envs/poles/pole/README.md": "",
    "envs/poles/long_pole/port.py": "",
    "envs/poles/long_pole/kernel.cuh": "",
    "envs/car/port.py": "",
    "envs/car/kernel.cuh": "",
}


@pytest.fixture
def root(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed_through_functions_relative_names_and_circles(root):
    assert sources.of("lockstep.experiments.speed", root=root) == [
        "agents/__init__.py",
        "agents/ppo.py",
        "agents/replay.py",
        "experiments/__init__.py",
        "experiments/clock.py",
        "experiments/lazy.py",
        "experiments/speed.py",
    ]


def test_imports_for_type_checkers_alone_are_not_followed(root):
    found = sources.of("lockstep.experiments.typed", root=root)
    assert "experiments/heat.py" in found and "experiments/unused.py" not in found


def test_an_environment_comes_with_its_folder_the_kernels_and_its_settings(root):
    assert sources.of("lockstep.experiments.steps", "pole", root) == [
        "envs/__init__.py",
        "envs/batch.py",
        "envs/kernels/__init__.py",
        "envs/kernels/batch.cuh",
        "envs/kernels/build.py",
        "envs/kernels/pool.cpp",
        "envs/kernels/state.cuh",
        "envs/kernels/steps.cuh",
        "envs/kernels/tile.cuh",
        "envs/noise.py",
        "envs/params.py",
        "envs/poles/__init__.py",
        "envs/poles/original.py",
        "envs/poles/pole/__init__.py",
        "envs/poles/pole/kernel.cuh",
        "envs/poles/pole/original.py",
        "envs/poles/pole/port.py",
        "experiments/__init__.py",
        "experiments/poles/__init__.py",
        "experiments/poles/cases.py",
        "experiments/poles/pole.yaml",
        "experiments/poles/steps.py",
        "experiments/steps.py",
        "experiments/steps.schema.yaml",
    ]


def test_a_kernel_that_does_not_say_its_launch_form_may_have_any(root):
    found = sources.of("lockstep.experiments.steps", "long_pole", root)
    assert {"envs/kernels/tile.cuh", "envs/kernels/block.cuh"} <= set(found)


def test_an_experiment_is_found_by_its_name_and_the_environment_s_family(root):
    of_family = sources.of_experiment("own", "pole", root)
    assert "experiments/poles/own.py" in of_family
    assert sources.of_experiment("steps", "pole", root) == sources.of("lockstep.experiments.steps", "pole", root)


def test_without_an_environment_no_environment_folder_counts(root):
    found = sources.of("lockstep.experiments.steps", root=root)
    assert "envs/kernels/block.cuh" in found and "envs/kernels/tile.cuh" in found
    assert not [path for path in found if path.startswith(("envs/pole", "envs/car")) or path.endswith("pole.yaml")]


def test_what_runs_no_environment_does_not_depend_on_one(root):
    """Its YAML counts all the same, because every command of an environment reads it."""
    found = sources.of("lockstep.experiments.speed", "pole", root)
    assert not [path for path in found if path.startswith("envs")]
    assert "experiments/poles/pole.yaml" in found and "experiments/poles/cases.py" not in found


def test_a_kernel_beside_a_module_of_its_name_counts(root):
    assert "experiments/heat.cuh" in sources.of("lockstep.experiments.heat", root=root)
    assert "experiments/heat.cuh" not in sources.of("lockstep.experiments.speed", root=root)


def test_the_peers_come_with_what_they_import_and_their_requirements(root):
    assert sources.of("lockstep.experiments.rivals", root=root) == [
        "agents/__init__.py",
        "agents/ppo.py",
        "agents/replay.py",
        "experiments/__init__.py",
        "experiments/clock.py",
        "experiments/lazy.py",
        "experiments/peer_workers/__init__.py",
        "experiments/peer_workers/__main__.py",
        "experiments/peer_workers/one.py",
        "experiments/peer_workers/one.txt",
        "experiments/rivals.py",
    ]


def test_what_reads_recipes_depends_on_that_of_its_environment(root):
    recipes = [
        path for path in sources.of("lockstep.experiments.lessons", "pole", root) if path.startswith("agents/recipes")
    ]
    assert recipes == ["agents/recipes/__init__.py", "agents/recipes/pole.yaml"]
    (root / "agents/recipes/pole.yaml").write_text("ppo: {}\nlearning: {}\n")  # an algorithm, found by its name
    assert "agents/ppo.py" in sources.of("lockstep.experiments.lessons", "pole", root)
    assert not [
        path for path in sources.of("lockstep.experiments.speed", "pole", root) if path.startswith("agents/recipes")
    ]
    (root / "agents/recipes/pole.yaml").unlink()
    assert "agents/recipes/pole.yaml" not in sources.of("lockstep.experiments.lessons", "pole", root)


def data_of(found):
    return {path for path in found if path.startswith("envs/") and path.endswith(sources.DATA)}


def test_data_of_an_environment_s_folder_count_where_a_module_names_them_or_their_folder(root):
    folder = root / "envs/poles/pole"
    (folder / "weights").mkdir()
    for name in ("parts.yaml", "unread.json", "notes.txt", "weights/small.npz", "weights/small.json"):
        (folder / name).write_bytes(b"\xff")
    weights = {"envs/poles/pole/weights/small.npz", "envs/poles/pole/weights/small.json"}
    (folder / "port.py").write_text('from lockstep.envs.params import Params\n\nFOLDER = "weights"\n')
    (root / "experiments/heat.py").write_text('from lockstep import envs\n\nFILE = "parts.yaml"\n')
    (root / "experiments/speed.py").write_text('FILE = "parts.yaml"\n')  # which runs no environment
    experiments = {name: f"lockstep.experiments.{name}" for name in ("steps", "heat", "speed")}
    found = {name: data_of(sources.of(module, "pole", root)) for name, module in experiments.items()}
    assert found == {"steps": weights, "heat": weights | {"envs/poles/pole/parts.yaml"}, "speed": set()}
    assert not data_of(sources.of(experiments["heat"], "car", root))
    assert not data_of(sources.of(experiments["heat"], root=root))


@pytest.mark.parametrize("experiment", ["learning", "throughput", "scaling", "transfer", "policies"])
def test_the_parts_of_an_observation_count_where_networks_are_made_by_them(experiment):
    found = data_of(sources.of_experiment(experiment, "marine_navigation"))
    assert found == ({"envs/marine_navigation/observation.yaml"} if experiment == "learning" else set())


def test_weights_count_where_an_oracle_is_learned():
    names = [f"{name}.{kind}" for name in ("small", "published") for kind in ("json", "npz")]
    weights = {f"envs/vehicle_routing/weights/{name}" for name in names}
    assert data_of(sources.of_experiment("oracles", "vehicle_routing")) == weights


@pytest.mark.parametrize("module", ["lockstep.experiments.sped", "numpy", ""])
def test_a_module_that_is_not_ours_is_refused(root, module):
    with pytest.raises(ValueError, match="no module of this repository"):
        sources.of(module, root=root)


@pytest.mark.parametrize("experiment", ["throughput", "correctness", "compilation", "peers"])
def test_every_experiment_of_cartpole_depends_on_its_kernel_and_on_no_other_environment(experiment):
    found = sources.of(f"lockstep.experiments.{experiment}", "cartpole")
    assert {
        "envs/classic_control/cartpole/kernel.cuh",
        "envs/classic_control/cartpole/port.py",
        "envs/kernels/batch.cuh",
        "envs/kernels/philox.cuh",
        "envs/batch/environment.py",
        f"experiments/{experiment}.py",
        "experiments/classic_control/cartpole.yaml",
    } <= set(found)
    others = [folder for name, folder in sources.environments().items() if name != "cartpole"]
    assert not [path for path in found if any((ROOT / path).is_relative_to(folder) for folder in others)]
    assert all((ROOT / path).is_file() for path in found)


@pytest.mark.parametrize("name", envs.names())
def test_a_port_s_text_says_whether_gymnasium_has_the_environment(name):
    assert sources.in_gymnasium(name) == (envs.port(name).gymnasium_id is not None)


def test_the_ceilings_depend_on_no_environment():
    found = sources.of("lockstep.experiments.ceilings")
    assert "experiments/ceilings.cuh" in found
    assert not [path for path in found if path.startswith("envs/classic_control/cartpole") or path.endswith(".yaml")]


@pytest.mark.parametrize("name", envs.names())
def test_every_file_that_a_kernel_is_compiled_of_counts(name):
    """By the #line directives of its translation units; the launch form of other environments does not."""
    text = next(iter(envs.units(name).values()))
    named = set(re.findall(r'^#line 1 "(.+)"', text, re.MULTILINE))
    assert len(named) > 5
    found = sources.of_experiment("throughput", name)
    counted = {path.removeprefix("envs/") for path in found if path.endswith(".cuh")}
    assert named <= counted and {"kernels/block.cuh", "kernels/tile.cuh"} - counted
