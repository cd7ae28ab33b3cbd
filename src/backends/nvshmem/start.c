/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start.  Every rank loads the library and says whether it could; the first makes an id, which
 * travels with what all show; then all meet inside NVSHMEM.  One failure is that of all.
 */
#include "start.h"

#include "attempt.h"
#include "base/os/os.h"
#include "block.h"
#include "tensor/object/device.h"
#include "tensor/object/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static bool started;
static weft_status broken;
static weft_i_key world_key;
static weft_device world_device;
static weft_i_cuda_device *device_of_world;
static unsigned generation; /* of forks */

/* What a rank shows: how it went, the library's version, and the first one's id. */
typedef struct note {
    int32_t status, major, minor, again;
    weft_i_nvshmem_id id;
} note;

static void map_variable(const char *to, const char *from)
{
    const char *value = getenv(from);
    if (value && *value)
        setenv(to, value, 0);
}

void weft_i_nvshmem_map_variables(void)
{
    bool lists = getenv("NVSHMEM_HCA_LIST") != NULL;
    map_variable("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "NCCL_SOCKET_IFNAME");
    map_variable("NVSHMEM_HCA_LIST", "NCCL_IB_HCA");
    map_variable("NVSHMEM_IB_GID_INDEX", "NCCL_IB_GID_INDEX");
    if (!lists && getenv("NVSHMEM_HCA_LIST"))
        setenv("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", 0);
}

static weft_status prepare(const weft_i_circle *world, weft_i_cuda_device **device, note *mine)
{
    const weft_i_nvshmem *nv;
    if (!weft_i_stream_current(world->device)) /* opens the device, or says why it cannot */
        return weft_last_status();
    WEFT_TRY(weft_i_cuda_open(weft_i_device_index(world->device), device));
    WEFT_TRY(weft_i_nvshmem_load(&nv));
    mine->major = nv->major;
    mine->minor = nv->minor;
    weft_i_nvshmem_map_variables();
    WEFT_TRY(weft_i_cuda_use(*device));
    mine->id.version = WEFT_I_NVSHMEM_VERSION(1, weft_i_nvshmem_id);
    /* An id has somebody who listens for the ranks: only those who will come get one. */
    if (world->rank == 0 && !mine->again && nv->nvshmemx_get_uniqueid(&mine->id))
        return weft_i_fail(WEFT_ERR_INTERNAL, "nvshmemx_get_uniqueid fails: see what NVSHMEM says "
                                              "with NVSHMEM_DEBUG=INFO");
    return WEFT_OK;
}

/* The same on all ranks. */
static weft_status compare(const weft_i_circle *world, const note *all)
{
    for (int rank = 0; rank < world->size; rank++) {
        if (all[rank].status < 0 && rank != world->rank)
            return weft_i_fail((weft_status)all[rank].status,
                               "starting NVSHMEM: rank %d cannot (%s)", rank,
                               weft_strerror((weft_status)all[rank].status));
        if (all[rank].again != all[0].again)
            return weft_i_fail(WEFT_ERR_STATE,
                               "starting NVSHMEM: rank %d has started it in another world, which "
                               "it can once in its life, and rank 0 has not",
                               all[rank].again ? rank : 0);
        if (all[rank].major != all[0].major || all[rank].minor != all[0].minor)
            return weft_i_fail(WEFT_ERR_MISMATCH,
                               "starting NVSHMEM: rank 0 has version %d.%d, rank %d %d.%d",
                               all[0].major, all[0].minor, rank, all[rank].major, all[rank].minor);
    }
    return WEFT_OK;
}

static void run_start(weft_i_nvshmem_attempt *a)
{
    const weft_i_nvshmem *nv = weft_i_nvshmem_functions();
    weft_i_nvshmem_id id;
    memcpy(&id, a->id, sizeof id);
    weft_i_nvshmem_attr attr = {
        .version = WEFT_I_NVSHMEM_VERSION(1, weft_i_nvshmem_attr),
        .args = {.version = WEFT_I_NVSHMEM_VERSION(1, weft_i_nvshmem_args),
                 .id = {WEFT_I_NVSHMEM_VERSION(1, weft_i_nvshmem_id_args), NULL, -1, -1}}};
    a->result = nv->nvshmemx_set_attr_uniqueid_args(a->rank, a->ranks, &id, &attr);
    if (!a->result)
        a->result = nv->nvshmemx_hostlib_init_attr(WEFT_I_NVSHMEM_WITH_ID, &attr);
    if (!a->result && (nv->nvshmem_my_pe() != a->rank || nv->nvshmem_n_pes() != a->ranks))
        a->result = -1;
}

/* Meets the others inside NVSHMEM. */
static weft_status enter(const weft_i_circle *world, weft_i_cuda_device *device,
                         const weft_i_nvshmem_id *id, weft_i_nvshmem_attempt *attempt)
{
    attempt->run = run_start;
    attempt->rank = world->rank;
    attempt->ranks = world->size;
    memcpy(attempt->id, id, sizeof attempt->id);
    WEFT_TRY(weft_i_nvshmem_try(world, device, attempt));
    if (attempt->result)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "starting NVSHMEM: it fails with %d on rank %d (ranks that share a GPU "
                           "need MPS with an equal share of threads each; NVSHMEM_DEBUG=INFO tells "
                           "more)",
                           attempt->result, world->rank);
    return WEFT_OK;
}

static weft_status meet(const weft_i_circle *world, weft_i_cuda_device *device, const note *mine,
                        weft_i_nvshmem_attempt *attempt, note *all)
{
    WEFT_TRY(world->exchange(world, mine, sizeof *mine, all));
    if (mine->status < 0)
        return (weft_status)mine->status;
    WEFT_TRY(compare(world, all));
    if (mine->again)
        return WEFT_OK;
    weft_status status = weft_i_circle_agree(world, enter(world, device, &all[0].id, attempt),
                                             "could not start NVSHMEM", all);
    if (status < 0)
        weft_i_nvshmem_break(status); /* some may have it, which cannot be undone */
    return status;
}

/* What holds now: why nothing works, and whether it was started. */
static weft_status look(bool *was_started)
{
    pthread_mutex_lock(&lock);
    weft_status status = broken;
    *was_started = started;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Of one that was started, which does not change any more. */
static bool is_same_world(const weft_i_circle *world)
{
    return weft_i_key_equal(world_key, weft_i_circle_key(world)) &&
           generation == weft_i_os_generation();
}

static void note_started(const weft_i_circle *world, weft_i_cuda_device *device)
{
    pthread_mutex_lock(&lock);
    started = true;
    world_key = weft_i_circle_key(world);
    world_device = world->device;
    device_of_world = device;
    generation = weft_i_os_generation();
    pthread_mutex_unlock(&lock);
}

/* May it be started in this world, or was it? */
static weft_status check_world(const weft_i_circle *world, bool again)
{
    if (again && !is_same_world(world))
        return weft_i_fail(WEFT_ERR_STATE, "NVSHMEM can be started once in a process, and was, by "
                                           "the ranks of another world");
    if (again && world->device != world_device)
        return weft_i_fail(WEFT_ERR_STATE, "NVSHMEM is started on another device, and can only "
                                           "have one in a process");
    return WEFT_OK;
}

static weft_status start_with(const weft_i_circle *world, weft_i_nvshmem_attempt *attempt,
                              note *all)
{
    weft_i_cuda_device *device = NULL;
    bool again;
    weft_status failed = look(&again);
    note mine = {.again = again};
    if (failed < 0)
        mine.status =
            weft_i_fail(failed, "starting NVSHMEM: it has failed before, and works no more");
    else
        mine.status = prepare(world, &device, &mine);
    if (mine.status == WEFT_OK)
        mine.status = check_world(world, again);
    weft_status status = meet(world, device, &mine, attempt, all);
    if (status == WEFT_OK && !again)
        note_started(world, device);
    return status == WEFT_OK && again ? weft_i_nvshmem_collect(world, device) : status;
}

weft_status weft_i_nvshmem_start(const weft_i_circle *world)
{
    if (world->size < 2)
        return weft_i_fail(WEFT_ERR_UNSUPPORTED,
                           "NVSHMEM needs 2 ranks or more; backend cuda serves one");
    note *all = WEFT_OS->alloc((size_t)world->size * sizeof *all);
    weft_i_nvshmem_attempt *attempt = all ? weft_i_nvshmem_attempt_new("starting NVSHMEM") : NULL;
    weft_status status = WEFT_ERR_NO_MEMORY;
    if (attempt) {
        status = start_with(world, attempt, all);
    } else {
        note mine = {.status = status};
        weft_i_circle_decline(world, &mine, sizeof mine);
        weft_i_fail(status, "starting NVSHMEM: no memory for %d ranks", world->size);
    }
    weft_i_nvshmem_attempt_drop(attempt);
    WEFT_OS->free(all);
    return status;
}

weft_status weft_i_nvshmem_world(weft_device device, const char *what, weft_i_circle *world,
                                 weft_i_cuda_device **out)
{
    char name[16];
    bool was_started;
    weft_status failed = look(&was_started);
    if (failed < 0)
        return weft_i_fail(failed, "%s: NVSHMEM has failed before, and works no more", what);
    if (!was_started)
        return weft_i_fail(WEFT_ERR_STATE,
                           "%s: backend nvshmem is not started; all ranks of the world call "
                           "weft_symm_set_backend(device, \"nvshmem\") first",
                           what);
    if (device != world_device)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "%s: NVSHMEM was started on %s", what,
                           weft_device_name(world_device, name));
    WEFT_TRY(weft_i_circle_of_world(device, what, world));
    if (!is_same_world(world))
        return weft_i_fail(WEFT_ERR_STATE, "%s: NVSHMEM was started by the ranks of another world",
                           what);
    *out = device_of_world;
    return WEFT_OK;
}

void weft_i_nvshmem_break(weft_status why)
{
    pthread_mutex_lock(&lock);
    broken = broken < 0 ? broken : why;
    pthread_mutex_unlock(&lock);
}

int weft_i_nvshmem_pe(void)
{
    return weft_i_nvshmem_functions()->nvshmem_my_pe();
}
