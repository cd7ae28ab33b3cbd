/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "tensor/scope.h"

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

TEST(test_scope_root_stays)
{
    CHECK_STATUS(weft_scope_close(), WEFT_ERR_STATE);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
