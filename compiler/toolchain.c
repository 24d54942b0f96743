/* toolchain.c -- how the compiler of emitted text is called: cc for C, nvcc for CUDA.
 *
 * In: options and places. Out: the words of a call, or a message that says what is not here. nvcc
 * is looked for in PATH, then where the toolkit installs itself. It is told which GPUs to make code
 * for: those that the driver here names, else a list. Contraction is off in both languages: the
 * text says fma where one is wanted.
 */
#include "toolchain.h"

#include "gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_cuda(const Options *opt) { return opt->target == TARGET_CUDA; }

const char *toolchain_ending(const Options *opt) { return is_cuda(opt) ? ".cu" : ".c"; }

bool toolchain_is_own(const Options *opt)
{
    if (is_cuda(opt))
        return opt->nvcc || opt->cuda_arch || opt->cflags[0];
    return opt->cflags[0] || strcmp(opt->cc, "cc") != 0 || strcmp(opt->march, "native") != 0;
}

/* ---- what is here ---------------------------------------------------------------------------- */

static bool is_in_path(Context *cx, const char *program)
{
    const char *dir = getenv("PATH");
    while (dir && *dir) {
        const size_t len = strcspn(dir, ":");
        if (access(arena_printf(cx->arena, "%.*s/%s", (int)len, dir, program), X_OK) == 0)
            return true;
        dir += len + (dir[len] == ':');
    }
    return false;
}

/* Where the toolkit installs itself. */
static const char *toolkit_bin(Context *cx)
{
    const char *home = getenv("CUDA_HOME");
    return arena_printf(cx->arena, "%s/bin", home && *home ? home : "/usr/local/cuda");
}

/* NULL: there is none. */
static const char *find_nvcc(Context *cx, const Options *opt)
{
    const char *path = arena_printf(cx->arena, "%s/nvcc", toolkit_bin(cx));
    if (opt && opt->nvcc)
        return opt->nvcc;
    if (is_in_path(cx, "nvcc"))
        return "nvcc";
    return access(path, X_OK) == 0 ? path : NULL;
}

bool toolchain_is_here(Context *cx, const Options *opt, const Places *at)
{
    const Span nowhere = { 0 };
    if (at->include == NULL || at->library == NULL) {
        Diag *d = diag_error(cx, nowhere,
                             "the runtime (rt.h, libgradcc_rt.a) is not beside this gradcc");
        diag_hint(d, "build it with make, install it with make install; --emit=%s works without",
                  is_cuda(opt) ? "cuda" : "c");
        return false;
    }
    if (!is_cuda(opt))
        return true;
    if (find_nvcc(cx, opt) == NULL) {
        Diag *d = diag_error(cx, nowhere, "the CUDA toolkit is not here: no nvcc in PATH or %s",
                             toolkit_bin(cx));
        diag_hint(d, "--nvcc=PATH names it, or CUDA_HOME the folder that has bin/nvcc; --emit=cuda "
                     "works without");
        return false;
    }
    if (at->cuda_library == NULL) {
        Diag *d = diag_error(cx, nowhere,
                             "this gradcc was built without CUDA: there is no libgradcc_rt_cuda.a");
        diag_hint(d, "run make again where nvcc is; --emit=cuda works without");
        return false;
    }
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void add_words(Context *cx, TextList *args, const char *words)
{
    while (*words) {
        words += strspn(words, " \t\n");
        const size_t len = strcspn(words, " \t\n");
        if (len > 0)
            vec_push(cx->arena, args, arena_strndup(cx->arena, words, len));
        words += len;
    }
}

static const char *read_small(Context *cx, const char *path)
{
    Text t = text_new(cx->arena);
    char part[1024];
    FILE *f = path ? fopen(path, "r") : NULL;
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;)
        text_putn(&t, part, n);
    if (f)
        fclose(f);
    return t.at;
}

enum { GPUS_MOST = 16 };

/* Of the GPUs here: "sm_80,sm_90"; NULL: none that a program runs on, *newest is then 0 or the
   newest of them. */
static const char *own_architectures(Context *cx, int *newest)
{
    int capability[GPUS_MOST];
    const int n = gpu_capabilities(capability, GPUS_MOST);
    Text t = text_new(cx->arena);
    *newest = n > 0 ? capability[n - 1] : 0;
    for (int i = 0; i < n; i++)
        if (capability[i] >= GPU_OLDEST)
            text_add(&t, "%ssm_%d", t.len ? "," : "", capability[i]);
    return t.len ? t.at : NULL;
}

/* What --cuda-arch says, or the default; NULL after a message. */
static const char *architectures(Context *cx, const Options *opt)
{
    const Span nowhere = { 0 };
    const bool asked = opt->cuda_arch && strcmp(opt->cuda_arch, "native") == 0;
    int newest;
    if (opt->cuda_arch && !asked)
        return opt->cuda_arch;
    const char *own = own_architectures(cx, &newest);
    if (own || !asked)
        return own ? own : "sm_80,sm_90";
    Diag *d = newest ? diag_error(cx, nowhere,
                                  "--cuda-arch=native: the GPU here has compute capability %d.%d, "
                                  "programs need %d.%d or later",
                                  newest / 10, newest % 10, GPU_OLDEST / 10, GPU_OLDEST % 10)
                     : diag_error(cx, nowhere,
                                  "--cuda-arch=native: no GPU answers here (the NVIDIA driver's "
                                  "libcuda.so.1 was asked)");
    diag_hint(d, "--cuda-arch=sm_90 names the GPUs that the program is for; without --cuda-arch it "
                 "is for sm_80, sm_90 and later ones");
    return NULL;
}

/* "sm_80,sm_90": code for these, and of the last one as PTX too, for GPUs to come. */
static void add_architectures(Context *cx, TextList *args, const char *list)
{
    while (*list) {
        const size_t len = strcspn(list, ",");
        const char *number = strchr(list, '_');
        const int digits = number ? (int)(list + len - (number + 1)) : 0;
        const bool last = list[len] == '\0';
        vec_push(cx->arena, args,
                 arena_printf(cx->arena, "-gencode=arch=compute_%.*s,code=%s%.*s%s%.*s%s", digits,
                              number + 1, last ? "[" : "", (int)len, list, last ? ",compute_" : "",
                              last ? digits : 0, number + 1, last ? "]" : ""));
        list += len + !last;
    }
}

static void add_cuda(Context *cx, TextList *args, const char *nvcc)
{
    static const char *const fixed[] = { "-std=c++20", "-O3", "--fmad=false" };
    add_words(cx, args, nvcc);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        vec_push(cx->arena, args, fixed[i]);
}

static void add_c(Context *cx, const Options *opt, TextList *args)
{
    static const char *const fixed[] = {
        "-std=c11",
        "-O3",
        "-fopenmp",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-Werror=incompatible-pointer-types",
        "-Werror=int-conversion",
    };
    add_words(cx, args, opt->cc);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        vec_push(cx->arena, args, fixed[i]);
    vec_push(cx->arena, args, arena_printf(cx->arena, "-march=%s", opt->march));
}

/* Where a program finds what its ranks talk through, libgradcc_NAME.so: beside the runtime. */
static void add_back_ends(Context *cx, const Options *opt, TextList *args, const char *library)
{
    const char *slash = strrchr(library, '/');
    const int len = slash ? (int)(slash - library) : 0;
    vec_push(cx->arena, args,
             arena_printf(cx->arena, "%s-rpath%s%.*s", is_cuda(opt) ? "-Xlinker=" : "-Wl,",
                          is_cuda(opt) ? "=" : ",", len, library));
}

TextList toolchain_call(Context *cx, const Options *opt, const Places *at, const char *source,
                        const char *output)
{
    TextList args = { 0 };
    const char *libs = is_cuda(opt) ? at->cuda_libs : at->libs;
    if (is_cuda(opt)) {
        const char *list = architectures(cx, opt);
        if (list == NULL)
            return args;
        add_cuda(cx, &args, find_nvcc(cx, opt));
        add_architectures(cx, &args, list);
    } else {
        add_c(cx, opt, &args);
    }
    add_words(cx, &args, opt->cflags);
    vec_push(cx->arena, &args, arena_printf(cx->arena, "-I%s", at->include));
    vec_push(cx->arena, &args, "-o");
    vec_push(cx->arena, &args, output);
    vec_push(cx->arena, &args, source);
    add_back_ends(cx, opt, &args, is_cuda(opt) ? at->cuda_library : at->library);
    vec_push(cx->arena, &args, is_cuda(opt) ? at->cuda_library : at->library);
    add_words(cx, &args, libs ? read_small(cx, libs) : "-lm");
    vec_push(cx->arena, &args, (const char *)NULL);
    return args;
}

const char *toolchain_simplest(const Options *opt)
{
    return is_cuda(opt) ? "__global__ void g(int *x) { *x = 1; }\nint main() { return 0; }\n"
                        : "int main(void) { return 0; }\n";
}

const char *toolchain_usual(Context *cx, const Options *opt)
{
    const char *nvcc = is_cuda(opt) ? find_nvcc(cx, NULL) : NULL;
    return nvcc ? nvcc : is_cuda(opt) ? "nvcc" : "cc";
}

TextList toolchain_trial(Context *cx, const Options *opt, const Places *at, const char *source)
{
    TextList args = { 0 };
    if (is_cuda(opt)) {
        add_cuda(cx, &args, toolchain_usual(cx, opt));
        add_words(cx, &args, "-arch=sm_80 -w -c -o /dev/null");
    } else {
        vec_push(cx->arena, &args, toolchain_usual(cx, opt));
        add_words(cx, &args, "-std=c11 -fopenmp -w -fsyntax-only");
    }
    vec_push(cx->arena, &args, arena_printf(cx->arena, "-I%s", at->include));
    vec_push(cx->arena, &args, source);
    vec_push(cx->arena, &args, (const char *)NULL);
    return args;
}
