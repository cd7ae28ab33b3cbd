/* SPDX-License-Identifier: Apache-2.0 */
/* Which weft this is.  The build reads its version from here, so that it stands in one place. */
#ifndef WEFT_VERSION_H
#define WEFT_VERSION_H

#include "weft/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION       "0.1.0"

/* How the library in use was built; all texts live as long as the library. */
typedef struct weft_version_info {
    const char
        *version; /* "0.1.0": may differ from WEFT_VERSION, against which the caller was compiled */
    const char *compiler;   /* "gcc 12.2.0" */
    const char *flags;      /* optimisation and debug flags */
    const char *sanitizers; /* "address,undefined", or empty */
    const char *target;     /* "x86_64-linux" */
    int assertions;         /* 1 if internal assertions are compiled in */
} weft_version_info;

/* The version of the library in use, "0.1.0".  Local, never fails. */
WEFT_API const char *weft_version(void);

/* How the library in use was built.  Local.  WEFT_ERR_INVALID_ARG if `out` is NULL. */
WEFT_API weft_status weft_version_describe(weft_version_info *out);

#ifdef __cplusplus
}
#endif

#endif
