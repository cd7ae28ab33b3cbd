/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of compiled functions share. */
#ifndef GRAPH_PATTERN_H
#define GRAPH_PATTERN_H

#include "harness.h"

#include "base/report/status.h"

#include <weft/weft.h>

#define ARGS(...)     \
    (weft_tensor *[]) \
    {                 \
        __VA_ARGS__   \
    }
#define FUNCTION(name_)                                                          \
    static weft_status name_(__attribute__((unused)) weft_tensor *const *in,     \
                             __attribute__((unused)) int ins, weft_tensor **out, \
                             __attribute__((unused)) int outs, __attribute__((unused)) void *user)

static inline weft_compiled *compile(weft_graph_function function, void *user, const char *backend)
{
    weft_compile_opts opts = WEFT_COMPILE_OPTS;
    opts.backend = backend;
    opts.fullgraph = true;
    opts.name = "fn";
    weft_compiled *compiled = weft_compile(function, user, &opts);
    if (!compiled)
        FAIL("%s", weft_last_error());
    return compiled;
}

static inline weft_compiled_info info_of(const weft_compiled *compiled)
{
    weft_compiled_info info;
    CHECK_OK(weft_compiled_describe(compiled, &info));
    return info;
}

static inline weft_tensor *vector(int n, double start)
{
    return weft_arange(WEFT_F32, WEFT_CPU, start, start + n, 1);
}

static inline weft_tensor *sum_of(weft_tensor *x)
{
    return weft_sum(x, NULL, 0, false);
}

/* The same tag, values, gradients (none on both sides is the same) and requirement. */
static inline void check_same_grad(weft_tensor *a, weft_tensor *b)
{
    weft_tensor *x = weft_grad(a), *y = weft_grad(b);
    CHECK_INT(weft_is_parameter(a), weft_is_parameter(b));
    CHECK_INT(weft_requires_grad(a), weft_requires_grad(b));
    CHECK(weft_equal(a, b));
    CHECK((x == NULL) == (y == NULL));
    CHECK(!x || weft_equal(x, y));
}

#endif
