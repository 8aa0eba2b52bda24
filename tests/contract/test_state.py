"""The state of a batch: out, into another batch, and on bit for bit; in parts; and what no batch takes."""

import contextlib
import itertools
import math

import numpy as np
import pytest
import torch

from tests.contract.batches import (
    APART,
    DEVICES,
    DRAWN,
    LIMIT,
    MODES,
    WHOLE,
    copies,
    equal,
    having,
    make,
    per_environment,
    played,
    port,
    random_step,
    spread,
)

BOUNDED = having(lambda declared: declared.reset_options)
PAIRS = [("float32", mode) for mode in MODES] + [("float64", "SameStep")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "mode"), PAIRS)
def test_a_saved_state_continues_bit_for_bit_in_another_batch(name, device, dtype, mode, tmp_path):
    options = {"device": device, "autoreset_mode": mode, "dtype": dtype, "check_actions": False}
    env = played(name, seed=4, steps=10, **options)
    torch.save(env.state(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    assert equal(env.state(), saved)
    other = make(name, seed=99, reset=False, **options)
    other.set_state(saved)
    assert equal(saved, other.state())
    assert torch.equal(env._outputs[0], other._outputs[0])
    for _ in range(30):
        assert equal(copies(random_step(env)), copies(random_step(other)))
    if mode == "SameStep":
        env.rollout(30)
        other.rollout(30)
    assert equal(env.state(), other.state())


def test_a_state_is_a_copy_in_types_that_a_mask_can_index(name):
    env = make(name)
    saved, kept = env.state(), {key: torch.clone(rows) for key, rows in per_environment(env.state()).items()}
    random_step(env)
    assert equal(per_environment(saved), kept) and not equal(env.state(), saved)
    unsigned = {torch.uint16, torch.uint32, torch.uint64}  # torch has few operations on these on a GPU
    assert not unsigned & {value.dtype for value in saved.values() if torch.is_tensor(value)}


def test_fields_are_views_of_the_state_in_the_declared_order(name):
    env, at = played(name), {}
    declared = env.port.fields(env.params)
    assert list(env.fields()) == list(declared)
    state = env.state()
    banks = {"real": "state", "float64": "doubles", "int32": "integers"}
    for key, field in declared.items():
        bank, width = banks[field.dtype], math.prod(field.shape)
        first = at.get(bank, 0)
        rows = state[bank][:, first : first + width].reshape(env.num_envs, *field.shape)
        assert equal(env.fields()[key], rows.to(env.fields()[key].dtype))
        at[bank] = first + width
    assert all(state[bank].shape[1] == width for bank, width in at.items())


# ---- parts of a state -----------------------------------------------------------------------------------------------


def test_a_masked_state_leaves_every_bit_of_the_others(name):
    env, other = played(name, seed=1), played(name, seed=2)
    before, given, mask = env.state(), other.state(), np.arange(env.num_envs) % 3 == 0
    env.set_state({**per_environment(given), "params": given["params"]}, mask)
    after = per_environment(env.state())
    for key, rows in after.items():
        assert equal(rows[mask], given[key][mask]) and equal(rows[~mask], before[key][~mask]), key
    env.set_state({"elapsed": 3}, ~mask)
    assert equal(env.state()["elapsed"], torch.where(torch.from_numpy(mask), given["elapsed"], 3))


def test_a_single_field_goes_in_by_its_name_and_is_observed(name):
    env, other = played(name, seed=1), played(name, seed=2)
    for key, rows in other.fields().items():
        before = {field: value.clone() for field, value in env.fields().items()}
        env.set_state({key: rows.clone()})
        assert equal(env.fields(), before | {key: rows})
    own = ("elapsed", "episode", "scenario", "terminated", "truncated", "active", "ended", "seed")
    env.set_state({key: value for key, value in other.state().items() if key in own})
    assert torch.equal(env._outputs[0], other._outputs[0])


def test_one_environments_row_goes_to_all(name):
    env, other = make(name, seed=1), played(name, seed=2)
    one = {key: rows[3] for key, rows in per_environment(other.state()).items()}
    env.set_state(one)
    assert all((rows == one[key]).all() for key, rows in per_environment(env.state()).items())
    field, rows = next(iter(other.fields().items()))
    env.set_state({field: rows[5].numpy()})
    assert (env.fields()[field] == rows[5]).all()


def test_a_state_put_in_is_observed_in_the_buffer_that_reset_returned(name):
    env, other = make(name, seed=1), make(name, seed=2)
    obs, _ = other.reset(seed=3)
    other.set_state(env.state())
    assert torch.equal(obs, env.reset(seed=1)[0])


@pytest.mark.parametrize("name", BOUNDED)
def test_reset_bounds_are_a_part_of_the_state(name):
    declared = port(name)
    env, other, third = (make(name, reset=False) for _ in range(3))
    low, high = declared.reset_bounds({})
    narrow = (0.5 * low, 0.5 * high) if low > 0 else (0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high)
    env.reset(options=dict(zip(declared.reset_options, narrow, strict=True)))
    other.set_state(env.state())
    everyone = {"reset_mask": np.ones(env.num_envs, dtype=bool)}
    first = other.reset(options=everyone)[0].clone()
    assert torch.equal(first, env.reset(options=everyone)[0])
    third.reset()
    assert not torch.equal(first, third.reset()[0])


# ---- what is refused ------------------------------------------------------------------------------------------------


def refused(env, state, message: str, mask=None):
    """Asserts that a state is refused with a sentence that names the call, and that nothing has changed."""
    before, shown = env.state(), env._outputs[0].clone()
    with pytest.raises(ValueError, match=f"^set_state: .*{message}"):
        env.set_state(state, mask)
    assert equal(before, env.state()) and equal(shown, env._outputs[0])


def test_a_state_of_other_parameters_or_scenarios_is_refused_unless_it_does_not_say_so(name):
    env = played(name)
    state, own = env.state(), dict(env.state()["params"])
    parameter = next(iter(own))
    other = state | {"params": own | {parameter: "else"}, "elapsed": 0}
    refused(env, other, f"of a batch with {parameter}='else', this one has {own[parameter]!r}; without the key")
    refused(env, state | {"params": own | {"wind": 1.0}}, "with wind=1.0, this one has no such parameter")
    refused(env, state | {"params": "default"}, "params must be a mapping of names to values, got str")
    here = r"(the \d|those) of this one" if env._buffers.tables else "this one, which has none"
    refused(env, {"pool": "0123"}, rf"a batch with other scenarios \(pool='0123'\) than {here}")
    assert ("pool" in state) == bool(env._buffers.tables)
    env.set_state({key: value for key, value in other.items() if key not in ("params", "pool")})
    assert not env.state()["elapsed"].any()


def test_episodes_that_have_ended_are_taken_from_the_same_autoreset_mode_only():
    """A state in which all go on means the same in each mode."""
    for one, other in itertools.permutations(MODES, 2):
        given, taking = (make("cartpole", autoreset_mode=mode) for mode in (one, other))
        taking.set_state(given.state())
        spread(given)
        random_step(given)  # of which those at step 19 are the last: 19, 39, ..
        state = given.state()
        assert state["truncated"].nonzero()[0] == LIMIT - 1
        refused(taking, state, f"environment 19 has ended in the state .*mode={one!r}, after which this one, {other!r}")
        taking.set_state(per_environment(state) | {"autoreset_mode": one}, (~state["truncated"]).numpy())
        if other != "SameStep" or one == "SameStep":
            taking.set_state({key: value for key, value in state.items() if key != "autoreset_mode"})
            assert equal(taking.state(), state | {"autoreset_mode": other})


def test_agents_that_end_alone_are_no_end_of_an_episode():
    """Of walkers, whose agents terminate one by one; a reset is due with the last of them."""
    given, taking = (make("walkers", autoreset_mode=mode) for mode in ("NextStep", "Disabled"))
    state = given.state()
    state["terminated"][2, 0] = True
    taking.set_state(state)
    state["ended"][4] = True
    refused(taking, state, "environment 4 has ended in the state of a batch with autoreset_mode='NextStep'")


@pytest.mark.parametrize("name", DRAWN)
def test_a_pool_is_known_by_its_scenarios_whatever_plays_them(name):
    pool = make(name).state()["pool"]
    assert pool == make(name, dtype="float64", seed=5).state()["pool"]
    assert pool != make(name, scenarios=3).state()["pool"]
    for key in make(name)._buffers.tables:
        env = make(name)
        table = env._buffers.tables[key]
        table.numpy()[...] += 1
        tolerated = env._buffers._inexact and table.is_floating_point()  # where last bits are a machine's
        assert (env.state()["pool"] == pool) == tolerated
    refused(make(name), make(name, scenarios=3).state(), "without the key 'pool' it is taken all the same")


def wrong_values(field) -> list[float]:
    """Values of a field that no step leads to."""
    if field.dtype == "int32":
        return [int(max(field.low, -(2**31))) - 1, int(min(field.high, 2**31 - 1)) + 1]
    below, above = (1.01 * field.low - 0.01, 1.01 * field.high + 0.01)
    beyond = [value for value in (below, above) if math.isfinite(value)]
    return [math.nan, *([math.inf, -math.inf] if field.finite else []), *beyond]


def test_a_field_takes_the_values_that_it_is_declared_for(name):
    env = make(name)
    for key, field in env.port.fields(env.params).items():
        rows = env.fields()[key].double().numpy().copy()
        dtype = np.int64 if field.dtype == "int32" else np.float64
        for value in wrong_values(field):
            wrong = rows.astype(dtype)
            wrong[(3, *[-1] * len(field.shape))] = value
            refused(env, {key: wrong}, f"{key}=.* of environment 3 must be")
        for limit in (field.low, field.high):
            if math.isfinite(limit):
                env.set_state({key: np.full(rows.shape, limit, dtype)})
                assert env.fields()[key].double().flatten()[0] == pytest.approx(limit, rel=1e-7)
        if field.dtype == "int32":
            refused(env, {key: rows + 0.5}, f"{key} must be integers, got float64")


def test_a_batch_steps_on_from_a_field_at_its_limit(name):
    """Its kernel reads no row of a table that is not there; a batch may refuse more than its fields do."""
    env = played(name)
    state = env.state()
    for key, field in env.port.fields(env.params).items():
        shape = env.fields()[key].shape
        for limit in (max(field.low, -(2**31)), min(field.high, 2**31 - 1)) if field.dtype == "int32" else ():
            env.set_state(state)
            with contextlib.suppress(ValueError):
                env.set_state({key: np.full(shape, limit, np.int64)})
            random_step(env)


def table(env) -> list[tuple]:
    """States that every environment refuses: state, sentence, mask."""
    B, limit = env.num_envs, env.max_episode_steps
    width = env.state()["state"].shape[1]
    everybody = np.ones(B, dtype=bool)
    return [
        ({"stat": 1}, "unknown key 'stat'; did you mean 'state'"),
        ({next(iter(env.fields())) + "x": 1}, f"unknown key '.*x'; did you mean {next(iter(env.fields()))!r}"),
        ({"state": torch.zeros(B, width + 1)}, rf"state has shape \({B}, {width + 1}\); needed: \({B}, {width}\) or"),
        ({"state": "x"}, "state must be an array of numbers, got 'x'"),
        (
            {"state": torch.zeros(B, width, dtype=torch.complex64)},
            "state must be real numbers in memory, got complex64",
        ),
        ({"elapsed": np.full(B, limit + 1)}, f"elapsed={limit + 1} of environment 0 must be in 0 .. {limit}"),
        ({"elapsed": limit}, f"elapsed={limit} of environment 0 must be in 0 .. {limit - 1}, its episode being unf"),
        ({"state": torch.zeros(B, width, device="meta")}, "state must be real numbers in memory, got meta"),
        ({"state": torch.zeros(B, width).to_sparse()}, "state must be real numbers in memory, got float32"),
        ({"elapsed": np.full(B, 2**64 - 1, np.uint64)}, f"elapsed={2**64 - 1} of environment 0 must be below 2.63"),
        ({"elapsed": np.full(B, 1.5)}, "elapsed must be integers, got float64"),
        ({"episode": np.full(B, -1)}, "episode=-1 of environment 0 must be in 0 .. 4294967295"),
        ({"terminated": 2}, "terminated"),
        ({"clock": -1}, "clock=-1 must be"),
        ({"clock": 2**62 + 1}, "clock=4611686018427387905 must be an integer from 0 to 4611686018427387904"),
        ({"autoreset_mode": "Never"}, "autoreset_mode='Never' must be one of 'NextStep', 'SameStep', 'Disabled'"),
        ({"clock": 3}, "'clock' belongs to the whole batch and cannot be masked", everybody),
        ({"seed": [1, 2]}, "seed has 2 values; groups=1 needs one"),
        ({"seed": -1}, "seed=-1 must be"),
        ([1], "state must be a mapping as state.. returns it, got list"),
        ({"elapsed": 0}, rf"mask must have shape \({B},\), got \({B - 1},\)", everybody[1:]),
    ]


def test_a_state_that_no_step_leads_to_is_refused_and_changes_nothing(name):
    env = played(name)
    for state, message, *mask in table(env):
        good = {} if mask or not isinstance(state, dict) else {"clock": 99, "seed": [7]}
        refused(env, good | state if isinstance(state, dict) else state, message, *mask)
    if name in DRAWN:
        refused(env, {"scenario": 2}, "scenario=2 of environment 0 must be in 0 .. 1")


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16])
def test_integers_of_any_type_are_taken(kind):
    """Torch itself compares no uint16, uint32 and uint64."""
    env = make("cartpole")
    env.set_state({"elapsed": (np.arange(env.num_envs) % 20).astype(kind)})
    assert env.state()["elapsed"].tolist() == [k % 20 for k in range(env.num_envs)]
    env.set_state({"x": np.array(2, kind)})
    assert (env.fields()["x"] == 2).all()


def test_numbers_with_a_gradient_leave_none_in_the_batch():
    env = make("cartpole")
    env.set_state({"x": torch.zeros(env.num_envs, requires_grad=True)})
    assert not any(rows.requires_grad for rows in env.fields().values())


def test_a_state_after_an_infinite_reward_is_taken_back():
    """The action, which nothing checks here, costs its square."""
    env = make("mountain_car_continuous", check_actions=False)
    env.reset(seed=0)
    env.step(torch.full(env.actions.shape, math.inf))
    state = env.state()
    assert bool((state["running_return"] == -math.inf).all())
    env.set_state(state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"bounds": torch.tensor(7.0)}, r"bounds has shape \(\); needed: \(2,\)"),
        ({"bounds": [5.0, -5.0]}, r"bounds=\[5.0, -5.0\]: .*'low'.* must lie in \[-0.418879, 0.418879\]"),
        ({"bounds": [0.2, 0.1]}, r"bounds=\[0.2, 0.1\]: .*low=0.2 must not exceed high=0.1"),
        ({"bounds": ["a", "b"]}, "bounds must be an array of numbers"),
        ({"x_dot": 1e300}, "x_dot=inf of environment 0 must be finite in float32"),
        ({"theta": 0.5}, r"theta=0.5 of environment 0 must be in \[-0.418879, 0.418879\]"),
    ],
)
def test_numbers_that_float32_or_the_kernel_do_not_hold_are_refused(state, message):
    refused(make("cartpole"), state, message)


def test_every_key_of_a_state_is_documented(name):
    documented = " ".join((type(make(name)).state.__doc__ or "").split())
    for key in make(name, autoreset_mode="NextStep").state():
        assert key in documented
    assert set(WHOLE) <= set(documented.replace(",", "").replace(";", "").replace(":", "").split())


@pytest.mark.parametrize("name", APART)
def test_an_episode_that_goes_on_has_an_agent_left(name):
    env = make(name, autoreset_mode="Disabled")
    nobody = np.ones((env.num_envs, env.num_agents), dtype=bool)
    nobody[2] = False
    over = np.arange(env.num_envs) == 2
    if not port(name).absent:  # where an episode may begin without any
        refused(env, {"active": nobody}, "active=False of environment 2 must be True for some agent")
    env.set_state({"active": nobody}, ~over)  # the others have some
    env.set_state({"active": nobody, "ended": over})
