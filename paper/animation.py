"""Animations of environments: GIFs in this repository, each rewritten or compared by a command of its own."""

import argparse
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from lockstep.experiments import ROOT, UserError

SAMPLES = 10  # pictures that the colours are chosen from
VISIBLE, ROUNDING = 32, 1e-3  # of 255 levels of a colour; of the pixels of a picture


@dataclass(frozen=True)
class Animation:
    """A GIF and what it is to show."""

    module: str  # that rewrites it
    file: Path  # in the repository
    pictures: Callable[[], list[Image.Image]]
    frame_ms: int
    colours: int

    def gif(self) -> bytes:
        """The pictures as the file is to have them."""
        return gif(self.pictures(), self.frame_ms, self.colours)

    def stale(self, root: Path = ROOT) -> bool:
        """True where the file shows something else than the code; a few pixels may be another machine's rounding."""
        file = root / self.file
        return not file.exists() or differing(file.read_bytes(), self.gif()) > ROUNDING

    def update(self, root: Path = ROOT) -> None:
        """Rewrite the file, unless it shows the same."""
        if self.stale(root):
            (root / self.file).write_bytes(self.gif())

    def main(self, description: str, root: Path = ROOT) -> None:
        """The command; the first line of `description` is its help.

        Raises:
            UserError: --check, and the file is stale.
        """
        arguments = argparse.ArgumentParser(prog=f"python -m {self.module}", description=description.split("\n")[0])
        arguments.add_argument("--check", action="store_true", help="change nothing, fail if anything would change")
        if not arguments.parse_args().check:
            self.update(root)
        elif self.stale(root):
            raise UserError(f"{self.file.as_posix()} does not show what the code does; run python -m {self.module}")


def gif(drawn: list[Image.Image], frame_ms: int, colours: int) -> bytes:
    """The pictures in few colours, common to all of them."""
    some = drawn[:: max(1, len(drawn) // SAMPLES)]
    palette = Image.fromarray(np.vstack([np.asarray(picture) for picture in some])).quantize(
        colours, Image.Quantize.MAXCOVERAGE
    )
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in drawn]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=frame_ms, loop=0)
    return file.getvalue()


def differing(one: bytes, other: bytes) -> float:
    """The largest share of pixels, over the pictures, that two GIFs show in another colour; 1 where sizes differ."""
    with Image.open(io.BytesIO(one)) as first, Image.open(io.BytesIO(other)) as second:
        if (first.size, first.n_frames) != (second.size, second.n_frames):
            return 1.0
        shares = []
        for k in range(first.n_frames):
            first.seek(k)
            second.seek(k)
            pixels = (np.asarray(image.convert("RGB"), dtype=int) for image in (first, second))
            shares.append(np.mean(np.abs(next(pixels) - next(pixels)).max(axis=2) > VISIBLE))
        return max(shares)
