/* SPDX-License-Identifier: Apache-2.0 */
/* Backend shm: processes of one host share sealed memory files, passed from server to server. */
#include "base/os/os.h"
#include "symm/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int probe(char *reason, size_t bytes)
{
    int fd = WEFT_OS->memfd_create("weft-probe", MFD_ALLOW_SEALING);
    if (fd < 0) {
        snprintf(reason, bytes, "the kernel gives no memory files (memfd_create: %s)",
                 strerror(errno));
        return 0;
    }
    WEFT_OS->close(fd);
    snprintf(reason, bytes, "processes of one host");
    return 20;
}

static weft_status allocate(weft_device device, size_t bytes, weft_i_segment **out)
{
    (void)device; /* there is one CPU device */
    return weft_i_segment_new(bytes, WEFT_I_BETWEEN_PROCESSES, "symmetric memory", out);
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

extern const weft_i_backend weft_i_backend_shm;
const weft_i_backend weft_i_backend_shm = {
    .name = "shm",
    .sharing = WEFT_I_SERVES_PROCESSES,
    .probe = probe,
    .memory = &memory,
};
