"""Pictures of the vehicular edge: the same from the original and from the port, and they show what there is."""

import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch
from gymnasium import logger

from lockstep import envs
from lockstep.envs.vehicular_edge import render
from lockstep.envs.vehicular_edge.original import VehicularEdge
from lockstep.envs.vehicular_edge.original import get_state as state_of
from lockstep.envs.vehicular_edge.params import queue_shapes
from tests.envs.vehicular_edge.worlds import small

SHAPE = (640, 960, 3)
EDGE = "vehicular_edge"


def pair(preset="physical", **options):
    """The original and a port of one environment, on one scenario."""
    scenario = small(preset)
    original = envs.make_original(EDGE, scenario=scenario, render_mode="rgb_array")
    port = envs.make(EDGE, 1, scenarios=scenario, dtype="float64", render_mode="rgb_array", **options)
    original.reset(seed=0), port.reset(seed=0)
    return original, port


def random_step(original, port):
    action = port.random_actions()[0]
    original.step(dict(zip(original.possible_agents, action[0].numpy(), strict=True)))
    port.step(action)


def drawn(scenario, t=0, used=None, **backlogs):
    """A picture with empty queues but for some."""
    shapes = queue_shapes(scenario.params)
    return render.picture(scenario, t, {name: np.full(shapes[name], backlogs.get(name, 0.0)) for name in shapes}, used)


def shown(picture, colour: str) -> int:
    """Pixels of a colour."""
    wanted = np.round(255 * np.array(matplotlib.colors.to_rgb(colour)))
    return int((picture == wanted).all(axis=2).sum())


@pytest.mark.parametrize("preset", ["physical", "original"])
def test_original_and_port_give_the_same_picture_of_a_state(preset):
    original, port = pair(preset)
    for _ in range(3):
        random_step(original, port)
    state = {name: torch.from_numpy(rows)[None] for name, rows in state_of(original).items()}
    port.set_state(state | {"elapsed": original.t})
    original.episode.outcome = None  # as if the state had been put in there as well
    np.testing.assert_array_equal(port.render(0)[0], original.render())


@pytest.mark.parametrize("preset", ["physical", "original"])
def test_original_and_port_draw_an_episode_alike(preset):
    """To rounding, which moves a bar by less than a thousandth of a pixel: at most one level of 255."""
    original, port = pair(preset, trace=True, autoreset_mode="Disabled")
    pictures = []
    for t in range(original.params.slots + 1):
        if t in (0, 1, original.params.slots):
            pictures.append(original.render())
            found = port.render()[0]
            assert (found.shape, found.dtype) == (pictures[-1].shape, pictures[-1].dtype) == (SHAPE, np.uint8)
            assert np.abs(found.astype(int) - pictures[-1]).max() <= 1
        if original.agents:
            random_step(original, port)
    assert all((one != other).any() for one, other in itertools.pairwise(pictures))


def test_links_are_strong_where_the_last_step_used_them():
    scenario = small()
    p = scenario.params
    idle = [np.zeros((p.clients, p.servers)), np.zeros((p.clients, p.edges))]
    before = drawn(scenario, used=idle)
    for place, colour in ((0, render.RED), (1, render.SKY)):
        used = [rates.copy() for rates in idle]
        used[place][:] = 1e6
        assert shown(drawn(scenario, used=used), colour) > shown(before, colour) + 100
    trace = envs.make(EDGE, 1, scenarios=scenario, trace=True)
    trace.reset(seed=0)
    first = trace.render(0)[0]
    np.testing.assert_array_equal(first, drawn(scenario))  # no step was made yet
    trace.step(trace.random_actions()[0])
    untraced = envs.make(EDGE, 1, scenarios=scenario)
    untraced.reset(seed=0), untraced.step(untraced.random_actions()[0])
    assert (trace.render(0)[0] != untraced.render(0)[0]).any()


@pytest.mark.parametrize("family", list(render.COLOURS))
def test_each_queue_is_a_bar_of_its_colour(family):
    scenario = small()
    empty, full = drawn(scenario), drawn(scenario, **{family: 70.0})
    assert shown(full, render.COLOURS[family]) > shown(empty, render.COLOURS[family]) + 200


def test_routed_queues_are_summed_by_place():
    p = small().params
    Ne = p.edges
    queues = {name: np.zeros(shape) for name, shape in queue_shapes(p).items()}
    queues["v2i"][1] = np.arange(Ne + 1)  # at access edge 1, of every destination
    queues["i2i"][:, 2] = 5.0  # for edge 2, from everywhere
    queues["i2c"][:] = [1.0, 2.0, 4.0]
    seen = render.reported(queues)
    assert seen["v2i"].tolist() == [0.0, 6.0, 0.0]
    assert seen["i2i"].tolist() == [0.0, 0.0, 15.0]
    assert seen["i2c"].tolist() == [7.0]


@pytest.mark.parametrize(("value", "limit"), [(0, 1), (1, 1), (1.1, 2), (4, 5), (5.5, 10), (70, 100), (200, 200)])
def test_axes_end_at_round_numbers(value, limit):
    assert render.ceiling(value) == limit


def test_a_picture_takes_no_notice_of_the_readers_style():
    scenario = small()
    expected = drawn(scenario)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "figure.dpi": 50}):
        np.testing.assert_array_equal(drawn(scenario), expected)
        assert matplotlib.rcParams["font.size"] == 20


def test_a_large_and_a_long_map_are_drawn():
    for traffic in ("arterial", "city"):
        env = envs.make(EDGE, 1, vehicles=60, edges=14, slots=3, components=2, traffic=traffic, scenarios=1)
        env.reset()
        assert env.render(0)[0].shape == SHAPE


def test_modes_are_told_and_others_refused(monkeypatch):
    warnings = []
    monkeypatch.setattr(logger, "warn", warnings.append)
    env = VehicularEdge(small())
    env.reset()
    assert env.render() is None and "no render_mode was given" in warnings[0]
    assert VehicularEdge.metadata["render_modes"] == ["rgb_array"]
    for make in (envs.make_original, lambda name, **options: envs.make(name, 1, **options)):
        with pytest.raises(ValueError, match="render_mode='human' must be one of None, 'rgb_array'"):
            make(EDGE, render_mode="human", vehicles=12, slots=3, edges=2, components=2)
    assert envs.port(EDGE).render is render.frames


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from lockstep import envs
small = dict(vehicles=12, slots=3, edges=2, components=2, render_mode="rgb_array")
original = envs.make_original("vehicular_edge", **small)
port = envs.make("vehicular_edge", 1, scenarios=1, **small)
for env in (original, port):
    env.reset()
    try:
        env.render()
    except ImportError as error:
        print(error)
"""


def test_without_matplotlib_it_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout == "rendering needs matplotlib: pip install 'lockstep[render]'\n" * 2
