// halfwarp_keys: halfwarp with the keys of a tile in parallel.
//
// Idea:     The switch: a lane computes whole scores, of its own BC/16 keys, from Q, by shuffles. A tile then has one
//           maximum and one rescaling a row, and a score one exponential in one lane, not two in sixteen.
// Geometry: As halfwarp.
// Shared:   K (rows an odd number of float4s apart against bank conflicts) and V: 16.5 KB at d = 64.
// Limits:   Q by shuffles: 4 for each float4, which serves BC/16 keys. P by one more for each key and row.
// Source:   The course's rank-1 report, step 3.
// Before:   halfwarp. take_keys_in_parallel in place of take_keys_in_turn.

#define KEYS_IN_PARALLEL 1

#include "halfwarp.cuh"

static_assert(KEYS_IN_PARALLEL == 1 && PADDED == 1, "the switches that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_keys(const Params p) { attend_by_half_warps(p); }
