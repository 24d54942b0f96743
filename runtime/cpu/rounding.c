/* rounding.c -- updates of parameters that are kept in 16 bits alone.
 *
 * In: a piece of them, and the update of a piece in fp32. Out: the piece, updated and rounded at
 * random to one of the two neighbours that bf16 has, the nearer the likelier: a change that is
 * small against the distance of the neighbours, which rounding to the nearest would lose, comes
 * through on average (Zamirai et al., arXiv 2010.06192).
 *
 * The one idea: the 16 random bits of an element are a function of (seed, step, its number in the
 * flat buffer); so the result depends neither on threads nor on how the buffer is cut, and a run
 * that is resumed goes on as it would have. Elements 8k..8k+7 share a block of the generator.
 */
#include "cpu/update.h"

enum { PART = 4096, SHARED = 8 }; /* elements widened at a time; of a block of the generator */

/* 16 bits for each element of n blocks: the halves of its words, the lower one first. */
static void draw(RtKey key, ptrdiff_t first, ptrdiff_t n, uint16_t *restrict bits)
{
    const uint64_t stream = rt_stream(0x6d617374657273u, 0); /* "masters" */
#pragma omp simd
    for (ptrdiff_t k = 0; k < n; k++) {
        const RtBlock b = rt_philox_block(key, stream, 0, (uint64_t)(first + k));
        bits[8 * k] = (uint16_t)b.w0;
        bits[8 * k + 1] = (uint16_t)(b.w0 >> 16);
        bits[8 * k + 2] = (uint16_t)b.w1;
        bits[8 * k + 3] = (uint16_t)(b.w1 >> 16);
        bits[8 * k + 4] = (uint16_t)b.w2;
        bits[8 * k + 5] = (uint16_t)(b.w2 >> 16);
        bits[8 * k + 6] = (uint16_t)b.w3;
        bits[8 * k + 7] = (uint16_t)(b.w3 >> 16);
    }
}

void rt_round_halves(RtKey key, ptrdiff_t from, ptrdiff_t n, const float *restrict x,
                     uint16_t *restrict to)
{
    uint16_t bits[PART + 2 * SHARED];
    for (ptrdiff_t done = 0; done < n; done += PART) {
        const ptrdiff_t part = n - done < PART ? n - done : PART, at = from + done;
        const ptrdiff_t skip = at % SHARED;
        draw(key, at / SHARED, (skip + part + SHARED - 1) / SHARED, bits);
#pragma omp simd
        for (ptrdiff_t i = 0; i < part; i++)
            to[done + i] = rt_to_bf16_random(x[done + i], bits[skip + i]);
    }
}

void rt_piece_rounded(RtRun *run, const RtStep *s, RtPiece q, RtUpdatePiece update, const void *how)
{
    uint16_t *const p = rt_params_halves(run->model, run->p);
    float x[PART];
    for (ptrdiff_t at = q.from; at < q.to; at += PART) {
        RtPiece part = q;
        part.from = at;
        part.to = at + PART < q.to ? at + PART : q.to;
#pragma omp simd
        for (ptrdiff_t i = 0; i < part.to - at; i++)
            x[i] = rt_of_bf16(p[at + i]);
        update(run, part, x, how);
        rt_round_halves(s->key, at, part.to - at, x, p + at);
    }
}
