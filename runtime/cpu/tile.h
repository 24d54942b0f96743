/* tile.h -- the register tile under matmul_plain.c and attention.c, and the packing for it.
 *
 * A template: the includer defines REAL and N(name), and includes it once per type.
 */

typedef struct {
    ptrdiff_t k;
    const REAL *a; /* a[i, k] at a + i*a_i + k*a_k */
    ptrdiff_t a_i, a_k;
    const REAL *b; /* b[k, j] at b + k*b_k + j, readable to a whole vector */
    ptrdiff_t b_k;
    REAL *c;
    ptrdiff_t c_i;
    bool add;
    const REAL *bias;  /* of the tile's first column, or NULL */
    const char *ahead; /* memory needed soon: touched every 8 steps of k */
    ptrdiff_t ahead_step;
} N(Tile);

/* c[rows, columns] (+)= a[rows, k] @ b[k, columns]; up to TILE_ROWS and TILE_VECS vectors. */
void N(rt_tile)(int rows, int columns, const N(Tile) * t);
