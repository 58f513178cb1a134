#pragma once
// SCORED: scores as a user changes them, and their slopes (score.cuh). What includes this has exp2_fast before.

#include "score.cuh"

#if SCORED

typedef unsigned short ScoreElement;  // 16 bits, as elements of Q are
#define SCORE_INFINITY __int_as_float(0x7f800000)

__device__ __forceinline__ float score_number(float x) { return x; }
__device__ __forceinline__ int score_number(int x) { return x; }
__device__ __forceinline__ int score_number(unsigned char x) { return x; }
#if BFLOAT16
__device__ __forceinline__ float score_number(ScoreElement x) { return __uint_as_float(unsigned(x) << 16); }
#else
__device__ __forceinline__ float score_number(ScoreElement x) {
    const unsigned exponent = x & 0x7c00, magnitude = unsigned(x & 0x7fff) << 13;
    const unsigned found = exponent == 0x7c00 ? magnitude + 0x70000000
                         : exponent ? magnitude + 0x38000000 : __float_as_uint((x & 0x3ff) * 0x1p-24f);
    return __uint_as_float(found | unsigned(x & 0x8000) << 16);
}
#endif

// An index that leaves the array is its first or its last one.
template <class T, class... Indices> __device__ __forceinline__ auto element_at(const ScoreView& view, Indices... indices) {
    const int index[] = {indices...};
    long long at = 0;
#pragma unroll
    for (int n = 0; n < int(sizeof...(Indices)); n++) at += max(0, min(index[n], view.sizes[n] - 1)) * view.strides[n];
    return score_number(((const T*)view.data)[at]);
}

__device__ __forceinline__ int score_floor(int a, int b) { return a / b - (a % b < 0); }
__device__ __forceinline__ int score_rest(int a, int b) { return a - score_floor(a, b) * b; }
template <class T> __device__ __forceinline__ T score_abs(T x) { return x < 0 ? -x : x; }
template <class T> __device__ __forceinline__ T score_min(T a, T b) { return b < a ? b : a; }
template <class T> __device__ __forceinline__ T score_max(T a, T b) { return a < b ? b : a; }
__device__ __forceinline__ float score_exp(float x) { return exp2_fast(x * 1.44269504088896341f); }
__device__ __forceinline__ float score_log(float x) { return logf(x); }
__device__ __forceinline__ float score_sqrt(float x) { return sqrtf(x); }
// 1 - 2 / (e^2x + 1), to 2^-23 of 1: what counts is a score's error, not a small score's.
__device__ __forceinline__ float score_tanh(float x) {
    return 1 - __fdividef(2, exp2_fast(x * 2.88539008177792681f) + 1);
}

// A score from s, with the scale 1. (T is what the macros' numbers are of.)
__device__ __forceinline__ float changed_score(const Scoring& w, const ScoredHead& head, float s, int i, int j) {
    typedef float T;
    [[maybe_unused]] const int b = head.b, h = head.h, Nq = head.Nq, Nk = head.Nk;
#ifdef SCORE_KEEPS
    if (!(SCORE_KEEPS)) return -SCORE_INFINITY;
#endif
    return SCORE;
}
__device__ __forceinline__ float score_slope(const Scoring& w, const ScoredHead& head, float s, int i, int j) {
    typedef float T;
    [[maybe_unused]] const int b = head.b, h = head.h, Nq = head.Nq, Nk = head.Nk;
#ifdef SCORE_KEEPS
    if (!(SCORE_KEEPS)) return 0;
#endif
    return SCORE_SLOPE;
}
__device__ __forceinline__ float* score_gradient_at(const Scoring& w, const ScoredHead& head, int i, int j) {
    return w.gradient + (((long long)head.b * w.heads + head.h) * w.Nq + i) * w.Nk + j;
}
#endif
