/* matmul_plan.cu -- plans of products: descriptors and an algorithm of cuBLASLt for each shape.
 *
 * In: the shapes that a model's .rooms names, before the first step, with what a checkpoint or the
 * file on disk says of them. Out: a plan for each, found by its shape in a step. The one idea: an
 * algorithm is chosen once, by a measurement where none was chosen before, and the choice is kept
 * with the run: the same algorithm gives the same bits.
 *
 * Sums that are split are added in fp32 (fp64), in an order that the shape fixes: schemes that add
 * in the result's type or in place are not asked for.
 */
#include "cuda/attention_cudnn.h"
#include "cuda/matmul.h"

enum {
    PLANS = 512,          /* of a process; the oldest makes room */
    SLOTS = 4 * PLANS,    /* of the table that finds them */
    NOTED = 256,          /* shapes that are planned at start */
    WORK_MOST = 32 << 20, /* bytes of workspace; what the library's kernels for Hopper want */
    WORK_LEAST = 1 << 20,
};

#define TUNE_SECONDS 2.0 /* for all measurements of a start */

static struct {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    RtProductsSetup setup;
    char *machine, *path; /* where choices hold; the file, or NULL */
    char *bias;           /* room of a bias that is rounded */
    char *work;
    size_t bias_bytes, work_bytes;
    RtPlan plans[PLANS];
    int n_plans, oldest;
    int slots[SLOTS]; /* plan and 1; 0: free */
    RtChoices stored, kept;
    int n_shapes, n_stored, n_kept, n_timed; /* of those planned at start */
    int n_probed;                            /* epilogues, by a measurement */
    char line[160], *text, *epilogues;
} at;

static struct { /* by rt_room_matmul, for rt_products_open */
    RtProduct shapes[NOTED];
    int n;
    size_t bias, work;
    RtEpilogueKind next; /* of the product to come */
} noted;

static struct { /* of parameters, in 16 bits */
    const float *p;
    const uint16_t *p16;
    RtType type;
    ptrdiff_t n;
} copy;

static char *taken; /* the choices of a checkpoint, or NULL */

bool rt_product_is_tf32(void) { return at.setup.tf32; }

void rt_products_copy(const float *p, const uint16_t *p16, RtType type, ptrdiff_t n)
{
    copy.p = p;
    copy.p16 = p16;
    copy.type = type;
    copy.n = n;
}

const void *rt_product_bias_copy(const void *bias, RtType type)
{
    const float *from = (const float *)bias;
    const bool inside = bias && copy.n > 0 && type == copy.type && from >= copy.p
                        && from < copy.p + copy.n;
    return inside ? copy.p16 + (from - copy.p) : NULL;
}

/* ---- what they work in ----------------------------------------------------------------------- */

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Of a product: sums of 16 parts of a small result, kept apart. */
static size_t work_bytes(const RtProduct *q)
{
    const double parts = 16.0 * (double)q->batch * (double)q->m * (double)q->n
                         * (double)most(rt_type_bytes((RtType)q->out), 4);
    return rt_place_size(parts > (double)WORK_MOST ? (size_t)WORK_MOST
                                                   : most((size_t)parts, WORK_LEAST));
}

static size_t bias_bytes(const RtProduct *q)
{
    const size_t size = rt_type_bytes((RtType)q->out);
    return q->bias && size == 2 ? rt_place_size((size_t)q->n * size) : 0;
}

static bool is_noted(const RtProduct *q)
{
    for (int i = 0; i < noted.n; i++)
        if (memcmp(&noted.shapes[i], q, sizeof *q) == 0)
            return true;
    return false;
}

/* An address that many elements behind a boundary. */
static const void *place_of(ptrdiff_t start, RtType type)
{
    return (const void *)((uintptr_t)start * rt_type_bytes(type));
}

static void note(RtRooms *rooms, const RtProduct *q)
{
    if (is_noted(q))
        return;
    rooms->noted++;
    if (noted.n < NOTED)
        noted.shapes[noted.n++] = *q;
}

void rt_room_epilogue(RtRooms *rooms, RtEpilogueKind kind)
{
    RT_UNUSED(rooms);
    noted.next = kind;
}

void rt_room_matmul_at(RtRooms *rooms, RtType in, RtType out, RtMatmul p, RtStarts at)
{
    const RtEpilogueKind next = noted.next;
    if (rooms->noted == 0)
        memset(&noted, 0, sizeof noted);
    noted.next = RT_NO_EPILOGUE;
    if (!rt_product_complete(&p) || p.k == 0)
        return;
    const RtPlaces places = { place_of(at.c, out), place_of(at.a, in), place_of(at.b, in),
                              place_of(at.bias, out) };
    const RtProduct q = rt_product_key(places, in, out, &p);
    noted.bias = most(noted.bias, bias_bytes(&q));
    noted.work = most(noted.work, work_bytes(&q));
    rooms->device = most(rooms->device, noted.bias + noted.work);
    note(rooms, &q);
    if (next && q.batch == 1 && p.batch[0] == 1 && !p.add) {
        RtProduct with = q;
        with.epilogue = next;
        with.align_x = next == RT_GELU ? 0 : 16;
        note(rooms, &with);
    }
}

void rt_room_matmul(RtRooms *rooms, RtType in, RtType out, RtMatmul p)
{
    rt_room_matmul_at(rooms, in, out, p, {});
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static cudaDataType_t data_type(int32_t type)
{
    return type == RT_F64    ? CUDA_R_64F
           : type == RT_F32  ? CUDA_R_32F
           : type == RT_BF16 ? CUDA_R_16BF
                             : CUDA_R_16F;
}

static cublasLtEpilogue_t epilogue_of(const RtProduct *q, bool bias)
{
    switch (q->epilogue) {
    case RT_GELU: return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case RT_GELU_AND_INPUT:
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case RT_GELU_GRAD: return CUBLASLT_EPILOGUE_DGELU;
    default: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static bool describe_op(RtPlan *plan)
{
    const RtLt *lt = rt_lt();
    const RtProduct *q = &plan->key;
    const bool wide = q->in == RT_F64;
    const cublasComputeType_t compute = wide      ? CUBLAS_COMPUTE_64F
                                        : q->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = q->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = q->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const bool bias = q->bias && !plan->rows;
    const cublasLtEpilogue_t epilogue = epilogue_of(q, bias);
    const int32_t type = data_type(q->out);
    if (lt->MatmulDescCreate(&plan->op, compute, wide ? CUDA_R_64F : CUDA_R_32F))
        return false;
    bool good = !lt->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                            sizeof first)
                && !lt->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                               sizeof second);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        good = good
               && !lt->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue);
    if (bias)
        good = good
               && !lt->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                              sizeof type);
    if (q->align_x > 0)
        good = good
               && !lt->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                              &q->ldc, sizeof q->ldc);
    return good;
}

static bool describe_matrix(cublasLtMatrixLayout_t *to, int32_t type, int64_t rows, int64_t columns,
                            int64_t row_step, int64_t batch, int64_t step)
{
    const RtLt *lt = rt_lt();
    const int32_t count = (int32_t)batch;
    if (row_step < columns || rows > INT32_MAX || columns > INT32_MAX || batch > INT32_MAX)
        return false;
    /* columns of theirs are rows of ours */
    if (lt->MatrixLayoutCreate(to, data_type(type), (uint64_t)columns, (uint64_t)rows, row_step))
        return false;
    return batch == 1
           || (!lt->MatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count)
               && !lt->MatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &step, sizeof step));
}

static void plan_free(RtPlan *plan)
{
    const RtLt *lt = rt_lt();
    cublasLtMatrixLayout_t *const layouts[] = { &plan->a, &plan->b, &plan->c };
    if (plan->op)
        (void)lt->MatmulDescDestroy(plan->op);
    plan->op = NULL;
    plan->bias = plan->x = NULL;
    for (int i = 0; i < 3; i++) {
        if (*layouts[i])
            (void)lt->MatrixLayoutDestroy(*layouts[i]);
        *layouts[i] = NULL;
    }
}

bool rt_plan_describe(RtPlan *plan, bool rows)
{
    const RtProduct *q = &plan->key;
    plan_free(plan);
    plan->rows = rows && q->bias;
    const bool good = (rows || bias_bytes(q) <= at.bias_bytes) && describe_op(plan)
                      && describe_matrix(&plan->a, q->in, q->ta ? q->k : q->m, q->ta ? q->m : q->k,
                                         q->lda, q->batch, q->step_a)
                      && describe_matrix(&plan->b, q->in, q->tb ? q->n : q->k, q->tb ? q->k : q->n,
                                         q->ldb, q->batch, q->step_b)
                      && describe_matrix(&plan->c, q->out, q->m, q->n, q->ldc, q->batch, q->step_c)
                      && (!q->bias || rows
                          || rt_plan_set_bias(plan, (void *)(uintptr_t)q->align_bias))
                      && (q->align_x == 0 || rt_plan_set_x(plan, (void *)(uintptr_t)q->align_x));
    if (!good)
        plan_free(plan);
    return good;
}

bool rt_plan_set_bias(RtPlan *plan, const void *bias)
{
    if (plan->bias != bias
        && rt_lt()->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof bias))
        return false;
    plan->bias = bias;
    return true;
}

bool rt_plan_set_x(RtPlan *plan, const void *x)
{
    if (plan->x != x
        && rt_lt()->MatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &x,
                                           sizeof x))
        return false;
    plan->x = x;
    return true;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static void prefer(cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
    rt_product_lt(rt_lt()->MatmulPreferenceSetAttribute(at.preference, what, value, bytes),
                  "cublasLtMatmulPreferenceSetAttribute", NULL, NULL);
}

int rt_plan_algorithms(const RtPlan *plan, cublasLtMatmulHeuristicResult_t *found, int cap)
{
    const uint32_t a = (uint32_t)plan->key.align_a, b = (uint32_t)plan->key.align_b,
                   c = (uint32_t)plan->key.align_c;
    int n = 0, good = 0;
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c);
    const cublasStatus_t status = rt_lt()->MatmulAlgoGetHeuristic(
        at.handle, plan->op, plan->b, plan->a, plan->c, plan->c, at.preference, cap, found, &n);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return 0;
    rt_product_lt(status, "cublasLtMatmulAlgoGetHeuristic", &plan->key, NULL);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= at.work_bytes)
            found[good++] = found[i];
    return good;
}

/* Takes the choice of an earlier start, if it holds here. */
static bool plan_adopt(RtPlan *plan, const RtChoices *from)
{
    const RtChoice *choice = rt_choices_find(from, &plan->key);
    cublasLtMatmulHeuristicResult_t result;
    const bool told = plan->key.epilogue && rt_epilogues() != RT_EPILOGUES_PROBE;
    if (choice && !told && choice->apart) {
        plan->apart = true;
        return true;
    }
    if (!choice || told || !rt_plan_describe(plan, choice->rows))
        return false;
    if (rt_lt()->MatmulAlgoCheck(at.handle, plan->op, plan->b, plan->a, plan->c, plan->c,
                                 &choice->algo, &result)
        || result.workspaceSize > at.work_bytes) {
        plan_free(plan);
        return false;
    }
    plan->algo = choice->algo;
    plan->seconds = choice->seconds;
    return true;
}

/* Among the library's algorithms: the first, or by measurement; the bias in the product if it can.
   budget: seconds for it, 0 = none. true: measured. */
static bool plan_choose(RtPlan *plan, double budget, const RtStream *stream)
{
    cublasLtMatmulHeuristicResult_t found[RT_ALGORITHMS];
    const int cap = budget > 0 ? RT_ALGORITHMS : 1;
    int n = 0, best = -1;
    for (int rows = plan->key.bias ? 0 : 1; rows < 2 && n == 0; rows++)
        n = rt_plan_describe(plan, rows) ? rt_plan_algorithms(plan, found, cap) : 0;
    if (n == 0) {
        char name[RT_PRODUCT_TEXT];
        plan_free(plan);
        rt_warn("%s: cuBLASLt %s has no algorithm for %s; a plain kernel computes it, slowly",
                stream && stream->where ? stream->where : "products", rt_lt_version(),
                rt_product_name(&plan->key, name));
        return false;
    }
    if (budget > 0 && n > 1)
        best = rt_plan_fastest(plan, found, n, &at.setup, budget);
    plan->algo = found[best < 0 ? 0 : best].algo;
    return best >= 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

static unsigned slot_of(const RtProduct *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash % SLOTS;
}

static void slots_fill(void)
{
    memset(at.slots, 0, sizeof at.slots);
    for (int i = 0; i < at.n_plans; i++) {
        unsigned slot = slot_of(&at.plans[i].key);
        while (at.slots[slot])
            slot = (slot + 1) % SLOTS;
        at.slots[slot] = i + 1;
    }
}

static RtPlan *plan_lookup(const RtProduct *key)
{
    for (unsigned slot = slot_of(key); at.slots[slot]; slot = (slot + 1) % SLOTS) {
        RtPlan *plan = &at.plans[at.slots[slot] - 1];
        if (memcmp(&plan->key, key, sizeof *key) == 0)
            return plan;
    }
    return NULL;
}

static RtPlan *plan_new(const RtProduct *key)
{
    const int i = at.n_plans < PLANS ? at.n_plans++ : at.oldest++ % PLANS;
    plan_free(&at.plans[i]);
    at.plans[i].key = *key;
    at.plans[i].seconds = 0;
    at.plans[i].apart = false;
    slots_fill();
    return &at.plans[i];
}

RtPlan *rt_plan_find(const RtProduct *key, const RtStream *stream)
{
    RtPlan *plan = plan_lookup(key);
    if (plan)
        return plan;
    if (!at.handle)
        rt_fail(RT_EXIT_FAIL, "a product before the run was opened");
    plan = plan_new(key);
    if (plan_adopt(plan, &at.stored))
        return plan;
    if (key->epilogue)
        (void)rt_epilogue_choose(plan, NULL, NULL, 0);
    else
        (void)plan_choose(plan, 0, stream);
    return plan;
}

/* ---- running --------------------------------------------------------------------------------- */

cublasStatus_t rt_plan_call(const RtPlan *plan, const cublasLtMatmulAlgo_t *algo, void *c,
                            const void *a, const void *b, bool add, RtStream *stream)
{
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const bool wide = plan->key.in == RT_F64;
    const void *alpha = wide ? (const void *)&wide_one : &one;
    const void *beta = wide ? (add ? (const void *)&wide_one : &wide_zero) : add ? &one : &zero;
    return rt_lt()->Matmul(at.handle, plan->op, alpha, b, plan->b, a, plan->a, beta, c, plan->c, c,
                           plan->c, algo, at.work, at.work_bytes, stream->at);
}

void rt_plan_run(RtPlan *plan, void *c, const void *a, const void *b, const void *bias, bool add,
                 RtStream *stream)
{
    const RtProduct *q = &plan->key;
    if (bias && !plan->rows && rt_type_bytes((RtType)q->out) == 2) {
        const void *const rounded = rt_product_bias_copy(bias, (RtType)q->out);
        if (!rounded)
            rt_product_round(at.bias, (const float *)bias, (RtType)q->out, q->n, stream);
        bias = rounded ? rounded : at.bias;
    }
    if (bias && plan->rows)
        rt_product_rows(c, bias, q, stream);
    else if (bias && !rt_plan_set_bias(plan, bias))
        rt_product_lt(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmulDescSetAttribute", q, stream);
    rt_profile_begin(stream);
    rt_product_lt(rt_plan_call(plan, &plan->algo, c, a, b, add || (bias && plan->rows), stream),
                  "cublasLtMatmul", q, stream);
    rt_launch_end(stream, "cublasLtMatmul");
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Where choices hold: on the same GPU, with the same library. */
static char *machine_line(void)
{
    const RtDevice *d = at.setup.stream->device;
    return rt_printf("%s, compute %d.%d, %d multiprocessors, cuBLASLt %s", d->name, d->major,
                     d->minor, d->processors, rt_lt_version());
}

/* RT_CUDA_TUNE=on|off; the clock of a simulator says nothing. */
static bool is_tuned(void)
{
#if defined(RT_SIMULATOR)
    return rt_environment_is("RT_CUDA_TUNE", "on");
#else
    return !rt_environment_is("RT_CUDA_TUNE", "off");
#endif
}

static void library_open(void)
{
    const RtLt *lt = rt_lt();
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t bytes = at.work_bytes;
    rt_product_lt(lt->Create(&at.handle), "cublasLtCreate", NULL, at.setup.stream);
    rt_product_lt(lt->MatmulPreferenceCreate(&at.preference), "cublasLtMatmulPreferenceCreate",
                  NULL, at.setup.stream);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
}

/* The choices of the checkpoint and those on disk. */
static void choices_open(bool tuned)
{
    const char *problem = taken ? rt_choices_parse(&at.stored, taken, at.machine) : NULL;
    if (problem)
        rt_warn("the products of the checkpoint are %s: they agree to rounding, not bit for bit",
                problem);
    at.path = tuned ? rt_choices_path(at.machine) : NULL;
    if (at.path)
        rt_choices_load(&at.kept, at.path, at.machine);
}

static RtProduct noted_key(int i)
{
    RtProduct key = noted.shapes[i];
    key.tf32 = at.setup.tf32 && key.in == RT_F32;
    return key;
}

/* As an earlier start chose; false: none did, or that does not hold here. */
static bool plan_again(RtPlan *plan, bool tuned)
{
    const int stored = plan_adopt(plan, &at.stored);
    const int kept = !stored && plan_adopt(plan, &at.kept);
    const bool good = (stored || kept)
                      && (!tuned || plan->apart || rt_plan_rehearse(plan, &at.setup));
    (void)snprintf(plan->why, sizeof plan->why, stored ? "as before" : "from the cache");
    at.n_stored += good && stored && !plan->key.epilogue;
    at.n_kept += good && kept && !plan->key.epilogue;
    return good;
}

/* Its product without the epilogue, noted before it. */
static RtPlan *plan_without(const RtPlan *plan)
{
    RtProduct key = plan->key;
    key.epilogue = key.align_x = 0;
    return plan_lookup(&key);
}

/* Plans of what was noted and has none; what no earlier start chose is chosen now. */
static void plans_make(bool tuned)
{
    int left[NOTED], n_left = 0;
    for (int i = 0; i < noted.n; i++) {
        const RtProduct key = noted_key(i);
        if (plan_lookup(&key))
            continue;
        RtPlan *plan = plan_new(&key);
        at.n_shapes += !key.epilogue;
        if (!plan_again(plan, tuned))
            left[n_left++] = (int)(plan - at.plans);
    }
    for (int i = 0; i < n_left; i++) {
        RtPlan *plan = &at.plans[left[i]];
        const double budget = tuned ? (TUNE_SECONDS - RT_WARM_SECONDS) / n_left : 0;
        if (plan->key.epilogue)
            at.n_probed += rt_epilogue_choose(plan, plan_without(plan), &at.setup, budget);
        else
            at.n_timed += plan_choose(plan, budget, at.setup.stream);
    }
}

/* measured: without those that the user made. */
static void choices_of_plans(RtChoices *to, bool measured)
{
    for (int i = 0; i < at.n_plans; i++) {
        const RtPlan *plan = &at.plans[i];
        RtChoice choice;
        memset(&choice, 0, sizeof choice);
        choice.key = plan->key;
        choice.apart = plan->apart;
        if (!plan->apart) {
            choice.algo = plan->algo;
            choice.rows = plan->rows;
            choice.seconds = plan->seconds;
        }
        if (measured && plan->key.epilogue && rt_epilogues() != RT_EPILOGUES_PROBE)
            continue;
        if (plan->op || plan->apart)
            rt_choices_add(to, &choice);
    }
}

static void tell(const char *line)
{
    char *more = rt_printf("%s%s\n", at.epilogues ? at.epilogues : "", line);
    rt_free(at.epilogues);
    at.epilogues = more;
}

static void epilogues_tell(void)
{
    static RtProduct keys[NOTED];
    char one[RT_EPILOGUE_TEXT];
    for (int i = 0; i < noted.n; i++)
        keys[i] = noted_key(i);
    for (int i = 0; i < noted.n; i++) {
        const RtPlan *plan = keys[i].epilogue ? plan_lookup(&keys[i]) : NULL;
        if (plan)
            tell(rt_epilogue_line(plan, keys, noted.n, one));
    }
}

/* Computed as the checkpoint has it, or unknown to it. */
static bool is_as_stored(const RtPlan *plan)
{
    const RtChoice *stored = rt_choices_find(&at.stored, &plan->key);
    if (!stored || stored->apart || plan->apart)
        return !stored || stored->apart == plan->apart;
    return plan->op && stored->rows == plan->rows
           && memcmp(&stored->algo, &plan->algo, sizeof plan->algo) == 0;
}

static void changes_tell(void)
{
    char line[160];
    int n = 0;
    for (int i = 0; i < noted.n; i++) {
        const RtProduct key = noted_key(i);
        const RtPlan *plan = plan_lookup(&key);
        n += plan && !is_as_stored(plan);
    }
    if (n == 0)
        return;
    (void)snprintf(line, sizeof line,
                   "note     %d product%s computed otherwise than before: results agree to "
                   "rounding, not bit for bit",
                   n, n == 1 ? " is" : "s are");
    tell(line);
}

static void line_write(double seconds, bool tuned)
{
    int n = snprintf(at.line, sizeof at.line, "cuBLASLt %s: %d shapes", rt_lt_version(),
                     at.n_shapes);
    const size_t cap = sizeof at.line;
    if (at.n_stored > 0)
        n += snprintf(at.line + n, cap - (size_t)n, ", %d as before", at.n_stored);
    if (at.n_kept > 0)
        n += snprintf(at.line + n, cap - (size_t)n, ", %d from the cache", at.n_kept);
    if (at.n_timed > 0)
        n += snprintf(at.line + n, cap - (size_t)n, ", %d timed", at.n_timed);
    if (at.setup.tf32)
        n += snprintf(at.line + n, cap - (size_t)n, ", fp32 by TF32");
    if (tuned)
        (void)snprintf(at.line + n, cap - (size_t)n, ", %.1f s", seconds);
}

/* The room is cut in two: plans made before fit into it, or are made anew. */
static void room_cut(const RtProductsSetup *setup)
{
    const size_t bias = most(at.bias_bytes, noted.bias), work = most(at.work_bytes, noted.work);
    if (at.handle && (setup->tf32 != at.setup.tf32 || setup->room_bytes < bias + work))
        rt_products_close();
    at.setup = *setup;
    at.bias_bytes = at.handle ? bias : noted.bias;
    at.work_bytes = at.handle ? work : noted.work;
    at.bias = (char *)setup->room;
    at.work = at.bias + at.bias_bytes;
    if (setup->room_bytes < at.bias_bytes + at.work_bytes)
        rt_fail(RT_EXIT_FAIL,
                "products have %zu bytes to work in, planned were %zu: a mistake of "
                "gradcc",
                setup->room_bytes, at.bias_bytes + at.work_bytes);
}

static void plans_keep(void)
{
    RtChoices chosen = { NULL, 0, 0 };
    if (!at.path || at.n_timed + at.n_probed == 0)
        return;
    choices_of_plans(&chosen, true);
    rt_choices_save(&chosen, at.path, at.machine);
    rt_choices_free(&chosen);
}

static bool has_fp32(void)
{
    for (int i = 0; i < noted.n; i++)
        if (noted.shapes[i].in == RT_F32)
            return true;
    return false;
}

void rt_products_open(const RtProductsSetup *setup)
{
    const double start = rt_now();
    const bool tuned = is_tuned() && setup->scratch_bytes > 0;
    room_cut(setup);
    rt_free(at.epilogues);
    at.epilogues = NULL;
    if (noted.n == 0)
        return;
    if (setup->tf32 && !has_fp32())
        rt_fail(RT_EXIT_USAGE, "--tf32: no product of this run is in fp32\nhint: leave it out");
    if (rt_product_is_plain()) {
        (void)snprintf(at.line, sizeof at.line, "by plain kernels (RT_MATMUL=plain)");
        return;
    }
    if (!at.handle) {
        library_open();
        at.machine = machine_line();
        choices_open(tuned);
    }
    plans_make(tuned);
    plans_keep();
    if (tuned) {
        RtStream *stream = setup->stream;
        RT_CUDA_CALL(stream, cudaMemsetAsync(setup->scratch, 0, setup->scratch_bytes, stream->at));
        rt_stream_wait(stream);
    }
    line_write(rt_now() - start, tuned);
    epilogues_tell();
    changes_tell();
}

void rt_products_close(void)
{
    for (int i = 0; i < at.n_plans; i++)
        plan_free(&at.plans[i]);
    if (at.preference)
        (void)rt_lt()->MatmulPreferenceDestroy(at.preference);
    if (at.handle)
        (void)rt_lt()->Destroy(at.handle);
    rt_choices_free(&at.stored);
    rt_choices_free(&at.kept);
    rt_free(at.machine);
    rt_free(at.path);
    rt_free(at.text);
    rt_free(at.epilogues);
    memset(&at, 0, sizeof at);
}

void rt_products_take(const char *plans)
{
    plans = rt_attention_take(plans);
    rt_free(taken);
    taken = plans ? rt_printf("%s", plans) : NULL;
}

const char *rt_epilogues_text(void) { return at.epilogues ? at.epilogues : ""; }
const char *rt_products_line(void) { return *at.line ? at.line : NULL; }

const char *rt_products_text(void)
{
    RtChoices chosen = { NULL, 0, 0 };
    const char *attention = rt_attention_text();
    rt_free(at.text);
    at.text = NULL;
    if (!at.handle && *attention)
        at.text = rt_printf("%s", attention);
    if (!at.handle)
        return at.text;
    for (int i = 0; i < at.stored.n; i++) /* of shapes that this process has not met yet, too */
        rt_choices_add(&chosen, &at.stored.at[i]);
    choices_of_plans(&chosen, false);
    at.text = rt_choices_text(&chosen, at.machine, attention);
    rt_choices_free(&chosen);
    return at.text;
}
