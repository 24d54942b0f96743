/* matmul.h -- what the files of products on a device know of each other, and the runtime of them.
 *
 * A product is planned once per shape (matmul_plan.cu): which algorithm of cuBLASLt computes it,
 * with descriptors that are kept. The choices are text, for the file on disk that the next start
 * reads and for the checkpoint (matmul_text.cu). All state is this process's one.
 */
#ifndef GRADCC_MATMUL_H
#define GRADCC_MATMUL_H

#include "cuda/cublaslt.h"
#include "cuda/device.h"

/* ---- for the runtime ------------------------------------------------------------------------- */

typedef struct {
    RtStream *stream; /* plans are timed on it */
    void *room;       /* RtRooms.device bytes, aligned to RT_DEVICE_ALIGN */
    size_t room_bytes;
    void *scratch; /* of the device, unused until the first step: overwritten here, then 0 */
    size_t scratch_bytes;
    bool tf32; /* fp32 operands are rounded to TF32 */
} RtProductsSetup;

/* Plans for all that rt_room_matmul noted: as rt_products_take had it, or as kept on disk, or by a
   measurement. Again: for more products, those before keep their plans. */
void rt_products_open(const RtProductsSetup *setup);
void rt_products_close(void);
const char *rt_products_line(void); /* "cuBLASLt 13.1.0: 11 shapes, 9 from the cache"; or NULL */
/* A line for each epilogue: is it used, and why; one more if the checkpoint had other choices. */
const char *rt_epilogues_text(void);
/* Of n parameters at p there is a copy in 16 bits at p16: a bias of a product is taken from there.
   n 0: there is none. */
void rt_products_copy(const float *p, const uint16_t *p16, RtType type, ptrdiff_t n);

/* ---- matmul.cu: what a product is, to a library ---------------------------------------------- */

/* All that a plan depends on, defaults filled in. Compared as bytes. */
typedef struct {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c; /* elements */
    int32_t in, out;                       /* RtType */
    int32_t ta, tb, tf32, bias;
    int32_t align_a, align_b, align_c, align_bias; /* of addresses: bytes, at most 16 */
    /* RtEpilogueKind; then c here is what it writes, and x what it reads or writes besides */
    int32_t epilogue, align_x;
} RtProduct;

/* Sizes and steps filled in, batches that lie evenly as one, the last; false: c is empty. */
bool rt_product_complete(RtMatmul *p);
/* Of the last axis of batches. Of addresses the alignment alone counts; that of the bias is where a
   library reads it, NULL in a room of ours. */
typedef struct {
    const void *c, *a, *b, *bias;
} RtPlaces;
RtProduct rt_product_key(RtPlaces at, RtType in, RtType out, const RtMatmul *p);
/* The same with an epilogue; c, a and b as without. */
RtProduct rt_product_with(const RtProduct *q, const RtEpilogue *e, const void *c);
enum { RT_PRODUCT_TEXT = 256 };
/* "bf16 -> fp32, a[768,65536]' @ b[65536,50257]" */
const char *rt_product_name(const RtProduct *q, char text[RT_PRODUCT_TEXT]);
size_t rt_type_bytes(RtType type);
bool rt_product_is_plain(void); /* RT_MATMUL=plain: own kernels, no library */

/* ---- matmul_plan.cu: which algorithm computes it --------------------------------------------- */

typedef struct {
    RtProduct key;
    cublasLtMatmulDesc_t op; /* NULL: the library has no algorithm for it */
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool rows;        /* the bias is in c before the product is added */
    const void *bias; /* that op has now, and */
    const void *x;    /* ... of an epilogue */
    float seconds;    /* 0: not timed */
    bool apart;       /* of an epilogue: it is not used, but a kernel of the program; and */
    char why[80];     /* ... what for */
} RtPlan;

/* Never NULL: planned without a measurement where it was not planned at start. */
RtPlan *rt_plan_find(const RtProduct *key, const RtStream *stream);
/* c = a @ b (+ c) (+ bias), in the workspace of rt_products_open. */
void rt_plan_run(RtPlan *plan, void *c, const void *a, const void *b, const void *bias, bool add,
                 RtStream *stream);
/* The call alone: by this algorithm. */
cublasStatus_t rt_plan_call(const RtPlan *plan, const cublasLtMatmulAlgo_t *algo, void *c,
                            const void *a, const void *b, bool add, RtStream *stream);
bool rt_plan_set_bias(RtPlan *plan, const void *bias);
bool rt_plan_set_x(RtPlan *plan, const void *x);
/* Descriptors; rows: without the bias. false: the library has no such product, or there is no room
   to round its bias in. */
bool rt_plan_describe(RtPlan *plan, bool rows);
/* The library's algorithms for a plan as it is described, its own first choice first; how many. */
int rt_plan_algorithms(const RtPlan *plan, cublasLtMatmulHeuristicResult_t *found, int cap);
bool rt_product_is_tf32(void);
/* The copy of a bias in 16 bits of this type, or NULL. */
const void *rt_product_bias_copy(const void *bias, RtType type);

/* ---- matmul_time.cu: the fastest of some algorithms ------------------------------------------ */

enum { RT_ALGORITHMS = 16 }; /* that are looked at */
#define RT_WARM_SECONDS 0.1  /* before the first measurement, besides the budgets */
/* The fastest of n on the scratch memory of the setup, within about so many seconds; plan->seconds
   is that of one product. -1: its operands do not fit there, or no algorithm runs. */
int rt_plan_fastest(RtPlan *plan, const cublasLtMatmulHeuristicResult_t *found, int n,
                    const RtProductsSetup *setup, double budget);
/* Once by its own algorithm; false: that does not run here. */
bool rt_plan_rehearse(RtPlan *plan, const RtProductsSetup *setup);
/* Kernels that one call launches; 0: it cannot be told. */
int rt_plan_kernels(RtPlan *plan, const cublasLtMatmulAlgo_t *algo, const RtProductsSetup *setup);
/* Seconds of the kernel that does an epilogue's work where it is not used, with fused those of what
   is left where it is; 0: its operands do not fit. */
double rt_epilogue_seconds(const RtProduct *q, bool fused, const RtProductsSetup *setup);

/* ---- matmul_epilogue.cu: GELU in the kernel of a product ------------------------------------- */

typedef enum { RT_EPILOGUES_PROBE, RT_EPILOGUES_ON, RT_EPILOGUES_OFF } RtEpilogues;
RtEpilogues rt_epilogues(void); /* RT_CUDA_EPILOGUE */
enum { RT_EPILOGUE_TEXT = 3 * RT_PRODUCT_TEXT };
/* Is the plan's epilogue used? product: the same without it. setup NULL: nothing may be tried.
   budget: seconds for measurements, 0 = none. true: it was asked with a budget, so that the answer
   is one to keep, though it may have come without a measurement (it has none, or two kernels). */
bool rt_epilogue_choose(RtPlan *plan, RtPlan *product, const RtProductsSetup *setup, double budget);
/* "GELU of bf16 -> bf16, ...: in the product, one kernel"; with what tells its product from those
   of n that have the same name. */
const char *rt_epilogue_line(const RtPlan *plan, const RtProduct *all, int n,
                             char text[RT_EPILOGUE_TEXT]);

/* ---- matmul_text.cu: choices as text, on disk ------------------------------------------------ */

typedef struct {
    RtProduct key;
    cublasLtMatmulAlgo_t algo;
    bool rows, apart; /* as in RtPlan, like the next */
    float seconds;
} RtChoice;
typedef struct {
    RtChoice *at;
    int n, cap;
} RtChoices;

void rt_choices_add(RtChoices *to, const RtChoice *choice); /* in place of an older one */
const RtChoice *rt_choices_find(const RtChoices *all, const RtProduct *key);
void rt_choices_free(RtChoices *all);
/* Text of choices, allocated. machine: a line that says where they hold; before: lines that stand
   before, "" for none. */
char *rt_choices_text(const RtChoices *all, const char *machine, const char *before);
/* NULL, or why the text says nothing here; to is as it was then. */
const char *rt_choices_parse(RtChoices *to, const char *text, const char *machine);
/* The file of this machine, allocated; NULL: none is kept. */
char *rt_choices_path(const char *machine);
void rt_choices_load(RtChoices *to, const char *path, const char *machine);
/* With those that the file has by now. */
void rt_choices_save(const RtChoices *all, const char *path, const char *machine);

/* ---- matmul_plain.cu: own kernels ------------------------------------------------------------ */

/* Every row of c = bias, or 0 where it is NULL (fp32; of real type for c of fp64). */
void rt_product_rows(void *c, const void *bias, const RtProduct *q, RtStream *stream);
/* n elements of fp32 rounded to 16 bits. */
void rt_product_round(void *to, const float *from, RtType type, ptrdiff_t n, RtStream *stream);
/* The product without a library. */
void rt_product_plain(void *c, const void *a, const void *b, const void *bias, bool add,
                      const RtProduct *q, RtStream *stream);
/* Numbers that are finite in every type: what is timed. */
void rt_product_fill(void *at, size_t bytes, RtStream *stream);
/* y, and x unless it is NULL, are read, and where `write`, to is written: so many bytes each. */
void rt_product_walk(void *to, const void *x, const void *y, size_t bytes, bool write,
                     RtStream *stream);

/* ---- errors ---------------------------------------------------------------------------------- */

/* A call of cuBLASLt that failed ends the program; q may be NULL. */
void rt_product_lt(cublasStatus_t status, const char *call, const RtProduct *q,
                   const RtStream *stream);

#endif
