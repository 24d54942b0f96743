/* attend.h -- attention of one head by blocks, the template behind attention.c.
 *
 * In: q, k, v (and y, lse, d_y) of one batch index and head, rows any distance apart. Out: y and
 * lse, or d_q, d_k, d_v. The one idea: a block of BLOCK queries meets a block of BLOCK keys in
 * cache; scores exist for that block only. Forward keeps a running maximum and sum per query;
 * backward gets the probabilities again from lse. Where the mask cuts a block, tiles of 8 rows go
 * as far as they must.
 */

typedef struct {
    ptrdiff_t T, S, D, E, wide_d, wide_e; /* wide: D and E in whole vectors */
    REAL scale;
    bool causal;
    REAL *k_turned;          /* [blocks of S][D][BLOCK] */
    REAL *v_turned;          /* [blocks of S][E][BLOCK], backward */
    REAL *k_rows, *v_rows;   /* [S][wide_d], [S][wide_e] */
    REAL *q_rows, *d_y_rows; /* [BLOCK][wide_d], [BLOCK][wide_e], backward */
    REAL *score, *d_score;   /* [BLOCK][BLOCK] */
    REAL *sum, *most;        /* [BLOCK]: running, per query */
} N(Head);

/* How many keys query t sees. */
CPU_INLINE ptrdiff_t N(keys_seen)(const N(Head) * h, ptrdiff_t t)
{
    return h->causal ? max_size(0, min_size(h->S, t + h->S - h->T + 1)) : h->S;
}

/* The first query that sees key s. */
CPU_INLINE ptrdiff_t N(first_query)(const N(Head) * h, ptrdiff_t s)
{
    return h->causal ? max_size(0, s - h->S + h->T) : 0;
}

/* A block of n queries from t0 on, and one of `keys` keys from s0 on. */
typedef struct {
    ptrdiff_t t0, n, s0, keys;
} N(Pair);

/* How many keys of the block the query number i of the block sees. */
CPU_INLINE ptrdiff_t N(keys_of_tile)(const N(Head) * h, N(Pair) at, ptrdiff_t i)
{
    return max_size(0, min_size(at.keys, N(keys_seen)(h, at.t0 + i) - at.s0));
}

/* c[rows, n] (+)= a[rows, k] @ b[k, n] in tiles of TILE_ROWS; b in whole vectors */
static void N(block_product)(ptrdiff_t rows, ptrdiff_t n, N(Tile) t)
{
    REAL *const c = t.c;
    const REAL *const b = t.b;
    t.ahead = (const char *)b;
    const ptrdiff_t strips = ceil_div(n, TILE_VECS * LANES);
    const ptrdiff_t width = round_up(ceil_div(n, strips), LANES);
    for (ptrdiff_t i = 0; i < rows; i += TILE_ROWS) {
        for (ptrdiff_t j = 0; j < n; j += width) {
            t.b = b + j;
            t.c = c + i * t.c_i + j;
            N(rt_tile)((int)min_size(TILE_ROWS, rows - i), (int)min_size(width, n - j), &t);
        }
        t.a += TILE_ROWS * t.a_i;
    }
}

/* to[BLOCK][BLOCK] = the queries' rows of `from` times the keys' block of a turned matrix
   [depth][BLOCK], each tile of queries up to the last key that it sees; the rest stays as it is. */
static void N(block_scores)(const N(Head) * h, REAL *to, const REAL *from, ptrdiff_t stride,
                            ptrdiff_t depth, const REAL *turned, N(Pair) at)
{
    N(Tile) t = { .k = depth, .a_i = stride, .a_k = 1, .b = turned, .b_k = BLOCK, .c_i = BLOCK };
    for (ptrdiff_t i = 0; i < at.n; i += TILE_ROWS) {
        const ptrdiff_t rows = min_size(TILE_ROWS, at.n - i);
        const ptrdiff_t keys = N(keys_of_tile)(h, at, i + rows - 1);
        t.a = from + (at.t0 + i) * stride;
        t.c = to + i * BLOCK;
        if (keys > 0)
            N(block_product)(rows, keys, t);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

static void N(turn_blocks)(REAL *to, const REAL *from, ptrdiff_t stride, ptrdiff_t S,
                           ptrdiff_t depth)
{
    for (ptrdiff_t s = 0; s < S; s += BLOCK) {
        const ptrdiff_t live = min_size(BLOCK, S - s);
        N(rt_pack_turned)(to + s * depth, BLOCK, from + s * stride, stride, live, depth);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One row of scores: p = exp(scale * score - most), and what older sums are worth now. */
static REAL N(soften_row)(const N(Head) * h, REAL *row, ptrdiff_t seen, ptrdiff_t stored,
                          REAL *most, REAL *sum)
{
    REAL top = *most;
#pragma omp simd reduction(max : top)
    for (ptrdiff_t s = 0; s < seen; s++) {
        row[s] *= h->scale;
        top = row[s] > top ? row[s] : top;
    }
    REAL total = 0;
#pragma omp simd reduction(+ : total)
    for (ptrdiff_t s = 0; s < seen; s++) {
        row[s] = N(rt_exp)(row[s] - top);
        total += row[s];
    }
    for (ptrdiff_t s = seen; s < stored; s++)
        row[s] = 0;
    const REAL worth = N(rt_exp)(*most - top);
    *most = top;
    *sum = *sum * worth + total;
    return worth;
}

static void N(scale_row)(REAL *row, ptrdiff_t n, REAL by)
{
#pragma omp simd
    for (ptrdiff_t e = 0; e < n; e++)
        row[e] *= by;
}

typedef struct {
    const REAL *q;
    REAL *y, *lse;
    ptrdiff_t q_t, y_t;
} N(Forward);

/* Scores of one tile of queries become p; what was summed into y before is scaled to match. */
static void N(soften_tile)(const N(Head) * h, const N(Forward) * w, N(Pair) at, ptrdiff_t i,
                           ptrdiff_t rows, ptrdiff_t keys)
{
    for (ptrdiff_t r = i; r < i + rows; r++) {
        REAL *row = h->score + r * BLOCK;
        const ptrdiff_t seen = min_size(keys, N(keys_of_tile)(h, at, r));
        if (seen == 0) {
            memset(row, 0, (size_t)keys * sizeof(REAL));
            continue;
        }
        const REAL worth = N(soften_row)(h, row, seen, keys, &h->most[r], &h->sum[r]);
        if (at.s0 > 0 && worth != 1)
            N(scale_row)(w->y + (at.t0 + r) * w->y_t, h->E, worth);
    }
}

static void N(forward_pair)(const N(Head) * h, const N(Forward) * w, N(Pair) at)
{
    N(Tile)
    t = { .a_i = BLOCK,
          .a_k = 1,
          .b = h->v_rows + at.s0 * h->wide_e,
          .b_k = h->wide_e,
          .c_i = w->y_t,
          .add = at.s0 > 0 };
    N(block_scores)(h, h->score, w->q, w->q_t, h->D, h->k_turned + at.s0 * h->D, at);
    for (ptrdiff_t i = 0; i < at.n; i += TILE_ROWS) {
        const ptrdiff_t rows = min_size(TILE_ROWS, at.n - i);
        t.k = N(keys_of_tile)(h, at, i + rows - 1);
        t.a = h->score + i * BLOCK;
        t.c = w->y + (at.t0 + i) * w->y_t;
        if (t.k > 0) {
            N(soften_tile)(h, w, at, i, rows, t.k);
            N(block_product)(rows, h->E, t);
        }
    }
}

/* Queries [t0, t0 + n) meet all keys that they see. */
static void N(forward_block)(const N(Head) * h, const N(Forward) * w, ptrdiff_t t0, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        h->most[i] = -(REAL)INFINITY;
        h->sum[i] = 0;
    }
    const ptrdiff_t last = N(keys_seen)(h, t0 + n - 1);
    for (ptrdiff_t s0 = 0; s0 < last; s0 += BLOCK)
        N(forward_pair)(h, w, (N(Pair)){ t0, n, s0, min_size(BLOCK, h->S - s0) });
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL *row = w->y + (t0 + i) * w->y_t;
        const bool any = N(keys_seen)(h, t0 + i) > 0;
        w->lse[t0 + i] = any ? h->most[i] + N(rt_log)(h->sum[i]) : 0;
        if (any)
            N(scale_row)(row, h->E, 1 / h->sum[i]);
        else
            memset(row, 0, (size_t)h->E * sizeof(REAL));
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    const REAL *q, *y, *lse, *d_y;
    REAL *d_q, *d_k, *d_v;
    ptrdiff_t q_t, d_q_t, d_k_t, d_v_t, d_y_t;
    const REAL *delta; /* [T]: sum over e of y d_y */
} N(Backward);

/* score becomes p = exp(scale * score - lse), d_score = scale * p (d_score - delta); masked: 0 */
static void N(harden_rows)(const N(Head) * h, const N(Backward) * w, N(Pair) at)
{
    for (ptrdiff_t r = 0; r < at.n; r++) {
        REAL *p = h->score + r * BLOCK, *d = h->d_score + r * BLOCK;
        const ptrdiff_t seen = N(keys_of_tile)(h, at, r);
        const REAL l = w->lse[at.t0 + r], mean = w->delta[at.t0 + r];
#pragma omp simd
        for (ptrdiff_t s = 0; s < seen; s++) {
            p[s] = N(rt_exp)(h->scale * p[s] - l);
            d[s] = h->scale * p[s] * (d[s] - mean);
        }
        for (ptrdiff_t s = seen; s < at.keys; s++)
            p[s] = d[s] = 0;
    }
}

/* to[keys, n] (+)= m[queries, keys]' @ rows[queries, n]: each tile of keys from the first query
   that sees it */
static void N(keys_product)(const N(Head) * h, REAL *to, ptrdiff_t stride, const REAL *m,
                            const REAL *rows, ptrdiff_t wide, ptrdiff_t n, N(Pair) at, bool add)
{
    N(Tile) t = { .a_i = 1, .a_k = BLOCK, .b_k = wide, .c_i = stride, .add = add };
    for (ptrdiff_t s = 0; s < at.keys; s += TILE_ROWS) {
        const ptrdiff_t first = N(first_query)(h, at.s0 + s) - at.t0;
        const ptrdiff_t from = min_size(at.n, max_size(0, first));
        t.k = at.n - from;
        t.a = m + from * BLOCK + s;
        t.b = rows + from * wide;
        t.c = to + (at.s0 + s) * stride;
        if (t.k > 0 || !add)
            N(block_product)(min_size(TILE_ROWS, at.keys - s), n, t);
    }
}

/* d_q[queries] (+)= d_score @ k */
static void N(queries_product)(const N(Head) * h, const N(Backward) * w, N(Pair) at)
{
    N(Tile)
    t = { .a_i = BLOCK,
          .a_k = 1,
          .b = h->k_rows + at.s0 * h->wide_d,
          .b_k = h->wide_d,
          .c_i = w->d_q_t,
          .add = at.s0 > 0 };
    for (ptrdiff_t i = 0; i < at.n; i += TILE_ROWS) {
        const ptrdiff_t rows = min_size(TILE_ROWS, at.n - i);
        t.k = N(keys_of_tile)(h, at, i + rows - 1);
        t.a = h->d_score + i * BLOCK;
        t.c = w->d_q + (at.t0 + i) * w->d_q_t;
        if (t.k > 0 || !t.add)
            N(block_product)(rows, h->D, t);
    }
}

/* One block of keys meets one block of queries. What is written first is not added. */
static void N(backward_pair)(const N(Head) * h, const N(Backward) * w, N(Pair) at,
                             bool first_of_key, bool with_q, bool with_kv)
{
    const REAL *q = w->q + at.t0 * w->q_t, *d_y = w->d_y + at.t0 * w->d_y_t;
    N(block_scores)(h, h->score, w->q, w->q_t, h->D, h->k_turned + at.s0 * h->D, at);
    N(block_scores)(h, h->d_score, w->d_y, w->d_y_t, h->E, h->v_turned + at.s0 * h->E, at);
    N(harden_rows)(h, w, at);
    if (with_kv) {
        N(rt_pack_straight)(h->q_rows, h->wide_d, q, w->q_t, h->D, at.n);
        N(rt_pack_straight)(h->d_y_rows, h->wide_e, d_y, w->d_y_t, h->E, at.n);
        N(keys_product)
        (h, w->d_v, w->d_v_t, h->score, h->d_y_rows, h->wide_e, h->E, at, !first_of_key);
        N(keys_product)
        (h, w->d_k, w->d_k_t, h->d_score, h->q_rows, h->wide_d, h->D, at, !first_of_key);
    }
    if (with_q)
        N(queries_product)(h, w, at);
}

/* ---- one item: a head, or a share of its blocks ---------------------------------------------- */

static size_t N(head_room)(const RtAttention *a, bool backward)
{
    const ptrdiff_t wide_d = round_up(a->D, LANES), wide_e = round_up(a->E, LANES);
    const ptrdiff_t S = round_up(a->S, BLOCK), T = round_up(a->T, BLOCK);
    ptrdiff_t n = S * a->D + S * wide_e + 2 * BLOCK * BLOCK + 2 * BLOCK;
    if (backward)
        n += S * a->E + S * wide_d + BLOCK * (wide_d + wide_e) + T;
    return (size_t)(n + 12 * LANES) * sizeof(REAL);
}

CPU_INLINE REAL *N(take)(REAL **room, ptrdiff_t n)
{
    REAL *at = *room;
    *room += round_up(n, LANES);
    return at;
}

/* k and v of head number `head` of those that they have in all batches, packed */
static N(Head) N(head_open)(const RtAttention *a, ptrdiff_t head, const REAL *k, const REAL *v,
                            bool backward, REAL **room)
{
    k += keys_at(a, a->k, head);
    v += keys_at(a, a->v, head);
    N(Head)
    h = { .T = a->T,
          .S = a->S,
          .D = a->D,
          .E = a->E,
          .wide_d = round_up(a->D, LANES),
          .wide_e = round_up(a->E, LANES),
          .scale = (REAL)a->scale,
          .causal = a->causal };
    const ptrdiff_t S = round_up(a->S, BLOCK);
    h.score = N(take)(room, BLOCK * BLOCK);
    h.d_score = N(take)(room, BLOCK * BLOCK);
    h.most = N(take)(room, BLOCK);
    h.sum = N(take)(room, BLOCK);
    h.k_turned = N(take)(room, S * h.D);
    N(turn_blocks)(h.k_turned, k, a->k.t, h.S, h.D);
    if (backward) {
        h.v_turned = N(take)(room, S * h.E);
        N(turn_blocks)(h.v_turned, v, a->v.t, h.S, h.E);
        h.k_rows = N(take)(room, S * h.wide_d);
        N(rt_pack_straight)(h.k_rows, h.wide_d, k, a->k.t, h.D, h.S);
        h.q_rows = N(take)(room, BLOCK * h.wide_d);
        h.d_y_rows = N(take)(room, BLOCK * h.wide_e);
    } else {
        h.v_rows = N(take)(room, S * h.wide_e);
        N(rt_pack_straight)(h.v_rows, h.wide_e, v, a->v.t, h.E, h.S);
    }
    return h;
}

static void N(attend)(N(Forward) all, const REAL *k, const REAL *v, const RtAttention *a,
                      int threads)
{
    const ptrdiff_t heads = a->B * a->H, blocks = ceil_div(a->T, BLOCK);
    const ptrdiff_t shares = forward_shares(a, threads);
    const size_t bytes = N(head_room)(a, false);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t item = 0; item < heads * shares; item++) {
        const ptrdiff_t head = item / shares;
        REAL *room = rt_cpu_room(RT_ROOM_PACK, bytes);
        const N(Head) h = N(head_open)(a, head / a->group, k, v, false, &room);
        N(Forward) w = all;
        w.q += head_at(a, a->q, head);
        w.y += head_at(a, a->y, head);
        w.lse += head * a->T;
        for (ptrdiff_t i = item % shares; i < blocks; i += shares)
            N(forward_block)(&h, &w, i * BLOCK, min_size(BLOCK, a->T - i * BLOCK));
    }
}

/* with_q: blocks of queries of this share; with_kv: blocks of keys of this share; both: all. add:
   to what other heads of the group gave to d_k and d_v. */
static void N(backward_item)(const N(Head) * h, const N(Backward) * w, BackwardItem item, bool add)
{
    const ptrdiff_t share = item.share, shares = item.shares;
    const bool with_q = item.with_q, with_kv = item.with_kv;
    for (ptrdiff_t t = 0; t < h->T && h->S == 0; t++)
        memset(w->d_q + t * w->d_q_t, 0, (size_t)h->D * sizeof(REAL));
    for (ptrdiff_t s0 = 0; s0 < h->S; s0 += BLOCK) {
        if (!with_q && s0 / BLOCK % shares != share)
            continue;
        const ptrdiff_t first = min_size(N(first_query)(h, s0), h->T) / BLOCK * BLOCK;
        const ptrdiff_t keys = min_size(BLOCK, h->S - s0);
        bool first_of_key = !add;
        for (ptrdiff_t t0 = s0 == 0 ? 0 : first; t0 < h->T; t0 += BLOCK)
            if (with_kv || t0 / BLOCK % shares == share) {
                const N(Pair) at = { t0, min_size(BLOCK, h->T - t0), s0, keys };
                N(backward_pair)(h, w, at, first_of_key, with_q, with_kv);
                first_of_key = false;
            }
        for (ptrdiff_t s = s0; s < s0 + keys && with_kv && first_of_key; s++) {
            memset(w->d_k + s * w->d_k_t, 0, (size_t)h->D * sizeof(REAL));
            memset(w->d_v + s * w->d_v_t, 0, (size_t)h->E * sizeof(REAL));
        }
    }
}

static void N(sum_delta)(const N(Head) * h, const N(Backward) * w, ptrdiff_t y_t, REAL *delta)
{
    for (ptrdiff_t t = 0; t < h->T; t++) {
        const REAL *y = w->y + t * y_t, *d_y = w->d_y + t * w->d_y_t;
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t e = 0; e < h->E; e++)
            sum += y[e] * d_y[e];
        delta[t] = sum;
    }
}

static void N(attend_back)(N(Backward) all, const REAL *k, const REAL *v, const RtAttention *a,
                           int threads)
{
    const ptrdiff_t items = backward_items(a, threads);
    const size_t bytes = N(head_room)(a, true);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t i = 0; i < items; i++) {
        const BackwardItem item = backward_cut(a, threads, i);
        REAL *room = rt_cpu_room(RT_ROOM_PACK, bytes);
        const N(Head) h = N(head_open)(a, item.head, k, v, true, &room);
        REAL *delta = N(take)(&room, h.T);
        for (ptrdiff_t g = 0; g < a->group; g++) {
            const ptrdiff_t head = item.head * a->group + g;
            N(Backward) w = all;
            w.q += head_at(a, a->q, head);
            w.y += head_at(a, a->y, head);
            w.d_y += head_at(a, a->d_y, head);
            w.lse += head * a->T;
            w.d_q += head_at(a, a->d_q, head);
            w.d_k += keys_at(a, a->d_k, item.head);
            w.d_v += keys_at(a, a->d_v, item.head);
            N(sum_delta)(&h, &w, a->y.t, delta);
            w.delta = delta;
            N(backward_item)(&h, &w, item, g > 0);
        }
    }
}

/* ---- as rt.h declares them ------------------------------------------------------------------- */

void N(rt_attention)(REAL *y, REAL *lse, const REAL *q, const REAL *k, const REAL *v, RtAttention a)
{
    const N(Forward) w = { .q = q, .y = y, .lse = lse, .q_t = a.q.t, .y_t = a.y.t };
    if (attention_complete(&a))
        N(attend)(w, k, v, &a, attention_threads(&a));
}

void N(rt_attention_grad)(REAL *d_q, REAL *d_k, REAL *d_v, const REAL *q, const REAL *k,
                          const REAL *v, const REAL *y, const REAL *lse, const REAL *d_y,
                          RtAttention a)
{
    if (!attention_complete(&a))
        return;
    const N(Backward) w = { .q = q,
                            .y = y,
                            .lse = lse,
                            .d_y = d_y,
                            .d_q = d_q,
                            .d_k = d_k,
                            .d_v = d_v,
                            .q_t = a.q.t,
                            .d_q_t = a.d_q.t,
                            .d_k_t = a.d_k.t,
                            .d_v_t = a.d_v.t,
                            .d_y_t = a.d_y.t };
    N(attend_back)(w, k, v, &a, attention_threads(&a));
}
