"""Training of the learned oracle: what is drawn, the likelihood that it learns from, and its command."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.agents.run import checkpoint
from lockstep.envs.vehicle_routing import oracle
from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.oracles.attention import decode, fused, training, weights
from lockstep.envs.vehicle_routing.oracles.attention.network import CLIP, Network, Shape
from lockstep.envs.vehicle_routing.oracles.attention.training import Config, Training, drawn, log_likelihood
from lockstep.envs.vehicle_routing.oracles.attention.walks import Walks
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import city

TINY = Config(Shape(width=16, layers=1, heads=2, ff=16), requests=5, batch=64, samples=4, steps=4)


def test_drawn_requests_are_trips_shifted_by_tens_of_minutes_that_one_vehicle_can_serve():
    nodes = drawn(np.random.default_rng(0), city(), Params(), 50, 30)
    trips = city().trip.reshape(-1, 6)
    known = {tuple(row) for row in trips[:, [0, 3]].tolist()}
    width = (nodes.latest - nodes.earliest)[:, 1:]
    assert nodes.zone.shape == (50, 61) and (width == 300).all()
    assert set(map(tuple, nodes.zone[:, 1:].reshape(-1, 2).tolist())) <= known
    assert (nodes.demand[0] == torch.tensor([0, *[1, -1] * 30])).all()
    alone = [column.numpy()[:, :3] for column in nodes]
    assert make_oracle("greedy", Params(), city().travel).solve(*alone)[3].all()


def test_half_of_the_requests_are_shifted():
    row, none = [1, 6000, 6300, 2, 6300, 6600], {"trip_count": None, "threshold": None, "service": None, "demand": None}
    scenario = dataclasses.replace(city(), trip=np.tile([[row]], (30, 1, 1)), **none)
    nodes = drawn(np.random.default_rng(0), scenario, Params(), 4000, 30)
    # A pre-shift of 10, 20 or 30 min, and in half of the cases one of four shifts of that end.
    earlier, later = 6000 - nodes.earliest[:, 1::2], nodes.earliest[:, 2::2] - 6300
    for moved in (earlier, later):
        share = (moved == 100).double().mean().item()  # 10 min and none
        assert share == pytest.approx(1 / 3 * (1 / 2 + 1 / 2 / 4), abs=4 * (0.21 * 0.79 / 120_000) ** 0.5)


def test_the_likelihood_is_that_of_the_walks_selection_by_selection():
    params, n, S = Params(), 5, 3
    torch.manual_seed(0)
    network = Network(TINY.shape, params, city().travel).double()
    with torch.no_grad():
        network.legs.normal_()
        network.context.normal_()
    travel = torch.from_numpy(city().travel.copy())
    nodes = drawn(np.random.default_rng(0), city(), params, 4, n)
    keys = network(nodes).detach()
    uniform = torch.from_numpy(np.random.default_rng(1).random((4 * S, 3 * n + 1)))
    answers, trace = fused.decode(network, travel, nodes, keys, S, uniform, trace=True)
    traced = fused.Trace(*(part.unflatten(0, (4, S)) for part in (trace.masks, trace.asked)))
    found = log_likelihood(network, travel, nodes, keys, answers.walk.long().unflatten(0, (4, S)), traced)
    # The same walks again, node by node under the mask in torch.
    walks, expected = Walks(params, travel, nodes.repeated(S)), torch.zeros(4 * S, dtype=torch.float64)
    for step in range(3 * n):
        over, allowed = walks.over, walks.allowed()
        logit = decode.logits(network, walks, keys.repeat_interleave(S, 0), allowed, step).detach()
        share = torch.where(allowed, CLIP * logit.tanh(), -torch.inf).softmax(1)
        node = answers.walk[:, step + 1].long()
        expected += share.gather(1, node[:, None])[:, 0].log().masked_fill(over, 0.0)
        walks.select(node)
    assert found.flatten().tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert expected.max() < 0


def test_a_resumed_training_is_the_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SAVE_S", -1.0)  # after every update
    whole = Training(TINY, tmp_path / "whole")
    whole.run(told=lambda line: None)
    killed = Training(TINY, tmp_path / "killed")
    update = killed.update

    def until_third():
        if killed.step == 2:
            raise KeyboardInterrupt
        update()

    monkeypatch.setattr(killed, "update", until_third)
    with pytest.raises(KeyboardInterrupt):
        killed.run(told=lambda line: None)
    resumed = Training(TINY, tmp_path / "killed")
    assert resumed.step == 2
    resumed.run(told=lambda line: None)
    assert (resumed.step, resumed.instances) == (whole.step, whole.instances) == (4, resumed.instances)
    for name, array in whole.network.state_dict().items():
        assert torch.equal(array, resumed.network.state_dict()[name]), name
    assert [row[1:] for row in whole.curve] == [row[1:] for row in resumed.curve]


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    Training(TINY, tmp_path).run(told=lambda line: None)
    with pytest.raises(ValueError, match="seed is 0, the configuration has 1; choose another folder, or seed=0"):
        Training(dataclasses.replace(TINY, seed=1), tmp_path)
    longer = Training(dataclasses.replace(TINY, steps=8), tmp_path)  # with more time it goes on
    assert longer.progress == 0.5
    assert longer.budgets == [[0, 10.0, 4], [4, 10.0, 8]]


def test_a_checkpoint_that_is_damaged_or_lacks_something_is_refused(tmp_path):
    Training(TINY, tmp_path).run(told=lambda line: None)
    path = tmp_path / "training.ckpt"
    whole, content = path.read_bytes(), checkpoint.load(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"checkpoint {path}: not a whole checkpoint"):
        Training(TINY, tmp_path)
    checkpoint.save(path, {})
    with pytest.raises(ValueError, match=f"checkpoint {path} has no 'config'"):
        Training(TINY, tmp_path)
    del content["rng"]
    checkpoint.save(path, content)
    with pytest.raises(ValueError, match=f"checkpoint {path} has no 'rng'"):
        Training(TINY, tmp_path)


def test_the_command_writes_weights_and_where_they_are_from(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(training.CONFIGS, "small", TINY)
    monkeypatch.chdir(tmp_path)
    shipped = (weights.FOLDER / "small.npz").read_bytes()
    oracle.main(["--config", "small", "--steps", "2", "--threads", "1"])
    assert (weights.FOLDER / "small.npz").read_bytes() == shipped
    known = json.loads(Path("runs/oracle/small.json").read_text())
    assert (known["updates"], known["config"]["steps"], known["config"]["seed"]) == (2, 2, 0)
    assert known["budgets"] == [[0, 10.0, 2]]
    assert {"commit", "machine", "seconds", "instances", "curve", "sha256", "city_sha256"} <= known.keys()
    assert "2 updates; oracle='am:runs/oracle/small.npz' takes the weights" in capsys.readouterr().out
    assert make_oracle("am:runs/oracle/small.npz", Params(), city().travel).network.shape == TINY.shape


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "0"], "minutes=0.0 must be a positive number"),
        (["--minutes", "nan"], "minutes=nan must be a positive number"),
        (["--steps", "-1"], "steps=-1 must be an integer from 0"),
        (["--seed", "-1"], "seed=-1 must be an integer from 0"),
        (["--threads", "0"], "threads=0 must be an integer from 1"),
        (["--device", "gpu"], "device='gpu' must be 'cpu', 'cuda' or"),
        (["--output", "file"], "folder file cannot be written: File exists"),
        (["--output", "/proc/none"], "folder /proc/none cannot be written: "),
        (["--checkpoints", "file"], "folder file/small cannot be written: Not a directory"),
        (["--gap", "--output", "file"], "weights='file/small.npz': there is no small.npz"),
        (["--gap"], "weights='runs/oracle/small.npz': there is no small.npz"),
    ],
)
def test_the_command_says_in_a_sentence_what_is_wrong_before_it_trains(tmp_path, monkeypatch, arguments, said):
    monkeypatch.setitem(training.CONFIGS, "small", TINY)
    monkeypatch.delattr(Training, "run")
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(SystemExit, match=f"^error: {said}"):
        oracle.main(["--config", "small", *arguments])
    assert not list(Path().rglob("*.*"))


def test_an_interrupted_command_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(training.CONFIGS, "small", TINY)
    monkeypatch.chdir(tmp_path)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "update", interrupt)
    with pytest.raises(SystemExit) as ended:
        oracle.main(["--config", "small", "--threads", "1"])
    assert ended.value.code == 130
    assert (
        capsys.readouterr().err == "\ninterrupted; the same command goes on from the last checkpoint, if there is one\n"
    )
    shutil.copytree(weights.FOLDER, "runs/oracle", dirs_exist_ok=True)
    monkeypatch.setattr(oracle, "gaps", lambda *_: interrupt(None))
    with pytest.raises(SystemExit):
        oracle.main(["--config", "small", "--gap"])
    assert capsys.readouterr().err == "\ninterrupted; nothing is noted, the same command measures all of it again\n"


def test_the_gap_is_the_mean_excess_and_its_interval():
    found = oracle.gap(np.array([110, 130] * 50), np.array([100, 100] * 50))
    assert (found["problems"], found["gap"]) == (100, 0.2)
    spread = 1.96 * 0.1 / 10  # of a mean of 100 whose deviation is 0.1
    assert (found["low"], found["high"]) == pytest.approx((0.2 - spread, 0.2 + spread), abs=0.005)


def test_shipped_weights_are_what_their_configuration_makes_and_say_where_they_are_from():
    assert weights.shipped()
    for name in weights.shipped():
        known = json.loads((weights.FOLDER / f"{name}.json").read_text())
        config = training.CONFIGS[name]
        assert known["config"] == dataclasses.asdict(config) and known["threads"] == 1 and not known["dirty"]
        assert known["budgets"] == [[0, config.minutes, config.steps]]
        assert known["instances"] > 0 and known["curve"][-1][1] == known["instances"]
        assert {row["requests"] for row in known["gap"]} == set(training.SIZES)
        assert (weights.FOLDER / f"{name}.npz").stat().st_size < 2**21
