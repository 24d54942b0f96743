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
    one.B = one.H = one.group = 1;
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
        const SRC *own_k = k + keys_at(a, a->k, head / a->group);
        const SRC *own_v = v + keys_at(a, a->v, head / a->group);
        const float *wide_k = N(rt_widen)(R(take)(&half, a->S * a->D), own_k, a->k.t, a->S, a->D);
        const float *wide_v = N(rt_widen)(R(take)(&half, a->S * a->E), own_v, a->v.t, a->S, a->E);
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

/* Rows [0, n), those of the blocks of this share unless all of them are, rounded into place. */
static void N(put_rows)(SRC *to, ptrdiff_t step, const float *from, ptrdiff_t width, ptrdiff_t n,
                        BackwardItem item, bool all)
{
    for (ptrdiff_t i = 0; i < n; i += BLOCK) {
        const ptrdiff_t rows = min_size(BLOCK, n - i);
        if (all || i / BLOCK % item.shares == item.share)
            N(rt_narrow)(to + i * step, step, from + i * width, width, rows, width);
    }
}

/* A head of k and v, in 32 bits until all heads of its group have added to its gradients. */
static void N(backward_keys)(const N(HalfBackward) * all, const RtAttention *a, BackwardItem item)
{
    const RtAttention one = N(one_head)(a);
    const ptrdiff_t T = a->T, S = a->S, D = a->D, E = a->E;
    float *half = rt_cpu_room(RT_ROOM_HALF, N(half_bytes)(a, true));
    float *room = rt_cpu_room(RT_ROOM_PACK, R(head_room)(a, true));
    const SRC *own_k = all->k + keys_at(a, a->k, item.head);
    const SRC *own_v = all->v + keys_at(a, a->v, item.head);
    const float *k = N(rt_widen)(R(take)(&half, S * D), own_k, a->k.t, S, D);
    const float *v = N(rt_widen)(R(take)(&half, S * E), own_v, a->v.t, S, E);
    const R(Head) h = R(head_open)(&one, 0, k, v, true, &room);
    float *q = R(take)(&half, T * D), *y = R(take)(&half, T * E), *d_y = R(take)(&half, T * E);
    float *delta = R(take)(&room, T);
    R(Backward)
    w = { .q = q,
          .y = y,
          .d_y = d_y,
          .d_q = R(take)(&half, T * D),
          .d_k = R(take)(&half, S * D),
          .d_v = R(take)(&half, S * E),
          .q_t = D,
          .d_q_t = D,
          .d_k_t = D,
          .d_v_t = E,
          .d_y_t = E,
          .delta = delta };
    for (ptrdiff_t g = 0; g < a->group; g++) {
        const ptrdiff_t head = item.head * a->group + g;
        N(rt_widen)(q, all->q + head_at(a, a->q, head), a->q.t, T, D);
        N(rt_widen)(y, all->y + head_at(a, a->y, head), a->y.t, T, E);
        N(rt_widen)(d_y, all->d_y + head_at(a, a->d_y, head), a->d_y.t, T, E);
        w.lse = all->lse + head * T;
        R(sum_delta)(&h, &w, E, delta);
        R(backward_item)(&h, &w, item, g > 0);
        SRC *d_q = all->d_q + head_at(a, a->d_q, head);
        if (item.with_q)
            N(put_rows)(d_q, a->d_q.t, w.d_q, D, T, item, item.with_kv);
    }
    if (item.with_kv) {
        SRC *d_k = all->d_k + keys_at(a, a->d_k, item.head);
        SRC *d_v = all->d_v + keys_at(a, a->d_v, item.head);
        N(put_rows)(d_k, a->d_k.t, w.d_k, D, S, item, item.with_q);
        N(put_rows)(d_v, a->d_v.t, w.d_v, E, S, item, item.with_q);
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
        N(backward_keys)(&all, &a, backward_cut(&a, threads, i));
}
