// Ferries: one step of one environment, by a group of lanes. Params holds the constants of port.py; README.md is the model.
#define PHASES(KERNEL) KERNEL(propose)
#include "kernels/lanes.cuh"

enum : int {
    CRATES = Params::crates,
    MONEY = 0, BID = MONEY + AGENTS, PRICE = BID + AGENTS, DOUBLES_END,                  // in Scratch::doubles
    TUG = 0, TOWS = 1, ABOARD = TOWS + AGENTS, INTEGERS_END = ABOARD + AGENTS * CRATES,  // in Scratch::integers
};
static_assert(REALS == 2 * AGENTS && DOUBLES == DOUBLES_END && INTEGERS == INTEGERS_END, "port.py says the same");

enum : u32 { STARTS = 1, GUSTS = 2, WAVES = GUSTS + AGENTS };  // streams of noise: one, one for each ferry, for each four crates

struct Tables {
    const real* pier;  // [scenarios, tide, AGENTS, 2] km
    const int* worth;  // [scenarios, AGENTS, CRATES] cents
};

struct Environment {
    struct alignas(16) Scratch {
        real state[REALS];  // positions
        double doubles[DOUBLES];
        int integers[INTEGERS];
        float action[AGENTS * NUMBERS];  // thrust to the east and north, share of the highest bid
        float reward[AGENTS];
        int terminated[AGENTS];
    };

    FN static const real* pier_of(const Place& at, int t, int a) {
        return at.tables.pier + ((at.scenario * Params::tide + t % Params::tide) * AGENTS + a) * 2;
    }

    FN static int crates_of(const Scratch& s, int a) {
        int count = 0;
        for (int k = 0; k < CRATES; k++) count += s.integers[ABOARD + a * CRATES + k];
        return count;
    }

    // In the west, north and south of the fairway's middle.
    FN static void start(Scratch& s, const Place& at, bool) {
        for (int i = lane(); i < DOUBLES; i += LANES) s.doubles[i] = i < MONEY + AGENTS ? double(Params::purse) : 0.0;
        for (int i = lane(); i < INTEGERS; i += LANES) s.integers[i] = i >= ABOARD ? 1 : i == TUG ? -1 : 0;
        u32 words[4];
        at.noise(STARTS, words);
        for (int i = lane(); i < REALS; i += LANES) s.state[i] = i % 2 ? uniform(words[i / 2], -1, 1) : real(0);
        sync();
    }

    // Unchecked numbers as well: the nearest in the space, and 0 for what is none.
    FN static void read(Scratch& s, const float* row) {
        for (int k = lane(); k < AGENTS * NUMBERS; k += LANES) {
            const float low = k % NUMBERS == 2 ? 0.0f : -1.0f;
            s.action[k] = row[k] > low ? (row[k] < 1.0f ? row[k] : 1.0f) : row[k] <= low ? low : 0.0f;
        }
        sync();
    }

    // The phase before the auction: nobody bids more than it has.
    FN static void propose(Scratch& s, const Place& at) {
        for (int a = lane(); a < AGENTS; a += LANES) {
            const double wanted = double(Params::highest_bid) * s.action[a * NUMBERS + 2], money = s.doubles[MONEY + a];
            const double bid = wanted < money ? wanted : money;
            s.doubles[BID + a] = at.plays(a) && bid > 0 ? bid : 0.0;
        }
        sync();
    }

    FN static void step(Scratch& s, const Place& at, Outcome& out, float* metrics, real*) {
        for (int four = lane(); four < AGENTS * CRATES / 4; four += LANES) {
            u32 words[4];
            at.noise(WAVES + four, words);
            const bool sails = at.plays(4 * four / CRATES);
            for (int k = 0; k < 4; k++)
                if (sails && int(words[k] % 1000) < Params::washed_per_mille) s.integers[ABOARD + 4 * four + k] = 0;
        }
        sync();
        for (int a = lane(); a < AGENTS; a += LANES) {
            s.terminated[a] = s.reward[a] = 0;
            if (at.plays(a)) sail(s, at, a);
            metrics[1 + a] = float(crates_of(s, a));
        }
        if (lane() == 0) metrics[0] = float(s.doubles[PRICE]);
        sync();
        for (int a = 0; a < AGENTS; a++) {
            out.reward[a] = s.reward[a];
            out.terminated[a] = s.terminated[a] != 0;
        }
    }

    // A ferry's way and account, by one lane.
    FN static void sail(Scratch& s, const Place& at, int a) {
        const real* const pier = pier_of(at, at.t, a);
        const real* const next = pier_of(at, at.t + 1, a);
        const float* const thrust = s.action + a * NUMBERS;
        const bool towed = s.integers[TUG] == a;
        real* const position = s.state + 2 * a;
        u32 words[4];
        at.noise(GUSTS + a, words);
        s.integers[TOWS + a] += towed;
        const real share = towed ? Params::pull / real(s.integers[TOWS + a]) : real(0);
        real distance = 0;
        for (int i = 0; i < 2; i++) {
            const real drift = (i == 0 ? Params::current : real(0)) + uniform(words[i], -Params::gust, Params::gust);
            position[i] += share * (pier[i] - position[i]) + Params::speed * real(thrust[i]) + drift;
            distance += (next[i] - position[i]) * (next[i] - position[i]);
        }
        const bool landed = distance <= Params::berth * Params::berth;
        const bool sunk = !landed && magnitude(position[1]) > Params::shoals;
        double gain = -double(Params::fuel) * (double(thrust[0]) * thrust[0] + double(thrust[1]) * thrust[1]);
        if (towed) gain -= s.doubles[PRICE];
        if (sunk) gain -= Params::hull;
        if (landed) {
            int cents = 0;
            const int* const worth = at.tables.worth + (at.scenario * AGENTS + a) * CRATES;
            for (int k = 0; k < CRATES; k++) cents += s.integers[ABOARD + a * CRATES + k] * worth[k];
            gain += 0.01 * cents;
        }
        s.doubles[MONEY + a] += gain;
        s.reward[a] = float(gain);
        s.terminated[a] = landed | sunk;
    }

    FN static void observe(Scratch& s, const Place& at, float* rows) {
        for (int a = lane(); a < AGENTS; a += LANES) {
            const real *const own = s.state + 2 * a, *const other = s.state + 2 * (1 - a);
            const real* const pier = pier_of(at, at.t, a);
            float* const row = rows + a * OBS;
            for (int i = 0; i < 2; i++) {
                row[i] = float(own[i]);
                row[2 + i] = float(pier[i] - own[i]);
                row[4 + i] = float(other[i] - own[i]);
            }
            row[6] = float(s.doubles[MONEY + a] / double(Params::purse));
            row[7] = float(crates_of(s, a)) / CRATES;
            row[8] = float(s.integers[TUG] == a);
            row[9] = float(s.doubles[PRICE]);
            row[10] = float(at.plays(1 - a));
        }
        sync();
    }
};
