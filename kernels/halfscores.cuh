#pragma once
// What half does with a group's scores before the softmax (scored.cuh), where a tile of them has little time: tensor cores leave
// few instructions for a score.
//
// SCORE_SHARED: the array that is read as tiles comes to shared memory a tile ahead, past the registers; each warp copies for its
// own 16 rows, and reads them as its scores lie.
// SCORE_BITS: which pairs have a score, half_bits has found once for all heads (half.cu); a thread reads 32 scores' at once.
// SCORE_LINEAR: a score is s and a straight line from key to key (ALiBi): halfline.cuh. Where the line bends within a tile, each score
// gets its own.
// SCORE_TANH: the tanh of small scores, as most are where a cap shall only tame a few, is a polynomial: the unit that has tanh has
// exp2 to do, and score_tanh keeps it busy for two. SCORE_GUESSES: a tile's scores are weighed as if all were small, without a branch
// before the exponentials; what the squares say in the end decides whether that was right, or they are computed again.

#include "halfline.cuh"
#include "mma.cuh"

// Where registers hold what that takes.
#define SCORE_GUESSES (SCORE_TANH && !SCORE_KEPT && COLUMNS >= 64 && COLUMNS <= 128)

__device__ __forceinline__ void continue_softmax(Scores& S, RowState& r, const HalfWork& p) {
    r.grown = !LAZY || ANY(outgrown(S, r, p));
    if (__builtin_expect(r.grown, 0)) raise_maximum(S, r, p.scale);
    exponentiate(S, r, p.scale);
}

#if SCORED

#if SCORE_SHARED
// Rows of a tile in shared memory lie so that eight of them are in different banks.
constexpr int TILE_CHUNKS = BC * SCORE_TILE_BYTES / 16;
constexpr unsigned ROW_BYTES = SCORE_TILE_BYTES == 4 ? BC * 4 + 32 : (TILE_CHUNKS | 1) * 16;
constexpr unsigned TILE_ROW = SCORE_TILE_ROWS ? ROW_BYTES : 0;  // from row to row
constexpr unsigned WARP_ROWS = SCORE_TILE_ROWS ? 16 : 1;        // a warp's, which may be one for all of its own
constexpr unsigned WARP_BYTES = WARP_ROWS * ROW_BYTES;
static_assert(SCORE_SHARED == BR / 16 * WARP_BYTES, "hw4cli/plans/half.py has the same");

// Of two blocks of 8 keys what belongs to a thread's scores.
struct TilePart {
    unsigned words[SCORE_TILE_BYTES == 4 ? 8 : 4];
    __device__ __forceinline__ float at(int n, int h, int e) const {
        if (SCORE_TILE_BYTES == 4) return __uint_as_float(words[(n * 4 + h * 2 + e) % (sizeof words / 4)]);
        const unsigned x = words[n * 2 + h];
        if (SCORE_TILE_BYTES == 1) return float(x >> e * 8 & 0xff);
        return e ? unpack(x).y : unpack(x).x;
    }
};
struct ArrayTile {
    // That copy at once, and so many rows.
    static constexpr int LANES = SCORE_TILE_ROWS ? 32 / TILE_CHUNKS * TILE_CHUNKS : TILE_CHUNKS, ROWS = LANES / TILE_CHUNKS;
    static_assert(TILE_CHUNKS <= 32, "a warp copies whole rows");
    unsigned rows;     // this warp's
    const char* from;  // what this lane copies of the next tile's first row of its own
    long long step;    // from row to row, in bytes
    int below, size;   // rows below that one, keys
    __device__ __forceinline__ ArrayTile(unsigned at) { rows = at + (threadIdx.x / 32 - 4) * WARP_BYTES; }
    // Copies of tile j begin, if there is such a tile.
    __device__ __forceinline__ void load(const RowTile& t, int j, int tiles) {
        const int lane = threadIdx.x % 32, of = lane / TILE_CHUNKS, chunk = lane % TILE_CHUNKS;
        const int left = (size - t.hidden - j * BC) * SCORE_TILE_BYTES - chunk * 16;
        const unsigned to = rows + of * TILE_ROW + chunk * 16;
        __syncwarp();  // all lanes have read what lay there
        if (j < tiles && lane < LANES) {
            UNROLL for (int r = 0; r < WARP_ROWS; r += ROWS)
                if (WARP_ROWS % ROWS == 0 || r + of < WARP_ROWS) copy16_part(to + r * TILE_ROW, from + min(r, below) * step, left);
        }
        from += BC * SCORE_TILE_BYTES;
    }
    __device__ __forceinline__ void begin(const HalfWork& p, const RowTile& t, int row, int j, int tiles) {
        const Scoring& w = p.scoring;
        const ScoredHead head = head_of(p, t);
        const int lane = threadIdx.x % 32;
        [[maybe_unused]] const int b = head.b, h = head.h, i = row - lane / 4 + lane / TILE_CHUNKS;
        const auto line = SCORE_TILE;
        from = (const char*)(line.data + t.hidden + j * BC) + lane % TILE_CHUNKS * 16;
        step = line.step * SCORE_TILE_BYTES, below = max(0, line.rows - 1 - i), size = line.size;
        load(t, j, tiles);
    }
    __device__ __forceinline__ void next(const HalfWork&, const RowTile& t, int, int j, int tiles) { load(t, j, tiles); }
    __device__ __forceinline__ void wait() const {
        cp_async_wait_all();
        __syncwarp();
    }
    __device__ __forceinline__ TilePart part(int n) const {
        const int lane = threadIdx.x % 32;
        const unsigned at = rows + n * 8 * SCORE_TILE_BYTES;
        TilePart x;
        if (SCORE_TILE_BYTES == 2) {
            load_matrices(x.words, at + lane % 16 * TILE_ROW + lane / 16 * 16);
        } else {
            UNROLL for (int m = 0; m < 2; m++) UNROLL for (int h = 0; h < 2; h++) {
                const unsigned from = at + (lane / 4 + 8 * h) * TILE_ROW + (m * 8 + lane % 4 * 2) * SCORE_TILE_BYTES;
                if (SCORE_TILE_BYTES == 1) {
                    x.words[m * 2 + h] = load_shared16(from);
                } else {
                    const float2 both = load_shared2(from);
                    constexpr int SIZE = sizeof x.words / 4;
                    x.words[(m * 4 + h * 2) % SIZE] = __float_as_uint(both.x);
                    x.words[(m * 4 + h * 2 + 1) % SIZE] = __float_as_uint(both.y);
                }
            }
        }
        return x;
    }
};
#else
struct TilePart {
    const ScoreTiles<BC / 8>& tiles;
    int from;
    __device__ __forceinline__ float at(int n, int h, int e) const {
#if SCORE_TILE_BYTES
        return tiles.of_row[h].at(from + n, e);
#else
        return 0;
#endif
    }
};
struct ArrayTile {
    ScoreTiles<BC / 8> tiles;
    __device__ __forceinline__ ArrayTile(unsigned) {}
    __device__ __forceinline__ void begin(const HalfWork& p, const RowTile& t, int row, int j, int) { tiles.load(p, t, row, j * BC); }
    __device__ __forceinline__ void next(const HalfWork& p, const RowTile& t, int row, int j, int count) {
        if (j < count) tiles.load(p, t, row, j * BC);
    }
    __device__ __forceinline__ void wait() const {}
    __device__ __forceinline__ TilePart part(int n) const { return {tiles, n}; }
};
#endif

#if SCORE_BITS
static_assert(BC % 64 == 0 && !SEQUENCES, "words of 16 rows and 64 keys");
// Which pairs have a score, as half_bits found it before: of 16 rows and 64 keys a word for each thread, a bit for each of its scores.
struct KeptBits {
    unsigned of_tile[BC / 64];
    const unsigned* from;
    __device__ __forceinline__ static int row_blocks(const HalfWork& p) { return ceil_div(p.Nq, 64) * 4; }
    __device__ __forceinline__ static int key_blocks(const HalfWork& p) { return ceil_div(p.Nk, BC) * (BC / 64); }
    // Of a tile's first key, and a thread's first row.
    __device__ __forceinline__ void begin(const HalfWork& p, const unsigned* bits, const RowTile& t, int row, int j) {
        const long long block = (long long)((SCORE_BITS > 1 ? t.batch : 0) * row_blocks(p) + row / 16) * key_blocks(p);
        from = bits + (block + (t.hidden + j * BC) / 64) * 32 + threadIdx.x % 32;
        load();
    }
    __device__ __forceinline__ void load() {
        UNROLL for (int n = 0; n < BC / 64; n++) of_tile[n] = from[n * 32];
        from += BC / 64 * 32;
    }
    __device__ __forceinline__ void apply(Scores& S) const {
        unsigned all = of_tile[0];
        UNROLL for (int n = 1; n < BC / 64; n++) all &= of_tile[n];
        if (!ANY(all != ~0u)) return;
        UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++)
            if (!(of_tile[n / 8] >> (n % 8 * 4 + e) & 1)) S[n][e] = MINUS_INFINITY;
    }
};
#endif

struct GroupScores {
    ArrayTile array;
#if SCORE_BITS
    KeptBits kept;
    const unsigned* bits;
#endif
#if SCORE_LINEAR
    Stretch stretch;
#endif
    bool calm = false;  // whether it is known that no row's maximum moves
#if SCORE_GUESSES
    bool careful = false;  // whether some tile's scores were not small
    float small[SMALL_TERMS];  // by which exponents of small scores are computed
    int limit[2];          // squares up to which a row's are small
#endif
    unsigned columns;  // SCORE_RISES: where those of K lie, with Q's behind them
    int group;
    __device__ __forceinline__ GroupScores(unsigned at, int group) : array(at), columns(at + SCORE_SHARED), group(group) {}
    __device__ __forceinline__ int barrier() const { return 1 + GROUPS + group; }
    __device__ __forceinline__ unsigned of_q() const { return columns + BC * 32 + group * 2048; }
    // What all threads of a block do before their first barrier.
    __device__ __forceinline__ static void begin_block([[maybe_unused]] unsigned at) {
#if SCORE_RISES
        make_places(at + SCORE_SHARED);
#endif
    }
    // What is read for tile j of `tiles`, before it is needed: the first one's, then the next one's. `row`: this thread's first.
    __device__ __forceinline__ void begin(const HalfWork& p, const RowTile& t, int row, int j, int tiles) {
        array.begin(p, t, row, j, tiles);
#if SCORE_BITS
        kept.begin(p, bits, t, row, j);
#endif
#if SCORE_LINEAR
        stretch.forget(j);
#endif
    }
    __device__ __forceinline__ void next(const HalfWork& p, const RowTile& t, int row, int j, int tiles) {
        array.next(p, t, row, j, tiles);
#if SCORE_BITS
        if (j < tiles) kept.load();
#endif
    }
    // Before the products of the j-th tile: of a group whose first row is `top`, a thread whose first one is `row`.
    __device__ __forceinline__ void prepare([[maybe_unused]] RowState& r, const HalfWork& w, const RowTile& t, int peak,
                                            int top, int row, int j) {
#if SCORE_LINEAR && defined(SCORE_REST)
        if (j == stretch.end) stretch.begin(w, t, peak, top, row, j, of_q(), barrier());
        stretch.place(r, t.hidden + TILE_AT(j) * BC);
#endif
    }
#if SCORE_ORDERED
    __device__ __forceinline__ bool is_faint(const Scores& S, const RowState& r, const HalfWork& p) const {
        return stretch.faint && !warpgroup_any(barrier(), has_weights(S, r, p));
    }
#endif
    __device__ __forceinline__ void issue(Scores& S, unsigned q_at, unsigned k_at) const {
#if SCORE_RISES
        issue_scores(S, q_at, k_at, columns_at(of_q()), columns_at(columns));
#else
        issue_scores(S, q_at, k_at);
#endif
    }

    // This thread's scores as the softmax takes them.
    __device__ __forceinline__ void change(Scores& S, [[maybe_unused]] const RowState& r, const HalfWork& p, const RowTile& t,
                                           int row, int j) {
        const Scoring& w = p.scoring;
        const ScoredHead head = head_of(p, t);
        const ScoreIndex rows[2] = {ScoreIndex(row), ScoreIndex(row + 8)}, key(t.hidden + j * BC + int(threadIdx.x) % 4 * 2);
        array.wait();
#if SCORE_LINEAR
#ifdef SCORE_REST
        if (__builtin_expect(!stretch.straight(), 0)) UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++)
            S[n][e] = fmaf(score_rest(w, head, rows[e / 2], key + (n * 8 + e % 2)), p.unscale * LOG2E, S[n][e]);
#endif
#elif SCORE_TANH
        change_by_tanh(S, r, p);
#else
        each(S, [&](float& s, int n, int h, int e, float tile) {
            const ScoreIndex at = key + (n * 8 + e);
            s = changed_score(w, head, s * w.scale, rows[h], at, SCORE_TILE_BYTES ? tile : score_tile(w, head, rows[h].n, at.n));
        });
#endif
#if SCORE_BITS
        kept.apply(S);
#elif SCORE_LINEAR || SCORE_TANH
#ifdef SCORE_KEEPS
        each(S, [&](float& s, int n, int h, int e, float tile) {
            const ScoreIndex at = key + (n * 8 + e);
            if (!score_keeps(w, head, rows[h], at, SCORE_TILE_BYTES ? tile : score_tile(w, head, rows[h].n, at.n))) s = MINUS_INFINITY;
        });
#endif
#endif
    }

    // The softmax of a row's first tile, and of another one.
    __device__ __forceinline__ void begin_softmax(Scores& S, RowState& r, const HalfWork& p) {
        ::begin_softmax(S, r, p);
        set_limits(r, p);
    }
    __device__ __forceinline__ void continue_softmax(Scores& S, RowState& r, const HalfWork& p) {
        r.grown = !LAZY || (!calm && ANY(outgrown(S, r, p)));
        if (__builtin_expect(r.grown, 0)) raise_maximum(S, r, p.scale), set_limits(r, p);
        exponentiate(S, r, p.scale);
    }
#if SCORE_GUESSES
    // Weights of scores that are small and do not move m. Else false, then and from then on; `again` computes S again, for which all
    // of a group are needed, so that it decides together.
    template <class Again> __device__ __forceinline__ bool weigh_small(Scores& S, RowState& r, Again again) {
        if (careful) return false;
        int top[2] = {0, 0};
        float sums[4] = {0, 0, 0, 0};
        UNROLL for (int n = 0; n < BC / 8; n++) {
            float squares[4];
            UNROLL for (int e = 0; e < 4; e++) squares[e] = S[n][e] * S[n][e];
            UNROLL for (int h = 0; h < 2; h++) raise_bits(top[h], squares[2 * h], squares[2 * h + 1]);
            UNROLL for (int e = 0; e < 4; e++) {
                S[n][e] = exp2_fast(fmaf(S[n][e], tanh_sum(small, squares[e]), -r.shift[e / 2]));
                sums[e] += S[n][e];
            }
        }
        careful = warpgroup_any(barrier(), top[0] > limit[0] || top[1] > limit[1]);
        if (__builtin_expect(careful, 0)) {
            again();
            return false;
        }
        if (!ONES) UNROLL for (int e = 0; e < 4; e++) r.l[e] += sums[e];
        r.grown = false;
        return true;
    }
#endif

private:
    // Of scores: up to where tanh is that polynomial, and m stays; tanh(x) is no larger than x.
    __device__ __forceinline__ void set_limits([[maybe_unused]] const RowState& r, [[maybe_unused]] const HalfWork& p) {
#if SCORE_GUESSES
        UNROLL for (int h = 0; h < 2; h++) {
            const float most = fmaf(r.shift[h], p.unscale, p.room), root = __fdividef(fminf(most, SMALL_TANH), p.scoring.scale);
            limit[h] = most > 0 ? __float_as_int(root * root) : -1;
        }
        tanh_terms(small, p.scoring.scale);
        UNROLL for (int n = 0; n < SMALL_TERMS; n++) small[n] *= p.scale;
#endif
    }
    template <class Change> __device__ __forceinline__ void each(Scores& S, Change change) const {
        UNROLL for (int from = 0; from < BC / 8; from += 2) {
            const TilePart x = array.part(from);
            UNROLL for (int n = 0; n < 2; n++) UNROLL for (int h = 0; h < 2; h++) UNROLL for (int e = 0; e < 2; e++)
                change(S[from + n][2 * h + e], from + n, h, e, x.at(n, h, e));
        }
    }
#if SCORE_TANH
    // By a polynomial of so many terms; x is scale s.
    template <int TERMS> __device__ __forceinline__ static void by_polynomial(Scores& S, float scale) {
        float c[TERMS];
        tanh_terms(c, scale);
        UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++) {
            const float s = S[n][e];
            S[n][e] = s * tanh_sum(c, s * s);
        }
    }
    __device__ __forceinline__ void change_by_tanh(Scores& S, const RowState& r, const HalfWork& p) {
        const float scale = p.scoring.scale;
        float top[2] = {0, 0};
        UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++) top[e / 2] = fmaxf(top[e / 2], fabsf(S[n][e]));
        const float largest = fmaxf(top[0], top[1]) * scale;
        // tanh(x) is no larger than x, which is below what would move the row's maximum.
        bool grows = false;
        UNROLL for (int h = 0; h < 2; h++) grows |= !(top[h] * scale <= fmaf(r.shift[h], p.unscale, p.room));
        calm = !ANY(grows);
        if (!ANY(!(largest <= 0.15f))) by_polynomial<2>(S, scale);
        else if (!ANY(!(largest <= SMALL_TANH))) by_polynomial<3>(S, scale);
        else if (!ANY(!(largest <= 1))) by_polynomial<5>(S, scale);
        else UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int e = 0; e < 4; e++) S[n][e] = score_tanh(S[n][e] * scale);
    }
#endif
};
#else
struct GroupScores {
    __device__ __forceinline__ GroupScores(unsigned, int) {}
    __device__ __forceinline__ static void begin_block(unsigned) {}
    __device__ __forceinline__ void begin(const HalfWork&, const RowTile&, int, int, int) {}
    __device__ __forceinline__ void next(const HalfWork&, const RowTile&, int, int, int) {}
    __device__ __forceinline__ void prepare(RowState&, const HalfWork&, const RowTile&, int, int, int, int) {}
    __device__ __forceinline__ void issue(Scores& S, unsigned q_at, unsigned k_at) const { issue_scores(S, q_at, k_at); }
    __device__ __forceinline__ void change(Scores&, const RowState&, const HalfWork&, const RowTile&, int, int) {}
    __device__ __forceinline__ void begin_softmax(Scores& S, RowState& r, const HalfWork& p) { ::begin_softmax(S, r, p); }
    __device__ __forceinline__ void continue_softmax(Scores& S, RowState& r, const HalfWork& p) { ::continue_softmax(S, r, p); }
};
#endif
