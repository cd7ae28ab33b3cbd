/* SPDX-License-Identifier: Apache-2.0 */
/* Backend threads: ranks of one process share memory at one address, so that ThreadSanitizer sees
 * every access. */
#include "symm/backend.h"

#include <stdio.h>

static int probe(char *reason, size_t bytes)
{
    snprintf(reason, bytes, "threads of one process (weft_spawn)");
    return 10;
}

static weft_status allocate(weft_device device, size_t bytes, weft_i_segment **out)
{
    (void)device; /* there is one CPU device */
    return weft_i_segment_new(bytes, WEFT_I_BETWEEN_THREADS, "symmetric memory", out);
}

static weft_status publish(weft_i_fdpass *fdpass, weft_i_segment *block)
{
    return weft_i_fdpass_publish(fdpass, block->key, block, WEFT_OK);
}

static const weft_i_memory memory = {
    .allocate = allocate,
    .publish = publish,
    .import = weft_i_circle_fetch,
};

extern const weft_i_backend weft_i_backend_threads;
const weft_i_backend weft_i_backend_threads = {
    .name = "threads",
    .sharing = WEFT_I_SERVES_THREADS,
    .probe = probe,
    .memory = &memory,
};
