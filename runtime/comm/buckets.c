/* buckets.c -- gradients are summed over ranks while the backward pass goes on.
 *
 * In: which part of the gradient is complete (RT_READY of the emitted code). Out: sums over ranks,
 * in the flat gradient itself. The one idea: the order in which gradients become complete is known
 * before the run, from the table of parameters; a bucket is what becomes complete one behind the
 * other, up to some bytes, and all ranks sum the same buckets in the same order.
 */
#include "comm/comm.h"

enum { FIRST_BUCKET = 1 << 20 }; /* bytes: the first sum begins early */

typedef struct { /* elements of the flat gradient, complete at the same time */
    int step;
    ptrdiff_t i; /* repetition, or -1 */
    ptrdiff_t from, to;
    bool complete; /* in the backward pass that goes on */
} Piece;

typedef struct {
    int first, last; /* pieces */
    ptrdiff_t elems;
    const char *what; /* "gradients 3 of 14, h.9.ln_1.weight to h.9.mlp.c_proj.bias" */
} Bucket;

struct RtBuckets {
    const RtModel *m;
    char *d_p;
    Piece *piece; /* in the order in which they become complete */
    int n_pieces, complete;
    Bucket *bucket;
    int n_buckets, begun;
    int64_t last; /* number of the last exchange that was begun */
};

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Steps in the order of the pass; repetitions of a loop from the last to the first, before what is
   complete behind all of them. Where a loop runs the other way, its sums wait for its end. */
static int by_time(const void *a, const void *b)
{
    const Piece *p = a, *q = b;
    if (p->step != q->step)
        return p->step < q->step ? -1 : 1;
    if (p->i != q->i) /* from the last repetition to the first; -1 is the end */
        return p->i > q->i ? -1 : 1;
    return p->from < q->from ? -1 : p->from > q->from;
}

static void add_pieces(RtBuckets *b, const RtParam *q)
{
    const ptrdiff_t n = rt_param_elems(q);
    const ptrdiff_t inner = q->n_stacks > 0 ? rt_param_repeats(q) / q->stack[0].count : 1;
    for (ptrdiff_t k = 0; k < rt_param_repeats(q); k++) {
        const ptrdiff_t at = rt_param_at(q, k);
        b->piece[b->n_pieces++] = (Piece){ q->ready, q->each ? k / inner : -1, at, at + n, false };
    }
}

/* Neighbours that become complete together are one. */
static void join_pieces(RtBuckets *b)
{
    int n = 0;
    for (int i = 0; i < b->n_pieces; i++) {
        Piece *last = n > 0 ? &b->piece[n - 1] : NULL;
        const Piece *p = &b->piece[i];
        if (last && last->step == p->step && last->i == p->i && last->to == p->from)
            last->to = p->to;
        else
            b->piece[n++] = *p;
    }
    b->n_pieces = n;
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* The parameter that an element belongs to. */
static const char *name_at(const RtModel *m, ptrdiff_t at, char text[RT_NAME_TEXT],
                           const char **where)
{
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++) {
            const ptrdiff_t first = rt_param_at(&m->params[i], k);
            *where = m->params[i].where;
            if (at >= first && at < first + rt_param_elems(&m->params[i]))
                return rt_param_name(&m->params[i], k, text);
        }
    return "?";
}

static void name_bucket(RtBuckets *b, int k)
{
    char from[RT_NAME_TEXT], to[RT_NAME_TEXT];
    const char *line = "", *other = "";
    Bucket *at = &b->bucket[k];
    const char *first = name_at(b->m, b->piece[at->first].from, from, &line);
    const char *last = name_at(b->m, b->piece[at->last].to - 1, to, &other);
    char *range = strcmp(first, last) == 0 ? rt_printf("%s", first)
                                           : rt_printf("%s to %s", first, last);
    at->what = rt_printf("the sum of gradients %d of %d, %s (%s)", k + 1, b->n_buckets, range,
                         line);
    rt_free(range);
}

static void make_buckets(RtBuckets *b, double bytes)
{
    const double each = (double)rt_real_bytes(b->m);
    double room = FIRST_BUCKET < bytes ? FIRST_BUCKET : bytes;
    for (int i = 0; i < b->n_pieces; i++) {
        const ptrdiff_t n = b->piece[i].to - b->piece[i].from;
        Bucket *last = b->n_buckets > 0 ? &b->bucket[b->n_buckets - 1] : NULL;
        if (last && (double)(last->elems + n) * each <= room) {
            last->last = i;
            last->elems += n;
            continue;
        }
        room = last ? bytes : room;
        b->bucket[b->n_buckets++] = (Bucket){ i, i, n, NULL };
    }
    for (int k = 0; k < b->n_buckets; k++)
        name_bucket(b, k);
}

RtBuckets *rt_buckets_open(const RtModel *m, void *d_p, double bytes)
{
    if (rt_ranks() == 1)
        return NULL;
    ptrdiff_t most = 0;
    for (int i = 0; i < m->n_params; i++)
        most += m->params[i].ready ? rt_param_repeats(&m->params[i]) : 0;
    RtBuckets *b = rt_alloc(sizeof *b, "buckets of gradients");
    b->m = m;
    b->d_p = d_p;
    b->piece = rt_alloc((size_t)most * sizeof *b->piece, "buckets of gradients");
    b->bucket = rt_alloc((size_t)most * sizeof *b->bucket, "buckets of gradients");
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].ready)
            add_pieces(b, &m->params[i]);
    qsort(b->piece, (size_t)b->n_pieces, sizeof *b->piece, by_time);
    join_pieces(b);
    make_buckets(b, bytes);
    return b;
}

void rt_buckets_close(RtBuckets *b)
{
    if (!b)
        return;
    for (int k = 0; k < b->n_buckets; k++)
        rt_free((char *)(uintptr_t)b->bucket[k].what);
    rt_free(b->piece);
    rt_free(b->bucket);
    rt_free(b);
}

void rt_buckets_print(const RtBuckets *b)
{
    char most[RT_BYTES_TEXT];
    double bytes = 0;
    for (int k = 0; k < b->n_buckets; k++) {
        const double n = (double)b->bucket[k].elems * (double)rt_real_bytes(b->m);
        bytes = n > bytes ? n : bytes;
    }
    printf("sums     of gradients in %d part%s, the largest %s, as the backward pass completes "
           "them\n",
           b->n_buckets, b->n_buckets == 1 ? "" : "s", rt_bytes(bytes, most));
}

uint64_t rt_buckets_hash(const RtBuckets *b)
{
    if (!b)
        return 0;
    uint64_t hash = rt_hash_text(rt_precision(b->m));
    for (int i = 0; i < b->n_pieces; i++) {
        char *text = rt_printf("%llx %td %td", (unsigned long long)hash, b->piece[i].from,
                               b->piece[i].to);
        hash = rt_hash_text(text);
        rt_free(text);
    }
    for (int k = 0; k < b->n_buckets; k++)
        hash = (hash ^ (uint64_t)b->bucket[k].last) * 0x100000001b3u;
    return hash;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void begin_bucket(RtBuckets *b)
{
    const Bucket *k = &b->bucket[b->begun++];
    const size_t each = rt_real_bytes(b->m);
    for (int i = k->first; i <= k->last;) {
        ptrdiff_t from = b->piece[i].from, to = b->piece[i].to;
        for (i++; i <= k->last && (b->piece[i].to == from || b->piece[i].from == to); i++) {
            from = b->piece[i].from < from ? b->piece[i].from : from; /* a neighbour */
            to = b->piece[i].to > to ? b->piece[i].to : to;
        }
        const int64_t number = rt_comm_begin_sum(b->d_p + (size_t)from * each, to - from,
                                                 b->m->real, k->what);
        b->last = number > b->last ? number : b->last;
    }
}

void rt_ready(RtBuckets *b, int step, ptrdiff_t i)
{
    for (int k = b->complete; k < b->n_pieces && b->piece[k].step == step; k++)
        b->piece[k].complete = b->piece[k].complete || b->piece[k].i == i;
    while (b->complete < b->n_pieces && b->piece[b->complete].complete)
        b->complete++;
    while (b->begun < b->n_buckets && b->bucket[b->begun].last < b->complete)
        begin_bucket(b);
}

/* The first so many pieces, and no other. */
static void set_complete(RtBuckets *b, int n)
{
    b->complete = n;
    for (int k = 0; k < b->n_pieces; k++)
        b->piece[k].complete = k < n;
}

RtBucketsAt rt_buckets_at(const RtBuckets *b)
{
    return (RtBucketsAt){ b ? b->complete : 0, b ? b->begun : 0 };
}

void rt_buckets_go_to(RtBuckets *b, RtBucketsAt at)
{
    if (!b)
        return;
    b->begun = 0;
    while (b->begun < at.begun)
        begin_bucket(b);
    set_complete(b, at.complete);
}

/* All sums are there. */
void rt_buckets_finish(RtBuckets *b)
{
    if (!b)
        return;
    while (b->begun < b->n_buckets)
        begin_bucket(b);
    rt_comm_wait(b->last);
    set_complete(b, 0);
    b->begun = 0;
    b->last = 0;
}

void rt_buckets_report(const RtBuckets *b, int64_t steps)
{
    const double took = rt_comm_seconds(), waited = rt_comm_waited();
    if (!b || took <= 0 || steps <= 0)
        return;
    const double hidden = took > waited ? 1 - waited / took : 0;
    printf("ranks    sums of gradients took %.1f ms per update, %.0f %% of it while the backward "
           "pass went on\n",
           took / (double)steps * 1e3, 100 * hidden);
}
