// backward_atomic: backward_once without an order of additions: other bits of dQ in each run.
//
// Idea:     The counter-example. What a block's keys add to dQ is added as soon as it is there (the copy engine's atomic
//           additions), as cuDNN and FlashAttention-2 do: no block waits for another, and float32 sums depend on which addition came first.
//           What do the same bits cost? docs/gradients.md has both.
// Geometry: As backward_once.
// Shared:   As backward_once.
// Limits:   As backward_once; the sums must begin at 0, which backward_stats sees to. Never chosen unless it is named.
// Source:   Dao, FlashAttention-2 (2023), algorithm 2: the loop over keys outside, atomic additions to dQ.
// Before:   backward_once. The order of additions alone is gone.

#include "backward_once.cuh"

extern "C" __global__ void LAUNCH_BOUNDS backward_stats(const __grid_constant__ TiledParams p) { prepare<false>(p); }
extern "C" __global__ void __launch_bounds__(THREADS_OF_ONCE, 1) backward_atomic(const __grid_constant__ TiledParams p) {
    one_pass<false>(p);
}
extern "C" __global__ void __launch_bounds__(256) backward_round(const __grid_constant__ TiledParams p) {
    round_sums<false>(p);
}
