/* c_ready.c -- behind which step of the backward pass the gradient of a parameter is complete.
 *
 * In: the steps of training. Out: a number for each row of the table of parameters, and a line
 * RT_READY behind that step, or at the end of each repetition of its loop: sums over ranks begin
 * there, while the pass goes on. The one idea: the last step that writes a gradient is known here,
 * so that no rank has to watch for it.
 */
#include <string.h>

#include "emit/step.h"

static bool writes(const Step *s, int param)
{
    for (int i = 0; s->kernel && i < s->kernel->args.len; i++)
        if (s->kernel->args.at[i].written && s->operands[i].buffer->kind == BUF_GRAD
            && s->operands[i].buffer->index == param)
            return true;
    for (int i = 0; i < s->body.len; i++)
        if (writes(s->body.at[i], param))
            return true;
    return false;
}

/* Does iteration i of the outermost loop write to repetition i alone, of these steps? */
static bool writes_own(Emitter *e, const Steps *steps, int param, const Dim *stride)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        for (int a = 0; s->kernel && a < s->kernel->args.len; a++) {
            const Operand *o = &s->operands[a];
            if (!s->kernel->args.at[a].written || o->buffer->kind != BUF_GRAD
                || o->buffer->index != param)
                continue;
            const int64_t at = o->offset ? emit_train_value(e, o->offset) : 0;
            if (!o->loop_stride[0]
                || emit_train_value(e, o->loop_stride[0]) != emit_train_value(e, stride) || at < 0
                || at >= emit_train_value(e, stride))
                return false;
        }
        if (!writes_own(e, &s->body, param, stride))
            return false;
    }
    return true;
}

/* The highest number in it: where it is a loop, it has none of its own. */
static int number_of(const Step *s)
{
    int number = s->kernel ? s->number : 0;
    for (int i = 0; i < s->body.len; i++)
        number = number_of(s->body.at[i]) > number ? number_of(s->body.at[i]) : number;
    return number;
}

static const Step *last_writer(Emitter *e, int param)
{
    const Routine *r = e->kp->train;
    const Step *last = NULL;
    for (int i = 0; r && i < r->steps.len; i++)
        if (r->steps.at[i]->backward && !r->steps.at[i]->rest && writes(r->steps.at[i], param))
            last = r->steps.at[i];
    return last;
}

static bool is_each(Emitter *e, int param, const Step *s)
{
    int group = e->p->params.at[param].group;
    if (s->kernel || group < 0)
        return false;
    while (e->p->groups.at[group].parent >= 0)
        group = e->p->groups.at[group].parent;
    const ParamGroup *g = &e->p->groups.at[group];
    return emit_train_value(e, s->loop->trip) == emit_train_value(e, g->count)
           && writes_own(e, &s->body, param, dim_sym(e->p->dims, g->stride_sym));
}

Ready c_ready(Emitter *e, int param)
{
    const Step *s = last_writer(e, param);
    if (!s)
        return (Ready){ 0 };
    return (Ready){ .step = number_of(s), .each = is_each(e, param, s) };
}

/* "ln_f.weight, ln_f.bias": what is complete behind the step; NULL: nothing. */
static const char *complete_text(Emitter *e, const Step *s, bool each)
{
    const char *text = NULL;
    for (int i = 0; i < e->p->params.len; i++)
        if (last_writer(e, i) == s && is_each(e, i, s) == each)
            text = emit_format(e, "%s%s%s", text ? text : "", text ? ", " : "",
                               e->p->params.at[i].path);
    return text;
}

void ready_mark(Function *f, const Step *s, bool each)
{
    Emitter *e = f->e;
    const char *text = f->r == e->kp->train ? complete_text(e, s, each) : NULL;
    if (!text)
        return;
    const char *call = emit_format(e, "    RT_READY(s, %d, %s);", number_of(s),
                                   each ? f->var[0] : "-1");
    f->head->s = true;
    text = emit_comment(e, emit_format(e, "sums: %s", text), COLUMNS - strlen(call) - 7);
    vec_push(e->cx->scratch, &f->rows,
             ((Row){ .left = emit_format(e, "%s /* %s */", call, text), .check = true }));
}
