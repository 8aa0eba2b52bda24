"""What positions and fading say about the links: distances, gains, who reaches whom, and their main components.

Plain functions of arrays; leading axes are free unless a shape says otherwise. Section numbers are the specification's.
"""

import numpy as np


def distances(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """[..., n, 2], [..., m, 2] m -> [..., n, m] m."""
    x, y = (here[..., :, None, axis] - there[..., None, :, axis] for axis in (0, 1))
    x *= x  # in place: there may be millions of links
    y *= y
    x += y
    return np.sqrt(x, out=x)


def gains(distance: np.ndarray, fading: np.ndarray, exponent: float) -> np.ndarray:
    """g = X^2 d^-alpha (2.7)."""
    return fading**2 * distance**-exponent


def strongest_first(gain: np.ndarray) -> np.ndarray:
    """Order of the clients at every receiver, [T, Nc, n] -> [T, n, Nc] i4; ties: lower index first."""
    return np.argsort(-gain.swapaxes(1, 2), axis=-1, kind="stable").astype(np.int32)


def first_true(mask: np.ndarray) -> np.ndarray:
    """Lowest index along the last axis, -1 where nothing is set; i4."""
    return np.where(mask.any(axis=-1), mask.argmax(axis=-1), -1).astype(np.int32)


def true_indices(mask: np.ndarray, count: int) -> np.ndarray:
    """The first `count` indices that are set along the last axis, in order, -1 where there are fewer; i4."""
    found = np.full((*mask.shape[:-1], count), -1, dtype=np.int32)
    *where, index = np.nonzero(mask)
    rank = (np.cumsum(mask, axis=-1) - 1)[(*where, index)]
    kept = rank < count
    found[(*(axis[kept] for axis in where), rank[kept])] = index[kept]
    return found


def main_components(features: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and first right singular vectors of the centred features; each one's largest loading is positive (2.12).

    The singular vectors come from the T x T Gram matrix, as T is much smaller than F. A component along which nothing
    varies is 0, and so are its scores.

    Args:
        features: [..., T, F].

    Returns:
        [..., F], [..., count, F].
    """
    mean = features.mean(axis=-2)
    centred = features - mean[..., None, :]
    square, vector = np.linalg.eigh(centred @ centred.swapaxes(-1, -2))  # ascending
    vector = vector[..., ::-1][..., :count]
    component = vector.swapaxes(-1, -2) @ centred
    length = np.linalg.norm(component, axis=-1)
    varies = length > 1e-6 * np.sqrt(np.maximum(square[..., -1:], 1e-300))
    component *= np.where(varies, 1.0 / np.where(varies, length, 1.0), 0.0)[..., None]
    largest = np.abs(component).argmax(axis=-1)[..., None]
    component *= np.where(np.take_along_axis(component, largest, axis=-1) < 0, -1.0, 1.0)
    return mean, component
