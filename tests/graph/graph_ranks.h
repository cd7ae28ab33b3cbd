/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of ranks that are compiled by backend `c`: how a test writes one, and what explains it. */
#ifndef WEFT_TESTS_GRAPH_RANKS_H
#define WEFT_TESTS_GRAPH_RANKS_H

#include "functional_jobs.h"
#include "harness_cache.h"

enum { TEXT = 1 << 16 };

static _Thread_local char text[TEXT];

#define FUNCTION(name_)                                                               \
    static weft_status name_(weft_tensor *const *in, __attribute__((unused)) int ins, \
                             weft_tensor **out, __attribute__((unused)) int outs,     \
                             __attribute__((unused)) void *world)

/* `opts` besides what all of them have. */
static weft_compiled *compile_with(weft_compile_opts opts, weft_graph_function function,
                                   weft_group *world)
{
    opts.backend = "c";
    opts.fullgraph = true;
    weft_compiled *compiled = weft_compile(function, world, &opts);
    CHECK(compiled != NULL);
    return compiled;
}

static const char *explain(const weft_compiled *compiled)
{
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    return text;
}

#endif
