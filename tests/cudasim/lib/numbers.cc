/* numbers.cc -- prints the numbers of names and the sizes of structs, from whichever headers it is
 * compiled with: those of the simulator or those of CUDA. The two lists must be the same.
 */
#include <stdio.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#define SHOW(name) printf("%s %lld\n", #name, (long long)(name));
#define SIZE(type) printf("sizeof(%s) %zu\n", #type, sizeof(type));

int main(void)
{
    SIZE(cublasLtMatmulAlgo_t)
    SIZE(cublasLtMatmulHeuristicResult_t)
    SIZE(cublasLtMatrixLayoutOpaque_t)
    SIZE(cublasLtMatmulDescOpaque_t)
    SIZE(cublasLtMatmulPreferenceOpaque_t)
    SIZE(ncclUniqueId)
    SIZE(ncclConfig_t)
    SIZE(ncclRedOp_t)
    SIZE(ncclDataType_t)
    SIZE(dim3)
#include "numbers.h" /* SHOW of all enumerators in the simulator's headers */
    return 0;
}
