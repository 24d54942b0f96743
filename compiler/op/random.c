/* random.c -- counter-based random numbers: checks and values.
 *
 * A draw is a function of (seed, step, stream, global sample index, element within the sample) and
 * of nothing else, so it does not depend on micro-steps, ranks, threads or recomputation. The
 * generator is Philox4x32-10 with
 *   key     = (seed low, seed high)
 *   counter = (element >> 2, sample low, stream low ^ step,
 *              stream high ^ sample high ^ (element >> 34))
 * and word (element & 3) of the block is used; low and high are the 32-bit halves. The runtime's
 * num.h has the same definition, for the numbers of emitted programs.
 *   stream   FNV-1a, 64 bits, of the text in attr, then mixed with the iteration of each enclosing
 *            loop, outermost first (splitmix64 of the stream and the iteration)
 *   sample   sample_base + index along the sample axis: the one axis whose dim has a batch symbol B
 *            in it. An axis of B*T is B samples of T elements, in that order. Without such an axis
 *            it is 0. Two of them, or one of B + 1, belong to no sample: such a draw is refused
 *   element  row-major index within the sample: over all axes, where the sample axis has what is
 *            left of it after the division by B
 * Uniform: (word >> 8) 2^-24, in [0, 1). Normal: sqrt(-2 ln(1 - u1)) cos(2 pi u2), where u1 and u2
 * are the uniform numbers of elements 2e and 2e + 1.
 */
#include "op/rows.h"

#include <math.h>

CHECK(check_draw)
{
    bool follows = false;
    for (int i = 0; i < n_in; i++)
        if (in[i]->type->dtype != DT_I32 || in[i]->type->rank != 0)
            return "the inputs of a draw are iterations, i32 scalars";
    if (!attr->stream)
        return "a draw needs a stream";
    for (int i = 0; i < type->rank; i++) {
        if (!dim_has_kind(type->dim[i], SYM_BATCH))
            continue;
        if (follows || !dim_per_sample(g->program->dims, type->dim[i]))
            return "a draw has one axis of whole samples, or none";
        follows = true;
    }
    return dtype_is_real(type->dtype) ? NULL : "random numbers are real";
}

uint64_t op_stream_hash(const char *stream)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *c = (const unsigned char *)stream; *c; c++)
        h = (h ^ *c) * 0x100000001b3u;
    return h;
}

static uint64_t mix_iteration(uint64_t stream, uint64_t iteration)
{
    uint64_t z = stream + 0x9e3779b97f4a7c15u * (iteration + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t philox_word(const EvalEnv *env, uint64_t stream, uint64_t sample, uint64_t element)
{
    uint32_t key[2] = { (uint32_t)env->seed, (uint32_t)(env->seed >> 32) };
    uint32_t c[4] = {
        (uint32_t)(element >> 2),
        (uint32_t)sample,
        (uint32_t)stream ^ (uint32_t)env->step,
        (uint32_t)(stream >> 32) ^ (uint32_t)(sample >> 32) ^ (uint32_t)(element >> 34),
    };
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {
            (uint32_t)(q >> 32) ^ c[1] ^ key[0],
            (uint32_t)q,
            (uint32_t)(p >> 32) ^ c[3] ^ key[1],
            (uint32_t)p,
        };
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return c[element & 3];
}

static double uniform(const EvalEnv *env, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (double)(philox_word(env, stream, sample, element) >> 8) * 0x1p-24;
}

static double normal(const EvalEnv *env, uint64_t stream, uint64_t sample, uint64_t element)
{
    double u1 = uniform(env, stream, sample, 2 * element);
    double u2 = uniform(env, stream, sample, 2 * element + 1);
    return sqrt(-2 * log(1 - u1)) * cos(2 * 3.14159265358979323846 * u2);
}

/* The sample axis, -1 = none, and how many elements of it belong to one sample. */
static int sample_axis(const Node *n, const EvalEnv *env, int64_t *rest)
{
    for (int k = 0; k < n->type->rank; k++) {
        const Dim *each = dim_per_sample(n->graph->program->dims, n->type->dim[k]);
        if (each) {
            *rest = dim_eval(each, env->dims);
            return k;
        }
    }
    return -1;
}

EVAL(eval_draw)
{
    (void)a;
    int64_t rest = 1;
    int axis = sample_axis(n, env, &rest);
    uint64_t stream = op_stream_hash(n->attr.stream);
    for (int k = 0; k < n->n_in; k++)
        stream = mix_iteration(stream, (uint64_t)in[k]->at[0]);
    Tensor within = *out;
    if (axis >= 0)
        within.dim[axis] = rest;
    for (int64_t i = 0; i < out->elems; i++) {
        int64_t idx[RANK_MAX] = { 0 }, sample = 0;
        index_split(out, i, idx);
        if (axis >= 0) {
            sample = env->sample_base + idx[axis] / rest;
            idx[axis] %= rest;
        }
        uint64_t element = (uint64_t)index_join(&within, idx);
        out->at[i] = n->op == OP_UNIFORM ? uniform(env, stream, (uint64_t)sample, element)
                                         : normal(env, stream, (uint64_t)sample, element);
    }
}
