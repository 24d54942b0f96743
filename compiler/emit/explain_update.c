/* explain_update.c -- what the launches behind the last micro-step move: norm, clipping, update.
 *
 * In: the train settings, sizes. Out: rows of --explain=traffic. The one idea: these launches go
 * over the elements that are updated and read and write each buffer that they use once; which ones
 * an update uses, its rule tells. What optimizers of whole tensors move is not counted.
 */
#include "emit/cu.h"

typedef struct {       /* bytes of all elements that are updated */
    double real, half; /* in the parameters' type, in 16 bits */
    double p;          /* of the parameters as they are kept */
} Sizes;

static int64_t repeats_updated(const Program *p, const Param *q, int64_t repeats)
{
    int64_t n = 0;
    for (int64_t r = 0; r < repeats; r++) {
        const int group = q->updates ? q->updates[r] : 0;
        n += group == 0 || p->train.updates.at[group - 1].rate != 0;
    }
    return n;
}

static Sizes sizes_of(const Program *p, const int64_t *dims)
{
    Sizes s = { 0 };
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        const int64_t one = dim_eval(type_elems(p->dims, q->type), dims);
        const int64_t all = dim_eval(type_elems(p->dims, q->stacked), dims);
        if (q->role == ROLE_STATE || one == 0)
            continue;
        const double n = (double)(one * repeats_updated(p, q, all / one));
        s.real += n * dtype_bytes(p->real);
        s.half += n * 2;
        s.p += n * (q->half ? 2 : dtype_bytes(p->real));
    }
    return s;
}

static void look(Map *seen, const Node *n)
{
    if (map_get(seen, n))
        return;
    map_set(seen, n, (void *)n->types);
    for (int i = 0; i < n->n_in; i++)
        look(seen, n->in[i]);
}

/* Buffers that the rule reads besides p: the gradient, states. */
static int buffers_read(const Program *p)
{
    const Graph *g = p->train.rule.graph;
    Map *seen = map_new(p->cx->scratch);
    int n = 0;
    for (int i = 0; i < g->sinks.len; i++)
        look(seen, g->sinks.at[i].node);
    for (int i = RULE_G; i < g->args.len; i++)
        n += rule_arg_is_element(p, i) && map_get(seen, g->args.at[i]);
    return n;
}

/* As runtime/cuda queues them: lamb.cu, adafactor.cu, muon.cu. */
double explain_update_launches(const Program *p, const int64_t *dims)
{
    double matrices = 0;
    const int norm = 1 + (p->train.clip_value > 0);
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        const int64_t one = dim_eval(type_elems(p->dims, q->type), dims);
        if (program_is_muon(p, q) && one > 0)
            matrices += (double)repeats_updated(
                p, q, dim_eval(type_elems(p->dims, q->stacked), dims) / one);
    }
    switch (p->train.optimizer) {
    case OPT_LAMB: return norm + 3;
    case OPT_ADAFACTOR: return norm + 7;
    case OPT_MUON: return norm + 23 * matrices + 1;
    default: return norm + 1;
    }
}

int explain_update(Emitter *e, const int64_t *dims, UpdateLaunch to[UPDATE_LAUNCHES_MAX])
{
    const Program *p = e->p;
    const Sizes s = sizes_of(p, dims);
    const bool copies = p->narrow != p->real && !program_has_halves(p);
    int n = 0;
    to[n++] = (UpdateLaunch){ "rt_finite_and_norm", s.real, 0 };
    if (p->train.clip_value > 0)
        to[n++] = (UpdateLaunch){ "rt_clip_value", s.real, s.real };
    if (p->train.optimizer != OPT_RULE)
        return n;
    UpdateLaunch update = { emit_format(e, "%s_update", emit_identifier(e, p->name)), 0, 0 };
    update.read = s.p + buffers_read(p) * s.real;
    update.written = s.p + p->train.states.len * s.real + (copies ? s.half : 0);
    if (p->train.ema > 0) {
        update.read += s.real;
        update.written += s.real;
    }
    to[n++] = update;
    return n;
}
