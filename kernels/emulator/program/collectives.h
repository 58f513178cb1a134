// What lanes of a warp do together, as cooperative groups and cub's warps ask for it.
#pragma once

namespace hw4 {
// Lanes that a mask names give a value each: f(values, n) runs once on all of them, in the lanes' order.
template <class T, class F> struct Together {
    T value;
    const F* f;
    static void all(void* const* lane, int lanes) {
        T values[64];
        int n = 0;
        for (int i = 0; i < lanes; i++)
            if (lane[i]) values[n++] = ((const Together*)lane[i])->value;
        for (int i = 0; i < lanes; i++) {
            if (!lane[i]) continue;
            (*((const Together*)lane[i])->f)(values, n);
            break;
        }
        for (int i = 0, rank = 0; i < lanes; i++)
            if (lane[i]) ((Together*)lane[i])->value = values[rank++];
    }
};
template <class T, class F> inline T together(emu::Site site, uint64_t mask, T value, const F& f) {
    Together<T, F> mine{value, &f};
    emu::meet(site, emu::WARP, mask, &mine, Together<T, F>::all);
    return mine.value;
}
// In the order in which a GPU's lanes add where all get the sum: those at half the distance each time. Sums of floats are
// rounded by that.
template <class T, class F> inline void reduce_all(T* values, int n, const F& f) {
    if (n & (n - 1)) {
        for (int i = 1; i < n; i++) values[0] = f(values[0], values[i]);
        for (int i = 1; i < n; i++) values[i] = values[0];
        return;
    }
    for (int by = n / 2; by; by /= 2) {
        for (int i = 0; i < n; i++) {
            if (i & by) continue;
            const T low = values[i], high = values[i ^ by];
            values[i] = f(low, high), values[i ^ by] = f(high, low);
        }
    }
}
// And where the first alone gets it: of the next, then of those two further, and so on.
template <class T, class F> inline void reduce_to_first(T* values, int n, const F& f) {
    for (int by = 1; by < n; by *= 2)
        for (int i = 0; i + by < n; i++) values[i] = f(values[i], values[i + by]);
}
template <class T, class F> inline void scan_all(T* values, int n, const F& f) {
    for (int by = 1; by < n; by *= 2)
        for (int i = n - 1; i >= by; i--) values[i] = f(values[i - by], values[i]);
}
inline unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
// Lanes `size` by `size`, without those beyond the end of the block.
inline uint64_t lanes_of_tile(unsigned size) {
    const unsigned lane = (unsigned)emu::lane(), left = threads_of_block() - (emu::thread() - lane);
    const uint64_t ones = size >= 64 ? ~0ull : (1ull << size) - 1;
    const uint64_t tile = ones << lane / size * size;
    return left >= 64 ? tile : tile & ((1ull << left) - 1);
}
}  // namespace hw4
