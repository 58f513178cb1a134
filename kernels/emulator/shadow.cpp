#include "publication.h"

#include <algorithm>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace emu {
constexpr uint32_t LATEST = (1u << 21) - 1, NO_ROW = 0;  // the last time that a touch has room for

// ---- Areas

static std::vector<Area*>& areas() {
    static auto& all = *new std::vector<Area*>;  // it outlives all areas
    return all;
}
Area::Area(const char* begin, size_t bytes) : begin(begin), count(bytes / 4 + 2) {
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* made = mmap(nullptr, count * sizeof(Word), PROT_READ | PROT_WRITE, kind, -1, 0);
    if (made == MAP_FAILED) {
        count = 0;
        return;
    }
    words = (Word*)made;
    areas().push_back(this);
}
Area& Area::operator=(Area&& other) noexcept {
    std::swap(begin, other.begin), std::swap(words, other.words), std::swap(count, other.count);
    for (Area*& each : areas()) each = each == &other ? this : each == this ? &other : each;
    return *this;
}
Area::~Area() {
    if (!words) return;
    munmap(words, count * sizeof(Word));
    areas().erase(std::remove(areas().begin(), areas().end(), this), areas().end());
}

// ---- Places in the code, as small numbers

namespace {
struct Places {
    std::vector<uint32_t> all{0};
    std::unordered_map<uint32_t, uint16_t> number{{0, 0}};
    size_t most;
    explicit Places(size_t most) : most(most) {}
    uint16_t of(uint32_t place) {
        const auto [at, fresh] = number.emplace(place, (uint16_t)all.size());
        if (fresh) {
            if (all.size() == most) at->second = 0;
            else all.push_back(place);
        }
        return at->second;
    }
};
}
static Places& sites() {
    static Places places(1 << 16);
    return places;
}
static Places& copies() {
    static Places places(1 << 12);
    return places;
}
static uint16_t site_of(uintptr_t pc) {
    static struct { uint32_t place; uint16_t site; } known[1024];
    const uint32_t place = (uint32_t)(pc - image);
    auto& entry = known[place >> 1 & 1023];
    if (entry.place != place) entry = {place, sites().of(place)};
    return entry.site;
}
uintptr_t place_of(unsigned site) { return site ? sites().all[site] + image : 0; }
uint16_t copying_at(uint32_t place) { return copies().of(place); }
uintptr_t place_of_copy(unsigned number) { return copies().all[number] + image; }

// ---- Times of several lanes of a warp

// Rows of `lanes` times, 0 for a lane that took no part. A row is never changed: what adds a lane to it takes another,
// which all that add the same lane share. They are of one epoch.
namespace {
struct Step {
    uint32_t from, lane, time, to, epoch;
};
}
static std::vector<uint32_t> rows;
static uint32_t rows_epoch;
static Step steps[4096];

static const uint32_t* row_of(const Touch& touch) { return &rows[(size_t)touch.time * lanes]; }
static bool before(const Touch& touch, int t) {
    if (touch.who >= MAX_THREADS) return clocks && knows(t)[touch.who] >= touch.time;
    if (touch.epoch != epoch) return true;
    if (!touch.several) return before(touch.who, touch.time, t);
    const uint32_t* times = row_of(touch);
    for (int i = 0; i < lanes; i++)
        if (times[i] && !before(touch.who / lanes * lanes + i, times[i], t)) return false;
    return true;
}
static uint32_t now_of(unsigned who) { return std::min(own[who], LATEST); }
static uint32_t extended(uint32_t from, uint32_t lane, uint32_t time) {
    if (rows_epoch != epoch) rows.assign(lanes, 0), rows_epoch = epoch;
    Step& step = steps[(from * 31 + lane * 7 + time) % 4096];
    if (step.epoch == epoch && step.from == from && step.lane == lane && step.time == time) return step.to;
    const uint32_t to = (uint32_t)(rows.size() / lanes);
    if (to > LATEST) return from;
    rows.resize(rows.size() + lanes);
    std::copy_n(&rows[(size_t)from * lanes], lanes, &rows[(size_t)to * lanes]);
    rows[(size_t)to * lanes + lane] = time;
    step = {from, lane, time, to, epoch};
    return to;
}
// Thread t, of the same warp, touches it too, in this epoch.
static void add_lane(Touch& touch, int t) {
    const uint32_t lane = (uint32_t)(t % lanes), time = now_of((unsigned)t);
    if (!touch.several) touch.time = extended(NO_ROW, touch.who % (unsigned)lanes, touch.time), touch.several = 1;
    if (row_of(touch)[lane] != time) touch.time = extended(touch.time, lane, time);
}
bool seen(Word& word, uint8_t bytes, int t) {
    if (word.copy || word.write.epoch < block_epoch || (word.written & bytes) != bytes) return false;
    if (word.write.epoch == epoch || word.write.who >= MAX_THREADS) return false;
    for (Touch& old : word.read) {
        if (old.epoch != epoch || old.who >= MAX_THREADS || !same_warp(old.who, (unsigned)t)) continue;
        if ((old.bytes & bytes) != bytes) continue;
        if (old.several || (int)old.who != t || old.time != now_of((unsigned)t)) add_lane(old, t);
        return true;
    }
    return false;
}
static void forget(Touch& touch) { touch = {}; }
void forget_touches() {
    for (Area* area : areas())
        for (size_t i = 0; i < area->size(); i++) {
            Word& word = area->word_at(i);
            for (Touch* each : {&word.write, &word.read[0], &word.read[1]})
                if (each->epoch) forget(*each);
        }
    rows_epoch = 0;
    for (Step& step : steps) step = {};
}

// ---- Races

static std::string party(unsigned who, bool several = false) {
    if (who >= MAX_THREADS) return "an asynchronous copy or product";
    return several ? "threads of warp " + std::to_string(who >> log2_lanes) : "thread " + std::to_string(who);
}
// The store that is under way: what it overwrites, and what it comes after without an order.
namespace {
struct Before {
    Touch old;
    bool old_writes, other_block;
    unsigned who;
    uintptr_t pc;
    const char* where;
};
struct Overwritten {
    Word* word;
    Touch write;
    bool global;
};
}
bool unsettled;
static std::vector<Before> befores;
static std::vector<Overwritten> overwritten;
static const char* stored_at;
static unsigned stored_bytes;
static char stored_before[16];
static void begin_store(const Access& access) {
    if (unsettled) return;
    unsettled = true, stored_at = access.at, stored_bytes = access.bytes;
    memcpy(stored_before, access.at, access.bytes);
}
static bool is_settled_later(const Access& access) {
    return access.write && access.at && access.bytes <= sizeof stored_before;
}
static void race(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, const char* where) {
    static const char SYNCWARP[] = "__syncwarp() is missing between them";
    const bool agent = old.who >= MAX_THREADS || who >= MAX_THREADS, within_warp = same_warp(old.who, who);
    const char* missing = agent         ? "nobody waits for it"
                          : within_warp ? SYNCWARP
                                        : "__syncthreads() is missing between them";
    const uintptr_t old_pc = place_of(old.site);
    EmuFinding* known = known_finding("race", pc, old_pc);
    if (known && (agent || within_warp || !strstr(known->text, SYNCWARP))) {
        known->times++;
        return;
    }
    const uint32_t times = known ? known->times + 1 : 1;
    if (known) forget_finding(known);  // __syncthreads() helps where __syncwarp() would
    find("race", pc, old_pc, "%s %s in %s at {0} what %s %s at {1}, and no barrier orders the two: %s",
         party(who).c_str(), writes ? "writes" : "reads", where, party(old.who, old.several).c_str(),
         old_writes ? "wrote" : "read", missing);
    if (EmuFinding* made = known_finding("race", pc, old_pc)) made->times = times;
}
static void block_race(const Touch& old, bool old_writes, bool writes, uintptr_t pc, const char* where) {
    find("race", pc, place_of(old.site),
         "block %u %s in %s at {0} what block %u %s at {1}: nothing orders blocks of one launch (an atomic behind a "
         "__threadfence() and another fence behind who reads it, or a launch of its own, is needed)",
         block_of_grid, writes ? "writes" : "reads", where, block_at(old.epoch), old_writes ? "wrote" : "read");
}
bool until_covers(const Touch& touch, const uint32_t* until) {
    if (!touch.several) return touch.who < threads_of_block && until[touch.who] >= touch.time;
    const uint32_t* times = row_of(touch);
    const unsigned first = touch.who / (unsigned)lanes * (unsigned)lanes;
    for (unsigned i = 0; i < (unsigned)lanes; i++)
        if (times[i] && until[first + i] < times[i]) return false;
    return true;
}

static void same_value(const Touch& old, bool old_writes, bool writes, unsigned who, uintptr_t pc, const char* where,
                       bool other_block) {
    const std::string other = other_block ? "block " + std::to_string(block_at(old.epoch)) : party(old.who, old.several);
    const char* how = !writes     ? "%s reads in %s at {0} what %s wrote at {1}, the value that was there,"
                      : old_writes ? "%s writes in %s at {0} the value that %s wrote at {1},"
                                   : "%s writes in %s at {0} the value that is there, which %s read at {1},";
    find("same value", pc, place_of(old.site), (std::string(how) + " and nothing orders the two: right as long as no value "
         "changes").c_str(), party(who).c_str(), where, other.c_str());
}
void settle_stores() {
    unsettled = false;
    const bool silent = !memcmp(stored_at, stored_before, stored_bytes);
    for (const Before& one : befores) {
        if (silent) same_value(one.old, one.old_writes, true, one.who, one.pc, one.where, one.other_block);
        else if (one.other_block) block_race(one.old, one.old_writes, true, one.pc, one.where);
        else race(one.old, one.old_writes, one.who, true, one.pc, one.where);
    }
    // A change that is not past stays the word's last write.
    for (Overwritten& one : overwritten) {
        const bool past = !one.write.epoch || (one.global ? one.write.epoch < launch_epoch : one.write.epoch != epoch);
        if (silent && !past && !one.write.silent) one.word->write = one.write;
        else one.word->write.silent = silent;
    }
    befores.clear(), overwritten.clear();
}
// Lanes of a warp that exchange words of shared memory by volatile accesses and no __syncwarp() rely on running in
// lockstep; threads of different warps wait for each other so.
static bool in_lockstep_only(const Touch& old, bool old_writes, const Access& access, bool global, unsigned who) {
#if defined(EMU_PROGRAM)
    return !global && (old.strength == VOLATILE || access.strength == VOLATILE) && (old_writes || access.write) &&
           old.who != who && same_warp(old.who, who);
#else
    (void)old, (void)old_writes, (void)access, (void)global, (void)who;
    return false;
#endif
}
bool touch(Word& word, uint8_t bytes, const Access& access, bool global, const char* where, unsigned who, bool fresh) {
    const int t = current;
    const bool agent = who >= MAX_THREADS;
    auto conflict = [&](const Touch& old, bool old_writes) {
        if (!old.epoch || !(old.bytes & bytes)) return;
        const bool other_block = old.epoch < block_epoch;
        if (old.strength && access.strength && !in_lockstep_only(old, old_writes, access, global, who)) return;
        if (other_block) {
            if (!global || old.epoch < launch_epoch || heard_of(old, t)) return;
        } else if (before(old, t)) {
            return;
        }
        if (is_settled_later(access)) begin_store(access), befores.push_back({old, old_writes, other_block, who, access.pc, where});
        else if (old_writes && old.silent) same_value(old, true, access.write, who, access.pc, where, other_block);
        else if (other_block) block_race(old, old_writes, access.write, access.pc, where);
        else race(old, old_writes, who, access.write, access.pc, where);
    };
    conflict(word.write, true);
    Touch now{};
    now.epoch = epoch, now.time = now_of(who), now.who = who, now.site = site_of(access.pc);
    now.bytes = bytes, now.strength = access.strength;
    if (access.write) {
        for (const Touch& old : word.read) conflict(old, false);
        if (!global && word.write.epoch < block_epoch) word.written = 0;
        if (is_settled_later(access)) begin_store(access), overwritten.push_back({&word, word.write, global});
        word.write = now;
        word.written |= bytes;
        if (global && access.strength && !agent) hand_over(&word, t, access.strength == ATOMIC, fresh);
        return false;
    }
    const bool early = global && access.strength && !agent && look_at(&word, t);
    Touch* place = nullptr;
    for (Touch& old : word.read) {
        const bool past = !old.epoch || (old.epoch < block_epoch && !(global && old.epoch >= launch_epoch)) ||
                          (old.epoch >= block_epoch && before(old, t));
        if (past) {
            if (!place) place = &old;
        } else if (!agent && old.who < MAX_THREADS && old.epoch == epoch && same_warp(old.who, (unsigned)t)) {
            add_lane(old, t), old.bytes |= bytes;
            return early;
        }
    }
    if (!place && word.read[0].epoch >= block_epoch) place = &word.read[access.pc % 2];  // one of many: any will do
    if (place) *place = now;
    return early;
}
}  // namespace emu
