#include "publication.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <vector>

namespace emu {
namespace {
// What a strong write has handed over. Of its block: all before its thread's last fence, in earlier epochs, and of each
// member of a clock what it did up to a time. Of other blocks: what its thread knew, as publications.
struct Publication {
    unsigned block;
    uint32_t epoch;                // of that fence; 0: there was none
    std::vector<uint32_t> until;   // of each thread, then of each agent
    std::vector<uint32_t> others;  // numbers of publications, from 1 on
};
// The same for the threads of one block in one epoch: of each member of a clock, what it did up to a time.
struct Times {
    uint32_t epoch = 0;
    std::vector<uint32_t> of;
    bool now() const { return epoch == emu::epoch; }
    void add(const std::vector<uint32_t>& more) {
        if (!now()) epoch = emu::epoch, of.assign(MEMBERS, 0);
        merge(of.data(), more.data());
    }
};
struct Shared {
    uint32_t published = 0;  // by the last strong write; atomics hand on what was there
    unsigned first = 0;      // the block that has written it first, if it was fresh
    bool fresh = false;
    Times inner;           // what is handed to threads of the block
    uint32_t version = 0;  // how often that changed
};
struct Thread {  // of the block that runs
    std::vector<uint32_t> known;         // publications: for sure
    std::vector<uint32_t> seen, locked;  // from the next fence on, or at once for strong accesses; only from the fence on
    size_t mark;                         // it knows what the block knows, up to here
    uint32_t fenced_epoch, fenced_time;  // its last fence
    uint32_t published, published_then;  // its last publication, and how many fences there were
    Times inner_seen, inner_locked;
    uint32_t inner_epoch, inner_time;  // its last fence of any scope
    const Word* word;                  // that it has looked at last, and the version
    uint32_t version;
    const Word* lock;  // that it has taken and not given back; where; how far a fence since then orders
    uint16_t lock_site;
    uint8_t fenced_since;  // 0, or Reach + 1
    std::vector<std::pair<uint16_t, uint8_t>> behind;  // sites of touches since then, and how far fences went
};
struct Unfenced {
    const Word* lock;
    uint16_t lock_site;
    uint8_t fenced_since;
};
}
bool any_lock;
constexpr size_t MOST_BEHIND = 32;  // places of a critical section that are known
constexpr size_t MOST = 1 << 22, MOST_NUMBERS = 64 << 20;  // publications of a launch, and numbers in them
static std::deque<Publication> publications;
static size_t numbers;
static bool too_many;  // more than there is room for: blocks are taken to know of each other
static std::unordered_map<const Word*, Shared> words;
static std::vector<uint32_t> of_block;  // what any thread of this block knows
static size_t met;                      // up to here all threads know it
static uint32_t fences, learned;        // of this block so far
static uint32_t seen_version;           // counts changes of what any thread has seen
static Thread threads[MAX_THREADS];
static std::unordered_map<uint16_t, Unfenced> unfenced;  // sites of touches behind an atomicCAS, with no fence between

static void learn(std::vector<uint32_t>& to, uint32_t one) {
    if (one && std::find(to.rbegin(), to.rend(), one) == to.rend()) to.push_back(one), learned++;
}
static void take_in(int t) {
    seen_version++;
    for (auto* from : {&threads[t].seen, &threads[t].locked}) {
        for (uint32_t each : *from) learn(threads[t].known, each), learn(of_block, each);
        from->clear();
    }
}
static void take_in_block(int t) {
    for (Times* from : {&threads[t].inner_seen, &threads[t].inner_locked}) {
        if (!from->now()) continue;
        need_clocks();
        merge(knows(t), from->of.data());
        from->epoch = 0;
        has_heard(t);
    }
}
void acquire_now(Reach reach) {
    if (current == NOBODY || !watching) return;
    take_in_block(current);
    if (reach == OF_DEVICE) take_in(current);
}
void fence(Reach reach) {
    if (current == NOBODY || !watching) return;
    acquire_now(reach);
    Thread& mine = threads[current];
    const uint32_t time = own[current]++;
    mine.inner_epoch = epoch, mine.inner_time = time;
    mine.fenced_since = std::max<uint8_t>(mine.fenced_since, (uint8_t)(reach + 1));
    if (reach == OF_DEVICE) mine.fenced_epoch = epoch, mine.fenced_time = time, fences++;
}
static uint32_t add(Publication&& made) {
    numbers += made.until.size() + made.others.size();
    if (publications.size() == MOST || numbers > MOST_NUMBERS) {
        too_many = true;
        return 0;
    }
    publications.push_back(std::move(made));
    return (uint32_t)publications.size();
}
static std::vector<uint32_t> known_to(int t) {
    std::vector<uint32_t> all(of_block.begin(), of_block.begin() + (ptrdiff_t)std::max(met, threads[t].mark));
    all.insert(all.end(), threads[t].known.begin(), threads[t].known.end());
    return all;
}
// What thread t hands over by a strong write now; 0: nothing.
static uint32_t publication_of(int t) {
    Thread& mine = threads[t];
    if (!fences && of_block.empty()) return 0;
    const uint32_t then = fences + learned;
    if (mine.published && mine.published_then == then) return mine.published;
    Publication made{block_of_grid, mine.fenced_epoch, std::vector<uint32_t>(threads_of_block + AGENTS), known_to(t)};
    for (unsigned w = 0; w < threads_of_block; w++) {
        uint32_t& until = made.until[w];
        if (mine.fenced_epoch && clocks) until = knows(t)[w];
        if (mine.fenced_epoch && same_warp(w, (unsigned)t)) until = std::max(until, time_of_warp(w));
        const Thread& one = threads[w];  // its own fence is as good, where a barrier lies behind it
        const bool ordered = one.fenced_epoch && (one.fenced_epoch < epoch || before((int)w, one.fenced_time, t));
        if (ordered) until = std::max(until, one.fenced_time);
    }
    for (unsigned a = 0; a < AGENTS && mine.fenced_epoch && clocks; a++)
        made.until[threads_of_block + a] = knows(t)[MAX_THREADS + a];
    mine.published_then = then;
    return mine.published = add(std::move(made));
}
// What thread t hands to others of its block by a strong write now, if it has fenced anything in this epoch.
static std::vector<uint32_t> inner_of(int t) {
    std::vector<uint32_t> until(MEMBERS);
    if (clocks) std::copy_n(knows(t), MEMBERS, until.begin());
    for (unsigned w = 0; w < threads_of_block; w++)
        if (same_warp(w, (unsigned)t)) until[w] = std::max(until[w], time_of_warp(w));
    until[t] = std::max(until[t], threads[t].inner_time);
    return until;
}
void hand_over(const Word* word, int t, const Access& access, bool global, bool fresh) {
    Thread& mine = threads[t];
    const bool adds = access.strength >= ATOMIC, device = global && access.strength != BLOCK_ATOMIC;
    if (access.how & COMPARES) {
        mine.lock = word, mine.lock_site = site_of(access.pc), mine.fenced_since = 0;
        mine.behind.clear(), any_lock = true;
    } else if (mine.lock == word) {
        for (const auto& [site, since] : mine.behind) unfenced[site] = {word, mine.lock_site, since};
        mine.lock = nullptr;
    }
    const bool fenced = mine.inner_epoch == epoch;
    const uint32_t published = device ? publication_of(t) : 0;
    auto at = words.find(word);
    if (at == words.end()) {
        if (!published && !fenced && !(fresh && global)) return;
        at = words.emplace(word, Shared{}).first;
        at->second.first = block_of_grid, at->second.fresh = fresh;
    }
    Shared& shared = at->second;
    if (!adds || !shared.inner.now()) shared.inner.epoch = 0;
    if (fenced) shared.inner.add(inner_of(t));
    shared.version++;
    if (!device) return;
    if (!adds || !shared.published) shared.published = published;
    else if (published && published != shared.published)
        shared.published = add({~0u, 0, {}, {shared.published, published}});
}
static bool covered(const Touch& touch, const Publication& by) {
    if (touch.who >= MAX_THREADS) return by.until[threads_of_block + touch.who - MAX_THREADS] >= touch.time;
    if (touch.epoch < by.epoch) return true;
    return until_covers(touch, by.until.data());
}
// What a thread may rely on: what it knows for sure; for strong accesses, what it has seen, too; with a fence, all.
namespace {
enum Extent { KNOWN, SEEN, ALL };
struct Reached {  // publications by the block that made them
    std::unordered_map<unsigned, std::vector<const Publication*>> of;
    uint32_t epoch = 0, learned = 0, seen = 0;
    size_t mark = 0;
    int by = NOBODY;
};
}
static const std::vector<const Publication*>& known_of(unsigned block, int t, Extent extent) {
    static Reached reached_by[3];
    static const std::vector<const Publication*> none;
    Reached& found = reached_by[extent];
    const Thread& mine = threads[t];
    const size_t mark = std::max(met, mine.mark);
    const uint32_t seen = extent ? seen_version : 0;
    if (found.by != t || found.epoch != block_epoch || found.learned != learned || found.mark != mark || found.seen != seen) {
        found.by = t, found.epoch = block_epoch, found.learned = learned, found.mark = mark, found.seen = seen;
        found.of.clear();
        std::vector<bool> reached(publications.size() + 1);
        std::vector<uint32_t> left = known_to(t);
        if (extent >= SEEN) left.insert(left.end(), mine.seen.begin(), mine.seen.end());
        if (extent == ALL) left.insert(left.end(), mine.locked.begin(), mine.locked.end());
        while (!left.empty()) {
            const uint32_t each = left.back();
            left.pop_back();
            if (reached[each]) continue;
            reached[each] = true;
            const Publication& one = publications[each - 1];
            if (!one.until.empty()) found.of[one.block].push_back(&one);
            left.insert(left.end(), one.others.begin(), one.others.end());
        }
    }
    const auto at = found.of.find(block);
    return at == found.of.end() ? none : at->second;
}
static bool heard(const Touch& touch, int t, Extent extent) {
    if (too_many) return true;
    if (publications.empty()) return false;
    for (const Publication* each : known_of(block_at(touch.epoch), t, extent))
        if (covered(touch, *each)) return true;
    return false;
}
bool heard_of(const Touch& touch, int t, bool strong) { return heard(touch, t, strong ? SEEN : KNOWN); }
bool heard_in_block(const Touch& touch, int t, bool strong) {
    const Thread& mine = threads[t];
    return strong && mine.inner_seen.now() && until_covers(touch, mine.inner_seen.of.data());
}
bool seen_of(const Touch& touch, int t) {
    if (of_other_block(touch.epoch)) return heard(touch, t, ALL);
    for (const Times* each : {&threads[t].inner_seen, &threads[t].inner_locked})
        if (each->now() && until_covers(touch, each->of.data())) return true;
    return false;
}
void look_at(const Word* word, int t, const Access& access, bool global) {
    const auto at = words.find(word);
    if (at == words.end()) return;
    const Shared& shared = at->second;
    Thread& mine = threads[t];
    const bool lock = access.how & COMPARES;
    if (shared.inner.now() && !(mine.word == word && mine.version == shared.version)) {
        (lock ? mine.inner_locked : mine.inner_seen).add(shared.inner.of);
        mine.word = word, mine.version = shared.version;
    }
    if (!global || access.strength == BLOCK_ATOMIC) return;
    if (shared.published) {
        auto& seen = lock ? mine.locked : mine.seen;
        if (std::find(seen.begin(), seen.end(), shared.published) == seen.end()) seen.push_back(shared.published), seen_version++;
    }
}
bool comes_early(const Word* word, int t) {
    const auto at = words.find(word);
    if (at == words.end()) return false;
    const Shared& shared = at->second;
    return shared.fresh && shared.first != block_of_grid && !too_many && known_of(shared.first, t, SEEN).empty();
}

void settle_freshness() {
    for (auto& each : words) each.second.fresh = false;
}

// ---- Locks

void note_locked(int t, uint16_t site) {
    Thread& mine = threads[t];
    if (!mine.lock || mine.fenced_since == OF_DEVICE + 1 || mine.behind.size() == MOST_BEHIND) return;
    const std::pair<uint16_t, uint8_t> one{site, mine.fenced_since};
    if (std::find(mine.behind.begin(), mine.behind.end(), one) == mine.behind.end()) mine.behind.push_back(one);
}
uintptr_t unfenced_lock(const Touch& touch, int t, bool other_block) {
    const Word* lock = threads[t].lock;
    if (!lock || unfenced.empty()) return 0;
    const auto at = unfenced.find(touch.site);
    if (at == unfenced.end() || at->second.lock != lock) return 0;
    return at->second.fenced_since < (other_block ? OF_DEVICE : OF_BLOCK) + 1 ? place_of(at->second.lock_site) : 0;
}

// ---- Orders within a block

void all_have_met() {
    for (unsigned t = 0; t < threads_of_block && any_lock; t++) threads[t].lock = nullptr;
    if (words.empty()) return;
    for (unsigned t = 0; t < threads_of_block; t++) take_in((int)t);
    met = of_block.size();
}
void has_met(int t) {
    if (!words.empty()) take_in(t);
}
void has_heard(int t) { threads[t].mark = of_block.size(); }
namespace {
struct OfBlock {
    std::vector<uint32_t> of_block;
    size_t met = 0;
    uint32_t fences = 0, learned = 0;
    std::vector<Thread> threads;
};
}
static Kept<OfBlock> kept_publication;
static void exchange_publication(unsigned n) {
    OfBlock& one = kept_publication.at(n);
    of_block.swap(one.of_block), std::swap(met, one.met), std::swap(fences, one.fences), std::swap(learned, one.learned);
    one.threads.resize(threads_of_block);
    std::swap_ranges(threads, threads + threads_of_block, one.threads.begin());
}
static AtSwitch publication_at_switch(exchange_publication);
void forget_publications(bool launch) {
    if (launch) any_lock = false, publications.clear(), words.clear(), unfenced.clear(), numbers = 0, too_many = false;
    of_block.clear(), met = 0, fences = learned = 0;
    for (Thread& each : threads) {
        each.known.clear(), each.seen.clear(), each.locked.clear();
        each.mark = 0, each.fenced_epoch = each.fenced_time = each.published = each.published_then = 0;
        each.inner_epoch = each.inner_time = 0, each.inner_seen.epoch = each.inner_locked.epoch = 0;
        each.word = each.lock = nullptr, each.fenced_since = 0;
    }
}
}  // namespace emu
