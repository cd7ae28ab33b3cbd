/* SPDX-License-Identifier: Apache-2.0 */
/* Folds block by block; what waits for its neighbour lies on the stack.  See fold_hosts.h. */
#include "kernels/fold/fold_hosts.h"

#include "base/os/assert.h"
#include "base/share/dtype.h"

#include <string.h>

enum { BLOCK = 256, AT_ONCE = 32 }; /* elements of a block; inputs whose places are found at once */

typedef struct tree {
    const weft_i_fold_hosts *how;
    weft_i_fold partial, join;
    const void *const *in;
    const double *factors;
    size_t at, n; /* bytes into each input; elements */
} tree;

/* The partial of one host.  Places are found for some inputs at a time, which goes on from what was
 * folded before: the order is the same. */
static void fold_host(const tree *t, int host, double to[BLOCK])
{
    const weft_i_fold_hosts *how = t->how;
    int first = how->firsts[host], end = how->firsts[host + 1];
    WEFT_ASSERT(first < end);
    void *out = to;
    for (int from = first; from < end;) {
        _Alignas(64) double more[BLOCK];
        const void *in[AT_ONCE];
        int n = end - from < AT_ONCE ? end - from : AT_ONCE;
        /* One more at a time behind the first: a partial of several would be another order. */
        n = from == first ? n : 1;
        void *into = from == first ? out : more;
        for (int i = 0; i < n; i++)
            in[i] = (const char *)t->in[from + i] + t->at;
        t->partial(&into, 1, in, n, t->n, t->factors ? t->factors + from : NULL);
        if (from != first)
            t->join(&out, 1, (const void *[]){to, more}, 2, t->n, NULL);
        from += n;
    }
}

static void fold_node(const tree *t, int node, int width, double to[BLOCK]);

static void join(const tree *t, int left, int width, double to[BLOCK])
{
    _Alignas(64) double right[BLOCK];
    fold_node(t, left, width, to);
    fold_node(t, left + 1, width, right);
    t->join(&(void *){to}, 1, (const void *[]){to, right}, 2, t->n, NULL);
}

/* Node `node` of those that have 2^k = `width` of the nodes below them; 0: the hosts themselves; 1: the
 * power of two that is left when the first ones are pairs. */
static void fold_node(const tree *t, int node, int width, double to[BLOCK])
{
    int extra = t->how->hosts - weft_i_fold_whole(t->how->hosts);
    if (width > 1)
        join(t, 2 * node, width / 2, to);
    else if (width == 1 && node < extra)
        join(t, 2 * node, 0, to);
    else
        fold_host(t, width == 1 ? node + extra : node, to);
}

void weft_i_fold_hosts_run(const weft_i_fold_hosts *how, void *const *out, int outputs,
                           const void *const *in, size_t count, const double *factors)
{
    size_t size = weft_i_dtype_size(how->dtype);
    tree t = {.how = how,
              .partial = weft_i_fold_partial_find(how->dtype, how->op),
              .join = weft_i_fold_join_find(how->dtype, how->op),
              .in = in,
              .factors = how->op == WEFT_I_FOLD_PREMUL_SUM ? factors : NULL};
    WEFT_ASSERT(t.partial && t.join && how->hosts > 1);
    for (size_t done = 0; done < count; done += BLOCK) {
        _Alignas(64) double sum[BLOCK], result[BLOCK];
        t.at = done * size;
        t.n = count - done < BLOCK ? count - done : BLOCK;
        fold_node(&t, 0, weft_i_fold_whole(how->hosts), sum);
        weft_i_fold_finish(how->dtype, how->op, result, sum, t.n, how->firsts[how->hosts]);
        for (int i = 0; i < outputs; i++)
            memcpy((char *)out[i] + t.at, result, t.n * size);
    }
}
