// Stands in for CUDA's header: groups of a block, of a warp and of parts of it. Clusters are refused.
#pragma once

namespace cooperative_groups {
// The lanes that a mask names, or the block.
class thread_group {
public:
    explicit thread_group(uint64_t mask) : mask(mask) {}
    void sync(EMU_HERE) const {
        if (mask) emu::sync_warp(EMU_SITE("sync"), mask);
        else emu::barrier(EMU_SITE("sync"), 0, 0);
    }
    unsigned long long size() const { return mask ? (unsigned)__builtin_popcountll(mask) : blockDim.x * blockDim.y * blockDim.z; }
    unsigned long long num_threads() const { return size(); }
    unsigned long long thread_rank() const {
        return mask ? (unsigned)__builtin_popcountll(mask & ((1ull << emu::lane()) - 1)) : emu::thread();
    }
    bool is_valid() const { return true; }

protected:
    uint64_t mask;
};
class thread_block : public thread_group {
public:
    thread_block() : thread_group(0) {}
    static void sync(EMU_HERE) { emu::barrier(EMU_SITE("sync"), 0, 0); }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return emu::thread(); }
    static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
    static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

// All blocks of a cooperative launch.
class grid_group {
public:
    void sync(EMU_HERE) const { emu::sync_grid(EMU_SITE("this_grid().sync()")); }
    static bool is_valid() { return true; }
    static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    static unsigned long long block_rank() { return emu::block(); }
    static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long thread_rank() { return block_rank() * thread_block::size() + emu::thread(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
};
inline grid_group this_grid() { return {}; }

// What groups of lanes have in common. `Rank` of a lane in the group is its number among the mask's.
class lanes_group : public thread_group {
public:
    explicit lanes_group(uint64_t mask) : thread_group(mask) {}
    unsigned size() const { return (unsigned)__builtin_popcountll(mask); }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const { return (unsigned)__builtin_popcountll(mask & ((1ull << emu::lane()) - 1)); }
    template <class T> T shfl(T x, int rank, EMU_HERE) const {
        return emu::shuffle(EMU_SITE("shfl"), mask, x, lane_of(rank % (int)size()));
    }
    template <class T> T shfl_down(T x, unsigned by, EMU_HERE) const {
        const unsigned rank = thread_rank() + by;
        return emu::shuffle(EMU_SITE("shfl_down"), mask, x, rank < size() ? lane_of((int)rank) : emu::lane());
    }
    template <class T> T shfl_up(T x, unsigned by, EMU_HERE) const {
        const int rank = (int)thread_rank() - (int)by;
        return emu::shuffle(EMU_SITE("shfl_up"), mask, x, rank >= 0 ? lane_of(rank) : emu::lane());
    }
    template <class T> T shfl_xor(T x, unsigned bits, EMU_HERE) const {
        const unsigned rank = thread_rank() ^ bits;
        return emu::shuffle(EMU_SITE("shfl_xor"), mask, x, rank < size() ? lane_of((int)rank) : emu::lane());
    }
    int any(int predicate, EMU_HERE) const { return emu::ballot(EMU_SITE("any"), mask, predicate).yes != 0; }
    int all(int predicate, EMU_HERE) const {
        const emu::Ballot votes = emu::ballot(EMU_SITE("all"), mask, predicate);
        return votes.yes == votes.all;
    }
    unsigned ballot(int predicate, EMU_HERE) const { return packed(emu::ballot(EMU_SITE("ballot"), mask, predicate).yes); }
    template <class T> unsigned match_any(T x, EMU_HERE) const { return packed(emu::alike(EMU_SITE("match_any"), mask, x).mask); }
    template <class T> unsigned match_all(T x, int& all, EMU_HERE) const {
        const emu::Alike found = emu::alike(EMU_SITE("match_all"), mask, x);
        all = found.all;
        return found.all ? packed(found.mask) : 0;
    }
    template <class T, class F> T reduced(T x, const F& f, EMU_HERE) const {
        return emu::reduced(EMU_SITE("reduce"), mask, x, f);
    }
    uint64_t lanes() const { return mask; }

private:
    int lane_of(int rank) const {
        uint64_t rest = mask;
        for (; rank > 0; rank--) rest &= rest - 1;
        return __builtin_ctzll(rest);
    }
    unsigned packed(uint64_t lanes) const {  // a bit for each of the group
        unsigned r = 0, n = 0;
        for (uint64_t rest = mask; rest; rest &= rest - 1, n++) r |= (unsigned)(lanes >> __builtin_ctzll(rest) & 1) << n;
        return r;
    }
};
inline uint64_t tile_of(unsigned size) {
    const uint64_t ones = size >= 64 ? ~0ull : (1ull << size) - 1;
    return ones << (unsigned)emu::lane() / size * size;
}
template <unsigned Size, class Parent = void> class thread_block_tile : public lanes_group {
    static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "tiles of more than a warp are not there on the CPU");

public:
    thread_block_tile() : lanes_group(tile_of(Size)) {}
    template <class Other> thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return (unsigned)emu::lane() % Size; }
    static unsigned meta_group_rank() { return emu::thread() / Size; }
    static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
};
template <unsigned Size, class Parent> inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
inline lanes_group tiled_partition(const thread_group&, unsigned size) { return lanes_group(tile_of(size)); }
class coalesced_group : public lanes_group {
public:
    explicit coalesced_group(uint64_t mask) : lanes_group(mask) {}
};
inline coalesced_group coalesced_threads(EMU_HERE) { return coalesced_group(emu::present(EMU_SITE("coalesced_threads"))); }
template <class G> inline void sync(const G& group, EMU_HERE) { group.sync(emu_file, emu_line); }
template <class G> inline unsigned thread_rank(const G& group) { return (unsigned)group.thread_rank(); }
template <class G> inline unsigned group_size(const G& group) { return (unsigned)group.size(); }

template <class T = void> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T = void> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T = void> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T = void> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T = void> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T = void> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };
template <class G, class T, class Op> inline T reduce(const G& group, T x, Op&& op, EMU_HERE) {
    return group.reduced(x, [&](T a, T b) -> T { return op(a, b); }, emu_file, emu_line);
}
}  // namespace cooperative_groups
