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
inline void meet_group(int id, EMU_HERE) { emu::barrier(EMU_SITE("bar.sync"), id, 128); }
inline void wait_for_turn(int id, EMU_HERE) { emu::barrier(EMU_SITE("bar.sync"), id, 256); }
inline void give_turn(int id, EMU_HERE) { emu::barrier_arrive(EMU_SITE("bar.arrive"), id, 256); }
template <int COUNT> inline void fewer_registers(EMU_HERE) {
    emu::set_registers(EMU_SITE("setmaxnreg.dec"), COUNT, false);
}
template <int COUNT> inline void more_registers(EMU_HERE) {
    emu::set_registers(EMU_SITE("setmaxnreg.inc"), COUNT, true);
}
inline unsigned shared_start(const void* dynamic) { return shared_address(dynamic); }
inline int group_number() { return threadIdx.x / 128; }
