"""Rule sets one and two: a step of the published models (README.md, 2.2 and 2.3)."""

import numpy as np

from .. import tables
from ..params import Params
from ..scenario import Market
from .account import Account, Bar, single

MOST = 1000.0  # of an action of rule two


class Published:
    """Rules of one market."""

    def __init__(self, params: Params, market: Market):
        self.params, self.close = params, market.close
        self.two = params.rules == "two"
        self.minimum = tables.minimums(params, market).tolist()
        self.stored = single if params.float32_holdings else float
        self.trim, self.kept = self.stored(params.trim), self.stored(1 - params.stop)
        self.scale = None  # s [N], units per action unit

    def open(self, first: int, last: int, before: Account | None = None) -> Account:
        """An account at the first bar of a window; with `carry_over` the holder and G are those of the one before."""
        p, N = self.params, self.close.shape[1]
        price, t = self.close[first], p.lookback - 1
        self.set_window(first)
        zeros = [0.0] * N
        account = Account(first, last, t, p.capital, zeros, [0] * N, [*zeros], [*zeros], p.capital)
        if before is not None and p.carry_over:
            account.benchmark, account.running = before.benchmark, before.running
            account.benchmark_units, account.benchmark_cash = before.benchmark_units, before.benchmark_cash
        elif p.published_benchmark:
            cost = price * (1 + p.fee_buy) if self.two else price
            account.benchmark_units = (p.capital / (N * cost)).tolist()
            account.benchmark = account.benchmark_worth(self.close[first + t].tolist())
        else:
            account.benchmark_units = [*zeros]
            account.benchmark = account.benchmark_cash = p.capital
        return account

    def set_window(self, first: int):
        """The order scale is that of a window's first row."""
        self.scale = tables.order_scale(self.params, self.close[first])

    def next_bar(self, account: Account) -> Bar:
        """The bar that the next step trades at, at its close."""
        price = self.close[account.first + account.bar + 1].tolist()
        return Bar(price, price, [], [one > 0 for one in price])

    def orders(self, account: Account, action: np.ndarray, bar: Bar) -> list[float]:
        """x [N], units, of an action u [N] float32: u s, with `float32_holdings` rounded to float32."""
        u = np.clip(action, -MOST, MOST) if self.two else action
        x = u * self.scale
        return (x.astype(np.float32) if self.params.float32_holdings else x).tolist()

    def trade(self, account: Account, x: list[float], bar: Bar) -> tuple[float, bool, bool]:
        """One step with orders x [N], units: reward, terminated, False."""
        p, stored, fee_buy, fee_sell = self.params, self.stored, self.params.fee_buy, self.params.fee_sell
        account.bar += 1
        price, holdings, age, peak = bar.close, account.holdings, account.age, account.peak
        account.age_by_one()
        if not p.published_benchmark and account.bar == p.lookback:
            account.fair_fill(p.capital, price, [fee_buy] * len(price), bar.tradable)
        if p.stop > 0:
            for i, held in enumerate(holdings):
                if held > 0:
                    peak[i] = max(peak[i], stored(price[i]))
                    if 0 < price[i] < stored(peak[i] * self.kept):
                        account.sell(i, held, price[i], fee_sell)
        for i, q in enumerate(self.minimum):
            if x[i] < -q and holdings[i] > 0 and price[i] > 0:
                account.sell(i, min(holdings[i], -x[i]), price[i], fee_sell, stored)
        for i, bars in enumerate(age):
            if 0 < p.hold_limit <= bars and (price[i] > 0 or p.unguarded_trim):
                account.sell(i, stored(self.trim * holdings[i]), price[i], fee_sell, stored)
        all_cash, reserved = account.cash, p.capital * p.reserve
        for i, q in enumerate(self.minimum):
            if x[i] > q and price[i] > 0:
                budget = max(0.0, (all_cash if p.parallel_budget else account.cash) - reserved)
                n = min(p.spending * budget / (1 + fee_buy) / price[i], x[i])
                if n >= q:
                    if self.two and n > 0 and holdings[i] == 0:
                        peak[i] = stored(price[i])
                    account.buy(i, n, price[i], fee_buy, stored)
        return self.marked(account, price)

    def marked(self, account: Account, price: list[float]) -> tuple[float, bool, bool]:
        """The account at the close: reward, terminated, False."""
        p, a = self.params, account
        value, benchmark = a.worth(price), a.benchmark_worth(price)
        if self.two:
            reward = self.reward_two(a, value, benchmark, price)
        else:
            reward = p.norm_reward * ((value - a.value) - (benchmark - a.benchmark))
        a.value, a.benchmark = value, benchmark
        a.running = p.discount * a.running + reward
        terminated = a.bar - p.lookback + 1 == p.steps(a.last - a.first)
        return a.running if terminated and p.terminal_sum else reward, terminated, False

    def reward_two(self, account: Account, value: float, benchmark: float, price: list[float]) -> float:
        """r of rule two; V' and E' are new, those of the account old. Its units do not fit together."""
        p, a, C, k = self.params, account, self.params.capital, self.params.norm_reward
        steps = max(p.steps(a.last - a.first), 1)  # H
        passed = min(max((a.bar - p.lookback + 1) / steps, 0.0), 1.0)
        decay = max(1 - passed, p.decay_floor)  # δ
        gain, holder = value - a.value, benchmark - a.benchmark
        trend = holder / a.benchmark if a.benchmark > 0 else 0.0  # m
        idle = a.cash / value if value > 0 else 0.0  # v
        bonus = 0.1 * k * abs(trend) * idle if trend < 0 and idle > 0.1 else 0.0  # B
        short = max(0.0, C * p.reserve - a.cash) / C
        spread = 0.0  # Q
        if p.concentration > 0 and value > 0:
            spread = p.concentration * spread_of([h * c / value for h, c in zip(a.holdings, price, strict=True)])
        return 0.5 * k * decay * (gain - holder) + 0.3 * k * decay * gain / C + 0.2 * bonus - 0.5 * k * short + spread


def spread_of(shares: list[float]) -> float:
    """Q / z of shares y: minus what the largest has above 0.40, and minus half of what is lacking to three assets of
    more than 1 %, or plus a tenth of what their Gini coefficient is below 0.4."""
    found = -max(0.0, max(shares) - 0.40)
    held = sorted(y for y in shares if y > 0.01)
    n = len(held)
    if n < 3:
        return found - 0.5 * (3 - n)
    gini = 2 * sum(j * y for j, y in enumerate(held, start=1)) / (n * sum(held)) - (n + 1) / n
    return found + 0.1 * max(0.0, 0.4 - gini)
