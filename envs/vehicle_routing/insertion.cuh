// The insertion oracle (README.md, 5): a request enters the kept routes where it adds the least.
//
// Each pair of places costs O(1): from a pickup's place the drop-off's moves outward with the delayed clock, and the rest of the
// route is on time if the vehicle arrives by `room`. A clock past a latest time ends the search, since it never goes back.
#pragma once
#include "layout.cuh"

enum : int { NEVER = 1 << 29 };
constexpr u64 NOWHERE = ~u64(0);

struct Stop {  // a node that may enter
    int zone, soon, late, service;
};

FN Stop stop_of(const Scratch& s, const Place& at, int twin, int node) {
    const int* const window = window_of(s, twin, node);
    return {zone_of(window), window[1], window[2], service_of(s, at, node)};
}

// Cost first, then order: a new vehicle, then the lowest place of the pickup, then of the drop-off.
FN u64 key_of(int cost, int pickup, int dropoff) { return u64(u32(cost + (1 << 30))) << 32 | u32(pickup) << 16 | u32(dropoff); }
FN int cost_of(u64 key) { return int(key >> 32) - (1 << 30); }

// Places of a walk that serves so many requests, the last depot included.
FN int length_of(const int* walk, int requests) {
    int last = smaller_of((PER + 1) * requests, PLACES - 2);
    while (last > 0 && walk[last] == 0) last--;
    return last ? last + 2 : 1;
}

// The clock and the load of one route, from its depot on.
FN void follow(Routes& r, const int* walk, int depot) {
    int clock = 0, load = 0, k = depot + 1;
    bool served = true;
    r.ready[depot] = 0;
    r.load[depot] = 0;
    for (; walk[k]; k++) {
        clock += r.direct[k - 1];
        load += r.load[k];
        served &= (clock <= r.late[k]) & (load <= P::capacity);
        clock = larger_of(clock, r.soon[k]) + r.stop[k];
        r.ready[k] = clock;
        r.load[k] = load;
    }
    served &= clock + r.direct[k - 1] <= HORIZON_TICKS;
    int room = HORIZON_TICKS;
    r.room[k] = room;
    while (--k > depot) {
        room = smaller_of(r.late[k], room - r.direct[k] - r.stop[k]);
        r.room[k] = room;
        if (!PAIRED) r.load[k] = load;
        if (!served) r.ready[k] = NEVER;
    }
    if (!PAIRED) r.load[depot] = load;
    if (!served) r.ready[depot] = NEVER;
}

static STAGE void tabulate(Scratch& s, const Place& at, int twin, const int* walk, int length) {
    Routes& r = s.routes;
    for (int k = lane(); k < length; k += LANES) {
        const int node = walk[k];
        if (node) {
            const Stop one = stop_of(s, at, twin, node);
            r.zone[k] = one.zone;
            r.soon[k] = one.soon;
            r.late[k] = one.late;
            r.stop[k] = one.service;
            r.load[k] = demand_of(s, at, node);
        } else {
            r.zone[k] = DEPOT;
        }
    }
    sync();
    for (int k = lane(); k + 1 < length; k += LANES) r.direct[k] = at.tables.travel[r.zone[k] * ZONES + r.zone[k + 1]];
    sync();
    for (int k = lane(); k + 1 < length; k += LANES)
        if (walk[k] == 0) follow(r, walk, k);
    sync();
}

// The best places after place a for a pickup and its drop-off, if they are better than `best`.
FN u64 pair_after(const Routes& r, const int* travel, const int* walk, int a, const Stop& p, const Stop& d, int load, u64 best) {
    const int* const from_p = travel + p.zone * ZONES;
    const int* const from_d = travel + d.zone * ZONES;
    const int before = travel[r.zone[a] * ZONES + p.zone];
    int clock = r.ready[a] + before;
    if (clock > p.late || r.load[a] + load > P::capacity) return best;
    clock = larger_of(clock, p.soon) + p.service;
    const int apart = before - r.direct[a], ride = from_p[d.zone], next = r.zone[a + 1], onward = from_p[next];
    const u64 beside = key_of(apart + ride + from_d[next], a + 1, a);
    if (beside < best && clock + ride <= d.late && larger_of(clock + ride, d.soon) + d.service + from_d[next] <= r.room[a + 1])
        best = beside;
    clock += onward;
    for (int k = a + 1; walk[k] && clock <= r.late[k] && r.load[k] + load <= P::capacity; clock += r.direct[k++]) {
        clock = larger_of(clock, r.soon[k]) + r.stop[k];
        if (clock > d.late) break;
        const int to = travel[r.zone[k] * ZONES + d.zone], back = from_d[r.zone[k + 1]];
        const u64 key = key_of(apart + onward + to + back - r.direct[k], a + 1, k);
        if (key < best && clock + to <= d.late && larger_of(clock + to, d.soon) + d.service + back <= r.room[k + 1]) best = key;
    }
    return best;
}

// The same of a request with one node.
FN u64 node_after(const Routes& r, const int* travel, int a, const Stop& p, int load, u64 best) {
    const int before = travel[r.zone[a] * ZONES + p.zone], back = travel[p.zone * ZONES + r.zone[a + 1]];
    const int clock = r.ready[a] + before;
    if (clock > p.late || r.load[a] + load > P::capacity) return best;
    const u64 key = key_of(before + back - r.direct[a], a + 1, a);
    return key < best && larger_of(clock, p.soon) + p.service + back <= r.room[a + 1] ? key : best;
}

// A vehicle of its own, if one is left and can serve the request.
FN u64 alone(const int* travel, const Stop& p, const Stop& d, int load, int vehicles) {
    if (load > P::capacity || (Rules::HARD && vehicles >= P::fleet_size)) return NOWHERE;
    const int out = travel[DEPOT * ZONES + p.zone], home = travel[(PAIRED ? d.zone : p.zone) * ZONES + DEPOT];
    int clock = larger_of(out, p.soon) + p.service, ride = 0;
    if (out > p.late) return NOWHERE;
    if (PAIRED) {
        ride = travel[p.zone * ZONES + d.zone];
        if (clock + ride > d.late) return NOWHERE;
        clock = larger_of(clock + ride, d.soon) + d.service;
    }
    if (clock + home > HORIZON_TICKS) return NOWHERE;
    return key_of(out + ride + home + (Rules::SOFT && vehicles >= P::fleet_size ? EXTRA_VEHICLE_TICKS : 0), 0, 0);
}

// Moves what stands behind place a by one, behind place b by two (of one node by one), and puts a request's nodes there.
FN void enter(int* walk, int length, int a, int b, int first) {
    for (int chunk = (length - 1) / LANES * LANES; chunk + LANES > a + 1; chunk -= LANES) {
        const int k = chunk + lane(), node = k < length ? walk[k] : 0;
        sync();
        if (k > a && k < length) walk[k + (PAIRED && k > b ? 2 : 1)] = node;
        sync();
    }
    if (lane() == 0) {
        walk[a + 1] = first;
        if (PAIRED) walk[b + 2] = first + 1;
    }
    sync();
}

// Puts the requests that are new into the walk; its bill is not ok where one finds no place.
static STAGE void insert(Scratch& s, const Place& at, int twin, int* walk) {
    const int* const travel = at.tables.travel;
    Bill bill = {s.integers[twin ? TWIN_COST : COST], 0, true};
    for (int i = s.integers[ANSWERED]; i <= s.integers[DECIDED] && bill.ok; i++) {
        const int length = length_of(walk, i), vehicles = length - 1 - PER * i, first = PER * i + 1;
        tabulate(s, at, twin, walk, length);
        const Stop p = stop_of(s, at, twin, first), d = PAIRED ? stop_of(s, at, twin, first + 1) : p;
        const int load = demand_of(s, at, first);
        u64 best = alone(travel, p, d, load, vehicles);
        for (int a = lane(); a + 1 < length; a += LANES)
            best = PAIRED ? pair_after(s.routes, travel, walk, a, p, d, load, best) : node_after(s.routes, travel, a, p, load, best);
        best = least(best);
        bill.ok = best != NOWHERE && length + PER < PLACES;
        if (!bill.ok) break;
        bill.cost += cost_of(best);
        bill.vehicles = vehicles;
        const int pickup = int(best >> 16 & 0xffff), dropoff = int(best & 0xffff);
        if (pickup) {
            enter(walk, length, pickup - 1, dropoff, first);
        } else {
            bill.vehicles += 1;
            if (lane() == 0) {
                for (int k = 0; k < PER; k++) walk[length + k] = first + k;
                walk[length + PER] = 0;
            }
            sync();
        }
    }
    if (lane() == 0) s.bill[twin] = bill;
    sync();
}
