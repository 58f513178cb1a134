// What goes on while threads do: their own copies (cp.async), and agents, which are copy engines and tensor cores.
#include "counts.h"
#include "memory.h"

#include <algorithm>
#include <vector>

namespace emu {
static void set_busy(unsigned at, unsigned bytes, uint32_t pc) {
    if (!watching || shared_area.empty()) return;
    const uint16_t number = copying_at(pc);
    each_word(shared_area, shared + at, bytes, [&](Word& word, uint8_t) { word.copy = number; });
}
void touch_shared(unsigned at, unsigned bytes, bool write, uintptr_t pc) {
    if (watching) touch_shared(shared + at, {bytes, write, PLAIN, pc}, (unsigned)current);
}

// ---- A thread's own copies

namespace {
struct Copy { unsigned to; const void* from; unsigned bytes, given, group; uintptr_t pc; };
}
static std::vector<Copy> copies[MAX_THREADS];
static unsigned copy_group[MAX_THREADS];

void copy_async(unsigned to, const void* from, unsigned bytes, unsigned given) {
    const uintptr_t pc = CALLER;
    if (!watching) {
        memcpy(shared + to, from, given);
        memset(shared + to + given, 0, bytes - given);
        return;
    }
    if (!check_shared(to, bytes, bytes, "asynchronous copy", pc)) return;
    if (given && !check_global(from, given, bytes, false, "asynchronous copy", pc)) return;
    EMU_COUNT(count_access(from, given, COPIES_IN, pc));
    touch_shared(to, bytes, true, pc);
    set_busy(to, bytes, (uint32_t)(pc - image));
    memset(shared + to, 0xff, bytes);  // NaN until it arrives
    copies[current].push_back({to, from, bytes, given, copy_group[current], pc});
}
void copy_async_commit() { copy_group[current]++; }
static void arrive(const Copy& copy) {
    set_busy(copy.to, copy.bytes, 0);
    if (copy.given) access(copy.from, copy.given, false, PLAIN, copy.pc);
    memcpy(shared + copy.to, copy.from, copy.given);
    memset(shared + copy.to + copy.given, 0, copy.bytes - copy.given);
    touch_shared(copy.to, copy.bytes, true, copy.pc);
}
void copy_async_wait(unsigned left) {
    if (!watching) return;
    std::vector<Copy>& mine = copies[current];
    const unsigned before = left == WAIT_ALL ? ~0u : copy_group[current] - std::min(left, copy_group[current]);
    size_t kept = 0;
    for (const Copy& copy : mine) {
        if (copy.group >= before) mine[kept++] = copy;
        else arrive(copy);
    }
    mine.resize(kept);
}
static void end_asynchronous() {
    for (unsigned t = 0; t < threads_of_block; t++) {
        if (!copies[t].empty())
            find("copy", copies[t][0].pc, 0,
                 "thread %u ends before the asynchronous copy at {0} has arrived: nobody waits for it", t);
        for (const Copy& copy : copies[t]) set_busy(copy.to, copy.bytes, 0);
    }
}
static AtBlockEnd asynchronous_at_end(end_asynchronous);

// ---- Agents

static unsigned member(Agent agent) { return MAX_THREADS + agent % AGENTS; }
Agent agent_start() {
    need_clocks();
    static unsigned next;
    const unsigned slot = next++ % AGENTS;
    return ++own[MAX_THREADS + slot] * AGENTS + slot;
}
void agent_global(Agent agent, const void* p, unsigned bytes, bool write, uintptr_t pc) {
    const char* at = (const char*)p;
    EMU_COUNT(count_copy(at, bytes, write, pc));
    Array* array = watching ? array_at(at) : nullptr;
    if (array) touch_array(*array, at, {bytes, write, PLAIN, pc}, member(agent));
}
void agent_release(Agent agent, Clock& clock) { row(clock)[member(agent)] = agent / AGENTS; }
void agent_acquire(Agent agent) {
    need_clocks();
    uint32_t& known = knows(current)[member(agent)];
    known = std::max(known, agent / AGENTS);
}
void agent_busy(Agent, unsigned at, unsigned bytes, uintptr_t pc) {
    if (!watching) return;
    memset(shared + at, 0xff, bytes);
    set_busy(at, bytes, (uint32_t)(pc - image));
}
void agent_landed(Agent, unsigned at, unsigned bytes) { set_busy(at, bytes, 0); }

// ---- The asynchronous proxy

// What fences have made visible to it: each thread's time at its last fence, and what it knew then.
namespace {
struct Fence { uint32_t epoch = 0, time = 0; std::vector<uint32_t> known; };
}
static Fence fences[MAX_THREADS];
void publish() {
    Fence& mine = fences[current];
    mine.epoch = epoch, mine.time = own[current]++;
    if (clocks) mine.known.assign(knows(current), knows(current) + MAX_THREADS);
}
static bool published(const Touch& write) {  // by its writer, or by this thread
    if (write.who >= MAX_THREADS || write.epoch < block_epoch || write.time <= fences[write.who].time) return true;
    const Fence& mine = fences[current];
    return write.epoch < mine.epoch || (!mine.known.empty() && write.time <= mine.known[write.who]);
}
void agent_shared(Agent agent, unsigned at, unsigned bytes, bool write, uintptr_t pc) {
    if (!watching) return;
    touch_shared(shared + at, {bytes, write, PLAIN, pc}, member(agent));
    if (write || shared_area.empty()) return;
    each_word(shared_area, shared + at, bytes, [&](Word& word, uint8_t) {
        if (!published(word.write))
            find("proxy", pc, place_of(word.write.site),
                 "an asynchronous copy or product reads shared memory at {0} that thread %d wrote at {1}, and "
                 "fence.proxy.async is missing between them", (int)word.write.who);
    });
}

// ---- Registers that an agent uses: they lie on the thread's stack

namespace {
struct Registers { const char *begin, *end; uintptr_t pc; };
struct Busy {
    std::vector<Registers> all;
    const char *begin = nullptr, *end = nullptr;  // they lie between
};
}
static Busy busy[MAX_THREADS];
void touch_stack(const char* at, unsigned bytes, bool write, uintptr_t pc) {
    const Busy& mine = busy[current];
    if (at >= mine.end || mine.begin >= at + bytes) return;
    for (const Registers& one : mine.all)
        if (at < one.end && one.begin < at + bytes)
            find("wgmma", pc, one.pc,
                 "thread %d %s at {0} a sum that the product at {1} is still adding to: wait for it first "
                 "(wgmma.wait_group)", current, write ? "writes" : "reads");
}
void registers_busy(const void* at, unsigned bytes, uintptr_t pc) {
    if (!watching || !hooked) return;
    Busy& mine = busy[current];
    const Registers one{(const char*)at, (const char*)at + bytes, pc};
    mine.begin = mine.all.empty() ? one.begin : std::min(mine.begin, one.begin), mine.end = std::max(mine.end, one.end);
    mine.all.push_back(one);
    note_quiet_stack();
}
void registers_free(const void* at) {
    Busy& mine = busy[current];
    const auto begins_here = [=](const Registers& one) { return one.begin == at; };
    const auto found = std::find_if(mine.all.begin(), mine.all.end(), begins_here);
    if (found != mine.all.end()) mine.all.erase(found);
    if (mine.all.empty()) mine = {};
    note_quiet_stack();
}
bool product_adds(unsigned thread) { return !busy[thread].all.empty(); }

// ---- A block

static void begin_asynchronous() {
    for (unsigned t = 0; t < MAX_THREADS; t++)
        fences[t] = {}, busy[t] = {}, copies[t].clear(), copy_group[t] = 0;
}
static AtBlockStart asynchronous_at_start(begin_asynchronous);
}  // namespace emu
