/* signal.c -- Ctrl-C and the signals of schedulers.
 *
 * In: signals. Out: a flag that the training loop reads at step boundaries. The one idea: a handler
 * sets a flag and says so; a second signal of the same wish ends the program at once.
 */
#include <signal.h>
#include <unistd.h>

#include "comm/comm.h"

static volatile sig_atomic_t pending;
static bool quiet; /* another rank says it */

static void on_signal(int number)
{
    static const char again[] =
        "\nstopping: the state is saved after this step; press again to quit at once\n";
    static const char term[] = "\nstopping: the state is saved after this step\n";
    if (pending && number != SIGUSR1)
        _exit(128 + number); /* 130 for Ctrl-C, 143 for SIGTERM */
    if (!pending)
        pending = number;
    if (quiet)
        return;
    const ssize_t put = number == SIGINT ? write(STDERR_FILENO, again, sizeof again - 1)
                                         : write(STDERR_FILENO, term, sizeof term - 1);
    RT_UNUSED(put);
}

void rt_signal_catch(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    quiet = rt_ranks() > 1 && rt_rank() > 0;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* `| head` must not end a training */
}

int rt_signal_pending(void) { return pending; }
