/* oracle.c -- what a model computes, by the slow evaluator: sums, counts, gradients, outputs.
 *
 * Usage: oracle MODEL PRELUDE [NAME=VALUE ...]. The graphs are evaluated as lower made them, with
 * grad as the only pass, over the whole batch at once. Prints one value per line.
 */
#include <stdio.h>

#include "front/ast.h"
#include "front/lower.h"
#include "op/op.h"
#include "pass/pass.h"
#include "values.h"

typedef struct {
    Context *cx;
    Program *p;
    int64_t *dims;
    double *seeds, *counts;
    EvalEnv env;
} Oracle;

static Tensor made_tensor(Oracle *o, const Type *t) { return tensor_new(o->cx->arena, t, o->dims); }

static void make_values(Oracle *o)
{
    Program *p = o->p;
    Arena *a = o->cx->arena;
    o->env.params = NEW_ARRAY(a, Tensor, p->params.len + 1);
    o->env.inputs = NEW_ARRAY(a, Tensor, p->inputs.len + 1);
    for (int i = 0; i < p->params.len; i++) {
        Tensor t = made_tensor(o, p->params.at[i].stacked);
        for (int64_t k = 0; k < t.elems; k++)
            t.at[k] = value_param(i, p->params.at[i].role == ROLE_STATE, (uint64_t)k);
        o->env.params[i] = t;
    }
    for (int i = 0; i < p->inputs.len; i++) {
        const Input *in = &p->inputs.at[i];
        Tensor t = made_tensor(o, in->type);
        int64_t lo = 0, hi = 4;
        if (in->ranged) {
            lo = dim_eval(in->lo, o->dims);
            hi = dim_eval(in->hi, o->dims);
        }
        for (int64_t k = 0; k < t.elems; k++)
            t.at[k] = dtype_is_real(in->type->dtype)
                          ? value_real(2000 + (uint64_t)i, (uint64_t)k)
                          : (double)value_int(i, (uint64_t)k, lo, hi, in->has_ignore, in->ignore);
        o->env.inputs[i] = t;
    }
}

static void find_counts(Oracle *o)
{
    for (int i = 0; i < o->p->means.len; i++)
        if (o->p->means.at[i].count)
            o->counts[i] = (double)dim_eval(o->p->means.at[i].count, o->dims);
    if (o->p->count_graph) {
        Tensor *t = ir_eval(o->cx->arena, o->p->count_graph, &o->env);
        for (int i = 0; i < o->p->count_graph->sinks.len; i++) {
            const Sink *s = &o->p->count_graph->sinks.at[i];
            if (s->kind == SINK_COUNT)
                o->counts[s->index] += t[i].at[0];
        }
    }
    for (int i = 0; i < o->p->means.len; i++) {
        o->seeds[i] = o->counts[i] > 0 ? o->p->means.at[i].weight / o->counts[i] : 0;
        printf("count %d 0 %.17g\n", i, o->counts[i]);
    }
}

static void print_sinks(Oracle *o, Graph *g, const char *sums)
{
    Tensor *t = ir_eval(o->cx->arena, g, &o->env);
    Tensor **grad = NEW_ARRAY(o->cx->arena, Tensor *, o->p->params.len + 1);
    double *sum = NEW_ARRAY(o->cx->arena, double, o->p->means.len + 1);
    bool *seen = NEW_ARRAY(o->cx->arena, bool, o->p->means.len + 1);
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *s = &g->sinks.at[i];
        if (s->kind == SINK_SUM) {
            sum[s->index] += t[i].at[0];
            seen[s->index] = true;
        } else if (s->kind == SINK_OUTPUT) {
            for (int64_t k = 0; k < t[i].elems; k++)
                printf("output %d %lld %.17g\n", s->index, (long long)k, t[i].at[k]);
        } else if (s->kind == SINK_GRAD && grad[s->index] == NULL) {
            grad[s->index] = &t[i];
        } else if (s->kind == SINK_GRAD) {
            for (int64_t k = 0; k < t[i].elems; k++)
                grad[s->index]->at[k] += t[i].at[k];
        }
    }
    for (int i = 0; i < o->p->means.len; i++)
        if (seen[i])
            printf("%s %d 0 %.17g\n", sums, i, sum[i]);
    for (int i = 0; i < o->p->params.len; i++)
        for (int64_t k = 0; grad[i] && k < grad[i]->elems; k++)
            printf("grad %d %lld %.17g\n", i, (long long)k, grad[i]->at[k]);
}

static Program *read_model(Context *cx, const char *path, const char *prelude)
{
    const int file = source_read(cx, path);
    if (!file)
        return NULL;
    Ast *tree = parse_program(cx, file, NULL, 0);
    const SemOptions opt = { .prelude = prelude };
    if (diag_count(cx) > 0)
        return NULL;
    Checked *c = sem_check(cx, tree, &opt);
    return c ? lower_program(cx, c, DT_F64, LOWER_ALIKE) : NULL;
}

int main(int argc, char **argv)
{
    Context *cx = context_new();
    Oracle o = { .cx = cx };
    o.p = argc < 3 ? NULL : read_model(cx, argv[1], argv[2]);
    if (o.p == NULL) {
        diag_flush(cx, stderr);
        return 1;
    }
    const int n = dims_count(o.p->dims);
    o.dims = NEW_ARRAY(cx->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(o.p->dims, i);
        o.dims[i] = s->kind == SYM_CONST
                        ? s->value
                        : value_dim(argc, argv, s->name, s->kind == SYM_BATCH ? 3 : 5);
        if (s->kind == SYM_BATCH)
            o.dims[i] *= VALUE_MICRO_STEPS;
    }
    o.seeds = NEW_ARRAY(cx->arena, double, o.p->means.len + 1);
    o.counts = NEW_ARRAY(cx->arena, double, o.p->means.len + 1);
    o.env = (EvalEnv){ .dims = o.dims, .seeds = o.seeds, .seed = VALUE_SEED, .step = VALUE_STEP };
    make_values(&o);
    find_counts(&o);
    if (o.p->train_graph) {
        o.p->train_graph = pass_grad(o.p->train_graph);
        if (diag_count(cx) > 0) {
            diag_flush(cx, stderr);
            return 1;
        }
        print_sinks(&o, o.p->train_graph, "sum");
    }
    if (o.p->eval_graph)
        print_sinks(&o, o.p->eval_graph, "eval_sum");
    if (o.p->output_graph)
        print_sinks(&o, o.p->output_graph, "");
    context_free(cx);
    return 0;
}
