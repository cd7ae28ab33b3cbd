/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyed hash that proves knowledge of the job's token: HMAC-SHA-256 and a compare whose time
 * does not depend on the bytes, both from OpenSSL 3's libcrypto, which is loaded when the first
 * store over TCP is made and not before.
 */
#ifndef WEFT_BASE_KEYED_H
#define WEFT_BASE_KEYED_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_KEYED_BYTES = 32 }; /* of a secret and of a tag */

/* Loads libcrypto, once per process.  WEFT_ERR_UNSUPPORTED where it is absent; a later call tries
 * again. */
weft_status weft_i_keyed_load(void);

/* The tag of `bytes` under `secret`.  WEFT_ERR_STATE before weft_i_keyed_load() and once the
 * process exits, WEFT_ERR_NO_MEMORY. */
weft_status weft_i_keyed_sign(const uint8_t secret[WEFT_I_KEYED_BYTES], const void *bytes,
                              size_t count, uint8_t out[WEFT_I_KEYED_BYTES]);

/* Constant time.  False before weft_i_keyed_load(). */
bool weft_i_keyed_equal(const uint8_t a[WEFT_I_KEYED_BYTES], const uint8_t b[WEFT_I_KEYED_BYTES]);

/* Reads a secret of 64 hexadecimal digits; false on anything else. */
bool weft_i_keyed_parse(const char *hex, uint8_t out[WEFT_I_KEYED_BYTES]);

/* Overwrites a secret in a way that the compiler keeps. */
void weft_i_keyed_forget(void *secret, size_t bytes);

#endif
