#include "shadow.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace emu {
enum : uint8_t { STRONG = 1, SEVERAL = 2 };  // of Touch::flags: atomic or volatile; of several lanes of the warp
// Rows of `lanes` numbers: each lane's time, 0 for one that did not touch the word; the first row is nobody's.
static std::vector<uint32_t> times_of_lanes;

void forget_touches() { times_of_lanes.clear(); }

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
bool seen(Word& word, uint8_t bytes, int t) {
    if (word.copy || word.epoch < block_epoch || (word.written & bytes) != bytes) return false;
    if (word.write.epoch == epoch || word.write.who >= MAX_THREADS) return false;
    for (Touch& old : word.read) {
        if (old.epoch != epoch || old.who >= MAX_THREADS || !same_warp(old.who, t)) continue;
        if ((old.bytes & bytes) != bytes) continue;
        if (old.flags & SEVERAL || old.who != t || old.time != own[t]) add_lane(old, t);
        return true;
    }
    return false;
}

// ---- Races

static std::string party(unsigned who, bool several = false) {
    if (who >= MAX_THREADS) return "an asynchronous copy or product";
    return several ? "threads of warp " + std::to_string(who >> log2_lanes) : "thread " + std::to_string(who);
}
static void race(const Touch& old, bool old_writes, unsigned who, bool writes, uintptr_t pc, const char* where) {
    static const char SYNCWARP[] = "__syncwarp() is missing between them";
    const bool agent = old.who >= MAX_THREADS || who >= MAX_THREADS, within_warp = same_warp(old.who, who);
    const char* missing = agent         ? "nobody waits for it"
                          : within_warp ? SYNCWARP
                                        : "__syncthreads() is missing between them";
    EmuFinding* known = known_finding("race", pc, old.pc + image);
    if (known && (agent || within_warp || !strstr(known->text, SYNCWARP))) {
        known->times++;
        return;
    }
    const uint32_t times = known ? known->times + 1 : 1;
    if (known) forget_finding(known);  // __syncthreads() helps where __syncwarp() would
    find("race", pc, old.pc + image, "%s %s in %s at {0} what %s %s at {1}, and no barrier orders the two: %s",
         party(who).c_str(), writes ? "writes" : "reads", where, party(old.who, old.flags & SEVERAL).c_str(),
         old_writes ? "wrote" : "read", missing);
    if (EmuFinding* made = known_finding("race", pc, old.pc + image)) made->times = times;
}
static void block_race(const Touch& old, bool old_writes, bool writes, uintptr_t pc, const char* where) {
    find("race", pc, old.pc + image,
         "block %u %s in %s at {0} what block %u %s at {1}: nothing orders blocks of one launch (an atomic, or a "
         "launch of its own, is needed)",
         block_of_grid, writes ? "writes" : "reads", where, block_at(old.epoch), old_writes ? "wrote" : "read");
}
// Threads of this block, and the blocks before it of which they have read, by a strong access, what was written by one:
// all that such a block has done comes before.
static std::set<std::pair<int, unsigned>> heard_of;
static AtBlockStart forget_blocks([] { heard_of.clear(); });

void touch(Word& word, uint8_t bytes, const Access& access, bool global, const char* where, unsigned who) {
    const int t = current;
    const bool agent = who >= MAX_THREADS;
    const uint8_t flags = access.strong ? STRONG : 0;
    auto conflict = [&](const Touch& old, bool old_writes) {
        if (!old.epoch || !(old.bytes & bytes)) return;
        const bool other_block = old.epoch < block_epoch;
        if (old.flags & flags & STRONG) {
            if (other_block && old.epoch >= launch_epoch && old_writes) heard_of.emplace(t, block_at(old.epoch));
            return;
        }
        if (other_block) {
            if (global && old.epoch >= launch_epoch && !heard_of.count({t, block_at(old.epoch)}))
                block_race(old, old_writes, access.write, access.pc, where);
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
        } else if (!agent && old.who < MAX_THREADS && old.epoch == epoch && same_warp(old.who, t)) {
            add_lane(old, t), old.bytes |= bytes;
            return;
        }
    }
    if (!place && word.read[0].epoch >= block_epoch) place = &word.read[access.pc % 3];  // one of many: any will do
    if (place) now.times = place->times, *place = now;
}
}  // namespace emu
