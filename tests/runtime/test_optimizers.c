/* test_optimizers.c -- optimizers that work on whole tensors: against PyTorch and papers for 100
 * updates, any thread count, groups, the 16-bit copy, the average of the weights, states. */
#ifdef _OPENMP
#include <omp.h>
#endif

#include "cm.h"
#include "run.h"

enum { OPTIMIZER_ELEMS = 88 };
#include "optimizers.h"

/* As PARAMS of tests/torch/optimizers.py. */
static const RtParam params[] = {
    { .path = "wide", .decay = true, .rank = 2, .shape = { 2, 5 }, .at = 0 },
    { .path = "h.*",
      .decay = true,
      .rank = 2,
      .shape = { 3, 3 },
      .at = 10,
      .n_stacks = 1,
      .stack = { { 2, 9 } } },
    { .path = "tall", .decay = true, .rank = 2, .shape = { 6, 2 }, .at = 28 },
    { .path = "table",
      .role = RT_EMBEDDING,
      .decay = true,
      .rank = 2,
      .shape = { 4, 3 },
      .at = 40 },
    { .path = "head", .excepted = true, .decay = true, .rank = 2, .shape = { 2, 2 }, .at = 52 },
    { .path = "cube", .decay = true, .rank = 3, .shape = { 2, 3, 4 }, .at = 56 },
    { .path = "b", .role = RT_BIAS, .rank = 1, .shape = { 5 }, .at = 80 },
    { .path = "zero", .role = RT_BIAS, .rank = 1, .shape = { 3 }, .at = 85 },
};
/* Larger than a piece, and not a multiple of it; with a constant behind it. */
enum { ROWS = 301, COLS = 257, LARGE = ROWS * COLS, N = LARGE + 40 };
static const RtParam large[] = {
    { .path = "w", .decay = true, .rank = 2, .shape = { ROWS, COLS }, .at = 0, .group = 0 },
    { .path = "b", .role = RT_BIAS, .rank = 1, .shape = { 20 }, .at = LARGE, .group = 1 },
    { .path = "fixed", .role = RT_BIAS, .rank = 1, .shape = { 10 }, .at = LARGE + 20, .group = 2 },
    { .path = "s", .role = RT_STATE, .rank = 1, .shape = { 10 }, .at = LARGE + 30 },
};
static const RtGroup groups[] = { { .names = "b", .rate = 0.5, .own_decay = true, .decay = 0.3 },
                                  { .names = "fixed", .rate = 0 } };

typedef struct {
    RtModel model;
    RtRun run;
    RtState state;
    RtOptions opt;
} Fixture;

static ptrdiff_t state_elems(const Fixture *f, int i)
{
    const RtStateShape shape = f->state.states[i].shape;
    return shape ? rt_state_elems(&f->model, shape) : f->model.n_elems;
}

static Fixture *fixture(RtType real, RtType compute, RtTrain t, bool small)
{
    Fixture *f = rt_alloc(sizeof *f, "a test");
    f->model = (RtModel){ .real = real,
                          .compute = compute,
                          .params = small ? params : large,
                          .n_params = small ? 8 : 4,
                          .n_elems = small ? OPTIMIZER_ELEMS : N,
                          .groups = groups,
                          .n_groups = small ? 0 : 2 };
    f->model.train = t;
    f->opt.train = t;
    f->run = (RtRun){ .model = &f->model, .state = &f->state };
    f->state.opt = &f->opt;
    const size_t bytes = (size_t)f->model.n_elems * rt_real_bytes(&f->model);
    f->run.p = rt_alloc(bytes, "a test");
    f->run.d_p = rt_alloc(bytes, "a test");
    f->state.ema = t.ema > 0 ? rt_alloc(bytes, "a test") : NULL;
    f->run.p16 = rt_params_copy_bytes(&f->model) ? rt_alloc(bytes, "a test") : NULL;
    f->state.n_states = rt_optim_states(&t, f->state.states);
    for (int i = 0; i < f->state.n_states; i++)
        f->state.states[i].at = rt_alloc((size_t)state_elems(f, i) * rt_real_bytes(&f->model),
                                         "a test");
    f->run.arena = rt_alloc(rt_optim_work_bytes(&f->model, &t), "a test");
    f->state.tensors = rt_tensors_new(&f->model, t.optimizer);
    return f;
}

static void drop(Fixture *f)
{
    rt_free(f->run.p);
    rt_free(f->run.d_p);
    rt_free(f->run.p16);
    rt_free(f->run.arena);
    rt_free(f->state.ema);
    for (int i = 0; i < f->state.n_states; i++)
        rt_free(f->state.states[i].at);
    rt_tensors_free(f->state.tensors);
    rt_free(f);
}

static double value(const Fixture *f, const void *at, ptrdiff_t i)
{
    return f->model.real == RT_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static void set(const Fixture *f, void *at, ptrdiff_t i, double x)
{
    if (f->model.real == RT_F64)
        ((double *)at)[i] = x;
    else
        ((float *)at)[i] = (float)x;
}

static void start(Fixture *f, ptrdiff_t zero_from)
{
    for (ptrdiff_t i = 0; i < f->model.n_elems; i++)
        set(f, f->run.p, i, i >= zero_from ? 0 : 0.5 * sin((double)i));
    rt_ema_start(&f->run);
    if (f->run.p16)
        rt_params_copy(&f->run);
}

/* 0.3 p + 0.2 cos(0.37 i^2 + step), times scale, as if it were the loss scale's. */
static void gradient(Fixture *f, int step, double scale)
{
    for (ptrdiff_t i = 0; i < f->model.n_elems; i++)
        set(f, f->run.d_p, i,
            scale * (0.3 * value(f, f->run.p, i) + 0.2 * cos(0.37 * (double)i * (double)i + step)));
}

static void update(Fixture *f, RtStep *s)
{
    switch (f->opt.train.optimizer) {
    case RT_LAMB: rt_update_lamb(&f->run, s); break;
    case RT_ADAFACTOR: rt_update_adafactor(&f->run, s); break;
    case RT_MUON: rt_update_muon(&f->run, s); break;
    default: fail_msg("no such optimizer");
    }
    f->state.ema_moved = false;
}

static void updates(Fixture *f, int from, int to)
{
    for (int step = from; step < to; step++) {
        gradient(f, step, 1);
        RtStep s = { .lr = f->opt.train.lr, .applied = step, .finite = true, .factor = 1 };
        update(f, &s);
    }
}

static void as_pytorch(void **unused)
{
    RT_UNUSED(unused);
    static const int steps[] = { 0, 1, 10, 100 };
    /* Newton-Schulz raises what is small in a matrix, and rounding too, to the size of the rest */
    for (size_t k = 0; k < sizeof optimizer_cases / sizeof *optimizer_cases; k++)
        for (RtType real = RT_F32; real <= RT_F64; real++) {
            const OptimizerCase *c = &optimizer_cases[k];
            Fixture *f = fixture(real, real, c->train, true);
            const double bound = real == RT_F64                  ? 1e-12
                                 : c->train.optimizer == RT_MUON ? 1e-4
                                                                 : 3e-6;
            start(f, 85);
            for (int at = 0; at < 3; at++) {
                updates(f, steps[at], steps[at + 1]);
                for (ptrdiff_t i = 0; i < OPTIMIZER_ELEMS; i++)
                    if (!(fabs(value(f, f->run.p, i) - c->after[at][i]) <= bound))
                        fail_msg("%s, fp%d, %d updates, element %td: %.12g, wanted %.12g", c->name,
                                 real == RT_F64 ? 64 : 32, steps[at + 1], i, value(f, f->run.p, i),
                                 c->after[at][i]);
            }
            drop(f);
        }
}

/* Any number of threads gives the same bits; an update that is not finite moves nothing; a loss
   scale changes no bit; the copy is rounded, the average follows. */
static void same_bits(void **unused)
{
    RT_UNUSED(unused);
    for (size_t k = 0; k < sizeof optimizer_cases / sizeof *optimizer_cases; k++) {
        RtTrain t = optimizer_cases[k].train;
        t.ema = 0.9;
        Fixture *f[4];
        for (int i = 0; i < 4; i++) {
#ifdef _OPENMP
            omp_set_num_threads(i == 3 ? 2 : i + 1);
#endif
            f[i] = fixture(RT_F32, i == 3 ? RT_BF16 : RT_F32, t, false);
            start(f[i], N);
            for (int step = 0; step < 3; step++) {
                const double scale = i == 3 ? 1024 : 1;
                RtStep s = { .lr = t.lr,
                             .applied = step,
                             .finite = true,
                             .factor = 0.5,
                             .scale = scale };
                gradient(f[i], step, scale);
                update(f[i], &s);
                s.finite = false;
                update(f[i], &s);
            }
            assert_memory_equal(f[i]->run.p, f[0]->run.p, N * sizeof(float));
            assert_memory_equal(f[i]->state.ema, f[0]->state.ema, N * sizeof(float));
            for (int n = 0; n < f[i]->state.n_states; n++)
                assert_memory_equal(f[i]->state.states[n].at, f[0]->state.states[n].at,
                                    (size_t)state_elems(f[0], n) * sizeof(float));
        }
        const float *p = f[3]->run.p, *e = f[3]->state.ema;
        const uint16_t *copy = f[3]->run.p16;
        for (ptrdiff_t i = 0; i < N; i++)
            assert_int_equal(copy[i], rt_to_bf16(p[i]));
        assert_true(p[0] != 0 && e[1] != p[1]);
        for (ptrdiff_t i = LARGE + 20; i < N; i++) /* rate 0, and a constant */
            assert_true(p[i] == (float)(0.5 * sin((double)i)));
        for (int i = 0; i < 4; i++)
            drop(f[i]);
    }
}

/* A group's factor and decay count as the rate and the decay of the whole would. */
static void groups_count(void **unused)
{
    RT_UNUSED(unused);
    for (size_t k = 0; k < sizeof optimizer_cases / sizeof *optimizer_cases; k++) {
        RtTrain t = optimizer_cases[k].train;
        Fixture *grouped = fixture(RT_F64, RT_F64, t, false);
        t.lr *= 0.5;
        Fixture *plain = fixture(RT_F64, RT_F64, t, false);
        RtParam own[4];
        memcpy(own, large, sizeof own);
        own[1].group = 0;
        own[1].decay = true;
        plain->model.params = own;
        plain->opt.train.weight_decay = 0.3;
        rt_tensors_free(plain->state.tensors);
        plain->state.tensors = rt_tensors_new(&plain->model, t.optimizer);
        start(grouped, N);
        start(plain, N);
        updates(grouped, 0, 5);
        updates(plain, 0, 5);
        for (ptrdiff_t i = LARGE; i < LARGE + 20; i++)
            assert_true(fabs(value(grouped, grouped->run.p, i) - value(plain, plain->run.p, i))
                        < 1e-14);
        drop(grouped);
        drop(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_pytorch),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(groups_count),
    };
    return cmocka_run_group_tests_name("optimizers", tests, NULL, NULL);
}
