/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcrypto, loaded on demand.  The entries are written under the mutex before `ready` is set and
 * never change afterwards; the library stays loaded for the life of the process.
 *
 * libcrypto frees its locks when the process exits, and a thread that hashes just then crashes.  So
 * it is asked not to; and because the program may have started it earlier without that wish, our
 * own exit function, registered later and so called earlier, closes the gate to it first.
 */
#include "base/share/keyed.h"

#include "base/os/os.h"
#include "base/report/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct {
    unsigned char *(*hmac)(const void *digest, const void *key, int key_bytes,
                           const unsigned char *data, size_t bytes, unsigned char *out,
                           unsigned *out_bytes);
    const void *(*sha256)(void);
    int (*compare)(const void *a, const void *b, size_t bytes);
} crypto;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER; /* shared by those who hash */
static bool closed;                                        /* under the gate: the process exits */
static atomic_bool
    ready; /* release in load(), acquire in loaded(): whoever sees true sees the entries */

static bool loaded(void)
{
    return atomic_load_explicit(&ready, memory_order_acquire);
}

static void close_gate(void)
{
    pthread_rwlock_wrlock(&gate);
    closed = true;
    pthread_rwlock_unlock(&gate);
}

/* Threads that were hashing do not exist in the child, so nobody would let go of the gate. */
static void mend_gate(void)
{
    pthread_rwlock_init(&gate, NULL);
}

/* No exit function of libcrypto's own where we are the first to start it, and ours before it. */
static weft_status start(void *library)
{
    enum { NO_EXIT_FUNCTION = 0x00080000 }; /* OPENSSL_INIT_NO_ATEXIT */
    int (*init)(uint64_t options, const void *settings) = NULL;
    void *entry = WEFT_OS->dlsym(library, "OPENSSL_init_crypto");
    memcpy(&init, &entry, sizeof entry);
    static bool prepared; /* under `loading` */
    if (!init || init(NO_EXIT_FUNCTION, NULL) != 1)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED, "libcrypto.so.3 cannot be started");
    if (!prepared && (!weft_i_os_at_exit(close_gate) || pthread_atfork(NULL, NULL, mend_gate) != 0))
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for an exit function");
    prepared = true;
    return WEFT_OK;
}

static weft_status load(void)
{
    void *library = WEFT_OS->dlopen("libcrypto.so.3");
    if (!library)
        return weft_i_fail(
            WEFT_ERR_UNSUPPORTED,
            "a store over TCP needs OpenSSL 3's libcrypto.so.3, which cannot be loaded "
            "(Debian: apt install libssl3); ranks of one host can meet without it");
    /* POSIX promises that a function pointer survives in a void pointer; C alone does not, hence
     * memcpy. */
    void *hmac = WEFT_OS->dlsym(library, "HMAC"), *sha256 = WEFT_OS->dlsym(library, "EVP_sha256"),
         *compare = WEFT_OS->dlsym(library, "CRYPTO_memcmp");
    if (!hmac || !sha256 || !compare)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "libcrypto.so.3 lacks HMAC, EVP_sha256 or CRYPTO_memcmp: not OpenSSL 3");
    WEFT_TRY(start(library));
    memcpy(&crypto.hmac, &hmac, sizeof hmac);
    memcpy(&crypto.sha256, &sha256, sizeof sha256);
    memcpy(&crypto.compare, &compare, sizeof compare);
    atomic_store_explicit(&ready, true,
                          memory_order_release); /* pairs with the acquire in loaded() */
    return WEFT_OK;
}

weft_status weft_i_keyed_load(void)
{
    if (loaded())
        return WEFT_OK;
    pthread_mutex_lock(&loading);
    weft_status status = loaded() ? WEFT_OK : load();
    pthread_mutex_unlock(&loading);
    return status;
}

weft_status weft_i_keyed_sign(const uint8_t secret[WEFT_I_KEYED_BYTES], const void *bytes,
                              size_t count, uint8_t out[WEFT_I_KEYED_BYTES])
{
    if (!loaded())
        return weft_i_fail(WEFT_ERR_STATE, "keyed hash: libcrypto is not loaded");
    unsigned length = 0;
    pthread_rwlock_rdlock(&gate);
    bool open = !closed;
    bool done = open && crypto.hmac(crypto.sha256(), secret, WEFT_I_KEYED_BYTES, bytes, count, out,
                                    &length);
    pthread_rwlock_unlock(&gate);
    if (!open)
        return weft_i_fail(WEFT_ERR_STATE, "keyed hash: the process is exiting");
    if (!done || length != WEFT_I_KEYED_BYTES)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "keyed hash: libcrypto could not hash %zu bytes",
                           count);
    return WEFT_OK;
}

bool weft_i_keyed_equal(const uint8_t a[WEFT_I_KEYED_BYTES], const uint8_t b[WEFT_I_KEYED_BYTES])
{
    return loaded() && crypto.compare(a, b, WEFT_I_KEYED_BYTES) == 0;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool weft_i_keyed_parse(const char *hex, uint8_t out[WEFT_I_KEYED_BYTES])
{
    if (strnlen(hex, 2 * WEFT_I_KEYED_BYTES + 1) != 2 * WEFT_I_KEYED_BYTES)
        return false;
    for (size_t i = 0; i < WEFT_I_KEYED_BYTES; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

void weft_i_keyed_forget(void *secret, size_t bytes)
{
    explicit_bzero(secret, bytes);
}
