#pragma once
// What a launch passes: the one argument of every kernel, by value. hw4cli/plans/launch.py lays out the same bytes;
// tests/plans/test_layouts.py compares them, and those of all other parameter structs.

#ifndef CAUSAL  // whether a row sees no key behind the diagonal (mask.cuh)
#define CAUSAL 0
#endif
#ifndef WINDOW  // of causal workloads: whether a row sees the last ones of these keys alone
#define WINDOW 0
#endif
#ifndef CHOSEN  // whether several kernels are launched, of which the GPU chooses the one that computes (choice.cu)
#define CHOSEN 0
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
#if CHOSEN
    const unsigned* choice;  // the number of the kernel that computes, which a launch before has written
    unsigned number;         // this kernel's
#endif
};

// At the beginning of each launch: where another kernel computes, it ends without a word written.
#if CHOSEN
#define ONLY_IF_CHOSEN(p) if (*(const volatile unsigned*)p.choice != p.number) return
#else
#define ONLY_IF_CHOSEN(p)
#endif
