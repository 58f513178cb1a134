// half_split: 16-bit attention of few rows and many keys (decoding): the keys are split, at the speed of the memory.
//
// Idea:     Flash-decoding. The rows of all heads that share a head of K and V are rows of one tile, so that K and V are read
//           once. Each team of a block, a warp or two, takes SUB keys in turn, with a ring of copies of its own: no team waits for
//           another until they put O together; of two warps each has half of the rows. half_split_combine puts the splits
//           together, in their order: the same bits every time.
//           On 9.0 both are launched early, and wait for what came before; meanwhile the first keys come to the L2 cache.
//           ONCE: one tile of rows reads K and V, which leave the L2 cache first.
// Geometry: batches * kv_heads * ceil(group Nq / BR) * splits blocks of BR = 16 MI TEAM rows; then a block to a row.
// Shared:   w (BR + 2 STAGES SUB) bytes for each team's ring and Q, w = 2 d rounded up to 64, 128, 256 or 512; then the same memory
//           for the teams' O, 4 (d + 8) BR bytes a team; 8 BR bytes a team for m and l. Then 4 (d + 4) bytes a warp.
// Limits:   As half_mma. Scratch for splits > 1: 4 (d + 1) bytes for each row and split.
// Source:   Dao, Haziza, Massa, Sizov, Flash-Decoding (2023).
// Before:   half_mma, which would leave all but a few multiprocessors idle.

#include "bulk.cuh"
#include "halfmma.cuh"

struct HalfSplitParams : HalfMatrices, HalfWork {
    float* partial_o;    // O of each split of each row, divided by its l
    float* partial_lse;  // log2 of the sum of exponentials of each split of each row
};

#ifndef TEAM  // warps that take the same keys, each for its own 16 MI rows: one, or two
#define TEAM 1
#endif

constexpr int TEAMS = THREADS / 32 / TEAM;
constexpr unsigned TILE = SUB * ROW, RING = STAGES * 2 * TILE, O_ROW = 4 * (D + 8);  // rows lie eight banks apart
constexpr unsigned STATS_AT = BR * (ROW > TEAMS * O_ROW ? ROW : TEAMS * O_ROW) > BR * ROW + TEAMS * RING
                                  ? BR * TEAMS * O_ROW : BR * ROW + TEAMS * RING;

static_assert(BR == 16 * MI * TEAM && STAGES >= 2, "all teams have the same rows; a stage is filled while another is used");
static_assert(!(SEQUENCES && PREFETCHED), "where a sequence's keys lie is read from a table, which may not be there yet");

extern __shared__ __align__(1024) float4 shared[];

// A row of a head of K and V: row `i` of Q, of head `head`.
struct PackedRow {
    int i, head;
    __device__ __forceinline__ PackedRow(const HalfWork& p, int kv_head, int row)
        : i(row / p.group), head(kv_head * p.group + row % p.group) {}
};

#if SEQUENCES
#define LSE_ROWS lse_rows
// A sequence in the place of the arrays.
__device__ __forceinline__ HalfSplitParams of_tile(const HalfSplitParams& p, const Sequence& s) {
    HalfSplitParams one = p;
    static_cast<HalfWork&>(one) = of_sequence(p, s);
    one.q.data += s.row * p.q.row, one.k.data += s.key * p.k.row, one.v.data += s.key * p.v.row;
#if SCORED
    one.scoring.first_batch = s.number;
#endif
    return one;
}
#else
#define LSE_ROWS Nq
#endif

// Four columns of O, and the LSE in log2, go to their place.
__device__ __forceinline__ void store(const HalfSplitParams& p, int batch, const PackedRow& row, int column, float4 O,
                                      float lse) {
    unsigned short* o = p.o.data + batch * p.o.batch + row.head * p.o.head + row.i * p.o.row + column;
    *(uint2*)o = make_uint2(pack(O.x, O.y), pack(O.z, O.w));
    if (p.lse && column == 0) p.lse[(long long)(batch * p.heads + row.head) * p.LSE_ROWS + row.i] = lse * LN2;
}

// The sums of all teams for a row, put together: m and l.
struct Merged {
    float shift, l;
    __device__ __forceinline__ Merged(unsigned stats, int row) : shift(MINUS_INFINITY), l(0) {
        float2 x[TEAMS];
        UNROLL for (int w = 0; w < TEAMS; w++) {
            x[w] = load_shared2(stats + (w * BR + row) * 8);
            if (x[w].y != 0) shift = fmaxf(shift, x[w].x);
        }
        UNROLL for (int w = 0; w < TEAMS; w++) if (x[w].y != 0) l = fmaf(exp2_fast(x[w].x - shift), x[w].y, l);
    }
    __device__ __forceinline__ float lse() const { return l == 0 ? MINUS_INFINITY : shift + log2f(l); }
};

// Rows from `first` to `end`, COUNT at most, on their way to the L2 cache. What still writes them meets them there, so that they may
// be asked for before it has ended.
template <int COUNT>
__device__ __forceinline__ void prefetch_rows(const Matrix<const unsigned short>& m, int batch, int head, int first, int end) {
#if ARCH >= 900
    const unsigned short* from = m.data + batch * m.batch + head * m.head;
    for (int row = first + threadIdx.x % 32; row < min(end, first + COUNT); row += 32)
        ONCE ? prefetch_bulk_once(from + row * m.row, 2 * D) : prefetch_bulk(from + row * m.row, 2 * D);
#endif
}

// One of the splits of the keys of a unit: packed rows of a batch, from row0 on, with a head of K and V.
__device__ __forceinline__ void split_keys(const HalfSplitParams& p, int row0, int split, int unit, int batch, int kv_head) {
    const int rows = p.group * p.Nq;
    const int team = threadIdx.x / 32 / TEAM, member = threadIdx.x / 32 % TEAM, lane = threadIdx.x % 32, warp_row = member * 16 * MI;
    const unsigned base = shared_address(shared), ring = base + BR * ROW + team * RING, stats = base + STATS_AT;

    const int first_row = row0 / p.group, last_row = (min(rows, row0 + BR) - 1) / p.group, keys = keys_of(p, last_row);
    const int hidden = WINDOW ? max(0, min(first_key_of(p, first_row), keys)) / SUB : 0;  // parts that no row sees
    const int parts = max(0, ceil_div(keys, SUB)) - hidden, share = parts / p.splits, more = parts - share * p.splits;
    const int first_part = hidden + share * split + min(split, more) + team;
    const int last_part = hidden + share * (split + 1) + min(split + 1, more);
    const int mine = max(0, ceil_div(last_part - first_part, TEAMS));
    const Rows<32, ONCE> K(p.k, batch, kv_head, first_part * SUB), V(p.v, batch, kv_head, first_part * SUB);
    auto fetch = [&](int n) {
        if (n < mine) {
            const unsigned to = ring + n % STAGES * 2 * TILE;
            Rows<32, ONCE> k = K, v = V;
            k.from += n * TEAMS * SUB * p.k.row, v.from += n * TEAMS * SUB * p.v.row;
            const int left = p.Nk - (first_part + n * TEAMS) * SUB;
            if (member == 0) k.copy<SUB>(to, p.k.row, left);
            if (member == TEAM - 1) v.copy<SUB>(to + TILE, p.v.row, left);
        }
    };
    UNROLL for (int n = 0; n < PREFETCHED; n++) if (n < mine) {
        const int first = (first_part + n * TEAMS) * SUB;
        if (member == 0) prefetch_rows<SUB>(p.k, batch, kv_head, first, p.Nk);
        if (member == TEAM - 1) prefetch_rows<SUB>(p.v, batch, kv_head, first, p.Nk);
    }
    // In each block, before it reads Q, K or V or writes O or scratch, from which the call before may still be reading; and before
    // griddep_launch, so that what half_split_combine finds there is of this call.
    griddep_wait();
    fetch(0);  // before all else: the memory is what takes time
    for (int e = threadIdx.x; e < BR * SLOTS; e += THREADS) {
        const int r = e / SLOTS, chunk = e % SLOTS, row = row0 + r;
        const PackedRow from(p, kv_head, row);
        if (chunk < 2 * STEPS)
            copy16(base + swizzle(r, chunk), p.q.data + batch * p.q.batch + from.head * p.q.head + from.i * p.q.row + chunk * 8,
                   row < rows && chunk * 8 < D);
    }
    copies_commit();
    UNROLL for (int n = 1; n < STAGES - 1; n++) fetch(n), copies_commit();
    griddep_launch();
    copies_wait<STAGES - 2>();
    __syncthreads();
    Products b(base + warp_row * ROW);
    b.load_q();
    RowState r[MI];
    Seen seen[MI][2];  // the keys that this thread's rows see
    UNROLL for (int i = 0; i < MI; i++) {
        zero(r[i]);
        UNROLL for (int e = 0; e < 4; e++) r[i].l[e] = 0;
        UNROLL for (int h = 0; h < 2; h++)
            r[i].shift[h] = 0, seen[i][h] = seen_of(p, (row0 + warp_row + i * 16 + h * 8 + lane / 4) / p.group, 0);
    }
#pragma unroll 1
    for (int n = 0; n < mine; n++) {
        copies_wait<STAGES - 2>();
        TEAM == 1 ? __syncwarp() : pair_sync(1 + team);  // all lanes' copies are there, and none reads the buffer that is filled next
        fetch(n + STAGES - 1), copies_commit();
        const unsigned at = ring + n % STAGES * 2 * TILE;
        const int first = (first_part + n * TEAMS) * SUB;
        attend(b, r, p, at, at + TILE, n == 0, [&](Scores& S) {
#if SCORED
            UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
                const PackedRow row(p, kv_head, row0 + warp_row + i * 16 + h * 8 + lane / 4);
                const ScoredHead head = SEQUENCES ? ScoredHead{p.scoring.first_batch, row.head, p.Nq, p.Nk} : scored_head(p.scoring, batch, row.head);
                ScoreTile<N8> tile;
                load_score_row(tile, p.scoring, head, row.i, first);
                change_row(S[i], h, p.scoring, head, row.i, first, tile);
            }
#endif
            if (!needs_mask(p, first_row, last_row - first_row + 1, first, SUB)) return;
            UNROLL for (int i = 0; i < MI; i++) mask(S[i], seen[i][0].after(first), seen[i][1].after(first));
        });
    }

    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        r[i].l[h] = ONES ? r[i].l[2 * h] : lanes_sum<4>(r[i].l[2 * h] + r[i].l[2 * h + 1]);
        if (lane % 4 == 0) store_shared(stats + (team * BR + warp_row + i * 16 + h * 8 + lane / 4) * 8, r[i].shift[h], r[i].l[h]);
    }
    __syncthreads();
    UNROLL for (int i = 0; i < MI; i++) UNROLL for (int h = 0; h < 2; h++) {
        const int row = warp_row + i * 16 + h * 8 + lane / 4;
        if (row0 + row >= rows) continue;
        const Merged all(stats, row);
        if (team == 0 && lane % 4 == 0) store_shared(base + row * O_ROW + 4 * D, all.lse(), 0);  // behind its O
        const float weight = r[i].l[h] == 0 ? 0 : exp2_fast(r[i].shift[h] - all.shift) * __frcp_rn(all.l);
        UNROLL for (int n = 0; n < ceil_div(D, 8); n++)
            store_shared(base + (team * BR + row) * O_ROW + (n * 8 + lane % 4 * 2) * 4, r[i].O[n][2 * h] * weight,
                         r[i].O[n][2 * h + 1] * weight);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < BR * (D / 4); e += THREADS) {
        const int r = e / (D / 4), column = e % (D / 4) * 4;
        if (row0 + r >= rows) break;
        float4 O{0, 0, 0, 0};
        UNROLL for (int w = 0; w < TEAMS; w++) {
            const Four x = load_shared(base + (w * BR + r) * O_ROW + column * 4);
            O.x += x.v[0], O.y += x.v[1], O.z += x.v[2], O.w += x.v[3];
        }
        const float lse = load_shared2(base + r * O_ROW + 4 * D).x;
        if (p.splits == 1) {
            store(p, batch, PackedRow(p, kv_head, row0 + r), column, O, lse);
        } else {
            const long long part = (SEQUENCES ? (long long)unit * BR + r : (long long)unit * rows + row0 + r) * p.splits + split;
            *(float4*)(p.partial_o + part * D + column) = O;
            if (column == 0) p.partial_lse[part] = lse;
        }
    }
}

// SEQUENCES: a unit is a tile of a sequence's packed rows with a head of K and V; those of the longest one come first.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_split(const HalfSplitParams p) {
    const int kv_heads = p.heads / p.group;
#if SEQUENCES
    griddep_wait();  // what is in front may write the table
    const int unit = blockIdx.x / p.splits, tile = unit / kv_heads;
    const Sequence s = p.sequences[tile];
    split_keys(of_tile(p, s), (tile - s.tile) * BR, blockIdx.x % p.splits, unit, s.batch, unit - tile * kv_heads);
#else
    const int row0 = blockIdx.x % p.row_tiles * BR, rest = blockIdx.x / p.row_tiles, split = rest % p.splits;
    const int unit = rest / p.splits, batch = unit / kv_heads, kv_head = unit - batch * kv_heads;
    split_keys(p, row0, split, unit, batch, kv_head);
#endif
}

// A block puts the splits of a packed row together: each warp AHEAD of them, then one warp what all have.
extern "C" __global__ void __launch_bounds__(512) half_split_combine(const HalfSplitParams p) {
    constexpr int AHEAD = 8, MOST = 128;     // splits of a warp, which it reads while it waits for the LSE; of a row
    constexpr int FOURS = ceil_div(D, 128);  // columns of a lane: four of each 128
    constexpr unsigned SUMS_ROW = 4 * (D + 4);
    griddep_launch();  // the next call's half_split waits itself, until all blocks here have ended
#if SEQUENCES
    const int kv_heads = p.heads / p.group, unit = blockIdx.x / BR, tile = unit / kv_heads, kv_head = unit - tile * kv_heads;
    const Sequence s = p.sequences[tile];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mine = warp * AHEAD;
    const int row = (tile - s.tile) * BR + blockIdx.x % BR, batch = s.batch;
    const bool idle = row >= p.group * s.rows;
#else
    constexpr bool idle = false;
    const int rows = p.group * p.Nq, kv_heads = p.heads / p.group, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int unit = blockIdx.x / rows, batch = unit / kv_heads, mine = warp * AHEAD;
#endif
    const unsigned sums = shared_address(shared);
    const float* lse = p.partial_lse + blockIdx.x * (long long)p.splits;
    const float* part = p.partial_o + (blockIdx.x * (long long)p.splits + mine) * D + lane * 4;
    float4 o[FOURS][AHEAD];
    float own[AHEAD], all[MOST / 32], top = MINUS_INFINITY, l = 0;
    griddep_wait();  // in each block: this launch has ended only when the first one has
    if (idle) return;
    UNROLL for (int n = 0; n < MOST / 32; n++) all[n] = n * 32 + lane < p.splits ? lse[n * 32 + lane] : MINUS_INFINITY;
    UNROLL for (int f = 0; f < FOURS; f++) UNROLL for (int n = 0; n < AHEAD; n++) {
        own[n] = mine + n < p.splits ? lse[mine + n] : MINUS_INFINITY;
        o[f][n] = float4{0, 0, 0, 0};
        if (mine + n < p.splits && lane * 4 + f * 128 < D) o[f][n] = *(const float4*)(part + n * D + f * 128);
    }
    UNROLL for (int n = 0; n < MOST / 32; n++) top = fmaxf(top, all[n]);
    top = lanes_max<32>(top);
    if (top != MINUS_INFINITY) UNROLL for (int n = 0; n < MOST / 32; n++) l += exp2_fast(all[n] - top);
    l = lanes_sum<32>(l);
    const float over = l == 0 ? 0 : __frcp_rn(l);
    float4 O[FOURS] = {};
    UNROLL for (int n = 0; n < AHEAD; n++) {
        const float weight = l == 0 || mine + n >= p.splits ? 0 : exp2_fast(own[n] - top) * over;
        UNROLL for (int f = 0; f < FOURS; f++) {
            O[f].x = fmaf(weight, o[f][n].x, O[f].x), O[f].y = fmaf(weight, o[f][n].y, O[f].y);
            O[f].z = fmaf(weight, o[f][n].z, O[f].z), O[f].w = fmaf(weight, o[f][n].w, O[f].w);
        }
    }
    UNROLL for (int f = 0; f < FOURS; f++)
        if (lane * 4 + f * 128 < D) store_shared(sums + warp * SUMS_ROW + lane * 16 + f * 512, O[f]);
    __syncthreads();
    if (warp > 0 || lane * 4 >= D) return;
    UNROLL for (int f = 0; f < FOURS; f++) {
        if (lane * 4 + f * 128 >= D) return;
        for (int w = 1; w < blockDim.x / 32; w++) {
            const Four x = load_shared(sums + w * SUMS_ROW + lane * 16 + f * 512);
            O[f].x += x.v[0], O[f].y += x.v[1], O[f].z += x.v[2], O[f].w += x.v[3];
        }
#if SEQUENCES
        store(of_tile(p, s), batch, PackedRow(p, kv_head, row), lane * 4 + f * 128, O[f],
#else
        store(p, batch, PackedRow(p, unit - batch * kv_heads, blockIdx.x - unit * rows), lane * 4 + f * 128, O[f],
#endif
              l == 0 ? MINUS_INFINITY : top + log2f(l));
    }
}
