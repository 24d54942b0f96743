/* tables.cu -- what updates on a GPU go through: parts of the flat buffer, rows and tiles of
 * tensors, room for sums.
 *
 * In: pieces and tensors, in host memory. Out: tables in one buffer of the device. The one idea: a
 * table is written twice by the same code, once to count its rows, once to fill them in; rows go to
 * the device a window at a time.
 */
#include "optim.h"

typedef struct { /* a table that is being written */
    char *to;    /* in the memory of the device; NULL: rows are counted only */
    size_t bytes;
    int n, sent;
    char *window; /* of the host: rows sent..n-1 */
} Table;

static void table_send(Table *t)
{
    if (t->to && t->n > t->sent)
        rt_place_put(t->to + (size_t)t->sent * t->bytes, t->window,
                     (size_t)(t->n - t->sent) * t->bytes);
    t->sent = t->n;
}

static void table_add(Table *t, const void *row)
{
    if (t->to && (size_t)(t->n - t->sent + 1) * t->bytes > RT_PLACE_WINDOW)
        table_send(t);
    if (t->to)
        memcpy(t->window + (size_t)(t->n - t->sent) * t->bytes, row, t->bytes);
    t->n++;
}

static Table table_at(void *to, size_t bytes)
{
    Table t = { (char *)to, bytes, 0, 0, to ? (char *)rt_place_window() : NULL };
    return t;
}

/* ---- parts ---------------------------------------------------------------------------------- */

int rt_parts_of(ptrdiff_t from, ptrdiff_t to)
{
    return from < to ? (int)((to - 1) / RT_UPDATE_PART - from / RT_UPDATE_PART + 1) : 0;
}

static RtPart part_of(RtPiece q, const RtTrain *t, int tensor)
{
    RtPart part = { q.from, q.to, q.rate, rt_piece_decay(q, t), tensor, q.half };
    return part;
}

static bool continues(const RtPart *a, const RtPart *b)
{
    return a->to == b->from && a->rate == b->rate && a->decay == b->decay && a->half == b->half;
}

/* The elements of a part, cut at multiples of RT_UPDATE_PART. */
static void add_parts(Table *t, RtPart all)
{
    for (ptrdiff_t at = all.from, end; at < all.to; at = end) {
        end = (at / RT_UPDATE_PART + 1) * RT_UPDATE_PART;
        end = end < all.to ? end : all.to;
        RtPart part = all;
        part.from = at;
        part.to = end;
        table_add(t, &part);
    }
}

typedef struct { /* what the tables are made of */
    const RtModel *m;
    const RtTrain *t;
    const RtPiece *pieces;
    int n_pieces;
    const RtTensors *tensors; /* NULL: the optimizer goes through pieces */
} Source;

static int write_parts(const Source *s, void *to)
{
    Table t = table_at(to, sizeof(RtPart));
    for (int i = 0; s->tensors && i < s->tensors->n; i++)
        add_parts(&t, part_of(s->tensors->at[i].all, s->t, i));
    for (int i = 0, next; !s->tensors && i < s->n_pieces; i = next) {
        RtPart all = part_of(s->pieces[i], s->t, 0);
        for (next = i + 1; next < s->n_pieces; next++) {
            const RtPart more = part_of(s->pieces[next], s->t, 0);
            if (!continues(&all, &more))
                break;
            all.to = more.to;
        }
        add_parts(&t, all);
    }
    table_send(&t);
    return t.n;
}

/* ---- tensors and their tiles ---------------------------------------------------------------- */

static RtTensorRow tensor_row(const Source *s, int i, int first)
{
    const RtTensor *t = &s->tensors->at[i];
    const RtParam *q = &s->m->params[t->param];
    RtStateTensor state[RT_MAX_STATES];
    rt_optim_states(s->t, state);
    RtTensorRow row = {};
    row.from = t->all.from;
    row.to = t->all.to;
    row.rate = t->all.rate;
    row.decay = rt_piece_decay(t->all, s->t);
    row.first = first;
    row.n = rt_parts_of(row.from, row.to);
    row.matrix = t->matrix;
    row.matrices = t->matrices;
    row.R = q->rank < 2 ? 1 : q->shape[q->rank - 2];
    row.C = q->rank < 2 ? row.to - row.from : q->shape[q->rank - 1];
    if (s->t->optimizer == RT_ADAFACTOR) {
        const int own = q->rank < 2 ? ADAFACTOR_WHOLE : ADAFACTOR_COLUMNS;
        row.own = rt_state_at(s->m, state[own].shape, t->param, t->repeat);
        row.rows = rt_state_at(s->m, state[ADAFACTOR_ROWS].shape, t->param, t->repeat);
    }
    if (s->t->optimizer == RT_MUON)
        row.own = rt_muon_takes(q)
                      ? -1
                      : rt_state_at(s->m, state[MUON_SQUARES].shape, t->param, t->repeat);
    return row;
}

static int write_tensors(const Source *s, void *to)
{
    Table t = table_at(to, sizeof(RtTensorRow));
    for (int i = 0, first = 0; s->tensors && i < s->tensors->n; i++) {
        const RtTensorRow row = tensor_row(s, i, first);
        first += row.n;
        table_add(&t, &row);
    }
    table_send(&t);
    return t.n;
}

static bool has_tiles(const Source *s, const RtTensor *t)
{
    return s->t->optimizer == RT_ADAFACTOR && t->matrices > 0;
}

static ptrdiff_t axis(const Source *s, const RtTensor *t, int from_last)
{
    const RtParam *q = &s->m->params[t->param];
    return q->shape[q->rank - from_last];
}

typedef enum { TILE_ROWS, TILE_MATRICES } TileKind;

/* Rows, or matrices, of all tensors: so many to a block that its warps have enough to do. */
static int write_tiles(const Source *s, TileKind kind, void *to)
{
    Table t = table_at(to, sizeof(RtTile));
    for (int i = 0; s->tensors && i < s->tensors->n; i++) {
        const RtTensor *of = &s->tensors->at[i];
        if (!has_tiles(s, of))
            continue;
        const ptrdiff_t R = axis(s, of, 2), n = kind == TILE_ROWS ? of->matrices * R : of->matrices;
        const ptrdiff_t each = kind == TILE_ROWS ? 32 : R < RT_UPDATE_THREADS ? 64 : 1;
        for (ptrdiff_t at = 0; at < n; at += each) {
            const RtTile tile = { i, at, at + each < n ? at + each : n, 0, 0 };
            table_add(&t, &tile);
        }
    }
    table_send(&t);
    return t.n;
}

/* Columns of all matrices of a tensor side by side, a thread each; and *sums: of their parts. */
static int write_columns(const Source *s, ptrdiff_t *sums, void *to)
{
    Table t = table_at(to, sizeof(RtTile));
    *sums = 0;
    for (int i = 0; s->tensors && i < s->tensors->n; i++) {
        const RtTensor *of = &s->tensors->at[i];
        if (!has_tiles(s, of))
            continue;
        const ptrdiff_t R = axis(s, of, 2), n = of->matrices * axis(s, of, 1);
        for (ptrdiff_t row = 0; row < R; row += RT_TILE_ROWS, *sums += n)
            for (ptrdiff_t at = 0; at < n; at += RT_UPDATE_THREADS) {
                const ptrdiff_t end = at + RT_UPDATE_THREADS < n ? at + RT_UPDATE_THREADS : n;
                const RtTile tile = { i, at, end, row, *sums + at };
                table_add(&t, &tile);
            }
    }
    table_send(&t);
    return t.n;
}

/* ---- the buffer ----------------------------------------------------------------------------- */

/* The next n elements of a buffer that begins at base, or would; *at: bytes that are taken. */
static void *take(void *base, size_t *at, ptrdiff_t n, size_t bytes)
{
    void *here = base ? (char *)base + *at : NULL;
    *at += ((size_t)n * bytes + RT_DEVICE_ALIGN - 1) / RT_DEVICE_ALIGN * RT_DEVICE_ALIGN;
    return here;
}

/* Places and sizes of all tables in a buffer at t->at; NULL: sizes only. Returns its bytes. */
static size_t lay_out(const Source *s, RtOptimTables *t)
{
    ptrdiff_t column_sums, matrices = 0;
    size_t at = 0;
    for (int i = 0; s->tensors && i < s->tensors->n; i++)
        matrices += s->tensors->at[i].matrices;
    t->n_parts = write_parts(s, NULL);
    t->n_tensors = write_tensors(s, NULL);
    t->n_rows = write_tiles(s, TILE_ROWS, NULL);
    t->n_matrices = write_tiles(s, TILE_MATRICES, NULL);
    t->n_columns = write_columns(s, &column_sums, NULL);
    const int most = s->tensors ? t->n_parts : RT_NORM_BLOCKS;
    const int sums = t->n_parts < 1 ? 1 : t->n_parts < most ? t->n_parts : most;
    t->done = (unsigned *)take(t->at, &at, 1, sizeof *t->done);
    t->part = (RtPart *)take(t->at, &at, t->n_parts, sizeof *t->part);
    t->tensor = (RtTensorRow *)take(t->at, &at, t->n_tensors, sizeof *t->tensor);
    t->rows = (RtTile *)take(t->at, &at, t->n_rows, sizeof *t->rows);
    t->matrices = (RtTile *)take(t->at, &at, t->n_matrices, sizeof *t->matrices);
    t->columns = (RtTile *)take(t->at, &at, t->n_columns, sizeof *t->columns);
    t->sums = (double *)take(t->at, &at, 2 * (ptrdiff_t)sums, sizeof *t->sums);
    t->numbers = (double *)take(t->at, &at, 2 * (ptrdiff_t)t->n_tensors, sizeof *t->numbers);
    t->power = (double *)take(t->at, &at, s->t->n_hypers, sizeof *t->power);
    t->means = (double *)take(t->at, &at, t->n_matrices ? matrices : 0, sizeof *t->means);
    t->column_sums = (double *)take(t->at, &at, column_sums, sizeof *t->column_sums);
    return at;
}

size_t rt_optim_place_bytes(const RtModel *m, const RtOptions *o)
{
    int n;
    RtPiece *pieces = rt_optim_pieces(m, &n);
    RtTensors *tensors = rt_tensors_new(m, o->train.optimizer);
    const Source s = { m, &o->train, pieces, n, tensors };
    RtOptimTables t = {};
    const size_t bytes = lay_out(&s, &t);
    rt_tensors_free(tensors);
    rt_free(pieces);
    return rt_place_size(bytes);
}

void rt_optim_open(RtRun *run)
{
    RtState *state = run->state;
    RtOptimTables *t = &state->tables;
    const Source s = { run->model, &state->opt->train, state->pieces, state->n_pieces,
                       state->tensors };
    ptrdiff_t sums;
    t->at = NULL;
    t->at = rt_place_alloc(lay_out(&s, t), "the tables of updates");
    lay_out(&s, t);
    write_parts(&s, t->part);
    write_tensors(&s, t->tensor);
    write_tiles(&s, TILE_ROWS, t->rows);
    write_tiles(&s, TILE_MATRICES, t->matrices);
    write_columns(&s, &sums, t->columns);
}

void rt_optim_close(RtRun *run) { rt_place_free(run->state->tables.at); }
