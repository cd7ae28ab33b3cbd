/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the time goes: the calling thread's operations, by name and device, with the time of the host and of
 * the device, calls, bytes and operations on numbers; as a table, and as a trace for Perfetto and
 * chrome://tracing.  What operations of a compiled function do is seen too, and so is backward.
 *
 *     weft_profile *profile = weft_profile_open(NULL);
 *     train_a_step();
 *     weft_profile_close(profile);
 *     weft_profile_print(profile, stdout);
 *
 * A thread that has no profile open pays nothing.  One that has pays about a tenth of a microsecond for an
 * operation on the CPU; on a device each operation is waited for, so that its time is its own.
 */
#ifndef WEFT_PROFILE_H
#define WEFT_PROFILE_H

#include "weft/tensor.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_profile weft_profile;

/* What to see.  Start from WEFT_PROFILE_OPTS. */
typedef struct weft_profile_opts {
    size_t size; /* of this struct */
    /* The file to which the trace is written when the profile is closed, or NULL.  In it %r, %p and %h
     * stand for rank, process and host. */
    const char *trace;
    size_t events; /* how many operations the trace has, from the first on */
    /* Devices are not waited for: work overlaps as without a profile, and there is no time of devices. */
    bool overlapped;
} weft_profile_opts;

/* weft_profile_opts opts = WEFT_PROFILE_OPTS; */
#define WEFT_PROFILE_OPTS                            \
    {                                                \
        sizeof(weft_profile_opts), 0, 1 << 20, false \
    }

/* Opens a profile of the calling thread.  Several may be open, each inside another. */
WEFT_API weft_profile *weft_profile_open(const weft_profile_opts *opts);
/* Ends it, in the thread that opened it, and writes the trace.  A second time is no error and does nothing. */
WEFT_API weft_status weft_profile_close(weft_profile *profile);

/* All calls of one operation on one kind of device. */
typedef struct weft_profile_row {
    const char *name;  /* as in graphs; lives as long as the profile */
    const char *about; /* of a compiled group: what it is made of; else "" */
    weft_device device;
    uint64_t calls;
    int64_t host_ns;   /* until the call returned */
    int64_t device_ns; /* until the device was done, the launch included; 0 on the CPU */
    uint64_t bytes;    /* that its tensors have, read and written */
    double flops;      /* of products; else 0 */
} weft_profile_row;

/* Stores up to `room` rows, the longest first, and returns how many there are. */
WEFT_API int weft_profile_rows(const weft_profile *profile, weft_profile_row *out, int room);
/* From the opening until now, or until the end.  What is not in a row is time between operations. */
WEFT_API int64_t weft_profile_ns(const weft_profile *profile);

/* The table, as snprintf does; returns the length of the whole text, or a negative status. */
WEFT_API int weft_profile_text(const weft_profile *profile, char *out, size_t bytes);
WEFT_API weft_status weft_profile_print(const weft_profile *profile, FILE *stream);

#ifdef __cplusplus
}
#endif

#endif
