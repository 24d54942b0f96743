/* kernels.h -- the driver behind what kernels.py writes: each MAP kernel in CUDA, in the simulator,
 * against the same kernel in C.
 *
 * In: rows[], call_cuda, call_c; KERNELS_ADD: only calls that add to what is there. Out: "not ok"
 * lines, or none. Both kernels get the same random buffers; then every element of every buffer is
 * compared, also those that neither should write.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" void call_c(int kernel, void **at, void *work, bool flag);

#if !defined(ELEMENTS)
#define ELEMENTS 16384 /* of each buffer */
#endif
enum { ARGS = 24, WORK = 1 << 24 };

typedef enum { F32, F64, I32, BF16, F16, BOOL } Kind; /* in the order of kernels.py */
static const size_t bytes_of[] = { 4, 8, 4, 2, 2, 1 };
static const double allowed[] = { 2e-5, 1e-6, 0, 2e-2, 4e-3, 0 }; /* relative to 1 + |x| */

bool rt_launch_begin(RtStream *, const char *, const char *, dim3 grid)
{
    return grid.x > 0 && grid.y > 0;
}

void rt_launch_end(RtStream *, const char *name)
{
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        return;
    printf("not ok %s: %s\n", name, cudaGetErrorString(error));
    exit(1);
}

void rt_allow_shared(RtStream *, const char *line, const void *kernel, size_t bytes)
{
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)
        == cudaSuccess)
        return;
    printf("not ok %s: %zu bytes of shared memory\n", line, bytes);
    exit(1);
}

int rt_blocks(ptrdiff_t n, ptrdiff_t each) { return (int)((n + each - 1) / each); }

static float uniform(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-24f;
}

/* Element i of rows of SPECIAL elements that hold what is not finite, one row each of: nothing,
   -inf but for a few, -inf all over, one inf, one NaN, -inf behind larger and larger numbers. */
static float special(int i, float v)
{
#if defined(SPECIAL)
    const int at = i % SPECIAL;
    switch (i / SPECIAL % 6) {
    case 1: return at % 5000 == 4321 ? v : -INFINITY;
    case 2: return -INFINITY;
    case 3: return at == SPECIAL / 2 ? INFINITY : v;
    case 4: return at == SPECIAL / 3 ? NAN : v;
    case 5: return at > SPECIAL - 2000 ? -INFINITY : v + (float)at * 1e-3f;
    }
#else
    (void)i;
#endif
    return v;
}

static void fill(void *to, Kind kind)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const float v = special(i, 2 * uniform() - 1);
        switch (kind) {
        case F32: ((float *)to)[i] = v; break;
        case F64: ((double *)to)[i] = (double)v; break;
        case I32: ((int32_t *)to)[i] = (int)(3 * uniform()); break;
        case BF16: ((rt_bf16 *)to)[i] = rt_to_bf16(v); break;
        case F16: ((rt_f16 *)to)[i] = rt_to_f16(v); break;
        case BOOL: ((uint8_t *)to)[i] = v > 0; break;
        }
    }
}

static double element(const void *from, Kind kind, int i)
{
    switch (kind) {
    case F32: return (double)((const float *)from)[i];
    case F64: return ((const double *)from)[i];
    case I32: return ((const int32_t *)from)[i];
    case BF16: return (double)rt_of_bf16(((const rt_bf16 *)from)[i]);
    case F16: return (double)rt_of_f16(((const rt_f16 *)from)[i]);
    case BOOL: break;
    }
    return ((const uint8_t *)from)[i];
}

/* The first element that differs; ELEMENTS: none does. */
static int first_wrong(const void *a, const void *b, Kind kind)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const double x = element(a, kind, i), y = element(b, kind, i);
        const bool same = x == y || (x != x && y != y);
        if (!same && !(fabs(x - y) <= allowed[kind] * (1 + fabs(x))))
            return i;
    }
    return ELEMENTS;
}

typedef struct {
    void *work, *totals, *work_c;
    RtStep *step;
} Rooms;

static int compare(const Row *r, int number, const Rooms *rooms, bool flag)
{
    void *c[ARGS], *cuda[ARGS], *back = malloc(ELEMENTS * 8);
    int wrong = 0;
    for (int a = 0; a < r->n; a++) {
        const size_t bytes = ELEMENTS * bytes_of[r->arg[a].kind];
        c[a] = malloc(bytes);
        fill(c[a], (Kind)r->arg[a].kind);
        cudaMalloc(&cuda[a], bytes);
        cudaMemcpy(cuda[a], c[a], bytes, cudaMemcpyHostToDevice);
    }
    call_c(number, c, rooms->work_c, flag);
    call_cuda(number, cuda, rooms->work, rooms->totals, rooms->step, flag);
    for (int a = 0; a < r->n; a++) {
        const Kind kind = (Kind)r->arg[a].kind;
        cudaMemcpy(back, cuda[a], ELEMENTS * bytes_of[kind], cudaMemcpyDeviceToHost);
        const int i = first_wrong(c[a], back, kind);
        if (i < ELEMENTS)
            printf("not ok %s: %s[%d] is %g, in C %g\n", r->name, r->arg[a].name, i,
                   element(back, kind, i), element(c[a], kind, i));
        wrong += i < ELEMENTS;
        cudaFree(cuda[a]);
        free(c[a]);
    }
    free(back);
    return wrong;
}

int main(void)
{
    RtStep host = {};
    Rooms rooms = { .work_c = calloc(WORK, 8) };
    int wrong = 0;
    for (int i = 0; i < RT_MAX_SLOTS; i++)
        host.seed[i] = 0.37; /* as kernels.py gives the C kernels, with key and sample */
    host.key.seed = 12345;
    host.key.step = 7;
    host.sample = 11;
    cudaMalloc((void **)&rooms.step, sizeof host);
    cudaMemcpy(rooms.step, &host, sizeof host, cudaMemcpyHostToDevice);
    cudaMalloc(&rooms.work, WORK);
    cudaMalloc(&rooms.totals, 1 << 20);
    for (int k = 0; k < (int)(sizeof rows / sizeof *rows); k++)
        for (int flag = getenv("KERNELS_ADD") != NULL; flag < 2; flag++)
            wrong += compare(&rows[k], k, &rooms, flag);
    printf("%d kernels, %d wrong\n", (int)(sizeof rows / sizeof *rows), wrong);
    return wrong > 0;
}
