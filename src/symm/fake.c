/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fake worlds: one record for the rank itself, peers that are nowhere, and the fake backend as the
 * carrier of its collectives.  Exchanges show the rank its own notes (fabric/group/exchange.c), so that
 * everything built on them works: splits, rendezvous.
 */
#include "weft/fake.h"

#include "base/os/os.h"
#include "base/report/env.h"
#include "base/report/opts.h"
#include "base/report/status.h"
#include "fabric/group/group.h"
#include "fabric/world/spawn.h"
#include "symm/backend.h"

#include <stdio.h>
#include <string.h>

/* The flight record of the rank lies in a job page of its own; the descriptor server hands it what
 * it offers itself. */
static weft_status furnish(weft_i_world *world)
{
    WEFT_TRY(weft_i_job_new(1, WEFT_I_BETWEEN_THREADS, &world->job));
    WEFT_TRY(weft_i_fdpass_open(WEFT_I_BETWEEN_THREADS, &world->fdpass));
    world->mine = weft_i_job_rank(weft_i_job_of(world->job), 0);
    weft_i_record_init(&world->mine->record);
    world->key = weft_i_job_of(world->job)->key;
    for (int rank = 0; rank < world->size; rank++)
        snprintf(world->peers[rank].host, sizeof world->peers[rank].host, "none: fake");
    world->peers[world->rank].rank_record = world->mine;
    /* Read by this rank alone. */
    atomic_store_explicit(&world->mine->life.state, WEFT_I_RANK_HERE, memory_order_release);
    return WEFT_OK;
}

static weft_status make_world(const weft_fake_opts *opts, weft_i_world **out)
{
    weft_i_world *world = NULL;
    WEFT_TRY(weft_i_world_new(opts->rank, opts->world_size, &world));
    world->fake = true;
    world->mute = opts->error_on_collective;
    world->carrier = weft_i_backend_named("fake");
    world->local_rank = opts->rank;
    world->local_size = opts->world_size;
    /* So that memory of this thread's backend may meet in it. */
    world->sharing = weft_i_spawn_seat() ? WEFT_I_BETWEEN_THREADS : WEFT_I_BETWEEN_PROCESSES;
    world->store = weft_i_object_hold(opts->store);
    weft_status status = furnish(world);
    if (status < 0)
        weft_i_world_drop(world);
    else
        *out = world;
    return status;
}

weft_group *weft_fake_init(const weft_fake_opts *given)
{
    weft_fake_opts opts = WEFT_FAKE_OPTS(0, 1);
    weft_clear_error();
    if (weft_i_env_check() < 0 ||
        weft_i_opts_copy(&opts, sizeof opts, given, "weft_fake_init (start from WEFT_FAKE_OPTS)") <
            0)
        return NULL;
    if (opts.world_size < 1 || opts.rank < 0 || opts.rank >= opts.world_size)
        return weft_i_null(WEFT_ERR_INVALID_ARG, "weft_fake_init: there is no rank %d of %d",
                           opts.rank, opts.world_size);
    weft_i_world *world = NULL;
    if (make_world(&opts, &world) < 0)
        return NULL;
    weft_i_status_set_rank(opts.rank);
    return weft_i_group_of_world(world);
}

bool weft_fake_is(const weft_group *group)
{
    return group && group->world && group->world->fake; /* a stand-in has no world */
}
