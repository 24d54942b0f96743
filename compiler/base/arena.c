/* arena.c -- memory that is given back all at once.
 *
 * In: sizes. Out: zeroed memory, aligned to 16 bytes. A list of blocks is filled from the front;
 * a reset keeps the blocks and starts again at the first, so a pass costs no malloc once warm.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 18, ALIGN = 16 };

typedef struct Block {
    struct Block *next;
    size_t size, used; /* bytes of data, bytes handed out */
} Block;

struct Arena {
    Block *first;
    Block *now; /* the block being filled */
};

static size_t align_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* The data of a block starts behind its header. */
static char *block_data(Block *b) { return (char *)b + align_up(sizeof *b); }

static Block *block_new(size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    Block *b = malloc(align_up(sizeof *b) + size);
    if (b == NULL) {
        fprintf(stderr, "gradcc: error: out of memory (%zu bytes asked)\n", size);
        exit(1);
    }
    b->next = NULL;
    b->size = size;
    b->used = 0;
    return b;
}

Arena *arena_new(void)
{
    Block *b = block_new(0);
    Arena *a = (Arena *)block_data(b); /* the arena lives in its own first block */
    b->used = align_up(sizeof *a);
    a->first = b;
    a->now = b;
    return a;
}

void arena_reset(Arena *a)
{
    for (Block *b = a->first; b != NULL; b = b->next)
        b->used = 0;
    a->first->used = align_up(sizeof *a);
    a->now = a->first;
}

void arena_free(Arena *a)
{
    Block *next;
    for (Block *b = a->first; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
}

void *arena_alloc(Arena *a, size_t bytes)
{
    if (bytes > (size_t)PTRDIFF_MAX / 2)
        bug("an allocation of %zu bytes", bytes);
    size_t need = align_up(bytes);
    while (a->now->size - a->now->used < need) {
        if (a->now->next == NULL || a->now->next->size < need) {
            Block *b = block_new(need); /* in front of blocks that are too small */
            b->next = a->now->next;
            a->now->next = b;
        }
        a->now = a->now->next;
    }
    char *p = block_data(a->now) + a->now->used;
    a->now->used += need;
    return memset(p, 0, need);
}

char *arena_strndup(Arena *a, const char *s, size_t len)
{
    char *copy = arena_alloc(a, len + 1);
    memcpy(copy, s, len);
    return copy;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    char small[200];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int len = vsnprintf(small, sizeof small, fmt, ap);
    char *s;
    if (len < 0)
        bug("text that cannot be formatted: %s", fmt);
    if ((size_t)len < sizeof small) {
        s = arena_strndup(a, small, (size_t)len);
    } else {
        s = arena_alloc(a, (size_t)len + 1);
        vsnprintf(s, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    va_end(ap);
    return s;
}
