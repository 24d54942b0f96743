/* pipeline.c -- the passes, in one table, and the loop that runs, times, dumps and checks them.
 *
 * In: options and the path of a model (or of IR text). Out: text: dumps, and what --emit asks for.
 * After each pass the messages are looked at, the graphs are checked, and the scratch arena is
 * forgotten.
 */
#include "pipeline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emit/emit.h"
#include "front/ast.h"
#include "front/lower.h"
#include "op/op.h"
#include "pass/kernel.h"
#include "pass/pass.h"
#include "recompute.h"

#ifndef GRADCC_VERSION
#define GRADCC_VERSION "0"
#endif

_Static_assert((int)LOOP_DEPTH_MAX <= (int)DEPTH_MAX,
               "kernels lie in as many loops as models may have");

typedef struct {
    Context *cx;
    const Options *opt;
    const char *prelude;
    Ast *tree;
    Checked *checked;
    Program *program;
    const Target *target;
    KernelProgram *kernels;
    Text *out;
} Run;

typedef enum {
    FORM_TEXT,
    FORM_TREE,
    FORM_CHECKED,
    FORM_TENSOR,
    FORM_KERNEL,
    FORM_PLAN,
    FORM_C
} Form;

static const char *const form_name[] = {
    "text", "tree", "checked tree", "tensor IR", "kernel IR", "kernel IR + plan", "C",
};

typedef struct {
    const char *name;
    void (*run)(Run *r);
    Form from, to;
    Stage stage;   /* what ir_check expects of tensor IR after it */
    bool optional; /* --skip and -O0 leave it out, or make it plain */
    const char *purpose;
} Pass;

static bool is_named(const TextList *list, const char *name)
{
    for (int i = 0; i < list->len; i++)
        if (strcmp(list->at[i], name) == 0)
            return true;
    return false;
}

static bool is_off(const Run *r, const char *pass)
{
    return r->opt->unoptimised || is_named(&r->opt->skip, pass);
}

/* ---- the passes ---------------------------------------------------------------------------- */

static void run_parse(Run *r)
{
    const int file = source_read(r->cx, r->opt->input);
    if (file && r->opt->ir)
        ir_read(r->cx, file, &r->program);
    else if (file)
        r->tree = parse_program(r->cx, file, r->opt->include_dirs.at, r->opt->include_dirs.len);
}

static void run_sem(Run *r)
{
    const SemOptions opt = { r->opt->defines.at, r->opt->defines.len, r->prelude };
    r->checked = sem_check(r->cx, r->tree, &opt);
}

/* What the command line asks for, else the train block, else fp32. */
static int precision_of(const Run *r)
{
    if (r->opt->precision != PRECISION_UNSET)
        return r->opt->precision;
    const int given = r->checked ? r->checked->train.precision : PRECISION_UNSET;
    return given >= 0 ? given : PRECISION_FP32;
}

static DType narrow_of(int precision)
{
    return precision == PRECISION_BF16 ? DT_BF16 : precision == PRECISION_FP16 ? DT_F16 : DT_F32;
}

static const char *narrow_word(DType t) { return t == DT_BF16 ? "bf16" : "fp16"; }

/* The 16-bit type of the program and of layers with a precision of their own; DT_F32: none. */
static DType find_narrow(const Run *r)
{
    static const DType
        of[] = { [REGION_FP32] = DT_F32, [REGION_BF16] = DT_BF16, [REGION_FP16] = DT_F16 };
    const int precision = precision_of(r);
    const CheckedRegion *first = NULL;
    DType narrow = narrow_of(precision);
    for (int i = 0; r->checked && i < r->checked->regions.len; i++) {
        const CheckedRegion *l = &r->checked->regions.at[i];
        const DType t = of[l->region];
        if (t == DT_F32 || t == narrow || precision == PRECISION_FP64)
            continue;
        if (narrow == DT_F32) {
            narrow = t;
            first = l;
            continue;
        }
        Diag *d = diag_error(r->cx, l->span, "layer %s in %s, %s in %s: one 16-bit type at a time",
                             l->name, narrow_word(t), first ? "another" : "the program",
                             narrow_word(narrow));
        if (first)
            diag_note(d, first->span, "%s is the other layer", first->name);
    }
    return narrow;
}

static Span span_of_option(const Run *r, const char *typed)
{
    return (Span){ source_add_option(r->cx, typed, ""), 0, 0 };
}

/* Do parameters have no fp32 master? In programs without bf16 that is an error. */
static bool is_masterless(const Run *r, DType narrow)
{
    const bool option = r->opt->masters != MASTERS_UNSET;
    const bool none = option ? r->opt->masters == MASTERS_NONE
                             : r->checked && r->checked->train.masterless;
    const bool tensorwise = r->checked && r->checked->train.tensorwise;
    if (!none || (narrow == DT_BF16 && !tensorwise))
        return none;
    const Span at = option ? span_of_option(r, "--masters=none") : r->checked->train.masters_span;
    if (narrow == DT_BF16) {
        Diag *d = diag_error(
            r->cx, at, "weights without masters: the optimizer works on whole tensors, in fp32");
        diag_note(d, r->checked->train.optimizer_span, "it is set here");
        return false;
    }
    Diag *d = diag_error(
        r->cx, at, "weights without masters are for bf16 alone, and this program computes in %s",
        narrow == DT_F16                    ? "fp16"
        : precision_of(r) == PRECISION_FP64 ? "fp64"
                                            : "fp32");
    diag_hint(d, "precision = bf16, or gradcc --precision=bf16");
    return false;
}

static void run_lower(Run *r)
{
    const int precision = precision_of(r);
    const DType narrow = find_narrow(r);
    is_masterless(r, narrow);
    const bool mixed = r->checked->regions.len > 0 && narrow != DT_F32;
    r->program = lower_program(r->cx, r->checked, precision == PRECISION_FP64 ? DT_F64 : DT_F32,
                               !mixed                           ? LOWER_ALIKE
                               : narrow_of(precision) != DT_F32 ? LOWER_WIDE
                                                                : LOWER_NARROW);
}

typedef VEC(Graph **) Slots;

static Slots graphs_of(Run *r)
{
    Program *p = r->program;
    Slots s = { 0 };
    Graph **named[] = { &p->train_graph, &p->eval_graph, &p->count_graph, &p->output_graph };
    for (int i = 0; i < 4; i++)
        if (*named[i])
            vec_push(r->cx->scratch, &s, named[i]);
    for (int i = 0; i < p->graphs.len; i++)
        vec_push(r->cx->scratch, &s, &p->graphs.at[i]);
    return s;
}

static bool has_sums(const Graph *g)
{
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_SUM)
            return true;
    return false;
}

static void run_simplify(Run *r)
{
    const Slots s = graphs_of(r);
    for (int i = 0; i < s.len; i++)
        *s.at[i] = pass_simplify(*s.at[i]);
}

static void run_precision(Run *r)
{
    Program *p = r->program;
    const DType narrow = find_narrow(r);
    if (narrow == DT_F32)
        return;
    p->narrow = narrow;
    Graph **forward[] = { &p->train_graph, &p->eval_graph, &p->output_graph };
    for (int i = 0; i < 3; i++)
        if (*forward[i])
            *forward[i] = pass_precision(*forward[i], p->narrow);
    for (int i = 0; i < p->graphs.len; i++)
        p->graphs.at[i] = pass_precision(p->graphs.at[i], p->narrow);
    if (p->count_graph) /* in 32 bits */
        p->count_graph = pass_borderless(p->count_graph);
    for (int i = 0; i < p->metrics.len; i++)
        p->metrics.at[i].formula = pass_borderless(p->metrics.at[i].formula);
}

static void run_masters(Run *r)
{
    Program *p = r->program;
    if (!is_masterless(r, find_narrow(r)))
        return;
    const Slots s = graphs_of(r);
    for (int i = 0; i < s.len; i++)
        masters_mark(*s.at[i]);
    for (int i = 0; i < s.len; i++)
        *s.at[i] = pass_masters(*s.at[i]);
    masters_place(p);
}

static void run_lint(Run *r)
{
    if (r->checked)
        pass_lint(r->program);
}

static void run_grad(Run *r)
{
    Program *p = r->program;
    if (p->train_graph)
        p->train_graph = pass_settle(pass_grad(p->train_graph));
    for (int i = 0; i < p->graphs.len; i++)
        if (has_sums(p->graphs.at[i]))
            p->graphs.at[i] = pass_grad(p->graphs.at[i]);
}

/* Unless told otherwise: logits that take more than that are computed so many rows at a time, which
   costs less than 1 % of a step. More of them on a GPU: each part adds to the whole gradient of the
   head, which there takes longer than its product. */
enum { HEAD_LARGE = 128 << 20, HEAD_ROWS = 512, HEAD_ROWS_GPU = 8192 };

/* Rows of the head at a time; told: the user says so. */
static int64_t head_rows_of(const Run *r, bool *told)
{
    int64_t rows = r->opt->head_rows;
    if (rows < 0 && r->checked)
        rows = r->checked->train.head_rows;
    *told = rows >= 0;
    return *told ? rows : r->opt->target == TARGET_CUDA ? HEAD_ROWS_GPU : HEAD_ROWS;
}

/* g, or g with its head in parts; NULL: it was asked for and cannot be. */
static Graph *head_in_parts(const Run *r, Graph *g, const Node **fail)
{
    bool told;
    const int64_t rows = head_rows_of(r, &told);
    *fail = NULL;
    if (rows == 0 || (!told && chunk_head_bytes(g) <= HEAD_LARGE))
        return g;
    Graph *parts = pass_chunk(g, rows, fail);
    return parts || told ? parts : g;
}

/* The arena of a graph that is on its way to a plan; its effort. */
static Tried try_graph(Run *r, Graph *g, const char *name)
{
    const DType narrow = r->program->narrow;
    const bool rounds = narrow == DT_BF16 || narrow == DT_F16;
    KernelProgram *kp = NEW(r->cx->arena, KernelProgram);
    kp->program = r->program;
    kp->align = r->target->align;
    g = pass_expand(g, r->opt->unoptimised && !rounds);
    if (!is_off(r, "clean"))
        g = pass_simplify(g);
    const Node *fail;
    Graph *parts = head_in_parts(r, g, &fail);
    g = parts ? parts : g;
    kp->train = pass_fuse(kp, g, name, !is_off(r, "fuse"));
    r->target->workspace(kp);
    pass_order(kp, kp->train);
    pass_plan(kp, kp->train, !is_off(r, "plan"));
    const Tried t = { kp->train->arena_bytes, routine_effort(kp, kp->train) };
    arena_reset(r->cx->scratch);
    return t;
}

static Tried try_training(void *user, const KeepChoice *choice, AgainList *again)
{
    Run *r = user;
    return try_graph(r, pass_keep(r->program->train_graph, choice, again), "train");
}

static int64_t try_others(void *user)
{
    Run *r = user;
    Graph *const other[] = { r->program->eval_graph, r->program->count_graph };
    int64_t most = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t bytes = other[i] ? try_graph(r, other[i], "eval").arena : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void set_recompute(Run *r)
{
    static const char *const words[] = { "auto", "none", "blocks" };
    Recompute *at = &r->program->recompute;
    if (r->checked) {
        at->kind = (RecomputeKind)r->checked->train.recompute;
        at->budget = r->checked->train.budget;
        at->span = r->checked->train.recompute_span;
    }
    for (int i = 0; r->opt->ir && r->opt->recompute && i < 3; i++)
        if (strcmp(r->opt->recompute, words[i]) == 0)
            at->kind = (RecomputeKind)i;
}

static void run_keep(Run *r)
{
    static const KeepChoice cheap = { .rule = KEEP_CHEAP };
    const RecomputeTrial trial = { r, try_training, try_others };
    KeepChoice choice;
    set_recompute(r);
    if (!recompute_choose(r->program, &trial, r->opt->explain == EXPLAIN_RECOMPUTE, &choice))
        return;
    const Slots s = graphs_of(r);
    for (int i = 0; i < s.len; i++) {
        const bool joint = s.at[i] == &r->program->train_graph || r->opt->ir;
        *s.at[i] = pass_keep(*s.at[i], joint ? &choice : &cheap, NULL);
    }
}

static void run_expand(Run *r)
{
    const Slots s = graphs_of(r);
    const DType narrow = r->program->narrow;
    const bool rounds = narrow == DT_BF16 || narrow == DT_F16; /* attention on 16-bit operands */
    for (int i = 0; i < s.len; i++)
        *s.at[i] = pass_expand(*s.at[i], r->opt->unoptimised && !rounds);
}

/* Where the head cannot be done in parts. */
static void tell_whole_head(Run *r, const Graph *g, const Node *fail)
{
    const bool option = r->opt->head_rows >= 0 || !r->checked;
    const Span at = option ? span_of_option(r, "--head-rows") : r->checked->train.head_span;
    if (!fail) {
        diag_error(r->cx, at, "the loss does not follow row by row from a matrix product");
        return;
    }
    Diag *d = diag_error(r->cx, at, "the logits cannot be computed in parts%s",
                         strcmp(g->name, "eval") == 0 ? " in validation" : "");
    diag_note(d, fail->span, "this needs all rows at once");
}

static void run_chunk(Run *r)
{
    Program *p = r->program;
    bool told;
    const int64_t rows = head_rows_of(r, &told);
    Graph **whole[] = { &p->train_graph, &p->eval_graph };
    for (int i = 0; i < 2 && diag_count(r->cx) == 0; i++) {
        const Node *fail;
        Graph *parts = *whole[i] ? head_in_parts(r, *whole[i], &fail) : NULL;
        if (*whole[i] && !parts)
            tell_whole_head(r, *whole[i], fail);
        else
            *whole[i] = parts;
    }
    for (int i = 0; told && rows > 0 && i < p->graphs.len; i++) {
        const Node *fail = NULL;
        Graph *parts = pass_chunk(p->graphs.at[i], rows, &fail);
        p->graphs.at[i] = parts ? parts : p->graphs.at[i];
    }
}

static void run_fuse(Run *r)
{
    Program *p = r->program;
    const bool fuse = !is_off(r, "fuse");
    r->kernels = NEW(r->cx->arena, KernelProgram);
    r->kernels->program = p;
    r->kernels->align = r->target->align;
    if (p->train_graph)
        r->kernels->train = pass_fuse(r->kernels, p->train_graph, "train", fuse);
    if (p->eval_graph)
        r->kernels->eval = pass_fuse(r->kernels, p->eval_graph, "eval", fuse);
    if (p->count_graph)
        r->kernels->count = pass_fuse(r->kernels, p->count_graph, "count", fuse);
    if (p->output_graph)
        r->kernels->output = pass_fuse(r->kernels, p->output_graph, "output", fuse);
    r->target->workspace(r->kernels);
}

typedef struct {
    Routine *at[4];
    int n;
} Routines;

static Routines routines_of(const Run *r)
{
    Routine *const all[] = { r->kernels->train, r->kernels->eval, r->kernels->count,
                             r->kernels->output };
    Routines list = { .n = 0 };
    for (int i = 0; i < 4; i++)
        if (all[i])
            list.at[list.n++] = all[i];
    return list;
}

static void run_order(Run *r)
{
    const Routines list = routines_of(r);
    for (int i = 0; i < list.n; i++)
        pass_order(r->kernels, list.at[i]);
}

static void judge_plan(Run *r, Routine *routine)
{
    const char *wrong = plan_judge(r->kernels, routine);
    if (wrong)
        bug("the plan of %s is wrong: %s", routine->name, wrong);
}

static void run_plan(Run *r)
{
    const Routines list = routines_of(r);
    for (int i = 0; i < list.n; i++) {
        pass_plan(r->kernels, list.at[i], !is_off(r, "plan"));
        if (diag_count(r->cx) > 0)
            return;
        judge_plan(r, list.at[i]);
    }
    plan_share(r->kernels);
    if (r->kernels->output && r->kernels->output->shares) {
        judge_plan(r, r->kernels->eval); /* it was placed anew */
        judge_plan(r, r->kernels->output);
    }
}

static void run_emit(Run *r)
{
    const EmitOptions opt = { r->opt->command, GRADCC_VERSION };
    r->target->emit(r->out, r->kernels, &opt);
}

static const Pass passes[] = {
    /* name        function      from          to            check         optional purpose */
    { "parse", run_parse, FORM_TEXT, FORM_TREE, STAGE_TENSOR, false,
      "characters to a syntax tree, includes followed" },
    { "sem", run_sem, FORM_TREE, FORM_CHECKED, STAGE_TENSOR, false,
      "names, layers, sizes, constants" },
    { "lower", run_lower, FORM_CHECKED, FORM_TENSOR, STAGE_TENSOR, false,
      "one graph per entry and phase" },
    { "simplify", run_simplify, FORM_TENSOR, FORM_TENSOR, STAGE_TENSOR, true,
      "rules, folding, dead code" },
    { "precision", run_precision, FORM_TENSOR, FORM_TENSOR, STAGE_TENSOR, false,
      "what is rounded to 16 bits (--precision=bf16, fp16)" },
    { "masters", run_masters, FORM_TENSOR, FORM_TENSOR, STAGE_TENSOR, false,
      "parameters of 16 bits alone (--masters=none)" },
    { "lint", run_lint, FORM_TENSOR, FORM_TENSOR, STAGE_TENSOR, false,
      "warns of what can be NaN or infinite" },
    { "grad", run_grad, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, false, "adds the adjoints" },
    { "tidy", run_simplify, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, true,
      "the same rules once more: most derivative clutter goes here" },
    { "keep", run_keep, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, true,
      "what a backward loop keeps, and what it computes again" },
    { "expand", run_expand, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, false,
      "ops that fuse better in parts, written out" },
    { "clean", run_simplify, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, true,
      "the same rules on those parts" },
    { "chunk", run_chunk, FORM_TENSOR, FORM_TENSOR, STAGE_JOINT, false,
      "the logits a part of the rows at a time (--head-rows)" },
    { "fuse", run_fuse, FORM_TENSOR, FORM_KERNEL, STAGE_JOINT, true,
      "ops to kernels; skipped: a kernel per op" },
    { "order", run_order, FORM_KERNEL, FORM_KERNEL, STAGE_JOINT, false,
      "numbers the steps, finds how long each buffer lives" },
    { "plan", run_plan, FORM_KERNEL, FORM_PLAN, STAGE_JOINT, true,
      "places in the arena; skipped: no place is shared" },
    { "emit", run_emit, FORM_PLAN, FORM_C, STAGE_JOINT, false,
      "kernels, steps and plan as C or CUDA" },
};

enum { N_PASSES = sizeof passes / sizeof *passes };

void pipeline_list(Text *out)
{
    for (int i = 0; i < N_PASSES; i++)
        text_add(out, "%-9s %-16s -> %-16s %s%s\n", passes[i].name, form_name[passes[i].from],
                 form_name[passes[i].to], passes[i].purpose,
                 passes[i].optional ? " (optional)" : "");
}

const char *pipeline_check_names(Context *cx, const Options *opt)
{
    const TextList *lists[] = { &opt->dump_after, &opt->skip, &opt->only };
    const char *names[N_PASSES];
    for (int i = 0; i < N_PASSES; i++)
        names[i] = passes[i].name;
    for (int k = 0; k <= 3; k++)
        for (int i = 0; i < (k < 3 ? lists[k]->len : opt->stop_after != NULL); i++) {
            const char *given = k < 3 ? lists[k]->at[i] : opt->stop_after;
            const Pass *found = NULL;
            for (int j = 0; j < N_PASSES; j++)
                if (strcmp(given, passes[j].name) == 0)
                    found = &passes[j];
            const char *near = found ? NULL : diag_suggest(given, names, N_PASSES);
            if (found == NULL)
                return arena_printf(cx->arena,
                                    near ? "%s is no pass: did you mean %s?"
                                         : "%s is no pass: gradcc --list-passes prints them",
                                    given, near);
            if (k == 1 && !found->optional)
                return arena_printf(cx->arena, "the pass %s cannot be skipped", given);
            if (k == 2 && (found->from != FORM_TENSOR || found->to != FORM_TENSOR))
                return arena_printf(cx->arena, "--only takes passes from IR to IR, and %s is none",
                                    given);
        }
    if (opt->only.len > 0 && !opt->ir)
        return "--only goes with --ir: the passes before it have not run on a model";
    if (opt->only.len > 0 && opt->emit_set && opt->emit != EMIT_IR)
        return "--only goes with --emit=ir: the passes after it are left out";
    return NULL;
}

/* ---- dumps and checks ---------------------------------------------------------------------- */

static void dump_graphs(Run *r, Text *out)
{
    const Slots s = graphs_of(r);
    ir_print_header(out, r->program);
    for (int i = 0; i < s.len; i++) {
        text_put(out, "\n");
        ir_print(out, *s.at[i]);
    }
}

static void dump(Run *r, Form form, Text *out)
{
    if (r->program && form <= FORM_TENSOR) {
        dump_graphs(r, out);
    } else if (form == FORM_TREE || form == FORM_CHECKED) {
        ast_print(out, r->tree);
    } else if (form == FORM_KERNEL || form == FORM_PLAN) {
        const Routines list = routines_of(r);
        for (int i = 0; i < list.n; i++) {
            text_put(out, i ? "\n" : "");
            kernel_print(out, r->kernels, list.at[i]);
            if (form == FORM_PLAN)
                plan_print(out, r->kernels, list.at[i]);
        }
    }
}

static void check_graphs(Run *r, const Pass *pass)
{
    const Slots s = graphs_of(r);
    for (int i = 0; i < s.len; i++) {
        const char *wrong = ir_check(*s.at[i], r->opt->ir ? STAGE_JOINT : pass->stage);
        if (wrong == NULL)
            continue;
        const char *path = arena_printf(r->cx->arena, "gradcc-%s.ir", pass->name);
        Text t = text_new(r->cx->arena);
        ir_print(&t, *s.at[i]);
        FILE *f = fopen(path, "w");
        if (f) {
            fputs(t.at, f);
            fclose(f);
        }
        bug("after pass %s: %s%s%s", pass->name, wrong, f ? "; the graph is in " : "",
            f ? path : "");
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static bool is_wanted(const Run *r, const Pass *p)
{
    if (r->opt->ir && p->from < FORM_TENSOR && p->run != run_parse)
        return false;
    if (r->opt->only.len > 0)
        return is_named(&r->opt->only, p->name) || p->run == run_parse;
    if (p->optional && p->to == FORM_TENSOR)
        return !is_off(r, p->name);
    return true;
}

static Form form_after(const Run *r, const Pass *p)
{
    return r->opt->ir && p->run == run_parse ? FORM_TENSOR : p->to;
}

/* The last pass that has to run for what is asked. */
static const char *last_pass(const Run *r)
{
    static const char *const last[] = { "emit", "parse", "chunk", "tidy", "plan", "emit", "fuse" };
    if (r->opt->stop_after)
        return r->opt->stop_after;
    if (r->opt->explain)
        return r->opt->explain == EXPLAIN_RECOMPUTE ? "keep" : "plan";
    if (r->opt->ir && !r->opt->emit_set)
        return "chunk";
    if (!r->opt->emit_set && r->opt->dump_after.len > 0 && r->opt->output == NULL) {
        const char *name = "parse";
        for (int i = 0; i < N_PASSES; i++)
            if (is_named(&r->opt->dump_after, passes[i].name))
                name = passes[i].name;
        return name;
    }
    return last[r->opt->emit];
}

static void write_result(Run *r, Form form)
{
    if (r->opt->stop_after && r->opt->dump_after.len == 0 && form < FORM_C)
        dump(r, form, r->out);
    else if (r->opt->stop_after || form == FORM_C)
        return;
    else if (r->opt->explain == EXPLAIN_MEMORY && r->kernels)
        explain_memory(r->out, r->kernels, r->opt->dims.at, r->opt->dims.len);
    else if (r->opt->explain == EXPLAIN_TRAFFIC && r->kernels)
        explain_traffic(r->out, r->kernels, r->opt->dims.at, r->opt->dims.len);
    else if (r->opt->explain == EXPLAIN_RECOMPUTE)
        recompute_explain(r->out, r->program);
    else if (r->opt->emit == EMIT_GRAD && r->program)
        emit_grad(r->out, r->program);
    else if (r->opt->emit == EMIT_TYPES && r->kernels)
        emit_types(r->out, r->kernels);
    else if (r->opt->emit == EMIT_PLAN && r->kernels) {
        const Routines list = routines_of(r);
        for (int i = 0; i < list.n; i++) {
            text_put(r->out, i ? "\n" : "");
            plan_print(r->out, r->kernels, list.at[i]);
        }
    } else if (r->opt->emit_set || (r->opt->ir && r->opt->dump_after.len == 0)) {
        dump(r, form, r->out);
    }
}

bool pipeline_run(Context *cx, const Options *opt, const char *prelude, Text *out)
{
    Run r = { .cx = cx, .opt = opt, .prelude = prelude, .out = out };
    r.target = opt->target == TARGET_CUDA ? &target_cuda : &target_c;
    const char *last = last_pass(&r);
    Form form = FORM_TEXT;
    for (int i = 0; i < N_PASSES; i++) {
        const Pass *p = &passes[i];
        const double start = seconds();
        if (is_wanted(&r, p)) {
            p->run(&r);
            form = form_after(&r, p);
            if (opt->time_passes)
                fprintf(stderr, "%-9s %8.2f ms\n", p->name, 1e3 * (seconds() - start));
            if (diag_count(cx) > 0)
                return false;
            if (form == FORM_TENSOR)
                check_graphs(&r, p);
            if (is_named(&opt->dump_after, p->name)) {
                text_add(out, "# after %s\n", p->name);
                dump(&r, form, out);
            }
        }
        if (strcmp(p->name, last) == 0)
            write_result(&r, form);
        arena_reset(cx->scratch);
        if (strcmp(p->name, last) == 0)
            break;
    }
    return diag_count(cx) == 0;
}
