// split_short: split for few keys on Hopper: each block converts its keys itself, and warpgroups multiply.
//
// Idea:     With few keys a launch that converts K and V would move more bytes than it saves. A block of two warpgroups loads and
//           splits a tile of Q, K and V, and multiplies by wgmma. Several blocks share a multiprocessor: one converts while
//           another multiplies. Where a batch is one block, it prefetches what a later block reads to the L2 cache.
// Geometry: B * ceil(N/128) blocks of 256 threads, tiles of 128 keys, up to 512 keys; one launch.
// Shared:   6 * 128 * p + 16 bytes for K hi, K lo and V in fp16, p = d rounded up to 32 or 64; 160 for the range; from the next
//           multiple of 1024 on, 32 * p of ones and 512 * p for Q's hi and lo.
// Limits:   Compute capability 9.0 and no other; 4 < d <= 64. Elements within fp16's range. Scratch: 128 bytes.
// Source:   As split.
// Before:   split, whose warps convert and multiply each for itself where keys are few.

#include "split_short.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) split(const Params p) { attend(p); }
