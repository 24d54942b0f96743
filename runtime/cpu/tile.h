/* tile.h -- the register tile under matmul_plain.c and attention.c: c[8, 48] (+)= a[8, k] @ b[k, 48].
 *
 * A template: the includer defines REAL, V, LANES and N(name), and includes it once per type. In:
 * a as any strided matrix, b with dense rows; best packed (pack_rows, pack_columns), so that both are
 * read in the order in which they lie in memory. The tile stays in registers over the whole of k;
 * edges run narrower tiles of the same text, so nothing is computed that is not stored.
 */

typedef struct {
    ptrdiff_t   k;
    const REAL *a;                              /* a[i, k] at a + i*a_i + k*a_k                   */
    ptrdiff_t   a_i, a_k;
    const REAL *b;                              /* b[k, j] at b + k*b_k + j, readable to a whole vector */
    ptrdiff_t   b_k;
    REAL       *c;
    ptrdiff_t   c_i;
    bool        add;
    const REAL *bias;                           /* of the tile's first column, or NULL            */
    const char *ahead;                          /* memory needed soon: touched every 4 steps of k */
    ptrdiff_t   ahead_step;
} N(Tile);

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

CPU_INLINE void N(tile_store)(int rows, int vecs, V acc[TILE_ROWS][TILE_VECS], const N(Tile) *t, int last)
{
    for (int j = 0; j < vecs; j++) {
        const bool part = j == vecs - 1 && last < LANES;
        V bias = { 0 };
        if (t->bias)
            bias = part ? N(v_load_part)(t->bias + j * LANES, last) : N(v_load)(t->bias + j * LANES);
        for (int i = 0; i < rows; i++) {
            REAL *at = t->c + i * t->c_i + j * LANES;
            if (part) {
                const V old = t->add ? N(v_load_part)(at, last) : bias;
                N(v_store_part)(at, old + acc[i][j], last);
            } else {
                const V old = t->add ? N(v_load)(at) : bias;
                N(v_store)(at, old + acc[i][j]);
            }
        }
    }
}

/* rows and vecs are constants at every call: the loops unroll and acc lives in registers */
CPU_INLINE void N(tile_body)(int rows, int vecs, const N(Tile) *t, int last, ptrdiff_t a_i, ptrdiff_t a_k,
                             ptrdiff_t b_k)
{
    V acc[TILE_ROWS][TILE_VECS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vecs; j++) {
            acc[i][j] = (V){ 0 };
            __builtin_prefetch(t->c + i * t->c_i + j * LANES, 1, 3);
        }
    const REAL *a = t->a, *b = t->b;
    const char *ahead = t->ahead;
    ptrdiff_t k = t->k;
    for (; k >= 4; k -= 4) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += t->ahead_step;
        for (int u = 0; u < 4; u++)
            N(tile_step)(rows, vecs, acc, a + u * a_k, a_i, b + u * b_k);
        a += 4 * a_k;
        b += 4 * b_k;
    }
    for (; k > 0; k--) {
        N(tile_step)(rows, vecs, acc, a, a_i, b);
        a += a_k;
        b += b_k;
    }
    N(tile_store)(rows, vecs, acc, t, last);
}

/* both operands packed: the strides are constants too */
#define TILE_CASE(rows, vecs)                                                                      \
    case (rows) * 4 + (vecs):                                                                      \
        if (t->a_i == 1 && t->a_k == TILE_ROWS && t->b_k == TILE_VECS * LANES)                     \
            N(tile_body)(rows, vecs, t, last, 1, TILE_ROWS, TILE_VECS * LANES);                    \
        else                                                                                       \
            N(tile_body)(rows, vecs, t, last, t->a_i, t->a_k, t->b_k);                             \
        break;
#define TILE_CASES(rows) TILE_CASE(rows, 1) TILE_CASE(rows, 2) TILE_CASE(rows, 3)

/* One tile of 1..TILE_ROWS rows and 1..TILE_VECS * LANES columns. */
static void N(tile_run)(int rows, int columns, const N(Tile) *t)
{
    const int vecs = (columns + LANES - 1) / LANES, last = columns - (vecs - 1) * LANES;
    switch (rows * 4 + vecs) {
    TILE_CASES(1) TILE_CASES(2) TILE_CASES(3) TILE_CASES(4)
#if VECTOR_REGISTERS >= 32
    TILE_CASES(5) TILE_CASES(6) TILE_CASES(7) TILE_CASES(8)
#endif
    default: break;
    }
}

#undef TILE_CASES
#undef TILE_CASE

/* ---- packing ---------------------------------------------------------------------------------- */

/* Transposes a square of vectors in place: log2(LANES) perfect shuffles of rows i and i + LANES/2. */
CPU_INLINE void N(square_transpose)(V square[LANES])
{
    for (int width = 1; width < LANES; width *= 2) {
        V next[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            next[2 * i]     = N(v_mix_low)(square[i], square[i + LANES / 2]);
            next[2 * i + 1] = N(v_mix_high)(square[i], square[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; i++)
            square[i] = next[i];
    }
}

/* to[k][width] = from[j, k] for j < live (rows of from, along k), 0 beyond; live <= width. */
static void N(pack_turned)(REAL *to, ptrdiff_t width, const REAL *from, ptrdiff_t stride, ptrdiff_t live,
                           ptrdiff_t k)
{
    ptrdiff_t j = 0;
    for (; j + LANES <= live; j += LANES) {
        ptrdiff_t ik = 0;
        for (; ik + LANES <= k; ik += LANES) {
            V square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = N(v_load)(from + (j + i) * stride + ik);
            N(square_transpose)(square);
            for (int i = 0; i < LANES; i++)
                N(v_store)(to + (ik + i) * width + j, square[i]);
        }
        for (; ik < k; ik++)
            for (int i = 0; i < LANES; i++)
                to[ik * width + j + i] = from[(j + i) * stride + ik];
    }
    for (; j < live; j++)
        for (ptrdiff_t ik = 0; ik < k; ik++)
            to[ik * width + j] = from[j * stride + ik];
    for (; j < width; j++)
        for (ptrdiff_t ik = 0; ik < k; ik++)
            to[ik * width + j] = 0;
}

/* to[k][width] = from[k, j] for j < live, 0 beyond. */
static void N(pack_straight)(REAL *to, ptrdiff_t width, const REAL *from, ptrdiff_t stride, ptrdiff_t live,
                             ptrdiff_t k)
{
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
