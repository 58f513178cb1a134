// flash: exact fp32 attention at the speed of the CUDA cores: no tensor core, every product one FFMA.
//
// Idea:     A block keeps BR rows of Q in shared memory and streams K and V past them in tiles of BC keys; S
//           and P never leave the SM. A thread owns 8 rows x BC/8 keys of S and 8 rows x d/8 columns of O in
//           registers. Q and P lie k-major in shared memory: both products are then sums of outer products;
//           3 or 4 loads of 16 bytes feed 32 or 64 FFMA, and neighbouring FFMA share a register operand.
//           (The register file gives about 2 of an FFMA's 3 operands a cycle: the bound on sm_90.)
// Geometry: B * ceil(N/BR) * splits blocks of THREADS = BR, a warp to 32 rows: BR = 128, BC = 32 where that
//           fits; where rows are few, BR = 64 or 32, if then less of a block is empty. splits > 1 splits the keys (split-KV):
//           the blocks of a split lie side by side, and flash_combine, 4 columns of O a thread, puts the splits together.
// Shared:   4 * (2*BC*p + BR*p + BR*BC) bytes, p = d rounded up to 32, 64 or 128: K, V, Q, P; above, p = 256 but 128 for V. K is swizzled
//           by 16-byte chunks, Q and P by 64-byte halves: no bank conflicts in the loop. K's next tile is on
//           its way while V is used, V's while K is: one buffer each is enough to overlap copy and work.
// Limits:   Any d to 128 on any device (48 KB: BC = 16 at d = 64, BR = 32 above); d to 256, whose scores are computed twice,
//           for each half of the columns of O, with 92 KB (compute capability 8.0). Scores must be finite in fp32.
//           Scratch for splits > 1: 4 * splits*B*N*(d+2) bytes.
// Source:   Dao, FlashAttention-2 (2023), algorithm 1; lazy rescaling by 2^8: FlashAttention-4's softmax;
//           register and warp tiles: CUTLASS, "Efficient GEMM in CUDA".
// Before:   float4. A thread multiplies 8 x 4 and 8 x 8 tiles out of registers, where it loaded two operands
//           for each four products; copies run beside the work; and the running maximum is needed only where
//           the result of a first try without it says so.

#include "epilogue.cuh"
#include "schedule.cuh"
#include "scored.cuh"
#include "softmax.cuh"
#include "stream.cuh"

constexpr int ROWS = 8, LANES_ACROSS = 8;  // a thread's rows; 4 lanes down x 8 across make a warp
constexpr int KEYS = BC / LANES_ACROSS, RUN = KEYS < 4 ? KEYS : 4;  // keys of a thread, in runs of neighbours
constexpr int PARTS = WIDTH > 128 ? WIDTH / 128 : 1;  // of the columns of O: 128 are as many as registers hold
constexpr int OUT_WIDTH = WIDTH / PARTS, OUTS = OUT_WIDTH / LANES_ACROSS;
// How far the products are unrolled. More does not fit the instruction cache: fully unrolled is 20% slower.
constexpr int QK_CHUNKS = WIDTH == 32 ? 8 : 4, PV_KEYS = WIDTH == 32 ? 16 : 8;

constexpr unsigned COL_BYTES = BR * 4;  // of Q and P: k-major (K and V are row-major: ROW_BYTES)
constexpr unsigned V_ROW = OUT_WIDTH * 4, K_AT = 0, V_AT = BC * ROW_BYTES,
                   Q_AT = V_AT + BC * V_ROW, P_AT = Q_AT + BR * ROW_BYTES;

static_assert(THREADS == BR && BR % 32 == 0, "each warp owns 32 rows: 4 lanes down x 8 rows of a thread");
static_assert(BC % 16 == 0 && (KEYS == 2 || KEYS % 4 == 0), "a thread's keys come in whole runs");

extern __shared__ float4 shared[];

// Lane bits 0 and 2 pick the rows, 1, 3 and 4 the columns. Lanes n and n^1 read the same K or V, n and n^2
// the same Q or P: an LDS.128 whose lanes pair up like that takes 2 cycles of shared memory instead of 4.
__device__ __forceinline__ int lane_down() { return (threadIdx.x & 1) | (threadIdx.x >> 1 & 2); }
__device__ __forceinline__ int lane_across() { return (threadIdx.x >> 1 & 1) | (threadIdx.x >> 2 & 6); }
__device__ constexpr int row_at(int i) { return i % 4 + i / 4 * 16; }  // i-th row of a thread, from its first
__device__ constexpr int key_of(int j) { return j % RUN + j / RUN * RUN * LANES_ACROSS; }
// The lanes across read rows of K that lie RUN apart: each of those 8 rows gets its own chunk order.
struct ByRuns { __device__ static constexpr unsigned of(int key) { return key / RUN % LANES_ACROSS * 16; } };
using StreamK = Stream<ByRuns>;
using StreamV = Stream<Unswizzled, OUT_WIDTH>;

// The 8 rows of a thread in column k of a k-major matrix. Every other run of columns has the halves of 32
// rows exchanged (`flip`), so that the stores of P by lanes of neighbouring runs meet in no bank.
__device__ __forceinline__ void load_column(float* a, unsigned from, int k, int flip) {
    UNROLL for (int half = 0; half < 2; half++) {
        const Four f = load_shared(from + k * COL_BYTES + (half ^ flip) * 64);
        UNROLL for (int x = 0; x < 4; x++) a[4 * half + x] = f.v[x];
    }
}

// Over the 8 lanes that share rows.
__device__ __forceinline__ float across_max(float x) { return lanes_max<4, 8>(lanes_max<2, 2>(x)); }
__device__ __forceinline__ float across_sum(float x) { return lanes_sum<4, 8>(lanes_sum<2, 2>(x)); }

struct RowState { float O[ROWS][OUTS], l[ROWS], m[ROWS]; };  // the paper's O, l and m, O not yet divided by l

// All keys against the block's rows; K's first tile is on its way. Without SAFE the max m stays 0: P = 2^S.
template <bool SAFE>
__device__ __forceinline__ void attend(RowState& r, StreamK& K, StreamV& V, unsigned base, Mask mask,
                                       const Params& p, const Task& t) {
    const int across_at = lane_across();
    const int first_row = threadIdx.x / 32 * 32 + lane_down() * 4;
    const unsigned my_rows = first_row * 4;
    const unsigned q_at = base + Q_AT + my_rows, p_at = base + P_AT + my_rows;
    const unsigned k_at = base + K_AT + across_at * (RUN * ROW_BYTES + 16), v_at = base + V_AT + across_at * 16;
    constexpr int CHUNK_STEP = SAFE ? 2 : QK_CHUNKS, KEY_STEP = SAFE ? 2 * RUN : PV_KEYS;
    UNROLL for (int i = 0; i < ROWS; i++) {
        r.l[i] = 0, r.m[i] = SAFE ? BELOW_ALL_SCORES : 0;
        UNROLL for (int x = 0; x < OUTS; x++) r.O[i][x] = 0;
    }
    [[maybe_unused]] const int keys = mask.keys;  // for the stamps
#pragma unroll 1
    for (; !mask.is_empty(); mask = mask.after(BC)) {
        [[maybe_unused]] const int tile = (keys - mask.keys) / BC;  // for the stamps
        K.finish();
        __syncthreads(); ENDS(COPYING, tile); BEGINS(COPYING_V, tile);
        V.start(mask.keys); BEGINS(SCORING, tile);

        float S[ROWS][KEYS];
        constexpr bool FRESH = CHUNK_STEP == CHUNKS;  // unrolled whole: the first product starts the sum
        UNROLL for (int i = 0; i < ROWS * KEYS && !FRESH; i++) S[i / KEYS][i % KEYS] = 0;
        unsigned q = q_at;
#pragma unroll 1
        for (int c0 = 0; c0 < CHUNKS; c0 += CHUNK_STEP, q += CHUNK_STEP * 4 * COL_BYTES) {
            const unsigned k = (k_at ^ c0 % 8 * 16) + c0 / 8 * 128;
            float a[2][ROWS];
            Four b[2][KEYS];
            auto load_keys = [&](int c) {
                UNROLL for (int j = 0; j < KEYS; j++)
                    b[c % 2][j] = load_shared((k ^ c * 16) + key_of(j) * ROW_BYTES);
            };
            load_keys(0);
            load_column(a[0], q, 0, 0);
            UNROLL for (int n = 0; n < 4 * CHUNK_STEP; n++) {  // column n of Q and K; the next one loads
                const int c = n / 4, next = n + 1;
                if (n % 4 == 2 && c + 1 < CHUNK_STEP) load_keys(c + 1);
                if (next < 4 * CHUNK_STEP) load_column(a[next % 2], q, next, next / 4 % 2);
                UNROLL for (int y = 0; y < ROWS * KEYS; y++) {  // down a column of S, up the next
                    const int j = y / ROWS, i = j % 2 ? ROWS - 1 - y % ROWS : y % ROWS;
                    const float x = a[n % 2][i], z = b[c % 2][j].v[n % 4];
                    S[i][j] = FRESH && n == 0 ? x * z : fmaf(x, z, S[i][j]);
                }
            }
        }
        ENDS(SCORING, tile); V.finish();
        __syncthreads();
        if (mask.keys > BC) K.start(mask.keys - BC);
        ENDS(COPYING_V, tile); BEGINS(COPYING, tile + 1); BEGINS(WEIGHING, tile);
#if SCORED
        const Scoring& w = p.scoring;
        const ScoredHead head = scored_head(w, t.batch / w.heads, t.batch % w.heads);
        UNROLL for (int j = 0; j < KEYS; j++) UNROLL for (int i = 0; i < ROWS; i++) {
            const int row = t.row0 + first_row + row_at(i), key = t.last_key - mask.keys + across_at * RUN + key_of(j);
            S[i][j] = changed_score(w, head, S[i][j], row, key) * LOG2E;
        }
#endif
        if (!mask.is_full(BC, BR)) {
            asm volatile("" ::: "memory");  // keeps this a branch: no full tile should pay for the masks
            UNROLL for (int j = 0; j < KEYS; j++)
                UNROLL for (int i = 0; i < ROWS; i++)
                    if (!mask.allows(first_row + row_at(i), across_at * RUN + key_of(j))) S[i][j] = MINUS_INFINITY;
        }
        if (SAFE) {  // lazy: O and l are rescaled only when a max grew so far that P could pass 2^8
            float top[ROWS];
            bool grown = false;
            UNROLL for (int i = 0; i < ROWS; i++) {
                top[i] = S[i][0];
                UNROLL for (int j = 1; j < KEYS; j++) top[i] = fmaxf(top[i], S[i][j]);
                top[i] = across_max(top[i]);
                grown |= top[i] > r.m[i] + RESCALE_THRESHOLD;
            }
            if (ANY(grown)) {
                UNROLL for (int i = 0; i < ROWS; i++) {
                    const float m = fmaxf(r.m[i], top[i]), shrink = exp2_fast(r.m[i] - m);
                    r.m[i] = m, rescale_row(r.l[i], r.O[i], shrink);
                }
            }
        }
        UNROLL for (int j = 0; j < KEYS; j++) {
            float p[ROWS];
            UNROLL for (int i = 0; i < ROWS; i++)
                r.l[i] += p[i] = exp2_fast(SAFE ? S[i][j] - r.m[i] : S[i][j]);
            UNROLL for (int half = 0; half < 2; half++)
                store_shared(p_at + (across_at * RUN + key_of(j)) * COL_BYTES + (half ^ across_at % 2) * 64,
                             p[4 * half], p[4 * half + 1], p[4 * half + 2], p[4 * half + 3]);
        }
        __syncwarp();  // a warp reads back only its own 32 rows of P
        unsigned p = p_at, v = v_at; ENDS(WEIGHING, tile); BEGINS(ADDING, tile);
#pragma unroll 1
        for (int j0 = 0; j0 < BC; j0 += KEY_STEP, p += KEY_STEP * COL_BYTES, v += KEY_STEP * V_ROW) {
            float a[2][ROWS];
            Four b[2][OUTS / 4];
            auto load_key = [&](int j) {
                UNROLL for (int x = 0; x < OUTS / 4; x++)
                    b[j % 2][x] = load_shared(v + j * V_ROW + x * 128);
                load_column(a[j % 2], p, j, j / RUN % 2);
            };
            load_key(0);
            UNROLL for (int j = 0; j < KEY_STEP; j++) {
                if (j + 1 < KEY_STEP) load_key(j + 1);
                UNROLL for (int y = 0; y < ROWS * OUTS; y++) {
                    const int i = y / OUTS, x = i % 2 ? OUTS - 1 - y % OUTS : y % OUTS;
                    r.O[i][x] = fmaf(a[j % 2][i], b[j % 2][x / 4].v[x % 4], r.O[i][x]);
                }
            }
        }
        __syncwarp(); ENDS(ADDING, tile);
    }
    __syncthreads();
    UNROLL for (int i = 0; i < ROWS; i++) r.l[i] = across_sum(r.l[i]);
}

// Q, scaled so that S is in units of log2, turned k-major: a warp its own rows, 16 x 2 chunks a time.
__device__ __forceinline__ void load_queries(unsigned base, const float* q, int rows_left, float to_log2) {
    const int side = threadIdx.x / 16 % 2, row = threadIdx.x / 32 * 32 + threadIdx.x % 16;
    const float* from = q + (long long)row * D + side * 4;
    const unsigned to = base + Q_AT + side * 4 * COL_BYTES + row * 4;
    constexpr int TOGETHER = CHUNKS < 16 ? CHUNKS : 16;  // loads in flight: one latency for all
    UNROLL for (int n0 = 0; n0 < CHUNKS; n0 += TOGETHER) {
        float4 x[TOGETHER];
        UNROLL for (int n = 0; n < TOGETHER; n++) {
            const int half = (n0 + n) % 2, c = (n0 + n) / 2 * 2;
            x[n] = row + half * 16 < rows_left && (D == WIDTH || c + side < D / 4)
                       ? *(const float4*)(from + half * 16 * D + c * 4) : float4{0, 0, 0, 0};
        }
        UNROLL for (int n = 0; n < TOGETHER; n++) {
            const unsigned at = (to ^ ((n0 + n) % 2 ^ side) * 64) + (n0 + n) / 2 * 8 * COL_BYTES;
            store_shared(at, x[n].x * to_log2);
            store_shared(at + COL_BYTES, x[n].y * to_log2);
            store_shared(at + 2 * COL_BYTES, x[n].z * to_log2);
            store_shared(at + 3 * COL_BYTES, x[n].w * to_log2);
        }
    }
}

// O / l; or, of a split of the keys (not WHOLE), O and (m, l). A test for each row costs 1 % where there are few keys.
// Without a running max, l may be as large as 2^120 beside m = 0, and combine would take 2^(0-m') for the whole weight of this
// split: zero, if another split's m' is above 126. So the power of two of l moves to m, which is exact.
template <bool WHOLE>
__device__ __forceinline__ void store(const RowState& r, const Params& p, const Task& t, int first = 0) {
    const int row = t.row0 + threadIdx.x / 32 * 32 + lane_down() * 4;
    float* to = WHOLE ? row_of(p.o, t.batch, row) : p.partial_o + partial_row(p, t, row) * D;
    UNROLL for (int i = 0; i < ROWS; i++) {
        if (row_at(i) >= p.Nq - row) continue;
        const int exponent = WHOLE ? 0 : (__float_as_int(r.l[i]) >> 23) - 127;  // l >= 2^-64: no subnormal number
        const float f = WHOLE ? __frcp_rn(divisor(r.l[i])) : __int_as_float((127 - exponent) << 23);
        UNROLL for (int x = 0; x < OUTS; x += 4)
            if (D == WIDTH || lane_across() + x * 2 < (D - first) / 4)
                *(float4*)(to + row_at(i) * D + first + lane_across() * 4 + x * LANES_ACROSS) =
                    make_float4(r.O[i][x] * f, r.O[i][x + 1] * f, r.O[i][x + 2] * f, r.O[i][x + 3] * f);
        if (!WHOLE && lane_across() == 0)
            p.row_stats[partial_row(p, t, row + row_at(i))] = make_float2(r.m[i] + exponent, r.l[i] * f);
    }
    if (WHOLE && p.lse && lane_across() == 0)
        UNROLL for (int i = 0; i < ROWS; i++)
            if (row_at(i) < p.Nq - row) store_lse(p, t.batch, row + row_at(i), r.m[i], r.l[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) flash(const Params p) {
    ONLY_IF_CHOSEN(p);
    const Task t = task_of_split(blockIdx.x, p);
    const float *k = row_of(p.k, t.batch, t.first_key), *v = row_of(p.v, t.batch, t.first_key);
    const Mask mask = mask_at(p, t.row0, t.first_key, t.last_key - t.first_key);
    if (CAUSAL && mask.is_empty() && p.splits > 1) return;  // combine leaves it out
    const unsigned base = shared_address(shared);
    StreamK K(k, base + K_AT);
    StreamV V(v, base + V_AT);
    K.start(mask.keys), griddep_launch(); BEGINS(COPYING, 0);
    load_queries(base, row_of(p.q, t.batch, t.row0), p.Nq - t.row0, SCORED ? p.scale : p.scale * LOG2E);
    // No running max where none is needed, as the result shows. Softmax is the same for every m, so m = 0 is
    // exact unless 2^S overflows or underflows. No term of l is negative, so l <= 2^120 bounds each: none
    // overflowed (inf and NaN never leave a sum). A term flushed to zero was below 2^-126: beside l >= 2^-64
    // that is 2^-62 a key, far under fp32's rounding of 2^-24. O is finite at the end, hence was throughout.
    // If a row of the block fails the test (NaN does), the block does its rows again with the running max:
    // right for any data, and free in the loop. (Causal: nothing is wrong with a row without keys, whose l is 0.)
    RowState r;
    bool sound = true;
    auto check = [&] {
        UNROLL for (int i = 0; i < ROWS; i++) {
            if (CAUSAL && !mask.allows_any(threadIdx.x / 32 * 32 + lane_down() * 4 + row_at(i))) continue;
            sound &= r.l[i] >= 0x1p-64f && r.l[i] <= 0x1p120f;  // false for NaN
            UNROLL for (int x = 0; x < OUTS; x++) sound &= fabsf(r.O[i][x]) < -MINUS_INFINITY;
        }
    };
    if (PARTS == 1) {
        attend<false>(r, K, V, base, mask, p, t);
        check();
        if (__syncthreads_or(!sound)) {
            K = StreamK(k, base + K_AT), V = StreamV(v, base + V_AT);
            K.start(mask.keys);
            attend<true>(r, K, V, base, mask, p, t);
        }
        p.splits == 1 ? store<true>(r, p, t) : store<false>(r, p, t);
    } else {  // one part of the columns after the other, all with the same m and l
        auto begin = [&](int part) {
            K = StreamK(k, base + K_AT), V = StreamV(v, base + V_AT, part * OUT_WIDTH);
            K.start(mask.keys);
        };
        auto end = [&](int part) {
            p.splits == 1 ? store<true>(r, p, t, part * OUT_WIDTH) : store<false>(r, p, t, part * OUT_WIDTH);
        };
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            if (part > 0) begin(part);
            attend<false>(r, K, V, base, mask, p, t);
            check(), end(part);
        }
        if (!__syncthreads_or(!sound)) return;
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) begin(part), attend<true>(r, K, V, base, mask, p, t), end(part);
    }
}

extern "C" __global__ void __launch_bounds__(COMBINE_THREADS) flash_combine(const Params p) { combine(p); }
