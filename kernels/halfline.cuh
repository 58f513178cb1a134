#pragma once
// SCORE_LINEAR: scores that are s and a straight line from key to key, with bends at most, in half (halfscores.cuh).
//
// SCORE_RISES: tensor cores add what a line gains within a tile. Q has 16 columns more, in all rows the step from a key to the next as
// a sum of four numbers of 16 bits; K has the keys' places in the tile, times these numbers' units: a step is exact in bf16, and in
// fp16 to 2^-41. Where the tile lies on the line goes into what the row's exponents lose anyway (RowState::base).
// SCORE_ORDERED: tiles of keys are computed from the one where the line is highest, to the block's last row, down to the first one, and
// then up from there. So m, which moves where scores grow, stays; and far away are tiles in which no key has a weight that counts, of
// which neither exponentials nor products with V are computed.

#include "halfgroup.cuh"

// Number j in that order; `peak` is the first one.
#define TILE_AT(j) (SCORE_ORDERED && (j) <= peak ? peak - (j) : (j))

#if SCORE_ORDERED
__device__ __forceinline__ int peak_of(const HalfWork& w, const RowTile& t) {
    const ScoredHead head = head_of(w, t);
    const int row = min(t.row0 + BR, w.Nq) - 1;
    int peak = 0;
    for (int end = t.key_tiles; peak + 1 < end;) {
        const int middle = (peak + end) / 2;
        if (score_step(w.scoring, head, row, middle * BC) > 0) peak = middle;
        else end = middle;
    }
    return peak;
}

// Whether some score of a thread's has a weight that counts: 2^-FAINT of its row's largest one so far, or more. (In fp16, less is 0.)
// Scores are compared as in `outgrown`.
constexpr float FAINT = 32;
__device__ __forceinline__ bool has_weights(const Scores& S, const RowState& r, const HalfWork& p) {
    int top[2] = {0, 0};
    UNROLL for (int n = 0; n < BC / 8; n++) UNROLL for (int h = 0; h < 2; h++) raise_bits(top[h], S[n][2 * h], S[n][2 * h + 1]);
    bool has = false;
    UNROLL for (int h = 0; h < 2; h++) has |= top[h] > __float_as_int(fmaf(r.lost(h), p.unscale, p.unscale * (BIAS - FAINT)));
    return has;
}
#else
__device__ __forceinline__ int peak_of(const HalfWork&, const RowTile&) { return 0; }
#endif

#if SCORE_LINEAR
// Of a group's rows, from `top` on, and keys from `key` to `last` the corners. Causal: of what rows see, or on the diagonal.
struct Corners {
    int top, bottom, key, near, of_top, of_bottom;
    bool cut = false;  // whether rows do not see some keys
    __device__ __forceinline__ Corners(const HalfWork& w, const RowTile& t, int top, int key, int last)
        : top(top), bottom(top + 63), key(key), near(key), of_top(last), of_bottom(last) {
        if (!CAUSAL) return;
        const int seen = top + t.hidden + w.causal_offset;  // the last key that the first row sees
        near = min(key, seen);
        if (seen < last) of_top = seen, of_bottom = seen + 63, cut = true;
    }
    // Whether the line has no bend between them.
    __device__ __forceinline__ bool agree(const Scoring& w, const ScoredHead& head) const {
        const int sides = score_sides(w, head, top, near);
        return sides == score_sides(w, head, top, of_top) && sides == score_sides(w, head, bottom, key) &&
               sides == score_sides(w, head, bottom, of_bottom);
    }
};

#if SCORE_RISES
// 16 columns in shared memory: of 8 rows two blocks of 8 columns, 128 bytes each, not swizzled (PTX ISA, "Matrix-Descriptor Format").
// Four of them are for lines that fall, four for lines that rise, whose places count from the tile's last key: what is added is never
// more than 0, and large where no weight is.
__device__ __forceinline__ unsigned long long columns_at(unsigned at) { return (256ull >> 4) << 32 | (128u >> 4) << 16 | at >> 4; }
__device__ __forceinline__ float unit(int piece) { return piece == 0 ? 0x1p8f : piece == 1 ? 1 : piece == 2 ? 0x1p-8f : 0x1p-16f; }
__device__ __forceinline__ uint2 place(float x) { return {pack(x * unit(0), x * unit(1)), pack(x * unit(2), x * unit(3))}; }
// K's, by all threads of a block before they meet.
__device__ __forceinline__ void make_places(unsigned at) {
    for (unsigned n = threadIdx.x; n < BC * 2; n += THREADS) {
        const float key = n / 16 * 8 + n % 8;
        const uint2 falling = place(key), rising = place(key - (BC - 1));
        store_shared(at + n * 16, n / 8 % 2 ? uint4{0, 0, 0, 0} : uint4{falling.x, falling.y, rising.x, rising.y});
    }
    fence_proxy_async();
}
// Q's, by a group: a step from key to key as a sum of numbers times these units.
__device__ __forceinline__ void make_step(unsigned at, float step, int barrier) {
    unsigned pair[2];
    float rest = step;
    UNROLL for (int n = 0; n < 2; n++) {
        const float first = unpack(pack(rest / unit(2 * n), 0)).x;
        rest -= first * unit(2 * n);
        pair[n] = pack(first, rest / unit(2 * n + 1));
        rest -= unpack(pair[n]).y * unit(2 * n + 1);
    }
    warpgroup_sync(barrier);  // no product reads what was there
    const unsigned n = threadIdx.x % 128;
    store_shared(at + n * 16, n / 8 % 2 ? uint4{0, 0, 0, 0} : step > 0 ? uint4{0, 0, pair[0], pair[1]} : uint4{pair[0], pair[1], 0, 0});
    fence_proxy_async();
    warpgroup_sync(barrier);
}
#endif

// Tiles of a group, one behind the other, in which the line of all rows is straight; or one tile in which it is not.
struct Stretch {
    static constexpr int LONGEST = 64;         // in tiles
    static constexpr int BENT = 1 << 30;       // in the place of an anchor
    static constexpr float HIGHEST = 256;      // in exponents: how far the place of a key that a row does not see may be from one that it does
    static constexpr float STEEPEST = 0x1p23f;  // that 16-bit numbers hold
    static constexpr float FALLEN = 16;        // so far below the highest, in exponents, tiles may have no weights
    int end;                                   // the tile behind it
    bool faint;                                // whether some of its tiles may have no weights
    int anchor;                                // the first key of a tile that would lie at `line`
    float gain, line[2];                       // from key to key; of a thread's rows, in exponents
    __device__ __forceinline__ void forget(int j) { end = j, gain = __int_as_float(0x7fffffff); }
    __device__ __forceinline__ bool straight() const { return anchor != BENT; }
    // From the j-th tile on. Lines are followed from where they are high, so that float32 has the digits of those that count.
    __device__ __forceinline__ void begin(const HalfWork& w, const RowTile& t, int peak, int top, int row, int j,
                                          [[maybe_unused]] unsigned columns, [[maybe_unused]] int barrier) {
        const ScoredHead head = head_of(w, t);
        const bool down = SCORE_ORDERED && j <= peak;
        int tiles = down ? min(LONGEST, TILE_AT(j) + 1) : LONGEST, key;
        float step;
        bool from_last;
        for (;; tiles /= 2) {
            key = t.hidden + (TILE_AT(j) - (down ? tiles - 1 : 0)) * BC;
            const Corners corners(w, t, top, key, key + tiles * BC - 1);
            step = score_step(w.scoring, head, top, corners.near) * (w.unscale * LOG2E);
            from_last = step > 0 && !corners.cut;
            if (tiles == 0) break;
            const bool fits = fabsf(step) <= STEEPEST && (step <= 0 || from_last || step * w.scale * (tiles * BC) <= HIGHEST);
            if (fits && corners.agree(w.scoring, head)) break;
        }
        const bool is_straight = tiles > 0;
        end = j + max(tiles, 1);
        if (!is_straight) step = 0;
        if (from_last) key += tiles * BC - 1;
        UNROLL for (int h = 0; h < 2; h++)
            line[h] = is_straight ? score_rest(w.scoring, head, ScoreIndex(row + 8 * h), ScoreIndex(key)) * LOG2E : 0;
        anchor = !is_straight ? BENT : step > 0 ? key - (BC - 1) : key;
#if SCORE_RISES
        if (gain != step * w.scale) make_step(columns, step, barrier);
#endif
        gain = step * w.scale;
#if SCORE_ORDERED
        const float fallen = fminf(__fdividef(FALLEN, fabsf(gain) * BC), 1 << 24);  // in tiles
        const int fallen_at = (down ? gain > 0 : gain < 0) ? (down ? 0 : peak) + int(fallen) + 1 : 1 << 30;
        faint = fallen_at < end;
#endif
    }
    // Where a tile lies, whose first key is this one.
    __device__ __forceinline__ void place(RowState& r, int key) const {
        UNROLL for (int h = 0; h < 2; h++) r.base[h] = fmaf(key - anchor, gain, line[h]);
    }
};
#endif
