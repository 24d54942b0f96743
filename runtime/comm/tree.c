/* tree.c -- --tree K: the same bits of gradients for each number of ranks that divides K.
 *
 * In: an update as K equal leaves, parts of the batch; a rank has several of them, one behind the
 * other. Out: the sum of its leaves' gradients and losses, pairwise, ((0 + 1) + (2 + 3)). The one
 * idea: with what is summed over ranks, which is pairwise too, each sum of the update is one tree
 * over the K leaves, whoever has them. K is a power of 2, so that each rank has a subtree.
 */
#include "comm/comm.h"

enum { DEPTH = 16 };

struct RtTree {
    int leaves, done; /* of this rank in an update; those that are complete */
    int level;        /* partial sums that are kept, of subtrees to the left */
    void *kept[DEPTH];
    double sum[DEPTH][RT_MAX_SLOTS];
    ptrdiff_t n;
    size_t bytes; /* of a gradient */
    RtType real;
};

static int64_t leaves_wanted;

void rt_tree_set(int64_t leaves)
{
    const int ranks = rt_ranks();
    if (leaves > 0 && ((leaves & (leaves - 1)) || leaves % ranks))
        rt_fail(RT_EXIT_USAGE, "--tree %lld on %d rank%s: wants a power of 2 that the ranks divide",
                (long long)leaves, ranks, ranks == 1 ? "" : "s");
    leaves_wanted = leaves;
}

int rt_leaves(void) { return leaves_wanted > 0 ? (int)leaves_wanted / rt_ranks() : 1; }

static int depth_of(int leaves)
{
    int depth = 0;
    while (1 << depth < leaves)
        depth++;
    return depth;
}

int rt_tree_buffers(void) { return depth_of(rt_leaves()); }

RtTree *rt_tree_open(const RtModel *m)
{
    if (rt_leaves() == 1)
        return NULL;
    RtTree *t = rt_alloc(sizeof *t, "a tree of sums");
    t->leaves = rt_leaves();
    t->n = m->n_elems;
    t->real = m->real;
    t->bytes = (size_t)t->n * rt_real_bytes(m);
    for (int i = 0; i < depth_of(t->leaves); i++)
        t->kept[i] = rt_place_alloc(t->bytes, "a tree of sums");
    return t;
}

void rt_tree_close(RtTree *t)
{
    for (int i = 0; t && i < depth_of(t->leaves); i++)
        rt_place_free(t->kept[i]);
    rt_free(t);
}

#define DEFINE_ADD(real, name)                                                                     \
    static void name(real *restrict to, const real *restrict from, ptrdiff_t n)                    \
    {                                                                                              \
        RT_PARALLEL_SIMD(n)                                                                        \
        for (ptrdiff_t i = 0; i < n; i++)                                                          \
            to[i] += from[i];                                                                      \
    }
DEFINE_ADD(float, add_f32)
DEFINE_ADD(double, add_f64)

/* A leaf is complete in d_p and s->sum: both become those of the largest subtree that ends here. */
static void join(RtTree *t, void *d_p, RtStep *s)
{
    for (int left = t->done; left & 1; left >>= 1) {
        t->level--;
        if (t->real == RT_F64)
            add_f64(d_p, t->kept[t->level], t->n);
        else
            add_f32(d_p, t->kept[t->level], t->n);
        for (int i = 0; i < RT_MAX_SLOTS; i++)
            s->sum[i] += t->sum[t->level][i];
    }
    t->done++;
}

void rt_tree_leaf(RtTree *t, void *d_p, RtStep *s)
{
    join(t, d_p, s);
    memcpy(t->kept[t->level], d_p, t->bytes);
    memcpy(t->sum[t->level++], s->sum, sizeof s->sum);
    memset(s->sum, 0, sizeof s->sum);
    s->add = false;
}

void rt_tree_finish(RtTree *t, void *d_p, RtStep *s)
{
    if (!t)
        return;
    join(t, d_p, s);
    t->done = t->level = 0;
}
