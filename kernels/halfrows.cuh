#pragma once
// Attention of 16-bit numbers in the fragments of tensor cores: which rows are a tile's, the online softmax of 16 rows of a warp,
// and O. One copy for wgmma (half) and mma.sync (half_mma, half_split); what a launch passes to these and to half_cores.
//
// Of 16 x 8 numbers lane l holds rows l/4 and l/4 + 8, columns 2(l%4) and +1. COLUMNS of O are computed, DV rounded up; ONES: the
// tensor cores sum P.

#include "exponentials.cuh"
#include "pairs.cuh"
#include "schedule.cuh"
#include "sixteen.cuh"
#include "scored.cuh"

#ifndef DV  // columns of V and O
#define DV D
#endif
#ifndef POLYNOMIAL  // of 16 exponentials, how many are by polynomial
#define POLYNOMIAL 0
#endif
#ifndef IN_ORDER  // scores of so many blocks of 8 keys are weighed before the next ones; 0: in the compiler's order
#define IN_ORDER 0
#endif
#if POLYNOMIAL
#define LARGER larger_or_nan
#else
#define LARGER fmaxf
#endif
#ifndef GROUP_ROWS  // of so many rows, computed together, a head's first tile lacks those that its rows do not fill
#define GROUP_ROWS BR
#endif
#ifndef SEQUENCES  // whether sequences of several lengths are computed at once
#define SEQUENCES 0
#endif

struct HalfMatrices { Matrix<const unsigned short> q, k, v; };

// Some rows of a batch of Q, and the keys that these see, of the same batch; its tiles of rows are numbered from `tile` on. `number`:
// of a call's sequences; b, to scores.
struct Sequence { int batch, row, rows, key, keys, causal_offset, number, tile, tiles; };

// What a launch passes beside Q, K and V; hw4cli/plans/half.py lays out the same bytes.
struct HalfWork {
    Matrix<unsigned short> o;
    float* lse;                  // (batches, heads, Nq), natural; null where it is not wanted
    int heads, group;            // heads of Q and O; how many of them share a head of K and V
    int batch_heads, Nq, Nk;
    int causal_offset;           // causal: row i sees the keys 0 to i + causal_offset
    int row_tiles, tiles;        // of a head; of all heads
    int splits;                  // of the keys (half_split)
    int section;                 // causal, or SCORE_SECTIONS: heads that are worked on together; what they share stays in the L2 cache
    float scale;                 // of the scores, times log2(e); more than 0
    float unscale, room;         // 1 / scale, and (RESCALE_THRESHOLD + BIAS) / scale: what a score may reach (outgrown)
    int lse_rows;                // Nq, also where Nq is a sequence's
    int window;                  // WINDOW: of the keys that a row sees by causal_offset, the last so many
    const Sequence* sequences;   // SEQUENCES: of each tile of rows, its sequence
#if SCORED
    Scoring scoring;             // `scale` is log2(e): changed scores have the scale 1
#endif
};

constexpr float BIAS = BFLOAT16 ? 0 : 7;  // P is held as 2^(s - m + BIAS): fp16 then holds small weights, too

// ---- Which rows

struct RowTile {
    int row0, head, batch;
    int key_tiles;  // that some row sees; at least one, so that every tile is alike
#if WINDOW
    int hidden;  // keys before these, whole tiles
#else
    static constexpr int hidden = 0;
#endif
#if SEQUENCES
    Sequence sequence;  // in which row0 is counted
    __device__ __forceinline__ int first_row() const { return sequence.row; }
    __device__ __forceinline__ int first_key() const { return sequence.key + hidden; }
#else
    __device__ __forceinline__ int first_row() const { return 0; }
    __device__ __forceinline__ int first_key() const { return hidden; }
#endif
};

// How many keys a row sees: always the first ones, or, WINDOW, up to before which. Not more than 0 where it sees none.
__device__ __forceinline__ int keys_of(const HalfWork& p, int row) {
    return CAUSAL ? min(p.Nk, row + p.causal_offset + 1) : p.Nk;
}
__device__ __forceinline__ int key_tiles_of(const HalfWork& p, int last_row) {
    return max(1, ceil_div(keys_of(p, last_row), BC));
}

// A tile of BR rows, and as many tiles of keys as see some of them: all of those before the last, or, WINDOW, those from the first
// one on that is not hidden from all rows. Whole groups that rows do not fill come before the first row, at negative numbers:
// causal, rows there have the fewest keys, and at the end the most.
__device__ __forceinline__ RowTile tile_of(const HalfWork& p, int tile, int head, int batch) {
    RowTile t;
    t.row0 = tile * BR - (GROUP_ROWS < BR ? (BR - 1 - (p.Nq - 1) % BR) / GROUP_ROWS * GROUP_ROWS : 0);
    t.head = head, t.batch = batch, t.key_tiles = key_tiles_of(p, t.row0 + BR - 1);
#if WINDOW
    const int skipped = min(first_key_of(p, t.row0) / BC, t.key_tiles - 1);
    t.hidden = skipped * BC, t.key_tiles -= skipped;
#endif
    return t;
}

#if SEQUENCES
// The sizes of a tile's sequence in the place of the arrays', and where its rows of O and the LSE begin.
__device__ __forceinline__ HalfWork of_sequence(const HalfWork& p, const Sequence& s) {
    HalfWork one = p;
    one.Nq = s.rows, one.Nk = s.keys, one.causal_offset = s.causal_offset;
    one.o.data += s.row * p.o.row;
    if (p.lse) one.lse += s.row;
    return one;
}
#endif
#if SEQUENCES || WINDOW
// What a tile's rows and keys are counted in: its sequence, and the keys that are not hidden from all of its rows.
__device__ __forceinline__ HalfWork work_of(const HalfWork& p, const RowTile& t) {
#if SEQUENCES
    HalfWork one = of_sequence(p, t.sequence);
#else
    HalfWork one = p;
#endif
    one.Nk -= t.hidden, one.causal_offset -= t.hidden;
    return one;
}
#else
__device__ __forceinline__ const HalfWork& work_of(const HalfWork& p, const RowTile&) { return p; }
#endif

#if SEQUENCES

// Tiles of a sequence follow one another; causal: the longest ones of all heads first.
__device__ __forceinline__ RowTile row_tile(const HalfWork& p, int n) {
    const Sequence s = p.sequences[n / p.heads];
    const int rest = n - s.tile * p.heads, before = CAUSAL ? rest / p.heads : rest / s.tiles;
    const int head = CAUSAL ? rest - before * p.heads : before, tile = CAUSAL ? s.tiles - 1 - before : rest - before * s.tiles;
    RowTile t = tile_of(of_sequence(p, s), tile, head, s.batch);
    t.sequence = s;
    return t;
}
#else
// Causal: the longest tiles first, of a section of heads at a time; SCORE_SECTIONS: such sections without a mask, too. SCORE_ACROSS: a
// head of all batches, then the next one.
__device__ __forceinline__ RowTile row_tile(const HalfWork& p, int n) {
    int tile, head;
    if (CAUSAL || SCORE_SECTIONS) {
        const int section = n / (p.section * p.row_tiles), first = section * p.section;
        const int heads = min(p.section, p.batch_heads - first), rest = n - first * p.row_tiles;
        tile = p.row_tiles - 1 - rest / heads, head = first + rest % heads;
    } else {
        head = n / p.row_tiles, tile = n - head * p.row_tiles;
    }
#if SCORE_ACROSS
    const int batches = p.batch_heads / p.heads, of = head / batches;
    return tile_of(p, tile, of, head - of * batches);
#else
    const int batch = head / p.heads;
    return tile_of(p, tile, head - batch * p.heads, batch);
#endif
}
#endif

// ---- The softmax

struct RowState {
    float O[COLUMNS / 8][4];
    float l[4];         // of a thread's columns; of all, where ONES
    float shift[2], shrink[2];  // P = 2^(scale s - shift), shift = scale m - BIAS; what O is due to be multiplied by
    bool grown;
#if SCORE_LINEAR
    float base[2] = {0, 0};  // what is added to scale s of a row's scores
    __device__ __forceinline__ float lost(int h) const { return shift[h] - base[h]; }
    __device__ __forceinline__ float bias(int h) const { return base[h] - BIAS; }
#else
    __device__ __forceinline__ float lost(int h) const { return shift[h]; }  // how much less than scale s an exponent is
    __device__ __forceinline__ float bias(int) const { return -BIAS; }
#endif
};

__device__ __forceinline__ void zero(RowState& r) {
    UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int e = 0; e < 4; e++) r.O[n][e] = 0;
}
// The largest number of a row, of which each of four lanes has one.
__device__ __forceinline__ float top_of_lanes(float x) {
#if POLYNOMIAL  // which would make 0 of NaN: a row that has it, or an infinity, becomes NaN by its m
    const float top = lanes_max<4>(x < -MINUS_INFINITY ? x : -MINUS_INFINITY);
    return top < -MINUS_INFINITY ? top : top - top;
#else
    return lanes_max<4>(x);
#endif
}
template <int N> __device__ __forceinline__ void row_tops(const float (&S)[N][4], float (&top)[2]) {
    UNROLL for (int h = 0; h < 2; h++) {
        float a = S[0][2 * h], b = S[0][2 * h + 1];
        UNROLL for (int n = 1; n < N; n++) a = LARGER(a, S[n][2 * h]), b = LARGER(b, S[n][2 * h + 1]);
        top[h] = top_of_lanes(LARGER(a, b));
    }
}
// The scores become weights, P.
template <int N> __device__ __forceinline__ void exponentiate(float (&S)[N][4], RowState& r, float scale) {
#if POLYNOMIAL
    static_assert(!SCORED, "a NaN among changed scores may have a sign, by which m does not see it");
    const Powers powers[2] = {{scale, r.lost(0)}, {scale, r.lost(1)}};
#endif
    UNROLL for (int n = 0; n < N; n++) {
        UNROLL for (int e = 0; e < 4; e++) {
#if POLYNOMIAL
            if (by_polynomial(n * 4 + e, POLYNOMIAL)) S[n][e] = powers[e / 2].of(S[n][e]);
            else
#endif
                S[n][e] = exp2_fast(fmaf(S[n][e], scale, -r.lost(e / 2)));
            if (!ONES) r.l[e] += S[n][e];
        }
#if IN_ORDER
        if ((n + 1) % IN_ORDER == 0 || n + 1 == N) keep_order(S);
#endif
    }
}
template <int N> __device__ __forceinline__ void begin_maximum(const float (&S)[N][4], RowState& r, float scale) {
    float m[2];
    row_tops(S, m);
    UNROLL for (int h = 0; h < 2; h++) {
#if SCORE_LINEAR
        r.shift[h] = fmaxf(fmaf(m[h], scale, r.bias(h)), LOWEST);
#else
        r.shift[h] = fmaf(m[h] == MINUS_INFINITY ? 0 : m[h], scale, r.bias(h));  // or without keys
        if ((WINDOW || SCORED) && m[h] == MINUS_INFINITY) r.shift[h] = LOWEST;  // its keys may be still to come
#endif
    }
    UNROLL for (int e = 0; e < 4; e++) r.l[e] = 0;
}
// Lazy: m stays until a score has passed it so far that P could pass 2^(BIAS + RESCALE_THRESHOLD). Scores are compared as
// integers, which is right from 0 on; a row whose m lies below that looks at its scores each time.
template <int N> __device__ __forceinline__ bool outgrown(const float (&S)[N][4], const RowState& r, const HalfWork& p) {
    int top[2] = {0, 0};
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int h = 0; h < 2; h++) raise_bits(top[h], S[n][2 * h], S[n][2 * h + 1]);
    bool grown = false;
    if ((WINDOW || SCORED) && !SCORE_LINEAR)  // whatever its bits are times a tiny number, which the scale of lines is not
        grown |= r.shift[0] == LOWEST || r.shift[1] == LOWEST;
    UNROLL for (int h = 0; h < 2; h++) grown |= top[h] > max(-1, __float_as_int(fmaf(r.lost(h), p.unscale, p.room)));
    return grown;
}
template <int N> __device__ __forceinline__ void raise_maximum(const float (&S)[N][4], RowState& r, float scale) {
    float tops[2];
    row_tops(S, tops);
    UNROLL for (int h = 0; h < 2; h++) {
        const float shift = LARGER(r.shift[h], fmaf(tops[h], scale, r.bias(h)));
        r.shrink[h] = exp2_fast(r.shift[h] - shift), r.shift[h] = shift;
    }
    if (!ONES) UNROLL for (int e = 0; e < 4; e++) r.l[e] *= r.shrink[e / 2];
}
__device__ __forceinline__ void rescale(RowState& r) {
    if (!r.grown) return;
    UNROLL for (int n = 0; n < COLUMNS / 8; n++) UNROLL for (int e = 0; e < 4; e++) r.O[n][e] *= r.shrink[e / 2];
    if (ONES) UNROLL for (int e = 0; e < 4; e++) r.l[e] *= r.shrink[e / 2];
}
// P in 16 bits, as the products take it from registers.
template <int N> __device__ __forceinline__ void round_weights(const float (&S)[N][4], unsigned (&P)[N / 2][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int h = 0; h < 2; h++)
        P[n / 2][n % 2 * 2 + h] = pack(S[n][2 * h], S[n][2 * h + 1]);
}
__device__ __forceinline__ Seen seen_of(const HalfWork& p, int row, int from) {
    return Seen{first_key_of(p, row), keys_of(p, row)}.after(from);
}
// No weight for keys that a row does not see, of this thread's two rows; they are counted from the first score's.
template <int N> __device__ __forceinline__ void mask(float (&S)[N][4], Seen seen, Seen below) {
    const int column = threadIdx.x % 4 * 2;
    UNROLL for (int h = 0; h < 2; h++) UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++) {
        const Seen& row = h ? below : seen;
        if (n * 8 + e >= row.end - column || (WINDOW && n * 8 + e < row.first - column)) S[n][2 * h + e] = MINUS_INFINITY;
    }
}
// The same for rows that follow each other, of which this thread's first is `row`; `first` is the first key's number.
template <int N> __device__ __forceinline__ void mask(float (&S)[N][4], const HalfWork& p, int row, int first) {
    mask(S, seen_of(p, row, first), seen_of(p, row + 8, first));
}
#if SCORED
#if SCORE_TILE_BYTES
// What this thread needs of one row of the array that is read as tiles, for N blocks of 8 keys: of each block two elements. Of
// four blocks each of the four lanes of a row reads all of one, and they exchange them.
template <int N> struct ScoreTile {
    static constexpr int BYTES = SCORE_TILE_BYTES, PARTS = BYTES == 4 ? 2 : 1;
    unsigned words[PARTS][ceil_div(N, 4) * 4];
    template <class T> __device__ __forceinline__ void load(const ScoreRow<T>& row, int first) {
        const int lane = threadIdx.x % 4;
        UNROLL for (int from = 0; from < N; from += 4) {
            const int column = first + (from + lane) * 8;
            unsigned x[2][4] = {};
            if (from + lane < N && column + 8 <= row.size) {
                const char* at = (const char*)(row.data + column);
                if (BYTES == 1) {
                    const uint2 a = *(const uint2*)at;
                    x[0][0] = a.x & 0xffff, x[0][1] = a.x >> 16, x[0][2] = a.y & 0xffff, x[0][3] = a.y >> 16;
                } else {
                    const uint4 a = *(const uint4*)at;
                    x[0][0] = a.x, x[0][1] = a.y, x[0][2] = a.z, x[0][3] = a.w;
                }
                if (BYTES == 4) {
                    const uint4 a = {x[0][0], x[0][1], x[0][2], x[0][3]}, b = *(const uint4*)(at + 16);
                    x[0][0] = a.x, x[1][0] = a.y, x[0][1] = a.z, x[1][1] = a.w;
                    x[0][2] = b.x, x[1][2] = b.y, x[0][3] = b.z, x[1][3] = b.w;
                }
            } else if (from + lane < N) {  // at the end of a row
                UNROLL for (int e = 0; e < 8; e++) {
                    const unsigned one = score_bits(row.data[max(0, min(column + e, row.size - 1))]);
                    if (BYTES == 4) x[e % 2][e / 2] = one;
                    else x[0][e / 2] |= one << e % 2 * BYTES * 8;
                }
            }
            UNROLL for (int part = 0; part < PARTS; part++) {
                exchange_pairs(x[part]);
                UNROLL for (int n = 0; n < 4; n++) words[part][from + n] = x[part][n];
            }
        }
    }
    __device__ __forceinline__ float at(int n, int e) const {
        if (BYTES == 4) return __uint_as_float(words[e % PARTS][n]);
        const unsigned x = words[0][n] >> e * BYTES * 8;
        return BYTES == 1 ? float((unsigned char)x) : score_number(ScoreElement(x));
    }
};
#else
template <int N> struct ScoreTile {
    template <class Row> __device__ __forceinline__ void load(const Row&, int) {}
    __device__ __forceinline__ float at(int, int) const { return 0; }
};
#endif
// Of one row, i, of a head.
template <int N> __device__ __forceinline__ void load_score_row(ScoreTile<N>& tile, const Scoring& w, const ScoredHead& head, int i,
                                                                int first) {
#if SCORE_TILE_BYTES
    [[maybe_unused]] const int b = head.b, h = head.h;
    tile.load(SCORE_TILE, first);
#endif
}
// Half of this thread's scores, of one of its two rows, row i of a head: what is made of them. Key `first` is the first one's.
template <int N> __device__ __forceinline__ void change_row(float (&S)[N][4], int h, const Scoring& w, const ScoredHead& head,
                                                            int i, int first, const ScoreTile<N>& tile) {
    const ScoreIndex row(i), key(first + int(threadIdx.x) % 4 * 2);
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 2; e++) {
        float& s = S[n][2 * h + e];
        const ScoreIndex at = key + (n * 8 + e);
        s = changed_score(w, head, s * w.scale, row, at, SCORE_TILE_BYTES ? tile.at(n, e) : score_tile(w, head, i, at.n));
    }
}
__device__ __forceinline__ ScoredHead head_of(const HalfWork& p, const RowTile& t) {
#if SEQUENCES
    return {t.sequence.number, t.head, t.sequence.rows, t.sequence.keys};
#else
    return scored_head(p.scoring, t.batch, t.head);
#endif
}
// All of its scores: `row` is its first row, and key `first` the first one, as the tile counts them. What is read for them can be
// loaded before.
template <int N> struct ScoreTiles {
    ScoreTile<N> of_row[2];
    __device__ __forceinline__ void load(const HalfWork& p, const RowTile& t, int row, int first) {
        UNROLL for (int h = 0; h < 2; h++) load_score_row(of_row[h], p.scoring, head_of(p, t), row + 8 * h, t.hidden + first);
    }
};
template <int N> __device__ __forceinline__ void change_scores(float (&S)[N][4], const HalfWork& p, const RowTile& t, int row,
                                                               int first, const ScoreTiles<N>& tiles) {
    UNROLL for (int h = 0; h < 2; h++) change_row(S, h, p.scoring, head_of(p, t), row + 8 * h, t.hidden + first, tiles.of_row[h]);
}
#else
template <int N> struct ScoreTiles {
    __device__ __forceinline__ void load(const HalfWork&, const RowTile&, int, int) {}
};
template <int N> __device__ __forceinline__ void change_scores(float (&)[N][4], const HalfWork&, const RowTile&, int, int,
                                                               const ScoreTiles<N>&) {}
#endif
// Whether some row of `rows` from `row` on does not see all of `count` keys from `first` on.
__device__ __forceinline__ bool needs_mask(const HalfWork& p, int row, int rows, int first, int count) {
    return first + count > keys_of(p, row) || (WINDOW && first < first_key_of(p, row + rows - 1));
}

// ---- O

// l of a row, of all four lanes that have columns of it.
__device__ __forceinline__ float row_sum(const RowState& r, int h) {
    return ONES ? r.l[2 * h] : lanes_sum<4>(r.l[2 * h] + r.l[2 * h + 1]);
}
__device__ __forceinline__ float& lse_of(const HalfWork& p, const RowTile& t, int row) {
    return p.lse[(long long)(t.batch * p.heads + t.head) * (SEQUENCES ? p.lse_rows : p.Nq) + row];
}
__device__ __forceinline__ void store(const RowState& r, const HalfWork& p, const RowTile& t, int row0) {
    const int lane = threadIdx.x % 4;
    UNROLL for (int h = 0; h < 2; h++) {
        const float l = row_sum(r, h), over = l == 0 ? 0 : __frcp_rn(l);
        const int row = row0 + 8 * h;
        unsigned short* o = p.o.data + t.batch * p.o.batch + t.head * p.o.head + row * p.o.row;
        UNROLL for (int g = 0; g < COLUMNS / 32; g++) {
            unsigned x[4];
            UNROLL for (int n = 0; n < 4; n++)
                x[n] = pack(r.O[g * 4 + n][2 * h] * over, r.O[g * 4 + n][2 * h + 1] * over);
            exchange_pairs(x);
            const int column = g * 32 + lane * 8;
            if (row < p.Nq && column < DV) *(uint4*)(o + column) = make_uint4(x[0], x[1], x[2], x[3]);
        }
        if (p.lse && lane == 0 && row < p.Nq) lse_of(p, t, row) = l == 0 ? MINUS_INFINITY : (r.shift[h] + log2f(l)) * LN2;
    }
}
