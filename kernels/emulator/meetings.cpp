// Threads that meet: at a shuffle or a product of a warp, at barriers, or until something is ready.
#include "counts.h"
#include "fibers.h"
#include "memory.h"
#include "publication.h"
#include "story.h"

#include <algorithm>
#include <map>

namespace emu {
static std::string name(const Site& site) {
    const char* slash = strrchr(site.file, '/');
    return std::string(site.what) + " (" + (slash ? slash + 1 : site.file) + ":" + std::to_string(site.line) + ")";
}
void report_absent(const Site& site, int lane) {
    report("divergence", (name(site) + " asks lane " + std::to_string(lane) + ", which takes no part").c_str());
}
static bool same(const Site& a, const Site& b) {
    if (a.line != b.line) return false;
    return (a.what == b.what || !strcmp(a.what, b.what)) && (a.file == b.file || !strcmp(a.file, b.file));
}
void meet(Site site, Scope scope, uint64_t mask, void* registers, void (*compute)(void* const*, int)) {
    Fiber& mine = fibers[current];
    mine.site = site, mine.mask = mask, mine.registers = registers, mine.compute = compute;
    suspend(scope == WARP ? AT_WARP : AT_GROUP);
}
static const char SYNC_WARP[] = "__syncwarp";
void sync_warp(Site site, uint64_t mask) {
    site.what = SYNC_WARP;
    meet(site, WARP, mask, nullptr, nullptr);
}
struct Named { unsigned arrived = 0, expected = 0; Clock clock; };
static Named barriers[16];
Votes barrier(Site site, unsigned id, unsigned count, bool predicate) {
    Fiber& mine = fibers[current];
    mine.site = site, mine.barrier = id % 16, mine.count = count, mine.votes = {predicate, 1};
    suspend(AT_BARRIER);
    return mine.votes;
}
void barrier_arrive(Site site, unsigned id, unsigned count) {
    Named& named = barriers[id % 16];
    fibers[current].site = site;
    release(named.clock);
    named.arrived++, named.expected = count;
}
void wait_until(Site site, bool (*ready)(void*), void* context, std::string (*why)(void*)) {
    Fiber& mine = fibers[current];
    if (ready(context)) return;
    mine.site = site, mine.ready = ready, mine.context_of_ready = context, mine.why = why;
    suspend(WAITING);
}

// ---- Those that have come together go on

static void go_on(unsigned first, unsigned count, uint64_t group, uint64_t live) {
    const Fiber& one = fibers[first + __builtin_ctzll(group)];
    EMU_COUNT(count_event(one.site, (unsigned)__builtin_popcountll(group)));
    if (group == live) EMU_COUNT(count_warp(first));
    if (one.compute) {
        void* registers[64] = {};
        for (unsigned i = 0; i < count; i++)
            if (group >> i & 1) registers[i] = fibers[first + i].registers;
        one.compute(registers, lanes);
    }
    if (one.site.what == SYNC_WARP) order_warp(first, group, group == live);
    for (unsigned i = 0; i < count; i++)
        if (group >> i & 1) fibers[first + i].state = READY;
    events++;
}
bool complete_warp(unsigned first, unsigned count) {
    uint64_t live = 0, left = 0, whoever = 0;
    for (unsigned i = 0; i < count; i++) {
        const State state = fibers[first + i].state;
        live |= (uint64_t)(state != DONE) << i, left |= (uint64_t)(state == AT_WARP) << i;
    }
    bool any = false;
    while (left) {
        const Fiber& one = fibers[first + __builtin_ctzll(left)];
        uint64_t group = 0;
        for (uint64_t rest = left; rest; rest &= rest - 1) {
            const unsigned i = __builtin_ctzll(rest);
            if (same(fibers[first + i].site, one.site) && fibers[first + i].mask == one.mask) group |= 1ull << i;
        }
        left &= ~group;
        if (one.mask == PRESENT) {
            if (!whoever) whoever = group;
            continue;
        }
        const uint64_t width = lanes == 64 ? ~0ull : (1ull << lanes) - 1;
        const uint64_t named = one.mask == ALIVE ? live : one.mask & width & live;
        if (group & ~named) {
            report("divergence", (name(one.site) + " is reached by a lane that its mask does not name").c_str());
            stopped = true;
            return false;
        }
        if ((group & named) != named) continue;
        go_on(first, count, group, live);
        any = true;
    }
    if (!any && whoever) go_on(first, count, whoever, live), any = true;
    return any;
}
static void note_present(void* const* lane, int n) {
    uint64_t all = 0;
    for (int i = 0; i < n; i++) all |= (uint64_t)(lane[i] != nullptr) << i;
    for (int i = 0; i < n; i++)
        if (lane[i]) *(uint64_t*)lane[i] = all;
}
uint64_t present(Site site) {
    uint64_t all = 0;
    meet(site, WARP, PRESENT, &all, note_present);
    return all;
}
void give_way() {
    if (current != NOBODY) fibers[current].spins_at = CALLER, suspend(SPUN);
}
void trap(void* where) {
    find("trap", (uintptr_t)where, 0, "thread %d ends the launch at {0} (__trap)", current);
    stop_kernel();
}
bool complete_groups() {
    bool any = false;
    for (unsigned first = 0; first < threads_of_block; first += 128) {
        const unsigned count = std::min(128u, threads_of_block - first);
        void* registers[128] = {};
        bool all = fibers[first].state == AT_GROUP;
        for (unsigned i = 0; i < count && all; i++) {
            all = fibers[first + i].state == AT_GROUP && same(fibers[first + i].site, fibers[first].site);
            registers[i] = fibers[first + i].registers;
        }
        if (!all) continue;
        if (count < 128) {
            const std::string where = name(fibers[first].site);
            report("divergence", (where + " takes 128 threads: the block's last group has fewer").c_str());
            stopped = true;
            return false;
        }
        EMU_COUNT(count_event(fibers[first].site, count));
        for (unsigned warp = first; warp < first + count; warp += lanes) EMU_COUNT(count_warp(warp));
        if (fibers[first].compute) fibers[first].compute(registers, 128);
        for (unsigned i = 0; i < count; i++) fibers[first + i].state = READY;
        any = true;
    }
    return any;
}
bool complete_barriers() {
    bool any = false;
    unsigned waited_at = 0;
    for (unsigned t = 0; t < threads_of_block; t++)
        if (fibers[t].state == AT_BARRIER) waited_at |= 1u << fibers[t].barrier;
    for (unsigned id = 0; id < 16; id++) {
        if (!(waited_at >> id & 1)) continue;
        static int at[MAX_THREADS];
        unsigned n = 0, live = 0;
        int yes = 0;
        bool alike = true;
        for (unsigned t = 0; t < threads_of_block; t++) {
            live += fibers[t].state != DONE;
            if (fibers[t].state != AT_BARRIER || fibers[t].barrier != id) continue;
            alike &= same(fibers[t].site, fibers[n ? at[0] : t].site);
            yes += fibers[t].votes.yes, at[n++] = (int)t;
        }
        Named& named = barriers[id];
        const unsigned count = fibers[at[0]].count, present = n + named.arrived;
        if (count == 0 ? n != live || !alike : present < count) continue;
        if (count && present > count) {
            report("divergence", (name(fibers[at[0]].site) + " is for " + std::to_string(count) + " threads, and " +
                                  std::to_string(present) + " have come").c_str());
            stopped = true;
            return false;
        }
#if defined(EMU_PROGRAM)
        if (count == 0 && live < threads_of_block && watching)
            report("returned threads", (name(fibers[at[0]].site) + " is skipped by threads of the block that have "
                   "returned: GPUs go on all the same, CUDA does not promise it").c_str());
#endif
        if (n == live && !named.arrived) order_block();
        else {
            for (unsigned i = 0; i < n; i++) has_met(at[i]);
            order_threads(at, n, named.clock);
        }
        EMU_COUNT(count_event(fibers[at[0]].site, n));
        if (n == live) for (unsigned t = 0; t < threads_of_block; t += lanes) EMU_COUNT(count_warp(t));
        EMU_COUNT(count_barrier());
        named.arrived = 0, named.clock = {}, events++;
        for (unsigned i = 0; i < n; i++) fibers[at[i]].votes = {yes, (int)n}, fibers[at[i]].state = READY;
        any = true;
    }
    return any;
}
bool wake_waiting() {
    bool any = false;
    for (unsigned t = 0; t < threads_of_block; t++)
        if (fibers[t].state == WAITING && fibers[t].ready(fibers[t].context_of_ready))
            fibers[t].state = READY, any = true;
    return any;
}
bool wake_spun() {
    bool any = false;
    for (unsigned t = 0; t < threads_of_block; t++)
        if (fibers[t].state == SPUN) fibers[t].state = READY, any = true;
    return any;
}
// How many threads wait where, and one of each.
std::string where_threads_wait() {
    std::map<std::string, std::pair<int, int>> where;  // how many, and one of them
    int ended = 0;
    for (unsigned t = 0; t < threads_of_block; t++) {
        if (fibers[t].state == DONE) {
            ended++;
            continue;
        }
        std::string site = "no barrier";
        const bool goes_on = fibers[t].state == READY || fibers[t].state == SPUN;
        if (goes_on && fibers[t].spins_at) {
            char place[40];
            snprintf(place, sizeof place, "{%#lx}", (unsigned long)(fibers[t].spins_at - image));
            site = std::string("a loop that reads a word again and again, ") + place;
        } else if (!goes_on) {
            site = name(fibers[t].site);
        }
        auto& entry = where.emplace(site, std::make_pair(0, (int)t)).first->second;
        entry.first++;
    }
    std::string text;
    bool first = true;
    for (auto& [site, who] : where) {
        text += (first ? "" : ", ") + std::to_string(who.first) + " at " + site;
        text += " such as thread " + std::to_string(who.second);
        const Fiber& one = fibers[who.second];
        if (one.state == WAITING && one.why) text += " (" + one.why(one.context_of_ready) + ")";
        first = false;
    }
    if (ended) text += ", and " + std::to_string(ended) + " have ended";
    return text;
}
std::string story_of_waiting() {
    constexpr size_t SHOWN = 2;  // places of a block
    std::vector<uintptr_t> shown;
    std::string text;
    for (unsigned t = 0; t < threads_of_block && shown.size() < SHOWN; t++) {
        const Fiber& one = fibers[t];
        if ((one.state != READY && one.state != SPUN) || !one.spins_at || !one.spins_on) continue;
        if (std::find(shown.begin(), shown.end(), one.spins_at) != shown.end()) continue;
        shown.push_back(one.spins_at);
        const std::string element = element_at(one.spins_on, one.spins_bytes);
        text += thread_text(block_of_grid, t) + " loads " + element + " at " + place_text(one.spins_at) + " again and again";
        if (const Word* word = watching && hooked ? shadow_at(one.spins_on) : nullptr) {
            const Touch& write = word->write;
            if (!write.epoch || write.epoch < launch_epoch || write.who >= MAX_THREADS) text += ": nobody has stored it in this launch";
            else text += ": the last to store it was " + thread_text(block_at(write.epoch), write.who) + ", at " + place_text(place_of(write.site));
        }
        text += "\n";
    }
    return text;
}
void report_deadlock() {
    report("divergence", ("threads wait for others that never come: " + where_threads_wait()).c_str());
}
void report_spinning() {
    report("hang", ("the block never ends, as nobody changes the word that its threads wait for: " +
                    where_threads_wait()).c_str());
    add_story("hang", 0, 0, story_of_waiting());
}

// ---- A block

static Kept<std::vector<Named>> kept_meetings;
static void exchange_meetings(unsigned n) { kept_meetings.exchange_array(n, barriers, 16); }
static AtSwitch meetings_at_switch(exchange_meetings);
static void begin_meetings() {
    for (Named& named : barriers) named = {};
}
static AtBlockStart meetings_at_start(begin_meetings);
}  // namespace emu
