/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface from C++: tensor operations inside a scope, which owns their results, with
 * weft::check for what may fail.  Each rank has a part of a matrix, as in tensor parallelism.
 * Run: weft run -n 4 04_tensors
 */
#include <cstdio>
#include <weft/weft.hpp>

int main()
{
    constexpr std::int64_t tokens = 8, hidden = 64;
    weft::world world;
    bool right;
    {
        weft::scope temporaries;
        std::int64_t part = hidden / world.size();
        weft_tensor *x = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(tokens, part), 1);
        weft_tensor *w = weft_full(WEFT_F32, WEFT_CPU, WEFT_SHAPE(part, hidden), 0.5);
        weft_tensor *y = weft::check(weft_all_reduce(weft_mm(x, w), weft::sum, world.get()));
        right = weft_item(y, 0) == 0.5 * static_cast<double>(part * world.size());
        std::printf("rank %d: y[0] is %g\n", world.rank(), weft_item(y, 0));
    }
    int status = world.leave();
    return status ? status : !right;
}
