"""A scenario: everything that an episode does not decide, and the tables that follow from it (README.md, 4.1).

Axes: T slots, Nc clients, Ns servers, Ne edges, J task slots, S server choices.
"""

from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from ..params import BITS, DRIFTS, FAMILIES, LEAST, PRESETS, SWITCHES, Params, running_shapes
from . import file, links
from .drawing import V2I, V2V, distances, fading

HEADER = ("name", "source", "index", "seed", "mean_density")  # what stands in the JSON as it is
LARGEST_SCALE, LEAST_DEVIATION = 1e30, 1e-30  # a deviation of scores may be of rounding alone


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scales that the random policy reaches; whatever the environment shows or pays is divided by them."""

    backlog: np.ndarray = field(default_factory=lambda: np.ones(len(FAMILIES)))  # Mbit, in the order of FAMILIES
    cost_i2i: float = 1.0  # MB m
    cost_i2c: float = 1.0  # MB m
    load: float = 1.0  # G, Mbit: mean over slots of all tasks within the task slots; needs no policy
    drift: np.ndarray = field(default_factory=lambda: np.ones(len(DRIFTS)))  # Mbit^2, |phi| (Q10), in DRIFTS' order
    size: float = 1.0  # MB
    work: float = 1.0  # bits times cycles/bit
    score_v2v: np.ndarray = field(default_factory=lambda: np.ones(10))  # [components] m, deviations
    score_v2i: np.ndarray = field(default_factory=lambda: np.ones(10))  # [components] m

    def __post_init__(self):
        lengths = {"backlog": len(FAMILIES), "drift": len(DRIFTS)}
        for spec in fields(self):
            try:
                value = np.asarray(getattr(self, spec.name), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"calibration {spec.name} holds no numbers: {error}") from error
            low, high = LEAST_DEVIATION if spec.name.startswith("score") else LEAST, LARGEST_SCALE
            if not ((value >= low) & (value <= high)).all():
                raise ValueError(f"calibration {spec.name} is {value.tolist()!r:.60}, must lie in [{low:g}, {high:g}]")
            vector = spec.type is np.ndarray
            if value.ndim != vector or (vector and len(value) != lengths.get(spec.name, len(value))):
                wanted = (lengths.get(spec.name, "components"),) if vector else ()
                raise ValueError(f"calibration {spec.name} has shape {value.shape}, must have {wanted}")
            object.__setattr__(self, spec.name, value if vector else float(value))

    @property
    def is_ones(self) -> bool:
        return all((np.asarray(value) == 1.0).all() for value in vars(self).values())

    @classmethod
    def ones(cls, params: Params) -> "Calibration":
        return cls(score_v2v=np.ones(params.components), score_v2i=np.ones(params.components))


@dataclass(frozen=True, eq=False)
class Scenario:
    """Float64 arrays unless another type stands beside them; a task slot without a task holds 0."""

    params: Params
    client_cpu: np.ndarray  # [Nc] GHz
    client_power: np.ndarray  # [Nc] mW
    server_cpu: np.ndarray  # [Ns] GHz
    edge_xy: np.ndarray  # [Ne, 2] m
    edge_cpu: np.ndarray  # [Ne] GHz
    edge_range: np.ndarray  # [Ne] m
    cloud_xy: np.ndarray  # [2] m
    xy_client: np.ndarray  # [T, Nc, 2] m
    xy_server: np.ndarray  # [T, Ns, 2] m
    active_client: np.ndarray  # [T, Nc] bool
    active_server: np.ndarray  # [T, Ns] bool
    task_count: np.ndarray  # [T, Nc] i4, of generated tasks, those beyond J included
    task_size: np.ndarray  # [T, Nc, J] MB
    task_cycles: np.ndarray  # [T, Nc, J] cycles/bit
    task_rate: np.ndarray  # [T, Nc, J] tasks/s
    task_mean: np.ndarray  # [T, Nc, J] MB
    task_deadline: np.ndarray  # [T, Nc, J] s
    fading_v2v: np.ndarray  # [T, Nc, Ns] amplitude X
    fading_v2i: np.ndarray  # [T, Nc, Ne]
    pca_v2v_mean: np.ndarray  # [Nc*Ns] m
    pca_v2v: np.ndarray  # [components, Nc*Ns]
    pca_v2i_mean: np.ndarray  # [Nc*Ne] m
    pca_v2i: np.ndarray  # [components, Nc*Ne]
    mean_density: float  # cycles/bit, of all types
    calibration: Calibration = field(default_factory=Calibration)
    running: dict[str, np.ndarray] | None = None  # first running scales, see `calibration.warm_up`
    name: str = ""
    source: dict = field(default_factory=dict)  # where the positions come from
    index: int = 0
    seed: int = 264

    def __post_init__(self):
        for spec in fields(self):
            if spec.type is np.ndarray:
                object.__setattr__(self, spec.name, np.asarray(getattr(self, spec.name)))
        for name, kind in (("params", Params), ("calibration", Calibration)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}={getattr(self, name)!r:.60} must be a {kind.__name__}")
        for name in ("score_v2v", "score_v2i"):
            shape, wanted = getattr(self.calibration, name).shape, (self.params.components,)
            if shape != wanted:
                raise ValueError(f"calibration {name} has shape {shape}, must have {wanted} as Params.components")

    def __repr__(self) -> str:
        p = self.params
        return f"Scenario({self.name!r}, {p.clients} clients, {p.servers} servers, {p.edges} edges, {p.slots} slots)"

    def save(self, path):
        """Writes `<path>.npz` and `<path>.json`; a path may have one of these suffixes already."""
        arrays = {name: getattr(self, name) for name in file.shapes(self.params)}
        arrays |= self._running_arrays()
        header = {name: getattr(self, name) for name in HEADER}
        header["preset"] = _preset(self.params)
        header["params"] = asdict(self.params)
        header["calibration"] = {name: np.asarray(value).tolist() for name, value in vars(self.calibration).items()}
        file.write(path, arrays, header)

    def _running_arrays(self) -> dict[str, np.ndarray]:
        """First running scales as a file names them; other parameters may have left some without a use."""
        given, known = self.running or {}, running_shapes(self.params)
        return {file.RUNNING + name: scale for name, scale in given.items() if name in known}

    def check(self, where: str = "scenario") -> "Scenario":
        """Itself; ValueError names what in it has no meaning, and the array and the first index."""
        file.check(vars(self) | self._running_arrays(), self.params, where)
        file.check_header(self, where)
        if self.params.jumping_tracks:
            file.check_distances(self.distance_v2v, "distance_v2v", where)
            file.check_distances(self.distance_v2i, "distance_v2i", where)
        file.check_signals(self, where)
        return self

    @cached_property
    def distance_v2v(self) -> np.ndarray:
        """[T, Nc, Ns] m."""
        return distances(self.params, self.xy_client, self.xy_server)

    @cached_property
    def distance_v2i(self) -> np.ndarray:
        """[T, Nc, Ne] m."""
        return distances(self.params, self.xy_client, self.edge_xy)

    @cached_property
    def gain_v2v(self) -> np.ndarray:
        """[T, Nc, Ns], 0 where one of the two is inactive."""
        gain = links.gains(self.distance_v2v, self.fading_v2v, self.params.path_loss_exponent)
        return gain * self.active_client[:, :, None] * self.active_server[:, None, :]

    @cached_property
    def gain_v2i(self) -> np.ndarray:
        """[T, Nc, Ne], 0 where the client is inactive."""
        gain = links.gains(self.distance_v2i, self.fading_v2i, self.params.path_loss_exponent)
        return gain * self.active_client[:, :, None]

    @property
    def has_drawn_fading(self) -> bool:
        """Tells that the fading of the first slot and of the last is what Philox draws for this index and seed."""
        p, slots = self.params, np.array([0, self.params.slots - 1])
        v2v = fading(p, self.index, self.seed, slots, p.servers, V2V)
        v2i = fading(p, self.index, self.seed, slots, p.edges, V2I)
        return np.allclose(self.fading_v2v[slots], v2v) and np.allclose(self.fading_v2i[slots], v2i)

    @cached_property
    def in_range(self) -> np.ndarray:
        """True where a client reaches a server, [T, Nc, Ns] bool."""
        near = self.distance_v2v <= self.params.v2v_range_m
        near &= self.active_client[:, :, None] & self.active_server[:, None, :]
        if self.params.index_clash:  # Q7: indices of two unrelated lists
            near &= np.arange(self.params.clients)[:, None] != np.arange(self.params.servers)
        return near

    @cached_property
    def covered(self) -> np.ndarray:
        """True where a client reaches an edge node, [T, Nc, Ne] bool."""
        return (self.distance_v2i <= self.edge_range) & self.active_client[:, :, None]

    @cached_property
    def access(self) -> np.ndarray:
        """Access edge of a client, the first that covers it, -1 without one: [T, Nc] i4."""
        return links.first_true(self.covered)

    @cached_property
    def server_of(self) -> np.ndarray:
        """The k-th server in range of a client in the order of indices, -1 where there are fewer: [T, Nc, S] i4."""
        return links.true_indices(self.in_range, self.params.server_choices)

    @cached_property
    def order_v2v(self) -> np.ndarray:
        """Clients of every server, strongest gain first: [T, Ns, Nc] i4."""
        return links.strongest_first(self.gain_v2v)

    @cached_property
    def order_v2i(self) -> np.ndarray:
        """Clients of every edge node, strongest gain first: [T, Ne, Nc] i4."""
        return links.strongest_first(self.gain_v2i)

    @cached_property
    def wire_edge(self) -> np.ndarray:
        """Lengths between edge nodes, [Ne, Ne] m."""
        return links.distances(self.edge_xy, self.edge_xy)

    @cached_property
    def wire_cloud(self) -> np.ndarray:
        """Lengths to the cloud, [Ne] m."""
        return links.distances(self.edge_xy, self.cloud_xy[None])[:, 0]

    @property
    def wire(self) -> np.ndarray:
        """Lengths from edge nodes to edge nodes and the cloud, [Ne, Ne + 1] m."""
        return np.column_stack([self.wire_edge, self.wire_cloud])

    @property
    def wire_rate(self) -> np.ndarray:
        """Mbit/s of these wires, or what one bit per propagation delay leaves of it (Q8): [Ne, Ne + 1]."""
        p = self.params
        rate = np.array([p.edge_wire_mbps] * p.edges + [p.cloud_wire_mbps])
        speed = np.array([p.edge_wire_mps] * p.edges + [p.cloud_wire_mps])
        return rate / (1.0 + 1e6 * rate * self.wire / speed) if p.one_bit_wire else np.tile(rate, (p.edges, 1))

    @property
    def first_scales(self) -> dict[str, np.ndarray]:
        """First running scales by their names in the state: those given, else maxima of 0 and minima of infinity."""
        given, found = self.running or {}, {}
        for name, shape in running_shapes(self.params).items():
            nothing = np.inf if name.startswith("drift_min_") else 0.0
            found[name] = np.broadcast_to(given.get(name, nothing), shape).astype(np.float64)
        return found

    @cached_property
    def scores_v2v(self) -> np.ndarray:
        """[T, components] m."""
        distance = self.distance_v2v.reshape(len(self.xy_client), -1)
        return links.scores(distance, self.pca_v2v_mean, self.pca_v2v)

    @cached_property
    def scores_v2i(self) -> np.ndarray:
        """[T, components] m."""
        distance = self.distance_v2i.reshape(len(self.xy_client), -1)
        return links.scores(distance, self.pca_v2i_mean, self.pca_v2i)

    @cached_property
    def task_bits(self) -> np.ndarray:
        """[T, Nc, J] bit."""
        return self.task_size * BITS

    @cached_property
    def task_work(self) -> np.ndarray:
        """[T, Nc, J] cycles."""
        return self.task_bits * self.task_cycles


def _preset(params: Params) -> str | None:
    """The preset whose switches and drawing these are."""
    for name, chosen in PRESETS.items():
        if params == replace(params, **dict.fromkeys(SWITCHES, False) | {"draw": "philox"} | chosen):
            return name
    return None
