/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching: checks the options, takes the signals over, runs attempts until one succeeds or no
 * restart is left, and reports.  What an attempt does is in attempt.c.
 */
#include "weft/launch.h"

#include "base/env.h"
#include "base/room.h"
#include "base/status.h"
#include "base/text.h"
#include "launch/attempt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

typedef struct signals {
    int fd;          /* -1: not ours to pass on */
    sigset_t before; /* what was blocked: restored afterwards, and given to the ranks */
} signals;

static weft_status check(const weft_launch_opts *opts)
{
    if (!opts || opts->size != sizeof *opts)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: options without their size; start from WEFT_LAUNCH_OPTS_INIT");
    if (opts->ranks < 1 || opts->ranks > WEFT_LAUNCH_RANKS_MAX)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: %d ranks; 1 to %d are possible",
                           opts->ranks, WEFT_LAUNCH_RANKS_MAX);
    if (!opts->argv == !opts->body || (opts->argv && !opts->argv[0]))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: give either a program or a function");
    if (opts->max_restarts < 0)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: %d restarts", opts->max_restarts);
    if ((opts->flags & WEFT_LAUNCH_NO_CAPTURE) && opts->log_dir)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: output that is not captured cannot be logged");
    for (int fd = 0; fd < 3; fd++)
        if (!weft_i_os_is_open(fd))
            return weft_i_fail(WEFT_ERR_STATE, "launch: descriptor %d (standard %s) is closed", fd,
                               fd == 0   ? "input"
                               : fd == 1 ? "output"
                                         : "error");
    return WEFT_OK;
}

static weft_status take_signals(signals *taken, bool pass_on)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
    sigset_t held;
    taken->fd = -1;
    weft_i_os_signals_hold(passed, pass_on ? sizeof passed / sizeof *passed : 0, &held,
                           &taken->before);
    if (!pass_on)
        return WEFT_OK;
    taken->fd = WEFT_OS->signalfd(&held);
    if (taken->fd >= 0)
        return WEFT_OK;
    weft_status status = weft_i_fail_errno(errno, "launch: taking signals");
    weft_i_os_signals_restore(&taken->before);
    return status;
}

static void give_signals_back(const signals *taken)
{
    if (taken->fd >= 0)
        WEFT_OS->close(taken->fd);
    weft_i_os_signals_restore(&taken->before);
}

/* How a rank ended, as its exit status and its last words tell it. */
static void tell_how(weft_i_attempt *attempt, int rank, char *out, size_t bytes)
{
    char said[WEFT_I_LINES_TAIL + 1];
    if (weft_i_cause_deserted(&attempt->endings[rank])) {
        snprintf(out, bytes, "it exited with 0 without calling weft_finish");
        return;
    }
    weft_i_lines_tail(&attempt->lines, rank, 5, said);
    weft_i_cause_text(attempt->endings[rank].status, said, out, bytes);
}

/* "ranks 0 1 3: exit code 40 (...)": ranks that ended alike share a line. */
static void tell_others(weft_i_attempt *attempt, int first)
{
    int ranks = attempt->opts->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        const weft_i_ending *ending = &attempt->endings[rank];
        char list[512] = "", how[160];
        weft_i_text text = {list, sizeof list, 0};
        bool told = rank == first || !weft_i_cause_failed(ending->status);
        for (int i = 0; i < rank && !told; i++)
            told = i != first && attempt->endings[i].status == ending->status;
        for (int i = rank; i < ranks && !told; i++) {
            if (i == first || attempt->endings[i].status != ending->status)
                continue;
            if (text.used > sizeof list - 24) {
                weft_i_text_put(&text, " ...");
                break;
            }
            weft_i_text_put(&text, " %d", i);
        }
        if (told)
            continue;
        tell_how(attempt, rank, how, sizeof how);
        weft_i_lines_say(&attempt->lines, "weft: then rank%s%s: %s%s",
                         strchr(list + 1, ' ') ? "s" : "", list, how,
                         ending->by_us ? ", on our request" : "");
    }
}

/* Messages of the library are not repeated where they have been shown with their ranks. */
static void tell_last_lines(weft_i_attempt *attempt, int rank)
{
    char tail[WEFT_I_LINES_TAIL + 1], *state = NULL;
    unsigned flags = attempt->opts->flags;
    bool shown = (!attempt->opts->log_dir || flags & WEFT_LAUNCH_TEE) &&
                 !(flags & (WEFT_LAUNCH_NO_PREFIX | WEFT_LAUNCH_NO_CAPTURE));
    int told = 0;
    weft_i_lines_tail(&attempt->lines, rank, 5, tail);
    for (char *line = strtok_r(tail, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        if (shown && weft_i_chorus_knows(line, strlen(line)))
            continue;
        if (!told++)
            weft_i_lines_say(&attempt->lines,
                             "weft: the last lines of rank %d on standard error:", rank);
        weft_i_lines_say(&attempt->lines, "weft:   | %s", line);
    }
}

/* The kernel kills without a word to the process. */
static void tell_memory(weft_i_attempt *attempt, int rank)
{
    int status = attempt->endings[rank].status;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && weft_i_room_kills() > attempt->kills)
        weft_i_lines_say(&attempt->lines,
                         "weft: perhaps out of memory: meanwhile the kernel has killed for want of "
                         "memory; the limits are in `weft info`");
}

/* Nobody failed; but errors of a rank that did not call weft_finish are not known to anybody. */
static void tell_deserters(weft_i_attempt *attempt)
{
    int count = 0, ranks = attempt->opts->ranks;
    for (int rank = 0; rank < ranks; rank++)
        count += weft_i_cause_deserted(&attempt->endings[rank]);
    if (count)
        weft_i_lines_say(&attempt->lines,
                         "weft: %d of %d ranks exited with 0 without calling weft_finish, which "
                         "reports the first error of a rank",
                         count, ranks);
}

static void tell(weft_i_attempt *attempt, int first)
{
    if (attempt->opts->flags & WEFT_LAUNCH_QUIET)
        return;
    if (attempt->lines.log_error)
        weft_i_lines_say(&attempt->lines, "weft: a log file is not complete: %s",
                         strerror(attempt->lines.log_error));
    if (attempt->timed_out)
        return;
    if (first < 0) {
        tell_deserters(attempt);
        return;
    }
    if (attempt->interrupted) {
        weft_i_lines_say(&attempt->lines, "weft: interrupted by SIG%s",
                         sigabbrev_np(attempt->interrupted));
        tell_others(attempt, -1);
        return;
    }
    char how[160];
    weft_i_record_entry entry;
    tell_how(attempt, first, how, sizeof how);
    weft_i_lines_say(&attempt->lines, "weft: rank %d of %d failed%s: %s", first,
                     attempt->opts->ranks, attempt->opts->ranks > 1 ? " first" : "", how);
    tell_memory(attempt, first);
    tell_last_lines(attempt, first);
    if (weft_i_record_last(&weft_i_job_rank(weft_i_job_of(attempt->job), first)->record, &entry)) {
        weft_i_lines_say(&attempt->lines, "weft: its last operations:");
        weft_i_attempt_tell_record(attempt, first, 5);
    }
    tell_others(attempt, first);
}

static int conclude(weft_i_attempt *attempt, weft_launch_end *end)
{
    int first = weft_i_cause_first(attempt->endings, attempt->opts->ranks);
    int status = first < 0 ? 0 : attempt->endings[first].status;
    for (int rank = 0; first >= 0 && !weft_i_cause_failed(status); rank++)
        status = attempt->endings[rank].status; /* of those that missed a deserter */
    bool by_signal = first >= 0 && WIFSIGNALED(status);
    *end = (weft_launch_end){.first_rank = first,
                             .exit_code = by_signal ? -1 : weft_i_cause_code(status),
                             .signal = by_signal ? WTERMSIG(status) : 0,
                             .timed_out = attempt->timed_out,
                             .interrupted = attempt->interrupted,
                             .restarts = attempt->restarts};
    tell(attempt, first);
    weft_i_attempt_write_traces(attempt);
    return attempt->timed_out ? WEFT_LAUNCH_TIMED_OUT : weft_i_cause_code(status);
}

/* One attempt; its exit status, or a negative weft_status. */
static int run_attempt(weft_i_attempt *attempt, weft_launch_end *end)
{
    WEFT_TRY(weft_i_attempt_open(attempt));
    weft_status status = weft_i_attempt_run(attempt);
    int result = status < 0 ? (int)status : conclude(attempt, end);
    bool again = result > 0 && !attempt->timed_out && !attempt->interrupted &&
                 attempt->restarts < attempt->opts->max_restarts;
    if (again && !(attempt->opts->flags & WEFT_LAUNCH_QUIET))
        weft_i_lines_say(&attempt->lines, "weft: starting all ranks again (%d of %d)",
                         attempt->restarts + 1, attempt->opts->max_restarts);
    weft_i_attempt_close(attempt);
    end->interrupted = attempt->interrupted;
    end->timed_out = attempt->timed_out;
    if (result == 0 && attempt->output_lost)
        result = attempt->timed_out ? WEFT_LAUNCH_TIMED_OUT : WEFT_LAUNCH_OUTPUT_LOST;
    return result;
}

int weft_launch(const weft_launch_opts *opts)
{
    signals taken;
    weft_launch_end end = {.first_rank = -1};
    int64_t grace_ms = 0;
    int result;
    WEFT_TRY(check(opts));
    WEFT_TRY(weft_i_env_number(WEFT_I_ENV_KILL_GRACE, &grace_ms));
    WEFT_TRY(take_signals(&taken, opts->flags & WEFT_LAUNCH_SIGNALS));
    int64_t deadline = weft_i_os_deadline(opts->timeout_ms);
    for (int restarts = 0;; restarts++) {
        weft_i_attempt attempt = {.opts = opts,
                                  .mask = &taken.before,
                                  .signal_fd = taken.fd,
                                  .restarts = restarts,
                                  .deadline = deadline,
                                  .grace_ns = grace_ms * 1000000};
        result = run_attempt(&attempt, &end);
        if (result <= 0 || end.timed_out || end.interrupted || restarts == opts->max_restarts)
            break;
    }
    give_signals_back(&taken);
    if (opts->end)
        *opts->end = end;
    return result;
}
