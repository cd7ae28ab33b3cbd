/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching: checks the options, takes the signals over, runs attempts until one succeeds or no
 * restart is left, and reports.  What an attempt does is in attempt.c.
 */
#include "weft/launch.h"

#include "base/machine/room.h"
#include "base/report/env.h"
#include "base/report/status.h"
#include "base/report/text.h"
#include "launch/attempt.h"
#include "launch/caught.h"
#include "launch/fleet.h"
#include "launch/rsh.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static weft_status check_hosts(const weft_launch_opts *opts)
{
    if (!opts->hosts)
        return WEFT_OK;
    if (opts->body)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: ranks on several hosts run a program, not a function");
    if (opts->flags & WEFT_LAUNCH_NO_CAPTURE)
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "launch: output of ranks on several hosts has to be captured");
    return weft_i_rsh_check(opts->rsh ? opts->rsh : WEFT_LAUNCH_RSH);
}

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
    WEFT_TRY(check_hosts(opts));
    for (int fd = 0; fd < 3; fd++)
        if (!weft_i_os_is_open(fd))
            return weft_i_fail(WEFT_ERR_STATE, "launch: descriptor %d (standard %s) is closed", fd,
                               fd == 0   ? "input"
                               : fd == 1 ? "output"
                                         : "error");
    return WEFT_OK;
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

/* " on host b": only where there are several. */
static const char *host_of(const weft_i_attempt *attempt, int rank, char out[300])
{
    *out = 0;
    for (int i = 0; attempt->hosts && i < attempt->hosts->count; i++)
        if (rank >= attempt->hosts->hosts[i].first)
            snprintf(out, 300, " on host %s", attempt->hosts->hosts[i].name);
    return out;
}

/* A host was lost before any rank failed: what the ranks say follows from that. */
static bool tell_lost_host(weft_i_attempt *attempt, int first)
{
    char name[320];
    const weft_i_fleet *fleet = attempt->fleet;
    if (!fleet || !weft_i_fleet_lost_before(fleet, first))
        return false;
    weft_i_fleet_host_text(fleet, fleet->lost, name, sizeof name);
    weft_i_lines_say(&attempt->lines, "weft: %s was lost first: %s", name, fleet->loss);
    tell_others(attempt, -1);
    return true;
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
    if (first < 0 && !attempt->interrupted && !tell_lost_host(attempt, first))
        tell_deserters(attempt);
    if (first < 0 && !attempt->interrupted)
        return;
    if (attempt->interrupted) {
        weft_i_lines_say(&attempt->lines, "weft: interrupted by SIG%s",
                         sigabbrev_np(attempt->interrupted));
        tell_others(attempt, -1);
        return;
    }
    char how[160];
    if (tell_lost_host(attempt, first))
        return;
    tell_how(attempt, first, how, sizeof how);
    char where[300];
    weft_i_lines_say(&attempt->lines, "weft: rank %d of %d failed%s%s: %s", first,
                     attempt->opts->ranks, attempt->opts->ranks > 1 ? " first" : "",
                     host_of(attempt, first, where), how);
    tell_memory(attempt, first);
    tell_last_lines(attempt, first);
    weft_i_attempt_tell_record(attempt, first, "weft: its last operations:", 5);
    tell_others(attempt, first);
}

/* Of a job whose ranks are on several hosts; `code` is what the ranks say. */
static int conclude_hosts(const weft_i_attempt *attempt, int first, int code)
{
    if (attempt->interrupted && first < 0) /* before the ranks ran */
        return 128 + attempt->interrupted;
    return weft_i_fleet_lost_before(attempt->fleet, first) && !attempt->interrupted
               ? WEFT_LAUNCH_HOST_LOST
               : code;
}

static int conclude(weft_i_attempt *attempt, weft_launch_end *end)
{
    if (attempt->fleet)
        weft_i_fleet_sort_ends(attempt->fleet);
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
    int code = weft_i_cause_code(status);
    if (attempt->timed_out)
        return WEFT_LAUNCH_TIMED_OUT;
    return attempt->fleet ? conclude_hosts(attempt, first, code) : code;
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

/* Attempts until one succeeds, or no more shall be made. */
static int run_attempts(const weft_launch_opts *opts, const weft_i_host_list *hosts,
                        const weft_i_caught *taken, int64_t grace_ms)
{
    weft_launch_end end = {.first_rank = -1};
    int64_t deadline = weft_i_os_deadline(opts->timeout_ms);
    int result = 0;
    for (int restarts = 0;; restarts++) {
        weft_i_attempt attempt = {.opts = opts,
                                  .mask = &taken->before,
                                  .signal_fd = taken->fd,
                                  .restarts = restarts,
                                  .deadline = deadline,
                                  .grace_ns = grace_ms * 1000000,
                                  .hosts = hosts};
        result = run_attempt(&attempt, &end);
        if (result <= 0 || end.timed_out || end.interrupted || restarts == opts->max_restarts)
            break;
    }
    if (opts->end)
        *opts->end = end;
    return result;
}

int weft_launch(const weft_launch_opts *opts)
{
    weft_i_caught taken;
    weft_i_host_list hosts = {.hosts = NULL};
    int64_t grace_ms = 0;
    WEFT_TRY(check(opts));
    WEFT_TRY(weft_i_env_number(WEFT_I_ENV_KILL_GRACE, &grace_ms));
    weft_launch_opts own = *opts;
    if (opts->hosts)
        WEFT_TRY(weft_i_host_list_read(opts->hosts, opts->ranks, &hosts));
    own.ranks = opts->hosts ? hosts.ranks : opts->ranks;
    int result = (int)weft_i_caught_take(&taken, opts->flags & WEFT_LAUNCH_SIGNALS);
    if (result == WEFT_OK) {
        result = run_attempts(&own, opts->hosts ? &hosts : NULL, &taken, grace_ms);
        weft_i_caught_give_back(&taken);
    }
    weft_i_host_list_free(&hosts);
    return result;
}
