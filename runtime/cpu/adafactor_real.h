/* adafactor_real.h -- the template behind adafactor.c: its loops over REAL, float or double. */

/* Means of squares of rows from..to-1, of all matrices of the tensor. */
static void N(row_means)(const View *v, ptrdiff_t from, ptrdiff_t to)
{
    const REAL *restrict d = v->run->d_p;
    REAL *restrict r = v->run->state->states[ADAFACTOR_ROWS].at;
    const REAL factor = (REAL)v->factor;
    for (ptrdiff_t k = from; k < to; k++) {
        const REAL *restrict row = d + v->t->all.from + k * v->C;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t j = 0; j < v->C; j++)
            sum += (double)(factor * row[j]) * (double)(factor * row[j]);
        REAL *mean = &r[v->rows + k];
        *mean = (REAL)((double)*mean + v->fresh * (sum / (double)v->C - (double)*mean));
    }
}

/* The same of columns from..to-1, at most RT_COLUMNS, of a matrix. */
static void N(column_means)(const View *v, ptrdiff_t matrix, ptrdiff_t from, ptrdiff_t to)
{
    const REAL *restrict d = (const REAL *)v->run->d_p + v->t->all.from + matrix * v->R * v->C;
    REAL *restrict c = (REAL *)v->run->state->states[ADAFACTOR_COLUMNS].at + v->columns
                       + matrix * v->C;
    const REAL factor = (REAL)v->factor;
    double sum[RT_COLUMNS] = { 0 };
    for (ptrdiff_t i = 0; i < v->R; i++)
#pragma omp simd
        for (ptrdiff_t j = from; j < to; j++)
            sum[j - from] += (double)(factor * d[i * v->C + j])
                             * (double)(factor * d[i * v->C + j]);
    for (ptrdiff_t j = from; j < to; j++)
        c[j] = (REAL)((double)c[j] + v->fresh * (sum[j - from] / (double)v->R - (double)c[j]));
}

static void N(matrix_mean)(const View *v, ptrdiff_t matrix)
{
    const REAL *r = (const REAL *)v->run->state->states[ADAFACTOR_ROWS].at + v->rows
                    + matrix * v->R;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < v->R; i++)
        sum += (double)r[i];
    v->mean[matrix] = sum / (double)v->R;
}

/* Sum of p^2 in a piece; of a vector also the mean squares of its elements. */
static double N(own_squares)(const View *v, RtPiece q)
{
    const REAL *restrict p = v->run->p, *restrict d = v->run->d_p;
    const REAL factor = (REAL)v->factor, fresh = (REAL)v->fresh;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = q.from; i < q.to; i++)
        sum += (double)p[i] * (double)p[i];
    if (v->mean)
        return sum;
    REAL *restrict square = (REAL *)v->run->state->states[ADAFACTOR_WHOLE].at + v->columns;
    const ptrdiff_t first = v->t->all.from;
#pragma omp simd
    for (ptrdiff_t i = q.from; i < q.to; i++) {
        const REAL g = factor * d[i];
        square[i - first] += fresh * (g * g - square[i - first]);
    }
    return sum;
}

/* Row by row of a piece, with u = g / sqrt(max(scale c, eps1^2)): the sum of u^2, or
   p = keep p - rate u. A vector is one row. */
static double N(visit)(const View *v, RtPiece q, bool move, double keep_p, double rate_u)
{
    REAL *restrict p = v->run->p;
    const REAL *restrict d = v->run->d_p;
    const REAL *r = v->run->state->states[ADAFACTOR_ROWS].at;
    const REAL factor = (REAL)v->factor, least = (REAL)(v->eps1 * v->eps1);
    const REAL keep = (REAL)keep_p, rate = (REAL)rate_u;
    double sum = 0;
    for (ptrdiff_t i = q.from, end; i < q.to; i = end) {
        const ptrdiff_t row = (i - v->t->all.from) / v->C, start = v->t->all.from + row * v->C;
        const ptrdiff_t matrix = row / v->R;
        end = start + v->C < q.to ? start + v->C : q.to;
        REAL scale = 1;
        if (v->mean)
            scale = (REAL)((double)r[v->rows + row] / fmax(v->mean[matrix], v->eps1));
        const REAL *restrict c =
            (const REAL *)v->run->state->states[v->mean ? ADAFACTOR_COLUMNS : ADAFACTOR_WHOLE].at
            + v->columns + matrix * v->C;
        if (move) {
#pragma omp simd
            for (ptrdiff_t k = i; k < end; k++) {
                const REAL square = scale * c[k - start] > least ? scale * c[k - start] : least;
                p[k] = keep * p[k] - rate * (factor * d[k] * N(rt_rsqrt)(square));
            }
        } else {
#pragma omp simd reduction(+ : sum)
            for (ptrdiff_t k = i; k < end; k++) {
                const REAL square = scale * c[k - start] > least ? scale * c[k - start] : least;
                const REAL u = factor * d[k] * N(rt_rsqrt)(square);
                sum += (double)u * (double)u;
            }
        }
    }
    return sum;
}
