"""The experiments are found by folder, and what their files declare is what they are."""

import sys
from dataclasses import dataclass

import pytest

from lockstep.experiments import UserError, catalogue, command, config, run
from lockstep.experiments.experiment import Group
from lockstep.experiments.ledger import sources

TOY = '''"""How warm it is; of nothing else."""

from lockstep.experiments.experiment import Experiment, Plan, each


def plan(request):
    return Plan({"here": 20, "there": 30}, each(lambda value: [{"value": value}]), config={})


EXPERIMENT = Experiment(["value"], plan, lambda frame, *_: f"sum {frame['value'].sum()}", needs="machine", timed=False)
'''


@pytest.mark.parametrize("name", catalogue.experiments())
def test_what_is_read_in_the_text_is_what_the_module_says(name):
    listed, experiment = catalogue.experiments()[name], run.experiment_of(name)
    assert {fact: getattr(listed, fact) for fact in catalogue.FACTS} == {
        fact: getattr(experiment, fact) for fact in catalogue.FACTS
    }
    assert len(set(experiment.columns)) == len(experiment.columns)


@pytest.mark.parametrize("name", catalogue.experiments())
def test_an_experiment_takes_a_gpu_exactly_where_its_plan_has_more_with_one(name):
    needs = catalogue.experiments()[name].needs

    def takes_part(part: str) -> bool:  # whether peers are installed or not
        return sources.in_gymnasium(part) if needs == "peers" else catalogue.why_not(name, part) is None

    parts = [part for part in config.files() if takes_part(part)]
    words = [[name]] if needs == "machine" else [[name, part] for part in parts]
    asked = [run.parser(name).parse_args([*some, "--scale", "full"]) for some in words]
    plans = [[run.planned(name, options, there).groups for there in (["cpu"], ["cpu", "cuda"])] for options in asked]
    assert plans
    assert catalogue.experiments()[name].gpu == any(list(without) != list(with_one) for without, with_one in plans)


def test_a_family_s_experiment_is_of_its_environments():
    of_edge, of_cartpole = (set(catalogue.experiments_of(name)) for name in ("vehicular_edge", "cartpole"))
    families = {one.name: one.family for one in catalogue.experiments().values()}
    assert {families[name] for name in of_edge} == {None, "vehicular_edge"}
    assert {families[name] for name in of_cartpole} == {None}
    assert set(config.files()) >= {"cartpole", "vehicular_edge"}


def test_a_quick_report_leaves_out_what_says_so():
    whole, quick = (set(catalogue.experiments_of("vehicular_edge", scale)) for scale in ("full", "quick"))
    assert quick < whole == set(catalogue.experiments_of("vehicular_edge"))
    assert whole - quick == {name for name in whole if not catalogue.experiments()[name].quick}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An experiment more, which is one file in the folder."""
    import lockstep.experiments as package

    (tmp_path / "warmth.py").write_text(TOY)
    listed = catalogue.Listed("warmth", tmp_path / "warmth.py", **catalogue.declared(tmp_path / "warmth.py"))
    monkeypatch.setattr(catalogue, "experiments", lambda: {"warmth": listed})
    monkeypatch.setattr(catalogue.Listed, "module", "lockstep.experiments.warmth")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.setattr("lockstep.experiments.ledger.fingerprint.of", lambda *of: "")
    monkeypatch.setattr("lockstep.experiments.ledger.sources.of_experiment", lambda *of: [])
    yield tmp_path
    sys.modules.pop("lockstep.experiments.warmth", None)


def test_an_experiment_more_is_one_file(toy, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run", "warmth", "--output", str(toy / "warmth.csv")])
    command.run(run.main)
    assert (toy / "warmth.csv").read_text() == "value\n20\n30\n"
    assert capsys.readouterr().out == f"warmth: {toy / 'warmth.csv'}\nsum 50\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["througput", "cartpole"], "error: there is no experiment 'througput'; did you mean 'throughput'?"),
        (["scaling", "cartpole"], "error: experiments/classic_control/cartpole.yaml has no section scaling"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.run(run.main)
    assert str(ended.value).startswith(message)
    with pytest.raises(UserError):
        run.main()


def test_help_lists_every_experiment_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run", "--help"])
    with pytest.raises(SystemExit):
        run.main()
    said = capsys.readouterr().out
    for name, listed in catalogue.experiments().items():
        assert f"{name} " in said and run.sentence_of(listed.file) in said


@dataclass(frozen=True)
class Walk(Group):
    form: str
    num_envs: int
    size: tuple = ()
    weight: float = 1.0
    trained_on: str | None = None
    counted: bool = False


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        (("port", 8), "port B=8"),
        (("port", 8, (("vehicles", 30), ("edges", 2))), "port B=8 vehicles=30 edges=2"),
        (("port", 8, (), 0.5, "many", True), "port B=8 weight=0.5 many counted"),
    ],
)
def test_a_label_has_every_field_that_is_not_its_default(fields, label):
    assert Walk(*fields).label == label
