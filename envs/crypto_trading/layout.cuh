// Sizes, tables and state of crypto trading (README.md). Axes: T bars, N assets, F features, L lookback.
#pragma once
#include "kernels/state.cuh"

#define OVER 1
#define CARRIES 1
#define LONG_STEP 3

typedef Params P;

constexpr bool CLEAN = P::rules_is_clean, ONE = P::rules_is_one, TWO = P::rules_is_two;
constexpr bool FAIR = !P::published_benchmark, STOPS = P::stop > 0, NEXT_OPEN = P::fill_is_next_open;
constexpr bool IMPACTS = P::impact > 0;

enum : int {
    N = NUMBERS, L = P::lookback, F = P::columns, ROWS = P::rows,
    // The state, as port.py lists its fields.
    HOLDINGS = 0, UNITS = N, AVERAGE = 2 * N, PEAK = CLEAN ? 3 * N : 2 * N, STATE_LENGTH = PEAK + (STOPS ? N : 0),
    CASH = 0, VALUE = 1, BENCHMARK = 2, RUNNING = 3, DOUBLES_LENGTH = P::terminal_sum ? 4 : 3,
    AGE = 0, FIRST = N, LAST = N + 1, INTEGERS_LENGTH = N + 2,
    HEAD_LENGTH = 1 + (CLEAN ? 3 * N : N) + INDEXED,
    // Numbers of a step, as port.py lists them.
    METRIC_VALUE = 0, METRIC_BENCHMARK = 1, METRIC_FEES = 2, METRIC_TURNOVER = 3,
};
static_assert(REALS == STATE_LENGTH && DOUBLES == DOUBLES_LENGTH && INTEGERS == INTEGERS_LENGTH, "port.py says the same");
static_assert(METRICS == 4 && OBS == HEAD_LENGTH + (TAIL), "port.py says the same");

// The Python side reads names and order from this text. What a unit does not read has one row.
struct Tables {
    const double* price;      // [T, N] close in $; in `clean` its negative where the asset cannot be traded at the close
    const double* opening;    // [T, N] the same of the open, where fills are at the next one
    const double* volume;     // [T, N] units
    const double* scale;      // [T, N] units of an action of 1, of a window that begins there
    const double* minimum;    // [N] q', units
    const double* lot;        // [N] units; 0: any
    const double* fee_buy;    // [N] share
    const double* fee_sell;   // [N] share
    const double* rates;      // [B, 5] of a lane: fees, slippage, spending and order shares
    const float* features;    // [T F] as they are observed, the newest bar first
    const int* windows;       // [S, 2] segments, or [B, 2] windows of the lanes: first bar, bar after the last
    const i64* places;        // [S + 1] starts of an episode in the segments before
    const int* rule;          // [B] number of a rule in `ruled.NAMES`
    const int* signal;        // [T] planted sign, 1 or -1
    const float* replay;      // [REPLAYED, N] or [B, REPLAYED, N] actions that are replayed
};

// A loop over assets, written out, so that the environments around it can share vectors.
#if defined(__CUDACC__) || defined(__clang__)
#define EACH_ASSET _Pragma("unroll")
#else
#define EACH_ASSET _Pragma("GCC unroll 32")
#endif

// The action of an asset, given or, of the REPLAYED steps of an episode, replayed.
#if REPLAYED
FN double asked(const Action&, const Place& at, int i) {
    const i64 t = at.t < REPLAYED ? at.t : REPLAYED - 1, first = REPLAYED_EACH ? i64(at.environment) * REPLAYED : 0;
    return double(at.tables.replay[(first + t) * N + i]);
}
#elif NUMBERS == 1
FN double asked(const Action& action, const Place&, int) { return double(action); }
#else
FN double asked(const Action& action, const Place&, int i) { return double(action[i]); }
#endif

FN double lower(double a, double b) { return a < b ? a : b; }
FN double higher(double a, double b) { return a > b ? a : b; }

// The row of tables of an environment's bar; inside them, whatever state was put in from outside.
FN int row_at(const State& s, int t) {
    const int row = s.integers[FIRST] + (L - 1) + t;
    return row < ROWS ? row : ROWS - 1;
}

// Costs of trading: of a symbol or of a lane.
struct Costs {
    const Place& at;

    FN double fee_buy(int i) const { return PER_LANE ? rate(0) : at.tables.fee_buy[i]; }
    FN double fee_sell(int i) const { return PER_LANE ? rate(1) : at.tables.fee_sell[i]; }
    FN double slippage() const { return PER_LANE ? rate(2) : SLIPPAGE; }
    FN double spending() const { return PER_LANE ? rate(3) : SPENDING; }
    FN double order_share() const { return PER_LANE ? rate(4) : ORDER_SHARE; }

  private:
    FN double rate(int k) const { return at.tables.rates[at.environment * 5 + k]; }
};

// Whole lots of n units; `bit` of a lot is what rounding may have lost.
FN double lots(double n, double lot, double bit) { return LOTS ? (lot > 0 ? floor(n / lot + bit) * lot : n) : n; }

#ifdef __CUDACC__
FN i64 bits_of(double x) { return __double_as_longlong(x); }
FN double of_bits(i64 x) { return __longlong_as_double(x); }
#else
FN i64 bits_of(double x) { return __builtin_bit_cast(i64, x); }
FN double of_bits(i64 x) { return __builtin_bit_cast(double, x); }
#endif

// ln(1 + d) for d > -1, error at most a few ulp of d: 1 + d = 2^k m with m near 1, then 2 artanh((m - 1) / (m + 1)).
FN double log_of_one_plus(double d) {
    const double x = 1.0 + d, lost = d - (x - 1.0);
    const i64 bits = bits_of(x), k = (bits - 0x3fe6a09e667f3bcdll) >> 52;  // m in [sqrt(1/2), sqrt(2))
    const double m = of_bits(bits - k * (1ll << 52)), r = m - 1.0, q = r / (2.0 + r), z = q * q;
    double p = fused(z, 2.0 / 23.0, 2.0 / 21.0);
    p = fused(z, p, 2.0 / 19.0);
    p = fused(z, p, 2.0 / 17.0);
    p = fused(z, p, 2.0 / 15.0);
    p = fused(z, p, 2.0 / 13.0);
    p = fused(z, p, 2.0 / 11.0);
    p = fused(z, p, 2.0 / 9.0);
    p = fused(z, p, 2.0 / 7.0);
    p = fused(z, p, 2.0 / 5.0);
    p = fused(z, p, 2.0 / 3.0);
    return fused(double(k), 0.69314718055994530942, fused(q * z, p, 2.0 * q)) + lost / x;
}
