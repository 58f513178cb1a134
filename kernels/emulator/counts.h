// What a launch does, counted: only in the build "counts" (EMU_COUNTS); in the others nothing of it is compiled.
//
// A request is what the lanes of a warp load or store together: each lane's n-th access from one place in the code, since
// the warp's lanes last met, belongs to the n-th request of that place.
#pragma once
#include "runtime.h"
namespace emu {
enum Does { LOADS, STORES, UPDATES, COPIES_IN, COPIES_OUT };  // the last two: of copy engines, and cp.async
#if defined(EMU_COUNTS)
void count_launch();                    // begins
void count_block();                     // a block begins
void count_over(unsigned number);       // is over; those of a program that have the same number are counted together, for write_counts
void count_warp(unsigned first);        // the lanes of a warp, from this thread on, have met: their requests are whole
// Of the thread that runs.
void count_access(const void* at, unsigned bytes, Does, uintptr_t pc, bool is_volatile = false);
void count_copy(const void* at, unsigned bytes, bool write, uintptr_t pc);  // of global memory, by a copy engine
void count_barrier();                    // of a block's threads: what each has loaded may be another by now
void count_event(Site, unsigned lanes);   // a warp, or a group of them, has met there
// A product of tensor cores, in operations, of which an addition is one; and the bytes of shared memory it reads itself.
void count_products(Site, const char* type, uint64_t operations, uint64_t operand_bytes);
void count_matrices(const char* const* rows, int n, bool write, uintptr_t pc);  // rows of 16 bytes, 8 a matrix
bool in_shared(const char* at);  // memory.cpp
#define EMU_COUNT(call) call
#else
#define EMU_COUNT(call) (void)0
#endif
}  // namespace emu
