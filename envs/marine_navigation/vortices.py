"""Currents of vortex cores (README.md, 2.1): solid rotation inside a core, a free vortex outside."""

from collections.abc import Sequence
from typing import NamedTuple


class Core(NamedTuple):
    """A vortex; `strength` is Γ/2π, the core's radius times the speed at its edge."""

    x: float  # m
    y: float  # m
    sign: int  # s: 1 clockwise, -1 counter-clockwise
    strength: float  # m²/s


def current(x: float, y: float, cores: Sequence[Core], core_radius: float, shadowing: bool) -> tuple[float, float]:
    """The water's velocity u(x, y) in m/s: Σ s (Γ/2π) / max(|Δ|², r_c²) (Δ_y, -Δ_x), Δ from the core to (x, y).

    Args:
        shadowing: skip a core that a nearer one stands before, see `unshadowed` (`vortex_shadowing`).
    """
    if shadowing:
        cores = unshadowed(x, y, cores)
    u = v = 0.0
    least = core_radius * core_radius
    for core in cores:
        dx, dy = x - core.x, y - core.y
        factor = core.sign * core.strength / max(dx * dx + dy * dy, least)
        u += factor * dy
        v -= factor * dx
    return u, v


def unshadowed(x: float, y: float, cores: Sequence[Core]) -> list[Core]:
    """The cores that count at (x, y), nearest first: one is skipped if Δ·Δ_j > 0 for a kept, nearer core j."""
    kept = []
    for core in sorted(cores, key=lambda core: (x - core.x) ** 2 + (y - core.y) ** 2):
        dx, dy = x - core.x, y - core.y
        if not any(dx * (x - other.x) + dy * (y - other.y) > 0.0 for other in kept):
            kept.append(core)
    return kept
