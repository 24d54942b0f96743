/* library.cc -- what libraries and warp instructions ask of the shadow: bytes that hold nothing.
 *
 * In: bytes of device or shared memory that were written and are of no use any more, or not yet: a
 * workspace after its product, the place of a copy that is under way. Out: to read them is an
 * error, until they are written again. Who accessed them last stays known.
 */
#include "sim.h"

/* Of each cell the bits of its bytes from `from` up to `to`. */
static void forget(SimCell *cells, uintptr_t from, uintptr_t to)
{
    for (uintptr_t i = from / 4; i * 4 < to; i++) {
        const uintptr_t first = from > i * 4 ? from - i * 4 : 0, end = to - i * 4;
        cells[i].write &= ~(uint64_t)(0xfu << first & (end < 4 ? (1u << end) - 1 : 0xfu));
    }
}

void cudasim_unwrite(void *at, size_t bytes)
{
    const uintptr_t device = (uintptr_t)at - sim_now.device_base;
    const uintptr_t shared = (uintptr_t)at - sim_now.shared_base;
    if (device < sim_now.device_span)
        forget(sim_now.device_cells, device, device + bytes);
    else if (shared < sim_now.shared_span)
        forget(sim_now.shared_cells, shared, shared + bytes);
}
