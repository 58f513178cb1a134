// halfwarp_rows: halfwarp with tiles of K and V that are loaded uncoalesced.
//
// Idea:     The switch: each lane of a warp loads from another row of the tile. The 32 lanes ask for 32 pieces of 16 bytes that
//           lie a row apart, each half a sector, where halfwarp's ask for 512 bytes in one piece.
// Geometry: As halfwarp.
// Shared:   As halfwarp. Lanes take columns in turn, so that their stores do not meet in banks: the loads differ alone.
// Limits:   As halfwarp. The other half of a sector is asked for again by another warp, and may be in the L1 cache still.
// Source:   The course's rank-1 report, step 1 (coalesced loads).
// Before:   halfwarp. Which thread loads which vector of a tile.

#define TILES_COALESCED 0

#include "halfwarp.cuh"

static_assert(TILES_COALESCED == 0 && KEYS_IN_PARALLEL == 0, "the switches that this file is about");

extern "C" __global__ void __launch_bounds__(THREADS, 1) halfwarp_rows(const Params p) { attend_by_half_warps(p); }
