"""Parameters, switches and sizes of the vehicular edge, and the layout of its state."""

import math
from dataclasses import dataclass, field, fields
from typing import Literal

from ..batch.port import checked_constant
from . import published

AGENTS = ("offloading", "allocation")
BITS = 8e6  # of a MB
MBIT = BITS * 1e-6  # of a MB
SERVER_PROBABILITY = 0.3  # that a vehicle serves others
FAMILIES = ("lc", "v2v", "vc", "v2i", "i2i", "ec", "i2c", "cc")  # of real queues
WEIGHTS = {"lc": 0.7, "v2v": 0.9, "vc": 0.7, "v2i": 0.9, "i2i": 0.8, "ec": 0.7, "i2c": 0.8, "cc": 0.7}  # of a bit in L
WAITING = 0.02  # kappa, charge for a slot in L
DRIFTS = ("delay", "lc", "vc", "ec", "cc")  # families of the published drift (Q10)
LEAST, MOST = 1e-9, 1e9  # of an amount in its unit
MOST_OF_A_TASK = 1e5  # MB, cycles/bit, tasks/s: float32 holds squares of their products, summed over many tasks
MOST_SLOTS = 10_000  # the main components take a matrix of slots x slots
INT16 = 2**15 - 1  # orders of clients are kept in it
MOST_TASKS = 2**16 - 1  # of a client in a slot: kernels keep them in 16 bits, without a sign
LARGEST_SHARE = 1e30  # of an action in integer form; float32 holds the sum of so many
LENGTH = 2**19  # of an action at most
ARRIVALS = 10**8  # of all slots at most, drawn at 12 bytes each
STREAMS = 2**19  # of arrivals at most, a loop in Python each


def _count(default: int, least: int = 1, most: int = 2**31 - 1) -> int:
    return field(default=default, metadata={"least": least, "most": most})


def _derived(most: int = INT16) -> int:
    return _count(0, least=0, most=most)  # 0 is what the published drawing gives


def _amount(default: float, least: float = LEAST, most: float = MOST) -> float:
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True)
class Params:
    """One configuration; sizes that are 0 become what the published drawing with `size_seed` gives.

    Raises:
        ValueError: a value of the wrong kind or out of range, or values that do not fit together; names the field, the
            value and what is allowed.
    """

    # Sizes.
    slots: int = _count(50, least=2, most=MOST_SLOTS)  # T, slots per episode, 1 s each
    vehicles: int = _count(70, least=2, most=INT16)  # N, clients and servers
    edges: int = _count(9, most=2**12)  # Ne; queues and wires go from each to each
    types: int = _count(100, most=10_000)  # K, task types
    server_choices: int = _count(5, most=INT16)  # S, servers a client can choose from
    components: int = _count(10)  # PCA scores of each kind of distance
    size_seed: int = _count(264, least=0, most=2**32 - 1)
    type_slots: int = _derived(most=10_000)  # M, task types of a client: a tenth of all
    clients: int = _derived()  # Nc
    servers: int = _derived()  # Ns
    tasks: int = _derived(most=2**16)  # J, task slots per client and slot
    cap_local: int = _derived(most=2**16)  # tasks admitted per slot: by a client,
    cap_server: int = _derived(most=2**16)  # a server vehicle,
    cap_edge: int = _derived(most=2**16)  # an edge node,
    cap_cloud: int = _derived(most=2**16)  # the cloud

    # Numbers and ranges from which a scenario is drawn.
    draw: Literal["philox", "published"] = "philox"
    size_low_mb: float = _amount(0.01, most=MOST_OF_A_TASK)  # of a type's range of task sizes
    size_high_mb: float = _amount(5.0, most=MOST_OF_A_TASK)
    density_low: float = _amount(100.0, most=MOST_OF_A_TASK)  # cycles/bit
    density_high: float = _amount(500.0, most=MOST_OF_A_TASK)
    vehicle_low_ghz: float = _amount(10.0)
    vehicle_high_ghz: float = _amount(50.0)
    power_low_mw: float = _amount(500.0)
    power_high_mw: float = _amount(1000.0)
    arrival_low: float = _amount(0.5)  # tasks/s of a type slot
    arrival_high: float = _amount(1.0, most=500.0)  # exp(-500) is still a float64
    deadline_low_s: float = _amount(5.0)
    deadline_high_s: float = _amount(10.0)
    edge_slow_ghz: float = _amount(50.0)  # with probability 0.3,
    edge_medium_ghz: float = _amount(275.0)  # 0.4,
    edge_fast_ghz: float = _amount(500.0)  # 0.3
    cloud_ghz: float = _amount(1000.0)
    v2v_range_m: float = _amount(100.0)
    edge_range_low_m: float = _amount(100.0)
    edge_range_high_m: float = _amount(300.0)

    # Radio, wire and reward.
    bandwidth_v2v_mhz: float = _amount(20.0)
    bandwidth_v2i_mhz: float = _amount(20.0)
    noise_dbm: float = _amount(-90.0, least=-300.0, most=100.0)  # float32 holds 1/N0
    path_loss_exponent: float = _amount(3.0)
    fading_scale: float = _amount(1.0)  # of the Rayleigh amplitude
    edge_wire_mbps: float = _amount(100.0)  # R_I, between edge nodes
    cloud_wire_mbps: float = _amount(1000.0)  # R_C, to the cloud
    edge_wire_mps: float = _amount(2e8)  # v_I, speed of a signal
    cloud_wire_mps: float = _amount(2.25e8)  # v_C
    penalty_weight: float = _amount(1.0)  # omega

    # Behaviour of the published code that `physical` corrects; README.md, 3, has a line on each.
    cloud_only_at_one: bool = False  # Q1
    interference_in_mw: bool = False  # Q2
    rate_weighted_bits: bool = False  # Q3
    slot_tandem: bool = False  # Q4
    slow_cpu_serves: bool = False  # Q5
    edge_range_is_v2v: bool = False  # Q6
    index_clash: bool = False  # Q7
    one_bit_wire: bool = False  # Q8
    cpu_virtual_queues: bool = False  # Q9
    unsigned_drift: bool = False  # Q10
    running_scales: bool = False  # Q11
    frozen_scenario: bool = False  # Q12
    silent_overflow: bool = False  # Q13
    idle_last_slot: bool = False  # Q14
    jumping_tracks: bool = False  # Q15
    local_time_window: bool = False  # Q16
    fixed_priority: bool = False  # Q17
    silent_ties: bool = False  # Q18
    zero_max_is_one: bool = False  # Q19
    rejected_transmit: bool = False  # Q20
    all_covering_pay: bool = False  # Q21
    idle_power_paid: bool = False  # Q22
    empty_places_idle: bool = False  # Q23
    hindsight_means: bool = False  # Q24
    shared_slot_size: bool = False  # Q25
    raw_observation: bool = False  # Q26

    def __post_init__(self):
        for spec in fields(self):
            value = checked_constant(spec.name, getattr(self, spec.name), spec)
            least, most = spec.metadata.get("least"), spec.metadata.get("most")
            if least is not None and value < least:
                raise ValueError(f"{spec.name}={value} must be at least {least}")
            if most is not None and value > most:
                raise ValueError(f"{spec.name}={value} must be at most {most}")
            object.__setattr__(self, spec.name, value)
        for low, high in (("size", "mb"), ("vehicle", "ghz"), ("power", "mw"), ("edge_range", "m"), ("deadline", "s")):
            self._require_order(f"{low}_low_{high}", f"{low}_high_{high}")
        self._require_order("density_low", "density_high")
        self._require_order("arrival_low", "arrival_high")
        self._derive()
        if self.action_length > LENGTH:
            raise ValueError(
                f"clients={self.clients}, servers={self.servers}, edges={self.edges}, tasks={self.tasks} and caps "
                f"{self.cap_local}, {self.cap_server}, {self.cap_edge} and {self.cap_cloud} make actions of "
                f"{self.action_length} numbers, must be at most {LENGTH}"
            )
        if self.clients + self.servers != self.vehicles:
            raise ValueError(
                f"clients={self.clients} and servers={self.servers} must add up to vehicles={self.vehicles}"
            )
        most = min(self.slots, self.clients * self.servers, self.clients * self.edges)
        if self.components > most:
            raise ValueError(f"components={self.components} must be at most {most}, the least of slots and links")

    def _require_order(self, low: str, high: str):
        if getattr(self, low) > getattr(self, high):
            raise ValueError(f"{low}={getattr(self, low)} must not exceed {high}={getattr(self, high)}")

    def _require_product(self, most: int, *names: str):
        product = math.prod(getattr(self, name) for name in names)
        if product > most:
            given = " x ".join(f"{name}={getattr(self, name)}" for name in names)
            raise ValueError(f"{given} is {product}, must be at most {most}")

    def _derive(self):
        def give(name: str, value: int):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)

        give("type_slots", max(1, int(0.1 * self.types)))
        self._require_product(STREAMS, "vehicles", "type_slots")
        self._require_product(ARRIVALS, "slots", "vehicles", "type_slots")
        found = published.sizes(
            self.size_seed, self.vehicles, self.types, self.type_slots, self.slots,
            (self.size_low_mb, self.size_high_mb), (self.arrival_low, self.arrival_high), SERVER_PROBABILITY,
        )  # fmt: skip
        for one, other in (("clients", "servers"), ("servers", "clients")):
            if getattr(self, one) > 0 and getattr(self, other) == 0:
                if getattr(self, one) >= self.vehicles:
                    raise ValueError(f"{one}={getattr(self, one)} must leave {other} of vehicles={self.vehicles}")
                give(other, self.vehicles - getattr(self, one))
        for name, value in found.items():
            give(name, value)
        for name in ("clients", "servers"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name}=0 must be at least 1: size_seed={self.size_seed} draws none of vehicles={self.vehicles}, "
                    f"give clients and servers"
                )

    # ---- what follows from the sizes

    @property
    def options(self) -> int:
        """O: local, the server choices, the edges, the cloud."""
        return 1 + self.server_choices + self.edges + 1

    @property
    def target_length(self) -> int:
        """A0: numbers of an action that choose a target."""
        return self.clients * self.tasks

    @property
    def share_length(self) -> int:
        """A1: numbers of an action that share CPU and power."""
        return (
            self.clients * (self.cap_local + 2)
            + self.servers * self.cap_server
            + self.edges * self.cap_edge
            + self.cap_cloud
        )

    @property
    def action_length(self) -> int:
        """A: of both agents, the longer one's."""
        return max(self.target_length, self.share_length)

    @property
    def observation_length(self) -> int:
        """D."""
        Nc, Ns, Ne = self.clients, self.servers, self.edges
        return 2 * self.tasks * Nc + Nc + self.components + 2 * Ns + self.components + 3 * Ne + 2

    @property
    def noise_watt(self) -> float:
        """N0."""
        return 10.0 ** (self.noise_dbm / 10.0 - 3.0)


SWITCHES = tuple(spec.name for spec in fields(Params) if spec.type is bool)  # SWITCHES[n - 1] is Qn
PRESETS = {
    "physical": {},
    "original": dict.fromkeys(SWITCHES, True) | {"draw": "published"},
}


def queue_shapes(params: Params) -> dict[str, tuple[int, ...]]:
    """Shape of each family of real queues: pooled, or routed by destination (a access edge, d destination)."""
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    pooled = params.slot_tandem
    return {
        "lc": (Nc,),
        "v2v": (Ns,),
        "vc": (Ns,),
        "v2i": (Ne,) if pooled else (Ne, Ne + 1),  # [a, d], d = Ne is the cloud
        "i2i": (Ne,) if pooled else (Ne, Ne),  # of target e; routed: [a, e]
        "ec": (Ne,),
        "i2c": (1,) if pooled else (Ne,),
        "cc": (1,),
    }


def state_shapes(params: Params) -> dict[str, tuple[int, ...]]:
    """Shape of every field of the state, in order; its vector is their concatenation.

    Backlogs and virtual queues in Mbit, `cpu_*` in Gcycles, `max_*` and `drift_*` in the unit of what they bound.
    """
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    shapes = dict(queue_shapes(params)) | {"delay": (Nc,)}
    if params.cpu_virtual_queues:
        shapes |= {"cpu_lc": (Nc,), "cpu_vc": (Ns,), "cpu_ec": (Ne,), "cpu_cc": (1,)}
    return shapes | running_shapes(params)


def running_shapes(params: Params) -> dict[str, tuple[int, ...]]:
    """Shape of every running scale, the fields of the state that outlive an episode."""
    Nc, Ns, Ne, shapes = params.clients, params.servers, params.edges, {}
    if params.running_scales:
        reported = {"lc": Nc, "v2v": Ns, "vc": Ns, "v2i": Ne, "i2i": Ne, "ec": Ne, "i2c": 1, "cc": 1}
        shapes |= {f"max_{name}": (n,) for name, n in reported.items()}  # of the observed backlogs
        costs = {"power_v2v": Nc, "power_v2i": Nc, "lc": Nc, "vc": Ns, "ec": Ne, "i2i": Ne, "i2c": Ne, "cc": 1}
        shapes |= {f"cost_{name}": (n,) for name, n in costs.items()}  # largest so far, of each cost
    if params.running_scales and params.unsigned_drift:
        entities = {"delay": Nc, "lc": Nc, "vc": Ns, "ec": Ne, "cc": 1}
        shapes |= {f"drift_min_{name}": (entities[name],) for name in DRIFTS}
        shapes |= {f"drift_max_{name}": (entities[name],) for name in DRIFTS}
    return shapes


def limits(name: str) -> tuple[float, bool]:
    """The least number that a field of the state can hold, and whether all are finite, as bounds of a drift are not."""
    return (-math.inf, False) if name.startswith("drift_") else (0.0, True)
