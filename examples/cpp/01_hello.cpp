/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank shows its neighbour a number: 01_hello.c in C++.  Run: weft run -n 4 01_hello */
#include <cstdio>
#include <weft/weft.hpp>

int main()
{
    weft::world world;
    int me = world.rank(), n = world.size();
    int next = (me + 1) % n, last = (me + n - 1) % n;

    weft::shared<float> x(world, 1024); // now every rank can touch every x
    for (float &item : x.mine())
        item = static_cast<float>(me);
    x.barrier();

    std::printf("rank %d: rank %d holds %g\n", me, next, static_cast<double>(x.peer(next)[0]));

    x.put_signal(last); // "I have read yours"
    x.wait_signal(next);
    return world.leave();
}
