#pragma once
// What a launch passes: the one argument of every kernel, by value. hw4cli/plans/launch.py lays out the same bytes;
// tests/plans/test_layouts.py compares them, and those of all other parameter structs.

#ifndef CAUSAL  // whether a row sees no key behind the diagonal (mask.cuh)
#define CAUSAL 0
#endif
#ifndef WINDOW  // of causal workloads: whether a row sees the last ones of these keys alone
#define WINDOW 0
#endif

#include "score.cuh"

template <class T> struct Matrix {  // of each batch and head, its rows one after the other
    T* data;
    long long batch, head, row;  // strides, in elements
};

struct Params {
    Matrix<const float> q, k, v;
    Matrix<float> o;
    float* lse;         // of each row: log of the sum over keys of exp(score), natural; null where it is not wanted
    void* scratch;      // memory that a plan's launches share; the pointers below lead into it
    unsigned* absmax;   // five numbers that were 0: what is largest in Q, K and V (absmax.cuh)
    char* tiles;        // K and V, converted (tiles.cuh)
    float2* row_stats;  // for each split of the keys and each row: m, l
    float* partial_o;   // for each split of the keys and each row: O, not yet divided by l
    int batches, heads, Nq, Nk;  // rows of Q and O, rows of K and V
    int splits;         // of the keys (split-KV)
    float scale;        // of the scores: 1/sqrt(d)
    int causal_offset;  // causal: row i sees the keys 0 to i + causal_offset
    int window;         // WINDOW: of these, the last so many
#if SCORED
    Scoring scoring;    // `batches` are all heads of Q
#endif
};
