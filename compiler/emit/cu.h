/* cu.h -- what the files of the CUDA target share; the rest of the writing is that of the C target.
 *
 * A kernel is a __global__ function g6_h_ln_2 and a host function k6_h_ln_2, which launches it. The
 * host function has the C target's arguments, but for the values of the step that only the device
 * knows (seed, key, sample): for these there is one `const RtStep *s`, the step's twin in device
 * memory; and `RtStream *stream` last.
 */
#ifndef GRADCC_EMIT_CU_H
#define GRADCC_EMIT_CU_H

#include "emit/parts.h"

/* A MAP kernel under construction. What body, launch and comment use is noted as in the C target
   (c_flag, w.head, the two scopes of sizes); the heads of both functions follow from that.
   w.names holds s, stream and the arguments' names. seed_*, key and sample are declared at the
   start of the __global__ function where the body uses them. */
typedef struct {
    KernelWriter w;      /* w.body: of the __global__ function; w.dims: sizes that it uses */
    DimScope host;       /* sizes that the host function uses */
    bool *apart;         /* by argument: a later stage takes it, the __global__ function does not */
    bool flag[N_FLAGS];  /* the host function uses it, for a later stage: cu_flag */
    const char *device;  /* name of the __global__ function */
    const char *grid;    /* of the launch, host expressions: "rt_blocks(B*T, 8)", "256" */
    const char *block;   /* ... threads; a number is its __launch_bounds__, too */
    const char *bounds;  /* of __launch_bounds__, "256, 2"; NULL: the block */
    const char *shared;  /* ... bytes of RT_SHARED_ARENA; NULL: 0 */
    int row_bytes;       /* what that is */
    const char *comment; /* the launch in words: grid, block, who owns what */
    Text before, later;  /* __global__ functions in front of it, behind it; "" */
    Text locals, launch; /* statements of the host function before and behind the launch; "" */
} CudaWriter;

void cu_kernel(Emitter *e, Kernel *k); /* cu_kernel.c: comment and both functions */
/* As c_flag, of the host function alone. */
const char *cu_flag(CudaWriter *c, AddKind add);
/* A statement RT_LAUNCH(stream, "gpt2.model:12", kernel, grid, block, shared, args...);
   shared NULL: 0. */
void cu_launch(CudaWriter *c, Text *t, const char *kernel, const char *grid, const char *block,
               const char *shared, const char *const *arg, int n);

void cu_map(CudaWriter *c);           /* cu_map.c: fills in a MAP kernel */
void cu_workspace(KernelProgram *kp); /* cu_map.c: room for partial sums, as arguments */
void cu_pitch(KernelProgram *kp);     /* cu_pitch.c: long rows on a boundary */
void cu_epilogue(KernelProgram *kp);  /* cu_epilogue.c: what products may do besides */
/* cu_comment.c: at the head of section 4, the words used there; lines of a comment, and its end */
extern const char cu_map_how_to_read[];
void cu_rule(Emitter *e); /* cu_rule.c: the update of elements, in section 7 */

/* explain_update.c: the launches behind the last micro-step, bytes of each; how many. Those of an
   optimizer that works on whole tensors are not among them. */
typedef struct {
    const char *name;
    double read, written;
} UpdateLaunch;
enum { UPDATE_LAUNCHES_MAX = 3 };
int explain_update(Emitter *e, const int64_t *dims, UpdateLaunch to[UPDATE_LAUNCHES_MAX]);
double explain_update_launches(const Program *p, const int64_t *dims); /* of all of them */

#endif
