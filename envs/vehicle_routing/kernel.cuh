// Vehicle routing: a decision of one environment, by a group of lanes. README.md is the model.
#pragma once
#include "kernels/lanes.cuh"
#include "layout.cuh"
#include "drawing.cuh"
#include "insertion.cuh"
#include "greedy.cuh"

#if OUTSIDE  // the oracle is a function between two kernels
#define PHASES(PHASE) PHASE(propose)
#endif

struct Environment {
    typedef ::Scratch Scratch;

    static STAGE void start(Scratch& s, const Place& at, bool) { draw(s, at); }

    // A choice that is none acts as the nearest one.
    FN static void read(Scratch& s, const int* row) {
        if (lane() == 0) s.action = smaller_of(larger_of(*row, 0), ACTIONS - 1);
        sync();
    }

    // Traveller who asks next, or -1.
    FN static int asks(const Scratch& s) {
        const int* const x = s.integers;
        const bool over = (x[FAILED] && !P::stuck_after_failure) || x[DECIDED] >= N;
        return over || x[ANSWERED] >= N ? -1 : x[ORDER + x[ANSWERED]];
    }

    FN static int earlier(int action) { return -30 + 10 * (action / 4); }  // min, of the pickup
    FN static int later(int action) { return 10 * (action % 4); }          // of the drop-off

    FN static bool accepts(const Scratch& s, const Place& at, int traveller, int action) {
        const int p = earlier(action), d = later(action);
        if (P::threshold_acceptance) {
            const int* const threshold = at.tables.threshold + 2 * trip_of(s, traveller);
            return -10 * p <= threshold[0] && 10 * d <= threshold[1];
        }
        const int kind = at.tables.kind[traveller];  // late, early, none, both
        return (p == 0 || kind == 1 || kind == 3) && (d == 0 || kind == 0 || kind == 3);
    }

    // A row under an accepted shift: a move, of requests with one node a widening.
    FN static void shift(int* row, int p, int d) {
        if (!PAIRED) {
            row[1] = larger_of(row[1] + p, 0);
            row[2] = P::shrinking_windows ? row[2] + d : smaller_of(row[2] + d, HORIZON_TICKS);
        } else if (P::shrinking_windows) {
            for (int k = 1; k < 3; k++) {
                row[k] = larger_of(row[k] + p, 0);
                row[k + 3] = larger_of(row[k + 3] + d, 0);
            }
        } else {
            move(row + 1, p);
            move(row + 4, d);
        }
        repeat(row);
    }

    // The traveller answers, and his row joins those that are routed.
    static STAGE void propose(Scratch& s, const Place& at) {
        int* const x = s.integers;
        const int t = smaller_of(x[DECIDED], N - 1), traveller = x[ORDER + smaller_of(x[ANSWERED], N - 1)];
        const bool accepted = accepts(s, at, traveller, s.action);
        sync();
        if (lane() == 0) {
            x[DECIDED] = t;
            x[TRAVELLER + t] = traveller;
            x[ACTION + t] = s.action;
            x[ACCEPTED + t] = accepted;
            int* const row = x + KEPT + 6 * t;
            for (int k = 0; k < 6; k++) row[k] = x[OFFERED + 6 * traveller + k];
            if (accepted) shift(row, 10 * earlier(s.action), 10 * later(s.action));
        }
        sync();
#if OUTSIDE
        for (int twin = 0; twin < PROBLEMS; twin++) hand_over(s, at, twin);
#endif
    }

#if OUTSIDE
    // Lays a problem out for the oracle.
    FN static void hand_over(Scratch& s, const Place& at, int twin) {
        const Problem p = problem_of(s, at, twin);
        const Tables& x = at.tables;
        const i64 first = (at.environment * PROBLEMS + twin) * NODES;
        for (int node = lane(); node < NODES; node += LANES) {
            const bool there = node < p.nodes, stop = there && node;
            x.there[first + node] = there;
            x.nodes[first + node] = there ? p.zone[node] : DEPOT;
            x.earliest[first + node] = stop ? p.earliest[node] : 0;
            x.latest[first + node] = stop ? p.latest[node] : HORIZON_TICKS;
            x.load[first + node] = stop ? p.demand[node] : 0;
            x.stop[first + node] = stop ? p.service[node] : 0;
        }
        sync();
    }
#endif

    // The oracle's answer: a bill, and the places of its walk.
    static STAGE void price(Scratch& s, const Place& at, int twin) {
        int* const places = s.places[twin];
#if OUTSIDE
        const i64 row = at.environment * PROBLEMS + twin;
        for (int k = lane(); k < PLACES; k += LANES) places[k] = at.tables.walks[row * PLACES + k];
        if (lane() == 0) s.bill[twin] = {at.tables.costs[row], at.tables.vehicles[row], at.tables.ok[row] != 0};
        sync();
#else
        if (INSERTION) {
            const int* const kept = s.integers + (twin ? TWIN_WALKED : WALKED);
            const int most = smaller_of((PER + 1) * s.integers[ANSWERED], PLACES - 1);  // the last of a walk is the depot
            for (int k = lane(); k < PLACES; k += LANES) places[k] = k < most ? kept[k] : 0;
            sync();
            insert(s, at, twin, places);
        } else {
            walk_greedily(s, at, twin, places);
        }
#endif
    }

    FN static double percent(int cost, int twin_cost) { return twin_cost ? 100.0 * (twin_cost - cost) / twin_cost : 0.0; }

    // Reward before the penalty, min or %.
    FN static double gain(int before, int twin_before, int cost, int twin_cost) {
        const double growth = (cost - before) / 10.0;
        if (P::reward_is_twin) return (twin_cost - twin_before) / 10.0 - growth;
        return P::reward_is_percent ? percent(cost, twin_cost) - percent(before, twin_before) : -growth;
    }

    static STAGE void step(Scratch& s, const Place& at, Outcome& out, float*, real*) {
        int* const x = s.integers;
        if (!OUTSIDE) propose(s, at);
        const int before = x[COST], twin_before = x[TWIN_COST], t = smaller_of(x[DECIDED], N - 1);
        bool priced = true;
        for (int twin = 0; twin < PROBLEMS && priced; twin++) {
            price(s, at, twin);
            priced = s.bill[twin].ok;
        }
        const int shift = x[ACCEPTED + t] ? later(x[ACTION + t]) - earlier(x[ACTION + t]) : 0;
        const int cost = s.bill[0].cost, twin_cost = TWIN ? s.bill[PROBLEMS - 1].cost : 0;
        const double reward = priced ? gain(before, twin_before, cost, twin_cost) - SHIFT_PENALTY * shift : FAILURE_REWARD;
        sync();
        for (int twin = 0; twin < PROBLEMS && priced; twin++)
            for (int k = lane(); k < PLACES; k += LANES) x[(twin ? TWIN_WALKED : WALKED) + k] = s.places[twin][k];
        if (lane() == 0) {
            if (priced) {
                x[COST] = cost;
                x[TWIN_COST] = twin_cost;
                x[ANSWERED] += 1;
            }
            x[FAILED] = !priced;
            x[DECIDED] = t + 1;
            s.state[0] += real(reward);
        }
        sync();
        out.reward[0] = float(reward);
        out.terminated[0] = (!priced && !P::stuck_after_failure) || t + 1 == N;
        tell(s, out, t, shift, priced ? s.bill[0].vehicles : vehicles_of(x + WALKED));
        sync();
    }

    FN static int vehicles_of(const int* walk) {
        int vehicles = 0;
        for (int k = 0; k + 1 < PLACES; k++) vehicles += (walk[k] != 0) & (walk[k + 1] == 0);
        return vehicles;
    }

    FN static void tell(const Scratch& s, Outcome& out, int t, int shift, int vehicles) {
        for (int k = lane(); k < PLACES; k += LANES) out.amounts[AMOUNT_WALK + k] = s.integers[WALKED + k];
        if (lane() != 0) return;
        out.amounts[AMOUNT_ANSWERED] = s.integers[TRAVELLER + t];
        out.amounts[AMOUNT_SHIFT] = shift;
        out.amounts[AMOUNT_COST] = s.integers[COST];
        out.amounts[AMOUNT_VEHICLES] = vehicles;
        out.flags[FLAG_ACCEPTED] = u8(s.integers[ACCEPTED + t]);
        out.flags[FLAG_FAILED] = u8(s.integers[FAILED]);
    }

    // Rows of the requests that are fixed, then zeros; the last row is the request that asks, as it was offered.
    static STAGE void observe(Scratch& s, const Place& at, float* rows) {
        const int* const x = s.integers;
        const int traveller = asks(s), fixed = smaller_of(x[DECIDED], N);
        for (int i = lane(); i < N; i += LANES) {
            float* const row = rows + COLUMNS * i;
            if (i == N - 1 && traveller >= 0) show(at, x + OFFERED + 6 * traveller, row);
            else if (i < fixed) show(at, x + KEPT + 6 * i, row);
            else
                for (int k = 0; k < COLUMNS; k++) row[k] = 0.0f;
        }
        sync();
    }

    // A request; of a quotient of whole numbers below 2^24 float32 has the bits that float64 rounds to.
    FN static void show(const Place& at, const int* request, float* row) {
        for (int half = 0; half < 2; half++) {
            const int* const stop = request + 3 * half;
            if (P::raw_observation) {
                row[3 * half] = float(stop[0]);
                for (int k = 1; k < 3; k++) row[3 * half + k] = float(stop[k]) / 10.0f;
            } else {
                for (int k = 0; k < 2; k++) row[4 * half + k] = at.tables.unit_xy[2 * zone_of(stop) + k];
                for (int k = 1; k < 3; k++) row[4 * half + 1 + k] = float(stop[k]) / float(HORIZON_TICKS);
            }
        }
    }
};
