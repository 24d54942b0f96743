/* memory.c -- does a run fit into memory? Asked before anything of it is allocated.
 *
 * In: model, settings, data, what the run is for. Out: the report that training prints, or a
 * message with the numbers and with what would fit. The one idea: the same sum that rt_run_create
 * allocates, down to what products and saving work in; train.c compares the two at the end.
 */
#include "run.h"

enum { COUNT_TEXT = 32 };

typedef struct {
    const char *name, *note;
    double bytes;
} Part;

enum { PARTS = 12 };

static int parts_of(const RtMemory *need, Part part[PARTS])
{
    const Part all[PARTS] = {
        { "parameters", "", need->params },
        { "16-bit copy", "", need->copy },
        { "gradient", "", need->gradients },
        { "optimizer", "", need->state },
        { "average", "", need->average },
        { "arena", "values of a micro-step; --explain=memory of gradcc lists them", need->arena },
        { "batch", "", need->inputs },
        { "outputs", "", need->outputs },
        { "workspace", "of products and attention, on this machine", need->rooms },
        { "tables", "of the run and the optimizer", need->tables },
        { "saving", "while a checkpoint is written or read", need->saving },
        { "data", "and settings, allocated by now", need->held }, /* the last */
    };
    memcpy(part, all, sizeof all);
    return PARTS;
}

typedef struct {
    char at[PARTS * 2 * RT_BYTES_TEXT];
} Text;

/* "parameters 1.2 MiB, arena 3 MiB: 4.2 MiB", of what the run has; with what it has already? */
static const char *parts_text(const RtMemory *need, bool held, Text *text)
{
    Part part[PARTS];
    char bytes[RT_BYTES_TEXT];
    size_t n = 0;
    const int n_parts = parts_of(need, part);
    for (int i = 0; i < n_parts; i++)
        if (part[i].bytes > 0 && (held || i + 1 < n_parts))
            n += (size_t)snprintf(text->at + n, sizeof text->at - n, "%s%s %s", n ? ", " : "",
                                  part[i].name, rt_bytes(part[i].bytes, bytes));
    snprintf(text->at + n, sizeof text->at - n, ": %s",
             rt_bytes(need->needed + (held ? need->held : 0), bytes));
    return text->at;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* "1,234,567" */
static const char *count_text(double bytes, char text[COUNT_TEXT])
{
    char digits[COUNT_TEXT];
    const int n = snprintf(digits, sizeof digits, "%.0f", bytes);
    int to = 0;
    for (int i = 0; i < n && to + 2 < COUNT_TEXT; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = 0;
    return text;
}

static void print_row(const char *name, double bytes, double all, const char *note)
{
    char count[COUNT_TEXT], size[RT_BYTES_TEXT];
    printf("  %-12s %19s %12s %5.1f %%%s%s\n", name, count_text(bytes, count),
           rt_bytes(bytes, size), all > 0 ? 100 * bytes / all : 0, note[0] ? "  " : "", note);
}

/* Every part in bytes, and when the most is in use. */
static void print_table(const RtMemory *need)
{
    Part part[PARTS];
    const int n = parts_of(need, part);
    printf("  %-12s %19s\n", "memory", "bytes");
    for (int i = 0; i < n; i++)
        if (part[i].bytes > 0)
            print_row(part[i].name, part[i].bytes, need->total, part[i].note);
    const bool before = need->needed + need->held < need->total;
    print_row("at the most", need->total, need->total,
              before             ? "while the data were read"
              : need->saving > 0 ? "while a checkpoint is written"
                                 : "in a step");
}

/* ---- what would fit -------------------------------------------------------------------------- */

typedef struct {
    const RtModel *m;
    const RtOptions *o;
    const RtData *data;
    int use;
    double room;
} Asked;

static bool accumulate_fits(const Asked *a, int64_t accumulate)
{
    RtOptions other = *a->o;
    other.train.accumulate = accumulate;
    for (int i = 0; i < a->m->n_dims; i++)
        if (a->m->dims[i].batch)
            other.dims[i] = (ptrdiff_t)(a->o->train.batch / accumulate);
    return rt_run_memory(a->m, &other, a->data, a->use).needed <= a->room;
}

/* The fewest micro-steps whose activations fit, 0 = none do: over the divisors of the batch. */
static int64_t accumulate_that_fits(const Asked *a)
{
    const int64_t batch = a->o->train.batch, now = a->o->train.accumulate;
    int64_t root = 1;
    for (; root <= batch / root && root < 1000000; root++)
        if (batch % root == 0 && root > now && accumulate_fits(a, root))
            return root;
    for (int64_t i = root; i > 0; i--)
        if (batch % i == 0 && batch / i > now && accumulate_fits(a, batch / i))
            return batch / i;
    return 0;
}

static double planned;

double rt_memory_planned(void) { return planned; }

void rt_memory_check(const RtModel *m, const RtOptions *o, const RtData *data, int use)
{
    const RtMemory need = rt_run_memory(m, o, data, use);
    const double room = rt_memory_free();
    const Asked asked = { m, o, data, use, room };
    Text parts;
    char bytes[RT_BYTES_TEXT];
    const char *left = room < 0 ? "unknown" : rt_bytes(room, bytes);
    planned = need.total;
    parts_text(&need, o->command == RT_DO_TRAIN, &parts);
    if (o->command == RT_DO_TRAIN)
        printf("memory   %s; %s free\n", parts.at, left);
    if (o->command == RT_DO_TRAIN && o->dry_run)
        print_table(&need);
    if (room < 0 || need.needed <= room || o->force || o->dry_run)
        return;
    const char *who = o->command == RT_DO_TRAIN  ? "the run"
                      : o->command == RT_DO_EVAL ? "validation"
                                                 : "generating";
    parts_text(&need, false, &parts);
    const int64_t fits = o->command != RT_DO_GENERATE ? accumulate_that_fits(&asked) : 0;
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
