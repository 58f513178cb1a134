// The hooks that the builds "race" and "counts" have before every load and store: the compiler puts them there for
// -fsanitize=thread, whose own library is not linked. Only the first keeps a shadow of memory.
#include "counts.h"
#include "memory.h"

using namespace emu;

#if defined(EMU_COUNTS)
const bool emu::hooked = false;
static void access_counted(const void* p, uint32_t n, bool write, Strength strength, uintptr_t pc) {
    count_access(p, n, write ? STORES : LOADS, pc, strength != PLAIN);
    access(p, n, write, strength, pc);
}
#define access access_counted
#elif defined(EMU_HOOKS)
const bool emu::hooked = true;
static void access_watched(const void* p, uint32_t n, bool write, Strength strength, uintptr_t pc) {
    if (strength == PLAIN && (size_t)((const char*)p - quiet_stack) < quiet_bytes && !unsettled) {
        last_access = pc, touched_at = (const char*)p, touched_bytes = n;
        return;
    }
    access(p, n, write, strength, pc);
}
#define access access_watched
#endif
#if defined(EMU_HOOKS) || defined(EMU_COUNTS)
extern "C" {
#define HOOKS(n)                                                                           \
    void __tsan_read##n(void* p) { access(p, n, false, PLAIN, CALLER); }                   \
    void __tsan_write##n(void* p) { access(p, n, true, PLAIN, CALLER); }                   \
    void __tsan_unaligned_read##n(void* p) { access(p, n, false, PLAIN, CALLER); }         \
    void __tsan_unaligned_write##n(void* p) { access(p, n, true, PLAIN, CALLER); }         \
    void __tsan_volatile_read##n(void* p) { access(p, n, false, VOLATILE, CALLER); }           \
    void __tsan_volatile_write##n(void* p) { access(p, n, true, VOLATILE, CALLER); }           \
    void __tsan_unaligned_volatile_read##n(void* p) { access(p, n, false, VOLATILE, CALLER); } \
    void __tsan_unaligned_volatile_write##n(void* p) { access(p, n, true, VOLATILE, CALLER); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { access(p, n, false, PLAIN, CALLER); }
void __tsan_write_range(void* p, unsigned long n) { access(p, n, true, PLAIN, CALLER); }
void* __tsan_memset(void* p, int c, size_t n) {
    access(p, n, true, PLAIN, CALLER);
    return memset(p, c, n);
}
void* __tsan_memcpy(void* p, const void* q, size_t n) {
    access(q, n, false, PLAIN, CALLER), access(p, n, true, PLAIN, CALLER);
    return memcpy(p, q, n);
}
void* __tsan_memmove(void* p, const void* q, size_t n) {
    access(q, n, false, PLAIN, CALLER), access(p, n, true, PLAIN, CALLER);
    return memmove(p, q, n);
}
void __tsan_init() {}
// What the host uses of C++'s atomics: std::atomic, shared pointers, the static variables of functions.
#define ATOMICS(bits, T)                                                                                        \
    T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, 5); }                   \
    void __tsan_atomic##bits##_store(volatile T* p, T x, int) { __atomic_store_n(p, x, 5); }                   \
    T __tsan_atomic##bits##_exchange(volatile T* p, T x, int) { return __atomic_exchange_n(p, x, 5); }         \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T x, int) { return __atomic_fetch_add(p, x, 5); }         \
    T __tsan_atomic##bits##_fetch_sub(volatile T* p, T x, int) { return __atomic_fetch_sub(p, x, 5); }         \
    T __tsan_atomic##bits##_fetch_or(volatile T* p, T x, int) { return __atomic_fetch_or(p, x, 5); }           \
    T __tsan_atomic##bits##_fetch_and(volatile T* p, T x, int) { return __atomic_fetch_and(p, x, 5); }         \
    T __tsan_atomic##bits##_fetch_xor(volatile T* p, T x, int) { return __atomic_fetch_xor(p, x, 5); }         \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T x, int, int) {                    \
        return __atomic_compare_exchange_n(p, e, x, false, 5, 5);                                              \
    }                                                                                                          \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e, T x, int, int) {                      \
        return __atomic_compare_exchange_n(p, e, x, true, 5, 5);                                               \
    }                                                                                                          \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T e, T x, int, int) {                          \
        __atomic_compare_exchange_n(p, &e, x, false, 5, 5);                                                    \
        return e;                                                                                              \
    }
ATOMICS(8, unsigned char) ATOMICS(16, unsigned short) ATOMICS(32, unsigned) ATOMICS(64, unsigned long)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(5); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
#else
const bool emu::hooked = false;
#endif
#undef access

namespace emu {
uintptr_t here() { return CALLER; }
static Strength strength_of(unsigned how) { return how & BLOCK_SCOPE ? BLOCK_ATOMIC : ATOMIC; }
void atomic_begins(const void* p, unsigned bytes, unsigned how) {
    EMU_COUNT(count_access(p, bytes, UPDATES, CALLER));
    access(p, bytes, false, strength_of(how), CALLER, FIRST_HALF, (uint8_t)how);
}
void atomic_ends(const void* p, unsigned bytes, unsigned how, bool changed) {
    access(p, bytes, changed || how & EXCHANGES, strength_of(how), CALLER, SECOND_HALF, (uint8_t)how);
}
void volatile_read(const void* p, unsigned bytes) { access(p, bytes, false, VOLATILE, CALLER); }
}  // namespace emu
