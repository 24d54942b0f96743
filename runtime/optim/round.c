/* round.c -- updates of parameters that are kept in 16 bits alone.
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
#include "run.h"

enum { PART = 4096, SHARED = 8 }; /* elements widened at a time; of a block of the generator */

/* Word j of block k at 4 k + j. */
static void draw(RtKey key, ptrdiff_t first, ptrdiff_t n, uint32_t *restrict word)
{
    const uint64_t stream = rt_stream(0x6d617374657273u, 0); /* "masters" */
#pragma omp simd
    for (ptrdiff_t k = 0; k < n; k++) {
        const RtBlock b = rt_philox_block(key, stream, 0, (uint64_t)(first + k));
        word[4 * k] = b.w0;
        word[4 * k + 1] = b.w1;
        word[4 * k + 2] = b.w2;
        word[4 * k + 3] = b.w3;
    }
}

void rt_round_halves(RtKey key, ptrdiff_t from, ptrdiff_t n, const float *x, uint16_t *to)
{
    enum { MOST = PART + 2 * SHARED };
    uint32_t word[MOST / 2];
    float in[MOST] = { 0 };
    uint16_t out[MOST];
    for (ptrdiff_t done = 0; done < n; done += PART) {
        const ptrdiff_t part = n - done < PART ? n - done : PART, at = from + done;
        const ptrdiff_t skip = at % SHARED, blocks = (skip + part + SHARED - 1) / SHARED;
        memcpy(in + skip, x + done, (size_t)part * sizeof *x);
        draw(key, at / SHARED, blocks, word);
#pragma omp simd
        for (ptrdiff_t k = 0; k < blocks * SHARED / 2; k++) {
            out[2 * k] = rt_to_bf16_random(in[2 * k], word[k]);
            out[2 * k + 1] = rt_to_bf16_random(in[2 * k + 1], word[k] >> 16);
        }
        memcpy(to + done, out + skip, (size_t)part * sizeof *to);
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
