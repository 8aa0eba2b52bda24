"""The port is its original: side by side, slot for slot, under the same actions.

An error is abs(a - b) / max(abs a, abs b, s). s is the queue's largest in or out so far, 1 for costs, rewards and
observations, and 0 for running maxima.
"""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.vehicular_edge.original import get_state, set_state
from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, state_shapes
from lockstep.envs.vehicular_edge.scenario import Calibration, draw
from lockstep.envs.vehicular_edge.scenario.traffic import TRAFFIC

SMALL = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}
POLICIES = ("uniform", "cloud", "zero", "clustered", "edges", "hot")
# Of queues; of costs and rewards; of observations and what else is float32 in every build.
TOLERANCES = {"float32": (1e-4, 1e-5, 1e-5), "float64": (1e-10, 1e-10, 1.2e-7)}
NUMBERS = ("cost", "drift", "success", "reward")


def actions(params, policy: str, seed: int) -> np.ndarray:
    """Of an episode, [T, 2, A]: all uniform; every target 1; every share 0; two targets and half the shares 0; targets
    among the edges; or one share in five 1 and the others 0.
    """
    rng = np.random.default_rng([seed, POLICIES.index(policy)])
    raw = rng.random((params.slots, 2, params.action_length), dtype=np.float32)
    if policy == "cloud":
        raw[:, 0] = 1
    elif policy == "zero":
        raw[:, 1] = 0
    elif policy == "clustered":
        raw[:, 0] = np.where(raw[:, 0] < 0.5, raw[:, :1, 0], 1)
        raw[:, 1] *= rng.random(raw[:, 1].shape) < 0.5
    elif policy == "edges":
        raw[:, 0] = 0.45 + 0.5 * raw[:, 0]
    elif policy == "hot":
        raw[:, 1] = raw[:, 1] > 0.8
    return raw


def pair(scenarios, dtype: str):
    """An original on each scenario, and the port with as many environments, in their first states."""
    originals = [envs.make_original("vehicular_edge", scenario=scenario) for scenario in scenarios]
    for original in originals:
        original.reset(seed=0)
    options = {"dtype": dtype, "autoreset_mode": "Disabled", "trace": True, "check_actions": False}
    port = envs.make("vehicular_edge", len(scenarios), scenarios=list(scenarios), **options)
    first = {name: np.stack([get_state(one)[name] for one in originals]) for name in state_shapes(port.params)}
    place(port, first, 0)
    return originals, port


def place(port, state: dict, t: int):
    """Puts environment b into scenario b and into row b of a state."""
    found = {name: torch.from_numpy(np.ascontiguousarray(rows)) for name, rows in state.items()}
    port.set_state(found | {"elapsed": t, "scenario": torch.arange(port.num_envs)})


def error(ours, theirs, scale=0.0) -> float:
    """The largest; equal infinities are none."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    assert ours.shape == theirs.shape
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.abs(ours - theirs) / np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), scale)
    return float(np.max(np.where(ours == theirs, 0.0, found)))


def step_both(originals, port, raw) -> list[dict]:
    """One slot of both under actions [B, 2, A]; the originals' records, with what they saw and whether they ended."""
    seen = []
    for original, action in zip(originals, raw, strict=True):
        shown, _, _, ended, told = original.step(dict(zip(original.possible_agents, action, strict=True)))
        seen.append(original.record | {"observation": shown["allocation"], "truncated": ended["allocation"]})
    port_shown, _, terminated, truncated, info = port.step(torch.from_numpy(np.ascontiguousarray(raw)))
    port.shown = {"observation": port_shown[:, 1].numpy(), "truncated": truncated[:, 0].numpy(), **info}
    assert not terminated.any() and told["allocation"].keys() <= info.keys()
    return seen


def assert_same(originals, port, seen: list[dict], largest: dict, dtype: str, scale_cpu: float):
    """The slot that both have just played. largest: in or out of every queue so far, which is brought up to date."""
    queue, single, shown = TOLERANCES[dtype]
    record, fields = port.record(), port.fields()
    for b, (original, theirs) in enumerate(zip(originals, seen, strict=True)):
        for name in (*theirs["in"], "delay"):
            flows = theirs["delay"] if name == "delay" else {way: theirs[way][name] for way in ("in", "out")}
            before = largest.get((b, name), 0.0)
            largest[b, name] = np.maximum(before, np.maximum(flows["in"], flows["out"]))
            for way, flow in flows.items():
                ours = record["delay"][way][b] if name == "delay" else record[way][name][b]
                assert error(ours, flow, largest[b, name]) <= queue, (b, way, name)
        for name, value in get_state(original).items():
            scale = largest.get((b, name), scale_cpu if name.startswith("cpu") else 0.0)
            if name.startswith("drift"):  # (Q - out) in: what cancels there is as large as either
                family = name.split("_")[2]
                scale = largest[b, family].max() ** 2
            assert error(fields[name][b], value, scale) <= queue, (b, name)
        for name in NUMBERS:
            assert error(record[name][b], theirs[name], 1.0) <= single, (b, name)
        assert error(port.shown["observation"][b], theirs["observation"], 1.0) <= shown
        for name in ("energy", "jain"):
            assert error(port.shown[name][b], theirs[name], 1.0) <= shown, (b, name)
        assert port.shown["dropped"][b].tolist() == list(theirs["dropped"])
        assert port.shown["truncated"][b] == theirs["truncated"]
        np.testing.assert_array_equal(record["admitted"][b], theirs["admitted"])
        np.testing.assert_array_equal(record["target"][b], theirs["target"])


def assert_same_record(originals, port, seen: list[dict]):
    """All that both say of a slot, in float64: every flow, cost and rate, and the observation before it is rounded."""
    record = port.record()
    for b, (original, theirs) in enumerate(zip(originals, seen, strict=True)):
        for way in ("in", "out", "dep"):
            for name, flow in theirs[way].items():
                assert error(record[way][name][b], flow, 1e-300) <= 1e-10, (b, way, name)
        for kind, cost in theirs["costs"].items():
            assert error(record["costs"][kind][b], cost, 1e-300) <= 1e-10, (b, kind)
        for name in ("rate_v2v", "rate_v2i", "energy", "jain"):
            assert error(record[name][b], theirs[name], 1.0) <= 1e-10, (b, name)
        assert error(record["observation"][b], original.observe(), 1.0) <= 1e-10
        assert port.shown["admitted"][b] == theirs["admitted"].sum()


def play(scenarios, policies, dtype: str, slots: int | None = None) -> list[list[dict]]:
    """Episodes side by side; the originals' records of each slot."""
    originals, port = pair(scenarios, dtype)
    params, largest, found = port.params, {}, []
    raw = np.stack([actions(params, policy, b) for b, policy in enumerate(policies)])
    for t in range(slots or params.slots):
        found.append(step_both(originals, port, raw[:, t]))
        assert_same(originals, port, found[-1], largest, dtype, params.vehicle_low_ghz)
        if dtype == "float64":
            assert_same_record(originals, port, found[-1])
    assert slots or port.shown["truncated"].all()
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["original", "physical"])
def test_an_episode_is_the_originals_on_every_map_under_every_policy(preset, dtype):
    """And the maps reach what a careless port would get wrong."""
    params = Params(**PRESETS[preset] | SMALL)
    scenarios = [draw(params, traffic) for traffic in TRAFFIC for _ in POLICIES]
    records = [record for slot in play(scenarios, POLICIES * len(TRAFFIC), dtype) for record in slot]
    overflow, rejected, dropped = np.sum([record["dropped"] for record in records], axis=0)
    assert min(overflow, rejected, dropped) > 0
    assert any((scenario.access < 0).any() for scenario in scenarios)
    assert any((scenario.server_of < 0).any() for scenario in scenarios)
    local = [(record["admitted"] & (record["target"] == 0)).sum(axis=1) for record in records]
    assert min(map(np.min, local)) == 0 and max(map(np.max, local)) == params.cap_local
    cloud = [(record["admitted"] & (record["target"] == params.options - 1)).sum() for record in records]
    assert max(cloud) == params.cap_cloud


@pytest.mark.parametrize("preset", ["original", "physical"])
def test_an_episode_at_the_default_size_is_the_originals(preset):
    params = Params(**PRESETS[preset])
    play([draw(params, traffic) for traffic in TRAFFIC], ("uniform", "edges", "hot", "cloud"), "float64", slots=20)


def scattered(params, rng) -> dict[str, np.ndarray]:
    """A state with numbers from 0.01 to 1,000, three in ten of them 0; minima of the drift below 0, or +inf."""
    state = {}
    for name, shape in state_shapes(params).items():
        value = 10.0 ** rng.uniform(-2, 3, shape) * (rng.random(shape) < 0.7)
        if name.startswith("drift_min"):
            value = np.where(value > 0, -value, np.inf)
        state[name] = value.astype(np.float32).astype(np.float64)
    return state


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["original", "physical"])
def test_a_slot_from_any_state_is_the_originals_at_the_default_size(preset, dtype):
    params, rng = Params(**PRESETS[preset]), np.random.default_rng(0)
    originals, port = pair([draw(params, traffic) for traffic in TRAFFIC], dtype)
    raw = np.stack([actions(params, policy, 1) for policy in POLICIES[: len(originals)]])
    for t in (0, 1, 20, params.slots - 1):
        states = [scattered(params, rng) for _ in originals]
        for original, state in zip(originals, states, strict=True):
            set_state(original, state, t)
        place(port, {name: np.stack([state[name] for state in states]) for name in states[0]}, t)
        seen = step_both(originals, port, raw[:, t])
        largest = {(b, name): state[name] for b, state in enumerate(states) for name in (*seen[b]["in"], "delay")}
        assert_same(originals, port, seen, largest, dtype, params.vehicle_low_ghz)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_any_mixture_of_switches_is_the_originals(seed):
    rng = np.random.default_rng([seed, 26])
    switches = {name: bool(on) for name, on in zip(SWITCHES, rng.random(len(SWITCHES)) < 0.5, strict=True)}
    sizes = {"vehicles": int(rng.choice([8, 20, 40])), "edges": int(rng.choice([1, 4, 12]))}
    params = Params(**SMALL | sizes, **switches, draw=str(rng.choice(["philox", "published"])))
    scenarios = [draw(params, traffic, calibration=Calibration.ones(params)) for traffic in TRAFFIC]
    play(scenarios, rng.permutation(POLICIES)[: len(TRAFFIC)].tolist(), "float64")


def test_the_integer_form_is_what_the_raw_action_decodes_to():
    """Targets decoded by the original, shares as they are."""
    params = Params(**SMALL)
    scenario = draw(params, "city")
    (original,), raw_port = pair([scenario], "float32")
    _, integer_port = pair([scenario], "float32")
    for action in actions(params, "uniform", 4):
        target, share = original.decode(*action)
        target = torch.from_numpy(target)[None]
        share = torch.from_numpy(np.asarray(share, dtype=np.float32))[None]
        raw_port.step(torch.from_numpy(action)[None])
        integer_port.step({"target": target, "share": share})
        assert torch.equal(raw_port.state()["state"], integer_port.state()["state"])


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["original", "physical"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gpu_lives_the_life_of_the_cpu(preset, dtype):
    options = {"preset": preset, "traffic": "city", "dtype": dtype, "check_actions": False}
    here, there = (envs.make("vehicular_edge", 64, device=device, **options) for device in ("cpu", "cuda"))
    queue, single, _ = TOLERANCES[dtype]
    for env in (here, there):
        env.reset(seed=5)
    for _ in range(60):
        ours, theirs = here.random_actions()[0], there.random_actions()[0]
        assert torch.equal(ours, theirs.cpu())
        one, other = here.step(ours), there.step(theirs)
        assert torch.equal(one[3], other[3].cpu())
        assert error(other[1].cpu(), one[1], 1.0) <= max(single, 1.2e-7)
        assert error(there.state()["state"].cpu(), here.state()["state"], 1.0) <= queue
