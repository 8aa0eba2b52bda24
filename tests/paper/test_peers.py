"""Peers in the paper: small rows written by hand, and what is said of the libraries' features."""

import re

import pandas as pd
import pytest

from lockstep import paper
from lockstep.experiments import ROOT, peer_workers, peers
from lockstep.paper import families, figures
from lockstep.paper.common.figures.family import fastest_peer
from lockstep.paper.typeset import DASH, SPACE, TIMES
from tests.paper import handwritten
from tests.paper.reading import seen

DECLARED = families.read("classic_control", "features.yaml")


def blocks(peer, rate, mode="step", num_envs=8192, threads=1, live_share=1.0, device="cpu", **about):
    """Six blocks of one second each."""
    row = {"environment": "cartpole", "peer": peer, "version": "1.0", "mode": mode, "how": "a loop", "dtype": "float32"}
    row |= {"device": device, "num_envs": num_envs, "threads": threads, "fused_steps": 128 if mode == "fused" else 1}
    row |= {"status": "measured", "live_share": live_share, "first_call_s": 1.0} | about
    return [row | {"block": block, "steps": rate, "wall_s": 1.0, "cpu_s": 1.0 * threads} for block in range(6)]


ROWS = [
    *blocks("Gymnasium", 1_000_000, live_share=0.957),
    *blocks("gymnax", 2_000_000, "fused", threads=2, differences="the wall is soft"),
    *blocks("gymnax", 500, num_envs=1),
    *blocks("Lockstep", 8_000_000, version=""),
    *blocks("Lockstep", 20_000_000, threads=2, version=""),
    *blocks("Lockstep", 60_000_000, "fused", version=""),
    {"environment": "cartpole", "peer": "PufferLib", "status": "not measured", "reason": "it does not install here"},
]


@pytest.fixture
def datasets(tmp_path):
    """CartPole's peers, measured here."""
    handwritten.write(tmp_path, None, "peers", ROWS, handwritten.HERE)
    return paper.load(tmp_path)


def shown(name, datasets):
    """CartPole's rows as a reader sees them, as dicts by heading."""
    return [row for row in seen(name, datasets) if row["environment"] == "cartpole"]


def test_the_fastest_peer_counts_in_whichever_mode_and_the_port_with_one_step_per_call(datasets):
    (row,) = shown("peers_fastest", datasets)
    assert (row["fastest"], row["how"]) == ("gymnax 1.0", "fused, K = 128")
    assert (row["its live steps/s"], row["the port's"]) == (f"2.00{SPACE}M", f"20.0{SPACE}M")
    assert row[f"port {TIMES}"] == f"10.0{TIMES} [10.0{TIMES}, 10.0{TIMES}]"
    assert row["met"] == "yes"


def test_side_by_side_at_one_size_in_equal_modes(datasets):
    found = {(row["library"], row["mode"], row["threads"]): row for row in shown("peers", datasets)}
    assert set(found) == {
        ("Gymnasium 1.0", "one step per call", "1"),
        ("gymnax 1.0", "fused, K = 128", "2"),
        ("Lockstep", "one step per call", "1"),
        ("Lockstep", "one step per call", "2"),
        ("Lockstep", "fused, K = 128", "1"),
        ("PufferLib", DASH, DASH),
    }
    gymnasium, gymnax = found["Gymnasium 1.0", "one step per call", "1"], found["gymnax 1.0", "fused, K = 128", "2"]
    assert (gymnasium["live share"], gymnasium["per CPU-second"]) == (f"95.7{SPACE}%", f"1.00{SPACE}M")
    assert gymnasium[f"port {TIMES}"].startswith(f"20.0{TIMES} ")  # its 20 M on two threads
    assert gymnax[f"port {TIMES}"].startswith(f"30.0{TIMES} ")
    assert gymnax["per CPU-second"] == f"1.00{SPACE}M"
    remarks = {peer: row["differences of the task, or why it was not measured"] for (peer, *_), row in found.items()}
    assert remarks["gymnax 1.0"] == "the wall is soft"
    assert remarks["PufferLib"] == "it does not install here"
    assert remarks["Gymnasium 1.0"] == DASH


def with_a_gpu(tmp_path):
    """The same with a GPU, where gymnax does 50 M steps per second and the port 400 M."""
    of_gymnax = blocks("gymnax", 50_000_000, threads=2, device="cuda")
    ours = blocks("Lockstep", 400_000_000, version="", device="cuda")
    handwritten.write(tmp_path, None, "peers", [*ROWS, *of_gymnax, *ours], handwritten.BIG)
    return paper.load(tmp_path)


def test_on_a_gpu_a_library_has_a_row_of_its_own_beside_the_port_there(tmp_path, datasets):
    table = shown("peers", with_a_gpu(tmp_path))
    assert {row["device"] for row in shown("peers", datasets) if row["library"] != "PufferLib"} == {"CPU"}
    found = {row["library"]: row for row in table if row["device"] == "GPU"}
    assert set(found) == {"gymnax 1.0", "Lockstep"}
    gymnax = found["gymnax 1.0"]
    assert gymnax[f"port {TIMES}"] == f"8.00{TIMES} [8.00{TIMES}, 8.00{TIMES}]"
    assert (gymnax["threads"], gymnax["per CPU-second"], gymnax["live steps/s"]) == (DASH, DASH, f"50.0{SPACE}M")
    assert len(shown("peers_sizes", paper.load(tmp_path))) == 9


def test_what_is_of_the_cpu_stays_so_with_a_gpu(tmp_path, datasets):
    """The table of the fastest, the figures, and the lines of the curves over the batch size."""
    both = with_a_gpu(tmp_path)
    (row,) = shown("peers_fastest", both)
    assert (row["fastest"], row["the port's"]) == ("gymnax 1.0", f"20.0{SPACE}M")
    (panel,) = figures.draw("peers", both).axes
    assert max(bar.get_width() for bar in panel.patches) == 60_000_000
    assert fastest_peer(both, "cartpole", paper.machine(both[0]))["rate"].tolist() == [500, 2_000_000]


def test_a_recording_from_before_there_were_devices_is_of_the_cpu(tmp_path):
    handwritten.write(tmp_path, None, "peers", ROWS, handwritten.HERE)
    before = shown("peers", paper.load(tmp_path))
    file = tmp_path / "results" / "cartpole" / "peers.csv"
    pd.read_csv(file).drop(columns="device").to_csv(file, index=False)
    assert [row | {"device": "CPU" if row["mode"] != DASH else DASH} for row in before] == shown(
        "peers", paper.load(tmp_path)
    )


def test_every_size_has_its_row(datasets):
    found = [(row["library"], row["mode"], row["B"]) for row in shown("peers_sizes", datasets)]
    assert ("gymnax 1.0", "one step per call", "1") in found
    assert len(found) == 7
    assert next(peer for peer, *_ in found) == "Gymnasium 1.0"  # as measured
    assert [row[f"port {TIMES}"] for row in shown("peers_sizes", datasets) if row["B"] == "1"] == [DASH]


def test_the_figure_draws_each_library_on_its_best_threads(datasets):
    figure = figures.draw("peers", datasets)
    (panel,) = figure.axes
    assert [round(bar.get_width()) for bar in panel.patches] == [60_000_000, 20_000_000, 2_000_000, 1_000_000]
    names = [label.get_text() for label in panel.get_yticklabels()]
    assert names == ["Lockstep", "Lockstep", "gymnax", "Gymnasium"]
    assert [words.get_text() for words in panel.texts][:2] == [f"60.0{SPACE}M", f"20.0{SPACE}M"]
    assert [bar.get_hatch() for bar in panel.patches] == ["////", "", "////", ""]


def test_the_first_figure_has_the_ratio_of_the_peers_run(datasets, tmp_path):
    """Its 12 M steps per second of a run of its own are no 6 times the 2 M of gymnax."""
    ladder = handwritten.rates("original", 1_000, 1) + handwritten.rates("port-cpu", 12_000_000)
    handwritten.write(tmp_path, None, "throughput", ladder, handwritten.HERE)
    (panel,) = figures.draw("family", paper.load(tmp_path)).axes
    words = [text.get_text() for text in panel.texts]
    assert {f"12,000{TIMES}", f"10.0{TIMES}"} <= set(words)
    assert {f"CPU {TIMES} original", f"CPU {TIMES} library"} == {
        text for text in words if TIMES in text and "CPU" in text
    }
    assert not [text for text in words if "GPU" in text]  # nobody ran one
    assert 2_000_000 in [line.get_xdata()[0] for line in panel.lines if line.get_label() == "fastest other library"]


@pytest.mark.parametrize("entry", DECLARED["features"], ids=lambda entry: entry["feature"])
def test_every_library_has_every_feature_s_entry(entry):
    assert set(entry) == {"feature", *DECLARED["libraries"]}
    assert all(isinstance(said, str) and said for said in entry.values())


def test_features_were_looked_up_in_the_versions_that_are_measured():
    ours = (ROOT / "requirements.lock").read_text()
    for name in peer_workers.names():
        peer = peer_workers.worker(name)
        file = peer_workers.requirements(name)
        pins = dict(re.findall(r"^([\w-]+)==(\S+)$", file.read_text() if file else ours, re.MULTILINE))
        if peer.TITLE != peers.OURS:
            assert DECLARED["libraries"][peer.TITLE]["version"] == pins[peer.PACKAGES[0]]


def test_features_of_libraries_that_ports_are_wrapped_for_were_looked_up_in_the_versions_that_are_locked():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    for name in ("TorchRL", "Stable-Baselines3"):
        assert DECLARED["libraries"][name]["version"] == pins[name.lower()]


def test_every_panel_of_peers_names_its_own_bars(tmp_path):
    """Of two tasks side by side the order of libraries differs."""
    others = [row | {"environment": "pendulum"} for row in [*blocks("gymnax", 1000), *blocks("EnvPool", 2000)]]
    handwritten.write(tmp_path, None, "peers", ROWS, handwritten.HERE)
    handwritten.write(tmp_path, None, "peers", others, handwritten.HERE, environment="pendulum")
    for panel in figures.draw("peers", paper.load(tmp_path)).axes:
        ticks = panel.yaxis.get_major_ticks()
        assert len(ticks) == len(panel.patches) and all(tick.label1.get_visible() for tick in ticks)
