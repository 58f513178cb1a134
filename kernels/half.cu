// half: attention of fp16 or bf16 numbers on Hopper: every unit of the multiprocessor at work at once.
//
// Idea:     A producer warp issues copies of tiles of K and V; three or four consumers, groups of four warps, multiply (wgmma) 64
//           rows each. A consumer issues its next scores and P V of the last ones, and takes exponentials of the scores that are
//           complete while the tensor cores compute. Consumers take turns in issuing (ping-pong), so that one's exponentials
//           overlap with another's products. P never leaves the registers; m moves only when a score has grown by 2^8. To
//           compare: AHEAD 0 waits for each product; TURNS 0 lets consumers issue whenever they can; LAZY 0 moves m, and
//           rescales O, for each tile of keys. POLYNOMIAL of 16 exponentials can be on the FMA units, and all IN_ORDER.
// Geometry: As many blocks as there are multiprocessors; each takes tile after tile of BR = 64 GROUPS rows. Groups of a head's first
//           tile are idle where rows do not fill its tiles. Causal: keys behind a tile's diagonal, and before its window, are not
//           touched, the longest tiles come first, each for the block that is free (half_start begins to count them), and only
//           tiles at the diagonal pay for a mask. SCORE_BITS: half_bits finds before which pairs have a score.
// Shared:   Q_BUFFERS of Q, 128 BR bytes for each 64 columns, from where O leaves, too (COPIES_O); STAGES tiles of K and of V, 128 BC
//           bytes for each 64 columns; ones, above 64 columns behind each tile of V; barriers, and where the tiles of rows lie.
// Limits:   Compute capability 9.0 and no other. d a multiple of 8 up to 256, above 128 with two consumers and one buffer of Q; rows of
//           16-byte chunks. V and O may have another number of columns, DV.
// Source:   Shah et al., FlashAttention-3 (2024): warp specialization, ping-pong, and scores one tile ahead; FlashAttention-4's lazy
//           rescaling.
// Before:   split, whose three fp16 products for a score become one: here the numbers are 16-bit to begin with.

#define GROUP_ROWS 64
#include "halfscores.cuh"
#include "stamps.cuh"

// The macros come from hw4cli/plans/half.py: GROUPS consumers share a tile of BR = 64 GROUPS rows; K and V pass in tiles of BC
// keys through STAGES buffers, Q through Q_BUFFERS; COLUMNS of O are computed, DV rounded up; ONES: the tensor cores sum P.

// The bytes that hw4cli/plans/half.py lays out: the tensors d, rows, heads, batches of 16-bit numbers first.
struct HalfOutput { TensorMap to; };  // O, in boxes of a group's rows
struct HalfParams : HalfTensors, HalfOutput, HalfWork {
    int* taken;  // DYNAMIC: how many tiles the blocks have taken behind their first ones
};
// SCORE_BITS: what half_bits finds, 128 bytes behind that.
__device__ __forceinline__ unsigned* kept_bits(const HalfParams& p) { return (unsigned*)(p.taken + 32); }

constexpr unsigned K_AT = Q_BUFFERS * Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES, ONES_AT = V_AT + STAGES * V_BYTES;
constexpr unsigned FULL_Q = ONES_AT + (ONES && !OWN_ONES ? ONES_BYTES : 0), EMPTY_Q = FULL_Q + 8 * Q_BUFFERS;  // barriers
constexpr unsigned K_RING = EMPTY_Q + 8 * Q_BUFFERS, V_RING = K_RING + 16 * STAGES;  // barriers: full ones, then empty ones
constexpr unsigned TILES_AT = V_RING + 16 * STAGES;  // of each buffer of Q, the tile
constexpr unsigned CLEARED = TILES_AT + ceil_div(Q_BUFFERS * sizeof(RowTile), 8) * 8;  // SEQUENCES: a barrier of all consumers
constexpr unsigned SCORES_AT = ceil_div(CLEARED + (SEQUENCES ? 8 : 0), 16) * 16;  // SCORE_SHARED: a tile of its array
constexpr unsigned PEAKS_AT = SCORES_AT + SCORE_SHARED + BC * 32 + BR * 32;  // SCORE_RISES: behind columns of K and Q; of each buffer of Q
static_assert(BR == 64 * GROUPS && THREADS == 128 * (GROUPS + 1), "a consumer for each 64 rows, and a producer");

// Which tile of rows a block computes next; from p.tiles on: none. DYNAMIC: behind its first one, the first that no block has
// taken, because tiles are not equally long. half_start, which sets the count to 0, may still run while the first is computed.
__device__ __forceinline__ int next_tile(const HalfParams& p, int round) {
    if (!DYNAMIC) return round * gridDim.x + blockIdx.x;
    if (round == 0) return blockIdx.x;
    if (round == 1) griddep_wait();
    return gridDim.x + atomicAdd(p.taken, 1);
}

// A tile of rows from shared memory, the same for all lanes: read by the one that will arrive where it is not needed any more.
__device__ __forceinline__ RowTile handed_over(const RowTile& from) {
    RowTile t;
    UNROLL for (int n = 0; n < sizeof t / 4; n++)
        ((int*)&t)[n] = SHFL(threadIdx.x % 32 == 0 ? ((const int*)&from)[n] : 0, 0);
    return t;
}

extern __shared__ __align__(1024) float4 shared[];

// A ring of STAGES buffers of so many bytes, for tiles of so many times 64 columns: tile n lies in buffer n % STAGES.
template <int SUBTILES, unsigned SIZE> struct Tiles {
    static constexpr unsigned TILE_BYTES = SUBTILES * BC * 128;
    unsigned data, full, empty;
    __device__ __forceinline__ unsigned at(unsigned n) const { return data + n % STAGES * SIZE; }
    __device__ __forceinline__ void wait_for_room(unsigned n) const {
        mbarrier_wait(empty + n % STAGES * 8, n / STAGES % 2 ^ 1);
    }
    __device__ __forceinline__ void fetch(const TensorMap& map, unsigned n, int row, int head, int batch) const {
        const unsigned barrier = full + n % STAGES * 8;
        mbarrier_expect<TILE_BYTES>(barrier);
        UNROLL for (int c = 0; c < SUBTILES; c++) copy_box(at(n) + c * BC * 128, map, c * 64, row, head, batch, barrier);
    }
    __device__ __forceinline__ unsigned wait(unsigned n) const {
        mbarrier_wait(full + n % STAGES * 8, n / STAGES % 2);
        return at(n);
    }
    __device__ __forceinline__ void release(unsigned n) const {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + n % STAGES * 8);
    }
};

// Zeros in the rows from `first` on, up to before `end`, of a tile of so many rows, by so many threads of whole groups.
template <int COUNT, int SUBTILES> __device__ __forceinline__ void clear_rows(unsigned at, int rows, int first, int end) {
    const int chunks = (end - first) * 8;
    for (int e = (threadIdx.x - 128) % COUNT; e < chunks * SUBTILES; e += COUNT)
        store_shared(at + (e / chunks * rows + first) * 128 + e % chunks * 16, uint4{0, 0, 0, 0});
    fence_proxy_async();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) half(const __grid_constant__ HalfParams p) {
    const unsigned base = shared_start(shared), full_q = base + FULL_Q, empty_q = base + EMPTY_Q;
    const Tiles<SUBTILES, TILE_BYTES> K{base + K_AT, base + K_RING, base + K_RING + 8 * STAGES};
    const Tiles<V_SUBTILES, V_BYTES> V{base + V_AT, base + V_RING, base + V_RING + 8 * STAGES};
    RowTile* const tiles = (RowTile*)((char*)shared + TILES_AT);
    int* const peaks = (int*)((char*)shared + PEAKS_AT);
    const int group = warpgroup_index();
    if (threadIdx.x == 0) {
        for (int n = 0; n < Q_BUFFERS; n++) mbarrier_init<1>(full_q + 8 * n), mbarrier_init<4 * GROUPS>(empty_q + 8 * n);
        for (int n = 0; n < STAGES; n++) {
            mbarrier_init<1>(K.full + 8 * n), mbarrier_init<4 * GROUPS>(K.empty + 8 * n);
            mbarrier_init<1>(V.full + 8 * n), mbarrier_init<4 * GROUPS>(V.empty + 8 * n);
        }
        if (SEQUENCES) mbarrier_init<4 * GROUPS>(base + CLEARED);
    }
    GroupScores::begin_block(base + SCORES_AT);
    if (OWN_ONES) for (int n = 0; n < STAGES; n++) make_ones(V.at(n) + V_SUBTILES * BC * 128);
    begin_block(base + ONES_AT);

    if (group == 0) {
        dealloc_registers<COPY_REGISTERS>();
        if (threadIdx.x > 0) return;
        unsigned issued = 0;
        for (unsigned round = 0;; round++) {
            const unsigned buffer = round % Q_BUFFERS, full = full_q + 8 * buffer, to = base + buffer * Q_BYTES;
            const int n = next_tile(p, round);
            const RowTile t = n < p.tiles ? row_tile(p, n) : RowTile{};  // without tiles of keys: there is none
            mbarrier_wait(empty_q + 8 * buffer, round / Q_BUFFERS % 2 ^ 1);
            tiles[buffer] = t;
            if (n >= p.tiles) return mbarrier_arrive(full);
            int peak = 0;
            if (SCORE_ORDERED) peak = peaks[buffer] = peak_of(p, t);
            mbarrier_expect<Q_BYTES>(full);
            const int kv_head = t.head / p.group;
            UNROLL for (int c = 0; c < SUBTILES; c++) copy_box(to + c * BR * 128, p.q, c * 64, t.first_row() + t.row0, t.head, t.batch, full);
#pragma unroll 1
            for (int j = 0; j <= t.key_tiles; j++) {
                if (j < t.key_tiles) {
                    K.wait_for_room(issued + j); BEGINS(COPYING, issued + j);
                    K.fetch(p.k, issued + j, t.first_key() + TILE_AT(j) * BC, kv_head, t.batch);
                }
                if (j > 0) {
                    V.wait_for_room(issued + j - 1); BEGINS(COPYING_V, issued + j - 1);
                    V.fetch(p.v, issued + j - 1, t.first_key() + TILE_AT(j - 1) * BC, kv_head, t.batch);
                }
            }
            issued += t.key_tiles;
        }
    }

    alloc_registers<REGISTERS>();
    const int mine = group - 1, barrier_id = 1 + mine, next_barrier_id = 1 + (mine + 1) % GROUPS;
    unsigned consumed = 0, cleared = 0;
    auto release_q = [&](unsigned round) {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty_q + 8 * (round % Q_BUFFERS));
    };
    auto release_q_before = [&](unsigned round) {  // COPIES_O: when O of the tile before has left the place of that tile's Q
        if (!COPIES_O || round == 0) return;
        if (threadIdx.x % 128 == 0) bulk_wait_read();
        release_q(round - 1);
    };
    auto begin_turn = [&] { if (TURNS) pingpong_wait(barrier_id); };
    auto end_turn = [&] { if (TURNS) pingpong_arrive(next_barrier_id); };
    if (TURNS && mine == GROUPS - 1) pingpong_arrive(1);
    // A sequence's last tile holds values of another one, too, perhaps infinite: all consumers put zeros there.
    auto wait_last_values = [&](const HalfWork& w, unsigned v, int key_tiles) {
        const unsigned at = V.wait(v);
        if (SEQUENCES && key_tiles * BC > w.Nk) {
            clear_rows<128 * GROUPS, V_SUBTILES>(at, BC, w.Nk - (key_tiles - 1) * BC, BC);
            __syncwarp();
            if (threadIdx.x % 32 == 0) mbarrier_arrive(base + CLEARED);
            mbarrier_wait(base + CLEARED, cleared++ % 2);
        }
        return at;
    };
    // Tiles that only other groups see: hand on the turn. Each is waited for: else a later one in its place would seem to be there.
    auto skip_tiles = [&](const HalfWork& w, const RowTile& t, int j, int end) {
#pragma unroll 1
        for (; j < end; j++) {
            if (j > 0) begin_turn(), end_turn();
            K.wait(consumed + j), K.release(consumed + j);
            if (!SEQUENCES || j + 1 < t.key_tiles) V.wait(consumed + j);
            else wait_last_values(w, consumed + j, t.key_tiles);
            V.release(consumed + j);
        }
    };
    for (unsigned round = 0;; round++) {
        const unsigned buffer = round % Q_BUFFERS, q_at = base + buffer * Q_BYTES + mine * 64 * 128;
        mbarrier_wait(full_q + 8 * buffer, round / Q_BUFFERS % 2);
        const RowTile t = handed_over(tiles[buffer]);
        if (t.key_tiles == 0) return release_q_before(round);
        const HalfWork& w = work_of(p, t);
        const int group_row = t.row0 + mine * 64, row0 = group_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        const int key_tiles = CAUSAL ? min(t.key_tiles, key_tiles_of(w, group_row + 63)) : t.key_tiles;
        const int peak = SCORE_ORDERED ? SHFL(threadIdx.x % 32 == 0 ? peaks[buffer] : 0, 0) : 0;
        const int first = SCORE_ORDERED ? max(0, peak + 1 - key_tiles) : WINDOW ? min(first_key_of(w, group_row) / BC, key_tiles - 1) : 0;
        const int end = SCORE_ORDERED ? max(peak + 1, key_tiles) : key_tiles;
        const int hidden_keys = first_key_of(w, group_row + 63), full_keys = keys_of(w, group_row);  // all rows see those between
        auto needs_mask = [&](int j) { return (j + 1) * BC > full_keys || (WINDOW && j * BC < hidden_keys); };
        if (group_row < 0) {
            COPIES_O ? release_q_before(round) : release_q(round);
            skip_tiles(w, t, 0, t.key_tiles);
            consumed += t.key_tiles;
            continue;
        }
        if (SEQUENCES && group_row + 64 > w.Nq) {  // rows of another sequence, which would have a say in when m moves
            clear_rows<128, SUBTILES>(q_at, BR, w.Nq - group_row, 64);
            warpgroup_sync(1 + GROUPS + mine);
        }
        Scores S;
        Weights P;
        RowState r;
        r.grown = false;
        zero(r);
        if (WINDOW || SCORE_ORDERED) skip_tiles(w, t, 0, first);
        const unsigned at = consumed + first, first_k = K.wait(at); FOUND(128 * GROUPS, COPYING, at); BEGINS(SCORING, at);
        GroupScores scored(base + SCORES_AT, mine);
#if SCORE_BITS
        scored.bits = kept_bits(p);
#endif
        scored.begin(p, t, row0, first, key_tiles);
        scored.prepare(r, w, t, peak, group_row, row0, first);
        if (first > 0) begin_turn();
        scored.issue(S, q_at, first_k);
        if (first > 0) end_turn();
        wgmma_wait<0>();
        fence_registers(S); ENDS(SCORING, at); BEGINS(WEIGHING, at);
        K.release(at);
        scored.change(S, r, p, t, row0, TILE_AT(first));
        scored.next(p, t, row0, first + 1, key_tiles);
        if (needs_mask(TILE_AT(first))) mask(S, w, row0, TILE_AT(first) * BC);
        scored.begin_softmax(S, r, p);
        round_weights(S, P); ENDS(WEIGHING, at);
        release_q_before(round);
#pragma unroll 1
        for (int j = first + 1; j < end; j++) {
            if (!AHEAD) {
                fence_registers(r);
                const unsigned v_at = V.wait(consumed + j - 1);
                FOUND(128 * GROUPS, COPYING_V, consumed + j - 1); BEGINS(ADDING, consumed + j - 1);
                issue_values(r, P, v_at, base + ONES_AT);
                wgmma_wait<0>();
            }
            scored.prepare(r, w, t, peak, group_row, row0, j);
            const unsigned k_at = K.wait(consumed + j); FOUND(128 * GROUPS, COPYING, consumed + j);
            begin_turn(); BEGINS(SCORING, consumed + j);
            fence_registers(r);
            scored.issue(S, q_at, k_at);
            if (AHEAD) {
                const unsigned v_at = V.wait(consumed + j - 1);
                FOUND(128 * GROUPS, COPYING_V, consumed + j - 1); BEGINS(ADDING, consumed + j - 1);
                issue_values(r, P, v_at, base + ONES_AT);
            }
            end_turn();
            wgmma_wait<AHEAD>();
            fence_registers(S); ENDS(SCORING, consumed + j); BEGINS(WEIGHING, consumed + j);
#if SCORE_GUESSES
            const bool weighed = !needs_mask(TILE_AT(j)) && scored.weigh_small(S, r, [&] {
                scored.issue(S, q_at, k_at);
                wgmma_wait<0>();
                fence_registers(S);
            });
#else
            constexpr bool weighed = false;
#endif
            K.release(consumed + j);
            if (!weighed) scored.change(S, r, p, t, row0, TILE_AT(j));
            scored.next(p, t, row0, j + 1, key_tiles);
            if (!weighed && needs_mask(TILE_AT(j))) mask(S, w, row0, TILE_AT(j) * BC);
#if SCORE_ORDERED
            if (j + 1 < end && scored.is_faint(S, r, p)) {  // nothing of it is added; the next one may be like it
                wgmma_wait<0>();
                fence_registers(r);
                do {
                    V.release(consumed + j - 1); ENDS(WEIGHING, consumed + j);
                    V.wait(consumed + j++);
                    scored.prepare(r, w, t, peak, group_row, row0, j);
                    const unsigned at = K.wait(consumed + j); FOUND(128 * GROUPS, COPYING, consumed + j);
                    begin_turn(); BEGINS(SCORING, consumed + j);
                    scored.issue(S, q_at, at);
                    end_turn();
                    wgmma_wait<0>();
                    fence_registers(S); ENDS(SCORING, consumed + j); BEGINS(WEIGHING, consumed + j);
                    K.release(consumed + j);
                    scored.change(S, r, p, t, row0, TILE_AT(j));
                    if (needs_mask(TILE_AT(j))) mask(S, w, row0, TILE_AT(j) * BC);
                } while (j + 1 < end && scored.is_faint(S, r, p));
            }
#endif
            if (!weighed) scored.continue_softmax(S, r, p);
            wgmma_wait<0>();
            fence_registers(r); ENDS(ADDING, consumed + j - 1);
            V.release(consumed + j - 1);
            rescale(r);
            round_weights(S, P); ENDS(WEIGHING, consumed + j);
        }
        if (!COPIES_O) release_q(round);
        fence_registers(r);
        const unsigned last = consumed + end - 1;
        const unsigned last_v = SEQUENCES && key_tiles == t.key_tiles ? wait_last_values(w, last, key_tiles) : V.wait(last);
        FOUND(128 * GROUPS, COPYING_V, last); BEGINS(ADDING, last);
        issue_values(r, P, last_v, base + ONES_AT);
        wgmma_wait<0>();
        fence_registers(r); ENDS(ADDING, last);
        V.release(last);
        skip_tiles(w, t, end, t.key_tiles);
        consumed += t.key_tiles;
#if COPIES_O
        store_by_copy(r, w, p.to, t, group_row, q_at, 1 + GROUPS + mine);
#else
        store(r, w, t, row0);
#endif
    }
}
#if DYNAMIC

extern "C" __global__ void half_start(const __grid_constant__ HalfParams p) {
    griddep_launch();
    *p.taken = 0;
}
#endif
#if SCORE_BITS

// Rows of an 8 x 8 matrix of fours of bits, one for each eighth of a warp, become columns.
__device__ __forceinline__ unsigned transposed(unsigned x) {
    UNROLL for (int n = 0; n < 3; n++) {
        const unsigned low = n == 0 ? 0x0f0f0f0f : n == 1 ? 0x00ff00ff : 0x0000ffff;  // what stays below the diagonal
        const int shift = 4 << n;
        const bool upper = threadIdx.x % 32 >> (2 + n) & 1;
        const unsigned other = __shfl_xor_sync(0xffffffffu, upper ? x << shift : x >> shift, 4 << n);
        x = upper ? (x & ~low) | (other & low) : (x & low) | (other & ~low);
    }
    return x;
}
// A warp finds the bits of 16 rows and 64 keys at a time, of one batch or of all: each lane those of two keys, which are read side by
// side; what belongs to a lane's scores comes from others.
extern "C" __global__ void __launch_bounds__(256) half_bits(const __grid_constant__ HalfParams p) {
    const Scoring& w = p.scoring;
    const int lane = threadIdx.x % 32, blocks = KeptBits::key_blocks(p), all = KeptBits::row_blocks(p);
    unsigned* bits = kept_bits(p);
    for (int at = blockIdx.x; at < all * (SCORE_BITS > 1 ? p.batch_heads / p.heads : 1); at += gridDim.x) {
        const ScoredHead head = scored_head(w, at / all, 0);
        const ScoreIndex row(at % all * 16);
        const int end = CAUSAL ? min(blocks, key_tiles_of(p, at % all / 4 * 64 + 63) * (BC / 64)) : blocks;  // that some row sees
        for (int block = threadIdx.x / 32; block < end; block += 8) {
            const ScoreIndex key(block * 64 + lane * 2);
            unsigned word = 0;
            UNROLL for (int r = 0; r < 16; r++) UNROLL for (int e = 0; e < 2; e++) {
                const float tile = score_tile(w, head, row.n + r, key.n + e);
                if (score_keeps(w, head, row + r, key + e, tile)) word |= 1u << (r % 8 * 4 + r / 8 * 2 + e);
            }
            bits[((long long)at * blocks + block) * 32 + lane] = transposed(word);
        }
    }
}
#endif
