/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/cuda/ranks/vdev.c, backends/cuda/ranks/tile.c, backends/cuda/ranks/symm.c */
/*
 * all_to_all with sizes in memory, tiles, puts and gets on symmetric memory of backend cuda; ranks as processes
 * and as threads.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#define HARNESS_LABEL cuda_label
static const char *cuda_label(const char *backend);
#include "cuda/move_scene.h"

#include "cuda/model.h"

static bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static const char *cuda_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return is_real() ? threads ? "cuda-threads" : "cuda"
           : threads ? "softcuda-threads"
                     : "softcuda";
}

RANKS_TEST(test_symm_vdev_1, 1)
{
    scene_vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_3, 3)
{
    scene_vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_4, 4)
{
    scene_vdev(rank, size);
}

RANKS_TEST(test_symm_vdev_refused, 3)
{
    scene_vdev_refused(rank, size);
}

RANKS_TEST(test_symm_tile_reduce, 4)
{
    scene_tile_reduce(rank, size);
}

RANKS_TEST(test_symm_multi_root_tile_reduce, 4)
{
    scene_multi_root(rank, size);
}

/* Tiles of host and device together are refused, before anything happens. */
RANKS_TEST(test_symm_tile_devices, 2)
{
    weft_group *world = join(30000);
    weft_tensor *there = scene_symmetric(WEFT_F32, WEFT_SHAPE(4, 4));
    weft_tensor *here = weft_symm_empty(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4));
    weft_tensor *out = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(4, 4), -7);
    weft_tensor *out_there = weft_full(WEFT_F32, SCENE_GPU, WEFT_SHAPE(4, 4), -7);
    weft_tensor *mixed[] = {there, here}, *turned[] = {here, there};
    const int roots[] = {rank, 1 - rank};
    CHECK(here && out && out_there);
    CHECK_STATUS(weft_symm_tile_reduce(out, there, WEFT_SUM, rank, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tiles on cuda:0 and cpu");
    CHECK_STATUS(weft_symm_tile_reduce(out_there, here, WEFT_SUM, rank, world), WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tiles on cpu and cuda:0");
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(out_there, mixed, roots, 2, WEFT_SUM, world),
                 WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tiles on cuda:0 and cpu");
    CHECK_STATUS(weft_symm_multi_root_tile_reduce(out, turned, roots, 2, WEFT_SUM, world),
                 WEFT_ERR_TYPE);
    CHECK_CONTAINS(weft_last_error(), "tiles on cpu and cuda:0");
    CHECK(weft_item(out, 0) == -7 && weft_item(scene_here(out_there), 15) == -7);
    CHECK_OK(weft_group_barrier(world, WEFT_DEFAULT)); /* nothing has left a mark */
    (void)size;
    finish(world);
}

RANKS_TEST(test_symm_put_get, 3)
{
    scene_put_get(rank, size, false);
}

int main(int argc, char **argv)
{
    if (!is_real())
        model_install();
    weft_symm_allow_overlap(true);
    return harness_main(argc, argv);
}
