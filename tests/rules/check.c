/* check.c -- the update that an emitted file does with elements, against PyTorch's numbers.
 *
 * Compiled with -DEMITTED="file.c" -DREAL=double and -DHALF=bf16 where p has a copy in 16 bits.
 * Usage: check CASE: compares with a case of rules.h, by the text of its optimizer. check bias:
 * AdamW's bias correction at updates 1, 2 and 100 against sums over all gradients.
 */
#define RT_LIBRARY
#include EMITTED

#include <stdio.h>
#include <string.h>

enum { RULE_ELEMS = 12, DECAYED = 7 };
#include "rules.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

typedef REAL Real;
static Real p[RULE_ELEMS], d_p[RULE_ELEMS], state[RT_MAX_STATES][RULE_ELEMS];
#ifdef HALF
static uint16_t copy[RULE_ELEMS];
#endif

/* ---- updates --------------------------------------------------------------------------------- */

static void update(int step)
{
    for (int part = 0; part < 2; part++) {
        const int from = part ? DECAYED : 0, to = part ? RULE_ELEMS : DECAYED;
        RtUpdate u = { .p = p + from,
                       .d_p = d_p + from,
                       .factor = 0.25, /* as a gradient that was scaled and clipped */
                       .lr = rule.train.lr,
                       .decay = part ? 0 : rule.train.weight_decay,
                       .t = step + 1,
                       .hyper = rule.train.hyper,
                       .n = to - from };
        for (int i = 0; i < rule.train.n_states; i++)
            u.state[i] = state[i] + from;
#ifdef HALF
        u.copy = copy + from;
#endif
        rule_update(&u);
    }
#ifdef HALF
    for (int i = 0; i < RULE_ELEMS; i++)
        if (copy[i] != JOIN(rt_to_, HALF)(p[i]))
            printf("the copy of element %d is not p rounded\n", i);
#endif
}

static void compare(int step, const double *want)
{
    const double bound = sizeof(Real) == 8 ? 1e-13 : 4e-7 * (1 + 0.1 * step);
    for (int i = 0; i < RULE_ELEMS; i++)
        if (!(fabs((double)p[i] - want[i]) <= bound * (1 + fabs(want[i]))))
            printf("update %d, element %d: %.17g, wanted %.17g\n", step, i, (double)p[i], want[i]);
}

static void against_pytorch(const RuleCase *c)
{
    static const int steps[] = { 1, 2, 10, 100 };
    for (int i = 0; i < RULE_ELEMS; i++)
        p[i] = (Real)sin(1 + i);
    for (int step = 0, k = 0; step < 100; step++) {
        for (int i = 0; i < RULE_ELEMS; i++)
            d_p[i] = (Real)(4 * (0.3 * (double)p[i] + 0.5 * cos(0.37 * i + 0.2 * step)));
        update(step);
        if (step + 1 == steps[k])
            compare(step + 1, c->after[k++]);
    }
}

/* Kingma and Ba, "Adam" (2015), section 3: what the running means are of, written out. */
static void bias_correction(void)
{
    const double b1 = rule.train.hyper[0].value, b2 = rule.train.hyper[1].value;
    const double eps = rule.train.hyper[2].value, lr = rule.train.lr;
    double g[100], before;
    for (int step = 0; step < 100; step++) {
        double mean = 0, square = 0;
        before = (double)p[0];
        g[step] = 0.5 + cos(step);
        d_p[0] = (Real)(4 * g[step]);
        update(step);
        for (int i = 0; i <= step; i++) {
            mean += (1 - b1) * pow(b1, step - i) * g[i];
            square += (1 - b2) * pow(b2, step - i) * g[i] * g[i];
        }
        mean /= 1 - pow(b1, step + 1);
        square /= 1 - pow(b2, step + 1);
        const double want = before - lr * rule.train.weight_decay * before
                            - lr * mean / (sqrt(square) + eps);
        if ((step < 2 || step == 99) && !(fabs((double)p[0] - want) < 1e-14))
            printf("update %d: %.17g, wanted %.17g\n", step + 1, (double)p[0], want);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "bias") == 0) {
        bias_correction();
        return 0;
    }
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++)
        if (strcmp(rule_cases[i].optimizer, name) == 0) {
            against_pytorch(&rule_cases[i]);
            return 0;
        }
    printf("no case %s\n", name);
    return 1;
}
