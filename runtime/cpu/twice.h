/* twice.h -- includes a template, whose file the macro TEMPLATE names, for float and for double.
 *
 * The template writes REAL, V (a vector of LANES of them) and N(name), which ends in _f32 or _f64;
 * where operands may be stored in 16 bits (halves.h), SRC and R(name), the names of the type that
 * computes. Here both are the same.
 */
#define REAL  float
#define SRC   float
#define V     Vf
#define LANES LANES_F
#define N(x)  x##_f32
#define R(x)  x##_f32
#include TEMPLATE
#undef REAL
#undef SRC
#undef V
#undef LANES
#undef N
#undef R

#define REAL  double
#define SRC   double
#define V     Vd
#define LANES LANES_D
#define N(x)  x##_f64
#define R(x)  x##_f64
#include TEMPLATE
#undef REAL
#undef SRC
#undef V
#undef LANES
#undef N
#undef R

#undef TEMPLATE
