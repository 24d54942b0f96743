/* environment.c -- RT_ variables of the environment: those that take one of a few words.
 *
 * In: the environment. Out: their values. The one idea: a word that means nothing would leave a
 * run as it is, and whoever set it would believe otherwise; so it ends the program, at its start.
 */
#include <stdlib.h>

#include "run.h"

extern char **environ;

/* The words of a variable; NULL: any text, a file or a folder. */
static const struct {
    const char *name, *words;
} known[] = {
    { "RT_MATMUL", "library|plain" }, { "RT_MATMUL_BF16", "native|unpack" },
    { "RT_CUDA_GRAPH", "0|1" },       { "RT_CUDA_SYNC", "0|1" },
    { "RT_CUDA_TUNE", "on|off" },     { "RT_CUDA_EPILOGUE", "on|off|probe" },
    { "RT_CUDA_CACHE", NULL },        { "RT_CUDA_PROFILE", NULL },
    { "RT_ATTENTION", "own|cudnn" },
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

void rt_environment_check(void)
{
    for (int i = 0; i < KNOWN; i++)
        (void)rt_environment(known[i].name);
    for (char **at = environ; *at; at++) {
        const size_t len = strcspn(*at, "=");
        bool there = false;
        if (strncmp(*at, "RT_CUDA_", 8) != 0 && strncmp(*at, "RT_MATMUL", 9) != 0)
            continue;
        for (int i = 0; i < KNOWN; i++)
            there = there || (strlen(known[i].name) == len && !memcmp(known[i].name, *at, len));
        if (!there)
            rt_warn("%.*s of the environment means nothing\nhint: there are RT_MATMUL, "
                    "RT_MATMUL_BF16, and RT_CUDA_ with GRAPH, SYNC, TUNE, EPILOGUE, CACHE, PROFILE",
                    (int)len, *at);
    }
}
