/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attempt on several hosts.  One poll loop, as that of attempt.c, over the remote shells: what
 * they say is acted on in fleet_hear.c.  A host that is silent is asked for its clock every second,
 * so silence means that it, or the way to it, is gone.
 */
#include "launch/fleet.h"

#include "base/report/env.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { PING_MS = 1000, STOP_MS = 200, FDS_A_HOST = 4 };
static const int64_t second_ns = 1000000000;

/* ---- opening ---- */

static weft_status open_tables(weft_i_fleet *fleet)
{
    weft_i_attempt *attempt = fleet->attempt;
    size_t ranks = (size_t)fleet->hosts.ranks, hosts = (size_t)fleet->hosts.count;
    fleet->far = WEFT_OS->alloc(hosts * sizeof *fleet->far);
    fleet->records = WEFT_OS->alloc(ranks * sizeof *fleet->records);
    fleet->ended_at = WEFT_OS->alloc(ranks * sizeof *fleet->ended_at);
    fleet->fds = WEFT_OS->alloc((FDS_A_HOST * hosts + 2 * ranks + 8) * sizeof *fleet->fds);
    fleet->ends = WEFT_OS->alloc((hosts + 1) * sizeof *fleet->ends);
    attempt->endings = WEFT_OS->alloc(ranks * sizeof *attempt->endings);
    for (size_t i = 0; fleet->far && i < hosts; i++)
        fleet->far[i] = (weft_i_far_host){.host = &fleet->hosts.hosts[i],
                                          .pidfd = -1,
                                          .from = -1,
                                          .errors = -1,
                                          .orders = {.fd = -1},
                                          .end_by = WEFT_I_NEVER};
    if (fleet->far && fleet->records && fleet->ended_at && fleet->fds && fleet->ends &&
        attempt->endings)
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for %zu ranks on %zu hosts", ranks,
                       hosts);
}

/* The user's own secret, or a new one. */
static weft_status make_token(weft_i_seating *place)
{
    const char *own = weft_i_env_text(WEFT_I_ENV_TOKEN);
    uint8_t bytes[WEFT_I_KEYED_BYTES];
    weft_i_text text = {place->token, sizeof place->token, 0};
    if (*own && !weft_i_keyed_parse(own, bytes))
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: WEFT_TOKEN is not 64 hexadecimal digits");
    if (!*own && WEFT_OS->random_bytes(bytes, sizeof bytes))
        return weft_i_fail_errno(errno, "launch: random bytes for the job's secret");
    for (size_t i = 0; i < sizeof bytes; i++)
        weft_i_text_put(&text, "%02x", bytes[i]);
    weft_i_keyed_forget(bytes, sizeof bytes);
    return WEFT_OK;
}

static weft_status open_fleet(weft_i_fleet *fleet)
{
    weft_i_attempt *attempt = fleet->attempt;
    const weft_launch_opts *opts = attempt->opts;
    int64_t silence_ms = 0, meet_ms = 0;
    WEFT_TRY(open_tables(fleet));
    WEFT_TRY(weft_i_env_number(WEFT_I_ENV_LAUNCH_SILENCE, &silence_ms));
    WEFT_TRY(weft_i_env_number(WEFT_I_ENV_MEET_TIMEOUT, &meet_ms));
    fleet->silence_ns = silence_ms < 0 ? WEFT_I_NEVER : silence_ms * 1000000;
    fleet->start_by = weft_i_os_deadline(meet_ms);
    attempt->place = (weft_i_seating){.hosts = fleet->hosts.count, .world = fleet->hosts.ranks};
    WEFT_TRY(make_token(&attempt->place));
    bool show = !opts->log_dir || (opts->flags & WEFT_LAUNCH_TEE);
    return weft_i_lines_open(&attempt->lines, fleet->hosts.ranks,
                             !(opts->flags & WEFT_LAUNCH_NO_PREFIX), opts->log_dir,
                             attempt->restarts > 0, show);
}

weft_status weft_i_fleet_open(weft_i_attempt *attempt)
{
    weft_i_fleet *fleet = WEFT_OS->alloc(sizeof *fleet);
    if (!fleet)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for the hosts");
    *fleet = (weft_i_fleet){.attempt = attempt, .hosts = *attempt->hosts, .lost = -1};
    attempt->fleet = fleet; /* closed with the attempt, also if this fails */
    return open_fleet(fleet);
}

void weft_i_fleet_close(weft_i_fleet *fleet)
{
    if (!fleet)
        return;
    for (int i = 0; fleet->far && i < fleet->hosts.count; i++)
        weft_i_far_host_close(&fleet->far[i]);
    for (int i = 0; fleet->records && i < fleet->hosts.ranks; i++)
        WEFT_OS->free(fleet->records[i]);
    WEFT_OS->free(fleet->far);
    WEFT_OS->free(fleet->records);
    WEFT_OS->free(fleet->ended_at);
    WEFT_OS->free(fleet->fds);
    WEFT_OS->free(fleet->ends);
    WEFT_OS->free(fleet);
}

/* ---- starting ---- */

/* Settings of weft and of UCX go along, but what is a host's or this process's own. */
static bool goes_along(const char *entry)
{
    static const char *const stay[] = {
        "WEFT_TOKEN=", "WEFT_JOB_FD=", "WEFT_HOST_ID=", "WEFT_STORE_ADDR=", "WEFT_RESTART_COUNT="};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        if (!strncmp(entry, stay[i], strlen(stay[i])))
            return false;
    return !strncmp(entry, "WEFT_", 5) || !strncmp(entry, "UCX_", 4);
}

/* Ours first: what the caller gives replaces it. */
static const char **collect_env(const char *const *extra)
{
    size_t count = 1, used = 0;
    for (size_t i = 0; environ[i]; i++)
        count += goes_along(environ[i]);
    for (size_t i = 0; extra && extra[i]; i++)
        count++;
    const char **list = WEFT_OS->alloc(count * sizeof *list);
    for (size_t i = 0; list && environ[i]; i++)
        if (goes_along(environ[i]))
            list[used++] = environ[i];
    for (size_t i = 0; list && extra && extra[i]; i++)
        list[used++] = extra[i];
    return list;
}

static weft_status call_host(weft_i_fleet *fleet, weft_i_far_host *far, const char *const *env,
                             const char *folder)
{
    const weft_i_attempt *attempt = fleet->attempt;
    const weft_launch_opts *opts = attempt->opts;
    weft_i_job_frame job = {.place = attempt->place,
                            .ranks = far->host->ranks,
                            .restarts = attempt->restarts,
                            .flags = opts->flags & (WEFT_LAUNCH_BIND | WEFT_LAUNCH_QUIET),
                            .grace_ns = attempt->grace_ns,
                            .silence_ns = fleet->silence_ns,
                            .folder = folder,
                            .env = env,
                            .argv = opts->argv};
    job.place.host = (int)(far - fleet->far);
    job.place.first = far->host->first;
    WEFT_TRY(weft_i_far_host_start(far, opts->rsh ? opts->rsh : WEFT_LAUNCH_RSH,
                                   opts->weft ? opts->weft : "weft", attempt->mask));
    fleet->attempt->unreaped++;
    weft_i_job_frame_put(&far->orders, &job);
    return far->orders.broken ? weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for a command")
                              : WEFT_OK;
}

/* A few at a time: what they say is heard meanwhile. */
weft_status weft_i_fleet_start(weft_i_fleet *fleet)
{
    char folder[4096];
    const char **env = collect_env(fleet->attempt->opts->env);
    weft_status status =
        env ? WEFT_OK
            : weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for the environment of the ranks");
    if (!weft_i_os_folder(folder, sizeof folder))
        *folder = 0;
    for (int i = 0; status == WEFT_OK && i < fleet->hosts.count; i++) {
        status = call_host(fleet, &fleet->far[i], env, folder);
        fleet->attempt->wake_at = 0;
        if (status == WEFT_OK)
            status = weft_i_fleet_turn(fleet);
        fleet->attempt->wake_at = WEFT_I_NEVER;
        if (weft_i_attempt_wants_end(fleet->attempt))
            break;
    }
    WEFT_OS->free(env);
    return status;
}

/* ---- orders ---- */

static void order_all(weft_i_fleet *fleet, weft_i_frame_kind kind, uint32_t number)
{
    for (int i = 0; i < fleet->hosts.count; i++) {
        weft_i_far_host *far = &fleet->far[i];
        weft_i_wire_writer to;
        if (far->state != WEFT_I_FAR_RUNS)
            continue;
        to = weft_i_frame_begin(&far->orders, kind, 4);
        weft_i_wire_put_u32(&to, number);
        weft_i_frame_end(&far->orders, &to);
    }
}

void weft_i_fleet_signal(weft_i_fleet *fleet, int signal)
{
    order_all(fleet, WEFT_I_FRAME_SIGNAL, (uint32_t)signal);
    for (int i = 0; i < fleet->hosts.count; i++) {
        weft_i_far_host *far = &fleet->far[i];
        if (signal == SIGTSTP) /* we stop now */
            weft_i_frame_push(&far->orders, STOP_MS);
        if (signal == SIGCONT) /* nothing was heard while we were stopped */
            far->heard = WEFT_OS->clock_ns();
    }
}

void weft_i_fleet_press(weft_i_fleet *fleet, weft_i_press press)
{
    order_all(fleet, WEFT_I_FRAME_PRESS, (uint32_t)press);
    /* Who does not tell in time that its ranks are gone is left to its own. */
    for (int i = 0; i < fleet->hosts.count && press == WEFT_I_PRESS_KILL; i++)
        if (fleet->far[i].end_by == WEFT_I_NEVER)
            fleet->far[i].end_by = WEFT_OS->clock_ns() + fleet->attempt->grace_ns + 2 * second_ns;
}

void weft_i_fleet_ask_states(weft_i_fleet *fleet)
{
    order_all(fleet, WEFT_I_FRAME_STATES, 0);
}

void weft_i_fleet_kill(weft_i_fleet *fleet)
{
    for (int i = 0; i < fleet->hosts.count; i++)
        weft_i_far_host_close(&fleet->far[i]);
    fleet->attempt->unreaped = 0;
}

/* ---- the loop ---- */

static bool is_open(const weft_i_far_host *far)
{
    return far->state != WEFT_I_FAR_OVER && far->state != WEFT_I_FAR_LOST;
}

static bool listens(const weft_i_fleet *fleet)
{
    return !weft_i_lines_full(&fleet->attempt->lines) || weft_i_attempt_wants_end(fleet->attempt);
}

static size_t poll_host(const weft_i_fleet *fleet, const weft_i_far_host *far, struct pollfd *fds)
{
    size_t count = 0;
    if (far->pidfd >= 0)
        fds[count++] = (struct pollfd){.fd = far->pidfd, .events = POLLIN};
    if (far->from >= 0 && listens(fleet))
        fds[count++] = (struct pollfd){.fd = far->from, .events = POLLIN};
    if (far->errors >= 0)
        fds[count++] = (struct pollfd){.fd = far->errors, .events = POLLIN};
    if (weft_i_frame_waiting(&far->orders))
        fds[count++] = (struct pollfd){.fd = far->orders.fd, .events = POLLOUT};
    return count;
}

static void say_shell(void *arg, const weft_i_far_host *far, const char *line)
{
    weft_i_lines_say(arg, "weft: host %s: %s", far->host->name, line);
}

static void hear_errors(weft_i_fleet *fleet, weft_i_far_host *far)
{
    char bytes[4096];
    ssize_t n = WEFT_OS->read(far->errors, bytes, sizeof bytes);
    if (n < 0 && errno == EAGAIN)
        return;
    weft_i_far_host_hear(far, true, n > 0 ? bytes : "\n", n > 0 ? (size_t)n : 1, say_shell,
                         &fleet->attempt->lines);
    if (n > 0)
        return;
    WEFT_OS->close(far->errors);
    far->errors = -1;
}

static weft_status take_host(weft_i_fleet *fleet, weft_i_far_host *far, const struct pollfd *fds,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!fds[i].revents)
            continue;
        if (fds[i].fd == far->from)
            WEFT_TRY(weft_i_fleet_hear(fleet, far));
        else if (fds[i].fd == far->errors)
            hear_errors(fleet, far);
        else if (fds[i].fd == far->orders.fd)
            weft_i_frame_flush(&far->orders);
    }
    return WEFT_OK;
}

/* Is there more to read from a shell that has ended? */
static bool has_more(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return fd >= 0 && WEFT_OS->poll(&look, 1, 0) > 0;
}

/* The shell has ended: takes what it left, then its exit status. */
static weft_status take_end(weft_i_fleet *fleet, weft_i_far_host *far)
{
    int status = 0;
    int ended = far->process ? WEFT_OS->wait_kept(far->process, &status) : 0;
    if (ended < 0)
        return weft_i_fail_errno(errno, "launch: waiting for a remote shell");
    if (!ended || (is_open(far) && !listens(fleet)))
        return WEFT_OK;
    while (has_more(far->from))
        WEFT_TRY(weft_i_fleet_hear(fleet, far));
    for (int i = 0; i < 64 && has_more(far->errors); i++)
        hear_errors(fleet, far);
    WEFT_OS->waitpid(far->process, &far->status, 0);
    far->process = 0;
    fleet->attempt->unreaped--;
    if (is_open(far)) {
        char how[640];
        weft_i_far_host_text(far, how, sizeof how);
        weft_i_fleet_lose(fleet, far, WEFT_ERR_UNREACHABLE, "%sits remote shell %s",
                          far->began ? "" : "weft has not answered there; ", how);
    }
    weft_i_far_host_close(far);
    return WEFT_OK;
}

static void ping(weft_i_far_host *far, int64_t now)
{
    if (far->state == WEFT_I_FAR_CALLED || now < far->pinged + PING_MS * INT64_C(1000000) ||
        weft_i_frame_waiting(&far->orders) > WEFT_I_FRAME_FULL)
        return;
    far->pinged = now;
    weft_i_wire_writer to = weft_i_frame_begin(&far->orders, WEFT_I_FRAME_PING, 8);
    weft_i_wire_put_u64(&to, (uint64_t)now);
    weft_i_frame_end(&far->orders, &to);
}

/* What the clock asks for of one host. */
static void take_host_clock(weft_i_fleet *fleet, weft_i_far_host *far, int64_t now)
{
    if (!listens(fleet))
        far->heard = now; /* it is not silent: nobody listens */
    if (is_open(far)) {
        ping(far, now);
        if (far->state >= WEFT_I_FAR_GREETED && fleet->silence_ns != WEFT_I_NEVER &&
            now >= far->heard + fleet->silence_ns)
            weft_i_fleet_lose(fleet, far, WEFT_ERR_UNREACHABLE, "it has been silent for %.0f s",
                              (double)fleet->silence_ns / 1e9);
        else if (!fleet->runs && now >= fleet->start_by && far->state == WEFT_I_FAR_CALLED)
            weft_i_fleet_lose(fleet, far, WEFT_ERR_UNREACHABLE,
                              "weft has not answered there within WEFT_MEET_TIMEOUT%s%s",
                              *far->last ? "; its remote shell says: " : "", far->last);
        else if (now >= far->end_by)
            weft_i_fleet_lose(fleet, far, WEFT_ERR_UNREACHABLE,
                              "it has not told that its ranks have ended");
    }
    if (!is_open(far) && far->orders.fd >= 0) { /* which ends it */
        weft_i_frame_out_free(&far->orders);
        WEFT_OS->close(far->orders.fd);
        far->orders.fd = -1;
        if (far->state == WEFT_I_FAR_OVER || far->end_by == WEFT_I_NEVER)
            far->end_by = now + fleet->attempt->grace_ns + second_ns;
    }
    if (!is_open(far) && far->process && now >= far->end_by &&
        WEFT_OS->kill(-far->process, SIGKILL))
        WEFT_OS->kill(far->process, SIGKILL);
}

int64_t weft_i_fleet_due(const weft_i_fleet *fleet)
{
    int64_t now = WEFT_OS->clock_ns(), next = now + PING_MS * INT64_C(1000000);
    for (int i = 0; i < fleet->hosts.count; i++) {
        const weft_i_far_host *far = &fleet->far[i];
        bool waits = is_open(far) || far->process;
        if (waits && far->end_by > now)
            next = far->end_by < next ? far->end_by : next;
        if (!is_open(far) && far->orders.fd >= 0)
            next = now;
    }
    return next;
}

/* Input of rank 0, when it has asked for some. */
static bool reads_input(const weft_i_fleet *fleet)
{
    return fleet->asked && fleet->runs && (!weft_i_os_is_terminal(0) || weft_i_os_in_foreground(0));
}

static void take_input(weft_i_fleet *fleet)
{
    char bytes[WEFT_I_STDIN_PIECE];
    ssize_t n = WEFT_OS->read(0, bytes, sizeof bytes);
    if (n < 0 && errno == EAGAIN)
        return;
    fleet->asked = false;
    weft_i_frame_put(&fleet->far[0].orders, WEFT_I_FRAME_INPUT, bytes, n > 0 ? (size_t)n : 0);
}

/* A host was lost.  Before the ranks run, that is why there are none; later the others are told to
 * end. */
static weft_status take_loss(weft_i_fleet *fleet)
{
    if (fleet->lost < 0)
        return WEFT_OK;
    if (fleet->fault < 0)
        return weft_i_fail(fleet->fault, "launch: host %s: %s",
                           fleet->hosts.hosts[fleet->lost].name, fleet->loss);
    weft_i_attempt_press(fleet->attempt, WEFT_I_PRESS_GRACE);
    return WEFT_OK;
}

static weft_status take_all(weft_i_fleet *fleet, const struct pollfd *fds, const size_t *ends)
{
    int64_t now = WEFT_OS->clock_ns();
    for (int i = 0; i < fleet->hosts.count; i++) {
        weft_i_far_host *far = &fleet->far[i];
        WEFT_TRY(take_host(fleet, far, fds + ends[i], ends[i + 1] - ends[i]));
        WEFT_TRY(take_end(fleet, far));
        take_host_clock(fleet, far, now);
    }
    weft_i_fleet_advance(fleet);
    return take_loss(fleet);
}

weft_status weft_i_fleet_turn(weft_i_fleet *fleet)
{
    weft_i_attempt *attempt = fleet->attempt;
    size_t *ends = fleet->ends, at = attempt->signal_fd >= 0, lines, input;
    struct pollfd *fds = fleet->fds;
    if (at)
        fds[0] = (struct pollfd){.fd = attempt->signal_fd, .events = POLLIN};
    for (int i = 0; i < fleet->hosts.count; i++) {
        ends[i] = at;
        at += poll_host(fleet, &fleet->far[i], fds + at);
    }
    ends[fleet->hosts.count] = at;
    lines = at + weft_i_lines_poll(&attempt->lines, fds + at);
    input = reads_input(fleet);
    if (input)
        fds[lines] = (struct pollfd){.fd = 0, .events = POLLIN};
    if (WEFT_OS->poll(fds, lines + input, weft_i_attempt_time_left(attempt)) < 0)
        return weft_i_fail_errno(errno, "launch: poll");
    weft_i_attempt_take_signals(attempt);
    weft_i_lines_take(&attempt->lines, fds + at, lines - at);
    if (input && fds[lines].revents)
        take_input(fleet);
    WEFT_TRY(take_all(fleet, fds, ends));
    weft_i_attempt_take_clock(attempt, WEFT_OS->clock_ns());
    if (!fleet->runs && weft_i_attempt_wants_end(attempt))
        weft_i_fleet_kill(fleet);
    return WEFT_OK;
}

/* ---- what is told afterwards ---- */

bool weft_i_fleet_record_text(const weft_i_fleet *fleet, int rank, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", fleet->records[rank] ? fleet->records[rank] : "");
    return *out;
}

void weft_i_fleet_sort_ends(weft_i_fleet *fleet)
{
    weft_i_ending *endings = fleet->attempt->endings;
    int ranks = fleet->hosts.ranks;
    for (int rank = 0; rank < ranks; rank++) {
        int before = 0;
        for (int other = 0; other < ranks && endings[rank].order; other++)
            before += fleet->ended_at[other] && fleet->ended_at[other] < fleet->ended_at[rank];
        endings[rank].order = endings[rank].order ? before + 1 : 0;
    }
}

bool weft_i_fleet_lost_before(const weft_i_fleet *fleet, int first)
{
    if (fleet->lost < 0 || first < 0)
        return fleet->lost >= 0;
    /* Ranks that only say that another is gone, or that we ended, follow from it. */
    const weft_i_ending *ending = &fleet->attempt->endings[first];
    return ending->by_us || ending->bereft || fleet->ended_at[first] > fleet->lost_at;
}

void weft_i_fleet_host_text(const weft_i_fleet *fleet, int host, char *out, size_t bytes)
{
    const weft_i_named_host *of = &fleet->hosts.hosts[host];
    if (of->ranks == 1)
        snprintf(out, bytes, "host %s (rank %d)", of->name, of->first);
    else
        snprintf(out, bytes, "host %s (ranks %d-%d)", of->name, of->first,
                 of->first + of->ranks - 1);
}
