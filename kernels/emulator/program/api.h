// CUDA's runtime library, as programs call it. All is done at once: streams are always empty.
#pragma once

enum cudaError_t {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9, cudaErrorInvalidPitchValue = 12, cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17, cudaErrorInvalidMemcpyDirection = 21, cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101, cudaErrorInvalidResourceHandle = 400, cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704, cudaErrorIllegalAddress = 700, cudaErrorLaunchOutOfResources = 701,
    cudaErrorCooperativeLaunchTooLarge = 720, cudaErrorAssert = 710, cudaErrorMisalignedAddress = 716, cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801, cudaErrorUnknown = 999
};
typedef cudaError_t cudaError;
enum cudaMemcpyKind {
    cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
typedef struct CUstream_st { int gpu; }* cudaStream_t;
typedef struct CUevent_st { double at; bool recorded; }* cudaEvent_t;
#define cudaStreamLegacy ((cudaStream_t)1)
#define cudaStreamPerThread ((cudaStream_t)2)
enum : unsigned {
    cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4,
    cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2, cudaHostRegisterReadOnly = 8,
    cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2, cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4, cudaDeviceMapHost = 8, cudaDeviceLmemResizeToMax = 16, cudaMemAttachGlobal = 1,
    cudaMemAttachHost = 2, cudaOccupancyDefault = 0
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte
};
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
enum cudaLimit {
    cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth,
    cudaLimitDevRuntimePendingLaunchCount, cudaLimitMaxL2FetchGranularity, cudaLimitPersistingL2CacheSize
};
enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1, cudaMemAdviseUnsetReadMostly, cudaMemAdviseSetPreferredLocation,
    cudaMemAdviseUnsetPreferredLocation, cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes,
        preferredShmemCarveout;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6, cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrTotalConstantMemory = 9, cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13, cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrConcurrentKernels = 31, cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38, cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83, cudaDevAttrConcurrentManagedAccess = 89, cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97, cudaDevAttrMemoryPoolsSupported = 115
};
struct cudaUUID_t { char bytes[16]; };
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerMultiprocessor, sharedMemPerBlockOptin, reservedSharedMemPerBlock,
        totalConstMem, memPitch, textureAlignment, surfaceAlignment;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate, major, minor,
        multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize, persistingL2CacheMaxSize,
        memoryClockRate, memoryBusWidth, concurrentKernels, asyncEngineCount, deviceOverlap, canMapHostMemory, integrated,
        unifiedAddressing, managedMemory, concurrentManagedAccess, pageableMemoryAccess, regsPerMultiprocessor,
        cooperativeLaunch, computeMode, kernelExecTimeoutEnabled, ECCEnabled, tccDriver, pciBusID, pciDeviceID, pciDomainID,
        globalL1CacheSupported, localL1CacheSupported, isMultiGpuBoard, multiGpuBoardGroupID, streamPrioritiesSupported;
    char gcnArchName[256];
};

namespace emu {
extern int host_works;  // not 0: the host does what a library has a GPU do, on its memory
}
namespace hw4 {
struct Place {
    const char* file;
    int line;
};
#define HW4_FROM hw4::Place from = {__builtin_FILE(), __builtin_LINE()}

enum Memory { DEVICE_MEMORY, PINNED_MEMORY, MANAGED_MEMORY };
cudaError_t allocate(void** p, size_t bytes, const char* words, Memory, Place);
cudaError_t release(void* p, Memory, Place);
void register_host(const void* p, size_t bytes);
cudaError_t copy(const char* what, void* to, const void* from_memory, size_t bytes, cudaMemcpyKind, Place);
cudaError_t copy_rows(const char* what, void* to, size_t to_pitch, const void* from_memory, size_t from_pitch,
                      size_t width, size_t height, cudaMemcpyKind, Place);
cudaError_t fill(void* to, int value, size_t bytes, Place);
cudaError_t copy_symbol(const char* what, void* symbol, size_t size, size_t offset, void* to, const void* from_memory,
                        size_t bytes, cudaMemcpyKind, Place);
// A function of a library is to read or write a GPU's memory: false, and a finding, if it may not.
bool library_touches(const void* p, size_t bytes, bool write, const char* what, Place);
cudaError_t attributes(cudaPointerAttributes*, const void* p);
cudaError_t fail(cudaError_t);
cudaError_t last_error(bool forget);
cudaError_t synchronize();
cudaError_t count_gpus(int*);
cudaError_t choose_gpu(int, Place);
int chosen_gpu();
cudaError_t enable_peer(int);
cudaError_t properties(cudaDeviceProp*, int);
cudaError_t attribute(int*, cudaDeviceAttr, int);
cudaError_t allow_dynamic(int bytes, Place);
int blocks_of_multiprocessor(int threads, size_t shared);
size_t free_memory();
double seconds();

void run(dim3 grid, dim3 block, size_t shared, const char* name, Place, void (*call)(void*), void* context, size_t bytes,
         bool cooperative);
template <class F, class... A> struct Call {
    F f;
    std::tuple<A...> arguments;
    EMU_UNWATCHED static void each(void* context) {
        Call& mine = *(Call*)context;
        std::apply(mine.f, mine.arguments);
    }
};
struct Launch {
    dim3 grid, block;
    size_t shared;
    const char* name;
    Place from;
    bool cooperative;
    template <class F, class... A> void operator()(F f, A... a) const {
        Call<F, A...> call{f, std::tuple<A...>(a...)};
        run(grid, block, shared, name, from, Call<F, A...>::each, &call, sizeof call, cooperative);
    }
};
struct Kernel {
    const char* name;
    Place from;
    Launch with(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) const {
        return {grid, block, shared, name, from, false};
    }
    template <class F, class... A>
    void launch(F f, dim3 grid, dim3 block, size_t shared, cudaStream_t, A... a) const {
        with(grid, block, shared)(f, a...);
    }
};
template <class... P, size_t... I>
cudaError_t launch_by_pointers(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared, Place from,
                               bool cooperative, std::index_sequence<I...>) {
    const char* name = cooperative ? "cudaLaunchCooperativeKernel" : "cudaLaunchKernel";
    Launch{grid, block, shared, name, from, cooperative}([=](auto&... a) { kernel(a...); }, *(P*)arguments[I]...);
    return last_error(false);
}
}  // namespace hw4

const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);

// ---- Memory. A macro gives an allocation the name that its variable has.

#define cudaMalloc(...) hw4_malloc(#__VA_ARGS__, hw4::DEVICE_MEMORY, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
#define cudaMallocManaged(...) hw4_malloc(#__VA_ARGS__, hw4::MANAGED_MEMORY, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
#define cudaMallocHost(...) hw4_malloc(#__VA_ARGS__, hw4::PINNED_MEMORY, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
#define cudaHostAlloc(...) hw4_malloc(#__VA_ARGS__, hw4::PINNED_MEMORY, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
#define cudaMallocAsync(p, n, ...) hw4_malloc(#p, hw4::DEVICE_MEMORY, {__builtin_FILE(), __builtin_LINE()}, p, n)
#define cudaMallocPitch(...) hw4_malloc_pitch(#__VA_ARGS__, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
template <class T>
inline cudaError_t hw4_malloc(const char* words, hw4::Memory memory, hw4::Place from, T p, size_t bytes, unsigned = 0) {
    return hw4::allocate((void**)p, bytes, words, memory, from);
}
template <class T>
inline cudaError_t hw4_malloc_pitch(const char* words, hw4::Place from, T p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return hw4::allocate((void**)p, *pitch * height, words, hw4::DEVICE_MEMORY, from);
}
// Rows, and slices of rows, whose beginnings are as far apart as the pitch says. Widths are bytes.
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr {
    void* ptr;
    size_t pitch, xsize, ysize;
};
inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* p, size_t pitch, size_t x, size_t y) { return {p, pitch, x, y}; }
#define cudaMalloc3D(...) hw4_malloc_3d(#__VA_ARGS__, {__builtin_FILE(), __builtin_LINE()}, __VA_ARGS__)
inline cudaError_t hw4_malloc_3d(const char* words, hw4::Place from, cudaPitchedPtr* p, cudaExtent e) {
    *p = {nullptr, (e.width + 511) / 512 * 512, e.width, e.height};
    return hw4::allocate(&p->ptr, p->pitch * e.height * e.depth, words, hw4::DEVICE_MEMORY, from);
}
struct cudaMemcpy3DParms {
    cudaPos srcPos;
    cudaPitchedPtr srcPtr;
    cudaPos dstPos;
    cudaPitchedPtr dstPtr;
    cudaExtent extent;
    cudaMemcpyKind kind;
};
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p, HW4_FROM) {
    auto slice = [](const cudaPitchedPtr& of, const cudaPos& at, size_t z) {
        return (char*)of.ptr + ((at.z + z) * of.ysize + at.y) * of.pitch + at.x;
    };
    cudaError_t e = cudaSuccess;
    for (size_t z = 0; z < p->extent.depth && e == cudaSuccess; z++)
        e = hw4::copy_rows("cudaMemcpy3D", slice(p->dstPtr, p->dstPos, z), p->dstPtr.pitch, slice(p->srcPtr, p->srcPos, z),
                           p->srcPtr.pitch, p->extent.width, p->extent.height, p->kind, from);
    return e;
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t = nullptr, HW4_FROM) {
    return cudaMemcpy3D(p, from);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr p, int value, cudaExtent extent, HW4_FROM) {
    cudaError_t e = cudaSuccess;
    for (size_t y = 0; y < extent.height * extent.depth && e == cudaSuccess; y++)
        e = hw4::fill((char*)p.ptr + (y / extent.height * p.ysize + y % extent.height) * p.pitch, value, extent.width, from);
    return e;
}
inline cudaError_t cudaFree(void* p, HW4_FROM) { return hw4::release(p, hw4::DEVICE_MEMORY, from); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t, HW4_FROM) { return hw4::release(p, hw4::DEVICE_MEMORY, from); }
inline cudaError_t cudaFreeHost(void* p, HW4_FROM) { return hw4::release(p, hw4::PINNED_MEMORY, from); }
inline cudaError_t cudaHostRegister(void* p, size_t n, unsigned) { return hw4::register_host(p, n), cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
template <class T> inline cudaError_t cudaHostGetDevicePointer(T** p, void* host, unsigned) {
    *p = (T*)host;
    return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) { return hw4::attributes(a, p); }
inline cudaError_t cudaMemcpy(void* to, const void* src, size_t n, cudaMemcpyKind kind, HW4_FROM) {
    return hw4::copy("cudaMemcpy", to, src, n, kind, from);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* src, size_t n, cudaMemcpyKind kind, cudaStream_t = nullptr,
                                   HW4_FROM) {
    return hw4::copy("cudaMemcpyAsync", to, src, n, kind, from);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* src, int, size_t n, HW4_FROM) {
    return hw4::copy("cudaMemcpyPeer", to, src, n, cudaMemcpyDeviceToDevice, from);
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* src, int, size_t n, cudaStream_t = nullptr, HW4_FROM) {
    return hw4::copy("cudaMemcpyPeerAsync", to, src, n, cudaMemcpyDeviceToDevice, from);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                                cudaMemcpyKind kind, HW4_FROM) {
    return hw4::copy_rows("cudaMemcpy2D", to, to_pitch, src, src_pitch, width, height, kind, from);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* src, size_t src_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr, HW4_FROM) {
    return hw4::copy_rows("cudaMemcpy2DAsync", to, to_pitch, src, src_pitch, width, height, kind, from);
}
inline cudaError_t cudaMemset(void* to, int value, size_t n, HW4_FROM) { return hw4::fill(to, value, n, from); }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t = nullptr, HW4_FROM) {
    return hw4::fill(to, value, n, from);
}
inline cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height, HW4_FROM) {
    cudaError_t e = cudaSuccess;
    for (size_t y = 0; y < height && e == cudaSuccess; y++) e = hw4::fill((char*)to + y * pitch, value, width, from);
    return e;
}
template <class S>
inline cudaError_t cudaMemcpyToSymbol(S& symbol, const void* src, size_t n, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice, HW4_FROM) {
    return hw4::copy_symbol("cudaMemcpyToSymbol", (void*)&symbol, sizeof symbol, offset, nullptr, src, n, kind, from);
}
template <class S>
inline cudaError_t cudaMemcpyToSymbolAsync(S& symbol, const void* src, size_t n, size_t offset = 0,
                                           cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t = nullptr,
                                           HW4_FROM) {
    return hw4::copy_symbol("cudaMemcpyToSymbolAsync", (void*)&symbol, sizeof symbol, offset, nullptr, src, n, kind, from);
}
template <class S>
inline cudaError_t cudaMemcpyFromSymbol(void* to, S& symbol, size_t n, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost, HW4_FROM) {
    return hw4::copy_symbol("cudaMemcpyFromSymbol", (void*)&symbol, sizeof symbol, offset, to, nullptr, n, kind, from);
}
template <class S>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, S& symbol, size_t n, size_t offset = 0,
                                             cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr,
                                             HW4_FROM) {
    return hw4::copy_symbol("cudaMemcpyFromSymbolAsync", (void*)&symbol, sizeof symbol, offset, to, nullptr, n, kind, from);
}
template <class T, class S> inline cudaError_t cudaGetSymbolAddress(T** p, S& symbol) {
    *p = (T*)&symbol;
    return cudaSuccess;
}
template <class S> inline cudaError_t cudaGetSymbolSize(size_t* n, S& symbol) { return *n = sizeof symbol, cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* total) {
    cudaDeviceProp p;
    hw4::properties(&p, hw4::chosen_gpu());
    *left = hw4::free_memory(), *total = p.totalGlobalMem;
    return cudaSuccess;
}
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }

// ---- Devices and errors

inline cudaError_t cudaDeviceSynchronize() { return hw4::synchronize(); }
inline cudaError_t cudaThreadSynchronize() { return hw4::synchronize(); }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaThreadExit() { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return hw4::last_error(true); }
inline cudaError_t cudaPeekAtLastError() { return hw4::last_error(false); }
inline cudaError_t cudaGetDeviceCount(int* n) { return hw4::count_gpus(n); }
inline cudaError_t cudaSetDevice(int n, HW4_FROM) { return hw4::choose_gpu(n, from); }
inline cudaError_t cudaGetDevice(int* n) { return *n = hw4::chosen_gpu(), cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int n, unsigned) { return hw4::enable_peer(n); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 1, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int n) { return hw4::properties(p, n); }
inline cudaError_t cudaDeviceGetAttribute(int* x, cudaDeviceAttr what, int n) { return hw4::attribute(x, what, n); }
inline cudaError_t cudaChooseDevice(int* n, const cudaDeviceProp*) { return *n = 0, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* n) { return *n = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* n) { return *n = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t* n, cudaLimit) { return *n = 1 << 20, cudaSuccess; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) { return *least = *most = 0, cudaSuccess; }
template <class F> inline cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> inline cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> inline cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute what, int value, HW4_FROM) {
    return what == cudaFuncAttributeMaxDynamicSharedMemorySize ? hw4::allow_dynamic(value, from) : cudaSuccess;
}
template <class F> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F) {
    *a = {};
    a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->maxDynamicSharedSizeBytes = 48 << 10;
    return cudaSuccess;
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0, int limit = 0) {
    cudaDeviceProp p;
    hw4::properties(&p, hw4::chosen_gpu());
    *block = limit ? (limit < 256 ? limit : 256) : 256, *grid = p.multiProcessorCount * 4;
    return cudaSuccess;
}
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, F, int threads, size_t shared) {
    return *n = hw4::blocks_of_multiprocessor(threads, shared), cudaSuccess;
}
template <class... P>
inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                    cudaStream_t = nullptr, HW4_FROM) {
    return hw4::launch_by_pointers(kernel, grid, block, arguments, shared, from, false, std::index_sequence_for<P...>());
}
template <class... P>
inline cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                                               size_t shared = 0, cudaStream_t = nullptr, HW4_FROM) {
    return hw4::launch_by_pointers(kernel, grid, block, arguments, shared, from, true, std::index_sequence_for<P...>());
}

// ---- Streams and events

inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = new CUstream_st{hw4::chosen_gpu()}, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return cudaStreamCreate(s); }
inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return hw4::synchronize(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return hw4::synchronize(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t = 0, unsigned = 0) { return cudaSuccess; }
template <class F> inline cudaError_t cudaLaunchHostFunc(cudaStream_t, F f, void* data) { return f(data), cudaSuccess; }
template <class F> inline cudaError_t cudaStreamAddCallback(cudaStream_t s, F f, void* data, unsigned) {
    return f(s, cudaSuccess, data), cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new CUevent_st{}, cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
inline cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t = nullptr) {
    return e->at = hw4::seconds(), e->recorded = true, cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return hw4::synchronize(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
    if (!a->recorded || !b->recorded) return hw4::fail(cudaErrorInvalidResourceHandle);
    return *ms = (float)((b->at - a->at) * 1e3), cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

