/* cudnn_graph.cc -- graphs of operations of the simulated cuDNN: what is right, what has an engine.
 *
 * In: descriptors. Out: tensors and operations in order. Each value is written before it is read,
 * and by one operation; sizes fit. There are engines for the two graphs that the real library knows
 * as attention, with the types, sizes and layouts that it takes; all other graphs have none.
 */
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <string>

#include "cudasim.h"
#include "cudnn.h"

bool dn_setting(const char *name)
{
    const char *value = getenv("CUDASIM_CUDNN");
    if (value && strcmp(value, "old") && strcmp(value, "none") && strcmp(value, "atomic")
        && strcmp(value, "many"))
        cudasim_report("CUDASIM_CUDNN is old, none, atomic or many, not %s", value);
    return value && strcmp(value, name) == 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int int_of(const DnDescriptor *d, int name, int otherwise)
{
    const void *value = dn_value(d, name);
    return value ? *(const int *)value : otherwise;
}

static int64_t wide_of(const DnDescriptor *d, int name, int64_t otherwise)
{
    const void *value = dn_value(d, name);
    return value ? *(const int64_t *)value : otherwise;
}

static bool flag_of(const DnDescriptor *d, int name)
{
    const void *value = dn_value(d, name);
    return value && *(const bool *)value;
}

cudnnStatus_t dn_tensor(const DnDescriptor *d, DnTensor *to)
{
    const void *dim = dn_value(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const void *step = dn_value(d, CUDNN_ATTR_TENSOR_STRIDES);
    to->type = int_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1);
    to->number = wide_of(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1);
    to->align = wide_of(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    to->hidden = flag_of(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    to->by_value = flag_of(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    if (!dim || !step || to->type < 0 || to->number < 0 || to->align <= 0)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a tensor without an attribute that it needs");
    memcpy(to->dim, dim, sizeof to->dim);
    memcpy(to->step, step, sizeof to->step);
    for (int i = 0; i < 4; i++)
        if (to->dim[i] < 1 || to->step[i] < 1)
            return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a tensor without elements or steps");
    return CUDNN_STATUS_SUCCESS;
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef struct {
    DnOp op;
    DnTensor x, b, t, y;
} Found;

static bool read_tensor(const DnDescriptor *d, int name, DnTensor *to, int64_t *number)
{
    const DnDescriptor *part = dn_part(d, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    *number = -1;
    if (!part || !part->final || dn_tensor(part, to))
        return false;
    *number = to->number;
    return true;
}

static Found read_op(const DnDescriptor *d)
{
    Found f = {};
    int first = CUDNN_ATTR_OPERATION_RESHAPE_XDESC, last = CUDNN_ATTR_OPERATION_RESHAPE_YDESC;
    f.op.kind = d->type;
    f.op.x = f.op.b = f.op.t = f.op.y = -1;
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        const DnDescriptor *what = dn_part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                           CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        f.op.what = what && what->final ? int_of(what, CUDNN_ATTR_POINTWISE_MODE, -1) : -1;
        f.op.axis = what ? wide_of(what, CUDNN_ATTR_POINTWISE_AXIS, -1) : -1;
        first = CUDNN_ATTR_OPERATION_POINTWISE_XDESC, last = CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
        (void)read_tensor(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &f.b, &f.op.b);
        (void)read_tensor(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &f.t, &f.op.t);
    } else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        const DnDescriptor *what = dn_part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                                           CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        f.op.what = what && what->final ? int_of(what, CUDNN_ATTR_REDUCTION_OPERATOR, -1) : -1;
        first = CUDNN_ATTR_OPERATION_REDUCTION_XDESC, last = CUDNN_ATTR_OPERATION_REDUCTION_YDESC;
    } else if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        const DnDescriptor *what = dn_part(d, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                                           CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        f.op.what = what && what->final ? 0 : -1;
        first = CUDNN_ATTR_OPERATION_MATMUL_ADESC, last = CUDNN_ATTR_OPERATION_MATMUL_CDESC;
        (void)read_tensor(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, &f.b, &f.op.b);
    }
    (void)read_tensor(d, first, &f.x, &f.op.x);
    (void)read_tensor(d, last, &f.y, &f.op.y);
    return f;
}

static int64_t elements(const DnTensor *t) { return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; }

/* Axes of one element stand for as many as the result has. */
static bool spreads(const DnTensor *x, const DnTensor *y)
{
    for (int i = 0; i < 4; i++)
        if (x->dim[i] != y->dim[i] && x->dim[i] != 1)
            return false;
    return true;
}

/* Heads of b may serve a group of those of a. */
static bool multiplies(const DnTensor *a, const DnTensor *b, const DnTensor *c)
{
    return a->dim[0] == c->dim[0] && a->dim[1] == c->dim[1] && b->dim[0] == c->dim[0]
           && c->dim[1] % b->dim[1] == 0 && a->dim[2] == c->dim[2] && b->dim[3] == c->dim[3]
           && a->dim[3] == b->dim[2];
}

/* Each axis of the result divides that of x. */
static bool reduces(const DnTensor *x, const DnTensor *y)
{
    for (int i = 0; i < 4; i++)
        if (x->dim[i] % y->dim[i])
            return false;
    return true;
}

/* How many operands a pointwise operation has, 0: not modelled. */
static int operands(int mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return 0;
    }
}

static bool is_right(const Found *f)
{
    const DnOp *op = &f->op;
    if (op->x < 0 || op->y < 0 || op->what < 0)
        return false;
    switch (op->kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return op->b >= 0 && multiplies(&f->x, &f->b, &f->y);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return (op->what == CUDNN_REDUCE_TENSOR_ADD || op->what == CUDNN_REDUCE_TENSOR_MAX)
               && reduces(&f->x, &f->y);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return elements(&f->x) == elements(&f->y);
    default: break;
    }
    const int n = operands(op->what);
    if (n == 0)
        cudasim_report("not modelled: mode %d of a pointwise operation of cuDNN", op->what);
    return spreads(&f->x, &f->y) && (op->b >= 0) == (n > 1) && (op->t >= 0) == (n > 2)
           && (n < 2 || spreads(&f->b, &f->y)) && (n < 3 || spreads(&f->t, &f->y))
           && (op->what != CUDNN_POINTWISE_GEN_INDEX || (op->axis >= 0 && op->axis < 4));
}

cudnnStatus_t dn_check_op(const DnDescriptor *d)
{
    const Found f = read_op(d);
    return is_right(&f) ? CUDNN_STATUS_SUCCESS
                        : dn_wrong(CUDNN_STATUS_BAD_PARAM, "tensors of an operation do not fit");
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool same(const DnTensor *a, const DnTensor *b)
{
    return a->type == b->type && a->align == b->align && a->hidden == b->hidden
           && a->by_value == b->by_value && !memcmp(a->dim, b->dim, sizeof a->dim)
           && !memcmp(a->step, b->step, sizeof a->step);
}

static bool keep(DnGraph *g, const DnTensor *t, int64_t number)
{
    if (number < 0)
        return true;
    const auto old = g->tensors.find(number);
    if (old != g->tensors.end())
        return same(&old->second, t);
    g->tensors[number] = *t;
    return true;
}

cudnnStatus_t dn_graph(const DnDescriptor *graph, DnGraph *to)
{
    const DnAttribute &ops = graph->set.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    std::set<int64_t> written;
    for (int64_t i = 0; i < ops.count; i++) {
        const DnDescriptor *d = (const DnDescriptor *)((void *const *)ops.bytes.data())[i];
        if (d->mark != DN_LIVE || !d->final)
            return dn_wrong(CUDNN_STATUS_BAD_PARAM, "an operation that is not final");
        const Found f = read_op(d);
        if (!keep(to, &f.x, f.op.x) || !keep(to, &f.b, f.op.b) || !keep(to, &f.t, f.op.t)
            || !keep(to, &f.y, f.op.y))
            return dn_wrong(CUDNN_STATUS_BAD_PARAM, "two tensors have one number");
        for (int64_t number : { f.op.x, f.op.b, f.op.t })
            if (number >= 0 && to->tensors.at(number).hidden && !written.count(number))
                return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a value is read before it is written");
        if (!written.insert(f.op.y).second)
            return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a value is written twice");
        to->ops.push_back(f.op);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- engines --------------------------------------------------------------------------------- */

typedef enum { UNKNOWN, FORWARD, BACKWARD } Kind;

/* The graph in letters, an operation each: what the real library looks for. */
static Kind kind_of(const DnGraph *g)
{
    static const struct {
        Kind kind;
        const char *letters;
    } known[] = {
        { FORWARD, "@*M-e+l+/@" },           { FORWARD, "@*ii>?M-e+l+/@" },
        { BACKWARD, "*+*@*-er@@-**r@r@" },   { BACKWARD, "*+*@*-ii>?er@@-**r@r@" },
        { BACKWARD, "*+*@*-er@+@-**r@+r@" }, { BACKWARD, "*+*@*-ii>?er@+@-**r@+r@" },
    };
    std::string letters;
    for (const DnOp &op : g->ops)
        if (op.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            letters += '@';
        else if (op.kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
            letters += 'r';
        else if (op.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            letters += op.what == CUDNN_REDUCE_TENSOR_MAX ? 'M' : '+';
        else
            letters += op.what == CUDNN_POINTWISE_MUL             ? '*'
                       : op.what == CUDNN_POINTWISE_ADD           ? '+'
                       : op.what == CUDNN_POINTWISE_SUB           ? '-'
                       : op.what == CUDNN_POINTWISE_DIV           ? '/'
                       : op.what == CUDNN_POINTWISE_EXP           ? 'e'
                       : op.what == CUDNN_POINTWISE_LOG           ? 'l'
                       : op.what == CUDNN_POINTWISE_GEN_INDEX     ? 'i'
                       : op.what == CUDNN_POINTWISE_CMP_GE        ? '>'
                       : op.what == CUDNN_POINTWISE_BINARY_SELECT ? '?'
                                                                  : ' ';
    for (const auto &row : known)
        if (letters == row.letters)
            return row.kind;
    return UNKNOWN;
}

/* Heads in memory: 16 bits, rows side by side of a multiple of 8 up to 128 values. */
static bool fits(const DnTensor *t)
{
    if (t->hidden || t->by_value || t->type == CUDNN_DATA_FLOAT)
        return true;
    const int along = t->step[3] == 1 ? 3 : 2;
    return (t->type == CUDNN_DATA_BFLOAT16 || t->type == CUDNN_DATA_HALF) && t->step[along] == 1
           && t->dim[along] % 8 == 0 && t->dim[along] <= 128 && t->align >= 16;
}

int dn_engines(const DnGraph *g, int64_t engine[DN_ENGINES], int64_t *work_bytes)
{
    const Kind kind = kind_of(g);
    *work_bytes = 256;
    if (kind == UNKNOWN || dn_setting("none"))
        return 0;
    for (const auto &entry : g->tensors)
        if (!fits(&entry.second))
            return 0;
    if (kind == BACKWARD) /* the gradient of the scores, in 16 bits */
        for (const auto &entry : g->tensors) {
            const DnTensor &t = entry.second;
            if (t.hidden && t.type == CUDNN_DATA_FLOAT && t.dim[3] > 1)
                *work_bytes = std::max(*work_bytes, 256 + 2 * elements(&t));
        }
    std::fill(engine, engine + DN_ENGINES, (int64_t)DN_ENGINE_ATOMIC);
    if (dn_setting("atomic") || dn_setting("many"))
        return dn_setting("many") ? (int)DN_ENGINES : 1;
    engine[1] = DN_ENGINE;
    return 2;
}
