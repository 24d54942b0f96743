/* generate.c -- the sub-command that writes text with a trained language model.
 *
 * In: a checkpoint, a prompt. Out: tokens on stdout as they are drawn. A language model is one
 * whose output [B,T,V] depends on one integer input [B,T] with V values. The one idea: position
 * p of the text draws from (seed, p), so a seed names a text. Ids that the vocabulary does not have
 * are never drawn. The window is the T the checkpoint was trained with (--dims T=N for another); a
 * longer text moves it along.
 */
#include <ctype.h>
#include <errno.h>

#include "run.h"

typedef struct {
    int input, output, dim;
    ptrdiff_t classes, known; /* logits of a row; the first ones, of ids that have a text */
} Language;

/* Which input, output and dim make m a language model; NULL, or why it is none. */
static const char *language_find(const RtModel *m, Language *found)
{
    ptrdiff_t dims[RT_MAX_DIMS], other[RT_MAX_DIMS], in[RT_MAX_RANK], out[RT_MAX_RANK];
    if (!m->forward || m->n_outputs == 0)
        return "it has no output";
    for (int i = 0; i < m->n_dims; i++)
        dims[i] = 7 + 2 * i; /* different numbers, so that sizes tell dims */
    for (int k = 0; k < m->n_outputs; k++)
        for (int i = 0; i < m->n_inputs; i++) {
            const RtInput *input = &m->inputs[i];
            if (m->outputs[k].rank != 3 || input->type != RT_I32 || input->rank != 2
                || (m->outputs[k].needs ? m->outputs[k].needs != UINT64_C(1) << i : i != 0))
                continue;
            m->input_shape(dims, i, in);
            m->output_shape(dims, k, out);
            if (in[0] != out[0] || in[1] != out[1])
                continue;
            for (int d = 0; d < m->n_dims; d++) {
                memcpy(other, dims, sizeof other);
                other[d]++;
                m->input_shape(other, i, in);
                if (!m->dims[d].batch && in[1] == out[1] + 1) {
                    *found = (Language){ i, k, d, out[2], out[2] };
                    return NULL;
                }
            }
        }
    return "no output [B,T,V] depends on just one integer input [B,T] with a dim T";
}

const char *rt_generate_possible(const RtModel *m)
{
    Language unused;
    return language_find(m, &unused);
}

/* ---- the prompt ----------------------------------------------------------------------------- */

typedef struct {
    int32_t *at;
    int64_t n, cap;
} Ids;

static void ids_check(const RtModel *m, const Language *l, const Ids *ids)
{
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->at[i] < 0 || ids->at[i] >= l->classes)
            rt_fail(RT_EXIT_USAGE, "--prompt: token %d is outside 0..%td of %s", (int)ids->at[i],
                    l->classes, m->name);
}

static void ids_parse(Ids *ids, const char *prompt)
{
    for (const char *at = prompt; *at;) {
        while (isspace((unsigned char)*at) || *at == ',')
            at++;
        if (!*at)
            break;
        char *end;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX)
            rt_fail(RT_EXIT_USAGE,
                    "--prompt: '%.20s' is no token id\nhint: this model knows ids "
                    "only, as in --prompt \"15496 995\"",
                    at);
        ids->at[ids->n++] = (int32_t)id;
        at = end;
    }
}

/* Names the first character that the vocabulary does not have. */
__attribute__((noreturn)) static void fail_character(const RtData *data, const char *prompt,
                                                     Ids *ids)
{
    size_t n = 0, start = 0;
    do {
        start = n++;
        while (((unsigned char)prompt[n] & 0xc0) == 0x80) /* the rest of a UTF-8 character */
            n++;
        char *part = rt_printf("%.*s", (int)n, prompt);
        const bool known = rt_data_encode(data, part, ids->at, ids->cap) >= 0;
        rt_free(part);
        if (!known)
            break;
    } while (prompt[n]);
    rt_fail(RT_EXIT_USAGE, "--prompt: the training text had no '%.*s'", (int)(n - start),
            prompt + start);
}

static Ids prompt_ids(const RtData *data, const RtOptions *o)
{
    const char *prompt = o->prompt ? o->prompt : "\n";
    Ids ids = { .cap = (int64_t)strlen(prompt) + o->tokens + 1 };
    ids.at = rt_alloc((size_t)ids.cap * sizeof *ids.at, "the tokens");
    if (!data) {
        if (o->prompt)
            ids_parse(&ids, o->prompt);
        if (ids.n == 0)
            rt_fail(RT_EXIT_USAGE, "generate wants a prompt\nhint: this model knows token ids "
                                   "only: --prompt \"15496 995\"");
        return ids;
    }
    ids.n = *prompt ? rt_data_encode(data, prompt, ids.at, ids.cap) : 0;
    if (ids.n < 0 && o->prompt)
        fail_character(data, o->prompt, &ids);
    if (ids.n <= 0) { /* begin with the first token of the vocabulary */
        ids.at[0] = 0;
        ids.n = 1;
    }
    return ids;
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* The logits of a row. */
static void logits(const RtRun *run, const Language *l, ptrdiff_t row, double *x)
{
    const size_t bytes = rt_real_bytes(run->model);
    const char *from = (const char *)run->outputs[l->output] + (size_t)(row * l->classes) * bytes;
    const ptrdiff_t most = (ptrdiff_t)(RT_PLACE_WINDOW / bytes);
    for (ptrdiff_t first = 0; first < l->classes; first += most) {
        const ptrdiff_t n = l->classes - first < most ? l->classes - first : most;
        const void *at = rt_place_look(from + (size_t)first * bytes, (size_t)n * bytes);
        for (ptrdiff_t i = 0; i < n; i++)
            x[first + i] = bytes == sizeof(double) ? ((const double *)at)[i]
                                                   : (double)((const float *)at)[i];
    }
}

static int compare_down(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Smallest logit among the k largest. */
static double kth_largest(double *copy, const double *x, ptrdiff_t n, int64_t k)
{
    if (k <= 0 || k >= n)
        return -INFINITY;
    memcpy(copy, x, (size_t)n * sizeof *x);
    qsort(copy, (size_t)n, sizeof *copy, compare_down);
    return copy[k - 1];
}

static int32_t draw(const RtRun *run, const Language *l, const RtOptions *o, ptrdiff_t row,
                    int64_t position, double *x)
{
    ptrdiff_t best = 0;
    logits(run, l, row, x);
    for (ptrdiff_t i = 0; i < l->classes; i++) {
        if (isnan(x[i]))
            rt_fail(RT_EXIT_FAIL,
                    "the model gives NaN at position %lld: its parameters are "
                    "damaged",
                    (long long)position);
        best = i < l->known && x[i] > x[best] ? i : best;
    }
    if (o->temperature <= 0)
        return (int32_t)best;
    const double least = kth_largest(x + l->classes, x, l->known, o->top_k), most = x[best];
    double total = 0;
    for (ptrdiff_t i = 0; i < l->known; i++) {
        x[i] = x[i] >= least ? exp((x[i] - most) / o->temperature) : 0;
        total += x[i];
    }
    const RtKey key = { o->train.seed, 0 };
    const double u = rt_uniform_f64(key, rt_hash_text("generate"), (uint64_t)position, 0) * total;
    double sum = 0;
    ptrdiff_t last = best;
    for (ptrdiff_t i = 0; i < l->known; i++) {
        sum += x[i];
        if (x[i] > 0)
            last = i;
        if (sum > u)
            break;
    }
    return (int32_t)last;
}

static void write_token(const RtData *data, int32_t id, RtHeld *held)
{
    const char *text = data ? rt_data_decode(data, id) : NULL;
    const size_t n = text && *text ? strlen(text) : 1; /* "" is the byte 0 */
    for (size_t i = 0; text && i < n; i++)
        rt_utf8_write(held, (uint8_t)text[i], stdout);
    if (!data)
        printf("%d ", (int)id);
    fflush(stdout);
}

/* ---- the sub-command ------------------------------------------------------------------------ */

int rt_do_generate(const RtModel *m, RtOptions *o)
{
    Language l;
    const char *why = language_find(m, &l);
    if (why)
        rt_fail(RT_EXIT_USAGE, "%s cannot generate: %s", m->name, why);
    RtCheckpoint c = { .best_val = NAN, .scale = NAN };
    const char *dir = rt_config_load(m, o, &c);
    if (m->compute == RT_BF16)
        (void)rt_products_choose(c.products);
    rt_memory_check(m, o, NULL, RT_USE_OUTPUT);
    RtRun *run = rt_run_create(m, o, NULL, RT_USE_OUTPUT);
    (void)rt_run_load(run, dir, false, &c);
    RtData *data = rt_data_open_vocab(m, &o->train, c.vocab);
    while (data && l.known > 0 && !rt_data_decode(data, (int32_t)l.known - 1))
        l.known--;
    RtHeld held = { .n = 0 };
    Ids ids = prompt_ids(data, o);
    ids_check(m, &l, &ids);

    const ptrdiff_t window = o->dims[l.dim];
    double *x = rt_alloc((size_t)l.classes * 2 * sizeof *x, "the probabilities");
    for (int64_t i = 0; i < ids.n; i++)
        if (o->prompt)
            write_token(data, ids.at[i], &held);
    for (int64_t made = 0; made < o->tokens; made++) {
        const ptrdiff_t n = ids.n < window ? (ptrdiff_t)ids.n : window;
        run->dims[l.dim] = n;
        memcpy(rt_rows(run)[l.input], ids.at + ids.n - n, (size_t)n * sizeof *ids.at);
        rt_run_forward(run);
        const int32_t id = draw(run, &l, o, n - 1, ids.n, x);
        ids.at[ids.n++] = id;
        write_token(data, id, &held);
        if (ferror(stdout)) /* the reader is gone */
            break;
    }
    rt_utf8_end(&held, stdout);
    putchar('\n');
    rt_free(x);
    rt_free(ids.at);
    if (data)
        rt_data_close(data);
    rt_run_free(run);
    return 0;
}
