/* fuse_access.c -- index arithmetic: views of buffers, index forms, coordinates.
 *
 * In: positions of elements as forms over a kernel's axes. Out: the same positions along other
 * dims, and as elements of buffers. The idea: a row-major position can be given along any dims with
 * the right product, so that reshapes cost nothing; dims are regrouped only where an op asks for
 * the indexes of single axes.
 */
#include "pass/fuse.h"

/* ---- dims, NULL for 0 ----------------------------------------------------------------------- */

static const Dim *normal(const Dim *d)
{
    int64_t v;
    return d && dim_value(d, &v) && v == 0 ? NULL : d;
}

const Dim *dim_plus(Fuser *f, const Dim *a, const Dim *b)
{
    return !a ? b : !b ? a : normal(dim_add(f->ds, a, b));
}

const Dim *dim_times(Fuser *f, const Dim *a, const Dim *b)
{
    return a && b ? normal(dim_mul(f->ds, a, b)) : NULL;
}

bool dim_equal(const Dim *a, const Dim *b) { return a == b || (a && b && dim_same(a, b)); }

bool dim_is_one(const Dim *d)
{
    int64_t v;
    return d && dim_value(d, &v) && v == 1;
}

const Dim *dim_product(Fuser *f, int n, const Dim *const *dim)
{
    const Dim *p = f->one;
    for (int i = 0; i < n; i++)
        p = dim_mul(f->ds, p, dim[i]);
    return p;
}

/* Sizes that leave 2^50 count as that: no sum of them overflows, and the plan reports them. */
int64_t size_in_training(Fuser *f, const Dim *d)
{
    const int64_t most = (int64_t)1 << 50, v = d ? dim_eval(d, f->values) : 0;
    return v < 0 || v > most ? most : v;
}

/* ---- views ---------------------------------------------------------------------------------- */

View view_dense(Fuser *f, Buffer *b, const Type *t)
{
    View v = { .buffer = b, .rank = t->rank };
    const Dim *step = f->one;
    for (int k = t->rank - 1; k >= 0; k--) {
        v.dim[k] = t->dim[k];
        v.stride[k] = dim_is_one(t->dim[k]) ? NULL : step;
        step = dim_mul(f->ds, step, t->dim[k]);
    }
    return v;
}

bool view_same_place(const View *a, const View *b)
{
    if (a->buffer != b->buffer || !dim_equal(a->base, b->base))
        return false;
    for (int d = 0; d < DEPTH_MAX; d++)
        if (!dim_equal(a->loop[d], b->loop[d]))
            return false;
    return true;
}

/* From (i, j) on: the smallest group of leading dims of a and of b with equal products. */
static bool next_group(Fuser *f, int na, const Dim *const *a, int nb, const Dim *const *b, int *di,
                       int *dj)
{
    for (int sum = 1; sum <= na + nb; sum++)
        for (int i = sum < na ? sum : na; i >= 0 && sum - i <= nb; i--)
            if (dim_same(dim_product(f, i, a), dim_product(f, sum - i, b))) {
                *di = i;
                *dj = sum - i;
                return true;
            }
    return false;
}

/* The one stride of axes [i, i + n) of v, when they can be walked as one. Axes of one element do
   not matter. */
static bool view_merge(Fuser *f, const View *v, int i, int n, const Dim **stride)
{
    bool any = false;
    const Dim *size = NULL;
    *stride = NULL;
    for (int k = i + n - 1; k >= i; k--) {
        if (dim_is_one(v->dim[k]))
            continue;
        if (any && !dim_equal(v->stride[k], dim_times(f, *stride, size)))
            return false;
        if (!any) {
            *stride = v->stride[k];
            size = v->dim[k];
        } else {
            size = dim_mul(f->ds, size, v->dim[k]);
        }
        any = true;
    }
    return true;
}

bool view_reshape(Fuser *f, const View *v, const Type *t, View *out)
{
    View r = *v;
    r.rank = t->rank;
    for (int i = 0, j = 0, di, dj; i < v->rank || j < t->rank; i += di, j += dj) {
        const Dim *stride;
        if (!next_group(f, v->rank - i, v->dim + i, t->rank - j, t->dim + j, &di, &dj))
            return false;
        if (di == 1 && dj == 1) {
            r.dim[j] = t->dim[j];
            r.stride[j] = v->stride[i];
            continue;
        }
        if (!view_merge(f, v, i, di, &stride))
            return false;
        for (int k = j + dj - 1; k >= j; k--) {
            r.dim[k] = t->dim[k];
            r.stride[k] = dim_is_one(t->dim[k]) ? NULL : stride;
            stride = dim_times(f, stride, t->dim[k]);
        }
    }
    *out = r;
    return true;
}

bool view_move(Fuser *f, const View *v, const Node *n, View *out)
{
    const Type *t = n->type;
    View r = *v;
    r.rank = t->rank;
    if (n->op == OP_RESHAPE)
        return view_reshape(f, v, t, out);
    if (node_is_handed(n)) {
        *out = *v;
        return true;
    }
    for (int k = 0; k < t->rank; k++) {
        r.dim[k] = t->dim[k];
        if (n->op == OP_TRANSPOSE)
            r.stride[k] = v->stride[n->attr.axes[k]];
        else if (n->op == OP_BROADCAST)
            r.stride[k] = NULL;
        else
            r.offset = dim_plus(f, r.offset, dim_times(f, normal(n->attr.lo[k]), v->stride[k]));
    }
    for (int k = 0; n->op == OP_BROADCAST && k < v->rank; k++)
        r.stride[n->attr.axes[k]] = v->stride[k];
    *out = r;
    return true;
}

bool view_move_back(Fuser *f, const View *v, const Node *n, View *out)
{
    const Type *t = n->in[0]->type;
    if (n->op == OP_RESHAPE)
        return view_reshape(f, v, t, out);
    if (node_is_handed(n)) {
        *out = *v;
        return true;
    }
    View r = *v;
    for (int k = 0; k < t->rank; k++) {
        r.dim[n->attr.axes[k]] = v->dim[k];
        r.stride[n->attr.axes[k]] = v->stride[k];
    }
    *out = r;
    return true;
}

/* ---- forms ---------------------------------------------------------------------------------- */

Form form_axis(Fuser *f, int axis)
{
    Form r = { 0 };
    r.coef[axis] = f->one;
    return r;
}

Form form_add(Fuser *f, const Form *a, const Form *b)
{
    Form r;
    r.offset = dim_plus(f, a->offset, b->offset);
    for (int i = 0; i < AXES_MAX; i++)
        r.coef[i] = dim_plus(f, a->coef[i], b->coef[i]);
    return r;
}

Form form_scale(Fuser *f, const Form *a, const Dim *by)
{
    Form r;
    r.offset = dim_times(f, a->offset, by);
    for (int i = 0; i < AXES_MAX; i++)
        r.coef[i] = dim_times(f, a->coef[i], by);
    return r;
}

bool form_equal(const Form *a, const Form *b)
{
    bool same = dim_equal(a->offset, b->offset);
    for (int i = 0; same && i < AXES_MAX; i++)
        same = dim_equal(a->coef[i], b->coef[i]);
    return same;
}

/* ---- coordinates ---------------------------------------------------------------------------- */

/* Row-major index within dims [i, i + n) of c. */
static Form linear_of(Fuser *f, const Coords *c, int i, int n)
{
    Form r = { 0 };
    const Dim *step = f->one;
    for (int k = i + n - 1; k >= i; k--) {
        Form part = form_scale(f, &c->at[k], step);
        r = form_add(f, &r, &part);
        step = dim_mul(f->ds, step, c->dim[k]);
    }
    return r;
}

Form coords_linear(Fuser *f, const Coords *c) { return linear_of(f, c, 0, c->rank); }

static int axis_with(const Form *l, const bool *used, const Dim *coef)
{
    for (int a = 0; a < AXES_MAX; a++)
        if (l->coef[a] && !used[a] && dim_same(l->coef[a], coef))
            return a;
    return -1;
}

/* Axis a, all of whose indexes run over want[j..k]: it should be these axes. */
static void ask_split(Fuser *f, int a, const Dim *size, int k, const Dim *const *want, Split *split)
{
    for (int j = k - 1; j >= 0; j--)
        if (dim_same(dim_product(f, k - j + 1, want + j), size)) {
            split->axis = a;
            split->n = 0;
            for (int i = j; i <= k; i++)
                if (!dim_is_one(want[i]))
                    split->dim[split->n++] = want[i];
            return;
        }
}

/* Takes l apart into indexes along want: digits of a number with mixed bases, innermost first. */
static bool take_apart(Fuser *f, const Form *l, int n, const Dim *const *want,
                       const Dim *const *size, Form *out, Split *split)
{
    bool used[AXES_MAX] = { false };
    const Dim *below = f->one;
    for (int k = n - 1; k >= 0; k--) {
        const Dim *unit = f->one;
        out[k] = (Form){ 0 };
        for (int a; !dim_same(unit, want[k]);) {
            a = axis_with(l, used, dim_mul(f->ds, below, unit));
            if (a < 0)
                break;
            const Dim *next = dim_mul(f->ds, unit, size[a]);
            if (!dim_le(f->ds, next, want[k])) {
                if (dim_is_one(unit))
                    ask_split(f, a, size[a], k, want, split);
                return false;
            }
            out[k].coef[a] = unit;
            used[a] = true;
            unit = next;
        }
        below = dim_mul(f->ds, below, want[k]);
    }
    for (int a = 0; a < AXES_MAX; a++)
        if (l->coef[a] && !used[a])
            return false;
    return l->offset == NULL;
}

bool coords_along(Fuser *f, const Coords *c, int n, const Dim *const *want, const Dim *const *size,
                  Coords *out, Split *split)
{
    Coords r = { .rank = n };
    for (int i = 0, j = 0, di, dj; i < c->rank || j < n; i += di, j += dj) {
        if (!next_group(f, c->rank - i, c->dim + i, n - j, want + j, &di, &dj))
            return false;
        for (int k = j; k < j + dj; k++)
            r.dim[k] = want[k];
        if (dj == 0)
            continue;
        Form l = linear_of(f, c, i, di);
        if (dj == 1)
            r.at[j] = l;
        else if (!take_apart(f, &l, dj, want + j, size, r.at + j, split))
            return false;
    }
    *out = r;
    return true;
}

bool coords_access(Fuser *f, const Coords *c, const View *v, const Dim *const *size, Form *out,
                   Split *split)
{
    Form r = { .offset = v->offset };
    for (int i = 0, j = 0, di, dj; i < c->rank || j < v->rank; i += di, j += dj) {
        const Dim *stride;
        if (!next_group(f, c->rank - i, c->dim + i, v->rank - j, v->dim + j, &di, &dj))
            return false;
        Form l = linear_of(f, c, i, di);
        if (view_merge(f, v, j, dj, &stride)) {
            Form part = form_scale(f, &l, stride);
            r = form_add(f, &r, &part);
            continue;
        }
        Form digit[RANK_MAX];
        if (!take_apart(f, &l, dj, v->dim + j, size, digit, split))
            return false;
        for (int k = 0; k < dj; k++) {
            Form part = form_scale(f, &digit[k], v->stride[j + k]);
            r = form_add(f, &r, &part);
        }
    }
    *out = r;
    return true;
}
