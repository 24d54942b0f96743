/* tile_real.h -- the template behind tile.c, once per type: REAL, V, LANES, N(name). */

CPU_INLINE void N(tile_step)(int rows, int vecs, V acc[TILE_ROWS][TILE_VECS], const REAL *a,
                             ptrdiff_t a_i, const REAL *b)
{
    V column[TILE_VECS];
    for (int j = 0; j < vecs; j++)
        column[j] = N(v_load)(b + j * LANES);
    for (int i = 0; i < rows; i++) {
        const V x = N(v_splat)(a[i * a_i]);
        for (int j = 0; j < vecs; j++)
            acc[i][j] = N(v_fma)(x, column[j], acc[i][j]);
    }
}

CPU_INLINE void N(tile_store)(int rows, int vecs, V acc[TILE_ROWS][TILE_VECS], const N(Tile) *t,
                              int last)
{
    for (int j = 0; j < vecs; j++) {
        const int live = j == vecs - 1 ? last : LANES;
        REAL *const c = t->c + j * LANES;
        if (t->add)
            for (int i = 0; i < rows; i++)
                acc[i][j] += N(v_load_part)(c + i * t->c_i, live);
        else if (t->bias)
            for (int i = 0; i < rows; i++)
                acc[i][j] += N(v_load_part)(t->bias + j * LANES, live);
        for (int i = 0; i < rows; i++)
            N(v_store_part)(c + i * t->c_i, acc[i][j], live);
    }
}

/* rows and vecs are constants at every call: the inner loops unroll and acc lives in registers */
CPU_INLINE void N(tile_body)(int rows, int vecs, const N(Tile) *t, int last)
{
    V acc[TILE_ROWS][TILE_VECS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vecs; j++) {
            acc[i][j] = (V){ 0 };
            __builtin_prefetch(t->c + i * t->c_i + j * LANES, 1, 3);
        }
    const REAL *a = t->a, *b = t->b;
    const ptrdiff_t a_i = t->a_i, a_k = t->a_k, b_k = t->b_k;
    const char *ahead = t->ahead;
    for (ptrdiff_t k = t->k; k > 0;) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += t->ahead_step;
        for (const ptrdiff_t until = k > 8 ? k - 8 : 0; k > until; k--) {
            N(tile_step)(rows, vecs, acc, a, a_i, b);
            a += a_k;
            b += b_k;
        }
    }
    N(tile_store)(rows, vecs, acc, t, last);
}

#define TILE_CASES(rows)                                                                           \
    case (rows) * 4 + 1: N(tile_body)(rows, 1, &part, last); break;                                \
    case (rows) * 4 + 2: N(tile_body)(rows, 2, &part, last); break;                                \
    case (rows) * 4 + 3: N(tile_body)(rows, 3, &part, last); break;

void N(rt_tile)(int rows, int columns, const N(Tile) *t)
{
    const int vecs = (columns + LANES - 1) / LANES, last = columns - (vecs - 1) * LANES;
    N(Tile) part = *t;
    while (rows > 0) {
        const int some = rows >= TILE_ROWS ? TILE_ROWS : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
        switch (some * 4 + vecs) {
        TILE_CASES(1) TILE_CASES(2) TILE_CASES(4)
#if VECTOR_REGISTERS >= 32
        TILE_CASES(8)
#endif
        default: break;
        }
        part.a += some * part.a_i;
        part.c += some * part.c_i;
        rows -= some;
    }
}

#undef TILE_CASES

/* ---- packing ---------------------------------------------------------------------------------- */

/* Turns `rows` vectors (rows of a matrix) into its columns, one after the other: log2(rows) times,
   lanes of rows i and i + rows/2 in turn. rows is a constant, a power of two up to LANES. */
CPU_INLINE void N(turn_vectors)(int rows, V turned[LANES])
{
    for (int width = 1; width < rows; width *= 2) {
        V next[LANES];
        for (int i = 0; i < rows / 2; i++) {
            next[2 * i]     = N(v_mix_low)(turned[i], turned[i + rows / 2]);
            next[2 * i + 1] = N(v_mix_high)(turned[i], turned[i + rows / 2]);
        }
        for (int i = 0; i < rows; i++)
            turned[i] = next[i];
    }
}

/* to[k][rows] = from[j, k] for j < rows; returns the k done, a multiple of LANES */
CPU_INLINE ptrdiff_t N(pack_turned_narrow)(int rows, REAL *to, const REAL *from, ptrdiff_t stride, ptrdiff_t k)
{
    ptrdiff_t ik = 0;
    for (; ik + LANES <= k; ik += LANES) {
        V turned[LANES];
        for (int i = 0; i < rows; i++)
            turned[i] = N(v_load)(from + i * stride + ik);
        N(turn_vectors)(rows, turned);
        for (int i = 0; i < rows; i++)
            N(v_store)(to + ik * rows + i * LANES, turned[i]);
    }
    return ik;
}

CPU_INLINE void N(pack_turned_square)(REAL *to, ptrdiff_t width, const REAL *from, ptrdiff_t stride, ptrdiff_t k)
{
    ptrdiff_t ik = 0;
    for (; ik + LANES <= k; ik += LANES) {
        V turned[LANES];
        for (int i = 0; i < LANES; i++)
            turned[i] = N(v_load)(from + i * stride + ik);
        N(turn_vectors)(LANES, turned);
        for (int i = 0; i < LANES; i++)
            N(v_store)(to + (ik + i) * width, turned[i]);
    }
    for (; ik < k; ik++)
        for (int i = 0; i < LANES; i++)
            to[ik * width + i] = from[i * stride + ik];
}

/* to[k][width] = from[j, k] for j < live (rows of from, along k), 0 beyond; live <= width. */
void N(rt_pack_turned)(REAL *to, ptrdiff_t width, const REAL *from, ptrdiff_t stride, ptrdiff_t live,
                           ptrdiff_t k)
{
    ptrdiff_t j = 0, done = 0;
    const int rows = (int)TILE_ROWS < (int)LANES ? TILE_ROWS : LANES;
    if (width == rows && live == rows)
        done = N(pack_turned_narrow)(rows, to, from, stride, k);
    for (; j + LANES <= live && done == 0; j += LANES)
        N(pack_turned_square)(to + j, width, from + j * stride, stride, k);
    for (; j < live; j++)
        for (ptrdiff_t ik = done; ik < k; ik++)
            to[ik * width + j] = from[j * stride + ik];
    for (; j < width; j++)
        for (ptrdiff_t ik = 0; ik < k; ik++)
            to[ik * width + j] = 0;
}

/* to[k][width] = from[k, j] for j < live, 0 beyond. */
void N(rt_pack_straight)(REAL *to, ptrdiff_t width, const REAL *from, ptrdiff_t stride, ptrdiff_t live,
                             ptrdiff_t k)
{
    if (live == width && width == TILE_ROWS) {
        for (ptrdiff_t ik = 0; ik < k; ik++)
            memcpy(to + ik * TILE_ROWS, from + ik * stride, TILE_ROWS * sizeof(REAL));
        return;
    }
    if (live == width && width == TILE_VECS * LANES) {
        for (ptrdiff_t ik = 0; ik < k; ik++)
            for (int i = 0; i < TILE_VECS; i++)
                N(v_store)(to + (ik * TILE_VECS + i) * LANES, N(v_load)(from + ik * stride + i * LANES));
        return;
    }
    for (ptrdiff_t ik = 0; ik < k; ik++) {
        ptrdiff_t j = 0;
        for (; j + LANES <= live; j += LANES)
            N(v_store)(to + ik * width + j, N(v_load)(from + ik * stride + j));
        for (; j < live; j++)
            to[ik * width + j] = from[ik * stride + j];
        for (; j < width; j++)
            to[ik * width + j] = 0;
    }
}
