"""GIFs of environments: in the tree they show what the code does, and what is stale is noticed and rewritten."""

import importlib
import io
from pathlib import Path

import pytest

pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")

from PIL import Image

from lockstep.experiments import ROOT, UserError
from lockstep.paper.animation import Animation, differing, gif

MODULES = sorted(f"lockstep.paper.{file.parent.name}.animation" for file in ROOT.glob("paper/*/animation.py"))


def shipped(module: str) -> Animation:
    return importlib.import_module(module).ANIMATION


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_an_animation_in_this_tree_shows_what_the_code_does(module):
    assert not shipped(module).stale(ROOT), f"run python -m {module}"


@pytest.mark.parametrize("module", MODULES)
def test_an_animation_is_no_burden_and_a_page_shows_it(module):
    animation = shipped(module)
    assert animation.module == module
    assert (ROOT / animation.file).stat().st_size <= 400_000
    with Image.open(ROOT / animation.file) as shown:
        assert shown.n_frames > 50 and shown.info["duration"] == animation.frame_ms
        assert shown.info["loop"] == 0  # for ever
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("envs/**/*.md")]
    (page,) = (page for page in pages if f"{animation.file.as_posix()})" in page.read_text(encoding="utf-8"))
    assert f"python -m {module}" in page.read_text(encoding="utf-8")


def pictures(*off: int) -> list[Image.Image]:
    """Three pictures of 10 x 10 pixels, each of its own grey, and in each so many pixels of another colour."""
    drawn = []
    for k, count in enumerate(off or (0, 0, 0)):
        drawn.append(Image.new("RGB", (10, 10), (100 + 10 * k,) * 3))
        for i in range(count):
            drawn[-1].putpixel((i % 10, i // 10), (250, 0, 0))
    return drawn


def made(drawn: list[Image.Image]) -> bytes:
    return gif(drawn, 40, 64)


@pytest.fixture
def grey(tmp_path):
    """An animation without a file yet."""
    return Animation("grey", Path("grey.gif"), pictures, 40, 64)


def test_pictures_are_compared_pixel_by_pixel():
    same = made(pictures())
    assert made(pictures()) == same
    assert differing(same, same) == 0
    assert differing(same, made(pictures(0, 7, 3))) == pytest.approx(0.07)
    assert differing(same, made(pictures()[:2])) == 1
    with Image.open(io.BytesIO(same)) as shown:
        assert (shown.n_frames, shown.info["duration"]) == (3, 40)


def test_a_stale_file_is_noticed_and_replaced(grey, tmp_path):
    file = tmp_path / grey.file
    assert grey.stale(tmp_path)
    file.write_bytes(made(pictures(50, 0, 0)))
    assert grey.stale(tmp_path)
    grey.update(tmp_path)
    assert file.read_bytes() == made(pictures())
    assert not grey.stale(tmp_path)


def test_check_fails_where_the_file_is_stale(grey, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["animation", "--check"])
    with pytest.raises(UserError, match="grey.gif does not show what the code does; run python -m grey"):
        grey.main("Grey.", tmp_path)
    assert not (tmp_path / grey.file).exists()
    monkeypatch.setattr("sys.argv", ["animation"])
    grey.main("Grey.", tmp_path)
    assert (tmp_path / grey.file).read_bytes() == made(pictures())
