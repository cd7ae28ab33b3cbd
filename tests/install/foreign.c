/* SPDX-License-Identifier: Apache-2.0 */
/* A program from outside, written against the installed library: no path of the source tree, C and
 * C++ alike. */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

int main(void)
{
    weft_env_info env;
    if (strcmp(weft_version(), WEFT_VERSION)) {
        fprintf(stderr, "library %s, headers %s\n", weft_version(), WEFT_VERSION);
        return 1;
    }
    if (weft_scope_open() != WEFT_OK || weft_scope_close() != WEFT_OK ||
        weft_scope_close() != WEFT_ERR_STATE)
        return 1;
    if (weft_env_describe(-1, &env) != WEFT_ERR_INVALID_ARG || !strstr(weft_last_error(), "-1"))
        return 1;
    return printf("weft %s: %d settings\n", weft_version(), weft_env_count()) < 0;
}
