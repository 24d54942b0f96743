/* device.cc -- the device that is simulated, errors, and failures on request.
 *
 *   CUDASIM_MEMORY=bytes    of the device (2 GiB)
 *   CUDASIM_ARCH=90|86|80|70  compute capability (90)
 *   CUDASIM_DEVICES=n       devices to be seen (1); a process uses one of them
 *   CUDASIM_DRIVER=none     no driver: every call fails; or its version, 13000
 *   CUDASIM_FAIL=call:nth:error,...   the nth call of `call` fails; launch:KERNEL:nth:error
 *
 * The one idea: a failure that was asked for takes the way that a real one takes, so errors that
 * CUDA finds while work runs come later, and the device is lost then.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <atomic>
#include <map>

#include "sim.h"

namespace
{

struct Row {
    cudaError_t error;
    const char *name, *text;
};

const Row rows[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error" },
    { cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
      "invalid configuration argument" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
      "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
      "CUDA-capable device(s) is/are busy or unavailable" },
    { cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage",
      "device kernel image is invalid" },
    { cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
      "no kernel image is available for execution on the device" },
    { cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable",
      "uncorrectable ECC error encountered" },
    { cudaErrorUnsupportedPtxVersion, "cudaErrorUnsupportedPtxVersion",
      "the provided PTX was compiled with an unsupported toolchain." },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
      "an illegal memory access was encountered" },
    { cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
      "too many resources requested for launch" },
    { cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated" },
    { cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered" },
    { cudaErrorHardwareStackError, "cudaErrorHardwareStackError", "hardware stack error" },
    { cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
      "an illegal instruction was encountered" },
    { cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address" },
    { cudaErrorInvalidAddressSpace, "cudaErrorInvalidAddressSpace",
      "operation not supported on global/shared address space" },
    { cudaErrorInvalidPc, "cudaErrorInvalidPc", "invalid program counter" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted" },
    { cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported" },
    { cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
      "system has unsupported display driver / cuda driver combination" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
      "operation not permitted when stream is capturing" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture" },
    { cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
      "capture was not initiated in this stream" },
    { cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
      "capturing stream has unjoined work" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};

struct Failure {
    std::string call, error;
    int nth;
};

pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
std::vector<Failure> failures;
std::map<std::string, int> calls;
std::atomic<uint64_t> n_calls; /* of whatever function */
cudaError_t last_error;
int device_set, driver = 13000, devices = 1, arch = 90;
size_t total = (size_t)2 << 30;

size_t number(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    const size_t n = strtoull(text, &end, 10);
    if (*end)
        cudasim_report("%s=%s: a number is wanted", name, text);
    return n;
}

void read_failures(const char *text)
{
    std::string rest = text;
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        const std::string one = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        const size_t error = one.rfind(':'), nth = error ? one.rfind(':', error - 1) : 0;
        if (error == std::string::npos || nth == std::string::npos || !nth)
            cudasim_report("CUDASIM_FAIL: %s is not call:nth:error", one.c_str());
        failures.push_back({ one.substr(0, nth), one.substr(error + 1),
                             atoi(one.substr(nth + 1, error - nth - 1).c_str()) });
    }
}

void init(void)
{
    static bool done;
    if (done)
        return;
    done = true;
    const char *fail = getenv("CUDASIM_FAIL"), *version = getenv("CUDASIM_DRIVER");
    if (fail)
        read_failures(fail);
    driver = version && !strcmp(version, "none") ? 0 : (int)number("CUDASIM_DRIVER", 13000);
    devices = (int)number("CUDASIM_DEVICES", 1);
    total = number("CUDASIM_MEMORY", total);
    arch = (int)number("CUDASIM_ARCH", 90);
    if (arch != 70 && arch != 80 && arch != 86 && arch != 90)
        cudasim_report("CUDASIM_ARCH=%d: 90, 86, 80 or 70 is wanted", arch);
    sim_symbols_init();
    sim_memory_init();
    sim_traffic_init(); /* written when all has run */
    sim_stream_init();
}

} // namespace

cudaError_t sim_sticky;

SimLock::SimLock()
{
    pthread_mutex_lock(&mutex);
    init();
    if (cudasim_in_kernel())
        cudasim_report("%s calls a function of the host's interface", sim_where().c_str());
}

SimLock::~SimLock() { pthread_mutex_unlock(&mutex); }

uint64_t cudasim_calls(void) { return n_calls; }

void sim_rest(void)
{
    sim_memory_open(false);
    pthread_mutex_unlock(&mutex);
    usleep(100);
    pthread_mutex_lock(&mutex);
}

const char *cudasim_injected(const char *call)
{
    SimLock lock;
    const int n = ++calls[call];
    for (const Failure &f : failures)
        if (f.call == call && f.nth == n)
            return f.error.c_str();
    return NULL;
}

cudaError_t sim_injected_error(const char *call)
{
    const char *name = cudasim_injected(call);
    if (!name)
        return cudaSuccess;
    for (const Row &row : rows)
        if (!strcmp(row.name, name))
            return row.error;
    cudasim_report("CUDASIM_FAIL: the simulator has no error %s", name);
}

bool sim_asynchronous(cudaError_t error)
{
    return error == cudaErrorLaunchFailure || error == cudaErrorIllegalAddress
           || error == cudaErrorMisalignedAddress || error == cudaErrorLaunchTimeout
           || error == cudaErrorECCUncorrectable || error == cudaErrorAssert
           || error == cudaErrorHardwareStackError || error == cudaErrorIllegalInstruction
           || error == cudaErrorInvalidAddressSpace || error == cudaErrorInvalidPc;
}

cudaError_t sim_call_error(const char *call)
{
    n_calls++;
    if (sim_sticky)
        return sim_sticky;
    if (driver < CUDART_VERSION && strcmp(call, "cudaRuntimeGetVersion"))
        return cudaErrorInsufficientDriver;
    if (!devices && strcmp(call, "cudaRuntimeGetVersion"))
        return cudaErrorNoDevice;
    const cudaError_t error = sim_injected_error(call);
    if (sim_asynchronous(error))
        sim_stick(error);
    return error;
}

cudaError_t sim_result(cudaError_t error)
{
    if (error && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

void sim_stick(cudaError_t error) { sim_sticky = last_error = error; }
void cudasim_work_failed(cudaError_t error) { sim_stick(error); }
size_t sim_total_memory(void) { return total; }
size_t sim_shared_most(void)
{
    return (size_t)(arch == 90 ? 227 : arch == 86 ? 99 : arch == 80 ? 163 : 96) << 10;
}

int cudasim_arch(void)
{
    init();
    return arch;
}

/* ---- the interface --------------------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t error)
{
    for (const Row &row : rows)
        if (row.error == error)
            return row.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const Row &row : rows)
        if (row.error == error)
            return row.text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    SimLock lock;
    const cudaError_t error = sim_sticky ? sim_sticky : last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    SimLock lock;
    return sim_sticky ? sim_sticky : last_error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    SIM_CALL("cudaGetDeviceCount");
    *count = devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    static int chosen = -1;
    SIM_CALL("cudaSetDevice");
    if (device < 0 || device >= devices)
        return sim_result(cudaErrorInvalidDevice);
    if (chosen >= 0 && chosen != device)
        cudasim_report("cudaSetDevice(%d) after cudaSetDevice(%d): the simulator has one device in "
                       "a process",
                       device, chosen);
    chosen = device_set = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    SIM_CALL("cudaGetDevice");
    *device = device_set;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    SimLock lock;
    const cudaError_t error = sim_injected_error("cudaDriverGetVersion");
    *version = driver; /* 0: there is none, which is no error */
    return sim_result(error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    SIM_CALL("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_CALL("cudaDeviceGetStreamPriorityRange");
    *least = 0, *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int device)
{
    SIM_CALL("cudaDeviceGetPCIBusId");
    snprintf(text, (size_t)len, "0000:%02X:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    SIM_CALL("cudaGetDeviceProperties");
    if (device < 0 || device >= devices)
        return sim_result(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "simulated device %d.%d", arch / 10, arch % 10);
    memset(prop->uuid.bytes, device + 1, sizeof prop->uuid.bytes);
    prop->totalGlobalMem = total;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = sim_shared_most();
    prop->reservedSharedMemPerBlock = 1 << 10;
    prop->sharedMemPerMultiprocessor = sim_shared_most() + (1 << 10);
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024, prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 0x7fffffff, prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = arch / 10, prop->minor = arch % 10;
    prop->multiProcessorCount = 4;
    prop->l2CacheSize = 4 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->memoryBusWidth = 5120;
    prop->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    SIM_CALL("cudaDeviceGetAttribute");
    if (const cudaError_t error = cudaGetDeviceProperties(&p, device))
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    default: cudasim_report("cudaDeviceGetAttribute: the simulator has no attribute %d", attribute);
    }
    return cudaSuccess;
}
