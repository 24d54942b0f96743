/* c_alive.c -- section 8: what the arena holds in the fullest step of an update.
 *
 * In: the planned routine of training. Out: a function that gives bytes by line of the model at any
 * dims, for the report that the program prints before step 0. The one idea: which step is the
 * fullest is found at the training dims, as the places are; the bytes are formulas.
 */
#include "emit/parts.h"

enum { NAMES_WIDTH = 40 };

/* "RT_SIZE(a) + RT_SIZE(b)", alike ones once with their number before them */
static const char *sum_of(Emitter *e, DimScope *s, const AliveLine *line)
{
    Arena *a = e->cx->scratch;
    const char **size = NEW_ARRAY(a, const char *, line->n_places + 1);
    int *times = NEW_ARRAY(a, int, line->n_places + 1), n = 0;
    for (int i = 0; i < line->n_places; i++) {
        const char *one = intern(e->cx, c_place_size(e, s, line->place[i]));
        int k = 0;
        while (k < n && size[k] != one)
            k++;
        size[k] = one;
        times[k]++;
        n += k == n;
    }
    Text t = text_new(a);
    for (int k = 0; k < n; k++) {
        text_put(&t, k ? " + " : "");
        if (times[k] > 1)
            text_add(&t, "%d*", times[k]);
        text_put(&t, size[k]);
    }
    return t.at;
}

Fullest c_alive(Emitter *e)
{
    AliveLine *line = NULL;
    const Step *step = NULL;
    DimScope s = dim_scope(e, "n.");
    Text body = text_new(e->cx->scratch);
    const int n = explain_alive(e, &line, &step);
    bool any = false;
    for (int i = 0; i < n; i++) {
        text_add(&body, "    row[%d] = %s{ %s, %s, 0 };\n", i, c_literal(e, "RtAlive"),
                 emit_string(e, line[i].where),
                 emit_string(e, emit_comment(e, line[i].names, NAMES_WIDTH)));
        emit_statement(&body, INDENT,
                       emit_format(e, "row[%d].bytes = %s;", i, sum_of(e, &s, &line[i])));
    }
    for (int i = 0; i < dims_count(e->p->dims); i++)
        any = any || s.used[i];
    if (n == 0)
        return (Fullest){ 0, 0 };
    emit_prose(e->out, "/* ", " * ",
               emit_format(
                   e, "What the arena holds%s, where it is fullest%s%s, by line of the model. */\n",
                   step ? emit_format(e, " in step %d", step->number) : "",
                   c_training_dims(e)[0] ? " at " : "", c_training_dims(e)));
    text_add(e->out, "static void %s_alive(const ptrdiff_t *dims, RtAlive *row)\n{\n", e->model);
    if (any)
        text_add(e->out, "    const Dims n = %s_dims(dims);\n", e->model);
    else
        text_put(e->out, "    RT_UNUSED(dims);\n");
    text_add(e->out, "%s}\n\n", body.at);
    return (Fullest){ n, step ? step->number : 0 };
}
