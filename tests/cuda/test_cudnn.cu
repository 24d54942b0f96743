/* test_cudnn.cu -- the real cuDNN plans attention for GPUs that are not here: the graphs are those
 * that it knows, its engines are made for them, and what they work in.
 *
 * Usage: RT_CUDNN=FILE test_cudnn ARCHITECTURE. cuDNN compiles kernels for a device that is told by
 * its properties; a stand-in for the driver takes what it would load (cudnn.sh). Nothing runs.
 */
#include "test_device.h"

#include "cuda/attention_cudnn.h"

typedef struct {
    const char *name;
    RtType type;
    ptrdiff_t B, H, T, S, D, E, group;
    bool causal, packed; /* q, k, v are parts of one; else dense heads */
    bool twice;          /* on each architecture */
} Case;

static const Case cases[] = {
    { "gpt2", RT_BF16, 64, 12, 1024, 1024, 64, 64, 1, true, true, true },
    { "gpt2-fp16", RT_F16, 64, 12, 1024, 1024, 64, 64, 1, true, true, false },
    { "gpt2-350m", RT_BF16, 64, 16, 1024, 1024, 64, 64, 1, true, true, false },
    { "wide", RT_BF16, 8, 16, 2048, 2048, 128, 128, 1, true, true, true },
    { "grouped", RT_BF16, 8, 12, 1024, 1024, 64, 64, 3, true, false, true },
    { "all-keys", RT_BF16, 4, 6, 100, 300, 64, 64, 1, false, false, true },
    { "values", RT_F16, 2, 4, 256, 256, 48, 128, 1, false, false, false },
    { "small", RT_BF16, 1, 1, 6, 6, 8, 8, 1, true, true, true },
    { "tail", RT_BF16, 1, 12, 1000, 1000, 72, 72, 1, true, true, false },
};

/* Of an H200 and an A100, as far as cuDNN asks. */
static const char device_of_90[] =
    "{\"deviceVer\":900,\"deviceName\":\"NVIDIA H200\",\"multiProcessorCount\":132,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"l2CacheSize\":62914560,"
    "\"totalGlobalMem\":150000000000,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,";
static const char device_of_80[] =
    "{\"deviceVer\":800,\"deviceName\":\"NVIDIA A100\",\"multiProcessorCount\":108,"
    "\"maxSharedMemoryPerBlockOptin\":166912,\"l2CacheSize\":41943040,"
    "\"totalGlobalMem\":85000000000,\"smClockRateKHz\":1410000,\"memClockRateKHz\":1593000,";
static const char device_of_both[] =
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"driverVer\":13000,\"cudaDeviceId\":0}";

static cudnnBackendDescriptor_t properties(int architecture)
{
    const RtCudnn *lib = rt_cudnn();
    cudnnBackendDescriptor_t made = NULL;
    char text[2048];
    const int n = snprintf(text, sizeof text, "%s%s",
                           architecture == 90 ? device_of_90 : device_of_80, device_of_both);
    cudnnStatus_t status = lib->BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    if (!status)
        status = lib->BackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, n, text);
    if (!status)
        status = lib->BackendFinalize(made);
    if (status)
        rt_fail(1, "cuDNN does not take the properties: %s", lib->GetErrorString(status));
    return made;
}

static RtHeads steps(const Case *c, ptrdiff_t heads, ptrdiff_t rows, ptrdiff_t width, bool packed)
{
    const ptrdiff_t row = packed ? 3 * c->H * width : heads * width;
    return (RtHeads){ rows * row, width, row };
}

static RtAttention attention(const Case *c)
{
    const ptrdiff_t of_keys = c->H / c->group;
    RtAttention a = {};
    a.B = c->B, a.H = c->H, a.T = c->T, a.S = c->S, a.D = c->D, a.E = c->E;
    a.group = c->group;
    a.scale = 1 / sqrt((double)c->D);
    a.causal = c->causal;
    a.q = a.d_q = steps(c, c->H, c->T, c->D, c->packed);
    a.k = a.d_k = steps(c, of_keys, c->S, c->D, c->packed);
    a.v = a.d_v = steps(c, of_keys, c->S, c->E, c->packed);
    a.y = a.d_y = steps(c, c->H, c->T, c->E, false);
    return a;
}

int main(int argc, char **argv)
{
    const int architecture = argc > 1 ? atoi(argv[1]) : 90;
    const RtCudnnTarget target = { NULL, properties(architecture) };
    static RtCudnnPlan plan;
    int failed = 0;
    printf("%s\n", rt_cudnn_version());
    for (const Case &c : cases)
        for (int grad = 0; grad < 2 && (c.twice || architecture == 90); grad++) {
            const RtAttention a = attention(&c);
            memset(&plan, 0, sizeof plan);
            plan.key = rt_attention_key(c.type, &a, grad);
            rt_cudnn_plan(&plan, target);
            printf("%s %s sm_%d: %s%s, engine %lld, %zu bytes\n", c.name,
                   grad ? "backward" : "forward", architecture, plan.plan ? "planned" : "NOT, ",
                   plan.why, (long long)plan.engine, rt_attention_plan_bytes(&plan));
            failed += !plan.plan;
            rt_cudnn_free(&plan);
        }
    return failed > 0;
}
