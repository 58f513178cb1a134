// backward_mma: dQ, dK and dV by tensor cores (mma.sync), of 16-bit elements and of float32; the same bits in every run.
//
// Idea:     As backward: two passes, one text, whoever owns a row adds all of it up, in one order. Float32 elements, P and dS are
//           sums of two fp16 numbers, and a product is three: all but lo lo. Each tile of 32 rows is scaled by a power of two of
//           its own, and so is dS, so that fp16 holds them whatever the data. Tensor cores cut off where they add: a tile's sum
//           begins at 0, and float32 adds the sums of tiles. 16-bit elements are one piece; dS of fp16 is scaled, too.
// Geometry: backward_pieces: a block for each 32 rows of Q, O and dO, and of K and V. backward_mma_dq: a block for each
//           16 MI WARPS rows of Q; backward_mma_dkdv: for so many keys, and it adds up all heads of Q that share them.
// Shared:   2 w (BR + 2 BC) for each piece, w = 2 d rounded up to 64, 128 or 256; KEPT: w max(2 BR, 4 BC). 17 BC for LSE, delta
//           and scales.
// Limits:   Compute capability 8.0. d a multiple of 8 up to 128, of float32 one of 4. Scratch: for float32, as much as Q, dO, K
//           and V together.
// Source:   Dao, FlashAttention-2 (2023), algorithm 2; Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores
//           (2022), for products of hi and lo and sums outside of the tensor cores.
// Before:   backward, by FFMA.

#include "backward_pass.cuh"

extern "C" __global__ void __launch_bounds__(32 * DQ_WARPS, DQ_BLOCKS) backward_mma_dq(const PiecesParams p) {
    Pass<false, DQ_WARPS, DQ_MI, DQ_BC, DQ_SUB, DQ_KEPT>(p).run();
}
extern "C" __global__ void __launch_bounds__(32 * DKDV_WARPS, DKDV_BLOCKS) backward_mma_dkdv(const PiecesParams p) {
    Pass<true, DKDV_WARPS, DKDV_MI, DKDV_BC, DKDV_SUB, DKDV_KEPT>(p).run();
}
