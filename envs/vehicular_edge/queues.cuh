// Queues, costs, drift, reward and observation (README.md, 2.4 to 2.7).
#pragma once

// One slot of a real queue: Q(t+1) = Q - min(Q, out) + in. Returns what leaves it.
FN real flow(Scratch& s, real* record, int queue, real in, real out) {
    const real q = s.state[queue], dep = smaller(q, out);
    s.state[queue] = q - dep + in;
    if (TRACE) {
        record[IN + queue] = in;
        record[OUT + queue] = out;
        record[DEP + queue] = dep;
    }
    return dep;
}

// One slot of a virtual queue.
FN void constrain(Scratch& s, int queue, real in, real out) { s.state[queue] = larger(s.state[queue] + in - out, real(0)); }

// Service of a node, Mbit: of the tasks admitted and, where empty places serve the backlog (Q23), of that.
FN real service_of(const Scratch& s, const Slot& x, int n) {
    real service = s.service[n];
    if (!P::empty_places_idle) service += s.spare[n] * x.inverse_scale[SCALE_DENSITY];
    return real(1e3) * x.cpu[n] * service;
}

// GHz that are paid for: all that serves, or as much of it as was used (Q22).
FN real busy(const Scratch& s, const Slot& x, int n, real out, real dep) {
    const real given = (P::empty_places_idle ? s.used[n] : s.used[n] + s.spare[n]) * x.cpu[n];
    return P::idle_power_paid ? given : out > 0 ? given * (dep / out) : real(0);
}

FN real over(real value, real most) { return most > 0 ? value / most : real(P::zero_max_is_one ? 1 : 0); }

// A cost over the largest so far, or over its budget (Q11).
FN real relative(Scratch& s, real* record, int kind, real value, real inverse_budget) {
    if (TRACE) record[COST_OF + kind] = value;
    if (!RUNNING) return value * inverse_budget;
    const real most = larger(s.state[MAX_COST + kind], value);
    s.state[MAX_COST + kind] = most;
    return over(value, most);
}

// Share of a queue in L(t+1) - L(t) + kappa L(t+1), before its weight in L. By its flows: of L itself float32 would keep too little.
FN real waits(const Scratch& s, int queue, real in, real dep) { return in - dep + real(0.02) * s.state[queue]; }

// A queue's part of its family's published drift: what is left after service (Q10).
FN real phi_of(Scratch& s, int n, real q, real in, real out, real inverse_scale) {
    const real phi = (q - out) * in;
    if (!RUNNING) return smaller(magnitude(phi) * inverse_scale, real(1));
    const real least = smaller(s.state[MIN_DRIFT + n], phi), most = larger(s.state[MAX_DRIFT + n], phi);
    s.state[MIN_DRIFT + n] = least;
    s.state[MAX_DRIFT + n] = most;
    return phi < 0 ? phi / least : phi > 0 ? phi / most : real(0);
}

// Place that gathers the drift of an edge or, as the last, of the cloud, with that of the queues on the way to it.
FN real& drift_towards(Scratch& s, int e) { return e < NE ? s.late.row[ROW_DRIFT_EDGE * PITCH + e] : s.drift_cc; }

FN void flow_on_routes(Scratch& s, const Slot& x, bool idle, real* record) {
    for (int k = lane(); k < NE * (NE + 1); k += LANES) {
        const int a = k / (NE + 1);
        const real waiting = s.reported_v2i[a];
        const real out = idle || !(waiting > 0) ? real(0) : s.capacity[NS + a] * s.state[V2I + k] / waiting;
        s.dep_v2i[k] = flow(s, record, V2I + k, idle ? real(0) : s.inflow[k], out);
    }
    sync();
    for (int k = lane(); k < NE * NE; k += LANES) {
        const int a = k / NE, e = k % NE, route = a * (NE + 1) + e;
        const bool wire = a != e;
        s.dep_i2i[k] = flow(s, record, I2I + k, wire ? s.dep_v2i[route] : real(0), wire && !idle ? x.link[route] : real(0));
    }
    for (int a = lane(); a < NE; a += LANES) {
        const int route = a * (NE + 1) + NE;
        s.dep_i2c[a] = flow(s, record, I2C + a, s.dep_v2i[route], idle ? real(0) : x.link[route]);
    }
    sync();
    for (int e = lane(); e <= NE; e += LANES) {
        real in = e < NE ? s.dep_v2i[e * (NE + 1) + e] : real(0);
        for (int a = 0; a < NE; a++) in += e < NE ? s.dep_i2i[a * NE + e] : s.dep_i2c[a];
        (e < NE ? s.in_ec[e] : s.in_cc) = in;
        if (!UNSIGNED) {
            real radio = 0, wire = 0;
#pragma unroll 1  // written out, it takes 60 registers more on sm_80
            for (int a = 0; a < NE; a++) {
                const int route = a * (NE + 1) + e, hop = e < NE ? I2I + a * NE + e : I2C + a;
                const real sent = s.dep_v2i[route], left = e < NE ? s.dep_i2i[a * NE + e] : s.dep_i2c[a];
                radio += waits(s, V2I + route, idle ? real(0) : s.inflow[route], sent);
                wire += waits(s, hop, a != e ? sent : real(0), left);
            }
            drift_towards(s, e) = real(0.9) * radio + real(0.8) * wire;
        }
    }
}

// As published: a stage passes on what arrives at it and fits, whatever its backlog (Q4).
FN void flow_in_pools(Scratch& s, const Slot& x, bool idle, real* record) {
    for (int e = lane(); e <= NE; e += LANES) {
        real arrived = 0;
        for (int w = 0; w < WORDS; w++)
            for (u64 bits = s.member[(NS + e) * WORDS + w]; bits; bits &= bits - 1) {
                const int i = w * 64 + lowest_set(bits);
                if (x.access[i] != e) arrived += s.rate_up[i];
            }
        const real wired = idle ? real(0) : s.wired[e];
        arrived = idle ? real(0) : arrived;
        const int wire = e < NE ? I2I + e : I2C;
        const real left = flow(s, record, wire, arrived, wired);
        real passed = smaller(arrived, wired);
        if (!UNSIGNED) drift_towards(s, e) = real(0.8) * waits(s, wire, arrived, left);
        if (e < NE) {
            const real in = idle ? real(0) : s.uploaded[e], out = idle ? real(0) : s.capacity[NS + e];
            const real sent = flow(s, record, V2I + e, in, out);
            passed += smaller(in, out);
            if (!UNSIGNED) drift_towards(s, e) += real(0.9) * waits(s, V2I + e, in, sent);
        }
        (e < NE ? s.in_ec[e] : s.in_cc) = passed;
    }
}

FN void flow_of_clients(Scratch& s, const Slot& x, bool idle, real* record) {
    const real scale_v = x.inverse_scale[SCALE_DRIFT], scale_lc = x.inverse_scale[SCALE_DRIFT + 1];
    for (int i = lane(); i < NC; i += LANES) {
        const real q = s.state[LC + i], v = s.state[DELAY + i], cpu = x.cpu[i], budget = x.power[i];
        const real in = idle ? real(0) : s.offered[i], out = idle ? real(0) : service_of(s, x, i);
        const real wait = s.waiting[i], demand = x.demand[i];
        const real dep = flow(s, record, LC + i, in, out), paid = busy(s, x, i, out, dep);
        constrain(s, DELAY + i, wait, demand);
        if (TRACE) {
            record[DELAY_IN + i] = wait;
            record[DELAY_OUT + i] = demand;
        }
        if (P::cpu_virtual_queues) constrain(s, CPU + i, cpu * s.used[i], cpu);
        const real v2v = s.sends_v2v[i] ? s.power_v2v[i] : real(0), v2i = s.sends_v2i[i] ? s.power_v2i[i] : real(0);
        const real cost_v2v = relative(s, record, POWER_V2V + i, P::idle_power_paid ? s.power_v2v[i] : v2v, real(1) / budget);
        const real cost_v2i = relative(s, record, POWER_V2I + i, P::idle_power_paid ? s.power_v2i[i] : v2i, real(1) / budget);
        const real cost_lc = relative(s, record, COST_LC + i, paid, real(1) / cpu);
        const int generated = x.count[i];
        const real accepted = real(s.accepted[i]), share = accepted / real(generated ? generated : 1);
        s.late.row[ROW_COST_CLIENT * PITCH + i] = cost_v2v + cost_v2i + cost_lc;
        if (UNSIGNED) s.late.row[ROW_DRIFT_DELAY * PITCH + i] = phi_of(s, DRIFT_DELAY + i, v, wait, demand, scale_v);
        s.late.row[ROW_DRIFT_CLIENT * PITCH + i] = UNSIGNED ? phi_of(s, DRIFT_LC + i, q, in, out, scale_lc) : real(0.7) * waits(s, LC + i, in, dep);
        s.late.row[ROW_WATT * PITCH + i] = (v2v + v2i) * real(1e-3);
        s.late.row[ROW_CLIENT_GHZ * PITCH + i] = paid;
        s.late.row[ROW_ADMITTED * PITCH + i] = accepted;
        s.late.row[ROW_UNREACHABLE * PITCH + i] = real(s.unreachable[i]);
        s.late.row[ROW_SHARE * PITCH + i] = share;
        s.late.row[ROW_SHARE_SQUARED * PITCH + i] = share * share;
    }
}

FN void flow_of_servers(Scratch& s, const Slot& x, bool idle, real* record) {
    for (int r = lane(); r < NS; r += LANES) {
        const int n = NC + r;
        const real q = s.state[VC + r], cpu = x.cpu[n];
        const real sent = idle ? real(0) : s.offered[n], capacity = idle ? real(0) : s.capacity[r];
        const real left = flow(s, record, V2V + r, sent, capacity);
        const real in = POOLED ? smaller(sent, capacity) : left, out = idle ? real(0) : service_of(s, x, n);
        const real dep = flow(s, record, VC + r, in, out), paid = busy(s, x, n, out, dep);
        if (P::cpu_virtual_queues) constrain(s, CPU + n, cpu * s.used[n], cpu);
        s.late.row[ROW_COST_SERVER * PITCH + r] = relative(s, record, COST_VC + r, paid, real(1) / cpu);
        s.late.row[ROW_DRIFT_SERVER * PITCH + r] =
            UNSIGNED ? phi_of(s, DRIFT_VC + r, q, in, out, x.inverse_scale[SCALE_DRIFT + 2])
                     : real(0.9) * waits(s, V2V + r, sent, left) + real(0.7) * waits(s, VC + r, in, dep);
        s.late.row[ROW_SERVER_GHZ * PITCH + r] = paid;
    }
}

FN void flow_of_edges(Scratch& s, const Slot& x, bool idle, real* record) {
    for (int e = lane(); e < NE; e += LANES) {
        const int n = EDGE_0 + e;
        const real q = s.state[EC + e], cpu = x.cpu[n];
        const real in = s.in_ec[e], out = idle ? real(0) : service_of(s, x, n), dep = flow(s, record, EC + e, in, out);
        const real paid = busy(s, x, n, out, dep);
        if (P::cpu_virtual_queues) constrain(s, CPU + n, cpu * s.used[n], cpu);
        const real cost = relative(s, record, COST_EC + e, paid, real(1) / cpu);
        const real to_edge = relative(s, record, COST_I2I + e, s.haul_edge[e] * real(0.125), x.inverse_scale[SCALE_I2I]);
        const real to_cloud = relative(s, record, COST_I2C + e, s.haul_cloud[e] * real(0.125), x.inverse_scale[SCALE_I2C]);
        s.late.row[ROW_COST_EDGE * PITCH + e] = cost + to_edge + to_cloud;
        if (UNSIGNED) drift_towards(s, e) = phi_of(s, DRIFT_EC + e, q, in, out, x.inverse_scale[SCALE_DRIFT + 3]);
        else drift_towards(s, e) += real(0.7) * waits(s, EC + e, in, dep);
        s.late.row[ROW_EDGE_GHZ * PITCH + e] = paid;
    }
    if (lane() == LANES - 1) {
        const real q = s.state[CC], cpu = x.cpu[CLOUD];
        const real in = s.in_cc, out = idle ? real(0) : service_of(s, x, CLOUD), dep = flow(s, record, CC, in, out);
        const real paid = busy(s, x, CLOUD, out, dep);
        if (P::cpu_virtual_queues) constrain(s, CPU + CLOUD, cpu * s.cloud_weight, cpu);
        s.cost_cc = relative(s, record, COST_CC, paid, real(1) / cpu);
        if (UNSIGNED) s.drift_cc = phi_of(s, DRIFT_CC, q, in, out, x.inverse_scale[SCALE_DRIFT + 4]);
        else s.drift_cc += real(0.7) * waits(s, CC, in, dep);
        s.ghz_cc = paid;
    }
}

// Raises the largest backlogs that have been observed (Q11).
FN void raise_scales(Scratch& s) {
    const auto raise = [&](int n, real value) { s.state[n] = larger(s.state[n], value); };
    for (int i = lane(); i < NC; i += LANES) raise(MAX_LC + i, s.state[LC + i]);
    for (int r = lane(); r < 2 * NS; r += LANES) raise(MAX_V2V + r, s.state[V2V + r]);  // and VC
    for (int e = lane(); e < NE; e += LANES) {
        raise(MAX_V2I + e, s.reported_v2i[e]);
        raise(MAX_I2I + e, s.reported_i2i[e]);
        raise(MAX_EC + e, s.state[EC + e]);
    }
    if (lane() == LANES - 1) {
        raise(MAX_I2C, s.reported_i2i[NE]);
        raise(MAX_CC, s.state[CC]);
    }
    sync();
}

FN void update_queues(Scratch& s, const Slot& x, real* record) {
    const bool idle = P::idle_last_slot && x.t == T - 1;
    for (int k = lane(); k < ROWS * PITCH; k += LANES) s.late.row[k] = 0;
    sync();
    if (POOLED) flow_in_pools(s, x, idle, record);
    else flow_on_routes(s, x, idle, record);
    flow_of_clients(s, x, idle, record);
    flow_of_servers(s, x, idle, record);
    sync();
    flow_of_edges(s, x, idle, record);
    sync();
    if (RUNNING) {
        report(s);
        raise_scales(s);
    }
}

// The reward of the slot; every lane knows it.
FN real judge(Scratch& s, const Slot& x, float* metrics, real* record) {
    sum_rows(s.late.row, ROWS, PITCH, s.partial, s.sum);
    const real cost = real(0.25) * (s.sum[ROW_COST_CLIENT] / real(3 * NC) + s.sum[ROW_COST_SERVER] / real(NS) +
                                    s.sum[ROW_COST_EDGE] / real(3 * NE) + s.cost_cc);
    const real of_clients = s.sum[ROW_DRIFT_CLIENT], of_servers = s.sum[ROW_DRIFT_SERVER], of_edges = s.sum[ROW_DRIFT_EDGE];
    real drift;
    if (UNSIGNED)
        drift = real(0.2) * (s.sum[ROW_DRIFT_DELAY] / real(NC) + of_clients / real(NC) + of_servers / real(NS) + of_edges / real(NE) + s.drift_cc);
    else drift = (of_clients + of_servers + of_edges + s.drift_cc) * x.inverse_scale[SCALE_LOAD];
    const int generated = x.tallies[0], tried = x.tallies[1], producers = x.tallies[2];
    const real least = real(1e-6), admitted = s.sum[ROW_ADMITTED];
    const real success = admitted / larger(real(P::silent_overflow ? tried : generated), least);
    real burden;
    if (UNSIGNED)
        burden = real(0.7) * natural_log(P::penalty_weight * larger(cost, least)) + real(0.3) * natural_log(larger(drift, least));
    else burden = real(0.7) * P::penalty_weight * cost + drift;
    const real reward = real(0.5) * success - real(0.5) * burden;
    if (lane() == 0) {
        const real shares = s.sum[ROW_SHARE], squares = s.sum[ROW_SHARE_SQUARED];
        const real overflow = real(generated - tried), unreachable = s.sum[ROW_UNREACHABLE];
        const real energy = s.sum[ROW_WATT] + s.sum[ROW_CLIENT_GHZ] + s.sum[ROW_SERVER_GHZ] + s.sum[ROW_EDGE_GHZ] + s.ghz_cc;
        const real jain = squares > 0 ? shares * shares / (real(producers) * squares) : real(1);
        metrics[METRIC_ADMITTED] = float(admitted);
        metrics[METRIC_OVERFLOW] = float(overflow);
        metrics[METRIC_CAP] = float(real(tried) - admitted - unreachable);
        metrics[METRIC_COVERAGE] = float(unreachable);
        metrics[METRIC_ENERGY] = float(energy);
        metrics[METRIC_JAIN] = float(jain);
        if (TRACE) {
            record[TOTAL_COST] = cost;
            record[TOTAL_DRIFT] = drift;
            record[SUCCESS] = success;
            record[REWARD] = reward;
            record[ENERGY] = energy;
            record[JAIN] = jain;
            record[DROPPED] = overflow;
            record[DROPPED + 1] = real(tried) - admitted - unreachable;
            record[DROPPED + 2] = unreachable;
        }
    }
    return reward;
}

// Decisions and rates of the slot, after it.
FN void trace(const Scratch& s, const Slot& x, real* record) {
    for (int k = lane(); k < NC * RECEIVERS; k += LANES) record[RATE_V2V + k] = 0;
    sync();
    for (int r = lane(); r < RECEIVERS; r += LANES)
        for (int k = s.first[r]; k < s.first[r + 1]; k++)
            record[r < NS ? RATE_V2V + s.late.sender[k] * NS + r : RATE_V2I + s.late.sender[k] * NE + r - NS] = s.late.rate[k] * real(1e6);
    for (int k = lane(); k < TASKS; k += LANES) {
        const int node = s.node[k], i = k / J;
        int option = node == NOWHERE || node < NC ? 0 : node - (EDGE_0 - S - 1);
        for (int n = S; node >= NC && node < EDGE_0 && n > 0; n--)
            if (x.server[i * S + n - 1] == node) option = n;
        record[TARGET + k] = real(option);
        record[ADMITTED + k] = real(s.admitted[k]);
    }
}

// The observation of slot t; t = T is the last one, without tasks.
template <typename Seen>
FN void observe_slot(Scratch& s, const Slot& x, int t, Seen* row) {
    report(s);
    const real size = t < T ? x.inverse_scale[SCALE_SIZE] : real(0), work = x.inverse_scale[SCALE_WORK];
    for (int k = lane(); k < TASKS; k += LANES) {
        const real bits = t < T ? x.bits[k] : real(0);
        row[2 * k] = Seen(bits * size);
        row[2 * k + 1] = Seen(bits / x.inverse_density[k] * work);
    }
    row += 2 * TASKS;
    const auto scaled = [&](int family, int most, real backlog) {
        return Seen(RUNNING ? over(backlog, s.state[RUNNING ? most : 0]) : backlog * x.inverse_scale[SCALE_BACKLOG + family]);
    };
    for (int i = lane(); i < NC; i += LANES) row[i] = scaled(0, MAX_LC + i, s.state[LC + i]);
    for (int n = lane(); n < COMPONENTS; n += LANES) row[NC + n] = Seen(x.scores[n]);
    row += NC + COMPONENTS;
    for (int r = lane(); r < NS; r += LANES) {
        row[2 * r] = scaled(1, MAX_V2V + r, s.state[V2V + r]);
        row[2 * r + 1] = scaled(2, MAX_VC + r, s.state[VC + r]);
    }
    row += 2 * NS;
    for (int n = lane(); n < COMPONENTS; n += LANES) row[n] = Seen(x.scores[COMPONENTS + n]);
    row += COMPONENTS;
    for (int e = lane(); e < NE; e += LANES) {
        row[3 * e] = scaled(3, MAX_V2I + e, s.reported_v2i[e]);
        row[3 * e + 1] = scaled(4, MAX_I2I + e, s.reported_i2i[e]);
        row[3 * e + 2] = scaled(5, MAX_EC + e, s.state[EC + e]);
    }
    if (lane() == LANES - 1) {
        row[3 * NE] = scaled(6, MAX_I2C, s.reported_i2i[NE]);
        row[3 * NE + 1] = scaled(7, MAX_CC, s.state[CC]);
    }
    sync();
}
