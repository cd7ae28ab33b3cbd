/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over all ranks, of a vector and of a number.  Run: weft run -n 4 02_all_reduce */
#include <cstdio>
#include <vector>
#include <weft/weft.hpp>

int main()
{
    weft::world world;
    int me = world.rank(), n = world.size();

    std::vector<float> gradients(1000, static_cast<float>(me + 1));
    world.all_reduce(gradients); // in place: every rank has the same bits now
    int slowest = world.all_reduce_value(me * 10, weft::max);
    std::vector<int> all = world.all_gather(std::vector<int>{me, me * me});

    std::printf("rank %d: the sum is %g, the maximum %d, the last square %d\n", me,
                static_cast<double>(gradients[999]), slowest, all.back());
    bool right = gradients[0] == static_cast<float>(n * (n + 1)) / 2 && slowest == (n - 1) * 10 &&
                 all[1] == 0 && all.back() == (n - 1) * (n - 1);
    int status = world.leave();
    return status ? status : !right;
}
