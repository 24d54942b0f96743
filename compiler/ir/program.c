/* program.c -- an empty model table, the sizes it is trained with, what its optimizer keeps.
 *
 * In: the context. Out: a Program with its own table of dims, in which everything that has a
 * usual value has it; the states of an optimizer and what its update works in.
 */
#include "ir/program.h"

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

bool rule_arg_is_element(const Program *p, int arg)
{
    return arg == RULE_P || arg == RULE_G
           || (arg >= RULE_STATES && arg < RULE_STATES + p->train.states.len);
}

bool program_has_halves(const Program *p)
{
    for (int i = 0; i < p->params.len; i++)
        if (p->params.at[i].half)
            return true;
    return false;
}

bool program_dim_is_set(const Symbol *s) { return s->kind == SYM_CONST || s->value > 0; }

const char *program_sizes_text(const Program *p, const int64_t *values, const bool *set)
{
    Text t = text_new(p->cx->arena);
    for (int i = 0; i < dims_count(p->dims); i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind == SYM_DIM || s->kind == SYM_BATCH)
            text_add(&t, "%s%s = %lld%s", t.len ? ", " : "", s->name, (long long)values[i],
                     set[i] ? "" : " (not set)");
    }
    return t.at;
}

int64_t *program_training_dims(const Program *p)
{
    const int n = dims_count(p->dims);
    int64_t *values = NEW_ARRAY(p->cx->scratch, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        values[i] = program_dim_is_set(s)  ? s->value
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

bool program_is_muon(const Program *p, const Param *q)
{
    return p->train.optimizer == OPT_MUON && q->role == ROLE_WEIGHT && q->type->rank == 2
           && !q->excepted;
}

int program_states(const Program *p, const int64_t *dims, OptimizerState state[PROGRAM_MAX_STATES])
{
    int64_t flat = 0;
    if (p->train.optimizer == OPT_ADAFACTOR)
        return factored_states(p, dims, state);
    int64_t squares = 0; /* Muon keeps none of its own matrices */
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        const int64_t n = dim_eval(type_elems(p->dims, q->stacked), dims);
        const bool none = p->train.optimizer == OPT_MUON && q->role == ROLE_STATE;
        flat += n;
        squares += none || program_is_muon(p, q) ? 0 : n;
    }
    if (p->train.optimizer == OPT_RULE) {
        for (int i = 0; i < p->train.states.len; i++)
            state[i] = (OptimizerState){ p->train.states.at[i], flat };
        return p->train.states.len;
    }
    state[0] = (OptimizerState){ "m", flat };
    state[1] = (OptimizerState){ p->train.optimizer == OPT_MUON ? "v_adamw" : "v", squares };
    return 2;
}

/* ---- what the update works in --------------------------------------------------------------- */

enum { ALIGNED = 64 }; /* elements that a buffer's size is rounded up to */

static int64_t room(int64_t n) { return (n + ALIGNED - 1) / ALIGNED * ALIGNED; }

static void sides(const Param *q, const int64_t *dims, int64_t *least, int64_t *most)
{
    const int64_t R = dim_eval(q->type->dim[0], dims), C = dim_eval(q->type->dim[1], dims);
    *least = R < C ? R : C;
    *most = R < C ? C : R;
}

int64_t program_update_bytes(const Program *p, const int64_t *dims)
{
    int64_t most = 0, k, l;
    for (int i = 0; i < p->params.len; i++) {
        if (!program_is_muon(p, &p->params.at[i]))
            continue;
        sides(&p->params.at[i], dims, &k, &l);
        const int64_t n = 2 * room(k * l) + 2 * room(k * k);
        most = n > most ? n : most;
    }
    return most * dtype_bytes(p->real);
}

/* Five times, of k x l with k <= l: X X', A A and A X, 2 k k l + 2 k k k + 2 k k l. */
double program_update_flops(const Program *p, const int64_t *dims)
{
    double sum = 0;
    int64_t k, l;
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        if (!program_is_muon(p, q))
            continue;
        sides(q, dims, &k, &l);
        const double times = (double)dim_eval(type_elems(p->dims, q->stacked), dims)
                             / ((double)k * (double)l);
        sum += times * (double)k * (double)k * (20.0 * (double)l + 10.0 * (double)k);
    }
    return sum;
}
