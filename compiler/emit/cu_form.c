/* cu_form.c -- which threads do what of a MAP kernel.
 *
 * In: a kernel, and every step that uses it (whose operands decide what is aligned). Out: a CuForm.
 * Sizes are those of training where a choice needs numbers; the code that follows from it is right
 * for all. The numbers of blocks that share a sum are fixed here, so bits depend on no device.
 */
#include "emit/cu_form.h"
#include "op/op.h"

#include <limits.h>

enum {
    SHORT = 8,            /* a row that one thread does */
    WARP_ROW = 1280,      /* the longest that a warp does */
    WARP_ELEMENTS = 512,  /* ... one element at a time */
    LONG_ROW = 8192,      /* from here on a block of 1024 threads does a row */
    FLAT_LEAST = 256,     /* rows without phases: of these lengths, a warp each */
    FLAT_MOST = 4096,     /* ... shorter and longer ones: a thread per vector */
    KEPT = 64,            /* registers for what is kept of a row */
    KEPT_BY_1024 = 16,    /* ... where a block has 1024 threads */
    SUMS = 140,           /* registers for sums of columns and what is kept beside them */
    BLOCK_SUMS = 64,      /* ... of a block of threads */
    SHARED = 160 * 1024,  /* bytes for kept rows: less than 163 KiB, which sm_80 has */
    PARTS = 264,          /* blocks that share a sum: two for each of 132 multiprocessors */
    ROW_PARTS = 396,      /* ... where a warp does a row and a block is small */
    COLUMN_BLOCKS = 792,  /* ... of sums of columns alone, over all tiles of columns */
    FEW_PARTS = 8,        /* so few are one */
    ONE_BLOCK = 64 * 1024 /* elements that one block sums alone */
};

bool cu_same_access(const Access *a, const Access *b)
{
    if (a->arg != b->arg || a->index != b->index || a->guard != b->guard)
        return false;
    for (int i = 0; i < AXES_MAX; i++)
        if (a->stride[i] != b->stride[i]
            && !(a->stride[i] && b->stride[i] && dim_same(a->stride[i], b->stride[i])))
            return false;
    return a->offset == b->offset || (a->offset && b->offset && dim_same(a->offset, b->offset));
}

int cu_row_lanes(const CuForm *f)
{
    return f->team == CU_THREAD ? 1 : f->team == CU_WARP ? 32 : f->threads;
}

/* ---- what varies along the last axis --------------------------------------------------------- */

static bool access_varies(const Access *a, int row, const bool *varies)
{
    return !dim_is(a->stride[row], 0) || (a->index >= 0 && varies[a->index])
           || (a->guard >= 0 && varies[a->guard]);
}

static bool value_varies(const Kernel *k, const Value *v, const bool *varies)
{
    const int row = k->n_axes - 1;
    if (v->kind == VAL_REDUCE || row < 0)
        return false;
    if (v->kind == VAL_AXIS)
        return v->axis == row;
    if (v->kind == VAL_LOAD)
        return access_varies(&v->access, row, varies);
    bool any = v->kind == VAL_DRAW
               && (access_varies(&v->sample, row, varies)
                   || access_varies(&v->element, row, varies));
    for (int i = 0; i < v->n_in; i++)
        any = any || varies[v->in[i]];
    return any;
}

/* A value of a row is what fuse says it is; without rows it is what does not vary. */
static void find_varying(Context *cx, const Kernel *k, CuForm *f)
{
    f->varies = NEW_ARRAY(cx->scratch, bool, k->values.len + 1);
    f->with = NEW_ARRAY(cx->scratch, int, k->values.len + 1);
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        f->with[i] = -1;
        f->varies[i] = k->has_row ? v->level == LEVEL_ELEM : value_varies(k, v, f->varies);
    }
}

/* ---- alignment ------------------------------------------------------------------------------- */

/* Is the place of a parameter in the flat buffer a multiple of n? In a stack: of one repetition;
   strides of loops say the rest. */
static bool param_is_aligned(KernelProgram *kp, const Buffer *b, int n)
{
    Emitter e = { .cx = kp->program->cx, .kp = kp, .p = kp->program };
    const Dim *at = c_param_at(&e, b->index);
    if (b->kind == BUF_PARAM16 && program_has_halves(kp->program)) {
        const Dim *halves = dim_sub(kp->program->dims, c_count_parameters(&e), c_count_halves(&e));
        if (!dim_is_multiple(halves, n))
            return false;
    }
    return dim_is_multiple(at, n);
}

static bool operand_is_aligned(KernelProgram *kp, const Operand *o, int n)
{
    switch (o->buffer->kind) {
    case BUF_PARAM:
    case BUF_PARAM16:
    case BUF_GRAD:
        if (!param_is_aligned(kp, o->buffer, n))
            return false;
        break;
    case BUF_ARENA: break;
    default: return false; /* wherever the caller has it */
    }
    for (int d = 0; d < DEPTH_MAX; d++)
        if (o->loop_stride[d] && !dim_is_multiple(o->loop_stride[d], n))
            return false;
    return o->offset == NULL || dim_is_multiple(o->offset, n);
}

static bool steps_are_aligned(KernelProgram *kp, const Steps *steps, const Kernel *k, int arg,
                              int n)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (!steps_are_aligned(kp, &s->body, k, arg, n))
            return false;
        if (s->kernel == k && !operand_is_aligned(kp, &s->operands[arg], n))
            return false;
    }
    return true;
}

static bool arg_is_aligned(KernelProgram *kp, const Kernel *k, int arg, int n)
{
    const Routine *routine[] = { kp->train, kp->eval, kp->output, kp->count };
    for (int i = 0; i < 4; i++)
        if (routine[i] && !steps_are_aligned(kp, &routine[i]->steps, k, arg, n))
            return false;
    return true;
}

static bool is_side_by_side(const Kernel *k, const CuForm *f, const Access *a)
{
    const int row = k->n_axes - 1;
    return row >= 0 && a->stride[row] && dim_is(a->stride[row], 1)
           && (a->index < 0 || !f->varies[a->index]) && (a->guard < 0 || !f->varies[a->guard]);
}

bool cu_is_vector(KernelProgram *kp, const Kernel *k, const CuForm *f, const Access *a)
{
    const int n = f->vector, row = k->n_axes - 1;
    if (n == 1 || !is_side_by_side(k, f, a))
        return false;
    for (int i = 0; i < row; i++)
        if (a->stride[i] && !dim_is_multiple(a->stride[i], n))
            return false;
    if (a->offset && !dim_is_multiple(a->offset, n))
        return false;
    if (a->index >= 0 && a->index_stride && !dim_is_multiple(a->index_stride, n))
        return false;
    return (a->index < 0 || a->index_stride) && arg_is_aligned(kp, k, a->arg, n);
}

/* ---- vectors --------------------------------------------------------------------------------- */

typedef bool (*AccessTest)(KernelProgram *kp, const Kernel *k, const CuForm *f, const Access *a);

/* Do all accesses along the last axis pass? *any: is there one? */
static bool all_accesses(KernelProgram *kp, const Kernel *k, const CuForm *f, AccessTest test,
                         bool *any)
{
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind != VAL_LOAD || !is_side_by_side(k, f, &v->access))
            continue;
        *any = true;
        if (!test(kp, k, f, &v->access))
            return false;
    }
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *x = &k->effects.at[i];
        if (x->kind != EFFECT_STORE || !is_side_by_side(k, f, &x->access))
            continue;
        *any = true;
        if (!test(kp, k, f, &x->access))
            return false;
    }
    return true;
}

static int smallest_element(const Kernel *k)
{
    int least = 8;
    for (int i = 0; i < k->args.len; i++) {
        const int bytes = dtype_bytes(k->args.at[i].dtype);
        least = bytes < least ? bytes : least;
    }
    return least < 2 ? 2 : least;
}

static bool has_reduce(const Kernel *k)
{
    for (int i = 0; i < k->values.len; i++)
        if (k->values.at[i].kind == VAL_REDUCE)
            return true;
    return false;
}

/* Rows of an odd length have vectors too, if they are long and each begins on a boundary. */
static void choose_vector(KernelProgram *kp, const Kernel *k, CuForm *f)
{
    const Dim *axis = k->axis[k->n_axes - 1];
    int64_t n;
    const bool may_be_ragged = (k->n_axes > 1 || has_reduce(k)) && dim_value(axis, &n)
                               && n >= FLAT_LEAST && n <= INT_MAX;
    for (f->vector = 16 / smallest_element(k); f->vector > 1; f->vector /= 2) {
        bool any = false;
        f->ragged = !dim_is_multiple(axis, f->vector);
        if ((!f->ragged || may_be_ragged) && all_accesses(kp, k, f, cu_is_vector, &any) && any)
            return;
    }
    f->ragged = false;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int count_effects(const Kernel *k, EffectKind kind)
{
    int n = 0;
    for (int i = 0; i < k->effects.len; i++)
        n += k->effects.at[i].kind == kind;
    return n;
}

/* Loads that lie side by side along the axis before the row, less those along the row. */
static int leans_across(const Kernel *k)
{
    const int row = k->n_axes - 1;
    int across = 0;
    for (int i = 0; row > 0 && i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind != VAL_LOAD || dim_is(v->access.stride[row], 0))
            continue;
        across += v->access.stride[row - 1] && dim_is(v->access.stride[row - 1], 1);
        across -= dim_is(v->access.stride[row], 1);
    }
    return across;
}

int cu_shared_bytes(int64_t n, DType t) { return (int)((n * dtype_bytes(t) + 15) / 16 * 16); }

/* Does the value need the load, in the loop over a row? */
static bool needs_load(const Kernel *k, const CuForm *f, int v, const Access *a)
{
    const Value *u = &k->values.at[v];
    if (!f->varies[v])
        return false;
    if (u->kind == VAL_LOAD)
        return cu_same_access(&u->access, a)
               || (u->access.index >= 0 && needs_load(k, f, u->access.index, a))
               || (u->access.guard >= 0 && needs_load(k, f, u->access.guard, a));
    for (int i = 0; i < u->n_in; i++)
        if (needs_load(k, f, u->in[i], a))
            return true;
    return false;
}

int cu_loop_of(const Kernel *k, const CuForm *f, int v)
{
    return k->values.at[f->with[v] >= 0 ? f->with[v] : v].phase - 1;
}

/* Does a phase need the elements of an access, or, asked for too, store them? */
static bool phase_has(const Kernel *k, const CuForm *f, const Access *a, int phase, bool stores)
{
    for (int i = 0; i < k->values.len; i++)
        if (k->values.at[i].kind == VAL_REDUCE && cu_loop_of(k, f, i) == phase
            && needs_load(k, f, k->values.at[i].in[0], a))
            return true;
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *x = &k->effects.at[i];
        if (x->phase == phase
            && (needs_load(k, f, x->value, a)
                || (stores && x->kind == EFFECT_STORE && cu_same_access(&x->access, a))))
            return true;
    }
    return false;
}

static int count_phases(const Kernel *k, const CuForm *f, const Access *a, bool stores)
{
    int n = 0;
    for (int phase = 0; phase < k->n_phases; phase++)
        n += phase_has(k, f, a, phase, stores);
    return n;
}

int cu_phases_with(const Kernel *k, const CuForm *f, const Access *a)
{
    return count_phases(k, f, a, true);
}

bool cu_is_of_row(const Kernel *k, const Access *a)
{
    bool own = k->n_axes < 2 || a->index >= 0 || a->guard >= 0;
    for (int i = 0; i < k->n_axes - 1; i++)
        own = own || !dim_is(a->stride[i], 0);
    return own;
}

bool cu_may_keep(const Kernel *k, const CuForm *f, const Access *a)
{
    return cu_is_of_row(k, a) && f->keep != CU_AGAIN;
}

/* Elements of a row of n in shared memory: whole vectors. */
int64_t cu_shared_elements(const CuForm *f, int64_t n)
{
    return (n + f->vector - 1) / f->vector * f->vector;
}

/* Bytes of a row of n elements of what several phases need, each rounded up for shared memory.
   Vectors in registers stay there when they are stored; else what is stored is loaded again. */
static int64_t kept_bytes(const Kernel *k, const CuForm *f, CuKeep keep, int64_t n)
{
    const bool stores = keep == CU_REGISTERS && f->vector > 1;
    int64_t bytes = 0;
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        bool before = false;
        for (int j = 0; j < i; j++)
            before = before
                     || (k->values.at[j].kind == VAL_LOAD
                         && cu_same_access(&k->values.at[j].access, &v->access));
        if (v->kind == VAL_LOAD && f->varies[i] && !before && cu_may_keep(k, f, &v->access)
            && count_phases(k, f, &v->access, stores) > 1)
            bytes += cu_shared_bytes(cu_shared_elements(f, n), k->args.at[v->access.arg].dtype);
    }
    return bytes;
}

/* How many vectors of a row a thread has; what is kept of them, and where. */
static void choose_keep(const Kernel *k, CuForm *f)
{
    int64_t n;
    const int lanes = cu_row_lanes(f);
    f->count = f->kept = 0;
    f->keep = CU_AGAIN;
    if (!dim_value(k->axis[k->n_axes - 1], &n) || n <= 0 || f->team == CU_THREAD)
        return;
    const int64_t count = (n + lanes * f->vector - 1) / (lanes * f->vector);
    const int64_t room = f->threads > 512 ? KEPT_BY_1024 : KEPT;
    f->keep = CU_REGISTERS;
    const int64_t bytes = kept_bytes(k, f, CU_SHARED, n);
    const int64_t kept = kept_bytes(k, f, CU_REGISTERS, count * lanes * f->vector) / lanes / 4;
    if (count * f->vector <= KEPT && kept <= room) {
        f->count = (int)count;
        f->kept = (int)kept;
        f->whole = count * lanes * f->vector == n;
    } else if (f->team == CU_BLOCK && bytes > 0 && bytes <= SHARED) {
        f->keep = CU_SHARED;
    } else {
        f->keep = CU_AGAIN;
    }
    if (k->n_phases < 2)
        f->keep = CU_AGAIN;
}

static const Value *point_of(const Kernel *k, int v, Op op)
{
    const Value *x = &k->values.at[v];
    return x->kind == VAL_POINT && x->op == op ? x : NULL;
}

/* The largest x, of a sum of exp(x - the largest x); or -1. */
static int largest_of(const Kernel *k, const Value *sum)
{
    const Value *e, *x;
    if (sum->kind != VAL_REDUCE || sum->op != OP_SUM || !dtype_is_real(sum->dtype)
        || (e = point_of(k, sum->in[0], OP_EXP)) == NULL
        || (x = point_of(k, e->in[0], OP_SUB)) == NULL)
        return -1;
    const Value *most = &k->values.at[x->in[1]];
    const bool same = most->dtype == sum->dtype && x->dtype == sum->dtype;
    return same && most->kind == VAL_REDUCE && most->op == OP_AMAX && most->in[0] == x->in[0]
               ? x->in[1]
               : -1;
}

/* Where a row is read again for each phase, one pass finds the largest value and the sum. */
static void find_sums_of_exp(const Kernel *k, CuForm *f)
{
    for (int i = 0; f->keep == CU_AGAIN && f->team != CU_THREAD && i < k->values.len; i++)
        f->with[i] = largest_of(k, &k->values.at[i]);
    for (int i = 0; i < k->values.len; i++) /* the largest value has one such sum */
        for (int j = 0; j < i && f->with[i] >= 0; j++)
            if (f->with[j] == f->with[i])
                f->with[i] = -1;
}

/* Ranges, each of `least` items or more; a few are not worth a second stage. */
static int parts_of(int64_t items, int64_t least, int most)
{
    const int64_t n = items / least;
    return n < FEW_PARTS ? 1 : n > most ? most : (int)n;
}

/* Of a block that does a row: one for each of its vectors, if these are few. */
static int block_threads(const Kernel *k, const CuForm *f)
{
    int64_t n;
    if (!dim_value(k->axis[k->n_axes - 1], &n) || n > 512 * f->vector)
        return 256;
    return (int)((n + f->vector * 32 - 1) / (f->vector * 32) * 32);
}

/* Warps do rows of middle length, blocks longer ones. A row that is alone is done by all threads of
   the one block, since each of them adds to its totals. */
static void choose_team(const Kernel *k, CuForm *f, int64_t rows, int64_t row)
{
    const bool narrow = row <= SHORT || leans_across(k) > 0;
    const int64_t most = f->vector > 1 ? WARP_ROW : WARP_ELEMENTS;
    f->team = narrow && f->columns == 0 ? CU_THREAD : row <= most ? CU_WARP : CU_BLOCK;
    const bool alone = k->n_axes == 1;
    if (alone)
        f->team = CU_BLOCK;
    f->threads = f->team == CU_THREAD          ? 128
                 : f->team == CU_WARP          ? 256
                 : alone && row <= 32          ? 32
                 : row > LONG_ROW || rows == 1 ? 1024
                                               : block_threads(k, f);
    if (f->team == CU_THREAD) {
        f->vector = 1;
        f->ragged = false;
    }
}

static void form_rows(KernelProgram *kp, const Kernel *k, CuForm *f, int64_t rows, int64_t row)
{
    f->kind = CU_ROWS;
    choose_vector(kp, k, f);
    choose_team(k, f, rows, row);
    choose_keep(k, f);
    if (f->columns > 0 && f->team == CU_WARP) {
        f->threads = 128;
        if (f->count == 0 || f->count * f->vector * f->columns + f->kept > SUMS) {
            f->team = CU_BLOCK;
            f->threads = block_threads(k, f);
            choose_keep(k, f);
        }
    }
    if (f->columns > 0 && f->team == CU_BLOCK)
        f->in_work = f->count == 0 || f->count * f->vector * f->columns > BLOCK_SUMS;
    if (f->keep == CU_SHARED) {
        int64_t n = 0;
        if (dim_value(k->axis[k->n_axes - 1], &n))
            f->shared = (int)kept_bytes(k, f, CU_SHARED, n);
    }
    find_sums_of_exp(k, f);
    const int teams = f->threads / cu_row_lanes(f);
    if (f->columns + f->totals > 0)
        f->parts = parts_of(rows, 2 * teams,
                            f->team == CU_WARP ? ROW_PARTS
                            : f->threads > 256 ? PARTS
                                               : COLUMN_BLOCKS);
    if (f->in_work && f->parts == 1)
        f->parts = FEW_PARTS;
}

/* ---- all kernels ----------------------------------------------------------------------------- */

CuForm cu_form(KernelProgram *kp, const Kernel *k)
{
    Emitter e = { .cx = kp->program->cx, .kp = kp, .p = kp->program };
    CuForm f = { .kind = CU_FLAT, .threads = 256, .vector = 1 };
    int64_t rows = 1;
    const int64_t row = k->n_axes ? emit_train_value(&e, k->axis[k->n_axes - 1]) : 1;
    for (int i = 0; i < k->n_axes - 1; i++)
        rows *= emit_train_value(&e, k->axis[i]);
    find_varying(e.cx, k, &f);
    f.columns = k->n_axes > 1 ? count_effects(k, EFFECT_COLUMN) : 0;
    f.totals = k->n_axes > 0 ? count_effects(k, EFFECT_TOTAL) : 0;
    if (k->n_axes == 0) {
        f.kind = CU_ROWS;
        f.team = CU_THREAD;
        f.threads = 1;
        return f;
    }
    const bool middle = k->n_axes > 1 && row >= FLAT_LEAST && row <= FLAT_MOST;
    if (has_reduce(k) || (f.columns == 0 && middle) || (f.columns > 0 && f.totals > 0)) {
        form_rows(kp, k, &f, rows, row);
        return f;
    }
    choose_vector(kp, k, &f);
    if (f.ragged && f.columns == 0) {
        form_rows(kp, k, &f, rows, row);
    } else if (f.columns > 0) {
        const int64_t tiles = (row + 32 * f.vector - 1) / (32 * f.vector);
        f.kind = CU_COLUMNS;
        f.parts = parts_of(rows, 2 * f.threads / 32, parts_of(COLUMN_BLOCKS, tiles, PARTS));
    } else if (f.totals > 0) {
        f.parts = rows * row <= ONE_BLOCK ? 1 : PARTS;
        f.threads = f.parts == 1 ? 1024 : 256;
    }
    return f;
}
