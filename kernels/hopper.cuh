#pragma once
// Instructions of Hopper (compute capability 9.0) beside those of bulk.cuh and wgmma.cuh: copies of boxes of tensors,
// stores of transposed matrices, named barriers, and registers that warpgroups reallocate.

#include "bulk.cuh"
#include "wgmma.cuh"

struct alignas(64) TensorMap { unsigned long long opaque[16]; };  // as cuTensorMapEncodeTiled writes it: a CUtensorMap

// Copies a box of a tensor of four dimensions, and counts its bytes at the barrier; what lies outside the tensor becomes zeros.
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap& map, int column, int row, int head, int batch,
                                         unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier) : "memory");
}
// Copies a box to its place in a tensor; what lies outside is not written. Waited for as store_bulk is.
__device__ __forceinline__ void store_box(const TensorMap& map, int column, int row, int head, int batch, unsigned from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];"
                 ::"l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(from) : "memory");
}
// Four 8x8 matrices of 16 bits are stored, or their transposes; lane l gives the address of row l%8 of the l/8-th.
__device__ __forceinline__ void store_matrices(unsigned to, const unsigned* r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                 ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
__device__ __forceinline__ void store_transposed(unsigned to, const unsigned* r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
                 ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
// Named barrier `id`, for the 128 threads of a warpgroup.
__device__ __forceinline__ void warpgroup_sync(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }
// The same, and whether one of them says yes.
__device__ __forceinline__ bool warpgroup_any(int id, bool yes) {
    int any;
    asm volatile("{.reg .pred p, q; setp.ne.b32 p, %2, 0; barrier.cta.red.or.pred q, %1, 128, p; selp.b32 %0, 1, 0, q;}"
                 : "=r"(any) : "r"(id), "r"(int(yes)) : "memory");
    return __any_sync(0xffffffffu, any);
}
// Named barrier `id`, for the ping-pong of two warpgroups: 128 threads wait for their turn, and 128 arrive and go on.
__device__ __forceinline__ void pingpong_wait(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void pingpong_arrive(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

template <int COUNT> __device__ __forceinline__ void dealloc_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void alloc_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// The start of dynamic shared memory, where the kernel has no static one: a constant, so that no register holds it.
__device__ __forceinline__ unsigned shared_start(const void* dynamic) {
    if (shared_address(dynamic) != 1024) __trap();
    return 1024;
}
// The number of this thread's warpgroup: the shuffle tells the compiler that it is the same in all lanes.
__device__ __forceinline__ int warpgroup_index() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }
