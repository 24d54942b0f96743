/* pack.h -- the other template behind tile.c: a side of a product in the order of the tiles.
 *
 * What is stored in 16 bits becomes float on the way.
 */

/* to[k][rows] = from[j, k] for j < rows; returns the k done, a multiple of LANES */
CPU_INLINE ptrdiff_t N(pack_turned_narrow)(int rows, REAL *to, const SRC *from, ptrdiff_t stride,
                                           ptrdiff_t k)
{
    ptrdiff_t ik = 0;
    for (; ik + LANES <= k; ik += LANES) {
        V turned[LANES];
        for (int i = 0; i < rows; i++)
            turned[i] = N(v_load)(from + i * stride + ik);
        R(turn_vectors)(rows, turned);
        for (int i = 0; i < rows; i++)
            R(v_store)(to + ik * rows + i * LANES, turned[i]);
    }
    return ik;
}

CPU_INLINE void N(pack_turned_square)(REAL *to, ptrdiff_t width, const SRC *from, ptrdiff_t stride,
                                      ptrdiff_t k)
{
    ptrdiff_t ik = 0;
    for (; ik + LANES <= k; ik += LANES) {
        V turned[LANES];
        for (int i = 0; i < LANES; i++)
            turned[i] = N(v_load)(from + i * stride + ik);
        R(turn_vectors)(LANES, turned);
        for (int i = 0; i < LANES; i++)
            R(v_store)(to + (ik + i) * width, turned[i]);
    }
    for (; ik < k; ik++)
        for (int i = 0; i < LANES; i++)
            to[ik * width + i] = N(v_one)(from[i * stride + ik]);
}

/* to[k][width] = from[j, k] for j < live (rows of from, along k), 0 beyond; live <= width. */
void N(rt_pack_turned)(REAL *to, ptrdiff_t width, const SRC *from, ptrdiff_t stride, ptrdiff_t live,
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
            to[ik * width + j] = N(v_one)(from[j * stride + ik]);
    for (; j < width; j++)
        for (ptrdiff_t ik = 0; ik < k; ik++)
            to[ik * width + j] = 0;
}

/* to[k][width] = from[k, j] for j < live, 0 beyond. */
void N(rt_pack_straight)(REAL *to, ptrdiff_t width, const SRC *from, ptrdiff_t stride,
                         ptrdiff_t live, ptrdiff_t k)
{
    if (live == width && width == TILE_ROWS) {
        for (ptrdiff_t ik = 0; ik < k; ik++)
            for (int j = 0; j < TILE_ROWS; j++)
                to[ik * TILE_ROWS + j] = N(v_one)(from[ik * stride + j]);
        return;
    }
    if (live == width && width == TILE_VECS * LANES) {
        for (ptrdiff_t ik = 0; ik < k; ik++)
            for (int j = 0; j < TILE_VECS * LANES; j += LANES)
                R(v_store)(to + ik * TILE_VECS * LANES + j, N(v_load)(from + ik * stride + j));
        return;
    }
    for (ptrdiff_t ik = 0; ik < k; ik++) {
        ptrdiff_t j = 0;
        for (; j + LANES <= live; j += LANES)
            R(v_store)(to + ik * width + j, N(v_load)(from + ik * stride + j));
        for (; j < live; j++)
            to[ik * width + j] = N(v_one)(from[ik * stride + j]);
        for (; j < width; j++)
            to[ik * width + j] = 0;
    }
}
