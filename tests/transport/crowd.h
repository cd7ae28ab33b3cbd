/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with a wire each, and nothing else of weft: threads on the double, processes on UCX.  A body
 * complains through WANT, and the test fails for the first complaint.
 *
 *     crowd_run(&weft_i_ucx_transport, 2, body, 0)    body(me): WANT(me, x == 3)
 */
#ifndef WEFT_TESTS_TRANSPORT_CROWD_H
#define WEFT_TESTS_TRANSPORT_CROWD_H

#include "harness.h"

#include "backends/ucx/wire.h"
#include "base/os/os.h"
#include "base/report/status.h"
#include "double.h"
#include "transport/order.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CROWD = 4, CROWD_INBOX = 1024, CROWD_SECONDS = 40 };

typedef struct crowd_page {
    unsigned char address[CROWD][WEFT_I_TRANSPORT_ADDRESS_BYTES],
        key[CROWD][WEFT_I_TRANSPORT_KEY_BYTES];
    size_t address_bytes[CROWD], key_bytes[CROWD];
    atomic_int come, go[CROWD]; /* sequentially consistent: they order what is beside them */
    char complaint[CROWD][600];
    int number[CROWD]; /* of which the tests make what they like */
} crowd_page;

/* A message that has come, in its turn. */
typedef struct letter {
    weft_i_head head;
    size_t bytes;
    unsigned char *data;
} letter;

typedef struct member {
    const weft_i_transport *table;
    void *wire;
    int rank, size;
    uint64_t seed;
    crowd_page *page;
    weft_i_order order[CROWD];
    uint32_t number[CROWD]; /* of the next message to a rank */
    letter inbox[CROWD_INBOX];
    int letters, bad, faults[CROWD], met;
    weft_i_transport_facts facts;
} member;

#define WANT_AS(me_, condition_, text_)                                                         \
    do {                                                                                        \
        if (!(condition_)) {                                                                    \
            char *out_ = (me_)->page->complaint[(me_)->rank];                                   \
            if (!*out_)                                                                         \
                snprintf(out_, sizeof(me_)->page->complaint[0], "line %d: %s (last error: %s)", \
                         __LINE__, text_, weft_last_error());                                   \
            return;                                                                             \
        }                                                                                       \
    } while (0)
#define WANT(me_, condition_) WANT_AS(me_, condition_, #condition_)

#define WANT_GOOD(me_)                            \
    do {                                          \
        if (*(me_)->page->complaint[(me_)->rank]) \
            return;                               \
    } while (0)

static inline bool crowd_complained(const member *me)
{
    for (int i = 0; i < me->size; i++)
        if (*me->page->complaint[i])
            return true;
    return false;
}

/* Moves the wire; gives way, or sleeps at its door, if nothing has happened. */
static inline void crowd_step(member *me)
{
    if (me->table->progress(me->wire))
        return;
    int door = me->table->door(me->wire);
    if (door >= 0 && me->table->arm(me->wire)) {
        struct pollfd look = {.fd = door, .events = POLLIN};
        poll(&look, 1, 5);
    } else {
        sched_yield();
    }
}

#define UNTIL(me_, condition_)                                                 \
    do {                                                                       \
        int64_t end_ = weft_i_os_deadline(CROWD_SECONDS * 1000);               \
        while (!(condition_)) {                                                \
            if (crowd_complained(me_))                                         \
                return;                                                        \
            WANT_AS(me_, WEFT_OS->clock_ns() < end_, "in time: " #condition_); \
            crowd_step(me_);                                                   \
        }                                                                      \
    } while (0)

/* All ranks meet, and move their wires meanwhile. */
static inline void crowd_meet(member *me)
{
    int all = ++me->met * me->size;
    atomic_fetch_add(&me->page->come, 1);
    UNTIL(me, atomic_load(&me->page->come) >= all);
}

/* The first `who` ranks. */
static inline void crowd_meet_of(member *me, int who)
{
    atomic_fetch_add(&me->page->go[who], 1);
    UNTIL(me, atomic_load(&me->page->go[who]) % who == 0);
}

/* An operation, and what became of it. */
typedef struct op {
    weft_i_sent sent;
    bool over;
    weft_status status;
} op;

static inline void op_done(weft_i_sent *sent, weft_status status)
{
    op *of = (op *)(void *)sent; /* its first member */
    of->status = status;
    of->over = true;
}

/* The double refuses now and then: whoever calls tries again. */
#define BEGIN(me_, op_, call_)                           \
    do {                                                 \
        (op_)->sent.done = op_done;                      \
        (op_)->over = false;                             \
        weft_status begun_ = WEFT_ERR_NO_MEMORY;         \
        while ((begun_ = (call_)) == WEFT_ERR_NO_MEMORY) \
            crowd_step(me_);                             \
        WANT(me_, begun_ >= 0);                          \
        if (begun_ == WEFT_OK)                           \
            op_done(&(op_)->sent, WEFT_OK);              \
    } while (0)

#define AWAIT(me_, op_, call_)   \
    do {                         \
        BEGIN(me_, op_, call_);  \
        UNTIL(me_, (op_)->over); \
    } while (0)

static inline void crowd_keep(member *me, const weft_i_head *head, const void *data, size_t bytes)
{
    if (me->letters == CROWD_INBOX) {
        me->bad++;
        return;
    }
    letter *to = &me->inbox[me->letters++];
    *to = (letter){.head = *head, .bytes = bytes, .data = malloc(bytes + 1)};
    memcpy(to->data, data, bytes);
}

/* Reads heads as a rank does that believes nothing, and puts the messages of a pair in order. */
static inline void crowd_hear(void *arg, const void *raw, const void *data, size_t bytes)
{
    member *me = arg;
    weft_i_head head;
    weft_i_head_reader reader = {me->rank, me->size, me->facts.segment};
    if (weft_i_head_read(raw, bytes, &reader, &head) != WEFT_I_HEAD_GOOD ||
        !weft_i_head_is_from(&head, head.source + 100)) {
        me->bad++;
        return;
    }
    weft_i_order *order = &me->order[head.source];
    weft_i_order_turn turn = weft_i_order_take(order, &head, data, bytes);
    me->bad += turn > WEFT_I_ORDER_EARLY;
    if (turn != WEFT_I_ORDER_NOW)
        return;
    crowd_keep(me, &head, data, bytes);
    for (weft_i_order_kept *kept; (kept = weft_i_order_next(order));) {
        crowd_keep(me, &kept->head, kept->data, kept->bytes);
        WEFT_OS->free(kept);
    }
}

static inline void crowd_fault(void *arg, int peer, weft_status why, const char *text)
{
    member *me = arg;
    me->faults[peer] += why < 0 && text && *text;
}

static inline weft_i_head crowd_head(member *me, int to, weft_i_head_kind kind)
{
    return (weft_i_head){.kind = kind,
                         .source = (uint32_t)me->rank,
                         .number = me->number[to]++,
                         .cookie = (uint64_t)me->rank + 100};
}

static inline void crowd_forget(member *me)
{
    for (int i = 0; i < me->letters; i++)
        free(me->inbox[i].data);
    me->letters = 0;
}

/* Opens, shows, connects. */
static inline void crowd_enter(member *me)
{
    weft_i_transport_opts opts = {.rank = me->rank,
                                  .ranks = me->size,
                                  .interface = "lo",
                                  .on_message = crowd_hear,
                                  .on_fault = crowd_fault,
                                  .arg = me};
    WANT(me, me->table->open(&opts, &me->wire) == WEFT_OK);
    me->table->facts(me->wire, &me->facts);
    me->page->address_bytes[me->rank] =
        me->table->address(me->wire, me->page->address[me->rank], sizeof me->page->address[0]);
    WANT(me, me->page->address_bytes[me->rank] <= sizeof me->page->address[0]);
    crowd_meet(me);
    WANT_GOOD(me);
    for (int i = 0; i < me->size; i++)
        if (i != me->rank)
            WANT(me, me->table->connect(me->wire, i, me->page->address[i],
                                        me->page->address_bytes[i]) == WEFT_OK);
}

typedef struct crowd_seat {
    member me;
    void (*body)(member *);
} crowd_seat;

static inline void *crowd_sit(void *arg)
{
    crowd_seat *seat = arg;
    member *me = &seat->me;
    crowd_enter(me);
    if (!*me->page->complaint[me->rank])
        seat->body(me);
    crowd_forget(me);
    for (int i = 0; i < me->size; i++)
        weft_i_order_clear(&me->order[i]);
    if (me->wire)
        me->table->close(me->wire);
    return NULL;
}

static inline void crowd_of_threads(crowd_seat *seats, int size)
{
    pthread_t threads[CROWD];
    for (int i = 0; i < size; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, crowd_sit, &seats[i]), 0);
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
}

/* How many have ended otherwise than by themselves. */
static inline int crowd_of_processes(crowd_seat *seats, int size)
{
    pid_t pids[CROWD];
    int fallen = 0, status;
    fflush(stdout);
    for (int i = 0; i < size; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(120);
            crowd_sit(&seats[i]);
            _exit(0);
        }
        CHECK(pids[i] > 0);
    }
    for (int i = 0; i < size; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        fallen += status != 0;
    }
    return fallen;
}

/* `fallen`: how many ranks are to die. */
static inline void crowd_run(const weft_i_transport *table, int size, void (*body)(member *),
                             uint64_t seed, int fallen)
{
    crowd_page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    crowd_seat *seats = calloc((size_t)size, sizeof *seats);
    CHECK(page != MAP_FAILED && seats);
    for (int i = 0; i < size; i++)
        seats[i] = (crowd_seat){
            .me = {.table = table, .rank = i, .size = size, .seed = seed, .page = page},
            .body = body};
    int fell = fallen;
    if (table == &double_transport) {
        double_start(seed);
        crowd_of_threads(seats, size);
    } else {
        fell = crowd_of_processes(seats, size);
    }
    char told[700] = "";
    for (int i = 0; i < size && !*told; i++)
        if (*page->complaint[i])
            snprintf(told, sizeof told, "rank %d of %d, seed %llu: %s", i, size,
                     (unsigned long long)seed, page->complaint[i]);
    free(seats);
    munmap(page, sizeof *page);
    if (*told)
        FAIL("%s", told);
    CHECK_INT(fell, fallen);
}

#endif
