/* pieces.c -- sums over ranks, made of what moves bytes.
 *
 * In: numbers of this rank, in memory of the place. Out: those of all. The one idea: a sum over
 * ranks is made of two things that every back end has. Each rank is sent the others' numbers of its
 * share, adds them pairwise in the order of ranks, and sends the sums to all. So the bits depend
 * neither on the back end nor on who came first.
 */
#include "comm/exchange.h"

enum { SEGMENT = 32 << 20 }; /* most bytes of a sum at a time */

static struct {
    const RtMover *mover;
    char *received;          /* SEGMENT bytes */
    uint16_t *sent, *halves; /* of sums in bf16: SEGMENT / 2 bytes each; NULL: there are none */
    size_t *sent_at, *sent_bytes;
    size_t *from, *bytes; /* of each rank, in a segment */
} x;

void pieces_open(const RtMover *mover, int ranks, bool narrow)
{
    x.mover = mover;
    x.received = mover->alloc(SEGMENT, "sums over ranks");
    x.from = rt_alloc((size_t)ranks * sizeof *x.from, "sums over ranks");
    x.bytes = rt_alloc((size_t)ranks * sizeof *x.bytes, "sums over ranks");
    if (!narrow)
        return;
    x.sent = mover->alloc(SEGMENT / 2, "sums over ranks in bf16");
    x.halves = mover->alloc(SEGMENT / 2, "sums over ranks in bf16");
    x.sent_at = rt_alloc((size_t)ranks * sizeof *x.sent_at, "sums over ranks in bf16");
    x.sent_bytes = rt_alloc((size_t)ranks * sizeof *x.sent_bytes, "sums in bf16");
}

void pieces_close(void)
{
    x.mover->free(x.received);
    x.mover->free(x.sent);
    x.mover->free(x.halves);
    rt_free(x.from);
    rt_free(x.bytes);
    rt_free(x.sent_at);
    rt_free(x.sent_bytes);
    memset(&x, 0, sizeof x);
}

/* Of each rank's share of the n elements, what begins at `done` in it, at most so much. */
static void set_pieces(const RtComm *c, ptrdiff_t n, ptrdiff_t done, ptrdiff_t most, size_t each)
{
    for (int r = 0; r < c->size; r++) {
        const ptrdiff_t first = n * r / c->size + done, left = n * (r + 1) / c->size - first;
        x.from[r] = left > 0 ? (size_t)first * each : 0;
        x.bytes[r] = left > 0 ? (size_t)(left < most ? left : most) * each : 0;
    }
}

/* The pieces of the own share, of all ranks, become one. */
static const char *reduce_pieces(const RtComm *c, void *at, RtType type, RtReduce op)
{
    const size_t own = x.bytes[c->rank];
    const char *wrong = x.mover->scatter_gather(c->group, at, x.from, x.bytes, x.received, own);
    if (!wrong)
        x.mover->reduce((char *)at + x.from[c->rank], x.received,
                        (ptrdiff_t)(own / exchange_bytes_of(type)), c->size, type, op);
    return wrong;
}

/* The same, and gathered, in 16 bits on the wire: each rank's numbers are rounded once, added in
   fp32, and the sum is rounded once. */
static const char *sum_narrow(const RtComm *c, float *at)
{
    float *own = (float *)(void *)x.received;
    const ptrdiff_t n = (ptrdiff_t)(x.bytes[c->rank] / sizeof(float));
    size_t first = 0;
    for (int r = 0; r < c->size; r++) {
        x.sent_at[r] = first;
        x.sent_bytes[r] = x.bytes[r] / 2;
        x.mover->narrow(x.sent + first / 2, at + x.from[r] / sizeof(float),
                        (ptrdiff_t)(x.bytes[r] / sizeof(float)));
        first += x.sent_bytes[r];
    }
    const char *wrong = x.mover->scatter_gather(c->group, x.sent, x.sent_at, x.sent_bytes, x.halves,
                                                x.sent_bytes[c->rank]);
    if (wrong)
        return wrong;
    x.mover->widen(own, x.halves, n * c->size);
    x.mover->reduce(own, own, n, c->size, RT_F32, RT_SUM);
    x.mover->narrow(x.sent + x.sent_at[c->rank] / 2, own, n);
    wrong = x.mover->all_gather(c->group, x.sent, x.sent_at, x.sent_bytes);
    for (int r = 0; r < c->size && !wrong; r++)
        x.mover->widen(at + x.from[r] / sizeof(float), x.sent + x.sent_at[r] / 2,
                       (ptrdiff_t)(x.bytes[r] / sizeof(float)));
    return wrong;
}

const char *pieces_run(const RtComm *c, int pieces, void *at, ptrdiff_t n, RtType type, RtReduce op)
{
    const size_t each = exchange_bytes_of(type);
    const ptrdiff_t most = (ptrdiff_t)(SEGMENT / each) / c->size;
    const ptrdiff_t longest = (n + c->size - 1) / c->size;
    const char *wrong = NULL;
    for (ptrdiff_t done = 0; done < longest && !wrong; done += most) {
        set_pieces(c, n, done, most, each);
        if ((pieces & RT_NARROW_PIECES) && type == RT_F32) {
            wrong = sum_narrow(c, at);
            continue;
        }
        if (pieces & RT_REDUCE_PIECES)
            wrong = reduce_pieces(c, at, type, op);
        if ((pieces & RT_GATHER_PIECES) && !wrong)
            wrong = x.mover->all_gather(c->group, at, x.from, x.bytes);
    }
    return wrong;
}
