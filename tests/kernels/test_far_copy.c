/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: kernels/walk/far_copy.h */
/* Copies past the caches: every begin and end of a line, and nothing beside them. */
#include "harness.h"

#include "kernels/walk/far_copy.h"

#include <stdbool.h>

enum { LINE = WEFT_I_FAR_LINE, LINES = 5, ROOM = LINES * LINE, LEFT = 0x5a };

static void copies(size_t to, size_t from, size_t bytes)
{
    static _Alignas(LINE) unsigned char out[ROOM + 2 * LINE], in[ROOM + 2 * LINE];
    memset(out, LEFT, sizeof out);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(1 + i % 83);
    weft_i_far_copy(out + to, in + from, bytes);
    weft_i_far_end();
    for (size_t i = 0; i < sizeof out; i++) {
        bool copied = i >= to && i < to + bytes;
        if (out[i] != (copied ? in[from + i - to] : LEFT))
            FAIL("byte %zu of %zu from %zu to %zu", i, bytes, from, to);
    }
}

TEST(test_far_copy)
{
    static const size_t froms[] = {0, 1, 16, 63};
    for (size_t to = 0; to < LINE; to++)
        for (size_t i = 0; i < sizeof froms / sizeof *froms; i++)
            for (size_t bytes = 0; bytes <= ROOM; bytes++)
                copies(to, froms[i], bytes);
}

int main(int argc, char **argv)
{
    return harness_main(argc, argv);
}
