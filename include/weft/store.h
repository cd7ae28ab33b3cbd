/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores: keys and values that the ranks of a job share while they meet, and later for whatever is
 * small and rare.
 *
 * Five kinds with one contract (and a fake one without, weft_store_fake): in-process (threads),
 * Unix socket (one host), TCP (several hosts, guarded by the job's token), file (a shared file
 * system), and prefix (a part of another store). Keys are texts of 1 to 8,192 bytes, values 0 to 8
 * MiB of anything.  A key holds a value or a queue.  All functions may be called from several
 * threads on one store at once; a call that waits keeps nobody else waiting.  A store belongs to
 * the thread's scope like every handle (weft_keep, weft_release) and to the process that made it:
 * in a forked child every call is WEFT_ERR_STATE. No function here is collective.
 *
 * Errors of every call: WEFT_ERR_INVALID_ARG, WEFT_ERR_LIMIT (key, value, message or the store's
 * memory too large), WEFT_ERR_TYPE (a queue where a value is wanted or the reverse),
 * WEFT_ERR_NO_MEMORY, WEFT_ERR_STATE (forked), and where the store is elsewhere
 * WEFT_ERR_UNREACHABLE (it died), WEFT_ERR_TIMEOUT (it does not answer) or WEFT_ERR_IO.
 */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_store weft_store;

/* Values of `timeout_ms` besides milliseconds, WEFT_FOREVER and WEFT_DEFAULT
 * (weft_store_timeout()): do not wait. */
#define WEFT_STORE_NOW 0

#define WEFT_STORE_KEY_BYTES   8192
#define WEFT_STORE_VALUE_BYTES (8 * 1024 * 1024)

/* A value that the caller owns, with a zero byte behind its last one.  Starts as {NULL, 0}. */
typedef struct weft_store_value {
    void *data;
    size_t bytes;
} weft_store_value;

/* Frees the bytes and makes the value empty again. */
WEFT_API void weft_store_value_clear(weft_store_value *value);

/* ---- making stores; NULL and weft_last_error() on failure ---- */

/* A store inside this process, for ranks that are threads.  Hand the same store, or clones of it,
 * to all. */
WEFT_API weft_store *weft_store_local(void);

/*
 * A store that takes everything, keeps nothing and never waits: reads give empty values, sums the
 * number added, questions yes.  Only for weft_fake_init (weft/fake.h); weft_init refuses it.
 */
WEFT_API weft_store *weft_store_fake(void);

/*
 * A store in a file that all ranks can open.  With workers > 0 the file counts who joined: the last
 * one alive removes it, and a file that a killed job left behind is emptied by the first rank of
 * the next.  With 0 it stays for ever.
 */
WEFT_API weft_store *weft_store_file(const char *path, int workers);

/*
 * Starts a server thread on one address and connects to it.  `address` is a name or number, NULL
 * for 127.0.0.1; a wildcard address is refused.  Port 0 lets the kernel choose: weft_store_port().
 * `token` is 64 hexadecimal digits, NULL takes WEFT_TOKEN.  The server ends when the store and its
 * clones in this process are released. WEFT_ERR_ADDR_IN_USE, WEFT_ERR_UNSUPPORTED without
 * libcrypto.
 */
WEFT_API weft_store *weft_store_tcp_serve(const char *address, int port, const char *token);

/*
 * Connects to such a server, trying again until `timeout_ms` has passed.  WEFT_ERR_AUTH (wrong
 * token, on either side), WEFT_ERR_VERSION, WEFT_ERR_UNREACHABLE (nobody there, or something that
 * is not a weft store).
 */
WEFT_API weft_store *weft_store_tcp_connect(const char *address, int port, const char *token,
                                            int64_t timeout_ms);

/*
 * The same for the processes of one user on one host, over an abstract Unix socket: no file, no
 * port, no token.  Both sides check that the other has the same user id.
 */
WEFT_API weft_store *weft_store_unix_serve(const char *name);
WEFT_API weft_store *weft_store_unix_connect(const char *name, int64_t timeout_ms);

/* The part of `store` whose keys start with "prefix/".  Holds `store`.  Prefixes nest. */
WEFT_API weft_store *weft_store_prefix(const char *prefix, weft_store *store);

/* Another store on the same data, with a connection or descriptor of its own. */
WEFT_API weft_store *weft_store_clone(weft_store *store);

/* The TCP port of the store's server, 0 for other kinds. */
WEFT_API int weft_store_port(const weft_store *store);

/* The deadline of WEFT_DEFAULT, at first WEFT_STORE_TIMEOUT (300 s); 0 and WEFT_FOREVER wait for ever.  A
 * prefix asks its store. */
WEFT_API int64_t weft_store_timeout(const weft_store *store);
WEFT_API weft_status weft_store_set_timeout(weft_store *store, int64_t timeout_ms);

/* ---- values ---- */

/* Inserts or overwrites; wakes who waits for the key.  A queue of that name goes. */
WEFT_API weft_status weft_store_set(weft_store *store, const char *key, const void *data,
                                    size_t bytes);

/* Blocks until the key exists.  Free with weft_store_value_clear().  WEFT_ERR_TIMEOUT; with 0
 * WEFT_ERR_NOT_FOUND. */
WEFT_API weft_status weft_store_get(weft_store *store, const char *key, int64_t timeout_ms,
                                    weft_store_value *out);

/* Adds to a number kept as decimal text; a missing key counts as 0.  `out` (may be NULL) is the new
 * total. */
WEFT_API weft_status weft_store_add(weft_store *store, const char *key, int64_t delta,
                                    int64_t *out);

/*
 * Stores `desired` if the key holds `expected`, or if the key is missing and `expected` is empty.
 * `out_stored` tells which; `out_current` (either may be NULL) is what the key holds afterwards.  A
 * missing key with a non-empty `expected` is WEFT_ERR_NOT_FOUND and stores nothing.
 */
WEFT_API weft_status weft_store_compare_set(weft_store *store, const char *key,
                                            const void *expected, size_t expected_bytes,
                                            const void *desired, size_t desired_bytes,
                                            bool *out_stored, weft_store_value *out_current);

/* Puts bytes behind the value, which is made if missing. */
WEFT_API weft_status weft_store_append(weft_store *store, const char *key, const void *data,
                                       size_t bytes);

/* Whether all keys exist (a queue with elements exists).  Does not wait. */
WEFT_API weft_status weft_store_check(weft_store *store, size_t count, const char *const *keys,
                                      bool *out);

/* Blocks until all keys exist.  WEFT_ERR_TIMEOUT; with 0 WEFT_ERR_NOT_FOUND. */
WEFT_API weft_status weft_store_wait(weft_store *store, size_t count, const char *const *keys,
                                     int64_t timeout_ms);

/* Removes a value or a queue; `out` (may be NULL) is true only if there was one. */
WEFT_API weft_status weft_store_delete_key(weft_store *store, const char *key, bool *out);

/* The number of keys; of a prefix store, its own. */
WEFT_API weft_status weft_store_num_keys(weft_store *store, size_t *out);

/* Waits for all keys, then reads them at one moment into `out[count]`. */
WEFT_API weft_status weft_store_multi_get(weft_store *store, size_t count, const char *const *keys,
                                          int64_t timeout_ms, weft_store_value *out);

/* Sets all keys at one moment, or none. */
WEFT_API weft_status weft_store_multi_set(weft_store *store, size_t count, const char *const *keys,
                                          const void *const *data, const size_t *bytes);

/* ---- queues: values in the order they came ---- */

WEFT_API weft_status weft_store_queue_push(weft_store *store, const char *key, const void *data,
                                           size_t bytes);

/*
 * Takes the oldest element, waiting for one.  WEFT_ERR_TIMEOUT; with 0 WEFT_ERR_EMPTY.  An element
 * is never lost: if the caller dies or gives up before it arrived, it goes back to the front.
 */
WEFT_API weft_status weft_store_queue_pop(weft_store *store, const char *key, int64_t timeout_ms,
                                          weft_store_value *out);

/* Elements waiting; 0 for a missing key. */
WEFT_API weft_status weft_store_queue_len(weft_store *store, const char *key, size_t *out);

#ifdef __cplusplus
}
#endif

#endif
