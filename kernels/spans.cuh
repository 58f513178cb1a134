#pragma once
// Sequences of several lengths in one launch of gradients: where each lies in the arrays.

#ifndef SEQUENCES  // whether sequences of several lengths are computed at once
#define SEQUENCES 0
#endif

#include "score.cuh"

// Some rows of a batch of Q, and the keys that these see, of the same batch. A table has, for each tile of rows or of keys that blocks
// take, the sequence that it is of; a sequence's tiles follow one another in it. In scratch, sequences lie one after the other in
// whole tiles of rows, or of keys. hw4cli/plans/spans.py makes the tables.
struct __align__(16) Span {
    int batch, row, rows, key, keys, causal_offset;
    int number;                 // of a call's sequences; b, to scores
    int first, tiles;           // the number of its first tile in this table, and how many it has
    int query_tile, key_tile;   // its first tile of rows, and of keys, in scratch
    int unused;
};

#if SCORED
// A sequence in the place of the arrays, for scores, which then are of the batch 0.
__device__ __forceinline__ void move(Scoring& w, const Span& s) {
    if (SCORE_GRADIENT) w.gradient += (s.number - w.first_batch) * w.heads * w.gradient_head;
    w.first_batch = s.number, w.Nq = s.rows, w.Nk = s.keys;
}
#endif
