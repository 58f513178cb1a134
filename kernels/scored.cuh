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

__device__ __forceinline__ unsigned score_bits(float x) { return __float_as_uint(x); }
__device__ __forceinline__ unsigned score_bits(ScoreElement x) { return x; }
__device__ __forceinline__ unsigned score_bits(unsigned char x) { return x; }

// An index that leaves the array is its first or its last one.
template <class T, class... Indices>
__device__ __forceinline__ long long place_in(const ScoreView& view, Indices... indices) {
    const int index[] = {indices...};
    long long at = 0;
#pragma unroll
    for (int n = 0; n < int(sizeof...(Indices)); n++) at += max(0, min(index[n], view.sizes[n] - 1)) * view.strides[n];
    return at;
}
template <class T, class... Indices> __device__ __forceinline__ auto element_at(const ScoreView& view, Indices... indices) {
    return score_number(((const T*)view.data)[place_in<T>(view, indices...)]);
}
// A row of an array, in which keys lie side by side, by all indices but the last.
template <class T> struct ScoreRow {
    const T* data;
    int size;
    long long step;  // to the next row, in elements
    int rows;        // that there are
};
template <class T, class... Indices> __device__ __forceinline__ ScoreRow<T> row_at(const ScoreView& view, Indices... indices) {
    constexpr int LAST = sizeof...(Indices);  // with the array's rows before it, unless all i have the same
    return {(const T*)view.data + place_in<T>(view, indices...), view.sizes[LAST], view.strides[LAST - 1], view.sizes[LAST - 1]};
}
template <class T> __device__ __forceinline__ auto key_of(const ScoreRow<T>& row, int j) {
    return score_number(row.data[min(j, row.size - 1)]);
}

__device__ __forceinline__ int score_floor(int a, int b) { return a / b - (a % b < 0); }
__device__ __forceinline__ int score_rest(int a, int b) { return a - score_floor(a, b) * b; }
__device__ __forceinline__ float score_abs(float x) { return fabsf(x); }
__device__ __forceinline__ int score_abs(int x) { return x < 0 ? -x : x; }
template <class T> __device__ __forceinline__ T score_min(T a, T b) { return b < a ? b : a; }
template <class T> __device__ __forceinline__ T score_max(T a, T b) { return a < b ? b : a; }
__device__ __forceinline__ float score_exp(float x) { return exp2_fast(x * 1.44269504088896341f); }
__device__ __forceinline__ float score_log(float x) { return logf(x); }
__device__ __forceinline__ float score_sqrt(float x) { return sqrtf(x); }
// 1 - 2 / (e^2x + 1), to 2^-23 of 1: what counts is a score's error, not a small score's. Not the unit's own tanh, to 2^-11 of
// itself: of a score of 15 that is 0.7 % of its weight, and scores of gradients are not bit for bit the forward pass's.
// SCORE_ENLARGED: it is multiplied by a large number, so that a small one counts, too: to 2^-21 of itself.
__device__ __forceinline__ float score_tanh(float x) {
#if SCORE_ENLARGED
    const float squared = x * x;
    if (squared < 0.0625f) return x * fmaf(squared, fmaf(squared, fmaf(squared, -0.05396825f, 0.13333333f), -0.33333333f), 1);
#endif
    return 1 - __fdividef(2, exp2_fast(x * 2.88539008177792681f) + 1);
}
// x (c0 + c1 x^2 ...), by which tanh(x) is to 2^-16.8 of itself up to 0.15 by two terms, up to 0.4 by three, up to 1 by five: the terms
// of s, where x is scale s. Where gradients have score_tanh, weights of both passes agree to half a rounding of fp16, of a score up to 20.
constexpr int SMALL_TERMS = 3;
constexpr float SMALL_TANH = 0.4f;
template <int TERMS> __device__ __forceinline__ void tanh_terms(float (&c)[TERMS], float scale) {
    constexpr float OF[][5] = {{0.99999166f, -0.33035788f},
                               {0.99999374f, -0.33262587f, 0.12127825f},
                               {},
                               {0.99999309f, -0.33298069f, 0.13036828f, -0.04481778f, 0.00903652f}};
    float power = scale;
#pragma unroll
    for (int n = 0; n < TERMS; n++, power *= scale * scale) c[n] = power * OF[TERMS - 2][n];
}
// Of their sum, without x.
template <int TERMS> __device__ __forceinline__ float tanh_sum(const float (&c)[TERMS], float squared) {
    float sum = c[TERMS - 1];
#pragma unroll
    for (int n = TERMS - 2; n >= 0; n--) sum = fmaf(sum, squared, c[n]);
    return sum;
}
// Its slope, by tanh itself; 0 of an infinity.
__device__ __forceinline__ float score_tanh_slope(float y) { return fmaxf(fmaf(-y, y, 1), 0); }

// A row's or a key's number, as a float, too: conversions are slow. Exact: there are fewer than 2^24 of either.
struct ScoreIndex {
    int n;
    float x;
    __device__ __forceinline__ explicit ScoreIndex(int n) : n(n), x(float(n)) {}
    __device__ __forceinline__ ScoreIndex(int n, float x) : n(n), x(x) {}
    __device__ __forceinline__ ScoreIndex operator+(int more) const { return {n + more, x + more}; }
};

// The element of the array that is read at [..., i, j] alone (SCORE_TILE: of its row i); 0 where there is none.
__device__ __forceinline__ float score_tile(const Scoring& w, const ScoredHead& head, int i, int j) {
#ifdef SCORE_TILE
    [[maybe_unused]] const int b = head.b, h = head.h;
    return key_of(SCORE_TILE, j);
#else
    return 0;
#endif
}

// What the macros name; T is what their numbers are of.
#define SCORE_NAMES                                                                                                      \
    typedef float T;                                                                                                     \
    [[maybe_unused]] const int b = head.b, h = head.h, Nq = head.Nq, Nk = head.Nk, i = row.n, j = key.n;                 \
    [[maybe_unused]] const float fi = row.x, fj = key.x

#if SCORE_FOLDED
#define SCORE_OF_S SCORE_CORE
#else
#define SCORE_OF_S SCORE
#endif

// Whether a pair has a score at all.
__device__ __forceinline__ bool score_keeps(const Scoring& w, const ScoredHead& head, ScoreIndex row, ScoreIndex key,
                                            [[maybe_unused]] float tile) {
    SCORE_NAMES;
#ifdef SCORE_KEEPS
    return SCORE_KEEPS;
#else
    return true;
#endif
}
#if SCORE_LINEAR
// What is added to s; by how much that grows from this key to the next; on which side of each bend of the line a pair is.
__device__ __forceinline__ float score_rest(const Scoring& w, const ScoredHead& head, ScoreIndex row, ScoreIndex key) {
    SCORE_NAMES;
#ifdef SCORE_REST
    return SCORE_REST;
#else
    return 0;
#endif
}
__device__ __forceinline__ float score_step(const Scoring& w, const ScoredHead& head, int row_at, int key_at) {
    const ScoreIndex row(row_at), key(key_at);
    SCORE_NAMES;
#ifdef SCORE_STEP
    return SCORE_STEP;
#else
    return 0;
#endif
}
__device__ __forceinline__ int score_sides(const Scoring& w, const ScoredHead& head, int row_at, int key_at) {
    const ScoreIndex row(row_at), key(key_at);
    SCORE_NAMES;
    return SCORE_SIDES;
}
#endif
// A score from s, with the scale 1; SCORE_FOLDED: without the constants around it and around s, which the scales have. `tile`:
// score_tile of the same pair.
__device__ __forceinline__ float changed_score(const Scoring& w, const ScoredHead& head, float s, ScoreIndex row, ScoreIndex key,
                                               [[maybe_unused]] float tile) {
    SCORE_NAMES;
#if defined(SCORE_KEEPS) && !SCORE_BITS
    if (!(SCORE_KEEPS)) return -SCORE_INFINITY;
#endif
    return SCORE_OF_S;
}
__device__ __forceinline__ float score_slope(const Scoring& w, const ScoredHead& head, float s, ScoreIndex row, ScoreIndex key,
                                             [[maybe_unused]] float tile) {
    SCORE_NAMES;
#ifdef SCORE_KEEPS
    if (!(SCORE_KEEPS)) return 0;
#endif
    return SCORE_SLOPE;
}
#ifdef SCORE_SLOPE_AFTER
// The slope of a score, by the changed one; 0 where there is none.
__device__ __forceinline__ float slope_after(float s) {
    typedef float T;
    return SCORE_SLOPE_AFTER;
}
#endif
__device__ __forceinline__ float changed_score(const Scoring& w, const ScoredHead& head, float s, int i, int j) {
    return changed_score(w, head, s, ScoreIndex(i), ScoreIndex(j), score_tile(w, head, i, j));
}
__device__ __forceinline__ float* score_gradient_at(const Scoring& w, const ScoredHead& head, int i, int j) {
    return w.gradient + ((head.b - w.first_batch) * w.heads + head.h) * w.gradient_head + (long long)i * w.gradient_row + j;
}
#endif
