#include "schedule.h"
#include "fibers.h"
#include "story.h"

#include <cinttypes>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>

namespace emu {
constexpr size_t MOST_SWITCHES = 1 << 17;  // of blocks, of warps, of lanes; of more, none: some may be enough
constexpr size_t MOST_EARLY = 1 << 20, MOST_PAIRS = 2;
bool scheduled, telling;
static bool recording;
static uint32_t launch;
static std::unordered_map<unsigned, uint32_t> rounds;  // of each block of the launch
static std::vector<std::string> recorded[3], exchanged;  // switches by their level
static bool too_many[3];

std::string place_text(uintptr_t pc) {
    char text[40];
    snprintf(text, sizeof text, "{%#lx}", (unsigned long)(pc - image));
    return text;
}
std::string thread_text(unsigned block, unsigned thread) {
    return "block " + std::to_string(block) + ", thread " + std::to_string(thread);
}

// ---- Switches

namespace {
using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;  // the launch, and a turn
struct Switch {
    unsigned which, before;
};
}
static std::map<Key, std::vector<Switch>> replayed;
static Key key_of(const Turn& turn) { return {launch, turn.level, turn.block, turn.round, turn.warp, turn.pass}; }

void record_switches() { scheduled = recording = true; }
void replay_switches(const std::string& lines, bool tells) {
    scheduled = true, telling = tells;
    std::istringstream from(lines);
    uint32_t n[6];
    for (Switch one; from >> n[0] >> n[1] >> n[2] >> n[3] >> n[4] >> n[5] >> one.which >> one.before;)
        replayed[{n[0], n[1], n[2], n[3], n[4], n[5]}].push_back(one);
}
std::vector<std::string> recorded_switches() {
    std::vector<std::string> all;
    for (const auto& each : recorded) all.insert(all.end(), each.begin(), each.end());
    return all;
}
const std::vector<std::string>& exchanged_accesses() { return exchanged; }

void next_launch() {
    if (!scheduled) return;
    launch++, rounds.clear();
}
uint32_t next_round(unsigned block) { return scheduled ? rounds[block]++ : 0; }
void arrange(const Turn& turn, std::vector<unsigned>& turns) {
    if (recording) return;
    std::sort(turns.begin(), turns.end());
    const auto found = replayed.find(key_of(turn));
    if (found == replayed.end()) return;
    std::vector<unsigned> ordered;
    std::set<unsigned> done;
    for (unsigned one : turns) {
        if (done.count(one)) continue;
        for (const Switch& early : found->second)
            if (early.before == one && early.which > one && early.which < turns.size() && done.insert(early.which).second)
                ordered.push_back(early.which);
        ordered.push_back(one);
    }
    turns = ordered;
}

// ---- What happens in an order

namespace {
struct Early {  // what one that goes early has done
    bool write;
    unsigned block, thread, one;
    uintptr_t pc;
};
struct Current {  // of each level
    std::vector<unsigned> had;  // those that have had their turn
    unsigned one = 0;
    bool early = false;
    std::unordered_map<const char*, std::vector<Early>> touched;
};
}
static Current of_level[3];
static size_t early_touches;
static std::set<std::pair<uintptr_t, uintptr_t>> places_shown;
static std::set<std::tuple<const char*, unsigned, unsigned, unsigned, int>> threads_shown;  // once each for a word

void turn_begins(const Turn& turn, unsigned one, bool first) {
    Current& now = of_level[turn.level];
    now.one = one, now.early = false;
    if (!telling || !first) return;
    const auto found = replayed.find(key_of(turn));
    if (found == replayed.end()) return;
    for (const Switch& each : found->second) now.early |= each.which == one;
}
void turn_ends(const Turn& turn, bool ran) {
    Current& now = of_level[turn.level];
    if (ran && recording) now.had.push_back(now.one);
    now.early = false;
}
void turns_over(const Turn& turn) {
    Current& now = of_level[turn.level];
    if (recording) {
        unsigned lowest = ~0u;  // of those that come later
        std::vector<Switch> found;
        for (auto one = now.had.rbegin(); one != now.had.rend(); ++one) {
            if (*one > lowest) found.push_back({*one, lowest});
            lowest = std::min(lowest, *one);
        }
        for (auto one = found.rbegin(); one != found.rend() && !too_many[turn.level]; ++one) {
            char text[120];
            snprintf(text, sizeof text, "%u %u %u %u %u %u %u %u", launch, (unsigned)turn.level, turn.block, turn.round,
                     turn.warp, turn.pass, one->which, one->before);
            recorded[turn.level].push_back(text);
            if (recorded[turn.level].size() > MOST_SWITCHES) too_many[turn.level] = true, recorded[turn.level].clear();
        }
        now.had.clear();
    }
    now.touched.clear(), now.early = false;
}
// A touch by one that goes early; or a later one by one that it has overtaken, of the same word.
void tell_access(const char* at, uint32_t bytes, bool write, uintptr_t pc) {
    const char* word = (const char*)((uintptr_t)at & ~(uintptr_t)3);
    for (Current& level : of_level) {
        if (level.early) {
            if (early_touches == MOST_EARLY) continue;
            auto& all = level.touched[word];
            const Early mine{write, block_of_grid, (unsigned)current, level.one, pc};
            if (all.size() < 4) all.push_back(mine), early_touches++;
            continue;
        }
        if (level.touched.empty()) continue;
        const auto found = level.touched.find(word);
        if (found == level.touched.end()) continue;
        for (const Early& early : found->second) {
            if (!(early.write || write) || level.one >= early.one || exchanged.size() >= 2 * MOST_PAIRS) continue;
            if (early.block == block_of_grid && (int)early.thread == current) continue;
            if (!places_shown.insert({early.pc, pc}).second) continue;
            if (!threads_shown.insert({word, early.block, early.thread, block_of_grid, current}).second) continue;
            const std::string element = element_at(at, bytes);
            const std::string first = thread_text(early.block, early.thread), second = thread_text(block_of_grid, (unsigned)current);
            exchanged.push_back(first + (early.write ? " stores " : " loads ") + element + " at " + place_text(early.pc));
            exchanged.push_back(second + (write ? " stores " : " loads ") + element + " at " + place_text(pc) +
                                 (!early.write ? " only now: that load has not yet seen it"
                                  : write      ? " only now, over what was stored there"
                                               : " only now, and sees that store already"));
        }
    }
}
static void usual_order() {
    scheduled = recording = telling = false, launch = 0, early_touches = 0;
    replayed.clear(), exchanged.clear(), places_shown.clear(), threads_shown.clear();
    for (Current& each : of_level) each = {};
    for (auto& each : recorded) each.clear();
    std::fill(too_many, too_many + 3, false);
}
static const char* joined(const std::vector<std::string>& lines) {
    static std::string all;
    all.clear();
    for (const std::string& line : lines) all += line + "\n";
    return all.c_str();
}
}  // namespace emu

using namespace emu;

// Called by Python: from the next launch on, switches are recorded, or these are replayed, or neither.
extern "C" void hw4_schedule(int records, const char* replayed_switches) {
    usual_order();
    if (records) record_switches();
    if (replayed_switches) replay_switches(replayed_switches, true);
}
extern "C" const char* hw4_switches() { return joined(recorded_switches()); }
extern "C" const char* hw4_exchanged() { return joined(exchanged); }
