#pragma once
// The bulk copy engine and the barriers in shared memory that count its bytes (compute capability 9.0).

#include "ptx.cuh"

#if ARCH >= 900
// A barrier's phase ends when ARRIVALS threads have arrived and all bytes that were announced have come.
template <unsigned ARRIVALS> __device__ __forceinline__ void barrier_init(unsigned barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "n"(ARRIVALS) : "memory");
}
// The barriers that this thread made are there for the copy engine.
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and announces so many bytes.
template <unsigned BYTES> __device__ __forceinline__ void barrier_expect(unsigned barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "n"(BYTES) : "memory");
}
// Waits for the end of a phase: the first has parity 0, the second 1, the third 0.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra done; bra again; "
                 "done: }" ::"r"(barrier), "r"(parity) : "memory");
}
// Copies whole 16-byte chunks from global to shared memory, and counts them at the barrier.
template <unsigned BYTES> __device__ __forceinline__ void copy_bulk(unsigned to, const void* from, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "n"(BYTES), "r"(barrier) : "memory");
}
// What this thread has written to shared memory is there for the tensor cores of warpgroups and for the copy engine.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
