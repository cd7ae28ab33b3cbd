/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: tensor/object/shard.c */
/* Places of parts: what is noted is found again, and what does not fit is refused. */
#include "fault.h"
#include "harness.h"

#include <weft/weft.h>

static weft_shard_place place_of(weft_shape full, int64_t first)
{
    weft_shard_place place = WEFT_SHARD_PLACE_INIT;
    place.full = full;
    place.offset[0] = first;
    return place;
}

TEST(test_shard_is_found_again)
{
    weft_tensor *part = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4));
    weft_shard_place place = place_of(WEFT_SHAPE(9, 4), 6), found;
    CHECK(!weft_shard_place_of(part, &found));
    CHECK_INT(found.full.dim[0], 3);
    CHECK_OK(weft_shard_mark(part, &place));
    CHECK(weft_shard_place_of(part, &found));
    CHECK(weft_shard_place_of(part, NULL));
    CHECK_INT(found.full.dim[0], 9);
    CHECK_INT(found.offset[0], 6);
    CHECK(!weft_shard_place_of(weft_clone(part), NULL)); /* another tensor */
    place.offset[0] = 0;
    CHECK_OK(weft_shard_mark(part, &place));
    CHECK(weft_shard_place_of(part, &found));
    CHECK_INT(found.offset[0], 0);
    CHECK_OK(weft_shard_mark(part, NULL));
    CHECK(!weft_shard_place_of(part, &found));
    CHECK(!weft_shard_place_of(NULL, &found));
}

TEST(test_shard_holds_its_mesh)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *part = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_shard_place place = place_of(WEFT_SHAPE(3), 0), found;
    CHECK_OK(weft_scope_open());
    place.mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(1), "dp");
    CHECK_OK(weft_shard_mark(part, &place));
    CHECK_OK(weft_scope_close());
    CHECK(weft_shard_place_of(part, &found));
    CHECK_INT(weft_mesh_size(found.mesh, 0), 1);
    weft_release(part);
    CHECK_OK(weft_finish(world));
}

static void check_refused(weft_tensor *part, weft_shard_place place, const char *why)
{
    CHECK_STATUS(weft_shard_mark(part, &place), WEFT_ERR_INVALID_ARG);
    CHECK_CONTAINS(weft_last_error(), why);
    CHECK(!weft_shard_place_of(part, NULL));
}

TEST(test_shard_refuses_what_does_not_fit)
{
    weft_tensor *part = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3, 4));
    weft_shard_place place = place_of(WEFT_SHAPE(9, 4), 7);
    check_refused(part, place, "does not lie inside");
    place.offset[0] = -1;
    check_refused(part, place, "does not lie inside");
    check_refused(part, place_of(WEFT_SHAPE(9), 0), "differ in dimensions");
    place = place_of(WEFT_SHAPE(9, 4), 0);
    place.stripes = 2;
    check_refused(part, place, "no multiple of the stripes");
    place.stripes = 3; /* a row of each piece of three */
    place.offset[0] = 2;
    CHECK_OK(weft_shard_mark(part, &place));
    CHECK_OK(weft_shard_mark(part, NULL));
    place.offset[0] = 3;
    check_refused(part, place, "does not lie inside");
    place.stripe_dim = 2;
    check_refused(part, place, "no such dimension");
    place.stripes = -1;
    check_refused(part, place, "negative");
    place.size = 3;
    check_refused(part, place, "size of 3");
    CHECK_STATUS(weft_shard_mark(NULL, &place), WEFT_ERR_INVALID_ARG);
}

TEST(test_shard_without_memory)
{
    weft_tensor *part = weft_zeros(WEFT_F32, WEFT_CPU, WEFT_SHAPE(3));
    weft_shard_place place = place_of(WEFT_SHAPE(9), 6);
    for (int n = 1;; n++) {
        fault_arm(n);
        weft_status status = weft_shard_mark(part, &place);
        bool fired = fault_disarm();
        if (!fired)
            CHECK_OK(status);
        else
            CHECK_STATUS(status, WEFT_ERR_NO_MEMORY);
        CHECK(weft_shard_place_of(part, NULL) == !fired);
        if (!fired)
            break;
    }
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
