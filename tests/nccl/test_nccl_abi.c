/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: backends/nccl/library.h */
/*
 * What src/backends/nccl/library.h declares, beside nccl.h, where there is one: sizes, offsets,
 * constants, and whether every function is declared there.  And that a library which is installed
 * has them all.
 */
#include "harness.h"

#include "backends/nccl/library.h"
#include "base/report/status.h"

#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 22800
#define HAS_NCCL_H
#endif
#endif
#endif

#ifdef HAS_NCCL_H
#define SAME_SIZE(ours_, theirs_) \
    _Static_assert(sizeof(ours_) == sizeof(theirs_), #theirs_ " has another size")
#define SAME(ours_, member_, theirs_)                                                      \
    _Static_assert(offsetof(weft_i_nccl_config, ours_) == offsetof(ncclConfig_t, theirs_), \
                   #theirs_ " lies elsewhere in the config");                              \
    SAME_SIZE(((weft_i_nccl_config *)0)->member_, ((ncclConfig_t *)0)->theirs_)

SAME_SIZE(weft_i_nccl_result, ncclResult_t);
SAME_SIZE(weft_i_nccl_id, ncclUniqueId);
SAME_SIZE(weft_i_nccl_raw, ncclComm_t);
SAME_SIZE(weft_i_nccl_window, ncclWindow_t);
SAME_SIZE(weft_i_cu_stream, cudaStream_t);
SAME_SIZE(int, ncclDataType_t);
SAME_SIZE(int, ncclRedOp_t);
SAME_SIZE(int, ncclScalarResidence_t);
SAME(size, size, size);
SAME(magic, magic, magic);
SAME(version, version, version);
SAME(blocking, blocking, blocking);
SAME(cluster_size, cluster_size, cgaClusterSize);
SAME(least_blocks, least_blocks, minCTAs);
SAME(most_blocks, most_blocks, maxCTAs);
SAME(network, network, netName);
SAME(split_share, split_share, splitShare);
SAME(traffic_class, traffic_class, trafficClass);
SAME(name, name, commName);
SAME(collnet, collnet, collnetEnable);
SAME(policy, policy, CTAPolicy);
SAME(shrink_share, shrink_share, shrinkShare);
SAME(nvls_blocks, nvls_blocks, nvlsCTAs);
SAME(channels_per_peer, channels_per_peer, nChannelsPerNetPeer);
SAME(nvlink_centric, nvlink_centric, nvlinkCentricSched);

#define CONSTANT(name_, value_) _Static_assert(name_ == (value_), #name_ " has another value");
WEFT_I_NCCL_CONSTANTS(CONSTANT)
#undef CONSTANT
_Static_assert(NCCL_CONFIG_UNDEF_INT == WEFT_I_NCCL_UNDEF, "the number that means none");
#endif

TEST(test_nccl_abi)
{
#ifndef HAS_NCCL_H
    SKIP("there is no nccl.h of NCCL 2.28 or later");
#else
    size_t declared = 0;
#define FN(name_, parameters_) declared += sizeof(&(name_)) == sizeof(void (*)(void));
#define OPTIONAL(name_, parameters_)
#include "backends/nccl/library.def"
#undef FN
#undef OPTIONAL
    CHECK(declared > 20);
    ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    CHECK(theirs.magic == WEFT_I_NCCL_MAGIC && theirs.blocking == WEFT_I_NCCL_UNDEF);
    CHECK(theirs.size >= sizeof(weft_i_nccl_config));
    if (NCCL_VERSION_CODE < 22900)
        CHECK_INT(theirs.size, sizeof(weft_i_nccl_config));
#endif
}

/* Every function is in a library that is installed and fit, and it tells its version. */
TEST(test_nccl_library)
{
    const weft_i_nccl *nccl;
    if (weft_i_nccl_load(&nccl) < 0)
        SKIP("%s", weft_last_error());
    CHECK(nccl->version >= WEFT_I_NCCL_OLDEST && nccl->version < WEFT_I_NCCL_BEYOND);
    CHECK(nccl->ncclCommAbort && nccl->ncclGetErrorString);
    CHECK_INT(nccl->ncclGetLsaDevicePointer != NULL, nccl->version >= 22902);
    CHECK_CONTAINS(nccl->ncclGetErrorString(WEFT_I_ncclInvalidUsage), "invalid usage");
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
