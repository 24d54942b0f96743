/* order.cc -- the orders that CUDA leaves open: threads, blocks, streams.
 *
 * CUDASIM_ORDER=forward|reverse|SEED (of threads, warps and blocks; 1 if not set) and
 * CUDASIM_STREAMS=late|early|SEED. The one idea: every order is a function of these and of the
 * program, so that a fault that was found once is found again.
 */
#include <stdlib.h>
#include <string.h>
#include <numeric>

#include "sim.h"

namespace
{

enum { TABLES = 16 };
enum Kind { FORWARD, REVERSE, SEEDED };

struct Orders {
    Kind kind;
    uint64_t seed;
    SimStreams streams;
    uint8_t lanes[TABLES][32];
};

uint64_t state = 88172645463325252u; /* of sim_random */

uint64_t step(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

void shuffle(uint8_t *order, int n, uint64_t *random)
{
    for (int i = n - 1; i > 0; i--)
        std::swap(order[i], order[step(random) % (uint64_t)(i + 1)]);
}

uint64_t number(const char *name, const char *text)
{
    char *end;
    const uint64_t n = strtoull(text, &end, 10);
    if (end == text || *end)
        cudasim_report("%s=%s: a number or one of the words is wanted", name, text);
    return n;
}

Orders make(void)
{
    Orders o = { SEEDED, 1, SIM_LATE, {} };
    const char *order = getenv("CUDASIM_ORDER"), *streams = getenv("CUDASIM_STREAMS");
    if (order && !strcmp(order, "forward"))
        o.kind = FORWARD;
    else if (order && !strcmp(order, "reverse"))
        o.kind = REVERSE;
    else if (order)
        o.seed = number("CUDASIM_ORDER", order);
    if (streams && !strcmp(streams, "early")) {
        o.streams = SIM_EARLY;
    } else if (streams && strcmp(streams, "late")) {
        o.streams = SIM_SHUFFLED;
        state += number("CUDASIM_STREAMS", streams) * 0x9e3779b97f4a7c15u;
    }
    uint64_t random = (o.seed + 1) * 0x9e3779b97f4a7c15u;
    for (int t = 0; t < TABLES; t++) {
        for (int i = 0; i < 32; i++)
            o.lanes[t][i] = (uint8_t)(o.kind == REVERSE ? 31 - i : i);
        if (o.kind == SEEDED)
            shuffle(o.lanes[t], 32, &random);
    }
    return o;
}

const Orders &orders(void)
{
    static const Orders o = make();
    return o;
}

} // namespace

enum SimStreams sim_streams(void) { return orders().streams; }

uint32_t sim_random(uint32_t below) { return (uint32_t)(step(&state) >> 16) % below; }

const uint8_t *sim_lane_order(void)
{
    static unsigned next;
    return orders().lanes[next++ % TABLES];
}

void sim_warp_order(int warps, uint8_t *order)
{
    static uint64_t random = 0x2545f4914f6cdd1du;
    const Orders &o = orders();
    for (int i = 0; i < warps; i++)
        order[i] = (uint8_t)(o.kind == REVERSE ? warps - 1 - i : i);
    if (o.kind == SEEDED)
        shuffle(order, warps, &random);
}

/* Forward, backward, or by steps of a length that has no common divisor with n. */
uint64_t sim_block_order(uint64_t i, uint64_t n)
{
    const Orders &o = orders();
    if (o.kind == FORWARD)
        return i;
    if (o.kind == REVERSE)
        return n - 1 - i;
    uint64_t length = (n * 5 / 8 + o.seed) % n;
    while (std::gcd(length, n) != 1)
        length = (length + 1) % n;
    return (i * length + n / 2) % n;
}
