/* op.c -- the op table, made from ops.def, and its listing.
 */
#include "op/rows.h"

#include <string.h>

#define TYPED(f)      NULL, .check = check_##f
#define PARTIALS(...) .deriv = DERIV_PARTIALS, .partial = { __VA_ARGS__ }
#define LINEAR(f)     .deriv = DERIV_LINEAR, .transpose = transpose_##f
#define CUSTOM(f)     .deriv = DERIV_CUSTOM, .transpose = transpose_##f
#define EXPANDED      .deriv = DERIV_CUSTOM
#define BY_GRAD       .deriv = DERIV_CUSTOM
#define LEAFD         .deriv = DERIV_LEAF
#define ZERO(text)    .deriv = DERIV_ZERO, .why = text
#define NONE(text)    .deriv = DERIV_NONE, .why = text

const OpRow op_table[OP_COUNT] = {
#define OP(tag_, name_, in_, class_, policy_, shape_, deriv_, eval_, expand_, c_, cuda_, cost_,    \
           meaning_)                                                                               \
    [OP_##tag_] = { .tag = #tag_,                                                                  \
                    .name = name_,                                                                 \
                    .arity = in_,                                                                  \
                    .class = CLASS_##class_,                                                       \
                    .policy = POLICY_##policy_,                                                    \
                    .shape = shape_,                                                               \
                    deriv_,                                                                        \
                    .eval = eval_,                                                                 \
                    .expand = expand_,                                                             \
                    .c = c_,                                                                       \
                    .cuda = cuda_,                                                                 \
                    .cost = cost_,                                                                 \
                    .meaning = meaning_ },
#include "op/ops.def"
#undef OP
};

Op op_find(const char *name)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(op_table[i].name, name) == 0)
            return (Op)i;
    return OP_COUNT;
}

static const char *deriv_name(DerivKind k)
{
    static const char *const name[] = {
        [DERIV_PARTIALS] = "partials", [DERIV_LINEAR] = "linear", [DERIV_CUSTOM] = "custom",
        [DERIV_LEAF] = "leaf",         [DERIV_ZERO] = "zero",     [DERIV_NONE] = "none",
    };
    return name[k];
}

void op_list(Text *t)
{
    text_put(t, "op              inputs  derivative                      meaning\n");
    for (int i = 0; i < OP_COUNT; i++) {
        const OpRow *row = &op_table[i];
        text_put(t, row->name);
        text_pad(t, 16);
        if (row->arity < 0)
            text_put(t, "any");
        else
            text_add(t, "%d", row->arity);
        text_pad(t, 24);
        text_put(t, deriv_name(row->deriv));
        for (int k = 0; row->deriv == DERIV_PARTIALS && k < row->arity; k++)
            text_add(t, "%s %s", k ? "," : "", row->partial[k]);
        if (row->why)
            text_add(t, ": %s", row->why);
        text_put(t, "  ");
        text_pad(t, 56);
        text_add(t, "%s\n", row->meaning);
    }
}
