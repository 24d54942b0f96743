/* plan_share.c -- the outputs in the places of an evaluation.
 *
 * In: the planned routines "eval" and "output". Out: where the steps of the second are some of the
 * steps of the first, in their order and on corresponding buffers, both use one plan, and a loop
 * that is the same in both has one function.
 *
 *     eval     1 x   2..10 block   11 ln_f   12 logits   13 loss
 *     output   1 x   2..10 block   11 ln_f   12 logits               -> places of eval
 *
 * The idea: what lives in a part of the steps lives no longer than in all of them, so places that
 * never overlap in the evaluation do not overlap here. A result that the caller receives needs no
 * place, so the evaluation is placed once more with the others below it: the outputs need the arena
 * only as far as their own places reach. Where that would waste memory of either, nothing is
 * shared.
 */
#include "pass/kernel.h"

typedef struct {
    Buffer **twin; /* by id of the output's buffers: the one of the evaluation */
    bool *taken;   /* by id of the evaluation's buffers */
} Pairs;

static bool same_dim(const Dim *a, const Dim *b)
{
    return a == NULL || b == NULL ? a == b : dim_same(a, b);
}

static bool pair_buffers(Pairs *p, Buffer *a, Buffer *b)
{
    if (a->kind != BUF_ARENA)
        return (a->kind == b->kind && a->index == b->index)
               || (a->kind == BUF_OUTPUT && b->kind == BUF_ARENA);
    if (b->kind != BUF_ARENA || a->dtype != b->dtype || !type_same(a->type, b->type))
        return false;
    if (p->twin[a->id])
        return p->twin[a->id] == b;
    if (p->taken[b->id])
        return false;
    p->twin[a->id] = b;
    p->taken[b->id] = true;
    return true;
}

static bool pair_operands(Pairs *p, const Step *a, const Step *b)
{
    for (int i = 0; i < a->kernel->args.len; i++) {
        const Operand *x = &a->operands[i], *y = &b->operands[i];
        if (!pair_buffers(p, x->buffer, y->buffer) || !same_dim(x->offset, y->offset))
            return false;
        for (int d = 0; d < a->depth; d++)
            if (!same_dim(x->loop_stride[d], y->loop_stride[d]))
                return false;
    }
    return true;
}

/* Outside of loops, whose functions both use, one may be made for the distance between rows that
   its own operands have. */
static bool kernels_pair(const Step *a, const Step *b)
{
    const Kernel *x = a->kernel, *y = b->kernel;
    if ((a->epilogue != NULL) != (b->epilogue != NULL) || a->rest != b->rest)
        return false;
    return x == y || (x && y && a->depth == 0 && b->depth == 0 && (x->like == y || y->like == x));
}

static bool pair_steps(Pairs *p, const Steps *part, const Steps *all, bool whole);

static bool pair_step(Pairs *p, Step *a, Step *b)
{
    if (a->kernel || b->kernel)
        return kernels_pair(a, b) && pair_operands(p, a, b);
    if (!dim_same(a->loop->trip, b->loop->trip) || a->loop->reverse != b->loop->reverse
        || a->loop->stack != b->loop->stack || a->loop->name != b->loop->name
        || a->loop->part != b->loop->part || !pair_steps(p, &a->body, &b->body, true))
        return false;
    a->twin = b;
    return true;
}

static bool pair_steps(Pairs *p, const Steps *part, const Steps *all, bool whole)
{
    int k = 0;
    if (whole && part->len != all->len)
        return false;
    for (int i = 0; i < part->len; i++, k++) {
        while (k < all->len && !kernels_pair(part->at[i], all->at[k]))
            k++;
        if (k == all->len || !pair_step(p, part->at[i], all->at[k]))
            return false;
    }
    return true;
}

static void forget_loops(Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        steps->at[i]->twin = NULL;
        forget_loops(&steps->at[i]->body);
    }
}

void plan_share(KernelProgram *kp)
{
    Routine *part = kp->output, *all = kp->eval;
    if (!part || !all)
        return;
    Arena *a = kp->program->cx->scratch;
    Pairs p = { NEW_ARRAY(a, Buffer *, part->buffers.len + 1),
                NEW_ARRAY(a, bool, all->buffers.len + 1) };
    if (!pair_steps(&p, &part->steps, &all->steps, false)) {
        forget_loops(&part->steps);
        return;
    }
    bool *low = NEW_ARRAY(a, bool, all->buffers.len + 1);
    for (int i = 0; i < part->buffers.len; i++)
        if (p.twin[i])
            low[p.twin[i]->id] = true;
    if (all->reuse && !plan_lower(kp, all, low, part->live_bytes)) {
        forget_loops(&part->steps);
        return;
    }
    part->shares = all;
    part->arena_bytes = 0;
    for (int i = 0; i < part->buffers.len; i++) {
        const Buffer *twin = part->buffers.at[i]->twin = p.twin[i];
        if (twin && twin->offset + twin->bytes > part->arena_bytes)
            part->arena_bytes = twin->offset + twin->bytes;
    }
}
