/* order.c -- numbers the steps of a routine and finds how long each buffer lives.
 *
 * In: steps in a valid order (fuse.c). Out: step numbers and positions; `undoes` of backward steps;
 * first and last position of each buffer.
 *
 * Positions count steps in execution order, the body of a loop once. Inside a loop a buffer that is
 * written anew in each iteration before it is read lives only from that write to its last read; any
 * other buffer that the loop touches (used outside as well, a slot per iteration, or carried from
 * one iteration to the next) lives from before the loop to after it, as far as its uses reach.
 */
#include "pass/kernel.h"
#include "op/op.h"

enum { NEVER = -1 };

typedef struct {
    Context *cx;
    Routine *r;
    int      position, number;
} Order;

/* Does the kernel read argument a before it writes it? Adding reads. */
static bool arg_reads(const Kernel *k, int a)
{
    if (k->args.at[a].read || !k->args.at[a].written)
        return true;
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].access.arg == a && k->effects.at[i].add != ADD_NEVER)
            return true;
    if (a == 0 && k->kind == KERNEL_MATMUL)
        return k->matmul.add != ADD_NEVER;
    if (a == 0 && k->kind == KERNEL_SCATTER)
        return k->scatter.add != ADD_NEVER;
    return false;
}

static void number_steps(Order *o, Steps *steps, int depth)
{
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        s->depth = depth;
        s->position = o->position++;
        if (s->kernel == NULL) {
            number_steps(o, &s->body, depth + 1);
            o->position++;              /* the end of the loop is a moment of its own */
        } else {
            s->number = ++o->number;
        }
    }
}

static int loop_end(const Step *loop)
{
    int end = loop->position;
    for (int i = 0; i < loop->body.len; i++) {
        const Step *s = loop->body.at[i];
        const int at = s->kernel == NULL ? loop_end(s) : s->position;
        end = at > end ? at : end;
    }
    return end + 1;
}

/* ---- lives ---------------------------------------------------------------------------------- */

typedef struct { int first, last; bool seen, read_first, strided, outside; } Use;

/* What a list of steps does to buffer b: where it starts and ends to need it. */
static Use use_in(const Steps *steps, const Buffer *b, int depth)
{
    Use u = { NEVER, NEVER, false, false, false, false };
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        Use         v = { NEVER, NEVER, false, false, false, false };
        if (s->kernel == NULL) {
            v = use_in(&s->body, b, depth + 1);
            /* carried or with a slot per iteration: needed in all of the loop */
            if (v.seen && (v.read_first || v.strided)) {
                v.first = s->position;
                v.last = loop_end(s);
            }
        } else {
            for (int a = 0; a < s->kernel->args.len; a++) {
                if (s->operands[a].buffer != b)
                    continue;
                v.seen = true;
                v.first = v.last = s->position;
                v.read_first = v.read_first || arg_reads(s->kernel, a);
                for (int d = 0; d < depth; d++)
                    v.strided = v.strided || s->operands[a].loop_stride[d] != NULL;
            }
        }
        if (!v.seen)
            continue;
        if (!u.seen)
            u = v;
        u.last = v.last > u.last ? v.last : u.last;
        u.first = v.first < u.first ? v.first : u.first;
        u.strided = u.strided || v.strided;
    }
    return u;
}

/* A buffer used in a loop and outside it lives through the whole loop. */
static void widen(const Steps *steps, Buffer *b)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel != NULL)
            continue;
        const int from = s->position, to = loop_end(s);
        const bool inside = b->first <= to && b->last >= from;
        if (inside && use_in(&s->body, b, s->depth + 1).seen && (b->first < from || b->last > to)) {
            b->first = b->first < from ? b->first : from;
            b->last = b->last > to ? b->last : to;
        }
        widen(&s->body, b);
    }
}

/* ---- which forward step a backward step undoes ------------------------------------------------ */

static const Step *forward_step(const Steps *steps, const Node *n)
{
    const Step *found = NULL;
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        const Step *in = s->kernel == NULL ? forward_step(&s->body, n) : NULL;
        if (in != NULL)
            found = in;
        if (s->kernel == NULL || s->backward || s->node == NULL)
            continue;
        if (s->node == n)
            return s;
        if (s->span.file == n->span.file && s->span.lo <= n->span.lo && s->span.hi >= n->span.hi)
            if (found == NULL || s->node->op == n->op || found->node->op != n->op)
                found = s;
    }
    return found;
}

static void link_undoes(Routine *r, Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        if (s->kernel == NULL)
            link_undoes(r, &s->body);
        else if (s->backward && s->node != NULL && s->node->undoes != NULL) {
            const Step *f = forward_step(&r->steps, s->node->undoes);
            s->undoes = f != NULL ? f->number : 0;
        }
    }
}

void pass_order(KernelProgram *kp, Routine *r)
{
    Order o = { kp->program->cx, r, 0, 0 };
    number_steps(&o, &r->steps, 0);
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer   *b = r->buffers.at[i];
        const Use u = use_in(&r->steps, b, 0);
        b->first = u.first;
        b->last = u.last;
        if (u.seen)
            widen(&r->steps, b);
    }
    link_undoes(r, &r->steps);
}
