/* passes.c -- runs passes over the graphs of an IR file and prints what comes out.
 *
 * Usage: passes FILE PASS...    passes: simplify fast bf16 f16 masters grad settle keep expand
 *        expand_all chunk (4 rows at a time; a graph that has no head to be done in parts stays as
 *        it is)
 *        passes --check-rules
 * Messages go to stderr; the exit code is 1 after an error.
 */
#include <string.h>

#include "op/op.h"
#include "pass/pass.h"

static Graph *round_to(Graph *g, DType narrow)
{
    g->program->narrow = narrow;
    return pass_precision(g, narrow);
}

static Graph *masterless(Graph *g)
{
    masters_mark(g);
    return pass_masters(g);
}

static Graph *chunk(Graph *g)
{
    const Node *fail = NULL;
    Graph *parts = pass_chunk(g, 4, &fail);
    if (fail)
        printf("# all rows at once: %s\n", op_row(fail->op)->name);
    return parts ? parts : g;
}

static Graph *keep(Graph *g, KeepRule rule)
{
    const KeepChoice choice = { .rule = rule };
    return pass_keep(g, &choice, NULL);
}

static Graph *run_pass(Graph *g, const char *name)
{
    return !strcmp(name, "simplify")     ? pass_simplify(g)
           : !strcmp(name, "fast")       ? pass_simplify_fast(g)
           : !strcmp(name, "bf16")       ? round_to(g, DT_BF16)
           : !strcmp(name, "f16")        ? round_to(g, DT_F16)
           : !strcmp(name, "masters")    ? masterless(g)
           : !strcmp(name, "settle")     ? pass_settle(g)
           : !strcmp(name, "grad")       ? pass_grad(g)
           : !strcmp(name, "keep")       ? keep(g, KEEP_CHEAP)
           : !strcmp(name, "keep_all")   ? keep(g, KEEP_ALL)
           : !strcmp(name, "keep_carry") ? keep(g, KEEP_CARRY)
           : !strcmp(name, "expand")     ? pass_expand(g, false)
           : !strcmp(name, "chunk")      ? chunk(g)
           : !strcmp(name, "expand_all") ? pass_expand(g, true)
                                         : NULL;
}

int main(int argc, char **argv)
{
    Context *cx = context_new();
    Program *program = NULL;
    if (argc == 2 && !strcmp(argv[1], "--check-rules"))
        return !simplify_check_rules(cx, stdout);
    if (argc < 2)
        return 2;
    const int file = source_read(cx, argv[1]);
    const bool read = file && ir_read(cx, file, &program);
    for (int i = 0; read && i < program->graphs.len; i++) {
        Graph *g = program->graphs.at[i];
        for (int p = 2; p < argc && diag_count(cx) == 0; p++) {
            g = run_pass(g, argv[p]);
            if (!g) {
                fprintf(stderr, "passes: no pass %s\n", argv[p]);
                return 2;
            }
            const char *wrong = ir_check(g, STAGE_JOINT);
            if (wrong)
                fprintf(stderr, "passes: after %s: %s\n", argv[p], wrong);
            if (wrong)
                return 3;
        }
        Text t = text_new(cx->arena);
        ir_print(&t, g);
        if (diag_count(cx) == 0)
            fputs(t.at, stdout);
    }
    diag_flush(cx, stderr);
    const int failed = diag_count(cx) > 0;
    context_free(cx);
    return failed;
}
