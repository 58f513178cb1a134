// split8_wgmma: split8 on Hopper: split_wgmma with the corrections of the scores in 8-bit integers.
//
// Idea:     As split_wgmma. The corrections are issued one tile ahead: the tensor cores compute them while a consumer waits for its
//           turn, or takes exponentials.
// Geometry: As split_wgmma.
// Shared:   As split_wgmma, and for Q's integers, in place of its lo, 2 * BR * p bytes; twice where Q of the next unit is loaded
//           ahead.
// Limits:   As split_wgmma and split8. Up to d = 32 it is split_wgmma.
// Source:   As split8.
// Before:   split_wgmma. Two of the four fp16 products become one of integers, twice as deep, in half the time.

#include "split_wgmma.cuh"

static_assert(PV_PIECES == 1 && STAGE == 6 * BC * WIDTH, "K in two pieces, V in one");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split8(const Params p) { attend(p); }
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) split8_convert(const Params p) { convert_first(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) split8_combine(const Params p) { combine(p); }
