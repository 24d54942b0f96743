/* tensor.c -- the tensors that an optimizer works on one at a time, and their pieces.
 *
 * In: the model table. Out: a list of tensors, each cut into pieces that depend on its size alone.
 * The one idea: a sum over a tensor is taken piece by piece and then in a fixed tree, so the work
 * is shared by any number of threads and the result is the same.
 */
#include "optim/tensor.h"

static int pieces_of(RtPiece all) { return (int)((all.to - all.from + RT_PIECE - 1) / RT_PIECE); }

static int matrices_of(const RtParam *q)
{
    int n = q->rank < 2 ? 0 : 1;
    for (int i = 0; i + 2 < q->rank; i++)
        n *= (int)q->shape[i];
    return n;
}

/* Counts tensors and pieces, and fills them in where there is room. Returns how many matrices. */
static int list(const RtModel *m, RtTensors *to, bool fill)
{
    int matrices = 0;
    to->n = to->n_pieces = 0;
    for (int i = 0; i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        for (ptrdiff_t r = 0; q->role != RT_STATE && r < rt_param_repeats(q); r++) {
            const RtPiece all = rt_param_piece(m, q, r);
            if (all.rate == 0)
                continue;
            const RtTensor t = {
                i, r, all, to->n_pieces, pieces_of(all), matrices, matrices_of(q)
            };
            for (int k = 0; fill && k < t.n; k++) {
                RtPiece *piece = &to->pieces[t.first + k];
                *piece = all;
                piece->from += (ptrdiff_t)k * RT_PIECE;
                piece->to = k + 1 < t.n ? piece->from + RT_PIECE : all.to;
                to->owner[t.first + k] = to->n;
            }
            if (fill)
                to->at[to->n] = t;
            to->n++;
            to->n_pieces += t.n;
            matrices += t.matrices;
        }
    }
    return matrices;
}

RtTensors *rt_tensors_new(const RtModel *m, RtOptKind kind)
{
    if (!rt_optim_is_tensorwise(kind))
        return NULL;
    RtTensors *all = rt_alloc(sizeof *all, "the table of parameters");
    const int matrices = list(m, all, false);
    all->at = rt_alloc((size_t)(all->n + 1) * sizeof *all->at, "the table of parameters");
    all->pieces = rt_alloc((size_t)(all->n_pieces + 1) * sizeof *all->pieces,
                           "the table of parameters");
    all->owner = rt_alloc((size_t)(all->n_pieces + 1) * sizeof(int), "the table of parameters");
    all->factor = rt_alloc((size_t)(all->n + 1) * sizeof(double), "the table of parameters");
    all->means = rt_alloc((size_t)(matrices + 1) * sizeof(double), "the table of parameters");
    for (int i = 0; i < RT_TENSOR_SUMS; i++)
        all->sums[i] = rt_alloc((size_t)(all->n_pieces + 1) * sizeof(double), "the sums of norms");
    list(m, all, true);
    return all;
}

void rt_tensors_free(RtTensors *all)
{
    if (!all)
        return;
    for (int i = 0; i < RT_TENSOR_SUMS; i++)
        rt_free(all->sums[i]);
    rt_free(all->means);
    rt_free(all->factor);
    rt_free(all->owner);
    rt_free(all->pieces);
    rt_free(all->at);
    rt_free(all);
}
