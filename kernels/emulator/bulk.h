// Barriers in shared memory that count arrivals and bytes (mbarrier), and the copies that they count: of a line of
// bytes (cp.async.bulk) or a box of a tensor (cp.async.bulk.tensor). bulk.cpp has them; stand-ins for bulk.cuh call
// them.
//
// What a copy brings reads as NaN, and may not be touched, until a thread has waited at its barrier. It arrives as late
// as it may: when somebody waits.
#pragma once
#include "runtime.h"
#include "tiles.h"

namespace emu {

void mbarrier_init(uint32_t at, unsigned arrivals);
void mbarrier_invalidate(uint32_t at);
void mbarrier_arrive(uint32_t at, unsigned count = 1);
void mbarrier_expect(uint32_t at, unsigned bytes);                 // does not arrive
bool mbarrier_try_wait(uint32_t at, unsigned parity);              // has the phase of that parity ended?
void mbarrier_wait(Site, uint32_t at, unsigned parity);            // until it has
void fence_mbarrier_init();                                        // of what this thread made
void fence_proxy_async();                                          // and publishes what this thread knows to be written

void copy_bulk(uint32_t to, const void* from, unsigned bytes, uint32_t barrier);
void prefetch_bulk(const void* from, unsigned bytes);  // changes nothing
void copy_tensor(uint32_t to, const TensorMap&, const int* first, uint32_t barrier);

// From shared memory to global: groups of a thread, as with cp.async. `read`: wait until they have read shared memory
// alone.
void store_bulk(void* to, uint32_t from, unsigned bytes);
void add_bulk(float* to, uint32_t from, unsigned bytes);  // adds, one by one
void store_tensor(const TensorMap&, const int* first, uint32_t from);
void wait_for_count(Site, const int* count, int turn);  // until another thread has set it
void set_count(int* count, int turn);
void add_count(int* count, int more);
void store_commit();
void store_wait(unsigned groups_left, bool read);

}  // namespace emu
