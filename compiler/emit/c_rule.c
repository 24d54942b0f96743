/* c_rule.c -- the update of a piece of the parameters, in section 7 of the C target.
 *
 * In: the optimizer's rule. Out: a comment with its statements, and a function with one loop over
 * the piece that reads and writes p, the states and the 16-bit copy once (rule.c has its body).
 */
#include "emit/rule.h"

static void write_pointers(RuleWriter *w)
{
    Emitter *e = w->e;
    Text t = text_new(e->cx->scratch);
    text_add(&t, "%s *restrict %s = u->p", e->real, w->number[RULE_P]);
    for (int i = 0; i < w->n_states; i++)
        text_add(&t, ", *restrict %s = u->state[%d]", w->number[RULE_STATES + i], i);
    emit_statement(e->out, INDENT, emit_format(e, "%s;", t.at));
    if (rule_copies(w))
        text_add(e->out, "    %s *restrict copy = u->copy;\n", c_type(e, e->p->narrow));
    if (rule_has_gradient(w))
        text_add(e->out,
                 "    const %s *restrict d_p = u->d_p;\n    const %s factor = %su->factor;\n",
                 e->real, e->real, e->p->real == DT_F64 ? "" : "(float)");
}

void c_rule(Emitter *e)
{
    if (!e->p->train.rule.graph)
        return;
    RuleWriter w = rule_new(e, false);
    rule_body(&w);
    rule_comment(&w, "");
    text_add(e->out, "static void %s_update(const RtUpdate *u)\n{\n", e->model);
    rule_numbers(&w, INDENT);
    text_put(e->out, w.numbers.at);
    write_pointers(&w);
    text_add(e->out, "    RT_SIMD()\n    for (ptrdiff_t i = 0; i < u->n; i++) {\n%s    }\n}\n\n",
             w.body.at);
    e->shared = NULL;
}
