"""The rule set `clean` (README.md, 2.4)."""

import math

import numpy as np

from .. import tables
from ..params import Params
from ..scenario import Market
from .account import Account, Bar

LEAST = 1e-12  # of C: a smaller value or benchmark counts as this in a logarithm
SLACK = 1e-9  # lots, by which what is sold may lack of a whole one


class Clean:
    """Rules of one market."""

    stored = float  # rounding of holdings

    def __init__(self, params: Params, market: Market):
        self.params, self.market = params, market
        self.fills = market.open if params.fill == "next_open" else market.close
        self.minimum, self.lot = tables.minimums(params, market).tolist(), market.qty_step.tolist()
        self.fee_buy, self.fee_sell = (fee.tolist() for fee in tables.fees(params, market))
        self.scale = None  # s [N] of orders="units"

    def open(self, first: int, last: int, before: Account | None = None) -> Account:
        """An account at the first bar of a window."""
        p, N = self.params, self.market.assets
        self.set_window(first)
        zeros = [0.0] * N
        account = Account(first, last, p.lookback - 1, p.capital, zeros, [0] * N, [*zeros], [*zeros], p.capital)
        account.benchmark_units = [*zeros]
        account.benchmark = account.benchmark_cash = p.capital
        return account

    def set_window(self, first: int):
        """The order scale is that of a window's first row."""
        if tables.scaled(self.params):
            self.scale = tables.order_scale(self.params, self.market.close[first]).tolist()

    # ---- a step

    def trade(self, account: Account, x: list[float], bar: Bar) -> tuple[float, bool, bool]:
        """One step with orders x [N], units: reward, terminated, truncated."""
        p, a = self.params, account
        a.bar += 1
        if a.bar == p.lookback:
            a.fair_fill(p.capital, bar.fill, self.fee_buy, bar.tradable)
        a.age_by_one()
        if p.stop > 0:
            self.stop(a, bar)
        self.sell(a, x, bar)
        self.trim(a, bar)
        if p.buy_order == "pro_rata":
            self.buy_pro_rata(a, x, bar)
        else:
            self.buy_in_turn(a, x, bar)
        return self.marked(a, bar)

    def next_bar(self, account: Account) -> Bar:
        """The bar that the next step trades at; without volume nothing is tradable where trades move prices."""
        row = account.first + account.bar + 1
        fill, volume = self.fills[row].tolist(), self.market.volume[row].tolist()
        tradable = [ok and price > 0 for ok, price in zip(self.market.tradable[row].tolist(), fill, strict=True)]
        if self.params.impact > 0:
            tradable = [ok and v > 0 for ok, v in zip(tradable, volume, strict=True)]
        return Bar(fill, self.market.close[row].tolist(), volume, tradable)

    def orders(self, account: Account, action: np.ndarray, bar: Bar) -> list[float]:
        """x [N], units, of an action u [N] float32; 0 where not tradable."""
        p, u = self.params, action.tolist()
        if p.orders == "units":
            return [one * s if ok else 0.0 for one, s, ok in zip(u, self.scale, bar.tradable, strict=True)]
        value = account.worth(bar.fill)
        if p.orders == "notional":
            budget = p.order_share * value
            return [one * budget / F if ok else 0.0 for one, F, ok in zip(u, bar.fill, bar.tradable, strict=True)]
        weights = [(one + 1) / 2 for one in u]
        value /= max(1.0, sum(weights))
        rows = zip(weights, bar.fill, account.holdings, bar.tradable, strict=True)
        return [b * value / F - h if ok else 0.0 for b, F, h, ok in rows]

    def price(self, i: int, bar: Bar, n: float, side: int) -> float:
        """Price of n units bought (side 1) or sold (-1), $."""
        p = self.params
        moved = p.impact * math.sqrt(n / bar.volume[i]) if p.impact > 0 else 0.0
        return bar.fill[i] * max(0.0, 1 + side * (p.slippage + moved))

    def lots(self, i: int, n: float, slack: float = 0.0) -> float:
        """n rounded down to whole lots."""
        step = self.lot[i]
        return math.floor(n / step + slack) * step if step > 0 else n

    def stop(self, account: Account, bar: Bar):
        peak, kept = account.peak, 1 - self.params.stop
        for i, held in enumerate(account.holdings):
            if held > 0 and bar.tradable[i]:
                peak[i] = max(peak[i], bar.fill[i])
                if bar.fill[i] < peak[i] * kept:
                    account.sell(i, held, self.price(i, bar, held, -1), self.fee_sell[i])

    def sell(self, account: Account, x: list[float], bar: Bar):
        for i, held in enumerate(account.holdings):
            if x[i] < 0 < held and bar.tradable[i]:
                n = min(held, -x[i])
                if n < held:
                    n = min(held, self.lots(i, n, SLACK))
                    if -x[i] <= self.minimum[i] or n < self.minimum[i] or n <= 0:
                        continue
                account.sell(i, n, self.price(i, bar, n, -1), self.fee_sell[i])

    def trim(self, account: Account, bar: Bar):
        for i, bars in enumerate(account.age):
            if 0 < self.params.hold_limit <= bars and bar.tradable[i]:
                held = account.holdings[i]
                n = min(held, self.lots(i, self.params.trim * held, SLACK))
                account.sell(i, n, self.price(i, bar, n, -1), self.fee_sell[i])

    def buy_in_turn(self, account: Account, x: list[float], bar: Bar):
        """Each buy sees the cash that the ones before have left."""
        p, N = self.params, len(x)
        all_cash = account.cash
        begin = account.bar % N if p.buy_order == "rotating" else 0
        for i in (*range(begin, N), *range(begin)):
            if x[i] > self.minimum[i] and bar.tradable[i]:
                budget = self.budget(all_cash if p.parallel_budget else account.cash)
                most = p.spending * budget / (1 + self.fee_buy[i]) / self.price(i, bar, x[i], 1)
                self.buy(account, i, min(most, x[i]), bar)

    def buy_pro_rata(self, account: Account, x: list[float], bar: Bar):
        """All buys shrink by one factor, so that their cost fits the cash."""
        bought = [i for i, q in enumerate(self.minimum) if x[i] > q and bar.tradable[i]]
        cost = sum(self.price(i, bar, x[i], 1) * x[i] * (1 + self.fee_buy[i]) for i in bought)
        factor = min(1.0, self.params.spending * self.budget(account.cash) / cost) if bought else 0.0
        for i in bought:
            self.buy(account, i, factor * x[i], bar)

    def budget(self, cash: float) -> float:
        return max(0.0, cash - self.params.capital * self.params.reserve)

    def buy(self, account: Account, i: int, n: float, bar: Bar):
        n = self.lots(i, n)
        if n >= self.minimum[i] and n > 0:
            held, price = account.holdings[i], self.price(i, bar, n, 1)
            if held == 0:
                account.peak[i] = bar.fill[i]
            account.average[i] = (held * account.average[i] + n * price) / (held + n)
            account.buy(i, n, price, self.fee_buy[i])

    def marked(self, account: Account, bar: Bar) -> tuple[float, bool, bool]:
        """The account at the close: reward, terminated, truncated."""
        p, a = self.params, account
        value, benchmark = a.worth(bar.close), a.benchmark_worth(bar.close)
        if p.reward == "excess_dollar":
            reward = p.norm_reward * ((value - a.value) - (benchmark - a.benchmark))
        else:
            reward = self.growth(value, a.value)
            if p.reward == "excess_log":
                reward -= self.growth(benchmark, a.benchmark)
        a.value, a.benchmark = value, benchmark
        terminated = value < p.value_floor * p.capital
        return reward, terminated, not terminated and a.bar - p.lookback + 1 == p.steps(a.last - a.first)

    def growth(self, new: float, old: float) -> float:
        """ln(new / old)."""
        least = LEAST * self.params.capital
        return math.log(max(new, least) / max(old, least))
