/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of functional collectives share: ranks, grids of them, and tensors of one value.
 */
#ifndef WEFT_TESTS_FUNCTIONAL_JOBS_H
#define WEFT_TESTS_FUNCTIONAL_JOBS_H

#include "device.h"

#include "jobs.h"
#include "tensor/object/tensor.h"

#include <weft/weft.h>

/* A test with 2 ranks and with 4. */
#define SIZES_TEST(name_)                                                   \
    static void name_(int rank, int size);                                  \
    __attribute__((constructor)) static void harness_register_##name_(void) \
    {                                                                       \
        static harness_test tests[2] = {{.name = #name_, .ranks = 2},       \
                                        {.name = #name_, .ranks = 4}};      \
        for (int i = 0; i < 2; i++) {                                       \
            tests[i].ranks_body = name_;                                    \
            tests[i].label = HARNESS_LABEL;                                 \
            tests[i].hosts = HARNESS_HOSTS;                                 \
            tests[i].run = harness_run_ranks;                               \
            *harness_last = &tests[i];                                      \
            harness_last = &tests[i].next;                                  \
        }                                                                   \
    }                                                                       \
    static void name_(__attribute__((unused)) int rank, __attribute__((unused)) int size)

static void leave(weft_group *world)
{
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT));
    weft_clear_error();
    CHECK(device_was_used());
    CHECK(!weft_finish(world));
}

static weft_group *group_named_by(weft_group *world, weft_ranks naming)
{
    weft_group *group = weft_group_of(world, naming, "");
    if (!group)
        FAIL("weft_group_of: %s", weft_last_error());
    return group;
}

/* The group of a mesh of all ranks in one dimension. */
__attribute__((unused)) static weft_group *group_of_mesh(weft_group *world)
{
    weft_shape shape = WEFT_SHAPE(weft_size(world));
    return group_named_by(world, weft_ranks_mesh(weft_mesh_init(world, WEFT_CPU, shape, NULL)));
}

/* The group of this rank along a dimension of the mesh {{0, 1}, {2, 3}}: by its number and as a
 * slice by name it is the same. */
__attribute__((unused)) static weft_group *line_of_grid(weft_group *world, int dim)
{
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "dp,tp");
    weft_group *line = group_named_by(world, weft_ranks_mesh_dim(mesh, dim));
    weft_mesh *slice = weft_mesh_slice(mesh, dim ? "tp" : "dp");
    CHECK(group_named_by(world, weft_ranks_mesh(slice)) == line);
    return line;
}

/* Has every element this value?  Waits for the tensor, if need be. */
__attribute__((unused)) static bool all_are(weft_tensor *x, double value)
{
    if (!x || !weft_wait_tensor(x))
        return false;
    for (int64_t i = 0; i < weft_tensor_numel(x); i++)
        if (weft_item(x, i) != value)
            return false;
    return true;
}

#define CHECK_ALL(x_, shape_, value_)                                                 \
    do {                                                                              \
        weft_tensor *x__ = (x_);                                                      \
        double v__ = (double)(value_);                                                \
        if (!x__)                                                                     \
            FAIL("%s: %s", #x_, weft_last_error());                                   \
        if (!weft_i_shape_equal(weft_tensor_shape(x__), (shape_)))                    \
            FAIL("%s has another shape than %s", #x_, #shape_);                       \
        if (!all_are(x__, v__))                                                       \
            FAIL("%s is not %g everywhere, but %g ...", #x_, v__, weft_item(x__, 0)); \
    } while (0)

#endif
