/* program.c -- an empty model table.
 *
 * In: the context. Out: a Program with its own table of dims, in which everything that has a
 * usual value has it.
 */
#include "ir/program.h"

Program *program_new(Context *cx)
{
    Program *p = NEW(cx->arena, Program);
    p->cx = cx;
    p->dims = dims_new(cx);
    p->name = intern(cx, "model");
    p->real = DT_F32;
    p->train.accumulate = 1;
    p->train.data.split = 1;
    return p;
}
