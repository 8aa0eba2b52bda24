"""Radio and wire of the original (README.md, 2.3)."""

import math
from typing import NamedTuple


class User(NamedTuple):
    """One sender at a receiver."""

    index: int  # of the client
    gain: float  # g = X^2 d^-alpha
    watt: float


def weaker(other: User, user: User, silent_ties: bool) -> bool:
    """True if `other` is decoded after `user`; of two equal gains the higher index counts as the weaker (Q18)."""
    if other.gain == user.gain:
        return not silent_ties and other.index > user.index
    return other.gain < user.gain


def sic_rates(
    users: list[User], bandwidth_mhz: float, noise_watt: float, in_mw: bool, silent_ties: bool
) -> dict[int, float]:
    """Rates of the users of one receiver that decodes the strongest first and cancels it.

    R_i = W log2(1 + g_i P_i / (N0 + I_i)), where I_i is what the weaker users send.

    Args:
        in_mw: the power inside I_i is counted in mW (Q2).
        silent_ties: equal gains do not interfere (Q18).

    Returns:
        Mbit/s by index of the client.
    """
    unit = 1e3 if in_mw else 1.0
    rates = {}
    for user in users:
        interference = 0.0
        for other in users:
            if weaker(other, user, silent_ties):
                interference += other.gain * other.watt * unit
        snr = user.gain * user.watt / (noise_watt + interference)
        rates[user.index] = bandwidth_mhz * math.log1p(snr) / math.log(2.0)
    return rates


def wire_rate(rate_mbps: float, speed_mps: float, metres: float, one_bit: bool) -> float:
    """Mbit/s of a wire: its rate, or what one bit per propagation delay leaves of it (Q8)."""
    if not one_bit:
        return rate_mbps
    return rate_mbps / (1.0 + 1e6 * rate_mbps * metres / speed_mps)
