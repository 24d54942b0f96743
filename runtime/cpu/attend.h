/* attend.h -- attention of one head by blocks, the template behind attention.c.
 *
 * In: q, k, v (and y, lse, d_y) of one batch index and head, rows any distance apart. Out: y and lse, or
 * d_q, d_k, d_v. The one idea: a block of BLOCK queries meets a block of BLOCK keys in cache; scores
 * exist for that block only. Forward keeps a running maximum and sum per query; backward gets the
 * probabilities again from lse. Where the mask cuts a block, tiles of 8 rows go as far as they must.
 */

typedef struct {
    ptrdiff_t T, S, D, E, wide_d, wide_e;       /* wide: D and E in whole vectors                 */
    REAL      scale;
    bool      causal;
    REAL     *k_turned;                         /* [blocks of S][D][BLOCK]                        */
    REAL     *v_turned;                         /* [blocks of S][E][BLOCK], backward              */
    REAL     *k_rows, *v_rows;                  /* [S][wide_d], [S][wide_e]                       */
    REAL     *q_rows, *d_y_rows;                /* [BLOCK][wide_d], [BLOCK][wide_e], backward     */
    REAL     *score, *d_score;                  /* [BLOCK][BLOCK]                                 */
    REAL     *sum, *most;                       /* [BLOCK]: running, per query                    */
} N(Head);

/* How many keys query t sees. */
CPU_INLINE ptrdiff_t N(keys_seen)(const N(Head) *h, ptrdiff_t t)
{
    return h->causal ? max_size(0, min_size(h->S, t + h->S - h->T + 1)) : h->S;
}

/* The first query that sees key s. */
CPU_INLINE ptrdiff_t N(first_query)(const N(Head) *h, ptrdiff_t s)
{
    return h->causal ? max_size(0, s - h->S + h->T) : 0;
}

/* c[rows, n] (+)= a[rows, k] @ b[k, n] in tiles of TILE_ROWS; n <= any, b in whole vectors */
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

/* to[BLOCK][BLOCK] = rows [t0, t0 + n) of `from` times block s0 of a turned matrix [depth][BLOCK],
   each tile of queries up to the last key that it sees; the rest of to stays as it was. */
static void N(block_scores)(const N(Head) *h, REAL *to, const REAL *from, ptrdiff_t stride, ptrdiff_t depth,
                            const REAL *turned, ptrdiff_t t0, ptrdiff_t n, ptrdiff_t s0)
{
    for (ptrdiff_t i = 0; i < n; i += TILE_ROWS) {
        const ptrdiff_t rows = min_size(TILE_ROWS, n - i);
        const ptrdiff_t keys = min_size(BLOCK, N(keys_seen)(h, t0 + i + rows - 1) - s0);
        if (keys > 0)
            N(block_product)(rows, keys, (N(Tile)){ .k = depth, .a = from + i * stride, .a_i = stride, .a_k = 1,
                             .b = turned, .b_k = BLOCK, .c = to + i * BLOCK, .c_i = BLOCK });
    }
}

/* ---- packing ----------------------------------------------------------------------------------------- */

static void N(turn_blocks)(REAL *to, const REAL *from, ptrdiff_t stride, ptrdiff_t S, ptrdiff_t depth)
{
    for (ptrdiff_t s = 0; s < S; s += BLOCK)
        N(rt_pack_turned)(to + s * depth, BLOCK, from + s * stride, stride, min_size(BLOCK, S - s), depth);
}

/* ---- forward ----------------------------------------------------------------------------------------- */

/* One row of scores: p = exp(scale * score - most), and what older sums are worth now. */
static REAL N(soften_row)(const N(Head) *h, REAL *row, ptrdiff_t seen, ptrdiff_t stored, REAL *most, REAL *sum)
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

/* Queries [t0, t0 + n) meet all keys that they see. */
static void N(forward_block)(const N(Head) *h, REAL *y, ptrdiff_t y_t, REAL *lse, const REAL *q, ptrdiff_t q_t,
                             ptrdiff_t t0, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        h->most[i] = -(REAL)INFINITY;
        h->sum[i] = 0;
    }
    const ptrdiff_t last = N(keys_seen)(h, t0 + n - 1);
    for (ptrdiff_t s0 = 0; s0 < last; s0 += BLOCK) {
        N(block_scores)(h, h->score, q + t0 * q_t, q_t, h->D, h->k_turned + s0 * h->D, t0, n, s0);
        for (ptrdiff_t i = 0; i < n; i += TILE_ROWS) {
            const ptrdiff_t rows = min_size(TILE_ROWS, n - i);
            const ptrdiff_t keys = min_size(BLOCK, N(keys_seen)(h, t0 + i + rows - 1) - s0);
            if (keys <= 0)
                continue;
            for (ptrdiff_t r = i; r < i + rows; r++) {
                const ptrdiff_t seen = max_size(0, min_size(keys, N(keys_seen)(h, t0 + r) - s0));
                REAL worth = 1;
                if (seen > 0)
                    worth = N(soften_row)(h, h->score + r * BLOCK, seen, keys, &h->most[r], &h->sum[r]);
                else
                    memset(h->score + r * BLOCK, 0, (size_t)keys * sizeof(REAL));
                if (s0 > 0 && worth != 1)
                    N(scale_row)(y + (t0 + r) * y_t, h->E, worth);
            }
            N(block_product)(rows, h->E, (N(Tile)){ .k = keys, .a = h->score + i * BLOCK, .a_i = BLOCK, .a_k = 1,
                             .b = h->v_rows + s0 * h->wide_e, .b_k = h->wide_e, .c = y + (t0 + i) * y_t,
                             .c_i = y_t, .add = s0 > 0 });
        }
    }
    for (ptrdiff_t i = 0; i < n; i++) {
        REAL *row = y + (t0 + i) * y_t;
        const bool any = N(keys_seen)(h, t0 + i) > 0;
        lse[t0 + i] = any ? h->most[i] + N(rt_log)(h->sum[i]) : 0;
        if (any)
            N(scale_row)(row, h->E, 1 / h->sum[i]);
        else
            memset(row, 0, (size_t)h->E * sizeof(REAL));
    }
}

/* ---- backward ---------------------------------------------------------------------------------------- */

/* score becomes p = exp(scale * score - lse), d_score = scale * p (d_score - delta); masked: 0 */
static void N(harden_rows)(const N(Head) *h, const REAL *lse, const REAL *delta, ptrdiff_t t0, ptrdiff_t from,
                           ptrdiff_t n, ptrdiff_t s0, ptrdiff_t width)
{
    for (ptrdiff_t r = from; r < n; r++) {
        REAL *p = h->score + r * BLOCK, *d = h->d_score + r * BLOCK;
        const ptrdiff_t seen = max_size(0, min_size(width, N(keys_seen)(h, t0 + r) - s0));
        const REAL l = lse[t0 + r], mean = delta[t0 + r];
        #pragma omp simd
        for (ptrdiff_t s = 0; s < seen; s++) {
            p[s] = N(rt_exp)(h->scale * p[s] - l);
            d[s] = h->scale * p[s] * (d[s] - mean);
        }
        for (ptrdiff_t s = seen; s < width; s++)
            p[s] = d[s] = 0;
    }
}

typedef struct {
    const REAL *q, *y, *lse, *d_y;
    REAL       *d_q, *d_k, *d_v;
    ptrdiff_t   q_t, d_q_t, d_k_t, d_v_t, d_y_t;
    const REAL *delta;                          /* [T]: sum over e of y d_y                       */
} N(Backward);

/* to[keys, n] (+)= m[queries, keys]' @ rows[queries, n]: each tile of keys from the first query that
   sees it */
static void N(block_turned_product)(const N(Head) *h, REAL *to, ptrdiff_t stride, const REAL *m,
                                    const REAL *rows, ptrdiff_t wide, ptrdiff_t columns, ptrdiff_t t0,
                                    ptrdiff_t n, ptrdiff_t s0, ptrdiff_t keys, bool add)
{
    for (ptrdiff_t s = 0; s < keys; s += TILE_ROWS) {
        const ptrdiff_t from = min_size(n, max_size(0, N(first_query)(h, s0 + s) - t0));
        if (from < n || !add)
            N(block_product)(min_size(TILE_ROWS, keys - s), columns,
                             (N(Tile)){ .k = n - from, .a = m + from * BLOCK + s, .a_i = 1, .a_k = BLOCK,
                             .b = rows + from * wide, .b_k = wide, .c = to + (s0 + s) * stride, .c_i = stride,
                             .add = add });
    }
}

/* One block of keys meets one block of queries. What is written first is not added. */
static void N(backward_pair)(const N(Head) *h, const N(Backward) *w, ptrdiff_t t0, ptrdiff_t s0, bool first_of_key,
                             bool with_q, bool with_kv)
{
    const ptrdiff_t n = min_size(BLOCK, h->T - t0), keys = min_size(BLOCK, h->S - s0);
    N(block_scores)(h, h->score, w->q + t0 * w->q_t, w->q_t, h->D, h->k_turned + s0 * h->D, t0, n, s0);
    N(block_scores)(h, h->d_score, w->d_y + t0 * w->d_y_t, w->d_y_t, h->E, h->v_turned + s0 * h->E, t0, n, s0);
    N(harden_rows)(h, w->lse, w->delta, t0, 0, n, s0, keys);
    if (with_kv) {
        N(rt_pack_straight)(h->q_rows, h->wide_d, w->q + t0 * w->q_t, w->q_t, h->D, n);
        N(rt_pack_straight)(h->d_y_rows, h->wide_e, w->d_y + t0 * w->d_y_t, w->d_y_t, h->E, n);
        N(block_turned_product)(h, w->d_v, w->d_v_t, h->score, h->d_y_rows, h->wide_e, h->E, t0, n, s0, keys,
                                !first_of_key);
        N(block_turned_product)(h, w->d_k, w->d_k_t, h->d_score, h->q_rows, h->wide_d, h->D, t0, n, s0, keys,
                                !first_of_key);
    }
    for (ptrdiff_t i = 0; i < n && with_q; i += TILE_ROWS) {
        const ptrdiff_t rows = min_size(TILE_ROWS, n - i);
        const ptrdiff_t seen = max_size(0, min_size(keys, N(keys_seen)(h, t0 + i + rows - 1) - s0));
        if (seen > 0 || s0 == 0)
            N(block_product)(rows, h->D, (N(Tile)){ .k = seen, .a = h->d_score + i * BLOCK, .a_i = BLOCK, .a_k = 1,
                             .b = h->k_rows + s0 * h->wide_d, .b_k = h->wide_d, .c = w->d_q + (t0 + i) * w->d_q_t,
                             .c_i = w->d_q_t, .add = s0 > 0 });
    }
}

/* ---- one item: a head, or a share of its blocks ------------------------------------------------------- */

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

static N(Head) N(head_open)(const RtAttention *a, const REAL *k, const REAL *v, bool backward, REAL **room)
{
    N(Head) h = { .T = a->T, .S = a->S, .D = a->D, .E = a->E, .wide_d = round_up(a->D, LANES),
                  .wide_e = round_up(a->E, LANES), .scale = (REAL)a->scale, .causal = a->causal };
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

static void N(attend)(REAL *y, REAL *lse, const REAL *q, const REAL *k, const REAL *v, const RtAttention *a,
                      int threads)
{
    const ptrdiff_t heads = a->B * a->H, blocks = ceil_div(a->T, BLOCK);
    const ptrdiff_t shares = heads >= threads ? 1 : min_size(blocks, ceil_div(2 * threads, heads));
    const size_t bytes = N(head_room)(a, false);
    #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t item = 0; item < heads * shares; item++) {
        const ptrdiff_t b = item / shares / a->H, head = item / shares % a->H;
        REAL *room = rt_cpu_room(bytes);
        const N(Head) h = N(head_open)(a, k + b * a->k.b + head * a->k.h, v + b * a->v.b + head * a->v.h, false,
                                       &room);
        for (ptrdiff_t i = item % shares; i < blocks; i += shares)
            N(forward_block)(&h, y + b * a->y.b + head * a->y.h, a->y.t, lse + (b * a->H + head) * a->T,
                             q + b * a->q.b + head * a->q.h, a->q.t, i * BLOCK, min_size(BLOCK, a->T - i * BLOCK));
    }
}

/* with_q: blocks of queries of this share; with_kv: blocks of keys of this share. Both: all of them. */
static void N(backward_item)(const N(Head) *h, const N(Backward) *w, ptrdiff_t share, ptrdiff_t shares, bool with_q,
                             bool with_kv)
{
    for (ptrdiff_t t = 0; t < h->T && h->S == 0; t++)
        memset(w->d_q + t * w->d_q_t, 0, (size_t)h->D * sizeof(REAL));
    for (ptrdiff_t s0 = 0; s0 < h->S; s0 += BLOCK) {
        if (!with_q && s0 / BLOCK % shares != share)
            continue;
        const ptrdiff_t first = min_size(N(first_query)(h, s0), h->T) / BLOCK * BLOCK;
        bool first_of_key = true;
        for (ptrdiff_t t0 = s0 == 0 ? 0 : first; t0 < h->T; t0 += BLOCK)
            if (with_kv || t0 / BLOCK % shares == share) {
                N(backward_pair)(h, w, t0, s0, first_of_key, with_q, with_kv);
                first_of_key = false;
            }
        for (ptrdiff_t s = s0; s < min_size(h->S, s0 + BLOCK) && with_kv && first_of_key; s++) {
            memset(w->d_k + s * w->d_k_t, 0, (size_t)h->D * sizeof(REAL));
            memset(w->d_v + s * w->d_v_t, 0, (size_t)h->E * sizeof(REAL));
        }
    }
}

static void N(attend_back)(N(Backward) all, const REAL *k, const REAL *v, const RtAttention *a, int threads)
{
    const ptrdiff_t heads = a->B * a->H;
    const bool split = heads < threads && a->T > BLOCK;
    const ptrdiff_t shares = split ? ceil_div(2 * threads, heads) : 1;
    const ptrdiff_t items = heads * shares * (split ? 2 : 1);
    const size_t bytes = N(head_room)(a, true);
    #pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (ptrdiff_t item = 0; item < items; item++) {
        const ptrdiff_t one = split ? item / 2 : item, b = one / shares / a->H, head = one / shares % a->H;
        N(Backward) w = all;
        w.q += b * a->q.b + head * a->q.h;
        w.y += b * a->y.b + head * a->y.h;
        w.d_y += b * a->d_y.b + head * a->d_y.h;
        w.lse += (b * a->H + head) * a->T;
        w.d_q += b * a->d_q.b + head * a->d_q.h;
        w.d_k += b * a->d_k.b + head * a->d_k.h;
        w.d_v += b * a->d_v.b + head * a->d_v.h;
        REAL *room = rt_cpu_room(bytes);
        const N(Head) h = N(head_open)(a, k + b * a->k.b + head * a->k.h, v + b * a->v.b + head * a->v.h, true,
                                       &room);
        REAL *delta = N(take)(&room, h.T);
        for (ptrdiff_t t = 0; t < h.T; t++) {
            REAL sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (ptrdiff_t e = 0; e < h.E; e++)
                sum += w.y[t * a->y.t + e] * w.d_y[t * a->d_y.t + e];
            delta[t] = sum;
        }
        w.delta = delta;
        N(backward_item)(&h, &w, one % shares, shares, !split || item % 2 == 0, !split || item % 2 == 1);
    }
}
