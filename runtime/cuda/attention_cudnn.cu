/* attention_cudnn.cu -- which calls of attention cuDNN computes, and their plans.
 *
 * In: RT_ATTENTION=own|cudnn, or what the checkpoint says; the shapes that a model's .rooms names.
 * Out: a plan for each shape that cuDNN takes, made before the first step, since its work space is
 * part of the one allocation; all other shapes, and those behind the first 64 plans, stay with the
 * own kernels. The one idea: forward and backward of both agree on what is kept between them (y,
 * and lse as a natural logarithm, fp32, one for each query), so either may be cuDNN's alone.
 *
 * Plans are cuDNN's first proposal, not timed: the same version on the same kind of GPU proposes
 * the same, so the version is all that a checkpoint keeps.
 */
#include "cuda/attention_cudnn.h"

#include "cuda/device.h"

enum { PLANS = 64, HEAD_MOST = 128 };

static struct {
    cudnnHandle_t handle;
    RtCudnnPlan plans[PLANS];
    int n;
    bool told, many; /* warned: operands do not lie as was planned; there are too many shapes */
    bool wide;       /* calls in fp32 or fp64 came, which cuDNN does not take */
    char taken[48];  /* who computed it in the checkpoint's run; "": not known */
    char text[64];   /* of rt_attention_text */
    char line[320];  /* of rt_attention_line */
} at;

/* ---- who computes it ------------------------------------------------------------------------- */

static bool is_cudnn(void)
{
    if (!rt_environment("RT_ATTENTION"))
        return strncmp(at.taken, "cuDNN ", 6) == 0;
    return rt_environment_is("RT_ATTENTION", "cudnn");
}

/* How many plans there are, and why a shape has none. */
static int planned(const char **why)
{
    int n = 0;
    *why = NULL;
    for (int i = 0; i < at.n; i++)
        if (at.plans[i].plan)
            n++;
        else
            *why = at.plans[i].why;
    return n;
}

static void now_text(char *to, size_t most)
{
    const char *why;
    if (planned(&why) > 0)
        snprintf(to, most, "cuDNN %s", rt_cudnn_version());
    else
        snprintf(to, most, "own kernels");
}

const char *rt_attention_text(void)
{
    char now[48];
    now_text(now, sizeof now);
    at.text[0] = 0;
    if (strncmp(now, "cuDNN ", 6) == 0)
        snprintf(at.text, sizeof at.text, "attention %s\n", now);
    return at.text;
}

const char *rt_attention_take(const char *plans)
{
    const int label = 10; /* "attention " */
    at.taken[0] = 0;
    if (!plans)
        return NULL;
    if (strncmp(plans, "attention ", label) != 0) {
        snprintf(at.taken, sizeof at.taken, "own kernels");
        return plans;
    }
    const size_t length = strcspn(plans, "\n");
    snprintf(at.taken, sizeof at.taken, "%.*s", (int)length - label, plans + label);
    return plans[length] && plans[length + 1] ? plans + length + 1 : NULL;
}

const char *rt_attention_line(void)
{
    const char *why;
    char now[48];
    const int n = planned(&why);
    if (at.n == 0 && !at.wide)
        return NULL;
    now_text(now, sizeof now);
    if (*at.taken && strcmp(at.taken, now) != 0)
        rt_warn("attention of the checkpoint's run was computed by %s, this one's is by %s: they "
                "agree to rounding, not bit for bit",
                at.taken, now);
    if (!is_cudnn() && at.n == 0)
        return NULL;
    if (!is_cudnn())
        snprintf(at.line, sizeof at.line, "own kernels (RT_ATTENTION=cudnn takes cuDNN's)");
    else if (at.n == 0)
        snprintf(at.line, sizeof at.line, "own kernels: cuDNN's take 16 bits");
    else if (n == at.n)
        snprintf(at.line, sizeof at.line, "%s: %d shapes", now, n);
    else
        snprintf(at.line, sizeof at.line, "cuDNN %s: %d shapes; own kernels for %d: %s",
                 rt_cudnn_version(), n, at.n - n, why);
    return at.line;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Heads as cuDNN wants them: steps of axes of one element are those of a dense tensor. */
static void heads_key(int64_t to[3], const RtHeads *step, const RtAttention *a, ptrdiff_t heads,
                      ptrdiff_t rows, ptrdiff_t width)
{
    const ptrdiff_t t = rows > 1 ? step->t : width, h = heads > 1 ? step->h : rows * t;
    to[2] = t;
    to[1] = h;
    to[0] = a->B > 1 ? step->b : rt_max(heads * h, rows * t);
}

RtCudnnKey rt_attention_key(RtType type, const RtAttention *a, bool grad)
{
    const ptrdiff_t of_keys = a->H / a->group;
    RtCudnnKey key;
    memset(&key, 0, sizeof key);
    key.B = a->B, key.H = a->H, key.T = a->T, key.S = a->S, key.D = a->D, key.E = a->E;
    key.group = a->group;
    key.type = type;
    key.causal = a->causal;
    key.grad = grad;
    key.rising = a->scale > 0;
    heads_key(key.step[RT_CUDNN_Q], &a->q, a, a->H, a->T, a->D);
    heads_key(key.step[RT_CUDNN_K], &a->k, a, of_keys, a->S, a->D);
    heads_key(key.step[RT_CUDNN_V], &a->v, a, of_keys, a->S, a->E);
    heads_key(key.step[RT_CUDNN_Y], &a->y, a, a->H, a->T, a->E);
    if (!grad)
        return key;
    heads_key(key.step[RT_CUDNN_D_Y], &a->d_y, a, a->H, a->T, a->E);
    heads_key(key.step[RT_CUDNN_D_Q], &a->d_q, a, a->H, a->T, a->D);
    heads_key(key.step[RT_CUDNN_D_K], &a->d_k, a, of_keys, a->S, a->D);
    heads_key(key.step[RT_CUDNN_D_V], &a->d_v, a, of_keys, a->S, a->E);
    return key;
}

/* Why cuDNN is not even asked, or NULL. */
static const char *unfit(const RtCudnnKey *key)
{
    if (key->B < 1 || key->H < 1 || key->T < 1 || key->S < 1)
        return "there is nothing to compute";
    if (key->D > HEAD_MOST || key->E > HEAD_MOST || key->D % 8 || key->E % 8)
        return "heads are no multiple of 8 up to 128";
    if (key->causal && key->T != key->S)
        return "queries and keys differ in number under a causal mask";
    if (!key->rising)
        return "the scale is not above 0";
    for (int i = 0; i <= (key->grad ? RT_CUDNN_D_V : RT_CUDNN_Y); i++)
        for (int j = 0; j < 3; j++)
            if (i != RT_CUDNN_LSE && (key->step[i][j] < 8 || key->step[i][j] % 8))
                return "rows do not start at multiples of 16 bytes";
    return NULL;
}

static void handle_open(void)
{
    if (at.handle)
        return;
    (void)rt_device(); /* the handle is of the device that is chosen */
    const cudnnStatus_t status = rt_cudnn()->Create(&at.handle);
    if (status)
        rt_fail(RT_EXIT_FAIL,
                "cuDNN %s does not start: cudnnCreate: %s\nhint: RT_ATTENTION=own takes own "
                "kernels; nvidia-smi shows the state of the GPU",
                rt_cudnn_version(), rt_cudnn()->GetErrorString(status));
}

/* Where a new one goes, in place of one that cuDNN does not compute if there is no room. One that
   it does stays: a graph that was recorded may hold its kernels. NULL: all are such. */
static RtCudnnPlan *place_new(void)
{
    if (at.n < PLANS)
        return &at.plans[at.n++];
    for (int i = 0; i < PLANS; i++)
        if (!at.plans[i].plan)
            return &at.plans[i];
    if (!at.many)
        rt_warn("attention comes in more than %d shapes: own kernels compute the others",
                (int)PLANS);
    at.many = true;
    return NULL;
}

static RtCudnnPlan *plan_new(const RtCudnnKey *key, const char *why)
{
    RtCudnnPlan *plan = place_new();
    if (!plan)
        return NULL;
    if (plan->n_made > 0)
        rt_cudnn_free(plan);
    memset(plan, 0, sizeof *plan);
    plan->key = *key;
    if (why)
        snprintf(plan->why, sizeof plan->why, "%s", why);
    return plan;
}

const RtCudnnPlan *rt_attention_plan(RtType type, const RtAttention *a, bool grad)
{
    if (type != RT_BF16 && type != RT_F16) {
        at.wide = true;
        return NULL;
    }
    const RtCudnnKey key = rt_attention_key(type, a, grad);
    for (int i = 0; i < at.n; i++)
        if (memcmp(&at.plans[i].key, &key, sizeof key) == 0)
            return at.plans[i].plan ? &at.plans[i] : NULL;
    const char *why = is_cudnn() ? unfit(&key) : "own kernels were chosen";
    RtCudnnPlan *plan = plan_new(&key, why);
    if (why || !plan)
        return NULL;
    handle_open();
    rt_cudnn_plan(plan, (RtCudnnTarget){ at.handle, NULL });
    return plan->plan ? plan : NULL;
}

void rt_attention_close(void)
{
    for (int i = 0; i < at.n; i++)
        if (at.plans[i].n_made > 0)
            rt_cudnn_free(&at.plans[i]);
    if (at.handle)
        (void)rt_cudnn()->Destroy(at.handle);
    at.handle = NULL;
    at.n = 0;
    at.wide = at.told = at.many = false;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* cuDNN's own work space lies first, behind it sums for each query. */
static size_t delta_at(const RtCudnnPlan *plan)
{
    return ((size_t)plan->work_bytes + RT_DEVICE_ALIGN - 1) / RT_DEVICE_ALIGN * RT_DEVICE_ALIGN;
}

size_t rt_attention_plan_bytes(const RtCudnnPlan *plan)
{
    const RtCudnnKey *k = &plan->key;
    return delta_at(plan) + (k->grad ? (size_t)(k->B * k->H * k->T) * sizeof(float) : 0);
}

static bool is_aligned(void *const *place)
{
    for (int i = 0; i <= RT_CUDNN_D_V; i++)
        if ((uintptr_t)place[i] % 16)
            return false;
    return true;
}

bool rt_attention_plan_run(const RtCudnnPlan *plan, const AttentionHalf *x, const RtAttention *a,
                           RtStream *stream)
{
    float scale = (float)a->scale, mask = -INFINITY, one = 1;
    void *place[RT_CUDNN_TENSORS] = {};
    const void *const read[] = { x->q, x->k, x->v };
    for (int i = 0; i < 3; i++)
        place[RT_CUDNN_Q + i] = (void *)(uintptr_t)read[i];
    if (plan->key.grad) {
        place[RT_CUDNN_Y] = (void *)(uintptr_t)x->y;
        place[RT_CUDNN_LSE] = (void *)(uintptr_t)x->lse;
        place[RT_CUDNN_D_Y] = (void *)(uintptr_t)x->d_y;
        place[RT_CUDNN_D_Q] = x->d_q;
        place[RT_CUDNN_D_K] = x->d_k;
        place[RT_CUDNN_D_V] = x->d_v;
        place[RT_CUDNN_ONE] = &one;
    } else {
        place[RT_CUDNN_Y] = x->to_y;
        place[RT_CUDNN_LSE] = x->to_lse;
    }
    if (!is_aligned(place)) {
        if (!at.told)
            rt_warn(
                "%s: attention does not start at a multiple of 16 bytes, as cuDNN wants it: own "
                "kernels compute it",
                stream->where ? stream->where : "a step");
        at.told = true;
        return false;
    }
    char *work = (char *)rt_device_work(stream, rt_attention_plan_bytes(plan));
    if (plan->key.grad)
        place[RT_CUDNN_DELTA] = work + delta_at(plan);
    place[RT_CUDNN_SCALE] = &scale;
    if (plan->key.causal)
        place[RT_CUDNN_MASK] = &mask;
    rt_profile_begin(stream);
    cudnnStatus_t status = rt_cudnn()->SetStream(at.handle, stream->at);
    if (!status)
        status = rt_cudnn_run(plan, at.handle, place, work);
    if (status) {
        rt_cuda_check(stream, "cudnnBackendExecute", cudaPeekAtLastError());
        rt_fail(RT_EXIT_FAIL,
                "%s: cudnnBackendExecute: %s of cuDNN %s\nhint: RT_ATTENTION=own computes "
                "attention without it",
                stream->where ? stream->where : "attention", rt_cudnn()->GetErrorString(status),
                rt_cudnn_version());
    }
    rt_launch_end(stream, plan->key.grad ? "cudnn_attention_grad" : "cudnn_attention");
    return true;
}
