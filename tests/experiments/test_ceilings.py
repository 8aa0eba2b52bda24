import sys
import threading

import numpy as np
import pytest
import torch

from lockstep.envs.kernels import compile
from lockstep.experiments import ceilings, command, run
from lockstep.experiments.ceilings import Ceiling
from lockstep.experiments.ledger import provenance, results


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_copy_copies_everything_and_counts_bytes_read_and_written(threads, monkeypatch):
    made = []
    zeros_like = torch.zeros_like
    monkeypatch.setattr(torch, "zeros_like", lambda tensor: made.append(zeros_like(tensor)) or made[-1])
    monkeypatch.setattr(ceilings, "COPIED_PER_CALL", 2**20)
    run, amount = ceilings.copy(Ceiling("copy", "cpu", 2**18, threads))
    run()
    (destination,) = made
    assert destination.numel() * 4 == 2**17  # half of the bytes; the source has the other half
    assert bool((destination == 1).all())
    assert amount == 2**20  # 4 times, read and written


def test_fma_chains_compute_what_they_count():
    """x -> f x + t from i, r times, is f^r i + t (1 - f^r) / (1 - f); each lane sums its twelve chains."""
    library = compile.library(f"#define CHAINS 12\n{ceilings.SOURCE.read_text()}")
    library.fma_chains.argtypes = ceilings.FMA_ARGUMENTS
    out = torch.zeros(library.lanes(), dtype=torch.float32)
    library.fma_chains(out.data_ptr(), 1000, 0.999, 0.001)
    decayed = 0.999**1000
    expected = sum(decayed * i + 0.001 * (1 - decayed) / (1 - 0.999) for i in range(12))
    assert out.tolist() == pytest.approx([expected] * len(out), rel=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("rounds", [1, 15, 1000, 1003])  # rounds are unrolled sixteen at a time
def test_fma_chains_of_the_gpu_compute_what_they_count(rounds):
    """As above, eight chains of thread k beginning with k, k + 1, ..."""
    out = torch.zeros(64, dtype=torch.float32, device="cuda")
    with ceilings.torch_stream():
        arguments = (out.data_ptr(), np.int32(rounds), np.float32(0.999), np.float32(0.001))
        ceilings.cuda_kernel("fma_chains")((2,), (32,), arguments)
    decayed = 0.999**rounds
    expected = [sum(decayed * (k % 32 + i) + 0.001 * (1 - decayed) / (1 - 0.999) for i in range(8)) for k in range(64)]
    assert out.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_fp32_counts_two_operations_per_fma(threads):
    run, amount = ceilings.fp32(Ceiling("fp32", "cpu", None, threads))
    lanes = amount / (2 * threads * ceilings.CHAINS["cpu"] * ceilings.ROUNDS["cpu"])
    assert lanes in (4, 8, 16)
    run()


def test_work_on_threads_is_done_once_each_at_the_same_time():
    """Both wait for each other: one after the other they would never end."""
    meeting, done = threading.Barrier(2), []

    def work(number):
        meeting.wait(timeout=20)
        done.append(number)

    ceilings.on_threads(work, [(1,), (2,)])()
    assert sorted(done) == [1, 2]


@pytest.mark.usefixtures("either_nvrtc")
@pytest.mark.parametrize("target", compile.TARGETS)
def test_gpu_kernels_compile_without_spills(target):
    rows = compile.resources(f"#define CHAINS {ceilings.CHAINS['cuda']}\n{ceilings.SOURCE.read_text()}", target)
    assert {row["kernel"] for row in rows} == {"copy", "fma_chains", "nothing"}
    for row in rows:
        assert row["spill_store_bytes"] == row["spill_load_bytes"] == row["stack_bytes"] == 0


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_device_has_its_ceilings(scale, monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)
    monkeypatch.setattr(ceilings, "available_memory", lambda device: 2**36)
    found = list(ceilings.groups(scale, ["cpu", "cuda"]))
    assert len(set(found)) == len(found)
    for device in ("cpu", "cuda"):
        sizes = [group.size_bytes for group in found if group.device == device and group.quantity == "copy"]
        assert min(sizes) <= 16 * ceilings.MIB  # L2-resident
        assert max(sizes) >= 1024 * ceilings.MIB  # DRAM
    quantities = {group.quantity for group in found if group.device == "cuda"}
    assert quantities == {"copy", "fp32", "launch", "graph-node"}
    assert {group.threads for group in found if group.device == "cpu"} == {1, 2}


def test_copies_leave_a_fifth_of_the_memory_free(monkeypatch):
    """1 GiB of 1.25 GiB may be taken, 4 GiB may not."""
    monkeypatch.setattr(ceilings, "available_memory", lambda device: 1.25 * 2**30)
    sizes = [group.size_bytes for group in ceilings.groups("full", ["cpu"]) if group.size_bytes]
    assert max(sizes) == 2**30


@pytest.mark.gpu
@pytest.mark.parametrize("quantity", list(ceilings.CEILINGS))
def test_every_ceiling_of_the_gpu_runs(quantity):
    rows = ceilings.measure(Ceiling(quantity, "cuda", 2**24 if quantity == "copy" else None, 1), "quick")
    assert len(rows) == ceilings.BLOCKS["quick"][0]
    assert all(row["amount"] > 0 for row in rows)


@pytest.mark.slow
def test_the_command_line_writes_rows_and_prints_rates(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        sys, "argv", ["run", "ceilings", "--devices", "cpu", "--output", str(tmp_path / "ceilings.csv")]
    )
    small = [Ceiling("copy", "cpu", 2**16, 1), Ceiling("fp32", "cpu", None, 1)]
    monkeypatch.setattr(ceilings, "groups", lambda scale, present: small)
    monkeypatch.setattr(ceilings, "BLOCKS", {"quick": (6, 0.2)})
    command.run(run.main)
    frame, described = results.read(tmp_path / "ceilings.csv")
    assert list(frame.columns) == ceilings.COLUMNS
    assert list(zip(frame["quantity"], frame["unit"], strict=True)) == [("copy", "byte")] * 6 + [("fp32", "flop")] * 6
    assert (frame["size_bytes"].dropna() == 2**16).all()
    assert (frame["wall_s"] >= 0.2).all()
    assert (described["environment"], described["timing"]["blocks"]) == (None, 6)
    assert "fp32       cpu               threads=1" in capsys.readouterr().out
