/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/share/wait.c */
/* Waiting on a clock that moves only when the waiter gives its core away: how often it looks at its
 * peers' lives. */
#include "harness.h"

#include "base/os/os.h"
#include "base/share/wait.h"
#include "weft/status.h"

enum { US = 1000, YIELD_US = 1, SLEEP_US = 500 };

static int64_t now;
static int yields, sleeps, asked, ready_after, peers;
static weft_status fate;

static int64_t clock_of_test(void)
{
    return now;
}

static void yield_of_test(void)
{
    yields++;
    now += YIELD_US * US;
}

static void sleep_of_test(int64_t ns)
{
    (void)ns;
    sleeps++;
    now += SLEEP_US * US;
}

static bool is_ready(void *arg)
{
    (void)arg;
    return yields + sleeps >= ready_after;
}

static weft_status is_lost(void *arg)
{
    (void)arg;
    asked++;
    return fate;
}

/* Waits until it has yielded or slept `rounds` times; negative: for ever. */
static weft_status wait_for(weft_i_wait_mode mode, int rounds, weft_status lost, int64_t limit)
{
    static weft_i_os table;
    table = weft_i_os_linux;
    table.clock_ns = clock_of_test;
    table.yield = yield_of_test;
    table.sleep_ns = sleep_of_test;
    now = 1000 * US;
    yields = sleeps = asked = 0;
    ready_after = rounds < 0 ? INT32_MAX : rounds;
    fate = lost;
    weft_i_wait wait = {.ready = is_ready,
                        .lost = is_lost,
                        .deadline = limit == WEFT_I_NEVER ? WEFT_I_NEVER : now + limit,
                        .peers = peers,
                        .mode = mode};
    weft_i_os_now = &table;
    weft_status status = weft_i_wait_for(&wait);
    weft_i_os_now = &weft_i_os_linux;
    return status;
}

/* A look at a peer's life takes as long as a hop, and a peer on the same core waits meanwhile. */
TEST(test_wait_short_asks_nobody)
{
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, 5, WEFT_ERR_PEER_DEAD, WEFT_I_NEVER), WEFT_OK);
    CHECK_INT(yields, 5);
    CHECK_INT(asked, 0);
    CHECK_INT(sleeps, 0);
}

TEST(test_wait_long_asks_now_and_then)
{
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, 500, WEFT_OK, WEFT_I_NEVER), WEFT_OK);
    CHECK_INT(yields, 500);
    CHECK(asked >= 500 / 50 && asked <= 500 / 10);
}

TEST(test_wait_a_death_shows_soon)
{
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, -1, WEFT_ERR_PEER_DEAD, WEFT_I_NEVER),
              WEFT_ERR_PEER_DEAD);
    CHECK_INT(asked, 1);
    CHECK(yields <= 50);
    CHECK_INT(sleeps, 0);
}

/* The cause of a wait in vain counts, not its limit. */
TEST(test_wait_a_limit_asks_first)
{
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, -1, WEFT_ERR_PEER_DEAD, 0), WEFT_ERR_PEER_DEAD);
    CHECK_INT(yields, 0);
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, -1, WEFT_ERR_PEER_DEAD, 5 * US), WEFT_ERR_PEER_DEAD);
    CHECK_INT(yields, 5);
    CHECK_INT(wait_for(WEFT_I_WAIT_YIELD, -1, WEFT_OK, 5 * US), WEFT_ERR_TIMEOUT);
    CHECK_INT(asked, 1);
}

TEST(test_wait_a_sleeper_asks_each_time)
{
    CHECK_INT(wait_for(WEFT_I_WAIT_SLEEP, 4, WEFT_OK, WEFT_I_NEVER), WEFT_OK);
    CHECK_INT(sleeps, 4);
    CHECK_INT(yields, 0);
    CHECK_INT(asked, 4);
    CHECK_INT(wait_for(WEFT_I_WAIT_SLEEP, -1, WEFT_ERR_PEER_DEAD, WEFT_I_NEVER),
              WEFT_ERR_PEER_DEAD);
    CHECK_INT(sleeps, 0);
}

/* A sleeper that waits for one rank is woken by that one alone; one that does not say, by any. */
TEST(test_wait_rung_by)
{
    _Atomic uint32_t bell = WEFT_I_WAIT_RANK + 7;
    weft_i_wait_ring_by(&bell, 6);
    CHECK_INT(bell, WEFT_I_WAIT_RANK + 7);
    weft_i_wait_ring_by(&bell, 7);
    CHECK_INT(bell, 0);
    bell = WEFT_I_WAIT_ANYBODY;
    weft_i_wait_ring_by(&bell, 0);
    CHECK_INT(bell, 0);
    bell = WEFT_I_WAIT_RANK + 7; /* news that concern all */
    weft_i_wait_ring(&bell);
    CHECK_INT(bell, 0);
}

/* The more peers, the rarer the looks at all of them: a crowd must not spend its time on that. */
TEST(test_wait_crowd)
{
    peers = 8;
    CHECK_INT(wait_for(WEFT_I_WAIT_SLEEP, 400, WEFT_OK, WEFT_I_NEVER), WEFT_OK);
    int few = asked;
    peers = 1024;
    CHECK_INT(wait_for(WEFT_I_WAIT_SLEEP, 400, WEFT_OK, WEFT_I_NEVER), WEFT_OK);
    peers = 0;
    CHECK(few >= 390 && asked >= 10 && asked < few / 2);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
