/* halves.h -- includes a template, whose file the macro TEMPLATE names, for bf16 and for fp16.
 *
 * As twice.h: operands are stored as SRC, REAL is float and computes; N(name) ends in _bf16 or
 * _f16, R(name) in _f32.
 */
#define REAL  float
#define V     Vf
#define LANES LANES_F
#define R(x)  x##_f32

#define SRC   rt_bf16
#define N(x)  x##_bf16
#include TEMPLATE
#undef SRC
#undef N

#define SRC  rt_f16
#define N(x) x##_f16
#include TEMPLATE
#undef SRC
#undef N

#undef REAL
#undef V
#undef LANES
#undef R
#undef TEMPLATE
