/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/scope.c */
#include "harness.h"
#include "said.h"

#include "tensor/object/scope.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int destroyed;

static void count(weft_i_object *object)
{
    destroyed++;
    weft_i_object_free(object);
}

static void *make(void)
{
    return weft_i_object_new(WEFT_I_TENSOR, sizeof(weft_i_object), count);
}

TEST(test_scope_owns)
{
    destroyed = 0;
    CHECK_OK(weft_scope_open());
    CHECK(make() && make());
    CHECK_OK(weft_scope_open());
    CHECK(make());
    CHECK_OK(weft_scope_close());
    CHECK_INT(destroyed, 1);
    CHECK_OK(weft_scope_close());
    CHECK_INT(destroyed, 3);
}

/* In a child, whose standard error is a pipe: `many` objects in one scope, then as many in turns that
 * have scopes of their own, and a second pile. */
static void pile_up(void)
{
    for (int turn = 0; turn < 4; turn++) {
        weft_scope_open();
        for (int i = 0; i < WEFT_I_SCOPE_MANY / 2; i++)
            make();
        weft_scope_close();
    }
    fputs("piles:", stderr);
    for (int pile = 0; pile < 2; pile++) {
        weft_scope_open();
        for (int i = 0; i < WEFT_I_SCOPE_MANY + 5; i++)
            make();
        weft_scope_close();
    }
    _exit(0);
}

TEST(test_scope_warns_of_piles)
{
    char text[4096];
    hear(pile_up, text, sizeof text);
    CHECK(!strncmp(text, "piles:", 6)); /* turns with scopes of their own are no reason */
    CHECK_CONTAINS(text, "a scope holds 100000 objects");
    CHECK_CONTAINS(text, "weft_scope_open()");
    CHECK(!strstr(strstr(text, "a scope holds") + 1, "a scope holds")); /* once */
}

TEST(test_scope_keep_and_release)
{
    destroyed = 0;
    CHECK_OK(weft_scope_open());
    void *kept = weft_keep(make());
    void *released = make();
    weft_release(released);
    CHECK_INT(destroyed, 1);
    CHECK_OK(weft_scope_close());
    CHECK_INT(destroyed, 1);
    weft_release(kept);
    CHECK_INT(destroyed, 2);
    CHECK(weft_keep(NULL) == NULL);
    weft_release(NULL);
}

static void *leave_scopes_open(void *arg)
{
    (void)arg;
    make(); /* the thread's own scope has it */
    for (int i = 0; i < 2; i++)
        if (weft_scope_open() == WEFT_OK)
            make();
    return NULL;
}

/* A thread that ends takes along what its open scopes own. */
TEST(test_scope_of_a_thread_that_ends)
{
    pthread_t thread;
    destroyed = 0;
    CHECK(pthread_create(&thread, NULL, leave_scopes_open, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(destroyed, 3);
}

TEST(test_scope_root_stays)
{
    CHECK_STATUS(weft_scope_close(), WEFT_ERR_STATE);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
