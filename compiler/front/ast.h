/* ast.h -- the syntax tree.
 *
 * In: the bytes of a .model file. Out: one tree of Ast nodes that says what was written and where,
 * and nothing about what it means. One struct serves every kind; the table below says which of its
 * fields a kind uses, all others are zero. Names are interned, so they compare by pointer. A tree
 * is not changed after it is parsed: what is found out about it is kept elsewhere (a Map by node).
 */
#ifndef GRADCC_AST_H
#define GRADCC_AST_H

#include "base/base.h"

typedef struct Ast Ast;
typedef VEC(Ast *) AstList;

typedef enum {
    /* ---- declarations of a file ---- */
    AST_PROGRAM,   /* items: the declarations, in order */
    AST_INCLUDE,   /* include "path": path */
    AST_CONST,     /* const V = 65: name, value. Also a statement. One node per name */
    AST_BATCH,     /* batch B: name. One node per name */
    AST_DIM,       /* dim T <= Tmax: name, cond (NULL: none). One node per name */
    AST_LAYER,     /* layer f[params](args) -> results { body }: name */
    AST_FUNC,      /* func f[params](args) -> results { body }: name; other: AST_GRADIENT */
    AST_GRADIENT,  /* ... gradient(args) { body } after a func's body */
    AST_MODEL,     /* model m[params](args) { body }: name */
    AST_OPTIMIZER, /* optimizer f(args) { body }: name */
    AST_TRAIN,     /* train { ... }: items are AST_SETTING */

    /* ---- parts of declarations ---- */
    /* a name in the brackets or parentheses of a signature: name, type (NULL: not written),
       value (default, NULL: none). In brackets `bias: true`, in parentheses `eps: real = 1e-5` */
    AST_FORMAL,
    /* int[B, T] in 0..V or -100: name (int, real, bool; NULL: not written), flag: a shape was
       written; items: dims (expressions, AST_ELLIPSIS); value: AST_RANGE or NULL; args: the
       values after `or` */
    AST_TYPE,
    /* key = value { items }: name, value (may be AST_EVERY), items: nested settings; flag: a
       block was written */
    AST_SETTING,

    /* ---- statements ---- */
    AST_BLOCK, /* { items } */
    AST_PARAM, /* param name: type role ~ value as "path": role, value, path or NULL */
    /* name : value in fp32 as "path": value is f[...], f[...] * L, a name, AST_LIST, AST_LIST_FOR
       or AST_CHOICE; role: the precision, path: both or NULL */
    AST_SUBLAYER,
    AST_INIT, /* wte.weight ~ normal(0, 0.02): left (names and fields), value */
    /* q, k, v = value: items (AST_NAME, `_` for unused), value (expression, or AST_SCAN) */
    AST_ASSIGN,
    AST_OUTPUT, /* output name = value; value NULL: `output name` of a value there is */
    AST_METRIC, /* metric name = value */
    /* loss = value, loss name = value over D: name ("loss" when not written), value, items: the
       names after over */
    AST_LOSS,
    /* state name: type = value, or with flag: from value; in an optimizer name alone. One node per
       name */
    AST_STATE,
    AST_UPDATE, /* name <- value */
    AST_RETURN, /* return items */
    AST_YIELD,  /* yield items */
    AST_IF,     /* if cond { body } else other: other is AST_BLOCK, AST_IF or NULL */
    AST_FOR,    /* for name in value { body }; flag: for const */
    /* for xt, mt in x, m along T { body }: items (AST_NAME), args (what they run over), value
       (the axis: a name or a number). A statement, or the value of an AST_ASSIGN */
    AST_SCAN,
    AST_ENTRY, /* entry name(args) { body }, inside a model */

    /* ---- expressions ---- */
    AST_NUMBER, /* 3, 1e-5: number; flag: written without point and exponent, then whole */
    AST_STRING, /* "text": name holds the text with escapes resolved */
    AST_BOOL,   /* true, false: flag */
    AST_NAME,   /* name */
    AST_FIELD,  /* left.name */
    AST_CALL,   /* left(args): args are AST_ARG */
    /* left[args]: args are AST_ARG; an axis of a value, an element of a stack or tuple, or the
       arguments of a layer */
    AST_INDEX,
    AST_ARG,       /* name: value, or value alone (name NULL) */
    AST_TRANSPOSE, /* left' */
    AST_UNARY,     /* op right */
    AST_BINARY,    /* left op right */
    AST_RANGE,     /* left..right, half open; in brackets either may be NULL */
    AST_WHOLE,     /* : in brackets, the whole axis */
    AST_ELLIPSIS,  /* ... in brackets and types, any number of axes */
    AST_TUPLE,     /* (a, b), (T: 128): args are AST_ARG */
    AST_LIST,      /* [a, b]: items; in sizes AST_ELLIPSIS may be one */
    AST_LIST_FOR,  /* [value for name in right] */
    AST_CHOICE,    /* if cond then left else right */
    AST_EVERY,     /* every 200: value. Only in the train block */
    AST_BAD,       /* what could not be parsed; the error is already reported */
    AST_KIND_COUNT
} AstKind;

typedef enum {
    AST_OP_NONE,
    AST_OR,
    AST_AND,
    AST_NOT, /* or and not */
    AST_EQ,
    AST_NE,
    AST_LT,
    AST_LE,
    AST_GT,
    AST_GE, /* == != < <= > >= */
    AST_ADD,
    AST_SUB,
    AST_MUL,
    AST_DIV, /* + - * / */
    AST_FLOOR_DIV,
    AST_MOD,
    AST_MATMUL,
    AST_POW, /* // % @ ^ */
    AST_NEG, /* unary - */
    AST_OP_COUNT
} AstOp;

struct Ast {
    AstKind kind;
    AstOp op;  /* of AST_UNARY and AST_BINARY */
    bool flag; /* see the kind */
    /* the whole construct, without its body for declarations and loops (from keyword to the end
       of the head) */
    Span span;
    Span at;               /* where a caret goes: the name or the operator */
    const char *name;      /* interned */
    const char *role;      /* of AST_PARAM, AST_SUBLAYER: interned, NULL: not written */
    const char *path;      /* after as, or of an include: NULL: not written */
    Span path_at, role_at; /* where they stand */
    double number;         /* of AST_NUMBER, always set */
    int64_t whole;         /* of AST_NUMBER with flag */
    Ast *type;             /* AST_TYPE */
    Ast *value;            /* what is assigned, the default, the axis */
    Ast *cond;             /* the condition */
    Ast *left, *right;     /* operands; the thing called or indexed */
    Ast *body;             /* AST_BLOCK */
    Ast *other;            /* the else part; a function's gradient */
    AstList params;        /* AST_FORMAL in brackets */
    AstList args;          /* AST_FORMAL in parentheses; AST_ARG of a call */
    AstList results;       /* AST_TYPE after ->; empty: not written */
    AstList items;         /* children of a list */
    int depth;             /* 1 + that of the deepest child */
};

enum { AST_DEPTH_MAX = 200 }; /* nesting of expressions and blocks */

/* ---- parsing (grammar/parser.y, front/include.c) ------------------------------------------- */

/* The tree of one file, includes not followed. Never NULL; mistakes are in cx's messages. */
Ast *parse_source(Context *cx, int file);

/* The same with each include replaced by the declarations of its file. A path is looked up beside
   the including file, then in dirs. A file included twice counts once; a cycle is an error. */
Ast *parse_program(Context *cx, int file, const char *const *dirs, int n_dirs);

/* ---- constructors (front/ast.c), called by the grammar ------------------------------------- */

/* A node from the fields that are set; at defaults to span. Too deep a tree is an error. */
Ast *ast_make(Context *cx, Ast fields);
AstList ast_append(Context *cx, AstList list, Ast *item); /* item NULL: list as it is */
AstList ast_concat(Context *cx, AstList list, AstList more);
Ast *ast_dim(Context *cx, Span span, Ast *condition); /* T, T <= Tmax, W % 16 == 0 */
Ast *ast_paren(Context *cx, Span span, AstList args); /* (a): a; otherwise a tuple */
Ast *ast_for(Context *cx, Ast fields);                /* args has what items run over */

/* ---- reading ------------------------------------------------------------------------------- */

/* The tree as text: one declaration or statement per line, expressions as (op left right). */
void ast_print(Text *out, const Ast *tree);

const char *ast_kind_text(AstKind kind); /* "layer", "for loop": words for messages */
const char *ast_op_text(AstOp op);       /* "+", "and" */

/* An expression in the model's notation, on one line: "h @ w' + b". For comments and messages. */
const char *ast_expr_text(Context *cx, const Ast *e);

/* An argument by name, or NULL. */
const Ast *ast_find_arg(const AstList *args, const char *interned_name);

#endif
