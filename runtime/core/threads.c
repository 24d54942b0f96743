/* threads.c -- how many threads, and how long they spin.
 *
 * In: --threads, the environment, the container. Out: a team. The one idea: threads that wait
 * should spin long enough for the next loop of a step (some ten microseconds) and no longer. gcc's
 * OpenMP spins for milliseconds by default, which on a machine with other work costs a step dozens
 * of times its own length; it reads its setting before main, so the program starts itself once
 * more with it. Measured on chargpt, 768 tokens a step, 2 processors: idle machine 27,500 tokens/s
 * against 28,800; beside one other process 9,000 against 3,000. OMP_WAIT_POLICY or GOMP_SPINCOUNT
 * in the environment keep their meaning.
 */
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "comm/comm.h"

#define SPINS "3000" /* turns: about 50 microseconds */

void rt_threads_tame(char **argv)
{
#ifdef _OPENMP
    const char *preload = getenv("LD_PRELOAD"); /* valgrind would be lost by starting again */
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || omp_get_max_threads() < 2
        || (preload && strstr(preload, "vgpreload")))
        return;
    char path[4096]; /* its real name, so that ps and top show it */
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", SPINS, 1))
        return;
    path[n] = 0;
    (void)execv(path, argv); /* comes back only if it cannot: no harm */
#else
    RT_UNUSED(argv);
#endif
}

void rt_threads_set(RtOptions *o)
{
#ifdef _OPENMP
    const double quota = rt_processor_quota(); /* of the container; 0 = none */
    const bool bound = omp_get_num_procs() < sysconf(_SC_NPROCESSORS_ONLN); /* to a part of them */
    const int here = bound ? 1 : rt_local_ranks();
    int most = omp_get_max_threads();
    if (quota >= 1 && quota < most)
        most = (int)quota;
    if (o->threads > 0)
        omp_set_num_threads((int)o->threads);
    else if (!getenv("OMP_NUM_THREADS"))
        omp_set_num_threads(most > here ? most / here : 1);
    o->threads = omp_get_max_threads();
#else
    o->threads = 1;
#endif
}
