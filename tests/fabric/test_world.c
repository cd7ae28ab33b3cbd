/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/world/world.c */
/* What one rank holds of its job: how it takes its place in a page, or does not, the cores that its
 * host has for all, and which world is the only one of the process. */
#include "fault.h"
#include "harness.h"

#include "base/os/os.h"
#include "fabric/group/group.h"

#include <weft/version.h>
#include <weft/weft.h>

#include <unistd.h>

enum { SIZE = 3 };

static weft_i_segment *page;
static weft_i_fdpass *office;

static void begin(weft_i_sharing sharing)
{
    CHECK_OK(weft_scope_open());
    CHECK_OK(weft_i_job_new(SIZE, sharing, &page));
    CHECK_OK(weft_i_fdpass_open(sharing, &office));
}

static void end(void)
{
    weft_i_segment_drop(page);
    weft_i_fdpass_drop(office);
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

static weft_i_world *world_of(int rank, weft_i_sharing sharing)
{
    weft_i_world *world = NULL;
    CHECK_OK(weft_i_world_new(rank, SIZE, &world));
    world->sharing = sharing;
    return world;
}

static weft_i_rank_record *record_of(int rank)
{
    return weft_i_job_rank(weft_i_job_of(page), rank);
}

static void says(weft_status got, weft_status wanted, const char *message)
{
    CHECK_INT(got, wanted);
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), message);
    weft_clear_error();
}

TEST(test_world_enter)
{
    static const weft_i_sharing ways[] = {WEFT_I_BETWEEN_PROCESSES, WEFT_I_BETWEEN_THREADS};
    for (int i = 0; i < 2; i++) {
        begin(ways[i]);
        weft_i_world *world = world_of(7, ways[i]);
        says(weft_i_world_enter(world, page, office, -1), WEFT_ERR_INVALID_ARG,
             "local rank -1 is outside the job page's 3 ranks");
        says(weft_i_world_enter(world, page, office, SIZE), WEFT_ERR_INVALID_ARG,
             "local rank 3 is outside the job page's 3 ranks");
        CHECK(!world->mine && !world->job && !world->fdpass);
        for (int rank = 0; rank < SIZE; rank++)
            CHECK_INT(record_of(rank)->life.state, WEFT_I_RANK_AWAITED);
        CHECK_OK(weft_i_world_enter(world, page, office, SIZE - 1));
        const weft_i_rank_record *mine = record_of(SIZE - 1);
        CHECK(world->mine == mine && world->job == page && world->fdpass == office);
        CHECK(world->local_rank == SIZE - 1 && world->local_size == SIZE);
        CHECK_INT(mine->life.state, WEFT_I_RANK_HERE);
        CHECK_INT(mine->address.process, i == 0 ? getpid() : 0);
        CHECK_INT(mine->address.world_rank, 7);
        CHECK_INT(mine->address.layout, WEFT_I_JOB_LAYOUT);
        CHECK(!strcmp(mine->address.version, WEFT_VERSION));
        CHECK(!strcmp(mine->address.fdpass, weft_i_fdpass_name(office)));
        uint64_t cores[sizeof mine->address.cores / sizeof(uint64_t)] = {0};
        weft_i_os_core_mask(cores);
        CHECK(!memcmp(mine->address.cores, cores, sizeof cores) && (cores[0] || cores[1]));
        CHECK_INT((world->watch != NULL), i == 0);
        weft_i_world *second = world_of(8, ways[i]);
        says(weft_i_world_enter(second, page, office, SIZE - 1), WEFT_ERR_STATE,
             "rank 8 has already met in this job (a second weft_init, or two ranks with one "
             "number)");
        CHECK(!second->mine && record_of(SIZE - 1)->address.world_rank == 7);
        weft_i_world_drop(second);
        weft_i_world_leave(world);
        CHECK_INT(mine->life.state, WEFT_I_RANK_LEFT);
        weft_i_world_drop(world);
        end();
    }
}

/* Whatever it lacks: it is in, or its peers are told that it will not come. */
TEST(test_world_enter_without_means)
{
    int failed = 0, n = 1;
    for (bool fired = true; fired; n++) {
        begin(WEFT_I_BETWEEN_PROCESSES);
        weft_i_world *world = world_of(1, WEFT_I_BETWEEN_PROCESSES);
        fault_arm(n);
        weft_status status = weft_i_world_enter(world, page, office, 1);
        fired = fault_disarm();
        CHECK_INT(record_of(1)->life.state,
                  status == WEFT_OK ? WEFT_I_RANK_HERE : WEFT_I_RANK_FAILED);
        CHECK_INT(world->mine != NULL, status == WEFT_OK);
        CHECK(status == WEFT_OK || (fired && weft_last_status() == status));
        failed += status < 0;
        if (status == WEFT_OK)
            weft_i_world_leave(world);
        weft_i_world_drop(world);
        end();
    }
    CHECK(failed > 1 && n < 30);
}

/* A rank that fails before it enters says so, unless the place is another's. */
TEST(test_world_tells_of_a_failure)
{
    begin(WEFT_I_BETWEEN_PROCESSES);
    weft_i_world_tell_failed(record_of(0));
    CHECK_INT(record_of(0)->life.state, WEFT_I_RANK_FAILED);
    record_of(1)->life.state = WEFT_I_RANK_HERE;
    weft_i_world_tell_failed(record_of(1));
    CHECK_INT(record_of(1)->life.state, WEFT_I_RANK_HERE);
    end();
}

/* The cores of all local ranks together, each once. */
TEST(test_world_cores)
{
    begin(WEFT_I_BETWEEN_THREADS);
    weft_i_world *world = world_of(0, WEFT_I_BETWEEN_THREADS);
    world->local_size = SIZE;
    weft_i_world_count_cores(world);
    CHECK_INT(world->cores, 0); /* nobody is here */
    for (int rank = 0; rank < SIZE; rank++)
        world->peers[rank].rank_record = record_of(rank);
    record_of(0)->address.cores[0] = 0x1;
    record_of(1)->address.cores[0] = 0x6;
    record_of(2)->address.cores[0] = 0x2;
    record_of(2)->address.cores[WEFT_I_OS_CORE_WORDS - 1] = UINT64_C(1) << 63;
    weft_i_world_count_cores(world);
    CHECK_INT(world->cores, 4);
    CHECK_INT(world->mode, weft_i_wait_mode_for(SIZE, 4));
    record_of(2)->address.cores[WEFT_I_OS_CORE_WORDS - 1] = 0;
    record_of(1)->address.cores[0] = 0x2;
    weft_i_world_count_cores(world);
    CHECK_INT(world->cores, 2);
    CHECK_INT(world->mode, weft_i_wait_mode_for(SIZE, 2));
    weft_i_world_drop(world);
    end();
}

/* ---- which one is meant where there can be only one ---- */

TEST(test_world_group)
{
    weft_i_world *worlds[3];
    weft_group *groups[3];
    CHECK_OK(weft_scope_open());
    CHECK(!weft_i_world_group());
    for (int i = 0; i < 3; i++) {
        worlds[i] = world_of(i, WEFT_I_BETWEEN_THREADS);
        CHECK(i == 0 ? !weft_i_world_group()
                     : weft_i_world_group() == groups[0]); /* no group yet */
        groups[i] = (weft_group *)&groups[i];              /* only whether there is one */
        worlds[i]->registry.root = groups[i];
        if (i) {
            CHECK(!weft_i_world_group()); /* two */
            worlds[i]->registry.root = NULL;
        }
    }
    CHECK(weft_i_world_group() == groups[0]);
    worlds[0]->fake = true;
    CHECK(!weft_i_world_group());
    worlds[0]->fake = false;
    worlds[0]->generation++; /* of a parent before the fork */
    CHECK(!weft_i_world_group());
    worlds[0]->generation--;
    atomic_store(&worlds[0]->finished, true);
    CHECK(!weft_i_world_group());
    atomic_store(&worlds[0]->finished, false);
    worlds[1]->registry.root = groups[1];
    weft_i_world_forget(worlds[1]); /* in the middle of the list */
    CHECK(weft_i_world_group() == groups[0]);
    weft_i_world_forget(worlds[1]); /* twice is once */
    CHECK(weft_i_world_group() == groups[0]);
    weft_i_world_forget(worlds[0]);
    CHECK(!weft_i_world_group());
    for (int i = 0; i < 3; i++) {
        worlds[i]->registry.root = NULL;
        weft_i_world_drop(worlds[i]);
    }
    CHECK_OK(weft_scope_close());
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
