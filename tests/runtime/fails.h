/* fails.h -- runs a function in a child and gives what it printed and how it ended. */
#ifndef GRADCC_TEST_FAILS_H
#define GRADCC_TEST_FAILS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int exit_code, signal;
    char text[8192];
} Ended; /* signal 0: it exited */

static inline Ended run_child(void (*what)(void *), void *arg)
{
    Ended ended = { .signal = 0 };
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        what(arg);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n + 1 < sizeof ended.text; n += got > 0 ? (size_t)got : 0)
        got = read(ends[0], ended.text + n, sizeof ended.text - 1 - n);
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return ended;
}

/* Fails the test unless `what` ends with this code and a message that has this part. */
#define expect_end(what, arg, code, part)                                                          \
    do {                                                                                           \
        const Ended ended_ = run_child(what, arg);                                                 \
        if (ended_.exit_code != (code) || !strstr(ended_.text, part))                              \
            fail_msg("ended with %d, signal %d: %s\nwanted %d: %s", ended_.exit_code,              \
                     ended_.signal, ended_.text, code, part);                                      \
    } while (0)

static inline void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static inline void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}

#endif
