"""The vehicular edge's port compared with its original in every slot of episodes that the original plays beforehand.

An error is abs(a - b) / max(abs a, abs b, s): s is the queue's larger in or out of the slot, what a node computes in a
slot for its virtual queue, the larger of backlog and out times in for a bound of the drift, 0 for the other running
scales, and 1 for costs, rewards and observations. In a whole episode s is the queue's largest in or out so far, since a
rounded bit stays in a backlog until it is empty.

Symbols: E episodes, T slots of an episode, n = E T slots of all, A numbers of an action, F numbers of all queues; Nc
clients, Ns servers, Ne edges, J task slots, S server choices.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from lockstep import envs
from lockstep.experiments import originals, walk
from lockstep.experiments.config import Settings
from lockstep.experiments.originals import Game
from lockstep.experiments.verdicts import equal, row

POLICIES = ("uniform", "cloud", "zero", "clustered", "scattered")  # what each does: `raw_actions`, `scattered`
SCENARIOS = 2  # of each map; episodes take them in turn
TARGETS = 3  # of a slot under "clustered"
ARRAYS_BATCH = 500  # environments that the array form steps at a time
FLOWS = {"in": ("in", "in"), "out": ("out", "out"), "departed": ("dep", "out")}  # in a record, of queues and the delay
NUMBERS = {"cost": "cost", "drift": "cost", "success": "cost", "reward": "reward"}  # with whose tolerances
NUMBERS |= dict.fromkeys(("energy", "jain", "observation"), "observation")
EXACT = ("admitted", "target", "dropped", "truncated")


def walks(name: str, settings: Settings) -> list["Slots"]:
    """Every preset at every size that the YAML asks for."""
    asked = settings.correctness
    return [Slots(name, settings, preset, size) for preset in asked.presets for size in asked.sizes]


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


class Episode(Game):
    """Episodes by their numbers, each on a scenario; of a scattered one every slot starts from a new random state."""

    def begin(self, index: int):
        self.place = self.options["places"][index]
        if self.place not in self.made:
            chosen = {"scenario": self.options["scenarios"][self.place], "indexed": self.options["indexed"]}
            self.made[self.place] = envs.make_original(self.name, **chosen)
        self.original, self.rng = self.made[self.place], np.random.default_rng([self.seed, index])
        self.scatters = self.options["policies"][index] == "scattered"
        self.restart(seed=0)  # a seed puts the first running scales back

    def live(self, action: np.ndarray) -> dict:
        if self.scatters:
            shapes = {name: value.shape for name, value in self.read().items()}
            self.module.set_state(self.original, scattered(shapes, self.rng), self.original.t)
        state = self.read() | {"elapsed": self.original.t, "scenario": self.place}
        before = {f"before {name}": value for name, value in state.items()}
        return before | super().live(action) | recorded(self.original.record)


def recorded(record: Mapping, lead: tuple = (), host: Callable = np.asarray) -> dict[str, np.ndarray]:
    """Quantities of the record of a slot, or of n: flows of all queues, those of the delay last, and what is chosen."""
    flows = {name: [*record[part].values(), record["delay"][delay]] for name, (part, delay) in FLOWS.items()}
    found = {name: rows(map(host, parts), lead) for name, parts in flows.items()}
    found |= {name: host(record[name]) for name in (*NUMBERS, *EXACT) if name in record and name != "observation"}
    return found | {"flow": np.maximum(found["in"], found["out"])}


def rows(parts: Iterable[np.ndarray], lead: tuple) -> np.ndarray:
    """All numbers of arrays, in their order, [*lead, numbers]."""
    return np.concatenate([np.reshape(part, (*lead, -1)) for part in parts], axis=-1)


class Slots(walk.Walk):
    """A preset at one size on several maps, on each of which the same numbers of episodes of each policy are played."""

    draws = False
    told = ()
    living = (256, 120)

    def __init__(self, name: str, settings: Settings, preset: str, size: str):
        asked = settings.correctness
        self.preset, self.size, self.label = preset, asked.sizes[size], f"{preset}, {size}"
        policies = [policy for policy, count in self.size.episodes.items() for _ in range(count)]
        self.policies, self.index = policies * len(asked.maps), np.arange(len(policies) * len(asked.maps))  # [E]
        # On each map the episodes take its scenarios in turn.
        self.scenario = SCENARIOS * (self.index // len(policies)) + self.index % SCENARIOS  # [E] place in `scenarios`
        super().__init__(name, settings)

    def check(self):
        self.known("presets", [self.preset], self.port.presets, "preset")

    def comparisons(self, devices: list[str]) -> Iterator[tuple]:
        yield self.start, walk.coverage
        yield self.start, indexed
        for device, dtype in itertools.product(devices, walk.DTYPES):
            yield self.start, walk.transition, device, dtype, ()
            yield self.start, walk.episode, device, dtype, "replayed"
        for device in devices:
            yield self.start, walk.distribution, device, "random"
            if envs.has_arrays(self.name):
                yield self.start, walk.arrays, device, "float64"
        for dtype in walk.DTYPES if "cuda" in devices else ():
            yield None, walk.devices_agree, dtype

    # ---- the original -------------------------------------------------------------------------------------------

    @functools.cached_property
    def scenarios(self) -> list:
        """SCENARIOS of each map."""
        options = {"preset": self.preset, **self.size.get("parameters", {})}
        return [
            envs.make_original(self.name, traffic=traffic, index=index, **options).scenarios[0]
            for traffic in self.asked.maps
            for index in range(SCENARIOS)
        ]

    @functools.cached_property
    def declared(self) -> Mapping:
        return self.port.fields(self.scenarios[0].params)

    @functools.cached_property
    def queues(self) -> dict[str, slice]:
        """The real queues and the virtual one of the delay: where they stand in flows."""
        names, sizes = list(self.declared), [int(np.prod(field.shape)) for field in self.declared.values()]
        ends = np.cumsum(sizes)[: names.index("delay") + 1].tolist()
        return {name: slice(end - size, end) for name, size, end in zip(names, sizes, ends, strict=False)}

    @functools.cached_property
    def raw(self) -> np.ndarray:
        """Actions [E, T, agents, A] float32."""
        params = self.scenarios[0].params
        return np.stack([raw_actions(params, policy, number, self.seed) for number, policy in enumerate(self.policies)])

    def game_of(self, indexed: bool) -> Episode:
        more = {"scenarios": self.scenarios, "places": self.scenario.tolist(), "policies": self.policies}
        return Episode(self.name, self.seed, indexed=indexed, **more)

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def start(self) -> Callable:
        """Has the original play, on all cores, and does not wait."""
        return originals.on_all_cores(originals.lives, self.index, self.raw, {}, game=self.game_of(indexed=True))

    @property
    def played(self) -> dict[str, np.ndarray]:
        """[E, T, ...]"""
        return self.start()()

    def episodes_of(self, *policies: str) -> np.ndarray:
        """Numbers of the episodes under some policies."""
        return np.flatnonzero(np.isin(self.policies, policies))

    def cases(self, device: str, dtype: str, part: tuple) -> tuple[dict, np.ndarray, dict]:
        theirs = {name: flat(value) for name, value in self.played.items()}
        return self.before(theirs), flat(self.raw), theirs

    def before(self, slots: Mapping) -> dict[str, np.ndarray]:
        """States of the port at the start of slots [n, ...]."""
        return {name: slots[f"before {name}"] for name in (*self.declared, "elapsed", "scenario")}

    def own_episodes(self, policy: str) -> Callable:
        return lambda: {"return": self.played["reward"][self.episodes_of("uniform")].sum(axis=1)}

    def number(self, level: str, policy: str) -> int:
        return self.asked.played

    # ---- other forms --------------------------------------------------------------------------------------------

    def batch(self, num_envs: int, *arguments, **more):
        return super().batch(num_envs, *arguments, scenarios=self.scenarios, **more)

    def stepping(self, n: int, device: str, dtype: str, part: object):
        return self.batch(n, device, dtype, trace=True)

    def put(self, env, episodes: np.ndarray):
        """A batch at the start of episodes."""
        env.reset()
        env.set_state(self.before({name: value[episodes, 0] for name, value in self.played.items()}))

    def given_to(self, env, actions: np.ndarray):
        """In float64 in integer form."""
        if env.dtype == "float32":
            return super().given_to(env, actions)
        original = envs.make_original(self.name, scenario=self.scenarios[0])
        target = np.stack([original.decode(*action)[0] for action in actions])
        share = np.ascontiguousarray(actions[:, 1, : env.params.share_length])
        return {"target": super().given_to(env, target), "share": super().given_to(env, share)}

    def step(self, env, action) -> dict[str, np.ndarray]:
        found = super().step(env, action)
        return found | recorded(env.record(), (env.num_envs,), walk.on_host) if env.trace else found

    def replayed(self, device: str, dtype: str, policy: str) -> tuple[dict, dict]:
        chosen = self.episodes_of(*POLICIES[:-1])
        env, slots = self.batch(len(chosen), device, dtype, trace=True), iter(self.raw[chosen].swapaxes(0, 1))
        self.put(env, chosen)
        ours, _ = self.lived(env, lambda _: super(Slots, self).given_to(env, next(slots).copy()), None, dtype)
        theirs = {name: value[chosen] for name, value in self.played.items()}
        return ours, theirs | {"flow": np.maximum.accumulate(theirs["flow"], axis=1)}

    def begin(self, env):
        """Random episodes start as one of the original on each scenario does."""
        uniform = self.episodes_of("uniform")
        self.put(env, np.resize(uniform[np.unique(self.scenario[uniform], return_index=True)[1]], env.num_envs))

    def comparable(self, ours: np.ndarray, theirs: np.ndarray) -> list[np.ndarray]:
        """Less the port's mean on a scenario."""
        place, of_original = np.arange(len(ours)) % len(self.scenarios), self.scenario[self.episodes_of("uniform")]
        means = np.array([ours[place == one].mean() for one in range(len(self.scenarios))])
        return [ours - means[place], theirs - means[of_original]]

    def steps_of_arrays(self, xp, before: Mapping, actions: np.ndarray, theirs: Mapping) -> dict:
        form, found = envs.arrays_form(self.name), []
        for batch in np.array_split(np.arange(len(actions)), -(-len(actions) // ARRAYS_BATCH)):
            tables = form.tables(xp, self.scenarios, before["scenario"][batch], "float64")
            state, t = {name: xp.asarray(before[name][batch]) for name in self.declared}, before["elapsed"][batch]
            one, outcome = form.step(xp, tables, state, xp.asarray(actions[batch]), xp.asarray(t))
            flows, decision, lead = outcome.flows, outcome.decision, (len(batch),)
            for name, (part, _) in FLOWS.items():
                one[name] = rows([host(flows[part][queue]) for queue in self.queues], lead)
            one |= {name: getattr(outcome, name) for name in ("cost", "drift", "success", "reward")}
            one |= {"admitted": decision.admitted, "dropped": decision.dropped}
            one["target"] = xp.where(decision.present, decision.target, 0)
            # All agents share these.
            one["observation"] = xp.stack([outcome.observation.astype(np.float32)] * 2, axis=1)
            one["truncated"] = xp.stack([outcome.truncated] * 2, axis=1)
            found.append({name: host(value) for name, value in one.items()})
        joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        return joined | {name: theirs[name] for name in ("energy", "jain")}  # which the array form leaves out

    # ---- how far a form may be from another ---------------------------------------------------------------------

    @property
    def quantities(self) -> list[str]:
        return [*self.declared, *FLOWS, *NUMBERS, *EXACT]

    def titled(self, name: str, *words: str) -> str:
        name = f"state {name}" if name in self.declared else name
        return super().titled(f"{name} of every queue" if name in FLOWS else name, *words)

    def tolerance(self, dtype: str, name: str) -> float | None:
        return None if name in EXACT else self.asked.tolerances[dtype][NUMBERS.get(name, "queue")]

    def judged(self, dtype: str, part: tuple) -> Iterator[tuple[list[str], slice, Callable]]:
        yield [], slice(None), functools.partial(self.tolerance, dtype)

    def scale(self, name: str, larger: np.ndarray, theirs: Mapping, level: str) -> np.ndarray:
        return np.maximum(larger, self.least(name, theirs) if "flow" in theirs else 1.0)

    def least(self, name: str, theirs: Mapping) -> np.ndarray | float:
        """s of a quantity."""
        kind, _, family = name.rpartition("_")
        if name in FLOWS or name in self.queues:
            return theirs["flow"][:, self.queues.get(name, slice(None))]
        if kind == "cpu":
            return self.cpu(family, theirs["before scenario"])
        if kind in ("drift_min", "drift_max"):
            into, out = (theirs[way][:, self.queues[family]] for way in ("in", "out"))
            return np.maximum(theirs[f"before {family}"].reshape(len(out), -1), out) * into
        if kind == "max" and self.declared[family].shape == self.declared[name].shape:
            return theirs["flow"][:, self.queues[family]]
        return 0.0 if name in self.declared else 1.0

    def cpu(self, family: str, scenario: np.ndarray) -> np.ndarray | float:
        """The work that every node of a family does in a slot, [n, nodes] Gcycles."""
        of_family = {"lc": "client_cpu", "vc": "server_cpu", "ec": "edge_cpu"}
        if family not in of_family:
            return self.scenarios[0].params.cloud_ghz
        return np.stack([getattr(one, of_family[family]) for one in self.scenarios])[scenario]

    def in_episodes(self, dtype: str) -> dict[str, float | None]:
        return {name: self.tolerance(dtype, name) for name in (*self.queues, "reward", *EXACT)}

    def parting(self, place: tuple, policy: str, ours: Mapping, theirs: Mapping, first, largest) -> Iterator[dict]:
        for what, names in {"queue": list(self.queues), "reward": ["reward"]}.items():
            error, most = float(np.max([largest[name] for name in names])), self.tolerance(place[-1], names[0])
            title = self.titled(f"largest of every {what} of an episode")
            yield row(place, title, ours["reward"].size, error <= most, error=error, tolerance=most)
        yield from super().parting(place, policy, ours, theirs, first, largest)

    # ---- what the slots reach -----------------------------------------------------------------------------------

    def reached(self) -> tuple[int, dict[str, int]]:
        """n, and how many slots have what a careless port would get wrong."""
        _, raw, played = self.cases("cpu", "float64", ())
        params, admitted, target, dropped = self.scenarios[0].params, *(played[name] for name in EXACT[:3])
        Nc, Ns, Ne, S = params.clients, params.servers, params.edges, params.server_choices
        access, server_of, task_count = (
            np.stack([getattr(one, name) for one in self.scenarios])[
                played["before scenario"], played["before elapsed"]
            ]
            for name in ("access", "server_of", "task_count")
        )
        there = np.arange(params.tasks) < task_count[..., None]  # [n, Nc, J]
        server = np.take_along_axis(server_of, np.clip(target - 1, 0, S - 1), axis=2)
        node = np.where(target == 0, np.arange(Nc)[:, None], Nc + Ns + target - S - 1)
        node = np.where((target >= 1) & (target <= S), Nc + server, node)
        nodes = Nc + Ns + Ne + 1
        flat_node = np.arange(len(node))[:, None, None] * nodes + node
        load = np.bincount(flat_node[admitted], minlength=len(node) * nodes).reshape(-1, nodes)
        caps = (params.cap_local, params.cap_server, params.cap_edge, params.cap_cloud)
        full = np.split(load == np.repeat(caps, (Nc, Ns, Ne, 1)), np.cumsum((Nc, Ns, Ne)), axis=1)
        wired = admitted & (target > S) & (target <= S + Ne) & (target - S - 1 != access[..., None])
        share = raw[:, 1, : Nc * (params.cap_local + 2)].reshape(-1, Nc, params.cap_local + 2)
        found = {
            "a client with tasks and no access edge": (access < 0) & there.any(axis=2),
            "a task dropped without an access edge": dropped[:, 2] > 0,
            "a client with fewer servers in range than choices": server_of < 0,
            "more tasks than task slots": dropped[:, 0] > 0,
            "a task rejected by a cap": dropped[:, 1] > 0,
            "a node without tasks": load == 0,
            **{
                f"{where} at its cap": at_cap
                for where, at_cap in zip(("a client", "a server", "an edge", "the cloud"), full, strict=True)
            },
            "a task that takes the wire to another edge": wired,
            "a client whose CPU shares are all 0": (share[..., : params.cap_local] == 0).all(axis=2),
            "the end of the episode": played["truncated"],
        }
        n = len(target)
        return n, {f"slots with {name}": int(at.reshape(n, -1).any(axis=1).sum()) for name, at in found.items()}


def indexed(slots: Slots) -> Iterator[dict]:
    """The original as it is written against the form of it that keeps lists, an episode of each policy: every bit."""
    chosen = np.array([slots.episodes_of(policy)[0] for policy in slots.size.episodes])
    plain = originals.lives(chosen, slots.raw[chosen], {}, game=slots.game_of(indexed=False))
    different = np.zeros(slots.raw[chosen].shape[:2], dtype=bool)
    for name, value in plain.items():
        different |= (value != slots.played[name][chosen]).reshape(*different.shape, -1).any(axis=2)
    place = ("transition", "original-indexed", "cpu", "float64")
    yield equal(place, slots.titled("everything, bits"), different.ravel())


def flat(value: np.ndarray) -> np.ndarray:
    """[E, T, ...] as [n, ...]."""
    return value.reshape(-1, *value.shape[2:])


def host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
