#pragma once
// What the kernels of gradients share: the one argument of their launches, where rows lie, which pairs the mask lets through.

#include "elements.cuh"

struct BackwardParams {  // as hw4cli/plans/backward.py lays it out
    Matrix<const Element> q, k, v, o, dO;
    Matrix<Element> dq, dk, dv;
    const float* lse;  // (batches, heads, Nq), natural: of the forward pass
    float* delta;      // (batches, heads, Nq): scratch
    int batches, heads, kv_heads, Nq, Nk;
    int causal_offset;  // causal: row i sees the keys 0 to i + causal_offset
    float scale;        // of the scores
};

template <class T> __device__ __forceinline__ T* rows_of(const Matrix<T>& m, int batch, int head, int row) {
    return m.data + batch * m.batch + head * m.head + row * m.row;
}
__device__ __forceinline__ bool sees(const BackwardParams& p, int query, int key) {
    return query < p.Nq && key < p.Nk && (!CAUSAL || key <= query + p.causal_offset);
}
