// A step of the published rule sets one and two (README.md, 2), with their storage: units, ages and peaks in float32.
#pragma once
#include "ruled.cuh"

#if FLOAT32
typedef float Units;
#else
typedef double Units;
#endif
constexpr double FEE_BUY_ONE = 1.0 + FEE_BUY, FEE_SELL_ONE = 1.0 - FEE_SELL;

FN Units lesser(Units a, Units b) { return a < b ? a : b; }

// V at the prices of a bar, before trading there.
FN double worth_before(const State& s, const Place& at, int row) {
    double worth = 0;
    EACH_ASSET
    for (int i = 0; i < N; i++) worth += double(Units(s[HOLDINGS + i])) * at.tables.price[row * N + i];
    return s.doubles[CASH] + worth;
}

// Reward of rule set two from the moves of V and E.
FN double reward_of_two(const State& s, const Place& at, double value, double rise, double benchmark, double drift, const double* share) {
    const double after = s.doubles[VALUE], cash = s.doubles[CASH];
    const int bars = s.integers[LAST] - s.integers[FIRST], span = bars - (P::drop_tail ? 2 : 1) * L;
    const double passed = double(at.t + 1) / double(span > 1 ? span : 1), left = 1.0 - lower(passed, 1.0);
    const double weight = higher(left, DECAY_FLOOR), k = NORM_REWARD;
    const double move = benchmark > 0 ? drift / benchmark : 0.0, idle = after > 0 ? cash / after : 0.0;
    const double calm = (move < 0) & (idle > 0.1) ? 0.1 * k * magnitude(move) * idle : 0.0;
    double reward = 0.5 * k * weight * (rise - drift) + 0.3 * k * weight * rise / CAPITAL + 0.2 * calm;
    reward -= 0.5 * k * higher(0.0, CAPITAL * RESERVE - cash) / CAPITAL;
    if (P::concentration == 0) return reward;
    double count = 0, sum = 0, most = 0, ranked = 0;
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        double rank = 1;  // among those that count, ascending
        EACH_ASSET
        for (int j = 0; j < N; j++) rank += (share[j] > 0.01) & ((share[j] < share[i]) | ((share[j] == share[i]) & (j < i))) ? 1.0 : 0.0;
        const double own = share[i] > 0.01 ? share[i] : 0.0;
        most = higher(most, share[i]);
        count += own > 0 ? 1.0 : 0.0;
        sum += own;
        ranked += rank * own;
    }
    const double spread = count > 0 ? 2.0 * ranked / (count * sum) - (count + 1.0) / count : 0.0;
    const double few = -0.5 * CONCENTRATION * (3.0 - count), even = 0.1 * CONCENTRATION * higher(0.0, 0.4 - spread);
    const double mixed = -CONCENTRATION * higher(0.0, most - 0.40) + (count < 3 ? few : even);
    return reward + (after > 0 ? mixed : 0.0);
}

FN void step_published(State& s, const Action& action, const Place& at, Outcome& out) {
    const int row = row_at(s, at.t + 1);
    const double value = s.doubles[VALUE], benchmark = s.doubles[BENCHMARK];
    double cash = s.doubles[CASH], fees = 0, notional = 0, worth = 0, held_out = 0;
    double price[N];
    Units held[N], order[N], peak[N];
    int age[N];
    const Ruling ruling = RULED ? ruling_of(s, at, worth_before(s, at, row), SPENDING) : Ruling{};
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        const double minimum = at.tables.minimum[i], scale = at.tables.scale[s.integers[FIRST] * N + i];
        const float u = float(asked(action, at, i)), most = 1000.0f, clipped = u < -most ? -most : u > most ? most : u;
        order[i] = FLOAT32 && TWO ? Units(clipped * float(scale)) : Units(double(TWO ? clipped : u) * scale);
        price[i] = at.tables.price[row * N + i];
        held[i] = Units(s[HOLDINGS + i]);
        if (RULED) order[i] = ruling.stands > 0 ? Units(ruling.order(price[i], double(held[i]), price[i] > 0)) : order[i];
        age[i] = s.integers[AGE + i] + (held[i] > 0);
        if (STOPS) {
            const bool holds = held[i] > 0;
            const Units before = Units(s[PEAK + i]), now = Units(price[i]);
            peak[i] = holds & (now > before) ? now : before;
            const bool falls = holds & (price[i] > 0) & (price[i] < double(peak[i] * Units(1.0 - STOP)));
            const double sold = falls ? price[i] * double(held[i]) : 0.0;
            cash += sold * FEE_SELL_ONE;
            notional += sold;
            fees += sold * FEE_SELL;
            held[i] = falls ? Units(0) : held[i];
            peak[i] = falls ? Units(0) : peak[i];
            age[i] = falls ? 0 : age[i];
        }
        const bool sells = (double(order[i]) < -minimum) & (held[i] > 0) & (price[i] > 0);
        const Units n = sells ? lesser(held[i], -order[i]) : Units(0);
        const double sold = price[i] * double(n);
        age[i] = sells ? 0 : age[i];
        held[i] -= n;
        cash += sold * FEE_SELL_ONE;
        if (STOPS) peak[i] = held[i] > 0 ? peak[i] : Units(0);
        const bool old = (P::hold_limit > 0) & (age[i] >= P::hold_limit) & (P::unguarded_trim | (price[i] > 0));
        const Units trimmed = old ? Units(TRIM) * held[i] : Units(0);
        const double cut = price[i] * double(trimmed);
        age[i] = old ? 0 : age[i];
        held[i] -= trimmed;
        cash += cut * FEE_SELL_ONE;
        notional += sold + cut;
        fees += (sold + cut) * FEE_SELL;
    }
    const double reserve = TWO ? CAPITAL * RESERVE : 0.0, all = cash;
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        const double minimum = at.tables.minimum[i], budget = (P::parallel_budget ? all : cash) - reserve;
        const bool buys = (double(order[i]) > minimum) & (price[i] > 0);
        const double most = SPENDING * (TWO ? higher(0.0, budget) : budget) / FEE_BUY_ONE / price[i], wanted = lower(most, double(order[i]));
        const double n = buys & (wanted >= minimum) ? wanted : 0.0, paid = price[i] * n;
        if (STOPS) peak[i] = (n > 0) & (held[i] <= 0) ? Units(price[i]) : peak[i];
        held[i] = Units(double(held[i]) + n);
        cash -= paid * FEE_BUY_ONE;
        notional += paid;
        fees += paid * FEE_BUY;
    }
    double share[N];
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        share[i] = double(held[i]) * price[i];
        worth += share[i];
        s[HOLDINGS + i] = real(held[i]);
        s.integers[AGE + i] = age[i];
        if (STOPS) s[PEAK + i] = real(peak[i]);
        if (FAIR) {
            const double each = CAPITAL / N, bought = each / (FEE_BUY_ONE * price[i]);
            const double units = at.t > 0 ? double(s[UNITS + i]) : price[i] > 0 ? bought : 0.0;
            s[UNITS + i] = real(units);
        }
        const double owned = double(s[UNITS + i]);  // none of what had no price at the first fill, whose part stays cash
        held_out += FAIR && owned == 0 ? CAPITAL / N : owned * price[i];
    }
    const double after = cash + worth;
    EACH_ASSET
    for (int i = 0; i < N; i++) share[i] = after > 0 ? share[i] / after : 0.0;
    s.doubles[CASH] = cash;
    s.doubles[VALUE] = after;
    s.doubles[BENCHMARK] = held_out;
    const double rise = after - value, drift = held_out - benchmark;
    double reward = NORM_REWARD * (rise - drift);
    if (TWO) reward = reward_of_two(s, at, value, rise, benchmark, drift, share);
    const bool ends = row >= s.integers[LAST] - 1 - (P::drop_tail ? int(L) : 0);
    if (P::terminal_sum) {
        s.doubles[RUNNING] = DISCOUNT * s.doubles[RUNNING] + reward;
        reward = ends ? s.doubles[RUNNING] : reward;
    }
    out.reward[0] = float(reward);
    out.terminated[0] = ends;
    out.metrics[METRIC_VALUE] = float(after);
    out.metrics[METRIC_BENCHMARK] = float(held_out);
    out.metrics[METRIC_FEES] = float(fees);
    out.metrics[METRIC_TURNOVER] = float(notional / value);
}

FN void observe_published(const State& s, const Place& at, float* obs) {
    obs[0] = float(s.doubles[CASH] * NORM_CASH);
    EACH_ASSET
    for (int i = 0; i < N; i++) obs[1 + i] = float(Units(s[HOLDINGS + i]) * Units(NORM_STOCKS));
    if (INDEXED) obs[1 + N] = float(row_at(s, at.t));
}
