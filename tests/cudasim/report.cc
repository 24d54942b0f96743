/* report.cc -- a fault of the program under test: one report and the end, exit code 99. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "sim.h"

void cudasim_report(const char *fmt, ...)
{
    static thread_local bool again;
    va_list args;
    sim_in_kernel = false;
    fflush(stdout);
    if (again) { /* a fault inside of a report */
        fprintf(stderr, "\n");
        _exit(99);
    }
    again = true;
    fprintf(stderr, "cudasim: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    fflush(stderr);
    _exit(99);
}
