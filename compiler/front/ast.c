/* ast.c -- making and reading nodes of the syntax tree.
 *
 * In: what the grammar recognised. Out: nodes in the arena of the compilation. Every node knows how
 * deep its tree is, so that whatever walks it later may recurse without a check of its own.
 */
#include "front/ast.h"

/* ---- making -------------------------------------------------------------------------------- */

/* A statement stands on its own: what was too deep in it is reported and no longer counts. */
static int deeper(AstKind kind, int depth, const Ast *child)
{
    if (child != NULL && child->kind == AST_BAD && kind < AST_NUMBER)
        return depth;
    return child != NULL && child->depth > depth ? child->depth : depth;
}

static int deepest(AstKind kind, int depth, const AstList *list)
{
    for (int i = 0; i < list->len; i++)
        depth = deeper(kind, depth, list->at[i]);
    return depth;
}

/* How deep the children of a node are. */
static int depth_below(const Ast *a)
{
    const Ast *child[] = { a->type, a->value, a->cond, a->left, a->right, a->body, a->other };
    const AstList *list[] = { &a->params, &a->args, &a->results, &a->items };
    int depth = 0;
    for (size_t i = 0; i < sizeof child / sizeof *child; i++)
        depth = deeper(a->kind, depth, child[i]);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        depth = deepest(a->kind, depth, list[i]);
    return depth;
}

Ast *ast_make(Context *cx, Ast fields)
{
    Ast *a = NEW(cx->arena, Ast);
    int depth = depth_below(&fields);
    if (depth == AST_DEPTH_MAX) {
        Diag *d = diag_error(cx, fields.span, "nested more than %d deep", AST_DEPTH_MAX);
        diag_hint(d, "give a part of it a name of its own");
    }
    if (depth >= AST_DEPTH_MAX) {
        Ast bad = { .kind = AST_BAD,
                    .span = fields.span,
                    .at = fields.span,
                    .depth = AST_DEPTH_MAX + 1 };
        *a = bad;
        return a;
    }
    *a = fields;
    a->depth = depth + 1;
    if (a->at.file == 0)
        a->at = a->span;
    return a;
}

AstList ast_append(Context *cx, AstList list, Ast *item)
{
    if (item != NULL)
        vec_push(cx->arena, &list, item);
    return list;
}

AstList ast_concat(Context *cx, AstList list, AstList more)
{
    for (int i = 0; i < more.len; i++)
        vec_push(cx->arena, &list, more.at[i]);
    return list;
}

Ast *ast_dim(Context *cx, Span span, Ast *condition)
{
    const Ast *first = condition;
    while (first->kind == AST_BINARY)
        first = first->left;
    if (first->kind != AST_NAME) {
        if (first->kind != AST_BAD)
            diag_hint(diag_error(cx, first->span, "a dim begins with its name"),
                      "write it as in: dim T <= Tmax, or: dim W %% 16 == 0");
        return NULL;
    }
    Ast fields = { .kind = AST_DIM,
                   .span = span,
                   .at = first->span,
                   .name = first->name,
                   .cond = condition == first ? NULL : condition };
    return ast_make(cx, fields);
}

Ast *ast_paren(Context *cx, Span span, AstList args)
{
    if (args.len == 1 && args.at[0]->name == NULL)
        return args.at[0]->value;
    Ast fields = { .kind = AST_TUPLE, .span = span, .args = args };
    return ast_make(cx, fields);
}

Ast *ast_for(Context *cx, Ast fields)
{
    if (fields.items.len != 1 || fields.args.len != 1) {
        Diag *d = diag_error(cx, fields.span, "a loop has one name and one range");
        diag_hint(d, "a scan says the axis: for a, b in x, y along T { ... }");
    }
    fields.name = fields.items.at[0]->name;
    fields.at = fields.items.at[0]->span;
    fields.value = fields.args.at[0];
    fields.items = (AstList){ 0 };
    fields.args = (AstList){ 0 };
    return ast_make(cx, fields);
}

/* ---- reading ------------------------------------------------------------------------------- */

const Ast *ast_find_arg(const AstList *args, const char *interned_name)
{
    for (int i = 0; i < args->len; i++)
        if (args->at[i]->name == interned_name)
            return args->at[i];
    return NULL;
}

const char *ast_kind_text(AstKind kind)
{
    static const char *const text[AST_KIND_COUNT] = {
        [AST_PROGRAM] = "program",
        [AST_INCLUDE] = "include",
        [AST_CONST] = "const",
        [AST_BATCH] = "batch",
        [AST_DIM] = "dim",
        [AST_LAYER] = "layer",
        [AST_FUNC] = "function",
        [AST_GRADIENT] = "gradient",
        [AST_MODEL] = "model",
        [AST_OPTIMIZER] = "optimizer",
        [AST_TRAIN] = "train block",
        [AST_FORMAL] = "argument",
        [AST_TYPE] = "type",
        [AST_SETTING] = "setting",
        [AST_BLOCK] = "block",
        [AST_PARAM] = "parameter",
        [AST_SUBLAYER] = "sublayer",
        [AST_INIT] = "initialiser",
        [AST_ASSIGN] = "assignment",
        [AST_OUTPUT] = "output",
        [AST_METRIC] = "metric",
        [AST_LOSS] = "loss",
        [AST_STATE] = "state",
        [AST_UPDATE] = "update",
        [AST_RETURN] = "return",
        [AST_YIELD] = "yield",
        [AST_IF] = "if",
        [AST_FOR] = "for loop",
        [AST_SCAN] = "scan",
        [AST_ENTRY] = "entry",
        [AST_NUMBER] = "number",
        [AST_STRING] = "string",
        [AST_BOOL] = "truth value",
        [AST_NAME] = "name",
        [AST_FIELD] = "field",
        [AST_CALL] = "call",
        [AST_INDEX] = "index",
        [AST_ARG] = "argument",
        [AST_TRANSPOSE] = "transposition",
        [AST_UNARY] = "expression",
        [AST_BINARY] = "expression",
        [AST_RANGE] = "range",
        [AST_WHOLE] = "whole axis",
        [AST_ELLIPSIS] = "...",
        [AST_TUPLE] = "tuple",
        [AST_LIST] = "list",
        [AST_LIST_FOR] = "list",
        [AST_CHOICE] = "if expression",
        [AST_EVERY] = "interval",
        [AST_BAD] = "mistake",
    };
    return text[kind];
}

const char *ast_op_text(AstOp op)
{
    static const char *const text[AST_OP_COUNT] = {
        [AST_OP_NONE] = "", [AST_OR] = "or", [AST_AND] = "and",      [AST_NOT] = "not",
        [AST_EQ] = "==",    [AST_NE] = "!=", [AST_LT] = "<",         [AST_LE] = "<=",
        [AST_GT] = ">",     [AST_GE] = ">=", [AST_ADD] = "+",        [AST_SUB] = "-",
        [AST_MUL] = "*",    [AST_DIV] = "/", [AST_FLOOR_DIV] = "//", [AST_MOD] = "%",
        [AST_MATMUL] = "@", [AST_POW] = "^", [AST_NEG] = "-",
    };
    return text[op];
}
