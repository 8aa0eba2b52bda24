"""Parameters, versions, presets and switches of marine navigation, and the layout of its state.

Axes: A robots, C vortex cores, O obstacles.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple

from lockstep.reading import nearest

from ..batch.port import checked_constant
from ..checks import choice

VERSIONS = ("thruster", "kinematic", "sonar")
NARROW = 0.4  # rad, of a substep's turn whose sine the kernel takes from a short polynomial
MOST = {"robots": 32, "cores": 64, "obstacles": 32}  # of an episode
SLOTS = 5  # neighbours that a robot sees at most, of a kind
BEAMS = 11  # of a sonar
PROPOSALS = 500  # of each stage of a drawing
START_MARGIN, OBSTACLE_MARGIN = 2.0, 5.0  # m, from the map's sides: of starts and goals, of obstacles' centres
OBSERVED = {"thruster": 7 + 6 * SLOTS, "kinematic": 4 + 7 * SLOTS, "sonar": 4 + 2 * BEAMS}  # numbers
RATES = (0.0, -0.5, -1.0, 0.5, 1.0)  # of the largest rate of thrust, by digit of a discrete action to base five
# Encounters under COLREGs.
SLOW = 0.5  # m/s, below which there is none
MARGIN = 1.0  # m, added to the other's radius
HEAD_ON = (0.0, 17.0, 4.5)  # m, of the box in the other's axes: first and last x, largest |y|
CROSSING = (-9.0, 12.0, -17.0, 7.0 / 12.0)  # m: first and last x, least y, and s; the largest y is 0 and -s x


class Setting(NamedTuple):
    """Numbers that an episode is drawn for; fewer may find a place."""

    robots: int  # A
    cores: int  # C
    obstacles: int  # O
    min_goal_distance: float  # D_min, m


def _of(thruster, kinematic, sonar, **allowed):
    """A field whose default is the version's."""
    return field(
        default=None, metadata={"of": dict(zip(VERSIONS, (thruster, kinematic, sonar), strict=True))} | allowed
    )


def _number(default: float, **allowed):
    return field(default=default, metadata=allowed)


def _switch():
    return field(default=False, metadata={"switch": True})


@dataclass(frozen=True)
class Params:
    """One configuration; what is None becomes the version's (README.md, 1 and 2).

    Raises:
        ValueError: a value of the wrong kind or out of range, or values that do not fit together; names the field, the
            value and what is allowed.
    """

    version: Literal["thruster", "kinematic", "sonar"] = "thruster"
    action_kind: Literal["continuous", "discrete"] = _of("continuous", "discrete", "discrete")

    # An episode.
    robots: int = _of(5, 5, 1, least=1, most=MOST["robots"])  # A
    cores: int = _of(0, 6, 8, least=0, most=MOST["cores"])  # C
    obstacles: int = _of(4, 6, 10, least=0, most=MOST["obstacles"])  # O
    min_goal_distance: float = _of(40.0, 40.0, 40.0, least=0.0)  # D_min, m, from a start to its goal
    max_steps: int = _number(1000, least=1, most=2**31 - 2)
    non_cooperative: int = _number(0, least=0)  # n: the last n robots see no robot (kinematic)
    stop_at_collision: bool = False  # the first collision ends the episode for all

    # Space and time.
    width: float = _of(55.0, 50.0, 50.0, positive=True)  # W, m, of the square map
    dt: float = _of(0.05, 0.05, 0.1, positive=True)  # s, of a substep
    substeps: int = _number(10, least=1, most=10_000)
    hull_length: float = _of(5.0, 1.0, 1.0, positive=True)  # m
    hull_width: float = _of(2.5, 0.5, 0.5, positive=True)  # m
    collision_radius: float = _of(math.sqrt(5.0**2 + 2.5**2) / 2, 0.8, 0.8, positive=True)  # R, m
    clear: float = _of(10.0, 5.0, 10.0, least=0.0)  # m, kept free round starts and goals
    core_radius: float = _number(0.5, positive=True)  # r_c, m
    edge_speed_low: float = _of(3.0, 5.0, 5.0, positive=True)  # v_e, m/s
    edge_speed_high: float = _of(3.0, 10.0, 10.0, positive=True)
    obstacle_low: float = _of(1.0, 1.0, 1.0, positive=True)  # m, radius
    obstacle_high: float = _of(1.0, 1.0, 3.0, positive=True)
    goal_radius: float = _number(2.0, positive=True)  # m
    perception_range: float = _of(20.0, 15.0, 10.0, positive=True)  # m
    beam_angle: float = _number(math.pi / 3, positive=True, most=math.pi)  # rad, of the outermost beams

    # Rewards.
    step_reward: float = _of(-0.1, -1.0, -1.0)
    collision_reward: float = _of(-5.0, -50.0, -50.0)
    goal_reward: float = _of(10.0, 100.0, 100.0)
    colregs_weight: float = _of(-0.1, 0.0, 0.0)  # per rad

    # The kinematic boat, which is the sonar's too.
    acceleration: float = _number(0.4, positive=True)  # m/s²
    turn_rate: float = _number(math.pi / 6, positive=True)  # rad/s
    speed_drag: float = _number(0.2, least=0.0)  # k, 1/s
    top_speed: float = _number(2.0, positive=True)  # m/s, through the water

    # The thruster boat.
    mass: float = _number(400.0, positive=True)  # m, kg
    inertia: float = _number(450.0, positive=True)  # I_z, kg m²
    added_surge: float = 20.0  # X_udot, kg
    added_yaw: float = -980.0  # N_rdot, kg m²
    surge_drag: float = _number(100.0, least=0.0)  # kg/s, and with the square of the speed:
    surge_drag_square: float = _number(150.0, least=0.0)  # kg/m
    sway_drag: float = _number(100.0, least=0.0)
    sway_drag_square: float = _number(150.0, least=0.0)
    yaw_drag: float = _number(980.0, least=0.0)  # kg m²/s
    yaw_drag_square: float = _number(950.0, least=0.0)  # kg m²
    thrust_low: float = -500.0  # N, of a thruster
    thrust_high: float = 1000.0
    thrust_rate: float = _number(1000.0, positive=True)  # N/s, of an action of 1
    lever: float = _number(1.25, positive=True)  # m, from a thruster to the middle line

    # Perception of the thruster version.
    position_noise: float = _number(0.05, least=0.0)  # m, standard deviation per axis
    velocity_noise: float = _number(0.05, least=0.0)  # m/s
    radius_mean: float = _number(0.8, positive=True)  # seen radius = radius (mean + spread ξ/π), ξ ~ von Mises(0, 1)
    radius_spread: float = _number(0.2, least=0.0)

    # Behaviour of the published code that `corrected` mends; README.md, 3, has a line on each.
    turn_counted_twice: bool = _switch()
    velocity_lag: bool = _switch()
    limit_extra_step: bool = _switch()
    limit_beats_end: bool = _switch()
    start_without_current: bool = _switch()
    opposite_cores_overlap: bool = _switch()
    shared_noise: bool = _switch()
    beam_break: bool = _switch()
    nearest_centre_only: bool = _switch()
    vortex_shadowing: bool = _switch()

    def __post_init__(self):
        choice("version", self.version, VERSIONS)
        for spec in fields(self):
            value = getattr(self, spec.name)
            value = spec.metadata["of"][self.version] if value is None and "of" in spec.metadata else value
            object.__setattr__(self, spec.name, checked(spec, value))
        if self.action_kind == "continuous" and self.version != "thruster":
            raise ValueError(f"action_kind='continuous' must be 'discrete' where version={self.version!r}")
        if self.non_cooperative and self.version != "kinematic":
            raise ValueError(f"non_cooperative={self.non_cooperative} must be 0 where version={self.version!r}")
        self._check_alone(self.robots)
        if self.width <= 2 * OBSTACLE_MARGIN:
            raise ValueError(f"width={self.width} must be more than {2 * OBSTACLE_MARGIN}, the margins of obstacles")
        for low, high in (("edge_speed_low", "edge_speed_high"), ("obstacle_low", "obstacle_high")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low}={getattr(self, low)} must not exceed {high}={getattr(self, high)}")
        if not self.thrust_low <= 0 <= self.thrust_high:
            raise ValueError(f"thrust_low={self.thrust_low}, thrust_high={self.thrust_high} must have 0 between them")
        for name, inertia in (("added_surge", self.surge_inertia), ("added_yaw", self.yaw_inertia)):
            if inertia <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be less than the inertia that it is taken from")
        if self.radius_spread >= self.radius_mean:
            raise ValueError(f"radius_spread={self.radius_spread} must be less than radius_mean={self.radius_mean}")
        if self.version != "thruster" and self.turn_rate * self.dt >= 2 * math.pi:
            raise ValueError(f"turn_rate={self.turn_rate} must be less than {2 * math.pi / self.dt:.6g}, a turn in dt")
        for motion, rate in self.rates.items():
            if self.dt * rate >= 2:
                raise ValueError(
                    f"dt={self.dt} must be less than {2 / rate:.6g} s, or with these masses, forces and drags substeps "
                    f"of the {motion} grow at top speed"
                )

    def _check_alone(self, robots: int, where: str = ""):
        if self.version == "sonar" and robots != 1:
            raise ValueError(f"{where}robots={robots} must be 1 where version='sonar'")

    # ---- what follows from the numbers

    @property
    def setting(self) -> Setting:
        """The episodes that are drawn without a curriculum or scenarios."""
        return Setting(self.robots, self.cores, self.obstacles, self.min_goal_distance)

    @property
    def period(self) -> float:
        """Control period, s."""
        return self.substeps * self.dt

    @property
    def limit(self) -> int:
        """Steps of an episode that nothing else ends."""
        return self.max_steps + self.limit_extra_step

    @property
    def hull_radius(self) -> float:
        """Half the diagonal of a hull, m."""
        return math.sqrt(self.hull_length * self.hull_length + self.hull_width * self.hull_width) / 2

    @property
    def surge_inertia(self) -> float:
        """A_11 = m - X_udot, kg."""
        return self.mass - self.added_surge

    @property
    def yaw_inertia(self) -> float:
        """A_33 = I_z - N_rdot, kg m²."""
        return self.inertia - self.added_yaw

    @property
    def rates(self) -> dict[str, float]:
        """Rates at which substeps change each motion at top speed, 1/s: where one times dt is under 2 they do not grow.

        Top speed is where drag holds the largest force, or what this force gives in an episode without drag. Beside
        the slope of the drag stands what a turn moves between surge and sway; a heading may change by less than a turn.
        """
        if self.version != "thruster":
            return {"speed": self.speed_drag}
        longest = self.limit * self.period
        moved = abs(self.added_surge) + self.turn_counted_twice * self.mass
        r = min(settled(self.twist, self.yaw_drag, self.yaw_drag_square), self.twist / self.yaw_inertia * longest)
        push = 2 * max(self.thrust_high, -self.thrust_low)
        u = min(settled(push, self.surge_drag, self.surge_drag_square), push / self.surge_inertia * longest)
        v = settled(moved * u * r, self.sway_drag, self.sway_drag_square)
        v = min(v, moved * u * r / self.mass * longest)
        return {
            "surge": (self.surge_drag + 2 * self.surge_drag_square * u + moved * r) / self.surge_inertia,
            "sway": (self.sway_drag + 2 * self.sway_drag_square * v + moved * r) / self.mass,
            "yaw rate": (self.yaw_drag + 2 * self.yaw_drag_square * r) / self.yaw_inertia,
            "heading": r / math.pi,
        }

    @property
    def twist(self) -> float:
        """Largest moment of both thrusters, N m."""
        return self.lever * (self.thrust_high - self.thrust_low)

    @property
    def turns_wide(self) -> bool:
        """True if a substep may turn a boat by more than half of what a short polynomial for its sine is for."""
        if self.version != "thruster":
            return self.turn_rate * self.dt > NARROW / 2
        last = settled(self.twist, self.yaw_drag, self.yaw_drag_square)  # rad/s; a substep may go beyond it
        return (last + self.twist * self.dt / self.yaw_inertia) * self.dt > NARROW / 2

    @property
    def most_yaw_rate(self) -> float:
        """Largest yaw rate of a thruster boat that a state may have, rad/s."""
        return math.inf if self.turns_wide else NARROW / self.dt

    @property
    def observed(self) -> int:
        """Numbers of an observation."""
        return OBSERVED[self.version]

    @property
    def choices(self) -> int:
        """Number of discrete actions."""
        return 25 if self.version == "thruster" else 9

    def widened(self, every: Iterable[tuple[int, int, int]]) -> "Params":
        """Parameters that hold as many robots, cores and obstacles as any of some episodes has.

        Raises:
            ValueError: `non_cooperative` is more than these robots.
        """
        wide = replace(self, **dict(zip(MOST, map(max, zip(*every, strict=True)), strict=True)))
        if wide.non_cooperative > wide.robots:
            raise ValueError(f"non_cooperative={wide.non_cooperative} must be at most robots={wide.robots}")
        return wide

    def check_setting(self, given, where: str = "") -> Setting:
        """The setting of four numbers (A, C, O, D_min).

        Raises:
            ValueError: others, or no such episode can be drawn; `where` stands before the field's name.
        """
        specs = {spec.name: spec for spec in fields(self)}
        try:
            named = Setting(*given)._asdict().items()
        except TypeError:
            raise ValueError(f"{where}{given!r:.60} must be four numbers (A, C, O, D_min)") from None
        setting = Setting(*(checked(specs[name], value, where) for name, value in named))
        self._check_alone(setting.robots, where)
        diagonal = (self.width - 2 * START_MARGIN) * math.sqrt(2.0)
        if setting.min_goal_distance >= diagonal:
            raise ValueError(
                f"{where}min_goal_distance={setting.min_goal_distance} must be less than {diagonal:.6g}, "
                "the diagonal of the square that starts and goals lie in"
            )
        return setting


def settled(force: float, drag: float, square: float) -> float:
    """Speed at which drag, of the speed and of its square, holds a force; infinite where there is none."""
    fall = drag + math.sqrt(drag * drag + 4 * square * force)
    return 2 * force / fall if fall else math.inf


def given_params(given) -> Params:
    """The parameters themselves; ValueError unless they are `Params`."""
    if not isinstance(given, Params):
        raise ValueError(f"params={given!r:.60} must be Params, as make_params makes them")
    return given


SWITCHES = tuple(spec.name for spec in fields(Params) if spec.metadata.get("switch"))
PRESETS = {
    "corrected": {},
    "original": {name: True for name in SWITCHES if name != "vortex_shadowing"},
}


def checked(spec, value, where: str = ""):
    """The value of a field of `Params`; ValueError, after `where`, names field, value and what is allowed."""
    value = checked_constant(f"{where}{spec.name}", value, spec)
    least, most = spec.metadata.get("least"), spec.metadata.get("most")
    if least is not None and value < least:
        raise ValueError(f"{where}{spec.name}={value} must be at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{where}{spec.name}={value} must be at most {most}")
    return value


def make_params(version: str = "thruster", preset: str | None = None, options: Iterable[str] = (), **chosen) -> Params:
    """The parameters of a version and preset (None: "corrected") with single ones replaced.

    Args:
        options: further names, which an error knows.

    Raises:
        ValueError: an unknown version, preset or parameter (the nearest known name is given), or what `Params` refuses.
    """
    for name, value, known in (("version", version, VERSIONS), ("preset", preset, PRESETS)):
        if value not in known if isinstance(value, str) else (name, value is None) != ("preset", True):
            raise ValueError(f"{name}={value!r} is unknown{nearest(value, known)}")
    known = [spec.name for spec in fields(Params)]
    for name in chosen:
        if name not in known:
            raise ValueError(
                f"marine_navigation has no parameter or option {name!r}{nearest(name, [*options, *known])}"
            )
    return Params(version=version, **PRESETS[preset or "corrected"] | chosen)
