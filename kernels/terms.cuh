// fp32 input as sums of fp16 terms, and how they come to the tensor cores: sizes, the range, the tiles.
// What split.cu and exact.cu begin with; tensor.cuh multiplies.
//
// Tiles of BC keys come from a ring of STAGES buffers in shared memory: for each key its terms of K and of V, rows
// swizzled by 16-byte chunks so that ldmatrix meets no bank twice. The terms are made by convert() beforehand, in the
// layout of shared memory, so that a tile is one linear copy; or, for few keys (INBLOCK), by the block that needs them.

#ifndef WARPGROUPS  // whether warpgroup.cuh multiplies, where it can
#define WARPGROUPS 0
#endif

constexpr int WIDTH = D <= 32 ? 32 : D <= 64 ? 64 : 128;  // d padded with zeros
constexpr int MI = BR * 2 / THREADS;                      // m16 blocks of rows of a warp
constexpr int STEPS = WIDTH / 16, NO = WIDTH / 8;         // k16 steps of a product QK, n8 blocks of O
// Keys whose scores are in registers at once.
constexpr int SUB = WARPGROUPS ? (INBLOCK && WIDTH == 32 ? 32 : 64) : (PV_TERMS == 2 && WIDTH > 32) || INBLOCK ? 16 : 32;
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
// (INBLOCK at d = 64, without warp groups, has no registers left for it.)
constexpr bool ONES = PV_TERMS == 1 && (WARPGROUPS || !(INBLOCK && WIDTH == 64));
// V and the ones times 1365/1024, which drops out of O / l: 3 becomes just less than 4, where fp16 is as fine as at 2.
constexpr float V_FACTOR = PV_TERMS == 1 ? 1365.0f / 1024 : 1;
constexpr unsigned ONE = 0x3d553d55;  // two halves of 1365/1024
// A score's sum begins at 0 with its small products, as tensor cores cut off what is small beside the sum; m is subtracted
// afterwards. Else it begins at BIAS - m and takes all products of a column together: no fragment is loaded twice.
constexpr bool SMALL_FIRST = PV_TERMS == 2 || WARPGROUPS;
// For the same reason O and l are put away after so many keys, and begin at 0 again.
constexpr int LONGEST = PV_TERMS == 2 || WARPGROUPS ? 1024 : 4096, FLUSH = LONGEST / BC;

static_assert(D % 4 == 0 && 4 <= D && D <= 128, "a row is whole 16-byte chunks; beyond 128 O does not fit");
static_assert(MI * THREADS == BR * 2 && (MI == 1 || MI == 2), "each warp owns 16 or 32 rows");
static_assert(LONGEST % BC == 0, "O is put away between tiles");
static_assert(BC % SUB == 0, "a tile is whole sub-tiles");
static_assert(SL % 2 == 0, "P V takes 16 keys a step");
static_assert(!CAUSAL, "the causal mask is not written yet: it belongs where the tail's keys are masked");

extern __shared__ __align__(1024) float4 shared[];

template <bool X> struct Bool { static constexpr bool value = X; };

struct Terms { unsigned hi, lo; };
__device__ __forceinline__ Terms split_in_two(float x, float y) {
    Terms t;
    t.hi = halves(x, y);
    const float2 rounded = floats(t.hi);
    t.lo = halves(x - rounded.x, y - rounded.y);
    return t;
}

// ---- The range of the input: the bits of the largest |element|; NaN is above infinity, infinity above numbers

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ unsigned noted(const void* scratch, int matrix) {
    return ((const volatile unsigned*)scratch)[matrix];
}
// What was noted a while ago spares most warps the atomic: thousands would queue for one address.
__device__ __forceinline__ void note(void* scratch, int matrix, unsigned top, unsigned before) {
    top = warp_max(top);
    if (threadIdx.x % 32 == 0 && top > before) atomicMax((unsigned*)scratch + matrix, top);
}
// The same with an atomic a block: its warps leave what they found in shared memory; then, after a barrier, thread n notes
// matrix n, from `first` on.
struct Tops {
    static constexpr int WARPS = 256 / 32;
    unsigned* found;  // a number for each matrix and warp
    unsigned before;
    __device__ __forceinline__ static bool notes(int first) { return first <= threadIdx.x && threadIdx.x < 3; }
    __device__ __forceinline__ void begin(const void* scratch, int first) {
        before = notes(first) ? noted(scratch, threadIdx.x) : 0;
    }
    __device__ __forceinline__ void leave(int matrix, unsigned top) {
        top = warp_max(top);
        if (threadIdx.x % 32 == 0) found[matrix * WARPS + threadIdx.x / 32] = top;
    }
    __device__ __forceinline__ void note_all(void* scratch, int first) {
        if (!notes(first)) return;
        unsigned top = 0;
        UNROLL for (int n = 0; n < WARPS; n++) top = max(top, found[threadIdx.x * WARPS + n]);
        if (top > before) atomicMax((unsigned*)scratch + threadIdx.x, top);
    }
};

// ---- Scratch behind the terms

// l and BIAS - m of each row and part of the keys; then, if there are several parts, O of each. O is read 16 bytes at a
// time, so a pair of numbers is left out before it where the number of pairs is odd.
struct Partials {
    float2* stats;
    float* O;
    __device__ __forceinline__ Partials(void* scratch, int B, int N, int splits) {
        const int odd = splits & B & N & 1;
        stats = (float2*)((char*)scratch + RANGE + (INBLOCK ? 0 : (long long)B * ceil_div(N, BC) * STAGE));
        O = (float*)(stats + splits * ((long long)B * N) + odd);
    }
};
static_assert(RANGE % 16 == 0 && STAGE % 16 == 0, "what comes before O is whole 16-byte chunks");

// ---- Tiles of terms

// The offset of a 16-byte chunk in a term. Chunk c + 2k lies at the offset of chunk c, exclusive-or 32 k.
__device__ __forceinline__ unsigned swizzle(unsigned row, unsigned chunk) {
    return row * ROW + (WIDTH == 32 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) * 16;
}
// Eight columns of a row; zeros past the end.
struct Chunk { float4 x{0, 0, 0, 0}, y{0, 0, 0, 0}; };
__device__ __forceinline__ Chunk load_chunk(const float* row, int c, bool inside) {
    Chunk r;
    if (inside && c * 8 < D) r.x = *(const float4*)(row + c * 8);
    if (inside && c * 8 + 4 < D) r.y = *(const float4*)(row + c * 8 + 4);
    return r;
}
// Eight columns times a factor as terms, hi and lo.
__device__ __forceinline__ void make_terms(const Chunk& r, float factor, uint4* term, unsigned& top) {
    const float4 x = r.x, y = r.y;
    top = max(top, max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w))));
    top = max(top, max(max(magnitude(y.x), magnitude(y.y)), max(magnitude(y.z), magnitude(y.w))));
    const Terms a = split_in_two(x.x * factor, x.y * factor), b = split_in_two(x.z * factor, x.w * factor);
    const Terms e = split_in_two(y.x * factor, y.y * factor), f = split_in_two(y.z * factor, y.w * factor);
    term[0] = uint4{a.hi, b.hi, e.hi, f.hi}, term[1] = uint4{a.lo, b.lo, e.lo, f.lo};
}

// A block's way from BC rows of Q, K or V to terms in shared memory: load_tile asks for all that it loads before make_tile
// uses the first.
constexpr int PASS = THREADS / CHUNKS, PASSES = ceil_div(BC, PASS);
static_assert(!INBLOCK || BC % PASS == 0, "a pass covers whole rows of a tile");
struct Loads { Chunk x[PASSES]; };
__device__ __forceinline__ Loads load_tile(const float* rows, int left) {
    Loads r;
    UNROLL for (int n = 0; n < PASSES; n++) {
        const int row = n * PASS + threadIdx.x / CHUNKS;
        r.x[n] = load_chunk(rows + row * D, threadIdx.x % CHUNKS, row < left);
    }
    return r;
}
template <int TERMS>
__device__ __forceinline__ void make_tile(const Loads& r, float factor, unsigned to, unsigned& top) {
    UNROLL for (int n = 0; n < PASSES; n++) {
        uint4 term[2];
        make_terms(r.x[n], factor, term, top);
        const unsigned at = to + swizzle(n * PASS + threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
        UNROLL for (int t = 0; t < TERMS; t++) store_shared(at + t * TERM, term[t]);
    }
}

// All of K and V as terms, tile by tile; eight columns a thread, four times. Keys past the end become zeros.
__device__ __forceinline__ void convert(const float* k, const float* v, void* scratch, long long in_stride, int B,
                                        int N) {
    const int tiles = ceil_div(N, BC);
    __shared__ unsigned found[3 * Tops::WARPS];
    Tops tops{found};
    tops.begin(scratch, 1);
    unsigned top_k = 0, top_v = 0;
    UNROLL for (int n = 0; n < 4; n++) {
        const long long e = (blockIdx.x * 4LL + n) * blockDim.x + threadIdx.x, tile = e / (BC * CHUNKS);
        const long long batch = tile / tiles;
        const int r = e / CHUNKS % BC, c = e % CHUNKS, row = (tile - batch * tiles) * BC + r;
        if (batch >= B) break;
        const long long at = batch * in_stride + (long long)row * D;
        const Chunk from_k = load_chunk(k + at, c, row < N), from_v = load_chunk(v + at, c, row < N);
        uint4 K[2], V[2];
        make_terms(from_k, 1, K, top_k), make_terms(from_v, V_FACTOR, V, top_v);
        char* to = (char*)scratch + RANGE + tile * STAGE + swizzle(r, c);
        UNROLL for (int t = 0; t < 2; t++) *(uint4*)(to + t * TERM) = K[t];
        UNROLL for (int t = 0; t < PV_TERMS; t++) *(uint4*)(to + (2 + t) * TERM) = V[t];
    }
    tops.leave(1, top_k);
    tops.leave(2, top_v);
    __syncthreads();
    tops.note_all(scratch, 1);
}

// The ring of stages. ready(n) brings stage n to all threads. Then, or where they have nothing better to do (load_ahead),
// stage n + LEAD is asked for, into the buffer of stage n + LEAD - STAGES, of which no V is wanted any more.
struct Ring {
    const float *k, *v;  // the part's first row
    char* scratch;
    unsigned base, top_k = 0, top_v = 0;
    int keys, stages, tile;  // of the part; its first tile
    static constexpr int LEAD = PARTS > 1 ? STAGES - 2 : STAGES - 3;
    static_assert(INBLOCK || LEAD > 0, "too few stages to load one ahead");

    __device__ __forceinline__ unsigned at(int stage) const { return base + stage % STAGES * STAGE; }
    __device__ __forceinline__ const char* terms(int stage) const {
        return scratch + RANGE + (long long)(tile + stage) * STAGE;
    }

#if ARCH >= 900  // one thread asks for whole tiles; barriers in shared memory count bytes that came and threads that are done
    __device__ __forceinline__ unsigned full(int stage) const { return base + STAGES * STAGE + stage % STAGES * 16; }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(stage) + 8; }
    __device__ __forceinline__ void wait(unsigned barrier, unsigned parity) { barrier_wait(barrier, parity); }
    __device__ __forceinline__ void fetch(int stage) {
        if (stage >= stages) return;
        if (stage >= STAGES) wait(empty(stage), (stage / STAGES - 1) & 1);
        barrier_expect<STAGE>(full(stage));
        copy_bulk<STAGE>(at(stage), terms(stage), full(stage));
    }
    __device__ __forceinline__ void release(int stage) { barrier_arrive(empty(stage)); }
    __device__ __forceinline__ void prepare() {
        if (threadIdx.x == 0) {
            for (int n = 0; n < STAGES; n++) {
                barrier_init<1>(full(n));
                barrier_init<THREADS>(empty(n));
            }
            barriers_made();
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
            const char* from = terms(stage) + threadIdx.x * 16;
            UNROLL for (unsigned n = 0; n < STAGE; n += THREADS * 16)
                copy16_async(at(stage) + threadIdx.x * 16 + n, (const float*)(from + n), true);
        }
        group_copies();
    }
    __device__ __forceinline__ void copied() { copies_arrived_but<INBLOCK ? 0 : LEAD - 1>(); }
#endif
    __device__ __forceinline__ void begin() {
        if (BULK) {
            prepare();
            if (threadIdx.x == 0)
                for (int n = 0; n < LEAD; n++) fetch(n);
        } else if (!INBLOCK) {
            UNROLL for (int n = 0; n < LEAD; n++) copy(n);
        }
    }
    __device__ __forceinline__ void load_ahead(int stage) {
        if (threadIdx.x == 0) fetch(stage + LEAD);
    }
    __device__ __forceinline__ void ready(int stage) {
        if (BULK) {
            if (!WARPGROUPS) load_ahead(stage);
            wait(full(stage), stage / STAGES & 1);
        } else if (INBLOCK) {
            if (stage >= STAGES) __syncthreads();
            const int first = stage * BC;
            const Loads from_k = load_tile(k + first * D, keys - first), from_v = load_tile(v + first * D, keys - first);
            make_tile<2>(from_k, 1, at(stage), top_k);
            make_tile<PV_TERMS>(from_v, V_FACTOR, at(stage) + 2 * TERM, top_v);
            __syncthreads();
        } else {
            copied();
            __syncthreads();
            copy(stage + LEAD);
        }
    }
};
