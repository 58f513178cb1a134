// Stands in for kernels/bulk.cuh where kernels run on the CPU: the same functions, in C++.
#include "bulk.h"
#include "ptx.cuh"

#if ARCH >= 900
template <unsigned ARRIVALS> inline void barrier_init(unsigned barrier) { emu::mbarrier_init(barrier, ARRIVALS); }
inline void barriers_made() { emu::fence_mbarrier_init(); }
inline void barrier_arrive(unsigned barrier) { emu::mbarrier_arrive(barrier); }
inline void barrier_expect(unsigned barrier, unsigned bytes) {
    emu::mbarrier_expect(barrier, bytes);
    emu::mbarrier_arrive(barrier);
}
template <unsigned BYTES> inline void barrier_expect(unsigned barrier) { barrier_expect(barrier, BYTES); }
inline void barrier_wait(unsigned barrier, unsigned parity, EMU_HERE) {
    emu::mbarrier_wait(EMU_SITE("mbarrier.try_wait"), barrier, parity);
}
inline void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    emu::copy_bulk(to, from, bytes, barrier);
}
template <unsigned BYTES> inline void copy_bulk(unsigned to, const void* from, unsigned barrier) {
    copy_bulk(to, from, BYTES, barrier);
}
inline void prefetch_bulk(const void* from, unsigned bytes) { emu::prefetch_bulk(from, bytes); }
template <unsigned BYTES> inline void store_bulk(void* to, unsigned from) { emu::store_bulk(to, from, BYTES); }
template <unsigned BYTES> inline void add_bulk(float* to, unsigned from) { emu::add_bulk(to, from, BYTES); }
inline void end_stores() { emu::store_commit(); }
inline void stores_have_read() { emu::store_wait(0, true); }
inline void stores_are_done() { emu::store_wait(0, false); }
inline void wait_for_count(const int* count, int turn, EMU_HERE) {
    emu::wait_for_count(EMU_SITE("ld.acquire"), count, turn);
}
inline void set_count(int* count, int turn) { emu::set_count(count, turn); }
inline void add_count(int* count, int more) { emu::add_count(count, more); }
inline void fence_async() { emu::fence_proxy_async(); }
#endif
