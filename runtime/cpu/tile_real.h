/* tile_real.h -- the template behind tile.c, once per type: REAL, V, LANES, N(name). */

/* ---- the tile -------------------------------------------------------------------------------- */

/* A row of the tile: its sums over k, in up to three vectors. */
typedef struct {
    V v0, v1, v2;
} N(Row);

CPU_INLINE N(Row) N(row_step)(N(Row) sum, int vecs, REAL x, N(Row) b)
{
    const V all = N(v_splat)(x);
    sum.v0 = N(v_fma)(all, b.v0, sum.v0);
    if (vecs > 1)
        sum.v1 = N(v_fma)(all, b.v1, sum.v1);
    if (vecs > 2)
        sum.v2 = N(v_fma)(all, b.v2, sum.v2);
    return sum;
}

CPU_INLINE N(Row) N(row_load)(int vecs, const REAL *at)
{
    N(Row) row = { { 0 }, { 0 }, { 0 } };
    row.v0 = N(v_load)(at);
    if (vecs > 1)
        row.v1 = N(v_load)(at + LANES);
    if (vecs > 2)
        row.v2 = N(v_load)(at + 2 * LANES);
    return row;
}

/* LANES is a constant at most calls: the case without masks */
CPU_INLINE void N(vector_store)(REAL *c, V v, int live, bool add)
{
    if (live == LANES)
        N(v_store)(c, add ? N(v_load)(c) + v : v);
    else
        N(v_store_part)(c, add ? N(v_load_part)(c, live) + v : v, live);
}

/* last: live lanes of the last vector */
CPU_INLINE void N(row_store)(REAL *c, N(Row) sum, int vecs, int last, bool add)
{
    N(vector_store)(c, sum.v0, vecs > 1 ? LANES : last, add);
    if (vecs > 1)
        N(vector_store)(c + LANES, sum.v1, vecs > 2 ? LANES : last, add);
    if (vecs > 2)
        N(vector_store)(c + 2 * LANES, sum.v2, last, add);
}

#define EACH_ROW(X)  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ROW_START(i) N(Row) r##i = start;
#define ROW_STEP(i)                                                                                \
    if (rows > i)                                                                                  \
        r##i = N(row_step)(r##i, vecs, a[i * a_i], b_row);
#define ROW_STORE(i)                                                                               \
    if (rows > i)                                                                                  \
        N(row_store)(c + i * c_i, r##i, vecs, some, add);

/* rows and vecs are constants at every call, so the rows of the tile live in registers */
CPU_INLINE void N(tile_body)(int rows, int vecs, const N(Tile) * t, int last)
{
    N(Row) start = { { 0 }, { 0 }, { 0 } };
    if (t->bias) {
        start.v0 = N(v_load_part)(t->bias, vecs > 1 ? LANES : last);
        if (vecs > 1)
            start.v1 = N(v_load_part)(t->bias + LANES, vecs > 2 ? LANES : last);
        if (vecs > 2)
            start.v2 = N(v_load_part)(t->bias + 2 * LANES, last);
    }
    EACH_ROW(ROW_START)
    const REAL *a = t->a, *b = t->b;
    const ptrdiff_t a_i = t->a_i, a_k = t->a_k, b_k = t->b_k, c_i = t->c_i;
    const char *ahead = t->ahead;
    REAL *const c = t->c;
    ptrdiff_t touched = 0; /* rows of c: one by one, to spare miss buffers */
    for (ptrdiff_t k = t->k; k > 0; k--) {
        if (k % 8 == 0) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += t->ahead_step;
            for (int j = 0; j < vecs; j++)
                __builtin_prefetch(c + touched * c_i + j * LANES, 1, 3);
            touched += touched < rows - 1;
        }
        const N(Row) b_row = N(row_load)(vecs, b);
        EACH_ROW(ROW_STEP)
        a += a_k;
        b += b_k;
    }
    if (last == LANES && !t->add) {
        const int some = LANES;
        const bool add = false;
        EACH_ROW(ROW_STORE)
    } else if (last == LANES) {
        const int some = LANES;
        const bool add = true;
        EACH_ROW(ROW_STORE)
    } else {
        const int some = last;
        const bool add = t->add;
        EACH_ROW(ROW_STORE)
    }
}

#undef EACH_ROW
#undef ROW_START
#undef ROW_STEP
#undef ROW_STORE

CPU_INLINE void N(tile_rows)(int rows, int vecs, const N(Tile) * t, int last)
{
    if (vecs == 3)
        N(tile_body)(rows, 3, t, last);
    else if (vecs == 2)
        N(tile_body)(rows, 2, t, last);
    else
        N(tile_body)(rows, 1, t, last);
}

void N(rt_tile)(int rows, int columns, const N(Tile) * t)
{
    const int vecs = (columns + LANES - 1) / LANES, last = columns - (vecs - 1) * LANES;
    if (rows == TILE_ROWS) {
        N(tile_rows)(TILE_ROWS, vecs, t, last);
        return;
    }
    N(Tile) part = *t;
    for (int some; rows > 0; rows -= some) { /* the rest: halves of a tile */
        some = rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
        if (some == 4)
            N(tile_rows)(4, vecs, &part, last);
        else if (some == 2)
            N(tile_rows)(2, vecs, &part, last);
        else
            N(tile_rows)(1, vecs, &part, last);
        part.a += some * part.a_i;
        part.c += some * part.c_i;
    }
}

/* ---- for packing ----------------------------------------------------------------------------- */

/* Turns `rows` vectors (rows of a matrix) into its columns, one after the other: log2(rows) times,
   lanes of rows i and i + rows/2 in turn. rows is a constant, a power of two up to LANES. */
CPU_INLINE void N(turn_vectors)(int rows, V turned[LANES])
{
    for (int width = 1; width < rows; width *= 2) {
        V next[LANES];
        for (int i = 0; i < rows / 2; i++) {
            next[2 * i] = N(v_mix_low)(turned[i], turned[i + rows / 2]);
            next[2 * i + 1] = N(v_mix_high)(turned[i], turned[i + rows / 2]);
        }
        for (int i = 0; i < rows; i++)
            turned[i] = next[i];
    }
}
