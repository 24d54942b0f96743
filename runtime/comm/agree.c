/* agree.c -- do all ranks train the same thing, before the first update; and do they have the same
 * parameters, later on?
 *
 * In: what decides what this rank computes, a line each: the program's own bytes, libraries,
 * variables, settings, data, the checkpoint it goes on from, parameters. Out: nothing, or the end
 * of all ranks with a table of what differs where. The one idea: rank 0 reads the lines of all from
 * the store and compares them with its own.
 */
#include <errno.h>
#include <fcntl.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "comm/comm.h"

enum { LINES = 1 << 14, TABLE = 1 << 12 };

/* What may differ from rank to rank: where files lie, and how fast a rank is. */
static bool is_own(const char *line)
{
    static const char *const own[] = { "\"data\"", "\"val_data\"", "\"threads\"" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncmp(line, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

/* ---- what this rank has ---------------------------------------------------------------------- */

static uint64_t hash_of_program(void)
{
    static char part[1 << 16];
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    const int fd = rt_open("/proc/self/exe", O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1 : 0;
    while (fd >= 0 && (n = rt_read_some(fd, part, sizeof part)) > 0)
        XXH3_64bits_update(&state, part, (size_t)n);
    if (n < 0)
        rt_fail(RT_EXIT_FAIL, "/proc/self/exe: cannot be read: %s", strerror(errno));
    (void)rt_io.close(fd);
    return XXH3_64bits_digest(&state);
}

typedef struct {
    uint64_t program, data, sums, parameters;
    const char *products, *checkpoint;
    int64_t step;
} Things;

/* Variables that change bits, a line each. */
static void environment_lines(char *to, size_t most)
{
    static const char *const names[] = { "RT_MATMUL", "RT_ATTENTION", "RT_CUDA_EPILOGUE",
                                         "NCCL_ALGO", "NCCL_PROTO" };
    const int all = sizeof names / sizeof *names;
    size_t n = 0;
    for (int i = 0; i < (rt_place_is_host() ? 1 : all); i++) {
        const char *value = getenv(names[i]);
        n += (size_t)snprintf(to + n, most - n, "%s: %.100s\n", names[i],
                              value && *value ? value : "unset");
    }
}

/* A line for each of them, "NAME: VALUE", and for each setting. Allocated. */
static char *lines_of(const RtModel *m, const RtOptions *o, const Things *t)
{
    char *settings = rt_config_text(m, o), environment[1024];
    environment_lines(environment, sizeof environment);
    char *lines = rt_printf(
        "program: %016llx\ndata: %016llx\ncomm-dtype: %s\nsums by: %s\nproducts by: %s\n"
        "products: %s\n%scheckpoint: %s, step %lld\nparameters: %016llx\nsums: %016llx\n%s",
        (unsigned long long)t->program, (unsigned long long)t->data, o->comm_dtype,
        rt_comm_version(), rt_products_library(m), t->products, environment, t->checkpoint,
        (long long)t->step, (unsigned long long)t->parameters, (unsigned long long)t->sums,
        settings);
    rt_free(settings);
    return lines;
}

static char *own_lines(const RtRun *run, const char *checkpoint)
{
    const RtState *state = run->state;
    const Things own = {
        .program = hash_of_program(),
        .data = rt_data_hash(state->data),
        .sums = rt_buckets_hash(state->buckets),
        .parameters = rt_place_hash(run->p, rt_params_bytes(run->model)),
        .products = rt_products_name(rt_products_now()),
        .checkpoint = checkpoint ? checkpoint : "none",
        .step = state->step,
    };
    return lines_of(run->model, state->opt, &own);
}

/* ---- compared -------------------------------------------------------------------------------- */

/* The next line, without indent and comma, in place; NULL at the end. */
static char *next_line(char **at)
{
    char *line = *at + strspn(*at, " \n");
    if (!*line)
        return NULL;
    const size_t n = strcspn(line, "\n");
    *at = line + n + (line[n] != 0);
    line[n] = 0;
    if (n > 0 && line[n - 1] == ',')
        line[n - 1] = 0;
    return line;
}

/* Adds what rank r has otherwise to the table; lines of both in the same order. */
static void compare(int r, char *ours, char *theirs, char *table, size_t *at)
{
    for (;;) {
        const char *mine = next_line(&ours), *other = next_line(&theirs);
        if (!mine && !other)
            return;
        mine = mine ? mine : "nothing more";
        other = other ? other : "nothing more";
        if (strcmp(mine, other) == 0 || is_own(mine) || *at > TABLE - 512)
            continue;
        *at += (size_t)snprintf(table + *at, TABLE - *at,
                                "\n  rank %-4d %.180s\n  rank %-4d %.180s", 0, mine, r, other);
        if (strncmp(mine, "program:", 8) == 0) /* then all may differ */
            return;
    }
}

static void compare_all(const char *own, const char *verb)
{
    char table[TABLE] = "", key[32];
    size_t at = 0;
    for (int r = 1; r < rt_ranks(); r++) {
        snprintf(key, sizeof key, "agree/%d", r);
        char *theirs = rt_store_await(key, RT_PATIENCE, NULL), *ours = rt_printf("%s", own);
        compare(r, ours, theirs, table, &at);
        rt_free(ours);
        free(theirs);
    }
    rt_warnings_tell();
    if (at > 0)
        rt_fail(RT_EXIT_USAGE,
                "ranks would not %s the same model:%s\nhint: the same program, flags and files on "
                "every host",
                verb, table);
    rt_store_set("agreed", "", 0);
}

void rt_agree(const RtRun *run, const char *checkpoint)
{
    if (rt_ranks() == 1)
        return;
    char *lines = own_lines(run, checkpoint), key[32];
    snprintf(key, sizeof key, "agree/%d", rt_rank());
    if (rt_rank() == 0)
        compare_all(lines, run->state->buckets ? "train" : "evaluate");
    else
        rt_store_set(key, lines, strlen(lines));
    free(rt_store_await("agreed", RT_PATIENCE, NULL));
    rt_free(lines);
}

/* ---- later on -------------------------------------------------------------------------------- */

/* The first rank of the most that have the same; of several such groups the one of the lowest. */
static int most_common(const uint64_t *hash, int ranks)
{
    int best = 0, most = 0;
    for (int r = 0; r < ranks; r++) {
        int n = 0;
        for (int s = 0; s < ranks; s++)
            n += hash[s] == hash[r];
        if (n > most)
            best = r, most = n;
    }
    return best;
}

/* "rank 1 (node1, process 12), rank 3 (node2, process 9) and 5 more": those that have that hash, or
   those that have others. */
static void name_ranks(const uint64_t *hash, int ranks, uint64_t wanted, bool same, int names,
                       char text[TABLE])
{
    char name[RT_WHO_TEXT];
    size_t at = 0;
    int n = 0;
    for (int r = 0; r < ranks; r++)
        if ((hash[r] == wanted) == same && n++ < names)
            at += (size_t)snprintf(text + at, TABLE - at, "%s%s", n > 1 ? ", " : "",
                                   rt_store_who(r, name));
    if (n > names)
        snprintf(text + at, TABLE - at, " and %d more", n - names);
}

void rt_agree_still(const RtRun *run, int64_t saved)
{
    static uint64_t hash[RT_MAX_RANKS];
    const int ranks = rt_ranks();
    bool same = true;
    if (ranks == 1)
        return;
    hash[rt_rank()] = rt_place_hash(run->p, rt_params_bytes(run->model));
    rt_comm_all_gather(rt_comm_world(), hash, ranks, RT_F64, "hashes of the parameters");
    for (int r = 1; r < ranks; r++)
        same = same && hash[r] == hash[0];
    rt_warnings_tell();
    if (same)
        return;
    while (rt_rank() > 0) /* rank 0 tells, and ends all */
        rt_comm_barrier(rt_comm_world(), "the end");
    const uint64_t most = hash[most_common(hash, ranks)];
    char others[TABLE], these[TABLE], newest[64] = "there is no checkpoint";
    name_ranks(hash, ranks, most, false, 8, others);
    name_ranks(hash, ranks, most, true, 1, these);
    if (saved >= 0)
        snprintf(newest, sizeof newest, "the last checkpoint is of step %lld", (long long)saved);
    rt_fail(RT_EXIT_FAIL,
            "step %lld: ranks have different parameters: those of %s are not those of %s\nhint: a "
            "network, memory or a processor there may be faulty; nothing of this step is written, "
            "%s",
            (long long)run->state->step, others, these, newest);
}

double rt_agree_bytes(const RtModel *m, const RtOptions *o)
{
    const Things longest = { .products = "native", .checkpoint = o->resume };
    if (rt_ranks() == 1)
        return 0;
    const double before = rt_memory_held();
    (void)rt_memory_lap();
    char *lines = lines_of(m, o, &longest), *ours = rt_printf("%s", lines);
    rt_free(ours);
    rt_free(lines);
    /* a GPU's library is not known yet; its name stands in two texts */
    return rt_memory_lap() - before + (rt_place_is_host() ? 0 : 2 * 32);
}
