/* test_ir.c -- dims, IR text, the reader's messages, the checker, rewriting, and that draws are the
 * numbers of the runtime.
 *
 * The .ir files of the command line are read, printed, read again and printed again, and the two
 * texts must be equal. What stands after `--- rewrite` is what graph_rewrite leaves of the graphs.
 */
#include "ir/program.h"
#include "num.h"
#include "op/op.h"

#include <stdlib.h>
#include <string.h>

static int n_bad;

static void report(const char *group, const char *name, const char *wrong)
{
    if (wrong)
        printf("not ok ir %s %s: %.*s\n", group, name, (int)strcspn(wrong, "\n"), wrong);
    else
        printf("ok ir %s %s\n", group, name);
    n_bad += wrong != NULL;
}

static Program *read_text(Context *cx, const char *name, const char *text)
{
    Program *p;
    int file = source_add(cx, name, text, strlen(text));
    return ir_read(cx, file, &p) ? p : NULL;
}

/* What the reader has to say about a text: the first message, printed. */
static const char *messages(Context *cx)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    diag_flush(cx, f);
    fclose(f);
    const char *copy = arena_strndup(cx->arena, text, len);
    free(text);
    return copy;
}

/* ---- dims ---------------------------------------------------------------------------------- */

static const struct {
    const char *in, *out;
    long value;
} dims[] = {
    { "B*T*C", "B*T*C", 2 * 7 * 12 },
    { "T*C*B", "B*T*C", 2 * 7 * 12 },
    { "3*C", "3*C", 36 },
    { "C/H", "C/H", 4 },
    { "B*T*H*(C/H)", "B*T*C", 2 * 7 * 12 },
    { "1 + C/H", "C/H + 1", 5 },
    { "T + T", "2*T", 14 },
    { "T - T", "0", 0 },
    { "9 - T", "9 - T", 2 },
    { "-T + 2*T", "T", 7 },
    { "T//2", "T//2", 3 },
    { "2*(T//2)", "2*(T//2)", 6 },
    { "(5*T + 3)//4", "T + ((T + 3)//4)", 9 },
    { "T//(2*H)", "T//(2*H)", 1 },
    { "(T + 1)/2", "(T + 1)/2", 4 },
    { "(T + 1)/2*2", "T + 1", 8 },
    { "(T + 1)*C/(T + 1)", "C", 12 },
    { "B*(T + 1)/(2*T + 2)", "B/2", 1 },
    { "C/(T - 1)", "C/(T - 1)", 2 },
    { "C/(T - 1)*(T - 1)", "C", 12 },
    { "7//2", "3", 3 },
    { "(C*T)//C", "T", 7 },
    { "C//5", "C//5", 2 },
    { "(T + B)*(T - B)", "T*T - B*B", 45 },
};

static void test_dims(void)
{
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        Context *cx = context_new();
        Text t = text_new(cx->arena), out = text_new(cx->arena), want = text_new(cx->arena);
        text_add(&t,
                 "batch B = 2\ndim T = 7\nconst C = 12\nconst H = 3\n"
                 "graph f() {\n  %%n = dim [%s] : i32[]\n  return %%n\n}\n",
                 dims[i].in);
        text_add(&want, "dim [%s] :", dims[i].out);
        Program *p = read_text(cx, "d.ir", t.at);
        const char *wrong = p ? NULL : messages(cx);
        if (p) {
            ir_print(&out, p->graphs.at[0]);
            int64_t at[4] = { 2, 7, 12, 3 };
            int64_t v = dim_eval(p->graphs.at[0]->nodes.at[0]->attr.dim, at);
            if (!strstr(out.at, want.at))
                wrong = out.at;
            else if (v != dims[i].value)
                wrong = arena_printf(cx->arena, "it is %ld", (long)v);
        }
        report("dim", dims[i].in, wrong);
        context_free(cx);
    }
}

static void test_dim_questions(void)
{
    Context *cx = context_new();
    Dims *ds = dims_new(cx);
    Span at = { 0 };
    Symbol *fresh = dims_symbol(ds, "I", SYM_FRESH, 0, at);
    const Dim *T = dim_sym(ds, dims_symbol(ds, "T", SYM_DIM, 0, at));
    const Dim *C = dim_sym(ds, dims_symbol(ds, "C", SYM_CONST, 12, at));
    const Dim *I = dim_sym(ds, fresh), *one = dim_const(ds, 1), *two = dim_const(ds, 2);
    const Dim *half = dim_exact_div(ds, I, two), *large = dim_const(ds, INT64_MAX);
    const Dim *sum = dim_add(ds, T, one);
    const char *wrong = NULL;
    int64_t v;
    if (!dim_same(dim_mul(ds, T, C), dim_mul(ds, dim_const(ds, 12), T)))
        wrong = "T*C and 12*T differ";
    if (dim_same(T, C) || dim_same(sum, T))
        wrong = "unequal dims are the same";
    if (dim_mul(ds, T, C) != dim_mul(ds, C, T))
        wrong = "equal forms are two objects";
    if (!dim_value(C, &v) || v != 12 || dim_literal(C, &v) || !dim_literal(two, &v))
        wrong = "values and literals are confused";
    if (dim_replace(ds, half, fresh, dim_const(ds, 7)) || dim_exact_div(ds, C, dim_const(ds, 5)))
        wrong = "a division that does not divide is accepted";
    if (dim_replace(ds, half, fresh, C) != dim_exact_div(ds, C, two))
        wrong = "I/2 with I = C is not C/2";
    if (dim_exact_div(ds, T, dim_sub(ds, T, T)) || dim_floor_div(ds, T, dim_const(ds, 0)))
        wrong = "a division by 0 is accepted";
    if (!dim_overflows(dim_mul(ds, large, two)) || dim_overflows(large))
        wrong = "an overflow is not seen";
    if (!dim_overflows(dim_add(ds, dim_mul(ds, large, C), T)))
        wrong = "an overflow is lost";
    if (!dim_le(ds, one, T) || !dim_le(ds, T, dim_mul(ds, T, T)) || dim_le(ds, sum, T)
        || dim_le(ds, C, T))
        wrong = "an order is wrong";
    report("dim", "questions", wrong);
    context_free(cx);
}

/* ---- text ---------------------------------------------------------------------------------- */

static const char *print_all(Context *cx, Program *p, bool header)
{
    Text t = text_new(cx->arena);
    if (header)
        ir_print_header(&t, p);
    for (int i = 0; i < p->graphs.len; i++)
        ir_print(&t, p->graphs.at[i]);
    return t.at;
}

/* The first line in which the texts differ. */
static const char *difference(Context *cx, const char *a, const char *b)
{
    const char *line = a;
    while (*a && *a == *b) {
        if (*a == '\n')
            line = a + 1;
        a++;
        b++;
    }
    return *a == *b ? NULL
                    : arena_printf(cx->arena, "differs at '%.*s'", (int)strcspn(line, "\n"), line);
}

static void test_round_trip(const char *path)
{
    Context *cx = context_new();
    Program *p, *q;
    const char *wrong = NULL, *name = strrchr(path, '/');
    int file = source_read(cx, path);
    if (!file || !ir_read(cx, file, &p)) {
        wrong = messages(cx);
    } else {
        for (int i = 0; !wrong && i < p->graphs.len; i++)
            wrong = ir_check(p->graphs.at[i], STAGE_JOINT);
        const char *text = print_all(cx, p, true);
        q = wrong ? NULL : read_text(cx, "again.ir", text);
        if (!wrong)
            wrong = q ? difference(cx, text, print_all(cx, q, true)) : messages(cx);
        for (int i = 0; !wrong && i < p->graphs.len; i++) {
            p->graphs.at[i] = graph_rewrite(p->graphs.at[i], NULL, NULL);
            wrong = ir_check(p->graphs.at[i], STAGE_JOINT);
        }
        const char *expect = strstr(source_of(cx, file)->text, "\n--- rewrite\n");
        if (!wrong) /* without such a section nothing is superfluous */
            wrong = expect ? difference(cx, print_all(cx, p, false), strchr(expect + 1, '\n') + 1)
                           : difference(cx, print_all(cx, p, true), text);
    }
    report("round-trip", name ? name + 1 : path, wrong);
    context_free(cx);
}

/* ---- messages ------------------------------------------------------------------------------ */

#define HEAD        "dim T = 4\nconst C = 3\n"
#define BODY(lines) HEAD "graph f(x: f64[T,C], i: i32[T], b: bool[T]) {\n" lines "}\n"

#define TEN         ", x, x, x, x, x, x, x, x, x, x"

static const struct {
    const char *name, *text, *where, *message;
} mistakes[] = {
    { "no value", BODY("  %y = exp %z : f64[T,C]\n"), "m.ir:4:12", "no value %z comes before" },
    { "no op", BODY("  %y = expo x : f64[T,C]\n"), "m.ir:4:8", "no op 'expo'" },
    { "type", BODY("  %y = exp x : f64[T]\n"), "m.ir:4:8", "result 0 of exp is f64[T,C]" },
    { "shape", BODY("  %y = add x, i : f64[T,C]\n"), "m.ir:4:8", "add: the shapes differ" },
    { "dtype", BODY("  %y = not i : bool[T]\n"), "m.ir:4:8", "not: truth values are wanted" },
    { "arity", BODY("  %y = add x : f64[T,C]\n"), "m.ir:4:8", "add has 2 operands, not 1" },
    { "attribute", BODY("  %y = sum x axis 0 : f64[C]\n"), "m.ir:4:14", "no attribute 'axis'" },
    { "axes", BODY("  %y = sum x axes 2 : f64[T]\n"), "m.ir:4:8", "ascending axes" },
    { "no axes", BODY("  %y = sum x : f64[T]\n"), "m.ir:4:8", "sum: no axis is given" },
    { "elements", BODY("  %y = reshape x : f64[T]\n"), "m.ir:4:8", "elements changes" },
    { "dim", BODY("  %y = exp x : f64[T,K]\n"), "m.ir:4:22", "a dim is wanted here" },
    { "division", BODY("  %y = exp x : f64[T,C/2]\n"), "m.ir:4:23", "it does not divide" },
    { "mark", BODY("  %y = exp x f64[T,C]\n"), "m.ir:4:14", "no attribute 'f64'" },
    { "no type", BODY("  %y = exp x : [T,C]\n"), "m.ir:4:16", "a dtype is wanted here" },
    { "name", BODY("  %y = exp x : f64[T,C]\n  %y = log x : f64[T,C]\n"), "m.ir:5:3",
      "the name %y is taken" },
    { "results", BODY("  %y, %z = exp x : f64[T,C]\n"), "m.ir:4:3", "there are 1 results, not 2" },
    { "statement", BODY("  43\n"), "m.ir:4:3", "a statement is wanted here" },
    { "slice", BODY("  %y = slice x lo [0] : f64[T,C]\n"), "m.ir:4:8",
      "first index for each axis" },
    { "end of a slice", BODY("  %y = slice x lo [0,1] : f64[T,C]\n"), "m.ir:4:8",
      "it reaches over the end" },
    { "parameter", BODY("  grad w x\n"), "m.ir:4:8", "no parameter 'w'" },
    { "end", HEAD "graph f(", "m.ir:3:9", "the name of an input is wanted here" },
    { "no brace", HEAD "graph f() {\n", "m.ir:3:13", "'}' is wanted here" },
    { "string", BODY("  %y = normal stream \"a : f64[T]\n"), "m.ir:4:22", "a string does not end" },
    { "draw", "batch B\ngraph f() {\n  %y = uniform stream \"a\" : f64[B+1]\n", "m.ir:3:8",
      "a draw has one axis of whole samples, or none" },
    { "draw for pairs", "batch B\ngraph f() {\n  %y = normal stream \"a\" : f64[B,B]\n", "m.ir:3:8",
      "a draw has one axis of whole samples, or none" },
    { "twice", "dim T\nconst T = 3\n", "m.ir:2:7", "T is declared twice" },
    { "const", "const C\n", "m.ir:1:7", "a const needs a value above 0" },
    { "head", "T = 3\n", "m.ir:1:1", "batch, dim, part, const, mean or graph is wanted here" },
    { "carries", BODY("  %y = loop s trip [2] (a = x; ; ; k) {\n    next a, a\n  }\n"), "m.ir:5:5",
      "there are 1 carried values" },
    { "carry",
      BODY("  %y = loop s trip [2] (a = x; ; ; k) {\n    %b = cast a : f32[T,C]\n"
           "    next %b\n  }\n"),
      "m.ir:4:8", "loop: a carried value changes its type" },
    { "slices", BODY("  %y = loop s trip [2] (a = x; c in x; ; k) {\n    next a\n  }\n"),
      "m.ir:4:8", "loop: a sliced input has not one element for each iteration" },
    { "part", BODY("  %y = loop s trip [2] part T (a = x; ; ; k) {\n    next a\n  }\n"),
      "m.ir:4:29", "the name of a part is wanted here" },
    { "part twice", "dim T\npart r of [T] by [2]\npart r of [T] by [2]\n", "m.ir:3:6",
      "r is declared twice" },
    { "rows of a part",
      "dim T = 4\npart r of [T] by [2]\ngraph f(x: f64[T], y: f64[3]) {\n"
      "  %s = loop s trip [2] part r (; c in y; ; k) {\n    stack c\n  }\n  return %s\n}\n",
      "m.ir:4:8", "loop: a sliced input has not the rows that are done in parts" },
    { "stack of a part",
      "dim T = 4\npart r of [T] by [2]\ngraph f(x: f64[T], y: f64[3]) {\n"
      "  %s = loop s trip [2] part r (; c in x; d = y; k) {\n    stack d\n  }\n  return %s\n}\n",
      "m.ir:4:8", "loop: a stacked result has not the rows of a part" },
    { "closed body",
      BODY("  %y = loop s trip [2] (a = x; ; ; k) {\n    %c = add a, x : f64[T,C]\n"
           "    next %c\n  }\n"),
      "m.ir:5:17", "no value x comes before" },
    { "result twice", BODY("  return x\n  return i\n"), "m.ir:3:7", "same result appears twice" },
    { "no results", BODY("  %y = loop s trip [2] (; ; a = x; k) {\n  }\n"), "m.ir:4:8",
      "loop: a loop without results does nothing" },
    { "number", BODY("  %y = const x : f64[]\n"), "m.ir:4:14", "a number is wanted here" },
    { "whole", BODY("  %y = slice x lo [0,0.5] : f64[T,C]\n"), "m.ir:4:22",
      "a whole number is wanted here" },
    { "value", BODY("  %y = exp 3 : f64[T,C]\n"), "m.ir:4:12", "a value is wanted here" },
    { "one dim", BODY("  %y = dim [T,C] : f64[]\n"), "m.ir:4:12", "one dim is wanted here" },
    { "bracket", "graph f[\n", "m.ir:1:8", "'(' is wanted here" },
    { "many operands",
      BODY("  %y = concat x" TEN TEN TEN TEN TEN TEN ", x, x, x, x axis 0 : f64[T,C]\n"),
      "m.ir:4:8", "more than 64 operands" },
};

static void test_messages(void)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Context *cx = context_new();
        const char *wrong = NULL, *said;
        if (read_text(cx, "m.ir", mistakes[i].text))
            wrong = "it is read without an error";
        said = messages(cx);
        if (!wrong && (!strstr(said, mistakes[i].message) || !strstr(said, mistakes[i].where)))
            wrong = arena_printf(cx->arena, "says '%.*s'", (int)strcspn(said, "\n"), said);
        report("message", mistakes[i].name, wrong);
        context_free(cx);
    }
}

/* ---- the checker --------------------------------------------------------------------------- */

static const char sound[] = "dim T = 4\nconst L = 2\nmean loss weight 1\n"
                            "graph f(x: f64[T], param w: f64[L,T]) {\n"
                            "  %y = mul x, x : f64[T]\n"
                            "  %p, %q = loop s trip [L] (a = %y; w in w; ; i) {\n"
                            "    %m = mul a, w : f64[T]\n    next %m\n    stack a\n  }\n"
                            "  %s = sum %p axes 0 : f64[]\n  sum loss %s\n  return %q\n}\n";

static Node *find(Graph *g, Op op)
{
    for (int id = 0; id < g->nodes.len; id++)
        if (g->nodes.at[id]->op == op)
            return g->nodes.at[id];
    return NULL;
}

static Graph *body_of(Graph *g) { return find(g, OP_LOOP)->attr.loop->body; }

static void spoil_type(Graph *g) { find(g, OP_MUL)->types[0] = find(g, OP_SUM)->type; }
static void spoil_first(Graph *g) { find(g, OP_MUL)->type = find(g, OP_SUM)->type; }
static void spoil_order(Graph *g) { find(g, OP_MUL)->in[0] = find(g, OP_SUM); }
static void spoil_graph(Graph *g) { find(g, OP_MUL)->in[1] = body_of(g)->args.at[0]; }
static void spoil_arity(Graph *g) { find(g, OP_MUL)->n_in = 1; }
static void spoil_axes(Graph *g) { find(g, OP_SUM)->attr.axes[0] = 3; }
static void spoil_result(Graph *g) { find(g, OP_SUM)->in[0] = find(g, OP_LOOP); }
static void spoil_param(Graph *g) { find(g, OP_PARAM)->attr.index = 5; }
static void spoil_slot(Graph *g) { g->sinks.at[0].index = 4; }
static void spoil_sum(Graph *g) { g->sinks.at[0].node = find(g, OP_MUL); }
static void spoil_return(Graph *g) { g->sinks.at[1].index = 1; }
static void spoil_grad(Graph *g) { g->sinks.at[1].kind = SINK_GRAD; }
static void spoil_kind(Graph *g) { body_of(g)->args.at[0]->attr.arg = ARG_SHARED; }
static void spoil_body(Graph *g) { find(body_of(g), OP_MUL)->types[0] = find(g, OP_SUM)->type; }
static void spoil_trip(Graph *g) { find(g, OP_LOOP)->attr.loop->n_stack = 0; }
static void spoil_stage(Graph *g) { find(g, OP_MUL)->backward = true; }

static const struct {
    const char *name;
    void (*spoil)(Graph *);
    Stage stage;
    const char *message;
} spoils[] = {
    { "sound", NULL, STAGE_TENSOR, NULL },
    { "type", spoil_type, STAGE_JOINT, "result" },
    { "first type", spoil_first, STAGE_JOINT, "number of results" },
    { "order", spoil_order, STAGE_JOINT, "does not come before" },
    { "graph", spoil_graph, STAGE_JOINT, "does not come before it in the graph" },
    { "arity", spoil_arity, STAGE_JOINT, "number of inputs" },
    { "axes", spoil_axes, STAGE_JOINT, "ascending" },
    { "several results", spoil_result, STAGE_JOINT, "several results" },
    { "parameter", spoil_param, STAGE_JOINT, "no such parameter" },
    { "slot", spoil_slot, STAGE_JOINT, "out of range" },
    { "sum", spoil_sum, STAGE_JOINT, "real scalar" },
    { "return", spoil_return, STAGE_JOINT, "result 0 is missing" },
    { "gradients before grad", spoil_grad, STAGE_TENSOR, "no gradients at this stage" },
    { "gradient's type", spoil_grad, STAGE_JOINT, NULL },
    { "argument", spoil_kind, STAGE_JOINT, "of another kind" },
    { "body", spoil_body, STAGE_JOINT, "graph s, node" },
    { "stack", spoil_trip, STAGE_JOINT, "number of results" },
    { "backward before grad", spoil_stage, STAGE_TENSOR, "backward pass" },
};

static void test_checker(void)
{
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        Context *cx = context_new();
        Program *p = read_text(cx, "c.ir", sound);
        const char *wrong = NULL, *said;
        if (spoils[i].spoil)
            spoils[i].spoil(p->graphs.at[0]);
        said = ir_check(p->graphs.at[0], spoils[i].stage);
        if (!said != !spoils[i].message || (said && !strstr(said, spoils[i].message)))
            wrong = said ? said : "nothing is found";
        report("check", spoils[i].name, wrong);
        context_free(cx);
    }
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void test_consing(void)
{
    Context *cx = context_new();
    Program *p = read_text(cx, "n.ir",
                           "dim T = 4\ngraph f(x: f64[T]) {\n"
                           "  %a = mul x, x : f64[T]\n  %b = mul x, x : f64[T]\n"
                           "  %c = stop_gradient x keep : f64[T]\n"
                           "  %d = stop_gradient x keep : f64[T]\n"
                           "  %e = uniform stream \"a\" : f64[T]\n"
                           "  %f = uniform stream \"b\" : f64[T]\n"
                           "  %g = const 0 : f64[]\n  %h = const -0 : f64[]\n"
                           "  return %a, %b, %c, %d, %e, %f, %g, %h\n}\n");
    const Sink *s = p->graphs.at[0]->sinks.at;
    const char *wrong = NULL;
    if (s[0].node != s[1].node || strcmp(s[1].node->name, "a") != 0)
        wrong = "equal nodes are two, or the first name is lost";
    if (s[2].node == s[3].node)
        wrong = "nodes that are kept apart are one";
    if (s[4].node == s[5].node)
        wrong = "two draws are one";
    if (s[6].node == s[7].node)
        wrong = "0 and -0 are one";
    report("nodes", "consing", wrong);
    context_free(cx);
}

/* ---- draws --------------------------------------------------------------------------------- */

/* The evaluator's numbers against those of emitted programs. */
static void test_draws(void)
{
    Context *cx = context_new();
    Program *p = read_text(cx, "r.ir",
                           "batch B = 3\ndim T = 50\ngraph f() {\n"
                           "  %u = uniform stream \"h.*.dropout.0\" : f64[B,T]\n"
                           "  %n = normal stream \"h.*.dropout.0\" : f64[B,T]\n"
                           "  return %u, %n\n}\n");
    int64_t size[2] = { 3, 50 };
    EvalEnv env = { .dims = size,
                    .seed = 0xfedcba9876543210,
                    .step = 12345,
                    .sample_base = 0x1fffffffe };
    Tensor *t = ir_eval(cx->arena, p->graphs.at[0], &env);
    RtKey key = { env.seed, (uint32_t)env.step };
    uint64_t stream = op_stream_hash("h.*.dropout.0");
    const char *wrong = NULL;
    for (int64_t b = 0; b < 3; b++)
        for (int64_t e = 0; e < 50; e++) {
            uint64_t sample = (uint64_t)(env.sample_base + b);
            double u = rt_uniform_f64(key, stream, sample, (uint64_t)e);
            double n = rt_normal_f64(key, stream, sample, (uint64_t)e);
            float f = rt_uniform_f32(key, stream, sample, (uint64_t)e);
            if (t[0].at[b * 50 + e] != u || (float)u != f)
                wrong = "a uniform number is another one in the runtime";
            if (fabs(t[1].at[b * 50 + e] - n) > 1e-12)
                wrong = "a normal number is another one in the runtime";
        }
    report("draws", "as in the runtime", wrong);
    context_free(cx);
}

int main(int argc, char **argv)
{
    test_dims();
    test_dim_questions();
    for (int i = 1; i < argc; i++)
        test_round_trip(argv[i]);
    test_messages();
    test_checker();
    test_consing();
    test_draws();
    return n_bad > 0;
}
