// Attention on tensor cores with fp32 input: values as sums of fp16 terms. What split.cu and exact.cu share.
//
// A block's warps own MI x 16 rows each. Q's terms and O stay in registers; tiles of BC keys come from a ring of STAGES
// buffers in shared memory: for each key its terms of K and of V, rows swizzled by 16-byte chunks so that ldmatrix
// meets no bank twice. The terms are made by convert() beforehand, in the layout of shared memory, so that a tile is
// one linear copy; or, for few keys (INBLOCK), by the block that needs them.
// Scores are computed one sub-tile of SUB keys ahead of their exponentials, so that MMA, exp2 and conversions of one
// warp are independent of each other and run at the same time.

#ifndef WARPGROUPS  // whether warpgroup.cuh multiplies, where it can
#define WARPGROUPS 0
#endif
#ifdef __CUDA_ARCH__
#define ARCH __CUDA_ARCH__
#else
#define ARCH 0
#endif

constexpr int WIDTH = D <= 32 ? 32 : D <= 64 ? 64 : 128;  // d padded with zeros
constexpr int MI = BR * 2 / THREADS;                      // m16 blocks of rows of a warp
constexpr int STEPS = WIDTH / 16, NO = WIDTH / 8;         // k16 steps of a product QK, n8 blocks of O
constexpr int SUB = WARPGROUPS ? 64 : (PV_TERMS == 2 && WIDTH > 32) || INBLOCK ? 16 : 32;  // keys whose scores are in registers at once
constexpr int SL = MI == 2 ? 2 : SUB / 8, SLICES = SUB / 8 / SL;  // n8 blocks of keys that are computed together
constexpr int PARTS = BC / SUB;
constexpr int CHUNKS = WIDTH / 8;                         // 16-byte chunks of a row
constexpr unsigned ROW = WIDTH * 2, TERM = BC * ROW, STAGE = (2 + PV_TERMS) * TERM;  // bytes; a stage: K hi, lo, V hi(, lo)
constexpr unsigned RANGE = 128;                           // bytes of scratch before the terms: |Q|, |K|, |V|
constexpr bool BULK = !INBLOCK && ARCH >= 900;            // tiles come by the bulk copy engine
constexpr bool SKEW = PV_TERMS == 1 && !INBLOCK && !WARPGROUPS && BLOCKS > 1 && ARCH == 900;  // P V one slice late: if registers allow
// A row's largest P is 2^BIAS to 2^GROWN: nothing that counts is below fp16's normal numbers, nothing overflows.
constexpr float BIAS = 7, GROWN = 15;
// l is the sum of the rounded P, by one more product with a column of ones: then P's rounding cancels in part. With two
// terms nothing is left to cancel, and FADD rounds where tensor cores cut off.
// (INBLOCK at d = 64 has no registers left for it.)
constexpr bool ONES = PV_TERMS == 1 && !(INBLOCK && WIDTH == 64);
// Tensor cores cut off what is small beside the sum: after so many stages O and l are put away and begin at 0 again.
constexpr int LONGEST = PV_TERMS == 1 ? 4096 : 1024, FLUSH = LONGEST / BC;

static_assert(D % 4 == 0 && 4 <= D && D <= 128, "a row is whole 16-byte chunks; beyond 128 O does not fit");
static_assert(MI * THREADS == BR * 2 && (MI == 1 || MI == 2), "each warp owns 16 or 32 rows");
static_assert(LONGEST % BC == 0, "O is put away between tiles");
static_assert(BC % SUB == 0, "a tile is whole sub-tiles");
static_assert(SL % 2 == 0, "P V takes 16 keys a step");
static_assert(!CAUSAL, "the causal mask is not written yet: it belongs where the tail's keys are masked");

extern __shared__ __align__(1024) float4 shared[];

template <bool X> struct Bool { static constexpr bool value = X; };

// ---- Single instructions

// c += a b for 16x16 times 16x8 halves. Lane l holds rows l/4 and l/4+8, columns 2(l%4) and +1 of c.
__device__ __forceinline__ void mma(float* c, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four 8x8 matrices; lane l gives the address of row l%8 of matrix l/8.
__device__ __forceinline__ void load_matrices(unsigned* r, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned* r, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void store_shared(unsigned to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
// Two floats rounded to halves, x in the low half.
__device__ __forceinline__ unsigned halves(float x, float y) {
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}
struct Terms { unsigned hi, lo; };
__device__ __forceinline__ Terms split_in_two(float x, float y) {
    Terms t;
    t.hi = halves(x, y);
    float a, b;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(a), "=f"(b) : "r"(t.hi));
    t.lo = halves(x - a, y - b);
    return t;
}

// ---- The range of the input: the bits of the largest |element|; NaN is above infinity, infinity above numbers

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned noted(const void* scratch, int matrix) {
    return ((const volatile unsigned*)scratch)[matrix];
}
// What was noted a while ago spares most warps the atomic: thousands would queue for one address.
__device__ __forceinline__ void note(void* scratch, int matrix, unsigned top, unsigned before) {
    asm volatile("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(top));
    if (threadIdx.x % 32 == 0 && top > before) atomicMax((unsigned*)scratch + matrix, top);
}

// ---- Tiles of terms

// The offset of a 16-byte chunk in a term. Chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}
// Chunk c of a row of K or V, eight columns, as terms.
__device__ __forceinline__ void make_terms(const float* row, int c, uint4& hi, uint4& lo, unsigned& top) {
    const float4 x = *(const float4*)(row + c * 8);
    const float4 y = c * 8 + 4 < D ? *(const float4*)(row + c * 8 + 4) : float4{0, 0, 0, 0};
    top = max(top, max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w))));
    top = max(top, max(max(magnitude(y.x), magnitude(y.y)), max(magnitude(y.z), magnitude(y.w))));
    const Terms a = split_in_two(x.x, x.y), b = split_in_two(x.z, x.w);
    const Terms e = split_in_two(y.x, y.y), f = split_in_two(y.z, y.w);
    hi = uint4{a.hi, b.hi, e.hi, f.hi}, lo = uint4{a.lo, b.lo, e.lo, f.lo};
}

// All of K and V as terms, tile by tile; eight columns a thread, four times. Keys past the end become zeros.
__device__ __forceinline__ void convert(const float* k, const float* v, void* scratch, long long in_stride, int B,
                                        int N) {
    const int tiles = ceil_div(N, BC);
    const unsigned before_k = noted(scratch, 1), before_v = noted(scratch, 2);
    unsigned top_k = 0, top_v = 0;
    UNROLL for (int n = 0; n < 4; n++) {
        const long long e = (blockIdx.x * 4LL + n) * blockDim.x + threadIdx.x, tile = e / (BC * CHUNKS);
        const long long batch = tile / tiles;
        const int r = e / CHUNKS % BC, c = e % CHUNKS, row = (tile - batch * tiles) * BC + r;
        if (batch >= B) break;
        const long long at = batch * in_stride + (long long)row * D;
        uint4 K[2] = {}, V[2] = {};
        if (row < N && c * 8 < D) make_terms(k + at, c, K[0], K[1], top_k), make_terms(v + at, c, V[0], V[1], top_v);
        char* to = (char*)scratch + RANGE + tile * STAGE + swizzle(r, c);
        UNROLL for (int t = 0; t < 2; t++) *(uint4*)(to + t * TERM) = K[t];
        UNROLL for (int t = 0; t < PV_TERMS; t++) *(uint4*)(to + (2 + t) * TERM) = V[t];
    }
    note(scratch, 1, top_k, before_k);
    note(scratch, 2, top_v, before_v);
}

// The ring of stages. ready(n) brings stage n to all threads and starts a load of stage n + LEAD, into the buffer of
// stage n + LEAD - STAGES, of which no V is wanted any more.
struct Ring {
    const float *k, *v;  // the part's first row
    const char* terms;   // of all batches
    unsigned base, top_k = 0, top_v = 0;
    int keys, stages, tile;  // of the part; its first tile
    static constexpr int LEAD = PARTS > 1 ? STAGES - 2 : STAGES - 3;
    static_assert(INBLOCK || LEAD > 0, "too few stages to load one ahead");

    __device__ __forceinline__ unsigned at(int stage) const { return base + stage % STAGES * STAGE; }

#if ARCH >= 900  // one thread asks for whole tiles; barriers in shared memory count bytes that came and threads that are done
    __device__ __forceinline__ unsigned full(int stage) const { return base + STAGES * STAGE + stage % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(stage) + 8; }
    __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
        asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra done; bra again; "
                     "done: }" ::"r"(barrier), "r"(parity) : "memory");
    }
    __device__ __forceinline__ void fetch(int stage) {
        if (stage >= stages) return;
        if (stage >= STAGES) wait(empty(stage), (stage / STAGES - 1) & 1);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full(stage)), "n"(STAGE) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(at(stage)), "l"(terms + (long long)(tile + stage) * STAGE), "n"(STAGE), "r"(full(stage)) : "memory");
    }
    __device__ __forceinline__ void release(int stage) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(empty(stage)) : "memory");
    }
    __device__ __forceinline__ void prepare() {
        if (threadIdx.x == 0) {
            for (int n = 0; n < STAGES; n++) {
                asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(full(n)) : "memory");
                asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(empty(n)), "n"(THREADS) : "memory");
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }
#else
    __device__ __forceinline__ unsigned full(int) const { return 0; }
    __device__ __forceinline__ void wait(unsigned, unsigned) {}
    __device__ __forceinline__ void fetch(int) {}
    __device__ __forceinline__ void release(int) {}
    __device__ __forceinline__ void prepare() {}
#endif
#if ARCH >= 800
    __device__ __forceinline__ void copy(int stage) {
        if (stage < stages) {
            const char* from = terms + (long long)(tile + stage) * STAGE + threadIdx.x * 16;
            UNROLL for (unsigned n = 0; n < STAGE; n += THREADS * 16)
                copy16_async(at(stage) + threadIdx.x * 16 + n, (const float*)(from + n), true);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ void copied() {
        asm volatile("cp.async.wait_group %0;" ::"n"(INBLOCK ? 0 : LEAD - 1) : "memory");
    }
#endif
    __device__ __forceinline__ void convert_here(int stage) {
        constexpr int PASS = THREADS / CHUNKS;
        static_assert(!INBLOCK || BC % PASS == 0, "a pass covers whole rows of a tile");
        const int c = threadIdx.x % CHUNKS, r = threadIdx.x / CHUNKS;
        UNROLL for (int n = 0; n < BC; n += PASS) {
            const int row = stage * BC + n + r;
            uint4 K[2] = {}, V[2] = {};
            if (row < keys && c * 8 < D)
                make_terms(k + row * D, c, K[0], K[1], top_k), make_terms(v + row * D, c, V[0], V[1], top_v);
            const unsigned to = at(stage) + swizzle(n + r, c);
            UNROLL for (int t = 0; t < 2; t++) store_shared(to + t * TERM, K[t]);
            UNROLL for (int t = 0; t < PV_TERMS; t++) store_shared(to + (2 + t) * TERM, V[t]);
        }
    }
    __device__ __forceinline__ void begin() {
        if (BULK) {
            prepare();
            if (threadIdx.x == 0)
                for (int n = 0; n < LEAD; n++) fetch(n);
        } else if (!INBLOCK) {
            UNROLL for (int n = 0; n < LEAD; n++) copy(n);
        }
    }
    __device__ __forceinline__ void ready(int stage) {
        if (BULK) {
            if (threadIdx.x == 0) fetch(stage + LEAD);
            wait(full(stage), stage / STAGES & 1);
        } else if (INBLOCK) {
            if (stage >= STAGES) __syncthreads();
            convert_here(stage);
            __syncthreads();
        } else {
            copied();
            __syncthreads();
            copy(stage + LEAD);
        }
    }
};

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
// One k16 step of a slice's scores: Q hi K hi + Q lo K hi + Q hi K lo. With two terms in P V, too, the small products of
// all steps come first: the tensor cores cut off what is small beside the sum.
constexpr int SCORE_STEPS = PV_TERMS == 2 ? 2 * STEPS : STEPS;
__device__ __forceinline__ void add_scores(const Rows& r, Scores S, int n, unsigned k_at) {
    const bool small = PV_TERMS == 1 || n < STEPS, large = PV_TERMS == 1 || n >= STEPS;
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
        const unsigned ones[2] = {0x3c003c00, 0x3c003c00};
        if (ONES && c == 0) UNROLL for (int i = 0; i < MI; i++) mma(r.l[i], P.term[0][j][i], ones);
        UNROLL for (int product = 0; product < 2 * PV_TERMS - 1; product++)
            UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int n = 0; n < 2; n++)
                    mma(r.O[i][2 * c + n], P.term[product == 1][j][i], V[product == 2] + 2 * n);
    }
}
// The scores start at BIAS - m, which saves the subtraction; where every digit counts they start at 0.
__device__ __forceinline__ void begin_scores(const Rows& r, Scores S) {
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int n = 0; n < SL; n++) UNROLL for (int e = 0; e < 4; e++)
        S[i][n][e] = PV_TERMS == 2 ? 0 : r.base[i][e / 2];
}
// A thread's largest score, as a float's bits, right where it is positive: integers have a maximum of three.
__device__ __forceinline__ int end_scores(const Rows& r, Scores S) {
    int top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        int row = 0;
        UNROLL for (int n = 0; n < SL; n++) {
            if (PV_TERMS == 2) S[i][n][2 * h] += r.base[i][h], S[i][n][2 * h + 1] += r.base[i][h];
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
__device__ __forceinline__ void load_queries(Rows& r, const float* q, int rows_left, float to_log2, void* scratch) {
    const int lane = threadIdx.x % 32;
    const unsigned before = noted(scratch, 0);
    unsigned top = 0;
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int step = 0; step < STEPS; step++) UNROLL for (int e = 0; e < 4; e++) {
        const int row = i * 16 + lane / 4 + e % 2 * 8, c = step * 16 + lane % 4 * 2 + e / 2 * 8;
        const float2 x = row < rows_left && c < D ? *(const float2*)(q + row * D + c) : float2{0, 0};
        top = max(top, max(magnitude(x.x), magnitude(x.y)));
        const Terms t = split_in_two(x.x * to_log2, x.y * to_log2);
        r.Q[0][i][step][e] = t.hi, r.Q[1][i][step][e] = t.lo;
    }
    note(scratch, 0, top, before);
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
        float l = ONES ? r.l[i][2 * h] : lanes_sum<4>(r.l[i][2 * h]), shrink = 0;
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
    ring.terms = (const char*)scratch + RANGE, ring.tile = batch * tiles + first / BC;
    ring.base = shared_address(shared), ring.keys = last - first, ring.stages = ceil_div(last - first, BC);
    ring.begin();
    Rows r;
    load_queries(r, q + batch * in_stride + (long long)row0 * D, N - row0, scale * LOG2E, scratch);
    zero(r);
    UNROLL for (int i = 0; i < MI; i++) r.base[i][0] = r.base[i][1] = 0;
    // O goes to its place; l and BIAS - m, until they are divided, to scratch, which holds, behind the terms, a row of
    // stats for each row and part, then each part's O. The addresses are made when they are wanted: registers are dear.
    auto put_away = [&](bool again, bool last) {
        const long long rows = (long long)B * N, row_at = (long long)batch * N + row0;
        float2* stats = (float2*)((char*)scratch + RANGE + (INBLOCK ? 0 : (long long)B * tiles * STAGE));
        float* parts = (float*)(stats + splits * rows) + (part * rows + row_at) * D;
        float* to = splits > 1 ? parts : o + batch * out_stride + (long long)row0 * D;
        put(r, to, stats + part * rows + row_at, N - row0, again, last && splits == 1);
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
                if (PV_TERMS == 1 && sub > 0) {  // a sum that began far from m lost digits: again, from the new m
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
__device__ __forceinline__ void combine(float* o, const void* scratch, long long out_stride, int B, int N, int splits) {
    const long long rows = (long long)B * N, e = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 4, row = e / D;
    if (row >= rows) return;
    const float2* stats =
        (const float2*)((const char*)scratch + RANGE + (INBLOCK ? 0 : (long long)B * ceil_div(N, BC) * STAGE));
    const float* parts = (const float*)(stats + splits * rows);
    float least = stats[row].y, l = 0;  // the smallest BIAS - m belongs to the largest m
    for (int p = 1; p < splits; p++) least = fminf(least, stats[p * rows + row].y);
    float4 sum{0, 0, 0, 0};
    for (int p = 0; p < splits; p++) {
        const float w = exp2_fast(least - stats[p * rows + row].y);
        const float4 x = *(const float4*)(parts + p * rows * D + e);
        l = fmaf(w, stats[p * rows + row].x, l);
        sum.x = fmaf(w, x.x, sum.x), sum.y = fmaf(w, x.y, sum.y), sum.z = fmaf(w, x.z, sum.z), sum.w = fmaf(w, x.w, sum.w);
    }
    const float over = __frcp_rn(l);
    const long long batch = row / N;
    *(float4*)(o + batch * out_stride + (e - batch * N * D)) =
        float4{sum.x * over, sum.y * over, sum.z * over, sum.w * over};
}
