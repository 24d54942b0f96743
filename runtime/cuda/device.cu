/* device.cu -- the GPU of the process: found, checked, opened; and what failing calls say.
 *
 * In: --device, what driver and GPU say of themselves. Out: RtDevice with its streams, or one
 * message and exit code 1. The one idea: everything that can be wrong with a machine is asked for
 * here, before data are read or memory is taken, in the order in which it is to be put right.
 */
#include "cuda/device.h"

#include <sched.h>

#include "cuda/exchange.h"

static RtDevice device;
static int chosen_number = -1, chosen_local = -1;
static bool chosen_tf32, opened;

void rt_device_choose(int number, int local_rank, bool tf32)
{
    chosen_number = number;
    chosen_local = local_rank;
    chosen_tf32 = tf32;
}

/* ---- what is wrong with the machine ---------------------------------------------------------- */

/* "13.0" */
static const char *version_text(int version, char text[32])
{
    snprintf(text, 32, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

enum { TOOLKIT_OLDEST = 12 }; /* whose nvcc compiles C++20 */

static void check_driver(int *driver, int *runtime)
{
    char has[32], wants[32];
    RT_CUDA_CALL(NULL, cudaRuntimeGetVersion(runtime));
    const cudaError_t error = cudaDriverGetVersion(driver);
    if (error != cudaSuccess || *driver == 0)
        rt_fail(RT_EXIT_FAIL,
                "no NVIDIA driver is loaded here, and this program needs a GPU\nhint: nvidia-smi "
                "shows whether there is one; gradcc --target=c makes a program for processors of "
                "the same model");
    if (*driver / 1000 < TOOLKIT_OLDEST)
        rt_fail(RT_EXIT_FAIL,
                "the NVIDIA driver is too old: it knows CUDA %s, programs of gradcc need %d.0 or "
                "later\nhint: a newer driver, that of CUDA %s",
                version_text(*driver, has), TOOLKIT_OLDEST, version_text(*runtime, wants));
    if (*driver / 1000 < *runtime / 1000)
        rt_fail(RT_EXIT_FAIL,
                "the NVIDIA driver is too old: it knows CUDA %s, this program was compiled with "
                "%s\nhint: a newer driver, or gradcc built and the model compiled with a CUDA "
                "toolkit of version %d",
                version_text(*driver, has), version_text(*runtime, wants), *driver / 1000);
}

/* Where a launcher shows each process one GPU, each finds its own as the first. */
static int number_of_rank(int count)
{
    if (chosen_local >= count && count > 1)
        rt_fail(RT_EXIT_USAGE,
                "this is rank %d of its host, and the program sees %d GPUs\nhint: as many ranks on "
                "a host as GPUs; CUDA_VISIBLE_DEVICES says which it sees, --device N chooses one",
                chosen_local, count);
    return chosen_local < 0 || count == 1 ? 0 : chosen_local;
}

/* The number of the GPU. */
static int check_count(int number)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        rt_fail(RT_EXIT_FAIL, "the NVIDIA driver has no GPU for this program%s%s\nhint: %s",
                visible ? ": CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "",
                visible ? "unset it, or name a GPU that nvidia-smi lists"
                        : "nvidia-smi lists those there are");
    if (error == cudaErrorInsufficientDriver)
        rt_fail(RT_EXIT_FAIL,
                "the NVIDIA driver is too old for this program\nhint: a newer driver");
    RT_CUDA_CALL(NULL, error);
    if (number >= count)
        rt_fail(RT_EXIT_USAGE, "--device %d: there %s %d GPU%s, numbered from 0", number,
                count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    return number < 0 ? number_of_rank(count) : number;
}

/* Some kernel of this program, to ask whether there is code for the GPU. */
__global__ void g_code_for_this_gpu(int *to)
{
    if (to)
        *to = 1;
}

static bool has_code(const RtDevice *d, const void *kernel, cudaFuncAttributes *about)
{
    const cudaError_t error = cudaFuncGetAttributes(about, kernel);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction
        || error == cudaErrorInvalidKernelImage || error == cudaErrorUnsupportedPtxVersion)
        return false;
    rt_cuda_check(&d->compute, "cudaFuncGetAttributes", error);
    return true;
}

/* Is the GPU one that the runtime was made for? */
static void check_code(const RtDevice *d)
{
    cudaFuncAttributes about;
    if (d->major < 8)
        rt_fail(RT_EXIT_FAIL,
                "%s, cuda:%d, has compute capability %d.%d; this program needs 8.0 (A100) or "
                "later\nhint: --device N chooses another GPU; gradcc --target=c makes a program "
                "for processors",
                d->name, d->number, d->major, d->minor);
    if (!has_code(d, (const void *)g_code_for_this_gpu, &about))
        rt_fail(RT_EXIT_FAIL,
                "the runtime in this program holds no code for %s, cuda:%d, of compute capability "
                "%d.%d\nhint: a newer driver, which makes code of the PTX in it; or gradcc built "
                "and the model compiled with a CUDA toolkit of the driver's version",
                d->name, d->number, d->major, d->minor);
}

static void fail_shared(const RtDevice *d, const char *where, size_t bytes)
{
    rt_fail(RT_EXIT_FAIL,
            "%s: rows of this line take %zu bytes of shared memory; %s, cuda:%d, has %zu for a "
            "block\nhint: --device N chooses another GPU; shorter rows, or those of 16 bits "
            "(--precision=bf16), take less",
            where, bytes, d->name, d->number, d->shared);
}

/* Can the GPU run the kernels of the emitted file? */
static void check_model(const RtDevice *d, const RtModel *m)
{
    cudaFuncAttributes about;
    if (!m->code)
        return;
    if (!has_code(d, m->code, &about))
        rt_fail(RT_EXIT_FAIL,
                "%s was compiled without code for %s, cuda:%d, of compute capability %d.%d\n"
                "hint: compile it again with gradcc --target=cuda --cuda-arch=sm_%d%d",
                m->source, d->name, d->number, d->major, d->minor, d->major, d->minor);
    if (m->row_bytes + about.sharedSizeBytes > d->shared)
        fail_shared(d, m->row_where, m->row_bytes + about.sharedSizeBytes);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void open_stream(RtDevice *d, RtStream *stream)
{
    RT_CUDA_CALL(NULL, cudaStreamCreateWithFlags(&stream->at, cudaStreamNonBlocking));
    stream->device = d;
}

static void open_device(RtDevice *d)
{
    cudaDeviceProp about;
    d->tf32 = chosen_tf32;
    d->sync = rt_environment_is("RT_CUDA_SYNC", "1");
    (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* as nvidia-smi numbers them */
    check_driver(&d->driver, &d->runtime);
    d->number = check_count(chosen_number);
    RT_CUDA_CALL(NULL, cudaGetDeviceProperties(&about, d->number));
    snprintf(d->name, sizeof d->name, "%s", about.name);
    d->major = about.major;
    d->minor = about.minor;
    d->processors = about.multiProcessorCount;
    d->bytes = about.totalGlobalMem;
    d->shared = about.sharedMemPerBlockOptin;
    RT_CUDA_CALL(NULL, cudaSetDevice(d->number));
    check_code(d);
    open_stream(d, &d->compute);
    open_stream(d, &d->copy);
}

RtDevice *rt_device(void)
{
    if (!opened) {
        opened = true;
        open_device(&device);
    }
    return &device;
}

RtStream *rt_device_stream(void) { return &rt_device()->compute; }

void *rt_device_work(RtStream *stream, size_t bytes)
{
    const RtDevice *d = stream->device;
    if (bytes > d->work_bytes)
        rt_fail(RT_EXIT_FAIL,
                "%s: %zu bytes of work space are asked for, %zu were planned: a mistake of "
                "gradcc",
                stream->where ? stream->where : "a step", bytes, d->work_bytes);
    return d->work;
}

void rt_place_start(const RtModel *m, const RtOptions *o, bool tell)
{
    rt_device_choose((int)o->device, -1, o->tf32);
    RtDevice *d = rt_device();
    check_model(d, m);
    char size[RT_BYTES_TEXT], driver[32], runtime[32];
    d->tell = d->tell || tell;
    if (tell)
        printf("device   cuda:%d, %s, %s, compute capability %d.%d, CUDA %s (driver %s)\n",
               d->number, d->name, rt_bytes((double)d->bytes, size), d->major, d->minor,
               version_text(d->runtime, runtime), version_text(d->driver, driver));
}

/* ---- failing calls --------------------------------------------------------------------------- */

static const char *hint_of(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation: return "nvidia-smi shows what else uses the memory of the GPU";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
        return "the program holds no code for this GPU: compile again with --cuda-arch=native";
    case cudaErrorLaunchTimeout: return "the GPU also drives a screen, and a kernel took too long";
    case cudaErrorECCUncorrectable: return "the memory of the GPU is faulty: take another one";
    case cudaErrorDevicesUnavailable: return "another process has the GPU for itself (nvidia-smi)";
    default: break;
    }
    return device.sync ? "nvidia-smi shows the state of the GPU"
                       : "run again with RT_CUDA_SYNC=1, which names the kernel that failed";
}

static void fail_call(const RtStream *stream, const char *call, cudaError_t error)
{
    const char *where = stream && stream->where ? stream->where : NULL;
    rt_fail(RT_EXIT_FAIL, "%s%s%s: %s (%s)\nhint: %s", where ? where : "", where ? ": " : "", call,
            cudaGetErrorString(error), cudaGetErrorName(error), hint_of(error));
}

/* An error that belongs to something that was queued before. */
static void fail_wait(const RtStream *stream, const char *call, cudaError_t error)
{
    if (device.sync || !stream->kernel)
        fail_call(stream, call, error);
    const char *kernel = stream->kernel;
    const int len = rt_kernel_name(&kernel);
    rt_fail(RT_EXIT_FAIL,
            "work on the GPU failed: %s (%s); the last that was queued is %.*s, %s\nhint: %s",
            cudaGetErrorString(error), cudaGetErrorName(error), len, kernel,
            stream->where ? stream->where : "of the runtime", hint_of(error));
}

/* Faults of a kernel that runs: from then on every call has them, whatever it was asked. */
static bool is_late(cudaError_t error)
{
    return error == cudaErrorIllegalAddress || error == cudaErrorMisalignedAddress
           || error == cudaErrorInvalidAddressSpace || error == cudaErrorIllegalInstruction
           || error == cudaErrorInvalidPc || error == cudaErrorHardwareStackError
           || error == cudaErrorAssert || error == cudaErrorLaunchFailure
           || error == cudaErrorLaunchTimeout || error == cudaErrorECCUncorrectable;
}

void rt_cuda_check(const RtStream *stream, const char *call, cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    if (is_late(error))
        fail_wait(stream ? stream : &device.compute, call, error);
    fail_call(stream, call, error);
}

/* What this stream does may wait for other ranks, for ever if one is lost: so the host asks. */
void rt_stream_wait(RtStream *stream)
{
    const bool alone = rt_ranks() == 1;
    cudaError_t error = alone ? cudaStreamSynchronize(stream->at) : cudaStreamQuery(stream->at);
    while (error == cudaErrorNotReady) {
        rt_exchange_look();
        (void)sched_yield();
        error = cudaStreamQuery(stream->at);
    }
    if (error != cudaSuccess)
        fail_wait(stream, alone ? "cudaStreamSynchronize" : "cudaStreamQuery", error);
}

void rt_event_wait(const RtStream *stream, cudaEvent_t event)
{
    const bool alone = rt_ranks() == 1;
    cudaError_t error = alone ? cudaEventSynchronize(event) : cudaEventQuery(event);
    while (error == cudaErrorNotReady) {
        rt_exchange_look();
        (void)sched_yield();
        error = cudaEventQuery(event);
    }
    if (error != cudaSuccess)
        fail_wait(stream, alone ? "cudaEventSynchronize" : "cudaEventQuery", error);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* "(g_product_rows<Out, Sum>)" is the text of an argument of a macro. */
int rt_kernel_name(const char **name)
{
    *name += **name == '(';
    return (int)strcspn(*name, "<)");
}

enum { GRID_MOST = 65535 }; /* blocks along y and z */

bool rt_launch_begin(RtStream *stream, const char *line, const char *kernel, dim3 grid)
{
    stream->where = line;
    stream->kernel = kernel;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return false;
    const int len = rt_kernel_name(&kernel);
    if (grid.x > INT32_MAX || grid.y > GRID_MOST || grid.z > GRID_MOST)
        rt_fail(RT_EXIT_FAIL,
                "%s: %.*s: a grid of %u x %u x %u blocks is larger than a GPU takes\nhint: smaller "
                "sizes, or more micro-steps (--accumulate N)",
                line, len, kernel, grid.x, grid.y, grid.z);
    rt_profile_begin(stream);
    return true;
}

void rt_launch_end(RtStream *stream, const char *kernel)
{
    char call[192];
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        rt_profile_end(stream, kernel);
    if (error == cudaSuccess && stream->device->sync)
        error = cudaStreamSynchronize(stream->at);
    if (error == cudaSuccess)
        return;
    const int len = rt_kernel_name(&kernel);
    snprintf(call, sizeof call, "cudaLaunchKernel(%.*s)", len, kernel);
    rt_cuda_check(stream, call, error);
}

void rt_allow_shared(RtStream *stream, const char *line, const void *kernel, size_t bytes)
{
    stream->where = line;
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaErrorInvalidValue)
        fail_shared(stream->device, line, bytes);
    rt_cuda_check(stream, "cudaFuncSetAttribute", error);
}

int rt_blocks(ptrdiff_t n, ptrdiff_t each)
{
    const ptrdiff_t blocks = n > 0 ? (n + each - 1) / each : 0;
    if (blocks > INT32_MAX)
        rt_fail(RT_EXIT_FAIL,
                "a grid of %td blocks is larger than a GPU takes\nhint: smaller sizes, or more "
                "micro-steps (--accumulate N)",
                blocks);
    return (int)blocks;
}
