"""The published drawing, beside a plain script of the same draws on the global generators."""

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import draw, drawing, file

SEED, K, N, T, M = 264, 100, 70, 50, 10


@pytest.fixture(scope="module")
def script():
    """Steps 1 to 6 of README.md, 4.3, one number after the other, and the first numbers of step 7."""
    out = SimpleNamespace(types=[], cpu=[], power=[], edges=[], type_of=[], rate=[], server=[])
    for k in range(K):
        random.seed(SEED + k)
        sizes = sorted([random.uniform(0.01, 5), random.uniform(0.01, 5)])
        out.types.append((*sizes, random.uniform(100, 500)))
    for v in range(N):
        random.seed(SEED + K + v)
        out.cpu.append(random.uniform(10, 50))
        random.uniform(5, 10)
        out.power.append(random.uniform(500, 1000))
        random.seed(SEED + K + v)
        out.server.append(random.random() < 0.3)
        if not out.server[-1]:
            out.type_of.append(random.choices(range(K), k=M))
            out.rate.append([random.uniform(0.5, 1) for _ in range(M)])
    clients, servers = len(out.type_of), sum(out.server)
    np.random.seed(SEED)
    out.counts, out.sizes = np.zeros((T, clients, M), int), np.zeros((T, clients, M))
    for i in range(clients):
        for m in range(M):
            out.counts[:, i, m] = np.random.poisson(out.rate[i][m], T)
            low, high, _ = out.types[out.type_of[i][m]]
            out.sizes[:, i, m] = np.random.uniform(low, high, T)
    for e in range(9):
        random.seed(SEED + K + N + e)
        x, y, r = random.uniform(0, 70), random.uniform(0, 70), random.random()
        out.edges.append((x, y, 50 if r < 0.3 else 500 if r > 0.7 else 275))
    np.random.normal(size=(T, 20))  # of the solver for client-server distances; client-edge are 396 features
    out.fading_v2v = np.random.rayleigh(1, (T, clients, servers))
    out.fading_v2i = np.random.rayleigh(1, (T, clients, 9))
    out.warm_up = np.random.uniform(0, 1, 985)
    return out


def test_sizes_are_the_stated_ones():
    p = Params()
    assert (p.clients, p.servers, p.tasks, p.type_slots) == (44, 26, 10, 10)
    assert (p.cap_local, p.cap_server, p.cap_edge, p.cap_cloud) == (3, 15, 34, 69)
    assert (p.options, p.target_length, p.share_length, p.action_length) == (16, 440, 985, 985)
    assert p.observation_length == 1025


def test_sizes_follow_from_the_generated_tasks(script):
    counts = script.counts.sum(axis=2)
    mean, most = counts.mean(), counts.max()
    load = (counts.sum(axis=1).mean() + counts.sum(axis=1).max()) / 2
    p = Params()
    assert p.clients == counts.shape[1]
    assert p.tasks == int((2 * mean + most) / 3)
    assert p.cap_local == int(mean / 2) and p.cap_server == int(2 * mean)
    assert p.cap_edge == int(0.1 * load) and p.cap_cloud == int(0.2 * load)


def test_servers_are_exactly_the_vehicles_below_22_ghz(published):
    assert published.server_cpu.max() < 22 < published.client_cpu.min()
    assert (len(published.client_cpu), len(published.server_cpu)) == (44, 26)


def test_vehicles_edges_fading_and_warm_up_are_the_script_s(script, published):
    """Fading follows the arrivals and the solver's normals, and the warm-up continues the stream."""
    server = np.array(script.server)
    stream = drawing.published_stream(published.params, SEED)
    for found, expected in (
        (published.client_cpu, np.array(script.cpu)[~server]),
        (published.client_power, np.array(script.power)[~server]),
        (published.server_cpu, np.array(script.cpu)[server]),
        (published.edge_xy, np.array(script.edges)[:, :2]),
        (published.edge_cpu, np.array(script.edges)[:, 2]),
        (published.edge_range, np.full(9, 100.0)),
        (published.cloud_xy, [35, 35]),
        (published.fading_v2v, script.fading_v2v),
        (published.fading_v2i, script.fading_v2i),
        (stream.random_sample(985), script.warm_up),
    ):
        np.testing.assert_array_equal(found, expected)


def test_tasks_are_the_script_s(script, published):
    """Task by task: order by type slot, the size that a type slot shares, first rate and realised mean of a type."""
    for i, t in ((0, 0), (3, 7), (17, 49), (43, 25)):
        tasks = [m for m in range(M) for _ in range(script.counts[t, i, m])]
        assert published.task_count[t, i] == len(tasks)
        for j, m in enumerate(tasks[:10]):
            k = script.type_of[i][m]
            alike = [n for n in range(M) if script.type_of[i][n] == k]
            sizes = [script.sizes[s, i, n] for n in alike for s in range(T) for _ in range(script.counts[s, i, n])]
            assert published.task_size[t, i, j] == script.sizes[t, i, m]
            assert published.task_cycles[t, i, j] == script.types[k][2]
            assert published.task_rate[t, i, j] == script.rate[i][alike[0]]
            assert published.task_mean[t, i, j] == pytest.approx(np.mean(sizes), rel=1e-12)
        assert (published.task_size[t, i, len(tasks) :] == 0).all()
    assert published.mean_density == pytest.approx(np.mean([density for *_, density in script.types]), rel=1e-14)


def test_deadlines_lie_in_their_range(published):
    exists = published.task_size > 0
    assert published.task_deadline[exists].min() >= 5 and published.task_deadline[exists].max() <= 10
    assert (published.task_deadline[~exists] == 0).all()


@pytest.mark.parametrize("switches", [{}, {"edge_range_is_v2v": False, "shared_slot_size": False}])
def test_an_index_changes_the_traffic_alone(published, switches):
    params = replace(published.params, **switches)
    one, other = (draw(params, "dense", index, calibration=published.calibration) for index in (0, 1))
    changed = {name for name in file.shapes(params) if (getattr(one, name) != getattr(other, name)).any()}
    assert changed == {"xy_client", "xy_server", "pca_v2v_mean", "pca_v2v", "pca_v2i_mean", "pca_v2i"}


def test_a_seed_with_other_sizes_is_refused():
    with pytest.raises(ValueError, match=r"seed=3.*servers=\d+.*servers=26.*size_seed=3"):
        draw(Params(**PRESETS["original"]), seed=3)
    assert draw(Params(**PRESETS["original"], size_seed=3), seed=3).params.servers != 26


def test_without_q5_roles_stay_and_cpus_do_not_tell_them(published):
    params = Params(**PRESETS["original"] | {"slow_cpu_serves": False})
    other = draw(params, "dense")
    np.testing.assert_array_equal(other.task_size, published.task_size)
    assert other.server_cpu.max() > 22 > other.client_cpu.min()
