"""A cluster that cannot start says why in a sentence, and leaves nothing behind."""

import tempfile
from pathlib import Path

import pytest

from tests.cluster import slurm


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="slurm-") as made:
        yield Path(made)


def configuration() -> dict[str, str]:
    return {file.name: file.read_text() for file in slurm.CONFIGURATION.glob("*.conf*") if file.is_file()}


def test_a_daemon_that_ends_has_the_last_word(cluster, folder):
    before, broken = configuration(), slurm.Cluster(folder)
    broken.commands["munged"] = ["sh", "-c", "echo 'munged: Error: no such right' >&2"]
    with pytest.raises(slurm.NotStarted) as found, broken.running():
        pass
    sentence = "no Slurm comes up here, not within 10 s: munged's socket; munged: munged: Error: no such right"
    assert str(found.value) == sentence
    assert configuration() == before and not broken.daemons
    assert cluster.states() == {"idle"}


def test_a_configuration_that_cannot_be_written_is_named_and_what_was_there_is_back(monkeypatch, tmp_path, folder):
    monkeypatch.setattr(slurm, "CONFIGURATION", tmp_path)
    (tmp_path / "slurm.conf").write_text("ClusterName=own\n")
    (tmp_path / "gres.conf").mkdir()
    refused = pytest.raises(slurm.NotStarted, match=r"gres.conf cannot be written: Is a directory")
    with refused, slurm.Cluster(folder).running():
        pass
    assert {file.name for file in tmp_path.iterdir()} == {"slurm.conf", "gres.conf"}
    assert (tmp_path / "slurm.conf").read_text() == "ClusterName=own\n"
