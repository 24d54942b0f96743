/* cu_row.c -- a row of a MAP kernel, or a vector of it, as one thread does it.
 *
 * In: a phase. Out: the loop over the thread's vectors: loads of 16 bytes, a loop over the elements
 * of a vector with values as map_value.c writes them, stores of 16 bytes; and behind it reductions
 * over the team. What a later phase needs again stays in registers, or in shared memory.
 */
#include "emit/cu_map.h"
#include "op/op.h"

#include <ctype.h>
#include <string.h>

static const char *vector_type(CuMap *x, DType t)
{
    return emit_format(x->m.e, "RtVec<%s, %d>", c_type(x->m.e, t), x->f.vector);
}

bool cu_has_word(const char *text, const char *word)
{
    const size_t len = strlen(word);
    for (const char *s = strstr(text, word); s; s = strstr(s + 1, word)) {
        const char before = s > text ? s[-1] : ' ';
        if (!isalnum((unsigned char)before) && before != '_' && before != '.'
            && !isalnum((unsigned char)s[len]) && s[len] != '_')
            return true;
    }
    return false;
}

/* ---- what is held ---------------------------------------------------------------------------- */

static Held *find_held(CuMap *x, const Access *a)
{
    for (int i = 0; i < x->held.len; i++)
        if (cu_same_access(x->held.at[i].access, a))
            return &x->held.at[i];
    return NULL;
}

static bool is_vector(CuMap *x, const Access *a) { return cu_is_vector(x->kp, x->m.k, &x->f, a); }

/* The element of a held access that the statements for one element mean. */
static const char *held_element(CuMap *x, const Held *h)
{
    Emitter *e = x->m.e;
    if (h->kept && x->f.keep == CU_REGISTERS)
        return x->f.vector > 1 ? emit_format(e, "%s[%s][%s]", h->name, x->k, x->elem)
                               : emit_format(e, "%s[%s]", h->name, x->k);
    if (h->kept && x->f.vector == 1)
        return emit_format(e, "%s[%s]", h->name, x->m.index[x->row]);
    return emit_format(e, "%s[%s]", h->kept ? emit_format(e, "%s_v", h->name) : h->name, x->elem);
}

const char *cu_held(MapWriter *m, const Value *v)
{
    CuMap *x = cu_of(m);
    const Held *h = find_held(x, &v->access);
    return h && h->ready ? held_element(x, h) : NULL;
}

/* Phases, from `phase` on, in which a load with that access is needed. */
static void mark_needed(const CuMap *x, int v, const Access *a, bool *found)
{
    const Value *u = map_value(&x->m, v);
    if (x->m.level[v] != LEVEL_ELEM)
        return;
    if (u->kind == VAL_LOAD && cu_same_access(&u->access, a))
        *found = true;
    if (u->kind == VAL_LOAD && u->access.index >= 0)
        mark_needed(x, u->access.index, a, found);
    if (u->kind == VAL_LOAD && u->access.guard >= 0)
        mark_needed(x, u->access.guard, a, found);
    for (int i = 0; i < u->n_in; i++)
        mark_needed(x, u->in[i], a, found);
}

static bool needed_after(const CuMap *x, const Access *a, int phase)
{
    bool found = false;
    const Kernel *k = x->m.k;
    for (int i = 0; i < k->values.len; i++)
        if (k->values.at[i].kind == VAL_REDUCE && cu_loop_of(k, &x->f, i) > phase)
            mark_needed(x, k->values.at[i].in[0], a, &found);
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].phase > phase && map_in_row(&x->m, &k->effects.at[i]))
            mark_needed(x, k->effects.at[i].value, a, &found);
    return found;
}

/* The elements of a row in shared memory, behind those that are there already. */
static void declare_shared(CuMap *x, const char *name, DType t)
{
    Emitter *e = x->m.e;
    const char *type = c_type(e, t);
    int64_t n = 0;
    if (!dim_value(x->m.k->axis[x->row], &n))
        bug("kernel %s: a row in shared memory has no fixed size", x->m.k->name);
    if (x->bytes == 0)
        text_add(&x->declared, "%*sRT_SHARED_ARENA(%s, %s);\n", x->depth, "", type, name);
    else
        text_add(&x->declared, "%*s%s *%s = (%s *)((char *)%s + (%s));\n", x->depth, "", type, name,
                 type, x->first_shared, x->shared.at);
    const Dim *axis = x->m.k->axis[x->row];
    const int bytes = cu_shared_bytes(cu_shared_elements(&x->f, n), t);
    text_put(&x->shared, x->bytes ? " + " : "");
    if (bytes == n * dtype_bytes(t))
        text_add(&x->shared, "%s*sizeof(%s)", dim_c_factor(&x->c->host, axis), type);
    else
        text_add(&x->shared, "%d", bytes);
    dim_c_factor(&x->m.w->dims, axis); /* the function of the device has the same words */
    if (x->bytes == 0)
        x->first_shared = name;
    x->bytes += bytes;
}

static Held *hold(CuMap *x, const Access *a, bool kept)
{
    Emitter *e = x->m.e;
    const DType t = x->m.k->args.at[a->arg].dtype;
    const char *arg = x->m.w->arg[a->arg];
    Held h = { .access = a, .kept = kept };
    h.name = names_take(e, kept ? x->names : x->m.w->names,
                        emit_format(e, kept ? "%s_row" : "%s_v", arg));
    if (kept && x->f.keep == CU_SHARED)
        declare_shared(x, h.name, t);
    else if (kept && x->f.vector > 1)
        text_add(&x->declared, "%*s%s %s[%d];\n", x->depth, "", vector_type(x, t), h.name,
                 x->f.count);
    else if (kept)
        text_add(&x->declared, "%*s%s %s[%d];\n", x->depth, "", c_type(e, t), h.name, x->f.count);
    vec_push(e->cx->scratch, &x->held, h);
    return &x->held.at[x->held.len - 1];
}

/* ---- loads in front of the elements ---------------------------------------------------------- */

/* "x + i*C + at" */
static const char *vector_place(CuMap *x, const Access *a)
{
    MapWriter *m = &x->m;
    const char *index = m->index[x->row];
    m->index[x->row] = x->at;
    const char *place = emit_format(m->e, "%s + %s", m->w->arg[a->arg], map_index_of(m, a));
    m->index[x->row] = index;
    return place;
}

static const char *kept_place(CuMap *x, const Held *h)
{
    return x->f.keep == CU_REGISTERS ? emit_format(x->m.e, "%s[%s]", h->name, x->k)
                                     : emit_format(x->m.e, "%s + %s", h->name, x->at);
}

/* "V - at": how many elements of the row are left for a vector. */
static const char *left_text(CuMap *x)
{
    return emit_format(x->m.e, "%s - %s", dim_c(&x->m.w->dims, x->m.k->axis[x->row]), x->at);
}

/* A vector, where `guard` (NULL: always) holds; of a row's last one what is there. */
static const char *load_from(CuMap *x, const char *place, const char *guard)
{
    Emitter *e = x->m.e;
    const int n = x->f.vector;
    if (x->f.ragged)
        return emit_format(
            e, guard ? "rt_load_part<%d>(%s, %s ? %s : 0)" : "rt_load_part<%d>(%s, %.0s%s)", n,
            place, guard ? guard : "", left_text(x));
    return guard ? emit_format(e, "rt_load_if<%d>(%s, %s)", n, guard, place)
                 : emit_format(e, "rt_load<%d>(%s)", n, place);
}

static const char *load_text(CuMap *x, const Access *a)
{
    MapWriter *m = &x->m;
    const char *place = vector_place(x, a);
    return load_from(x, place, a->guard < 0 ? NULL : map_code(m, a->guard, false).text);
}

static void load_vector(CuMap *x, const Value *v, int phase)
{
    MapWriter *m = &x->m;
    const Access *a = &v->access;
    const char *type = vector_type(x, m->k->args.at[a->arg].dtype);
    Held *h = find_held(x, a);
    const bool shared = x->f.keep == CU_SHARED;
    if (h && h->ready && h->kept && shared)
        map_statement(m, emit_format(m->e, "const %s %s_v = rt_load<%d>(%s);", type, h->name,
                                     x->f.vector, kept_place(x, h)));
    if (h && h->ready)
        return;
    const char *text = load_text(x, a);
    if (h == NULL)
        h = hold(x, a, cu_may_keep(m->k, &x->f, a) && needed_after(x, a, phase));
    h->ready = true;
    if (!h->kept) {
        map_statement(m, emit_format(m->e, "const %s %s = %s;", type, h->name, text));
    } else if (shared) {
        map_statement(m, emit_format(m->e, "const %s %s_v = %s;", type, h->name, text));
        map_statement(m, emit_format(m->e, "rt_share(%s, %s_v);", kept_place(x, h), h->name));
    } else {
        map_statement(m, emit_format(m->e, "%s = %s;", kept_place(x, h), text));
    }
}

/* Without vectors: what later phases need is kept all the same. */
static void load_element(CuMap *x, const Value *v, int phase)
{
    MapWriter *m = &x->m;
    const Access *a = &v->access;
    if (!cu_may_keep(m->k, &x->f, a) || find_held(x, a) || !needed_after(x, a, phase))
        return;
    const char *from = map_element(m, a);
    if (a->guard >= 0)
        from = emit_format(m->e, "%s ? %s : 0",
                           code_at_least(m->e, map_code(m, a->guard, false), PREC_OR), from);
    Held *h = hold(x, a, true);
    map_statement(m, emit_format(m->e, "%s = %s;", held_element(x, h), from));
    h->ready = true;
}

static void load_all(CuMap *x, int phase)
{
    MapWriter *m = &x->m;
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = map_value(m, i);
        if (v->kind != VAL_LOAD || m->level[i] != LEVEL_ELEM || m->uses[i] == 0 || m->temp[i])
            continue;
        if (is_vector(x, &v->access))
            load_vector(x, v, phase);
    }
}

/* ---- what a phase does ----------------------------------------------------------------------- */

typedef struct {
    int *reduce, n_reduce, *effect, n_effect;
    const char **best; /* of the reduction to a place: the value there */
    const char **out;  /* of an effect: the vector that is stored, or NULL */
} Work;

static Work work_of(CuMap *x, int phase)
{
    MapWriter *m = &x->m;
    Arena *a = m->e->cx->scratch;
    Work w = { .reduce = NEW_ARRAY(a, int, m->k->values.len + 1),
               .effect = NEW_ARRAY(a, int, m->k->effects.len + 1),
               .best = NEW_ARRAY(a, const char *, m->k->values.len + 1),
               .out = NEW_ARRAY(a, const char *, m->k->effects.len + 1) };
    for (int i = 0; i < m->k->values.len; i++)
        if (map_value(m, i)->kind == VAL_REDUCE && cu_loop_of(m->k, &x->f, i) == phase)
            w.reduce[w.n_reduce++] = i;
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->k->effects.at[i].phase == phase && map_in_row(m, &m->k->effects.at[i]))
            w.effect[w.n_effect++] = i;
    return w;
}

/* The sum of exponentials that is made with this largest value, or -1. */
static int sum_with(const CuMap *x, int largest)
{
    for (int i = 0; i < x->m.k->values.len; i++)
        if (x->f.with[i] == largest)
            return i;
    return -1;
}

static bool is_place(const Value *v) { return v->op == OP_ARGMAX || v->op == OP_ARGMIN; }

static void declare_reductions(CuMap *x, Work *w)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    for (int i = 0; i < w->n_reduce; i++) {
        const int n = w->reduce[i];
        const Value *v = map_value(m, n);
        const DType in = map_value(m, v->in[0])->dtype;
        const char *plain = v->op == OP_SUM    ? "sum"
                            : v->op == OP_AMAX ? "max"
                            : v->op == OP_AMIN ? "min"
                                               : "place";
        if (is_place(v)) {
            w->best[i] = map_free_name(m, "best");
            map_statement(m, emit_format(e, "%s %s = %s;", c_type(e, in), w->best[i],
                                         map_reduce_start(m, v, in)));
        }
        const bool named = v->name && map_is_free(m, map_short_name(m, v->name));
        m->temp[n] = map_free_name(m, named ? v->name : plain);
        map_statement(m, emit_format(e, "%s %s = %s;", c_type(e, v->dtype), m->temp[n],
                                     is_place(v) ? "0" : map_reduce_start(m, v, v->dtype)));
    }
}

static void reduce_place(CuMap *x, int n, const char *best)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const Value *v = map_value(m, n);
    const char *name = m->temp[v->in[0]];
    if (name == NULL) {
        const Code c = map_code(m, v->in[0], true);
        name = map_free_name(m, "x");
        map_statement(m, emit_format(e, "const %s %s = %s;",
                                     c_type(e, map_value(m, v->in[0])->dtype), name, c.text));
    }
    map_statement(m, emit_format(e, "if (rt_is_better(%s, %s, %d)) {", name, best,
                                 v->op == OP_ARGMAX ? 1 : -1));
    map_statement(m, emit_format(e, "    %s = %s;", best, name));
    map_statement(m, emit_format(e, "    %s = %s%s;", m->temp[n],
                                 m->wide[x->row] ? "(int32_t)" : "", m->index[x->row]));
    map_statement(m, "}");
}

static void reduce_element(CuMap *x, int n, const char *best)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const Value *v = map_value(m, n);
    const int sum = sum_with(x, n);
    if (x->f.with[n] >= 0) /* comes with the largest value */
        return;
    if (is_place(v))
        reduce_place(x, n, best);
    else if (sum >= 0)
        map_statement(m, emit_format(e, "rt_add_exp(%s, %s, %s);", m->temp[n], m->temp[sum],
                                     map_code(m, v->in[0], true).text));
    else if (v->op == OP_SUM)
        map_statement(m, emit_format(e, "%s += %s;", m->temp[n], map_code(m, v->in[0], true).text));
    else
        map_statement(m, emit_format(e, "%s = %s%s(%s, %s);", m->temp[n],
                                     v->dtype == DT_BOOL ? "(bool)" : "",
                                     v->op == OP_AMAX ? "rt_max" : "rt_min", m->temp[n],
                                     map_code(m, v->in[0], true).text));
}

/* What the team makes of the threads' results. */
static void fold_reductions(CuMap *x, const Work *w)
{
    MapWriter *m = &x->m;
    const char *team = x->f.team == CU_WARP ? "warp" : "block";
    if (x->f.team == CU_THREAD)
        return;
    for (int i = 0; i < w->n_reduce; i++) {
        const Value *v = map_value(m, w->reduce[i]);
        const char *name = m->temp[w->reduce[i]];
        const int sum = sum_with(x, w->reduce[i]);
        if (sum >= 0)
            map_statement(m, emit_format(m->e, "rt_%s_add_exp(%s, %s);", team, name, m->temp[sum]));
        if (sum >= 0 || x->f.with[w->reduce[i]] >= 0)
            continue;
        const char *how = v->op == OP_SUM      ? "sum"
                          : v->op == OP_AMAX   ? "max"
                          : v->op == OP_AMIN   ? "min"
                          : v->op == OP_ARGMAX ? "argmax"
                                               : "argmin";
        map_statement(
            m, is_place(v)
                   ? emit_format(m->e, "%s = rt_%s_%s(%s, %s);", name, team, how, w->best[i], name)
                   : emit_format(m->e, "%s = rt_%s_%s(%s);", name, team, how, name));
    }
}

/* ---- effects --------------------------------------------------------------------------------- */

const char *cu_sum_index(CuMap *x)
{
    const char *k = x->f.kind == CU_COLUMNS ? "0" : x->k;
    return emit_format(x->m.e, "[%s][%s]", k, x->f.vector > 1 ? x->elem : "0");
}

/* The vectors that a phase stores: declared, with what is added to. */
static void open_stores(CuMap *x, Work *w, int phase)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    for (int i = 0; i < w->n_effect; i++) {
        const Effect *f = &m->k->effects.at[w->effect[i]];
        if (f->kind != EFFECT_STORE || !is_vector(x, &f->access))
            continue;
        const DType t = m->k->args.at[f->access.arg].dtype;
        Held *h = find_held(x, &f->access);
        const bool again = x->f.keep == CU_REGISTERS && f->add == ADD_NEVER
                           && needed_after(x, &f->access, phase);
        if (h == NULL && again)
            h = hold(x, &f->access, true);
        if (h && h->kept && x->f.keep == CU_REGISTERS) {
            w->out[i] = kept_place(x, h);
            continue;
        }
        w->out[i] = names_take(e, m->w->names, emit_format(e, "%s_out", m->w->arg[f->access.arg]));
        map_statement(m, emit_format(e, "%s %s;", vector_type(x, t), w->out[i]));
    }
}

static void store_element(CuMap *x, const Effect *f, const char *out, Code value, DType type)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const DType to = m->k->args.at[f->access.arg].dtype;
    const char *flag = c_flag(m->w, f->add);
    const char *place = vector_place(x, &f->access);
    value = code_cast(e, value, type, to);
    if (flag || f->add == ADD_ALWAYS) {
        const char *old = emit_format(e, "%s_old", out);
        MapInner *in = m->own;
        emit_statement(&in->body, in->steps,
                       emit_format(e, "const %s %s = %s;", vector_type(x, to), old,
                                   load_from(x, place, flag)));
        map_statement(
            m,
            emit_format(e, flag ? "%s[%s] = %s ? %s[%s] + %s : %s;" : "%s[%s] = %.0s%s[%s] + %s;",
                        out, x->elem, flag ? flag : "", old, x->elem,
                        code_at_least(e, value, PREC_ADD), value.text));
        return;
    }
    map_statement(m, emit_format(e, "%s[%s] = %s;", out, x->elem, value.text));
}

static void write_effect(CuMap *x, const Work *w, int i)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const int n = w->effect[i];
    const Effect *f = &m->k->effects.at[n];
    const DType type = map_value(m, f->value)->dtype;
    const Code c = map_code(m, f->value, true);
    if (m->total[n])
        map_statement(m,
                      emit_format(e, "%s += %s;", m->total[n], code_cast(e, c, type, DT_F64).text));
    else if (m->column[n])
        map_statement(m, emit_format(e, "%s%s += %s;", m->column[n], m->column_index, c.text));
    else if (w->out[i])
        store_element(x, f, w->out[i], c, type);
    else
        map_write(m, f, c, type);
}

static void close_stores(CuMap *x, const Work *w)
{
    MapWriter *m = &x->m;
    for (int i = 0; i < w->n_effect; i++) {
        const Effect *f = &m->k->effects.at[w->effect[i]];
        Held *h = find_held(x, &f->access);
        if (w->out[i] == NULL)
            continue;
        const char *place = vector_place(x, &f->access);
        map_statement(m, x->f.ragged ? emit_format(m->e, "rt_store_part(%s, %s, %s);", place,
                                                   w->out[i], left_text(x))
                                     : emit_format(m->e, "rt_store(%s, %s);", place, w->out[i]));
        if (h && h->kept)
            h->ready = true;
    }
}

/* ---- the loop over a thread's part of the row ------------------------------------------------ */

/* Loads from what the phase also stores to are read first. */
static void declare_forced(CuMap *x)
{
    MapWriter *m = &x->m;
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = map_value(m, i);
        if (v->kind != VAL_LOAD || m->level[i] != LEVEL_ELEM || m->uses[i] == 0 || m->temp[i])
            continue;
        const KernelArg *arg = &m->k->args.at[v->access.arg];
        if ((arg->written || !arg->exclusive) && find_held(x, &v->access) == NULL)
            map_declare(m, i, map_compute(m, i));
    }
}

/* Where a row's last vector is not whole, what it lacks is 0: it may be computed with, but counts
   in no sum, and is not stored. Elements that lie in no vector are not there at all. */
typedef enum { GUARD_NONE, GUARD_SUMS, GUARD_ALL } Guard;

static bool is_summed(CuMap *x, const Work *w, int i)
{
    const int n = w->effect[i];
    return w->out[i] == NULL && (x->m.total[n] || x->m.column[n]);
}

static Guard guard_of(CuMap *x, const Work *w)
{
    const MapWriter *m = &x->m;
    Guard guard = w->n_reduce > 0 ? GUARD_SUMS : GUARD_NONE;
    if (!x->f.ragged)
        return GUARD_NONE;
    for (int i = 0; i < w->n_effect; i++) {
        if (w->out[i] == NULL && !is_summed(x, w, i))
            return GUARD_ALL;
        guard = is_summed(x, w, i) ? GUARD_SUMS : guard;
    }
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = map_value(m, i);
        if (v->kind == VAL_LOAD && m->level[i] == LEVEL_ELEM && m->uses[i] > 0
            && !is_vector(x, &v->access))
            return GUARD_ALL;
    }
    return guard;
}

/* A value that a sum takes, in a variable: computed for all elements, without a branch. */
static void declare_summed(CuMap *x, int v)
{
    MapWriter *m = &x->m;
    if (!m->temp[v] && m->level[v] == LEVEL_ELEM && map_value(m, v)->kind != VAL_LOAD
        && !map_is_trivial(map_value(m, v)))
        map_declare(m, v, map_compute(m, v));
}

/* "at + e < V" */
static const char *there_text(CuMap *x)
{
    return emit_format(x->m.e, "%s + %s < %s", x->at, x->elem,
                       dim_c(&x->m.w->dims, x->m.k->axis[x->row]));
}

/* The sums of elements that are there; all that they take has variables. */
static void write_guarded_sums(CuMap *x, const Work *w)
{
    MapWriter *m = &x->m;
    Text body = text_new(m->e->cx->scratch), *out = m->out;
    for (int i = 0; i < w->n_reduce; i++)
        if (x->f.with[w->reduce[i]] < 0)
            declare_summed(x, map_value(m, w->reduce[i])->in[0]);
    for (int i = 0; i < w->n_effect; i++)
        if (is_summed(x, w, i))
            declare_summed(x, m->k->effects.at[w->effect[i]].value);
    m->out = &body;
    m->indent += INDENT;
    for (int i = 0; i < w->n_reduce; i++)
        reduce_element(x, w->reduce[i], w->best[i]);
    for (int i = 0; i < w->n_effect; i++)
        if (is_summed(x, w, i))
            write_effect(x, w, i);
    m->indent -= INDENT;
    m->out = out;
    const bool brace = !map_is_one_statement(body.at);
    map_statement(m, emit_format(m->e, "if (%s)%s", there_text(x), brace ? " {" : ""));
    text_put(m->out, body.at);
    if (brace)
        map_statement(m, "}");
}

/* Statements for one element. */
static void write_element(CuMap *x, const Work *w, Guard guard)
{
    const bool apart = guard == GUARD_SUMS;
    if (w->n_effect > 1)
        declare_forced(x);
    for (int i = 0; i < w->n_reduce && !apart; i++)
        reduce_element(x, w->reduce[i], w->best[i]);
    for (int i = 0; i < w->n_effect; i++)
        if (!apart || !is_summed(x, w, i))
            write_effect(x, w, i);
    if (apart)
        write_guarded_sums(x, w);
}

/* The loop over the elements of a vector around their statements. */
static void write_vector(CuMap *x, const char *body, Guard guard)
{
    MapWriter *m = &x->m;
    const bool uses_index = cu_has_word(body, m->index[x->row]);
    const bool brace = uses_index || !map_is_one_statement(body);
    const char *there = guard == GUARD_ALL ? emit_format(m->e, " && %s", there_text(x)) : "";
    map_statement(m, "RT_UNROLL");
    map_statement(m, emit_format(m->e, "for (int %s = 0; %s < %d%s; %s++)%s", x->elem, x->elem,
                                 x->f.vector, there, x->elem, brace ? " {" : ""));
    if (uses_index)
        map_statement(m, emit_format(m->e, "    const %s %s = %s + %s;", map_index_type(m, x->row),
                                     m->index[x->row], x->at, x->elem));
    text_put(m->out, body);
    if (brace)
        map_statement(m, "}");
}

/* What a thread does with one vector, or one element. */
static void write_elements(CuMap *x, Work *w, int phase)
{
    MapWriter *m = &x->m;
    for (int i = 0; i < w->n_reduce; i++)
        if (x->f.with[w->reduce[i]] < 0)
            map_count_uses(m, map_value(m, w->reduce[i])->in[0]);
    for (int i = 0; i < w->n_effect; i++)
        map_count_uses(m, m->k->effects.at[w->effect[i]].value);
    if (x->f.vector > 1) {
        load_all(x, phase);
        open_stores(x, w, phase);
    } else if (x->f.keep != CU_AGAIN) {
        for (int i = 0; i < m->k->values.len; i++)
            if (map_value(m, i)->kind == VAL_LOAD && m->level[i] == LEVEL_ELEM && m->uses[i] > 0
                && !m->temp[i])
                load_element(x, map_value(m, i), phase);
    }
    Text body = text_new(m->e->cx->scratch), *out = m->out;
    MapInner front = { .body = text_new(m->e->cx->scratch), .steps = m->indent };
    const Guard guard = guard_of(x, w);
    m->own = &front; /* loads of what is added to */
    m->out = &body;
    m->indent += x->f.vector > 1 ? INDENT : 0;
    write_element(x, w, guard);
    m->indent -= x->f.vector > 1 ? INDENT : 0;
    m->out = out;
    text_put(m->out, front.body.at);
    if (x->f.vector == 1) {
        text_put(m->out, body.at);
        return;
    }
    write_vector(x, body.at, guard);
    close_stores(x, w);
}

/* "for (int k = 0; k < 3; k++) {", or a loop with a step. */
static void open_row(CuMap *x, const char *body)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const int n = x->f.vector, lanes = cu_row_lanes(&x->f);
    const char *at = n > 1 ? x->at : m->index[x->row], *type = map_index_type(m, x->row);
    const char *size = dim_c(&m->w->dims, m->k->axis[x->row]);
    const char *lane = x->f.team == CU_BLOCK ? "(int)threadIdx.x" : x->lane;
    if (x->f.team == CU_THREAD) {
        map_statement(m,
                      emit_format(e, "for (%s %s = 0; %s < %s; %s++) {", type, at, at, size, at));
    } else if (x->f.count > 0) {
        map_statement(m, "RT_UNROLL");
        map_statement(
            m, emit_format(e, "for (int %s = 0; %s < %d; %s++) {", x->k, x->k, x->f.count, x->k));
        const char *first = emit_format(e, "%s*%d + %s", x->k, lanes, lane);
        if (!x->f.whole || cu_has_word(body, at))
            map_statement(
                m, emit_format(e, n > 1 ? "    const %s %s = (%s)*%d;" : "    const %s %s = %s;",
                               type, at, first, n));
        if (!x->f.whole) /* only the last of them may lie behind the row's end */
            map_statement(m, x->f.count == 1 ? emit_format(e, "    if (%s >= %s)", at, size)
                                             : emit_format(e, "    if (%s == %d && %s >= %s)", x->k,
                                                           x->f.count - 1, at, size));
        if (!x->f.whole)
            map_statement(m, "        break;");
    } else {
        const char *first = n > 1 ? emit_format(e, "%s*%d", lane, n) : lane;
        map_statement(m, n > 1 ? "RT_UNROLL_BY(2)" : "RT_UNROLL_BY(8)");
        map_statement(m, emit_format(e, "for (%s %s = %s; %s < %s; %s += %d) {", type, at, first,
                                     at, size, at, lanes * n));
    }
}

void cu_row(CuMap *x, int phase)
{
    MapWriter *m = &x->m;
    MapInner in;
    Work w = work_of(x, phase);
    if (w.n_reduce + w.n_effect == 0 || x->row < 0)
        return;
    const bool loop = x->f.kind == CU_ROWS;
    declare_reductions(x, &w);
    map_inner_open(m, &in, 0);
    m->column_index = x->f.kind == CU_ROWS && x->f.in_work
                          ? emit_format(m->e, "[%s]", m->index[x->row])
                          : cu_sum_index(x);
    m->indent += loop ? INDENT : 0;
    write_elements(x, &w, phase);
    m->indent -= loop ? INDENT : 0;
    const char *body = map_inner_close(m, &in);
    if (loop)
        open_row(x, body);
    text_put(m->out, body);
    if (loop)
        map_statement(m, "}");
    for (int i = 0; i < x->held.len; i++)
        if (!x->held.at[i].kept)
            x->held.at[i--] = x->held.at[--x->held.len];
    fold_reductions(x, &w);
}

/* ---- once per row ---------------------------------------------------------------------------- */

/* What is 0 in the one thread of all that work on a row; NULL: there is but one. */
static const char *first_of_row(CuMap *x)
{
    if (x->f.kind != CU_ROWS)
        return x->f.vector > 1 ? x->at : x->m.index[x->row];
    return x->f.team == CU_THREAD ? NULL : x->f.team == CU_BLOCK ? "threadIdx.x" : x->lane;
}

void cu_row_effects(CuMap *x, int phase)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    Text body = text_new(e->cx->scratch), *out = m->out;
    memset(m->uses, 0, sizeof *m->uses * (size_t)m->k->values.len);
    const char *first = first_of_row(x);
    const bool one = first != NULL;
    const int indent = m->indent;
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->phase != phase || map_in_row(m, f))
            continue;
        const DType type = map_value(m, f->value)->dtype;
        const Code c = map_code(m, f->value, true);
        m->out = &body;
        m->indent += one ? INDENT : 0;
        if (m->total[i])
            map_statement(
                m, emit_format(e, "%s += %s;", m->total[i], code_cast(e, c, type, DT_F64).text));
        else
            map_write(m, f, c, type);
        m->out = out;
        m->indent = indent;
    }
    if (body.len == 0)
        return;
    const bool brace = !map_is_one_statement(body.at);
    if (one)
        map_statement(m, emit_format(e, "if (%s == 0)%s", first, brace ? " {" : ""));
    text_put(m->out, body.at);
    if (one && brace)
        map_statement(m, "}");
}
