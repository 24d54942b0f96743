/* order.c -- numbers the steps of a routine and finds how long each buffer lives.
 *
 * In: steps in a valid order (fuse.c). Out: step numbers and positions; which steps are of the
 * backward pass, which forward step each of them undoes (and shows the line of); first and last
 * position of each buffer.
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
    int position, number;
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
            o->position++; /* the end of the loop is a moment of its own */
        } else {
            s->number = s->rest ? o->number : ++o->number;
        }
    }
}

static void mark_backward(Steps *steps, bool mixed)
{
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        s->backward = true;
        s->mixed = mixed;
        mark_backward(&s->body, mixed || (s->loop != NULL && s->loop->part != NULL));
    }
}

/* What stands behind the first backward step belongs to the backward pass, copies of forward values
   included: the emitted functions keep the order in which the plan sees the steps. */
static void split_passes(Steps *steps)
{
    bool backward = false;
    for (int i = 0; i < steps->len; i++) {
        backward = backward || steps->at[i]->backward;
        if (backward) {
            steps->at[i]->backward = true;
            mark_backward(&steps->at[i]->body, steps->at[i]->loop && steps->at[i]->loop->part);
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

typedef struct {
    int first, last;
    bool seen, read_first, strided, outside;
} Use;

/* What its epilogue writes is needed from the product on; what that reads is there before. */
static void use_epilogue(Use *v, const Step *s, const Buffer *b, int depth)
{
    const Operand *o = &s->epilogue->to;
    if (o->buffer != b)
        return;
    v->seen = true;
    v->first = v->last = s->position;
    for (int d = 0; d < depth; d++)
        v->strided = v->strided || o->loop_stride[d] != NULL;
}

/* What a list of steps does to buffer b: where it starts and ends to need it. */
static Use use_in(const Steps *steps, const Buffer *b, int depth)
{
    Use u = { NEVER, NEVER, false, false, false, false };
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        Use v = { NEVER, NEVER, false, false, false, false };
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
            if (s->epilogue != NULL)
                use_epilogue(&v, s, b, depth);
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

/* ---- which forward step a backward step undoes ----------------------------------------------- */

/* How surely forward node f is what n means: n itself, or a twin of it that a pass made anew. */
static int likeness(const Node *f, const Node *n)
{
    if (f == NULL || f->span.file != n->span.file)
        return 0;
    if (f == n)
        return 4;
    const bool same_span = f->span.lo == n->span.lo && f->span.hi == n->span.hi;
    const bool around = f->span.lo <= n->span.lo && f->span.hi >= n->span.hi;
    if (same_span && f->op == n->op)
        return f->name == n->name ? 3 : 2;
    return around ? 1 : 0;
}

enum { FUSED_DEPTH = 3 }; /* product, view, bias: what a call may stand for */

/* How surely a step computes n: its main node, what a call took in, what a kernel computes. */
static int step_likeness(const Step *s, const Node *n)
{
    const Kernel *k = s->kernel;
    int like = likeness(s->node, n);
    const Node *inner = k->kind == KERNEL_MAP ? NULL : s->node;
    for (int d = 0; d < FUSED_DEPTH && inner != NULL && inner->n_in > 0; d++) {
        const OpClass c = op_row(inner->op)->class;
        if (c == CLASS_CONTRACT || c == CLASS_CUSTOM || c == CLASS_INDEX)
            break;
        inner = inner->in[0];
        const int other = likeness(inner, n);
        like = other > like ? other : like;
    }
    for (int v = 0; v < k->values.len; v++) {
        const int other = likeness(k->values.at[v].node, n);
        like = k->values.at[v].kind != VAL_LOAD && other > like ? other : like;
    }
    return like;
}

/* Does a step compute a forward value? A loop that does rows in parts goes forward and back. */
static bool is_forward(const Step *s)
{
    return !s->backward || (s->mixed && s->node != NULL && !s->node->backward);
}

/* The last of the forward steps that are most surely the one which computes n. */
static void find_forward(const Steps *steps, const Node *n, const Step **found, int *sure)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL) {
            find_forward(&s->body, n, found, sure);
            continue;
        }
        const int like = is_forward(s) ? step_likeness(s, n) : 0;
        if (like > 0 && like >= *sure) {
            *found = s;
            *sure = like;
        }
    }
}

/* Forward steps that read a parameter: how many, and the number of the last. */
static int count_readers(const Steps *steps, int param, int *number)
{
    int n = 0;
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        for (int a = 0; s->kernel && !s->backward && a < s->kernel->args.len; a++) {
            const Buffer *b = s->operands[a].buffer;
            if ((b->kind != BUF_PARAM && b->kind != BUF_PARAM16) || b->index != param)
                continue;
            n++;
            *number = s->number;
        }
        n += count_readers(&s->body, param, number);
    }
    return n;
}

static bool is_narrowing(const Node *n) { return n->op == OP_BF16 || n->op == OP_F16; }

/* What is rounded or seen in another shape: that a gradient is, since its value was, says nothing
   of the step that it undoes. */
static const Node *value_under(const Node *n)
{
    while (n != NULL && (is_narrowing(n) || n->op == OP_RESHAPE))
        n = n->in[0];
    return n;
}

/* A vote for the forward step that n undoes, if it is sure; its number, 0 = none is known. */
static int vote(Order *o, const Node *n, int *votes)
{
    const Step *f = NULL;
    int sure = 0;
    if (n == NULL || n->undoes == NULL)
        return 0;
    find_forward(&o->r->steps, n->undoes, &f, &sure);
    if (f != NULL && sure > 1 && !is_narrowing(n))
        votes[f->number]++;
    return f != NULL ? f->number : 0;
}

/* The same, of what a call stands for: the product under what it took in. */
static int vote_call(Order *o, const Node *n, int *votes)
{
    int doubtful = 0;
    for (int d = 0; d <= FUSED_DEPTH && n != NULL; d++) {
        const OpClass c = op_row(n->op)->class;
        const int number = vote(o, n, votes);
        doubtful = number > 0 ? number : doubtful;
        if (c == CLASS_CONTRACT || c == CLASS_CUSTOM || c == CLASS_INDEX)
            break;
        n = n->n_in > 0 ? n->in[0] : NULL;
    }
    return doubtful;
}

/* A fused backward step undoes several forward steps: those whose values it undoes, and those that
   alone read a parameter whose gradient it writes. The one told is what most values undo. */
static int step_undone(Order *o, Step *s)
{
    const Kernel *k = s->kernel;
    int *votes = NEW_ARRAY(o->cx->scratch, int, o->number + 1);
    const Node *main = value_under(s->node);
    int best = 0;
    int doubtful = k->kind == KERNEL_MAP ? vote(o, main, votes) : vote_call(o, main, votes);
    for (int v = 0; v < k->values.len; v++)
        if (k->values.at[v].kind != VAL_LOAD)
            vote(o, k->values.at[v].node, votes);
    for (int a = 0; a < k->args.len; a++) {
        const Buffer *b = s->operands[a].buffer;
        int reader = 0;
        if (b->kind == BUF_GRAD && count_readers(&o->r->steps, b->index, &reader) == 1)
            votes[reader]++;
    }
    for (int i = o->number; i > 0; i--)
        if (votes[i] > 0)
            vec_push(o->cx->arena, &s->undone, i);
    for (int i = 1; i <= o->number; i++)
        best = votes[i] > 0 && votes[i] >= votes[best] ? i : best;
    if (best == 0 && doubtful > 0)
        vec_push(o->cx->arena, &s->undone, doubtful);
    return best > 0 ? best : doubtful;
}

const Step *steps_find(const Steps *steps, int number)
{
    const Step *found = NULL;
    for (int i = 0; i < steps->len && found == NULL; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL)
            found = steps_find(&s->body, number);
        else if (s->number == number)
            found = s;
    }
    return found;
}

static void link_undoes(Order *o, Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        if (s->kernel == NULL)
            link_undoes(o, &s->body);
        else if (s->backward && (s->undoes = step_undone(o, s)) > 0)
            s->span = steps_find(&o->r->steps, s->undoes)->span;
    }
}

void pass_order(KernelProgram *kp, Routine *r)
{
    Order o = { kp->program->cx, r, 0, 0 };
    split_passes(&r->steps);
    number_steps(&o, &r->steps, 0);
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        const Use u = use_in(&r->steps, b, 0);
        b->first = u.first;
        b->last = u.last;
        if (u.seen)
            widen(&r->steps, b);
    }
    link_undoes(&o, &r->steps);
}
