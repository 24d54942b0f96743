/* muon_real.h -- the template behind muon.c: its loops over REAL, float or double. */

/* The momentum of a piece, and what is made orthogonal, to x; the sum of its squares. */
static double N(momentum)(const Muon *u, RtPiece q, REAL *restrict x, ptrdiff_t first)
{
    const REAL *restrict d = u->run->d_p;
    REAL *restrict m = u->run->state->states[MUON_MOMENTUM].at;
    const REAL factor = (REAL)u->factor, keep = (REAL)u->momentum, more = (REAL)(1 - u->momentum);
    const REAL ahead = u->nesterov ? keep : 1;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = q.from; i < q.to; i++) {
        const REAL g = factor * d[i], mean = m[i] + more * (g - m[i]);
        m[i] = mean;
        const REAL to = g + ahead * (mean - g);
        x[i - first] = to;
        sum += (double)to * (double)to;
    }
    return sum;
}

static void N(scale)(REAL *restrict x, ptrdiff_t from, ptrdiff_t to, double by)
{
    const REAL factor = (REAL)by;
#pragma omp simd
    for (ptrdiff_t i = from; i < to; i++)
        x[i] *= factor;
}

/* g = c g + b a + a0 I, of k x k */
static void N(polynomial)(REAL *restrict g, const REAL *restrict a, ptrdiff_t k)
{
#pragma omp parallel for simd schedule(static) if (parallel : k * k > RT_PIECE)
    for (ptrdiff_t i = 0; i < k * k; i++)
        g[i] = (REAL)NS_C * g[i] + (REAL)NS_B * a[i];
    for (ptrdiff_t i = 0; i < k; i++)
        g[i * k + i] += (REAL)NS_A;
}

/* Newton-Schulz: x[R,C] becomes (nearly) orthogonal; the result is in x or y, which it returns.
   With X of R <= C, each step is X = (a I + b A + c A A) X, A = X X'; else A = X' X and
   X = X (a I + b A + c A A), which is the same of the transposed matrix. */
static REAL *N(orthogonal)(ptrdiff_t R, ptrdiff_t C, REAL *x, REAL *y, REAL *a, REAL *g)
{
    const bool wide = R <= C;
    const ptrdiff_t k = wide ? R : C;
    for (int step = 0; step < NS_STEPS; step++) {
        N(rt_matmul)(a, x, x, rt_muon_square(R, C));
        N(rt_matmul)(g, a, a, rt_muon_power(R, C));
        N(polynomial)(g, a, k);
        N(rt_matmul)(y, wide ? g : x, wide ? x : g, rt_muon_apply(R, C));
        REAL *swap = x;
        x = y;
        y = swap;
    }
    return x;
}

static void N(move)(const Muon *u, RtPiece q, const REAL *restrict x, ptrdiff_t first)
{
    REAL *restrict p = u->run->p;
    const REAL keep = (REAL)u->keep, rate = (REAL)u->rate;
#pragma omp simd
    for (ptrdiff_t i = q.from; i < q.to; i++)
        p[i] = keep * p[i] - rate * x[i - first];
}

/* AdamW of a piece; v of its tensor, whose first element is `first`. */
static void N(adamw)(const Muon *u, RtPiece q, REAL *restrict v, ptrdiff_t first)
{
    REAL *restrict p = u->run->p, *restrict m = u->run->state->states[MUON_MOMENTUM].at;
    const REAL *restrict d = u->run->d_p;
    const REAL factor = (REAL)u->factor, beta1 = (REAL)u->beta1, beta2 = (REAL)u->beta2;
    const REAL more1 = (REAL)(1 - u->beta1), more2 = (REAL)(1 - u->beta2), eps = (REAL)u->eps;
    const REAL keep = (REAL)u->keep, rate = (REAL)u->rate, root = (REAL)u->root;
#pragma omp simd
    for (ptrdiff_t i = q.from; i < q.to; i++) {
        const REAL g = factor * d[i], mean = beta1 * m[i] + more1 * g;
        const REAL square = beta2 * v[i - first] + more2 * (g * g);
        m[i] = mean;
        v[i - first] = square;
        p[i] = keep * p[i] - rate * mean / (N(rt_sqrt)(square) * root + eps);
    }
}

static void N(update_matrix)(Muon *u, const RtStep *s, const RtTensor *t, const RtParam *q)
{
    const ptrdiff_t R = q->shape[0], C = q->shape[1], first = t->all.from, k = R < C ? R : C;
    REAL *const x = u->run->arena, *const y = x + rt_muon_room(R * C),
                *const a = y + rt_muon_room(R * C);
    RtTensors *all = u->run->state->tensors;
    const int from = t->first, end = from + t->n;
#pragma omp parallel for schedule(static) if (t->n > 1)
    for (int i = from; i < end; i++)
        all->sums[0][i] = N(momentum)(u, all->pieces[i], x, first);
    const double by = 1 / fmax(sqrt(rt_tensor_sum(all, t, 0)), NS_EPS);
#pragma omp parallel for schedule(static) if (t->n > 1)
    for (int i = from; i < end; i++)
        N(scale)(x, all->pieces[i].from - first, all->pieces[i].to - first, by);
    const REAL *const to = N(orthogonal)(R, C, x, y, a, a + rt_muon_room(k * k));
#pragma omp parallel for schedule(static) if (t->n > 1)
    for (int i = from; i < end; i++) {
        N(move)(u, all->pieces[i], to, first);
        rt_piece_updated(u->run, s, all->pieces[i]);
    }
}

static void N(update_rest)(Muon *u, const RtStep *s, const RtTensor *t)
{
    const RtState *state = u->run->state;
    const RtStateTensor *v = &state->states[MUON_SQUARES];
    REAL *own = (REAL *)v->at + rt_state_at(u->run->model, v->shape, t->param, t->repeat);
#pragma omp parallel for schedule(static) if (t->n > 1)
    for (int i = t->first; i < t->first + t->n; i++) {
        N(adamw)(u, state->tensors->pieces[i], own, t->all.from);
        rt_piece_updated(u->run, s, state->tensors->pieces[i]);
    }
}
