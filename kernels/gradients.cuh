#pragma once
// What the kernels of gradients share: the one argument of their launches, where rows lie, which pairs the mask lets through.

#include "elements.cuh"
#include "mask.cuh"

struct BackwardParams {  // as hw4cli/plans/backward.py lays it out
    Matrix<const Element> q, k, v, o, dO;
    Matrix<Element> dq, dk, dv;
    const float* lse;  // natural: of the forward pass; of each head its rows one after the other
    long long lse_batch, lse_head;
    float* delta;      // scratch: (batches, heads, Nq); of float32 elements, behind them as many 1 / the sum of a row's weights
    int batches, heads, kv_heads, Nq, Nk;
    int causal_offset;  // causal: row i sees the keys 0 to i + causal_offset
    float scale;        // of the scores
    int whole;          // whether LSE and O are of these keys, and no others: a row's weights then add up to 1
    int window;         // WINDOW: of the keys that a row sees by causal_offset, the last so many
#if SCORED
    Scoring scoring;
#endif
};

// A score is known to 2^-24 of it, and so is its weight, but dP and delta are known to some 2^-22: up to here, the forward pass's O is
// as good as what gradients would weigh themselves. No score with a weight is larger than the LSE.
constexpr float LARGE_LSE = 16;
__device__ __forceinline__ bool is_large(float lse) { return fabsf(lse) > LARGE_LSE && fabsf(lse) < __int_as_float(0x7f800000); }

template <class Params> __device__ __forceinline__ const float* lse_of(const Params& p, int batch, int head) {
    return p.lse + batch * p.lse_batch + head * p.lse_head;
}
template <class T> __device__ __forceinline__ T* rows_of(const Matrix<T>& m, int batch, int head, int row) {
    return m.data + batch * m.batch + head * m.head + row * m.row;
}
__device__ __forceinline__ bool sees(const BackwardParams& p, int query, int key) {
    return query < p.Nq && key < p.Nk && (!CAUSAL || key <= query + p.causal_offset) && (!WINDOW || key >= first_key_of(p, query));
}
