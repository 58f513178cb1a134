// backward: dQ, dK and dV of attention, the same bits in every run: no atomic operation, two passes instead.
//
// Idea:     With P = exp(S - LSE) from the LSE of the forward pass, dP = dO Vᵀ and delta_i = sum of dO_i O_i over the columns,
//           dS = P (dP - delta): dQ = scale dS K, dK = scale dSᵀ Q, dV = Pᵀ dO. Each row of dQ is a sum over keys, each row
//           of dK and dV one over queries. One pass owns rows of Q and streams K and V past them, another owns keys and
//           streams Q and dO: the block that owns a row adds all of it up, in one order. Seven products instead of five.
//           Both passes are one text: what is owned and what is streamed are exchanged.
//           Of float32 elements, a row's weights are divided by their sum, as both S and LSE are rounded; and where they are large, keys
//           pass a block of queries once more beforehand, and delta becomes the row's mean of dP by these weights.
// Geometry: backward_delta a warp a row; backward_dq a block for every BR rows of Q, backward_dkdv one for every BR keys of K,
//           which adds up all heads of Q that share the keys. A thread holds OWN x STREAMED scores and dP in registers.
// Shared:   4 * (2*BR*p + 2*BC*p + BR*BC) bytes, p = d rounded up to 32, 64, 128 or 256: what is owned, what is streamed, P or dS.
// Limits:   Any device, float32, fp16 and bf16 elements; all products and sums in float32 (FFMA).
// Source:   Dao et al., FlashAttention (2022), algorithm 4, and FlashAttention-2 (2023), algorithm 2; deterministic by two
//           passes as in Triton's tutorial on fused attention.
// Before:   flash, which computes O and the LSE that this begins with.

#include "gradients.cuh"
#include "platform.cuh"
#include "ptx.cuh"
#include "scored.cuh"

constexpr int CHUNKS = WIDTH / 4;                             // of four columns, in a row
constexpr int DOWN = BR / OWN, ACROSS = BC / STREAMED;        // threads over owned rows, and over streamed ones
constexpr int SUM_ACROSS = ACROSS < CHUNKS ? ACROSS : CHUNKS;  // threads over the columns of a sum: dQ, dK, dV
constexpr int SUM_DOWN = THREADS / SUM_ACROSS, SUM_ROWS = BR / SUM_DOWN, SUM_CHUNKS = CHUNKS / SUM_ACROSS;
constexpr int UNROLLED = THREADS > 32 ? 2 : 1;  // a single warp has no registers left for more
static_assert(DOWN * ACROSS == THREADS && DOWN % 4 == 0 && ACROSS % 8 == 0, "a warp is 4 threads down and 8 across");
static_assert(SUM_DOWN * SUM_ROWS == BR && SUM_CHUNKS * SUM_ACROSS == CHUNKS, "the sums divide evenly among the threads");

constexpr bool WIDE = ELEMENT_BITS == 32;

typedef float Scores[OWN][STREAMED];
typedef float4 Sums[SUM_ROWS][SUM_CHUNKS];

// Tiles lie in rows of so many chunks; which of them lies where depends on the row, so that equal chunks of eight rows meet in no
// bank.
template <int COUNT> __device__ __forceinline__ int chunk_at(int row, int chunk) {
    return row * COUNT + (chunk ^ (row & (COUNT < 8 ? COUNT - 1 : 7)));
}

// ROWS rows of a matrix as float32; zeros for what is not there.
template <int ROWS>
__device__ __forceinline__ void load_tile(float4* tile, const Element* from, long long stride, int rows_left) {
    for (int n = threadIdx.x; n < ROWS * CHUNKS; n += THREADS) {
        const int row = n / CHUNKS, chunk = n % CHUNKS;
        const bool there = row < rows_left && chunk < D / 4;
        tile[chunk_at<CHUNKS>(row, chunk)] = there ? load_four(from + row * stride + chunk * 4) : float4{0, 0, 0, 0};
    }
}

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}
__device__ __forceinline__ void add(float4& sum, float a, float4 b) {
    sum.x = fmaf(a, b.x, sum.x), sum.y = fmaf(a, b.y, sum.y), sum.z = fmaf(a, b.z, sum.z), sum.w = fmaf(a, b.w, sum.w);
}
__device__ __forceinline__ void scale(float4& x, float factor) { x.x *= factor, x.y *= factor, x.z *= factor, x.w *= factor; }
__device__ __forceinline__ float element(const float4& x, int n) { return n == 0 ? x.x : n == 1 ? x.y : n == 2 ? x.z : x.w; }

// Where a thread is: 4 threads of a warp down, 8 across, in the order in which two lanes that lie side by side share a load.
struct Place { int down, across; };
__device__ __forceinline__ Place place(int warps_across) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return {warp / warps_across * 4 + ((lane & 1) | (lane >> 1 & 2)),
            warp % warps_across * 8 + ((lane >> 1 & 1) | (lane >> 2 & 6))};
}

// Products of owned rows with streamed rows. A thread's rows lie DOWN, and ACROSS, apart.
__device__ __forceinline__ void multiply(Scores& S, const float4* own, const float4* streamed) {
    const Place at = place(ACROSS / 8);
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < STREAMED; j++) S[i][j] = 0;
#pragma unroll UNROLLED
    for (int c = 0; c < CHUNKS; c++) {
        float4 a[OWN], b[STREAMED];
        UNROLL for (int i = 0; i < OWN; i++) a[i] = own[chunk_at<CHUNKS>(at.down + i * DOWN, c)];
        UNROLL for (int j = 0; j < STREAMED; j++) b[j] = streamed[chunk_at<CHUNKS>(at.across + j * ACROSS, c)];
        UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < STREAMED; j++) S[i][j] = dot(a[i], b[j], S[i][j]);
    }
}
// Stores P or dS to shared memory, for the threads that sum over what is streamed.
__device__ __forceinline__ void share(float4* shared_scores, const Scores& X) {
    const Place at = place(ACROSS / 8);
    __syncthreads();  // all threads have read what was shared before
    UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < STREAMED; j++) {
        const int row = at.down + i * DOWN, column = at.across + j * ACROSS;
        ((float*)shared_scores)[chunk_at<BC / 4>(row, column / 4) * 4 + column % 4] = X[i][j];
    }
    __syncthreads();
}
// sum += X times the streamed rows.
__device__ __forceinline__ void accumulate(Sums& sum, const float4* shared_scores, const float4* streamed) {
    const int across = threadIdx.x % SUM_ACROSS, down = threadIdx.x / SUM_ACROSS;
#pragma unroll UNROLLED
    for (int c = 0; c < BC / 4; c++) {
        float4 a[SUM_ROWS];
        UNROLL for (int i = 0; i < SUM_ROWS; i++) a[i] = shared_scores[chunk_at<BC / 4>(down + i * SUM_DOWN, c)];
        UNROLL for (int n = 0; n < 4; n++) UNROLL for (int x = 0; x < SUM_CHUNKS; x++) {
            const float4 b = streamed[chunk_at<CHUNKS>(c * 4 + n, across + x * SUM_ACROSS)];
            UNROLL for (int i = 0; i < SUM_ROWS; i++) add(sum[i][x], element(a[i], n), b);
        }
    }
}
__device__ __forceinline__ void clear(Sums& sum) {
    UNROLL for (int i = 0; i < SUM_ROWS; i++) UNROLL for (int x = 0; x < SUM_CHUNKS; x++) sum[i][x] = float4{0, 0, 0, 0};
}
__device__ __forceinline__ void store(const Sums& sum, Element* to, long long stride, int rows_left, float factor) {
    const int across = threadIdx.x % SUM_ACROSS, down = threadIdx.x / SUM_ACROSS;
    UNROLL for (int i = 0; i < SUM_ROWS; i++) UNROLL for (int x = 0; x < SUM_CHUNKS; x++) {
        const int row = down + i * SUM_DOWN, chunk = across + x * SUM_ACROSS;
        const float4 s = sum[i][x];
        if (row < rows_left && chunk < D / 4)
            store_four(to + row * stride + chunk * 4, float4{s.x * factor, s.y * factor, s.z * factor, s.w * factor});
    }
}

// P = exp(scale s - LSE) over the sum of the row's, and from it dS, in the place of s and dP. A pair that the mask forbids has no
// weight.
__device__ __forceinline__ void softmax_gradient(float& s, float& dp, bool seen, float to_log2, float lse_log2, float delta,
                                                 float over = 1) {
    s = seen ? exp2f(fmaf(s, to_log2, -lse_log2)) * over : 0;
    dp = seen ? s * (dp - delta) : 0;  // not 0 times an infinity
}
#if SCORED
// The same of a pair whose score is changed; then dS is that of the score before it was, unless dP's MEAN is wanted. STORES:
// and dS of the changed one goes to memory.
template <bool STORES, bool MEAN = false>
__device__ __forceinline__ void softmax_gradient(const BackwardParams& p, const ScoredHead& head, int i, int j, float& s, float& dp,
                                                 bool seen, float lse_log2, float delta, float over = 1) {
    const ScoreIndex row(i), key(j);
    const float natural = s * p.scale, tile = score_tile(p.scoring, head, i, j);
    const float slope = MEAN ? 1 : score_slope(p.scoring, head, natural, row, key, tile);
    s = changed_score(p.scoring, head, natural, row, key, tile);
    softmax_gradient(s, dp, seen && s != MINUS_INFINITY, LOG2E, lse_log2, delta, over);
    if (STORES && SCORE_GRADIENT && seen) *score_gradient_at(p.scoring, head, i, j) = dp;
    dp *= slope;
}
#endif

extern "C" __global__ void LAUNCH_BOUNDS backward_delta(const BackwardParams p) {
    const long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= (long long)p.batches * p.heads * p.Nq) return;
    const int head = row / p.Nq, i = row - (long long)head * p.Nq, batch = head / p.heads, in_batch = head - batch * p.heads;
    const Element *o = rows_of(p.o, batch, in_batch, i), *d_o = rows_of(p.dO, batch, in_batch, i);
    float sum = 0;
    if (int(threadIdx.x % 32) < D / 4) sum = dot(load_four(o + threadIdx.x % 32 * 4), load_four(d_o + threadIdx.x % 32 * 4), 0);
    if (D > 128 && int(threadIdx.x % 32) + 32 < D / 4)
        sum = dot(load_four(o + threadIdx.x % 32 * 4 + 128), load_four(d_o + threadIdx.x % 32 * 4 + 128), sum);
    sum = lanes_sum<32>(sum);
    if (threadIdx.x % 32 == 0) p.delta[row] = sum;
}

// A block's part of shared memory: two owned tiles, two streamed ones, and what is shown.
struct Tiles {
    float4 *own, *own2, *streamed, *streamed2, *shared_scores;
    __device__ __forceinline__ explicit Tiles(float4* memory)
        : own(memory), own2(own + BR * CHUNKS), streamed(own2 + BR * CHUNKS), streamed2(streamed + BC * CHUNKS),
          shared_scores(streamed2 + BC * CHUNKS) {}
};

// Of each of a thread's owned rows: its numbers added up, first of a tile, so that no long chain of sums rounds.
typedef float RowSums[OWN];
__device__ __forceinline__ void add_up(RowSums& sum, const Scores& X) {
    UNROLL for (int i = 0; i < OWN; i++) {
        float part = 0;
        UNROLL for (int j = 0; j < STREAMED; j++) part += X[i][j];
        sum[i] += part;
    }
}
// The sums over all threads of a row, in one order; through the memory for P and dS, which no thread reads at that time.
__device__ __forceinline__ void add_threads(RowSums& sum, const Tiles& tile) {
    const Place at = place(ACROSS / 8);
    float* parts = (float*)tile.shared_scores;
    __syncthreads();
    UNROLL for (int i = 0; i < OWN; i++) {
        sum[i] = lanes_sum<4, 8>(lanes_sum<2, 2>(sum[i]));  // the lanes of place() that lie across
        if (at.across % 8 == 0) parts[at.across / 8 * BR + at.down + i * DOWN] = sum[i];
    }
    __syncthreads();
    UNROLL for (int i = 0; i < OWN; i++) {
        sum[i] = 0;
        UNROLL for (int n = 0; n < ACROSS / 8; n++) sum[i] += parts[n * BR + at.down + i * DOWN];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_dq(const BackwardParams p) {
    extern __shared__ float4 memory[];
    const Tiles tile(memory);
    const int row_blocks = ceil_div(p.Nq, BR), head = blockIdx.x / row_blocks, batch = head / p.heads, in_batch = head % p.heads;
    const int row0 = (row_blocks - 1 - int(blockIdx.x % row_blocks)) * BR;  // causal: the longest first
    const int kv_head = in_batch / (p.heads / p.kv_heads);
    const Place at = place(ACROSS / 8);
    load_tile<BR>(tile.own, rows_of(p.q, batch, in_batch, row0), p.q.row, p.Nq - row0);
    load_tile<BR>(tile.own2, rows_of(p.dO, batch, in_batch, row0), p.dO.row, p.Nq - row0);
    float lse[OWN], delta[OWN];
    UNROLL for (int i = 0; i < OWN; i++) {
        const int row = min(row0 + at.down + i * DOWN, p.Nq - 1);
        lse[i] = lse_of(p, batch, in_batch)[row] * LOG2E, delta[i] = p.delta[(long long)head * p.Nq + row];
    }
    Sums dQ;
    clear(dQ);
    const int keys = CAUSAL ? min(p.Nk, row0 + BR + p.causal_offset) : p.Nk;  // that some row sees, and perhaps none
    const int begin = first_key_of(p, row0) / BC * BC;
    auto weigh = [&](Scores& S, Scores& dP, int key0, [[maybe_unused]] auto mean) {
        __syncthreads();  // all threads have read the tiles before
        load_tile<BC>(tile.streamed, rows_of(p.k, batch, kv_head, key0), p.k.row, p.Nk - key0);
        load_tile<BC>(tile.streamed2, rows_of(p.v, batch, kv_head, key0), p.v.row, p.Nk - key0);
        __syncthreads();
        multiply(S, tile.own, tile.streamed);
        multiply(dP, tile.own2, tile.streamed2);
#if SCORED
        const ScoredHead scored = scored_head(p.scoring, batch, in_batch);
        UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < STREAMED; j++) {
            const int row = row0 + at.down + i * DOWN, key = key0 + at.across + j * ACROSS;
            softmax_gradient<false, decltype(mean)::value>(p, scored, row, key, S[i][j], dP[i][j], sees(p, row, key), lse[i], delta[i]);
        }
#else
        UNROLL for (int i = 0; i < OWN; i++) UNROLL for (int j = 0; j < STREAMED; j++)
            softmax_gradient(S[i][j], dP[i][j], sees(p, row0 + at.down + i * DOWN, key0 + at.across + j * ACROSS), p.scale * LOG2E, lse[i],
                  delta[i]);
#endif
    };
    RowSums sum = {};  // of weights
    if constexpr (WIDE) {
        bool large = false;
        UNROLL for (int i = 0; i < OWN; i++) large |= is_large(lse[i] * (1 / LOG2E));
        if (p.whole && __syncthreads_or(large)) {
            RowSums slope = {};  // of P (dP - delta)
            for (int key0 = begin; key0 < keys; key0 += BC) {
                Scores S, dP;
                weigh(S, dP, key0, Bool<true>());
                add_up(sum, S), add_up(slope, dP);
            }
            add_threads(sum, tile), add_threads(slope, tile);
            UNROLL for (int i = 0; i < OWN; i++) delta[i] += sum[i] > 0 ? slope[i] / sum[i] : 0, sum[i] = 0;
        }
    }
    for (int key0 = begin; key0 < keys; key0 += BC) {
        Scores S, dP;
        weigh(S, dP, key0, Bool<false>());
        if constexpr (WIDE) add_up(sum, S);
        share(tile.shared_scores, dP);
        accumulate(dQ, tile.shared_scores, tile.streamed);
    }
    if constexpr (WIDE) {  // a row without keys has no weights
        add_threads(sum, tile);
        float* over = (float*)tile.shared_scores + ACROSS / 8 * BR;
        UNROLL for (int i = 0; i < OWN; i++) {
            const int in_block = at.down + i * DOWN, row = row0 + in_block;
            if (at.across) continue;
            over[in_block] = p.whole && sum[i] > 0 ? 1 / sum[i] : 1;
            float* stats = p.delta + (long long)head * p.Nq + row;
            if (row < p.Nq) stats[0] = delta[i], stats[(long long)p.batches * p.heads * p.Nq] = over[in_block];
        }
        __syncthreads();
        UNROLL for (int i = 0; i < SUM_ROWS; i++) UNROLL for (int x = 0; x < SUM_CHUNKS; x++)
            scale(dQ[i][x], over[threadIdx.x / SUM_ACROSS + i * SUM_DOWN]);
    }
    store(dQ, rows_of(p.dq, batch, in_batch, row0), p.dq.row, p.Nq - row0, p.scale);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_dkdv(const BackwardParams p) {
    extern __shared__ float4 memory[];
    const Tiles tile(memory);
    const int key_blocks = ceil_div(p.Nk, BR), kv = blockIdx.x / key_blocks, batch = kv / p.kv_heads, kv_head = kv % p.kv_heads;
    const int key0 = int(blockIdx.x % key_blocks) * BR, group = p.heads / p.kv_heads;
    const Place at = place(ACROSS / 8);
    load_tile<BR>(tile.own, rows_of(p.k, batch, kv_head, key0), p.k.row, p.Nk - key0);
    load_tile<BR>(tile.own2, rows_of(p.v, batch, kv_head, key0), p.v.row, p.Nk - key0);
    Sums dK, dV;
    clear(dK), clear(dV);
    const int first = CAUSAL ? max(0, key0 - p.causal_offset) / BC * BC : 0;  // the first rows that see one of these keys
    const int end = end_row_of(p, key0 + BR - 1);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (int row0 = first; row0 < end; row0 += BC) {
            __syncthreads();  // all threads have read the tiles before
            load_tile<BC>(tile.streamed, rows_of(p.q, batch, head, row0), p.q.row, p.Nq - row0);
            load_tile<BC>(tile.streamed2, rows_of(p.dO, batch, head, row0), p.dO.row, p.Nq - row0);
            __syncthreads();
            Scores S, dP;
            multiply(S, tile.own, tile.streamed);
            multiply(dP, tile.own2, tile.streamed2);
            UNROLL for (int j = 0; j < STREAMED; j++) {
                const int query = row0 + at.across + j * ACROSS;
                const long long row = ((long long)batch * p.heads + head) * p.Nq + min(query, p.Nq - 1);
                const float lse = lse_of(p, batch, head)[min(query, p.Nq - 1)] * LOG2E, delta = p.delta[row];
                const float over = WIDE ? p.delta[(long long)p.batches * p.heads * p.Nq + row] : 1;
#if SCORED
                const ScoredHead scored = scored_head(p.scoring, batch, head);
                UNROLL for (int i = 0; i < OWN; i++) {
                    const int key = key0 + at.down + i * DOWN;
                    softmax_gradient<true>(p, scored, query, key, S[i][j], dP[i][j], sees(p, query, key), lse, delta, over);
                }
#else
                UNROLL for (int i = 0; i < OWN; i++)
                    softmax_gradient(S[i][j], dP[i][j], sees(p, query, key0 + at.down + i * DOWN), p.scale * LOG2E, lse, delta, over);
#endif
            }
            share(tile.shared_scores, S);
            accumulate(dV, tile.shared_scores, tile.streamed2);
            share(tile.shared_scores, dP);
            accumulate(dK, tile.shared_scores, tile.streamed);
        }
    }
    store(dK, rows_of(p.dk, batch, kv_head, key0), p.dk.row, p.Nk - key0, p.scale);
    store(dV, rows_of(p.dv, batch, kv_head, key0), p.dv.row, p.Nk - key0, 1);
}
