/* small.h -- fp32 and fp64 products of any size, the second template behind matmul_plain.c. */

enum { N(WIDTH) = TILE_VECS * LANES };

/* A small product, by one thread: tiles run on a as it lies, and on b too unless it is stored
 * turned. */
static void N(run_small)(REAL *c, const REAL *a, const REAL *b, const RtMatmul *p)
{
    REAL packed[SMALL_DEPTH * N(WIDTH)] __attribute__((aligned(RT_ALIGN)));
    for (ptrdiff_t j = 0; j < p->n;) {
        ptrdiff_t live = min_size(N(WIDTH), p->n - j);
        const bool whole = live % LANES == 0;
        if (!p->tb && !whole && live > LANES)
            live -= live % LANES; /* the rest, less than a vector, is a strip of its own */
        const bool pack = p->tb || live % LANES != 0;
        const ptrdiff_t width = round_up(live, LANES);
        if (pack && p->tb)
            N(rt_pack_turned)(packed, width, b + j * p->ldb, p->ldb, live, p->k);
        else if (pack)
            N(rt_pack_straight)(packed, width, b + j, p->ldb, live, p->k);
        for (ptrdiff_t i = 0; i < p->m; i += TILE_ROWS) {
            const N(Tile) t = {
                .k = p->k,
                .a = a + i * (p->ta ? 1 : p->lda),
                .a_i = p->ta ? 1 : p->lda,
                .a_k = p->ta ? p->lda : 1,
                .b = pack ? packed : b + j,
                .b_k = pack ? width : p->ldb,
                .c = c + i * p->ldc + j,
                .c_i = p->ldc,
                .add = p->add,
                .bias = p->bias ? (const REAL *)p->bias + j : NULL,
                .ahead = (const char *)(b + j),
            };
            N(rt_tile)((int)min_size(TILE_ROWS, p->m - i), (int)live, &t);
        }
        j += live;
    }
}

void N(rt_matmul_plain)(REAL *c, const REAL *a, const REAL *b, const RtMatmul *p, int threads)
{
    if (is_small(p))
        N(run_small)(c, a, b, p);
    else
        N(run_product)(c, a, b, p, threads);
}

void N(rt_plain_room)(RtRooms *need, const RtMatmul *p, bool rounded, int threads)
{
    RT_UNUSED(rounded);
    if (is_small(p))
        return;
    for (int part = 0; part < threads; part++) {
        N(Part) w = { .p = p };
        if (N(cut_part)(&w, part, threads))
            rt_cpu_room_ask(need, RT_ROOM_PACK, threads > 1,
                            N(cut_bytes)(N(cut_of)(w.m1 - w.m0, w.n1 - w.n0, p->k)));
    }
}
