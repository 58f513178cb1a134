// Watches what a kernel does with memory: who touched each word last, and what orders two touches.
//
// The build "race" is compiled with -fsanitize=thread, without its library: the hooks that the compiler puts before every
// load and store are here. Each 4-byte word of shared memory, and of the arrays that a kernel writes, has a shadow: the last
// write, and reads since by up to three warps. Two touches of a word by different threads, one of them a write, are a race
// unless a barrier, __syncwarp (in a warp), an mbarrier or the end of a launch lies between. Shuffles order nothing.
#include "internal.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <string>
#include <vector>

// Dynamic shared memory: what a kernel declares extern __shared__ is linked to this address. Static __shared__ arrays are
// thread-local variables of the kernel, and so lie beside it. 229 KB: no GPU's block has more.
constexpr unsigned WINDOW = 229 << 10;
extern "C" {
alignas(1024) thread_local char hw4_window[WINDOW];
}

namespace emu {
char* shared;
bool watching;

// ---- Findings

static std::vector<EmuFinding> findings;
constexpr size_t MOST_FINDINGS = 100;
static uintptr_t image;  // where the shared object lies

// The finding of this kind at these lines, if there is one.
static EmuFinding* known_finding(const char* kind, uintptr_t pc0, uintptr_t pc1) {
    const uint64_t pc[2] = {pc0 ? pc0 - image : 0, pc1 ? pc1 - image : 0};
    for (EmuFinding& old : findings)
        if (old.pc[0] == pc[0] && old.pc[1] == pc[1] && !strcmp(old.kind, kind)) return &old;
    return nullptr;
}
void add_finding(const char* kind, const char* text, uintptr_t pc0, uintptr_t pc1) {
    EmuFinding* old = known_finding(kind, pc0, pc1);
    if (old && (pc0 || !strcmp(old->text, text))) {
        old->times++;
        return;
    }
    if (findings.size() == MOST_FINDINGS) return;
    EmuFinding finding{};
    snprintf(finding.kind, sizeof finding.kind, "%s", kind);
    snprintf(finding.text, sizeof finding.text, "%s", text);
    finding.pc[0] = pc0 ? pc0 - image : 0, finding.pc[1] = pc1 ? pc1 - image : 0;
    finding.times = 1, finding.block = block_of_grid;
    findings.push_back(finding);
}
static void tell(const char* kind, uintptr_t pc0, uintptr_t pc1, const char* format, ...) {
    if (EmuFinding* old = pc0 ? known_finding(kind, pc0, pc1) : nullptr) {
        old->times++;
        return;
    }
    char text[480];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_finding(kind, text, pc0, pc1);
}
void report(const char* kind, const char* text, uintptr_t pc) {
    if (pc && current != NOBODY)
        tell(kind, pc, 0, "thread %d, at {0}: %s", current, text);
    else
        add_finding(kind, text, pc);
}

// ---- What is ordered before what

constexpr unsigned AGENTS = 64, MEMBERS = MAX_THREADS + AGENTS;  // of a clock
static int log2_lanes = 5;
static uint32_t epoch = 1;                     // counts barriers of whole blocks, over all blocks and launches
static uint32_t launch_epoch, block_epoch;     // the first of this launch, of this block
static uint32_t own[MEMBERS];                  // each thread's own time; an agent slot's last tick
static uint32_t synced[MAX_THREADS];           // its time when its warp last met
static bool clocks;                            // whether threads have clocks: only where more than barriers order them
static std::vector<uint32_t> known;            // MAX_THREADS rows of MEMBERS: what each thread knows of the others
static std::vector<uint32_t*> made;            // clocks of this block
static std::vector<std::pair<uint32_t, unsigned>> blocks;  // of this launch: the first epoch, and the number

static uint32_t* knows(int t) { return &known[(size_t)t * MEMBERS]; }
static void need_clocks() {
    if (clocks) return;
    clocks = true;
    known.assign((size_t)threads_of_block * MEMBERS, 0);
    for (unsigned t = 0; t < threads_of_block; t++)
        for (unsigned u = t / lanes * lanes; u < std::min(threads_of_block, (t / lanes + 1) * lanes); u++) knows(t)[u] = synced[u];
}
static uint32_t* row(Clock& clock) {
    if (!clock.of) {
        clock.of = (uint32_t*)calloc(MEMBERS, sizeof(uint32_t));
        made.push_back(clock.of);
    }
    return clock.of;
}
static void merge(uint32_t* to, const uint32_t* from) {
    for (unsigned i = 0; i < MEMBERS; i++) to[i] = std::max(to[i], from[i]);
}
static void release_of(int t, Clock& clock) {
    merge(row(clock), knows(t));
    row(clock)[t] = std::max(row(clock)[t], own[t]);
    own[t]++;
}
void release(Clock& clock) {
    need_clocks();
    release_of(current, clock);
}
void acquire(const Clock& clock) {
    need_clocks();
    if (clock.of) merge(knows(current), clock.of);
}
void join(Clock& to, const Clock& from) {
    if (from.of) merge(row(to), from.of);
}
void order_block() {
    epoch++;
    if (!clocks) return;
    uint32_t agents[AGENTS] = {};  // threads are ordered by the epoch; agents that somebody waited for, by this
    for (unsigned t = 0; t < threads_of_block; t++)
        for (unsigned a = 0; a < AGENTS; a++) agents[a] = std::max(agents[a], knows(t)[MAX_THREADS + a]);
    for (unsigned t = 0; t < threads_of_block; t++) memcpy(knows(t) + MAX_THREADS, agents, sizeof agents);
}
void order_threads(const int* who, unsigned n, Clock& arrived) {
    need_clocks();
    for (unsigned i = 0; i < n; i++) release_of(who[i], arrived);
    for (unsigned i = 0; i < n; i++) merge(knows(who[i]), row(arrived));
}
void order_warp(unsigned first, uint64_t group, bool all) {
    if (!all) need_clocks();
    int who[64];
    unsigned n = 0;
    for (int i = 0; i < lanes; i++)
        if (group >> i & 1) who[n++] = (int)first + i;
    if (clocks) {
        Clock clock;
        order_threads(who, n, clock);
    }
    for (unsigned i = 0; i < n && all; i++) synced[who[i]] = own[who[i]]++;
}

// ---- Shadows

enum : uint8_t { STRONG = 1, SEVERAL = 2 };  // atomic or volatile; of several lanes of the warp
struct Touch {
    uint32_t epoch = 0, time = 0, pc = 0;
    uint16_t who = 0;
    uint8_t bytes = 0, flags = 0;  // which of the word
    uint32_t times = 0;            // SEVERAL: where `times_of_lanes` has each lane's time, 0 for one that did not touch it
};
static std::vector<uint32_t> times_of_lanes;  // rows of `lanes` numbers; the first is nobody's
struct Word {
    Touch write, read[3];
    uint32_t copy = 0;    // where a copy was asked for that still writes this word
    uint32_t epoch = 0;   // of the last write, for `written`
    uint8_t written = 0;  // bytes
};
struct Area {  // some memory and its shadow
    const char* begin = nullptr;
    std::vector<Word> words;
};
static Area shared_area;
static char* window;
static size_t tls_bytes;
static const char *tls, *image_end;
struct Array {
    EmuArray of;
    Area area;  // only where a kernel may write
};
static std::vector<Array> arrays;
static const char *arrays_begin, *arrays_end;

static int find_image(dl_phdr_info* info, size_t, void*) {
    const uintptr_t here = (uintptr_t)&find_image;
    uintptr_t low = ~0ul, high = 0;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& header = info->dlpi_phdr[i];
        const uintptr_t at = info->dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD) low = std::min(low, at), high = std::max(high, at + header.p_memsz);
        if (header.p_type == PT_TLS) bytes = header.p_memsz;
    }
    if (here < low || here >= high) return 0;
    image = info->dlpi_addr, image_end = (const char*)high;
    tls = (const char*)info->dlpi_tls_data, tls_bytes = bytes;
    return 1;
}
void locate_shared() {
    window = hw4_window;  // which makes this thread's copy, if there was none
    dl_iterate_phdr(find_image, nullptr);
    shared = (char*)((uintptr_t)tls & ~(uintptr_t)1023);
    if (watching && (shared_area.begin != tls || shared_area.words.size() != tls_bytes / 4 + 1))
        shared_area.begin = (const char*)((uintptr_t)tls & ~(uintptr_t)3), shared_area.words.assign(tls_bytes / 4 + 2, Word{});
}
unsigned shared_bytes() { return (unsigned)(window - shared) + dynamic_bytes; }

void launch_begins() {
    log2_lanes = lanes == 64 ? 6 : 5;
    epoch++;
    launch_epoch = epoch;
    blocks.clear();
}
static void forget_fences();
void block_begins() {
    epoch++;
    block_epoch = epoch;
    blocks.emplace_back(epoch, block_of_grid);
    clocks = false;
    for (uint32_t* clock : made) free(clock);
    made.clear();
    std::fill(own, own + MEMBERS, 1u), std::fill(synced, synced + MAX_THREADS, 0u);
    forget_fences();
    if (!watching) return;
#if defined(EMU_ASAN)
    __asan_unpoison_memory_region(window, WINDOW);
#endif
    memset((char*)tls, 0xff, window - tls);  // NaN: what nobody wrote is no zero
    memset(window, 0xff, dynamic_bytes);
    memset(window + WINDOW, 0xff, tls + tls_bytes - (window + WINDOW));
#if defined(EMU_ASAN)
    __asan_poison_memory_region(window + dynamic_bytes, WINDOW - dynamic_bytes);
#endif
}
static unsigned block_at(uint32_t at) {
    const auto after = std::upper_bound(blocks.begin(), blocks.end(), std::make_pair(at, ~0u));
    return after == blocks.begin() ? 0 : (after - 1)->second;
}

// Whether what thread `who` did at a time, in this epoch, comes before what thread t does now.
static bool before(int who, uint32_t time, int t) {
    return who == t || (who >> log2_lanes == t >> log2_lanes && time <= synced[who]) || (clocks && knows(t)[who] >= time);
}
static bool before(const Touch& touch, int t) {
    if (touch.who >= MAX_THREADS) return clocks && knows(t)[touch.who] >= touch.time;
    if (touch.epoch != epoch) return true;
    if (!(touch.flags & SEVERAL)) return before(touch.who, touch.time, t);
    for (int i = 0; i < lanes; i++) {
        const uint32_t time = times_of_lanes[(size_t)touch.times * lanes + i];
        if (time && !before(touch.who / lanes * lanes + i, time, t)) return false;
    }
    return true;
}
// Thread t, of the same warp, touches it too.
static void add_lane(Touch& touch, int t) {
    if (!touch.times) {
        touch.times = std::max<size_t>(1, times_of_lanes.size() / lanes);
        times_of_lanes.resize((size_t)(touch.times + 1) * lanes);
    }
    uint32_t* times = &times_of_lanes[(size_t)touch.times * lanes];
    if (!(touch.flags & SEVERAL)) std::fill(times, times + lanes, 0u), times[touch.who % lanes] = touch.time;
    times[t % lanes] = own[t];
    touch.flags |= SEVERAL;
}
static std::string party(unsigned who, bool several = false) {
    if (who >= MAX_THREADS) return "an asynchronous copy or product";
    return several ? "threads of warp " + std::to_string(who >> log2_lanes) : "thread " + std::to_string(who);
}
static void race(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, const char* where) {
    static const char SYNCWARP[] = "__syncwarp() is missing between them";
    const bool agent = old.who >= MAX_THREADS || who >= MAX_THREADS, same_warp = old.who >> log2_lanes == who >> log2_lanes;
    const char* missing = agent ? "nobody waits for it" : same_warp ? SYNCWARP : "__syncthreads() is missing between them";
    EmuFinding* known = known_finding("race", pc, old.pc + image);
    if (known && (agent || same_warp || !strstr(known->text, SYNCWARP))) {
        known->times++;
        return;
    }
    const uint32_t times = known ? known->times + 1 : 1;
    if (known) findings.erase(findings.begin() + (known - findings.data()));  // __syncthreads() helps where __syncwarp() would
    tell("race", pc, old.pc + image, "%s %s in %s at {0} what %s %s at {1}, and no barrier orders the two: %s", party(who).c_str(),
         writes ? "writes" : "reads", where, party(old.who, old.flags & SEVERAL).c_str(), old_writes ? "wrote" : "read", missing);
    if (EmuFinding* made = known_finding("race", pc, old.pc + image)) made->times = times;
}
static void block_race(const Touch& old, bool old_writes, bool writes, uintptr_t pc, const char* where) {
    tell("race", pc, old.pc + image,
         "block %u %s in %s at {0} what block %u %s at {1}: nothing orders blocks of one launch (an atomic, or a launch of its "
         "own, is needed)",
         block_of_grid, writes ? "writes" : "reads", where, block_at(old.epoch), old_writes ? "wrote" : "read");
}
struct Access {
    uint32_t bytes;
    bool write, strong;
    uintptr_t pc;
};
// A touch of a word by a thread, or by an agent that this thread starts.
static void touch(Word& word, uint8_t bytes, const Access& access, bool global, const char* where, unsigned who) {
    const int t = current;
    const bool agent = who >= MAX_THREADS;
    const uint8_t flags = access.strong ? STRONG : 0;
    auto conflict = [&](const Touch& old, bool old_writes) {
        if (!old.epoch || !(old.bytes & bytes) || (old.flags & flags & STRONG)) return;
        if (old.epoch < block_epoch) {
            if (global && old.epoch >= launch_epoch) block_race(old, old_writes, access.write, access.pc, where);
            return;
        }
        if (!before(old, t)) race(old, old_writes, who, access.write, access.pc, where);
    };
    conflict(word.write, true);
    Touch now{epoch, own[who], (uint32_t)(access.pc - image), (uint16_t)who, bytes, flags};
    if (access.write) {
        for (const Touch& old : word.read) conflict(old, false);
        word.write = now;
        if (!global && word.epoch < block_epoch) word.written = 0;
        word.written |= bytes, word.epoch = epoch;
        return;
    }
    Touch* place = nullptr;
    for (Touch& old : word.read) {
        const bool past = !old.epoch || (old.epoch < block_epoch && !(global && old.epoch >= launch_epoch)) ||
                          (old.epoch >= block_epoch && before(old, t));
        if (past) {
            if (!place) place = &old;
        } else if (!agent && old.who < MAX_THREADS && old.epoch == epoch && old.who >> log2_lanes == t >> log2_lanes) {
            add_lane(old, t), old.bytes |= bytes;
            return;
        }
    }
    if (!place && word.read[0].epoch >= block_epoch) place = &word.read[access.pc % 3];  // one of many: any will do
    if (place) now.times = place->times, *place = now;
}
static uint8_t bytes_of(const char* at, const char* end, const char* word) {
    uint8_t bytes = 0;
    for (int i = 0; i < 4; i++) bytes |= (word + i >= at && word + i < end) << i;
    return bytes;
}
template <class Each> static void each_word(Area& area, const char* at, uint32_t bytes, Each each) {
    const char* end = at + bytes;
    for (size_t i = (at - area.begin) / 4; area.begin + 4 * i < end; i++) {
        const char* word = area.begin + 4 * i;
        each(area.words[i], at <= word && word + 4 <= end ? (uint8_t)15 : bytes_of(at, end, word));
    }
}
static bool in_window(const char* at) { return at >= window && at < window + WINDOW; }
// Whether a read tells nothing new: the last write is past, and another lane of the warp has read the word just so.
static inline bool seen(Word& word, uint8_t bytes, int t) {
    if (word.copy || word.epoch < block_epoch || (word.written & bytes) != bytes) return false;
    if (word.write.epoch == epoch || word.write.who >= MAX_THREADS) return false;
    for (Touch& old : word.read)
        if (old.epoch == epoch && old.who < MAX_THREADS && old.who >> log2_lanes == t >> log2_lanes && (old.bytes & bytes) == bytes) {
            if (old.flags & SEVERAL || old.who != t || old.time != own[t]) add_lane(old, t);
            return true;
        }
    return false;
}
static void touch_shared(const char* at, const Access& access, unsigned who) {
    each_word(shared_area, at, access.bytes, [&](Word& word, uint8_t bytes) {
        if (!access.write && who < MAX_THREADS && seen(word, bytes, (int)who)) return;
        if (word.copy)
            tell("race", access.pc, word.copy + image,
                 "thread %d %s shared memory at {0} that the asynchronous copy at {1} still writes: wait for the copy, then "
                 "__syncthreads(), first", current, access.write ? "writes" : "reads");
        if (!access.write && ((word.epoch < block_epoch ? 0 : word.written) & bytes) != bytes)
            tell("uninitialised", access.pc, 0, "thread %d reads shared memory at {0} that nobody has written: byte %ld of %u%s",
                 current, at < window ? (long)(at - tls) : at < window + WINDOW ? (long)(at - window) : (long)(at - window - WINDOW),
                 in_window(at) ? dynamic_bytes : (unsigned)(tls_bytes - WINDOW), in_window(at) ? "" : " of its static part");
        touch(word, bytes, access, false, "shared memory", who);
    });
}
static void touch_array(Array& array, const char* at, const Access& access, unsigned who) {
    if (access.write && !array.of.writable) {
        tell("input written", access.pc, 0, "thread %d writes at {0} to %s, which is an input", current, array.of.name);
        return;
    }
    if (array.area.words.empty()) return;
    each_word(array.area, at, access.bytes, [&](Word& word, uint8_t bytes) {
        if (!access.write && !array.of.written && (word.written & bytes) != bytes)
            tell("uninitialised", access.pc, 0, "thread %d reads %s at {0} where nobody has written: byte %ld of %lu", current,
                 array.of.name, (long)(at - array.of.begin), (unsigned long)array.of.bytes);
        touch(word, bytes, access, true, array.of.name, who);
    });
}
static Array* array_at(const char* at) {  // the last that begins at or before
    auto after = std::upper_bound(arrays.begin(), arrays.end(), at, [](const char* x, const Array& a) { return x < a.of.begin; });
    return after == arrays.begin() ? nullptr : &*(after - 1);
}
static void outside_arrays(const char* at, const Access& access) {
    const Array* array = array_at(at);
    if (array)
        tell("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0}, from byte %ld of %s, which has %lu", current,
             access.write ? "writes" : "reads", access.bytes, (long)(at - array->of.begin), array->of.name,
             (unsigned long)array->of.bytes);
    else
        tell("out of bounds", access.pc, 0, "thread %d %s %u bytes at {0} before the first array", current,
             access.write ? "writes" : "reads", access.bytes);
}
// Registers that an agent uses lie on the thread's stack.
struct Registers { const char *begin, *end; uintptr_t pc; };
static std::vector<Registers> busy[MAX_THREADS];
static void touch_registers(const char* at, const Access& access) {
    for (const Registers& one : busy[current])
        if (at < one.end && one.begin < at + access.bytes)
            tell("wgmma", access.pc, one.pc, "thread %d %s at {0} a sum that the product at {1} is still adding to: wait for it first "
                 "(wgmma.wait_group)", current, access.write ? "writes" : "reads");
}
void registers_busy(const void* at, unsigned bytes, uintptr_t pc) {
#if defined(EMU_HOOKS)
    if (watching) busy[current].push_back({(const char*)at, (const char*)at + bytes, pc});
#endif
}
void registers_free(const void* at) {
    std::vector<Registers>& mine = busy[current];
    mine.erase(std::remove_if(mine.begin(), mine.end(), [=](const Registers& one) { return one.begin == at; }), mine.end());
}
// The memory that a thread may touch besides arrays and shared memory: its own stack, and constants.
static inline void access(const void* p, uint32_t bytes, bool write, bool strong, uintptr_t pc) {
    if (current == NOBODY || !watching) return;
    const char* at = (const char*)p;
    const Access access{bytes, write, strong, pc};
    if ((size_t)(at - tls) < tls_bytes) {
        if ((bytes & (bytes - 1)) == 0 && (uintptr_t)at % bytes)
            tell("misaligned", pc, 0, "thread %d %s %u bytes of shared memory at {0} from byte %ld, no multiple of %u", current,
                 write ? "writes" : "reads", bytes, (long)(at - window), bytes);
        if (at + bytes > window && at < window + WINDOW && (at < window || at + bytes > window + dynamic_bytes))
            tell("out of bounds", pc, 0, "thread %d %s %u bytes at {0} outside shared memory: byte %ld of %u", current,
                 write ? "writes" : "reads", bytes, (long)(at - window), dynamic_bytes);
        else
            touch_shared(at, access, (unsigned)current);
    } else if (at >= arrays_begin && at < arrays_end) {
        Array* array = array_at(at);
        if (array && at + bytes <= array->of.begin + array->of.bytes) touch_array(*array, at, access, (unsigned)current);
        else outside_arrays(at, access);
    } else if (!busy[current].empty()) {
        touch_registers(at, access);
    }
}

bool outside(const char* at, unsigned bytes, bool write, uintptr_t pc) {
    if (at >= window && at < window + WINDOW)
        tell("out of bounds", pc, 0, "thread %d %s %u bytes at {0} outside shared memory: byte %ld of %u", current,
             write ? "writes" : "reads", bytes, (long)(at - window), dynamic_bytes);
    else if (at >= arrays_begin && at < arrays_end)
        outside_arrays(at, {bytes, write, false, pc});
    else
        return false;
    return true;
}

// ---- For the headers

bool check_shared(unsigned at, unsigned bytes, unsigned alignment, const char* what, uintptr_t pc) {
    const char* place = shared + at;
    if (at % alignment) {
        tell("misaligned", pc, 0, "thread %d: the %s at {0} is for shared address %u, no multiple of %u", current, what, at, alignment);
        return false;
    }
    if (place < tls || place + bytes > tls + tls_bytes ||
        (place + bytes > window && place < window + WINDOW && (place < window || place + bytes > window + dynamic_bytes))) {
        tell("out of bounds", pc, 0, "thread %d: the %s at {0} is for %u bytes from byte %ld of shared memory, which has %u", current,
             what, bytes, (long)(place - window), dynamic_bytes);
        return false;
    }
    return true;
}
bool check_global(const void* p, unsigned bytes, unsigned alignment, bool write, const char* what, uintptr_t pc) {
    const char* at = (const char*)p;
    if ((uintptr_t)at % alignment) {
        tell("misaligned", pc, 0, "thread %d: the %s at {0} is for an address that is no multiple of %u", current, what, alignment);
        return false;
    }
    if (arrays.empty()) return true;  // nothing is watched
    const Array* array = array_at(at);
    if (!array || at + bytes > array->of.begin + array->of.bytes) {
        outside_arrays(at, {bytes, write, false, pc});
        return false;
    }
    return true;
}

struct Copy { unsigned to; const void* from; unsigned bytes, given, group; uintptr_t pc; };
static std::vector<Copy> copies[MAX_THREADS];
static unsigned copy_group[MAX_THREADS];

static void set_busy(unsigned at, unsigned bytes, uint32_t pc) {
    if (!watching || shared_area.words.empty()) return;
    each_word(shared_area, shared + at, bytes, [&](Word& word, uint8_t) { word.copy = pc; });
}
void copy_async(unsigned to, const void* from, unsigned bytes, unsigned given) {
    const uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    if (!watching) {
        memcpy(shared + to, from, given);
        memset(shared + to + given, 0, bytes - given);
        return;
    }
    if (!check_shared(to, bytes, bytes, "asynchronous copy", pc)) return;
    if (given && !check_global(from, given, bytes, false, "asynchronous copy", pc)) return;
    if (!shared_area.words.empty()) touch_shared(shared + to, {bytes, true, false, pc}, (unsigned)current);
    set_busy(to, bytes, (uint32_t)(pc - image));
    memset(shared + to, 0xff, bytes);  // NaN until it arrives
    copies[current].push_back({to, from, bytes, given, copy_group[current], pc});
}
void copy_async_commit() { copy_group[current]++; }
void copy_async_wait(unsigned left) {
    if (!watching) return;
    std::vector<Copy>& mine = copies[current];
    const unsigned before = left == WAIT_ALL ? ~0u : copy_group[current] - std::min(left, copy_group[current]);
    size_t kept = 0;
    for (const Copy& copy : mine) {
        if (copy.group >= before) {
            mine[kept++] = copy;
            continue;
        }
        set_busy(copy.to, copy.bytes, 0);
        if (copy.given) access(copy.from, copy.given, false, false, copy.pc);
        memcpy(shared + copy.to, copy.from, copy.given);
        memset(shared + copy.to + copy.given, 0, copy.bytes - copy.given);
        if (!shared_area.words.empty()) touch_shared(shared + copy.to, {copy.bytes, true, false, copy.pc}, (unsigned)current);
    }
    mine.resize(kept);
}
void block_ends() {
    for (unsigned t = 0; t < threads_of_block; t++) {
        if (!copies[t].empty())
            tell("copy", copies[t][0].pc, 0, "thread %u ends before the asynchronous copy at {0} has arrived: nobody waits for it", t);
        for (const Copy& copy : copies[t]) set_busy(copy.to, copy.bytes, 0);
        copies[t].clear(), copy_group[t] = 0;
    }
}

Agent agent_start() {
    need_clocks();
    static unsigned next;
    const unsigned slot = next++ % AGENTS;
    return ++own[MAX_THREADS + slot] * AGENTS + slot;
}
// What fences have made visible to the asynchronous proxy: each thread's time at its last fence, and what it knew then.
struct Fence { uint32_t epoch = 0, time = 0; std::vector<uint32_t> known; };
static Fence fences[MAX_THREADS];
void publish() {
    Fence& mine = fences[current];
    mine.epoch = epoch, mine.time = own[current]++;
    if (clocks) mine.known.assign(knows(current), knows(current) + MAX_THREADS);
}
static void forget_fences() {
    for (unsigned t = 0; t < MAX_THREADS; t++) fences[t] = {}, busy[t].clear();
}
static bool published(const Touch& write) {  // by its writer, or by this thread
    if (write.who >= MAX_THREADS || write.epoch < block_epoch || write.time <= fences[write.who].time) return true;
    const Fence& mine = fences[current];
    return write.epoch < mine.epoch || (!mine.known.empty() && write.time <= mine.known[write.who]);
}
void touch_shared(unsigned at, unsigned bytes, bool write, uintptr_t pc) {
#if defined(EMU_HOOKS)
    if (watching) touch_shared(shared + at, {bytes, write, false, pc}, (unsigned)current);
#endif
}
void agent_shared(Agent agent, unsigned at, unsigned bytes, bool write, uintptr_t pc) {
#if defined(EMU_HOOKS)
    if (!watching) return;
    touch_shared(shared + at, {bytes, write, false, pc}, MAX_THREADS + agent % AGENTS);
    if (!write)
        each_word(shared_area, shared + at, bytes, [&](Word& word, uint8_t) {
            if (!published(word.write))
                tell("proxy", pc, word.write.pc + image, "an asynchronous copy or product reads shared memory at {0} that thread %d "
                     "wrote at {1}, and fence.proxy.async is missing between them", (int)word.write.who);
        });
#endif
}
void agent_global(Agent agent, const void* at, unsigned bytes, bool write, uintptr_t pc) {
    if (!watching || arrays.empty()) return;
    if (Array* array = array_at((const char*)at)) touch_array(*array, (const char*)at, {bytes, write, false, pc}, MAX_THREADS + agent % AGENTS);
}
void agent_release(Agent agent, Clock& clock) { row(clock)[MAX_THREADS + agent % AGENTS] = agent / AGENTS; }
void agent_acquire(Agent agent) {
    need_clocks();
    knows(current)[MAX_THREADS + agent % AGENTS] = std::max(knows(current)[MAX_THREADS + agent % AGENTS], agent / AGENTS);
}
void agent_busy(Agent, unsigned at, unsigned bytes, uintptr_t pc) {
    if (!watching) return;
    memset(shared + at, 0xff, bytes);
    set_busy(at, bytes, (uint32_t)(pc - image));
}
void agent_landed(Agent, unsigned at, unsigned bytes) { set_busy(at, bytes, 0); }
}  // namespace emu

using namespace emu;

// ---- What Python calls

// The arrays of the launches that follow, in the order of their addresses; none: nothing is watched.
extern "C" void hw4_watch(const EmuArray* given, unsigned n) {
    arrays.clear();
    watching = n > 0;
    shared_area = {}, times_of_lanes.clear();
    for (unsigned i = 0; i < n; i++) {
        arrays.push_back({given[i], {}});
#if defined(EMU_HOOKS)
        if (given[i].writable) arrays.back().area.begin = given[i].begin, arrays.back().area.words.assign(given[i].bytes / 4 + 1, Word{});
#endif
#if defined(EMU_ASAN)
        if (i) {
            const char* end = given[i - 1].begin + given[i - 1].bytes;
            __asan_poison_memory_region(end, given[i].begin - end);
        }
#endif
    }
    arrays_begin = n ? given[0].begin - (1 << 16) : nullptr;
    arrays_end = n ? given[n - 1].begin + given[n - 1].bytes + (1 << 16) : nullptr;
}
// Findings so far, which are then forgotten.
extern "C" unsigned hw4_findings(EmuFinding* to, unsigned room) {
    const unsigned n = std::min<unsigned>(room, findings.size());
    std::copy_n(findings.begin(), n, to);
    findings.clear();
    return n;
}

// ---- The compiler's hooks

#define PC ((uintptr_t)__builtin_return_address(0))
#if defined(EMU_HOOKS)
extern "C" {
#define HOOKS(n)                                                                                   \
    void __tsan_read##n(void* p) { access(p, n, false, false, PC); }                               \
    void __tsan_write##n(void* p) { access(p, n, true, false, PC); }                               \
    void __tsan_unaligned_read##n(void* p) { access(p, n, false, false, PC); }                     \
    void __tsan_unaligned_write##n(void* p) { access(p, n, true, false, PC); }                     \
    void __tsan_volatile_read##n(void* p) { access(p, n, false, true, PC); }                       \
    void __tsan_volatile_write##n(void* p) { access(p, n, true, true, PC); }                       \
    void __tsan_unaligned_volatile_read##n(void* p) { access(p, n, false, true, PC); }             \
    void __tsan_unaligned_volatile_write##n(void* p) { access(p, n, true, true, PC); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { access(p, n, false, false, PC); }
void __tsan_write_range(void* p, unsigned long n) { access(p, n, true, false, PC); }
void* __tsan_memset(void* p, int c, size_t n) {
    access(p, n, true, false, PC);
    return memset(p, c, n);
}
void* __tsan_memcpy(void* p, const void* q, size_t n) {
    access(q, n, false, false, PC), access(p, n, true, false, PC);
    return memcpy(p, q, n);
}
void* __tsan_memmove(void* p, const void* q, size_t n) {
    access(q, n, false, false, PC), access(p, n, true, false, PC);
    return memmove(p, q, n);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
#endif
namespace emu {
uintptr_t here() { return PC; }
void atomic_touch(const void* p, unsigned bytes) {
    const uintptr_t pc = PC;
    access(p, bytes, false, true, pc);
    access(p, bytes, true, true, pc);
}
}  // namespace emu
