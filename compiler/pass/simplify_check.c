/* simplify_check.c -- are the rules true? Both sides of every row, on numbers.
 *
 * In: rules.def. Out: a line for each row whose sides differ more than its kind allows, and the
 * count. The idea: both sides become graphs over arrays of values; the evaluator computes them.
 * Each name gets every special value against every other, then random ones: infinities,
 * not-a-number, both zeros, ones, subnormal, tiny and huge numbers. FAST rules are tried on tame
 * random values only: they must at least be true on paper.
 */
#include "pass/simplify.h"

#include <math.h>
#include <string.h>

enum { N_SPECIAL = 14, N_NAMES = 3, N_POINTS = N_SPECIAL * N_SPECIAL * N_SPECIAL + 4000 };

typedef struct {
    Context *cx;
    Program *program;
    const Dim *n;    /* of the arrays: N_POINTS */
    Tensor value[8]; /* of x y z c d, then of k and l */
    int64_t sizes[1];
} Check;

static const char names[] = "xyzcdkl";

static double special(int i)
{
    static const double values[N_SPECIAL] = {
        0.0, -0.0, 1, -1, 2, -0.5, 3.25, 1e-310, -1e-200, 1e200, -1.7e308, INFINITY, -INFINITY, NAN,
    };
    return values[i];
}

/* The same numbers in every run. */
static double random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) / (double)(1ull << 52) - 1;
}

static void fill(Check *c)
{
    uint64_t state = 7;
    const int grid = N_SPECIAL * N_SPECIAL * N_SPECIAL;
    for (int v = 0; v < (int)sizeof names - 1; v++) {
        const int place = names[v] >= 'x' ? v : names[v] >= 'k' ? v - 4 : v - 3;
        c->value[v] = tensor_new(c->cx->scratch, c->program->inputs.at[v].type, c->sizes);
        for (int i = 0; i < N_POINTS; i++) {
            int digit = i;
            for (int k = 0; k < place; k++)
                digit /= N_SPECIAL;
            double x = i < grid ? special(digit % N_SPECIAL)
                                : random_number(&state) * (i % 3 ? 4 : 1e3);
            if (names[v] == 'c' || names[v] == 'd')
                x = i < grid ? digit % 2 : x > 0;
            c->value[v].at[i] = x;
        }
    }
}

static Node *side(Check *c, Graph *g, const Pattern *p, DType t)
{
    const Span nowhere = { 0 };
    if (p->kind == PAT_NAME)
        return ir_input(g, (int)(strchr(names, p->name) - names), nowhere);
    if (p->kind == PAT_NUMBER) {
        Node *number = ir_const(g, t, p->number, nowhere);
        return ir_broadcast(g, number, 1, &c->n, NULL, nowhere);
    }
    Node *in[3];
    const bool compares = p->op == OP_EQ || p->op == OP_NE || p->op == OP_LT || p->op == OP_LE;
    const bool logic = p->op == OP_AND || p->op == OP_OR || p->op == OP_NOT;
    for (int i = 0; i < p->n_in; i++) {
        const DType of_in = (p->op == OP_WHERE && i == 0) || logic ? DT_BOOL
                            : compares                             ? DT_F64
                                                                   : t;
        in[i] = side(c, g, p->in[i], of_in);
    }
    return ir_node(g, p->op, p->n_in, in, NULL, nowhere);
}

static bool agrees(double a, double b, RuleKind kind)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (kind == RULE_EXACT || kind == RULE_SIGN)
        return a == b && (kind == RULE_SIGN || signbit(a) == signbit(b));
    if (isinf(a) || isinf(b))
        return a == b;
    const double size = fmax(fabs(a), fabs(b));
    return fabs(a - b) <= (kind == RULE_NEAR ? 4e-16 : 1e-9) * size + 1e-307;
}

/* The value of the names in a pattern at point i, for a message. */
static void put_point(Text *t, const Check *c, const Pattern *p, int i, bool *seen)
{
    if (p->kind == PAT_NAME) {
        const int v = (int)(strchr(names, p->name) - names);
        if (!seen[v])
            text_add(t, " %c = %g", p->name, c->value[v].at[i]);
        seen[v] = true;
    }
    for (int k = 0; p->kind == PAT_OP && k < p->n_in; k++)
        put_point(t, c, p->in[k], i, seen);
}

/* True on paper, on numbers for which both sides stay finite and positive logarithms exist. */
static bool is_tame(const Check *c, int i)
{
    const int grid = N_SPECIAL * N_SPECIAL * N_SPECIAL;
    for (int v = 0; v < (int)sizeof names - 1; v++)
        if (names[v] != 'c' && names[v] != 'd' && !(c->value[v].at[i] > 0.05))
            return false;
    return i >= grid && i % 3;
}

static bool check_rule(Check *c, const Rule *rule, FILE *out)
{
    const bool truth = rule->from->op == OP_AND || rule->from->op == OP_OR
                       || rule->from->op == OP_NOT;
    const DType t = truth ? DT_BOOL : DT_F64;
    Graph *g = graph_new(c->program, "rule", NULL);
    ir_sink(g, SINK_RESULT, 0, side(c, g, rule->from, t));
    ir_sink(g, SINK_RESULT, 1, side(c, g, rule->to, t));
    const EvalEnv env = { .dims = c->sizes, .inputs = c->value };
    const Tensor *result = ir_eval(c->cx->scratch, g, &env);
    for (int i = 0; i < N_POINTS; i++) {
        const double a = result[0].at[i], b = result[1].at[i];
        if ((rule->kind == RULE_FAST && !is_tame(c, i)) || agrees(a, b, rule->kind))
            continue;
        Text text = text_new(c->cx->scratch);
        bool seen[sizeof names] = { false };
        put_point(&text, c, rule->from, i, seen);
        fprintf(out, "rule %s -> %s: %.17g against %.17g at%s\n", rule->from_text, rule->to_text, a,
                b, text.at);
        return false;
    }
    return true;
}

bool simplify_check_rules(Context *cx, FILE *out)
{
    Check c = { .cx = cx, .program = program_new(cx) };
    c.n = dim_const(c.program->dims, N_POINTS);
    for (int v = 0; v < (int)sizeof names - 1; v++) {
        const DType t = names[v] == 'c' || names[v] == 'd' ? DT_BOOL : DT_F64;
        const Input in = { .name = intern_n(cx, names + v, 1),
                           .type = type_of(c.program->dims, t, 1, &c.n) };
        vec_push(cx->arena, &c.program->inputs, in);
    }
    fill(&c);
    const Rules *rules = rules_read(cx);
    int failed = 0;
    for (int i = 0; i < rules->n; i++)
        failed += !check_rule(&c, &rules->rule[i], out);
    fprintf(out, "%d rules hold, %d do not\n", rules->n - failed, failed);
    return failed == 0;
}
