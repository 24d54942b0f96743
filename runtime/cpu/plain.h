/* plain.h -- one product by register tiles, the template behind matmul_plain.c.
 *
 * Operands are stored as SRC and computed with as REAL: packing converts what has 16 bits.
 * c is cut into a grid of parts, one for each thread, which works alone: what lies in one cache is
 * packed by its own core. Within a part the smaller side is packed first ("near", it stays in the
 * second-level cache), the other one piece by piece right before its use ("far"), while the memory
 * of the piece after it is touched. So a weight matrix is read from memory once, in the form in
 * which it lies there, whatever the orientation. Where packing would not pay, tiles run on what is
 * stored. Every element of c is summed in the same order whoever computes it: the bits do not
 * depend on the number of threads.
 */

enum { N(STRIP) = TILE_VECS * LANES, N(NEAR) = NEAR_BYTES / (int)sizeof(REAL) };

typedef struct {
    const RtMatmul *p;
    const SRC *a, *b;
    REAL *c;
    ptrdiff_t m0, m1, n0, n1; /* the part of c in work */
    ptrdiff_t k0, k1;         /* and of k: one pass over the tiles */
    REAL *near, *far;         /* packed sides */
    bool direct_a, direct_b;  /* not packed */
} N(Part);

/* One side of a tile: where it starts, its steps. */
typedef struct {
    const REAL *at;
    ptrdiff_t side, k;
} N(Side);

/* Rows [i, i + live) of a as [k][TILE_ROWS], in `to` if they are packed. */
static N(Side) N(side_a)(const N(Part) * w, ptrdiff_t i, ptrdiff_t live, REAL *to, bool pack)
{
    const ptrdiff_t lda = w->p->lda, k = w->k1 - w->k0;
    const SRC *from = w->p->ta ? w->a + w->k0 * lda + i : w->a + i * lda + w->k0;
    if (w->direct_a)
        return (N(Side)){ (const REAL *)(const void *)from, w->p->ta ? 1 : lda,
                          w->p->ta ? lda : 1 };
    if (pack && w->p->ta)
        N(rt_pack_straight)(to, TILE_ROWS, from, lda, live, k);
    else if (pack)
        N(rt_pack_turned)(to, TILE_ROWS, from, lda, live, k);
    return (N(Side)){ to, 1, TILE_ROWS };
}

/* Columns [j, j + live) of b as [k][STRIP]. */
static N(Side) N(side_b)(const N(Part) * w, ptrdiff_t j, ptrdiff_t live, REAL *to, bool pack)
{
    const ptrdiff_t ldb = w->p->ldb, k = w->k1 - w->k0;
    const SRC *from = w->p->tb ? w->b + j * ldb + w->k0 : w->b + w->k0 * ldb + j;
    if (w->direct_b && live == N(STRIP))
        return (N(Side)){ (const REAL *)(const void *)from, 1, ldb };
    if (pack && w->p->tb)
        N(rt_pack_turned)(to, N(STRIP), from, ldb, live, k);
    else if (pack)
        N(rt_pack_straight)(to, N(STRIP), from, ldb, live, k);
    return (N(Side)){ to, 1, N(STRIP) };
}

/* ---- touching ahead -------------------------------------------------------------------------- */

/* A piece of a or b that is packed next: rows of so many cache lines. */
typedef struct {
    const char *at;
    ptrdiff_t step, lines, rows;
} N(Ahead);

/* along: k runs along the stored rows */
static N(Ahead) N(ahead_piece)(const SRC *from, bool along, ptrdiff_t stride, ptrdiff_t side0,
                               ptrdiff_t live, ptrdiff_t k0, ptrdiff_t k)
{
    const ptrdiff_t per_line = 64 / (ptrdiff_t)sizeof(SRC);
    const SRC *at = along ? from + side0 * stride + k0 : from + k0 * stride + side0;
    return (N(Ahead)){ .at = (const char *)at,
                       .step = stride * (ptrdiff_t)sizeof(SRC),
                       .lines = ceil_div(along ? k : live, per_line) + 1,
                       .rows = along ? live : k };
}

/* Tile number t of `tiles` touches one column of lines, down a share of the rows. */
static void N(ahead_tile)(const N(Ahead) * piece, ptrdiff_t t, ptrdiff_t tiles, R(Tile) * tile)
{
    const ptrdiff_t groups = max_size(1, tiles / piece->lines);
    const ptrdiff_t row = t / piece->lines % groups * piece->rows / groups;
    tile->ahead = piece->at + row * piece->step + t % piece->lines * 64;
    tile->ahead_step = piece->step;
}

/* ---- the two orders -------------------------------------------------------------------------- */

static void N(run_tile)(const N(Part) * w, ptrdiff_t i, ptrdiff_t j, N(Side) a, N(Side) b,
                        const N(Ahead) * ahead, ptrdiff_t t, ptrdiff_t tiles)
{
    const bool first = w->k0 == 0;
    R(Tile)
    tile = {
        .k = w->k1 - w->k0,
        .a = a.at,
        .a_i = a.side,
        .a_k = a.k,
        .b = b.at,
        .b_k = b.k,
        .c = w->c + i * w->p->ldc + j,
        .c_i = w->p->ldc,
        .add = w->p->add || !first,
        .bias = first && w->p->bias ? (const REAL *)w->p->bias + j : NULL,
    };
    N(ahead_tile)(ahead, t, tiles, &tile);
    R(rt_tile)((int)min_size(TILE_ROWS, w->m1 - i), (int)min_size(N(STRIP), w->n1 - j), &tile);
}

/* Rows are near, strips of columns far. */
static void N(run_strips)(const N(Part) * w)
{
    const ptrdiff_t k = w->k1 - w->k0, tiles = ceil_div(w->m1 - w->m0, TILE_ROWS);
    for (ptrdiff_t j = w->n0; j < w->n1; j += N(STRIP)) {
        const ptrdiff_t next = min_size(j + N(STRIP), w->n1);
        const N(Ahead) ahead = N(ahead_piece)(w->b, w->p->tb, w->p->ldb, next,
                                              min_size(N(STRIP), w->n1 - next), w->k0, k);
        const N(Side) b = N(side_b)(w, j, next - j, w->far, true);
        for (ptrdiff_t i = w->m0; i < w->m1; i += TILE_ROWS) {
            const N(Side) a = N(side_a)(w, i, min_size(TILE_ROWS, w->m1 - i),
                                        w->near + (i - w->m0) * k, j == w->n0);
            N(run_tile)(w, i, j, a, b, &ahead, (i - w->m0) / TILE_ROWS, tiles);
        }
    }
}

/* Columns are near, blocks of rows far. */
static void N(run_blocks)(const N(Part) * w)
{
    const ptrdiff_t k = w->k1 - w->k0, strips = ceil_div(w->n1 - w->n0, N(STRIP));
    for (ptrdiff_t from = w->m0; from < w->m1; from += BLOCK_ROWS) {
        const ptrdiff_t to = min_size(from + BLOCK_ROWS, w->m1);
        const ptrdiff_t rows = ceil_div(to - from, TILE_ROWS);
        const N(Ahead) ahead = N(ahead_piece)(w->a, !w->p->ta, w->p->lda, to,
                                              min_size(BLOCK_ROWS, w->m1 - to), w->k0, k);
        for (ptrdiff_t j = w->n0; j < w->n1; j += N(STRIP)) {
            const N(Side) b = N(side_b)(w, j, min_size(N(STRIP), w->n1 - j),
                                        w->near + (j - w->n0) * k, from == w->m0);
            for (ptrdiff_t i = from; i < to; i += TILE_ROWS) {
                const N(Side) a = N(side_a)(w, i, min_size(TILE_ROWS, to - i),
                                            w->far + (i - from) * k, j == w->n0);
                const ptrdiff_t done = (j - w->n0) / N(STRIP) * rows + (i - from) / TILE_ROWS;
                N(run_tile)(w, i, j, a, b, &ahead, done, rows * strips);
            }
        }
    }
}

/* ---- a thread's part ------------------------------------------------------------------------- */

/* How a part is packed: the near side, of rows where they are the shorter one, in pieces of `side`,
   `depth` of k at a time; elements of both rooms. */
typedef struct {
    bool strips;
    ptrdiff_t depth, side, near, far;
} N(Cut);

static N(Cut) N(cut_of)(ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t k)
{
    const bool strips = rows <= columns;
    const ptrdiff_t unit = strips ? TILE_ROWS : N(STRIP);
    const ptrdiff_t depth = min_size(k, round_up(ceil_div(k, ceil_div(k, DEPTH)), 8));
    const ptrdiff_t fits = max_size(1, N(NEAR) / depth / unit) * unit;
    const ptrdiff_t side = min_size(round_up(strips ? rows : columns, unit), fits);
    return (N(Cut)){ strips, depth, side, round_up(depth * side, LANES),
                     depth * max_size(N(STRIP), BLOCK_ROWS) };
}

static size_t N(cut_bytes)(N(Cut) cut) { return (size_t)(cut.near + cut.far) * sizeof(REAL); }

/* Passes over k outermost; the near side goes in pieces that fit its cache. */
static void N(run_part)(N(Part) w)
{
    const ptrdiff_t rows = w.m1 - w.m0, columns = w.n1 - w.n0, all = w.p->k;
    const N(Cut) cut = N(cut_of)(rows, columns, all);
    const bool strips = cut.strips;
    const ptrdiff_t from = strips ? w.m0 : w.n0, to = strips ? w.m1 : w.n1;
    const ptrdiff_t depth = cut.depth, side = cut.side;
    w.near = rt_cpu_room(RT_ROOM_PACK, N(cut_bytes)(cut));
    w.far = w.near + cut.near;
    const bool aliased = w.p->lda * (ptrdiff_t)sizeof(REAL) % 4096 == 0; /* rows in one set */
    const bool as_is = sizeof(SRC) == sizeof(REAL);                      /* nothing to convert */
    w.direct_a = as_is && columns <= 2 * N(STRIP) && (w.p->ta || !aliased);
    w.direct_b = as_is && rows <= 8 * TILE_ROWS && !w.p->tb;
    for (w.k0 = 0; w.k0 < all; w.k0 = w.k1) {
        w.k1 = min_size(all, w.k0 + depth);
        for (ptrdiff_t at = from; at < to; at += side) {
            N(Part) piece = w;
            *(strips ? &piece.m0 : &piece.n0) = at;
            *(strips ? &piece.m1 : &piece.n1) = min_size(to, at + side);
            if (strips)
                N(run_strips)(&piece);
            else
                N(run_blocks)(&piece);
        }
    }
}

/* How many parts along m: least work of the largest part, in steps of a tile over one k; packing a
   tile of rows counts as 6 of them, packing a strip as 20 (measured), a tile itself takes 24. */
static int N(grid_rows)(const RtMatmul *p, int threads)
{
    const ptrdiff_t tiles = ceil_div(p->m, TILE_ROWS), strips = ceil_div(p->n, N(STRIP));
    ptrdiff_t least = PTRDIFF_MAX;
    int best = 1;
    for (int rows = 1; rows <= threads; rows++) {
        const ptrdiff_t high = ceil_div(tiles, rows), wide = ceil_div(strips, threads / rows);
        const ptrdiff_t work = 24 * high * wide + 6 * high + 20 * wide;
        if (work < least) {
            least = work;
            best = rows;
        }
    }
    return best;
}

/* Part number `part` of all that there are for so many threads; false: it is empty. */
static bool N(cut_part)(N(Part) * w, int part, int threads)
{
    const RtMatmul *p = w->p;
    const int rows = N(grid_rows)(p, threads), columns = threads / rows;
    const ptrdiff_t tiles = ceil_div(p->m, TILE_ROWS), strips = ceil_div(p->n, N(STRIP));
    const ptrdiff_t row = part / columns, column = part % columns;
    w->m0 = min_size(p->m, tiles * row / rows * TILE_ROWS);
    w->m1 = min_size(p->m, tiles * (row + 1) / rows * TILE_ROWS);
    w->n0 = min_size(p->n, strips * column / columns * N(STRIP));
    w->n1 = min_size(p->n, strips * (column + 1) / columns * N(STRIP));
    return row < rows && w->m0 < w->m1 && w->n0 < w->n1;
}

static void N(run_product)(REAL *c, const SRC *a, const SRC *b, const RtMatmul *p, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        N(Part) w = { .p = p, .a = a, .b = b, .c = c };
        if (N(cut_part)(&w, part, threads))
            N(run_part)(w);
    }
}
