/* cu_comment.c -- what is said of launches: of each in its comment, and at the head of section 4.
 *
 * In: a MAP kernel's form. Out: "grid 1, block 256: a warp per row, ...": who owns which elements,
 * and why there is but one block where there is. Each is true of the code that cu_map.c writes.
 */
#include "emit/cu_map.h"

static const char *elements_text(CuMap *x, int n)
{
    return emit_format(x->m.e, n > 1 ? "%d elements" : "%d element", n);
}

/* What becomes of the sums of a range. */
static const char *sums_text(CuMap *x)
{
    const int n = x->f.columns + x->f.totals;
    return x->f.parts > 1 ? n > 1 ? "whose partial sums it stores" : "whose partial sum it stores"
           : n > 1        ? "for it stores the sums"
                          : "for it stores the sum";
}

/* "a block has all rows, for it stores the sum", "a block has one of 396 ranges of rows, ..." */
static const char *range_text(CuMap *x, const char *what)
{
    Emitter *e = x->m.e;
    if (x->f.parts == 1)
        return emit_format(e, "one block has all %s, %s", what, sums_text(x));
    return emit_format(e, "a block has one of %d ranges of %s, %s", x->f.parts, what, sums_text(x));
}

static const char *flat_comment(CuMap *x, const char *grid)
{
    Emitter *e = x->m.e;
    const int n = x->f.vector;
    if (x->f.totals == 0)
        return emit_format(e, "%sa thread has %s%s", grid, elements_text(x, n),
                           n > 1 ? " side by side" : "");
    const char *step = emit_format(e, "%d", x->f.parts * x->f.threads * n);
    if (x->f.parts == 1)
        return emit_format(e, "%sone block has all, %s; a thread has %s of every %s", grid,
                           sums_text(x), elements_text(x, n), step);
    return emit_format(e, "%sa thread has %s of every %s; a block stores a partial sum", grid,
                       elements_text(x, n), step);
}

static const char *columns_comment(CuMap *x, const char *grid)
{
    Emitter *e = x->m.e;
    const int n = x->f.vector;
    const char *rows = x->f.parts > 1 ? emit_format(e, "one of %d ranges of rows", x->f.parts)
                                      : "all rows";
    return emit_format(e,
                       "%sa block has %d columns and %s, %s; a warp has every %dth of these rows, "
                       "a lane %d column%s",
                       grid, 32 * n, rows, sums_text(x), x->f.threads / 32, n, n > 1 ? "s" : "");
}

/* "a warp per row, a lane has 3 times 8 elements"; a row of fewer than all of these: "up to". */
static const char *rows_comment(CuMap *x, const char *grid)
{
    Emitter *e = x->m.e;
    const int n = x->f.vector;
    const char *lane = x->f.team == CU_WARP ? "lane" : "thread";
    Text t = text_new(e->cx->scratch);
    text_put(&t, grid);
    if (x->f.parts > 0 && x->row > 0)
        text_add(&t, "%s; ", range_text(x, "rows"));
    if (x->f.team == CU_THREAD)
        return emit_format(e, "%sa thread per row", t.at);
    if (x->row <= 0)
        text_put(&t, "one row");
    else
        text_add(&t, x->f.team == CU_WARP ? "a warp per row" : "a block per row");
    const char *most = x->f.whole ? "" : "up to ";
    if (x->f.count > 1)
        text_add(&t, ", a %s has %s%d times %s of it", lane, most, x->f.count, elements_text(x, n));
    else if (x->f.count == 1)
        text_add(&t, ", a %s has %s%s of it", lane, most, elements_text(x, n));
    else
        text_add(&t, ", a %s has %s of every %d", lane, elements_text(x, n),
                 cu_row_lanes(&x->f) * n);
    if (x->f.keep == CU_SHARED)
        text_put(&t, ", the row in shared memory");
    for (int i = 0; i < x->m.k->values.len; i++)
        if (x->f.with[i] >= 0)
            text_put(&t, ", the largest and the sum of exp(x - the largest) in one pass");
    return t.at;
}

const char *cu_launch_comment(CuMap *x)
{
    const char *grid = emit_format(x->m.e, "grid %s, block %d: ", x->c->grid, x->f.threads);
    if (x->f.kind == CU_FLAT)
        return flat_comment(x, grid);
    if (x->f.kind == CU_COLUMNS)
        return columns_comment(x, grid);
    if (x->f.threads == 1)
        return emit_format(x->m.e, "%sone thread", grid);
    return rows_comment(x, grid);
}

const char cu_map_how_to_read[] =
    " * A __global__ function starts with who a thread is: lane is its place in a warp, warp\n"
    " * that of the warp in the block, at the first element of a vector, e the element in it.\n"
    " * RtVec<T, N> holds N elements in registers; rt_load and rt_store move them, 16 bytes at a\n"
    " * time, rt_load_part and rt_store_part those that a row ends with; x_row is what a thread\n"
    " * keeps of a row. rt_warp_sum, rt_block_sum and so on give every thread the sum over the\n"
    " * warp or the block. Sums over rows that blocks share are made over fixed ranges of rows,\n"
    " * at most three for each of 132 multiprocessors, whose partial results in work_* (ranges,\n"
    " * sums, columns) rt_add_parts adds in one order: so the device changes no bit. */\n"
    "\n";
