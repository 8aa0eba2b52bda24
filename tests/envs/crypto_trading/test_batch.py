"""Batches of as many accounts as the memory holds."""

import pytest

from lockstep import envs
from lockstep.envs.crypto_trading import batch
from tests.envs.crypto_trading.batches import MARKET

FREE = 64 * 2**20


@pytest.fixture
def free(monkeypatch):
    """A device with so many bytes."""

    def has(count: int):
        monkeypatch.setattr(batch, "available_memory", lambda device: count)

    has(FREE)
    return has


def auto(**options):
    return envs.make("crypto_trading", "auto", scenario=MARKET, **options)


@pytest.mark.parametrize("horizon", [0, 64])
def test_auto_is_what_four_fifths_of_the_memory_hold(free, capsys, horizon):
    """Eleven numbers of an observation, three of an action."""
    env = auto(horizon=horizon)
    each = env.bytes_per_env + 12 + horizon * (4 * 11 + 4 * 3 + 20)
    most = (0.8 * FREE - env.memory()["tables"]) / each
    assert env.num_envs % 256 == 0 and most - 256 < env.num_envs <= most
    said = f"num_envs='auto': {env.num_envs:,} environments of {each:,} bytes each, of 0.06 GiB on cpu\n"
    assert capsys.readouterr().out == said
    assert sum(env.memory().values()) < FREE


def test_rows_of_an_agent_and_observations_take_room_from_environments(free):
    assert auto(horizon=64).num_envs < auto(horizon=1).num_envs < auto().num_envs
    assert auto(groups=3, seed=[1, 2, 3]).num_envs % (3 * 256) == 0


def test_what_auto_cannot_be_is_refused(free):
    with pytest.raises(ValueError, match="num_envs='many' must be an integer or 'auto'"):
        envs.make("crypto_trading", "many")
    with pytest.raises(ValueError, match="horizon=-1 must be an integer from 0"):
        auto(horizon=-1)
    with pytest.raises(ValueError, match="horizon=64 must be left out: it is for num_envs='auto'"):
        envs.make("crypto_trading", 4, horizon=64)
    free(10_000)
    with pytest.raises(
        MemoryError, match=r"num_envs='auto' counts in 256 environments, of .* 0.00 GiB are free on cpu"
    ):
        auto()
