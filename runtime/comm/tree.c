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
    RtLeaf kept[DEPTH];
    const RtModel *m;
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

static size_t gradient_bytes(const RtModel *m) { return (size_t)m->n_elems * rt_real_bytes(m); }

double rt_tree_place_bytes(const RtModel *m)
{
    return depth_of(rt_leaves())
           * (double)(rt_place_size(gradient_bytes(m))
                      + rt_place_size(RT_MAX_SLOTS * sizeof(double)));
}

RtTree *rt_tree_open(const RtModel *m)
{
    if (rt_leaves() == 1)
        return NULL;
    RtTree *t = rt_alloc(sizeof *t, "a tree of sums");
    t->leaves = rt_leaves();
    t->m = m;
    for (int i = 0; i < depth_of(t->leaves); i++) {
        t->kept[i].gradient = rt_place_alloc(gradient_bytes(m), "a tree of sums");
        t->kept[i].sum = rt_place_alloc(RT_MAX_SLOTS * sizeof(double), "a tree of sums");
    }
    return t;
}

void rt_tree_close(RtTree *t)
{
    for (int i = 0; t && i < depth_of(t->leaves); i++) {
        rt_place_free(t->kept[i].gradient);
        rt_place_free(t->kept[i].sum);
    }
    rt_free(t);
}

/* A leaf is complete in d_p and s->sum: both become those of the largest subtree that ends here. */
static void join(RtTree *t, void *d_p, RtStep *s)
{
    for (int left = t->done; left & 1; left >>= 1)
        rt_leaf_add(t->m, &t->kept[--t->level], d_p, s);
    t->done++;
}

void rt_tree_leaf(RtTree *t, void *d_p, RtStep *s)
{
    join(t, d_p, s);
    rt_leaf_keep(t->m, &t->kept[t->level++], d_p, s);
    s->add = false;
}

void rt_tree_finish(RtTree *t, void *d_p, RtStep *s)
{
    if (!t)
        return;
    join(t, d_p, s);
    t->done = t->level = 0;
}
