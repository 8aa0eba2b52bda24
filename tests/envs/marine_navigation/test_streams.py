"""Random numbers against their distributions, and against Philox's words taken by hand."""

import math

import numpy as np
import pytest
import scipy.stats

from lockstep.envs.marine_navigation import streams
from lockstep.envs.noise import philox


def test_the_knots_are_the_quantiles_of_von_mises():
    knots = streams.von_mises_knots()
    assert len(knots) == 4096 and knots[0] == -math.pi and knots[-1] == math.pi
    inner = scipy.stats.vonmises.cdf(knots[1:-1], 1.0)
    np.testing.assert_allclose(inner, np.arange(1, 4095) / 4095, rtol=0, atol=1e-12)
    np.testing.assert_allclose(knots, -knots[::-1], rtol=0, atol=1e-12)


def test_between_knots_the_table_is_a_line():
    knots = streams.von_mises_knots()
    assert streams.von_mises(1000.25 / 4095) == pytest.approx(0.75 * knots[1000] + 0.25 * knots[1001], abs=1e-12)
    assert streams.von_mises(0.0) == -math.pi


def test_words_become_numbers_flags_and_ids():
    word = np.uint32(0xC0000001)
    assert streams.unit(word) == 0.75 and streams.between(2.0, 4.0, 0.75) == 3.5
    assert streams.unit(np.uint32(0xFFFFFFFF)) == 1 - 2.0**-24 and streams.unit(np.uint32(255)) == 0.0
    assert streams.id_of(word, 25) == 18 and streams.id_of(np.uint32(0xFFFFFFFF), 160) == 159
    one, other = streams.normals(np.array([0x7FFFFF00, 0x40000000], np.uint32)[:, None])[:, 0]
    assert (one, other) == pytest.approx((0.0, math.sqrt(-2 * math.log(0.5))), abs=1e-15)


def test_each_observer_object_and_step_has_words_of_its_own():
    """Streams 256 + 128 i + 2 k and 257 + 128 i + 2 k of (environment, episode, t), by hand."""
    normals, xi = streams.perception(9, 3, 4, 5, [0, 7], [2, 33])
    for a, i in enumerate((0, 7)):
        for b, k in enumerate((2, 33)):
            words = philox((3, 4, 5, 256 + 128 * i + 2 * k), 9).astype(float) // 256
            expected = []
            for u1, u2 in ((words[0], words[1]), (words[2], words[3])):
                far = math.sqrt(-2 * math.log((u1 + 1) * 2.0**-24))
                expected += [far * math.cos(2 * math.pi * u2 / 2**24), far * math.sin(2 * math.pi * u2 / 2**24)]
            assert normals[a, b] == pytest.approx(expected, abs=1e-12)
            word = philox((3, 4, 5, 257 + 128 * i + 2 * k), 9)[0]
            assert xi[a, b] == streams.von_mises(streams.unit(word))


def test_noise_has_the_stated_moments():
    """Of 40,000 normals and 10,000 angles; tolerances of four standard errors."""
    drawn = [streams.perception(0, 0, 0, t, range(10), range(10)) for t in range(100)]
    normals, xi = (np.concatenate([one[part].reshape(-1) for one in drawn]) for part in (0, 1))
    assert normals.mean() == pytest.approx(0.0, abs=4 / math.sqrt(len(normals)))
    assert normals.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * len(normals)))
    assert scipy.stats.kstest(normals, "norm").pvalue > 1e-3
    factor = 0.8 + 0.2 * xi / math.pi
    assert factor.mean() == pytest.approx(0.8, abs=4 * 0.080634 / math.sqrt(len(xi)))
    assert factor.std() == pytest.approx(0.080634, abs=4 * 0.080634 / math.sqrt(len(xi)))
    assert 0.6 <= factor.min() < 0.61 and 0.99 < factor.max() <= 1.0
    assert scipy.stats.kstest(xi, lambda x: scipy.stats.vonmises.cdf(x, 1.0)).pvalue > 1e-3
    assert abs(np.corrcoef(np.concatenate([one[0].reshape(-1, 4) for one in drawn]).T)[0, 1]) < 0.04
