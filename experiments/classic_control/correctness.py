"""A port compared with its original in Gymnasium: single transitions, whole episodes, distributions of episodes."""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from lockstep import envs
from lockstep.experiments import originals
from lockstep.experiments.classic_control.cases import Cases, tolerance
from lockstep.experiments.config import Settings
from lockstep.experiments.verdicts import Comparison, alike, equal, row, within

DTYPES = ("float32", "float64")
POLICIES = ("random", "fixed")
DIGITS = 3  # after the point of a return: sums in float32 and in float64 then tie where they are of equal rewards
APART = 1e-4  # difference of an observation at which a replayed episode counts as having left the original
DEVICES_APART = 1e-12  # most, of a state in float64, whose sine and cosine are each device's own


def plan(name: str, settings: Settings, devices: list[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name."""
    return comparisons(Cases(name, settings), devices)


# ---- one step ---------------------------------------------------------------------------------------------------


def port_steps(cases: Cases, device: str, dtype: str, variant: tuple) -> originals.Steps:
    """One step of the port from each case. Actions of a Box are given in the port's own type."""
    share = cases.share(variant)
    states, actions = cases.states[share], cases.actions[share]
    options = {"dtype": dtype, "autoreset_mode": "Disabled", "check_actions": False}
    env = envs.make(cases.name, len(states), device=device, **options, **dict(variant))
    env.set_state({"state": states, "elapsed": cases.elapsed[share]})
    action = torch.from_numpy(actions if actions.dtype.kind == "i" else actions.astype(dtype))
    obs, reward, terminated, truncated, _ = env.step(action.to(device))
    found = (env.state()["state"], obs, reward, terminated, truncated)
    return originals.Steps(*(tensor.cpu().numpy().copy() for tensor in found))


def transition(cases: Cases, device: str, dtype: str, variant: tuple) -> Iterator[dict]:
    """One step of the port against one step of the original."""
    theirs, near = cases.reference(variant), cases.near_threshold(variant)
    ours = port_steps(cases, device, dtype, variant)
    errors = cases.differences(ours.states, theirs.states)
    # Observations are float32 in both, of values up to the largest speed: one rounding comes on top.
    shown = np.abs(ours.observations - theirs.observations) / np.maximum(np.abs(theirs.observations), 1)
    flipped = ours.terminated != theirs.terminated
    # The reward is float32 in every build; where a flag differs, that of the other branch is right.
    wrong = np.where(flipped, 0, np.abs(ours.rewards - theirs.rewards.astype(np.float32)))
    late = ours.truncated != theirs.truncated
    place = ("transition", "original-port", device, dtype)
    for regions, among, tolerances in cases.judged(dtype, variant):
        notes = [*(f"{name}={value}" for name, value in variant), *([regions] if regions else [])]
        label = f" ({'; '.join(notes)})" if notes else ""
        for field, error in zip(cases.fields, errors[among].T, strict=True):
            yield within(place, field + label, error, tolerance(tolerances, field))
        single = tolerances if dtype == "float32" else cases.asked.tolerances.float32
        most = max(tolerance(single, field) for field in cases.fields)
        yield within(place, "observation, relative above 1" + label, shown[among].max(axis=1), most)
        yield equal(place, "terminated" + label, (flipped & ~near)[among])
        # Rounding decides these; uniform states meet fewer than ten in a million.
        close = (flipped & near)[among]
        yield equal(place, "terminated, within the band of a threshold" + label, close, max(1, len(close) // 100_000))
        yield equal(place, "truncated" + label, late[among])
        if "reward" in tolerances:
            yield within(place, "reward" + label, wrong[among], tolerances["reward"])
        else:
            yield equal(place, "reward" + label, wrong[among] != 0)


def arrays(cases: Cases, device: str) -> Iterator[dict]:
    """The array form on NumPy or CuPy against the port: one step, and the first states of 1,000 episodes."""
    xp = np if device == "cpu" else importlib.import_module("cupy")
    near, ours = cases.near_threshold(), port_steps(cases, device, "float32", ())
    form = envs.arrays_form(cases.name)
    found = form.step(xp, xp.asarray(cases.states.T.copy()), xp.asarray(cases.actions))
    state, reward, terminated = found if xp is np else map(xp.asnumpy, found)
    errors, flipped = cases.differences(state.T, ours.states), terminated != ours.terminated
    place = ("transition", "arrays-port", device, "float32")
    for field, error in zip(cases.fields, errors.T, strict=True):
        yield within(place, field, error, tolerance(cases.asked.tolerances.float32, field))
    yield equal(place, "terminated", flipped & ~near)
    yield equal(place, "reward", (reward != ours.rewards) & ~flipped)
    env = envs.make(cases.name, 100, device=device, seed=cases.settings.seed)
    index, different = xp.arange(100, dtype=xp.uint64), []
    for episode in range(1000):
        env.reset()
        first = form.reset(xp, cases.settings.seed, index, xp.full(100, episode, dtype=xp.uint64))
        first = first if xp is np else xp.asnumpy(first)
        different.append((env.state()["state"].cpu().numpy() != first.T).any(axis=1))
    yield equal(place, "first state of an episode, bits", np.concatenate(different))


# ---- whole episodes ---------------------------------------------------------------------------------------------


class Played(NamedTuple):
    """n episodes of the port, of up to T steps."""

    start: np.ndarray  # [n, k] first states
    actions: np.ndarray  # [n, T]
    path: np.ndarray  # [n, T, m] observations; the last one stays
    lengths: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool


def play(cases: Cases, device: str, n: int, policy: str) -> Played:
    options = {"seed": cases.settings.seed, "autoreset_mode": "Disabled", "check_actions": False}
    env = envs.make(cases.name, n, device=device, **options)
    act = actor(cases, env, policy)
    obs, _ = env.reset()
    start, actions, path, running = env.state()["state"].cpu().numpy(), [], [], True
    while running:
        action = act(obs)
        obs, _, terminated, truncated, info = env.step(action)
        actions.append(action.cpu().numpy().copy())
        path.append(obs.cpu().numpy().copy())
        running = not bool((terminated | truncated).all())
    lengths, ends = info["episode_length"].cpu().numpy(), terminated.cpu().numpy()
    return Played(start, np.array(actions).T, np.array(path).transpose(1, 0, 2), lengths, ends)


def actor(cases: Cases, env, policy: str) -> Callable:
    """The random or the fixed policy as a function from observations to actions."""
    return env.actor(cases.policy) if policy == "fixed" else lambda obs: env.random_actions()[0]


def episode(cases: Cases, device: str, policy: str) -> Iterator[dict]:
    """Episodes of the port whose actions the original repeats from the same first states: when do they come apart?

    An episode that is apart already may end differently; rounding alone does that to a balanced pole.
    """
    place = ("episode", "original-port", device, "float32")
    ours = play(cases, device, cases.asked.episodes.replayed[policy], policy)
    start = ours.start.astype(np.float64)
    lengths, ends, path = originals.on_all_cores(originals.replays, start, ours.actions, name=cases.name)()
    apart = np.nanmax(np.abs(ours.path - path), axis=2, initial=0) > APART
    first = np.where(apart.any(axis=1), apart.argmax(axis=1) + 1, np.inf)  # step
    differing = (lengths != ours.lengths) | (ends != ours.terminated)
    together = first > np.minimum(lengths, ours.lengths)
    quantity = f"end of an episode, {policy} policy, if not apart before"
    yield equal(place, quantity, differing & together, len(path) // 20_000)
    where = f"more than {APART:g} apart in a replay of the {policy} policy"
    parted = first[np.isfinite(first)]
    yield row(place, f"episodes that come {where}", len(path), None, value=float(len(parted)))
    if len(parted) > len(path) / 2:  # of a few that go astray the step would say little
        median, low, high = np.percentile(parted, [50, 5, 95])
        quantity = f"first step {where}: median, 5th and 95th percentile"
        yield row(place, quantity, len(parted), None, value=median, low=low, high=high)


def distribution(cases: Cases, device: str, policy: str) -> Iterator[dict]:
    """Lengths and returns of as many episodes of the port and of the original, each on its own random numbers."""
    n = cases.asked.episodes.played[policy]
    env = envs.make(cases.name, n, device=device, seed=cases.settings.seed + 1)
    act = actor(cases, env, policy)
    obs, _ = env.reset()
    ended = torch.zeros(n, dtype=torch.bool, device=device)
    lengths = torch.zeros(n, dtype=torch.int32, device=device)
    returns = torch.zeros(n, dtype=torch.float32, device=device)
    while not bool(ended.all()):
        obs, _, _, _, info = env.step(act(obs))
        first = info["_final_obs"] & ~ended
        lengths = torch.where(first, info["episode_length"], lengths)
        returns = torch.where(first, info["episode_return"], returns)
        ended |= first
    for name, ours, theirs in zip(
        ("length", "return"), (lengths, returns), original_episodes(cases, policy)(), strict=True
    ):
        rounded = [np.round(np.asarray(values, dtype=np.float64), DIGITS) for values in (ours.cpu(), theirs)]
        yield alike(
            ("distribution", "original-port", device, "float32"), f"{name} of an episode, {policy} policy", *rounded
        )


@functools.cache
def original_episodes(cases: Cases, policy: str) -> Callable:
    """Has the original play its episodes, on all cores, and does not wait."""
    seeds = np.arange(cases.asked.episodes.played[policy])
    chosen = cases.policy if policy == "fixed" else None
    return originals.on_all_cores(originals.episodes, seeds, name=cases.name, policy=chosen)


def devices_agree(cases: Cases, dtype: str, devices: tuple[str, str] = ("cpu", "cuda")) -> Iterator[dict]:
    """The port on one device against the port on another: 1,000 steps of 4,096 environments from one seed.

    In float64 each step starts from equal states: swinging links would blow the last bits of a sine up.
    """
    steps, num_envs = 1000, 4096
    here, there = (
        envs.make(cases.name, num_envs, device=device, dtype=dtype, seed=cases.settings.seed, check_actions=False)
        for device in devices
    )
    for env in (here, there):
        env.reset()
    different = dict.fromkeys(("state", "observation", "reward", "terminated", "truncated", "random action"), 0)
    error = 0.0
    for _ in range(steps):
        actions = here.random_actions()[0], there.random_actions()[0]
        outputs = here.step(actions[0]), there.step(actions[1])
        states = [env.state()["state"].cpu().numpy() for env in (here, there)]
        error = max(error, float(cases.differences(*states).max()))
        different["state"] += int((states[0] != states[1]).sum())
        different["random action"] += int((actions[0] != actions[1].cpu()).sum())
        for name, index in (("observation", 0), ("reward", 1), ("terminated", 2), ("truncated", 3)):
            different[name] += int((outputs[0][index] != outputs[1][index].cpu()).sum())
        if dtype == "float64":
            there.set_state(here.state())
    place, cases_met = ("episode", "cpu-cuda", devices[1], dtype), steps * num_envs
    # What is rounded to float32 at last may be tipped over by the last bit of a float64.
    tipped = {"observation"} | ({"reward"} if "reward" in cases.asked.tolerances.float64 else set())
    for name, count in different.items():
        if name == "state" and dtype == "float64":
            passed = error <= DEVICES_APART
            yield row(place, name, cases_met, passed, error=error, tolerance=DEVICES_APART)
        else:
            allowed = cases_met // 1_000_000 if dtype == "float64" and name in tipped else 0
            yield row(place, name, cases_met, count <= allowed, differing=count, allowed=allowed)
    if dtype == "float32":
        yield from trajectories_agree(cases, place, (here, there))


def trajectories_agree(cases: Cases, place: tuple, batches: tuple) -> Iterator[dict]:
    """Fused steps from equal states on two devices: every buffer of their trajectories, bit for bit."""
    here, there = batches
    for policy in ("random", "fixed"):
        there.set_state(here.state())
        chosen = "random" if policy == "random" else cases.policy
        rows = [env.rollout(100, chosen, "trajectory") for env in batches]
        for name, ours in rows[0].items():
            different = (ours != rows[1][name].cpu()).reshape(-1).numpy()
            yield equal(place, f"{name} of fused steps, {policy} policy", different)


# ---- all of them ------------------------------------------------------------------------------------------------


def comparisons(cases: Cases, devices: list[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name."""
    variants = [(), *(tuple(sorted(v.items())) for v in cases.asked.get("variants", ()))]
    found: dict[str, Comparison] = {}

    def add(name: str, compare: Callable, *arguments, start: Callable | None = None):
        found[name] = Comparison(functools.partial(compare, cases, *arguments), start)

    for device, dtype, variant in itertools.product(devices, DTYPES, variants):
        name = f"transition {device} {dtype} {dict(variant) or ''}".strip()
        add(name, transition, device, dtype, variant, start=functools.partial(cases.start, variant))
    for device in devices:
        if envs.has_arrays(cases.name):
            add(f"arrays {device}", arrays, device, start=cases.start)
        for policy in POLICIES:
            start = functools.partial(original_episodes, cases, policy)
            add(f"distribution {device} {policy}", distribution, device, policy, start=start)
        for policy in POLICIES:
            add(f"episode {device} {policy}", episode, device, policy)
    if "cuda" in devices:
        for dtype in DTYPES:
            add(f"cpu-cuda {dtype}", devices_agree, dtype)
    return found
