"""Crypto trading; `gymnasium.make("lockstep.envs.crypto_trading:lockstep/CryptoTrading-v0")` gives the original."""

import gymnasium

gymnasium.register(id="lockstep/CryptoTrading-v0", entry_point=f"{__name__}.original:make")
