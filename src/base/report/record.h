/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: the last 1,024 operations of a rank, always on.  The record lies in memory
 * its owner provides, normally shared memory, so that the other ranks and the launcher read a dead
 * rank's last operations.  It holds no pointers.  Several threads of the owner may write at once;
 * anybody may read at any time, and then sees each entry whole or not at all.
 */
#ifndef WEFT_BASE_RECORD_H
#define WEFT_BASE_RECORD_H

#include "base/os/assert.h"
#include "base/report/clock_note.h"
#include "weft/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_I_RECORD_ENTRIES = 1024,
    WEFT_I_RECORD_NAME = 16,
    WEFT_I_RECORD_ON_DEVICE = 1 << 30 /* in a turn: see weft_i_record_device_turn */
};

/* An entry as it lies in memory; read it through weft_i_record_newest. */
typedef struct weft_i_record_slot {
    _Atomic uint64_t number;  /* of the operation, from 1; 0 while the slot is being rewritten */
    _Atomic uint64_t begin;   /* ticks */
    _Atomic uint64_t end;     /* ticks; means something once `outcome` says finished */
    _Atomic uint64_t bytes;   /* seal (16 bits) << 48 | bytes; see record.c */
    _Atomic uint64_t name[2]; /* 16 characters, zero-terminated */
    _Atomic uint64_t where;   /* group << 32 | peer, or -1 - turn where there is no peer */
    _Atomic uint64_t outcome; /* number (31 bits) << 33 | finished << 32 | channel << 16 | status */
} weft_i_record_slot;

/* What a trace shows beyond that; written only if somebody wants a trace. */
typedef struct weft_i_record_extra {
    _Atomic uint64_t number;    /* of the operation; 0 while it is being rewritten */
    _Atomic uint64_t posted;    /* ticks; 0: it was not posted */
    _Atomic uint64_t count;     /* elements */
    _Atomic uint64_t reduction; /* 8 characters; 0: none */
    _Atomic uint64_t rest;      /* thread << 32 | 1 + dtype; 0 there: no elements of a dtype */
} weft_i_record_extra;

typedef struct weft_i_record {
    _Atomic uint64_t head; /* operations begun so far */
    uint64_t origin_ticks; /* one moment on both clocks, for the conversion of ticks to time */
    int64_t origin_ns;
    _Atomic uint64_t coarse; /* ticks of the last heartbeat, taken for the time of an operation; 0:
                                read the counter */
    _Atomic uint64_t detailed; /* relaxed: 1 if extras are wanted, set before the first operation */
    uint64_t reserved[3];      /* the head has a cache line of its own */
    weft_i_clock_note clock;   /* how the host's clock stands to that of others */
    weft_i_record_slot slots[WEFT_I_RECORD_ENTRIES];
    weft_i_record_extra extras[WEFT_I_RECORD_ENTRIES];
} weft_i_record;

_Static_assert(sizeof(weft_i_record_slot) == 64, "an entry is one cache line");
_Static_assert(sizeof(weft_i_record) == 64 * (WEFT_I_RECORD_ENTRIES + 2) +
                                            WEFT_I_RECORD_ENTRIES * sizeof(weft_i_record_extra),
               "fixed layout");

/* Where operation `number` lies in the slots, and in the extras. */
static inline size_t weft_i_record_index(uint64_t number)
{
    WEFT_ASSERT(number > 0);
    return (size_t)((number - 1) % WEFT_I_RECORD_ENTRIES);
}

/* Ways an operation may take, noted once it is known; told instead of a channel. */
enum {
    WEFT_I_WAY = 0x4000,
    WEFT_I_WAY_INLINE = WEFT_I_WAY, /* data beside the arrival word */
    WEFT_I_WAY_EAGER,               /* whole through one eager buffer */
    WEFT_I_WAY_ZERO_COPY,           /* in place in memory that all can reach */
    WEFT_I_WAY_CMA,                 /* copied by the kernel between processes */
    WEFT_I_WAY_PIPELINED,           /* in pieces through the bounce buffer */
    WEFT_I_WAY_DEVICE,              /* by kernels of the operands' device */
    WEFT_I_WAY_HOST,                /* of a device's operands: by copies in host memory */
    WEFT_I_WAY_PAIR,                /* of a fused operation: its parts one after the other */
    WEFT_I_WAY_MULTICAST,           /* by stores that go to all ranks */
    WEFT_I_WAY_END
};

/* "inline", "eager", "zero-copy", "cma", "pipelined", "device", "host", "pair", "multicast"; NULL for a plain channel. */
const char *weft_i_record_way_name(int channel);

/* A copy of an entry. */
typedef struct weft_i_record_entry {
    uint64_t number, begin, end, bytes;
    char name[WEFT_I_RECORD_NAME];
    uint32_t group;
    int32_t peer;    /* -1: none */
    uint32_t turn;   /* as given with weft_i_record_turn; 0: none */
    bool on_device;  /* ... or with weft_i_record_device_turn */
    int16_t channel; /* -1: none; from WEFT_I_WAY on: the way the operation took */
    int16_t status;
    bool finished;
} weft_i_record_entry;

/* The same of its extra. */
typedef struct weft_i_record_detail {
    uint64_t posted; /* ticks; 0: the operation ran where it was called */
    uint64_t count;
    char reduction[9]; /* "" if there is none */
    int dtype;         /* -1: none */
    uint32_t thread;
} weft_i_record_detail;

/* Empties `record`, which its owner has alone until then. */
void weft_i_record_init(weft_i_record *record);

/* From now on operations have details. */
void weft_i_record_want_details(weft_i_record *record);

static inline bool weft_i_record_wants_details(const weft_i_record *record)
{
    return record && atomic_load_explicit(&record->detailed, memory_order_relaxed);
}

/* Notes more about operation `number`, if that is wanted; the thread is the caller's. */
void weft_i_record_note(weft_i_record *record, uint64_t number, const weft_i_record_detail *detail);

/* What was noted; false if nothing was, or another operation has taken its place. */
bool weft_i_record_noted(const weft_i_record *record, uint64_t number, weft_i_record_detail *out);

/*
 * Gives the record a clock that costs nothing: operations are timed by the last call of this (the
 * watch thread makes one with every heartbeat) instead of by reading the processor's counter, which
 * costs as much as a small operation. Without a call times are exact; tracing (WEFT_TRACE) goes
 * without.
 */
void weft_i_record_tick(weft_i_record *record);

/*
 * Notes that an operation begins; returns its number for weft_i_record_end.  `name` is cut at 15
 * characters, `bytes` at 2^48 - 1, `peer` and `channel` are -1 where they do not apply.  A NULL
 * record is fine and gives 0.
 */
uint64_t weft_i_record_begin(weft_i_record *record, const char *name, uint32_t group, size_t bytes,
                             int peer, int channel);

/*
 * What to pass as `peer` for an operation of the whole group: its number in the group, which all
 * members count alike.  Whoever looks at several records can then tell who has entered it.
 */
static inline int weft_i_record_turn(uint32_t turn)
{
    return -1 - (int)(turn & (WEFT_I_RECORD_ON_DEVICE - 1));
}

/* The same for an operation that the group's device carries.  Those are counted apart. */
static inline int weft_i_record_device_turn(uint32_t turn)
{
    return weft_i_record_turn(turn) - WEFT_I_RECORD_ON_DEVICE;
}

/* A name that is laid out already, for operations so short that packing it would show: {"barrier"}.
 */
typedef struct weft_i_record_name {
    _Alignas(8) char text[WEFT_I_RECORD_NAME];
} weft_i_record_name;

uint64_t weft_i_record_begin_named(weft_i_record *record, const weft_i_record_name *name,
                                   uint32_t group, size_t bytes, int peer, int channel);

/* Operation `number` has another turn than it was begun with: weft_i_record_turn, or that of a
 * device. */
void weft_i_record_set_turn(weft_i_record *record, uint64_t number, int turn);

/* Notes which way (WEFT_I_WAY_...) operation `number` takes. */
void weft_i_record_way(weft_i_record *record, uint64_t number, int way);

/* Notes how operation `number` ended.  Does nothing if its entry has been overwritten since, or
 * `number` is 0. */
void weft_i_record_end(weft_i_record *record, uint64_t number, int status);

/* Copies the newest `count` entries to `out`, newest first; returns how many there were.  Torn ones
 * are left out. */
size_t weft_i_record_newest(const weft_i_record *record, weft_i_record_entry *out, size_t count);

/* The newest entry; the newest finished one.  False if there is none. */
bool weft_i_record_last(const weft_i_record *record, weft_i_record_entry *out);
bool weft_i_record_last_finished(const weft_i_record *record, weft_i_record_entry *out);

/*
 * From ticks to ns of the monotonic clock.  The rate comes from the moment the record was made and
 * now; all entries lie between the two, so nothing is extrapolated and ranks of one host agree
 * however long the job ran.
 */
typedef struct weft_i_record_clock {
    uint64_t origin_ticks;
    int64_t origin_ns, now_ns;
    double ns_per_tick;
} weft_i_record_clock;

weft_i_record_clock weft_i_record_clock_of(const weft_i_record *record);
int64_t weft_i_record_clock_ns(const weft_i_record_clock *clock, uint64_t ticks);

/* A step of an operation that has its own entry: no news to the user. */
bool weft_i_record_is_step(const weft_i_record_entry *entry);

/* What the user called: the operation of which `name` is a step, or `name` itself. */
const char *weft_i_record_operation(const char *name);

/*
 * One line about an entry: "barrier #1841 on group 0 channel 3, 4096 bytes, begun 1.2 s ago, not
 * finished". Always terminated; returns `out`.
 */
char *weft_i_record_text(const weft_i_record *record, const weft_i_record_entry *entry, char *out,
                         size_t bytes);

/*
 * Writes the record as Chrome trace JSON, which Perfetto opens: one process per rank, times of the
 * monotonic clock in microseconds.  In `path`, %h %p %r are host, process and rank; without %p and
 * %r the rank is put before the extension (trace.json -> trace.3.json), so that ranks never
 * overwrite each other.
 */
weft_status weft_i_record_write_trace(const weft_i_record *record, int rank, const char *path);

/* The same of another process, which may be dead, and with names of groups. */
typedef struct weft_i_record_trace {
    const weft_i_record *record;
    int rank, process; /* 0: this one */
    /* The name of a group; false if it is not known. */
    bool (*group_name)(const void *arg, uint32_t group, char *out, size_t bytes);
    const void *arg;
} weft_i_record_trace;

weft_status weft_i_record_trace_write(const weft_i_record_trace *trace, const char *path);

#endif
