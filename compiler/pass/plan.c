/* plan.c -- places the arena buffers of a routine.
 *
 * In: buffers with their lives (order.c). Out: `over` (in place), `below`, offsets and bytes at the
 * training dims, the arena's size and the bound it is measured against: the most bytes that are
 * alive at once (a place counts once, whoever shares it).
 *
 * Placement is chosen at the training dims: buffers are taken in several orders (by size, by size
 * times life, by first and last use), each put into the lowest gap among those that live at the
 * same time; the smallest arena wins. Where it is larger than the bound, the place that ends
 * highest is moved to the front of the order, again and again. Offsets must hold for all dims, so
 * they are formulas: a buffer lies above the end of every simultaneously living buffer that the
 * chosen placement put below it,
 *     offset(x) = max over y in below(x) of offset(y) + bytes(y),
 * and `below` keeps only those that no other member implies.
 */
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "pass/kernel.h"

#define WORTH_SHARING 1.03 /* bytes of a shared plan over those that are alive at once */

typedef struct {
    Buffer *root; /* stands for all that share its place */
    int first, last;
    int64_t bytes, offset;
    bool placed;
} Place;

typedef struct {
    Context *cx;
    Dims *dims;
    const KernelProgram *kp;
    Routine *r;
    int64_t *values; /* of the symbols, at the training dims */
    Place *places;   /* one per root */
    int n_places;
    int *place_of;    /* buffer id -> place, -1 = none */
    int64_t live;     /* the most bytes that are alive at once */
    const bool *low;  /* by id of a root: it is to lie as low as can be; NULL = no wish */
    int64_t low_live; /* the most bytes of these that are alive at once */
} Plan;

/* ---- in place -------------------------------------------------------------------------------- */

static bool same_dim(const Dim *a, const Dim *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return dim_same(a, b);
}

static bool same_element(const Kernel *k, const Access *a, const Access *b)
{
    if (a->index >= 0 || b->index >= 0 || a->guard >= 0 || b->guard >= 0)
        return false;
    if (!same_dim(a->offset, b->offset))
        return false;
    for (int i = 0; i < k->n_axes; i++)
        if (!same_dim(a->stride[i], b->stride[i]))
            return false;
    return true;
}

/* May the store through argument `out` overwrite what argument `in` holds? Each element must be
   read no later than it is written, by the same index. */
static bool kernel_overwrites(const Kernel *k, int in, int out)
{
    const Effect *store = NULL;
    if (k->kind != KERNEL_MAP || k->args.at[in].written || k->args.at[out].read
        || k->args.at[in].dtype != k->args.at[out].dtype)
        return false;
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *e = &k->effects.at[i];
        if (e->kind != EFFECT_STORE)
            return false;
        if (e->access.arg == out) {
            if (store != NULL || e->add != ADD_NEVER)
                return false;
            store = e;
        }
    }
    if (store == NULL || k->values.at[store->value].level != LEVEL_ELEM)
        return false;
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind != VAL_LOAD || v->access.arg != in)
            continue;
        if (!same_element(k, &v->access, &store->access))
            return false;
    }
    for (int i = 0; i < k->effects.len; i++) /* a later phase may compute a load again */
        if (k->effects.at[i].phase > store->phase)
            return false;
    return store->phase == k->n_phases - 1;
}

static bool one_use(const Step *s, const Buffer *b)
{
    int n = 0;
    for (int a = 0; a < s->kernel->args.len; a++)
        n += s->operands[a].buffer == b;
    return n == 1;
}

static bool plain(const Operand *o)
{
    int64_t zero = 0;
    if (o->offset != NULL && !(dim_value(o->offset, &zero) && zero == 0))
        return false;
    for (int d = 0; d < DEPTH_MAX; d++)
        if (o->loop_stride[d] != NULL)
            return false;
    return true;
}

/* Where step s begins to need its result y: at the product whose epilogue may write it. */
static int needed_from(const Step *s, const Buffer *y)
{
    const bool early = s->product != NULL && s->product->epilogue->to.buffer == y;
    return early ? s->product->position : s->position;
}

/* What such an epilogue writes may lie in place of the product's result alone: it reads others. */
static bool may_replace(const Step *s, const Buffer *x, const Buffer *y)
{
    return needed_from(s, y) == s->position || x == s->product->operands[0].buffer;
}

static void find_in_place(Plan *p, const Steps *steps, bool *taken)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL) {
            find_in_place(p, &s->body, taken);
            continue;
        }
        Kernel *k = s->kernel;
        for (int out = 0; out < k->args.len; out++) {
            Buffer *y = s->operands[out].buffer;
            if (!k->args.at[out].written || y->kind != BUF_ARENA || y->over != NULL
                || y->first != needed_from(s, y) || !one_use(s, y) || !plain(&s->operands[out]))
                continue;
            for (int in = 0; in < k->args.len; in++) {
                Buffer *x = s->operands[in].buffer;
                if (in == out || x->kind != BUF_ARENA || taken[x->id] || x->last != s->position
                    || x->first == x->last || !one_use(s, x) || !plain(&s->operands[in])
                    || x->dtype != y->dtype || !may_replace(s, x, y)
                    || !dim_same(type_elems(p->dims, x->type), type_elems(p->dims, y->type))
                    || !kernel_overwrites(k, in, out))
                    continue;
                y->over = x;
                taken[x->id] = true;
                k->args.at[in].exclusive = k->args.at[out].exclusive = false;
                break;
            }
        }
    }
}

/* ---- placement ------------------------------------------------------------------------------- */

static bool together(const Place *a, const Place *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int64_t place_all(Plan *p, Place *const *order)
{
    int64_t top = 0;
    Place **low = NEW_ARRAY(p->cx->scratch, Place *, p->n_places + 1); /* placed, by offset */
    int n_low = 0;
    for (int i = 0; i < p->n_places; i++) {
        Place *x = order[i];
        int64_t at = 0;
        for (int j = 0; j < n_low; j++) { /* the lowest gap */
            const Place *y = low[j];
            if (!together(x, y) || y->offset + y->bytes <= at)
                continue;
            if (y->offset >= at + x->bytes)
                break;
            at = y->offset + y->bytes;
        }
        x->offset = at;
        top = at + x->bytes > top ? at + x->bytes : top;
        int j = n_low++;
        for (; j > 0 && low[j - 1]->offset > at; j--)
            low[j] = low[j - 1];
        low[j] = x;
    }
    return top;
}

static int by_size(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->root->id - y->root->id;
}

static int by_area(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    const double u = (double)x->bytes * (x->last - x->first + 1);
    const double v = (double)y->bytes * (y->last - y->first + 1);
    if (u < v || u > v)
        return u > v ? -1 : 1;
    return x->root->id - y->root->id;
}

static int by_life(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    const int u = x->last - x->first, v = y->last - y->first;
    if (u != v)
        return u > v ? -1 : 1;
    return by_size(a, b);
}

static int by_first(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    return x->first != y->first ? x->first - y->first : by_size(a, b);
}

static int by_last(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    return x->last != y->last ? y->last - x->last : by_size(a, b);
}

typedef int (*Compare)(const void *, const void *);
static const Compare compare[] = { by_size, by_area, by_life, by_first, by_last };
enum { N_ORDERS = sizeof compare / sizeof *compare };

/* The places in one of the orders, those of `low` before all others. */
static Place **make_order(Plan *p, int k)
{
    Place **order = NEW_ARRAY(p->cx->scratch, Place *, p->n_places + 1);
    int n = 0;
    for (int pass = p->low != NULL ? 0 : 1; pass < 2; pass++) {
        const int from = n;
        for (int i = 0; i < p->n_places; i++)
            if (p->low == NULL || p->low[p->places[i].root->id] == (pass == 0))
                order[n++] = &p->places[i];
        qsort(order + from, (size_t)(n - from), sizeof *order, compare[k]);
    }
    return order;
}

/* Where the places of `low` end. */
static int64_t low_end(const Plan *p)
{
    int64_t end = 0;
    for (int i = 0; i < p->n_places; i++) {
        const Place *x = &p->places[i];
        if (p->low[x->root->id] && x->offset + x->bytes > end)
            end = x->offset + x->bytes;
    }
    return end;
}

/* How far a placement is from what is alive at once: of all, and of `low`; 1 is the best. */
static double place_cost(Plan *p, Place *const *order)
{
    const double all = (double)place_all(p, order);
    const double cost = p->live > 0 ? all / (double)p->live : 1;
    const bool low = p->low != NULL && p->low_live > 0;
    const double part = low ? (double)low_end(p) / (double)p->low_live : 1;
    return cost > part ? cost : part;
}

/* The place that ends highest goes to the front of the order, to lie lower next time; of those that
   end there, the last in the order. */
static void move_highest(Plan *p, Place **order)
{
    int found = 0;
    for (int i = 0; i < p->n_places; i++)
        if (order[i]->offset + order[i]->bytes >= order[found]->offset + order[found]->bytes)
            found = i;
    Place *const x = order[found];
    for (int i = found; i > 0; i--)
        order[i] = order[i - 1];
    order[0] = x;
}

enum { MOVES = 400, MOVES_WORK = 20000000 }; /* at most; and pairs of places looked at for it */

/* Tries the orders, then changes of the best one as long as memory is wasted. */
static double choose_placement(Plan *p)
{
    const size_t bytes = (size_t)p->n_places * sizeof(Place *);
    Place **best = make_order(p, 0), **order;
    double best_cost = place_cost(p, best);
    for (int k = 1; k < N_ORDERS; k++) {
        const double cost = place_cost(p, order = make_order(p, k));
        if (cost < best_cost) {
            best_cost = cost;
            best = order;
        }
    }
    order = NEW_ARRAY(p->cx->scratch, Place *, p->n_places + 1);
    memcpy(order, best, bytes);
    (void)place_cost(p, order);
    int moves = MOVES_WORK / (p->n_places * p->n_places + 1);
    moves = moves < MOVES ? moves : MOVES;
    for (int i = 0; i < moves && best_cost > 1; i++) {
        move_highest(p, order);
        const double cost = place_cost(p, order);
        if (cost < best_cost) {
            best_cost = cost;
            memcpy(best, order, bytes);
        }
    }
    return place_cost(p, best);
}

static int by_offset(const void *a, const void *b)
{
    const Place *x = *(Place *const *)a, *y = *(Place *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->root->id - y->root->id;
}

/* below(x): the simultaneously living places under x that no other member already lies above. */
static void link_below(Plan *p)
{
    const int n = p->n_places;
    Place **order = NEW_ARRAY(p->cx->scratch, Place *, n + 1);
    bool *under = NEW_ARRAY(p->cx->scratch, bool, (size_t)n *(size_t)n + 1); /* y under x */
    for (int i = 0; i < n; i++)
        order[i] = &p->places[i];
    qsort(order, (size_t)n, sizeof *order, by_offset);
    for (int i = 0; i < n; i++) {
        Place *x = order[i];
        int64_t offset = 0;
        for (int j = i - 1; j >= 0; j--) { /* nearest first, so that they imply the others */
            const Place *y = order[j];
            if (!together(x, y) || x->bytes == 0 || y->bytes == 0 || under[i * n + j])
                continue;
            vec_push(p->cx->arena, &x->root->below, y->root);
            under[i * n + j] = true;
            for (int k = 0; k < j; k++)
                under[i * n + k] = under[i * n + k] || under[j * n + k];
            const int64_t end = y->root->offset + y->bytes;
            offset = end > offset ? end : offset;
        }
        x->root->offset = offset;
    }
}

/* ---- the pass -------------------------------------------------------------------------------- */

int64_t plan_round(const KernelProgram *kp, int64_t bytes)
{
    return (bytes + kp->align - 1) / kp->align * kp->align;
}

bool buffer_is_placed(const Buffer *b) { return b->kind == BUF_ARENA && b->first >= 0; }

Buffer *buffer_root(Buffer *b)
{
    while (b->over != NULL)
        b = b->over;
    return b;
}

static void make_places(Plan *p)
{
    Routine *r = p->r;
    p->places = NEW_ARRAY(p->cx->scratch, Place, r->buffers.len + 1);
    p->place_of = NEW_ARRAY(p->cx->scratch, int, r->buffers.len + 1);
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        p->place_of[i] = -1;
        if (b->kind != BUF_ARENA || b->first < 0)
            continue;
        const int64_t elems = dim_eval(type_elems(p->dims, b->type), p->values);
        if (elems < 0 || elems > (int64_t)1 << 48) { /* so that no sum of them overflows */
            Diag *d = diag_error(p->cx, b->node != NULL ? b->node->span : (Span){ 0, 0, 0 },
                                 "the size of %s overflows at the training dims", b->name);
            diag_hint(d, "its type is %s", type_text(p->cx, b->type));
            continue;
        }
        b->bytes = plan_round(p->kp, elems * dtype_bytes(b->dtype));
        Buffer *root = buffer_root(b);
        if (root == b) {
            p->places[p->n_places] = (Place){ b, b->first, b->last, b->bytes, 0, false };
            p->place_of[i] = p->n_places++;
        }
    }
    for (int i = 0; i < r->buffers.len; i++) { /* lives of those in place */
        Buffer *b = r->buffers.at[i];
        const int at = b->over != NULL ? p->place_of[buffer_root(b)->id] : -1;
        if (at < 0)
            continue;
        Place *x = &p->places[at];
        x->first = b->first < x->first ? b->first : x->first;
        x->last = b->last > x->last ? b->last : x->last;
    }
}

/* The number of the step at a position; of the first one inside, where a loop starts there. */
static int number_at(const Steps *steps, int position)
{
    int found = 0;
    for (int i = 0; i < steps->len && found == 0; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL)
            found = number_at(&s->body, position);
        else if (s->position >= position)
            found = s->number;
    }
    return found;
}

/* The most bytes alive at once; that changes only where a life starts. */
static void find_peak(Plan *p)
{
    for (int i = 0; i < p->n_places; i++) {
        const int at = p->places[i].first;
        int64_t live = 0;
        for (int j = 0; j < p->n_places; j++)
            if (p->places[j].first <= at && p->places[j].last >= at)
                live += p->places[j].bytes;
        if (live > p->live) {
            p->live = live;
            p->r->peak_step = number_at(&p->r->steps, at);
        }
    }
    p->r->live_bytes = p->live;
}

static void measure(Routine *r)
{
    r->arena_bytes = 0;
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        if (b->over != NULL)
            b->offset = buffer_root(b)->offset;
        if (b->kind == BUF_ARENA && b->offset + b->bytes > r->arena_bytes)
            r->arena_bytes = b->offset + b->bytes;
    }
}

static Plan open_plan(KernelProgram *kp, Routine *r)
{
    Program *program = kp->program;
    Plan p = { .cx = program->cx, .dims = program->dims, .kp = kp, .r = r };
    p.values = program_training_dims(program);
    return p;
}

void pass_plan(KernelProgram *kp, Routine *r, bool reuse)
{
    Plan p = open_plan(kp, r);
    if (reuse)
        find_in_place(&p, &r->steps, NEW_ARRAY(p.cx->scratch, bool, r->buffers.len + 1));
    make_places(&p);
    find_peak(&p);
    r->reuse = reuse;
    if (!reuse) /* everything lives for ever: no place is shared */
        for (int i = 0; i < p.n_places; i++) {
            p.places[i].first = 0;
            p.places[i].last = INT32_MAX - 1; /* so that a life has a length */
        }
    choose_placement(&p);
    link_below(&p);
    measure(r);
}

bool plan_lower(KernelProgram *kp, Routine *r, const bool *low, int64_t low_live)
{
    Plan p = open_plan(kp, r);
    bool *roots = NEW_ARRAY(p.cx->scratch, bool, r->buffers.len + 1);
    for (int i = 0; i < r->buffers.len; i++)
        roots[buffer_root(r->buffers.at[i])->id] |= low[i];
    p.low = roots;
    p.low_live = low_live;
    make_places(&p);
    find_peak(&p);
    if (!r->reuse || choose_placement(&p) > WORTH_SHARING)
        return false;
    for (int i = 0; i < r->buffers.len; i++)
        r->buffers.at[i]->below.len = 0;
    link_below(&p);
    measure(r);
    return true;
}
