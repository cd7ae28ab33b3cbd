/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks of a group, or which devices, reach which, by kind of connection. */
#include "base/os/os.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "symm/backend.h"
#include "tensor/object/storage.h"
#include "weft/symm.h"

#include <stdio.h>
#include <string.h>

/* Two ranks share memory if they are on one host. */
static int shm_links(const weft_group *group, int from, int to)
{
    const weft_i_peer *peers = group->world->peers;
    return !strcmp(peers[group->members[from]].host, peers[group->members[to]].host);
}

static weft_status count_hosts(const weft_group *group, int *out_size, int **out_links)
{
    size_t size = (size_t)group->size;
    int *links = WEFT_OS->alloc(size * size * sizeof *links);
    if (!links)
        return weft_i_fail(WEFT_ERR_NO_MEMORY, "no memory for a matrix of %d ranks", group->size);
    for (int from = 0; from < group->size; from++)
        for (int to = 0; to < group->size; to++)
            links[(size_t)from * size + (size_t)to] = from != to && shm_links(group, from, to);
    *out_size = group->size;
    *out_links = links;
    return WEFT_OK;
}

static weft_status refuse(weft_device device, const char *connection)
{
    char name[16];
    return weft_i_fail(WEFT_ERR_NOT_FOUND, "there is no detector of connection \"%s\" for %s",
                       connection ? connection : "(null)", weft_device_name(device, name));
}

/* Of a device: what the backend of its kind can count. */
static weft_status count_devices(weft_device device, const char *connection, int *size, int **links)
{
    const weft_i_backend *backend = weft_i_backend_for(device);
    if (!backend)
        return weft_last_status();
    const weft_i_device_memory *memory = backend->device_memory;
    if (!memory || !memory->connection || strcmp(memory->connection, connection))
        return refuse(device, connection);
    return memory->count_links(size, links);
}

weft_status weft_symm_detect_connectivity(weft_group *group, weft_device device,
                                          const char *connection, weft_connectivity *out)
{
    WEFT_TRY(weft_i_group_usable(group));
    int size = 0, *links = NULL;
    if (!connection || !out)
        return refuse(device, connection);
    if (!weft_i_device_is_host(device))
        WEFT_TRY(count_devices(device, connection, &size, &links));
    else if (!strcmp(connection, "shm"))
        WEFT_TRY(count_hosts(group, &size, &links));
    else
        return refuse(device, connection);
    *out = (weft_connectivity){.device = device, .size = size, .links = links};
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
