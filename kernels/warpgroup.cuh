// Attention by warp groups: four warps multiply 64 rows at once, asynchronously (wgmma, compute capability 9.0). The
// numbers and their order are those of tensor.cuh; what differs is who multiplies, and when.
//
// While the tensor cores compute the next scores and P V, the warps take exponentials. Q and P come from registers, K and
// V from shared memory as they lie there. Behind V, as the tensor cores see it, is a column of ones: the sum of the
// rounded P comes with O.

// d = 64: a group asks for its next scores before it weighs these. d = 32 has half as many products for an exponential:
// there four groups to a multiprocessor, with fewer registers each, keep the tensor cores busier.
constexpr bool AHEAD = WIDTH == 64;
constexpr unsigned ONES_ROWS = 16;  // of one product

static_assert(MI == 1 && THREADS % 128 == 0, "a group of four warps owns 64 rows");
static_assert(PV_TERMS == 1 && WIDTH <= 64 && !INBLOCK && PARTS == 2, "what was written, and measured");

// A matrix in shared memory as wgmma wants it told: rows of ROW bytes, swizzled as in terms.cuh, in groups of eight.
// What lies `beyond` bytes after it are further columns. (PTX ISA, "Matrix-Descriptor Format".)
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, unsigned beyond = 0) {
    constexpr unsigned long long SWIZZLE = WIDTH == 64 ? 1 : 2;  // over 128 or 64 bytes
    return (address & 0x3ffff) >> 4 | (unsigned long long)(beyond >> 4) << 16 |
           (unsigned long long)(8 * ROW >> 4) << 32 | SWIZZLE << 62;
}
__device__ __forceinline__ void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void group_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most LATER groups of products are still computed.
template <int LATER> __device__ __forceinline__ void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
}
// Whether one of the group's threads says so: all four warps must ask, and wait, for products together.
__device__ __forceinline__ bool group_any(bool mine) {
    unsigned any;
    asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred q, %2, 128, p; selp.u32 %0, 1, 0, q;}"
                 : "=r"(any) : "r"(unsigned(mine)), "r"(1 + threadIdx.x / 128) : "memory");
    return any;
}
// The tensor cores use these registers: the compiler must not move what it does with them across this.
template <int N> __device__ __forceinline__ void keep(float (&c)[N][4]) {
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int e = 0; e < 4; e++) asm volatile("" : "+f"(c[n][e])::"memory");
}
__device__ __forceinline__ void keep(Rows& r) { keep(r.O[0]), keep(r.l); }

#define FOUR(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])
#define R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R32 R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA(n) "{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {"
// S += Q K in 16 columns, for 64 keys.
__device__ __forceinline__ void multiply_keys(float (&S)[8][4], const unsigned* Q, unsigned long long K) {
    asm volatile(WGMMA(64) R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}"
                 : FOUR(S[0]), FOUR(S[1]), FOUR(S[2]), FOUR(S[3]), FOUR(S[4]), FOUR(S[5]), FOUR(S[6]), FOUR(S[7])
                 : "r"(Q[0]), "r"(Q[1]), "r"(Q[2]), "r"(Q[3]), "l"(K));
}
// O += P V and l += P 1, for 16 keys; eight equal columns of l.
__device__ __forceinline__ void multiply_values(float (&O)[8][4], float (&l)[4], const unsigned* P, unsigned long long V) {
    asm volatile(WGMMA(72) R32 ",%32,%33,%34,%35}, {%36,%37,%38,%39}, %40, p, 1, 1, 1;}"
                 : FOUR(O[0]), FOUR(O[1]), FOUR(O[2]), FOUR(O[3]), FOUR(O[4]), FOUR(O[5]), FOUR(O[6]), FOUR(O[7]), FOUR(l)
                 : "r"(P[0]), "r"(P[1]), "r"(P[2]), "r"(P[3]), "l"(V));
}
__device__ __forceinline__ void multiply_values(float (&O)[4][4], float (&l)[4], const unsigned* P, unsigned long long V) {
    asm volatile(WGMMA(40) R16 ",%16,%17,%18,%19}, {%20,%21,%22,%23}, %24, p, 1, 1, 1;}"
                 : FOUR(O[0]), FOUR(O[1]), FOUR(O[2]), FOUR(O[3]), FOUR(l)
                 : "r"(P[0]), "r"(P[1]), "r"(P[2]), "r"(P[3]), "l"(V));
}

// Ask for the scores of SUB keys: the products of one k16 step after the other, as in add_scores.
__device__ __forceinline__ void ask_scores(const Rows& r, Scores S, unsigned k_at) {
    begin_scores(r, S);
    keep(S[0]);
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) {
        const unsigned long long hi = matrix_at(k_at + n * 32), lo = matrix_at(k_at + n * 32 + TERM);
        multiply_keys(S[0], r.Q[0][0][n], hi);
        multiply_keys(S[0], r.Q[1][0][n], hi);
        multiply_keys(S[0], r.Q[0][0][n], lo);
    }
    group_end();
}
__device__ __forceinline__ void ask_values(Rows& r, const Weights& P, unsigned v_at, unsigned ones) {
    keep(r);
    group_begin();
    UNROLL for (int j = 0; j < SL / 2; j++) {
        const unsigned at = v_at + j * 16 * ROW;
        multiply_values(r.O[0], r.l[0], P.term[0][j][0], matrix_at(at, ones - at));
    }
    group_end();
}
// The scores once more, at once and by each warp for itself.
__device__ __forceinline__ void add_again(const Rows& r, Scores S, unsigned k_at) {
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));  // here, as in put_away below
    const unsigned k_lane = k_at + swizzle((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1);
    begin_scores(r, S);
    UNROLL for (int n = 0; n < STEPS; n++) UNROLL for (int j = 0; j < SL / 2; j++) {
        unsigned hi[4], lo[4];
        load_matrices(hi, (k_lane ^ n * 32) + j * 16 * ROW);
        load_matrices(lo, (k_lane ^ n * 32) + j * 16 * ROW + TERM);
        UNROLL for (int h = 0; h < 2; h++) {
            mma(S[0][2 * j + h], r.Q[0][0][n], hi + 2 * h);
            mma(S[0][2 * j + h], r.Q[1][0][n], hi + 2 * h);
            mma(S[0][2 * j + h], r.Q[0][0][n], lo + 2 * h);
        }
    }
}

// What a thread's warp computes.
struct Task { int batch, row0, part, first, last; };
__device__ __forceinline__ Task task(unsigned block, unsigned thread, int N, int splits) {
    const unsigned row_blocks = ceil_div(N, BR), tiles = ceil_div(N, BC);
    Task t{0, 0, 0, 0, N};
    if (splits > 1) {
        t.part = block % splits, block /= splits;
        t.first = (long long)tiles * t.part / splits * BC;
        t.last = min(N, int((long long)tiles * (t.part + 1) / splits * BC));
    }
    t.batch = block / row_blocks;
    t.row0 = (block - t.batch * row_blocks) * BR + thread / 32 * 16;
    return t;
}

// A block: BR rows against one part of the keys.
__device__ __forceinline__ void attend(const float* q, const float* k, const float* v, float* o, void* scratch,
                                       long long in_stride, long long out_stride, int B, int N, int splits,
                                       float scale) {
    Ring ring;
    Rows r;
    {
        const Task t = task(blockIdx.x, threadIdx.x, N, splits);
        ring.terms = (const char*)scratch + RANGE, ring.tile = t.batch * ceil_div(N, BC) + t.first / BC;
        ring.base = shared_address(shared), ring.keys = t.last - t.first, ring.stages = ceil_div(ring.keys, BC);
        ring.begin();
        load_queries(r, q + t.batch * in_stride + (long long)t.row0 * D, N - t.row0, scale * LOG2E, scratch);
    }
    const unsigned ones = ring.base + ceil_div(STAGES * (STAGE + 16), 1024) * 1024;
    for (unsigned n = threadIdx.x * 4; n < ONES_ROWS * ROW; n += THREADS * 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(ones + n), "r"(0x3c003c00) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    zero(r);
    r.base[0][0] = r.base[0][1] = 0;

    const int subs = ceil_div(ring.keys, SUB);
    auto keys_at = [&](int sub) { return ring.at(sub / PARTS) + sub % PARTS * SUB * ROW; };
    auto mask_tail = [&](Scores& S, int sub) {
        if (ring.keys - sub * SUB < SUB) mask(&S, ring.keys - sub * SUB);
    };
    auto ask_next = [&](Scores& S, int sub) {  // past the end: whatever lies there, its scores are not used
        if (sub % PARTS == 0 && sub < subs) ring.ready(sub / PARTS);
        ask_scores(r, S, keys_at(sub));
    };
    auto release = [&](int sub) {  // all products with the tile before are computed
        if (sub % PARTS == 0 && sub > 0) ring.release(sub / PARTS - 1);
    };
    auto outgrown = [&](int top) { return top > __float_as_int(GROWN); };
    auto move_m = [&](Scores& S, int sub) {  // and sum again from the new m: a sum that began far from it lost digits
        rescale(r, &S, false);
        add_again(r, S, keys_at(sub));
        mask_tail(S, sub);
    };
    auto put_away = [&](bool again, bool last) {
        group_wait<0>();
        keep(r);
        unsigned block, thread;
        asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%tid.x;" : "=r"(block), "=r"(thread));
        const Task t = task(block, thread, N, splits);  // found out again, and not kept for it: registers are dear
        const long long rows = (long long)B * N, row_at = (long long)t.batch * N + t.row0;
        float2* stats = (float2*)((char*)scratch + RANGE + (long long)B * ceil_div(N, BC) * STAGE);
        float* parts = (float*)(stats + splits * rows) + (t.part * rows + row_at) * D;
        float* to = splits > 1 ? parts : o + t.batch * out_stride + (long long)t.row0 * D;
        put(r, to, stats + t.part * rows + row_at, N - t.row0, again, last && splits == 1);
    };
    auto flush = [&](int sub) {
        if ((sub + 1) % (FLUSH * PARTS) == 0 && sub + 1 < subs) put_away(sub / PARTS >= FLUSH, false), zero(r);
    };

    Scores S;
    ask_next(S, 0);
    group_wait<0>();
    keep(S[0]);
    mask_tail(S, 0);
    rescale(r, &S, true);
    if (AHEAD) {
        Scores T;
        Weights P, R;
        auto step = [&](int sub, Scores& now, Scores& next, Weights& P) {
            ask_next(next, sub + 1);
            const int top = end_scores(r, now);
            mask_tail(now, sub);
            if (__builtin_expect(group_any(outgrown(top)), 0)) {
                group_wait<0>();
                keep(next[0]), keep(r);
                move_m(now, sub);
                add_again(r, next, keys_at(sub + 1));
                keep(next[0]), keep(r);
            }
            UNROLL for (int n = 0; n < SL; n++) weigh(r, now, 0, n, P);
            ask_values(r, P, keys_at(sub) + 2 * TERM, ones);
            group_wait<1>();  // the next scores are there, and what was asked for before
            keep(next[0]);
            release(sub);
            flush(sub);
        };
#pragma unroll 1
        for (int sub = 0; sub < subs; sub += 2) {
            step(sub, S, T, P);
            if (sub + 1 == subs) break;
            step(sub + 1, T, S, R);
        }
    } else {
        Weights P;
#pragma unroll 1
        for (int sub = 0; sub < subs; sub++) {
            const int top = end_scores(r, S);
            mask_tail(S, sub);
            group_wait<0>();  // P V of the keys before
            keep(r);
            release(sub);
            if (__builtin_expect(__any_sync(FULL_WARP, outgrown(top)), 0)) move_m(S, sub);
            UNROLL for (int n = 0; n < SL; n++) weigh(r, S, 0, n, P);
            ask_next(S, sub + 1);
            ask_values(r, P, keys_at(sub) + 2 * TERM, ones);
            group_wait<1>();
            keep(S[0]);
            flush(sub);
        }
    }
    put_away(ring.stages > FLUSH, true);
}
