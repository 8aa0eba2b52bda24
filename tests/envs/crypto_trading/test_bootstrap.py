"""Markets of blocks of another market's returns."""

import dataclasses

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.crypto_trading.scenario import bootstrap, generate
from lockstep.envs.noise import philox

GIVEN = dataclasses.replace(generate(seed=2, bars=1000, assets=3), segments=[[0, 400], [400, 700], [700, 1000]])
PLACES = [*range(1, 113), *range(401, 413), *range(701, 713)]  # where a block and the close before it fit


def test_blocks_are_those_of_the_stream():
    found = bootstrap(GIVEN, seed=11, bars=1000)
    begins = [PLACES[int(philox((0, 0, b, 24), 11)[0]) * len(PLACES) // 2**32] for b in range(4)]
    for b, begin in enumerate(begins):
        ours, theirs = slice(1 + 288 * b, min(1 + 288 * (b + 1), 1000)), slice(begin, begin + min(288, 999 - 288 * b))
        assert np.array_equal(found.volume[ours], GIVEN.volume[theirs])
        for name in ("open", "high", "low", "close"):
            one, other = (
                np.log(getattr(m, name)[rows]) - np.log(m.close[rows.start - 1 : rows.stop - 1])
                for m, rows in ((found, ours), (GIVEN, theirs))
            )
            assert one == pytest.approx(other, abs=1e-12), name
    assert found.close[0].tolist() == GIVEN.close[0].tolist() and found.segments.tolist() == [[0, 1000]]
    assert found.check().symbols == GIVEN.symbols


def test_more_bars_change_nothing_earlier():
    short, long = bootstrap(GIVEN, 3, 500), bootstrap(GIVEN, 3, 900)
    assert np.array_equal(short.close, long.close[:500]) and not np.array_equal(
        short.close, bootstrap(GIVEN, 4, 500).close
    )
    assert bootstrap(GIVEN, 3).bars == 1000


def test_what_has_no_returns_is_refused():
    with pytest.raises(ValueError, match=r"low\[5, 1\] is 0.0, must be positive where returns are drawn"):
        bootstrap(generate(bars=400, zero=[(1, 5, 2)]))
    with pytest.raises(ValueError, match="segments have at most 288 bars, must have over 288"):
        bootstrap(generate(bars=288))


def test_original_and_port_play_on_the_blocks_of_their_scenario_seed():
    options = {"scenario": GIVEN, "market": "bootstrap", "scenario_seed": 7}
    port, original = envs.make("crypto_trading", 1, **options), envs.make_original("crypto_trading", **options)
    drawn = bootstrap(GIVEN, seed=7)
    for env in (port, original):
        np.testing.assert_array_equal(env.market.close, drawn.close)
    expected = envs.make_original("crypto_trading", scenario=drawn)
    action = np.full(3, 0.1, np.float32)
    rows = []
    for env, given in ((port, action[None]), (original, action), (expected, action)):
        env.reset(seed=0)
        rows.append(np.ravel(env.step(given)[0]))
    assert np.array_equal(rows[1], rows[2]) and rows[0] == pytest.approx(rows[1], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"market": "blocks"}, "market='blocks' must be one of 'given', 'bootstrap'"),
        ({"scenario_seed": 3}, "scenario_seed=3 must be 0 where market='given', which draws nothing"),
        ({"market": "bootstrap", "scenario_seed": -1}, "seed=-1 must be an integer from 0"),
    ],
)
def test_a_wrong_choice_of_market_is_named(options, message):
    for make in (envs.make_original, lambda name, **own: envs.make(name, 1, **own)):
        with pytest.raises(ValueError, match=message):
            make("crypto_trading", scenario=GIVEN, **options)


def test_blocks_of_late_assets_and_features_of_ones_own():
    late = generate(bars=1000, assets=2, unlisted=[(1, 0, 300)])
    found = bootstrap(late, seed=1)
    assert found.tradable.all() and found.close[0].tolist() == late.close[300].tolist()
    own = dataclasses.replace(GIVEN, features=np.zeros((1000, 1)), feature_names=("x",))
    with pytest.raises(ValueError, match="features must be None where returns are drawn"):
        bootstrap(own)
    with pytest.raises(MemoryError, match="would fit"):
        bootstrap(GIVEN, bars=2**31 - 1)
