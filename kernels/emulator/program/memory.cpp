// A GPU's memory: allocated, copied and freed by the host.
#include "session.h"

#include <set>
#include <sys/mman.h>

namespace hw4 {
constexpr size_t GAP = 64 << 10, GRANULE = 512;  // bytes behind each allocation that are nobody's; of its beginning
constexpr size_t MOST_SHADOWED = 512 << 20;      // bytes of arrays that have a shadow, eight times as large
static char *arena, *arena_end, *arena_next;
static size_t taken, shadowed;

static bool make_arena() {
    for (size_t size = 64ull << 30; !arena && size >= 1ull << 30; size /= 2) {
        void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made != MAP_FAILED) arena = (char*)made, arena_end = arena + size, arena_next = arena + GAP;
    }
    return arena;
}
size_t free_memory() { return settings.memory > taken ? settings.memory - taken : 0; }

// The variable's name in `(void**)&dQ, n * sizeof(float)`.
static std::string variable(const char* words) {
    std::string name = words;
    for (size_t at; !name.empty() && (at = name.find_first_of(" &(")) == 0;) {
        const size_t close = name[0] == '(' ? name.find(')') : std::string::npos;
        const bool cast = close != std::string::npos && name.substr(0, close).find('*') != std::string::npos;
        name.erase(0, cast ? close + 1 : 1);
    }
    name = name.substr(0, name.find_first_of(",)"));
    return name.empty() ? "an array" : name.substr(0, 60);
}
cudaError_t allocate(void** p, size_t bytes, const char* words, Memory memory, Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    *p = nullptr;
    if (!bytes) return cudaSuccess;
    if (!arena && !make_arena()) return fail(cudaErrorMemoryAllocation);
    const size_t room = (bytes + GRANULE - 1) / GRANULE * GRANULE + GAP;
    if (bytes > free_memory() || room > (size_t)(arena_end - arena_next)) {
        say("memory", "%s does not get %zu bytes at %s: the CPU has %zu for it", variable(words).c_str(), bytes,
            text_of(from).c_str(), free_memory());
        return fail(cudaErrorMemoryAllocation);
    }
    emu::Array array{{arena_next, bytes, 1, memory != DEVICE_MEMORY, {}}, {}};
    snprintf(array.of.name, sizeof array.of.name, "%s (%s)", variable(words).c_str(), text_of(from).c_str());
    array.host = memory != DEVICE_MEMORY, array.gpu = chosen_gpu();
    if (emu::watching && emu::hooked) {
        if (memory == DEVICE_MEMORY) memset(arena_next, 0xff, bytes);  // NaN: what nobody wrote is no zero
        if (shadowed + bytes <= MOST_SHADOWED) array.area = emu::Area(arena_next, bytes), shadowed += bytes;
        else say("memory", "%s is too large for the CPU to watch: of it, only accesses out of bounds are found", array.of.name);
    }
    *p = arena_next;
    arena_next += room, taken += bytes;
    emu::add_array(std::move(array));
    return cudaSuccess;
}
static void give_back(emu::Array& array) {
    if (emu::unsettled) emu::settle_stores();
    array.freed = true;
    if (!array.area.empty()) shadowed -= array.of.bytes, array.area = emu::Area();
    taken -= array.of.bytes;
    char* begin = (char*)(((uintptr_t)array.of.begin + 4095) & ~(uintptr_t)4095);
    char* end = (char*)((uintptr_t)(array.of.begin + array.of.bytes) & ~(uintptr_t)4095);
    if (end > begin) madvise(begin, (size_t)(end - begin), MADV_DONTNEED);
}
cudaError_t release(void* p, Memory memory, Place from) {
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (!p) return cudaSuccess;
    const char* what = memory == PINNED_MEMORY ? "cudaFreeHost" : "cudaFree";
    emu::Array* array = emu::array_at((const char*)p);
    if (!array || array->of.begin != p) {
        say("freed memory", "%s at %s frees what is no allocation%s", what, text_of(from).c_str(),
            array && (char*)p < array->of.begin + array->of.bytes ? ", but the middle of one" : "");
        return fail(cudaErrorInvalidValue);
    }
    if (array->freed) {
        say("freed memory", "%s at %s frees %s a second time", what, text_of(from).c_str(), array->of.name);
        return fail(cudaErrorInvalidValue);
    }
    give_back(*array);
    return cudaSuccess;
}
void register_host(const void* p, size_t bytes) { emu::host_is_shared((const char*)p, bytes); }
cudaError_t attributes(cudaPointerAttributes* a, const void* p) {
    const emu::Array* array = emu::array_at((const char*)p);
    const bool inside = array && (const char*)p < array->of.begin + array->of.bytes && !array->freed;
    *a = {inside ? array->host ? cudaMemoryTypeHost : cudaMemoryTypeDevice : cudaMemoryTypeUnregistered,
          inside ? array->gpu : 0, inside ? (void*)p : nullptr, inside && !array->host ? nullptr : (void*)p};
    return cudaSuccess;
}

// ---- Copies

static bool is_device(const void* p) { return arena && (const char*)p >= arena && (const char*)p < arena_next; }
// The host copies to a GPU's memory (write), or from it. Returns whether an array has so many bytes there.
static bool touch_from_host(const void* p, size_t bytes, bool write, const std::string& what) {
    const char* at = (const char*)p;
    emu::Array* array = emu::array_at(at);
    const char* does = write ? "writes" : "reads";
    if (!array) {
        say("out of bounds", "%s %s %zu bytes of a GPU's memory that is nobody's", what.c_str(), does, bytes);
        return false;
    }
    if (array->freed && at < array->of.begin + array->of.bytes) {
        say("freed memory", "%s %s %s, which is freed", what.c_str(), does, array->of.name);
        return false;
    }
    if (at + bytes > array->of.begin + array->of.bytes) {
        say("out of bounds", "%s %s %zu bytes from byte %ld of %s, which has %lu", what.c_str(), does, bytes,
            (long)(at - array->of.begin), array->of.name, (unsigned long)array->of.bytes);
        return false;
    }
    if (array->area.empty()) return true;
    size_t unwritten = 0, first = 0, word_at = (size_t)(at - array->of.begin) / 4;
    emu::each_word(array->area, at, bytes, [&](emu::Word& word, uint8_t which) {
        if (write) word.written |= which;
        else if (!array->of.written && (word.written & which) != which && !unwritten++) first = word_at * 4;
        word_at++;
    });
    // A product reads a matrix column by column: one finding says it, and leaves room for others.
    static auto& said = *new std::set<std::string>;
    if (unwritten && said.insert(what + array->of.name).second)
        say("uninitialised", "%s reads %zu words of %s that nobody has written, the first at byte %zu", what.c_str(),
            unwritten, array->of.name, first);
    return true;
}
bool touched_by_library(const void* p, size_t bytes, bool write, const std::string& what) {
    if (!bytes) return true;
    if (!is_device(p)) {
        const char* where = p ? "the host's memory, and it takes a GPU's" : "a null pointer";
        say("library", "%s is to %s %zu bytes of %s", what.c_str(), write ? "write" : "read", bytes, where);
        fail(cudaErrorIllegalAddress);
        return false;
    }
    return touch_from_host(p, bytes, write, what);
}
bool library_touches(const void* p, size_t bytes, bool write, const char* what, Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    return touched_by_library(p, bytes, write, std::string(what) + " at " + text_of(from));
}
static const char* kind_name(cudaMemcpyKind kind) {
    static const char* const names[] = {"cudaMemcpyHostToHost", "cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost",
                                        "cudaMemcpyDeviceToDevice", "cudaMemcpyDefault"};
    return names[kind];
}
static bool may_be(const void* p, bool device) {
    if (!is_device(p)) return !device;
    const emu::Array* array = emu::array_at((const char*)p);
    return device || (array && array->host);
}
cudaError_t copy(const char* what, void* to, const void* src, size_t bytes, cudaMemcpyKind kind, Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (synchronize() != cudaSuccess) return synchronize();
    if (!bytes) return cudaSuccess;
    const std::string where = std::string(what) + " at " + text_of(from);
    if (!to || !src) {
        say("cudaMemcpy", "%s copies %s a null pointer", where.c_str(), to ? "from" : "to");
        return fail(cudaErrorInvalidValue);
    }
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && !(may_be(to, to_device) && may_be(src, from_device))) {
        const char* wrong = !may_be(to, to_device) ? "destination" : "source";
        const bool is = !may_be(to, to_device) ? is_device(to) : is_device(src);
        say("cudaMemcpy", "%s says %s, and its %s is %s", where.c_str(), kind_name(kind), wrong,
            is ? "a GPU's memory" : "the host's memory");
        return fail(cudaErrorInvalidValue);
    }
    if (is_device(src) && !touch_from_host(src, bytes, false, where)) return fail(cudaErrorInvalidValue);
    if (is_device(to) && !touch_from_host(to, bytes, true, where)) return fail(cudaErrorInvalidValue);
    memmove(to, src, bytes);
    return cudaSuccess;
}
cudaError_t copy_rows(const char* what, void* to, size_t to_pitch, const void* src, size_t src_pitch, size_t width,
                      size_t height, cudaMemcpyKind kind, Place from) {
    if (width > to_pitch || width > src_pitch) {
        say("cudaMemcpy", "%s at %s copies rows of %zu bytes that are %zu bytes apart", what, text_of(from).c_str(), width,
            std::min(to_pitch, src_pitch));
        return fail(cudaErrorInvalidPitchValue);
    }
    cudaError_t e = cudaSuccess;
    for (size_t y = 0; y < height && e == cudaSuccess; y++)
        e = copy(what, (char*)to + y * to_pitch, (const char*)src + y * src_pitch, width, kind, from);
    return e;
}
cudaError_t fill(void* to, int value, size_t bytes, Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (!bytes) return cudaSuccess;
    const std::string where = "cudaMemset at " + text_of(from);
    if (!is_device(to)) {
        say("cudaMemcpy", "%s sets the host's memory", where.c_str());
        return fail(cudaErrorInvalidValue);
    }
    if (!touch_from_host(to, bytes, true, where)) return fail(cudaErrorInvalidValue);
    memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t copy_symbol(const char* what, void* symbol, size_t size, size_t offset, void* to, const void* src, size_t bytes,
                        cudaMemcpyKind, Place from) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    const std::string where = std::string(what) + " at " + text_of(from);
    if (offset + bytes > size) {
        say("out of bounds", "%s copies %zu bytes from byte %zu of a variable that has %zu", where.c_str(), bytes, offset, size);
        return fail(cudaErrorInvalidValue);
    }
    if (src && is_device(src) && !touch_from_host(src, bytes, false, where)) return fail(cudaErrorInvalidValue);
    if (to && is_device(to) && !touch_from_host(to, bytes, true, where)) return fail(cudaErrorInvalidValue);
    char* at = (char*)symbol + offset;
    memmove(to ? to : at, to ? at : src, bytes);
    return cudaSuccess;
}
void at_end_of_program() {
    if (!settings.watch) return;
    std::string names;
    size_t bytes = 0, count = 0;
    emu::each_array([&](const emu::Array& array) {
        if (array.freed) return;
        bytes += array.of.bytes;
        if (++count <= 4) names += (count > 1 ? ", " : "") + std::string(array.of.name);
    });
    if (count)
        say("leak", "%s%s: %zu bytes are never freed", names.c_str(),
            count > 4 ? (" and " + std::to_string(count - 4) + " more").c_str() : "", bytes);
    if (error_unasked) say("unchecked", "a launch has failed, and the program never asks whether one has (cudaGetLastError)");
}

// ---- What a thread allocates itself (malloc and new in a kernel), and what the host does

static void* device_malloc(size_t bytes) {
    void* p = nullptr;
    allocate(&p, bytes ? bytes : 1, "malloc in a kernel", DEVICE_MEMORY, running.from);
    return p;
}
}  // namespace hw4

extern "C" {
void* hw4_malloc_here(size_t bytes) { return emu::current == emu::NOBODY ? malloc(bytes) : hw4::device_malloc(bytes); }
void hw4_free_here(void* p) {
    if (hw4::is_device(p)) hw4::release(p, hw4::DEVICE_MEMORY, hw4::running.from);
    else free(p);
}
void* hw4_new_here(size_t bytes) { return emu::current == emu::NOBODY ? operator new(bytes) : hw4::device_malloc(bytes); }
void hw4_delete_here(void* p) {
    if (hw4::is_device(p)) hw4::release(p, hw4::DEVICE_MEMORY, hw4::running.from);
    else operator delete(p);
}
void hw4_delete_sized_here(void* p, size_t) { hw4_delete_here(p); }
void* hw4_new_array_here(size_t bytes) { return hw4_new_here(bytes); }
void hw4_delete_array_here(void* p) { hw4_delete_here(p); }
void hw4_delete_array_sized_here(void* p, size_t) { hw4_delete_here(p); }
}
