// split8: split in three units of tensor-core time in place of four: the products with a lo are of 8-bit integers.
//
// Idea:     Q lo K hi and Q hi K lo are 2^-11 of a score, so 8 bits of either factor are enough, and tensor cores multiply
//           those twice as fast, with exact sums. They are issued one slice ahead, and the sum of hi hi begins with them. This file
//           is for mma.sync; on Hopper, split8_wgmma is launched in its place, and for few keys split8_short (docs/kernels.md).
// Geometry: As split, but that K and V are always converted before. It is split beyond d = 64 and where split converts in the
//           block, up to 256 keys; on Hopper up to 512, and up to d = 32, too.
// Shared:   As split; where there is room (SHARED_SUMS), 4 * BR * (p + 8) for O of the keys before, which else passes through
//           global memory.
// Limits:   As split. |Elements| of Q and K up to 3.0029; larger ones are less exact than is proven (docs/accuracy.md).
// Source:   Integer sums that become floats by their bits: Warren, Hacker's Delight (2nd edition), chapter 17.
// Before:   split. Two of the four fp16 products become one of integers, twice as deep, in half the time.

#include "split_mma.cuh"

static_assert(PV_PIECES == 1 && STAGE == 6 * BC * WIDTH, "K in two pieces, V in one");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split8(const Params p) { attend(p); }
#if !INBLOCK  // else a block converts its keys itself, and takes all of them: one launch
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) split8_convert(const Params p) { convert_all(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) split8_combine(const Params p) { combine(p); }
#endif
