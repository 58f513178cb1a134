// Stands in for CUDA's headers: groups of a grid, a block, of tiles of a block and of lanes that a branch or a label has
// together; with sums, scans and copies of a group. Clusters and groups of several GPUs are refused.
#pragma once
#include "../collectives.h"

namespace cooperative_groups {
// ---- Groups

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
    uint64_t lanes() const { return mask; }

protected:
    uint64_t mask;
};
class thread_block : public thread_group {
public:
    struct arrival_token {};
    thread_block() : thread_group(0) {}
    static void sync(EMU_HERE) { emu::barrier(EMU_SITE("sync"), 0, 0); }
    // All meet where they wait: what lies between the two is ordered, too.
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token&&, EMU_HERE) { emu::barrier(EMU_SITE("barrier_wait"), 0, 0); }
    static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return emu::thread(); }
    static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
    static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }
template <unsigned Most = 1024> struct block_tile_memory {};
template <unsigned Most> inline thread_block this_thread_block(block_tile_memory<Most>&) { return {}; }

// All blocks of a cooperative launch.
class grid_group {
public:
    struct arrival_token {};
    void sync(EMU_HERE) const { emu::sync_grid(EMU_SITE("this_grid().sync()")); }
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token&&, EMU_HERE) { emu::sync_grid(EMU_SITE("this_grid().sync()")); }
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

// What groups of lanes have in common. The rank of a lane in the group is its number among the mask's.
class lanes_group : public thread_group {
public:
    explicit lanes_group(uint64_t mask, unsigned rank = 0, unsigned groups = 1)
        : thread_group(mask), own_rank(rank), groups(groups) {}
    unsigned size() const { return (unsigned)__builtin_popcountll(mask); }
    unsigned num_threads() const { return size(); }
    unsigned thread_rank() const { return (unsigned)__builtin_popcountll(mask & ((1ull << emu::lane()) - 1)); }
    unsigned meta_group_rank() const { return own_rank; }
    unsigned meta_group_size() const { return groups; }
    template <class T> T shfl(T x, int rank, EMU_HERE) const {
        return shuffled(EMU_SITE("shfl"), x, lane_of((unsigned)rank % size()));
    }
    template <class T> T shfl_down(T x, unsigned by, EMU_HERE) const {
        const unsigned rank = thread_rank() + by;
        return shuffled(EMU_SITE("shfl_down"), x, rank < size() ? lane_of(rank) : emu::lane());
    }
    template <class T> T shfl_up(T x, unsigned by, EMU_HERE) const {
        const unsigned rank = thread_rank();
        return shuffled(EMU_SITE("shfl_up"), x, rank >= by ? lane_of(rank - by) : emu::lane());
    }
    template <class T> T shfl_xor(T x, unsigned bits, EMU_HERE) const {
        const unsigned rank = thread_rank() ^ bits;
        return shuffled(EMU_SITE("shfl_xor"), x, rank < size() ? lane_of(rank) : emu::lane());
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
    template <class T, class F> T collective(emu::Site site, T x, const F& f) const { return hw4::together(site, mask, x, f); }

private:
    unsigned own_rank, groups;
    template <class T> T shuffled(emu::Site site, T x, int from) const {
        static_assert(sizeof(T) <= 32, "a shuffle of a group moves 32 bytes at most");
        emu::Shuffle<T> mine{x, x, from, false};
        emu::meet(site, emu::WARP, mask, &mine, emu::Shuffle<T>::all);
        if (mine.absent) emu::report_absent(site, from);
        return mine.result;
    }
    int lane_of(unsigned rank) const {
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
class coalesced_group : public lanes_group {
public:
    using lanes_group::lanes_group;
};
// Tiles of a warp's lanes, by one mask each; larger ones meet at a barrier of their own, and exchange values in shared
// memory.
template <unsigned Size, class Parent = void, bool Wide = (Size > 32)> class thread_block_tile : public lanes_group {
    static_assert((Size & (Size - 1)) == 0 && Size <= 32, "the size of a tile is a power of two");

public:
    thread_block_tile() : lanes_group(hw4::lanes_of_tile(Size)) {}
    template <class Other> thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    operator coalesced_group() const { return coalesced_group(mask); }
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return (unsigned)emu::lane() % Size; }
    static unsigned meta_group_rank() { return parent_rank() / Size; }
    static unsigned meta_group_size() { return (parent_size() + Size - 1) / Size; }

private:
    static unsigned parent_rank() {
        if constexpr (std::is_void_v<Parent> || std::is_same_v<Parent, thread_block>) return emu::thread();
        else return Parent::thread_rank();
    }
    static unsigned parent_size() {
        if constexpr (std::is_void_v<Parent> || std::is_same_v<Parent, thread_block>) return thread_block::size();
        else return Parent::size();
    }
};
template <unsigned Size, class Parent> class thread_block_tile<Size, Parent, true> : public thread_group {
    static_assert((Size & (Size - 1)) == 0 && Size <= 512, "the size of a tile is a power of two, up to 512");

public:
    thread_block_tile() : thread_group(0) {}
    template <class Other> thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    void sync(EMU_HERE) const { meet(EMU_SITE("sync")); }
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return emu::thread() % Size; }
    static unsigned meta_group_rank() { return emu::thread() / Size; }
    static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
    template <class T> T shfl(T x, int rank, EMU_HERE) const { return shuffled(EMU_SITE("shfl"), x, (unsigned)rank % Size); }
    template <class T> T shfl_down(T x, unsigned by, EMU_HERE) const {
        return shuffled(EMU_SITE("shfl_down"), x, thread_rank() + by);
    }
    template <class T> T shfl_up(T x, unsigned by, EMU_HERE) const {
        return shuffled(EMU_SITE("shfl_up"), x, thread_rank() - by);
    }
    template <class T> T shfl_xor(T x, unsigned bits, EMU_HERE) const {
        return shuffled(EMU_SITE("shfl_xor"), x, thread_rank() ^ bits);
    }
    int any(int predicate, EMU_HERE) const { return meet(EMU_SITE("any"), predicate).yes != 0; }
    int all(int predicate, EMU_HERE) const {
        const emu::Votes votes = meet(EMU_SITE("all"), predicate);
        return votes.yes == votes.all;
    }
    template <class T, class F> T collective(emu::Site site, T x, const F& f) const {
        T* mine = slots<T>() + first();
        mine[thread_rank()] = x;
        meet(site);
        if (thread_rank() == 0) f(mine, (int)std::min(Size, thread_block::size() - first()));
        meet(site);
        const T result = mine[thread_rank()];
        meet(site);  // before they are used again
        return result;
    }

private:
    static unsigned first() { return emu::thread() / Size * Size; }
    template <class T> static T* slots() {
        __shared__ T all[1024];
        return all;
    }
    static emu::Votes meet(emu::Site site, bool predicate = false) {
        if (meta_group_size() > 15) {  // as many barriers as there are, but the block's own
            emu::report("not supported", "16 tiles of 64 threads are not there on the CPU");
            emu::trap(__builtin_return_address(0));
        }
        return emu::barrier(site, 1 + meta_group_rank(), std::min(Size, thread_block::size() - first()), predicate);
    }
    template <class T> T shuffled(emu::Site site, T x, unsigned rank) const {
        T* mine = slots<T>() + first();
        mine[thread_rank()] = x;
        meet(site);
        if (rank < Size) x = mine[rank];
        meet(site);
        return x;
    }
};
template <unsigned Size, class Parent> inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
inline lanes_group tiled_partition(const thread_group&, unsigned size) { return lanes_group(hw4::lanes_of_tile(size)); }
// Of lanes that are together already: so many by their ranks.
inline coalesced_group tiled_partition(const coalesced_group& group, unsigned size) {
    const unsigned begin = group.thread_rank() / size * size;
    uint64_t own = 0, rest = group.lanes();
    for (unsigned rank = 0; rest; rest &= rest - 1, rank++)
        if (rank >= begin && rank < begin + size) own |= rest & -rest;
    return coalesced_group(own, begin / size, (group.size() + size - 1) / size);
}
inline coalesced_group coalesced_threads(EMU_HERE) { return coalesced_group(emu::present(EMU_SITE("coalesced_threads"))); }
// The lanes of a group whose labels are the same; groups are counted by their first lanes.
template <class G, class L> inline coalesced_group labeled_partition(const G& group, L label, EMU_HERE) {
    const uint64_t own = emu::alike(EMU_SITE("labeled_partition"), group.lanes(), label).mask;
    const emu::Ballot firsts = emu::ballot(EMU_SITE("labeled_partition"), group.lanes(), __builtin_ctzll(own) == emu::lane());
    return coalesced_group(own, (unsigned)__builtin_popcountll(firsts.yes & ((own & -own) - 1)),
                           (unsigned)__builtin_popcountll(firsts.yes));
}
template <class G> inline coalesced_group binary_partition(const G& group, bool predicate, EMU_HERE) {
    const emu::Ballot votes = emu::ballot(EMU_SITE("binary_partition"), group.lanes(), predicate);
    const uint64_t no = votes.all & ~votes.yes;
    return coalesced_group(predicate ? votes.yes : no, predicate && no, 1 + (votes.yes && no));
}
template <class G> inline void sync(const G& group, EMU_HERE) { group.sync(emu_file, emu_line); }
template <class G> inline unsigned thread_rank(const G& group) { return (unsigned)group.thread_rank(); }
template <class G> inline unsigned group_size(const G& group) { return (unsigned)group.size(); }
template <class G, class F, class... A> inline void invoke_one(const G& group, F&& f, A&&... a) {
    if (group.thread_rank() == 0) f(std::forward<A>(a)...);
}
template <class G, class F, class... A> inline auto invoke_one_broadcast(const G& group, F&& f, A&&... a) {
    decltype(f(std::forward<A>(a)...)) result{};
    if (group.thread_rank() == 0) result = f(std::forward<A>(a)...);
    return group.shfl(result, 0);
}

// ---- Sums and scans

#define EMU_GROUP_OPERATION(name, expression)                                                                \
    template <class T = void> struct name {                                                                  \
        template <class U> U operator()(const U& a, const U& b) const { return expression; }                 \
    };
EMU_GROUP_OPERATION(plus, a + b) EMU_GROUP_OPERATION(less, b < a ? b : a) EMU_GROUP_OPERATION(greater, a < b ? b : a)
EMU_GROUP_OPERATION(bit_and, a & b) EMU_GROUP_OPERATION(bit_or, a | b) EMU_GROUP_OPERATION(bit_xor, a ^ b)
template <class G, class T, class Op> inline T reduce(const G& group, T x, Op&& op, EMU_HERE) {
    return group.collective(EMU_SITE("reduce"), x, [&](T* values, int n) {
        hw4::reduce_all(values, n, [&](const T& a, const T& b) -> T { return op(a, b); });
    });
}
template <class G, class T, class Op> inline T inclusive_scan(const G& group, T x, Op&& op, EMU_HERE) {
    return group.collective(EMU_SITE("inclusive_scan"), x, [&](T* values, int n) {
        hw4::scan_all(values, n, [&](const T& a, const T& b) -> T { return op(a, b); });
    });
}
template <class G, class T> inline T inclusive_scan(const G& group, T x, EMU_HERE) {
    return inclusive_scan(group, x, plus<T>(), emu_file, emu_line);
}
// The first has T(), as a GPU's has for sums.
template <class G, class T, class Op> inline T exclusive_scan(const G& group, T x, Op&& op, EMU_HERE) {
    return group.collective(EMU_SITE("exclusive_scan"), x, [&](T* values, int n) {
        hw4::scan_all(values, n, [&](const T& a, const T& b) -> T { return op(a, b); });
        for (int i = n - 1; i > 0; i--) values[i] = values[i - 1];
        values[0] = T();
    });
}
template <class G, class T> inline T exclusive_scan(const G& group, T x, EMU_HERE) {
    return exclusive_scan(group, x, plus<T>(), emu_file, emu_line);
}
// The group's sum is added to an atomic, or stored, by one of it.
template <class G, class A, class T, class Op>
inline void reduce_update_async(const G& group, A& to, T x, Op&& op, EMU_HERE) {
    const T sum = reduce(group, x, op, emu_file, emu_line);
    if (group.thread_rank() != 0) return;
    auto old = to.load();
    while (!to.compare_exchange_weak(old, op(old, sum))) {}
}
template <class G, class A, class T, class Op>
inline void reduce_store_async(const G& group, A& to, T x, Op&& op, EMU_HERE) {
    const T sum = reduce(group, x, op, emu_file, emu_line);
    if (group.thread_rank() == 0) to.store(sum);
}

// ---- Asynchronous copies

// Each call is a group of copies: of 16, 8 or 4 bytes from global to shared memory, as addresses and size allow; else it is
// done at once.
template <class G> inline void copy_of_group(const G& group, void* to, const void* from, size_t bytes) {
    const uintptr_t both = (uintptr_t)to | (uintptr_t)from | bytes;
    const unsigned piece = both % 16 == 0 ? 16 : both % 8 == 0 ? 8 : both % 4 == 0 ? 4 : 1;
    const bool asynchronous = piece >= 4 && __isShared(to) && !__isShared(from);
    for (size_t at = (size_t)group.thread_rank() * piece; at < bytes; at += (size_t)group.size() * piece) {
        if (asynchronous) {
            emu::copy_async((unsigned)__cvta_generic_to_shared((char*)to + at), (const char*)from + at, piece, piece);
        } else if (piece == 1) {
            ((char*)to)[at] = ((const char*)from)[at];
        } else {
            for (unsigned i = 0; i < piece; i += 4) *(unsigned*)((char*)to + at + i) = *(const unsigned*)((const char*)from + at + i);
        }
    }
    emu::copy_async_commit();
}
template <class G, class To, class From> inline void memcpy_async(const G& group, To* to, const From* from, size_t bytes) {
    copy_of_group(group, to, from, bytes);
}
// As many elements as both have.
template <class G, class T, class A, class B>
inline void memcpy_async(const G& group, T* to, const A& room, const T* from, const B& given) {
    copy_of_group(group, to, from, std::min((size_t)room, (size_t)given) * sizeof(T));
}
template <class G> inline void wait(const G& group, EMU_HERE) {
    emu::copy_async_wait(0);
    group.sync(emu_file, emu_line);
}
template <unsigned Left, class G> inline void wait_prior(const G& group, EMU_HERE) {
    emu::copy_async_wait(Left);
    group.sync(emu_file, emu_line);
}
namespace experimental {
using namespace cooperative_groups;
}
}  // namespace cooperative_groups
