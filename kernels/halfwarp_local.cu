// halfwarp_local: halfwarp with its arrays in local memory.
//
// Idea:     The switch: no loop over a row or a slice is unrolled, as where d is known at run time only. Registers have no
//           index, so Q, O, m and l lie in memory, and each use is a load or a store. The report's step 4 most likely ended
//           this: before it, its profile has DRAM writes that O alone cannot explain.
// Geometry: As halfwarp.
// Shared:   As halfwarp.
// Limits:   112 bytes a thread at d = 64: 112 KB a block, through the L1 cache where they fit. No spills: the compiler was
//           asked for this.
// Source:   The course's rank-1 report, steps 2 to 4.
// Before:   halfwarp. The same statements, in loops that are not unrolled.

#define IN_REGISTERS 0

#include "halfwarp.cuh"

static_assert(IN_REGISTERS == 0, "the switch that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_local(const Params p) { attend_by_half_warps(p); }
