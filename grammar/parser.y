/* parser.y -- the grammar of .model files.
 *
 * In: tokens of lexer.l. Out: the syntax tree of front/ast.h. An action makes one node from what
 * was recognised and passes its span; it knows no names, no shapes and folds nothing. Reading
 * resumes after a mistake at the end of the line, or with the block that follows on it.
 */
%require "3.8"
%define api.pure full
%define api.location.type {Span}
%define api.token.prefix {TOK_}
%define api.value.type union
%define parse.error custom
%define parse.lac full
%expect 0
%locations
%param {Parser *p}
%initial-action { @$ = (Span){ p->file, 0, 0 }; }

%code requires {
#include "front/syntax.h"
}

%code {
#define YYINITDEPTH 4000                        /* nesting is limited: never grows */
#define YYMAXDEPTH  4000
#define YYLLOC_DEFAULT(here, rhs, n)                                                \
    do {                                                                            \
        Span first_ = YYRHSLOC(rhs, (n) > 0 ? 1 : 0), last_ = YYRHSLOC(rhs, n);     \
        (here) = (Span){ last_.file, (n) > 0 ? first_.lo : last_.hi, last_.hi };    \
    } while (0)

#define NODE(node_kind, ...)    ast_make(p->cx, (Ast){ .kind = (node_kind), __VA_ARGS__ })
#define ONE(node)               ast_append(p->cx, (AstList){ 0 }, node)
#define ADD(list, node)         ast_append(p->cx, list, node)
#define JOIN(list, more)        ast_concat(p->cx, list, more)
#define BINARY(o, here, sign, a, b) \
    NODE(AST_BINARY, .op = (o), .span = (here), .at = (sign), .left = (a), .right = (b))

int         yylex(YYSTYPE *value, Span *at, Parser *p);
static void yyerror(const Span *at, Parser *p, const char *text);
}

%token END 0 "the end of the file"
%token NEWLINE "the end of the line"

/* words of the language; those of the second group may name arguments, fields and settings */
%token CONST "const" INCLUDE "include" GRADIENT "gradient" RETURN "return" YIELD "yield" IF "if"
%token THEN "then" ELSE "else" FOR "for" IN "in" AS "as" OR "or" AND "and" NOT "not" TRUE "true"
%token FALSE "false"
%token <const char *> BATCH "batch" DIM "dim" LAYER "layer" FUNC "func" MODEL "model" TRAIN "train"
%token <const char *> ENTRY "entry" PARAM "param" OUTPUT "output" METRIC "metric" LOSS "loss"
%token <const char *> OPTIMIZER "optimizer"
%token <const char *> STATE "state" FROM "from" OVER "over" ALONG "along" EVERY "every"

/* signs */
%token EQ "==" NE "!=" LE "<=" GE ">=" FLOOR "//" DOTS ".." ELLIPSIS "..." ARROW "->" UPDATE "<-"

%token <const char *> NAME "a name" STRING "a string"
%token <Number>       NUMBER "a number"

/* from weakest to strongest; comparisons and ranges stand in the rules and do not chain */
%left OR
%left AND
%precedence NOT
%left '+' '-'
%left '*' '/' "//" '%' '@'
%precedence SIGN
%right '^'

%nterm <AstList> declarations declaration constants batches dims
%nterm <AstList> statements statement brackets_opt formals_in_brackets formals_in_parentheses
%nterm <AstList> formals states arrow types shape sizes others names paths args arg_list indexes
%nterm <AstList> index_list expressions elements over settings settings_block
%nterm <Ast *>   constant dim formal_in_brackets formal gradient type simple_type size block
%nterm <Ast *>   value loop scan if else initialiser path name_or_path
%nterm <Ast *>   expression logic comparison sum postfix primary element arg index range
%nterm <Ast *>   setting interval
%nterm <const char *> word role precision as
%nterm <AstOp>   compare

%%

/* ---- declarations -------------------------------------------------------------------------- */

program:
    declarations                { p->program = NODE(AST_PROGRAM, .span = @$, .items = $1); }
;

declarations:
    %empty                              { $$ = (AstList){ 0 }; }
  | declarations NEWLINE
  | declarations declaration NEWLINE    { $$ = JOIN($1, $2); yyerrok; }
  | declarations error NEWLINE          { yyerrok; }
  | declarations error block NEWLINE    { yyerrok; }
;

declaration:
    INCLUDE STRING
        { $$ = ONE(NODE(AST_INCLUDE, .span = @$, .path = $2, .path_at = @2)); }
  | CONST constants     { $$ = $2; }
  | BATCH batches       { $$ = $2; }
  | DIM dims            { $$ = $2; }
  | LAYER NAME brackets_opt formals arrow block
        { $$ = ONE(NODE(AST_LAYER, .span = span_join(@1, @5), .at = @2, .name = $2,
                        .params = $3, .args = $4, .results = $5, .body = $6)); }
  | FUNC NAME brackets_opt formals arrow block gradient
        { $$ = ONE(NODE(AST_FUNC, .span = span_join(@1, @5), .at = @2, .name = $2,
                        .params = $3, .args = $4, .results = $5, .body = $6, .other = $7)); }
  | MODEL NAME brackets_opt formals block
        { $$ = ONE(NODE(AST_MODEL, .span = span_join(@1, @4), .at = @2, .name = $2,
                        .params = $3, .args = $4, .body = $5)); }
  | OPTIMIZER NAME formals block
        { $$ = ONE(NODE(AST_OPTIMIZER, .span = span_join(@1, @3), .at = @2, .name = $2,
                        .args = $3, .body = $4)); }
  | TRAIN settings_block
        { $$ = ONE(NODE(AST_TRAIN, .span = @1, .items = $2)); }
  | TRAIN error settings_block
        { $$ = (AstList){ 0 }; }
;

constants:
    constant                            { $$ = ONE($1); }
  | constants ',' constant              { $$ = ADD($1, $3); }
;

constant:
    NAME '=' expression
        { $$ = NODE(AST_CONST, .span = @$, .at = @1, .name = $1, .value = $3); }
;

batches:
    NAME                { $$ = ONE(NODE(AST_BATCH, .span = @1, .name = $1)); }
  | batches ',' NAME    { $$ = ADD($1, NODE(AST_BATCH, .span = @3, .name = $3)); }
;

dims:
    dim                 { $$ = ONE($1); }
  | dims ',' dim        { $$ = ADD($1, $3); }
;

dim: logic { $$ = ast_dim(p->cx, @$, $1); } ;

gradient:
    %empty                              { $$ = NULL; }
  | GRADIENT formals block
        { $$ = NODE(AST_GRADIENT, .span = span_join(@1, @2), .args = $2, .body = $3); }
;

/* ---- signatures and types ------------------------------------------------------------------ */

brackets_opt:
    %empty                              { $$ = (AstList){ 0 }; }
  | '[' ']'                             { $$ = (AstList){ 0 }; }
  | '[' formals_in_brackets comma_opt ']' { $$ = $2; }
;

formals_in_brackets:
    formal_in_brackets                          { $$ = ONE($1); }
  | formals_in_brackets ',' formal_in_brackets  { $$ = ADD($1, $3); }
;

formal_in_brackets:
    NAME
        { $$ = NODE(AST_FORMAL, .span = @$, .name = $1); }
  | NAME ':' expression
        { $$ = NODE(AST_FORMAL, .span = @$, .at = @1, .name = $1, .value = $3); }
;

formals:
    '(' ')'                                 { $$ = (AstList){ 0 }; }
  | '(' formals_in_parentheses comma_opt ')' { $$ = $2; }
;

formals_in_parentheses:
    formal                                  { $$ = ONE($1); }
  | formals_in_parentheses ',' formal       { $$ = ADD($1, $3); }
;

formal:
    NAME
        { $$ = NODE(AST_FORMAL, .span = @$, .name = $1); }
  | NAME '=' expression
        { $$ = NODE(AST_FORMAL, .span = @$, .at = @1, .name = $1, .value = $3); }
  | NAME ':' type
        { $$ = NODE(AST_FORMAL, .span = @$, .at = @1, .name = $1, .type = $3); }
  | NAME ':' type '=' expression
        { $$ = NODE(AST_FORMAL, .span = @$, .at = @1, .name = $1, .type = $3, .value = $5); }
;

arrow: %empty { $$ = (AstList){ 0 }; } | ARROW types { $$ = $2; } ;

types:
    type                                { $$ = ONE($1); }
  | types ',' type                      { $$ = ADD($1, $3); }
;

type:
    simple_type
  | simple_type IN range others
        { $$ = NODE(AST_TYPE, .span = @$, .at = $1->at, .name = $1->name, .flag = $1->flag,
                    .items = $1->items, .value = $3, .args = $4); }
;

simple_type:
    NAME            { $$ = NODE(AST_TYPE, .span = @$, .name = $1); }
  | shape           { $$ = NODE(AST_TYPE, .span = @$, .flag = true, .items = $1); }
  | NAME shape      { $$ = NODE(AST_TYPE, .span = @$, .name = $1, .flag = true, .items = $2); }
;

shape:
    '[' ']'                             { $$ = (AstList){ 0 }; }
  | '[' sizes comma_opt ']'             { $$ = $2; }
;

sizes:
    size                                { $$ = ONE($1); }
  | sizes ',' size                      { $$ = ADD($1, $3); }
;

size: sum | ELLIPSIS { $$ = NODE(AST_ELLIPSIS, .span = @$); } ;

others: %empty { $$ = (AstList){ 0 }; } | others OR sum { $$ = ADD($1, $3); } ;

/* ---- statements ---------------------------------------------------------------------------- */

block:
    '{' statements '}'              { $$ = NODE(AST_BLOCK, .span = @$, .items = $2); yyerrok; }
  | '{' statements statement '}'    { $$ = NODE(AST_BLOCK, .span = @$, .items = JOIN($2, $3)); }
  | '{' statements error '}'        { $$ = NODE(AST_BLOCK, .span = @$, .items = $2); yyerrok; }
  | '{' statements error block '}'  { $$ = NODE(AST_BLOCK, .span = @$, .items = $2); }
;

statements:
    %empty                              { $$ = (AstList){ 0 }; }
  | statements NEWLINE
  | statements statement NEWLINE        { $$ = JOIN($1, $2); yyerrok; }
  | statements error NEWLINE            { yyerrok; }
  | statements error block NEWLINE      { yyerrok; }
;

statement:
    CONST constants
        { $$ = $2; }
  | PARAM NAME ':' type role initialiser as
        { $$ = ONE(NODE(AST_PARAM, .span = @$, .at = @2, .name = $2, .type = $4, .role = $5,
                        .role_at = @5, .value = $6, .path = $7, .path_at = @7)); }
  | NAME ':' expression precision as
        { $$ = ONE(NODE(AST_SUBLAYER, .span = @$, .at = @1, .name = $1, .value = $3, .role = $4,
                        .role_at = @4, .path = $5, .path_at = @5)); }
  | path '~' expression
        { $$ = ONE(NODE(AST_INIT, .span = @$, .at = @1, .left = $1, .value = $3)); }
  | names '=' value
        { $$ = ONE(NODE(AST_ASSIGN, .span = @$, .at = @1, .items = $1, .value = $3)); }
  | OUTPUT NAME
        { $$ = ONE(NODE(AST_OUTPUT, .span = @$, .at = @2, .name = $2)); }
  | OUTPUT NAME '=' expression
        { $$ = ONE(NODE(AST_OUTPUT, .span = @$, .at = @2, .name = $2, .value = $4)); }
  | METRIC NAME '=' expression
        { $$ = ONE(NODE(AST_METRIC, .span = @$, .at = @2, .name = $2, .value = $4)); }
  | LOSS '=' expression over
        { $$ = ONE(NODE(AST_LOSS, .span = @$, .at = @1, .name = $1,
                        .value = $3, .items = $4)); }
  | LOSS NAME '=' expression over
        { $$ = ONE(NODE(AST_LOSS, .span = @$, .at = @2, .name = $2, .value = $4, .items = $5)); }
  | STATE NAME ':' type '=' expression
        { $$ = ONE(NODE(AST_STATE, .span = @$, .at = @2, .name = $2, .type = $4, .value = $6)); }
  | STATE NAME ':' type FROM expression
        { $$ = ONE(NODE(AST_STATE, .span = @$, .at = @2, .name = $2, .type = $4, .flag = true,
                        .value = $6)); }
  | STATE states                        { $$ = $2; }
  | NAME UPDATE expression
        { $$ = ONE(NODE(AST_UPDATE, .span = @$, .at = @1, .name = $1, .value = $3)); }
  | RETURN expressions
        { $$ = ONE(NODE(AST_RETURN, .span = @$, .at = @1, .items = $2)); }
  | YIELD expressions
        { $$ = ONE(NODE(AST_YIELD, .span = @$, .at = @1, .items = $2)); }
  | ENTRY NAME formals block
        { $$ = ONE(NODE(AST_ENTRY, .span = span_join(@1, @3), .at = @2, .name = $2, .args = $3,
                        .body = $4)); }
  | if                                  { $$ = ONE($1); }
  | loop                                { $$ = ONE($1); }
  | scan                                { $$ = ONE($1); }
;

states:
    NAME                    { $$ = ONE(NODE(AST_STATE, .span = @1, .name = $1)); }
  | states ',' NAME         { $$ = ADD($1, NODE(AST_STATE, .span = @3, .name = $3)); }
;

role: %empty { $$ = NULL; } | NAME ;
initialiser: %empty { $$ = NULL; } | '~' expression { $$ = $2; } ;
precision: %empty { $$ = NULL; } | IN NAME { $$ = $2; } ;
as: %empty { $$ = NULL; } | AS STRING { $$ = $2; } ;
over: %empty { $$ = (AstList){ 0 }; } | OVER paths { $$ = $2; } ;

names:
    NAME                    { $$ = ONE(NODE(AST_NAME, .span = @1, .name = $1)); }
  | names ',' NAME          { $$ = ADD($1, NODE(AST_NAME, .span = @3, .name = $3)); }
;

paths:
    name_or_path                { $$ = ONE($1); }
  | paths ',' name_or_path      { $$ = ADD($1, $3); }
;

name_or_path: NAME { $$ = NODE(AST_NAME, .span = @1, .name = $1); } | path ;
path:
    NAME '.' word
        { $$ = NODE(AST_FIELD, .span = @$, .at = @3, .name = $3,
                    .left = NODE(AST_NAME, .span = @1, .name = $1)); }
  | path '.' word
        { $$ = NODE(AST_FIELD, .span = @$, .at = @3, .name = $3, .left = $1); }
;

value: expression | scan ;

loop:
    FOR names IN expressions block
        { $$ = ast_for(p->cx, (Ast){ .kind = AST_FOR, .span = span_join(@1, @4), .items = $2,
                                     .args = $4, .body = $5 }); }
  | FOR CONST NAME IN expression block
        { $$ = NODE(AST_FOR, .span = span_join(@1, @5), .at = @3, .name = $3, .flag = true,
                    .value = $5, .body = $6); }
;

scan:
    FOR names IN expressions ALONG sum block
        { $$ = NODE(AST_SCAN, .span = span_join(@1, @6), .at = @1, .items = $2, .args = $4,
                    .value = $6, .body = $7); }
;

if:
    IF expression block else
        { $$ = NODE(AST_IF, .span = span_join(@1, @2), .at = @1, .cond = $2, .body = $3,
                    .other = $4); }
;

else: %empty { $$ = NULL; } | ELSE block { $$ = $2; } | ELSE if { $$ = $2; } ;

/* ---- expressions --------------------------------------------------------------------------- */

expressions:
    expression                          { $$ = ONE($1); }
  | expressions ',' expression          { $$ = ADD($1, $3); }
;

expression:
    logic
  | range
  | IF logic THEN expression ELSE expression
        { $$ = NODE(AST_CHOICE, .span = @$, .at = @1, .cond = $2, .left = $4, .right = $6); }
;

range: sum DOTS sum { $$ = NODE(AST_RANGE, .span = @$, .at = @2, .left = $1, .right = $3); } ;
logic:
    comparison
  | logic OR logic          { $$ = BINARY(AST_OR, @$, @2, $1, $3); }
  | logic AND logic         { $$ = BINARY(AST_AND, @$, @2, $1, $3); }
  | NOT logic       { $$ = NODE(AST_UNARY, .op = AST_NOT, .span = @$, .at = @1, .right = $2); }
;

comparison:
    sum
  | sum compare sum         { $$ = BINARY($2, @$, @2, $1, $3); }
;

compare:
    "==" { $$ = AST_EQ; }   | "!=" { $$ = AST_NE; }
  | '<'  { $$ = AST_LT; }   | "<=" { $$ = AST_LE; }
  | '>'  { $$ = AST_GT; }   | ">=" { $$ = AST_GE; }
;

sum:
    postfix
  | sum '+' sum             { $$ = BINARY(AST_ADD, @$, @2, $1, $3); }
  | sum '-' sum             { $$ = BINARY(AST_SUB, @$, @2, $1, $3); }
  | sum '*' sum             { $$ = BINARY(AST_MUL, @$, @2, $1, $3); }
  | sum '/' sum             { $$ = BINARY(AST_DIV, @$, @2, $1, $3); }
  | sum "//" sum            { $$ = BINARY(AST_FLOOR_DIV, @$, @2, $1, $3); }
  | sum '%' sum             { $$ = BINARY(AST_MOD, @$, @2, $1, $3); }
  | sum '@' sum             { $$ = BINARY(AST_MATMUL, @$, @2, $1, $3); }
  | sum '^' sum             { $$ = BINARY(AST_POW, @$, @2, $1, $3); }
  | '-' sum %prec SIGN
        { $$ = NODE(AST_UNARY, .op = AST_NEG, .span = @$, .at = @1, .right = $2); }
;

postfix:
    primary
  | postfix '(' args ')'    { $$ = NODE(AST_CALL, .span = @$, .at = @1, .left = $1, .args = $3); }
  | postfix '[' indexes ']' { $$ = NODE(AST_INDEX, .span = @$, .at = @1, .left = $1, .args = $3); }
  | postfix '.' word
        { $$ = NODE(AST_FIELD, .span = @$, .at = @3, .left = $1, .name = $3); }
  | postfix '\''            { $$ = NODE(AST_TRANSPOSE, .span = @$, .at = @2, .left = $1); }
;

primary:
    NAME                    { $$ = NODE(AST_NAME, .span = @$, .name = $1); }
  | LOSS                    { $$ = NODE(AST_NAME, .span = @$, .name = $1); }
  | NUMBER                  { $$ = NODE(AST_NUMBER, .span = @$, .flag = $1.is_whole,
                                        .whole = $1.whole, .number = $1.real); }
  | STRING                  { $$ = NODE(AST_STRING, .span = @$, .name = $1); }
  | TRUE                    { $$ = NODE(AST_BOOL, .span = @$, .flag = true); }
  | FALSE                   { $$ = NODE(AST_BOOL, .span = @$); }
  | '(' arg_list comma_opt ')' { $$ = ast_paren(p->cx, @$, $2); }
  | '[' ']'                 { $$ = NODE(AST_LIST, .span = @$); }
  | '[' elements comma_opt ']' { $$ = NODE(AST_LIST, .span = @$, .items = $2); }
  | '[' expression FOR NAME IN expression ']'
        { $$ = NODE(AST_LIST_FOR, .span = @$, .at = @4, .name = $4, .value = $2, .right = $6); }
;

elements:
    element                 { $$ = ONE($1); }
  | elements ',' element    { $$ = ADD($1, $3); }
;

element: expression | ELLIPSIS { $$ = NODE(AST_ELLIPSIS, .span = @$); } ;

args:
    %empty                  { $$ = (AstList){ 0 }; }
  | arg_list comma_opt      { $$ = $1; }
;

arg_list:
    arg                     { $$ = ONE($1); }
  | arg_list ',' arg        { $$ = ADD($1, $3); }
;

arg:
    expression              { $$ = NODE(AST_ARG, .span = @$, .value = $1); }
  | word ':' expression
        { $$ = NODE(AST_ARG, .span = @$, .at = @1, .name = $1, .value = $3); }
;

indexes:
    %empty                  { $$ = (AstList){ 0 }; }
  | index_list comma_opt    { $$ = $1; }
;

index_list:
    index                   { $$ = ONE($1); }
  | index_list ',' index    { $$ = ADD($1, $3); }
;

index:
    arg
  | ':'         { $$ = NODE(AST_ARG, .span = @$, .value = NODE(AST_WHOLE, .span = @$)); }
  | ELLIPSIS    { $$ = NODE(AST_ARG, .span = @$, .value = NODE(AST_ELLIPSIS, .span = @$)); }
  | sum DOTS    { $$ = NODE(AST_ARG, .span = @$,
                            .value = NODE(AST_RANGE, .span = @$, .at = @2, .left = $1)); }
  | DOTS sum    { $$ = NODE(AST_ARG, .span = @$,
                            .value = NODE(AST_RANGE, .span = @$, .at = @1, .right = $2)); }
;

/* What may stand before ':' in a call, behind '.', and before '=' in the train block. */
word:
    NAME | BATCH | DIM | LAYER | FUNC | MODEL | TRAIN | ENTRY | PARAM | OUTPUT | METRIC | LOSS
  | STATE | FROM | OVER | ALONG | EVERY | OPTIMIZER
;

/* ---- the train block ----------------------------------------------------------------------- */

settings_block:
    '{' settings '}'                    { $$ = $2; yyerrok; }
  | '{' settings setting '}'            { $$ = ADD($2, $3); }
  | '{' settings error '}'              { $$ = $2; yyerrok; }
;

settings:
    %empty                              { $$ = (AstList){ 0 }; }
  | settings separator
  | settings setting separator          { $$ = ADD($1, $2); yyerrok; }
  | settings error separator            { yyerrok; }
;

comma_opt: %empty | ',' ;
separator: NEWLINE | ',' ;

setting:
    word '=' interval
        { $$ = NODE(AST_SETTING, .span = @$, .at = @1, .name = $1, .value = $3); }
  | word '=' interval settings_block
        { $$ = NODE(AST_SETTING, .span = span_join(@1, @3), .at = @1, .name = $1, .value = $3,
                    .flag = true, .items = $4); }
;

interval: expression | EVERY sum { $$ = NODE(AST_EVERY, .span = @$, .at = @1, .value = $2); } ;

%%

static void yyerror(const Span *at, Parser *p, const char *text)
{
    (void)text;                                 /* only ever that the stack is full */
    if (!p->stopped)
        diag_error(p->cx, *at, "nested too deep");
    p->stopped = true;
}

/* Hands the tokens that would fit to front/syntax.c, by their names in this file. */
static int yyreport_syntax_error(const yypcontext_t *seen, Parser *p)
{
    enum { MOST = YYNTOKENS };
    yysymbol_kind_t kind[MOST];
    const char     *expected[MOST];
    yysymbol_kind_t found = yypcontext_token(seen);
    int             n = yypcontext_expected_tokens(seen, kind, MOST);
    for (int i = 0; i < n; i++)
        expected[i] = yysymbol_name(kind[i]);
    syntax_error(p, *yypcontext_location(seen), yysymbol_name(found), expected, n > 0 ? n : 0);
    return 0;
}
