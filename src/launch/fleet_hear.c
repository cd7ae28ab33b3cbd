/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts say to the launcher that called them, and how a launch gets from called hosts to running
 * ranks.  See fleet.h. */
#include "base/report/status.h"
#include "base/report/text.h"
#include "launch/fleet.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PREFACE_MOST = 64 * 1024 };

static void say_shell(void *arg, const weft_i_far_host *far, const char *line)
{
    weft_i_fleet *fleet = arg;
    weft_i_lines_say(&fleet->attempt->lines, "weft: host %s: %s", far->host->name, line);
}

void weft_i_fleet_lose(weft_i_fleet *fleet, weft_i_far_host *far, weft_status status,
                       const char *format, ...)
{
    if (far->state == WEFT_I_FAR_LOST || far->state == WEFT_I_FAR_OVER)
        return;
    far->state = WEFT_I_FAR_LOST;
    far->end_by = 0;
    weft_i_frame_out_free(&far->orders);
    if (fleet->lost >= 0)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(fleet->loss, sizeof fleet->loss, format, args);
    va_end(args);
    fleet->lost = (int)(far - fleet->far);
    fleet->lost_at = WEFT_OS->clock_ns();
    fleet->fault = fleet->runs ? WEFT_OK : status;
}

/* ---- frames ---- */

static bool take_hello(weft_i_far_host *far, const weft_i_frame *frame)
{
    bool good = far->state == WEFT_I_FAR_CALLED && weft_i_hello_frame_read(frame, &far->hello);
    far->state = good ? WEFT_I_FAR_GREETED : far->state;
    return good;
}

static bool take_reached(weft_i_far_host *far, const weft_i_frame *frame)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    far->reached = weft_i_wire_get_u32(&from);
    weft_i_view why = weft_i_wire_get_blob(&from, sizeof far->why - 1);
    snprintf(far->why, sizeof far->why, "%.*s", (int)why.bytes, why.bytes ? (char *)why.data : "");
    weft_i_text_tame(far->why, false);
    bool good = far->state == WEFT_I_FAR_GREETED && weft_i_wire_done(&from);
    far->state = good ? WEFT_I_FAR_REACHED : far->state;
    return good;
}

static bool is_its(const weft_i_far_host *far, uint32_t rank)
{
    return rank >= (uint32_t)far->host->first &&
           rank < (uint32_t)(far->host->first + far->host->ranks);
}

static bool take_output(weft_i_fleet *fleet, const weft_i_far_host *far, const weft_i_frame *frame)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    uint32_t rank = weft_i_wire_get_u32(&from), error = weft_i_wire_get_u32(&from);
    if (from.bad || error > 1 || !is_its(far, rank))
        return false;
    /* The ranks are about to end and nobody reads: what does not fit is lost, as it is here. */
    weft_i_attempt *attempt = fleet->attempt;
    if (!weft_i_lines_full(&attempt->lines) || !weft_i_attempt_wants_end(attempt))
        weft_i_lines_feed(&attempt->lines, (int)rank, error, frame->bytes + from.at,
                          weft_i_wire_left(&from));
    return true;
}

static bool take_say(weft_i_fleet *fleet, const weft_i_frame *frame)
{
    char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)frame->count, (const char *)frame->bytes);
    weft_i_text_tame(text, false);
    weft_i_lines_say(&fleet->attempt->lines, "%s", text);
    return true;
}

static bool take_pong(weft_i_far_host *far, const weft_i_frame *frame)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    int64_t asked = (int64_t)weft_i_wire_get_u64(&from),
            theirs = (int64_t)weft_i_wire_get_u64(&from);
    int64_t now = WEFT_OS->clock_ns(), trip = now - asked;
    if (!weft_i_wire_done(&from) || trip < 0 || asked < 0)
        return false;
    if (!far->trip_ns || trip < far->trip_ns) {
        far->trip_ns = trip ? trip : 1;
        far->ahead_ns = theirs - (asked + trip / 2);
    }
    return true;
}

static void keep_record(weft_i_fleet *fleet, uint32_t rank, weft_i_view record)
{
    WEFT_OS->free(fleet->records[rank]);
    char *text = record.bytes ? WEFT_OS->alloc(record.bytes + 1) : NULL;
    if (text)
        memcpy(text, record.data, record.bytes);
    if (text)
        weft_i_text_tame(text, true);
    fleet->records[rank] = text;
}

static bool take_ended(weft_i_fleet *fleet, const weft_i_far_host *far, const weft_i_frame *frame)
{
    weft_i_attempt *attempt = fleet->attempt;
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    uint32_t rank = weft_i_wire_get_u32(&from);
    weft_i_ending ending = {.status = (int)weft_i_wire_get_u32(&from)};
    ending.deserted = weft_i_wire_get_u8(&from);
    ending.bereft = weft_i_wire_get_u8(&from);
    ending.by_us = weft_i_wire_get_u8(&from);
    int64_t when = (int64_t)weft_i_wire_get_u64(&from) - far->ahead_ns, now = WEFT_OS->clock_ns();
    weft_i_view record = weft_i_wire_get_blob(&from, frame->count);
    if (!weft_i_wire_done(&from) || !is_its(far, rank) || fleet->ended_at[rank])
        return false;
    ending.order = ++attempt->ends;
    attempt->endings[rank] = ending;
    /* Before a first answer its clock is not known. */
    fleet->ended_at[rank] = far->trip_ns && when > 0 && when < now ? when : now;
    keep_record(fleet, rank, record);
    if (weft_i_cause_failed(ending.status))
        weft_i_attempt_press(attempt, WEFT_I_PRESS_GRACE);
    return true;
}

static bool take_failed(weft_i_fleet *fleet, weft_i_far_host *far, const weft_i_frame *frame)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    uint32_t status = weft_i_wire_get_u32(&from);
    weft_i_view why = weft_i_wire_get_blob(&from, frame->count);
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)why.bytes, why.bytes ? (const char *)why.data : "");
    weft_i_text_tame(text, false);
    if (!weft_i_wire_done(&from) || status > 255)
        return false;
    weft_status why_status = status ? (weft_status) - (int)status : WEFT_ERR_IO;
    const char *said = !strncmp(text, "launch: ", 8) ? text + 8 : text;
    weft_i_fleet_lose(fleet, far, why_status, "%s", said);
    if (fleet->lost == (int)(far - fleet->far)) /* it is there, but cannot do what it shall */
        fleet->fault = why_status;
    return true;
}

static bool take_over(weft_i_far_host *far)
{
    bool good = far->state == WEFT_I_FAR_RUNS;
    far->state = good ? WEFT_I_FAR_OVER : far->state;
    return good;
}

static bool take(weft_i_fleet *fleet, weft_i_far_host *far, const weft_i_frame *frame)
{
    switch ((int)frame->kind) {
    case WEFT_I_FRAME_HELLO:
        return take_hello(far, frame);
    case WEFT_I_FRAME_REACHED:
        return take_reached(far, frame);
    case WEFT_I_FRAME_OUTPUT:
        return take_output(fleet, far, frame);
    case WEFT_I_FRAME_SAY:
        return take_say(fleet, frame);
    case WEFT_I_FRAME_PONG:
        return take_pong(far, frame);
    case WEFT_I_FRAME_ENDED:
        return take_ended(fleet, far, frame);
    case WEFT_I_FRAME_MORE:
        fleet->asked |= far == fleet->far;
        return true;
    case WEFT_I_FRAME_FAILED:
        return take_failed(fleet, far, frame);
    case WEFT_I_FRAME_OVER:
        return take_over(far);
    default:
        return false;
    }
}

/* Passes what the shell prints before weft begins; true once frames come. */
static bool skip_preface(weft_i_fleet *fleet, weft_i_far_host *far)
{
    const char *begin = (const char *)far->in.bytes + far->in.start;
    size_t count = far->in.end - far->in.start, length = strlen(WEFT_I_FRAME_BEGIN);
    const char *found = count ? memmem(begin, count, WEFT_I_FRAME_BEGIN, length) : NULL;
    size_t shell = found ? (size_t)(found - begin) : count > PREFACE_MOST ? count - length : 0;
    weft_i_far_host_hear(far, false, begin, shell, say_shell, fleet);
    far->in.start += shell + (found ? length : 0);
    return found;
}

/* What the shell printed is all there is. */
static void hear_rest(weft_i_fleet *fleet, weft_i_far_host *far)
{
    if (!far->began)
        weft_i_far_host_hear(far, false, (const char *)far->in.bytes + far->in.start,
                             far->in.end - far->in.start, say_shell, fleet);
    weft_i_far_host_hear(far, false, "\n", 1, say_shell, fleet);
}

weft_status weft_i_fleet_hear(weft_i_fleet *fleet, weft_i_far_host *far)
{
    weft_i_frame frame;
    int got = 0;
    weft_status status = weft_i_frame_fill(&far->in, far->from);
    if (status < 0 && status != WEFT_ERR_UNREACHABLE)
        return status;
    far->heard = WEFT_OS->clock_ns();
    if (!far->began && far->in.end > far->in.start)
        far->began = skip_preface(fleet, far);
    while (far->began && far->state != WEFT_I_FAR_LOST &&
           (got = weft_i_frame_next(&far->in, &frame)) > 0)
        if (!take(fleet, far, &frame))
            got = WEFT_ERR_PROTOCOL;
    if (got < 0)
        weft_i_fleet_lose(fleet, far, WEFT_ERR_PROTOCOL,
                          "what it says is not weft's: does something else write to the output of "
                          "its remote shell?");
    if (status < 0) {
        hear_rest(fleet, far);
        WEFT_OS->close(far->from);
        far->from = -1;
    }
    return WEFT_OK;
}

/* ---- from called to running ---- */

static int least_state(const weft_i_fleet *fleet)
{
    int least = WEFT_I_FAR_LOST;
    for (int i = 0; i < fleet->hosts.count; i++)
        least = (int)fleet->far[i].state < least ? (int)fleet->far[i].state : least;
    return least;
}

static void ask_to_reach(weft_i_fleet *fleet)
{
    weft_i_frame_out coded = {.fd = 0};
    weft_i_hello_frame_put(&coded, &fleet->far[0].hello);
    fleet->far[0].reached = UINT32_MAX;
    fleet->far[0].state = WEFT_I_FAR_REACHED;
    for (int i = 1; i < fleet->hosts.count && !coded.broken; i++)
        weft_i_frame_put(&fleet->far[i].orders, WEFT_I_FRAME_PROBE, coded.bytes + 8, coded.end - 8);
    weft_i_frame_out_free(&coded);
}

/* The first address that all reach; -1, and the host that reaches none, or not those of others. */
static int choose_address(const weft_i_fleet *fleet, int *culprit)
{
    uint32_t all = UINT32_MAX;
    int count = fleet->far[0].hello.count;
    for (int i = 1; i < fleet->hosts.count; i++) {
        uint32_t mask = all & fleet->far[i].reached;
        *culprit = i;
        if (!mask)
            return -1;
        all = mask;
    }
    for (int i = 0; i < count; i++)
        if (all >> i & 1)
            return i;
    return -1;
}

static void tell_start(weft_i_fleet *fleet, const char *master)
{
    const weft_i_hello_frame *first = &fleet->far[0].hello;
    for (int i = 0; i < fleet->hosts.count; i++) {
        weft_i_far_host *far = &fleet->far[i];
        weft_i_wire_writer to = weft_i_frame_begin(&far->orders, WEFT_I_FRAME_START, 256);
        weft_i_wire_put_text(&to, master, WEFT_I_LAUNCH_ADDRESS);
        weft_i_wire_put_u32(&to, (uint32_t)first->port);
        weft_i_wire_put_u32(&to, (uint32_t)first->free_port);
        weft_i_frame_end(&far->orders, &to);
        far->state = WEFT_I_FAR_RUNS;
    }
    fleet->runs = true;
}

void weft_i_fleet_advance(weft_i_fleet *fleet)
{
    int culprit = 0;
    if (fleet->runs || fleet->lost >= 0)
        return;
    if (least_state(fleet) == WEFT_I_FAR_GREETED && fleet->hosts.count > 1 &&
        fleet->far[0].state == WEFT_I_FAR_GREETED)
        ask_to_reach(fleet);
    if (fleet->hosts.count == 1 && least_state(fleet) == WEFT_I_FAR_GREETED)
        tell_start(fleet, "127.0.0.1");
    if (fleet->hosts.count == 1 || least_state(fleet) != WEFT_I_FAR_REACHED)
        return;
    int at = choose_address(fleet, &culprit);
    const weft_i_far_host *far = &fleet->far[culprit];
    if (at >= 0)
        tell_start(fleet, fleet->far[0].hello.addresses[at]);
    else if (far->reached)
        weft_i_fleet_lose(fleet, &fleet->far[culprit], WEFT_ERR_UNREACHABLE,
                          "it reaches host %s at other addresses than the hosts before it do; "
                          "WEFT_NET chooses the network",
                          fleet->hosts.hosts[0].name);
    else
        weft_i_fleet_lose(fleet, &fleet->far[culprit], WEFT_ERR_UNREACHABLE,
                          "it cannot reach host %s at port %d (%s); is there a firewall between "
                          "them?  WEFT_NET chooses the network",
                          fleet->hosts.hosts[0].name, fleet->far[0].hello.port,
                          *far->why ? far->why : "it has no address");
}
