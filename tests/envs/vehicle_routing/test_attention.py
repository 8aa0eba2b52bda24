"""The learned oracle: its forms make one walk, complete and valid, and no problem sees its neighbours."""

import dataclasses
import functools
import json
import threading

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep import envs
from lockstep.envs.kernels import compile, structs
from lockstep.envs.vehicle_routing import streams
from lockstep.envs.vehicle_routing.checker import check
from lockstep.envs.vehicle_routing.oracles import ORACLES, Oracle, best_known, make_oracle
from lockstep.envs.vehicle_routing.oracles.attention import fused, weights
from lockstep.envs.vehicle_routing.oracles.attention.network import Network, Shape
from lockstep.envs.vehicle_routing.oracles.attention.problems import Answers, Nodes, best
from lockstep.envs.vehicle_routing.oracles.attention.training import drawn
from lockstep.envs.vehicle_routing.original import make
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import city

from .worlds import RIDE, TRIANGLE, problem, random_rows, random_travel

SMALL = Shape(width=16, layers=1, heads=2, ff=16)
BATCH_NORM = dataclasses.replace(SMALL, norm="batch", legs=False)
PLANE = dataclasses.replace(SMALL, features="plane")
FORMS = {"am": None, "am-sample": "3", "am-pomo": "4"}


def network(params: Params, travel, shape: Shape = SMALL, seed: int = 0) -> Network:
    """A network as it is before training, whose walks are as varied as its seeds."""
    torch.manual_seed(seed)
    made = Network(shape, params, np.asarray(travel))
    with torch.no_grad():
        made.context.normal_()
        if made.legs is not None:
            made.legs.normal_()
    return made


def oracle(name: str, params: Params, travel, argument=None, shape: Shape = SMALL, seed: int = 0, **options):
    options = {"dtype": "float64"} | options
    return ORACLES[name](params, travel, argument, network=network(params, travel, shape, seed), **options)


@functools.cache
def days(B: int, n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """B problems of the city, of n requests, as arrays [B, N]."""
    return tuple(column.numpy() for column in drawn(np.random.default_rng(seed), city(), Params(), B, n))


def tied_days(rng, B: int, n: int, travel) -> tuple[np.ndarray, ...]:
    """B problems on a grid of 5 min, with many equal times."""
    every = [problem(random_rows(rng, n, travel, tight=True), travel) for _ in range(B)]
    names = ("zone", "earliest", "latest", "demand", "service")
    return (*(np.array([getattr(one, name) for one in every]) for name in names), np.ones((B, 2 * n + 1), bool))


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def passes(found, columns, travel, params: Params):
    """Every answer is a valid walk of that cost, by the checker."""
    cost, walk, vehicles, ok = found
    assert ok.all()
    zone, earliest, latest, demand, service, _ = (column.tolist() for column in columns)
    for b in range(len(cost)):
        given = (walk[b], travel.tolist(), zone[b], earliest[b], latest[b], demand[b])
        limits = (params.capacity, params.horizon_ticks, service[b], params.max_ride_ticks)
        assert check(*given, *limits) == (cost[b], vehicles[b])


# ---- one walk in three forms


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"max_ride": 130.0, "fleet": "soft", "fleet_size": 2},
        {"lookahead_mask": True},
        {"lookahead_mask": True, "one_obligation": True, "early_end": True, "fleet": "hard", "fleet_size": 2},
    ],
)
@pytest.mark.parametrize("name", FORMS)
def test_kernel_torch_and_plain_python_make_the_same_walks(name, rules):
    params, columns = Params(requests=7, **rules), days(12, 7)
    there = columns[-1].copy()
    there[:6, 7:11] = False  # two requests are missing within, or at the end
    there[3:6, 11:] = False
    columns = (*columns[:-1], there)
    arrays = oracle(name, params, city().travel, FORMS[name], form="fused")
    found = arrays.answer_all(*columns)
    assert same(found, oracle(name, params, city().travel, FORMS[name], form="torch").answer_all(*columns))
    assert same(found, Oracle.answer_all(arrays, *columns))
    assert found[0].min() > 0


@pytest.mark.slow
def test_in_float32_the_forms_differ_in_at_most_one_walk_of_a_thousand():
    params, columns = Params(), days(2000, 20)
    found = [
        oracle("am", params, city().travel, form=form, dtype="float32").answer_all(*columns)[1]
        for form in ("fused", "torch")
    ]
    assert (found[0] == found[1]).all(axis=1).mean() >= 0.999


@pytest.mark.gpu
def test_in_float32_devices_differ_in_at_most_one_walk_of_a_thousand():
    params, columns = Params(), drawn(np.random.default_rng(0), city(), Params(), 4000, 20)
    walks = [
        make_oracle("am", params, city().travel).answers(Nodes(*(column.to(device) for column in columns))).walk.cpu()
        for device in ("cpu", "cuda")
    ]
    assert (walks[0] == walks[1]).all(dim=1).float().mean() >= 0.999


def test_ties_go_to_the_lowest_index():
    params = Params(requests=2)
    made = network(params, TRIANGLE)
    with torch.no_grad():
        for number in made.parameters():
            number.zero_()  # all logits are 0
    given = problem([RIDE, RIDE])
    columns = [np.array([getattr(given, name)]) for name in ("zone", "earliest", "latest", "demand")]
    for form in ("fused", "torch"):
        cost, walk, vehicles, ok = ORACLES["am"](params, TRIANGLE, network=made, form=form).solve(*columns)
        # The lowest node is the depot as soon as nobody is on board: two rides of 10 + 12 + 20 min.
        assert (cost.tolist(), walk.tolist()) == ([840], [[0, 1, 2, 0, 3, 4, 0]])
        assert (vehicles.tolist(), ok.tolist()) == ([2], [True])
    assert ORACLES["am"](params, TRIANGLE, network=made).route(given) == (840, [0, 1, 2, 0, 3, 4, 0], 2, True)


def test_features_of_a_node_by_hand():
    given = problem([RIDE])
    columns = [[getattr(given, name)] for name in ("zone", "earliest", "latest", "demand", "service")]
    nodes = Nodes.of(*columns, np.ones((1, 3), bool))
    found = network(Params(requests=1), TRIANGLE).features(nodes)[0, 1]
    # Of zone A: 10, 0 and 12 min over 40; one rider of 8; from 600 to 630 of 1440 min.
    assert found.tolist() == pytest.approx([0.25, 0, 0.3, 1 / 8, 600 / 1440, 630 / 1440])
    raw = network(Params(requests=1), TRIANGLE, dataclasses.replace(SMALL, raw=True)).features(nodes)
    assert raw[0, 1].tolist() == [10, 0, 12, 1, 600, 630]
    plane = network(Params(requests=1), TRIANGLE, PLANE)
    assert plane.features(nodes).shape == (1, 3, 6) and plane.zones.min() == 0 and plane.zones.max() == 1


def test_one_node_per_request():
    params = Params(mode="vrptw", requests=2)
    given = problem([RIDE, [2, 6120, 6420, 2, 6120, 6420]], mode="vrptw")
    columns = [np.array([getattr(given, name)]) for name in ("zone", "earliest", "latest", "demand", "service")]
    answers = [oracle("am", params, TRIANGLE, shape=PLANE, form=form).solve(*columns) for form in ("fused", "torch")]
    assert same(*answers) and answers[0][3].all()
    plain = oracle("am", params, TRIANGLE, shape=PLANE).route(given)
    # Out to A and B and back are 10 + 12 + 20 min, or 2 x 10 + 2 x 20 in two vehicles.
    assert plain.cost == answers[0][0][0] and plain.cost in (420, 600)


# ---- completeness


def complete(B: int, seeds: int):
    rng = np.random.default_rng(1)
    for seed in range(seeds):
        travel, params = random_travel(rng), Params(requests=5, capacity=2 + seed % 2)
        columns = tied_days(rng, B, 5, travel)
        for name, argument in FORMS.items():
            passes(oracle(name, params, travel, argument, seed=seed).answer_all(*columns), columns, travel, params)


def test_every_walk_is_complete_and_valid():
    complete(60, 2)


@pytest.mark.slow
def test_ten_thousand_walks_with_ties_are_complete_and_valid():
    complete(500, 20)


def complete_days(word: str, total: int, each: int = 500):
    """Walks of the shipped weights over that many days of the city, of 1 to 30 requests."""
    for seed in range(-(-total // each)):
        columns = days(each, int(np.random.default_rng(seed).integers(1, 31)), 100 + seed)
        passes(make_oracle(word, Params(), city().travel).solve(*columns), columns, city().travel, Params())


@pytest.mark.parametrize("word", ["am", "am-sample:2", "am-pomo:2", "am:published"])
def test_every_walk_of_the_shipped_weights_is_complete_and_valid(word):
    complete_days(word, 300, 100)


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("am", marks=pytest.mark.slow),
        *(pytest.param(f"am-{way}:8", marks=pytest.mark.long) for way in ("sample", "pomo")),
    ],
)
def test_ten_thousand_walks_of_the_shipped_weights_are_complete_and_valid(word):
    complete_days(word, 10_000)


def test_a_request_that_nobody_can_serve_is_not_ok():
    params, late = Params(requests=2), [1, 0, 50, 2, 0, 6000]  # A is 10 min away, and closes after 5
    given = problem([RIDE, late])
    columns = [np.array([getattr(given, name)]) for name in ("zone", "earliest", "latest", "demand")]
    answers = [oracle("am", params, TRIANGLE, form=form).solve(*columns) for form in ("fused", "torch")]
    assert same(*answers)
    assert (answers[0][0].tolist(), answers[0][3].tolist()) == ([420], [False])
    assert oracle("am", params, TRIANGLE).route(given) == (420, [0, 1, 2, 0], 1, False)


# ---- neighbours


def test_the_order_of_requests_does_not_change_the_cost():
    columns = [column.copy() for column in days(20, 6)]
    columns[2][:, 1:] += np.arange(12)  # no two latest times are equal, so that no tie is broken by index
    turn = np.random.default_rng(0).permutation(6)
    index = np.concatenate([[0], np.stack([2 * turn + 1, 2 * turn + 2], 1).ravel()])
    params = Params(requests=6)
    asked = oracle("am", params, city().travel)
    assert (asked.answer_all(*columns)[0] == asked.answer_all(*(column[:, index] for column in columns))[0]).all()


@pytest.mark.parametrize("form", ["fused", "torch"])
def test_the_depots_numbers_are_not_read(form):
    shape = dataclasses.replace(SMALL, legs=False)
    columns, asked = days(40, 9), oracle("am", Params(requests=9), city().travel, shape=shape, form=form)
    other = [column.copy() for column in columns]
    for column, number in zip(other[1:5], (5000, 6000, 3, 70), strict=True):
        column[:, 0] = number
    assert same(asked.solve(*columns), asked.solve(*other))


@pytest.mark.parametrize("shape", [SMALL, BATCH_NORM])
def test_neighbours_chunks_and_padding_change_nothing(shape):
    columns, params = days(20, 6), Params(requests=9)
    found = oracle("am", params, city().travel, shape=shape).answer_all(*columns)
    other = oracle("am", params, city().travel, shape=shape, chunk=7)
    assert same(found, other.answer_all(*columns))
    order = np.random.default_rng(0).permutation(20)
    assert same([part[order] for part in found], other.answer_all(*(column[order] for column in columns)))
    replaced = tuple(np.concatenate([a[:5], b[5:]]) for a, b in zip(columns, days(20, 6, 1), strict=True))
    assert same([part[:5] for part in found], [part[:5] for part in other.answer_all(*replaced)])
    longer = tuple(np.concatenate([a, b[:, 1:7]], 1) for a, b in zip(columns, days(20, 6, 1), strict=True))
    longer[-1][:, 13:] = False
    padded = other.answer_all(*longer)
    assert same(found, (padded[0], padded[1][:, :19], *padded[2:])) and not padded[1][:, 19:].any()
    within = tuple(np.insert(column, [1] * 6, 0, axis=1) for column in columns)  # what is missing may come first
    assert (found[0] == oracle("am", params, city().travel, shape=shape).answer_all(*within)[0]).all()


def test_with_the_batchs_statistics_neighbours_change_costs():
    asked = oracle("am", Params(requests=6, batch_statistics=True), city().travel, shape=BATCH_NORM)
    columns = days(20, 6)
    alone = [asked.answer_all(*(column[b : b + 1] for column in columns))[0][0] for b in range(20)]
    assert (asked.answer_all(*columns)[0] != alone).any()


# ---- best of several


def test_more_walks_cost_no_more():
    columns, params = days(40, 8), Params(requests=8)
    for name in ("am-sample", "am-pomo"):
        few, many = (oracle(name, params, city().travel, count).answer_all(*columns)[0] for count in ("2", "7"))
        assert (many <= few).all() and (many < few).any()


def test_first_pickups_are_those_of_the_soonest_latest_times():
    columns, params = days(20, 8), Params(requests=8)
    walk = oracle("am-pomo", params, city().travel, "1").answer_all(*columns)[1]
    latest = columns[2][:, 1::2]
    assert (columns[2][np.arange(20), walk[:, 1]] == latest.min(axis=1)).all()
    every, more = (oracle("am-pomo", params, city().travel, count).answer_all(*columns) for count in ("8", "50"))
    assert same(every, more)  # k > n takes all n


def test_the_best_is_ok_and_of_equal_ones_the_first():
    walks = torch.arange(6)[:, None].short()
    given = Answers(
        torch.tensor([5, 3, 3, 1, 9, 7]).int(), walks, torch.ones(6).int(), torch.tensor([1, 1, 1, 0, 1, 1]).bool()
    )
    assert best(given, 3).walk.flatten().tolist() == [1, 5]


@pytest.mark.parametrize(
    "word",
    ["am-sample", *(f"am-sample:{k}" for k in ("0", "-1", "x", "1025")), "am-pomo:", "am-pomo:1.5", "am-pomo:4:"],
)
def test_a_number_of_walks_that_is_none_is_refused(word):
    with pytest.raises(ValueError, match=f"oracle='{word}' must be 'am-.*:k' or .*, k a whole number from 1 to 1024"):
        make_oracle(word, Params(), city().travel)


def test_weights_without_a_name_are_refused():
    with pytest.raises(ValueError, match="oracle='am:' must be 'am', or 'am:weights'"):
        make_oracle("am:", Params(), city().travel)


# ---- in a batch


@pytest.mark.parametrize("way", ["am", "phase"])
def test_in_a_batch_costs_and_walks_are_those_of_the_original(way):
    params = Params(requests=5)
    given = way if way == "am" else make_oracle("am", params, city(params=params).travel).phase
    env = envs.make("vehicle_routing", 3, seed=4, requests=5, oracle=given)
    ones = [make(oracle="am", seed=4, index=b, requests=5) for b in range(3)]
    env.reset()
    for one in ones:
        one.reset()
    for _ in range(4):
        *_, info = env.step(torch.full((3,), 12, dtype=torch.int32))
        told = [one.step(12)[-1] for one in ones]
        assert info["cost_ticks"].tolist() == [row["cost"] for row in told]
        assert all(info["walk"][b, : len(row["walk"])].tolist() == row["walk"].tolist() for b, row in enumerate(told))


def test_on_a_cpu_requests_that_nobody_has_asked_yet_are_not_encoded():
    oracle, encoded = make_oracle("am", Params(), city().travel), []
    oracle.network.register_forward_pre_hook(lambda _, given: encoded.append(tuple(given[0].zone.shape)))
    env = envs.make("vehicle_routing", 2, oracle=oracle.phase)
    env.reset(seed=0)
    for _ in range(3):
        env.step(torch.full((2,), 12, dtype=torch.int32))
    assert encoded == [(2, 3), (2, 5), (2, 7)]  # the depot, and two nodes of each request so far


@pytest.mark.parametrize("word", ["am", "am-sample:3", "am-pomo:3"])
@pytest.mark.parametrize("chunk", [None, 2])
def test_nodes_that_no_problem_has_change_no_answer(word, chunk):
    oracle = make_oracle(word, Params(), city().travel)
    oracle.chunk = chunk
    env = envs.make("vehicle_routing", 5, oracle=oracle.phase)
    env.reset(seed=0)
    for _ in range(3):
        env.step(torch.full((5,), 12, dtype=torch.int32))
    nodes = Nodes(*env.problems)
    for cut, whole in zip(oracle.answers(nodes, 7), oracle.answers(nodes), strict=True):
        assert torch.equal(cut, whole)


class Seen(TorchDispatchMode):
    """Names of torch's operations."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.add(operation.name())
        return operation(*args, **kwargs or {})


@pytest.mark.parametrize("word", ["am", "am-sample:3", "am-pomo:3"])
def test_a_step_makes_nothing_on_the_host(word, monkeypatch):
    """Neither tensors of Python's numbers nor numbers of tensors, nor a launch: a CUDA graph could not capture it."""
    env = envs.make("vehicle_routing", 3, requests=5, oracle=word)
    env.reset()
    action = torch.full((3,), 12, dtype=torch.int32)
    env.step(action)
    monkeypatch.setattr(streams, "words", None)
    monkeypatch.setattr(structs, "struct", None)
    with Seen() as seen:
        env.step(action)
    assert "aten::addmm" in seen.names
    assert not seen.names & {"aten::lift_fresh", "aten::_local_scalar_dense", "aten::nonzero"}


def test_few_problems_take_one_thread_of_torch():
    asked, seen, before = oracle("am", Params(requests=4), city().travel), [], torch.get_num_threads()
    asked.network.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        for B in (3, 64):
            asked.answer_all(*days(B, 4))
        seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 2]


@pytest.mark.parametrize("oracles_of_both", [1, 2])
def test_two_threads_get_the_answers_of_one(oracles_of_both):
    """Each fills the arguments of its own launches, of equal sizes."""
    params, asked, found = Params(requests=4), [days(8, 4, seed) for seed in (0, 1)], [[], []]
    own = [oracle("am", params, city().travel) for _ in range(oracles_of_both)]
    oracles = [own[0], own[-1]]
    alone = [one.answer_all(*given) for one, given in zip(oracles, asked, strict=True)]

    def ask(thread: int):
        for _ in range(100):
            found[thread].append(oracles[thread].answer_all(*asked[thread]))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for mine, own in zip(found, alone, strict=True):
        assert len(mine) == 100
        for answers in mine:
            assert all(np.array_equal(*pair) for pair in zip(answers, own, strict=True))


# ---- weights


@pytest.fixture
def saved(tmp_path):
    params = Params()
    weights.save(network(params, city().travel), tmp_path / "own", city().travel)
    return tmp_path / "own.npz"


def test_weights_come_back_in_half_precision(saved):
    params, own = Params(), network(Params(), city().travel)
    loaded = weights.load(str(saved), params, city().travel)
    for name, array in loaded.state_dict().items():
        assert torch.equal(array, own.state_dict()[name].half().float())
    assert make_oracle(f"am:{saved}", params, city().travel).solve(*days(2, 3)[:4])[3].all()


def test_weights_of_another_city_size_mode_or_hash_are_refused(saved):
    zones = city(zones=12).travel
    with pytest.raises(ValueError, match="number of zones is 31, expected 12"):
        weights.load(str(saved), Params(), zones)
    with pytest.raises(ValueError, match=f"city is {weights.city_hash(city().travel)}, expected "):
        weights.load(str(saved), Params(), city(seed=2).travel)
    with pytest.raises(ValueError, match="mode is darp, expected vrptw"):
        weights.load(str(saved), Params(mode="vrptw"), city().travel)
    saved.write_bytes(saved.read_bytes() + b"0")
    with pytest.raises(ValueError, match="SHA-256 is [0-9a-f]{64}, expected [0-9a-f]{64}"):
        weights.load(str(saved), Params(), city().travel)
    with pytest.raises(ValueError, match=r"weights='smal': there is no smal.npz; did you mean 'small'\?"):
        weights.load("smal", Params(), city().travel)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (lambda file: np.savez(file, x=np.array([{}], dtype=object)), "own.npz is not an archive of arrays of numbers"),
        (lambda file: np.save(file, np.ones(3)), "own.npz is not an archive of arrays of numbers"),
        (lambda file: file.write(b"PK"), "own.npz is not an archive of arrays of numbers"),
        (lambda file: None, "own.npz is not an archive of arrays of numbers"),
        (
            lambda file: stored(file, np.full((3, 16), np.nan)),
            "context of own.npz must be finite numbers of float32",
        ),
        (lambda file: stored(file, np.full((3, 16), 1e300)), "context of own.npz must be finite numbers of float32"),
        (lambda file: stored(file, np.ones((3, 16), complex)), "context of own.npz must be finite numbers of float32"),
        (lambda file: stored(file, np.ones((2, 16))), r"context has shape \(2, 16\), expected \(3, 16\)"),
    ],
)
def test_weights_that_are_no_arrays_of_numbers_are_refused_by_name(saved, written, sentence):
    with saved.open("wb") as file:
        written(file)
    restated(saved)
    with pytest.raises(ValueError, match=sentence):
        weights.load(str(saved), Params(), city().travel)


def test_weights_whose_json_has_no_shape_or_hash_are_refused_by_name(saved):
    shape = json.loads(saved.with_suffix(".json").read_text())["shape"]
    for wrong in ({"heads": 0}, {"heads": "2"}, {"heads": 3}, {"norm": "none"}, {"raw": 2}):
        restated(saved, shape=shape | wrong)
        with pytest.raises(ValueError, match=f"own.json is not what training writes.*{next(iter(wrong))}="):
            weights.load(str(saved), Params(), city().travel)
    saved.with_suffix(".json").write_text(json.dumps({"shape": shape}))
    with pytest.raises(ValueError, match="own.json is not what training writes"):
        weights.load(str(saved), Params(), city().travel)


def test_weights_that_are_to_be_read_otherwise_are_refused(saved):
    known = json.loads(saved.with_suffix(".json").read_text())
    known["shape"]["heads"] = 1
    saved.with_suffix(".json").write_text(json.dumps(known))
    with pytest.raises(ValueError, match="SHA-256 is [0-9a-f]{64}, expected [0-9a-f]{64}; name other weights"):
        weights.load(str(saved), Params(), city().travel)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"layers": 65536}, "layers=65536 must be an integer from 1 to 16"),
        ({"width": 16384}, "width=16384 must be an integer from 1 to 1024"),
        ({"width": 64}, r"context has shape \(3, 16\), expected \(3, 64\)"),
    ],
)
def test_weights_whose_json_asks_for_another_network_are_refused(saved, sizes, sentence):
    restated(saved, shape=json.loads(saved.with_suffix(".json").read_text())["shape"] | sizes)
    with pytest.raises(ValueError, match=sentence):
        weights.load(str(saved), Params(), city().travel)


@pytest.mark.parametrize("word", ["x" * 5000, "/", ".", "a\0b", "/dev/null", "no/where.npz"])
def test_words_that_are_no_path_of_weights_are_refused_in_a_sentence(word):
    with pytest.raises(ValueError, match="^weights=.{,70}(there is no|must be a name or the path of a file).{,200}$"):
        make_oracle(f"am:{word}", Params(), city().travel)


def stored(file, context):
    """Writes weights whose array `context` is another."""
    arrays = network(Params(), city().travel).state_dict()
    np.savez(file, **{name: array.numpy() for name, array in arrays.items()} | {"context": context})


def restated(path, **facts):
    """Writes other facts of weights into their JSON, and the hash that is right for them."""
    known = json.loads(path.with_suffix(".json").read_text()) | facts
    path.with_suffix(".json").write_text(json.dumps(known | {"sha256": weights.digest(known, path.read_bytes())}))


def test_the_learned_oracle_is_best_known_in_its_city_and_insertion_elsewhere():
    assert best_known(Params(), city().travel) == "am"
    assert best_known(Params(), city(seed=2).travel) == "insertion"
    assert best_known(Params(full_size_only=True), city().travel) == "insertion"  # whose weights know whole days alone
    assert best_known(Params(max_ride=600.0), city().travel) == "am"
    assert best_known(Params(max_ride=600.0), city(seed=2).travel) == "greedy"
    assert [best_known(Params(requests=n), city().travel) for n in (1, 30, 31)] == ["am", "am", "insertion"]
    for other in ({"fleet": "hard"}, {"fleet": "soft"}, {"capacity": 1}, {"horizon": 1500.0}):
        assert best_known(Params(**other), city().travel) == "insertion"  # it has learned of no such vehicles


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 30])
def test_shipped_weights_cost_less_than_every_greedy_rule(n):
    columns, params = days(100, n, 77), Params()
    cost = make_oracle("am", params, city().travel).solve(*columns)[0].mean()
    for rule in ("nearest", "soonest", "mixed"):
        assert cost < make_oracle(f"greedy:{rule}", params, city().travel).solve(*columns)[0].mean()


# ---- kernel


@pytest.mark.parametrize(
    ("target", "shape"),
    [(target, Shape(width=64, heads=4)) for target in compile.TARGETS]
    + [pytest.param(target, Shape(), marks=pytest.mark.slow) for target in compile.TARGETS],
)
def test_the_gpus_kernel_spills_no_registers(target, shape):
    (row,) = compile.resources(fused.unit(Params(), shape, 63, "float32"), target)
    assert (row["kernel"], row["spill_store_bytes"], row["spill_load_bytes"], row["stack_bytes"]) == ("decode", 0, 0, 0)
