/* plain.h -- one product by packed register tiles, the template behind matmul_plain.c.
 *
 * The smaller side of c is packed once and shared by all threads; the larger side is cut into items,
 * which threads take in turn, packing each for themselves right before use. So a weight matrix is read
 * from memory once, in the form in which it lies there, whatever the orientation.
 *   m <= n   "strips": a is shared, an item is 48 columns of c
 *   m > n    "blocks": b is shared, an item is some dozens of rows of c
 * Every element of c is summed in the same order whoever computes it: results do not depend on the
 * number of threads.
 */

enum { N(STRIP) = TILE_VECS * LANES, N(SHARED) = SHARED_BYTES / (int)sizeof(REAL) };

typedef struct {
    const RtMatmul *p;
    const REAL *a, *b;
    REAL       *c;
    REAL       *shared;                         /* packed part of the smaller side                */
    ptrdiff_t   m0, m1, n0, n1;                 /* the part of c in work                          */
    ptrdiff_t   k0, k1;                         /* and of k                                       */
    ptrdiff_t   depth;                          /* k of one pass over a tile                      */
    ptrdiff_t   block;                          /* rows of an item                                */
    ptrdiff_t   across;                         /* items per strip: row groups (strips only)      */
    _Atomic ptrdiff_t next;                     /* item to take                                   */
} N(Product);

/* to = rows [i, i + live) of a, k in [k0, k0 + k), as [k][TILE_ROWS] */
static void N(pack_a)(REAL *to, const N(Product) *w, ptrdiff_t i, ptrdiff_t live, ptrdiff_t k0, ptrdiff_t k)
{
    const ptrdiff_t lda = w->p->lda;
    if (w->p->ta)
        N(rt_pack_straight)(to, TILE_ROWS, w->a + k0 * lda + i, lda, live, k);
    else
        N(rt_pack_turned)(to, TILE_ROWS, w->a + i * lda + k0, lda, live, k);
}

/* to = columns [j, j + live) of b, k in [k0, k0 + k), as [k][STRIP] */
static void N(pack_b)(REAL *to, const N(Product) *w, ptrdiff_t j, ptrdiff_t live, ptrdiff_t k0, ptrdiff_t k)
{
    const ptrdiff_t ldb = w->p->ldb;
    if (w->p->tb)
        N(rt_pack_turned)(to, N(STRIP), w->b + j * ldb + k0, ldb, live, k);
    else
        N(rt_pack_straight)(to, N(STRIP), w->b + k0 * ldb + j, ldb, live, k);
}

/* ---- touching ahead --------------------------------------------------------------------------------- */

/* The part of a or b that this thread packs next: rows of so many cache lines. */
typedef struct { const char *at; ptrdiff_t step, lines, rows; } N(Ahead);

static N(Ahead) N(ahead_part)(const REAL *from, bool turned, ptrdiff_t stride, ptrdiff_t side0, ptrdiff_t live,
                              ptrdiff_t k0, ptrdiff_t k)
{
    const ptrdiff_t per_line = 64 / (ptrdiff_t)sizeof(REAL);
    const REAL *at = turned ? from + side0 * stride + k0 : from + k0 * stride + side0;
    return (N(Ahead)){ .at = (const char *)at, .step = stride * (ptrdiff_t)sizeof(REAL),
                       .lines = ceil_div(turned ? k : live, per_line) + 1, .rows = turned ? live : k };
}

/* Tile number t of `tiles` touches one column of lines, down a share of the rows. */
static void N(ahead_tile)(const N(Ahead) *part, ptrdiff_t t, ptrdiff_t tiles, N(Tile) *tile)
{
    const ptrdiff_t groups = max_size(1, tiles / part->lines);
    const ptrdiff_t row = t / part->lines % groups * part->rows / groups;
    tile->ahead = part->at + row * part->step + t % part->lines * 64;
    tile->ahead_step = part->step;
}

/* ---- items ------------------------------------------------------------------------------------------ */

static N(Tile) N(make_tile)(const N(Product) *w, ptrdiff_t i, ptrdiff_t j, ptrdiff_t k0, ptrdiff_t k, const REAL *a,
                            const REAL *b)
{
    const bool first = k0 == 0;
    return (N(Tile)){
        .k = k, .a = a, .a_i = 1, .a_k = TILE_ROWS, .b = b, .b_k = N(STRIP),
        .c = w->c + i * w->p->ldc + j, .c_i = w->p->ldc,
        .add = w->p->add || !first,
        .bias = first && w->p->bias ? (const REAL *)w->p->bias + j : NULL,
        .ahead = (const char *)a,
    };
}

/* The columns that item number `item` of "strips" packs. */
static N(Ahead) N(ahead_strip)(const N(Product) *w, ptrdiff_t item, ptrdiff_t k0)
{
    const ptrdiff_t j = min_size(w->n0 + item / w->across * N(STRIP), w->n1);
    return N(ahead_part)(w->b, w->p->tb, w->p->ldb, j, min_size(N(STRIP), w->n1 - j), k0,
                         min_size(w->depth, w->k1 - k0));
}

/* One item of "strips": the columns of one strip, the rows of one group. own: [depth][STRIP]. */
static void N(run_strip)(const N(Product) *w, ptrdiff_t item, ptrdiff_t next, REAL *own)
{
    const ptrdiff_t j = w->n0 + item / w->across * N(STRIP), group = item % w->across;
    const ptrdiff_t live_j = min_size(N(STRIP), w->n1 - j);
    const ptrdiff_t from = w->m0 + group * w->block, to = min_size(w->m1, from + w->block);
    const ptrdiff_t k_shared = w->k1 - w->k0, tiles = ceil_div(to - from, TILE_ROWS);
    for (ptrdiff_t k0 = w->k0; k0 < w->k1; k0 += w->depth) {
        const ptrdiff_t k = min_size(w->depth, w->k1 - k0);
        const bool last = k0 + k == w->k1;
        const N(Ahead) ahead = N(ahead_strip)(w, last ? next : item, last ? w->k0 : k0 + k);
        N(pack_b)(own, w, j, live_j, k0, k);
        for (ptrdiff_t i = from; i < to; i += TILE_ROWS) {
            const REAL *a = w->shared + (i - w->m0) * k_shared + (k0 - w->k0) * TILE_ROWS;
            N(Tile) tile = N(make_tile)(w, i, j, k0, k, a, own);
            N(ahead_tile)(&ahead, (i - from) / TILE_ROWS, tiles, &tile);
            N(rt_tile)((int)min_size(TILE_ROWS, to - i), (int)live_j, &tile);
        }
    }
}

/* The rows that item number `item` of "blocks" packs. */
static N(Ahead) N(ahead_block)(const N(Product) *w, ptrdiff_t item, ptrdiff_t k0)
{
    const ptrdiff_t i = min_size(w->m0 + item * w->block, w->m1);
    return N(ahead_part)(w->a, !w->p->ta, w->p->lda, i, min_size(w->block, w->m1 - i), k0,
                         min_size(w->depth, w->k1 - k0));
}

/* One item of "blocks": some rows of c, all its columns. own: [block / TILE_ROWS][depth][TILE_ROWS]. */
static void N(run_block)(const N(Product) *w, ptrdiff_t item, ptrdiff_t next, REAL *own)
{
    const ptrdiff_t from = w->m0 + item * w->block, to = min_size(w->m1, from + w->block);
    const ptrdiff_t k_shared = w->k1 - w->k0, rows = ceil_div(to - from, TILE_ROWS);
    const ptrdiff_t tiles = rows * ceil_div(w->n1 - w->n0, N(STRIP));
    for (ptrdiff_t k0 = w->k0; k0 < w->k1; k0 += w->depth) {
        const ptrdiff_t k = min_size(w->depth, w->k1 - k0);
        const bool last = k0 + k == w->k1;
        const N(Ahead) ahead = N(ahead_block)(w, last ? next : item, last ? w->k0 : k0 + k);
        for (ptrdiff_t i = from; i < to; i += TILE_ROWS)
            N(pack_a)(own + (i - from) * k, w, i, min_size(TILE_ROWS, to - i), k0, k);
        for (ptrdiff_t j = w->n0; j < w->n1; j += N(STRIP)) {
            const REAL *b = w->shared + (j - w->n0) * k_shared + (k0 - w->k0) * N(STRIP);
            const ptrdiff_t live_j = min_size(N(STRIP), w->n1 - j);
            for (ptrdiff_t i = from; i < to; i += TILE_ROWS) {
                N(Tile) tile = N(make_tile)(w, i, j, k0, k, own + (i - from) * k, b);
                N(ahead_tile)(&ahead, (j - w->n0) / N(STRIP) * rows + (i - from) / TILE_ROWS, tiles, &tile);
                N(rt_tile)((int)min_size(TILE_ROWS, to - i), (int)live_j, &tile);
            }
        }
    }
}

/* The team's part of one piece: pack the shared side together, then take items until none is left. */
static void N(run_piece)(N(Product) *w, bool strips, REAL *own)
{
    const ptrdiff_t k = w->k1 - w->k0;
    if (strips) {
        #pragma omp for schedule(static)
        for (ptrdiff_t i = w->m0; i < w->m1; i += TILE_ROWS)
            N(pack_a)(w->shared + (i - w->m0) * k, w, i, min_size(TILE_ROWS, w->m1 - i), w->k0, k);
    } else {
        #pragma omp for schedule(static)
        for (ptrdiff_t j = w->n0; j < w->n1; j += N(STRIP))
            N(pack_b)(w->shared + (j - w->n0) * k, w, j, min_size(N(STRIP), w->n1 - j), w->k0, k);
    }
    const ptrdiff_t items = strips ? ceil_div(w->n1 - w->n0, N(STRIP)) * w->across
                                   : ceil_div(w->m1 - w->m0, w->block);
    for (ptrdiff_t item = atomic_fetch_add(&w->next, 1), next; item < items; item = next) {
        next = atomic_fetch_add(&w->next, 1);   /* known early, to be touched ahead               */
        if (strips)
            N(run_strip)(w, item, next, own);
        else
            N(run_block)(w, item, next, own);
    }
}

/* Rows of an item: enough items for all threads, enough rows to pay for the packing. */
static void N(choose_items)(N(Product) *w, bool strips, int threads)
{
    const ptrdiff_t rows = w->m1 - w->m0, strip_count = ceil_div(w->n1 - w->n0, N(STRIP));
    const ptrdiff_t wanted = threads > 1 ? 4 * (ptrdiff_t)threads : 1;
    if (strips) {
        const ptrdiff_t groups = max_size(1, min_size(ceil_div(wanted, strip_count), rows / (4 * TILE_ROWS)));
        w->block = round_up(ceil_div(rows, groups), TILE_ROWS);
        w->across = ceil_div(rows, w->block);
    } else {
        w->block = min_size(BLOCK_ROWS, round_up(ceil_div(rows, wanted), TILE_ROWS));
        w->block = max_size(w->block, 2 * TILE_ROWS);
        w->across = 1;
    }
}

static void N(run_product)(REAL *c, const REAL *a, const REAL *b, const RtMatmul *p, int threads)
{
    const bool strips = p->m <= p->n;
    const ptrdiff_t passes = ceil_div(p->k, DEPTH);
    const ptrdiff_t depth = round_up(ceil_div(p->k, passes), 4);
    const ptrdiff_t unit = strips ? TILE_ROWS : N(STRIP), whole = round_up(strips ? p->m : p->n, unit);
    const ptrdiff_t k_part = min_size(p->k, max_size(1, N(SHARED) / (whole * depth)) * depth);
    const ptrdiff_t side = max_size(unit, N(SHARED) / k_part / unit * unit);
    const ptrdiff_t own = depth * max_size(N(STRIP), BLOCK_ROWS);
    const ptrdiff_t shared = round_up(k_part * min_size(side, whole), LANES);
    REAL *room = rt_cpu_room((size_t)(shared + threads * own) * sizeof(REAL));
    N(Product) w = { .p = p, .a = a, .b = b, .c = c, .shared = room, .depth = depth };

    for (w.k0 = 0; w.k0 < p->k; w.k0 += k_part) {
        w.k1 = min_size(p->k, w.k0 + k_part);
        for (ptrdiff_t at = 0; at < (strips ? p->m : p->n); at += side) {
            w.m0 = strips ? at : 0;
            w.m1 = strips ? min_size(p->m, at + side) : p->m;
            w.n0 = strips ? 0 : at;
            w.n1 = strips ? p->n : min_size(p->n, at + side);
            N(choose_items)(&w, strips, threads);
            atomic_store(&w.next, 0);
            #pragma omp parallel num_threads(threads) if (threads > 1)
            N(run_piece)(&w, strips, room + shared + omp_get_thread_num() * own);
        }
    }
}

/* A small product, by one thread: tiles run on a as it lies, and on b too unless it is stored turned. */
static void N(run_small)(REAL *c, const REAL *a, const REAL *b, const RtMatmul *p)
{
    REAL packed[SMALL_DEPTH * N(STRIP)] __attribute__((aligned(RT_ALIGN)));
    for (ptrdiff_t j = 0; j < p->n;) {
        ptrdiff_t live = min_size(N(STRIP), p->n - j);
        const bool whole = live % LANES == 0;
        if (!p->tb && !whole && live > LANES)
            live -= live % LANES;               /* the rest, less than a vector, is a strip of its own */
        const bool pack = p->tb || live % LANES != 0;
        const ptrdiff_t width = round_up(live, LANES);
        if (pack && p->tb)
            N(rt_pack_turned)(packed, width, b + j * p->ldb, p->ldb, live, p->k);
        else if (pack)
            N(rt_pack_straight)(packed, width, b + j, p->ldb, live, p->k);
        for (ptrdiff_t i = 0; i < p->m; i += TILE_ROWS) {
            const N(Tile) t = {
                .k = p->k, .a = a + i * (p->ta ? 1 : p->lda),
                .a_i = p->ta ? 1 : p->lda, .a_k = p->ta ? p->lda : 1,
                .b = pack ? packed : b + j, .b_k = pack ? width : p->ldb,
                .c = c + i * p->ldc + j, .c_i = p->ldc, .add = p->add,
                .bias = p->bias ? (const REAL *)p->bias + j : NULL,
                .ahead = (const char *)(b + j),
            };
            N(rt_tile)((int)min_size(TILE_ROWS, p->m - i), (int)live, &t);
        }
        j += live;
    }
}
