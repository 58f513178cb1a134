// Attention on tensor cores with fp32 input: what split.cu and exact.cu share, behind terms.cuh.
//
// A block's warps own MI x 16 rows each. Q's terms and O stay in registers. Scores are computed one sub-tile of SUB keys
// ahead of their exponentials, so that MMA, exp2 and conversions of one warp are independent of each other and run at
// the same time.

// ---- What a warp computes

typedef float Scores[MI][SL][4];
struct Weights { unsigned term[PV_TERMS][SL / 2][MI][4]; };  // P as the left operand
struct Rows {
    unsigned Q[2][MI][STEPS][4];                  // terms of Q log2(e)/sqrt(d)
    float O[MI][NO][4], l[MI][4], base[MI][2];    // O and l not yet divided, l in 0 and 2; base: BIAS - m
};

__device__ __forceinline__ void multiply(Scores S, const unsigned (*Q)[STEPS][4], int step, const unsigned (*K)[4]) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) mma(S[i][n], Q[i][step], K[n / 2] + n % 2 * 2);
}
// One k16 step of a slice's scores: Q hi K hi + Q lo K hi + Q hi K lo; or first the small products of all steps.
constexpr int SCORE_STEPS = SMALL_FIRST ? 2 * STEPS : STEPS;
__device__ __forceinline__ void add_scores(const Rows& r, Scores S, int n, unsigned k_at) {
    const bool small = !SMALL_FIRST || n < STEPS, large = !SMALL_FIRST || n >= STEPS;
    const int step = n % STEPS;
    unsigned hi[SL / 2][4], lo[SL / 2][4];
    UNROLL for (int j = 0; j < SL / 2; j++) {
        load_matrices(hi[j], (k_at ^ step * 32) + j * 16 * ROW);
        if (small) load_matrices(lo[j], (k_at ^ step * 32) + j * 16 * ROW + TERM);
    }
    if (large) multiply(S, r.Q[0], step, hi);
    if (small) multiply(S, r.Q[1], step, hi), multiply(S, r.Q[0], step, lo);
}
// P of a block of 8 keys, in place and as terms.
__device__ __forceinline__ void weigh(Rows& r, Scores S, int i, int n, Weights& P) {
    float* x = S[i][n];
    UNROLL for (int e = 0; e < 4; e++) {
        x[e] = exp2_fast(x[e]);
        if (!ONES) r.l[i][e / 2 * 2] += x[e];
    }
    UNROLL for (int e = 0; e < 2; e++) {
        const int at = n % 2 * 2 + e;
        if (PV_TERMS == 1) {
            P.term[0][n / 2][i][at] = halves(x[2 * e], x[2 * e + 1]);
        } else {
            const Terms t = split_in_two(x[2 * e], x[2 * e + 1]);
            P.term[0][n / 2][i][at] = t.hi, P.term[PV_TERMS - 1][n / 2][i][at] = t.lo;
        }
    }
}
// O += P V in 16 columns: hi hi, and with two terms lo hi and hi lo.
__device__ __forceinline__ void add_values(Rows& r, const Weights& P, int c, unsigned v_at) {
    UNROLL for (int j = 0; j < SL / 2; j++) {
        unsigned V[PV_TERMS][4];
        UNROLL for (int t = 0; t < PV_TERMS; t++) load_transposed(V[t], (v_at ^ c * 32) + j * 16 * ROW + t * TERM);
        const unsigned ones[2] = {ONE, ONE};
        if (ONES && c == 0) UNROLL for (int i = 0; i < MI; i++) mma(r.l[i], P.term[0][j][i], ones);
        UNROLL for (int product = 0; product < 2 * PV_TERMS - 1; product++)
            UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int n = 0; n < 2; n++)
                    mma(r.O[i][2 * c + n], P.term[product == 1][j][i], V[product == 2] + 2 * n);
    }
}
__device__ __forceinline__ void begin_scores(const Rows& r, Scores S) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[i][n][e] = SMALL_FIRST ? 0 : r.base[i][e / 2];
}
// A thread's largest score, as a float's bits, right where it is positive: integers have a maximum of three.
__device__ __forceinline__ int end_scores(const Rows& r, Scores S) {
    int top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        int row = 0;
        UNROLL for (int n = 0; n < SL; n++) {
            if (SMALL_FIRST) S[i][n][2 * h] += r.base[i][h], S[i][n][2 * h + 1] += r.base[i][h];
            row = max(row, max(__float_as_int(S[i][n][2 * h]), __float_as_int(S[i][n][2 * h + 1])));
        }
        top = max(top, row);
    }
    return top;
}
// No weight for keys past the end, of which `left` are before it.
__device__ __forceinline__ void mask(Scores* S, int left) {
    asm volatile("" ::: "memory");  // keeps this a branch: no full tile should pay for it
    UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
            if ((t * SL + n) * 8 + threadIdx.x % 4 * 2 + e % 2 >= left) S[t][i][n][e] = MINUS_INFINITY;
}
// The rows' maximum becomes m; S, O and l follow, by what m really changed in float32.
__device__ __forceinline__ void rescale(Rows& r, Scores* S, bool first) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        float top = MINUS_INFINITY;
        UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int n = 0; n < SL; n++)
            top = fmaxf(top, fmaxf(S[t][i][n][2 * h], S[t][i][n][2 * h + 1]));
        top = lanes_max<4>(top);
        const float old = r.base[i][h];
        r.base[i][h] += first ? BIAS - top : fminf(0, BIAS - top);
        const float change = r.base[i][h] - old;
        const float shrink = first ? 0 : exp2_fast(change);  // first: nothing is there to shrink, and 2^change may be inf
        r.l[i][2 * h] *= shrink;
        UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int n = 0; n < SL; n++)
            S[t][i][n][2 * h] += change, S[t][i][n][2 * h + 1] += change;
        UNROLL for (int n = 0; n < NO; n++) r.O[i][n][2 * h] *= shrink, r.O[i][n][2 * h + 1] *= shrink;
    }
}
// Returns the largest |element|.
__device__ __forceinline__ unsigned load_queries(Rows& r, const float* q, int rows_left, float to_log2) {
    const int lane = threadIdx.x % 32;
    unsigned top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int step = 0; step < STEPS; step++) UNROLL for (int e = 0; e < 4; e++) {
        const int row = i * 16 + lane / 4 + e % 2 * 8, c = step * 16 + lane % 4 * 2 + e / 2 * 8;
        const float2 x = row < rows_left && c < D ? *(const float2*)(q + row * D + c) : float2{0, 0};
        top = max(top, max(magnitude(x.x), magnitude(x.y)));
        const Terms t = split_in_two(x.x * to_log2, x.y * to_log2);
        r.Q[0][i][step][e] = t.hi, r.Q[1][i][step][e] = t.lo;
    }
    return top;
}

__device__ __forceinline__ void zero(Rows& r) {
    UNROLL for (int i = 0; i < MI; i++) {
        UNROLL for (int n = 0; n < NO; n++) UNROLL for (int e = 0; e < 4; e++) r.O[i][n][e] = 0;
        UNROLL for (int e = 0; e < 4; e++) r.l[i][e] = 0;
    }
}
// Adds what was put away before (`again`) to O and l, and stores them: as they are, with l and BIAS - m in stats, or O / l.
__device__ __forceinline__ void put(const Rows& r, float* to, float2* stats, int rows_left, bool again, bool divide) {
    const int lane = threadIdx.x % 32;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        const int row = i * 16 + h * 8 + lane / 4;
        float l = ONES ? r.l[i][2 * h] : lanes_sum<4>(r.l[i][2 * h]) * V_FACTOR, shrink = 0;
        if (row < rows_left) {
            if (again) {
                const float2 old = stats[row];
                shrink = exp2_fast(r.base[i][h] - old.y), l = fmaf(old.x, shrink, l);
            }
            const float over = divide ? __frcp_rn(l) : 1;
            UNROLL for (int n = 0; n < NO; n++) {
                const int c = n * 8 + lane % 4 * 2;
                if (c < D) {
                    float2 x{r.O[i][n][2 * h], r.O[i][n][2 * h + 1]};
                    if (again) {
                        const float2 old = *(const float2*)(to + row * D + c);
                        x.x = fmaf(old.x, shrink, x.x), x.y = fmaf(old.y, shrink, x.y);
                    }
                    *(float2*)(to + row * D + c) = float2{x.x * over, x.y * over};
                }
            }
        }
        __syncwarp();  // all lanes have read stats
        if (row < rows_left && !divide && lane % 4 == 0) stats[row] = float2{l, r.base[i][h]};
    }
    __syncwarp();
}

#if !WARPGROUPS  // else warpgroup.cuh has it
// A block: BR rows against one part of the keys.
__device__ __forceinline__ void attend(const float* q, const float* k, const float* v, float* o, void* scratch,
                                       long long in_stride, long long out_stride, int B, int N, int splits,
                                       float scale) {
    const unsigned row_blocks = ceil_div(N, BR), tiles = ceil_div(N, BC);
    unsigned block = blockIdx.x, part = 0;
    int first = 0, last = N;
    if (splits > 1) {
        part = block % splits, block /= splits;
        first = (long long)tiles * part / splits * BC, last = min(N, int((long long)tiles * (part + 1) / splits * BC));
    }
    const int lane = threadIdx.x % 32, batch = block / row_blocks;
    const int row0 = (block - batch * row_blocks) * BR + threadIdx.x / 32 * 16 * MI;
    const long long at = batch * in_stride + (long long)first * D;
    Ring ring;
    ring.k = k + at, ring.v = v + at;
    ring.scratch = (char*)scratch, ring.tile = batch * tiles + first / BC;
    ring.base = shared_address(shared), ring.keys = last - first, ring.stages = ceil_div(last - first, BC);
    ring.begin();
    Rows r;
    const unsigned noted_q = noted(scratch, 0);
    note(scratch, 0, load_queries(r, q + batch * in_stride + (long long)row0 * D, N - row0, scale * LOG2E), noted_q);
    zero(r);
    UNROLL for (int i = 0; i < MI; i++) r.base[i][0] = r.base[i][1] = 0;
    // O goes to its place; l and BIAS - m, until they are divided, to scratch. (INBLOCK: few keys are one part, one sum.) The
    // addresses are computed where they are needed: kept, they would cost registers.
    auto put_away = [&](bool again, bool last) {
        if (INBLOCK) return put(r, o + batch * out_stride + (long long)row0 * D, nullptr, N - row0, false, true);
        const Partials partials(scratch, B, N, splits);
        const long long rows = (long long)B * N, row_at = (long long)batch * N + row0;
        float* parts = partials.O + (part * rows + row_at) * D;
        float* to = splits > 1 ? parts : o + batch * out_stride + (long long)row0 * D;
        put(r, to, partials.stats + part * rows + row_at, N - row0, again, last && splits == 1);
    };
    const unsigned k_lane = swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    const unsigned v_lane = swizzle(lane & 15, lane >> 4) + 2 * TERM;
    constexpr unsigned SLICE = SL * 8 * ROW;

    ring.ready(0);
    Scores S[SLICES];
    int top = 0;
    UNROLL for (int t = 0; t < SLICES; t++) {
        begin_scores(r, S[t]);
        UNROLL for (int n = 0; n < SCORE_STEPS; n++) add_scores(r, S[t], n, ring.at(0) + k_lane + t * SLICE);
        if (t + 1 < SLICES) top = end_scores(r, S[t]);
    }
    Weights before = {};  // SKEW: P of the slice before, which still has to meet its V
    unsigned v_before = ring.at(0) + v_lane;
    const int subs = ceil_div(ring.keys, SUB);
#pragma unroll 1
    for (int stage = 0; stage < ring.stages; stage++) {
        UNROLL for (int u = 0; u < PARTS; u++) {
            const int sub = stage * PARTS + u, left = ring.keys - sub * SUB;
            if (left <= 0) break;
            const unsigned v_at = ring.at(stage) + v_lane + u * SUB * ROW;
            unsigned k_at = ring.at(stage) + k_lane + (u + 1) * SUB * ROW;
            if (u + 1 == PARTS) {
                if (stage + 1 < ring.stages) ring.ready(stage + 1);
                k_at = ring.at(stage + 1) + k_lane;  // past the end: whatever lies there, its scores are not used
            }
            top = max(top, end_scores(r, S[SLICES - 1]));
            if (left < SUB) mask(S, left);
            // Lazy: only when a score has grown so far that P could pass 2^GROWN; the first time, always.
            if (__builtin_expect(sub == 0 || __any_sync(FULL_WARP, top > __float_as_int(GROWN)), 0)) {
                if (SKEW) {
                    UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, before, c, v_before);
                    before = {};
                }
                rescale(r, S, sub == 0);
                if (!SMALL_FIRST && sub > 0) {  // a sum that began far from m lost digits: again, from the new m
                    UNROLL for (int t = 0; t < SLICES; t++) {
                        begin_scores(r, S[t]);
                        UNROLL for (int n = 0; n < SCORE_STEPS; n++)
                            add_scores(r, S[t], n, ring.at(stage) + k_lane + u * SUB * ROW + t * SLICE);
                    }
                    if (left < SUB) mask(S, left);
                }
            }
            top = 0;
            Scores next[SLICES];
            auto compute = [&](auto more) {
                UNROLL for (int t = 0; t < SLICES; t++) {
                    begin_scores(r, next[t]);
                    Weights P;
                    UNROLL for (int n = 0; n < SCORE_STEPS; n++) {
                        if (more.value) add_scores(r, next[t], n, k_at + t * SLICE);
                        UNROLL for (int x = n * SL * MI / SCORE_STEPS; x < (n + 1) * SL * MI / SCORE_STEPS; x++)
                            weigh(r, S[t], x / SL, x % SL, P);
                        UNROLL for (int c = n * NO / 2 / SCORE_STEPS; SKEW && c < (n + 1) * NO / 2 / SCORE_STEPS; c++)
                            add_values(r, before, c, v_before);
                        if (more.value && n == SCORE_STEPS / 2 && t > 0) top = max(top, end_scores(r, next[t - 1]));
                    }
                    if (SKEW) {
                        before = P, v_before = v_at + t * SLICE;
                    } else {
                        UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, P, c, v_at + t * SLICE);
                    }
                }
            };
            if (!INBLOCK || sub + 1 < subs) compute(Bool<true>{});
            else compute(Bool<false>{});  // few keys: the scores past the end would cost too much
            if (BULK && u == 0 && stage > 0) ring.release(stage - 1);
            UNROLL for (int t = 0; t < SLICES; t++) UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++) S[t][i][n][e] = next[t][i][n][e];
        }
        if (!INBLOCK && (stage + 1) % FLUSH == 0 && stage + 1 < ring.stages) {
            put_away(stage >= FLUSH, false);
            zero(r);
        }
    }
    if (SKEW) UNROLL for (int c = 0; c < NO / 2; c++) add_values(r, before, c, v_before);
    if (INBLOCK) note(scratch, 1, ring.top_k, noted(scratch, 1)), note(scratch, 2, ring.top_v, noted(scratch, 2));
    put_away(ring.stages > FLUSH, true);
}
#endif

// The parts of a row put together: four columns of O a thread.
__device__ __forceinline__ void combine(float* o, void* scratch, long long out_stride, int B, int N, int splits) {
    const long long rows = (long long)B * N, e = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 4, row = e / D;
    if (row >= rows) return;
    const Partials partials(scratch, B, N, splits);
    const float2* stats = partials.stats;
    float least = stats[row].y, l = 0;  // the smallest BIAS - m belongs to the largest m
    for (int p = 1; p < splits; p++) least = fminf(least, stats[p * rows + row].y);
    float4 sum{0, 0, 0, 0};
    for (int p = 0; p < splits; p++) {
        const float w = exp2_fast(least - stats[p * rows + row].y);
        const float4 x = *(const float4*)(partials.O + p * rows * D + e);
        l = fmaf(w, stats[p * rows + row].x, l);
        sum.x = fmaf(w, x.x, sum.x), sum.y = fmaf(w, x.y, sum.y), sum.z = fmaf(w, x.z, sum.z), sum.w = fmaf(w, x.w, sum.w);
    }
    const float over = __frcp_rn(l);
    const long long batch = row / N;
    *(float4*)(o + batch * out_stride + (e - batch * N * D)) =
        float4{sum.x * over, sum.y * over, sum.z * over, sum.w * over};
}
