/* cu_rule.c -- the update of the parameters in section 7 of the CUDA target: one launch for all.
 *
 * In: the optimizer's rule. Out: a comment with its statements and the launch; a __global__
 * function whose blocks have a part of the flat buffer each, and whose threads read and write p,
 * the states and the 16-bit copy once, four elements at a time (rule.c has the loop's body); the
 * function that launches it.
 */
#include "emit/cu.h"
#include "emit/rule.h"

#include <string.h>

static const char launch[] =
    "grid u->n_parts, block RT_UPDATE_THREADS: a block per part, at most RT_UPDATE_PART elements "
    "with the same numbers, which its thread 0 computes; a thread has 4 elements of every "
    "RT_UPDATE_STRIDE";

/* The constants of this type, as the format has each; how many. */
static int constants(RuleWriter *w, const char *type, const char *format, const char **one)
{
    int n = 0;
    for (int i = 0; i < w->constants.len; i++)
        if (strcmp(w->constants.at[i].type, type) == 0)
            one[n++] = emit_format(w->e, format, w->constants.at[i].name, w->constants.at[i].name);
    return n;
}

/* The numbers of the block's part: by one thread, through shared memory, to all. */
static void write_numbers(RuleWriter *w)
{
    Emitter *e = w->e;
    const char **one = NEW_ARRAY(e->cx->scratch, const char *, w->constants.len + 1);
    if (w->constants.len == 0)
        return;
    const char *const type[] = { e->real, "bool" };
    text_put(e->out, "    __shared__ struct {\n");
    for (int k = 0; k < 2; k++)
        rule_declare(w, 2 * INDENT, type[k], one, constants(w, type[k], "%s", one));
    text_put(e->out, "    } now;\n    if (threadIdx.x == 0) {\n");
    rule_numbers(w, 2 * INDENT);
    text_add(e->out, "%s    }\n    __syncthreads();\n", w->numbers.at);
    for (int k = 0; k < 2; k++)
        rule_declare(w, INDENT, emit_format(e, "const %s", type[k]), one,
                     constants(w, type[k], "%s = now.%s", one));
}

/* A line per buffer that a thread reads, and per buffer that it writes. */
static void write_takes(RuleWriter *w)
{
    Emitter *e = w->e;
    Text t = text_new(e->cx->scratch);
    text_add(&t, "%s %s[4]", e->real, w->number[RULE_P]);
    for (int i = 0; i < w->n_states; i++)
        text_add(&t, ", %s[4]", w->number[RULE_STATES + i]);
    text_put(&t, rule_has_gradient(w) ? ", d_p[4];" : ";");
    emit_statement(e->out, 2 * INDENT, t.at);
    text_add(e->out,
             program_has_halves(e->p) ? "        rt_take_widened(%s, u, q, i);\n"
                                      : "        rt_take(%s, u.p, q, i);\n",
             w->number[RULE_P]);
    for (int i = 0; i < w->n_states; i++)
        if (map_get(w->uses, w->rule->graph->args.at[RULE_STATES + i]))
            text_add(e->out, "        rt_take(%s, u.state[%d], q, i);\n",
                     w->number[RULE_STATES + i], i);
    if (rule_has_gradient(w))
        text_put(e->out, "        rt_take(d_p, u.d_p, q, i);\n");
}

static void write_puts(RuleWriter *w)
{
    Emitter *e = w->e;
    const char *p = w->number[RULE_P];
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < w->n_states; i++)
        text_add(&t, "        rt_put(u.state[%d], q, i, %s);\n", i, w->number[RULE_STATES + i]);
    if (program_has_halves(e->p))
        text_add(&t, "        rt_put_rounded(u, q, i, %s);\t/* at random, in 16 bits */\n", p);
    else
        text_add(&t, "        rt_put(u.p, q, i, %s);\n", p);
    if (rule_copies(w))
        text_add(&t, "        rt_put_%s(u.copy, q, i, %s);\t/* what products read */\n",
                 dtype_name(e->p->narrow), p);
    text_add(&t, "        rt_put_average(u, q, i, %s);\t/* where one is kept */\n", p);
    emit_aligned(e->out, t.at, 40);
}

void cu_rule(Emitter *e)
{
    if (!e->p->train.rule.graph)
        return;
    const char *kernel = names_take(e, e->file, emit_format(e, "g_%s_update", e->model));
    RuleWriter w = rule_new(e, true);
    rule_body(&w);
    if (rule_has_gradient(&w)) {
        const RuleConstant factor = { e->real, "factor" };
        vec_push(e->cx->scratch, &w.constants, factor);
        text_add(&w.numbers, "        now.factor = %srt_update_factor(u.s);\n",
                 e->p->real == DT_F64 ? "" : "(float)");
    }
    rule_comment(&w, launch);
    text_add(
        e->out,
        "static __global__ void __launch_bounds__(RT_UPDATE_THREADS) %s(const RtUpdates u)\n{\n"
        "    const RtPart q = u.part[blockIdx.x];\n"
        "    if (!u.s->finite)\n        return;\n",
        kernel);
    write_numbers(&w);
    text_put(e->out, "    for (ptrdiff_t i = rt_update_first(q); i < q.to; "
                     "i += RT_UPDATE_STRIDE) {\n");
    write_takes(&w);
    text_add(e->out, "        for (int k = 0; k < 4; k++) {\n%s        }\n", w.body.at);
    write_puts(&w);
    text_put(e->out, "    }\n}\n\n");
    text_add(e->out, "static void %s_update(const RtUpdates *u, RtStream *stream)\n{\n", e->model);
    emit_statement(e->out, INDENT,
                   emit_format(e,
                               "RT_LAUNCH(stream, %s, %s, u->n_parts, RT_UPDATE_THREADS, 0, *u);",
                               emit_string(e, source_where(e->cx, e->p->train.span)), kernel));
    text_put(e->out, "}\n\n");
    e->shared = NULL;
}
