// backward_once: dQ, dK and dV of fp16 or bf16 numbers on Hopper in one pass: five products, the same bits every run.
//
// Idea:     Two groups of four warps own 64 keys each, and stream Q and dO, as in backward_wgmma's backward_dkdv. dS passes
//           through shared memory, too, and is multiplied by K: what the block's keys add to dQ. The copy engine adds it to
//           sums in device memory, tile by tile, in the order of the keys: each tile has a semaphore, a count of the additions so
//           far. Blocks claim tasks in that order, and all go through the queries in one order: the block before is ahead, so that
//           hardly any block waits. dQ is multiplied a tile later: both groups' dS is there, and one takes exponentials while the
//           other multiplies. At 64 columns a third group multiplies dQ (ONCE_APART), but where scores are changed, of windows, of
//           sequences, and of long causal rows. Of one tile of keys, and of short rows of many heads, it also rounds dQ
//           (ONCE_ROUNDED): the block with a tile's last keys brings the sum back. Else a launch after the pass does.
// Geometry: As many blocks as there are multiprocessors; each takes the next task, 128 keys of a head, that no other has taken:
//           a block waits only for blocks that have started. Causal: the longest tasks come first.
// Shared:   Owned rows, 512 p bytes; two tiles of Q and dO, p = d rounded up to 64 or 128; dS, twice; one to three tiles of dQ;
//           barriers.
// Limits:   Compute capability 9.0 and no other. d a multiple of 8 up to 128; rows of 16-byte chunks. dQ in float32 in memory.
// Source:   FlashAttention-3's deterministic backward pass: semaphores, and an order in which hardly any block waits.
// Before:   backward_wgmma, which computes scores and dP twice instead.

#include "backward_once.cuh"

extern "C" __global__ void LAUNCH_BOUNDS backward_stats(const __grid_constant__ TiledParams p) { prepare<true>(p); }
extern "C" __global__ void __launch_bounds__(THREADS_OF_ONCE, 1) backward_once(const __grid_constant__ TiledParams p) {
    one_pass<true>(p);
}
extern "C" __global__ void __launch_bounds__(256) backward_round(const __grid_constant__ TiledParams p) {
    round_sums<true>(p);
}
