/* rooms.c -- what products and attention work in: two rooms of each thread, kept between calls.
 *
 * In: the most that the calls of a program will ask for, told before its first step. Out: memory
 * that is there already when it is asked for, so that a step allocates nothing. The one idea: what
 * is asked for ahead and what is taken in a call come from the same functions of sizes and threads.
 */
#include "cpu/cpu.h"

typedef struct {
    void *at;
    size_t bytes;
} Room;

static _Thread_local Room rooms[RT_ROOM_COUNT]; /* of this thread; contents are not kept */

void *rt_cpu_room(int kind, size_t bytes)
{
    Room *room = &rooms[kind];
    if (room->bytes < bytes) {
        rt_mem.free(room->at);
        room->bytes = 0;
        room->at = rt_alloc(bytes, "workspace of products");
        room->bytes = bytes;
    }
    return room->at;
}

void rt_cpu_room_ask(RtRooms *need, int kind, bool team, size_t bytes)
{
    size_t *most = team ? &need->team[kind] : &need->own[kind];
    *most = bytes > *most ? bytes : *most;
}

static size_t room_of_thread(const RtRooms *need, int kind, bool first)
{
    const size_t own = first ? need->own[kind] : 0;
    return own > need->team[kind] ? own : need->team[kind];
}

double rt_rooms_bytes(const RtRooms *need)
{
    double bytes = 0;
    for (int kind = 0; kind < RT_ROOM_COUNT; kind++)
        bytes += (double)room_of_thread(need, kind, true)
                 + (double)(omp_get_max_threads() - 1) * (double)room_of_thread(need, kind, false);
    return bytes;
}

void rt_rooms_open(const RtRooms *need, void *scratch, size_t scratch_bytes)
{
    RT_UNUSED(scratch);
    RT_UNUSED(scratch_bytes);
#pragma omp parallel
    for (int kind = 0; kind < RT_ROOM_COUNT; kind++) {
        const size_t bytes = room_of_thread(need, kind, omp_get_thread_num() == 0);
        if (bytes > 0)
            (void)rt_cpu_room(kind, bytes);
    }
}

void rt_rooms_close(void)
{
#pragma omp parallel
    for (int kind = 0; kind < RT_ROOM_COUNT; kind++) {
        rt_mem.free(rooms[kind].at);
        rooms[kind] = (Room){ NULL, 0 };
    }
}
