/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_to_all with sizes in memory, tiles, puts and gets on symmetric memory of backend cuda; ranks as processes
 * and as threads.  On the software driver, or on a GPU with WEFT_TEST_CUDA=real.
 */
#define HARNESS_LABEL(backend_) cuda_label(backend_)
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
