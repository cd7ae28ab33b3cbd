/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: base/os/environ.c */
/* A variable that is in the environment for a while, beside threads that read and set others. */
#include "fault.h"
#include "harness.h"

#include "base/os/environ.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const one[] = {"WEFT_TEST_LENT=yes", NULL};

TEST(test_environ_lent)
{
    char **before = environ;
    const char *home = getenv("PATH");
    CHECK(!getenv("WEFT_TEST_LENT"));
    CHECK(weft_i_environ_lend(one));
    CHECK(getenv("WEFT_TEST_LENT") && !strcmp(getenv("WEFT_TEST_LENT"), "yes"));
    CHECK(getenv("PATH") == home);
    weft_i_environ_restore();
    CHECK(!getenv("WEFT_TEST_LENT") && environ == before);
}

/* What another thread sets meanwhile stays; only the entry goes. */
TEST(test_environ_set_meanwhile)
{
    CHECK(weft_i_environ_lend(one));
    setenv("WEFT_TEST_SET", "too", 1);
    CHECK(getenv("WEFT_TEST_LENT"));
    weft_i_environ_restore();
    CHECK(!getenv("WEFT_TEST_LENT") && getenv("WEFT_TEST_SET"));
    unsetenv("WEFT_TEST_SET");
}

/* What is lent hides what was set, which comes back. */
TEST(test_environ_several)
{
    static const char *const both[] = {"WEFT_TEST_OWN=lent", "WEFT_TEST_LENT=yes", NULL};
    setenv("WEFT_TEST_OWN", "own", 1);
    for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
        CHECK(weft_i_environ_lend(both));
        CHECK(!strcmp(getenv("WEFT_TEST_OWN"), "lent") && getenv("WEFT_TEST_LENT"));
        if (meanwhile)
            setenv("WEFT_TEST_SET", "too", 1);
        weft_i_environ_restore();
        CHECK(!strcmp(getenv("WEFT_TEST_OWN"), "own") && !getenv("WEFT_TEST_LENT"));
    }
    unsetenv("WEFT_TEST_SET");
    unsetenv("WEFT_TEST_OWN");
}

static void *lend_often(void *arg)
{
    for (int i = 0; i < 500; i++)
        if (weft_i_environ_lend(one))
            weft_i_environ_restore();
    return arg;
}

/* Two that load libraries at a time. */
TEST(test_environ_two_lenders)
{
    char **before = environ;
    pthread_t other;
    CHECK_INT(pthread_create(&other, NULL, lend_often, NULL), 0);
    lend_often(NULL);
    pthread_join(other, NULL);
    CHECK(environ == before);
}

static atomic_bool readers_end;

static void *read_variables(void *missed)
{
    while (!atomic_load(&readers_end))
        if (!getenv("PATH") || !getenv("WEFT_TEST_LAST"))
            *(bool *)missed = true;
    return NULL;
}

/* Threads that read find what is set, at any moment. */
TEST(test_environ_beside_readers)
{
    pthread_t reader;
    bool missed = false;
    setenv("WEFT_TEST_LAST", "1", 1);
    atomic_store(&readers_end, false);
    CHECK_INT(pthread_create(&reader, NULL, read_variables, &missed), 0);
    for (int i = 0; i < 2000; i++) {
        CHECK(weft_i_environ_lend(one));
        weft_i_environ_restore();
    }
    atomic_store(&readers_end, true);
    pthread_join(reader, NULL);
    unsetenv("WEFT_TEST_LAST");
    CHECK(!missed);
}

/* Without variables, and without memory for the list. */
TEST(test_environ_empty)
{
    char **before = environ;
    environ = NULL;
    CHECK(weft_i_environ_lend(one));
    bool lent = getenv("WEFT_TEST_LENT") != NULL;
    weft_i_environ_restore();
    CHECK(lent && !environ);
    environ = before;
}

TEST(test_environ_without_memory)
{
    char **before = environ;
    fault_arm(1);
    bool lent = weft_i_environ_lend(one);
    CHECK(fault_disarm());
    CHECK(!lent && environ == before);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
