// What batches of every kind keep of the episodes that ended.
#pragma once

enum AutoresetMode { NEXT_STEP = 0, SAME_STEP = 1, DISABLED = 2 };
enum : int { RETURN_UNIT = 1 << 20 };  // sums of returns are integers of this many to one, so that order cannot matter

// A return in units of 1 / RETURN_UNIT; one that does not fit is cut off, and seen by the extremes.
FN i64 units_of(float value) {
    const float limit = 8796092497920.0f;  // the number below 2^43
    const float kept = value > -limit ? (value < limit ? value : limit) : -limit;
    return llrintf(kept * RETURN_UNIT);  // the product is exact
}

// Shortest, longest, lowest and highest of a column of `extremes` [4, n], by those of some episodes.
FN void widen(double* extreme, i64 n, int shortest, int longest, float lowest, float highest) {
    extreme[0] = shortest < extreme[0] ? shortest : extreme[0];
    extreme[n] = longest > extreme[n] ? longest : extreme[n];
    extreme[2 * n] = lowest < extreme[2 * n] ? lowest : extreme[2 * n];
    extreme[3 * n] = highest > extreme[3 * n] ? highest : extreme[3 * n];
}
