/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups and meshes: 4 ranks as 2 copies of a model that is split over 2 ranks.  A mesh has a group
 * for each dimension, here for the sums inside of a copy and for the averages between copies.
 * Run: weft run -n 4 14_mesh
 */
#include <stdio.h>
#include <weft/weft.h>

int main(void)
{
    weft_group *world = weft_init(NULL);
    int me = weft_rank(world);
    if (world && weft_size(world) != 4) {
        if (me == 0)
            fprintf(stderr, "14_mesh is for 4 ranks: weft run -n 4 14_mesh\n");
        weft_finish(world);
        return 2;
    }
    weft_mesh *mesh = weft_mesh_init(world, WEFT_CPU, WEFT_SHAPE(2, 2), "copy,part");
    weft_group *part = weft_mesh_group_named(mesh, "part"); /* ranks 0 1 and 2 3 */
    weft_group *copy = weft_mesh_group_named(mesh, "copy"); /* ranks 0 2 and 1 3 */

    float sum = (float)me, average = (float)me;
    weft_all_reduce_ptr(&sum, &sum, 1, WEFT_F32, WEFT_SUM, part);
    weft_all_reduce_ptr(&average, &average, 1, WEFT_F32, WEFT_AVG, copy);
    printf("rank %d: the sum of its copy is %g, the average of its part %g\n", me, sum, average);
    int wrong = sum != (me < 2 ? 1 : 5) || average != (float)(1 + me % 2);

    /* Any ranks make a group; those that are not in it get NULL, which is no error. */
    weft_group *outer = weft_group_new(world, (const int[]){0, 3}, 2, "outer");
    if (outer) {
        float most = (float)me;
        weft_all_reduce_ptr(&most, &most, 1, WEFT_F32, WEFT_MAX, outer);
        wrong |= most != 3 || weft_size(outer) != 2;
    }
    int status = weft_finish(world);
    return status ? status : wrong;
}
