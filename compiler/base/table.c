/* table.c -- growable arrays, maps by pointer, interned strings, checksums.
 *
 * In: pointers and bytes. Out: tables in an arena. Hash tables use open addressing with linear
 * probing and double when half full; their order is never shown, so output stays reproducible.
 */
#include "base/base.h"

#include <string.h>

/* ---- growable arrays ----------------------------------------------------------------------- */

void vec_grow(Arena *a, void **at, int *cap, int want, size_t size)
{
    if (want <= *cap)
        return;
    int new_cap = *cap < 4 ? 8 : *cap * 2;
    if (new_cap < want)
        new_cap = want;
    void *grown = arena_alloc(a, (size_t)new_cap * size);
    if (*cap > 0)
        memcpy(grown, *at, (size_t)*cap * size);
    *at = grown;
    *cap = new_cap;
}

/* ---- maps from pointers to pointers -------------------------------------------------------- */

typedef struct {
    const void *key;
    void *value;
} Entry;

struct Map {
    Arena *arena;
    Entry *at;
    size_t n, cap; /* cap is a power of two */
};

static size_t map_hash(const void *key)
{
    uint64_t bits = (uint64_t)(uintptr_t)key;
    return (size_t)((bits * UINT64_C(0x9e3779b97f4a7c15)) >> 20);
}

/* The slot of key, or the free slot where it belongs. */
static Entry *map_slot(Entry *at, size_t cap, const void *key)
{
    size_t i = map_hash(key) & (cap - 1);
    while (at[i].key != NULL && at[i].key != key)
        i = (i + 1) & (cap - 1);
    return &at[i];
}

Map *map_new(Arena *a)
{
    Map *m = NEW(a, Map);
    m->arena = a;
    m->cap = 16;
    m->at = NEW_ARRAY(a, Entry, m->cap);
    return m;
}

void *map_get(const Map *m, const void *key)
{
    return key == NULL ? NULL : map_slot(m->at, m->cap, key)->value;
}

void map_set(Map *m, const void *key, void *value)
{
    if (key == NULL)
        bug("a map entry without a key");
    if (2 * (m->n + 1) > m->cap) {
        Entry *grown = NEW_ARRAY(m->arena, Entry, 2 * m->cap);
        for (size_t i = 0; i < m->cap; i++)
            if (m->at[i].key != NULL)
                *map_slot(grown, 2 * m->cap, m->at[i].key) = m->at[i];
        m->at = grown;
        m->cap *= 2;
    }
    Entry *e = map_slot(m->at, m->cap, key);
    if (e->key == NULL)
        m->n++;
    e->key = key;
    e->value = value;
}

/* ---- interned strings ---------------------------------------------------------------------- */

typedef struct {
    const char *text;
    size_t len;
    uint64_t hash;
} Interned;

typedef struct {
    Interned *at;
    size_t n, cap; /* cap is a power of two */
} InternTable;

static Interned *intern_slot(Interned *at, size_t cap, const char *s, size_t len, uint64_t hash)
{
    size_t i = (size_t)hash & (cap - 1);
    while (at[i].text != NULL
           && !(at[i].hash == hash && at[i].len == len && memcmp(at[i].text, s, len) == 0))
        i = (i + 1) & (cap - 1);
    return &at[i];
}

static InternTable *intern_table(Context *cx)
{
    if (cx->interned == NULL) {
        InternTable *fresh = NEW(cx->arena, InternTable);
        fresh->cap = 512;
        fresh->at = NEW_ARRAY(cx->arena, Interned, fresh->cap);
        cx->interned = fresh;
    }
    return cx->interned;
}

const char *intern_n(Context *cx, const char *s, size_t len)
{
    InternTable *t = intern_table(cx);
    if (2 * (t->n + 1) > t->cap) {
        Interned *grown = NEW_ARRAY(cx->arena, Interned, 2 * t->cap);
        for (size_t i = 0; i < t->cap; i++) {
            const Interned *old = &t->at[i];
            if (old->text != NULL)
                *intern_slot(grown, 2 * t->cap, old->text, old->len, old->hash) = *old;
        }
        t->at = grown;
        t->cap *= 2;
    }
    uint64_t hash = hash_bytes(s, len, 0);
    Interned *slot = intern_slot(t->at, t->cap, s, len, hash);
    if (slot->text == NULL) {
        slot->text = arena_strndup(cx->arena, s, len);
        slot->len = len;
        slot->hash = hash;
        t->n++;
    }
    return slot->text;
}

const char *intern(Context *cx, const char *s) { return intern_n(cx, s, strlen(s)); }

const char *intern_printf(Context *cx, const char *fmt, ...)
{
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int len = vsnprintf(small, sizeof small, fmt, ap);
    const char *s = small;
    va_end(ap);
    if (len < 0)
        bug("a name that cannot be formatted: %s", fmt);
    if ((size_t)len >= sizeof small) {
        char *large = arena_alloc(cx->arena, (size_t)len + 1);
        vsnprintf(large, (size_t)len + 1, fmt, again);
        s = large;
    }
    va_end(again);
    return intern_n(cx, s, (size_t)len);
}

/* ---- checksums ----------------------------------------------------------------------------- */

uint64_t hash_bytes(const void *p, size_t len, uint64_t seed)
{
    const unsigned char *s = p;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < len; i++)
        h = (h ^ s[i]) * UINT64_C(0x100000001b3);
    return h ^ (h >> 29); /* low bits index tables: fold the high ones in */
}

uint32_t crc32_of(const void *p, size_t len)
{
    static const uint32_t nibble[16] = {
        /* the polynomial 0xedb88320, four bits at a time */
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const unsigned char *s = p;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= s[i];
        crc = (crc >> 4) ^ nibble[crc & 15];
        crc = (crc >> 4) ^ nibble[crc & 15];
    }
    return ~crc;
}
