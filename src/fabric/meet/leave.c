/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank leaves its job: the counterpart of meet.c.  It tells its peers first, then ends what
 * the library does for it in the background, and frees the world with the last reference.
 */
#include "base/os/os.h"
#include "fabric/group/group_event.h"
#include "fabric/world/lifeline.h"
#include "fabric/world/news.h"
#include "fabric/world/remote.h"
#include "fabric/world/world.h"
#include "store/server.h"
#include "tensor/object/scope.h"

enum { FAREWELLS_MOST = 2 };
static void (*farewells[FAREWELLS_MOST])(const weft_i_world *world); /* set before main */

void weft_i_world_before_leaving(void (*farewell)(const weft_i_world *world))
{
    for (int i = 0; i < FAREWELLS_MOST; i++)
        if (!farewells[i]) {
            farewells[i] = farewell;
            return;
        }
}

void weft_i_world_say_farewell(const weft_i_world *world)
{
    for (int i = 0; i < FAREWELLS_MOST && farewells[i]; i++)
        farewells[i](world);
}

void weft_i_world_leave(weft_i_world *world)
{
    if (atomic_exchange_explicit(&world->finished, true, memory_order_acq_rel) || !world->mine)
        return;
    if (world->generation != weft_i_os_generation())
        return; /* a forked child: the rank_record, the thread and the server are the parent's */
    weft_i_remote_leave(world->remote);
    uint32_t here = WEFT_I_RANK_HERE; /* else it has said FAILED, which tells more */
    atomic_compare_exchange_strong_explicit(&world->mine->life.state, &here, WEFT_I_RANK_LEFT,
                                            memory_order_release,
                                            memory_order_relaxed); /* acquired by peers */
    weft_i_sentinel_stop(world);
    weft_i_news_leave(world);
    weft_i_lifeline_leave(world->lifeline);
    weft_i_watch_stop(world->watch);
    world->watch = NULL;
}

void weft_i_world_drop(weft_i_world *world)
{
    if (!world || atomic_fetch_sub_explicit(&world->references, 1, memory_order_acq_rel) != 1)
        return;
    weft_i_world_forget(world);
    weft_i_world_leave(world);
    weft_i_lifeline_drop(world->lifeline);
    weft_i_remote_drop(world->remote);
    weft_i_fdpass_drop(world->fdpass);
    weft_i_segment_drop(world->job);
    weft_i_object_drop(world->store);
    weft_i_store_server_drop(world->standby, world->generation != weft_i_os_generation());
    weft_i_losses_close(&world->losses);
    pthread_mutex_destroy(&world->moving);
    weft_i_registry_free(&world->registry);
    WEFT_OS->free(world->peers);
    WEFT_OS->free(world);
}
