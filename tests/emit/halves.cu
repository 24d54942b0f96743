/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims halves_dims(const ptrdiff_t *dims)
{
    return Dims{ .B = dims[0] };
}

/* Each element is updated by adamw, where g = factor * d_p:
 *
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * (g * g)
 *     p = (1 - lr * decay) * p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * factor is 1; decay is .weight_decay for parameters marked .decay, else 0; t counts the updates
 * from 1; u.power[k] is u.hyper[k]^t, computed once; what is the same for all elements is computed
 * in double.
 * grid u->n_parts, block RT_UPDATE_THREADS: a block per part, at most RT_UPDATE_PART elements with
 * the same numbers, which its thread 0 computes; a thread has 4 elements of every
 * RT_UPDATE_STRIDE */
static __global__ void __launch_bounds__(RT_UPDATE_THREADS) g_halves_update(const RtUpdates u)
{
    const RtPart q = u.part[blockIdx.x];
    if (!u.s->finite)
        return;
    __shared__ struct {
        float beta1_, c1, beta2_, c2, c3, c4, c5, eps_, factor;
    } now;
    if (threadIdx.x == 0) {
        const double lr = u.s->lr * q.rate, decay = q.decay, beta1 = u.hyper[0], beta2 = u.hyper[1];
        const double eps = u.hyper[2];
        now.beta1_ = (float)beta1;
        now.c1 = (float)(1 - beta1);
        now.beta2_ = (float)beta2;
        now.c2 = (float)(1 - beta2);
        now.c3 = (float)(1 - lr * decay);
        now.c4 = (float)(lr / (1 - u.power[0]));
        now.c5 = (float)(1 / rt_sqrt(1 - u.power[1]));
        now.eps_ = (float)eps;
        now.factor = (float)rt_update_factor(u.s);
    }
    __syncthreads();
    const float beta1_ = now.beta1_, c1 = now.c1, beta2_ = now.beta2_, c2 = now.c2, c3 = now.c3;
    const float c4 = now.c4, c5 = now.c5, eps_ = now.eps_, factor = now.factor;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        float p[4], m[4], v[4], d_p[4];
        rt_take_widened(p, u, q, i);
        rt_take(m, u.state[0], q, i);
        rt_take(v, u.state[1], q, i);
        rt_take(d_p, u.d_p, q, i);
        for (int k = 0; k < 4; k++) {
            const float g = factor * d_p[k];
            const float new_m = beta1_ * m[k] + c1 * g;
            const float new_v = beta2_ * v[k] + c2 * (g * g);
            const float new_p = c3 * p[k] - c4 * new_m / (rt_sqrt(new_v) * c5 + eps_);
            m[k] = new_m;
            v[k] = new_v;
            p[k] = new_p;
        }
        rt_put(u.state[0], q, i, m);
        rt_put(u.state[1], q, i, v);
        rt_put_rounded(u, q, i, p);     /* at random, in 16 bits */
        rt_put_average(u, q, i, p);     /* where one is kept */
    }
}

static void halves_update(const RtUpdates *u, RtStream *stream)
{
    RT_LAUNCH(stream, "halves.model:19", g_halves_update, u->n_parts, RT_UPDATE_THREADS, 0, *u);
}

/* Counts come first, since gradients are divided by those of the whole update. Parameters from
 * P_HALVES on are widened for that, and rounded at random behind it. The average of the weights
 * follows each update: e = d e + (1 - d) p, where d grows to .ema. lr is .lr. */
static void halves_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                      /* sums and counts 0, add = false; random key, lr */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);          /* sizes, inputs, first sample */
        const Dims n = halves_dims(run->dims);
        halves_count(s, n);
    }
    rt_seed_losses(run, s);                  /* weight / count of the update; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = halves_dims(run->dims);
        const float *x = (const float *)run->inputs[0];
        const float *y = (const float *)run->inputs[1];
        while (rt_graph_begin(run, s)) {        /* recorded once, then launched */
            halves_forward((const float *)run->p, (const rt_bf16 *)run->p16, x, y, run->arena, s, n,
                           run->stream);
            halves_backward((const float *)run->p, (const rt_bf16 *)run->p16, (float *)run->d_p,
                            run->arena, s, n, run->stream);
            rt_graph_end(run, s);
        }
        s->add = true;                          /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);                /* sum over ranks */
    rt_finite_and_norm(run, s);                 /* are all finite? norm of all as one vector */
    rt_update(run, s, halves_update);           /* of all parameters, if all is finite */
    rt_end_step(run, s);                        /* counters: updates applied, or skipped */
}

static void halves_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = halves_dims(run->dims);
    const float *x = (const float *)run->inputs[0];
    const float *y = (const float *)run->inputs[1];
    halves_count(s, n);
    halves_evaluate((const float *)run->p, (const rt_bf16 *)run->p16, x, y, run->arena, s, n,
                    run->stream);
}

