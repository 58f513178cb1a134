#include "polling.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace emu {
namespace {
struct Former {  // what a volatile write has overwritten, and who has been shown it since, at which place
    char value[16];
    uint8_t bytes;
    std::vector<std::pair<uint64_t, uintptr_t>> shown;
};
struct Read {
    const char* at;
    uint32_t bytes;
    uintptr_t pc;
};
}
constexpr size_t MOST_FORMER = 1 << 20;
static std::unordered_map<const char*, Former> formers;
static std::unordered_set<uintptr_t> polling;  // places
static Read last_read[MAX_THREADS], now;
static char* shown_at;  // where a former value stands in place of the word
static char shown_instead[16];
static uint32_t shown_bytes;

void note_volatile(const char* at, uint32_t bytes, bool write, uintptr_t pc) {
    if (bytes > sizeof Former::value) return;
    if (write) {
        if (formers.size() == MOST_FORMER && !formers.count(at)) return;
        Former& former = formers[at];
        memcpy(former.value, at, bytes);
        former.bytes = (uint8_t)bytes, former.shown.clear();
        return;
    }
    now = {at, bytes, pc};
    Read& last = last_read[current];
    if (last.at == at && last.pc == pc) polling.insert(pc);
    last = now;
}
bool polls(uintptr_t pc) { return polling.count(pc); }
bool reads_too_early() {
    if (polling.count(now.pc)) return false;
    const auto found = formers.find(now.at);
    if (found == formers.end() || found->second.bytes != now.bytes) return false;
    Former& former = found->second;
    if (shown_at == now.at) return true;  // another word of the same access
    if (!memcmp(former.value, now.at, now.bytes)) return false;
    const uint64_t me = (uint64_t)block_of_grid * MAX_THREADS + (unsigned)current;
    const auto mine = std::find_if(former.shown.begin(), former.shown.end(), [=](auto& one) { return one.first == me; });
    if (mine != former.shown.end()) {
        if (mine->second == now.pc) polling.insert(now.pc);
        return mine->second != now.pc;
    }
    former.shown.emplace_back(me, now.pc);
    shown_at = const_cast<char*>(now.at), shown_bytes = now.bytes;
    memcpy(shown_instead, shown_at, shown_bytes);
    memcpy(shown_at, former.value, shown_bytes);
    unsettled = true;
    return true;
}
bool shows_former() { return shown_at; }
void restore_former() {
    if (!shown_at) return;
    memcpy(shown_at, shown_instead, shown_bytes);
    shown_at = nullptr;
}
static Kept<std::vector<Read>> kept_polling;
static void exchange_polling(unsigned n) { kept_polling.exchange_array(n, last_read, threads_of_block); }
static AtSwitch polling_at_switch(exchange_polling);
void forget_polling(bool launch) {
    if (launch) formers.clear(), polling.clear();
    for (Read& read : last_read) read = {};
}
}  // namespace emu
