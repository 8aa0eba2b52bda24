"""Actions of a batch: shapes, types, bounds at each number, and what happens where nobody looks."""

import re
import warnings

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from tests.contract.batches import DEVICES, NAMES, copies, equal, having, make, one_lane, port, random_step

BOXES = having(lambda declared: isinstance(declared.of("action"), Box))
CHOICES = [name for name in NAMES if name not in BOXES]
NUMPY = {torch.uint8: "u1", torch.int32: "i4", torch.int64: "i8", torch.float32: "f4", torch.float64: "f8"}
INTEGERS, FLOATS = (torch.uint8, torch.int32, torch.int64), (torch.float32, torch.float64)


def random(env) -> torch.Tensor:
    return env.random_actions()[0]


# ---- forms ----------------------------------------------------------------------------------------------------------


def test_actions_have_the_documented_shape_and_types(name):
    env, space = make(name), port(name).of("action")
    numbers = space.shape or (1,)
    axes = (env.num_envs, *([len(env.agents)] if env.agents else []))
    flat = numbers == (1,) and not (env.agents and name in BOXES)
    assert env.actions.shape == (axes if flat else (*axes, *numbers))
    every = FLOATS if name in BOXES else INTEGERS
    assert env.actions.types == (every if env.lanes == 1 else (torch.float32,) if name in BOXES else (torch.int32,))
    assert random(env).shape == env.actions.shape and random(env).dtype == env.actions.stored_type


def test_every_allowed_form_of_an_action_gives_the_same_step(name):
    env = make(name)
    action = random(env)
    expected = copies(env.step(action))
    for dtype in env.actions.types:
        given = action.to(dtype)
        forms = [given, given.numpy(), given.numpy().astype(">" + NUMPY[dtype])]
        forms += [np.flip(np.flip(given.numpy(), 0).copy(), 0)]  # a reversed view
        forms += [given[..., None], given.numpy()[..., None]] if env.actions.numbers == 1 else []
        read_only = given.numpy().copy()
        read_only.flags.writeable = False
        for form in (*forms, read_only):
            other = make(name)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert equal(copies(other.step(form)), expected)


def test_an_action_of_another_form_is_refused_with_what_is_allowed(name):
    env = make(name)
    action, before = random(env), env.state()
    shapes = " or ".join(str(tuple(shape)) for shape in env.actions._shapes)
    types = ", ".join(str(dtype).removeprefix("torch.") for dtype in env.actions.types)
    kind = "a floating-point" if name in BOXES else "an integer"
    wrong, wrong_numpy = (torch.int64, np.int32) if name in BOXES else (torch.float32, np.float64)
    table = [
        (action[1:], f"action has shape {tuple(action[1:].shape)}; allowed: {shapes}"),
        (action[None], f"action has shape {tuple(action[None].shape)}; allowed: {shapes}"),
        (action.flatten()[0], f"action has shape (); allowed: {shapes}"),
        (action.to(wrong), f"action has dtype {str(wrong).removeprefix('torch.')}; allowed: {types}"),
        (torch.full(action.shape, torch.nan, dtype=torch.float16), "action has dtype float16"),
        (action.numpy().astype(wrong_numpy), f"action must be {kind} torch tensor or NumPy array, got"),
        (action.tolist(), f"action must be {kind} torch tensor or NumPy array, got list"),
        (action.to_sparse(), "action is sparse_coo; allowed: a dense tensor"),
        (None, "got NoneType"),
    ]
    for given, message in table:
        with pytest.raises(ValueError, match=re.escape(message)):
            env.step(given)
    assert equal(before, env.state())


def test_a_chosen_type_excludes_the_others(name):
    for dtype in make(name).actions.types:
        env = make(name, action_dtype=dtype)
        env.step(random(env).to(dtype))
        for other in {*INTEGERS, *FLOATS} - {dtype}:
            with pytest.raises(ValueError, match=f"action has dtype .*; allowed: {str(dtype)[6:]}$"):
                env.step(torch.zeros(env.actions.shape, dtype=other))
    with pytest.raises(ValueError, match="action_dtype=torch.bool must be one of"):
        make(name, action_dtype=torch.bool)


# ---- bounds ---------------------------------------------------------------------------------------------------------


def wrong_numbers(env, dtype: torch.dtype, number: int) -> list:
    """Values that a number of an action may not have, or that are no number."""
    low, high = env.actions.low[number].item(), env.actions.high[number].item()
    if dtype.is_floating_point:
        beyond = [np.nextafter(np.float32(limit), np.float32(away)) for limit, away in ((low, -9e9), (high, 9e9))]
        return [*(float(value) for value in beyond), 2 * high + 1, torch.nan, torch.inf, -torch.inf]
    return [high + 1, 255] if dtype == torch.uint8 else [-1, high + 1, 255]


@pytest.mark.parametrize("device", DEVICES)
def test_an_action_outside_the_space_is_named_and_nothing_moves(name, device):
    env = make(name, device=device, check_actions=True)
    before, count = env.state(), env.actions.numbers
    for dtype in env.actions.types:
        for number in sorted({0, count // 2, count - 1}):
            for value in wrong_numbers(env, dtype, number):
                action = random(env).to(dtype)
                place = [7, *([env.num_agents - 1] if env.agents else []), number][: action.ndim]
                action[tuple(place)] = value
                if action.ndim == 1:
                    sentence = rf"action\[7\]={value} of environment 7 is not in [\[0-9]"
                else:
                    names = ("environment", *(["agent"] if env.agents else []), "index")
                    where = ", ".join(f"{axis} {index}" for axis, index in zip(names, place, strict=True))
                    sentence = rf"action of {where} is {value}, not in [\[0-9]"
                with pytest.raises(ValueError, match=sentence):
                    env.step(action)
    assert equal(before, env.state())


def test_the_ends_of_the_space_belong_to_it(name):
    env = make(name)
    for limits in (env.actions.low, env.actions.high):
        for dtype in env.actions.types:
            row = torch.from_numpy(limits.copy()).to(dtype)
            env.step(row.expand(env.actions.shape))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHOICES)
def test_unchecked_a_choice_outside_the_space_acts_as_the_nearest(name, device):
    env, other = make(name, device=device, check_actions=False), make(name, device=device)
    count = int(np.prod(env.actions.shape))
    wild = (torch.arange(count, dtype=torch.int32).reshape(env.actions.shape) * 7 % 23 - 9).to(device)
    high = torch.from_numpy(env.actions.high).to(device)
    tame = torch.minimum(wild.clamp(min=0), high if env.actions.numbers > 1 else high[0]).to(torch.int32)
    assert equal(copies(env.step(wild)), copies(other.step(tame)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", BOXES)
def test_unchecked_not_a_number_acts_as_zero(name, device):
    env, other = make(name, device=device, check_actions=False), make(name, device=device)
    action = random(env)
    wild = action.reshape(env.num_envs, -1).clone()
    wild[:, ::3] = torch.nan
    wild = wild.reshape(action.shape)
    tame = wild.nan_to_num(0.0)
    assert equal(copies(env.step(wild)), copies(other.step(tame)))


@pytest.mark.parametrize("name", [name for name in BOXES if not one_lane(port(name))])
def test_unchecked_a_number_outside_the_box_acts_as_the_nearest(name):
    env, other = make(name, check_actions=False), make(name)
    wild = random(env) * 3 - 1
    wild.flatten()[::7], wild.flatten()[1::7] = torch.inf, -torch.inf
    low, high = (torch.from_numpy(limit) for limit in (env.actions.low, env.actions.high))  # [n], of each number
    assert equal(copies(env.step(wild)), copies(other.step(wild.clamp(low, high))))


def test_without_checks_actions_inside_the_space_do_the_same(name):
    env, other = make(name, check_actions=False), make(name)
    for _ in range(5):
        assert equal(copies(random_step(env)), copies(random_step(other)))
