"""The builds that are compiled, and the rows of each, which are named by it."""

import gc
import sys

import pytest

from lockstep import envs
from lockstep.envs.kernels import compile
from lockstep.experiments import command, compilation, run
from lockstep.experiments.ledger import results


@pytest.mark.parametrize("name", ["cartpole", "vehicular_edge"])
def test_full_compiles_every_build_for_every_target_and_quick_the_default_ones_for_the_newest(name):
    units = envs.units(name)
    full, quick = (compilation.builds(name, scale) for scale in ("full", "quick"))
    assert len(full) == len(units) * len(compile.TARGETS)
    assert full.items() >= quick.items()
    assert {build[:2] for build in quick} == {("SameStep", "float32")}
    assert {build[3] for build in quick} == {compile.TARGETS[-1]}
    assert {build[2] for build in quick} == {word for mode, dtype, word in units if (mode, dtype) == build_of_make()}


def build_of_make() -> tuple[str, str]:
    """The build of a batch that was made without options."""
    env = envs.make("cartpole", 1)
    return env.autoreset_mode.value, env.dtype


def test_the_rows_name_the_build_and_an_interrupted_run_goes_on(monkeypatch, tmp_path, capsys):
    """Two builds of two kernels each; the second is compiled by the second run."""
    todo = {("SameStep", "float32", kind, "sm_90"): kind for kind in ("copy", "view")}
    used = {"registers": 40, "stack_bytes": 0, "shared_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0}
    compiled = []

    def resources(text, target):
        if text == "view" and "view" not in compiled:
            compiled.append("view")
            raise KeyboardInterrupt
        compiled.append(text)
        return [used | {"kernel": kernel, "target": target} for kernel in ("reset", "step")]

    monkeypatch.setattr(compilation, "builds", lambda name, scale: todo)
    monkeypatch.setattr(compile, "resources", resources)
    output = tmp_path / "compilation.csv"
    monkeypatch.setattr(sys, "argv", ["run", "compilation", "cartpole", "--output", str(output)])
    with pytest.raises(SystemExit) as stopped:
        command.run(run.main)
    del stopped  # and with it the frames that hold the journal's lock, as the end of a process would
    gc.collect()
    command.run(run.main)
    frame, described = results.read(output)
    assert compiled == ["copy", "view", "view"]
    assert list(frame["obs"]) == ["copy", "copy", "view", "view"]
    assert described["passed"] is True and described["scale"] == "quick"
    assert "4 kernels compiled, none spills; at most 40 registers" in capsys.readouterr().out


def test_spills_end_the_run_with_the_kernels_that_have_them(monkeypatch, tmp_path, capsys):
    used = {"registers": 255, "stack_bytes": 8, "shared_bytes": 0, "spill_store_bytes": 4, "spill_load_bytes": 4}
    monkeypatch.setattr(compilation, "builds", lambda name, scale: {("SameStep", "float32", "copy", "sm_90"): ""})
    monkeypatch.setattr(compile, "resources", lambda text, target: [used | {"kernel": "step", "target": target}])
    monkeypatch.setattr(sys, "argv", ["run", "compilation", "cartpole", "--output", str(tmp_path / "compilation.csv")])
    with pytest.raises(SystemExit, match="compilation: kernels spill registers"):
        command.run(run.main)
    assert "SPILLS step SameStep float32 copy sm_90" in capsys.readouterr().out
    assert results.read(tmp_path / "compilation.csv")[1]["passed"] is False
