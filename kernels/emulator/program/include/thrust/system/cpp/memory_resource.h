// Thrust's vectors have a GPU's memory, which is watched. In place of the host back end's own file.
#pragma once
#include <new>
#include <thrust/mr/fancy_pointer_resource.h>
#include <thrust/mr/memory_resource.h>
#include <thrust/system/cpp/pointer.h>

namespace hw4 {
template <Memory M> class ThrustMemory final : public thrust::mr::memory_resource<> {
public:
    void* do_allocate(std::size_t bytes, std::size_t = 0) override {
        void* p = nullptr;
        if (hw4::allocate(&p, bytes, "vector", M, {"Thrust", 0}) != cudaSuccess) throw std::bad_alloc();
        return p;
    }
    void do_deallocate(void* p, std::size_t, std::size_t = 0) override { hw4::release(p, M, {"Thrust", 0}); }
};
}  // namespace hw4
THRUST_NAMESPACE_BEGIN
namespace system {
namespace cpp {
using memory_resource = thrust::mr::fancy_pointer_resource<hw4::ThrustMemory<hw4::DEVICE_MEMORY>, thrust::cpp::pointer<void>>;
using universal_memory_resource =
    thrust::mr::fancy_pointer_resource<hw4::ThrustMemory<hw4::MANAGED_MEMORY>, thrust::cpp::universal_pointer<void>>;
using universal_host_pinned_memory_resource = universal_memory_resource;
}  // namespace cpp
}  // namespace system
namespace cpp {
using thrust::system::cpp::memory_resource;
using thrust::system::cpp::universal_host_pinned_memory_resource;
using thrust::system::cpp::universal_memory_resource;
}  // namespace cpp
THRUST_NAMESPACE_END
