// The memory that a kernel may touch: shared memory, and the arrays of global memory that a launch was given.
#pragma once
#include "shadow.h"

namespace emu {
struct Array {
    EmuArray of;
    Area area;  // only where a kernel may write, and loads and stores are watched
};
Array* array_at(const char* at);  // the last that begins at or before, or null
void touch_array(Array&, const char* at, const Access&, unsigned who);
void outside_arrays(const char* at, const Access&);  // reports it

extern Area shared_area;  // empty where loads and stores are not watched
void touch_shared(const char* at, const Access&, unsigned who);

// A load or store that the compiler's hooks see.
void access(const void* p, uint32_t bytes, bool write, bool strong, uintptr_t pc);
}  // namespace emu
