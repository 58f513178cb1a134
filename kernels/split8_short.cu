// split8_short: split8 for few keys on Hopper, where it is split_short: integers would not pay.
//
// Idea:     As split_short.
// Geometry: As split_short.
// Shared:   As split_short.
// Limits:   As split_short.
// Source:   As split.
// Before:   split_short. Nothing changes but the name.

#include "split_short.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split8(const Params p) { attend(p); }
