/* simplify_move.c -- arithmetic on values that were only moved.
 *
 * In: a pointwise op, a reduction or a product. Out: the same with less work, or NULL.
 *
 *     op(broadcast a, broadcast b)        broadcast op(a, b)
 *     op(x, broadcast of a scalar)        op(x, scalar)
 *     op(x seen as [B,1])                 op(x) seen as [B,1]
 *     sum(broadcast x)                    broadcast(sum x times the sizes repeated over)
 *     sum(reshape x)                      sum x over the axes that were merged
 *     sum(pad x), sum(neg x)              pad(sum x), neg(sum x)
 *     matmul(transpose a, b)              matmul a, b, ta
 *     pad a + pad b, side by side         pad(concat a, b)
 *
 * The idea: moves go towards the result, where they meet other moves, and arithmetic towards the
 * smaller operands. A sum of n equal terms becomes a product, which rounds once instead of n times;
 * a sum with padding is the same but for the sign of zeros; all else is the same bits.
 */
#include "pass/simplify.h"

static Dims *dims_of(const Graph *g) { return g->program->dims; }

/* ---- pointwise ------------------------------------------------------------------------------ */

static bool same_axes(const Node *a, const Node *b)
{
    if (a->attr.n_axes != b->attr.n_axes)
        return false;
    for (int k = 0; k < a->attr.n_axes; k++)
        if (a->attr.axes[k] != b->attr.axes[k])
            return false;
    return true;
}

static bool is_scalar_broadcast(const Node *n)
{
    return n->op == OP_BROADCAST && n->in[0]->type->rank == 0;
}

/* The broadcast that all operands are which are not the same everywhere; NULL when they differ or
   one is no broadcast. *spread: some operand is a broadcast at all. */
static Node *common_broadcast(const Node *n, bool *spread, bool *plain)
{
    Node *found = NULL;
    for (int i = 0; i < n->n_in; i++) {
        Node *in = n->in[i];
        if (in->type->rank == 0)
            continue;
        if (in->op != OP_BROADCAST || (found && !is_scalar_broadcast(in) && !same_axes(found, in)))
            *plain = true;
        else if (!is_scalar_broadcast(in))
            found = in;
        *spread |= in->op == OP_BROADCAST;
    }
    return found;
}

Node *simplify_point_of_broadcast(Simplify *s, Graph *g, Node *n)
{
    bool spread = false, plain = false, scalars = false;
    Node *like = common_broadcast(n, &spread, &plain), *in[3];
    if (!spread || n->n_in > 3)
        return NULL;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        if (is_scalar_broadcast(in[i]) || (!plain && in[i]->op == OP_BROADCAST))
            in[i] = in[i]->in[0];
        scalars |= is_scalar_broadcast(n->in[i]);
    }
    if (plain && !scalars)
        return NULL;
    Node *made;
    if (n->op == OP_CAST) {
        made = simplify_node(s, g, ir_cast(g, in[0], n->type->dtype, n->span));
    } else {
        made = simplify_again(s, g, n, in);
    }
    if (plain)
        return made;
    return ir_broadcast(g, made, n->type->rank, n->type->dim, like ? like->attr.axes : NULL,
                        n->span);
}

/* Rounding to 16 bits happens once, and where a value is made: in front of what moves it. */
Node *simplify_narrow(Simplify *s, Graph *g, const Node *n)
{
    const Node *x = n->in[0];
    if (x->op == n->op)
        return n->in[0];
    if (x->op != OP_RESHAPE && x->op != OP_TRANSPOSE && x->op != OP_PAD && x->op != OP_CONCAT)
        return NULL;
    Node **in = NEW_ARRAY(s->cx->scratch, Node *, x->n_in);
    for (int k = 0; k < x->n_in; k++)
        in[k] = simplify_make(s, g, n->op, 1, &x->in[k], n->span);
    return op_row(x->op)->shape ? ir_node(g, x->op, x->n_in, in, &x->attr, n->span)
                                : ir_typed(g, x->op, n->type, x->n_in, in, &x->attr, n->span);
}

/* x + broadcast(-y) is x - broadcast(y), and x - broadcast(-y) is x + broadcast(y). */
Node *simplify_sum_of_negated(Simplify *s, Graph *g, const Node *n)
{
    for (int i = n->op == OP_ADD ? 0 : 1; i < 2; i++) {
        const Node *spread = n->in[i];
        if (spread->op != OP_BROADCAST || spread->in[0]->op != OP_NEG)
            continue;
        Node *of = spread->in[0]->in[0];
        Node *in[2] = { n->in[1 - i], ir_broadcast(g, of, spread->type->rank, spread->type->dim,
                                                   spread->attr.axes, n->span) };
        return simplify_make(s, g, n->op == OP_ADD ? OP_SUB : OP_ADD, 2, in, n->span);
    }
    return NULL;
}

/* Does a reshape only add or drop axes of size 1? */
static bool is_unit_reshape(const Node *n)
{
    if (n->op != OP_RESHAPE)
        return false;
    const Type *a = n->type, *b = n->in[0]->type;
    int i = 0, j = 0;
    for (;;) {
        int64_t one;
        while (i < a->rank && dim_value(a->dim[i], &one) && one == 1)
            i++;
        while (j < b->rank && dim_value(b->dim[j], &one) && one == 1)
            j++;
        if (i == a->rank || j == b->rank)
            return i == a->rank && j == b->rank;
        if (!dim_same(a->dim[i++], b->dim[j++]))
            return false;
    }
}

Node *simplify_point_of_units(Simplify *s, Graph *g, Node *n)
{
    const Type *like = NULL;
    Node *in[3];
    for (int i = 0; i < n->n_in && i < 3; i++) {
        in[i] = n->in[i];
        if (in[i]->type->rank == 0 && in[i]->op != OP_RESHAPE)
            continue;
        if (!is_unit_reshape(in[i]) || (like && !type_same_shape(like, in[i]->in[0]->type)))
            return NULL;
        in[i] = in[i]->in[0];
        like = in[i]->type;
    }
    if (!like || n->n_in > 3 || !n->type->rank)
        return NULL;
    Node *made = n->op == OP_CAST ? simplify_node(s, g, ir_cast(g, in[0], n->type->dtype, n->span))
                                  : simplify_again(s, g, n, in);
    return simplify_node(s, g, ir_reshape(g, made, n->type->rank, n->type->dim, n->span));
}

/* ---- sums of pads --------------------------------------------------------------------------- */

/* The only axis on which the boxes of two pads differ, b following a there; -1 when not so. */
static int pads_adjoin(const Graph *g, const Node *a, const Node *b)
{
    int axis = -1;
    for (int k = 0; k < a->type->rank; k++) {
        const Dim *size = a->in[0]->type->dim[k], *end = dim_add(dims_of(g), a->attr.lo[k], size);
        if (dim_same(a->attr.lo[k], b->attr.lo[k]) && dim_same(size, b->in[0]->type->dim[k]))
            continue;
        if (axis >= 0 || !dim_same(end, b->attr.lo[k]))
            return -1;
        axis = k;
    }
    return axis;
}

/* Two pads as one: side by side, or one over the other. */
static Node *merge_pads(Simplify *s, Graph *g, Node *a, Node *b)
{
    Node *in[2] = { a->in[0], b->in[0] }, *both;
    bool same_box = type_same(in[0]->type, in[1]->type);
    for (int k = 0; k < a->type->rank; k++)
        same_box &= dim_same(a->attr.lo[k], b->attr.lo[k]);
    if (same_box) {
        both = simplify_make(s, g, OP_ADD, 2, in, a->span);
        return simplify_node(s, g, ir_pad(g, both, a->attr.lo, a->type->dim, a->span));
    }
    int axis = pads_adjoin(g, a, b);
    if (axis < 0) {
        Node *swap = a;
        a = b;
        b = swap;
        axis = pads_adjoin(g, a, b);
    }
    if (axis < 0)
        return NULL;
    in[0] = a->in[0];
    in[1] = b->in[0];
    both = simplify_node(s, g, ir_concat(g, 2, in, axis, a->span));
    return simplify_node(s, g, ir_pad(g, both, a->attr.lo, a->type->dim, a->span));
}

typedef VEC(Node *) Terms;

static void collect_terms(Simplify *s, Node *n, const Node *like, Terms *terms)
{
    if (n->op == OP_ADD && terms->len < 16 && type_same(n->type, like->type)) {
        collect_terms(s, n->in[0], like, terms);
        collect_terms(s, n->in[1], like, terms);
    } else {
        vec_push(s->cx->scratch, terms, n);
    }
}

Node *simplify_sum_of_pads(Simplify *s, Graph *g, Node *n)
{
    Terms terms = { 0 };
    if (n->in[0]->op != OP_PAD && n->in[1]->op != OP_PAD)
        return NULL;
    collect_terms(s, n, n, &terms);
    for (int i = 0; i < terms.len; i++)
        for (int k = i + 1; k < terms.len; k++) {
            Node *a = terms.at[i], *b = terms.at[k];
            Node *both = a->op == OP_PAD && b->op == OP_PAD ? merge_pads(s, g, a, b) : NULL;
            if (!both)
                continue;
            terms.at[i] = both;
            terms.at[k] = NULL;
            Node *sum = terms.at[0];
            for (int t = 1; t < terms.len; t++)
                if (terms.at[t]) {
                    Node *in[2] = { sum, terms.at[t] };
                    sum = simplify_make(s, g, OP_ADD, 2, in, n->span);
                }
            return sum;
        }
    return NULL;
}

/* ---- reductions ----------------------------------------------------------------------------- */

static bool reduces(const Node *n, int axis)
{
    for (int k = 0; k < n->attr.n_axes; k++)
        if (n->attr.axes[k] == axis)
            return true;
    return false;
}

/* n over another operand and other axes. */
static Node *reduce_again(Simplify *s, Graph *g, const Node *n, Node *in, int n_axes,
                          const int *axes)
{
    return n_axes ? simplify_node(s, g, ir_reduce(g, n->op, in, n_axes, axes, n->span)) : in;
}

/* What is repeated along a reduced axis is counted, not added. */
static Node *reduce_broadcast(Simplify *s, Graph *g, Node *n)
{
    Node *bc = n->in[0], *x = bc->in[0];
    const Dim *times = dim_const(dims_of(g), 1);
    int inner[RANK_MAX], n_inner = 0, axes[RANK_MAX], n_axes = 0, kept = 0;
    bool repeats = false;
    for (int j = 0, k = 0; j < bc->type->rank; j++) {
        const bool old = k < x->type->rank && bc->attr.axes[k] == j;
        if (reduces(n, j)) {
            if (old)
                inner[n_inner++] = k;
            else
                times = dim_mul(dims_of(g), times, bc->type->dim[j]);
            repeats |= !old;
        } else {
            if (old)
                axes[n_axes++] = kept;
            kept++;
        }
        k += old;
    }
    if (!repeats)
        return NULL;
    Node *in[2] = { reduce_again(s, g, n, x, n_inner, inner), NULL };
    if (n->op == OP_SUM) {
        in[1] = simplify_node(s, g, ir_dim(g, n->type->dtype, times, n->span));
        in[0] = simplify_make(s, g, OP_MUL, 2, in, n->span);
    }
    if (type_same(in[0]->type, n->type))
        return in[0];
    return simplify_node(s, g, ir_broadcast(g, in[0], n->type->rank, n->type->dim, axes, n->span));
}

/* A sum over all axes that a reshape merged, and over no part of them, is one over the originals.
   Split axes stay: a row keeps its index space. */
static Node *reduce_reshape(Simplify *s, Graph *g, Node *n)
{
    Dims *ds = dims_of(g);
    const Type *to = n->in[0]->type, *from = n->in[0]->in[0]->type;
    int axes[RANK_MAX], n_axes = 0, i = 0, j = 0;
    if (from->rank <= to->rank)
        return NULL;
    while (i < from->rank && j < to->rank) {
        const int i0 = i, j0 = j;
        const Dim *a = from->dim[i++], *b = to->dim[j++];
        while (!dim_same(a, b)) {
            if (j < to->rank && (i == from->rank || dim_le(ds, b, a)))
                b = dim_mul(ds, b, to->dim[j++]);
            else if (i < from->rank)
                a = dim_mul(ds, a, from->dim[i++]);
            else
                return NULL;
        }
        for (int k = j0 + 1; k < j; k++)
            if (reduces(n, k) != reduces(n, j0))
                return NULL;
        for (int k = i0; k < i && reduces(n, j0); k++)
            axes[n_axes++] = k;
    }
    if (i < from->rank || j < to->rank)
        return NULL;
    Node *sum = reduce_again(s, g, n, n->in[0]->in[0], n_axes, axes);
    return simplify_node(s, g, ir_reshape(g, sum, n->type->rank, n->type->dim, n->span));
}

static Node *sum_pad(Simplify *s, Graph *g, Node *n)
{
    Node *pad = n->in[0];
    const Dim *lo[RANK_MAX];
    int kept = 0;
    for (int k = 0; k < pad->type->rank; k++)
        if (!reduces(n, k))
            lo[kept++] = pad->attr.lo[k];
    Node *sum = reduce_again(s, g, n, pad->in[0], n->attr.n_axes, n->attr.axes);
    return kept ? simplify_node(s, g, ir_pad(g, sum, lo, n->type->dim, n->span)) : sum;
}

Node *simplify_reduce(Simplify *s, Graph *g, Node *n)
{
    Node *in = n->in[0];
    bool ones = true;
    if (n->op == OP_ARGMAX || n->op == OP_ARGMIN)
        return NULL;
    for (int k = 0; k < n->attr.n_axes; k++) {
        int64_t size;
        ones &= dim_value(in->type->dim[n->attr.axes[k]], &size) && size == 1;
    }
    if (ones)
        return ir_reshape(g, in, n->type->rank, n->type->dim, n->span);
    if (in->op == OP_BROADCAST)
        return reduce_broadcast(s, g, n);
    if (in->op == OP_RESHAPE)
        return reduce_reshape(s, g, n);
    if (n->op != OP_SUM)
        return NULL;
    if (in->op == OP_PAD)
        return sum_pad(s, g, n);
    if (in->op == OP_NEG) {
        Node *sum = reduce_again(s, g, n, in->in[0], n->attr.n_axes, n->attr.axes);
        return simplify_make(s, g, OP_NEG, 1, &sum, n->span);
    }
    return NULL;
}

/* ---- products ------------------------------------------------------------------------------- */

/* Is n a transpose of the last two axes alone? */
static bool swaps_last_two(const Node *n)
{
    const int rank = n->type->rank;
    if (n->op != OP_TRANSPOSE || rank < 2)
        return false;
    for (int k = 0; k < rank - 2; k++)
        if (n->attr.axes[k] != k)
            return false;
    return n->attr.axes[rank - 2] == rank - 1;
}

Node *simplify_matmul(Simplify *s, Graph *g, Node *n)
{
    const bool a = swaps_last_two(n->in[0]), b = swaps_last_two(n->in[1]);
    (void)s;
    if (!a && !b)
        return NULL;
    return ir_matmul(g, a ? n->in[0]->in[0] : n->in[0], b ? n->in[1]->in[0] : n->in[1],
                     n->attr.ta != a, n->attr.tb != b, n->span);
}
