/* steps.c -- a few updates of an emitted program, as numbers to compare bit for bit.
 *
 * In: what tests/run/harness.c is compiled with. Out: a line per update with the bits of the loss
 * sums, of the gradients and of the parameters. Updates are p -= d_p / 64.
 * Usage: steps [NAME=VALUE ...]
 */
#define main compare_with_oracle
#include "../run/harness.c"
#undef main

enum { UPDATES = 3 };

static uint64_t hash_of(const void *p, size_t bytes)
{
    const unsigned char *c = p;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ c[i]) * 1099511628211u;
    return h;
}

/* The bits of each gradient of the first update: they say where a difference comes from. */
static void print_gradients(const RtModel *m, const Real *d_p)
{
    for (int i = 0; i < m->n_params; i++) {
        uint64_t h = 0;
        for (ptrdiff_t k = 0; k < param_elems(&m->params[i]); k++)
            h = 31 * h + hash_of(&d_p[flat_place(&m->params[i], k)], sizeof(Real));
        printf("%s %016llx\n", m->params[i].path, (unsigned long long)h);
    }
}

int main(int argc, char **argv)
{
    static RtStep s;
    const RtModel *m = tested;
    RtRun run = { .model = m };
    const size_t bytes = (size_t)m->n_elems * sizeof(Real);
    for (int i = 0; i < m->n_dims; i++)
        micro_dims[i] = (ptrdiff_t)value_dim(argc, argv, m->dims[i].name, m->dims[i].batch ? 3 : 5);
    Real *p = calloc((size_t)m->n_elems + 1, sizeof(Real));
    Real *d_p = calloc((size_t)m->n_elems + 1, sizeof(Real));
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < param_elems(&m->params[i]); k++)
            p[flat_place(&m->params[i], k)] = (Real)value_param(i, m->params[i].role == RT_STATE,
                                                                (uint64_t)k);
    for (int i = 0; i < m->n_inputs; i++)
        make_input(m, i);
    for (int update = 0; update < UPDATES; update++) {
        run.p = p;
        run.d_p = d_p;
        run.p16 = make_copy16(m, run.p);
        run.arena = calloc(1, m->arena_bytes(micro_dims, RT_ENTRY_TRAIN) + 64);
        m->step(&run, &s);
        if (update == 0)
            print_gradients(m, d_p);
        for (ptrdiff_t k = 0; k < m->n_elems; k++)
            p[k] -= d_p[k] / 64;
        printf("%016llx %016llx %016llx\n", (unsigned long long)hash_of(s.sum, sizeof s.sum),
               (unsigned long long)hash_of(d_p, bytes), (unsigned long long)hash_of(p, bytes));
        free(run.arena);
        free(run.p16);
    }
    printf("arena %zu\n", m->arena_bytes(micro_dims, RT_ENTRY_TRAIN));
    return 0;
}
