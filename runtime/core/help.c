/* help.c -- --help, made from the model.
 *
 * In: the model table and its train block. Out: what the program reads, its dims and parameters,
 * and every option with its default and where that was set.
 */
#include "run.h"

static void print_dims(const RtModel *m, FILE *to)
{
    for (int i = 0; i < m->n_dims; i++) {
        const RtDim *d = &m->dims[i];
        if (d->batch)
            fprintf(to, "  dim    %-12s samples: batch / accumulate / ranks  %s\n", d->name,
                    d->where);
        else if (d->value > 0)
            fprintf(to, "  dim    %-12s %td (--dims %s=N)  %s\n", d->name, d->value, d->name,
                    d->where);
        else
            fprintf(to, "  dim    %-12s must be given: --dims %s=N  %s\n", d->name, d->name,
                    d->where);
    }
}

static void print_inputs(const RtModel *m, FILE *to)
{
    for (int i = 0; i < m->n_inputs; i++) {
        const RtInput *in = &m->inputs[i];
        fprintf(to, "  input  %-12s ", in->name);
        if (in->type != RT_I32)
            fprintf(to, "real");
        else if (in->ranged)
            fprintf(to, "int in %lld..%lld", (long long)in->lo, (long long)in->hi);
        else
            fprintf(to, "int");
        if (in->has_ignore)
            fprintf(to, " or %lld", (long long)in->ignore);
        fprintf(to, ", rank %d  %s\n", in->rank, in->where);
    }
}

static bool print_default(const RtModel *m, const RtOptions *o, const RtOption *row, FILE *to)
{
    const char *const at = (const char *)o + row->at;
    switch (row->type) {
    case RT_OPT_INT:
    case RT_OPT_UINT: {
        int64_t value;
        memcpy(&value, at, sizeof value);
        const bool unset = row->type == RT_OPT_INT && value < 0; /* found out at start */
        if (unset || strcmp(row->name, "threads") == 0
            || (value == 0 && strcmp(row->name, "batch") == 0))
            return false;
        fprintf(to, row->type == RT_OPT_UINT ? " [%llu]" : " [%lld]", (long long)value);
        return true;
    }
    case RT_OPT_REAL: {
        double value;
        memcpy(&value, at, sizeof value);
        fprintf(to, " [%g]", value);
        return true;
    }
    case RT_OPT_TEXT: {
        const char *value;
        memcpy(&value, at, sizeof value);
        if (value)
            fprintf(to, " [%s]", value);
        return value != NULL;
    }
    case RT_OPT_DIMS: {
        int n = 0;
        for (int i = 0; i < m->n_dims; i++)
            if (!m->dims[i].batch && m->dims[i].value > 0)
                fprintf(to, "%s%s=%td", n++ ? "," : " [", m->dims[i].name, m->dims[i].value);
        if (n)
            fputc(']', to);
        return n > 0;
    }
    case RT_OPT_FLAG: break;
    }
    return false;
}

static void print_ranks_and_codes(const RtOptions *o, FILE *to)
{
    if (o->command != RT_DO_GENERATE)
        fprintf(to,
                "\nseveral ranks: mpirun -n 4 %s ..., torchrun --no-python --nproc-per-node 4 "
                "%s ..., srun, or\nRANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set for each; or "
                "--rank, --world-size, --rendezvous\n",
                o->program, o->program);
    fprintf(to, "\nexit codes: 0 done; 1 failed; 2 wrong options or environment; 75 stopped by "
                "SIGTERM or SIGUSR1,\n76 a rank was lost or late; 130 stopped by Ctrl-C "
                "(75, 130: a checkpoint is written)\n");
}

static void print_options(const RtModel *m, const RtOptions *o, FILE *to)
{
    for (int i = 0; i < rt_option_count(m); i++) {
        const RtOption option = rt_option_at(m, i), *const row = &option;
        if (!(row->commands & (int)o->command) || !rt_option_applies(m, row))
            continue;
        char head[64];
        snprintf(head, sizeof head, "--%s %s", row->name, row->value ? row->value : "");
        fprintf(to, "  %-26s %s", head, row->text);
        print_default(m, o, row, to);
        fputc('\n', to);
    }
}

void rt_help_print(const RtModel *m, const RtOptions *o, FILE *to)
{
    const char *name = o->program;
    switch (o->command) {
    case RT_DO_TRAIN:
        fprintf(to, "usage: %s [OPTIONS]            train %s\n", name, m->name);
        fprintf(to, "       %s eval [OPTIONS]       validate a checkpoint\n", name);
        if (rt_generate_possible(m) == NULL)
            fprintf(to, "       %s generate [OPTIONS]   write text with a checkpoint\n", name);
        break;
    case RT_DO_EVAL:
        fprintf(to, "usage: %s eval [OPTIONS]       validate a checkpoint of %s\n", name, m->name);
        break;
    case RT_DO_GENERATE:
        fprintf(to, "usage: %s generate [OPTIONS]   write text with a checkpoint of %s\n", name,
                m->name);
        break;
    }
    fprintf(to, "\n%s, compiled by gradcc from %s: %td parameters, %s\n", m->name, m->source,
            rt_params_count(m, false), rt_precision(m));
    print_dims(m, to);
    print_inputs(m, to);
    for (int i = 0; i < m->n_outputs; i++)
        fprintf(to, "  output %-12s rank %d  %s\n", m->outputs[i].name, m->outputs[i].rank,
                m->outputs[i].where);
    for (int i = 0; i < m->n_metrics; i++)
        fprintf(to, "  metric %-12s %s\n", m->metrics[i].name, m->metrics[i].where);
    if (m->train.present)
        fprintf(to, "\noptions [defaults, from the train block at %s where it sets them]\n",
                m->train.where);
    else
        fprintf(to, "\noptions [defaults; %s has no train block]\n", m->source);
    print_options(m, o, to);
    print_ranks_and_codes(o, to);
}
