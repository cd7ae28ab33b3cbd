/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes and the thread's last error.
 *
 * A function that acts returns a weft_status: 0 for success, 1 for "still in progress", and a
 * negative value for an error.  A function that makes an object returns a pointer, or NULL on
 * failure.  It also returns NULL if an input is NULL, so a chain of calls needs only one check, at
 * its end.  The scope of a status code says what is still usable after the error.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

/* For the macros of these headers: a conversion that strict compilers of C and C++ accept. */
#ifdef __cplusplus
#define WEFT_CAST(type_, value_) (static_cast<type_>(value_))
#else
#define WEFT_CAST(type_, value_) ((type_)(value_))
#endif

/* All time limits are in milliseconds.  A limit of 0 tries once without waiting.  Every wait ends
 * at once if a rank that it waits for dies or leaves. */
#define WEFT_FOREVER (-1) /* no limit */
#define WEFT_DEFAULT (-2) /* the group's or the store's own limit */

typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_IN_PROGRESS = 1,
    /* scope CALL: nothing happened, everything is as before */
    WEFT_ERR_INVALID_ARG = -1, /* a value is out of its range */
    WEFT_ERR_UNSUPPORTED = -2, /* this build, backend or dtype cannot do it */
    WEFT_ERR_NO_MEMORY = -3,   /* private memory ran out */
    WEFT_ERR_NO_SPACE = -4,    /* shared memory or a file system is full */
    WEFT_ERR_LIMIT = -5,       /* descriptors, threads or another limit of the system */
    WEFT_ERR_STATE = -6,       /* not allowed in this state: finished, forked, already open */
    WEFT_ERR_TYPE = -7,        /* wrong kind: dtype, device or object */
    WEFT_ERR_NOT_FOUND = -8,   /* no such key, name or group */
    WEFT_ERR_EMPTY = -9,       /* nothing queued */
    WEFT_ERR_EXISTS = -10,     /* the name is taken */
    WEFT_ERR_IO = -11,         /* the system refused a read, write or open */
    /* scope OP: this operation failed, the group stays usable */
    WEFT_ERR_CANCELLED = -20,
    WEFT_ERR_NUMERIC = -21,
    WEFT_ERR_TIMEOUT = -22, /* the deadline passed; the message names the missing ranks */
    /* scope GROUP: the group is lost; release it, or make a smaller one */
    WEFT_ERR_PEER_DEAD = -40, /* a rank died */
    WEFT_ERR_PEER_LEFT = -41, /* a rank finished, or left its function, before this call */
    WEFT_ERR_MISMATCH = -42,  /* the ranks called different things */
    WEFT_ERR_REVOKED = -43,
    WEFT_ERR_PROTOCOL = -44, /* a message that no rank of weft sends */
    WEFT_ERR_DEVICE = -45,   /* a device failed: this process can no longer use it */
    /* scope START: the ranks did not meet, no rank has a group */
    WEFT_ERR_AUTH = -60,
    WEFT_ERR_UNREACHABLE = -61,
    WEFT_ERR_VERSION = -62,
    WEFT_ERR_ADDR_IN_USE = -63,
    WEFT_ERR_MISSING = -64, /* ranks that never arrived; the message lists them */
    /* scope BUG: a broken invariant of weft; please report it */
    WEFT_ERR_INTERNAL = -80
} weft_status;

/* What is still usable after an error. */
typedef enum weft_scope_of_error {
    WEFT_SCOPE_NONE,  /* no error */
    WEFT_SCOPE_CALL,  /* nothing happened */
    WEFT_SCOPE_OP,    /* this operation failed */
    WEFT_SCOPE_GROUP, /* the group is lost */
    WEFT_SCOPE_START, /* no rank met another */
    WEFT_SCOPE_BUG
} weft_scope_of_error;

/* Returns the name of a status, "WEFT_ERR_TIMEOUT" for -22, or "unknown status" for any other
 * number. */
WEFT_API const char *weft_status_name(weft_status status);

/* Returns one sentence that describes the code.  It is the same every time. */
WEFT_API const char *weft_strerror(weft_status status);

WEFT_API weft_scope_of_error weft_status_scope(weft_status status);

/*
 * Returns the calling thread's last error: what happened, on which rank, in which operation, and
 * the likely cause.  Never NULL; empty if nothing has failed yet.  The text stays valid until the
 * thread's next error.
 *
 * As with errno, success changes nothing: an error stays until the next one, or until
 * weft_clear_error.  So the status tells whether any call of a chain has failed since the thread
 * last cleared it.  Code that deals with an error and goes on clears it; weft_init does too.
 */
WEFT_API const char *weft_last_error(void);
WEFT_API weft_status weft_last_status(void);

/* Clears the calling thread's first and last error, as if no call had failed: weft_last_status() is
 * WEFT_OK, and weft_finish does not report them. */
WEFT_API void weft_clear_error(void);

#ifdef __cplusplus
}
#endif

#endif
