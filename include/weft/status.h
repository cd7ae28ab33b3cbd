/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes and the thread's last error.
 *
 * Actions return a weft_status: 0 is success, 1 "still under way", negative an error.  Functions
 * that make an object return a pointer and NULL on failure; they pass NULL inputs through, so that
 * a chain of expressions needs one check at its end.  The code carries its scope, which says what
 * is still usable afterwards.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

/* Time limits are in milliseconds everywhere; 0 tries once.  A rank that dies or leaves ends every
 * wait. */
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
    WEFT_ERR_STATE = -6,       /* not in this state: finished, forked, already open */
    WEFT_ERR_TYPE = -7,        /* wrong kind: dtype, device or object */
    WEFT_ERR_NOT_FOUND = -8,   /* no such key, name or group */
    WEFT_ERR_EMPTY = -9,       /* nothing queued */
    WEFT_ERR_EXISTS = -10,     /* the name is taken */
    WEFT_ERR_IO = -11,         /* the system refused a read, write or open */
    /* scope OP: this operation failed, the group is usable */
    WEFT_ERR_CANCELLED = -20,
    WEFT_ERR_NUMERIC = -21,
    WEFT_ERR_TIMEOUT = -22, /* the deadline passed; the message names who was missing */
    /* scope GROUP: the group is lost; release it, or make a smaller one */
    WEFT_ERR_PEER_DEAD = -40, /* a rank died */
    WEFT_ERR_PEER_LEFT = -41, /* a rank finished, or left its function, before this call */
    WEFT_ERR_MISMATCH = -42,  /* the ranks called different things */
    WEFT_ERR_REVOKED = -43,
    WEFT_ERR_PROTOCOL = -44, /* a message that no rank of ours sends */
    WEFT_ERR_DEVICE = -45,   /* a device failed: this process can use it no more */
    /* scope START: meeting failed, nobody has a group */
    WEFT_ERR_AUTH = -60,
    WEFT_ERR_UNREACHABLE = -61,
    WEFT_ERR_VERSION = -62,
    WEFT_ERR_ADDR_IN_USE = -63,
    WEFT_ERR_MISSING = -64, /* ranks that never came; the message lists them */
    /* scope BUG: a broken invariant of ours; please report it */
    WEFT_ERR_INTERNAL = -80
} weft_status;

/* What is still usable after an error. */
typedef enum weft_scope_of_error {
    WEFT_SCOPE_NONE,  /* no error */
    WEFT_SCOPE_CALL,  /* nothing happened */
    WEFT_SCOPE_OP,    /* this operation failed */
    WEFT_SCOPE_GROUP, /* the group is lost */
    WEFT_SCOPE_START, /* nobody met */
    WEFT_SCOPE_BUG
} weft_scope_of_error;

/* "WEFT_ERR_TIMEOUT" for -22; "unknown status" for a number that is none. */
WEFT_API const char *weft_status_name(weft_status status);

/* One sentence about the code, the same for every occurrence. */
WEFT_API const char *weft_strerror(weft_status status);

WEFT_API weft_scope_of_error weft_status_scope(weft_status status);

/*
 * The calling thread's last error: what happened, which rank, which operation, the likely cause.
 * Never NULL; empty if nothing failed yet.  The text stays valid until the thread's next error.
 */
WEFT_API const char *weft_last_error(void);
WEFT_API weft_status weft_last_status(void);

/* Forgets the thread's last and first error. */
WEFT_API void weft_clear_error(void);

#ifdef __cplusplus
}
#endif

#endif
