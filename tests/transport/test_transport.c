/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: transport/transport.h, transport/order.c, transport/piece.c */
/* The table of src/transport on the double: ranks are threads, and what they send is late, in another
 * order and sometimes refused, by a seed.  test_transport_ucx runs the same on UCX. */
#include "table_acts.h"

#include "values_seed.h"

enum { SEEDS = VALUES_SANITIZED ? 6 : 12 };

static void on_double(int size, void (*act)(member *), int seeds)
{
    for (int seed = 0; seed < seeds; seed++)
        crowd_run(&double_transport, size, act, (uint64_t)seed, 0);
}

TEST(test_transport_messages)
{
    on_double(2, act_messages, SEEDS);
    on_double(4, act_messages, SEEDS);
}

TEST(test_transport_streams)
{
    on_double(2, act_streams, 2);
    on_double(4, act_streams, 1);
}

TEST(test_transport_many_streams)
{
    on_double(2, act_many_streams, 4);
}

TEST(test_transport_wrong_streams)
{
    on_double(2, act_wrong_streams, SEEDS);
}

TEST(test_transport_put_get)
{
    on_double(2, act_put_get, 4);
    on_double(3, act_put_get, 4);
}

TEST(test_transport_refusals)
{
    on_double(2, act_refusals, 1);
}

TEST(test_transport_drop)
{
    on_double(2, act_drop, 4);
}

TEST(test_transport_again)
{
    on_double(2, act_again, SEEDS);
}

TEST(test_transport_lost)
{
    on_double(2, act_lost, 4);
    on_double(3, act_lost, 4);
}

TEST(test_transport_two_threads)
{
    on_double(2, act_two_threads, SEEDS);
}

/* A rank that says nothing any more: nobody is told, and force ends it all the same. */
static void act_silent(member *me)
{
    op in, out;
    static unsigned char from[100000];
    unsigned char *to = malloc(sizeof from);
    int other = 1 - me->rank;
    crowd_meet(me);
    WANT_GOOD(me);
    if (me->rank == 0) {
        double_lose(1, true);
        BEGIN(me, &in, me->table->expect(me->wire, other, 1, to, sizeof from, &in.sent));
        BEGIN(me, &out, me->table->stream(me->wire, other, 2, from, sizeof from, &out.sent));
        for (int i = 0; i < 1000; i++)
            crowd_step(me);
        WANT(me, !in.over && !out.over && !me->faults[1]);
        me->table->drop(me->wire, other);
        WANT(me, in.status == WEFT_ERR_CANCELLED && out.status == WEFT_ERR_CANCELLED);
    }
    free(to);
    crowd_meet(me);
}

TEST(test_transport_silent)
{
    on_double(2, act_silent, SEEDS);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
