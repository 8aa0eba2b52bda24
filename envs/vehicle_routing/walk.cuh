// The rules of a walk that is made node by node (README.md, 2.5, 5.1 and 5.2): which nodes may be next, what a selection changes,
// and what the walk costs. Nothing here knows lanes: any of them may ask `allowed`, of any node; one of them calls `select`.
#pragma once
#include "kernels/platform.cuh"

// N nodes: 0 the depot, then of each request pickup and drop-off, or its one node. Times in ticks.
struct Problem {
    const int* travel;    // [zones, zones]
    const int* zone;      // [N], as the next four
    const int* earliest;  // of a pickup no sooner than max_ride before its drop-off's
    int* latest;          // of a drop-off written when its rider boards, where there is a max_ride
    const int* demand;    // of a drop-off negative
    const int* service;
    int zones, nodes;

    FN int leg(int from, int to) const { return travel[zone[from] * zones + zone[to]]; }
};

// The state of a walk: 4-byte numbers alone, so that it may lie in a tensor. `Rules` has constants: PAIRED, requests have a pickup
// and a drop-off; LOOKAHEAD, the published mask; ONE_OBLIGATION and EARLY_END, which act with it; SOFT and HARD fleets; CAPACITY;
// HORIZON, MAX_RIDE (0: none) and EXTRA_VEHICLE in ticks; FLEET_SIZE; NODES, of a problem at most.
template <typename Rules>
struct Walk {
    static constexpr int REQUESTS = Rules::PAIRED ? (Rules::NODES - 1) / 2 : Rules::NODES - 1;
    static constexpr int RIDERS = Rules::LOOKAHEAD && Rules::ONE_OBLIGATION ? 1 : Rules::CAPACITY < REQUESTS ? Rules::CAPACITY : REQUESTS;
    static constexpr int WORDS = (Rules::NODES + 31) / 32;
    static constexpr bool STRANDS = Rules::PAIRED && Rules::LOOKAHEAD && !Rules::EARLY_END;

    int at, clock, load;
    int left;           // nodes not visited
    int ended;          // by a second depot in a row
    int length, begin;  // places of the walk so far, and where its open route begins
    int riders;         // on board, or with LOOKAHEAD listed, soonest due first
    int due[RIDERS], dropoff[RIDERS];
    u32 visited[WORDS];
    u32 stranded[STRANDS ? WORDS : 1];  // pickups whose riders will be served alone

    // At the depot, before any node; `places` gets the walk.
    template <typename Node>
    FN void start(const Problem& p, Node* places) {
        at = clock = load = ended = riders = 0;
        left = p.nodes - 1;
        length = begin = 1;
        for (int w = 0; w < WORDS; w++) visited[w] = 0;
        for (int w = 0; w < (STRANDS ? WORDS : 1); w++) stranded[w] = 0;
        visited[0] = 1;
        places[0] = 0;
    }
    FN bool seen(int node) const { return visited[node >> 5] >> (node & 31) & 1; }
    // Counts a node as visited, without a visit where a problem lacks it.
    FN void see(int node) {
        left -= !seen(node);
        visited[node >> 5] |= u32(1) << (node & 31);
    }
    FN bool over() const { return ended || (at == 0 && left == 0); }

    FN static bool is_pickup(int node) { return !Rules::PAIRED || (node & 1); }
    FN int arrival(const Problem& p, int node) const { return clock + p.leg(at, node); }
    // Start of service.
    FN int opening(const Problem& p, int node) const { return later(arrival(p, node), p.earliest[node]); }

    // True if a node other than the depot may be next.
    FN bool allowed(const Problem& p, int node) const {
        if (seen(node) || arrival(p, node) > p.latest[node]) return false;
        if (is_pickup(node) ? !Rules::LOOKAHEAD && riders == RIDERS : !seen(node - 1)) return false;
        if ((Rules::LOOKAHEAD || is_pickup(node)) && load + p.demand[node] > Rules::CAPACITY) return false;
        return Rules::LOOKAHEAD ? reaches_next(p, node) : completes(p, node);
    }
    // True if the depot may be next; any: another node may.
    FN bool depot_allowed(bool any) const { return Rules::LOOKAHEAD ? !any : at != 0 && riders == 0; }

    // Goes to a node that is allowed.
    template <typename Node>
    FN void select(const Problem& p, int node, Node* places) {
        if (node == 0) return go_home(places);
        const int time = opening(p, node);
        if (Rules::PAIRED && is_pickup(node)) board(node + 1, p.latest[node + 1] = due_of(p, node, time));
        else leave(node);
        at = node;
        clock = time + p.service[node];
        load += p.demand[node];
        see(node);
        places[length++] = Node(node);
    }

    // Ends a walk that is over: those who were stranded are served alone, by index. True if every node is served, or need not be.
    template <typename Node>
    FN bool finish(Node* places) {
        for (int w = 0; STRANDS && w < WORDS; w++) {
            for (int bit = 0; bit < 32; bit++) {
                if (!(stranded[w] >> bit & 1)) continue;
                places[length++] = Node(32 * w + bit);
                places[length++] = Node(32 * w + bit + 1);
                places[length++] = 0;
            }
        }
        return (Rules::LOOKAHEAD && Rules::EARLY_END) || left == 0;
    }

    // ---- inside

    FN static int later(int a, int b) { return a > b ? a : b; }
    FN static int sooner(int a, int b) { return a < b ? a : b; }

    // Latest time of the drop-off of a ride that starts so.
    FN static int due_of(const Problem& p, int pickup, int start) {
        const int latest = p.latest[pickup + 1];
        return Rules::MAX_RIDE ? sooner(latest, start + Rules::MAX_RIDE) : latest;
    }

    // True if after a node all on board can be delivered on time, by (latest time, node), and the depot reached.
    FN bool completes(const Problem& p, int node) const {
        int here = node, time = opening(p, node), own = 0, own_due = 0;
        if (Rules::PAIRED && is_pickup(node)) {
            own = node + 1;
            own_due = due_of(p, node, time);
        }
        time += p.service[node];
        for (int k = 0; k < riders || own;) {
            const bool first = own && (k == riders || own_due < due[k] || (own_due == due[k] && own < dropoff[k]));
            const int next = first ? own : dropoff[k], limit = first ? own_due : due[k];
            if (first) own = 0;
            else k++;
            if (next == node) continue;
            time += p.leg(here, next);
            if (time > limit) return false;
            time = later(time, p.earliest[next]) + p.service[next];
            here = next;
        }
        return time + p.leg(here, 0) <= Rules::HORIZON;
    }

    // True if the most urgent listed drop-off besides a node, or else the depot, can be reached in time after it.
    FN bool reaches_next(const Problem& p, int node) const {
        const int time = opening(p, node) + p.service[node];
        const int k = riders > 0 && dropoff[0] == node;
        return k < riders ? time + p.leg(node, dropoff[k]) <= due[k] : time + p.leg(node, 0) <= Rules::HORIZON;
    }

    // Lists a drop-off: of equal times the lower node comes first, with LOOKAHEAD the one that boarded first.
    FN void board(int node, int latest) {
        int place = riders;
        while (place > 0 && (due[place - 1] > latest || (!Rules::LOOKAHEAD && due[place - 1] == latest && dropoff[place - 1] > node))) place--;
        if (place == RIDERS) return;
        riders = sooner(riders + 1, RIDERS);
        for (int k = riders - 1; k > place; k--) {
            due[k] = due[k - 1];
            dropoff[k] = dropoff[k - 1];
        }
        due[place] = latest;
        dropoff[place] = node;
    }

    FN void leave(int node) {
        int kept = 0;
        for (int k = 0; k < riders; k++) {
            if (dropoff[k] == node) continue;
            due[kept] = due[k];
            dropoff[kept++] = dropoff[k];
        }
        riders = kept;
    }

    template <typename Node>
    FN void go_home(Node* places) {
        if (Rules::LOOKAHEAD && length == begin) {
            ended = 1;
            return;
        }
        if (Rules::LOOKAHEAD && !Rules::EARLY_END) strand(places);
        if (length > begin) places[length++] = 0;
        begin = length;
        at = clock = load = 0;
    }

    // Takes those who are still on board out of the open route, and empties the list.
    template <typename Node>
    FN void strand(Node* places) {
        int kept = begin;
        for (int k = begin; STRANDS && k < length; k++) {
            const int node = places[k];
            if (is_pickup(node) && !seen(node + 1)) {
                see(node + 1);
                stranded[node >> 5] |= u32(1) << (node & 31);
            } else {
                places[kept++] = Node(node);
            }
        }
        if (STRANDS) length = kept;
        riders = 0;
    }
};

struct Bill {
    int cost, vehicles;  // ticks, the dear vehicles of a soft fleet included
    bool ok;             // the fleet suffices
};

// Cost of a walk from depot to depot.
template <typename Rules, typename Node>
FN Bill bill_of(const Problem& p, const Node* places, int length) {
    Bill bill = {0, 0, true};
    for (int k = 1; k < length; k++) {
        bill.cost += p.leg(places[k - 1], places[k]);
        bill.vehicles += places[k] == 0;
    }
    const int extra = bill.vehicles - Rules::FLEET_SIZE;
    if (Rules::SOFT && extra > 0) bill.cost += extra * Rules::EXTRA_VEHICLE;
    if (Rules::HARD && extra > 0) bill.ok = false;
    return bill;
}
