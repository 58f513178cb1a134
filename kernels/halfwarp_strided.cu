// halfwarp_strided: halfwarp with Q loaded uncoalesced.
//
// Idea:     The switch: a lane loads its float4 of Q one float at a time, so that neighbouring lanes read 16 bytes apart. How
//           much of the report's step from 1.92 to 0.57 s can its "coalesced Q" explain?
// Geometry: As halfwarp.
// Shared:   As halfwarp.
// Limits:   Q is loaded once for N keys: whatever the pattern, it is next to nothing.
// Source:   The course's rank-1 report, step 4.
// Before:   halfwarp. Q alone is loaded in another way.

#define Q_COALESCED 0

#include "halfwarp.cuh"

static_assert(Q_COALESCED == 0, "the switch that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_strided(const Params p) { attend_by_half_warps(p); }
