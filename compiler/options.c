/* options.c -- the command line: one table, from which parser, suggestions and --help are made.
 *
 * In: argv. Out: Options, or a message that names the option and the nearest one there is. Long
 * options take their value as --name=value or --name value, short ones as -ovalue or -o value.
 */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    KIND_FLAG,    /* bool */
    KIND_TEXT,    /* const char * */
    KIND_LIST,    /* TextList; several by commas */
    KIND_EACH,    /* TextList; one per use */
    KIND_DEFINE,  /* name=value */
    KIND_NUMBER,  /* long, from 0 */
    KIND_CHOICE,  /* int: number of the word in `words` plus first */
    KIND_SECTION, /* a heading of --help */
} Kind;

typedef struct {
    const char *name;  /* as typed, with its dashes */
    const char *value; /* name of the value in --help, NULL = none */
    Kind kind;
    size_t at;         /* offset in Options */
    const char *words; /* CHOICE: "a|b|c" */
    int first;         /* CHOICE: value of the first word */
    const char *help;
} Row;

#define AT(field) offsetof(Options, field)

static const Row table[] = {
    { "output", NULL, KIND_SECTION, 0, NULL, 0, NULL },
    { "-o", "FILE", KIND_TEXT, AT(output), NULL, 0,
      "where the result goes; text goes to stdout without it" },
    { "--emit", "KIND", KIND_CHOICE, AT(emit), "exe|ast|ir|grad|plan|c|types|cuda", EMIT_EXE,
      "stop earlier: ast, ir, grad, types, plan, c, cuda; exe is the default" },
    { "--target", "T", KIND_CHOICE, AT(target), "c|cuda", TARGET_C,
      "c: a program for a CPU, the default; cuda: for an NVIDIA GPU" },
    { "--precision", "P", KIND_CHOICE, AT(precision), "fp32|fp64|bf16|fp16", PRECISION_FP32,
      "of the train block, or fp32; 16 bits have fp32 masters" },
    { "--masters", "M", KIND_CHOICE, AT(masters), "fp32|none", MASTERS_FP32,
      "none: weights in bf16 alone, updates rounded at random" },
    { "--head-rows", "N", KIND_NUMBER, AT(head_rows), NULL, 0,
      "compute the logits N rows at a time; 0: all; 512, on a GPU 8192, where they are large" },
    { "--recompute", "WHAT", KIND_TEXT, AT(recompute), NULL, 0,
      "by the backward pass: none, auto, blocks or budget:6GiB" },
    { "--explain", "WHAT", KIND_CHOICE, AT(explain), "memory|recompute|traffic", EXPLAIN_MEMORY,
      "memory, what is computed again to save some, traffic of CUDA kernels" },
    { "--dims", "NAME=SIZE", KIND_LIST, AT(dims), NULL, 0,
      "... at these sizes: of a micro-step (B=8), of a dim (T=128)" },
    { "-M", NULL, KIND_CHOICE, AT(deps), NULL, DEPS_ONLY, "print the files read, as a make rule" },
    { "-MD", NULL, KIND_CHOICE, AT(deps), NULL, DEPS_BESIDE,
      "write that rule beside the output (FILE.d)" },
    { "-MF", "FILE", KIND_TEXT, AT(deps_file), NULL, 0, "... to this file" },
    { "-MT", "NAME", KIND_TEXT, AT(deps_target), NULL, 0, "... with this target" },
    { "-MP", NULL, KIND_FLAG, AT(deps_phony), NULL, 0, "... with a phony target per file" },

    { "the model", NULL, KIND_SECTION, 0, NULL, 0, NULL },
    { "-D", "NAME=VALUE", KIND_DEFINE, AT(defines), NULL, 0,
      "another value for a const, or for a setting of the train block" },
    { "-I", "DIR", KIND_EACH, AT(include_dirs), NULL, 0, "look for included files here too" },
    { "-x", "LANG", KIND_CHOICE, AT(ir), "model|ir", 0, "what the input is: model or ir" },
    { "--ir", NULL, KIND_FLAG, AT(ir), NULL, 0, "the input is IR text, as --dump-after prints it" },

    { "the C or CUDA compiler", NULL, KIND_SECTION, 0, NULL, 0, NULL },
    { "--cc", "PROGRAM", KIND_TEXT, AT(cc), NULL, 0, "instead of cc" },
    { "--cflags", "FLAGS", KIND_TEXT, AT(cflags), NULL, 0, "more flags, separated by spaces" },
    { "--march", "NAME", KIND_TEXT, AT(march), NULL, 0, "instead of native" },
    { "--nvcc", "PROGRAM", KIND_TEXT, AT(nvcc), NULL, 0,
      "with --target=cuda: instead of nvcc, which takes --cflags too" },
    { "--cuda-arch", "NAME", KIND_TEXT, AT(cuda_arch), NULL, 0,
      "native or sm_80,sm_90; else of the GPU here, or sm_80, sm_90 and PTX" },

    { "passes", NULL, KIND_SECTION, 0, NULL, 0, NULL },
    { "-O", "LEVEL", KIND_CHOICE, AT(level), "0|1|2|3", 0,
      "0: no optimising pass; 1, 2, 3: all of them, as without this option" },
    { "--dump-after", "PASS", KIND_LIST, AT(dump_after), NULL, 0, "print what a pass made" },
    { "--stop-after", "PASS", KIND_TEXT, AT(stop_after), NULL, 0, "run no pass after this one" },
    { "--skip", "PASS", KIND_LIST, AT(skip), NULL, 0, "leave an optimising pass out" },
    { "--only", "PASS", KIND_LIST, AT(only), NULL, 0, "with --ir: run these passes alone" },
    { "--time-passes", NULL, KIND_FLAG, AT(time_passes), NULL, 0, "print the time of each pass" },
    { "--list-passes", NULL, KIND_FLAG, AT(list_passes), NULL, 0, "print the passes in order" },
    { "--list-ops", NULL, KIND_FLAG, AT(list_ops), NULL, 0, "print the table of ops" },
    { "--check-rules", NULL, KIND_FLAG, AT(check_rules), NULL, 0,
      "evaluate both sides of every rewrite rule" },

    { "messages", NULL, KIND_SECTION, 0, NULL, 0, NULL },
    { "-w", NULL, KIND_FLAG, AT(no_warnings), NULL, 0, "no warnings" },
    { "-Wno-", "GROUP", KIND_EACH, AT(quiet), NULL, 0,
      "no warnings of a group: numerics, unused, untrained, unreachable" },
    { "-ferror-limit", "N", KIND_NUMBER, AT(error_limit), NULL, 0,
      "stop after N errors (20; 0: never)" },
    { "-fdiagnostics-color", "WHEN", KIND_CHOICE, AT(colour), "auto|never|always", -1,
      "auto (default), never or always" },
    { "--version", NULL, KIND_FLAG, AT(version), NULL, 0, "print the version" },
    { "--help", NULL, KIND_FLAG, AT(help), NULL, 0, "print this" },
};

enum { N_ROWS = sizeof table / sizeof *table };

/* ---- help ---------------------------------------------------------------------------------- */

void options_help(FILE *out)
{
    fputs("usage: gradcc [options] FILE.model\n\n"
          "Compiles a model description into a training program.\n\n"
          "  gradcc chargpt.model -o chargpt       the program\n"
          "  gradcc --emit=c chargpt.model         the C that trains it\n"
          "  gradcc --target=cuda chargpt.model    the program for a GPU; --emit=cuda: its CUDA\n"
          "  gradcc --emit=grad chargpt.model      its backward pass, to read\n",
          out);
    for (int i = 0; i < N_ROWS; i++) {
        const Row *r = &table[i];
        char left[64];
        if (r->kind == KIND_SECTION) {
            fprintf(out, "\n%s:\n", r->name);
            continue;
        }
        const bool joined = r->name[1] == '-' || r->name[1] == 'f';
        const char *between = !r->value || strcmp(r->name, "-Wno-") == 0 ? "" : joined ? "=" : " ";
        snprintf(left, sizeof left, "%s%s%s", r->name, between, r->value ? r->value : "");
        fprintf(out, "  %-28s %s\n", left, r->help);
    }
    fputs("\nExit codes: 0 done, 1 mistakes in the model, 2 usage, 70 a bug of gradcc.\n", out);
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool fail(const char *fmt, ...) PRINTF_LIKE(1, 2);

static bool fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("gradcc: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputs("\n", stderr);
    va_end(ap);
    return false;
}

/* The first name that ends with all of a shorter one: --cuda-arch for --arch. */
static const char *ends_with_word(const char *name, const char *const *names, int n)
{
    const char *word = name + (name[0] == '-'); /* with one dash in front */
    const size_t len = strlen(word);
    for (int i = 0; len > 2 && i < n; i++) {
        const size_t all = strlen(names[i]);
        if (all > len + 1 && strcmp(names[i] + all - len, word) == 0)
            return names[i];
    }
    return NULL;
}

static bool unknown_option(const char *given)
{
    const char *names[N_ROWS];
    char name[64];
    int n = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given);
    for (int i = 0; i < N_ROWS; i++)
        if (table[i].kind != KIND_SECTION)
            names[n++] = table[i].name;
    const char *near = diag_suggest(name, names, n), *longer = ends_with_word(name, names, n);
    fail("unknown option %s", name);
    if (near && longer && near != longer)
        fprintf(stderr, "hint: did you mean %s or %s?\n", near, longer);
    else if (near)
        fprintf(stderr, "hint: did you mean %s?\n", near);
    else
        fputs("hint: gradcc --help lists the options\n", stderr);
    return false;
}

/* The row that `arg` uses, and where its value begins: NULL = in the next argument or none. */
static const Row *find_row(const char *arg, const char **value)
{
    const Row *best = NULL;
    size_t best_len = 0;
    for (int i = 0; i < N_ROWS; i++) {
        const Row *r = &table[i];
        const size_t len = strlen(r->name);
        if (r->kind == KIND_SECTION || strncmp(arg, r->name, len) != 0 || len < best_len)
            continue;
        const bool joined = r->name[1] == '-' || r->name[1] == 'f';
        if (arg[len] == '\0')
            *value = NULL;
        else if (joined && arg[len] == '=')
            *value = arg + len + 1;
        else if (!joined && r->value != NULL)
            *value = arg + len;
        else
            continue;
        best = r;
        best_len = len;
    }
    return best;
}

static bool read_choice(const Row *r, const char *value, void *at)
{
    if (r->words == NULL) { /* -M and -MD: options that stand for a word */
        *(int *)at = r->first;
        return true;
    }
    const char *s = r->words;
    for (int k = 0; *s; k++) {
        const size_t len = strcspn(s, "|");
        if (strlen(value) == len && strncmp(s, value, len) == 0) {
            if (r->at == AT(ir))
                *(bool *)at = k == 1;
            else
                *(int *)at = r->first + k;
            return true;
        }
        s += len + (s[len] == '|');
    }
    return fail("%s: %s is none of %s", r->name, value, r->words);
}

static bool read_define(Context *cx, const char *value, Options *opt)
{
    const char *eq = strchr(value, '=');
    if (eq == NULL || eq == value || eq[1] == '\0')
        return fail("-D %s: write it as -D name=value", value);
    const Define d = { intern_n(cx, value, (size_t)(eq - value)), eq + 1,
                       arena_printf(cx->arena, "-D %s", value) };
    vec_push(cx->arena, &opt->defines, d);
    return true;
}

static bool read_number(const Row *r, const char *value, long *at)
{
    char *end;
    errno = 0;
    const long n = strtol(value, &end, 10);
    if (errno || end == value || *end || n < 0)
        return fail("%s: %s is no number from 0", r->name, value);
    *at = n;
    return true;
}

static void read_list(Context *cx, const char *value, TextList *list)
{
    while (*value) {
        const size_t len = strcspn(value, ",");
        vec_push(cx->arena, list, intern_n(cx, value, len));
        value += len + (value[len] == ',');
    }
}

static bool read_group(const char *value)
{
    static const char *const groups[] = { "numerics", "unused", "untrained", "unreachable" };
    for (int i = 0; i < 4; i++)
        if (strcmp(value, groups[i]) == 0)
            return true;
    return fail("no group of warnings is called %s: numerics, unused, untrained, unreachable",
                value);
}

static bool read_value(Context *cx, const Row *r, const char *value, Options *opt)
{
    void *at = (char *)opt + r->at;
    switch (r->kind) {
    case KIND_FLAG: *(bool *)at = true; return true;
    case KIND_TEXT: *(const char **)at = value; return true;
    case KIND_LIST: read_list(cx, value, at); return true;
    case KIND_EACH:
        vec_push(cx->arena, (TextList *)at, value);
        return r->at != AT(quiet) || read_group(value);
    case KIND_DEFINE: return read_define(cx, value, opt);
    case KIND_NUMBER: return read_number(r, value, at);
    case KIND_CHOICE: return read_choice(r, value, at);
    case KIND_SECTION: break;
    }
    bug("option %s", r->name);
}

/* ---- what matters of it, for the head of the emitted file ---------------------------------- */

static const char *command_of(Context *cx, const Options *opt)
{
    Text t = text_new(cx->arena);
    const char *base = opt->input ? strrchr(opt->input, '/') : NULL;
    text_put(&t, opt->target == TARGET_CUDA ? "gradcc --emit=cuda" : "gradcc --emit=c");
    for (int i = 0; i < opt->defines.len; i++)
        text_add(&t, " -D %s=%s", opt->defines.at[i].name, opt->defines.at[i].value);
    static const char *const precision[] = { "", " --precision=fp64", " --precision=bf16",
                                             " --precision=fp16" };
    text_put(&t, opt->precision > 0 ? precision[opt->precision] : "");
    if (opt->masters != MASTERS_UNSET)
        text_put(&t, opt->masters == MASTERS_NONE ? " --masters=none" : " --masters=fp32");
    if (opt->head_rows >= 0)
        text_add(&t, " --head-rows=%ld", opt->head_rows);
    if (opt->recompute)
        text_add(&t, " --recompute=%s", opt->recompute);
    text_put(&t, opt->unoptimised ? " -O0" : "");
    for (int i = 0; i < opt->skip.len; i++)
        text_add(&t, " --skip=%s", opt->skip.at[i]);
    if (opt->input)
        text_add(&t, " %s", opt->input[0] == '/' && base ? base + 1 : opt->input);
    return t.at;
}

/* --recompute=budget:6GiB is the setting recompute = budget(6GiB), which may be written too. */
static bool define_recompute(Context *cx, Options *opt)
{
    static const char *const words[] = { "none", "auto", "blocks" };
    const char *given = opt->recompute;
    const bool colon = strncmp(given, "budget:", 7) == 0 && given[7];
    const char *value = colon ? arena_printf(cx->arena, "budget(%s)", given + 7) : given;
    bool known = colon || strncmp(given, "budget(", 7) == 0;
    for (int i = 0; i < 3; i++)
        known = known || strcmp(given, words[i]) == 0;
    const Define d = { intern(cx, "recompute"), value,
                       arena_printf(cx->arena, "--recompute=%s", given) };
    vec_push(cx->arena, &opt->defines, d);
    return known || fail("--recompute: %s is none of none, auto, blocks and budget:6GiB", given);
}

/* "native" or "sm_80,sm_90a", from sm_80 on. */
static bool read_architectures(const char *list)
{
    if (strcmp(list, "native") == 0)
        return true;
    for (const char *s = list;; s++) {
        char *end = NULL;
        const bool named = strncmp(s, "sm_", 3) == 0 && s[3] >= '1' && s[3] <= '9';
        const long n = named ? strtol(s + 3, &end, 10) : 0;
        if (n > 0 && n < 80)
            return fail("--cuda-arch: sm_%ld is too old, programs need sm_80 or later", n);
        s = named ? end + (*end == 'a' || *end == 'f') : s;
        if (!named || (*s && *s != ','))
            return fail("--cuda-arch: %s is neither native nor a list as in sm_80,sm_90", list);
        if (!*s)
            return true;
    }
}

/* --emit=cuda is --emit=c for --target=cuda. */
static bool settle_target(Options *opt)
{
    const char *compiles = opt->nvcc        ? "--nvcc"
                           : opt->cuda_arch ? "--cuda-arch"
                           : opt->cc        ? "--cc"
                           : opt->march     ? "--march"
                           : opt->cflags[0] ? "--cflags"
                                            : NULL;
    if (opt->emit == EMIT_CUDA && opt->target == TARGET_C)
        return fail("--emit=cuda does not go with --target=c");
    if (opt->emit == EMIT_C && opt->target == TARGET_CUDA)
        return fail("--emit=c does not go with --target=cuda; --emit=cuda writes the CUDA");
    if (opt->emit == EMIT_CUDA) {
        opt->emit = EMIT_C;
        opt->target = TARGET_CUDA;
    }
    if (opt->target == TARGET_UNSET)
        opt->target = TARGET_C;
    if (opt->target == TARGET_C && (opt->nvcc || opt->cuda_arch))
        return fail("%s goes with --target=cuda", opt->nvcc ? "--nvcc" : "--cuda-arch");
    if (opt->target == TARGET_CUDA && (opt->cc || opt->march))
        return fail("%s goes with --target=c; for CUDA there are --nvcc and --cuda-arch",
                    opt->cc ? "--cc" : "--march");
    if (compiles && opt->emit != EMIT_EXE)
        return fail("%s goes with a program: without --emit it is compiled", compiles);
    opt->cc = opt->cc ? opt->cc : "cc";
    opt->march = opt->march ? opt->march : "native";
    return !opt->cuda_arch || read_architectures(opt->cuda_arch);
}

static bool is_blank(const char *s) { return s[strspn(s, " \t\n")] == '\0'; }

bool options_parse(Context *cx, int argc, char **argv, Options *opt)
{
    bool ended = false;
    *opt = (Options){ .level = 3,
                      .precision = PRECISION_UNSET,
                      .target = TARGET_UNSET,
                      .head_rows = -1,
                      .cflags = "",
                      .error_limit = 20,
                      .colour = -1 };
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = NULL;
        if (!ended && strcmp(arg, "--") == 0) {
            ended = true;
            continue;
        }
        if (ended || arg[0] != '-' || arg[1] == '\0') {
            if (opt->input)
                return fail("one model at a time: %s and %s", opt->input, arg);
            opt->input = arg;
            continue;
        }
        const Row *r = find_row(arg, &value);
        if (r == NULL)
            return unknown_option(arg);
        if (r->value == NULL && value != NULL)
            return fail("%s takes no value", r->name);
        if (r->value != NULL && value == NULL) {
            if (i + 1 == argc)
                return fail("%s needs a value: %s", r->name, r->value);
            value = argv[++i];
        }
        if (r->value != NULL && is_blank(value) && r->at != AT(cflags))
            return fail("%s needs a value: %s", r->name, r->value);
        if (!read_value(cx, r, value ? value : "", opt))
            return false;
        opt->emit_set = opt->emit_set || strcmp(r->name, "--emit") == 0;
    }
    if (!settle_target(opt))
        return false;
    if (opt->explain == EXPLAIN_TRAFFIC && opt->target != TARGET_CUDA)
        return fail("--explain=traffic is about CUDA kernels: it goes with --target=cuda");
    if (opt->dims.len > 0 && (!opt->explain || opt->explain == EXPLAIN_RECOMPUTE))
        return fail("--dims goes with --explain=memory and --explain=traffic; the program has an "
                    "option --dims too");
    opt->unoptimised = opt->level == 0;
    opt->command = command_of(cx, opt);
    return !opt->recompute || opt->ir || define_recompute(cx, opt);
}
