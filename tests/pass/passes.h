/* passes.h -- what the C tests of the passes share: small programs, values, comparisons. */
#ifndef TESTS_PASS_PASSES_H
#define TESTS_PASS_PASSES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "pass/pass.h"

/* A program of one graph over inputs, with sizes for its dims and values for its inputs. */
typedef struct {
    Context *cx;
    Program *program;
    Dims *dims;
    Graph *g;
    Node *input[8];
    int n_inputs;
    int64_t size[64];  /* by symbol id */
    VEC(Tensor) value; /* by program input */
    uint64_t state;    /* of the random numbers */
} Case;

static const Span nowhere = { 0 };

static double next_random(Case *c) /* in (-1, 1) */
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(c->state >> 11) / (double)(1ull << 52) - 1;
}

static Case *case_new(uint64_t seed)
{
    Context *cx = context_new();
    Case *c = NEW(cx->arena, Case);
    c->cx = cx;
    c->program = program_new(cx);
    if (!c->program->dims)
        c->program->dims = dims_new(cx);
    c->dims = c->program->dims;
    c->program->real = DT_F64;
    c->g = graph_new(c->program, "f", NULL);
    c->state = seed * 977 + 13;
    for (int i = 0; i < 8; i++)
        next_random(c);
    return c;
}

static const Dim *case_dim(Case *c, const char *name, SymKind kind, int64_t size)
{
    Symbol *s = dims_find(c->dims, intern(c->cx, name));
    if (!s)
        s = dims_symbol(c->dims, intern(c->cx, name), kind, size, nowhere);
    c->size[s->id] = size;
    return dim_sym(c->dims, s);
}

static const Type *case_type(Case *c, DType t, int rank, const Dim *const *dim)
{
    return type_of(c->dims, t, rank, dim);
}

static void fill_random(Case *c, Tensor *t, const Type *type, int64_t below)
{
    for (int64_t i = 0; i < t->elems; i++) {
        const double r = next_random(c);
        t->at[i] = type->dtype == DT_BOOL  ? r > 0
                   : type->dtype == DT_I32 ? floor((r + 1) / 2 * (double)below)
                                           : 0.3 + 0.9 * r;
    }
}

/* A new input with random values; integers are in 0..below. */
static Node *case_input(Case *c, DType t, int rank, const Dim *const *dim, int64_t below)
{
    const Input in = { .name = intern_printf(c->cx, "x%d", c->n_inputs),
                       .type = case_type(c, t, rank, dim) };
    vec_push(c->cx->arena, &c->program->inputs, in);
    Tensor value = tensor_new(c->cx->arena, in.type, c->size);
    fill_random(c, &value, in.type, below);
    vec_push(c->cx->arena, &c->value, value);
    Node *n = ir_input(c->g, c->program->inputs.len - 1, nowhere);
    c->input[c->n_inputs++] = n;
    return n;
}

/* Values for inputs that grad_of_results appended. */
static void fill_new_inputs(Case *c)
{
    while (c->value.len < c->program->inputs.len) {
        const Type *t = c->program->inputs.at[c->value.len].type;
        Tensor value = tensor_new(c->cx->arena, t, c->size);
        fill_random(c, &value, t, 1);
        vec_push(c->cx->arena, &c->value, value);
    }
}

static Tensor *case_eval(Case *c, Graph *g)
{
    const EvalEnv env = { .dims = c->size,
                          .inputs = c->value.at,
                          .seed = 11,
                          .step = 3,
                          .sample_base = 40 };
    return ir_eval(c->cx->arena, g, &env);
}

/* The sinks' largest difference, relative to their size. */
static double difference(const Tensor *a, const Tensor *b, int n)
{
    double worst = 0;
    for (int k = 0; k < n; k++) {
        double size = 1e-3, apart = 0;
        if (a[k].elems != b[k].elems)
            return INFINITY;
        for (int64_t i = 0; i < a[k].elems; i++) {
            if (isnan(a[k].at[i]) && isnan(b[k].at[i]))
                continue;
            size = fmax(size, fabs(a[k].at[i]));
            const double d = fabs(a[k].at[i] - b[k].at[i]);
            apart = d <= apart ? apart : isnan(d) ? INFINITY : d;
        }
        worst = fmax(worst, apart / size);
    }
    return worst;
}

#endif
