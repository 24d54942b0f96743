/* cu.c -- the CUDA target: what is its own beside the sections that it shares with C.
 *
 * In: kernels, routines with plans, the program's tables. Out: one file in CUDA C++, with the
 * sections, names and step numbers of the C target. The one idea: a step calls a host function with
 * the C target's name and arguments, which queues work on a stream.
 */
#include "emit/cu.h"

static const char how_to_read[] =
    " * A variable of a kernel has the end of a name above, mu for h_ln_mu; a, b, ... have none.\n"
    " * k6_x is called by a step, on the host; it launches g6_x, which runs on the device, or\n"
    " * calls a library. RT_LAUNCH(stream, line, kernel, grid, block, shared bytes, ...): grid is\n"
    " * a count of blocks, block of threads in each. s is the step in device memory.\n";

static void emit_cuda(Text *out, KernelProgram *kp, const EmitOptions *opt)
{
    Text how = text_new(kp->program->cx->scratch);
    text_add(&how, "%s%s", how_to_read, cu_map_how_to_read);
    const Language language = { .cuda = true,
                                .ending = ".cu",
                                .header = "rt_cuda.h",
                                .how_to_read = how.at,
                                .kernel = cu_kernel,
                                .rule = cu_rule };
    emit_file(out, kp, opt, &language);
}

enum { ALIGN = 256 }; /* RT_ALIGN of rt.h on a device */

const Target target_cuda = { .name = "cuda",
                             .align = ALIGN,
                             .workspace = cu_workspace,
                             .emit = emit_cuda };
