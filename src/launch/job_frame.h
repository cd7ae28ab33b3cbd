/* SPDX-License-Identifier: Apache-2.0 */
/* What a host is told to start, and what it says of itself, as the bytes of frames. */
#ifndef WEFT_LAUNCH_JOB_FRAME_H
#define WEFT_LAUNCH_JOB_FRAME_H

#include "base/machine/net.h"
#include "launch/frame.h"
#include "launch/launch_env.h"

/* What a host starts.  As read, texts lie in `memory`. */
typedef struct weft_i_job_frame {
    weft_i_seating place; /* without addresses and ports, which come later */
    int ranks, restarts;
    unsigned flags;
    int64_t grace_ns, silence_ns;
    const char *folder;
    const char *const *env; /* NAME=VALUE, NULL at the end */
    char *const *argv;      /* NULL at the end */
    void *memory;
} weft_i_job_frame;

/* What a host says of itself. */
typedef struct weft_i_hello_frame {
    char version[20], host[64];
    int port, free_port; /* where it listens if it is the first host; one for the program */
    int count;
    char addresses[WEFT_I_NET_ADDRESSES][WEFT_I_NET_TEXT];
} weft_i_hello_frame;

void weft_i_job_frame_put(weft_i_frame_out *out, const weft_i_job_frame *job);
/* PROTOCOL, VERSION or NO_MEMORY; the caller frees `memory`. */
weft_status weft_i_job_frame_read(const weft_i_frame *frame, weft_i_job_frame *out);

void weft_i_hello_frame_put(weft_i_frame_out *out, const weft_i_hello_frame *hello);
bool weft_i_hello_frame_read(const weft_i_frame *frame, weft_i_hello_frame *out);

#endif
