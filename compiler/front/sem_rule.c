/* sem_rule.c -- what an optimizer does with each element of a parameter.
 *
 * In: the body of `optimizer name(lr, ...) { ... }` and the values of its arguments. Out: the new
 * parameter and the new states as Exprs over p, g, lr, decay, t, the states and the numbers. The
 * one idea: a rule is read once, for one element. Numbers may be set when the program starts, so an
 * `if` or a require on a number also limits what the program's option for it takes.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

enum { STATES_MAX = 8 }; /* as many as rt.h has room for */

typedef struct {
    const char *name;
    bool set;
    Span span;
} State;

typedef struct {
    Sem *s;
    Decl *decl;
    RuleArgs *args;
    Scope *known; /* the arguments as numbers: for conditions */
    VEC(State) states;
    bool set_p, failed; /* p is set; a statement could not be read: names may lack for that */
    Text text;
} Rule;

/* ---- what is given ------------------------------------------------------------------------- */

static const char given_names[] = "p g lr decay t"; /* in the order of SEM_RULE_P ... */

static Expr *given(Rule *r, int index)
{
    Expr *e = expr_new(r->s, EX_COUNTER, sem_type(r->s, DT_F32, 0, NULL), 0, NULL,
                       r->decl->ast->at);
    e->index = index;
    return e;
}

static void bind(Rule *r, const char *name, Thing *t)
{
    scope_set(r->s, r->s->frame->scope, intern(r->s->cx, name), t);
}

/* The leaf that stands for `index` until the states are counted: numbers follow on them. */
static void bind_given(Rule *r)
{
    Sem *s = r->s;
    for (int i = 0; i < SEM_RULE_STATES; i++) {
        const char *from = given_names;
        for (int k = 0; k < i; k++)
            from += strcspn(from, " ") + 1;
        if (i != SEM_RULE_DECAY || s->out->train.rule.decays)
            bind(r, arena_strndup(s->arena, from, strcspn(from, " ")), thing_value(s, given(r, i)));
    }
    for (int i = 0; i < r->args->len; i++) {
        const RuleArg *a = &r->args->at[i];
        Thing *number = a->flag ? thing_bool(s, a->yes, a->span) : thing_real(s, a->value, a->span);
        scope_set(s, r->known, a->name, number);
        bind(r, a->name,
             a->flag ? number : thing_value(s, given(r, SEM_RULE_STATES + STATES_MAX + i)));
    }
}

static RuleArg *find_arg(Rule *r, const char *name)
{
    for (int i = 0; i < r->args->len; i++)
        if (r->args->at[i].name == name)
            return &r->args->at[i];
    return NULL;
}

static State *find_state(Rule *r, const char *name)
{
    for (int i = 0; i < r->states.len; i++)
        if (r->states.at[i].name == name)
            return &r->states.at[i];
    return NULL;
}

/* ---- conditions ---------------------------------------------------------------------------- */

/* Limits an argument to numbers for which `argument op v` holds. */
static void limit(RuleArg *a, AstOp op, double v)
{
    const double step = v > 0 || v < 0 ? 1e-7 * fabs(v) : 1e-30;
    const double lo = op == AST_GT ? v + step : v, hi = op == AST_LT ? v - step : v;
    if ((op == AST_GT || op == AST_GE || op == AST_EQ) && lo > a->lo)
        a->lo = lo;
    if ((op == AST_LT || op == AST_LE || op == AST_EQ) && hi < a->hi)
        a->hi = hi;
}

static AstOp opposite(AstOp op)
{
    return op == AST_GT   ? AST_LE
           : op == AST_GE ? AST_LT
           : op == AST_LT ? AST_GE
           : op == AST_LE ? AST_GT
           : op == AST_EQ ? AST_NE
                          : AST_EQ;
}

/* Numbers in a condition that was decided stay as they are. */
static void fix(Rule *r, const Ast *a)
{
    if (!a)
        return;
    RuleArg *arg = a->kind == AST_NAME ? find_arg(r, a->name) : NULL;
    if (arg && !arg->flag)
        limit(arg, AST_EQ, arg->value);
    fix(r, a->left);
    fix(r, a->right);
    fix(r, a->value);
    for (int i = 0; i < a->args.len; i++)
        fix(r, a->args.at[i]);
}

static bool has_number(Rule *r, const Ast *a)
{
    if (!a)
        return false;
    const RuleArg *arg = a->kind == AST_NAME ? find_arg(r, a->name) : NULL;
    bool any = (arg && !arg->flag) || has_number(r, a->left) || has_number(r, a->right)
               || has_number(r, a->value);
    for (int i = 0; !any && i < a->args.len; i++)
        any = has_number(r, a->args.at[i]);
    return any;
}

static bool is_decided(Rule *r, const Ast *cond, bool yes)
{
    const Thing *t = sem_eval(r->s, cond);
    return t->kind == THING_BOOL && t->yes == yes;
}

/* Of a condition that one side decides alone, that side; of two, one without numbers. */
static const Ast *deciding_side(Rule *r, const Ast *cond, bool yes)
{
    const bool left = is_decided(r, cond->left, yes);
    const bool other = !left || has_number(r, cond->left);
    return other && is_decided(r, cond->right, yes) && !(left && has_number(r, cond->right))
               ? cond->right
               : cond->left;
}

/* The condition has the value `yes`, and has it for all numbers that options may set. */
static void keep(Rule *r, const Ast *cond, bool yes)
{
    RuleArg *arg = cond->kind == AST_BINARY && cond->left->kind == AST_NAME
                       ? find_arg(r, cond->left->name)
                       : NULL;
    double v;
    if (cond->kind == AST_BINARY && cond->op == (yes ? AST_AND : AST_OR)) {
        keep(r, cond->left, yes);
        keep(r, cond->right, yes);
    } else if (cond->kind == AST_BINARY && cond->op == (yes ? AST_OR : AST_AND)) {
        keep(r, deciding_side(r, cond, yes), yes);
    } else if (arg && !arg->flag && cond->op >= AST_EQ && cond->op <= AST_GE
               && !has_number(r, cond->right) && thing_number(sem_eval(r->s, cond->right), &v)
               && (yes ? cond->op : opposite(cond->op)) != AST_NE) {
        limit(arg, yes ? cond->op : opposite(cond->op), v);
    } else {
        fix(r, cond);
    }
}

/* A name of the condition that is no argument, or NULL. */
static const Ast *unknown_in(Rule *r, const Ast *a)
{
    if (!a)
        return NULL;
    if (a->kind == AST_NAME)
        return scope_find_here(r->known, a->name) || !scope_find_here(r->s->frame->scope, a->name)
                   ? NULL
                   : a;
    const Ast *bad = unknown_in(r, a->left);
    bad = bad ? bad : unknown_in(r, a->right);
    bad = bad ? bad : unknown_in(r, a->value);
    for (int i = 0; !bad && i < a->args.len; i++)
        bad = unknown_in(r, a->args.at[i]);
    return bad;
}

/* Evaluates with the arguments as numbers. */
static bool decide(Rule *r, const Ast *cond, bool *yes)
{
    Frame *f = r->s->frame;
    Scope *scope = f->scope;
    const Ast *bad = unknown_in(r, cond);
    if (bad) {
        Diag *d = sem_error(r->s, bad->span, "%s is not known where the program is compiled",
                            bad->name);
        sem_hint(d, "an if chooses by the optimizer's arguments; where(c, a, b) for each element");
        return false;
    }
    f->scope = r->known;
    const bool fine = sem_eval_bool(r->s, cond, "the condition of if", yes);
    if (fine)
        keep(r, cond, *yes);
    f->scope = scope;
    return fine;
}

/* Where the train block sets an argument of the condition: .file 0 if it sets none. */
static Span given_in(Rule *r, const Ast *a)
{
    Span at = { 0 };
    if (!a)
        return at;
    const RuleArg *arg = a->kind == AST_NAME ? find_arg(r, a->name) : NULL;
    at = arg ? arg->given : given_in(r, a->left);
    return at.file ? at : given_in(r, a->right);
}

static void require(Rule *r, const Ast *a)
{
    Frame *f = r->s->frame;
    Scope *scope = f->scope;
    const Ast *cond = call_arg(a->value, 0);
    const Span call = f->user, given = given_in(r, cond);
    f->user = given.file ? given : call;
    f->scope = r->known;
    const Thing *t = sem_eval(r->s, a->value);
    if (t->kind == THING_BOOL && cond)
        keep(r, cond, true);
    f->scope = scope;
    f->user = call;
}

/* ---- statements ---------------------------------------------------------------------------- */

static void declare_state(Rule *r, const Ast *a)
{
    Sem *s = r->s;
    if (a->type) {
        Diag *d = sem_error(s, a->span, "a state of an optimizer is as its parameter: no type");
        sem_hint(d, "state %s", a->name);
    } else if (scope_find_here(s->frame->scope, a->name)) {
        sem_error(s, a->span, "%s is declared twice", a->name);
    } else if (r->states.len == STATES_MAX) {
        sem_error(s, a->span, "more than %d states of an optimizer", STATES_MAX);
        r->failed = true;
    } else {
        State state = { a->name, false, a->span };
        vec_push(s->arena, &r->states, state);
        bind(r, a->name, thing_value(s, given(r, SEM_RULE_STATES + r->states.len - 1)));
    }
}

/* The first statement of the block that sets the name, or NULL. */
static const Ast *where_set(const Ast *block, const char *name)
{
    for (int i = 0; block && i < block->items.len; i++) {
        const Ast *a = block->items.at[i], *found = NULL;
        if (a->kind == AST_ASSIGN && a->items.at[0]->name == name)
            return a->items.at[0];
        if (a->kind == AST_IF)
            found = where_set(a->body, name);
        if (a->kind == AST_IF && !found && a->other)
            found = a->other->kind == AST_IF ? where_set(a->other->body, name)
                                             : where_set(a->other, name);
        if (found)
            return found;
    }
    return NULL;
}

/* Reports names that are set further down only; true if there is one. */
static bool reads_early(Rule *r, const Ast *a)
{
    if (!a)
        return false;
    if (a->kind == AST_NAME && !scope_find(r->s->frame->scope, a->name)) {
        const Ast *at = where_set(r->decl->ast->body, a->name);
        if (!at)
            return false;
        Diag *d = sem_error(r->s, a->span, "%s is read before it is set", a->name);
        sem_note(r->s, d, at->span, "%s is set here", a->name);
        sem_hint(d, "what is kept from update to update is declared: state %s", a->name);
        return true;
    }
    bool any = reads_early(r, a->left) || reads_early(r, a->right) || reads_early(r, a->value)
               || reads_early(r, a->cond);
    for (int i = 0; !any && i < a->args.len; i++)
        any = reads_early(r, a->args.at[i]);
    return any;
}

/* Numbers, elements, and what is done with them one by one. */
static bool is_pointwise(const Expr *e, Map *seen)
{
    int64_t v;
    if (map_get(seen, e))
        return true;
    map_set(seen, e, (void *)(uintptr_t)1);
    bool fits = e->kind == EX_CONST || e->kind == EX_POINT || e->kind == EX_CAST
                || e->kind == EX_COUNTER || (e->kind == EX_DIM && dim_value(e->dim, &v));
    for (int i = 0; fits && i < e->n_in; i++)
        fits = is_pointwise(e->in[i], seen);
    return fits && e->type->rank == 0;
}

bool sem_has_tensors(Sem *s, Span at)
{
    if (!s->elements)
        return true;
    Diag *d = sem_error(s, at, "an optimizer works on each element by itself");
    sem_hint(d, "with numbers, p, g, lr, decay, t, its states, and functions as sqrt and where");
    return false;
}

/* The value of the statement's right side; NULL after an error. */
static Expr *value_of(Rule *r, const Ast *a)
{
    Sem *s = r->s;
    if (reads_early(r, a))
        return NULL;
    Expr *e = sem_to_value(s, sem_eval(s, a), DT_F32, a);
    if (!e || is_pointwise(e, map_new(s->arena)))
        return e;
    sem_has_tensors(s, a->span);
    return NULL;
}

static void assign(Rule *r, const Ast *a)
{
    Sem *s = r->s;
    const Ast *target = a->items.at[0];
    const char *name = target->name;
    State *state = find_state(r, name);
    if (a->items.len > 1) {
        sem_error(s, a->span, "an optimizer sets one name at a time");
        r->failed = true;
        return;
    }
    if (train_word("lr decay t", name) >= 0 || find_arg(r, name)) {
        sem_error(s, target->span, "%s is given to the optimizer: it cannot be set", name);
        return;
    }
    Expr *e = value_of(r, a->value);
    if (strcmp(name, "p") == 0)
        r->set_p = true;
    if (state)
        state->set = true;
    if (!e) {
        bind(r, name, thing_poison(s));
        return;
    }
    if (state || train_word("p g", name) >= 0)
        e = expr_cast(s, e, DT_F32, a->value->span);
    if (!state && e->kind == EX_POINT && strcmp(name, "p") != 0)
        expr_named(e, name);
    bind(r, name, thing_value(s, e));
    text_add(&r->text, "%s%s = %s", r->text.len ? "\n" : "", name, ast_expr_text(s->cx, a->value));
}

static void run(Rule *r, const Ast *block);

static void run_statement(Rule *r, const Ast *a)
{
    bool yes;
    switch (a->kind) {
    case AST_STATE: declare_state(r, a); break;
    case AST_CONST:
        sem_declare_const(r->s, r->s->frame->scope, a, false);
        scope_set(r->s, r->known, a->name, scope_find_here(r->s->frame->scope, a->name));
        break;
    case AST_ASSIGN:
        if (sem_is_requirement(r->s, a))
            require(r, a);
        else
            assign(r, a);
        break;
    case AST_IF:
        if (!decide(r, a->cond, &yes))
            r->failed = true;
        else if (yes)
            run(r, a->body);
        else if (a->other)
            run(r, a->other);
        break;
    case AST_BAD: r->failed = true; break;
    default:
        sem_error(r->s, a->span, "an optimizer has no %s: it declares states and sets names",
                  ast_kind_text(a->kind));
        r->failed = true;
    }
}

static void run(Rule *r, const Ast *block)
{
    if (block->kind != AST_BLOCK) { /* else if */
        run_statement(r, block);
        return;
    }
    for (int i = 0; i < block->items.len; i++)
        run_statement(r, block->items.at[i]);
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Numbers were bound behind room for all states; now they follow on those there are. */
static void close_up(Expr *e, int states, Map *seen)
{
    if (map_get(seen, e))
        return;
    map_set(seen, e, (void *)(uintptr_t)1);
    if (e->kind == EX_COUNTER && e->index >= SEM_RULE_STATES + STATES_MAX)
        e->index -= STATES_MAX - states;
    for (int i = 0; i < e->n_in; i++)
        close_up(e->in[i], states, seen);
}

static void check_all_set(Rule *r)
{
    Sem *s = r->s;
    if (!r->set_p) {
        Diag *d = sem_error(s, r->decl->ast->at, "optimizer %s never sets p", r->decl->name);
        sem_hint(d, "p is the parameter: p = p - lr * g");
    }
    for (int i = 0; i < r->states.len; i++)
        if (!r->states.at[i].set) {
            Diag *d = sem_error(s, r->states.at[i].span, "state %s is never set",
                                r->states.at[i].name);
            sem_hint(d, "it would be 0 in every update: %s = ...", r->states.at[i].name);
        }
}

static Expr *result(Rule *r, const char *name)
{
    return scope_find_here(r->s->frame->scope, intern(r->s->cx, name))->value;
}

void sem_rule(Sem *s, Decl *d, RuleArgs *args, Span at)
{
    CheckedRule *to = &s->out->train.rule;
    Rule r = { .s = s, .decl = d, .args = args, .text = text_new(s->arena) };
    Frame frame = { .decl = d, .scope = scope_new(s, d->scope), .call = at, .user = at };
    r.known = scope_new(s, d->scope);
    s->frame = &frame;
    s->elements = s->training = true;
    bind_given(&r);
    run(&r, d->ast->body);
    if (!r.failed)
        check_all_set(&r);
    if (!r.failed && diag_count(s->cx) == 0) {
        Map *seen = map_new(s->arena);
        to->name = d->name;
        to->p = result(&r, "p");
        close_up(to->p, r.states.len, seen);
        for (int i = 0; i < r.states.len; i++) {
            vec_push(s->arena, &to->state, r.states.at[i].name);
            vec_push(s->arena, &to->next, result(&r, r.states.at[i].name));
            close_up(to->next.at[i], r.states.len, seen);
        }
        to->text = r.text.at;
        to->span = d->ast->at;
    }
    s->frame = NULL;
    s->elements = s->training = false;
}
