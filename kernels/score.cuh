#pragma once
// SCORED: what a user does with scores before the softmax. hw4cli/problem/scores.py writes the macros: SCORE, a score of s, b, h,
// i, j, Nq and Nk; SCORE_SLOPE, by how much it grows with s, and SCORE_SLOPES, whether that is not 1 everywhere; SCORE_KEEPS,
// where it is defined, whether a pair has a score at all; SCORE_TILE, row i of an array that is read at [..., i, j] or [..., j] alone,
// and SCORE_TILE_BYTES, those of an element where 16 bytes of a row can be read at once; SCORE_VIEWS, how many arrays these name at
// most, as element_at<T>(w.views[n], …). Where a score is SCORE_OUTER tanh(SCORE_INNER s), SCORE_SLOPE_AFTER is its slope, by the
// changed s. What follows is for half alone (halfscores.cuh).

#ifndef SCORED
#define SCORED 0
#endif
#ifndef SCORE_TILE_BYTES
#define SCORE_TILE_BYTES 0
#endif
#ifndef SCORE_FOLDED  // whether SCORE_CORE is computed: the scales have the constants around it and around its s
#define SCORE_FOLDED 0
#endif
#ifndef SCORE_LINEAR  // whether a score is s and SCORE_REST, which grows by SCORE_STEP from key to key while SCORE_SIDES stays
#define SCORE_LINEAR 0
#endif
#ifndef SCORE_RISES  // SCORE_LINEAR: whether there is a SCORE_STEP
#define SCORE_RISES 0
#endif
#ifndef SCORE_ORDERED  // SCORE_RISES: whether tiles of keys are computed from where the line is highest
#define SCORE_ORDERED 0
#endif
#ifndef SCORE_TANH  // whether SCORE_CORE is tanh(s)
#define SCORE_TANH 0
#endif
#ifndef SCORE_TILE_ROWS  // whether it has a row for each i, not one for all
#define SCORE_TILE_ROWS 1
#endif
#ifndef SCORE_ACROSS  // whether a head of all batches is computed at once, as that array is the same for them
#define SCORE_ACROSS 0
#endif
#ifndef SCORE_SECTIONS  // whether some rows of several heads are computed at once, as that array is the same for these
#define SCORE_SECTIONS 0
#endif
#ifndef SCORE_SHARED  // bytes of shared memory for a tile of SCORE_TILE's array
#define SCORE_SHARED 0
#endif
#ifndef SCORE_BITS  // whether a launch before has found which pairs have a score: 1, the same for all heads; 2, for those of a batch
#define SCORE_BITS 0
#endif
#ifndef SCORE_ENLARGED  // whether a tanh is multiplied by a large number, or by one that is not known
#define SCORE_ENLARGED 0
#endif
#ifdef SCORE_KEEPS  // whether a pair may have no score
#define SCORE_KEPT 1
#else
#define SCORE_KEPT 0
#endif
#ifndef SCORE_GRADIENT  // whether gradients of the changed scores are wanted
#define SCORE_GRADIENT 0
#endif

#if SCORED
// hw4cli/plans/scoring.py lays out the same bytes.
struct ScoreView {  // an array of up to four dimensions; of those that it has
    const void* data;
    long long strides[4];  // in elements
    int sizes[4];
};
struct Scoring {
    float scale;  // of the products, from which s comes: the softmax itself then has the scale 1
    int first_batch;
    int heads, first_head, head_step;  // of a batch; float32: where heads are batches, which these are
    int Nq, Nk;
    int gradient_row;         // SCORE_GRADIENT: from a row of the gradients to the next, in elements
    long long gradient_head;  // and from a head to the next
    float* gradient;          // (batches or sequences, heads, rows, keys): of each pair
    ScoreView views[SCORE_VIEWS];
};
// A head, and how many rows and keys there are.
struct ScoredHead { int b, h, Nq, Nk; };
__device__ __forceinline__ ScoredHead scored_head(const Scoring& w, int batch, int head) {
    return {w.first_batch + batch, w.first_head + head * w.head_step, w.Nq, w.Nk};
}

#endif
