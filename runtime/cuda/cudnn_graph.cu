/* cudnn_graph.cu -- attention as a graph of cuDNN's operations, and a plan of it.
 *
 * In: sizes, steps and type of a call. Out: a plan that computes it with the same bits each time,
 * or why there is none. The one idea: cuDNN has fused kernels for graphs that it knows by their
 * shape, so the formulas are written here operation by operation in the form in which they are
 * known; no value between two operations is ever in memory, unless it says so.
 *
 *   forward   s = scale q k' (masked), y = softmax(s) v, lse = max + log(sum exp(s - max))
 *   backward  p = exp(s - lse), delta = sum y d_y, ds = scale p (d_y v' - delta),
 *             d_v = p' d_y, d_k = ds' q, d_q = ds k
 *
 * Written so, without fp32 sums of d_q in memory that blocks add to in any order, cuDNN keeps ds in
 * its work space and makes d_q of it in a second pass: more memory, but the same bits each time.
 */
#include "cuda/cudnn_graph.h"

#include "run.h"

enum { OPS_MOST = 32, CONFIGS_MOST = 8, FIRST_HIDDEN = 100 };

typedef cudnnBackendDescriptor_t Descriptor;

typedef struct {
    const RtCudnn *lib;
    RtCudnnPlan *plan;
    const RtCudnnKey *key;
    Descriptor ops[OPS_MOST];
    int n_ops;
    int64_t hidden; /* number of the next value that is not in memory */
    bool failed;    /* plan->why says how */
} Graph;

/* ---- descriptors ----------------------------------------------------------------------------- */

static void fail(Graph *g, const char *what, cudnnStatus_t status)
{
    char more[sizeof g->plan->why];
    if (g->failed)
        return;
    g->failed = true;
    more[0] = 0;
    g->lib->GetLastErrorString(more, sizeof more);
    more[strcspn(more, "\n")] = 0;
    snprintf(g->plan->why, sizeof g->plan->why, "%s: %s%s%.100s", what,
             g->lib->GetErrorString(status), *more ? ", " : "", more);
}

static void check(Graph *g, const char *what, cudnnStatus_t status)
{
    if (status != CUDNN_STATUS_SUCCESS)
        fail(g, what, status);
}

static Descriptor make(Graph *g, cudnnBackendDescriptorType_t type)
{
    Descriptor made = NULL;
    if (g->plan->n_made == RT_CUDNN_MADE)
        fail(g, "a plan has too many parts", CUDNN_STATUS_INTERNAL_ERROR);
    if (g->failed)
        return NULL;
    check(g, "cudnnBackendCreateDescriptor", g->lib->BackendCreateDescriptor(type, &made));
    if (made)
        g->plan->made[g->plan->n_made++] = made;
    return made;
}

static void set(Graph *g, Descriptor to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    if (!g->failed)
        check(g, "cudnnBackendSetAttribute",
              g->lib->BackendSetAttribute(to, name, type, count, elements));
}

/* An attribute of one int: most enums of cuDNN. */
static void set_int(Graph *g, Descriptor to, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int value)
{
    set(g, to, name, type, 1, &value);
}

static void set_part(Graph *g, Descriptor to, cudnnBackendAttributeName_t name, Descriptor part)
{
    set(g, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finish(Graph *g, Descriptor it)
{
    if (!g->failed)
        check(g, "cudnnBackendFinalize", g->lib->BackendFinalize(it));
}

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct {
    int64_t dim[4], step[4];
} Shape;

typedef enum { IN_MEMORY, HIDDEN, BY_VALUE } Where;

typedef struct { /* shapes are needed again */
    Descriptor at;
    Shape shape;
} Value;

static Shape dense(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (Shape){ { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

/* The last two axes exchanged. */
static Shape turned(Shape x)
{
    return (Shape){ { x.dim[0], x.dim[1], x.dim[3], x.dim[2] },
                    { x.step[0], x.step[1], x.step[3], x.step[2] } };
}

static Value tensor(Graph *g, int64_t number, int type, Shape shape, Where where)
{
    const int64_t align = where == BY_VALUE ? 4 : 16;
    const Descriptor at = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool yes = true;
    set_int(g, at, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    set(g, at, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.dim);
    set(g, at, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape.step);
    set(g, at, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(g, at, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (where == HIDDEN)
        set(g, at, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (where == BY_VALUE)
        set(g, at, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, at);
    return (Value){ at, shape };
}

static Value hidden(Graph *g, int type, Shape shape)
{
    return tensor(g, g->hidden++, type, shape, HIDDEN);
}

static Value number(Graph *g, int64_t which)
{
    return tensor(g, which, CUDNN_DATA_FLOAT, dense(1, 1, 1, 1), BY_VALUE);
}

static int half(const Graph *g)
{
    return g->key->type == RT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* Heads of a call: rows of `width` values, which lie side by side. */
static Value heads(Graph *g, int which, bool of_keys, int64_t width, bool turn)
{
    const RtCudnnKey *k = g->key;
    const int64_t *s = k->step[which];
    const Shape x = { { k->B, of_keys ? k->H / k->group : k->H, of_keys ? k->S : k->T, width },
                      { s[0], s[1], s[2], 1 } };
    return tensor(g, which, half(g), turn ? turned(x) : x, IN_MEMORY);
}

static Shape scores(const Graph *g) { return dense(g->key->B, g->key->H, g->key->T, g->key->S); }
static Shape rows(const Graph *g) { return dense(g->key->B, g->key->H, g->key->T, 1); }

/* ---- operations ------------------------------------------------------------------------------ */

static void add_op(Graph *g, Descriptor op)
{
    finish(g, op);
    g->ops[g->n_ops++] = op;
}

static Descriptor point(Graph *g, int mode, int type, Value x, Value y, int64_t axis)
{
    const Descriptor what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set_int(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    set_int(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, type);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, what);
    const Descriptor op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.at);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.at);
    return op;
}

static Value of_one(Graph *g, int mode, Value x)
{
    const Value y = hidden(g, CUDNN_DATA_FLOAT, x.shape);
    add_op(g, point(g, mode, CUDNN_DATA_FLOAT, x, y, 0));
    return y;
}

static void of_two_into(Graph *g, int mode, Value x, Value b, Value y)
{
    const Descriptor op = point(g, mode, CUDNN_DATA_FLOAT, x, y, 0);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.at);
    add_op(g, op);
}

/* As wide as x. */
static Value of_two(Graph *g, int mode, Value x, Value b)
{
    const Value y = hidden(g, CUDNN_DATA_FLOAT, x.shape);
    of_two_into(g, mode, x, b, y);
    return y;
}

static void matmul_into(Graph *g, Value a, Value b, Value c)
{
    const Descriptor what = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_int(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finish(g, what);
    const Descriptor op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.at);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.at);
    set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.at);
    add_op(g, op);
}

static void reduce_into(Graph *g, int by, Value x, Value y)
{
    const Descriptor what = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_int(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, by);
    set_int(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finish(g, what);
    const Descriptor op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.at);
    set_part(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.at);
    add_op(g, op);
}

/* Over the last axis. */
static Value reduce(Graph *g, int by, Value x)
{
    const Value y = hidden(g, CUDNN_DATA_FLOAT, rows(g));
    reduce_into(g, by, x, y);
    return y;
}

/* x' in 16 bits. */
static Value turn(Graph *g, Value x)
{
    const Value y = hidden(g, half(g), turned(x.shape));
    const Descriptor op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.at);
    set_part(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.at);
    add_op(g, op);
    return y;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Number of the row (axis 2) or the column (3) of each score. */
static Value places(Graph *g, Value s, int64_t axis)
{
    const Value y = hidden(g, CUDNN_DATA_INT32, s.shape);
    add_op(g, point(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, s, y, axis));
    return y;
}

/* -infinity where a query does not see a key. */
static Value masked(Graph *g, Value s)
{
    const Value row = places(g, s, 2), column = places(g, s, 3);
    const Value sees = hidden(g, CUDNN_DATA_BOOLEAN, s.shape);
    const Value y = hidden(g, CUDNN_DATA_FLOAT, s.shape);
    Descriptor op = point(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, sees, 0);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, column.at);
    add_op(g, op);
    op = point(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, s, y, 0);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, number(g, RT_CUDNN_MASK).at);
    set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, sees.at);
    add_op(g, op);
    return y;
}

static void forward(Graph *g)
{
    const RtCudnnKey *k = g->key;
    const Value q = heads(g, RT_CUDNN_Q, false, k->D, false);
    const Value keys = heads(g, RT_CUDNN_K, true, k->D, true);
    const Value v = heads(g, RT_CUDNN_V, true, k->E, false);
    const Value y = heads(g, RT_CUDNN_Y, false, k->E, false);
    const Value lse = tensor(g, RT_CUDNN_LSE, CUDNN_DATA_FLOAT, rows(g), IN_MEMORY);
    Value s = hidden(g, CUDNN_DATA_FLOAT, scores(g));
    matmul_into(g, q, keys, s);
    s = of_two(g, CUDNN_POINTWISE_MUL, s, number(g, RT_CUDNN_SCALE));
    if (k->causal)
        s = masked(g, s);
    const Value most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s);
    const Value e = of_one(g, CUDNN_POINTWISE_EXP, of_two(g, CUDNN_POINTWISE_SUB, s, most));
    const Value sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e);
    of_two_into(g, CUDNN_POINTWISE_ADD, most, of_one(g, CUDNN_POINTWISE_LOG, sum), lse);
    const Value p = hidden(g, half(g), s.shape);
    of_two_into(g, CUDNN_POINTWISE_DIV, e, sum, p);
    matmul_into(g, p, v, y);
}

/* d_k or d_v = x' @ by, added up over the heads of a group. */
static void of_keys(Graph *g, Value x, Value by, Value to)
{
    const RtCudnnKey *k = g->key;
    if (k->group == 1) {
        matmul_into(g, turn(g, x), by, to);
        return;
    }
    const Value all = hidden(g, half(g), dense(k->B, k->H, k->S, to.shape.dim[3]));
    matmul_into(g, turn(g, x), by, all);
    reduce_into(g, CUDNN_REDUCE_TENSOR_ADD, all, to);
}

static void backward(Graph *g)
{
    const RtCudnnKey *k = g->key;
    const Value q = heads(g, RT_CUDNN_Q, false, k->D, false);
    const Value keys = heads(g, RT_CUDNN_K, true, k->D, true);
    const Value v = heads(g, RT_CUDNN_V, true, k->E, true);
    const Value y = heads(g, RT_CUDNN_Y, false, k->E, false);
    const Value d_y = heads(g, RT_CUDNN_D_Y, false, k->E, false);
    const Value lse = tensor(g, RT_CUDNN_LSE, CUDNN_DATA_FLOAT, rows(g), IN_MEMORY);
    const Value delta = tensor(g, RT_CUDNN_DELTA, CUDNN_DATA_FLOAT, rows(g), IN_MEMORY);
    const Value scale = number(g, RT_CUDNN_SCALE);

    const Value sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, of_two(g, CUDNN_POINTWISE_MUL, d_y, y));
    of_two_into(g, CUDNN_POINTWISE_MUL, sum, number(g, RT_CUDNN_ONE), delta);

    Value s = hidden(g, CUDNN_DATA_FLOAT, scores(g));
    matmul_into(g, q, keys, s);
    s = of_two(g, CUDNN_POINTWISE_MUL, s, scale);
    s = of_two(g, CUDNN_POINTWISE_SUB, s, lse);
    if (k->causal)
        s = masked(g, s);
    const Value p = of_one(g, CUDNN_POINTWISE_EXP, s);
    of_keys(g, p, d_y, heads(g, RT_CUDNN_D_V, true, k->E, false));

    Value ds = hidden(g, CUDNN_DATA_FLOAT, scores(g));
    matmul_into(g, d_y, v, ds);
    ds = of_two(g, CUDNN_POINTWISE_SUB, ds, delta);
    ds = of_two(g, CUDNN_POINTWISE_MUL, ds, p);
    ds = of_two(g, CUDNN_POINTWISE_MUL, ds, scale);
    of_keys(g, ds, q, heads(g, RT_CUDNN_D_K, true, k->D, false));
    matmul_into(g, ds, turn(g, keys), heads(g, RT_CUDNN_D_Q, false, k->D, false));
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* cuDNN tells how many there are: more than the room for them, perhaps. */
static int64_t given(int64_t n, int64_t room) { return n < room ? n : room; }

/* Does cuDNN not say that results of this engine change from run to run? It does not say it of all
   that do: what rules most of it out is the form of the graph. */
static bool repeats(Graph *g, Descriptor config)
{
    int notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0, one = 0;
    Descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (g->failed
        || g->lib->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine)
        || g->lib->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                       &n, notes))
        return false;
    for (int64_t i = 0; i < given(n, CUDNN_NUMERICAL_NOTE_TYPE_COUNT); i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    (void)g->lib->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                      &one, &g->plan->engine);
    return true;
}

static Descriptor plan_of(Graph *g, Descriptor config, RtCudnnTarget target)
{
    const Descriptor plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t n = 0;
    if (target.handle)
        set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    else
        set_part(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties);
    set_part(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(g, plan);
    if (!g->failed)
        check(g, "cudnnBackendGetAttribute",
              g->lib->BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &g->plan->work_bytes));
    return g->failed ? NULL : plan;
}

static Descriptor graph_of(Graph *g, RtCudnnTarget target)
{
    const Descriptor graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target.handle)
        set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    finish(g, graph);
    return graph;
}

/* The first that cuDNN proposes, runs and repeats. */
static void choose(Graph *g, RtCudnnTarget target)
{
    Descriptor config[CONFIGS_MOST];
    int64_t n = 0;
    const Descriptor graph = graph_of(g, target),
                     ask = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_part(g, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_int(g, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    if (!target.handle)
        set_part(g, ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties);
    finish(g, ask);
    for (int i = 0; i < CONFIGS_MOST; i++)
        config[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->failed)
        check(g, "the engines of cuDNN",
              g->lib->BackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MOST, &n, config));
    bool any = false;
    n = given(n, CONFIGS_MOST);
    for (int64_t i = 0; i < n && !g->plan->plan && (!g->failed || any); i++) {
        g->failed = false;
        if (!repeats(g, config[i]))
            continue;
        any = true;
        g->plan->plan = plan_of(g, config[i], target);
    }
    if (!any && !g->failed)
        snprintf(g->plan->why, sizeof g->plan->why, "%s",
                 n > 0 ? "no engine of cuDNN gives the same bits each time"
                       : "cuDNN has no engine for it");
}

void rt_cudnn_plan(RtCudnnPlan *plan, RtCudnnTarget target)
{
    Graph g = { .lib = rt_cudnn(), .plan = plan, .key = &plan->key, .hidden = FIRST_HIDDEN };
    if (plan->key.grad)
        backward(&g);
    else
        forward(&g);
    choose(&g, target);
}

void rt_cudnn_free(RtCudnnPlan *plan)
{
    for (int i = plan->n_made; i-- > 0;)
        (void)rt_cudnn()->BackendDestroyDescriptor(plan->made[i]);
    memset(plan, 0, sizeof *plan);
}

cudnnStatus_t rt_cudnn_run(const RtCudnnPlan *plan, cudnnHandle_t handle, void *const *at,
                           void *work)
{
    const RtCudnn *lib = rt_cudnn();
    int64_t number[RT_CUDNN_TENSORS], n = 0;
    void *place[RT_CUDNN_TENSORS];
    Descriptor pack;
    for (int i = 0; i < RT_CUDNN_TENSORS; i++)
        if (at[i]) {
            number[n] = i;
            place[n++] = at[i];
        }
    cudnnStatus_t status = lib->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                                        &pack);
    if (status)
        return status;
    status = lib->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n,
                                      number);
    if (!status)
        status = lib->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, n, place);
    if (!status)
        status = lib->BackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &work);
    if (!status)
        status = lib->BackendFinalize(pack);
    if (!status)
        status = lib->BackendExecute(handle, plan->plan, pack);
    (void)lib->BackendDestroyDescriptor(pack);
    return status;
}
