/* groups.c -- all ranks, and groups of them; and what exchanges of any kind are made of.
 *
 * In: colours. Out: RtComm. The one idea: who is in a group, and as which number, is known from the
 * colours of all; what a back end needs besides, it makes itself (exchange_join).
 */
#include "comm/exchange.h"

static RtComm world = { .size = 1 };

void exchange_set_world(int rank, int size) { world = (RtComm){ .rank = rank, .size = size }; }

const RtComm *rt_comm_world(void) { return &world; }

int rt_comm_rank(const RtComm *c) { return c->rank; }

int rt_comm_size(const RtComm *c) { return c->size; }

RtComm *rt_comm_split(const RtComm *c, int colour)
{
    RtComm *part = rt_alloc(sizeof *part, "a group of ranks");
    double *colours = rt_alloc((size_t)c->size * sizeof *colours, "a group of ranks");
    int first = -1;
    colours[c->rank] = colour;
    rt_comm_all_gather(c, colours, c->size, RT_F64, "the colours of a split");
    for (int r = 0; r < c->size; r++)
        if ((int)colours[r] == colour) {
            first = first < 0 ? r : first;
            part->size++;
            part->rank += r < c->rank;
        }
    rt_free(colours);
    exchange_join(c, colour, first, part);
    return part;
}

void rt_comm_free(RtComm *c)
{
    if (c && c->group)
        exchange_leave(c->group);
    rt_free(c);
}

size_t exchange_bytes_of(RtType type) { return type == RT_F64 ? sizeof(double) : sizeof(float); }

void rt_comm_sum(void *at, ptrdiff_t n, RtType type, const char *what)
{
    rt_comm_all_reduce(&world, at, n, type, RT_SUM, what);
}

int rt_comm_signal(void)
{
    double signal = rt_signal_pending();
    rt_comm_all_reduce(&world, &signal, 1, RT_F64, RT_MAX, "the signals of an update");
    return (int)signal;
}
