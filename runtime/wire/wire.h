/* wire.h -- a back end: what moves bytes between ranks. Each is a shared library of its own,
 * libgradcc_NAME.so, that a program loads when it needs it; it exports rt_wire.
 *
 * Functions return NULL, or what went wrong, a text that lives until the next call. They are called
 * in the same order on every rank, one at a time: open, close and what is between open and the
 * first exchange by the main thread, the others by one more.
 */
#ifndef GRADCC_WIRE_H
#define GRADCC_WIRE_H

#include <stddef.h>

enum { RT_WIRE_ABI = 3 };

typedef struct {                            /* what open is given, and tells */
    int rank, size, local_rank, local_size; /* of the launcher; those of MPI are told here */
    const char *interface;                  /* NULL: that of the address */
    const char *address;                    /* of this host, as the store sees it */
    double timeout; /* seconds that peers may take to connect; who calls the rest watches over it */
    /* the store: set; get waits, and allocates by malloc */
    void (*set)(const char *key, const void *value, size_t n);
    char *(*get)(const char *key, size_t *n);
    const char *text;    /* told: "Open MPI 4.1.4", "Gloo 0.5.0 over eth0" */
    const char *version; /* told, the same on hosts with the same library: "Gloo 0.5.0" */
} RtWireOpen;

/* group: NULL for all ranks, or what split gave. */
typedef struct {
    int abi;
    const char *name;
    const char *(*open)(RtWireOpen *o);
    /* Where ranks are those of MPI, before there is a store (NULL: of other back ends): bytes of
       rank 0 go to all within so many seconds; all are ended. */
    const char *(*meet)(void *at, size_t n, double seconds);
    void (*abort)(int exit_code);
    const char *(*split)(void *group, int colour, int rank, void **part); /* in order of rank */
    void (*free)(void *part);
    /* Bytes n[r] at from + at[r] go to rank r; `each` bytes of each rank come, in their order. */
    const char *(*scatter_gather)(void *group, const void *from, const size_t *at, const size_t *n,
                                  void *to, size_t each);
    /* Bytes n[r] of rank r at base + at[r]; those of this rank are there. */
    const char *(*all_gather)(void *group, void *base, const size_t *at, const size_t *n);
    const char *(*broadcast)(void *group, void *at, size_t n, int root);
    const char *(*send)(void *group, const void *at, size_t n, int to);
    const char *(*recv)(void *group, void *at, size_t n, int from);
    const char *(*barrier)(void *group);
    void (*close)(void);
} RtWire;

#endif
