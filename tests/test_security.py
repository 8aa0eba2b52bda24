"""Files that hold code: each kind that is read is refused in one sentence, and nothing of it runs."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.agents import recipes
from lockstep.agents.run import checkpoint
from lockstep.envs.crypto_trading import scenario as bars
from lockstep.envs.marine_navigation import scenario as waters
from lockstep.envs.marine_navigation.params import make_params as marine_params
from lockstep.envs.vehicle_routing import scenario as days
from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.oracles.attention import weights
from lockstep.envs.vehicle_routing.oracles.attention.network import Network, Shape
from lockstep.envs.vehicle_routing.params import Params as Routing
from lockstep.envs.vehicular_edge.params import Params as Edge
from lockstep.envs.vehicular_edge.scenario import Calibration, draw, traces
from lockstep.envs.vehicular_edge.scenario import load as load_slots
from lockstep.experiments import UserError, config, record
from lockstep.experiments.ledger import results


class Code:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def code(tmp_path):
    """A `Code`; that its folder was not made is asserted at the end."""
    yield Code(tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_the_object_is_harmful(tmp_path):
    """As are the two files beside it, to readers that trust them."""
    pickle.loads(pickle.dumps(Code(tmp_path / "one")))
    torch.save(Code(tmp_path / "two"), tmp_path / "two.pt")
    torch.load(tmp_path / "two.pt", weights_only=False)
    np.savez(tmp_path / "three.npz", x=np.array([Code(tmp_path / "three")], dtype=object))
    np.load(tmp_path / "three.npz", allow_pickle=True)["x"]
    assert all((tmp_path / name).is_dir() for name in ("one", "two", "three"))


def zipped_pickle(code: Code) -> bytes:
    """The same as torch writes, within the frame of a checkpoint."""
    file = io.BytesIO()
    torch.save({"lockstep_checkpoint": checkpoint.FORMAT, "content": code}, file)
    return file.getvalue()


def with_a_second_pickle(code: Code) -> bytes:
    file = io.BytesIO(zipped_pickle(code))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("data.pkl", pickle.dumps(code))
    return file.getvalue()


@pytest.mark.parametrize("content", [zipped_pickle, with_a_second_pickle, pickle.dumps])
def test_checkpoints(tmp_path, code, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content(code))
    with pytest.raises(ValueError, match=f"^checkpoint {path}: not a whole checkpoint; the file is damaged"):
        checkpoint.of_run(path, "ppo")


TAGS = [
    "!!python/object/apply:os.mkdir [{}]",
    "!!python/object/new:os.mkdir [{}]",
    "!!python/name:os.mkdir",
    "!!python/object:tests.test_security.Code {{folder: {}}}",
]


@pytest.mark.parametrize("tag", TAGS)
def test_recipes_and_settings(tmp_path, code, tag):
    file = tmp_path / "family" / "cartpole.yaml"
    file.parent.mkdir()
    file.write_text(f"ppo: {tag.format(code.folder)}\n")
    with pytest.raises(ValueError, match=f"^{file} is no YAML: could not determine a constructor for the tag"):
        recipes.read(file)
    with pytest.raises(UserError, match="is no YAML: could not determine a constructor for the tag"):
        config.load("cartpole", "quick", tmp_path)


def edge(path: Path):
    params = Edge(vehicles=20, slots=12, edges=4, components=5)
    draw(params, "dense", calibration=Calibration.ones(params)).save(path)
    return load_slots


def marine(path: Path):
    waters.save(path, waters.published(5, [(3, 4, 0, 30.0)], marine_params("kinematic", "original")))
    return waters.load


def routing(path: Path):
    days.save(path, days.city(3, Routing(requests=4), zones=5, trips=6))
    return days.load


def network(path: Path):
    city = days.city(3, Routing(requests=4), zones=5, trips=6)
    shape = Shape(width=16, heads=2, layers=1)
    weights.save(Network(shape, Routing(), city.travel), path, city.travel)
    return lambda path: make_oracle(f"am:{path}", Routing(), city.travel)


def spoil(path: Path, code: Code) -> None:
    """Puts an object in the place of an archive's last array, and the hashes right."""
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays | {list(arrays)[-1]: np.array([code], dtype=object)})
    text = path.with_suffix(".json")
    if not text.exists():
        return
    header = json.loads(text.read_text())
    del header["sha256"]
    if "sha256_npz" in header:
        header["sha256_npz"] = hashlib.sha256(path.read_bytes()).hexdigest()
        found = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    else:
        found = weights.digest(header, path.read_bytes())
    text.write_text(json.dumps(header | {"sha256": found}))


@pytest.mark.parametrize("kind", [edge, marine, routing, network])
def test_archives_of_arrays(tmp_path, code, kind):
    path = tmp_path / "one.npz"
    load = kind(path)
    load(path)
    spoil(path, code)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded when allow_pickle=False"):
        load(path)
    path.write_bytes(pickle.dumps(code))
    with pytest.raises(ValueError, match="not an archive of arrays of numbers: File is not a zip file$|SHA-256"):
        load(path)


def test_tables_of_bars(tmp_path, code):
    for name in ("bars.csv", "bars.parquet"):
        (tmp_path / name).write_bytes(pickle.dumps(code))
        content = {"bar_seconds": 300, "symbols": {"A": {}}}
        content["sha256"] = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        (tmp_path / "meta.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=f"^{tmp_path / name}: "):
            bars.load(tmp_path / name)
    (tmp_path / "meta.json").write_bytes(pickle.dumps(code))
    with pytest.raises(ValueError, match=f"^{tmp_path / 'meta.json'}: not JSON"):
        bars.load(tmp_path / "bars.csv")


@pytest.mark.parametrize("read", [traces.ngsim, traces.sumo_csv, traces.sumo_xml, traces.gaia])
def test_recorded_traffic(tmp_path, code, read):
    path = tmp_path / "traffic"
    path.write_bytes(pickle.dumps(code))
    with pytest.raises(ValueError, match=f"^{path}: "):
        read(path)


POSITIONS = """<!DOCTYPE fcd-export [<!ENTITY other SYSTEM "file://{}">]>
<fcd-export><timestep time="0"><vehicle id="{}" x="1" y="2">{}</vehicle></timestep></fcd-export>"""


def test_an_entity_of_recorded_traffic_opens_no_other_file(tmp_path):
    other, path = tmp_path / "other", tmp_path / "traffic.xml"
    other.write_text("secret")
    path.write_text(POSITIONS.format(other, "7", ""))
    assert traces.sumo_xml(path).vehicle.tolist() == [7]
    for places in (("&other;", ""), ("7", "&other;")):
        path.write_text(POSITIONS.format(other, *places))
        with pytest.raises(ValueError, match=f"^{path}: not XML of positions: ") as refused:
            traces.sumo_xml(path)
        assert "secret" not in str(refused.value)


def test_text_of_recorded_traffic_stays_text(tmp_path, code):
    path = tmp_path / "traffic.csv"
    cell = f"__import__('os').mkdir('{code.folder}')"
    path.write_text(f'timestep_time;vehicle_id;vehicle_x;vehicle_y\n0;"{cell}";1;2\n')
    assert traces.sumo_csv(path).vehicle.tolist() == [cell]


def test_recordings(tmp_path, code):
    """Provenance is JSON, rows are CSV, whose cells stay text."""
    path = tmp_path / "throughput.csv"
    path.write_text(f"rung,steps\n\"__import__('os').mkdir('{code.folder}')\",1\n")
    path.with_suffix(".json").write_bytes(pickle.dumps(code))
    with pytest.raises(UserError, match="throughput.json is damaged; restore it"):
        record.described_in(path)
    with pytest.raises(UserError, match="has no readable provenance beside it"):
        results.read(path)
    path.with_suffix(".json").write_text(json.dumps({"sources": {}, "machine": {"py/reduce": ["os.mkdir", "made"]}}))
    frame, _ = results.read(path)
    assert frame["rung"][0].startswith("__import__")
