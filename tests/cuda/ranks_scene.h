/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that use one device, as processes or threads: on the software driver, or on a GPU with
 * WEFT_TEST_CUDA=real.
 */
#ifndef WEFT_TESTS_CUDA_RANKS_SCENE_H
#define WEFT_TESTS_CUDA_RANKS_SCENE_H

#include "harness_ranks.h"
#include "jobs.h"

#include "base/report/record.h"
#include "base/report/status.h"
#include "cuda/model.h"
#include "fabric/group/group.h"
#include "weft/weft.h"

/* The one of all ranks, or with WEFT_TEST_PEERS this rank's own: scripts/gpu-check peers. */
#define GPU WEFT_CUDA(getenv("WEFT_TEST_PEERS") ? harness_this_rank : 0)

static inline bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static inline void check_same(const char *what, weft_tensor *there, weft_tensor *here)
{
    if (!there || !here)
        FAIL("%s: %s", what, weft_last_error());
    if (weft_tensor_device(there) != GPU || !weft_equal(there, here))
        FAIL("%s differs: %s", what, weft_last_error());
}

/* Did the last operation go this way? */
static inline void check_way(weft_group *world, const char *way)
{
    weft_i_record_entry last;
    if (!weft_i_record_last(weft_i_group_record(world), &last))
        FAIL("nothing is recorded");
    const char *name = weft_i_record_way_name(last.channel);
    if (!name || strcmp(name, way))
        FAIL("%s went by way of \"%s\", not \"%s\"", last.name, name ? name : "(none)", way);
}

static inline void sync_fails(weft_status status)
{
    CHECK_STATUS(weft_stream_sync(weft_stream_current(GPU), 30000), status);
}

static inline int scene_main(int argc, char **argv)
{
    if (!is_real()) {
        model_install();
        model.multiprocessors = 24; /* room for messages with all ranks at once */
    }
    setenv("WEFT_ALLOW_OVERLAP", "1", 1); /* all ranks use one device */
    return harness_main(argc, argv);
}

#endif
