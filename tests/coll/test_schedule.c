/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: coll/hosts/schedule.c */
/* The schedules of all hosts, run against each other: who waits for what comes to an end, and the
 * sums have the tree of kernels/fold/fold_hosts.c, written out as text. */
#include "harness.h"

#include "coll/hosts/schedule.h"

#include <stdlib.h>

enum { MOST = 33, TEXT = 400 };

/* One host in the middle of its schedule. */
struct host {
    weft_i_step steps[WEFT_I_STEPS];
    int count, next;
    bool given;          /* of a swap: its half */
    char here[TEXT];     /* what it has, as an expression */
    char given_as[TEXT]; /* before it joined */
};

static struct host host[MOST];

/* The next thing that `from` sends to `to`, if it is at that. */
static bool sends_to(struct host *from, int to)
{
    const weft_i_step *s = &from->steps[from->next];
    return from->next < from->count && s->peer == to && s->act != WEFT_I_STEP_TAKE &&
           s->act != WEFT_I_STEP_JOIN;
}

static void join(char *here, const char *there, bool first)
{
    char sum[2 * TEXT + 8];
    snprintf(sum, sizeof sum, "(%s+%s)", first ? here : there, first ? there : here);
    CHECK(strlen(sum) < TEXT);
    snprintf(here, TEXT, "%.*s", TEXT - 1, sum);
}

/* Both sides of one step, if both are at it; false: not yet. */
static bool meet(int me)
{
    struct host *mine = &host[me];
    const weft_i_step *s = &mine->steps[mine->next];
    struct host *other = &host[s->peer];
    if (s->act == WEFT_I_STEP_GIVE || !sends_to(other, me))
        return false; /* whoever receives moves both */
    if (s->act == WEFT_I_STEP_SWAP) {
        const weft_i_step *theirs = &other->steps[other->next];
        CHECK(theirs->act == WEFT_I_STEP_SWAP && theirs->first != s->first);
        char before[TEXT];
        memcpy(before, mine->here, TEXT);
        join(mine->here, other->here, s->first);
        join(other->here, before, theirs->first);
    } else if (s->act == WEFT_I_STEP_JOIN) {
        join(mine->here, other->here, s->first);
    } else {
        memcpy(mine->here, other->here, TEXT);
    }
    mine->next++;
    other->next++;
    return true;
}

static void run(int hosts)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int h = 0; h < hosts; h++)
            while (host[h].next < host[h].count && meet(h))
                moved = true;
    }
    for (int h = 0; h < hosts; h++)
        CHECK_INT(host[h].next, host[h].count);
}

static void begin(int hosts)
{
    for (int h = 0; h < hosts; h++) {
        host[h].next = 0;
        snprintf(host[h].here, TEXT, "%d", h);
    }
}

/* By definition: pairs first, then neighbours, again and again. */
static void expect(int hosts, char out[TEXT])
{
    static char part[MOST][TEXT];
    int whole = 1;
    while (2 * whole <= hosts)
        whole *= 2;
    for (int i = 0, h = 0; i < whole; i++, h++) {
        snprintf(part[i], TEXT, "%d", h);
        if (i < hosts - whole) {
            char next[16];
            snprintf(next, sizeof next, "%d", ++h);
            join(part[i], next, true);
        }
    }
    for (; whole > 1; whole /= 2)
        for (int i = 0; i < whole / 2; i++) {
            char sum[TEXT];
            memcpy(sum, part[2 * i], TEXT);
            join(sum, part[2 * i + 1], true);
            memcpy(part[i], sum, TEXT);
        }
    memcpy(out, part[0], TEXT);
}

TEST(test_schedule_all_reduce)
{
    for (int hosts = 1; hosts <= MOST; hosts++) {
        char want[TEXT];
        expect(hosts, want);
        begin(hosts);
        for (int h = 0; h < hosts; h++)
            host[h].count = weft_i_schedule_all_reduce(hosts, h, host[h].steps);
        run(hosts);
        for (int h = 0; h < hosts; h++)
            CHECK(!strcmp(host[h].here, want));
    }
    char three[TEXT];
    expect(3, three);
    CHECK(!strcmp(three, "((0+1)+2)"));
}

TEST(test_schedule_reduce)
{
    for (int hosts = 1; hosts <= MOST; hosts++)
        for (int root = 0; root < hosts; root++) {
            char want[TEXT];
            expect(hosts, want);
            begin(hosts);
            for (int h = 0; h < hosts; h++)
                host[h].count = weft_i_schedule_reduce(hosts, h, root, host[h].steps);
            run(hosts);
            CHECK(!strcmp(host[root].here, want));
        }
}

TEST(test_schedule_broadcast)
{
    for (int hosts = 1; hosts <= MOST; hosts++)
        for (int root = 0; root < hosts; root++) {
            begin(hosts);
            for (int h = 0; h < hosts; h++)
                host[h].count = weft_i_schedule_broadcast(hosts, h, root, host[h].steps);
            run(hosts);
            for (int h = 0; h < hosts; h++)
                CHECK_INT(atoi(host[h].here), root);
        }
}

/* Few steps: log2 of the hosts, and two where they are no power of two. */
TEST(test_schedule_is_short)
{
    weft_i_step steps[WEFT_I_STEPS];
    for (int h = 0; h < 1024; h++)
        CHECK_INT(weft_i_schedule_all_reduce(1024, h, steps), 10);
    for (int h = 0; h < 1000; h++) {
        CHECK(weft_i_schedule_all_reduce(1000, h, steps) <= 11);
        CHECK(weft_i_schedule_broadcast(1000, h, 7, steps) <= 10);
        CHECK(weft_i_schedule_reduce(1000, h, 999, steps) <= 10);
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
