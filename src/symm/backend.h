/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends: a few small tables, of which each has some: memory that ranks share, what members join
 * of a device's memory, and collectives that it carries itself.  A backend is a folder in
 * src/backends that fills one weft_i_backend; adding one is that folder and a row in backends.def.
 */
#ifndef WEFT_SYMM_BACKEND_H
#define WEFT_SYMM_BACKEND_H

#include "base/share/fdpass.h"
#include "base/share/segment.h"
#include "symm/request.h"
#include "weft/backend.h"
#include "weft/dtype.h"
#include "weft/storage.h"

#include <stdatomic.h>

enum {
    WEFT_I_SERVES_PROCESSES = 1 << WEFT_I_BETWEEN_PROCESSES,
    WEFT_I_SERVES_THREADS = 1 << WEFT_I_BETWEEN_THREADS
};

/* The members of a group, for a backend that is to carry its collectives. */
typedef struct weft_i_circle {
    const char *name;
    const char *what; /* they exchange for; NULL: opening a carrier */
    int rank, size;
    weft_device device; /* of this rank's operands */
    uint32_t tuned;     /* opening a carrier: a digest of the thresholds that the members share */
    int64_t limit_ms, deadline;
    /* Shows `bytes` bytes to all and gets theirs, by rank.  All members call it. */
    weft_status (*exchange)(const struct weft_i_circle *circle, const void *mine, size_t bytes,
                            void *all);
    void *group; /* a weft_group; for `exchange`, the functions below and symm/sentry.h alone */
} weft_i_circle;

/* What a member shows of its device at a rendezvous. */
typedef struct weft_i_card {
    unsigned char uuid[16];
    uint32_t facts; /* WEFT_I_CARD_... */
    int32_t ordinal;
    uint32_t own[3]; /* what else its backend shows */
} weft_i_card;

enum {
    WEFT_I_CARD_OVERLAPS = 1,  /* it may share the device with other members */
    WEFT_I_CARD_MULTICAST = 2, /* the device has it */
    WEFT_I_CARD_SLICED = 4     /* processes on it take turns instead of running at once */
};

/* What all members bring to a rendezvous of device memory, by rank. */
typedef struct weft_i_joining {
    const weft_i_card *cards;
    const weft_i_key *keys; /* of the blocks */
    size_t bytes;           /* of each, as asked for */
    size_t pad_bytes;       /* of the users' pad */
    int channels;
    weft_i_segment **blocks; /* this rank's is there; the others' are to be filled in */
} weft_i_joining;

/* Memory of all members: the first one's address and the step to the next; or `shifts`, a table in
 * device memory of how far each is from the first. */
typedef struct weft_i_device_reach {
    char *base;
    size_t step;
    const int64_t *shifts;
} weft_i_device_reach;

typedef enum weft_i_signal_kind {
    WEFT_I_SIGNAL_BARRIER,
    WEFT_I_SIGNAL_PUT,
    WEFT_I_SIGNAL_WAIT
} weft_i_signal_kind;

/*
 * Memory of a device, which the host cannot reach: how members join theirs at a rendezvous, and the
 * signals between them.  These are given to a stream and return; what becomes of them is told by a
 * later call, or to whoever waits for the stream.
 */
typedef struct weft_i_device_memory {
    weft_status (*show)(const weft_i_segment *block, weft_i_card *out);
    /* May they meet?  The same on all members, with the reason. */
    weft_status (*compare)(const weft_i_circle *circle, const weft_i_card *cards);
    /* Maps the blocks and pads of all members.  The members then agree on the outcome and call
     * `settle`, after which no member imports anything.  On failure `part` is not called. */
    weft_status (*join)(const weft_i_circle *circle, const weft_i_joining *with, void **joined);
    void (*settle)(void *joined);
    void (*part)(void *joined);
    /* The users' pad of a member. */
    char *(*pad)(const void *joined, int rank);
    weft_status (*signal)(void *joined, void *stream, weft_i_signal_kind kind, int rank,
                          int channel, int64_t limit_ms);
    /* Makes this rank's part usable again; between two meetings of all members. */
    weft_status (*await)(void *joined, int64_t limit_ms); /* all that this rank enqueued there */
    weft_status (*reset)(void *joined);
    /* Are everybody's blocks on one device?  The same on all members.  NULL: no. */
    bool (*is_near)(const void *joined);
    bool strided; /* everybody's blocks lie at one step, on all members */
    /* What kernels of this rank are given to reach byte `offset` of everybody's block.
     * WEFT_ERR_UNSUPPORTED, with the reason, where memory of a member has no address here. */
    weft_status (*reach)(const void *joined, size_t offset, weft_i_device_reach *out);
    /* Copies on a stream, to or from byte `offset` of a member's block; a put may be followed by a
     * signal, channel -1: none. */
    weft_status (*put)(void *joined, void *stream, int rank, size_t offset, const void *from,
                       size_t bytes, int channel, int64_t limit_ms);
    weft_status (*get)(void *joined, void *stream, int rank, size_t offset, void *to, size_t bytes);
    /* 32-bit words; `ordered`: one, which is seen after all that the stream wrote before. */
    weft_status (*write)(void *stream, uint32_t *words, uint32_t value, size_t count, bool ordered);
    /* Whether a device has hardware multicast; `reason` says why not. */
    bool (*has_multicast)(weft_device device, char *reason, size_t bytes);
    /* The multicast address for byte 0 of everybody's block; NULL: there is none, and why.  All
     * members have one, or none has.  NULL as an entry: never. */
    char *(*multicast)(const void *joined, const char **why_not);
    /* The connection between devices that it can count, and the matrix of those that this process
     * sees: *size * *size, of WEFT_OS->alloc. */
    const char *connection;
    weft_status (*count_links)(int *size, int **links);
} weft_i_device_memory;

/* A collective that nothing is unusual about: one input, one output, equal parts.  A cache line. */
typedef struct weft_i_plain {
    const char *op; /* its name in messages */
    weft_i_coll_kind kind;
    weft_reduction reduction; /* WEFT_SUM where there is none */
    int root;                 /* 0 where there is none */
    weft_dtype dtype;
    const char *in;
    char *out;
    size_t count; /* elements of one part, as in a request */
    size_t bytes; /* of the larger operand */
    void *stream;
} weft_i_plain;

/* What the fast path looks at, to be fetched.  Addresses alone, of what may have gone; NULL where there
 * are no more.  Relaxed: hints. */
enum { WEFT_I_LINES = 8 };
typedef _Atomic(const void *) weft_i_lines[WEFT_I_LINES];

static inline void weft_i_lines_add(weft_i_lines lines, const void *at)
{
    int i = 0;
    while (i < WEFT_I_LINES - 1 && atomic_load_explicit(&lines[i], memory_order_relaxed))
        i++;
    atomic_store_explicit(&lines[i], at, memory_order_relaxed);
}

/*
 * The fast path (coll/device/fast.h) of a backend that hands collectives to a library, which is at it for a
 * while: in two steps, so that others can do something meanwhile.
 */
typedef struct weft_i_fast_path {
    /* Hands it to the library.  WEFT_ERR_UNSUPPORTED without a message: nothing has happened, and
     * `collective` is to be asked.  After WEFT_OK comes `finish`. */
    weft_status (*start)(void *carrier, const weft_i_plain *call);
    /* Waits until the library has enqueued it, at most so long. */
    weft_status (*finish)(void *carrier, int64_t limit_ms);
    /* Did the library carry the last collective?  Its threads may have moved the data, and then the
     * caches hold nothing else. */
    bool (*is_cold)(const void *carrier);
    /* Adds what `start` reads and writes for a call on that stream, and what `finish` writes.  True:
     * the library carries calls of any size, else those that are large enough. */
    bool (*list)(const void *carrier, const void *stream, weft_i_lines read, weft_i_lines written,
                 weft_i_lines back);
} weft_i_fast_path;

/* Memory that ranks share: who makes it, and how the others get hold of it. */
typedef struct weft_i_memory {
    /* A zeroed, reserved block of this rank. */
    weft_status (*allocate)(weft_device device, size_t bytes, weft_i_segment **out);

    /* Lets peers fetch the block by its key; may be called again. */
    weft_status (*publish)(weft_i_fdpass *fdpass, weft_i_segment *block);

    /* Maps what member `rank` publishes under that key.  WEFT_ERR_TIMEOUT without a message at the
     * circle's deadline; the outcome is handed to weft_i_circle_fetched.  NULL: members join theirs
     * (weft_i_device_memory). */
    weft_status (*import)(const weft_i_circle *circle, int rank, const void *key, size_t key_bytes,
                          size_t bytes, weft_i_segment **out);
} weft_i_memory;

/* Who carries collectives itself. */
typedef struct weft_i_carry {
    /* Not NULL: it carries collectives around the backend of that name, which it hands those to that
     * it does not carry itself; that one's carrier is then always this. */
    const char *wraps;

    /* Also of groups whose members are on several hosts? */
    bool reaches_hosts;

    /*
     * What it needs for the collectives of one group on devices of its kind.  All members open it,
     * at their first collective there; one that cannot is told to all, and nobody has it then.
     * Closed when the group goes, or at once in that case.  NULL: it needs nothing.
     */
    weft_status (*open)(const weft_i_circle *circle, void **carrier);
    void (*close)(void *carrier);

    /* Does it carry such a request?  NULL: `collective` says so. */
    bool (*takes)(const weft_i_request *request);

    /*
     * Carries a collective: runs it to its end, or gives it to the request's stream.  Returns
     * WEFT_ERR_UNSUPPORTED without a message for one that it does not carry; that goes through host
     * memory and the lanes of src/coll.
     */
    weft_status (*collective)(void *carrier, const weft_i_request *request);

    /* How what was given to streams has fared: WEFT_OK, or why a collective of the group has failed
     * since.  NULL: it runs them to their end. */
    weft_status (*check)(void *carrier);

    /* Does a captured collective run the kernels that a call runs?  Then a replay on one rank meets a
     * call on another.  NULL: yes. */
    bool (*captures)(const void *carrier);
} weft_i_carry;

/* What a backend has of these tables; NULL: it has not. */
typedef struct weft_i_backend {
    const char *name;
    int device_kind;  /* weft_i_device_kind of what it is for */
    unsigned sharing; /* who the ranks are that it serves: WEFT_I_SERVES_... */

    /* 0: cannot be used here, `reason` says why.  Otherwise a score; `reason` may say what it
     * offers. */
    int (*probe)(char *reason, size_t bytes);

    /*
     * Starts it on a device, once, with all ranks of the world: weft_symm_set_backend does.  It is
     * never chosen by itself then, and makes no memory before.  NULL: it needs no start.
     */
    weft_status (*start)(const weft_i_circle *world);

    const weft_i_memory *memory;
    const weft_i_device_memory *device_memory; /* NULL: the host reaches what `memory` makes */
    const weft_i_carry *carry;
    const weft_i_fast_path *fast;             /* of `carry` */
    const struct weft_i_transport *transport; /* messages between hosts: src/transport */
} weft_i_backend;

/*
 * An order for what member `rank` publishes under `key`; it ends when a member is lost, and needs
 * the circle until then.  Its outcome is handed to weft_i_circle_fetched, which gives a timeout its
 * message.
 */
weft_i_fdpass_order weft_i_circle_order(const weft_i_circle *circle, int rank, weft_i_key key,
                                        size_t bytes);
weft_status weft_i_circle_fetched(const weft_i_circle *circle, int rank, weft_status status);

/* WEFT_OK while all members are there; else an error that names the one who is lost. */
weft_status weft_i_circle_lost(const weft_i_circle *circle);

/* The usual `exchange`; and telling the others that this rank cannot go on, without their notes. */
weft_status weft_i_circle_exchange(const weft_i_circle *circle, const void *mine, size_t bytes,
                                   void *all);
/* Another one of the same call, for what the circle's `what` says, until its deadline. */
weft_status weft_i_circle_exchange_later(const weft_i_circle *circle, const void *mine,
                                         size_t bytes, void *all);
void weft_i_circle_decline(const weft_i_circle *circle, const void *mine, size_t bytes);

/*
 * All have it, or nobody has: tells the others how this rank fared, and fails if any member did.
 * This rank's own error stays; another's is told as "rank 2 <how> (...)".  `room` has 4 bytes for
 * each member.
 */
weft_status weft_i_circle_agree(const weft_i_circle *circle, weft_status mine, const char *how,
                                void *room);

/* This process's world, for what can only be one in a process; WEFT_ERR_STATE if it has none, or
 * several. */
weft_status weft_i_circle_of_world(weft_device device, const char *what, weft_i_circle *out);

/* Are its ranks such (WEFT_I_SERVES_...)? */
bool weft_i_circle_is_served(const weft_i_circle *circle, unsigned sharing);

/* The group's key; where this rank publishes; and whether its peers are nowhere. */
weft_i_key weft_i_circle_key(const weft_i_circle *circle);
weft_i_fdpass *weft_i_circle_server(const weft_i_circle *circle);
bool weft_i_circle_is_fake(const weft_i_circle *circle);

/* Are all members on this host?  The same on all of them. */
bool weft_i_circle_is_local(const weft_i_circle *circle);

/* NULL if there is no such name. */
const weft_i_backend *weft_i_backend_named(const char *name);

/* The backend this thread uses for a kind of device; NULL and an error if none is usable. */
const weft_i_backend *weft_i_backend_for(weft_device device);

/* The same for ranks that are threads, or processes, whatever the calling thread is. */
const weft_i_backend *weft_i_backend_between(weft_device device, weft_i_sharing sharing);

/* Are there other ranks in this process, as far as the calling thread knows? */
bool weft_i_backend_among_threads(void);

/* Notes that this thread has allocated there: from now on its choice for the kind is fixed. */
void weft_i_backend_used(weft_device device);

/* The usable one of the highest score that carries collectives on such devices; NULL: none does.
 * `hosts`: of members on several hosts. */
const weft_i_backend *weft_i_backend_carrier(weft_device device, weft_i_sharing sharing,
                                             bool hosts);

/* Is there one that carries collectives between hosts, for devices of that kind (-1: of any)? */
bool weft_i_backend_reaches_hosts(int device_kind, weft_i_sharing sharing);

/* Those of the list that do, or that move messages between hosts, and what they say of themselves:
 * "ucx: UCX 1.13.1, messages between hosts ...". */
void weft_i_backend_tell_hosts(char *out, size_t bytes);

/* The usual `import`: of what this rank's descriptor server passes on. */
weft_status weft_i_circle_fetch(const weft_i_circle *circle, int rank, const void *key,
                                size_t key_bytes, size_t bytes, weft_i_segment **out);

/* Puts another table in the place of one; returns that.  For tests. */
const weft_i_backend *weft_i_backend_replace(const char *name, const weft_i_backend *table);

#endif
