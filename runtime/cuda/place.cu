/* place.cu -- the buffers of a run in the memory of a GPU.
 *
 * In: sizes, host memory. Out: device pointers. The one idea: a run says how much it takes in all,
 * and that is one allocation before its first step; its buffers are cut from it one behind the
 * other. The host sees them through a window of pinned memory, in the order of the compute stream.
 */
#include "cuda/device.h"

typedef struct Region Region;
struct Region { /* one allocation */
    char *at;
    size_t bytes, used;
    int live; /* buffers in it */
    Region *next;
};

static Region *regions; /* that buffers live in */
static Region *filling; /* between open and close, or NULL */
static char *window;    /* pinned, RT_PLACE_WINDOW bytes */
static size_t taken;    /* bytes of all buffers */

size_t rt_place_size(size_t bytes)
{
    return (bytes + RT_DEVICE_ALIGN - 1) / RT_DEVICE_ALIGN * RT_DEVICE_ALIGN;
}

/* ---- regions --------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void fail_memory(size_t bytes, const char *what, const char *error)
{
    char need[RT_BYTES_TEXT], left[RT_BYTES_TEXT], total[RT_BYTES_TEXT];
    const RtDevice *d = rt_device();
    const double room = rt_place_memory_free();
    rt_fail(RT_EXIT_FAIL,
            "out of memory on cuda:%d, %s: %s needs %s in one piece, %s of %s are free (%s)\nhint: "
            "more micro-steps (--accumulate N) need less, and so does gradcc --recompute=blocks or "
            "--precision=bf16; nvidia-smi shows what else uses the memory",
            d->number, d->name, what, rt_bytes((double)bytes, need),
            room < 0 ? "unknown" : rt_bytes(room, left), rt_bytes((double)d->bytes, total), error);
}

static Region *region_new(size_t bytes, const char *what)
{
    (void)rt_device();
    Region *region = (Region *)rt_alloc(sizeof *region, "a region of a GPU's memory");
    void *at = NULL;
    const cudaError_t error = cudaMalloc(&at, bytes ? bytes : 1);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        fail_memory(bytes, what, cudaGetErrorName(error));
    }
    region->at = (char *)at;
    region->bytes = bytes;
    region->next = regions;
    regions = region;
    return region;
}

static void region_free(Region *region)
{
    Region **link = &regions;
    while (*link != region)
        link = &(*link)->next;
    *link = region->next;
    taken -= region->used;
    RT_CUDA_CALL(NULL, cudaFree(region->at));
    rt_free(region);
}

void rt_place_open(double bytes, const char *what)
{
    filling = region_new((size_t)bytes, what);
    filling->live = 1; /* open itself */
}

void rt_place_close(void)
{
    Region *region = filling;
    filling = NULL;
    if (region && --region->live == 0)
        region_free(region);
}

size_t rt_place_overhead(void) { return sizeof(Region); }
double rt_place_taken(void) { return (double)taken; }

/* ---- buffers --------------------------------------------------------------------------------- */

void *rt_place_take(size_t bytes, const char *what)
{
    const size_t size = rt_place_size(bytes);
    if (size == 0)
        return NULL;
    Region *region = filling ? filling : region_new(size, what);
    if (size > region->bytes - region->used)
        rt_fail(RT_EXIT_FAIL,
                "%s: %zu bytes of the GPU's memory are asked for, and %zu of %zu are left of what "
                "was planned: a mistake of gradcc",
                what, size, region->bytes - region->used, region->bytes);
    void *at = region->at + region->used;
    region->used += size;
    taken += size;
    region->live++;
    return at;
}

void *rt_place_alloc(size_t bytes, const char *what)
{
    void *at = rt_place_take(bytes, what);
    if (at)
        rt_place_fill(at, 0, bytes);
    return at;
}

void rt_place_free(void *at)
{
    Region *region = regions;
    while (region && !((char *)at >= region->at && (char *)at < region->at + region->bytes))
        region = region->next;
    if (!at || !region)
        return;
    rt_stream_wait(&rt_device()->compute);
    rt_stream_wait(&rt_device()->copy);
    if (--region->live == 0 && region != filling)
        region_free(region);
}

/* ---- what the host sees ---------------------------------------------------------------------- */

void *rt_place_window(void)
{
    if (!window) {
        void *at = NULL;
        (void)rt_device();
        RT_CUDA_CALL(NULL, cudaHostAlloc(&at, RT_PLACE_WINDOW, cudaHostAllocDefault));
        window = (char *)at;
    }
    return window;
}

static void copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    RtStream *stream = &rt_device()->compute;
    RT_CUDA_CALL(stream, cudaMemcpyAsync(to, from, bytes, kind, stream->at));
    rt_stream_wait(stream);
}

void rt_place_put(void *to, const void *from, size_t bytes)
{
    char *const by = (char *)rt_place_window();
    for (size_t done = 0; done < bytes; done += RT_PLACE_WINDOW) {
        const size_t part = bytes - done < RT_PLACE_WINDOW ? bytes - done : RT_PLACE_WINDOW;
        if (from != by)
            memcpy(by, (const char *)from + done, part);
        copy((char *)to + done, by, part, cudaMemcpyHostToDevice);
    }
}

const void *rt_place_look(const void *at, size_t bytes)
{
    void *const by = rt_place_window();
    if (bytes > 0)
        copy(by, at, bytes, cudaMemcpyDeviceToHost);
    return by;
}

void rt_place_get(void *to, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += RT_PLACE_WINDOW) {
        const size_t part = bytes - done < RT_PLACE_WINDOW ? bytes - done : RT_PLACE_WINDOW;
        memcpy((char *)to + done, rt_place_look((const char *)from + done, part), part);
    }
}

void rt_place_fill(void *at, int byte, size_t bytes)
{
    RtStream *stream = &rt_device()->compute;
    if (bytes == 0)
        return;
    RT_CUDA_CALL(stream, cudaMemsetAsync(at, byte, bytes, stream->at));
    rt_stream_wait(stream);
}

/* ---- what it is ------------------------------------------------------------------------------ */

double rt_place_memory_free(void)
{
    size_t left = 0, total = 0;
    (void)rt_device();
    if (cudaMemGetInfo(&left, &total) != cudaSuccess) {
        (void)cudaGetLastError(); /* the next launch is not to find it */
        return -1;
    }
    const size_t others = total / 512; /* code of kernels, and what libraries take for themselves */
    return left > others ? (double)(left - others) : 0;
}

const char *rt_place_name(void)
{
    static char name[300];
    const RtDevice *d = rt_device();
    snprintf(name, sizeof name, "%s, cuda:%d", d->name, d->number);
    return name;
}

bool rt_place_is_host(void) { return false; }
