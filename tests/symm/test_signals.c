/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/signals.c, symm/put.c */
/*
 * Barriers, signals and resets on signal pads by hand: which word of which rank is read, written or
 * taken, who is woken, and how each of them ends, with the whole message.
 */
#include "group_by_hand.h"

#include "symm/registration.h"

enum { RANKS = HAND_SIZE, ME = HAND_ME, CHANNELS = 3, PAD_AT = 640, STRIDE = 1024 };

static weft_i_segment segment;
static weft_i_registration registration;
static weft_i_block block;
static weft_symm mem;
static _Alignas(128) char memory[RANKS * STRIDE];

static void open_pads(void)
{
    hand_open();
    memset(memory, 0, sizeof memory);
    segment = (weft_i_segment){.base = memory, .bytes = sizeof memory};
    block = (weft_i_block){.device = WEFT_CPU};
    registration = (weft_i_registration){.size = RANKS,
                                         .pads = {.segment = &segment,
                                                  .channels = CHANNELS,
                                                  .pad_bytes = 48,
                                                  .words_at = 128,
                                                  .passes_at = 384,
                                                  .pad_at = PAD_AT,
                                                  .stride = STRIDE}};
    mem = (weft_symm){.group = hand.group, .block = &block, .registration = &registration};
    hand.group->timeout_ms = 20000;
}

static _Atomic uint64_t *word(int rank, size_t at)
{
    return (_Atomic uint64_t *)(void *)(memory + rank * STRIDE + at);
}

/* The semaphore that `from` puts and `to` takes. */
static _Atomic uint32_t *box(int to, int from, int channel)
{
    return (_Atomic uint32_t *)(void *)(memory + to * STRIDE + PAD_AT) + channel * RANKS + from;
}

static _Atomic uint32_t *bell(int rank)
{
    return (_Atomic uint32_t *)(void *)(memory + rank * STRIDE);
}

/* All words but those given are 0. */
static void only(const volatile void *const *set, int count)
{
    for (size_t at = 0; at < sizeof memory; at += 4) {
        bool given = false;
        for (int i = 0; i < count; i++)
            given |= memory + at == (const volatile char *)set[i] ||
                     memory + at == (const volatile char *)set[i] + 4;
        if (!given && *(uint32_t *)(void *)(memory + at))
            FAIL("the word at %zu is %u", at, *(uint32_t *)(void *)(memory + at));
    }
}

TEST(test_pads_barrier)
{
    open_pads();
    for (int channel = 0; channel < CHANNELS; channel++) {
        size_t at = 128 + (size_t)channel * 8, pass = 384 + (size_t)channel * 8;
        memset(memory, 0, sizeof memory);
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                *word(rank, at) = (uint64_t)2 << 32; /* they are ahead */
        CHECK_OK(weft_symm_barrier(&mem, channel, WEFT_DEFAULT));
        CHECK(*word(ME, at) >> 32 == 1 && *word(ME, pass));
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME) /* and call the same */
                *word(rank, at) |= *word(ME, at) & UINT32_MAX;
        CHECK_OK(weft_symm_barrier(&mem, channel, WEFT_DEFAULT));
        CHECK_INT(*word(ME, at) >> 32, 2);
        const volatile void *set[] = {word(0, at), word(1, at), word(2, at), word(3, at),
                                      word(ME, pass)};
        only(set, 5);
        uint64_t mine = *word(ME, at);
        CHECK_INT(weft_symm_barrier(&mem, channel, 1), WEFT_ERR_TIMEOUT); /* for the third */
        CHECK_INT(*word(ME, at), mine);
        CHECK_INT(*word(ME, 8) & 0xffff, channel); /* that it gave up, and where */
        CHECK(*word(ME, 8) >> 16 != 0);
        char text[80];
        snprintf(text, sizeof text,
                 "rank 1 of 4 in group \"g\", barrier on channel %d: waited 1 ms", channel);
        CHECK(!strncmp(weft_last_error(), text, strlen(text)));
        for (int rank = 0; rank < RANKS; rank++) /* somebody calls something else here */
            if (rank != ME)
                *word(rank, at) = (uint64_t)3 << 32 | (rank == 2 ? 8 : mine & UINT32_MAX);
        CHECK_INT(weft_symm_barrier(&mem, channel, 20000), WEFT_ERR_MISMATCH);
        snprintf(text, sizeof text,
                 "rank 1 of 4 in group \"g\", barrier on channel %d: another rank called something",
                 channel);
        CHECK(!strncmp(weft_last_error(), text, strlen(text)));
        weft_clear_error();
    }
    hand_close();
}

/* A signal is put into the word of the taker, and taken from one's own; the other one is woken. */
TEST(test_pads_signals)
{
    open_pads();
    for (int rank = 0; rank < RANKS; rank++)
        for (int channel = 0; channel < CHANNELS; channel++) {
            memset(memory, 0, sizeof memory);
            for (int i = 0; i < RANKS; i++)
                *bell(i) = 1; /* all sleep */
            CHECK_OK(weft_symm_put_signal(&mem, rank, channel, 0));
            CHECK_INT(*box(rank, ME, channel), 1);
            for (int i = 0; i < RANKS; i++)
                CHECK_INT(*bell(i), i != rank || i == ME); /* only the one whom it concerns */
            memset(memory, 0, STRIDE);
            for (int i = 0; i < RANKS; i++)
                *bell(i) = 0;
            if (rank)
                only((const volatile void *[]){box(rank, ME, channel)}, 1);
            memset(memory, 0, sizeof memory);
            *box(ME, rank, channel) = 1;
            *bell(rank) = 1;
            CHECK_OK(weft_symm_wait_signal(&mem, rank, channel, 0));
            CHECK_INT(*bell(rank), rank == ME);
            *bell(rank) = 0;
            only(NULL, 0);
        }
    hand_close();
}

TEST(test_pads_signals_late)
{
    open_pads();
    char text[800], who[640];
    *box(2, ME, 1) = 1; /* it has not taken the last one */
    hand_said(weft_symm_put_signal(&mem, 2, 1, 0), WEFT_ERR_TIMEOUT,
              "put_signal on channel 1: not yet: rank 0 has to take its last signal");
    hand_said(weft_symm_wait_signal(&mem, 3, 2, 0), WEFT_ERR_TIMEOUT,
              "wait_signal on channel 2: not yet: rank 3 has to signal");
    weft_i_world_describe(hand.world, hand_members[2], who, sizeof who);
    snprintf(text, sizeof text,
             "rank 1 of 4 in group \"g\", put_signal on channel 1: waited 1 ms for %s to take its "
             "last signal",
             who);
    hand_said(weft_symm_put_signal(&mem, 2, 1, 1), WEFT_ERR_TIMEOUT, text);
    weft_i_world_describe(hand.world, hand_members[3], who, sizeof who);
    snprintf(text, sizeof text,
             "rank 1 of 4 in group \"g\", wait_signal on channel 2: waited 1 ms for %s to signal",
             who);
    hand_said(weft_symm_wait_signal(&mem, 3, 2, 1), WEFT_ERR_TIMEOUT, text);
    CHECK(*box(2, ME, 1) == 1 && *box(ME, 3, 2) == 0);
    hand_kill(hand_members[3]);
    CHECK_INT(weft_symm_wait_signal(&mem, 3, 2, WEFT_FOREVER), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "wait_signal on channel 2: rank 3 (died");
    weft_clear_error();
    *box(ME, 3, 2) = 1; /* what it had signalled counts */
    CHECK_OK(weft_symm_wait_signal(&mem, 3, 2, WEFT_FOREVER));
    hand_close();
}

/* The copy comes before the signal, also where that has to wait. */
TEST(test_pads_copy_and_signal)
{
    open_pads();
    char from[9] = "12345678", to[9] = "........";
    weft_i_copy what = {to + 1, from, 3, 0};
    CHECK_OK(weft_i_symm_copy_and_signal(&mem, 3, 1, &what, 0));
    CHECK(!strcmp(to, ".123....") && *box(3, ME, 1) == 1);
    what = (weft_i_copy){to + 4, from + 4, 2, 0};
    hand_said(weft_i_symm_copy_and_signal(&mem, 3, 1, &what, 0), WEFT_ERR_TIMEOUT,
              "put_with_signal on channel 1: not yet: rank 3 has to take its last signal");
    CHECK(!strcmp(to, ".12356.."));
    what = (weft_i_copy){NULL, NULL, 0, 0};
    CHECK_OK(weft_i_symm_copy_and_signal(&mem, 2, 0, &what, 0));
    CHECK_INT(*box(2, ME, 0), 1);
    hand_close();
}

TEST(test_pads_refusals)
{
    open_pads();
    hand_said(weft_symm_barrier(NULL, 0, 1), WEFT_ERR_INVALID_ARG,
              "weft_symm_barrier: the handle is NULL");
    hand_said(weft_symm_barrier(&mem, -1, 1), WEFT_ERR_INVALID_ARG,
              "weft_symm_barrier: channel -1 exceeds the maximum supported channel: must be in [0, "
              "3) for a pad of 48 bytes and 4 ranks");
    hand_said(weft_symm_put_signal(&mem, 0, 3, 1), WEFT_ERR_INVALID_ARG,
              "weft_symm_put_signal: channel 3 exceeds the maximum supported channel: must be in "
              "[0, 3) for a pad of 48 bytes and 4 ranks");
    hand_said(weft_symm_put_signal(&mem, 4, 0, 1), WEFT_ERR_INVALID_ARG,
              "weft_symm_put_signal: rank 4 must be in [0, 4)");
    hand_said(weft_symm_wait_signal(&mem, -1, 0, 1), WEFT_ERR_INVALID_ARG,
              "weft_symm_wait_signal: rank -1 must be in [0, 4)");
    weft_i_group_spoil(hand.group, WEFT_OK);
    CHECK_INT(weft_symm_put_signal(&mem, 2, 0, 0), WEFT_ERR_REVOKED);
    CHECK_INT(*box(2, ME, 0), 0);
    weft_clear_error();
    hand_close();
}

/* ---- resets of memory on a device ---- */

static weft_status awaits, resets, says;
static int awaited, reset_count;
static int64_t await_limit;
static uint32_t epoch_at_reset;

static weft_status await_work(void *joined, int64_t limit_ms)
{
    CHECK(joined == &awaited);
    awaited++;
    await_limit = limit_ms;
    return awaits < 0 ? weft_i_fail(awaits, "work") : awaits;
}

static weft_status reset_pads(void *joined)
{
    CHECK(joined == &awaited);
    reset_count++;
    epoch_at_reset = weft_i_arrival_epoch(hand.row[ME].arrival);
    if (says < 0) /* the others do not come to the second meeting */
        for (int rank = 0; rank < RANKS; rank++)
            if (rank != ME)
                hand.row[rank].arrival = hand.row[ME].arrival;
    return resets < 0 ? weft_i_fail(resets, "pads") : resets;
}

static weft_status reset(weft_status a, weft_status r, weft_status s)
{
    awaits = a, resets = r, says = s;
    awaited = reset_count = 0;
    for (int rank = 0; rank < RANKS; rank++)
        if (rank != ME)
            hand.row[rank].arrival = (uint64_t)1000 << 32;
    hand.group->board->revoked = 0;
    return weft_symm_reset(&mem, s < 0 ? 1 : 5000);
}

/* Nobody clears before all have come, and nobody goes on before all have cleared. */
TEST(test_pads_reset)
{
    static const weft_i_device_memory on_device = {.await = await_work, .reset = reset_pads};
    open_pads();
    int channels = registration.pads.channels;
    registration.pads.channels = 1;             /* it needs none of them */
    CHECK_OK(reset(WEFT_OK, WEFT_OK, WEFT_OK)); /* on the host all meet, and that is all */
    registration.pads.channels = channels;
    CHECK(!awaited && !reset_count && weft_i_arrival_epoch(hand.row[ME].arrival) == 1);
    registration.memory = &on_device;
    registration.joined = &awaited;
    CHECK_OK(reset(WEFT_OK, WEFT_OK, WEFT_OK));
    CHECK(awaited == 1 && reset_count == 1 && epoch_at_reset == 2 && await_limit == 5000);
    CHECK_INT(weft_i_arrival_epoch(hand.row[ME].arrival), 3);
    hand_said(reset(WEFT_ERR_DEVICE, WEFT_OK, WEFT_OK), WEFT_ERR_DEVICE, "work");
    CHECK(reset_count == 0 && weft_i_arrival_epoch(hand.row[ME].arrival) == 3);
    hand_said(reset(WEFT_OK, WEFT_ERR_IO, WEFT_OK), WEFT_ERR_IO, "pads"); /* they are told all */
    CHECK_INT(weft_i_arrival_epoch(hand.row[ME].arrival), 5);
    CHECK_INT(reset(WEFT_OK, WEFT_OK, WEFT_ERR_TIMEOUT), WEFT_ERR_TIMEOUT);
    CHECK_INT(reset_count, 1);
    CHECK_CONTAINS(weft_last_error(), "reset: waited");
    weft_clear_error();
    hand_said(reset(WEFT_OK, WEFT_ERR_IO, WEFT_ERR_TIMEOUT), WEFT_ERR_IO, "pads");
    hand_close();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
