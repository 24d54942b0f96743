/* test_products.cu -- products on a device against the obvious triple loop, their plans, the file
 * of choices. Run by products.sh in the simulator; compiled by nvcc it runs on a GPU as well.
 *
 * Elements are eighths up to 10/8 and sums are short, so every sum is exact in fp32 and what is
 * wanted is one number, rounded once where c has 16 bits.
 */
#include <stdarg.h>

#include "cuda/device.h"
#include "cuda/matmul.h"

static uint32_t state = 1;
static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}
static double draw_real(void) { return ((double)draw(21) - 10) / 8; }

static const char *test = "";
static int failures;

__attribute__((format(printf, 1, 2))) static void fail(const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    printf("not ok %s: ", test);
    vprintf(fmt, list);
    printf("\n");
    va_end(list);
    failures++;
}

/* ---- numbers of a type ----------------------------------------------------------------------- */

static double get(const void *at, RtType type, size_t i)
{
    return type == RT_F64    ? ((const double *)at)[i]
           : type == RT_F32  ? (double)((const float *)at)[i]
           : type == RT_BF16 ? (double)rt_of_bf16(((const uint16_t *)at)[i])
                             : (double)rt_of_f16(((const uint16_t *)at)[i]);
}

static void set(void *at, RtType type, size_t i, double x)
{
    if (type == RT_F64)
        ((double *)at)[i] = x;
    else if (type == RT_F32)
        ((float *)at)[i] = (float)x;
    else
        ((uint16_t *)at)[i] = type == RT_BF16 ? rt_to_bf16((float)x) : rt_to_f16((float)x);
}

static double rounded(double x, RtType type)
{
    double one[1];
    set(one, type, 0, x);
    return get(one, type, 0);
}

typedef struct { /* n elements behind `shift` ones, on the host and on the device */
    void *host;
    char *device, *start;
    size_t n, bytes;
    RtType type;
} Buffer;

static Buffer buffer(size_t n, RtType type, size_t shift)
{
    Buffer b = { NULL, NULL, NULL, n, n * rt_type_bytes(type), type };
    b.host = rt_alloc(b.bytes + 8, "a test");
    b.start = (char *)rt_place_alloc(b.bytes + shift * rt_type_bytes(type) + 8, "a test");
    b.device = b.start + shift * rt_type_bytes(type);
    for (size_t i = 0; i < n; i++)
        set(b.host, type, i, draw_real());
    rt_place_put(b.device, b.host, b.bytes);
    return b;
}

static void buffer_free(Buffer b)
{
    rt_free(b.host);
    rt_place_free(b.start);
}

/* ---- one product ----------------------------------------------------------------------------- */

typedef struct {
    RtType in, out;
} Types;
static const Types types[] = { { RT_F32, RT_F32 },  { RT_F64, RT_F64 }, { RT_BF16, RT_BF16 },
                               { RT_BF16, RT_F32 }, { RT_F16, RT_F16 }, { RT_F16, RT_F32 } };
enum { TYPES = sizeof types / sizeof types[0] };

static void multiply(void *c, const void *a, const void *b, Types t, RtMatmul p)
{
    RtStream *stream = &rt_device()->compute;
    if (t.in == RT_F32)
        rt_matmul_f32((float *)c, (const float *)a, (const float *)b, p, stream);
    else if (t.in == RT_F64)
        rt_matmul_f64((double *)c, (const double *)a, (const double *)b, p, stream);
    else if (t.in == RT_BF16 && t.out == RT_BF16)
        rt_matmul_bf16_bf16((rt_bf16 *)c, (const rt_bf16 *)a, (const rt_bf16 *)b, p, stream);
    else if (t.in == RT_BF16)
        rt_matmul_bf16_f32((float *)c, (const rt_bf16 *)a, (const rt_bf16 *)b, p, stream);
    else if (t.out == RT_F16)
        rt_matmul_f16_f16((rt_f16 *)c, (const rt_f16 *)a, (const rt_f16 *)b, p, stream);
    else
        rt_matmul_f16_f32((float *)c, (const rt_f16 *)a, (const rt_f16 *)b, p, stream);
}

static double reference(const RtMatmul *p, Buffer a, ptrdiff_t at_a, Buffer b, ptrdiff_t at_b,
                        ptrdiff_t i, ptrdiff_t j)
{
    double sum = 0;
    for (ptrdiff_t k = 0; k < p->k; k++)
        sum += get(a.host, a.type, (size_t)(at_a + (p->ta ? k * p->lda + i : i * p->lda + k)))
               * get(b.host, b.type, (size_t)(at_b + (p->tb ? j * p->ldb + k : k * p->ldb + j)));
    return sum;
}

static size_t elements(ptrdiff_t rows, ptrdiff_t row_step, const ptrdiff_t *batch,
                       const ptrdiff_t *step)
{
    return (size_t)((batch[0] - 1) * step[0] + (batch[1] - 1) * step[1] + rows * row_step);
}

/* A product with all its fields filled in; the elements of c between its rows stay as they are. */
static void check(Types t, RtMatmul p, bool with_bias, size_t shift)
{
    p.add = p.add && rt_type_bytes(t.out) > 2; /* c of 16 bits is not added to */
    const Buffer a = buffer(elements(p.ta ? p.k : p.m, p.lda, p.batch, p.step_a), t.in, shift);
    const Buffer b = buffer(elements(p.tb ? p.n : p.k, p.ldb, p.batch, p.step_b), t.in, shift);
    const Buffer c = buffer(elements(p.m, p.ldc, p.batch, p.step_c), t.out, shift);
    const RtType real = t.in == RT_F64 ? RT_F64 : RT_F32;
    const Buffer bias = buffer((size_t)p.n, real, shift);
    void *got = rt_alloc(c.bytes + 8, "a test");
    bool *written = (bool *)rt_alloc(c.n + 8, "a test");
    p.bias = with_bias ? bias.device : NULL;
    multiply(c.device, a.device, b.device, t, p);
    rt_place_get(got, c.device, c.bytes);
    for (ptrdiff_t q = 0; q < p.batch[0] * p.batch[1] && !failures; q++)
        for (ptrdiff_t i = 0; i < p.m && !failures; i++)
            for (ptrdiff_t j = 0; j < p.n && !failures; j++) {
                const ptrdiff_t q0 = q / p.batch[1], q1 = q % p.batch[1];
                const size_t at = (size_t)(q0 * p.step_c[0] + q1 * p.step_c[1] + i * p.ldc + j);
                const double start = p.add       ? get(c.host, t.out, at)
                                     : with_bias ? get(bias.host, real, (size_t)j)
                                                 : 0;
                const double want = rounded(
                    start
                        + reference(&p, a, q0 * p.step_a[0] + q1 * p.step_a[1], b,
                                    q0 * p.step_b[0] + q1 * p.step_b[1], i, j),
                    t.out);
                written[at] = true;
                if (get(got, t.out, at) != want)
                    fail("types %d %d, m %td n %td k %td, ta %d tb %d, ld %td %td %td, batch %td "
                         "%td, add %d bias %d shift %zu, at %td %td %td: %g, wanted %g",
                         t.in, t.out, p.m, p.n, p.k, p.ta, p.tb, p.lda, p.ldb, p.ldc, p.batch[0],
                         p.batch[1], p.add, with_bias, shift, q, i, j, get(got, t.out, at), want);
            }
    for (size_t i = 0; i < c.n && !failures; i++)
        if (!written[i] && get(got, t.out, i) != get(c.host, t.out, i))
            fail("element %zu of c, between its rows, was written", i);
    rt_free(got);
    rt_free(written);
    buffer_free(a);
    buffer_free(b);
    buffer_free(c);
    buffer_free(bias);
}

static RtMatmul shape(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, bool loose)
{
    RtMatmul p = { .m = m,
                   .n = n,
                   .k = k,
                   .ta = draw(2) != 0,
                   .tb = draw(2) != 0,
                   .add = draw(3) == 0 };
    p.lda = (p.ta ? m : k) + (loose ? (ptrdiff_t)draw(5) : 0);
    p.ldb = (p.tb ? k : n) + (loose ? (ptrdiff_t)draw(5) : 0);
    p.ldc = n + (loose ? (ptrdiff_t)draw(5) : 0);
    p.lda += p.lda == 0;
    p.ldb += p.ldb == 0;
    p.batch[0] = p.batch[1] = 1;
    return p;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void sizes(void)
{
    static const ptrdiff_t fixed[][3] = { { 1, 1, 1 },   { 1, 40, 7 },   { 40, 1, 7 },
                                          { 9, 9, 1 },   { 64, 48, 32 }, { 3, 257, 5 },
                                          { 64, 64, 0 }, { 128, 96, 64 } };
    for (int i = 0; i < 40 && !failures; i++)
        for (int t = 0; t < TYPES && !failures; t++) {
            RtMatmul p = i < 8 ? shape(fixed[i][0], fixed[i][1], fixed[i][2], false)
                               : shape(1 + draw(40), 1 + draw(70), draw(40), draw(2) != 0);
            check(types[t], p, !p.add && draw(2), i % 3 == 2 ? draw(4) : 0);
        }
}

static void batches(void)
{
    for (int i = 0; i < 40 && !failures; i++)
        for (int t = 0; t < TYPES && !failures; t++) {
            RtMatmul p = shape(1 + draw(12), 1 + draw(12), 1 + draw(12), false);
            const ptrdiff_t n0 = 1 + draw(4), n1 = 1 + draw(4);
            p.batch[0] = n0;
            p.batch[1] = n1;
            p.step_a[1] = p.m * p.k;
            p.step_a[0] = draw(2) ? n1 * p.m * p.k : 0; /* 0: shared by the outer index */
            p.step_b[1] = draw(2) ? p.k * p.n : 0;
            p.step_b[0] = n1 * p.k * p.n;
            p.step_c[1] = p.m * p.n;
            p.step_c[0] = n1 * p.m * p.n;
            if (draw(2)) { /* heads: rows of all problems of the inner axis side by side */
                p.ldc = n1 * p.n;
                p.step_c[1] = p.n;
                p.step_c[0] = p.m * p.ldc;
            }
            check(types[t], p, !p.add && draw(2), 0);
        }
}

/* Zeros of RtMatmul stand for dense matrices and one problem; nothing where c is empty. */
static void defaults(void)
{
    RtMatmul p = { .m = 5, .n = 6, .k = 7 };
    const Buffer a = buffer(35, RT_F32, 0), b = buffer(42, RT_F32, 0), c = buffer(30, RT_F32, 0);
    float got[30];
    multiply(c.device, a.device, b.device, types[0], p);
    rt_place_get(got, c.device, c.bytes);
    p.lda = 7;
    p.ldb = 6;
    if ((double)got[29] != reference(&p, a, 0, b, 0, 4, 5))
        fail("%g at the end of a dense product", (double)got[29]);
    p.m = 0;
    multiply(NULL, NULL, NULL, types[0], p);
    buffer_free(a);
    buffer_free(b);
    buffer_free(c);
}

/* ---- running --------------------------------------------------------------------------------- */

static RtRooms note(void)
{
    RtRooms rooms = { .device = 0 };
    rt_room_matmul(&rooms, RT_F32, RT_F32, (RtMatmul){ .m = 64, .n = 48, .k = 32 });
    rt_room_matmul(&rooms, RT_F32, RT_F32, (RtMatmul){ .m = 64, .n = 48, .k = 32, .add = true });
    rt_room_epilogue(&rooms, RT_GELU);
    rt_room_matmul(&rooms, RT_BF16, RT_BF16,
                   (RtMatmul){ .m = 128, .n = 512, .k = 64, .tb = true, .bias = &rooms });
    rt_room_matmul(&rooms, RT_F16, RT_F32, (RtMatmul){ .m = 32, .n = 40, .k = 96, .ta = true });
    return rooms;
}

/* Plans for what note says, on memory of RT_TEST_SCRATCH bytes; the line of the start. */
static void open(void)
{
    const char *scratch = getenv("RT_TEST_SCRATCH");
    const RtRooms rooms = note();
    RtProductsSetup setup = { .stream = &rt_device()->compute,
                              .room = rt_place_alloc(rooms.device, "a test"),
                              .room_bytes = rooms.device };
    setup.scratch_bytes = scratch ? (size_t)atol(scratch) : 0;
    setup.scratch = setup.scratch_bytes ? rt_place_alloc(setup.scratch_bytes, "a test") : NULL;
    setup.tf32 = getenv("RT_TEST_TF32") != NULL;
    rt_products_open(&setup);
    fprintf(stderr, "products %s\n%s", rt_products_line(), rt_epilogues_text());
}

/* The choices of a run, taken back by another one, are the same; and so is its text. */
static void stored(void)
{
    char *text = rt_printf("%s", rt_products_text());
    rt_products_close();
    rt_products_take(text);
    open();
    if (!strstr(rt_products_line(), "3 shapes, 3 as before"))
        fail("the line says %s", rt_products_line());
    if (strcmp(text, rt_products_text()) != 0)
        fail("choices were\n%s\nand are\n%s", text, rt_products_text());
    open();
    if (strcmp(text, rt_products_text()) != 0)
        fail("opened again, choices are\n%s", rt_products_text());
    text[strlen(text) / 2] ^= 1;
    rt_products_close();
    rt_products_take(text);
    open();
    if (strstr(rt_products_line(), "as before"))
        fail("damaged choices were taken: %s", rt_products_line());
    rt_free(text);
}

/* A bias among parameters that have a copy in 16 bits is taken from there. */
static void copied(void)
{
    const Buffer p = buffer(64, RT_F32, 0), p16 = buffer(64, RT_BF16, 0);
    const Buffer a = buffer(8, RT_BF16, 0), b = buffer(8 * 24, RT_BF16, 0);
    const Buffer c = buffer(24, RT_BF16, 0);
    uint16_t got[24];
    RtMatmul shape = { .m = 1, .n = 24, .k = 8 };
    shape.bias = (const float *)p.device + 33;
    rt_products_copy((const float *)p.device, (const uint16_t *)p16.device, RT_BF16, 64);
    multiply(c.device, a.device, b.device, types[2], shape);
    rt_products_copy(NULL, NULL, RT_BF16, 0);
    rt_place_get(got, c.device, sizeof got);
    shape.ldb = 24;
    for (ptrdiff_t j = 0; j < 24 && !failures; j++) {
        const double want = rounded(get(p16.host, RT_BF16, (size_t)(33 + j))
                                        + reference(&shape, a, 0, b, 0, 0, j),
                                    RT_BF16);
        if (get(got, RT_BF16, (size_t)j) != want)
            fail("at %td: %g, wanted %g", j, get(got, RT_BF16, (size_t)j), want);
    }
}

/* A bias that is wider than the room planned to round one in is not the library's: not of a product
   with an epilogue either, which is not used then. */
static void wide_bias(void)
{
    RtStream *stream = &rt_device()->compute;
    RtMatmul p = { .m = 16, .n = 1024, .k = 16 };
    const Buffer a = buffer(16 * 16, RT_BF16, 0), b = buffer(16 * 1024, RT_BF16, 0);
    const Buffer c = buffer(16 * 1024, RT_BF16, 0), y = buffer(16 * 1024, RT_BF16, 0);
    const Buffer bias = buffer(1024, RT_F32, 0);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        p.bias = with_bias ? (const float *)bias.device : NULL;
        rt_epilogue_gelu(y.device, stream);
        multiply(c.device, a.device, b.device, types[2], p);
        if (rt_epilogue_wrote(y.device, stream) == with_bias)
            fail("bias %d: the epilogue is%s used", with_bias, with_bias ? "" : " not");
    }
    rt_stream_wait(stream);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = { { "sizes", sizes },   { "batches", batches }, { "defaults", defaults },
                  { "stored", stored }, { "copied", copied },   { "wide_bias", wide_bias } };
    const char *wanted = argc > 1 ? argv[1] : "sizes";
    rt_base_init();
    if (strcmp(wanted, "library") == 0)
        return printf("cuBLASLt %s\n", rt_lt_version()), 0;
    open();
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (strcmp(wanted, tests[i].name) != 0)
            continue;
        test = tests[i].name;
        tests[i].run();
        if (failures == 0)
            printf("ok %s\n", test);
    }
    rt_products_close();
    return failures > 0;
}
