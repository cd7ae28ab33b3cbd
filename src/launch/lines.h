/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of the ranks: collects lines from their pipes and writes each whole, with its rank in
 * front, to standard output, standard error and log files.  One poll loop drives it; nothing here
 * ever waits.  A slow reader of our output slows the ranks down; one that goes away ends their
 * pipes, as in a shell.
 */
#ifndef WEFT_LAUNCH_LINES_H
#define WEFT_LAUNCH_LINES_H

#include "base/os/os.h"
#include "launch/chorus.h"
#include "launch/frame.h"
#include "weft/status.h"

enum { WEFT_I_LINES_TAIL = 2048 };

/* Where lines go: a queue in front of a descriptor. */
typedef struct weft_i_sink {
    int fd;
    int own;              /* the same pipe, opened anew so that writes never wait; 0: none */
    bool is_file;         /* takes any amount at once */
    bool broken;          /* its reader went away, or it cannot be written to */
    int error;            /* errno of that, unless the reader went away; 0: none */
    const void *mid_line; /* the stream whose piece of a line stands last, without its end */
    char *bytes;
    size_t start, used, room;
} weft_i_sink;

/* One pipe of a rank. */
typedef struct weft_i_stream {
    int fd;  /* -1 at its end */
    int log; /* -1: none */
    weft_i_sink *sink;
    char *bytes; /* the line that is not complete yet */
    size_t used, room;
    char prefix[32];
    char tail[WEFT_I_LINES_TAIL]; /* the newest bytes, a ring */
    size_t total;
} weft_i_stream;

typedef struct weft_i_lines {
    int ranks;
    bool prefixes;
    int log_error;           /* errno of the first log write that failed */
    weft_i_stream *streams;  /* 2 * rank: standard output; 2 * rank + 1: standard error */
    weft_i_chorus chorus;    /* messages that wait for others that are equal */
    weft_i_sink sinks[2];    /* the second is not used if both are one file */
    weft_i_frame_out *relay; /* all that is written goes there instead; NULL: it stays here */
    int first;               /* of a relay: the world rank of rank 0 */
} weft_i_lines;

/* `log_dir` NULL: no logs; `append` keeps what is in them; `show`: lines go to descriptors 1 and 2.
 */
weft_status weft_i_lines_open(weft_i_lines *lines, int ranks, bool prefixes, const char *log_dir,
                              bool append, bool show);
void weft_i_lines_close(weft_i_lines *lines);

/* The same for ranks whose output is shown by a launcher on another host. */
weft_status weft_i_lines_open_relay(weft_i_lines *lines, int ranks, int first,
                                    weft_i_frame_out *relay);

/* What a relay sent: output of a rank, as if it came from its pipe; `is_error`: its standard error. */
weft_status weft_i_lines_feed(weft_i_lines *lines, int rank, bool is_error, const void *bytes,
                              size_t count);

/* Is a queue so full that no more should be fed? */
bool weft_i_lines_full(const weft_i_lines *lines);

/* Makes the two pipes of a rank; the writing ends are for the child and belong to the caller. */
weft_status weft_i_lines_add(weft_i_lines *lines, int rank, int *out, int *err);

/* Fills at most 2 * ranks + 2 entries and returns how many; _take acts on what poll said about
 * them. */
size_t weft_i_lines_poll(const weft_i_lines *lines, struct pollfd *fds);
void weft_i_lines_take(weft_i_lines *lines, const struct pollfd *fds, size_t count);

/* When _take wants to be called though nothing came, because a message has waited for equal ones
 * long enough; WEFT_I_NEVER: not at all.  _flush: nobody else will say them. */
int64_t weft_i_lines_due(const weft_i_lines *lines);
void weft_i_lines_flush(weft_i_lines *lines);

/* True when both pipes of a rank are at their end; _end takes what is in them and closes them. */
bool weft_i_lines_ended(const weft_i_lines *lines, int rank);
void weft_i_lines_end(weft_i_lines *lines, int rank);

/* True when output of a rank waits in its pipes because a reader of ours does not read. */
bool weft_i_lines_stuck(const weft_i_lines *lines, int rank);

/* How many bytes wait to be written; _drop gives up those for readers that do not read. */
size_t weft_i_lines_pending(const weft_i_lines *lines);
void weft_i_lines_drop(weft_i_lines *lines);

/* True if output was lost; `aloud`: says on standard error, if that works, which and why. */
bool weft_i_lines_tell_lost(weft_i_lines *lines, bool aloud);

/* A line of our own to standard error, after all lines taken so far. */
void weft_i_lines_say(weft_i_lines *lines, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The last `count` lines a rank wrote to standard error, as "text\n" ...; `out` holds
 * WEFT_I_LINES_TAIL + 1 bytes. */
void weft_i_lines_tail(const weft_i_lines *lines, int rank, int count, char *out);

/* Closes in a forked child what belongs to us. */
void weft_i_lines_leave(weft_i_lines *lines);

#endif
