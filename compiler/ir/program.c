/* program.c -- an empty model table, and the sizes it is trained with.
 *
 * In: the context. Out: a Program with its own table of dims, in which everything that has a
 * usual value has it; and what its optimizer keeps.
 */
#include "ir/program.h"

#include <string.h>

Program *program_new(Context *cx)
{
    Program *p = NEW(cx->arena, Program);
    p->cx = cx;
    p->dims = dims_new(cx);
    p->name = intern(cx, "model");
    p->real = DT_F32;
    p->narrow = DT_F32;
    p->train.accumulate = 1;
    p->train.data.split = 1;
    return p;
}

int64_t *program_training_dims(const Program *p)
{
    const int n = dims_count(p->dims);
    int64_t *values = NEW_ARRAY(p->cx->scratch, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        const bool given = s->kind == SYM_CONST || s->value > 0;
        values[i] = given                  ? s->value
                    : s->kind == SYM_BATCH ? PROGRAM_USUAL_BATCH
                                           : PROGRAM_USUAL_DIM;
    }
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind != SYM_PART)
            continue;
        const int64_t step = dim_eval(s->step, values), whole = dim_eval(s->whole, values);
        values[i] = whole < step ? whole : step;
    }
    return values;
}

/* ---- what the optimizer keeps --------------------------------------------------------------- */

static double hyper(const TrainSettings *t, const char *name)
{
    for (int i = 0; i < t->hypers.len; i++)
        if (strcmp(t->hypers.at[i].name, name) == 0)
            return t->hypers.at[i].value;
    return 0;
}

/* Adafactor's: means of rows and of columns of matrices, vectors whole. */
static int factored_states(const Program *p, const int64_t *dims, OptimizerState *state)
{
    int64_t kept[3] = { 0 };
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        const int rank = q->type->rank;
        const int64_t n = dim_eval(type_elems(p->dims, q->stacked), dims);
        if (q->role == ROLE_STATE)
            continue;
        kept[0] += rank < 2 ? 0 : n / dim_eval(q->type->dim[rank - 1], dims);
        kept[1] += rank < 2 ? 0 : n / dim_eval(q->type->dim[rank - 2], dims);
        kept[2] += rank < 2 ? n : 0;
    }
    static const char *const names[] = { "r", "c", "v" };
    for (int i = 0; i < 3; i++)
        state[i] = (OptimizerState){ names[i], kept[i] };
    return 3;
}

int program_states(const Program *p, const int64_t *dims, OptimizerState state[PROGRAM_MAX_STATES])
{
    int64_t flat = 0;
    if (p->train.optimizer == OPT_ADAFACTOR)
        return factored_states(p, dims, state);
    for (int i = 0; i < p->params.len; i++)
        flat += dim_eval(type_elems(p->dims, p->params.at[i].stacked), dims);
    state[0] = (OptimizerState){ "m", flat };
    state[1] = (OptimizerState){ "v", flat };
    return p->train.optimizer == OPT_SGD ? hyper(&p->train, "momentum") != 0 : 2;
}
