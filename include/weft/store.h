/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores: keys and values that the ranks of a job share.  Ranks use a store to find each other, and
 * later for anything small and rare.
 *
 * There are five kinds with one contract: in-process (for threads), Unix socket (one host), TCP
 * (several hosts, guarded by the job's token), file (on a shared file system), and prefix (a part
 * of another store).  A sixth, weft_store_fake, keeps nothing.  Keys are strings of 1 to 8,192
 * bytes.  Values are 0 to 8 MiB of any bytes.  A key holds a value or a queue.  Several threads may
 * use one store at the same time; a call that waits does not block the others.  A store belongs to
 * the thread's scope like every handle (weft_keep, weft_release), and to the process that made it:
 * in a forked child every call returns WEFT_ERR_STATE.  None of these functions is collective.
 *
 * Every call may return WEFT_ERR_INVALID_ARG, WEFT_ERR_LIMIT (the key, the value, the message or
 * the store's memory is too large), WEFT_ERR_TYPE (a queue where a value is wanted, or the
 * reverse), WEFT_ERR_NO_MEMORY or WEFT_ERR_STATE (forked).  If the store is in another process,
 * also WEFT_ERR_UNREACHABLE (it died), WEFT_ERR_TIMEOUT (it does not answer) or WEFT_ERR_IO.
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

/* `timeout_ms` is a number of milliseconds, WEFT_FOREVER, WEFT_DEFAULT (weft_store_timeout()), or
 * this value: do not wait. */
#define WEFT_STORE_NOW 0

#define WEFT_STORE_KEY_BYTES   8192
#define WEFT_STORE_VALUE_BYTES (8 * 1024 * 1024)

/* A value that the caller owns.  A zero byte follows its last byte.  Start from {NULL, 0}. */
typedef struct weft_store_value {
    void *data;
    size_t bytes;
} weft_store_value;

/* Frees the bytes and makes the value empty again. */
WEFT_API void weft_store_value_clear(weft_store_value *value);

/* ---- making stores; NULL and weft_last_error() on failure ---- */

/* A store inside this process, for ranks that are threads.  Give all of them the same store, or
 * clones of it. */
WEFT_API weft_store *weft_store_local(void);

/*
 * A store that accepts everything, keeps nothing and never waits.  Reads return empty values,
 * weft_store_add returns the number added, and questions are answered with yes.  It is only for
 * weft_fake_init (weft/fake.h); weft_init refuses it.
 */
WEFT_API weft_store *weft_store_fake(void);

/*
 * A store in a file that all ranks can open.  If `workers` > 0, the file counts the ranks that
 * joined: the last one alive removes it, and the first rank of the next job empties a file that a
 * killed job left behind.  If `workers` is 0, the file is never removed.
 */
WEFT_API weft_store *weft_store_file(const char *path, int workers);

/*
 * Starts a server thread on one address and connects to it.  `address` is a name or a number; NULL
 * means 127.0.0.1.  A wildcard address is refused.  If `port` is 0, the kernel chooses one: see
 * weft_store_port().  `token` has 64 hexadecimal digits; NULL means the value of WEFT_TOKEN.  The
 * server ends when the store and its clones in this process are released.  WEFT_ERR_ADDR_IN_USE if
 * the port is taken, WEFT_ERR_UNSUPPORTED without libcrypto.
 */
WEFT_API weft_store *weft_store_tcp_serve(const char *address, int port, const char *token);

/*
 * Connects to such a server, retrying until `timeout_ms` has passed.  WEFT_ERR_AUTH if the token of
 * either side is wrong, WEFT_ERR_VERSION if the server speaks another version, WEFT_ERR_UNREACHABLE
 * if nothing answers there or it is not a weft store.
 */
WEFT_API weft_store *weft_store_tcp_connect(const char *address, int port, const char *token,
                                            int64_t timeout_ms);

/*
 * The same for processes of one user on one host, over an abstract Unix socket.  It needs no file,
 * no port and no token.  Each side checks that the other has the same user id.
 */
WEFT_API weft_store *weft_store_unix_serve(const char *name);
WEFT_API weft_store *weft_store_unix_connect(const char *name, int64_t timeout_ms);

/* The part of `store` whose keys start with "prefix/".  Holds a reference to `store`.  Prefixes
 * nest. */
WEFT_API weft_store *weft_store_prefix(const char *prefix, weft_store *store);

/* Another handle to the same data, with its own connection or descriptor. */
WEFT_API weft_store *weft_store_clone(weft_store *store);

/* Returns the TCP port of the store's server, or 0 for other kinds. */
WEFT_API int weft_store_port(const weft_store *store);

/* The time limit that WEFT_DEFAULT stands for.  It starts as WEFT_STORE_TIMEOUT (300 s).  0 and
 * WEFT_FOREVER wait forever.  A prefix store uses the limit of its store. */
WEFT_API int64_t weft_store_timeout(const weft_store *store);
WEFT_API weft_status weft_store_set_timeout(weft_store *store, int64_t timeout_ms);

/* ---- values ---- */

/* Inserts or overwrites a value, and wakes the ranks that wait for the key.  A queue of that name is
 * removed. */
WEFT_API weft_status weft_store_set(weft_store *store, const char *key, const void *data,
                                    size_t bytes);

/* Blocks until the key exists, then reads it.  Free the value with weft_store_value_clear().  If
 * the key does not appear in time, WEFT_ERR_TIMEOUT; with a limit of 0, WEFT_ERR_NOT_FOUND. */
WEFT_API weft_status weft_store_get(weft_store *store, const char *key, int64_t timeout_ms,
                                    weft_store_value *out);

/* Adds `delta` to a number that is kept as decimal text.  A missing key counts as 0.  `out`, which
 * may be NULL, gets the new total. */
WEFT_API weft_status weft_store_add(weft_store *store, const char *key, int64_t delta,
                                    int64_t *out);

/*
 * Stores `desired` if the key holds `expected`, or if the key is missing and `expected` is empty.
 * `out_stored` says whether it did, and `out_current` is what the key holds afterwards.  Either may
 * be NULL.  If the key is missing and `expected` is not empty, returns WEFT_ERR_NOT_FOUND and
 * stores nothing.
 */
WEFT_API weft_status weft_store_compare_set(weft_store *store, const char *key,
                                            const void *expected, size_t expected_bytes,
                                            const void *desired, size_t desired_bytes,
                                            bool *out_stored, weft_store_value *out_current);

/* Appends bytes to a value.  A missing key is created. */
WEFT_API weft_status weft_store_append(weft_store *store, const char *key, const void *data,
                                       size_t bytes);

/* Stores in `out` whether all keys exist.  A queue exists if it has elements.  Does not wait. */
WEFT_API weft_status weft_store_check(weft_store *store, size_t count, const char *const *keys,
                                      bool *out);

/* Blocks until all keys exist.  If they do not in time, WEFT_ERR_TIMEOUT; with a limit of 0,
 * WEFT_ERR_NOT_FOUND. */
WEFT_API weft_status weft_store_wait(weft_store *store, size_t count, const char *const *keys,
                                     int64_t timeout_ms);

/* Removes a value or a queue.  `out`, which may be NULL, says whether there was one. */
WEFT_API weft_status weft_store_delete_key(weft_store *store, const char *key, bool *out);

/* Stores the number of keys in `out`.  A prefix store counts only its own. */
WEFT_API weft_status weft_store_num_keys(weft_store *store, size_t *out);

/* Waits for all keys, then reads them atomically into `out[count]`. */
WEFT_API weft_status weft_store_multi_get(weft_store *store, size_t count, const char *const *keys,
                                          int64_t timeout_ms, weft_store_value *out);

/* Sets all keys atomically, or none of them. */
WEFT_API weft_status weft_store_multi_set(weft_store *store, size_t count, const char *const *keys,
                                          const void *const *data, const size_t *bytes);

/* ---- queues: values in the order they came ---- */

WEFT_API weft_status weft_store_queue_push(weft_store *store, const char *key, const void *data,
                                           size_t bytes);

/*
 * Removes the oldest element and returns it.  Waits if the queue is empty: WEFT_ERR_TIMEOUT after
 * the limit; with a limit of 0, WEFT_ERR_EMPTY.  No element is ever lost: if the caller dies or
 * gives up before it has arrived, it goes back to the front of the queue.
 */
WEFT_API weft_status weft_store_queue_pop(weft_store *store, const char *key, int64_t timeout_ms,
                                          weft_store_value *out);

/* Stores the number of elements in `out`, 0 for a missing key. */
WEFT_API weft_status weft_store_queue_len(weft_store *store, const char *key, size_t *out);

#ifdef __cplusplus
}
#endif

#endif
