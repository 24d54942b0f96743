/* library.cc -- what libraries and warp instructions ask of the shadow: bytes that hold nothing.
 *
 * In: bytes of device or shared memory that were written and are of no use any more, or not yet: a
 * workspace after its product, the place of a copy that is under way. Out: to read them is an error,
 * until they are written again. Who accessed them last stays known.
 */
#include "sim.h"

static void forget(SimCell *cells, uintptr_t from, size_t bytes)
{
    const unsigned first = from % 4;
    size_t left = bytes;
    for (SimCell *cell = cells + from / 4; left > 0; cell++) {
        const unsigned skip = cell == cells + from / 4 ? first : 0;
        for (unsigned i = skip; i < 4 && left > 0; i++, left--)
            cell->write &= ~((uint64_t)1 << i);
    }
}

void cudasim_unwrite(void *at, size_t bytes)
{
    const uintptr_t device = (uintptr_t)at - sim_now.device_base;
    const uintptr_t shared = (uintptr_t)at - sim_now.shared_base;
    if (device < sim_now.device_span)
        forget(sim_now.device_cells, device, bytes);
    else if (shared < sim_now.shared_span)
        forget(sim_now.shared_cells, shared, bytes);
}
