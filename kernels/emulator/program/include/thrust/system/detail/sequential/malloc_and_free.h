// What thrust::malloc and device_malloc give is a GPU's memory. In place of the host back end's own file.
#pragma once
#include <thrust/detail/raw_pointer_cast.h>
#include <thrust/system/detail/sequential/execution_policy.h>

THRUST_NAMESPACE_BEGIN
namespace system {
namespace detail {
namespace sequential {
template <class Policy> inline void* malloc(execution_policy<Policy>&, std::size_t bytes) {
    void* p = nullptr;
    hw4::allocate(&p, bytes, "thrust::malloc", hw4::DEVICE_MEMORY, {"Thrust", 0});
    return p;
}
template <class Policy, class Pointer> inline void free(execution_policy<Policy>&, Pointer p) {
    hw4::release((void*)thrust::raw_pointer_cast(p), hw4::DEVICE_MEMORY, {"Thrust", 0});
}
}  // namespace sequential
}  // namespace detail
}  // namespace system
THRUST_NAMESPACE_END
