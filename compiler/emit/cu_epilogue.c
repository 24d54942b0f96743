/* cu_epilogue.c -- what cuBLASLt may do with the result of a product in the product's own kernel.
 *
 * In: steps over buffers (fuse.c), long rows on a boundary (cu_pitch.c). Out: products whose
 * result a later step makes GELU of, or multiplies with the slope of GELU, have an Epilogue; that
 * step is left out where the runtime chose the epilogue, and what else it does, as the sum for a
 * bias, is a kernel of its own. The one idea: rules of algebra may have written GELU anew, so it is
 * known by its values: a formula of smooth functions alone that agrees with it at many places is
 * it. The exact form, with erf, differs by 5e-4, and is another function.
 *
 * An epilogue writes when the product is done: from there on its result has its own place, and no
 * step between may touch that (order.c, plan.c and judge.c count it to the product).
 *
 * No gradient of a bias comes from an epilogue: cuBLASLt gives it in the type of the result, so a
 * sum over all rows in 16 bits; it replaces what is there, where micro-steps add; and in which
 * order it adds is not said. The sum that is left reads what the epilogue has written, once.
 */
#include "emit/cu.h"
#include "op/op.h"

#include <math.h>
#include <string.h>

enum { PLACES = 160 }; /* at which a function is looked at */

/* ---- is it GELU? ----------------------------------------------------------------------------- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* Have they derivatives of all orders, so that no place is unlike its neighbours? */
static bool is_smooth(Op op)
{
    return op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_DIV || op == OP_POW
           || op == OP_NEG || op == OP_EXP || op == OP_TANH || op == OP_SIGMOID;
}

static bool is_narrowing(const Value *v)
{
    return v->kind == VAL_POINT && (v->op == OP_BF16 || v->op == OP_F16);
}

static bool same_dim(const Dim *a, const Dim *b)
{
    return a == b || (a ? b ? dim_same(a, b) : dim_is(a, 0) : dim_is(b, 0));
}

/* An element of another argument at the same place, or of the same one. */
static bool same_place(const Kernel *k, const Access *a, const Access *b)
{
    if (a->index >= 0 || b->index >= 0 || a->guard >= 0 || b->guard >= 0)
        return false;
    for (int i = 0; i < k->n_axes; i++)
        if (!same_dim(a->stride[i], b->stride[i]))
            return false;
    return same_dim(a->offset, b->offset);
}

typedef struct { /* a value as a function of elements at one place, of at most two arguments */
    const Kernel *k;
    const Access *at;
    int value, n, arg[2];
    bool *needed; /* by value */
} Formula;

/* false: it is no such function. */
static bool formula_read(Arena *a, const Kernel *k, const Effect *store, Formula *f)
{
    *f = (Formula){ .k = k, .at = &store->access, .value = store->value };
    f->needed = NEW_ARRAY(a, bool, k->values.len + 1);
    if (is_narrowing(&k->values.at[f->value]))
        f->value = k->values.at[f->value].in[0];
    f->needed[f->value] = true;
    for (int i = f->value; i >= 0; i--) {
        const Value *v = &k->values.at[i];
        if (!f->needed[i])
            continue;
        for (int j = 0; j < v->n_in; j++)
            f->needed[v->in[j]] = true;
        if (v->kind == VAL_CONST || (v->kind == VAL_POINT && is_smooth(v->op)))
            continue;
        if (v->kind != VAL_LOAD || !same_place(k, &v->access, &store->access)
            || k->args.at[v->access.arg].written)
            return false;
        const bool known = (f->n > 0 && f->arg[0] == v->access.arg)
                           || (f->n > 1 && f->arg[1] == v->access.arg);
        if (!known && f->n == 2)
            return false;
        if (!known)
            f->arg[f->n++] = v->access.arg;
    }
    return f->n > 0;
}

/* Its values at PLACES places, where the arguments are x[0] and x[1] there. */
static const double *formula_values(Arena *a, const Formula *f, const double *const x[2])
{
    Tensor *t = NEW_ARRAY(a, Tensor, f->value + 1);
    for (int i = 0; i <= f->value; i++) {
        const Value *v = &f->k->values.at[i];
        const Tensor *in[4];
        if (!f->needed[i])
            continue;
        t[i] = (Tensor){ .rank = 1, .dim = { PLACES }, .elems = PLACES };
        t[i].at = NEW_ARRAY(a, double, PLACES);
        for (int j = 0; j < v->n_in; j++)
            in[j] = &t[v->in[j]];
        const Node n = { .op = v->op, .n_in = v->n_in };
        if (v->kind == VAL_POINT)
            op_row(v->op)->eval(a, &n, in, &t[i], NULL);
        for (int p = 0; p < PLACES && v->kind != VAL_POINT; p++)
            t[i].at[p] = v->kind == VAL_CONST         ? v->number
                         : v->access.arg == f->arg[0] ? x[0][p]
                                                      : x[1][p];
    }
    return t[f->value].at;
}

/* x: the argument that GELU or its slope is of; d: what the slope is multiplied with. */
static bool is_gelu(Arena *a, const Formula *f, int x)
{
    double of[PLACES], by[PLACES];
    for (int p = 0; p < PLACES; p++) {
        of[p] = 7 * sin(p * 2.399963 + 0.3);
        by[p] = 3 * cos(p * 1.618034 + 0.1);
    }
    const double *got = formula_values(a, f,
                                       (const double *[2]){ x == 0 ? of : by, x == 0 ? by : of });
    for (int p = 0; p < PLACES; p++) {
        const double want = f->n == 1 ? gelu(of[p]) : by[p] * gelu_slope(of[p]);
        if (!(fabs(got[p] - want) <= 1e-6))
            return false;
    }
    return true;
}

/* ---- of which product? ----------------------------------------------------------------------- */

typedef struct {
    KernelProgram *kp;
    Dims *ds;
    Arena *a;
    VEC(Kernel *) rest, main; /* what is left of which kernel, and without which effect */
    VEC(int) without;
} Finder;

/* Does an access go over all elements of [m, n] with rows ld apart, each once? */
static bool is_whole(Finder *f, const Kernel *k, const Access *a, const Matmul *x)
{
    const Dim *along = dim_const(f->ds, 1), *rows = along;
    const bool dense = dim_same(x->ldc, x->n);
    bool down = false; /* the axis goes from row to row */
    if (a->index >= 0 || a->guard >= 0 || !dim_is(a->offset, 0))
        return false;
    for (int i = k->n_axes - 1; i >= 0; i--) {
        const Dim *size = k->axis[i], *stride = a->stride[i];
        if (dim_is(size, 1))
            continue;
        down = down || (!dense && dim_same(along, x->n));
        if (stride == NULL || !dim_same(stride, down ? dim_mul(f->ds, x->ldc, rows) : along))
            return false;
        if (down)
            rows = dim_mul(f->ds, rows, size);
        else
            along = dim_mul(f->ds, along, size);
    }
    return dim_same(dim_mul(f->ds, along, rows), dim_mul(f->ds, x->m, x->n));
}

static bool same_operand(const Operand *a, const Operand *b)
{
    if (a->buffer != b->buffer || !same_dim(a->offset, b->offset))
        return false;
    for (int d = 0; d < DEPTH_MAX; d++)
        if (!same_dim(a->loop_stride[d], b->loop_stride[d]))
            return false;
    return true;
}

/* Does a step, or one of a loop, touch b; writes: write it? */
static bool touches(const Step *s, const Buffer *b, bool writes)
{
    for (int i = 0; s->kernel && i < s->kernel->args.len; i++)
        if (s->operands[i].buffer == b && (!writes || s->kernel->args.at[i].written))
            return true;
    for (int i = 0; i < s->body.len; i++)
        if (touches(s->body.at[i], b, writes))
            return true;
    return s->epilogue && s->epilogue->to.buffer == b;
}

static bool has_epilogue(const Step *s)
{
    bool any = s->epilogue != NULL;
    for (int i = 0; i < s->body.len; i++)
        any = any || has_epilogue(s->body.at[i]);
    return any;
}

/* May the product at `from` write already what the step at `at` writes? x: what the epilogue reads
   besides, or NULL. Two such pairs do not cross: the stream knows of one epilogue. */
static bool is_free(const Steps *steps, int from, int at, const Buffer *to, const Buffer *x)
{
    const Buffer *c = steps->at[from]->operands[0].buffer;
    if (touches(steps->at[from], to, false) || (x && touches(steps->at[from], x, false)))
        return false;
    for (int i = from + 1; i < at; i++) {
        const Step *s = steps->at[i];
        if (touches(s, to, false) || touches(s, c, true) || (x && touches(s, x, true))
            || has_epilogue(s) || s->product || s->backward != steps->at[from]->backward)
            return false;
    }
    return steps->at[at]->backward == steps->at[from]->backward;
}

static bool has_sixteen_or_32(DType t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }

/* The place among steps of the product whose result argument c of the step at `at` is; -1: none. */
static int product_of(Finder *f, const Steps *steps, int at, int c, const Access *access)
{
    const Step *s = steps->at[at];
    for (int i = at - 1; i >= 0; i--) {
        const Step *p = steps->at[i];
        if (!touches(p, s->operands[c].buffer, true))
            continue;
        if (!p->kernel) /* the last step that writes it is a loop */
            return -1;
        const Matmul *x = &p->kernel->matmul;
        const bool fits = p->kernel->kind == KERNEL_MATMUL && !p->epilogue && x->add == ADD_NEVER
                          && x->n_batch == 0 && has_sixteen_or_32(p->kernel->args.at[0].dtype)
                          && same_operand(&p->operands[0], &s->operands[c])
                          && is_whole(f, s->kernel, access, x);
        return fits ? i : -1;
    }
    return -1;
}

/* ---- what else the step does ----------------------------------------------------------------- */

static bool is_word_of(const char *line, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && (line[n] == '[' || line[n] == ' ');
}

/* The lines of a formula that say what the kernel still writes. */
static const char *lines_left(Finder *f, const Kernel *k, const char *formula)
{
    Text t = text_new(f->a);
    for (const char *s = formula; *s; s += *s == '\n') {
        const size_t len = strcspn(s, "\n");
        for (int i = 0; i < k->args.len; i++)
            if (k->args.at[i].written && is_word_of(s, k->args.at[i].name))
                text_add(&t, "%s%.*s", t.len ? "\n" : "", (int)len, s);
        s += len;
    }
    return t.at;
}

/* Calls visit for each number of a value that a value names. */
typedef void (*Visit)(int *number, void *user);
static void each_number(Value *v, Visit visit, void *user)
{
    Access *const access[] = { &v->access, &v->sample, &v->element };
    for (int i = 0; i < v->n_in; i++)
        visit(&v->in[i], user);
    for (int i = 0; i < 3; i++)
        if (v->kind == (i == 0 ? VAL_LOAD : VAL_DRAW)) {
            visit(&access[i]->index, user);
            visit(&access[i]->guard, user);
        }
}

static void mark(int *number, void *user)
{
    if (*number >= 0)
        ((bool *)user)[*number] = true;
}

static void renumber(int *number, void *user)
{
    if (*number >= 0)
        *number = ((const int *)user)[*number];
}

/* Without the values that no effect needs. */
static void tidy_values(Finder *f, Kernel *k)
{
    bool *needed = NEW_ARRAY(f->a, bool, k->values.len + 1);
    int *now = NEW_ARRAY(f->a, int, k->values.len + 1), n = 0;
    for (int i = 0; i < k->effects.len; i++) {
        mark(&k->effects.at[i].value, needed);
        mark(&k->effects.at[i].access.index, needed);
    }
    for (int i = k->values.len - 1; i >= 0; i--)
        if (needed[i])
            each_number(&k->values.at[i], mark, needed);
    for (int i = 0; i < k->values.len; i++)
        if (needed[i]) {
            k->values.at[now[i] = n] = k->values.at[i];
            each_number(&k->values.at[n++], renumber, now);
        }
    k->values.len = n;
    for (int i = 0; i < k->effects.len; i++) {
        renumber(&k->effects.at[i].value, now);
        renumber(&k->effects.at[i].access.index, now);
    }
}

/* Without the arguments that nothing touches. */
static void tidy_args(Finder *f, Kernel *k, int *arg_of)
{
    bool *used = NEW_ARRAY(f->a, bool, k->args.len + 1);
    int n = 0;
    for (int i = 0; i < k->values.len; i++)
        if (k->values.at[i].kind == VAL_LOAD)
            used[k->values.at[i].access.arg] = true;
    for (int i = 0; i < k->effects.len; i++)
        used[k->effects.at[i].access.arg] = true;
    for (int i = 0; i < k->args.len; i++)
        if (used[i]) {
            k->args.at[n] = k->args.at[i];
            arg_of[n++] = i;
        }
    k->args.len = n;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < k->values.len; j++)
            if (k->values.at[j].kind == VAL_LOAD && k->values.at[j].access.arg == arg_of[i])
                k->values.at[j].access.arg = i;
        for (int j = 0; j < k->effects.len; j++)
            if (k->effects.at[j].access.arg == arg_of[i])
                k->effects.at[j].access.arg = i;
    }
}

/* A kernel that does what k does but for one store, whose value it reads where that was stored.
   arg_of: its arguments among those of k. */
static Kernel *kernel_rest(Finder *f, const Kernel *k, int store, int *arg_of)
{
    Kernel *r = kernel_copy(f->kp->program->cx->arena, k);
    const Effect done = k->effects.at[store];
    const Value *was = &k->values.at[done.value];
    const Value stored = { .kind = VAL_LOAD,
                           .dtype = was->dtype,
                           .level = was->level,
                           .phase = was->phase,
                           .access = done.access,
                           .name = was->name,
                           .node = was->node };
    for (int i = store; i + 1 < r->effects.len; i++)
        r->effects.at[i] = r->effects.at[i + 1];
    r->effects.len--;
    r->args.at[done.access.arg].written = false;
    r->args.at[done.access.arg].read = true;
    r->values.at[done.value] = stored;
    tidy_values(f, r);
    tidy_args(f, r, arg_of);
    r->what = "what an epilogue leaves";
    for (int i = r->args.len - 1; i >= 0; i--)
        if (r->args.at[i].written)
            r->name = r->args.at[i].name;
    r->formula = lines_left(f, r, k->formula);
    return r;
}

/* The same, once for each kernel and store; behind k in the file, with its number. */
static Kernel *kernel_left(Finder *f, Kernel *k, int store, int *arg_of)
{
    Arena *a = f->kp->program->cx->arena;
    Kernel *made = kernel_rest(f, k, store, arg_of);
    for (int i = 0; i < f->main.len; i++)
        if (f->main.at[i] == k && f->without.at[i] == store)
            return f->rest.at[i];
    vec_push(f->a, &f->main, k);
    vec_push(f->a, &f->without, store);
    vec_push(f->a, &f->rest, made);
    vec_push(a, &f->kp->kernels, made);
    int i = f->kp->kernels.len - 1;
    for (; f->kp->kernels.at[i - 1] != k; i--)
        f->kp->kernels.at[i] = f->kp->kernels.at[i - 1];
    f->kp->kernels.at[i] = made;
    return made;
}

static bool has_arg(const Step *s, int n, const int *arg_of, const Buffer *b)
{
    for (int i = 0; i < n; i++)
        if (s->operands[arg_of[i]].buffer == b)
            return true;
    return false;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void add_rest(Finder *f, Steps *steps, int at, int store, int *arg_of)
{
    Arena *a = f->kp->program->cx->arena;
    Step *s = steps->at[at], *rest = NEW(a, Step);
    *rest = *s;
    rest->kernel = kernel_left(f, s->kernel, store, arg_of);
    rest->operands = NEW_ARRAY(a, Operand, rest->kernel->args.len + 1);
    for (int i = 0; i < rest->kernel->args.len; i++)
        rest->operands[i] = s->operands[arg_of[i]];
    rest->rest = true;
    vec_push(a, steps, NULL);
    for (int i = steps->len - 1; i > at + 1; i--)
        steps->at[i] = steps->at[i - 1];
    steps->at[at + 1] = rest;
}

/* c: argument of the formula that is the product's result; the other one, of two, is x. */
static bool try_product(Finder *f, Steps *steps, int at, int store, const Formula *of, int c)
{
    Step *s = steps->at[at];
    const Effect *done = &s->kernel->effects.at[store];
    const Operand *to = &s->operands[done->access.arg];
    const Operand *x = of->n == 2 ? &s->operands[of->arg[1 - c]] : NULL;
    const int from = product_of(f, steps, at, of->arg[c], &done->access);
    if (from < 0 || to->buffer->kind != BUF_ARENA || (x && x->buffer->kind != BUF_ARENA))
        return false;
    Step *p = steps->at[from];
    const DType t = p->kernel->args.at[0].dtype;
    int *arg_of = NEW_ARRAY(f->a, int, s->kernel->args.len + 1);
    if (to->buffer->dtype != t || (x && (x->buffer->dtype != t || p->kernel->matmul.bias))
        || to->buffer == p->operands[0].buffer || (x && x->buffer == p->operands[0].buffer)
        || !is_free(steps, from, at, to->buffer, x ? x->buffer : NULL))
        return false;
    const Kernel *left = kernel_rest(f, s->kernel, store, arg_of);
    if (has_arg(s, left->args.len, arg_of, p->operands[0].buffer))
        return false; /* it still reads the product's result: nothing is saved */
    Epilogue *e = NEW(f->kp->program->cx->arena, Epilogue);
    *e = (Epilogue){ .kind = x ? EPILOGUE_GELU_GRAD : EPILOGUE_GELU, .to = *to };
    if (x)
        e->x = *x;
    p->epilogue = e;
    s->product = p;
    if (left->effects.len > 0)
        add_rest(f, steps, at, store, arg_of);
    return true;
}

static void find_at(Finder *f, Steps *steps, int at)
{
    const Kernel *k = steps->at[at]->kernel;
    Formula of;
    if (k->kind != KERNEL_MAP || k->n_phases != 1)
        return;
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *store = &k->effects.at[i];
        if (store->kind != EFFECT_STORE || store->add != ADD_NEVER
            || !formula_read(f->a, k, store, &of))
            continue;
        for (int c = 0; c < of.n; c++)
            if (is_gelu(f->a, &of, of.n == 2 ? 1 - c : 0) && try_product(f, steps, at, i, &of, c))
                return;
    }
}

static void find_in(Finder *f, Steps *steps)
{
    for (int i = 0; i < steps->len; i++)
        if (steps->at[i]->kernel == NULL)
            find_in(f, &steps->at[i]->body);
        else if (!steps->at[i]->rest)
            find_at(f, steps, i);
}

void cu_epilogue(KernelProgram *kp)
{
    Routine *const routine[] = { kp->train, kp->eval, kp->output };
    Finder f = { .kp = kp, .ds = kp->program->dims, .a = kp->program->cx->scratch };
    for (int i = 0; i < 3; i++)
        if (routine[i])
            find_in(&f, &routine[i]->steps);
}
