/* sampler.c -- the order of training: a permutation that is computed, not stored.
 *
 * In: an index and a key made of (seed, epoch). Out: the sample at that place. The one idea: a
 * small Feistel network over the next power of four is a bijection; walking its cycle until it
 * falls below n makes it one of 0..n-1. So the order depends on (seed, epoch, index) only, costs no
 * memory, and resumes at any place.
 */
#include "run.h"

enum { ROUNDS = 6 };

static uint64_t permute_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rt_permute(uint64_t i, uint64_t n, uint64_t key)
{
    if (n <= 1)
        return 0;
    int half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t round_key[ROUNDS];
    for (int round = 0; round < ROUNDS; round++)
        round_key[round] = permute_mix(key + 0x9e3779b97f4a7c15u * (uint64_t)(round + 1));
    do {
        uint64_t left = i >> half, right = i & mask;
        for (int round = 0; round < ROUNDS; round++) {
            const uint64_t next = left ^ (permute_mix(right ^ round_key[round]) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
