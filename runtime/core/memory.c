/* memory.c -- does a run fit into memory? Asked before anything of it is allocated.
 *
 * In: model, settings, what the run is for. Out: the line that training prints, or a message with
 * the numbers and with what would fit. The one idea: the same sum that rt_run_create allocates.
 */
#include "run.h"

typedef struct {
    char at[8 * RT_BYTES_TEXT];
} Parts;

/* "parameters 1.2 MiB, arena 3 MiB: 4.2 MiB", of what the run has */
static const char *parts_text(const RtMemory *need, Parts *text)
{
    const struct {
        const char *name;
        double bytes;
    } parts[] = { { "parameters", need->params },  { "16-bit copy", need->copy },
                  { "gradient", need->gradients }, { "optimizer", need->state },
                  { "average", need->average },    { "arena", need->arena },
                  { "batch", need->inputs },       { "outputs", need->outputs } };
    char bytes[RT_BYTES_TEXT];
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes > 0)
            n += (size_t)snprintf(text->at + n, sizeof text->at - n, "%s%s %s", n ? ", " : "",
                                  parts[i].name, rt_bytes(parts[i].bytes, bytes));
    snprintf(text->at + n, sizeof text->at - n, ": %s", rt_bytes(need->total, bytes));
    return text->at;
}

static bool accumulate_fits(const RtModel *m, const RtOptions *o, int64_t accumulate, double room,
                            int use)
{
    RtOptions other = *o;
    other.train.accumulate = accumulate;
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch)
            other.dims[i] = (ptrdiff_t)(o->train.batch / accumulate);
    return rt_run_memory(m, &other, use).total <= room;
}

/* The fewest micro-steps whose activations fit, 0 = none do: over the divisors of the batch. */
static int64_t accumulate_that_fits(const RtModel *m, const RtOptions *o, double room, int use)
{
    const int64_t batch = o->train.batch, now = o->train.accumulate;
    int64_t root = 1;
    for (; root <= batch / root && root < 1000000; root++)
        if (batch % root == 0 && root > now && accumulate_fits(m, o, root, room, use))
            return root;
    for (int64_t i = root; i > 0; i--)
        if (batch % i == 0 && batch / i > now && accumulate_fits(m, o, batch / i, room, use))
            return batch / i;
    return 0;
}

void rt_memory_check(const RtModel *m, const RtOptions *o, int use)
{
    const RtMemory need = rt_run_memory(m, o, use);
    const double room = rt_memory_free();
    Parts parts;
    char bytes[RT_BYTES_TEXT];
    const char *left = room < 0 ? "unknown" : rt_bytes(room, bytes);
    parts_text(&need, &parts);
    if (o->command == RT_DO_TRAIN)
        printf("memory   %s; %s free\n", parts.at, left);
    if (room < 0 || need.total <= room || o->force || o->dry_run)
        return;
    const char *who = o->command == RT_DO_TRAIN  ? "the run"
                      : o->command == RT_DO_EVAL ? "validation"
                                                 : "generating";
    const int64_t fits = o->command != RT_DO_GENERATE ? accumulate_that_fits(m, o, room, use) : 0;
    if (fits)
        rt_fail(RT_EXIT_FAIL,
                "%s needs more memory than the %s free: %s\nhint: --accumulate %lld fits and "
                "gives the same %s; --force starts anyway",
                who, left, parts.at, (long long)fits,
                o->command == RT_DO_TRAIN ? "update" : "result");
    rt_fail(RT_EXIT_FAIL,
            "%s needs more memory than the %s free: %s\nhint: a smaller model, or shorter dims "
            "(--dims); --force starts anyway%s",
            who, left, parts.at,
            o->command == RT_DO_TRAIN ? "; no number of micro-steps helps" : "");
}
