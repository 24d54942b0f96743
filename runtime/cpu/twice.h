/* twice.h -- includes a template, whose file the macro TEMPLATE names, for float and for double.
 *
 * The template writes REAL, V (a vector of LANES of them) and N(name), which ends in _f32 or _f64.
 */
#define REAL  float
#define V     Vf
#define LANES LANES_F
#define N(x)  x##_f32
#include TEMPLATE
#undef REAL
#undef V
#undef LANES
#undef N

#define REAL  double
#define V     Vd
#define LANES LANES_D
#define N(x)  x##_f64
#include TEMPLATE
#undef REAL
#undef V
#undef LANES
#undef N

#undef TEMPLATE
