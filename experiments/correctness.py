"""Whether a port is its original: single transitions, whole episodes, distributions of episodes."""

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
import torch

import envs
from experiments import UserError, command, config, originals
from experiments.config import Settings, nearest
from experiments.results import Journal
from experiments.statistics import ks_two_sample, mean_difference

COLUMNS = [
    *("environment", "level", "pair", "device", "dtype", "quantity", "cases", "error", "tolerance"),
    *("differing", "allowed", "value", "low", "high", "p_value", "passed"),
]
LEAST_P = 1e-3  # of a Kolmogorov-Smirnov test
APART = 1e-4  # difference at which a replay of a balanced episode counts as having left the original


class Cases:
    """The states and actions that one-step comparisons start from, and what the original makes of them.

    A mixture: states that the random and the fixed policy visit, a uniform box, and bands around every threshold.
    States are float32 numbers, so that every form starts from the same ones.
    """

    def __init__(self, name: str, settings: Settings):
        self.name, self.settings, self.fields = name, settings, envs.port(name).state
        self.tolerances, self.thresholds = settings.correctness.tolerances, settings.correctness.thresholds
        self._check()

    def _check(self):
        """ConfigError where the YAML does not fit the environment: fields, weights, parameters."""
        asked, where = self.settings.correctness, f"experiments/{self.name}.yaml: correctness"
        named = {"box": asked.box, "thresholds": asked.thresholds, "tolerances.float32": asked.tolerances.float32}
        for section, fields in named.items():
            for field in fields:
                if field not in (*self.fields, "default"):
                    raise config.ConfigError(f"{where}.{section}: unknown field {field!r}{nearest(field, self.fields)}")
        for field in self.fields:
            if field not in asked.box:
                raise config.ConfigError(f"{where}.box: the field {field!r} is missing")
        for variant in asked.get("variants", ()):
            try:
                envs.port(self.name).make_params(None, variant)
            except ValueError as error:
                raise config.ConfigError(f"{where}.variants: {error}") from error

    @functools.cached_property
    def states(self) -> np.ndarray:  # [n, k] float32
        n, random = self.settings.correctness.transitions, np.random.default_rng(self.settings.seed)
        box = self.box(n // 4, random)
        bands = self.box(n // 4, random)
        for part, (field, band) in zip(
            np.array_split(np.arange(len(bands)), len(self.thresholds)), self.thresholds.items(), strict=True
        ):
            side = random.choice([-1.0, 1.0], len(part))
            offset = random.uniform(-band.width, band.width, len(part))
            bands[part, self.fields.index(field)] = side * (band.at + offset)
        rest = n - len(box) - len(bands)
        visited = [self.visited(rest // 2, None), self.visited(rest - rest // 2, self.policy)]
        return np.concatenate([box, bands, *visited]).astype(np.float32)

    @property
    def policy(self) -> envs.Linear:
        fixed = self.settings.throughput.fixed_policy
        return envs.Linear(fixed.weights, fixed.bias)

    def box(self, n: int, random) -> np.ndarray:
        low, high = zip(*(self.settings.correctness.box[field] for field in self.fields), strict=True)
        return random.uniform(low, high, (n, len(self.fields)))

    def visited(self, n: int, policy) -> np.ndarray:
        """States of running episodes under a policy (None: random), from the port."""
        batch = 2000
        env = envs.make(self.name, batch, seed=self.settings.seed)
        env.reset()
        env.rollout(600)  # so that the episodes of the batch are at all stages
        rows = []
        for _ in range(-(-n // batch)):
            rows.append(env.state()["state"].numpy())
            env.rollout(7, policy or "random")
        return np.concatenate(rows)[:n]

    @functools.cached_property
    def actions(self) -> np.ndarray:  # [n]
        count = envs.port(self.name).action.n
        return np.random.default_rng(self.settings.seed + 1).integers(count, size=len(self.states))

    @functools.cached_property
    def elapsed(self) -> np.ndarray:  # [n] steps before this one: at the start, and around the limit
        limit = envs.port(self.name).horizon
        return np.random.default_rng(self.settings.seed + 2).choice([0, limit - 2, limit - 1], len(self.states))

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def reference(self, variant: tuple = ()) -> tuple[np.ndarray, ...]:
        """What the original makes of the cases (a tenth of them for a variant of the parameters)."""
        share = slice(None, None, 10) if variant else slice(None)
        return originals.on_all_cores(
            originals.transitions,
            self.states[share].astype(np.float64),
            self.elapsed[share],
            self.actions[share],
            name=self.name,
            params=dict(variant),
        )

    def near_threshold(self, following: np.ndarray) -> np.ndarray:
        """Whether the original's next state [n, k] lies so close to a threshold that rounding may decide a flag."""
        near = np.zeros(len(following), dtype=bool)
        for field, band in self.thresholds.items():
            distance = np.abs(np.abs(following[:, self.fields.index(field)]) - band.at)
            near |= distance < self.settings.correctness.threshold_band
        return near


def row(place: tuple, quantity: str, cases: int, passed: bool | None, **found) -> dict:
    """A row of the CSV. place: level, pair, device, dtype. What was not found is empty; passed None is not judged."""
    empty = dict.fromkeys(("error", "tolerance", "differing", "allowed", "value", "low", "high", "p_value"))
    same = dict(zip(("level", "pair", "device", "dtype"), place, strict=True))
    return same | {"quantity": quantity, "cases": cases} | empty | {"passed": passed} | found


def within(place: tuple, quantity: str, errors: np.ndarray, tolerance: float) -> dict:
    """A row for floats: the largest absolute error against the tolerance. NaN never passes."""
    error = float(np.max(errors))
    return row(place, quantity, len(errors), bool(error <= tolerance), error=error, tolerance=tolerance)


def equal(place: tuple, quantity: str, different: np.ndarray, allowed: int = 0) -> dict:
    """A row for integers and flags: how many differ, and how many may."""
    count = int(np.sum(different))
    return row(place, quantity, len(different), count <= allowed, differing=count, allowed=allowed)


def port_transitions(cases: Cases, device: str, dtype: str, variant: tuple) -> tuple[np.ndarray, ...]:
    """One step of the port from each case: next states, observations, rewards, terminated, truncated."""
    share = slice(None, None, 10) if variant else slice(None)
    states = cases.states[share]
    env = envs.make(cases.name, len(states), device=device, dtype=dtype, autoreset_mode="Disabled", **dict(variant))
    env.set_state({"state": states, "elapsed": cases.elapsed[share]})
    obs, reward, terminated, truncated, _ = env.step(torch.from_numpy(cases.actions[share]).to(device))
    found = (env.state()["state"], obs, reward, terminated, truncated)
    return tuple(tensor.cpu().numpy().copy() for tensor in found)


def transition(cases: Cases, device: str, dtype: str, variant: tuple) -> Iterator[dict]:
    """One step of the port against one step of the original."""
    label = "".join(f" ({key}={value})" for key, value in variant)
    following, observation, reward, terminated, truncated = cases.reference(variant)
    ours = port_transitions(cases, device, dtype, variant)
    place = ("transition", "original-port", device, dtype)
    tolerances = cases.tolerances[dtype]
    for j, field in enumerate(cases.fields):
        errors = np.abs(ours[0][:, j] - following[:, j])
        yield within(place, field + label, errors, originals.field_tolerance(tolerances, field))
    largest = max(originals.field_tolerance(cases.tolerances.float32, field) for field in cases.fields)
    # Observations are float32 in both, of values up to the largest speed: one rounding comes on top.
    scale = np.maximum(np.abs(observation), 1.0)
    yield within(
        place,
        "observation, relative above 1" + label,
        np.max(np.abs(ours[1] - observation) / scale, axis=1),
        largest,
    )
    near = cases.near_threshold(following)
    yield equal(place, "terminated" + label, (ours[3] != terminated) & ~near)
    # Rounding decides these; uniform states meet fewer than ten in a million.
    close = (ours[3] != terminated) & near
    yield equal(place, "terminated, within the band of a threshold" + label, close, max(1, len(close) // 100_000))
    yield equal(place, "truncated" + label, ours[4] != truncated)
    decided = ours[3] == terminated  # elsewhere the reward of the other branch is right
    yield equal(place, "reward" + label, (ours[2] != reward) & decided)


def arrays(cases: Cases, device: str) -> Iterator[dict]:
    """The array form on NumPy or CuPy against the port: one step, and the first states of 1,000 episodes."""
    xp = np if device == "cpu" else importlib.import_module("cupy")
    ours = port_transitions(cases, device, "float32", ())
    form = envs.arrays_form(cases.name)
    found = form.step(xp, xp.asarray(cases.states.T.copy()), xp.asarray(cases.actions))
    state, reward, terminated = found if xp is np else map(xp.asnumpy, found)
    place = ("transition", "arrays-port", device, "float32")
    for j, field in enumerate(cases.fields):
        errors = np.abs(state[j] - ours[0][:, j])
        yield within(place, field, errors, originals.field_tolerance(cases.tolerances.float32, field))
    near = cases.near_threshold(ours[0])
    yield equal(place, "terminated", (terminated != ours[3]) & ~near)
    yield equal(place, "reward", (reward != ours[2]) & (terminated == ours[3]))
    env = envs.make(cases.name, 100, device=device, seed=cases.settings.seed)
    index, different = xp.arange(100, dtype=xp.uint64), []
    for episode in range(1000):
        env.reset()
        first = form.reset(xp, cases.settings.seed, index, xp.full(100, episode, dtype=xp.uint64))
        first = first if xp is np else xp.asnumpy(first)
        different.append((env.state()["state"].cpu().numpy() != first.T).any(axis=1))
    yield equal(place, "first state of an episode, bits", np.concatenate(different))


def episode(cases: Cases, device: str) -> Iterator[dict]:
    """Whole episodes on one noise stream: random policy by length; balanced ones by the first diverging step."""
    settings, horizon = cases.settings.correctness.episodes, envs.port(cases.name).horizon
    place = ("episode", "original-port", device, "float32")

    def play(n: int, policy) -> tuple[np.ndarray, ...]:
        """First states, actions [n, T], observations [n, T, k], lengths and terminal flags of n episodes."""
        options = {"seed": cases.settings.seed, "autoreset_mode": "Disabled", "check_actions": False}
        env = envs.make(cases.name, n, device=device, **options)
        obs, _ = env.reset()
        start, actions, path, running = env.state()["state"].cpu().numpy(), [], [], True
        while running:
            action = env.random_actions()[0] if policy is None else linear(policy, obs)
            obs, _, terminated, truncated, info = env.step(action)
            actions.append(action.cpu().numpy().copy())
            path.append(obs.cpu().numpy().copy())
            running = not bool((terminated | truncated).all())
        lengths, ends = info["episode_length"].cpu().numpy(), terminated.cpu().numpy()
        return start, np.array(actions).T, np.array(path).transpose(1, 0, 2), lengths, ends

    start, actions, _, lengths, ends = play(settings.replayed, None)
    theirs = originals.on_all_cores(originals.replays, start.astype(np.float64), actions, name=cases.name)
    allowed = max(1, settings.replayed // 20_000)
    yield equal(place, "length under the random policy", theirs[0] != lengths, allowed)
    yield equal(place, "terminated at the end of an episode", theirs[1] != ends, allowed)
    start, actions, path, _, _ = play(settings.balanced, cases.policy)
    _, _, original = originals.on_all_cores(originals.replays, start.astype(np.float64), actions, name=cases.name)
    apart = np.nanmax(np.abs(path - original), axis=2, initial=0.0) > APART
    first = np.where(apart.any(axis=1), apart.argmax(axis=1) + 1, horizon)
    median, low, high = np.percentile(first, [50, 5, 95])
    quantity = f"first step more than {APART:g} apart in a replay of the fixed policy: median, 5th and 95th percentile"
    yield row(place, quantity, len(first), None, value=median, low=low, high=high)


def linear(policy: envs.Linear, obs: torch.Tensor) -> torch.Tensor:
    weights = torch.tensor(policy.weights, dtype=obs.dtype, device=obs.device)
    return (obs @ weights.T + torch.tensor(policy.bias, dtype=obs.dtype, device=obs.device)).argmax(dim=1)


def distribution(cases: Cases, device: str, policy_name: str) -> Iterator[dict]:
    """Lengths and returns of as many episodes of the port and of the original, each on its own random numbers."""
    n = cases.settings.correctness.episodes.played
    policy = None if policy_name == "random" else cases.policy
    theirs = _original_episodes(cases, policy_name)
    env = envs.make(cases.name, n, device=device, seed=cases.settings.seed + 1)
    obs, _ = env.reset()
    ended = torch.zeros(n, dtype=torch.bool, device=device)
    lengths = torch.zeros(n, dtype=torch.int32, device=device)
    returns = torch.zeros(n, dtype=torch.float32, device=device)
    while not bool(ended.all()):
        action = env.random_actions()[0] if policy is None else linear(policy, obs)
        obs, _, _, _, info = env.step(action)
        first = info["_final_obs"] & ~ended
        lengths = torch.where(first, info["episode_length"], lengths)
        returns = torch.where(first, info["episode_return"], returns)
        ended |= first
    place = ("distribution", "original-port", device, "float32")
    for quantity, a, b in (("length", lengths, theirs[0]), ("return", returns, theirs[1])):
        difference, low, high = mean_difference(a.cpu().numpy(), b)
        p = ks_two_sample(a.cpu().numpy(), b)
        passed = bool(low <= 0 <= high and p > LEAST_P)
        name = f"{quantity} of an episode, {policy_name} policy: difference of means"
        yield row(place, name, n, passed, value=difference, low=low, high=high, p_value=p)


@functools.cache
def _original_episodes(cases: Cases, policy_name: str) -> list[np.ndarray]:
    n = cases.settings.correctness.episodes.played
    policy = None if policy_name == "random" else cases.policy
    return originals.on_all_cores(originals.episodes, np.arange(n), name=cases.name, policy=policy)


def devices_agree(cases: Cases, dtype: str, devices: tuple[str, str] = ("cpu", "cuda")) -> Iterator[dict]:
    """The port on one device against the port on another: 1,000 steps of 4,096 environments from one seed."""
    steps, num_envs = 1000, 4096
    both = [
        envs.make(cases.name, num_envs, device=device, dtype=dtype, seed=cases.settings.seed, check_actions=False)
        for device in devices
    ]
    for env in both:
        env.reset()
    different = {"state": 0, "reward": 0, "terminated": 0, "truncated": 0, "random action": 0}
    error = 0.0
    for _ in range(steps):
        actions = [env.random_actions()[0] for env in both]
        outputs = [env.step(action) for env, action in zip(both, actions, strict=True)]
        here, there = (env.state()["state"].cpu() for env in both)
        error = max(error, float((here - there).abs().max()))
        different["state"] += int((here != there).sum())
        different["random action"] += int((actions[0] != actions[1].cpu()).sum())
        for name, index in (("reward", 1), ("terminated", 2), ("truncated", 3)):
            different[name] += int((outputs[0][index] != outputs[1][index].cpu()).sum())
    place = ("episode", "cpu-cuda", devices[1], dtype)
    for name, count in different.items():
        if name == "state" and dtype == "float64":
            tolerance = originals.field_tolerance(cases.tolerances.float64, "default")
            yield row(place, name, steps * num_envs, error <= tolerance, error=error, tolerance=tolerance)
        else:
            yield row(place, name, steps * num_envs, count == 0, differing=count, allowed=0)


def groups(cases: Cases, devices: list[str]) -> dict[str, Callable[[], Iterator[dict]]]:
    """Every comparison that can be made here, by name."""
    variants = [(), *(tuple(sorted(v.items())) for v in cases.settings.correctness.get("variants", ()))]
    found: dict[str, Callable] = {}
    for device, dtype, variant in itertools.product(devices, ("float32", "float64"), variants):
        name = f"transition {device} {dtype} {dict(variant) or ''}".strip()
        found[name] = functools.partial(transition, cases, device, dtype, variant)
    for device in devices:
        if envs.has_arrays(cases.name):
            found[f"arrays {device}"] = functools.partial(arrays, cases, device)
        found[f"episode {device}"] = functools.partial(episode, cases, device)
        for policy in ("random", "fixed"):
            found[f"distribution {device} {policy}"] = functools.partial(distribution, cases, device, policy)
    if "cuda" in devices:
        for dtype in ("float32", "float64"):
            found[f"cpu-cuda {dtype}"] = functools.partial(devices_agree, cases, dtype)
    return found


def report(rows: list[Mapping]) -> str:
    """The comparisons that failed, or one line that says that none did."""
    failed = [found for found in rows if found["passed"] is False]
    lines = [f"FAILED {f['level']} {f['pair']} {f['device']} {f['dtype']} {f['quantity']}" for f in failed]
    return "\n".join(lines or [f"all {len(rows)} comparisons passed"])


def main() -> None:
    arguments = command.parser("correctness", __doc__.split("\n")[0])
    options = arguments.parse_args()
    name = options.environment
    settings = config.load(name, options.scale)
    devices = command.devices(options.devices)
    try:
        envs.make_original(name).close()
    except ImportError as error:
        raise UserError(str(error)) from error
    cases = Cases(name, settings)
    output = options.output or command.output_path("correctness", name)
    asked = settings.plain() | {"asked": {"devices": devices}}
    journal = Journal(output, COLUMNS, "correctness", name, options.scale, asked, options.commit)
    todo = {label: rows for label, rows in groups(cases, devices).items() if label not in journal}
    for label, rows in command.progress(todo.items(), lambda item: item[0]):
        journal.add(label, [{"environment": name} | found for found in rows()])
    rows = [
        {**found, "passed": None if pd.isna(found["passed"]) else str(found["passed"]) == "True"}
        for found in journal.frame().to_dict("records")
    ]
    failed = any(found["passed"] is False for found in rows)
    journal.finish(passed=not failed)
    print(report(rows))
    if failed:
        sys.exit("correctness: the port differs from its original (above)")


if __name__ == "__main__":
    command.run(main)
