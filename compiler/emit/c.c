/* c.c -- the eight sections in their order, and the C target.
 *
 * In: kernels, routines with plans, the program's tables. Out: one file in C, or in the language of
 * another target, which has its own words where they differ. Also here: what the C target asks of
 * the plan, namely room for partial sums of columns.
 */
#include "emit/map.h"

#include <string.h>

static const char notation[] =
    "/* One function per kernel, in the order of first use: forward, backward, then what only\n"
    " * evaluation and outputs use. Above it, what it computes in the model's notation:\n"
    " *   x @ w, x'    product and transpose of matrices. A value of more axes is a matrix of\n"
    " *                rows: [B,T,C] has B*T rows of C, [B,T,H,C/H] likewise\n"
    " *   x - m        an axis that m lacks is repeated: [B,T,C] - [B,T], [B,T,C] + [C]\n"
    " *   sum over C   of the product that follows, up to the next + or -\n"
    " *   0..V, x[i]   the index along an axis; the element or row with that index\n"
    " *   a == b       1 where it holds, else 0; a < b and so on likewise\n"
    " *   pad(x)       x with zeros around it, up to the shape on the left\n"
    " *   d_x          d loss / d x, see section 6\n"
    " *   (+)=         the first write of an update replaces, later ones add\n"
    " *   RT_READY     these gradients are complete: their sums over ranks may begin\n";

static const char loops[] =
    " * A variable of a kernel has the end of a name above, mu for h_ln_mu; a, b, ... have none.\n"
    " * RT_PARALLEL_FOR(loops, work), RT_PARALLEL_SIMD(work) and RT_SIMD are OpenMP pragmas. Sums\n"
    " * over rows that threads share are made in at most RT_CHUNKS fixed ranges of rows, whose\n"
    " * partial results are added in order, or by blocks of RT_COLUMNS columns, each by one\n"
    " * thread; sums over a row in RT_LANES sums side by side. So neither threads nor what else a\n"
    " * loop does change a bit. */\n"
    "\n";

static void mark_kernels(Map *used, const Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        if (steps->at[i]->kernel)
            map_set(used, steps->at[i]->kernel, steps->at[i]->kernel);
        mark_kernels(used, &steps->at[i]->body);
    }
}

/* Kernels of the loops over parts of the rows that do forward values too, with their loop. */
static void mark_mixed(Map *mixed, const Steps *steps, const Loop *loop)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel && s->mixed && loop && !map_get(mixed, s->kernel))
            map_set(mixed, s->kernel, (void *)(uintptr_t)loop);
        mark_mixed(mixed, &s->body, s->loop && s->loop->part ? s->loop : loop);
    }
}

typedef enum { GROUP_FORWARD, GROUP_MIXED, GROUP_BACKWARD, GROUP_OTHER } Group;

static void group_heading(Emitter *e, Group group, const Loop *loop)
{
    const char *title = "of evaluation and outputs, where they differ";
    if (group == GROUP_MIXED)
        title = emit_format(e, "of %s, %s rows at a time, forward and backward",
                            loop->name ? loop->name : "the loss",
                            dim_text(e->cx, loop->part->step));
    else if (group == GROUP_BACKWARD)
        title = "of the backward pass";
    text_add(e->out, "/* ---- %s ---- */\n\n", title);
}

/* Kernels of training, forward and backward, then those that only other routines use. */
static void emit_kernels(Emitter *e)
{
    Map *training = map_new(e->cx->scratch), *mixed = map_new(e->cx->scratch);
    Group group = GROUP_FORWARD;
    if (e->kp->train) {
        mark_kernels(training, &e->kp->train->steps);
        mark_mixed(mixed, &e->kp->train->steps, NULL);
    }
    for (int i = 0; i < e->kp->kernels.len; i++) {
        Kernel *k = e->kp->kernels.at[i];
        const Group own = !map_get(training, k) ? GROUP_OTHER
                          : map_get(mixed, k)   ? GROUP_MIXED
                          : k->backward         ? GROUP_BACKWARD
                                                : GROUP_FORWARD;
        if (own != group && own != GROUP_FORWARD) {
            group_heading(e, own, map_get(mixed, k));
            group = own;
        }
        e->language->kernel(e, k);
    }
}

void emit_file(Text *out, KernelProgram *kp, const EmitOptions *opt, const Language *language)
{
    Emitter e = { .language = language,
                  .cuda = language->cuda,
                  .cx = kp->program->cx,
                  .kp = kp,
                  .p = kp->program,
                  .opt = opt,
                  .out = out };
    c_name_all(&e);
    c_head(&e);
    c_dimensions(&e);
    c_parameters(&e);
    c_memory(&e);
    emit_banner(&e, 4, "kernels");
    text_put(out, notation);
    text_put(out, language->how_to_read);
    if (e.cuda) {
        c_fixed_sizes(&e);
        c_slots(&e);
    }
    emit_kernels(&e);
    c_forward(&e);
    c_backward(&e);
    c_step(&e);
    c_table(&e);
}

const char *c_literal(Emitter *e, const char *type)
{
    return emit_format(e, e->cuda ? "%s" : "(%s)", type);
}

static const Language language_c = { .ending = ".c",
                                     .header = "rt.h",
                                     .how_to_read = loops,
                                     .kernel = c_kernel,
                                     .rule = c_rule };

static void emit_c(Text *out, KernelProgram *kp, const EmitOptions *opt)
{
    emit_file(out, kp, opt, &language_c);
}

/* ---- room for partial sums ----------------------------------------------------------------- */

enum { CHUNKS = 64 }; /* RT_CHUNKS of rt.h */

static const char work_name[] = "work";

static int count_columns(const Kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->effects.len; i++)
        n += k->effects.at[i].kind == EFFECT_COLUMN;
    return n;
}

static bool has_work(const Kernel *k)
{
    return k->args.len > 0 && k->args.at[k->args.len - 1].name == work_name;
}

static Buffer *work_buffer(KernelProgram *kp, Routine *r, const Kernel *k)
{
    Context *cx = kp->program->cx;
    Dims *ds = kp->program->dims;
    const Dim *dim[2] = { dim_const(ds, CHUNKS * count_columns(k)), k->axis[k->n_axes - 1] };
    Buffer *b = NEW(cx->arena, Buffer);
    b->id = r->buffers.len;
    b->kind = BUF_ARENA;
    b->name = intern_printf(cx, "work_%s", k->name);
    b->partials = count_columns(k);
    b->dtype = k->args.at[k->args.len - 1].dtype;
    b->type = type_of(ds, b->dtype, 2, dim);
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *o = r->buffers.at[i];
        if (o->name == b->name && type_same(o->type, b->type))
            return o;
        if (o->name == b->name) {
            b->name = intern_printf(cx, "%s_%d", b->name, r->buffers.len);
            break;
        }
    }
    vec_push(cx->arena, &r->buffers, b);
    return b;
}

static void add_operands(KernelProgram *kp, Routine *r, Steps *steps)
{
    Context *cx = kp->program->cx;
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        if (s->kernel == NULL) {
            add_operands(kp, r, &s->body);
            continue;
        }
        if (!has_work(s->kernel))
            continue;
        const int n = s->kernel->args.len;
        Operand *operands = NEW_ARRAY(cx->arena, Operand, n);
        memcpy(operands, s->operands, sizeof *operands * (size_t)(n - 1));
        operands[n - 1].buffer = work_buffer(kp, r, s->kernel);
        operands[n - 1].offset = dim_const(kp->program->dims, 0);
        s->operands = operands;
    }
}

static void emit_c_workspace(KernelProgram *kp)
{
    Routine *const routine[] = { kp->train, kp->eval, kp->output, kp->count };
    for (int i = 0; i < kp->kernels.len; i++) {
        Kernel *k = kp->kernels.at[i];
        if (!c_map_needs_partials(k) || has_work(k))
            continue;
        vec_push(kp->program->cx->arena, &k->args,
                 ((KernelArg){ .name = work_name,
                               .dtype = kp->program->real,
                               .written = true,
                               .exclusive = true }));
    }
    for (int i = 0; i < 4; i++)
        if (routine[i])
            add_operands(kp, routine[i], &routine[i]->steps);
}

enum { ALIGN = 64 }; /* RT_ALIGN of rt.h */

const Target target_c = { .name = "c",
                          .align = ALIGN,
                          .workspace = emit_c_workspace,
                          .emit = emit_c };
