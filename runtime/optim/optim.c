/* optim.c -- what an update goes through: pieces of the flat buffer, states, numbers.
 *
 * In: the model table. Out: tables. The one idea: the flat buffer is cut into pieces that depend on
 * the model table alone, so that sums over them do not depend on threads. The updates themselves
 * are in cpu/ and cuda/.
 */
#include "run.h"

/* ---- pieces --------------------------------------------------------------------------------- */

static int piece_compare(const void *a, const void *b)
{
    const ptrdiff_t x = ((const RtPiece *)a)->from, y = ((const RtPiece *)b)->from;
    return (x > y) - (x < y);
}

static bool same_numbers(RtPiece a, RtPiece b)
{
    return a.half == b.half && a.decay == b.decay && a.rate == b.rate
           && (a.own == b.own || (isnan(a.own) && isnan(b.own)));
}

double rt_piece_decay(RtPiece q, const RtTrain *t)
{
    return !isnan(q.own) ? q.own : q.decay ? t->weight_decay : 0;
}

RtPiece *rt_optim_pieces(const RtModel *m, int *n)
{
    size_t rows = 0;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].role != RT_STATE)
            rows += (size_t)rt_param_repeats(&m->params[i]);
    RtPiece *whole = rt_alloc((rows + 1) * sizeof *whole, "the table of parameters");
    size_t k = 0;
    for (int i = 0; i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        for (ptrdiff_t r = 0; q->role != RT_STATE && r < rt_param_repeats(q); r++) {
            whole[k] = rt_param_piece(m, q, r);
            k += whole[k].rate != 0;
        }
    }
    qsort(whole, k, sizeof *whole, piece_compare);
    size_t joined = 0; /* neighbours of one kind become one */
    for (size_t i = 0; i < k; i++)
        if (joined && whole[joined - 1].to == whole[i].from
            && same_numbers(whole[joined - 1], whole[i]))
            whole[joined - 1].to = whole[i].to;
        else
            whole[joined++] = whole[i];

    size_t count = 0;
    for (size_t i = 0; i < joined; i++)
        count += (size_t)((whole[i].to - whole[i].from + RT_PIECE - 1) / RT_PIECE);
    RtPiece *piece = rt_alloc((count + 1) * sizeof *piece, "the table of parameters");
    size_t put = 0;
    for (size_t i = 0; i < joined; i++)
        for (ptrdiff_t at = whole[i].from; at < whole[i].to; at += RT_PIECE) {
            piece[put] = whole[i];
            piece[put].from = at;
            piece[put++].to = at + RT_PIECE < whole[i].to ? at + RT_PIECE : whole[i].to;
        }
    rt_free(whole);
    *n = (int)put;
    return piece;
}

/* ---- states and numbers --------------------------------------------------------------------- */

const char *rt_optimizer_name(const RtTrain *t)
{
    static const char
        *const name[] = { [RT_LAMB] = "lamb", [RT_ADAFACTOR] = "adafactor", [RT_MUON] = "muon" };
    return t->optimizer != RT_RULE ? name[t->optimizer] : t->rule ? t->rule : "none";
}

bool rt_optim_is_tensorwise(RtOptKind kind) { return kind >= RT_LAMB; }

double rt_hyper(const RtTrain *t, const char *name)
{
    for (int i = 0; i < t->n_hypers; i++)
        if (strcmp(t->hyper[i].name, name) == 0)
            return t->hyper[i].value;
    return 0;
}

int rt_optim_states(const RtTrain *t, RtStateTensor state[RT_MAX_STATES])
{
    if (t->optimizer == RT_ADAFACTOR)
        return rt_adafactor_states(state);
    if (t->optimizer == RT_MUON)
        return rt_muon_states(state);
    if (t->optimizer != RT_RULE) {
        state[0] = (RtStateTensor){ .name = "m" };
        state[1] = (RtStateTensor){ .name = "v" };
        return 2;
    }
    for (int i = 0; i < t->n_states; i++)
        state[i] = (RtStateTensor){ .name = t->states[i] };
    return t->n_states;
}
