/* SPDX-License-Identifier: Apache-2.0 */
/* What every filling of the table must do; test_transport runs them on all there are. */
#ifndef WEFT_TESTS_TRANSPORT_TABLE_ACTS_H
#define WEFT_TESTS_TRANSPORT_TABLE_ACTS_H

#include "crowd.h"

#include "values_seed.h"

VALUES_UNSEEN unsigned char byte_of(int from, int to, size_t which, size_t at)
{
    return (unsigned char)((size_t)from * 31 + (size_t)to * 17 + which * 7 + at + (at >> 8) * 3);
}

VALUES_UNSEEN void fill_bytes(unsigned char *out, size_t bytes, int from, int to, size_t which)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = byte_of(from, to, which, i);
}

VALUES_UNSEEN bool has_bytes(const unsigned char *data, size_t bytes, int from, int to,
                             size_t which)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(from, to, which, i))
            return false;
    return true;
}

/* Messages of all sizes to all, in their order, with the right bytes. */
static void act_messages(member *me)
{
    enum { EACH = 60 };
    const size_t sizes[] = {0, 1, 7, 48, 1000, 4096, 20000, me->facts.segment};
    unsigned char *data = malloc(me->facts.segment);
    op done;
    for (int n = 0; n < EACH; n++)
        for (int to = 0; to < me->size; to++) {
            size_t bytes = sizes[n % 8];
            if (to == me->rank)
                continue;
            weft_i_head head = crowd_head(me, to, WEFT_I_HEAD_NOTE);
            head.word[3] = (uint32_t)n;
            fill_bytes(data, bytes, me->rank, to, (size_t)n);
            AWAIT(me, &done, me->table->send(me->wire, to, &head, data, bytes, &done.sent));
            WANT(me, done.status == WEFT_OK);
        }
    UNTIL(me, me->letters == EACH * (me->size - 1));
    int next[CROWD] = {0};
    for (int i = 0; i < me->letters; i++) {
        const letter *got = &me->inbox[i];
        int from = (int)got->head.source, n = next[from]++;
        WANT(me, got->head.number == (uint32_t)n && got->head.word[3] == (uint32_t)n);
        WANT(me, got->bytes == sizes[n % 8] && got->head.kind == WEFT_I_HEAD_NOTE);
        WANT(me, has_bytes(got->data, got->bytes, from, me->rank, (size_t)n));
    }
    WANT(me, !me->bad);
    free(data);
    crowd_meet(me);
}

/* Tells a rank that what it may stream is expected. */
static void invite(member *me, int from, uint64_t tag)
{
    op done;
    weft_i_head head = crowd_head(me, from, WEFT_I_HEAD_CTS);
    head.word[0] = (uint32_t)tag;
    AWAIT(me, &done, me->table->send(me->wire, from, &head, NULL, 0, &done.sent));
}

static bool is_invited(const member *me, int by, uint64_t tag)
{
    for (int i = 0; i < me->letters; i++)
        if (me->inbox[i].head.source == (uint32_t)by && me->inbox[i].head.word[0] == (uint32_t)tag)
            return true;
    return false;
}

/* A stream to each, and one from each. */
static void stream_all(member *me, uint64_t tag, size_t bytes)
{
    op in[CROWD], out[CROWD];
    unsigned char *to[CROWD], *from = malloc(bytes + 1);
    for (int i = 0; i < me->size; i++) {
        to[i] = calloc(1, bytes + 1);
        if (i == me->rank)
            continue;
        BEGIN(me, &in[i], me->table->expect(me->wire, i, tag, to[i], bytes, &in[i].sent));
        invite(me, i, tag);
        WANT_GOOD(me);
    }
    fill_bytes(from, bytes, me->rank, 0, tag);
    for (int i = 0; i < me->size; i++)
        if (i != me->rank) {
            UNTIL(me, is_invited(me, i, tag));
            BEGIN(me, &out[i], me->table->stream(me->wire, i, tag, from, bytes, &out[i].sent));
        }
    for (int i = 0; i < me->size; i++)
        if (i != me->rank) {
            UNTIL(me, in[i].over && out[i].over);
            WANT(me, in[i].status == WEFT_OK && out[i].status == WEFT_OK);
            WANT(me, has_bytes(to[i], bytes, i, 0, tag) && !to[i][bytes]);
        }
    for (int i = 0; i < me->size; i++)
        free(to[i]);
    free(from);
}

/* From nothing to 16 MiB, and sizes around that of a piece. */
static void act_streams(member *me)
{
    static const size_t sizes[] = {0,
                                   1,
                                   8,
                                   4095,
                                   WEFT_I_PIECE_BYTES - 1,
                                   WEFT_I_PIECE_BYTES,
                                   WEFT_I_PIECE_BYTES + 1,
                                   1 << 20,
                                   (4 << 20) + 5,
                                   16 << 20};
    size_t count = me->table == &double_transport && me->seed ? 8 : 10;
    if (me->size > 2)
        count = 9;
    for (size_t i = 0; i < count; i++) {
        stream_all(me, i + 1, sizes[i]);
        WANT_GOOD(me);
    }
    WANT(me, !me->bad && !me->table->strays(me->wire));
    crowd_meet(me);
}

/* More at a time than may be under way. */
static void act_many_streams(member *me)
{
    enum { MANY = 24, BYTES = 5 * WEFT_I_PIECE_BYTES + 11 };
    static const uint64_t high = UINT64_C(0xfedcba9800000000);
    op in[MANY], out[MANY];
    unsigned char *to = calloc(MANY, BYTES), *from = malloc(BYTES);
    int other = 1 - me->rank;
    fill_bytes(from, BYTES, me->rank, 0, 0);
    for (int i = 0; i < MANY; i++)
        BEGIN(me, &in[i],
              me->table->expect(me->wire, other, high + (unsigned)i, to + (size_t)i * BYTES, BYTES,
                                &in[i].sent));
    crowd_meet(me);
    WANT_GOOD(me);
    for (int i = MANY - 1; i >= 0; i--)
        BEGIN(me, &out[i],
              me->table->stream(me->wire, other, high + (unsigned)i, from, BYTES, &out[i].sent));
    for (int i = 0; i < MANY; i++) {
        UNTIL(me, in[i].over && out[i].over);
        WANT(me, in[i].status == WEFT_OK && out[i].status == WEFT_OK);
        WANT(me, has_bytes(to + (size_t)i * BYTES, BYTES, other, 0, 0));
    }
    free(to);
    free(from);
    crowd_meet(me);
}

/* Another size, the same tag twice, and what nobody expects. */
static void act_wrong_streams(member *me)
{
    static unsigned char to[CROWD][4096], from[200000];
    op in, out, twice;
    int other = 1 - me->rank;
    BEGIN(me, &in, me->table->expect(me->wire, other, 5, to[me->rank], 4096, &in.sent));
    twice.sent.done = op_done;
    WANT(me,
         me->table->expect(me->wire, other, 5, to[me->rank], 4096, &twice.sent) == WEFT_ERR_EXISTS);
    crowd_meet(me);
    WANT_GOOD(me);
    AWAIT(me, &out, me->table->stream(me->wire, other, 6, from, sizeof from, &out.sent));
    UNTIL(me, me->table->strays(me->wire) == 4);
    AWAIT(me, &out, me->table->stream(me->wire, other, 5, from, 100, &out.sent));
    UNTIL(me, in.over);
    WANT(me, in.status == WEFT_ERR_MISMATCH);
    stream_all(me, 7, 3000);
    WANT_GOOD(me);
    crowd_meet(me);
}

/* One-sided transfers into a block, and out of it. */
static void act_put_get(member *me)
{
    enum { BYTES = 3 << 20 };
    static const size_t sizes[] = {0, 1, 8, 5000, 65536, (1 << 20) + 3};
    unsigned char *block = calloc(1, BYTES), *from = malloc(BYTES), *back = malloc(BYTES);
    void *mapped, *far;
    op done;
    int other = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
    me->page->key_bytes[me->rank] = sizeof me->page->key[0];
    WANT(me, me->table->map(me->wire, block, BYTES, me->page->key[me->rank],
                            &me->page->key_bytes[me->rank], &mapped) == WEFT_OK);
    crowd_meet(me);
    WANT_GOOD(me);
    WANT(me, me->table->reach(me->wire, other, me->page->key[other], me->page->key_bytes[other],
                              &far) == WEFT_OK);
    size_t at = 3;
    for (size_t i = 0; i < 6; at += sizes[i++]) {
        fill_bytes(from + at, sizes[i], me->rank, 0, i);
        AWAIT(me, &done, me->table->put(me->wire, far, at, from + at, sizes[i], &done.sent));
        WANT(me, done.status == WEFT_OK);
    }
    WANT(me, me->table->put(me->wire, far, BYTES, from, 1, &done.sent) == WEFT_ERR_INVALID_ARG);
    WANT(me, me->table->put(me->wire, far, SIZE_MAX, from, 2, &done.sent) == WEFT_ERR_INVALID_ARG);
    WANT(me, me->table->get(me->wire, far, 1, back, BYTES, &done.sent) == WEFT_ERR_INVALID_ARG);
    AWAIT(me, &done, me->table->flush(me->wire, other, &done.sent));
    crowd_meet(me);
    WANT_GOOD(me);
    at = 3;
    WANT(me, !block[0] && !block[1] && !block[2]);
    for (size_t i = 0; i < 6; at += sizes[i++])
        WANT(me, has_bytes(block + at, sizes[i], before, 0, i));
    WANT(me, !block[at]);
    at = 3;
    for (size_t i = 0; i < 6; at += sizes[i++]) {
        AWAIT(me, &done, me->table->get(me->wire, far, at, back, sizes[i], &done.sent));
        WANT(me, done.status == WEFT_OK && !memcmp(back, from + at, sizes[i]));
    }
    crowd_meet(me);
    me->table->leave(me->wire, far);
    me->table->unmap(me->wire, mapped);
    free(block);
    free(from);
    free(back);
}

/* What is refused before anything happens. */
static void act_refusals(member *me)
{
    const weft_i_transport *table = me->table;
    unsigned char data[64] = {0}, nonsense[200];
    op done = {.sent.done = op_done};
    void *far, *mapped;
    size_t room = 1;
    int other = 1 - me->rank;
    weft_i_head head = {.kind = WEFT_I_HEAD_NOTE};
    for (int i = 0; i < 3; i++) {
        const int wrong[] = {me->rank, -1, me->size};
        WANT(me,
             table->send(me->wire, wrong[i], &head, data, 1, &done.sent) == WEFT_ERR_INVALID_ARG);
        WANT(me, table->expect(me->wire, wrong[i], 1, data, 1, &done.sent) == WEFT_ERR_INVALID_ARG);
        WANT(me, table->stream(me->wire, wrong[i], 1, data, 1, &done.sent) == WEFT_ERR_INVALID_ARG);
        WANT(me, table->flush(me->wire, wrong[i], &done.sent) == WEFT_ERR_INVALID_ARG);
        WANT(me, table->connect(me->wire, wrong[i], me->page->address[other],
                                me->page->address_bytes[other]) == WEFT_ERR_INVALID_ARG);
    }
    WANT(me, table->send(me->wire, other, &head, data, me->facts.segment + 1, &done.sent) ==
                 WEFT_ERR_INVALID_ARG);
    WANT(me, table->connect(me->wire, other, me->page->address[other],
                            me->page->address_bytes[other]) == WEFT_ERR_EXISTS);
    WANT(me, table->map(me->wire, data, sizeof data, nonsense, &room, &mapped) ==
                     WEFT_ERR_INVALID_ARG &&
                 !mapped);
    WANT(me, table->map(me->wire, data, 0, nonsense, &room, &mapped) == WEFT_ERR_INVALID_ARG);
    for (unsigned i = 0; i < sizeof nonsense; i++)
        nonsense[i] = (unsigned char)(i * 37);
    WANT(me, table->reach(me->wire, other, nonsense, sizeof nonsense, &far) == WEFT_ERR_PROTOCOL &&
                 !far);
    WANT(me, table->reach(me->wire, other, nonsense, 0, &far) == WEFT_ERR_PROTOCOL);
    crowd_meet(me);
    WANT_GOOD(me);
    table->drop(me->wire, other);
    WANT(me, table->send(me->wire, other, &head, data, 1, &done.sent) == WEFT_ERR_UNREACHABLE);
    WANT(me, table->connect(me->wire, other, nonsense, sizeof nonsense) == WEFT_ERR_PROTOCOL);
    WANT(me, table->connect(me->wire, other, nonsense, 3) == WEFT_ERR_PROTOCOL);
    crowd_meet(me);
    WANT(me, !done.over);
}

/* Everything with a peer that does nothing any more ends by force, and its memory stays as it is. */
static void act_drop(member *me)
{
    enum { BYTES = 6 << 20, SENDS = 8, GOT = 24 << 20 };
    unsigned char *memory = calloc(1, BYTES), *got = calloc(1, GOT);
    op in, idle, get, out[SENDS];
    void *mapped, *far;
    memset(got, me->rank * 7, GOT);
    me->page->key_bytes[me->rank] = sizeof me->page->key[0];
    WANT(me, me->table->map(me->wire, got, GOT, me->page->key[me->rank],
                            &me->page->key_bytes[me->rank], &mapped) == WEFT_OK);
    BEGIN(me, &in, me->table->expect(me->wire, 1 - me->rank, 1, memory, BYTES, &in.sent));
    BEGIN(me, &idle, me->table->expect(me->wire, 1 - me->rank, 2, memory, 1, &idle.sent));
    crowd_meet(me);
    WANT_GOOD(me);
    if (me->rank == 1) {
        unsigned char *from = calloc(1, BYTES);
        memset(from, 7, BYTES);
        BEGIN(me, &out[0], me->table->stream(me->wire, 0, 1, from, BYTES, &out[0].sent));
        UNTIL(me, atomic_load(&me->page->go[0]) == 1); /* and goes on after it was dropped */
        me->table->drop(me->wire, 0);
        free(from);
        WANT(me, out[0].over && in.over && idle.over);
    } else {
        unsigned char *from = calloc(SENDS, BYTES);
        WANT(me, me->table->reach(me->wire, 1, me->page->key[1], me->page->key_bytes[1], &far) ==
                     WEFT_OK);
        BEGIN(me, &get, me->table->get(me->wire, far, 0, got, GOT, &get.sent));
        for (int i = 0; i < SENDS; i++)
            BEGIN(me, &out[i],
                  me->table->stream(me->wire, 1, 10u + (unsigned)i, from, BYTES, &out[i].sent));
        UNTIL(me, (in.sent.at > 0 || in.over) && (get.over || got[0]));
        me->table->drop(me->wire, 1);
        WANT(me, in.over && get.over && idle.over && idle.status < 0);
        for (int i = 0; i < SENDS; i++)
            WANT(me, out[i].over);
        free(from);
        memset(memory, 9, BYTES);
        memset(got, 9, GOT);
        for (int i = 0; i < 100; i++)
            crowd_step(me);
        WANT(me, memory[0] == 9 && !memcmp(memory, memory + 1, BYTES - 1));
        WANT(me, got[0] == 9 && !memcmp(got, got + 1, GOT - 1));
        me->table->leave(me->wire, far);
        atomic_store(&me->page->go[0], 1);
    }
    crowd_meet(me);
    me->table->unmap(me->wire, mapped);
    free(memory);
    free(got);
}

/* A dropped peer can be had again: both drop, both connect. */
static void act_again(member *me)
{
    int other = 1 - me->rank;
    stream_all(me, 1, 100000);
    WANT_GOOD(me);
    crowd_meet(me);
    me->table->drop(me->wire, other);
    weft_i_order_clear(&me->order[other]);
    me->order[other] = (weft_i_order){0};
    me->number[other] = 0;
    crowd_forget(me);
    crowd_meet(me);
    WANT_GOOD(me);
    WANT(me, me->table->connect(me->wire, other, me->page->address[other],
                                me->page->address_bytes[other]) == WEFT_OK);
    crowd_meet(me);
    WANT_GOOD(me);
    stream_all(me, 2, 100000);
    WANT_GOOD(me);
    crowd_meet(me);
}

/* How a rank is lost: as a process it is killed. */
static void vanish(member *me)
{
    if (me->table == &double_transport)
        double_lose(me->rank, false);
    else
        raise(SIGKILL);
}

/* The last rank is lost in the middle of a stream.  The others are told, drop it, and go on. */
static void act_lost(member *me)
{
    enum { BYTES = 8 << 20 };
    int victim = me->size - 1;
    static unsigned char from[BYTES], block[CROWD][BYTES];
    unsigned char *to = calloc(1, BYTES), *back = calloc(1, BYTES);
    op in, out, put, get, each;
    void *mapped, *far = NULL;
    me->page->key_bytes[me->rank] = sizeof me->page->key[0];
    WANT(me, me->table->map(me->wire, block[me->rank], BYTES, me->page->key[me->rank],
                            &me->page->key_bytes[me->rank], &mapped) == WEFT_OK);
    stream_all(me, 1, 5000);
    crowd_meet(me);
    WANT_GOOD(me);
    if (me->rank != victim) {
        WANT(me, me->table->reach(me->wire, victim, me->page->key[victim],
                                  me->page->key_bytes[victim], &far) == WEFT_OK);
        BEGIN(me, &in, me->table->expect(me->wire, victim, 2, to, BYTES, &in.sent));
        BEGIN(me, &out, me->table->stream(me->wire, victim, 3, from, BYTES, &out.sent));
        BEGIN(me, &put, me->table->put(me->wire, far, 0, from, BYTES, &put.sent));
        BEGIN(me, &get, me->table->get(me->wire, far, 0, back, BYTES, &get.sent));
    }
    crowd_meet(me);
    WANT_GOOD(me);
    if (me->rank == victim) {
        BEGIN(me, &each, me->table->stream(me->wire, 0, 2, from, BYTES, &each.sent));
        for (int i = 0; i < 5; i++)
            me->table->progress(me->wire);
        vanish(me);
        me->table->drop(me->wire, 0);
        me->table->unmap(me->wire, mapped);
        free(to);
        free(back);
        return;
    }
    /* Who only listens hears of it when it writes again. */
    UNTIL(me, me->faults[victim] == 1);
    WANT(me, me->table->flush(me->wire, victim, &each.sent) == WEFT_ERR_UNREACHABLE);
    me->table->drop(me->wire, victim);
    WANT(me, in.over && out.over && put.over && get.over && (in.status < 0 || me->rank == 0));
    WANT(me, me->table->connect(me->wire, victim, me->page->address[victim],
                                me->page->address_bytes[victim]) == WEFT_OK);
    WANT(me, me->table->put(me->wire, far, 0, from, 1, &put.sent) == WEFT_ERR_UNREACHABLE);
    me->table->drop(me->wire, victim);
    me->table->leave(me->wire, far);
    me->table->unmap(me->wire, mapped);
    free(back);
    free(to);
    me->size--;
    stream_all(me, 9, 300000);
    WANT_GOOD(me);
    crowd_meet_of(me, me->size);
    me->size++;
    WANT(me, me->faults[victim] == 1 && !me->bad);
}

static void *drive(void *arg)
{
    member *me = arg;
    while (!atomic_load(&me->page->go[me->rank]))
        if (!me->table->progress(me->wire))
            sched_yield();
    return NULL;
}

/* Another thread of the rank drives the wire meanwhile. */
static void act_two_threads(member *me)
{
    pthread_t other;
    WANT(me, !pthread_create(&other, NULL, drive, me));
    static const unsigned char data[300];
    op sent[50];
    int to = 1 - me->rank, over = 0;
    for (int n = 0; n < 50; n++) {
        weft_i_head head = crowd_head(me, to, WEFT_I_HEAD_NOTE);
        sent[n] = (op){.sent.done = op_done};
        weft_status status;
        while ((status = me->table->send(me->wire, to, &head, data, sizeof data, &sent[n].sent)) ==
               WEFT_ERR_NO_MEMORY)
            sched_yield();
        if (status != WEFT_IN_PROGRESS)
            op_done(&sent[n].sent, status);
    }
    atomic_store(&me->page->go[me->rank], 1);
    pthread_join(other, NULL);
    UNTIL(me, me->letters == 50);
    for (; over < 50; over++)
        UNTIL(me, sent[over].over);
    for (int n = 0; n < 50; n++)
        WANT(me, sent[n].status == WEFT_OK);
    WANT(me, !me->bad);
    crowd_meet(me);
}

#endif
