// The instance of an episode (README.md, 4.2): trips, pre-shifts, order of arrival.
#pragma once
#include "layout.cuh"

enum Draw : u32 { DRAW_TRIP = 0, DRAW_PICKUP = 1, DRAW_DROPOFF = 2, DRAW_ORDER = 3 };

// A window moved by ticks, less far where it would leave [0, H]; its width stays.
FN void move(int* window, int shift) {
    const int inside = smaller_of(larger_of(shift, -window[0]), HORIZON_TICKS - window[1]);
    window[0] += inside;
    window[1] += inside;
}

// Repeats the first half of a row in the second if requests have one node.
FN void repeat(int* row) {
    for (int k = 0; k < 3 && !PAIRED; k++) row[3 + k] = row[k];
}

FN int preshift_of(const Place& at, int traveller, u32 stream) { return 100 * (1 + mulhi(word_of(at, traveller, stream), 3)); }

static STAGE void draw(Scratch& s, const Place& at) {
    int* const x = s.integers;
    for (int k = lane(); k < INTEGERS; k += LANES) x[k] = k >= TRAVELLER && k < KEPT ? -1 : k >= ACTION && k < ACCEPTED ? -1 : 0;
    if (lane() == 0) s.state[0] = 0;
    sync();
    for (int i = lane(); i < N; i += LANES) {
        const int trip = FIXED ? int((u64(at.index) + at.episode) % TRIPS) : mulhi(word_of(at, i, DRAW_TRIP), at.tables.trip_count[i]);
        x[TRIP + i] = trip;
        int* const row = x + OFFERED + 6 * i;
        for (int k = 0; k < 6; k++) row[k] = at.tables.trips[6 * (i64(i) * TRIPS + trip) + k];
        if (P::preshift && !FIXED) {
            move(row + 1, -preshift_of(at, i, DRAW_PICKUP));
            move(row + 4, preshift_of(at, i, DRAW_DROPOFF));
        }
        repeat(row);
        s.places[0][i] = FIXED ? i : mulhi(word_of(at, i, DRAW_ORDER), i + 1);
        x[ORDER + i] = i;
    }
    sync();
    for (int i = N - 1; i > 0 && lane() == 0; i--) {  // Fisher and Yates
        const int j = s.places[0][i], other = x[ORDER + j];
        x[ORDER + j] = x[ORDER + i];
        x[ORDER + i] = other;
    }
    sync();
}
