// Rules without learning, which order units in the place of actions (README.md, 7).
#pragma once
#include "layout.cuh"

// In the order of original/ruled.py.
enum : int { RULE_NONE, RULE_HOLD, RULE_EQUAL_WEIGHT, RULE_CASH, RULE_REFERENCE };
enum : int { REBALANCED = 288 };  // bars

// Orders of an environment's rule at a bar, 0 or 1 each: as doubles, by which loops over environments select doubles.
struct Ruling {
    double stands;  // for the actions
    double fills;   // every asset up to its share,
    double enters;  // or those that are not held
    double leaves;  // all of them
    double share;   // $ of each

    // Order of an asset, units; negative where it sells.
    FN double order(double price, double held, bool open) const {
        const bool buys = (fills > 0) | ((enters > 0) & (held == 0));
        const double missing = buys ? share / price - held : 0.0, wanted = leaves > 0 ? -held : missing;
        return open ? wanted : 0.0;
    }
};

// worth: V at the prices of fills, before trading.
FN Ruling ruling_of(const State& s, const Place& at, double worth, double spending) {
    const int rule = at.tables.rule[at.environment], sign = at.tables.signal[row_at(s, at.t)];
    const int begins = (rule == RULE_HOLD) & (at.t == 0), due = (rule == RULE_EQUAL_WEIGHT) & (at.t % REBALANCED == 0);
    const int follows = rule == RULE_REFERENCE;
    return {double(rule != RULE_NONE), double(begins | due), double(follows & (sign >= 0)), double(follows & (sign < 0)),
            spending * worth / N};
}
