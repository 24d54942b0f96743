/* csv.c -- tables of numbers: RFC 4180, plain or .gz, columns by name or number.
 *
 * In: a file (and one for validation, or a share of the rows). Out: per input a buffer of rows in
 * its own type. Every number is checked where it stands; a message gives file:line:column. Rows are
 * drawn into training and validation by a permutation keyed with the run's seed, and by nothing
 * else.
 */
#include <float.h>
#include <stdarg.h>
#include <strings.h>

#include "data/data.h"

#define SPLIT_KEY 0x73706c6974726f77u /* "splitrow": apart from the keys of epochs */

typedef struct {
    const char *at; /* text without quotes */
    size_t len;
    int64_t line, column; /* where it starts */
} Field;

typedef struct {
    RtData *d;
    const char *file;
    char *text;
    size_t len, at;
    int64_t line;
    size_t line_start;
    Field *names;  /* of the columns, with a header */
    Field *fields; /* of the row in work */
    int n_columns;
    DataTable *table;
} Csv;

__attribute__((noreturn, format(printf, 4, 5))) static void csv_fail(const Csv *c, int64_t line,
                                                                     int64_t column,
                                                                     const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    rt_fail(RT_EXIT_FAIL, "%s:%lld:%lld: %s", c->file, (long long)line, (long long)column, text);
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void csv_next_line(Csv *c)
{
    c->line++;
    c->line_start = c->at;
}

/* A field in quotes; "" stands for one quote. The text is rewritten in place. */
static void csv_quoted(Csv *c, Field *f)
{
    size_t to = ++c->at;
    f->at = c->text + to;
    for (;;) {
        if (c->at >= c->len)
            csv_fail(c, f->line, f->column, "this quoted field never ends");
        const char ch = c->text[c->at++];
        if (ch == '\n')
            csv_next_line(c);
        if (ch == '"') {
            if (c->at >= c->len || c->text[c->at] != '"')
                break;
            c->at++;
        }
        c->text[to++] = ch;
    }
    f->len = (size_t)(c->text + to - f->at);
    const char after = c->at < c->len ? c->text[c->at] : '\n';
    if (after != ',' && after != '\n' && after != '\r')
        csv_fail(c, c->line, (int64_t)(c->at - c->line_start) + 1,
                 "text after the end of a quoted field");
}

/* The next field; false at the end of the row (or file), which is consumed. */
static bool csv_field(Csv *c, bool first, Field *f)
{
    if (!first) {
        const char ch = c->at < c->len ? c->text[c->at] : '\n';
        if (ch != ',') {
            c->at += ch == '\r' && c->at < c->len;
            if (c->at < c->len && c->text[c->at] != '\n')
                csv_fail(c, c->line, (int64_t)(c->at - c->line_start),
                         "a carriage return inside a row");
            c->at += c->at < c->len;
            csv_next_line(c);
            return false;
        }
        c->at++;
    }
    *f = (Field){ .at = c->text + c->at,
                  .line = c->line,
                  .column = (int64_t)(c->at - c->line_start) + 1 };
    if (c->at < c->len && c->text[c->at] == '"') {
        csv_quoted(c, f);
        return true;
    }
    while (c->at < c->len && !strchr(",\r\n", c->text[c->at])) {
        if (c->text[c->at] == '"')
            csv_fail(c, c->line, (int64_t)(c->at - c->line_start) + 1,
                     "a quote inside a field that does not start with one");
        c->at++;
    }
    f->len = (size_t)(c->text + c->at - f->at);
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static double scale_ten(uint64_t exact, int exponent)
{
    static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    if (exact < (uint64_t)1 << 53 && exponent >= 0 && exponent <= 22)
        return (double)exact * ten[exponent]; /* one rounding: correct */
    if (exact < (uint64_t)1 << 53 && exponent < 0 && exponent >= -22)
        return (double)exact / ten[-exponent];
    return (double)((long double)exact * powl(10.0L, exponent));
}

/* [+-]digits[.digits][e[+-]digits], without the locale; false if that is not all there is. */
static bool number_parse(const char *s, size_t len, double *value)
{
    const char *end = s + len;
    const bool minus = s < end && *s == '-';
    s += s < end && (*s == '-' || *s == '+');
    uint64_t mantissa = 0;
    int exponent = 0, digits = 0;
    bool point = false;
    for (; s < end && ((*s >= '0' && *s <= '9') || (*s == '.' && !point)); s++) {
        if (*s == '.') {
            point = true;
            continue;
        }
        digits++;
        if (mantissa < UINT64_MAX / 10 - 1) {
            mantissa = mantissa * 10 + (uint64_t)(*s - '0');
            exponent -= point;
        } else {
            exponent += !point;
        }
    }
    if (digits == 0)
        return false;
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        const bool down = s < end && *s == '-';
        s += s < end && (*s == '-' || *s == '+');
        int power = 0;
        if (s == end)
            return false;
        for (; s < end && *s >= '0' && *s <= '9'; s++)
            power = power < 100000 ? power * 10 + (*s - '0') : power;
        exponent += down ? -power : power;
    }
    exponent = exponent > 5000 ? 5000 : exponent < -5000 ? -5000 : exponent;
    *value = mantissa == 0 ? 0 : scale_ten(mantissa, exponent);
    *value = minus ? -*value : *value;
    return s == end;
}

static Field field_trim(Field f)
{
    while (f.len > 0 && (*f.at == ' ' || *f.at == '\t')) {
        f.at++;
        f.len--;
        f.column++;
    }
    while (f.len > 0 && (f.at[f.len - 1] == ' ' || f.at[f.len - 1] == '\t'))
        f.len--;
    return f;
}

static bool field_is_word(const Field *f, const char *const *words)
{
    const size_t sign = f->len > 0 && (*f->at == '-' || *f->at == '+');
    for (; *words; words++)
        if (strlen(*words) == f->len - sign
            && strncasecmp(f->at + sign, *words, f->len - sign) == 0)
            return true;
    return false;
}

/* "column 3" or "column price" for messages */
static const char *column_text(const Csv *c, int column, char text[80])
{
    const Field *name = &c->names[column];
    if (c->d->t.header)
        snprintf(text, 80, "column %.*s", (int)(name->len > 60 ? 60 : name->len), name->at);
    else
        snprintf(text, 80, "column %d", column);
    return text;
}

static double field_number(const Csv *c, Field f, int column)
{
    static const char *const special[] = { "nan", "inf", "infinity", NULL };
    char text[80];
    double v;
    f = field_trim(f);
    if (f.len == 0)
        csv_fail(c, f.line, f.column, "the field is empty (%s); a number is wanted",
                 column_text(c, column, text));
    if (field_is_word(&f, special))
        csv_fail(c, f.line, f.column, "'%.*s' (%s) is not finite; such values are not accepted",
                 (int)f.len, f.at, column_text(c, column, text));
    if (!number_parse(f.at, f.len, &v))
        csv_fail(c, f.line, f.column, "'%.*s' is no number (%s)%s", (int)(f.len > 40 ? 40 : f.len),
                 f.at, column_text(c, column, text),
                 f.line == 1 && !c->d->t.header
                     ? "; if the first row names the columns, say header: true"
                     : "");
    return v;
}

/* ---- storing --------------------------------------------------------------------------------- */

static void store_int(const Csv *c, const Field *f, int column, const DataMap *map, int32_t *to,
                      double v)
{
    char text[80], input[160], hint[160];
    if (v != floor(v) || fabs(v) > INT32_MAX)
        csv_fail(c, f->line, f->column, "%.*s (%s) is no whole number of 32 bits; %s wants one",
                 (int)f->len, f->at, column_text(c, column, text), data_input_text(map, input));
    if (!data_in_range(map->input, (int64_t)v))
        csv_fail(c, f->line, f->column, "%.*s (%s) is outside of %s%s", (int)f->len, f->at,
                 column_text(c, column, text), data_input_text(map, input),
                 data_hint_size(map, (int64_t)v + 1, hint));
    *to = (int32_t)v;
}

static void store_real(const Csv *c, const Field *f, const DataMap *map, void *table, int64_t at,
                       double v)
{
    if (fabs(v) > (map->type == RT_F64 ? DBL_MAX : FLT_MAX))
        csv_fail(c, f->line, f->column, "%.*s is too large for the model's numbers", (int)f->len,
                 f->at);
    if (map->type == RT_F32)
        ((float *)table)[at] = (float)v;
    else
        ((double *)table)[at] = v;
}

static void store_row(const Csv *c, int64_t row)
{
    for (int i = 0; i < c->d->n_maps; i++) {
        const DataMap *map = &c->d->map[i];
        void *table = c->table->at[i];
        for (ptrdiff_t e = 0; e < map->elems; e++) {
            const int column = (int)(map->lo + e);
            const Field *f = &c->fields[column];
            const double v = field_number(c, *f, column);
            if (map->type == RT_I32)
                store_int(c, f, column, map, (int32_t *)table + row * map->elems + e, v);
            else
                store_real(c, f, map, table, row * map->elems + e, v);
        }
    }
}

/* ---- columns of the maps --------------------------------------------------------------------- */

static int column_find(const Csv *c, const RtMap *map)
{
    for (int i = 0; i < c->n_columns; i++)
        if (c->names[i].len == strlen(map->column)
            && memcmp(c->names[i].at, map->column, c->names[i].len) == 0)
            return i;
    char list[300] = "";
    size_t n = 0;
    for (int i = 0; i < c->n_columns && n < 200; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", i ? ", " : "",
                              (int)(c->names[i].len > 60 ? 60 : c->names[i].len), c->names[i].at);
    rt_fail(RT_EXIT_FAIL, "%s: %s has no column '%s'; its columns are %s%s", map->where, c->file,
            map->column, list, n >= 200 ? ", ..." : "");
}

static void map_columns(const Csv *c, DataMap *map)
{
    const RtMap *m = map->map;
    if (m->kind == RT_MAP_WINDOW)
        rt_fail(RT_EXIT_FAIL,
                "%s: input %s wants a window, but a csv file has columns: col(..) or "
                "cols(..) is wanted",
                m->where, map->input->name);
    if (m->kind == RT_MAP_COL && m->column) {
        if (!c->d->t.header)
            rt_fail(RT_EXIT_FAIL,
                    "%s: column '%s' is asked for by name, but the columns of %s have no "
                    "names; if its first row holds them, say header: true",
                    m->where, m->column, c->file);
        map->lo = column_find(c, m);
    }
    if (m->kind == RT_MAP_COL)
        map->hi = map->lo + 1;
    if (map->lo < 0 || map->lo >= map->hi || map->hi > c->n_columns)
        rt_fail(RT_EXIT_FAIL,
                "%s: columns %td..%td of %s are asked for; it has %d (numbers start at 0)",
                m->where, map->lo, map->hi, c->file, c->n_columns);
    if (map->hi - map->lo != map->elems)
        rt_fail(RT_EXIT_FAIL,
                "%s: %td columns are given to input %s, a sample of which has %td elements (%s)",
                m->where, map->hi - map->lo, map->input->name, map->elems, map->input->where);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Reads the first row into c->fields: the names of the columns, or the first row of data. Fields in
   quotes are rewritten in place, so no row can be read twice. */
static void read_first_row(Csv *c)
{
    int cap = 0;
    Field f;
    for (bool more = csv_field(c, true, &f); more; more = csv_field(c, false, &f)) {
        if (c->n_columns == cap) {
            cap = cap ? 2 * cap : 64;
            Field *fields = rt_alloc((size_t)cap * sizeof *fields, "a row of fields");
            if (c->n_columns)
                memcpy(fields, c->fields, (size_t)c->n_columns * sizeof *fields);
            rt_free(c->fields);
            c->fields = fields;
        }
        c->fields[c->n_columns++] = f;
    }
    c->names = rt_alloc((size_t)c->n_columns * sizeof *c->names, "the names of the columns");
    if (!c->d->t.header)
        return;
    for (int i = 0; i < c->n_columns; i++) {
        c->names[i] = field_trim(c->fields[i]);
        for (int j = 0; j < i; j++)
            if (c->names[i].len == c->names[j].len
                && memcmp(c->names[i].at, c->names[j].at, c->names[i].len) == 0)
                csv_fail(c, c->names[i].line, c->names[i].column,
                         "column %d has the same name as column %d: %.*s", i, j,
                         (int)c->names[i].len, c->names[i].at);
    }
}

static bool only_line_ends_follow(const Csv *c)
{
    for (size_t i = c->at; i < c->len; i++)
        if (c->text[i] != '\n' && c->text[i] != '\r')
            return false;
    return true;
}

static void read_row(Csv *c)
{
    Field f;
    const int64_t line = c->line;
    int n = 0;
    for (bool more = csv_field(c, true, &f); more; more = csv_field(c, false, &f)) {
        if (n == c->n_columns)
            csv_fail(c, f.line, f.column, "more fields than the %d of the first row", c->n_columns);
        c->fields[n++] = f;
    }
    if (n == 1 && f.len == 0 && c->n_columns > 1)
        csv_fail(c, line, 1, "an empty line");
    if (n < c->n_columns)
        csv_fail(c, line, 1, "the row has %d fields, the first row has %d", n, c->n_columns);
    store_row(c, c->table->rows++);
}

static void csv_read(RtData *d, int part)
{
    Csv c = { .d = d, .file = d->path[part], .line = 1, .table = &d->table[part] };
    c.text = rt_read_file(c.file, PTRDIFF_MAX, &c.len);
    data_hash_more(d, c.text, c.len);
    if (c.len >= 3 && memcmp(c.text, "\xef\xbb\xbf", 3) == 0) {
        c.at = 3; /* a byte order mark */
        c.line_start = 3;
    }
    if (only_line_ends_follow(&c))
        rt_fail(RT_EXIT_FAIL, "%s: is empty", c.file);
    size_t lines = 2;
    for (size_t i = 0; i < c.len; i++)
        lines += c.text[i] == '\n';
    read_first_row(&c);
    for (int i = 0; i < d->n_maps; i++) {
        DataMap *map = &d->map[i];
        map_columns(&c, map);
        const size_t bytes = map->type == RT_F64 ? sizeof(double) : sizeof(float);
        c.table->at[i] = rt_alloc(lines * (size_t)map->elems * bytes, c.file);
    }
    if (!d->t.header)
        store_row(&c, c.table->rows++);
    while (!only_line_ends_follow(&c))
        read_row(&c);
    if (c.table->rows == 0)
        rt_fail(RT_EXIT_FAIL, "%s: has no row of data", c.file);
    rt_free(c.names);
    rt_free(c.fields);
    rt_free(c.text);
}

static void rows_all(RtData *d, int part)
{
    d->samples[part] = d->table[part].rows;
    d->row[part] = rt_alloc((size_t)d->samples[part] * sizeof(int64_t) + 1, "the list of rows");
    for (int64_t i = 0; i < d->samples[part]; i++)
        d->row[part][i] = i;
}

/* The seed draws which rows train; both lists stay in the order of the file. */
static void rows_split(RtData *d)
{
    const int64_t n = d->table[0].rows, cut = data_cut(d->t.split, n);
    bool *trains = rt_alloc((size_t)n, "the split of the rows");
    for (int64_t i = 0; i < cut; i++)
        trains[rt_permute((uint64_t)i, (uint64_t)n, d->t.seed ^ SPLIT_KEY)] = true;
    for (int part = 0; part < 2; part++)
        d->row[part] = rt_alloc((size_t)n * sizeof(int64_t), "the list of rows");
    for (int64_t i = 0; i < n; i++) {
        const int part = trains[i] ? RT_SPLIT_TRAIN : RT_SPLIT_VAL;
        d->row[part][d->samples[part]++] = i;
    }
    rt_free(trains);
    if (d->samples[RT_SPLIT_TRAIN] == 0)
        rt_fail(RT_EXIT_FAIL, "%s: split %g of %lld rows leaves none to train on", d->path[0],
                d->t.split, (long long)n);
}

void data_open_csv(RtData *d)
{
    csv_read(d, 0);
    if (d->path[1]) {
        csv_read(d, 1);
        rows_all(d, 0);
        rows_all(d, 1);
    } else {
        rows_split(d);
    }
}
