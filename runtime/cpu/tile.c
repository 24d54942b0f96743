/* tile.c -- the register tile: c[8, 48] (+)= a[8, k] @ b[k, 48], packing for it, 16 bits.
 *
 * In: a as any strided matrix, b with dense rows; best packed, so that both are read in the order
 * in which they lie in memory. The tile of c stays in registers over the whole of k; edges run
 * narrower tiles of the same text, so nothing is computed that is not stored.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

#define TEMPLATE "cpu/tile_real.h"
#include "cpu/twice.h"

#define TEMPLATE "cpu/pack.h"
#include "cpu/twice.h"
#define TEMPLATE "cpu/pack.h"
#include "cpu/halves.h"
#define TEMPLATE "cpu/convert.h"
#include "cpu/halves.h"
