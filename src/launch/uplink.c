/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher of one host and the one that started it say while ranks run.  See uplink.h. */
#include "launch/uplink.h"

#include "base/report/status.h"
#include "launch/attempt.h"

#include <stdio.h>
#include <string.h>

enum { ENTRIES_TOLD = 5, RECORD_BYTES = 2048 };

void weft_i_uplink_open(weft_i_uplink *uplink, int down, int up)
{
    *uplink = (weft_i_uplink){
        .down = down, .out = {.fd = up}, .heard = WEFT_OS->clock_ns(), .silence_ns = WEFT_I_NEVER};
}

void weft_i_uplink_close(weft_i_uplink *uplink)
{
    weft_i_frame_in_free(&uplink->in);
    weft_i_frame_out_free(&uplink->out);
}

size_t weft_i_uplink_poll(const weft_i_uplink *uplink, struct pollfd *fds)
{
    size_t count = 0;
    if (uplink->lost)
        return 0;
    fds[count++] = (struct pollfd){.fd = uplink->down, .events = POLLIN};
    if (weft_i_frame_waiting(&uplink->out))
        fds[count++] = (struct pollfd){.fd = uplink->out.fd, .events = POLLOUT};
    return count;
}

int64_t weft_i_uplink_due(const weft_i_uplink *uplink)
{
    bool never = uplink->lost || uplink->paused || uplink->silence_ns == WEFT_I_NEVER;
    return never ? WEFT_I_NEVER : uplink->heard + uplink->silence_ns;
}

bool weft_i_uplink_move(weft_i_uplink *uplink, const struct pollfd *fds, size_t count)
{
    if (uplink->lost)
        return false;
    if (count && fds[0].revents) {
        uplink->lost = weft_i_frame_fill(&uplink->in, uplink->down) < 0;
        uplink->heard = WEFT_OS->clock_ns();
    }
    if (count > 1 && fds[1].revents)
        weft_i_frame_flush(&uplink->out);
    uplink->lost |= uplink->out.broken || WEFT_OS->clock_ns() >= weft_i_uplink_due(uplink);
    return !uplink->lost;
}

void weft_i_uplink_answer(weft_i_uplink *uplink, const weft_i_frame *ping)
{
    weft_i_wire_reader from = weft_i_wire_read(ping->bytes, ping->count);
    weft_i_wire_writer to = weft_i_frame_begin(&uplink->out, WEFT_I_FRAME_PONG, 16);
    weft_i_wire_put_u64(&to, weft_i_wire_get_u64(&from));
    weft_i_wire_put_u64(&to, (uint64_t)WEFT_OS->clock_ns());
    weft_i_frame_end(&uplink->out, &to);
}

static void obey_signal(weft_i_attempt *attempt, int signal)
{
    weft_i_uplink *uplink = attempt->uplink;
    /* Who stops the launcher stops all of it; it says when it goes on. */
    uplink->paused = signal == SIGTSTP || (uplink->paused && signal != SIGCONT);
    weft_i_attempt_signal(attempt, signal);
}

static void obey(weft_i_attempt *attempt, const weft_i_frame *frame)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    switch ((int)frame->kind) {
    case WEFT_I_FRAME_SIGNAL:
        obey_signal(attempt, (int)weft_i_wire_get_u32(&from));
        return;
    case WEFT_I_FRAME_PRESS:
        weft_i_attempt_press(attempt, (weft_i_press)weft_i_wire_get_u32(&from));
        return;
    case WEFT_I_FRAME_STATES:
        weft_i_attempt_tell_states(attempt);
        return;
    case WEFT_I_FRAME_INPUT:
        weft_i_stdin_feed(&attempt->input, frame->bytes, frame->count);
        attempt->uplink->asks_input = frame->count;
        return;
    case WEFT_I_FRAME_PING:
        weft_i_uplink_answer(attempt->uplink, frame);
        return;
    default:
        attempt->uplink->lost = true; /* it does not speak our language */
    }
}

void weft_i_uplink_take(weft_i_attempt *attempt, const struct pollfd *fds, size_t count)
{
    weft_i_uplink *uplink = attempt->uplink;
    weft_i_frame frame;
    int got = 0;
    bool here = weft_i_uplink_move(uplink, fds, count);
    while (here && !uplink->lost && (got = weft_i_frame_next(&uplink->in, &frame)) > 0)
        obey(attempt, &frame);
    if (uplink->asks_input && weft_i_stdin_hungry(&attempt->input)) {
        uplink->asks_input = false;
        weft_i_frame_put(&uplink->out, WEFT_I_FRAME_MORE, NULL, 0);
    }
    uplink->lost |= got < 0;
    if (uplink->lost) {
        uplink->out.broken = true;
        weft_i_attempt_press(attempt, WEFT_I_PRESS_KILL);
    }
}

void weft_i_uplink_tell_end(weft_i_attempt *attempt, int rank)
{
    const weft_i_ending *ending = &attempt->endings[rank];
    char record[RECORD_BYTES] = "";
    bool failed = weft_i_cause_failed(ending->status) || ending->deserted;
    if (failed)
        weft_i_attempt_record_text(attempt, rank, ENTRIES_TOLD, record, sizeof record);
    weft_i_wire_writer to =
        weft_i_frame_begin(&attempt->uplink->out, WEFT_I_FRAME_ENDED, sizeof record + 32);
    weft_i_wire_put_u32(&to, (uint32_t)(attempt->place.first + rank));
    weft_i_wire_put_u32(&to, (uint32_t)ending->status);
    weft_i_wire_put_u8(&to, ending->deserted);
    weft_i_wire_put_u8(&to, ending->bereft);
    weft_i_wire_put_u8(&to, ending->by_us);
    weft_i_wire_put_u64(&to, (uint64_t)WEFT_OS->clock_ns());
    weft_i_wire_put_blob(&to, (weft_i_view){record, strlen(record)});
    weft_i_frame_end(&attempt->uplink->out, &to);
}

void weft_i_uplink_tell_failed(weft_i_uplink *uplink, weft_status status, const char *why)
{
    size_t length = strlen(why);
    weft_i_wire_writer to = weft_i_frame_begin(&uplink->out, WEFT_I_FRAME_FAILED, length + 8);
    weft_i_wire_put_u32(&to, (uint32_t) - (int)status);
    weft_i_wire_put_blob(&to, (weft_i_view){why, length});
    weft_i_frame_end(&uplink->out, &to);
}

void weft_i_uplink_tell_over(weft_i_uplink *uplink)
{
    weft_i_frame_put(&uplink->out, WEFT_I_FRAME_OVER, NULL, 0);
}
