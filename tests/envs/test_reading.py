"""Files that are not what they should be, and archives of arrays that are none, or too much."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lockstep.envs import pair, reading


def of_shape(shape: tuple[int, ...]) -> bytes:
    """An .npz of an array that says it is of a shape, and of nothing more."""
    header, archive = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", header.getvalue())
    return archive.getvalue()


def encrypted() -> bytes:
    """An .npz that says it is encrypted, in both of its headers."""
    found = bytearray(of_shape((0,)))
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        found[found.index(signature) + flags] |= 1
    return bytes(found)


@pytest.mark.parametrize("content", [b"", b"PK", of_shape((10**12,)), encrypted()])
def test_an_archive_that_is_none_is_refused_in_a_sentence(content):
    with pytest.raises(ValueError, match=r"^a.npz is not an archive of arrays of numbers: .+"):
        reading.arrays(content, Path("a.npz"))


def test_an_archive_of_too_much_is_refused_before_it_is_unpacked(monkeypatch):
    packed = io.BytesIO()
    np.savez_compressed(packed, x=np.zeros(10**6))
    monkeypatch.setattr(reading, "MOST", 10**6)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(ValueError, match="a.npz is not an .*: has 8,000,128 bytes, must have at most 1,000,000"):
        reading.arrays(packed.getvalue(), Path("a.npz"))


@pytest.mark.parametrize("given", [None, 5, b"a.npz", "", ".", "..", "a\0b.npz"])
def test_a_path_that_names_no_file_is_refused(given):
    with pytest.raises(ValueError, match="^path=.* must be that of a drawing"):
        reading.path_of(given, "a drawing")


def test_either_suffix_or_none_names_a_pair_of_files():
    for given in ("x/one.json", "x/one.npz", "x/one"):
        assert pair.paths(given) == (Path("x/one.json"), Path("x/one.npz"))
    assert pair.paths("x/one.v2") == (Path("x/one.v2.json"), Path("x/one.v2.npz"))


def test_a_pair_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file cannot be written: (File exists|Not a directory)"):
        pair.write(tmp_path / "file" / "one", {}, {})
    (tmp_path / "one.npz").mkdir()
    with pytest.raises(ValueError, match=r"one\.npz cannot be written: Is a directory"):
        pair.write(tmp_path / "one", {"a": np.zeros(1)}, {})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x80", b"[" * 10**5, b'{"a": {"b": 1, "b": 1}}'])
def test_a_text_that_is_no_json_is_refused_in_a_sentence(content):
    with pytest.raises(ValueError, match="^a.json: not JSON: .+"):
        reading.parsed(content, Path("a.json"))
