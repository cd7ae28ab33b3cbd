/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the kernels of pointwise.def and feeds them. */
#include "kernels/vector/pointwise.h"

#include "base/team/team.h"
#include "kernels/number/convert.h"
#include "kernels/vector/vector.h"
#include "kernels/walk/copy.h"

enum { MOST_BYTES = (WEFT_I_POINTWISE_INPUTS + 1) * 8 }; /* of an element */
enum { BLOCK_BYTES = 8192 }; /* of each operand; three inputs and an output stay in a first cache */

weft_dtype weft_i_pointwise_compute(weft_dtype dtype)
{
    return weft_i_dtype_is_small_float(dtype) ? WEFT_F32 : dtype == WEFT_BOOL ? WEFT_U8 : dtype;
}

weft_i_pointwise_kernel *weft_i_pointwise_find(int which, weft_dtype compute)
{
    return weft_i_vector()->pointwise[which][compute];
}

/* What one walk carries: the description, and how many inputs the loop has. */
struct walk {
    const weft_i_pointwise *what;
    int inputs;
};

/* Whether operand `k` of the loop is what the kernel takes or gives, element by element. */
static bool is_direct(const weft_i_pointwise *what, int k, int64_t stride)
{
    weft_dtype has = k ? what->in[k - 1] : what->out, wanted = k ? what->taken[k - 1] : what->made;
    return has == wanted && stride == (int64_t)weft_i_dtype_size(has);
}

/* Elements that fit a block in the widest of the types the kernel sees. */
static size_t block_of(const struct walk *walk)
{
    size_t size = weft_i_dtype_size(walk->what->made);
    for (int k = 0; k < walk->inputs; k++) {
        size_t other = weft_i_dtype_size(walk->what->taken[k]);
        size = other > size ? other : size;
    }
    return BLOCK_BYTES / size;
}

static void run_blocks(const struct walk *walk, size_t n, char *const *data, const int64_t *stride)
{
    const weft_i_pointwise *what = walk->what;
    uint64_t buffer[WEFT_I_POINTWISE_INPUTS][BLOCK_BYTES / sizeof(uint64_t)];
    uint64_t result[BLOCK_BYTES / sizeof(uint64_t)];
    size_t block = block_of(walk);
    bool direct = is_direct(what, 0, stride[0]);
    for (size_t i = 0; i < n; i += block) {
        size_t count = n - i < block ? n - i : block;
        const void *in[WEFT_I_POINTWISE_INPUTS] = {buffer[0], buffer[0], buffer[0]};
        for (int k = 0; k < walk->inputs; k++) {
            int64_t step = stride[k + 1];
            in[k] = buffer[k];
            if (i == 0 || step != 0) /* a repeated value fills its buffer once */
                in[k] = weft_i_load_run(what->taken[k], buffer[k], what->in[k],
                                        data[k + 1] + (int64_t)i * step, step, count);
        }
        char *to = data[0] + (int64_t)i * stride[0];
        what->kernel(count, direct ? (void *)to : result, in);
        if (!direct)
            weft_i_store_run(what->out, to, stride[0], what->made, result, count);
    }
}

static void run(void *state, size_t n, char *const *data, const int64_t *stride)
{
    const struct walk *walk = state;
    bool direct = true;
    for (int k = 0; k <= walk->inputs && direct; k++)
        direct = is_direct(walk->what, k, stride[k]);
    if (!direct) {
        run_blocks(walk, n, data, stride);
        return;
    }
    const void *in[WEFT_I_POINTWISE_INPUTS] = {data[1], data[1], data[1]};
    for (int k = 0; k < walk->inputs; k++)
        in[k] = data[k + 1];
    walk->what->kernel(n, data[0], in);
}

/* Of an element: what is read and written. */
static int64_t bytes_of(const weft_i_pointwise *what, int inputs)
{
    size_t bytes = weft_i_dtype_size(what->out);
    for (int k = 0; k < inputs; k++)
        bytes += weft_i_dtype_size(what->in[k]);
    return (int64_t)bytes;
}

static void run_shared(const struct walk *walk, size_t n, char *const *data, const int64_t *stride)
{
    weft_i_loop loop = {.ndim = 1, .operands = walk->inputs + 1, .dim = {(int64_t)n}};
    for (int k = 0; k <= walk->inputs; k++) {
        loop.data[k] = data[k];
        loop.stride[k][0] = stride[k];
    }
    weft_i_pointwise_each(&loop, walk->what);
}

void weft_i_pointwise_run_one(const weft_i_pointwise *what, int inputs, size_t n, char *const *data,
                              const int64_t *stride)
{
    struct walk walk = {what, inputs};
    if (__builtin_expect(weft_i_team_may_cut((int64_t)n, MOST_BYTES), 0))
        run_shared(&walk, n, data, stride);
    else if (n)
        run(&walk, n, data, stride);
}

void weft_i_pointwise_each(const weft_i_loop *loop, const weft_i_pointwise *what)
{
    struct walk walk = {what, loop->operands - 1};
    weft_i_loop_share(*loop, bytes_of(what, walk.inputs), run, &walk);
}
