// half_cores: attention of fp16 or bf16 numbers on CUDA cores, for GPUs whose tensor cores do not take them, or that have none.
//
// Idea:     FlashAttention-2 in float32: numbers become float32 on their way to shared memory, every product is an FFMA, and only
//           O is rounded. A thread owns 4 rows x BC/8 keys of S and 4 rows x d/8 columns of O in registers.
// Geometry: batches * heads * ceil(Nq/BR) blocks of THREADS = 2 BR; K and V pass in tiles of BC keys. Causal: as half_mma.
// Shared:   4 * ((d + 4) (BR + BC) + (BC + 4) BR) bytes: Q; K, then V; P.
// Limits:   Any GPU. d a multiple of 8 up to 256; rows of 16-byte chunks.
// Source:   Dao, FlashAttention-2 (2023), algorithm 1.
// Before:   smallbr, which reads float32 and gives each lane a key.

#include "halfrows.cuh"

struct HalfCoresParams : HalfMatrices, HalfWork {};

constexpr int ROWS = 4, ACROSS = 8, KEYS = BC / ACROSS, FOURS = COLUMNS / 32;
constexpr unsigned PITCH = 4 * (D + 4), P_PITCH = 4 * (BC + 4);  // bytes: lanes that read neighbouring rows meet no bank twice
constexpr unsigned KV_AT = BR * PITCH, P_AT = KV_AT + BC * PITCH;

static_assert(THREADS == BR / ROWS * ACROSS && BC % ACROSS == 0 && D % 8 == 0, "threads share rows and keys evenly");

extern __shared__ float4 shared[];

// COUNT rows as float32, zeros past the end.
template <int COUNT>
__device__ __forceinline__ void load_rows(unsigned to, const unsigned short* rows, long long step, int left) {
    for (int e = threadIdx.x; e < COUNT * (D / 8); e += THREADS) {
        const int row = e / (D / 8), chunk = e % (D / 8);
        const uint4 x = row < left ? *(const uint4*)(rows + row * step + chunk * 8) : uint4{0, 0, 0, 0};
        const float2 a = unpack(x.x), b = unpack(x.y), c = unpack(x.z), d = unpack(x.w);
        store_shared(to + row * PITCH + chunk * 32, a.x, a.y, b.x, b.y);
        store_shared(to + row * PITCH + chunk * 32 + 16, c.x, c.y, d.x, d.y);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) half_cores(const HalfCoresParams p) {
    const RowTile t = row_tile(p, blockIdx.x);
    const HalfWork& work = work_of(p, t);
    const int across = threadIdx.x % ACROSS, my_row = threadIdx.x / ACROSS * ROWS;
    const unsigned base = shared_address(shared), q_at = base + my_row * PITCH, p_at = base + P_AT + my_row * P_PITCH;
    const int kv_head = t.head / p.group;
    const unsigned short* k = p.k.data + t.batch * p.k.batch + kv_head * p.k.head + t.first_key() * p.k.row;
    const unsigned short* v = p.v.data + t.batch * p.v.batch + kv_head * p.v.head + t.first_key() * p.v.row;
    const long long row0 = t.first_row() + t.row0;
    load_rows<BR>(base, p.q.data + t.batch * p.q.batch + t.head * p.q.head + row0 * p.q.row, p.q.row, work.Nq - t.row0);

    float O[ROWS][FOURS][4] = {}, l[ROWS] = {}, shift[ROWS];  // P = 2^(scale s - shift)
    UNROLL for (int i = 0; i < ROWS; i++) shift[i] = LOWEST;
#pragma unroll 1
    for (int first = 0; first < t.key_tiles * BC; first += BC) {
        load_rows<BC>(base + KV_AT, k + first * p.k.row, p.k.row, work.Nk - first);
        __syncthreads();
        float S[ROWS][KEYS] = {};
#pragma unroll 2
        for (int c = 0; c < D / 4; c++) {
            Four a[ROWS], b[KEYS];
            UNROLL for (int i = 0; i < ROWS; i++) a[i] = load_shared(q_at + i * PITCH + c * 16);
            UNROLL for (int j = 0; j < KEYS; j++) b[j] = load_shared(base + KV_AT + (across + ACROSS * j) * PITCH + c * 16);
            UNROLL for (int x = 0; x < 4; x++) UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int j = 0; j < KEYS; j++)
                S[i][j] = fmaf(a[i].v[x], b[j].v[x], S[i][j]);
        }
        UNROLL for (int i = 0; i < ROWS; i++) {
            const Seen seen = seen_of(work, t.row0 + my_row + i, first + across);
            float top = MINUS_INFINITY;
            UNROLL for (int j = 0; j < KEYS; j++) {
#if SCORED
                S[i][j] = changed_score(p.scoring, head_of(p, t), S[i][j] * p.scoring.scale, t.row0 + my_row + i,
                                        t.hidden + first + across + ACROSS * j);
#endif
                if (ACROSS * j >= seen.end || (WINDOW && ACROSS * j < seen.first)) S[i][j] = MINUS_INFINITY;
                top = fmaxf(top, S[i][j]);
            }
            top = lanes_max<ACROSS>(top);
            const float next = fmaxf(shift[i], top * p.scale), shrink = exp2_fast(shift[i] - next);
            l[i] *= shrink, shift[i] = next;
            UNROLL for (int g = 0; g < FOURS; g++) UNROLL for (int x = 0; x < 4; x++) O[i][g][x] *= shrink;
            UNROLL for (int j = 0; j < KEYS; j++) {
                const float weight = exp2_fast(fmaf(S[i][j], p.scale, -next));
                l[i] += weight;
                store_shared(p_at + i * P_PITCH + (across + ACROSS * j) * 4, weight);
            }
        }
        __syncthreads();
        load_rows<BC>(base + KV_AT, v + first * p.v.row, p.v.row, work.Nk - first);
        __syncthreads();
#pragma unroll 2
        for (int key = 0; key < BC; key += 4) {
            Four a[ROWS];
            UNROLL for (int i = 0; i < ROWS; i++) a[i] = load_shared(p_at + i * P_PITCH + key * 4);
            UNROLL for (int x = 0; x < 4; x++) UNROLL for (int g = 0; g < FOURS; g++) {
                if (g * 32 + across * 4 >= D) continue;
                const Four b = load_shared(base + KV_AT + (key + x) * PITCH + (g * 8 + across) * 16);
                UNROLL for (int i = 0; i < ROWS; i++) UNROLL for (int e = 0; e < 4; e++)
                    O[i][g][e] = fmaf(a[i].v[x], b.v[e], O[i][g][e]);
            }
        }
        __syncthreads();
    }
    UNROLL for (int i = 0; i < ROWS; i++) {
        const int row = t.row0 + my_row + i;
        const float sum = lanes_sum<ACROSS>(l[i]), over = sum == 0 ? 0 : __frcp_rn(sum);
        if (row >= work.Nq) continue;
        unsigned short* o = work.o.data + t.batch * p.o.batch + t.head * p.o.head + row * p.o.row;
        UNROLL for (int g = 0; g < FOURS; g++) {
            const float* x = O[i][g];
            const int column = g * 32 + across * 4;
            if (column < D) *(uint2*)(o + column) = make_uint2(pack(x[0] * over, x[1] * over), pack(x[2] * over, x[3] * over));
        }
        if (p.lse && across == 0) lse_of(work, t, row) = sum == 0 ? MINUS_INFINITY : (shift[i] + log2f(sum)) * LN2;
    }
}
