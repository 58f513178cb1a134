// halfwarp_scalar: halfwarp without vector loads.
//
// Idea:     The switch: Q, K, V and O move float by float, in device memory and in shared memory. A lane's slice is every
//           sixteenth column, so lanes still read side by side: as coalesced, and as free of bank conflicts, as halfwarp.
// Geometry: As halfwarp.
// Shared:   As halfwarp.
// Limits:   As halfwarp. Shared memory serves as many bytes in as many cycles; what is lost are instructions: four loads for
//           one, of K and V alike, and four addresses.
// Source:   The course's rank-1 report, step 5 (float4).
// Before:   halfwarp. VECTOR is 1.

#define VECTOR_LOADS 0

#include "halfwarp.cuh"

static_assert(VECTOR_LOADS == 0 && KEYS_IN_PARALLEL == 0, "the switches that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_scalar(const Params p) { attend_by_half_warps(p); }
