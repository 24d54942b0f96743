/* simplify_view.c -- ops that only move elements.
 *
 * In: a node. Out: a node with the same elements through fewer views, or NULL.
 *
 *     reshape of reshape          one reshape             slice of pad       what is left of it
 *     transpose of transpose      one transpose           slice of concat    slice of the part
 *     broadcast of broadcast      one broadcast           slice of slice     one slice
 *     transpose of broadcast      broadcast               pad of pad         one pad
 *     concat of concat            one concat              concat of the slices of x   x
 *     gather of 0, 1, 2 ...       slice                   gather of a broadcast       broadcast
 *
 * The idea: only neighbours are looked at; a chain shrinks from its start, because nodes are
 * simplified in order. Boxes are compared as dims: what is not proven is left alone.
 */
#include "pass/simplify.h"

#include <string.h>

static Dims *dims_of(const Graph *g) { return g->program->dims; }

static bool is_zero(const Dim *d)
{
    int64_t value;
    return dim_value(d, &value) && value == 0;
}

/* A scalar seen in another shape. */
static Node *broadcast_like(Graph *g, Node *scalar, const Node *n)
{
    return ir_broadcast(g, scalar, n->type->rank, n->type->dim, NULL, n->span);
}

static bool is_scalar_broadcast(const Node *n)
{
    return n->op == OP_BROADCAST && n->in[0]->type->rank == 0;
}

/* ---- reshape, transpose, broadcast ---------------------------------------------------------- */

static Node *view_reshape(Graph *g, Node *n)
{
    Node *in = n->in[0];
    if (type_same(in->type, n->type))
        return in;
    if (in->op == OP_RESHAPE)
        return ir_reshape(g, in->in[0], n->type->rank, n->type->dim, n->span);
    if (is_scalar_broadcast(in))
        return n->type->rank ? broadcast_like(g, in->in[0], n) : in->in[0];
    return NULL;
}

/* A broadcast whose result axes are put in another order: the operand's follow. */
static Node *transpose_of_broadcast(Simplify *s, Graph *g, Node *n)
{
    Node *bc = n->in[0], *x = bc->in[0];
    int order[RANK_MAX] = { 0 }, axes[RANK_MAX] = { 0 }, found = 0;
    for (int j = 0; j < n->type->rank; j++)
        for (int k = 0; k < x->type->rank; k++)
            if (bc->attr.axes[k] == n->attr.axes[j]) {
                order[found] = k;
                axes[found++] = j;
            }
    x = simplify_node(s, g, ir_transpose(g, x, order, n->span));
    return ir_broadcast(g, x, n->type->rank, n->type->dim, axes, n->span);
}

static Node *view_transpose(Simplify *s, Graph *g, Node *n)
{
    Node *in = n->in[0];
    bool same = true;
    for (int k = 0; k < n->type->rank; k++)
        same &= n->attr.axes[k] == k;
    if (same)
        return in;
    if (in->op == OP_TRANSPOSE) {
        int axes[RANK_MAX] = { 0 };
        for (int k = 0; k < n->type->rank; k++)
            axes[k] = in->attr.axes[n->attr.axes[k]];
        return ir_transpose(g, in->in[0], axes, n->span);
    }
    return in->op == OP_BROADCAST ? transpose_of_broadcast(s, g, n) : NULL;
}

static Node *view_broadcast(Graph *g, Node *n)
{
    Node *in = n->in[0];
    if (in->type->rank == n->type->rank)
        return in;
    if (in->op != OP_BROADCAST)
        return NULL;
    int axes[RANK_MAX] = { 0 };
    for (int k = 0; k < in->in[0]->type->rank; k++)
        axes[k] = n->attr.axes[in->attr.axes[k]];
    return ir_broadcast(g, in->in[0], n->type->rank, n->type->dim, axes, n->span);
}

/* ---- slice ---------------------------------------------------------------------------------- */

static bool covers(const Node *slice, int axis)
{
    return is_zero(slice->attr.lo[axis])
           && dim_same(slice->type->dim[axis], slice->in[0]->type->dim[axis]);
}

static Node *slice_of_slice(Graph *g, Node *n)
{
    Node *in = n->in[0];
    const Dim *lo[RANK_MAX];
    for (int k = 0; k < n->type->rank; k++)
        lo[k] = dim_add(dims_of(g), n->attr.lo[k], in->attr.lo[k]);
    return ir_slice(g, in->in[0], lo, n->type->dim, n->span);
}

/* On each axis the slice takes all of the padded one, just the inside, or nothing of it. */
static Node *slice_of_pad(Graph *g, Node *n)
{
    Dims *ds = dims_of(g);
    Node *pad = n->in[0], *x = pad->in[0];
    const Dim *lo[RANK_MAX];
    bool shrinks = false;
    for (int k = 0; k < n->type->rank; k++) {
        const Dim *from = n->attr.lo[k], *to = dim_add(ds, from, n->type->dim[k]);
        const Dim *in_from = pad->attr.lo[k], *in_to = dim_add(ds, in_from, x->type->dim[k]);
        if (dim_le(ds, to, in_from) || dim_le(ds, in_to, from))
            return broadcast_like(g, ir_const(g, n->type->dtype, 0, n->span), n);
        lo[k] = in_from;
        if (covers(n, k))
            continue;
        if (!dim_same(from, in_from) || !dim_same(to, in_to))
            return NULL;
        lo[k] = dim_const(ds, 0);
        shrinks = true;
    }
    return shrinks ? ir_pad(g, x, lo, n->type->dim, n->span) : NULL;
}

/* The part of a concat that a slice lies in, or several whole parts. */
static Node *slice_of_concat(Simplify *s, Graph *g, Node *n)
{
    Dims *ds = dims_of(g);
    Node *cat = n->in[0];
    const int axis = cat->attr.axes[0];
    const Dim *from = n->attr.lo[axis], *to = dim_add(ds, from, n->type->dim[axis]);
    const Dim *at = dim_const(ds, 0), *lo[RANK_MAX];
    int first = -1;
    for (int k = 0; k < n->type->rank; k++)
        lo[k] = n->attr.lo[k];
    for (int i = 0; i < cat->n_in; i++) {
        const Dim *end = dim_add(ds, at, cat->in[i]->type->dim[axis]);
        if (dim_le(ds, at, from) && dim_le(ds, to, end)) {
            lo[axis] = dim_sub(ds, from, at);
            return ir_slice(g, cat->in[i], lo, n->type->dim, n->span);
        }
        if (dim_same(at, from))
            first = i;
        if (first >= 0 && dim_same(end, to) && (first > 0 || i < cat->n_in - 1)) {
            const Attr attr = { .n_axes = 1, .axes = { axis } };
            Node *some = ir_node(g, OP_CONCAT, i - first + 1, cat->in + first, &attr, n->span);
            lo[axis] = dim_const(ds, 0);
            return ir_slice(g, simplify_node(s, g, some), lo, n->type->dim, n->span);
        }
        at = end;
    }
    return NULL;
}

static Node *slice_of_broadcast(Simplify *s, Graph *g, Node *n)
{
    Node *bc = n->in[0], *x = bc->in[0];
    const Dim *lo[RANK_MAX], *size[RANK_MAX];
    for (int k = 0; k < x->type->rank; k++) {
        lo[k] = n->attr.lo[bc->attr.axes[k]];
        size[k] = n->type->dim[bc->attr.axes[k]];
    }
    if (x->type->rank)
        x = simplify_node(s, g, ir_slice(g, x, lo, size, n->span));
    return ir_broadcast(g, x, n->type->rank, n->type->dim, bc->attr.axes, n->span);
}

static Node *view_slice(Simplify *s, Graph *g, Node *n)
{
    bool all = true;
    for (int k = 0; k < n->type->rank; k++)
        all &= covers(n, k);
    if (all)
        return n->in[0];
    switch (n->in[0]->op) {
    case OP_SLICE: return slice_of_slice(g, n);
    case OP_PAD: return slice_of_pad(g, n);
    case OP_CONCAT: return slice_of_concat(s, g, n);
    case OP_BROADCAST: return slice_of_broadcast(s, g, n);
    default: return NULL;
    }
}

/* ---- pad, concat ---------------------------------------------------------------------------- */

static Node *view_pad(Graph *g, Node *n)
{
    Node *in = n->in[0];
    if (type_same(in->type, n->type))
        return in;
    if (is_scalar_broadcast(in) && simplify_is_number(in->in[0], 0))
        return broadcast_like(g, in->in[0], n);
    if (in->op != OP_PAD)
        return NULL;
    const Dim *lo[RANK_MAX];
    for (int k = 0; k < n->type->rank; k++)
        lo[k] = dim_add(dims_of(g), n->attr.lo[k], in->attr.lo[k]);
    return ir_pad(g, in->in[0], lo, n->type->dim, n->span);
}

/* Does b begin where a ends, both being slices of one tensor that differ on that axis only? */
static bool adjoins(const Graph *g, const Node *a, const Node *b, int axis)
{
    if (a->op != OP_SLICE || b->op != OP_SLICE || a->in[0] != b->in[0])
        return false;
    for (int k = 0; k < a->type->rank; k++) {
        const Dim *next = a->attr.lo[k];
        if (k == axis)
            next = dim_add(dims_of(g), next, a->type->dim[k]);
        if (!dim_same(next, b->attr.lo[k]))
            return false;
    }
    return true;
}

static Node *join_slices(Simplify *s, Graph *g, const Node *a, const Node *b, int axis)
{
    const Dim *size[RANK_MAX];
    for (int k = 0; k < a->type->rank; k++)
        size[k] = a->type->dim[k];
    size[axis] = dim_add(dims_of(g), size[axis], b->type->dim[axis]);
    return simplify_node(s, g, ir_slice(g, a->in[0], a->attr.lo, size, a->span));
}

static Node *view_concat(Simplify *s, Graph *g, Node *n)
{
    const int axis = n->attr.axes[0];
    VEC(Node *) part = { 0 };
    for (int i = 0; i < n->n_in; i++) {
        Node *in = n->in[i];
        const bool flat = in->op == OP_CONCAT && in->attr.axes[0] == axis;
        if (flat)
            for (int k = 0; k < in->n_in; k++)
                vec_push(s->cx->scratch, &part, in->in[k]);
        else if (part.len && adjoins(g, part.at[part.len - 1], in, axis))
            part.at[part.len - 1] = join_slices(s, g, part.at[part.len - 1], in, axis);
        else
            vec_push(s->cx->scratch, &part, in);
    }
    if (part.len == 1)
        return part.at[0];
    const bool same = part.len == n->n_in
                      && !memcmp(part.at, n->in, sizeof(Node *) * (size_t)part.len);
    return same ? NULL : ir_concat(g, part.len, part.at, axis, n->span);
}

/* ---- gather --------------------------------------------------------------------------------- */

/* Where a run of indexes lo, lo + 1, ... begins; NULL when ids are not such a run. */
static const Dim *run_of(const Graph *g, const Node *ids)
{
    if (ids->op == OP_IOTA && ids->type->rank == 1)
        return dim_const(dims_of(g), 0);
    for (int k = 0; ids->op == OP_ADD && k < 2; k++) {
        const Node *by = ids->in[k], *run = ids->in[1 - k];
        if (run->op != OP_IOTA || run->type->rank != 1 || by->type->rank)
            continue;
        if (by->op == OP_DIM)
            return by->attr.dim;
        if (by->op == OP_CONST && by->attr.value >= 0)
            return dim_const(dims_of(g), (int64_t)by->attr.value);
    }
    return NULL;
}

/* Rows in order are a slice; rows chosen alike along an axis are chosen once. */
Node *simplify_gather(Simplify *s, Graph *g, Node *n)
{
    Node *table = n->in[0], *ids = n->in[1];
    const Dim *run = run_of(g, ids), *lo[RANK_MAX], *size[RANK_MAX];
    int axes[RANK_MAX], n_axes = 0;
    if (run) {
        for (int k = 0; k < table->type->rank; k++) {
            lo[k] = k ? dim_const(dims_of(g), 0) : run;
            size[k] = k ? table->type->dim[k] : ids->type->dim[0];
        }
        return simplify_node(s, g, ir_slice(g, table, lo, size, n->span));
    }
    if (ids->op != OP_BROADCAST)
        return NULL;
    for (int k = 0; k < ids->attr.n_axes; k++)
        axes[n_axes++] = ids->attr.axes[k];
    for (int k = ids->type->rank; k < n->type->rank; k++)
        axes[n_axes++] = k;
    Node *rows = simplify_node(s, g, ir_gather(g, table, ids->in[0], n->span));
    return ir_broadcast(g, rows, n->type->rank, n->type->dim, axes, n->span);
}

Node *simplify_view(Simplify *s, Graph *g, Node *n)
{
    switch (n->op) {
    case OP_RESHAPE: return view_reshape(g, n);
    case OP_TRANSPOSE: return view_transpose(s, g, n);
    case OP_BROADCAST: return view_broadcast(g, n);
    case OP_SLICE: return view_slice(s, g, n);
    case OP_PAD: return view_pad(g, n);
    case OP_CONCAT: return view_concat(s, g, n);
    default: return NULL;
    }
}
