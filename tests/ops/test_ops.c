/* test_ops.c -- checks every row of the op table against its file tests/ops/<op>.ir.
 *
 * A file has graphs of the op, and after a line `--- GRAPH` for each graph the values of its
 * inputs, the stored answers, the step of the differences and the tolerance. Checked are
 *   the values against the answers, and the values of the expansion, where there is one,
 *   reverse mode against central differences in every element of every real input,
 *   forward mode against reverse mode: <J u, v> = <u, J' v>, where J u comes from the same texts of
 *   partials, from the op itself if it is linear, and from a central difference if it is custom,
 *   the gradient of <w, gradient>, against central differences again.
 * An op without a file fails.
 */
#include "ir/program.h"
#include "op/op.h"
#include "pass/pass.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES = 256 };

typedef struct {
    Node *node;
    Tensor *value;
} Leaf;
typedef struct {
    Leaf at[LEAVES];
    int n;
} Leaves;

typedef struct {
    Context *cx;
    Program *p;
    Graph *g;
    Arena *temporary;
    EvalEnv env;
    int64_t dims[64];
    double seeds[8], means[8];
    Tensor params[LEAVES], inputs[LEAVES], answers[LEAVES];
    double step, tolerance;
    bool no_gradient;
    uint64_t state;
    char why[800];
} Case;

static bool failed(Case *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool failed(Case *c, const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(c->why, sizeof c->why, "%s: ", c->g->name);
    va_start(ap, fmt);
    vsnprintf(c->why + n, sizeof c->why - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

static double random_number(Case *c) /* in (-1, 1) */
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(c->state >> 11) / 4503599627370496.0 - 1;
}

static bool close_to(double a, double b, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a) + fabs(b));
}

/* ---- the values of a file ------------------------------------------------------------------ */

static Tensor tensor_of(Case *c, const Type *t) { return tensor_new(c->cx->arena, t, c->dims); }

static Node *leaf_named(Case *c, const char *name)
{
    for (int id = 0; id < c->g->nodes.len; id++) {
        Node *n = c->g->nodes.at[id];
        if ((n->op == OP_INPUT && strcmp(c->p->inputs.at[n->attr.index].name, name) == 0)
            || (n->op == OP_PARAM && strcmp(c->p->params.at[n->attr.index].name, name) == 0))
            return n;
    }
    return NULL;
}

static const char *read_numbers(const char *s, double *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        char *end;
        at[i] = strtod(s, &end);
        if (end == s)
            bug("a number is missing at '%.20s'", s);
        s = end;
    }
    return s;
}

static const Node *result_of(const Graph *g, int index)
{
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_RESULT && g->sinks.at[i].index == index)
            return g->sinks.at[i].node;
    bug("no result %d", index);
}

/* One "name = numbers" of the section. */
static const char *read_value(Case *c, const char *s, const char *name)
{
    int index;
    Node *leaf;
    if (strcmp(name, "result") == 0) {
        char *end;
        index = (int)strtol(s, &end, 10);
        c->answers[index] = tensor_of(c, result_of(c->g, index)->type);
        return read_numbers(strchr(end, '=') + 1, c->answers[index].at, c->answers[index].elems);
    }
    if (strcmp(name, "seed") == 0 || strcmp(name, "mean") == 0)
        return read_numbers(strchr(s, '=') + 1, name[0] == 's' ? c->seeds : c->means, 1);
    if (strcmp(name, "step") == 0 || strcmp(name, "tolerance") == 0)
        return read_numbers(s, name[0] == 's' ? &c->step : &c->tolerance, 1);
    if (strcmp(name, "no-gradient") == 0) {
        c->no_gradient = true;
        return s;
    }
    if (strcmp(name, "key") == 0) {
        char *end;
        c->env.seed = strtoull(s, &end, 10);
        c->env.step = strtoull(end, &end, 10);
        c->env.sample_base = strtoll(end, &end, 10);
        return end;
    }
    leaf = leaf_named(c, name);
    if (!leaf)
        bug("graph %s has no input %s", c->g->name, name);
    Tensor *t = leaf->op == OP_PARAM ? &c->params[leaf->attr.index] : &c->inputs[leaf->attr.index];
    *t = tensor_of(c, leaf->type);
    return read_numbers(strchr(s, '=') + 1, t->at, t->elems);
}

static bool read_section(Case *c, const char *text)
{
    char head[80], name[40];
    const char *s;
    snprintf(head, sizeof head, "\n--- %s\n", c->g->name);
    s = strstr(text, head);
    if (!s)
        return failed(c, "no section --- %s", c->g->name);
    s += strlen(head);
    for (;;) {
        int n = 0;
        while (isspace((unsigned char)*s))
            s++;
        if (!*s || strncmp(s, "---", 3) == 0)
            return c->step > 0 && c->tolerance > 0 ? true : failed(c, "no step or tolerance");
        while (*s && !isspace((unsigned char)*s) && n < 39)
            name[n++] = *s++;
        name[n] = '\0';
        s = read_value(c, s, name);
    }
}

/* ---- evaluating ---------------------------------------------------------------------------- */

/* Sum over the real results of g of <v, result>; v holds random numbers, drawn again each time. */
static double project(Case *c, Graph *g, uint64_t draw)
{
    double sum = 0;
    uint64_t state = c->state;
    c->state = draw;
    c->env.params = c->params;
    c->env.inputs = c->inputs;
    Tensor *t = ir_eval(c->temporary, g, &c->env);
    for (int i = 0; i < g->sinks.len; i++)
        for (int64_t e = 0; dtype_is_real(g->sinks.at[i].node->type->dtype) && e < t[i].elems; e++)
            sum += t[i].at[e] * random_number(c);
    c->state = state;
    arena_reset(c->temporary);
    arena_reset(c->cx->scratch);
    return sum;
}

/* The real inputs and parameters that g reads. */
static Leaves leaves_of(Case *c, Graph *g)
{
    Leaves l = { .n = 0 };
    bool *live = graph_live(g);
    for (int id = 0; id < g->nodes.len; id++) {
        Node *n = g->nodes.at[id];
        if (live[id] && (n->op == OP_INPUT || n->op == OP_PARAM) && dtype_is_real(n->type->dtype))
            l.at[l.n++] = (Leaf){ n, n->op == OP_PARAM ? &c->params[n->attr.index]
                                                       : &c->inputs[n->attr.index] };
    }
    return l;
}

/* The gradient of g's results; its new inputs get the random numbers of project(draw). */
static Graph *gradient(Case *c, Graph *g, const Leaves *wrt, uint64_t draw)
{
    Node *node[LEAVES];
    int first = c->p->inputs.len;
    for (int i = 0; i < wrt->n; i++)
        node[i] = wrt->at[i].node;
    Graph *d = grad_of_results(g, node, wrt->n);
    if (d == g) {
        diag_flush(c->cx, stderr);
        return NULL;
    }
    uint64_t state = c->state;
    c->state = draw;
    for (int i = first; i < c->p->inputs.len; i++) {
        c->inputs[i] = tensor_of(c, c->p->inputs.at[i].type);
        for (int64_t e = 0; e < c->inputs[i].elems; e++)
            c->inputs[i].at[e] = random_number(c);
    }
    c->state = state;
    const char *wrong = ir_check(d, STAGE_JOINT);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    return wrong ? NULL : d;
}

/* ---- the checks ---------------------------------------------------------------------------- */

static bool check_values(Case *c)
{
    c->env.params = c->params;
    c->env.inputs = c->inputs;
    Tensor *t = ir_eval(c->temporary, c->g, &c->env);
    for (int i = 0; i < c->g->sinks.len; i++) {
        const Tensor *want = &c->answers[c->g->sinks.at[i].index];
        if (!want->at)
            return failed(c, "no answer for result %d", c->g->sinks.at[i].index);
        for (int64_t e = 0; e < want->elems; e++)
            if (!close_to(t[i].at[e], want->at[e], 1e-11))
                return failed(c, "result %d[%d] is %.15g, not %.15g", i, (int)e, t[i].at[e],
                              want->at[e]);
    }
    arena_reset(c->temporary);
    return true;
}

/* A custom op in its expansion. */
static Node *expanded(Graph *to, Node *n, void *user)
{
    (void)user;
    Node *out[4];
    if (n->op != OP_RESULT || !op_row(n->in[0]->op)->expand)
        return NULL;
    op_row(n->in[0]->op)->expand(to, n->in[0], n->in[0]->in, out);
    return out[n->attr.index];
}

/* The same values after expansion. */
static bool check_expansion(Case *c)
{
    Graph *g = graph_rewrite(c->g, expanded, NULL);
    for (int id = 0; id < g->nodes.len; id++)
        if (op_row(g->nodes.at[id]->op)->expand)
            return failed(c, "%s is left after its expansion", op_row(g->nodes.at[id]->op)->name);
    double a = project(c, c->g, 3), b = project(c, g, 3);
    return close_to(a, b, 1e-11) ? true : failed(c, "value %.15g, of the expansion %.15g", a, b);
}

/* The results of d against the central differences of project(g) in each leaf. */
static bool check_differences(Case *c, const char *what, Graph *g, Graph *d, const Leaves *wrt,
                              uint64_t draw, double tolerance)
{
    Arena *keep = arena_new();
    bool ok = true;
    Tensor *t = ir_eval(keep, d, &c->env);
    for (int i = 0; ok && i < wrt->n; i++) {
        Tensor *x = wrt->at[i].value;
        for (int64_t e = 0; ok && e < x->elems; e++) {
            double at = x->at[e], up, down;
            x->at[e] = at + c->step;
            up = project(c, g, draw);
            x->at[e] = at - c->step;
            down = project(c, g, draw);
            x->at[e] = at;
            double slope = c->no_gradient ? 0 : (up - down) / (2 * c->step);
            if (!close_to(t[i].at[e], slope, tolerance) || isnan(slope))
                ok = failed(c, "%s by input %d[%d] is %.12g, difference %.12g", what, i, (int)e,
                            t[i].at[e], slope);
        }
    }
    arena_free(keep);
    return ok;
}

/* The tangent of n from those of its inputs; false when the op has no rule for it. */
static bool tangent_of(Graph *to, Node *n, Node **copy, Node **tangent)
{
    const OpRow *row = op_row(n->op);
    Node *in[16], *sum = NULL;
    bool any = false;
    for (int k = 0; k < n->n_in; k++) {
        in[k] = copy[n->in[k]->id];
        any |= tangent[n->in[k]->id] != NULL;
    }
    if (!any || row->deriv == DERIV_ZERO || !dtype_is_real(n->type->dtype))
        return true;
    if (row->deriv == DERIV_LINEAR) {
        for (int k = 0; k < n->n_in; k++) {
            const Type *t = in[k]->type;
            Node *zero = ir_const(to, t->dtype, 0, n->span);
            in[k] = tangent[n->in[k]->id];
            if (!in[k])
                in[k] = t->rank ? ir_broadcast(to, zero, t->rank, t->dim, NULL, n->span) : zero;
        }
        tangent[n->id] = row->shape ? ir_node(to, n->op, n->n_in, in, &n->attr, n->span)
                                    : ir_typed(to, n->op, n->type, n->n_in, in, &n->attr, n->span);
        return true;
    }
    if (row->deriv != DERIV_PARTIALS)
        return false;
    for (int k = 0; k < n->n_in; k++) {
        Node *d = tangent[n->in[k]->id];
        Node *p = d ? op_partial(to, n, k, in, copy[n->id], n->span) : NULL;
        if (p) {
            p = ir_binary(to, OP_MUL, p, d, n->span);
            sum = sum ? ir_binary(to, OP_ADD, sum, p, n->span) : p;
        }
    }
    if (sum && sum->type->rank < n->type->rank)
        sum = ir_broadcast(to, sum, n->type->rank, n->type->dim, NULL, n->span);
    tangent[n->id] = sum;
    return true;
}

/* Forward mode: the graph of J u, u being new inputs; NULL when an op of it is custom. */
static Graph *forward(Case *c, const Leaves *wrt, uint64_t draw)
{
    Graph *g = c->g, *to = graph_new(c->p, "forward", NULL);
    Node **copy = NEW_ARRAY(c->cx->arena, Node *, g->nodes.len);
    Node **tangent = NEW_ARRAY(c->cx->arena, Node *, g->nodes.len);
    c->state = draw;
    for (int id = 0; id < g->nodes.len; id++) {
        Node *n = g->nodes.at[id];
        copy[id] = graph_copy_node(to, n, copy);
        for (int i = 0; i < wrt->n; i++)
            if (wrt->at[i].node == n) {
                int index = c->p->inputs.len;
                vec_push(c->cx->arena, &c->p->inputs, ((Input){ .name = "u", .type = n->type }));
                c->inputs[index] = tensor_of(c, n->type);
                for (int64_t e = 0; e < c->inputs[index].elems; e++)
                    c->inputs[index].at[e] = random_number(c);
                tangent[id] = ir_input(to, index, n->span);
            }
        if (!tangent_of(to, n, copy, tangent))
            return NULL;
    }
    for (int i = 0; i < g->sinks.len; i++) {
        const Node *n = g->sinks.at[i].node;
        Node *t = tangent[n->id], *zero = ir_const(to, n->type->dtype, 0, n->span);
        if (!t)
            t = ir_broadcast(to, zero, n->type->rank, n->type->dim, NULL, n->span);
        ir_sink(to, SINK_RESULT, g->sinks.at[i].index, t);
    }
    return to;
}

/* <J u, v> by a central difference along u. */
static double along(Case *c, const Leaves *wrt, uint64_t draw_u, uint64_t draw_v)
{
    double value[2];
    for (int side = 0; side < 2; side++) {
        double step = side ? -c->step : c->step;
        for (int k = 0; k < 2; k++) { /* there and back */
            c->state = draw_u;
            for (int i = 0; i < wrt->n; i++)
                for (int64_t e = 0; e < wrt->at[i].value->elems; e++)
                    wrt->at[i].value->at[e] += (k ? -1 : 1) * step * random_number(c);
            if (k == 0)
                value[side] = project(c, c->g, draw_v);
        }
    }
    return (value[0] - value[1]) / (2 * c->step);
}

static bool check_forward(Case *c, Graph *d, const Leaves *wrt, uint64_t draw_v)
{
    uint64_t draw_u = 77;
    Graph *jvp = forward(c, wrt, draw_u);
    double forward_product = jvp ? project(c, jvp, draw_v) : along(c, wrt, draw_u, draw_v);
    double reverse_product = project(c, d, draw_u);
    if (!close_to(forward_product, reverse_product, jvp ? 1e-11 : 10 * c->tolerance))
        return failed(c, "forward <Ju, v> = %.12g, reverse <u, J'v> = %.12g", forward_product,
                      reverse_product);
    return true;
}

static bool check_graph(Case *c, Graph *g, const char *text)
{
    c->g = g;
    c->step = c->tolerance = 0;
    c->no_gradient = false;
    memset(c->answers, 0, sizeof c->answers);
    const char *wrong = ir_check(g, STAGE_JOINT);
    if (wrong)
        return failed(c, "%s", wrong);
    if (!read_section(c, text) || !check_values(c) || !check_expansion(c))
        return false;
    Leaves wrt = leaves_of(c, g);
    bool real = false;
    for (int i = 0; i < g->sinks.len; i++)
        real |= dtype_is_real(g->sinks.at[i].node->type->dtype);
    if (wrt.n == 0 || !real)
        return true;
    Graph *d = gradient(c, g, &wrt, 5);
    if (!d)
        return failed(c, "the gradient cannot be built");
    if (!check_differences(c, "gradient", g, d, &wrt, 5, c->tolerance))
        return false;
    if (!c->no_gradient && !check_forward(c, d, &wrt, 5))
        return false;
    Leaves again = leaves_of(c, d);
    if (again.n == 0)
        return true;
    Graph *dd = gradient(c, d, &again, 11);
    if (!dd)
        return failed(c, "the gradient of the gradient cannot be built");
    c->no_gradient = false;
    return check_differences(c, "second gradient", d, dd, &again, 11, 100 * c->tolerance);
}

static bool check_file(Case *c, const char *path)
{
    int file = source_read(c->cx, path);
    if (!file || !ir_read(c->cx, file, &c->p)) {
        diag_flush(c->cx, stderr);
        snprintf(c->why, sizeof c->why, "%s cannot be read", path);
        return false;
    }
    for (int i = 0; i < dims_count(c->p->dims); i++)
        c->dims[i] = dims_at(c->p->dims, i)->value;
    c->env = (EvalEnv){ .dims = c->dims, .seeds = c->seeds, .means = c->means };
    for (int i = 0; i < c->p->graphs.len; i++)
        if (!check_graph(c, c->p->graphs.at[i], source_of(c->cx, file)->text))
            return false;
    if (c->p->graphs.len == 0)
        snprintf(c->why, sizeof c->why, "no graph in %s", path);
    return c->p->graphs.len > 0;
}

/* Code for all targets, or for none: element by element, but for casts, which emit writes. */
static bool has_code(const OpRow *row, char *why, size_t size)
{
    const bool wanted = row->class == CLASS_POINT && row != &op_table[OP_CAST];
    if ((row->c != NULL) == wanted && (row->cuda != NULL) == wanted)
        return true;
    snprintf(why, size, "%s code for %s", wanted ? "no" : "needless",
             (row->c != NULL) == wanted ? "CUDA" : "C");
    return false;
}

/* Does some graph of the program have the op? */
static bool has_op(const Graph *g, Op op)
{
    for (int id = 0; id < g->nodes.len; id++)
        if (g->nodes.at[id]->op == op
            || (g->nodes.at[id]->op == OP_LOOP && has_op(g->nodes.at[id]->attr.loop->body, op)))
            return true;
    return false;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        char path[500];
        Case *c = calloc(1, sizeof *c);
        c->cx = context_new();
        c->temporary = arena_new();
        snprintf(path, sizeof path, "%s/%s.ir", argc > 1 ? argv[1] : ".", op_table[op].name);
        bool ok = check_file(c, path), found = !ok;
        for (int i = 0; ok && i < c->p->graphs.len; i++)
            found |= has_op(c->p->graphs.at[i], (Op)op);
        if (!found)
            snprintf(c->why, sizeof c->why, "no graph in %s has the op", path);
        if (ok && found && has_code(&op_table[op], c->why, sizeof c->why))
            printf("ok ops %s\n", op_table[op].name);
        else
            printf("not ok ops %s: %s\n", op_table[op].name, c->why);
        fflush(stdout);
        bad += c->why[0] != '\0';
        arena_free(c->temporary);
        context_free(c->cx);
        free(c);
    }
    return bad > 0;
}
