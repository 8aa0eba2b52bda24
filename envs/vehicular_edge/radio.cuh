// Rates of everybody who sends (README.md, 2.3): a receiver decodes the strongest first, so that only weaker ones disturb.
#pragma once

FN const u64* senders_to(const Scratch& s, int r) { return r < NS ? s.member + r * WORDS : s.upload + (r - NS) * WORDS; }

#if GAINS_DRAWN

// Gain of client i at receiver r in float64, from positions and the very numbers that the scenario was drawn with.
FN double drawn_gain(const Slot& x, int r, int i) {
    const double *here = x.xy_client + i * 2, *there = x.xy_receiver + r * 2;
    const double dx = here[0] - there[0], dy = here[1] - there[1];
    double distance = sqrt(dx * dx + dy * dy);
    if (!P::jumping_tracks) distance = distance < 1.0 ? 1.0 : distance;
    const u32 element = r < NS ? u32(i * NS + r) : u32(i * NE + (r - NS));
    u32 word[4] = {u32(x.key[0]), element / 4, u32(x.t), r < NS ? 6u : 7u};
    philox(word[0], word[1], word[2], word[3], u64(x.key[1]));
    const u32 at = element % 4, chosen = at & 2 ? (at & 1 ? word[3] : word[2]) : (at & 1 ? word[1] : word[0]);
    const double u = (double(chosen) + 0.5) * (1.0 / 4294967296.0);
    const double fading = double(FADING_SCALE) * sqrt(-2.0 * log1p(-u));
    return fading * fading * pow(distance, -double(PATH_LOSS));
}

// The pairs of a receiver weakest first: listed by client, then each put where its rank is.
FN void line_up(Scratch& s, const Slot& x) {
    for (int r = lane(); r < RECEIVERS; r += LANES) {
        int k = s.first[r];
        for (int w = 0; w < WORDS; w++)
            for (u64 bits = senders_to(s, r)[w]; bits; bits &= bits - 1) {
                s.late.unsorted.sender[k] = u16(w * 64 + lowest_set(bits));
                s.late.unsorted.receiver[k++] = u16(r);
            }
    }
    sync();
    const int pairs = s.first[RECEIVERS];
    for (int k = lane(); k < pairs; k += LANES) s.late.unsorted.key[k] = drawn_gain(x, s.late.unsorted.receiver[k], s.late.unsorted.sender[k]);
    sync();
    for (int k = lane(); k < pairs; k += LANES) {
        const int r = s.late.unsorted.receiver[k], first = s.first[r], last = s.first[r + 1];
        const double key = s.late.unsorted.key[k];
        int rank = first;
        bool tied = false;
        for (int o = first; o < last; o++) {
            const bool before = s.late.unsorted.key[o] == key && o > k;  // of two equal gains the higher index counts as the weaker
            rank += before || s.late.unsorted.key[o] < key;
            tied |= before;
        }
        const real gain = real(key / double(NOISE_WATT));
        s.late.sender[rank] = s.late.unsorted.sender[k];
        s.late.rate[rank] = tied ? -gain : gain;
    }
    sync();
}

#else

// The pair of a sender at place p of a receiver's order; a negative gain says that the sender before has the same.
FN void put_pair(Scratch& s, int k, const real* gain, int p, int sender, int before) {
    bool tied = before >= 0 && gain[p] < 0;
    for (int o = p; tied && o > before; o--) tied = gain[o] < 0;
    const real g = magnitude(gain[p]);
    s.late.sender[k] = u16(sender);
    s.late.rate[k] = tied ? -g : g;
}

#if LANE_WALK

// The pairs of a receiver weakest first: its order of all clients, less those that do not send. A lane keeps its receivers.
FN void line_up(Scratch& s, const Slot& x) {
    for (int r = lane(); r < RECEIVERS; r += LANES) {
        const u64* senders = senders_to(s, r);
        const real* gain = x.gain + r * NC;
        const ClientIndex* order = x.order + r * NC;
        const int first = s.first[r], count = s.first[r + 1] - first;
        int found = 0, before = -1;
        for (int p = 0; p < NC && found < count; p++) {
            const int i = order[p];
            if (!((senders[i / 64] >> (i % 64)) & 1)) continue;
            put_pair(s, first + found, gain, p, i, before);
            before = p;
            found++;
        }
    }
}

#else

// The same: places first, so that gains are fetched together, and without a branch that nobody can predict.
FN void line_up(Scratch& s, const Slot& x) {
    u16 place[PAIRS_PADDED + 1];
    for (int r = 0; r < RECEIVERS; r++) {
        const u64* senders = senders_to(s, r);
        const ClientIndex* order = x.order + r * NC;
        int k = s.first[r];
        const int end = s.first[r + 1];
        if (k == end) continue;
        for (int p = 0; p < NC; p++) {
            const int i = order[p];
            place[k] = u16(p);
            k += int((senders[i / 64] >> (i % 64)) & 1);
        }
        for (k = s.first[r]; k < end; k++) __builtin_prefetch(x.gain + r * NC + place[k]);
    }
    for (int r = 0; r < RECEIVERS; r++) {
        const ClientIndex* order = x.order + r * NC;
        for (int k = s.first[r], before = -1; k < s.first[r + 1]; before = place[k++])
            put_pair(s, k, x.gain + r * NC, place[k], order[place[k]], before);
    }
}

#endif

#endif

FN int count_senders(const Scratch& s, int r) {
    int count = 0;
    for (int w = 0; w < WORDS; w++) count += set_bits(senders_to(s, r)[w]);
    return count;
}

// Numbers the pairs: the first of each receiver, and the end of all.
FN void number_pairs(Scratch& s) {
#if LANE_WALK
    for (int r = lane(); r < RECEIVERS; r += LANES) s.senders[r] = count_senders(s, r);
    sync();
    for (int r = lane(); r <= RECEIVERS; r += LANES) {
        int pairs = 0;
        for (int before = 0; before < RECEIVERS; before++) pairs += before < r ? s.senders[before] : 0;
        s.first[r] = pairs;
    }
    sync();
#else
    s.first[0] = 0;
    for (int r = 0; r < RECEIVERS; r++) s.first[r + 1] = s.first[r] + count_senders(s, r);
#endif
}

FN void noma(Scratch& s, const Slot& x) {
    number_pairs(s);
    line_up(s, x);
    for (int r = lane(); r < RECEIVERS; r += LANES) {
        const real* power = r < NS ? s.power_v2v : s.power_v2i;
        real all = 0, weaker = 0;  // received power over noise of those before, and of those before with a lower gain
        for (int k = s.first[r]; k < s.first[r + 1]; k++) {
            const real gain = s.late.rate[k], received = magnitude(gain) * (power[s.late.sender[k]] * real(1e-3));
            if (!P::silent_ties || !(gain < 0)) weaker = all;
            s.late.rate[k] = received / (real(1) + weaker);
            all += P::interference_in_mw ? real(1e3) * received : received;
        }
    }
    sync();
    const int pairs = s.first[RECEIVERS], uplinks = s.first[NS];
    const real per_log = real(1.4426950408889634);
    for (int k = lane(); k < pairs; k += LANES) {
        const real bandwidth = k < uplinks ? real(P::bandwidth_v2v_mhz) : real(P::bandwidth_v2i_mhz);
        s.late.rate[k] = bandwidth * per_log * log_of_one_plus(s.late.rate[k]);
    }
    sync();
    for (int r = lane(); r < RECEIVERS; r += LANES) {
        real capacity = 0;
        for (int k = s.first[r]; k < s.first[r + 1]; k++) {
            capacity += s.late.rate[k];
            if (r >= NS) s.rate_up[s.late.sender[k]] = s.late.rate[k];
        }
        s.capacity[r] = capacity;
    }
    sync();
}
