/* test_fuse.c -- the fuse pass against the evaluator.
 *
 *   test_fuse PRELUDE NAME FILE [CONST=VALUE ...] [-- DIM=VALUE ...]    a .model or .ir file
 *   test_fuse random FIRST LAST                                         random graphs by seed
 *
 * Each graph is taken through the passes, fused and unfused, and executed by machine.c; what its
 * sinks are must be what ir_eval says. Gradients are run twice, for the flag that adds. Prints a
 * test line per graph and setting.
 */
#include "machine.h"
#include "random.h"

#include "front/ast.h"
#include "front/lower.h"
#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Context *cx;
    Program *p;
    const char *name;
    int64_t *dims;
    Tensor *params, *inputs;
    double *seeds;
    bool print, quiet; /* quiet: only what fails is printed */
    int failed;
} Test;

/* ---- numbers -------------------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;

static double number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static void fill(Tensor *t, DType d, int64_t lo, int64_t hi)
{
    for (int64_t i = 0; i < t->elems; i++)
        t->at[i] = d == DT_I32    ? (double)(lo + (int64_t)(number() * (double)(hi - lo)))
                   : d == DT_BOOL ? number() < 0.5
                                  : 2 * number() - 1;
}

static EvalEnv env_of(const Test *t)
{
    return (EvalEnv){ .dims = t->dims,
                      .params = t->params,
                      .inputs = t->inputs,
                      .seeds = t->seeds,
                      .seed = 7,
                      .step = 3,
                      .sample_base = 0 };
}

static void prepare(Test *t, int n_given, char **given)
{
    Program *p = t->p;
    Arena *a = t->cx->arena;
    int n = dims_count(p->dims);
    static const int64_t small[] = { 3, 5, 4, 2, 6, 7 };
    t->dims = NEW_ARRAY(a, int64_t, n + 1);
    for (int i = 0, next = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        t->dims[i] = s->kind == SYM_CONST ? s->value : small[next++ % 6];
        size_t len = strlen(s->name);
        for (int k = 0; k < n_given; k++)
            if (strncmp(given[k], s->name, len) == 0 && given[k][len] == '=')
                t->dims[i] = atoll(given[k] + len + 1);
    }
    t->params = NEW_ARRAY(a, Tensor, p->params.len + 1);
    for (int i = 0; i < p->params.len; i++) {
        t->params[i] = tensor_new(a, p->params.at[i].stacked, t->dims);
        fill(&t->params[i], p->params.at[i].stacked->dtype, 0, 2);
    }
    t->inputs = NEW_ARRAY(a, Tensor, p->inputs.len + 65);
    for (int i = 0; i < p->inputs.len; i++) {
        const Input *in = &p->inputs.at[i];
        int64_t lo = in->ranged ? dim_eval(in->lo, t->dims) : 0;
        int64_t hi = in->ranged ? dim_eval(in->hi, t->dims) : 2;
        t->inputs[i] = tensor_new(a, in->type, t->dims);
        fill(&t->inputs[i], in->type->dtype, lo, hi);
        for (int64_t k = 0; in->has_ignore && k < t->inputs[i].elems; k += 3)
            t->inputs[i].at[k] = (double)in->ignore;
    }
    t->seeds = NEW_ARRAY(a, double, p->means.len + 1);
    for (int i = 0; i < p->means.len; i++)
        t->seeds[i] = 0.25 + 0.5 * i;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static const char *differs(Test *t, const char *what, const double *want, const double *got,
                           int64_t n)
{
    double norm = 1;
    for (int64_t i = 0; i < n; i++)
        norm = fabs(want[i]) > norm ? fabs(want[i]) : norm;
    for (int64_t i = 0; i < n; i++) {
        bool same = (isnan(want[i]) && isnan(got[i])) || want[i] == got[i]
                    || fabs(want[i] - got[i]) <= 1e-9 * norm;
        if (!same)
            return arena_printf(t->cx->arena, "%s differs at %lld: %.12g, not %.12g", what,
                                (long long)i, got[i], want[i]);
    }
    return NULL;
}

typedef struct {
    int n;
    Tensor *sum;
    bool *seen;
} Sums;

/* What the sinks of one kind and index add up to. */
static Sums add_sinks(Test *t, const Graph *g, const Tensor *value, SinkKind kind, int n)
{
    Sums s = { n, NEW_ARRAY(t->cx->arena, Tensor, n + 1), NEW_ARRAY(t->cx->arena, bool, n + 1) };
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *k = &g->sinks.at[i];
        if (k->kind != kind)
            continue;
        Tensor *to = &s.sum[k->index];
        if (!s.seen[k->index]) {
            *to = value[i];
            to->at = NEW_ARRAY(t->cx->arena, double, value[i].elems + 1);
        }
        s.seen[k->index] = true;
        for (int64_t e = 0; e < to->elems; e++)
            to->at[e] += value[i].at[e];
    }
    return s;
}

static const char *compare_kind(Test *t, Machine *m, const Graph *g, const Tensor *value,
                                SinkKind kind, BufKind buf, int n, double times, int from)
{
    Sums s = add_sinks(t, g, value, kind, n);
    for (int i = 0; i < n; i++) {
        if (!s.seen[i])
            continue;
        const Memory *mem = machine_buffer(m, buf, from + i);
        const char *what = kind == SINK_GRAD ? arena_printf(t->cx->arena, "gradient of %s",
                                                            t->p->params.at[i].name)
                                             : arena_printf(t->cx->arena, "%s %d",
                                                            kind == SINK_SUM     ? "sum"
                                                            : kind == SINK_COUNT ? "count"
                                                                                 : "output",
                                                            i);
        double *got = NEW_ARRAY(t->cx->arena, double, s.sum[i].elems + 1);
        for (int64_t e = 0; mem && e < s.sum[i].elems; e++) {
            got[e] = mem->at[buf == BUF_GRAD ? machine_param_at(m, i, e) : e];
            s.sum[i].at[e] *= times;
        }
        const char *wrong = mem ? differs(t, what, s.sum[i].at, got, s.sum[i].elems)
                                : "nothing writes it";
        if (wrong)
            return mem ? wrong : arena_printf(t->cx->arena, "nothing writes %s", what);
    }
    return NULL;
}

static int max_index(const Graph *g, SinkKind kind)
{
    int n = 0;
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == kind && g->sinks.at[i].index >= n)
            n = g->sinks.at[i].index + 1;
    return n;
}

static const char *check_routine(Test *t, Graph *g, Routine *r)
{
    EvalEnv env = env_of(t);
    Tensor *value = ir_eval(t->cx->arena, g, &env);
    Machine m = machine_new(t->cx->arena, t->p, r, &env);
    for (int times = 1; times <= 2; times++) {
        m.add = times > 1;
        machine_run(&m);
        if (m.wrong)
            return m.wrong;
        static const struct {
            SinkKind kind;
            BufKind buf;
            bool adds;
        } all[] = {
            { SINK_RESULT, BUF_OUTPUT, false }, { SINK_OUTPUT, BUF_OUTPUT, false },
            { SINK_SUM, BUF_SUM, true },        { SINK_COUNT, BUF_COUNT, true },
            { SINK_GRAD, BUF_GRAD, true },
        };
        for (int i = 0; i < 5; i++) {
            const char *wrong = compare_kind(t, &m, g, value, all[i].kind, all[i].buf,
                                             max_index(g, all[i].kind), all[i].adds ? times : 1,
                                             all[i].kind == SINK_RESULT ? t->p->outputs.len : 0);
            if (wrong)
                return wrong;
        }
    }
    return NULL;
}

/* Arguments of a graph from text become its inputs. */
static void fill_args(Test *t, const Graph *g)
{
    for (int i = 0; i < g->args.len && i < 64; i++) {
        const Type *type = g->args.at[i]->type;
        t->inputs[i] = tensor_new(t->cx->arena, type, t->dims);
        fill(&t->inputs[i], type->dtype, 0, 3);
    }
}

static int count_steps(const Steps *steps)
{
    int n = 0;
    for (int i = 0; i < steps->len; i++)
        n += steps->at[i]->kernel ? 1 : count_steps(&steps->at[i]->body);
    return n;
}

static void check(Test *t, Graph *g, const char *name, bool fuse)
{
    KernelProgram kp = { .program = t->p, .align = 64 };
    Routine *r = pass_fuse(&kp, g, name, fuse);
    if (t->print) {
        Text out = text_new(t->cx->arena);
        kernel_print(&out, &kp, r);
        fputs(out.at, stderr);
    }
    const char *wrong = check_routine(t, g, r);
    pass_order(&kp, r);
    if (!wrong) {
        pass_plan(&kp, r, true);
        wrong = plan_judge(&kp, r);
    }
    t->failed += wrong != NULL;
    if (t->quiet && !wrong) {
        arena_reset(t->cx->scratch);
        return;
    }
    printf("%s %s-%s-%s%s%s\n", wrong ? "not ok" : "ok", t->name, name, fuse ? "fused" : "plain",
           wrong ? ": " : "", wrong ? wrong : "");
    fprintf(stderr, "%s-%s-%s: %d steps, %d buffers\n", t->name, name, fuse ? "fused" : "plain",
            count_steps(&r->steps), r->buffers.len);
    arena_reset(t->cx->scratch);
}

/* ---- the passes ----------------------------------------------------------------------------- */

static Graph *through_passes(Graph *g, bool train, bool expand_all)
{
    g = pass_simplify(g);
    if (train)
        g = pass_grad(g);
    g = pass_simplify(g);
    const KeepChoice cheap = { .rule = KEEP_CHEAP };
    g = pass_keep(g, &cheap, NULL);
    g = pass_expand(g, expand_all);
    return pass_simplify(g);
}

static bool has_sums(const Graph *g)
{
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_SUM)
            return true;
    return false;
}

static void check_graph(Test *t, Graph *g, const char *name, bool train, bool text)
{
    if (!g)
        return;
    for (int all = 0; all < 2; all++) {
        Graph *done = through_passes(g, train && has_sums(g), all);
        if (text)
            fill_args(t, done);
        arena_reset(t->cx->scratch);
        const char *label = all ? arena_printf(t->cx->arena, "%s-expanded", name) : name;
        check(t, done, label, true);
        check(t, done, label, false);
    }
}

static Program *read_program(Context *cx, const char *prelude, const char *path, int n,
                             char **given)
{
    size_t len = strlen(path);
    Program *p = NULL;
    int file = source_read(cx, path);
    if (len > 3 && strcmp(path + len - 3, ".ir") == 0) {
        if (file)
            ir_read(cx, file, &p);
        return p;
    }
    Ast *tree = file ? parse_program(cx, file, NULL, 0) : NULL;
    Define *defines = NEW_ARRAY(cx->arena, Define, n + 1);
    for (int i = 0; i < n; i++) {
        const char *value = strchr(given[i], '=');
        defines[i] = (Define){ intern_n(cx, given[i], (size_t)(value - given[i])), value + 1,
                               given[i] };
    }
    const SemOptions opt = { defines, n, prelude };
    Checked *c = tree && !diag_count(cx) ? sem_check(cx, tree, &opt) : NULL;
    return c && !diag_count(cx) ? lower_program(cx, c, DT_F64, LOWER_ALIKE) : NULL;
}

/* One test line for all graphs of the range, and one for each that fails. */
static int run_random(uint64_t first, uint64_t last)
{
    int failed = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        Context *cx = context_new();
        Test t = { .cx = cx, .print = getenv("PRINT") != NULL, .quiet = true };
        t.name = arena_printf(cx->arena, "random-%llu", (unsigned long long)seed);
        t.p = random_program(cx, seed);
        state = 88172645463325252u;
        prepare(&t, 2, (char *[]){ "B=3", "T=4" });
        Graph *g = t.p->graphs.at[0];
        if (t.print) {
            Text out = text_new(cx->arena);
            ir_print(&out, g);
            fputs(out.at, stderr);
        }
        arena_reset(cx->scratch);
        check(&t, g, "raw", true);
        check(&t, g, "raw", false);
        g = pass_simplify(g);
        arena_reset(cx->scratch);
        check(&t, g, "simple", true);
        failed += t.failed;
        context_free(cx);
    }
    if (!failed)
        printf("ok random-%llu-%llu\n", (unsigned long long)first, (unsigned long long)last);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    if (strcmp(argv[1], "random") == 0)
        return run_random(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    Context *cx = context_new();
    Test t = { .cx = cx, .name = argv[2], .print = getenv("PRINT") != NULL };
    int n_const = 0, n_dims = 0;
    char **consts = argv + 4, **dims = argv + argc;
    for (int i = 4; i < argc && strcmp(argv[i], "--") != 0; i++)
        n_const++;
    if (4 + n_const < argc) {
        dims = argv + 5 + n_const;
        n_dims = argc - 5 - n_const;
    }
    t.p = read_program(cx, argv[1], argv[3], n_const, consts);
    if (!t.p || diag_count(cx)) {
        diag_flush(cx, stderr);
        printf("not ok %s: the file has errors\n", argv[2]);
        return 1;
    }
    prepare(&t, n_dims, dims);
    check_graph(&t, t.p->train_graph, "train", true, false);
    check_graph(&t, t.p->eval_graph, "eval", false, false);
    check_graph(&t, t.p->count_graph, "count", false, false);
    check_graph(&t, t.p->output_graph, "output", false, false);
    for (int i = 0; i < t.p->graphs.len; i++)
        check_graph(&t, t.p->graphs.at[i], t.p->graphs.at[i]->name, true,
                    t.p->graphs.at[i]->args.len > 0);
    context_free(cx);
    return 0;
}
