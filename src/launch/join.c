/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher of one host of several: what `weft run --join` does.  It hears what to start on its
 * standard input, says where it can be reached, starts the ranks when it is told where all meet,
 * and passes on what they write and how they end.
 */
#include "base/report/env.h"
#include "base/report/os_look.h"
#include "base/report/status.h"
#include "launch/attempt.h"
#include "launch/caught.h"
#include "launch/job_frame.h"
#include "launch/meeting_point.h"
#include "weft/launch.h"
#include "weft/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { ORDERS_MS = 60000, REACH_MS = 5000, FAREWELL_MS = 2000 };

typedef struct joining {
    weft_i_uplink uplink;
    weft_i_job_frame job;
    weft_i_meeting_point point;
    uint8_t secret[WEFT_I_KEYED_BYTES];
    weft_i_caught signals;
    bool started;
} joining;

/* A pipe is opened anew, so that writing never waits: see lines.c. */
static int open_up(void)
{
    int own =
        weft_i_os_is_pipe(1) ? WEFT_OS->open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK, 0) : -1;
    return own > 0 ? own : 1;
}

/* Reads and writes once.  Signals that ask to end end it too. */
static weft_status wait_once(joining *it, int64_t until)
{
    struct pollfd fds[3 + WEFT_I_MEETING_CALLERS + 1];
    size_t up, all, signals = it->signals.fd >= 0;
    if (signals)
        fds[0] = (struct pollfd){.fd = it->signals.fd, .events = POLLIN};
    up = signals + weft_i_uplink_poll(&it->uplink, fds + signals);
    all = up + weft_i_meeting_point_poll(&it->point, fds + up);
    int64_t due = weft_i_uplink_due(&it->uplink);
    int left = (int)weft_i_os_ms_until(due < until ? due : until);
    if (WEFT_OS->poll(fds, all, left < 0 ? left : left + 1) < 0)
        return weft_i_fail_errno(errno, "weft run --join: poll");
    weft_i_meeting_point_take(&it->point, it->secret, fds + up, all - up);
    if (!weft_i_uplink_move(&it->uplink, fds + signals, up - signals))
        return weft_i_fail(WEFT_ERR_UNREACHABLE,
                           "weft run --join: the launcher that called it is gone");
    if (signals && fds[0].revents)
        return weft_i_fail(WEFT_ERR_CANCELLED,
                           "a signal ended the launcher before its ranks began");
    return WEFT_OK;
}

/* The next order. */
static weft_status hear(joining *it, weft_i_frame *frame)
{
    int64_t until = weft_i_os_deadline(it->job.memory ? -1 : ORDERS_MS);
    for (;;) {
        int got = weft_i_frame_next(&it->uplink.in, frame);
        if (got < 0)
            return weft_i_fail(
                WEFT_ERR_PROTOCOL,
                "weft run --join: what comes on standard input is not from `weft run "
                "--hosts`, which alone calls this");
        if (got)
            return WEFT_OK;
        if (WEFT_OS->clock_ns() >= until)
            return weft_i_fail(WEFT_ERR_TIMEOUT, "weft run --join: nothing came in %d s",
                               ORDERS_MS / 1000);
        WEFT_TRY(wait_once(it, until));
    }
}

static weft_status take_job(joining *it)
{
    weft_i_frame frame;
    WEFT_TRY(hear(it, &frame));
    if (frame.kind != WEFT_I_FRAME_JOB)
        return weft_i_fail(WEFT_ERR_PROTOCOL, "weft run --join: told to %d before it has a job",
                           (int)frame.kind);
    WEFT_TRY(weft_i_job_frame_read(&frame, &it->job));
    if (!weft_i_keyed_parse(it->job.place.token, it->secret))
        return weft_i_fail(WEFT_ERR_PROTOCOL, "weft run --join: the job has no secret");
    it->uplink.silence_ns = it->job.silence_ns;
    if (*it->job.folder && !weft_i_os_enter_folder(it->job.folder))
        return weft_i_fail_errno(errno, "entering the folder %s", it->job.folder);
    return WEFT_OK;
}

static weft_status greet(joining *it)
{
    weft_i_hello_frame hello = {.version = WEFT_VERSION};
    weft_i_os_host_name(hello.host, sizeof hello.host);
    if (it->job.place.host == 0 && it->job.place.hosts > 1) {
        WEFT_TRY(weft_i_meeting_point_open(&it->point));
        hello.count = weft_i_net_addresses(hello.addresses);
        if (hello.count < 0)
            return (weft_status)hello.count;
        hello.port = it->point.port;
    }
    hello.free_port = weft_i_meeting_free_port();
    weft_i_hello_frame_put(&it->uplink.out, &hello);
    return WEFT_OK;
}

static weft_status probe(joining *it, const weft_i_frame *frame)
{
    weft_i_hello_frame there;
    char why[WEFT_I_MEETING_WHY];
    if (!weft_i_hello_frame_read(frame, &there))
        return weft_i_fail(WEFT_ERR_PROTOCOL, "weft run --join: a probe without addresses");
    uint32_t reached =
        weft_i_meeting_reach(it->secret, there.addresses, there.count, there.port, REACH_MS, why);
    weft_i_wire_writer to =
        weft_i_frame_begin(&it->uplink.out, WEFT_I_FRAME_REACHED, WEFT_I_MEETING_WHY + 8);
    weft_i_wire_put_u32(&to, reached);
    weft_i_wire_put_blob(&to, (weft_i_view){why, strlen(why)});
    weft_i_frame_end(&it->uplink.out, &to);
    return WEFT_OK;
}

static weft_status take_start(joining *it, const weft_i_frame *frame)
{
    weft_i_seating *place = &it->job.place;
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    weft_i_wire_get_text(&from, place->master, sizeof place->master);
    place->store_port = (int)weft_i_wire_get_u32(&from);
    place->master_port = (int)weft_i_wire_get_u32(&from);
    weft_i_meeting_point_close(&it->point); /* rank 0 listens there now */
    it->started = true;
    return weft_i_wire_done(&from)
               ? WEFT_OK
               : weft_i_fail(WEFT_ERR_PROTOCOL, "weft run --join: a start without an address");
}

/* Until the ranks may start, or the launcher that called us wants no ranks any more. */
static weft_status await_start(joining *it)
{
    weft_i_frame frame;
    while (!it->started) {
        WEFT_TRY(hear(it, &frame));
        if (frame.kind == WEFT_I_FRAME_PROBE)
            WEFT_TRY(probe(it, &frame));
        else if (frame.kind == WEFT_I_FRAME_START)
            WEFT_TRY(take_start(it, &frame));
        else if (frame.kind == WEFT_I_FRAME_PING)
            weft_i_uplink_answer(&it->uplink, &frame);
        else if (frame.kind == WEFT_I_FRAME_PRESS)
            return weft_i_fail(WEFT_ERR_CANCELLED, "the launch was given up");
    }
    return WEFT_OK;
}

static weft_status run_ranks(joining *it)
{
    weft_launch_opts opts = WEFT_LAUNCH_OPTS_INIT;
    opts.ranks = it->job.ranks;
    opts.flags = it->job.flags;
    opts.argv = it->job.argv;
    opts.env = it->job.env;
    weft_i_attempt attempt = {.opts = &opts,
                              .mask = &it->signals.before,
                              .signal_fd = it->signals.fd,
                              .restarts = it->job.restarts,
                              .deadline = WEFT_I_NEVER,
                              .grace_ns = it->job.grace_ns,
                              .place = it->job.place,
                              .uplink = &it->uplink};
    WEFT_TRY(weft_i_attempt_open(&attempt));
    it->uplink.asks_input = it->job.place.first == 0;
    weft_status status = weft_i_attempt_run(&attempt);
    if (status == WEFT_OK) {
        weft_i_attempt_write_traces(&attempt);
        weft_i_uplink_tell_over(&it->uplink);
    }
    weft_i_errors reason;
    weft_i_errors_save(&reason);
    weft_i_attempt_close(&attempt);
    weft_i_errors_restore(&reason);
    return status;
}

static weft_status serve(joining *it)
{
    weft_i_frame_plain(&it->uplink.out, WEFT_I_FRAME_BEGIN, strlen(WEFT_I_FRAME_BEGIN));
    WEFT_TRY(take_job(it));
    WEFT_TRY(greet(it));
    WEFT_TRY(await_start(it));
    return run_ranks(it);
}

/* What is still to be said is said; nobody waits for us longer than that. */
static void part(joining *it, weft_status status)
{
    if (status < 0 && !it->uplink.lost)
        weft_i_uplink_tell_failed(&it->uplink, status, weft_last_error());
    if (!it->uplink.lost)
        weft_i_frame_push(&it->uplink.out, FAREWELL_MS);
    weft_i_meeting_point_close(&it->point);
    if (it->uplink.out.fd > 1)
        WEFT_OS->close(it->uplink.out.fd);
    weft_i_uplink_close(&it->uplink);
    WEFT_OS->free(it->job.memory);
    weft_i_keyed_forget(it->secret, sizeof it->secret);
    weft_i_keyed_forget(&it->job.place, sizeof it->job.place);
}

int weft_launch_join(void)
{
    joining it = {.point = {.listener = -1}};
    for (int fd = 0; fd < 3; fd++)
        if (!weft_i_os_is_open(fd))
            return weft_i_fail(WEFT_ERR_STATE, "weft run --join: descriptor %d is closed", fd);
    if (weft_i_os_is_terminal(0))
        return weft_i_fail(WEFT_ERR_INVALID_ARG,
                           "weft run --join: it is called by `weft run --hosts`, not by hand");
    WEFT_TRY(weft_i_caught_take(&it.signals, true));
    weft_i_uplink_open(&it.uplink, 0, open_up());
    weft_status status = serve(&it);
    part(&it, status);
    weft_i_caught_give_back(&it.signals);
    return status;
}
