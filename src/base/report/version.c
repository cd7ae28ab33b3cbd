/* SPDX-License-Identifier: Apache-2.0 */
/* Which weft this is and how it was built; the build passes its flags as WEFT_BUILD_FLAGS and
 * WEFT_BUILD_SANITIZE. */
#include "weft/version.h"

#include "base/report/status.h"

#if defined(__clang__)
#define COMPILER __VERSION__ /* names itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined(__x86_64__)
#define TARGET "x86_64-linux"
#elif defined(__aarch64__)
#define TARGET "aarch64-linux"
#else
#define TARGET "other-linux"
#endif

#ifdef NDEBUG
enum { ASSERTIONS = 0 };
#else
enum { ASSERTIONS = 1 };
#endif

const char *weft_version(void)
{
    return WEFT_VERSION;
}

weft_status weft_version_describe(weft_version_info *out)
{
    if (!out)
        return weft_i_fail(WEFT_ERR_INVALID_ARG, "weft_version_describe: out is NULL");
    *out = (weft_version_info){
        .version = WEFT_VERSION,
        .compiler = COMPILER,
        .flags = WEFT_BUILD_FLAGS,
        .sanitizers = WEFT_BUILD_SANITIZE,
        .target = TARGET,
        .assertions = ASSERTIONS,
    };
    return WEFT_OK;
}
