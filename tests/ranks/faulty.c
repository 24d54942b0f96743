/* faulty.c -- a back end that is Gloo, but for what FAULT says, on the rank that has it:
 *
 *     version      it is of another version
 *     bit:N        of the Nth gathering of gradients one bit of what has come is flipped
 *     late:N       the Nth sum of gradients takes 4 s more
 *     stop, hang   it does not come to the first exchange: the process is stopped, or its main
 *                  thread waits for ever
 *     kill:N       in it the process is killed
 *     behind:N     the Nth gathering of gradients is done, and 4 s later this rank goes on
 *
 * In: GLOO, the path of the real one. Compiled as libgradcc_gloo.so, for LD_LIBRARY_PATH.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/wire.h"

static const RtWire *real;
static int rank, size;
static int bit, late, dies, behind; /* exchanges until then, this one included; 0 = never */

static const struct {
    const char *name;
    int *left;
} counts[] = { { "bit:", &bit }, { "late:", &late }, { "kill:", &dies }, { "behind:", &behind } };

static const char *open_real(RtWireOpen *o)
{
    const char *fault = getenv("FAULT");
    void *library = dlopen(GLOO, RTLD_NOW);
    real = library ? dlsym(library, "rt_wire") : NULL;
    if (!real)
        return "no Gloo";
    rank = o->rank;
    size = o->size;
    if (fault && strcmp(fault, "stop") == 0)
        (void)raise(SIGSTOP);
    while (fault && strcmp(fault, "hang") == 0)
        (void)pause();
    const char *wrong = real->open(o);
    if (fault && strcmp(fault, "version") == 0)
        o->version = "Gloo 9.9.9";
    for (size_t i = 0; fault && i < sizeof counts / sizeof *counts; i++)
        if (strncmp(fault, counts[i].name, strlen(counts[i].name)) == 0)
            *counts[i].left = atoi(fault + strlen(counts[i].name));
    return wrong;
}

static const char *split(void *g, int colour, int me, void **part)
{
    return real->split(g, colour, me, part);
}

static void free_part(void *part) { real->free(part); }

static const char *scatter_gather(void *g, const void *from, const size_t *at, const size_t *n,
                                  void *to, size_t each)
{
    if (late > 0 && each > 4096 && --late == 0)
        (void)sleep(4);
    if (dies > 0 && each > 4096 && --dies == 0)
        (void)raise(SIGKILL);
    return real->scatter_gather(g, from, at, n, to, each);
}

static const char *all_gather(void *g, void *base, const size_t *at, const size_t *n)
{
    const char *wrong = real->all_gather(g, base, at, n);
    const int from = (rank + 1) % size;
    const bool gradients = n[from] > 4096;
    if (bit > 0 && gradients && --bit == 0)
        ((char *)base)[at[from] + 6] ^= 1;
    if (behind > 0 && gradients && --behind == 0)
        (void)sleep(4);
    return wrong;
}

static const char *broadcast(void *g, void *at, size_t n, int root)
{
    return real->broadcast(g, at, n, root);
}

static const char *send(void *g, const void *at, size_t n, int to)
{
    return real->send(g, at, n, to);
}

static const char *recv(void *g, void *at, size_t n, int from)
{
    return real->recv(g, at, n, from);
}

static const char *barrier(void *g) { return real->barrier(g); }

static void close_real(void) { real->close(); }

const RtWire rt_wire = {
    .abi = RT_WIRE_ABI,
    .name = "gloo",
    .open = open_real,
    .split = split,
    .free = free_part,
    .scatter_gather = scatter_gather,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .close = close_real,
};
