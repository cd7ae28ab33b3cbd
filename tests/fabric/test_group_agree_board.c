/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/group/group_agree.c */
/* Agreement on one host, by one of many ranks: the others are words that the test writes. */
#include "fault.h"
#include "fence.h"
#include "harness.h"

#include "fabric/group/group.h"

#include <weft/weft.h>

#include <linux/futex.h>

enum { SIZE = 19, ME = 1 };

static weft_i_world *world;
static weft_group *group;

static weft_i_rank_record *record_of(int rank)
{
    return world->peers[rank].rank_record;
}

static void begin(void)
{
    weft_i_segment *job = NULL;
    CHECK_OK(weft_scope_open());
    CHECK_OK(weft_i_job_new(SIZE, WEFT_I_BETWEEN_PROCESSES, &job));
    CHECK_OK(weft_i_world_new(ME, SIZE, &world));
    world->job = job;
    world->local_size = SIZE;
    for (int rank = 0; rank < SIZE; rank++) {
        world->peers[rank].rank_record = weft_i_job_rank(weft_i_job_of(job), rank);
        weft_i_record_init(&record_of(rank)->record);
        record_of(rank)->life.state = WEFT_I_RANK_HERE;
        record_of(rank)->life.word = 1;
    }
    world->mine = record_of(ME);
    group = weft_i_group_allocate(world, SIZE);
    CHECK(group);
    for (int rank = 0; rank < SIZE; rank++)
        group->members[rank] = rank;
    group->rank = ME;
    group->local = true;
    snprintf(group->name, sizeof group->name, "g");
    CHECK_OK(weft_i_segment_new(weft_i_board_bytes(SIZE), WEFT_I_BETWEEN_PROCESSES, "a board",
                                &group->rest.board_segment));
    group->board = (weft_i_board *)(void *)group->rest.board_segment->base;
    weft_i_world_drop(world); /* the group holds it */
}

static void end(void)
{
    weft_clear_error();
    CHECK_OK(weft_scope_close());
}

/* The rank has come to this round with these flags. */
static void comes(int rank, uint32_t round, uint64_t flags)
{
    group->board->row[rank].vote.flags[round & 1] = flags;
    group->board->row[rank].vote.round = round;
}

static void says(weft_status got, weft_status wanted, const char *message)
{
    CHECK_INT(got, wanted);
    if (strcmp(weft_last_error(), message) != 0)
        FAIL("it says \"%s\", not \"%s\"", weft_last_error(), message);
    weft_clear_error();
}

/* Who is lost is told by number, also beyond the first eight; and in the next round again. */
TEST(test_agree_board_lost)
{
    fence_on();
    begin();
    uint64_t flags = 0xff0;
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != ME && rank != 8 && rank != 17)
            comes(rank, 1, 0x0ff);
    record_of(8)->life.word = FUTEX_OWNER_DIED | 1;
    record_of(17)->life.state = WEFT_I_RANK_LEFT;
    says(weft_group_agree(group, &flags, 20000), WEFT_ERR_PEER_DEAD,
         "group_agree in \"g\": agreed without rank 8, 17 of the group: rank 8 (died, or exited "
         "without weft_finish), rank 17 (left the job)");
    fence_off();
    CHECK_INT(flags, 0x0f0);
    CHECK_INT(group->rest.agreements, 1);
    CHECK_INT(group->board->agreed, UINT64_C(1) << 32 | (1 + ME)); /* it was ours to say */
    end();
}

/* Another member has decided: its words count, and not what we see ourselves. */
TEST(test_agree_board_follows)
{
    begin();
    uint64_t flags = 0xff;
    weft_i_vote *words = &group->board->row[18].vote;
    comes(18, 1, 0x0f);
    words->decided[1] = 0x0c;
    words->status[1] = WEFT_ERR_PEER_LEFT;
    words->lost[1][0] = 1u << 7;
    words->lost[1][1] = 1u << 0 | 1u << 7;
    words->lost[1][2] = 1u << 1;
    group->board->agreed = UINT64_C(1) << 32 | (1 + 18);
    CHECK_STATUS(weft_group_agree(group, &flags, 20000), WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "agreed without rank 7, 8, 15, 17 of the group: ");
    CHECK_INT(flags, 0x0c);
    CHECK_INT(group->rest.agreements, 1);
    end();
}

/* Who lives and has not come is named; the round stays open, with the flags of the first try. */
TEST(test_agree_board_late)
{
    begin();
    uint64_t flags = 0x3;
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != ME && rank != 16)
            comes(rank, 1, 0x7);
    says(weft_group_agree(group, &flags, 20), WEFT_ERR_TIMEOUT,
         "group_agree in \"g\": waited 20 ms for rank 16 (alive)");
    group->board->row[3].vote.round = 0; /* the dead are not waited for, and not named */
    record_of(3)->life.word = FUTEX_OWNER_DIED | 1;
    says(weft_group_agree(group, &flags, 20), WEFT_ERR_TIMEOUT,
         "group_agree in \"g\": waited 20 ms for rank 16 (alive)");
    record_of(3)->life.word = 1;
    comes(3, 1, 0x7);
    CHECK(flags == 0x3 && group->rest.agreements == 0 && !group->board->agreed);
    comes(16, 1, 0x6);
    flags = 0xff;
    CHECK_OK(weft_group_agree(group, &flags, 20000));
    CHECK_INT(flags, 0x2);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != ME)
            comes(rank, 2, 0x30);
    flags = 0x10;
    CHECK_OK(weft_group_agree(group, &flags, 20000));
    CHECK_INT(flags, 0x10);
    CHECK_INT(group->rest.agreements, 2);
    end();
}

/* Without memory nothing has happened. */
TEST(test_agree_board_without_memory)
{
    begin();
    uint64_t flags = 0xff;
    fault_arm(1);
    weft_status status = weft_group_agree(group, &flags, 20000);
    CHECK(fault_disarm());
    says(status, WEFT_ERR_NO_MEMORY, "group_agree: no memory for 19 ranks");
    CHECK(flags == 0xff && group->rest.agreements == 0 && !group->board->row[ME].vote.round);
    end();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0); /* errors are the point here */
    return harness_main(argc, argv);
}
