// The memory that a kernel may touch: shared memory, and the arrays of global memory that a launch was given.
#pragma once
#include "shadow.h"

#include <string>
#include <vector>

namespace emu {
struct Array {
    EmuArray of;
    Area area;           // only where a kernel may write, and loads and stores are watched
    bool host = false;   // the host may touch it, too: pinned and managed memory
    bool freed = false;  // nobody may touch it any more
    int gpu = 0;         // whose memory it is
};
constexpr int MOST_GPUS = 16;
extern bool peers[MOST_GPUS][MOST_GPUS];  // whether one may touch the memory of another

Array* array_at(const char* at);  // the last that begins at or before, or null
Array& add_array(Array&&);        // behind all others
void host_is_shared(const char* begin, size_t bytes);  // the host's memory that kernels may touch, too
const std::vector<Array>& all_arrays();
template <class F> void each_array(F f) {
    for (const Array& array : all_arrays()) f(array);
}
void begin_image();               // finds where the code, its constants and variables lie: `image`
const Word* shadow_at(const char* at);  // of a word of global memory, or null
void touch_array(Array&, const char* at, const Access&, unsigned who);
void outside_arrays(const char* at, const Access&);  // reports it

// Static shared arrays of a whole program: thread-local variables of its code, among others. By the order of offsets.
struct Static {
    size_t offset, bytes;  // in the memory of thread-local variables
    std::string owner, name;  // the kernel that it is in, "" if it is in none
    bool foreign = false;     // of another kernel than the one that runs
};
extern std::vector<Static> statics;

extern Area shared_area;  // empty where loads and stores are not watched
void touch_shared(const char* at, const Access&, unsigned who);

// A load or store that the compiler's hooks see; and where a kernel's last one was.
extern uintptr_t last_access;
extern const char* touched_at;  // what it was to
extern uint32_t touched_bytes;
void access(const void* p, uint32_t bytes, bool write, Strength, uintptr_t pc, Part = WHOLE, uint8_t how = 0);
}  // namespace emu
