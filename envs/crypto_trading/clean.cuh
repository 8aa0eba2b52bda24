// A step of the rules `clean` (README.md, 2.4): orders, stops, sales, trims, buys, and what they cost.
#pragma once
#include "ruled.cuh"

// Trading of an environment's assets in a step. Units and $ are counted in double; what lasts is kept as the state keeps it.
struct Trading {
    double fill[N], mark[N];  // $ a unit: at which orders are filled, and at which holdings are counted
    double order[N];          // units; negative where it sells
    real held[N];             // units
    real peak[N], average[N]; // $ a unit
    double cash, spent, fees, notional, gain;  // gain: of V, besides the moves of prices
    int age[N];
    bool open[N];  // can be traded
};

FN bool open_at(double price) { return price > 0; }

// Price of n units, bought (side 1) or sold (side -1).
FN double price_of(const Place& at, const Trading& q, int row, int i, double n, double slippage, int side) {
    if (!SLIPS) return q.fill[i];
    double share = slippage;
    if (IMPACTS) share += IMPACT * sqrt(n / higher(at.tables.volume[row * N + i], 1e-300));
    return q.fill[i] * higher(0.0, side > 0 ? 1.0 + share : 1.0 - share);
}

// Holdings as they are kept.
constexpr bool SINGLE = sizeof(real) == 4;
FN double kept(double held) { return double(real(held)); }
FN double below(float held) { return double(of_bits(bits_of(held) - 1)); }
FN double below(double held) { return held; }

FN void sell(Trading& q, int i, double units, double price, double fee) {
    const double held = double(q.held[i]), left = kept(held - units), n = SINGLE ? held - left : units;
    const double worth = n * price;
    q.held[i] = real(left);
    q.cash += worth * (1.0 - fee);
    q.fees += worth * fee;
    q.notional += worth;
    q.gain -= worth * fee;
    if (SLIPS || NEXT_OPEN) q.gain += n * (price - q.mark[i]);
}

// V before trading, at the prices of fills; and the moves of V and of the benchmark.
FN void set_prices(State& s, const Place& at, int row, const Costs& costs, Trading& q, double& entry, double& moved, double& drift) {
    const bool begins = at.t == 0;
    entry = moved = drift = 0;
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        const double before = magnitude(at.tables.price[(row - 1) * N + i]), now = at.tables.price[row * N + i];
        const double filled = NEXT_OPEN ? at.tables.opening[row * N + i] : now;
        q.mark[i] = magnitude(now);
        q.fill[i] = magnitude(filled);
        q.open[i] = open_at(filled);
        q.held[i] = s[HOLDINGS + i];
        moved += double(q.held[i]) * (q.mark[i] - before);
        entry += double(q.held[i]) * (q.fill[i] - before);
        // The holder of equal parts buys at the first fill.
        const double each = CAPITAL / N, dear = q.fill[i] * (1.0 + costs.fee_buy(i));
        const double units = begins ? (q.open[i] ? each / dear : 0.0) : double(s[UNITS + i]);
        s[UNITS + i] = real(units);
        drift += kept(units) * (q.mark[i] - before) + (begins ? kept(units) * (before - dear) : 0.0);
    }
}

FN void set_orders(const State& s, const Place& at, const Action& action, double worth, const Costs& costs, Trading& q) {
    double total = 1.0;
    if (P::orders_is_target_weight) {
        total = 0;
        EACH_ASSET
        for (int i = 0; i < N; i++) total += (asked(action, at, i) + 1.0) * 0.5;
        total = higher(1.0, total);
    }
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        const double u = asked(action, at, i);
        if (P::orders_is_units) q.order[i] = u * at.tables.scale[s.integers[FIRST] * N + i];
        else if (P::orders_is_notional) q.order[i] = u * costs.order_share() * worth / q.fill[i];
        else q.order[i] = (u + 1.0) * 0.5 / total * worth / q.fill[i] - double(q.held[i]);
        q.order[i] = q.open[i] ? q.order[i] : 0.0;
    }
    if (RULED) {
        const Ruling ruling = ruling_of(s, at, worth, costs.spending());
        EACH_ASSET
        for (int i = 0; i < N; i++) q.order[i] = ruling.stands > 0 ? ruling.order(q.fill[i], double(q.held[i]), q.open[i]) : q.order[i];
    }
}

// The stop, the sale and the trim of an asset.
FN void reduce(const State& s, const Place& at, int row, int i, const Costs& costs, Trading& q) {
    const double fee = costs.fee_sell(i), minimum = at.tables.minimum[i], slip = costs.slippage();
    q.age[i] = s.integers[AGE + i] + (q.held[i] > 0);
    if (STOPS) {
        const double seen = higher(double(s[PEAK + i]), q.fill[i]), peak = q.held[i] > 0 ? seen : double(s[PEAK + i]);
        const bool falls = q.open[i] & (q.held[i] > 0) & (q.fill[i] < peak * (1.0 - STOP));
        const double n = falls ? double(q.held[i]) : 0.0;
        q.peak[i] = q.open[i] ? real(falls ? 0.0 : peak) : s[PEAK + i];
        q.age[i] = falls ? 0 : q.age[i];
        sell(q, i, n, price_of(at, q, row, i, n, slip, -1), fee);
    }
    const double held = double(q.held[i]), wanted = -q.order[i], most = lower(held, wanted);
    const bool whole = wanted >= held;
    const double part = whole ? held : lots(most, at.tables.lot[i], 1e-9);
    const bool sells = (wanted > 0) & (held > 0) & (whole | ((wanted > minimum) & (part >= minimum)));
    const double n = sells ? part : 0.0;
    q.age[i] = sells ? 0 : q.age[i];
    sell(q, i, n, price_of(at, q, row, i, n, slip, -1), fee);
    if (STOPS) q.peak[i] = q.held[i] > 0 ? q.peak[i] : real(0);
    if (P::hold_limit > 0) {
        const bool old = q.open[i] & (q.age[i] >= P::hold_limit);
        const double trimmed = old ? lots(TRIM * double(q.held[i]), at.tables.lot[i], 1e-9) : 0.0;
        q.age[i] = old ? 0 : q.age[i];
        sell(q, i, trimmed, price_of(at, q, row, i, trimmed, slip, -1), fee);
    }
    q.average[i] = q.held[i] > 0 ? s[AVERAGE + i] : real(0);
}

// Buys n units of an asset.
FN void add(const Place& at, int row, int i, double units, double fee, double slip, Trading& q) {
    const double held = double(q.held[i]), average = double(q.average[i]);
    const double price = price_of(at, q, row, i, units, slip, 1), nearest = kept(held + units);
    // Rounded up, they may cost more than the cash that there is.
    const double after = SINGLE && (nearest - held) * price * (1.0 + fee) > q.cash ? below(real(nearest)) : nearest;
    const double n = SINGLE ? after - held : units, worth = n * price;
    if (STOPS) q.peak[i] = (n > 0) & (held <= 0) ? real(q.fill[i]) : q.peak[i];
    q.average[i] = n > 0 ? real(average + (price - average) * (n / after)) : q.average[i];
    q.held[i] = real(after);
    q.cash -= worth * (1.0 + fee);
    q.fees += worth * fee;
    q.notional += worth;
    q.gain -= worth * fee;
    if (SLIPS || NEXT_OPEN) q.gain += n * (q.mark[i] - price);
}

FN void increase(const Place& at, int row, const Costs& costs, Trading& q) {
    const double slip = costs.slippage(), reserve = CAPITAL * RESERVE, cash = q.cash;
    double factor = 1.0;
    if (P::buy_order_is_pro_rata) {
        double total = 0;
        EACH_ASSET
        for (int i = 0; i < N; i++) {
            const bool buys = q.order[i] > at.tables.minimum[i];
            const double n = buys ? q.order[i] : 0.0;
            total += price_of(at, q, row, i, n, slip, 1) * n * (1.0 + costs.fee_buy(i));
        }
        const double most = costs.spending() * higher(0.0, cash - reserve);
        factor = total > most ? most / total : 1.0;
    }
    const int start = P::buy_order_is_rotating ? (at.t + L) % N : 0;
    EACH_ASSET
    for (int k = 0; k < (P::buy_order_is_rotating ? 2 * N : int(N)); k++) {
        const int i = k % N;
        const bool turn = !P::buy_order_is_rotating || ((k >= start) & (k < start + N));
        const bool buys = turn & (q.order[i] > at.tables.minimum[i]);
        const double dear = (1.0 + costs.fee_buy(i)) * price_of(at, q, row, i, higher(0.0, q.order[i]), slip, 1);
        const double most = higher(0.0, (P::parallel_budget ? cash : q.cash) - reserve) * (costs.spending() / dear);
        const double wanted = P::buy_order_is_pro_rata ? q.order[i] * factor : lower(most, q.order[i]);
        const double whole = lots(wanted, at.tables.lot[i], 0.0);
        const double n = buys & (whole >= at.tables.minimum[i]) ? whole : 0.0;
        add(at, row, i, n, costs.fee_buy(i), slip, q);
    }
}

// Growth of a total: its rise over what it was, of which less than LEAST counts as LEAST, so that a total loss is finite.
constexpr double LEAST = 1e-12 * CAPITAL;
FN double growth(double before, double rise) {
    return (before > LEAST ? higher(rise, LEAST - before) : higher(before + rise, LEAST) - LEAST) / higher(before, LEAST);
}

FN void step_clean(State& s, const Action& action, const Place& at, Outcome& out) {
    const Costs costs{at};
    const int row = row_at(s, at.t + 1);
    const double value = s.doubles[VALUE], benchmark = s.doubles[BENCHMARK];
    double entry, moved, drift;
    Trading q;
    q.cash = s.doubles[CASH];
    q.fees = q.notional = q.gain = 0;
    set_prices(s, at, row, costs, q, entry, moved, drift);
    set_orders(s, at, action, value + entry, costs, q);
    EACH_ASSET
    for (int i = 0; i < N; i++) reduce(s, at, row, i, costs, q);
    increase(at, row, costs, q);
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        s[HOLDINGS + i] = q.held[i];
        s[AVERAGE + i] = q.average[i];
        if (STOPS) s[PEAK + i] = q.peak[i];
        s.integers[AGE + i] = q.age[i];
    }
    const double rise = moved + q.gain, of_value = growth(value, rise), of_benchmark = growth(benchmark, drift);
    s.doubles[CASH] = q.cash;
    s.doubles[VALUE] = value + rise;
    s.doubles[BENCHMARK] = benchmark + drift;
    double reward;
    if (P::reward_is_log) reward = log_of_one_plus(of_value);
    else if (P::reward_is_excess_log) reward = log_of_one_plus((of_value - of_benchmark) / (1.0 + of_benchmark));
    else reward = NORM_REWARD * (rise - drift);
    out.reward[0] = float(reward);
    out.terminated[0] = s.doubles[VALUE] < VALUE_FLOOR * CAPITAL;
    out.over = (row >= s.integers[LAST] - 1) & !out.terminated[0];
    out.metrics[METRIC_VALUE] = float(s.doubles[VALUE]);
    out.metrics[METRIC_BENCHMARK] = float(s.doubles[BENCHMARK]);
    out.metrics[METRIC_FEES] = float(q.fees);
    out.metrics[METRIC_TURNOVER] = float(value > 0 ? q.notional / value : 0.0);
}

FN void observe_clean(const State& s, const Place& at, float* obs) {
    const int row = row_at(s, at.t);
    const double value = s.doubles[VALUE], per_value = value > 0 ? 1.0 / value : 0.0;
    obs[0] = float(s.doubles[CASH] * per_value);
    EACH_ASSET
    for (int i = 0; i < N; i++) {
        const double price = magnitude(at.tables.price[row * N + i]), held = double(s[HOLDINGS + i]), average = double(s[AVERAGE + i]);
        const float age = float(s.integers[AGE + i]) * (1.0f / (P::hold_limit > 0 ? P::hold_limit : 48));
        obs[1 + i] = float(held * price * per_value);
        obs[1 + N + i] = P::hold_limit > 0 && age > 1.0f ? 1.0f : age;
        obs[1 + 2 * N + i] = held > 0 ? float(price / average - 1.0) : 0.0f;
    }
    if (INDEXED) obs[1 + 3 * N] = float(row);
}
