/* num.h -- inline mathematics of emitted code, for host and device; the counter-based generator.
 *
 * Functions named rt_x are chosen by type (float or double). The float forms are written without
 * branches, so that compilers vectorise the loops they stand in; their error bounds stand beside
 * them and are tested against libm. Contraction is off: where a fused multiply-add is wanted the
 * text says fma.
 */
#ifndef GRADCC_NUM_H
#define GRADCC_NUM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- Philox4x32-10 ---------------------------------------------------------------------------
 * A draw is a function of (seed, step, stream, global sample index, element in the sample).
 *   key     = (low, high word of seed)
 *   counter = (element >> 2, sample, stream low ^ step, stream high ^ (sample >> 32) ^ (element >> 34))
 * and word (element & 3) of the block is used. The stream is rt_stream(hash of the path, iteration
 * of each enclosing loop). Uniform: (word >> 8) * 2^-24, in [0, 1); double: the same 24 bits.
 * Normal: Box-Muller of elements 2e and 2e+1 of the same stream: sqrt(-2 ln(1 - u1)) cos(2 pi u2). */

typedef struct { uint64_t seed; uint32_t step; } RtKey;

static inline uint64_t rt_stream(uint64_t stream, uint64_t iteration)      /* one enclosing loop more */
{
    uint64_t z = stream + 0x9e3779b97f4a7c15u * (iteration + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t rt_philox(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    uint32_t c0 = (uint32_t)(element >> 2), c1 = (uint32_t)sample;
    uint32_t c2 = (uint32_t)stream ^ key.step;
    uint32_t c3 = (uint32_t)(stream >> 32) ^ (uint32_t)(sample >> 32) ^ (uint32_t)(element >> 34);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint32_t word[4] = { c0, c1, c2, c3 };
    return word[element & 3];
}

static inline float rt_uniform_f32(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (float)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24f;
}

static inline double rt_uniform_f64(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (double)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24;
}

#endif
