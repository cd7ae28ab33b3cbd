/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all kinds of store have in common: a call is one request and one answer, and a kind is a
 * table with a function that performs any request.  The public functions (store.c) check arguments,
 * build the request and word the errors; map.c gives requests their meaning; the kinds only
 * carry them there.
 */
#ifndef WEFT_STORE_STORE_H
#define WEFT_STORE_STORE_H

#include "weft/store.h"

#include "base/share/wire.h"
#include "tensor/object/scope.h"

#include <stdatomic.h>

typedef enum weft_i_store_op {
    WEFT_I_STORE_SET = 1,
    WEFT_I_STORE_GET,
    WEFT_I_STORE_ADD,
    WEFT_I_STORE_COMPARE_SET,
    WEFT_I_STORE_APPEND,
    WEFT_I_STORE_CHECK,
    WEFT_I_STORE_WAIT,
    WEFT_I_STORE_DELETE,
    WEFT_I_STORE_NUM_KEYS, /* its key is the prefix to count, perhaps empty */
    WEFT_I_STORE_MULTI_GET,
    WEFT_I_STORE_MULTI_SET,
    WEFT_I_STORE_PUSH,
    WEFT_I_STORE_POP,
    WEFT_I_STORE_LENGTH,
    /* between client and server only, without an answer: `number` is the id of an earlier request
     */
    WEFT_I_STORE_CANCEL, /* nobody waits for it any more; an element popped for it goes back */
    WEFT_I_STORE_TAKEN,  /* the element popped for it arrived */
    /* answered again: if this connection ends, the server appends the value to the key; an empty
     * value withdraws it */
    WEFT_I_STORE_WILL,
    WEFT_I_STORE_CLOCK, /* the server's monotonic clock, and as the value whose it is */
    WEFT_I_STORE_OPS
} weft_i_store_op;

enum {
    WEFT_I_STORE_KEYS = 65536,                    /* keys in one request */
    WEFT_I_STORE_MESSAGE_BYTES = 16 * 1024 * 1024 /* of one request or answer */
};

/* Views only: the caller owns all bytes. */
typedef struct weft_i_store_request {
    weft_i_store_op op;
    bool may_block; /* wait for missing keys instead of answering NOT_FOUND or EMPTY */
    size_t keys, values;
    const weft_i_view *key, *value;
    int64_t number;
} weft_i_store_request;

/*
 * The outcome.  `status` is what the data said; `number` a total, count or truth.  The values are
 * views into `memory`, one block that the receiver frees and that is longer than the values
 * together.
 */
typedef struct weft_i_store_answer {
    weft_status status;
    int64_t number;
    size_t values;
    weft_i_view *value; /* &one, or an array that lies in `array` */
    weft_i_view one;
    void *memory, *array;
} weft_i_store_answer;

typedef struct weft_i_store_kind {
    /*
     * Carries the request out and waits for its answer until `deadline`.  Returns an error with its
     * message if the store itself failed (unreachable, no memory, timeout of the transport);
     * otherwise WEFT_OK and the answer, whose status store.c words.  WEFT_ERR_TIMEOUT in the
     * answer: the keys did not come.
     */
    weft_status (*perform)(weft_store *store, const weft_i_store_request *request, int64_t deadline,
                           weft_i_store_answer *answer);
    weft_store *(*clone)(weft_store *store);
    /* Ends the kind's part.  In a forked child only memory may be freed: descriptors and threads
     * are the parent's. */
    void (*close)(weft_store *store, bool forked);
} weft_i_store_kind;

struct weft_store {
    weft_i_object object;
    const weft_i_store_kind *kind;
    weft_store *inner; /* of a prefix store */
    int process;
    int port;
    _Atomic int64_t timeout_ms; /* relaxed: a plain setting */
    char name[160];             /* "tcp 127.0.0.1:29500": how messages call it */
};

/* A handle of `bytes` for a kind, owned by the scope; NULL and an error. */
void *weft_i_store_new(const weft_i_store_kind *kind, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* NULL in, NULL out: sets WEFT_ERR_INVALID_ARG only if no earlier call failed. */
void *weft_i_store_pass_null(const char *function);

/* Whether `store` is usable in this process: NULL, another kind of handle and a forked child are
 * errors. */
weft_status weft_i_store_usable(const weft_store *store, const char *function);

void weft_i_store_answer_clear(weft_i_store_answer *answer);

/* Makes room for `count` views in the answer; false if memory ran out. */
bool weft_i_store_answer_reserve(weft_i_store_answer *answer, size_t count);

/*
 * A last will: when the connection of this store ends, in whatever way, the server appends the
 * bytes to the key.  The last one counts; 0 bytes withdraw it.  UNSUPPORTED where no server could
 * notice.
 */
weft_status weft_i_store_will(weft_store *store, const char *key, const void *data, size_t bytes);

/* The monotonic clock of the store's server, in ns, and a number that says of which host: never 0.
 * UNSUPPORTED where there is no server. */
weft_status weft_i_store_clock(weft_store *store, int64_t *ns, uint64_t *of);

/* Does it, or the store it is a part of, keep nothing? */
bool weft_i_store_is_fake(const weft_store *store);

/* Absolute deadline of a timeout given to a public function. */
int64_t weft_i_store_deadline(const weft_store *store, int64_t timeout_ms);

/*
 * From now on no store call of this thread waits past `deadline`, whatever the store's own limit;
 * says which it was before.  For operations between ranks that go through a store: their limit
 * counts, also when the rank that serves the store is stopped.
 */
int64_t weft_i_store_until(int64_t deadline);

/* `deadline` and a little more: when its time is up an operation may still tell the others so. */
int64_t weft_i_store_late(int64_t deadline);

/* Whether the request may wait for keys or elements that are missing. */
bool weft_i_store_waits(const weft_i_store_request *request);

/* Up to a few of the request's keys, quoted, for messages. */
const char *weft_i_store_keys_text(const weft_i_store_request *request, char *out, size_t bytes);
const char *weft_i_store_op_name(weft_i_store_op op);

#endif
