/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on several hosts show each other where their wires are, through the store.  All of them have one,
 * or none keeps its own: a group must not depend on which of its ranks has the library.
 */
#include "fabric/meet/meet.h"

#include "base/os/assert.h"
#include "base/os/os.h"
#include "base/report/log.h"
#include "base/report/status.h"
#include "base/share/wire.h"
#include "fabric/world/lifeline.h"
#include "fabric/world/remote.h"
#include "weft/store.h"

#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x43544657, /* "WFTC" */
    LAYOUT = 2,
    SLICE_MS = 50,
    REASON_BYTES = 160,
    SHOWN_BYTES = 64 + WEFT_I_TRANSPORT_ADDRESS_BYTES + WEFT_I_LIFELINE_ADDRESS
};

/* What a rank shows: where its wire is, or why it has none. */
typedef struct shown {
    bool has;
    weft_i_remote_card card;
    char reason[REASON_BYTES];
    char life[WEFT_I_LIFELINE_ADDRESS]; /* where it takes lifelines; empty: nowhere */
} shown;

static size_t write_shown(const shown *mine, unsigned char out[SHOWN_BYTES])
{
    weft_i_wire_writer to = weft_i_wire_write(out, SHOWN_BYTES);
    weft_i_wire_put_head(&to, MAGIC, LAYOUT);
    weft_i_wire_put_u32(&to, mine->has);
    weft_i_wire_put_bytes(&to, mine->card.nonce, sizeof mine->card.nonce);
    weft_i_wire_put_blob(&to, mine->has ? (weft_i_view){mine->card.address, mine->card.bytes}
                                        : (weft_i_view){mine->reason, strlen(mine->reason)});
    weft_i_wire_put_text(&to, mine->life, sizeof mine->life);
    return to.at;
}

static bool read_shown(const void *bytes, size_t count, shown *out)
{
    weft_i_wire_reader from = weft_i_wire_read(bytes, count);
    *out = (shown){.has = false};
    if (weft_i_wire_get_head(&from, MAGIC) != LAYOUT)
        return false;
    out->has = weft_i_wire_get_u32(&from) == 1;
    weft_i_wire_get_bytes(&from, out->card.nonce, sizeof out->card.nonce);
    weft_i_view view =
        weft_i_wire_get_blob(&from, out->has ? sizeof out->card.address : sizeof out->reason - 1);
    if (view.bytes)
        memcpy(out->has ? (char *)out->card.address : out->reason, view.data, view.bytes);
    out->card.bytes = view.bytes;
    weft_i_wire_get_text(&from, out->life, sizeof out->life);
    return weft_i_wire_done(&from);
}

static void name_key(int rank, char out[32])
{
    snprintf(out, 32, "wire/%d", rank);
}

static weft_status show(const weft_i_world *world, weft_store *store, const shown *mine)
{
    unsigned char bytes[SHOWN_BYTES];
    char key[32];
    name_key(world->rank, key);
    return weft_store_set(store, key, bytes, write_shown(mine, bytes));
}

static weft_status read_of(weft_i_world *world, weft_store *store, int rank, int64_t deadline,
                           shown *out)
{
    char key[32];
    weft_store_value value = {0};
    weft_status status;
    name_key(rank, key);
    while ((status = weft_store_get(store, key, SLICE_MS, &value)) == WEFT_ERR_TIMEOUT) {
        if (WEFT_OS->clock_ns() >= deadline)
            return weft_i_fail(WEFT_ERR_MISSING,
                               "weft_init: rank %d came, but never said whether it can send to "
                               "other hosts",
                               rank);
        WEFT_TRY(weft_i_meet_check(world));
    }
    WEFT_TRY(status);
    bool good = read_shown(value.data, value.bytes, out);
    weft_store_value_clear(&value);
    return good ? WEFT_OK
                : weft_i_fail(WEFT_ERR_PROTOCOL,
                              "weft_init: what rank %d shows of its connections is not weft's",
                              rank);
}

static void note_none(weft_i_world *world, int rank, const char *reason)
{
    if (!*world->remote_why)
        snprintf(world->remote_why, sizeof world->remote_why, "rank %d: %.140s", rank, reason);
}

/* What this rank opens, and whether all others have the same. */
typedef struct wires {
    weft_i_remote *remote;
    weft_i_lifeline *life;
    bool has_wires, has_lives;
} wires;

static void drop(wires *all)
{
    weft_i_lifeline_drop(all->life);
    weft_i_remote_drop(all->remote);
}

/* Reads what all show. */
static weft_status read_all(weft_i_world *world, weft_store *store, int64_t deadline, wires *all)
{
    shown theirs;
    for (int rank = 0; rank < world->size; rank++) {
        if (rank == world->rank)
            continue;
        WEFT_TRY(read_of(world, store, rank, deadline, &theirs));
        if (!theirs.has)
            note_none(world, rank, theirs.reason);
        all->has_wires &= theirs.has;
        all->has_lives &= *theirs.life != 0;
        bool here = !strcmp(world->peers[rank].host, world->peers[world->rank].host);
        if (all->has_wires && !here)
            WEFT_TRY(weft_i_remote_know(all->remote, rank, &theirs.card));
        if (all->has_lives)
            weft_i_lifeline_know(all->life, rank, theirs.life);
    }
    return WEFT_OK;
}

/* What cannot be opened is no error: it is as it was before there was a transport. */
static void open_wires(weft_i_world *world, weft_store *store, wires *all, shown *mine)
{
    weft_i_errors before;
    weft_i_errors_save(&before);
    mine->has = weft_i_remote_open(world, &all->remote, &mine->card) == WEFT_OK;
    if (!mine->has) {
        snprintf(mine->reason, sizeof mine->reason, "%s", weft_last_error());
        note_none(world, world->rank, mine->reason);
    } else if (weft_i_lifeline_open(world, store, &all->life, mine->life) < 0) {
        weft_i_log(WEFT_LOG_INFO, "no lifelines between hosts, the store tells of deaths: %s",
                   weft_last_error());
    }
    weft_i_errors_restore(&before);
    all->has_wires = mine->has;
    all->has_lives = *mine->life != 0;
}

static weft_status start(weft_i_world *world, wires *all)
{
    WEFT_ASSERT(all->remote && (!all->has_lives || all->life));
    WEFT_TRY(weft_i_remote_start(all->remote));
    if (all->has_lives)
        WEFT_TRY(weft_i_lifeline_start(all->life, weft_i_remote_secret(all->remote)));
    world->remote = all->remote;
    if (all->has_lives)
        world->lifeline = all->life;
    else
        weft_i_lifeline_drop(all->life);
    return WEFT_OK;
}

weft_status weft_i_meet_wires(weft_i_world *world, weft_store *store, int64_t deadline)
{
    shown mine = {.has = false};
    wires all = {.remote = NULL};
    open_wires(world, store, &all, &mine);
    weft_status status = show(world, store, &mine);
    if (status == WEFT_OK)
        status = read_all(world, store, deadline, &all);
    if (status == WEFT_OK && all.has_wires)
        status = start(world, &all);
    if (status == WEFT_OK && all.has_wires)
        return WEFT_OK;
    drop(&all);
    if (status == WEFT_OK)
        weft_i_log(WEFT_LOG_INFO, "no messages between the hosts of this job: %s",
                   world->remote_why);
    return status;
}
