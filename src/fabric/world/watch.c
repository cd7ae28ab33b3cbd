/* SPDX-License-Identifier: Apache-2.0 */
/* The watch thread and what can be told of a rank's life; see watch.h. */
#include "fabric/world/watch.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/os_look.h"
#include "base/report/status.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>

enum {
    BEAT_MS = 100,
    SILENCE_NS =
        500 * 1000 * 1000 /* five beats missed: the rank is stopped, or starved of processor time */
};

struct weft_i_watch {
    weft_i_rank_record *rank_record;
    weft_i_fdpass *fdpass;
    pthread_t thread;
    int stop;           /* an eventfd: wakes the thread to look at `ending` */
    atomic_bool ending; /* release by weft_i_watch_stop, acquire by the thread */
    struct robust_list_head robust;
    _Atomic uint32_t holding; /* 1: the life word is held, 2: it cannot be; release by the thread,
                                 acquire at start */
};

static void beat(weft_i_rank_record *rank_record)
{
    atomic_fetch_add_explicit(&rank_record->heart.beats, 1, memory_order_relaxed);
    atomic_store_explicit(&rank_record->heart.beat_ns, WEFT_OS->clock_ns(), memory_order_relaxed);
    if (!*weft_i_env_text(WEFT_I_ENV_TRACE))
        weft_i_record_tick(&rank_record->record);
}

/* The list has one entry, the record's node; the kernel finds the word at a fixed distance behind
 * it.
 */
static bool take_life_word(weft_i_watch *watch)
{
    weft_i_rank_record *rank_record = watch->rank_record;
    struct robust_list *node = (struct robust_list *)(void *)&rank_record->life.next;
    node->next = &watch->robust.list;
    watch->robust.list.next = node;
    watch->robust.futex_offset =
        (long)(offsetof(weft_i_rank_record, life.word) - offsetof(weft_i_rank_record, life.next));
    watch->robust.list_op_pending = NULL;
    if (weft_i_os_set_robust_list(&watch->robust, sizeof watch->robust))
        return false;
    /* Peers read it only after the record's state is HERE, which is released after this thread
     * reports. */
    atomic_store_explicit(&rank_record->life.word, (uint32_t)weft_i_os_thread(),
                          memory_order_release);
    return true;
}

static void let_life_word_go(weft_i_watch *watch)
{
    atomic_store_explicit(&watch->rank_record->life.word, 0, memory_order_release);
    watch->robust.list.next = &watch->robust.list;
}

static void *watch_body(void *arg)
{
    weft_i_watch *watch = arg;
    beat(watch->rank_record);
    bool held = take_life_word(watch);
    atomic_store_explicit(&watch->holding, held ? 1 : 2, memory_order_release);
    WEFT_OS->futex_wake(&watch->holding, 1);
    while (!atomic_load_explicit(&watch->ending, memory_order_acquire)) {
        weft_i_fdpass_serve(watch->fdpass, watch->stop, BEAT_MS);
        beat(watch->rank_record);
    }
    if (held)
        let_life_word_go(watch);
    return NULL;
}

static weft_status start_thread(weft_i_watch *watch)
{
    watch->stop = WEFT_OS->eventfd(0);
    if (watch->stop < 0)
        return weft_i_fail_errno(errno, "cannot make an eventfd for the watch thread");
    int error = WEFT_OS->thread_create(&watch->thread, watch_body, watch);
    if (error) {
        WEFT_OS->close(watch->stop);
        return weft_i_fail_errno(error, "cannot start the watch thread");
    }
    while (atomic_load_explicit(&watch->holding, memory_order_acquire) == 0)
        WEFT_OS->futex_wait(&watch->holding, 0, 1000000);
    return WEFT_OK;
}

weft_status weft_i_watch_start(weft_i_rank_record *mine, weft_i_fdpass *fdpass, weft_i_watch **out)
{
    weft_i_watch *watch = WEFT_OS->alloc(sizeof *watch);
    if (!watch)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for the watch thread");
    watch->rank_record = mine;
    watch->fdpass = fdpass;
    weft_status status = start_thread(watch);
    if (status < 0) {
        WEFT_OS->free(watch);
        return status;
    }
    if (atomic_load_explicit(&watch->holding, memory_order_acquire) != 1) {
        weft_i_watch_stop(watch);
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "this kernel refuses robust futexes (set_robust_list)");
    }
    *out = watch;
    return WEFT_OK;
}

/* The program may have closed our descriptor, and opened a file of its own under the number.  What
 * has no place in a file system has no type either. */
static bool is_eventfd(int fd)
{
    struct stat status;
    return WEFT_OS->fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

static void wake(weft_i_watch *watch)
{
    uint64_t one = 1;
    ssize_t ignored = WEFT_OS->write(watch->stop, &one, sizeof one);
    (void)ignored; /* an eventfd at 0 always takes 1 */
}

void weft_i_watch_stop(weft_i_watch *watch)
{
    if (!watch)
        return;
    bool ours = is_eventfd(watch->stop);
    atomic_store_explicit(&watch->ending, true, memory_order_release);
    /* Without the wake-up the thread looks after a beat. */
    if (ours)
        wake(watch);
    WEFT_OS->thread_join(watch->thread);
    if (ours)
        WEFT_OS->close(watch->stop);
    WEFT_OS->free(watch);
}

weft_i_fate weft_i_watch_fate(const weft_i_rank_record *rank_record)
{
    /* LEFT is stored before the word is let go, so it is read last: whoever sees the word free sees
     * LEFT too. */
    uint32_t word = atomic_load_explicit(&rank_record->life.word, memory_order_acquire);
    uint32_t seen = atomic_load_explicit(&rank_record->life.exit, memory_order_acquire);
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_acquire);
    if (state == WEFT_I_RANK_LEFT || state == WEFT_I_RANK_FAILED)
        return WEFT_I_LEFT;
    return (word & FUTEX_OWNER_DIED) || seen ? WEFT_I_DEAD : WEFT_I_ALIVE;
}

static void describe_exit(uint32_t seen, weft_i_text *out)
{
    int status = (int)(seen & 0xffff);
    if (WIFSIGNALED(status))
        weft_i_text_put(out, "killed by signal %d (%s)", WTERMSIG(status),
                        strsignal(WTERMSIG(status)));
    else
        weft_i_text_put(out, "its process exited with status %d", WEXITSTATUS(status));
}

bool weft_i_watch_is_stopped(const weft_i_rank_record *rank_record)
{
    int process = WEFT_I_READ_ONCE(rank_record->address.process);
    char state = process ? weft_i_os_process_state(process) : 0;
    return state == 'T' || state == 't';
}

static void describe_alive(const weft_i_rank_record *rank_record, weft_i_text *out)
{
    int64_t beat_ns = atomic_load_explicit(&rank_record->heart.beat_ns, memory_order_relaxed);
    double silent = beat_ns ? ((double)WEFT_OS->clock_ns() - (double)beat_ns) * 1e-9 : 0;
    if (weft_i_watch_is_stopped(rank_record))
        weft_i_text_put(out, "stopped by a signal (no sign of life for %.1f s)", silent);
    else if (beat_ns && silent * 1e9 > SILENCE_NS)
        weft_i_text_put(out, "silent for %.1f s: stopped or starved of processor time", silent);
    else
        weft_i_text_put(out, "alive");
}

static void describe_state(const weft_i_rank_record *rank_record, weft_i_text *out)
{
    uint32_t seen = atomic_load_explicit(&rank_record->life.exit, memory_order_acquire);
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_acquire);
    if (state == WEFT_I_RANK_LEFT)
        weft_i_text_put(out, "left the job");
    else if (state == WEFT_I_RANK_FAILED)
        weft_i_text_put(out, "could not enter the job: its weft_init failed");
    else if (seen)
        describe_exit(seen, out);
    else if (weft_i_watch_fate(rank_record) == WEFT_I_DEAD)
        weft_i_text_put(out, "died, or exited without weft_finish");
    else if (state == WEFT_I_RANK_AWAITED)
        weft_i_text_put(out, "never called weft_init");
    else if (state == WEFT_I_RANK_ENTERING)
        weft_i_text_put(out, "is entering the job");
    else
        describe_alive(rank_record, out);
}

/* The operation a rank is in, if it is in one (an operation may have finished parts that are
 * newer); else its last, without its steps. */
static bool last_operation(const weft_i_record *record, weft_i_record_entry *out)
{
    weft_i_record_entry newest[8];
    size_t count = weft_i_record_newest(record, newest, 8);
    for (size_t i = 0; i < count; i++)
        if (!newest[i].finished && !weft_i_record_is_step(&newest[i]))
            return *out = newest[i], true;
    size_t last = 0;
    while (last + 1 < count && weft_i_record_is_step(&newest[last]))
        last++;
    if (count)
        *out = newest[last];
    return count > 0;
}

void weft_i_watch_describe(const weft_i_rank_record *rank_record, weft_i_text *out)
{
    describe_state(rank_record, out);
    /* Until then the rank still writes its address and its record; pairs with its release. */
    uint32_t state = atomic_load_explicit(&rank_record->life.state, memory_order_acquire);
    if (state == WEFT_I_RANK_AWAITED || state == WEFT_I_RANK_ENTERING)
        return;
    int process = WEFT_I_READ_ONCE(rank_record->address.process);
    if (process)
        weft_i_text_put(out, ", process %d", process);
    weft_i_record_entry last;
    if (!last_operation(&rank_record->record, &last))
        return;
    char text[256];
    weft_i_record_text(&rank_record->record, &last, text, sizeof text);
    weft_i_text_put(out, "; its last operation: %s", text);
}
