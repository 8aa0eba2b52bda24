"""An account and the holder that it is compared with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

import numpy as np


class Bar(NamedTuple):
    """Prices and rules of the bar that a step trades at; lists go by asset."""

    fill: list[float]  # F, $
    close: list[float]  # P, $
    volume: list[float]  # units
    tradable: list[bool]


def single(number: float) -> float:
    """The number rounded to float32."""
    return float(np.float32(number))


@dataclass(slots=True)
class Account:
    """Money and holdings on a window of a market; lists go by asset (README.md, 2.1)."""

    first: int  # s, bars of the market
    last: int  # e
    bar: int  # t, of the window
    cash: float  # c, $
    holdings: list[float]  # h, units
    age: list[int]  # a, bars
    peak: list[float]  # $
    average: list[float]  # $
    value: float  # V, $
    benchmark: float = 0.0  # E, $
    benchmark_units: list[float] = field(default_factory=list)  # w
    benchmark_cash: float = 0.0  # $
    running: float = 0.0  # G
    fees: float = 0.0  # $, of this step
    notional: float = 0.0  # $, bought and sold in this step

    def age_by_one(self):
        """A bar passes for what is held; fees and notional begin anew."""
        self.fees = self.notional = 0.0
        for i, held in enumerate(self.holdings):
            if held > 0:
                self.age[i] += 1

    def sell(self, i: int, n: float, price: float, fee: float, stored: Callable[[float], float] = float):
        """n units leave at a price; what is left is rounded by `stored`."""
        self.holdings[i] = stored(self.holdings[i] - n)
        self.cash += price * n * (1 - fee)
        self._count(price * n, fee)
        self.age[i] = 0
        if self.holdings[i] == 0:
            self.peak[i] = self.average[i] = 0.0

    def buy(self, i: int, n: float, price: float, fee: float, stored: Callable[[float], float] = float):
        """n units come in at a price."""
        self.holdings[i] = stored(self.holdings[i] + n)
        self.cash -= price * n * (1 + fee)
        self._count(price * n, fee)

    def _count(self, notional: float, fee: float):
        self.notional += notional
        self.fees += notional * fee

    def worth(self, price: list[float]) -> float:
        """Cash and holdings at these prices, $."""
        return self.cash + sum(map(mul, self.holdings, price))

    def benchmark_worth(self, price: list[float]) -> float:
        """Cash and units of the holder at these prices, $."""
        return self.benchmark_cash + sum(map(mul, self.benchmark_units, price))

    def fair_fill(self, capital: float, fill: list[float], fee_buy: list[float], tradable: list[bool]):
        """The fair holder spends C/N, fee included, on each asset at its first fill price, once; an asset that cannot
        be traded then leaves it in cash."""
        if not any(self.benchmark_units):
            share = capital / len(fill)
            rows = zip(fill, fee_buy, tradable, strict=True)
            self.benchmark_units = [share / ((1 + fee) * price) if ok else 0.0 for price, fee, ok in rows]
            self.benchmark_cash = share * (len(fill) - sum(tradable))
