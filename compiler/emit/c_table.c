/* c_table.c -- section 8: the model table that the runtime reads, and main.
 *
 * In: inputs, outputs, means, metrics, train settings. Out: one static array per kind, small
 * functions for whatever depends on run-time dims, and the RtModel that holds them all.
 */
#include "emit/parts.h"
#include "op/op.h"

#include <math.h>
#include <string.h>

static const char *where(Emitter *e, Span at)
{
    return emit_string(e, at.file ? source_where(e->cx, at) : "");
}

static const char *rt_type(DType t)
{
    return t == DT_F64 ? "RT_F64" : t == DT_F32 ? "RT_F32" : "RT_I32";
}

static void open_table(Emitter *e, const char *type, const char *name)
{
    text_add(e->out, "static const %s %s_%s[] = {\n", type, e->model, name);
}

static bool is_runtime(const Symbol *s) { return s->kind == SYM_DIM || s->kind == SYM_BATCH; }

/* ---- static tables --------------------------------------------------------------------------- */

static int write_dims(Emitter *e)
{
    int n = 0;
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        if (!is_runtime(s))
            continue;
        if (n++ == 0)
            open_table(e, "RtDim", "sizes");
        text_add(e->out, "    { .name = %s, .batch = %s, .value = %lld, .where = %s },\n",
                 emit_string(e, s->name), s->kind == SYM_BATCH ? "true" : "false",
                 (long long)s->value, where(e, s->span));
    }
    text_put(e->out, n ? "};\n\n" : "");
    return n;
}

static void write_inputs(Emitter *e)
{
    DimScope s = dim_scope(e, "");
    if (e->p->inputs.len == 0)
        return;
    open_table(e, "RtInput", "inputs");
    for (int i = 0; i < e->p->inputs.len; i++) {
        const Input *in = &e->p->inputs.at[i];
        int64_t literal;
        Text t = text_new(e->cx->scratch);
        text_add(&t, "{ .name = %s, .type = %s, .rank = %d,", emit_string(e, in->name),
                 rt_type(in->type->dtype), in->type->rank);
        if (in->ranged) {
            text_add(&t, " .ranged = true, .lo = %s, .hi = %s,", dim_c(&s, in->lo),
                     dim_c(&s, in->hi));
            if (!dim_literal(in->hi, &literal))
                text_add(&t, " .hi_name = %s,", emit_string(e, dim_text(e->cx, in->hi)));
        }
        if (in->has_ignore)
            text_add(&t, " .has_ignore = true, .ignore = %lld,", (long long)in->ignore);
        text_add(&t, " .where = %s },", where(e, in->span));
        emit_statement(e->out, INDENT, t.at);
    }
    text_put(e->out, "};\n\n");
}

/* Bit i: the output depends on input i. A loop depends on all that goes into it. */
static uint64_t needs_of(Emitter *e, int output)
{
    const Graph *g = e->kp->output ? e->kp->output->graph : NULL;
    uint64_t needs = 0;
    if (g == NULL)
        return 0;
    uint64_t *of = NEW_ARRAY(e->cx->scratch, uint64_t, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (n->op == OP_INPUT && n->attr.index < 64)
            of[i] = UINT64_C(1) << n->attr.index;
        for (int k = 0; k < n->n_in; k++)
            of[i] |= of[n->in[k]->id];
    }
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_OUTPUT && g->sinks.at[i].index == output)
            needs |= of[g->sinks.at[i].node->id];
    return needs;
}

static void write_outputs(Emitter *e)
{
    if (e->p->outputs.len == 0)
        return;
    open_table(e, "RtOutput", "output_table");
    for (int i = 0; i < e->p->outputs.len; i++)
        text_add(e->out, "    { .name = %s, .rank = %d, .needs = 0x%llx, .where = %s },\n",
                 emit_string(e, e->p->outputs.at[i].name), e->p->outputs.at[i].type->rank,
                 (unsigned long long)needs_of(e, i), where(e, e->p->outputs.at[i].span));
    text_put(e->out, "};\n\n");
}

/* Text as literals with so many characters each, `between` them. */
static const char *literals(Emitter *e, const char *text, size_t room, const char *between)
{
    Text t = text_new(e->cx->scratch);
    while (strlen(text) > room) {
        size_t len = room;
        while (len > 1 && text[len - 1] != ' ')
            len--;
        len = len > 1 ? len : room;
        text_add(&t, "%s%s", emit_string(e, emit_format(e, "%.*s", (int)len, text)), between);
        text += len;
    }
    text_put(&t, emit_string(e, text));
    return t.at;
}

static void write_means(Emitter *e)
{
    if (e->p->means.len > 0) {
        open_table(e, "RtSlot", "means");
        for (int i = 0; i < e->p->means.len; i++) {
            const MeanSlot *m = &e->p->means.at[i];
            const char *name = emit_string(e, m->name), *text = m->text ? m->text : m->name;
            const bool beside = strlen(name) + strlen(text) < 70;
            text_add(e->out, "    { .name = %s,%s.text = %s,\n      .weight = %s, .where = %s },\n",
                     name, beside ? " " : "\n      ", literals(e, text, 80, "\n              "),
                     emit_number(e, m->weight), where(e, m->span));
        }
        text_put(e->out, "};\n\n");
    }
    if (e->p->metrics.len > 0) {
        open_table(e, "RtMetric", "metrics");
        for (int i = 0; i < e->p->metrics.len; i++)
            text_add(e->out, "    { .name = %s, .where = %s },\n",
                     emit_string(e, e->p->metrics.at[i].name), where(e, e->p->metrics.at[i].span));
        text_put(e->out, "};\n\n");
    }
}

static const char *const optimizer_name[] = { "RT_RULE", "RT_LAMB", "RT_ADAFACTOR", "RT_MUON" };

static void write_objectives(Emitter *e)
{
    const char *loss = "loss";
    Span at = e->p->train.span;
    for (int i = e->p->means.len - 1; i >= 0; i--)
        if (e->p->means.at[i].weight != 0) {
            loss = e->p->means.at[i].name;
            at = e->p->means.at[i].span;
        }
    open_table(e, "RtObjective", "objectives");
    emit_statement(
        e->out, INDENT,
        emit_format(e, "{ .loss = %s, .from = 0, .to = P_COUNT, .optimizer = %s, .where = %s },",
                    emit_string(e, loss), optimizer_name[e->p->train.optimizer], where(e, at)));
    text_put(e->out, "};\n\n");
}

static void write_maps(Emitter *e)
{
    static const char *const kind[] = { "RT_MAP_WINDOW", "RT_MAP_COL", "RT_MAP_COLS" };
    if (e->p->train.data.maps.len == 0)
        return;
    open_table(e, "RtMap", "maps");
    for (int i = 0; i < e->p->train.data.maps.len; i++) {
        const DataMap *m = &e->p->train.data.maps.at[i];
        text_add(e->out, "    { .input = %d, .kind = %s, .column = %s, .where = %s },\n", m->input,
                 kind[m->kind], emit_string(e, m->column), where(e, m->span));
    }
    text_put(e->out, "};\n\n");
}

/* ---- functions of the dims ----------------------------------------------------------------- */

static void open_function(Emitter *e, const char *head, bool uses_dims)
{
    text_add(e->out, head, e->model);
    if (uses_dims)
        text_add(e->out, "    const Dims n = %s_dims(dims);\n", e->model);
    else
        text_put(e->out, "    RT_UNUSED(dims);\n");
}

static bool write_check(Emitter *e)
{
    static const char *const rel[] = { "<=", "<", ">=", ">", "==" };
    DimScope s = dim_scope(e, "n.");
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < e->p->constraints.len; i++) {
        const Constraint *c = &e->p->constraints.at[i];
        int64_t left, right;
        if (dim_value(c->left, &left) && dim_value(c->right, &right))
            continue; /* decided when the model was checked */
        text_put(&t, "    if (!(");
        if (c->rel == REL_DIVIDES)
            text_add(&t, "%s %% %s == 0", dim_c_divisor(&s, c->left), dim_c_divisor(&s, c->right));
        else
            text_add(&t, "%s %s %s", dim_c(&s, c->left), rel[c->rel], dim_c(&s, c->right));
        text_add(&t, "))\n        return %s;\n",
                 emit_string(e, emit_format(e, "%s (%s)", c->text,
                                            c->span.file ? source_where(e->cx, c->span) : "")));
    }
    if (t.len == 0)
        return false;
    open_function(e, "static const char *%s_check_dims(const ptrdiff_t *dims)\n{\n",
                  dim_any_used(&s));
    text_add(e->out, "%s    return NULL;\n}\n\n", t.at);
    return true;
}

/* One case per tensor: its sizes. */
typedef const Type *(*TypeAt)(Emitter *e, int i);

static void write_shapes(Emitter *e, const char *name, int n, TypeAt type_at)
{
    DimScope s = dim_scope(e, "n.");
    Text t = text_new(e->cx->scratch);
    if (n == 0)
        return;
    for (int i = 0; i < n; i++) {
        const Type *type = type_at(e, i);
        text_add(&t, "    case %d:\n", i);
        for (int k = 0; k < type->rank; k++)
            text_add(&t, "        shape[%d] = %s;\n", k, dim_c(&s, type->dim[k]));
        text_put(&t, "        break;\n");
    }
    open_function(e,
                  emit_format(e,
                              "static void %%s_%s_shape(const ptrdiff_t *dims, "
                              "int %s, ptrdiff_t *shape)\n{\n",
                              name, name),
                  dim_any_used(&s));
    text_add(e->out, "    switch (%s) {\n%s    default:\n        break;\n    }\n}\n\n", name, t.at);
}

static const Type *input_type(Emitter *e, int i) { return e->p->inputs.at[i].type; }
static const Type *output_type(Emitter *e, int i) { return e->p->outputs.at[i].type; }

static void write_ranges(Emitter *e)
{
    DimScope s = dim_scope(e, "n.");
    Text t = text_new(e->cx->scratch);
    if (e->p->train.data.maps.len == 0)
        return;
    for (int i = 0; i < e->p->train.data.maps.len; i++) {
        const DataMap *m = &e->p->train.data.maps.at[i];
        text_add(&t, "    case %d:\n        *lo = %s;\n        *hi = %s;\n        break;\n", i,
                 m->lo ? dim_c(&s, m->lo) : "0", m->hi ? dim_c(&s, m->hi) : "0");
    }
    open_function(e,
                  "static void %s_map_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, "
                  "ptrdiff_t *hi)\n{\n",
                  dim_any_used(&s));
    text_add(e->out, "    switch (map) {\n%s    default:\n        break;\n    }\n}\n\n", t.at);
}

const char *const c_entry_name[] = {
    "RT_ENTRY_TRAIN",
    "RT_ENTRY_EVAL",
    "RT_ENTRY_OUTPUT",
    "RT_ENTRY_COUNT",
};

static void write_arena(Emitter *e)
{
    const Routine *const routine[] = { e->kp->train, e->kp->eval, e->kp->output, e->kp->count };
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < 4; i++)
        if (routine[i] && routine_has_arena(routine[i]))
            text_add(&t, "    if (entry == %s)\n        return %s(n).%s;\n", c_entry_name[i],
                     routine_plan_function(e, routine[i]),
                     i == 2 && routine_is_part(e, routine[i]) ? "outputs" : "bytes");
    open_function(e, "static size_t %s_arena_bytes(const ptrdiff_t *dims, RtEntry entry)\n{\n",
                  t.len > 0);
    text_add(e->out, "%s%s    return 0;\n}\n\n", t.len ? "" : "    RT_UNUSED(entry);\n", t.at);
}

/* ---- formulas of numbers: metrics, rates --------------------------------------------------- */

/* Whole numbers are doubles too, so a cast to them drops what is behind the point. */
static Code scalar_cast(Emitter *e, const char *what, const Node *n)
{
    const DType from = n->in[0]->types[0]->dtype, to = n->types[0]->dtype;
    const Code in = code_scalar(e, what, n->in[0]);
    if (from == DT_BOOL || to == DT_BOOL)
        return code_cast(e, in, from, to == DT_BOOL ? DT_BOOL : DT_F64);
    return dtype_is_real(from) && to == DT_I32 ? code_plain(emit_format(e, "trunc(%s)", in.text))
                                               : in;
}

Code code_scalar(Emitter *e, const char *what, const Node *n)
{
    Code in[4];
    int64_t v;
    const char *name = e->shared ? map_get(e->shared, n) : NULL;
    if (name)
        return code_plain(name);
    switch (n->op) {
    case OP_CONST: return code_literal(e, n->attr.value, DT_F64);
    case OP_MEAN: return code_plain(emit_format(e, "mean[S_%s]", e->slot[n->attr.index]));
    case OP_ARG: return code_plain(e->arg[n->attr.index]);
    case OP_DIM:
        if (!dim_value(n->attr.dim, &v)) {
            diag_error(e->cx, n->span, "%s uses the dim %s, which is bound when the program starts",
                       what, dim_text(e->cx, n->attr.dim));
            return code_literal(e, 0, DT_F64);
        }
        return code_literal(e, (double)v, DT_F64);
    case OP_CAST: return scalar_cast(e, what, n);
    default:
        if (!op_is(n, CLASS_POINT) || n->n_in > 4)
            bug("%s: op %s in a formula", what, op_row(n->op)->name);
        for (int i = 0; i < n->n_in; i++)
            in[i] = code_scalar(e, what, n->in[i]);
        return code_point(e, n->op, in, n->n_in);
    }
}

static void write_metric_values(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    if (e->p->metrics.len == 0)
        return;
    for (int i = 0; i < e->p->metrics.len; i++) {
        const Metric *m = &e->p->metrics.at[i];
        const Node *n = NULL;
        for (int k = 0; m->formula && k < m->formula->sinks.len; k++)
            if (m->formula->sinks.at[k].kind == SINK_RESULT)
                n = m->formula->sinks.at[k].node;
        if (n == NULL)
            bug("metric %s has no formula", m->name);
        const char *what = emit_format(e, "metric %s", m->name);
        Text line = text_new(e->cx->scratch);
        emit_statement(&line, INDENT,
                       emit_format(e, "value[%d] = %s;", i, code_scalar(e, what, n).text));
        line.at[--line.len] = '\0';
        text_add(&t, "%s\t/* %s */\n", line.at, emit_comment(e, m->name, 40));
    }
    text_add(e->out, "static void %s_metric_values(const double *mean, double *value)\n{\n",
             e->model);
    if (strstr(t.at, "mean[") == NULL)
        text_put(e->out, "    RT_UNUSED(mean);\n");
    emit_aligned(e->out, t.at, 40);
    text_put(e->out, "}\n\n");
}

/* ---- the model ----------------------------------------------------------------------------- */

/* The optimizer's numbers, and what they may be. */
static void write_hypers(Emitter *e)
{
    const TrainSettings *t = &e->p->train;
    if (t->hypers.len == 0)
        return;
    text_put(e->out, "        .hyper = {\n");
    for (int i = 0; i < t->hypers.len; i++) {
        const Hyper *h = &t->hypers.at[i];
        text_add(e->out, "            { .name = %s, .value = %s, .lo = %s, .hi = %s },\n",
                 emit_string(e, h->name), emit_number(e, h->value), emit_number(e, h->lo),
                 emit_number(e, h->hi));
    }
    text_add(e->out, "        },\n        .n_hypers = %d,\n", t->hypers.len);
}

/* The optimizer's flat buffers. */
static void write_states(Emitter *e)
{
    const TrainSettings *t = &e->p->train;
    Text names = text_new(e->cx->scratch);
    for (int i = 0; i < t->states.len; i++)
        text_add(&names, "%s %s", i ? "," : "", emit_string(e, t->states.at[i]));
    if (t->states.len)
        text_add(e->out, "        .states = {%s }, .n_states = %d,\n", names.at, t->states.len);
}

/* What is set of it; the rest are the runtime's defaults. */
static void write_nonfinite(Emitter *e)
{
    const NonfiniteSettings *n = &e->p->train.nonfinite;
    Text *o = e->out;
    if (n->policy)
        text_add(o, "        .nonfinite = %s,\n", emit_string(e, n->policy));
    if (n->max_skips > 0)
        text_add(o, "        .max_skips = %lld,\n", (long long)n->max_skips);
    if (e->p->narrow != DT_F16)
        return;
    if (n->scale_set)
        text_add(o, "        .loss_scale = %s,\n", n->scale > 0 ? emit_number(e, n->scale) : "-1");
    if (n->interval > 0)
        text_add(o, "        .scale_interval = %lld,\n", (long long)n->interval);
    if (n->growth > 0)
        text_add(o, "        .scale_growth = %s,\n", emit_number(e, n->growth));
    if (n->backoff > 0)
        text_add(o, "        .scale_backoff = %s,\n", emit_number(e, n->backoff));
}

static void write_train(Emitter *e)
{
    const TrainSettings *t = &e->p->train;
    const DataSource *d = &t->data;
    Text *o = e->out;
    text_put(o, "    .train = {\n");
    text_put(o, t->present ? "        .present = true,\n" : "");
    text_add(o, "        .reader = %s, .path = %s, .val_path = %s,\n", emit_string(e, d->reader),
             emit_string(e, d->path), emit_string(e, d->val_path));
    text_add(o, "        .split = %s, .header = %s, .vocab = %s,\n", emit_number(e, d->split),
             d->header ? "true" : "false", emit_string(e, d->vocab));
    if (d->maps.len)
        text_add(o, "        .maps = %s_maps, .n_maps = %d,\n", e->model, d->maps.len);
    text_add(o, "        .batch = %lld, .accumulate = %lld,\n", (long long)t->batch,
             (long long)t->accumulate);
    text_add(o, "        .optimizer = %s,", optimizer_name[t->optimizer]);
    if (t->optimizer == OPT_RULE)
        text_add(o, " .rule = %s,", emit_string(e, t->rule.name));
    text_add(o, " .decays = %s, .weight_decay = %s,\n", t->decays ? "true" : "false",
             emit_number(e, t->weight_decay));
    write_states(e);
    if (t->optimizer == OPT_MUON)
        text_add(o, "        .nesterov = %s,%s\n", t->nesterov ? "true" : "false",
                 t->match_rms ? " .match_rms = true," : "");
    write_hypers(e);
    c_schedule_rows(e);
    if (t->ema > 0)
        text_add(o, "        .ema = %s,\n", emit_number(e, t->ema));
    write_nonfinite(e);
    if (t->clip_value > 0)
        text_add(o, "        .clip_value = %s,\n", emit_number(e, t->clip_value));
    text_add(o, "        .clip = %s, .steps = %lld, .eval_every = %lld, .save_every = %lld,\n",
             emit_number(e, t->clip), (long long)t->steps, (long long)t->eval_every,
             (long long)t->save_every);
    text_add(o, "        .log_every = %lld, .keep = %lld, .seed = %lluu, .out = %s,\n",
             (long long)t->log_every, (long long)t->keep, (unsigned long long)t->seed,
             emit_string(e, t->out));
    text_add(o, "        .where = %s,\n    },\n", where(e, t->span));
}

/* What recompute = blocks would leave of the arena, where that is less. */
static double blocks_share(const Emitter *e)
{
    const int64_t blocks = e->p->recompute.arena_blocks;
    const double share = e->kp->train && e->kp->train->arena_bytes > 0
                             ? (double)blocks / (double)e->kp->train->arena_bytes
                             : 1;
    return blocks > 0 && share < 0.95 ? round(share * 1000) / 1000 : 0;
}

/* A field that is a text: beside its name, or in as many literals as it has lines below. */
static void write_text(Emitter *e, const char *name, const char *text)
{
    const size_t room = COLUMNS - 2 * INDENT - 8;
    const bool fits = strlen(text) + strlen(name) + strlen(" = ,") <= room;
    text_add(e->out, "    %s =%s%s,\n", name, fits ? " " : "\n        ",
             literals(e, text, room, "\n        "));
}

/* What a GPU is asked for at start. */
static void write_code(Emitter *e)
{
    if (e->code.kernel)
        text_add(e->out, "    .code = (const void *)%s,\n", e->code.kernel);
    if (e->code.row_bytes > 0)
        text_add(e->out, "    .row_bytes = %s,\n    .row_where = %s,\n", e->code.bytes,
                 emit_string(e, e->code.where));
}

static void write_model(Emitter *e, int n_dims, bool check, bool rooms, bool steps, Fullest alive)
{
    const Source *s = source_of(e->cx, e->p->file);
    const Program *p = e->p;
    Text *o = e->out;
    const char *m = e->model, *base = s ? strrchr(s->path, '/') : NULL;
    text_put(o, e->cuda ? "} /* namespace */\n\n" : "");
    text_add(o, "%sconst RtModel %s = {\n    .name = %s,\n", e->cuda ? "extern \"C\" " : "", m,
             emit_string(e, p->name));
    text_add(o, "    .source = %s, .source_crc = 0x%08xu,\n",
             emit_string(e, base ? base + 1
                            : s  ? s->path
                                 : p->name),
             s ? (unsigned)crc32_of(s->text, s->len) : 0u);
    text_add(o, "    .real = %s,", rt_type(p->real));
    text_add(o,
             p->narrow == DT_BF16  ? " .compute = RT_BF16,\n"
             : p->narrow == DT_F16 ? " .compute = RT_F16,\n"
                                   : " .compute = %s,\n",
             rt_type(p->real));
    if (p->recompute.summary)
        write_text(e, ".recompute", p->recompute.summary);
    if (blocks_share(e) > 0)
        text_add(o, "    .blocks = %s,\n", emit_number(e, blocks_share(e)));
    if (n_dims)
        text_add(o, "    .dims = %s_sizes, .n_dims = %d,\n", m, n_dims);
    if (p->params.len)
        text_add(o, "    .params = %s_params, .n_params = %d, .n_elems = P_COUNT,\n", m,
                 p->params.len);
    if (program_has_halves(p))
        text_put(o, "    .n_halves = P_COUNT - P_HALVES,\n");
    if (p->train.updates.len)
        text_add(o, "    .groups = %s_groups, .n_groups = %d,\n", m, p->train.updates.len);
    if (p->inputs.len)
        text_add(o, "    .inputs = %s_inputs, .n_inputs = %d,\n", m, p->inputs.len);
    if (p->outputs.len)
        text_add(o, "    .outputs = %s_output_table, .n_outputs = %d,\n", m, p->outputs.len);
    if (p->means.len)
        text_add(o, "    .slots = %s_means, .n_slots = %d,\n", m, p->means.len);
    if (p->metrics.len)
        text_add(o, "    .metrics = %s_metrics, .n_metrics = %d,\n", m, p->metrics.len);
    if (e->kp->train)
        text_add(o, "    .objectives = %s_objectives, .n_objectives = 1,\n", m);
    if (steps)
        text_add(o, "    .steps = %s_steps, .n_steps = %d,\n", m, e->steps.len);
    write_train(e);
    if (check)
        text_add(o, "    .check_dims = %s_check_dims,\n", m);
    if (p->inputs.len)
        text_add(o, "    .input_shape = %s_input_shape,\n", m);
    if (p->outputs.len)
        text_add(o, "    .output_shape = %s_output_shape,\n", m);
    if (p->train.data.maps.len)
        text_add(o, "    .map_range = %s_map_range,\n", m);
    text_add(o, "    .arena_bytes = %s_arena_bytes,\n", m);
    if (rooms)
        text_add(o, "    .rooms = %s_rooms,\n", m);
    if (alive.lines)
        text_add(o, "    .alive = %s_alive, .n_alive = %d, .fullest = %d,\n", m, alive.lines,
                 alive.step);
    if (e->kp->train)
        text_add(o, "    .step = %s_step,\n", m);
    if (e->kp->eval)
        text_add(o, "    .evaluate = %s_run_evaluate,\n", m);
    if (e->kp->output)
        text_add(o, "    .forward = %s_run_outputs,\n", m);
    if (p->metrics.len)
        text_add(o, "    .metric_values = %s_metric_values,\n", m);
    write_code(e);
    text_put(o, "};\n");
}

void c_table(Emitter *e)
{
    emit_banner(e, 8, "model table");
    text_put(e->out,
             "/* What the runtime knows of the model: rt.h explains the fields of each table. "
             "*/\n\n");
    const int n_dims = write_dims(e);
    write_inputs(e);
    write_outputs(e);
    write_means(e);
    if (e->kp->train)
        write_objectives(e);
    write_maps(e);
    const bool check = write_check(e);
    write_shapes(e, "input", e->p->inputs.len, input_type);
    write_shapes(e, "output", e->p->outputs.len, output_type);
    write_ranges(e);
    write_arena(e);
    const bool rooms = c_rooms(e);
    write_metric_values(e);
    const bool steps = c_steps(e);
    const Fullest alive = c_alive(e);
    write_model(e, n_dims, check, rooms, steps, alive);
    text_add(e->out,
             "\n#ifndef RT_LIBRARY\nint main(int argc, char **argv)\n{\n"
             "    return rt_main(&%s, argc, argv);\n}\n#endif\n",
             e->model);
}
