/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers.  A thread takes a group of elements at a time, as in expressions.h, so that
 * every operand goes through memory once. */
#ifndef WEFT_CUDA_KERNELS_OPTIM_H
#define WEFT_CUDA_KERNELS_OPTIM_H

#include "expressions.h"
#include "kernels/vector/update_step.h"

/* The operands of a group: the parameter, its gradient, its states. */
enum { WEFT_K_PARAM, WEFT_K_GRADIENT, WEFT_K_STATE, WEFT_K_STATE2 };

WEFT_K int weft_k_has_operand(const weft_k_update *c, int k)
{
    return k <= WEFT_K_GRADIENT || c->loop.op == WEFT_K_ADAMW ||
           (k == WEFT_K_STATE && c->loop.op == WEFT_K_MOMENTUM);
}

/* A velocity that holds nothing yet is not read. */
WEFT_K int weft_k_is_read(const weft_k_update *c, int k)
{
    return weft_k_has_operand(c, k) &&
           !(k == WEFT_K_STATE && c->loop.op == WEFT_K_MOMENTUM && c->sgd.first);
}

typedef float weft_k_group_f32[WEFT_K_INPUTS + 1][WEFT_K_GROUP_F32];
typedef uint64_t weft_k_group_f64[WEFT_K_INPUTS + 1][WEFT_K_GROUP];

WEFT_K void weft_k_step_group_f32(const weft_k_update *c, weft_k_group_f32 x)
{
    weft_i_sgd_f32 sgd = weft_i_sgd_in_f32(&c->sgd);
    weft_i_adamw_f32 adamw = weft_i_adamw_in_f32(&c->adamw);
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_GROUP_F32; j++) {
        if (c->loop.op == WEFT_K_ADAMW)
            weft_i_adamw_step_f32(&x[WEFT_K_PARAM][j], &x[WEFT_K_STATE][j], &x[WEFT_K_STATE2][j],
                                  x[WEFT_K_GRADIENT][j], adamw);
        else if (c->loop.op == WEFT_K_MOMENTUM)
            weft_i_momentum_step_f32(&x[WEFT_K_PARAM][j], &x[WEFT_K_STATE][j],
                                     x[WEFT_K_GRADIENT][j], sgd);
        else
            weft_i_sgd_step_f32(&x[WEFT_K_PARAM][j], x[WEFT_K_GRADIENT][j], sgd);
    }
}

WEFT_K void weft_k_run_update_f32(const weft_k_update *c)
{
    const weft_k_pointwise *l = &c->loop;
    int last = l->ndim - 1;
    for (uint64_t t = weft_k_grid_first(); t < l->tasks; t += weft_k_grid_step()) {
        weft_k_place place = weft_k_place_of(l, t, WEFT_K_GROUP_F32);
        weft_k_group_f32 x;
        WEFT_K_UNROLL
        for (int k = 0; k <= WEFT_K_INPUTS; k++) {
            WEFT_K_UNROLL
            for (int j = 0; j < WEFT_K_GROUP_F32; j++)
                x[k][j] = 0;
            if (weft_k_is_read(c, k))
                weft_k_read_f32(k == WEFT_K_GRADIENT ? l->in[0] : l->out, l->data[k] + place.at[k],
                                l->stride[k][last], place.n, x[k]);
        }
        weft_k_step_group_f32(c, x);
        WEFT_K_UNROLL
        for (int k = 0; k <= WEFT_K_INPUTS; k++)
            if (k != WEFT_K_GRADIENT && weft_k_has_operand(c, k))
                weft_k_write_f32(l->out, l->data[k] + place.at[k], l->stride[k][last], place.n,
                                 x[k]);
    }
}

/* The gradient may have another dtype. */
WEFT_K double weft_k_double_of(int dtype, uint64_t bits)
{
    return weft_k_double(dtype == WEFT_K_F64 ? bits : weft_k_convert_out(WEFT_K_F64, dtype, bits));
}

WEFT_K void weft_k_step_group_f64(const weft_k_update *c, weft_k_group_f64 x)
{
    weft_i_sgd_f64 sgd = weft_i_sgd_in_f64(&c->sgd);
    weft_i_adamw_f64 adamw = weft_i_adamw_in_f64(&c->adamw);
    WEFT_K_UNROLL
    for (int j = 0; j < WEFT_K_GROUP; j++) {
        double p = weft_k_double(x[WEFT_K_PARAM][j]), m = weft_k_double(x[WEFT_K_STATE][j]);
        double s = weft_k_double(x[WEFT_K_STATE2][j]);
        double g = weft_k_double_of(c->loop.in[0], x[WEFT_K_GRADIENT][j]);
        if (c->loop.op == WEFT_K_ADAMW)
            weft_i_adamw_step_f64(&p, &m, &s, g, adamw);
        else if (c->loop.op == WEFT_K_MOMENTUM)
            weft_i_momentum_step_f64(&p, &m, g, sgd);
        else
            weft_i_sgd_step_f64(&p, g, sgd);
        x[WEFT_K_PARAM][j] = weft_k_double_bits(p);
        x[WEFT_K_STATE][j] = weft_k_double_bits(m);
        x[WEFT_K_STATE2][j] = weft_k_double_bits(s);
    }
}

WEFT_K void weft_k_run_update_f64(const weft_k_update *c)
{
    const weft_k_pointwise *l = &c->loop;
    int last = l->ndim - 1;
    for (uint64_t t = weft_k_grid_first(); t < l->tasks; t += weft_k_grid_step()) {
        weft_k_place place = weft_k_place_of(l, t, WEFT_K_GROUP);
        weft_k_group_f64 x;
        WEFT_K_UNROLL
        for (int k = 0; k <= WEFT_K_INPUTS; k++) {
            WEFT_K_UNROLL
            for (int j = 0; j < WEFT_K_GROUP; j++)
                x[k][j] = 0;
            if (weft_k_is_read(c, k))
                weft_k_take_bits(l->data[k] + place.at[k], l->stride[k][last],
                                 weft_k_size_of(k == WEFT_K_GRADIENT ? l->in[0] : l->out), place.n,
                                 x[k]);
        }
        weft_k_step_group_f64(c, x);
        WEFT_K_UNROLL
        for (int k = 0; k <= WEFT_K_INPUTS; k++)
            if (k != WEFT_K_GRADIENT && weft_k_has_operand(c, k))
                weft_k_write_bits(l->data[k] + place.at[k], l->stride[k][last], 8, place.n, x[k]);
    }
}

#endif
