/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: fabric/meet/meet.c, fabric/meet/start.c */
/* Ranks that are started by hand, each in a shell of its own, and what they are told. */
#include "base/share/keyed.h"
#include "launch_shell.h"

#include <weft/weft.h>

static int rank_main(const char *what)
{
    (void)what;
    weft_group *world = weft_init(NULL);
    float x = 1;
    if (world && weft_all_reduce_ptr(&x, &x, 1, WEFT_F32, WEFT_SUM, world) == WEFT_OK)
        printf("rank %d has %g\n", weft_rank(world), x);
    return weft_finish(world);
}

/* Both ranks, each with a shell as its parent; `env` goes before them. */
static int two_shells(const char *env)
{
    return shell(
        "export WORLD_SIZE=2 WEFT_MEET_TIMEOUT=10000 %s; "
        "{ RANK=1 sh -c \"$S x; exit \\$?\"; } & p=$!; RANK=0 sh -c \"$S x; exit \\$?\"; s=$?; "
        "wait $p || s=$?; exit $s",
        env);
}

TEST(test_by_hand_on_one_host)
{
    static const char *const addresses[] = {"MASTER_ADDR=127.0.0.1", "MASTER_ADDR=localhost",
                                            "MASTER_ADDR=127.0.0.1 MASTER_PORT=29533"};
    for (int i = 0; i < 3; i++) {
        CHECK_INT(two_shells(addresses[i]), 0);
        CHECK_CONTAINS(out, "rank 0 has 2");
        CHECK_CONTAINS(out, "rank 1 has 2");
        CHECK(!*err);
    }
}

/* An address of another host: the message says what to type, and does not speak of torchrun. */
TEST(test_by_hand_on_several_hosts)
{
    CHECK_INT(two_shells("MASTER_ADDR=192.0.2.1 MASTER_PORT=29533"), -WEFT_ERR_AUTH);
    CHECK_CONTAINS(err, "export WEFT_TOKEN=$(weft token)");
    CHECK_INT(count(err, "torchrun"), 0);
    CHECK_INT(two_shells("MASTER_ADDR=192.0.2.1"), -WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(err, "MASTER_ADDR and MASTER_PORT");
    CHECK_CONTAINS(err, "(started by hand, rank 0 of 2)");
    CHECK_INT(count(err, "torchrun"), 0);
}

/* Without any address two shells are two jobs: nobody waits in silence, nor fails without saying
 * what to do. */
TEST(test_by_hand_without_address)
{
    static const char hint[] = "ranks that are started by hand in several shells find each other "
                               "if all have MASTER_ADDR=127.0.0.1";
    CHECK_INT(shell("RANK=1 WORLD_SIZE=2 WEFT_MEET_TIMEOUT=50 $S x"), -WEFT_ERR_MISSING);
    CHECK_CONTAINS(err, "rank 0 never came to the meeting");
    CHECK_CONTAINS(err, hint);
    CHECK(!strstr(err, "waits for rank 0"));
    /* It says so while it waits, long before its limit. */
    CHECK_INT(shell("RANK=1 WORLD_SIZE=2 WEFT_MEET_TIMEOUT=600000 $S x & p=$!; "
                    "until grep -q MASTER_ADDR $D/err; do kill -0 $p || exit 1; sleep 0.05; done; "
                    "kill $p; wait $p"),
              128 + SIGTERM);
    CHECK_CONTAINS(err, "rank 1 of 2 waits for rank 0; ");
    CHECK_CONTAINS(err, hint);
}

/* The other shell has another port, or nobody has started rank 0. */
TEST(test_by_hand_with_another_port)
{
    CHECK_INT(shell("export RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29534; "
                    "WEFT_MEET_TIMEOUT=600000 $S x & p=$!; "
                    "until grep -q waits $D/err; do kill -0 $p || exit 1; sleep 0.05; done; "
                    "kill $p; wait $p"),
              128 + SIGTERM);
    CHECK_CONTAINS(err, "rank 1 of 2 waits for rank 0; start it in a shell of its own: RANK=0 "
                        "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29534 and the program; all "
                        "ranks must have the same MASTER_PORT");
    CHECK_INT(shell("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 WEFT_MEET_TIMEOUT=50 $S x"),
              -WEFT_ERR_MISSING);
    CHECK_CONTAINS(err,
                   "weft WARN [rank 1]: weft_init (started by hand, rank 1 of 2): rank 0 never "
                   "came to the meeting");
    CHECK_CONTAINS(err, "the same MASTER_PORT (here none)");
    CHECK_INT(count(err, "nobody of user"), 1);
}

/* One rank alone, until it has spoken: what it said while it waited is in `err`. */
static int wait_alone(const char *env)
{
    return shell("export %s; WEFT_MEET_TIMEOUT=600000 $S x & p=$!; "
                 "until grep -q waits $D/err; do kill -0 $p || exit 1; sleep 0.05; done; "
                 "kill $p; wait $p",
                 env);
}

/* Rank 0 is there first: it says who is missing, and what to type in the other shells. */
TEST(test_by_hand_rank_0_waits)
{
    CHECK_INT(wait_alone("RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29535"),
              128 + SIGTERM);
    CHECK_CONTAINS(err, "weft WARN [rank 0]: weft_init: rank 0 of 3 waits for ranks 1, 2; start "
                        "each in a shell of its own: RANK=1 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "
                        "MASTER_PORT=29535 and the program");
    CHECK_INT(wait_alone("RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost"), 128 + SIGTERM);
    CHECK_CONTAINS(err, "rank 0 of 2 waits for rank 1; start it in a shell of its own: RANK=1 "
                        "WORLD_SIZE=2 MASTER_ADDR=localhost and the program");
    /* Without an address it would not help to start the others. */
    CHECK_INT(wait_alone("RANK=0 WORLD_SIZE=2"), 128 + SIGTERM);
    CHECK_CONTAINS(err, "rank 0 of 2 waits for rank 1; ranks that are started by hand in several "
                        "shells find each other if all have MASTER_ADDR=127.0.0.1");
}

/* Who has come is not missed, and nobody says it twice. */
TEST(test_by_hand_one_is_missing)
{
    CHECK_INT(shell("export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29536 "
                    "WEFT_MEET_TIMEOUT=4000; RANK=2 $S x & p=$!; RANK=0 $S x; wait $p"),
              -WEFT_ERR_MISSING);
    CHECK_INT(count(err, "rank 0 of 3 waits for rank 1; start it"), 1);
    CHECK_INT(count(err, "rank 2 of 3 waits for rank 1; start it"), 1);
    CHECK_INT(count(err, " waits for "), 2);
    CHECK_CONTAINS(err, "of 3 ranks these never came: 1");
}

/* The same through a store of several hosts; the secret is not shown. */
TEST(test_by_hand_far_rank_0)
{
    char env[256], token[65];
    if (weft_i_keyed_load() == WEFT_ERR_UNSUPPORTED)
        SKIP("no libcrypto.so.3");
    memset(token, 'a', 64);
    token[64] = 0;
    snprintf(env, sizeof env, "RANK=1 WORLD_SIZE=2 WEFT_STORE_ADDR=127.0.0.1:29537 WEFT_TOKEN=%s",
             token);
    CHECK_INT(wait_alone(env), 128 + SIGTERM);
    CHECK_CONTAINS(err,
                   "weft WARN [rank 1]: weft_init: rank 1 of 2 waits for rank 0; start it in a "
                   "shell of its own: RANK=0 WORLD_SIZE=2 WEFT_STORE_ADDR=127.0.0.1:29537 "
                   "WEFT_TOKEN=(as here) and the program");
    CHECK(!strstr(err, token));
    memcpy(env, "RANK=0", 6);
    CHECK_INT(wait_alone(env), 128 + SIGTERM);
    CHECK_CONTAINS(err, "rank 0 of 2 waits for rank 1; start it in a shell of its own: RANK=1 ");
    CHECK(!strstr(err, token));
}

TEST(test_by_hand_token)
{
    CHECK_INT(shell("a=$($W token) && b=$($W token) && echo $a && [ $a != $b ]"), 0);
    CHECK_INT(strspn(out, "0123456789abcdef"), 64);
    CHECK(!strcmp(out + 64, "\n"));
    CHECK_INT(shell("$W token --help"), 0);
    CHECK_INT(shell("$W token now"), 2);
}

int main(int argc, char **argv)
{
    return launch_main(argc, argv, rank_main);
}
