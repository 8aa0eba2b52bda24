"""Links between positions: distances, gains, who reaches whom, and the main components of distances.

Plain functions of arrays; leading axes are free unless a shape says otherwise.
"""

import functools

import numpy as np

from lockstep.extras import extra


def distances(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """[..., n, 2], [..., m, 2] m -> [..., n, m] m."""
    x, y = (here[..., :, None, axis] - there[..., None, :, axis] for axis in (0, 1))
    x *= x  # in place: there may be millions of links
    y *= y
    x += y
    return np.sqrt(x, out=x)


def gains(distance: np.ndarray, fading: np.ndarray, exponent: float) -> np.ndarray:
    """g = X^2 d^-alpha (README.md, 2.3)."""
    return fading**2 * distance**-exponent


def strongest_first(gain: np.ndarray) -> np.ndarray:
    """Order of the clients at every receiver, [T, Nc, n] -> [T, n, Nc] i4; ties: lower index first."""
    key = np.ascontiguousarray(-gain.swapaxes(1, 2))
    order = np.argsort(key, axis=-1)  # several times as fast as the stable sort, and the same where nobody ties
    ascending = np.take_along_axis(key, order, axis=-1)
    if (ascending[..., 1:] == ascending[..., :-1]).any():
        order = np.argsort(key, axis=-1, kind="stable")
    return order.astype(np.int32)


def first_true(mask: np.ndarray) -> np.ndarray:
    """Lowest index along the last axis, -1 where nothing is set; i4."""
    return np.where(mask.any(axis=-1), mask.argmax(axis=-1), -1).astype(np.int32)


def true_indices(mask: np.ndarray, count: int) -> np.ndarray:
    """The first `count` indices that are set along the last axis, in order, -1 where there are fewer; i4."""
    n = mask.shape[-1]
    found = np.full((mask.size // n, count), -1, dtype=np.int32)
    place = np.flatnonzero(mask)
    row = place // n
    in_row = np.count_nonzero(mask, axis=-1).ravel()
    rank = np.arange(len(row)) - (np.cumsum(in_row) - in_row)[row]
    kept = rank < count
    found[row[kept], rank[kept]] = (place - n * row)[kept]
    return found.reshape(*mask.shape[:-1], count)


def one_thread():
    """Context in which NumPy's linear algebra keeps to one thread.

    Sums then have one order whatever the number of cores, and so has a scenario one set of bits; and matrices as small
    as T x T take several times as long where threads wait for each other.
    """
    return _linear_algebra().limit(limits=1, user_api="blas")


@functools.cache
def _linear_algebra():
    with extra("edge", of="drawing scenarios"):
        from threadpoolctl import ThreadpoolController
    return ThreadpoolController()  # looks through all libraries that are loaded, NumPy's among them


def scores(features: np.ndarray, mean: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Features [T, F] along the components that `main_components` found: [T, count]."""
    with one_thread():
        return (features - mean) @ components.T


def main_components(features: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and first right singular vectors of the centred features; each one's largest loading is positive.

    The singular vectors come from the T x T Gram matrix, as T is much smaller than F. A component along which nothing
    varies is 0, and so are its scores (README.md, 2.7).

    Args:
        features: [..., T, F].

    Returns:
        [..., F], [..., count, F].
    """
    mean = features.mean(axis=-2)
    centred = features - mean[..., None, :]
    with one_thread():
        square, vector = np.linalg.eigh(centred @ centred.swapaxes(-1, -2))  # ascending
        vector = vector[..., ::-1][..., :count]
        component = vector.swapaxes(-1, -2) @ centred
    length = np.linalg.norm(component, axis=-1)
    varies = length > 1e-6 * np.sqrt(np.maximum(square[..., -1:], 1e-300))
    component *= np.where(varies, 1.0 / np.where(varies, length, 1.0), 0.0)[..., None]
    largest = np.abs(component).argmax(axis=-1)[..., None]
    component *= np.where(np.take_along_axis(component, largest, axis=-1) < 0, -1.0, 1.0)
    return mean, component
