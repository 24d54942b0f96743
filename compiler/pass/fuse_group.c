/* fuse_group.c -- units: what a kernel, a call or a loop makes and reads; merging; order.
 *
 * In: roots and calls with their places. Out: units, each a step to be, in a valid order. At first
 * each root is a kernel of its own. Two kernels become one where one reads what the other makes, or
 * both read the same, their index spaces agree, no third unit stands between them, and fuse_map.c
 * can build the result; the pair that saves most traffic goes first.
 */
#include "pass/fuse.h"

#include <string.h>

/* ---- sets of tokens ------------------------------------------------------------------------- */

static Set set_new(Scope *s)
{
    Set r = { .n = (s->max_tokens + 63) / 64 };
    r.word = NEW_ARRAY(s->f->cx->scratch, uint64_t, r.n + 1);
    return r;
}

static void set_add(Set *a, int i)
{
    if (i >= 0)
        a->word[i / 64] |= (uint64_t)1 << (i % 64);
}

bool set_has(const Set *a, int i) { return i >= 0 && (a->word[i / 64] >> (i % 64) & 1); }

bool sets_meet(const Set *a, const Set *b)
{
    for (int i = 0; i < a->n; i++)
        if (a->word[i] & b->word[i])
            return true;
    return false;
}

static void set_join(Set *a, const Set *b)
{
    for (int i = 0; i < a->n; i++)
        a->word[i] |= b->word[i];
}

/* ---- who makes what, who reads what ---------------------------------------------------------- */

/* The tokens that must be made before n can be read; with copies, wherever it lies. */
static void add_makers_of(Scope *s, Node *n, bool copies, Set *to)
{
    const Info *x = &s->at[n->id];
    if (n->graph != s->g)
        return; /* made before the loop */
    for (int i = 0; i < x->pieces.len; i++) {
        const Root *r = x->pieces.at[i];
        if (copies || r->node != n || r->kind != ROOT_COPY)
            set_add(to, r->token);
    }
    if (x->copier)
        set_add(to, x->copier->token);
    else if (x->maker)
        set_add(to, x->maker->token);
    else if (x->unit)
        set_add(to, x->unit->token);
    else if (n->op == OP_RESULT)
        set_add(to, s->at[n->in[0]->id].unit->token);
    else if (x->token >= 0)
        set_add(to, x->token);
    else if (n->op == OP_CONCAT || node_is_view(n))
        for (int i = 0; i < n->n_in; i++)
            add_makers_of(s, n->in[i], true, to);
}

static void add_makers(Scope *s, Node *n, Set *to) { add_makers_of(s, n, true, to); }

/* Does this unit itself write where n is read? Copies of n do not count: they read it first. */
bool group_writes(Scope *s, const Unit *u, Node *n)
{
    Set set = s->work;
    for (int i = 0; i < set.n; i++)
        set.word[i] = 0;
    add_makers(s, n, &set);
    for (int i = 0; i < u->roots.len; i++) {
        const Root *r = u->roots.at[i];
        bool copy = r->kind == ROOT_COPY && r->node == n && r != s->at[n->id].copier;
        if (set_has(&set, r->token) && !copy)
            return true;
    }
    return false;
}

/* What is read to compute n from its inputs. */
static void add_reads(Scope *s, Node *n, Set *to)
{
    for (int i = 0; i < n->n_in; i++) {
        Scope *in_scope = s;
        Node *in = node_resolve(&in_scope, n->in[i]);
        bool table = n->op == OP_GATHER && i == 0;
        if (in_scope != s || (s->at[in->id].free && !table))
            continue;
        if (table || s->at[in->id].copier || node_is_readable(s, in))
            add_makers(s, in, to);
        else
            add_reads(s, in, to);
    }
}

static void add_call_reads(Scope *s, Node *n, Set *to)
{
    for (int i = 0; i < n->n_in; i++)
        add_makers(s, n->in[i], to);
}

/* A place that is a carried value's own is overwritten. */
static void add_overwrites(Scope *s, const View *v, Set *to)
{
    for (int k = 0; s->plan && k < s->loop->n_carry; k++)
        if (s->plan->carry[k].kind == CARRY_PLACE && s->plan->carry[k].arg.buffer == v->buffer
            && dim_equal(s->plan->carry[k].arg.base, v->base))
            set_add(to, s->at[s->g->args.at[k]->id].token);
}

/* ---- units ---------------------------------------------------------------------------------- */

static Unit *unit_new(Scope *s, UnitKind kind, Node *n)
{
    Unit *u = NEW(s->f->cx->scratch, Unit);
    u->kind = kind;
    u->node = n;
    u->id = s->units.len;
    u->token = -1;
    u->backward = n->backward || (s->node && s->node->backward);
    u->key = n->id;
    u->makes = set_new(s);
    u->reads = set_new(s);
    u->overwrites = set_new(s);
    vec_push(s->f->cx->scratch, &s->units, u);
    return u;
}

static void unit_of_root(Scope *s, Root *r)
{
    Unit *u = unit_new(s, UNIT_MAP, r->node);
    vec_push(s->f->cx->scratch, &u->roots, r);
    r->unit = u;
    set_add(&u->makes, r->token);
    if (r->kind == ROOT_COPY) {
        Root *copier = s->at[r->node->id].copier;
        if (r == copier)
            s->at[r->node->id].copier = NULL; /* the copy itself reads the original */
        View v;
        if (place_view(s, r->node, &v))
            add_makers_of(s, r->node, false, &u->reads);
        else
            add_reads(s, r->node, &u->reads); /* computed, to be copied */
        s->at[r->node->id].copier = copier;
    } else
        add_reads(s, r->node, &u->reads);
    for (int i = 0; i < r->dests.len; i++)
        add_overwrites(s, &r->dests.at[i].view, &u->overwrites);
}

static void unit_of_call(Scope *s, Unit *u)
{
    Node *n = u->node;
    const Products *sum = s->at[n->id].sum;
    set_add(&u->makes, u->token);
    for (int i = 0; i < s->at[n->id].dests.len; i++)
        add_overwrites(s, &s->at[n->id].dests.at[i].view, &u->overwrites);
    for (int id = n->id + 1; n->n_out > 1 && id < s->g->nodes.len; id++) {
        const Node *r = s->g->nodes.at[id];
        for (int i = 0; r->op == OP_RESULT && r->in[0] == n && i < s->at[id].dests.len; i++)
            add_overwrites(s, &s->at[id].dests.at[i].view, &u->overwrites);
    }
    if (sum) {
        for (int i = 0; i < sum->at.len; i++)
            add_call_reads(s, sum->at.at[i], &u->reads);
        if (sum->bias)
            add_makers(s, sum->bias, &u->reads);
    } else if (u->kind == UNIT_CALL) {
        add_call_reads(s, n, &u->reads);
    }
}

static void unit_of_loop(Scope *s, Unit *u)
{
    Node *n = u->node;
    const LoopPlan *p = s->at[n->id].loop;
    const Loop *l = n->attr.loop;
    u->holds = set_new(s);
    for (int i = 0; i < n->n_in; i++)
        if (!(i < l->n_carry && p->carry[i].kind == CARRY_SUM))
            add_makers(s, n->in[i], i < l->n_carry ? &u->reads : &u->holds);
    set_join(&u->reads, &u->holds);
    for (int i = 0; i < p->start.len; i++)
        set_add(&u->reads, p->start.at[i]->token);
    for (int k = 0; k < l->n_carry; k++)
        add_overwrites(s, &p->carry[k].last, &u->overwrites);
    for (int j = 0; j < l->n_stack; j++)
        add_overwrites(s, &p->stack[j].view, &u->overwrites);
}

void group_units(Scope *s)
{
    Graph *g = s->g;
    for (int id = 0; id < g->nodes.len; id++)
        s->max_tokens += s->at[id].live;
    s->max_tokens += s->n_tokens;
    s->work = set_new(s);
    for (int id = 0; id < g->nodes.len; id++) {
        Node *n = g->nodes.at[id];
        Info *x = &s->at[id];
        if (!x->live || x->folded || !(node_is_call(n) || x->sum))
            continue;
        x->unit = unit_new(s, n->op == OP_LOOP ? UNIT_LOOP : UNIT_CALL, n);
        x->unit->token = s->n_tokens++;
    }
    int calls = s->units.len;
    for (int i = 0; i < s->roots.len; i++)
        unit_of_root(s, s->roots.at[i]);
    s->seen = NEW_ARRAY(s->f->cx->scratch, bool, 2 * s->units.len + 1); /* merging adds some */
    for (int i = 0; i < calls; i++) {
        unit_of_call(s, s->units.at[i]);
        if (s->units.at[i]->kind == UNIT_LOOP)
            unit_of_loop(s, s->units.at[i]);
    }
}

bool root_is_read(const Scope *s, const Root *r)
{
    for (int i = 0; i < s->units.len; i++) {
        const Unit *u = s->units.at[i];
        if (!u->dead && u != r->unit && set_has(&u->reads, r->token))
            return true;
    }
    return false;
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* Must v come after u? */
static bool edge(const Unit *u, const Unit *v)
{
    return u != v && (sets_meet(&v->reads, &u->makes) || sets_meet(&u->reads, &v->overwrites));
}

typedef struct {
    Scope *s;
    const Unit *from, *to;
    bool *seen;
} Path;

static bool walk(Path *p, const Unit *u)
{
    for (int i = 0; i < p->s->units.len; i++) {
        const Unit *v = p->s->units.at[i];
        if (v->dead || p->seen[i] || !edge(u, v))
            continue;
        if (v == p->to) {
            if (u != p->from)
                return true;
            continue;
        }
        p->seen[i] = true;
        if (walk(p, v))
            return true;
    }
    return false;
}

/* Is there a way from u to v over a third unit? */
static bool path_between(Scope *s, const Unit *u, const Unit *v)
{
    Path p = { s, u, v, s->seen };
    memset(p.seen, 0, sizeof *p.seen * (size_t)s->units.len);
    p.seen[u->id] = true;
    return walk(&p, u);
}

static bool path(Scope *s, const Unit *u, const Unit *v)
{
    return edge(u, v) || path_between(s, u, v);
}

/* The readers of a carried value come before the unit that overwrites it; where one of them needs
   what that unit makes, the next value goes over a place of its own. */
bool group_check(Scope *s)
{
    for (int k = 0; s->plan && k < s->loop->n_carry; k++) {
        int token = s->at[s->g->args.at[k]->id].token;
        bool live = s->at[s->g->args.at[k]->id].live;
        if (s->temp[k] || s->plan->carry[k].kind != CARRY_PLACE || !live)
            continue;
        for (int i = 0; i < s->units.len; i++)
            for (int j = 0; j < s->units.len; j++) {
                const Unit *w = s->units.at[i], *r = s->units.at[j];
                if (!set_has(&w->overwrites, token) || !set_has(&r->reads, token))
                    continue;
                bool itself = w->kind == UNIT_CALL
                              || (w->kind == UNIT_LOOP && set_has(&w->holds, token));
                if (w == r ? itself : path(s, w, r)) {
                    loop_use_temp(s, k);
                    return false;
                }
            }
    }
    return true;
}

/* ---- merging -------------------------------------------------------------------------------- */

static int by_node(const Root *a, const Root *b)
{
    return a->node->id != b->node->id ? a->node->id - b->node->id : a->token - b->token;
}

/* Could one index space do for both? Exact answers come from building. */
static bool spaces_agree(const Unit *a, const Unit *b)
{
    for (int i = 0; i < a->roots.len; i++)
        for (int j = 0; j < b->roots.len; j++) {
            const Root *x = a->roots.at[i], *y = b->roots.at[j];
            if (x->row && y->row && !(dim_same(x->row, y->row) && dim_same(x->outer, y->outer)))
                return false;
        }
    return true;
}

static Unit *merged(Scope *s, Unit *a, Unit *b)
{
    Unit *u = unit_new(s, UNIT_MAP, a->node);
    u->key = a->key > b->key ? a->key : b->key;
    u->backward = a->backward;
    set_join(&u->makes, &a->makes);
    set_join(&u->makes, &b->makes);
    set_join(&u->reads, &a->reads);
    set_join(&u->reads, &b->reads);
    set_join(&u->overwrites, &a->overwrites);
    set_join(&u->overwrites, &b->overwrites);
    for (int i = 0, j = 0; i < a->roots.len || j < b->roots.len;) {
        bool first = j == b->roots.len
                     || (i < a->roots.len && by_node(a->roots.at[i], b->roots.at[j]) < 0);
        Root *r = first ? a->roots.at[i++] : b->roots.at[j++];
        vec_push(s->f->cx->scratch, &u->roots, r);
    }
    return u;
}

static void own_roots(Unit *u)
{
    for (int i = 0; i < u->roots.len; i++)
        u->roots.at[i]->unit = u;
}

static bool try_merge(Scope *s, Unit *a, Unit *b)
{
    MapFailure why = { 0 };
    if (path_between(s, a, b) || path_between(s, b, a))
        return false;
    Unit *u = merged(s, a, b);
    a->dead = b->dead = true;
    own_roots(u);
    if (map_build(s, u, &why))
        return true;
    a->dead = b->dead = false;
    s->units.len--;
    own_roots(a);
    own_roots(b);
    return false;
}

/* Is `what` read to compute n from its inputs? */
static bool reads_value(Scope *s, const Node *n, const Node *what)
{
    for (int i = 0; i < n->n_in; i++) {
        const Node *in = n->in[i];
        const bool readable = node_is_readable(s, n->in[i]);
        while (node_is_view(in) && in != what)
            in = in->in[0];
        if (in == what || (!readable && reads_value(s, n->in[i], what)))
            return true;
    }
    return false;
}

static bool unit_reads(Scope *s, const Unit *u, const Node *what)
{
    for (int i = 0; i < u->roots.len; i++)
        if (reads_value(s, u->roots.at[i]->node, what))
            return true;
    return false;
}

/* Do both read the rows that a loop over parts of them has left? */
static bool both_read_rows(Scope *s, const Unit *a, const Unit *b, const Node *n)
{
    return n->op == OP_RESULT && n->in[0]->op == OP_LOOP && n->in[0]->attr.loop->part
           && unit_reads(s, a, n) && unit_reads(s, b, n);
}

/* Elements that pass through memory no longer when a and b are one kernel. */
static int64_t traffic_saved(Scope *s, const Unit *a, const Unit *b)
{
    int64_t saved = 0;
    for (int i = 0; i < s->roots.len; i++) {
        const Root *r = s->roots.at[i];
        int64_t size = size_in_training(s->f, r->size);
        if (r->unit == a && set_has(&b->reads, r->token))
            saved += 2 * size;
        else if (r->unit == b && set_has(&a->reads, r->token))
            saved += 2 * size;
        else if (set_has(&a->reads, r->token) && set_has(&b->reads, r->token))
            saved += size;
    }
    for (int i = 0; i < s->g->nodes.len; i++) {
        const Info *x = &s->at[i];
        int token = x->unit && x->unit->kind == UNIT_CALL ? x->unit->token : x->token;
        if ((set_has(&a->reads, token) && set_has(&b->reads, token))
            || both_read_rows(s, a, b, s->g->nodes.at[i]))
            saved += size_in_training(s->f, type_elems(s->f->ds, s->g->nodes.at[i]->type));
    }
    return saved;
}

typedef struct {
    int a, b;
    int64_t saved;
} Pair;

enum { REFUSED = -2, UNKNOWN = -1, WORTH = 4 };

static int64_t space_size(Scope *s, const Unit *u)
{
    int64_t most = 1;
    for (int i = 0; i < u->roots.len; i++) {
        const Root *r = u->roots.at[i];
        int64_t n = size_in_training(s->f, r->outer);
        if (__builtin_mul_overflow(n, r->row ? size_in_training(s->f, r->row) : 1, &n))
            n = INT64_MAX;
        most = n > most ? n : most;
    }
    return most;
}

/* One reading what the other makes is always worth a try; reading the same, where it is much. */
static int64_t pair_value(Scope *s, const Unit *a, const Unit *b)
{
    if (a->dead || b->dead || a->kind != UNIT_MAP || b->kind != UNIT_MAP
        || a->backward != b->backward || !spaces_agree(a, b))
        return REFUSED;
    int64_t saved = traffic_saved(s, a, b), x = space_size(s, a), y = space_size(s, b);
    bool chain = sets_meet(&a->makes, &b->reads) || sets_meet(&b->makes, &a->reads);
    return saved > 0 && (chain || saved >= (x > y ? x : y) / WORTH) ? saved : REFUSED;
}

/* The best pair that was not refused before. */
static bool best_pair(Scope *s, int64_t *value, int max, Pair *best)
{
    *best = (Pair){ -1, -1, 0 };
    for (int i = 0; i < s->units.len; i++)
        for (int j = i + 1; j < s->units.len && !s->units.at[i]->dead; j++) {
            int64_t *v = &value[i * max + j];
            if (*v == UNKNOWN)
                *v = pair_value(s, s->units.at[i], s->units.at[j]);
            if (*v > best->saved && !s->units.at[j]->dead)
                *best = (Pair){ i, j, *v };
        }
    return best->a >= 0;
}

void group_merge(Scope *s)
{
    int max = 2 * s->units.len + 1;
    int64_t *value = NEW_ARRAY(s->f->cx->scratch, int64_t, (size_t)max * (size_t)max);
    for (int i = 0; i < max * max; i++)
        value[i] = UNKNOWN;
    for (Pair p; best_pair(s, value, max, &p);)
        if (!try_merge(s, s->units.at[p.a], s->units.at[p.b]))
            value[p.a * max + p.b] = REFUSED;
}

/* ---- order ---------------------------------------------------------------------------------- */

static bool is_ready(const Scope *s, const Unit *u)
{
    for (int i = 0; i < s->units.len; i++) {
        const Unit *v = s->units.at[i];
        if (!v->dead && !v->done && edge(v, u))
            return false;
    }
    return true;
}

Unit *group_next(Scope *s)
{
    Unit *best = NULL;
    bool left = false;
    for (int i = 0; i < s->units.len; i++) {
        Unit *u = s->units.at[i];
        if (u->dead || u->done)
            continue;
        left = true;
        if (best
            && (u->backward > best->backward
                || (u->backward == best->backward && u->key >= best->key)))
            continue;
        if (is_ready(s, u))
            best = u;
    }
    if (left && !best)
        bug("the steps of %s wait for each other", s->g->name);
    if (best)
        best->done = true;
    return best;
}
