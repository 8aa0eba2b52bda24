// Interface between the threads of a block (threads.cpp) and the device text that they run (device.hpp).
#pragma once

typedef unsigned long long Bits;
typedef Bits (*Join)(Bits, Bits);  // of what two threads bring

struct Index {
    unsigned x, y, z;
};

struct Machine {
    Index thread, block, threads, blocks;  // of the running thread: its indices and the sizes
    char *shared, *dynamic;                // shared memory of the block: declared in the text, asked for by the launch
    int reciprocal_ulp;                    // by which rcp.approx is off: -1, 0 or 1
    // With watched memory: an access of the running thread, and its way past a numbered sync(), which may be left out.
    void (*access)(void* at, unsigned long size, bool writes);
    bool (*passes)(int number);
    // Waits for all threads of the block that have not returned; gives what they bring, joined.
    Bits (*wait_for_block)(const char* what, Bits value, Join join);
    // Waits for the lanes of a mask; gives what they bring, joined, or without a way to join it what lane `source` brings.
    Bits (*wait_for_warp)(const char* what, unsigned mask, Bits value, Join join, unsigned source);
};
