"""The vehicular edge's port compared with its original: single transitions, whole episodes, distributions of returns.

An error is abs(a - b) / max(abs a, abs b, s): s is the queue's larger in or out of the slot, what a node computes in a
slot for its virtual queue, the larger of backlog and out times in for a bound of the drift, 0 for the other running
scales, and 1 for costs, rewards and observations. In a whole episode s is the queue's largest in or out so far, since a
rounded bit stays in a backlog until it is empty. Symbols as in block_cases.py.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from lockstep import envs
from lockstep.experiments.config import Settings
from lockstep.experiments.vehicular_edge.cases import NUMBERS, POLICIES, Cases, Slots, play, reached, settings_of
from lockstep.experiments.verdicts import Comparison, alike, equal, row, within

DTYPES = ("float32", "float64")
KIND = {"reward": "reward", "energy": "observation", "jain": "observation"}  # whose tolerance a number has
EXACT = ("admitted", "target", "dropped", "truncated")
ARRAYS_BATCH = 500  # environments that the array form steps at a time
AGREEING = (256, 120)  # environments and steps that two devices live through


def plan(name: str, settings: Settings, devices: list[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name; what starts first goes on while the others are compared."""
    found: dict[str, Comparison] = {}
    tolerances, played = settings.correctness.tolerances, settings.correctness.played
    every = [Cases(setting) for setting in settings_of(name, settings)]

    def add(what: str, compare: Callable, cases: Cases, *arguments):
        words = [what, *(argument for argument in arguments if isinstance(argument, str)), cases.setting.label]
        label = " ".join(words)
        found[label] = Comparison(functools.partial(compare, cases, *arguments), cases.start)

    for cases in every:
        add("coverage", coverage, cases)
        add("indexed", indexed, cases)
        for device, dtype in itertools.product(devices, DTYPES):
            add("transition", transition, cases, device, dtype, tolerances[dtype])
            add("episode", episode, cases, device, dtype, tolerances[dtype])
        for device in devices:
            add("distribution", distribution, cases, device, played)
            if envs.has_arrays(name):
                add("arrays", arrays, cases, device, tolerances["float64"])
        if "cuda" in devices:
            for dtype in DTYPES:
                add("cpu-cuda", devices_agree, cases, dtype, tolerances[dtype])
    return found


# ---- what the forms make of the cases ----------------------------------------------------------------------------


def made(cases: Cases, num_envs: int, device: str, dtype: str, trace: bool = True, **options):
    """A batch of the port on the cases' scenarios."""
    options |= {"scenarios": cases.scenarios, "dtype": dtype, "trace": trace}
    return envs.make(cases.setting.name, num_envs, device=device, check_actions=False, **options)


@functools.cache
def port_steps(cases: Cases, device: str, dtype: str) -> Slots:
    """One step of the port from the start of each slot; in float64 with actions in integer form."""
    theirs, params = cases.played, cases.params
    env = made(cases, len(cases.t), device, dtype, autoreset_mode="Disabled")
    state = {"state": theirs.before, "elapsed": cases.t, "scenario": cases.place}
    env.set_state({name: torch.from_numpy(np.asarray(value)).to(env.device) for name, value in state.items()})
    raw = cases.raw.reshape(len(cases.t), *cases.raw.shape[2:])
    if dtype == "float64":
        original = envs.make_original(cases.setting.name, scenario=cases.scenarios[0])
        target = np.stack([original.decode(*action)[0] for action in raw])
        action = {"target": target, "share": np.ascontiguousarray(raw[:, 1, : params.share_length])}
        action = {name: torch.from_numpy(value).to(env.device) for name, value in action.items()}
    else:
        action = torch.from_numpy(raw).to(env.device)
    return observed(env, theirs.before, env.step(action))


def observed(env, before: np.ndarray, outputs: tuple) -> Slots:
    """The last step of a batch that keeps a trace."""
    observation, _, _, truncated, info = outputs
    record = {name: on_host(value) for name, value in (info | env.record()).items()}
    delay = {"in": record["delay"]["in"], "out": record["delay"]["out"], "dep": record["delay"]["out"]}
    flows = [np.concatenate([rows(record[part]), delay[part]], axis=1) for part in ("in", "out", "dep")]
    return Slots(
        before=before,
        after=on_host(env.state()["state"]),
        flows=np.stack(flows, axis=1),
        numbers=np.stack([record[name] for name in NUMBERS], axis=1),
        dropped=record["dropped"],
        admitted=record["admitted"],
        target=record["target"],
        observation=on_host(observation[:, 0]),
        truncated=on_host(truncated[:, 0]),
    )


def on_host(value):
    """Tensors, or mappings of them, as NumPy arrays of their own."""
    if isinstance(value, Mapping):
        return {name: on_host(part) for name, part in value.items()}
    return value.cpu().numpy().copy() if isinstance(value, torch.Tensor) else value


def rows(fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """All numbers of named arrays [n, ...], in their order, [n, numbers]."""
    return np.concatenate([value.reshape(len(value), -1) for value in fields.values()], axis=1)


# ---- two forms of the same slots ---------------------------------------------------------------------------------


def compared(place: tuple, cases: Cases, ours: Slots, theirs: Slots, most: Mapping) -> Iterator[dict]:
    """Rows for everything that a slot leads to. most: tolerances."""
    label = cases.setting.label
    scales = scales_of(cases, theirs)
    for field, where in slices(cases).items():
        errors = relative(ours.after[:, where], theirs.after[:, where], scales[field])
        yield within(place, f"state {field} ({label})", errors, most["queue"])
    largest = theirs.flows[:, :2].max(axis=1)
    for number, part in enumerate(("in", "out", "departed")):
        errors = relative(ours.flows[:, number], theirs.flows[:, number], largest)
        yield within(place, f"{part} of every queue ({label})", errors, most["queue"])
    for number, name in enumerate(NUMBERS):
        errors = relative(ours.numbers[:, [number]], theirs.numbers[:, [number]], 1.0)
        yield within(place, f"{name} ({label})", errors, most[KIND.get(name, "cost")])
    errors = relative(ours.observation, theirs.observation, 1.0)
    yield within(place, f"observation ({label})", errors, most["observation"])
    for name in EXACT:
        different = (getattr(ours, name) != getattr(theirs, name)).reshape(len(theirs.truncated), -1).any(axis=1)
        yield equal(place, f"{name} ({label})", different)


def relative(ours: np.ndarray, theirs: np.ndarray, scale) -> np.ndarray:
    """The largest error of each row, [n]; equal infinities are no error, NaN is one."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(ours - theirs) / np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), scale)
    return np.where(ours == theirs, 0.0, found).max(axis=1)


def slices(cases: Cases) -> dict[str, slice]:
    """Where every field stands in a state [k]; the queues stand in `flows` at the same places."""
    sizes = [int(np.prod(shape)) for shape in cases.shapes.values()]
    ends = np.cumsum(sizes).tolist()
    return {name: slice(end - size, end) for name, size, end in zip(cases.shapes, sizes, ends, strict=True)}


def scales_of(cases: Cases, theirs: Slots) -> dict[str, np.ndarray | float]:
    """s of every state field: [n, numbers of the field], or one number."""
    columns, largest = slices(cases), theirs.flows[:, :2].max(axis=1)
    found: dict[str, np.ndarray | float] = {}
    for field in columns:
        kind, _, family = field.rpartition("_")
        if field in cases.queues:
            found[field] = largest[:, columns[field]]
        elif kind == "cpu":
            found[field] = cases.cpu(family)
        elif kind in ("drift_min", "drift_max"):
            queue = columns[family]
            into, out = theirs.flows[:, 0, queue], theirs.flows[:, 1, queue]
            found[field] = np.maximum(theirs.before[:, queue], out) * into
        elif kind == "max" and cases.shapes[family] == cases.shapes[field]:
            found[field] = largest[:, columns[family]]
        else:
            found[field] = 0.0
    return found


# ---- the comparisons ---------------------------------------------------------------------------------------------


def coverage(cases: Cases) -> Iterator[dict]:
    """That the slots reach what a careless port would get wrong."""
    place = ("transition", "original-port", None, None)
    for what, count in reached(cases).items():
        quantity = f"slots with {what} ({cases.setting.label})"
        yield row(place, quantity, len(cases.t), count > 0, value=float(count))


def indexed(cases: Cases) -> Iterator[dict]:
    """The original as it is written against the form of it that keeps lists, an episode of each policy: every bit."""
    chosen = [cases.episodes_of(policy)[0] for policy, _ in cases.setting.episodes]
    arguments = cases.number[chosen], cases.scenario[chosen]
    by_policy = np.array([POLICIES.index(cases.policies[number]) for number in chosen])
    setting = cases.setting
    same = {"name": setting.name, "scenarios": cases.scenarios, "seed": setting.seed, "indexed": False}
    plain = Slots(*play(*arguments, by_policy, **same))
    slots = (np.array(chosen)[:, None] * cases.slots + np.arange(cases.slots)).ravel()
    different = np.zeros(len(slots), dtype=bool)
    for field, theirs in zip(plain, cases.played, strict=True):
        different |= (field != theirs[slots]).reshape(len(slots), -1).any(axis=1)
    place = ("transition", "original-indexed", "cpu", "float64")
    yield equal(place, f"everything, bits ({setting.label})", different)


def transition(cases: Cases, device: str, dtype: str, most: Mapping) -> Iterator[dict]:
    """One step of the port against one of the original."""
    place = ("transition", "original-port", device, dtype)
    yield from compared(place, cases, port_steps(cases, device, dtype), cases.played, most)


def episode(cases: Cases, device: str, dtype: str, most: Mapping) -> Iterator[dict]:
    """Whole episodes from the same first states under the same actions: do they ever come apart, and when?"""
    chosen, T, label = cases.episodes_of("uniform", "cloud", "zero", "clustered"), cases.slots, cases.setting.label
    theirs = Slots(*(field.reshape(-1, T, *field.shape[1:])[chosen] for field in cases.played))
    env = made(cases, len(chosen), device, dtype, autoreset_mode="Disabled")
    first = {"state": theirs.before[:, 0], "elapsed": np.zeros(len(chosen), int), "scenario": cases.scenario[chosen]}
    env.set_state({name: torch.from_numpy(np.asarray(value)).to(env.device) for name, value in first.items()})
    queues = slice(0, theirs.flows.shape[-1])
    scale = np.maximum.accumulate(theirs.flows[:, :, :2].max(axis=2), axis=1)  # [episodes, T, F + Nc]
    apart, largest = np.zeros((len(chosen), T), dtype=bool), {"queue": 0.0, "reward": 0.0}
    for t in range(T):
        outputs = env.step(torch.from_numpy(np.ascontiguousarray(cases.raw[chosen, t])).to(env.device))
        ours = observed(env, theirs.before[:, t], outputs)
        errors = {"queue": relative(ours.after[:, queues], theirs.after[:, t, queues], scale[:, t])}
        reward = NUMBERS.index("reward")
        errors["reward"] = relative(ours.numbers[:, [reward]], theirs.numbers[:, t, [reward]], 1.0)
        for name, found in errors.items():
            largest[name] = max(largest[name], float(found.max()))
            apart[:, t] |= ~(found <= most[name])
        for name in EXACT:
            apart[:, t] |= (getattr(ours, name) != getattr(theirs, name)[:, t]).reshape(len(chosen), -1).any(axis=1)
    place = ("episode", "original-port", device, dtype)
    for name, error in largest.items():
        found = {"error": error, "tolerance": most[name]}
        yield row(place, f"largest of every {name} of an episode ({label})", apart.size, error <= most[name], **found)
    yield equal(place, f"episodes that come apart ({label})", apart.any(axis=1))
    if apart.any():
        steps = apart.argmax(axis=1)[apart.any(axis=1)] + 1
        median, low, high = np.percentile(steps, [50, 5, 95])
        quantity = f"first step more than the tolerance apart: median, 5th and 95th percentile ({label})"
        yield row(place, quantity, len(steps), None, value=median, low=low, high=high)


def distribution(cases: Cases, device: str, played: int) -> Iterator[dict]:
    """Returns of random episodes, each form on its own numbers; on every scenario, less the port's mean there."""
    chosen, T = cases.episodes_of("uniform"), cases.slots
    theirs = cases.played.numbers[:, NUMBERS.index("reward")].reshape(-1, T)[chosen].sum(axis=1)
    env = made(cases, played, device, "float32", trace=False, seed=cases.setting.seed + 1)
    env.reset()
    scenario = np.arange(played) % len(cases.scenarios)
    of_scenario = dict(zip(cases.scenario[chosen].tolist(), chosen.tolist(), strict=True))
    start = np.stack([cases.played.before[T * of_scenario[place]] for place in scenario.tolist()])
    first = {"state": start, "elapsed": np.zeros(played, int), "scenario": scenario}
    env.set_state({name: torch.from_numpy(np.asarray(value)).to(env.device) for name, value in first.items()})
    env.rollout(T - 1)
    info = env.step(env.random_actions(1)[0])[-1]
    ours = on_host(info["episode_return"]).astype(np.float64)
    means = np.array([ours[scenario == place].mean() for place in range(len(cases.scenarios))])
    place = ("distribution", "original-port", device, "float32")
    label = f"return of an episode, random policy ({cases.setting.label})"
    yield alike(place, label, ours - means[scenario], theirs - means[cases.scenario[chosen]])


def arrays(cases: Cases, device: str, most: Mapping) -> Iterator[dict]:
    """One step of the array form on NumPy or CuPy against one of the port, both in float64."""
    xp = np if device == "cpu" else importlib.import_module("cupy")
    form, played, found = envs.arrays_form(cases.setting.name), cases.played, []
    for batch in np.array_split(np.arange(len(cases.t)), -(-len(cases.t) // ARRAYS_BATCH)):
        tables = form.tables(xp, cases.scenarios, cases.place[batch], "float64")
        parts = {name: played.before[batch][:, where] for name, where in slices(cases).items()}
        state = {name: xp.asarray(part.reshape(-1, *cases.shapes[name])) for name, part in parts.items()}
        action = xp.asarray(cases.raw.reshape(-1, *cases.raw.shape[2:])[batch])
        found.append(arrays_slots(cases, batch, form.step(xp, tables, state, action, xp.asarray(cases.t[batch]))))
    ours = Slots(*(np.concatenate(column) for column in zip(*found, strict=True)))
    place = ("transition", "arrays-port", device, "float64")
    yield from compared(place, cases, ours, port_steps(cases, device, "float64"), most)


def arrays_slots(cases: Cases, batch: np.ndarray, stepped: tuple) -> Slots:
    """A step of the array form."""
    state, outcome = stepped

    def on_host(array) -> np.ndarray:
        return array if isinstance(array, np.ndarray) else array.get()

    played, decision = cases.played, outcome.decision
    flows = [rows({name: on_host(outcome.flows[part][name]) for name in cases.queues}) for part in ("in", "out", "dep")]
    numbers = {name: on_host(getattr(outcome, name)) for name in ("cost", "drift", "success", "reward")}
    return Slots(
        before=played.before[batch],
        after=rows({name: on_host(value) for name, value in state.items()}),
        flows=np.stack(flows, axis=1),
        # Energy and fairness are the port's own: the array form leaves them out.
        numbers=np.stack([numbers.get(name, played.numbers[batch, k]) for k, name in enumerate(NUMBERS)], axis=1),
        dropped=on_host(decision.dropped),
        admitted=on_host(decision.admitted),
        target=np.where(on_host(decision.present), on_host(decision.target), 0),
        observation=on_host(outcome.observation).astype(np.float32),
        truncated=on_host(outcome.truncated),
    )


def devices_agree(
    cases: Cases, dtype: str, most: Mapping, devices: tuple[str, str] = ("cpu", "cuda")
) -> Iterator[dict]:
    """The port on two devices from one seed: random actions and flags bit for bit, states and rewards closely."""
    num_envs, steps = AGREEING
    here, there = (made(cases, num_envs, device, dtype, trace=False) for device in devices)
    different = dict.fromkeys(("random action", "truncated"), 0)
    largest = dict.fromkeys(("state", "reward", "observation"), 0.0)
    for env in (here, there):
        env.reset(seed=cases.setting.seed)
    for _ in range(steps):
        actions = [env.random_actions(1)[0] for env in (here, there)]
        ours, theirs = (env.step(action) for env, action in zip((here, there), actions, strict=True))
        states = [on_host(env.state()["state"]) for env in (here, there)]
        pairs = {"reward": (ours[1], theirs[1]), "observation": (ours[0][:, 0], theirs[0][:, 0])}
        pairs = {"state": states, **{name: [on_host(part) for part in pair] for name, pair in pairs.items()}}
        for name, pair in pairs.items():
            largest[name] = max(largest[name], float(relative(*pair, 1.0).max()))
        different["random action"] += int((on_host(actions[0]) != on_host(actions[1])).any(axis=(1, 2)).sum())
        different["truncated"] += int((on_host(ours[3]) != on_host(theirs[3])).any(axis=1).sum())
    place, met, label = ("episode", "cpu-cuda", devices[1], dtype), num_envs * steps, cases.setting.label
    for name, count in different.items():
        yield row(place, f"{name} ({label})", met, count == 0, differing=count, allowed=0)
    for name, error in largest.items():
        bound = most["queue" if name == "state" else name]
        yield row(place, f"{name} ({label})", met, error <= bound, error=error, tolerance=bound)
