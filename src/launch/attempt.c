/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of a launch.  A single poll loop watches the ends of the ranks (pidfds), their
 * output, our input, our signals and the clock.  A rank that has ended stays a zombie until its
 * pipes are at their end: its number, and so the number of its process group, cannot be given to a
 * stranger before we have killed what is left of the group.
 */
#include "launch/attempt.h"

#include "base/machine/room.h"
#include "base/report/status.h"
#include "launch/fleet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool captures(const weft_i_attempt *attempt)
{
    return !(attempt->opts->flags & WEFT_LAUNCH_NO_CAPTURE);
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

static weft_status open_tables(weft_i_attempt *attempt)
{
    size_t ranks = (size_t)attempt->opts->ranks;
    attempt->children = WEFT_OS->alloc(ranks * sizeof *attempt->children);
    attempt->endings = WEFT_OS->alloc(ranks * sizeof *attempt->endings);
    attempt->fds = WEFT_OS->alloc((3 * ranks + 7) * sizeof *attempt->fds);
    if (!attempt->children || !attempt->endings || !attempt->fds)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for %zu ranks", ranks);
    for (size_t i = 0; i < ranks; i++)
        attempt->children[i].pidfd = -1;
    attempt->null_fd = WEFT_OS->open("/dev/null", O_RDWR, 0);
    return attempt->null_fd < 0 ? weft_i_fail_errno(errno, "launch: opening /dev/null") : WEFT_OK;
}

static weft_status open_all(weft_i_attempt *attempt)
{
    const weft_launch_opts *opts = attempt->opts;
    if (attempt->hosts)
        return weft_i_fleet_open(attempt);
    WEFT_TRY(open_tables(attempt));
    WEFT_TRY(weft_i_job_new(opts->ranks, WEFT_I_BETWEEN_PROCESSES, &attempt->job));
    if (!attempt->place.world)
        attempt->place = (weft_i_seating){
            .hosts = 1, .world = opts->ranks, .master = "127.0.0.1", .master_port = free_port()};
    WEFT_TRY(weft_i_launch_env_make(&attempt->env, &attempt->place, opts->ranks, attempt->job->fd,
                                    attempt->restarts, opts->env));
    if (attempt->uplink)
        return weft_i_lines_open_relay(&attempt->lines, opts->ranks, attempt->place.first,
                                       &attempt->uplink->out);
    bool show = !opts->log_dir || (opts->flags & WEFT_LAUNCH_TEE);
    return weft_i_lines_open(&attempt->lines, opts->ranks, !(opts->flags & WEFT_LAUNCH_NO_PREFIX),
                             opts->log_dir, attempt->restarts > 0, show);
}

static void give_back(weft_i_attempt *attempt)
{
    weft_i_fleet_close(attempt->fleet);
    attempt->fleet = NULL;
    weft_i_stdin_close(&attempt->input);
    weft_i_lines_close(&attempt->lines);
    weft_i_launch_env_free(&attempt->env);
    if (attempt->job)
        weft_i_segment_drop(attempt->job);
    if (attempt->null_fd >= 0)
        WEFT_OS->close(attempt->null_fd);
    WEFT_OS->free(attempt->children);
    WEFT_OS->free(attempt->endings);
    WEFT_OS->free(attempt->fds);
}

weft_status weft_i_attempt_open(weft_i_attempt *attempt)
{
    attempt->null_fd = attempt->input.fd = -1;
    attempt->wake_at = WEFT_I_NEVER;
    attempt->kills = weft_i_room_kills();
    weft_status status = open_all(attempt);
    if (status < 0)
        give_back(attempt);
    return status;
}

/* The rank's life when it is a function.  Descriptors of ours that exec would close are closed by
 * hand. */
__attribute__((noreturn)) static void live(weft_i_attempt *attempt, int rank,
                                           const weft_i_os_child *child)
{
    if (weft_i_os_child_settle(child))
        weft_i_os_child_end(127);
    weft_i_lines_leave(&attempt->lines);
    weft_i_stdin_close(&attempt->input);
    for (int i = 0; i < rank; i++)
        if (attempt->children[i].pidfd >= 0)
            WEFT_OS->close(attempt->children[i].pidfd);
    const int ours[] = {attempt->signal_fd, attempt->null_fd, child->in, child->out, child->err};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i] > 2 && (i < 2 || ours[i] != attempt->null_fd))
            WEFT_OS->close(ours[i]);
    environ = attempt->env.list;
    int code = attempt->opts->body(rank, attempt->opts->arg);
    fflush(NULL);
    weft_i_os_child_end(code < 0 ? -code : code);
}

static pid_t give_birth(weft_i_attempt *attempt, int rank, const weft_i_os_child *child)
{
    if (attempt->opts->argv)
        return WEFT_OS->spawn(child);
    fflush(NULL); /* or the child would write our buffered bytes once more */
    pid_t process = WEFT_OS->fork();
    if (process == 0)
        live(attempt, rank, child);
    return process;
}

/* ENOENT is also what a file gives whose interpreter ("#!", or the loader of an ELF file) is not
 * there. */
static weft_status fail_to_start(int error, int rank, const char *program)
{
    if (error != ENOENT)
        return weft_i_fail_errno(error, "launch: starting rank %d: %s", rank, program);
    int fd = strchr(program, '/') ? WEFT_OS->open(program, O_PATH | O_CLOEXEC, 0) : -1;
    if (fd < 0)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "launch: there is no program \"%s\"", program);
    WEFT_OS->close(fd);
    return weft_i_fail(WEFT_ERR_NOT_FOUND,
                       "launch: the interpreter of \"%s\", or the loader it asks for, is not there",
                       program);
}

static weft_status start_child(weft_i_attempt *attempt, int rank, weft_i_os_child *child)
{
    weft_i_child *slot = &attempt->children[rank];
    pid_t process = give_birth(attempt, rank, child);
    if (process < 0 && attempt->opts->argv)
        return fail_to_start(errno, rank, attempt->opts->argv[0]);
    if (process < 0)
        return weft_i_fail_errno(errno, "launch: forking rank %d", rank);
    slot->process = process;
    attempt->unreaped++;
    slot->pidfd = WEFT_OS->pidfd_open(process);
    return slot->pidfd < 0 ? weft_i_fail_errno(errno, "launch: watching rank %d", rank) : WEFT_OK;
}

/* What rank 0 of the job reads; the others read nothing. */
static weft_status open_input(weft_i_attempt *attempt, int rank, int *child_in)
{
    if (attempt->place.first + rank != 0)
        return WEFT_OK;
    return attempt->uplink ? weft_i_stdin_open_fed(&attempt->input, child_in)
                           : weft_i_stdin_open(&attempt->input, child_in);
}

static weft_status start_rank(weft_i_attempt *attempt, int rank)
{
    weft_i_os_child child = {.argv = attempt->opts->argv,
                             .env = attempt->env.list,
                             .in = attempt->null_fd,
                             .out = -1,
                             .err = -1,
                             .keep = attempt->job->fd,
                             .core = attempt->opts->flags & WEFT_LAUNCH_BIND ? rank : -1,
                             .parent = weft_i_os_process(),
                             .mask = attempt->mask};
    weft_i_launch_env_set_rank(&attempt->env, rank);
    weft_status status = open_input(attempt, rank, &child.in);
    if (status == WEFT_OK && captures(attempt))
        status = weft_i_lines_add(&attempt->lines, rank, &child.out, &child.err);
    if (status == WEFT_OK)
        status = start_child(attempt, rank, &child);
    const int theirs[] = {child.in == attempt->null_fd ? -1 : child.in, child.out, child.err};
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

void weft_i_attempt_signal(weft_i_attempt *attempt, int signal)
{
    if (attempt->fleet) {
        weft_i_fleet_signal(attempt->fleet, signal);
        return;
    }
    for (int rank = 0; rank < attempt->opts->ranks; rank++)
        if (!attempt->endings[rank].order)
            signal_child(&attempt->children[rank], signal);
}

/* Raises the pressure to `press` and says so to the ranks; never lowers it. */
void weft_i_attempt_press(weft_i_attempt *attempt, weft_i_press press)
{
    if (press <= attempt->press)
        return;
    attempt->press = press;
    attempt->press_until =
        press >= WEFT_I_PRESS_KILL ? WEFT_I_NEVER : WEFT_OS->clock_ns() + attempt->grace_ns;
    if (attempt->fleet) {
        weft_i_fleet_press(attempt->fleet, press);
    } else if (press == WEFT_I_PRESS_TERM) {
        weft_i_attempt_signal(attempt, SIGTERM);
        weft_i_attempt_signal(attempt, SIGCONT); /* a stopped rank must wake to die */
    } else if (press >= WEFT_I_PRESS_KILL) {
        weft_i_attempt_signal(attempt, SIGKILL);
    }
}

/* Takes the rank out of the system: kills what it left in its group, takes its last output, reaps
 * it. */
static void reap(weft_i_attempt *attempt, int rank)
{
    weft_i_child *child = &attempt->children[rank];
    signal_child(child, SIGKILL);
    WEFT_OS->waitpid(child->process, NULL, 0);
    child->reaped = true;
    attempt->unreaped--;
    weft_i_lines_end(&attempt->lines, rank);
}

/* For an attempt that cannot be watched: everything ends now. */
static void kill_all(weft_i_attempt *attempt)
{
    if (attempt->fleet) {
        weft_i_fleet_kill(attempt->fleet);
        return;
    }
    for (int rank = 0; rank < attempt->opts->ranks; rank++) {
        weft_i_child *child = &attempt->children[rank];
        signal_child(child, SIGKILL);
        if (child->pidfd >= 0)
            WEFT_OS->close(child->pidfd);
        child->pidfd = -1;
        if (child->process && !child->reaped)
            reap(attempt, rank);
    }
}

/* Did the rank come into the job and not leave it?  Pairs with the releases of the rank, job.h. */
static bool is_in_job(const weft_i_attempt *attempt, int rank)
{
    const weft_i_rank_record *record = weft_i_job_rank(weft_i_job_of(attempt->job), rank);
    return atomic_load_explicit(&record->life.state, memory_order_acquire) == WEFT_I_RANK_HERE;
}

/* Its program may have turned the error into an exit code of its own. */
static bool is_bereft(const weft_i_attempt *attempt, int rank)
{
    enum { LOOKED_AT = 16 }; /* an operation, its steps, and those of other threads */
    weft_i_record_entry entries[LOOKED_AT];
    const weft_i_record *record = &weft_i_job_rank(weft_i_job_of(attempt->job), rank)->record;
    size_t count = weft_i_record_newest(record, entries, LOOKED_AT);
    for (size_t i = 0; i < count; i++)
        if (entries[i].finished && weft_i_status_follows((weft_status)entries[i].status))
            return true;
    return false;
}

static void note_end(weft_i_attempt *attempt, int rank, int status)
{
    weft_i_child *child = &attempt->children[rank];
    weft_i_job_note_exit(weft_i_job_of(attempt->job), rank, status);
    attempt->endings[rank] = (weft_i_ending){.order = ++attempt->ends,
                                             .status = status,
                                             .deserted = is_in_job(attempt, rank),
                                             .bereft = is_bereft(attempt, rank),
                                             .by_us = attempt->press >= WEFT_I_PRESS_TERM};
    WEFT_OS->close(child->pidfd);
    child->pidfd = -1;
    child->linger_until = WEFT_OS->clock_ns() + attempt->grace_ns;
    if (attempt->uplink)
        weft_i_uplink_tell_end(attempt, rank);
    if (weft_i_cause_failed(status))
        weft_i_attempt_press(attempt, WEFT_I_PRESS_GRACE);
}

static weft_status take_ends(weft_i_attempt *attempt, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0, rank = 0; i < count; i++, rank++) {
        int status = 0;
        while (attempt->children[rank].pidfd != fds[i].fd)
            rank++; /* the entries are in the order of the ranks */
        if (!fds[i].revents)
            continue;
        int ended = WEFT_OS->wait_kept(attempt->children[rank].process, &status);
        if (ended < 0)
            return weft_i_fail_errno(errno, "launch: waiting for rank %zu", rank);
        if (ended)
            note_end(attempt, (int)rank, status);
    }
    return WEFT_OK;
}

static void take_signal(weft_i_attempt *attempt, int signal)
{
    int64_t now = WEFT_OS->clock_ns();
    if (signal == SIGINT && now < attempt->second_one_kills) {
        weft_i_attempt_press(attempt, WEFT_I_PRESS_KILL);
        return;
    }
    if (signal == SIGINT)
        attempt->second_one_kills = now + attempt->grace_ns;
    bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (ends && !attempt->interrupted)
        attempt->interrupted = signal;
    weft_i_attempt_signal(attempt, signal);
    if (signal == SIGTSTP)
        WEFT_OS->kill(weft_i_os_process(), SIGSTOP);
    /* A stopped rank must wake to die.  After a stop we run again, so shall they. */
    if (ends || signal == SIGTSTP)
        weft_i_attempt_signal(attempt, SIGCONT);
}

void weft_i_attempt_take_signals(weft_i_attempt *attempt)
{
    struct signalfd_siginfo info;
    while (attempt->signal_fd >= 0 &&
           WEFT_OS->read(attempt->signal_fd, &info, sizeof info) == sizeof info)
        take_signal(attempt, (int)info.ssi_signo);
}

static void take_deadline(weft_i_attempt *attempt)
{
    attempt->deadline = WEFT_I_NEVER;
    attempt->timed_out = true;
    if (!(attempt->opts->flags & WEFT_LAUNCH_QUIET)) {
        weft_i_lines_say(&attempt->lines, "weft: the job's time is up; what its ranks are doing:");
        weft_i_attempt_tell_states(attempt);
    }
    weft_i_attempt_press(attempt, WEFT_I_PRESS_TERM);
}

/* The job shall end: its time is up, or somebody interrupts it. */
bool weft_i_attempt_wants_end(const weft_i_attempt *attempt)
{
    return attempt->press >= WEFT_I_PRESS_TERM || attempt->interrupted;
}

void weft_i_attempt_take_clock(weft_i_attempt *attempt, int64_t now)
{
    if (now >= attempt->deadline)
        take_deadline(attempt);
    if (attempt->press != WEFT_I_PRESS_NONE && now >= attempt->press_until)
        weft_i_attempt_press(attempt, attempt->press + 1);
}

/* What the clock asks for, and ranks whose output is complete. */
static void take_time(weft_i_attempt *attempt)
{
    int64_t now = WEFT_OS->clock_ns();
    weft_i_attempt_take_clock(attempt, now);
    for (int rank = 0; rank < attempt->opts->ranks; rank++) {
        const weft_i_child *child = &attempt->children[rank];
        if (attempt->endings[rank].order && !child->reaped &&
            (now >= child->linger_until || weft_i_lines_ended(&attempt->lines, rank) ||
             (weft_i_attempt_wants_end(attempt) && weft_i_lines_stuck(&attempt->lines, rank))))
            reap(attempt, rank);
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Milliseconds until the clock asks for something, rounded up; -1: it never does. */
int weft_i_attempt_time_left(const weft_i_attempt *attempt)
{
    int64_t next = earlier(attempt->deadline, attempt->wake_at);
    next = earlier(next, weft_i_lines_due(&attempt->lines));
    if (attempt->uplink)
        next = earlier(next, weft_i_uplink_due(attempt->uplink));
    if (attempt->fleet)
        next = earlier(next, weft_i_fleet_due(attempt->fleet));
    if (attempt->press != WEFT_I_PRESS_NONE)
        next = earlier(next, attempt->press_until);
    for (int rank = 0; rank < attempt->opts->ranks && !attempt->fleet; rank++)
        if (attempt->endings[rank].order && !attempt->children[rank].reaped)
            next = earlier(next, attempt->children[rank].linger_until);
    if (next == WEFT_I_NEVER)
        return -1;
    int64_t left = next - WEFT_OS->clock_ns();
    return left <= 0                             ? 0
           : left > INT32_MAX * INT64_C(1000000) ? INT32_MAX
                                                 : (int)((left + 999999) / 1000000);
}

/* One turn of the loop: waits for anything and takes all there is. */
static weft_status turn_here(weft_i_attempt *attempt)
{
    size_t signals = attempt->signal_fd >= 0, ends = signals, lines, input, orders;
    struct pollfd *fds = attempt->fds;
    if (signals)
        fds[0] = (struct pollfd){.fd = attempt->signal_fd, .events = POLLIN};
    for (int rank = 0; rank < attempt->opts->ranks; rank++)
        if (attempt->children[rank].pidfd >= 0)
            fds[ends++] = (struct pollfd){.fd = attempt->children[rank].pidfd, .events = POLLIN};
    lines = ends + weft_i_lines_poll(&attempt->lines, fds + ends);
    input = lines + weft_i_stdin_poll(&attempt->input, fds + lines);
    orders = input + (attempt->uplink ? weft_i_uplink_poll(attempt->uplink, fds + input) : 0);
    if (WEFT_OS->poll(fds, orders, weft_i_attempt_time_left(attempt)) < 0)
        return weft_i_fail_errno(errno, "launch: poll");
    weft_i_attempt_take_signals(attempt);
    weft_i_lines_take(&attempt->lines, fds + ends, lines - ends);
    weft_i_stdin_take(&attempt->input, fds + lines, input - lines);
    if (attempt->uplink)
        weft_i_uplink_take(attempt, fds + input, orders - input);
    WEFT_TRY(take_ends(attempt, fds + signals, ends - signals));
    take_time(attempt);
    return WEFT_OK;
}

static weft_status turn(weft_i_attempt *attempt)
{
    return attempt->fleet ? weft_i_fleet_turn(attempt->fleet) : turn_here(attempt);
}

/* A look at everything without waiting. */
static weft_status glance(weft_i_attempt *attempt)
{
    attempt->wake_at = 0;
    weft_status status = turn(attempt);
    attempt->wake_at = WEFT_I_NEVER;
    return status;
}

/* Hundreds of ranks take seconds to start, on few cores minutes: signals, the deadline and output
 * do not wait until then.  Who is told to end starts no more. */
static weft_status start_ranks(weft_i_attempt *attempt)
{
    enum { BATCH = 16 };
    for (int rank = 0; rank < attempt->opts->ranks && !weft_i_attempt_wants_end(attempt); rank++) {
        WEFT_TRY(start_rank(attempt, rank));
        if (rank % BATCH == BATCH - 1)
            WEFT_TRY(glance(attempt));
    }
    return WEFT_OK;
}

weft_status weft_i_attempt_run(weft_i_attempt *attempt)
{
    weft_status status = attempt->fleet ? weft_i_fleet_start(attempt->fleet) : start_ranks(attempt);
    while (status == WEFT_OK && attempt->unreaped)
        status = turn(attempt);
    if (status < 0)
        kill_all(attempt);
    weft_i_lines_flush(&attempt->lines);
    return status;
}

/*
 * Writes what waits, at the latest until `until`.  Readers that still read have up to `grace_ns`
 * more, a moment at a time.
 */
static void drain(weft_i_attempt *attempt, int64_t until, int64_t grace_ns)
{
    const int64_t moment_ns = 200000000;
    int64_t last = until > WEFT_I_NEVER - grace_ns ? WEFT_I_NEVER : until + grace_ns;
    size_t left;
    while ((left = weft_i_lines_pending(&attempt->lines)) && !attempt->interrupted) {
        int64_t now = WEFT_OS->clock_ns();
        if (now >= until)
            break;
        attempt->wake_at = until;
        if (turn(attempt) < 0)
            break;
        now = WEFT_OS->clock_ns();
        if (weft_i_lines_pending(&attempt->lines) < left && now + moment_ns > until)
            until = now + moment_ns < last ? now + moment_ns : last;
    }
}

void weft_i_attempt_close(weft_i_attempt *attempt)
{
    const int64_t moment_ns = 200000000;
    bool hurry = weft_i_attempt_wants_end(attempt);
    int64_t until = hurry ? WEFT_OS->clock_ns() + moment_ns : attempt->deadline;
    /* No rank is left; whoever interrupts us now does not want the rest of the output. */
    weft_i_stdin_close(&attempt->input);
    attempt->press = WEFT_I_PRESS_NONE;
    attempt->deadline = WEFT_I_NEVER;
    int before = attempt->interrupted;
    attempt->interrupted = 0;
    drain(attempt, until, hurry ? attempt->grace_ns : 0);
    if (!attempt->interrupted && weft_i_lines_pending(&attempt->lines)) {
        attempt->timed_out |= WEFT_OS->clock_ns() >= until;
        weft_i_lines_drop(&attempt->lines);
    }
    attempt->output_lost =
        weft_i_lines_tell_lost(&attempt->lines, !(attempt->opts->flags & WEFT_LAUNCH_QUIET));
    drain(attempt, WEFT_OS->clock_ns() + moment_ns, 0);
    attempt->interrupted = before ? before : attempt->interrupted;
    give_back(attempt);
}
