/* harness.c -- checks the gradients of an emitted program, in a process of its own.
 *
 * The emitted file is compiled with RT_LIBRARY and with the step's runtime functions renamed to the
 * h_* functions below, so that the harness decides parameters, inputs and micro-steps, and reads
 * the gradient buffer afterwards.
 *
 *   harness differences DIMS...         fp64: random directions against central differences
 *   harness split DIMS...               fp64: 1 x 12, 2 x 6, 3 x 4 micro-steps, some labels ignored
 *   harness fixture FILE DIMS...        loss and every gradient against stored ones
 *
 * DIMS are NAME=value for the run-time dims that the train block does not set; the batch is 12.
 * Prints `ok` or `not ok` with the figures.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rt.h"

/* The emitted file calls these instead of the runtime's: it is compiled with the same names. */
void h_begin_step(RtRun *run, RtStep *s);
void h_begin_micro(RtRun *run, RtStep *s, int micro);
void h_seed_losses(RtRun *run, RtStep *s);
void h_reduce_gradients(RtRun *run, RtStep *s);
void h_finite_and_norm(RtRun *run, RtStep *s);
void h_clip(RtRun *run, RtStep *s);
void h_update_sgd(RtRun *run, RtStep *s);
void h_update_adam(RtRun *run, RtStep *s);
void h_update_adamw(RtRun *run, RtStep *s);
void h_end_step(RtRun *run, RtStep *s);

extern const RtModel MODEL;

enum { BATCH = 12 };

typedef struct {
    RtRun run;
    RtStep step;
    ptrdiff_t dims[RT_MAX_DIMS]; /* with the whole batch */
    char *data[RT_MAX_DIMS];     /* inputs of the whole batch */
    size_t row_bytes[RT_MAX_DIMS];
    int batch_dim;
    uint64_t seed;
} Bench;

static Bench bench;

/* ---- the step's functions ------------------------------------------------------------------- */

static size_t real_bytes(void) { return MODEL.real == RT_F64 ? 8 : 4; }

static void *must_alloc(size_t bytes)
{
    void *at = aligned_alloc(RT_ALIGN, (bytes + RT_ALIGN) / RT_ALIGN * RT_ALIGN);
    if (at == NULL) {
        fprintf(stderr, "harness: out of memory\n");
        exit(1);
    }
    memset(at, 0xff,
           (bytes + RT_ALIGN) / RT_ALIGN
               * RT_ALIGN); /* NaN: nothing may be read before it is written */
    return at;
}

void h_begin_step(RtRun *run, RtStep *s)
{
    RT_UNUSED(run);
    memset(s, 0, sizeof *s);
    s->key = (RtKey){ bench.seed, 3 };
}

void h_begin_micro(RtRun *run, RtStep *s, int micro)
{
    const ptrdiff_t rows = bench.dims[bench.batch_dim] / run->micro_steps;
    memcpy(run->dims, bench.dims, sizeof run->dims);
    run->dims[bench.batch_dim] = rows;
    for (int i = 0; i < MODEL.n_inputs; i++)
        run->inputs[i] = bench.data[i] + (size_t)(micro * rows) * bench.row_bytes[i];
    s->sample = micro * rows;
}

void h_seed_losses(RtRun *run, RtStep *s)
{
    RT_UNUSED(run);
    for (int i = 0; i < MODEL.n_slots; i++)
        s->seed[i] = s->count[i] > 0 ? MODEL.slots[i].weight / s->count[i] : 0;
}

/* One rank, no update: the gradient stays as backward left it. */
#define H_NOTHING(name)                                                                            \
    void name(RtRun *run, RtStep *s)                                                               \
    {                                                                                              \
        RT_UNUSED(run);                                                                            \
        RT_UNUSED(s);                                                                              \
    }
H_NOTHING(h_reduce_gradients)
H_NOTHING(h_finite_and_norm)
H_NOTHING(h_clip)
H_NOTHING(h_update_sgd)
H_NOTHING(h_update_adam)
H_NOTHING(h_update_adamw)
H_NOTHING(h_end_step)

/* ---- one evaluation ------------------------------------------------------------------------- */

static double real_at(const void *p, ptrdiff_t i)
{
    return MODEL.real == RT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void real_set(void *p, ptrdiff_t i, double v)
{
    if (MODEL.real == RT_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

/* Loss at the current parameters; the gradient is left in run.d_p. */
static double evaluate(int micro_steps)
{
    double loss = 0;
    bench.run.micro_steps = micro_steps;
    memset(bench.run.d_p, 0xff, (size_t)MODEL.n_elems * real_bytes());
    MODEL.step(&bench.run, &bench.step);
    for (int i = 0; i < MODEL.n_slots; i++)
        if (MODEL.slots[i].weight != 0 && bench.step.count[i] > 0)
            loss += MODEL.slots[i].weight * bench.step.sum[i] / bench.step.count[i];
    return loss;
}

static uint32_t draw(uint64_t stream, uint64_t i)
{
    return rt_philox((RtKey){ bench.seed, 0 }, stream, 0, i);
}

static double draw_unit(uint64_t stream, uint64_t i) /* uniform in (-1, 1) */
{
    return (double)draw(stream, i) * 0x1p-31 - 1;
}

/* ---- inputs --------------------------------------------------------------------------------- */

static void set_dims(int argc, char **argv)
{
    for (int d = 0; d < MODEL.n_dims; d++) {
        bench.dims[d] = MODEL.dims[d].value;
        if (MODEL.dims[d].batch) {
            bench.dims[d] = BATCH;
            bench.batch_dim = d;
        }
    }
    for (int a = 0; a < argc; a++) {
        const char *eq = strchr(argv[a], '=');
        for (int d = 0; eq != NULL && d < MODEL.n_dims; d++)
            if (strncmp(MODEL.dims[d].name, argv[a], (size_t)(eq - argv[a])) == 0
                && MODEL.dims[d].name[eq - argv[a]] == '\0')
                bench.dims[d] = strtol(eq + 1, NULL, 10);
    }
    const char *why = MODEL.check_dims != NULL ? MODEL.check_dims(bench.dims) : NULL;
    if (why != NULL) {
        printf("not ok: dims violate %s\n", why);
        exit(1);
    }
}

static size_t input_rows(int i, size_t *per_row)
{
    ptrdiff_t shape[RT_MAX_RANK];
    size_t elems = 1;
    MODEL.input_shape(bench.dims, i, shape);
    for (int a = 1; a < MODEL.inputs[i].rank; a++)
        elems *= (size_t)shape[a];
    *per_row = elems;
    return (size_t)shape[0];
}

static void make_inputs(void)
{
    for (int i = 0; i < MODEL.n_inputs; i++) {
        const RtInput *in = &MODEL.inputs[i];
        size_t per_row;
        const size_t rows = input_rows(i, &per_row);
        const size_t size = in->type == RT_I32 ? 4 : real_bytes();
        bench.row_bytes[i] = per_row * size;
        bench.data[i] = must_alloc(rows * per_row * size);
        for (size_t e = 0; e < rows * per_row; e++) {
            const uint64_t stream = 100 + (uint64_t)i;
            if (in->type != RT_I32) {
                real_set(bench.data[i], (ptrdiff_t)e, draw_unit(stream, e));
                continue;
            }
            int64_t v = in->ranged
                            ? in->lo + (int64_t)(draw(stream, e) % (uint64_t)(in->hi - in->lo))
                            : 0;
            /* ragged: sample r ignores its last r % 5 of each 5 labels */
            if (in->has_ignore && e % 5 < (e / per_row) % 5)
                v = in->ignore;
            ((int32_t *)bench.data[i])[e] = (int32_t)v;
        }
    }
}

static void start(int argc, char **argv)
{
    bench.seed = 42;
    set_dims(argc, argv);
    bench.run.model = &MODEL;
    bench.run.p = must_alloc((size_t)MODEL.n_elems * real_bytes());
    bench.run.d_p = must_alloc((size_t)MODEL.n_elems * real_bytes());
    bench.run.arena = must_alloc(MODEL.arena_bytes(bench.dims, RT_ENTRY_TRAIN)
                                 + MODEL.arena_bytes(bench.dims, RT_ENTRY_COUNT) + RT_ALIGN);
    make_inputs();
    for (ptrdiff_t i = 0; i < MODEL.n_elems; i++)
        real_set(bench.run.p, i, 0.3 * draw_unit(1, (uint64_t)i));
    for (int k = 0; k < MODEL.n_params; k++) /* gains near 1 */
        if (MODEL.params[k].role == RT_GAIN && MODEL.params[k].n_stacks == 0) {
            ptrdiff_t n = 1;
            for (int a = 0; a < MODEL.params[k].rank; a++)
                n *= MODEL.params[k].shape[a];
            for (ptrdiff_t i = 0; i < n; i++)
                real_set(bench.run.p, MODEL.params[k].at + i, 1 + 0.1 * draw_unit(2, (uint64_t)i));
        }
}

/* ---- the checks ----------------------------------------------------------------------------- */

/* Directional derivative: central difference at two step sizes, extrapolated (Richardson). */
static int check_differences(void)
{
    const size_t n = (size_t)MODEL.n_elems;
    double *base = must_alloc(n * sizeof *base), *grad = must_alloc(n * sizeof *grad);
    double *dir = must_alloc(n * sizeof *dir);
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        base[i] = real_at(bench.run.p, (ptrdiff_t)i);
    const double loss = evaluate(1);
    for (size_t i = 0; i < n; i++)
        grad[i] = real_at(bench.run.d_p, (ptrdiff_t)i);
    for (int k = 0; k < 4; k++) {
        double dot = 0, norm = 0, quotient[2];
        for (size_t i = 0; i < n; i++) {
            dir[i] = draw_unit(50 + (uint64_t)k, i);
            norm += dir[i] * dir[i];
        }
        for (size_t i = 0; i < n; i++) {
            dir[i] /= sqrt(norm);
            dot += dir[i] * grad[i];
        }
        for (int q = 0; q < 2; q++) {
            const double h = q == 0 ? 2e-4 : 1e-4;
            double value[2];
            for (int side = 0; side < 2; side++) {
                for (size_t i = 0; i < n; i++)
                    real_set(bench.run.p, (ptrdiff_t)i, base[i] + (side ? h : -h) * dir[i]);
                value[side] = evaluate(1);
            }
            quotient[q] = (value[1] - value[0]) / (2 * h);
        }
        const double want = (4 * quotient[1] - quotient[0]) / 3;
        const double scale = fabs(want) > 1e-4 ? fabs(want) : 1e-4;
        const double off = fabs(dot - want) / scale;
        worst = !(off <= worst) ? off : worst;
    }
    const bool good = worst <= 1e-6 && isfinite(loss);
    printf("%s: loss %.12g, worst relative difference %.3g (limit 1e-6)\n", good ? "ok" : "not ok",
           loss, worst);
    return good ? 0 : 1;
}

static int check_split(void)
{
    const size_t n = (size_t)MODEL.n_elems;
    double *whole = must_alloc(n * sizeof *whole);
    const double loss = evaluate(1);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        whole[i] = real_at(bench.run.d_p, (ptrdiff_t)i);
        largest = fabs(whole[i]) > largest ? fabs(whole[i]) : largest;
    }
    for (int micro = 2; micro <= 12; micro = micro == 4 ? 12 : micro + 1) {
        const double other = evaluate(micro);
        worst = fmax(worst, fabs(other - loss) / fabs(loss));
        for (size_t i = 0; i < n; i++) {
            const double off = fabs(real_at(bench.run.d_p, (ptrdiff_t)i) - whole[i]) / largest;
            worst = !(off <= worst) ? off : worst;
        }
    }
    const bool good = worst <= 1e-12;
    printf("%s: worst difference over 2, 3, 4 and 12 micro-steps %.3g of the largest gradient "
           "(limit 1e-12)\n",
           good ? "ok" : "not ok", worst);
    return good ? 0 : 1;
}

/* A fixture: text lines "param|grad|input NAME n" and "loss value", a line "data", then float32
   (params, gradients) and int32 or float32 (inputs) values in the order of the lines. Stacked
   parameters are named by repetition, as in checkpoints. */
static ptrdiff_t param_at(const char *name, ptrdiff_t n)
{
    for (int k = 0; k < MODEL.n_params; k++) {
        const RtParam *p = &MODEL.params[k];
        ptrdiff_t index[RT_MAX_STACKS] = { 0 }, at = p->at, elems = 1;
        int level = 0;
        const char *s = name, *t = p->path;
        while (*s != '\0' && *t != '\0') {
            if (*t == '*') {
                char *end;
                index[level++] = strtol(s, &end, 10);
                s = end;
                t++;
            } else if (*s++ != *t++) {
                break;
            }
        }
        if (*s != '\0' || *t != '\0' || s == name || s[-1] != t[-1])
            continue;
        for (int a = 0; a < p->rank; a++)
            elems *= p->shape[a];
        for (int l = 0; l < p->n_stacks; l++)
            at += index[l] * p->stack[l].stride;
        if (elems != n) {
            printf("not ok: %s has %td elements, the fixture %td\n", name, elems, n);
            exit(1);
        }
        return at;
    }
    printf("not ok: no parameter is called %s\n", name);
    exit(1);
}

typedef struct {
    char kind[8], name[120];
    long n;
} Entry;

static int check_fixture(const char *path)
{
    FILE *f = fopen(path, "rb");
    static Entry entry[1024];
    char line[256];
    int n_entries = 0;
    double want_loss = NAN, worst = 0;
    char worst_name[120] = "";
    if (f == NULL) {
        printf("not ok: cannot open %s\n", path);
        return 1;
    }
    while (fgets(line, sizeof line, f) != NULL && strcmp(line, "data\n") != 0) {
        Entry *e = &entry[n_entries];
        if (sscanf(line, "loss %lf", &want_loss) == 1)
            continue;
        if (sscanf(line, "%7s %119s %ld", e->kind, e->name, &e->n) == 3)
            n_entries++;
    }
    float *expected = must_alloc((size_t)MODEL.n_elems * sizeof *expected);
    for (int k = 0; k < n_entries; k++) {
        const Entry *e = &entry[k];
        float *data = must_alloc((size_t)e->n * 4);
        if (fread(data, 4, (size_t)e->n, f) != (size_t)e->n) {
            printf("not ok: %s is truncated\n", path);
            return 1;
        }
        if (strcmp(e->kind, "input") == 0) {
            for (int i = 0; i < MODEL.n_inputs; i++)
                if (strcmp(MODEL.inputs[i].name, e->name) == 0)
                    memcpy(bench.data[i], data, (size_t)e->n * 4);
        } else {
            const ptrdiff_t at = param_at(e->name, e->n);
            float *to = strcmp(e->kind, "param") == 0 ? bench.run.p : expected;
            memcpy(to + at, data, (size_t)e->n * 4);
        }
        free(data);
    }
    fclose(f);
    const double loss = evaluate(1);
    for (int k = 0; k < n_entries; k++) {
        double diff = 0, norm = 0;
        if (strcmp(entry[k].kind, "grad") != 0)
            continue;
        const ptrdiff_t at = param_at(entry[k].name, entry[k].n);
        for (long i = 0; i < entry[k].n; i++) {
            const double want = (double)expected[at + i];
            diff += pow(real_at(bench.run.d_p, at + i) - want, 2);
            norm += want * want;
        }
        const double off = sqrt(diff) / fmax(sqrt(norm), 1e-4);
        if (!(off <= worst)) {
            worst = off;
            snprintf(worst_name, sizeof worst_name, "%.100s", entry[k].name);
        }
    }
    const double loss_off = fabs(loss - want_loss) / fabs(want_loss);
    const bool good = loss_off <= 1e-4 && worst <= 1e-4;
    printf("%s: loss %.7g against %.7g, worst gradient %s off by %.3g of its norm (limit 1e-4)\n",
           good ? "ok" : "not ok", loss, want_loss, worst_name, worst);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "differences") == 0) {
        start(argc - 2, argv + 2);
        return check_differences();
    }
    if (argc >= 2 && strcmp(argv[1], "split") == 0) {
        start(argc - 2, argv + 2);
        return check_split();
    }
    if (argc >= 3 && strcmp(argv[1], "fixture") == 0) {
        start(argc - 3, argv + 3);
        return check_fixture(argv[2]);
    }
    fprintf(stderr, "usage: harness differences|split|fixture FILE [NAME=value ...]\n");
    return 2;
}
