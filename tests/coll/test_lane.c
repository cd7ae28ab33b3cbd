/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/lane/lane.c, coll/lane/enter.c */
/* How far ranks get ahead of each other on a lane where data goes one way, and that nothing is lost
 * on the way: see lane.h.  Entries and syncs, in a group whose other ranks are words that the test
 * writes. */
#include "group_by_hand.h"
#include "harness_ranks.h"
#include "jobs.h"

#include "coll/lane/lane.h"

#include <weft/weft.h>

enum { AHEAD = 15, LIMIT_MS = 20000 };
_Static_assert(AHEAD == WEFT_I_TURNS - 1, "as far as there are entries");

static weft_tensor *floats(int64_t bytes)
{
    return weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(bytes / (int64_t)sizeof(float)));
}

static void expect_all(weft_tensor *x, double value)
{
    int64_t last = weft_tensor_numel(x) - 1;
    CHECK(weft_item(x, 0) == value && weft_item(x, last) == value &&
          weft_item(x, last / 2) == value);
}

/* One broadcast of `value` from rank 0. */
static weft_status give(weft_tensor *x, int rank, double value, weft_group *group)
{
    CHECK_OK(weft_fill(x, rank == 0 ? value : -1));
    weft_status status = weft_broadcast_in_place(x, 0, group);
    if (status == WEFT_OK)
        expect_all(x, value);
    return status;
}

/* Rank 2 stays away until ranks 0 and 1 have made as many calls as there are entries; no more. */
static void run_ahead(int rank, int64_t bytes, weft_group *group)
{
    weft_scope_open();
    weft_tensor *x = floats(bytes), *word = floats(4);
    CHECK_OK(weft_group_barrier(group, WEFT_DEFAULT));
    CHECK_OK(weft_all_reduce_into(word, word, WEFT_SUM, group)); /* all are known to be here */
    if (rank == 2)
        CHECK_OK(weft_recv(word, 1, group));
    for (int i = 0; i < AHEAD; i++)
        CHECK_OK(give(x, rank, 100 + i, group));
    if (rank == 0) {
        CHECK_OK(weft_limit_open(30));
        CHECK_STATUS(give(x, rank, 999, group), WEFT_ERR_TIMEOUT); /* and overwrites nothing */
        CHECK_CONTAINS(weft_last_error(), "rank 2");
        CHECK_OK(weft_limit_close());
        weft_clear_error();
        CHECK_OK(weft_send(word, 1, group));
    } else if (rank == 1) {
        CHECK_OK(weft_recv(word, 0, group));
        CHECK_OK(weft_send(word, 2, group));
    }
    for (int i = 0; i < 2 * AHEAD; i++) /* and so on */
        CHECK_OK(give(x, rank, 200 + i, group));
    weft_scope_close();
}

static void run_all_ahead(int rank, const char *wait, const int64_t *sizes, size_t count)
{
    if (!harness_in_threads)
        setenv("WEFT_WAIT", wait, 1);
    weft_group *world = join(LIMIT_MS);
    for (size_t i = 0; i < count; i++)
        run_ahead(rank, sizes[i], world);
    finish(world);
}

RANKS_TEST(test_lane_ahead_crowded, 3)
{
    static const int64_t sizes[] = {8, 632, 636, 4096, WEFT_I_SHORT};
    if (harness_in_threads)
        SKIP("threads of one process wait as it does");
    CHECK_OK(weft_tune_set(WEFT_TUNE_EAGER, "broadcast", 3, 64 << 10)); /* on every machine */
    run_all_ahead(rank, "yield", sizes, 5);
}

RANKS_TEST(test_lane_ahead_spinning, 3)
{
    static const int64_t sizes[] = {8, 632};
    run_all_ahead(rank, "spin", sizes, 2);
}

/* Sizes and roots by chance: all ways of small data, inline, in short buffers, in long ones, behind
 * each other, with ranks that come late. */
static void run_mixed(int rank, int size, const char *wait)
{
    static const int64_t sizes[] = {8,           632, 640, 4096, WEFT_I_SHORT, WEFT_I_SHORT + 4,
                                    WEFT_I_EAGER};
    enum { CALLS = 600, SIZES = sizeof sizes / sizeof *sizes };
    weft_tensor *x[SIZES], *sum;
    uint64_t chance = 88172645463325252u, own = chance + (uint64_t)rank * 977;
    if (!harness_in_threads)
        setenv("WEFT_WAIT", wait, 1);
    weft_group *world = join(LIMIT_MS);
    for (int i = 0; i < SIZES; i++)
        x[i] = floats(sizes[i]);
    sum = floats(8);
    for (int i = 0; i < CALLS; i++) {
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        own ^= own << 13, own ^= own >> 7, own ^= own << 17;
        weft_tensor *y = x[chance % SIZES];
        int root = (int)((chance >> 8) % (unsigned)size);
        if (own % 40 == 0)
            usleep((useconds_t)(own >> 8) % 2000);
        CHECK_OK(weft_fill(y, rank == root ? i : -1));
        if (chance >> 16 & 15) {
            CHECK_OK(weft_broadcast_in_place(y, root, world));
            expect_all(y, i);
        } else { /* now and then all wait for all */
            CHECK_OK(weft_fill(sum, i));
            CHECK_OK(weft_all_reduce_into(sum, sum, WEFT_SUM, world));
            expect_all(sum, (double)i * size);
        }
    }
    finish(world);
}

RANKS_TEST(test_lane_mixed_crowded, 4)
{
    run_mixed(rank, size, "yield");
}

RANKS_TEST(test_lane_mixed_spinning, 2)
{
    run_mixed(rank, size, "spin");
}

/* ---- where the words lie ---- */

static bool in_head(const weft_i_lane *lane, const char *at, size_t where)
{
    return at == lane->heads + where;
}

/* Every point of a real lane is in the heads, and not in the same words as another. */
RANKS_TEST(test_lane_points, 2)
{
    (void)size;
    weft_group *world = join(LIMIT_MS);
    weft_tensor *word = floats(4);
    CHECK_OK(weft_all_reduce_into(word, word, WEFT_SUM, world));
    const weft_i_lane *lane = world->lane;
    CHECK(lane->me == rank && lane->entry.me == rank && lane->steps.me == rank);
    CHECK(lane->size == 2 && lane->entry.size == 2 && lane->steps.size == 2);
    CHECK(lane->head_stride >= sizeof(weft_i_lane_head) && lane->entry.stride == lane->head_stride);
    CHECK_INT(lane->steps.stride, lane->head_stride);
    CHECK(in_head(lane, lane->entry.words, offsetof(weft_i_lane_head, entry)));
    CHECK(in_head(lane, lane->entry.passes, offsetof(weft_i_lane_head, entry_pass)));
    CHECK(in_head(lane, lane->entry.bells, offsetof(weft_i_lane_head, bell)));
    CHECK(in_head(lane, lane->entry.gave_up, offsetof(weft_i_lane_head, gave_up)));
    CHECK(in_head(lane, lane->steps.words, offsetof(weft_i_lane_head, step)));
    CHECK(in_head(lane, lane->steps.passes, offsetof(weft_i_lane_head, step_pass)));
    CHECK(in_head(lane, lane->steps.bells, offsetof(weft_i_lane_head, bell)));
    CHECK(lane->entry.turns == WEFT_I_TURNS && !lane->steps.turn_stride && !lane->steps.gave_up);
    CHECK(lane->splits_at >= sizeof(weft_i_lane_head) &&
          lane->splits_stride >= 4 * sizeof(uint64_t));
    CHECK(lane->block->pad_bytes >= lane->splits_at + WEFT_I_TURNS * lane->splits_stride);
    CHECK(lane->splits_at % WEFT_I_LINE == 0 && lane->splits_stride % WEFT_I_LINE == 0);
    CHECK(lane->entered == &world->calls.entries && world->calls.entries == lane->epoch);
    CHECK(lane->at_entry.tell && !lane->for_room.tell && lane->for_room.is_kept(lane));
    CHECK(!world->rest.lane_making.under_way && !world->rest.lane_making.op);
    weft_i_signature *next = weft_i_lane_signature(lane, rank, lane->epoch + 1);
    next->kind = WEFT_I_ALL_GATHER; /* what it would tell of a call that it stands in */
    next->dtype = WEFT_I64;
    next->count = 4711;
    next->dims = next->block = 0;
    char text[64];
    lane->at_entry.tell(lane, text, sizeof text);
    CHECK(!strcmp(text, "all_gather of 4711 i64"));
    finish(world);
}

/* ---- entries by hand ---- */

static weft_i_lane bare;
static weft_i_lane_head *heads;

static void open_lane(weft_i_cma_way cma)
{
    hand_open();
    size_t bytes = HAND_SIZE * sizeof *heads;
    CHECK(heads = aligned_alloc(WEFT_I_LINE, bytes));
    memset(heads, 0, bytes);
    weft_i_point point = {.me = HAND_ME,
                          .size = HAND_SIZE,
                          .bells = (char *)heads + offsetof(weft_i_lane_head, bell),
                          .stride = sizeof *heads};
    bare = (weft_i_lane){.me = HAND_ME,
                         .size = HAND_SIZE,
                         .cma = cma,
                         .mode = WEFT_I_WAIT_YIELD,
                         .heads = (char *)heads,
                         .head_stride = sizeof *heads,
                         .entered = &hand.group->calls.entries,
                         .entry = point,
                         .steps = point,
                         .chain = 7,
                         .epoch = 40,
                         .settled = 40};
    weft_i_lane_make_stays(&bare);
    bare.entry.words = (char *)heads + offsetof(weft_i_lane_head, entry);
    bare.entry.passes = (char *)heads + offsetof(weft_i_lane_head, entry_pass);
    bare.entry.gave_up = (char *)heads + offsetof(weft_i_lane_head, gave_up);
    bare.entry.turn_stride = sizeof(weft_i_lane_entry);
    bare.entry.turns = WEFT_I_TURNS;
    bare.steps.words = (char *)heads + offsetof(weft_i_lane_head, step);
    bare.steps.passes = (char *)heads + offsetof(weft_i_lane_head, step_pass);
}

static void close_lane(void)
{
    free(heads);
    hand_close();
}

/* `rank` comes to an entry, calling an all_reduce of `count`. */
static void come(int rank, uint32_t epoch, uint32_t chain, uint32_t call, uint64_t count)
{
    weft_i_signature *signature = &heads[rank].signature[epoch % WEFT_I_TURNS];
    signature->kind = WEFT_I_ALL_REDUCE;
    signature->dtype = WEFT_F32;
    signature->count = count;
    atomic_store(&signature->shown, epoch);
    atomic_store(&heads[rank].entry[epoch % WEFT_I_TURNS].arrival,
                 (uint64_t)epoch << 32 | (weft_i_digest(chain, call) & ~1u));
}

static void come_all(uint32_t epoch, uint32_t chain, uint32_t call, uint64_t count)
{
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME)
            come(rank, epoch, chain, call, count);
}

static weft_status enter(int whom, uint32_t call, uint64_t count, int64_t limit_ms)
{
    weft_i_arrival arrival;
    weft_i_lane_arrive(&bare, &hand.call, whom, call, &arrival);
    CHECK(arrival.came == (arrival.signature != &arrival.unshown && arrival.status == WEFT_OK));
    weft_i_signature *mine = arrival.signature;
    mine->kind = WEFT_I_ALL_REDUCE;
    mine->dtype = WEFT_F32;
    mine->count = count;
    mine->reduction = mine->root = mine->block = mine->dims = 0;
    mine->offset = 0;
    return weft_i_lane_await(&bare, &hand.call, &arrival, limit_ms);
}

/* All have come: it goes on, counts, and knows that all have. */
TEST(test_lane_entry)
{
    open_lane(WEFT_I_CMA_KERNEL);
    come_all(41, 7, 100, 5);
    CHECK(!weft_i_lane_has_come(&bare, 0)); /* we have not */
    CHECK_OK(enter(WEFT_I_FOR_ALL, 100, 5, 0));
    CHECK(bare.epoch == 41 && bare.settled == 41 && hand.group->calls.entries == 41);
    CHECK_INT(bare.chain, weft_i_digest(7, 100));
    CHECK_INT(atomic_load(&heads[HAND_ME].signature[41 % WEFT_I_TURNS].shown), 41);
    uint64_t word = atomic_load(&heads[HAND_ME].entry[41 % WEFT_I_TURNS].arrival);
    CHECK(word == ((uint64_t)41 << 32 | (weft_i_digest(7, 100) & ~1u)));
    weft_i_arrival early;
    weft_i_lane_arrive(&bare, &hand.call, WEFT_I_FOR_NOBODY, 200, &early);
    come(0, 42, bare.chain, 200, 5), come(3, 42, bare.chain, 300, 5);
    CHECK(weft_i_lane_has_come(&bare, 0)); /* with the same call */
    CHECK(!weft_i_lane_has_come(&bare, 2) && !weft_i_lane_has_come(&bare, 3));
    /* One way: waits for one, or for nobody, and knows of no others. */
    come(2, 42, bare.chain, 100, 5);
    CHECK_OK(enter(2, 100, 5, 0));
    CHECK(bare.epoch == 42 && bare.settled == 41);
    CHECK_OK(enter(WEFT_I_FOR_NOBODY, 100, 5, 0));
    CHECK(bare.epoch == 43 && bare.settled == 41);
    CHECK_INT(atomic_load(&heads[HAND_ME].signature[43 % WEFT_I_TURNS].shown), 43);
    bare.size = bare.entry.size = bare.steps.size = 2; /* of two the other one is all */
    come(0, 44, bare.chain, 100, 5);
    CHECK_OK(enter(0, 100, 5, 0));
    CHECK(bare.epoch == 44 && bare.settled == 44);
    CHECK_OK(enter(WEFT_I_FOR_NOBODY, 100, 5, 0));
    CHECK(bare.epoch == 45 && bare.settled == 44);
    CHECK(!weft_i_group_has_ended(hand.group));
    close_lane();
}

/* Who does not come is named; nothing has happened, and it can be tried again. */
TEST(test_lane_entry_late)
{
    open_lane(WEFT_I_CMA_KERNEL);
    come(0, 41, 7, 100, 5), come(2, 41, 7, 100, 5);
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 1), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), "rank 1 of 4 in group \"g\", op: waited 1 ms for rank 3 (");
    CHECK(!strstr(weft_last_error(), "rank 4") && !strstr(weft_last_error(), "rank 0 ("));
    CHECK(bare.epoch == 40 && bare.settled == 40 && bare.chain == 7 && !hand.group->calls.entries);
    CHECK(!weft_i_group_has_ended(hand.group));
    CHECK_INT(enter(3, 100, 5, 1), WEFT_ERR_TIMEOUT); /* the same of one that waits for it alone */
    CHECK_CONTAINS(weft_last_error(), "op: waited 1 ms for rank 3 (");
    come(0, 40, 7, 100, 5); /* nor is one named that others wait for */
    CHECK_INT(enter(3, 100, 5, 1), WEFT_ERR_TIMEOUT);
    CHECK(!strstr(weft_last_error(), "rank 4") && strstr(weft_last_error(), "for rank 3 ("));
    come(0, 41, 7, 100, 5);
    CHECK_INT(atomic_load(&heads[HAND_ME].signature[41 % WEFT_I_TURNS].shown), 41);
    weft_i_arrival again; /* the signature does not count until it is filled anew */
    weft_i_lane_arrive(&bare, &hand.call, WEFT_I_FOR_ALL, 100, &again);
    CHECK_INT(atomic_load(&heads[HAND_ME].signature[41 % WEFT_I_TURNS].shown), 40);
    CHECK_INT(weft_i_lane_await(&bare, &hand.call, &again, 1), WEFT_ERR_TIMEOUT);
    weft_clear_error();
    come(3, 41, 7, 100, 5);
    CHECK_OK(enter(WEFT_I_FOR_ALL, 100, 5, 0));
    CHECK_INT(bare.epoch, 41);
    hand_kill(hand_members[3]);
    come(0, 42, bare.chain, 100, 5), come(2, 42, bare.chain, 100, 5);
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_PEER_DEAD);
    CHECK(weft_i_group_has_ended(hand.group)); /* so that all get out, with the same cause */
    CHECK_INT(hand.group->board->failure, WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    close_lane();
}

/* A rank that waits for nobody hears of a death all the same: it looks at one of the others at every
 * other entry.  Who has come to the entry owes it nothing, and may be gone. */
TEST(test_lane_entry_for_nobody)
{
    enum { MOST = 2 * (HAND_SIZE - 1) };
    for (int gone = 0; gone < HAND_SIZE; gone++) {
        if (gone == HAND_ME)
            continue;
        open_lane(WEFT_I_CMA_KERNEL);
        for (int i = 0; i < HAND_SIZE; i++)
            CHECK_OK(enter(WEFT_I_FOR_NOBODY, 100, 5, 0));
        hand_kill(hand_members[gone]);
        int entries = 0;
        while (enter(WEFT_I_FOR_NOBODY, 100, 5, 0) == WEFT_OK)
            CHECK(++entries < MOST);
        char wanted[100];
        snprintf(wanted, sizeof wanted, "in group \"g\", op: rank %d (died", hand_members[gone]);
        CHECK_INT(weft_last_status(), WEFT_ERR_PEER_DEAD);
        CHECK_CONTAINS(weft_last_error(), wanted);
        CHECK(weft_i_group_has_ended(hand.group)); /* so that all get out, with the same cause */
        CHECK_INT(hand.group->board->failure, WEFT_ERR_PEER_DEAD);
        CHECK_INT(bare.epoch, 40 + HAND_SIZE + entries);
        weft_clear_error();
        close_lane();
    }
    open_lane(WEFT_I_CMA_KERNEL);
    uint32_t chain = bare.chain;
    for (uint32_t epoch = 41; epoch < 47; epoch++) {
        come(3, epoch, chain, 100, 5);
        chain = weft_i_digest(chain, 100);
    }
    hand_leave(hand_members[3]); /* it has made all its calls */
    for (int i = 0; i < 6; i++)
        CHECK_OK(enter(WEFT_I_FOR_NOBODY, 100, 5, 0));
    weft_status status = WEFT_OK;
    for (int i = 0; i < MOST && status == WEFT_OK; i++)
        status = enter(WEFT_I_FOR_NOBODY, 100, 5, 0);
    CHECK_INT(status, WEFT_ERR_PEER_LEFT);
    CHECK_CONTAINS(weft_last_error(), "rank 3 (left the job) will not come");
    weft_clear_error();
    close_lane();
}

static const char five_and_six[] = "group \"g\", operation 41: rank 1 calls all_reduce of 5 f32, "
                                   "sum, but rank 2 calls all_reduce of 6 f32, sum";

/* The first rank that calls something else is named, with both calls. */
TEST(test_lane_mismatch)
{
    open_lane(WEFT_I_CMA_KERNEL);
    come_all(41, 7, 100, 5);
    come(2, 41, 7, 102, 6);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH, five_and_six);
    CHECK(weft_i_group_has_ended(hand.group) && bare.epoch == 40 && bare.chain == 7);
    CHECK_INT(hand.group->board->failure, WEFT_ERR_MISMATCH);
    CHECK(hand.group->board->quarrel == 2); /* for who cannot see it any more */
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL);
    come_all(41, 7, 102, 6);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH,
              "group \"g\", operation 41: rank 1 calls all_reduce of 5 f32, sum, but rank 0 calls "
              "all_reduce of 6 f32, sum");
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* it was told before, by who could see it */
    weft_i_quarrel_tell(hand.group, "one thing", 3, "another");
    come_all(41, 7, 102, 5);
    hand.group->board->revoked = 0; /* a moment before that is seen */
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH);
    CHECK(!strstr(weft_last_error(), "choose"));
    weft_clear_error();
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* different digests, but no different calls: settings differ */
    come_all(41, 7, 100, 5);
    come(2, 41, 7, 102, 5);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH,
              "group \"g\", operation 41: rank 1 calls all_reduce of 5 f32, sum; the ranks choose "
              "different algorithms (weft/tune.h), or others call something else");
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* a lost group is the rank's loss, whoever asks for it */
    come_all(41, 7, 102, 5);
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH);
    CHECK_INT(hand.world->losses.first, WEFT_ERR_MISMATCH);
    weft_clear_error();
    close_lane();
}

/* Of a rank that has gone on from the call in question, both calls are told too: one entry back, or
 * as far as entries are kept. */
TEST(test_lane_mismatch_before)
{
    for (uint32_t back = 1; back <= WEFT_I_TURNS - 2; back += WEFT_I_TURNS - 3) {
        char expected[200];
        open_lane(WEFT_I_CMA_KERNEL);
        bare.settled = 41 - back;
        come(HAND_ME, 41 - back, 7, 100, 5);
        come_all(41 - back, 7, 100, 5);
        come(3, 41 - back, 7, 102, 6);
        come_all(41, 7, 104, 5);
        snprintf(
            expected, sizeof expected,
            "group \"g\", operation %u: rank 1 calls all_reduce of 5 f32, sum, but rank 3 calls "
            "all_reduce of 6 f32, sum",
            41 - back);
        hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH, expected);
        close_lane();
    }
}

static int pauses;

static void show_rank_0(void)
{
    if (++pauses == 3)
        atomic_store(&heads[0].signature[41 % WEFT_I_TURNS].shown, 41);
}

/* A signature that has not been shown is waited for; not that of a rank that died before it. */
TEST(test_lane_mismatch_unshown)
{
    open_lane(WEFT_I_CMA_KERNEL);
    come_all(41, 7, 102, 6);
    atomic_store(&heads[0].signature[41 % WEFT_I_TURNS].shown, 40);
    hand_kill(hand_members[0]);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH, five_and_six);
    close_lane();
    static weft_i_os table;
    open_lane(WEFT_I_CMA_KERNEL); /* a moment later it is there */
    come_all(41, 7, 102, 6);
    atomic_store(&heads[0].signature[41 % WEFT_I_TURNS].shown, 40);
    table = weft_i_os_linux;
    table.yield = show_rank_0;
    weft_i_os_now = &table;
    pauses = 0;
    weft_status status = enter(WEFT_I_FOR_ALL, 100, 5, 20000);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(status, WEFT_ERR_MISMATCH);
    CHECK_CONTAINS(weft_last_error(), "but rank 0 calls all_reduce of 6 f32");
    weft_clear_error();
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* it has gone on: that one is of another entry */
    come_all(41, 7, 102, 6);
    atomic_store(&heads[0].signature[41 % WEFT_I_TURNS].shown, 41 + WEFT_I_TURNS);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH, five_and_six);
    close_lane();
}

/* A rank that comes after the mismatch was found is told as well, and shows nothing any more. */
TEST(test_lane_mismatch_late)
{
    open_lane(WEFT_I_CMA_KERNEL);
    come_all(41, 7, 100, 5);
    come(2, 41, 7, 102, 6);
    weft_i_group_spoil(hand.group, WEFT_ERR_MISMATCH);
    hand_said(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH, five_and_six);
    CHECK(!atomic_load(&heads[HAND_ME].entry[41 % WEFT_I_TURNS].arrival));
    CHECK(!atomic_load(&heads[HAND_ME].signature[41 % WEFT_I_TURNS].shown));
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* or with what is known of it */
    come_all(41, 7, 100, 5);
    weft_i_group_spoil(hand.group, WEFT_ERR_MISMATCH);
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_MISMATCH);
    CHECK(!strstr(weft_last_error(), "choose"));
    weft_clear_error();
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL); /* of any other end, that */
    come_all(41, 7, 100, 5);
    come(2, 41, 7, 102, 6);
    weft_i_group_spoil(hand.group, WEFT_OK);
    CHECK_INT(enter(WEFT_I_FOR_ALL, 100, 5, 20000), WEFT_ERR_REVOKED);
    CHECK(!strstr(weft_last_error(), "calls"));
    close_lane();
}

/* ---- room ---- */

/* Room for `turns` entries is there when all have entered the one that was written over; what it
 * finds out on the way counts. */
TEST(test_lane_room)
{
    for (uint32_t turns = 4; turns <= WEFT_I_TURNS; turns += WEFT_I_TURNS - 4) {
        uint32_t needed = 41 - (turns - 1);
        open_lane(WEFT_I_CMA_KERNEL);
        bare.settled = 40 - WEFT_I_TURNS + 1;
        CHECK(!weft_i_lane_has_room(&bare, turns));
        for (uint32_t epoch = needed; epoch <= 40; epoch++)
            come(HAND_ME, epoch, 7, 100, 5);
        come(0, needed, 7, 100, 5), come(2, needed, 7, 100, 5);
        CHECK_INT(weft_i_lane_make_room(&bare, &hand.call, turns, 1), WEFT_ERR_TIMEOUT);
        CHECK_CONTAINS(weft_last_error(), "rank 3 (");
        CHECK_INT(bare.settled, 40 - WEFT_I_TURNS + 1);
        weft_clear_error();
        come(3, needed, 7, 100, 5);
        CHECK_OK(weft_i_lane_make_room(&bare, &hand.call, turns, 0));
        CHECK(bare.settled == needed && weft_i_lane_has_room(&bare, turns));
        come_all(needed + 1, 7, 100, 5);
        come_all(needed + 2, 7, 100, 5);
        CHECK_OK(weft_i_lane_make_room(&bare, &hand.call, turns, 0));
        CHECK_INT(bare.settled, needed + 2);
        CHECK(!weft_i_group_has_ended(hand.group));
        close_lane();
    }
}

/* Ranks that waited for nobody compare what they called at the oldest entry that counts. */
TEST(test_lane_room_of_another_call)
{
    uint32_t needed = 41 - (WEFT_I_TURNS - 1);
    for (int round = 0; round < 2; round++) {
        open_lane(WEFT_I_CMA_KERNEL);
        bare.settled = 40 - WEFT_I_TURNS + 1;
        for (uint32_t epoch = needed; epoch <= 40; epoch++)
            come(HAND_ME, epoch, 7, 100, 5);
        come_all(needed, 7, 100, 5);
        /* The second time it is a whole turn ahead, and has nothing to say about that entry. */
        come(3, needed + (round ? WEFT_I_TURNS : 0), 9, 102, 6);
        CHECK_INT(weft_i_lane_make_room(&bare, &hand.call, WEFT_I_TURNS, 0),
                  round ? WEFT_OK : WEFT_ERR_MISMATCH);
        CHECK_INT(weft_i_group_has_ended(hand.group), !round);
        if (!round)
            CHECK_CONTAINS(weft_last_error(), "but rank 3 calls");
        weft_clear_error();
        close_lane();
    }
}

TEST(test_lane_room_of_the_dead)
{
    open_lane(WEFT_I_CMA_KERNEL);
    bare.settled = 40 - WEFT_I_TURNS + 1;
    hand_kill(hand_members[3]);
    CHECK_INT(weft_i_lane_make_room(&bare, &hand.call, WEFT_I_TURNS, 20000), WEFT_ERR_PEER_DEAD);
    CHECK(weft_i_group_has_ended(hand.group) && hand.group->board->failure == WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    close_lane();
}

/* ---- who is missing ---- */

static const char *missing(void)
{
    static char names[1400];
    memset(names, 'x', sizeof names);
    bool any = weft_i_lane_name_missing(&bare, hand.group, names, sizeof names);
    CHECK(any == (names[0] != 0));
    return names;
}

/* At the newest entry that this rank has come to, whatever turn that is, or at a sync in it. */
TEST(test_lane_missing)
{
    open_lane(WEFT_I_CMA_KERNEL);
    for (uint32_t epoch = 33; epoch <= 48; epoch++) {
        come(HAND_ME, epoch, 7, 100, 5);
        CHECK_CONTAINS(missing(), "rank 4 (");
        CHECK_CONTAINS(missing(), "rank 0 (");
        CHECK_CONTAINS(missing(), "rank 3 (");
        CHECK(!strstr(missing(), "rank 1 ("));
        come(0, epoch, 7, 100, 5), come(3, epoch + WEFT_I_TURNS, 7, 100, 5); /* has gone on */
        CHECK(!strncmp(missing(), "rank 0 (", 8) && !strstr(missing(), "rank 3 ("));
        come(2, epoch, 7, 100, 5);
        CHECK(!missing()[0]);
    }
    atomic_store(&heads[HAND_ME].step, (uint64_t)9 << 32);
    atomic_store(&heads[0].step, (uint64_t)9 << 32);
    atomic_store(&heads[2].step, (uint64_t)10 << 32);
    CHECK(!strncmp(missing(), "rank 3 (", 8) && !strstr(missing(), "rank 0 ("));
    close_lane();
}

/* ---- syncs ---- */

static void step_all(uint32_t epoch, int but)
{
    uint32_t digest = (uint32_t)atomic_load(&heads[HAND_ME].step);
    for (int rank = 0; rank < HAND_SIZE; rank++)
        if (rank != HAND_ME && rank != but)
            atomic_store(&heads[rank].step, (uint64_t)epoch << 32 | digest);
}

/* A sync that fails leaves the others in the middle: the group has ended, with the cause or without
 * one. */
TEST(test_lane_sync)
{
    open_lane(WEFT_I_CMA_KERNEL);
    step_all(2, -1); /* they are ahead: whatever they say is later */
    CHECK_OK(weft_i_lane_sync(&bare, &hand.call, 0));
    CHECK(bare.syncs == 1 && !atomic_load(&heads[HAND_ME].syncs)); /* threads alone count */
    CHECK_INT(atomic_load(&heads[HAND_ME].step) >> 32, 1);
    step_all(3, -1);
    CHECK_OK(weft_i_lane_sync(&bare, &hand.call, 0));
    CHECK(bare.syncs == 2 && !weft_i_group_has_ended(hand.group));
    CHECK_INT(weft_i_lane_sync(&bare, &hand.call, 1) < 0 ? 0 : 1, 1); /* they are at 3 */
    CHECK_INT(weft_i_lane_sync(&bare, &hand.call, 1), WEFT_ERR_TIMEOUT);
    CHECK(weft_i_group_has_ended(hand.group) && !hand.group->board->failure);
    weft_clear_error();
    close_lane();
    open_lane(WEFT_I_CMA_KERNEL);
    hand_kill(hand_members[2]);
    CHECK_INT(weft_i_lane_sync(&bare, &hand.call, 20000), WEFT_ERR_PEER_DEAD);
    CHECK(weft_i_group_has_ended(hand.group));
    CHECK_INT(hand.group->board->failure, WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    close_lane();
}

/* Rank 0 comes after a while; rank 3, which has died, never. */
static void let_rank_0_out(void)
{
    if (++pauses == 5)
        atomic_store(&heads[0].syncs, 1);
}

/* Threads copy from each other's tensors: who breaks off waits until all have come, or died. */
TEST(test_lane_sync_of_threads)
{
    static weft_i_os table;
    open_lane(WEFT_I_CMA_THREADS);
    step_all(2, -1);
    CHECK_OK(weft_i_lane_sync(&bare, &hand.call, 0));
    CHECK_INT(atomic_load(&heads[HAND_ME].syncs), 1);
    close_lane();
    open_lane(WEFT_I_CMA_THREADS);
    hand_kill(hand_members[3]);
    atomic_store(&heads[2].syncs, 2);
    pauses = 0;
    table = weft_i_os_linux;
    table.yield = let_rank_0_out;
    weft_i_os_now = &table;
    weft_status status = weft_i_lane_sync(&bare, &hand.call, 20000);
    weft_i_os_now = &weft_i_os_linux;
    CHECK_INT(status, WEFT_ERR_PEER_DEAD);
    CHECK(pauses >= 5);
    weft_clear_error();
    close_lane();
}

int main(int argc, char **argv)
{
    setenv("WEFT_DEBUG", "NONE", 0);
    return harness_main(argc, argv);
}
