/* test_optim.c -- optimizers against formulas in double, norm, clip, the finite gate. */
#ifdef _OPENMP
#include <omp.h>
#endif

#include "cm.h"
#include "cpu/update.h"
#include "updates.h"

enum { GAP = 3, A = 70001, B = 5, N = A + GAP + B + 4 };

static const RtParam params[] = {
    { .path = "a", .role = RT_WEIGHT, .decay = true, .rank = 1, .shape = { A }, .at = 0 },
    { .path = "b.*", .role = RT_BIAS, .rank = 1, .shape = { B }, .at = A + GAP },
    { .path = "s", .role = RT_STATE, .rank = 1, .shape = { 4 }, .at = A + GAP + B },
};
static const RtSlot slots[] = { { "loss", "mean(l)", 1, "a.model:1" } };
static RtModel model = { .name = "o",
                         .params = params,
                         .n_params = 3,
                         .n_elems = N,
                         .slots = slots,
                         .n_slots = 1 };

typedef struct {
    RtRun run;
    RtState state;
    RtOptions opt;
    double *p, *m, *v;
} Fixture;

static RtTrain rules(const char *name, double momentum) /* with usual numbers */
{
    RtTrain t = { .rule = name, .weight_decay = 0.1, .clip = 0.5, .states = { "m", "v" } };
    if (strcmp(name, "sgd") == 0) {
        t.hyper[t.n_hypers++] = (RtHyper){ "momentum", momentum, 0, 1 };
        t.n_states = momentum != 0;
        return t;
    }
    t.n_states = 2;
    t.hyper[t.n_hypers++] = (RtHyper){ "beta1", 0.9, 0, 1 };
    t.hyper[t.n_hypers++] = (RtHyper){ "beta2", 0.99, 0, 1 };
    t.hyper[t.n_hypers++] = (RtHyper){ "eps", 1e-8, 0, 1 };
    return t;
}

/* The update of all parameters by the optimizer of t, in the types of the model. */
static void update(const RtTrain *t, RtRun *run, RtStep *s)
{
    typedef void Piece(const RtUpdate *u);
    static Piece *const piece[3][4] = { { sgd_f32, sgd_f64, sgd_bf16, sgd_f16 },
                                        { adam_f32, adam_f64, adam_bf16, adam_f16 },
                                        { adamw_f32, adamw_f64, adamw_bf16, adamw_f16 } };
    const int rule = t->rule[0] == 's' ? 0 : strcmp(t->rule, "adam") == 0 ? 1 : 2;
    const int type = !run->p16 || model.n_halves > 0 ? model.real == RT_F64
                     : model.compute == RT_BF16      ? 2
                                                     : 3;
    rt_update(run, s, piece[rule][type]);
}

static double value(const void *at, ptrdiff_t i)
{
    return model.real == RT_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static void set(void *at, ptrdiff_t i, double x)
{
    if (model.real == RT_F64)
        ((double *)at)[i] = x;
    else
        ((float *)at)[i] = (float)x;
}

static uint16_t to_half(float x) { return model.compute == RT_BF16 ? rt_to_bf16(x) : rt_to_f16(x); }

static Fixture *fixture(RtType real, RtTrain t)
{
    model.real = real;
    Fixture *f = rt_alloc(sizeof *f, "a test");
    f->opt.train = t;
    f->run = (RtRun){ .model = &model, .state = &f->state };
    f->state.opt = &f->opt;
    f->run.p = rt_alloc(N * sizeof(double), "a test");
    f->run.d_p = rt_alloc(N * sizeof(double), "a test");
    f->run.p16 = rt_alloc(N * sizeof(double), "a test");
    f->state.n_states = rt_optim_states(&t, f->state.states);
    for (int i = 0; i < f->state.n_states; i++)
        f->state.states[i].at = rt_alloc(N * sizeof(double), "a test");
    f->state.pieces = rt_optim_pieces(&model, &f->state.n_pieces);
    f->state.piece_sums = rt_alloc((size_t)f->state.n_pieces * sizeof(double), "a test");
    f->p = rt_alloc(N * sizeof(double), "a test");
    f->m = rt_alloc(N * sizeof(double), "a test");
    f->v = rt_alloc(N * sizeof(double), "a test");
    for (ptrdiff_t i = 0; i < N; i++) {
        set(f->run.p, i, sin((double)i));
        f->p[i] = value(f->run.p, i);
    }
    if (rt_params_copy_bytes(&model) > 0)
        rt_params_copy(&f->run);
    else
        f->run.p16 = NULL;
    return f;
}

static void gradient(Fixture *f, int step)
{
    for (ptrdiff_t i = 0; i < N; i++)
        set(f->run.d_p, i,
            i < A + GAP + B && (i < A || i >= A + GAP) ? 0.01 * cos(0.37 * (double)i + step) : 0);
}

static void reference(Fixture *f, const RtStep *s) /* the formulas, element by element */
{
    const RtTrain *t = &f->opt.train;
    const double n = (double)(s->applied + 1);
    for (ptrdiff_t i = 0; i < A + GAP + B; i++) {
        const double decay = i < A ? t->weight_decay : 0;
        double g = value(f->run.d_p, i) * s->factor, *p = &f->p[i], *m = &f->m[i], *v = &f->v[i];
        if (strcmp(t->rule, "adamw") == 0)
            *p -= s->lr * decay * *p;
        else
            g += decay * *p;
        if (i >= A && i < A + GAP)
            continue;
        if (t->rule[0] == 's') {
            const double momentum = t->hyper[0].value;
            *m = momentum * *m + g;
            *p -= s->lr * *m;
            continue;
        }
        const double beta1 = t->hyper[0].value, beta2 = t->hyper[1].value;
        *m = beta1 * *m + (1 - beta1) * g;
        *v = beta2 * *v + (1 - beta2) * g * g;
        *p -= s->lr * (*m / (1 - pow(beta1, n)))
              / (sqrt(*v / (1 - pow(beta2, n))) + t->hyper[2].value);
    }
}

static void check(RtType real, RtTrain t)
{
    Fixture *f = fixture(real, t);
    for (int step = 0; step < 4; step++) {
        gradient(f, step);
        RtStep s = { .lr = 0.01 * (step + 1), .applied = step };
        rt_finite_and_norm(&f->run, &s);
        assert_true(s.finite);
        rt_clip(&f->run, &s);
        reference(f, &s);
        update(&t, &f->run, &s);
    }
    const double bound = real == RT_F64 ? 1e-13 : 3e-6;
    for (ptrdiff_t i = 0; i < N; i++)
        if (!(fabs(value(f->run.p, i) - f->p[i]) <= bound * (1 + fabs(f->p[i]))))
            fail_msg("element %td: %.12g, wanted %.12g", i, value(f->run.p, i), f->p[i]);
}

static void sgd(void **unused)
{
    RT_UNUSED(unused);
    for (RtType real = RT_F32; real <= RT_F64; real++) {
        check(real, rules("sgd", 0));
        check(real, rules("sgd", 0.9));
    }
}

static void adam(void **unused)
{
    RT_UNUSED(unused);
    check(RT_F32, rules("adam", 0));
    check(RT_F64, rules("adam", 0));
}

static void adamw(void **unused)
{
    RT_UNUSED(unused);
    check(RT_F32, rules("adamw", 0));
    check(RT_F64, rules("adamw", 0));
}

/* Constant gradient: Adam's update has size lr at every step, bias correction included. */
static void adam_step_size(void **unused)
{
    RT_UNUSED(unused);
    RtTrain t = rules("adamw", 0);
    t.weight_decay = 0;
    Fixture *f = fixture(RT_F64, t);
    for (int step = 0; step < 100; step++) {
        const double before = value(f->run.p, 0);
        set(f->run.d_p, 0, 0.25);
        RtStep s = { .lr = 0.01, .applied = step, .finite = true, .factor = 1 };
        update(&f->opt.train, &f->run, &s);
        assert_true(fabs(before - value(f->run.p, 0) - 0.01) < 1e-9);
    }
}

/* Adam's bias correction follows the updates that were applied: with a constant gradient each has
   size lr, and skipped ones between them change no bit. */
static void skipped_updates_do_not_count(void **unused)
{
    RT_UNUSED(unused);
    RtTrain t = rules("adamw", 0);
    t.weight_decay = 0;
    Fixture *const both[] = { fixture(RT_F64, t), fixture(RT_F64, t) };
    for (int k = 0; k < 2; k++) {
        Fixture *f = both[k];
        f->opt.nonfinite = "skip";
        f->opt.max_skips = 20;
    }
    for (int n = 1; n <= 100; n++)
        for (int k = 0; k < 2; k++) {
            Fixture *f = both[k];
            const double before = value(f->run.p, 0);
            for (int bad = k * (n % 3); bad >= 0; bad--) {
                set(f->run.d_p, 0, bad ? (double)NAN : 0.25);
                RtStep s = { .lr = 0.01, .applied = f->state.applied };
                rt_finite_and_norm(&f->run, &s);
                rt_clip(&f->run, &s);
                update(&f->opt.train, &f->run, &s);
                rt_end_step(&f->run, &s);
            }
            assert_int_equal(f->state.applied, n);
            assert_true(fabs(before - value(f->run.p, 0) - 0.01) < 1e-9);
            assert_memory_equal(f->run.p, both[0]->run.p, N * sizeof(double));
        }
    assert_true(both[0]->state.skipped == 0 && both[1]->state.skipped == 100);
    assert_int_equal(both[1]->state.step, 200);
}

/* Clip and update see the gradient without the scale: scales that are powers of two change no bit.
   The gradient itself stays as it is. */
static void scale_changes_no_bit(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain rule[] = { rules("sgd", 0.9), rules("adam", 0), rules("adamw", 0) };
    static const double scales[] = { 1, 1024, 65536 };
    for (size_t k = 0; k < sizeof rule / sizeof *rule; k++) {
        Fixture *f[3];
        for (int i = 0; i < 3; i++) {
            f[i] = fixture(RT_F32, rule[k]);
            for (int step = 0; step < 3; step++) {
                gradient(f[i], step);
                for (ptrdiff_t j = 0; j < N; j++)
                    set(f[i]->run.d_p, j, value(f[i]->run.d_p, j) * scales[i]);
                RtStep s = { .lr = 0.1, .applied = step, .scale = scales[i] };
                rt_finite_and_norm(&f[i]->run, &s);
                rt_clip(&f[i]->run, &s);
                assert_true(s.finite && s.norm > 1 && s.norm < 2 && s.factor == 0.5 / s.norm);
                const double g = value(f[i]->run.d_p, 1);
                update(&rule[k], &f[i]->run, &s);
                assert_true(value(f[i]->run.d_p, 1) == g);
            }
            assert_memory_equal(f[i]->run.p, f[0]->run.p, N * sizeof(float));
            assert_memory_equal(f[i]->state.states[0].at, f[0]->state.states[0].at,
                                N * sizeof(float));
        }
    }
}

static void norm_and_clip(void **unused)
{
    RT_UNUSED(unused);
    for (RtType real = RT_F32; real <= RT_F64; real++) {
        Fixture *f = fixture(real, (RtTrain){ .rule = "sgd", .clip = 2 });
        gradient(f, 1);
        double squares = 0;
        for (ptrdiff_t i = 0; i < N; i++)
            squares += value(f->run.d_p, i) * value(f->run.d_p, i);
        RtStep s = { 0 };
        rt_finite_and_norm(&f->run, &s);
        assert_true(s.finite && fabs(s.norm - sqrt(squares)) < 1e-12 * s.norm && s.factor == 1);
        rt_clip(&f->run, &s);
        assert_true(s.norm <= 2 ? s.factor == 1 : fabs(s.factor * s.norm - 2) < 1e-12);
        f->opt.train.clip = s.norm / 4;
        rt_clip(&f->run, &s);
        assert_true(fabs(s.factor - 0.25) < 1e-15);
    }
}

static void norm_beyond_the_range_of_squares(void **unused)
{
    RT_UNUSED(unused);
    Fixture *f = fixture(RT_F64, (RtTrain){ .rule = "sgd", .clip = 1 });
    set(f->run.d_p, 7, 3e200);
    set(f->run.d_p, 8, 4e200);
    RtStep s = { 0 };
    rt_finite_and_norm(&f->run, &s);
    assert_true(s.finite && fabs(s.norm - 5e200) < 1e188);
    f = fixture(RT_F32, (RtTrain){ .rule = "sgd", .clip = 1 });
    set(f->run.d_p, 7, 3e38);
    rt_finite_and_norm(&f->run, &s);
    assert_true(s.finite && fabs(s.norm - (double)3e38f) < 1e30);
}

/* Elements first, then the norm of what is left; with a loss scale, limits of those unscaled. */
static void clip_by_value(void **unused)
{
    RT_UNUSED(unused);
    static const double scales[] = { 0, 1024 };
    for (int k = 0; k < 4; k++) {
        const RtType real = k % 2 ? RT_F64 : RT_F32;
        const double scale = scales[k / 2], by = scale > 0 ? scale : 1;
        Fixture *f = fixture(real, (RtTrain){ .clip_value = 0.004 });
        double before = 0, after = 0;
        gradient(f, 1);
        for (ptrdiff_t i = 0; i < N; i++) {
            const double g = value(f->run.d_p, i), most = f->opt.train.clip_value;
            f->m[i] = g > most ? most : g < -most ? -most : g;
            before += g * g;
            after += f->m[i] * f->m[i];
            set(f->run.d_p, i, g * by);
        }
        RtStep s = { .scale = scale };
        rt_finite_and_norm(&f->run, &s);
        rt_clip_value(&f->run, &s);
        assert_true(s.finite && fabs(s.norm - sqrt(before)) < 1e-12 * s.norm);
        assert_true(fabs(s.limited - sqrt(after)) < 1e-6 * s.norm && after < before / 2);
        for (ptrdiff_t i = 0; i < N; i++)
            assert_true(fabs(value(f->run.d_p, i) / by - f->m[i]) <= 1e-9);
        rt_clip(&f->run, &s);
        assert_true(s.factor == 1);
        f->opt.train.clip = s.limited / 4;
        rt_clip(&f->run, &s);
        assert_true(fabs(s.factor - 0.25) < 1e-15);
        set(f->run.d_p, 3, INFINITY); /* is no large element */
        rt_finite_and_norm(&f->run, &s);
        rt_clip_value(&f->run, &s);
        assert_true(!s.finite && isinf(value(f->run.d_p, 3)));
    }
}

static void nothing_moves_unless_finite(void **unused)
{
    RT_UNUSED(unused);
    static const double bad[] = { NAN, INFINITY, -INFINITY };
    for (int k = 0; k < 8; k++) {
        const RtType real = k % 2 ? RT_F64 : RT_F32;
        Fixture *f = fixture(real, rules("adamw", 0));
        gradient(f, 0);
        RtStep s = { .lr = 1 };
        if (k / 2 < 3)
            set(f->run.d_p, k < 4 ? A - 1 : A + GAP, bad[k / 2]);
        else
            s.sum[0] = NAN; /* the loss itself */
        rt_finite_and_norm(&f->run, &s);
        assert_false(s.finite);
        rt_clip(&f->run, &s);
        update(&f->opt.train, &f->run, &s);
        for (ptrdiff_t i = 0; i < N; i++)
            assert_true(value(f->run.p, i) == f->p[i] && value(f->state.states[0].at, i) == 0);
    }
}

static void same_bits_for_every_thread_count(void **unused)
{
    RT_UNUSED(unused);
#ifdef _OPENMP
    double norm[4];
    float p[4][8];
    for (int threads = 1; threads <= 4; threads++) {
        omp_set_num_threads(threads);
        Fixture *f = fixture(RT_F32, rules("adamw", 0));
        gradient(f, 2);
        RtStep s = { .lr = 0.1 };
        rt_finite_and_norm(&f->run, &s);
        rt_clip(&f->run, &s);
        update(&f->opt.train, &f->run, &s);
        norm[threads - 1] = s.norm;
        memcpy(p[threads - 1], (float *)f->run.p + 33000, sizeof p[0]);
    }
    for (int i = 1; i < 4; i++) {
        assert_true(norm[i] == norm[0]);
        assert_memory_equal(p[i], p[0], sizeof p[0]);
    }
#endif
}

static void copy_is_rounded(const Fixture *f)
{
    const float *p = f->run.p;
    const uint16_t *copy = f->run.p16;
    for (ptrdiff_t i = 0; i < N; i++)
        if (copy[i] != to_half(p[i]))
            fail_msg("the copy of %g is %04x, wanted %04x", (double)p[i], copy[i], to_half(p[i]));
}

/* Beside every update, and by none that is skipped; p moves as without a copy. */
static void copy_in_16_bits(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain rule[] = { rules("sgd", 0), rules("sgd", 0.9), rules("adam", 0),
                             rules("adamw", 0) };
    for (size_t k = 0; k < 2 * sizeof rule / sizeof *rule; k++) {
        model.compute = RT_F32;
        Fixture *plain = fixture(RT_F32, rule[k / 2]);
        model.compute = k % 2 ? RT_F16 : RT_BF16;
        assert_int_equal(rt_params_copy_bytes(&model), 2 * N);
        Fixture *f = fixture(RT_F32, rule[k / 2]);
        copy_is_rounded(f);
        for (int step = 0; step < 3; step++) {
            RtStep s = { .lr = 0.1, .applied = step, .finite = step != 1, .factor = 1 };
            Fixture *const both[] = { f, plain };
            uint16_t *before = rt_alloc(N * sizeof *before, "a test");
            memcpy(before, f->run.p16, N * sizeof *before);
            for (int i = 0; i < 2; i++) {
                gradient(both[i], step);
                update(&rule[k / 2], &both[i]->run, &s);
            }
            copy_is_rounded(f);
            assert_memory_equal(f->run.p, plain->run.p, N * sizeof(float));
            assert_int_equal(memcmp(before, f->run.p16, N * sizeof *before) == 0, step == 1);
            rt_free(before);
        }
    }
    model.compute = RT_F32;
    model.real = RT_F64;
    assert_int_equal(rt_params_copy_bytes(&model), 0);
}

/* ---- parameters of 16 bits alone ------------------------------------------------------------- */

/* All from the border on, the rest as it is; p: where the parameters are. */
static Fixture *half_fixture(ptrdiff_t border, RtTrain t)
{
    model.compute = RT_BF16;
    model.n_halves = N - border;
    Fixture *f = fixture(RT_F32, t);
    float *x = rt_alloc(N * sizeof *x, "a test");
    for (ptrdiff_t i = 0; i < N; i++)
        x[i] = (float)sin((double)i);
    rt_params_round(&model, x, f->run.p);
    f->run.p16 = rt_params_halves(&model, f->run.p);
    rt_free(x);
    return f;
}

static void half_step(Fixture *f, int step, double lr)
{
    RtStep s = { .key = { 5, (uint32_t)step },
                 .lr = lr,
                 .applied = step,
                 .finite = true,
                 .factor = 1 };
    update(&f->opt.train, &f->run, &s);
}

static void back_to_wide(void)
{
    model.compute = RT_F32;
    model.n_halves = 0;
}

/* Every element is a neighbour of what the update in fp32 gives; those with a master are it. */
static void halves_are_neighbours(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain rule[] = { rules("sgd", 0.9), rules("adamw", 0) };
    for (size_t k = 0; k < sizeof rule / sizeof *rule; k++) {
        Fixture *f = half_fixture(A, rule[k]);
        const uint16_t *half = f->run.p16;
        assert_int_equal(rt_params_bytes(&model), 4 * A + 2 * (N - A));
        assert_int_equal(rt_params_copy_bytes(&model), 0);
        assert_ptr_equal(&half[A], (float *)f->run.p + A);
        back_to_wide();
        Fixture *plain = fixture(RT_F32, rule[k]);
        float *p = plain->run.p;
        memcpy(p, f->run.p, A * sizeof *p);
        for (ptrdiff_t i = A; i < N; i++)
            p[i] = rt_of_bf16(half[i]);
        Fixture *const both[] = { f, plain };
        for (int i = 0; i < 2; i++) {
            model.compute = i ? RT_F32 : RT_BF16;
            model.n_halves = i ? 0 : N - A;
            gradient(both[i], 1);
            half_step(both[i], 0, 0.01);
        }
        back_to_wide();
        assert_memory_equal(f->run.p, p, A * sizeof *p);
        for (int i = 0; i < f->state.n_states; i++)
            assert_memory_equal(f->state.states[i].at, plain->state.states[i].at, N * sizeof *p);
        for (ptrdiff_t i = A + GAP; i < A + GAP + B; i++) {
            const uint32_t down = rt_bits_f32(p[i]) >> 16;
            assert_true(half[i] == down || half[i] == down + 1);
        }
    }
}

/* Steps of a tenth of half a unit: rounding to the nearest stands still, this does not. */
static void small_updates_add_up(void **unused)
{
    RT_UNUSED(unused);
    enum { STEPS = 200 };
    RtTrain t = rules("sgd", 0);
    t.weight_decay = 0;
    Fixture *f = half_fixture(0, t);
    uint16_t *half = f->run.p16;
    double mean = 0, nearest = 0;
    for (ptrdiff_t i = 0; i < A; i++) {
        half[i] = rt_to_bf16(1.0f);
        ((float *)f->run.d_p)[i] = -1;
    }
    const float lr = 0x1p-7f / 20; /* 1 and the next one are 2^-7 apart */
    for (int step = 0; step < STEPS; step++) {
        half_step(f, step, (double)lr);
        nearest = (double)rt_round_bf16((float)(nearest ? nearest : 1) + lr);
    }
    for (ptrdiff_t i = 0; i < A; i++)
        mean += (double)rt_of_bf16(half[i]) / A;
    back_to_wide();
    assert_true(nearest == 1);
    const double want = 1 + STEPS * (double)lr, unit = 0x1p-7;
    /* of a mean of A elements, each a sum of steps with a variance below unit^2 / 4 */
    assert_true(fabs(mean - want) < 5 * unit / 2 * sqrt(STEPS) / sqrt(A));
}

/* The bits of an element follow from seed, step and its number alone. */
static void halves_know_no_pieces(void **unused)
{
    RT_UNUSED(unused);
    static float x[3 * RT_PIECE];
    static uint16_t whole[3 * RT_PIECE], parts[3 * RT_PIECE], other[3 * RT_PIECE];
    const ptrdiff_t n = 3 * RT_PIECE;
    const RtKey key = { 0x123456789abcu, 17 };
    for (ptrdiff_t i = 0; i < n; i++)
        x[i] = (float)cos((double)i);
    rt_round_halves(key, 0, n, x, whole);
    for (ptrdiff_t at = 0, size = 1; at < n; at += size, size = size * 7 % 5003 + 1) {
        const ptrdiff_t part = at + size < n ? size : n - at;
        rt_round_halves(key, at, part, x + at, parts + at);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    for (int changed = 0; changed < 2; changed++) {
        rt_round_halves((RtKey){ key.seed + (changed == 0), key.step + (changed == 1) }, 0, n, x,
                        other);
        ptrdiff_t same = 0;
        for (ptrdiff_t i = 0; i < n; i++)
            same += other[i] == whole[i];
        assert_true(same > n / 2 && same < n * 9 / 10);
    }
#ifdef _OPENMP
    RtTrain t = rules("adamw", 0);
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        Fixture *f = half_fixture(3, t);
        for (int step = 0; step < 3; step++) {
            gradient(f, step);
            half_step(f, step, 0.01);
        }
        memcpy(threads == 1 ? whole : other, f->run.p, sizeof whole / 2);
        if (threads > 1)
            assert_memory_equal(whole, other, sizeof whole / 2);
    }
    back_to_wide();
#endif
}

/* The average is in the parameters' place and they come back to the bit. */
static void halves_swap_with_their_average(void **unused)
{
    RT_UNUSED(unused);
    Fixture *f = half_fixture(A, rules("adamw", 0));
    const size_t bytes = rt_params_bytes(&model);
    f->state.ema = rt_alloc(N * sizeof(float), "a test");
    f->state.other = rt_alloc(bytes, "a test");
    rt_ema_start(&f->run);
    float *e = f->state.ema;
    const uint16_t *half = f->run.p16;
    for (ptrdiff_t i = 0; i < N; i++)
        assert_true(e[i] == (i < A ? ((float *)f->run.p)[i] : rt_of_bf16(half[i])));
    f->opt.train.ema = 0.5;
    gradient(f, 0);
    half_step(f, 0, 0.1);
    for (ptrdiff_t i = A + GAP; i < A + GAP + B; i++)
        assert_true(fabs((double)e[i] - sin((double)i)) < 0.1);
    void *p = f->run.p, *before = rt_alloc(bytes, "a test");
    memcpy(before, p, bytes);
    rt_ema_swap(&f->run);
    half = f->run.p16;
    for (ptrdiff_t i = 0; i < N; i++)
        if (i < A)
            assert_true(((float *)f->run.p)[i] == e[i]);
        else
            assert_int_equal(half[i], rt_to_bf16(e[i]));
    rt_ema_swap(&f->run);
    back_to_wide();
    assert_ptr_equal(f->run.p, p);
    assert_memory_equal(p, before, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd),
        cmocka_unit_test(adam),
        cmocka_unit_test(adamw),
        cmocka_unit_test(adam_step_size),
        cmocka_unit_test(skipped_updates_do_not_count),
        cmocka_unit_test(halves_are_neighbours),
        cmocka_unit_test(small_updates_add_up),
        cmocka_unit_test(halves_know_no_pieces),
        cmocka_unit_test(halves_swap_with_their_average),
        cmocka_unit_test(scale_changes_no_bit),
        cmocka_unit_test(norm_and_clip),
        cmocka_unit_test(clip_by_value),
        cmocka_unit_test(norm_beyond_the_range_of_squares),
        cmocka_unit_test(nothing_moves_unless_finite),
        cmocka_unit_test(same_bits_for_every_thread_count),
        cmocka_unit_test(copy_in_16_bits),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
