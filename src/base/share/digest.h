/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, for names of things by their content.  No secrets: keyed.h has those. */
#ifndef WEFT_BASE_DIGEST_H
#define WEFT_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { WEFT_I_DIGEST_BYTES = 32, WEFT_I_DIGEST_TEXT = 65 };

typedef struct weft_i_digest {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64]; /* its first length % 64 bytes wait for the rest */
} weft_i_digest;

void weft_i_digest_begin(weft_i_digest *digest);
void weft_i_digest_add(weft_i_digest *digest, const void *bytes, size_t count);
void weft_i_digest_end(weft_i_digest *digest, uint8_t out[WEFT_I_DIGEST_BYTES]);

/* As 64 hexadecimal digits, terminated. */
void weft_i_digest_text(const uint8_t digest[WEFT_I_DIGEST_BYTES], char out[WEFT_I_DIGEST_TEXT]);

#endif
