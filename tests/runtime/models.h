/* models.h -- small model tables for the tests of readers. */
#ifndef GRADCC_TEST_MODELS_H
#define GRADCC_TEST_MODELS_H

#include "run.h"

/* tokens = window(0..T), targets = window(1..T+1); dims: B, T; V tokens */
static inline void sequence_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    RT_UNUSED(input);
    shape[0] = dims[0];
    shape[1] = dims[1];
}

static inline void sequence_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    *lo = map;
    *hi = dims[1] + map;
}

typedef struct {
    RtModel m;
    RtInput inputs[4];
    RtMap maps[4];
} TestModel;

static inline void sequence_model(TestModel *t, const char *reader, const char *path,
                                  int64_t vocabulary)
{
    const RtInput token = { .name = "tokens",
                            .type = RT_I32,
                            .rank = 2,
                            .ranged = true,
                            .hi = vocabulary,
                            .hi_name = "V",
                            .where = "a.model:7" };
    *t = (TestModel){ .inputs = { token, token } };
    t->inputs[1].name = "targets";
    for (int i = 0; i < 2; i++)
        t->maps[i] = (RtMap){ .input = i, .kind = RT_MAP_WINDOW, .where = "a.model:30" };
    t->m = (RtModel){ .name = "a",
                      .source = "a.model",
                      .real = RT_F32,
                      .inputs = t->inputs,
                      .n_inputs = 2,
                      .n_dims = 2,
                      .input_shape = sequence_shape,
                      .map_range = sequence_range,
                      .train = { .present = true,
                                 .reader = reader,
                                 .path = path,
                                 .split = 0.8,
                                 .vocab = "chars",
                                 .maps = t->maps,
                                 .n_maps = 2,
                                 .seed = 1,
                                 .where = "a.model:29" } };
}

/* x = cols(0..3) real, y = col("label") or col(3): int in 0..4 or -1 */
static inline void table_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    shape[0] = dims[0];
    shape[1] = input == 0 ? 3 : 1;
}

static inline void table_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    RT_UNUSED(dims);
    *lo = map == 0 ? 0 : 3;
    *hi = map == 0 ? 3 : 4;
}

static inline void table_model(TestModel *t, const char *path, bool header)
{
    *t = (TestModel){ .inputs = { { .name = "x", .type = RT_F32, .rank = 2, .where = "b.model:3" },
                                  { .name = "y",
                                    .type = RT_I32,
                                    .rank = 1,
                                    .ranged = true,
                                    .has_ignore = true,
                                    .hi = 4,
                                    .ignore = -1,
                                    .hi_name = "K",
                                    .where = "b.model:4" } } };
    t->maps[0] = (RtMap){ .input = 0, .kind = RT_MAP_COLS, .where = "b.model:20" };
    t->maps[1] = (RtMap){ .input = 1,
                          .kind = RT_MAP_COL,
                          .column = header ? "label" : NULL,
                          .where = "b.model:20" };
    t->m = (RtModel){ .name = "b",
                      .source = "b.model",
                      .real = RT_F32,
                      .inputs = t->inputs,
                      .n_inputs = 2,
                      .n_dims = 1,
                      .input_shape = table_shape,
                      .map_range = table_range,
                      .train = { .present = true,
                                 .reader = "csv",
                                 .path = path,
                                 .split = 0.75,
                                 .maps = t->maps,
                                 .n_maps = 2,
                                 .seed = 1,
                                 .header = header,
                                 .where = "b.model:19" } };
}

static inline RtData *test_open(const TestModel *t, ptrdiff_t length, const char *vocab)
{
    const ptrdiff_t dims[2] = { 2, length };
    return rt_data_open(&t->m, &t->m.train, dims, vocab);
}

#endif
