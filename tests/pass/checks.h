/* checks.h -- gradients against central differences, and passes against the graph they began with.
 *
 * In: a Case. Out: lines `ok grad NAME CHECK` or `not ok grad NAME CHECK: why`; n_failed.
 */
#ifndef TESTS_PASS_CHECKS_H
#define TESTS_PASS_CHECKS_H

#include "passes.h"

static int n_failed;

static void report(const char *name, const char *check, double worst, double limit)
{
    if (worst <= limit) {
#ifndef QUIET
        printf("ok grad %s %s\n", name, check);
#endif
    } else {
        printf("not ok grad %s %s: off by %.3g, %.3g allowed\n", name, check, worst, limit);
        n_failed++;
    }
}

static double inner_product(const Tensor *a, const Tensor *b)
{
    double sum = 0;
    for (int64_t i = 0; i < a->elems; i++)
        sum += a->at[i] * b->at[i];
    return sum;
}

/* The inputs of g whose adjoints are asked for: those that are real. */
static int real_inputs(Graph *g, Node **wrt)
{
    int n = 0;
    for (int i = 0; i < g->nodes.len; i++)
        if (g->nodes.at[i]->op == OP_INPUT && dtype_is_real(g->nodes.at[i]->type->dtype))
            wrt[n++] = g->nodes.at[i];
    return n;
}

/* <d_out, g(x + step v)>, where the values of d_out begin at program input first_d. */
static double moved(Case *c, Graph *g, Node *const *wrt, int n, const Tensor *v, double step,
                    int first_d)
{
    Tensor *saved = NEW_ARRAY(c->cx->arena, Tensor, c->value.len);
    memcpy(saved, c->value.at, sizeof *saved * (size_t)c->value.len);
    for (int i = 0; i < n; i++) {
        Tensor *x = &c->value.at[wrt[i]->attr.index];
        Tensor y = *x;
        y.at = NEW_ARRAY(c->cx->arena, double, x->elems + 1);
        for (int64_t k = 0; k < x->elems; k++)
            y.at[k] = x->at[k] + step * v[i].at[k];
        *x = y;
    }
    const Tensor *out = case_eval(c, g);
    double sum = 0;
    for (int i = 0, d = first_d; i < g->sinks.len; i++)
        if (dtype_is_real(g->sinks.at[i].node->type->dtype))
            sum += inner_product(&out[i], &saved[d++]);
    memcpy(c->value.at, saved, sizeof *saved * (size_t)c->value.len);
    return sum;
}

/* How far `got` is from the central difference along v. A function may be steep: where a step does
   not do, shorter ones are tried; what is wrong is wrong with all of them. */
static double off_along(Case *c, Graph *g, Node *const *wrt, int n, const Tensor *v, double got,
                        double limit, int first_d)
{
    double least = INFINITY;
    for (double h = 1e-4; h > 5e-9 && least > limit; h /= 10) {
        const double near = moved(c, g, wrt, n, v, h, first_d)
                            - moved(c, g, wrt, n, v, -h, first_d);
        const double far = moved(c, g, wrt, n, v, 2 * h, first_d)
                           - moved(c, g, wrt, n, v, -2 * h, first_d);
        const double want = (8 * near - far) / (12 * h);
        const double off = fabs(got - want) / fmax(1, fabs(want));
        least = isnan(off) ? least : fmin(least, off);
    }
    return least;
}

/* The gradient of g against a central difference; returns the gradient's graph. */
static Graph *check_gradient(Case *c, Graph *g, const char *name, const char *check, double limit)
{
    Node *wrt[64];
    const int n = real_inputs(g, wrt), first_d = c->program->inputs.len;
    Graph *d = grad_of_results(g, wrt, n);
    fill_new_inputs(c);
    const Tensor *grad = case_eval(c, d);
    double worst = 0;
    for (int turn = 0; turn < 3; turn++) {
        Tensor *v = NEW_ARRAY(c->cx->arena, Tensor, n + 1);
        double got = 0;
        for (int i = 0; i < n; i++) {
            v[i] = tensor_new(c->cx->arena, wrt[i]->type, c->size);
            const Tensor *x = &c->value.at[wrt[i]->attr.index];
            for (int64_t k = 0; k < v[i].elems; k++) /* exact zeros stay: they are kinks */
                v[i].at[k] = x->at[k] == 0 ? 0 : next_random(c);
            got += inner_product(&grad[i], &v[i]);
        }
        worst = fmax(worst, off_along(c, g, wrt, n, v, got, limit, first_d));
    }
    report(name, check, worst, limit);
    return d;
}

static void check_same(Case *c, Graph *g, Graph *other, const char *name, const char *check)
{
    const Tensor *a = case_eval(c, g), *b = case_eval(c, other);
    report(name, check,
           g->sinks.len == other->sinks.len ? difference(a, b, g->sinks.len) : INFINITY, 1e-11);
}

static Graph *keep(Graph *g, KeepRule rule)
{
    const KeepChoice choice = { .rule = rule, .price = 1e3 };
    return pass_keep(g, &choice, NULL);
}

static void check_keep(Case *c, Graph *g, const char *name, const char *order, const char *what)
{
    static const char *const rules[] = { "cheap", "all", "carry", "price" };
    char label[96];
    for (int rule = KEEP_CHEAP; rule <= KEEP_PRICE; rule++) {
        snprintf(label, sizeof label, "%s kept (%s)%s", order, rules[rule], what);
        check_same(c, g, keep(g, (KeepRule)rule), name, label);
    }
}

static void check_passes(Case *c, Graph *g, const char *name, const char *order)
{
    char label[64];
    Graph *simple = pass_simplify(g);
    snprintf(label, sizeof label, "%s simplified", order);
    check_same(c, g, simple, name, label);
    check_keep(c, simple, name, order, "");
    check_keep(c, g, name, order, ", not simplified");
    snprintf(label, sizeof label, "%s expanded", order);
    check_same(c, g, pass_simplify(pass_expand(simple, true)), name, label);
}

static void check_case(Case *c, const char *name)
{
    check_passes(c, c->g, name, "value");
    Graph *first = check_gradient(c, c->g, name, "gradient", 1e-6);
    check_passes(c, first, name, "gradient");
    Graph *lean = keep(pass_simplify(first), KEEP_CHEAP);
    Graph *second = check_gradient(c, first, name, "gradient of gradient", 1e-5);
    check_passes(c, second, name, "gradient of gradient");
    check_gradient(c, lean, name, "gradient of the kept gradient", 1e-5);
    context_free(c->cx);
}

#endif
