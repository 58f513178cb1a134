// split: fp32 answers from fp16 tensor cores: Q and K each as the sum of two halves, P and V as one.
//
// Idea:     An fp32 value is x = hi + lo to 22 bits, hi and lo in fp16. S = Q hi K hi + Q lo K hi + Q hi K lo
//           leaves out only lo lo, 2^-22 of the whole; P V needs one product, because an error of P or V counts
//           once, one of S in the exponent. Four products on tensor cores are several times as fast as two of
//           FFMA, and the answer is provably within the tolerance (docs/accuracy.md). This file is for mma.sync; on Hopper,
//           split_wgmma is launched in its place, and for few keys split_short (docs/kernels.md).
// Geometry: B * ceil(N/BR) * splits blocks, a warp to 16 or 32 rows, tiles of BC keys. split_convert splits
//           K and V beforehand (INBLOCK: for few keys, each block converts its own); splits > 1 splits the keys
//           (split-KV), and split_combine puts them together: sums stay short, and no multiprocessor idles.
// Shared:   STAGES * (6 * BC * p + 16) bytes, p = d rounded up to 32, 64 or 128: K hi, K lo, V in fp16, two mbarriers.
// Limits:   Compute capability 8.0. Elements within fp16's range; how large the error can be follows from the range, which the
//           kernel leaves in scratch. Scratch: 128 + 6 * B*N*p bytes, and 4 * splits*B*N*(d+2).
// Source:   Dao, FlashAttention-2 (2023), algorithm 1; Markidis et al., NVIDIA Tensor Core Programmability (2018),
//           section V, for products of hi and lo; lazy rescaling by 2^8: FlashAttention-4's softmax.
// Before:   flash. The products move from FFMA to mma.sync: P goes from accumulator to operand without leaving the
//           registers, and the copy engine brings whole tiles.

#include "split_mma.cuh"

static_assert(PV_PIECES == 1 && STAGE == 6 * BC * WIDTH, "K in two pieces, V in one");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split(const Params p) { attend(p); }
#if !INBLOCK  // else a block converts its keys itself, and takes all of them: one launch
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) split_convert(const Params p) { convert_all(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) split_combine(const Params p) { combine(p); }
#endif
