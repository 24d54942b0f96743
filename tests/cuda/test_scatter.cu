/* test_scatter.cu -- rows added up by their ids on a device, against the plain loop. Run by
 * scatter.sh in the simulator; compiled by nvcc it runs on a GPU as well.
 *
 * Values are eighths and sums are short, so every sum is exact and there is one result; where they
 * are drawn freely, sums in fp64 tell how far others are off.
 * Usage: scatter. For each case one line, "ok NAME bits HASH", or what is wrong.
 */
#include "test_device.h"

static uint32_t state;
static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 8) * n >> 24);
}

/* Which ids: any; mostly one of them; all the same; each once, from the last on. */
typedef enum { ANY, OFTEN, SAME, ONCE } Ids;

typedef struct {
    const char *name;
    RtType type; /* of the rows */
    ptrdiff_t n_ids, n_rows, width, step;
    bool add;
    Ids ids;
    bool free; /* values: any */
} Case;

static const Case cases[] = {
    { "any", RT_F32, 500, 60, 32, 32, false, ANY, false },
    { "added", RT_F32, 500, 900, 12, 12, true, ANY, false },
    { "apart", RT_F32, 300, 70, 20, 28, false, ANY, false },
    { "odd", RT_F32, 300, 70, 13, 13, false, ANY, false },
    { "often", RT_F32, 3000, 40, 8, 8, false, OFTEN, false },
    { "often-added", RT_BF16, 3000, 40, 24, 24, true, OFTEN, false },
    { "same", RT_F64, 1500, 70000, 2, 2, true, SAME, false },
    { "free", RT_F32, 2500, 5, 8, 8, false, OFTEN, true },
    { "once", RT_BF16, 300, 300, 16, 16, false, ONCE, false },
    { "bf16", RT_BF16, 700, 300, 136, 136, false, ANY, false },
    { "bf16-odd", RT_BF16, 700, 300, 9, 10, true, ANY, false },
    { "f16", RT_F16, 700, 1000, 40, 40, false, ANY, false },
    { "wide", RT_F32, 70, 9, 1100, 1100, false, ANY, false },
    { "f64", RT_F64, 400, 100, 6, 6, false, ANY, true },
    { "f64-odd", RT_F64, 400, 100, 5, 7, true, ANY, false },
    { "three-passes", RT_F32, 2600, 66000, 4, 4, true, ANY, false },
    { "one", RT_F32, 1, 1, 1, 1, false, ANY, false },
    { "no-ids", RT_F32, 0, 7, 4, 4, false, ANY, false },
    { "no-ids-added", RT_F32, 0, 7, 4, 4, true, ANY, false },
};

static double *to_double(const Case *c, const void *rows)
{
    const ptrdiff_t n = c->n_ids * c->step;
    double *all = (double *)malloc((size_t)n * sizeof(double) + 8);
    for (ptrdiff_t i = 0; i < n; i++)
        all[i] = c->type == RT_F64    ? ((const double *)rows)[i]
                 : c->type == RT_F32  ? (double)((const float *)rows)[i]
                 : c->type == RT_BF16 ? (double)rt_of_bf16(((const uint16_t *)rows)[i])
                                      : (double)rt_of_f16(((const uint16_t *)rows)[i]);
    return all;
}

static void *draw_rows(const Case *c, size_t *bytes)
{
    const ptrdiff_t n = c->n_ids * c->step;
    *bytes = (size_t)n * (c->type == RT_F64 ? 8 : c->type == RT_F32 ? 4 : 2);
    void *rows = malloc(*bytes + 8);
    for (ptrdiff_t i = 0; i < n; i++) {
        const double x = c->free ? (double)draw(1 << 20) / 1e6 : ((double)draw(17) - 8) / 8;
        if (c->type == RT_F64)
            ((double *)rows)[i] = x;
        else if (c->type == RT_F32)
            ((float *)rows)[i] = (float)x;
        else
            ((uint16_t *)rows)[i] = c->type == RT_BF16 ? rt_to_bf16((float)x) : rt_to_f16((float)x);
    }
    return rows;
}

static int32_t *draw_ids(const Case *c)
{
    int32_t *ids = (int32_t *)malloc((size_t)c->n_ids * 4 + 4);
    for (ptrdiff_t i = 0; i < c->n_ids; i++) {
        const int32_t any = (int32_t)draw((uint32_t)c->n_rows);
        ids[i] = c->ids == ONCE                   ? (int32_t)(c->n_ids - 1 - i)
                 : c->ids == SAME                 ? (int32_t)c->n_rows - 2
                 : c->ids == OFTEN && draw(3) < 2 ? 3
                                                  : any;
    }
    return ids;
}

static void *on_device(const void *host, size_t bytes)
{
    void *device;
    rt_cuda_check(NULL, "cudaMalloc", cudaMalloc(&device, bytes + 1));
    if (host && bytes)
        to_device(device, host, bytes);
    return device;
}

static void call(const Case *c, void *out, const int32_t *ids, const void *rows, RtScatter p)
{
    switch (c->type) {
    case RT_F64: rt_scatter_f64((double *)out, ids, (const double *)rows, p, &stream); break;
    case RT_F32: rt_scatter_f32((float *)out, ids, (const float *)rows, p, &stream); break;
    case RT_BF16: rt_scatter_bf16_f32((float *)out, ids, (const rt_bf16 *)rows, p, &stream); break;
    default: rt_scatter_f16_f32((float *)out, ids, (const rt_f16 *)rows, p, &stream); break;
    }
    rt_cuda_check(NULL, "cudaDeviceSynchronize", cudaDeviceSynchronize());
}

/* out, against wanted. */
static bool compare(const Case *c, const void *out, const double *wanted)
{
    const double allowed = !c->free ? 0 : c->type == RT_F64 ? 1e-13 : 2e-6;
    for (ptrdiff_t i = 0; i < c->n_rows * c->width; i++) {
        const double is = c->type == RT_F64 ? ((const double *)out)[i]
                                            : (double)((const float *)out)[i];
        if (!(fabs(is - wanted[i]) <= allowed * fabs(wanted[i]))) {
            printf("%s: out[%td,%td] is %.9g, not %.9g\n", c->name, i / c->width, i % c->width, is,
                   wanted[i]);
            return false;
        }
    }
    return true;
}

static bool run(const Case *c)
{
    const RtScatter p = { c->n_ids, c->n_rows, c->width, c->step, c->add };
    const ptrdiff_t n = c->n_rows * c->width;
    const size_t real = c->type == RT_F64 ? 8 : 4;
    size_t bytes;
    state = 7;
    int32_t *ids = draw_ids(c);
    void *rows = draw_rows(c, &bytes), *out = malloc((size_t)n * real);
    double *all = to_double(c, rows), *wanted = (double *)malloc((size_t)n * sizeof(double));
    for (ptrdiff_t i = 0; i < n; i++) {
        wanted[i] = c->add ? (double)(i % 5) : 0;
        if (c->type == RT_F64)
            ((double *)out)[i] = wanted[i];
        else
            ((float *)out)[i] = (float)wanted[i];
    }
    for (ptrdiff_t i = 0; i < c->n_ids; i++)
        for (ptrdiff_t j = 0; j < c->width; j++)
            wanted[ids[i] * c->width + j] += all[i * c->step + j];
    RtRooms rooms = {};
    rt_room_scatter(&rooms, p);
    work_open(rooms.device);
    void *d_ids = on_device(ids, (size_t)c->n_ids * 4), *d_rows = on_device(rows, bytes);
    void *d_out = on_device(c->add ? out : NULL, (size_t)n * real);
    call(c, d_out, (const int32_t *)d_ids, d_rows, p);
    rt_cuda_check(NULL, "cudaMemcpy",
                  cudaMemcpy(out, d_out, (size_t)n * real, cudaMemcpyDeviceToHost));
    const bool good = compare(c, out, wanted);
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)n * real; i++)
        hash = (hash ^ ((const unsigned char *)out)[i]) * 1099511628211u;
    if (good)
        printf("ok %s bits %016llx\n", c->name, (unsigned long long)hash);
    void *on_host[] = { ids, rows, out, all, wanted }, *there[] = { d_ids, d_rows, d_out };
    for (int i = 0; i < 5; i++)
        free(on_host[i]);
    for (int i = 0; i < 3; i++)
        rt_cuda_check(NULL, "cudaFree", cudaFree(there[i]));
    work_close();
    return good;
}

int main(void)
{
    int failed = 0;
    stream_open();
    for (const Case &c : cases) {
        failed += !run(&c);
        fflush(stdout);
    }
    return failed > 0;
}
