/* keep_plan.c -- which values of one loop another loop keeps, and which it computes again.
 *
 * In: a loop `from` and a later loop `to` that slices stacks of it. Out: which values of from's
 * body are stacked, and which are computed again in to's body out of these.
 *
 *     needed    a value that `to` reads, made in from's body
 *     anchor    too dear to compute again: products, reductions, results of loops, gathers; and
 *               what cannot be: carried values
 *     operand   needed, and an operand of a product anyway (looking through views): kept
 *     free      constants, indexes, the iteration, parameters: there in any case
 *
 * The idea: between the anchors and the needed values lie pointwise ops, views and draws, which
 * are computed again from whatever is kept before them. The kept values are a cheapest cut through
 * those, in bytes; a value that has no place in memory otherwise counts half as much again, since
 * it would be written only to be kept. With a price per byte there are no anchors but the carried
 * values: a product, a reduction or an operand may be computed again too, for its time at that
 * price, and the cut is the cheapest sum of both. A product and the bias or the products that are
 * added to it are one call: it is kept or made again as a whole, so that it stays the same call.
 */
#include "pass/keep.h"

typedef struct {
    Context *cx;
    const Node *from, *to;
    Graph *body; /* of from */
    KeepPlan *plan;
    const KeepChoice *choice;
    int64_t *dims; /* training sizes by symbol id */
    int *depth;    /* by id: products on the longest way from an argument */
    bool *stored;  /* by id: has a place in memory in any case */
    bool *operand; /* by id: of a product, looking through views */
} Work;

/* The value that n of to's body is in from's body: a slice of its stack, or the same slice or
   shared value; NULL when it is nothing of it. */
static Node *across(const KeepBridge *over, const Node *n)
{
    if (n->op != OP_ARG || n->attr.arg == ARG_CARRY || n->attr.arg == ARG_ITER)
        return NULL;
    Node *stacked = keep_sliced(NULL, over->from, over->to, n->attr.index);
    if (stacked)
        return stacked;
    const Graph *body = over->from->attr.loop->body;
    for (int i = 0; i < over->from->n_in; i++)
        if (over->from->in[i] == over->to->in[n->attr.index]
            && body->args.at[i]->attr.arg == n->attr.arg)
            return body->args.at[i];
    return NULL;
}

/* Input i of `to` as a node of the graph in which `from` stands. */
static const Node *input_of(const KeepBridge *over, const Node *to, int i)
{
    return over ? across(over, to->in[i]) : to->in[i];
}

Node *keep_sliced(const KeepBridge *over, const Node *from, const Node *to, int i)
{
    const Loop *a = from->attr.loop, *b = to->attr.loop;
    if (i < b->n_carry || i >= b->n_carry + b->n_slice || !dim_same(a->trip, b->trip))
        return NULL;
    const Node *in = input_of(over, to, i);
    const bool alone = in == from && from->n_out == 1;
    if (!in || (!alone && (in->op != OP_RESULT || in->in[0] != from)))
        return NULL;
    const int k = alone ? 0 : in->attr.index;
    if (k < a->n_carry)
        return NULL;
    for (int s = 0; s < a->body->sinks.len; s++)
        if (a->body->sinks.at[s].index == k)
            return a->body->sinks.at[s].node;
    bug("loop %s has no result %d", a->name, k);
}

/* Does `to` slice the value n of from's graph already? */
static bool is_sliced(const KeepBridge *over, const Node *to, const Node *n)
{
    const Loop *l = to->attr.loop;
    for (int i = l->n_carry; i < l->n_carry + l->n_slice; i++)
        if (input_of(over, to, i) == n)
            return true;
    return false;
}

/* ---- what kind of value --------------------------------------------------------------------- */

bool keep_is_view(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_SLICE
           || n->op == OP_BROADCAST;
}

static bool is_product(const Node *n)
{
    const OpClass c = op_row(n->op)->class;
    return c == CLASS_CONTRACT || c == CLASS_CUSTOM || c == CLASS_INDEX || n->op == OP_LOOP;
}

/* Cheap enough to be computed again. */
bool keep_is_light(const Node *n)
{
    const OpClass c = op_row(n->op)->class;
    return c == CLASS_POINT || c == CLASS_MOVE || c == CLASS_DRAW;
}

static bool is_free(const Work *w, const Node *n)
{
    if (n->op != OP_ARG)
        return op_row(n->op)->class == CLASS_LEAF;
    if (n->attr.arg == ARG_CARRY)
        return false;
    if (n->attr.arg == ARG_ITER)
        return true;
    const Node *outer = w->from->in[n->attr.index];
    const bool carried = outer->op == OP_ARG && outer->attr.arg == ARG_CARRY;
    return outer->op == OP_PARAM || outer->op == OP_INPUT || (outer->op == OP_ARG && !carried)
           || n->attr.arg == ARG_SHARED || is_sliced(w->plan->over, w->to, outer);
}

static const Node *through_views(const Node *n)
{
    while (keep_is_view(n))
        n = n->in[0];
    return n;
}

/* By id: made of nothing but free values, by light ops. */
static bool *find_given(const Work *w)
{
    bool *given = NEW_ARRAY(w->cx->scratch, bool, w->body->nodes.len + 1);
    for (int i = 0; i < w->body->nodes.len; i++) {
        const Node *n = w->body->nodes.at[i];
        given[i] = is_free(w, n) || keep_is_light(n);
        for (int k = 0; k < n->n_in; k++)
            given[i] &= given[n->in[k]->id];
    }
    return given;
}

/* Is n a product plus something given, a bias, and the only reader of the product? Then the
   product is written as n. */
static bool is_epilogue(const Node *n, const bool *given, const int *uses)
{
    if (op_row(n->op)->class != CLASS_POINT || n->n_in != 2)
        return false;
    for (int k = 0; k < 2; k++) {
        const Node *root = n->in[k];
        bool alone = uses[root->id] == 1;
        for (; root->op == OP_RESHAPE; alone &= uses[root->id] == 1)
            root = root->in[0];
        if (alone && root->op == OP_MATMUL && given[n->in[1 - k]->id])
            return true;
    }
    return false;
}

/* A reduction is a number per row, held in a register of the kernel that makes it. */
static bool is_row_sum(const Node *n) { return op_row(n->op)->class == CLASS_REDUCE; }

static void find_stored(Work *w)
{
    Graph *g = w->body;
    const bool *live = graph_live(g), *given = find_given(w);
    const int *uses = graph_uses(g);
    for (int i = 0; i < g->nodes.len; i++)
        for (int k = 0; k < g->nodes.at[i]->n_in; k++) {
            const int d = w->depth[g->nodes.at[i]->in[k]->id] + is_product(g->nodes.at[i]);
            w->depth[i] = d > w->depth[i] ? d : w->depth[i];
        }
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        w->stored[i] |= (!keep_is_light(n) && !is_row_sum(n)) || is_epilogue(n, given, uses)
                        || n->op == OP_BF16 || n->op == OP_F16;
        for (int k = 0; live[i] && k < n->n_in; k++) {
            const Node *root = through_views(n->in[k]);
            w->operand[root->id] |= is_product(n) && !is_free(w, root);
            w->stored[root->id] |= is_product(n) || w->depth[i] > w->depth[root->id];
        }
    }
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].index < w->from->attr.loop->n_carry)
            w->stored[g->sinks.at[i].node->id] = true;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Bytes of one iteration at the training sizes, as n lies in memory. */
static int64_t bytes_of(const Work *w, const Node *n)
{
    const double bytes = op_bytes(n, 0, w->dims);
    return bytes < 1 ? 1 : bytes > (double)(INT64_MAX / 64) ? INT64_MAX / 64 : (int64_t)bytes;
}

/* ---- products that are one call with what is added ------------------------------------------- */

static bool is_bias(const Node *n)
{
    return n->op == OP_BROADCAST && n->in[0]->type->rank == 1
           && n->attr.axes[0] == n->type->rank - 1;
}

static bool is_sum_of_products(const Node *n)
{
    bool any = false, all = true;
    while (n->op == OP_RESHAPE)
        n = n->in[0];
    for (int k = 0; n->op == OP_ADD && k < 2; k++) {
        const bool product = is_sum_of_products(n->in[k]);
        any |= product;
        all &= product || is_bias(n->in[k]);
    }
    return n->op == OP_MATMUL || (any && all);
}

/* Is n, or what it rounds, one call with the products that it reads? */
static bool takes_products(const Node *n)
{
    return n->op == OP_BF16 || n->op == OP_F16 || (n->op == OP_ADD && is_sum_of_products(n));
}

/* By id: part of a call that goes on (PART), or read by such a call and by others (ALONE). */
enum { PART = 1, ALONE = 2 };

static char *find_parts(const Work *w)
{
    char *part = NEW_ARRAY(w->cx->scratch, char, w->body->nodes.len + 1);
    const int *uses = graph_uses(w->body);
    for (int i = 0; i < w->body->nodes.len; i++) {
        const Node *n = w->body->nodes.at[i];
        for (int k = 0; takes_products(n) && k < n->n_in; k++) {
            if (!is_sum_of_products(n->in[k]))
                continue;
            bool alone = false;
            const Node *at = n->in[k];
            for (;; at = at->in[0]) {
                alone |= uses[at->id] > 1;
                part[at->id] |= alone ? ALONE : PART;
                if (at->op != OP_RESHAPE)
                    break;
            }
        }
    }
    return part;
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* By id: bytes of the needed values that are views of it. */
static int64_t *find_seen(const Work *w)
{
    int64_t *seen = NEW_ARRAY(w->cx->scratch, int64_t, w->body->nodes.len + 1);
    for (int i = 0; i < w->body->nodes.len; i++)
        if (w->plan->needed[i])
            seen[through_views(w->body->nodes.at[i])->id] += bytes_of(w, w->body->nodes.at[i]);
    return seen;
}

/* All that is needed stays; views are taken again, unless they show less than they keep. */
static void keep_all(Work *w)
{
    const int64_t *seen = find_seen(w);
    for (int i = 0; i < w->body->nodes.len; i++) {
        const Node *n = w->body->nodes.at[i], *root = through_views(n);
        if (!w->plan->needed[i] || is_free(w, root)
            || (root->op == OP_ARG && root->attr.arg != ARG_CARRY))
            continue;
        w->plan->saved[seen[root->id] >= bytes_of(w, root) ? root->id : i] = true;
    }
}

/* Needed operands of products stay, whole: the views of them are taken again. */
static void keep_operands(Work *w)
{
    Graph *g = w->body;
    const bool *given = find_given(w);
    const int64_t *seen = find_seen(w);
    for (int i = 0; i < g->nodes.len; i++)
        if (w->operand[i] && !given[i] && g->nodes.at[i]->op != OP_ARG
            && seen[i] >= bytes_of(w, g->nodes.at[i]))
            w->plan->saved[i] = true;
}

/* What it costs to compute n again, in the weights of the cut; CUT_NEVER: it is kept. */
static int64_t again_weight(const Work *w, const Node *n, const char *part)
{
    const KeepChoice *c = w->choice;
    const bool light = keep_is_light(n);
    if (c->hold && c->hold[w->plan->first_number + n->id])
        return CUT_NEVER;
    if (c->rule != KEEP_PRICE)
        return light ? 0 : CUT_NEVER;
    if (n->op == OP_ARG || part[n->id] & ALONE)
        return CUT_NEVER;
    if (light && !(w->operand[n->id] && !keep_is_view(n)))
        return 0;
    const double weight = 2 * op_time(n, w->dims) / c->price;
    return weight < (double)(INT64_MAX / 64) ? (int64_t)weight : CUT_NEVER;
}

static void cut_between(Work *w)
{
    Graph *g = w->body;
    Cut *cut = cut_new(w->cx->scratch, g->nodes.len);
    const char *part = find_parts(w);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (w->plan->needed[i])
            cut_sink(cut, i);
        if (w->plan->saved[i] || is_free(w, n))
            continue;
        const int64_t again = again_weight(w, n, part);
        const bool whole = n->n_out > 1 || (part[i] == PART && w->choice->rule == KEEP_PRICE);
        cut_weight(cut, i, whole ? CUT_NEVER : bytes_of(w, n) * (w->stored[i] ? 2 : 3));
        if (again != 0)
            cut_source(cut, i, again);
        for (int k = 0; k < n->n_in && again != CUT_NEVER; k++)
            cut_edge(cut, n->in[k]->id, i);
    }
    const bool *in_set = cut_solve(cut);
    for (int i = 0; i < g->nodes.len; i++)
        w->plan->saved[i] |= in_set[i] && g->nodes.at[i]->op != OP_ARG;
    for (int i = 0; i < w->from->attr.loop->n_carry; i++)
        w->plan->saved[g->args.at[i]->id] |= in_set[g->args.at[i]->id];
}

/* The transpose of a value whose elements, in its order, are an operand of a matrix product. */
static Node *turned_operand(Graph *g, const Node *value)
{
    Node *found = NULL;
    for (int i = 0; i < g->nodes.len; i++)
        for (int k = 0; g->nodes.at[i]->op == OP_MATMUL && k < 2; k++) {
            Node *operand = g->nodes.at[i]->in[k], *root = operand;
            while (root->op == OP_RESHAPE)
                root = root->in[0];
            if (root == value)
                return NULL;
            if (root->op == OP_TRANSPOSE && root != operand && root->in[0] == value)
                found = root;
        }
    return found;
}

/* The result of attention lies in memory in the order in which the next product reads it: what is
   saved is that, and the result is had from it as a view. */
static void turn_saved(Work *w)
{
    Graph *g = w->body;
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        const bool rounded = (n->op == OP_BF16 || n->op == OP_F16) && !keep_is_light(n->in[0]);
        if (!w->plan->saved[i] || (keep_is_light(n) && !rounded))
            continue;
        Node *turned = turned_operand(g, g->nodes.at[i]);
        if (!turned)
            continue;
        w->plan->turned[i] = turned;
        w->plan->saved[i] = false;
        w->plan->saved[turned->id] = true;
    }
}

/* From the needed values down to what is there: all of that is computed again. */
static void mark_again(Work *w)
{
    Graph *g = w->body;
    KeepPlan *p = w->plan;
    for (int i = g->nodes.len - 1; i >= 0; i--) {
        const Node *n = g->nodes.at[i];
        if (!(p->needed[i] || p->again[i]) || p->saved[i])
            continue;
        if (n->op == OP_ARG && n->attr.arg == ARG_CARRY) {
            p->saved[i] = true;
            continue;
        }
        p->again[i] = true;
        for (int k = 0; k < n->n_in && !p->turned[i]; k++)
            p->again[n->in[k]->id] = true;
    }
}

static void choose_kept(Work *w)
{
    switch (w->choice->rule) {
    case KEEP_ALL: keep_all(w); break;
    case KEEP_CARRY: return; /* mark_again finds the carried values */
    case KEEP_CHEAP:
        keep_operands(w);
        cut_between(w);
        break;
    case KEEP_PRICE: cut_between(w); break;
    }
    turn_saved(w);
}

KeepPlan *keep_plan(Context *cx, const KeepBridge *over, Node *from, Node *to,
                    const KeepChoice *choice, int first_number)
{
    Graph *body = from->attr.loop->body;
    const int n = body->nodes.len + 1;
    KeepPlan *p = NEW(cx->scratch, KeepPlan);
    *p = (KeepPlan){ .from = from,
                     .to = to,
                     .over = over,
                     .first_number = first_number,
                     .needed = NEW_ARRAY(cx->scratch, bool, n),
                     .saved = NEW_ARRAY(cx->scratch, bool, n),
                     .again = NEW_ARRAY(cx->scratch, bool, n),
                     .turned = NEW_ARRAY(cx->scratch, Node *, n) };
    bool any = false;
    for (int i = 0; i < to->n_in; i++) {
        const Node *value = keep_sliced(over, from, to, i);
        if (value)
            any = p->needed[value->id] = true;
    }
    if (!any)
        return NULL;
    Work w = { cx,
               from,
               to,
               body,
               p,
               choice,
               program_training_dims(body->program),
               NEW_ARRAY(cx->scratch, int, n),
               NEW_ARRAY(cx->scratch, bool, n),
               NEW_ARRAY(cx->scratch, bool, n) };
    find_stored(&w);
    p->operand = w.operand;
    choose_kept(&w);
    mark_again(&w);
    return p;
}
