#pragma once
// The bulk copy engine and the barriers in shared memory that count its bytes (compute capability 9.0).

#include "ptx.cuh"

#if ARCH >= 900
// A barrier's phase ends when ARRIVALS threads have arrived and all bytes that were announced have come.
template <unsigned ARRIVALS> __device__ __forceinline__ void mbarrier_init(unsigned barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "n"(ARRIVALS) : "memory");
}
// The mbarriers that this thread initialised are visible to the copy engine.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces so many bytes.
template <unsigned BYTES> __device__ __forceinline__ void mbarrier_expect(unsigned barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for the end of a phase: the first has parity 0, the second 1, the third 0.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra done; bra again; "
                 "done: }" ::"r"(barrier), "r"(parity) : "memory");
}
// Copies whole 16-byte chunks from global to shared memory, and counts them at the barrier.
template <unsigned BYTES> __device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "n"(BYTES), "r"(barrier) : "memory");
}
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// Prefetches whole 16-byte chunks of global memory to the L2 cache.
__device__ __forceinline__ void prefetch_bulk(const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// The same for what is read once: it leaves that cache first.
__device__ __forceinline__ void prefetch_bulk_once(const void* from, unsigned bytes) {
    asm volatile("{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0; "
                 "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, policy;}" ::"l"(from), "r"(bytes) : "memory");
}
// Copies whole 16-byte chunks from shared to global memory; add_bulk: adds float32 to those that are there. A thread's
// copies since the last call of bulk_commit are a group; wait until all have read shared memory, or have taken place.
template <unsigned BYTES> __device__ __forceinline__ void store_bulk(void* to, unsigned from) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(from), "n"(BYTES) : "memory");
}
template <unsigned BYTES> __device__ __forceinline__ void add_bulk(float* to, unsigned from) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 ::"l"(to), "r"(from), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// A semaphore in global memory, by which blocks follow each other: waits until a count is `turn`; sets it, and releases all writes
// before.
__device__ __forceinline__ void semaphore_wait(const int* count, int turn) {
    int found;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(found) : "l"(count) : "memory");
    while (found != turn);
    asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void semaphore_release(int* count, int turn) {
    asm volatile("fence.proxy.async; st.release.gpu.global.s32 [%0], %1;" ::"l"(count), "r"(turn) : "memory");
}
// Adds to a count, and releases all writes before.
__device__ __forceinline__ void semaphore_add(int* count, int more) {
    asm volatile("fence.proxy.async; red.release.gpu.global.add.s32 [%0], %1;" ::"l"(count), "r"(more) : "memory");
}
// This thread's writes to shared memory are visible to the tensor cores of warpgroups and to the copy engine; its reads are complete
// before the copy engine writes there.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
