/* attend_half.h -- attention of heads in 16 bits, the second template behind attention.c.
 *
 * A head is converted to fp32 into dense rows of this thread's room, attend.h works there as on any
 * fp32 head, and its results are rounded once, when they are complete: the bits are those of the
 * fp32 functions, rounded.
 */

/* The same sizes, one head, its rows dense. */
static RtAttention N(one_head)(const RtAttention *a)
{
    RtAttention one = *a;
    one.B = one.H = 1;
    one.q = one.d_q = (RtHeads){ .t = a->D };
    one.k = one.d_k = (RtHeads){ .t = a->D };
    one.v = one.d_v = (RtHeads){ .t = a->E };
    one.y = one.d_y = (RtHeads){ .t = a->E };
    return one;
}

/* The room of what is converted, of one head. */
static size_t N(half_bytes)(const RtAttention *a, bool backward)
{
    const ptrdiff_t once = (a->T + a->S) * (a->D + a->E);
    return (size_t)(backward ? 2 * once + 8 * LANES : once + 4 * LANES) * sizeof(float);
}

static void N(attend)(SRC *y, float *lse, const SRC *q, const SRC *k, const SRC *v,
                      const RtAttention *a, int threads)
{
    const RtAttention one = N(one_head)(a);
    const ptrdiff_t heads = a->B * a->H, blocks = ceil_div(a->T, BLOCK);
    const ptrdiff_t shares = forward_shares(a, threads);
    const size_t bytes = R(head_room)(a, false);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t item = 0; item < heads * shares; item++) {
        const ptrdiff_t head = item / shares;
        const SRC *own_q = q + head_at(a, a->q, head);
        SRC *own_y = y + head_at(a, a->y, head);
        float *half = rt_cpu_room(RT_ROOM_HALF, N(half_bytes)(a, false));
        float *room = rt_cpu_room(RT_ROOM_PACK, bytes);
        const float *wide_k = N(rt_widen)(R(take)(&half, a->S * a->D), k + head_at(a, a->k, head),
                                          a->k.t, a->S, a->D);
        const float *wide_v = N(rt_widen)(R(take)(&half, a->S * a->E), v + head_at(a, a->v, head),
                                          a->v.t, a->S, a->E);
        float *wide_q = R(take)(&half, a->T * a->D), *wide_y = R(take)(&half, a->T * a->E);
        const R(Head) h = R(head_open)(&one, 0, wide_k, wide_v, false, &room);
        const R(Forward)
            w = { .q = wide_q, .y = wide_y, .lse = lse + head * a->T, .q_t = a->D, .y_t = a->E };
        for (ptrdiff_t i = item % shares; i < blocks; i += shares) {
            const ptrdiff_t t0 = i * BLOCK, n = min_size(BLOCK, a->T - t0);
            N(rt_widen)(wide_q + t0 * a->D, own_q + t0 * a->q.t, a->q.t, n, a->D);
            R(forward_block)(&h, &w, t0, n);
            N(rt_narrow)(own_y + t0 * a->y.t, a->y.t, wide_y + t0 * a->E, a->E, n, a->E);
        }
    }
}

typedef struct {
    SRC *d_q, *d_k, *d_v;
    const SRC *q, *k, *v, *y, *d_y;
    const float *lse;
} N(HalfBackward);

static void N(backward_head)(const N(HalfBackward) * all, const RtAttention *a, BackwardItem item)
{
    const RtAttention one = N(one_head)(a);
    const ptrdiff_t T = a->T, S = a->S, D = a->D, E = a->E, head = item.head;
    float *half = rt_cpu_room(RT_ROOM_HALF, N(half_bytes)(a, true));
    float *room = rt_cpu_room(RT_ROOM_PACK, R(head_room)(a, true));
    const float *k = N(rt_widen)(R(take)(&half, S * D), all->k + head_at(a, a->k, head), a->k.t, S,
                                 D);
    const float *v = N(rt_widen)(R(take)(&half, S * E), all->v + head_at(a, a->v, head), a->v.t, S,
                                 E);
    const R(Head) h = R(head_open)(&one, 0, k, v, true, &room);
    float *delta = R(take)(&room, T);
    const R(Backward) w = {
        .q = N(rt_widen)(R(take)(&half, T * D), all->q + head_at(a, a->q, head), a->q.t, T, D),
        .y = N(rt_widen)(R(take)(&half, T * E), all->y + head_at(a, a->y, head), a->y.t, T, E),
        .d_y = N(rt_widen)(R(take)(&half, T * E), all->d_y + head_at(a, a->d_y, head), a->d_y.t, T,
                           E),
        .lse = all->lse + head * T,
        .d_q = R(take)(&half, T * D),
        .d_k = R(take)(&half, S * D),
        .d_v = R(take)(&half, S * E),
        .q_t = D,
        .d_q_t = D,
        .d_k_t = D,
        .d_v_t = E,
        .d_y_t = E,
        .delta = delta,
    };
    R(sum_delta)(&h, &w, E, delta);
    R(backward_item)(&h, &w, item.share, item.shares, item.with_q, item.with_kv);
    SRC *d_q = all->d_q + head_at(a, a->d_q, head), *d_k = all->d_k + head_at(a, a->d_k, head);
    SRC *d_v = all->d_v + head_at(a, a->d_v, head);
    for (ptrdiff_t t = 0; t < T && item.with_q; t += BLOCK)
        if (item.with_kv || t / BLOCK % item.shares == item.share)
            N(rt_narrow)(d_q + t * a->d_q.t, a->d_q.t, w.d_q + t * D, D, min_size(BLOCK, T - t), D);
    for (ptrdiff_t s = 0; s < S && item.with_kv; s += BLOCK)
        if (item.with_q || s / BLOCK % item.shares == item.share) {
            N(rt_narrow)(d_k + s * a->d_k.t, a->d_k.t, w.d_k + s * D, D, min_size(BLOCK, S - s), D);
            N(rt_narrow)(d_v + s * a->d_v.t, a->d_v.t, w.d_v + s * E, E, min_size(BLOCK, S - s), E);
        }
}

/* ---- as rt.h declares them ------------------------------------------------------------------- */

void N(rt_attention)(SRC *y, float *lse, const SRC *q, const SRC *k, const SRC *v, RtAttention a)
{
    if (attention_complete(&a))
        N(attend)(y, lse, q, k, v, &a, attention_threads(&a));
}

void N(rt_attention_grad)(SRC *d_q, SRC *d_k, SRC *d_v, const SRC *q, const SRC *k, const SRC *v,
                          const SRC *y, const float *lse, const SRC *d_y, RtAttention a)
{
    if (!attention_complete(&a))
        return;
    const N(HalfBackward) all = { d_q, d_k, d_v, q, k, v, y, d_y, lse };
    const int threads = attention_threads(&a);
    const ptrdiff_t items = backward_items(&a, threads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t i = 0; i < items; i++)
        N(backward_head)(&all, &a, backward_cut(&a, threads, i));
}
