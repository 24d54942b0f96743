/* bounds.cc -- what only the compiler knows: the length of an array, the alignment of a type.
 *
 * In: the calls that g++ -fsanitize=alignment,bounds places where an index or an address is wrong.
 * Out: a report.
 */
#include <string.h>

#include "sim.h"

namespace
{

struct Place { /* as the compiler writes it */
    const char *file;
    uint32_t line, column;
};

struct Type {
    uint16_t kind, info;
    char name[1];
};

struct Mismatch {
    Place place;
    const Type *type;
    unsigned char log_alignment, kind;
};

struct Index {
    Place place;
    const Type *array, *index;
};

std::string text(const Place &p)
{
    const char *slash = strrchr(p.file, '/');
    return std::string(slash ? slash + 1 : p.file) + ":" + std::to_string(p.line);
}

} // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const Mismatch *m, void *at);
void __ubsan_handle_type_mismatch_v1(const Mismatch *m, void *at)
{
    cudasim_report("misaligned address: %s uses %p as %s, which is aligned to %d bytes, at %s",
                   sim_where().c_str(), at, m->type->name, 1 << m->log_alignment,
                   text(m->place).c_str());
}

extern "C" void __ubsan_handle_out_of_bounds(const Index *i, long index);
void __ubsan_handle_out_of_bounds(const Index *i, long index)
{
    const bool narrow = (i->index->info >> 1) < 6; /* the value has 32 bits or fewer */
    cudasim_report("out of bounds: %s uses index %ld of an array %s, at %s", sim_where().c_str(),
                   narrow ? (long)(int)index : index, i->array->name, text(i->place).c_str());
}
