// backward_mma: dQ, dK and dV by tensor cores (mma.sync), of 16-bit elements and of float32; the same bits in every run.
//
// Idea:     As backward: two passes, one text, the block that owns a row adds all of it up, in one order. Float32 elements, P and dS are
//           sums of two fp16 numbers, and a product is three: all but lo lo. Each tile of 32 rows is scaled by a power of two of
//           its own, and so is dS, so that fp16 holds them whatever the data. Tensor cores cut off where they add: a tile's sum
//           begins at 0, and float32 adds the sums of tiles. 16-bit elements are one piece; dS of fp16 is scaled, too.
// Geometry: backward_pieces: a block for each 32 rows of Q, O and dO, and of K and V. backward_mma_dq: a block for each
//           16 MI WARPS rows of Q; backward_mma_dkdv: for so many keys, and it adds up all heads of Q that share them. Of more
//           than 128 columns, dK and dV do not fit the registers together: backward_mma_dk and backward_mma_dv, eight products.
// Shared:   2 w (BR + 2 BC) for each piece, w = 2 d rounded up to 64, 128, 256 or 512; KEPT: w max(2 BR, 4 BC). 17 BC for LSE, delta
//           and scales.
// Limits:   Compute capability 8.0. d a multiple of 8 up to 256, of float32 one of 4. Scratch: for float32, as much as Q, dO, K
//           and V together.
// Source:   Dao, FlashAttention-2 (2023), algorithm 2; Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores
//           (2022), for products of hi and lo and sums outside of the tensor cores.
// Before:   backward, by FFMA.

#include "gradients.cuh"
#include "mma.cuh"
#include "platform.cuh"
#include "scored.cuh"
#include "spans.cuh"

// ---- The pieces
//
// What tensor cores take for gradients: float32 as sums of two fp16 numbers, scaled by powers of two; 16-bit elements as they
// are.
//
// An element x becomes hi + lo = factor x to 22 bits, hi and lo in fp16. A tile of TILE rows of a head has a factor of its own,
// which brings its largest element to 2^14 to 2^15; of dO, the largest sum of |elements| of a row. So |dP| < 2^30, whatever the
// data, |delta| is not more than that sum times O's largest element, and from both follows the factor of dS, |dS| <= 2^15. What
// is 2^40 times smaller than the largest of its tile counts as 0.

constexpr int PIECES = ELEMENT_BITS == 32 ? 2 : 1;
constexpr bool SCALED = !BFLOAT16;           // bf16 has the range of float32
constexpr float BIAS = SCALED ? 14 : 0;      // P is held as 2^BIAS P
constexpr int COLUMNS = ceil_div(D, 8) * 8;  // of a row of a piece
constexpr int TILE = 32, WARPS_OF_ROWS = THREADS / 32, EACH = TILE / WARPS_OF_ROWS;  // rows of a tile; of them, a warp's
#define INFINITE __int_as_float(0x7f800000)
#define LARGEST __int_as_float(0x7f7fffff)

static_assert(EACH * WARPS_OF_ROWS == TILE, "a warp has whole rows");

// The powers of two of a tile, and their inverses.
struct QueryScale { float over_q, over_dO, o, over_o; };
struct KeyScale { float over_k, over_v, v, unused; };

struct PiecesParams : BackwardParams {
    Matrix<const unsigned short> q_pieces, k_pieces, v_pieces, dO_pieces;  // rows of PIECES * COLUMNS, or the arrays themselves
    QueryScale* query_scales;  // of each tile of each head
    KeyScale* key_scales;
    float2* rows;              // for each row of Q, up to whole tiles: BIAS - LSE log2(e), -delta times the factor of dO's pieces
    int query_tiles, key_tiles;  // of a head
    int query_stride, key_stride;  // SEQUENCES: of all sequences of a head, where the tiles above are those of one
    const Span* query_spans;   // SEQUENCES: of each of these tiles, its sequence
    const Span* key_spans;
    const Span* dq_spans;      // and of the tiles that blocks own
    const Span* dkdv_spans;
};

#if SEQUENCES
template <class T> __device__ __forceinline__ void move(Matrix<T>& m, int batch, int row) {
    m.data += batch * m.batch + row * m.row;
}
// A sequence in the place of the arrays, as if these were of one batch.
__device__ __forceinline__ PiecesParams of_sequence(const PiecesParams& p, const Span& s) {
    PiecesParams one = p;
    one.Nq = s.rows, one.Nk = s.keys, one.causal_offset = s.causal_offset;
    move(one.q, s.batch, s.row), move(one.o, s.batch, s.row), move(one.dO, s.batch, s.row), move(one.dq, s.batch, s.row);
    move(one.k, s.batch, s.key), move(one.v, s.batch, s.key), move(one.dk, s.batch, s.key), move(one.dv, s.batch, s.key);
    move(one.q_pieces, s.batch, s.row), move(one.dO_pieces, s.batch, s.row);
    move(one.k_pieces, s.batch, s.key), move(one.v_pieces, s.batch, s.key);
    one.lse += s.batch * p.lse_batch + s.row;
    one.query_scales += s.query_tile, one.key_scales += s.key_tile, one.rows += (long long)s.query_tile * TILE;
    one.query_tiles = ceil_div(s.rows, TILE), one.key_tiles = ceil_div(s.keys, TILE);
#if SCORED
    move(one.scoring, s);
#endif
    return one;
}
// What a tile's rows are counted in: its sequence; and that one's first tile.
#define QUERY_STRIDE query_stride  // tiles from a head to the next
#define KEY_STRIDE key_stride
#define WORK_OF(p, spans, tile) of_sequence(p, (spans)[tile])
#define FIRST_OF(spans, tile) (spans)[tile].first
#else
#define QUERY_STRIDE query_tiles
#define KEY_STRIDE key_tiles
#define WORK_OF(p, spans, tile) (p)
#define FIRST_OF(spans, tile) 0
#endif

__device__ __forceinline__ float finite_abs(float x) { return fabsf(x) < INFINITE ? fabsf(x) : 0; }
__device__ __forceinline__ float largest(float4 x) {
    return fmaxf(fmaxf(finite_abs(x.x), finite_abs(x.y)), fmaxf(finite_abs(x.z), finite_abs(x.w)));
}
__device__ __forceinline__ float size(float4 x) { return finite_abs(x.x) + finite_abs(x.y) + finite_abs(x.z) + finite_abs(x.w); }

// The power of two that brings a number to 2^14 to 2^15, and its inverse; both are normal numbers.
__device__ __forceinline__ unsigned exponent_for(float top) { return min(253, 268 - int(__float_as_uint(top) >> 23)); }
__device__ __forceinline__ float factor_for(float top) { return __uint_as_float(exponent_for(top) << 23); }
__device__ __forceinline__ float inverse(float power_of_two) {
    return __uint_as_float(0x7f000000 - __float_as_uint(power_of_two));
}
__device__ __forceinline__ float over_factor_for(float top) { return inverse(factor_for(top)); }

// The largest of a block's numbers.
__device__ __forceinline__ float block_max(float x, float* found) {
    x = lanes_max<32>(x);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = x;
    __syncthreads();
    UNROLL for (int n = 0; n < WARPS_OF_ROWS; n++) x = fmaxf(x, found[n]);
    return x;
}

struct Pieces { unsigned piece[PIECES]; };
__device__ __forceinline__ Pieces pieces_of(float x, float y) {
    Pieces r;
    r.piece[0] = pack(x, y);
    if (PIECES == 2) {
        const float2 rounded = unpack(r.piece[0]);
        r.piece[PIECES - 1] = pack(x - rounded.x, y - rounded.y);
    }
    return r;
}

// This thread's columns of a warp's rows of a tile: four of each 128.
constexpr int FOURS = ceil_div(D, 128);
struct Columns {
    float4 x[EACH][FOURS];
    __device__ __forceinline__ Columns(const Matrix<const Element>& m, int batch, int head, int row0, int rows) {
        UNROLL for (int n = 0; n < EACH; n++) {
            const int row = row0 + threadIdx.x / 32 * EACH + n;
            UNROLL for (int f = 0; f < FOURS; f++) {
                const int column = threadIdx.x % 32 * 4 + f * 128;
                x[n][f] = row < rows && column < D ? load_four(rows_of(m, batch, head, row) + column) : float4{0, 0, 0, 0};
            }
        }
    }
    __device__ __forceinline__ float top() const {
        float r = 0;
        UNROLL for (int n = 0; n < EACH; n++) UNROLL for (int f = 0; f < FOURS; f++) r = fmaxf(r, largest(x[n][f]));
        return r;
    }
    __device__ __forceinline__ void store(const Matrix<const unsigned short>& m, int batch, int head, int row0, int rows,
                                          float factor) const {
        UNROLL for (int n = 0; n < EACH; n++) UNROLL for (int f = 0; f < FOURS; f++) {
            const int row = row0 + threadIdx.x / 32 * EACH + n, column = threadIdx.x % 32 * 4 + f * 128;
            if (PIECES != 2 || row >= rows || column >= COLUMNS) continue;
            const float4& four = x[n][f];
            const Pieces a = pieces_of(four.x * factor, four.y * factor), b = pieces_of(four.z * factor, four.w * factor);
            unsigned short* to = const_cast<unsigned short*>(rows_of(m, batch, head, row)) + column;
            UNROLL for (int i = 0; i < PIECES; i++) *(uint2*)(to + i * COLUMNS) = uint2{a.piece[i], b.piece[i]};
        }
    }
};

// A block for each tile of Q, O and dO, then one for each of K and V: their scales and pieces; and for each row, LSE and delta.
extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_pieces(const PiecesParams p) {
    __shared__ float found[3][WARPS_OF_ROWS];
    const int of_queries = p.batches * p.heads * p.QUERY_STRIDE, lane = threadIdx.x % 32;
    if (int(blockIdx.x) < of_queries) {
        const unsigned tile = blockIdx.x % p.QUERY_STRIDE;
        const int head = blockIdx.x / p.QUERY_STRIDE, row0 = (tile - FIRST_OF(p.query_spans, tile)) * TILE, batch = head / p.heads;
        const int in_batch = head % p.heads;
        const PiecesParams& w = WORK_OF(p, p.query_spans, tile);
        const Columns o(w.o, batch, in_batch, row0, w.Nq), d(w.dO, batch, in_batch, row0, w.Nq);
        float factor = 1;
        if (SCALED) {
            float sum = 0;
            UNROLL for (int n = 0; n < EACH; n++) {
                float of_row = size(d.x[n][0]);
                UNROLL for (int f = 1; f < FOURS; f++) of_row += size(d.x[n][f]);
                sum = fmaxf(sum, lanes_sum<32>(of_row));
            }
            const float top_d = block_max(sum, found[0]), top_o = block_max(o.top(), found[1]);
            QueryScale scale{1, over_factor_for(top_d), factor_for(top_o), over_factor_for(top_o)};
            if (PIECES == 2) {
                factor = factor_for(top_d);
                const Columns q(w.q, batch, in_batch, row0, w.Nq);
                const float top_q = block_max(q.top(), found[2]);
                q.store(w.q_pieces, batch, in_batch, row0, w.Nq, factor_for(top_q));
                d.store(w.dO_pieces, batch, in_batch, row0, w.Nq, factor);
                scale.over_q = over_factor_for(top_q);
            }
            if (threadIdx.x == 0) p.query_scales[blockIdx.x] = scale;
        }
        UNROLL for (int n = 0; n < EACH; n++) {
            float of_lane = 0;
            UNROLL for (int f = 0; f < FOURS; f++) {
                const float4 a = d.x[n][f], b = o.x[n][f];
                const float more = a.x * factor * b.x + a.y * factor * b.y + a.z * factor * b.z + a.w * factor * b.w;
                of_lane = f ? of_lane + more : more;
            }
            const float delta = lanes_sum<32>(of_lane);
            const int row = threadIdx.x / 32 * EACH + n;
            const float lse = row0 + row < w.Nq ? lse_of(w, batch, in_batch)[row0 + row] : -INFINITE;
            const float shift = lse == -INFINITE ? lse : BIAS - lse * LOG2E;  // no keys, or past the end: no weights
            if (lane == 0) p.rows[(long long)blockIdx.x * TILE + row] = float2{shift, -delta};
        }
    } else if (SCALED) {
        const int at = blockIdx.x - of_queries, head = at / p.KEY_STRIDE, tile = at % p.KEY_STRIDE;
        const int batch = head / p.kv_heads, in_batch = head % p.kv_heads, row0 = (tile - FIRST_OF(p.key_spans, tile)) * TILE;
        const PiecesParams& w = WORK_OF(p, p.key_spans, tile);
        const Columns v(w.v, batch, in_batch, row0, w.Nk);
        const float top_v = block_max(v.top(), found[0]);
        KeyScale scale{1, over_factor_for(top_v), factor_for(top_v), 0};
        if (PIECES == 2) {
            const Columns k(w.k, batch, in_batch, row0, w.Nk);
            const float top_k = block_max(k.top(), found[1]);
            k.store(w.k_pieces, batch, in_batch, row0, w.Nk, factor_for(top_k));
            v.store(w.v_pieces, batch, in_batch, row0, w.Nk, factor_for(top_v));
            scale.over_k = over_factor_for(top_k);
        }
        if (threadIdx.x == 0) p.key_scales[at] = scale;
    }
}

// In terms of pieces, P = exp2(to_log2 S + row.x) and dS = P (dP ds + row.y delta); and what makes their sums the gradients.
struct Factors {
    float to_log2, ds, delta, dv, dq, dk;
    [[maybe_unused]] float over = 1;  // what makes dS one of the changed score (SCORE_GRADIENT)
    // One piece: the same ones for all heads that share a head of K, so that tensor cores can add up all tiles.
    __device__ __forceinline__ Factors(const PiecesParams& p, int kv)
        : to_log2(p.scale * LOG2E), ds(1), delta(1), dv(1), dq(p.scale), dk(p.scale) {
        if (PIECES == 2 || !SCALED) return;
        const int lane = threadIdx.x % 32, group = p.heads / p.kv_heads;
        float over_dO = 0, over_both = 0;
        for (int n = lane; n < group * p.query_tiles; n += 32) {
            const int at = SEQUENCES ? n / p.query_tiles * p.QUERY_STRIDE + n % p.query_tiles : n;
            const Four x = *(const Four*)(p.query_scales + (long long)kv * group * p.QUERY_STRIDE + at);
            over_dO = fmaxf(over_dO, x.v[1]), over_both = fmaxf(over_both, x.v[3]);
        }
        for (int n = lane; n < p.key_tiles; n += 32)
            over_both = fmaxf(over_both, p.key_scales[(long long)kv * p.KEY_STRIDE + n].over_v);
        over_dO = lanes_max<32>(over_dO), over_both = lanes_max<32>(over_both);
        ds = delta = fminf(inverse(over_dO) * 0x1p-30f * inverse(over_both), LARGEST);
        dv = 0x1p-14f, dq = dk = p.scale * 0x1p16f * over_both * over_dO;
        if (SCORE_GRADIENT) over = 0x1p16f * over_both * over_dO;
    }
    // Two pieces: of a tile of queries and one of keys.
    __device__ __forceinline__ void set(const PiecesParams& p, const Four& query, const Four& key) {
        const float over_k = key.v[0], over_v = key.v[1], over_q = query.v[0], over_dO = query.v[1];
        const float over_both = fmaxf(over_v, query.v[3]);  // of V and O, whichever is larger
        to_log2 = p.scale * LOG2E * over_q * over_k;
        delta = fminf(key.v[2], query.v[2]) * 0x1p-30f, ds = over_v * delta, dv = 0x1p-14f * over_dO;
        const float over = fminf(p.scale * 0x1p16f * over_both * over_dO, LARGEST);
        dq = over * over_k, dk = over * over_q;
        if (SCORE_GRADIENT) this->over = 0x1p16f * over_both * over_dO;
    }
};

// ---- A pass
//
// A pass of gradients by tensor cores: a warp owns 16 MI rows, of Q and dO or (KEYS) of K and V, while all rows that they meet
// pass, BC at a time through two buffers, SUB at once. Scores have what is owned down and what passes across, so that P and dS go
// from accumulator to operand without leaving the registers. KEPT: what is owned stays in registers, too.
//
// Of two pieces, P = exp(S - LSE) is as wrong as the difference between these scores and those from which the forward pass got
// the LSE, and as the LSE's own rounding: both are 2^-24 of a score, which may be thousands. So the pass over queries adds up each
// row's weights, divides dQ by their sum, and dO and delta, of which dK and dV are made, where they lie (normalize).
//
// Delta follows from O, and so from the forward pass's scores, too. Where a block's LSEs are large, keys and values pass it once more
// beforehand, and delta becomes the row's mean of dP by these weights (center).

constexpr int STEPS = ceil_div(D, 16);                    // k16 steps of a score; n16 blocks of a sum
constexpr int WIDTH = D <= 32 ? 32 : D <= 64 ? 64 : D <= 128 ? 128 : 256;  // columns of a row in shared memory
constexpr int SLOTS = WIDTH / 8;                          // chunks of a row there
constexpr unsigned ROW = 2 * WIDTH;

extern __shared__ __align__(1024) float4 shared[];

// The offset of a 16-byte chunk: chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}

__device__ __forceinline__ void store_two(float* to, float x, float y) { *(float2*)to = float2{x, y}; }
__device__ __forceinline__ void store_two(unsigned short* to, float x, float y) { *(unsigned*)to = pack(x, y); }

// SEQUENCES: what is passed stands here, with a block's sequence in the place of the arrays; in registers, it would be too much.
constexpr unsigned PARAMS_ROOM = SEQUENCES ? ceil_div(sizeof(PiecesParams), ROW) * ROW : 0;  // rows stay aligned

// OF_DS, OF_P: whether it sums dS, which gives dQ or dK, and P, which gives dV.
template <bool KEYS, int WARPS, int MI, int BC, int SUB, bool KEPT, bool OF_DS = true, bool OF_P = KEYS> struct Pass {
    static constexpr int LANES = 32 * WARPS, BR = 16 * MI * WARPS, N8 = SUB / 8;
    static constexpr unsigned OWN = BR * ROW, STREAMED = BC * ROW, STAGE = 2 * PIECES * STREAMED;  // of a piece, and of two tiles
    static constexpr unsigned STAGES_AT = KEPT ? 0 : 2 * PIECES * OWN, ROWS_AT = STAGES_AT + 2 * STAGE;
    static constexpr unsigned ROWS = KEYS ? BC * 8 : 0, SCALES = ceil_div(BC, TILE) * 16;  // LSE and delta, scales
    static constexpr unsigned SCALES_AT = ROWS_AT + 2 * ROWS;
    static_assert(BC % SUB == 0 && LANES % SLOTS == 0, "tiles of whole fragments");
    static_assert(PIECES == 1 || TILE % SUB == 0 && MI <= 2, "what is multiplied at once has one factor");
    typedef float Scores[MI][N8][4];
    typedef float Sums[MI][2 * STEPS][4];
    typedef unsigned Fragment[PIECES][MI][4];
    static constexpr bool NORMALIZES = PIECES == 2 && !KEYS;
    static constexpr int UNROLLED = KEPT ? STEPS : 4;  // steps of scores; of dP 2, of center 1: more would spill
    struct Total { float sum; };  // of a row's weights, or of its dS

    const PiecesParams& p;
    unsigned base, own_lane, across_lane, down_lane;  // this lane's row of what is owned; of a tile, for scores and for sums
    int batch, head, own0, warp0;                     // own0, warp0: the first row of the block, and of the warp
    int query_head;                                   // SCORED: of the queries that are met
    Fragment own[KEPT ? 2 : 1][KEPT ? STEPS : 1];

    // The n-th tile that blocks own, of `params`' rows.
    __device__ __forceinline__ Pass(const PiecesParams& params, unsigned n) : p(params), base(shared_address(shared) + PARAMS_ROOM) {
        const int lane = threadIdx.x % 32, tiles = ceil_div(KEYS ? p.Nk : p.Nq, BR), heads = KEYS ? p.kv_heads : p.heads;
        const int tile = n % tiles, all_heads = n / tiles;
        batch = all_heads / heads, head = all_heads % heads;
        query_head = KEYS ? head * (p.heads / p.kv_heads) : head;
        own0 = (KEYS ? tile : tiles - 1 - tile) * BR;  // causal: the longest first
        warp0 = own0 + threadIdx.x / 32 * 16 * MI;
        own_lane = base + swizzle(threadIdx.x / 32 * 16 * MI + (lane & 15), lane >> 4);
        across_lane = swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1), down_lane = swizzle(lane & 15, lane >> 4);
    }
    // Rows in all pieces on their way to shared memory; zeros past the end and right of D.
    template <int ROWS>
    __device__ __forceinline__ void fetch(unsigned to, const Matrix<const unsigned short>& m, int head, int first,
                                          int end) const {
        constexpr int PASS = LANES / SLOTS;
        unsigned block, thread;
        read_again(block, thread);  // and all that follows from it: kept, it would cost registers
        const int chunk = thread % SLOTS;
        const unsigned short* from = rows_of(m, batch, head, first) + chunk * 8;
        if (chunk >= 2 * STEPS) return;
        UNROLL for (int n = 0; n < PIECES * ROWS; n += PASS) {
            const int at = n + thread / SLOTS, row = ROWS % PASS ? at % ROWS : n % ROWS + thread / SLOTS;
            const int piece = ROWS % PASS ? at / ROWS : n / ROWS;
            if (PIECES * ROWS % PASS && at >= PIECES * ROWS) break;
            const bool inside = first + row < end && chunk * 8 < COLUMNS;
            copy16_async(to + piece * ROWS * ROW + swizzle(row, chunk),
                         (const float*)(from + (inside ? row * m.row + piece * COLUMNS : 0)), inside);
        }
    }
    __device__ __forceinline__ void fetch_own() const {
        fetch<BR>(base, KEYS ? p.k_pieces : p.q_pieces, head, own0, KEYS ? p.Nk : p.Nq);
        fetch<BR>(base + PIECES * OWN, KEYS ? p.v_pieces : p.dO_pieces, head, own0, KEYS ? p.Nk : p.Nq);
    }
    __device__ __forceinline__ void fetch_passing(int stage, int head, int first) const {
        const unsigned to = base + STAGES_AT + stage * STAGE;
        fetch<BC>(to, KEYS ? p.q_pieces : p.k_pieces, head, first, KEYS ? p.Nq : p.Nk);
        fetch<BC>(to + PIECES * STREAMED, KEYS ? p.dO_pieces : p.v_pieces, head, first, KEYS ? p.Nq : p.Nk);
        const int tiles = KEYS ? p.query_tiles : p.key_tiles, tile = first / TILE;
        const int stride = !SEQUENCES ? tiles : KEYS ? p.QUERY_STRIDE : p.KEY_STRIDE;
        const long long at = (long long)(batch * (KEYS ? p.heads : p.kv_heads) + head) * stride;
        if (KEYS && threadIdx.x < BC / 2) {
            const int row = first + threadIdx.x * 2;
            copy16_async(base + ROWS_AT + stage * ROWS + threadIdx.x * 16, (const float*)(p.rows + at * TILE + row),
                         row < tiles * TILE);
        }
        if (PIECES == 2 && threadIdx.x < SCALES / 16)
            copy16_async(base + SCALES_AT + stage * SCALES + threadIdx.x * 16,
                         KEYS ? (const float*)(p.query_scales + at + tile + threadIdx.x)
                              : (const float*)(p.key_scales + at + tile + threadIdx.x),
                         tile + int(threadIdx.x) < tiles);
    }
    __device__ __forceinline__ void load_own(Fragment& x, int which, int step) const {
        UNROLL for (int n = 0; n < PIECES; n++) UNROLL for (int i = 0; i < MI; i++)
            load_matrices(x[n][i], (own_lane ^ step * 32) + (which * PIECES + n) * OWN + i * 16 * ROW);
    }
    __device__ __forceinline__ void load_own_registers() {
        if (KEPT) UNROLL for (int which = 0; which < 2; which++) UNROLL for (int step = 0; step < STEPS; step++)
            load_own(own[KEPT ? which : 0][KEPT ? step : 0], which, step);
    }
    // sum += a b for the n8 blocks n and n + 1: of two pieces, all products but that of the small ones; the smaller ones first, and to
    // sums of their own or the same.
    template <int N>
    __device__ __forceinline__ void multiply(float (&sum)[MI][N][4], float (&small)[MI][N][4], int n, const Fragment& a,
                                             const unsigned (&b)[PIECES][4]) const {
        UNROLL for (int order = PIECES == 2 ? 0 : 2; order < 3; order++)
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int e = 0; e < 2; e++)
                mma(order < 2 ? small[i][n + e] : sum[i][n + e], a[order == 0 ? PIECES - 1 : 0][i], b[order == 1 ? PIECES - 1 : 0] + 2 * e);
    }
    // Products of what is owned with SUB rows of a tile. APART: of two pieces, the products of the small ones are added up apart, as on
    // top of the sum of the large ones each step would cut off as much again.
    template <bool APART, int UNROLLED>
    __device__ __forceinline__ void score(Scores& S, int which, unsigned at) const {
        Scores small;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++)
            S[i][n][e] = small[i][n][e] = 0;
#pragma unroll UNROLLED
        for (int step = 0; step < STEPS; step++) {
            Fragment a;
            if (!KEPT) load_own(a, which, step);
            UNROLL for (int n = 0; n < N8; n += 2) {
                unsigned b[PIECES][4];
                UNROLL for (int x = 0; x < PIECES; x++)
                    load_matrices(b[x], (at + across_lane ^ step * 32) + x * STREAMED + n * 8 * ROW);
                if (KEPT) multiply(S, APART ? small : S, n, own[KEPT ? which : 0][KEPT ? step : 0], b);
                else multiply(S, APART ? small : S, n, a, b);
            }
        }
        if (APART && PIECES == 2)
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++)
                S[i][n][e] += small[i][n][e];
    }
    // sum += X times SUB rows of a tile; of two pieces, times a factor, and outside of the tensor cores, which cut off sums.
    __device__ __forceinline__ void accumulate(Sums& sum, const Scores& X, unsigned at, float factor) const {
        Fragment a[N8 / 2];
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int h = 0; h < 2; h++) {
            const Pieces x = pieces_of(X[i][n][2 * h], X[i][n][2 * h + 1]);
            UNROLL for (int y = 0; y < PIECES; y++) a[n / 2][y][i][n % 2 * 2 + h] = x.piece[y];
        }
        UNROLL for (int c = 0; c < STEPS; c++) {
            float part[MI][2][4];
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int e = 0; e < 2; e++) UNROLL for (int f = 0; f < 4; f++)
                part[i][e][f] = PIECES == 2 ? 0 : sum[i][2 * c + e][f];
            UNROLL for (int k = 0; k < N8 / 2; k++) {
                unsigned b[PIECES][4];
                UNROLL for (int x = 0; x < PIECES; x++)
                    load_transposed(b[x], (at + down_lane ^ c * 32) + x * STREAMED + k * 16 * ROW);
                multiply(part, part, 0, a[k], b);
            }
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int e = 0; e < 2; e++) UNROLL for (int f = 0; f < 4; f++)
                sum[i][2 * c + e][f] = PIECES == 2 ? fmaf(part[i][e][f], factor, sum[i][2 * c + e][f]) : part[i][e][f];
        }
    }
    // Scores and dP become P and dS. A pair that the mask forbids has no weight, not 0 times an infinity. SCORED: dS is that of
    // the score before it was changed, unless dP's MEAN is wanted.
    template <bool MASKED, bool MEAN = false>
    __device__ __forceinline__ void softmax_gradient(Scores& S, Scores& dP, const Factors& f, const float2 (&own_rows)[MI][2],
                                          unsigned rows_at, int first) const {
        const int lane = threadIdx.x % 32, own_first = warp0 + lane / 4, other_first = first + lane % 4 * 2;
#if SCORED
        const ScoredHead at = scored_head(p.scoring, batch, query_head);
        const ScoreIndex first_own(own_first), first_met(other_first);
#endif
        UNROLL for (int n = 0; n < N8; n++) {
            Four across;
            if (KEYS) across = load_shared(rows_at + (n * 8 + lane % 4 * 2) * 8), across.v[1] *= f.delta, across.v[3] *= f.delta;
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int e = 0; e < 4; e++) {
                const float shift = KEYS ? across.v[e % 2 * 2] : own_rows[i][e / 2].x;
                const float delta = KEYS ? across.v[e % 2 * 2 + 1] : own_rows[i][e / 2].y * f.delta;
#if SCORED
                const float natural = S[i][n][e] * f.to_log2 * LN2;
                const ScoreIndex own = first_own + (i * 16 + e / 2 * 8), met = first_met + (n * 8 + e % 2);
                const ScoreIndex query = KEYS ? met : own, key = KEYS ? own : met;
                const float tile = score_tile(p.scoring, at, query.n, key.n);
                float weight = exp2_fast(fmaf(changed_score(p.scoring, at, natural, query, key, tile), LOG2E, shift));
                float slope = weight * fmaf(dP[i][n][e], f.ds, delta);
                if (KEYS && OF_DS && SCORE_GRADIENT && sees(p, query.n, key.n)) *score_gradient_at(p.scoring, at, query.n, key.n) = slope * f.over;
                if (!MEAN) slope *= score_slope(p.scoring, at, natural, query, key, tile);
#else
                float weight = exp2_fast(fmaf(S[i][n][e], f.to_log2, shift)), slope = weight * fmaf(dP[i][n][e], f.ds, delta);
#endif
                if (MASKED) {
                    const int mine = own_first + i * 16 + e / 2 * 8, other = other_first + n * 8 + e % 2;
#if SEQUENCES  // but for the ends of what is owned, which is not stored, and of queries that pass: fewer registers
                    const int query = KEYS ? other : mine, key = KEYS ? mine : other;
                    const bool seen = (KEYS || key < p.Nk) && (!CAUSAL || key <= query + p.causal_offset)
                                      && (!WINDOW || key >= first_key_of(p, query));
#else
                    const bool seen = KEYS ? sees(p, other, mine) : sees(p, mine, other);
#endif
                    weight = seen ? weight : 0, slope = seen ? slope : 0;
                }
                S[i][n][e] = weight, dP[i][n][e] = slope;
            }
        }
    }
    __device__ __forceinline__ static void clear(Scores& S) {
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < N8; n++) UNROLL for (int e = 0; e < 4; e++) S[i][n][e] = 0;
    }
    // Whether all of the warp's rows and SUB rows see each other; rows past the end have no weight, or are not stored.
    __device__ __forceinline__ bool sees_all(int first) const {
        if (WINDOW && (KEYS ? first + SUB > end_row_of(p, warp0) : first < first_key_of(p, warp0 + 16 * MI - 1))) return false;
        if (KEYS) return !CAUSAL || warp0 + 16 * MI - 1 <= first + p.causal_offset;
        return first + SUB <= p.Nk && (!CAUSAL || first + SUB - 1 <= warp0 + p.causal_offset);
    }
    __device__ __forceinline__ bool sees_none(int first) const {
        if (first >= (KEYS ? p.Nq : p.Nk)) return true;
        if (WINDOW && (KEYS ? first >= end_row_of(p, warp0 + 16 * MI - 1) : first + SUB <= first_key_of(p, warp0))) return true;
        return CAUSAL && (KEYS ? warp0 > first + SUB - 1 + p.causal_offset : first > warp0 + 16 * MI - 1 + p.causal_offset);
    }
    // A tile's numbers are added up apart: one long chain of sums would round as much as is to be corrected.
    __device__ __forceinline__ void add_up(Total (&total)[MI][2], const Scores& X) const {
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
            float part = 0;
            UNROLL for (int n = 0; n < N8; n++) part += X[i][n][2 * h] + X[i][n][2 * h + 1];
            total[i][h].sum += part;
        }
    }
    // Whether one of the block's rows has a large LSE.
    __device__ __forceinline__ bool has_large_scores(const float2 (&own_rows)[MI][2]) const {
        bool found = false;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++)
            found |= is_large((BIAS - own_rows[i][h].x) * (1 / LOG2E));
        return __syncthreads_or(found);
    }
    // Lets the keys from `begin` up to `end` pass, and sets -delta to minus the row's mean of dP; in memory, too, for dK. The first keys are on
    // their way to stage 0, and in the end to the stage that is returned.
    __device__ __forceinline__ int center(float2 (&own_rows)[MI][2], Factors& f, int begin, int end) const {
        Total total[MI][2], slopes[MI][2];  // of P, and of P (dP - delta)
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) total[i][h] = slopes[i][h] = Total{0};
        int stage = 0;
#pragma unroll 1
        for (int now = begin; now < end; now += BC, stage ^= 1) {
            cp_async_wait_all();
            __syncthreads();
            fetch_passing(stage ^ 1, head / (p.heads / p.kv_heads), now + BC < end ? now + BC : begin);
#pragma unroll 1
            for (int u = 0; u < BC; u += SUB) {
                if (sees_none(now + u)) continue;
                const unsigned at = base + STAGES_AT + stage * STAGE + u * ROW;
                Scores S, dP;
                score<true, 1>(S, 0, at), score<false, 1>(dP, 1, at + PIECES * STREAMED);
                const Four passing = load_shared(base + SCALES_AT + stage * SCALES + u / TILE * 16);
                f.set(p, own_scale(), passing);
                f.ds = passing.v[1] * 0x1p-14f, f.delta = 0x1p-14f;  // P is held as 2^14 P. These sums are finite if dP is.
                softmax_gradient<true, true>(S, dP, f, own_rows, 0, now + u);
                add_up(total, S), add_up(slopes, dP);
            }
        }
        const int lane = threadIdx.x % 32;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float sum = lanes_sum<4>(total[i][h].sum), slope = lanes_sum<4>(slopes[i][h].sum);
            if (sum > 0) own_rows[i][h].y -= slope / (sum * 0x1p-14f);
            const int row = warp0 + i * 16 + h * 8 + lane / 4;
            if (lane % 4 == 0 && row < p.Nq)
                p.rows[(long long)(batch * p.heads + head) * p.QUERY_STRIDE * TILE + row].y = own_rows[i][h].y;
        }
        return stage;
    }
    // Rows of dQ, and of dO's pieces and delta in memory, divided by the sums of the rows' weights; a row without keys has none.
    __device__ __forceinline__ void normalize(Sums& dq, const Total (&total)[MI][2]) const {
        const int lane = threadIdx.x % 32;
        const long long first_row = (long long)(batch * p.heads + head) * p.QUERY_STRIDE * TILE;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
            const float sum = lanes_sum<4>(total[i][h].sum), over = sum > 0 ? 0x1p14f / sum : 1;
            UNROLL for (int n = 0; n < 2 * STEPS; n++) dq[i][n][2 * h] *= over, dq[i][n][2 * h + 1] *= over;
            const int row0 = warp0 + i * 16 + h * 8;
            if (lane % 4 == 0 && row0 + lane / 4 < p.Nq) p.rows[first_row + row0 + lane / 4].y *= over;
            for (int row = 0; row < 8; row++) {
                const float factor = __shfl_sync(0xffffffffu, over, row * 4);
                unsigned short* to = const_cast<unsigned short*>(rows_of(p.dO_pieces, batch, head, row0 + row));
                for (int pair = lane; row0 + row < p.Nq && pair < COLUMNS / 2; pair += 32) {
                    unsigned *hi = (unsigned*)to + pair, *lo = (unsigned*)(to + COLUMNS) + pair;
                    const float2 a = unpack(*hi), b = unpack(*lo);
                    const Pieces x = pieces_of((a.x + b.x) * factor, (a.y + b.y) * factor);
                    *hi = x.piece[0], *lo = x.piece[PIECES - 1];
                }
            }
        }
    }
    __device__ __forceinline__ void store(const Sums& sum, const Matrix<Element>& m, float factor) const {
        const int lane = threadIdx.x % 32, end = KEYS ? p.Nk : p.Nq;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
            const int row = warp0 + i * 16 + h * 8 + lane / 4;
            Element* to = rows_of(m, batch, head, row) + lane % 4 * 2;
            UNROLL for (int n = 0; n < 2 * STEPS; n++) {
                if (row >= end || n * 8 + lane % 4 * 2 >= D) continue;
                store_two(to + n * 8, sum[i][n][2 * h] * factor, sum[i][n][2 * h + 1] * factor);
            }
        }
    }
    __device__ __forceinline__ Four own_scale() const {
        const int tiles = KEYS ? p.key_tiles : p.query_tiles, tile = min((warp0) / TILE, tiles - 1);
        const int at = (batch * (KEYS ? p.kv_heads : p.heads) + head) * (!SEQUENCES ? tiles : KEYS ? p.KEY_STRIDE : p.QUERY_STRIDE) + tile;
        return KEYS ? *(const Four*)(p.key_scales + at) : *(const Four*)(p.query_scales + at);
    }
    __device__ __forceinline__ void run() {
        const int group = p.heads / p.kv_heads;
        const int end = KEYS ? end_row_of(p, own0 + BR - 1) : CAUSAL ? min(p.Nk, own0 + BR + p.causal_offset) : p.Nk;
        const int begin = (!KEYS ? first_key_of(p, own0) : CAUSAL ? max(0, own0 - p.causal_offset) : 0) / BC * BC;
        int next_head = KEYS ? head * group : head / group, next = begin;  // what passes next
        int left = begin < end ? (KEYS ? group : 1) : 0;                   // heads of which something is to pass
        fetch_own();
        if (KEPT) {
            cp_async_wait_all();
            __syncthreads();
            load_own_registers();
            __syncthreads();
        }
        auto fetch_next = [&](int stage) {
            fetch_passing(stage, next_head, next);
            if ((next += BC) >= end) next = begin, next_head++, left--;
        };
        if (left) fetch_next(0);
        float2 own_rows[MI][2];
        if (!KEYS) UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++)
            own_rows[i][h] = p.rows[(long long)(batch * p.heads + head) * p.QUERY_STRIDE * TILE
                                    + min(warp0 + i * 16 + h * 8 + int(threadIdx.x % 32 / 4), p.Nq - 1)];
        Factors f(p, batch * p.kv_heads + (KEYS ? head : head / group));
        int stage = 0;
        if constexpr (NORMALIZES) if (p.whole && begin < end && has_large_scores(own_rows)) stage = center(own_rows, f, begin, end);
        Sums by_ds, by_p;
        UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < 2 * STEPS; n++) UNROLL for (int e = 0; e < 4; e++)
            by_ds[i][n][e] = by_p[i][n][e] = 0;
        Total total[NORMALIZES ? MI : 1][2];
        UNROLL for (int i = 0; i < (NORMALIZES ? MI : 1); i++) total[i][0] = total[i][1] = Total{0};
        int now = begin;
#pragma unroll 1
        for (bool more = begin < end; more; stage ^= 1) {
            cp_async_wait_all();
            __syncthreads();
            if constexpr (NORMALIZES) {  // the same of one head: without what is kept for several
                if ((more = now + BC < end)) fetch_passing(stage ^ 1, head / group, now + BC);
            } else if ((more = left)) fetch_next(stage ^ 1);
#pragma unroll 1
            for (int u = 0; u < BC; u += SUB) {
                const int first = now + u;
                if (sees_none(first)) continue;
                const unsigned at = base + STAGES_AT + stage * STAGE + u * ROW, at2 = at + PIECES * STREAMED;
                const unsigned rows = base + ROWS_AT + stage * ROWS + u * 8;
                auto attend = [&](auto masked) {
                    Scores S, dP;
                    score<true, UNROLLED>(S, 0, at);
                    if (OF_DS) score<false, PIECES == 2 ? 2 : UNROLLED>(dP, 1, at2);
                    else clear(dP);
                    if (PIECES == 2) {
                        const Four mine = own_scale(), passing = load_shared(base + SCALES_AT + stage * SCALES + u / TILE * 16);
                        f.set(p, KEYS ? passing : mine, KEYS ? mine : passing);
                    }
                    softmax_gradient<decltype(masked)::value>(S, dP, f, own_rows, rows, first);
                    if constexpr (NORMALIZES) add_up(total, S);
                    if (OF_P) accumulate(by_p, S, at2, f.dv);
                    if (OF_DS) accumulate(by_ds, dP, at, KEYS ? f.dk : f.dq);
                };
                if (sees_all(first)) attend(Bool<false>());  // apart as a whole: products and weights overlap
                else attend(Bool<true>());
            }
            if ((now += BC) >= end) now = begin, query_head += KEYS;
        }
        cp_async_wait_all();
        if constexpr (NORMALIZES) if (p.whole && begin < end) normalize(by_ds, total);  // else no barrier since dO was fetched
        if (OF_DS) store(by_ds, KEYS ? p.dk : p.dq, PIECES == 2 ? 1 : KEYS ? f.dk : f.dq);
        if (OF_P) store(by_p, p.dv, PIECES == 2 ? 1 : f.dv);
    }
};

// The blocks of a sequence follow one another, those of a head, too.
template <class Own> __device__ __forceinline__ void run(const PiecesParams& p, const Span* spans, int heads) {
#if SEQUENCES
    const Span s = spans[blockIdx.x / heads];
    PiecesParams& one = *(PiecesParams*)shared;
    if (threadIdx.x == 0) one = of_sequence(p, s);
    __syncthreads();
    Own(one, blockIdx.x - s.first * heads).run();
#else
    Own(p, blockIdx.x).run();
#endif
}
extern "C" __global__ void __launch_bounds__(32 * DQ_WARPS, DQ_BLOCKS) backward_mma_dq(const PiecesParams p) {
    run<Pass<false, DQ_WARPS, DQ_MI, DQ_BC, DQ_SUB, DQ_KEPT>>(p, p.dq_spans, p.heads);
}
#if D <= 128
extern "C" __global__ void __launch_bounds__(32 * DKDV_WARPS, DKDV_BLOCKS) backward_mma_dkdv(const PiecesParams p) {
    run<Pass<true, DKDV_WARPS, DKDV_MI, DKDV_BC, DKDV_SUB, DKDV_KEPT>>(p, p.dkdv_spans, p.kv_heads);
}
#else
extern "C" __global__ void __launch_bounds__(32 * DKDV_WARPS, DKDV_BLOCKS) backward_mma_dk(const PiecesParams p) {
    run<Pass<true, DKDV_WARPS, DKDV_MI, DKDV_BC, DKDV_SUB, DKDV_KEPT, true, false>>(p, p.dkdv_spans, p.kv_heads);
}
extern "C" __global__ void __launch_bounds__(32 * DKDV_WARPS, DKDV_BLOCKS) backward_mma_dv(const PiecesParams p) {
    run<Pass<true, DKDV_WARPS, DKDV_MI, DKDV_BC, DKDV_SUB, DKDV_KEPT, false, true>>(p, p.dkdv_spans, p.kv_heads);
}
#endif
