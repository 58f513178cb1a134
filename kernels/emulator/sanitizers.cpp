// What UndefinedBehaviorSanitizer and AddressSanitizer find becomes a finding like any other.
//
// The compiler puts calls of these handlers into the kernel; the first word of what they get is where the source is.
#include "internal.h"

#include <cstdio>
#if defined(EMU_ASAN)
#include <sanitizer/asan_interface.h>
#endif

using namespace emu;

namespace {
struct Type { uint16_t kind, info; char name[1]; };
struct Place { const char* file; uint32_t line, column; };
struct Mismatch { Place place; const Type* type; unsigned char log2_alignment, check; };

void undefined(const char* what, uintptr_t pc) {
    if (current == NOBODY) return;
    char text[200];
    snprintf(text, sizeof text, "thread %d: %s at {0}", current, what);
    add_finding("undefined behaviour", text, pc);
}
void mismatch(const Mismatch* data, void* p, uintptr_t pc) {
    if (current == NOBODY) return;
    const char* does = data->check == 0 ? "loads" : data->check == 1 ? "stores" : "uses";
    const unsigned alignment = 1u << data->log2_alignment;
    char text[300];
    if (p && (uintptr_t)p % alignment) {
        snprintf(text, sizeof text, "thread %d %s a %s at {0} whose address is no multiple of %u, but of %u", current,
                 does, data->type->name, alignment, (unsigned)((uintptr_t)p & -(uintptr_t)p));
        add_finding("misaligned", text, pc);
        if (alignment >= 16) stop_kernel();  // the processor's own instruction for it would fail, too
    } else {
        snprintf(text, sizeof text, "thread %d %s a %s at {0} by a pointer that is %s", current, does, data->type->name,
                 p ? "too near the end of its object" : "null");
        add_finding("out of bounds", text, pc);
        if (!p) stop_kernel();
    }
}
}  // namespace

#define HERE ((uintptr_t)__builtin_return_address(0))
#define HANDLER(name, what)                                                \
    void __ubsan_handle_##name(void*) { undefined(what, HERE); }           \
    void __ubsan_handle_##name##_abort(void*) { undefined(what, HERE); stop_kernel(); }
extern "C" {
void __ubsan_handle_type_mismatch_v1(Mismatch* data, void* p) { mismatch(data, p, HERE); }
void __ubsan_handle_type_mismatch_v1_abort(Mismatch* data, void* p) { mismatch(data, p, HERE); stop_kernel(); }
void __ubsan_handle_out_of_bounds(void*, void* index) {
    if (current == NOBODY) return;
    char text[200];
    snprintf(text, sizeof text, "thread %d uses index %ld of an array at {0} that has fewer elements", current,
             (long)index);
    add_finding("out of bounds", text, HERE);
}
HANDLER(add_overflow, "an addition of int overflows")
HANDLER(sub_overflow, "a subtraction of int overflows")
HANDLER(mul_overflow, "a multiplication of int overflows")
HANDLER(negate_overflow, "a negation of int overflows")
void __ubsan_handle_divrem_overflow(void*) {
    undefined("a division by zero, or one that overflows,", HERE);
    if (current != NOBODY) stop_kernel();  // the processor would end the process
}
HANDLER(shift_out_of_bounds, "a shift by more bits than the number has, or by less than none,")
HANDLER(pointer_overflow, "pointer arithmetic that overflows")
HANDLER(builtin_unreachable, "code that is marked unreachable is reached")
HANDLER(missing_return, "a function ends without a value")
HANDLER(vla_bound_not_positive, "an array of no size")
HANDLER(load_invalid_value, "a value that its type does not have is loaded")
HANDLER(float_cast_overflow, "a floating-point number does not fit the integer")
HANDLER(nonnull_arg, "a null pointer is given where none may be")
HANDLER(invalid_builtin, "an instruction gets zero, which it does not take,")
HANDLER(function_type_mismatch_v1, "a function of another type is called")
}

#if defined(EMU_ASAN)
namespace {
void reported(const char*) {
    if (current == NOBODY || !__asan_report_present()) return;
    const uintptr_t pc = (uintptr_t)__asan_get_report_pc();
    const char* p = (const char*)__asan_get_report_address();
    const char* what = __asan_get_report_description();
    const unsigned bytes = (unsigned)__asan_get_report_access_size();
    const bool write = __asan_get_report_access_type();
    if (outside(p, bytes, write, pc + 1)) return;
    char text[300];
    snprintf(text, sizeof text, "thread %d %s %u bytes at {0} where it may not: AddressSanitizer calls it %s", current,
             write ? "writes" : "reads", bytes, what ? what : "an error");
    add_finding("out of bounds", text, pc + 1);
}
__attribute__((constructor)) void listen() { __asan_set_error_report_callback(reported); }
}  // namespace
void emu::forbid(const char* at, size_t bytes) { __asan_poison_memory_region(at, bytes); }
void emu::allow(const char* at, size_t bytes) { __asan_unpoison_memory_region(at, bytes); }
#else
void emu::forbid(const char*, size_t) {}
void emu::allow(const char*, size_t) {}
#endif
