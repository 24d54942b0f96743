/* build.c -- where the runtime lies, files written whole, and the run of the C or CUDA compiler.
 *
 * In: the path of our own binary; text; options. Out: places relative to it (a build tree or an
 * installation, so that either can be moved); files that appear complete or not at all; an
 * executable. That compiler is started directly, without a shell.
 */
#include "toolchain.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { EXIT_MISTAKE = 1, EXIT_BUG = 70, PATH_BYTES = 4096 };

/* ---- places -------------------------------------------------------------------------------- */

static const char *first_there(Context *cx, const char *dir, const char *const *tries, int n,
                               const char *file)
{
    for (int i = 0; i < n; i++) {
        const char *folder = arena_printf(cx->arena, "%s/%s", dir, tries[i]);
        const char *path = file ? arena_printf(cx->arena, "%s/%s", folder, file) : folder;
        if (access(path, R_OK) == 0)
            return folder;
    }
    return NULL;
}

Places build_find_places(Context *cx)
{
    static const char *const prelude[] = {
        "prelude.model",
        "../share/gradcc/prelude.model",
        "../models/prelude.model",
    };
    static const char *const include[] = { "include", "../include/gradcc", "../runtime" };
    static const char *const library[] = {
        "libgradcc_rt.a",
        "../lib/gradcc/libgradcc_rt.a",
    };
    static const char *const libs[] = { "rt.libs", "../lib/gradcc/rt.libs" };
    static const char *const cuda_library[] = {
        "libgradcc_rt_cuda.a",
        "../lib/gradcc/libgradcc_rt_cuda.a",
    };
    static const char *const cuda_libs[] = { "rt_cuda.libs", "../lib/gradcc/rt_cuda.libs" };
    char self[PATH_BYTES];
    Places at = { 0 };
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0)
        return at;
    self[len] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    at.prelude = first_there(cx, self, prelude, 3, NULL);
    at.include = first_there(cx, self, include, 3, "rt.h");
    at.library = first_there(cx, self, library, 2, NULL);
    at.libs = first_there(cx, self, libs, 2, NULL);
    at.cuda_library = first_there(cx, self, cuda_library, 2, NULL);
    at.cuda_libs = first_there(cx, self, cuda_libs, 2, NULL);
    return at;
}

/* ---- files --------------------------------------------------------------------------------- */

static bool complain(Context *cx, const char *what, const char *path)
{
    const Span nowhere = { 0 };
    diag_error(cx, nowhere, "cannot %s %s: %s", what, path, strerror(errno));
    return false;
}

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

bool build_write_file(Context *cx, const char *path, const char *text, size_t len)
{
    struct stat old;
    const bool special = stat(path, &old) == 0 && !S_ISREG(old.st_mode);
    if (special && S_ISDIR(old.st_mode)) {
        errno = EISDIR;
        return complain(cx, "write", path);
    }
    const char *temp = special ? path : arena_printf(cx->arena, "%s.tmp%ld", path, (long)getpid());
    const int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return complain(cx, "write", path);
    const bool written = write_all(fd, text, len);
    int why = errno;
    if (close(fd) == 0 && written && (special || rename(temp, path) == 0))
        return true;
    why = written ? errno : why;
    if (!special)
        unlink(temp);
    errno = why;
    return complain(cx, "write", path);
}

bool build_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev
           && x.st_ino == y.st_ino;
}

bool build_names_file(const char *pattern, const char *path)
{
    glob_t found;
    bool yes = build_same_file(pattern, path);
    if (!yes && glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; !yes && i < found.gl_pathc; i++)
            yes = build_same_file(found.gl_pathv[i], path);
        globfree(&found);
    }
    return yes;
}

const char *build_output_name(Context *cx, const Options *opt)
{
    if (opt->output)
        return opt->output;
    const char *base = strrchr(opt->input, '/');
    base = base ? base + 1 : opt->input;
    const char *dot = strrchr(base, '.');
    if (dot == NULL || dot == base)
        return "a.out";
    return arena_strndup(cx->arena, base, (size_t)(dot - base));
}

/* ---- the compiler --------------------------------------------------------------------------- */

/* Starts a program with the signals that end us blocked here and as usual there. */
static int spawn(const TextList *args, bool quiet, const sigset_t *outside, pid_t *pid)
{
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t files;
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, outside);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&files);
    if (quiet)
        for (int fd = 1; fd <= 2; fd++)
            posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_WRONLY, 0);
    const int wrong = posix_spawnp(pid, args->at[0], &files, &attr,
                                   (char *const *)(uintptr_t)args->at, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return wrong;
}

/* The exit code of the program (128 and the signal that ended it), -1 if it could not be started.
   A signal to end gradcc ends the program first; *ended is then that signal. */
static int start(const TextList *args, bool quiet, int *ended)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
    sigset_t ours, before;
    pid_t pid;
    int status = 0, wrong, signal_number;
    sigemptyset(&ours);
    for (int i = 0; i < 3; i++) {
        struct sigaction now;
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&ours, ends[i]);
    }
    sigaddset(&ours, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would never come */
    sigprocmask(SIG_BLOCK, &ours, &before);
    wrong = spawn(args, quiet, &before, &pid);
    while (wrong == 0 && waitpid(pid, &status, WNOHANG) == 0) {
        if (sigwait(&ours, &signal_number) != 0 || signal_number == SIGCHLD)
            continue;
        *ended = signal_number;
        kill(pid, signal_number);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = wrong;
    if (wrong)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const char *temporary_name(Context *cx, const char *ending)
{
    const char *dir = getenv("TMPDIR");
    char *path = arena_printf(cx->arena, "%s/gradcc-XXXXXX%s", dir && *dir ? dir : "/tmp", ending);
    const int fd = mkstemps(path, (int)strlen(ending));
    if (fd < 0) {
        complain(cx, "write", path);
        return NULL;
    }
    close(fd);
    return path;
}

/* Does a text compile, without the flags of the user? Nothing is written. */
static bool is_right(Context *cx, const Options *opt, const Places *at, const char *source,
                     int *ended)
{
    const TextList args = toolchain_trial(cx, opt, at, source);
    return start(&args, true, ended) <= 0;
}

/* ... the simplest one? source is written over. */
static bool works(Context *cx, const Options *opt, const Places *at, const char *source, int *ended)
{
    const char *text = toolchain_simplest(opt);
    return build_write_file(cx, source, text, strlen(text)) && is_right(cx, opt, at, source, ended);
}

enum { PART = 1 << 12, PARTS_OF_A_PROGRAM = 256 };

/* Can a file as large as these parts lie where temp does? False after a message about path. */
static bool has_room(Context *cx, const char *temp, int parts, const char *path)
{
    static const char zeros[PART];
    const int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool fits = fd >= 0;
    for (int i = 0; fits && i < parts; i++)
        fits = write_all(fd, zeros, PART);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    unlink(temp);
    errno = why;
    return fits || complain(cx, "write", path);
}

typedef enum { FAULT_TEXT, FAULT_COMPILER, FAULT_OTHER } Fault;

/* Whose fault it is that the compiler gave up: of the text that gradcc wrote, of the compiler
   itself, or of what the user and the machine added. */
static Fault find_fault(Context *cx, const Options *opt, const Places *at, const char *source,
                        int *ended)
{
    if (is_right(cx, opt, at, source, ended))
        return FAULT_OTHER;
    return works(cx, opt, at, source, ended) ? FAULT_TEXT : FAULT_COMPILER;
}

static int explain_failure(Context *cx, const Options *opt, const char *cc, int code, Fault fault)
{
    const Span nowhere = { 0 };
    const bool cuda = opt->target == TARGET_CUDA;
    const char *language = cuda ? "CUDA" : "C", *kind = cuda ? "cuda" : "c";
    if (fault == FAULT_TEXT) {
        fprintf(stderr,
                "gradcc: %s failed with exit code %d: the %s that gradcc wrote does not compile\n"
                "gradcc: this is a bug of gradcc; --emit=%s -o FILE%s keeps the %s\n",
                cc, code, language, kind, toolchain_ending(opt), language);
        return EXIT_BUG;
    }
    Diag *d = fault == FAULT_COMPILER
                  ? diag_error(cx, nowhere, "%s failed: %s compiles not even a program of one line",
                               cc, toolchain_usual(cx, opt))
                  : diag_error(cx, nowhere, "%s failed with exit code %d", cc, code);
    if (fault == FAULT_COMPILER)
        diag_hint(
            d, cuda ? "the toolchain is broken: CUDA 12.0 or later is needed, and a g++ that its "
                      "nvcc takes"
                    : "the toolchain is broken: a compiler of C11 with OpenMP is needed");
    else if (toolchain_is_own(opt))
        diag_hint(d, "the emitted %s is right: look at %s", language,
                  cuda ? "--nvcc, --cflags and --cuda-arch" : "--cc, --cflags and --march");
    else
        diag_hint(d, "the emitted %s is right: the message of %s above says what it lacks",
                  language, cc);
    return EXIT_MISTAKE;
}

/* The compiler could not be started. */
static int explain_absence(Context *cx, const Options *opt, const char *cc)
{
    const Span nowhere = { 0 };
    Diag *d = diag_error(cx, nowhere, "cannot start %s: %s", cc, strerror(errno));
    diag_hint(d, "--%s names a program in PATH, or the path of one",
              opt->target == TARGET_CUDA ? "nvcc" : "cc");
    return EXIT_MISTAKE;
}

/* The compiler says that all went well: has it written a program? False after a message. */
static bool has_written(Context *cx, const Options *opt, const char *cc, const char *temp)
{
    const Span nowhere = { 0 };
    struct stat made;
    if (stat(temp, &made) == 0 && made.st_size > 0)
        return true;
    Diag *d = diag_error(cx, nowhere, "%s ended well but wrote no program", cc);
    diag_hint(d,
              "--%s names a compiler that takes -o FILE, and --cflags nothing that stops it early",
              opt->target == TARGET_CUDA ? "nvcc" : "cc");
    return false;
}

/* A program replaces a file, nothing else. False after a message. */
static bool may_replace(Context *cx, const char *output)
{
    const Span nowhere = { 0 };
    struct stat old;
    if (stat(output, &old) != 0 || S_ISREG(old.st_mode))
        return true;
    const bool folder = S_ISDIR(old.st_mode);
    Diag *d = diag_error(cx, nowhere, "cannot write %s: it is %s", output,
                         folder ? "a directory" : "no regular file");
    diag_hint(d, folder ? "name the program with -o" : "--emit=c -o %s writes the C only", output);
    return false;
}

/* Compiles source into temp; then temp becomes the output. */
static int compile_and_link(Context *cx, const Options *opt, const Places *at, const char *source,
                            const char *temp, const char *output, int *ended)
{
    const TextList args = toolchain_call(cx, opt, at, source, temp);
    if (args.len == 0)
        return EXIT_MISTAKE;
    const int code = start(&args, false, ended);
    if (*ended)
        return EXIT_MISTAKE;
    if (code < 0)
        return explain_absence(cx, opt, args.at[0]);
    if (code > 0) {
        const char *beside = arena_printf(cx->arena, "%s.room", source);
        if (!has_room(cx, temp, PARTS_OF_A_PROGRAM, output)
            || !has_room(cx, beside, PARTS_OF_A_PROGRAM, beside))
            return EXIT_MISTAKE;
        const bool killed = code > 128;
        return explain_failure(cx, opt, args.at[0], code,
                               killed ? FAULT_OTHER : find_fault(cx, opt, at, source, ended));
    }
    if (!has_written(cx, opt, args.at[0], temp))
        return EXIT_MISTAKE;
    if (rename(temp, output) == 0)
        return 0;
    complain(cx, "write", output);
    return EXIT_MISTAKE;
}

int build_program(Context *cx, const Options *opt, const Places *at, const Text *c,
                  const char *output)
{
    if (!toolchain_is_here(cx, opt, at))
        return EXIT_MISTAKE;
    const char *temp = arena_printf(cx->arena, "%s.tmp%ld", output, (long)getpid());
    if (!may_replace(cx, output) || !has_room(cx, temp, 0, output))
        return EXIT_MISTAKE;
    const char *source = temporary_name(cx, toolchain_ending(opt));
    if (source == NULL)
        return EXIT_MISTAKE;
    int ended = 0, code = EXIT_MISTAKE;
    if (build_write_file(cx, source, c->at, c->len))
        code = compile_and_link(cx, opt, at, source, temp, output, &ended);
    unlink(source);
    if (code != 0)
        unlink(temp);
    if (ended)
        raise(ended);
    return code;
}

/* ---- dependencies -------------------------------------------------------------------------- */

static void put_make_name(Text *out, const char *s)
{
    for (; *s; s++) {
        if (*s == ' ' || *s == '#')
            text_put(out, "\\");
        text_putn(out, *s == '$' ? "$$" : s, *s == '$' ? 2 : 1);
    }
}

void build_print_deps(Context *cx, const Options *opt, const char *target, Text *out)
{
    put_make_name(out, opt->deps_target ? opt->deps_target : target);
    text_put(out, ":");
    for (int i = 0; i < cx->sources.len; i++) {
        if (cx->sources.at[i]->no_file)
            continue;
        text_put(out, i == 0 ? " " : " \\\n  ");
        put_make_name(out, cx->sources.at[i]->path);
    }
    text_put(out, "\n");
    for (int i = 1; opt->deps_phony && i < cx->sources.len; i++) {
        if (cx->sources.at[i]->no_file)
            continue;
        text_put(out, "\n");
        put_make_name(out, cx->sources.at[i]->path);
        text_put(out, ":\n");
    }
}
