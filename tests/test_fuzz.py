"""Odd inputs to all that is public: taken, or refused with a documented error, in time and in memory."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
import signal
import tempfile
import time
from pathlib import Path

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
import torch
import yaml
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep import envs
from lockstep.agents import dqn, ppo, rainbow
from lockstep.envs.batch.environment import OPTIONS
from lockstep.envs.crypto_trading import scenario as bars
from lockstep.envs.marine_navigation import scenario as waters
from lockstep.envs.marine_navigation.params import make_params as marine_params
from lockstep.envs.vehicle_routing import scenario as days
from lockstep.envs.vehicle_routing.params import Params as RoutingParams
from lockstep.envs.vehicular_edge.params import Params as EdgeParams
from lockstep.envs.vehicular_edge.scenario import Calibration, draw
from lockstep.envs.vehicular_edge.scenario import load as load_slots
from tests.contract import batches

REFUSED = (ValueError, TypeError, MemoryError, ResetNeeded, ClosedEnvironmentError)  # as the docstrings have them
LIMIT_S = 10  # of one input
LIMIT_BYTES = 2**30  # by which the process grows over all of a test
LARGE = [2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**64, 2**70, -(2**31), -(2**63)]

numbers = st.one_of(
    st.booleans(),
    st.integers(-3, 300),
    st.sampled_from(LARGE),
    st.floats(),
    st.sampled_from([np.float32(0.5), np.int8(-1), np.uint64(2**64 - 1), 1j]),
)
dtypes = st.sampled_from(["u1", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?", "c8", "U2", "M8[s]", "O"])
words = st.one_of(st.text(max_size=6), st.sampled_from(["cpu", "random", "nan", "SameStep", "trajectory", "cartpole"]))
plain = st.recursive(
    st.none() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


def arrays(*shapes: tuple[int, ...]) -> st.SearchStrategy:
    """Arrays of any type, of NumPy or torch, mostly in one of the shapes."""
    shape = st.sampled_from(shapes) | arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    elements = st.tuples(dtypes, shape).flatmap(lambda chosen: arrays_of.arrays(*chosen, fill=filling(chosen[0])))
    return elements | elements.map(as_tensor)


def filling(dtype: str) -> st.SearchStrategy:
    return arrays_of.from_dtype(np.dtype(dtype)) if dtype != "O" else st.none() | words | numbers


def as_tensor(array: np.ndarray):
    """The same of torch, where it has such a type; else the array."""
    try:
        return torch.from_numpy(array)
    except TypeError:
        return array


@contextlib.contextmanager
def bounded():
    """Within, an input is taken or refused before LIMIT_S; what takes longer is ended, and fails."""

    def end(number, frame):
        raise TimeoutError(f"more than {LIMIT_S} s")

    before, start = signal.signal(signal.SIGALRM, end), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        with contextlib.suppress(*REFUSED):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    took = time.monotonic() - start  # since a reader may have made a ValueError of the TimeoutError
    assert took < LIMIT_S, f"took {took:.1f} s"


@contextlib.contextmanager
def frugal():
    """Within, the process grows by less than LIMIT_BYTES."""
    Path("/proc/self/clear_refs").write_text("5")  # its peak so far is forgotten
    before = peak()
    yield
    grown = peak() - before
    assert grown < LIMIT_BYTES, f"grew by {grown} bytes"


def peak() -> int:
    """The largest memory of this process, in bytes."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


@pytest.mark.parametrize(("told_as", "failure"), [(ValueError, AssertionError), (TimeoutError, TimeoutError)])
def test_an_input_that_takes_too_long_fails_also_if_a_reader_refuses_it_for_that(monkeypatch, told_as, failure):
    monkeypatch.setitem(globals(), "LIMIT_S", 0.05)

    def read():
        try:
            time.sleep(5)
        except OSError as error:
            raise told_as(error) from error

    with pytest.raises(failure, match="took |more than "), bounded():
        read()


def test_an_input_that_takes_much_memory_fails_even_if_more_was_used_before(monkeypatch):
    monkeypatch.setitem(globals(), "LIMIT_BYTES", 2**26)
    np.ones(2**28, np.uint8)
    with frugal():
        np.ones(2**20, np.uint8)
    with pytest.raises(AssertionError, match="grew by "), frugal():
        np.ones(2**27, np.uint8)


def over(few: int, many: int):
    """Runs a test on a few examples, and among the slow cases on many."""

    def wrapped(test):
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])
        @functools.wraps(test)
        def tried(examples):
            with frugal():
                settings(max_examples=examples, suppress_health_check=list(HealthCheck))(test)()

        del tried.__wrapped__  # whose arguments are hypothesis's, and no fixtures
        return tried

    return wrapped


batch = functools.cache(batches.make)
names = st.sampled_from(batches.NAMES)


def goes_on(env) -> None:
    """A step of the documented random policy is made, whatever was put in before."""
    with contextlib.suppress(ResetNeeded):
        batches.random_step(env)


@over(60, 3000)
@given(st.data())
def test_actions(data):
    env = batch(data.draw(names))
    shape = tuple(env.actions.shape)
    action = data.draw(arrays(shape, shape[1:], (*shape, 1)) | plain)
    with bounded():
        env.step(action)
    goes_on(env)


@over(60, 3000)
@given(st.data())
def test_states(data):
    env = batch(data.draw(names))
    known = {**env.state(), **env.fields()}
    chosen = data.draw(st.lists(st.sampled_from(list(known)), min_size=1, max_size=3))
    state = {}
    for key in chosen:
        shape = tuple(getattr(known[key], "shape", ()))
        state[key] = data.draw(arrays(shape, shape[1:]) | plain)
    mask = data.draw(st.none() | arrays((env.num_envs,)))
    with bounded():
        env.set_state(data.draw(st.just(state) | plain), mask)
    goes_on(env)


@over(30, 1500)
@given(st.data())
def test_resets(data):
    env = batch(data.draw(names))
    options = st.sampled_from(["reset_mask", *env.port.reset_options, "low"])
    given_options = st.dictionaries(options, arrays((env.num_envs,)) | plain, max_size=2)
    with bounded():
        env.reset(seed=data.draw(st.none() | plain), options=data.draw(st.none() | given_options | plain))
    goes_on(env)


@over(30, 1000)
@given(st.data())
def test_rollouts(data):
    """With numbers of steps that are few, or none at all; of rows that are kept also more than fit."""
    env = batch(data.draw(names))
    store = data.draw(st.sampled_from(["statistics", "trajectory"]) | plain)
    steps = data.draw(st.integers(-1, 30) | st.sampled_from(LARGE if store == "trajectory" else [0, 2.5, "8", None]))
    weights = st.builds(envs.Linear, arrays((2, 4)), arrays((2,)))
    with bounded():
        env.rollout(steps, data.draw(st.just("random") | plain | weights), store, data.draw(words))
    goes_on(env)


CHEAP = [name for name in envs.names() if batches.one_lane(envs.port(name))]
COSTLY = [name for name in envs.names() if name not in CHEAP]  # to compile


def make_oddly(data, chosen: list[str]) -> None:
    """Sizes and forms that are allowed are few, since each other one is compiled."""
    name = data.draw(st.sampled_from(chosen))
    declared = envs.port(name)
    options = data.draw(st.dictionaries(st.sampled_from(sorted(OPTIONS)) | words, plain, max_size=3))
    allowed = {"num_envs": batches.size(name), "autoreset_mode": "SameStep", "max_episode_steps": 20}
    allowed |= {"dtype": "float32"} | ({"scenarios": 2} if name in batches.DRAWN else {})
    own = [*declared.own_options, *(field.name for field in dataclasses.fields(declared.params))]
    value = st.none() | words | st.sampled_from([np.nan, np.inf, "9.8", [], True, 10**400])
    odd = {data.draw(st.sampled_from(own)): data.draw(value)}
    with bounded():
        env = envs.make(name, **allowed | options | (odd if data.draw(st.booleans()) else {}))
        env.reset()
        batches.random_step(env)


@over(40, 1500)
@given(st.data())
def test_makes(data):
    make_oddly(data, CHEAP)


@over(16, 100)
@given(st.data())
def test_makes_of_what_takes_long(data):
    make_oddly(data, COSTLY)


of_yaml = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@over(60, 1500)
@given(st.data())
def test_recipes(data):
    """YAML that is right but for a value, and text that is none."""
    module = data.draw(st.sampled_from([ppo, dqn, rainbow]))
    fields = st.sampled_from([field.name for field in dataclasses.fields(ppo.Config)] + ["recipe"])
    content = {module.__name__.rpartition(".")[2]: data.draw(st.dictionaries(fields, of_yaml, max_size=3))}
    right = yaml.safe_dump(content)
    text = data.draw(st.just(right) | st.just(str(content)) | st.text(max_size=40) | spoiled(right.encode()))
    with written("recipe.yaml", text) as path, bounded():
        module.config_of("cartpole", path)


def spoiled(content: bytes) -> st.SearchStrategy:
    """The bytes cut off, or with some others in the place of one."""
    place = st.integers(0, len(content))
    return st.builds(
        lambda at, other, left: content[:at] + other + content[at + 1 :][: None if left else 0],
        place,
        st.binary(max_size=3),
        st.booleans(),
    )


@contextlib.contextmanager
def written(name: str, content: str | bytes):
    """The path of a file of this content, which goes at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))
        yield path


def market(path: Path) -> None:
    bars.save(path, bars.generate("tiny", bars=5, assets=2))


def water(path: Path) -> None:
    waters.save(path, waters.published(5, [(3, 4, 0, 30.0)], marine_params("kinematic", "original")))


def day(path: Path) -> None:
    days.save(path, days.city(3, RoutingParams(requests=4), zones=5, trips=6))


def slots(path: Path) -> None:
    params = EdgeParams(vehicles=20, slots=12, edges=4, components=5)
    draw(params, "dense", calibration=Calibration.ones(params)).save(path)


KINDS = [  # writer, reader, the file that is spoilt, and another beside it
    (water, waters.load, "one.json", None),
    (water, waters.load, "one.npz", None),
    (day, days.load, "one.npz", "one.json"),
    (day, days.load, "one.json", "one.npz"),
    (slots, load_slots, "one.npz", "one.json"),
    (slots, load_slots, "one.json", "one.npz"),
    (market, bars.load, "one.csv", "meta.json"),
    (market, bars.load, "one.parquet", "meta.json"),
]


@functools.cache
def whole(kind: int) -> tuple[bytes, bytes]:
    write, _, name, beside = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, name))
        return Path(folder, name).read_bytes(), Path(folder, beside).read_bytes() if beside else b""


@over(60, 2000)
@given(st.data())
def test_scenario_files(data):
    """Also where hashes are right, since a text beside an archive says them."""
    kind = data.draw(st.integers(0, len(KINDS) - 1))
    _, read, name, beside = KINDS[kind]
    content, other = whole(kind)
    with written(name, data.draw(spoiled(content) | odd_values(content))) as path, bounded():
        if beside:
            (path.parent / beside).write_bytes(hashed(other, path.read_bytes(), data.draw(st.booleans())))
        read(path)


def odd_values(content: bytes) -> st.SearchStrategy:
    """JSON with another value at one of its places; other content as it is."""
    try:
        whole = json.loads(content)
    except ValueError:
        return st.just(content)
    return st.builds(
        lambda key, value: json.dumps(whole | {key: value}).encode(), st.sampled_from(list(whole)), of_yaml
    )


def hashed(text: bytes, content: bytes, right: bool) -> bytes:
    """A text whose hashes are those of a content, where it has such."""
    if not right or not text.startswith(b"{"):
        return text
    header, found = json.loads(text), hashlib.sha256(content).hexdigest()
    del header["sha256"]
    if "sha256_npz" in header:
        header["sha256_npz"] = found
        found = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    return json.dumps(header | {"sha256": found}).encode()
