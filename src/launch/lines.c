/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of the ranks.  A stream holds the line that is not complete yet; complete lines move,
 * whole and prefixed, into the queue of their sink.  A full queue stops reading from the pipes
 * behind it.  Writes to a pipe or terminal are at most PIPE_BUF bytes after poll said it takes
 * some, so that they never block.
 */
#include "launch/lines.h"

#include "base/os/assert.h"
#include "base/os/file.h"
#include "base/report/file_open.h"
#include "base/report/status.h"
#include "base/report/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STREAM_ROOM = 16 * 1024,  /* first size of a stream's buffer */
    LINE_LIMIT = 1024 * 1024, /* longer lines are broken */
    QUEUE_LIMIT = 64 * 1024,  /* a queue this full takes no more */
    FILE_CHUNK = 1024 * 1024
};

/* Makes room for `more` bytes behind the used ones. */
static bool reserve(weft_i_sink *sink, size_t more)
{
    if (sink->start) {
        memmove(sink->bytes, sink->bytes + sink->start, sink->used);
        sink->start = 0;
    }
    if (sink->used + more <= sink->room)
        return true;
    size_t room = sink->room ? sink->room : QUEUE_LIMIT;
    while (room < sink->used + more)
        room *= 2;
    char *grown = WEFT_OS->resize(sink->bytes, room);
    if (!grown)
        return false;
    sink->bytes = grown;
    sink->room = room;
    return true;
}

static void append(weft_i_sink *sink, const char *bytes, size_t count)
{
    WEFT_ASSERT(sink->start + sink->used + count <= sink->room); /* reserved before */
    memcpy(sink->bytes + sink->start + sink->used, bytes, count);
    sink->used += count;
}

static bool take_chunk(weft_i_sink *sink)
{
    size_t limit = sink->is_file ? FILE_CHUNK : PIPE_BUF,
           count = sink->used < limit ? sink->used : limit;
    ssize_t n = WEFT_OS->write(sink->fd, sink->bytes + sink->start, count);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0) {
        sink->error = n == 0 ? EIO : errno == EPIPE ? 0 : errno;
        return false;
    }
    WEFT_ASSERT((size_t)n <= count);
    sink->used -= (size_t)n;
    sink->start = sink->used ? sink->start + (size_t)n : 0;
    return true;
}

/* One line, or a piece of one that is too long; never cut by lines of others.  `named` NULL: the
 * stream's own prefix. */
static void emit_as(weft_i_lines *lines, weft_i_stream *stream, const char *named,
                    const char *bytes, size_t count)
{
    weft_i_sink *sink = stream->sink;
    if (!sink || sink->broken || !count)
        return;
    named = named ? named : stream->prefix;
    size_t prefix = lines->prefixes ? strlen(named) : 0;
    /* Without memory for the queue, what is queued goes first, as far as it goes without waiting.
     */
    while (!reserve(sink, prefix + count + 2)) {
        size_t before = sink->used;
        if (!before || !take_chunk(sink) || sink->used == before) {
            sink->error = sink->error ? sink->error : ENOMEM;
            return;
        }
    }
    if (sink->mid_line && sink->mid_line != stream)
        append(sink, "\n", 1);
    append(sink, named, prefix);
    append(sink, bytes, count);
    bool complete = bytes[count - 1] == '\n' || bytes[count - 1] == '\r';
    if (!complete && lines->prefixes)
        append(sink, "\n", 1);
    sink->mid_line = complete || lines->prefixes ? NULL : stream;
}

/* Writes the `count` oldest of the messages that are held back. */
static void emit_held(weft_i_lines *lines, int count)
{
    char named[WEFT_I_CHORUS_PREFIX], text[WEFT_I_CHORUS_TEXT];
    while (count-- > 0) {
        int rank = weft_i_chorus_leave(&lines->chorus, named, text);
        emit_as(lines, &lines->streams[2 * rank + 1], *named ? named : NULL, text, strlen(text));
    }
}

/* A message of the library on standard error waits for ranks that say the same; any other line of a
 * rank comes after its messages. */
static void emit(weft_i_lines *lines, weft_i_stream *stream, const char *bytes, size_t count)
{
    int at = (int)(stream - lines->streams), rank = at / 2;
    if (!stream->sink || !count)
        return;
    if (at % 2 && lines->prefixes &&
        weft_i_chorus_take(&lines->chorus, rank, bytes, count, WEFT_OS->clock_ns()))
        return;
    emit_held(lines, weft_i_chorus_before(&lines->chorus, rank));
    emit_as(lines, stream, NULL, bytes, count);
}

/* Length of the first complete line, 0 if there is none.  A lone carriage return ends one: progress
 * bars. */
static size_t line_length(const char *bytes, size_t count)
{
    const char *newline = memchr(bytes, '\n', count);
    size_t limit = newline ? (size_t)(newline - bytes) : count;
    const char *turn = memchr(bytes, '\r', limit);
    if (turn && turn + 1 < bytes + limit) /* and what follows is no newline */
        return (size_t)(turn - bytes) + 1;
    return newline ? limit + 1 : 0;
}

static void emit_lines(weft_i_lines *lines, weft_i_stream *stream)
{
    size_t done = 0, length;
    while (done < stream->used &&
           (length = line_length(stream->bytes + done, stream->used - done))) {
        emit(lines, stream, stream->bytes + done, length);
        done += length;
    }
    stream->used -= done;
    if (stream->used && done)
        memmove(stream->bytes, stream->bytes + done, stream->used);
}

static void emit_rest(weft_i_lines *lines, weft_i_stream *stream)
{
    emit(lines, stream, stream->bytes, stream->used);
    stream->used = 0;
}

static void close_stream(weft_i_stream *stream)
{
    if (stream->fd >= 0)
        WEFT_OS->close(stream->fd);
    stream->fd = -1;
}

static void write_log(weft_i_lines *lines, weft_i_stream *stream, const char *bytes, size_t count)
{
    while (stream->log >= 0 && count) {
        ssize_t n = WEFT_OS->write(stream->log, bytes, count);
        if (n <= 0) {
            lines->log_error = lines->log_error ? lines->log_error : n < 0 ? errno : EIO;
            WEFT_OS->close(stream->log);
            stream->log = -1;
            return;
        }
        bytes += n;
        count -= (size_t)n;
    }
}

static void keep_tail(weft_i_stream *stream, const char *bytes, size_t count)
{
    size_t skip = count > WEFT_I_LINES_TAIL ? count - WEFT_I_LINES_TAIL : 0;
    stream->total += skip;
    while (skip < count) {
        size_t at = stream->total % WEFT_I_LINES_TAIL, room = WEFT_I_LINES_TAIL - at;
        size_t piece = count - skip < room ? count - skip : room;
        memcpy(stream->tail + at, bytes + skip, piece);
        stream->total += piece;
        skip += piece;
    }
}

/* More room for a long line; false if it must be broken. */
static bool widen(weft_i_stream *stream)
{
    if (stream->room >= LINE_LIMIT)
        return false;
    char *grown = WEFT_OS->resize(stream->bytes, stream->room * 2);
    if (!grown)
        return false;
    stream->bytes = grown;
    stream->room *= 2;
    return true;
}

/* To the launcher on another host, which makes lines of it. */
static void relay(weft_i_lines *lines, weft_i_stream *stream, size_t count)
{
    int at = (int)(stream - lines->streams);
    weft_i_wire_writer to = weft_i_frame_begin(lines->relay, WEFT_I_FRAME_OUTPUT, count + 8);
    weft_i_wire_put_u32(&to, (uint32_t)(lines->first + at / 2));
    weft_i_wire_put_u32(&to, (uint32_t)(at % 2));
    weft_i_wire_put_bytes(&to, stream->bytes, count);
    weft_i_frame_end(lines->relay, &to);
}

/* Reads once; poll said it does not block. */
static void read_stream(weft_i_lines *lines, weft_i_stream *stream)
{
    if (stream->used == stream->room && !widen(stream))
        emit_rest(lines, stream);
    char *at = stream->bytes + stream->used;
    ssize_t n = WEFT_OS->read(stream->fd, at, stream->room - stream->used);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        emit_rest(lines, stream);
        close_stream(stream);
        return;
    }
    if (lines->relay) {
        relay(lines, stream, (size_t)n);
        return;
    }
    keep_tail(stream, at, (size_t)n);
    write_log(lines, stream, at, (size_t)n);
    stream->used += (size_t)n;
    emit_lines(lines, stream);
}

/* The buffer is made at the first byte. */
static weft_status make_buffer(weft_i_stream *stream)
{
    if (stream->bytes)
        return WEFT_OK;
    stream->bytes = WEFT_OS->alloc(STREAM_ROOM);
    if (!stream->bytes)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for a line buffer");
    stream->room = STREAM_ROOM;
    return WEFT_OK;
}

weft_status weft_i_lines_feed(weft_i_lines *lines, int rank, bool is_error, const void *bytes,
                              size_t count)
{
    weft_i_stream *stream = &lines->streams[2 * rank + is_error];
    const char *at = bytes;
    WEFT_TRY(make_buffer(stream));
    keep_tail(stream, at, count);
    write_log(lines, stream, at, count);
    while (count) {
        if (stream->used == stream->room && !widen(stream))
            emit_rest(lines, stream);
        size_t room = stream->room - stream->used, piece = count < room ? count : room;
        memcpy(stream->bytes + stream->used, at, piece);
        stream->used += piece;
        at += piece;
        count -= piece;
        emit_lines(lines, stream);
    }
    return WEFT_OK;
}

/*
 * The reader of our output is gone: whoever writes to it learns so from the system, unless a log
 * still wants it.  A full disk is no reason to end the ranks: what they write is taken and lost.
 */
static void break_sink(weft_i_lines *lines, weft_i_sink *sink)
{
    sink->broken = true;
    sink->used = sink->start = 0;
    for (int i = 0; i < 2 * lines->ranks && !sink->error; i++)
        if (lines->streams[i].sink == sink && lines->streams[i].log < 0)
            close_stream(&lines->streams[i]);
}

static bool is_full(const weft_i_sink *sink)
{
    return sink && !sink->broken && sink->used >= QUEUE_LIMIT;
}

bool weft_i_lines_full(const weft_i_lines *lines)
{
    return is_full(&lines->sinks[0]) || is_full(&lines->sinks[1]) ||
           (lines->relay && weft_i_frame_waiting(lines->relay) >= WEFT_I_FRAME_FULL);
}

size_t weft_i_lines_poll(const weft_i_lines *lines, struct pollfd *fds)
{
    size_t count = 0;
    for (int i = 0; i < 2 * lines->ranks && !(lines->relay && weft_i_lines_full(lines)); i++)
        if (lines->streams[i].fd >= 0 && !is_full(lines->streams[i].sink))
            fds[count++] = (struct pollfd){.fd = lines->streams[i].fd, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        if (lines->sinks[i].used)
            fds[count++] = (struct pollfd){.fd = lines->sinks[i].fd, .events = POLLOUT};
    return count;
}

static void write_sink(weft_i_lines *lines, int fd)
{
    for (int i = 0; i < 2; i++)
        if (lines->sinks[i].used && lines->sinks[i].fd == fd && !take_chunk(&lines->sinks[i]))
            break_sink(lines, &lines->sinks[i]);
}

void weft_i_lines_take(weft_i_lines *lines, const struct pollfd *fds, size_t count)
{
    int at = 0; /* the entries are in the order of the streams, the sinks come last */
    for (size_t i = 0; i < count; i++) {
        if (fds[i].events == POLLOUT) {
            if (fds[i].revents)
                write_sink(lines, fds[i].fd);
            continue;
        }
        while (at < 2 * lines->ranks && lines->streams[at].fd != fds[i].fd)
            at++;
        if (fds[i].revents && at < 2 * lines->ranks)
            read_stream(lines, &lines->streams[at]);
    }
    if (lines->chorus.used)
        emit_held(lines, weft_i_chorus_ripe(&lines->chorus, WEFT_OS->clock_ns()));
}

int64_t weft_i_lines_due(const weft_i_lines *lines)
{
    return weft_i_chorus_due(&lines->chorus);
}

void weft_i_lines_flush(weft_i_lines *lines)
{
    emit_held(lines, lines->chorus.used);
}

bool weft_i_lines_ended(const weft_i_lines *lines, int rank)
{
    return lines->streams[2 * rank].fd < 0 && lines->streams[2 * rank + 1].fd < 0;
}

void weft_i_lines_end(weft_i_lines *lines, int rank)
{
    for (int i = 2 * rank; i < 2 * rank + 2; i++) {
        weft_i_stream *stream = &lines->streams[i];
        struct pollfd look = {.fd = stream->fd, .events = POLLIN};
        /* Bounded: what fits a pipe, because an escaped process may go on writing to it. */
        for (int reads = 0; stream->fd >= 0 && reads < 64 && WEFT_OS->poll(&look, 1, 0) > 0;
             reads++)
            read_stream(lines, stream);
        emit_rest(lines, stream);
        close_stream(stream);
    }
}

bool weft_i_lines_stuck(const weft_i_lines *lines, int rank)
{
    for (int i = 2 * rank; i < 2 * rank + 2; i++)
        if (lines->streams[i].fd >= 0 &&
            (lines->relay ? weft_i_lines_full(lines) : is_full(lines->streams[i].sink)))
            return true;
    return false;
}

size_t weft_i_lines_pending(const weft_i_lines *lines)
{
    return lines->sinks[0].used + lines->sinks[1].used +
           (lines->relay ? weft_i_frame_waiting(lines->relay) : 0);
}

void weft_i_lines_drop(weft_i_lines *lines)
{
    for (int i = 0; i < 2; i++) {
        weft_i_sink *sink = &lines->sinks[i];
        if (!sink->used)
            continue;
        sink->broken = true;
        sink->error = ETIMEDOUT;
        sink->used = sink->start = 0;
    }
}

bool weft_i_lines_tell_lost(weft_i_lines *lines, bool aloud)
{
    bool lost = false;
    for (int i = 0; i < 2; i++) {
        const weft_i_sink *sink = &lines->sinks[i];
        if (!sink->error)
            continue;
        lost = true;
        if (aloud)
            weft_i_lines_say(lines, "weft: output of the ranks is lost: writing to standard %s: %s",
                             i ? "error" : "output",
                             sink->error == ETIMEDOUT ? "its reader does not read"
                                                      : strerror(sink->error));
    }
    return lost;
}

void weft_i_lines_say(weft_i_lines *lines, const char *format, ...)
{
    char text[4096];
    weft_i_sink *sink = lines->sinks[1].fd >= 0 ? &lines->sinks[1] : &lines->sinks[0];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    weft_i_lines_flush(lines);
    if (n < 0 || sink->broken)
        return;
    if (lines->relay) {
        weft_i_frame_put(lines->relay, WEFT_I_FRAME_SAY, text, strlen(text));
        return;
    }
    size_t length = strlen(text);
    text[length++] = '\n';
    if (!reserve(sink, length + 1))
        return;
    if (sink->mid_line)
        append(sink, "\n", 1);
    sink->mid_line = NULL;
    append(sink, text, length);
}

void weft_i_lines_tail(const weft_i_lines *lines, int rank, int count, char *out)
{
    const weft_i_stream *stream = &lines->streams[2 * rank + 1];
    size_t length = stream->total < WEFT_I_LINES_TAIL ? stream->total : WEFT_I_LINES_TAIL;
    for (size_t i = 0; i < length; i++)
        out[i] = stream->tail[(stream->total - length + i) % WEFT_I_LINES_TAIL];
    while (length && out[length - 1] == '\n')
        length--;
    size_t start = length;
    while (start && (out[start - 1] != '\n' || --count > 0))
        start--;
    memmove(out, out + start, length - start);
    out[length - start] = 0;
    weft_i_text_tame(out, true); /* controls of a broken line must not reach the terminal twice */
}

static void make_prefix(char *out, size_t bytes, int rank, bool colour)
{
    static const int colours[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
    int code = colours[rank % (int)(sizeof colours / sizeof *colours)];
    if (colour)
        snprintf(out, bytes, "\033[%dm[%d]\033[0m ", code, rank);
    else
        snprintf(out, bytes, "[%d] ", rank);
}

static bool wants_colour(int fd)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return !(no_colour && *no_colour) && !(terminal && !strcmp(terminal, "dumb")) &&
           weft_i_os_is_terminal(fd);
}

static weft_status open_log(weft_i_stream *stream, const char *log_dir, int rank, bool is_error,
                            bool append_to)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/rank_%d.%s", log_dir, rank, is_error ? "err" : "out");
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "launch: the log directory's name is too long");
    weft_status status = weft_i_file_open(path, append_to, 0644, &stream->log);
    return status < 0 ? weft_i_explain(status, "launch: a log") : WEFT_OK;
}

/*
 * Another writer may fill a pipe between our poll and our write, which then waits.  The flag that
 * keeps it from waiting belongs to all who share the pipe's open file; so it is opened once more.
 */
static void open_sink(weft_i_sink *sink, int fd)
{
    char path[32];
    *sink = (weft_i_sink){.fd = fd, .is_file = weft_i_os_is_file(fd)};
    if (!weft_i_os_is_pipe(fd))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = WEFT_OS->open(path, O_WRONLY | O_NONBLOCK, 0);
    if (own > 0)
        sink->fd = sink->own = own;
}

static void close_sinks(weft_i_lines *lines)
{
    for (int i = 0; i < 2; i++) {
        if (lines->sinks[i].own)
            WEFT_OS->close(lines->sinks[i].own);
        lines->sinks[i].own = 0;
    }
}

static weft_status open_streams(weft_i_lines *lines, const char *log_dir, bool append_to, bool show)
{
    bool one_file = weft_i_os_same_file(1, 2);
    bool colour[2] = {wants_colour(1), wants_colour(2)};
    if (log_dir && WEFT_OS->mkdir(log_dir, 0755) && errno != EEXIST)
        return weft_i_fail_errno(errno, "launch: making the log directory %s", log_dir);
    open_sink(&lines->sinks[0], 1);
    if (!one_file)
        open_sink(&lines->sinks[1], 2);
    for (int i = 0; i < 2 * lines->ranks; i++) {
        weft_i_stream *stream = &lines->streams[i];
        make_prefix(stream->prefix, sizeof stream->prefix, i / 2, colour[i % 2]);
        stream->sink = show ? &lines->sinks[one_file ? 0 : i % 2] : NULL;
        if (log_dir)
            WEFT_TRY(open_log(stream, log_dir, i / 2, i % 2, append_to));
    }
    return WEFT_OK;
}

/* All streams closed, without a way out. */
static weft_status make_streams(weft_i_lines *lines, int ranks, bool prefixes)
{
    *lines = (weft_i_lines){.ranks = ranks,
                            .prefixes = prefixes,
                            .chorus = {.ranks = ranks},
                            .sinks = {{.fd = -1}, {.fd = -1}}};
    lines->streams = WEFT_OS->alloc(2 * (size_t)ranks * sizeof *lines->streams);
    if (!lines->streams) {
        lines->ranks = 0;
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "launch: no memory for the output of %d ranks",
                           ranks);
    }
    for (int i = 0; i < 2 * ranks; i++)
        lines->streams[i].fd = lines->streams[i].log = -1;
    return WEFT_OK;
}

weft_status weft_i_lines_open_relay(weft_i_lines *lines, int ranks, int first,
                                    weft_i_frame_out *relay)
{
    WEFT_TRY(make_streams(lines, ranks, false));
    lines->relay = relay;
    lines->first = first;
    return WEFT_OK;
}

weft_status weft_i_lines_open(weft_i_lines *lines, int ranks, bool prefixes, const char *log_dir,
                              bool append_to, bool show)
{
    WEFT_TRY(make_streams(lines, ranks, prefixes));
    weft_status status = open_streams(lines, log_dir, append_to, show);
    if (status < 0)
        weft_i_lines_close(lines);
    return status;
}

static weft_status add_stream(weft_i_stream *stream, int *write_end)
{
    int ends[2];
    WEFT_TRY(make_buffer(stream));
    if (WEFT_OS->pipe(ends))
        return weft_i_fail_errno(errno, "launch: making a pipe for a rank's output");
    stream->fd = ends[0];
    *write_end = ends[1];
    return WEFT_OK;
}

weft_status weft_i_lines_add(weft_i_lines *lines, int rank, int *out, int *err)
{
    *out = *err = -1;
    weft_status status = add_stream(&lines->streams[2 * rank], out);
    if (status == WEFT_OK)
        status = add_stream(&lines->streams[2 * rank + 1], err);
    if (status < 0 && *out >= 0) {
        WEFT_OS->close(*out);
        *out = -1;
    }
    return status;
}

void weft_i_lines_leave(weft_i_lines *lines)
{
    for (int i = 0; i < 2 * lines->ranks; i++) {
        close_stream(&lines->streams[i]);
        if (lines->streams[i].log >= 0)
            WEFT_OS->close(lines->streams[i].log);
        lines->streams[i].log = -1;
    }
    close_sinks(lines);
}

void weft_i_lines_close(weft_i_lines *lines)
{
    weft_i_lines_leave(lines);
    weft_i_chorus_close(&lines->chorus);
    for (int i = 0; i < 2 * lines->ranks; i++)
        WEFT_OS->free(lines->streams[i].bytes);
    WEFT_OS->free(lines->streams);
    for (int i = 0; i < 2; i++)
        WEFT_OS->free(lines->sinks[i].bytes);
    *lines = (weft_i_lines){.ranks = 0};
}
