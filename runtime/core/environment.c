/* environment.c -- RT_ variables of the environment: those that take one of a few words.
 *
 * In: the environment. Out: their values. The one idea: a word that means nothing would leave a
 * run as it is, and whoever set it would believe otherwise; so it ends the program, at its start.
 */
#include <stdlib.h>

#include "run.h"

extern char **environ;

/* The words of a variable; NULL: any text, a file or a folder. only_gpu: one that a CPU's program
   would have to obey, by its name, and cannot. */
static const struct {
    const char *name, *words;
    bool only_gpu;
} known[] = {
    { "RT_MATMUL", "library|plain", false },
    { "RT_MATMUL_BF16", "native|unpack", false },
    { "RT_ATTENTION", "own|cudnn", true },
    { "RT_CUDA_GRAPH", "0|1", false },
    { "RT_CUDA_SYNC", "0|1", false },
    { "RT_CUDA_TUNE", "on|off", false },
    { "RT_CUDA_EPILOGUE", "on|off|probe", false },
    { "RT_CUDA_CACHE", NULL, false },
    { "RT_CUDA_PROFILE", NULL, false },
    { "RT_CUBLASLT", NULL, false },
    { "RT_CUDNN", NULL, false },
    { "RT_NCCL", NULL, false },
    { "RT_FAULT", NULL, false }, /* base.c: of tests */
};
enum { KNOWN = sizeof known / sizeof *known };

static bool is_word(const char *value, const char *words)
{
    const size_t len = strlen(value);
    for (const char *s = words; *s; s += *s == '|') {
        const size_t n = strcspn(s, "|");
        if (n == len && memcmp(s, value, n) == 0)
            return true;
        s += n;
    }
    return false;
}

const char *rt_environment(const char *name)
{
    const char *value = getenv(name);
    for (int i = 0; value && *value && i < KNOWN; i++)
        if (strcmp(name, known[i].name) == 0 && known[i].words && !is_word(value, known[i].words))
            rt_fail(RT_EXIT_USAGE, "%s=%s is none of %s", name, value, known[i].words);
    return value && *value ? value : NULL;
}

bool rt_environment_is(const char *name, const char *word)
{
    const char *value = rt_environment(name);
    return value && strcmp(value, word) == 0;
}

/* "A, B, C" */
static void known_names(char *to, size_t most)
{
    size_t n = 0;
    for (int i = 0; i < KNOWN && n < most; i++)
        n += (size_t)snprintf(to + n, most - n, "%s%s", i ? ", " : "", known[i].name);
}

void rt_environment_check(void)
{
    for (int i = 0; i < KNOWN; i++)
        if (rt_environment(known[i].name) && known[i].only_gpu && rt_place_is_host())
            rt_warn("%s of the environment means nothing here: the program is for a CPU",
                    known[i].name);
    for (char **at = environ; *at; at++) {
        const size_t len = strcspn(*at, "=");
        bool there = false;
        char names[512];
        if (strncmp(*at, "RT_", 3) != 0)
            continue;
        for (int i = 0; i < KNOWN; i++)
            there = there || (strlen(known[i].name) == len && !memcmp(known[i].name, *at, len));
        if (there)
            continue;
        known_names(names, sizeof names);
        rt_warn("%.*s of the environment means nothing\nhint: there are %s", (int)len, *at, names);
    }
}
