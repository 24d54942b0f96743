/* gpt.c -- generated from gpt.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c gpt.model
 * source    gpt.model, 30 lines, crc32 3de6c071
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      2,768 parameters; arena 496 KiB at B = 16, T = 16, full at step 22 of 33
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    V = 11,                             /* gpt.model:2 */
    C = 8,                              /* gpt.model:2 */
    H = 2,                              /* gpt.model:2 */
    L = 3,                              /* gpt.model:2 */
    Tmax = 9,                           /* gpt.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  gpt.model:3 */
    ptrdiff_t T;                        /* gpt.model:4 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

enum {                                                     /* in one repetition of h : block * L */
    P_h_ln_1_weight = 0,                                   /* [C]            gpt.model:13 */
    P_h_ln_1_bias = P_h_ln_1_weight + C,                   /* [C]            gpt.model:13 */
    P_h_attn_c_attn_weight = P_h_ln_1_bias + C,            /* [3*C,C]        gpt.model:6 */
    P_h_attn_c_attn_bias = P_h_attn_c_attn_weight + 3*C*C, /* [3*C]          gpt.model:6 */
    P_h_attn_c_proj_weight = P_h_attn_c_attn_bias + 3*C,   /* [C,C]          gpt.model:7 */
    P_h_attn_c_proj_bias = P_h_attn_c_proj_weight + C*C,   /* [C]            gpt.model:7 */
    P_h_ln_2_weight = P_h_attn_c_proj_bias + C,            /* [C]            gpt.model:15 */
    P_h_mlp_c_fc_weight = P_h_ln_2_weight + C,             /* [4*C,C]        gpt.model:16 */
    P_h_mlp_c_fc_bias = P_h_mlp_c_fc_weight + 4*C*C,       /* [4*C]          gpt.model:16 */
    P_h_mlp_c_proj_weight = P_h_mlp_c_fc_bias + 4*C,       /* [C,4*C]        gpt.model:16 */
    P_h_mlp_c_proj_bias = P_h_mlp_c_proj_weight + 4*C*C,   /* [C]            gpt.model:16 */
    P_h_STRIDE = P_h_mlp_c_proj_bias + C,
};

enum {                                  /* first element in the flat buffer */
    P_wte_weight = 0,                   /* [V,C]          gpt.model:21 */
    P_wpe_weight = P_wte_weight + V*C,  /* [Tmax,C]       gpt.model:22 */
    P_h = P_wpe_weight + C*Tmax,        /* L times        gpt.model:23 */
    P_ln_f_weight = P_h + L*P_h_STRIDE, /* [C]            gpt.model:24 */
    P_ln_f_bias = P_ln_f_weight + C,    /* [C]            gpt.model:24 */
    P_COUNT = P_ln_f_bias + C,
};

static const RtParam gpt_params[] = {
    { .path = "wte.weight", .role = RT_EMBEDDING, .decay = true, .rank = 2, .shape = { V, C },
      .at = P_wte_weight, .init = { RT_NORMAL, 0.02 }, .where = "gpt.model:21" },
    { .path = "wpe.weight", .role = RT_EMBEDDING, .decay = true, .rank = 2, .shape = { Tmax, C },
      .at = P_wpe_weight, .init = { RT_NORMAL, 0.02 }, .where = "gpt.model:22" },
    { .path = "h.*.ln_1.weight", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_ln_1_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ONES, 0.0 }, .where = "gpt.model:13" },
    { .path = "h.*.ln_1.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_ln_1_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:13" },
    { .path = "h.*.attn.c_attn.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { 3*C, C }, .at = P_h + P_h_attn_c_attn_weight,
      .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "gpt.model:6" },
    { .path = "h.*.attn.c_attn.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { 3*C },
      .at = P_h + P_h_attn_c_attn_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:6" },
    { .path = "h.*.attn.c_proj.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { C, C }, .at = P_h + P_h_attn_c_proj_weight,
      .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "gpt.model:7" },
    { .path = "h.*.attn.c_proj.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_attn_c_proj_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:7" },
    { .path = "h.*.ln_2.weight", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_ln_2_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ONES, 0.0 }, .where = "gpt.model:15" },
    { .path = "h.*.mlp.c_fc.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { 4*C, C }, .at = P_h + P_h_mlp_c_fc_weight,
      .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "gpt.model:16" },
    { .path = "h.*.mlp.c_fc.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { 4*C },
      .at = P_h + P_h_mlp_c_fc_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:16" },
    { .path = "h.*.mlp.c_proj.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { C, 4*C }, .at = P_h + P_h_mlp_c_proj_weight,
      .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .init = { RT_UNIFORM, 0.17677669529663687 },
      .where = "gpt.model:16" },
    { .path = "h.*.mlp.c_proj.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_mlp_c_proj_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:16" },
    { .path = "ln_f.weight", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { C },
      .at = P_ln_f_weight, .init = { RT_ONES, 0.0 }, .where = "gpt.model:24" },
    { .path = "ln_f.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { C },
      .at = P_ln_f_bias, .init = { RT_ZEROS, 0.0 }, .where = "gpt.model:24" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* The arena of a training step: 496 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer                shape          type      offset       bytes  written  last read
 *   x_a                   [B,T,C]        bool      505856        2048        1         31
 *   x                     [L + 1,B,T,C]  f32       270336       32768        1         30
 *   h_ln_1_mu             [L,B,T]        f32       493568        3072        2         30
 *   h_ln_1_rstd           [L,B,T]        f32       496640        3072        2         30
 *   h_ln_1                [L,B,T,C]      f32       368640       24576        2         30
 *   h_attn_c_attn         [L,B,T,3*C]    f32       196608       73728        2         30
 *   h_attn_y              [L,B,T,H,C/H]  f32       393216       24576        2         30
 *   h_attn_y_logsumexp    [L,B,H,T]      f32       483328        6144        2         30
 *   h_attn_c_proj         [B,T,C]        f32       303104        8192        5          6
 *   h_x                   [L,B,T,C]      f32       417792       24576        2         30
 *   h_ln_2_mu             [L,B,T]        f32       499712        3072        2         30
 *   h_ln_2_rstd           [L,B,T]        f32       502784        3072        2         30
 *   h_ln_2_y              [L,B,T,C]      f32       442368       24576        2         30
 *   h_mlp_c_fc            [L,B,T,4*C]    f32            0       98304        2         30
 *   h_mlp_hidden          [L,B,T,4*C]    f32        98304       98304        2         30
 *   h_mlp_c_proj          [B,T,C]        f32       303104        8192        9         10
 *       over h_attn_c_proj
 *   ln_f_mu               [B,T]          f32       330752        1024       11         17
 *   ln_f_rstd             [B,T]          f32       331776        1024       11         17
 *   ln_f                  [B,T,C]        f32       314368        8192       11         16
 *   logits                [B,T,V]        f32       303104       11264       12         14
 *       over h_attn_c_proj, h_mlp_c_proj
 *   logsumexp             [B,T]          f32       322560        1024       13         14
 *   d_logits              [B*T,V]        f32       303104       11264       14         16
 *       in place of logits
 *   d_ln_f                [B,T,C]        f32       322560        8192       15         17
 *       over logsumexp
 *   d_x                   [B,T,C]        f32       466944        8192       17         31
 *   d_h_mlp_hidden        [B,T,4*C]      f32       303104       32768       18         20
 *       over h_attn_c_proj, h_mlp_c_proj, ...
 *   d_h_mlp_c_fc          [B,T,4*C]      f32       335872       32768       20         22
 *   d_h_ln_2_y            [B,T,C]        f32       303104        8192       21         23
 *       over h_attn_c_proj, h_mlp_c_proj, ...
 *   d_h_x                 [B,T,C]        f32       327680        8192       23         30
 *       over ln_f_mu, ln_f_rstd, ...
 *   d_h_attn_c_proj       [B,T,C]        f32       311296        8192       23         25
 *       over ln_f, logits, ...
 *   d_h_attn_y            [B,T,H,C/H]    f32       335872        8192       24         26
 *       over d_h_mlp_c_fc
 *   d_h_attn_c_attn       [B,T,3*C]      f32       303104       24576       26         29
 *       over h_attn_c_proj, h_mlp_c_proj, ...
 *   d_h_ln_1              [B,T,C]        f32       335872        8192       28         30
 *       over d_h_mlp_c_fc, d_h_attn_y
 *   d_wte                 [B,T,C]        f32        32768        8192       31         33
 *       over h_mlp_c_fc
 *   d_wpe                 [T,C]          f32        40960         512       31         32
 *       over h_mlp_c_fc
 *   work_d_x              [128,C]        f32       489472        4096       17         30
 *   work_d_h_mlp_c_fc     [64,4*C]       f32       475136        8192       20         20
 *   work_d_h_attn_c_proj  [192,C]        f32       319488        6144       23         23
 *       over ln_f, logsumexp, ...
 *   work_d_wte            [64,T*C]       f32            0       32768       31         31
 *       over h_mlp_c_fc
 */

typedef struct { size_t x_a, x, h_ln_1_mu, h_ln_1_rstd, h_ln_1, h_attn_c_attn, h_attn_y,
        h_attn_y_logsumexp, h_attn_c_proj, h_x, h_ln_2_mu, h_ln_2_rstd, h_ln_2_y, h_mlp_c_fc,
        h_mlp_hidden, h_mlp_c_proj, ln_f_mu, ln_f_rstd, ln_f, logits, logsumexp, d_logits, d_ln_f,
        d_x, d_h_mlp_hidden, d_h_mlp_c_fc, d_h_ln_2_y, d_h_x, d_h_attn_c_proj, d_h_attn_y,
        d_h_attn_c_attn, d_h_ln_1, d_wte, d_wpe, work_d_x, work_d_h_mlp_c_fc, work_d_h_attn_c_proj,
        work_d_wte, bytes; } Plan;

static Plan gpt_plan(Dims n)
{
    Plan at;
    at.h_mlp_c_fc           = 0;
    at.h_mlp_hidden         = at.h_mlp_c_fc + RT_SIZE(float, 4*n.B*n.T*C*L);
    at.h_attn_c_attn        = at.h_mlp_hidden + RT_SIZE(float, 4*n.B*n.T*C*L);
    at.x                    = at.h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C*L);
    at.d_h_ln_2_y           = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.d_h_attn_c_proj      = at.d_h_ln_2_y + RT_SIZE(float, n.B*n.T*C);
    at.work_d_h_attn_c_proj = at.d_h_attn_c_proj + RT_SIZE(float, n.B*n.T*C);
    at.d_h_attn_c_attn      = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.d_h_x                = at.work_d_h_attn_c_proj + RT_SIZE(float, 192*C);
    at.d_h_x                = rt_above(at.d_h_x, at.d_h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C));
    at.d_h_ln_1             = at.d_h_x + RT_SIZE(float, n.B*n.T*C);
    at.d_h_attn_y           = at.d_h_x + RT_SIZE(float, n.B*n.T*C);
    at.d_h_mlp_hidden       = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.d_h_mlp_c_fc         = at.d_h_ln_2_y + RT_SIZE(float, n.B*n.T*C);
    at.d_h_mlp_c_fc         = rt_above(at.d_h_mlp_c_fc,
                                       at.d_h_mlp_hidden + RT_SIZE(float, 4*n.B*n.T*C));
    at.logits               = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.ln_f                 = at.logits + RT_SIZE(float, n.B*n.T*V);
    at.d_ln_f               = at.ln_f + RT_SIZE(float, n.B*n.T*C);
    at.logsumexp            = at.ln_f + RT_SIZE(float, n.B*n.T*C);
    at.ln_f_mu              = at.d_ln_f + RT_SIZE(float, n.B*n.T*C);
    at.ln_f_mu              = rt_above(at.ln_f_mu, at.logsumexp + RT_SIZE(float, n.B*n.T));
    at.ln_f_rstd            = at.ln_f_mu + RT_SIZE(float, n.B*n.T);
    at.h_mlp_c_proj         = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.h_attn_c_proj        = at.x + RT_SIZE(float, n.B*n.T*C*L + n.B*n.T*C);
    at.h_ln_1               = at.d_h_ln_1 + RT_SIZE(float, n.B*n.T*C);
    at.h_ln_1               = rt_above(at.h_ln_1, at.d_h_attn_y + RT_SIZE(float, n.B*n.T*C));
    at.h_ln_1               = rt_above(at.h_ln_1, at.d_h_mlp_c_fc + RT_SIZE(float, 4*n.B*n.T*C));
    at.h_ln_1               = rt_above(at.h_ln_1, at.ln_f_rstd + RT_SIZE(float, n.B*n.T));
    at.h_ln_1               = rt_above(at.h_ln_1, at.h_mlp_c_proj + RT_SIZE(float, n.B*n.T*C));
    at.h_ln_1               = rt_above(at.h_ln_1, at.h_attn_c_proj + RT_SIZE(float, n.B*n.T*C));
    at.h_attn_y             = at.h_ln_1 + RT_SIZE(float, n.B*n.T*C*L);
    at.h_x                  = at.h_attn_y + RT_SIZE(float, n.B*n.T*C*L);
    at.h_ln_2_y             = at.h_x + RT_SIZE(float, n.B*n.T*C*L);
    at.work_d_wte           = 0;
    at.d_wte                = at.work_d_wte + RT_SIZE(float, 64*n.T*C);
    at.d_wpe                = at.d_wte + RT_SIZE(float, n.B*n.T*C);
    at.d_x                  = at.h_ln_2_y + RT_SIZE(float, n.B*n.T*C*L);
    at.d_x                  = rt_above(at.d_x, at.d_wpe + RT_SIZE(float, n.T*C));
    at.work_d_h_mlp_c_fc    = at.d_x + RT_SIZE(float, n.B*n.T*C);
    at.h_attn_y_logsumexp   = at.work_d_h_mlp_c_fc + RT_SIZE(float, 256*C);
    at.work_d_x             = at.h_attn_y_logsumexp + RT_SIZE(float, n.B*n.T*H*L);
    at.h_ln_1_mu            = at.work_d_x + RT_SIZE(float, 128*C);
    at.h_ln_1_rstd          = at.h_ln_1_mu + RT_SIZE(float, n.B*n.T*L);
    at.h_ln_2_mu            = at.h_ln_1_rstd + RT_SIZE(float, n.B*n.T*L);
    at.h_ln_2_rstd          = at.h_ln_2_mu + RT_SIZE(float, n.B*n.T*L);
    at.x_a                  = at.h_ln_2_rstd + RT_SIZE(float, n.B*n.T*L);
    at.d_logits             = at.logits;
    at.bytes                = at.x_a + RT_SIZE(bool, n.B*n.T*C);
    return at;
}

/* The arena of an evaluation: 56 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer              shape      type      offset       bytes  written  last read
 *   x                   [B,T,C]    f32        32768        8192        1         11
 *   h_ln_1              [B,T,C]    f32        24576        8192        2          3
 *   h_attn_c_attn       [B,T,3*C]  f32            0       24576        3          4
 *   h_attn_y            [B*T,C]    f32        24576        8192        4          5  over h_ln_1
 *   h_attn_y_logsumexp  [B,H,T]    f32        40960        2048        4          4
 *   h_attn_c_proj       [B,T,C]    f32        40960        8192        5          6
 *       over h_attn_y_logsumexp
 *   h_x                 [B,T,C]    f32        49152        8192        6         10
 *   h_ln_2_y            [B,T,C]    f32        40960        8192        6          7
 *       in place of h_attn_c_proj
 *   h_mlp_c_fc          [B,T,4*C]  f32            0       32768        7          8
 *       over h_ln_1, h_attn_c_attn, ...
 *   h_mlp_hidden        [B,T,4*C]  f32            0       32768        8          9
 *       in place of h_mlp_c_fc
 *   h_mlp_c_proj        [B,T,C]    f32        40960        8192        9         10
 *       over h_attn_y_logsumexp, h_attn_c_proj, ...
 *   ln_f                [B,T,C]    f32        32768        8192       11         12  in place of x
 *   logits              [B,T,V]    f32            0       11264       12         13
 *       over h_attn_c_attn, h_mlp_c_fc, ...
 */

typedef struct { size_t x, h_ln_1, h_attn_c_attn, h_attn_y, h_attn_y_logsumexp, h_attn_c_proj, h_x,
        h_ln_2_y, h_mlp_c_fc, h_mlp_hidden, h_mlp_c_proj, ln_f, logits, bytes; } EvalPlan;

static EvalPlan gpt_eval_plan(Dims n)
{
    EvalPlan at;
    at.h_attn_c_attn      = 0;
    at.h_attn_y           = at.h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C);
    at.h_ln_1             = at.h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C);
    at.logits             = 0;
    at.h_mlp_c_fc         = 0;
    at.x                  = at.h_attn_y + RT_SIZE(float, n.B*n.T*C);
    at.x                  = rt_above(at.x, at.h_ln_1 + RT_SIZE(float, n.B*n.T*C));
    at.x                  = rt_above(at.x, at.logits + RT_SIZE(float, n.B*n.T*V));
    at.x                  = rt_above(at.x, at.h_mlp_c_fc + RT_SIZE(float, 4*n.B*n.T*C));
    at.h_attn_y_logsumexp = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_attn_c_proj      = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_mlp_c_proj       = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_x                = at.h_mlp_c_proj + RT_SIZE(float, n.B*n.T*C);
    at.h_x                = rt_above(at.h_x, at.h_attn_c_proj + RT_SIZE(float, n.B*n.T*C));
    at.h_ln_2_y           = at.h_attn_c_proj;
    at.h_mlp_hidden       = at.h_mlp_c_fc;
    at.ln_f               = at.x;
    at.bytes              = at.h_attn_y_logsumexp + RT_SIZE(float, n.B*n.T*H);
    at.bytes              = rt_above(at.bytes, at.h_x + RT_SIZE(float, n.B*n.T*C));
    return at;
}

/* The arena of the outputs: 56 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer              shape      type      offset       bytes  written  last read
 *   x                   [B,T,C]    f32        32768        8192        1         11
 *   h_ln_1              [B,T,C]    f32        24576        8192        2          3
 *   h_attn_c_attn       [B,T,3*C]  f32            0       24576        3          4
 *   h_attn_y            [B*T,C]    f32        24576        8192        4          5  over h_ln_1
 *   h_attn_y_logsumexp  [B,H,T]    f32        40960        2048        4          4
 *   h_attn_c_proj       [B,T,C]    f32        40960        8192        5          6
 *       over h_attn_y_logsumexp
 *   h_x                 [B,T,C]    f32        49152        8192        6         10
 *   h_ln_2_y            [B,T,C]    f32        40960        8192        6          7
 *       in place of h_attn_c_proj
 *   h_mlp_c_fc          [B,T,4*C]  f32            0       32768        7          8
 *       over h_ln_1, h_attn_c_attn, ...
 *   h_mlp_hidden        [B,T,4*C]  f32            0       32768        8          9
 *       in place of h_mlp_c_fc
 *   h_mlp_c_proj        [B,T,C]    f32        40960        8192        9         10
 *       over h_attn_y_logsumexp, h_attn_c_proj, ...
 *   ln_f                [B,T,C]    f32        32768        8192       11         12  in place of x
 */

typedef struct { size_t x, h_ln_1, h_attn_c_attn, h_attn_y, h_attn_y_logsumexp, h_attn_c_proj, h_x,
        h_ln_2_y, h_mlp_c_fc, h_mlp_hidden, h_mlp_c_proj, ln_f, bytes; } OutputPlan;

static OutputPlan gpt_output_plan(Dims n)
{
    OutputPlan at;
    at.h_attn_c_attn      = 0;
    at.h_attn_y           = at.h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C);
    at.h_ln_1             = at.h_attn_c_attn + RT_SIZE(float, 3*n.B*n.T*C);
    at.h_mlp_c_fc         = 0;
    at.x                  = at.h_attn_y + RT_SIZE(float, n.B*n.T*C);
    at.x                  = rt_above(at.x, at.h_ln_1 + RT_SIZE(float, n.B*n.T*C));
    at.x                  = rt_above(at.x, at.h_mlp_c_fc + RT_SIZE(float, 4*n.B*n.T*C));
    at.h_attn_y_logsumexp = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_attn_c_proj      = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_mlp_c_proj       = at.x + RT_SIZE(float, n.B*n.T*C);
    at.h_x                = at.h_mlp_c_proj + RT_SIZE(float, n.B*n.T*C);
    at.h_x                = rt_above(at.h_x, at.h_attn_c_proj + RT_SIZE(float, n.B*n.T*C));
    at.h_ln_2_y           = at.h_attn_c_proj;
    at.h_mlp_hidden       = at.h_mlp_c_fc;
    at.ln_f               = at.x;
    at.bytes              = at.h_attn_y_logsumexp + RT_SIZE(float, n.B*n.T*H);
    at.bytes              = rt_above(at.bytes, at.h_x + RT_SIZE(float, n.B*n.T*C));
    return at;
}

/* ---- 4 kernels ---------------------------------------------------------- */

/* One function per kernel, in the order of first use. (+)= : the first write of an update
 * replaces, later ones add. RT_PARALLEL_FOR and RT_SIMD are OpenMP pragmas; sums that
 * threads share are made in fixed chunks and added in order (rt.h), so that the number of
 * threads changes no bit. */

/* x_a[B,T,C] = uniform < 0.9
 * x[B,T,C] = where(x_a, (wte + wpe_weight[0..T,:]) * 1.11111, 0)
 * where wte = wte_weight[tokens]
 * gpt.model:25   uniform+lt+gather+add+mul+where */
static void k1_x(bool *restrict x_a, float *restrict x, const int32_t *restrict tokens,
                 const float *restrict wte_weight, const float *restrict wpe_weight, RtKey key,
                 int64_t sample, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*C)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            const int32_t a = tokens[ib*T + it];
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float b = rt_uniform_f32(key, 0xd0012963bda11c1eu, (uint64_t)(sample + ib),
                        (uint64_t)(it*C + ic));
                const bool c = b < 0.9f;
                x_a[ib*T*C + it*C + ic] = c;
                const float d = (wte_weight[(ptrdiff_t)a*C + ic] + wpe_weight[it*C + ic]) *
                        1.1111112f;
                x[ib*T*C + it*C + ic] = c ? d : 0.0f;
            }
        }
}

/* h_ln_1_mu[B,T] = (sum over C of x) / C
 * h_ln_1_rstd[B,T] = rsqrt((sum over C of h_ln_1_centred^2) / C + 1e-05)
 * h_ln_1[B,T,C] = h_ln_1_y + h_ln_1_bias
 * where h_ln_1_centred = x - h_ln_1_mu
 * where h_ln_1_y = h_ln_1_centred * h_ln_1_rstd * h_ln_1_weight
 * gpt.model:17   sum+div+sub+mul+add+rsqrt */
static void k2_h_ln_1(float *restrict h_ln_1_mu, float *restrict h_ln_1_rstd,
                      float *restrict h_ln_1, const float *restrict x,
                      const float *restrict h_ln_1_weight, const float *restrict h_ln_1_bias,
                      ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        float sum = 0;
        RT_SIMD(reduction(+:sum))
        for (int ic = 0; ic < C; ic++)
            sum += x[i*C + ic];
        const float a = sum / (float)C;
        float b = 0;
        RT_SIMD(reduction(+:b))
        for (int ic = 0; ic < C; ic++) {
            const float h_ln_1_centred = x[i*C + ic] - a;
            b += h_ln_1_centred * h_ln_1_centred;
        }
        h_ln_1_mu[i] = a;
        const float c = rt_rsqrt(b / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_ln_1[i*C + ic] = (x[i*C + ic] - a) * c * h_ln_1_weight[ic] + h_ln_1_bias[ic];
        h_ln_1_rstd[i] = c;
    }
}

/* h_attn_c_attn[B,T,3*C] = h_ln_1[B,T,C] @ h_attn_c_attn_weight[3*C,C]' + h_attn_c_attn_bias
 * gpt.model:8   matmul+add */
static void k3_h_attn_c_attn(float *restrict h_attn_c_attn, const float *restrict h_ln_1,
                             const float *restrict h_attn_c_attn_weight,
                             const float *restrict h_attn_c_attn_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = 3*C, .k = C, .tb = true, .bias = h_attn_c_attn_bias };
    rt_matmul_f32(h_attn_c_attn, h_ln_1, h_attn_c_attn_weight, shape);
}

/* h_attn_y, h_attn_y_logsumexp = attention(q, k, v of h_attn_c_attn, causal)
 * gpt.model:9   attention */
static void k4_h_attn_y(float *restrict h_attn_y, float *restrict h_attn_y_logsumexp,
                        const float *q, const float *k, const float *v, ptrdiff_t B, ptrdiff_t T)
{
    const RtAttention shape = { .B = B, .H = H, .T = T, .S = T, .D = C/H, .E = C/H,
                                .scale = 1 / sqrt((double)(C/H)), .causal = true,
                                .q = { 3*T*C, C/H, 3*C }, .k = { 3*T*C, C/H, 3*C },
                                .v = { 3*T*C, C/H, 3*C }, .y = { T*C, C/H, C } };
    rt_attention_f32(h_attn_y, h_attn_y_logsumexp, q, k, v, shape);
}

/* h_attn_c_proj[B,T,C] = h_attn_y[B,T,C] @ h_attn_c_proj_weight[C,C] + h_attn_c_proj_bias
 * gpt.model:10   matmul+add */
static void k5_h_attn_c_proj(float *restrict h_attn_c_proj, const float *restrict h_attn_y,
                             const float *restrict h_attn_c_proj_weight,
                             const float *restrict h_attn_c_proj_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = C, .bias = h_attn_c_proj_bias };
    rt_matmul_f32(h_attn_c_proj, h_attn_y, h_attn_c_proj_weight, shape);
}

/* h_x[B,T,C] = x + h_attn
 * h_ln_2_mu[B,T] = (sum over C of h_x) / C
 * h_ln_2_rstd[B,T] = rsqrt((sum over C of h_ln_2_centred^2) / C + 1e-05)
 * h_ln_2_y[B,T,C] = h_ln_2_centred * h_ln_2_rstd * h_ln_2_weight
 * where h_attn = where(uniform(i) < 0.8, h_attn_c_proj * 1.25, 0)
 * where h_ln_2_centred = h_x - h_ln_2_mu
 * gpt.model:18   uniform+lt+mul+where+add+sum+... */
static void k6_h_ln_2_y(float *restrict h_x, float *restrict h_ln_2_mu, float *restrict h_ln_2_rstd,
                        float *restrict h_ln_2_y, const float *restrict x,
                        const float *restrict h_attn_c_proj, const float *restrict h_ln_2_weight,
                        int iter, RtKey key, int64_t sample, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*C)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            float sum = 0;
            RT_SIMD(reduction(+:sum))
            for (int ic = 0; ic < C; ic++) {
                const float a = rt_uniform_f32(key, rt_stream(0x045de552359eb463u, (uint64_t)iter),
                        (uint64_t)(sample + ib), (uint64_t)(it*C + ic));
                const float h_attn = a < 0.8f ? h_attn_c_proj[ib*T*C + it*C + ic] * 1.25f : 0.0f;
                const float b = x[ib*T*C + it*C + ic] + h_attn;
                sum += b;
                h_x[ib*T*C + it*C + ic] = b;
            }
            const float a = sum / (float)C;
            float b = 0;
            RT_SIMD(reduction(+:b))
            for (int ic = 0; ic < C; ic++) {
                const float h_ln_2_centred = h_x[ib*T*C + it*C + ic] - a;
                b += h_ln_2_centred * h_ln_2_centred;
            }
            h_ln_2_mu[ib*T + it] = a;
            const float c = rt_rsqrt(b / (float)C + 1e-05f);
            RT_SIMD()
            for (int ic = 0; ic < C; ic++)
                h_ln_2_y[ib*T*C + it*C + ic] = (h_x[ib*T*C + it*C + ic] - a) * c *
                        h_ln_2_weight[ic];
            h_ln_2_rstd[ib*T + it] = c;
        }
}

/* h_mlp_c_fc[B,T,4*C] = h_ln_2_y[B,T,C] @ h_mlp_c_fc_weight[4*C,C]' + h_mlp_c_fc_bias
 * gpt.model:18   matmul+add */
static void k7_h_mlp_c_fc(float *restrict h_mlp_c_fc, const float *restrict h_ln_2_y,
                          const float *restrict h_mlp_c_fc_weight,
                          const float *restrict h_mlp_c_fc_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = 4*C, .k = C, .tb = true, .bias = h_mlp_c_fc_bias };
    rt_matmul_f32(h_mlp_c_fc, h_ln_2_y, h_mlp_c_fc_weight, shape);
}

/* h_mlp_hidden[B,T,4*C] = 0.5 * h_mlp_c_fc * (1 + tanh(h_mlp_hidden_inner))
 * where h_mlp_hidden_inner = 0.797885 * (h_mlp_c_fc + 0.044715 * h_mlp_c_fc^3)
 * gpt.model:18   mul+add+tanh */
static void k8_h_mlp_hidden(float *h_mlp_hidden, const float *h_mlp_c_fc, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_SIMD(4*B*T*C)
    for (ptrdiff_t i = 0; i < 4*B*T*C; i++) {
        const float a = h_mlp_c_fc[i];
        h_mlp_hidden[i] = 0.5f * a * (1 + rt_tanh(0.7978846f * (a + 0.044715f * (a * a * a))));
    }
}

/* h_mlp_c_proj[B,T,C] = h_mlp_hidden[B,T,4*C] @ h_mlp_c_proj_weight[C,4*C]' + h_mlp_c_proj_bias
 * gpt.model:18   matmul+add */
static void k9_h_mlp_c_proj(float *restrict h_mlp_c_proj, const float *restrict h_mlp_hidden,
                            const float *restrict h_mlp_c_proj_weight,
                            const float *restrict h_mlp_c_proj_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = 4*C, .tb = true, .bias = h_mlp_c_proj_bias };
    rt_matmul_f32(h_mlp_c_proj, h_mlp_hidden, h_mlp_c_proj_weight, shape);
}

/* x[B,T,C] = h_x[B,T,C] + h_mlp_c_proj[B,T,C]    gpt.model:18   add */
static void k10_x(float *restrict x, const float *restrict h_x, const float *restrict h_mlp_c_proj,
                  ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_SIMD(B*T*C)
    for (ptrdiff_t i = 0; i < B*T*C; i++)
        x[i] = h_x[i] + h_mlp_c_proj[i];
}

/* ln_f_mu[B,T] = (sum over C of x) / C
 * ln_f_rstd[B,T] = rsqrt((sum over C of ln_f_centred^2) / C + 1e-05)
 * ln_f[B,T,C] = ln_f_y + ln_f_bias
 * where ln_f_centred = x - ln_f_mu
 * where ln_f_y = ln_f_centred * ln_f_rstd * ln_f_weight
 * gpt.model:27   sum+div+sub+mul+add+rsqrt */
static void k11_ln_f(float *restrict ln_f_mu, float *restrict ln_f_rstd, float *restrict ln_f,
                     const float *restrict x, const float *restrict ln_f_weight,
                     const float *restrict ln_f_bias, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        float sum = 0;
        RT_SIMD(reduction(+:sum))
        for (int ic = 0; ic < C; ic++)
            sum += x[i*C + ic];
        const float a = sum / (float)C;
        float b = 0;
        RT_SIMD(reduction(+:b))
        for (int ic = 0; ic < C; ic++) {
            const float ln_f_centred = x[i*C + ic] - a;
            b += ln_f_centred * ln_f_centred;
        }
        ln_f_mu[i] = a;
        const float c = rt_rsqrt(b / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            ln_f[i*C + ic] = (x[i*C + ic] - a) * c * ln_f_weight[ic] + ln_f_bias[ic];
        ln_f_rstd[i] = c;
    }
}

/* logits[B,T,V] = ln_f[B,T,C] @ wte_weight[V,C]'  gpt.model:27   matmul */
static void k12_logits(float *restrict logits, const float *restrict ln_f,
                       const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = V, .k = C, .tb = true };
    rt_matmul_f32(logits, ln_f, wte_weight, shape);
}

/* logsumexp[B,T] = max over V of logits + log(sum over V of exp(logits - (max over V of logits)))
 * sum_loss += sum over B,T of where(0 <= targets, logsumexp -
 *         (sum over V of where(0..V == targets, logits, 0)), 0)
 * gpt.model:28   amax+sub+exp+sum+log+add+... */
static void k13_logsumexp(float *restrict logsumexp, double *restrict sum_loss,
                          const float *restrict logits, const int32_t *restrict targets,
                          ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*V)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t i = from; i < to; i++) {
            const int32_t a = targets[i];
            float max = -INFINITY;
            float sum = 0;
            RT_SIMD(reduction(+:sum) reduction(max:max))
            for (int iv = 0; iv < V; iv++) {
                const float b = logits[i*V + iv];
                max = rt_max(max, b);
                sum += iv == a ? b : 0.0f;
            }
            float b = 0;
            RT_SIMD(reduction(+:b))
            for (int iv = 0; iv < V; iv++)
                b += rt_exp(logits[i*V + iv] - max);
            const float c = max + rt_log(b);
            logsumexp[i] = c;
            total_sum_loss += (double)(0 <= a ? c - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* d_logits[B,T,V] = where(0 <= targets, where(0 <= targets, seed_loss, 0) *
 *         (exp(logits - logsumexp) - (0..V == targets)), 0)
 * gpt.model:28   gradient of k13, le+where+sub+exp+eq+mul */
static void k14_d_logits(float *d_logits, const int32_t *restrict targets, const float *logits,
                         const float *restrict logsumexp, float seed_loss, ptrdiff_t B,
                         ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*V)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        const int32_t a = targets[i];
        const bool b = 0 <= a;
        const float c = b ? seed_loss : 0.0f;
        const float d = logsumexp[i];
        RT_SIMD()
        for (int iv = 0; iv < V; iv++)
            d_logits[i*V + iv] = b ? c * (rt_exp(logits[i*V + iv] - d) - (float)(iv == a)) : 0.0f;
    }
}

/* d_ln_f[B,T,C] = d_logits[B,T,V] @ wte_weight[V,C]  gpt.model:27   gradient of k12, matmul */
static void k15_d_ln_f(float *restrict d_ln_f, const float *restrict d_logits,
                       const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = V };
    rt_matmul_f32(d_ln_f, d_logits, wte_weight, shape);
}

/* d_wte_weight[V,C] (+)= d_logits[B,T,V]' @ ln_f[B,T,C]  gpt.model:27   gradient of k12, matmul */
static void k16_d_wte_weight(float *restrict d_wte_weight, const float *restrict d_logits,
                             const float *restrict ln_f, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = V, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_wte_weight, d_logits, ln_f, shape);
}

/* d_ln_f_bias[C] (+)= sum over B,T of d_ln_f
 * d_ln_f_weight[C] (+)= sum over B,T of d_ln_f * (ln_f_centred * ln_f_rstd)
 * d_x[B,T,C] = d_ln_f_centred - (sum over C of d_ln_f_centred) / C
 * where ln_f_centred = x - ln_f_mu
 * where d_ln_f_centred = d_ln_f * ln_f_weight * ln_f_rstd + d_ln_f_rstd * (-0.5 * ln_f_rstd^3) / C
 *         * 2 * ln_f_centred
 * where d_ln_f_rstd = sum over C of d_ln_f * ln_f_weight * ln_f_centred
 * gpt.model:27   gradient of k11, sub+mul+sum+div+add */
static void k17_d_x(float *restrict d_ln_f_bias, float *restrict d_ln_f_weight, float *restrict d_x,
                    float *restrict work, const float *restrict d_ln_f, const float *restrict x,
                    const float *restrict ln_f_mu, const float *restrict ln_f_rstd,
                    const float *restrict ln_f_weight, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    RT_PARALLEL_FOR(1, B*T*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        float *restrict part_d_ln_f_bias = rt_zeros_f32(work + chunk*C, C);
        float *restrict part_d_ln_f_weight = rt_zeros_f32(work + 1*RT_CHUNKS*C + chunk*C, C);
        for (ptrdiff_t i = from; i < to; i++) {
            const float a = ln_f_mu[i];
            const float b = ln_f_rstd[i];
            float d_ln_f_rstd = 0;
            RT_SIMD(reduction(+:d_ln_f_rstd))
            for (int ic = 0; ic < C; ic++) {
                const float c = d_ln_f[i*C + ic];
                const float ln_f_centred = x[i*C + ic] - a;
                d_ln_f_rstd += c * ln_f_weight[ic] * ln_f_centred;
                part_d_ln_f_bias[ic] += c;
                part_d_ln_f_weight[ic] += c * (ln_f_centred * b);
            }
            const float c = d_ln_f_rstd * (-0.5f * (b * b * b)) / (float)C * 2;
            float sum = 0;
            RT_SIMD(reduction(+:sum))
            for (int ic = 0; ic < C; ic++)
                sum += d_ln_f[i*C + ic] * ln_f_weight[ic] * b + c * (x[i*C + ic] - a);
            const float d = sum / (float)C;
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float d_ln_f_centred = d_ln_f[i*C + ic] * ln_f_weight[ic] * b + c *
                        (x[i*C + ic] - a);
                d_x[i*C + ic] = d_ln_f_centred - d;
            }
        }
    }
    rt_add_rows_f32(d_ln_f_bias, work, chunks, C, add);
    rt_add_rows_f32(d_ln_f_weight, work + 1*RT_CHUNKS*C, chunks, C, add);
}

/* d_h_mlp_hidden[B,T,4*C] = d_x[B,T,C] @ h_mlp_c_proj_weight[C,4*C]
 * gpt.model:18   gradient of k9, matmul */
static void k18_d_h_mlp_hidden(float *restrict d_h_mlp_hidden, const float *restrict d_x,
                               const float *restrict h_mlp_c_proj_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = 4*C, .k = C };
    rt_matmul_f32(d_h_mlp_hidden, d_x, h_mlp_c_proj_weight, shape);
}

/* d_h_mlp_c_proj_weight[C,4*C] (+)= d_x[B,T,C]' @ h_mlp_hidden[B,T,4*C]
 * gpt.model:18   gradient of k9, matmul */
static void k19_d_h_mlp_c_proj_weight(float *restrict d_h_mlp_c_proj_weight,
                                      const float *restrict d_x, const float *restrict h_mlp_hidden,
                                      bool add, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = C, .n = 4*C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_h_mlp_c_proj_weight, d_x, h_mlp_hidden, shape);
}

/* d_h_mlp_c_fc[B,T,4*C] = d_h_mlp_hidden_inner * 0.797885 + d_h_mlp_hidden_inner * 0.797885 *
 *         0.044715 * (3 * h_mlp_c_fc^2) + d_h_mlp_hidden * (1 + tanh(h_mlp_hidden_inner)) * 0.5
 * d_h_mlp_c_fc_bias[4*C] (+)= sum over B,T of d_h_mlp_c_fc
 * where d_h_mlp_hidden_inner = d_h_mlp_hidden * (0.5 * h_mlp_c_fc) *
 *         (1 - tanh(h_mlp_hidden_inner)^2)
 * where h_mlp_hidden_inner = 0.797885 * (h_mlp_c_fc + 0.044715 * h_mlp_c_fc^3)
 * gpt.model:18   gradient of k8, mul+add+tanh+sub+sum */
static void k20_d_h_mlp_c_fc(float *restrict d_h_mlp_c_fc, float *restrict d_h_mlp_c_fc_bias,
                             float *restrict work, const float *restrict h_mlp_c_fc,
                             const float *restrict d_h_mlp_hidden, bool add, ptrdiff_t B,
                             ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    RT_PARALLEL_FOR(1, 4*B*T*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        float *restrict part_d_h_mlp_c_fc_bias = rt_zeros_f32(work + chunk*4*C, 4*C);
        for (ptrdiff_t i = from; i < to; i++) {
            RT_SIMD()
            for (int i1 = 0; i1 < 4*C; i1++) {
                const float a = d_h_mlp_hidden[i*4*C + i1];
                const float b = h_mlp_c_fc[i*4*C + i1];
                const float c = b * b;
                const float d = rt_tanh(0.7978846f * (b + 0.044715f * (c * b)));
                const float e = a * (0.5f * b) * (1 - d * d) * 0.7978846f;
                const float f = e + e * 0.044715f * (3 * c) + a * (1 + d) * 0.5f;
                d_h_mlp_c_fc[i*4*C + i1] = f;
                part_d_h_mlp_c_fc_bias[i1] += f;
            }
        }
    }
    rt_add_rows_f32(d_h_mlp_c_fc_bias, work, chunks, 4*C, add);
}

/* d_h_ln_2_y[B,T,C] = d_h_mlp_c_fc[B,T,4*C] @ h_mlp_c_fc_weight[4*C,C]
 * gpt.model:18   gradient of k7, matmul */
static void k21_d_h_ln_2_y(float *restrict d_h_ln_2_y, const float *restrict d_h_mlp_c_fc,
                           const float *restrict h_mlp_c_fc_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = 4*C };
    rt_matmul_f32(d_h_ln_2_y, d_h_mlp_c_fc, h_mlp_c_fc_weight, shape);
}

/* d_h_mlp_c_fc_weight[4*C,C] (+)= d_h_mlp_c_fc[B,T,4*C]' @ h_ln_2_y[B,T,C]
 * gpt.model:18   gradient of k7, matmul */
static void k22_d_h_mlp_c_fc_weight(float *restrict d_h_mlp_c_fc_weight,
                                    const float *restrict d_h_mlp_c_fc,
                                    const float *restrict h_ln_2_y, bool add, ptrdiff_t B,
                                    ptrdiff_t T)
{
    const RtMatmul shape = { .m = 4*C, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_h_mlp_c_fc_weight, d_h_mlp_c_fc, h_ln_2_y, shape);
}

/* d_h_mlp_c_proj_bias[C] (+)= sum over B,T of d_x
 * d_h_ln_2_weight[C] (+)= sum over B,T of d_h_ln_2_y * (h_ln_2_centred * h_ln_2_rstd)
 * d_h_x[B,T,C] = d_x + d_h_ln_2_centred - (sum over C of d_h_ln_2_centred) / C
 * d_h_attn_c_proj[B,T,C] = where(uniform(i) < 0.8, d_h_x * 1.25, 0)
 * d_h_attn_c_proj_bias[C] (+)= sum over B,T of d_h_attn_c_proj
 * where h_ln_2_centred = h_x - h_ln_2_mu
 * where d_h_ln_2_centred = d_h_ln_2_y * h_ln_2_weight * h_ln_2_rstd + d_h_ln_2_rstd *
 *         (-0.5 * h_ln_2_rstd^3) / C * 2 * h_ln_2_centred
 * where d_h_ln_2_rstd = sum over C of d_h_ln_2_y * h_ln_2_weight * h_ln_2_centred
 * gpt.model:18   gradient of k6, sub+mul+sum+div+add+uniform+... */
static void k23_d_h_attn_c_proj(float *restrict d_h_mlp_c_proj_bias,
                                float *restrict d_h_ln_2_weight, float *restrict d_h_x,
                                float *restrict d_h_attn_c_proj,
                                float *restrict d_h_attn_c_proj_bias, float *restrict work,
                                const float *restrict d_x, const float *restrict d_h_ln_2_y,
                                const float *restrict h_x, const float *restrict h_ln_2_mu,
                                const float *restrict h_ln_2_rstd,
                                const float *restrict h_ln_2_weight, int iter, RtKey key,
                                int64_t sample, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    RT_PARALLEL_FOR(1, B*T*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        float *restrict part_d_h_mlp_c_proj_bias = rt_zeros_f32(work + chunk*C, C);
        float *restrict part_d_h_ln_2_weight = rt_zeros_f32(work + 1*RT_CHUNKS*C + chunk*C, C);
        float *restrict part_d_h_attn_c_proj_bias = rt_zeros_f32(work + 2*RT_CHUNKS*C + chunk*C, C);
        for (ptrdiff_t row = from; row < to; row++) {
            const ptrdiff_t ib = row / T;
            const ptrdiff_t it = row % T;
            const float a = h_ln_2_mu[ib*T + it];
            const float b = h_ln_2_rstd[ib*T + it];
            float d_h_ln_2_rstd = 0;
            RT_SIMD(reduction(+:d_h_ln_2_rstd))
            for (int ic = 0; ic < C; ic++) {
                const float c = d_h_ln_2_y[ib*T*C + it*C + ic];
                const float h_ln_2_centred = h_x[ib*T*C + it*C + ic] - a;
                d_h_ln_2_rstd += c * h_ln_2_weight[ic] * h_ln_2_centred;
                part_d_h_mlp_c_proj_bias[ic] += d_x[ib*T*C + it*C + ic];
                part_d_h_ln_2_weight[ic] += c * (h_ln_2_centred * b);
            }
            const float c = d_h_ln_2_rstd * (-0.5f * (b * b * b)) / (float)C * 2;
            float sum = 0;
            RT_SIMD(reduction(+:sum))
            for (int ic = 0; ic < C; ic++)
                sum += d_h_ln_2_y[ib*T*C + it*C + ic] * h_ln_2_weight[ic] * b + c *
                        (h_x[ib*T*C + it*C + ic] - a);
            const float d = sum / (float)C;
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float d_h_ln_2_centred = d_h_ln_2_y[ib*T*C + it*C + ic] * h_ln_2_weight[ic] *
                        b + c * (h_x[ib*T*C + it*C + ic] - a);
                const float e = d_x[ib*T*C + it*C + ic] + d_h_ln_2_centred - d;
                d_h_x[ib*T*C + it*C + ic] = e;
                const float f = rt_uniform_f32(key, rt_stream(0x045de552359eb463u, (uint64_t)iter),
                        (uint64_t)(sample + ib), (uint64_t)(it*C + ic));
                const float g = f < 0.8f ? e * 1.25f : 0.0f;
                d_h_attn_c_proj[ib*T*C + it*C + ic] = g;
                part_d_h_attn_c_proj_bias[ic] += g;
            }
        }
    }
    rt_add_rows_f32(d_h_mlp_c_proj_bias, work, chunks, C, add);
    rt_add_rows_f32(d_h_ln_2_weight, work + 1*RT_CHUNKS*C, chunks, C, add);
    rt_add_rows_f32(d_h_attn_c_proj_bias, work + 2*RT_CHUNKS*C, chunks, C, add);
}

/* d_h_attn_y[B*T,C] = d_h_attn_c_proj[B,T,C] @ h_attn_c_proj_weight[C,C]'
 * gpt.model:10   gradient of k5, matmul */
static void k24_d_h_attn_y(float *restrict d_h_attn_y, const float *restrict d_h_attn_c_proj,
                           const float *restrict h_attn_c_proj_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = C, .tb = true };
    rt_matmul_f32(d_h_attn_y, d_h_attn_c_proj, h_attn_c_proj_weight, shape);
}

/* d_h_attn_c_proj_weight[C,C] (+)= h_attn_y[B*T,C]' @ d_h_attn_c_proj[B,T,C]
 * gpt.model:10   gradient of k5, matmul */
static void k25_d_h_attn_c_proj_weight(float *restrict d_h_attn_c_proj_weight,
                                       const float *restrict h_attn_y,
                                       const float *restrict d_h_attn_c_proj, bool add, ptrdiff_t B,
                                       ptrdiff_t T)
{
    const RtMatmul shape = { .m = C, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_h_attn_c_proj_weight, h_attn_y, d_h_attn_c_proj, shape);
}

/* d_q, d_k, d_v of d_h_attn_c_attn = gradient of attention(q, k, v of h_attn_c_attn, causal)
 * gpt.model:9   gradient of k4, attention_grad */
static void k26_d_h_attn_c_attn(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                                const float *v, const float *restrict h_attn_y,
                                const float *restrict h_attn_y_logsumexp,
                                const float *restrict d_h_attn_y, ptrdiff_t B, ptrdiff_t T)
{
    const RtAttention shape = { .B = B, .H = H, .T = T, .S = T, .D = C/H, .E = C/H,
                                .scale = 1 / sqrt((double)(C/H)), .causal = true,
                                .q = { 3*T*C, C/H, 3*C }, .k = { 3*T*C, C/H, 3*C },
                                .v = { 3*T*C, C/H, 3*C }, .y = { T*C, C/H, C },
                                .d_q = { 3*T*C, C/H, 3*C }, .d_k = { 3*T*C, C/H, 3*C },
                                .d_v = { 3*T*C, C/H, 3*C }, .d_y = { T*C, C/H, C } };
    rt_attention_grad_f32(d_q, d_k, d_v, q, k, v, h_attn_y, h_attn_y_logsumexp, d_h_attn_y, shape);
}

/* d_h_attn_c_attn_bias[3*C] (+)= sum over B,T of d_h_attn_c_attn[B,T,3*C]
 * gpt.model:8   gradient of k3, sum */
static void k27_d_h_attn_c_attn_bias(float *restrict d_h_attn_c_attn_bias,
                                     const float *restrict d_h_attn_c_attn, bool add, ptrdiff_t B,
                                     ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, 3*B*T*C)
    for (int block = 0; block < 3*C; block += RT_COLUMNS) {
        const int end = rt_min(block + RT_COLUMNS, 3*C);
        float sum[RT_COLUMNS] = { 0 };
        for (ptrdiff_t i = 0; i < B*T; i++) {
            RT_SIMD()
            for (int i1 = block; i1 < end; i1++)
                sum[i1 - block] += d_h_attn_c_attn[i*3*C + i1];
        }
        RT_SIMD()
        for (int i1 = block; i1 < end; i1++)
            d_h_attn_c_attn_bias[i1] = add ? d_h_attn_c_attn_bias[i1] + sum[i1 - block] :
                    sum[i1 - block];
    }
}

/* d_h_ln_1[B,T,C] = d_h_attn_c_attn[B,T,3*C] @ h_attn_c_attn_weight[3*C,C]
 * gpt.model:8   gradient of k3, matmul */
static void k28_d_h_ln_1(float *restrict d_h_ln_1, const float *restrict d_h_attn_c_attn,
                         const float *restrict h_attn_c_attn_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = 3*C };
    rt_matmul_f32(d_h_ln_1, d_h_attn_c_attn, h_attn_c_attn_weight, shape);
}

/* d_h_attn_c_attn_weight[3*C,C] (+)= d_h_attn_c_attn[B,T,3*C]' @ h_ln_1[B,T,C]
 * gpt.model:8   gradient of k3, matmul */
static void k29_d_h_attn_c_attn_weight(float *restrict d_h_attn_c_attn_weight,
                                       const float *restrict d_h_attn_c_attn,
                                       const float *restrict h_ln_1, bool add, ptrdiff_t B,
                                       ptrdiff_t T)
{
    const RtMatmul shape = { .m = 3*C, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_h_attn_c_attn_weight, d_h_attn_c_attn, h_ln_1, shape);
}

/* d_h_ln_1_bias[C] (+)= sum over B,T of d_h_ln_1
 * d_h_ln_1_weight[C] (+)= sum over B,T of d_h_ln_1 * (h_ln_1_centred * h_ln_1_rstd)
 * d_x[B,T,C] = d_h_x + d_h_ln_1_centred - (sum over C of d_h_ln_1_centred) / C
 * where h_ln_1_centred = x - h_ln_1_mu
 * where d_h_ln_1_centred = d_h_ln_1 * h_ln_1_weight * h_ln_1_rstd + d_h_ln_1_rstd *
 *         (-0.5 * h_ln_1_rstd^3) / C * 2 * h_ln_1_centred
 * where d_h_ln_1_rstd = sum over C of d_h_ln_1 * h_ln_1_weight * h_ln_1_centred
 * gpt.model:17   gradient of k2, sub+mul+sum+div+add */
static void k30_d_x(float *restrict d_h_ln_1_bias, float *restrict d_h_ln_1_weight,
                    float *restrict d_x, float *restrict work, const float *restrict d_h_ln_1,
                    const float *restrict x, const float *restrict h_ln_1_mu,
                    const float *restrict h_ln_1_rstd, const float *restrict h_ln_1_weight,
                    const float *restrict d_h_x, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    RT_PARALLEL_FOR(1, B*T*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        float *restrict part_d_h_ln_1_bias = rt_zeros_f32(work + chunk*C, C);
        float *restrict part_d_h_ln_1_weight = rt_zeros_f32(work + 1*RT_CHUNKS*C + chunk*C, C);
        for (ptrdiff_t i = from; i < to; i++) {
            const float a = h_ln_1_mu[i];
            const float b = h_ln_1_rstd[i];
            float d_h_ln_1_rstd = 0;
            RT_SIMD(reduction(+:d_h_ln_1_rstd))
            for (int ic = 0; ic < C; ic++) {
                const float c = d_h_ln_1[i*C + ic];
                const float h_ln_1_centred = x[i*C + ic] - a;
                d_h_ln_1_rstd += c * h_ln_1_weight[ic] * h_ln_1_centred;
                part_d_h_ln_1_bias[ic] += c;
                part_d_h_ln_1_weight[ic] += c * (h_ln_1_centred * b);
            }
            const float c = d_h_ln_1_rstd * (-0.5f * (b * b * b)) / (float)C * 2;
            float sum = 0;
            RT_SIMD(reduction(+:sum))
            for (int ic = 0; ic < C; ic++)
                sum += d_h_ln_1[i*C + ic] * h_ln_1_weight[ic] * b + c * (x[i*C + ic] - a);
            const float d = sum / (float)C;
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float d_h_ln_1_centred = d_h_ln_1[i*C + ic] * h_ln_1_weight[ic] * b + c *
                        (x[i*C + ic] - a);
                d_x[i*C + ic] = d_h_x[i*C + ic] + d_h_ln_1_centred - d;
            }
        }
    }
    rt_add_rows_f32(d_h_ln_1_bias, work, chunks, C, add);
    rt_add_rows_f32(d_h_ln_1_weight, work + 1*RT_CHUNKS*C, chunks, C, add);
}

/* d_wte[B,T,C] = where(x_a, d_x * 1.11111, 0)
 * d_wpe[T,C] = sum over B of d_wte
 * gpt.model:25   gradient of k1, mul+where+sum */
static void k31_d_wte(float *restrict d_wte, float *restrict d_wpe, float *restrict work,
                      const bool *restrict x_a, const float *restrict d_x, ptrdiff_t B,
                      ptrdiff_t T)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*T*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_wpe = rt_zeros_f32(work + chunk*T*C, T*C);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (ptrdiff_t i1 = 0; i1 < T*C; i1++) {
                const float a = x_a[ib*T*C + i1] ? d_x[ib*T*C + i1] * 1.1111112f : 0.0f;
                d_wte[ib*T*C + i1] = a;
                part_d_wpe[i1] += a;
            }
        }
    }
    rt_add_rows_f32(d_wpe, work, chunks, T*C, false);
}

/* d_wpe_weight[Tmax,C] (+)= pad(d_wpe[T,C])      gpt.model:25   gradient of k1, lt */
static void k32_d_wpe_weight(float *restrict d_wpe_weight, const float *restrict d_wpe, bool add,
                             ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, C*Tmax)
    for (int itmax = 0; itmax < Tmax; itmax++) {
        const bool a = itmax < (int32_t)T;
        RT_SIMD()
        for (int ic = 0; ic < C; ic++) {
            const float b = a ? d_wpe[itmax*C + ic] : 0.0f;
            d_wpe_weight[itmax*C + ic] = add ? d_wpe_weight[itmax*C + ic] + b : b;
        }
    }
}

/* d_wte_weight[V,C] += rows d_wte[B,T,C] added at tokens[B,T]
 * gpt.model:25   gradient of k1, scatter */
static void k33_d_wte_weight(float *restrict d_wte_weight, const int32_t *restrict tokens,
                             const float *restrict d_wte, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (int block = 0; block < C; block += RT_COLUMNS) {
        const int end = rt_min(block + RT_COLUMNS, C);
        for (ptrdiff_t i = 0; i < B*T; i++) {
            float *to_row = d_wte_weight + (ptrdiff_t)tokens[i]*C;
            RT_SIMD()
            for (int j = block; j < end; j++)
                to_row[j] += d_wte[i*C + j];
        }
    }
}

/* x[B,T,C] = wte_weight[tokens[B,T]] + wpe_weight[0..T,:]  gpt.model:25   gather+add */
static void k34_x(float *restrict x, const int32_t *restrict tokens,
                  const float *restrict wte_weight, const float *restrict wpe_weight, ptrdiff_t B,
                  ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*C)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            const int32_t a = tokens[ib*T + it];
            RT_SIMD()
            for (int ic = 0; ic < C; ic++)
                x[ib*T*C + it*C + ic] = wte_weight[(ptrdiff_t)a*C + ic] + wpe_weight[it*C + ic];
        }
}

/* h_ln_1[B,T,C] = h_ln_1_y + h_ln_1_bias
 * where h_ln_1_y = h_ln_1_centred * h_ln_1_rstd * h_ln_1_weight
 * where h_ln_1_centred = x - h_ln_1_mu
 * where h_ln_1_rstd = rsqrt((sum over C of h_ln_1_centred^2) / C + 1e-05)
 * where h_ln_1_mu = (sum over C of x) / C
 * gpt.model:17   sum+div+sub+mul+add+rsqrt */
static void k35_h_ln_1(float *restrict h_ln_1, const float *restrict x,
                       const float *restrict h_ln_1_weight, const float *restrict h_ln_1_bias,
                       ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        float sum = 0;
        RT_SIMD(reduction(+:sum))
        for (int ic = 0; ic < C; ic++)
            sum += x[i*C + ic];
        const float h_ln_1_mu = sum / (float)C;
        float a = 0;
        RT_SIMD(reduction(+:a))
        for (int ic = 0; ic < C; ic++) {
            const float h_ln_1_centred = x[i*C + ic] - h_ln_1_mu;
            a += h_ln_1_centred * h_ln_1_centred;
        }
        const float h_ln_1_rstd = rt_rsqrt(a / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++) {
            const float h_ln_1_y = (x[i*C + ic] - h_ln_1_mu) * h_ln_1_rstd * h_ln_1_weight[ic];
            h_ln_1[i*C + ic] = h_ln_1_y + h_ln_1_bias[ic];
        }
    }
}

/* h_x[B,T,C] = x + h_attn_c_proj
 * h_ln_2_y[B,T,C] = h_ln_2_centred * h_ln_2_rstd * h_ln_2_weight
 * where h_ln_2_centred = h_x - h_ln_2_mu
 * where h_ln_2_rstd = rsqrt((sum over C of h_ln_2_centred^2) / C + 1e-05)
 * where h_ln_2_mu = (sum over C of h_x) / C
 * gpt.model:18   add+sum+div+sub+mul+rsqrt */
static void k36_h_ln_2_y(float *restrict h_x, float *h_ln_2_y, const float *restrict x,
                         const float *h_attn_c_proj, const float *restrict h_ln_2_weight,
                         ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        float sum = 0;
        RT_SIMD(reduction(+:sum))
        for (int ic = 0; ic < C; ic++) {
            const float a = x[i*C + ic] + h_attn_c_proj[i*C + ic];
            sum += a;
            h_x[i*C + ic] = a;
        }
        const float h_ln_2_mu = sum / (float)C;
        float a = 0;
        RT_SIMD(reduction(+:a))
        for (int ic = 0; ic < C; ic++) {
            const float h_ln_2_centred = h_x[i*C + ic] - h_ln_2_mu;
            a += h_ln_2_centred * h_ln_2_centred;
        }
        const float h_ln_2_rstd = rt_rsqrt(a / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_ln_2_y[i*C + ic] = (h_x[i*C + ic] - h_ln_2_mu) * h_ln_2_rstd * h_ln_2_weight[ic];
    }
}

/* ln_f[B,T,C] = ln_f_y + ln_f_bias
 * where ln_f_y = ln_f_centred * ln_f_rstd * ln_f_weight
 * where ln_f_centred = x - ln_f_mu
 * where ln_f_rstd = rsqrt((sum over C of ln_f_centred^2) / C + 1e-05)
 * where ln_f_mu = (sum over C of x) / C
 * gpt.model:27   sum+div+sub+mul+add+rsqrt */
static void k37_ln_f(float *ln_f, const float *x, const float *restrict ln_f_weight,
                     const float *restrict ln_f_bias, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        float sum = 0;
        RT_SIMD(reduction(+:sum))
        for (int ic = 0; ic < C; ic++)
            sum += x[i*C + ic];
        const float ln_f_mu = sum / (float)C;
        float a = 0;
        RT_SIMD(reduction(+:a))
        for (int ic = 0; ic < C; ic++) {
            const float ln_f_centred = x[i*C + ic] - ln_f_mu;
            a += ln_f_centred * ln_f_centred;
        }
        const float ln_f_rstd = rt_rsqrt(a / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            ln_f[i*C + ic] = (x[i*C + ic] - ln_f_mu) * ln_f_rstd * ln_f_weight[ic] + ln_f_bias[ic];
    }
}

/* sum_loss += sum over B,T of where(0 <= targets, max over V of logits +
 *         log(sum over V of exp(logits - (max over V of logits))) -
 *         (sum over V of where(0..V == targets, logits, 0)), 0)
 * sum_accuracy += sum over B,T of where(0 <= targets, argmax over V of logits == targets, 0)
 * gpt.model:29   amax+sub+exp+sum+eq+where+... */
static void k38_sum_accuracy(double *restrict sum_loss, double *restrict sum_accuracy,
                             const float *restrict logits, const int32_t *restrict targets,
                             ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    double part_sum_accuracy[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*V)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        double total_sum_accuracy = 0;
        for (ptrdiff_t i = from; i < to; i++) {
            const int32_t a = targets[i];
            const bool b = 0 <= a;
            float max = -INFINITY;
            float sum = 0;
            float best = -INFINITY;
            int32_t c = 0;
            for (int iv = 0; iv < V; iv++) {
                const float d = logits[i*V + iv];
                max = rt_max(max, d);
                sum += iv == a ? d : 0.0f;
                if (d > best || (isnan(d) && !isnan(best))) {
                    best = d;
                    c = iv;
                }
            }
            float d = 0;
            RT_SIMD(reduction(+:d))
            for (int iv = 0; iv < V; iv++)
                d += rt_exp(logits[i*V + iv] - max);
            total_sum_accuracy += (double)(b ? (float)(c == a) : 0.0f);
            total_sum_loss += (double)(b ? max + rt_log(d) - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
        part_sum_accuracy[chunk] = total_sum_accuracy;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
    *sum_accuracy += rt_sum_chunks(part_sum_accuracy, chunks);
}

/* count_loss += sum over B,T of (0 <= targets)   gpt.model:28   le+sum */
static void k39_count_accuracy(double *restrict count_loss, double *restrict count_accuracy,
                               const int32_t *restrict targets, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_count_loss[RT_CHUNKS];
    double part_count_accuracy[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_count_loss = 0;
        double total_count_accuracy = 0;
        RT_SIMD(reduction(+:total_count_loss, total_count_accuracy))
        for (ptrdiff_t i = from; i < to; i++) {
            const float a = (float)(0 <= targets[i]);
            total_count_loss += (double)a;
            total_count_accuracy += (double)a;
        }
        part_count_loss[chunk] = total_count_loss;
        part_count_accuracy[chunk] = total_count_accuracy;
    }
    *count_loss += rt_sum_chunks(part_count_loss, chunks);
    *count_accuracy += rt_sum_chunks(part_count_accuracy, chunks);
}

/* ---- 5 forward ---------------------------------------------------------- */

enum {                                  /* means over the data: places in RtStep */
    S_loss = 0,                         /* mean(cross_entropy(logits...  gpt.model:28 */
    S_accuracy = 1,                     /* metric: accuracy(logits, targets)  gpt.model:29 */
};

/* what the means divide by, over one micro-step */
static void gpt_count(const int32_t *targets, RtStep *s, Dims n)
{
    /* 1    gpt.model:28  loss = mean(cross_entropy(logits, targets), where: targets >= 0) */
    k39_count_accuracy(&s->count[S_loss], &s->count[S_accuracy], targets, n.B, n.T);
}

/* one repetition of h, forward */
static void block_forward(const float *p, void *arena, const Plan *at, const RtStep *s, Dims n,
                          int il)
{
    float *x = (float *)RT_AT(arena, at->x) + il*n.B*n.T*C;               /* [B,T,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                           /* this repetition of h */
    float *h_ln_1_mu = (float *)RT_AT(arena, at->h_ln_1_mu) + il*n.B*n.T; /* [B,T] */
    float *h_ln_1_rstd = (float *)RT_AT(arena, at->h_ln_1_rstd) + il*n.B*n.T; /* [B,T] */
    float *h_ln_1 = (float *)RT_AT(arena, at->h_ln_1) + il*n.B*n.T*C;     /* [B,T,C] */
    /* [B,T,3*C] */
    float *h_attn_c_attn = (float *)RT_AT(arena, at->h_attn_c_attn) + il*3*n.B*n.T*C;
    float *h_attn_y = (float *)RT_AT(arena, at->h_attn_y) + il*n.B*n.T*C; /* [B,T,H,C/H] */
    /* [B,H,T] */
    float *h_attn_y_logsumexp = (float *)RT_AT(arena, at->h_attn_y_logsumexp) + il*n.B*n.T*H;
    float *h_attn_c_proj = RT_AT(arena, at->h_attn_c_proj);               /* [B,T,C] */
    float *h_x = (float *)RT_AT(arena, at->h_x) + il*n.B*n.T*C;           /* [B,T,C] */
    float *h_ln_2_mu = (float *)RT_AT(arena, at->h_ln_2_mu) + il*n.B*n.T; /* [B,T] */
    float *h_ln_2_rstd = (float *)RT_AT(arena, at->h_ln_2_rstd) + il*n.B*n.T; /* [B,T] */
    float *h_ln_2_y = (float *)RT_AT(arena, at->h_ln_2_y) + il*n.B*n.T*C; /* [B,T,C] */
    float *h_mlp_c_fc = (float *)RT_AT(arena, at->h_mlp_c_fc) + il*4*n.B*n.T*C; /* [B,T,4*C] */
    float *h_mlp_hidden = (float *)RT_AT(arena, at->h_mlp_hidden) + il*4*n.B*n.T*C; /* [B,T,4*C] */
    float *h_mlp_c_proj = RT_AT(arena, at->h_mlp_c_proj);                 /* [B,T,C] */

    /* 2    gpt.model:17  x = x + attn(ln_1(x)) */
    k2_h_ln_1(h_ln_1_mu, h_ln_1_rstd, h_ln_1, x, p_h + P_h_ln_1_weight, p_h + P_h_ln_1_bias, n.B,
              n.T);
    /* 3    gpt.model:8  q, k, v = split(c_attn(x), 3) */
    k3_h_attn_c_attn(h_attn_c_attn, h_ln_1, p_h + P_h_attn_c_attn_weight,
                     p_h + P_h_attn_c_attn_bias, n.B, n.T);
    /* 4    gpt.model:9  y = attention(heads(q, H), heads(k, H), heads(v, H), causal: true) */
    k4_h_attn_y(h_attn_y, h_attn_y_logsumexp, h_attn_c_attn, h_attn_c_attn + C, h_attn_c_attn + 2*C,
                n.B, n.T);
    /* 5    gpt.model:10  return dropout(c_proj(merge_heads(y)), 0.2) */
    k5_h_attn_c_proj(h_attn_c_proj, h_attn_y, p_h + P_h_attn_c_proj_weight,
                     p_h + P_h_attn_c_proj_bias, n.B, n.T);
    /* 6    gpt.model:18  return x + mlp(ln_2(x)) */
    k6_h_ln_2_y(h_x, h_ln_2_mu, h_ln_2_rstd, h_ln_2_y, x, h_attn_c_proj, p_h + P_h_ln_2_weight, il,
                s->key, s->sample, n.B, n.T);
    /* 7    gpt.model:18  return x + mlp(ln_2(x)) */
    k7_h_mlp_c_fc(h_mlp_c_fc, h_ln_2_y, p_h + P_h_mlp_c_fc_weight, p_h + P_h_mlp_c_fc_bias, n.B,
                  n.T);
    /* 8    gpt.model:18  return x + mlp(ln_2(x)) */
    k8_h_mlp_hidden(h_mlp_hidden, h_mlp_c_fc, n.B, n.T);
    /* 9    gpt.model:18  return x + mlp(ln_2(x)) */
    k9_h_mlp_c_proj(h_mlp_c_proj, h_mlp_hidden, p_h + P_h_mlp_c_proj_weight,
                    p_h + P_h_mlp_c_proj_bias, n.B, n.T);
    /* 10   gpt.model:18  return x + mlp(ln_2(x)) */
    k10_x(x + n.B*n.T*C, h_x, h_mlp_c_proj, n.B, n.T);
}

/* training: fills the arena and adds to the sums */
static void gpt_forward(const float *p, const int32_t *tokens, const int32_t *targets, void *arena,
                        RtStep *s, Dims n)
{
    const Plan at = gpt_plan(n);
    bool *x_a = RT_AT(arena, at.x_a);              /* [B,T,C] */
    float *x = RT_AT(arena, at.x);                 /* [L + 1,B,T,C] */
    float *ln_f_mu = RT_AT(arena, at.ln_f_mu);     /* [B,T] */
    float *ln_f_rstd = RT_AT(arena, at.ln_f_rstd); /* [B,T] */
    float *ln_f = RT_AT(arena, at.ln_f);           /* [B,T,C] */
    float *logits = RT_AT(arena, at.logits);       /* [B,T,V] */
    float *logsumexp = RT_AT(arena, at.logsumexp); /* [B,T] */

    /* 1    gpt.model:25  x = dropout(wte(tokens) + wpe(0..T), 0.1) */
    k1_x(x_a, x, tokens, p + P_wte_weight, p + P_wpe_weight, s->key, s->sample, n.B, n.T);
    /* 2..10  gpt.model:26  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_forward(p, arena, &at, s, n, il);
    /* 11   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k11_ln_f(ln_f_mu, ln_f_rstd, ln_f, x + n.B*n.T*C*L, p + P_ln_f_weight, p + P_ln_f_bias, n.B,
             n.T);
    /* 12   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k12_logits(logits, ln_f, p + P_wte_weight, n.B, n.T);
    /* 13   gpt.model:28  loss = mean(cross_entropy(logits, targets), where: targets >= 0) */
    k13_logsumexp(logsumexp, &s->sum[S_loss], logits, targets, n.B, n.T);
}

/* one repetition of h, evaluate */
static void block_evaluate(const float *p, void *arena, const EvalPlan *at, Dims n, int il)
{
    float *x = RT_AT(arena, at->x);                                   /* [B,T,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                       /* this repetition of h */
    float *h_ln_1 = RT_AT(arena, at->h_ln_1);                         /* [B,T,C] */
    float *h_attn_c_attn = RT_AT(arena, at->h_attn_c_attn);           /* [B,T,3*C] */
    float *h_attn_y = RT_AT(arena, at->h_attn_y);                     /* [B*T,C] */
    float *h_attn_y_logsumexp = RT_AT(arena, at->h_attn_y_logsumexp); /* [B,H,T] */
    float *h_attn_c_proj = RT_AT(arena, at->h_attn_c_proj);           /* [B,T,C] */
    float *h_x = RT_AT(arena, at->h_x);                               /* [B,T,C] */
    float *h_ln_2_y = RT_AT(arena, at->h_ln_2_y);                     /* [B,T,C] */
    float *h_mlp_c_fc = RT_AT(arena, at->h_mlp_c_fc);                 /* [B,T,4*C] */
    float *h_mlp_hidden = RT_AT(arena, at->h_mlp_hidden);             /* [B,T,4*C] */
    float *h_mlp_c_proj = RT_AT(arena, at->h_mlp_c_proj);             /* [B,T,C] */

    /* 2    gpt.model:17  x = x + attn(ln_1(x)) */
    k35_h_ln_1(h_ln_1, x, p_h + P_h_ln_1_weight, p_h + P_h_ln_1_bias, n.B, n.T);
    /* 3    gpt.model:8  q, k, v = split(c_attn(x), 3) */
    k3_h_attn_c_attn(h_attn_c_attn, h_ln_1, p_h + P_h_attn_c_attn_weight,
                     p_h + P_h_attn_c_attn_bias, n.B, n.T);
    /* 4    gpt.model:9  y = attention(heads(q, H), heads(k, H), heads(v, H), causal: true) */
    k4_h_attn_y(h_attn_y, h_attn_y_logsumexp, h_attn_c_attn, h_attn_c_attn + C, h_attn_c_attn + 2*C,
                n.B, n.T);
    /* 5    gpt.model:10  return dropout(c_proj(merge_heads(y)), 0.2) */
    k5_h_attn_c_proj(h_attn_c_proj, h_attn_y, p_h + P_h_attn_c_proj_weight,
                     p_h + P_h_attn_c_proj_bias, n.B, n.T);
    /* 6    gpt.model:18  return x + mlp(ln_2(x)) */
    k36_h_ln_2_y(h_x, h_ln_2_y, x, h_attn_c_proj, p_h + P_h_ln_2_weight, n.B, n.T);
    /* 7    gpt.model:18  return x + mlp(ln_2(x)) */
    k7_h_mlp_c_fc(h_mlp_c_fc, h_ln_2_y, p_h + P_h_mlp_c_fc_weight, p_h + P_h_mlp_c_fc_bias, n.B,
                  n.T);
    /* 8    gpt.model:18  return x + mlp(ln_2(x)) */
    k8_h_mlp_hidden(h_mlp_hidden, h_mlp_c_fc, n.B, n.T);
    /* 9    gpt.model:18  return x + mlp(ln_2(x)) */
    k9_h_mlp_c_proj(h_mlp_c_proj, h_mlp_hidden, p_h + P_h_mlp_c_proj_weight,
                    p_h + P_h_mlp_c_proj_bias, n.B, n.T);
    /* 10   gpt.model:18  return x + mlp(ln_2(x)) */
    k10_x(x, h_x, h_mlp_c_proj, n.B, n.T);
}

/* evaluation: adds to the sums */
static void gpt_evaluate(const float *p, const int32_t *tokens, const int32_t *targets, void *arena,
                         RtStep *s, Dims n)
{
    const EvalPlan at = gpt_eval_plan(n);
    float *x = RT_AT(arena, at.x);              /* [B,T,C] */
    float *ln_f = RT_AT(arena, at.ln_f);        /* [B,T,C] */
    float *logits = RT_AT(arena, at.logits);    /* [B,T,V] */

    /* 1    gpt.model:25  x = dropout(wte(tokens) + wpe(0..T), 0.1) */
    k34_x(x, tokens, p + P_wte_weight, p + P_wpe_weight, n.B, n.T);
    /* 2..10  gpt.model:26  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_evaluate(p, arena, &at, n, il);
    /* 11   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k37_ln_f(ln_f, x, p + P_ln_f_weight, p + P_ln_f_bias, n.B, n.T);
    /* 12   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k12_logits(logits, ln_f, p + P_wte_weight, n.B, n.T);
    /* 13   gpt.model:29  metric accuracy = accuracy(logits, targets) */
    k38_sum_accuracy(&s->sum[S_loss], &s->sum[S_accuracy], logits, targets, n.B, n.T);
}

/* one repetition of h, outputs */
static void block_outputs(const float *p, void *arena, const OutputPlan *at, Dims n, int il)
{
    float *x = RT_AT(arena, at->x);                                   /* [B,T,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                       /* this repetition of h */
    float *h_ln_1 = RT_AT(arena, at->h_ln_1);                         /* [B,T,C] */
    float *h_attn_c_attn = RT_AT(arena, at->h_attn_c_attn);           /* [B,T,3*C] */
    float *h_attn_y = RT_AT(arena, at->h_attn_y);                     /* [B*T,C] */
    float *h_attn_y_logsumexp = RT_AT(arena, at->h_attn_y_logsumexp); /* [B,H,T] */
    float *h_attn_c_proj = RT_AT(arena, at->h_attn_c_proj);           /* [B,T,C] */
    float *h_x = RT_AT(arena, at->h_x);                               /* [B,T,C] */
    float *h_ln_2_y = RT_AT(arena, at->h_ln_2_y);                     /* [B,T,C] */
    float *h_mlp_c_fc = RT_AT(arena, at->h_mlp_c_fc);                 /* [B,T,4*C] */
    float *h_mlp_hidden = RT_AT(arena, at->h_mlp_hidden);             /* [B,T,4*C] */
    float *h_mlp_c_proj = RT_AT(arena, at->h_mlp_c_proj);             /* [B,T,C] */

    /* 2    gpt.model:17  x = x + attn(ln_1(x)) */
    k35_h_ln_1(h_ln_1, x, p_h + P_h_ln_1_weight, p_h + P_h_ln_1_bias, n.B, n.T);
    /* 3    gpt.model:8  q, k, v = split(c_attn(x), 3) */
    k3_h_attn_c_attn(h_attn_c_attn, h_ln_1, p_h + P_h_attn_c_attn_weight,
                     p_h + P_h_attn_c_attn_bias, n.B, n.T);
    /* 4    gpt.model:9  y = attention(heads(q, H), heads(k, H), heads(v, H), causal: true) */
    k4_h_attn_y(h_attn_y, h_attn_y_logsumexp, h_attn_c_attn, h_attn_c_attn + C, h_attn_c_attn + 2*C,
                n.B, n.T);
    /* 5    gpt.model:10  return dropout(c_proj(merge_heads(y)), 0.2) */
    k5_h_attn_c_proj(h_attn_c_proj, h_attn_y, p_h + P_h_attn_c_proj_weight,
                     p_h + P_h_attn_c_proj_bias, n.B, n.T);
    /* 6    gpt.model:18  return x + mlp(ln_2(x)) */
    k36_h_ln_2_y(h_x, h_ln_2_y, x, h_attn_c_proj, p_h + P_h_ln_2_weight, n.B, n.T);
    /* 7    gpt.model:18  return x + mlp(ln_2(x)) */
    k7_h_mlp_c_fc(h_mlp_c_fc, h_ln_2_y, p_h + P_h_mlp_c_fc_weight, p_h + P_h_mlp_c_fc_bias, n.B,
                  n.T);
    /* 8    gpt.model:18  return x + mlp(ln_2(x)) */
    k8_h_mlp_hidden(h_mlp_hidden, h_mlp_c_fc, n.B, n.T);
    /* 9    gpt.model:18  return x + mlp(ln_2(x)) */
    k9_h_mlp_c_proj(h_mlp_c_proj, h_mlp_hidden, p_h + P_h_mlp_c_proj_weight,
                    p_h + P_h_mlp_c_proj_bias, n.B, n.T);
    /* 10   gpt.model:18  return x + mlp(ln_2(x)) */
    k10_x(x, h_x, h_mlp_c_proj, n.B, n.T);
}

/* the outputs, for given inputs */
static void gpt_outputs(const float *p, const int32_t *tokens, float *logits, void *arena,
                        Dims n)
{
    const OutputPlan at = gpt_output_plan(n);
    float *x = RT_AT(arena, at.x);              /* [B,T,C] */
    float *ln_f = RT_AT(arena, at.ln_f);        /* [B,T,C] */

    /* 1    gpt.model:25  x = dropout(wte(tokens) + wpe(0..T), 0.1) */
    k34_x(x, tokens, p + P_wte_weight, p + P_wpe_weight, n.B, n.T);
    /* 2..10  gpt.model:26  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_outputs(p, arena, &at, n, il);
    /* 11   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k37_ln_f(ln_f, x, p + P_ln_f_weight, p + P_ln_f_bias, n.B, n.T);
    /* 12   gpt.model:27  output logits = ln_f(x) @ wte.weight' */
    k12_logits(logits, ln_f, p + P_wte_weight, n.B, n.T);
}

/* ---- 6 backward: each step undoes a step of section 5 ------------------- */

/* one repetition of h, backward */
static void block_backward(const float *p, float *d_p, void *arena, const Plan *at, const RtStep *s,
                           Dims n, int il)
{
    float *d_h_mlp_hidden = RT_AT(arena, at->d_h_mlp_hidden);             /* [B,T,4*C] */
    float *d_x = RT_AT(arena, at->d_x);                                   /* [B,T,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                           /* this repetition of h */
    float *d_p_h = d_p + P_h + il*P_h_STRIDE;                             /* this repetition of h */
    float *h_mlp_hidden = (float *)RT_AT(arena, at->h_mlp_hidden) + il*4*n.B*n.T*C; /* [B,T,4*C] */
    float *h_mlp_c_fc = (float *)RT_AT(arena, at->h_mlp_c_fc) + il*4*n.B*n.T*C; /* [B,T,4*C] */
    float *d_h_mlp_c_fc = RT_AT(arena, at->d_h_mlp_c_fc);                 /* [B,T,4*C] */
    float *work_d_h_mlp_c_fc = RT_AT(arena, at->work_d_h_mlp_c_fc);       /* [64,4*C] */
    float *d_h_ln_2_y = RT_AT(arena, at->d_h_ln_2_y);                     /* [B,T,C] */
    float *h_ln_2_y = (float *)RT_AT(arena, at->h_ln_2_y) + il*n.B*n.T*C; /* [B,T,C] */
    float *h_x = (float *)RT_AT(arena, at->h_x) + il*n.B*n.T*C;           /* [B,T,C] */
    float *h_ln_2_mu = (float *)RT_AT(arena, at->h_ln_2_mu) + il*n.B*n.T; /* [B,T] */
    float *h_ln_2_rstd = (float *)RT_AT(arena, at->h_ln_2_rstd) + il*n.B*n.T; /* [B,T] */
    float *d_h_x = RT_AT(arena, at->d_h_x);                               /* [B,T,C] */
    float *d_h_attn_c_proj = RT_AT(arena, at->d_h_attn_c_proj);           /* [B,T,C] */
    float *work_d_h_attn_c_proj = RT_AT(arena, at->work_d_h_attn_c_proj); /* [192,C] */
    float *d_h_attn_y = RT_AT(arena, at->d_h_attn_y);                     /* [B,T,H,C/H] */
    float *h_attn_y = (float *)RT_AT(arena, at->h_attn_y) + il*n.B*n.T*C; /* [B,T,H,C/H] */
    float *d_h_attn_c_attn = RT_AT(arena, at->d_h_attn_c_attn);           /* [B,T,3*C] */
    /* [B,T,3*C] */
    float *h_attn_c_attn = (float *)RT_AT(arena, at->h_attn_c_attn) + il*3*n.B*n.T*C;
    /* [B,H,T] */
    float *h_attn_y_logsumexp = (float *)RT_AT(arena, at->h_attn_y_logsumexp) + il*n.B*n.T*H;
    float *d_h_ln_1 = RT_AT(arena, at->d_h_ln_1);                         /* [B,T,C] */
    float *h_ln_1 = (float *)RT_AT(arena, at->h_ln_1) + il*n.B*n.T*C;     /* [B,T,C] */
    float *x = (float *)RT_AT(arena, at->x) + il*n.B*n.T*C;               /* [B,T,C] */
    float *h_ln_1_mu = (float *)RT_AT(arena, at->h_ln_1_mu) + il*n.B*n.T; /* [B,T] */
    float *h_ln_1_rstd = (float *)RT_AT(arena, at->h_ln_1_rstd) + il*n.B*n.T; /* [B,T] */
    float *work_d_x = RT_AT(arena, at->work_d_x);                         /* [128,C] */

    /* 18   undoes 9    gpt.model:18  d_h_mlp_hidden[B,T,4*C] = d_x @ h_mlp_c_proj_weight */
    k18_d_h_mlp_hidden(d_h_mlp_hidden, d_x, p_h + P_h_mlp_c_proj_weight, n.B, n.T);
    /* 19   undoes 9    gpt.model:18  d_h_mlp_c_proj_weight[C,4*C] (+)= d_x' @ h_mlp_hidden */
    k19_d_h_mlp_c_proj_weight(d_p_h + P_h_mlp_c_proj_weight, d_x, h_mlp_hidden, s->add, n.B, n.T);
    /* 20   undoes 8    gpt.model:18  d_h_mlp_c_fc, d_h_mlp_c_fc_bias */
    k20_d_h_mlp_c_fc(d_h_mlp_c_fc, d_p_h + P_h_mlp_c_fc_bias, work_d_h_mlp_c_fc, h_mlp_c_fc,
                     d_h_mlp_hidden, s->add, n.B, n.T);
    /* 21   undoes 7    gpt.model:18  d_h_ln_2_y[B,T,C] = d_h_mlp_c_fc @ h_mlp_c_fc_weight */
    k21_d_h_ln_2_y(d_h_ln_2_y, d_h_mlp_c_fc, p_h + P_h_mlp_c_fc_weight, n.B, n.T);
    /* 22   undoes 7    gpt.model:18  d_h_mlp_c_fc_weight[4*C,C] (+)= d_h_mlp_c_fc' @ h_ln_2_y */
    k22_d_h_mlp_c_fc_weight(d_p_h + P_h_mlp_c_fc_weight, d_h_mlp_c_fc, h_ln_2_y, s->add, n.B, n.T);
    /* 23   undoes 6    gpt.model:18  d_h_mlp_c_proj_bias, d_h_ln_2_weight, d_h_x, d_h_attn_c_... */
    k23_d_h_attn_c_proj(d_p_h + P_h_mlp_c_proj_bias, d_p_h + P_h_ln_2_weight, d_h_x,
                        d_h_attn_c_proj, d_p_h + P_h_attn_c_proj_bias, work_d_h_attn_c_proj, d_x,
                        d_h_ln_2_y, h_x, h_ln_2_mu, h_ln_2_rstd, p_h + P_h_ln_2_weight, il, s->key,
                        s->sample, s->add, n.B, n.T);
    /* 24   undoes 5    gpt.model:10  d_h_attn_y */
    k24_d_h_attn_y(d_h_attn_y, d_h_attn_c_proj, p_h + P_h_attn_c_proj_weight, n.B, n.T);
    /* 25   undoes 5    gpt.model:10  d_h_attn_c_proj_weight */
    k25_d_h_attn_c_proj_weight(d_p_h + P_h_attn_c_proj_weight, h_attn_y, d_h_attn_c_proj, s->add,
                               n.B, n.T);
    /* 26   undoes 4    gpt.model:9  d_h_attn_c_attn, d_h_attn_c_attn, d_h_attn_c_attn */
    k26_d_h_attn_c_attn(d_h_attn_c_attn, d_h_attn_c_attn + C, d_h_attn_c_attn + 2*C, h_attn_c_attn,
                        h_attn_c_attn + C, h_attn_c_attn + 2*C, h_attn_y, h_attn_y_logsumexp,
                        d_h_attn_y, n.B, n.T);
    /* 27   undoes 3    gpt.model:8  d_h_attn_c_attn_bias */
    k27_d_h_attn_c_attn_bias(d_p_h + P_h_attn_c_attn_bias, d_h_attn_c_attn, s->add, n.B, n.T);
    /* 28   undoes 3    gpt.model:8  d_h_ln_1[B,T,C] = d_h_attn_c_attn @ h_attn_c_attn_weight */
    k28_d_h_ln_1(d_h_ln_1, d_h_attn_c_attn, p_h + P_h_attn_c_attn_weight, n.B, n.T);
    /* 29   undoes 3    gpt.model:8  d_h_attn_c_attn_weight */
    k29_d_h_attn_c_attn_weight(d_p_h + P_h_attn_c_attn_weight, d_h_attn_c_attn, h_ln_1, s->add, n.B,
                               n.T);
    /* 30   undoes 2    gpt.model:17  d_h_ln_1_bias, d_h_ln_1_weight, d_x */
    k30_d_x(d_p_h + P_h_ln_1_bias, d_p_h + P_h_ln_1_weight, d_x, work_d_x, d_h_ln_1, x, h_ln_1_mu,
            h_ln_1_rstd, p_h + P_h_ln_1_weight, d_h_x, s->add, n.B, n.T);
}

/* gradients: the first write of an update replaces, later ones add */
static void gpt_backward(const float *p, float *d_p, const int32_t *tokens, const int32_t *targets,
                         void *arena, const RtStep *s, Dims n)
{
    const Plan at = gpt_plan(n);
    float *logits = RT_AT(arena, at.logits);         /* [B,T,V] */
    float *logsumexp = RT_AT(arena, at.logsumexp);   /* [B,T] */
    float *d_logits = RT_AT(arena, at.d_logits);     /* [B*T,V] */
    float *d_ln_f = RT_AT(arena, at.d_ln_f);         /* [B,T,C] */
    float *ln_f = RT_AT(arena, at.ln_f);             /* [B,T,C] */
    float *x = RT_AT(arena, at.x);                   /* [L + 1,B,T,C] */
    float *ln_f_mu = RT_AT(arena, at.ln_f_mu);       /* [B,T] */
    float *ln_f_rstd = RT_AT(arena, at.ln_f_rstd);   /* [B,T] */
    float *d_x = RT_AT(arena, at.d_x);               /* [B,T,C] */
    float *work_d_x = RT_AT(arena, at.work_d_x);     /* [128,C] */
    bool *x_a = RT_AT(arena, at.x_a);                /* [B,T,C] */
    float *d_wte = RT_AT(arena, at.d_wte);           /* [B,T,C] */
    float *d_wpe = RT_AT(arena, at.d_wpe);           /* [T,C] */
    float *work_d_wte = RT_AT(arena, at.work_d_wte); /* [64,T*C] */

    /* 14   undoes 13   gpt.model:28  d_logits */
    k14_d_logits(d_logits, targets, logits, logsumexp, (float)s->seed[S_loss], n.B, n.T);
    /* 15   undoes 12   gpt.model:27  d_ln_f[B,T,C] = d_logits @ wte_weight */
    k15_d_ln_f(d_ln_f, d_logits, p + P_wte_weight, n.B, n.T);
    /* 16   undoes 12   gpt.model:27  d_wte_weight[V,C] (+)= d_logits' @ ln_f */
    k16_d_wte_weight(d_p + P_wte_weight, d_logits, ln_f, s->add, n.B, n.T);
    /* 17   undoes 11   gpt.model:27  d_ln_f_bias, d_ln_f_weight, d_x */
    k17_d_x(d_p + P_ln_f_bias, d_p + P_ln_f_weight, d_x, work_d_x, d_ln_f, x + n.B*n.T*C*L, ln_f_mu,
            ln_f_rstd, p + P_ln_f_weight, s->add, n.B, n.T);
    /* 18..30  gpt.model:26  for i in 0..L { x = h[i](x) } */
    for (int il = L - 1; il >= 0; il--)
        block_backward(p, d_p, arena, &at, s, n, il);
    /* 31   undoes 1    gpt.model:25  d_wte[B,T,C] = where(x_a, d_x * 1.11111, 0) */
    k31_d_wte(d_wte, d_wpe, work_d_wte, x_a, d_x, n.B, n.T);
    /* 32   undoes 1    gpt.model:25  d_wpe_weight[Tmax,C] (+)= pad(d_wpe) */
    k32_d_wpe_weight(d_p + P_wpe_weight, d_wpe, s->add, n.T);
    /* 33   undoes 1    gpt.model:25  d_wte_weight[V,C] += rows d_wte added at tokens */
    k33_d_wte_weight(d_p + P_wte_weight, tokens, d_wte, n.B, n.T);
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims gpt_dims(const ptrdiff_t *dims)
{
    return (Dims){ .B = dims[0], .T = dims[1] };
}

static void gpt_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                    /* sums and counts are 0; generator key, rate */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);        /* sizes, inputs, first sample */
        const Dims n = gpt_dims(run->dims);
        const int32_t *targets = run->inputs[1];
        gpt_count(targets, s, n);
    }
    rt_seed_losses(run, s);                   /* weight / count of all ranks; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = gpt_dims(run->dims);
        const int32_t *tokens = run->inputs[0];
        const int32_t *targets = run->inputs[1];
        gpt_forward(run->p, tokens, targets, run->arena, s, n);
        gpt_backward(run->p, run->d_p, tokens, targets, run->arena, s, n);
        s->add = true;                        /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);              /* sum over ranks */
    rt_finite_and_norm(run, s);               /* are all finite? global norm */
    rt_update_adamw(run, s);                  /* Adam with decoupled decay, if finite */
    rt_end_step(run, s);                      /* counters and schedule, if applied */
}

static void gpt_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = gpt_dims(run->dims);
    const int32_t *tokens = run->inputs[0];
    const int32_t *targets = run->inputs[1];
    gpt_count(targets, s, n);
    gpt_evaluate(run->p, tokens, targets, run->arena, s, n);
}

static void gpt_run_outputs(RtRun *run, RtStep *s)
{
    RT_UNUSED(s);
    const Dims n = gpt_dims(run->dims);
    const int32_t *tokens = run->inputs[0];
    gpt_outputs(run->p, tokens, run->outputs[0], run->arena, n);
}

/* ---- 8 model table ------------------------------------------------------ */

static const RtDim gpt_sizes[] = {
    { .name = "B", .batch = true, .value = 0, .where = "gpt.model:3" },
    { .name = "T", .batch = false, .value = 0, .where = "gpt.model:4" },
};

static const RtInput gpt_inputs[] = {
    { .name = "tokens", .type = RT_I32, .rank = 2, .ranged = true, .lo = 0, .hi = V, .hi_name = "V",
            .where = "gpt.model:20" },
    { .name = "targets", .type = RT_I32, .rank = 2, .ranged = true, .lo = 0, .hi = V, .hi_name =
            "V", .has_ignore = true, .ignore = -100, .where = "gpt.model:20" },
};

static const RtOutput gpt_output_table[] = {
    { .name = "logits", .rank = 3, .needs = 0x1, .where = "gpt.model:27" },
};

static const RtSlot gpt_means[] = {
    { .name = "loss", .text = "mean(cross_entropy(logits, targets), where: targets >= 0)",
      .weight = 1.0, .where = "gpt.model:28" },
    { .name = "accuracy", .text = "accuracy(logits, targets)",
      .weight = 0.0, .where = "gpt.model:29" },
};

static const RtMetric gpt_metrics[] = {
    { .name = "accuracy", .where = "gpt.model:29" },
};

static const RtObjective gpt_objectives[] = {
    { .loss = "loss", .from = 0, .to = P_COUNT, .optimizer = RT_ADAMW, .where = "gpt.model:28" },
};

static const char *gpt_check_dims(const ptrdiff_t *dims)
{
    const Dims n = gpt_dims(dims);
    if (!(n.T <= Tmax))
        return "T <= Tmax (gpt.model:4)";
    return NULL;
}

static void gpt_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    const Dims n = gpt_dims(dims);
    switch (input) {
    case 0:
        shape[0] = n.B;
        shape[1] = n.T;
        break;
    case 1:
        shape[0] = n.B;
        shape[1] = n.T;
        break;
    default:
        break;
    }
}

static void gpt_output_shape(const ptrdiff_t *dims, int output, ptrdiff_t *shape)
{
    const Dims n = gpt_dims(dims);
    switch (output) {
    case 0:
        shape[0] = n.B;
        shape[1] = n.T;
        shape[2] = V;
        break;
    default:
        break;
    }
}

static size_t gpt_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    const Dims n = gpt_dims(dims);
    if (entry == RT_ENTRY_TRAIN)
        return gpt_plan(n).bytes;
    if (entry == RT_ENTRY_EVAL)
        return gpt_eval_plan(n).bytes;
    if (entry == RT_ENTRY_OUTPUT)
        return gpt_output_plan(n).bytes;
    return 0;
}

static void gpt_metric_values(const double *mean, double *value)
{
    value[0] = mean[S_accuracy];        /* accuracy */
}

const RtModel gpt = {
    .name = "gpt",
    .source = "gpt.model", .source_crc = 0x3de6c071u,
    .real = RT_F32,
    .dims = gpt_sizes, .n_dims = 2,
    .params = gpt_params, .n_params = 15, .n_elems = P_COUNT,
    .inputs = gpt_inputs, .n_inputs = 2,
    .outputs = gpt_output_table, .n_outputs = 1,
    .slots = gpt_means, .n_slots = 2,
    .metrics = gpt_metrics, .n_metrics = 1,
    .objectives = gpt_objectives, .n_objectives = 1,
    .train = {
        .reader = NULL, .path = NULL, .val_path = NULL,
        .split = 1.0, .header = false, .vocab = NULL,
        .batch = 32, .accumulate = 1,
        .optimizer = RT_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08,
        .momentum = 0.0, .nesterov = false, .weight_decay = 0.01,
        .schedule = RT_CONSTANT, .lr = 0.001, .lr_end = 0.001,
        .warmup = 0, .decay_steps = 0,
        .clip = 0.0, .steps = 1000, .eval_every = 0, .save_every = 0,
        .log_every = 10, .keep = 3, .seed = 1u, .out = NULL,
        .where = "",
    },
    .check_dims = gpt_check_dims,
    .input_shape = gpt_input_shape,
    .output_shape = gpt_output_shape,
    .arena_bytes = gpt_arena_bytes,
    .step = gpt_step,
    .evaluate = gpt_run_evaluate,
    .forward = gpt_run_outputs,
    .metric_values = gpt_metric_values,
};

#ifndef RT_LIBRARY
int main(int argc, char **argv)
{
    return rt_main(&gpt, argc, argv);
}
#endif
