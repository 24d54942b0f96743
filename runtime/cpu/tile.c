/* tile.c -- the register tile: c[8, 48] (+)= a[8, k] @ b[k, 48], and packing for it.
 *
 * In: a as any strided matrix, b with dense rows; best packed, so that both are read in the order
 * in which they lie in memory. The tile of c stays in registers over the whole of k; edges run
 * narrower tiles of the same text, so nothing is computed that is not stored.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

#define REAL  float
#define V     Vf
#define LANES LANES_F
#define N(x)  x##_f32
#include "cpu/tile_real.h"
#undef REAL
#undef V
#undef LANES
#undef N

#define REAL  double
#define V     Vd
#define LANES LANES_D
#define N(x)  x##_f64
#include "cpu/tile_real.h"
