/* main.c -- the command line of gradcc, and nothing else.
 *
 * In: arguments. Out: text on stdout or in a file, or an executable; messages on stderr; the exit
 * code: 0 done, 1 mistakes in the model, 2 usage, 70 a bug of ours.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build.h"
#include "op/op.h"
#include "pass/pass.h"
#include "pipeline.h"

enum { EXIT_MISTAKE = 1, EXIT_USAGE = 2 };

#ifndef GRADCC_VERSION
#define GRADCC_VERSION "0"
#endif

static int usage(const char *what)
{
    fprintf(stderr, "gradcc: %s\n", what);
    return EXIT_USAGE;
}

/* After errors. */
static int failure(const Context *cx) { return diag_is_usage(cx) ? EXIT_USAGE : EXIT_MISTAKE; }

/* Text goes to stdout, or complete into a file. */
static bool deliver(Context *cx, const char *path, const Text *t)
{
    const Span nowhere = { 0 };
    if (path && strcmp(path, "-") != 0)
        return build_write_file(cx, path, t->at, t->len);
    if (fwrite(t->at, 1, t->len, stdout) == t->len && fflush(stdout) == 0)
        return true;
    diag_error(cx, nowhere, "cannot write to stdout: %s", strerror(errno));
    return false;
}

/* Options that print something about the compiler and end it. -1: none of them is there. */
static int answer(Context *cx, const Options *opt)
{
    Text t = text_new(cx->arena);
    if (opt->help) {
        options_help(stdout);
        return 0;
    }
    if (opt->version) {
        printf("gradcc %s\n", GRADCC_VERSION);
        return 0;
    }
    if (opt->check_rules)
        return simplify_check_rules(cx, stdout) ? 0 : EXIT_MISTAKE;
    if (!opt->list_ops && !opt->list_passes)
        return -1;
    if (opt->list_ops)
        op_list(&t);
    if (opt->list_passes)
        pipeline_list(&t);
    fputs(t.at, stdout);
    return 0;
}

static bool wants_program(const Options *opt)
{
    return opt->emit == EMIT_EXE && !opt->explain && !opt->ir && opt->stop_after == NULL
           && (opt->dump_after.len == 0 || opt->output != NULL);
}

static const char *deps_path(Context *cx, const Options *opt, const char *target)
{
    if (opt->deps_file)
        return opt->deps_file;
    return opt->deps == DEPS_BESIDE ? arena_printf(cx->arena, "%s.d", target) : NULL;
}

static int write_deps(Context *cx, const Options *opt, const char *target)
{
    Text t = text_new(cx->arena);
    build_print_deps(cx, opt, target, &t);
    return deliver(cx, deps_path(cx, opt, target), &t) ? 0 : EXIT_MISTAKE;
}

/* No file that was read or that the model names is replaced by a result. False after a message. */
static bool spares_inputs(Context *cx, const char *path)
{
    const Span nowhere = { 0 };
    for (int i = 0; path && i < cx->sources.len; i++) {
        const Source *source = cx->sources.at[i];
        if (source->no_file || !build_same_file(source->path, path))
            continue;
        diag_error(cx, nowhere, "the output would overwrite %s%s",
                   i == 0 ? "the model " : "a file of the model: ", source->path);
        return false;
    }
    for (int i = 0; path && i < cx->named.len; i++) {
        const Named *data = &cx->named.at[i];
        if (!build_names_file(data->path, path))
            continue;
        diag_error(cx, data->at, "the output would overwrite these data: %s", path);
        return false;
    }
    return true;
}

static int compile(Context *cx, const Options *opt)
{
    const Places at = build_find_places(cx);
    Text out = text_new(cx->arena);
    const char *name = build_output_name(cx, opt);
    if (at.prelude == NULL && !opt->ir && opt->emit != EMIT_AST) {
        const Span nowhere = { 0 };
        Diag *d = diag_error(cx, nowhere, "prelude.model is not beside this gradcc");
        diag_hint(d, "build gradcc with make, or install it with make install");
        return EXIT_MISTAKE;
    }
    if (build_same_file(opt->input, wants_program(opt) ? name : opt->output)) {
        const Span nowhere = { 0 };
        diag_error(cx, nowhere, "the output would overwrite the model %s", opt->input);
        return EXIT_MISTAKE;
    }
    if (!pipeline_run(cx, opt, at.prelude, &out)
        || !spares_inputs(cx, wants_program(opt) ? name : opt->output)
        || (opt->deps != DEPS_NONE && !spares_inputs(cx, deps_path(cx, opt, name))))
        return failure(cx);
    if (opt->deps == DEPS_ONLY)
        return write_deps(cx, opt, name);
    int code = 0;
    if (wants_program(opt))
        code = build_program(cx, opt, &at, &out, name);
    else
        code = deliver(cx, opt->output, &out) ? 0 : EXIT_MISTAKE;
    if (code == 0 && opt->deps == DEPS_BESIDE)
        code = write_deps(cx, opt, name);
    return code;
}

static int run(Context *cx, int argc, char **argv)
{
    Options opt;
    if (!options_parse(cx, argc, argv, &opt))
        return EXIT_USAGE;
    cx->error_limit = (int)(opt.error_limit > 0 && opt.error_limit < 100000 ? opt.error_limit
                                                                            : 100000);
    cx->no_warnings = opt.no_warnings;
    for (int i = 0; i < opt.quiet.len; i++)
        vec_push(cx->arena, &cx->quiet, opt.quiet.at[i]);
    const char *no_colour = getenv("NO_COLOR");
    cx->colour = opt.colour >= 0 ? opt.colour : isatty(STDERR_FILENO) && !(no_colour && *no_colour);
    const int answered = answer(cx, &opt);
    if (answered >= 0) {
        const Text rest = text_new(cx->arena); /* what stdio still holds goes out here */
        const int code = deliver(cx, NULL, &rest) ? answered : EXIT_MISTAKE;
        diag_flush(cx, stderr);
        return code;
    }
    if (opt.input == NULL)
        return usage("no model given (gradcc --help)");
    const char *wrong = pipeline_check_names(cx, &opt);
    if (wrong)
        return usage(wrong);
    const int code = compile(cx, &opt);
    diag_flush(cx, stderr);
    return code;
}

int main(int argc, char **argv)
{
    Context *cx = context_new();
    const int code = run(cx, argc, argv);
    context_free(cx);
    return code;
}
