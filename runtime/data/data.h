/* data.h -- what the files of data/ know of each other: a data set, its maps, its two splits.
 *
 * Two kinds of readers: sequences of tokens, of which inputs are windows (text, tokens), and
 * tables, of which inputs are columns (csv).
 */
#ifndef GRADCC_DATA_H
#define GRADCC_DATA_H

#include "run.h"

typedef struct { /* how one input is taken from the data */
    const RtMap *map;
    const RtInput *input;
    ptrdiff_t lo, hi; /* positions in the window, or columns */
    ptrdiff_t elems;  /* of one sample */
    RtType type;
} DataMap;

typedef struct { /* consecutive tokens of one file */
    const char *file;
    const void *at; /* the first token */
    int width;      /* bytes of a token: 1, 2 or 4 */
    int64_t n;
    int64_t samples; /* of all segments up to and including this one */
    ptrdiff_t tail;  /* validation: length of the last, shorter window; 0 = none */
} DataSegment;

typedef struct {
    DataSegment *segment;
    int n;
    int64_t tokens;
} DataStream;

typedef struct {   /* the code points that are tokens, ascending */
    int32_t *code; /* NULL: tokens are bytes */
    int32_t n;
    char (*text)[5]; /* each as UTF-8 */
    char *json;
} DataVocab;

typedef struct { /* columns that maps use, row by row */
    int64_t rows;
    void *at[RT_MAX_DIMS]; /* per map: [rows][elems] of its type */
} DataTable;

typedef struct DataOwned {
    void *at;
    size_t mapped; /* bytes of a mapped file; 0 = allocated */
    struct DataOwned *next;
} DataOwned;

struct RtData {
    const RtModel *m;
    RtTrain t;
    const char *path[2]; /* training, validation; equal when split */
    DataMap map[RT_MAX_DIMS];
    int n_maps;
    uint64_t hash;
    ptrdiff_t dims[RT_MAX_DIMS];
    int64_t samples[2];
    /* sequences */
    DataStream stream[2];
    bool has_vocab;
    DataVocab vocab;
    ptrdiff_t span;   /* tokens from the first to the last of a window */
    ptrdiff_t length; /* tokens of the longest map: step of validation */
    /* tables */
    DataTable table[2]; /* the second one only if validation has a file */
    int64_t *row[2];    /* row of each sample */
    DataOwned *owned;   /* memory and maps that live as long as the data */
};

/* ---- data.c ---------------------------------------------------------------------------------- */

void data_own(RtData *d, void *at, size_t mapped);        /* released by rt_data_close */
void data_hash_more(RtData *d, const void *at, size_t n); /* mixes the bytes into d->hash */
int64_t data_cut(double split, int64_t n);                /* share of n that trains */
/* "x: int in 0..65 (a.model:3)" */
const char *data_input_text(const DataMap *map, char text[160]);
/* "; compile with gradcc -D V=65", or nothing where that is no help */
const char *data_hint_size(const DataMap *map, int64_t n, char text[160]);
__attribute__((noreturn)) void data_fail_missing(int part, const char *path, int error);
bool data_in_range(const RtInput *input, int64_t v);

/* ---- readers: fill streams or tables --------------------------------------------------------- */

void data_open_text(RtData *d, const char *vocab);
void data_open_tokens(RtData *d);
void data_open_csv(RtData *d);
void data_read_vocab(RtData *d, const char *json); /* of a checkpoint */

/* ---- window.c: samples of sequences ---------------------------------------------------------- */

void data_plan_windows(RtData *d); /* counts samples; checks ranges of tokens */
void data_fill_window(const RtData *d, RtSplit split, int64_t sample, ptrdiff_t row,
                      void *const *inputs);
void data_fill_rest(const RtData *d, const DataSegment *s, void *const *inputs);

#endif
