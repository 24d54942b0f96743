/* states.c -- what Adafactor and Muon keep of each tensor, and what they work in.
 *
 * In: the model table. Out: shapes, bytes, products. The one idea: a state with a shape of its own
 * is told by a function of the parameter, so that memory, checkpoints and updates agree.
 */
#include "optim/tensor.h"

/* ---- Adafactor ------------------------------------------------------------------------------ */

static int without(const RtParam *q, int axis, ptrdiff_t shape[RT_MAX_RANK])
{
    int rank = 0;
    for (int i = 0; i < q->rank; i++)
        if (i != axis)
            shape[rank++] = q->shape[i];
    return rank;
}

static int rows_shape(const RtModel *m, const RtParam *q, ptrdiff_t shape[RT_MAX_RANK])
{
    RT_UNUSED(m);
    return q->rank < 2 || q->role == RT_STATE ? -1 : without(q, q->rank - 1, shape);
}

static int columns_shape(const RtModel *m, const RtParam *q, ptrdiff_t shape[RT_MAX_RANK])
{
    RT_UNUSED(m);
    return q->rank < 2 || q->role == RT_STATE ? -1 : without(q, q->rank - 2, shape);
}

static int whole_shape(const RtModel *m, const RtParam *q, ptrdiff_t shape[RT_MAX_RANK])
{
    RT_UNUSED(m);
    return q->rank >= 2 || q->role == RT_STATE ? -1 : without(q, -1, shape);
}

int rt_adafactor_states(RtStateTensor state[RT_MAX_STATES])
{
    state[ADAFACTOR_ROWS] = (RtStateTensor){ .name = "r", .shape = rows_shape };
    state[ADAFACTOR_COLUMNS] = (RtStateTensor){ .name = "c", .shape = columns_shape };
    state[ADAFACTOR_WHOLE] = (RtStateTensor){ .name = "v", .shape = whole_shape };
    return 3;
}

/* ---- Muon ------------------------------------------------------------------------------------ */

ptrdiff_t rt_muon_room(ptrdiff_t n) { return (n + RT_ALIGN - 1) / RT_ALIGN * RT_ALIGN; }

RtMatmul rt_muon_square(ptrdiff_t R, ptrdiff_t C)
{
    const bool wide = R <= C;
    const ptrdiff_t k = wide ? R : C;
    return (RtMatmul){ .m = k, .n = k, .k = wide ? C : R, .ta = !wide, .tb = wide };
}

RtMatmul rt_muon_power(ptrdiff_t R, ptrdiff_t C)
{
    const ptrdiff_t k = R <= C ? R : C;
    return (RtMatmul){ .m = k, .n = k, .k = k };
}

RtMatmul rt_muon_apply(ptrdiff_t R, ptrdiff_t C)
{
    return (RtMatmul){ .m = R, .n = C, .k = R <= C ? R : C };
}

bool rt_muon_takes(const RtParam *q)
{
    return q->role == RT_WEIGHT && q->rank == 2 && !q->excepted;
}

static int squares_shape(const RtModel *m, const RtParam *q, ptrdiff_t shape[RT_MAX_RANK])
{
    RT_UNUSED(m);
    memcpy(shape, q->shape, sizeof q->shape);
    return rt_muon_takes(q) || q->role == RT_STATE ? -1 : q->rank;
}

int rt_muon_states(RtStateTensor state[RT_MAX_STATES])
{
    state[MUON_MOMENTUM] = (RtStateTensor){ .name = "m" };
    state[MUON_SQUARES] = (RtStateTensor){ .name = "v_adamw", .shape = squares_shape };
    return 2;
}

size_t rt_optim_work_bytes(const RtModel *m, const RtTrain *t)
{
    ptrdiff_t most = 0;
    for (int i = 0; t->optimizer == RT_MUON && i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        const ptrdiff_t R = q->shape[0], C = q->shape[1], k = R < C ? R : C;
        const ptrdiff_t n = rt_muon_takes(q) ? 2 * rt_muon_room(R * C) + 2 * rt_muon_room(k * k)
                                             : 0;
        most = n > most ? n : most;
    }
    return (size_t)most * rt_real_bytes(m);
}

void rt_optim_rooms(const RtModel *m, const RtTrain *t, RtRooms *rooms)
{
    for (int i = 0; t->optimizer == RT_MUON && i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        const RtMatmul products[] = { rt_muon_square(q->shape[0], q->shape[1]),
                                      rt_muon_power(q->shape[0], q->shape[1]),
                                      rt_muon_apply(q->shape[0], q->shape[1]) };
        for (int k = 0; rt_muon_takes(q) && k < 3; k++)
            rt_room_matmul(rooms, m->real, m->real, products[k]);
    }
}
