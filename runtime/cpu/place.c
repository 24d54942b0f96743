/* place.c -- buffers of a run in host memory: what cuda/place.cu is for a GPU.
 */
#include "run.h"

size_t rt_place_size(size_t bytes) { return bytes; }

void rt_place_start(const RtModel *m, const RtOptions *o, bool tell)
{
    RT_UNUSED(m);
    RT_UNUSED(o);
    RT_UNUSED(tell);
}

void rt_place_open(double bytes, const char *what)
{
    RT_UNUSED(bytes);
    RT_UNUSED(what);
}

void rt_place_close(void) {}

void *rt_place_alloc(size_t bytes, const char *what) { return rt_alloc(bytes, what); }
void *rt_place_take(size_t bytes, const char *what) { return rt_alloc(bytes, what); }
void rt_place_free(void *at) { rt_free(at); }
void rt_place_put(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void rt_place_get(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void rt_place_fill(void *at, int byte, size_t bytes) { memset(at, byte, bytes); }

const void *rt_place_look(const void *at, size_t bytes)
{
    RT_UNUSED(bytes);
    return at;
}

void *rt_place_window(void) { return NULL; }
double rt_place_taken(void) { return 0; }
double rt_place_memory_free(void) { return rt_memory_free(); }
const char *rt_place_name(void) { return NULL; }
bool rt_place_is_host(void) { return true; }
