/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads what launchers say before ranks start.  See job_frame.h. */
#include "launch/job_frame.h"

#include "base/os/os.h"
#include "base/report/status.h"
#include "weft/launch.h"
#include "weft/version.h"

#include <stdio.h>
#include <string.h>

enum { MAGIC = 0x4a544657, LAYOUT = 1, FIXED_BYTES = 512, LIST_MOST = 65536 };

/* ---- texts ---- */

static void put_string(weft_i_wire_writer *to, const char *text)
{
    weft_i_wire_put_blob(to, (weft_i_view){text, strlen(text)});
}

static size_t list_bytes(const char *const *list)
{
    size_t bytes = 4;
    for (size_t i = 0; list && list[i]; i++)
        bytes += weft_i_wire_blob_bytes(strlen(list[i]));
    return bytes;
}

static void put_list(weft_i_wire_writer *to, const char *const *list)
{
    uint32_t count = 0;
    while (list && list[count])
        count++;
    weft_i_wire_put_u32(to, count);
    for (uint32_t i = 0; i < count; i++)
        put_string(to, list[i]);
}

/* Where texts that are read are kept: pointers grow from the front, characters behind them. */
typedef struct keep {
    char **pointers, *text;
} keep;

static char *keep_string(weft_i_wire_reader *from, keep *into)
{
    weft_i_view view = weft_i_wire_get_blob(from, WEFT_I_FRAME_MOST);
    char *text = into->text;
    from->bad |= view.bytes && memchr(view.data, 0, view.bytes);
    if (from->bad)
        return text;
    if (view.bytes)
        memcpy(text, view.data, view.bytes);
    text[view.bytes] = 0;
    into->text += view.bytes + 1;
    return text;
}

static char **keep_list(weft_i_wire_reader *from, keep *into)
{
    char **list = into->pointers;
    uint32_t count = weft_i_wire_get_u32(from);
    /* Each text has four bytes of length: a count beyond that is a lie. */
    from->bad |= count > LIST_MOST || count > weft_i_wire_left(from) / 4;
    for (uint32_t i = 0; i < count && !from->bad; i++)
        *into->pointers++ = keep_string(from, into);
    *into->pointers++ = NULL;
    return list;
}

/* ---- the job ---- */

static int64_t to_ms(int64_t ns)
{
    return ns == WEFT_I_NEVER ? -1 : ns / 1000000;
}

static int64_t to_ns(uint64_t ms)
{
    return ms > INT64_MAX / 1000000 ? WEFT_I_NEVER : (int64_t)ms * 1000000;
}

void weft_i_job_frame_put(weft_i_frame_out *out, const weft_i_job_frame *job)
{
    const char *const *argv = (const char *const *)job->argv;
    size_t most = FIXED_BYTES + strlen(job->folder) + list_bytes(job->env) + list_bytes(argv);
    weft_i_wire_writer to = weft_i_frame_begin(out, WEFT_I_FRAME_JOB, most);
    weft_i_wire_put_head(&to, MAGIC, LAYOUT);
    weft_i_wire_put_text(&to, WEFT_VERSION, 20);
    weft_i_wire_put_text(&to, job->place.token, sizeof job->place.token);
    const int numbers[] = {job->place.host,  job->place.hosts, job->place.first,
                           job->place.world, job->ranks,       job->restarts};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        weft_i_wire_put_u32(&to, (uint32_t)numbers[i]);
    weft_i_wire_put_u32(&to, job->flags);
    weft_i_wire_put_u64(&to, (uint64_t)to_ms(job->grace_ns));
    weft_i_wire_put_u64(&to, (uint64_t)to_ms(job->silence_ns));
    put_string(&to, job->folder);
    put_list(&to, job->env);
    put_list(&to, argv);
    weft_i_frame_end(out, &to);
}

static void get_place(weft_i_wire_reader *from, weft_i_job_frame *out)
{
    int *const numbers[] = {&out->place.host,  &out->place.hosts, &out->place.first,
                            &out->place.world, &out->ranks,       &out->restarts};
    weft_i_wire_get_text(from, out->place.token, sizeof out->place.token);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t number = weft_i_wire_get_u32(from);
        from->bad |= number > 1 << 24;
        *numbers[i] = (int)number;
    }
    const weft_i_seating *at = &out->place;
    from->bad |= out->ranks < 1 || out->ranks > WEFT_LAUNCH_RANKS_MAX || at->host >= at->hosts ||
                 at->first + out->ranks > at->world;
}

weft_status weft_i_job_frame_read(const weft_i_frame *frame, weft_i_job_frame *out)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    char version[20] = "";
    *out = (weft_i_job_frame){.memory = NULL};
    bool known = weft_i_wire_get_head(&from, MAGIC) == LAYOUT;
    weft_i_wire_get_text(&from, version, sizeof version);
    if (!from.bad && strcmp(version, WEFT_VERSION) != 0)
        return weft_i_fail(WEFT_ERR_VERSION, "weft %s is asked for, here is weft %s", version,
                           WEFT_VERSION);
    /* Texts have four bytes in front, on the wire; here one behind, and a pointer. */
    size_t pointers = frame->count / 4 + 4;
    out->memory = known ? WEFT_OS->alloc(pointers * sizeof(char *) + frame->count + 4) : NULL;
    if (known && !out->memory)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for what is to be started");
    if (known) {
        keep into = {out->memory, (char *)out->memory + pointers * sizeof(char *)};
        get_place(&from, out);
        out->flags = weft_i_wire_get_u32(&from);
        out->grace_ns = to_ns(weft_i_wire_get_u64(&from));
        out->silence_ns = to_ns(weft_i_wire_get_u64(&from));
        out->folder = keep_string(&from, &into);
        out->env = (const char *const *)keep_list(&from, &into);
        out->argv = keep_list(&from, &into);
    }
    if (known && weft_i_wire_done(&from) && out->argv[0])
        return WEFT_OK;
    return weft_i_fail(WEFT_ERR_PROTOCOL,
                       "what is to be started is not told in weft's words; `weft run --join` is "
                       "called by `weft run --hosts`, not by hand");
}

/* ---- the host ---- */

void weft_i_hello_frame_put(weft_i_frame_out *out, const weft_i_hello_frame *hello)
{
    weft_i_wire_writer to =
        weft_i_frame_begin(out, WEFT_I_FRAME_HELLO, sizeof *hello + FIXED_BYTES);
    weft_i_wire_put_head(&to, MAGIC, LAYOUT);
    weft_i_wire_put_text(&to, hello->version, sizeof hello->version);
    weft_i_wire_put_text(&to, hello->host, sizeof hello->host);
    weft_i_wire_put_u32(&to, (uint32_t)hello->port);
    weft_i_wire_put_u32(&to, (uint32_t)hello->free_port);
    weft_i_wire_put_u32(&to, (uint32_t)hello->count);
    for (int i = 0; i < hello->count; i++)
        weft_i_wire_put_text(&to, hello->addresses[i], WEFT_I_NET_TEXT);
    weft_i_frame_end(out, &to);
}

bool weft_i_hello_frame_read(const weft_i_frame *frame, weft_i_hello_frame *out)
{
    weft_i_wire_reader from = weft_i_wire_read(frame->bytes, frame->count);
    if (weft_i_wire_get_head(&from, MAGIC) != LAYOUT)
        return false;
    weft_i_wire_get_text(&from, out->version, sizeof out->version);
    weft_i_wire_get_text(&from, out->host, sizeof out->host);
    uint32_t port = weft_i_wire_get_u32(&from), free_port = weft_i_wire_get_u32(&from);
    uint32_t count = weft_i_wire_get_u32(&from);
    if (port > 65535 || free_port > 65535 || count > WEFT_I_NET_ADDRESSES)
        return false;
    out->port = (int)port;
    out->free_port = (int)free_port;
    out->count = (int)count;
    for (uint32_t i = 0; i < count; i++)
        weft_i_wire_get_text(&from, out->addresses[i], WEFT_I_NET_TEXT);
    return weft_i_wire_done(&from);
}
