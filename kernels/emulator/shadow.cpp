#include "polling.h"
#include "memory.h"
#include "publication.h"
#include "story.h"

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
uint16_t site_of(uintptr_t pc) {
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
static uint32_t rows_since;  // the epoch from which on they are known
constexpr size_t MOST_ROWS = 1 << 18;
static Step steps[4096];

static const uint32_t* row_of(const Touch& touch) { return &rows[(size_t)touch.time * lanes]; }
static bool known_row(const Touch& touch) { return touch.epoch >= rows_since; }
static bool before(const Touch& touch, int t) {
    if (touch.who >= MAX_THREADS) return clocks && knows(t)[touch.who] >= touch.time;
    if (touch.epoch != epoch) return true;
    if (!touch.several) return before(touch.who, touch.time, t);
    if (!known_row(touch)) return true;
    const uint32_t* times = row_of(touch);
    for (int i = 0; i < lanes; i++)
        if (times[i] && !before(touch.who / lanes * lanes + i, times[i], t)) return false;
    return true;
}
static uint32_t now_of(unsigned who) { return std::min(own[who], LATEST); }
static uint32_t extended(uint32_t from, uint32_t lane, uint32_t time) {
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
void begin_rows() {
    if (rows.empty() || rows.size() > MOST_ROWS * (size_t)lanes || rows.size() % (size_t)lanes)
        rows.assign((size_t)lanes, 0), rows_since = epoch;
}
// Thread t, of the same warp, touches it too, in this epoch.
static void add_lane(Touch& touch, int t) {
    if (touch.several && !known_row(touch)) touch.several = 0;
    const uint32_t lane = (uint32_t)(t % lanes), time = now_of((unsigned)t);
    if (!touch.several) touch.time = extended(NO_ROW, touch.who % (unsigned)lanes, touch.time), touch.several = 1;
    if (row_of(touch)[lane] != time) touch.time = extended(touch.time, lane, time);
}
bool seen(Word& word, uint8_t bytes, int t) {
    if (word.copy || word.write.epoch < block_epoch || (word.written & bytes) != bytes) return false;
    if (word.write.epoch == epoch || word.write.who >= MAX_THREADS) return false;
    for (Touch& old : word.read) {
        if (old.epoch != epoch || old.who >= MAX_THREADS || !same_warp(old.who, (unsigned)t)) continue;
        if (old.bytes != bytes) continue;
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
    rows.clear(), begin_rows();
    for (Step& step : steps) step = {};
}

// ---- Races

static std::string party(unsigned who, bool several = false) {
    if (who >= MAX_THREADS) return "an asynchronous copy or product";
    return several ? "threads of warp " + std::to_string(who >> log2_lanes) : "thread " + std::to_string(who);
}
static const char SYNCWARP[] = "__syncwarp() is missing between them";

// Words by which others have handed something to a thread, or to its block: for what is said of a race.
namespace {
struct Flag {
    Touch write;
    unsigned block;
    uintptr_t pc;  // where it was read
    const char* at;
    uint32_t bytes;
};
}
constexpr size_t MOST_FLAGS = 8;
static std::vector<Flag> flags[MAX_THREADS], flags_of_block;
static void note_flag(const Touch& write, int t, uintptr_t pc) {
    if (!write.strength || write.epoch < launch_epoch || write.who >= MAX_THREADS) return;
    const Flag flag{write, block_at(write.epoch), pc, touched_at, touched_bytes};
    if (flag.block == block_of_grid && (int)write.who == t) return;
    for (auto* to : {&flags[t], &flags_of_block}) {
        if (!to->empty() && to->back().pc == pc && !memcmp(&to->back().write, &write, sizeof write)) continue;
        if (to->size() == MOST_FLAGS) to->erase(to->begin());
        to->push_back(flag);
    }
}
namespace {
struct FlagsOf {
    std::vector<std::vector<Flag>> threads;
    std::vector<Flag> block;
};
}
static Kept<FlagsOf> kept_shadow;
static void exchange_shadow(unsigned n) {
    FlagsOf& one = kept_shadow.at(n);
    one.threads.resize(threads_of_block);
    std::swap_ranges(flags, flags + threads_of_block, one.threads.begin());
    flags_of_block.swap(one.block);
}
static AtSwitch shadow_at_switch(exchange_shadow);
void forget_flags() {
    for (auto& each : flags) each.clear();
    flags_of_block.clear();
}
// Whether thread t, or one of its block, has read what this touch wrote: so it comes before what t does with that word.
static bool has_read(const Touch& write, int t) {
    for (const auto* from : {&flags[t], &flags_of_block})
        for (const Flag& flag : *from)
            if (!memcmp(&flag.write, &write, sizeof write)) return true;
    return false;
}
// What is said of a race beside where the two touches are: which fence is missing, if a word has handed over what a thread
// touches now; and the story of both.
namespace {
struct Handed {
    std::string words, story;
};
}
static std::string touch_text(const Touch& touch, unsigned block, bool writes, const std::string& element) {
    const bool many = touch.several, atomic = touch.strength >= ATOMIC;
    std::string text = "block " + std::to_string(block) + ", " + party(touch.who, many);
    text += writes ? (many ? " store " : " stores ") : many ? " load " : " loads ";
    return text + element + " at " + place_text(place_of(touch.site)) + (atomic ? " by an atomic" : "");
}
static std::string last_text(unsigned who, bool writes, uintptr_t pc, const std::string& element, bool old_writes,
                             uintptr_t old_pc) {
    return thread_text(block_of_grid, who) + (writes ? " stores " : " loads ") + element + " at " + place_text(pc) +
           (!old_writes ? std::string(", which that load sees, too, if it comes later")
            : writes    ? std::string(", and what comes last stays: either of the two")
                        : ", and may not yet see what was stored at " + place_text(old_pc));
}
static Handed missing_fence(const Touch& old, unsigned who, uintptr_t pc, bool other_block) {
    const char* fence = other_block ? "a __threadfence()" : "a __threadfence_block()";
    const unsigned block = other_block ? block_at(old.epoch) : block_of_grid;
    for (const auto* from : {&flags[who], &flags_of_block})
        for (auto flag = from->rbegin(); flag != from->rend(); ++flag) {
            if (flag->block != block || flag->write.epoch < old.epoch) continue;
            if (flag->write.epoch == old.epoch && (flag->write.who != old.who || flag->write.time < old.time)) continue;
            const std::string written = place_text(place_of(flag->write.site)), read = place_text(flag->pc);
            if (flag->pc == pc || flag->write.site == old.site) continue;
            const std::string element = element_at(flag->at, flag->bytes);
            const std::string stores = touch_text(flag->write, block, true, element);
            const std::string loads = thread_text(block_of_grid, who) + (from == &flags_of_block ? ", or another of its block," : "") +
                                      " loads " + element + " at " + read + ", and sees it";
            const std::string none = std::string("with no ") + (fence + 2);
            if (seen_of(old, (int)who))
                return {std::string(fence) + " is missing behind " + read + ", which reads that it is done",
                        stores + "\n" + loads + ", " + none + " behind"};
            return {std::string(fence) + " is missing before " + written + ", which says that it is done, as " + read + " reads",
                    stores + ", " + none + " since then\n" + loads};
        }
    return {};
}
// The store that is under way: what it overwrites, and what it comes after without an order.
namespace {
struct Before {
    Touch old;
    bool old_writes, other_block, strong;
    unsigned who;
    uintptr_t pc;
    const char* where;
    Handed handed;
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
bool store_may_follow(const char* at, unsigned bytes) {
    return !overwritten.empty() && !shows_former() && (at + bytes <= stored_at || at >= stored_at + stored_bytes);
}
static bool is_settled_later(const Access& access) {
    return access.write && access.at && access.bytes <= sizeof stored_before;
}
// What is said of two touches beside where they are.
static std::string missing_between(const Touch& old, unsigned who) {
    if (old.who >= MAX_THREADS || who >= MAX_THREADS) return "nobody waits for it";
    return same_warp(old.who, who) ? SYNCWARP : "__syncthreads() is missing between them";
}
static Handed handed_over(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, bool other_block) {
    if (old.who >= MAX_THREADS || who >= MAX_THREADS) return {};
    Handed handed = missing_fence(old, who, pc, other_block);
    if (handed.words.empty() && !other_block) return {};  // a barrier is missing, which the finding says
    const std::string element = element_at(touched_at, touched_bytes), between = handed.story.empty() ? "" : "\n" + handed.story;
    handed.story = touch_text(old, other_block ? block_at(old.epoch) : block_of_grid, old_writes, element) + between + "\n" +
                   last_text(who, writes, pc, element, old_writes, place_of(old.site));
    return handed;
}
static void race(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, const char* where,
                 const Handed& handed) {
    const bool agent = old.who >= MAX_THREADS || who >= MAX_THREADS, within_warp = !agent && same_warp(old.who, who);
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
         old_writes ? "wrote" : "read", handed.words.empty() ? missing_between(old, who).c_str() : handed.words.c_str());
    add_story("race", pc, old_pc, handed.story);
    if (EmuFinding* made = known_finding("race", pc, old_pc)) made->times = times;
}
static void block_race(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, const char* where,
                       const Handed& handed) {
    find("race", pc, place_of(old.site),
         "block %u, %s, %s in %s at {0} what block %u, %s, %s at {1}: nothing orders blocks of one launch%s", block_of_grid,
         party(who).c_str(), writes ? "writes" : "reads", where, block_at(old.epoch), party(old.who, old.several).c_str(),
         old_writes ? "wrote" : "read",
         handed.words.empty() ? " (an atomic behind a __threadfence() and another fence behind who reads it, or a launch of its own, "
                          "is needed)"
                        : (", " + handed.words).c_str());
    add_story("race", pc, place_of(old.site), handed.story);
}
bool until_covers(const Touch& touch, const uint32_t* until) {
    if (!touch.several) return touch.who < threads_of_block && until[touch.who] >= touch.time;
    if (!known_row(touch)) return true;  // too long ago
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
    restore_former();
    if (overwritten.empty()) return;
    const bool silent = !memcmp(stored_at, stored_before, stored_bytes);
    for (const Before& one : befores) {
        if (silent && one.strong) continue;  // flags that several threads set
        if (silent) same_value(one.old, one.old_writes, true, one.who, one.pc, one.where, one.other_block);
        else if (one.other_block) block_race(one.old, one.old_writes, one.who, true, one.pc, one.where, one.handed);
        else race(one.old, one.old_writes, one.who, true, one.pc, one.where, one.handed);
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
// Strong accesses that need no order.
static bool may_overlap(const Touch& old, bool old_writes, const Access& access, bool global, bool other_block) {
    if (other_block && (old.strength == BLOCK_ATOMIC || access.strength == BLOCK_ATOMIC)) return false;
    if (!global) return true;  // so warps wait for each other
    if (old.strength == VOLATILE && access.strength == VOLATILE) return false;
    return !(old_writes && access.write && access.strength == VOLATILE);  // which has not seen the atomic that it overwrites
}
// Volatile accesses of which one reads, to be judged at the end of the launch.
namespace {
struct Undecided {
    Touch old;
    bool old_writes, other_block;
    unsigned who, block;
    uintptr_t pc;
    std::string where;
    Handed handed;
};
}
static std::vector<Undecided> undecided;
static bool is_known(const Undecided& one) {
    for (const Undecided& old : undecided)
        if (old.pc == one.pc && old.old.site == one.old.site && old.old_writes == one.old_writes) return true;
    return false;
}
void end_of_touches() {
    if (unsettled) settle_stores();
    for (const Undecided& one : undecided) {
        if (polls(one.old_writes ? one.pc : place_of(one.old.site))) continue;
        const unsigned block = block_of_grid;
        block_of_grid = one.block;
        Handed handed = one.handed;
        if (handed.words.empty()) handed.words = "volatile accesses have no order";
        if (one.other_block) block_race(one.old, one.old_writes, one.who, !one.old_writes, one.pc, one.where.c_str(), handed);
        else race(one.old, one.old_writes, one.who, !one.old_writes, one.pc, one.where.c_str(), handed);
        block_of_grid = block;
    }
    undecided.clear();
}
static void scope_race(const Touch& old, bool writes, uintptr_t pc, const char* where) {
    find("race", pc, place_of(old.site),
         "block %u %s in %s at {0} what block %u touches at {1}, and an atomic of block scope is none for other blocks: "
         "atomics of device scope are needed (atomicAdd, not atomicAdd_block)",
         block_of_grid, writes ? "writes" : "reads", where, block_at(old.epoch));
    const std::string element = element_at(touched_at, touched_bytes);
    add_story("race", pc, place_of(old.site),
              touch_text(old, block_at(old.epoch), true, element) + "\n" + thread_text(block_of_grid, (unsigned)current) +
                  " touches " + element + " at " + place_text(pc) + ", and may not yet see it");
}
static void lock_race(const Touch& old, bool old_writes, unsigned who, const Access& access, const char* where, bool other_block,
                      uintptr_t lock) {
    find("race", access.pc, place_of(old.site),
         "%s %s in %s at {0} what %s %s at {1}, each behind the same lock, but the other way round nothing orders the two: "
         "%s is missing between %s, which takes the lock, and {1}",
         party(who).c_str(), access.write ? "writes" : "reads", where,
         other_block ? ("block " + std::to_string(block_at(old.epoch))).c_str() : party(old.who).c_str(),
         old_writes ? "wrote" : "read", other_block ? "a __threadfence()" : "a __threadfence_block()", place_text(lock).c_str());
    const std::string element = element_at(touched_at, touched_bytes);
    const unsigned block = other_block ? block_at(old.epoch) : block_of_grid;
    add_story("race", access.pc, place_of(old.site),
              thread_text(block_of_grid, who) + " has the lock, and " + (access.write ? "stores " : "loads ") + element + " at " +
                  place_text(access.pc) + "\n" + "block " + std::to_string(block) + ", " + party(old.who) +
                  " waits for the lock at " + place_text(lock) + ", with no fence behind it\n" +
                  touch_text(old, block, old_writes, element) + ", which may happen before it has the lock");
}
bool touch(Word& word, uint8_t bytes, const Access& access, bool global, const char* where, unsigned who, bool fresh) {
    const int t = current;
    const bool agent = who >= MAX_THREADS;
    auto conflict = [&](const Touch& old, bool old_writes) {
        if (!old.epoch || !(old.bytes & bytes)) return;
        const bool other_block = of_other_block(old.epoch);
        if (other_block && (!global || old.epoch < launch_epoch)) return;
        const bool strong = old.strength && access.strength;
        const bool lockstep = strong && in_lockstep_only(old, old_writes, access, global, who);
        if (strong && !lockstep && may_overlap(old, old_writes, access, global, other_block)) return;
        if (strong && !agent && old_writes && access.strength == VOLATILE && has_read(old, t)) return;
        if (other_block ? heard_of(old, t, access.strength) : before(old, t) || heard_in_block(old, t, access.strength)) {
            const uintptr_t lock = any_lock && !agent ? unfenced_lock(old, t, other_block) : 0;
            if (lock && (other_block || old.who != who)) lock_race(old, old_writes, who, access, where, other_block, lock);
            return;
        }
        if (strong && old.strength >= ATOMIC && access.strength >= ATOMIC) return scope_race(old, access.write, access.pc, where);
        if (strong && !lockstep && old.strength == VOLATILE && access.strength == VOLATILE && old_writes != access.write) {
            if (access.write || reads_too_early()) {
                Undecided one{old, old_writes, other_block, who, block_of_grid, access.pc, where, {}};
                if (is_known(one)) return;
                one.handed = handed_over(old, old_writes, who, access.write, access.pc, other_block);
                undecided.push_back(std::move(one));
            }
            return;
        }
        if (!is_settled_later(access) && old_writes && old.silent)
            return same_value(old, true, access.write, who, access.pc, where, other_block);
        const bool known = known_finding("race", access.pc, place_of(old.site));
        const Handed handed = known ? Handed{} : handed_over(old, old_writes, who, access.write, access.pc, other_block);
        if (is_settled_later(access)) {
            begin_store(access);
            befores.push_back({old, old_writes, other_block, strong, who, access.pc, where, handed});
        } else if (other_block) block_race(old, old_writes, who, access.write, access.pc, where, handed);
        else race(old, old_writes, who, access.write, access.pc, where, handed);
    };
    if (access.part != SECOND_HALF || access.write) conflict(word.write, true);
    Touch now{};
    now.epoch = epoch, now.time = now_of(who), now.who = who, now.site = site_of(access.pc);
    now.bytes = bytes, now.strength = access.strength;
    if (any_lock && global && !agent) note_locked(t, now.site);
    if (access.write) {
        for (const Touch& old : word.read) conflict(old, false);
        if (!global && word.write.epoch < block_epoch) word.written = 0;
        if (is_settled_later(access)) begin_store(access), overwritten.push_back({&word, word.write, global});
        word.write = now;
        word.written |= bytes;
        if (access.strength && !agent) hand_over(&word, t, access, global, fresh);
        return false;
    }
    const bool strong = access.strength && !agent, early = strong && global && comes_early(&word, t);
    if (strong && !shows_former()) note_flag(word.write, t, access.pc), look_at(&word, t, access, global);
    if (access.part == FIRST_HALF) return early;
    Touch* place = nullptr;
    for (Touch& old : word.read) {
        const bool other_block = of_other_block(old.epoch);
        const bool past = !old.epoch || (other_block ? !global || old.epoch < launch_epoch : before(old, t));
        if (past) {
            if (!place) place = &old;
        } else if (!agent && old.who < MAX_THREADS && old.epoch == epoch && same_warp(old.who, (unsigned)t) && old.bytes == bytes) {
            add_lane(old, t);  // lanes that read other bytes of the word, such as another half, stay apart
            return early;
        }
    }
    if (!place && !of_other_block(word.read[0].epoch)) place = &word.read[access.pc % 2];  // one of many: any will do
    if (place) *place = now;
    return early;
}
}  // namespace emu
