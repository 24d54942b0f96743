/* params.c -- the flat parameter buffer by name: initial values, counts, the printed table.
 *
 * In: the rows of the model table. Out: values in the flat buffer, and its copy in 16 bits. The one
 * idea: every element is a function of (seed, logical name, element index), so the initial values
 * depend neither on the order of parameters in memory nor on threads or ranks.
 */
#include "run.h"

size_t rt_real_bytes(const RtModel *m)
{
    return m->real == RT_F64 ? sizeof(double) : sizeof(float);
}

const char *rt_precision(const RtModel *m)
{
    return m->compute == RT_BF16  ? "bf16"
           : m->compute == RT_F16 ? "fp16"
           : m->real == RT_F64    ? "fp64"
                                  : "fp32";
}

uint64_t rt_hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* ---- one row -------------------------------------------------------------------------------- */

ptrdiff_t rt_param_elems(const RtParam *q)
{
    ptrdiff_t n = 1;
    for (int i = 0; i < q->rank; i++)
        n *= q->shape[i];
    return n;
}

ptrdiff_t rt_param_repeats(const RtParam *q)
{
    ptrdiff_t n = 1;
    for (int i = 0; i < q->n_stacks; i++)
        n *= q->stack[i].count;
    return n;
}

static void param_index(const RtParam *q, ptrdiff_t repeat, ptrdiff_t index[RT_MAX_STACKS])
{
    for (int i = q->n_stacks - 1; i >= 0; i--) {
        index[i] = repeat % q->stack[i].count;
        repeat /= q->stack[i].count;
    }
}

ptrdiff_t rt_param_at(const RtParam *q, ptrdiff_t repeat)
{
    ptrdiff_t index[RT_MAX_STACKS], at = q->at;
    param_index(q, repeat, index);
    for (int i = 0; i < q->n_stacks; i++)
        at += index[i] * q->stack[i].stride;
    return at;
}

static ptrdiff_t state_kept(const RtModel *m, RtStateShape shape, const RtParam *q)
{
    ptrdiff_t size[RT_MAX_RANK], n = 1;
    const int rank = shape(m, q, size);
    for (int k = 0; k < rank; k++)
        n *= size[k];
    return rank < 0 ? 0 : n;
}

ptrdiff_t rt_state_at(const RtModel *m, RtStateShape shape, int param, ptrdiff_t repeat)
{
    ptrdiff_t at = 0;
    for (int i = 0; i < param; i++)
        at += rt_param_repeats(&m->params[i]) * state_kept(m, shape, &m->params[i]);
    return param < m->n_params ? at + repeat * state_kept(m, shape, &m->params[param]) : at;
}

ptrdiff_t rt_state_elems(const RtModel *m, RtStateShape shape)
{
    return rt_state_at(m, shape, m->n_params, 0);
}

const char *rt_param_name(const RtParam *q, ptrdiff_t repeat, char name[RT_NAME_TEXT])
{
    ptrdiff_t index[RT_MAX_STACKS];
    param_index(q, repeat, index);
    size_t n = 0;
    int stack = 0;
    if (strlen(q->path) + 24 * RT_MAX_STACKS >= RT_NAME_TEXT)
        rt_fail(RT_EXIT_FAIL, "the parameter name %s is too long", q->path);
    for (const char *c = q->path; *c; c++)
        if (*c == '*' && stack < q->n_stacks)
            n += (size_t)snprintf(name + n, RT_NAME_TEXT - n, "%td", index[stack++]);
        else
            name[n++] = *c;
    name[n] = 0;
    return name;
}

RtPiece rt_param_piece(const RtModel *m, const RtParam *q, ptrdiff_t repeat)
{
    const ptrdiff_t at = rt_param_at(q, repeat);
    const int group = q->groups ? q->groups[repeat] : q->group;
    const bool half = at >= rt_params_wide(m);
    RtPiece piece = { at, at + rt_param_elems(q), q->decay, 1, (double)NAN, half };
    if (group > 0) {
        const RtGroup *g = &m->groups[group - 1];
        piece.rate = g->rate;
        piece.own = g->own_decay ? g->decay : (double)NAN;
    }
    return piece;
}

/* ---- initial values ------------------------------------------------------------------------- */

/* Elements first..first+n-1 of a repetition, to p. */
static void init_f32(float *p, ptrdiff_t first, ptrdiff_t n, RtInit init, RtKey key,
                     uint64_t stream)
{
    const float a = (float)init.value;
    switch (init.kind) {
    case RT_ZEROS:
    case RT_ONES:
    case RT_CONST: {
        const float c = init.kind == RT_ZEROS ? 0.0f : init.kind == RT_ONES ? 1.0f : a;
        for (ptrdiff_t i = 0; i < n; i++)
            p[i] = c;
        break;
    }
    case RT_NORMAL:
#pragma omp parallel for simd schedule(static) if (n > RT_PIECE)
        for (ptrdiff_t i = 0; i < n; i++)
            p[i] = a * rt_normal_f32(key, stream, 0, (uint64_t)(first + i));
        break;
    case RT_UNIFORM:
#pragma omp parallel for simd schedule(static) if (n > RT_PIECE)
        for (ptrdiff_t i = 0; i < n; i++)
            p[i] = a * (2.0f * rt_uniform_f32(key, stream, 0, (uint64_t)(first + i)) - 1.0f);
        break;
    }
}

/* The same values, to the nearest that bf16 has. */
static void init_half(uint16_t *p, ptrdiff_t first, ptrdiff_t n, RtInit init, RtKey key,
                      uint64_t stream)
{
    enum { PART = 4096 };
#pragma omp parallel for schedule(static) if (n > RT_PIECE)
    for (ptrdiff_t at = 0; at < n; at += PART) {
        float x[PART];
        const ptrdiff_t part = n - at < PART ? n - at : PART;
        init_f32(x, first + at, part, init, key, stream);
        for (ptrdiff_t i = 0; i < part; i++)
            p[at + i] = rt_to_bf16(x[i]);
    }
}

static void init_f64(double *p, ptrdiff_t first, ptrdiff_t n, RtInit init, RtKey key,
                     uint64_t stream)
{
    const double a = init.kind == RT_ZEROS ? 0 : init.kind == RT_ONES ? 1 : init.value;
#pragma omp parallel for schedule(static) if (n > RT_PIECE)
    for (ptrdiff_t i = 0; i < n; i++) {
        const uint64_t at = (uint64_t)(first + i);
        p[i] = init.kind == RT_NORMAL    ? a * rt_normal_f64(key, stream, 0, at)
               : init.kind == RT_UNIFORM ? a * (2 * rt_uniform_f64(key, stream, 0, at) - 1)
                                         : a;
    }
}

/* Elements first..first+n-1 of a repetition, to host memory at p. */
static void init_part(void *p, RtType type, ptrdiff_t first, ptrdiff_t n, RtInit init, RtKey key,
                      uint64_t stream)
{
    if (type == RT_F64)
        init_f64(p, first, n, init, key, stream);
    else if (type == RT_BF16)
        init_half(p, first, n, init, key, stream);
    else
        init_f32(p, first, n, init, key, stream);
}

/* One repetition; where the host does not see p, as much of it at a time as the window holds. */
static void init_repetition(const RtModel *m, const RtParam *q, ptrdiff_t repeat, RtKey key,
                            void *p)
{
    char name[RT_NAME_TEXT];
    RtType type;
    const uint64_t stream = rt_stream(rt_hash_text(rt_param_name(q, repeat, name)), 0x696e6974);
    const ptrdiff_t n = rt_param_elems(q);
    char *const at = rt_param_place(m, p, rt_param_at(q, repeat), &type);
    void *const window = rt_place_window();
    const ptrdiff_t each = type == RT_BF16 ? 2 : (ptrdiff_t)rt_real_bytes(m);
    const ptrdiff_t most = window ? (ptrdiff_t)RT_PLACE_WINDOW / each : n;
    for (ptrdiff_t first = 0; first < n; first += most) {
        const ptrdiff_t part = n - first < most ? n - first : most;
        init_part(window ? window : at, type, first, part, q->init, key, stream);
        if (window)
            rt_place_put(at + first * each, window, (size_t)(part * each));
    }
}

void rt_params_init(const RtModel *m, uint64_t seed, void *p)
{
    const RtKey key = { seed, 0 };
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++)
            init_repetition(m, &m->params[i], k, key, p);
}

/* ---- the compute copy ----------------------------------------------------------------------- */

static const char *const products_names[] = { "unset", "native", "unpack" };

const char *rt_products_name(RtProducts products) { return products_names[products]; }

RtProducts rt_products_by_name(const char *name)
{
    for (int i = RT_PRODUCTS_NATIVE; name && i <= RT_PRODUCTS_UNPACK; i++)
        if (strcmp(name, products_names[i]) == 0)
            return (RtProducts)i;
    return RT_PRODUCTS_UNSET;
}

ptrdiff_t rt_params_wide(const RtModel *m) { return m->n_elems - m->n_halves; }

size_t rt_params_bytes(const RtModel *m)
{
    return (size_t)rt_params_wide(m) * rt_real_bytes(m) + (size_t)m->n_halves * sizeof(uint16_t);
}

/* Element i >= w is at byte 4 w + 2 (i - w) = 2 w + 2 i. */
uint16_t *rt_params_halves(const RtModel *m, void *p)
{
    return m->n_halves > 0 ? (uint16_t *)p + rt_params_wide(m) : NULL;
}

void *rt_param_place(const RtModel *m, void *p, ptrdiff_t i, RtType *type)
{
    const bool half = i >= rt_params_wide(m);
    *type = half ? RT_BF16 : m->real;
    return half ? (void *)(rt_params_halves(m, p) + i) : (char *)p + (size_t)i * rt_real_bytes(m);
}

size_t rt_params_copy_bytes(const RtModel *m)
{
    const bool half = m->real == RT_F32 && (m->compute == RT_BF16 || m->compute == RT_F16)
                      && m->n_halves == 0;
    return half ? (size_t)m->n_elems * sizeof(uint16_t) : 0;
}

/* ---- the table ------------------------------------------------------------------------------ */

ptrdiff_t rt_params_count(const RtModel *m, bool trained_only)
{
    ptrdiff_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        if (!trained_only || m->params[i].role != RT_STATE)
            n += rt_param_elems(&m->params[i]) * rt_param_repeats(&m->params[i]);
    return n;
}

static const char *const role_names[] = { "weight", "bias", "gain", "embedding", "state" };

static const char *param_shape(const RtParam *q, char text[RT_NAME_TEXT])
{
    size_t n = 0;
    text[n++] = '[';
    for (int i = 0; i < q->rank && n + 24 < RT_NAME_TEXT; i++)
        n += (size_t)snprintf(text + n, RT_NAME_TEXT - n, "%s%td", i ? "," : "", q->shape[i]);
    snprintf(text + n, RT_NAME_TEXT - n, "]");
    return text;
}

static const char *param_init(const RtParam *q, char text[RT_NAME_TEXT])
{
    switch (q->init.kind) {
    case RT_ZEROS: return "zeros";
    case RT_ONES: return "ones";
    case RT_CONST: snprintf(text, RT_NAME_TEXT, "%g", q->init.value); break;
    case RT_NORMAL: snprintf(text, RT_NAME_TEXT, "normal(0, %.4g)", q->init.value); break;
    case RT_UNIFORM: snprintf(text, RT_NAME_TEXT, "uniform(%.4g)", q->init.value); break;
    }
    return text;
}

/* "yes", "no", the number of a group; "mixed" where the repetitions of a stack differ. */
static const char *param_decay(const RtModel *m, const RtParam *q, char text[32])
{
    const RtPiece first = rt_param_piece(m, q, 0);
    for (ptrdiff_t k = 1; k < rt_param_repeats(q); k++) {
        const RtPiece piece = rt_param_piece(m, q, k);
        if (piece.own != first.own && !(isnan(piece.own) && isnan(first.own)))
            return "mixed";
    }
    snprintf(text, 32, "%.4g", first.own);
    return !isnan(first.own) ? text : q->decay ? "yes" : "no";
}

/* The factor of the rate, and behind it the groups; nothing in models without any. */
static const char *param_group(const RtModel *m, const RtParam *q, char text[64])
{
    const RtPiece first = rt_param_piece(m, q, 0);
    const int group = q->groups ? q->groups[0] : q->group;
    bool rates = false;
    int least = group, most = group;
    for (ptrdiff_t k = 0; q->groups && k < rt_param_repeats(q); k++) {
        rates = rates || rt_param_piece(m, q, k).rate != first.rate;
        least = q->groups[k] < least ? q->groups[k] : least;
        most = q->groups[k] > most ? q->groups[k] : most;
    }
    char rate[16], name[24];
    snprintf(rate, sizeof rate, first.rate == 0 ? "stays" : "x%.4g", first.rate);
    snprintf(name, sizeof name, least < most ? "%d-%d" : least ? "%d" : "", least, most);
    snprintf(text, 64, "  %-6s %-5s", rates ? "mixed" : rate, name);
    return m->n_groups ? text : "";
}

static void print_groups(const RtModel *m, FILE *to)
{
    for (int g = 0; g < m->n_groups; g++) {
        const RtGroup *group = &m->groups[g];
        ptrdiff_t elems = 0;
        for (int i = 0; i < m->n_params; i++)
            for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++) {
                const RtParam *q = &m->params[i];
                elems += (q->groups ? q->groups[k] : q->group) == g + 1 ? rt_param_elems(q) : 0;
            }
        fprintf(to, "  group %d: %s: %td element%s", g + 1, group->names, elems,
                elems == 1 ? "" : "s");
        if (group->rate == 0)
            fprintf(to, " that stay as they are");
        else if (group->rate != 1)
            fprintf(to, ", %g times the rate", group->rate);
        if (group->rate != 0 && group->own_decay)
            fprintf(to, ", decay %g", group->decay);
        fprintf(to, "  %s\n", group->where);
    }
}

void rt_params_print(const RtModel *m, FILE *to)
{
    char shape[RT_NAME_TEXT], init[RT_NAME_TEXT], decay[32], group[64];
    int width = 9;
    for (int i = 0; i < m->n_params; i++)
        if ((int)strlen(m->params[i].path) > width)
            width = (int)strlen(m->params[i].path);
    fprintf(to, "  %-*s  %-9s %-16s %6s %12s  %-5s%s  %-18s %s\n", width, "parameter", "role",
            "shape", "times", "elements", "decay", m->n_groups ? "  rate   group" : "", "initial",
            "declared");
    for (int i = 0; i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        const ptrdiff_t times = rt_param_repeats(q);
        fprintf(to, "  %-*s  %-9s %-16s %6td %12td  %-5s%s  %-18s %s\n", width, q->path,
                role_names[q->role], param_shape(q, shape), times, times * rt_param_elems(q),
                param_decay(m, q, decay), param_group(m, q, group),
                q->fit ? q->fit : param_init(q, init), q->where);
    }
    print_groups(m, to);
}
