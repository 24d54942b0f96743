/* watch.c -- the thread that tells the store that this rank is alive, and learns of the others.
 *
 * In: how far the exchanges are. Out: the end of the process, with the store's text, where a rank
 * is lost or an exchange is late. The one idea: it never waits for anything but the store.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "comm/comm.h"

static RtProgress no_exchange(void) { return (RtProgress){ .what = NULL }; }

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, stop;
    double period;
    RtProgress (*progress)(void);
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER, .progress = no_exchange };

RtProgress rt_watch_now(void)
{
    pthread_mutex_lock(&watch.lock);
    RtProgress (*const progress)(void) = watch.progress;
    pthread_mutex_unlock(&watch.lock);
    return progress();
}

static bool pause_or_stop(void)
{
    struct timespec by;
    (void)clock_gettime(CLOCK_MONOTONIC, &by);
    const double at = (double)by.tv_nsec * 1e-9 + watch.period;
    by.tv_sec += (time_t)at;
    by.tv_nsec = (long)((at - floor(at)) * 1e9);
    pthread_mutex_lock(&watch.lock);
    while (!watch.stop && pthread_cond_timedwait(&watch.changed, &watch.lock, &by) == 0)
        continue;
    const bool stop = watch.stop;
    pthread_mutex_unlock(&watch.lock);
    return stop;
}

static void *keep_watch(void *unused)
{
    RT_UNUSED(unused);
    while (!pause_or_stop()) {
        char text[512];
        const RtProgress now = rt_watch_now();
        if (!now.what || now.late <= 0) {
            rt_store_beat(now.begun);
            continue;
        }
        snprintf(text, sizeof text, "%s has waited for %.0f s%s", now.what, now.waited,
                 now.hint ? now.hint : "");
        rt_store_stalled(now.begun, text);
    }
    return NULL;
}

void rt_watch_start(double period)
{
    watch.period = period;
    pthread_condattr_t attr; /* a clock that nobody sets */
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch.changed, &attr);
    pthread_condattr_destroy(&attr);
    const int error = pthread_create(&watch.thread, NULL, keep_watch, NULL);
    if (error)
        rt_fail(RT_EXIT_FAIL, "a thread cannot be started: %s", strerror(error));
    watch.runs = true;
}

void rt_watch_exchanges(RtProgress (*progress)(void))
{
    pthread_mutex_lock(&watch.lock);
    watch.progress = progress;
    pthread_mutex_unlock(&watch.lock);
}

void rt_watch_stop(void)
{
    if (!watch.runs)
        return;
    pthread_mutex_lock(&watch.lock);
    watch.stop = true;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    watch.runs = false;
}
