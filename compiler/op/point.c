/* point.c -- the pointwise ops: shapes, values in double, and the two transposes that are not text.
 *
 * An operand has the shape of the result or is a scalar. The partials of the others are the texts
 * of their rows, read by partial.c.
 */
#include "op/rows.h"

#include <math.h>

/* The shape that all operands but scalars have; NULL when they differ. */
static const Type *shape_of_operands(int n_in, Node *const *in)
{
    const Type *shape = in[0]->type;
    for (int i = 1; i < n_in; i++) {
        const Type *t = in[i]->type;
        if (shape->rank == 0)
            shape = t;
        else if (t->rank != 0 && !type_same_shape(shape, t))
            return NULL;
    }
    return shape;
}

static int shape_common(Dims *ds, int n_in, Node *const *in, const Type **out, const char **why,
                        const DType *result)
{
    const Type *shape = shape_of_operands(n_in, in);
    if (!shape)
        return shape_refuse(why, "the shapes differ");
    for (int i = 1; i < n_in; i++)
        if (in[i]->type->dtype != in[0]->type->dtype)
            return shape_refuse(why, "the dtypes differ");
    out[0] = type_of(ds, result ? *result : in[0]->type->dtype, shape->rank, shape->dim);
    return 1;
}

SHAPE(shape_same)
{
    (void)attr;
    return shape_common(ds, n_in, in, out, why, NULL);
}

SHAPE(shape_point)
{
    (void)attr;
    if (in[0]->type->dtype == DT_BOOL)
        return shape_refuse(why, "a truth value is not a number");
    return shape_common(ds, n_in, in, out, why, NULL);
}

SHAPE(shape_real)
{
    (void)attr;
    if (!dtype_is_real(in[0]->type->dtype))
        return shape_refuse(why, "real numbers are wanted");
    return shape_common(ds, n_in, in, out, why, NULL);
}

SHAPE(shape_compare)
{
    (void)attr;
    DType truth = DT_BOOL;
    return shape_common(ds, n_in, in, out, why, &truth);
}

SHAPE(shape_logic)
{
    (void)attr;
    if (in[0]->type->dtype != DT_BOOL)
        return shape_refuse(why, "truth values are wanted");
    return shape_common(ds, n_in, in, out, why, NULL);
}

SHAPE(shape_where)
{
    (void)attr;
    const Type *shape = shape_of_operands(n_in, in);
    if (in[0]->type->dtype != DT_BOOL)
        return shape_refuse(why, "the condition is not a truth value");
    if (in[1]->type->dtype != in[2]->type->dtype)
        return shape_refuse(why, "the dtypes differ");
    if (!shape)
        return shape_refuse(why, "the shapes differ");
    out[0] = type_of(ds, in[1]->type->dtype, shape->rank, shape->dim);
    return 1;
}

CHECK(check_cast)
{
    (void)g;
    (void)n_in;
    (void)attr;
    return type_same_shape(type, in[0]->type) ? NULL : "a cast keeps the shape";
}

/* ---- transposes ---------------------------------------------------------------------------- */

TRANSPOSES(transpose_where)
{
    Node *zero = ir_const(a->g, a->n->type->dtype, 0, a->at), *d = a->d_out[0];
    d_in[0] = NULL;
    d_in[1] = op_unbroadcast(a->g, ir_where(a->g, a->in[0], d, zero, a->at), a->in[1]->type, a->at);
    d_in[2] = op_unbroadcast(a->g, ir_where(a->g, a->in[0], zero, d, a->at), a->in[2]->type, a->at);
}

TRANSPOSES(transpose_cast)
{
    DType from = a->in[0]->type->dtype;
    bool real = dtype_is_real(from) && dtype_is_real(a->n->type->dtype);
    d_in[0] = real ? ir_cast(a->g, a->d_out[0], from, a->at) : NULL;
}

/* The gradient of what is stored in 16 bits is stored so too. */
TRANSPOSES(transpose_narrow) { d_in[0] = ir_unary(a->g, a->n->op, a->d_out[0], a->at); }

/* ---- values -------------------------------------------------------------------------------- */

/* a in a format of `digits` significant bits and exponents from `least` to `most`, as IEEE 754
   rounds: to the nearest, ties to even, gradually to 0, above the largest to infinity. */
static double round_to(double a, int digits, int least, int most)
{
    int exponent;
    if (a == 0 || !isfinite(a))
        return a;
    frexp(a, &exponent); /* |a| in [2^(exponent - 1), 2^exponent) */
    const int last = (exponent - 1 < least ? least : exponent - 1) - (digits - 1);
    const double rounded = ldexp(nearbyint(ldexp(a, -last)), last);
    return fabs(rounded) >= ldexp(1, most + 1) ? copysign(INFINITY, a) : rounded;
}

double op_round(double a, DType narrow)
{
    return narrow == DT_BF16 ? round_to(a, 8, -126, 127) : round_to(a, 11, -14, 15);
}

bool op_fits(double a, DType narrow) { return op_round(a, narrow) == a || isnan(a); }

static double value_unary(Op op, double a)
{
    switch (op) {
    case OP_NEG: return -a;
    case OP_EXP: return exp(a);
    case OP_LOG: return log(a);
    case OP_SQRT: return sqrt(a);
    case OP_RSQRT: return 1 / sqrt(a);
    case OP_TANH: return tanh(a);
    case OP_ERF: return erf(a);
    case OP_SIGMOID: return a >= 0 ? 1 / (1 + exp(-a)) : exp(a) / (1 + exp(a));
    case OP_SIN: return sin(a);
    case OP_COS: return cos(a);
    case OP_ABS: return fabs(a);
    case OP_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    case OP_FLOOR: return floor(a);
    case OP_NOT: return a == 0;
    case OP_STOP: return a;
    case OP_BF16: return op_round(a, DT_BF16);
    case OP_F16: return op_round(a, DT_F16);
    case OP_COPY16:
    case OP_WIDEN:
    case OP_NARROW: return a;
    default: bug("%s has no value of one operand", op_row(op)->name);
    }
}

static double value_binary(Op op, double a, double b)
{
    switch (op) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_FDIV: return floor(a / b);
    case OP_MOD: return a - b * floor(a / b);
    case OP_POW: return pow(a, b);
    case OP_MIN: return isnan(b) || b < a ? b : a;
    case OP_MAX: return isnan(b) || b > a ? b : a;
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_AND: return a != 0 && b != 0;
    case OP_OR: return a != 0 || b != 0;
    default: bug("%s has no value of two operands", op_row(op)->name);
    }
}

/* The op whose values n has: for the copy of a parameter, rounding to the program's format. */
static Op value_op(const Node *n)
{
    if (n->op != OP_COPY16)
        return n->op;
    const DType narrow = n->graph->program->narrow;
    return narrow == DT_BF16 ? OP_BF16 : narrow == DT_F16 ? OP_F16 : OP_COPY16;
}

EVAL(eval_point)
{
    (void)a;
    (void)env;
    const Op op = value_op(n);
    for (int64_t i = 0; i < out->elems; i++) {
        double x[3] = { 0 };
        for (int k = 0; k < n->n_in; k++)
            x[k] = in[k]->at[in[k]->rank ? i : 0];
        out->at[i] = n->n_in == 1   ? value_unary(op, x[0])
                     : n->n_in == 2 ? value_binary(n->op, x[0], x[1])
                     : x[0] != 0    ? x[1]
                                    : x[2];
    }
}

EVAL(eval_cast)
{
    (void)a;
    (void)env;
    for (int64_t i = 0; i < out->elems; i++) {
        double x = in[0]->at[i];
        out->at[i] = n->type->dtype == DT_BOOL ? x != 0 : n->type->dtype == DT_I32 ? trunc(x) : x;
    }
}
