/* judge.c -- proves a memory plan right, whatever way it was made.
 *
 * Two proofs. (1) By running: the steps are walked in execution order at the training dims, loop
 * bodies twice, then once more without the loops that may have no iteration. Each arena buffer
 * remembers whether its bytes still hold its value; a write to one buffer spoils every other one
 * whose bytes it overlaps; a step may read only unspoiled buffers that were written before. (2) For
 * all dims: of two buffers that both hold a value at some moment of that walk, and live at the same
 * time by order.c, one lies above the other by the `below` relation, so their formulas keep them
 * apart whatever the dims are. A routine that shares the plan of another is walked over the
 * other's buffers.
 */
#include "op/op.h"
#include "pass/kernel.h"

typedef struct {
    Context *cx;
    const Routine *r; /* whose buffers they are */
    int n;
    bool *holds; /* per buffer: written and not spoiled */
    bool *above; /* [x][y]: x lies above y for all dims */
    Dims *dims;
    const Dim *one;
    bool skip_loops; /* loops that may have no iteration have none */
    const char *wrong;
} Judge;

static const Buffer *place_of(const Buffer *b)
{
    while (b->over != NULL)
        b = b->over;
    return b;
}

/* Whose place b takes: its own, or that of the buffer it stands for in another routine's plan. */
static const Buffer *planned(const Buffer *b) { return b->twin != NULL ? b->twin : b; }

static bool overlap(const Buffer *a, const Buffer *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void close_above(Judge *j, const Buffer *x, const Buffer *under)
{
    for (int i = 0; i < under->below.len; i++) {
        const Buffer *y = under->below.at[i];
        if (j->above[x->id * j->n + y->id])
            continue;
        j->above[x->id * j->n + y->id] = true;
        close_above(j, x, y);
    }
}

static bool effect_adds(const Kernel *k, int arg)
{
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].access.arg == arg && k->effects.at[i].add != ADD_NEVER)
            return k->effects.at[i].add != ADD_LATER && k->effects.at[i].add != ADD_FLAG_LATER;
    if (arg == 0 && k->kind == KERNEL_MATMUL)
        return k->matmul.add == ADD_ALWAYS || k->matmul.add == ADD_FLAG;
    if (arg == 0 && k->kind == KERNEL_SCATTER)
        return k->scatter.add == ADD_ALWAYS || k->scatter.add == ADD_FLAG;
    return false;
}

/* A write to b spoils what overlaps it, but for `but`. */
static void judge_write(Judge *j, const Step *s, const Buffer *b, const Buffer *but)
{
    if (b->kind != BUF_ARENA)
        return;
    for (int i = 0; i < j->n; i++) {
        const Buffer *o = j->r->buffers.at[i];
        if (o == b || o == but || o->kind != BUF_ARENA || !j->holds[i] || o->bytes == 0
            || b->bytes == 0)
            continue;
        const Buffer *x = place_of(b), *y = place_of(o);
        if (overlap(b, o))
            j->holds[i] = false;
        else if (x != y && b->first <= o->last && o->first <= b->last
                 && !j->above[x->id * j->n + y->id] && !j->above[y->id * j->n + x->id])
            j->wrong = arena_printf(j->cx->arena,
                                    "%s and %s live together in step %d, and "
                                    "nothing keeps them apart at other dims",
                                    b->name, o->name, s->number);
    }
    j->holds[b->id] = true;
}

/* An epilogue that may be done: it writes early, in the place of the product's result or apart from
   all that is needed. */
static void judge_epilogue(Judge *j, const Step *s)
{
    const Epilogue *e = s->epilogue;
    const Buffer *to = planned(e->to.buffer), *c = planned(s->operands[0].buffer);
    if (e->kind == EPILOGUE_GELU_GRAD && !j->holds[planned(e->x.buffer)->id])
        j->wrong = arena_printf(j->cx->arena,
                                "the epilogue of step %d reads %s, which is not there", s->number,
                                e->x.buffer->name);
    for (int a = 1; a < s->kernel->args.len && j->wrong == NULL; a++) {
        const Buffer *b = planned(s->operands[a].buffer);
        if (b->kind == BUF_ARENA && to->kind == BUF_ARENA && b->bytes > 0 && overlap(b, to))
            j->wrong = arena_printf(j->cx->arena, "the epilogue of step %d overwrites %s",
                                    s->number, b->name);
    }
    judge_write(j, s, to, place_of(to) == place_of(c) ? c : NULL);
}

static void judge_step(Judge *j, const Step *s)
{
    const Kernel *k = s->kernel;
    for (int a = 0; a < k->args.len && j->wrong == NULL; a++) {
        const Buffer *b = planned(s->operands[a].buffer);
        const bool reads = k->args.at[a].read || !k->args.at[a].written || effect_adds(k, a);
        if (b->kind == BUF_ARENA && reads && !j->holds[b->id])
            j->wrong = arena_printf(j->cx->arena,
                                    "step %d (%s) reads %s, which is not written yet "
                                    "or was overwritten",
                                    s->number, k->name, b->name);
    }
    for (int a = 0; a < k->args.len && j->wrong == NULL; a++)
        if (k->args.at[a].written)
            judge_write(j, s, planned(s->operands[a].buffer), NULL);
    if (s->epilogue != NULL && j->wrong == NULL)
        judge_epilogue(j, s);
}

/* Without iterations, what has a slot for each is empty, and whoever reads it reads nothing. */
static void hold_slots(Judge *j, const Steps *steps, int depth)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL)
            hold_slots(j, &s->body, depth);
        for (int a = 0; s->kernel != NULL && a < s->kernel->args.len; a++)
            if (s->operands[a].loop_stride[depth] != NULL
                && s->operands[a].buffer->kind == BUF_ARENA)
                j->holds[planned(s->operands[a].buffer)->id] = true;
    }
}

static void judge_steps(Judge *j, const Steps *steps)
{
    for (int i = 0; i < steps->len && j->wrong == NULL; i++) {
        const Step *s = steps->at[i];
        if (s->kernel != NULL) {
            judge_step(j, s);
            continue;
        }
        if (j->skip_loops && !s->loop->part && !dim_le(j->dims, j->one, s->loop->trip)) {
            hold_slots(j, &s->body, s->depth);
            continue;
        }
        judge_steps(j, &s->body);
        judge_steps(j, &s->body);
    }
}

const char *plan_judge(KernelProgram *kp, Routine *r)
{
    Context *cx = kp->program->cx;
    const Routine *of = r->shares != NULL ? r->shares : r;
    const int n = of->buffers.len;
    Judge j = { .cx = cx, .r = of, .n = n, .dims = kp->program->dims };
    j.one = dim_const(j.dims, 1);
    j.holds = NEW_ARRAY(cx->scratch, bool, n + 1);
    j.above = NEW_ARRAY(cx->scratch, bool, (size_t)n *(size_t)n + 1);
    for (int i = 0; i < n; i++) {
        const Buffer *b = of->buffers.at[i];
        if (b->kind != BUF_ARENA)
            continue;
        if (b->over == NULL && (b->offset < 0 || b->offset + b->bytes > of->arena_bytes))
            return arena_printf(cx->arena, "%s lies outside the arena", b->name);
        if (b->over != NULL && (place_of(b)->offset != b->offset || place_of(b)->bytes < b->bytes))
            return arena_printf(cx->arena, "%s does not fit the place of %s", b->name,
                                place_of(b)->name);
        close_above(&j, b, b);
    }
    judge_steps(&j, &r->steps);
    j.skip_loops = true;
    for (int i = 0; i < n; i++)
        j.holds[i] = false;
    judge_steps(&j, &r->steps);
    return j.wrong;
}
