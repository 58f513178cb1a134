// mbarriers, and the copies that they count.
#include "bulk.h"
#include "publication.h"
#include "internal.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace emu {

// ---- Barriers

namespace {
struct Barrier {
    unsigned expected, pending, phase, made_by;
    int64_t bytes;  // announced and not yet come
    bool fenced;    // the copy engine knows it
    Clock arriving, ended;
};
struct Copy {
    uint32_t to, bytes, barrier;
    Agent agent;
    std::function<void()> bring;
};
}
static std::map<uint32_t, Barrier> barriers;
static std::vector<Copy> copies;

static Barrier* barrier_at(uint32_t at, uintptr_t pc) {
    const auto found = barriers.find(at);
    if (found == barriers.end()) {
        const std::string where = std::to_string(at);
        report("mbarrier", ("there is no barrier at shared address " + where + ": nobody has made it").c_str(), pc);
        return nullptr;
    }
    touch_shared(at, 8, false, pc);  // reads: whoever made it must have come before
    return &found->second;
}
static void settle(Barrier& b) {
    if (b.pending || b.bytes) return;
    b.phase++, b.pending = b.expected;
    join(b.ended, b.arriving);
}
void mbarrier_init(uint32_t at, unsigned arrivals) {
    const uintptr_t pc = CALLER;
    if (!check_shared(at, 8, 8, "mbarrier", pc)) return;
    touch_shared(at, 8, true, pc);
    if (barriers.count(at)) report("mbarrier", "a barrier is made where one is already", pc);
    if (arrivals < 1 || arrivals >= 1u << 20) report("mbarrier", "a barrier is for 1 to 2^20 - 1 arrivals", pc);
    barriers[at] = {arrivals, arrivals, 0, thread(), 0, false, {}, {}};
}
void mbarrier_invalidate(uint32_t at) {
    if (!barrier_at(at, CALLER)) return;
    touch_shared(at, 8, true, CALLER);
    barriers.erase(at);
}
void mbarrier_arrive(uint32_t at, unsigned count) {
    const uintptr_t pc = CALLER;
    Barrier* b = barrier_at(at, pc);
    if (!b) return;
    if (count > b->pending)
        return report("mbarrier", "more threads arrive in one phase than the barrier was made for", pc);
    release(b->arriving);
    b->pending -= count;
    settle(*b);
}
void mbarrier_expect(uint32_t at, unsigned bytes) {
    if (Barrier* b = barrier_at(at, CALLER)) b->bytes += bytes;
}
// The copies that a barrier counts arrive.
static void land(uint32_t at) {
    for (size_t i = 0; i < copies.size();) {
        if (copies[i].barrier != at) {
            i++;
            continue;
        }
        const Copy copy = std::move(copies[i]);
        copies.erase(copies.begin() + (long)i);
        agent_landed(copy.agent, copy.to, copy.bytes);
        copy.bring();
        Barrier& b = barriers[at];
        b.bytes -= copy.bytes;
        agent_release(copy.agent, b.arriving);
        settle(b);
    }
}
static bool has_ended(const Barrier& b, unsigned parity) { return (b.phase & 1) != (parity & 1); }
bool mbarrier_try_wait(uint32_t at, unsigned parity) {
    Barrier* b = barrier_at(at, CALLER);
    if (!b) return true;
    if (!has_ended(*b, parity)) land(at);
    if (has_ended(*b, parity)) acquire(b->ended);
    return has_ended(*b, parity);
}
namespace {
struct Wanted { uint32_t at; unsigned parity; };
}
static bool wanted_has_ended(void* context) {
    const Wanted& w = *(Wanted*)context;
    Barrier& b = barriers[w.at];
    if (!has_ended(b, w.parity)) land(w.at);
    return has_ended(b, w.parity);
}
static std::string what_is_missing(void* context) {
    const Wanted& w = *(Wanted*)context;
    const Barrier& b = barriers[w.at];
    const std::string bytes = b.bytes < 0 ? std::to_string(-b.bytes) + " bytes have come that nobody announced"
                                          : std::to_string(b.bytes) + " bytes are missing";
    return "for the end of a phase of parity " + std::to_string(w.parity & 1) + "; the barrier is in phase " +
           std::to_string(b.phase) + ", where " + std::to_string(b.pending) + " arrivals and " + bytes;
}
void mbarrier_wait(Site site, uint32_t at, unsigned parity) {
    Barrier* b = barrier_at(at, CALLER);
    if (!b) return;
    Wanted wanted{at, parity};
    wait_until(site, wanted_has_ended, &wanted, what_is_missing);
    acquire(b->ended);
}

// ---- Fences

void fence_mbarrier_init() {
    for (auto& [at, b] : barriers) b.fenced |= b.made_by == thread();
}
void fence_proxy_async() {
    fence_mbarrier_init();
    publish();
}

// ---- Copies to shared memory

static std::array<int, 5> corner(const TensorMap& map, const int* first) {
    std::array<int, 5> at{};
    std::copy_n(first, map.rank, at.begin());
    return at;
}

static void watch_box(const TensorMap& map, const int* first, Agent agent, bool write, uintptr_t pc) {
    if (!watching) return;
    each_element(map, first, 0, [&](uint32_t, const char* at) {
        if (at && check_global(at, (unsigned)map.stride[0], 1, write, "tensor copy", pc))
            agent_global(agent, at, (unsigned)map.stride[0], write, pc);
    });
}
// Starts a copy; watch(agent) tells what it reads. `bring` copies.
static void start(uint32_t to, uint32_t bytes, uint32_t barrier, uintptr_t pc, const std::function<void(Agent)>& watch,
                  std::function<void()> bring) {
    Barrier* b = barrier_at(barrier, pc);
    if (!b) return;
    if (!b->fenced)
        report("mbarrier", "the copy engine does not know the barrier yet: fence.mbarrier_init (or fence.proxy.async) "
                           "after it is made", pc);
    const Agent agent = agent_start();
    watch(agent);
    agent_shared(agent, to, bytes, true, pc);
    memset(shared + to, 0xff, bytes);
    agent_busy(agent, to, bytes, pc);
    copies.push_back({to, bytes, barrier, agent, std::move(bring)});
}
void copy_bulk(uint32_t to, const void* from, unsigned bytes, uint32_t barrier) {
    const uintptr_t pc = CALLER;
    if (bytes % 16) return report("misaligned", "a bulk copy is of a multiple of 16 bytes", pc);
    if (!check_shared(to, bytes, 16, "bulk copy", pc) || !check_global(from, bytes, 16, false, "bulk copy", pc)) return;
    start(to, bytes, barrier, pc, [=](Agent agent) { agent_global(agent, from, bytes, false, pc); },
          [=] { memcpy(shared + to, from, bytes); });
}
void prefetch_bulk(const void* from, unsigned bytes) {
    const uintptr_t pc = CALLER;
    if (bytes % 16) return report("misaligned", "a bulk prefetch is of a multiple of 16 bytes", pc);
    check_global(from, bytes, 16, false, "bulk prefetch", pc);
}
void copy_tensor(uint32_t to, const TensorMap& map, const int* first, uint32_t barrier) {
    const uintptr_t pc = CALLER;
    if (!check_shared(to, box_bytes(map), 128, "tensor copy", pc)) return;
    const auto at = corner(map, first);
    start(to, box_bytes(map), barrier, pc, [&](Agent agent) { watch_box(map, at.data(), agent, false, pc); },
          [=] { load_box(map, at.data(), shared, to); });
}

// ---- Copies to global memory

// A store reads shared memory as late as it may, at a wait, and what it brings is there after a wait that is not for
// the reading alone.
namespace {
struct Store {
    unsigned group, bytes;
    Agent reads, writes;  // shared memory, and, later, global memory
    bool read;
    std::vector<char> data;
    std::function<void(const char*)> put;  // from `shared`, or from a copy of it
    uint32_t from;
};
}
static std::vector<Store> stores[MAX_THREADS];
static unsigned store_groups[MAX_THREADS];

static void start_store(uint32_t from, unsigned bytes, uintptr_t pc, const std::function<void(Agent)>& watch,
                        std::function<void(const char*)> put) {
    const Agent reads = agent_start(), writes = agent_start();
    agent_shared(reads, from, bytes, false, pc);
    watch(writes);
    stores[thread()].push_back({store_groups[thread()], bytes, reads, writes, false, {}, std::move(put), from});
}
void store_bulk(void* to, uint32_t from, unsigned bytes) {
    const uintptr_t pc = CALLER;
    if (bytes % 16) return report("misaligned", "a bulk copy is of a multiple of 16 bytes", pc);
    if (!check_shared(from, bytes, 16, "bulk copy", pc) || !check_global(to, bytes, 16, true, "bulk copy", pc)) return;
    start_store(from, bytes, pc, [=](Agent agent) { agent_global(agent, to, bytes, true, pc); },
                [=](const char* memory) { memcpy(to, memory + from, bytes); });
}
void add_bulk(float* to, uint32_t from, unsigned bytes) {
    const uintptr_t pc = CALLER;
    if (bytes % 16) return report("misaligned", "a bulk copy is of a multiple of 16 bytes", pc);
    if (!check_shared(from, bytes, 16, "bulk copy", pc) || !check_global(to, bytes, 16, true, "bulk copy", pc)) return;
    start_store(from, bytes, pc, [=](Agent agent) { agent_global(agent, to, bytes, true, pc); },
                [=](const char* memory) {
                    for (unsigned n = 0; n < bytes / 4; n++) {
                        float x;
                        memcpy(&x, memory + from + 4 * n, 4);
                        to[n] += x;
                    }
                });
}
void store_tensor(const TensorMap& map, const int* first, uint32_t from) {
    const uintptr_t pc = CALLER;
    if (!check_shared(from, box_bytes(map), 128, "tensor copy", pc)) return;
    const auto at = corner(map, first);
    start_store(from, box_bytes(map), pc, [&](Agent agent) { watch_box(map, at.data(), agent, true, pc); },
                [=](const char* memory) { store_box(map, at.data(), memory, from); });
}
void store_commit() { store_groups[thread()]++; }
void store_wait(unsigned left, bool read) {
    std::vector<Store>& mine = stores[thread()];
    const unsigned all = store_groups[thread()], done = all > left ? all - left : 0;
    for (Store& store : mine) {
        if (store.group >= done) continue;
        if (!store.read) store.data.assign(shared + store.from, shared + store.from + store.bytes);
        store.read = true;
        agent_acquire(store.reads);
        if (!read) agent_acquire(store.writes), store.put(store.data.data() - store.from);
    }
    if (read) return;
    mine.erase(std::remove_if(mine.begin(), mine.end(), [=](auto& store) { return store.group < done; }), mine.end());
}

// ---- Counts, by which blocks go one after the other

void volatile_read(const void* p, unsigned bytes);  // notes it for the race check

// Blocks run one after the other here: a count that only a later block would raise is reported as a wait without end.
namespace {
struct Turn { const int* count; int turn; };
}
static std::map<const int*, Clock> counted;  // what this block's threads had done when they raised a count
static void raise(const int* count) {
    fence();
    release(counted[count]);
    atomic_begins(count, sizeof *count, ANY_ATOMIC);
}
static bool has_come(void* context) { return *((Turn*)context)->count == ((Turn*)context)->turn; }
static std::string whose_turn(void*) { return "for a count that no thread of this block or of one before raises"; }
void wait_for_count(Site site, const int* count, int turn) {
    Turn mine{count, turn};
    wait_until(site, has_come, &mine, whose_turn);
    volatile_read(count, sizeof *count);
    if (const auto at = counted.find(count); at != counted.end()) acquire(at->second);
    acquire_now();
}
void set_count(int* count, int turn) {
    raise(count);
    *count = turn;
    atomic_ends(count, sizeof *count, ANY_ATOMIC, true);
}
void add_count(int* count, int more) {
    raise(count);
    *count += more;
    atomic_ends(count, sizeof *count, ANY_ATOMIC, true);
}

// ---- A block

static void begin_bulk() {
    for (const Copy& copy : copies) agent_landed(copy.agent, copy.to, copy.bytes);
    copies.clear(), barriers.clear(), counted.clear();
    for (unsigned t = 0; t < MAX_THREADS; t++) stores[t].clear(), store_groups[t] = 0;
}
static void end_bulk() {
    if (!copies.empty()) report("copy", "the block ends before a bulk copy has arrived: nobody waits at its barrier");
    for (std::vector<Store>& mine : stores)
        for (Store& store : mine) {
            if (!store.read) report("copy", "the block ends while a bulk copy reads its shared memory: wait for it");
            if (!store.read) store.data.assign(shared + store.from, shared + store.from + store.bytes);
            store.put(store.data.data() - store.from);  // it takes place after the block's end, too
        }
}
static AtBlockStart bulk_at_start(begin_bulk);
static AtBlockEnd bulk_at_end(end_bulk);

}  // namespace emu
