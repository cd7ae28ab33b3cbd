/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that NCCL carries for: on the stand-in over the software driver, each with a device of its
 * own; or with WEFT_TEST_CUDA=real on NCCL itself and one GPU, over sockets.
 */
#ifndef WEFT_TESTS_NCCL_SCENE_H
#define WEFT_TESTS_NCCL_SCENE_H

#define HARNESS_LABEL nccl_label
static inline const char *nccl_label(const char *backend);
#include "jobs.h"

#include "backends/nccl/carrier.h"
#include "base/report/record.h"
#include "base/report/status.h"
#include "coll/device/carrier.h"
#include "cuda/model.h"
#include "fabric/group/group.h"
#include "nccl/standin.h"

static inline bool is_real(void)
{
    const char *wanted = getenv("WEFT_TEST_CUDA");
    return wanted && !strcmp(wanted, "real");
}

static inline const char *nccl_label(const char *backend)
{
    bool threads = !strcmp(backend, "threads");
    return is_real() ? "nccl" : threads ? "softnccl-threads" : "softnccl";
}

/* A device for each rank where there are several. */
#define GPU WEFT_CUDA(is_real() ? 0 : rank)

/* What the stand-in alone can do is not asked of NCCL. */
#define ONLY_STANDIN()                                                   \
    do {                                                                 \
        if (is_real())                                                   \
            SKIP("needs the stand-in's faults, or a GPU for each rank"); \
    } while (0)

static inline weft_group *begin(int rank, int64_t limit_ms)
{
    char id[16];
    snprintf(id, sizeof id, "rank-%d", rank);
    if (is_real()) /* one GPU: NCCL takes the ranks for two hosts */
        setenv("NCCL_HOSTID", id, 1);
    weft_group *world = weft_keep(join(limit_ms));
    weft_scope_open(); /* of what the test makes: see end */
    return world;
}

/* A rank that has left: everything of NCCL's has been given back. */
static inline void let_go(weft_group *world)
{
    weft_release(world);
    for (int ms = 0; ms < 10000 && weft_i_nccl_aborting(); ms++)
        rest_us(1000);
    if (!is_real() && !harness_in_threads)
        CHECK_INT(standin_live(), 0);
}

static inline void end(weft_group *world)
{
    weft_scope_close();
    weft_clear_error();
    CHECK(!weft_finish(world));
    let_go(world);
}

static inline weft_tensor *operand(weft_dtype dtype, int of, weft_shape shape, weft_device device)
{
    weft_tensor *x = weft_empty(dtype, WEFT_CPU, shape);
    int64_t n = weft_tensor_numel(x);
    weft_tensor *flat = weft_view(x, WEFT_SHAPE(n));
    for (int64_t i = 0; i < n; i++)
        CHECK_OK(weft_fill(weft_slice(flat, 0, i, i + 1, 1), (double)((i * 7 + of * 3) % 11 - 5)));
    return weft_to(x, dtype, device);
}

/* A large one: its rows are all the same. */
static inline weft_tensor *large(weft_dtype dtype, int of, int64_t rows, weft_device device)
{
    weft_tensor *row = operand(dtype, of, WEFT_SHAPE(1, 1000), WEFT_CPU);
    return weft_to(weft_contiguous(weft_expand(row, WEFT_SHAPE(rows, 1000))), dtype, device);
}

static inline void check_same(const char *what, weft_tensor *there, weft_tensor *here)
{
    if (!there || !here)
        FAIL("%s: %s", what, weft_last_error());
    if (weft_tensor_device(there) == WEFT_CPU || !weft_equal(there, here))
        FAIL("%s differs: %s", what, weft_last_error());
}

/* The group's communicator, NULL if NCCL does not serve it. */
static inline weft_i_nccl_comm *comm_of(weft_group *group)
{
    weft_i_carrier *carrier = weft_i_carrier_opened(group, WEFT_I_KIND_CUDA);
    return carrier && carrier->state ? weft_i_nccl_carrier_comm(carrier->state) : NULL;
}

/* How many calls NCCL was given in this group. */
static inline uint64_t given(weft_group *group)
{
    return comm_of(group) ? comm_of(group)->given : 0;
}

#define CHECK_GIVEN(group_, before_, more_) CHECK_INT(given(group_), (before_) + (uint64_t)(more_))

static inline int scene_main(int argc, char **argv)
{
    if (!is_real()) {
        model_install();
        standin_install();
        model.devices = 4;
    } else { /* ranks on one GPU meet over sockets */
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    }
    setenv("WEFT_NCCL", "always", 1);
    return harness_main(argc, argv);
}

#endif
