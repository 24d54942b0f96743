/* updates.h -- optimizers for hand-written models, as emitted files have them: for each of sgd,
 * adam and adamw a function per type (f32, f64) and 16-bit copy (bf16, f16).
 *
 *     sgd     g += decay p;  m = momentum m + g;  p -= lr m; without momentum no state
 *     adam    g += decay p, then as adamw without decay
 *     adamw   p *= 1 - lr decay;  m, v = running means of g, g^2;
 *             p -= lr/(1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 */
#include "run.h"

#define COPY_NONE(x) RT_UNUSED(copy)
#define COPY_BF16(x) copy[i] = rt_to_bf16(x)
#define COPY_F16(x)  copy[i] = rt_to_f16(x)

#define SGD(name, real, half, COPY)                                                                \
    __attribute__((unused)) static void sgd_##name(const RtUpdate *u)                              \
    {                                                                                              \
        const real factor = (real)u->factor, lr = (real)u->lr, decay = (real)u->decay;             \
        const real momentum = (real)u->hyper[0].value, *d = u->d_p;                                \
        real *p = u->p, *m = u->state[0];                                                          \
        half *copy = u->copy;                                                                      \
        for (ptrdiff_t i = 0; i < u->n; i++) {                                                     \
            real g = factor * d[i] + decay * p[i];                                                 \
            if (m)                                                                                 \
                g = m[i] = momentum * m[i] + g;                                                    \
            p[i] -= lr * g;                                                                        \
            COPY(p[i]);                                                                            \
        }                                                                                          \
    }

#define ADAM(name, type, real, sfx, half, COPY, decoupled)                                         \
    __attribute__((unused)) static void name##_##type(const RtUpdate *u)                           \
    {                                                                                              \
        const double beta1 = u->hyper[0].value, beta2 = u->hyper[1].value;                         \
        const real factor = (real)u->factor, eps = (real)u->hyper[2].value, *d = u->d_p;           \
        const real rate = (real)(u->lr / (1 - pow(beta1, u->t)));                                  \
        const real root = (real)(1 / sqrt(1 - pow(beta2, u->t)));                                  \
        const real keep = decoupled ? (real)(1 - u->lr * u->decay) : 1;                            \
        const real pull = decoupled ? 0 : (real)u->decay;                                          \
        const real b1 = (real)beta1, more1 = (real)(1 - beta1);                                    \
        const real b2 = (real)beta2, more2 = (real)(1 - beta2);                                    \
        real *p = u->p, *m = u->state[0], *v = u->state[1];                                        \
        half *copy = u->copy;                                                                      \
        for (ptrdiff_t i = 0; i < u->n; i++) {                                                     \
            const real g = factor * d[i] + pull * p[i];                                            \
            m[i] = b1 * m[i] + more1 * g;                                                          \
            v[i] = b2 * v[i] + more2 * (g * g);                                                    \
            p[i] = keep * p[i] - rate * m[i] / (rt_sqrt_##sfx(v[i]) * root + eps);                 \
            COPY(p[i]);                                                                            \
        }                                                                                          \
    }

#define UPDATES(type, real, sfx, half, COPY)                                                       \
    SGD(type, real, half, COPY)                                                                    \
    ADAM(adam, type, real, sfx, half, COPY, false)                                                 \
    ADAM(adamw, type, real, sfx, half, COPY, true)

UPDATES(f32, float, f32, void, COPY_NONE)
UPDATES(f64, double, f64, void, COPY_NONE)
UPDATES(bf16, float, f32, rt_bf16, COPY_BF16)
UPDATES(f16, float, f32, rt_f16, COPY_F16)
