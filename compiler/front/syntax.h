/* syntax.h -- what lexer and parser share while one file is read.
 *
 * In: tokens as they are found. Out: where a line ends a statement, where reading resumes after a
 * mistake, and what is said about the mistake. Seen by the grammar and by front/syntax.c only.
 */
#ifndef GRADCC_SYNTAX_H
#define GRADCC_SYNTAX_H

#include "front/ast.h"

typedef struct { /* one of ( [ { that is not closed yet */
    char open;
    Span at;
} Bracket;

typedef struct { /* real is always set */
    bool is_whole;
    int64_t whole;
    double real;
} Number;

/* What the reader needs to know of a token; its text is in the source. */
typedef struct {
    Span at;
    bool name;  /* a name, not a word of the language */
    bool value; /* an operand may end here: name, number, ) ] ' */
    bool first; /* a statement begins with it */
} TokenInfo;

typedef struct {
    Context *cx;
    int file; /* number of the source */
    const Source *source;
    void *scanner;         /* flex */
    uint32_t offset;       /* where the next token begins */
    VEC(Bracket) brackets; /* open ones, outermost first */
    TokenInfo before, now; /* the last two tokens */
    TokenInfo line;        /* the first token of the statement */
    char bracket;          /* the last token if it is one: not counted yet */
    bool ended;            /* the next token begins a statement */
    bool joins;            /* a line end now means nothing */
    bool recovering;       /* skip to the end of the statement */
    bool stopped;          /* nothing more is read or reported */
    bool brace_reported;   /* a missing } has been told */
    Ast *program;          /* the result; NULL: there is none */
} Parser;

/* ---- front/syntax.c ------------------------------------------------------------------------ */

/* UTF-8 without zero bytes? Steps over a byte order mark. */
bool syntax_check_bytes(Parser *p);
/* Counts the bracket that was read last, after the parser had its say about it. */
void syntax_count_bracket(Parser *p);
bool syntax_line_joins(const Parser *p); /* does the statement go on behind the \n? */

bool syntax_in_parentheses(const Parser *p); /* or in square brackets */
void syntax_recover(Parser *p);              /* skip to the end of the statement */

/* An error inside a token: reported, unless the rest of a line is being skipped; the caller returns
   the error token. */
void syntax_bad_string(Parser *p, Span at);    /* without an end */
void syntax_bad_character(Parser *p, Span at); /* that begins no token */
void syntax_bad_number(Parser *p, Span at);    /* 12abc */
void syntax_bad_point(Parser *p, Span at);     /* 1. and .5 */
void syntax_bad_sign(Parser *p, Span at);      /* signs of other languages */
/* The text of a string between its quotes, escapes resolved; NULL after a reported error. */
const char *syntax_string(Parser *p, Span at, const char *s, size_t len);
/* A number; false after an error: it is too large. */
bool syntax_whole(Parser *p, Span at, const char *s, int64_t *value);
bool syntax_real(Parser *p, Span at, const char *s, double *value);
bool syntax_bytes(Parser *p, Span at, const char *s, Number *n); /* 6 GiB: that many bytes */

/* A token that does not fit. found and expected are the names that the grammar gives to tokens. */
void syntax_error(Parser *p, Span at, const char *found, const char *const *expected, int n);

#endif
