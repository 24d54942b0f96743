/* rt_update.h -- one launch that updates all parameters: what its blocks are given, and how their
 * threads read and write elements, four at a time.
 *
 * The flat buffer is cut into parts that have the same numbers (rate, decay); a block updates one.
 * Cuts lie at multiples of RT_UPDATE_PART wherever the numbers allow it, so all groups of four but
 * those at the ends of a part are read and written by one access of 16 bytes (fp64: two).
 */
#ifndef GRADCC_RT_UPDATE_H
#define GRADCC_RT_UPDATE_H

#include "rt_device.h"

enum {
    RT_UPDATE_PART = 4096,                    /* most elements of a part */
    RT_UPDATE_THREADS = 256,                  /* of a block */
    RT_UPDATE_STRIDE = 4 * RT_UPDATE_THREADS, /* elements that a block has at a time */
};

typedef struct RtPart { /* elements from..to-1 of the flat buffer, with the same numbers */
    ptrdiff_t from, to;
    double rate, decay; /* factor of the learning rate; weight decay */
    int tensor;         /* row of the optimizer's table of tensors, where it has one */
    bool half;          /* kept in 16 bits alone */
} RtPart;

/* All that an update reads and writes. Step values are those of the device: s is the step's twin
   there, and nothing happens unless s->finite. */
struct RtUpdates {
    void *p;                    /* parameters, real type; flat, as all that follow */
    void *copy;                 /* the same in 16 bits; NULL: the model has no copy */
    uint16_t *half;             /* where parts of .half are; NULL: there are none */
    void *average;              /* of the weights; NULL: none is kept */
    void *state[RT_MAX_STATES]; /* of the optimizer */
    const void *d_p;            /* gradients, still to be multiplied with rt_update_factor */
    const RtPart *part;
    int n_parts;
    double hyper[RT_MAX_HYPERS]; /* numbers of the optimizer, in the order of RtTrain.hyper */
    const double *power;         /* each of them to the power of t, the number of the update */
    double ema;                  /* decay of the average of the weights */
    const RtStep *s;
};

/* What clipping leaves, divided by the loss scale that gradients still have. */
RT_DEVICE double rt_update_factor(const RtStep *s)
{
    return s->factor / (s->scale > 0 ? s->scale : 1);
}

/* The first group of four of a thread; it may begin before q.from. */
RT_DEVICE ptrdiff_t rt_update_first(const RtPart &q)
{
    return (q.from & ~(ptrdiff_t)3) + 4 * (ptrdiff_t)threadIdx.x;
}

RT_DEVICE bool rt_part_has(const RtPart &q, ptrdiff_t i) { return i >= q.from && i < q.to; }

/* Are elements i..i+3 all in the part? */
RT_DEVICE bool rt_part_has_four(const RtPart &q, ptrdiff_t i)
{
    return i >= q.from && i + 4 <= q.to;
}

/* Four elements at once, past the first cache: each is used once. A plain store would be taken
   apart where it is one of two branches. */
RT_DEVICE void rt_read_four(float (&x)[4], const float *from)
{
    const float4 four = __ldcg((const float4 *)from);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}
RT_DEVICE void rt_read_four(double (&x)[4], const double *from)
{
    const double2 low = __ldcg((const double2 *)from), high = __ldcg((const double2 *)from + 1);
    x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
}
RT_DEVICE void rt_write_four(float *to, const float (&x)[4])
{
    __stcg((float4 *)to, make_float4(x[0], x[1], x[2], x[3]));
}
RT_DEVICE void rt_write_four(double *to, const double (&x)[4])
{
    __stcg((double2 *)to, make_double2(x[0], x[1]));
    __stcg((double2 *)to + 1, make_double2(x[2], x[3]));
}

/* Elements i..i+3 of a flat buffer; 0 where they are not in the part. */
template <typename T>
RT_DEVICE void rt_take(T (&x)[4], const void *flat, const RtPart &q, ptrdiff_t i)
{
    const T *from = (const T *)flat + i;
    if (rt_part_has_four(q, i)) {
        rt_read_four(x, from);
    } else {
        for (int k = 0; k < 4; k++)
            x[k] = rt_part_has(q, i + k) ? from[k] : (T)0;
    }
}

/* The other way: those that are in the part. */
template <typename T>
RT_DEVICE void rt_put(void *flat, const RtPart &q, ptrdiff_t i, const T (&x)[4])
{
    T *to = (T *)flat + i;
    if (rt_part_has_four(q, i)) {
        rt_write_four(to, x);
    } else {
        for (int k = 0; k < 4; k++)
            if (rt_part_has(q, i + k))
                to[k] = x[k];
    }
}

/* The same of 16-bit buffers, which parameters without a master need not begin at a multiple of 8
   bytes. */
RT_DEVICE void rt_take_halves(uint16_t (&x)[4], const uint16_t *flat, const RtPart &q, ptrdiff_t i)
{
    const uint16_t *from = flat + i;
    if (rt_part_has_four(q, i) && (uintptr_t)from % 8 == 0) {
        const uint2 four = __ldcg((const uint2 *)from);
        x[0] = (uint16_t)four.x, x[1] = (uint16_t)(four.x >> 16);
        x[2] = (uint16_t)four.y, x[3] = (uint16_t)(four.y >> 16);
    } else {
        for (int k = 0; k < 4; k++)
            x[k] = rt_part_has(q, i + k) ? from[k] : (uint16_t)0;
    }
}

RT_DEVICE void rt_put_halves(uint16_t *flat, const RtPart &q, ptrdiff_t i, const uint16_t (&x)[4])
{
    uint16_t *to = flat + i;
    if (rt_part_has_four(q, i) && (uintptr_t)to % 8 == 0) {
        __stcg((uint2 *)to, make_uint2(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16));
    } else {
        for (int k = 0; k < 4; k++)
            if (rt_part_has(q, i + k))
                to[k] = x[k];
    }
}

/* The copy of new parameters that products read. */
RT_DEVICE void rt_put_bf16(void *copy, const RtPart &q, ptrdiff_t i, const float (&p)[4])
{
    uint16_t x[4];
    for (int k = 0; k < 4; k++)
        x[k] = rt_to_bf16(p[k]);
    rt_put_halves((uint16_t *)copy, q, i, x);
}

RT_DEVICE void rt_put_f16(void *copy, const RtPart &q, ptrdiff_t i, const float (&p)[4])
{
    uint16_t x[4];
    for (int k = 0; k < 4; k++)
        x[k] = rt_to_f16(p[k]);
    rt_put_halves((uint16_t *)copy, q, i, x);
}

/* Parameters of which some are kept in 16 bits alone: these are widened, and rounded at random
   behind the update, by the bits of their number in the flat buffer (cpu/rounding.c has the same).
   p becomes what was written. */
RT_DEVICE void rt_take_widened(float (&p)[4], const RtUpdates &u, const RtPart &q, ptrdiff_t i)
{
    if (!q.half) {
        rt_take(p, u.p, q, i);
        return;
    }
    uint16_t x[4];
    rt_take_halves(x, u.half, q, i);
    for (int k = 0; k < 4; k++)
        p[k] = rt_of_bf16(x[k]);
}

RT_DEVICE void rt_put_rounded(const RtUpdates &u, const RtPart &q, ptrdiff_t i, float (&p)[4])
{
    if (!q.half) {
        rt_put(u.p, q, i, p);
        return;
    }
    const uint64_t stream = rt_stream(0x6d617374657273u, 0); /* "masters" */
    const RtBlock b = rt_philox_block(u.s->key, stream, 0, (uint64_t)(i / 8));
    const uint32_t low = i % 8 ? b.w2 : b.w0, high = i % 8 ? b.w3 : b.w1;
    const uint16_t x[4] = { rt_to_bf16_random(p[0], low & 0xffffu),
                            rt_to_bf16_random(p[1], low >> 16),
                            rt_to_bf16_random(p[2], high & 0xffffu),
                            rt_to_bf16_random(p[3], high >> 16) };
    rt_put_halves(u.half, q, i, x);
    for (int k = 0; k < 4; k++)
        p[k] = rt_of_bf16(x[k]);
}

/* One step of the average of the weights, where one is kept: e = e + (1 - d) (p - e). */
template <typename T>
RT_DEVICE void rt_put_average(const RtUpdates &u, const RtPart &q, ptrdiff_t i, const T (&p)[4])
{
    if (!u.average)
        return;
    const T part = (T)(1 - rt_ema_decay(u.ema, u.s->applied));
    T e[4];
    rt_take(e, u.average, q, i);
    for (int k = 0; k < 4; k++)
        e[k] += part * (p[k] - e[k]);
    rt_put(u.average, q, i, e);
}

#endif
