// Attention by warp groups: four warps multiply 64 rows at once, asynchronously (wgmma, compute capability 9.0).
//
// While the tensor cores compute the next scores and P V, the warps take exponentials. P comes from registers, Q from there
// or from shared memory, K and V from shared memory as they lie there. Behind V, as the tensor cores see it, is a column
// of ones: the sum of the rounded P comes with O.

#if WARPGROUPS
// d = 64: a group asks for its next scores before it weighs these. d = 32 has half as many products for an exponential:
// there four groups to a multiprocessor, with fewer registers each, keep the tensor cores busier.
constexpr bool AHEAD = WIDTH == 64;
// Shared memory: the ring; Tops; ones for the 16 keys of a product; a tile of float32: O of the keys before, or Q's terms.
constexpr unsigned TOPS_AT = STAGES * (STAGE + 16), TOPS_BYTES = 3 * Tops::WARPS * 4;
constexpr unsigned ONES_AT = ceil_div(TOPS_AT + TOPS_BYTES, 1024) * 1024, ONES_BYTES = 16 * ROW;
constexpr unsigned TILE_AT = ONES_AT + ONES_BYTES;

static_assert(MI == 1 && THREADS == Tops::WARPS * 32, "two groups of four warps, each with 64 rows");
static_assert(PV_TERMS == 1 && SMALL_FIRST && WIDTH <= 64, "what was written, and measured");

// A matrix in shared memory as wgmma wants it told: rows of ROW bytes, swizzled as in terms.cuh, in groups of eight.
// What lies `beyond` bytes after it are further columns. (PTX ISA, "Matrix-Descriptor Format".)
__device__ __forceinline__ unsigned long long matrix_at(unsigned address, unsigned beyond = 0) {
    constexpr unsigned long long SWIZZLE = WIDTH == 64 ? 1 : 2;  // over 128 or 64 bytes
    return (address & 0x3ffff) >> 4 | (unsigned long long)(beyond >> 4) << 16 |
           (unsigned long long)(8 * ROW >> 4) << 32 | SWIZZLE << 62;
}
__device__ __forceinline__ void keep(Rows& r) { keep(r.O[0]), keep(r.l); }
// All products are computed.
__device__ __forceinline__ void finish(Rows& r) { group_wait<0>(), keep(r); }

// Ask for the scores of SUB keys. query(term, n) tells a term of Q in 16 columns.
template <class Query> __device__ __forceinline__ void ask_scores(const Rows& r, Scores S, Query query, unsigned k_at) {
    begin_scores(r, S);
    keep(S[0]);
    group_begin();
    UNROLL for (int n = 0; n < STEPS; n++) {
        wgmma(S[0], query(1, n), matrix_at(k_at + n * 32));
        wgmma(S[0], query(0, n), matrix_at(k_at + n * 32 + TERM));
    }
    UNROLL for (int n = 0; n < STEPS; n++) wgmma(S[0], query(0, n), matrix_at(k_at + n * 32));
    group_end();
}
__device__ __forceinline__ void ask_values(Rows& r, const Weights& P, unsigned v_at, unsigned ones) {
    keep(r);
    group_begin();
    UNROLL for (int j = 0; j < SL / 2; j++) {
        const unsigned at = v_at + j * 16 * ROW;
        wgmma_rows(r.O[0], r.l[0], P.term[0][j][0], matrix_at(at, ones - at));  // and l += P 1: eight equal columns
    }
    group_end();
}
__device__ __forceinline__ void make_ones(unsigned at) {
    for (unsigned n = threadIdx.x * 4; n < ONES_BYTES; n += THREADS * 4) store_shared(at + n, ONE);
}
// What the threads have written to shared memory is there for the tensor cores.
__device__ __forceinline__ void show_shared() {
    fence_async();
    __syncthreads();
}
__device__ __forceinline__ bool outgrown(int top) {
    return __any_sync(FULL_WARP, top > __float_as_int(GROWN));
}

#if INBLOCK
// A block: BR rows against all keys. It makes the terms of all that it reads itself, and its groups do one thing after the
// other: other blocks use what they leave idle.
__device__ __forceinline__ void attend(const float* q, const float* k, const float* v, float* o, void* scratch,
                                       long long in_stride, long long out_stride, int B, int N, int splits,
                                       float scale) {
    static_assert(BR == BC, "a tile of Q is as large as one of K");
    const unsigned row_blocks = ceil_div(N, BR), batch = blockIdx.x / row_blocks;
    const int first_row = (blockIdx.x - batch * row_blocks) * BR, row0 = first_row + threadIdx.x / 32 * 16;
    q += batch * in_stride, k += batch * in_stride, v += batch * in_stride, o += batch * out_stride;
    const unsigned base = shared_address(shared), ones = base + ONES_AT, q_at = base + TILE_AT;
    const unsigned q_group = q_at + threadIdx.x / 128 * 64 * ROW;
    auto query = [&](int term, int n) { return matrix_at(q_group + n * 32 + term * TERM); };
    Tops tops{(unsigned*)((char*)shared + TOPS_AT)};
    Rows r;
    zero(r);
    r.base[0][0] = r.base[0][1] = 0;
#pragma unroll 1
    for (int first_key = 0; first_key < N; first_key += BC) {
        const int keys = N - first_key;
        if (first_key > 0) __syncthreads();
        tops.begin(scratch, 0);
        unsigned top_q = 0, top_k = 0, top_v = 0;
        const Loads from_k = load_tile(k + first_key * D, keys);
        if (first_key == 0) {
            const Loads from_q = load_tile(q + first_row * D, N - first_row);
            make_ones(ones);
            make_tile<2>(from_q, scale * LOG2E, q_at, top_q);
            tops.leave(0, top_q);
        }
        const Loads from_v = load_tile(v + first_key * D, keys);  // now that Q has left the registers
        make_tile<2>(from_k, 1, base, top_k);
        make_tile<1>(from_v, V_FACTOR, base + 2 * TERM, top_v);
        tops.leave(1, top_k);
        tops.leave(2, top_v);
        show_shared();
        tops.note_all(scratch, 0);
#pragma unroll 1
        for (int n = 0; n < min(keys, BC); n += SUB) {
            Scores S;
            ask_scores(r, S, query, base + n * ROW);
            group_wait<0>();
            keep(S[0]);
            const int top = end_scores(r, S);
            if (keys - n < SUB) mask(&S, keys - n);
            const bool first = first_key + n == 0;
            if (first || outgrown(top)) rescale(r, &S, first);
            Weights P;
            UNROLL for (int j = 0; j < SL; j++) weigh(r, S, 0, j, P);
            ask_values(r, P, base + 2 * TERM + n * ROW, ones);
            finish(r);
        }
    }
    put(r, o + row0 * D, (float2*)((char*)scratch + RANGE), N - row0, false, true);
}
#else
__device__ __forceinline__ void begin_m(Rows& r, const Scores S) {
    UNROLL for (int h = 0; h < 2; h++) {
        float top = MINUS_INFINITY;
        UNROLL for (int n = 0; n < SL; n++) top = fmaxf(top, fmaxf(S[0][n][2 * h], S[0][n][2 * h + 1]));
        r.base[0][h] = BIAS - lanes_max<4>(top);
    }
}

// O, l and BIAS - m of the keys before, added up in float32; O, for want of registers, in shared memory.
struct Past {
    unsigned at;
    float l[2], base[2];
    __device__ __forceinline__ unsigned place(int n) const { return at + (n * THREADS + threadIdx.x) * 16; }
    // Takes r, after what is here already (`again`).
    __device__ __forceinline__ void take(Rows& r, bool again) {
        if (again) add_to(r);
        UNROLL for (int h = 0; h < 2; h++) l[h] = r.l[0][2 * h], base[h] = r.base[0][h];
        UNROLL for (int n = 0; n < NO; n++)
            store_shared(place(n), r.O[0][n][0], r.O[0][n][1], r.O[0][n][2], r.O[0][n][3]);
        zero(r);
    }
    __device__ __forceinline__ void add_to(Rows& r) const {
        float shrink[2];
        UNROLL for (int h = 0; h < 2; h++)
            shrink[h] = exp2_fast(r.base[0][h] - base[h]), r.l[0][2 * h] = fmaf(l[h], shrink[h], r.l[0][2 * h]);
        UNROLL for (int n = 0; n < NO; n++) {
            const Four x = load_shared(place(n));
            UNROLL for (int e = 0; e < 4; e++) r.O[0][n][e] = fmaf(x.v[e], shrink[e / 2], r.O[0][n][e]);
        }
    }
};

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
    Tops tops{(unsigned*)((char*)shared + TOPS_AT)};
    Rows r;
    {
        const Task t = task(blockIdx.x, threadIdx.x, N, splits);
        ring.scratch = (char*)scratch, ring.tile = t.batch * ceil_div(N, BC) + t.first / BC;
        ring.base = shared_address(shared), ring.keys = t.last - t.first, ring.stages = ceil_div(ring.keys, BC);
        ring.begin();
        tops.begin(scratch, 0);
        const float* rows = q + t.batch * in_stride + (long long)t.row0 * D;
        tops.leave(0, load_queries(r, rows, N - t.row0, scale * LOG2E));
    }
    const unsigned ones = ring.base + ONES_AT;
    Past past{ring.base + TILE_AT};
    make_ones(ones);
    show_shared();
    if (threadIdx.x == 0) tops.note_all(scratch, 0);
    zero(r);
    r.base[0][0] = r.base[0][1] = 0;

    const int subs = ceil_div(ring.keys, SUB);
    auto keys_at = [&](int sub) { return ring.at(sub / PARTS) + sub % PARTS * SUB * ROW; };
    auto mask_tail = [&](Scores& S, int sub) {
        if (ring.keys - sub * SUB < SUB) mask(&S, ring.keys - sub * SUB);
    };
    auto load_ahead = [&](int sub) {
        if (sub % PARTS == 0) ring.load_ahead(sub / PARTS);
    };
    auto ask_next = [&](Scores& S, int sub) {  // past the end: whatever lies there, its scores are not used
        if (!AHEAD || sub == 0) load_ahead(sub);
        if (sub % PARTS == 0 && sub < subs) ring.ready(sub / PARTS);
        ask_scores(r, S, [&](int term, int n) { return r.Q[term][0][n]; }, keys_at(sub));
    };
    auto release = [&](int sub) {  // all products with the tile before are computed
        if (sub % PARTS == 0 && sub > 0) ring.release(sub / PARTS - 1);
    };
    auto put_away = [&](int sub) {
        if ((sub + 1) % (FLUSH * PARTS) == 0 && sub + 1 < subs) finish(r), past.take(r, sub >= FLUSH * PARTS);
    };

    Scores S, T;
    ask_next(S, 0);
    group_wait<0>();
    keep(S[0]);
    mask_tail(S, 0);
    begin_m(r, S);
    auto step = [&](int sub, Scores& now, Scores& next, auto last) {
        if (AHEAD) ask_next(next, sub + 1);
        const int top = end_scores(r, now);
        mask_tail(now, sub);
        group_wait<AHEAD>();  // P V of the keys before
        keep(r);
        release(sub);
        if (__builtin_expect(outgrown(top), 0)) rescale(r, &now, false);
        Weights P;
        UNROLL for (int n = 0; n < SL; n++) weigh(r, now, 0, n, P);
        if (!AHEAD) ask_next(next, sub + 1);
        ask_values(r, P, keys_at(sub) + 2 * TERM, ones);
        if (AHEAD) load_ahead(sub + 1);  // which waits for the other group to leave the buffer: here that costs nothing
        if (last.value) finish(r);
        else group_wait<1>();
        keep(next[0]);
        put_away(sub);
    };
    // Where paths meet, no sum that is read must still be computed: else the compiler waits after each product (C7514).
    if (AHEAD) {
#pragma unroll 1
        for (int sub = 0; sub < subs; sub += 2) {
            step(sub, S, T, Bool<false>{});
            if (sub + 1 == subs) {
                finish(r);
                break;
            }
            step(sub + 1, T, S, Bool<true>{});
        }
    } else {
#pragma unroll 1
        for (int sub = 0; sub < subs; sub++) step(sub, S, S, Bool<false>{});
    }
    finish(r);
    if (ring.stages > FLUSH) past.add_to(r);
    unsigned block, thread;
    read_again(block, thread);
    const Task t = task(block, thread, N, splits);  // found out again, and not kept for it: registers are dear
    const Partials partials(scratch, B, N, splits);
    const long long row = (t.part * (long long)B + t.batch) * N + t.row0;
    float* to = splits > 1 ? partials.O + row * D : o + t.batch * out_stride + (long long)t.row0 * D;
    put(r, to, partials.stats + row, N - t.row0, false, splits == 1);
}
#endif
#endif  // WARPGROUPS
