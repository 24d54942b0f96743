/* round.h -- products of 16-bit operands of any size, the third template behind matmul_plain.c.
 *
 * Sums are in fp32 over the whole of k. Where the result has 16 bits, the product goes block by
 * block through room in fp32 that stays in cache, and is rounded once, when it is complete.
 */

/* The side of equal blocks, at most `most` and in whole units, that cut n. */
static ptrdiff_t N(block_side)(ptrdiff_t n, ptrdiff_t most, ptrdiff_t unit)
{
    most = max_size(1, most / unit) * unit;
    return min_size(n, round_up(ceil_div(n, ceil_div(n, most)), unit));
}

/* A part whose result is rounded: the blocks it is cut into, along its longer side. */
static void N(rounded_block)(const N(Part) * w, ptrdiff_t *high, ptrdiff_t *across)
{
    const ptrdiff_t rows = w->m1 - w->m0, columns = w->n1 - w->n0;
    *high = N(block_side)(rows, ROUND_SIDE, TILE_ROWS);
    *across = N(block_side)(columns, ROUND_SIDE, N(STRIP));
    if (rows <= columns)
        *across = N(block_side)(columns, ROUND_ELEMS / *high, N(STRIP));
    else
        *high = N(block_side)(rows, ROUND_ELEMS / *across, TILE_ROWS);
}

static void N(run_rounded)(N(Part) w, SRC *half)
{
    const ptrdiff_t ldc = w.p->ldc;
    ptrdiff_t high, across;
    N(rounded_block)(&w, &high, &across);
    float *const sums = rt_cpu_room(RT_ROOM_HALF, (size_t)(high * across) * sizeof *sums);
    for (ptrdiff_t i = w.m0; i < w.m1; i += high)
        for (ptrdiff_t j = w.n0; j < w.n1; j += across) {
            RtMatmul p = *w.p;
            p.m = min_size(high, w.m1 - i);
            p.n = min_size(across, w.n1 - j);
            p.ldc = across;
            p.bias = p.bias ? (const float *)p.bias + j : NULL;
            const N(Part) block = { .p = &p,
                                    .a = w.a + i * (p.ta ? 1 : p.lda),
                                    .b = w.b + j * (p.tb ? p.ldb : 1),
                                    .c = sums,
                                    .m1 = p.m,
                                    .n1 = p.n };
            N(run_part)(block);
            N(rt_narrow)(half + i * ldc + j, ldc, sums, across, p.m, p.n);
        }
}

static size_t N(converted_bytes)(const RtMatmul *p, ptrdiff_t size_c)
{
    const ptrdiff_t size_a = round_up(p->m * p->k, LANES), size_b = round_up(p->k * p->n, LANES);
    return (size_t)(size_a + size_b + size_c + LANES) * sizeof(float);
}

/* A small product: operands are converted whole, and the rest is that of fp32. */
static void N(run_converted)(float *c, SRC *half, const SRC *a, const SRC *b, const RtMatmul *p)
{
    RtMatmul q = *p;
    const ptrdiff_t size_a = round_up(p->m * p->k, LANES), size_b = round_up(p->k * p->n, LANES);
    const ptrdiff_t size_c = c ? 0 : p->m * p->n;
    float *room = rt_cpu_room(RT_ROOM_HALF, N(converted_bytes)(p, size_c));
    q.lda = p->ta ? p->m : p->k;
    q.ldb = p->tb ? p->k : p->n;
    N(rt_widen)(room, a, p->lda, p->ta ? p->k : p->m, q.lda);
    N(rt_widen)(room + size_a, b, p->ldb, p->tb ? p->n : p->k, q.ldb);
    float *const sums = c ? c : room + size_a + size_b;
    q.ldc = c ? p->ldc : p->n;
    rt_matmul_plain_f32(sums, room, room + size_a, &q, 1);
    if (half)
        N(rt_narrow)(half, p->ldc, sums, q.ldc, p->m, p->n);
}

void N(rt_matmul_plain)(float *c, SRC *half, const SRC *a, const SRC *b, const RtMatmul *p,
                        int threads)
{
    if (is_small(p)) {
        N(run_converted)(c, half, a, b, p);
        return;
    }
    if (c) {
        N(run_product)(c, a, b, p, threads);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        N(Part) w = { .p = p, .a = a, .b = b };
        if (N(cut_part)(&w, part, threads))
            N(run_rounded)(w, half);
    }
}

/* ---- what they work in ----------------------------------------------------------------------- */

static void N(ask_rounded)(RtRooms *need, const N(Part) * w, bool team)
{
    ptrdiff_t high, across;
    N(rounded_block)(w, &high, &across);
    const ptrdiff_t rows = w->m1 - w->m0, columns = w->n1 - w->n0;
    const ptrdiff_t m[2] = { high, rows - (rows - 1) / high * high }; /* of the last block too */
    const ptrdiff_t n[2] = { across, columns - (columns - 1) / across * across };
    rt_cpu_room_ask(need, RT_ROOM_HALF, team, (size_t)(high * across) * sizeof(float));
    for (int i = 0; i < 4; i++)
        rt_cpu_room_ask(need, RT_ROOM_PACK, team,
                        N(cut_bytes)(N(cut_of)(m[i / 2], n[i % 2], w->p->k)));
}

void N(rt_plain_room)(RtRooms *need, const RtMatmul *p, bool rounded, int threads)
{
    if (is_small(p))
        rt_cpu_room_ask(need, RT_ROOM_HALF, false,
                        N(converted_bytes)(p, rounded ? p->m * p->n : 0));
    for (int part = 0; part < threads && !is_small(p); part++) {
        N(Part) w = { .p = p };
        if (!N(cut_part)(&w, part, threads))
            continue;
        if (rounded)
            N(ask_rounded)(need, &w, threads > 1);
        else
            rt_cpu_room_ask(need, RT_ROOM_PACK, threads > 1,
                            N(cut_bytes)(N(cut_of)(w.m1 - w.m0, w.n1 - w.n0, p->k)));
    }
}
