/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: symm/registration.c, symm/handle.c, symm/workspace.c */
/*
 * A rendezvous by hand: the other members are notes on the board and segments in a server that all
 * share, so that this rank registers its block alone.  What it concludes from what they bring, what
 * it maps, and every way in which it ends, with the whole message.
 */
#include "group_by_hand.h"

#include "fault.h"
#include "symm/registration.h"
#include "symm/workspace.h"

enum { RANKS = HAND_SIZE, ME = HAND_ME, BYTES = 5000, PAD = 1000 };

/* What a member brings, as registration.c has it, as far as it is looked at here. */
typedef struct brought {
    weft_i_key key;
    uint64_t bytes, pad_bytes, offset;
    int32_t status;
    uint32_t serial;
    char backend[12];
} brought;

static weft_i_block *block;
static weft_i_segment *theirs[RANKS], *pads;

static size_t lines(size_t bytes)
{
    return (bytes + 127) / 128 * 128;
}

/* A pad of 1,000 bytes has 62 channels of 4 ranks. */
static size_t pads_stride(size_t pad_bytes)
{
    size_t words = lines(pad_bytes / 4 / RANKS * sizeof(uint64_t));
    return 128 + 2 * words + lines(pad_bytes);
}

static uint32_t next_epoch(void)
{
    return weft_i_arrival_epoch(hand.row[ME].arrival) + 1;
}

static brought *note(int rank, uint32_t epoch)
{
    return (brought *)(void *)hand.row[rank].note[epoch & 1];
}

/* What the others will have said when we come, all alike, each with a key of its own. */
static void bring(size_t pad_bytes)
{
    for (int rank = 0; rank < RANKS; rank++) {
        brought *it = note(rank, next_epoch());
        memset(it, 0, WEFT_I_NOTE_BYTES);
        memset(note(rank, next_epoch() + 1), 0, WEFT_I_NOTE_BYTES); /* how it went: well */
        if (rank == ME)
            continue;
        *it = (brought){.key = theirs[rank]->key,
                        .bytes = BYTES,
                        .pad_bytes = pad_bytes,
                        .offset = 64,
                        .serial = 1};
        snprintf(it->backend, sizeof it->backend, "%s", block->backend->name);
        hand.row[rank].arrival = (uint64_t)1000 << 32;
    }
}

static void open_all(size_t pad_bytes)
{
    hand_open();
    hand.world->sharing = WEFT_I_BETWEEN_THREADS;
    weft_i_fdpass_drop(hand.world->fdpass);
    CHECK_OK(weft_i_fdpass_open(WEFT_I_BETWEEN_THREADS, &hand.world->fdpass));
    hand.group->timeout_ms = 20000;
    CHECK_OK(weft_i_block_new(WEFT_CPU, BYTES, NULL, &block));
    block->pad_bytes = pad_bytes;
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_OK(weft_i_segment_new(BYTES, WEFT_I_BETWEEN_THREADS, "a block", &theirs[rank]));
        if (rank != ME)
            CHECK_OK(weft_i_fdpass_publish(hand.world->fdpass, theirs[rank]->key, theirs[rank],
                                           WEFT_OK));
    }
    CHECK_OK(
        weft_i_segment_new(RANKS * pads_stride(pad_bytes), WEFT_I_BETWEEN_THREADS, "pads", &pads));
    weft_i_key key = weft_i_key_of(hand.group->key, &theirs[0]->key, sizeof theirs[0]->key);
    CHECK_OK(weft_i_fdpass_publish(hand.world->fdpass, key, pads, WEFT_OK));
    bring(pad_bytes);
}

static void close_all(void)
{
    weft_i_block_drop(block);
    for (int rank = 0; rank < RANKS; rank++)
        weft_i_segment_drop(theirs[rank]);
    weft_i_segment_drop(pads);
    hand_close();
}

static weft_status meet(weft_i_registration **out)
{
    weft_clear_error();
    return weft_i_registration_new(block, 64, hand.group, WEFT_OK, out);
}

/* A rendezvous that fails so, leaves nothing offered, and does not trouble the next one. */
static void fails(weft_status status, const char *message)
{
    weft_i_registration *none = NULL;
    hand_said(meet(&none), status, message);
    CHECK(!none && !block->published && block->references == 1);
    CHECK_INT(block->segment->references, 1);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_INT(theirs[rank]->references, rank == ME ? 1 : 2);
    bring(PAD);
}

TEST(test_registration_made)
{
    static const size_t pad_sizes[] = {16, 20, 64, 1000, 4096, 8200};
    for (size_t i = 0; i < sizeof pad_sizes / sizeof *pad_sizes; i++) {
        size_t pad = pad_sizes[i], channels = pad / 4 / RANKS, words = lines(8 * channels);
        weft_i_registration *made = NULL;
        open_all(pad);
        hand.group->rest.registrations = 4;
        note(3, 1)->serial = 9;
        CHECK_OK(meet(&made));
        CHECK(made && made->serial == 9 && hand.group->rest.registrations == 9); /* the highest */
        CHECK(made->size == RANKS && weft_i_key_equal(made->group, hand.group->key));
        CHECK(made->references == 1 && !made->memory && !made->joined && !made->next);
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(made->blocks[rank]->base ==
                  (rank == ME ? block->segment->base : theirs[rank]->base));
        CHECK(made->pads.segment->base == pads->base && made->pads.pad_bytes == pad);
        CHECK_INT(made->pads.channels, channels);
        CHECK(made->pads.words_at == 128 && made->pads.passes_at == 128 + words);
        CHECK(made->pads.pad_at == 128 + 2 * words && made->pads.stride == pads_stride(pad));
        CHECK_INT(note(ME, 1)->serial, 5); /* one more than there were */
        CHECK_INT(note(ME, 1)->offset, 64);
        CHECK(note(ME, 1)->bytes == BYTES && note(ME, 1)->pad_bytes == pad);
        CHECK(weft_i_key_equal(note(ME, 1)->key, block->segment->key));
        CHECK(!block->published && hand.row[ME].fetches == 0);
        CHECK(weft_i_registration_hold(made) == made && made->references == 2);
        weft_i_registration_drop(made);
        weft_i_registration_drop(made);
        CHECK(block->segment->references == 1 && pads->references == 2);
        close_all();
    }
}

/* What is cached with a block is found by its group. */
TEST(test_registration_found)
{
    open_all(PAD);
    weft_i_registration *made = NULL;
    CHECK_OK(meet(&made));
    CHECK(!weft_i_registration_find(block, hand.group));
    weft_i_registration other = {.group = hand.above->key, .next = made, .references = 5};
    hand.above->key.word[0]++; /* of neither */
    block->registrations = &other;
    other.group.word[0] += 7;
    CHECK(weft_i_registration_find(block, hand.group) == made);
    CHECK(!weft_i_registration_find(block, hand.above));
    CHECK(weft_i_registration_of(block, hand.group) == made && made->references == 2);
    CHECK(!weft_i_registration_of(block, hand.above));
    block->registrations = NULL;
    weft_i_registration_drop(made);
    weft_i_registration_drop_all(made);
    weft_i_registration_drop(NULL);
    close_all();
}

static const char *table(const char *of_2)
{
    static char text[800];
    snprintf(text, sizeof text,
             "rendezvous in group \"g\": the ranks bring different memory. rank 0: 5000 bytes at "
             "offset 64, pad of 1000, backend %s; rank 1: 5000 bytes at offset 64, pad of 1000, "
             "backend %s; rank 2: %s; rank 3: 5000 bytes at offset 64, pad of 1000, backend %s",
             block->backend->name, block->backend->name, of_2, block->backend->name);
    return text;
}

/* All must bring the same, and be able to. */
TEST(test_registration_compared)
{
    char of_2[200], text[800];
    open_all(PAD);
    const char *name = block->backend->name;
    for (int i = 0; i < 3; i++) {
        brought *it = note(2, next_epoch());
        it->bytes += i == 0;
        it->offset -= i == 1;
        it->pad_bytes += i == 2 ? 8 : 0;
        snprintf(of_2, sizeof of_2, "%llu bytes at offset %llu, pad of %llu, backend %s",
                 (unsigned long long)it->bytes, (unsigned long long)it->offset,
                 (unsigned long long)it->pad_bytes, name);
        fails(WEFT_ERR_MISMATCH, table(of_2));
    }
    strcpy(note(2, next_epoch())->backend, "other");
    fails(WEFT_ERR_MISMATCH, table("5000 bytes at offset 64, pad of 1000, backend other"));
    note(2, next_epoch())->status = WEFT_ERR_NO_SPACE;
    snprintf(text, sizeof text,
             "rendezvous in group \"g\": a rank cannot take part. rank 0: 5000 bytes at offset 64, "
             "pad of 1000, backend %s; rank 1: 5000 bytes at offset 64, pad of 1000, backend %s; "
             "rank 2: %s; rank 3: 5000 bytes at offset 64, pad of 1000, backend %s",
             name, name, weft_strerror(WEFT_ERR_NO_SPACE), name);
    fails(WEFT_ERR_NO_SPACE, text);
    weft_i_registration *made = NULL;
    CHECK_OK(meet(&made)); /* none of that troubles the next */
    weft_i_registration_drop(made);
    close_all();
    open_all(12); /* less than a word for each */
    fails(WEFT_ERR_INVALID_ARG,
          "rendezvous: a signal pad of 12 bytes has no channel for 4 ranks; see "
          "weft_symm_set_signal_pad_size");
    close_all();
}

/* Memory that differs is a loss of the rank: weft_finish will tell of it, whoever has seen it. */
TEST(test_registration_compared_is_a_loss)
{
    char first[WEFT_I_MESSAGE_BYTES];
    weft_i_registration *none = NULL;
    open_all(PAD);
    note(2, next_epoch())->bytes++;
    CHECK_INT(meet(&none), WEFT_ERR_MISMATCH);
    CHECK_INT(weft_i_losses_first(&hand.world->losses, first), WEFT_ERR_MISMATCH);
    CHECK(!strcmp(first, weft_last_error()) && *first);
    weft_clear_error();
    CHECK_INT(weft_i_losses_first(&hand.world->losses, first), WEFT_OK);
    close_all();
}

/* ---- many ranks ---- */

enum { MANY = 40, LAST_ROW_AT = 1480 }; /* where the last row of a table may not begin any more */

/* Makes the number longer by up to `more` digits; how many are left. */
static int widen(uint64_t *number, int more)
{
    for (; more > 0 && *number < UINT64_MAX / 20; more--)
        *number *= 10;
    return more;
}

static int row_bytes(int rank)
{
    return snprintf(NULL, 0, "%s rank %d: 5000 bytes at offset 64, pad of 1000, backend %s",
                    rank ? ";" : "", rank, block->backend->name);
}

/* What 40 members bring, so that the row of rank `last` begins at that byte of the table. */
static void bring_many(const weft_group *many, int begin, int *last)
{
    int used = 0;
    for (*last = 0; used + row_bytes(*last) <= begin; ++*last)
        used += row_bytes(*last);
    for (int rank = 0, more = begin - used; rank < MANY; rank++) {
        brought *it = (brought *)(void *)many->board->row[rank].note[1];
        *it = (brought){.bytes = BYTES, .pad_bytes = PAD, .offset = 64, .serial = 1};
        snprintf(it->backend, sizeof it->backend, "%s", block->backend->name);
        if (rank != ME)
            many->board->row[rank].arrival = (uint64_t)1000 << 32;
        if (rank > ME)
            more = widen(&it->bytes, widen(&it->offset, widen(&it->pad_bytes, more)));
        CHECK(rank < *last || !more);
    }
}

/* A table has as many rows as there is room for, and no part of another. */
TEST(test_registration_compared_by_many)
{
    int members[MANY], last;
    char row[32];
    open_all(PAD);
    for (int rank = 0; rank < MANY; rank++)
        members[rank] = rank % HAND_WORLD;
    for (int at = LAST_ROW_AT - 1; at <= LAST_ROW_AT; at++) {
        weft_i_registration *none = NULL;
        weft_group *many = hand_group(MANY, members, "many");
        many->timeout_ms = 20000;
        bring_many(many, at, &last);
        CHECK_INT(weft_i_registration_new(block, 64, many, WEFT_OK, &none), WEFT_ERR_MISMATCH);
        snprintf(row, sizeof row, "; rank %d: 5000 ", last - 1);
        CHECK_CONTAINS(weft_last_error(), row);
        snprintf(row, sizeof row, "; rank %d: 5000 ", last);
        CHECK_INT(strstr(weft_last_error(), row) != NULL, at < LAST_ROW_AT);
        snprintf(row, sizeof row, "; rank %d: ", last + 1);
        CHECK(!none && !strstr(weft_last_error(), row));
        weft_clear_error();
    }
    close_all();
}

/* How it went for the others: one failure is everybody's. */
static void ends(int rank, int32_t status)
{
    *(int32_t *)(void *)hand.row[rank].note[(next_epoch() + 1) & 1] = status;
}

TEST(test_registration_agreed)
{
    char text[800], who[512];
    open_all(PAD);
    ends(2, WEFT_ERR_NO_MEMORY);
    hand.row[2].fetches = 4; /* which does not matter */
    snprintf(text, sizeof text,
             "rendezvous in group \"g\": rank 2 failed (%s); nobody has the memory",
             weft_strerror(WEFT_ERR_NO_MEMORY));
    fails(WEFT_ERR_NO_MEMORY, text);
    for (uint32_t whom = 0; whom < 7; whom++) { /* whom it waited for, if that is a rank */
        if (whom == ME + 1)
            continue; /* what we do ourselves is told as well, and changes */
        ends(3, WEFT_ERR_TIMEOUT);
        hand.row[3].fetches = whom;
        weft_i_world_describe(hand.world, whom && whom <= RANKS ? hand_members[whom - 1] : 0, who,
                              sizeof who);
        snprintf(text, sizeof text,
                 "rendezvous in group \"g\": rank 3 failed (%s%s%s); nobody has the memory",
                 weft_strerror(WEFT_ERR_TIMEOUT), whom && whom <= RANKS ? ", waiting for " : "",
                 whom && whom <= RANKS ? who : "");
        fails(WEFT_ERR_TIMEOUT, text);
    }
    hand.row[3].fetches = 0;
    close_all();
}

/* Somebody is lost: the group ends with that name, since others may be in a later step. */
TEST(test_registration_lost)
{
    open_all(PAD);
    ends(2, WEFT_ERR_PEER_DEAD);
    hand_kill(hand_members[3]);
    weft_i_registration *none = NULL;
    CHECK_INT(meet(&none), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 3 (died");
    CHECK(!strstr(weft_last_error(), "channel")); /* a rendezvous has none */
    CHECK(!none && hand.group->board->revoked && hand.group->board->failure == WEFT_ERR_PEER_DEAD);
    weft_clear_error();
    close_all();
}

/* So it does if a rank that failed otherwise was told of somebody lost only afterwards. */
TEST(test_registration_lost_behind_a_failure)
{
    open_all(PAD);
    ends(2, WEFT_ERR_DEVICE);
    hand_kill(hand_members[3]);
    weft_i_registration *none = NULL;
    CHECK_INT(meet(&none), WEFT_ERR_PEER_DEAD);
    CHECK_CONTAINS(weft_last_error(), "rank 3 (died");
    CHECK(!none && hand.group->board->revoked);
    weft_clear_error();
    close_all();
}

/* A rank that cannot take part says so, and why; it needs no memory for that. */
TEST(test_registration_declined)
{
    open_all(PAD);
    weft_i_registration *none = NULL;
    uint32_t epoch = next_epoch();
    CHECK_INT(weft_i_fail(WEFT_ERR_LIMIT, "the reason"), WEFT_ERR_LIMIT);
    hand_said(weft_i_registration_new(NULL, 0, hand.group, WEFT_ERR_LIMIT, &none), WEFT_ERR_LIMIT,
              "the reason");
    CHECK(!none && note(ME, epoch)->status == WEFT_ERR_LIMIT && !note(ME, epoch)->serial);
    CHECK(!note(ME, epoch)->bytes && next_epoch() == epoch + 1 && !hand.group->rest.registrations);
    bool fired = true;
    for (int n = 1; fired; n++) {
        bring(PAD);
        epoch = next_epoch();
        fault_arm(n);
        weft_status status = meet(&none);
        fired = fault_disarm();
        CHECK(n < 40);
        if (!fired) {
            CHECK_OK(status);
            weft_i_registration_drop(none);
            break;
        }
        CHECK(status < 0 && !none && !block->published);
        int32_t said = n <= 4 ? note(ME, epoch)->status : WEFT_ERR_NO_MEMORY;
        CHECK_INT(said, WEFT_ERR_NO_MEMORY); /* the first four are tables: it told them */
        if (n <= 2)
            CHECK(!strcmp(weft_last_error(), "rendezvous: no memory for 4 ranks"));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_INT(theirs[rank]->references, rank == ME ? 1 : 2);
    }
    weft_clear_error();
    close_all();
}

/* ---- of memory on a device ---- */

static int settled, parted;
static void *joins_with;
static bool stays_away, shows_nothing;

static weft_status show(const weft_i_segment *segment, weft_i_card *out)
{
    CHECK(segment == block->segment);
    memset(out, 5, sizeof *out);
    return shows_nothing ? weft_i_fail(WEFT_ERR_IO, "no card") : WEFT_OK;
}

static weft_status compare(const weft_i_circle *circle, const weft_i_card *cards)
{
    CHECK(circle->size == RANKS && circle->rank == ME && circle->group == hand.group);
    return ((const char *)&cards[ME])[0] == 5 ? WEFT_OK : weft_i_fail(WEFT_ERR_INTERNAL, "cards");
}

static weft_status join_memory(const weft_i_circle *circle, const weft_i_joining *with, void **out)
{
    CHECK(circle->device == WEFT_CPU && with->bytes == BYTES && with->pad_bytes == PAD);
    CHECK_INT(with->channels, PAD / 4 / RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(weft_i_key_equal(with->keys[rank],
                               rank == ME ? block->segment->key : theirs[rank]->key));
    CHECK(with->blocks[ME] == block->segment);
    if (stays_away)
        hand.row[3].arrival = hand.row[ME].arrival; /* rank 3 was here, and comes no more */
    *out = joins_with;
    return joins_with ? WEFT_OK : weft_i_fail(WEFT_ERR_DEVICE, "cannot join");
}

static void settle(void *joined)
{
    CHECK(joined == joins_with);
    settled++;
}

static void part(void *joined)
{
    CHECK(joined == joins_with);
    parted++;
}

/* Its backend joins it; the tables for that may be missing, too. */
TEST(test_registration_on_a_device)
{
    static const weft_i_device_memory memory = {
        .show = show, .compare = compare, .join = join_memory, .settle = settle, .part = part};
    open_all(PAD);
    weft_i_backend backend = *block->backend;
    backend.device_memory = &memory;
    block->backend = &backend;
    weft_i_registration *made = NULL;
    joins_with = &settled;
    CHECK_OK(meet(&made));
    CHECK(made->memory == &memory && made->joined == &settled && settled == 1 && parted == 0);
    CHECK(!made->pads.segment && made->pads.channels == PAD / 4 / RANKS);
    weft_i_registration_drop(made);
    CHECK_INT(parted, 1);
    bring(PAD);
    joins_with = NULL;
    made = NULL;
    hand_said(meet(&made), WEFT_ERR_DEVICE, "cannot join");
    CHECK(!made && settled == 1 && parted == 1); /* it has nothing to part with */
    joins_with = &settled;
    bring(PAD);
    shows_nothing = true; /* the others are told that, and nobody joins */
    uint32_t told = next_epoch();
    hand_said(meet(&made), WEFT_ERR_IO, "no card");
    CHECK_INT(note(ME, told)->status, WEFT_ERR_IO);
    CHECK(!made && settled == 1 && parted == 1 && !block->published);
    shows_nothing = false;
    bring(PAD);
    stays_away = true; /* who has brought its memory may be missing at the end */
    hand.group->timeout_ms = 20;
    CHECK_INT(meet(&made), WEFT_ERR_TIMEOUT);
    CHECK_CONTAINS(weft_last_error(), " ms for rank 3 (alive");
    CHECK(!made && settled == 2 && parted == 2); /* it was joined, and is not any more */
    stays_away = false;
    settled = 1;
    hand.group->timeout_ms = 20000;
    hand.group->board->revoked = 0;
    for (int n = 1; n <= 6; n++) { /* four tables, the registration and its addresses */
        uint32_t epoch = next_epoch();
        bring(PAD);
        fault_arm(n);
        weft_status status = meet(&made);
        CHECK(fault_disarm() && status == WEFT_ERR_NO_MEMORY && !made);
        CHECK_INT(note(ME, epoch)->status, WEFT_ERR_NO_MEMORY);
        CHECK(!strcmp(weft_last_error(), "rendezvous: no memory for 4 ranks"));
        CHECK(!block->published && settled == 1);
    }
    weft_clear_error();
    close_all();
}

static bool near;

static bool is_near(const void *joined)
{
    CHECK(joined == joins_with);
    return near;
}

static int signals; /* that were given to the stream */
static int put_channel;

static weft_status note_put(void *joined, void *stream, int rank, size_t offset, const void *from,
                            size_t bytes, int channel, int64_t limit_ms)
{
    (void)stream, (void)from;
    CHECK(joined == joins_with && rank == 2 && offset == 64 + 4 && bytes == 8);
    CHECK(limit_ms == (channel < 0 ? WEFT_DEFAULT : 700));
    put_channel = channel;
    return channel == 7 ? weft_i_fail(WEFT_ERR_DEVICE, "no put") : WEFT_OK;
}

/* The newest operation in the flight record. */
static void check_record(const char *name, int channel, weft_status status)
{
    weft_i_record_entry entry;
    CHECK(weft_i_record_last(weft_i_group_record(hand.group), &entry));
    CHECK(!strcmp(entry.name, name) && entry.finished);
    CHECK(entry.peer == 2 && entry.group == hand.group->id);
    CHECK_INT(entry.channel, channel);
    CHECK_INT(entry.status, status);
}

static weft_status get_nothing(void *joined, void *stream, int rank, size_t offset, void *to,
                               size_t bytes)
{
    (void)stream, (void)to;
    CHECK(joined == joins_with && rank == 2 && offset == 64 + 8 && bytes == 4);
    return weft_i_fail(WEFT_ERR_DEVICE, "no copy");
}

static weft_status count_signal(void *joined, void *stream, weft_i_signal_kind kind, int rank,
                                int channel, int64_t limit_ms)
{
    (void)stream, (void)limit_ms;
    CHECK(joined == joins_with && kind == WEFT_I_SIGNAL_WAIT && rank == 2 && channel == 3);
    signals++;
    return WEFT_OK;
}

/* What its backend says of a copy is the caller's; a fake world asks it for no signal. */
TEST(test_registration_used_on_a_device)
{
    static const weft_i_device_memory memory = {.show = show,
                                                .compare = compare,
                                                .join = join_memory,
                                                .settle = settle,
                                                .part = part,
                                                .put = note_put,
                                                .get = get_nothing,
                                                .signal = count_signal,
                                                .is_near = is_near};
    open_all(PAD);
    weft_i_backend backend = *block->backend;
    backend.device_memory = &memory;
    block->backend = &backend;
    joins_with = &settled;
    weft_symm mem = {.group = hand.group,
                     .block = block,
                     .offset = 64,
                     .dtype = WEFT_F32,
                     .shape = WEFT_SHAPE(4),
                     .strides = {1}};
    CHECK_OK(meet(&mem.registration));
    for (int i = 0; i < 2; i++) {
        near = i;
        CHECK_INT(weft_i_symm_is_near(&mem), near);
    }
    weft_tensor *to = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(1));
    hand_said(weft_symm_get(to, &mem, 2, 2), WEFT_ERR_DEVICE, "no copy");
    check_record("get", -1, WEFT_ERR_DEVICE);
    weft_tensor *from = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(2));
    CHECK_OK(weft_symm_put(&mem, 2, from, 1));
    CHECK_INT(put_channel, -1); /* no signal behind it */
    check_record("put", -1, WEFT_OK);
    CHECK_OK(weft_symm_put_with_signal(&mem, 2, from, 1, 5, 700));
    CHECK_INT(put_channel, 5);
    check_record("put_with_signal", 5, WEFT_OK);
    hand_said(weft_symm_put_with_signal(&mem, 2, from, 1, 7, 700), WEFT_ERR_DEVICE, "no put");
    check_record("put_with_signal", 7, WEFT_ERR_DEVICE);
    CHECK_OK(weft_symm_wait_signal(&mem, 2, 3, WEFT_DEFAULT));
    CHECK_INT(signals, 1);
    check_record("wait_signal", 3, WEFT_OK);
    hand.world->fake = true;
    CHECK(weft_fake_is(hand.group) && !weft_fake_is(NULL));
    CHECK_OK(weft_symm_wait_signal(&mem, 2, 3, WEFT_DEFAULT));
    CHECK_INT(signals, 1);
    hand.world->fake = false;
    CHECK(!weft_fake_is(hand.group));
    weft_i_registration_drop(mem.registration);
    close_all();
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
