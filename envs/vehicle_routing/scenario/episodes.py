"""Records of episodes that were played, as a file (README.md, 4.5)."""

from pathlib import Path

import numpy as np

from lockstep import files

from ... import reading
from ..layout import state_shapes
from ..params import Params
from .scenario import Scenario

COLUMNS = ("zone", "offered", "kept", "type", "threshold", "action", "accepted", "walk", "cost")


def save_episodes(path, scenario: Scenario, params: Params, states: list[dict]) -> Path:
    """Writes E episodes of one scenario to `<path>.npz`, its folder as well, in order of arrival.

    Arrays: travel [Z, Z], depot, zone [E, n, 2], offered and kept [E, n, 4] (e, l, e', l'), type [E, n], threshold
    [E, n, 2], action [E, n], accepted [E, n], walk [E, ..], cost [E], Q, H; times in ticks.

    Args:
        states: what `get_state` gave at the end of each.

    Raises:
        ValueError: no state, or one that lacks a field or is of an episode that is not over.
    """
    if not states:
        raise ValueError("states=[] must hold one episode or more")
    rows: dict[str, list] = {name: [] for name in COLUMNS}
    for number, state in enumerate(states):
        lacking = [name for name in state_shapes(params) if name not in state]
        if lacking:
            raise ValueError(f"states[{number}] has no {lacking[0]!r}, must be what get_state gave")
        if state["t"] != scenario.requests:
            raise ValueError(f"states[{number}] is of an episode after {state['t']} of {scenario.requests} decisions")
        i, kept = state["traveller"], state["kept"]
        offered = state["offered"][i]
        times = [1, 2, 4, 5]
        for name, row in zip(
            COLUMNS,
            (kept[:, [0, 3]], offered[:, times], kept[:, times], scenario.type[i],
             scenario.threshold[i, state["trip"][i]], state["action"], state["accepted"], state["walk"], state["cost"]),
            strict=True,
        ):  # fmt: skip
            rows[name].append(row)
    path = reading.path_of(path, "a file, .npz")
    path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"travel": scenario.travel, "depot": scenario.depot, "Q": params.capacity, "H": params.horizon_ticks}
    with files.replacing(path, "wb") as file:
        np.savez_compressed(file, **whole, **{name: np.stack(columns) for name, columns in rows.items()})
    return path
