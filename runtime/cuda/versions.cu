/* versions.cu -- libraries that compute, by name and version: ranks must have the same.
 *
 * In: how products were planned. Out: a text. Where cuDNN computes attention RT_ATTENTION says so,
 * which ranks compare as well.
 */
#include "cuda/cublaslt.h"
#include "cuda/matmul.h"

const char *rt_products_library(const RtModel *m)
{
    static char text[RT_LIBRARY_TEXT];
    RT_UNUSED(m);
    if (!rt_products_line() || rt_product_is_plain())
        return "none";
    snprintf(text, sizeof text, "cuBLASLt %s", rt_lt_version());
    return text;
}
