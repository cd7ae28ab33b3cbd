/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: graph/run/work.c */
/*
 * What explains a compiled function: where its time goes, in few lines for a large one, with numbers of the
 * graph that is printed; all of it on demand.
 */
#include "graph_both.h"
#include "harness_cache.h"

enum { LAYERS = 12, WIDTH = 16 };

/* Twelve layers of two products with a normalisation, as a model has. */
FUNCTION(model)
{
    weft_tensor *x = in[0];
    for (int i = 0; i < LAYERS; i++) {
        weft_tensor *h = weft_layer_norm(x, 1, NULL, NULL, 1e-5);
        h = weft_gelu(weft_add(weft_matmul(h, in[1]), in[2]));
        x = weft_add(x, weft_softmax(weft_matmul(h, in[1]), -1));
    }
    out[0] = weft_sum(x, NULL, 0, false);
    return WEFT_OK;
}

static int lines_of(const char *at)
{
    int lines = 0;
    for (; (at = strchr(at, '\n')); at++)
        lines++;
    return lines;
}

static weft_compiled *run_model(int times)
{
    weft_seed(5);
    weft_tensor *out, *in[3] = {weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(8, WIDTH)),
                                weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH, WIDTH)),
                                weft_randn(WEFT_F32, WEFT_CPU, WEFT_SHAPE(WIDTH))};
    CHECK_OK(weft_require_grad(in[1], true));
    weft_compiled *compiled = compile(model, NULL);
    for (int i = 0; i < times; i++) {
        CHECK_OK(weft_compiled_call(compiled, in, 3, &out, 1));
        CHECK_OK(weft_backward(out));
    }
    weft_tensor *plain;
    CHECK_OK(model(in, 3, &plain, 1, NULL));
    check_bits("model", plain, out);
    return compiled;
}

TEST(test_explain_a_large_function_in_few_lines)
{
    weft_compiled *compiled = run_model(6);
    int length = weft_compiled_explain(compiled, NULL, 0);
    CHECK(length > 0 && length < TEXT);
    CHECK_INT(weft_compiled_explain(compiled, text, sizeof text), length);
    CHECK(lines_of(text) <= 150);
    CHECK_INT(count_of(" a run, in 4 measured of 6"), 2); /* forward and backward */
    CHECK_INT(count_of("% of the time, "), 2);
    CHECK_CONTAINS(text, "24  mm");
    CHECK_CONTAINS(text, "fused groups");
    CHECK_CONTAINS(text, "not fused: 24 x mm: a product, which the matrix library computes");
    CHECK_CONTAINS(text, "weft_compiled_details");
    CHECK_INT(count_of("graph \"fn\" {"), 0);
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    CHECK_INT(count_of("graph \"fn\" {"), 2);
    CHECK(count_of("void FUSED(") > 0);
    CHECK(lines_of(text) > 150);
}

/* The longest nodes are named as the graph that is printed names them. */
TEST(test_explain_numbers_of_the_graph_that_is_printed)
{
    weft_compiled *compiled = run_model(3);
    CHECK(weft_compiled_details(compiled, text, sizeof text) < TEXT);
    int found = 0;
    for (const char *at = text; (at = strstr(at, "B  %")); at++) {
        int number;
        char name[64], line[96];
        if (sscanf(at, "B  %%%d %63[^ \n:]", &number, name) != 2)
            continue;
        /* one of the two graphs has it */
        snprintf(line, sizeof line, "%%%d = %s", number, name);
        char several[96];
        snprintf(several, sizeof several, "%%%d, ", number);
        CHECK(strstr(text, line) || strstr(text, several));
        found++;
    }
    CHECK(found > 4);
}

TEST(test_explain_before_it_is_measured)
{
    weft_compiled *compiled = run_model(1);
    CHECK(weft_compiled_explain(compiled, text, sizeof text) > 0);
    CHECK_INT(count_of("not measured yet"), 2);
    CHECK_STATUS(weft_compiled_details(NULL, text, sizeof text), WEFT_ERR_INVALID_ARG);
    CHECK_STATUS(weft_compiled_details(compiled, NULL, 5), WEFT_ERR_INVALID_ARG);
    weft_clear_error();
}

int main(int argc, char **argv)
{
    harness_cache_share();
    int code = harness_main(argc, argv);
    harness_cache_close();
    return code;
}
