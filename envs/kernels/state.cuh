// An environment that one thread holds: its state, in registers, and its action.
#pragma once
#include "place.cuh"

struct State {  // in the order in which the port declares fields of each type
    real of[REALS];
#if DOUBLES
    double doubles[DOUBLES];
#endif
#if INTEGERS
    int integers[INTEGERS];
#endif
    FN real& operator[](int j) { return of[j]; }
    FN real operator[](int j) const { return of[j]; }
};

#if CONTINUOUS
typedef real Number;  // of an action: one that is meant to lie in the space
#else
typedef int Number;   // 0 .. choices - 1
#endif
#if NUMBERS == 1
typedef Number Action;
#else
struct Action {
    Number of[NUMBERS];
    FN Number operator[](int k) const { return of[k]; }
};
#endif
