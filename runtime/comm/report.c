/* report.c -- the error file of torchrun: what a process that ends with an error leaves there
 * stands in torchrun's own report of the failure.
 *
 * In: TORCHELASTIC_ERROR_FILE, a text. Out: the file, in the form of PyTorch's
 * distributed/elastic/multiprocessing/errors. Without the variable: nothing.
 */
#include <jansson.h>
#include <time.h>

#include "comm/comm.h"

void rt_report_failure(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char now[32];
    if (!path || !*path)
        return;
    snprintf(now, sizeof now, "%lld", (long long)time(NULL));
    /* torchrun prints the call stack, which is that of Python; here it is the message again */
    json_t *root = json_pack("{s:{s:s, s:{s:s, s:s}}}", "message", "message", text, "extraInfo",
                             "py_callstack", text, "timestamp", now);
    char *json = root ? json_dumps(root, 0) : NULL;
    FILE *file = json ? fopen(path, "w") : NULL; /* best effort: the message is on stderr, too */
    if (file) {
        fputs(json, file);
        (void)fclose(file);
    }
    free(json);
    json_decref(root);
}
