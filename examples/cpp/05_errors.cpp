/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors are exceptions that know what is still usable.  A rank that gives a sum another size is a
 * mistake of the program: all ranks learn of it, and here they go on without it.  The ranks are
 * threads.  Run: ./05_errors
 */
#include <cstdio>
#include <vector>
#include <weft/weft.hpp>

static void rank_main(weft::world &world)
{
    weft::group pair(*weft::group::split(world, world.rank() / 2));
    try {
        std::vector<float> x(static_cast<std::size_t>(10 + world.rank()));
        pair.all_reduce(x);
        throw std::logic_error("a mismatch went unnoticed");
    } catch (const weft::mismatch_error &error) {
        if (world.rank() == 0)
            std::printf("as expected: %s\n", error.what());
    }
    if (world.all_reduce_value(1) != world.size()) // the world has nothing to do with the pair
        throw std::logic_error("the world was lost");
}

int main()
{
    weft::spawn(4, rank_main);
    std::puts("four ranks went on");
}
