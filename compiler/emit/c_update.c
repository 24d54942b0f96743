/* c_update.c -- section 7: one update of the parameters, in an order that no model changes.
 *
 * In: the train settings and what the functions of sections 5 and 6 need. Out: the step (counts;
 * forward and backward per micro-step; reduce, finite and norm, clip, update), the evaluation of a
 * batch and the outputs, as the runtime calls them.
 */
#include "emit/parts.h"

#include <string.h>

/* Optimizers that the runtime has a function for: it, and what it does. */
static const struct {
    const char *call, *formula;
} tensorwise[] = {
    [OPT_LAMB] = {
        "rt_update_lamb",
        " *   lamb     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;\n"
        " *            u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + decay p,\n"
        " *            p = p - lr |p| / |u| u, in update t, with the norms of each tensor\n"
        " *            (p - lr u if one is 0). The norms come first: a pass over p, m and v more\n"
        " *            than adamw has\n"
        " * b1, b2 and eps are beta1, beta2 and eps of the model table's .hyper; decay is\n"
        " * .weight_decay for parameters marked .decay, else 0.\n",
    },
    [OPT_ADAFACTOR] = {
        "rt_update_adafactor",
        " *   adafactor  running means of g^2 of a matrix by row r and column c, of a vector v:\n"
        " *            w = t^beta2-decay;  r += w (mean g^2 - r);  c alike;  v += w (g^2 - v);\n"
        " *            V = r c' / max(mean r, eps1) or v;  u = g / sqrt(max(V, eps1^2));\n"
        " *            p = p - lr decay p - alpha / max(1, rms(u) / d) u\n"
        " *            with alpha = max(eps2, rms(p)) min(lr, 1 / sqrt(t)), in update t. V is not\n"
        " *            stored: d_p is read four times (rows, columns, rms(u), update), p twice\n"
        " * beta2-decay, eps1 (0: that of the type), eps2 and d are those of the model table's\n"
        " * .hyper; decay is .weight_decay for parameters marked .decay, else 0.\n",
    },
    [OPT_MUON] = {
        "rt_update_muon",
        " *   muon     of a matrix of role weight, but for those marked .excepted:\n"
        " *            m = m + (1 - momentum) (g - m);  u = g + momentum (m - g), or m;\n"
        " *            X = u / |u|;  5 times  X = 3.4445 X - 4.775 A X + 2.0315 A A X,  A = X X';\n"
        " *            p = p - lr decay p - lr s X,  s = sqrt(max(1, rows / columns)), or, where\n"
        " *            .match_rms says so, 0.2 sqrt(max(rows, columns))\n"
        " *   adamw    of all else, adamw-factor lr being lr:  m = b1 m + (1 - b1) g;\n"
        " *            v = b2 v + (1 - b2) g^2;  p = p - lr decay p\n"
        " *            - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), in update t\n"
        " * momentum, adamw-factor, b1, b2, eps are those of the model table's .hyper; decay is\n"
        " * .weight_decay for parameters marked .decay, else 0.\n",
    },
};

/* How the step decides on the rate, and what else an update does. */
static const char *update_prose(Emitter *e, const TrainSettings *train)
{
    Text t = text_new(e->cx->scratch);
    if (train->optimizer == OPT_MUON)
        text_add(&t, "The products take %.3g FLOP per update and work in the arena. ",
                 program_update_flops(e->p, program_training_dims(e->p)));
    if (train->updates.len)
        text_put(&t, "Groups of parameters have their own factor of lr, and decay. ");
    if (program_has_halves(e->p))
        text_put(&t, "Parameters from P_HALVES on are widened for that, and rounded at random "
                     "behind it. ");
    if (train->ema > 0)
        text_put(&t, "The average of the weights follows each update: e = d e + (1 - d) p, where d "
                     "grows to .ema. ");
    text_put(&t, c_schedule_prose(e));
    return t.at;
}

/* "run->p"; in C++ a void * needs a cast: "(const float *)run->p" */
static const char *of_run(Emitter *e, const char *type, const char *field)
{
    return e->cuda ? emit_format(e, "(%s *)run->%s", type, field)
                   : emit_format(e, "run->%s", field);
}

static void write_call(Emitter *e, Text *t, int indent, const Routine *r, const char *part)
{
    const FunctionHead *h = function_head(e, r, part);
    Arena *a = e->cx->scratch;
    VEC(const char *) w = { 0 };
    if (h->p)
        vec_push(a, &w, of_run(e, emit_format(e, "const %s", e->real), "p"));
    if (h->p16)
        vec_push(a, &w, of_run(e, emit_format(e, "const %s", c_type(e, e->p->narrow)), "p16"));
    if (h->d_p)
        vec_push(a, &w, of_run(e, e->real, "d_p"));
    for (int i = 0; i < e->p->inputs.len; i++)
        if (h->input[i])
            vec_push(a, &w, e->input[i]);
    for (int i = 0; i < e->p->outputs.len; i++)
        if (h->output[i])
            vec_push(a, &w,
                     of_run(e, c_type(e, e->p->outputs.at[i].type->dtype),
                            emit_format(e, "outputs[%d]", i)));
    if (h->arena)
        vec_push(a, &w, "run->arena");
    if (h->s)
        vec_push(a, &w, "s");
    if (h->n)
        vec_push(a, &w, "n");
    if (h->stream)
        vec_push(a, &w, "run->stream");
    emit_call(t, indent, arena_printf(a, "%s_%s(", e->model, part), w.at, w.len, ");\n");
}

/* The sizes and inputs that the calls need, as locals. */
static void write_locals(Emitter *e, Text *t, int indent, const FunctionHead *const *head, int n)
{
    bool sizes = false;
    for (int k = 0; k < n; k++)
        sizes = sizes || head[k]->n;
    if (sizes)
        text_add(t, "%*sconst Dims n = %s_dims(run->dims);\n", indent, "", e->model);
    for (int i = 0; i < e->p->inputs.len; i++) {
        bool used = false;
        for (int k = 0; k < n; k++)
            used = used || head[k]->input[i];
        if (used)
            text_add(t, "%*sconst %s *%s = %s;\n", indent, "",
                     c_type(e, e->p->inputs.at[i].type->dtype), e->input[i],
                     of_run(e,
                            emit_format(e, "const %s", c_type(e, e->p->inputs.at[i].type->dtype)),
                            emit_format(e, "inputs[%d]", i)));
    }
}

/* struct Dims from the runtime's array, in the order of the table. */
static void write_dims(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    int n = 0;
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        if (s->kind == SYM_DIM || s->kind == SYM_BATCH)
            text_add(&t, "%s .%s = dims[%d]", n ? "," : "", e->symbol[i], n), n++;
    }
    if (n == 0)
        text_put(&t, " .none = 0");
    text_add(e->out, "static Dims %s_dims(const ptrdiff_t *dims)\n{\n", e->model);
    const char *sizes = emit_format(e, "%s{%s }", c_literal(e, "Dims"), t.at);
    for (int i = 0; i < dims_count(e->p->dims); i++) /* at the start, all are those of part 0 */
        if (dims_at(e->p->dims, i)->kind == SYM_PART)
            sizes = emit_format(e, "%s(%s, 0)", c_part_function(e, dims_at(e->p->dims, i)), sizes);
    text_add(e->out, "%s    return %s;\n}\n\n", n ? "" : "    RT_UNUSED(dims);\n", sizes);
}

static void write_step(Emitter *e)
{
    const TrainSettings *train = &e->p->train;
    const FunctionHead *count = function_head(e, e->kp->count, "count");
    const FunctionHead *head[2] = { function_head(e, e->kp->train, "forward"),
                                    function_head(e, e->kp->train, "backward") };
    Text lines = text_new(e->cx->scratch);
    text_put(&lines,
             "    rt_begin_step(run, s);\t/* sums and counts 0, add = false; random key, lr */\n");
    text_put(&lines, "    for (int micro = 0; micro < run->micro_steps; micro++) {\n"
                     "        rt_begin_micro(run, s, micro);\t/* sizes, inputs, first sample */\n");
    write_locals(e, &lines, 8, &count, 1);
    write_call(e, &lines, 8, e->kp->count, "count");
    text_put(&lines, "    }\n    rt_seed_losses(run, s);");
    text_put(&lines, e->p->narrow == DT_F16
                         ? "\t/* weight / count * loss scale; 0 if the count is 0 */\n\n"
                         : "\t/* weight / count of the update; 0 if the count is 0 */\n\n");
    text_put(&lines, "    for (int micro = 0; micro < run->micro_steps; micro++) {\n"
                     "        rt_begin_micro(run, s, micro);\n");
    write_locals(e, &lines, 8, head, head[1] ? 2 : 1);
    if (e->cuda)
        text_put(&lines,
                 "        while (rt_graph_begin(run, s)) {\t/* recorded once, then launched */\n");
    write_call(e, &lines, e->cuda ? 12 : 8, e->kp->train, "forward");
    if (head[1])
        write_call(e, &lines, e->cuda ? 12 : 8, e->kp->train, "backward");
    if (e->cuda)
        text_put(&lines, "            rt_graph_end(run, s);\n        }\n");
    text_put(&lines,
             "        s->add = true;\t/* later micro-steps add */\n    }\n"
             "    rt_reduce_gradients(run, s);\t/* sum over ranks */\n"
             "    rt_finite_and_norm(run, s);\t/* are all finite? norm of all as one vector */\n");
    if (train->clip_value > 0)
        text_put(
            &lines,
            "    rt_clip_value(run, s);\t/* elements to -clip_value..clip_value; norm anew */\n");
    if (train->clip > 0)
        text_put(&lines, "    rt_clip(run, s);\t/* factor = min(1, clip / norm) */\n");
    if (train->optimizer == OPT_RULE)
        text_add(&lines,
                 "    rt_update(run, s, %s_update);\t/* of all parameters, if all is finite */\n",
                 e->model);
    else
        text_add(&lines, "    %s(run, s);\t/* as above, if all is finite */\n",
                 tensorwise[train->optimizer].call);
    text_put(&lines, "    rt_end_step(run, s);\t/* counters: updates applied, or skipped */\n");
    const char *first = "Counts come first, since gradients are divided by those of the whole "
                        "update.";
    if (train->optimizer != OPT_RULE) {
        emit_prose(e->out, "/* ", " * ",
                   emit_format(e, "%s The update itself, with g = factor%s * d_p:\n", first,
                               e->p->narrow == DT_F16 ? " / scale" : ""));
        text_put(e->out, tensorwise[train->optimizer].formula);
        emit_prose(e->out, " * ", " * ", emit_format(e, "%s */\n", update_prose(e, train)));
    } else {
        emit_prose(e->out, "/* ", " * ",
                   emit_format(e, "%s %s */\n", first, update_prose(e, train)));
    }
    text_add(e->out, "static void %s_step(RtRun *run, RtStep *s)\n{\n", e->model);
    emit_aligned(e->out, lines.at, 48);
    text_put(e->out, "}\n\n");
}

static void write_adapter(Emitter *e, const char *name, const Routine *r, const char *part,
                          bool count)
{
    const FunctionHead *head[2] = { function_head(e, r, part), NULL };
    Text t = text_new(e->cx->scratch);
    if (count)
        head[1] = function_head(e, e->kp->count, "count");
    write_locals(e, &t, INDENT, head, head[1] ? 2 : 1);
    if (head[1])
        write_call(e, &t, INDENT, e->kp->count, "count");
    write_call(e, &t, INDENT, r, part);
    text_add(e->out, "static void %s_%s(RtRun *run, RtStep *s)\n{\n", e->model, name);
    if (!strstr(t.at, "run->"))
        text_put(e->out, "    RT_UNUSED(run);\n");
    if (!head[0]->s && !(head[1] && head[1]->s))
        text_put(e->out, "    RT_UNUSED(s);\n");
    text_add(e->out, "%s}\n\n", t.at);
}

void c_step(Emitter *e)
{
    emit_banner(e, 7, "step: one update of the parameters");
    write_dims(e);
    if (e->kp->train) {
        c_rate(e);
        e->language->rule(e);
        write_step(e);
    }
    if (e->kp->eval)
        write_adapter(e, "run_evaluate", e->kp->eval, "evaluate", e->p->means.len > 0);
    if (e->kp->output)
        write_adapter(e, "run_outputs", e->kp->output, "outputs", false);
}
