/* fuse_value.c -- the values of a kernel: nodes at positions.
 *
 * In: a node and the coordinates of one element of it, over the kernel's axes. Out: the number of
 * the kernel value that is this element. The idea: walk from the node to what lies in memory; views
 * only change coordinates, pointwise ops keep them, zeros around become a guard. A node at the same
 * position is one value.
 */
#include "pass/fuse.h"

static int build(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard);

static const char *value_name(const Scope *s, const Node *n)
{
    return s->at[n->id].exact ? s->at[n->id].hint : NULL;
}

/* ---- adding values -------------------------------------------------------------------------- */

static int value_add(MapBuild *m, Value v)
{
    for (int i = 0; i < v.n_in; i++) {
        int p = m->k->values.at[v.in[i]].phase;
        v.phase = p > v.phase ? p : v.phase;
    }
    if (v.kind == VAL_REDUCE)
        v.phase++;
    vec_push(m->f->attempt, &m->k->values, v);
    return m->k->values.len - 1;
}

/* A value that does not depend on a position: one of each kind is enough. */
static int value_once(MapBuild *m, Value v)
{
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *w = &m->k->values.at[i];
        if (w->kind == v.kind && w->dtype == v.dtype && w->number == v.number
            && dim_equal(w->dim, v.dim) && w->axis == v.axis && w->slot == v.slot)
            return i;
    }
    return value_add(m, v);
}

static int value_const(MapBuild *m, DType t, double number)
{
    return value_once(m, (Value){ .kind = VAL_CONST, .dtype = t, .number = number });
}

static int value_point(MapBuild *m, Op op, DType t, int n_in, const int *in, const Node *n)
{
    Value v = { .kind = VAL_POINT, .op = op, .dtype = t, .n_in = n_in, .node = n, .name = NULL };
    for (int i = 0; i < n_in; i++) {
        if (in[i] < 0)
            return -1;
        v.in[i] = in[i];
    }
    for (int i = 0; i < m->k->values.len; i++) { /* index arithmetic repeats itself */
        const Value *w = &m->k->values.at[i];
        bool same = w->kind == VAL_POINT && w->op == op && w->dtype == t && w->n_in == n_in;
        for (int k = 0; same && k < n_in; k++)
            same = w->in[k] == in[k];
        if (same)
            return i;
    }
    return value_add(m, v);
}

static int value_dim(MapBuild *m, DType t, const Dim *d)
{
    int64_t number;
    if (!d || dim_literal(d, &number))
        return value_const(m, t, d ? (double)number : 0);
    return value_once(m, (Value){ .kind = VAL_DIM, .dtype = t, .dim = d });
}

/* The number that a form is, as an integer. */
static int value_of_form(MapBuild *m, const Form *f, const Node *n)
{
    int sum = -1;
    for (int a = 0; a < AXES_MAX; a++) {
        if (!f->coef[a])
            continue;
        int term = value_once(m, (Value){ .kind = VAL_AXIS, .dtype = DT_I32, .axis = a });
        if (!dim_is_one(f->coef[a])) {
            int in[2] = { term, value_dim(m, DT_I32, f->coef[a]) };
            term = value_point(m, OP_MUL, DT_I32, 2, in, n);
        }
        int in[2] = { sum, term };
        sum = sum < 0 ? term : value_point(m, OP_ADD, DT_I32, 2, in, n);
    }
    if (sum < 0)
        return value_dim(m, DT_I32, f->offset);
    int in[2] = { sum, f->offset ? value_dim(m, DT_I32, f->offset) : -1 };
    return f->offset ? value_point(m, OP_ADD, DT_I32, 2, in, n) : sum;
}

/* ---- memory --------------------------------------------------------------------------------- */

int map_argument(MapBuild *m, const View *v)
{
    Arena *a = m->f->attempt;
    for (int i = 0; i < m->operands.len; i++) {
        const Operand *o = &m->operands.at[i];
        bool same = o->buffer == v->buffer && dim_equal(o->offset, v->base);
        for (int d = 0; same && d < DEPTH_MAX; d++)
            same = dim_equal(o->loop_stride[d], v->loop[d]);
        if (same)
            return i;
    }
    Operand o = { .buffer = v->buffer, .offset = v->base };
    for (int d = 0; d < DEPTH_MAX; d++)
        o.loop_stride[d] = v->loop[d];
    vec_push(a, &m->operands, o);
    vec_push(a, &m->k->args, ((KernelArg){ .dtype = v->buffer->dtype }));
    return m->operands.len - 1;
}

static Access access_of(int arg, const Form *f)
{
    Access a = { .arg = arg, .offset = f->offset, .index = -1, .guard = -1 };
    for (int i = 0; i < AXES_MAX; i++)
        a.stride[i] = f->coef[i];
    return a;
}

/* n, at c, in v. */
bool map_access(MapBuild *m, Node *n, const View *v, const Coords *c, Access *a)
{
    Form f;
    if (!coords_access(m->f, c, v, m->size, &f, &m->split)) {
        m->why->copy = n;
        return false;
    }
    *a = access_of(map_argument(m, v), &f);
    return true;
}

static bool lies_outside(MapBuild *m, Scope *s, Node *n)
{
    return s != m->s || !group_writes(s, m->u, n);
}

static int load(MapBuild *m, Scope *s, Node *n, const View *v, const Coords *c, int guard)
{
    Value l = { .kind = VAL_LOAD, .dtype = n->type->dtype, .node = n, .name = value_name(s, n) };
    if (!lies_outside(m, s, n) || !map_access(m, n, v, c, &l.access))
        return -1;
    l.access.guard = guard;
    if (guard >= 0)
        l.phase = m->k->values.at[guard].phase;
    m->k->args.at[l.access.arg].read = true;
    return value_add(m, l);
}

/* ---- coordinates ---------------------------------------------------------------------------- */

/* c along the dims of n's type. */
static bool along_axes(MapBuild *m, Node *n, const Coords *c, Coords *out)
{
    if (coords_along(m->f, c, n->type->rank, n->type->dim, m->size, out, &m->split))
        return true;
    m->why->force = n;
    return false;
}

static int move(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    Node *x = n->in[0];
    Coords at, in = { .rank = x->type->rank };
    if (n->op == OP_RESHAPE)
        return build(m, s, x, c, guard);
    if (!along_axes(m, n, c, &at))
        return -1;
    for (int k = 0; k < x->type->rank; k++)
        in.dim[k] = x->type->dim[k];
    for (int k = 0; k < n->attr.n_axes; k++) {
        if (n->op == OP_TRANSPOSE)
            in.at[n->attr.axes[k]] = at.at[k];
        else if (n->op == OP_BROADCAST)
            in.at[k] = at.at[n->attr.axes[k]];
    }
    for (int k = 0; n->op == OP_SLICE && k < x->type->rank; k++) {
        Form lo = { .offset = dim_times(m->f, m->f->one, n->attr.lo[k]) };
        in.at[k] = form_add(m->f, &at.at[k], &lo);
    }
    return build(m, s, x, &in, guard);
}

static int both(MapBuild *m, int a, int b, const Node *n)
{
    int in[2] = { a, b };
    return a < 0 ? b : b < 0 ? a : value_point(m, OP_AND, DT_BOOL, 2, in, n);
}

/* Zeros around: a guard for what is read, and a choice where something is computed. */
static int pad(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    Fuser *f = m->f;
    Node *x = n->in[0];
    Coords at, in = { .rank = x->type->rank };
    int inside = -1;
    if (!along_axes(m, n, c, &at))
        return -1;
    for (int k = 0; k < x->type->rank; k++) {
        const Dim *lo = dim_times(f, f->one, n->attr.lo[k]);
        const Dim *hi = dim_add(f->ds, n->attr.lo[k], x->type->dim[k]);
        Form back = { .offset = lo ? dim_sub(f->ds, dim_const(f->ds, 0), lo) : NULL };
        in.dim[k] = x->type->dim[k];
        in.at[k] = form_add(f, &at.at[k], &back);
        if (lo) {
            int cmp[2] = { value_dim(m, DT_I32, lo), value_of_form(m, &at.at[k], n) };
            inside = both(m, inside, value_point(m, OP_LE, DT_BOOL, 2, cmp, n), n);
        }
        if (!dim_same(hi, n->type->dim[k])) {
            int cmp[2] = { value_of_form(m, &at.at[k], n), value_dim(m, DT_I32, hi) };
            inside = both(m, inside, value_point(m, OP_LT, DT_BOOL, 2, cmp, n), n);
        }
    }
    int g = both(m, guard, inside, n);
    int v = build(m, s, x, &in, g);
    if (v < 0 || inside < 0
        || (m->k->values.at[v].kind == VAL_LOAD && m->k->values.at[v].access.guard == g))
        return v;
    int choose[3] = { g, v, value_const(m, n->type->dtype, 0) };
    return value_point(m, OP_WHERE, n->type->dtype, 3, choose, n);
}

static int gather(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    Fuser *f = m->f;
    Node *table = n->in[0], *ids = n->in[1];
    Coords at, in = { .rank = ids->type->rank }, rest = { .rank = table->type->rank - 1 };
    View v, row;
    if (!along_axes(m, n, c, &at))
        return -1;
    for (int k = 0; k < in.rank; k++) {
        in.dim[k] = at.dim[k];
        in.at[k] = at.at[k];
    }
    for (int k = 0; k < rest.rank; k++) {
        rest.dim[k] = at.dim[in.rank + k];
        rest.at[k] = at.at[in.rank + k];
    }
    int index = build(m, s, ids, &in, guard);
    if (index < 0 || !lies_outside(m, s, table))
        return -1;
    if (!place_view(s, table, &v)) {
        m->why->force = table;
        return -1;
    }
    row = v;
    row.rank--;
    for (int k = 0; k < row.rank; k++) {
        row.dim[k] = v.dim[k + 1];
        row.stride[k] = v.stride[k + 1];
    }
    Value l = { .kind = VAL_LOAD, .dtype = n->type->dtype, .node = n, .name = value_name(s, n) };
    if (!map_access(m, table, &row, &rest, &l.access))
        return -1;
    l.access.guard = guard;
    l.access.index = index;
    l.access.index_stride = v.stride[0] ? v.stride[0] : dim_const(f->ds, 0);
    l.phase = m->k->values.at[index].phase;
    if (guard >= 0 && m->k->values.at[guard].phase > l.phase)
        l.phase = m->k->values.at[guard].phase;
    m->k->args.at[l.access.arg].read = true;
    return value_add(m, l);
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* The sample axis is samples times what belongs to one (op/random.c). */
static int draw(MapBuild *m, Scope *s, Node *n, const Coords *c)
{
    Fuser *f = m->f;
    const Dim *want[FACTORS_MAX];
    int rank = 0, sample = -1;
    for (int k = 0; k < n->type->rank; k++) {
        const Dim *each = dim_per_sample(f->ds, n->type->dim[k]);
        if (each) {
            sample = rank;
            want[rank++] = dim_exact_div(f->ds, n->type->dim[k], each);
        }
        if (!each || !dim_is_one(each))
            want[rank++] = each ? each : n->type->dim[k];
    }
    Coords at, within = { 0 };
    if (!coords_along(f, c, rank, want, m->size, &at, &m->split)) {
        m->why->force = n;
        return -1;
    }
    Value v = { .kind = VAL_DRAW,
                .op = n->op,
                .dtype = n->type->dtype,
                .stream = n->attr.stream,
                .node = n,
                .name = value_name(s, n) };
    Form zero = { 0 };
    v.sample = access_of(-1, sample >= 0 ? &at.at[sample] : &zero);
    for (int k = 0; k < rank; k++)
        if (k != sample) {
            within.dim[within.rank] = at.dim[k];
            within.at[within.rank++] = at.at[k];
        }
    Form element = coords_linear(f, &within);
    v.element = access_of(-1, &element);
    if (n->n_in > 4)
        bug("a draw in more than 4 loops");
    for (int i = 0; i < n->n_in; i++) {
        Coords scalar = { 0 };
        v.in[v.n_in++] = build(m, s, n->in[i], &scalar, -1);
        if (v.in[i] < 0)
            return -1;
    }
    bool moves = false;
    for (int a = 0; a < AXES_MAX; a++)
        moves |= v.sample.stride[a] != NULL;
    if (sample >= 0 && !moves) { /* no stride would mean: the same for all samples */
        m->why->force = n;
        return -1;
    }
    return value_add(m, v);
}

/* ---- one node ------------------------------------------------------------------------------- */

static int pointwise(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    int in[4] = { -1, -1, -1, -1 };
    for (int i = 0; i < n->n_in; i++) {
        Coords scalar = { 0 };
        bool rank0 = n->in[i]->type->rank == 0 && n->type->rank > 0;
        in[i] = build(m, s, n->in[i], rank0 ? &scalar : c, guard);
        if (in[i] < 0)
            return -1;
    }
    if (n->op == OP_STOP || node_is_handed(n))
        return in[0];
    if (n->op == OP_CAST)
        return value_add(m, (Value){ .kind = VAL_CAST,
                                     .dtype = n->type->dtype,
                                     .n_in = 1,
                                     .in = { in[0] },
                                     .node = n,
                                     .name = value_name(s, n) });
    int v = value_point(m, n->op, n->type->dtype, n->n_in, in, n);
    if (!m->k->values.at[v].name)
        m->k->values.at[v].name = n->name;
    return v;
}

static int argument(MapBuild *m, Scope *s, Node *n)
{
    if (n->attr.arg == ARG_ITER && s->outer)
        return value_once(m, (Value){ .kind = VAL_ITER, .dtype = DT_I32, .axis = s->depth - 1 });
    bug("argument %d of %s lies nowhere", n->attr.index, s->g->name);
}

static int compute(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    DType t = n->type->dtype;
    switch (n->op) {
    case OP_CONST: return value_const(m, t, n->attr.value);
    case OP_DIM: return value_dim(m, t, n->attr.dim);
    case OP_SEED:
        return value_once(
            m, (Value){ .kind = VAL_SEED, .dtype = t, .slot = n->attr.index, .node = n });
    case OP_IOTA: {
        Coords at;
        if (!along_axes(m, n, c, &at))
            return -1;
        return value_of_form(m, &at.at[n->attr.axes[0]], n);
    }
    case OP_ARG: {
        Scope *from = s;
        Node *free = n->attr.arg == ARG_SHARED && s->outer ? s->node->in[n->attr.index] : n;
        from = free == n ? s : s->outer;
        return free == n ? argument(m, s, n) : build(m, from, free, c, guard);
    }
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_SLICE:
    case OP_BROADCAST: return move(m, s, n, c, guard);
    case OP_PAD: return pad(m, s, n, c, guard);
    case OP_GATHER: return gather(m, s, n, c, guard);
    case OP_UNIFORM:
    case OP_NORMAL: return draw(m, s, n, c);
    default:
        if (op_is(n, CLASS_POINT))
            return pointwise(m, s, n, c, guard);
        bug("%s %%%d of %s cannot be computed in a kernel", op_row(n->op)->name, n->id, s->g->name);
    }
}

static int root_of(const MapBuild *m, const Node *n)
{
    for (int i = 0; i < m->u->roots.len; i++)
        if (m->u->roots.at[i]->node == n && m->u->roots.at[i]->kind != ROOT_COPY)
            return i;
    return -1;
}

/* Another root of this kernel: its value, when it is wanted where it is made. */
static int from_root(MapBuild *m, int i, const Form *at)
{
    Coords c;
    Root *r = m->u->roots.at[i];
    if (r->kind == ROOT_COLUMN || r->kind == ROOT_TOTAL || m->busy[i] || !map_root_coords(m, r, &c))
        return -1;
    Form own = coords_linear(m->f, &c);
    return form_equal(&own, at) ? value_of_root(m, i) : -1;
}

static int build(MapBuild *m, Scope *s, Node *n, const Coords *c, int guard)
{
    n = node_resolve(&s, n);
    Form at = coords_linear(m->f, c);
    for (int i = 0; i < m->keys.len; i++) {
        const Key *k = &m->keys.at[i];
        if (k->node == n && k->guard == guard && form_equal(&k->at, &at))
            return k->value;
    }
    const Info *x = &s->at[n->id];
    int root = x->maker && !x->copier && !x->free ? root_of(m, n) : -1, v;
    View view;
    if (root >= 0)
        return from_root(m, root, &at);
    if (!x->free && (x->copier || node_is_readable(s, n)) && place_view(s, n, &view))
        v = load(m, s, n, &view, c, guard);
    else
        v = compute(m, s, n, c, guard);
    if (v >= 0) {
        Key k = { n, at, guard, v };
        vec_push(m->f->attempt, &m->keys, k);
    }
    return v;
}

/* ---- roots ---------------------------------------------------------------------------------- */

/* Where the elements lie that root r, a reduction over the row, takes. */
static bool row_input(MapBuild *m, const Root *r, Coords *c)
{
    const Node *n = r->node;
    const Type *t = n->in[0]->type;
    int first = n->attr.axes[0], count = n->attr.n_axes;
    Form along = { 0 };
    if (!dim_is_one(r->row))
        along = form_axis(m->f, m->n_outer);
    *c = (Coords){ 0 };
    if (first + count == t->rank) { /* the last axes: the others stay together */
        *c = m->row;
        c->dim[c->rank] = r->row;
        c->at[c->rank++] = along;
        return true;
    }
    Coords kept;
    if (!coords_along(m->f, &m->row, n->type->rank, n->type->dim, m->size, &kept, &m->split)) {
        m->why->force = n->in[0];
        return false;
    }
    for (int k = 0; k <= kept.rank; k++) {
        if (k == first) {
            c->dim[c->rank] = r->row;
            c->at[c->rank++] = along;
        }
        if (k < kept.rank) {
            c->dim[c->rank] = kept.dim[k];
            c->at[c->rank++] = kept.at[k];
        }
    }
    return true;
}

int value_of_root(MapBuild *m, int i)
{
    Root *r = m->u->roots.at[i];
    Node *n = r->node;
    Scope *s = m->s;
    Coords c;
    if (m->value[i] >= 0)
        return m->value[i];
    m->busy[i] = true;
    int v = -1;
    if (r->kind == ROOT_ROW) {
        bool place = n->op == OP_ARGMAX || n->op == OP_ARGMIN;
        if (row_input(m, r, &c))
            v = m->has_row || !place ? build(m, s, n->in[0], &c, -1) : value_const(m, DT_I32, 0);
        if (v >= 0 && m->has_row) /* a row of one element is its own sum */
            v = value_add(m, (Value){ .kind = VAL_REDUCE,
                                      .op = n->op,
                                      .dtype = n->type->dtype,
                                      .n_in = 1,
                                      .in = { v },
                                      .node = n,
                                      .name = value_name(s, n) });
    } else if (r->kind == ROOT_COLUMN) {
        v = build(m, s, n->in[0], &m->elem, -1);
    } else if (r->kind == ROOT_TOTAL) {
        bool elem = !m->has_row || !dim_same(r->outer, dim_product(m->f, m->n_outer, m->size));
        v = build(m, s, n->in[0], elem ? &m->elem : &m->row, -1);
    } else if (map_root_coords(m, r, &c)) {
        View view;
        Info *x = &s->at[n->id];
        Root *copier = x->copier;
        if (copier == r)
            x->copier = NULL; /* the copy itself reads the original */
        bool lies = r->kind == ROOT_COPY && place_view(s, n, &view);
        if (lies && (!node_is_view(n) || x->has_view || x->copier))
            v = load(m, s, n, &view, &c, -1);
        else
            v = compute(m, s, n, &c, -1);
        x->copier = copier;
    }
    m->busy[i] = false;
    m->value[i] = v;
    return v;
}
