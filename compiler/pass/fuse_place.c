/* fuse_place.c -- where values are stored.
 *
 * In: which values are stored, and the sinks. Out: roots and calls with their destinations, and a
 * view for each value that lies somewhere. The idea: places are handed from users to makers, last
 * node first. A gradient, an output, a slice of a concatenation, the next state of a loop is
 * written where it belongs by whoever makes it; a reshape or transpose hands the place on to its
 * input.
 * Who cannot take a place keeps its own, and a copy follows.
 */
#include "pass/fuse.h"

#include <string.h>

/* ---- buffers -------------------------------------------------------------------------------- */

static Buffer *buffer_make(Fuser *f, BufKind kind, int index, const char *name, const Type *t,
                           const Node *n)
{
    Buffer *b = NEW(f->cx->arena, Buffer);
    b->id = -1;
    b->kind = kind;
    b->index = index;
    b->name = name;
    b->dtype = t->dtype;
    b->type = t;
    b->node = n;
    return b;
}

Buffer *buffer_new(Fuser *f, const char *name, const Type *t, const Node *n)
{
    return buffer_make(f, BUF_ARENA, 0, name, t, n);
}

void buffer_use(Fuser *f, Buffer *b)
{
    if (b->id >= 0)
        return;
    const char *name = b->name;
    size_t len = strlen(name);
    bool lettered = len > 2 && name[len - 2] == '_' && name[len - 1] == 'a';
    for (int i = 2; map_get(f->names, name); i++)
        if (lettered && i <= 26)
            name = intern_printf(f->cx, "%.*s%c", (int)len - 1, b->name, 'a' + i - 1);
        else
            name = intern_printf(f->cx, "%s_%d", b->name, i);
    b->name = name;
    map_set(f->names, name, b);
    b->id = f->r->buffers.len;
    vec_push(f->cx->arena, &f->r->buffers, b);
}

static Buffer *outside(Fuser *f, Buffer **table, BufKind kind, int index, const char *name,
                       const Type *t, const Node *n)
{
    if (!table[index])
        table[index] = buffer_make(f, kind, index, name, t, n);
    return table[index];
}

/* A parameter or its gradient: the axes of its stacks come first, each with the group's stride. */
static View param_view(Fuser *f, BufKind kind, int index, const Node *n)
{
    const Param *p = &f->p->params.at[index];
    bool grad = kind == BUF_GRAD;
    const char *name = grad ? intern_printf(f->cx, "d_%s", p->name) : p->name;
    Buffer *b = outside(f, grad ? f->grad : f->param, kind, index, intern(f->cx, name), p->stacked,
                        n);
    View v = view_dense(f, b, p->stacked);
    int axis = p->stacked->rank - p->type->rank - 1;
    for (int g = p->group; g >= 0 && axis >= 0; g = f->p->groups.at[g].parent)
        v.stride[axis--] = dim_sym(f->ds, f->p->groups.at[g].stride_sym);
    return v;
}

static View scalar_view(Fuser *f, BufKind kind, int index, const Node *n)
{
    bool sum = kind == BUF_SUM;
    const Type *t = type_of(f->ds, DT_F64, 0, NULL);
    const char *name = intern_printf(f->cx, "%s_%s", sum ? "sum" : "count",
                                     f->p->means.at[index].name);
    return view_dense(f, outside(f, sum ? f->sum : f->count, kind, index, name, t, n), t);
}

/* ---- values that lie somewhere from the start ------------------------------------------------ */

/* What one iteration sees of a stacked value. */
View view_of_iteration(Fuser *f, const Loop *l, const View *stack, int depth)
{
    View v = *stack;
    if (l->part) {
        v.dim[0] = dim_sym(f->ds, l->part);
        v.loop[depth] = dim_plus(f, v.loop[depth], dim_times(f, stack->stride[0], l->part->step));
        return v;
    }
    v.rank--;
    for (int k = 0; k < v.rank; k++) {
        v.dim[k] = stack->dim[k + 1];
        v.stride[k] = stack->stride[k + 1];
    }
    v.loop[depth] = dim_plus(f, v.loop[depth], stack->stride[0]);
    return v;
}

static void place_arg(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    Fuser *f = s->f;
    int i = n->attr.index;
    if (!s->outer) {
        const char *name = n->name ? n->name : intern_printf(f->cx, "in%d", i);
        x->view = view_dense(f, outside(f, f->input, BUF_INPUT, i, name, n->type, n), n->type);
    } else if (n->attr.arg == ARG_CARRY) {
        x->view = s->plan->carry[i].arg;
    } else {
        View v;
        if (!place_view(s->outer, s->node->in[i], &v))
            bug("input %d of loop %s lies nowhere", i, s->loop->name);
        x->view = n->attr.arg == ARG_SLICE ? view_of_iteration(f, s->loop, &v, s->depth - 1) : v;
    }
    x->has_view = true;
}

/* The 16-bit copy lies as the parameter does, in a buffer of its own; a program without one reads
   the parameter. */
static void place_copy16(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    Fuser *f = s->f;
    if (!place_view(s, n->in[0], &x->view) || x->view.buffer->kind != BUF_PARAM)
        bug("a copy of what is no parameter");
    x->has_view = true;
    if (f->p->narrow != DT_BF16 && f->p->narrow != DT_F16)
        return; /* there is none */
    const Buffer *of = x->view.buffer;
    const Type *t = type_of(f->ds, f->p->narrow, of->type->rank, of->type->dim);
    x->view.buffer = outside(f, f->param16, BUF_PARAM16, of->index, of->name, t, n);
}

static void place_leaf(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    Fuser *f = s->f;
    if (n->op == OP_PARAM) {
        x->view = param_view(f, BUF_PARAM, n->attr.index, n);
        x->has_view = true;
    } else if (n->op == OP_INPUT) {
        const Input *in = &f->p->inputs.at[n->attr.index];
        Buffer *b = outside(f, f->input, BUF_INPUT, n->attr.index, in->name, in->type, n);
        x->view = view_dense(f, b, in->type);
        x->has_view = true;
    } else if (n->op == OP_COPY16) {
        place_copy16(s, n);
    } else if (n->op == OP_ARG && n->attr.arg != ARG_ITER) {
        bool shared = s->outer && n->attr.arg == ARG_SHARED;
        if (!shared || !s->outer->at[s->node->in[n->attr.index]->id].free)
            place_arg(s, n);
    }
}

void place_leaves(Scope *s)
{
    for (int id = 0; id < s->g->nodes.len; id++) {
        Node *n = s->g->nodes.at[id];
        s->at[id].token = -1;
        if (s->at[id].live)
            place_leaf(s, n);
        if (s->at[id].has_view)
            s->at[id].token = s->n_tokens++;
    }
}

bool place_view(Scope *s, Node *n, View *out)
{
    if (!s->at[n->id].has_view)
        n = node_resolve(&s, n);
    Info *x = &s->at[n->id];
    if (x->copier)
        *out = x->copier->dests.at[0].view;
    else if (x->has_view)
        *out = x->view;
    else if (node_is_view(n) && !x->free) {
        View v;
        return place_view(s, n->in[0], &v) && view_move(s->f, &v, n, out);
    } else
        return false;
    return true;
}

/* ---- roots and destinations ------------------------------------------------------------------ */

Root *root_new(Scope *s, Node *n, RootKind kind)
{
    Fuser *f = s->f;
    Root *r = NEW(f->cx->scratch, Root);
    r->node = n;
    r->kind = kind;
    r->token = s->n_tokens++;
    r->size = type_elems(f->ds, n->type);
    r->outer = r->size;
    if (kind == ROOT_ROW || kind == ROOT_COLUMN || kind == ROOT_TOTAL) {
        const Type *t = n->in[0]->type;
        const Attr *a = &n->attr;
        const Dim *reduced = dim_product(f, a->n_axes, t->dim + a->axes[0]);
        if (kind == ROOT_ROW)
            r->row = reduced;
        else if (kind == ROOT_COLUMN)
            r->row = r->size;
        if (kind == ROOT_COLUMN)
            r->outer = reduced;
        if (kind == ROOT_TOTAL)
            r->outer = type_elems(f->ds, t);
    }
    vec_push(f->cx->scratch, &s->roots, r);
    return r;
}

static void give(Scope *s, Node *n, const Dest *d)
{
    vec_push(s->f->cx->scratch, &s->at[n->id].dests, *d);
}

static Dest own_dest(Scope *s, Node *n)
{
    const Info *x = &s->at[n->id];
    const Node *shown = n; /* the most axes say the most */
    while (shown->op == OP_RESHAPE && shown->in[0]->type->rank > shown->type->rank)
        shown = shown->in[0];
    const Type *type = x->shape && x->shape->rank >= shown->type->rank ? x->shape : shown->type;
    Buffer *b = buffer_new(s->f, text_buffer_name(s, n), narrow_storage(s->f, n, type), n);
    return (Dest){ .view = view_dense(s->f, b, n->type), .lazy = true };
}

static bool view_equal(const View *a, const View *b)
{
    bool same = view_same_place(a, b) && dim_equal(a->offset, b->offset) && a->rank == b->rank;
    for (int k = 0; same && k < a->rank; k++)
        same = dim_is_one(a->dim[k]) || dim_equal(a->stride[k], b->stride[k]);
    return same;
}

/* A kernel of its own will read n: it must be somewhere. */
static void add_reader(Scope *s, Node *n)
{
    s->at[n->id].readers++;
    if (node_is_view(n))
        add_reader(s, n->in[0]);
}

/* n, which is stored or computed elsewhere, is written to d too. */
static Root *copy_to(Scope *s, Node *n, const Dest *d)
{
    const Info *x = &s->at[n->id];
    View v;
    if (!x->free && d->how == HOW_REPLACE && place_view(s, n, &v) && view_equal(&v, &d->view))
        return NULL;
    Root *r = root_new(s, n, x->free ? ROOT_POINT : ROOT_COPY);
    vec_push(s->f->cx->scratch, &r->dests, *d);
    r->dests.at[0].lazy = false;
    add_reader(s, n);
    return r;
}

/* Who reads `of` waits for r, because views of it may lie there. */
static void add_piece(Scope *s, Node *of, Root *r)
{
    if (r && of && r->dests.at[0].how == HOW_REPLACE)
        vec_push(s->f->cx->scratch, &s->at[of->id].pieces, r);
}

static void set_view(Info *x, const View *v)
{
    x->view = *v;
    x->has_view = true;
}

static int first_plain(const Info *x)
{
    for (int i = 0; i < x->dests.len; i++)
        if (x->dests.at[i].how == HOW_REPLACE)
            return i;
    return -1;
}

/* ---- one node ------------------------------------------------------------------------------- */

static bool is_leaf(const Scope *s, const Node *n)
{
    return n->op == OP_PARAM || n->op == OP_COPY16 || n->op == OP_INPUT || n->op == OP_ARG
           || s->at[n->id].free;
}

/* A kernel adds to one place in one order only. */
static bool clashes(const Dests *taken, const Dest *d)
{
    for (int i = 0; i < taken->len; i++)
        if (taken->at[i].view.buffer == d->view.buffer && d->how != HOW_REPLACE && d->how != HOW_ADD
            && !view_equal(&taken->at[i].view, &d->view))
            return true;
    return false;
}

static void place_as_root(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    Root *r = root_new(s, n, root_kind(n));
    x->maker = r;
    Dests given = x->dests;
    for (int i = 0; i < given.len; i++) {
        View flat;
        const Type *line = type_of(s->f->ds, n->type->dtype, 1, &r->size);
        bool broken = r->kind == ROOT_COLUMN && !view_reshape(s->f, &given.at[i].view, line, &flat);
        if (broken || clashes(&r->dests, &given.at[i])) {
            add_piece(s, n, copy_to(s, n, &given.at[i]));
            continue;
        }
        vec_push(s->f->cx->scratch, &r->dests, given.at[i]);
        if (given.at[i].how == HOW_REPLACE && !x->has_view)
            set_view(x, &given.at[i].view);
    }
    if (!x->has_view) {
        Dest own = own_dest(s, n);
        vec_push(s->f->cx->scratch, &r->dests, own);
        set_view(x, &own.view);
    }
}

/* Where n will lie because of a place that was given already. */
static bool given_view(Scope *s, Node *n, View *v)
{
    const Info *x = &s->at[n->id];
    View below;
    int i = first_plain(x);
    if (i >= 0)
        *v = x->dests.at[i].view;
    return i >= 0
           || (node_is_view(n) && !x->root && !x->free && given_view(s, n->in[0], &below)
               && view_move(s->f, &below, n, v));
}

/* A view hands its places to its input where they can be handed on. */
static void place_moved(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    bool moves = (n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || node_is_handed(n))
                 && !is_leaf(s, n->in[0]);
    View given;
    if (x->own && !given_view(s, n, &given)) {
        Dest own = own_dest(s, n);
        give(s, n, &own);
    }
    for (int i = 0; i < x->dests.len; i++) {
        const Dest *d = &x->dests.at[i];
        Dest back = *d;
        bool plain = d->how == HOW_REPLACE;
        if (moves && view_move_back(s->f, &d->view, n, &back.view)) {
            give(s, n->in[0], &back);
        } else {
            Root *r = root_new(s, n, ROOT_POINT);
            vec_push(s->f->cx->scratch, &r->dests, *d);
            r->dests.at[0].lazy = false;
            add_reader(s, n->in[0]);
            add_piece(s, n, r);
        }
        if (plain && !x->has_view)
            set_view(x, &d->view);
    }
}

static void place_pieces(Scope *s, Node *n, const Dest *d)
{
    int axis = n->attr.axes[0];
    const Dim *from = NULL;
    for (int i = 0; i < n->n_in; i++) {
        Node *in = n->in[i];
        Dest part = *d;
        for (int k = 0; k < in->type->rank; k++)
            part.view.dim[k] = in->type->dim[k];
        part.view.base = dim_plus(s->f, part.view.base,
                                  dim_times(s->f, from, d->view.stride[axis]));
        part.lazy = false;
        if (d->how != HOW_REPLACE)
            part.started = NEW(s->f->cx->arena, bool);
        if (is_leaf(s, in))
            add_piece(s, n, copy_to(s, in, &part));
        else
            give(s, in, &part);
        from = dim_plus(s->f, from, in->type->dim[axis]);
    }
}

static void place_concat(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    int plain = first_plain(x);
    bool alone = x->dests.len == 1 && x->readers == 0;
    if (plain < 0 && alone && x->dests.at[0].how == HOW_GRAD
        && s->f->contributions[x->dests.at[0].view.buffer->index] == 1)
        plain = 0;
    Dest d = plain >= 0 ? x->dests.at[plain] : own_dest(s, n);
    set_view(x, &d.view);
    place_pieces(s, n, &d);
    for (int i = 0; i < x->dests.len; i++)
        if (i != plain)
            add_piece(s, n, copy_to(s, n, &x->dests.at[i]));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static bool unit_stride(const View *v, int k)
{
    return dim_is_one(v->dim[k]) || dim_is_one(v->stride[k]);
}

/* Can the call that makes n write to d? */
static bool call_accepts(Scope *s, const Node *n, const Dest *d)
{
    const View *v = &d->view;
    const Node *call = n->op == OP_RESULT ? n->in[0] : n;
    View merged;
    int r = v->rank;
    if (narrow_is(s->f, n) && v->buffer->dtype != s->f->p->narrow)
        return false; /* rounding is by the format of the place */
    if (call->op == OP_SCATTER) {
        const Dim *dim[2] = { n->type->dim[0], dim_product(s->f, r - 1, n->type->dim + 1) };
        const Type *t = type_of(s->f->ds, n->type->dtype, 2, dim);
        return d->how != HOW_ADD && view_reshape(s->f, v, t, &merged) && unit_stride(&merged, 1)
               && (dim_is_one(dim[0]) || dim_equal(merged.stride[0], dim[1]));
    }
    if (call->op == OP_MATMUL)
        return d->how != HOW_ADD && r <= 4 && (unit_stride(v, r - 1) || unit_stride(v, r - 2));
    if (s->at[n->id].sum) {
        const Dim *dim[2] = { dim_product(s->f, r - 1, v->dim), v->dim[r - 1] };
        const Type *t = type_of(s->f->ds, n->type->dtype, 2, dim);
        bool how = s->at[n->id].sum->bias ? d->how == HOW_REPLACE : d->how != HOW_ADD;
        return how && unit_stride(v, r - 1) && view_reshape(s->f, v, t, &merged);
    }
    bool lse = call->op == OP_ATTENTION && n->attr.index == 1;
    if (d->how != HOW_REPLACE || r > 4)
        return false;
    if (!lse)
        return unit_stride(v, r - 1);
    const Dim *line[1] = { type_elems(s->f->ds, n->type) };
    return view_reshape(s->f, v, type_of(s->f->ds, n->type->dtype, 1, line), &merged)
           && unit_stride(&merged, 0);
}

static void place_call(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    bool alone = x->dests.len == 1 && x->readers == 0;
    int chosen = -1;
    for (int i = 0; i < x->dests.len && chosen < 0; i++)
        if ((x->dests.at[i].how == HOW_REPLACE || alone) && call_accepts(s, n, &x->dests.at[i]))
            chosen = i;
    Dests given = x->dests;
    Dest d = chosen >= 0 ? given.at[chosen] : own_dest(s, n);
    set_view(x, &d.view);
    x->dests = (Dests){ 0 };
    give(s, n, &d);
    for (int i = 0; i < given.len; i++)
        if (i != chosen)
            add_piece(s, n, copy_to(s, n, &given.at[i]));
}

/* ---- the scope ------------------------------------------------------------------------------ */

static void place_node(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    if (x->folded)
        return;
    if (s->copy[n->id] && !x->free) {
        Dest own = own_dest(s, n);
        Root *r = root_new(s, n, ROOT_COPY);
        vec_push(s->f->cx->scratch, &r->dests, own);
        x->copier = r;
        add_reader(s, n);
    }
    if (is_leaf(s, n) && x->root) {
        Root *r = root_new(s, n, ROOT_POINT);
        Dest own = own_dest(s, n);
        vec_push(s->f->cx->scratch, &r->dests, own);
        set_view(x, &own.view);
        x->maker = r;
    }
    if (is_leaf(s, n)) {
        for (int i = 0; i < x->dests.len; i++)
            add_piece(s, n, copy_to(s, n, &x->dests.at[i]));
    } else if (n->op == OP_LOOP) {
        loop_plan(s, n);
    } else if (n->op == OP_RESULT && n->in[0]->op == OP_LOOP) {
        return; /* with its loop */
    } else if (n->op == OP_CONCAT) {
        place_concat(s, n);
    } else if (x->sum || n->op == OP_RESULT || n->op == OP_MATMUL || n->op == OP_SCATTER) {
        place_call(s, n);
    } else if (x->root) {
        place_as_root(s, n);
    } else if (node_is_view(n)) {
        place_moved(s, n);
    } else if (x->dests.len) {
        bug("%s %%%d has a place and is not stored", op_row(n->op)->name, n->id);
    }
}

static void place_sink(Scope *s, const Sink *k)
{
    Fuser *f = s->f;
    Dest d = { .how = HOW_REPLACE };
    Node *n = k->node;
    switch (k->kind) {
    case SINK_SUM:
    case SINK_COUNT:
        d.view = scalar_view(f, k->kind == SINK_SUM ? BUF_SUM : BUF_COUNT, k->index, n);
        d.how = HOW_ADD;
        break;
    case SINK_GRAD:
        d.view = param_view(f, BUF_GRAD, k->index, n);
        d.how = HOW_GRAD;
        d.started = f->started[k->index];
        break;
    case SINK_OUTPUT:
        d.view = view_dense(f,
                            outside(f, f->output, BUF_OUTPUT, k->index,
                                    f->p->outputs.at[k->index].name, n->type, n),
                            n->type);
        break;
    case SINK_RESULT:
        if (s->outer) {
            loop_place_result(s, k->index, n);
            return;
        }
        d.view = view_dense(f,
                            outside(f, f->output, BUF_OUTPUT, f->p->outputs.len + k->index,
                                    intern_printf(f->cx, "out%d", k->index), n->type, n),
                            n->type);
        break;
    }
    give(s, n, &d);
}

void place_give(Scope *s, Node *n, const Dest *d) { give(s, n, d); }

Root *place_copy(Scope *s, Node *of, Node *n, const Dest *d)
{
    Root *r = copy_to(s, n, d);
    add_piece(s, of, r);
    return r;
}

void place_values(Scope *s)
{
    for (int i = 0; i < s->g->sinks.len; i++)
        place_sink(s, &s->g->sinks.at[i]);
    for (int id = s->g->nodes.len - 1; id >= 0; id--)
        if (s->at[id].live)
            place_node(s, s->g->nodes.at[id]);
}
