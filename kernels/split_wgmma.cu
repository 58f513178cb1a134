// split_wgmma: split on Hopper: persistent blocks, a producer and consumer warpgroups in ping-pong, stream-K.
//
// Idea:     Four warps multiply together (wgmma), asynchronously: while the tensor cores compute for one consumer, another one takes
//           exponentials (ping-pong). A block stays, and computes unit after unit of work; the last tasks are shared out in equal
//           ranges of tiles (stream-K). Where there are batches enough, split_convert converts the first ones alone, and some
//           blocks convert the others before they compute (producers.cuh).
// Geometry: As many blocks as multiprocessors; causal, where tasks differ in length, and with a split of the keys, one a task. BR = 64
//           GROUPS rows, tiles of 64 keys, GROUPS consumer warpgroups and one producer.
// Shared:   1024 bytes for mbarriers and the block's info; STAGES * 6 * BC * p, p = d rounded up to 32 or 64: K hi, K lo, V in fp16;
//           32 * p of ones; 4 * BR * (p + 8) for O of the keys before; and, where Q of the next unit is loaded ahead, 4 * BR * p
//           for its hi and lo.
// Limits:   Compute capability 9.0 and no other; 4 < d <= 64, more keys than split_short takes. Elements within fp16's range.
//           Scratch: 128 + 6 * B*N*p bytes, and 4 * splits*B*N*(d+2), and 8 * B.
// Source:   As split; Shah et al., FlashAttention-3 (2024), for warp specialization and ping-pong; Osama et al., Stream-K (2023).
// Before:   split. Its warps issue products (mma.sync) and wait for them; here they are issued, and complete later.

#include "split_wgmma.cuh"

static_assert(PV_PIECES == 1 && STAGE == 6 * BC * WIDTH, "K in two pieces, V in one");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split(const Params p) { attend(p); }
extern "C" __global__ void __launch_bounds__(CONVERT_THREADS) split_convert(const Params p) { convert_first(p); }
extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) split_combine(const Params p) { combine(p); }
