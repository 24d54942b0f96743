/* cpu.h -- what the files of cpu/ know of each other. */
#ifndef GRADCC_CPU_H
#define GRADCC_CPU_H

#include "run.h"

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_in_parallel(void) { return 0; }
#endif

/* Up to this many multiply-adds one thread does a product where the operands lie. */
#define RT_MATMUL_SMALL 2e5

/* ---- tile.c ---------------------------------------------------------------------------------- */

#define REAL            float
#define N(x)            x##_f32
#include "cpu/tile.h"
#undef REAL
#undef N
#define REAL double
#define N(x) x##_f64
#include "cpu/tile.h"
#undef REAL
#undef N

/* to[k][width] = from[j, k] for j < live (rows of from, along k), 0 beyond; live <= width; and
   to[k][width] = from[k, j]. */
#define RT_PACK(real, stored, sfx)                                                                 \
    void rt_pack_turned_##sfx(real *to, ptrdiff_t width, const stored *from, ptrdiff_t stride,     \
                              ptrdiff_t live, ptrdiff_t k);                                        \
    void rt_pack_straight_##sfx(real *to, ptrdiff_t width, const stored *from, ptrdiff_t stride,   \
                                ptrdiff_t live, ptrdiff_t k);
RT_PACK(float, float, f32)
RT_PACK(double, double, f64)
RT_PACK(float, rt_bf16, bf16)
RT_PACK(float, rt_f16, f16)

/* Rows of 16 bits, `stride` apart, as dense fp32 (returns `to`); rows of fp32, `width` apart,
   rounded. */
#define RT_CONVERT(stored, sfx)                                                                    \
    float *rt_widen_##sfx(float *to, const stored *from, ptrdiff_t stride, ptrdiff_t rows,         \
                          ptrdiff_t columns);                                                      \
    void rt_narrow_##sfx(stored *to, ptrdiff_t stride, const float *from, ptrdiff_t width,         \
                         ptrdiff_t rows, ptrdiff_t columns);
RT_CONVERT(rt_bf16, bf16)
RT_CONVERT(rt_f16, f16)

/* ---- matmul_plain.c: one problem (no batch), strides filled in ------------------------------- */

void rt_matmul_plain_f32(float *c, const float *a, const float *b, const RtMatmul *p, int threads);
void rt_matmul_plain_f64(double *c, const double *a, const double *b, const RtMatmul *p,
                         int threads);
/* 16-bit operands: c in fp32, or, where it is NULL, in 16 bits. */
void rt_matmul_plain_bf16(float *c, rt_bf16 *half, const rt_bf16 *a, const rt_bf16 *b,
                          const RtMatmul *p, int threads);
void rt_matmul_plain_f16(float *c, rt_f16 *half, const rt_f16 *a, const rt_f16 *b,
                         const RtMatmul *p, int threads);

/* What these ask rt_cpu_room for, in every thread; rounded: the result has 16 bits. */
#define RT_PLAIN_ROOM(sfx)                                                                         \
    void rt_plain_room_##sfx(RtRooms *need, const RtMatmul *p, bool rounded, int threads);
RT_PLAIN_ROOM(f32)
RT_PLAIN_ROOM(f64)
RT_PLAIN_ROOM(bf16)
RT_PLAIN_ROOM(f16)

/* ---- rooms.c --------------------------------------------------------------------------------- */

/* Scratch room of the calling thread, kept between calls; contents are not. RT_ROOM_PACK: packed
   operands; RT_ROOM_HALF: operands that are converted, sums before they are rounded. */
void *rt_cpu_room(int kind, size_t bytes);
/* One of the calls to come takes it: in every thread of a team, or in the calling one. */
void rt_cpu_room_ask(RtRooms *need, int kind, bool team, size_t bytes);

/* ---- matmul_onednn.c ------------------------------------------------------------------------- */

/* One problem; false if oneDNN is absent or declines it, and then c is as it was. */
#ifdef HAVE_ONEDNN
bool rt_matmul_onednn_f32(float *c, const float *a, const float *b, const RtMatmul *p);
/* type: of c, RT_BF16 or RT_F32 */
bool rt_matmul_onednn_bf16(void *c, RtType type, const rt_bf16 *a, const rt_bf16 *b,
                           const RtMatmul *p);
/* Bytes of RT_ROOM_PACK that it works in, for operands of type in and c of type out; false: it is
   absent or declines the product. */
bool rt_onednn_room(RtType in, RtType out, const RtMatmul *p, size_t *bytes);
const char *rt_onednn_version(void); /* "oneDNN 2.6.3" */
#else
static inline const char *rt_onednn_version(void) { return "none"; }
static inline bool rt_matmul_onednn_f32(float *c, const float *a, const float *b, const RtMatmul *p)
{
    RT_UNUSED(c);
    RT_UNUSED(a);
    RT_UNUSED(b);
    RT_UNUSED(p);
    return false;
}
static inline bool rt_matmul_onednn_bf16(void *c, RtType type, const rt_bf16 *a, const rt_bf16 *b,
                                         const RtMatmul *p)
{
    RT_UNUSED(c);
    RT_UNUSED(type);
    RT_UNUSED(a);
    RT_UNUSED(b);
    RT_UNUSED(p);
    return false;
}
static inline bool rt_onednn_room(RtType in, RtType out, const RtMatmul *p, size_t *bytes)
{
    RT_UNUSED(in);
    RT_UNUSED(out);
    RT_UNUSED(p);
    RT_UNUSED(bytes);
    return false;
}
#endif

#endif
