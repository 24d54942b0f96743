/* c_params.c -- section 2: offsets of the parameters in the flat buffer, and their table.
 *
 * In: parameters and groups. Out: an enum per stack with the offsets inside one repetition, one
 * enum for the flat buffer, and a row per parameter. Offsets are chained, so that a line can be
 * added or removed without touching the others.
 */
#include "emit/parts.h"

#include <math.h>
#include <string.h>

static const char how_to_read[] =
    "/* One flat buffer. A name is the path of declarations that leads to a parameter; layers\n"
    " * that the model's file does not show, such as linear and mlp, are those of prelude.model.\n"
    " * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */\n\n";

typedef struct {
    int param, group; /* one of them is -1 */
    bool half;
} Member;
typedef VEC(Member) Members;

/* The child of `parent` that holds group g; -1 if g is not inside it. */
static int child_of(const Program *p, int parent, int g)
{
    while (g >= 0 && p->groups.at[g].parent != parent)
        g = p->groups.at[g].parent;
    return g;
}

/* Those of one kind, in the order of declaration. */
static void add_members(Emitter *e, int group, bool half, Members *list)
{
    for (int i = 0; i < e->p->params.len; i++) {
        const int g = e->p->params.at[i].group;
        const int child = g == group ? -1 : child_of(e->p, group, g);
        if (e->p->params.at[i].half != half || (g != group && child < 0))
            continue;
        if (child >= 0 && list->len > 0 && list->at[list->len - 1].group == child)
            continue;
        vec_push(e->cx->scratch, list, ((Member){ child < 0 ? i : -1, child, half }));
    }
}

static Members members_of(Emitter *e, int group)
{
    Members list = { 0 };
    add_members(e, group, false, &list);
    add_members(e, group, true, &list);
    return list;
}

static const Dim *member_elems(Emitter *e, Member m)
{
    Dims *ds = e->p->dims;
    if (m.param >= 0)
        return type_elems(ds, e->p->params.at[m.param].type);
    const ParamGroup *g = &e->p->groups.at[m.group];
    return dim_mul(ds, g->count, dim_sym(ds, g->stride_sym));
}

const Dim *c_param_at(Emitter *e, int index)
{
    const Param *p = &e->p->params.at[index];
    const Dim *at = dim_const(e->p->dims, 0);
    int group = p->group, param = index, child = -1;
    for (;;) {
        const Members list = members_of(e, group);
        for (int i = 0; i < list.len; i++) {
            const Member m = list.at[i];
            if (m.half == p->half && (param >= 0 ? m.param == param : m.group == child))
                break;
            at = dim_add(e->p->dims, at, member_elems(e, m));
        }
        if (group < 0)
            return at;
        param = -1;
        child = group;
        group = e->p->groups.at[group].parent;
    }
}

static const char *member_size(Emitter *e, DimScope *s, Member m)
{
    return dim_c(s, member_elems(e, m));
}

static const char *member_shape(Emitter *e, Member m)
{
    return m.param >= 0
               ? emit_shape(e, e->p->params.at[m.param].type)
               : emit_format(e, "%s times", dim_text(e->cx, e->p->groups.at[m.group].count));
}

static void write_enum(Emitter *e, int group)
{
    DimScope s = dim_scope(e, "");
    const Members list = members_of(e, group);
    Text lines = text_new(e->cx->scratch);
    const char *end = "0";
    size_t width = 14;
    for (int i = 0; i < list.len; i++) {
        const size_t len = strlen(member_shape(e, list.at[i]));
        width = len > width ? len : width;
    }
    bool border = group < 0 && program_has_halves(e->p);
    for (int i = 0; i < list.len; i++)
        if (list.at[i].group >= 0)
            write_enum(e, list.at[i].group);
    if (group < 0)
        text_put(&lines, "enum {\t/* first element in the flat buffer */\n");
    else
        text_add(&lines, "enum {\t/* in one repetition of %s : %s * %s%s */\n",
                 e->p->groups.at[group].name, e->p->groups.at[group].layer,
                 dim_text(e->cx, e->p->groups.at[group].count),
                 e->p->groups.at[group].twin ? ", in 16 bits" : "");
    for (int i = 0; i < list.len; i++) {
        const Member m = list.at[i];
        if (border && m.half) {
            text_add(&lines, "    P_HALVES = %s,\t/* from here on in p16 alone */\n", end);
            end = "P_HALVES";
            border = false;
        }
        const char *name = m.param >= 0 ? e->param[m.param] : e->group[m.group];
        const Span at = m.param >= 0 ? e->p->params.at[m.param].span
                                     : e->p->groups.at[m.group].span;
        text_add(&lines, "    %s = %s,\t/* %-*s %s */\n", name, end, (int)width, member_shape(e, m),
                 at.file ? source_where(e->cx, at) : "");
        end = emit_format(e, "%s + %s", name, member_size(e, &s, m));
    }
    if (group < 0)
        text_add(&lines, "    P_COUNT = %s,\n};\n", end);
    else
        text_add(&lines, "    %s = %s,\n};\n", e->symbol[e->p->groups.at[group].stride_sym->id],
                 end);
    emit_aligned(e->out, lines.at, 40);
    text_put(e->out, "\n");
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *const role_name[] = {
    "RT_WEIGHT", "RT_BIAS", "RT_GAIN", "RT_EMBEDDING", "RT_STATE",
};
static const char *const init_name[] = {
    "RT_ZEROS", "RT_ONES", "RT_CONST", "RT_NORMAL", "RT_UNIFORM",
};

/* "P_h + P_h_attn_w", outermost stack first. */
const char *c_param_start(Emitter *e, int index)
{
    const char *text = e->param[index];
    for (int g = e->p->params.at[index].group; g >= 0; g = e->p->groups.at[g].parent)
        text = emit_format(e, "%s + %s", e->group[g], text);
    return text;
}

typedef VEC(const char *) Fields;

static const char *stack_list(Emitter *e, DimScope *s, const Param *p, int *n)
{
    const char *list = "";
    for (int g = p->group; g >= 0; g = e->p->groups.at[g].parent)
        list = emit_format(e, "{ %s, %s }%s%s", dim_c(s, e->p->groups.at[g].count),
                           e->symbol[e->p->groups.at[g].stride_sym->id], (*n)++ ? ", " : "", list);
    return list;
}

/* ---- groups with numbers of their own ------------------------------------------------------ */

static int64_t repetitions(Emitter *e, const Param *p)
{
    int64_t n = 1;
    for (int g = p->group; g >= 0; g = e->p->groups.at[g].parent)
        n *= emit_train_value(e, e->p->groups.at[g].count);
    return n;
}

/* The group of all repetitions, 0 = none; -1: they are in several. */
static int group_of(Emitter *e, const Param *p)
{
    if (!p->updates)
        return 0;
    for (int64_t r = 1; r < repetitions(e, p); r++)
        if (p->updates[r] != p->updates[0])
            return -1;
    return p->updates[0];
}

static const char *list_of(Emitter *e, const Param *p)
{
    Text t = text_new(e->cx->scratch);
    for (int64_t r = 0; r < repetitions(e, p); r++)
        text_add(&t, "%s%d", r ? ", " : "", p->updates[r]);
    return intern(e->cx, t.at);
}

static void write_groups(Emitter *e)
{
    const TrainSettings *t = &e->p->train;
    if (t->updates.len == 0)
        return;
    text_put(e->out, "/* Parameters of a group are updated with .rate times the learning rate (0: "
                     "they stay as\n * they are), and with a weight decay of its own where it has "
                     "one. */\n");
    text_add(e->out, "static const RtGroup %s_groups[] = {\n", e->model);
    for (int i = 0; i < t->updates.len; i++) {
        const UpdateGroup *u = &t->updates.at[i];
        const char *decay = isnan(u->decay) ? ""
                                            : emit_format(e, " .own_decay = true, .decay = %s,",
                                                          emit_number(e, u->decay));
        emit_statement(e->out, INDENT,
                       emit_format(e, "{ .names = %s, .rate = %s,%s .where = %s },",
                                   emit_string(e, u->names), emit_number(e, u->rate), decay,
                                   emit_string(e, source_where(e->cx, u->span))));
    }
    text_put(e->out, "};\n\n");
}

/* A stack whose repetitions are in several groups: a list of them, the same list once. */
static void write_lists(Emitter *e)
{
    int n = 0;
    e->group_list = map_new(e->cx->scratch);
    for (int i = 0; i < e->p->params.len; i++) {
        const Param *p = &e->p->params.at[i];
        if (group_of(e, p) >= 0 || map_get(e->group_list, list_of(e, p)))
            continue;
        const char *name = emit_format(e, "%s_group_list_%d", e->model, ++n);
        map_set(e->group_list, list_of(e, p), (void *)(uintptr_t)name);
        emit_statement(e->out, 0,
                       emit_format(e, "static const uint8_t %s[] = { %s };", name, list_of(e, p)));
    }
    text_put(e->out, n ? "\n" : "");
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void write_row(Emitter *e, DimScope *s, int i)
{
    const Param *p = &e->p->params.at[i];
    Arena *a = e->cx->scratch;
    Text shape = text_new(a);
    Fields f = { 0 };
    int n_stacks = 0;
    for (int k = 0; k < p->type->rank; k++)
        text_add(&shape, "%s %s", k ? "," : "", dim_c(s, p->type->dim[k]));
    const char *stacks = stack_list(e, s, p, &n_stacks);
    vec_push(a, &f, arena_printf(a, ".path = %s", emit_string(e, p->path)));
    vec_push(a, &f, arena_printf(a, ".role = %s", role_name[p->role]));
    vec_push(a, &f, arena_printf(a, ".decay = %s", p->decay ? "true" : "false"));
    if (p->excepted)
        vec_push(a, &f, ".excepted = true");
    if (group_of(e, p) > 0)
        vec_push(a, &f, arena_printf(a, ".group = %d", group_of(e, p)));
    if (group_of(e, p) < 0)
        vec_push(
            a, &f,
            arena_printf(a, ".groups = %s", (const char *)map_get(e->group_list, list_of(e, p))));
    vec_push(a, &f, arena_printf(a, ".rank = %d", p->type->rank));
    if (p->type->rank > 0)
        vec_push(a, &f, arena_printf(a, ".shape = {%s }", shape.at));
    vec_push(a, &f, arena_printf(a, ".at = %s", c_param_start(e, i)));
    if (n_stacks > 0)
        vec_push(a, &f, arena_printf(a, ".n_stacks = %d, .stack = { %s }", n_stacks, stacks));
    const Ready ready = c_ready(e, i);
    if (ready.step > 0)
        vec_push(a, &f,
                 arena_printf(a, ".ready = %d%s", ready.step, ready.each ? ", .each = true" : ""));
    vec_push(
        a, &f,
        arena_printf(a, ".init = { %s, %s }", init_name[p->init], emit_number(e, p->init_value)));
    if (p->fit_kind)
        vec_push(a, &f,
                 arena_printf(a, ".fit = %s, .fit_input = %d", emit_string(e, p->fit_kind),
                              p->fit_input));
    vec_push(a, &f,
             arena_printf(a, ".where = %s",
                          emit_string(e, p->span.file ? source_where(e->cx, p->span) : "")));
    emit_call(e->out, INDENT, "{ ", f.at, f.len, " },\n");
}

void c_parameters(Emitter *e)
{
    DimScope s = dim_scope(e, "");
    emit_banner(e, 2, "parameters");
    text_put(e->out, how_to_read);
    if (program_has_halves(e->p))
        text_add(
            e->out,
            "/* Those before P_HALVES are in p, in fp32. Those from P_HALVES on have no fp32\n"
            " * master: they are in p16, in %s, at the same numbers, and the update rounds them\n"
            " * at random, up or down, so that on average nothing is lost. Values that are\n"
            " * rounded to %s lie in memory so (section 3), and kernels compute with them in\n"
            " * fp32. */\n\n",
            dtype_name(e->p->narrow), dtype_name(e->p->narrow));
    else if (e->p->narrow == DT_BF16 || e->p->narrow == DT_F16)
        text_add(
            e->out,
            "/* p holds them in fp32. p16 is a copy in %s, in the same places, that the update\n"
            " * writes too: kernels that take a parameter in 16 bits get it. Values that are\n"
            " * rounded to %s lie in memory so (section 3), and kernels compute with them\n"
            " * in fp32. */\n\n",
            dtype_name(e->p->narrow), dtype_name(e->p->narrow));
    write_enum(e, -1);
    if (e->p->params.len == 0)
        return;
    write_groups(e);
    write_lists(e);
    text_add(e->out, "static const RtParam %s_params[] = {\n", e->model);
    for (int i = 0; i < e->p->params.len; i++)
        write_row(e, &s, i);
    text_put(e->out, "};\n");
}
