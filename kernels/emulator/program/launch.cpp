// Launches, GPUs and errors.
#include "session.h"

namespace hw4 {
void note_runner();
static thread_local int gpu;            // that this host thread has chosen
static thread_local cudaError_t last;   // the error of its last call that failed
static cudaError_t sticky;              // of a kernel that was stopped: nothing works any more
static size_t dynamic_limit = 48 << 10;

cudaError_t fail(cudaError_t e) { return last = e; }
cudaError_t last_error(bool forget) {
    const cudaError_t e = sticky ? sticky : last;
    if (forget) last = cudaSuccess;
    error_unasked = false;
    return e;
}
cudaError_t synchronize() { return sticky; }
double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Which shared arrays are another kernel's: `name` as it is launched, with namespaces and a template's arguments.
static void note_owner(std::string name) {
    name = name.substr(0, name.find_first_of("<"));
    if (const size_t colon = name.rfind(':'); colon != std::string::npos) name.erase(0, colon + 1);
    const bool known = std::any_of(emu::statics.begin(), emu::statics.end(), [&](auto& one) { return one.owner == name; });
    for (emu::Static& one : emu::statics) one.foreign = known && !one.owner.empty() && one.owner != name;
}
void run(dim3 g, dim3 b, size_t shared, const char* name, Place from, void (*call)(void*), void* context, size_t bytes,
         bool cooperative) {
    begin();
    const std::lock_guard<std::recursive_mutex> alone(one_at_a_time());
    if (emu::current != emu::NOBODY) {
        say("not supported", "%s at %s is launched by a kernel: that is not there on the CPU", name, text_of(from).c_str());
        emu::stop_kernel();
    }
    if (sticky) return;
    const unsigned long long threads = (unsigned long long)b.x * b.y * b.z, blocks = (unsigned long long)g.x * g.y * g.z;
    const size_t allowed = settings.lanes == 64 ? settings.shared_limit : dynamic_limit;  // AMD's GPUs need not be asked
    const char* why = nullptr;
    char text[200];
    cudaError_t error = cudaErrorInvalidConfiguration;
    if (!blocks) why = "the grid has no blocks";
    else if (!threads) why = "a block has no threads";
    else if (threads > 1024) why = "a block has more than 1,024 threads";
    else if (b.z > 64) why = "a block has more than 64 threads in z";
    else if (g.x > INT_MAX || g.y > 65535 || g.z > 65535) why = "the grid has too many blocks in one direction";
    else if (shared > allowed) {
        snprintf(text, sizeof text, "it asks for %zu bytes of dynamic shared memory, and %zu are allowed%s", shared, allowed,
                 shared <= settings.shared_limit ? " without cudaFuncSetAttribute" : "");
        why = text, error = cudaErrorInvalidValue;
    }
    const unsigned resident =
        why ? 0 : (unsigned)std::max(1, blocks_of_multiprocessor((int)threads, shared) * settings.multiprocessors);
    if (!why && cooperative && blocks > resident) {
        snprintf(text, sizeof text, "a cooperative launch has at most as many blocks as are there at once, %u", resident);
        why = text, error = cudaErrorCooperativeLaunchTooLarge;
    }
    if (why) {
        say("launch", "%s<<<(%u, %u, %u), (%u, %u, %u)>>> at %s does not start: %s", name, g.x, g.y, g.z, b.x, b.y, b.z,
            text_of(from).c_str(), why);
        error_unasked = true;
        fail(error);
        return;
    }
    const unsigned number = count_launch(name, from, g, b, shared);
    running.kernel = name, running.from = from, running.gpu = gpu, running.blocks = blocks, running.launches++;
    emu::block_count[0] = 0, emu::block_count[1] = blocks, emu::block_count[2] = running.launches;
    note_runner();
    note_owner(name);
    const emu::Ended ended = emu::run_grid({{g.x, g.y, g.z}, {b.x, b.y, b.z}, (unsigned)shared, settings.lanes, settings.order,
                                            settings.seed, call, context, bytes, gpu, cooperative, resident,
                                            false, number});
    if (ended == emu::ASKED_TO_STOP) out_of_time();
    running.kernel = nullptr;
    if (ended == emu::NO_MEMORY) {
        say("memory", "%s at %s does not start: there is no memory for its threads' stacks", name, text_of(from).c_str());
        fail(cudaErrorMemoryAllocation);
    }
    if (ended == emu::GIVEN_UP) sticky = assertion_failed ? cudaErrorAssert : cudaErrorLaunchFailure;
}

// ---- GPUs

cudaError_t count_gpus(int* n) { return *n = settings.gpus, cudaSuccess; }
cudaError_t choose_gpu(int n, Place from) {
    if (n < 0 || n >= settings.gpus) {
        say("GPU", "cudaSetDevice(%d) at %s: there %s", n, text_of(from).c_str(),
            settings.gpus == 1 ? "is one GPU, 0" : ("are " + std::to_string(settings.gpus) + " GPUs, from 0 on").c_str());
        return fail(cudaErrorInvalidDevice);
    }
    return gpu = n, cudaSuccess;
}
int chosen_gpu() { return gpu; }
cudaError_t enable_peer(int other) {
    if (other < 0 || other >= settings.gpus || other == gpu) return fail(cudaErrorInvalidDevice);
    if (emu::peers[gpu][other]) return fail(cudaErrorPeerAccessAlreadyEnabled);
    return emu::peers[gpu][other] = true, cudaSuccess;
}
cudaError_t properties(cudaDeviceProp* p, int n) {
    if (n < 0 || n >= settings.gpus) return fail(cudaErrorInvalidDevice);
    *p = {};
    snprintf(p->name, sizeof p->name, "%s", settings.name.c_str());
    snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", settings.architecture.c_str());
    p->major = settings.cc / 10, p->minor = settings.cc % 10, p->multiProcessorCount = settings.multiprocessors;
    p->totalGlobalMem = settings.memory, p->totalConstMem = 64 << 10, p->memPitch = INT_MAX;
    p->sharedMemPerBlock = settings.lanes == 64 ? 64 << 10 : 48 << 10, p->sharedMemPerBlockOptin = settings.shared_limit;
    p->sharedMemPerMultiprocessor = settings.shared_multiprocessor, p->reservedSharedMemPerBlock = settings.cc >= 80 ? 1024 : 0;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->warpSize = (int)settings.lanes, p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT_MAX, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = settings.cc == 75 ? 1024 : settings.cc == 86 || settings.cc == 89 || settings.cc == 120 ? 1536 : 2048;
    p->maxBlocksPerMultiProcessor = settings.cc == 75 || settings.cc == 86 ? 16 : 32;
    p->clockRate = 1410000, p->memoryClockRate = 1215000, p->memoryBusWidth = 5120, p->l2CacheSize = 40 << 20;
    p->concurrentKernels = p->unifiedAddressing = p->managedMemory = p->cooperativeLaunch = p->canMapHostMemory = p->deviceOverlap = 1;
    p->asyncEngineCount = 2, p->textureAlignment = 512;
    return cudaSuccess;
}
cudaError_t attribute(int* x, cudaDeviceAttr what, int n) {
    cudaDeviceProp p;
    if (properties(&p, n) != cudaSuccess) return cudaErrorInvalidDevice;
    switch (what) {
    case cudaDevAttrMaxThreadsPerBlock: *x = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *x = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *x = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *x = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *x = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *x = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *x = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *x = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrTotalConstantMemory: *x = (int)p.totalConstMem; break;
    case cudaDevAttrWarpSize: *x = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *x = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *x = p.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *x = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *x = p.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *x = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *x = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *x = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *x = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *x = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *x = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *x = p.regsPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *x = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrConcurrentKernels: case cudaDevAttrUnifiedAddressing: case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch: *x = 1; break;
    default: *x = 0;
    }
    return cudaSuccess;
}
cudaError_t allow_dynamic(int bytes, Place from) {
    if (bytes < 0 || (size_t)bytes > settings.shared_limit) {
        say("launch", "cudaFuncSetAttribute at %s asks for %d bytes of dynamic shared memory: a block of %s has %zu at most",
            text_of(from).c_str(), bytes, settings.name.c_str(), settings.shared_limit);
        return fail(cudaErrorInvalidValue);
    }
    dynamic_limit = std::max(dynamic_limit, (size_t)bytes);
    return cudaSuccess;
}
int blocks_of_multiprocessor(int threads, size_t shared) {
    cudaDeviceProp p;
    properties(&p, 0);
    const int by_threads = p.maxThreadsPerMultiProcessor / std::max((threads + 31) / 32 * 32, 32);
    const size_t each = shared + p.reservedSharedMemPerBlock;
    const int by_shared = each ? (int)(p.sharedMemPerMultiprocessor / each) : by_threads;
    return std::min({by_threads, by_shared, p.maxBlocksPerMultiProcessor});
}
}  // namespace hw4

#define ERRORS(X)                                                                                          \
    X(cudaSuccess, "no error") X(cudaErrorInvalidValue, "invalid argument") X(cudaErrorMemoryAllocation, "out of memory") \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                                     \
    X(cudaErrorInvalidPitchValue, "invalid pitch argument") X(cudaErrorInvalidSymbol, "invalid device symbol") \
    X(cudaErrorInvalidDevice, "invalid device ordinal") X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy") \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle") X(cudaErrorLaunchFailure, "unspecified launch failure") \
    X(cudaErrorAssert, "device-side assert triggered") \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled") X(cudaErrorNotSupported, "operation not supported") \
    X(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch") \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered") X(cudaErrorNotReady, "device not ready")
const char* cudaGetErrorString(cudaError_t e) {
    switch (e) {
#define STRING(name, text) case name: return text;
        ERRORS(STRING)
    default: return "unknown error";
    }
}
const char* cudaGetErrorName(cudaError_t e) {
    switch (e) {
#define NAME(name, text) case name: return #name;
        ERRORS(NAME)
    default: return "cudaErrorUnknown";
    }
}
