// Stands in for kernels/bulk.cuh where kernels run on the CPU: the same functions, in C++.
#include "bulk.h"
#include "ptx.cuh"

#if ARCH >= 900
template <unsigned ARRIVALS> inline void mbarrier_init(unsigned barrier) { emu::mbarrier_init(barrier, ARRIVALS); }
inline void fence_mbarrier_init() { emu::fence_mbarrier_init(); }
inline void mbarrier_arrive(unsigned barrier) { emu::mbarrier_arrive(barrier); }
inline void mbarrier_expect(unsigned barrier, unsigned bytes) {
    emu::mbarrier_expect(barrier, bytes);
    emu::mbarrier_arrive(barrier);
}
template <unsigned BYTES> inline void mbarrier_expect(unsigned barrier) { mbarrier_expect(barrier, BYTES); }
inline void mbarrier_wait(unsigned barrier, unsigned parity, EMU_HERE) {
    emu::mbarrier_wait(EMU_SITE("mbarrier.try_wait"), barrier, parity);
}
inline void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    emu::copy_bulk(to, from, bytes, barrier);
}
template <unsigned BYTES> inline void copy_bulk(unsigned to, const void* from, unsigned barrier) {
    copy_bulk(to, from, BYTES, barrier);
}
inline void prefetch_bulk(const void* from, unsigned bytes) { emu::prefetch_bulk(from, bytes); }
inline void prefetch_bulk_once(const void* from, unsigned bytes) { prefetch_bulk(from, bytes); }
template <unsigned BYTES> inline void store_bulk(void* to, unsigned from) { emu::store_bulk(to, from, BYTES); }
template <unsigned BYTES> inline void add_bulk(float* to, unsigned from) { emu::add_bulk(to, from, BYTES); }
inline void bulk_commit() { emu::store_commit(); }
inline void bulk_wait_read() { emu::store_wait(0, true); }
inline void bulk_wait() { emu::store_wait(0, false); }
inline void semaphore_wait(const int* count, int turn, EMU_HERE) {
    emu::wait_for_count(EMU_SITE("ld.acquire"), count, turn);
}
inline void semaphore_release(int* count, int turn) { emu::set_count(count, turn); }
inline void semaphore_add(int* count, int more) { emu::add_count(count, more); }
inline void fence_proxy_async() { emu::fence_proxy_async(); }
#endif
