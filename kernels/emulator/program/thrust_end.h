// Behind Thrust's own headers.
#pragma once
#pragma pop_macro("__restrict")
#pragma pop_macro("__launch_bounds__")
#pragma pop_macro("__forceinline__")
#pragma pop_macro("__noinline__")
#pragma pop_macro("__align__")
#pragma pop_macro("__managed__")
#pragma pop_macro("__constant__")
#pragma pop_macro("__shared__")
#pragma pop_macro("__global__")
#pragma pop_macro("__device__")
#pragma pop_macro("__host__")
#pragma pop_macro("__CUDACC_VER_MINOR__")
#pragma pop_macro("__CUDACC_VER_MAJOR__")
#pragma pop_macro("__CUDA_ARCH__")
#pragma pop_macro("__NVCC__")
#pragma pop_macro("__CUDACC__")

namespace hw4 {
// What Thrust does with a GPU's memory, loads and stores of the host do.
inline const int thrust_works = ++emu::host_works;
}  // namespace hw4

// Streams are always empty: a policy for one is the host's.
THRUST_NAMESPACE_BEGIN
namespace cuda {
struct par_t : thrust::system::cpp::detail::execution_policy<thrust::system::cpp::tag> {
    const decltype(thrust::device)& on(cudaStream_t) const { return thrust::device; }
    template <class A> const decltype(thrust::device)& operator()(A&&) const { return thrust::device; }
    operator const decltype(thrust::device)&() const { return thrust::device; }
};
inline const par_t par, par_nosync;
}  // namespace cuda
THRUST_NAMESPACE_END
