// exact: the error of fp32 from fp16 tensor cores: split with P and V split in hi and lo, too.
//
// Idea:     P V = P hi V hi + P lo V hi + P hi V lo: six products in all, and each value keeps 22 bits. What is left is
//           how tensor cores add: they cut off instead of rounding. So the small products of S are added first, S
//           starts at 0, and after every 1024 keys the accumulators are promoted: added up by FFMA.
// Geometry: As split: exact_convert, B * ceil(N/BR) * splits blocks of exact, exact_combine.
// Shared:   STAGES * (8 * BC * p + 16) bytes, p = d rounded up to 32, 64 or 128: K hi, K lo, V hi, V lo in fp16.
// Limits:   Compute capability 8.0, 128 KB a block above d = 64. Elements within fp16's range (docs/accuracy.md).
//           Scratch: 128 + 8 * B*N*p bytes, and 4 * splits*B*N*(d+2).
// Source:   Ootomo and Yokota, Recovering Single Precision Accuracy from Tensor Cores (2022), section 3, for sums that
//           tensor cores cut off; else as split.
// Before:   split. Two products more make the rounding of P and V vanish.

#include "split_mma.cuh"

static_assert(PV_PIECES == 2 && STAGE == 8 * BC * WIDTH, "K and V in two pieces");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) exact(const Params p) { attend(p); }
#if !INBLOCK  // else a block converts its keys itself, and takes all of them: one launch
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) exact_convert(const Params p) { convert_all(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) exact_combine(const Params p) { combine(p); }
#endif
