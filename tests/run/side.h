/* side.h -- where the buffers of the harness are: in host memory, or in that of a device.
 *
 * New memory of a device is not cleared: the simulator finds what reads it before it is written.
 * s->device is made by side_begin; sums and counts come back by side_sums.
 */
#ifndef SIDE_H
#define SIDE_H

#if !defined(RT_CUDA)

static void *side_new(size_t bytes)
{
    void *at = calloc(1, bytes + RT_ALIGN);
    memset(at, 0x7f, bytes);
    return at;
}
static void side_put(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void side_get(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void side_open(const RtModel *m, const ptrdiff_t *dims, RtRun *run)
{
    RT_UNUSED(m);
    RT_UNUSED(dims);
    RT_UNUSED(run);
}
static void side_begin(RtStep *s) { RT_UNUSED(s); }
static void side_sample(RtStep *s) { RT_UNUSED(s); }
static void side_counts(RtStep *s) { RT_UNUSED(s); }
static void side_seeds(RtStep *s) { RT_UNUSED(s); }
static void side_sums(RtStep *s) { RT_UNUSED(s); }

#else

#include "cuda/device.h"

#define SIDE_CHECK(call)                                                                           \
    do {                                                                                           \
        const cudaError_t wrong = (call);                                                          \
        if (wrong != cudaSuccess) {                                                                \
            printf("%s: %s\n", #call, cudaGetErrorString(wrong));                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *side_new(size_t bytes)
{
    void *at;
    SIDE_CHECK(cudaMalloc(&at, bytes + RT_ALIGN));
    return at;
}

static void side_put(void *to, const void *from, size_t bytes)
{
    SIDE_CHECK(cudaDeviceSynchronize());
    SIDE_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    SIDE_CHECK(cudaDeviceSynchronize()); /* from pageable memory it may be on its way still */
}

static void side_get(void *to, const void *from, size_t bytes)
{
    SIDE_CHECK(cudaDeviceSynchronize());
    SIDE_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

/* Opens the device, with room for what products and attention work in. */
static void side_open(const RtModel *m, const ptrdiff_t *dims, RtRun *run)
{
    RtRooms rooms = {};
    for (int entry = RT_ENTRY_TRAIN; m->rooms && entry <= RT_ENTRY_COUNT; entry++)
        m->rooms(dims, (RtEntry)entry, &rooms);
    rt_place_open(rt_rooms_bytes(&rooms), "workspace");
    rt_rooms_open(&rooms, NULL, 0);
    run->stream = &rt_device()->compute;
}

static RtStep *side_step(RtStep *s) /* its twin on the host: what the device has */
{
    static RtStep there;
    side_get(&there, s->device, sizeof there);
    (void)s;
    return &there;
}

static void side_begin(RtStep *s)
{
    RtStep *twin = (RtStep *)side_new(sizeof *s);
    side_put(twin, s, sizeof *s);
    s->device = twin;
}

static void side_sample(RtStep *s) { side_put(&s->device->sample, &s->sample, sizeof s->sample); }

/* Counts of sizes are added on the host, those of data on the device. */
static void side_counts(RtStep *s)
{
    const RtStep *there = side_step(s);
    for (int i = 0; i < RT_MAX_SLOTS; i++)
        s->count[i] += there->count[i];
    const double none[RT_MAX_SLOTS] = {};
    side_put(s->device->count, none, sizeof none);
}

static void side_seeds(RtStep *s) { side_put(s->device->seed, s->seed, sizeof s->seed); }

static void side_sums(RtStep *s)
{
    side_counts(s);
    memcpy(s->sum, side_step(s)->sum, sizeof s->sum);
}

#endif

#endif
