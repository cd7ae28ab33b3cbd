/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks of a group reach which, by kind of connection. */
#include "base/os.h"
#include "base/status.h"
#include "fabric/group.h"
#include "tensor/storage.h"
#include "weft/symm.h"

#include <stdio.h>
#include <string.h>

/* Two ranks share memory if they are on one host. */
static int shm_links(const weft_group *group, int from, int to)
{
    const weft_i_peer *peers = group->world->peers;
    return !strcmp(peers[group->members[from]].host, peers[group->members[to]].host);
}

static const struct detector {
    const char *connection;
    int device_kind;
    int (*links)(const weft_group *group, int from,
                 int to); /* NULL: the hardware is not supported by this build */
} detectors[] = {
    {"shm", WEFT_CPU >> 16, shm_links},
    {"nvlink", WEFT_CUDA(0) >> 16, NULL},
};

static const struct detector *find(weft_device device, const char *connection)
{
    for (size_t i = 0; i < sizeof detectors / sizeof *detectors; i++)
        if (detectors[i].device_kind == weft_i_device_kind(device) &&
            !strcmp(detectors[i].connection, connection))
            return &detectors[i];
    return NULL;
}

weft_status weft_symm_detect_connectivity(weft_group *group, weft_device device,
                                          const char *connection, weft_connectivity *out)
{
    WEFT_TRY(weft_i_group_usable(group));
    char name[16];
    const struct detector *detector = connection && out ? find(device, connection) : NULL;
    if (!detector)
        return weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no detector of connection \"%s\" for %s",
                           connection ? connection : "(null)", weft_device_name(device, name));
    if (!detector->links)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "connection \"%s\" of %s cannot be detected by this build", connection,
                           weft_device_name(device, name));
    size_t size = (size_t)group->size;
    int *links = WEFT_OS->alloc(size * size * sizeof *links);
    if (!links)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a matrix of %d ranks", group->size);
    for (int from = 0; from < group->size; from++)
        for (int to = 0; to < group->size; to++)
            links[(size_t)from * size + (size_t)to] =
                from == to ? 0 : detector->links(group, from, to);
    *out = (weft_connectivity){.device = device, .size = group->size, .links = links};
    snprintf(out->connection, sizeof out->connection, "%s", connection);
    return WEFT_OK;
}

void weft_symm_free_connectivity(weft_connectivity *connectivity)
{
    if (!connectivity)
        return;
    WEFT_OS->free(connectivity->links);
    connectivity->links = NULL;
}
