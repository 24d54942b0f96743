/* symbols.cc -- what the program's own file says: shared variables, read-only data, source lines.
 *
 * In: /proc/self/exe. The one idea: shared variables are the program's thread-local ones, so its
 * symbol table has their names and sizes, and all between them is out of bounds.
 */
#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>

#include "sim.h"

size_t sim_arena_bytes;

namespace
{

struct Variable {
    uintptr_t offset;
    size_t bytes;
    const char *name;
};

/* Of the launch; aligned to 16 bytes and no more, which is what CUDA promises. */
struct Arena {
    unsigned char before[16], bytes[SIM_ARENA];
};
alignas(1024) thread_local Arena arena;
std::vector<Variable> variables; /* by offset */
std::vector<std::pair<uintptr_t, uintptr_t>> constants;
const Variable *last;
uintptr_t tls_at; /* of the calling thread, by find_tls */
size_t tls_bytes;
uintptr_t program_base;

int find_tls(struct dl_phdr_info *info, size_t, void *)
{
    program_base = info->dlpi_addr;
    tls_at = (uintptr_t)info->dlpi_tls_data;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            tls_bytes = info->dlpi_phdr[i].p_memsz;
    return 1; /* the program is the first */
}

void read_symbols(const char *file)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_TLS && symbols[k].st_size)
                variables.push_back(
                    { symbols[k].st_value, symbols[k].st_size, names + symbols[k].st_name });
    }
    std::sort(variables.begin(), variables.end(),
              [](const Variable &a, const Variable &b) { return a.offset < b.offset; });
}

void read_maps(void)
{
    char line[4352], path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && !strcmp(rights, "r--p")
            && strstr(line, path))
            constants.push_back({ from, to });
    }
    if (f)
        fclose(f);
}

const Variable *variable_at(uintptr_t offset)
{
    if (last && offset - last->offset < last->bytes)
        return last;
    auto after = std::upper_bound(variables.begin(), variables.end(), offset,
                                  [](uintptr_t o, const Variable &v) { return o < v.offset; });
    if (after == variables.begin())
        return NULL;
    return last = &*std::prev(after);
}

} // namespace

void sim_symbols_init(void)
{
    FILE *f = fopen("/proc/self/exe", "rb");
    if (!f || fseek(f, 0, SEEK_END))
        cudasim_report("cannot read /proc/self/exe");
    const size_t bytes = (size_t)ftell(f);
    char *file = (char *)mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    fclose(f);
    if (file == MAP_FAILED)
        cudasim_report("cannot map /proc/self/exe");
    read_symbols(file);
    read_maps();
    dl_iterate_phdr(find_tls, NULL);
}

void sim_shared_here(void)
{
    dl_iterate_phdr(find_tls, NULL);
    sim_now.shared_base = tls_at & ~(uintptr_t)15;
    sim_now.shared_span = tls_at + tls_bytes - sim_now.shared_base;
    if (sim_now.shared_cells)
        return;
    const size_t cells = (tls_bytes + 64) / 4 * sizeof(SimCell);
    sim_now.shared_cells = (SimCell *)mmap(NULL, cells, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sim_now.shared_cells == MAP_FAILED)
        cudasim_report("no memory for the shadow of shared memory");
}

void *cudasim_shared_arena(void) { return arena.bytes; }

bool sim_shared_valid(uintptr_t at, size_t bytes)
{
    const uintptr_t in_arena = at - (uintptr_t)arena.bytes;
    if (in_arena < SIM_ARENA)
        return in_arena + bytes <= sim_arena_bytes;
    const Variable *v = variable_at(at - tls_at);
    return v && at - tls_at + bytes <= v->offset + v->bytes;
}

std::string sim_shared_name(uintptr_t at)
{
    const uintptr_t in_arena = at - (uintptr_t)arena.bytes;
    char text[64];
    if (in_arena < SIM_ARENA) {
        snprintf(text, sizeof text, "dynamic shared memory (%zu bytes) + %zu", sim_arena_bytes,
                 (size_t)in_arena);
        return text;
    }
    const Variable *v = variable_at(at - tls_at);
    if (!v)
        return "shared memory, before all variables";
    char *plain = abi::__cxa_demangle(v->name, NULL, NULL, NULL);
    snprintf(text, sizeof text, " (%zu bytes) + %zu", v->bytes, (size_t)(at - tls_at - v->offset));
    std::string s = std::string("shared variable ") + (plain ? plain : v->name) + text;
    free(plain);
    return s;
}

bool sim_constant(uintptr_t at)
{
    for (auto &r : constants)
        if (at >= r.first && at < r.second)
            return true;
    return false;
}

/* " at a.cu:12 < b.cu:40": the innermost first, behind "<" where it was expanded inline. */
std::string sim_source_line(const void *pc)
{
    if (!pc)
        return "";
    char command[256], line[1024];
    snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe 0x%zx 2>/dev/null",
             (int)getpid(), (size_t)((uintptr_t)pc - 1 - program_base));
    FILE *f = popen(command, "r");
    std::string s;
    for (int i = 0; f && i < 4 && fgets(line, sizeof line, f); i++) {
        line[strcspn(line, " \n")] = 0;
        const char *slash = strrchr(line, '/'), *name = slash ? slash + 1 : line;
        if (name[0] != '?' && strncmp(name, "cudasim_", 8))
            s += (s.empty() ? " at " : " < ") + std::string(name);
    }
    if (f)
        pclose(f);
    if (s.empty()) {
        snprintf(line, sizeof line, " at pc %p", pc);
        s = line;
    }
    return s;
}
