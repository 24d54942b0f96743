/* test_attention.c -- attention in place against the obvious form; gradient against differences. */
#include "cm.h"
#include "run.h"

static uint32_t state = 1;
static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}
static double draw_real(void) { return (double)(float)((double)draw(1 << 16) / 65536 - 0.5); }

/* Packed rows as a model has them: [B, T, q | k | v and a gap], or q apart where T is not S. H
   heads of q, H/group of k and v. */
typedef struct {
    RtAttention a;
    ptrdiff_t kv_row, q_row, y_row, at_k, at_v;
    size_t n_kv, n_q, n_y, n_lse;
    double *kv, *q, *y, *lse, *d_y, *d_kv, *d_q;
    float *kv_f, *q_f, *y_f, *lse_f, *d_y_f, *d_kv_f, *d_q_f;
} Case;

static void both(double **d, float **f, size_t n, bool nan)
{
    *d = rt_alloc(n * sizeof **d, "d");
    *f = rt_alloc(n * sizeof **f, "f");
    for (size_t i = 0; i < n; i++) {
        (*d)[i] = nan ? (double)NAN : 2 * draw_real();
        (*f)[i] = (float)(*d)[i];
    }
}

static Case case_open(ptrdiff_t B, ptrdiff_t H, ptrdiff_t group, ptrdiff_t T, ptrdiff_t S,
                      ptrdiff_t D, ptrdiff_t E, bool causal)
{
    const bool self = T == S;
    const ptrdiff_t kv_row = H * D + H / group * (D + E) + 3;
    Case c = { .kv_row = kv_row, .y_row = H * E, .at_k = self ? H * D : 0 };
    c.at_v = c.at_k + H / group * D;
    c.q_row = self ? c.kv_row : H * D + 1;
    c.n_kv = (size_t)(B * S * c.kv_row) + 1;
    c.n_q = (size_t)(B * T * c.q_row) + 1;
    c.n_y = (size_t)(B * T * c.y_row) + 1;
    c.n_lse = (size_t)(B * H * T) + 1;
    both(&c.kv, &c.kv_f, c.n_kv, false);
    both(&c.d_kv, &c.d_kv_f, c.n_kv, true);
    both(&c.y, &c.y_f, c.n_y, true);
    both(&c.d_y, &c.d_y_f, c.n_y, false);
    both(&c.lse, &c.lse_f, c.n_lse, true);
    c.q = c.kv, c.q_f = c.kv_f, c.d_q = c.d_kv, c.d_q_f = c.d_kv_f;
    if (!self) {
        both(&c.q, &c.q_f, c.n_q, false);
        both(&c.d_q, &c.d_q_f, c.n_q, true);
    }
    const RtHeads q = { T * c.q_row, D, c.q_row }, k = { S * c.kv_row, D, c.kv_row };
    const RtHeads v = { S * c.kv_row, E, c.kv_row }, y = { T * c.y_row, E, c.y_row };
    c.a = (RtAttention){ .B = B,
                         .H = H,
                         .T = T,
                         .S = S,
                         .D = D,
                         .E = E,
                         .group = group,
                         .scale = 0.3,
                         .causal = causal,
                         .q = q,
                         .k = k,
                         .v = v,
                         .y = y,
                         .d_q = q,
                         .d_k = k,
                         .d_v = v,
                         .d_y = y };
    return c;
}

static void case_free(Case *c)
{
    void *all[] = { c->kv,  c->kv_f, c->d_kv,  c->d_kv_f, c->y,
                    c->y_f, c->d_y,  c->d_y_f, c->lse,    c->lse_f };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rt_free(all[i]);
    if (c->q != c->kv) {
        rt_free(c->q);
        rt_free(c->q_f);
        rt_free(c->d_q);
        rt_free(c->d_q_f);
    }
}

static void case_run(Case *c)
{
    rt_attention_f64(c->y, c->lse, c->q, c->kv + c->at_k, c->kv + c->at_v, c->a);
    rt_attention_f32(c->y_f, c->lse_f, c->q_f, c->kv_f + c->at_k, c->kv_f + c->at_v, c->a);
    rt_attention_grad_f64(c->d_q, c->d_kv + c->at_k, c->d_kv + c->at_v, c->q, c->kv + c->at_k,
                          c->kv + c->at_v, c->y, c->lse, c->d_y, c->a);
    rt_attention_grad_f32(c->d_q_f, c->d_kv_f + c->at_k, c->d_kv_f + c->at_v, c->q_f,
                          c->kv_f + c->at_k, c->kv_f + c->at_v, c->y_f, c->lse_f, c->d_y_f, c->a);
}

static void near(const Case *c, const char *what, double is, double is_f, double want)
{
    if (!(fabs(is - want) <= 1e-12 * (1 + fabs(want)))
        || !(fabs(is_f - want) <= 5e-5 * (1 + fabs(want))))
        fail_msg("%s at B %td H %td T %td S %td D %td E %td group %td causal %d: %g %g, wanted %g",
                 what, c->a.B, c->a.H, c->a.T, c->a.S, c->a.D, c->a.E, c->a.group, c->a.causal, is,
                 is_f, want);
}

/* Query t of head h by the formula; adds its share to the wanted gradients. */
static void reference_row(const Case *c, ptrdiff_t b, ptrdiff_t h, ptrdiff_t t, double *want_q,
                          double *want_kv)
{
    const RtAttention *a = &c->a;
    const ptrdiff_t seen = a->causal ? (t + a->S - a->T + 1 < 0 ? 0 : t + a->S - a->T + 1) : a->S;
    const ptrdiff_t keys = seen < a->S ? seen : a->S, kv = h / a->group;
    const ptrdiff_t at_q = b * a->q.b + h * a->q.h + t * a->q.t,
                    at_y = b * a->y.b + h * a->y.h + t * a->y.t;
    double *p = rt_alloc((size_t)(keys + 1) * sizeof *p, "p"), sum = 0, delta = 0;
    for (ptrdiff_t s = 0; s < keys; s++) {
        for (ptrdiff_t e = 0; e < a->D; e++)
            p[s] += c->q[at_q + e] * c->kv[c->at_k + b * a->k.b + kv * a->k.h + s * a->k.t + e];
        sum += p[s] = exp(a->scale * p[s]);
    }
    near(c, "lse", c->lse[(b * a->H + h) * a->T + t], (double)c->lse_f[(b * a->H + h) * a->T + t],
         keys ? log(sum) : 0);
    for (ptrdiff_t e = 0; e < a->E; e++) {
        double y = 0;
        for (ptrdiff_t s = 0; s < keys; s++)
            y += p[s] / sum * c->kv[c->at_v + b * a->v.b + kv * a->v.h + s * a->v.t + e];
        near(c, "y", c->y[at_y + e], (double)c->y_f[at_y + e], y);
        delta += y * c->d_y[at_y + e];
    }
    for (ptrdiff_t s = 0; s < keys; s++) {
        const ptrdiff_t at_k = c->at_k + b * a->k.b + kv * a->k.h + s * a->k.t;
        const ptrdiff_t at_v = c->at_v + b * a->v.b + kv * a->v.h + s * a->v.t;
        double d_p = 0;
        for (ptrdiff_t e = 0; e < a->E; e++) {
            d_p += c->d_y[at_y + e] * c->kv[at_v + e];
            want_kv[at_v + e] += p[s] / sum * c->d_y[at_y + e];
        }
        const double d_score = a->scale * p[s] / sum * (d_p - delta);
        for (ptrdiff_t e = 0; e < a->D; e++) {
            want_q[at_q + e] += d_score * c->kv[at_k + e];
            want_kv[at_k + e] += d_score * c->q[at_q + e];
        }
    }
    rt_free(p);
}

static void check(ptrdiff_t B, ptrdiff_t H, ptrdiff_t group, ptrdiff_t T, ptrdiff_t S, ptrdiff_t D,
                  ptrdiff_t E, bool causal)
{
    Case c = case_open(B, H, group, T, S, D, E, causal);
    case_run(&c);
    double *want_kv = rt_alloc(c.n_kv * sizeof *want_kv, "want");
    double *want_q = T == S ? want_kv : rt_alloc(c.n_q * sizeof *want_q, "want");
    for (ptrdiff_t b = 0; b < B; b++)
        for (ptrdiff_t h = 0; h < H; h++)
            for (ptrdiff_t t = 0; t < T; t++)
                reference_row(&c, b, h, t, want_q, want_kv);
    for (ptrdiff_t row = 0; row < B * S; row++)
        for (ptrdiff_t i = 0; i < c.kv_row; i++) {
            const ptrdiff_t at = row * c.kv_row + i;
            if (i < c.at_v + H / group * E)
                near(&c, "gradient", c.d_kv[at], (double)c.d_kv_f[at], want_kv[at]);
            else
                assert_true(isnan(c.d_kv[at]) && isnan(c.d_kv_f[at]));
        }
    for (ptrdiff_t row = 0; row < B * T && T != S; row++)
        for (ptrdiff_t i = 0; i < H * D; i++)
            near(&c, "d_q", c.d_q[row * c.q_row + i], (double)c.d_q_f[row * c.q_row + i],
                 want_q[row * c.q_row + i]);
    if (T != S)
        rt_free(want_q);
    rt_free(want_kv);
    case_free(&c);
}

static void any_size(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 200; i++) {
        const ptrdiff_t most = i % 10 == 0 ? 200 : 70, T = 1 + draw((uint32_t)most);
        const ptrdiff_t S = i % 3 ? T : 1 + draw((uint32_t)most), group = i % 2 ? 1 + draw(3) : 1;
        check(1 + draw(3), group * (1 + draw(3)), group, T, S, 1 + draw(40), 1 + draw(40), draw(2));
    }
}

static void one_head_shared_by_a_team(void **unused)
{
    RT_UNUSED(unused);
    check(1, 1, 1, 300, 300, 64, 64, true);
    check(1, 1, 1, 300, 200, 32, 48, true);
    check(1, 1, 1, 200, 333, 64, 32, true);
    check(1, 1, 1, 130, 333, 16, 17, false);
    check(1, 4, 4, 150, 150, 32, 32, true); /* and one of keys by all of queries */
    check(1, 3, 3, 100, 170, 16, 24, false);
}

static void queries_without_keys(void **unused)
{
    RT_UNUSED(unused);
    check(2, 2, 1, 90, 3, 8, 8, true); /* the first 87 queries see nothing */
    check(2, 2, 1, 5, 0, 4, 4, false);
    check(2, 2, 1, 5, 0, 4, 4, true);
    check(1, 2, 1, 0, 5, 4, 4, false);
    check(2, 4, 2, 90, 3, 8, 8, true);
    check(1, 2, 2, 5, 0, 4, 4, false);
    check(1, 2, 2, 0, 5, 4, 4, false);
}

/* d/dx of sum(y w) along a random direction, by central differences in double. */
static void gradient_is_the_difference(void **unused)
{
    RT_UNUSED(unused);
    for (int causal = 0; causal < 2; causal++) {
        Case c = case_open(2, 4, 1 + causal, 9, 9, 6, 6, causal);
        case_run(&c);
        double *way = rt_alloc(c.n_kv * sizeof *way, "way"), along = 0, value[2];
        for (size_t i = 0; i < c.n_kv; i++) {
            way[i] = draw_real();
            along += isnan(c.d_kv[i]) ? 0 : way[i] * c.d_kv[i];
        }
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < c.n_kv; i++)
                c.kv[i] += (side ? -2e-5 : 1e-5) * way[i];
            rt_attention_f64(c.y, c.lse, c.q, c.kv + c.at_k, c.kv + c.at_v, c.a);
            value[side] = 0;
            for (size_t i = 0; i + 1 < c.n_y; i++)
                value[side] += c.y[i] * c.d_y[i];
        }
        assert_true(fabs((value[0] - value[1]) / 2e-5 - along) < 1e-8 * (1 + fabs(along)));
        rt_free(way);
        case_free(&c);
    }
}

/* Scores far apart: nothing overflows, the largest takes all. */
static void large_scores(void **unused)
{
    RT_UNUSED(unused);
    const float q[1] = { 1000 }, k[3] = { -1000, 1000, 3 }, v[3] = { 1, 2, 4 };
    float y[1], lse[1];
    const RtHeads one = { 1, 1, 1 };
    rt_attention_f32(y, lse, q, k, v,
                     (RtAttention){ .B = 1,
                                    .H = 1,
                                    .T = 1,
                                    .S = 3,
                                    .D = 1,
                                    .E = 1,
                                    .scale = 1,
                                    .q = one,
                                    .k = one,
                                    .v = one,
                                    .y = one });
    assert_true(y[0] == 2 && lse[0] == 1e6f);
}

/* ---- 16 bit: the bits of the fp32 functions on the same values, rounded ---------------------- */

typedef struct {
    float (*of)(uint16_t);
    uint16_t (*to)(float);
    void (*forward)(uint16_t *, float *, const uint16_t *, const uint16_t *, const uint16_t *,
                    RtAttention);
    void (*back)(uint16_t *, uint16_t *, uint16_t *, const uint16_t *, const uint16_t *,
                 const uint16_t *, const uint16_t *, const float *, const uint16_t *, RtAttention);
} Half;

static float of_bf16(uint16_t h) { return rt_of_bf16(h); }
static uint16_t to_bf16(float x) { return rt_to_bf16(x); }
static float of_f16(uint16_t h) { return rt_of_f16(h); }
static uint16_t to_f16(float x) { return rt_to_f16(x); }
static const Half halves[] = {
    { of_bf16, to_bf16, rt_attention_bf16, rt_attention_grad_bf16 },
    { of_f16, to_f16, rt_attention_f16, rt_attention_grad_f16 },
};

static uint16_t *rounded(const Half *half, float *x, size_t n) /* both hold the same values */
{
    uint16_t *h = rt_alloc(n * sizeof *h, "h");
    for (size_t i = 0; i < n; i++) {
        h[i] = half->to(x[i]);
        x[i] = half->of(h[i]);
    }
    return h;
}

static void same_bits(const Half *half, const char *what, const uint16_t *is, const float *want,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(half->of(is[i])) : is[i] != half->to(want[i]))
            fail_msg("%s at %zu: %g, wanted %g", what, i, (double)half->of(is[i]), (double)want[i]);
}

static void check_half(const Half *half, ptrdiff_t T, ptrdiff_t S, ptrdiff_t D, ptrdiff_t E,
                       ptrdiff_t heads, ptrdiff_t group, bool causal)
{
    Case c = case_open(1 + heads % 2, heads * group, group, T, S, D, E, causal);
    const bool self = c.q == c.kv;
    float *lse = rt_alloc(c.n_lse * sizeof *lse, "lse");
    uint16_t *kv = rounded(half, c.kv_f, c.n_kv), *d_kv = rounded(half, c.d_kv_f, c.n_kv);
    uint16_t *q = self ? kv : rounded(half, c.q_f, c.n_q);
    uint16_t *d_q = self ? d_kv : rounded(half, c.d_q_f, c.n_q);
    uint16_t *y = rounded(half, c.y_f, c.n_y), *d_y = rounded(half, c.d_y_f, c.n_y);
    half->forward(y, lse, q, kv + c.at_k, kv + c.at_v, c.a);
    rt_attention_f32(c.y_f, c.lse_f, c.q_f, c.kv_f + c.at_k, c.kv_f + c.at_v, c.a);
    same_bits(half, "y", y, c.y_f, c.n_y);
    for (size_t i = 0; i + 1 < c.n_lse; i++)
        assert_true(rt_bits_f32(lse[i]) == rt_bits_f32(c.lse_f[i]));
    for (size_t i = 0; i < c.n_y; i++)
        c.y_f[i] = half->of(y[i]);
    half->back(d_q, d_kv + c.at_k, d_kv + c.at_v, q, kv + c.at_k, kv + c.at_v, y, lse, d_y, c.a);
    rt_attention_grad_f32(c.d_q_f, c.d_kv_f + c.at_k, c.d_kv_f + c.at_v, c.q_f, c.kv_f + c.at_k,
                          c.kv_f + c.at_v, c.y_f, c.lse_f, c.d_y_f, c.a);
    same_bits(half, "gradient", d_kv, c.d_kv_f, c.n_kv);
    same_bits(half, "d_q", d_q, c.d_q_f, self ? c.n_kv : c.n_q);
    uint16_t *all[] = { kv, d_kv, self ? NULL : q, self ? NULL : d_q, y, d_y };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rt_free(all[i]);
    rt_free(lse);
    case_free(&c);
}

static void half_is_the_rounded_float(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 120; i++) {
        const ptrdiff_t most = i % 10 == 0 ? 200 : 70, T = 1 + draw((uint32_t)most);
        check_half(&halves[i % 2], T, i % 3 ? T : 1 + draw((uint32_t)most), 1 + draw(40),
                   1 + draw(40), 1 + draw(3), 1 + draw(2), draw(2));
    }
    for (int i = 0; i < 2; i++) {
        check_half(&halves[i], 300, 300, 64, 64, 1, 1, true);
        check_half(&halves[i], 200, 333, 64, 32, 1, 1, true);
        check_half(&halves[i], 130, 333, 16, 17, 1, 1, false);
        check_half(&halves[i], 90, 3, 8, 8, 2, 1, true);
        check_half(&halves[i], 90, 0, 8, 8, 1, 1, true);
        check_half(&halves[i], 5, 0, 4, 4, 2, 1, false);
        check_half(&halves[i], 0, 5, 4, 4, 2, 1, false);
        check_half(&halves[i], 150, 150, 32, 32, 1, 4, true);
        check_half(&halves[i], 0, 5, 4, 4, 1, 2, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size),
        cmocka_unit_test(one_head_shared_by_a_team),
        cmocka_unit_test(queries_without_keys),
        cmocka_unit_test(gradient_is_the_difference),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(half_is_the_rounded_float),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
