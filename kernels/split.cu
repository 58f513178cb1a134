// split: fp32 answers from fp16 tensor cores: Q and K each as the sum of two halves, P and V as one.
//
// Idea:     An fp32 value is x = hi + lo to 22 bits, hi and lo in fp16. S = Q hi K hi + Q lo K hi + Q hi K lo
//           leaves out only lo lo, 2^-22 of the whole; P V needs one product, because an error of P or V counts
//           once, one of S in the exponent. Four products on tensor cores are several times as fast as two of
//           FFMA, and the answer is provably within the tolerance (docs/accuracy.md).
// Geometry: B * ceil(N/BR) * splits blocks, a warp to 16 or 32 rows, tiles of BC keys. split_convert splits
//           K and V beforehand (INBLOCK: for few keys, each block for itself); splits > 1 splits the keys
//           (split-KV), and split_combine puts them together: sums stay short, and no multiprocessor idles. WARPGROUPS:
//           four warps multiply together (wgmma); GROUPS of them take turns, a block stays for task after task (turns.cuh), of
//           the last ones for parts (parts.cuh). Where there are batches enough, split_convert splits the first ones, and
//           some blocks the others, before they stay (converters.cuh).
// Shared:   STAGES * (6 * BC * p + 16) bytes, p = d rounded up to 32, 64 or 128: K hi, K lo, V in fp16, two barriers;
//           for WARPGROUPS 160 for the range and, from the next multiple of 1024 on, 32 * p bytes of ones and 4 * BR * p
//           for Q's hi and lo; for GROUPS none for the range, but 1024 for barriers and 4 * BR * (p + 8) for O, and none
//           for Q unless the next task's is brought (queries.cuh).
// Limits:   Compute capability 8.0 (WARPGROUPS: 9.0, and no other). Elements within fp16's range; how large the error can
//           be follows from the range, which the kernel leaves in scratch. Scratch: 128 + 6 * B*N*p bytes, and
//           4 * splits*B*N*(d+2), and 8 * B.
// Source:   Dao, FlashAttention-2 (2023), algorithm 1; Markidis et al., NVIDIA Tensor Core Programmability (2018),
//           section V, for products of hi and lo; lazy rescaling by 2^8: FlashAttention-4's softmax.
// Before:   flash. The products move from FFMA to mma.sync: P goes from accumulator to operand without leaving the
//           registers, and the copy engine brings whole tiles.

#include "tensor.cuh"
#include "turns.cuh"
#include "warpgroup.cuh"

static_assert(PV_PIECES == 1 && STAGE == 6 * BC * WIDTH, "K in two pieces, V in one");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split(const Params p) { attend(p); }
#if !INBLOCK  // else a block converts its keys itself, and takes all of them: one launch
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) split_convert(const Params p) { convert(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) split_combine(const Params p) { combine(p); }
#endif
