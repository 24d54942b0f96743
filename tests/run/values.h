/* values.h -- the same made-up parameters and inputs on both sides of the comparison. */
#ifndef TESTS_RUN_VALUES_H
#define TESTS_RUN_VALUES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t value_bits(uint64_t tensor, uint64_t element)
{
    uint64_t z = tensor * 0x9e3779b97f4a7c15u + (element + 1) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In (-1, 1), and a float, so that both precisions see the same numbers. */
static inline double value_real(uint64_t tensor, uint64_t element)
{
    return (double)(float)((double)(value_bits(tensor, element) >> 40) / 8388608.0 - 1.0);
}

static inline double value_param(int index, int is_state, uint64_t element)
{
    const double v = 0.5 * value_real(1000 + (uint64_t)index, element);
    return (double)(float)(is_state ? 1 + v : v);
}

static inline int64_t value_int(int index, uint64_t element, int64_t lo, int64_t hi, int has_ignore,
                                int64_t ignore)
{
    const uint64_t z = value_bits(2000 + (uint64_t)index, element);
    if (has_ignore && z % 5 == 0)
        return ignore;
    return lo + (int64_t)((z >> 8) % (uint64_t)(hi - lo));
}

enum { VALUE_SEED = 11, VALUE_STEP = 3, VALUE_MICRO_STEPS = 2 };

/* NAME=VALUE among the arguments, or `none`. */
static inline int64_t value_dim(int argc, char **argv, const char *name, int64_t none)
{
    const size_t len = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, len) == 0 && argv[i][len] == '=')
            return atoll(argv[i] + len + 1);
    return none;
}

#endif
