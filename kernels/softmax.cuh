#pragma once
// The online softmax: what a row of scores does to the row's state m, l and O. P = 2^(s - m); l is the sum of P, O that of P V.
//
// Milakov and Gimelshein 2018, algorithm 3. Lazy: m stays where it is, and O and l are not rescaled, until a score has grown so
// far past it that P could pass 2^RESCALE_THRESHOLD (FlashAttention-4).

#include "platform.cuh"
#include "ptx.cuh"

// l and N columns of O, in one thread, after m has grown: `shrink` is 2^(the old m - the new).
template <int N> __device__ __forceinline__ void rescale_row(float& l, float (&O)[N], float shrink)
{
    l *= shrink;
    UNROLL for (int n = 0; n < N; n++) O[n] *= shrink;
}
