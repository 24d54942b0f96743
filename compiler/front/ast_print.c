/* ast_print.c -- the syntax tree as text.
 *
 * In: a tree. Out: for people and golden tests, one line per declaration and statement, bodies
 * indented, expressions as (operator operands) so that binding is visible; and, for comments and
 * messages, an expression as the model writes it, with only the parentheses it needs.
 */
#include "front/ast.h"

#include <string.h>

/* ---- expressions as (op operands) ---------------------------------------------------------- */

static void print_expr(Text *out, const Ast *e);

static void print_number(Text *out, const Ast *e)
{
    char text[40];
    double back = 0;
    if (e->flag) {
        text_add(out, "%lld", (long long)e->whole);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) { /* the shortest that reads back */
        snprintf(text, sizeof text, "%.*g", digits, e->number);
        if (sscanf(text, "%lf", &back) == 1 && back >= e->number && back <= e->number)
            break;
    }
    text_put(out, text);
    if (strpbrk(text, ".en") == NULL)
        text_put(out, ".0");
}

static void print_string(Text *out, const char *s)
{
    text_put(out, "\"");
    for (; *s != '\0'; s++) {
        const char *escape = *s == '\n'   ? "\\n"
                             : *s == '\t' ? "\\t"
                             : *s == '"'  ? "\\\""
                             : *s == '\\' ? "\\\\"
                                          : NULL;
        if (escape != NULL)
            text_put(out, escape);
        else
            text_putn(out, s, 1);
    }
    text_put(out, "\"");
}

static void print_list(Text *out, const char *head, const AstList *list)
{
    text_add(out, "(%s", head);
    for (int i = 0; i < list->len; i++) {
        text_put(out, " ");
        print_expr(out, list->at[i]);
    }
    text_put(out, ")");
}

/* (head a b ...), up to the first NULL of three operands; a missing bound of a range is _. */
static void print_form(Text *out, const char *head, const Ast *a, const Ast *b, const Ast *c)
{
    const Ast *operand[] = { a, b, c };
    text_add(out, "(%s", head);
    for (int i = 0; i < 3; i++)
        if (operand[i] != NULL) {
            text_put(out, " ");
            print_expr(out, operand[i]);
        }
    text_put(out, ")");
}

static void print_applied(Text *out, const char *head, const Ast *e)
{
    text_add(out, "(%s ", head);
    print_expr(out, e->left);
    for (int i = 0; i < e->args.len; i++) {
        text_put(out, " ");
        print_expr(out, e->args.at[i]);
    }
    text_put(out, ")");
}

static void print_expr(Text *out, const Ast *e)
{
    if (e == NULL) {
        text_put(out, "_");
        return;
    }
    switch (e->kind) {
    case AST_NAME: text_put(out, e->name); break;
    case AST_NUMBER: print_number(out, e); break;
    case AST_STRING: print_string(out, e->name); break;
    case AST_BOOL: text_put(out, e->flag ? "true" : "false"); break;
    case AST_WHOLE: text_put(out, ":"); break;
    case AST_ELLIPSIS: text_put(out, "..."); break;
    case AST_ARG:
        if (e->name != NULL)
            text_add(out, "%s: ", e->name);
        print_expr(out, e->value);
        break;
    case AST_FIELD:
        text_put(out, "(. ");
        print_expr(out, e->left);
        text_add(out, " %s)", e->name);
        break;
    case AST_CALL: print_applied(out, "call", e); break;
    case AST_INDEX: print_applied(out, "index", e); break;
    case AST_TRANSPOSE: print_form(out, "'", e->left, NULL, NULL); break;
    case AST_UNARY: print_form(out, ast_op_text(e->op), e->right, NULL, NULL); break;
    case AST_BINARY: print_form(out, ast_op_text(e->op), e->left, e->right, NULL); break;
    case AST_CHOICE: print_form(out, "if", e->cond, e->left, e->right); break;
    case AST_EVERY: print_form(out, "every", e->value, NULL, NULL); break;
    case AST_TUPLE: print_list(out, "tuple", &e->args); break;
    case AST_LIST: print_list(out, "list", &e->items); break;
    case AST_LIST_FOR:
        text_add(out, "(list-for %s ", e->name);
        print_expr(out, e->right);
        text_put(out, " ");
        print_expr(out, e->value);
        text_put(out, ")");
        break;
    case AST_RANGE:
        text_put(out, "(.. ");
        print_expr(out, e->left);
        text_put(out, " ");
        print_expr(out, e->right);
        text_put(out, ")");
        break;
    default: text_add(out, "<%s>", ast_kind_text(e->kind)); break;
    }
}

static void print_type(Text *out, const Ast *t)
{
    text_put(out, t->name != NULL ? t->name : "");
    if (t->flag) {
        text_put(out, "[");
        for (int i = 0; i < t->items.len; i++) {
            text_put(out, i > 0 ? ", " : "");
            print_expr(out, t->items.at[i]);
        }
        text_put(out, "]");
    }
    if (t->value != NULL) {
        text_put(out, " in ");
        print_expr(out, t->value);
    }
    for (int i = 0; i < t->args.len; i++) {
        text_put(out, " or ");
        print_expr(out, t->args.at[i]);
    }
}

/* ---- declarations and statements, a line each ---------------------------------------------- */

static void print_line(Text *out, const Ast *a, int indent);

static void print_lines(Text *out, const AstList *list, int indent)
{
    for (int i = 0; i < list->len; i++)
        print_line(out, list->at[i], indent);
}

static void print_indent(Text *out, int indent) { text_add(out, "%*s", 2 * indent, ""); }

/* ": type = value" and what else a head may carry. */
static void print_tail(Text *out, const Ast *a, const char *sign)
{
    if (a->type != NULL) {
        text_put(out, ": ");
        print_type(out, a->type);
    }
    if (a->role != NULL && a->kind == AST_PARAM)
        text_add(out, " %s", a->role);
    if (a->value != NULL && a->value->kind != AST_SCAN) {
        text_add(out, " %s ", sign);
        print_expr(out, a->value);
    }
    if (a->role != NULL && a->kind == AST_SUBLAYER)
        text_add(out, " in %s", a->role);
    if (a->path != NULL) {
        text_put(out, " as ");
        print_string(out, a->path);
    }
}

static void print_formals(Text *out, const AstList *list, const char *word, int indent)
{
    for (int i = 0; i < list->len; i++) {
        print_indent(out, indent);
        text_add(out, "%s %s", word, list->at[i]->name);
        print_tail(out, list->at[i], "=");
        text_put(out, "\n");
    }
}

static void print_signature(Text *out, const Ast *a, int indent)
{
    print_formals(out, &a->params, "bracket", indent);
    print_formals(out, &a->args, "input", indent);
    for (int i = 0; i < a->results.len; i++) {
        print_indent(out, indent);
        text_put(out, "result ");
        print_type(out, a->results.at[i]);
        text_put(out, "\n");
    }
}

static void print_names(Text *out, const AstList *list)
{
    for (int i = 0; i < list->len; i++) {
        text_put(out, i > 0 ? ", " : "");
        print_expr(out, list->at[i]);
    }
}

static void print_block(Text *out, const Ast *block, const char *word, int indent)
{
    print_indent(out, indent);
    text_add(out, "%s\n", word);
    print_lines(out, &block->items, indent + 1);
}

/* The words of a line about values: what is set, returned or repeated. */
static void print_flow(Text *out, const Ast *a)
{
    switch (a->kind) {
    case AST_ASSIGN:
        text_put(out, "set ");
        print_names(out, &a->items);
        print_tail(out, a, "=");
        break;
    case AST_RETURN:
    case AST_YIELD:
        text_put(out, a->kind == AST_RETURN ? "return " : "yield ");
        print_names(out, &a->items);
        break;
    case AST_IF:
        text_put(out, "if ");
        print_expr(out, a->cond);
        break;
    case AST_FOR:
        text_add(out, "for %s%s", a->flag ? "const " : "", a->name);
        print_tail(out, a, "in");
        break;
    case AST_SCAN:
        text_put(out, "scan ");
        print_names(out, &a->items);
        text_put(out, " in ");
        print_names(out, &a->args);
        text_put(out, " along ");
        print_expr(out, a->value);
        break;
    default: print_expr(out, a); break;
    }
}

/* The words at the start of a line, up to a body that goes below it. */
static void print_head(Text *out, const Ast *a)
{
    switch (a->kind) {
    case AST_INCLUDE:
        text_put(out, "include ");
        print_string(out, a->path);
        break;
    case AST_DIM:
        text_add(out, "dim %s%s", a->name, a->cond != NULL ? " where " : "");
        if (a->cond != NULL)
            print_expr(out, a->cond);
        break;
    case AST_SUBLAYER:
        text_add(out, "sublayer %s", a->name);
        print_tail(out, a, ":");
        break;
    case AST_PARAM:
        text_add(out, "param %s", a->name);
        print_tail(out, a, "~");
        break;
    case AST_STATE:
        text_add(out, "state %s", a->name);
        print_tail(out, a, a->flag ? "from" : "=");
        break;
    case AST_INIT:
        text_put(out, "init ");
        print_expr(out, a->left);
        print_tail(out, a, "~");
        break;
    case AST_UPDATE:
        text_add(out, "update %s", a->name);
        print_tail(out, a, "<-");
        break;
    case AST_LOSS:
        text_add(out, "loss %s", a->name);
        print_tail(out, a, "=");
        if (a->items.len > 0)
            text_put(out, " over ");
        print_names(out, &a->items);
        break;
    case AST_SETTING:
    case AST_CONST:
    case AST_BATCH:
    case AST_LAYER:
    case AST_FUNC:
    case AST_MODEL:
    case AST_OUTPUT:
    case AST_METRIC:
    case AST_ENTRY:
    case AST_OPTIMIZER:
    case AST_TRAIN:
    case AST_GRADIENT:
        text_put(out, a->kind == AST_FUNC    ? "func"
                      : a->kind == AST_TRAIN ? "train"
                                             : ast_kind_text(a->kind));
        text_add(out, "%s%s", a->name != NULL ? " " : "", a->name != NULL ? a->name : "");
        print_tail(out, a, "=");
        break;
    default: print_flow(out, a); break;
    }
    text_put(out, "\n");
}

static void print_line(Text *out, const Ast *a, int indent)
{
    print_indent(out, indent);
    print_head(out, a);
    if (a->kind == AST_ASSIGN && a->value->kind == AST_SCAN)
        print_line(out, a->value, indent + 1);
    if (a->kind == AST_TRAIN || a->kind == AST_SETTING)
        print_lines(out, &a->items, indent + 1);
    if (a->body == NULL)
        return;
    if (a->kind == AST_SCAN || a->kind == AST_FOR || a->kind == AST_IF) {
        print_lines(out, &a->body->items, indent + 1);
    } else {
        print_signature(out, a, indent + 1);
        print_block(out, a->body, "body", indent + 1);
    }
    if (a->other == NULL)
        return;
    if (a->other->kind == AST_BLOCK) {
        print_block(out, a->other, "else", indent);
    } else if (a->other->kind == AST_IF) {
        print_indent(out, indent);
        text_put(out, "else\n");
        print_line(out, a->other, indent + 1);
    } else {
        print_line(out, a->other, indent + 1);
    }
}

void ast_print(Text *out, const Ast *tree)
{
    if (tree->kind == AST_PROGRAM)
        print_lines(out, &tree->items, 0);
    else
        print_line(out, tree, 0);
}

/* ---- expressions as the model writes them -------------------------------------------------- */

enum {
    BIND_CHOICE,
    BIND_RANGE,
    BIND_OR,
    BIND_AND,
    BIND_NOT,
    BIND_COMPARE,
    BIND_SUM,
    BIND_PRODUCT,
    BIND_SIGN,
    BIND_POWER,
    BIND_POSTFIX
};

static int binding(const Ast *e)
{
    switch (e->kind) {
    case AST_CHOICE: return BIND_CHOICE;
    case AST_RANGE: return BIND_RANGE;
    case AST_UNARY: return e->op == AST_NOT ? BIND_NOT : BIND_SIGN;
    case AST_BINARY:
        return e->op == AST_OR    ? BIND_OR
               : e->op == AST_AND ? BIND_AND
               : e->op <= AST_GE  ? BIND_COMPARE
               : e->op <= AST_SUB ? BIND_SUM
               : e->op == AST_POW ? BIND_POWER
                                  : BIND_PRODUCT;
    default: return BIND_POSTFIX;
    }
}

static void write_expr(Text *out, const Ast *e, int least);

static void write_args(Text *out, const AstList *list, const char *open, const char *close)
{
    text_put(out, open);
    for (int i = 0; i < list->len; i++) {
        const Ast *a = list->at[i];
        text_put(out, i > 0 ? ", " : "");
        if (a->kind == AST_ARG && a->name != NULL)
            text_add(out, "%s: ", a->name);
        write_expr(out, a->kind == AST_ARG ? a->value : a, BIND_CHOICE);
    }
    text_put(out, close);
}

static void write_binary(Text *out, const Ast *e, int own)
{
    bool right = e->op == AST_POW; /* binds to the right; comparisons to none */
    bool none = own == BIND_COMPARE;
    write_expr(out, e->left, own + (right || none));
    text_add(out, e->op == AST_POW ? "%s" : " %s ", ast_op_text(e->op));
    write_expr(out, e->right, e->op == AST_POW ? BIND_SIGN : own + 1);
}

static void write_bare(Text *out, const Ast *e, int own)
{
    switch (e->kind) {
    case AST_BINARY: write_binary(out, e, own); break;
    case AST_UNARY:
        text_put(out, e->op == AST_NOT ? "not " : "-");
        write_expr(out, e->right, own);
        break;
    case AST_CALL:
        write_expr(out, e->left, BIND_POSTFIX);
        write_args(out, &e->args, "(", ")");
        break;
    case AST_INDEX:
        write_expr(out, e->left, BIND_POSTFIX);
        write_args(out, &e->args, "[", "]");
        break;
    case AST_FIELD:
        write_expr(out, e->left, BIND_POSTFIX);
        text_add(out, ".%s", e->name);
        break;
    case AST_TRANSPOSE:
        write_expr(out, e->left, BIND_POSTFIX);
        text_put(out, "'");
        break;
    case AST_RANGE:
        if (e->left != NULL)
            write_expr(out, e->left, BIND_SUM);
        text_put(out, "..");
        if (e->right != NULL)
            write_expr(out, e->right, BIND_SUM);
        break;
    case AST_CHOICE:
        text_put(out, "if ");
        write_expr(out, e->cond, BIND_OR);
        text_put(out, " then ");
        write_expr(out, e->left, BIND_CHOICE);
        text_put(out, " else ");
        write_expr(out, e->right, BIND_CHOICE);
        break;
    case AST_TUPLE: write_args(out, &e->args, "(", ")"); break;
    case AST_LIST: write_args(out, &e->items, "[", "]"); break;
    case AST_LIST_FOR:
        text_put(out, "[");
        write_expr(out, e->value, BIND_CHOICE);
        text_add(out, " for %s in ", e->name);
        write_expr(out, e->right, BIND_CHOICE);
        text_put(out, "]");
        break;
    default: print_expr(out, e); break;
    }
}

static void write_expr(Text *out, const Ast *e, int least)
{
    int own = binding(e);
    bool enclosed = own < least;
    text_put(out, enclosed ? "(" : "");
    write_bare(out, e, own);
    text_put(out, enclosed ? ")" : "");
}

const char *ast_expr_text(Context *cx, const Ast *e)
{
    Text t = text_new(cx->arena);
    write_expr(&t, e, BIND_CHOICE);
    return t.at;
}
