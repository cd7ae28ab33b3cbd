/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of the peers' programs; see bench_tree.h. */
#include "bench_tree.h"

#include <string.h>
#include <unistd.h>

/* The folder of this command; 0 if the system does not tell. */
static size_t own_folder(char out[BENCH_TREE_PATH])
{
    ssize_t length = readlink("/proc/self/exe", out, BENCH_TREE_PATH - 1);
    out[length > 0 ? length : 0] = 0;
    char *slash = strrchr(out, '/');
    if (!slash)
        return 0;
    *slash = 0;
    return (size_t)(slash - out);
}

static int has_peers(const bench_tree *tree)
{
    char file[BENCH_TREE_PATH + 32];
    snprintf(file, sizeof file, "%s/bench/peers/mpi.c", tree->root);
    return access(file, R_OK) == 0;
}

int bench_tree_find(bench_tree *out)
{
    char folder[BENCH_TREE_PATH];
    size_t length = own_folder(folder);
    if (length &&
        length + sizeof WEFT_BIN_TO_SHARE + sizeof WEFT_BIN_TO_INCLUDE < BENCH_TREE_PATH) {
        snprintf(out->root, sizeof out->root, "%.*s/%s", (int)length, folder, WEFT_BIN_TO_SHARE);
        snprintf(out->headers, sizeof out->headers, "%.*s/%s", (int)length, folder,
                 WEFT_BIN_TO_INCLUDE);
        if (has_peers(out))
            return 0;
    }
    snprintf(out->root, sizeof out->root, "%s", WEFT_SOURCE);
    snprintf(out->headers, sizeof out->headers, "%s/include", WEFT_SOURCE);
    return has_peers(out) ? 0 : -1;
}

FILE *bench_tree_python(const char *script, int limit_s)
{
    char command[2 * BENCH_TREE_PATH];
    bench_tree tree;
    if (bench_tree_find(&tree) < 0 || strchr(tree.root, '\'')) /* which would end the quotes */
        return NULL;
    snprintf(command, sizeof command, "timeout %d python3 '%s/bench/peers/%s' 2>/dev/null", limit_s,
             tree.root, script);
    return popen(command, "r");
}
