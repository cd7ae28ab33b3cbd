/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communication behind computation: a posted operation returns at once, and its work is waited for
 * when the result is needed, or when it goes out of scope.  Run: weft run -n 2 03_start_wait
 */
#include <cstdio>
#include <vector>
#include <weft/weft.hpp>

int main()
{
    weft::world world;
    std::vector<std::vector<double>> layers;
    std::vector<weft::work> pending;
    layers.reserve(4); // posted operands must not move
    for (int layer = 0; layer < 4; layer++) {
        layers.emplace_back(1 << 14, layer + world.rank()); // some computation
        pending.push_back(world.all_reduce_start(layers.back(), weft::avg));
    }
    bool right = true;
    for (int layer = 0; layer < 4; layer++) {
        pending[static_cast<std::size_t>(layer)].wait();
        double wanted = layer + (world.size() - 1) / 2.0;
        right = right && layers[static_cast<std::size_t>(layer)].back() == wanted;
    }
    std::printf("rank %d: %s\n", world.rank(), right ? "averages are right" : "wrong");
    pending.clear();
    int status = world.leave();
    return status ? status : !right;
}
