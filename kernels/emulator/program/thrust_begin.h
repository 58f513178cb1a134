// Before Thrust's own headers, which are read as a host compiler reads them: the back end is the host's, and runs at once.
#pragma once
#pragma push_macro("__CUDACC__")
#pragma push_macro("__NVCC__")
#pragma push_macro("__CUDA_ARCH__")
#pragma push_macro("__CUDACC_VER_MAJOR__")
#pragma push_macro("__CUDACC_VER_MINOR__")
#pragma push_macro("__host__")
#pragma push_macro("__device__")
#pragma push_macro("__global__")
#pragma push_macro("__shared__")
#pragma push_macro("__constant__")
#pragma push_macro("__managed__")
#pragma push_macro("__align__")
#pragma push_macro("__noinline__")
#pragma push_macro("__forceinline__")
#pragma push_macro("__launch_bounds__")
#pragma push_macro("__restrict")
#undef __CUDACC__
#undef __NVCC__
#undef __CUDA_ARCH__
#undef __CUDACC_VER_MAJOR__
#undef __CUDACC_VER_MINOR__
#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __align__
#undef __noinline__
#undef __forceinline__
#undef __launch_bounds__
#undef __restrict
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#define THRUST_IGNORE_DEPRECATED_CPP_DIALECT
#define CCCL_DISABLE_FP16_SUPPORT
#define CCCL_DISABLE_BF16_SUPPORT
#define CCCL_DISABLE_FP8_SUPPORT

#include <thrust/execution_policy.h>
