"""The ports made for these tests, stated again in NumPy: what kernels are given is what is documented."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from lockstep import envs
from lockstep.envs import Field, World, noise
from lockstep.envs.kernels import compile
from tests.contract.batches import SYNTHETIC, folder, make, played, port, random_step, statistics
from tests.contract.ports.counters.port import WEIGHTS
from tests.contract.ports.readers.port import PAGES


def tables_but(**changes):
    """Tables of counters, some replaced."""
    right = {"weight": np.zeros(4, np.float32), "patience": np.zeros(3, np.int32)}
    return lambda dtype, num_envs: right | changes


SEED, FIRST, LIMIT = 2**32 + 9, 40, 9
REALS = {"float32": np.float32, "float64": np.float64}


class Numbers:
    """The noise of single environments, whose episodes are counted here."""

    def __init__(self, num_envs: int):
        self.index, self.episode, self.t = FIRST + np.arange(num_envs), np.zeros(num_envs, int), np.zeros(num_envs, int)

    def words(self, stream: int) -> np.ndarray:  # [4, B]
        return noise.philox((self.index, self.episode, self.t, stream), SEED)

    def begin(self, over: np.ndarray):
        self.episode, self.t = self.episode + over, np.where(over, 0, self.t)


def compare(env, fields: dict, obs, reward, terminated, truncated, over, numbers, outputs):
    """The batch after a step against what NumPy has, bit for bit."""
    found = outputs or (env._outputs[0], None, None, None, None)
    np.testing.assert_array_equal(found[0].numpy(), obs)
    if outputs:
        for part, expected in zip(outputs[1:4], (reward, terminated, truncated), strict=True):
            np.testing.assert_array_equal(part.numpy(), expected)
        np.testing.assert_array_equal(outputs[4]["_final_obs"].numpy(), over)
    for name, field in env.fields().items():
        np.testing.assert_array_equal(field.numpy(), fields[name], err_msg=name)
    state = env.state()
    np.testing.assert_array_equal(state["elapsed"].numpy(), numbers.t)
    np.testing.assert_array_equal(state["episode"].numpy(), numbers.episode)


@pytest.mark.parametrize("dtype", REALS)
def test_counters_live_as_numpy_says(dtype):
    """A vector of numbers, fields of three types, tables by scenario and by environment, noise wherever it may be."""
    env = make("counters", 200, scenarios=3, dtype=dtype, seed=SEED, first_index=FIRST, max_episode_steps=LIMIT)
    real, numbers, patience = REALS[dtype], Numbers(200), 3 + np.arange(200) % 4

    def first() -> tuple:
        words = noise.philox((numbers.index, numbers.episode, 0, noise.RESET), SEED)
        scenario = words[0] % 3
        place = np.stack([noise.uniform(words[k], -1, 1, real) for k in (1, 2)], axis=1)
        nothing = np.zeros(200), np.zeros((200, 2), np.int32)
        return scenario, {
            **{"place": place, "pace": np.array(WEIGHTS, real)[scenario]},
            **dict(zip(("walked", "seen"), nothing, strict=True)),
        }

    def observed(fields: dict) -> np.ndarray:
        own = noise.uniform(numbers.words(2)[0], -1, 1, real)
        columns = (*fields["place"].T, fields["pace"], fields["walked"], *fields["seen"].T, own)
        return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)

    scenario, fields = first()
    compare(env, fields, observed(fields), *[None] * 4, numbers, None)
    ends = 0
    for _ in range(3 * LIMIT):
        action = env.random_actions()[0]
        given, words, place = action.numpy().astype(real), numbers.words(1), fields["place"]
        push = fields["pace"] * given[:, 0] + given[:, 1] * real(0.25) + given[:, 2]
        moved = place[:, 0] + push + noise.uniform(words[0], -0.5, 0.5, real)
        seen = np.stack([fields["seen"][:, 0] + (moved > 0), words[1] & 7], axis=1)
        fields = fields | {
            "place": np.stack([moved, place[:, 1] * real(0.5) + numbers.t.astype(real)], axis=1),
            "walked": fields["walked"] + push.astype(np.float64),
            "seen": seen,
        }
        numbers.t = numbers.t + 1
        terminated, truncated = seen[:, 0] >= patience, numbers.t == LIMIT
        over, last, reward = terminated | truncated, observed(fields), moved.astype(np.float32)
        numbers.begin(over)
        begun, anew = first()
        scenario = np.where(over, begun, scenario)
        fields = {
            name: np.where(over.reshape(-1, *[1] * (rows.ndim - 1)), anew[name], rows) for name, rows in fields.items()
        }
        outputs = env.step(action)
        compare(env, fields, observed(fields), reward, terminated, truncated, over, numbers, outputs)
        np.testing.assert_array_equal(outputs[4]["final_obs"].numpy()[over], last[over])
        np.testing.assert_array_equal(env.state()["scenario"].numpy(), scenario)
        ends += over.sum()
    assert ends > 600


@pytest.mark.parametrize("fused", [False, True])
def test_readers_live_as_numpy_says(fused):
    """Metrics, ends by the environment, a state that outlasts episodes, observations that end with a table's row."""
    B, K, limit = 200, 60, 28
    env = make("readers", B, seed=SEED, first_index=FIRST, max_episode_steps=limit)
    actions, numbers = env.random_actions(K).numpy(), Numbers(B)
    found = {name: rows.numpy() for name, rows in env.rollout(K, store="trajectory").items()} if fused else {}

    def first() -> np.ndarray:
        words = noise.philox((numbers.index, numbers.episode, 0, noise.RESET), SEED)
        return noise.uniform(words[1], -1, 1, np.float32)

    def observed(place: np.ndarray) -> np.ndarray:
        return np.column_stack([place, PAGES[(numbers.index + numbers.t) % 7]])

    place, over_by_itself = first(), 0
    for k in range(K):
        seen, moved = observed(place), place * np.float32(0.5) + actions[k, :, 0] - actions[k, :, 1]
        t, before = numbers.t, numbers.episode
        numbers.t = numbers.t + 1
        terminated, truncated = moved > 2.6, numbers.t == 25
        over, last = terminated | truncated, observed(moved)
        numbers.begin(over)
        place = np.where(over, first(), moved)
        expected = {"obs": seen, "reward": moved, "terminated": terminated, "truncated": truncated}
        if fused:
            for name, rows in expected.items():
                np.testing.assert_array_equal(found[name][k], rows, err_msg=name)
        else:
            compare(env, {"place": place, "read": numbers.episode}, observed(place), moved, terminated, truncated, over,
                    numbers, outputs := env.step(actions[k]))  # fmt: skip
            np.testing.assert_array_equal(outputs[4]["final_obs"].numpy()[over], last[over])
            np.testing.assert_array_equal(outputs[4]["step"].numpy(), t)
            np.testing.assert_array_equal(outputs[4]["before"].numpy(), before)
        over_by_itself += truncated.sum()
    np.testing.assert_array_equal(env.fields()["read"].numpy(), numbers.episode)
    assert over_by_itself > 50


@pytest.mark.parametrize(("name", "dtype"), [("walkers", "float32"), ("walkers", "float64"), ("walker", "float32")])
def test_walkers_live_as_numpy_says(name, dtype):
    """Agents who end apart, choices of several numbers, a kernel and a function before the step, metrics, a record."""
    env = make(name, 12, dtype=dtype, seed=SEED, first_index=FIRST, max_episode_steps=LIMIT, trace=True)
    real, numbers, A = REALS[dtype], Numbers(12), max(len(env.agents), 1)

    def words(stream: int, low: float, high: float) -> np.ndarray:  # [B, A]
        return noise.uniform(numbers.words(stream)[:A].T, low, high, real)

    def first() -> dict:
        start = words(4, -1, 1)
        return {
            **{"place": start, "wish": np.zeros((12, A, 2), real), "pull": np.zeros((12, A), real)},
            **{"walked": np.zeros((12, A)), "steps": np.zeros((12, A), np.int32)},
        }

    def observed(fields: dict, shown) -> np.ndarray:
        t = np.broadcast_to(numbers.t[:, None], (12, A))
        columns = fields["place"], fields["walked"], fields["steps"], t, words(3, -1, 1)
        return np.stack(columns, axis=2).astype(np.float32) * shown[..., None]

    def shaped(rows: np.ndarray) -> np.ndarray:
        return rows if env.agents else rows[:, 0]

    everybody = np.ones((12, A), bool)
    fields, active = first(), everybody
    compare(env, fields, shaped(observed(fields, everybody)), *[None] * 4, numbers, None)
    totals, returns, ends = np.zeros(12, np.float32), [], 0
    for _ in range(6 * LIMIT):
        action = env.random_actions()[0]
        given = action.numpy().reshape(12, A, 2)
        wish = np.stack(
            [given[..., 0] - 1, ((given[..., 1] - 2).astype(real) * real(0.25) + words(1, -0.5, 0.5))], axis=2
        )
        wish = wish.astype(real)
        pull = wish[..., 0] * real(0.5) + wish[..., 1]
        place = np.where(active, fields["place"] + pull + words(2, -0.25, 0.25), fields["place"])
        walked = fields["walked"] + active * np.abs(pull).astype(np.float64)
        fields = {"place": place, "wish": wish, "pull": pull, "walked": walked, "steps": fields["steps"] + active}
        numbers.t = numbers.t + 1
        played, late = active, (numbers.t == LIMIT)[:, None]
        terminated = played & (np.abs(place) > 3)
        truncated = late & (played & ~terminated if len(env.agents) > 1 else everybody)
        over = late[:, 0] | ~(played & ~terminated).any(axis=1)
        reward = np.where(played, place, 0).astype(np.float32)
        totals = totals + sum(reward.T) / np.float32(A)
        shown, last = played | over[:, None], observed(fields, played)
        told = np.stack([played.sum(axis=1), fields["steps"][:, 0], walked[:, 0]], axis=1).astype(np.float32)
        pulled = pull.copy()
        numbers.begin(over)
        fields = {
            key: np.where(over.reshape(-1, *[1] * (rows.ndim - 1)), first()[key], rows) for key, rows in fields.items()
        }
        active = np.where(over[:, None], everybody, played & ~terminated)
        outputs = env.step(action)
        after = *map(shaped, (observed(fields, shown), reward, terminated, truncated)), over, numbers
        compare(env, fields, *after, outputs)
        info = outputs[4]
        np.testing.assert_array_equal(info["final_obs"].numpy()[over], shaped(last)[over])
        np.testing.assert_array_equal(np.column_stack([info["crowd"].numpy(), info["paces"].numpy()]), told)
        np.testing.assert_array_equal(env._buffers["record"].numpy()[:, :A], pulled)
        if env.agents:
            np.testing.assert_array_equal(info["active"].numpy(), active)
        np.testing.assert_array_equal(info["episode_return"].numpy()[over], totals[over])
        returns += totals[over].tolist()
        totals[over] = 0
        ends += over.sum()
    assert ends > 60
    counted = statistics(env)
    assert counted["episodes"] == ends
    assert counted["return_mean"] == pytest.approx(np.mean(returns), abs=1e-5)
    assert (counted["return_min"], counted["return_max"]) == (min(returns), max(returns))


@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_so_many_lanes_hold_the_same_walkers(lanes):
    few, many = played("walkers"), played("walkers", lanes=lanes)
    assert many.lanes == lanes
    assert torch.equal(random_step(few)[0], random_step(many)[0])
    assert torch.equal(few.state()["state"], many.state()["state"])


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [5, 8, 32, 64])
@pytest.mark.parametrize("target", compile.TARGETS)
def test_kernels_of_every_number_of_lanes_compile_for_the_gpu_without_spilling(target, lanes):
    for name in SYNTHETIC:
        several = port(name).of("lanes") > 1
        if not several and lanes != 8:
            continue
        options = {"mode": "SameStep", "dtype": "float32", "limit": 30, "tile": 64}
        world = port(name).world(port(name), None, {"lanes": lanes} if several else {})
        for used in compile.resources(port(name).unit(folder(name), world, **options), target):
            assert used["spill_store_bytes"] == used["spill_load_bytes"] == 0, (name, used)


# ---- what a port may declare ----------------------------------------------------------------------------------------


ONE, MANY = "counters", "walkers"


def flagged(port, preset, params):
    return World(port.make_params(preset, params), flags={"crowd": ()})


@dataclasses.dataclass(frozen=True)
class Seeded:
    seed: float = 3.0


@pytest.mark.parametrize(
    ("name", "traits", "message"),
    [
        (ONE, {"agents": ("one", "other")}, "Counters: several agents, phases, .* need several lanes"),
        (ONE, {"agents": ("one", "one")}, r"agents=\('one', 'one'\) must differ"),
        (ONE, {"phases": ("propose", "step")}, "need several lanes"),
        (ONE, {"phases": ("propose",)}, r"phases=\('propose',\) must end with 'step'"),
        (ONE, {"world": flagged}, "need several lanes"),
        (ONE, {"world": flagged, "lanes": lambda params: 1}, "need several lanes"),
        (ONE, {"record": 3}, "need several lanes"),
        (ONE, {"decode": dict}, "need several lanes"),
        (ONE, {"lanes": 17}, "lanes=17 must be from 1 to 16, or a multiple of 32"),
        (ONE, {"observes_state": True}, "needs observations that are the state, not 7 numbers"),
        (ONE, {"observation": Box(-1.0, 1.0, (5, 2))}, r"observations have the shape \(5, 2\); kernels write one axis"),
        (ONE, {"action": Box(0, 3, (3,), np.int32)}, "is no action space of a kernel: a Box of floats"),
        (ONE, {"action": Discrete(300)}, "more than 256 choices need several lanes"),
        (ONE, {"default_preset": "physical"}, "no preset is the default one, 'physical'"),
        (ONE, {"reset_bounds": lambda options: (1.0,)}, r"1 reset bounds need as many names, not \(\)"),
        (ONE, {"params": Seeded}, "the parameter 'seed' is an option of every batch; rename it"),
        (ONE, {"state": (Field("seed"),)}, "the name 'seed' is taken"),
        (ONE, {"state": (Field("x"), Field("x"))}, "the name 'x' is taken"),
        (ONE, {"state": (Field("x", dtype="int32"),)}, "the state needs a field of dtype 'real'"),
        (MANY, {"absent": True, "joint": True}, "absent=True needs agents that share nothing, joint=False"),
        (MANY, {"running_return": False}, "Walkers: running_return=False needs one lane"),
        (MANY, {"observes_state": True}, "observes_state=True needs one lane"),
        (MANY, {"metrics": {"ended": 1}}, "the name 'ended' is taken"),
    ],
)
def test_traits_that_do_not_go_together_are_refused(name, traits, message):
    with pytest.raises(ValueError, match=message):
        envs.BatchedEnv(dataclasses.replace(port(name), **traits), folder(name), 3)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"shape": 3}, r"field 'x': shape=3 must be a tuple of whole numbers above 0"),
        ({"shape": (-1,)}, r"shape=\(-1,\) must be"),
        ({"low": 2.0, "high": 1.0}, "low=2.0 must not exceed high=1.0"),
        ({"low": np.nan}, "low=nan must not exceed"),
        ({"dtype": "float16"}, "dtype='float16' must be one of"),
    ],
)
def test_a_field_that_cannot_be_is_refused(field, message):
    with pytest.raises(ValueError, match=message):
        Field("x", **field)


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ({"tables": lambda dtype, num_envs: {"wait": np.zeros(2)}}, "no table for weight, patience"),
        ({"tables": tables_but(wait=np.zeros(2))}, "struct Tables has no 'wait'; did you mean 'weight'"),
        ({"tables": tables_but(weight=np.zeros(2))}, "weight is real, torch.float32; the table is torch.float64"),
        (
            {"tables": tables_but(patience=np.zeros(2, np.int64))},
            "patience is int, torch.int32; the table",
        ),
        ({"tables": lambda dtype, num_envs: None}, "world.tables must return arrays by name, not NoneType"),
        ({"tables": None}, "world.tables is None, so kernel.cuh must not declare struct Tables"),
        ({"defines": {"OBS": 2}}, "world.defines: OBS is defined for every kernel"),
        ({"shown": {"num_envs": 7}}, "world.shown: 'num_envs' is an attribute of every batch"),
        ({"shown": {"lanes": 7}}, "world.shown: 'lanes' is an attribute of every batch"),
        ({"shown": {"step": 7}}, "world.shown: 'step' is an attribute of every batch"),
        ({"scenarios": -1}, "scenarios=-1 must be an integer from 0"),
        ({"phases": ("propose", "step")}, "need several lanes"),
        ({"phases": ("propose",)}, r"world.phases=\('propose',\) must end with 'step'"),
        ({"flags": {"near": ()}, "amounts": {"near": ()}}, "near is both a flag and an amount"),
    ],
)
def test_a_world_that_the_kernel_cannot_be_of_is_refused(world, message):
    declared = port(ONE)
    right = declared.world(declared, None, {})
    faulty = dataclasses.replace(declared, world=lambda *given: dataclasses.replace(right, **world))
    with pytest.raises(ValueError, match=message):
        envs.BatchedEnv(faulty, folder(ONE), 3)


def of_world(declared: envs.Port, **changes) -> envs.Port:
    """The port with a world of which some is replaced."""

    @functools.wraps(declared.world)
    def world(*given, **options) -> envs.World:
        return dataclasses.replace(declared.world(*given, **options), **changes)

    return dataclasses.replace(declared, world=world)


def test_phases_of_a_world_take_the_place_of_the_ports():
    def strive(env: envs.BatchedEnv):
        env.fields()["pull"].copy_(2 * env.fields()["wish"][..., 0])

    declared = of_world(port(MANY), phases=("propose", strive, "step"))
    env = envs.BatchedEnv(declared, folder(MANY), 4, autoreset_mode="Disabled")
    env.reset()
    env.step(env.random_actions()[0] * 0 + 2)  # to the right
    assert (env.fields()["pull"] == 2).all()
    assert (port(MANY).phases[1] is not strive) and env.phases[1] is strive


def test_tables_that_a_batch_writes_tell_no_pool_from_another():
    declared = port(ONE)
    with_written = of_world(declared, written=("patience",))
    pools = [
        [envs.BatchedEnv(one, folder(ONE), B, scenarios=2)._buffers.pool for B in (3, 5)]
        for one in (declared, with_written)
    ]  # patience is of environments
    assert pools[0][0] != pools[0][1] and pools[1][0] == pools[1][1]


def test_a_world_is_a_world():
    with pytest.raises(ValueError, match="Counters: world must return a World, not NoneType"):
        envs.BatchedEnv(dataclasses.replace(port(ONE), world=lambda *given: None), folder(ONE), 3)


def test_a_batch_can_be_made_of_a_port_and_its_folder():
    env = envs.BatchedEnv(port("counters"), folder("counters"), 3, scenarios=1)
    assert env.reset()[0].shape == (3, 7)
    with pytest.raises(ValueError, match="scenarios=5 must be an integer from 1 to 4"):
        envs.BatchedEnv(port("counters"), folder("counters"), 3, scenarios=5)
