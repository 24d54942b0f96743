/* convert.h -- the third template behind tile.c: matrices from 16 bits to dense fp32, and back. */

float *N(rt_widen)(float *to, const SRC *from, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        float *restrict row = to + i * columns;
        const SRC *restrict stored = from + i * stride;
#pragma omp simd
        for (ptrdiff_t j = 0; j < columns; j++)
            row[j] = N(rt_of)(stored[j]);
    }
    return to;
}

void N(rt_narrow)(SRC *to, ptrdiff_t stride, const float *from, ptrdiff_t width, ptrdiff_t rows,
                  ptrdiff_t columns)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        SRC *restrict row = to + i * stride;
        const float *restrict sum = from + i * width;
#pragma omp simd
        for (ptrdiff_t j = 0; j < columns; j++)
            row[j] = N(rt_to)(sum[j]);
    }
}
