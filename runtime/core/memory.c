/* memory.c -- does a run fit into memory? Asked before anything of it is allocated.
 *
 * In: model, settings, data, what the run is for. Out: the report that training prints, or a
 * message with the numbers and with what would fit. The one idea: the same sum that rt_run_create
 * allocates, down to what products and saving work in; train.c compares the two at the end. With a
 * GPU there are two sums: of its memory, which is what runs short, and of the host's.
 */
#include "comm/comm.h"

enum { COUNT_TEXT = 32 };

typedef struct {
    const char *name, *note;
    double bytes;
} Part;

enum { PARTS = 15, HELD_PARTS = 2 };           /* the last ones are allocated by now */
typedef enum { OF_ALL, OF_PLACE, OF_HOST } Of; /* a GPU's memory is a place of its own */

static int parts_of(const RtMemory *need, Of of, Part part[PARTS])
{
    const bool host = rt_place_is_host();
    const Part placed[] = {
        { "parameters", "", need->params },
        { "16-bit copy", "", need->copy },
        { "gradient", "", need->gradients },
        { "optimizer", "", need->state },
        { "average", "", need->average },
        { "arena", "values of a micro-step", need->arena },
        { "batch", "", need->inputs },
        { "outputs", "", need->outputs },
        { "workspace", "of products and attention, on this machine", need->rooms },
        { "updates", "tables and sums", host ? 0 : need->updates },
    };
    const Part own[] = {
        { "samples", "on their way to the GPU", need->rows },
        { "tables", "of the run and the optimizer", need->tables + (host ? need->updates : 0) },
        { "saving", "while a checkpoint is written or read", need->saving },
        { "ranks", "what their sums work in", need->ranks },
        { "data", "and settings, allocated by now", need->held - need->ranks },
    };
    int n = 0;
    if (of != OF_HOST)
        for (size_t i = 0; i < sizeof placed / sizeof *placed; i++)
            part[n++] = placed[i];
    if (of != OF_PLACE)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            part[n++] = own[i];
    return n;
}

typedef struct {
    char at[PARTS * 2 * RT_BYTES_TEXT];
} Text;

/* "parameters 1.2 MiB, arena 3 MiB: 4.2 MiB", of what the run has; with what it has already? */
static const char *parts_text(const RtMemory *need, Of of, bool held, Text *text)
{
    Part part[PARTS];
    char bytes[RT_BYTES_TEXT];
    size_t n = 0;
    const int n_parts = parts_of(need, of, part);
    for (int i = 0; i < n_parts; i++)
        if (part[i].bytes > 0 && (held || of == OF_PLACE || i + HELD_PARTS < n_parts))
            n += (size_t)snprintf(text->at + n, sizeof text->at - n, "%s%s %s", n ? ", " : "",
                                  part[i].name, rt_bytes(part[i].bytes, bytes));
    snprintf(
        text->at + n, sizeof text->at - n, ": %s",
        rt_bytes(of == OF_PLACE ? need->place : need->needed + (held ? need->held : 0), bytes));
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

/* all = 0: bytes are no share of anything. */
static void print_row(const char *name, double bytes, double all, const char *note)
{
    char count[COUNT_TEXT], size[RT_BYTES_TEXT], share[16] = "";
    if (all > 0)
        snprintf(share, sizeof share, "%.1f %%", 100 * bytes / all);
    printf("  %-18s %17s %12s %7s%s%s\n", name, count_text(bytes, count), rt_bytes(bytes, size),
           share, note[0] ? "  " : "", note);
}

static void print_parts(const Part *part, int n, double all)
{
    for (int i = 0; i < n; i++)
        if (part[i].bytes > 0)
            print_row(part[i].name, part[i].bytes, all, part[i].note);
}

/* Every part in bytes, their sums, and what was in use before if that was more. */
static void print_table(const RtMemory *need)
{
    Part part[PARTS];
    const bool host = rt_place_is_host();
    const double sum = need->needed + need->held;
    const int n = parts_of(need, OF_PLACE, part);
    printf("  %-18s %17s\n", "memory", "bytes");
    print_parts(part, n, host ? sum : need->place);
    if (!host)
        print_row("on the GPU", need->place, need->place, "in one allocation");
    print_parts(part, parts_of(need, OF_HOST, part), sum);
    print_row(host ? "in all" : "on the host", sum, sum,
              need->saving > 0 ? "while a checkpoint is written" : "in a step");
    if (need->total > sum)
        print_row("before that", need->total, 0, "while the data were read");
}

/* The arena where it is fullest, by line of the model: the largest first. */
static void print_alive(const RtModel *m, const RtOptions *o)
{
    if (m->n_alive == 0)
        return;
    RtAlive *row = rt_alloc((size_t)m->n_alive * sizeof *row, "the report on memory");
    double all = 0;
    m->alive(o->dims, row);
    for (int i = 0; i < m->n_alive; i++)
        all += (double)row[i].bytes;
    printf("\n  the arena in step %d, where it is fullest, by line of the model\n", m->fullest);
    for (int i = 0; i < m->n_steps; i++)
        if (m->steps[i].number == m->fullest)
            printf("  (%s: %s)\n", m->steps[i].where, m->steps[i].how);
    for (int i = 0; i < m->n_alive; i++) {
        int best = i; /* the rows are sorted at the sizes of the train block, not at these */
        for (int k = i + 1; k < m->n_alive; k++)
            best = row[k].bytes > row[best].bytes ? k : best;
        const RtAlive take = row[best];
        memmove(row + i + 1, row + i, (size_t)(best - i) * sizeof *row);
        row[i] = take;
        print_row(take.line, (double)take.bytes, all, take.values);
    }
    rt_free(row);
}

/* ---- what would fit -------------------------------------------------------------------------- */

typedef struct {
    const RtModel *m;
    const RtOptions *o;
    const RtData *data;
    int use;
    double room;
} Asked;

/* Of the memory that runs short: the GPU's, where there is one. */
static double short_bytes(const RtMemory *need)
{
    return rt_place_is_host() ? need->needed : need->place;
}

/* Compiled with --recompute=blocks, about: the arena of a step shrinks, not that of a validation */
static double blocks_bytes(const Asked *a, const RtMemory *need, const ptrdiff_t *dims)
{
    const double most = a->use & RT_USE_EVAL ? (double)a->m->arena_bytes(dims, RT_ENTRY_EVAL) : 0;
    const double arena = fmax(a->m->blocks * need->arena, most);
    return a->m->blocks > 0 ? short_bytes(need) - need->arena + arena : short_bytes(need);
}

static bool accumulate_fits(const Asked *a, int64_t accumulate, bool blocks)
{
    RtOptions other = *a->o;
    other.train.accumulate = accumulate;
    for (int i = 0; i < a->m->n_dims; i++)
        if (a->m->dims[i].batch)
            other.dims[i] = rt_micro_batch(&other.train);
    const RtMemory need = rt_run_memory(a->m, &other, a->data, a->use);
    return (blocks ? blocks_bytes(a, &need, other.dims) : short_bytes(&need)) <= a->room;
}

/* The fewest micro-steps whose activations fit, 0 = none do: over the divisors of the batch. */
static int64_t accumulate_that_fits(const Asked *a, bool blocks)
{
    const int64_t batch = rt_rank_batch(&a->o->train) / rt_leaves(), now = a->o->train.accumulate;
    int64_t root = 1;
    for (; root <= batch / root && root < 1000000; root++)
        if (batch % root == 0 && root > now && accumulate_fits(a, root, blocks))
            return root;
    for (int64_t i = root; i > 0; i--)
        if (batch % i == 0 && batch / i > now && accumulate_fits(a, batch / i, blocks))
            return batch / i;
    return 0;
}

/* What gradcc would have to be told, and about what the run would need then: from the sizes of this
   program, with the arena in other bits. */
typedef struct {
    const char *option;
    double bytes;
    bool both; /* two options */
} Change;

enum { CHANGES = 4 };

static int changes_of(const Asked *a, const RtMemory *need, Change change[CHANGES])
{
    const RtModel *m = a->m;
    const bool fp32 = m->real == RT_F32 && m->compute != RT_BF16 && m->compute != RT_F16;
    const double copy = 2 * (double)m->n_elems, blocks = blocks_bytes(a, need, a->o->dims);
    const double now = short_bytes(need), in_blocks = blocks - (now - need->arena);
    int n = 0;
    if (m->blocks > 0)
        change[n++] = (Change){ "--recompute=blocks", blocks, false };
    if (m->real == RT_F64)
        change[n++] = (Change){ "--precision=fp32", now / 2, false };
    if (fp32)
        change[n++] = (Change){ "--precision=bf16", now - need->arena / 2 + copy, false };
    if (fp32 && m->blocks > 0)
        change[n++] = (Change){ "--precision=bf16 --recompute=blocks",
                                blocks - in_blocks / 2 + copy, true };
    return n;
}

/* "\nhint: compiled with gradcc --recompute=blocks it needs about 1 GiB": all that fit, two
   options only where none does alone; with micro-steps (alone: never) if nothing else fits. */
static const char *changes_text(const Asked *a, const RtMemory *need, bool alone, Text *text)
{
    Change change[CHANGES];
    char bytes[RT_BYTES_TEXT];
    const int n_changes = changes_of(a, need, change);
    size_t n = 0;
    text->at[0] = 0;
    for (int i = 0; i < n_changes; i++)
        if (change[i].bytes <= a->room && !(change[i].both && n > 0))
            n += (size_t)snprintf(text->at + n, sizeof text->at - n, "%s%s%s about %s",
                                  n ? ", with " : "\nhint: compiled with gradcc ", change[i].option,
                                  n ? "" : " it needs", rt_bytes(change[i].bytes, bytes));
    const bool more = n == 0 && !alone && a->m->blocks > 0;
    const int64_t fits = more ? accumulate_that_fits(a, true) : 0;
    if (fits)
        snprintf(text->at, sizeof text->at,
                 "\nhint: compiled with gradcc --recompute=blocks it fits with --accumulate %lld",
                 (long long)fits);
    return text->at;
}

/* Is there a size that --dims sets? */
static bool has_dims(const RtModel *m)
{
    for (int i = 0; i < m->n_dims; i++)
        if (!m->dims[i].batch)
            return true;
    return false;
}

/* Ranks of one host share what is free there. */
static double host_room(void)
{
    const double room = rt_memory_free();
    return room < 0 ? room : room / rt_local_ranks();
}

static const char *sharing(void)
{
    const int ranks = rt_local_ranks();
    return ranks > 1 ? rt_keep(rt_printf(" for each of %d ranks on this host", ranks)) : "";
}

__attribute__((noreturn)) static void refuse(const Asked *a, const RtMemory *need)
{
    const bool trains = a->o->command == RT_DO_TRAIN;
    const char *who = trains                        ? "the run"
                      : a->o->command == RT_DO_EVAL ? "validation"
                                                    : "generating";
    const int64_t fits = a->o->command != RT_DO_GENERATE ? accumulate_that_fits(a, false) : 0;
    const char *place = rt_place_name(),
               *where = place ? rt_keep(rt_printf(" on %s", place)) : sharing();
    Text parts, changes = { "" };
    char bytes[RT_BYTES_TEXT];
    const char *left = rt_bytes(a->room, bytes);
    parts_text(need, place ? OF_PLACE : OF_ALL, false, &parts);
    if (trains)
        changes_text(a, need, fits > 0, &changes);
    if (fits)
        rt_fail(RT_EXIT_FAIL,
                "%s needs more memory than the %s free%s: %s\nhint: --accumulate %lld fits and "
                "gives the same %s; --force starts anyway%s",
                who, left, where, parts.at, (long long)fits, trains ? "update" : "result",
                changes.at);
    rt_fail(RT_EXIT_FAIL,
            "%s needs more memory than the %s free%s: %s\nhint: a smaller model%s; --force starts "
            "anyway%s%s",
            who, left, where, parts.at, has_dims(a->m) ? ", or shorter dims (--dims)" : "",
            trains ? "; no number of micro-steps helps" : "", changes.at);
}

/* ---- before a run ---------------------------------------------------------------------------- */

static double planned, planned_place;

double rt_memory_planned(void) { return planned; }
double rt_memory_planned_place(void) { return planned_place; }

static void print_needed(const RtMemory *need, double room)
{
    Text parts;
    char bytes[RT_BYTES_TEXT];
    const bool host = rt_place_is_host();
    printf("memory   %s; %s free%s\n", parts_text(need, host ? OF_ALL : OF_PLACE, true, &parts),
           room < 0 ? "unknown" : rt_bytes(room, bytes), host ? sharing() : " on the GPU");
    if (!host)
        printf("host     %s; %s free%s\n", parts_text(need, OF_HOST, true, &parts),
               host_room() < 0 ? "unknown" : rt_bytes(host_room(), bytes), sharing());
}

void rt_memory_check(const RtModel *m, const RtOptions *o, const RtData *data, int use)
{
    const RtMemory need = rt_run_memory(m, o, data, use);
    const double room = rt_place_is_host() ? host_room() : rt_place_memory_free();
    const Asked asked = { m, o, data, use, room };
    if (rt_ranks() > 1) /* none has taken it before all have looked */
        rt_comm_barrier(rt_comm_world(), "looking for memory");
    planned = need.total;
    planned_place = rt_place_is_host() ? 0 : need.place;
    if (o->command == RT_DO_TRAIN)
        print_needed(&need, room);
    if (o->command == RT_DO_TRAIN && o->dry_run) {
        print_table(&need);
        print_alive(m, o);
    }
    if (room >= 0 && short_bytes(&need) > room && !o->force && !o->dry_run)
        refuse(&asked, &need);
}
