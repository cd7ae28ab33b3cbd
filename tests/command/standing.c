/* SPDX-License-Identifier: Apache-2.0 */
/* A job to look at: standing FILE.  Rank 2 comes to the second all_reduce when FILE is there; then all
 * add up, until it is gone again.  tests/test-top builds it. */
#include <weft/weft.h>

#include <unistd.h>

enum { COUNT = 1000, REST_US = 2000 };

int main(int argc, char **argv)
{
    weft_group *world = weft_init(NULL);
    weft_tensor *x = weft_ones(WEFT_F32, WEFT_CPU, WEFT_SHAPE(COUNT));
    weft_tensor *more = weft_zeros(WEFT_I32, WEFT_CPU, WEFT_SHAPE(1));
    int go_on = argc == 2;
    weft_all_reduce_into(x, x, WEFT_MAX, world);
    while (go_on && weft_rank(world) == 2 && access(argv[1], F_OK))
        usleep(REST_US);
    while (go_on && weft_all_reduce_into(x, x, WEFT_MAX, world) == WEFT_OK) {
        weft_scope_open();
        weft_fill(more, !access(argv[1], F_OK));
        weft_all_reduce_into(more, more, WEFT_MIN, world);
        go_on = weft_item(more, 0) != 0;
        weft_scope_close();
        usleep(REST_US);
    }
    return weft_finish(world);
}
