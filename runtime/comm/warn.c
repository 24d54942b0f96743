/* warn.c -- warnings of all ranks, each told once, by rank 0.
 *
 * In: what ranks warn of. Out: of rank 0 all, as ever; of the others what rank 0 has not said, with
 * their number: a checkpoint that one host has damaged, say. The one idea: most warnings come on
 * all ranks at about the same time, so what others say waits until rank 0 has come as far.
 */
#include "comm/comm.h"

enum { SAID = 256 };

static struct {
    uint64_t hash[SAID]; /* of texts, the oldest goes */
    int n;
} said;

static bool is_new(const char *text)
{
    const uint64_t hash = rt_hash_text(text);
    for (int i = 0; i < SAID && i < said.n; i++)
        if (said.hash[i] == hash)
            return false;
    said.hash[said.n++ % SAID] = hash;
    return true;
}

static void on_warning(const char *text)
{
    if (rt_rank() == 0)
        (void)is_new(text);
    else
        rt_store_warn(text);
}

void rt_warnings_start(void) { rt_on_warning = on_warning; }

void rt_warnings_tell(void)
{
    char name[32], *text;
    int rank;
    while (rt_ranks() > 1 && rt_rank() == 0 && (text = rt_store_heard(&rank))) {
        snprintf(name, sizeof name, "rank %d", rank);
        if (is_new(text))
            rt_warn_as(name, text);
        free(text);
    }
}
