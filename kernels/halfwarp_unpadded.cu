// halfwarp_unpadded: halfwarp_keys without padding.
//
// Idea:     The switch: rows of K follow each other. At d = 64 a row is 64 banks long: all sixteen lanes, which read the same
//           float4 of a row of their own, find it in the same four banks. With one float4 more a row they lie apart.
// Geometry: As halfwarp.
// Shared:   K and V: 8*BC*d bytes, 16 KB at d = 64.
// Limits:   As halfwarp_keys, and the conflicts. halfwarp has none: its lanes read one row of K side by side.
// Source:   The course's rank-1 report, sections 1.e and 3.
// Before:   halfwarp_keys. A row of K is d floats long, not one float4 more.

#define KEYS_IN_PARALLEL 1
#define PADDED 0

#include "halfwarp.cuh"

static_assert(KEYS_IN_PARALLEL == 1 && PADDED == 0, "the switches that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_unpadded(const Params p) { attend_by_half_warps(p); }
