"""GCJ-02, the shifted datum of Chinese maps, to WGS-84, and degrees to local metres.

The shift is the well-known public polynomial and sine series on the Krasovsky ellipsoid.
"""

import numpy as np

AXIS_M = 6378245.0  # Krasovsky 1940
ECCENTRICITY2 = 0.00669342162296594323
RADIUS_M = 6371008.8  # mean radius of WGS-84
ROUNDS = 6  # of the fixed point; each makes the error about a thousand times smaller


def shift(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """GCJ-02 minus WGS-84 at a WGS-84 point, degrees."""
    x, y = longitude - 105.0, latitude - 35.0
    root = np.sqrt(np.abs(x))
    fine = 20.0 * np.sin(6.0 * np.pi * x) + 20.0 * np.sin(2.0 * np.pi * x)
    north = -100.0 + 2.0 * x + 3.0 * y + 0.2 * y * y + 0.1 * x * y + 0.2 * root
    north += (fine + 20.0 * np.sin(np.pi * y) + 40.0 * np.sin(np.pi / 3.0 * y)) * 2.0 / 3.0
    north += (160.0 * np.sin(np.pi / 12.0 * y) + 320.0 * np.sin(np.pi / 30.0 * y)) * 2.0 / 3.0
    east = 300.0 + x + 2.0 * y + 0.1 * x * x + 0.1 * x * y + 0.1 * root
    east += (fine + 20.0 * np.sin(np.pi * x) + 40.0 * np.sin(np.pi / 3.0 * x)) * 2.0 / 3.0
    east += (150.0 * np.sin(np.pi / 12.0 * x) + 300.0 * np.sin(np.pi / 30.0 * x)) * 2.0 / 3.0
    phi = np.radians(latitude)
    w = 1.0 - ECCENTRICITY2 * np.sin(phi) ** 2
    east = np.degrees(east * np.sqrt(w) / (AXIS_M * np.cos(phi)))
    north = np.degrees(north * w * np.sqrt(w) / (AXIS_M * (1.0 - ECCENTRICITY2)))
    return east, north


def to_wgs84(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The WGS-84 point whose shifted point is given, by fixed-point iteration, degrees."""
    east, north = longitude, latitude
    for _ in range(ROUNDS):
        by_east, by_north = shift(east, north)
        east, north = longitude - by_east, latitude - by_north
    return east, north


def local_metres(
    longitude: np.ndarray, latitude: np.ndarray, origin: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Metres east and north of the origin (longitude, latitude), on the tangent plane there."""
    east = RADIUS_M * np.cos(np.radians(origin[1])) * np.radians(longitude - origin[0])
    return east, RADIUS_M * np.radians(latitude - origin[1])
