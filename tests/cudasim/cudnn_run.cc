/* cudnn_run.cc -- computes graphs of the simulated cuDNN, operation by operation, by definition.
 *
 * In: a graph, addresses on the device. Out: what it writes. Values that are not in memory are
 * kept whole, in fp32, also those that are described in 16 bits: where the real library rounds on
 * the way is its own affair. Sums are taken in double.
 */
#include <math.h>
#include <string.h>

#include <string>

#include "cudasim_library.h"
#include "cudnn.h"
#include "half.h"

typedef struct {
    const DnGraph *g;
    const std::map<int64_t, void *> *at;
    std::map<int64_t, std::vector<float>> values; /* dense, by number */
} Run;

static size_t size_of(int type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

static float get(const char *from, int type)
{
    uint16_t half;
    float x;
    if (type == CUDNN_DATA_FLOAT) {
        memcpy(&x, from, sizeof x);
        return x;
    }
    memcpy(&half, from, sizeof half);
    return type == CUDNN_DATA_BFLOAT16 ? rt_of_bf16(half) : rt_of_f16(half);
}

static void put(char *to, int type, float x)
{
    if (type == CUDNN_DATA_FLOAT) {
        memcpy(to, &x, sizeof x);
        return;
    }
    const uint16_t half = type == CUDNN_DATA_BFLOAT16 ? rt_to_bf16(x) : rt_to_f16(x);
    memcpy(to, &half, sizeof half);
}

static size_t elements(const DnTensor *t)
{
    return (size_t)(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
}

typedef struct {
    int64_t i[4];
} Place;

static Place place_of(const DnTensor *t, size_t n)
{
    Place p;
    for (int axis = 3; axis >= 0; axis--) {
        p.i[axis] = (int64_t)n % t->dim[axis];
        n /= (size_t)t->dim[axis];
    }
    return p;
}

/* Number of an element of x, where x has as many as y along each axis, or one, or a divisor: heads
   that a group shares. */
static size_t number_in(const DnTensor *x, const DnTensor *y, Place p)
{
    size_t n = 0;
    for (int axis = 0; axis < 4; axis++)
        n = n * (size_t)x->dim[axis]
            + (size_t)(p.i[axis] / ((y->dim[axis] + x->dim[axis] - 1) / x->dim[axis]));
    return n;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static char *element(const Run *r, const DnTensor *t, Place p)
{
    int64_t at = 0;
    for (int axis = 0; axis < 4; axis++)
        at += p.i[axis] * t->step[axis];
    return (char *)r->at->at(t->number) + at * (int64_t)size_of(t->type);
}

/* Tells the memory of every row of values that lie side by side. */
static void touch(const Run *r, const DnTensor *t, bool write)
{
    static std::map<int64_t, std::string> names; /* messages may come later */
    const char *name =
        (names[t->number] = "tensor " + std::to_string(t->number) + " of cuDNN").c_str();
    const int along = t->step[3] == 1 ? 3 : 2;
    for (size_t n = 0; n < elements(t); n++) {
        const Place p = place_of(t, n);
        if (p.i[along])
            continue;
        const size_t bytes = (size_t)t->dim[along] * size_of(t->type);
        if (write)
            cudasim_writes(element(r, t, p), bytes, name);
        else
            cudasim_reads(element(r, t, p), bytes, name);
    }
}

static const std::vector<float> &value(Run *r, int64_t number)
{
    const auto found = r->values.find(number);
    if (found != r->values.end())
        return found->second;
    const DnTensor *t = &r->g->tensors.at(number);
    std::vector<float> x(elements(t));
    touch(r, t, false);
    for (size_t n = 0; n < x.size(); n++)
        x[n] = get(element(r, t, place_of(t, n)), t->type);
    return r->values[number] = x;
}

static void keep(Run *r, int64_t number, std::vector<float> x)
{
    const DnTensor *t = &r->g->tensors.at(number);
    if (!t->hidden) {
        touch(r, t, true);
        for (size_t n = 0; n < x.size(); n++)
            put(element(r, t, place_of(t, n)), t->type, x[n]);
    }
    r->values[number] = x;
}

/* ---- operations ------------------------------------------------------------------------------ */

static float point(const DnOp *op, float x, float b, float t, Place p)
{
    switch (op->what) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return expf(x);
    case CUDNN_POINTWISE_LOG: return logf(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_GEN_INDEX: return (float)p.i[op->axis];
    default: return t != 0 ? x : b; /* CUDNN_POINTWISE_BINARY_SELECT */
    }
}

static void run_point(Run *r, const DnOp *op)
{
    static const std::vector<float> none(1);
    const std::map<int64_t, DnTensor> &all = r->g->tensors;
    const DnTensor *y = &all.at(op->y), *tx = &all.at(op->x);
    const DnTensor *tb = op->b < 0 ? NULL : &all.at(op->b), *tt = op->t < 0 ? NULL : &all.at(op->t);
    const bool index = op->what == CUDNN_POINTWISE_GEN_INDEX;
    const std::vector<float> &x = index ? none : value(r, op->x);
    const std::vector<float> &b = tb ? value(r, op->b) : none;
    const std::vector<float> &t = tt ? value(r, op->t) : none;
    std::vector<float> out(elements(y));
    for (size_t n = 0; n < out.size(); n++) {
        const Place p = place_of(y, n);
        out[n] = point(op, index ? 0 : x[number_in(tx, y, p)], tb ? b[number_in(tb, y, p)] : 0,
                       tt ? t[number_in(tt, y, p)] : 0, p);
    }
    keep(r, op->y, out);
}

static void run_matmul(Run *r, const DnOp *op)
{
    const DnTensor *ta = &r->g->tensors.at(op->x), *tb = &r->g->tensors.at(op->b);
    const DnTensor *tc = &r->g->tensors.at(op->y);
    const std::vector<float> &a = value(r, op->x), &b = value(r, op->b);
    std::vector<float> out(elements(tc));
    const size_t depth = (size_t)ta->dim[3], width = (size_t)tb->dim[3];
    for (size_t n = 0; n < out.size(); n++) {
        Place p = place_of(tc, n);
        const size_t column = (size_t)p.i[3];
        p.i[3] = 0;
        const float *row = &a[number_in(ta, tc, p)];
        p.i[2] = 0;
        const float *from = &b[number_in(tb, tc, p)] + column;
        double sum = 0;
        for (size_t k = 0; k < depth; k++)
            sum += (double)row[k] * (double)from[k * width];
        out[n] = (float)sum;
    }
    keep(r, op->y, out);
}

static void run_reduction(Run *r, const DnOp *op)
{
    const DnTensor *tx = &r->g->tensors.at(op->x), *ty = &r->g->tensors.at(op->y);
    const std::vector<float> &x = value(r, op->x);
    const bool most = op->what == CUDNN_REDUCE_TENSOR_MAX;
    std::vector<double> sum(elements(ty), most ? -INFINITY : 0.0);
    for (size_t n = 0; n < x.size(); n++) {
        double *to = &sum[number_in(ty, tx, place_of(tx, n))];
        *to = most ? fmax(*to, (double)x[n]) : *to + (double)x[n];
    }
    keep(r, op->y, std::vector<float>(sum.begin(), sum.end()));
}

/* As it is described, the last two axes change places. */
static void run_reshape(Run *r, const DnOp *op)
{
    const DnTensor *tx = &r->g->tensors.at(op->x), *ty = &r->g->tensors.at(op->y);
    const std::vector<float> &x = value(r, op->x);
    std::vector<float> out(elements(ty));
    if (tx->dim[2] != ty->dim[3] || tx->dim[3] != ty->dim[2] || tx->dim[1] != ty->dim[1])
        cudasim_report("not modelled: a reshape of cuDNN that turns no matrix");
    for (size_t n = 0; n < out.size(); n++) {
        Place p = place_of(ty, n);
        const int64_t row = p.i[2];
        p.i[2] = p.i[3];
        p.i[3] = row;
        out[n] = x[number_in(tx, tx, p)];
    }
    keep(r, op->y, out);
}

void dn_run(const DnGraph *g, const std::map<int64_t, void *> &at,
            const std::map<int64_t, float> &values, void *work, int64_t work_bytes)
{
    Run r = { g, &at, {} };
    for (const auto &entry : values)
        r.values[entry.first] = std::vector<float>(1, entry.second);
    if (work_bytes > 0) { /* what it holds before and after is of no use */
        cudasim_writes(work, (size_t)work_bytes, "work space of cuDNN");
        memset(work, 0xff, (size_t)work_bytes);
        cudasim_unwrite(work, (size_t)work_bytes);
    }
    for (const DnOp &op : g->ops)
        switch (op.kind) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: run_matmul(&r, &op); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: run_reduction(&r, &op); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: run_reshape(&r, &op); break;
        default: run_point(&r, &op); break;
        }
}
