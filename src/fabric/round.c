/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round of a launch.  A single poll loop watches the ends of the ranks (pidfds), their output,
 * our input, our signals and the clock.  A rank that has ended stays a zombie until its pipes are
 * at their end: its number, and so the number of its process group, cannot be given to a stranger
 * before we have killed what is left of the group.
 */
#include "fabric/round.h"

#include "base/room.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool captures(const weft_i_round *round)
{
    return !(round->opts->flags & WEFT_LAUNCH_NO_CAPTURE);
}

/* A port nobody listens on now, for programs that open a store of their own on it; weft does not
 * use it. */
static int free_port(void)
{
    int fd = WEFT_OS->socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        return 0;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int port = 0;
    if (!WEFT_OS->bind(fd, (struct sockaddr *)&here, sizeof here))
        port = weft_i_os_port_of(fd);
    WEFT_OS->close(fd);
    return port;
}

static weft_status open_tables(weft_i_round *round)
{
    size_t ranks = (size_t)round->opts->ranks;
    round->children = WEFT_OS->alloc(ranks * sizeof *round->children);
    round->endings = WEFT_OS->alloc(ranks * sizeof *round->endings);
    round->fds = WEFT_OS->alloc((3 * ranks + 5) * sizeof *round->fds);
    if (!round->children || !round->endings || !round->fds)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for %zu ranks", ranks);
    for (size_t i = 0; i < ranks; i++)
        round->children[i].pidfd = -1;
    round->null_fd = WEFT_OS->open("/dev/null", O_RDWR, 0);
    return round->null_fd < 0 ? weft_i_fail_errno(errno, "launch: opening /dev/null") : WEFT_OK;
}

static weft_status open_all(weft_i_round *round)
{
    const weft_launch_opts *opts = round->opts;
    WEFT_TRY(open_tables(round));
    WEFT_TRY(weft_i_job_new(opts->ranks, WEFT_I_BETWEEN_PROCESSES, &round->job));
    WEFT_TRY(weft_i_launch_env_make(&round->env, opts->ranks, round->job->fd, free_port(),
                                    round->restarts, opts->env));
    bool show = !opts->log_dir || (opts->flags & WEFT_LAUNCH_TEE);
    return weft_i_lines_open(&round->lines, opts->ranks, !(opts->flags & WEFT_LAUNCH_NO_PREFIX),
                             opts->log_dir, round->restarts > 0, show);
}

static void give_back(weft_i_round *round)
{
    weft_i_feed_close(&round->feed);
    weft_i_lines_close(&round->lines);
    weft_i_launch_env_free(&round->env);
    if (round->job)
        weft_i_segment_drop(round->job);
    if (round->null_fd >= 0)
        WEFT_OS->close(round->null_fd);
    WEFT_OS->free(round->children);
    WEFT_OS->free(round->endings);
    WEFT_OS->free(round->fds);
}

weft_status weft_i_round_open(weft_i_round *round)
{
    round->null_fd = round->feed.fd = -1;
    round->wake_at = WEFT_I_NEVER;
    round->kills = weft_i_room_kills();
    weft_status status = open_all(round);
    if (status < 0)
        give_back(round);
    return status;
}

/* The rank's life when it is a function.  Descriptors of ours that exec would close are closed by
 * hand. */
__attribute__((noreturn)) static void live(weft_i_round *round, int rank,
                                           const weft_i_os_child *child)
{
    if (weft_i_os_child_settle(child))
        weft_i_os_child_end(127);
    weft_i_lines_leave(&round->lines);
    weft_i_feed_close(&round->feed);
    for (int i = 0; i < rank; i++)
        if (round->children[i].pidfd >= 0)
            WEFT_OS->close(round->children[i].pidfd);
    const int ours[] = {round->signal_fd, round->null_fd, child->in, child->out, child->err};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i] > 2 && (i < 2 || ours[i] != round->null_fd))
            WEFT_OS->close(ours[i]);
    environ = round->env.list;
    int code = round->opts->body(rank, round->opts->arg);
    fflush(NULL);
    weft_i_os_child_end(code < 0 ? -code : code);
}

static pid_t give_birth(weft_i_round *round, int rank, const weft_i_os_child *child)
{
    if (round->opts->argv)
        return WEFT_OS->spawn(child);
    fflush(NULL); /* or the child would write our buffered bytes once more */
    pid_t process = WEFT_OS->fork();
    if (process == 0)
        live(round, rank, child);
    return process;
}

static weft_status start_child(weft_i_round *round, int rank, weft_i_os_child *child)
{
    weft_i_child *slot = &round->children[rank];
    pid_t process = give_birth(round, rank, child);
    if (process < 0 && round->opts->argv && errno == ENOENT)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "launch: there is no program \"%s\"",
                           round->opts->argv[0]);
    if (process < 0 && round->opts->argv)
        return weft_i_fail_errno(errno, "launch: starting rank %d: %s", rank, round->opts->argv[0]);
    if (process < 0)
        return weft_i_fail_errno(errno, "launch: forking rank %d", rank);
    slot->process = process;
    round->unreaped++;
    slot->pidfd = WEFT_OS->pidfd_open(process);
    return slot->pidfd < 0 ? weft_i_fail_errno(errno, "launch: watching rank %d", rank) : WEFT_OK;
}

static weft_status start_rank(weft_i_round *round, int rank)
{
    weft_i_os_child child = {.argv = round->opts->argv,
                             .env = round->env.list,
                             .in = round->null_fd,
                             .out = -1,
                             .err = -1,
                             .keep = round->job->fd,
                             .core = round->opts->flags & WEFT_LAUNCH_BIND ? rank : -1,
                             .parent = weft_i_os_process(),
                             .mask = round->mask};
    weft_i_launch_env_set_rank(&round->env, rank);
    weft_status status = rank == 0 ? weft_i_feed_open(&round->feed, &child.in) : WEFT_OK;
    if (status == WEFT_OK && captures(round))
        status = weft_i_lines_add(&round->lines, rank, &child.out, &child.err);
    if (status == WEFT_OK)
        status = start_child(round, rank, &child);
    const int theirs[] = {child.in == round->null_fd ? -1 : child.in, child.out, child.err};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (theirs[i] >= 0)
            WEFT_OS->close(theirs[i]);
    return status;
}

/* To the rank and all it started.  A child that has not made its group yet is reached alone. */
static void signal_child(const weft_i_child *child, int signal)
{
    if (child->process && !child->reaped && WEFT_OS->kill(-child->process, signal))
        WEFT_OS->kill(child->process, signal);
}

static void signal_all(weft_i_round *round, int signal)
{
    for (int rank = 0; rank < round->opts->ranks; rank++)
        if (!round->endings[rank].order)
            signal_child(&round->children[rank], signal);
}

/* Raises the pressure to `press` and says so to the ranks; never lowers it. */
static void press_on(weft_i_round *round, weft_i_press press)
{
    if (press <= round->press)
        return;
    round->press = press;
    round->press_until =
        press == WEFT_I_PRESS_KILL ? WEFT_I_NEVER : WEFT_OS->clock_ns() + round->grace_ns;
    if (press == WEFT_I_PRESS_TERM) {
        signal_all(round, SIGTERM);
        signal_all(round, SIGCONT); /* a stopped rank must wake to die */
    } else if (press == WEFT_I_PRESS_KILL) {
        signal_all(round, SIGKILL);
    }
}

/* Takes the rank out of the system: kills what it left in its group, takes its last output, reaps
 * it. */
static void reap(weft_i_round *round, int rank)
{
    weft_i_child *child = &round->children[rank];
    signal_child(child, SIGKILL);
    WEFT_OS->waitpid(child->process, NULL, 0);
    child->reaped = true;
    round->unreaped--;
    weft_i_lines_end(&round->lines, rank);
}

/* For a round that cannot be watched: everything ends now. */
static void kill_all(weft_i_round *round)
{
    for (int rank = 0; rank < round->opts->ranks; rank++) {
        weft_i_child *child = &round->children[rank];
        signal_child(child, SIGKILL);
        if (child->pidfd >= 0)
            WEFT_OS->close(child->pidfd);
        child->pidfd = -1;
        if (child->process && !child->reaped)
            reap(round, rank);
    }
}

static void note_end(weft_i_round *round, int rank, int status)
{
    weft_i_child *child = &round->children[rank];
    weft_i_job_note_exit(weft_i_job_of(round->job), rank, status);
    round->endings[rank] = (weft_i_ending){
        .order = ++round->ends, .status = status, .by_us = round->press >= WEFT_I_PRESS_TERM};
    WEFT_OS->close(child->pidfd);
    child->pidfd = -1;
    child->linger_until = WEFT_OS->clock_ns() + round->grace_ns;
    if (weft_i_verdict_failed(status))
        press_on(round, WEFT_I_PRESS_GRACE);
}

static weft_status take_ends(weft_i_round *round, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0, rank = 0; i < count; i++, rank++) {
        int status = 0;
        while (round->children[rank].pidfd != fds[i].fd)
            rank++; /* the entries are in the order of the ranks */
        if (!fds[i].revents)
            continue;
        int ended = WEFT_OS->wait_kept(round->children[rank].process, &status);
        if (ended < 0)
            return weft_i_fail_errno(errno, "launch: waiting for rank %zu", rank);
        if (ended)
            note_end(round, (int)rank, status);
    }
    return WEFT_OK;
}

static void take_signal(weft_i_round *round, int signal)
{
    int64_t now = WEFT_OS->clock_ns();
    if (signal == SIGINT && now < round->second_one_kills) {
        press_on(round, WEFT_I_PRESS_KILL);
        return;
    }
    if (signal == SIGINT)
        round->second_one_kills = now + round->grace_ns;
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT)
        round->interrupted = round->interrupted ? round->interrupted : signal;
    signal_all(round, signal);
    if (signal == SIGTSTP) {
        WEFT_OS->kill(weft_i_os_process(), SIGSTOP);
        signal_all(round, SIGCONT); /* we run again, so shall they */
    }
}

static void take_signals(weft_i_round *round)
{
    struct signalfd_siginfo info;
    while (round->signal_fd >= 0 &&
           WEFT_OS->read(round->signal_fd, &info, sizeof info) == sizeof info)
        take_signal(round, (int)info.ssi_signo);
}

static void take_deadline(weft_i_round *round)
{
    round->deadline = WEFT_I_NEVER;
    round->timed_out = true;
    if (!(round->opts->flags & WEFT_LAUNCH_QUIET)) {
        weft_i_lines_say(&round->lines, "weft: the job's time is up; what its ranks are doing:");
        for (int rank = 0; rank < round->opts->ranks; rank++) {
            const char *state = round->endings[rank].order ? "has ended" : "is running";
            weft_i_lines_say(&round->lines, "weft: rank %d %s", rank, state);
            weft_i_round_tell_record(round, rank, 1);
        }
    }
    press_on(round, WEFT_I_PRESS_TERM);
}

/* The job shall end: its time is up, or somebody interrupts it. */
static bool wants_end(const weft_i_round *round)
{
    return round->press >= WEFT_I_PRESS_TERM || round->interrupted;
}

/* What the clock asks for, and ranks whose output is complete. */
static void take_time(weft_i_round *round)
{
    int64_t now = WEFT_OS->clock_ns();
    if (now >= round->deadline)
        take_deadline(round);
    if (round->press != WEFT_I_PRESS_NONE && now >= round->press_until)
        press_on(round, round->press + 1);
    for (int rank = 0; rank < round->opts->ranks; rank++) {
        const weft_i_child *child = &round->children[rank];
        if (round->endings[rank].order && !child->reaped &&
            (now >= child->linger_until || weft_i_lines_ended(&round->lines, rank) ||
             (wants_end(round) && weft_i_lines_stuck(&round->lines, rank))))
            reap(round, rank);
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Milliseconds until the clock asks for something, rounded up; -1: it never does. */
static int time_left(const weft_i_round *round)
{
    int64_t next = earlier(round->deadline, round->wake_at);
    if (round->press != WEFT_I_PRESS_NONE)
        next = earlier(next, round->press_until);
    for (int rank = 0; rank < round->opts->ranks; rank++)
        if (round->endings[rank].order && !round->children[rank].reaped)
            next = earlier(next, round->children[rank].linger_until);
    if (next == WEFT_I_NEVER)
        return -1;
    int64_t left = next - WEFT_OS->clock_ns();
    return left <= 0                             ? 0
           : left > INT32_MAX * INT64_C(1000000) ? INT32_MAX
                                                 : (int)((left + 999999) / 1000000);
}

/* One turn of the loop: waits for anything and takes all there is. */
static weft_status turn(weft_i_round *round)
{
    size_t signals = round->signal_fd >= 0, ends = signals, lines, feed;
    if (signals)
        round->fds[0] = (struct pollfd){.fd = round->signal_fd, .events = POLLIN};
    for (int rank = 0; rank < round->opts->ranks; rank++)
        if (round->children[rank].pidfd >= 0)
            round->fds[ends++] =
                (struct pollfd){.fd = round->children[rank].pidfd, .events = POLLIN};
    lines = ends + weft_i_lines_poll(&round->lines, round->fds + ends);
    feed = lines + weft_i_feed_poll(&round->feed, round->fds + lines);
    if (WEFT_OS->poll(round->fds, feed, time_left(round)) < 0)
        return weft_i_fail_errno(errno, "launch: poll");
    take_signals(round);
    weft_i_lines_take(&round->lines, round->fds + ends, lines - ends);
    weft_i_feed_take(&round->feed, round->fds + lines, feed - lines);
    WEFT_TRY(take_ends(round, round->fds + signals, ends - signals));
    take_time(round);
    return WEFT_OK;
}

weft_status weft_i_round_run(weft_i_round *round)
{
    weft_status status = WEFT_OK;
    for (int rank = 0; rank < round->opts->ranks && status == WEFT_OK; rank++)
        status = start_rank(round, rank);
    while (status == WEFT_OK && round->unreaped)
        status = turn(round);
    if (status < 0)
        kill_all(round);
    return status;
}

/*
 * Writes what waits, at the latest until `until`.  Readers that still read have up to `grace_ns`
 * more, a moment at a time.
 */
static void drain(weft_i_round *round, int64_t until, int64_t grace_ns)
{
    const int64_t moment_ns = 200000000;
    int64_t last = until > WEFT_I_NEVER - grace_ns ? WEFT_I_NEVER : until + grace_ns;
    size_t left;
    while ((left = weft_i_lines_pending(&round->lines)) && !round->interrupted) {
        int64_t now = WEFT_OS->clock_ns();
        if (now >= until)
            break;
        round->wake_at = until;
        if (turn(round) < 0)
            break;
        now = WEFT_OS->clock_ns();
        if (weft_i_lines_pending(&round->lines) < left && now + moment_ns > until)
            until = now + moment_ns < last ? now + moment_ns : last;
    }
}

void weft_i_round_close(weft_i_round *round)
{
    const int64_t moment_ns = 200000000;
    bool hurry = wants_end(round);
    int64_t until = hurry ? WEFT_OS->clock_ns() + moment_ns : round->deadline;
    /* No rank is left; whoever interrupts us now does not want the rest of the output. */
    weft_i_feed_close(&round->feed);
    round->press = WEFT_I_PRESS_NONE;
    round->deadline = WEFT_I_NEVER;
    int before = round->interrupted;
    round->interrupted = 0;
    drain(round, until, hurry ? round->grace_ns : 0);
    if (!round->interrupted && weft_i_lines_pending(&round->lines)) {
        round->timed_out |= WEFT_OS->clock_ns() >= until;
        weft_i_lines_drop(&round->lines);
    }
    round->output_lost =
        weft_i_lines_tell_lost(&round->lines, !(round->opts->flags & WEFT_LAUNCH_QUIET));
    drain(round, WEFT_OS->clock_ns() + moment_ns, 0);
    round->interrupted = before ? before : round->interrupted;
    give_back(round);
}

void weft_i_round_tell_record(weft_i_round *round, int rank, size_t count)
{
    weft_i_record_entry entries[8];
    char text[256];
    const weft_i_record *record = &weft_i_job_slot(weft_i_job_of(round->job), rank)->record;
    size_t found = weft_i_record_newest(record, entries, count < 8 ? count : 8);
    while (found--) /* oldest first, as they happened */
        weft_i_lines_say(&round->lines, "weft:   | %s",
                         weft_i_record_text(record, &entries[found], text, sizeof text));
}
