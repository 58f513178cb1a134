// Stands in for kernels/hopper.cuh where kernels run on the CPU: the same functions, in C++.
#include "bulk.h"
#include "tensor.h"
#include "bulk.cuh"
#include "wgmma.cuh"

struct TensorMap { unsigned long long opaque[16]; };  // an emu::TensorMap

inline void copy_box(unsigned to, const TensorMap& map, int column, int row, int head, int batch, unsigned barrier) {
    const int first[4] = {column, row, head, batch};
    emu::TensorMap tensor;
    memcpy(&tensor, &map, sizeof tensor);
    emu::copy_tensor(to, tensor, first, barrier);
}
inline void store_box(const TensorMap& map, int column, int row, int head, int batch, unsigned from) {
    const int first[4] = {column, row, head, batch};
    emu::TensorMap tensor;
    memcpy(&tensor, &map, sizeof tensor);
    emu::store_tensor(tensor, first, from);
}
inline void store_matrices(unsigned to, const unsigned* r, EMU_HERE) {
    emu::store_matrix<4>(EMU_SITE("stmatrix"), to, r, false);
}
inline void store_transposed(unsigned to, const unsigned* r, EMU_HERE) {
    emu::store_matrix<4>(EMU_SITE("stmatrix.trans"), to, r, true);
}
inline void warpgroup_sync(int id, EMU_HERE) { emu::barrier(EMU_SITE("bar.sync"), id, 128); }
inline bool warpgroup_any(int id, bool yes, EMU_HERE) { return emu::barrier(EMU_SITE("bar.red"), id, 128, yes).yes > 0; }
inline void pingpong_wait(int id, EMU_HERE) { emu::barrier(EMU_SITE("bar.sync"), id, 256); }
inline void pingpong_arrive(int id, EMU_HERE) { emu::barrier_arrive(EMU_SITE("bar.arrive"), id, 256); }
template <int COUNT> inline void dealloc_registers(EMU_HERE) {
    emu::set_registers(EMU_SITE("setmaxnreg.dec"), COUNT, false);
}
template <int COUNT> inline void alloc_registers(EMU_HERE) {
    emu::set_registers(EMU_SITE("setmaxnreg.inc"), COUNT, true);
}
inline unsigned shared_start(const void* dynamic) { return shared_address(dynamic); }
inline int warpgroup_index() { return threadIdx.x / 128; }
