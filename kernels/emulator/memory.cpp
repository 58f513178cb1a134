#include "counts.h"
#include "fibers.h"
#include "memory.h"
#include "polling.h"
#include "schedule.h"
#include "story.h"

#include <algorithm>
#include <link.h>
#include <vector>

// Dynamic shared memory: what a kernel declares extern __shared__ is linked to this address. Static __shared__ arrays
// are thread-local variables of the kernel, and so lie beside it. 229 KB: no GPU's block has more.
constexpr unsigned WINDOW = 229 << 10;
extern "C" {
alignas(1024) thread_local char hw4_window[WINDOW];
// Where a whole program's __constant__ variables lie, if it has any: the linker's own names for their section.
extern char __start_hw4_constants[] __attribute__((weak)), __stop_hw4_constants[] __attribute__((weak));
}

namespace emu {
char* shared;
bool watching;
uintptr_t image, last_access;
const char* touched_at;
uint32_t touched_bytes;
Area shared_area;
static char* window;
static size_t tls_bytes;
static const char* tls;
static std::vector<Array> arrays;
static const char *arrays_begin, *arrays_end;
static const char *image_begin, *image_end;                     // the code and its constants
[[maybe_unused]] static const char *variables_begin, *variables_end;  // its data, with __device__ variables
[[maybe_unused]] static Area variables;

// ---- Shared memory

static int find_image(dl_phdr_info* info, size_t, void*) {
    const uintptr_t here = (uintptr_t)&find_image;
    uintptr_t low = ~0ul, high = 0;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& header = info->dlpi_phdr[i];
        const uintptr_t at = info->dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD) low = std::min(low, at), high = std::max(high, at + header.p_memsz);
        if (header.p_type == PT_LOAD && header.p_flags & PF_W)
            variables_begin = (const char*)(at & ~(uintptr_t)3), variables_end = (const char*)at + header.p_memsz;
        if (header.p_type == PT_TLS) bytes = header.p_memsz;
    }
    if (here < low || here >= high) return 0;
    image = info->dlpi_addr, image_begin = (const char*)low, image_end = (const char*)high;
    tls = (const char*)info->dlpi_tls_data, tls_bytes = bytes;
    return 1;
}
void begin_image() { dl_iterate_phdr(find_image, nullptr); }
void locate_shared() {
    window = hw4_window;  // which makes this thread's copy, if there was none
    begin_image();
    shared = (char*)((uintptr_t)tls & ~(uintptr_t)1023);
    if (!watching || !hooked) return;
    const char* begin = (const char*)((uintptr_t)tls & ~(uintptr_t)3);
    if (shared_area.begin != begin) shared_area = Area(begin, tls_bytes);  // else what it holds is past
}
unsigned shared_bytes() { return (unsigned)(window - shared) + dynamic_bytes; }
std::vector<Static> statics;
static void clear_shared() {
    if (!watching) return;
    allow(window, WINDOW);
    memset(window, 0xff, dynamic_bytes);  // NaN: what nobody wrote is no zero
#if defined(EMU_PROGRAM)
    for (const Static& one : statics) memset((char*)tls + one.offset, 0xff, one.bytes);
#else
    memset((char*)tls, 0xff, window - tls);
    memset(window + WINDOW, 0xff, tls + tls_bytes - (window + WINDOW));
#endif
    forbid(window + dynamic_bytes, WINDOW - dynamic_bytes);
}
static AtBlockStart memory_at_start(clear_shared);
namespace {
struct SharedMemory {
    std::vector<char> bytes;
    Area area;
};
}
static Kept<SharedMemory> kept_memory;
static void exchange_memory(unsigned n) {
    SharedMemory& one = kept_memory.at(n);
    size_t size = dynamic_bytes;
    for (const Static& each : statics) size += each.bytes;
    if (one.bytes.size() < size) one.bytes.resize(size);
    char* to = one.bytes.data();
    std::swap_ranges(window, window + dynamic_bytes, to), to += dynamic_bytes;
    for (const Static& each : statics) {
        char* from = (char*)tls + each.offset;
        std::swap_ranges(from, from + each.bytes, to), to += each.bytes;
    }
    if (!watching || !hooked) return;
    std::swap(shared_area, one.area);
    if (shared_area.empty()) shared_area = Area((const char*)((uintptr_t)tls & ~(uintptr_t)3), tls_bytes);
}
static AtSwitch memory_at_switch(exchange_memory);

static bool in_window(const char* at) { return at >= window && at < window + WINDOW; }
static bool beyond_window(const char* at, uint32_t bytes) {
    return at + bytes > window && at < window + WINDOW && (at < window || at + bytes > window + dynamic_bytes);
}
[[maybe_unused]] static const Static* static_at(const char* at) {  // the last that begins at or before, or null
    const auto begins_behind = [](size_t x, const Static& s) { return x < s.offset; };
    const auto after = std::upper_bound(statics.begin(), statics.end(), (size_t)(at - tls), begins_behind);
    return after == statics.begin() ? nullptr : &*(after - 1);
}
static void unwritten(const char* at, uintptr_t pc) {
#if defined(EMU_PROGRAM)
    if (const Static* one = in_window(at) ? nullptr : static_at(at)) {
        find("uninitialised", pc, 0, "thread %d reads %s, which is shared, at {0} where nobody has written: byte %ld of %lu",
             current, one->name.c_str(), (long)(at - tls - (long)one->offset), (unsigned long)one->bytes);
        return;
    }
#endif
    const char* begin = at < window ? tls : in_window(at) ? window : window + WINDOW;
    find("uninitialised", pc, 0, "thread %d reads shared memory at {0} that nobody has written: byte %ld of %u%s",
         current, (long)(at - begin), in_window(at) ? dynamic_bytes : (unsigned)(tls_bytes - WINDOW),
         in_window(at) ? "" : " of its static part");
}
// What an atomicExch has read is seldom used: most are stores.
static bool reads_value(const Access& access) {
    return !access.write && !(access.how & EXCHANGES) && access.part != SECOND_HALF;
}
void touch_shared(const char* at, const Access& access, unsigned who) {
    if (shared_area.empty()) return;
    each_word(shared_area, at, access.bytes, [&](Word& word, uint8_t bytes) {
        if (!access.write && !access.strength && who < MAX_THREADS && seen(word, bytes, (int)who)) return;
        if (word.copy)
            find("race", access.pc, place_of_copy(word.copy),
                 "thread %d %s shared memory at {0} that the asynchronous copy at {1} still writes: wait for the copy, "
                 "then __syncthreads(), first", current, access.write ? "writes" : "reads");
        const uint8_t written = word.write.epoch < block_epoch ? 0 : word.written;
        if (reads_value(access) && (written & bytes) != bytes) unwritten(at, access.pc);
        touch(word, bytes, access, false, "shared memory", who);
    });
}
// Whether an access of static shared memory is in no array of it, which is reported unless it is the compiler's own.
static bool outside_statics(const char* at, const Access& access) {
#if defined(EMU_PROGRAM)
    if (in_window(at)) return false;
    const Static* one = static_at(at);
    const size_t offset = (size_t)(at - tls);
    if (one && !one->foreign && offset + access.bytes <= one->offset + one->bytes) return one->name.empty();
    while (one && (one->foreign || one->name.empty())) one = one == statics.data() ? nullptr : one - 1;
    if (one)
        find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0}, from byte %lu of the shared array %s, which has %lu",
             current, access.write ? "writes" : "reads", access.bytes, (unsigned long)(offset - one->offset),
             one->name.c_str(), (unsigned long)one->bytes);
    else
        find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0} in front of all shared arrays", current,
             access.write ? "writes" : "reads", access.bytes);
    return true;
#else
    (void)at, (void)access;
    return false;
#endif
}
static void outside_shared(const char* at, const Access& access) {
    find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0} outside shared memory: byte %ld of %u", current,
         access.write ? "writes" : "reads", access.bytes, (long)(at - window), dynamic_bytes);
}

// ---- Arrays

Array* array_at(const char* at) {
    static size_t last;  // of the vector, which one it was
    if (last < arrays.size() && at >= arrays[last].of.begin && at < arrays[last].of.begin + arrays[last].of.bytes)
        return &arrays[last];
    const auto begins_behind = [](const char* x, const Array& a) { return x < a.of.begin; };
    auto after = std::upper_bound(arrays.begin(), arrays.end(), at, begins_behind);
    if (after == arrays.begin()) return nullptr;
    last = (size_t)(after - 1 - arrays.begin());
    return &arrays[last];
}
const std::vector<Array>& all_arrays() { return arrays; }
[[maybe_unused]] static std::vector<std::pair<const char*, size_t>> of_host;
void host_is_shared(const char* begin, size_t bytes) { of_host.emplace_back(begin, bytes); }
Array& add_array(Array&& array) {
    arrays.push_back(std::move(array));
    const EmuArray& of = arrays.back().of;
    if (arrays.size() == 1) arrays_begin = of.begin - (1 << 16);
    arrays_end = of.begin + of.bytes + (1 << 16);
    return arrays.back();
}
void touch_array(Array& array, const char* at, const Access& access, unsigned who) {
    if (access.write && !array.of.writable) {
        find("input written", access.pc, 0, "thread %d writes at {0} to %s, which is an input", current, array.of.name);
        return;
    }
    if (array.area.empty()) return;
    each_word(array.area, at, access.bytes, [&](Word& word, uint8_t bytes) {
        if (reads_value(access) && !array.of.written && (word.written & bytes) != bytes)
            find("uninitialised", access.pc, 0, "thread %d reads %s at {0} where nobody has written: byte %ld of %lu",
                 current, array.of.name, (long)(at - array.of.begin), (unsigned long)array.of.bytes);
        const bool fresh = !array.of.written && (word.written & bytes) != bytes;
        if (touch(word, bytes, access, true, array.of.name, who, fresh) && reads_value(access))
            find("uninitialised", access.pc, 0,
                 "thread %d reads %s at {0} where another block of this launch writes, and what it reads if it comes "
                 "first nobody has written: byte %ld of %lu",
                 current, array.of.name, (long)(at - array.of.begin), (unsigned long)array.of.bytes);
    });
}
void outside_arrays(const char* at, const Access& access) {
    const char* does = access.write ? "writes" : "reads";
    const Array* array = array_at(at);
    const size_t following = array ? (size_t)(array - arrays.data()) + 1 : 0;
    const Array* next = following < arrays.size() ? &arrays[following] : nullptr;
    if (array && array->freed && at < array->of.begin + array->of.bytes)
        find("freed memory", access.pc, 0, "thread %d %s %u bytes at {0} of %s, which is freed", current, does,
             access.bytes, array->of.name);
    else if (next && (!array || next->of.begin - at <= at - (array->of.begin + array->of.bytes)))  // an index below 0
        find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0}, %ld bytes before %s", current, does,
             access.bytes, (long)(next->of.begin - at), next->of.name);
    else
        find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0}, from byte %ld of %s, which has %lu", current,
             does, access.bytes, (long)(at - array->of.begin), array->of.name, (unsigned long)array->of.bytes);
}

// ---- Names, for stories

const Word* shadow_at(const char* at) {
    const auto of = [at](Area& area) { return area.empty() ? nullptr : &area.word_at((size_t)(at - area.begin) / 4); };
    if (at >= arrays_begin && at < arrays_end) {
        Array* array = array_at(at);
        return array && at < array->of.begin + array->of.bytes ? of(array->area) : nullptr;
    }
    return at >= variables_begin && at < variables_end && variables.begin == variables_begin ? of(variables) : nullptr;
}
static std::string element_of(const std::string& name, size_t offset, size_t size, unsigned bytes) {
    if (size == bytes) return name;
    const bool whole = bytes && offset % bytes == 0, word = name.find(' ') == std::string::npos;
    const std::string number = std::to_string(whole ? offset / bytes : offset);
    if (whole && word) return name + "[" + number + "]";
    return (whole ? "element " : "byte ") + number + " of " + name;
}
std::string element_at(const char* at, unsigned bytes) {
    if ((size_t)(at - tls) < tls_bytes) {
#if defined(EMU_PROGRAM)
        const Static* one = in_window(at) ? nullptr : static_at(at);
        if (one && !one->name.empty()) return element_of(one->name, (size_t)(at - tls) - one->offset, one->bytes, bytes);
#endif
        const char* begin = at < window ? tls : in_window(at) ? window : window + WINDOW;
        return element_of("shared memory", (size_t)(at - begin), 0, bytes);
    }
    if (const Array* array = at >= arrays_begin && at < arrays_end ? array_at(at) : nullptr) {
        const std::string name = array->of.name;
        return element_of(name.substr(0, name.find(" (")), (size_t)(at - array->of.begin), array->of.bytes, bytes);
    }
    if (at >= variables_begin && at < variables_end) {
        char text[60];
        snprintf(text, sizeof text, "{%#lx:%u}", (unsigned long)((uintptr_t)at - image), bytes);
        return text;
    }
    return "a word of memory";
}

// ---- All of it

bool peers[MOST_GPUS][MOST_GPUS];
static void other_gpu(const Array& array, const Access& access) {
    if (!peers[job->gpu][array.gpu])
        find("other GPU", access.pc, 0, "thread %d on GPU %d %s at {0} %s, which is memory of GPU %d "
             "(cudaDeviceEnablePeerAccess)", current, job->gpu, access.write ? "writes" : "reads", array.of.name, array.gpu);
}
#if defined(EMU_PROGRAM)
int host_works;
// The host by a load or store, where it has no business, or for a library that works on a GPU's memory.
static void host_touches(const char* at, uint32_t bytes, bool write, uintptr_t pc) {
    Array* array = array_at(at);
    if (!watching || !array || (array->host && !array->freed)) return;
    if (host_works && !array->freed && at + bytes <= array->of.begin + array->of.bytes) {
        if (array->area.empty()) return;
        bool unwritten = false;
        each_word(array->area, at, bytes, [&](Word& word, uint8_t which) {
            if (write) word.written |= which;
            else unwritten |= !array->of.written && (word.written & which) != which;
        });
        if (unwritten)
            find("uninitialised", pc, 0, "what a library is given reads %s at {0} where nobody has written: byte %ld of %lu",
                 array->of.name, (long)(at - array->of.begin), (unsigned long)array->of.bytes);
        return;
    }
    find("host", pc, 0, "the host %s %u bytes of %s at {0}%s: it must be copied (cudaMemcpy)",
         write ? "writes" : "reads", bytes, array->of.name, array->freed ? ", which is freed" : ", which is a GPU's memory");
}
// A thread's own stack, its launch's arguments, variables and constants; all else is the host's.
static void touch_elsewhere(const char* at, const Access& access) {
    const char* does = access.write ? "writes" : "reads";
    if (at >= (const char*)job->context && at < (const char*)job->context + job->context_bytes) return;
    if (access.write && at >= __start_hw4_constants && at < __stop_hw4_constants) {
        find("constant memory", access.pc, 0, "thread %d writes at {0} to a __constant__ variable, which kernels may only read",
             current);
        return;
    }
    if (at >= variables_begin && at < variables_end) {
        if (telling) tell_access(at, access.bytes, access.write, access.pc);
        if (variables.begin != variables_begin) variables = Area(variables_begin, variables_end - variables_begin);
        if (!variables.empty())
            each_word(variables, at, access.bytes, [&](Word& word, uint8_t bytes) {
                touch(word, bytes, access, true, "a __device__ variable", (unsigned)current);
            });
        return;
    }
    if (at >= image_begin && at < image_end) return;
    const int owner = owner_of_stack(at);
    if (owner == current) return touch_stack(at, access.bytes, access.write, access.pc);
    for (auto& [begin, size] : of_host)
        if (at >= begin && at < begin + size) return;
    if (owner != NOBODY)
        find("out of bounds", access.pc, 0, "thread %d %s at {0} a local variable of thread %d", current, does, owner);
    else if ((uintptr_t)at < 4096)
        find("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0} by a null pointer", current, does, access.bytes);
    else
        find("host memory", access.pc, 0, "thread %d %s %u bytes at {0} of memory that is the host's: a GPU cannot",
             current, does, access.bytes);
    // A GPU ends the kernel, too; a store would change what the host goes on with.
    if (access.write || (uintptr_t)at < 4096) stop_kernel();
}
#else
static void host_touches(const char*, uint32_t, bool, uintptr_t) {}
static void touch_elsewhere(const char* at, const Access& access) {
    touch_stack(at, access.bytes, access.write, access.pc);
}
#endif
// A thread may touch, besides arrays and shared memory, its own stack, and constants.
void access(const void* p, uint32_t bytes, bool write, Strength strength, uintptr_t pc, Part part, uint8_t how) {
    const char* at = (const char*)p;
    if (current == NOBODY) {
        if (watching && at >= arrays_begin && at < arrays_end) host_touches(at, bytes, write, pc);
        return;
    }
    last_access = pc, touched_at = at, touched_bytes = bytes;
    if (unsettled && (write || strength != PLAIN || !store_may_follow(at, bytes))) settle_stores();
    if (strength != PLAIN && part != SECOND_HALF) spin(pc);  // an atomic is one piece, and counts its changes itself
    if (write && strength < ATOMIC && owner_of_stack(at) == NOBODY) memory_changes++;
    if (!watching) return;
    if (strength == VOLATILE) note_volatile(at, bytes, write, pc);
#if defined(EMU_PROGRAM)
    const Access access{bytes, write, strength, pc, strength < ATOMIC ? at : nullptr, part, how};
#else
    const Access access{bytes, write, strength, pc, strength == VOLATILE ? at : nullptr, part, how};
#endif
    if ((size_t)(at - tls) < tls_bytes) {
        take_turns();
        if (telling) tell_access(at, bytes, write, pc);
        if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && (uintptr_t)at % bytes)  // more is copied in pieces
            find("misaligned", pc, 0, "thread %d %s %u bytes of shared memory at {0} from byte %ld, no multiple of %u",
                 current, write ? "writes" : "reads", bytes, (long)(at - window), bytes);
        if (beyond_window(at, bytes)) outside_shared(at, access);
        else if (!outside_statics(at, access)) touch_shared(at, access, (unsigned)current);
    } else if (at >= arrays_begin && at < arrays_end) {
        take_turns();
        if (telling) tell_access(at, bytes, write, pc);
        Array* array = array_at(at);
        const bool inside = array && !array->freed && at + bytes <= array->of.begin + array->of.bytes;
        if (inside) touch_array(*array, at, access, (unsigned)current);
        else outside_arrays(at, access);
        if (inside && array->gpu != job->gpu && !array->host) other_gpu(*array, access);
    } else {
        touch_elsewhere(at, access);
    }
}
#if defined(EMU_COUNTS)
bool in_shared(const char* at) { return (size_t)(at - tls) < tls_bytes; }
#endif
bool memory_is(const void* p, Kind kind) {
    const char* at = (const char*)p;
    const bool in_tls = (size_t)(at - tls) < tls_bytes, on_stack = owner_of_stack(at) != NOBODY;
    const bool constant = at >= image_begin && at < image_end && !(at >= variables_begin && at < variables_end);
    return kind == SHARED ? in_tls : kind == LOCAL ? on_stack : kind == CONSTANT ? constant : !in_tls && !on_stack && !constant;
}
bool outside(const char* at, unsigned bytes, bool write, uintptr_t pc) {
    const bool in_arrays = at >= arrays_begin && at < arrays_end;
    if (in_window(at)) outside_shared(at, {bytes, write, PLAIN, pc});
    else if (in_arrays) outside_arrays(at, {bytes, write, PLAIN, pc});
    return in_window(at) || in_arrays;
}
bool check_shared(unsigned at, unsigned bytes, unsigned alignment, const char* what, uintptr_t pc) {
    const char* place = shared + at;
    if (at % alignment) {
        find("misaligned", pc, 0, "thread %d: the %s at {0} is for shared address %u, no multiple of %u", current, what,
             at, alignment);
        return false;
    }
    if (place < tls || place + bytes > tls + tls_bytes || beyond_window(place, bytes)) {
        find("out of bounds", pc, 0,
             "thread %d: the %s at {0} is for %u bytes from byte %ld of shared memory, which has %u", current, what,
             bytes, (long)(place - window), dynamic_bytes);
        return false;
    }
    return true;
}
bool check_global(const void* p, unsigned bytes, unsigned alignment, bool write, const char* what, uintptr_t pc) {
    const char* at = (const char*)p;
    if ((uintptr_t)at % alignment) {
        find("misaligned", pc, 0, "thread %d: the %s at {0} is for an address that is no multiple of %u", current, what,
             alignment);
        return false;
    }
    if (arrays.empty()) return true;  // nothing is watched
    const Array* array = array_at(at);
    if (!array || at + bytes > array->of.begin + array->of.bytes) {
        outside_arrays(at, {bytes, write, PLAIN, pc});
        return false;
    }
    return true;
}
}  // namespace emu

using namespace emu;

// Called by Python: the arrays of the launches that follow, in the order of their addresses; none: nothing is watched.
extern "C" void hw4_watch(const EmuArray* given, unsigned n) {
    arrays.clear();
    watching = n > 0;
    shared_area = {};
    arrays_begin = arrays_end = nullptr;
    for (unsigned i = 0; i < n; i++) {
        Array& array = add_array({given[i], {}});
        if (hooked && given[i].writable) array.area = Area(given[i].begin, given[i].bytes);
        if (i) {
            const char* end = given[i - 1].begin + given[i - 1].bytes;
            forbid(end, given[i].begin - end);
        }
    }
}
