"""Slots that the original of the vehicular edge plays, and their outcome.

Episodes under several policies; every slot of them is a case to compare one step on, and the whole of them a case to
compare episodes on. Symbols: E episodes, T slots of an episode, n = E T slots of all, A numbers of an action, k numbers
of a state, F numbers of all real queues; Nc clients, Ns servers, Ne edges, J task slots, S server choices.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lockstep import envs
from lockstep.experiments import config, originals
from lockstep.experiments.config import ConfigError, Settings, nearest

POLICIES = ("uniform", "cloud", "zero", "clustered", "scattered")  # what each does: `raw_actions`, `scattered`
SCENARIOS = 2  # of each map; episodes take them in turn
TARGETS = 3  # of a slot under "clustered"


@dataclass(frozen=True)
class Setting:
    """What is compared in one piece: a preset at one size, on several maps."""

    name: str  # of the environment
    preset: str
    size: str  # as the YAML names it
    parameters: tuple  # (name, value) of what differs from the default size
    maps: tuple
    episodes: tuple  # (policy, how many on each map)
    seed: int

    @property
    def label(self) -> str:
        return f"{self.preset}, {self.size}"


def settings_of(name: str, settings: Settings) -> list[Setting]:
    """What the YAML asks for: every preset at every size.

    Raises:
        ConfigError: a preset that the port does not have.
    """
    asked, found = settings.correctness, []
    known = list(envs.port(name).presets)
    for preset in asked.presets:
        if preset not in known:
            where = f"{config.shown(config.file_of(name))}: correctness.presets"
            raise ConfigError(f"{where}: unknown preset {preset!r}{nearest(preset, known)}")
        for size, section in asked.sizes.items():
            parameters, episodes = (tuple(section.get(key, {}).items()) for key in ("parameters", "episodes"))
            found.append(Setting(name, preset, size, parameters, asked.maps, episodes, settings.seed))
    return found


class Slots(NamedTuple):
    """What the original makes of n slots."""

    before: np.ndarray  # [n, k] state at the start of the slot
    after: np.ndarray  # [n, k]
    flows: np.ndarray  # [n, 3, F + Nc] in, out and what departed: of the real queues in their order, then of the delay
    numbers: np.ndarray  # [n, 6] NUMBERS
    dropped: np.ndarray  # [n, 3] tasks: beyond J, by a cap, without an access edge
    admitted: np.ndarray  # [n, Nc, J] bool
    target: np.ndarray  # [n, Nc, J] option as tried, 0 where there is no task
    observation: np.ndarray  # [n, D] float32, of the next slot
    truncated: np.ndarray  # [n] bool


NUMBERS = ("cost", "drift", "success", "reward", "energy", "jain")


class Cases:
    """The episodes of a setting: on each map the same numbers of each policy."""

    def __init__(self, setting: Setting):
        self.setting = setting
        policies = [policy for policy, count in setting.episodes for _ in range(count)]
        self.policies = policies * len(setting.maps)  # [E]
        self.map = np.repeat(np.arange(len(setting.maps)), len(policies))  # [E] number of the map
        self.number = np.arange(len(self.policies))  # [E]
        # On each map the episodes take its scenarios in turn.
        self.scenario = SCENARIOS * self.map + self.number % SCENARIOS  # [E] place in `scenarios`

    @functools.cached_property
    def scenarios(self) -> list:
        """SCENARIOS of each map."""
        setting = self.setting
        options = {"preset": setting.preset, **dict(setting.parameters)}
        return [
            envs.make_original(setting.name, traffic=traffic, index=index, **options).scenarios[0]
            for traffic in setting.maps
            for index in range(SCENARIOS)
        ]

    @property
    def params(self):
        return self.scenarios[0].params

    @property
    def slots(self) -> int:
        return self.params.slots

    @functools.cached_property
    def shapes(self) -> dict[str, tuple]:
        """Shapes of the state's fields, in the order in which they stand in a state [k]."""
        env = envs.make_original(self.setting.name, scenario=self.scenarios[0])
        env.reset(seed=0)
        return {field: value.shape for field, value in envs.original(self.setting.name).get_state(env).items()}

    @property
    def queues(self) -> list[str]:
        """The real queues and the virtual one of the delay: fields of the state, and columns of `flows`."""
        fields = list(self.shapes)
        return fields[: fields.index("delay") + 1]

    def cpu(self, family: str) -> np.ndarray:
        """What every node of a family computes in a slot, [n, nodes] Gcycles."""
        of_family = {"lc": "client_cpu", "vc": "server_cpu", "ec": "edge_cpu"}
        if family not in of_family:
            return np.full((len(self.t), 1), self.params.cloud_ghz)
        return np.stack([getattr(one, of_family[family]) for one in self.scenarios])[self.place]

    @functools.cached_property
    def place(self) -> np.ndarray:
        """[n] in `scenarios`."""
        return np.repeat(self.scenario, self.slots)

    @functools.cached_property
    def raw(self) -> np.ndarray:
        """Actions [E, T, agents, A] float32."""
        chosen = zip(self.number.tolist(), self.policies, strict=True)
        return np.stack([raw_actions(self.params, policy, number, self.setting.seed) for number, policy in chosen])

    @functools.cached_property
    def t(self) -> np.ndarray:
        """[n]"""
        return np.tile(np.arange(self.slots), len(self.number))

    def episodes_of(self, *policies: str) -> np.ndarray:
        """Numbers of the episodes under some policies."""
        return np.flatnonzero(np.isin(self.policies, policies))

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def start(self) -> Callable:
        """Has the original play, on all cores, and does not wait."""
        by_policy = np.array([POLICIES.index(policy) for policy in self.policies])
        same = {"name": self.setting.name, "scenarios": self.scenarios, "seed": self.setting.seed}
        # Workers get equal shares of every map and policy.
        mixed = np.random.default_rng(self.setting.seed).permutation(len(self.number))
        arrays = (array[mixed] for array in (self.number, self.scenario, by_policy))
        wait, back = originals.on_all_cores(play, *arrays, **same), np.argsort(mixed)

        @functools.cache
        def in_order() -> Slots:
            rows = (column.reshape(len(back), -1, *column.shape[1:])[back] for column in wait())
            return Slots(*(column.reshape(-1, *column.shape[2:]) for column in rows))

        return in_order

    @property
    def played(self) -> Slots:
        return self.start()()


# ---- what is played ----------------------------------------------------------------------------------------------


def raw_actions(params, policy: str, number: int, seed: int) -> np.ndarray:
    """Actions of an episode, [T, 2, A] float32 in [0, 1].

    uniform and scattered: every number uniform. cloud: every target 1. zero: every share 0. clustered: TARGETS
    different targets in a slot, 1 among them, so that caps fill; three shares in ten are 0.
    """
    T, A = params.slots, params.action_length
    rng = np.random.default_rng([seed, number, POLICIES.index(policy)])
    raw = rng.random((T, 2, A), dtype=np.float32)
    if policy == "cloud":
        raw[:, 0] = 1
    elif policy == "zero":
        raw[:, 1] = 0
    elif policy == "clustered":
        few = rng.random((T, TARGETS), dtype=np.float32)
        few[:, 0] = 1
        raw[:, 0] = np.take_along_axis(few, rng.integers(TARGETS, size=(T, A)), axis=1)
        raw[:, 1] *= rng.random((T, A)) < 0.7
    return raw


def scattered(shapes: Mapping[str, tuple], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A state with numbers over five orders of magnitude, three in ten of them 0; float32 numbers in float64.

    Running minima (`drift_min_*`) lie below 0, or are what they are before the first: +inf.
    """
    state = {}
    for name, shape in shapes.items():
        value = 10.0 ** rng.uniform(-2, 3, shape) * (rng.random(shape) < 0.7)
        if name.startswith("drift_min"):
            value = np.where(value > 0, -value, np.inf)
        state[name] = value.astype(np.float32).astype(np.float64)
    return state


def play(
    numbers, places, policies, *, name: str, scenarios: Sequence, seed: int, indexed: bool = True
) -> tuple[np.ndarray, ...]:
    """Episodes of the original: the fields of `Slots`, slots of one episode after the other.

    Args:
        numbers: [E] of the episodes, which fix their actions.
        places: [E] in `scenarios`.
        policies: [E] in POLICIES.
        indexed: the form of the original that keeps lists, which changes no bit.
    """
    module = envs.original(name)
    made: dict = {}
    rows: list[tuple] = []
    for number, place, policy in zip(numbers.tolist(), places.tolist(), policies.tolist(), strict=True):
        if place not in made:
            made[place] = envs.make_original(name, scenario=scenarios[place], indexed=indexed)
        env = made[place]
        env.reset(seed=0)  # a seed puts the first running scales back
        shapes = {field: value.shape for field, value in module.get_state(env).items()}
        rng = np.random.default_rng([seed, number])
        for action in raw_actions(env.params, POLICIES[policy], number, seed):
            if POLICIES[policy] == "scattered":
                module.set_state(env, scattered(shapes, rng), env.t)
            before = flat(module.get_state(env))
            seen, _, _, truncated, _ = env.step(dict(zip(env.possible_agents, action, strict=True)))
            rows.append((before, flat(module.get_state(env)), *recorded(env), *_of_agent(env, seen, truncated)))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _of_agent(env, seen: Mapping, truncated: Mapping) -> tuple:
    """What one agent sees: all see the same."""
    agent = env.possible_agents[0]
    return seen[agent], truncated[agent]


def recorded(env) -> tuple:
    """flows, numbers, dropped, admitted and target of the last slot."""
    record = env.record
    delay = {"in": record["delay"]["in"], "out": record["delay"]["out"], "dep": record["delay"]["out"]}
    flows = [np.append(flat(record[part]), delay[part]) for part in ("in", "out", "dep")]
    numbers = [record[name] for name in NUMBERS]
    return flows, numbers, record["dropped"], record["admitted"], record["target"]


def flat(fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """All numbers of named arrays, in their order."""
    return np.concatenate([np.ravel(value) for value in fields.values()])


# ---- what the cases reach ----------------------------------------------------------------------------------------


def reached(cases: Cases) -> dict[str, int]:
    """How many slots (of all n) have what a careless port would get wrong."""
    params, played = cases.params, cases.played
    Nc, Ns, Ne, S = params.clients, params.servers, params.edges, params.server_choices
    of_slot = {
        name: np.stack([getattr(scenario, name) for scenario in cases.scenarios])[cases.place, cases.t]
        for name in ("access", "server_of", "task_count")
    }
    there = np.arange(params.tasks) < of_slot["task_count"][..., None]  # [n, Nc, J]
    target, admitted = played.target, played.admitted
    server = np.take_along_axis(of_slot["server_of"], np.clip(target - 1, 0, S - 1), axis=2)
    node = np.where(target == 0, np.arange(Nc)[:, None], Nc + Ns + target - S - 1)
    node = np.where((target >= 1) & (target <= S), Nc + server, node)
    nodes = Nc + Ns + Ne + 1
    flat_node = np.arange(len(node))[:, None, None] * nodes + node
    load = np.bincount(flat_node[admitted], minlength=len(node) * nodes).reshape(-1, nodes)
    caps = (params.cap_local, params.cap_server, params.cap_edge, params.cap_cloud)
    full = np.split(load == np.repeat(caps, (Nc, Ns, Ne, 1)), np.cumsum((Nc, Ns, Ne)), axis=1)
    wired = admitted & (target > S) & (target <= S + Ne) & (target - S - 1 != of_slot["access"][..., None])
    found = {
        "a client with tasks and no access edge": ((of_slot["access"] < 0) & there.any(axis=2)).any(axis=1),
        "a task dropped without an access edge": played.dropped[:, 2] > 0,
        "a client with fewer servers in range than choices": (of_slot["server_of"] < 0).any(axis=(1, 2)),
        "more tasks than task slots": played.dropped[:, 0] > 0,
        "a task rejected by a cap": played.dropped[:, 1] > 0,
        "a node without tasks": (load == 0).any(axis=1),
        **{
            f"{where} at its cap": at_cap.any(axis=1)
            for where, at_cap in zip(("a client", "a server", "an edge", "the cloud"), full, strict=True)
        },
        "a task that takes the wire to another edge": wired.any(axis=(1, 2)),
        "a client whose CPU shares are all 0": _without_shares(cases),
        "the end of the episode": played.truncated,
    }
    return {name: int(np.sum(where)) for name, where in found.items()}


def _without_shares(cases: Cases) -> np.ndarray:  # [n] bool
    params = cases.params
    share = cases.raw[:, :, 1, : params.clients * (params.cap_local + 2)]
    share = share.reshape(-1, params.clients, params.cap_local + 2)[..., : params.cap_local]
    return (share == 0).all(axis=2).any(axis=1)
